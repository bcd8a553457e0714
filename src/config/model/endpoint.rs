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
    section::UpstreamSettings,
    settings::{Place, Read, Settings},
    value::{Invalid, endpoint_url, foreign_value},
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
    let secrets =
        Secrets::of_tree(text, &tree.root, Place::of_setting(UpstreamSettings::mapping(), "endpoints"));
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
    fn what_is_wrong_is_told_with_its_line() {
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
}
