//! Addresses: sockets, networks and hosts.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;

use super::Invalid;
use crate::{
    address_set::{canonical, read_addresses},
    config::model::{ListenAddress, UnixSocket},
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
pub(super) fn is_host(text: &str) -> bool {
    match text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        Some(literal) => literal.parse::<Ipv6Addr>().is_ok(),
        // Digits and dots alone are an IPv4 address, or a misspelled one.
        None if text.chars().all(|c| c.is_ascii_digit() || c == '.') => text.parse::<Ipv4Addr>().is_ok(),
        None => is_domain(text),
    }
}

/// Labels of letters, digits, `-` and `_`, separated by dots. RFC 1123 has no underscore, but many names in use do.
pub(super) fn is_domain(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    text.len() <= 253 && text.split('.').all(label)
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
