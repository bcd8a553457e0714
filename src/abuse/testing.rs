//! Common parts of the tests of limited clients.

use std::{sync::Arc, time::Duration};

use super::{
    ClientRegistry, UserNaming, address,
    clients::policies::RecordPolicies,
    recording::{
        denial::{DenialTally, RecordCounts, TalliedLimit, TickDenials, UserTally},
        masking::{AddressDenials, mask_denials},
    },
    traffic::RequestLine,
};
use crate::{
    config::model::{self, Abuse, Algorithm, KeyPart, KeyRecipe, Rate, Secret, Users},
    limit::{Policy, PolicyId, algorithm::metadata_list::Entry},
    telemetry::{self, metrics::Metrics},
};

/// Microseconds.
pub(super) const SECOND: i64 = 1_000_000;
/// The first line of the requests that [`entry`] describes.
pub(crate) const LINE: RequestLine<'_> =
    RequestLine { is_safe: true, path: "/a", query: None, headers: None, is_logged: false };

/// A request of `user` at `time`.
pub(crate) fn entry(time: i64, user: &str) -> Arc<Entry> {
    entry_at(time, Some(user), "/a")
}

pub(crate) fn entry_at(time: i64, user: Option<&str>, path: &str) -> Arc<Entry> {
    Arc::new(Entry { time, user: user.map(Into::into), method: http::Method::GET, path: path.into() })
}

/// `per-ip`: three a minute per address, whose records are kept for 5 s.
pub(crate) fn policy() -> Policy {
    let keys = vec![KeyRecipe(vec![KeyPart::Ip])];
    let rate = Rate { limit: 3, window: Duration::from_secs(60) };
    let mut policy =
        Policy::new(&model::Policy::new("per-ip", Algorithm::MetadataList, keys, vec![rate]), PolicyId(0));
    policy.record.retain = Duration::from_secs(5);
    policy
}

/// With the secret `s3cret`.
pub(crate) fn names(users: Users) -> UserNaming {
    UserNaming::new(&Abuse {
        retain: Duration::from_secs(60),
        memory: None,
        users,
        secret: Some(Secret::new("s3cret")),
    })
}

/// A registry with [`policy`] that retains clients for 10 s.
pub(super) fn registry() -> ClientRegistry {
    ClientRegistry::new(&[policy()], Duration::from_secs(10), Metrics::new(&telemetry::testing::config(), 1))
}

/// A registry with [`policy`] that keeps this number of records for so long, as clients themselves.
pub(crate) fn registry_keeping(keep: usize, retain: Duration) -> ClientRegistry {
    let policy = Policy { record: model::RecordedFields { keep, retain }, ..policy() };
    ClientRegistry::new(&[policy], retain, Metrics::new(&telemetry::testing::config(), 1))
}

/// The tick of a worker with an address that was denied once, for a second.
pub(super) fn denied_once(address: &str, time: i64) -> TickDenials {
    let mut tally = tally_of(&[entry(time, "acme")], time + SECOND);
    tally.limits[0].identifier = address::identifier(address);
    batch(address, tally)
}

/// The addresses of all clients of the registry.
pub(super) fn listed(registry: &ClientRegistry, now: i64) -> Vec<String> {
    registry.clients(now, |_| true).iter().map(|client| client.shown.to_string()).collect()
}

/// One denial of the first policy by a limit with this identifier.
pub(super) fn tally(identifier: &str, now: i64, until: i64) -> DenialTally {
    let denial = super::DenialReport {
        address: "",
        policy: 0,
        identifier,
        user: None,
        is_user_verified: false,
        is_customer: false,
        now,
        until,
    };
    let limits = vec![TalliedLimit { policy: 0, identifier: identifier.into(), until }];
    DenialTally { denied: 1, limits, ..DenialTally::new(&denial, RecordCounts::new()) }
}

/// A tally of requests, all of them recorded.
pub(super) fn tally_of(entries: &[Arc<Entry>], until: i64) -> DenialTally {
    let times = || entries.iter().map(|entry| entry.time);
    let mut tally = tally("ip:203.0.113.7", times().min().unwrap_or(0), until);
    (tally.last, tally.denied) = (times().max().unwrap_or(0), entries.len() as u64);
    for entry in entries {
        tally.records.push((0, Arc::clone(entry)));
        if let Some(user) = &entry.user {
            let asked = tally.users.entry(user.clone()).or_default();
            *asked = UserTally {
                denied: asked.denied + 1,
                last: asked.last.max(entry.time),
                ..UserTally::default()
            };
        }
    }
    tally
}

/// Records the denial of these requests of 203.0.113.7.
pub(crate) fn record(registry: &ClientRegistry, entries: &[Arc<Entry>], until: i64) {
    let tally = tally_of(entries, until);
    let now = tally.last;
    let policies = registry.policies();
    registry.record(TickDenials { policies, ..batch("203.0.113.7", tally) }, now);
}

/// The tally as a worker's tick.
pub(super) fn batch(address: &str, tally: DenialTally) -> TickDenials {
    let policies = Arc::new(RecordPolicies::new(&[policy()], i64::MAX));
    TickDenials { tallies: vec![(address.into(), tally)], policies, ..TickDenials::default() }
}

/// The tally after masking, with plain names.
pub(super) fn masked(tally: DenialTally) -> AddressDenials {
    mask_denials(batch("203.0.113.7", tally), &UserNaming::default()).0.remove(0)
}

/// The client with this number.
pub(super) fn client(n: usize) -> ipnet::IpNet {
    let octets = [10, n >> 16, n >> 8, n].map(|part| u8::try_from(part & 255).unwrap());
    std::net::IpAddr::from(octets).into()
}
