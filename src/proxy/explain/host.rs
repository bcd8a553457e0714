//! The host assumed for an explained request that names none.

use http::{HeaderValue, header::HOST, request};

use super::explanation::AssumedHost;
use crate::{
    config::model::{HostPattern, Route},
    proxy::rules::{Rules, parse_target},
    router::RequestParts,
};

/// For routes that take any host.
const ANY: &str = "localhost";

/// Gives a request without a host the host of the first route that it then matches, if it comes in on one of these
/// `listeners`, by their indexes; if there is none, the first route's host. `None`: it has a host.
pub fn assume_host(rules: &Rules, request: &mut request::Parts, listeners: &[usize]) -> Option<AssumedHost> {
    if request.uri.authority().is_some() || request.headers.contains_key(HOST) {
        return None;
    }
    let routes = &rules.config.routes;
    let matching = routes.iter().enumerate().find(|(index, route)| {
        set_host(request, &example(route));
        parse_target(request, rules.survey(&request.headers), &rules.config.client_limits).is_ok_and(
            |target| {
                let (method, headers) = (&request.method, &request.headers);
                listeners.iter().any(|&listener| {
                    let is_question = rules.is_asked_on(listener);
                    let parts = RequestParts {
                        method,
                        target: &target,
                        headers,
                        listener,
                        is_question,
                        descriptor: None,
                    };
                    rules.router.find_on(&parts).is_ok_and(|found| found == *index)
                })
            },
        )
    });
    let because = match matching {
        Some((_, route)) if route.hosts.is_empty() => {
            format!("assumed, because the URL has none; route {} takes any", route.name)
        }
        Some((_, route)) => format!("assumed, because the URL has none; it is one of route {}", route.name),
        None => "assumed, because the URL has none".to_owned(),
    };
    let route = matching.map(|(_, route)| route).or_else(|| routes.first());
    let host = route.map_or_else(|| ANY.to_owned(), example);
    set_host(request, &host);
    Some(AssumedHost { host, because })
}

/// A host that the route accepts.
fn example(route: &Route) -> String {
    match route.hosts.first() {
        None => ANY.to_owned(),
        Some(HostPattern::Exact(name)) => name.clone(),
        Some(HostPattern::Suffix(suffix)) => format!("www{suffix}"),
    }
}

fn set_host(request: &mut request::Parts, host: &str) {
    // Patterns hold nothing that a field can't.
    if let Ok(host) = HeaderValue::from_str(host) {
        request.headers.insert(HOST, host);
    }
}
