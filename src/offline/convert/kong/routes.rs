//! Which requests a route is for (kong/router/transform.lua, `get_expression`), and what happens to them.

use std::collections::BTreeSet;

use super::{
    HTTP, Kong,
    order::{self, OrderedRoute},
    paths::{self, KongPath},
    upstreams::KongService,
    values::{all_read, flag, given, ignore, number},
};
use crate::offline::convert::{
    condition::{HostCondition, RequestCondition, Test, ValueKind, is_host},
    document::{Fields, Item},
    draft::is_field_name,
    site::{Edit, Effect, PathEdit, RuleResponse, SiteRule},
    yaml::Map,
};

/// Keys of routes that are read elsewhere, or that change nothing outside: Kong's buffers.
const NEEDS_NOTHING: &str = "name plugins service hosts methods headers paths protocols regex_priority \
                             https_redirect_status_code request_buffering response_buffering";

/// The content types of gRPC that are compared.
const GRPC: [&str; 3] = ["application/grpc", "application/grpc+proto", "application/grpc+json"];

/// Conditions that are not compared.
const UNKNOWN: [(&str, &str); 4] = [
    ("snis", "Tollgate does not choose routes by SNI"),
    ("sources", "routes do not choose by address"),
    ("destinations", "Tollgate does not compare the addresses of listeners"),
    ("expression", "expressions are not read"),
];

/// What a route does with paths and hosts.
struct RoutePaths {
    service: Option<usize>,
    strips: bool,
    preserves_host: bool,
    /// The service's path.
    base: String,
}

impl<'d> Kong<'d> {
    /// The rules of all routes, in the order in which Kong tries them.
    pub(super) fn ordered_routes(&mut self) -> Vec<SiteRule> {
        let mut entries = Vec::new();
        for (nth, (service, item)) in self.routes.clone().into_iter().enumerate() {
            let service = service.and_then(|nth| self.services.get(nth)).map(|item| item.fields());
            // Kong's router has no routes of services that are not enabled (kong/runloop/handler.lua, `build_router`).
            let is_enabled = service.is_none_or(|fields| flag(&fields, "enabled", true) != Ok(false));
            let protocols = item.fields().texts("protocols");
            if protocols.iter().any(|one| matches!(*one, "tcp" | "tls" | "udp" | "tls_passthrough")) {
                self.note(item, "a route for TCP or UDP: not converted");
            } else if is_enabled {
                entries.extend(self.route(nth, item));
            }
        }
        order::rules(entries)
    }

    /// A route has an entry for each of its paths.
    fn route(&mut self, nth: usize, item: Item<'d>) -> Vec<OrderedRoute> {
        let (fields, place) = (item.fields(), item.place());
        let name = fields.text("name").map_or_else(|| format!("route-{}", nth + 1), str::to_owned);
        let rule = |(when, effect)| SiteRule::new(when, effect, &place, name.clone());
        let (parts, kinds) = conditions(&fields);
        let mut head = vec![rule((RequestCondition::ALWAYS, Effect::Name(name.clone())))];
        if !self.is_keyed(nth) && !self.key_plugins().is_empty() {
            let none = Edit::Setting("require", "none".into());
            head.push(rule((RequestCondition::ALWAYS, Effect::Edit(none))));
        }
        head.extend(self.protocol_rules(&fields).into_iter().map(rule));
        head.extend(self.plugin_rules(nth));
        let target = self.target(nth, &fields);
        ignore(&fields, NEEDS_NOTHING);
        let fault = all_read(&fields).and(number(&fields, "regex_priority").map(drop));
        if let Err(text) = fault.and(target.as_ref().map(|_| ()).map_err(String::clone)) {
            head.push(rule((RequestCondition::ALWAYS, Effect::Close(text))));
        }
        let mut paths: Vec<_> =
            fields.items("paths").into_iter().map(|path| path.text().or(Some("$"))).collect();
        if paths.is_empty() {
            paths.push(None);
        }
        let hosts = fields.texts("hosts").into_iter().map(str::to_ascii_lowercase);
        let hosts: BTreeSet<_> = hosts.collect();
        let hosts = if hosts.iter().any(|host| host.contains(['*', ':'])) { BTreeSet::new() } else { hosts };
        let entry = |text: Option<&str>| {
            let path = KongPath::new(text, self.has_bare_regexes);
            let mut rules = head.clone();
            if let Ok(target) = &target {
                rules.extend(self.tail(target, &path, &rules, &rule));
            }
            let strips = target.as_ref().is_ok_and(|target| target.strips);
            // Hosts and paths come first, so that few routes are split by method.
            let mut parts = parts.clone();
            parts.insert(usize::from(kinds.contains("hosts")), path.condition(strips));
            let length = text.map(|text| (text.len(), path.is_regex));
            OrderedRoute {
                rank: order::rank(&kinds, &fields, length),
                when: parts.into_iter().fold(RequestCondition::ALWAYS, RequestCondition::and),
                path: path.path.ok(),
                hosts: hosts.clone(),
                place: place.clone(),
                name: name.clone(),
                rules,
            }
        };
        paths.into_iter().map(entry).collect()
    }

    /// What Kong answers before any plugin runs (kong/runloop/handler.lua, `access.before`).
    fn protocol_rules(&mut self, fields: &Fields<'d>) -> Vec<(RequestCondition, Effect)> {
        let mut rules = Vec::new();
        let protocols = fields.texts("protocols");
        let has = |names: [&str; 2]| protocols.iter().any(|one| names.contains(one));
        if has(["https", "grpcs"]) && !has(["http", "grpc"]) {
            self.needs_tls = true;
            let effect = match number(fields, "https_redirect_status_code") {
                Ok(Some(status @ (301 | 302 | 307 | 308))) => {
                    let redirect = Map::new().with("scheme", "https").with("status", status);
                    Effect::Act(RuleResponse::Redirect(redirect))
                }
                _ => Effect::Refuse(426),
            };
            rules.push((Test::Listeners([HTTP.to_owned()].into()).into(), effect));
        }
        if has(["grpc", "grpcs"]) {
            let types = GRPC.map(|kind| RequestCondition::value(ValueKind::Header, "content-type", kind));
            let why = "the beginning of a header is not compared";
            let is_grpc =
                RequestCondition::between(RequestCondition::Any(types.into()), RequestCondition::ALWAYS, why);
            rules.push((is_grpc.not(), Effect::Refuse(415)));
        }
        rules
    }

    fn target(&self, nth: usize, fields: &Fields<'d>) -> Result<RoutePaths, String> {
        let service = self.routes.get(nth).and_then(|(service, _)| *service);
        let item = service.and_then(|nth| self.services.get(nth));
        let path = item.map(|item| KongService::new(&item.fields())).transpose()?.map(|service| service.path);
        let base = path.filter(|path| !path.is_empty()).unwrap_or_else(|| "/".to_owned());
        // They are the same for `/` (kong/router/traditional.lua, `find_match`).
        if fields.text("path_handling").unwrap_or("v0") != "v0" && base != "/" {
            return Err("`path_handling`: Kong's routers join such paths in different ways".to_owned());
        }
        Ok(RoutePaths {
            service,
            strips: flag(fields, "strip_path", true)?,
            preserves_host: flag(fields, "preserve_host", false)?,
            base: paths::checked(base)?,
        })
    }

    /// What happens to requests that no plugin has ended. `before`: the rules of the plugins.
    fn tail(
        &mut self,
        target: &RoutePaths,
        path: &KongPath,
        before: &[SiteRule],
        rule: &dyn Fn((RequestCondition, Effect)) -> SiteRule,
    ) -> Vec<SiteRule> {
        let always = |effect: Effect| rule((RequestCondition::ALWAYS, effect));
        let Some(service) = target.service else { return vec![always(Effect::Refuse(503))] };
        let end = match self.upstream(service, target.preserves_host) {
            Ok(upstream) => always(Effect::Act(RuleResponse::Upstream(upstream))),
            Err(text) => always(Effect::Close(text)),
        };
        if before.iter().any(|rule| matches!(rule.effect, Effect::Edit(Edit::Path(_)))) {
            return vec![end];
        }
        let with = |edit: Option<PathEdit>| {
            let edit = edit.map(|edit| always(Effect::Edit(Edit::Path(edit))));
            edit.into_iter().chain([end.clone()]).collect::<Vec<_>>()
        };
        match paths::edits(path, &target.base, target.strips) {
            Err(text) => vec![always(Effect::Close(text))],
            Ok((exact, others)) => {
                let special = exact.map(|(path, whole)| {
                    rule((RequestCondition::path(path), Effect::Enter(with(Some(PathEdit::Whole(whole))))))
                });
                special.into_iter().chain(with(others)).collect()
            }
        }
    }
}

/// What a request must be apart from its path, and the kinds of conditions that the route has.
fn conditions(fields: &Fields<'_>) -> (Vec<RequestCondition>, BTreeSet<&'static str>) {
    let mut parts = Vec::new();
    let any = |item: Item<'_>, one: &dyn Fn(&str) -> RequestCondition| {
        let unknown = || RequestCondition::unknown_place("a list that cannot be read");
        let one = |item: Item<'_>| item.text().map_or_else(unknown, one);
        RequestCondition::Any(item.items().into_iter().map(one).collect())
    };
    parts.extend(given(fields, "hosts").map(|item| ("hosts", any(item, &host))));
    let method = |text: &str| RequestCondition::method(&text.to_ascii_uppercase());
    parts.extend(given(fields, "methods").map(|item| ("methods", any(item, &method))));
    for (name, values) in fields.fields("headers").each() {
        parts.push(("headers", any(values, &|value| field(name, value))));
    }
    for (key, why) in UNKNOWN {
        parts.extend(given(fields, key).map(|_| (key, RequestCondition::unknown_place(why))));
    }
    let kinds = parts.iter().map(|(kind, _)| *kind).collect();
    (parts.into_iter().map(|(_, condition)| condition).collect(), kinds)
}

fn host(text: &str) -> RequestCondition {
    let text = text.to_ascii_lowercase();
    match (text.split_once(':'), text.strip_prefix("*.")) {
        (Some((name, _)), _) => {
            RequestCondition::between(RequestCondition::NEVER, host(name), "hosts are compared without ports")
        }
        (None, Some(below)) if is_host(below) => {
            RequestCondition::host(HostCondition::Below(below.to_owned()))
        }
        (None, None) if is_host(&text) => RequestCondition::host(HostCondition::Exact(text)),
        (None, None) if text == "*" => RequestCondition::ALWAYS,
        _ => RequestCondition::unknown_place(format!(
            "`{text}`: only names, and `*.` and a name, are compared"
        )),
    }
}

/// Kong compares headers in any case of their letters.
fn field(name: &str, value: &str) -> RequestCondition {
    let name = name.to_ascii_lowercase();
    let is_text = value.chars().all(|c| c == ' ' || c.is_ascii_graphic()) && value.trim() == value;
    if value.starts_with("~*") || !is_text || !is_field_name(&name) {
        return RequestCondition::unknown(format!("`{name}: {value}`: headers are compared with texts"));
    }
    let spellings = [value.to_owned(), value.to_ascii_lowercase(), value.to_ascii_uppercase()];
    let spellings = BTreeSet::from(spellings).into_iter();
    let exact =
        spellings.map(|value| RequestCondition::value(ValueKind::Header, name.as_str(), value)).collect();
    match value.chars().any(|c| c.is_ascii_alphabetic()) {
        false => RequestCondition::Any(exact),
        true => {
            let why = format!("Kong compares `{name}` in any case of letters, and Tollgate exactly");
            RequestCondition::between(RequestCondition::Any(exact), RequestCondition::ALWAYS, why)
        }
    }
}
