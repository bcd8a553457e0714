//! Who may ask. Every path but those of health, and what it takes to sign in, stands behind this.

use std::{net::IpAddr, sync::Arc, time::Instant};

use axum::{
    body::Body,
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{
    HeaderMap, HeaderValue, Method, StatusCode, Uri,
    header::{
        AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HOST, ORIGIN, RETRY_AFTER, WWW_AUTHENTICATE,
        X_CONTENT_TYPE_OPTIONS,
    },
    uri::Authority,
};
use http_body::Body as _;
use subtle::ConstantTimeEq;

use super::{
    connection_slots::Place, context::HandlerContext, extract::Peer, page, problem::Problem, session,
};
use crate::config::model::Secret;

/// Refuses whoever may not ask; marks answers as nothing to keep or to guess at.
pub(super) async fn authorize(
    State(context): State<Arc<HandlerContext>>,
    request: Request,
    next: Next,
) -> Response {
    let open = matches!(request.uri().path(), "/healthz" | "/readyz");
    let now = context.state.clock.now();
    let refused = if open { None } else { refuse(&context, &request, now) };
    if refused.is_none()
        && !open
        && (context.state.token.is_none() || !page::is_for_strangers(request.uri().path()))
        && let Some(place) = request.extensions().get::<Arc<Place>>()
    {
        place.let_in();
    }
    let mut response = match refused {
        Some(response) => response,
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn refuse(context: &HandlerContext, request: &Request, now: i64) -> Option<Response> {
    let headers = request.headers();
    let is_of_a_program = match context.state.token.as_ref() {
        Some(token) => match shown(context, request, token, now) {
            Ok(is_borne) => is_borne,
            Err(refused) => return Some(*refused),
        },
        None if !is_local(request.uri(), headers) => {
            let detail = "without a token only loopback may ask: Host and Origin must be 127.0.0.1, [::1] or localhost";
            return Some(Problem::new(StatusCode::FORBIDDEN, detail).into_response());
        }
        None => false,
    };
    // A browser sends its cookie along, or comes from loopback, whoever's page it shows.
    let has_token = context.state.token.is_some();
    if !is_of_a_program && (is_from_elsewhere(request) || has_token && !is_same_origin(headers)) {
        let detail = "a page from elsewhere may not ask: Origin must be the same as Host";
        return Some(Problem::new(StatusCode::FORBIDDEN, detail).into_response());
    }
    if changes(request.method()) && !is_json(request) {
        let detail = "what changes something takes application/json only";
        return Some(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail).into_response());
    }
    None
}

/// Whether a request bears the token itself, as programs do; otherwise it is of somebody who has signed in, or for what is
/// for strangers, too. There nobody is told whether a token that he brings along is right.
fn shown(
    context: &HandlerContext,
    request: &Request,
    token: &Secret,
    now: i64,
) -> Result<bool, Box<Response>> {
    let path = request.uri().path();
    if page::is_for_strangers(path) || session::holds(token, request.headers(), now) {
        return Ok(false);
    }
    match looked_at(context, request, token) {
        Some(true) => Ok(true),
        None => Err(Box::new(enough())),
        Some(false) => {
            let is_look = matches!(*request.method(), Method::GET | Method::HEAD);
            let asks_for_page = is_look && page::is_page(path);
            Err(Box::new(if asks_for_page { page::to_login(request.uri()) } else { unauthorized() }))
        }
    }
}

/// Whether a request bears the token. `None`: its address has been wrong too often of late, and it is not looked at.
fn looked_at(context: &HandlerContext, request: &Request, token: &Secret) -> Option<bool> {
    if !request.headers().contains_key(AUTHORIZATION) {
        return Some(false);
    }
    let peer = request.extensions().get::<Peer>().map_or(IpAddr::from([0, 0, 0, 0]), |&Peer(peer)| peer);
    if !context.borne.may_guess(peer, Instant::now()) {
        return None;
    }
    let bears = bears(request.headers(), token);
    if !bears && context.borne.wrong(peer, Instant::now()) {
        tracing::warn!(%peer, "somebody asked the admin port with a wrong token");
    }
    Some(bears)
}

/// To whoever guesses the token.
pub(super) fn enough() -> Response {
    let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "too many wrong tokens: try again in a second");
    ([(RETRY_AFTER, "1")], problem).into_response()
}

fn unauthorized() -> Response {
    let problem =
        Problem::new(StatusCode::UNAUTHORIZED, "this needs Authorization: Bearer with the admin token");
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

/// A page in the operator's browser may have had its own name resolved to loopback (DNS rebinding): its
/// requests bear that name.
fn is_local(uri: &Uri, headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(HOST).iter().peekable();
    let named = hosts.peek().is_some();
    let host = |value: &HeaderValue| {
        value
            .to_str()
            .ok()
            .and_then(|text| text.parse::<Authority>().ok())
            .is_some_and(|a| is_loopback(a.host()))
    };
    let origin = |value: &HeaderValue| {
        let uri = value.to_str().ok().and_then(|text| text.parse::<Uri>().ok());
        uri.as_ref().and_then(Uri::host).is_some_and(is_loopback)
    };
    named
        && hosts.all(host)
        && uri.host().is_none_or(is_loopback)
        && headers.get_all(ORIGIN).iter().all(origin)
}

/// Whether a browser says that the page of another site asks (Fetch Metadata). It may lead here, as links do, but not use
/// what is here in itself: pictures of a foreign page bear no Origin.
fn is_from_elsewhere(request: &http::Request<Body>) -> bool {
    let says = |name: &str| request.headers().get(name).map(HeaderValue::as_bytes);
    let is_led = matches!(*request.method(), Method::GET | Method::HEAD)
        && says("sec-fetch-mode") == Some(b"navigate")
        && says("sec-fetch-dest") == Some(b"document");
    matches!(says("sec-fetch-site"), Some(b"cross-site" | b"same-site")) && !is_led
}

/// Browsers leave out the port in both where it is the scheme's own.
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

fn is_loopback(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn changes(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// A form in a foreign page can't say this without asking first (CORS), and nobody answers that.
fn is_json(request: &http::Request<Body>) -> bool {
    match request.headers().get(CONTENT_TYPE) {
        None => request.body().is_end_stream(),
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
        ] {
            assert!(!local("/", &[(HOST, host)]), "{host}");
        }
        assert!(!local("/", &[]), "no Host at all");
        assert!(!local("/", &[(HOST, "localhost"), (HOST, "evil.example")]));
        assert!(!local("http://evil.example/", &[(HOST, "localhost")]));
        for origin in ["http://evil.example", "null", "", "http://127.0.0.1.evil.example"] {
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
