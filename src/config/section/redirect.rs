//! `redirect` of a route: where its clients are sent.

use http::StatusCode;

use super::{message_changes::TextReader, routes::DraftRoute, unreachable_routes::covers_path};
use crate::config::{
    model::{
        HostPattern, PathCase, PathMatching, PathPattern, PlaceholderText, Redirect, Route, RouteAction,
        TextPart, TrailingSlash,
    },
    reader::{Cursor, MappingCursor},
    settings,
    value::{Invalid, choice, count, endpoint_url, host_pattern},
};

/// Reads the redirect of a route with this `path`.
pub(super) fn redirect(value: Cursor<'_>, path: &PathPattern, reader: TextReader<'_>) -> Option<Redirect> {
    let line = match value.scalar() {
        Some(text) if text.starts_with('/') => "redirect: { path: VALUE }",
        Some("https" | "http") => "redirect: { scheme: VALUE }",
        _ => "redirect: { to: VALUE }",
    };
    let mut mapping = value.mapping_such_as(line)?.of(&settings::REDIRECT).knowing("routes[].redirect");
    let to = mapping.take("to");
    let parts = ["scheme", "host", "port", "path"];
    let status = mapping.take("status").map(|value| value.parse(status));
    let keeps_query = mapping.parse_or("query", true, choice(&[("keep", true), ("drop", false)]));
    let target = match to {
        Some(to) => {
            for (part, location) in parts.map(|part| (part, mapping.key_location(part))) {
                if let Some(location) = location {
                    let help = format!("write the whole URL in `to`, or `{part}` without `to`");
                    mapping.report_at(location, format!("`to` already says the {part}"), help);
                }
            }
            url(to, path, reader)
        }
        None => {
            let target = part_by_part(&mut mapping, reader);
            let is_meant = parts.into_iter().chain(["to"]).any(|part| mapping.has_or_misspells(part));
            if !is_meant {
                let help =
                    "such as `redirect: { path: /new }` or `redirect: { to: https://new.example.com/ }`";
                mapping.report("this redirect leads nowhere", help.to_owned());
            }
            target.filter(|_| is_meant)
        }
    };
    mapping.finish();
    let status = status.unwrap_or(Some(StatusCode::PERMANENT_REDIRECT))?;
    Some(Redirect { status, keeps_query, ..target? })
}

fn status(text: &str) -> Result<StatusCode, Invalid> {
    let expected = "301 or 308 (for good), 302 or 307 (for now), or 303 (to be read with GET); 307 and 308 keep the method";
    match text.parse::<u16>() {
        Ok(status @ (301 | 302 | 303 | 307 | 308)) => StatusCode::from_u16(status).ok(),
        _ => None,
    }
    .ok_or_else(|| Invalid::new("is not the status of a redirect").expected(expected))
}

/// `scheme`, `host`, `port` and `path`.
fn part_by_part(mapping: &mut MappingCursor<'_>, reader: TextReader<'_>) -> Option<Redirect> {
    let scheme =
        mapping.take("scheme").map(|value| value.parse(choice(&[("https", "https"), ("http", "http")])));
    let host = mapping.take("host").map(|value| (value, value.parse(plain_host)));
    let port = mapping.take("port").map(|value| (value, value.parse(count(1..=65_535))));
    let path = mapping.take("path").map(|value| reader.path(value));
    let mut authority = match &host {
        Some((_, host)) => Some(host.clone()?),
        None => None,
    };
    if let Some((value, port)) = port {
        let port = port?;
        match &mut authority {
            Some(authority) => *authority += &format!(":{port}"),
            None => {
                value.report("`port` is set without a `host`", "add the host that has this port".to_owned());
                return None;
            }
        }
    }
    let scheme = match scheme {
        Some(scheme) => Some(scheme?),
        None => None,
    };
    let path = match path {
        Some(path) => Some(path?),
        None => None,
    };
    Some(target(scheme, authority, path))
}

fn target(
    scheme: Option<&'static str>,
    authority: Option<String>,
    path: Option<PlaceholderText>,
) -> Redirect {
    Redirect {
        status: StatusCode::PERMANENT_REDIRECT,
        scheme,
        authority,
        path,
        query: None,
        keeps_query: true,
        fragment: None,
    }
}

fn plain_host(text: &str) -> Result<String, Invalid> {
    if text.contains(['{', '$']) {
        return Err(Invalid::new("has a placeholder in it, by which a client could choose where it is sent")
            .expected("leave `host` out to keep the host of the request"));
    }
    match host_pattern(text)? {
        HostPattern::Exact(host) => Ok(host),
        HostPattern::Suffix(_) => Err(Invalid::new("is no single host").expected("such as new.example.com")),
    }
}

/// `https://new.example.com/{rest}?from=old#top`
fn url(value: Cursor<'_>, route: &PathPattern, reader: TextReader<'_>) -> Option<Redirect> {
    let is_whole = std::cell::Cell::new(true);
    let redirect = reader.read(value, |written| {
        let invalid = |reason: &'static str| {
            Invalid::new(reason).expected("write a URL such as https://new.example.com/{rest}")
        };
        if written.starts_with('/') && !written.starts_with("//") {
            let path = format!("did you mean `path: {written}`?");
            return Err(invalid("has no host").suggestion(path));
        }
        let (scheme, rest) = match written.split_once("://") {
            Some(("https", rest)) => ("https", rest),
            Some(("http", rest)) => ("http", rest),
            Some(_) => return Err(invalid("is not a URL of http or https")),
            None => {
                let meant = format!("did you mean `to: https://{}`?", written.trim_start_matches('/'));
                return Err(invalid("has no scheme").suggestion(meant));
            }
        };
        let (rest, fragment) = match rest.split_once('#') {
            Some((rest, fragment)) => (rest, Some(fragment)),
            None => (rest, None),
        };
        let (rest, query) = match rest.split_once('?') {
            Some((rest, query)) => (rest, Some(query)),
            None => (rest, None),
        };
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        if authority.contains(['{', '$']) {
            let keeps_host =
                ["{host}", "$host", "$http_host", "$server_name", "{hostport}"].contains(&authority);
            let invalid = invalid(
                "has a placeholder in its host, by which a client could choose where it is sent",
            )
            .expected(
                "write the host, or leave it out: `redirect: { scheme: https }` keeps that of the request",
            );
            return Err(match keeps_host {
                true => invalid
                    .suggestion(format!("`redirect: {{ scheme: {scheme} }}` keeps the host of the request")),
                false => invalid,
            });
        }
        // An endpoint is a host and a port, too.
        if endpoint_url(&format!("{scheme}://{authority}")).is_err() {
            return Err(invalid("names no host"));
        }
        for part in [query, fragment].into_iter().flatten() {
            if part.contains(['{', '}', '$']) || !part.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(invalid(
                    "has a query or a fragment with placeholders or characters that must be encoded",
                )
                .expected("placeholders stand in the path alone; the query of the request is kept anyway"));
            }
        }
        is_whole.set(!path.is_empty());
        let mut text = reader.placeholders.path(if path.is_empty() { "/" } else { path })?;
        text.is_secret = value.is_hidden();
        Ok(Redirect {
            query: query.map(str::to_owned),
            fragment: fragment.map(str::to_owned),
            ..target(Some(scheme), Some(authority.to_ascii_lowercase()), Some(text))
        })
    })?;
    if !is_whole.get() && matches!(route, PathPattern::Prefix(_)) {
        let written = value.scalar().unwrap_or_default();
        let help = format!(
            "to keep the path of the request, write `{written}/{{rest}}`, or set `scheme` and `host` instead of `to`"
        );
        value.warn(format!("every request is sent to the path / of {written}"), help);
    }
    Some(redirect)
}

const STRICT: PathMatching = PathMatching { case: PathCase::Sensitive, trailing_slash: TrailingSlash::Exact };

/// Warns about redirects to paths that the route itself matches again, without end.
pub(super) fn warn_of_loops(drafts: &[DraftRoute<'_>]) {
    for (index, draft) in drafts.iter().enumerate() {
        let RouteAction::Redirect(redirect) = &draft.route.action else { continue };
        let (None, None, Some(path)) = (redirect.scheme, &redirect.authority, &redirect.path) else {
            continue;
        };
        let example = PathPattern::Exact(example(path));
        let leads_to = |route: &Route| covers_path((&route.path, route.matching), (&example, STRICT));
        // Hardly any leads to itself, so that the others are rarely asked.
        let is_loop = redirect.status != StatusCode::SEE_OTHER
            && leads_to(&draft.route)
            && !drafts[..index].iter().any(|earlier| leads_to(&earlier.route));
        if is_loop {
            let help = "redirect to a path of another route, and put that route before this one".to_owned();
            draft.cursor.warn(
                format!("this route redirects to itself without end: it also matches `{}`", redirect.shown()),
                help,
            );
        }
    }
}

/// A path that the redirect may lead to.
fn example(path: &PlaceholderText) -> String {
    let parts = path.parts.iter().map(|part| match part {
        TextPart::Literal(text) => text.as_str(),
        TextPart::Placeholder(_) => "x",
    });
    parts.collect()
}
