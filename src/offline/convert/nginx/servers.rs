//! `server` blocks: sites, and which server nginx chooses.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    NginxReader,
    locations::{At, LocationBlock, locations},
    rule,
    scope::BlockScope,
    state::{RewriteState, between_places},
    syntax::Directive,
    variables::{TextTest, is_host},
};
use crate::offline::convert::{
    SourceLine,
    condition::{HostCondition, RequestCondition, Test},
    networks::Networks,
    site::{Effect, Site, SiteRule},
    yaml::Comment,
};

/// A `server` block.
#[derive(Debug)]
pub(super) struct ServerBlock<'d> {
    pub(super) directives: Vec<&'d Directive>,
    pub(super) place: SourceLine,
    pub(super) scope: BlockScope<'d>,
    pub(super) locations: Vec<LocationBlock<'d>>,
    /// Its addresses, and whether it is the default there.
    pub(super) listens: Vec<(String, bool)>,
    /// All names as they are written.
    names: Vec<&'d str>,
    /// What closes the server on a listener: the directive, the name, and why.
    pub(super) closed: Vec<(&'d Directive, String, &'static str)>,
}

impl<'d> ServerBlock<'d> {
    fn new(place: SourceLine, directives: Vec<&'d Directive>, http: &BlockScope<'d>) -> Self {
        let scope = http.enter(directives.iter().copied());
        let named = directives.iter().filter(|directive| directive.name == "server_name");
        Self {
            place,
            locations: locations(directives.iter().copied(), &scope),
            scope,
            listens: Vec::new(),
            names: named.flat_map(|names| &names.arguments).map(String::as_str).collect(),
            closed: Vec::new(),
            directives,
        }
    }

    pub(super) fn named(&self, name: &str) -> impl Iterator<Item = &'d Directive> {
        self.directives.iter().copied().filter(move |directive| directive.name == name)
    }

    pub(super) fn is_on(&self, address: &str) -> bool {
        self.listens.iter().any(|(known, _)| known == address)
    }

    pub(super) fn is_default_on(&self, address: &str) -> bool {
        self.listens.iter().any(|(known, is_default)| known == address && *is_default)
    }

    /// Whether it refuses every handshake.
    pub(super) fn rejects(&self) -> bool {
        self.scope.value("ssl_reject_handshake") == "on"
    }

    /// `$server_name`.
    fn first_name(&self) -> &'d str {
        self.names.first().map_or("", |name| name.trim_start_matches('.'))
    }
}

/// The names by which nginx chooses a server on one address. It takes each name once, for the first server that has it.
#[derive(Debug, Default)]
struct Names<'d> {
    exact: BTreeSet<String>,
    /// The names below which all are meant.
    below: BTreeSet<String>,
    /// `www.*` and expressions.
    odd: Vec<&'d str>,
}

impl<'d> Names<'d> {
    /// The names of these servers.
    fn of(servers: &[&ServerBlock<'d>]) -> Vec<Self> {
        let (mut exact, mut below) = (BTreeSet::new(), BTreeSet::new());
        let of_server = |server: &&ServerBlock<'d>| {
            let mut own = Self::default();
            for name in &server.names {
                let host = name.to_ascii_lowercase();
                let (kind, bare) = match (host.strip_prefix("*."), host.strip_prefix('.')) {
                    (Some(bare), _) => ("*", bare),
                    (None, Some(bare)) => (".", bare),
                    _ => ("", host.as_str()),
                };
                match kind {
                    _ if host.starts_with('~') || host.ends_with(".*") => own.odd.push(name),
                    // No request has such a host.
                    _ if !is_host(bare) => {}
                    "*" if below.insert(bare.to_owned()) => drop(own.below.insert(bare.to_owned())),
                    // With its dot alone, a name is ignored as a whole.
                    "." if exact.insert(bare.to_owned()) && below.insert(bare.to_owned()) => {
                        own.exact.insert(bare.to_owned());
                        own.below.insert(bare.to_owned());
                    }
                    "" if exact.insert(bare.to_owned()) => drop(own.exact.insert(bare.to_owned())),
                    _ => {}
                }
            }
            own
        };
        servers.iter().map(of_server).collect()
    }

    /// Whether a name of these is below a wildcard of the others, or is one.
    fn is_below(&self, other: &Self) -> bool {
        let is_in = |name: &String| {
            other.below.iter().any(|outer| {
                name == outer || name.strip_suffix(outer.as_str()).is_some_and(|rest| rest.ends_with('.'))
            })
        };
        self.exact.iter().chain(&self.below).any(is_in)
    }
}

impl<'d> NginxReader<'d> {
    /// Makes listeners and sites of these blocks.
    pub(super) fn servers(&mut self, blocks: Vec<(SourceLine, Vec<&'d Directive>)>, http: &BlockScope<'d>) {
        let mut servers: Vec<ServerBlock<'d>> =
            blocks.into_iter().map(|(place, directives)| ServerBlock::new(place, directives, http)).collect();
        for server in &mut servers {
            self.read_listens(server);
            let whole = server.names.iter().map(|name| name.trim_start_matches('.').to_ascii_lowercase());
            self.hosts.extend(whole.filter(|name| is_host(name)));
        }
        self.write_listeners(&mut servers);
        let found: Vec<Vec<SiteRule>> = servers.iter().map(|server| self.server(server)).collect();
        // Addresses with the same servers are one site.
        let mut sites: BTreeMap<(Vec<usize>, usize), BTreeSet<String>> = BTreeMap::new();
        let on = |address: &str| {
            let all: Vec<usize> = (0..servers.len()).filter(|nth| servers[*nth].is_on(address)).collect();
            let default =
                all.iter().copied().find(|nth| servers[*nth].is_default_on(address)).unwrap_or(all[0]);
            (all, default)
        };
        for listen in self.listens.clone() {
            if !self.listens.iter().any(|other| listen.is_part_of(other)) {
                sites.entry(on(&listen.address)).or_default().insert(listen.name);
            }
        }
        // nginx itself refuses these everywhere.
        let refused = Test::Methods(["CONNECT", "TRACE"].map(str::to_owned).into()).into();
        let place = SourceLine { file: String::new(), line: 0 };
        let mut site = Site {
            listeners: self.draft.listeners.iter().map(|listener| listener.name.clone()).collect(),
            rules: vec![SiteRule::new(refused, Effect::Refuse(405), &place, "")],
        };
        let is_one = sites.len() == 1;
        for ((all, default), listeners) in sites {
            let mut rules = Vec::new();
            let parts = self.listens.iter().filter(|part| {
                self.listens.iter().any(|whole| listeners.contains(&whole.name) && part.is_part_of(whole))
            });
            for part in parts.filter(|part| on(&part.address) != (all.clone(), default)) {
                rules.push(self.apart(&part.address, &servers[on(&part.address).1]));
            }
            rules.extend(self.choose(&servers, &found, &all, default));
            match is_one {
                true => site.rules.extend(rules),
                false => {
                    let when = Test::Listeners(listeners).into();
                    site.rules.push(SiteRule::new(
                        when,
                        Effect::Enter(rules),
                        &servers[default].place,
                        "server",
                    ));
                }
            }
        }
        if !site.listeners.is_empty() {
            self.draft.sites.push(site);
        }
    }

    /// The rule for requests to an address beside all addresses of a port, which Tollgate cannot tell from others.
    fn apart(&self, address: &str, server: &ServerBlock<'d>) -> SiteRule {
        let text = format!("nginx tells requests to {address} from those to other addresses of this port");
        let is_inner = ["127.", "[::1]"].iter().any(|begin| address.starts_with(begin));
        let inner = Networks::parse(["127.0.0.0/8", "::1"]).unwrap_or_default();
        // Only this machine can send to its own addresses.
        let is_told = is_inner && self.address_doubt.is_none() && !self.draft.settings.has("trusted_proxies");
        let (when, effect) = match is_told {
            true => (
                RequestCondition::between(RequestCondition::NEVER, Test::Addresses(inner).into(), text),
                Effect::Refuse(403),
            ),
            false => (RequestCondition::ALWAYS, Effect::Close(text)),
        };
        SiteRule::new(when, effect, &server.place, format!("listen {address}"))
    }

    /// The rules of one address: an exact name wins, then the longest name with a star before, the longest with one
    /// behind, the first expression, and the default. `rules`: those of each server.
    fn choose(
        &self,
        servers: &[ServerBlock<'d>],
        rules: &[Vec<SiteRule>],
        all: &[usize],
        default: usize,
    ) -> Vec<SiteRule> {
        if all.len() == 1 {
            return rules[default].clone();
        }
        let enter = |nth: usize, when: RequestCondition| {
            let server = &servers[nth];
            let names =
                if server.names.is_empty() { "without a name".to_owned() } else { server.names.join(" ") };
            let others = if nth == default { ": also for hosts that no server names" } else { "" };
            let mut rule = SiteRule::new(when, Effect::Enter(rules[nth].clone()), &server.place, "server");
            rule.comments.push(Comment::Plain(format!("server {names} ({}){others}", server.place)));
            rule
        };
        let longest = |name: &str| usize::MAX - name.len();
        let mut found: Vec<((u8, usize), SiteRule)> = Vec::new();
        let names = Names::of(&all.iter().map(|nth| &servers[*nth]).collect::<Vec<_>>());
        for (own, nth) in names.iter().zip(all.iter().copied()) {
            let others = || names.iter().zip(all).filter(|(_, other)| **other != nth).map(|(names, _)| names);
            // They are the default's anyway, unless another server takes them first.
            if nth == default && !others().any(|other| own.is_below(other) || !other.odd.is_empty()) {
                continue;
            }
            let is_apart = !others().any(|other| other.is_below(own));
            let mut first: BTreeSet<HostCondition> =
                own.exact.iter().cloned().map(HostCondition::Exact).collect();
            for name in &own.below {
                let host = HostCondition::Below(name.clone());
                match is_apart {
                    true => drop(first.insert(host)),
                    false => found.push(((1, longest(name)), enter(nth, RequestCondition::host(host)))),
                }
            }
            if !first.is_empty() {
                found.push(((0, 0), enter(nth, Test::Hosts(first).into())));
            }
            found.extend(own.odd.iter().map(|name| {
                let rank = if name.starts_with('~') { (3, 0) } else { (2, longest(name)) };
                (rank, enter(nth, self.odd_name(name)))
            }));
        }
        found.sort_by_key(|(rank, _)| *rank);
        found.into_iter().map(|(_, rule)| rule).chain([enter(default, RequestCondition::ALWAYS)]).collect()
    }

    /// The condition of an expression, or of a name with a star behind.
    fn odd_name(&self, name: &str) -> RequestCondition {
        let pattern = match (name.strip_prefix('~'), name.strip_suffix('*')) {
            (Some(pattern), _) => pattern.to_owned(),
            (None, begin) => format!("^{}", regex_syntax::escape(begin.unwrap_or(name))),
        };
        let comparison = TextTest::Matches { pattern: &pattern, is_insensitive: true };
        let found = self.holds("$host", comparison, &RewriteState::new("", ""));
        match found {
            RequestCondition::Between { inner, outer, .. } => {
                let why =
                    format!("`server_name {name}`: list the hosts, or `*.example.com` for all below one");
                between_places(*inner, *outer, &why)
            }
            found => found,
        }
    }

    /// The rules of a server.
    fn server(&mut self, server: &ServerBlock<'d>) -> Vec<SiteRule> {
        let at = At { server, location: None };
        self.runs = 0;
        let mut rules = self.notes(at);
        for (verify, listener, text) in &server.closed {
            let when = Test::Listeners([listener.clone()].into()).into();
            rules.push(rule(verify, when, Effect::Close((*text).to_owned())));
        }
        if let Some(reject) = server.scope.last("ssl_reject_handshake").filter(|_| server.rejects()) {
            let when: RequestCondition = Test::Listeners(self.named(|listen| listen.is_tls)).into();
            rules.push(rule(reject, when, Effect::Refuse(421)));
        }
        let state = RewriteState::new(server.first_name(), server.scope.value("ssl_verify_client"));
        rules.extend(self.steps(at, &server.directives, state));
        rules
    }
}
