//! The converted file: its routes and their comments, and a Tollgate that runs it.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::Value;

use super::outcome::Outcome;

use crate::harness::{Config, Tollgate, eventually, tollgate_in};

/// What `tollgate convert` made of a configuration.
pub struct Converted {
    pub yaml: String,
    /// Whether something has no equal: exit code 3.
    pub has_notes: bool,
    /// The names of the files: notes name one and a line of it.
    files: Vec<String>,
    /// Each route by the name that logs have, with the comments before it and in it.
    routes: BTreeMap<String, String>,
    /// Likewise each policy.
    policies: BTreeMap<String, String>,
}

impl Converted {
    /// Converts the first of these files, which lie in `directory`.
    ///
    /// # Errors
    /// It cannot be converted, or Tollgate cannot load the result.
    pub fn new(directory: &Path, files: &[(String, String)], from: &str) -> Result<Self, String> {
        let files: Vec<String> = files.iter().map(|(name, _)| name.clone()).collect();
        let file = files[0].as_str();
        let ended = tollgate_in(directory, &[], &["convert", file, "--from", from, "--output", "proxy.yaml"]);
        if !matches!(ended.code, Some(0 | 3)) {
            return Err(format!("convert ends with {:?}: {}", ended.code, ended.stderr));
        }
        let yaml = fs::read_to_string(directory.join("proxy.yaml")).unwrap();
        let checked = tollgate_in(directory, &[], &["check"]);
        if checked.code != Some(0) {
            return Err(format!(
                "check ends with {:?}: {}{}\n{yaml}",
                checked.code, checked.stdout, checked.stderr
            ));
        }
        let (routes, policies) = (routes(&yaml), policies(&yaml));
        Ok(Self { yaml, has_notes: ended.code == Some(3), files, routes, policies })
    }

    /// Runs it.
    ///
    /// # Errors
    /// It does not start.
    pub fn run(&self) -> Result<Tollgate, String> {
        let yaml = format!("{}\naccess_log: {{ format: json, to: access.log }}\n", self.yaml);
        Tollgate::try_start(Config::yaml(yaml)).map_err(|said| format!("Tollgate does not start: {said}"))
    }

    /// Whether a comment names what became of a request: one of the route that it took, or of the policy that denied it.
    /// If it took none, the comment stands before the routes.
    pub fn is_noted(&self, taken: &Taken) -> bool {
        let is_place = |text: &str| self.files.iter().any(|file| text.contains(&format!("{file}:")));
        let noted =
            |text: &str| text.lines().any(|line| line.trim_start().strip_prefix('#').is_some_and(is_place));
        let head = || self.yaml.split("\nroutes:\n").next().unwrap_or_default();
        let of_route =
            taken.route.as_ref().map_or_else(|| Some(head()), |name| self.text(&self.routes, name));
        let of_policy = taken.policy.as_ref().and_then(|name| self.text(&self.policies, name));
        self.has_notes && [of_route, of_policy].into_iter().flatten().any(noted)
    }

    fn text<'s>(&'s self, items: &'s BTreeMap<String, String>, name: &str) -> Option<&'s str> {
        items.get(name).map(String::as_str)
    }

    /// The directives that the comments of the route name: the first words behind their places, or behind the same places
    /// further up.
    pub fn noted_words(&self, taken: &Taken) -> Vec<String> {
        let text = taken.route.as_ref().and_then(|name| self.text(&self.routes, name)).unwrap_or_default();
        let places = text.lines().filter_map(|line| {
            let place = line.trim_start().strip_prefix("# ")?.split_once(": ")?.0;
            self.files.iter().any(|file| place.starts_with(&format!("{file}:"))).then_some(place)
        });
        let word = |place: &str| {
            let mark = format!("# {place}: `");
            let rest = self.yaml.lines().find_map(|line| line.trim_start().strip_prefix(&mark))?;
            Some(rest.split([' ', '`', ';']).next().unwrap_or_default().to_owned())
        };
        places.filter_map(word).collect()
    }

    /// Whether a comment has this word, in any case.
    pub fn says(&self, word: &str) -> bool {
        let has = |line: &str| line.trim_start().starts_with('#') && line.to_ascii_lowercase().contains(word);
        self.has_notes && self.yaml.lines().any(has)
    }
}

/// The routes of a file by their names, each with the lines of comments before it and its own.
fn routes(yaml: &str) -> BTreeMap<String, String> {
    let mut routes = BTreeMap::new();
    let mut item = String::new();
    let mut comments = String::new();
    let mut counts = BTreeMap::<String, usize>::new();
    let mut add = |item: &mut String| {
        let text = std::mem::take(item);
        let Some(name) = value(&text, "name").or_else(|| value(&text, "path")) else { return };
        let count = counts.entry(name.clone()).or_default();
        *count += 1;
        let name = if *count == 1 { name } else { format!("{name}#{count}") };
        routes.insert(name, text);
    };
    let section = yaml.lines().skip_while(|line| *line != "routes:").skip(1);
    for line in section.take_while(|line| line.is_empty() || line.starts_with([' ', '#'])) {
        if line.starts_with("  - ") {
            add(&mut item);
            item = format!("{comments}{line}\n");
            comments.clear();
        } else if line.starts_with("  #") {
            comments += &format!("{line}\n");
        } else {
            item += &format!("{line}\n");
        }
    }
    add(&mut item);
    routes
}

/// The policies of a file, each with the lines of comments before it and its own.
fn policies(yaml: &str) -> BTreeMap<String, String> {
    let mut policies = BTreeMap::<String, String>::new();
    let (mut comments, mut last) = (String::new(), None);
    let section = yaml.lines().skip_while(|line| *line != "policies:").skip(1);
    for line in section.take_while(|line| line.is_empty() || line.starts_with([' ', '#'])) {
        let name = line
            .strip_prefix("  ")
            .filter(|rest| !rest.starts_with([' ', '#']))
            .and_then(|rest| rest.split_once(':'));
        if let Some((name, _)) = name {
            let name = name.trim_matches('"').to_owned();
            policies.insert(name.clone(), std::mem::take(&mut comments));
            last = Some(name);
        } else if line.starts_with("  #") {
            comments += &format!("{line}\n");
        } else if let Some(text) = last.as_ref().and_then(|last| policies.get_mut(last)) {
            *text += &format!("{line}\n");
        }
    }
    policies
}

/// The value of a key of a route: `path: "/a"` or `path: /a,`.
fn value(item: &str, key: &str) -> Option<String> {
    let mut lines = item.lines().filter(|line| !line.trim_start().starts_with('#'));
    let marks = [format!("- {{ {key}: "), format!("- {key}: "), format!(", {key}: "), format!("    {key}: ")];
    let find = |line: &str| {
        let rest = marks.iter().find_map(|mark| Some(line.split_once(mark.as_str())?.1))?;
        let text = match rest.chars().next()? {
            quote @ ('"' | '\'') => {
                let end = rest[1..].find(quote)? + 1;
                let text = rest[1..end].to_owned();
                if quote == '"' { text.replace("\\\\", "\\") } else { text }
            }
            _ => rest.split([',', '}']).next()?.trim().to_owned(),
        };
        Some(text)
    };
    lines.find_map(find)
}

/// What a request met in Tollgate.
#[derive(Default)]
pub struct Taken {
    pub route: Option<String>,
    /// The policy that denied it.
    pub policy: Option<String>,
}

impl Taken {
    /// What the request with this response met. Nothing, if there is no response.
    pub fn by(tollgate: &Tollgate, ours: &Outcome) -> Self {
        let Some(id) = ours.values("x-request-id").first().copied() else { return Self::default() };
        let log = tollgate.directory().join("access.log");
        let mut found = None;
        eventually("the request is in the log", || {
            let text = fs::read_to_string(&log).unwrap_or_default();
            let mut lines = text.lines().filter(|line| line.contains(id));
            found = lines.find_map(|line| serde_json::from_str::<Value>(line).ok());
            found.is_some()
        });
        let line = found.unwrap_or_default();
        let text = |key: &str| line[key].as_str().map(str::to_owned);
        Self { route: text("route"), policy: text("policy") }
    }
}
