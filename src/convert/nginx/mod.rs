//! Converts nginx.conf.
//!
//! `syntax` reads the text; `scope` knows which directives inner blocks inherit; `keys` and `policies` make policies of
//! zones; `servers` makes listeners, and chooses the order of servers; `locations` orders the locations of a server;
//! `routes` makes routes of one location; `upstreams` makes upstreams of `proxy_pass`.

mod keys;
mod locations;
mod policies;
mod routes;
mod scope;
mod servers;
mod syntax;
mod upstreams;
mod values;
mod words;

use std::{
    collections::{BTreeSet, HashMap},
    path::{Path, PathBuf},
};

use super::{
    ConvertError, Draft, Note, Place,
    route_draft::duration,
    yaml::{Comment, Map},
};

use keys::Tables;
use policies::Zones;
use scope::Scope;
use syntax::Directive;

pub(super) use keys::is_network;
pub(super) use values::{encoded, escaped, expression, is_authority};

/// What is known of a configuration while it is converted.
struct Converter<'d> {
    draft: Draft,
    /// Relative names of files begin here.
    directory: PathBuf,
    tables: Tables<'d>,
    zones: Zones<'d>,
    /// The `upstream` blocks by name.
    upstreams: HashMap<&'d str, &'d Directive>,
    /// Names of directives that were left out because nothing depends on them.
    irrelevant: BTreeSet<&'d str>,
    /// Texts that are said once.
    said: BTreeSet<String>,
    /// Whether the listeners in clear text of the current server redirect to https.
    redirects_plain: bool,
}

/// Converts `text`, the file at `path`.
pub(super) fn convert(text: &str, path: &Path) -> Result<Draft, ConvertError> {
    let parsed = syntax::parse(text, path)?;
    let directory = path.parent().unwrap_or(Path::new("")).to_owned();
    let mut converter = Converter {
        draft: Draft::default(),
        directory,
        tables: Tables::default(),
        zones: Zones::default(),
        upstreams: HashMap::new(),
        irrelevant: BTreeSet::new(),
        said: BTreeSet::new(),
        redirects_plain: false,
    };
    for (include, reason) in &parsed.not_included {
        let name = include.argument(0);
        // Tables that come with nginx.
        if !["mime.types", "_params", "fastcgi.conf", "modules-enabled"]
            .iter()
            .any(|known| name.contains(known))
        {
            converter.head(&include.place, format!("`include {name}`: {reason}"));
        }
    }
    converter.main(&parsed.directives);
    Ok(converter.draft)
}

impl<'d> Converter<'d> {
    /// Reads the top level of a file. A file without `http`, as in conf.d, has what would be in that block, or in the
    /// one of a server.
    fn main(&mut self, directives: &'d [Directive]) {
        let blocks: Vec<_> = directives.iter().filter(|directive| directive.name == "http").collect();
        if blocks.is_empty() {
            self.http(directives);
        } else {
            for directive in directives.iter().filter(|directive| directive.name != "http") {
                self.leave_out(directive);
            }
            let http: Vec<&Directive> = blocks.iter().flat_map(|block| block.children()).collect();
            self.http(http);
        }
        if !self.irrelevant.is_empty() {
            let names = self.irrelevant.iter().copied().collect::<Vec<_>>().join(", ");
            let text = format!("Left out, since Tollgate has nothing to set or needs no setting: {names}.");
            self.draft.head.push(Comment::Plain(text));
        }
    }

    fn http(&mut self, directives: impl IntoIterator<Item = &'d Directive>) {
        let directives: Vec<&Directive> = directives.into_iter().collect();
        for directive in &directives {
            match directive.name.as_str() {
                "map" | "geo" => self.tables.add(directive),
                "upstream" => {
                    self.upstreams.insert(directive.argument(0), directive);
                }
                "limit_req_zone" | "limit_conn_zone" => self.zones.add(directive),
                _ => {}
            }
        }
        let scope = Scope::default().enter(directives.iter().copied());
        self.zone_notes();
        self.real_ip(&directives);
        self.client_limits(&directives);
        let is_of_server = |name: &str| matches!(name, "location" | "listen" | "server_name");
        let is_server = directives.iter().any(|directive| is_of_server(&directive.name))
            && !directives.iter().any(|directive| directive.name == "server");
        for directive in &directives {
            let known = matches!(
                directive.name.as_str(),
                "map" | "geo" | "upstream" | "limit_req_zone" | "limit_conn_zone" | "server"
            );
            if !known && !is_server && !Scope::is_inherited(&directive.name) {
                self.leave_out(directive);
            }
        }
        if !is_server && !directives.iter().any(|directive| directive.name == "server") {
            for directive in directives.iter().filter(|directive| Scope::is_inherited(&directive.name)) {
                // `real_ip` has read these.
                if !directive.name.contains("real_ip") && directive.name != "client_max_body_size" {
                    let text =
                        format!("`{}`: it holds for servers, of which this file has none", directive.shown());
                    self.head(&directive.place, text);
                }
            }
        }
        let servers = match is_server {
            true => vec![servers::Server::new(directives)],
            false => directives
                .into_iter()
                .filter(|directive| directive.name == "server")
                .map(|server| servers::Server::new(server.children().iter().collect()))
                .collect(),
        };
        self.servers(servers, &scope);
        self.unused_zones();
    }

    /// Limits of clients, which Tollgate has for all servers together.
    fn client_limits(&mut self, directives: &[&'d Directive]) {
        let mut limits = Map::new();
        let last = |name: &str| directives.iter().rfind(|directive| directive.name == name);
        let body = last("client_max_body_size").and_then(|directive| values::size(directive.argument(0)));
        // nginx has a limit without being told.
        limits.set("max_body", number_or_text(&body.unwrap_or_else(|| "1MiB".to_owned())));
        for (name, setting) in
            [("client_header_timeout", "header_timeout"), ("keepalive_timeout", "idle_timeout")]
        {
            let time = last(name).and_then(|directive| values::milliseconds(directive.argument(0)));
            if let Some(time) = time.filter(|time| *time > 0) {
                limits.set(setting, duration(time));
            }
        }
        self.draft.settings.set("client_limits", limits);
    }

    /// The proxies in front, and the header that they send.
    fn real_ip(&mut self, directives: &[&'d Directive]) {
        let mut trusted = Vec::new();
        for directive in directives.iter().filter(|directive| directive.name == "set_real_ip_from") {
            let network = directive.argument(0);
            match network {
                "unix:" => trusted.push("unix".to_owned()),
                network if is_network(network) => trusted.push(network.to_owned()),
                _ => self.head(
                    &directive.place,
                    format!("`{}`: list its addresses in `trusted_proxies`", directive.shown()),
                ),
            }
        }
        if trusted.is_empty() {
            return;
        }
        self.draft.settings.set("trusted_proxies", trusted);
        let header = directives.iter().rfind(|directive| directive.name == "real_ip_header");
        match header.map_or("x-real-ip".to_owned(), |header| header.argument(0).to_ascii_lowercase()).as_str()
        {
            "x-forwarded-for" => {
                let is_recursive = directives
                    .iter()
                    .any(|directive| directive.name == "real_ip_recursive" && directive.argument(0) == "on");
                if let Some(header) = header.filter(|_| !is_recursive) {
                    let text = format!(
                        "{}: without `real_ip_recursive on`, nginx takes the last address, Tollgate the last that is \
                         not one of `trusted_proxies`.",
                        header.place
                    );
                    self.draft.head.push(Comment::Plain(text));
                }
            }
            "proxy_protocol" => {}
            name => self.draft.settings.set("client_address", Map::new().with("header", name)),
        }
    }

    /// Notes a directive that has no equal at the head of the file.
    fn head(&mut self, place: &Place, text: impl Into<String>) {
        self.draft.head.push(unconverted(place, text));
    }

    /// Leaves out a directive for which there is no entry: silently if it is irrelevant, or else with a note.
    fn leave_out(&mut self, directive: &'d Directive) {
        match self.note_for(directive) {
            None => {}
            Some(comment) => self.draft.head.push(comment),
        }
    }

    /// The comment for a directive without an equal. `None` if it is irrelevant, and only its name is listed.
    fn note_for(&mut self, directive: &'d Directive) -> Option<Comment> {
        let is_default =
            directive.name == "proxy_redirect" && matches!(directive.argument(0), "off" | "default");
        if is_default || words::is_irrelevant(&directive.name) {
            self.irrelevant.insert(&directive.name);
            return None;
        }
        Some(unconverted(
            &directive.place,
            format!("`{}`: {}", directive.shown(), words::advice(&directive.name)),
        ))
    }

    /// The path of a file that a directive names.
    fn file(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }
}

/// The comment for what has no equal.
fn unconverted(place: &Place, text: impl Into<String>) -> Comment {
    Comment::Unconverted(Note { place: place.clone(), text: text.into() })
}

/// A node for a size: a number without a unit is written as one.
fn number_or_text(text: &str) -> super::yaml::Node {
    match text.parse::<u64>() {
        Ok(number) => number.into(),
        Err(_) => text.into(),
    }
}
