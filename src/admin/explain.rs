//! `POST /v1/explain`: predicts the outcome of a request.

use std::{net::IpAddr, sync::Arc};

use axum::{Json, extract::State};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header, request, uri::PathAndQuery};
use send_wrapper::SendWrapper;

use super::{
    context::HandlerContext,
    dto::{self, HeaderValues},
    extract::{JsonBody, NoParams, Query},
    openapi::{BodyErrors, WriteErrors},
    problem::Problem,
};
use crate::{
    config::model::{KeySource, ListenAddress, Listener},
    proxy::{
        self,
        explain::{
            CheckVerdict, ExplainedCheck, ExplainedRequest, ExplainedVerdict, Explanation, HeaderChange,
        },
    },
    router,
    telemetry::time::format_duration,
    tls::{TlsIdentity, canonical_subject, read_fingerprint},
};

/// Longest question, in bytes: it may have the body of a request in it.
const MAX_EXPLAINED: usize = 1 << 20;

/// Explains what would happen to a request, and why. Nothing is consumed, counted or recorded.
#[utoipa::path(
    post,
    path = "/v1/explain",
    operation_id = "explain",
    tag = "in force",
    request_body(
        content = dto::ExplainedRequest,
        description = "the request to explain",
        example = json!({
            "method": "GET",
            "url": "https://api.example.com/login",
            "headers": {"x-user-id": "acme"},
            "peer": "203.0.113.7"
        })
    ),
    responses(
        (status = 200, body = dto::Explanation, description = "what would happen to the request"),
        WriteErrors,
        BodyErrors
    )
)]
pub(super) async fn explain(
    State(context): State<Arc<HandlerContext>>,
    _: Query<NoParams>,
    JsonBody(request): JsonBody<dto::ExplainedRequest, MAX_EXPLAINED>,
) -> Result<Json<dto::Explanation>, Problem> {
    explanation(&context, request).await.map(Json)
}

pub(super) async fn explanation(
    context: &HandlerContext,
    request: dto::ExplainedRequest,
) -> Result<dto::Explanation, Problem> {
    let peer = peer(request.peer.as_deref())?;
    let certificate = request.client_certificate.as_ref().map(assumed_identity).transpose()?;
    let is_https = request.url.split_once("://").map(|(scheme, _)| scheme.eq_ignore_ascii_case("https"));
    let (state, now) = (&context.state, context.state.clock.now());
    let config = state.active_config.snapshot();
    let listeners = &config.rules.config().listeners;
    let listener = request.listener.as_deref().map(|named| find_listener(named, listeners)).transpose()?;
    let body = request.body.clone().map(Bytes::from);
    let api_key = request.api_key.clone();
    let mut request = request_parts(request)?;
    if let Some(key) = api_key {
        let sources = config.rules.config().api_keys.as_ref().map(|settings| settings.from.as_slice());
        add_api_key(&mut request, &key, sources.unwrap_or_default())?;
    }
    let asked = ExplainedRequest { peer, is_https, certificate, listener, body, request };
    let client_certificate = asked.certificate.as_ref().map(explained_certificate);
    let (rules, upstreams) = (&config.rules, &config.upstreams);
    let explained = proxy::explain::explain(rules, upstreams, &context.store, &state.bans, asked, now);
    // Like a worker, the explanation uses values that are bound to one thread.
    let explanation = dto::Explanation::from(SendWrapper::new(explained).await);
    Ok(dto::Explanation { client_certificate, ..explanation })
}

/// Puts `key` into the first of the places that may hold one.
fn add_api_key(request: &mut request::Parts, key: &str, sources: &[KeySource]) -> Result<(), Problem> {
    let (name, value) = match sources.first() {
        None => return Err(Problem::bad_request("no request has an API key here: `api_keys` is not set")),
        Some(KeySource::Header(name)) => (name.clone(), HeaderValue::from_str(key)),
        Some(KeySource::Bearer) => (header::AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {key}"))),
        Some(KeySource::Query(name)) => {
            let parameter =
                url::form_urlencoded::Serializer::new(String::new()).append_pair(name, key).finish();
            let separator = if request.uri.query().is_some() { '&' } else { '?' };
            let uri = format!("{}{separator}{parameter}", request.uri).parse();
            request.uri =
                uri.map_err(|_| Problem::bad_request("api_key: the query of this URL has no room for it"))?;
            return Ok(());
        }
    };
    // Neither message quotes the key.
    let value = value.map_err(|_| Problem::bad_request("api_key: it can't be the value of a header"))?;
    if request.headers.insert(&name, value).is_some() {
        return Err(Problem::bad_request(format!("{name} is given twice: by api_key, and in headers")));
    }
    Ok(())
}

/// The identity of a client with this certificate.
fn assumed_identity(certificate: &dto::AssumedCertificate) -> Result<TlsIdentity, Problem> {
    let wrong = |what: &str| Problem::bad_request(format!("client_certificate: {what}"));
    let dto::AssumedCertificate { pem, subject, fingerprint } = certificate;
    match (pem, subject, fingerprint) {
        (Some(pem), None, None) => {
            TlsIdentity::from_pem(pem.as_bytes()).map_err(|error| wrong(&format!("in pem: {error}")))
        }
        (Some(_), ..) => Err(wrong("set either pem, or subject and fingerprint")),
        (None, None, None) => Err(wrong("set pem, subject or fingerprint")),
        (None, subject, fingerprint) => {
            const SUBJECT: &str = "subject is not a distinguished name; write it as CN=acme,O=Acme";
            const FINGERPRINT: &str = "fingerprint is not a SHA-256 in hexadecimal digits";
            let subject =
                subject.as_deref().map(|text| canonical_subject(text).ok_or_else(|| wrong(SUBJECT)));
            let fingerprint =
                fingerprint.as_deref().map(|text| read_fingerprint(text).ok_or_else(|| wrong(FINGERPRINT)));
            let [subject, fingerprint] = [subject.transpose()?, fingerprint.transpose()?];
            Ok(TlsIdentity::assumed(subject.unwrap_or_default(), fingerprint.unwrap_or_default()))
        }
    }
}

fn explained_certificate(certificate: &TlsIdentity) -> dto::ExplainedCertificate {
    let known = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    dto::ExplainedCertificate {
        subject: known(certificate.subject()),
        fingerprint: known(certificate.fingerprint()),
        because:
            "assumed, not verified: a real client has to prove that it holds the key, and client_ca must \
            have issued the certificate"
                .to_owned(),
    }
}

/// The index of the listener with this name or address. The address of one that listens on all addresses has it, too.
fn find_listener(named: &str, listeners: &[Listener]) -> Result<usize, Problem> {
    let by_name = listeners.iter().position(|listener| listener.name.as_deref() == Some(named));
    let by_address = |is_same: &dyn Fn(&ListenAddress) -> bool| {
        listeners.iter().position(|listener| listener.addresses.iter().any(is_same))
    };
    let including = || {
        let address = ListenAddress::Tcp(named.parse().ok()?);
        by_address(&|other| other.overlaps(&address))
    };
    let found = by_name.or_else(|| by_address(&|other| other.to_string() == named)).or_else(including);
    found.ok_or_else(|| {
        let known = listeners.iter().map(|listener| match &listener.name {
            Some(name) => format!("{name} ({})", listener.shown_addresses()),
            None => listener.shown_addresses(),
        });
        let known: Vec<_> = known.collect();
        let named = named.escape_debug();
        Problem::bad_request(format!(
            "no listener has the name or the address {named}; the listeners: {}",
            known.join(", ")
        ))
    })
}

fn peer(text: Option<&str>) -> Result<IpAddr, Problem> {
    let text = text.unwrap_or("127.0.0.1");
    let address =
        text.parse::<IpAddr>().ok().or_else(|| Some(text.parse::<std::net::SocketAddr>().ok()?.ip()));
    address.ok_or_else(|| Problem::bad_request(format!("peer is not an address: {}", text.escape_debug())))
}

/// The request as a client would send it over HTTP/1.1.
fn request_parts(request: dto::ExplainedRequest) -> Result<request::Parts, Problem> {
    let dto::ExplainedRequest { method, url, headers: fields, .. } = request;
    let wrong = |what: &str, text: &str| Problem::bad_request(format!("{what}: {}", text.escape_debug()));
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| wrong("this is not a method", &method))?;
    let has_scheme = url.is_empty() || url.starts_with('/') || url == "*" || url.contains("://");
    let url = if has_scheme { url } else { format!("http://{url}") };
    let uri = Uri::try_from(&*router::encode_target(url.as_bytes()));
    let uri = uri.map_err(|_| wrong("this is not a URL that can be requested", &url))?;
    let mut headers = HeaderMap::new();
    for (name, values) in &fields {
        let lines = match values {
            HeaderValues::One(line) => std::slice::from_ref(line),
            HeaderValues::Many(lines) => lines,
        };
        let field: HeaderName = name.parse().map_err(|_| wrong("this is not a valid header name", name))?;
        for line in lines {
            let line: HeaderValue =
                line.parse().map_err(|_| wrong("this is not a valid header value", line))?;
            headers.append(&field, line);
        }
    }
    let uri = match uri.scheme_str() {
        None => uri,
        Some("http" | "https") => {
            let authority = uri.authority().map_or("", |authority| authority.as_str());
            if let Ok(host) = HeaderValue::from_str(authority) {
                headers.entry(header::HOST).or_insert(host);
            }
            origin_form(&uri)
        }
        Some(_) => return Err(wrong("the URL must begin with http:// or https://", &url)),
    };
    let mut request = Request::new(());
    (*request.method_mut(), *request.uri_mut(), *request.headers_mut()) = (method, uri, headers);
    Ok(request.into_parts().0)
}

/// The form of a target that clients send to an origin or a reverse proxy (RFC 9112, 3.2.1).
fn origin_form(uri: &Uri) -> Uri {
    match uri.path_and_query() {
        Some(path) if path.as_str().starts_with('/') => Uri::from(path.clone()),
        Some(query) => format!("/{}", query.as_str()).parse().unwrap_or_default(),
        None => Uri::from(PathAndQuery::from_static("/")),
    }
}

impl From<Explanation> for dto::Explanation {
    fn from(explained: Explanation) -> Self {
        let (address, because) = explained.address;
        let client_address = dto::ExplainedAddress { address: address.into(), because };
        let (user, because) = explained.user;
        let user = dto::ExplainedUser { user: user.map(Into::into), because };
        let verdict = match explained.verdict {
            ExplainedVerdict::Allowed => "allowed",
            ExplainedVerdict::Denied => "denied",
            ExplainedVerdict::Banned => "banned",
            ExplainedVerdict::Undecided => "undecided",
            ExplainedVerdict::Forbidden => "forbidden",
            ExplainedVerdict::Unauthorized => "unauthorized",
            ExplainedVerdict::Refused => "refused",
        };
        Self {
            assumed_host: explained.assumed_host,
            assumed_listener: explained.assumed_listener,
            client_address,
            user,
            // Filled in by the caller: it is assumed, not explained.
            client_certificate: None,
            listeners: explained.listeners,
            route: explained.route,
            upstream: explained.upstream,
            endpoint: explained.endpoint,
            cors: explained.cors,
            reply: explained.reply,
            rewritten_path: explained.rewritten_path,
            request_headers: explained.request_headers.into_iter().map(header_change).collect(),
            response_headers: explained.response_headers.into_iter().map(header_change).collect(),
            body_limit: explained.body_limit,
            verdict: verdict.to_owned(),
            status: explained.status.map(|status| status.as_u16()),
            because: explained.because,
            checks: explained.checks.into_iter().map(check).collect(),
            bans: explained.bans.iter().map(|ban| dto::Ban::from(&**ban)).collect(),
        }
    }
}

fn header_change(change: HeaderChange) -> dto::HeaderChange {
    let (change, name, value) = match change {
        HeaderChange::Remove(name) => ("remove", name, None),
        HeaderChange::Set(name, value) => ("set", name, Some(value)),
        HeaderChange::Add(name, value) => ("add", name, Some(value)),
    };
    dto::HeaderChange { change: change.to_owned(), name, value }
}

fn check(standing: ExplainedCheck) -> dto::ExplainedCheck {
    let verdict = match standing.verdict {
        CheckVerdict::Allowed => "allowed",
        CheckVerdict::Denied => "denied",
        CheckVerdict::Exempt => "exempt",
        CheckVerdict::Skipped => "skipped",
        CheckVerdict::Unknown => "unknown",
    };
    dto::ExplainedCheck {
        policy: standing.policy,
        key: standing.key,
        algorithm: standing.algorithm.to_owned(),
        cost: standing.cost,
        limit: standing.limit,
        used: standing.used,
        remaining: standing.remaining,
        retry_after: standing.retry_after.map(format_duration),
        verdict: verdict.to_owned(),
        mode: if standing.is_shadow { "shadow" } else { "enforce" }.to_owned(),
        because: standing.because,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(url: &str, host: Option<&str>) -> Result<(String, Option<String>), Problem> {
        let headers = host.map(|host| ("Host".to_owned(), HeaderValues::One(host.to_owned())));
        let request = dto::ExplainedRequest {
            body: None,
            method: "GET".to_owned(),
            url: url.to_owned(),
            headers: headers.into_iter().collect(),
            api_key: None,
            peer: None,
            client_certificate: None,
            listener: None,
        };
        let parts = request_parts(request)?;
        let host = parts.headers.get(header::HOST).map(|host| host.to_str().unwrap().to_owned());
        Ok((parts.uri.to_string(), host))
    }

    #[test]
    fn a_url_is_asked_for_as_clients_do() {
        let some = |uri: &str, host: Option<&str>| Ok((uri.to_owned(), host.map(str::to_owned)));
        assert_eq!(asked("http://a.example:80/b?c#d", None), some("/b?c", Some("a.example:80")));
        assert_eq!(asked("http://a.example?c", None), some("/?c", Some("a.example")));
        assert_eq!(asked("https://a.example", Some("other")), some("/", Some("other")));
        assert_eq!(asked("/b", None), some("/b", None));
        assert_eq!(asked("a.example/b", None), some("/b", Some("a.example")));
        assert_eq!(asked("a.example:80", None), some("/", Some("a.example:80")));
        assert_eq!(asked("/b", Some("a")), some("/b", Some("a")));
        for wrong in ["", "ftp://a/b", "http://a/b c", "http://"] {
            assert!(asked(wrong, None).is_err(), "{wrong}");
        }
    }

    #[test]
    fn certificates_are_assumed_from_pem_or_from_what_they_say() {
        let read = |pem: Option<&str>, subject: Option<&str>, fingerprint: Option<&str>| {
            let [pem, subject, fingerprint] = [pem, subject, fingerprint].map(|text| text.map(str::to_owned));
            assumed_identity(&dto::AssumedCertificate { pem, subject, fingerprint })
        };
        let hex = "ab".repeat(32);
        let acme = read(None, Some("cn=acme,O=Acme"), None).unwrap();
        assert_eq!((acme.subject(), acme.fingerprint()), ("CN=acme,O=Acme", ""));
        let acme = read(None, Some("CN=acme"), Some(&hex.to_uppercase())).unwrap();
        assert_eq!((acme.subject(), acme.fingerprint()), ("CN=acme", hex.as_str()));
        assert_eq!(explained_certificate(&read(None, None, Some(&hex)).unwrap()).subject, None);
        for (pem, subject, fingerprint) in [
            (None, None, None),
            (None, Some("acme"), None),
            (None, None, Some("ab")),
            (Some("acme"), None, None),
            (Some(""), Some("CN=acme"), None),
        ] {
            assert!(read(pem, subject, fingerprint).is_err(), "{pem:?} {subject:?} {fingerprint:?}");
        }
    }

    #[test]
    fn listeners_are_found_by_name_or_by_address() {
        let [any, local, unnamed] =
            ["0.0.0.0:80", "127.0.0.1:81", "[::1]:0"].map(|address| address.parse().unwrap());
        let named =
            |name: &str, address| Listener { name: Some(name.to_owned()), ..Listener::plain(address) };
        let listeners = [named("public", any), named("internal", local), Listener::plain(unnamed)];
        for (text, found) in [
            ("public", 0),
            ("internal", 1),
            ("0.0.0.0:80", 0),
            ("127.0.0.1:80", 0),
            ("127.0.0.1:81", 1),
            ("[::1]:0", 2),
        ] {
            assert_eq!(find_listener(text, &listeners).unwrap(), found, "{text}");
        }
        for text in ["", "Public", "127.0.0.1", "127.0.0.2:81", "[::1]:80"] {
            assert!(find_listener(text, &listeners).is_err(), "{text}");
        }
    }

    #[test]
    fn peers_are_addresses_with_a_port_or_without() {
        for text in [None, Some("127.0.0.1"), Some("127.0.0.1:5"), Some("[::1]:5"), Some("::1")] {
            assert!(peer(text).unwrap().is_loopback());
        }
        assert!(peer(Some("localhost")).is_err());
    }
}
