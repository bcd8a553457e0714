//! The route of a request, and the ones that do not match it.

use http::Method;

use super::explanation::{ExplainedRoute, MASK, PassedOver};
use crate::{
    config::model::{Route, Split},
    proxy::{request_facts::RequestFacts, rules::Rules},
    router::{IgnoredDifferences, Mismatch, Target},
};

/// Explains the route of this index for a request for `target`. `None`: no route matches.
pub(super) fn explain(
    rules: &Rules,
    facts: &RequestFacts<'_>,
    target: &Target,
    route: Option<usize>,
) -> ExplainedRoute {
    let request = facts.request;
    // If nobody knows the listener, the route is the same on all of them.
    let explanation = rules.router.explain(&facts.parts(target, facts.listener.unwrap_or_default()));
    let named = |index: usize| rules.config.routes.get(index);
    let passed_over = explanation.passed_over.iter().filter_map(|&(index, mismatch)| {
        let route = named(index)?;
        Some(PassedOver { name: route.name.clone(), because: describe_mismatch(route, mismatch) })
    });
    let route = route.and_then(named);
    ExplainedRoute {
        name: route.map(|route| route.name.clone()),
        because: route.map_or_else(
            || "no route matches".to_owned(),
            |route| describe_match(route, target, &request.method) + &describe_split(rules, route),
        ),
        passed_over: passed_over.collect(),
        others: explanation.others,
    }
}

/// The name of the route's upstream.
pub(super) fn upstream_name<'r>(rules: &'r Rules, route: &Route) -> Option<&'r str> {
    Some(&*rules.config.upstreams.get(route.action.upstream()?)?.name)
}

/// The upstreams among which requests are split.
fn describe_split(rules: &Rules, route: &Route) -> String {
    let Some(split) = &route.split else { return String::new() };
    let Split { by, weights, routes } = &**split;
    let shares = weights
        .iter()
        .zip(routes)
        .map(|(weight, route)| format!("{weight} to {}", upstream_name(rules, route).unwrap_or_default()));
    let (total, shares) = (split.total(), shares.collect::<Vec<_>>().join(", "));
    match by {
        None => format!("; of {total} requests go {shares}, at random"),
        Some(key) => format!("; of {total} go {shares}, chosen by {key}"),
    }
}

/// Everything that the route matches by.
fn describe_match(route: &Route, target: &Target, method: &Method) -> String {
    let mut why = format!("the path matches {}", route.shown_path());
    why += match IgnoredDifferences::new(route, target) {
        IgnoredDifferences { case: true, trailing_slash: true } => {
            " (in any case, with or without trailing slash)"
        }
        IgnoredDifferences { case: true, trailing_slash: false } => " (in any case)",
        IgnoredDifferences { case: false, trailing_slash: true } => " (with or without trailing slash)",
        IgnoredDifferences { case: false, trailing_slash: false } => "",
    };
    if target.has_dot_segments() {
        why += &format!(" without its dot segments, and is sent as {}", target.forwarded(route.dot_segments));
    }
    let listeners = route.listeners.join(", ");
    for (of, names) in [
        ("the listener is one of", listeners),
        ("the host is one of", hosts(route)),
        ("the method is one of", methods(route)),
    ] {
        if !names.is_empty() {
            why += &format!(", {of} {names}");
        }
    }
    if !route.methods.is_empty() && !route.methods.contains(method) {
        why += if *method == Method::HEAD {
            " (HEAD follows GET)"
        } else {
            " (a CORS preflight asks for one of them)"
        };
    }
    for (name, _) in &route.headers {
        why += &format!(", {name} matches");
    }
    for (name, _) in &route.query {
        why += &format!(", the query parameter {name} matches");
    }
    for (name, _) in &route.cookies {
        why += &format!(", the cookie {name} matches");
    }
    why
}

fn describe_mismatch(route: &Route, mismatch: Mismatch) -> String {
    let shown = |value| if route.has_secrets { MASK.into() } else { value };
    match mismatch {
        Mismatch::Path => format!("the path does not match {}", route.shown_path()),
        Mismatch::Host => format!("the host is not one of {}", hosts(route)),
        Mismatch::Method => format!("the method is not one of {}", methods(route)),
        Mismatch::Domain => match &route.domain {
            Some(domain) => format!("it is for descriptors of the domain {domain}"),
            None => "it is not for descriptors".to_owned(),
        },
        Mismatch::Entry(index) => match route.descriptor.get(index) {
            Some((name, value)) => format!("the entry {name} is not {}", shown(value.into())),
            None => "an entry differs".to_owned(),
        },
        Mismatch::Header(index) => match route.headers.get(index) {
            Some((name, value)) => {
                format!("{name} is not {}", shown(String::from_utf8_lossy(value.as_bytes())))
            }
            None => "a header differs".to_owned(),
        },
        Mismatch::Query(index) => match route.query.get(index) {
            Some((name, value)) => {
                format!("the query parameter {name} is not {}", shown(value.into()))
            }
            None => "a query parameter differs".to_owned(),
        },
        Mismatch::Cookie(index) => match route.cookies.get(index) {
            Some((name, value)) => format!("the cookie {name} is not {}", shown(value.into())),
            None => "a cookie differs".to_owned(),
        },
        Mismatch::Listener => format!("the listener is not one of {}", route.listeners.join(", ")),
    }
}

fn hosts(route: &Route) -> String {
    route.hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn methods(route: &Route) -> String {
    route.methods.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
