//! Converts the dynamic configuration of Traefik 2 and 3, and of its static configuration what belongs to it.
//!
//! Routers become routes in the order of their priorities, and their middlewares become policies and settings of the
//! routes. Names are read in any case, and with or without `@PROVIDER`, as Traefik does.

mod entry_points;
mod middlewares;
mod redirects;
mod routers;
mod rule;
mod services;
#[cfg(test)]
mod tests;

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use super::{
    ConvertError, Draft,
    document::{Document, Fields, Item},
    yaml::{Comment, Map, Node},
};
use entry_points::{EntryPoint, Tls};

/// The most files of a directory that are read.
const MAX_FILES: usize = 200;

/// Converts `text`, the file at `path`: a dynamic configuration, or a static one that names it.
pub(super) fn convert(text: &str, path: &Path) -> Result<Draft, ConvertError> {
    let is_toml = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml"))
        || text.lines().any(|line| {
            line.trim_start().starts_with("[http") || line.trim_start().starts_with("[entryPoints")
        });
    if is_toml {
        let what = "this is TOML: convert it to YAML first, for example by `yq -p toml -o yaml`; TOML \
            is nothing that"
            .to_owned();
        return Err(ConvertError::Unsupported { file: path.to_owned(), what });
    }
    let first = Document::parse(&path.display().to_string(), text)?;
    let mut draft = Draft::default();
    let (others, entry_points) = {
        let fields = first.root().fields();
        let is_static = ["entryPoints", "providers", "certificatesResolvers", "api"]
            .iter()
            .any(|key| fields.take(key).is_some_and(|item| !item.is_null()));
        match is_static {
            true => entry_points::read_static(&first.root().fields(), path, &mut draft)?,
            false => (Vec::new(), None),
        }
    };
    let documents: Vec<Document> = [first].into_iter().chain(others).collect();
    let traefik = Traefik::new(&documents, entry_points, draft);
    Ok(traefik.convert())
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

/// The named things of all files, and what is made of them.
struct Traefik<'d> {
    routers: Vec<(&'d str, Item<'d>)>,
    middlewares: BTreeMap<String, (&'d str, Item<'d>)>,
    services: BTreeMap<String, (&'d str, Item<'d>)>,
    transports: BTreeMap<String, Item<'d>>,
    tls: Tls<'d>,
    entry_points: Option<Vec<EntryPoint>>,
    draft: Draft,
    /// Names of middlewares and services that a router uses.
    used: RefCell<BTreeSet<String>>,
    /// The networks of `excludedIPs` and the like.
    trusted: BTreeSet<String>,
    /// Upstreams by the names of services.
    upstreams: BTreeMap<String, String>,
    /// Policies by the names of middlewares, and of routers if each has its own.
    policies: BTreeMap<(String, Option<String>), String>,
}

impl<'d> Traefik<'d> {
    fn new(documents: &'d [Document], entry_points: Option<Vec<EntryPoint>>, draft: Draft) -> Self {
        let mut traefik = Self {
            routers: Vec::new(),
            middlewares: BTreeMap::new(),
            services: BTreeMap::new(),
            transports: BTreeMap::new(),
            tls: Tls::default(),
            entry_points,
            draft,
            used: RefCell::default(),
            trusted: BTreeSet::new(),
            upstreams: BTreeMap::new(),
            policies: BTreeMap::new(),
        };
        for document in documents {
            traefik.collect(&document.root().fields());
        }
        traefik
    }

    fn collect(&mut self, root: &Fields<'d>) {
        let http = root.fields("http");
        self.routers.extend(http.fields("routers").each());
        for (name, item) in http.fields("middlewares").each() {
            self.middlewares.insert(plain_name(name), (name, item));
        }
        for (name, item) in http.fields("services").each() {
            self.services.insert(plain_name(name), (name, item));
        }
        for (name, item) in http.fields("serversTransports").each() {
            self.transports.insert(plain_name(name), item);
        }
        let notes = leftovers(&http, "http");
        self.draft.head.extend(notes);
        self.tls.collect(&root.fields("tls"), &mut self.draft.head);
        root.ignore(&entry_points::STATIC_KEYS);
        for (key, item) in root.rest() {
            let text = match key.to_ascii_lowercase().as_str() {
                "tcp" | "udp" => {
                    format!(
                        "`{key}`: Tollgate forwards HTTP only. Leave this to nginx (`stream`) or \
                        HAProxy"
                    )
                }
                key if key.starts_with("x-") => continue,
                _ => format!("`{key}` has no equal"),
            };
            self.draft.head.push(item.note(text));
        }
    }

    fn convert(mut self) -> Draft {
        let routers = self.routers();
        self.listeners(&routers);
        self.routes(routers);
        self.unused();
        if !self.trusted.is_empty() {
            let networks: Vec<_> = self.trusted.iter().cloned().collect();
            self.draft.settings.set("trusted_proxies", networks);
        }
        let comment = "Traefik compares paths letter by letter. Without this, /LOGIN and /login/ are \
            /login, too, so that no spelling \
             bypasses a limit. PathPrefix(`/api`) also matches /apis: where only what is below /api is \
             meant, write /api/*.";
        let strict = Node::from(Map::new().with("case", "sensitive").with("trailing_slash", "exact"));
        self.draft.settings.set("match", strict.commented(Comment::Plain(comment.to_owned())));
        self.draft
    }

    /// Policies of middlewares that no router here uses, and notes about everything else that is unused.
    fn unused(&mut self) {
        let used = self.used.borrow().clone();
        let middlewares: Vec<_> = self
            .middlewares
            .iter()
            .filter(|(name, _)| !used.contains(*name))
            .map(|(_, entry)| *entry)
            .collect();
        for (name, item) in middlewares {
            match self.unused_policy(name, item) {
                true => {}
                false => self.draft.head.push(item.note(format!(
                    "no router of this file uses the middleware `{name}`: not \
                        converted"
                ))),
            }
        }
        let services: Vec<_> =
            self.services.iter().filter(|(name, _)| !used.contains(*name)).map(|(_, entry)| *entry).collect();
        for (name, item) in services {
            self.draft.head.push(item.note(format!(
                "no router of this file uses the service `{name}`: not \
                    converted"
            )));
        }
    }
}

/// The name without its provider, in lower case.
fn plain_name(name: &str) -> String {
    name.split('@').next().unwrap_or(name).to_ascii_lowercase()
}

/// Notes about keys that nobody has read.
fn leftovers(fields: &Fields<'_>, of: &str) -> Vec<Comment> {
    let rest = fields.rest().into_iter();
    rest.map(|(key, item)| item.note(format!("`{of}.{key}` has no equal"))).collect()
}

/// A duration as Traefik reads it, `1m30s` or a number of seconds, in milliseconds.
fn milliseconds(text: &str) -> Option<u64> {
    if let Ok(seconds) = text.parse::<u64>() {
        return seconds.checked_mul(1000);
    }
    let (mut total, mut rest) = (0.0_f64, text);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        total += number
            * match &rest[..unit] {
                "ns" => 1e-6,
                "us" | "µs" => 1e-3,
                "ms" => 1.0,
                "s" => 1e3,
                "m" => 6e4,
                "h" => 36e5,
                _ => return None,
            };
        rest = &rest[unit..];
    }
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is positive, and bounded by the text"
    )]
    (total.is_finite() && total < 1e15).then_some(total.round() as u64)
}
