//! Moments in which this machine stood still: what took long then says nothing of Tollgate.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// How often the watching thread looks at the clock.
const TICK: Duration = Duration::from_millis(5);
/// If it gets to do so this late, the machine stood still.
const LATE: Duration = Duration::from_millis(100);
/// What ran into a time limit meanwhile is tried anew afterwards.
const AFTERMATH: Duration = Duration::from_secs(1);

/// Watches for them from its start, as jHiccup does.
pub struct HiccupWatch {
    stop: Arc<AtomicBool>,
    watch: JoinHandle<Hiccups>,
}

/// From when to when.
pub struct Hiccups(Vec<(Instant, Instant)>);

impl HiccupWatch {
    pub fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let watch = thread::spawn(move || {
            let (mut hiccups, mut before) = (Vec::new(), Instant::now());
            while !stopped.load(SeqCst) {
                thread::sleep(TICK);
                if before.elapsed() > LATE {
                    hiccups.push((before, Instant::now() + AFTERMATH));
                }
                before = Instant::now();
            }
            Hiccups(hiccups)
        });
        Self { stop, watch }
    }

    pub fn stop(self) -> Hiccups {
        self.stop.store(true, SeqCst);
        self.watch.join().expect("it only looks at the clock")
    }
}

impl Hiccups {
    /// Whether something that began then, and took so long, ran into one of them.
    pub fn disturbed(&self, begun: Instant, took: Duration) -> bool {
        self.0.iter().any(|&(from, to)| begun < to && from < begun + took)
    }
}

#[test]
fn a_measurement_that_overlaps_a_hiccup_is_disturbed() {
    let begun = Instant::now();
    let second = |n| begun + Duration::from_secs(n);
    let hiccups = Hiccups(vec![(second(10), second(12))]);
    let disturbed = |from, took| hiccups.disturbed(second(from), Duration::from_secs(took));
    let found = [(8, 1), (8, 3), (10, 1), (11, 5), (9, 9), (12, 1)].map(|(from, took)| disturbed(from, took));
    assert_eq!(found, [false, true, true, true, true, false]);
    let watch = HiccupWatch::start();
    thread::sleep(4 * TICK);
    let (stood_still, elapsed) = (watch.stop(), begun.elapsed());
    assert!(elapsed > LATE || !stood_still.disturbed(begun, elapsed));
}
