//! Addresses of clients as text.

use std::{
    fmt::Write,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use compact_str::CompactString;
use ipnet::Ipv6Net;

/// The prefix of the address.
const KIND: &str = "ip:";

/// The identifier of a client's address: `ip:203.0.113.7`; of IPv6 its prefix, `ip:2001:db8:1:2::/64`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressIdentifier(CompactString);

impl AddressIdentifier {
    /// Keeps the first `ipv6_prefix` bits of an IPv6 address. An IPv4-mapped IPv6 address counts as IPv4.
    ///
    /// Takes some tens of nanoseconds, so a connection may cache it.
    pub fn new(address: IpAddr, ipv6_prefix: u8) -> Self {
        let mut text = CompactString::const_new(KIND);
        match address.to_canonical() {
            IpAddr::V4(address) => push_ipv4(&mut text, address),
            IpAddr::V6(address) => push_ipv6(&mut text, address, ipv6_prefix),
        }
        Self(text)
    }

    /// The whole identifier: `ip:203.0.113.7`.
    pub fn identifier(&self) -> &CompactString {
        &self.0
    }

    /// The address alone, which names the client: `203.0.113.7`.
    pub fn address(&self) -> &str {
        self.0.get(KIND.len()..).unwrap_or_default()
    }
}

fn push_ipv4(text: &mut CompactString, address: Ipv4Addr) {
    let mut digits = itoa::Buffer::new();
    for (at, octet) in address.octets().into_iter().enumerate() {
        if at > 0 {
            text.push('.');
        }
        text.push_str(digits.format(octet));
    }
}

fn push_ipv6(text: &mut CompactString, address: Ipv6Addr, prefix: u8) {
    // Writing to a string cannot fail.
    let _ = match Ipv6Net::new(address, prefix) {
        Ok(network) if prefix < 128 => write!(text, "{}", network.trunc()),
        _ => write!(text, "{address}"),
    };
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
            let identifier = AddressIdentifier::new(address.parse().unwrap(), prefix);
            assert_eq!(identifier.address(), text, "{address}/{prefix}");
            assert_eq!(*identifier.identifier(), format!("ip:{text}"));
        }
    }
}
