//! Middlewares that redirect.

use std::collections::BTreeSet;

use regex::Regex;

use super::{
    Traefik,
    entry_points::{PROTO, Redirection},
    middlewares::{Context, Middleware},
    paths::text_of,
};
use crate::offline::convert::{
    condition::{HostCondition, RequestCondition, Test},
    draft::literal,
    path::{Path, escaped, regex_text},
    site::{Effect, RuleResponse, SiteRule},
    yaml::Map,
};

/// 308 or 307, which keep the method.
fn status(middleware: &Middleware<'_>) -> u64 {
    // Both settings are read.
    let is_permanent = middleware.fields.is_true("permanent");
    if middleware.fields.is_true("forcePermanentRedirect") || is_permanent { 308 } else { 307 }
}

impl<'d> Traefik<'d> {
    pub(super) fn redirect_scheme(
        &self,
        middleware: &Middleware<'d>,
        context: &Context<'_, 'd>,
    ) -> Vec<SiteRule> {
        let text = |key: &str| middleware.fields.text(key).unwrap_or_default().to_owned();
        let to = Redirection { scheme: text("scheme"), port: text("port"), status: status(middleware) };
        self.to_scheme(middleware, context, &to)
    }

    pub(super) fn to_scheme(
        &self,
        middleware: &Middleware<'d>,
        context: &Context<'_, 'd>,
        Redirection { scheme, port, status }: &Redirection,
    ) -> Vec<SiteRule> {
        let is_usual =
            matches!((scheme.as_str(), port.as_str()), (_, "") | ("https", "443") | ("http", "80"));
        if !matches!(scheme.as_str(), "http" | "https") {
            return vec![middleware.close("Tollgate redirects to http and https")];
        }
        let is_told = !self.trusted.is_empty() || context.entry_point.is_insecure;
        if (scheme == "https") == context.is_tls {
            // A plain request may name another port.
            let is_met = is_usual && context.is_tls && !is_told;
            let text = if is_told { PROTO } else { "it redirects to another port of the same scheme" };
            return if is_met { Vec::new() } else { vec![middleware.close(text)] };
        }
        let mut redirect = Map::new().with("scheme", scheme.as_str()).with("status", *status);
        let port = match (is_usual, port.parse::<u64>()) {
            (true, _) => None,
            (false, Ok(port)) => Some(port),
            (false, Err(_)) => return vec![middleware.close(format!("`{port}` is no port"))],
        };
        redirect.extend_some("port", port);
        let when = if is_told { RequestCondition::unknown(PROTO) } else { RequestCondition::ALWAYS };
        vec![middleware.rule(when, Effect::Act(RuleResponse::Redirect(redirect)))]
    }
}

/// Stands for every host.
const ANY_HOST: &str = "any-host-of-all.invalid";

/// `redirectRegex` compares the whole URL. What it does is known where its host is one that the router or the expression
/// names, or any, and the path a text at the beginning and what follows it.
pub(super) fn redirect_regex(middleware: &Middleware<'_>, context: &Context<'_, '_>) -> Vec<SiteRule> {
    let pattern = middleware.fields.text("regex").unwrap_or_default();
    let replacement = middleware.fields.text("replacement").unwrap_or_default();
    let status = status(middleware);
    let act = |redirect: Map| Effect::Act(RuleResponse::Redirect(redirect.with("status", status)));
    let close =
        || middleware.close(format!("from {pattern} to {replacement}: write a route with `redirect`"));
    if pattern == ".*" && replacement.starts_with("http") && !replacement.contains('$') {
        let to = Map::new().with("to", literal(replacement)).with("query", "drop");
        return vec![middleware.always(act(to))];
    }
    let Some((origin, path)) = split(pattern) else {
        let only = only_end(pattern).and_then(|end| Path::regex(&format!("{}$", escaped(&end)), false).ok());
        return vec![SiteRule {
            when: only.map_or(RequestCondition::ALWAYS, RequestCondition::path),
            ..close()
        }];
    };
    let host = origin.rsplit("://").next().unwrap_or_default();
    let is_any = matches!(host.trim_matches(['(', ')']), "[^/]+" | "[^/:]+" | ".*" | ".+");
    // An expression that names its host matches no other.
    let named = Some(host.replace(r"\.", ".")).filter(|host| !is_any && is_host(host));
    let of_router = context.router.hosts.iter().filter_map(|host| match host {
        HostCondition::Exact(name) => Some(name.clone()),
        HostCondition::Below(_) => None,
    });
    let hosts: BTreeSet<String> =
        if is_any { [ANY_HOST.to_owned()].into() } else { of_router.chain(named.clone()).collect() };
    let scheme = if context.is_tls { "https" } else { "http" };
    let mut rules = Vec::new();
    for host in &hosts {
        let here = if is_any {
            RequestCondition::ALWAYS
        } else {
            RequestCondition::host(HostCondition::Exact(host.clone()))
        };
        match redirected(&origin, path.as_deref(), replacement, scheme, host) {
            None => rules.push(SiteRule { when: here, ..close() }),
            Some(None) => {}
            Some(Some((path, redirect))) => {
                rules.push(middleware.rule(here.and(RequestCondition::path(path)), act(redirect)));
            }
        }
    }
    if named.is_none() && !is_any {
        let others = Test::Hosts(hosts.into_iter().map(HostCondition::Exact).collect());
        rules.push(SiteRule { when: RequestCondition::from(others).not(), ..close() });
    }
    rules
}

/// What the path ends with wherever an expression matches. It has no query then.
fn only_end(pattern: &str) -> Option<String> {
    let (begin, end) = pattern.strip_prefix('^')?.strip_suffix('$')?.rsplit_once('/')?;
    let is_short = ![".*", ".+"].iter().any(|any| begin.contains(any));
    text_of(end).filter(|_| is_short).map(|end| format!("/{end}"))
}

fn is_host(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.'))
}

/// The part of an expression for scheme and host, and the text that the path begins with, before a wildcard for the rest.
/// Without it, the wildcard is also for the end of the host, and in the first part.
fn split(pattern: &str) -> Option<(String, Option<String>)> {
    let pattern = pattern.strip_prefix('^')?.replace(r"\/", "/");
    let begin = pattern.strip_suffix('$').unwrap_or(&pattern).strip_suffix("(.*)")?;
    let host = begin.find("://")? + 3;
    match begin[host..].replace("[^/", "[^-").find('/') {
        Some(at) => Some((begin[..host + at].to_owned(), Some(text_of(&begin[host + at..])?))),
        None => Some((format!("{begin}(.*)"), None)),
    }
}

/// The paths that are redirected on a host, and where to. `Some(None)`: none is.
fn redirected(
    origin: &str,
    path: Option<&str>,
    replacement: &str,
    scheme: &str,
    host: &str,
) -> Option<Option<(Path, Map)>> {
    let regex = Regex::new(&format!("^(?:{origin})$")).ok()?;
    let url = format!("{scheme}://{host}");
    let Some(captures) = regex.captures(&url) else { return Some(None) };
    let text_of_group = |group: Option<regex::Match<'_>>| group.map_or("", |group| group.as_str()).to_owned();
    let mut groups: Vec<String> = captures.iter().map(text_of_group).collect();
    match (path, groups.last_mut()) {
        (None, Some(last)) => *last += "/{rest}",
        _ => groups.push("{rest}".to_owned()),
    }
    let path = path.unwrap_or("/");
    let (to, same) = (expanded(replacement, &groups)?, format!("{path}{{rest}}"));
    if to == format!("{url}{same}") {
        return Some(None);
    }
    let (to_scheme, to) = to.split_once("://")?;
    let (to_host, to_path) = to.split_at(to.find('/')?);
    let is_own = to_host == host;
    let is_host = is_own || is_host(to_host) && !to_host.contains(ANY_HOST);
    if !is_host
        || !matches!(to_scheme, "http" | "https")
        || to_path.contains(['?', '#'])
        || to_path.contains(ANY_HOST)
    {
        return None;
    }
    let mut redirect = Map::new().with("scheme", to_scheme);
    redirect.extend_some("host", (!is_own).then_some(to_host));
    redirect.extend_some("path", (to_path != same).then_some(to_path));
    redirect.extend_some("query", (!to_path.contains("{rest}")).then_some("drop"));
    let found = match to_path == same {
        true => Path::prefix(path),
        false => Path::regex(&format!("^{}(?P<rest>.*)$", regex_text(path)), false),
    };
    Some(Some((found.ok()?, redirect)))
}

/// The replacement with these texts in place of `$1` and `${1}` of Go.
fn expanded(replacement: &str, groups: &[String]) -> Option<String> {
    let mut parts = replacement.split('$');
    let mut text = literal(parts.next()?);
    for part in parts {
        let (name, after) = match part.strip_prefix('{') {
            Some(braced) => braced.split_once('}')?,
            None => part
                .split_at(part.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(part.len())),
        };
        text += groups.get(name.parse::<usize>().ok().filter(|nth| *nth > 0)?)?;
        text += &literal(after);
    }
    Some(text)
}
