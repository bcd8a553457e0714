//! The copy of a client that all instances share, in the form in which it is stored: each name and each path once.

use std::{cmp::Reverse, collections::HashMap, sync::Arc};

use compact_str::CompactString;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{
    super::{address, traffic::People},
    ClientRegistry, DeniedCounts, PendingClient, TrafficCounts, Unblock, UserSample,
    distinct_users::oldest_slice,
    history::{DenialHistory, HistoryLimit, LIMITS},
    policies::RecordPolicies,
    records::RecordBounds,
    registry::RecordSettings,
};
use crate::limit::algorithm::metadata_list::Entry;

/// Bytes of a name, an identifier or a path. More than any instance writes.
const MAX_TEXT_BYTES: usize = 1_024;
/// Instances whose signs of people are kept.
const PEOPLE: usize = 16;
/// Microseconds that another instance's clock may be ahead of ours.
const MAX_CLOCK_SKEW: i64 = 60_000_000;

/// The copy of a client that instances share. Each merges its records into it; merging them twice makes no
/// difference.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SharedClient {
    pub counts: SharedCounts,
    pub evidence: SharedEvidence,
    /// Distinguishes this copy from a lost one, whose records have to be published again. 0 if an instance of an
    /// earlier version wrote it.
    pub incarnation: u32,
    /// The signs of people that each instance has seen, and in which period. Empty if instances of an earlier version wrote it.
    pub people: Vec<(u32, u32, People)>,
}

/// The counts of a client, kept as long as it is listed. Times are microseconds since the Unix epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedCounts {
    /// The first and the last denial.
    pub first: i64,
    pub last: i64,
    /// The end of the last of its limits.
    pub until: i64,
    pub denied: DeniedCounts,
    pub users: UserSample,
    pub traffic: TrafficCounts,
    policies: Vec<SharedPolicy>,
    /// Limits that name no user and no path.
    limits: Vec<SharedLimit<String>>,
    pub unblocked: Option<SharedUnblock>,
}

/// The evidence of a client. Policies are indexes into the policies of its counts; times are microseconds before its last
/// denial, as in the counts' limits; texts are indexes into `texts`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedEvidence {
    texts: Vec<String>,
    limits: Vec<SharedLimit<u32>>,
    pub(super) records: Vec<SharedRequest>,
}

/// A policy that denied the client, and the bounds of its records: instances without the policy keep them no longer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SharedPolicy {
    name: String,
    keep: u32,
    /// Microseconds.
    retain: i64,
}

/// A limit that denied the client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SharedLimit<T> {
    policy: u32,
    identifier: T,
    until: i64,
    /// When it last denied.
    last: i64,
}

/// A request of the client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SharedRequest {
    policy: u32,
    time: i64,
    user: Option<u32>,
    method: u32,
    path: u32,
}

/// The last unblock of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedUnblock {
    /// By the archive's own clock.
    pub unblock: Unblock,
    /// Whether the client was denied again since. Times alone do not tell, because each instance's denials have its
    /// own clock.
    pub denied_since: bool,
}

/// When the parts of a shared client expire, in microseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expiry {
    /// When the first of its records has to be removed.
    pub evidence: Option<i64>,
    /// When it is no longer listed.
    pub client: i64,
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
            to_u32(self.all.len() - 1)
        })
    }

    fn into_texts(self) -> Vec<String> {
        self.all.into_iter().map(str::to_owned).collect()
    }
}

impl SharedEvidence {
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.limits.is_empty()
    }

    /// Drops the older half of the records. False if there are none.
    pub fn shorten(&mut self) -> bool {
        let Self { texts, limits, records } = self;
        records.sort_by_key(|record| record.time);
        let any = !records.is_empty();
        records.truncate(records.len() / 2);
        let mut kept = TextTable::default();
        let mut keep = |index: &mut u32| {
            *index = texts.get(to_usize(*index)).map_or(u32::MAX, |text| kept.index_of(text));
        };
        limits.iter_mut().for_each(|limit| keep(&mut limit.identifier));
        for SharedRequest { user, method, path, .. } in records {
            user.iter_mut().for_each(&mut keep);
            keep(method);
            keep(path);
        }
        *texts = kept.into_texts();
        any
    }
}

impl SharedClient {
    /// The signs of people that other instances have seen, in this period or in the last one.
    pub(super) fn people_of_others(&self, instance: u32, period: u32) -> Option<People> {
        let others = self.people.iter().filter(|(by, seen, _)| *by != instance && is_of_now(*seen, period));
        others.map(|(.., people)| people.clone()).reduce(|mut all, people| {
            all.merge(&people);
            all
        })
    }

    /// Replaces the records by those of `history`, without its counts.
    fn set_records(&mut self, history: &DenialHistory, policies: &RecordPolicies) {
        let before_last = |time: i64| history.last.saturating_sub(time);
        let policy = |(name, _): &(Arc<str>, _)| {
            let RecordBounds { keep, retain } = policies.bounds(name);
            SharedPolicy { name: name.to_string(), keep: to_u32(keep), retain }
        };
        let position = |name: &Arc<str>| history.policies.iter().position(|(known, _)| known == name);
        let (mut lasting, mut passing, mut records) = (Vec::new(), Vec::new(), Vec::new());
        let mut texts = TextTable::default();
        for limit in &history.limits {
            let Some(policy) = position(&limit.policy).map(to_u32) else { continue };
            let (until, last) = (before_last(limit.until), before_last(limit.last));
            if limit.names_more_than_an_address() {
                let identifier = texts.index_of(&limit.identifier);
                passing.push(SharedLimit { policy, identifier, until, last });
            } else {
                let identifier = limit.identifier.to_string();
                lasting.push(SharedLimit { policy, identifier, until, last });
            }
        }
        for (policy, (_, buffer)) in history.policies.iter().enumerate() {
            records.extend(buffer.iter().map(|entry| SharedRequest {
                policy: to_u32(policy),
                time: before_last(entry.time),
                user: entry.user.as_deref().map(|user| texts.index_of(user)),
                method: texts.index_of(entry.method.as_str()),
                path: texts.index_of(&entry.path),
            }));
        }
        self.evidence = SharedEvidence { texts: texts.into_texts(), limits: passing, records };
        let DenialHistory { first, last, until, .. } = *history;
        let counts = &mut self.counts;
        (counts.first, counts.last, counts.until) = (first, last, until);
        counts.policies = history.policies.iter().map(policy).collect();
        counts.limits = lasting;
    }

    /// The records as a history, without counts. They are received from outside, so anything that no instance writes is
    /// left out. `address_text`: the client's address.
    pub(super) fn history(
        &self,
        address_text: &str,
        RecordSettings { policies, names, .. }: &RecordSettings,
        now: i64,
    ) -> DenialHistory {
        let Self { counts, evidence, .. } = self;
        let latest = now.saturating_add(MAX_CLOCK_SKEW);
        let mut history = DenialHistory::new(counts.first.min(latest));
        history.span(history.first, counts.last.min(latest), counts.until, 0);
        let known: Vec<_> = counts.policies.iter().map(|policy| intern(policy, policies)).collect();
        known.iter().flatten().for_each(|name| history.add_policy(name));
        let named = |policy: u32| known.get(to_usize(policy)).and_then(Option::as_ref);
        let text = |index: u32| evidence.texts.get(to_usize(index)).map(String::as_str);
        let time = |before: i64| counts.last.saturating_sub(before);
        let lasting = counts
            .limits
            .iter()
            .map(|limit| (Some(&*limit.identifier), limit.policy, limit.until, limit.last));
        let passing = evidence
            .limits
            .iter()
            .map(|limit| (text(limit.identifier), limit.policy, limit.until, limit.last));
        for (identifier, policy, until, last) in lasting.chain(passing).take(LIMITS) {
            let (Some(identifier), Some(policy)) = (identifier.filter(|text| is_short(text)), named(policy))
            else {
                continue;
            };
            let (identifier, last) = (names.mask_key(identifier).into(), time(last).min(latest));
            let limit = HistoryLimit::new(Arc::clone(policy), identifier, time(until), last);
            history.add_limit(limit, address_text);
        }
        for record in &evidence.records {
            let entry = || {
                let user = match record.user {
                    Some(user) => Some(CompactString::from(text(user).filter(|text| is_short(text))?)),
                    None => None,
                };
                let path = text(record.path).filter(|text| is_short(text))?.into();
                Some(Entry {
                    time: time(record.time),
                    user,
                    method: text(record.method)?.parse().ok()?,
                    path,
                })
            };
            let Some(entry) = entry().filter(|entry| entry.time <= latest).map(Arc::new) else { continue };
            if let Some(policy) = named(record.policy)
                && let Some(buffer) = history.records_mut(policy)
            {
                buffer.insert(&names.mask_entry(&entry).0, policies.bounds(policy), now);
            }
        }
        history.expire(policies, now);
        history.trim_records(policies);
        history
    }
}

/// This instance's copy of the name.
fn intern(SharedPolicy { name, keep, retain }: &SharedPolicy, policies: &RecordPolicies) -> Option<Arc<str>> {
    is_short(name).then(|| policies.intern(name, RecordBounds { keep: to_usize(*keep), retain: *retain }))
}

fn is_short(text: &str) -> bool {
    text.len() <= MAX_TEXT_BYTES
}

fn to_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn to_usize(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Whether signs that were seen in the period `seen` still count.
fn is_of_now(seen: u32, period: u32) -> bool {
    seen.abs_diff(period) <= 1
}

/// Replaces what this instance has reported. Of too many, those who have seen the least are left out.
fn report_people(people: &mut Vec<(u32, u32, People)>, instance: u32, period: u32, own: Option<People>) {
    people.retain(|(by, seen, _)| *by != instance && is_of_now(*seen, period));
    people.extend(own.map(|own| (instance, period, own)));
    people.sort_unstable_by_key(|(by, _, people)| (Reverse(people.heads()), *by));
    people.truncate(PEOPLE);
}

/// The incarnation of the copy `stored`. `is_known`: whether there is a copy. `published`: the incarnation in which
/// this instance last published.
pub fn incarnation(stored: u32, is_known: bool, published: Option<u32>) -> u32 {
    match stored {
        _ if !is_known => fastrand::u32(1..),
        0 => published.unwrap_or_else(|| fastrand::u32(1..)),
        stored => stored,
    }
}

impl ClientRegistry {
    /// The shared client with this instance's records, or, without them, the shared client without expired records.
    /// `instance`: a number of this instance, not 0. `clock_lag`: microseconds by which the archive's clock is ahead.
    pub fn merge_shared(
        &self,
        address: IpNet,
        shared: SharedClient,
        own: Option<(&PendingClient, u32)>,
        now: i64,
        clock_lag: i64,
    ) -> (SharedClient, Expiry) {
        let settings = self.settings.read().clone();
        let RecordSettings { policies, names, retain } = &settings;
        let text = address::shown(address);
        let mut merged = shared;
        let is_known = !merged.counts.denied.is_empty();
        let mut history = is_known.then(|| merged.history(&text, &settings, now));
        let SharedClient { counts, incarnation: known_incarnation, people, .. } = &mut merged;
        if let Some((pending, instance)) = own {
            let before = pending.published.as_deref();
            *known_incarnation =
                incarnation(*known_incarnation, is_known, before.map(|before| before.incarnation));
            let before = before.filter(|before| before.incarnation == *known_incarnation);
            let mut own = pending.history.clone();
            counts.denied.report(instance, own.denied, before.map(|before| &before.denied));
            let traffic = own.traffic.clone().without_people();
            counts.traffic.report(instance, traffic, before.map(|before| &before.traffic));
            report_people(people, instance, policies.period(now), own.traffic.total().people().cloned());
            counts.users.add(&pending.users, pending.slice);
            own.mask(names);
            own.expire(policies, now);
            // The archive may have lost the unblock.
            let known = || pending.unblocked.as_ref().map(|unblock| unblock.shifted(clock_lag));
            let known = || known().map(|unblock| SharedUnblock { unblock, denied_since: false });
            counts.unblocked = counts.unblocked.take().or_else(known);
            if let Some(SharedUnblock { unblock, denied_since }) = &mut counts.unblocked {
                let time = unblock.time.saturating_sub(clock_lag);
                *denied_since |= own.last > time;
                // This instance may have missed the unblock.
                own.end_limits(time);
            }
            history = Some(match history {
                Some(mut history) => {
                    history.merge(&own, &text, policies, now);
                    history
                }
                None => own,
            });
        }
        counts.users.expire(oldest_slice(policies.slice(now)));
        let known_until = history.as_ref().map(|history| history.last);
        let unblocked = counts.unblocked.as_ref();
        let unblocked = unblocked.map(|known| known.unblock.time.saturating_sub(clock_lag));
        let history = history.unwrap_or_else(|| DenialHistory::new(now));
        merged.set_records(&history, policies);
        let expiry = Expiry {
            evidence: history.ends(policies),
            client: known_until.or(unblocked).unwrap_or(now).saturating_add(*retain),
        };
        (merged, expiry)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            super::testing::{SECOND, denied_once, entry, masked, names, policy, registry, tally_of},
            PeerView,
            records::MAX_KEEP,
        },
        *,
    };
    use crate::{
        abuse::{UserNaming, recording::masking::AddressDenials},
        config::model::Users,
        limit::Policy,
    };

    const ADDRESS: &str = "203.0.113.7";

    fn client() -> IpNet {
        address::parse(ADDRESS).unwrap()
    }

    /// The records to publish by an instance that denied a request at each of these times.
    fn pending(times: &[i64]) -> PendingClient {
        let registry = registry();
        times.iter().for_each(|&time| registry.record(denied_once(ADDRESS, time), time));
        registry.pending_clients(*times.last().unwrap(), 1).remove(0)
    }

    fn merge(shared: SharedClient, own: Option<(&PendingClient, u32)>, now: i64) -> (SharedClient, Expiry) {
        registry().merge_shared(client(), shared, own, now, 0)
    }

    /// Publishes this instance's records into `shared`.
    fn publish(registry: &ClientRegistry, number: u32, shared: &mut SharedClient, now: i64) {
        for pending in registry.pending_clients(now, 1) {
            let own = Some((&pending, number));
            (*shared, _) = registry.merge_shared(client(), std::mem::take(shared), own, now, 0);
            registry.ack_client(&pending, shared.incarnation, now);
        }
    }

    #[test]
    fn of_a_client_that_many_instances_deny_each_denial_counts_once() {
        let instances: Vec<_> = (0..20).map(|_| registry()).collect();
        let mut shared = SharedClient::default();
        let denied = |shared: &SharedClient| {
            (
                shared.counts.denied.total(),
                shared.counts.traffic.total().map(|traffic| traffic.total().denied),
            )
        };
        for round in 1..=60 {
            let now = round * SECOND;
            for (number, instance) in (1..).zip(&instances) {
                instance.record(denied_once(ADDRESS, now), now);
                publish(instance, number, &mut shared, now);
            }
            let expected = u32::try_from(round).unwrap() * 20;
            assert_eq!(shared.counts.denied.total(), Some(expected.into()), "round {round}");
        }
        // The archive loses it, and returns.
        let lost = std::mem::take(&mut shared);
        let now = 61 * SECOND;
        for (number, instance) in (1..21).zip(&instances).rev() {
            instance.republish_all(now);
            publish(instance, number, &mut shared, now);
            instance.republish_all(now);
        }
        assert_eq!(denied(&shared), denied(&lost));
        // Each publishes again, even if it does not have to.
        for (number, instance) in (1..).zip(&instances) {
            publish(instance, number, &mut shared, now + SECOND);
        }
        assert_eq!(denied(&shared), denied(&lost));
        // Counts of this instance that were summed up with others do not count as theirs.
        let first = instances.iter().zip(1..).find(|&(_, number)| shared.counts.denied.is_summed_up(number));
        let (instance, number) = first.unwrap();
        let view = PeerView { client: shared, instance: number, now };
        instance.replace_peer_view(client(), view, Some(1), now);
        assert_eq!(instance.find(client(), now).map(|(client, ..)| client.denied), Some(1_200));
    }

    #[test]
    fn each_instance_adds_its_own_and_twice_is_once() {
        let (one, other) = (pending(&[1, 3]), pending(&[2]));
        let (first, expiry) = merge(SharedClient::default(), Some((&one, 7)), 5);
        assert_eq!(expiry, Expiry { client: 3 + 10 * SECOND, evidence: Some(1 + 5 * SECOND) });
        let (both, _) = merge(first.clone(), Some((&other, 8)), 5);
        let counts = &both.counts;
        assert_eq!((counts.denied.reported(), counts.users.len()), ([(7, 2), (8, 1)].as_slice(), 1));
        let times = |client: &SharedClient| {
            let before = client.evidence.records.iter().map(|record| record.time);
            before.map(|before| client.counts.last - before).collect::<Vec<_>>()
        };
        assert_eq!(times(&both), [1, 2, 3]);
        let (again, _) = merge(both.clone(), Some((&one, 7)), 5);
        assert_eq!(
            (again.counts.denied.reported(), times(&again)),
            ([(8, 1), (7, 2)].as_slice(), vec![1, 2, 3])
        );
        let of_others =
            [(&both, 7), (&first, 7), (&both, 9)].map(|(client, of)| client.counts.denied.of_others(of));
        assert_eq!(of_others, [Some(1), None, Some(3)]);
    }

    #[test]
    fn expired_records_leave_and_counts_stay() {
        let (both, _) = merge(SharedClient::default(), Some((&pending(&[0, SECOND]), 7)), SECOND);
        let (later, expiry) = merge(both.clone(), None, 5 * SECOND);
        assert_eq!((later.evidence.records.len(), expiry.evidence), (1, Some(6 * SECOND)));
        let (later, expiry) = merge(both, None, 6 * SECOND);
        assert_eq!((later.evidence.records.len(), expiry.evidence), (0, None));
        assert_eq!(later.counts.denied.reported(), [(7, 2)]);
    }

    const NOW: i64 = 1_783_080_001_000_000;

    fn settings(of: &[Policy], names: UserNaming) -> RecordSettings {
        let policies = Arc::new(RecordPolicies::new(of, 60_000_000));
        RecordSettings { policies, names: Arc::new(names), retain: 60_000_000 }
    }

    fn plain() -> RecordSettings {
        settings(&[policy()], UserNaming::default())
    }

    /// Two requests of two users, in the shared form.
    fn shared(settings: &RecordSettings) -> SharedClient {
        let tally = tally_of(&[entry(NOW - 2, "acme"), entry(NOW - 1, "bob")], NOW + 9);
        let AddressDenials { tally, users, .. } = masked(tally);
        let mut history = DenialHistory::new(tally.first);
        history.add(tally, &users, ADDRESS, &settings.policies, NOW, |_, _| {});
        assert_eq!(history.ends(&settings.policies), Some(NOW - 2 + 5_000_000));
        from_history(&history, settings)
    }

    fn from_history(history: &DenialHistory, settings: &RecordSettings) -> SharedClient {
        let mut shared = SharedClient::default();
        shared.set_records(history, &settings.policies);
        shared
    }

    #[test]
    fn records_survive_a_round_trip() {
        let settings = plain();
        let shared = shared(&settings);
        assert_eq!(shared.evidence.records.len(), 2);
        assert_eq!(from_history(&shared.history(ADDRESS, &settings, NOW), &settings), shared);
    }

    #[test]
    fn plain_names_of_another_instance_are_hashed() {
        let mut shared = shared(&plain());
        shared.counts.limits.push(SharedLimit {
            policy: 0,
            identifier: "user:acme".into(),
            until: 0,
            last: 0,
        });
        let hashing = settings(&[policy()], names(Users::Hashed));
        let hashed = format!("{:?}", from_history(&shared.history(ADDRESS, &hashing, NOW), &hashing));
        assert!(hashed.contains("hmac:") && !hashed.contains("acme") && !hashed.contains("bob"), "{hashed}");
    }

    #[test]
    fn own_plain_names_are_hashed_when_they_are_published_after_a_reload() {
        let registry = registry();
        registry.record(denied_once(ADDRESS, 1), 1);
        let pending = registry.pending_clients(1, 1).remove(0);
        registry.reconfigure(&[policy()], &[], &[], names(Users::Hashed), std::time::Duration::from_secs(10));
        let (merged, _) = registry.merge_shared(client(), SharedClient::default(), Some((&pending, 7)), 1, 0);
        let hashed = format!("{merged:?}");
        assert!(hashed.contains("hmac:") && !hashed.contains("acme"), "{hashed}");
    }

    #[test]
    fn records_of_a_policy_of_another_instance_are_kept_no_longer_here() {
        let elsewhere = settings(&[], UserNaming::default());
        let mut history = shared(&plain()).history(ADDRESS, &elsewhere, NOW);
        let kept =
            |history: &mut DenialHistory| history.records_mut(&"per-ip".into()).unwrap().iter().count();
        assert_eq!(kept(&mut history), 2);
        history.expire(&elsewhere.policies, NOW - 2 + 5_000_000);
        assert_eq!(kept(&mut history), 1);
    }

    #[test]
    fn invalid_parts_are_left_out() {
        let settings = plain();
        let mut shared = shared(&settings);
        let SharedClient { counts, evidence, .. } = &mut shared;
        let long = |text: &str| text.repeat(MAX_TEXT_BYTES + 1);
        let bounds = |name: String| SharedPolicy { name, keep: u32::MAX, retain: i64::MAX };
        counts.last = i64::MAX;
        counts.policies.extend((0..5_000).map(|policy| bounds(policy.to_string())));
        counts.policies.push(bounds(long("x")));
        counts.limits = vec![counts.limits[0].clone(); 5_000];
        let good = SharedRequest { time: i64::MAX - NOW, ..evidence.records[0].clone() };
        let (slashes, user) = (evidence.texts.len(), evidence.texts.len() + 1);
        evidence.texts.extend([long("/"), long("u")]);
        evidence.records = vec![good.clone(); 2];
        evidence.records.push(SharedRequest { time: 0, ..good.clone() });
        evidence.records.push(SharedRequest { time: i64::MIN, ..good.clone() });
        evidence.records.push(SharedRequest { path: to_u32(slashes), ..good.clone() });
        evidence.records.push(SharedRequest { user: Some(to_u32(user)), ..good.clone() });
        evidence.records.push(SharedRequest { method: 99, ..good.clone() });
        evidence.records.extend((0..6_000).map(|policy| SharedRequest { policy, ..good.clone() }));
        let mut history = shared.history(ADDRESS, &settings, NOW);
        assert_eq!(
            (history.last, history.policies.len(), history.limits.len()),
            (NOW + MAX_CLOCK_SKEW, 256, 1)
        );
        let records: usize = history.policies.iter().map(|(_, buffer)| buffer.iter().count()).sum();
        assert!((2..256 + MAX_KEEP).contains(&records), "{records}");
        let own: Vec<_> =
            history.records_mut(&"per-ip".into()).unwrap().iter().map(|entry| entry.time).collect();
        assert_eq!(own, [NOW; 3]);
        assert!(history.bytes() < 1 << 20);
    }

    #[test]
    fn the_oldest_records_and_their_texts_are_dropped_first() {
        let mut evidence = shared(&plain()).evidence;
        assert!(evidence.shorten());
        assert_eq!(evidence.texts, ["bob", "GET", "/a"]);
        assert_eq!(
            evidence.records,
            [SharedRequest { policy: 0, time: 0, user: Some(0), method: 1, path: 2 }]
        );
        assert!(evidence.shorten() && evidence.is_empty() && evidence.texts.is_empty());
        assert!(!evidence.shorten());
    }
}
