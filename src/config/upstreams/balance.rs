//! How requests are shared out among the endpoints of an upstream.

use std::time::Duration;

use serde::Serialize;
use tollgate_derive::Settings;

use crate::config::{
    identity::settings::IdentitySources,
    nearest::nearest,
    policies::resolve::key,
    reader::{Cursor, MappingCursor},
    request_values,
    settings::Read,
    value::{
        Invalid, cookie_name,
        key::{KeyPart, KeyRecipe},
        suggest_key,
    },
};

/// Which endpoint gets the next request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Balance {
    /// The one with the fewest requests in flight.
    LeastRequest,
    /// One after the other.
    RoundRobin,
    /// The one that the request's key belongs to.
    Hash(KeyRecipe),
}

/// Sticky sessions.
#[derive(Debug, Clone, PartialEq, Eq, Settings)]
#[settings(page = "upstreams.md", sample = "cookie: tg_endpoint", foreign = "upstreams.*.sticky")]
#[settings(such_as = such_as)]
pub struct Sticky {
    /// The name of the cookie that Tollgate sets.
    #[setting(text = COOKIE, read = cookie, example = "tg_endpoint")]
    #[setting(missing = "the name of the cookie, such as `cookie: tg_endpoint`")]
    pub cookie: String,
    /// How long clients keep the cookie.
    #[setting(duration = "1s..=366d", unset = "until the browser is closed", example = "1h")]
    pub max_age: Option<Duration>,
}

fn such_as(word: &str) -> &'static str {
    match word {
        "true" | "on" | "yes" | "cookie" | "ip" => "sticky: { cookie: tg_endpoint }",
        _ => "sticky: { cookie: VALUE }",
    }
}

fn cookie(value: Cursor<'_>) -> Option<String> {
    // Traefik has its settings in there.
    if value.is_mapping() {
        let name = value.entry("name").and_then(Cursor::scalar);
        let help = format!("write `sticky: {{ cookie: {} }}`", name.unwrap_or("tg_endpoint"));
        value.report("expected the cookie's name, not a mapping", help);
        return None;
    }
    value.parse(cookie_name)
}

/// What other proxies, and people, write for `balance`.
const LEAST_REQUEST: &[&str] = &[
    "least_conn",
    "leastconn",
    "least_connection",
    "least_connections",
    "least_requests",
    "least_load",
    "least_time",
    "leasttime",
    "latency",
    "ewma",
    "peak_ewma",
    "p2c",
    "power_of_two",
    "power_of_two_choices",
    "random",
    "random_two",
    "random_two_least_conn",
    "random_choose",
];
const ROUND_ROBIN: &[&str] =
    &["roundrobin", "rr", "wrr", "static_rr", "weighted_round_robin", "weighted_roundrobin"];
const BY_ADDRESS: &[&str] =
    &["ip_hash", "client_ip_hash", "source", "source_ip", "source_ip_hash", "ip", "client_ip", "remote_ip"];
const BY_PATH: &[&str] = &["uri", "uri_hash", "url_hash", "path", "path_hash"];
const BY_KEY: &[&str] = &[
    "hash",
    "consistent",
    "consistent_hash",
    "consistent_hashing",
    "ring_hash",
    "maglev",
    "hrw",
    "rendezvous",
    "header",
    "query",
    "url_param",
];
const BY_COOKIE: &[&str] =
    &["sticky", "sticky_session", "sticky_sessions", "cookie", "session", "rdp_cookie", "affinity"];

/// Balancing by a key.
#[derive(Settings)]
#[settings(written, page = "upstreams.md", foreign = "upstreams.*.balance")]
pub(in crate::config) struct BalanceSettings<'t> {
    /// The key. Requests with the same key go to the same endpoint. For a request without the key, the client's address
    /// is used.
    #[setting(text = KEY, example = "header:x-tenant", missing = "such as `balance: { hash: ip }`")]
    hash: Cursor<'t>,
}

pub(in crate::config) fn balance(value: Cursor<'_>, identity: IdentitySources) -> Option<Balance> {
    match value.is_mapping() {
        true => hash(BalanceSettings::read(value)?.hash, identity).map(Balance::Hash),
        false => value.parse(by_name),
    }
}

/// Gives the keys under which other proxies have it the line for their value.
pub(in crate::config) fn explain_other_names(mapping: &mut MappingCursor<'_>) {
    for key in ["lb_policy", "load_balancing", "load_balancer", "algorithm", "strategy"] {
        if let Some(help) = mapping.peek(key).and_then(|value| suggest_balance(value.scalar()?)) {
            mapping.explain(key, "balance", help);
        }
    }
}

fn by_name(text: &str) -> Result<Balance, Invalid> {
    match text {
        "least_request" => Ok(Balance::LeastRequest),
        "round_robin" => Ok(Balance::RoundRobin),
        _ => {
            let invalid = Invalid::new("is not valid here")
                .expected("one of least_request, round_robin or { hash: KEY }, such as { hash: ip }");
            Err(match suggest_balance(text) {
                Some(line) => invalid.suggestion(line),
                None => invalid,
            })
        }
    }
}

/// The help where `text` stands for a way of balancing.
fn suggest_balance(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let plain = lower.replace(['-', ' '], "_");
    let is_one_of = |names: &[&str]| names.contains(&&*plain);
    let line = match () {
        () if is_one_of(LEAST_REQUEST) => "balance: least_request".to_owned(),
        () if is_one_of(ROUND_ROBIN) => "balance: round_robin".to_owned(),
        () if is_one_of(BY_ADDRESS) => "balance: { hash: ip }".to_owned(),
        () if is_one_of(BY_PATH) => "balance: { hash: path }".to_owned(),
        () if is_one_of(BY_COOKIE) => {
            return Some(
                "write `sticky: { cookie: tg_endpoint }` instead, to keep clients at one endpoint".to_owned(),
            );
        }
        () if is_one_of(BY_KEY) => {
            return Some(
                "write `balance: { hash: KEY }` with a key, such as ip, path, user or header:NAME".to_owned(),
            );
        }
        () => match (suggest_hash(&lower), nearest(&plain, ["least_request", "round_robin"])) {
            (Some(key), _) => format!("balance: {{ hash: {key} }}"),
            (None, Some(near)) => format!("balance: {near}"),
            (None, None) => return None,
        },
    };
    Some(format!("did you mean `{line}`?"))
}

/// The key in `hash $request_uri consistent` (nginx), `header X-Tenant` (Caddy) or `hdr(x-tenant)` (HAProxy).
fn suggest_hash(text: &str) -> Option<String> {
    if let Some(name) = text.strip_prefix("hdr(").and_then(|rest| rest.strip_suffix(')')) {
        return suggest_key(&format!("header:{name}"));
    }
    let (word, rest) = text.split_once(' ')?;
    let rest = rest.trim().trim_end_matches("consistent").trim();
    match word {
        "hash" => suggest_key(rest),
        "header" | "cookie" | "query" => suggest_key(&format!("{word}:{rest}")),
        "url_param" => suggest_key(&format!("query:{rest}")),
        _ => None,
    }
}

fn hash(value: Cursor<'_>, identity: IdentitySources) -> Option<KeyRecipe> {
    if value.is_list() {
        let parts: Option<Vec<_>> = value.list()?.into_iter().map(Cursor::scalar).collect();
        let key = parts.and_then(|parts| suggest_key(&parts.join("+")));
        let help =
            key.map(|key| format!("write `hash: {key}`: requests that agree in all parts have the same key"));
        value.report("expected one key, not a list", help);
        return None;
    }
    let recipe = key(value, identity)?;
    request_values::checks::report_in_choice(value, &recipe);
    if recipe.0.iter().all(|part| *part == KeyPart::Global) {
        let help = "write a key by which requests differ, such as `ip` or `path`".to_owned();
        value.warn("every request has the same key, so that one endpoint gets them all", help);
    }
    Some(recipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_proxies_are_suggested_in_our_form() {
        for (text, line) in [
            ("least_conn", "balance: least_request"),
            ("LEAST_REQUEST", "balance: least_request"),
            ("random two least_conn", "balance: least_request"),
            ("roundrobin", "balance: round_robin"),
            ("round-robin", "balance: round_robin"),
            ("Round Robin", "balance: round_robin"),
            ("ip_hash", "balance: { hash: ip }"),
            ("source", "balance: { hash: ip }"),
            ("uri_hash", "balance: { hash: path }"),
            ("hash $request_uri consistent", "balance: { hash: path }"),
            ("hash $remote_addr$uri", "balance: { hash: ip+path }"),
            ("hash $cookie_sid", "balance: { hash: cookie:sid }"),
            ("header X-Tenant", "balance: { hash: header:x-tenant }"),
            ("hdr(X-Tenant)", "balance: { hash: header:x-tenant }"),
            ("url_param session", "balance: { hash: query:session }"),
            ("MAGLEV", "`balance: { hash: KEY }`"),
            ("cookie", "sticky: { cookie: tg_endpoint }"),
            ("fastest", ""),
            ("", ""),
        ] {
            let found = suggest_balance(text).unwrap_or_default();
            assert!(found.contains(line) && found.is_empty() == line.is_empty(), "{text}: {found}");
        }
    }
}
