//! A listener's own replies, before routes and limits: a redirect to https, or the error that a certificate is
//! missing.

use http::{HeaderMap, HeaderValue, StatusCode};

use super::{headers::X_FORWARDED_PROTO, reply::Reply};
use crate::{config::model::Listener, router::Target};

/// The reply to the requests of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListenerReply {
    /// Redirect to https, at this port.
    RedirectToHttps(u16),
    /// The client has shown no certificate.
    CertificateRequired(StatusCode),
}

impl ListenerReply {
    /// The reply to the requests of a connection to `listener`, if it does not serve them. `has_certificate`: whether
    /// the client has a valid certificate.
    pub(super) fn new(listener: &Listener, has_certificate: bool) -> Option<Self> {
        if let Some(redirect) = &listener.redirect {
            return Some(Self::RedirectToHttps(redirect.port));
        }
        let required = listener.tls.as_ref()?.client_auth.as_ref()?.required.filter(|_| !has_certificate)?;
        Some(Self::CertificateRequired(StatusCode::from_u16(required).unwrap_or(StatusCode::FORBIDDEN)))
    }

    /// Whether the reply is for the request with these fields. If a trusted proxy says that its client used HTTPS,
    /// the request is not redirected there again.
    pub(super) fn is_for(self, headers: &HeaderMap, is_peer_trusted: bool) -> bool {
        let is_https = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"https");
        match self {
            Self::RedirectToHttps(_) => {
                !(is_peer_trusted && headers.get(&X_FORWARDED_PROTO).is_some_and(is_https))
            }
            Self::CertificateRequired(_) => true,
        }
    }

    /// The reply to the request for `target`.
    pub(super) fn reply(self, target: &Target) -> Reply {
        match self {
            Self::RedirectToHttps(port) => redirect(target, port),
            Self::CertificateRequired(status) => {
                Reply::problem(status, "This server requires a valid client certificate, and none was sent.")
            }
        }
    }
}

/// The redirect (RFC 9110, 15.4.9): the client repeats the request unchanged. The host is the requested one, without
/// its port.
fn redirect(target: &Target, port: u16) -> Reply {
    let Some(host) = target.host() else {
        let detail = "This address serves HTTPS only, and without a Host header it can't say where.";
        return Reply::problem(StatusCode::BAD_REQUEST, detail);
    };
    let port = if port == 443 { String::new() } else { format!(":{port}") };
    let location = format!("https://{}{port}{}", host.name(), target.path_and_query());
    Reply::redirect(StatusCode::PERMANENT_REDIRECT, &location, "Use HTTPS.")
}

#[cfg(test)]
mod tests {
    use http::{Method, Uri, Version, header};

    use super::*;

    fn location(host: &str, uri: &str, port: u16) -> String {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        let uri: Uri = uri.parse().unwrap();
        let target = Target::parse(&Method::GET, &uri, Version::HTTP_11, &headers).unwrap();
        let reply = ListenerReply::RedirectToHttps(port).reply(&target);
        assert_eq!(reply.status, 308);
        reply.headers[header::LOCATION].to_str().unwrap().to_owned()
    }

    #[test]
    fn host_path_and_query_are_kept() {
        assert_eq!(location("api.example.com", "/a?b=c", 443), "https://api.example.com/a?b=c");
        assert_eq!(location("api.example.com:8080", "/", 443), "https://api.example.com/");
        assert_eq!(location("api.example.com:80", "/", 8443), "https://api.example.com:8443/");
        assert_eq!(location("[2001:db8::1]:80", "/x", 8443), "https://[2001:db8::1]:8443/x");
        assert_eq!(location("other", "http://api.example.com/x", 443), "https://api.example.com/x");
    }

    #[test]
    fn a_request_without_a_host_is_told_so() {
        let target =
            Target::parse(&Method::GET, &Uri::from_static("/"), Version::HTTP_10, &HeaderMap::new()).unwrap();
        assert_eq!(ListenerReply::RedirectToHttps(443).reply(&target).status, 400);
    }
}
