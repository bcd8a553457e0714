//! The endpoints of an upstream: a list, or a file that has it.

use std::{collections::HashSet, fmt, path::PathBuf};

use http::{
    Uri,
    uri::{Authority, Scheme},
};
use serde::{Serialize, Serializer};
use tollgate_derive::Settings;
use url::{Origin, Url};

use crate::config::{
    Purpose,
    interpolate::ImpatientLookup,
    reader::{Cursor, ReadContext},
    redact::Secrets,
    settings::{Place, Read, Settings},
    upstreams::settings::UpstreamSettings,
    value::{
        Invalid, foreign_value,
        network::{is_domain, is_host},
        server_name,
    },
    yaml,
};

/// One address of an upstream.
#[derive(Debug, Clone, PartialEq)]
pub struct Endpoint {
    /// Scheme `http` or `https`, an authority, no path: the same for every spelling of the same place.
    pub url: Uri,
    /// As it was written.
    pub authority: Authority,
    /// 80 by default, 443 with `https`.
    pub port: u16,
    /// At least 1.
    pub weight: u32,
    /// Whether it takes no new requests.
    pub drain: bool,
}

/// A file that lists the endpoints of an upstream.
#[derive(Clone)]
pub struct EndpointsFile {
    pub path: PathBuf,
    /// Reads its contents: a list as in the configuration.
    pub read: fn(&[u8]) -> Result<Vec<Endpoint>, String>,
}

impl PartialEq for EndpointsFile {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl fmt::Debug for EndpointsFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.fmt(f)
    }
}

impl Serialize for EndpointsFile {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.path.serialize(to)
    }
}

impl Endpoint {
    /// Whether Tollgate connects to it with TLS.
    pub fn is_https(&self) -> bool {
        self.url.scheme() == Some(&Scheme::HTTPS)
    }

    /// `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        if self.is_https() { "https" } else { "http" }
    }

    /// Its name for operators: `http://127.0.0.1:3000`.
    pub fn base_url(&self) -> String {
        self.url.to_string().trim_end_matches('/').to_owned()
    }

    /// Its host: a name, or an address without brackets.
    pub fn host(&self) -> &str {
        self.authority.host().trim_start_matches('[').trim_end_matches(']')
    }
}

/// The URL by which an endpoint is known, the same for each spelling: `http://orders` for `HTTP://Orders:80/`.
pub fn endpoint_name(url: &str) -> String {
    let origin = Url::parse(url).map(|url| url.origin()).ok().filter(Origin::is_tuple);
    origin
        .map_or_else(|| url.trim_end_matches('/').to_ascii_lowercase(), |origin| origin.ascii_serialization())
}

/// `endpoints` of an upstream.
pub(in crate::config) enum Endpoints {
    /// Without the wrong ones, which were reported.
    Listed(Vec<Endpoint>),
    /// The contents of the file are right.
    File(EndpointsFile),
}

/// A file that lists the endpoints.
#[derive(Settings)]
#[settings(written, page = "upstreams.md")]
pub(in crate::config) struct EndpointsFileSettings {
    /// The path of the file: a list of endpoints in YAML or JSON, as `endpoints` itself would be. It is read again when
    /// it changes.
    #[setting(file, read = EndpointsFile::open, example = "endpoints.yaml", missing = "such as `file: endpoints.yaml`")]
    file: EndpointsFile,
}

/// An endpoint with settings of its own.
#[derive(Settings)]
#[settings(written, page = "upstreams.md", foreign = "upstreams.*.endpoints[]")]
#[settings(sample = "url: \"http://127.0.0.1:3002\"")]
pub(in crate::config) struct EndpointSettings {
    /// `http://HOST:PORT` or `https://HOST:PORT`. Without a port, 80 or 443.
    #[setting(text = ENDPOINT, parse = endpoint_url, example = "http://127.0.0.1:3001")]
    #[setting(missing = "such as `url: http://127.0.0.1:3000`")]
    url: Endpoint,
    /// An endpoint with weight 2 gets twice as many requests as one with weight 1.
    #[setting(count = "1..=1000", default = "1", example = "2")]
    weight: u32,
    /// Whether the endpoint is drained: it gets no new requests.
    #[setting(default = "false", example = "true")]
    drain: bool,
}

impl Endpoints {
    pub(in crate::config) fn read(value: Cursor<'_>) -> Option<Self> {
        let is_file =
            value.is_mapping() && value.mapping().is_some_and(|mapping| mapping.has_or_misspells("file"));
        match is_file {
            true => EndpointsFileSettings::read(value).map(|settings| Self::File(settings.file)),
            false => Some(Self::Listed(listed(value))),
        }
    }
}

impl EndpointsFile {
    fn open(value: Cursor<'_>) -> Option<Self> {
        let read = |bytes: &[u8]| {
            read_file(bytes)
                .map_err(|error| Invalid::new(format!("lists no endpoints that can be used: {error}")))
        };
        let (path, _) = value.file(read)?;
        Some(Self { path, read: read_file })
    }
}

fn listed(value: Cursor<'_>) -> Vec<Endpoint> {
    if value.is_empty_list() {
        value.report("an upstream needs an endpoint", "such as [http://127.0.0.1:3000]".to_owned());
    }
    let mut known = HashSet::new();
    let endpoints = value.items(|item| {
        let endpoint = endpoint(item)?;
        // Another spelling of the same place is the same endpoint.
        if !known.insert(endpoint.url.clone()) {
            let word = item.scalar().map_or("this endpoint".to_owned(), |word| format!("`{word}`"));
            let help = "remove it; an endpoint that shall get more requests has a weight: `{ url: http://HOST:PORT, weight: 2 }`";
            item.report(format!("{word} is in this list twice"), help.to_owned());
            return None;
        }
        Some(endpoint)
    });
    if !endpoints.is_empty() && endpoints.iter().all(|endpoint| endpoint.drain) {
        let message = "every endpoint is drained, so each request to this upstream gets 503";
        value.warn(message, "remove `drain: true` from an endpoint".to_owned());
    }
    endpoints
}

fn endpoint(item: Cursor<'_>) -> Option<Endpoint> {
    if item.scalar().is_some() {
        return item.parse(endpoint_url);
    }
    let EndpointSettings { url, weight, drain } = EndpointSettings::read(item)?;
    Some(Endpoint { weight, drain, ..url })
}

/// Reads a file that is a list of endpoints. JSON is YAML, too.
///
/// # Errors
/// The first problem in one line, and the number of the others.
fn read_file(bytes: &[u8]) -> Result<Vec<Endpoint>, String> {
    let text =
        std::str::from_utf8(bytes).map_err(|error| format!("byte {} is not UTF-8", error.valid_up_to()))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let tree = yaml::parse(text).map_err(|problem| problem.in_one_line())?;
    let lookup = ImpatientLookup::default();
    let place = Place::of_setting(UpstreamSettings::mapping(), "endpoints");
    let secrets = Secrets::of_tree(text, &tree, place);
    let context = ReadContext::new(&lookup, Purpose::Reload, &secrets, foreign_value);
    for duplicate in tree.duplicates {
        context.report(duplicate);
    }
    let root = Cursor::root(&tree.root, &context);
    if root.is_null() {
        return Err("it is empty".to_owned());
    }
    let endpoints = listed(root);
    let mut problems = context.into_findings().problems;
    problems.sort();
    match problems.split_first() {
        None => Ok(endpoints),
        Some((first, [])) => Err(first.in_one_line()),
        Some((first, others)) => Err(format!("{} (and {} more)", first.in_one_line(), others.len())),
    }
}

const EXPECTED: &str = "write http://HOST:PORT or https://HOST:PORT, such as http://127.0.0.1:3000";

/// The error for an endpoint without a scheme.
fn without_scheme(text: &str) -> Invalid {
    let invalid = Invalid::new("is not a URL").expected(EXPECTED);
    let port = text.strip_prefix(':').unwrap_or(text);
    match () {
        () if text.starts_with('/') => invalid,
        () if port.parse::<u16>().is_ok() => {
            invalid.suggestion(format!("did you mean `http://127.0.0.1:{port}`?"))
        }
        () => invalid.suggestion(format!("did you mean `http://{text}`?")),
    }
}

/// Reads `http://HOST[:PORT]` or `https://HOST[:PORT]`, as an endpoint of weight 1.
pub(in crate::config) fn endpoint_url(text: &str) -> Result<Endpoint, Invalid> {
    let invalid = |reason: &'static str| Invalid::new(reason).expected(EXPECTED);
    if text.starts_with("unix:") || text.starts_with("http://unix:") {
        return Err(Invalid::new("is a Unix socket, but upstreams are reached over TCP")
            .expected("let the service listen on an address, such as http://127.0.0.1:3000"));
    }
    if !text.contains("://") {
        return Err(without_scheme(text));
    }
    let url: Uri = text.parse().map_err(|_| invalid("is not a URL"))?;
    let other_scheme = || invalid("has a scheme other than http and https");
    let suggested = |scheme: &str| {
        let rest = text.split_once("://").map_or("", |(_, rest)| rest);
        other_scheme().suggestion(format!("did you mean `{scheme}://{rest}`?"))
    };
    let is_https = match url.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        Some("tcp" | "h2c" | "h2" | "ws" | "grpc") => return Err(suggested("http")),
        Some("tls" | "ssl" | "wss" | "grpcs") => return Err(suggested("https")),
        _ => return Err(other_scheme()),
    };
    let authority = url.authority().ok_or_else(|| invalid("has no host"))?.clone();
    if url.path() != "/" || url.query().is_some() || text.contains('#') {
        return Err(invalid("has more than a host and a port: the path always comes from the request")
            .suggestion(format!(
                "did you mean `{}://{authority}`?",
                if is_https { "https" } else { "http" }
            )));
    }
    if authority.as_str().contains('@') {
        return Err(invalid("has a user name, which is not sent to upstreams"));
    }
    let host = authority.host();
    // A dot at the end says that a name is complete: no search domain is tried.
    let is_complete_name = |name: &str| is_domain(name) && name.bytes().any(|b| b.is_ascii_alphabetic());
    if !is_host(host) && !host.strip_suffix('.').is_some_and(is_complete_name) {
        return Err(invalid("has a host that is neither a name nor an address"));
    }
    if is_https && server_name(host.trim_matches(['[', ']'])).is_err() {
        return Err(invalid("has a host that no certificate can be for"));
    }
    let port = match authority.as_str().get(host.len()..).unwrap_or_default() {
        "" if is_https => 443,
        "" => 80,
        port => match port.strip_prefix(':').map(str::parse::<u16>) {
            Some(Ok(port)) if port > 0 => port,
            _ => return Err(invalid("has an invalid port")),
        },
    };
    let url = endpoint_name(text).parse().map_err(|_| invalid("is not a URL"))?;
    Ok(Endpoint { url, authority, port, weight: 1, drain: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(String, u32)>, String> {
        let endpoints = read_file(text.as_bytes())?;
        Ok(endpoints.into_iter().map(|endpoint| (endpoint.url.to_string(), endpoint.weight)).collect())
    }

    #[test]
    fn a_file_lists_endpoints_as_a_configuration_does() {
        let expected = Ok(vec![("http://10.0.0.1:3000/".to_owned(), 1), ("https://b/".to_owned(), 2)]);
        assert_eq!(
            read("# made by a script\n- http://10.0.0.1:3000\n- { url: https://b, weight: 2 }\n"),
            expected
        );
        assert_eq!(read(r#"["http://10.0.0.1:3000", {"url": "https://b", "weight": 2}]"#), expected);
    }

    #[test]
    fn errors_in_the_file_have_their_line() {
        let wrong = [
            ("", "it is empty"),
            ("[]", "line 1: an upstream needs an endpoint"),
            ("- http://a\n- ftp://b\n", "line 2: `ftp://b` "),
            ("- http://a\n- { url: http://b, wieght: 2 }\n- x y\n", "line 2: "),
            ("- http://a\n- [", "line "),
            ("upstreams: {}", "line 1: expected a list"),
            (
                "- http://a\n- { url: http://A:80, weight: 2 }\n",
                "line 2: this endpoint is in this list twice",
            ),
        ];
        for (text, error) in wrong {
            let told = read(text).unwrap_err();
            assert!(told.starts_with(error), "{text}: {told}");
        }
        assert!(
            read("- http://a\n- { url: http://b, wieght: 2 }\n- x y\n")
                .unwrap_err()
                .ends_with("(and 1 more)")
        );
    }

    #[test]
    fn endpoints_are_a_host_and_a_port() {
        for (text, authority, port) in [
            ("http://127.0.0.1:3000", "127.0.0.1:3000", 3000),
            ("http://orders.internal", "orders.internal", 80),
            ("http://orders_1:81/", "orders_1:81", 81),
            ("HTTP://Orders:81", "Orders:81", 81),
            ("http://[::1]:3000", "[::1]:3000", 3000),
            ("http://[::1]", "[::1]", 80),
            ("https://orders_1.internal", "orders_1.internal", 443),
            ("https://[::1]:8443", "[::1]:8443", 8443),
            ("HTTPS://10.0.0.7", "10.0.0.7", 443),
        ] {
            let endpoint = endpoint_url(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
            assert_eq!((endpoint.authority.as_str(), endpoint.port), (authority, port), "{text}");
            assert_eq!(endpoint.url.path(), "/");
        }
    }

    #[test]
    fn an_endpoint_has_one_name_however_it_is_spelled() {
        for (text, name) in [
            ("HTTP://Orders:80/", "http://orders"),
            ("http://orders:443", "http://orders:443"),
            ("https://Orders.Example:443", "https://orders.example"),
            ("http://10.0.0.7:080", "http://10.0.0.7"),
            ("http://Orders.1:81", "http://orders.1:81"),
            ("http://[0:0:0:0:0:0:0:1]:3000", "http://[::1]:3000"),
            ("https://[2001:DB8::1]", "https://[2001:db8::1]"),
        ] {
            assert_eq!(endpoint_url(text).unwrap().base_url(), name, "{text}");
        }
    }

    #[test]
    fn other_endpoints_are_refused() {
        for (text, reason) in [
            ("https://-orders", "certificate"),
            ("ftp://orders", "scheme"),
            ("orders:80", "not a URL"),
            ("127.0.0.1:3000", "not a URL"),
            ("http://", "not a URL"),
            ("http://a b", "not a URL"),
            ("http://orders/v1", "path"),
            ("http://orders?x", "path"),
            ("http://orders#x", "path"),
            ("http://user:word@orders", "user name"),
            ("http://orders:0", "port"),
            ("http://orders:99999", ""),
            ("http://orders:", "port"),
            ("http://:80", ""),
            ("http://[::1", ""),
            ("http://[x]:80", ""),
            ("http://[::1].example:80", "port"),
            ("http://127.0.0.999", "neither"),
            ("http://a..b", "neither"),
            ("http://a%20b", ""),
        ] {
            let error = endpoint_url(text).unwrap_err();
            assert!(error.reason.contains(reason), "{text}: {error:?}");
        }
        let suggestion = endpoint_url("localhost:3000").unwrap_err().help(false).unwrap();
        assert_eq!(suggestion, "did you mean `http://localhost:3000`?");
        let suggestion = endpoint_url("wss://orders:8443").unwrap_err().help(false).unwrap();
        assert_eq!(suggestion, "did you mean `https://orders:8443`?");
    }
}
