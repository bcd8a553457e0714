//! The names that other software has for our settings. `foreign_names.txt` lists them, and documents its format.

use std::{
    collections::HashMap,
    slice,
    sync::{Arc, LazyLock},
};

use super::Cursor;

/// The longest value that is shown in a suggestion, in bytes.
const MAX_SHOWN: usize = 80;
/// Marks in the lines of `foreign_names.txt`. The user's value replaces them, rewritten as each mark demands.
const MARKS: [&str; 8] = ["VALUE", "SIZE", "DURATION", "PATH", "HOSTS", "FIELD", "REGEX", "KEY"];

static SECTIONS: LazyLock<Sections> = LazyLock::new(|| parse(include_str!("../foreign_names.txt")));

/// The foreign names of each mapping, by the mapping's path.
type Sections = HashMap<String, HashMap<&'static str, Arc<ForeignName>>>;

/// The help for a foreign name.
pub(super) struct ForeignName {
    /// The line to write. It begins with our name.
    line: String,
    /// Text after the line.
    more: String,
}

impl ForeignName {
    /// Finds the foreign name `key` in `section`.
    pub(super) fn find(section: &str, key: &str) -> Option<&'static Self> {
        SECTIONS.get(section)?.get(&*key.to_ascii_lowercase().replace('-', "_")).map(|found| &**found)
    }

    pub(super) fn has_section(section: &str) -> bool {
        SECTIONS.contains_key(section)
    }

    /// Our name.
    pub(super) fn ours(&self) -> &str {
        self.line.split(':').next().unwrap_or_default()
    }

    /// The help for the user who wrote `value`.
    pub(super) fn help(&self, value: Cursor<'_>) -> String {
        let word = value.scalar().filter(|text| text.len() <= MAX_SHOWN && !value.is_secret());
        let mut line = self.line.clone();
        if line == "address: VALUE" && word.is_some_and(|port| port.parse::<u16>().is_ok()) {
            line = "address: 0.0.0.0:VALUE".to_owned();
        }
        for mark in MARKS {
            let text = word.map(|word| value.rewrite_foreign(mark, word));
            line = line.replace(mark, text.as_deref().unwrap_or("…"));
        }
        match &*self.more {
            "" => format!("did you mean `{line}`?"),
            more => format!("write `{line}`{more}"),
        }
    }
}

fn parse(text: &'static str) -> Sections {
    // The text at the margin, and the names below it.
    let mut items: Vec<(String, Vec<&str>)> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match items.last_mut() {
            Some((_, names)) if line.starts_with(' ') => names.extend(line.split_whitespace()),
            Some((head, _)) if !line.starts_with(['[', '$', '`']) => head.extend([" ", line]),
            _ => items.push((line.to_owned(), Vec::new())),
        }
    }
    let (mut sections, mut paths, mut groups) = (Sections::new(), Vec::new(), HashMap::new());
    for (head, names) in items {
        if let Some(listed) = head.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            paths = listed.split(", ").map(str::to_owned).collect();
        } else if let Some((line, more)) = head.strip_prefix('`').and_then(|rest| rest.split_once('`')) {
            let entry = Arc::new(ForeignName { line: line.to_owned(), more: more.to_owned() });
            let names =
                names.iter().flat_map(|name| groups.get(*name).map_or(slice::from_ref(name), Vec::as_slice));
            for (path, name) in paths.iter().flat_map(|path| names.clone().map(move |name| (path, name))) {
                let replaced = sections.entry(path.clone()).or_default().insert(name, Arc::clone(&entry));
                debug_assert!(replaced.is_none(), "`{name}` is twice in [{path}]");
            }
        } else {
            groups.insert(head, names);
        }
    }
    sections
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, SystemLookup};

    /// A configuration with `keys` in the mapping at `path`: `routes: [{ cors: { keys } }]` for `routes[].cors`.
    fn at(path: &str, keys: String) -> String {
        path.rsplit('.').fold(keys, |inner, step| match step {
            "top level" => inner,
            "*" => format!("api: {{ {inner} }}"),
            // The mappings of an invalid path are not all read.
            "routes[]" => format!("routes: [{{ path: /*, {inner} }}]"),
            _ => match step.strip_suffix("[]") {
                Some(list) => format!("{list}: [{{ {inner} }}]"),
                None => format!("{step}: {{ {inner} }}"),
            },
        })
    }

    #[test]
    fn every_foreign_name_gets_the_help_of_its_entry_in_its_mapping() {
        for (path, names) in &*SECTIONS {
            // A list: for some single values, readers have a help of their own.
            let keys: Vec<String> = names.keys().map(|name| format!("{name}: []")).collect();
            let text = format!("{{ {} }}", at(path, keys.join(", ")));
            let errors = config::parse("proxy.yaml", &text, &SystemLookup).unwrap_err();
            for (name, entry) in names {
                let plain = |char: char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '_';
                assert!(name.chars().all(plain), "[{path}] {name}");
                let message = format!("unknown key `{name}`");
                let problem = errors.problems().iter().find(|problem| problem.message == message);
                let help = problem.and_then(|problem| problem.help.as_deref()).unwrap_or_default();
                let begins = help.contains(&format!("`{}: ", entry.ours()));
                assert!(begins && help.ends_with(&*entry.more), "[{path}] {name}: {help:?}");
            }
        }
    }
}
