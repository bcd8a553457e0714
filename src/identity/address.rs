//! Addresses of clients as text.

use std::{
    fmt::Write,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use compact_str::CompactString;
use ipnet::Ipv6Net;

/// The address by which a client is known: `203.0.113.7`; of IPv6 its prefix, `2001:db8:1:2::/64`, or
/// the address alone where `ipv6_prefix` is 128. An IPv4-mapped IPv6 address counts as IPv4.
///
/// It costs some tens of nanoseconds, so a connection may keep it.
pub fn address_text(address: IpAddr, ipv6_prefix: u8) -> CompactString {
    match address.to_canonical() {
        IpAddr::V4(address) => ipv4_text(address),
        IpAddr::V6(address) => ipv6_text(address, ipv6_prefix),
    }
}

fn ipv4_text(address: Ipv4Addr) -> CompactString {
    let mut text = CompactString::const_new("");
    let mut digits = itoa::Buffer::new();
    for (at, octet) in address.octets().into_iter().enumerate() {
        if at > 0 {
            text.push('.');
        }
        text.push_str(digits.format(octet));
    }
    text
}

fn ipv6_text(address: Ipv6Addr, prefix: u8) -> CompactString {
    let mut text = CompactString::const_new("");
    // Writing to a string cannot fail.
    let _ = match Ipv6Net::new(address, prefix) {
        Ok(network) if prefix < 128 => write!(text, "{}", network.trunc()),
        _ => write!(text, "{address}"),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_clients_are_known() {
        for (address, prefix, text) in [
            ("203.0.113.7", 64, "203.0.113.7"),
            ("0.0.0.0", 64, "0.0.0.0"),
            ("255.255.255.255", 1, "255.255.255.255"),
            ("::ffff:203.0.113.7", 64, "203.0.113.7"),
            ("2001:db8:1:2:3:4:5:6", 64, "2001:db8:1:2::/64"),
            ("2001:db8:1:2:3:4:5:6", 56, "2001:db8:1::/56"),
            ("2001:db8:1:2:3:4:5:6", 128, "2001:db8:1:2:3:4:5:6"),
            ("2001:db8::1", 128, "2001:db8::1"),
            ("::1", 64, "::/64"),
            ("ffff::", 1, "8000::/1"),
        ] {
            assert_eq!(address_text(address.parse().unwrap(), prefix), text, "{address}/{prefix}");
        }
    }
}
