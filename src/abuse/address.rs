//! Client addresses in text: `203.0.113.7`, and `2001:db8::/64` for the part of an IPv6 address that identifies a
//! client.

use std::net::IpAddr;

use compact_str::{CompactString, format_compact};
use ipnet::IpNet;

/// Reads an address in this form, or any other prefix. `None` if it is invalid.
pub fn parse(text: &str) -> Option<IpNet> {
    let net = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    net.ok().map(|net| net.trunc())
}

/// The client that `address` belongs to: an IPv4-mapped address counts as IPv4, any other IPv6 address as
/// its first `ipv6_prefix` bits.
pub fn masked(address: IpAddr, ipv6_prefix: u8) -> IpNet {
    match address.to_canonical() {
        IpAddr::V4(address) => IpNet::from(IpAddr::V4(address)),
        IpAddr::V6(address) => {
            let address = IpAddr::V6(address);
            IpNet::new(address, ipv6_prefix).unwrap_or_else(|_| IpNet::from(address)).trunc()
        }
    }
}

/// The text of an address: without a prefix length if it is the full length.
pub fn shown(client: IpNet) -> CompactString {
    if client.prefix_len() == client.max_prefix_len() {
        format_compact!("{}", client.addr())
    } else {
        format_compact!("{client}")
    }
}

/// The identifier of limits by address: `ip:203.0.113.7`.
pub fn identifier(shown: &str) -> CompactString {
    format_compact!("ip:{shown}")
}

/// The client of an identifier that names only an address.
pub fn from_identifier(identifier: &str) -> Option<IpNet> {
    parse(identifier.strip_prefix("ip:")?)
}

/// Whether an identifier of limits contains more than an address: a user, or part of the request.
pub fn names_more_than_an_address(identifier: &str) -> bool {
    !identifier.starts_with("ip:") || identifier.contains('+')
}

/// Whether `identifier` is the address's own, or a composite that begins with it (`ip:…+path:/a`).
pub fn is_identifier_of(identifier: &str, shown: &str) -> bool {
    let rest = identifier.strip_prefix("ip:").and_then(|rest| rest.strip_prefix(shown));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('+'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_shown_as_it_is_read() {
        for text in ["203.0.113.7", "2001:db8::/64", "2001:db8::1"] {
            assert_eq!(parse(text).map(shown).as_deref(), Some(text));
        }
        assert_eq!(parse("2001:db8::1/64").map(shown).as_deref(), Some("2001:db8::/64"));
        assert_eq!(parse("203.0.113"), None);
    }

    #[test]
    fn addresses_belong_to_their_prefix() {
        let of = |text: &str, prefix| shown(masked(text.parse().unwrap(), prefix));
        assert_eq!(of("2001:db8::aaaa:1", 64), "2001:db8::/64");
        assert_eq!(of("2001:db8::1", 128), "2001:db8::1");
        assert_eq!(of("::ffff:203.0.113.7", 64), "203.0.113.7");
        assert_eq!(of("203.0.113.7", 64), "203.0.113.7");
    }

    #[test]
    fn composites_are_the_address_s_and_longer_addresses_are_not() {
        assert!(is_identifier_of("ip:203.0.113.7", "203.0.113.7"));
        assert!(is_identifier_of("ip:203.0.113.7+path:/a", "203.0.113.7"));
        assert!(!is_identifier_of("ip:203.0.113.70", "203.0.113.7"));
        assert!(!is_identifier_of("user:203.0.113.7", "203.0.113.7"));
    }
}
