//! Values as proxy.yaml writes them, or nearly so.

use std::{
    fmt::{Debug, Display, Write},
    time::Duration,
};

use crate::{
    config::model::{
        Algorithm, Destination, Endpoint, HostPattern, KeyPart, KeyRecipe, PathPattern, Rate, Secret,
        Segment, UserSource, Workers,
    },
    telemetry::time::format_duration,
};

/// One word out of a few: `least_request` of `LeastRequest`.
pub(super) fn plain(word: &impl Debug) -> String {
    let mut plain = String::new();
    for (place, c) in format!("{word:?}").char_indices() {
        if c.is_ascii_uppercase() && place > 0 {
            plain.push('_');
        }
        plain.push(c.to_ascii_lowercase());
    }
    plain
}

/// `90s`
pub(super) fn time(of: &Duration) -> String {
    format_duration(i64::try_from(of.as_micros()).unwrap_or(i64::MAX))
}

/// `none`, or what there is.
pub(super) fn list(all: &[impl Display]) -> String {
    let mut text = String::new();
    for (place, one) in all.iter().enumerate() {
        // Writing to a string does not fail.
        let _ = write!(text, "{}{one}", if place > 0 { ", " } else { "" });
    }
    if text.is_empty() { "none".to_owned() } else { text }
}

pub(super) fn workers(workers: &Workers) -> String {
    match workers {
        Workers::Auto => "auto".to_owned(),
        Workers::Count(count) => count.to_string(),
    }
}

pub(super) fn destination(to: &Destination) -> String {
    match to {
        Destination::Stdout => "stdout".to_owned(),
        Destination::File(path) => path.display().to_string(),
    }
}

/// A URL of which neither user nor password is told, nor what else may hold them.
pub(super) fn without_credentials(url: &Secret) -> String {
    let url = url.reveal();
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (rest, query) = rest.split_once('?').map_or((rest, ""), |(rest, _)| (rest, "?***"));
    match rest.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://***@{host}{query}"),
        None => format!("{scheme}://{rest}{query}"),
    }
}

/// Which there are, not all that is said of them: a path of keys that changes shows.
pub(super) fn sources(sources: &[UserSource]) -> String {
    let source = |source: &UserSource| match source {
        UserSource::Header { name, .. } => format!("header {name}"),
        UserSource::Cookie(name) => format!("cookie {name}"),
        UserSource::Basic => "basic".to_owned(),
        UserSource::Jwt(jwt) => format!("jwt {} by {}", jwt.claim, jwt.key.display()),
    };
    list(&sources.iter().map(source).collect::<Vec<_>>())
}

/// `http://10.0.0.7:8080, http://10.0.0.8:8080 (weight 3)`
pub(super) fn endpoints(endpoints: &[Endpoint]) -> String {
    let endpoint = |endpoint: &Endpoint| match endpoint.weight {
        1 => format!("http://{}", endpoint.authority),
        weight => format!("http://{} (weight {weight})", endpoint.authority),
    };
    list(&endpoints.iter().map(endpoint).collect::<Vec<_>>())
}

/// `10/1s, 120/1m`
pub(super) fn limits(rates: &[Rate]) -> String {
    let rate = |rate: &Rate| format!("{}/{}", rate.limit, time(&rate.window));
    list(&rates.iter().map(rate).collect::<Vec<_>>())
}

pub(super) fn algorithm(algorithm: &Algorithm) -> String {
    match algorithm {
        Algorithm::SlidingWindow { buckets } => format!("sliding_window of {buckets} buckets"),
        Algorithm::Gcra { burst, delay } if delay.is_zero() => format!("gcra with burst {burst}"),
        Algorithm::Gcra { burst, delay } => format!("gcra with burst {burst} and delay {}", time(delay)),
        others => plain(others),
    }
}

/// `ip+path, user`
pub(super) fn keys(recipes: &[KeyRecipe]) -> String {
    let recipe = |KeyRecipe(parts): &KeyRecipe| parts.iter().map(key).collect::<Vec<_>>().join("+");
    list(&recipes.iter().map(recipe).collect::<Vec<_>>())
}

fn key(part: &KeyPart) -> String {
    match part {
        KeyPart::Header(name) => format!("header:{name}"),
        KeyPart::Cookie(name) => format!("cookie:{name}"),
        KeyPart::Query(name) => format!("query:{name}"),
        KeyPart::Jwt(claim) => format!("jwt:{claim}"),
        others => plain(others),
    }
}

pub(super) fn hosts(patterns: &[HostPattern]) -> String {
    let host = |pattern: &HostPattern| match pattern {
        HostPattern::Exact(host) => host.clone(),
        HostPattern::Suffix(suffix) => format!("*{suffix}"),
    };
    list(&patterns.iter().map(host).collect::<Vec<_>>())
}

pub(super) fn path(pattern: &PathPattern) -> String {
    let segment = |segment: &Segment| match segment {
        Segment::Literal(text) => format!("/{text}"),
        Segment::Parameter(name) => format!("/{{{name}}}"),
    };
    match pattern {
        PathPattern::Exact(path) => path.clone(),
        PathPattern::Prefix(prefix) => format!("{prefix}*"),
        PathPattern::Template(segments) => segments.iter().map(segment).collect(),
    }
}
