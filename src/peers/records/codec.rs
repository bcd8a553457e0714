//! How records are stored: compact, each name and each path once.
//!
//! A stored value may be of another version, or written by another program: then it counts as absent. The incarnation
//! is appended last, where earlier versions ignore it; values without one have 0.

use std::{collections::HashMap, sync::Arc};

use compact_str::CompactString;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::table::MAX_VALUE;
use crate::{
    abuse::{
        self, ClientSnapshot, DeniedCounts, LimitSnapshot, PolicySnapshot, RequestSnapshot, SharedClient,
        SharedUnblock, TrafficCounts, UserSample,
    },
    limit::algorithm::metadata_list::Entry,
};

/// Random bytes before the encoding of an entry's first value, new with each write, to detect changes.
const STAMP: usize = 8;

/// A value read from Redis.
#[derive(Debug, Default)]
pub(super) struct StoredValue<T> {
    /// Its first bytes; empty if there is no value.
    pub(super) stamp: Vec<u8>,
    pub(super) content: Option<T>,
}

/// The counts of a client.
#[derive(Serialize, Deserialize)]
struct StoredCounts {
    first: i64,
    last: i64,
    until: i64,
    denied: DeniedCounts,
    users: UserSample,
    traffic: TrafficCounts,
    /// Name, `record.keep`, and `record.for` in microseconds.
    policies: Vec<(String, u32, i64)>,
    /// Limits that name no user and no path.
    limits: Vec<StoredLimit<String>>,
    unblocked: Option<SharedUnblock>,
}

/// The evidence of a client. Policies are indexes into those of its counts; times are microseconds before its last
/// denial, as in the counts' limits; texts are indexes into `texts`.
#[derive(Serialize, Deserialize)]
struct StoredEvidence {
    texts: Vec<String>,
    limits: Vec<StoredLimit<u32>>,
    records: Vec<StoredRequest>,
}

#[derive(Serialize, Deserialize)]
struct StoredLimit<T> {
    policy: u32,
    identifier: T,
    until: i64,
    last: i64,
}

#[derive(Serialize, Deserialize)]
struct StoredRequest {
    policy: u32,
    time: i64,
    user: Option<u32>,
    method: u32,
    path: u32,
}

/// The texts of a client, each once.
#[derive(Default)]
struct TextTable<'a> {
    all: Vec<&'a str>,
    known: HashMap<&'a str, u32>,
}

impl<'a> TextTable<'a> {
    fn index_of(&mut self, text: &'a str) -> u32 {
        *self.known.entry(text).or_insert_with(|| {
            self.all.push(text);
            // At most a few thousand.
            u32::try_from(self.all.len() - 1).unwrap_or(u32::MAX)
        })
    }
}

/// Encodes a first value.
pub(super) fn encode(content: &impl Serialize, incarnation: u32) -> Vec<u8> {
    append(fastrand::u64(..).to_be_bytes().to_vec(), &(content, incarnation))
}

fn append(value: Vec<u8>, content: &impl Serialize) -> Vec<u8> {
    // Numbers, strings and lists always serialize into a vector.
    postcard::to_extend(content, value).unwrap_or_default()
}

/// Decodes a first value: its content and its incarnation.
pub(super) fn decode<T: DeserializeOwned>(value: Option<&[u8]>) -> StoredValue<(T, u32)> {
    let value = value.unwrap_or_default();
    let content = value.get(STAMP..).and_then(parse);
    StoredValue {
        stamp: value.get(..STAMP).unwrap_or(value).to_vec(),
        content: content.map(|(content, rest)| (content, postcard::from_bytes(rest).unwrap_or(0))),
    }
}

/// Decodes a value at the start of `bytes`. Returns it with the rest.
fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Option<(T, &[u8])> {
    if bytes.is_empty() || bytes.len() > MAX_VALUE {
        return None;
    }
    postcard::take_from_bytes(bytes)
        .inspect_err(|_| tracing::debug!(bytes = bytes.len(), "can't read a record of another instance"))
        .ok()
}

/// The two values of a client: its counts and its evidence, empty if there is none. If the evidence is too long, the
/// oldest records are left out.
pub(super) fn encode_client(client: &SharedClient) -> [Vec<u8>; 2] {
    let counts = encode_counts(client);
    if client.snapshot.records.is_empty() && client.snapshot.limits.iter().all(is_lasting) {
        return [counts, Vec::new()];
    }
    let stamp = &counts[..STAMP];
    let mut evidence = encode_evidence(&client.snapshot, stamp);
    if evidence.len() > MAX_VALUE {
        let mut shorter = client.snapshot.clone();
        while evidence.len() > MAX_VALUE && shorter.shorten() {
            evidence = encode_evidence(&shorter, stamp);
        }
    }
    [counts, evidence]
}

/// Whether the limit is kept as long as the client is listed.
fn is_lasting(limit: &LimitSnapshot) -> bool {
    !abuse::names_more_than_an_address(&limit.identifier)
}

fn stored_limit<T>(limit: &LimitSnapshot, identifier: T, last: i64) -> StoredLimit<T> {
    StoredLimit {
        policy: u32::try_from(limit.policy).unwrap_or(u32::MAX),
        identifier,
        until: last.saturating_sub(limit.until),
        last: last.saturating_sub(limit.last),
    }
}

fn limit_snapshot<T>(limit: &StoredLimit<T>, identifier: &str, last: i64) -> LimitSnapshot {
    LimitSnapshot {
        policy: usize::try_from(limit.policy).unwrap_or(usize::MAX),
        identifier: identifier.to_owned(),
        until: last.saturating_sub(limit.until),
        last: last.saturating_sub(limit.last),
    }
}

fn encode_counts(client: &SharedClient) -> Vec<u8> {
    let ClientSnapshot { first, last, until, policies, limits, .. } = &client.snapshot;
    let limit = |limit| stored_limit(limit, limit.identifier.clone(), *last);
    let policy = |policy: &PolicySnapshot| {
        (policy.name.to_string(), u32::try_from(policy.keep).unwrap_or(u32::MAX), policy.retain)
    };
    let counts = StoredCounts {
        first: *first,
        last: *last,
        until: *until,
        denied: client.denied.clone(),
        users: client.users.clone(),
        traffic: client.traffic.clone(),
        policies: policies.iter().map(policy).collect(),
        limits: limits.iter().filter(|limit| is_lasting(limit)).map(limit).collect(),
        unblocked: client.unblocked.clone(),
    };
    encode(&counts, client.incarnation)
}

fn encode_evidence(snapshot: &ClientSnapshot, stamp: &[u8]) -> Vec<u8> {
    let mut texts = TextTable::default();
    let index = |policy: usize| u32::try_from(policy).unwrap_or(u32::MAX);
    let before_last = |time: i64| snapshot.last.saturating_sub(time);
    let limits = snapshot
        .limits
        .iter()
        .filter(|limit| !is_lasting(limit))
        .map(|limit| stored_limit(limit, texts.index_of(&limit.identifier), snapshot.last))
        .collect();
    let records = snapshot
        .records
        .iter()
        .map(|RequestSnapshot { policy, entry }| StoredRequest {
            policy: index(*policy),
            time: before_last(entry.time),
            user: entry.user.as_deref().map(|user| texts.index_of(user)),
            method: texts.index_of(entry.method.as_str()),
            path: texts.index_of(&entry.path),
        })
        .collect();
    let texts = texts.all.into_iter().map(str::to_owned).collect();
    append(stamp.to_vec(), &StoredEvidence { texts, limits, records })
}

/// Decodes a client from its two values.
pub(super) fn decode_client(counts: Option<&[u8]>, evidence: Option<&[u8]>) -> StoredValue<SharedClient> {
    let StoredValue { stamp, content } = decode::<StoredCounts>(counts);
    let content = content.map(|(counts, incarnation)| {
        let StoredCounts { first, last, until, denied, users, traffic, policies, limits, unblocked } = counts;
        let policy = |(name, keep, retain): (String, u32, i64)| PolicySnapshot {
            name: name.into(),
            keep: usize::try_from(keep).unwrap_or(usize::MAX),
            retain,
        };
        let mut snapshot = ClientSnapshot {
            first,
            last,
            until,
            policies: policies.into_iter().map(policy).collect(),
            limits: limits.iter().map(|limit| limit_snapshot(limit, &limit.identifier, last)).collect(),
            ..ClientSnapshot::default()
        };
        // Evidence is valid only with the counts it was written with.
        let evidence = evidence.and_then(|value| value.strip_prefix(stamp.as_slice())).and_then(parse);
        if let Some((evidence, _)) = evidence {
            add_evidence(&mut snapshot, evidence);
        }
        SharedClient { snapshot, denied, traffic, users, unblocked, incarnation }
    });
    StoredValue { stamp, content }
}

fn add_evidence(snapshot: &mut ClientSnapshot, StoredEvidence { texts, limits, records }: StoredEvidence) {
    let index = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    let text = |number: u32| texts.get(index(number)).map(String::as_str);
    let last = snapshot.last;
    let limits = limits.iter().filter_map(|limit| Some(limit_snapshot(limit, text(limit.identifier)?, last)));
    snapshot.limits.extend(limits);
    snapshot.records = records
        .into_iter()
        .filter_map(|record| {
            let entry = Entry {
                time: last.saturating_sub(record.time),
                user: match record.user {
                    Some(user) => Some(CompactString::from(text(user)?)),
                    None => None,
                },
                method: text(record.method)?.parse().ok()?,
                path: text(record.path)?.into(),
            };
            Some(RequestSnapshot { policy: index(record.policy), entry: Arc::new(entry) })
        })
        .collect();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abuse::Unblock;

    fn entry(time: i64, user: Option<&str>, path: &str) -> Arc<Entry> {
        Arc::new(Entry { time, user: user.map(Into::into), method: http::Method::GET, path: path.into() })
    }

    fn client(records: i64) -> SharedClient {
        let mut denied = DeniedCounts::default();
        denied.report(7, 9, None);
        let last = 1_783_080_001_000_000;
        let snapshot = ClientSnapshot {
            first: last - 60_000_000,
            last,
            until: last + 1_000_000,
            policies: vec![PolicySnapshot { name: "per-ip".into(), keep: 50, retain: 3_600_000_000 }],
            limits: vec![LimitSnapshot {
                policy: 0,
                identifier: "ip:203.0.113.7".into(),
                until: last + 1,
                last,
            }],
            records: (0..records)
                .map(|n| RequestSnapshot {
                    policy: 0,
                    entry: entry(last - n * 10_000, Some("acme").filter(|_| n % 2 == 0), "/a"),
                })
                .collect(),
            ..ClientSnapshot::default()
        };
        let unblock = Unblock { time: last, by: "ann".into() };
        let unblocked = Some(SharedUnblock { unblock, denied_since: true }).filter(|_| records > 0);
        SharedClient { snapshot, denied, unblocked, incarnation: u32::MAX, ..SharedClient::default() }
    }

    fn round_trip([counts, evidence]: &[Vec<u8>; 2]) -> StoredValue<SharedClient> {
        decode_client(Some(counts), Some(evidence))
    }

    #[test]
    fn a_client_survives_a_round_trip() {
        let client = client(5);
        let values = encode_client(&client);
        let stored = round_trip(&values);
        assert_eq!(stored.content, Some(client));
        assert_eq!(stored.stamp, values[0][..STAMP]);
        assert!(values[0].len() < 105 && values[1].len() < 70, "{} {}", values[0].len(), values[1].len());
    }

    #[test]
    fn instances_of_earlier_versions_read_it_and_are_read() {
        let client = client(5);
        let [counts, evidence] = encode_client(&client);
        assert!(postcard::from_bytes::<StoredCounts>(&counts[STAMP..]).is_ok());
        let earlier = &counts[..counts.len() - postcard::to_allocvec(&u32::MAX).unwrap().len()];
        let stored = decode_client(Some(earlier), Some(&evidence));
        assert_eq!(stored.content, Some(SharedClient { incarnation: 0, ..client }));
    }

    #[test]
    fn a_record_that_says_nothing_new_takes_a_few_bytes() {
        let bytes = |records| encode_client(&client(records))[1].len();
        assert!(bytes(50) - bytes(10) <= 40 * 9, "{} {}", bytes(50), bytes(10));
    }

    #[test]
    fn evidence_of_other_counts_is_not_taken() {
        let [one, other] = [(); 2].map(|()| encode_client(&client(5)));
        let mixed = decode_client(Some(&one[0]), Some(&other[1]));
        assert_eq!(mixed.content.map(|client| client.snapshot.records.len()), Some(0));
    }

    #[test]
    fn what_is_too_long_loses_its_oldest_records() {
        let mut client = client(0);
        let long = |n: i64| entry(client.snapshot.last - n, None, &format!("{n}{}", "x".repeat(900)));
        let records = (0..1_000).map(|n| RequestSnapshot { policy: 0, entry: long(n) }).collect();
        client.snapshot.records = records;
        let values = encode_client(&client);
        assert!(values[1].len() <= MAX_VALUE);
        let kept = round_trip(&values).content.unwrap().snapshot.records;
        assert_eq!((kept.len(), kept[0].entry.time), (250, client.snapshot.last));
    }

    #[test]
    fn what_no_instance_writes_is_passed_over() {
        let good = encode_client(&client(3));
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..2_000 {
            let mut values = good.clone();
            for value in &mut values {
                for _ in 0..random.usize(0..4) {
                    let at = random.usize(..value.len());
                    value[at] = random.u8(..);
                }
                value.truncate(random.usize(..=value.len()));
            }
            let _any = round_trip(&values);
        }
        for value in [None, Some(b"".as_slice()), Some(b"nonsense"), Some(&[0xff; 300])] {
            assert_eq!(decode_client(value, value).content, None);
        }
    }
}
