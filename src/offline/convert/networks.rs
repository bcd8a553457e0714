//! Sets of client addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Subnets, Ipv6Subnets};

/// Client addresses, as sorted ranges that do not touch. IPv4 addresses are those of `::ffff:0:0/96`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Networks(Vec<(u128, u128)>);

/// The first and the last IPv4 address.
const V4: (u128, u128) = (0xffff_0000_0000, 0xffff_ffff_ffff);

impl Networks {
    /// Every address.
    pub(super) fn all() -> Self {
        Self(vec![(0, u128::MAX)])
    }

    /// The addresses of these networks and addresses.
    ///
    /// # Errors
    /// The text that is neither an address nor a network.
    pub(super) fn parse<'t>(texts: impl IntoIterator<Item = &'t str>) -> Result<Self, String> {
        let mut ranges = Vec::new();
        for text in texts {
            let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
            let network = network.map_err(|_| text.to_owned())?;
            let bits = |address: IpAddr| match address {
                IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
                IpAddr::V6(address) => address.to_bits(),
            };
            ranges.push((bits(network.network()), bits(network.broadcast())));
        }
        ranges.sort_unstable();
        Ok(Self::merged(ranges))
    }

    fn merged(sorted: Vec<(u128, u128)>) -> Self {
        let mut merged: Vec<(u128, u128)> = Vec::new();
        for (start, end) in sorted {
            match merged.last_mut() {
                Some((_, last)) if last.checked_add(1).is_none_or(|next| start <= next) => {
                    *last = end.max(*last);
                }
                _ => merged.push((start, end)),
            }
        }
        Self(merged)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn is_all(&self) -> bool {
        *self == Self::all()
    }

    pub(super) fn and(&self, other: &Self) -> Self {
        let pairs = self.0.iter().flat_map(|one| other.0.iter().map(move |other| (one, other)));
        let both = pairs.map(|(one, other)| (one.0.max(other.0), one.1.min(other.1)));
        let mut both: Vec<_> = both.filter(|(start, end)| start <= end).collect();
        both.sort_unstable();
        Self::merged(both)
    }

    pub(super) fn or(&self, other: &Self) -> Self {
        let mut all = [self.0.clone(), other.0.clone()].concat();
        all.sort_unstable();
        Self::merged(all)
    }

    pub(super) fn not(&self) -> Self {
        let mut gaps = Vec::new();
        let mut next = Some(0);
        for (start, end) in &self.0 {
            if let Some(from) = next.filter(|from| from < start) {
                gaps.push((from, start - 1));
            }
            next = end.checked_add(1);
        }
        gaps.extend(next.map(|from| (from, u128::MAX)));
        Self(gaps)
    }

    pub(super) fn without(&self, other: &Self) -> Self {
        self.and(&other.not())
    }

    /// The networks of the set, as `allow` and `deny` have them.
    pub(super) fn written(&self) -> Vec<String> {
        let v4 = Self(vec![V4]);
        let text = |network: IpNet| match network.prefix_len() == network.max_prefix_len() {
            true => network.addr().to_string(),
            false => network.to_string(),
        };
        let v4_address = |bits: u128| Ipv4Addr::from_bits((bits & 0xffff_ffff) as u32);
        let of_v4 = self.and(&v4).0.into_iter().flat_map(|(start, end)| {
            Ipv4Subnets::new(v4_address(start), v4_address(end), 0).map(IpNet::from).collect::<Vec<_>>()
        });
        let v6 = if self.and(&v4).is_all_v4() { self.clone() } else { self.without(&v4) };
        let of_v6 = v6.0.into_iter().flat_map(|(start, end)| {
            let (start, end) = (Ipv6Addr::from_bits(start), Ipv6Addr::from_bits(end));
            Ipv6Subnets::new(start, end, 0).map(IpNet::from).collect::<Vec<_>>()
        });
        of_v4.chain(of_v6.filter(|network| !is_v4(*network))).map(text).collect()
    }

    fn is_all_v4(&self) -> bool {
        self.0 == [V4]
    }
}

/// Whether the network has IPv4 addresses alone.
fn is_v4(network: IpNet) -> bool {
    match network {
        IpNet::V4(_) => true,
        IpNet::V6(network) => network.prefix_len() >= 96 && network.addr().to_ipv4_mapped().is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(texts: &[&str]) -> Networks {
        Networks::parse(texts.iter().copied()).unwrap()
    }

    #[test]
    fn sets_are_joined_and_written_as_networks() {
        let ten = set(&["10.0.0.0/8", "10.1.0.0/16", "192.0.2.7"]);
        assert_eq!(ten.written(), ["10.0.0.0/8", "192.0.2.7"]);
        assert_eq!(ten.and(&set(&["10.1.0.0/16", "11.0.0.0/8", "::1"])).written(), ["10.1.0.0/16"]);
        assert_eq!(ten.without(&set(&["0.0.0.0/0"])).written(), [""; 0]);
        assert_eq!(set(&["2001:db8::/32", "::1"]).written(), ["::1", "2001:db8::/32"]);
        assert_eq!(Networks::all().written(), ["0.0.0.0/0", "::/0"]);
        assert!(set(&["0.0.0.0/0", "::/0"]).is_all() && ten.or(&ten.not()).is_all());
        assert!(ten.and(&ten.not()).is_empty());
        assert_eq!(set(&["128.0.0.0/1"]).not().and(&set(&["0.0.0.0/0"])).written(), ["0.0.0.0/1"]);
        // What is not 10.0.0.0/8 has IPv6, too.
        let others = set(&["10.0.0.0/8"]).not();
        let again = Networks::parse(others.written().iter().map(String::as_str)).unwrap();
        assert_eq!(again, others);
        assert_eq!(Networks::parse(["10.0.0.0/8", "x"]), Err("x".to_owned()));
    }
}
