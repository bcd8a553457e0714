//! The address of the admin port: `--admin`.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    str::FromStr,
};

use http::uri::Authority;

/// The default port of the admin port, also if `--admin` is only a host.
const DEFAULT_PORT: u16 = 9900;
/// The port of a URL without one.
const HTTP_PORT: u16 = 80;

/// An HTTP URL without a path. Read from `127.0.0.1:9900`, `http://127.0.0.1:9900`, `localhost`, `:9900` or `::1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AdminUrl {
    /// An IPv6 address is in brackets.
    host: String,
    port: u16,
}

impl AdminUrl {
    /// The host and port to connect to.
    pub(super) fn host_and_port(&self) -> (&str, u16) {
        (self.host.trim_start_matches('[').trim_end_matches(']'), self.port)
    }

    /// The value of the field `Host`.
    pub(super) fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

impl fmt::Display for AdminUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}:{}", self.host, self.port)
    }
}

impl From<SocketAddr> for AdminUrl {
    fn from(address: SocketAddr) -> Self {
        let host = match address.ip() {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        Self { host, port: address.port() }
    }
}

impl FromStr for AdminUrl {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "write HOST:PORT or http://HOST:PORT";
        let (rest, default_port) = match text.split_once("://") {
            None => (text, DEFAULT_PORT),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (rest, HTTP_PORT),
            Some((scheme, _)) if scheme.eq_ignore_ascii_case("https") => {
                return Err(
                    "the admin port does not speak TLS: write http://, and use a tunnel (ssh -L) to reach it from \
                     elsewhere",
                );
            }
            Some(_) => return Err(FORM),
        };
        if let Ok(ip) = rest.parse::<IpAddr>() {
            return Ok(SocketAddr::new(ip, default_port).into());
        }
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains(['/', '?', '#']) {
            return Err("write it without a path: HOST:PORT or http://HOST:PORT");
        }
        let local = rest.starts_with(':').then(|| format!("127.0.0.1{rest}"));
        let authority: Authority = local.as_deref().unwrap_or(rest).parse().map_err(|_| FORM)?;
        let host = authority.host();
        if host.starts_with('[') && host.trim_matches(['[', ']']).parse::<Ipv6Addr>().is_err() {
            return Err(FORM);
        }
        // Digits alone are probably a port, and not an address in decimal form.
        if host.is_empty()
            || authority.as_str().contains('@')
            || host.bytes().all(|byte| byte.is_ascii_digit())
        {
            return Err(FORM);
        }
        // Only a port may follow the host.
        let port = match authority.as_str().get(host.len()..).unwrap_or_default() {
            "" => default_port,
            rest => rest
                .strip_prefix(':')
                .filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
                .and_then(|port| port.parse().ok())
                .filter(|port| *port > 0)
                .ok_or(FORM)?,
        };
        Ok(Self { host: host.to_owned(), port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_host_and_a_port_or_a_url() {
        for (written, url) in [
            ("127.0.0.1:9900", "http://127.0.0.1:9900"),
            ("http://127.0.0.1:9900", "http://127.0.0.1:9900"),
            ("HTTP://127.0.0.1:9900/", "http://127.0.0.1:9900"),
            ("127.0.0.1:9900/", "http://127.0.0.1:9900"),
            ("admin.example.com:81", "http://admin.example.com:81"),
            ("localhost", "http://localhost:9900"),
            ("10.0.0.1", "http://10.0.0.1:9900"),
            (":9901", "http://127.0.0.1:9901"),
            ("::1", "http://[::1]:9900"),
            ("[::1]:9901", "http://[::1]:9901"),
            ("http://localhost", "http://localhost:80"),
        ] {
            assert_eq!(
                written.parse::<AdminUrl>().map(|url| url.to_string()).as_deref(),
                Ok(url),
                "{written}"
            );
        }
        assert_eq!("[::1]:9901".parse::<AdminUrl>().unwrap().host_and_port(), ("::1", 9901));
    }

    #[test]
    fn a_text_that_is_no_admin_url_is_refused_with_the_form() {
        for wrong in [
            "",
            "http://",
            "ftp://x",
            "a@b",
            "http://a@b:1",
            "a b",
            "9900",
            "a:",
            "a:b",
            "a:0",
            "a:65536",
            "[::1",
            "::1:x",
            "[::1].example:9900",
            "[::1].example",
            "[example]:9900",
            "a:+80",
        ] {
            let error = wrong.parse::<AdminUrl>().unwrap_err();
            assert!(error.starts_with("write HOST:PORT"), "{wrong}: {error}");
        }
        assert!("http://a:1/b".parse::<AdminUrl>().unwrap_err().contains("without a path"));
        assert!("https://a:1".parse::<AdminUrl>().unwrap_err().contains("does not speak TLS"));
    }
}
