//! Middlewares that redirect.

use regex::bytes::RegexBuilder;

use super::{
    Traefik,
    middlewares::{Context, Middleware},
    paths::{named_groups, template},
};
use crate::convert::{
    condition::{Condition, Host, Test},
    draft::literal,
    path::Path,
    site::{Action, Effect, Rule},
    yaml::Map,
};

/// 308 or 307, which keep the method.
fn status(middleware: &Middleware<'_>) -> u64 {
    let fields = &middleware.fields;
    // Both settings are read.
    let is_permanent = fields.is_true("permanent");
    if fields.is_true("forcePermanentRedirect") || is_permanent { 308 } else { 307 }
}

/// What a redirect to another scheme is for, where a proxy in front may say that a request came by HTTPS.
pub(super) const PROTO: &str = "routes do not compare the `X-Forwarded-Proto` of proxies in front";

/// A redirect of all requests.
pub(super) struct Redirection {
    pub(super) scheme: String,
    pub(super) port: String,
    pub(super) status: u64,
}

impl<'d> Traefik<'d> {
    pub(super) fn redirect_scheme(
        &self,
        middleware: &Middleware<'d>,
        context: &Context<'_, 'd>,
    ) -> Vec<Rule> {
        let text = |key: &str| middleware.fields.text(key).unwrap_or_default().to_owned();
        let status = status(middleware);
        self.to_scheme(
            middleware,
            context,
            &Redirection { scheme: text("scheme"), port: text("port"), status },
        )
    }

    pub(super) fn to_scheme(
        &self,
        middleware: &Middleware<'d>,
        context: &Context<'_, 'd>,
        redirection: &Redirection,
    ) -> Vec<Rule> {
        let Redirection { scheme, port, status } = redirection;
        let is_usual =
            matches!((scheme.as_str(), port.as_str()), (_, "") | ("https", "443") | ("http", "80"));
        let mut redirect = Map::new().with("scheme", scheme.as_str()).with("status", *status);
        let act = |redirect: &Map| Effect::Act(Action::Redirect(redirect.clone()));
        match (is_usual, (scheme == "https") == context.is_tls, port.parse::<u64>()) {
            _ if !matches!(scheme.as_str(), "http" | "https") => {
                vec![middleware.close("Tollgate redirects to http and https")]
            }
            (true, true, _) => Vec::new(),
            (false, true, _) => vec![middleware.close("it redirects to another port of the same scheme")],
            (false, false, Err(_)) => vec![middleware.close(format!("`{port}` is no port"))],
            (_, false, port) => {
                let mut rules = Vec::new();
                if let Some(port) = port.ok().filter(|_| !is_usual) {
                    for host in &context.router.hosts {
                        let redirect = redirect.clone().with("host", host.as_str()).with("port", port);
                        let when = Condition::host(Host::Exact(host.clone()));
                        rules.push(middleware.rule(when, act(&redirect)));
                    }
                    redirect.set("port", port);
                }
                rules.push(middleware.always(act(&redirect)));
                if !self.trusted.is_empty() || context.entry_point.is_insecure {
                    let doubted = |when: Condition| when.and(Condition::unknown(PROTO));
                    rules.iter_mut().for_each(|rule| rule.when = doubted(rule.when.clone()));
                }
                rules
            }
        }
    }
}

/// `redirectRegex` compares the whole URL. Where its host is one that the router or the expression names, or any, what
/// the expression does to the path is known.
pub(super) fn redirect_regex(middleware: &Middleware<'_>, context: &Context<'_, '_>) -> Vec<Rule> {
    let pattern = middleware.fields.text("regex").unwrap_or_default();
    let replacement = middleware.fields.text("replacement").unwrap_or_default();
    let status = status(middleware);
    let scheme = if context.is_tls { "https" } else { "http" };
    if matches!(pattern.trim_start_matches('^').trim_end_matches('$'), ".*" | "(.*)" | ".+" | "(.+)")
        && let Some(Some(To::Url(to))) = target(replacement, "http://", "")
    {
        let redirect = Map::new().with("to", to).with("query", "drop").with("status", status);
        return vec![middleware.always(Effect::Act(Action::Redirect(redirect)))];
    }
    let Some((origin, path)) = split(pattern) else {
        return vec![in_doubt(middleware, &[], pattern, replacement)];
    };
    let host = origin.rsplit("://").next().unwrap_or_default().replace("\\.", ".");
    let named =
        Some(host).filter(|host| host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.')));
    let hosts: Vec<String> = match is_of_any_host(&origin) {
        true => vec![ANY_HOST.to_owned()],
        false => context.router.hosts.iter().cloned().chain(named.clone()).collect(),
    };
    let mut rules = Vec::new();
    for host in &hosts {
        let here = match host.as_str() {
            ANY_HOST => Condition::ALWAYS,
            host => Condition::host(Host::Exact(host.to_owned())),
        };
        match redirected(&origin, &path, replacement, scheme, host) {
            Some(None) => {}
            Some(Some((path, redirect, is_exact))) => {
                let mut when = here.and(Condition::path(path));
                if !is_exact {
                    when = Condition::between(Condition::NEVER, when, "it compares the query, too");
                }
                rules.push(
                    middleware.rule(when, Effect::Act(Action::Redirect(redirect.with("status", status)))),
                );
            }
            None => {
                let doubt = in_doubt(middleware, &[], pattern, replacement);
                rules.push(Rule { when: here.and(doubt.when.clone()), ..doubt });
            }
        }
    }
    // An expression that names its host matches no other.
    if named.is_none() && !is_of_any_host(&origin) {
        rules.push(in_doubt(middleware, &hosts, pattern, replacement));
    }
    rules
}

/// Stands for every host.
const ANY_HOST: &str = "any-host-of-all.invalid";

/// Whether every host matches the part of an expression for scheme and host.
fn is_of_any_host(origin: &str) -> bool {
    let host = origin.split("://").nth(1).unwrap_or_default().replace(['(', ')'], "");
    let host = [":[0-9]+?", ":\\d+?"].iter().find_map(|port| host.strip_suffix(port)).unwrap_or(&host);
    matches!(host, "[^/]+" | "[^/]*" | "[^/:]+" | "[^:/]+" | ".*" | ".+")
}

/// The redirect of requests to other hosts than these.
fn in_doubt(middleware: &Middleware<'_>, hosts: &[String], pattern: &str, replacement: &str) -> Rule {
    let why = format!("from {pattern} to {replacement}: write it as a route with `redirect` before this one");
    let known = Test::Hosts(hosts.iter().cloned().map(Host::Exact).collect());
    let when = Condition::from(known).not().and(Condition::unknown(why));
    middleware.rule(when, Effect::Act(Action::Redirect(Map::new().with("scheme", "https"))))
}

/// The parts of an expression for scheme and host, and for the path. Where one wildcard is for both, the path is empty.
fn split(pattern: &str) -> Option<(String, String)> {
    let pattern = pattern.strip_prefix('^').unwrap_or(pattern).replace(r"\/", "/");
    let scheme = pattern.find("://").filter(|_| pattern.starts_with("http") || pattern.starts_with('('))?;
    let (mut depth, mut is_in_class, mut is_escaped) = (0_usize, false, false);
    for (at, c) in pattern.char_indices().skip_while(|(at, _)| *at < scheme + 3) {
        match c {
            _ if is_escaped => {
                is_escaped = false;
                continue;
            }
            '\\' => is_escaped = true,
            '[' => is_in_class = true,
            ']' => is_in_class = false,
            _ if is_in_class => {}
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1)?,
            '|' if depth == 0 => return None,
            '/' if depth == 0 => return Some((pattern[..at].to_owned(), pattern[at..].to_owned())),
            _ => {}
        }
    }
    Some((pattern, String::new()))
}

enum To {
    /// The same host and path.
    Scheme(String),
    /// The same host.
    Path(String, String),
    Url(String),
}

impl To {
    fn redirect(self, scheme: &str) -> Map {
        match self {
            Self::Scheme(scheme) => Map::new().with("scheme", scheme),
            Self::Path(other, path) if other == scheme => Map::new().with("path", path),
            Self::Path(scheme, path) => Map::new().with("scheme", scheme).with("path", path),
            Self::Url(url) => Map::new().with("to", url),
        }
    }
}

/// The requests to a host that are redirected, where to, and whether the query does not matter. `Some(None)`: none.
#[allow(clippy::type_complexity, reason = "it is used once")]
fn redirected(
    origin: &str,
    path: &str,
    replacement: &str,
    scheme: &str,
    host: &str,
) -> Option<Option<(Path, Map, bool)>> {
    let url = format!("{scheme}://{host}");
    let (origin, has_rest) = match path {
        // A wildcard at the end of the host takes the path with it.
        "" => {
            let wildcard =
                ["(.*)", "(.+)", "(.*)$", "(.+)$"].iter().find_map(|any| origin.strip_suffix(any))?;
            (format!("{wildcard}(.*)"), true)
        }
        _ => (origin.to_owned(), false),
    };
    let regex = RegexBuilder::new(&format!("^(?:{origin})$")).unicode(false).build().ok()?;
    let Some(captures) = regex.captures(url.as_bytes()) else { return Some(None) };
    let in_origin = captures.len() - 1;
    let mut text = template(replacement)?;
    for (nth, capture) in captures.iter().enumerate().skip(1) {
        let capture =
            capture.map_or_else(Default::default, |capture| String::from_utf8_lossy(capture.as_bytes()));
        let rest = if has_rest && nth == in_origin { "/{rest}" } else { "" };
        text = text.replace(&format!("{{g{nth}}}"), &format!("{}{rest}", literal(&capture)));
    }
    let map = |to: Option<To>| to.map(|to| to.redirect(scheme));
    if has_rest {
        return target(&text, &url, "/{rest}").map(|to| map(to).map(|to| (Path::Any, to, true)));
    }
    let groups = named_groups(&format!("{}{path}", "()".repeat(in_origin)))?;
    let groups = groups.split_once('/').map(|(_, rest)| format!("^/{rest}"))?;
    let is_whole = ["(.*)", ".*", "(.*)$", ".*$"].iter().any(|end| path.ends_with(end));
    let is_ended = path.ends_with('$') && !is_whole;
    let (groups, tail) = match is_whole || is_ended {
        true => (groups, ""),
        false => (groups + "(?P<tail>.*)$", "{tail}"),
    };
    // A text and a wildcard, which the replacement may have again.
    let same = path.strip_suffix("(.*)").map(|begin| format!("{begin}{{g{}}}", in_origin + 1));
    let path = Path::regex(&groups, false).ok()?;
    let to = target(&format!("{text}{tail}"), &url, &same.unwrap_or_default())?;
    Some(map(to).map(|to| (path, to, !is_ended)))
}

/// Where a redirect leads. `Some(None)`: to the same URL.
fn target(text: &str, url: &str, rest: &str) -> Option<Option<To>> {
    let (scheme, other) = text.split_once("://").filter(|(scheme, _)| matches!(*scheme, "http" | "https"))?;
    let (_, host) = url.split_once("://")?;
    if text == format!("{url}{rest}") {
        return Some(None);
    }
    if other == format!("{host}{rest}") {
        return Some(Some(To::Scheme(scheme.to_owned())));
    }
    let (authority, path) = other.split_at(other.find('/').unwrap_or(other.len()));
    if path.contains(['?', '#']) || path.contains(ANY_HOST) {
        return None;
    }
    if authority == host && !path.is_empty() {
        return Some(Some(To::Path(scheme.to_owned(), path.to_owned())));
    }
    let is_fit =
        !authority.is_empty() && !authority.contains(['{', '?', '$']) && !authority.contains(ANY_HOST);
    is_fit.then(|| Some(To::Url(text.to_owned())))
}
