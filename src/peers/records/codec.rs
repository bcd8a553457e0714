//! How records are stored: compact, each name and each path once.
//!
//! A stored value may be of another version, or written by another program: then it counts as absent. The incarnation
//! and the signs of people are appended last, where earlier versions ignore them; values without them have 0 and none.

use serde::{Serialize, de::DeserializeOwned};

use super::table::MAX_VALUE;
use crate::abuse::{SharedClient, SharedEvidence};

/// Random bytes before the encoding of an entry's first value, new with each write, to detect changes.
const STAMP: usize = 8;

/// A value read from Redis.
#[derive(Debug, Default)]
pub(super) struct StoredValue<T> {
    /// Its first bytes; empty if there is no value.
    pub(super) stamp: Vec<u8>,
    pub(super) content: Option<T>,
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
    let StoredValue { stamp, content } = decode_with(value);
    StoredValue { stamp, content: content.map(|(content, incarnation, ())| (content, incarnation)) }
}

/// Decodes a first value and what is appended to it.
fn decode_with<T: DeserializeOwned, A: DeserializeOwned + Default>(
    value: Option<&[u8]>,
) -> StoredValue<(T, u32, A)> {
    let value = value.unwrap_or_default();
    let content = value.get(STAMP..).and_then(parse).map(|(content, rest)| {
        let (incarnation, rest) = postcard::take_from_bytes(rest).unwrap_or_default();
        (content, incarnation, postcard::from_bytes(rest).unwrap_or_default())
    });
    StoredValue { stamp: value.get(..STAMP).unwrap_or(value).to_vec(), content }
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
    let SharedClient { counts, evidence, incarnation, people } = client;
    let mut counts = encode(counts, *incarnation);
    if !people.is_empty() {
        counts = append(counts, people);
    }
    if evidence.is_empty() {
        return [counts, Vec::new()];
    }
    let encoded = |evidence: &SharedEvidence| append(counts[..STAMP].to_vec(), evidence);
    let mut value = encoded(evidence);
    if value.len() > MAX_VALUE {
        let mut shorter = evidence.clone();
        while value.len() > MAX_VALUE && shorter.shorten() {
            value = encoded(&shorter);
        }
    }
    [counts, value]
}

/// Decodes a client from its two values.
pub(super) fn decode_client(counts: Option<&[u8]>, evidence: Option<&[u8]>) -> StoredValue<SharedClient> {
    let StoredValue { stamp, content } = decode_with(counts);
    let content = content.map(|(counts, incarnation, people)| {
        // Evidence is valid only with the counts it was written with.
        let evidence = evidence.and_then(|value| value.strip_prefix(stamp.as_slice())).and_then(parse);
        let evidence = evidence.map(|(evidence, _)| evidence).unwrap_or_default();
        SharedClient { counts, evidence, incarnation, people }
    });
    StoredValue { stamp, content }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::abuse::{
        SharedCounts, SharedUnblock, Unblock, parse as parse_address,
        testing::{entry_at, record, registry_keeping},
    };

    /// A client with this number of requests, of which every other has a user. `path`: of each.
    fn client_with(records: i64, path: impl Fn(i64) -> String) -> SharedClient {
        let last = 1_783_080_001_000_000;
        let registry = registry_keeping(records as usize, Duration::from_secs(3_600));
        let request = |n| entry_at(last - n * 10_000, Some("acme").filter(|_| n % 2 == 0), &path(n));
        let requests: Vec<_> = (0..records.max(1)).map(request).collect();
        record(&registry, &requests, last + 1_000_000);
        let pending = registry.pending_clients(last, 1).remove(0);
        let address = parse_address("203.0.113.7").unwrap();
        let (mut client, _) =
            registry.merge_shared(address, SharedClient::default(), Some((&pending, 7)), last, 0);
        let unblock = Unblock { time: last, by: "ann".into() };
        client.counts.unblocked = Some(SharedUnblock { unblock, denied_since: true }).filter(|_| records > 0);
        SharedClient { incarnation: u32::MAX, ..client }
    }

    fn client(records: i64) -> SharedClient {
        client_with(records, |_| "/a".to_owned())
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
        assert!(values[0].len() < 150 && values[1].len() < 70, "{} {}", values[0].len(), values[1].len());
    }

    #[test]
    fn instances_of_earlier_versions_read_it_and_are_read() {
        let client = client(5);
        let [counts, evidence] = encode_client(&client);
        assert!(postcard::from_bytes::<SharedCounts>(&counts[STAMP..]).is_ok());
        let earlier = &counts[..counts.len() - postcard::to_allocvec(&u32::MAX).unwrap().len()];
        let stored = decode_client(Some(earlier), Some(&evidence));
        assert_eq!(stored.content, Some(SharedClient { incarnation: 0, people: Vec::new(), ..client }));
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
        assert_eq!(mixed.content.map(|client| client.evidence), Some(SharedEvidence::default()));
    }

    #[test]
    fn a_value_that_is_too_long_loses_its_oldest_records() {
        let client = client_with(1_000, |n| format!("/{n}{}", "x".repeat(900)));
        let values = encode_client(&client);
        assert!(values[1].len() <= MAX_VALUE);
        let mut quarter = client.evidence;
        assert!(quarter.shorten() && quarter.shorten());
        assert_eq!(round_trip(&values).content.unwrap().evidence, quarter);
    }

    #[test]
    fn values_that_no_instance_writes_are_passed_over() {
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
