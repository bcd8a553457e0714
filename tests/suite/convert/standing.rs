//! What differs between Tollgate and each of the other programs, whatever the configuration says. This is the whole list;
//! docs/migration/README.md has it for users. What is not here is a fault, or needs a note.
//!
//! 1. **Ambiguous paths get 400**, or 404 if some reading has no route: `//`, `%2f`, `\`, `;`, `%00`, malformed percent-encoding (docs/routes.md).
//! 2. **Dot segments are resolved** before a path is forwarded, and percent-encoding stays as the client sent it, also in a
//!    rewritten path, in which one slash is left of several. An ambiguous path that is not refused passes as it is, where
//!    nginx may decode it and merge slashes before it looks for a location. HAProxy compares and forwards the path as it
//!    came: it is asked with the resolved and decoded one.
//! 3. **`X-Forwarded-For`, `-Proto`, `-Host` are always Tollgate's own**, so that no client can write them, and similar
//!    fields of clients (`X-Real-IP`, `Forwarded`, …) are dropped, unless the configuration sets them itself. Trusted
//!    proxies are believed. `X-Forwarded-Prefix` is added where a prefix is removed; `Via` and `X-Request-Id` always.
//! 4. **The host that a service gets**: the client's is sent with its port, its case, and a dot at its end, where nginx'
//!    `$host` has none of them; of a target with a host it is that one, where nginx' `$http_host` is the field. If it is the service's own, it is that of the endpoint, where nginx sends the name of a group.
//! 5. **The port in a redirect**: nginx adds the port that it listens on, which is another one here, and drops that of
//!    `Host`. `Location` is compared as a client resolves it, without such a port, and with its path as in 2.
//! 6. **Permanent redirects** may be 301 or 308, temporary ones 302, 303 or 307.
//! 7. **Pages of the program's own**: the status of a refusal (401, 403, 404, …) and its text, unless the configuration
//!    has a text for it; and its fields: those that describe it (`Allow`, `WWW-Authenticate`, …), and those that the
//!    configuration adds to responses. The type of HAProxy's page for `monitor-uri`.
//! 8. **Methods in lower case** are refused by nginx, are other methods for HAProxy and Traefik, and are the same for
//!    Tollgate's conditions: the two are asked with the one in upper case.
//! 9. **Fields of a connection and of framing**: `Connection`, `Transfer-Encoding`, trailers, …; `Date` and `Server`.
//! 10. **A field in several lines**: for conditions, one of its values suffices.
//! 11. **Fields that a configuration adds to responses** are added to errors, too, where nginx adds those without `always`
//!     to some statuses only.
//! 12. **`Location` of a service** passes as it is, where nginx' `proxy_redirect default` replaces the service's address.
//! 13. **Fields whose names have underscores** are dropped by nginx. Tollgate drops them where the configuration sets or
//!     removes the field with dashes, which some services take for the same.
//! 14. **A line of a response that is added twice** with one value may be there once.
//! 15. **An empty query** (`/a?`) is left out by nginx where it rewrites a path.
//! 16. **A host in another case, with a port, or with a dot at its end**, is the same host, where HAProxy, nginx'
//!     `$http_host` and Traefik's `redirectRegex` compare texts: they are asked with the plain one.
//! 17. **`Cache-Control: no-cache`** of HAProxy's temporary redirects and of its page for `monitor-uri` is left out.
//! 18. **Fields that a program adds by itself** to what services get, whatever its configuration says
//!     ([`super::source::Source::ADDED`]): Traefik's `X-Forwarded-Port`, `X-Forwarded-Server`, `X-Replaced-Path`, and the
//!     `Accept-Encoding` of its own.
//! 19. **A cookie of stickiness** has a value of its own, and Tollgate's is `HttpOnly` and `SameSite`.
//! 20. **`Vary`** may name more, in any case, and needs no `Accept-Encoding`: Tollgate does not compress.
//! 21. **An answer to a preflight request** has 200 or 204. One of an origin that is not allowed gets 403, where Traefik
//!     answers without `Access-Control-Allow-Origin`. Without that field, and without `Origin`, others of CORS mean
//!     nothing. They list names in any case, and `GET, HEAD, POST` are allowed without them. Tollgate adds the
//!     fields of the configuration to it, Traefik none.
//! 22. **Several limits of one request**: HAProxy and Traefik count in one limit what another denies. Tollgate counts a
//!     request only if all of them admit it.
//! 23. **The type of a text** is the one that the configuration says, where nginx goes by the ending of the path first
//!     (`.html`, `.gif`, `.jpg`, unless there are other `types`).
//! 24. **A value in a query is decoded** before it is compared, where nginx' `$arg_…` compares it as it came: it is asked
//!     with the decoded one.
//! 25. **421**: nginx answers this for a `Host` other than the name in the handshake, if that server asks for
//!     certificates, and Traefik if the host has other options of TLS. Tollgate checks a connection's certificate for all
//!     hosts of the listener, and what is not closed of a listener has the same options for all. They are asked with `Host`
//!     in the handshake.

use super::{
    origins::{ADDED, OWN},
    outcome::{Action, Outcome, sorted},
    sent::Sent,
};

/// Whether Tollgate has refused this request as ambiguous.
pub fn is_refused_as_ambiguous(sent: &Sent, ours: &Outcome) -> bool {
    is_ambiguous(sent) && matches!(ours.action, Action::Refused { status: 400 | 404, .. })
}

/// The request as it means the same to Tollgate: its method in upper case, its host in lower case and alone, also in the
/// handshake, and its query decoded (8, 16, 24, 25).
pub fn plain(sent: &Sent) -> Sent {
    let mut plain = sent.clone();
    plain.method.make_ascii_uppercase();
    for (_, value) in plain.headers.iter_mut().filter(|(name, _)| name == "host") {
        *value = sent.host();
    }
    plain.tls_name = sent.host();
    if let Some((path, query)) = sent.target.split_once('?') {
        plain.target = format!("{path}?{}", decoded(query));
    }
    plain
}

pub fn is_ambiguous(sent: &Sent) -> bool {
    let path = sent.path().to_ascii_lowercase();
    ["//", "%2f", "\\", "%5c", ";", "%3b", "%00"].iter().any(|mark| path.contains(mark))
        || path
            .split('%')
            .skip(1)
            .any(|rest| !rest.as_bytes().get(..2).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit)))
}

/// A path and query as both are compared: dot segments resolved, percent-encoding only where it is needed, and slashes
/// merged.
pub fn comparable(target: &str, sent: &Sent) -> String {
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let mut path = decoded(path);
    if is_ambiguous(sent) {
        path = path.replace("%2F", "/").replace("%3B", ";").replace("%5C", "\\");
    }
    while path.contains("//") {
        path = path.replace("//", "/");
    }
    let mut segments: Vec<&str> = Vec::new();
    let mut rest = path.split('/').skip(1).peekable();
    while let Some(segment) = rest.next() {
        let is_last = rest.peek().is_none();
        match segment {
            "." if is_last => segments.push(""),
            "." => {}
            ".." => {
                segments.pop();
                if is_last {
                    segments.push("");
                }
            }
            segment => segments.push(segment),
        }
    }
    // Where slashes count depends on how often they were merged.
    let path = format!("/{}", segments.join(if is_ambiguous(sent) { "" } else { "/" }));
    match query.filter(|query| !query.is_empty()) {
        Some(query) => format!("{path}?{query}"),
        None => path,
    }
}

/// Without percent-encoding of characters that need none.
fn decoded(path: &str) -> String {
    let bytes = path.as_bytes();
    let mut out = String::new();
    let mut at = 0;
    while at < bytes.len() {
        let hex = path.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if byte.is_ascii_alphanumeric() || b"-._~:@!$&'()*+,=".contains(&byte) => {
                out.push(char::from(byte));
                at += 3;
            }
            Some(byte) => {
                out += &format!("%{byte:02X}");
                at += 3;
            }
            None => {
                out.push(char::from(bytes[at]));
                at += 1;
            }
        }
    }
    out
}

/// Whether a service gets the same host. A name without a dot is that of a group of endpoints.
pub fn is_same_host(theirs: &str, ours: &str, sent: &Sent) -> bool {
    let [theirs, ours] = [theirs, ours].map(str::to_ascii_lowercase);
    let bare = |host: &str| host.split(':').next().unwrap_or_default().trim_end_matches('.').to_owned();
    theirs == ours
        || Some(theirs.as_str()) == sent.header("host") && ours == sent.authority()
        || !theirs.contains(':') && theirs == bare(&ours)
        || !theirs.contains('.') && ours.starts_with("127.0.0.1:")
}

/// `Location` as the client of this request resolves it, without the `ports` of the listeners.
fn resolved(location: &str, sent: &Sent, is_tls: bool, ports: &[u16]) -> String {
    let scheme = if is_tls { "https" } else { "http" };
    let (bare, port) = sent.authority().split_once(':').unwrap_or((sent.authority(), ""));
    let whole = match location {
        location if location.starts_with("//") => format!("{scheme}:{location}"),
        location if location.starts_with('/') => format!("{scheme}://{bare}{location}"),
        location => location.to_owned(),
    };
    let Some((scheme, rest)) = whole.split_once("://") else { return whole };
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let authority = authority.to_ascii_lowercase();
    let is_own = |one: &str| {
        one == port || one.parse().is_ok_and(|one| ports.contains(&one) || one == 80 || one == 443)
    };
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if is_own(port) => host,
        _ => authority.as_str(),
    };
    let host = host.trim_end_matches('.');
    format!("{scheme}://{host}{}", comparable(if path.is_empty() { "/" } else { path }, sent))
}

/// Whether both lead a client to the same place. nginx' `$uri` has the path decoded.
pub fn is_same_location(theirs: &str, ours: &str, sent: &Sent, is_tls: bool, ports: &[u16]) -> bool {
    let [theirs, own, once] =
        [theirs, ours, &ours.replace("%25", "%")].map(|location| resolved(location, sent, is_tls, ports));
    theirs == own || theirs == once
}

/// Whether two statuses of redirects mean the same.
pub fn is_same_redirect(one: u16, other: u16) -> bool {
    let is_permanent = |status| matches!(status, 301 | 308);
    is_permanent(one) == is_permanent(other)
}

/// Whether only Tollgate adds this field to its answer to a preflight.
pub fn is_added_to_preflight(name: &str, sent: &Sent, theirs: &[&str]) -> bool {
    is_preflight(sent) && theirs.is_empty() && !name.starts_with("access-control-")
}

fn is_preflight(sent: &Sent) -> bool {
    sent.method == "OPTIONS" && sent.header("access-control-request-method").is_some()
}

/// Whether two statuses of answers mean the same.
pub fn is_same_answer(one: u16, other: u16, sent: &Sent) -> bool {
    one == other || is_preflight(sent) && [one, other].iter().all(|status| matches!(status, 200 | 204))
}

/// Whether a browser is told that it may send nothing: by an answer of which it misses a field.
pub fn is_denied_preflight(sent: &Sent, theirs: &Outcome) -> bool {
    is_preflight(sent) && theirs.kind() == "answered" && !allows_origin(theirs)
}

/// Whether a page of another origin may see this response.
pub fn allows_origin(outcome: &Outcome) -> bool {
    !outcome.values("access-control-allow-origin").is_empty()
}

/// Whether the program itself has added a field of this name that it adds: the client has not sent it, or Tollgate drops
/// it of clients.
pub fn is_added(name: &str, sent: &Sent) -> bool {
    sent.header(name).is_none() || name.starts_with("x-forwarded-")
}

/// The cookie of stickiness in the configurations.
pub const STICKY: &str = "lb";

/// Whether different values of a field of the response mean the same.
pub fn is_same_field(name: &str, theirs: &[&str], ours: &[&str], sent: &Sent) -> bool {
    let items = |values: &[&str]| -> Vec<String> {
        let items = values.iter().flat_map(|value| value.split(','));
        items.map(|item| item.trim().to_ascii_lowercase()).collect()
    };
    let cookie = |cookie: &&str| match cookie.split_once('=') {
        Some((STICKY, _)) => STICKY.to_owned(),
        _ => (*cookie).to_owned(),
    };
    let is_simple = |item: &String| matches!(item.as_str(), "get" | "head" | "post");
    match name {
        "access-control-allow-methods" if theirs.is_empty() => items(ours).iter().all(is_simple),
        "vary" => {
            let ours = items(ours);
            items(theirs).iter().all(|item| item == "accept-encoding" || ours.contains(item))
        }
        name if name.starts_with("access-control-") => {
            sent.header("origin").is_none() || items(theirs) == items(ours)
        }
        "set-cookie" => theirs.iter().map(cookie).eq(ours.iter().map(cookie)),
        _ => false,
    }
}

/// Fields of requests that are not compared.
pub fn is_of_connection(name: &str) -> bool {
    matches!(
        name,
        "host"
            | "connection"
            | "keep-alive"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "content-length"
            | "upgrade"
            | "expect"
            | "via"
            | "x-request-id"
            | "x-forwarded-prefix"
    )
}

/// Whether what a service gets in this field is Tollgate's own, or a claim of the client that Tollgate drops. If the client
/// is a trusted proxy, what it says of others is passed on.
pub fn is_own_claim(
    name: &str,
    sent: &Sent,
    is_tls: bool,
    is_trusted: bool,
    [theirs, ours]: [&[&str]; 2],
) -> bool {
    let is_claim = name.starts_with("x-forwarded-")
        || matches!(
            name,
            "forwarded" | "x-real-ip" | "x-client-ip" | "true-client-ip" | "x-cluster-client-ip"
        );
    let own = own_value(name, sent, is_tls, is_trusted);
    let is_own = matches!(ours, [value] if own.as_deref() == Some(*value))
        || name == "x-forwarded-host" && ours == [sent.host()];
    // What is neither the client's nor true is a text of the configuration.
    let is_true = |value: &str| match name {
        "x-forwarded-for" => {
            // nginx adds the client that a trusted proxy names.
            let named = sent.header(name).filter(|_| is_trusted).and_then(|list| list.rsplit(", ").next());
            value.ends_with(&sent.peer.to_string()) || named.is_some_and(|named| value.ends_with(named))
        }
        "x-forwarded-host" => value.split(':').next().unwrap_or_default().eq_ignore_ascii_case(&sent.host()),
        // Who is trusted may say otherwise.
        "x-forwarded-proto" => {
            value == if is_tls { "https" } else { "http" } || own.as_deref() == Some(value)
        }
        _ => own.as_deref() == Some(value),
    };
    let mut others = theirs.to_vec();
    if let Some(at) = others.iter().position(|value| sent.header(name) == Some(*value)) {
        others.remove(at);
    }
    // HAProxy adds what it has set once more.
    others.dedup();
    let is_address = others.is_empty() && name == "x-real-ip" && ours == [sent.peer.to_string()];
    is_claim && (is_own && others.iter().all(|value| is_true(value)) || others == ours || is_address)
}

/// What Tollgate itself sends in this field.
fn own_value(name: &str, sent: &Sent, is_tls: bool, is_trusted: bool) -> Option<String> {
    let said = sent.header(name).filter(|_| is_trusted);
    match name {
        "x-forwarded-for" => Some(match said {
            Some(list) => format!("{list}, {}", sent.peer),
            None => sent.peer.to_string(),
        }),
        "x-forwarded-proto" => Some(said.unwrap_or(if is_tls { "https" } else { "http" }).to_owned()),
        "x-forwarded-host" => Some(said.unwrap_or(sent.authority()).to_owned()),
        _ => None,
    }
}

/// Whether nginx knows a type for the ending of the path.
pub fn is_typed_by_path(sent: &Sent) -> bool {
    let path = sent.path();
    [".html", ".htm", ".shtml", ".gif", ".jpg", ".jpeg"].iter().any(|ending| path.ends_with(ending))
}

/// Whether one of the two drops this field for the underscore in its name, and if it is nginx, passes the one with dashes
/// as it came.
pub fn is_underscored(name: &str, sent: &Sent, theirs: &[(String, String)], ours: &[&str]) -> bool {
    let dashed = name.replace('_', "-");
    let is_passed = || sorted(theirs, &dashed) == sent.header(&dashed).into_iter().collect::<Vec<_>>();
    name.contains('_') && (ours.is_empty() || sorted(theirs, name).is_empty() && is_passed())
}

/// Whether two fields have the same values, but for the case of the host in them, its port, and those that are there twice.
pub fn is_same_text(theirs: &[&str], ours: &[&str], sent: &Sent) -> bool {
    let host = sent.host();
    let lower = |values: &[&str]| -> Vec<String> {
        let is_of_host = |value: &str| !host.is_empty() && value.to_ascii_lowercase().contains(&host);
        let given = sent.header("host").unwrap_or_default().to_ascii_lowercase();
        let lower = |value: &&str| match is_of_host(value) {
            true => value.to_ascii_lowercase().replace(&given, &host),
            false => (*value).to_owned(),
        };
        let mut values: Vec<String> = values.iter().map(lower).collect();
        values.dedup();
        values
    };
    lower(theirs) == lower(ours)
}

/// Whether Tollgate passes the `Location` of a service that does not know what it is called.
pub fn is_own_location(theirs: &[&str], ours: &[&str]) -> bool {
    theirs.len() == 1 && ours == [OWN]
}

/// Whether HAProxy adds this field to responses of its own.
pub fn is_own_cache_control(name: &str, theirs: &[&str], ours: &[&str]) -> bool {
    name == "cache-control" && theirs == ["no-cache"] && ours.is_empty()
}

/// Fields of responses that are not compared.
pub fn is_of_response(name: &str) -> bool {
    matches!(
        name,
        "date"
            | "server"
            | "via"
            | "x-request-id"
            | "connection"
            | "keep-alive"
            | "transfer-encoding"
            | "content-length"
            | "ratelimit"
            | "ratelimit-policy"
            | "retry-after"
    )
}

/// Whether Tollgate only adds fields to a response with a status to which nginx adds none without `always`.
pub fn is_added_to_error(status: u16, name: &str, theirs: &[&str], ours: &[&str]) -> bool {
    let is_origin_s = |value: &&&str| ADDED.contains(&(name, **value));
    !matches!(status, 200 | 201 | 204 | 206 | 301..=304 | 307 | 308)
        && theirs.iter().all(|value| ours.contains(value))
        && !ours.iter().filter(|value| !theirs.contains(value)).any(|value| is_origin_s(&value))
}

/// Fields that only forbid a browser something, or protect it: they are not left out, whatever a note says.
pub fn is_protection(name: &str) -> bool {
    matches!(
        name,
        "strict-transport-security"
            | "content-security-policy"
            | "x-frame-options"
            | "x-content-type-options"
    )
}
