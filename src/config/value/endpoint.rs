//! Where an upstream answers.

use http::{Uri, uri::Scheme};

use super::{Invalid, host::is_host};
use crate::config::model::Endpoint;

/// Reads `http://HOST[:PORT]`, as an endpoint of weight 1.
pub(in crate::config) fn endpoint_url(text: &str) -> Result<Endpoint, Invalid> {
    let form = "http://HOST or http://HOST:PORT, such as http://127.0.0.1:3000";
    let invalid = |what: &'static str| Invalid::new(what).form(form);
    if !text.contains("://") {
        return Err(invalid("is not a URL").guess(format!("did you mean `http://{text}`?")));
    }
    let url: Uri = text.parse().map_err(|_| invalid("is not a URL"))?;
    match url.scheme() {
        Some(scheme) if *scheme == Scheme::HTTP => {}
        Some(scheme) if *scheme == Scheme::HTTPS => {
            return Err(invalid("asks for TLS to the upstream, which is not supported yet"));
        }
        _ => return Err(invalid("has another scheme than http")),
    }
    if url.path() != "/" || url.query().is_some() || text.contains('#') {
        return Err(invalid("has more than a host and a port: an endpoint takes the request's own path"));
    }
    let authority = url.authority().ok_or_else(|| invalid("has no host"))?.clone();
    if authority.as_str().contains('@') {
        return Err(invalid("has a user name, which is not sent to upstreams"));
    }
    let host = authority.host();
    if !is_host(host) {
        return Err(invalid("has a host that is neither a name nor an address"));
    }
    let port = match authority.as_str().get(host.len()..).unwrap_or_default() {
        "" => 80,
        port => match port.strip_prefix(':').map(str::parse::<u16>) {
            Some(Ok(port)) if port > 0 => port,
            _ => return Err(invalid("has a port that is not one")),
        },
    };
    Ok(Endpoint { url, authority, port, weight: 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_and_a_port() {
        for (text, authority, port) in [
            ("http://127.0.0.1:3000", "127.0.0.1:3000", 3000),
            ("http://orders.internal", "orders.internal", 80),
            ("http://orders_1:81/", "orders_1:81", 81),
            ("HTTP://Orders:81", "Orders:81", 81),
            ("http://[::1]:3000", "[::1]:3000", 3000),
            ("http://[::1]", "[::1]", 80),
        ] {
            let endpoint = endpoint_url(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
            assert_eq!((endpoint.authority.as_str(), endpoint.port), (authority, port), "{text}");
            assert_eq!(endpoint.url.path(), "/");
        }
    }

    #[test]
    fn nothing_else() {
        for (text, what) in [
            ("https://orders", "TLS"),
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
            ("http://127.0.0.999", "neither"),
            ("http://a..b", "neither"),
            ("http://a%20b", ""),
        ] {
            let error = endpoint_url(text).unwrap_err();
            assert!(error.what.contains(what), "{text}: {error:?}");
        }
        let guess = endpoint_url("localhost:3000").unwrap_err().help(false).unwrap();
        assert_eq!(guess, "did you mean `http://localhost:3000`?");
    }
}
