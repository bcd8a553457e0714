//! The client's address behind trusted proxies.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, header::FORWARDED};
use ipnet::IpNet;

use super::forwarded_fields::{forwarded_for, last_element, node_address};
use crate::{
    address_set::canonical,
    config::model::{AddressHeader, TrustedProxy},
};

/// The most elements of a forwarding field that are read. Real chains are far shorter.
const MAX_HOPS: usize = 64;

static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Peers whose forwarding fields are trusted, and the field that is read.
#[derive(Debug, Clone)]
pub struct TrustedProxies {
    networks: Vec<IpNet>,
    has_unix: bool,
    header: AddressHeader,
}

/// The client's address according to the trusted proxies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientIp {
    pub ip: IpAddr,
    /// False if a trusted proxy sent something other than an address. `ip` is then the last known proxy, and the client
    /// behind it is unknown.
    pub is_known: bool,
}

/// An element of the forwarding field, as read on the way to the client's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForwardedHop<'h> {
    /// A trusted proxy: the next element to the left is read.
    Proxy(IpAddr),
    /// The client.
    Client(IpAddr),
    /// Not an address: the previous hop is used as the client.
    Malformed(&'h [u8]),
    /// A field for a single address has several lines and is ignored.
    Repeated,
}

impl TrustedProxies {
    /// `proxies` send the client's address in `header`.
    pub fn new(proxies: &[TrustedProxy], header: &AddressHeader) -> Self {
        let networks = proxies.iter().filter_map(|proxy| match proxy {
            TrustedProxy::Network(network) => Some(canonical(network)),
            TrustedProxy::Unix => None,
        });
        let has_unix = proxies.contains(&TrustedProxy::Unix);
        Self { networks: networks.collect(), has_unix, header: header.clone() }
    }

    /// Whether clients of Unix sockets are trusted proxies.
    pub fn has_unix(&self) -> bool {
        self.has_unix
    }

    /// Whether the address is a trusted proxy's. A connection may cache the result for its peer.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.networks.iter().any(|network| network.contains(&address))
    }

    /// The client's address: the peer's own unless `peer_is_trusted`, as [`TrustedProxies::contains`] returns. An
    /// IPv4-mapped address is returned as IPv4.
    ///
    /// Each proxy appends the address of its client, so the list is read from the right, and the first address that is
    /// not a trusted proxy's is the client's. Elements to the left of it may be forged by the client. If all elements
    /// are trusted proxies, the leftmost one is the client. If an element is not an address, the client is unknown.
    /// Empty elements are ignored (RFC 9110, 5.6.1.2).
    pub fn client_address(&self, peer: IpAddr, peer_is_trusted: bool, headers: &HeaderMap) -> ClientIp {
        self.client_address_with(peer, peer_is_trusted, headers, |_| ())
    }

    /// Like [`TrustedProxies::client_address`], and calls `on_hop` with each hop that was read, in order. Without any,
    /// the peer is the client.
    pub fn client_address_with<'h>(
        &self,
        peer: IpAddr,
        peer_is_trusted: bool,
        headers: &'h HeaderMap,
        on_hop: impl FnMut(ForwardedHop<'h>),
    ) -> ClientIp {
        let peer = peer.to_canonical();
        if !peer_is_trusted {
            return ClientIp { ip: peer, is_known: true };
        }
        match &self.header {
            AddressHeader::XForwardedFor => {
                self.client_in_list(peer, headers, &X_FORWARDED_FOR, node_address, on_hop)
            }
            AddressHeader::Forwarded => self.client_in_list(peer, headers, &FORWARDED, forwarded_for, on_hop),
            AddressHeader::Single(name) => single_address(peer, headers, name, on_hop),
        }
    }

    /// The field in which trusted proxies send the client's address.
    pub fn field(&self) -> &HeaderName {
        match &self.header {
            AddressHeader::XForwardedFor => &X_FORWARDED_FOR,
            AddressHeader::Forwarded => &FORWARDED,
            AddressHeader::Single(name) => name,
        }
    }

    fn client_in_list<'h>(
        &self,
        peer: IpAddr,
        headers: &'h HeaderMap,
        name: &HeaderName,
        address: impl Fn(&[u8]) -> Option<IpAddr>,
        mut on_hop: impl FnMut(ForwardedHop<'h>),
    ) -> ClientIp {
        let lines = headers.get_all(name).iter().rev();
        let mut elements =
            lines.flat_map(elements_from_right).filter(|element| !element.trim_ascii().is_empty());
        let mut client = peer;
        for element in elements.by_ref().take(MAX_HOPS) {
            let Some(hop) = address(element) else {
                on_hop(ForwardedHop::Malformed(element));
                return ClientIp { ip: client, is_known: false };
            };
            client = hop;
            if !self.contains(hop) {
                on_hop(ForwardedHop::Client(hop));
                return ClientIp { ip: hop, is_known: true };
            }
            on_hop(ForwardedHop::Proxy(hop));
        }
        ClientIp { ip: client, is_known: elements.next().is_none() }
    }
}

fn elements_from_right(line: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(line.as_bytes());
    std::iter::from_fn(move || {
        let (before, part) = last_element(rest?);
        rest = before;
        Some(part)
    })
}

fn single_address<'h>(
    peer: IpAddr,
    headers: &'h HeaderMap,
    name: &HeaderName,
    mut on_hop: impl FnMut(ForwardedHop<'h>),
) -> ClientIp {
    let mut lines = headers.get_all(name).iter();
    let Some(line) = lines.next() else { return ClientIp { ip: peer, is_known: true } };
    if lines.next().is_some() {
        on_hop(ForwardedHop::Repeated);
        return ClientIp { ip: peer, is_known: false };
    }
    let address = node_address(line.as_bytes());
    on_hop(address.map_or(ForwardedHop::Malformed(line.as_bytes()), ForwardedHop::Client));
    ClientIp { ip: address.unwrap_or(peer), is_known: address.is_some() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PEER: &str = "10.0.0.1";

    fn proxies(header: &AddressHeader) -> TrustedProxies {
        let networks = ["10.0.0.0/8", "2001:db8:ff::/48", "::ffff:172.16.0.0/108"];
        TrustedProxies::new(&networks.map(|network| TrustedProxy::Network(network.parse().unwrap())), header)
    }

    fn client(header: &AddressHeader, peer: &str, fields: &[(&'static str, &[u8])]) -> String {
        let proxies = proxies(header);
        let peer: IpAddr = peer.parse().unwrap();
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_bytes(value).unwrap());
        }
        let ClientIp { ip, is_known } = proxies.client_address(peer, proxies.contains(peer), &headers);
        format!("{}{ip}", if is_known { "" } else { "unknown behind " })
    }

    #[test]
    fn trust_is_by_canonical_address() {
        let proxies = proxies(&AddressHeader::XForwardedFor);
        for (address, trusted) in [
            ("10.255.0.1", true),
            ("::ffff:10.0.0.1", true),
            ("172.16.5.5", true),
            ("172.32.0.1", false),
            ("2001:db8:ff::9", true),
            ("2001:db8:fe::9", false),
            ("203.0.113.7", false),
        ] {
            assert_eq!(proxies.contains(address.parse().unwrap()), trusted, "{address}");
        }
    }

    #[test]
    fn x_forwarded_for_is_walked_from_the_right() {
        let cases: &[(&[&[u8]], &str)] = &[
            (&[b"203.0.113.7"], "203.0.113.7"),
            (&[b"1.1.1.1, 203.0.113.7"], "203.0.113.7"),
            (&[b"1.1.1.1, 203.0.113.7, 10.0.0.2"], "203.0.113.7"),
            (&[b"1.1.1.1", b"203.0.113.7", b"10.0.0.2,10.0.0.3"], "203.0.113.7"),
            (&[b"1.1.1.1, ::ffff:203.0.113.7"], "203.0.113.7"),
            (&[b"203.0.113.7:5678"], "203.0.113.7"),
            (&[b"[2001:db8::1]:80"], "2001:db8::1"),
            (&[b"[2001:db8::1]"], "2001:db8::1"),
            (&[b"2001:db8::1"], "2001:db8::1"),
            (&[b"10.0.0.9, 10.0.0.2"], "10.0.0.9"),
            (&[b"1.1.1.1, unknown, 10.0.0.2"], "unknown behind 10.0.0.2"),
            (&[b"1.1.1.1, \xff, 10.0.0.2"], "unknown behind 10.0.0.2"),
            (&[b"1.1.1.1, garbage"], "unknown behind 10.0.0.1"),
            (&[b"1.1.1.1, garbage,"], "unknown behind 10.0.0.1"),
            (&[b"1.1.1.1, \"\""], "unknown behind 10.0.0.1"),
            (&[b"010.1.1.1"], "unknown behind 10.0.0.1"),
            (&[b"1.1.1.1:99999"], "unknown behind 10.0.0.1"),
            (&[b"203.0.113.7,"], "203.0.113.7"),
            (&[b",203.0.113.7 ,\t, "], "203.0.113.7"),
            (&[b"203.0.113.7, , 10.0.0.2"], "203.0.113.7"),
            (&[b"203.0.113.7", b"", b"10.0.0.2", b" , "], "203.0.113.7"),
            (&[b"10.0.0.9,,10.0.0.2"], "10.0.0.9"),
            (&[b""], PEER),
            (&[b",", b""], PEER),
            (&[], PEER),
        ];
        for (lines, expected) in cases {
            let fields: Vec<_> = lines.iter().map(|line| ("x-forwarded-for", *line)).collect();
            assert_eq!(client(&AddressHeader::XForwardedFor, PEER, &fields), *expected, "{lines:?}");
        }
    }

    #[test]
    fn forwarded_is_walked_from_the_right() {
        let cases: &[(&[&[u8]], &str)] = &[
            (&[b"for=203.0.113.7"], "203.0.113.7"),
            (&[b"for=1.1.1.1;proto=http, For=\"203.0.113.7:80\";by=10.0.0.1"], "203.0.113.7"),
            (&[b"for=\"[2001:db8::1]:4711\", for=10.0.0.2"], "2001:db8::1"),
            (&[b"for=1.1.1.1", b"proto=https ; for=203.0.113.7"], "203.0.113.7"),
            (&[b"for=1.1.1.1, for=unknown, for=10.0.0.2"], "unknown behind 10.0.0.2"),
            (&[b"for=1.1.1.1, for=_hidden, for=10.0.0.2"], "unknown behind 10.0.0.2"),
            (&[b"for=1.1.1.1, proto=http, for=10.0.0.2"], "unknown behind 10.0.0.2"),
            (&[b"for=1.1.1.1;for=2.2.2.2, for=10.0.0.2"], "unknown behind 10.0.0.2"),
            (&[b"host=\"a,for=1.1.1.1;\";for=203.0.113.7"], "203.0.113.7"),
            // An open quote of the client does not swallow the proxy's element.
            (&[b"for=\"1.1.1.1, for=203.0.113.7"], "203.0.113.7"),
            (&[b"for=1.1.1.1;x=\"\\\", for=\"203.0.113.7\""], "203.0.113.7"),
            (&[b"203.0.113.7"], "unknown behind 10.0.0.1"),
            (&[b"for=203.0.113.7;"], "203.0.113.7"),
            (&[b"for=203.0.113.7;;proto=http, , for=10.0.0.2,"], "203.0.113.7"),
            (&[b"for=203.0.113.7", b"", b"; for=10.0.0.2 ; ;"], "203.0.113.7"),
            // An element without pairs counts: its proxy does not name a client.
            (&[b"for=203.0.113.7, ;, for=10.0.0.2"], "unknown behind 10.0.0.2"),
        ];
        for (lines, expected) in cases {
            let fields: Vec<_> = lines.iter().map(|line| ("forwarded", *line)).collect();
            assert_eq!(client(&AddressHeader::Forwarded, PEER, &fields), *expected, "{lines:?}");
        }
    }

    #[test]
    fn a_single_address_field_holds_exactly_one_address() {
        let header = AddressHeader::Single(HeaderName::from_static("cf-connecting-ip"));
        let line = |value: &'static [u8]| ("cf-connecting-ip", value);
        assert_eq!(client(&header, PEER, &[line(b"203.0.113.7")]), "203.0.113.7");
        for lines in [vec![line(b"1.1.1.1"), line(b"203.0.113.7")], vec![line(b"1.1.1.1, 203.0.113.7")]] {
            assert_eq!(client(&header, PEER, &lines), "unknown behind 10.0.0.1");
        }
        assert_eq!(client(&header, PEER, &[]), PEER);
    }

    #[test]
    fn untrusted_peers_speak_for_themselves() {
        for header in [
            AddressHeader::XForwardedFor,
            AddressHeader::Forwarded,
            AddressHeader::Single(HeaderName::from_static("cf-connecting-ip")),
        ] {
            let fields: [(&str, &[u8]); 3] = [
                ("x-forwarded-for", b"1.1.1.1"),
                ("forwarded", b"for=1.1.1.1"),
                ("cf-connecting-ip", b"1.1.1.1"),
            ];
            assert_eq!(client(&header, "::ffff:198.51.100.9", &fields), "198.51.100.9");
        }
    }

    #[test]
    fn long_lists_are_not_walked_to_their_end() {
        let longest = format!("203.0.113.7{}{}", ", 10.0.0.2".repeat(MAX_HOPS - 1), ", ".repeat(MAX_HOPS));
        for (list, expected) in [
            (longest.clone(), "203.0.113.7"),
            (longest.clone() + "10.0.0.3", "unknown behind 10.0.0.2"),
            (longest.replace("203.0.113.7", "") + "10.0.0.3", "10.0.0.2"),
        ] {
            let fields = [("x-forwarded-for", list.as_bytes())];
            assert_eq!(client(&AddressHeader::XForwardedFor, PEER, &fields), expected, "{list}");
        }
    }

    proptest! {
        /// The element appended by the proxy decides, for any bytes from the client.
        #[test]
        fn fields_of_clients_cannot_change_their_address(sent in "[ -~\\t\u{80}-\u{ff}]{0,40}") {
            for (header, name, appended) in [
                (AddressHeader::XForwardedFor, "x-forwarded-for", "203.0.113.7"),
                (AddressHeader::Forwarded, "forwarded", "for=203.0.113.7;host=\"a,b\""),
            ] {
                let same_line = format!("{sent}, {appended}");
                let found = client(&header, PEER, &[(name, same_line.as_bytes())]);
                prop_assert_eq!(&found, "203.0.113.7");
                let found = client(&header, PEER, &[(name, sent.as_bytes()), (name, appended.as_bytes())]);
                prop_assert_eq!(&found, "203.0.113.7");
            }
        }
    }
}
