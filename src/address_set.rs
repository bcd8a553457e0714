//! A set of addresses and networks with a fast lookup.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

/// Addresses and networks as sorted ranges that do not touch: a lookup takes logarithmic time. IPv4-mapped IPv6
/// addresses count as IPv4.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressSet {
    v4: Box<[(u32, u32)]>,
    v6: Box<[(u128, u128)]>,
}

impl AddressSet {
    /// Whether the set contains the address.
    pub fn contains(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(address) => has(&self.v4, address.to_bits()),
            IpAddr::V6(address) => has(&self.v6, address.to_bits()),
        }
    }
}

impl FromIterator<IpNet> for AddressSet {
    fn from_iter<I: IntoIterator<Item = IpNet>>(networks: I) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for network in networks {
            match canonical(&network) {
                IpNet::V4(network) => v4.push((network.network().to_bits(), network.broadcast().to_bits())),
                IpNet::V6(network) => v6.push((network.network().to_bits(), network.broadcast().to_bits())),
            }
        }
        Self { v4: merged(v4, |end| end.checked_add(1)), v6: merged(v6, |end| end.checked_add(1)) }
    }
}

fn has<T: Copy + Ord>(ranges: &[(T, T)], address: T) -> bool {
    let behind = ranges.partition_point(|(start, _)| *start <= address);
    behind.checked_sub(1).and_then(|index| ranges.get(index)).is_some_and(|(_, end)| address <= *end)
}

/// The same addresses as sorted ranges that do not touch. `next`: the following address.
fn merged<T: Copy + Ord>(mut ranges: Vec<(T, T)>, next: impl Fn(T) -> Option<T>) -> Box<[(T, T)]> {
    ranges.sort_unstable();
    let mut merged: Vec<(T, T)> = Vec::with_capacity(ranges.len());
    for (start, end) in ranges {
        match merged.last_mut() {
            Some((_, last)) if next(*last).is_none_or(|behind| start <= behind) => *last = end.max(*last),
            _ => merged.push((start, end)),
        }
    }
    merged.into()
}

/// `::ffff:10.0.0.0/104` as `10.0.0.0/8`: addresses are compared in their canonical form.
pub(super) fn canonical(network: &IpNet) -> IpNet {
    let mapped = match network {
        IpNet::V6(v6) => v6.addr().to_ipv4_mapped().zip(v6.prefix_len().checked_sub(96)),
        IpNet::V4(_) => None,
    };
    mapped.and_then(|(address, prefix)| Ipv4Net::new(address, prefix).ok()).map_or(*network, IpNet::V4)
}

/// A line of an address file is neither an address nor a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is neither an address nor a network: {text}")]
pub struct AddressFileError {
    line: usize,
    text: String,
}

/// Reads a file of addresses and networks, one per line. Text after `#` or `;` is a comment.
///
/// # Errors
/// A line is neither an address nor a network.
pub fn read_addresses(file: &[u8]) -> Result<Vec<IpNet>, AddressFileError> {
    let text = String::from_utf8_lossy(file);
    let mut networks = Vec::new();
    for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let written = line.split(['#', ';']).next().unwrap_or_default().trim();
        if written.is_empty() {
            continue;
        }
        let network = written.parse::<IpAddr>().map(IpNet::from).or_else(|_| written.parse::<IpNet>());
        match network {
            Ok(network) => networks.push(network),
            Err(_) => {
                let text = written.chars().take(40).collect::<String>().escape_debug().to_string();
                return Err(AddressFileError { line: index + 1, text });
            }
        }
    }
    Ok(networks)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    fn set(networks: &[&str]) -> AddressSet {
        networks.iter().map(|text| text.parse::<IpNet>().unwrap()).collect()
    }

    fn has(set: &AddressSet, address: &str) -> bool {
        set.contains(address.parse().unwrap())
    }

    #[test]
    fn networks_that_overlap_or_touch_are_one_range() {
        let set = set(&["10.0.0.0/9", "10.128.0.0/9", "10.1.0.0/16", "192.0.2.7/32", "2001:db8::/32"]);
        assert_eq!((set.v4.len(), set.v6.len()), (2, 1));
        for inside in ["10.0.0.0", "10.255.255.255", "192.0.2.7", "2001:db8::1", "::ffff:10.2.3.4"] {
            assert!(has(&set, inside), "{inside}");
        }
        for outside in
            ["9.255.255.255", "11.0.0.0", "192.0.2.6", "192.0.2.8", "2001:db9::", "::1", "::10.0.0.1"]
        {
            assert!(!has(&set, outside), "{outside}");
        }
    }

    #[test]
    fn the_whole_range_has_every_address() {
        let all = set(&["0.0.0.0/0", "::/0", "255.255.255.255/32", "::1/128"]);
        assert_eq!((all.v4.len(), all.v6.len()), (1, 1));
        assert!(
            ["0.0.0.0", "255.255.255.255", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"]
                .iter()
                .all(|of| has(&all, of))
        );
        assert!(!has(&AddressSet::default(), "::1") && !has(&set(&["0.0.0.0/0"]), "2001:db8::1"));
    }

    #[test]
    fn mapped_networks_are_those_of_ipv4() {
        let set = set(&["::ffff:10.0.0.0/104"]);
        assert!(has(&set, "10.9.9.9") && has(&set, "::ffff:10.9.9.9") && !has(&set, "11.0.0.0"));
    }

    #[test]
    fn files_have_one_a_line_and_comments() {
        let file =
            b"\xef\xbb\xbf# drop list\r\n203.0.113.7\r\n\n198.51.100.0/24 ; SBL1\n2001:db8::/32 # v6\n";
        let read = read_addresses(file).unwrap();
        let networks: Vec<String> = read.iter().map(ToString::to_string).collect();
        assert_eq!(networks, ["203.0.113.7/32", "198.51.100.0/24", "2001:db8::/32"]);
        assert_eq!(read_addresses(b""), Ok(vec![]));
        let wrong = read_addresses(b"10.0.0.1\ndeny 10.0.0.2;\n").unwrap_err();
        assert_eq!(wrong.to_string(), "line 2 is neither an address nor a network: deny 10.0.0.2");
    }

    proptest! {
        /// The set agrees with a search over its networks.
        #[test]
        fn an_address_is_found_if_a_network_has_it(
            networks in prop::collection::vec((any::<u32>(), 0_u8..=32), 0..40),
            addresses in prop::collection::vec(any::<u32>(), 40),
            v6 in prop::collection::vec((any::<u128>(), 0_u8..=128), 0..10),
        ) {
            let v4 = networks.iter().map(|(bits, length)| {
                IpNet::new(Ipv4Addr::from_bits(*bits).into(), *length).unwrap()
            });
            let v6 = v6.iter().map(|(bits, length)| {
                IpNet::new(Ipv6Addr::from_bits(*bits).into(), *length).unwrap()
            });
            let all: Vec<IpNet> = v4.chain(v6).collect();
            let set: AddressSet = all.iter().copied().collect();
            let own = networks.iter().map(|(bits, _)| *bits);
            let near = networks.iter().flat_map(|(bits, length)| {
                let net = Ipv4Net::new(Ipv4Addr::from_bits(*bits), *length).unwrap();
                [net.network().to_bits().wrapping_sub(1), net.broadcast().to_bits().wrapping_add(1)]
            });
            for bits in addresses.iter().copied().chain(own).chain(near) {
                let address = IpAddr::V4(Ipv4Addr::from_bits(bits));
                prop_assert_eq!(set.contains(address), all.iter().any(|net| net.contains(&address)));
            }
        }
    }
}
