//! Authorizes requests. All paths need it, except health, the login page and its assets.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version,
    header::{
        AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HOST, ORIGIN, VIA, WWW_AUTHENTICATE,
        X_CONTENT_TYPE_OPTIONS,
    },
    request::Parts,
};
use http_body::Body as _;
use subtle::ConstantTimeEq;

use super::{
    connection_slots::ConnectionSlot,
    context::HandlerContext,
    extract::RemoteAddress,
    page,
    problem::Problem,
    session,
    token_throttle::{TokenVerdict, throttled_response},
};
use crate::{config::model::Secret, proxy::is_claim};

/// Refuses unauthorized requests. Adds `Cache-Control: no-store` and `X-Content-Type-Options: nosniff` to responses.
pub(super) async fn authorize(
    State(context): State<Arc<HandlerContext>>,
    request: Request,
    next: Next,
) -> Response {
    let (mut head, body) = request.into_parts();
    if let Some(RemoteAddress(peer)) = head.extensions.get().copied() {
        let config = context.state.active_config.snapshot();
        head.extensions.insert(RemoteAddress(config.rules.client_address(peer, &head.headers)));
    }
    let is_health = matches!(head.uri.path(), "/healthz" | "/readyz");
    let refused = if is_health { None } else { refusal(&context, &head, body.is_end_stream()).await };
    if refused.is_none()
        && !is_health
        && (context.state.token.is_none() || !page::is_public(head.uri.path()))
        && let Some(slot) = head.extensions.get::<Arc<ConnectionSlot>>()
    {
        slot.mark_authenticated();
    }
    let mut response = match refused {
        Some(response) => response,
        None => next.run(Request::from_parts(head, body)).await,
    };
    let headers = response.headers_mut();
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The response to an unauthorized request; `None` if it is authorized. `is_empty`: it has no body.
async fn refusal(context: &HandlerContext, head: &Parts, is_empty: bool) -> Option<Response> {
    let headers = &head.headers;
    let bears_token = match context.state.token.as_ref() {
        Some(token) => match authenticate(context, head, token).await {
            Ok(bears_token) => bears_token,
            Err(refused) => return Some(*refused),
        },
        None if is_forwarded(head) => {
            let detail = "a proxy forwards this request, as its header fields or HTTP/1.0 show, and without a token all \
                clients of the proxy would be operators: set admin.token in proxy.yaml";
            return Some(Problem::new(StatusCode::FORBIDDEN, detail).into_response());
        }
        None if !is_local(&head.uri, headers) => {
            let detail = "without a token, only requests to loopback are allowed: Host and Origin must be 127.0.0.1, [::1] \
                or localhost";
            return Some(Problem::new(StatusCode::FORBIDDEN, detail).into_response());
        }
        None => false,
    };
    // A page of any site can make the browser send its cookie, or connect from loopback.
    if !bears_token && is_cross_site(head, context.state.token.is_some()) {
        let detail = "requests from other sites are not allowed: Origin must be the same as Host, which a proxy has to pass \
            on (nginx: proxy_set_header Host $http_host)";
        return Some(Problem::new(StatusCode::FORBIDDEN, detail).into_response());
    }
    if is_change(&head.method) && !is_json(headers, is_empty) {
        let detail = "requests that change something must be application/json";
        return Some(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail).into_response());
    }
    None
}

/// Whether a request is authorized by the token itself, as programs send it. `false`: by a session, or its path is
/// public; a token in it is not checked then, since the response would reveal whether it is right.
async fn authenticate(context: &HandlerContext, head: &Parts, token: &Secret) -> Result<bool, Box<Response>> {
    let path = head.uri.path();
    if page::is_public(path) || session::is_valid(token, &head.headers, context.state.clock.now()) {
        return Ok(false);
    }
    let peer = head
        .extensions
        .get::<RemoteAddress>()
        .map_or(IpAddr::from([0, 0, 0, 0]), |&RemoteAddress(peer)| peer);
    let verdict = match head.headers.contains_key(AUTHORIZATION) {
        true => context.bearer_throttle.check(peer, bears(&head.headers, token)).await,
        false => TokenVerdict::Wrong { is_first: false },
    };
    match verdict {
        TokenVerdict::Right => Ok(true),
        TokenVerdict::Throttled => Err(Box::new(throttled_response())),
        TokenVerdict::Wrong { is_first } => {
            if is_first {
                tracing::warn!(%peer, "a request from {peer} to the admin port had a wrong token");
            }
            let is_look = matches!(head.method, Method::GET | Method::HEAD);
            let asks_for_page = is_look && page::is_page(path);
            Err(Box::new(if asks_for_page { page::redirect_to_login(&head.uri) } else { unauthorized() }))
        }
    }
}

fn unauthorized() -> Response {
    let problem = Problem::new(
        StatusCode::UNAUTHORIZED,
        "this requires the admin token: send Authorization: Bearer TOKEN",
    );
    let mut response = problem.into_response();
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"tollgate\""));
    response
}

/// RFC 6750, 2.1. In constant time, so that the token can't be guessed a byte at a time.
fn bears(headers: &HeaderMap, token: &Secret) -> bool {
    let given = headers.get(AUTHORIZATION).and_then(|value| {
        let (scheme, given) = value.as_bytes().split_at_checked("Bearer ".len())?;
        scheme.eq_ignore_ascii_case(b"Bearer ").then_some(given)
    });
    given.is_some_and(|given| given.ct_eq(token.reveal().as_bytes()).into())
}

/// Whether a proxy forwards the request, as far as it can be told. nginx before 1.29.7 adds no field, but speaks HTTP/1.0
/// by default, which neither browsers nor curl nor our commands do.
fn is_forwarded(head: &Parts) -> bool {
    let tells = |name: &HeaderName| *name == VIA || is_claim(name.as_str());
    head.version == Version::HTTP_10 || head.headers.keys().any(tells)
}

/// Whether `Host`, `Origin` and the target name loopback. A page in the operator's browser may resolve its own name to
/// loopback (DNS rebinding), but its requests bear that name.
fn is_local(uri: &Uri, headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(HOST).iter().peekable();
    let named = hosts.peek().is_some();
    let host = |value: &HeaderValue| value.to_str().is_ok_and(is_loopback);
    let origin = |value: &HeaderValue| {
        let text = value.to_str().unwrap_or_default();
        text.strip_prefix("http://").or_else(|| text.strip_prefix("https://")).is_some_and(is_loopback)
    };
    named
        && hosts.all(host)
        && uri.authority().is_none_or(|authority| is_loopback(authority.as_str()))
        && headers.get_all(ORIGIN).iter().all(origin)
}

/// Whether the page of another site sends the request. Such a page may link here, but not embed resources: requests for
/// embedded images have no `Origin`.
///
/// Browsers say it in Fetch Metadata, which no page can set, over https and to loopback. It counts before `Origin`, since
/// proxies may send another `Host` than the browser's. Without a token, `Origin` was checked before.
fn is_cross_site(head: &Parts, has_token: bool) -> bool {
    let says = |name: &str| head.headers.get(name).map(HeaderValue::as_bytes);
    let is_led = matches!(head.method, Method::GET | Method::HEAD)
        && says("sec-fetch-mode") == Some(b"navigate")
        && says("sec-fetch-dest") == Some(b"document");
    match says("sec-fetch-site") {
        Some(b"same-origin" | b"none") => false,
        Some(b"cross-site" | b"same-site") => !is_led,
        _ => has_token && !is_same_origin(&head.headers),
    }
}

/// Whether each `Origin` is that of `Host`. Browsers omit the scheme's default port in both.
fn is_same_origin(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).map(HeaderValue::as_bytes);
    let same = |origin: &HeaderValue| {
        let authority = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        authority.is_some_and(|(_, authority)| {
            host.is_some_and(|host| host.eq_ignore_ascii_case(authority.as_bytes()))
        })
    };
    headers.get_all(ORIGIN).iter().all(same)
}

/// Whether `authority` is a name of loopback, with or without a port, and nothing else: parsers disagree about the host
/// if there is a user or a second name.
fn is_loopback(authority: &str) -> bool {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !authority.ends_with(']') => (host, port),
        _ => (authority, "80"),
    };
    let is_local = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok_and(|address| address.is_loopback()),
        None => {
            host.eq_ignore_ascii_case("localhost")
                || host.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
        }
    };
    is_local && port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok()
}

fn is_change(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Whether the body is JSON. A page of another origin can send that only after a CORS preflight request, which is never
/// granted.
fn is_json(headers: &HeaderMap, is_empty: bool) -> bool {
    match headers.get(CONTENT_TYPE) {
        None => is_empty,
        Some(value) => value.to_str().is_ok_and(|text| {
            let essence = text.split(';').next().unwrap_or_default().trim();
            essence.eq_ignore_ascii_case("application/json")
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(target: &str, headers: &[(http::HeaderName, &str)]) -> bool {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap()))
            .collect();
        is_local(&target.parse().unwrap(), &headers)
    }

    #[test]
    fn loopback_has_many_names() {
        for host in ["127.0.0.1:9900", "127.1.2.3", "localhost", "LOCALHOST:1", "[::1]:9900", "[::1]"] {
            assert!(local("/", &[(HOST, host)]), "{host}");
            assert!(local("/", &[(HOST, host), (ORIGIN, &format!("http://{host}"))]), "{host}");
        }
    }

    #[test]
    fn rebound_names_are_refused() {
        for host in [
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "10.0.0.1",
            "x@127.0.0.1:1@evil",
            "[::1].evil.example",
            "[::1].evil.example:9900",
            "[::1]evil",
            "[::1]:9900.evil.example",
            "evil.example@127.0.0.1",
            "evil.example@[::1]:9900",
            "evil.example:80@localhost",
            "127.0.0.1:evil.example",
            "127.0.0.1:9900:evil.example",
            "localhost:",
            "localhost:+80",
            "localhost:65536",
            "localhost/evil.example",
            "evil.example[::1]",
            "[127.0.0.1]",
            "[localhost]",
            "::1",
            "[::1",
            "[",
            "]",
            ":9900",
            "",
        ] {
            assert!(!local("/", &[(HOST, host)]), "{host}");
            for scheme in ["http", "https"] {
                let origin = format!("{scheme}://{host}");
                assert!(!local("/", &[(HOST, "localhost"), (ORIGIN, &origin)]), "{origin}");
            }
        }
        assert!(!local("/", &[]), "no Host at all");
        assert!(!local("/", &[(HOST, "localhost"), (HOST, "evil.example")]));
        assert!(local("http://127.0.0.1:9900/", &[(HOST, "localhost")]));
        for target in ["http://evil.example/", "http://evil.example@localhost/", "http://[::1].evil.example/"]
        {
            assert!(!local(target, &[(HOST, "localhost")]), "{target}");
        }
        for origin in [
            "http://evil.example",
            "null",
            "",
            "localhost",
            "file://localhost",
            "http://localhost/",
            "http://localhost http://evil.example",
        ] {
            assert!(!local("/", &[(HOST, "localhost"), (ORIGIN, origin)]), "{origin}");
        }
    }

    #[test]
    fn an_origin_is_that_of_the_host_or_foreign() {
        let same = |origin: &str, host: &str| {
            let headers = [(ORIGIN, origin), (HOST, host)]
                .map(|(name, value)| (name, HeaderValue::from_str(value).unwrap()));
            is_same_origin(&HeaderMap::from_iter(headers))
        };
        assert!(same("https://proxy.internal", "proxy.internal"));
        assert!(same("http://Proxy.internal:9900", "proxy.internal:9900"));
        assert!(is_same_origin(&HeaderMap::new()), "programs send none");
        for origin in
            ["https://evil.example", "http://proxy.internal:9901", "null", "", "proxy.internal:9900"]
        {
            assert!(!same(origin, "proxy.internal:9900"), "{origin}");
        }
        let lonely = HeaderMap::from_iter([(ORIGIN, HeaderValue::from_static("http://"))]);
        assert!(!is_same_origin(&lonely));
    }

    #[test]
    fn only_the_whole_token_is_the_token() {
        let token = Secret::new("s3cret");
        let with = |value: &str| {
            bears(&HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(value).unwrap())]), &token)
        };
        assert!(with("Bearer s3cret"));
        assert!(with("bearer s3cret"));
        for wrong in ["Bearer s3cre", "Bearer s3crett", "Bearer ", "Bearer", "Basic s3cret", "s3cret", ""] {
            assert!(!with(wrong), "{wrong}");
        }
        assert!(!bears(&HeaderMap::new(), &token));
    }
}
