//! Routes, in the order in which Kong's router tries them.

use std::collections::{BTreeMap, BTreeSet};

use super::{Kong, leftovers, upstreams::Service};
use crate::convert::{
    conditions::{Conditions, Host, Path, Term, ordered},
    document::Item,
    route_draft::{Action, NoRewrite, PathChange, RouteDraft, unique},
    yaml::{Comment, Map, Node},
};

/// One path of a route: each is tried on its own.
pub(super) struct KongRoute<'d> {
    /// Its number in the file.
    pub(super) nth: usize,
    pub(super) name: String,
    pub(super) item: Item<'d>,
    pub(super) service: Option<usize>,
    conditions: Conditions,
    /// The greater is tried first.
    rank: (usize, bool, usize, bool, u64, usize),
    strips: bool,
    preserves_host: bool,
    https_only: bool,
    comments: Vec<Comment>,
}

impl<'d> Kong<'d> {
    /// All routes, one for each path.
    pub(super) fn ordered_routes(&mut self) -> Vec<KongRoute<'d>> {
        let mut found = Vec::new();
        for (nth, (service, item)) in self.routes.clone().into_iter().enumerate() {
            let is_enabled = service
                .and_then(|nth| self.services.get(nth))
                .is_none_or(|item| Service::new(&item.fields()).is_enabled);
            match is_enabled {
                true => found.extend(self.route(nth, service, item)),
                false => self
                    .draft
                    .head
                    .push(item.note("the service is not enabled: its routes are not converted")),
            }
        }
        // Routes of the same rank keep their order.
        found.sort_by_key(|route| std::cmp::Reverse(route.rank));
        found
    }

    fn route(&mut self, nth: usize, service: Option<usize>, item: Item<'d>) -> Vec<KongRoute<'d>> {
        let fields = item.fields();
        let service_name =
            service.and_then(|nth| self.services.get(nth)).map(|item| Service::new(&item.fields()).name);
        let name = fields
            .text("name")
            .map(str::to_owned)
            .or(service_name)
            .unwrap_or_else(|| format!("route-{}", nth + 1));
        let mut comments = Vec::new();
        let mut base = Conditions::default();
        let hosts = fields.texts("hosts");
        if !hosts.is_empty() {
            let mut set = BTreeSet::new();
            for host in &hosts {
                let (host_name, port) = match host.rsplit_once(':') {
                    Some((host_name, port)) if port.chars().all(|c| c.is_ascii_digit()) => {
                        (host_name, Some(port))
                    }
                    _ => (*host, None),
                };
                if port.is_some() {
                    comments.push(fields.note(format!("`{host}`: hosts are compared without their ports")));
                }
                match host_name.strip_prefix("*.") {
                    Some(suffix) => set.insert(Host::Below(suffix.to_ascii_lowercase())),
                    None if host_name.contains('*') => {
                        comments.push(fields.note(format!(
                            "`{host}`: only `*.` and a name can stand for \
                            several hosts. Not converted for this host"
                        )));
                        false
                    }
                    None => set.insert(Host::Exact(host_name.to_ascii_lowercase())),
                };
            }
            if set.is_empty() {
                self.draft.head.append(&mut comments);
                return Vec::new();
            }
            base.hosts = Some(set);
        }
        let methods: BTreeSet<_> = fields.texts("methods").into_iter().map(str::to_ascii_uppercase).collect();
        base.methods = (!methods.is_empty()).then_some(methods);
        let mut bases = vec![base];
        let headers = fields.fields("headers");
        let header_count = headers.each().len();
        for (header, values) in headers.each() {
            let values = values.texts();
            if values.iter().any(|value| value.starts_with("~*")) {
                comments.push(headers.note(format!(
                    "`{header}` with a regular expression has no equal: the route is not converted"
                )));
                self.draft.head.append(&mut comments);
                return Vec::new();
            }
            bases = bases
                .iter()
                .flat_map(|base| {
                    values.iter().map(|value| {
                        let mut base = base.clone();
                        base.headers.insert(header.to_ascii_lowercase(), (*value).to_owned());
                        base
                    })
                })
                .collect();
        }
        for (key, hint) in [
            ("snis", "write them into `hosts`"),
            ("sources", "use `allow` of the route"),
            ("destinations", "listen on other addresses"),
        ] {
            if let Some(item) = fields.take(key).filter(|item| !item.items().is_empty()) {
                comments.push(item.note(format!("`{key}`: {hint}")));
            }
        }
        let protocols = fields.texts("protocols");
        let https_only =
            !protocols.is_empty() && !protocols.iter().any(|protocol| matches!(*protocol, "http" | "grpc"));
        if protocols.iter().any(|protocol| matches!(*protocol, "tcp" | "tls" | "udp" | "tls_passthrough")) {
            self.draft.head.push(item.note(format!("the route `{name}` is for TCP or UDP: not converted")));
            return Vec::new();
        }
        let strips = fields.take("strip_path").is_none_or(|item| item.text() != Some("false"));
        let preserves_host = fields.is_true("preserve_host");
        let regex_priority = fields.number("regex_priority").unwrap_or(0);
        let paths = fields.texts("paths");
        let kinds = [
            !paths.is_empty(),
            bases.iter().any(|base| base.hosts.is_some()),
            bases.iter().any(|base| base.methods.is_some()),
            header_count > 0,
        ];
        let match_weight = kinds.iter().filter(|is_set| **is_set).count();
        let plain_hosts = bases.iter().all(|base| {
            base.hosts.as_ref().is_some_and(|hosts| hosts.iter().all(|host| matches!(host, Host::Exact(_))))
        });
        fields.ignore(&[
            "name",
            "plugins",
            "service",
            "path_handling",
            "request_buffering",
            "response_buffering",
            "https_redirect_status_code",
            "expression",
            "priority",
        ]);
        if let Some(expression) = fields.text("expression") {
            self.draft.head.push(item.note(format!(
                "the route `{name}` has an expression, {expression}: write its conditions by hand"
            )));
            return Vec::new();
        }
        comments.extend(leftovers(&fields, &name));
        let mut routes = Vec::new();
        let all: Vec<Option<&str>> =
            if paths.is_empty() { vec![None] } else { paths.iter().map(|path| Some(*path)).collect() };
        for written in all {
            let (path, is_regex, length) = match written {
                None => (Path::Any, false, 0),
                Some(path) => {
                    let (path_condition, is_regex) = self.path(path);
                    (path_condition, is_regex, path.len())
                }
            };
            if let Err(reason) = path.check() {
                comments
                    .push(item.note(format!("the route `{name}`: {reason}. Not converted for this path")));
                continue;
            }
            for base in &bases {
                let mut conditions = Conditions { path: path.clone(), ..base.clone() };
                if strips {
                    conditions.loosen();
                }
                routes.push(KongRoute {
                    nth,
                    name: name.clone(),
                    item,
                    service,
                    conditions,
                    rank: (
                        match_weight,
                        plain_hosts,
                        header_count,
                        is_regex,
                        if is_regex { regex_priority } else { 0 },
                        length,
                    ),
                    strips,
                    preserves_host,
                    https_only,
                    comments: std::mem::take(&mut comments),
                });
            }
        }
        self.draft.head.extend(comments);
        routes
    }

    /// A path of a route, and whether it is a regular expression.
    fn path(&self, text: &str) -> (Path, bool) {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._~/%-".contains(c);
        let regex = match text.strip_prefix('~') {
            Some(pattern) => Some(pattern),
            None => (self.has_bare_regexes && !text.chars().all(is_plain)).then_some(text),
        };
        match regex {
            Some(pattern) => (Path::Regex(format!("^{}", pattern.trim_start_matches('^'))), true),
            None if text == "/" => (Path::Any, false),
            None => (Path::Prefix(text.to_owned()), false),
        }
    }

    /// Adds the routes to the draft.
    pub(super) fn write_routes(&mut self, mut routes: Vec<KongRoute<'d>>) {
        let terms: Vec<_> = routes
            .iter()
            .enumerate()
            .map(|(nth, route)| (Term { yes: route.conditions.clone(), no: Vec::new() }, nth))
            .collect();
        let (ordered, _) = ordered(&terms);
        let reached: BTreeSet<usize> = ordered.iter().filter_map(|route| route.target).collect();
        let mut told: BTreeMap<usize, bool> = BTreeMap::new();
        for (nth, route) in routes.iter_mut().enumerate() {
            if !reached.contains(&nth) {
                let (path, _) = route.conditions.path.written();
                let text = format!(
                    "no request reaches the route `{}` by {path}: another one is tried before",
                    route.name
                );
                self.draft.head.push(route.item.note(text));
                self.draft.head.append(&mut route.comments);
            }
        }
        let mut names = BTreeSet::new();
        for ordered in ordered {
            let Some(route) = ordered.target.and_then(|nth| routes.get_mut(nth)) else { continue };
            let is_first = told.insert(route.nth, true).is_none();
            let mut draft = RouteDraft {
                name: unique(&route.name, &mut names),
                conditions: ordered.conditions,
                comments: std::mem::take(&mut route.comments),
                ..RouteDraft::default()
            };
            if route.https_only && is_first {
                draft.comments.push(route.item.note(
                    "`protocols: [https]`: routes are for all listeners \
                    here; write `redirect: https` at the listener for HTTP",
                ));
            }
            let (service, strips, preserves_host) = (route.service, route.strips, route.preserves_host);
            let (nth, item) = (route.nth, route.item);
            match service {
                Some(service) => {
                    if strips {
                        let prefix = match &draft.conditions.path {
                            Path::Exact(path) | Path::Prefix(path) | Path::Below(path) => path.clone(),
                            Path::Any => String::new(),
                            Path::Regex(pattern) => {
                                draft.comments.push(item.note(format!(
                                    "`strip_path` with the regular \
                                    expression {pattern}: the upstream gets the whole path"
                                )));
                                String::new()
                            }
                        };
                        if let Ok(change) = PathChange::Unchanged.strip(&prefix, &draft.conditions.path) {
                            draft.path = change;
                        }
                    }
                    let base = self
                        .services
                        .get(service)
                        .map(|item| Service::new(&item.fields()).path)
                        .unwrap_or_default();
                    match draft.path.prepend(&base, &draft.conditions.path) {
                        Ok(change) => draft.path = change,
                        Err(NoRewrite) => {
                            draft.conditions.loosen();
                            match draft.path.prepend(&base, &draft.conditions.path) {
                                Ok(change) => draft.path = change,
                                Err(NoRewrite) => draft.comments.push(item.note(format!(
                                    "the service's \
                                    path {base} cannot be put before a path that a regular expression \
                                    matches"
                                ))),
                            }
                        }
                    }
                    if let Some(upstream) = self.upstream(service, preserves_host) {
                        draft.action = Action::Upstream(upstream);
                    }
                }
                None => draft.action = Action::Reply(Map::new().with("status", 503)),
            }
            self.apply_plugins(service, nth, &mut draft, is_first);
            self.draft.routes.push(draft.written());
        }
        if self.draft.routes.is_empty() {
            let reply = Map::new().with("path", "/*").with("reply", Map::new().with("status", 404));
            let comment = Comment::Plain("No route was converted: write routes here.".to_owned());
            self.draft.routes.push(Node::from(reply).commented(comment));
        }
    }
}
