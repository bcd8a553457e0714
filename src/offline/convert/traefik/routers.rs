//! Routers, in the order of their priorities, and the sites that they make.

use std::{cmp::Reverse, collections::BTreeSet};

use super::{
    Traefik,
    entry_points::{EntryPoint, PROTO, Redirection},
    rule::{self, Syntax, place_between},
    tls::TlsOptions,
};
use crate::offline::convert::{
    SourceLine,
    condition::{HostCondition, RequestCondition},
    document::{Fields, Item},
    draft::resource_name,
    site::{self, Edit, Effect, HeaderRule, RuleResponse, Site, SiteListener, SiteRule},
    yaml::{Comment, Map, YamlValue},
};

/// Settings without effect outside: the log.
const NEEDS_NOTHING: [&str; 2] = ["observability", "entryPoints"];

/// A router.
pub(super) struct TraefikRouter<'d> {
    pub(super) name: &'d str,
    pub(super) item: Item<'d>,
    pub(super) condition: RequestCondition,
    /// The hosts that its rule names.
    pub(super) hosts: Vec<HostCondition>,
    pub(super) priority: i64,
    pub(super) tls: Option<TlsOptions<'d>>,
    /// Empty: the default ones.
    pub(super) entry_points: Vec<&'d str>,
    pub(super) middlewares: Vec<Item<'d>>,
    pub(super) end: RouterEnd<'d>,
    /// Settings of it that have no equal.
    pub(super) unknown: Vec<(&'d str, Item<'d>)>,
}

/// The end of a router: what its middlewares lead to.
pub(super) enum RouterEnd<'d> {
    Service(Item<'d>),
    /// Of an entry point.
    Redirect(Redirection),
}

impl TraefikRouter<'_> {
    fn rule(&self, when: RequestCondition, effect: Effect) -> SiteRule {
        SiteRule::new(when, effect, &self.item.place(), format!("routers.{}", self.name))
    }

    pub(super) fn always(&self, effect: Effect) -> SiteRule {
        self.rule(RequestCondition::ALWAYS, effect)
    }
}

impl<'d> Traefik<'d> {
    pub(super) fn read_routers(&mut self) -> Vec<TraefikRouter<'d>> {
        let items = std::mem::take(&mut self.routers);
        let is_v2 = |(_, item): &(&str, Item<'d>)| {
            let fields = item.fields();
            let is_read =
                |syntax| fields.text("rule").is_some_and(|rule| rule::ParsedRule::read(rule, syntax).is_ok());
            fields.text("ruleSyntax").is_none() && !is_read(Syntax::V3) && is_read(Syntax::V2)
        };
        if self.syntax.is_none() && items.iter().any(is_v2) {
            let text = "The rules are in the syntax of Traefik 2, and are read so.";
            self.draft.head.push(Comment::Plain(text.to_owned()));
            self.syntax = Some(Syntax::V2);
        }
        let mut routers = Vec::new();
        for (name, item) in items {
            match self.router(name, item) {
                Ok(router) => routers.push(router),
                Err(text) => {
                    self.draft.head.push(item.note(format!("the router `{name}`: {text}: not converted")));
                }
            }
        }
        // Traefik takes any of those with the same priority.
        routers.sort_by_key(|router| Reverse(router.priority));
        routers
    }

    /// # Errors
    /// Why Traefik does not make it.
    fn router(&mut self, name: &'d str, item: Item<'d>) -> Result<TraefikRouter<'d>, String> {
        let fields = item.fields();
        if fields.take("parentRefs").is_some() {
            return Err("Tollgate has no routers below others".to_owned());
        }
        let text = fields.text("rule").ok_or("it has no rule")?;
        let syntax = fields.text("ruleSyntax").map(Syntax::named).or(self.syntax).unwrap_or(Syntax::V3);
        let rule::ParsedRule { mut condition, hosts, unknown } = rule::ParsedRule::read(text, syntax)?;
        if let Some(matcher) = unknown {
            self.draft.head.push(item.note(format!("the rule of `{name}`: `{matcher}` has no equal")));
        }
        let priority = fields.take("priority").map(|item| item.text().unwrap_or_default().parse::<i64>());
        let priority = match priority {
            None | Some(Ok(0)) => i64::try_from(text.len()).unwrap_or(i64::MAX),
            Some(Ok(priority)) => priority,
            Some(Err(_)) => {
                condition = place_between(RequestCondition::NEVER, condition, "its priority cannot be read");
                i64::MAX
            }
        };
        let tls = fields.take("tls").filter(|item| item.text() != Some("false"));
        let tls_fields = tls.map(Item::fields);
        let tls = tls_fields.as_ref().map(TlsOptions::read);
        let (middlewares, entry_points) = (fields.items("middlewares"), fields.texts("entryPoints"));
        // Without a service, it may have routers below it.
        let end = RouterEnd::Service(fields.take("service").unwrap_or(item));
        fields.ignore(&NEEDS_NOTHING);
        let unknown = fields.rest().into_iter().chain(tls_fields.iter().flat_map(Fields::rest)).collect();
        Ok(TraefikRouter {
            name,
            item,
            condition,
            hosts,
            priority,
            tls,
            entry_points,
            middlewares,
            end,
            unknown,
        })
    }

    /// Adds a listener and a site for each entry point.
    pub(super) fn sites(&mut self, routers: &[TraefikRouter<'d>]) {
        let entry_points = std::mem::take(&mut self.entry_points);
        let mut served = BTreeSet::new();
        for entry_point in &entry_points {
            let is_tls = entry_point.is_tls(routers);
            let all = routers.iter().filter(|router| entry_point.has(router));
            let (here, lost): (Vec<_>, Vec<_>) =
                all.partition(|router| (router.tls.is_some() || entry_point.tls.is_some()) == is_tls);
            for router in lost {
                let text = format!(
                    "a listener speaks either plain HTTP or TLS: on `{}`, not that of the router `{}`",
                    entry_point.name, router.name
                );
                self.draft.head.push(router.item.note(text));
                let rule = self.router_rule(entry_point, router, is_tls);
                site::notes(&[rule], &mut self.draft.unsaid);
            }
            served.extend(here.iter().map(|router| router.name));
            self.site(entry_point, &here, is_tls);
        }
        for router in routers.iter().filter(|router| !served.contains(router.name)) {
            let names = router.entry_points.join(", ");
            let text = format!("no listener serves the router `{}` ({names})", router.name);
            self.draft.head.push(router.item.note(text));
        }
        // A listener that redirects all requests needs no routes of its own, unless a proxy in front may say that one
        // came by HTTPS.
        let (mut sites, redirecting): (Vec<Site>, Vec<_>) =
            std::mem::take(&mut self.draft.sites).into_iter().partition(|site| !site.rules.is_empty());
        if let Some(site) = sites.first_mut().filter(|_| self.trusted.is_empty()) {
            site.listeners.extend(redirecting.into_iter().flat_map(|site| site.listeners));
        }
        self.draft.sites = sites;
        if self.draft.sites.is_empty() && !routers.is_empty() {
            self.placeholder(Vec::new());
        }
    }

    /// A site for a file without routers.
    pub(super) fn placeholder(&mut self, mut rules: Vec<SiteRule>) {
        self.draft.head.push(Comment::Plain("No router was converted: write routes.".to_owned()));
        rules.push(SiteRule::new(RequestCondition::ALWAYS, Effect::Refuse(404), &SourceLine::default(), ""));
        self.draft.sites.push(Site { listeners: BTreeSet::new(), rules });
    }

    fn site(&mut self, entry_point: &EntryPoint<'d>, routers: &[&TraefikRouter<'d>], is_tls: bool) {
        let mut comments = entry_point.comments.clone();
        if routers.is_empty() && entry_point.redirect.is_none() && entry_point.first.is_empty() {
            let text = format!(
                "no router of this file is on the entry point `{}` ({}): no listener",
                entry_point.name, entry_point.address
            );
            self.draft.head.push(Comment::Plain(text));
            self.draft.head.extend(comments);
            return;
        }
        let mut settings = Map::new().with("address", entry_point.address.as_str());
        let mut rules = Vec::new();
        if is_tls {
            let tls = self.listener_tls(entry_point, routers, &mut comments);
            settings.set("tls", tls.0);
            rules = tls.1;
        }
        rules.extend(entry_point.first.iter().cloned());
        let mut all: Vec<&TraefikRouter<'d>> =
            entry_point.redirect.iter().chain(routers.iter().copied()).collect();
        all.sort_by_key(|router| Reverse(router.priority));
        for router in all {
            let rule = self.router_rule(entry_point, router, is_tls);
            // No request meets it, but its parts are noted all the same.
            if let (true, Effect::Enter(inner)) = (rule.when == RequestCondition::NEVER, &rule.effect) {
                site::notes(inner, &mut self.draft.unsaid);
            }
            rules.push(rule);
        }
        if let Some(redirect) =
            (!is_tls && !entry_point.is_insecure).then(|| whole_redirect(&mut rules)).flatten()
        {
            settings.set("redirect", redirect);
            // Unless a proxy in front may say that a request came by HTTPS, nothing else is reached.
            if self.trusted.is_empty() {
                site::notes(&rules, &mut self.draft.unsaid);
                rules.clear();
            }
        }
        settings.extend_some("proxy_protocol", entry_point.proxy_protocol.then_some(true));
        let is_taken = |name: &str| self.draft.listeners.iter().any(|listener| listener.name == name);
        let name = resource_name(entry_point.name, is_taken);
        let listeners: BTreeSet<String> = [name.clone()].into();
        self.draft.listeners.push(SiteListener { name, settings, comments });
        self.draft.sites.push(Site { listeners, rules });
    }

    fn router_rule(
        &mut self,
        entry_point: &EntryPoint<'d>,
        router: &TraefikRouter<'d>,
        is_tls: bool,
    ) -> SiteRule {
        // Every service gets the address.
        let address = HeaderRule::Set("x-real-ip".to_owned(), "{client_address}".to_owned());
        let mut chain = vec![
            router.always(Effect::Name(router.name.to_owned())),
            router.always(Effect::Edit(Edit::Request(address))),
        ];
        chain.extend(self.chain(entry_point, router, is_tls));
        router.rule(router.condition.clone(), Effect::Enter(chain))
    }
}

/// Takes the redirect to HTTPS that every request meets first, as `redirect` of a listener.
fn whole_redirect(rules: &mut [SiteRule]) -> Option<YamlValue> {
    let rule = rules.first_mut().filter(|rule| rule.when == RequestCondition::ALWAYS)?;
    let Effect::Enter(inner) = &mut rule.effect else { return None };
    // The name and the address of the client come first.
    let first = inner.get(2)?;
    let Effect::Act(RuleResponse::Redirect(redirect)) = &first.effect else { return None };
    let text = |key: &str| match redirect.get(key).map(|node| &node.value) {
        Some(YamlValue::Text(text) | YamlValue::Bare(text)) => text.as_str(),
        _ => "",
    };
    let is_whole = first.when == RequestCondition::ALWAYS || first.when == RequestCondition::unknown(PROTO);
    let is_fit = is_whole && text("scheme") == "https" && text("status") == "308" && !redirect.has("host");
    let written = match redirect.get("port") {
        _ if !is_fit => return None,
        Some(port) => YamlValue::Map(Map::new().with("to", "https").with("port", port.clone())),
        None => YamlValue::Text("https".to_owned()),
    };
    inner.remove(2);
    Some(written)
}
