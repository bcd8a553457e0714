//! HTTP/2 floods: connections closed because of them, counted for a bounded number of clients.

use std::{cmp::Reverse, collections::HashMap, fmt};

use ipnet::IpNet;

use crate::telemetry::metrics::Http2Abuse;

/// Maximum number of clients whose connections are counted separately, in one sample.
const MAX_CLIENTS: usize = 32;

/// Maximum number of clients that a warning names.
const MAX_NAMED: usize = 3;

/// A client whose connection was closed because of a flood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FloodingClient {
    /// Its address, or its IPv6 prefix, which counts as one client.
    pub network: IpNet,
    /// Whether it is one of `trusted_proxies`, which carry many clients.
    pub is_trusted_proxy: bool,
}

impl fmt::Display for FloodingClient {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { network, is_trusted_proxy } = self;
        if *is_trusted_proxy {
            out.write_str("the trusted proxy ")?;
        }
        if network.prefix_len() == network.max_prefix_len() {
            write!(out, "{}", network.addr())
        } else {
            write!(out, "{network}")
        }
    }
}

/// Closed connections of one client, by kind of flood.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Closed([u64; Http2Abuse::ALL.len()]);

impl Closed {
    fn total(self) -> u64 {
        self.0.iter().sum()
    }
}

/// `rapid_resets 10, empty_frames 2`
impl fmt::Display for Closed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = Http2Abuse::ALL.into_iter().zip(self.0).filter(|(_, count)| *count > 0);
        for (place, (abuse, count)) in counted.enumerate() {
            let separator = if place == 0 { "" } else { ", " };
            write!(out, "{separator}{} {count}", abuse.name())?;
        }
        Ok(())
    }
}

/// Connections closed because of floods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Floods {
    by_client: HashMap<FloodingClient, Closed>,
    /// Connections of clients beyond `MAX_CLIENTS`.
    others: u64,
}

impl Floods {
    pub(super) fn is_empty(&self) -> bool {
        self.by_client.is_empty() && self.others == 0
    }

    /// Counts a closed connection of `client`.
    pub(super) fn record(&mut self, client: FloodingClient, abuse: Http2Abuse) {
        let mut closed = Closed::default();
        closed.0[abuse as usize] = 1;
        self.count(client, closed);
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (client, closed) in &other.by_client {
            self.count(*client, *closed);
        }
        self.others += other.others;
    }

    fn count(&mut self, client: FloodingClient, closed: Closed) {
        if self.by_client.len() < MAX_CLIENTS || self.by_client.contains_key(&client) {
            let counted = self.by_client.entry(client).or_default();
            counted.0.iter_mut().zip(closed.0).for_each(|(sum, count)| *sum += count);
        } else {
            self.others += closed.total();
        }
    }

    /// The text of the warning. `None` without floods.
    pub(super) fn describe(&self) -> Option<String> {
        let mut clients: Vec<_> = self.by_client.iter().collect();
        clients.sort_unstable_by_key(|(client, closed)| (Reverse(closed.total()), **client));
        let (first, closed) = *clients.first()?;
        if clients.len() == 1 && self.others == 0 {
            let remedy = if first.is_trusted_proxy {
                "look there for the client that does it".to_owned()
            } else {
                format!("if it goes on, ban it: tollgate ban {first} --for 1h")
            };
            let connections = connections(closed.total());
            return Some(format!(
                "{first} floods by HTTP/2, and {connections} closed for it in the last minute ({closed}): {remedy}"
            ));
        }
        let total = clients.iter().map(|(_, closed)| closed.total()).sum::<u64>() + self.others;
        let named = clients.iter().take(MAX_NAMED);
        let named = named.map(|(client, closed)| format!("{} of {client} ({closed})", closed.total()));
        let named: Vec<_> = named.collect();
        Some(format!(
            "several clients flood by HTTP/2, and {} closed for it in the last minute, such as {}: if one goes on, ban it: \
             tollgate ban ADDRESS --for 1h",
            connections(total),
            named.join(", ")
        ))
    }
}

fn connections(count: u64) -> String {
    if count == 1 { "1 connection was".to_owned() } else { format!("{count} connections were") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(network: &str) -> FloodingClient {
        FloodingClient { network: network.parse().unwrap(), is_trusted_proxy: false }
    }

    fn floods(closed: &[(FloodingClient, Http2Abuse, usize)]) -> Floods {
        let mut floods = Floods::default();
        for (client, abuse, count) in closed {
            (0..*count).for_each(|_| floods.record(*client, *abuse));
        }
        floods
    }

    #[test]
    fn one_client_is_named_with_what_it_does_and_how_often() {
        assert_eq!(Floods::default().describe(), None);
        let address = client("203.0.113.7/32");
        let resets = (address, Http2Abuse::RapidResets, 10);
        assert_eq!(
            floods(&[resets, (address, Http2Abuse::EmptyFrames, 2)]).describe().unwrap(),
            "203.0.113.7 floods by HTTP/2, and 12 connections were closed for it in the last minute (rapid_resets 10, \
             empty_frames 2): if it goes on, ban it: tollgate ban 203.0.113.7 --for 1h"
        );
        assert_eq!(
            floods(&[(client("2001:db8:1:2::/64"), Http2Abuse::ExcessiveLoad, 1)]).describe().unwrap(),
            "2001:db8:1:2::/64 floods by HTTP/2, and 1 connection was closed for it in the last minute (excessive_load 1): \
             if it goes on, ban it: tollgate ban 2001:db8:1:2::/64 --for 1h"
        );
    }

    #[test]
    fn nobody_is_told_to_ban_a_trusted_proxy() {
        let proxy = FloodingClient { is_trusted_proxy: true, ..client("10.0.0.5/32") };
        assert_eq!(
            floods(&[(proxy, Http2Abuse::RapidResets, 1)]).describe().unwrap(),
            "the trusted proxy 10.0.0.5 floods by HTTP/2, and 1 connection was closed for it in the last minute \
             (rapid_resets 1): look there for the client that does it"
        );
    }

    #[test]
    fn of_several_clients_those_with_most_connections_are_named() {
        let of = |n: u8, count| (client(&format!("203.0.113.{n}/32")), Http2Abuse::EmptyFrames, count);
        assert_eq!(
            floods(&[of(1, 1), of(2, 3), of(3, 2), of(4, 1)]).describe().unwrap(),
            "several clients flood by HTTP/2, and 7 connections were closed for it in the last minute, such as 3 of \
             203.0.113.2 (empty_frames 3), 2 of 203.0.113.3 (empty_frames 2), 1 of 203.0.113.1 (empty_frames 1): if one \
             goes on, ban it: tollgate ban ADDRESS --for 1h"
        );
    }

    #[test]
    fn however_many_clients_flood_few_are_remembered() {
        let mut minute = Floods::default();
        for second in 0..60_u8 {
            let all: Vec<_> = (0..200_u8)
                .map(|n| (client(&format!("198.51.{second}.{n}/32")), Http2Abuse::RapidResets, 1))
                .collect();
            minute.add(&floods(&all));
        }
        assert_eq!(minute.by_client.len(), MAX_CLIENTS);
        assert!(minute.describe().unwrap().contains("and 12000 connections were closed"));
    }
}
