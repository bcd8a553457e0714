//! The reach of a ban beyond a single client, which the operator has to confirm.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::{
    abuse::{UserNaming, bans::BannedKey},
    config::model::TrustedProxy,
};

/// A shorter prefix is a part of the internet rather than a client's network: in IPv6 a provider has a /32.
const SHORTEST_IPV4: u8 = 8;
const SHORTEST_IPV6: u8 = 32;
/// The addresses by which a machine reaches itself.
const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
/// Trusted proxies that are named; the others are only counted.
const MAX_NAMED: usize = 4;

/// Lists in words whom a ban of `key` would shut out besides a client. `operator`: the address of the operator's
/// request.
pub(super) fn shut_out(
    key: &BannedKey,
    operator: Option<IpAddr>,
    trusted_proxies: &[TrustedProxy],
) -> Vec<String> {
    let BannedKey::Address(net) = key else { return Vec::new() };
    let mut found: Vec<String> = part_of_the_internet(net).into_iter().collect();
    for loopback in LOOPBACK.iter().filter(|loopback| net.contains(*loopback)) {
        found.push(format!("this machine itself ({loopback})"));
    }
    let operator = operator.map(|address| address.to_canonical());
    if let Some(address) = operator.filter(|address| !LOOPBACK.contains(address) && net.contains(address)) {
        found.push(format!("your own address {address}"));
    }
    let mut proxies = trusted_proxies.iter().filter_map(network).filter(|proxy| overlap(proxy, net));
    found.extend(proxies.by_ref().take(MAX_NAMED).map(|proxy| format!("the trusted proxy {proxy}")));
    match proxies.count() {
        0 => {}
        more => found.push(format!("{more} more of trusted_proxies")),
    }
    found
}

/// `None` if every peer is trusted: then no ban shuts out more proxies than another.
fn network(proxy: &TrustedProxy) -> Option<IpNet> {
    let TrustedProxy::Network(network) = proxy else { return None };
    // The network of an IPv4-mapped prefix is an IPv4 network.
    match BannedKey::parse(&network.trunc().to_string(), 128, &UserNaming::default()) {
        Ok(BannedKey::Address(network)) => Some(network),
        _ => None,
    }
}

fn overlap(one: &IpNet, other: &IpNet) -> bool {
    one.contains(other) || other.contains(one)
}

fn part_of_the_internet(net: &IpNet) -> Option<String> {
    let length = net.prefix_len();
    match net {
        IpNet::V4(_) if length < SHORTEST_IPV4 => {
            Some(format!("one in {} of all IPv4 addresses", 1_u64 << length))
        }
        IpNet::V6(_) if length < SHORTEST_IPV6 => {
            let networks = 1_u64 << (SHORTEST_IPV6 - length);
            Some(format!("{networks} IPv6 networks of the size that a provider has (/{SHORTEST_IPV6})"))
        }
        IpNet::V4(_) | IpNet::V6(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(key: &str, operator: &str) -> String {
        let network = |text: &str| TrustedProxy::Network(text.parse().unwrap());
        let proxies = ["10.1.0.0/16", "::ffff:192.0.2.1/128", "::/0"].map(network);
        let key = BannedKey::parse(key, 64, &UserNaming::default()).unwrap();
        shut_out(&key, operator.parse().ok(), &proxies).join(", ")
    }

    #[test]
    fn addresses_that_a_ban_would_shut_out_are_named() {
        let operator = "198.51.100.7";
        for (key, expected) in [
            ("203.0.113.7", ""),
            ("203.0.0.0/8", ""),
            ("2001:db8::/32", ""),
            ("user:acme", ""),
            ("128.0.0.0/2", "one in 4 of all IPv4 addresses"),
            ("2c00::/12", "1048576 IPv6 networks of the size that a provider has (/32)"),
            ("127.0.0.1", "this machine itself (127.0.0.1)"),
            ("127.0.0.0/8", "this machine itself (127.0.0.1)"),
            ("::1", "this machine itself (::1)"),
            ("198.51.100.7", "your own address 198.51.100.7"),
            ("198.51.100.0/24", "your own address 198.51.100.7"),
            ("10.0.0.0/8", "the trusted proxy 10.1.0.0/16"),
            ("10.1.2.3", "the trusted proxy 10.1.0.0/16"),
            ("192.0.2.1", "the trusted proxy 192.0.2.1/32"),
            (
                "0.0.0.0/1",
                "one in 2 of all IPv4 addresses, this machine itself (127.0.0.1), the trusted proxy 10.1.0.0/16",
            ),
        ] {
            assert_eq!(of(key, operator), expected, "{key}");
        }
        assert_eq!(of("::ffff:198.51.100.7", "::ffff:198.51.100.7"), "your own address 198.51.100.7");
        assert_eq!(of("2001:db8:0:1::/64", "2001:db8:0:1::9"), "your own address 2001:db8:0:1::9");
    }

    #[test]
    fn of_many_trusted_proxies_a_few_are_named() {
        let proxies: Vec<_> =
            (1..=9).map(|n| TrustedProxy::Network(format!("10.{n}.0.0/16").parse().unwrap())).collect();
        let key = BannedKey::parse("10.0.0.0/8", 64, &UserNaming::default()).unwrap();
        let found = shut_out(&key, None, &proxies);
        assert_eq!((found.len(), found[4].as_str()), (5, "5 more of trusted_proxies"));
    }
}
