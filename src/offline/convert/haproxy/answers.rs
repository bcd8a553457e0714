//! `return`, `redirect` and the replies of `deny`.

use std::num::NonZeroU16;

use crate::offline::convert::{
    condition::is_host,
    draft::literal,
    site::{Effect, RuleResponse},
    yaml::Map,
};

/// The status of a `deny`, `tarpit` or `return`. `None`: it cannot be read.
fn status(words: &[&str], otherwise: u16) -> Option<u16> {
    let at = words.iter().position(|word| matches!(*word, "deny_status" | "status"));
    at.map_or(Some(otherwise), |at| words.get(at + 1)?.parse().ok())
}

/// The effect of `deny` and its like, and the notes on it.
pub(super) fn denial(words: &[&str]) -> (Effect, Option<&'static str>) {
    let (action, arguments) = words.split_first().map_or(("", words), |(action, rest)| (*action, rest));
    let effect = match status(words, if action == "tarpit" { 500 } else { 403 }) {
        Some(status @ 400..=599) => Effect::Refuse(status),
        _ => returned(words),
    };
    let is_status = |word: &&str| matches!(*word, "deny_status" | "status");
    let note = match action {
        "tarpit" => Some("Tollgate denies at once and does not hold the connection; see docs/bans.md"),
        "reject" | "silent-drop" => Some("Tollgate answers 403, and does not close the connection"),
        _ if !(arguments.is_empty() || arguments.len() == 2 && arguments.iter().any(is_status)) => {
            Some("Tollgate's text for a refusal is its own: write `reply` into a route")
        }
        _ => None,
    };
    (effect, note)
}

/// `return`: the action with its arguments.
pub(super) fn returned(words: &[&str]) -> Effect {
    let close = |text: &str| Effect::Close(text.to_owned());
    let mut reply = Map::new();
    let status = match status(words, 200) {
        Some(status @ (200..=299 | 400..=599)) => status,
        _ => return close("a reply of Tollgate has a status from 200 to 299, or from 400 to 599"),
    };
    reply.set("status", u64::from(status));
    let mut words = words.iter().skip(1).copied();
    while let Some(word) = words.next() {
        let value = words.next().unwrap_or_default();
        match word {
            "status" | "deny_status" => {}
            "content-type" if !value.is_empty() && !value.chars().any(char::is_control) => {
                reply.set("content_type", value);
            }
            // HTTP has no body there.
            "string" | "lf-string" if matches!(status, 204 | 205) => {}
            "string" => reply.set("body", value),
            "lf-string" if !value.contains('%') => reply.set("body", value),
            "lf-string" => return close("a reply of Tollgate has no variables"),
            _ => {
                return close("a reply of Tollgate has its text in proxy.yaml: write `reply` into the route");
            }
        }
    }
    Effect::Act(RuleResponse::Reply(reply))
}

/// `redirect`: the action with its arguments.
pub(super) fn redirected(words: &[&str]) -> Effect {
    let close = |text: &str| Effect::Close(text.to_owned());
    let (mut code, mut drops_query) = ("302", false);
    let mut options = words.iter().skip(3).copied();
    while let Some(option) = options.next() {
        match option {
            "code" => code = options.next().unwrap_or_default(),
            "drop-query" => drops_query = true,
            "ignore-empty" => {}
            _ => return close("a redirect of Tollgate sets no cookies and adds no slash"),
        }
    }
    let status = code.parse::<u64>().ok().filter(|code| matches!(code, 301..=303 | 307 | 308));
    let target = words.get(1).zip(words.get(2)).and_then(|(kind, target)| target_of(kind, target));
    let Some((status, mut redirect)) = status.zip(target) else {
        return close("write `redirect` into the route: see docs/routes.md");
    };
    redirect.set("status", status);
    if drops_query && !redirect.has("query") {
        redirect.set("query", "drop");
    }
    Effect::Act(RuleResponse::Redirect(redirect))
}

fn target_of(kind: &str, target: &str) -> Option<Map> {
    let is_plain = target.chars().all(|c| c.is_ascii_graphic() && !"%$#".contains(c));
    let scheme =
        |text: &str| Some(Map::new().with("scheme", ["http", "https"].contains(&text).then_some(text)?));
    let dropping = |map: Map| map.with("query", "drop");
    match kind {
        "scheme" => scheme(target),
        "prefix" if is_plain => origin(target.trim_end_matches('/')),
        "location" if is_plain && target.starts_with('/') => {
            let is_path = !target.starts_with("//") && !target.contains('?');
            is_path.then(|| dropping(Map::new().with("path", literal(target))))
        }
        "location" if is_plain => {
            // Behind the slashes of `https://`.
            let end = target.match_indices('/').nth(2).map_or(target.len(), |(at, _)| at);
            origin(&target[..end])?;
            let slash = if end == target.len() { "/" } else { "" };
            Some(dropping(Map::new().with("to", literal(target) + slash)))
        }
        // The whole target of the request behind another host.
        "location" => {
            let uris = ["%[capture.req.uri]", "%[url]", "%[pathq]", "%HU"];
            let with_query = uris.iter().find_map(|uri| target.strip_suffix(uri));
            let before = with_query.or_else(|| target.strip_suffix("%[path]"))?.to_ascii_lowercase();
            let hosts = ["://%[hdr(host)]", "://%[req.hdr(host)]"];
            let map = match hosts.iter().find_map(|host| before.strip_suffix(host)) {
                Some(text) => scheme(text)?,
                None => origin(&before)?,
            };
            Some(if with_query.is_some() { map } else { dropping(map) })
        }
        _ => None,
    }
}

/// `https://www.example.com:8443`.
fn origin(text: &str) -> Option<Map> {
    let (scheme, host) = text.split_once("://").filter(|(scheme, _)| ["http", "https"].contains(scheme))?;
    let (host, port) = host.split_once(':').map_or((host, None), |(host, port)| (host, Some(port)));
    let port = port.map(str::parse::<NonZeroU16>).transpose().ok()?;
    is_host(host).then_some(())?;
    let mut map = Map::new().with("scheme", scheme).with("host", host);
    map.extend_some("port", port.map(|port| u64::from(port.get())));
    Some(map)
}
