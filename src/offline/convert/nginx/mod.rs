//! Reads nginx.conf.
//!
//! `syntax` reads the text; `words` has the class of each directive; `scope` knows what blocks inherit; `servers` makes
//! listeners and sites, and chooses servers; `locations` chooses locations; `steps` runs the rewrite phase on a `state`,
//! with `variables`, `patterns` and `returns`; `content` is what comes behind it, with `limits`, `headers` and `upstreams`.

mod content;
mod headers;
mod limits;
mod listeners;
mod locations;
mod patterns;
mod returns;
mod scope;
mod servers;
mod state;
mod steps;
mod syntax;
#[cfg(test)]
mod tests;
mod upstreams;
mod values;
mod variables;
mod words;

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use super::{
    ConvertError, Note, SourceLine,
    condition::{RequestCondition, Test},
    draft::{ConfigDraft, duration},
    networks::Networks,
    site::{Effect, SiteRule},
    yaml::{Comment, Map},
};

use content::number_or_text;
use limits::Zones;
use listeners::Listen;
use scope::BlockScope;
use syntax::Directive;
use variables::Tables;
use words::{DirectiveTreatment, class};

/// Directives whose values in `http` are settings of `client_limits`.
const CLIENT_LIMITS: [(&str, &str); 2] =
    [("client_header_timeout", "header_timeout"), ("keepalive_timeout", "idle_timeout")];
/// How often the steps of a server may be run, and its locations searched. Each `if` may double that.
const MOST_RUNS: usize = 1_000;

/// What is known of a configuration while it is read.
struct NginxReader<'d> {
    draft: ConfigDraft,
    /// Relative names of files begin here.
    directory: PathBuf,
    /// Every `map` and `geo`.
    tables: Tables<'d>,
    zones: Zones<'d>,
    /// The `upstream` blocks by name.
    upstreams: BTreeMap<&'d str, &'d Directive>,
    /// The addresses that are listened on.
    listens: Vec<Listen>,
    /// The names of servers that are whole hosts.
    hosts: BTreeSet<String>,
    /// Why the client's address is not known for sure.
    address_doubt: Option<String>,
    /// Addresses of proxies in front that nginx may take for a client's, where Tollgate takes the one before.
    last_proxies: Networks,
    /// The longest body where nothing else is said.
    max_body: String,
    /// Directives that the head of the file speaks of.
    at_head: Vec<&'d Directive>,
    /// Names of directives that need nothing.
    left_out: BTreeSet<&'d str>,
    /// Of the present server.
    runs: usize,
    /// How many maps lead to the one that is read.
    depth: Cell<usize>,
}

/// Reads `text`, the file at `path`.
pub(super) fn convert(text: &str, path: &Path) -> Result<ConfigDraft, ConvertError> {
    let directives = syntax::parse(text, path)?;
    let mut reader = NginxReader {
        draft: ConfigDraft::default(),
        directory: path.parent().unwrap_or(Path::new("")).to_owned(),
        tables: Tables::default(),
        zones: Zones::default(),
        upstreams: BTreeMap::new(),
        listens: Vec::new(),
        hosts: BTreeSet::new(),
        address_doubt: None,
        last_proxies: Networks::default(),
        max_body: "1MiB".to_owned(),
        at_head: Vec::new(),
        left_out: BTreeSet::new(),
        runs: 0,
        depth: Cell::new(0),
    };
    reader.main(&directives);
    Ok(reader.draft)
}

/// A rule of a directive.
fn rule(directive: &Directive, when: RequestCondition, effect: Effect) -> SiteRule {
    SiteRule::new(when, effect, &directive.place, directive.shown())
}

/// The comment for what has no equal.
fn unconverted(place: &SourceLine, text: impl Into<String>) -> Comment {
    Comment::Unconverted(Note { place: place.clone(), text: text.into() })
}

/// The comment for what has no equal in a directive.
fn noted(directive: &Directive, text: &str) -> Comment {
    unconverted(&directive.place, format!("`{}`: {text}", directive.shown()))
}

impl<'d> NginxReader<'d> {
    /// Reads the top level of a file. A file without `http`, as in conf.d, has what would be in that block, or in the
    /// one of a server.
    fn main(&mut self, directives: &'d [Directive]) {
        let is_http = |directive: &&Directive| directive.name == "http";
        let (blocks, others): (Vec<_>, Vec<&'d Directive>) = directives.iter().partition(is_http);
        let has_http = !blocks.is_empty();
        let inner: Vec<&'d Directive> = blocks.iter().flat_map(|block| block.children()).collect();
        for directive in others.iter().filter(|_| has_http) {
            match class(directive) {
                DirectiveTreatment::Noted(text) | DirectiveTreatment::Closes(text) => {
                    self.head(directive, text);
                }
                DirectiveTreatment::Nothing | DirectiveTreatment::Converted => {
                    self.left_out.insert(&directive.name);
                }
            }
        }
        let http = if has_http { inner } else { others };
        self.survey(&http, 0);
        self.http(&http);
        self.unused_zones();
        if !self.left_out.is_empty() {
            let names = self.left_out.iter().copied().collect::<Vec<_>>().join(", ");
            let text = format!("Left out, since Tollgate has nothing to set or needs no setting: {names}.");
            self.draft.head.push(Comment::Plain(text));
        }
    }

    /// Says what has no equal in all blocks, and collects the zones of limits and what needs nothing. `depth`: 0 in
    /// `http`, 1 in a server.
    fn survey(&mut self, directives: &[&'d Directive], depth: usize) {
        for directive in directives {
            let name = directive.name.as_str();
            match name {
                "limit_req" => self.zones.used.extend(limits::parameter(directive, "zone")),
                "limit_conn" => drop(self.zones.used.insert(directive.argument(0))),
                "set_real_ip_from" | "real_ip_header" if depth > 1 => {
                    self.doubt_addresses(directive, "`trusted_proxies` holds for all routes");
                }
                "server" | "location" | "if" | "limit_except" => {
                    let children: Vec<&'d Directive> = directive.children().iter().collect();
                    self.survey(&children, depth + 1);
                }
                _ => {}
            }
            let text = match class(directive) {
                DirectiveTreatment::Converted => continue,
                DirectiveTreatment::Nothing => {
                    self.left_out.insert(name);
                    continue;
                }
                DirectiveTreatment::Noted(text) | DirectiveTreatment::Closes(text) => text,
            };
            let is_limit = depth == 0 && CLIENT_LIMITS.iter().any(|(known, _)| *known == name);
            // A refusal may lead to something else by it: each route says so.
            match matches!(class(directive), DirectiveTreatment::Closes(_))
                || depth > 1
                || is_of_refusals(directive)
            {
                true => self.draft.unsaid.extend(noted(directive, text).note().cloned()),
                false => {
                    self.at_head.push(directive);
                    self.draft.head.extend((!is_limit).then(|| noted(directive, text)));
                }
            }
        }
    }

    fn http(&mut self, directives: &[&'d Directive]) {
        for directive in directives {
            match directive.name.as_str() {
                "map" | "geo" => {
                    let name = directive.arguments.last().map_or("", |name| name.trim_start_matches('$'));
                    self.tables.insert(name, directive);
                }
                "upstream" => drop(self.upstreams.insert(directive.argument(0), directive)),
                "limit_req_zone" | "limit_conn_zone" => self.add_zone(directive),
                _ => {}
            }
        }
        let named = |name: &str| directives.iter().any(|directive| directive.name == name);
        let is_server = !named("server") && ["location", "listen", "server_name"].into_iter().any(named);
        let scope = BlockScope::default().enter(directives.iter().copied());
        if !is_server && !named("server") {
            self.policies_of_zones();
            let known = ["limit_req_zone", "limit_conn_zone", "map", "geo", "upstream"];
            for directive in
                directives.iter().filter(|directive| class(directive) == DirectiveTreatment::Converted)
            {
                if !known.contains(&directive.name.as_str()) {
                    self.head(directive, "it holds for servers, of which this file has none");
                }
            }
            return;
        }
        self.client_limits(directives);
        let blocks: Vec<(SourceLine, Vec<&'d Directive>)> = match is_server {
            true => vec![(directives[0].place.clone(), directives.to_vec())],
            false => directives
                .iter()
                .filter(|directive| directive.name == "server")
                .map(|server| (server.place.clone(), server.children().iter().collect()))
                .collect(),
        };
        self.real_ip(&scope, &blocks);
        self.servers(blocks, &scope);
    }

    /// Limits of clients, which Tollgate has for all servers together.
    fn client_limits(&mut self, directives: &[&'d Directive]) {
        let mut limits = Map::new();
        let last = |name: &str| directives.iter().rfind(|directive| directive.name == name);
        let body = last("client_max_body_size").and_then(|directive| values::size(directive.argument(0)));
        // nginx has a limit without being told. A server's own redirects and replies have none.
        if let Some(body) = body.filter(|body| body == "0" || body.ends_with("MiB") || body.ends_with("GiB"))
        {
            self.max_body = body;
        }
        limits.set("max_body", number_or_text(&self.max_body));
        for (name, setting) in CLIENT_LIMITS {
            let time = last(name).and_then(|directive| values::milliseconds(directive.argument(0)));
            let time = time.filter(|time| (1..=86_400_000).contains(time));
            limits.extend_some(setting, time.map(duration));
        }
        self.draft.settings.set("client_limits", limits);
    }

    /// The proxies in front, and the header that they send. They hold for all servers in Tollgate.
    fn real_ip(&mut self, http: &BlockScope<'d>, servers: &[(SourceLine, Vec<&'d Directive>)]) {
        let names = ["set_real_ip_from", "real_ip_header", "real_ip_recursive"];
        let of = |scope: &BlockScope<'d>| names.map(|name| scope.all(&[name]));
        let shown = |lists: &[Vec<&'d Directive>; 3]| -> Vec<String> {
            lists.iter().flatten().map(|directive| directive.shown()).collect()
        };
        let all: Vec<_> = servers.iter().map(|(_, block)| of(&http.enter(block.iter().copied()))).collect();
        let Some([from, header, recursive]) = all.first().cloned() else { return };
        if let Some(other) = all.iter().find(|other| shown(other) != shown(&all[0])) {
            let one = other.iter().chain(&all[0]).flatten().next().copied();
            let text = "`trusted_proxies` holds for all servers, and they differ in this";
            one.into_iter().for_each(|directive| self.doubt_addresses(directive, text));
            return;
        }
        let (mut trusted, mut networks) = (Vec::new(), Networks::default());
        for directive in from {
            match (directive.argument(0), Networks::parse([directive.argument(0)])) {
                ("unix:", _) => trusted.push("unix"),
                (text, Ok(network)) => {
                    networks = networks.or(&network);
                    trusted.push(text);
                }
                _ => self.doubt_addresses(directive, "list its addresses in `trusted_proxies`"),
            }
        }
        if trusted.is_empty() {
            return;
        }
        self.draft.settings.set("trusted_proxies", trusted);
        let name =
            header.last().map_or("x-real-ip".to_owned(), |header| header.argument(0).to_ascii_lowercase());
        match name.as_str() {
            "x-forwarded-for" if recursive.last().is_some_and(|recursive| recursive.argument(0) == "on") => {}
            "x-forwarded-for" => self.last_proxies = networks,
            "proxy_protocol" => {}
            name => self.draft.settings.set("client_address", Map::new().with("header", name)),
        }
    }

    /// The condition that the client's address is one of these.
    #[expect(clippy::needless_pass_by_value, reason = "each caller has made it for this")]
    fn is_from(&self, networks: Networks) -> RequestCondition {
        if let Some(doubt) = &self.address_doubt {
            return RequestCondition::unknown(doubt.clone());
        }
        let test = || RequestCondition::from(Test::Addresses(networks.clone()));
        let proxies = networks.and(&self.last_proxies);
        let inner = if proxies == self.last_proxies { test() } else { RequestCondition::NEVER };
        let outer = if proxies.is_empty() { test() } else { RequestCondition::ALWAYS };
        match inner == outer {
            true => test(),
            false => {
                let why = "without `real_ip_recursive on`, nginx takes the last address, Tollgate the last that is not one \
                           of `trusted_proxies`";
                RequestCondition::between(inner, outer, why)
            }
        }
    }

    /// The client's address is not known: what compares it refuses all.
    fn doubt_addresses(&mut self, directive: &'d Directive, text: &str) {
        self.head(directive, text);
        self.address_doubt.get_or_insert(format!("`{}`: {text}", directive.shown()));
    }

    /// Notes a directive that has no equal at the head of the file.
    fn head(&mut self, directive: &Directive, text: &str) {
        self.draft.head.push(noted(directive, text));
    }

    /// Counts a run of steps or a search for a location, and returns whether there may be more.
    fn has_budget(&mut self) -> bool {
        self.runs += 1;
        self.runs <= MOST_RUNS
    }

    /// The path of a file that a directive names.
    fn file(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    /// The names of the listeners that meet this.
    fn named(&self, is_it: impl Fn(&Listen) -> bool) -> BTreeSet<String> {
        self.listens.iter().filter(|listen| is_it(listen)).map(|listen| listen.name.clone()).collect()
    }
}

/// Whether a directive may change what a refusal is.
fn is_of_refusals(directive: &Directive) -> bool {
    let is_of_service = |code: &String| code.parse::<u16>().is_ok_and(|code| code >= 500);
    let is_page = |argument: &String| argument.parse::<u16>().is_err();
    directive.name == "error_page"
        && !directive.arguments.iter().all(|one| is_of_service(one) || is_page(one))
}
