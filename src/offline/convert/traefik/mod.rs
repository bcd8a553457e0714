//! Converts the dynamic configuration of Traefik 2 and 3, and the parts of its static configuration that affect requests.
//!
//! Each entry point is a listener with a site of its own: its routers in the order of their priorities. A router enters
//! its middlewares and its service.

mod entry_points;
mod headers;
mod limits;
mod middlewares;
mod paths;
mod redirects;
mod routers;
mod rule;
mod services;
mod statics;
#[cfg(test)]
mod tests;
mod tls;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use super::{
    ConvertError,
    document::{Fields, ForeignDocument, Item},
    draft::ConfigDraft,
    networks::Networks,
    read,
    yaml::Comment,
};
use entry_points::EntryPoint;
use rule::Syntax;
use services::TraefikService;

/// The most files of a directory that are read.
const MAX_FILES: usize = 200;

/// Converts `text`, the file at `path`: a dynamic configuration, or a static one that names it.
pub(super) fn convert(text: &str, path: &Path) -> Result<ConfigDraft, ConvertError> {
    let is_section = |line: &str| ["[http", "[entryPoints"].iter().any(|begin| line.starts_with(begin));
    let is_toml = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml"));
    if is_toml || text.lines().map(str::trim_start).any(is_section) {
        let what = "this is TOML, which tollgate convert does not read. Convert it to YAML first, for example by \
                    `yq -p toml -o yaml`";
        return Err(ConvertError::Unsupported { file: path.to_owned(), what: what.to_owned() });
    }
    let mut draft = ConfigDraft::default();
    let mut documents = vec![ForeignDocument::parse(&path.display().to_string(), text)?];
    let files = named_files(&documents[0].root().fields(), path, &mut draft.head);
    for file in files {
        documents.push(ForeignDocument::parse(&file.display().to_string(), &read(&file)?)?);
    }
    let mut traefik = Traefik { draft, ..Traefik::default() };
    for document in &documents {
        traefik.collect(&document.root().fields());
    }
    Ok(traefik.convert())
}

/// The files that `providers.file` of a static configuration names.
fn named_files(root: &Fields<'_>, path: &Path, head: &mut Vec<Comment>) -> Vec<PathBuf> {
    let file = root.fields("providers").fields("file");
    let mut files = Vec::new();
    for named in ["filename", "directory"].into_iter().filter_map(|key| file.take(key)) {
        let Some(name) = named.text() else { continue };
        let beside = path.parent().unwrap_or(Path::new("."));
        // The path is one in a container, more often than not.
        let candidates = [beside.join(name), beside.join(Path::new(name).file_name().unwrap_or_default())];
        match candidates.iter().find(|candidate| candidate.exists()) {
            Some(found) => files.extend(dynamic_files(found).into_iter().filter(|file| file != path)),
            None => head.push(named.note(format!("{name} is not on this machine: convert it as well"))),
        }
    }
    files
}

/// The YAML files that `path` names: itself, or those of the directory.
fn dynamic_files(path: &Path) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.to_owned()];
    }
    let is_yaml =
        |path: &PathBuf| path.extension().is_some_and(|extension| extension == "yml" || extension == "yaml");
    let entries = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<_> = entries.filter(is_yaml).take(MAX_FILES).collect();
    files.sort();
    files
}

type Named<'d> = BTreeMap<&'d str, Item<'d>>;

/// The named items of all files, and their conversion.
#[derive(Default)]
struct Traefik<'d> {
    routers: Vec<(&'d str, Item<'d>)>,
    middlewares: Named<'d>,
    services: Named<'d>,
    transports: Named<'d>,
    tls_options: Named<'d>,
    certificates: Vec<(&'d str, &'d str)>,
    entry_points: Vec<EntryPoint<'d>>,
    /// Of rules whose router has no `ruleSyntax`.
    syntax: Option<Syntax>,
    draft: ConfigDraft,
    /// Middlewares and services that a router uses.
    used: BTreeSet<(&'static str, &'d str)>,
    /// Proxies that tell the client by the PROXY protocol.
    proxies: Networks,
    /// Those whose `X-Forwarded-For` counts.
    trusted: Networks,
    made: BTreeMap<&'d str, TraefikService>,
    /// Policies by middleware, router and entry point.
    policies: BTreeMap<[String; 3], String>,
}

impl<'d> Traefik<'d> {
    fn collect(&mut self, root: &Fields<'d>) {
        let http = root.fields("http");
        self.routers.extend(http.fields("routers").each());
        let tls = root.fields("tls");
        for (fields, key, named) in [
            (&http, "middlewares", &mut self.middlewares),
            (&http, "services", &mut self.services),
            (&http, "serversTransports", &mut self.transports),
            (&tls, "options", &mut self.tls_options),
        ] {
            for (name, item) in fields.fields(key).each() {
                named.entry(name).or_insert(item);
            }
        }
        self.certificates(&tls);
        self.static_part(root);
        self.leftovers(&http, "http");
        for (key, item) in root.rest().into_iter().filter(|(key, _)| !key.starts_with("x-")) {
            self.draft.head.push(item.note(format!("`{key}` has no equal")));
        }
    }

    /// Notes keys that nobody has read.
    fn leftovers(&mut self, fields: &Fields<'_>, of: &str) {
        self.draft.head.extend(rest(fields, of));
    }

    fn convert(mut self) -> ConfigDraft {
        let routers = self.read_routers();
        self.guess_entry_points(&routers);
        self.trust();
        self.sites(&routers);
        self.unused(routers.is_empty());
        self.draft
    }

    /// Notes about everything that no router uses. A file without routers is for its policies.
    fn unused(&mut self, is_without_routers: bool) {
        let mut rules = Vec::new();
        for (kind, named) in [("middleware", self.middlewares.clone()), ("service", self.services.clone())] {
            for (name, item) in named {
                if self.used.contains(&(kind, name)) {
                    continue;
                }
                let limits = match (kind, is_without_routers) {
                    ("middleware", true) => self.limits_alone(name, item),
                    _ => Vec::new(),
                };
                let what = match limits.is_empty() {
                    true => "not converted",
                    false => "add it to `policies` of its routes",
                };
                let text = format!("no router of this file uses the {kind} `{name}`: {what}");
                self.draft.head.push(item.note(text));
                rules.extend(limits);
            }
        }
        if is_without_routers {
            self.placeholder(rules);
        }
    }
}

/// Notes on keys that nobody has read. `of`: their owner.
fn rest(fields: &Fields<'_>, of: &str) -> Vec<Comment> {
    fields.rest().into_iter().map(|(key, item)| item.note(format!("`{of}.{key}` has no equal"))).collect()
}

/// The name without the provider of this file.
fn plain_name(name: &str) -> &str {
    name.strip_suffix("@file").unwrap_or(name)
}

/// A duration as Traefik reads it, `1m30s` or a number of seconds, in milliseconds.
fn milliseconds(text: &str) -> Option<u64> {
    if let Ok(seconds) = text.parse::<u64>() {
        return seconds.checked_mul(1000);
    }
    let (mut total, mut rest) = (0_u64, text);
    while !rest.is_empty() {
        let (number, behind) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
        let (unit, next) = behind.split_at(behind.find(|c: char| c.is_ascii_digit()).unwrap_or(behind.len()));
        let unit = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return None,
        };
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(unit)?)?;
        rest = next;
    }
    Some(total)
}
