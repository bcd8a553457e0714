//! Settings that do nothing where another proxy asks for decisions: it forwards the requests, and has their bodies and
//! responses.

use std::sync::Arc;

use crate::config::{
    listeners::settings::{DecisionService, Listener},
    policies::{algorithm::Algorithm, settings::Policy},
    reader::Cursor,
    resolved::Config,
    routes::settings::Route,
};
use crate::request_values::RequestValue;

/// Settings of a route for requests that Tollgate forwards.
const OF_FORWARDING: [&str; 11] = [
    "reply",
    "redirect",
    "usage",
    "timeouts",
    "retry",
    "rewrite",
    "max_body",
    "cors",
    "response_headers",
    "trailers",
    "early_hints",
];

/// Warns about everything in the configuration `root` that does nothing for questions, where requests come no other way.
pub(in crate::config) fn warn(root: Cursor<'_>, config: &Config) {
    let items = root.entry("routes").and_then(Cursor::list).unwrap_or_default();
    for (item, route) in items.into_iter().zip(&config.routes) {
        if is_asked_alone(route, config) {
            warn_of_route(item, route, config);
        }
        if route.domain.is_some()
            && !services(config).any(DecisionService::takes_calls)
            && let Some(domain) = item.entry("domain")
        {
            let help = "add a listener: `{ address: 127.0.0.1:8081, serves: decisions }`".to_owned();
            domain.warn(
                "no listener takes the calls of Envoy's rate limits, so nothing reaches this route",
                help,
            );
        }
    }
    if services(config).next().is_some()
        && let Some(forward) = root.entry("api_keys").and_then(|keys| keys.entry("forward"))
        && config.api_keys.as_ref().is_some_and(|keys| !keys.forward)
    {
        let help = "remove the header there, before the upstream gets the request".to_owned();
        forward.warn("a proxy that asks for decisions forwards the keys all the same", help);
    }
    warn_of_unused_overdraw(root, config);
}

fn services(config: &Config) -> impl Iterator<Item = &DecisionService> {
    config.listeners.iter().filter_map(|listener| listener.decisions.as_ref())
}

/// Whether only questions reach the route.
fn is_asked_alone(route: &Route, config: &Config) -> bool {
    let reaches = |listener: &&Listener| {
        let is_named = |name: &String| route.listeners.contains(name);
        route.listeners.is_empty() || listener.name.as_ref().is_some_and(is_named)
    };
    let mut reaching = config.listeners.iter().filter(reaches).peekable();
    route.domain.is_some()
        || reaching.peek().is_some() && reaching.all(|listener| listener.decisions.is_some())
}

fn warn_of_route(item: Cursor<'_>, route: &Route, config: &Config) {
    for key in OF_FORWARDING {
        if let Some(value) = item.entry(key) {
            let message =
                format!("`{key}` does nothing on this route: another proxy asks, and forwards its requests");
            value.warn(message, "set it there, and remove it here".to_owned());
        }
    }
    for allowed in route.allow_values.iter().filter(|allowed| is_of_body(&allowed.value)) {
        let name = &allowed.value.name;
        let at = item.entry("allow_values").unwrap_or(item);
        let help = "have the API check it, or let Tollgate forward the requests".to_owned();
        at.warn(format!("`{name}` is not checked here: another proxy asks, and the body says it"), help);
    }
    let at = item.entry("policies").unwrap_or(item);
    for policy in route.all_policies().into_iter().filter_map(|index| config.policies.get(index)) {
        let name = &policy.name;
        if let Some(needed) = needed(policy, config) {
            let message =
                format!("`{name}` never applies here: another proxy asks, and the policy needs {needed}");
            let help =
                "take a policy that counts by the head of requests, or let Tollgate forward them".to_owned();
            at.warn(message, help);
        } else if matches!(policy.algorithm, Algorithm::Gcra { delay, .. } if !delay.is_zero()) {
            let message = format!("`{name}` delays nothing here: another proxy asks, and a wait is a denial");
            at.warn(message, "give it a `burst`, or remove `delay`".to_owned());
        }
    }
}

/// Whether bodies say the value.
fn is_of_body(value: &RequestValue) -> bool {
    value.paths().next().is_some() || value.form_fields().next().is_some()
}

/// What `policy` needs that a question does not tell. `None`: nothing.
fn needed(policy: &Policy, config: &Config) -> Option<&'static str> {
    let is_of_body = |name: &str| config.values.iter().any(|value| value.name == name && is_of_body(value));
    match () {
        () if policy.algorithm == Algorithm::Concurrency => Some("the end of a request"),
        () if policy.count.is_some() || policy.cost.of_response().is_some() => Some("the response"),
        () if policy.value_names().any(is_of_body) => Some("the body"),
        () => None,
    }
}

/// Warns about `overdraw` of policies that no descriptor counts under.
fn warn_of_unused_overdraw(root: Cursor<'_>, config: &Config) {
    let is_counted = |index: usize| {
        let mut of_descriptors = config.routes.iter().filter(|route| route.domain.is_some());
        of_descriptors.any(|route| route.all_policies().contains(&index))
    };
    let unused = config.policies.iter().map(Arc::as_ref).enumerate();
    for (_, policy) in unused.filter(|(index, policy)| policy.overdraw && !is_counted(*index)) {
        let policies = root.entry("policies").and_then(|policies| policies.entry(&policy.name));
        if let Some(overdraw) = policies.and_then(|policy| policy.entry("overdraw")) {
            let help = "add the policy to a route with `domain`, or remove this".to_owned();
            overdraw
                .warn("`overdraw` is for descriptors, and no route for descriptors has this policy", help);
        }
    }
}
