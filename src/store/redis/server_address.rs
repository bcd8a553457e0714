//! The host and the port of a server, as Redis and Sentinels write them.

use std::fmt;

/// The host and the port of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ServerAddress {
    pub(crate) host: String,
    /// 0: the host is the path of a socket.
    pub(crate) port: u16,
}

impl ServerAddress {
    /// Parses `HOST:PORT` as Redis writes it: an IPv6 address has no brackets. A missing host is that of the server
    /// that replied, `asked`.
    pub(super) fn parse(text: &str, asked: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Some(Self::new(host, port.parse().ok()?, asked))
    }

    pub(super) fn new(host: &str, port: u16, asked: &str) -> Self {
        // Since version 7 a server may have no preferred endpoint: then its host is empty or `?`.
        let host = if matches!(host, "" | "?") { asked } else { host };
        Self { host: host.to_owned(), port }
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            0 => f.write_str(&self.host),
            port if self.host.contains(':') => write!(f, "[{}]:{port}", self.host.trim_matches(['[', ']'])),
            port => write!(f, "{}:{port}", self.host),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_servers_write_them() {
        for (text, address) in [
            ("127.0.0.1:7000", "127.0.0.1:7000"),
            ("::1:7000", "[::1]:7000"),
            (":7000", "10.0.0.9:7000"),
            ("?:7000", "10.0.0.9:7000"),
        ] {
            assert_eq!(ServerAddress::parse(text, "10.0.0.9").unwrap().to_string(), address);
        }
        assert_eq!(ServerAddress::parse("127.0.0.1", ""), None);
    }
}
