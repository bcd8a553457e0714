//! The request target: the host and the path, parsed once.

use std::borrow::Cow;

use compact_str::CompactString;
use http::{HeaderMap, Method, StatusCode, Uri, Version, uri::PathAndQuery};
use percent_encoding::percent_encode_byte;

use super::{
    Host, Rejection,
    interpretation::PathInterpretation,
    normalization::{DotSegmentSpelling, has_dot_segment, remove_dot_segments, well_formed},
};
use crate::config::model::DotSegments;

/// The longest ambiguous path, in bytes: all interpretations are tried.
const MAX_AMBIGUOUS_PATH: usize = 2 * 1024;

static ROOT: PathAndQuery = PathAndQuery::from_static("/");

/// A well-formed request target.
#[derive(Debug, Clone)]
pub struct Target {
    host: Option<Host>,
    /// As received, without dot segments.
    path_and_query: PathAndQuery,
    /// With dot segments, if it has any. Boxed, since almost no target has.
    unresolved: Option<Box<PathAndQuery>>,
    /// The literal interpretation, if it differs from the path.
    literal: Option<CompactString>,
    /// The loosest interpretation, if it differs from the literal one.
    loosest: Option<CompactString>,
    pub(super) ambiguities: PathInterpretation,
    /// Whether the literal path may contain upper-case letters, including percent-encoded ones.
    pub(super) has_upper_case: bool,
}

impl Target {
    /// Parses the target of the request line together with Host (RFC 9112, 3.2 and 3.3). Allocates nothing for a plain
    /// path, as almost all are.
    ///
    /// # Errors
    /// 400 for a target or Host that is malformed or ambiguous, 404 for `OPTIONS *`, 414
    /// for a long path with ambiguities, 501 for CONNECT.
    pub fn parse(
        method: &Method,
        uri: &Uri,
        version: Version,
        headers: &HeaderMap,
    ) -> Result<Self, Rejection> {
        if method == Method::CONNECT {
            // RFC 9110, 9.1: no resource here could support this method.
            return Err(Rejection {
                status: StatusCode::NOT_IMPLEMENTED,
                detail: "This is a reverse proxy and does not open tunnels.",
            });
        }
        let host = Host::from_request(uri, version, headers)?;
        let path_and_query = match uri.path_and_query() {
            Some(path_and_query) if path_and_query.path() != "*" => path_and_query,
            // RFC 9110, 9.3.7: this is a request for the server as a whole, but there may be many upstreams.
            Some(_) if method == Method::OPTIONS => {
                return Err(Rejection::not_found(
                    "Requests for the server as a whole (*) are not supported.",
                ));
            }
            _ => return Err(Rejection::bad_request("The request target has no path.")),
        };
        // "http://host?query" has the path "/" (RFC 9110, 4.2.3), but does not contain it.
        let Spelling { is_plain, has_upper_case } = spelling(path_and_query.path());
        if is_plain && path_and_query.as_str().starts_with('/') {
            // A target with only a fragment, which is dropped, is an empty path that only displays as "/".
            let is_root = path_and_query.as_str().len() == 1;
            return Ok(Self {
                host,
                path_and_query: if is_root { ROOT.clone() } else { path_and_query.clone() },
                unresolved: None,
                literal: None,
                loosest: None,
                ambiguities: PathInterpretation::LITERAL,
                has_upper_case,
            });
        }
        // HTTP/2 has only the path form (RFC 9113, 8.3.1).
        if version == Version::HTTP_2 && !path_and_query.as_str().starts_with('/') {
            return Err(Rejection::bad_request("The path does not begin with a slash."));
        }
        Self::interpreted(host, path_and_query)
    }

    fn interpreted(host: Option<Host>, path_and_query: &PathAndQuery) -> Result<Self, Rejection> {
        let mut path = well_formed(path_and_query.path())?;
        let mut unresolved = None;
        if has_dot_segment(&path, DotSegmentSpelling::Any) {
            unresolved = Some(Box::new(with_path(path_and_query, &path)?));
            path = remove_dot_segments(&path, DotSegmentSpelling::Any).into();
        }
        let ambiguities = PathInterpretation::ambiguities(&path);
        if ambiguities != PathInterpretation::LITERAL && path.len() > MAX_AMBIGUOUS_PATH {
            return Err(Rejection {
                status: StatusCode::URI_TOO_LONG,
                detail: "The path is ambiguous and too long.",
            });
        }
        let literal = PathInterpretation::LITERAL.interpret(&path)?;
        let loosest = ambiguities.interpret(&path)?;
        Ok(Self {
            host,
            path_and_query: with_path(path_and_query, &path)?,
            unresolved,
            loosest: (loosest != literal).then(|| CompactString::from(loosest)),
            literal: (literal != path).then(|| CompactString::from(literal)),
            ambiguities,
            has_upper_case: true,
        })
    }

    /// `None` only where an HTTP/1.0 client names no host.
    pub fn host(&self) -> Option<&Host> {
        self.host.as_ref()
    }

    /// The target without dot segments, otherwise as received.
    pub fn path_and_query(&self) -> &PathAndQuery {
        &self.path_and_query
    }

    /// The target that a route with this `dot_segments` setting sends to the upstream.
    pub fn forwarded(&self, dot_segments: DotSegments) -> &PathAndQuery {
        match &self.unresolved {
            Some(unresolved) if dot_segments == DotSegments::Pass => unresolved,
            _ => &self.path_and_query,
        }
    }

    /// Whether the received path had dot segments.
    pub fn has_dot_segments(&self) -> bool {
        self.unresolved.is_some()
    }

    /// The path with its dot segments, if it has any.
    pub(super) fn unresolved_path(&self) -> Option<&str> {
        Some(self.unresolved.as_ref()?.path())
    }

    /// The path without dot segments and query, otherwise as received.
    pub fn path(&self) -> &str {
        self.path_and_query.path()
    }

    /// The query without its question mark.
    pub fn query(&self) -> Option<&str> {
        self.path_and_query.query()
    }

    /// The loosest interpretation of the path, for limits: `/a/b`, `//a/b`, `/a%2Fb` and `/a/b;x` are equal. ASCII;
    /// remaining percent-encodings are of characters that must not occur unencoded in a path.
    pub fn loosest_path(&self) -> &str {
        self.loosest.as_deref().unwrap_or_else(|| self.literal_path())
    }

    /// The path that patterns match.
    pub(super) fn literal_path(&self) -> &str {
        self.literal.as_deref().unwrap_or_else(|| self.path())
    }
}

/// Properties of a path found in a single pass.
struct Spelling {
    /// The path equals its literal interpretation, is unambiguous and has no dot segments. May be false even so.
    is_plain: bool,
    has_upper_case: bool,
}

fn spelling(path: &str) -> Spelling {
    let mut found = 0;
    let mut counted = !AFTER_SLASH;
    for byte in path.bytes() {
        let class = CLASSES[usize::from(byte)];
        found |= class & counted;
        counted = !AFTER_SLASH | (class & SLASH) << 1;
    }
    Spelling { is_plain: found & (SPECIAL | AFTER_SLASH) == 0, has_upper_case: found & UPPER_CASE != 0 }
}

/// Bytes that may make a path ambiguous, or begin a percent-encoding.
const SPECIAL: u8 = 1;
const UPPER_CASE: u8 = 1 << 1;
const SLASH: u8 = 1 << 2;
/// Bytes that do so after a slash. Twice [`SLASH`], so that a shift turns one into the other.
const AFTER_SLASH: u8 = SLASH << 1;

const CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "it is below 256")]
        let class = match byte as u8 {
            b'%' | b'\\' | b';' | 0x80.. => SPECIAL,
            b'/' => SLASH | AFTER_SLASH,
            b'.' => AFTER_SLASH,
            b'A'..=b'Z' => UPPER_CASE,
            _ => 0,
        };
        classes[byte] = class;
        byte += 1;
    }
    classes
};

/// Percent-encodes `<`, `>` and `` ` `` in the path, and `"`, `<` and `>` in the query: [`Uri`] refuses these, though clients send
/// them. For targets in logs and questions; hyper refuses a request that has them.
pub fn encode_target(target: &[u8]) -> Cow<'_, [u8]> {
    let path = target.iter().position(|byte| *byte == b'?').unwrap_or(target.len());
    let is_refused = |(at, byte): (usize, u8)| match byte {
        b'<' | b'>' => true,
        b'`' => at < path,
        b'"' => at > path,
        _ => false,
    };
    if !target.iter().copied().enumerate().any(is_refused) {
        return Cow::Borrowed(target);
    }
    let mut text = Vec::with_capacity(target.len() + 16);
    for (at, byte) in target.iter().copied().enumerate() {
        match is_refused((at, byte)) {
            true => text.extend_from_slice(percent_encode_byte(byte).as_bytes()),
            false => text.push(byte),
        }
    }
    text.into()
}

pub(super) fn with_path(original: &PathAndQuery, path: &str) -> Result<PathAndQuery, Rejection> {
    if original.as_str().strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('?')) {
        return Ok(original.clone());
    }
    let text = match original.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    PathAndQuery::from_maybe_shared(bytes::Bytes::from(text))
        .map_err(|_| Rejection::bad_request("The request target is malformed."))
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, header::HOST};
    use proptest::prelude::*;

    use super::*;

    fn target(method: &Method, uri: &str) -> Result<Target, Rejection> {
        let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static("example.org"))]);
        Target::parse(method, &uri.parse().unwrap(), Version::HTTP_11, &headers)
    }

    fn get(uri: &str) -> Result<Target, Rejection> {
        target(&Method::GET, uri)
    }

    #[test]
    fn plain_targets_are_forwarded_as_they_came() {
        for uri in ["/", "/a/b.c?x=%2e%2E/../é&&", "/a:@!$&'()*+,=~-_?", "/a.b/c..d", "/?"] {
            let target = get(uri).unwrap();
            assert_eq!(target.path_and_query(), uri);
            assert_eq!(target.loosest_path(), target.path());
            assert!(spelling(target.path()).is_plain, "{uri}");
        }
    }

    #[test]
    fn a_target_is_forwarded_as_it_came_without_dot_segments() {
        for (uri, forwarded, loosest) in [
            ("/%7euser/../a?b=%7e/../c", "/a?b=%7e/../c", "/a"),
            ("/%7euser/%61?%7e", "/%7euser/%61?%7e", "/~user/a"),
            ("/.well-known/x", "/.well-known/x", "/.well-known/x"),
            ("/projects/group%2fproject?a", "/projects/group%2fproject?a", "/projects/group/project"),
            ("/a%2Fb%2fc/./x/%2E%2e/%C3%a9?", "/a%2Fb%2fc/%C3%a9?", "/a/b/c/%C3%A9"),
            ("/fetch/https://x/?q=//", "/fetch/https://x/?q=//", "/fetch/https:/x/"),
            ("/%40me", "/%40me", "/@me"),
            ("/a;v=1", "/a;v=1", "/a"),
            ("/é?é", "/%C3%A9?é", "/%C3%A9"),
            ("//a", "//a", "/a"),
            ("http://h/a/./b?c", "/a/b?c", "/a/b"),
            ("http://h?q=1", "/?q=1", "/"),
            ("http://h", "/", "/"),
            ("http://h#x", "/", "/"),
            ("/\"{|}\\^[]?{|}\\^`[]", "/\"{|}\\^[]?{|}\\^`[]", "/\"{|}/^[]"),
            ("/a%0ab", "/a%0ab", "/a%0Ab"),
        ] {
            let target = get(uri).unwrap();
            assert_eq!(target.path_and_query().as_str(), forwarded, "{uri}");
            assert_eq!(target.forwarded(DotSegments::Normalize), forwarded, "{uri}");
            assert_eq!(Uri::from(target.forwarded(DotSegments::Normalize).clone()).to_string(), forwarded);
            assert_eq!(target.loosest_path(), loosest, "{uri}");
        }
    }

    #[test]
    fn bytes_that_a_uri_refuses_are_encoded_and_no_others() {
        let all: String = (b'!'..=b'~').map(char::from).filter(|byte| !"?#".contains(*byte)).collect();
        for (prefix, encoded_as) in [
            ("/", all.replace('<', "%3C").replace('>', "%3E").replace('`', "%60")),
            ("/?", all.replace('<', "%3C").replace('>', "%3E").replace('"', "%22")),
        ] {
            let target = format!("{prefix}{all}é");
            let text = encode_target(target.as_bytes());
            assert_eq!(String::from_utf8_lossy(&text), format!("{prefix}{encoded_as}é"));
            assert!(Uri::try_from(&*text).is_ok());
            assert!(matches!(encode_target(&text), Cow::Borrowed(_)));
        }
    }

    #[test]
    fn dot_segments_are_passed_on_where_that_is_wanted() {
        for (uri, forwarded) in [
            ("/a/../b?c", "/a/../b?c"),
            ("/%7e/%2E%2e/./é?é", "/%7e/%2E%2e/./%C3%A9?é"),
            ("http://h/..?", "/..?"),
            ("/a%2fb?", "/a%2fb?"),
        ] {
            assert_eq!(get(uri).unwrap().forwarded(DotSegments::Pass), forwarded, "{uri}");
        }
    }

    #[test]
    fn a_target_without_changes_shares_the_original_bytes() {
        let uri: Uri = "/.well-known/a%2Fb?q".parse().unwrap();
        let target = Target::parse(&Method::GET, &uri, Version::HTTP_10, &HeaderMap::new()).unwrap();
        assert_eq!(
            target.path_and_query().as_str().as_ptr(),
            uri.path_and_query().unwrap().as_str().as_ptr()
        );
    }

    #[test]
    fn targets_without_a_path_are_refused() {
        let status =
            |method, uri| target(&method, uri).map(drop).map_err(|rejection| rejection.status.as_u16());
        assert_eq!(status(Method::CONNECT, "example.org:443"), Err(501));
        assert_eq!(status(Method::CONNECT, "/"), Err(501));
        assert_eq!(status(Method::OPTIONS, "*"), Err(404));
        assert_eq!(status(Method::GET, "*"), Err(400));
        assert_eq!(status(Method::GET, "example.org:443"), Err(400));
        assert_eq!(status(Method::OPTIONS, "/"), Ok(()));
    }

    #[test]
    fn long_paths_are_refused_only_if_they_are_ambiguous() {
        let long = "a".repeat(MAX_AMBIGUOUS_PATH);
        assert!(get(&format!("/{long}%40")).is_ok());
        assert_eq!(
            get(&format!("//{long}")).map(drop).map_err(|rejection| rejection.status.as_u16()),
            Err(414)
        );
    }

    proptest! {
        #[test]
        fn a_forwarded_path_reads_as_the_path_that_came(path in "/([aX~./;\\\\?é]|%2[eEfF]|%5[cC]|%25|%40|%7[eE]|%[0-9a-f]{0,2}){0,16}") {
            if let Ok(first) = get(&path) {
                let again = get(first.path_and_query().as_str()).unwrap();
                prop_assert_eq!(again.path_and_query(), first.path_and_query());
                prop_assert_eq!(again.literal_path(), first.literal_path());
                prop_assert_eq!(again.loosest_path(), first.loosest_path());
                prop_assert_eq!(again.ambiguities, first.ambiguities);
                prop_assert!(again.unresolved.is_none());
                prop_assert!(!has_dot_segment(first.loosest_path(), DotSegmentSpelling::Any));
                prop_assert_eq!(first.query(), path.split_once('?').map(|(_, query)| query));
                let passed_on = first.forwarded(DotSegments::Pass);
                let resolved = get(passed_on.as_str()).unwrap();
                prop_assert_eq!(resolved.path_and_query(), first.path_and_query());
                if path.is_ascii() {
                    prop_assert_eq!(passed_on.as_str(), &path);
                }
                if first.unresolved.is_none() {
                    prop_assert_eq!(passed_on, first.path_and_query());
                }
            }
        }

        /// The fast path and the full interpretation agree.
        #[test]
        fn plain_paths_have_one_interpretation(path in "/[a-cX./~@:]{0,12}") {
            let Spelling { is_plain, has_upper_case } = spelling(&path);
            prop_assert_eq!(has_upper_case, path.bytes().any(|byte| byte.is_ascii_uppercase()));
            if is_plain {
                prop_assert_eq!(well_formed(&path).unwrap(), path.as_str());
                prop_assert!(!has_dot_segment(&path, DotSegmentSpelling::Any));
                prop_assert_eq!(PathInterpretation::ambiguities(&path), PathInterpretation::LITERAL);
            }
        }
    }
}
