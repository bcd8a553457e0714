//! Routers become routes, in the order of their priorities.

use std::collections::{BTreeMap, BTreeSet};

use super::{Traefik, leftovers, plain_name, rule::Rule};
use crate::convert::{
    conditions::{Host, Term, ordered},
    document::Item,
    route_draft::{Action, RouteDraft, unique},
    yaml::{Comment, Map, Node},
};

/// The deepest nesting of chains.
const MAX_DEPTH: usize = 8;

/// A router, read.
pub(super) struct Router<'d> {
    pub(super) name: &'d str,
    item: Item<'d>,
    terms: Vec<Term>,
    priority: i64,
    pub(super) is_tls: bool,
    pub(super) has_resolver: bool,
    /// Names for which it has a certificate fetched.
    pub(super) certified: Vec<String>,
    /// Empty: every one.
    pub(super) entry_points: Vec<String>,
    /// It only redirects to HTTPS, to a port if it is not 443.
    pub(super) https: Option<Option<String>>,
    /// Without chains.
    pub(super) middlewares: Vec<Use<'d>>,
    service: Option<Item<'d>>,
    comments: Vec<Comment>,
}

/// A middleware, where a router names it.
#[derive(Clone)]
pub(super) struct Use<'d> {
    /// In lower case, without its provider.
    pub(super) name: String,
    pub(super) named: Item<'d>,
}

impl Router<'_> {
    pub(super) fn is_on(&self, entry_point: &str) -> bool {
        self.entry_points.is_empty()
            || self.entry_points.iter().any(|name| plain_name(name) == plain_name(entry_point))
    }
}

impl<'d> Traefik<'d> {
    /// Reads all routers, in the order in which Traefik tries them.
    pub(super) fn routers(&mut self) -> Vec<Router<'d>> {
        let items = std::mem::take(&mut self.routers);
        let mut routers: Vec<_> =
            items.into_iter().filter_map(|(name, item)| self.router(name, item)).collect();
        // Routers of the same priority keep their order: Traefik says nothing about theirs.
        routers.sort_by_key(|router| std::cmp::Reverse(router.priority));
        routers
    }

    fn router(&mut self, name: &'d str, item: Item<'d>) -> Option<Router<'d>> {
        let fields = item.fields();
        let mut comments = Vec::new();
        let Some(rule) = fields.take("rule") else {
            self.draft.head.push(item.note(format!("the router `{name}` has no rule: not converted")));
            return None;
        };
        let text = rule.text().unwrap_or_default();
        let alternatives =
            match Rule::parse(text) {
                Ok(rule) => rule.alternatives(),
                Err(error) => {
                    self.draft.head.push(rule.note(format!(
                        "the router `{name}`: its rule cannot be read, {error}: not converted"
                    )));
                    return None;
                }
            };
        comments.extend(alternatives.lost.iter().map(|reason| {
            rule.note(format!("the rule of `{name}`: {reason}. Not converted for these requests"))
        }));
        comments.extend(alternatives.wider.iter().map(|reason| rule.note(reason.clone())));
        if alternatives.terms.iter().any(|term| term.yes.clients.is_some()) {
            comments.push(rule.note(
                "`ClientIP`: other clients get 403 here; in Traefik they go on to the next \
                    router",
            ));
        }
        let configured = fields
            .take("priority")
            .and_then(|item| item.text()?.parse::<i64>().ok())
            .filter(|priority| *priority != 0);
        let priority = configured.unwrap_or_else(|| i64::try_from(text.len()).unwrap_or(i64::MAX));
        let tls = fields.take("tls");
        let tls_fields = tls.filter(|item| item.is_mapping()).map(Item::fields);
        let is_tls = tls.is_some_and(|item| !item.is_null() && item.text() != Some("false"))
            || tls.is_some_and(|item| item.is_null());
        let (mut has_resolver, mut certified) = (false, Vec::new());
        if let Some(tls) = &tls_fields {
            has_resolver = tls.text("certResolver").is_some();
            for domain in tls.items("domains") {
                let fields = domain.fields();
                certified.extend(fields.text("main").map(|name| name.replace('*', "_")));
                fields.ignore(&["sans"]);
            }
            if let Some(options) = tls
                .take("options")
                .filter(|item| item.text().is_some_and(|name| plain_name(name) != "default"))
            {
                comments.push(options.note(
                    "TLS options of a router: a listener has the same for all \
                    hosts",
                ));
            }
            comments.extend(leftovers(tls, &format!("{name}.tls")));
        }
        if is_tls && certified.is_empty() {
            let hosts = alternatives.terms.iter().flat_map(|term| term.yes.hosts.iter().flatten());
            let main = hosts.map(|host| match host {
                Host::Exact(name) => name.clone(),
                Host::Below(name) => format!("_.{name}"),
            });
            certified.extend(main);
        }
        let entry_points: Vec<String> = fields.texts("entryPoints").into_iter().map(str::to_owned).collect();
        let mut middlewares = Vec::new();
        for name in self.inherited(&entry_points) {
            self.flatten(&name, item, &mut middlewares, 0);
        }
        for named in fields.items("middlewares") {
            if let Some(name) = named.text() {
                self.flatten(name, named, &mut middlewares, 0);
            }
        }
        let service = fields.take("service");
        fields.ignore(&["ruleSyntax"]);
        comments.extend(leftovers(&fields, name));
        let https = if is_tls { None } else { self.redirects_to_https(&middlewares) };
        Some(Router {
            name,
            item,
            terms: alternatives.terms,
            priority,
            is_tls,
            has_resolver,
            certified,
            entry_points,
            https,
            middlewares,
            service,
            comments,
        })
    }

    /// Middlewares of the entry points.
    fn inherited(&self, entry_points: &[String]) -> Vec<String> {
        let all = self.entry_points.iter().flatten();
        let on_it = |name: &str| {
            entry_points.is_empty() || entry_points.iter().any(|other| plain_name(other) == plain_name(name))
        };
        let mut names: Vec<String> = Vec::new();
        for name in all
            .filter(|entry_point| on_it(&entry_point.name))
            .flat_map(|entry_point| &entry_point.middlewares)
        {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        names
    }

    fn flatten(&self, name: &str, named: Item<'d>, into: &mut Vec<Use<'d>>, depth: usize) {
        let name = plain_name(name);
        self.used.borrow_mut().insert(name.clone());
        let chain = self.middlewares.get(&name).and_then(|(_, item)| item.fields().take("chain"));
        match chain {
            Some(chain) if depth < MAX_DEPTH => {
                for named in chain.fields().items("middlewares") {
                    if let Some(name) = named.text() {
                        self.flatten(name, named, into, depth + 1);
                    }
                }
            }
            _ => into.push(Use { name, named }),
        }
    }

    /// Whether a middleware redirects to HTTPS, and the port if it is not 443.
    fn redirects_to_https(&self, middlewares: &[Use<'d>]) -> Option<Option<String>> {
        middlewares.iter().find_map(|used| {
            let fields = self.middlewares.get(&used.name)?.1.fields().take("redirectScheme")?.fields();
            let is_https = fields.text("scheme") == Some("https");
            is_https.then(|| fields.text("port").filter(|port| *port != "443").map(str::to_owned))
        })
    }

    /// Adds the routes of all routers.
    pub(super) fn routes(&mut self, routers: Vec<Router<'d>>) {
        let has_plain = routers.iter().any(|router| !router.is_tls && router.https.is_none());
        let (redirecting, routers): (Vec<_>, Vec<_>) =
            routers.into_iter().partition(|router| router.https.is_some());
        for router in redirecting {
            let text = match has_plain {
                false => {
                    let text = format!(
                        "The router `{}` redirects to HTTPS: see `redirect` of the \
                        listener.",
                        router.name
                    );
                    Comment::Plain(text)
                }
                true => router.item.note(format!(
                    "the router `{}` redirects to HTTPS, and others on HTTP do not. Routes are for all \
                        listeners here, so that it is not \
                     converted: if everything may be redirected, write `redirect: https` at the \
                     listener",
                    router.name
                )),
            };
            if let Some(service) = router.service.and_then(Item::text) {
                self.used.borrow_mut().insert(plain_name(service));
            }
            self.draft.head.push(text);
            self.draft.head.extend(router.comments);
        }
        if routers.iter().any(|router| router.is_tls)
            && routers.iter().any(|router| !router.is_tls)
            && !routers.is_empty()
        {
            self.draft.head.push(Comment::Plain(
                "Some routers are for HTTPS only and some for HTTP only. Routes are for all listeners here."
                    .to_owned(),
            ));
        }
        let routers: Vec<_> = routers.into_iter().map(|router| self.loosened(router)).collect();
        let terms: Vec<_> = routers
            .iter()
            .enumerate()
            .flat_map(|(nth, router)| router.terms.iter().map(move |term| (term.clone(), nth)))
            .collect();
        let (routes, lost) = ordered(&terms);
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        for target in routes.iter().filter_map(|route| route.target) {
            *counts.entry(target).or_default() += 1;
        }
        self.name_policies(&routers, &counts);
        let mut pending: Vec<Comment> = Vec::new();
        let mut told = BTreeSet::new();
        let mut names = BTreeSet::new();
        for (nth, router) in routers.iter().enumerate().filter(|(nth, _)| !counts.contains_key(nth)) {
            let text = match (router.terms.is_empty(), lost.contains(&nth)) {
                (true, _) => format!("the router `{}` is not converted", router.name),
                (false, true) => {
                    format!("the rule of `{}` cannot be expressed by routes: not converted", router.name)
                }
                (false, false) => format!(
                    "no request reaches the router `{}`: one with a longer rule or a higher priority \
                        takes its requests before, \
                    or one with the same rule on another entry point. Routes are for all listeners here",
                    router.name
                ),
            };
            self.draft.head.push(router.item.note(text));
            self.draft.head.extend(router.comments.iter().cloned());
            self.service_used(router);
        }
        for route in routes {
            let Some((router, nth)) =
                route.target.and_then(|nth| routers.get(nth).map(|router| (router, nth)))
            else {
                let mut draft = RouteDraft { conditions: route.conditions, ..RouteDraft::default() };
                draft.name = unique("no-router", &mut names);
                draft.comments = std::mem::take(&mut pending);
                draft.comments.push(Comment::Plain("No router is for these requests.".to_owned()));
                self.draft.routes.push(draft.written());
                continue;
            };
            let mut draft = RouteDraft {
                name: unique(router.name, &mut names),
                conditions: route.conditions,
                ..RouteDraft::default()
            };
            let is_first = told.insert(nth);
            if is_first {
                draft.comments.append(&mut pending);
                draft.comments.extend(router.comments.iter().cloned());
                if lost.contains(&nth) {
                    draft.comments.push(
                        router.item.note("a part of the rule cannot be expressed by routes: not converted"),
                    );
                }
            }
            let action = match router.service {
                None => Err(router
                    .item
                    .note(format!("the router `{}` has no service: not converted", router.name))),
                Some(service) => self.action(service, &mut draft),
            };
            let mut drafts = self.applied(router, draft, is_first);
            let is_redirect = drafts.last().is_some_and(|draft| matches!(draft.action, Action::Redirect(_)));
            match action {
                _ if is_redirect => {}
                Ok(action) => {
                    if let Some(last) = drafts.last_mut() {
                        last.action = action;
                    }
                }
                // Without a service there is no router in Traefik: others get its requests.
                Err(comment) if router.service.is_none() => {
                    let unfinished = drafts.pop();
                    pending.extend(unfinished.into_iter().flat_map(|draft| draft.comments));
                    pending.push(comment);
                }
                // The requests must not fall through to a router that was not meant for them.
                Err(comment) => {
                    if let Some(last) = drafts.last_mut() {
                        last.comments.push(comment);
                        last.action = Action::Reply(Map::new().with("status", 501));
                    }
                }
            }
            for mut draft in drafts {
                // A redirect that is split off is a route of its own.
                if self.draft.routes.iter().any(|route| named(route, &draft.name)) {
                    draft.name = unique(&draft.name, &mut names);
                }
                self.draft.routes.push(draft.written());
            }
        }
        self.draft.head.append(&mut pending);
        if self.draft.routes.is_empty() {
            let reply = Map::new().with("path", "/*").with("reply", Map::new().with("status", 404));
            let comment = Comment::Plain("No router was converted: write routes here.".to_owned());
            self.draft.routes.push(Node::from(reply).commented(comment));
        }
    }

    fn service_used(&self, router: &Router<'d>) {
        if let Some(service) = router.service.and_then(Item::text) {
            self.used.borrow_mut().insert(plain_name(service));
        }
    }

    /// With `/api/*` for PathPrefix(`/api`) where a middleware changes paths: only whole segments can be changed.
    fn loosened(&self, mut router: Router<'d>) -> Router<'d> {
        const CHANGING: [&str; 5] =
            ["stripPrefix", "addPrefix", "replacePath", "replacePathRegex", "redirectRegex"];
        let changes = |used: &Use<'_>| {
            let fields = self.middlewares.get(&used.name).map(|(_, item)| item.fields());
            fields.is_some_and(|fields| CHANGING.iter().any(|kind| fields.take(kind).is_some()))
        };
        if router.middlewares.iter().any(changes) {
            for term in &mut router.terms {
                for conditions in [&mut term.yes].into_iter().chain(&mut term.no) {
                    conditions.loosen();
                }
            }
        }
        router
    }
}

fn named(route: &Node, name: &str) -> bool {
    match &route.value {
        crate::convert::yaml::Value::Map(map) => map.get("name") == Some(&Node::from(name)),
        _ => false,
    }
}
