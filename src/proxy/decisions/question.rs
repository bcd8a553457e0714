//! What is asked: the request that a question describes.

use std::net::IpAddr;

use compact_str::CompactString;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header, request};

use crate::{
    config::model::Front,
    identity::AddressIdentifier,
    proxy::rules::Rules,
    router::{Rejection, RoutedDescriptor, encode_target},
    tls::TlsIdentity,
};

/// What is known of a request that another proxy asks about, beside its head.
#[derive(Debug, Default)]
pub struct Question {
    /// The peer of the proxy that asks, where that says so. `None`: the proxy that asks is the peer.
    pub(super) source: Option<Source>,
    /// The descriptor that stands for the request.
    pub(super) descriptor: Option<Descriptor>,
}

/// The other end of the connection on which the described request came in.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) address: IpAddr,
    pub(super) identifier: AddressIdentifier,
    /// The certificate that it has shown.
    pub(super) certificate: Option<TlsIdentity>,
}

/// What a rate limit descriptor says of the request that it stands for.
#[derive(Debug)]
pub(super) struct Descriptor {
    pub(super) domain: String,
    /// In its order.
    pub(super) entries: Vec<(String, String)>,
    pub(super) user: Option<CompactString>,
}

impl Source {
    /// A peer of this address, whose certificate is not known.
    pub(super) fn new(address: IpAddr, rules: &Rules, certificate: Option<TlsIdentity>) -> Self {
        Self { address, identifier: rules.address_identifier(address), certificate }
    }
}

impl Question {
    /// The peer of the proxy that asks, where that says so: its address, that as an identifier, and its certificate.
    pub(in crate::proxy) fn source(&self) -> Option<(IpAddr, &AddressIdentifier, Option<&TlsIdentity>)> {
        let Source { address, identifier, certificate } = self.source.as_ref()?;
        Some((*address, identifier, certificate.as_ref()))
    }

    /// The entries of the descriptor.
    pub(in crate::proxy) fn entries(&self) -> &[(String, String)] {
        self.descriptor.as_ref().map_or(&[], |descriptor| &descriptor.entries)
    }

    /// The descriptor, as routes see it.
    pub(in crate::proxy) fn routed(&self) -> Option<RoutedDescriptor<'_>> {
        let Descriptor { domain, entries, .. } = self.descriptor.as_ref()?;
        Some(RoutedDescriptor { domain, entries })
    }

    /// The user, by the word of the proxy that asks.
    pub(in crate::proxy) fn user(&self) -> Option<&CompactString> {
        self.descriptor.as_ref()?.user.as_ref()
    }

    /// Whether it tells the client's address. A descriptor need not.
    pub(in crate::proxy) fn has_address(&self) -> bool {
        self.descriptor.is_none() || self.source.is_some()
    }
}

/// The fields in which fronts describe a request. No others may set them, or a client would describe it.
static DESCRIBING: [&str; 7] = [
    FORWARDED_METHOD,
    FORWARDED_URI,
    FORWARDED_HOST,
    FORWARDED_PROTO,
    ORIGINAL_METHOD,
    ORIGINAL_URI,
    ORIGINAL_URL,
];

const FORWARDED_METHOD: &str = "x-forwarded-method";
const FORWARDED_URI: &str = "x-forwarded-uri";
const FORWARDED_HOST: &str = "x-forwarded-host";
const FORWARDED_PROTO: &str = "x-forwarded-proto";
const FORWARDED_FOR: &str = "x-forwarded-for";
const ORIGINAL_METHOD: &str = "x-original-method";
const ORIGINAL_URI: &str = "x-original-uri";
const ORIGINAL_URL: &str = "x-original-url";

/// The fields of a front: for the method, for the target, and others.
struct FrontFields {
    method: Option<&'static str>,
    target: Option<&'static str>,
    others: &'static [&'static str],
}

impl FrontFields {
    fn of(front: Front) -> Self {
        match front {
            Front::Traefik | Front::Caddy => Self {
                method: Some(FORWARDED_METHOD),
                target: Some(FORWARDED_URI),
                others: &[FORWARDED_HOST, FORWARDED_PROTO],
            },
            Front::Nginx => Self { method: Some(ORIGINAL_METHOD), target: Some(ORIGINAL_URI), others: &[] },
            Front::IngressNginx => {
                Self { method: Some(ORIGINAL_METHOD), target: Some(ORIGINAL_URL), others: &[] }
            }
            Front::Envoy => Self { method: None, target: None, others: &[FORWARDED_PROTO] },
        }
    }

    fn has(&self, name: &&'static str) -> bool {
        [self.method, self.target].contains(&Some(name)) || self.others.contains(name)
    }
}

/// Turns the head of a question of `front` into that of the request that it describes. `prefix`: what Envoy writes before its
/// path. Fields of other fronts, which only a client can have sent, are dropped.
///
/// # Errors
/// 400: the question lacks its target or has a field twice, or what it says is malformed.
pub(super) fn describe(
    front: Front,
    prefix: Option<&str>,
    question: &mut request::Parts,
) -> Result<(), Rejection> {
    let fields = FrontFields::of(front);
    for name in DESCRIBING.iter().filter(|name| !fields.has(name)) {
        question.headers.remove(*name);
    }
    let mut known = DESCRIBING.iter().filter(|name| fields.has(name)).chain(&[FORWARDED_FOR]);
    if known.any(|name| question.headers.get_all(*name).iter().nth(1).is_some()) {
        return Err(Rejection::bad_request("A field that describes the request was sent twice."));
    }
    if let Some(method) = fields.method.and_then(|name| question.headers.remove(name)) {
        question.method = Method::from_bytes(method.as_bytes())
            .map_err(|_| Rejection::bad_request("The method of the described request is malformed."))?;
    }
    let target = match fields.target {
        Some(name) => question.headers.remove(name).ok_or(Rejection::bad_request(
            "The question does not tell the URI of the request. Does `front` name the proxy that asks?",
        ))?,
        None => {
            let target = question.uri.path_and_query().map_or("/", |target| target.as_str());
            let path = target.strip_prefix(prefix.unwrap_or_default()).filter(|path| path.starts_with('/'));
            HeaderValue::from_str(path.unwrap_or("/")).map_err(|_| MALFORMED)?
        }
    };
    if front == Front::IngressNginx && !has_clear_host(target.as_bytes()) {
        return Err(MALFORMED);
    }
    let authority = question.uri.authority().map(|authority| HeaderValue::from_str(authority.as_str()));
    question.uri = described_uri(target.as_bytes())?;
    let host = match fields.others.contains(&FORWARDED_HOST) {
        true => question.headers.get(FORWARDED_HOST).cloned(),
        false => None,
    };
    // Over HTTP/2, the question's own host is its authority.
    let own = || authority.and_then(Result::ok);
    if let Some(host) = host.or_else(own) {
        question.headers.insert(header::HOST, host);
    }
    Ok(())
}

/// Whether the host of this URL ends with a slash. The client writes the host: with a `?` in it, it would write the path, too.
fn has_clear_host(url: &[u8]) -> bool {
    let rest = url.windows(3).position(|bytes| bytes == b"://").and_then(|at| url.get(at + 3..));
    let end = rest.and_then(|rest| rest.iter().find(|byte| b"/?#@\\".contains(byte)));
    end == Some(&b'/')
}

const MALFORMED: Rejection =
    Rejection { status: StatusCode::BAD_REQUEST, detail: "The URI of the described request is malformed." };

/// The URI of a described request. Proxies pass on bytes that clients must encode, and a fragment, which an upstream may take for
/// a part of the path.
///
/// # Errors
/// 400 if it is none, or has a fragment.
pub(super) fn described_uri(target: &[u8]) -> Result<Uri, Rejection> {
    if target.contains(&b'#') {
        return Err(MALFORMED);
    }
    Uri::try_from(&*encode_target(target)).map_err(|_| MALFORMED)
}

/// Adds a field of a described request. A map of fields has a longest size, and takes no more.
///
/// # Errors
/// 431: there is no room.
pub(super) fn append(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) -> Result<(), Rejection> {
    headers.try_append(name, value).map(|_| ()).map_err(|_| TOO_MANY_FIELDS)
}

pub(super) const TOO_MANY_FIELDS: Rejection = Rejection {
    status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
    detail: "The described request has too many header fields.",
};

/// An address as Envoy writes it, with the zone of a local one.
pub(super) fn read_address(text: &str) -> Option<IpAddr> {
    text.split('%').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn described(
        front: Front,
        uri: &str,
        fields: &[(&'static str, &str)],
    ) -> Result<(String, HeaderMapText), u16> {
        let mut builder = Request::get(uri).header("host", "tollgate:8081");
        for (name, value) in fields {
            builder = builder.header(*name, *value);
        }
        let (mut parts, ()) = builder.body(()).unwrap().into_parts();
        describe(front, Some("/decide"), &mut parts).map_err(|rejection| rejection.status.as_u16())?;
        let headers = parts.headers.iter();
        let headers = headers.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
        Ok((format!("{} {}", parts.method, parts.uri), headers.collect()))
    }

    type HeaderMapText = Vec<String>;

    const FORWARDED: [(&str, &str); 5] = [
        ("x-forwarded-method", "POST"),
        ("x-forwarded-uri", "/a?b=\"<c>\""),
        ("x-forwarded-host", "api.example.org"),
        ("x-forwarded-for", "203.0.113.7"),
        ("x-forwarded-proto", "https"),
    ];

    #[test]
    fn a_front_describes_the_request_in_its_own_fields() {
        let (request, headers) = described(Front::Traefik, "/", &FORWARDED).unwrap();
        assert_eq!(request, "POST /a?b=%22%3Cc%3E%22");
        assert!(headers.contains(&"host: api.example.org".to_owned()), "{headers:?}");
        let nginx = [("x-original-method", "PUT"), ("x-original-uri", "/b")];
        let (request, headers) = described(Front::Nginx, "/", &nginx).unwrap();
        assert_eq!((request.as_str(), headers), ("PUT /b", vec!["host: tollgate:8081".to_owned()]));
        let ingress = [("x-original-url", "https://a.example.org/c?d")];
        assert_eq!(described(Front::IngressNginx, "/", &ingress).unwrap().0, "GET https://a.example.org/c?d");
        for (uri, request) in
            [("/decide/e?f", "GET /e?f"), ("/decide", "GET /"), ("/decideless", "GET /"), ("/x", "GET /")]
        {
            assert_eq!(described(Front::Envoy, uri, &[]).unwrap().0, request, "{uri}");
        }
    }

    #[test]
    fn fields_of_other_fronts_are_dropped() {
        let all: Vec<_> = DESCRIBING.iter().map(|name| (*name, "https://free.example.org/free")).collect();
        let mut sent = all.clone();
        sent.retain(|(name, _)| *name != "x-original-method");
        for (front, kept) in
            [(Front::Nginx, vec![]), (Front::Envoy, vec!["x-forwarded-proto"]), (Front::IngressNginx, vec![])]
        {
            let (_, headers) = described(front, "/decide/a", &sent).unwrap();
            let names: Vec<_> = headers.iter().filter_map(|line| line.split(':').next()).collect();
            assert_eq!(names, [vec!["host"], kept].concat(), "{front:?}");
        }
    }

    #[test]
    fn a_question_is_whole_or_refused() {
        for (front, fields) in [
            (Front::Traefik, &[("x-original-uri", "/a")][..]),
            (Front::Nginx, &[("x-forwarded-uri", "/a")]),
            (Front::IngressNginx, &[("x-original-uri", "/a")]),
            (Front::Caddy, &[("x-forwarded-uri", "/a"), ("x-forwarded-uri", "/a")]),
            (
                Front::Caddy,
                &[("x-forwarded-uri", "/a"), ("x-forwarded-host", "a"), ("x-forwarded-host", "b")],
            ),
            (Front::Nginx, &[("x-original-uri", "/a"), ("x-forwarded-for", "a"), ("x-forwarded-for", "b")]),
            (Front::Nginx, &[("x-original-uri", "/a"), ("x-original-method", "G T")]),
            (Front::Nginx, &[("x-original-uri", "/a b")]),
            (Front::Nginx, &[("x-original-uri", "/open#/../a")]),
            (Front::IngressNginx, &[("x-original-url", "https:///a")]),
            (Front::IngressNginx, &[("x-original-url", "https://a.example.org?/free")]),
            (Front::IngressNginx, &[("x-original-url", "https://a.example.org#/free")]),
            (Front::IngressNginx, &[("x-original-url", "https://free@a.example.org/a")]),
            (Front::IngressNginx, &[("x-original-url", "https://a.example.org\\/a")]),
            (Front::IngressNginx, &[("x-original-url", "/a")]),
        ] {
            assert_eq!(described(front, "/", fields).unwrap_err(), 400, "{front:?} {fields:?}");
        }
    }
}
