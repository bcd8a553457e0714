//! Addresses: sockets, networks and hosts.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
};

use ipnet::IpNet;
use serde::{Serialize, Serializer};

use crate::{
    address_set::{canonical, read_addresses},
    config::value::Invalid,
};

/// The longest path of a Unix socket, in bytes (unix(7)).
const MAX_SOCKET_PATH: usize = 107;

/// Reads where a listener listens: a socket address, or `unix:/run/tollgate.sock`.
pub(in crate::config) fn listen_address(text: &str) -> Result<ListenAddress, Invalid> {
    let Some(path) = text.strip_prefix("unix:") else {
        return socket_address(text).map(ListenAddress::Tcp);
    };
    if !path.starts_with('/') || path.ends_with('/') {
        return Err(Invalid::new("is not the absolute path of a Unix socket")
            .expected("such as unix:/run/tollgate.sock"));
    }
    if path.len() > MAX_SOCKET_PATH {
        return Err(
            Invalid::new("has a longer path than a Unix socket may have").expected("107 bytes at most")
        );
    }
    let socket = UnixSocket { path: path.into(), mode: None, owner: None, group: None };
    Ok(ListenAddress::Unix(socket))
}

/// Reads the permission bits of a file: `0660`.
pub(in crate::config) fn file_mode(text: &str) -> Result<u32, Invalid> {
    let mode = (3..=4).contains(&text.len()).then(|| u32::from_str_radix(text, 8).ok()).flatten();
    mode.filter(|mode| *mode <= 0o777).ok_or_else(|| {
        Invalid::new("is not a mode of a file").expected("three octal digits, such as \"0660\"")
    })
}

/// Reads `0.0.0.0:8080` or `[::]:8080`.
pub(in crate::config) fn socket_address(text: &str) -> Result<SocketAddr, Invalid> {
    let expected =
        "write an IP address and a port: 127.0.0.1:8080, \"[::]:8080\", or 0.0.0.0:8080 for every address";
    if text.starts_with("unix:") {
        return Err(Invalid::new("is a Unix socket, which only a listener can be").expected(expected));
    }
    text.parse().map_err(|_| {
        let invalid = Invalid::new("is not an address to listen on").expected(expected);
        let plain = ["http://", "https://", "tcp://"].iter().find_map(|scheme| text.strip_prefix(scheme));
        let plain = plain.unwrap_or(text).trim_end_matches('/');
        // In nginx, further words follow the address.
        let plain = plain.split(' ').next().unwrap_or_default();
        if plain != text && plain.parse::<SocketAddr>().is_ok() {
            return invalid.suggestion(format!("did you mean `{plain}`?"));
        }
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return invalid.suggestion(format!("add a port: `{address}:8080`"));
        }
        let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
        match (host, port.parse::<u16>()) {
            ("localhost", Ok(port)) => invalid.suggestion(format!("did you mean `127.0.0.1:{port}`?")),
            ("" | "*", Ok(port)) => invalid.suggestion(format!("did you mean `0.0.0.0:{port}`?")),
            (host, Ok(port)) if host.parse::<Ipv6Addr>().is_ok() => {
                invalid.suggestion(format!("did you mean `\"[{host}]:{port}\"`?"))
            }
            _ => invalid,
        }
    })
}

/// Reads the address of a DNS server: `10.0.0.2`, `127.0.0.1:5353`, `[::1]:53`.
pub(in crate::config) fn dns_server(text: &str) -> Result<SocketAddr, Invalid> {
    let address = text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 53)).or_else(|_| text.parse());
    let address = address.ok().filter(|address| address.port() != 0 && !address.ip().is_unspecified());
    address.ok_or_else(|| {
        Invalid::new("is not the address of a DNS server")
            .expected("an IP address, with its port unless that is 53, such as 10.0.0.2 or 127.0.0.1:5353")
    })
}

/// Reads `203.0.113.7`, `10.0.0.0/8`, `2001:db8::/32`. An IPv4-mapped address (`::ffff:10.0.0.1`) becomes IPv4.
pub(in crate::config) fn network(text: &str) -> Result<IpNet, Invalid> {
    let invalid = || {
        Invalid::new("is not an address or a network")
            .expected("such as 203.0.113.7, 10.0.0.0/8, \"2001:db8::/32\"")
    };
    let network = text.parse::<IpAddr>().map(IpNet::from).or_else(|_| text.parse()).map_err(|_| invalid())?;
    let network = canonical(&network);
    if network.trunc() == network {
        return Ok(network);
    }
    let (whole, one) = (network.trunc(), network.addr());
    Err(Invalid::new("has bits set beyond its prefix length")
        .suggestion(format!("write `{whole}` for the network, or `{one}` for the single address")))
}

/// Checks a file that lists addresses and networks.
pub(in crate::config) fn address_file(bytes: &[u8]) -> Result<(), Invalid> {
    read_addresses(bytes).map(drop).map_err(|error| {
        Invalid::new(format!("can't be used: {error}"))
            .expected("write one address or network a line; # begins a comment")
    })
}

/// Whether `text` is the host of a URL: a name, or an address, IPv6 in brackets.
pub(in crate::config) fn is_host(text: &str) -> bool {
    match text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        Some(literal) => literal.parse::<Ipv6Addr>().is_ok(),
        // Digits and dots alone are an IPv4 address, or a misspelled one.
        None if text.chars().all(|c| c.is_ascii_digit() || c == '.') => text.parse::<Ipv4Addr>().is_ok(),
        None => is_domain(text),
    }
}

/// Labels of letters, digits, `-` and `_`, separated by dots. RFC 1123 has no underscore, but many names in use do.
pub(in crate::config) fn is_domain(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    text.len() <= 253 && text.split('.').all(label)
}

/// Where a socket listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAddress {
    Tcp(SocketAddr),
    Unix(UnixSocket),
}

impl ListenAddress {
    /// Whether both are the same address. Permissions of Unix sockets are not compared.
    pub fn is_same_address(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Tcp(one), Self::Tcp(other)) => one == other,
            (Self::Unix(one), Self::Unix(other)) => one.path == other.path,
            (Self::Tcp(_), Self::Unix(_)) | (Self::Unix(_), Self::Tcp(_)) => false,
        }
    }

    /// Whether the two cannot both have a socket: `0.0.0.0` is all addresses of IPv4, and `[::]` all addresses of IPv6.
    /// Port 0 is any free port.
    pub fn overlaps(&self, other: &Self) -> bool {
        let (Self::Tcp(one), Self::Tcp(other)) = (self, other) else { return self.is_same_address(other) };
        let is_any = one.ip().is_unspecified() || other.ip().is_unspecified();
        let is_shared = one.ip() == other.ip() || is_any && one.is_ipv4() == other.is_ipv4();
        is_shared && one.port() == other.port() && one.port() != 0
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(socket) => write!(f, "unix:{}", socket.path.display()),
        }
    }
}

impl Serialize for ListenAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A Unix socket, and who may connect to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnixSocket {
    pub path: PathBuf,
    /// Permission bits. `None`: the umask decides.
    pub mode: Option<u32>,
    /// A name or a number; the process' own otherwise.
    pub owner: Option<String>,
    /// A name or a number; the process' own otherwise.
    pub group: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets() {
        assert_eq!(socket_address("0.0.0.0:8080"), Ok(([0, 0, 0, 0], 8080).into()));
        assert_eq!(socket_address("[::]:80"), Ok((Ipv6Addr::UNSPECIFIED, 80).into()));
        let suggestion = |text| socket_address(text).unwrap_err().help(false).unwrap();
        assert_eq!(suggestion("localhost:80"), "did you mean `127.0.0.1:80`?");
        assert_eq!(suggestion("8080"), "did you mean `0.0.0.0:8080`?");
        assert_eq!(suggestion(":::8080"), "did you mean `\"[::]:8080\"`?");
        assert!(socket_address("unix:/run/t.sock").unwrap_err().reason.contains("Unix"));
        for text in ["", "1.2.3.4", "1.2.3.4:99999", "example.com:80", "1.2.3.4:-1"] {
            assert!(socket_address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn networks() {
        let shown = |text: &str| network(text).map(|n| n.to_string()).map_err(|e| e.help(false).unwrap());
        assert_eq!(shown("203.0.113.7"), Ok("203.0.113.7/32".to_owned()));
        assert_eq!(shown("10.0.0.0/8"), Ok("10.0.0.0/8".to_owned()));
        assert_eq!(shown("2001:db8::/32"), Ok("2001:db8::/32".to_owned()));
        assert_eq!(shown("::ffff:10.0.0.1"), Ok("10.0.0.1/32".to_owned()));
        assert_eq!(shown("::ffff:10.0.0.0/104"), Ok("10.0.0.0/8".to_owned()));
        assert_eq!(shown("0.0.0.0/0"), Ok("0.0.0.0/0".to_owned()));
        assert_eq!(
            shown("10.0.0.1/8"),
            Err("write `10.0.0.0/8` for the network, or `10.0.0.1` for the single address".to_owned())
        );
        for text in ["", "10.0.0.0/33", "10/8", "example.com", "10.0.0.0/"] {
            assert!(network(text).is_err(), "{text}");
        }
    }
}
