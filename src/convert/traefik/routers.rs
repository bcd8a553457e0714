//! Routers, in the order of their priorities, and the sites that they make.

use std::collections::BTreeSet;

use super::{
    Traefik,
    entry_points::EntryPoint,
    plain_name,
    redirects::{PROTO, Redirection},
    rule::{self, Syntax},
    tls::{Domains, TlsPlan},
};
use crate::convert::{
    condition::{Condition, Doubt, Host},
    document::{Fields, Item},
    site::{Action, Edit, Effect, HeaderChange, Listener, Rule, Site},
    yaml::{Comment, Map, Value},
};

/// What nobody outside can see: what is logged.
const NEEDS_NOTHING: [&str; 2] = ["observability", "entryPoints"];

/// A router.
pub(super) struct Router<'d> {
    pub(super) name: &'d str,
    pub(super) item: Item<'d>,
    condition: Condition,
    /// The hosts that its rule names.
    pub(super) hosts: Vec<String>,
    /// Those for which its TLS options count.
    pub(super) sni: Vec<Host>,
    priority: i64,
    pub(super) has_tls: bool,
    pub(super) tls_options: Option<&'d str>,
    pub(super) domains: Domains,
    /// Empty: the default ones.
    pub(super) entry_points: Vec<&'d str>,
    pub(super) middlewares: Vec<Item<'d>>,
    /// Its service, or why there is no equal for it.
    pub(super) service: Result<Item<'d>, String>,
    /// Of an entry point, in place of a service.
    pub(super) redirect: Option<Redirection>,
    /// Settings of it that have no equal.
    pub(super) unknown: Vec<(&'d str, Item<'d>)>,
}

impl<'d> Router<'d> {
    /// The router of a redirection of an entry point.
    pub(super) fn redirecting(item: Item<'d>, condition: Condition, priority: i64, to: Redirection) -> Self {
        Self {
            name: "redirections",
            item,
            condition,
            hosts: Vec::new(),
            sni: Vec::new(),
            priority,
            has_tls: false,
            tls_options: None,
            domains: Domains::default(),
            entry_points: Vec::new(),
            middlewares: Vec::new(),
            service: Err(String::new()),
            redirect: Some(to),
            unknown: Vec::new(),
        }
    }
}

impl<'d> Traefik<'d> {
    pub(super) fn read_routers(&mut self) -> Vec<Router<'d>> {
        let items = std::mem::take(&mut self.routers);
        let all: Vec<_> = items.iter().map(|(name, item)| (*name, *item, item.fields())).collect();
        let is_v2 = |fields: &Fields<'d>| {
            let rule = fields.text("rule").and_then(|rule| rule::Rule::parse(rule).ok());
            let is_free = fields.text("ruleSyntax").is_none();
            rule.is_some_and(|rule| {
                is_free && rule.condition(Syntax::V3).is_err() && rule.condition(Syntax::V2).is_ok()
            })
        };
        if self.syntax.is_none() && all.iter().any(|(_, _, fields)| is_v2(fields)) {
            let text = "The rules are in the syntax of Traefik 2, and are read so.";
            self.draft.head.push(Comment::Plain(text.to_owned()));
            self.syntax = Some(Syntax::V2);
        }
        let parents: BTreeSet<&str> =
            all.iter().flat_map(|(_, _, fields)| fields.texts("parentRefs")).map(plain_name).collect();
        let routers = all.iter().filter_map(|(name, item, fields)| {
            match self.router(name, *item, fields, parents.contains(name)) {
                Ok(router) => Some(router),
                Err(text) => {
                    self.draft.head.push(item.note(format!("the router `{name}`: {text}: not converted")));
                    None
                }
            }
        });
        let mut routers: Vec<_> = routers.collect();
        // Traefik takes any of those with the same priority.
        routers.sort_by_key(|router| std::cmp::Reverse(router.priority));
        routers
    }

    /// # Errors
    /// Why Traefik does not make it.
    fn router(
        &mut self,
        name: &'d str,
        item: Item<'d>,
        fields: &Fields<'d>,
        is_parent: bool,
    ) -> Result<Router<'d>, String> {
        if fields.take("parentRefs").is_some() {
            return Err("Tollgate has no routers below others".to_owned());
        }
        let text = fields.text("rule").ok_or("it has no rule")?;
        let (mut condition, rule) = self.condition(text, fields.text("ruleSyntax"))?;
        if let Some(matcher) = rule.unknown() {
            self.draft.head.push(item.note(format!("the rule of `{name}`: `{matcher}` has no equal")));
        }
        let priority = fields.take("priority").map(|item| item.text().unwrap_or_default().parse::<i64>());
        let length = i64::try_from(text.len()).unwrap_or(i64::MAX);
        let priority = match priority {
            None | Some(Ok(0)) => length,
            Some(Ok(priority)) => priority,
            Some(Err(_)) => {
                condition = doubted(condition, "its priority cannot be read");
                i64::MAX
            }
        };
        let tls = fields.take("tls").filter(|item| item.text() != Some("false"));
        let tls_fields = tls.map(Item::fields);
        let service = match (fields.take("service"), is_parent) {
            (Some(service), _) => Ok(service),
            (None, true) => Err("it has routers below it, which Tollgate does not have".to_owned()),
            (None, false) => return Err("it has no service".to_owned()),
        };
        let middlewares = fields.items("middlewares");
        let entry_points = fields.texts("entryPoints");
        fields.ignore(&NEEDS_NOTHING);
        let tls_options = tls_fields.as_ref().and_then(|tls| tls.text("options"));
        let domains = tls_fields.as_ref().map(Domains::read).unwrap_or_default();
        let unknown = fields.rest().into_iter().chain(tls_fields.iter().flat_map(Fields::rest)).collect();
        let has_tls = tls.is_some();
        Ok(Router {
            name,
            item,
            condition,
            hosts: rule.hosts(),
            sni: rule.sni(),
            priority,
            has_tls,
            tls_options,
            domains,
            entry_points,
            middlewares,
            service,
            redirect: None,
            unknown,
        })
    }

    /// A rule and its condition.
    fn condition(&self, text: &str, syntax: Option<&str>) -> Result<(Condition, rule::Rule), String> {
        let rule = rule::Rule::parse(text).map_err(|error| format!("its rule cannot be read, {error}"))?;
        let syntax = syntax.map(Syntax::named).or(self.syntax);
        let condition = rule.condition(syntax.unwrap_or(Syntax::V3))?;
        if syntax.is_none() && rule.has_braces() {
            let outer = rule.condition(Syntax::V2)?;
            let why = "Traefik 2 and 3 read its braces in different ways: write `ruleSyntax: v2` or `v3` in the router";
            return Ok((doubted(outer, why), rule));
        }
        Ok((condition, rule))
    }

    /// Adds a listener and a site for each entry point.
    pub(super) fn sites(&mut self, routers: &[Router<'d>]) {
        let entry_points = std::mem::take(&mut self.entry_points);
        let mut served = BTreeSet::new();
        for entry_point in &entry_points {
            let is_tls = entry_point.is_tls(routers);
            let all = routers.iter().filter(|router| entry_point.has(router));
            let (here, lost): (Vec<_>, Vec<_>) =
                all.partition(|router| (router.has_tls || entry_point.has_tls) == is_tls);
            if let Some(first) = lost.first() {
                let names: Vec<_> = lost.iter().map(|router| router.name).collect();
                let text = format!(
                    "on `{}`, Traefik answers {}, too, by {}: a listener speaks either plain HTTP or TLS",
                    entry_point.name,
                    if is_tls { "plain HTTP" } else { "TLS" },
                    names.join(", ")
                );
                self.draft.head.push(first.item.note(text));
            }
            served.extend(here.iter().map(|router| router.name));
            self.site(entry_point, &here, is_tls);
        }
        for router in routers.iter().filter(|router| !served.contains(router.name)) {
            let text = format!("no listener serves the router `{}`", router.name);
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
    pub(super) fn placeholder(&mut self, mut rules: Vec<Rule>) {
        self.draft.head.push(Comment::Plain("No router was converted: write routes.".to_owned()));
        let place = crate::convert::Place { file: String::new(), line: 0 };
        rules.push(Rule::new(Condition::ALWAYS, Effect::Refuse(404), &place, ""));
        self.draft.sites.push(Site { listeners: BTreeSet::new(), rules });
    }

    fn site(&mut self, entry_point: &EntryPoint<'d>, routers: &[&Router<'d>], is_tls: bool) {
        if routers.is_empty() && entry_point.redirect.is_none() && entry_point.first.is_empty() {
            let text = format!(
                "no router of this file is on the entry point `{}` ({}): no listener",
                entry_point.name, entry_point.address
            );
            self.draft.head.push(Comment::Plain(text));
            self.draft.head.extend(entry_point.comments.iter().cloned());
            return;
        }
        let tls = is_tls.then(|| self.tls_plan(entry_point, routers));
        let mut rules: Vec<(i64, Rule)> = Vec::new();
        for router in entry_point.redirect.iter().chain(routers.iter().copied()) {
            let mut closed: Vec<Rule> = Vec::new();
            for (key, item) in &router.unknown {
                let text = format!("`{key}` has no equal");
                closed.push(Rule::new(Condition::ALWAYS, Effect::Close(text), &item.place(), shown(router)));
            }
            // Every service gets the address.
            let address = HeaderChange::Set("x-real-ip".to_owned(), "{client_address}".to_owned());
            let mut chain = vec![
                self.rule_of(router, Effect::Name(router.name.to_owned())),
                self.rule_of(router, Effect::Edit(Edit::Request(address))),
            ];
            if let Some(others) = tls.as_ref().and_then(|tls| tls.hosts_of_others(router.name)) {
                let rule = self.rule_of(router, Effect::Refuse(421));
                chain.push(Rule { when: others, ..rule });
            }
            chain.extend(self.chain(entry_point, router, is_tls, closed));
            let enter = Effect::Enter(chain);
            let rule = Rule::new(router.condition.clone(), enter, &router.item.place(), shown(router));
            rules.push((router.priority, rule));
        }
        rules.sort_by_key(|(priority, _)| std::cmp::Reverse(*priority));
        let before = tls.iter().flat_map(|tls| &tls.rules).chain(&entry_point.first).cloned();
        let mut rules: Vec<Rule> = before.chain(rules.into_iter().map(|(_, rule)| rule)).collect();
        let is_plain = !is_tls && !entry_point.is_insecure;
        let redirect = is_plain.then(|| whole_redirect(&mut rules)).flatten();
        // Unless a proxy in front may say that a request came by HTTPS, nothing else is reached.
        if redirect.is_some() && self.trusted.is_empty() {
            rules.clear();
        }
        let listener = self.listener(entry_point, routers, tls.as_ref(), redirect);
        let listeners: BTreeSet<String> = [listener.name.clone()].into();
        self.draft.listeners.push(listener);
        let rules: Vec<Rule> = rules.into_iter().map(with_host_for_port).collect();
        self.say(&rules);
        self.draft.sites.push(Site { listeners, rules });
    }

    fn rule_of(&self, router: &Router<'d>, effect: Effect) -> Rule {
        Rule::new(Condition::ALWAYS, effect, &router.item.place(), shown(router))
    }

    /// Notes also what no request reaches.
    fn say(&mut self, rules: &[Rule]) {
        for rule in rules {
            match &rule.effect {
                Effect::Enter(inner) => self.say(inner),
                Effect::Close(text) | Effect::Note(text) => {
                    if let Comment::Unconverted(note) = rule.note(&format!("{text}. No request reaches it")) {
                        self.draft.unsaid.push(note);
                    }
                }
                _ => {}
            }
        }
    }

    fn listener(
        &mut self,
        entry_point: &EntryPoint<'d>,
        routers: &[&Router<'d>],
        tls: Option<&TlsPlan>,
        redirect: Option<Map>,
    ) -> Listener {
        let mut settings = Map::new().with("address", entry_point.address.as_str());
        let mut comments = entry_point.comments.clone();
        if entry_point.is_guess {
            let text = format!(
                "The entry point `{}`. Its address is in Traefik's static configuration.",
                entry_point.name
            );
            comments.insert(0, Comment::Plain(text));
        }
        if let Some(redirect) = redirect {
            match redirect.get("port") {
                Some(port) => {
                    settings.set("redirect", Map::new().with("to", "https").with("port", port.clone()));
                }
                None => settings.set("redirect", "https"),
            }
        }
        if entry_point.proxy_protocol {
            settings.set("proxy_protocol", true);
        }
        if let Some(tls) = tls {
            settings.set("tls", self.listener_tls(routers, &entry_point.domains, tls, &mut comments));
        }
        let is_taken = |name: &str| self.draft.listeners.iter().any(|listener| listener.name == name);
        let name = crate::convert::draft::resource_name(&entry_point.name, is_taken);
        Listener { name, settings, comments }
    }
}

fn shown(router: &Router<'_>) -> String {
    format!("routers.{}", router.name)
}

/// A condition of which only the outer form is known.
fn doubted(outer: Condition, text: &str) -> Condition {
    let why = Doubt { text: text.to_owned(), is_of_place: true };
    Condition::Between { inner: Box::new(Condition::NEVER), outer: Box::new(outer), why }
}

/// Takes the redirect to HTTPS that every request meets first.
fn whole_redirect(rules: &mut [Rule]) -> Option<Map> {
    let rule = rules.first_mut().filter(|rule| rule.when == Condition::ALWAYS)?;
    let Effect::Enter(inner) = &mut rule.effect else { return None };
    // The name and the address of the client come first.
    let first = inner.get(2)?;
    let Effect::Act(Action::Redirect(redirect)) = &first.effect else { return None };
    let text = |key: &str| match redirect.get(key).map(|node| &node.value) {
        Some(Value::Text(text) | Value::Bare(text)) => text.as_str(),
        _ => "",
    };
    let is_whole = first.when == Condition::ALWAYS || first.when == Condition::unknown(PROTO);
    let is_fit = is_whole && text("scheme") == "https" && text("status") == "308" && !redirect.has("host");
    let redirect = is_fit.then(|| redirect.clone())?;
    inner.remove(2);
    Some(redirect)
}

/// A redirect to a port needs a host: without one, it is closed.
fn with_host_for_port(mut rule: Rule) -> Rule {
    match &mut rule.effect {
        Effect::Act(Action::Redirect(redirect)) if redirect.has("port") && !redirect.has("host") => {
            let text =
                "a redirect to another port needs a host: write `redirect: { scheme: …, host: …, port: … }`";
            rule.effect = Effect::Close(text.to_owned());
        }
        Effect::Enter(rules) => {
            *rules = std::mem::take(rules).into_iter().map(with_host_for_port).collect();
        }
        _ => {}
    }
    rule
}
