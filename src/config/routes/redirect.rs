//! The redirect of a route.

use std::fmt;

use http::StatusCode;
use serde::{Serialize, Serializer, ser::SerializeMap};
use tollgate_derive::Settings;

use crate::config::{
    reader::Cursor,
    routes::placeholder_text::TextReader,
    settings::{Read, Settings as _},
    upstreams::endpoint::endpoint_url,
    value::{
        Invalid, choice, count, host_pattern,
        patterns::{HostPattern, PathPattern},
        placeholders::PlaceholderText,
    },
};

/// The redirect that a route gives to every request. The parts that it does not set are those of the request.
#[derive(Debug, Clone, PartialEq)]
pub struct Redirect {
    /// 301, 302, 303, 307 or 308.
    pub status: StatusCode,
    /// `http` or `https`.
    pub scheme: Option<&'static str>,
    /// Host and port. Without one, a scheme alone keeps the host, and drops its port.
    pub authority: Option<String>,
    /// `None` only with a scheme or an authority.
    pub path: Option<PlaceholderText>,
    /// Comes before that of the request.
    pub query: Option<String>,
    pub keeps_query: bool,
    pub fragment: Option<String>,
}

impl Redirect {
    /// Whether it must not be shown.
    pub fn is_secret(&self) -> bool {
        self.path.as_ref().is_some_and(|path| path.is_secret)
    }

    /// As operators see it.
    pub fn shown(&self) -> String {
        if self.is_secret() { "***".to_owned() } else { self.to_string() }
    }
}

impl fmt::Display for Redirect {
    /// `https://new.example.com/{rest}`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.scheme, &self.authority) {
            (Some(scheme), authority) => {
                write!(f, "{scheme}://{}", authority.as_deref().unwrap_or("{host}"))?;
            }
            (None, Some(authority)) => write!(f, "//{authority}")?,
            (None, None) => {}
        }
        f.write_str(self.path.as_ref().map_or("/…", |path| &path.written))?;
        if let Some(query) = &self.query {
            write!(f, "?{query}")?;
        }
        match &self.fragment {
            Some(fragment) => write!(f, "#{fragment}"),
            None => Ok(()),
        }
    }
}

impl Serialize for Redirect {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(3))?;
        map.serialize_entry("to", &self.to_string())?;
        map.serialize_entry("status", &self.status.as_u16())?;
        map.serialize_entry("query", if self.keeps_query { "keep" } else { "drop" })?;
        map.end()
    }
}

/// A redirect: a whole URL, or the parts of the request's URL that change.
#[derive(Settings)]
#[settings(written, page = "routes.md", foreign = "routes[].redirect")]
#[settings(rules(
    AtLeastOne(&["to", "scheme", "host", "port", "path"]),
    AtMostOne(&["to", "scheme"]),
    AtMostOne(&["to", "host"]),
    AtMostOne(&["to", "port"]),
    AtMostOne(&["to", "path"]),
    With("port", "host")
))]
pub(in crate::config) struct RedirectSettings<'t> {
    /// The whole URL. Its path may have placeholders.
    #[setting(text = REDIRECT_URL, unset = "the request's URL, with the parts that are set")]
    #[setting(example = "\"https://new.example.com/{rest}\"")]
    to: Option<Cursor<'t>>,
    /// The new scheme.
    #[setting(word("https", "http"), unset = "the request's", example = "https")]
    scheme: Option<Cursor<'t>>,
    /// The new host.
    #[setting(text = REDIRECT_HOST, unset = "the request's", example = "new.example.com")]
    host: Option<Cursor<'t>>,
    /// The new port of `host`.
    #[setting(
        count = "1..=65535",
        unset = "the scheme's",
        example = "8443",
        beside = "host: new.example.com"
    )]
    port: Option<Cursor<'t>>,
    /// The new path. It may have placeholders such as `{rest}`.
    #[setting(text = PLACEHOLDERS, unset = "the request's", example = "\"/new/{rest}\"")]
    path: Option<Cursor<'t>>,
    /// The status: permanent (301, 308) or temporary (302, 307). With 307 and 308, clients keep the method; with 303,
    /// they continue with GET.
    #[setting(word("301", "302", "303", "307", "308"), parse = status, default = "308", example = "302")]
    #[setting(beside = "path: /new")]
    status: StatusCode,
    /// Whether the query of the request is kept.
    #[setting(word("keep", "drop"), parse = keeps_query, default = "keep", example = "drop")]
    #[setting(beside = "path: /new")]
    query: bool,
}

impl Redirect {
    /// Reads the redirect of a route with this `path`.
    pub(in crate::config) fn read(
        value: Cursor<'_>,
        path: &PathPattern,
        reader: TextReader<'_>,
    ) -> Option<Self> {
        let line = match value.scalar() {
            Some(text) if text.starts_with('/') => "redirect: { path: VALUE }",
            Some("https" | "http") => "redirect: { scheme: VALUE }",
            _ => "redirect: { to: VALUE }",
        };
        let mut mapping = value.mapping_such_as(line)?.of(RedirectSettings::mapping());
        let written = RedirectSettings::fields(&mut mapping)?;
        let parts = ["scheme", "host", "port", "path"];
        let target = match written.to {
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
                let target = part_by_part(&written, reader);
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
        Some(Self { status: written.status, keeps_query: written.query, ..target? })
    }
}

fn status(text: &str) -> Result<StatusCode, Invalid> {
    let expected = "301 or 308 (for good), 302 or 307 (for now), or 303 (to be read with GET); 307 and 308 keep the method";
    match text.parse::<u16>() {
        Ok(status @ (301 | 302 | 303 | 307 | 308)) => StatusCode::from_u16(status).ok(),
        _ => None,
    }
    .ok_or_else(|| Invalid::new("is not the status of a redirect").expected(expected))
}

fn keeps_query(text: &str) -> Result<bool, Invalid> {
    choice(&[("keep", true), ("drop", false)])(text)
}

/// `scheme`, `host`, `port` and `path`.
fn part_by_part(written: &RedirectSettings<'_>, reader: TextReader<'_>) -> Option<Redirect> {
    let RedirectSettings { scheme, host, port, path, .. } = written;
    let scheme = scheme.map(|value| value.parse(choice(&[("https", "https"), ("http", "http")])));
    let host = host.map(|value| (value, value.parse(plain_host)));
    let port = port.map(|value| (value, value.parse(count(1..=65_535))));
    let path = path.map(|value| reader.path(value));
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
