//! A worker's record of decisions. It is on the path of a request: most requests of a policy with many keys end with a
//! hash and a comparison.

use std::{
    cell::RefCell,
    hash::{BuildHasher, Hasher},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc::SyncSender,
    },
};

use compact_str::CompactString;

use super::{
    demand::DemandTally,
    plan::{PeakPlan, SampleName},
};
use crate::{
    limit::{Check, algorithm::Verdict},
    telemetry::metrics::Metrics,
};

/// Keys that are tallied at once. Keys that meet in one place replace each other.
const PLACES: usize = 512;
/// Tallies per tick, at most. Further ones are dropped, and counted.
const MAX_TALLIES: usize = 2_048;
/// Tallies that may wait to be merged, in all batches.
const MAX_QUEUED: usize = 16_384;
/// The longest part of a key that is kept, in bytes.
const MAX_NAME: usize = 200;
/// The longest span of a tally, in microseconds, and the shortest part of a window.
const LONGEST_SPAN: i64 = 1_000_000;
const SPANS_PER_WINDOW: i64 = 8;

/// Records decisions. Belongs to one worker and one configuration.
#[derive(Debug)]
pub struct PeakRecorder {
    plan: Arc<PeakPlan>,
    sender: PeakSender,
    tallies: RefCell<Tallies>,
}

/// A check that the store has decided.
#[derive(Debug, Clone, Copy)]
pub struct DecidedCheck<'a> {
    pub name: SampleName,
    pub check: &'a Check<'a>,
    pub verdict: &'a Verdict,
    /// Whether the request is admitted by all checks, so that its units are taken.
    pub is_admitted: bool,
    /// When it was decided, in microseconds since the Unix epoch.
    pub time: i64,
}

#[derive(Debug, Default)]
struct Tallies {
    places: Vec<Option<PeakTally>>,
    /// The places in use.
    used: Vec<usize>,
    /// Tallies that were replaced.
    full: Vec<PeakTally>,
    dropped: u64,
}

/// A tally, and whose it is.
#[derive(Debug)]
pub(super) struct PeakTally {
    pub(super) hash: u64,
    pub(super) name: SampleName,
    /// The number of the sample.
    pub(super) sample: u32,
    /// When it ends, so that it is part of one window.
    until: i64,
    pub(super) tally: DemandTally,
    pub(super) key: CompactString,
}

impl PeakRecorder {
    pub(super) fn new(plan: Arc<PeakPlan>, sender: PeakSender) -> Self {
        Self { plan, sender, tallies: RefCell::default() }
    }

    /// Records a decision. Inlined, which halves its cost: it has one caller, the path of a request.
    #[inline(always)]
    pub fn record(&self, decided: DecidedCheck<'_>) {
        let DecidedCheck { name, check, verdict, is_admitted, time } = decided;
        let mut hasher = self.plan.hasher.build_hasher();
        hasher.write(check.identifier.as_bytes());
        let hash = hasher.finish();
        let used = verdict.limit.saturating_sub(verdict.remaining);
        let admitted = if is_admitted { check.cost } else { 0 };
        let denied = if verdict.admitted { 0 } else { check.cost };
        let tallies = &mut *self.tallies.borrow_mut();
        if let Some(Some(known)) = tallies.places.get_mut(place(hash))
            && known.hash == hash
            && known.name == name
            && known.tally.tier == verdict.tier
            && time < known.until
        {
            known.tally.used = known.tally.used.max(used);
            known.tally.admitted = known.tally.admitted.saturating_add(admitted);
            known.tally.denied = known.tally.denied.saturating_add(denied);
            return;
        }
        let tally = DemandTally { tier: verdict.tier, used, admitted, denied, time };
        self.begin(tallies, hash, tally, DecidedCheck { name, check, verdict, is_admitted, time });
    }

    /// Begins a tally, if the key is in the sample. The one that is in its place is handed over with the next tick.
    #[inline(never)]
    fn begin(&self, tallies: &mut Tallies, hash: u64, tally: DemandTally, decided: DecidedCheck<'_>) {
        let DecidedCheck { name, check, verdict, time, .. } = decided;
        let Some(sample) = self.plan.sample(name) else { return };
        // Nothing is known of a limit that was not decided.
        if hash >= self.plan.threshold(sample) || verdict.limit == Verdict::UNKNOWN.limit {
            return;
        }
        if tallies.places.is_empty() {
            tallies.places.resize_with(PLACES, || None);
        }
        let Some(at) = tallies.places.get_mut(place(hash)) else { return };
        if at.is_some() && tallies.full.len() >= MAX_TALLIES {
            tallies.dropped += 1;
            return;
        }
        let window = check.policy.tiers.first().map_or(0, |tier| tier.window);
        let span = (window / SPANS_PER_WINDOW).clamp(1, LONGEST_SPAN);
        let until = time - time.rem_euclid(span) + span;
        let key = shorten(&check.identifier);
        match at.replace(PeakTally { hash, name, sample, until, tally, key }) {
            Some(replaced) => tallies.full.push(replaced),
            None => tallies.used.push(place(hash)),
        }
    }

    /// Hands the tallies over. To be called a few times a second.
    pub fn flush(&self) {
        let mut tallies = self.tallies.borrow_mut();
        let Tallies { places, used, full, dropped } = &mut *tallies;
        let current = used.drain(..).filter_map(|place| places.get_mut(place)?.take());
        full.extend(current);
        let dropped = std::mem::take(dropped);
        if full.is_empty() && dropped == 0 {
            return;
        }
        let batch = PeakBatch { plan: Arc::clone(&self.plan), tallies: std::mem::take(full) };
        self.sender.send(batch, dropped);
    }
}

/// Where a key is tallied. By the lowest bits: the threshold compares the highest.
fn place(hash: u64) -> usize {
    hash as usize % PLACES
}

/// The key, cut if it is long.
fn shorten(identifier: &CompactString) -> CompactString {
    if identifier.len() <= MAX_NAME {
        return identifier.clone();
    }
    let end = (0..=MAX_NAME).rev().find(|&end| identifier.is_char_boundary(end)).unwrap_or_default();
    let mut name = CompactString::from(&identifier[..end]);
    name.push('…');
    name
}

/// The tallies of one tick of a worker.
#[derive(Debug)]
pub(super) struct PeakBatch {
    pub(super) plan: Arc<PeakPlan>,
    pub(super) tallies: Vec<PeakTally>,
}

/// A worker's end of the queue.
#[derive(Clone)]
pub(super) struct PeakSender {
    pub(super) queue: SyncSender<PeakBatch>,
    pub(super) queued: Arc<AtomicUsize>,
    pub(super) metrics: Arc<Metrics>,
}

impl PeakSender {
    /// Hands a batch over, or drops it if there is no room. `dropped`: tallies that the worker has dropped.
    pub(super) fn send(&self, batch: PeakBatch, mut dropped: u64) {
        let count = batch.tallies.len();
        let before = self.queued.fetch_add(count, Relaxed);
        let fits = before == 0 || before.saturating_add(count) <= MAX_QUEUED;
        if !fits || self.queue.try_send(batch).is_err() {
            self.queued.fetch_sub(count, Relaxed);
            dropped += count as u64;
        }
        if dropped > 0 {
            self.metrics.add_peaks_dropped(dropped);
        }
    }
}

impl std::fmt::Debug for PeakSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PeakSender").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use compact_str::format_compact;

    use super::*;
    use crate::{
        limit::{ManualClock, Policy, algorithm::Detail},
        peaks::PeakCollector,
        telemetry::{metrics::Metrics, testing},
    };

    const NOW: i64 = 1_783_080_000_000_000;

    fn recorder() -> (PeakRecorder, Arc<PeakPlan>, Arc<Metrics>) {
        let config = testing::config();
        let metrics = Metrics::new(&config, 1);
        let policies: Arc<[Policy]> = Policy::all(config.policies.iter().map(Arc::as_ref)).into();
        let plan = Arc::new(PeakPlan::new(&config, policies, None));
        let collector = PeakCollector::spawn(ManualClock::new(NOW), Arc::clone(&metrics)).unwrap();
        (collector.recorder(&plan), plan, metrics)
    }

    fn policy() -> Policy {
        Policy::all(testing::config().policies.iter().map(Arc::as_ref)).remove(0)
    }

    /// Records a decision after which so many of 100 units are in use. `None`: it is denied.
    fn record(recorder: &PeakRecorder, key: &str, used: Option<u64>, time: i64) {
        let verdict = Verdict {
            admitted: used.is_some(),
            limit: 100,
            remaining: used.map_or(0, |used| 100 - used),
            ..Verdict::UNKNOWN
        };
        let check = Check { policy: &policy(), identifier: key.into(), cost: 1, detail: Detail::None };
        recorder.record(DecidedCheck {
            name: SampleName { route: 0, policy: 0, variant: 0 },
            check: &check,
            verdict: &verdict,
            is_admitted: used.is_some(),
            time,
        });
    }

    #[track_caller]
    fn merged(plan: &PeakPlan, expected: &[(&str, u64)]) {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let (_, _, found) = plan.distributions(0, NOW).remove(0);
            let keys: Vec<_> = found.above(0).iter().map(|key| (key.key.as_str(), key.peak)).collect();
            if keys == expected {
                return;
            }
            assert!(Instant::now() < end, "{keys:?}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn decisions_on_one_key_are_one_tally() {
        let (recorder, plan, metrics) = recorder();
        for used in 1..=100 {
            record(&recorder, "user:ann", Some(used), NOW + used as i64);
        }
        for nth in 0..30 {
            record(&recorder, "user:ann", None, NOW + 200 + nth);
        }
        record(&recorder, "user:bob", Some(7), NOW);
        assert!(recorder.tallies.borrow().full.is_empty());
        recorder.flush();
        merged(&plan, &[("user:bob", 7), ("user:ann", 130)]);
        assert_eq!(metrics.peaks_dropped(), 0);
    }

    #[test]
    fn a_long_key_is_cut() {
        let (recorder, plan, _) = recorder();
        record(&recorder, &"é".repeat(300), Some(1), NOW);
        recorder.flush();
        merged(&plan, &[(&("é".repeat(MAX_NAME / 2) + "…"), 1)]);
    }

    #[test]
    fn a_flood_of_keys_is_dropped_and_counted() {
        let (recorder, plan, metrics) = recorder();
        for nth in 0..10_000 {
            record(&recorder, &format_compact!("user:{nth}"), Some(1), NOW);
        }
        let kept = {
            let tallies = recorder.tallies.borrow();
            assert_eq!((tallies.full.len(), tallies.used.len()), (MAX_TALLIES, PLACES));
            assert_eq!(tallies.dropped, (10_000 - MAX_TALLIES - PLACES) as u64);
            tallies.dropped
        };
        recorder.flush();
        assert_eq!(metrics.peaks_dropped(), kept);
        // Keys beyond the threshold are no longer recorded: of 2,560 merged keys, 2,048 are below it.
        let passes = |nth: u64| {
            let mut hasher = plan.hasher.build_hasher();
            hasher.write(format!("user:{nth}").as_bytes());
            hasher.finish() < plan.threshold(0)
        };
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let passed = (0..10_000).filter(|&nth| passes(nth)).count() as f64;
            if (passed / 8_000.0 - 1.0).abs() < 0.05 {
                break;
            }
            assert!(Instant::now() < end, "{passed}");
            std::thread::yield_now();
        }
    }
}
