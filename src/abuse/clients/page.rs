//! A page of a list, gathered in chunks: a million addresses may lie between two matches, and the lock must not be
//! held for that long.

use std::{collections::BinaryHeap, ops::Bound, sync::Arc};

use ipnet::IpNet;

use super::{
    super::{bans::BanTable, hint::Hint},
    LimitedClient,
    entry::ClientEntry,
    sort_index::{ClientPosition, Sort},
    table::ClientTable,
};

/// Addresses examined per chunk.
const CHUNK: usize = 512;

/// The filter and the order of a list of addresses.
#[derive(Debug, Clone, Default)]
pub struct ClientQuery {
    pub sort: Sort,
    /// Only addresses after this position.
    pub after: Option<ClientPosition>,
    /// Only clients that this policy denied.
    pub policy: Option<Arc<str>>,
    /// Only addresses within this prefix.
    pub prefix: Option<IpNet>,
    /// Only clients that are still limited or banned, or only those that are not.
    pub is_active: Option<bool>,
    /// The bans in force. Without them, no client counts as banned.
    pub bans: Option<Arc<BanTable>>,
    /// The minimum and maximum number of users.
    pub users: Option<(u64, u64)>,
    /// Only clients with this hint.
    pub hint: Option<Hint>,
}

/// A scan over the addresses for a page. Addresses that change meanwhile may be listed at their former position.
#[derive(Debug)]
pub struct PageScan {
    query: ClientQuery,
    limit: usize,
    /// The current position, in the order or among the addresses.
    at: Option<ClientPosition>,
    address: Option<IpNet>,
    /// The first positions found so far in a prefix.
    found: BinaryHeap<ClientPosition>,
    clients: Vec<(ClientPosition, LimitedClient)>,
}

impl PageScan {
    /// A scan for at most `limit` addresses and the one after them.
    pub fn new(query: ClientQuery, limit: usize) -> Self {
        let address = query.after.filter(|_| query.sort == Sort::Address).map(ClientPosition::address);
        Self { at: query.after, address, query, limit, found: BinaryHeap::new(), clients: Vec::new() }
    }

    /// The addresses of the page in order, and the start of the next page.
    pub fn page(mut self) -> (Vec<LimitedClient>, Option<ClientPosition>) {
        self.clients.sort_unstable_by_key(|&(position, _)| position);
        let more = self.clients.len() > self.limit;
        self.clients.truncate(self.limit);
        let next = self.clients.last().map(|&(position, _)| position).filter(|_| more);
        (self.clients.into_iter().map(|(_, client)| client).collect(), next)
    }

    /// Examines the next chunk. True while there are more. `is_over`: whether a client is no longer listed.
    pub(super) fn advance(
        &mut self,
        clients: &ClientTable,
        is_over: impl Fn(&ClientEntry) -> bool,
        now: i64,
    ) -> bool {
        let by_address = self.query.sort == Sort::Address || self.query.prefix.is_some();
        let count = match by_address {
            true => self.advance_by_address(clients, is_over, now),
            false => self.advance_in_order(clients, is_over, now),
        };
        let goes_on = count == CHUNK && self.clients.len() <= self.limit;
        if !goes_on {
            self.take_found(clients);
        }
        goes_on
    }

    fn advance_in_order(
        &mut self,
        clients: &ClientTable,
        is_over: impl Fn(&ClientEntry) -> bool,
        now: i64,
    ) -> usize {
        let mut count = 0;
        for position in clients.orders().after(self.query.sort, self.at).take(CHUNK) {
            (self.at, count) = (Some(position), count + 1);
            let Some(entry) = clients.get(position.address()) else { continue };
            if !is_over(entry) && self.query.matches(position.address(), entry, now) {
                self.clients.push((position, entry.to_client(position.address())));
                if self.clients.len() > self.limit {
                    break;
                }
            }
        }
        count
    }

    /// Scans a prefix, ignoring the order: matches are collected, and sorted at the end.
    fn advance_by_address(
        &mut self,
        clients: &ClientTable,
        is_over: impl Fn(&ClientEntry) -> bool,
        now: i64,
    ) -> usize {
        let sort = self.query.sort;
        let Some(bounds) = self.bounds() else { return 0 };
        let mut count = 0;
        for (address, entry) in clients.range(bounds).take(CHUNK) {
            (self.address, count) = (Some(address), count + 1);
            let position = ClientPosition::new(sort.sort_key(entry), address);
            let is_behind = self.query.after.is_none_or(|after| position > after);
            if !is_behind || is_over(entry) || !self.query.matches(address, entry, now) {
                continue;
            }
            if sort == Sort::Address {
                self.clients.push((position, entry.to_client(address)));
                if self.clients.len() > self.limit {
                    break;
                }
            } else {
                self.found.push(position);
                if self.found.len() > self.limit.saturating_add(1) {
                    self.found.pop();
                }
            }
        }
        count
    }

    /// The range of addresses still to examine.
    fn bounds(&self) -> Option<(Bound<IpNet>, Bound<IpNet>)> {
        let prefix = self.query.prefix.map(|prefix| (first(prefix), last(prefix)));
        let end = prefix.map_or(Bound::Unbounded, |(_, last)| Bound::Included(last));
        let begin = match (self.address, prefix) {
            // A cursor may have been given for another prefix.
            (Some(at), Some((_, last))) if at >= last => return None,
            (Some(at), Some((first, _))) if at < first => Bound::Included(first),
            (Some(at), _) => Bound::Excluded(at),
            (None, Some((first, _))) => Bound::Included(first),
            (None, None) => Bound::Unbounded,
        };
        Some((begin, end))
    }

    fn take_found(&mut self, clients: &ClientTable) {
        for position in std::mem::take(&mut self.found) {
            // It may have been removed meanwhile.
            if let Some(entry) = clients.get(position.address()) {
                self.clients.push((position, entry.to_client(position.address())));
            }
        }
    }
}

impl ClientQuery {
    fn matches(&self, address: IpNet, entry: &ClientEntry, now: i64) -> bool {
        let is_banned = || self.bans.as_ref().is_some_and(|bans| bans.is_banned(address));
        self.policy.as_deref().is_none_or(|policy| entry.was_denied_by(policy))
            && self.is_active.is_none_or(|is_active| (entry.until() > now || is_banned()) == is_active)
            && self.users.is_none_or(|(least, most)| (least..=most).contains(&entry.users()))
            && self.hint.is_none_or(|hint| entry.hint() == hint)
    }
}

/// A lower bound of all addresses in a prefix.
pub(super) fn first(prefix: IpNet) -> IpNet {
    // Shorter prefixes of the same address sort first.
    IpNet::new(prefix.network(), 0).unwrap_or(prefix)
}

/// An upper bound of all addresses in a prefix.
pub(super) fn last(prefix: IpNet) -> IpNet {
    IpNet::from(prefix.broadcast())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{
        super::{
            super::{
                address,
                testing::{batch, client, entry, policy, tally_of},
            },
            ClientRegistry,
        },
        *,
    };
    use crate::telemetry::{metrics::Metrics, testing};

    const NOW: i64 = 100_000;

    /// Many chunks of clients, each denied at random times and a random number of times.
    fn registry(random: &mut fastrand::Rng) -> ClientRegistry {
        let registry =
            ClientRegistry::new(&[policy()], Duration::from_secs(60), Metrics::new(&testing::config(), 1));
        for n in 0..5 * CHUNK {
            let shown = match n % 10 {
                0 => format!("2001:db8:{:x}::/64", random.u16(..)).into(),
                _ => address::shown(client(random.usize(..1 << 18))),
            };
            let time = random.i64(0..40);
            let users = random.usize(0..4);
            let entries: Vec<_> =
                (0..=users).map(|user| entry(time + user as i64, &user.min(users).to_string())).collect();
            registry.record(batch(&shown, tally_of(&entries, NOW + random.i64(-9..9))), NOW);
        }
        registry
    }

    /// The addresses of all pages.
    fn scan(registry: &ClientRegistry, query: &ClientQuery, limit: usize) -> Vec<IpNet> {
        let (mut found, mut after) = (Vec::new(), query.after);
        loop {
            let mut scan = PageScan::new(ClientQuery { after, ..query.clone() }, limit);
            while registry.advance(&mut scan, NOW) {}
            let (clients, next) = scan.page();
            assert!(clients.len() == limit || next.is_none());
            found.extend(clients.iter().map(|client| client.address));
            after = next;
            if after.is_none() {
                return found;
            }
        }
    }

    fn number(sort: Sort, client: &LimitedClient) -> u64 {
        match sort {
            Sort::Last => client.last as u64,
            Sort::First => client.first as u64,
            Sort::Denied => client.denied,
            Sort::Users => client.users,
            Sort::Address => 0,
        }
    }

    #[test]
    fn pages_are_what_a_look_at_everything_finds() {
        let mut random = fastrand::Rng::with_seed(7);
        let registry = registry(&mut random);
        let prefixes =
            [None, Some("10.0.0.0/14"), Some("10.1.0.0/16"), Some("2001:db8::/36"), Some("0.0.0.0/0")];
        for sort in [Sort::Last, Sort::First, Sort::Denied, Sort::Users, Sort::Address] {
            for prefix in prefixes.map(|prefix| prefix.and_then(address::parse)) {
                let query = ClientQuery {
                    sort,
                    prefix,
                    policy: Some("per-ip".into()).filter(|_| random.bool()),
                    is_active: [None, Some(true), Some(false)][random.usize(..3)],
                    users: [None, Some((1, 1)), Some((2, u64::MAX))][random.usize(..3)],
                    hint: [None, Some(Hint::Unknown), Some(Hint::Flood)][random.usize(..3)],
                    after: None,
                    bans: None,
                };
                let mut expected = registry.clients(NOW, |client| {
                    prefix.is_none_or(|prefix| prefix.contains(&client.address))
                        && query.is_active.is_none_or(|active| (client.until > NOW) == active)
                        && query.users.is_none_or(|(least, most)| (least..=most).contains(&client.users))
                        && query.hint.is_none_or(|hint| client.hint == hint)
                });
                expected.sort_by_key(|client| ClientPosition::new(number(sort, client), client.address));
                let expected: Vec<_> = expected.iter().map(|client| client.address).collect();
                for limit in [97, 1_000] {
                    assert_eq!(scan(&registry, &query, limit), expected, "{query:?}");
                }
            }
        }
        let unknown_policy = ClientQuery { policy: Some("other".into()), ..ClientQuery::default() };
        assert_eq!(scan(&registry, &unknown_policy, 10), []);
    }

    #[test]
    fn a_place_that_belongs_to_no_prefix_is_an_end_or_a_beginning() {
        let registry = registry(&mut fastrand::Rng::with_seed(8));
        let prefix = address::parse("10.1.0.0/16");
        let pages = |after: &str| {
            let after = address::parse(after).map(|address| ClientPosition::new(0, address));
            scan(
                &registry,
                &ClientQuery { sort: Sort::Address, prefix, after, ..ClientQuery::default() },
                100,
            )
        };
        assert!(!pages("10.0.255.255").is_empty());
        assert_eq!(pages("10.0.255.255"), pages("9.0.0.0"));
        for after in ["10.1.255.255", "10.2.0.0", "2001:db8::/64"] {
            assert_eq!(pages(after), []);
        }
    }
}
