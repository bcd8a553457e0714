//! The thread that merges the workers' tallies. Workers never wait for it.

use std::{
    io,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError, sync_channel},
    },
    thread,
    time::Duration,
};

use super::{
    hourly_max::hour,
    plan::PeakPlan,
    recorder::{PeakBatch, PeakRecorder, PeakSender, PeakTally},
};
use crate::{limit::Clock, telemetry::metrics::Metrics};

/// Bytes that all samples may take.
pub(super) const MAX_BYTES: usize = 8 << 20;
/// Batches that may wait to be merged.
const MAX_BATCHES: usize = 1_024;
/// How often the thread looks at the clock.
const INTERVAL: Duration = Duration::from_secs(10);

/// Makes the recorders of workers, and merges their tallies. Its thread ends when it and all its recorders are dropped.
#[derive(Debug)]
pub struct PeakCollector {
    sender: PeakSender,
}

impl PeakCollector {
    /// Starts the thread.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn spawn(clock: impl Clock + 'static, metrics: Arc<Metrics>) -> io::Result<Self> {
        let (queue, batches) = sync_channel(MAX_BATCHES);
        let sender = PeakSender { queue, queued: Arc::default(), metrics };
        let queued = Arc::clone(&sender.queued);
        thread::Builder::new().name("peaks".into()).spawn(move || collect(&batches, &queued, &clock))?;
        Ok(Self { sender })
    }

    /// A recorder for one worker under the configuration of this plan.
    pub fn recorder(&self, plan: &Arc<PeakPlan>) -> PeakRecorder {
        PeakRecorder::new(Arc::clone(plan), self.sender.clone())
    }
}

fn collect(batches: &Receiver<PeakBatch>, queued: &AtomicUsize, clock: &impl Clock) {
    let mut latest: Weak<PeakPlan> = Weak::new();
    let mut expired = hour(clock.now());
    loop {
        match batches.recv_timeout(INTERVAL) {
            Ok(PeakBatch { plan, tallies }) => {
                queued.fetch_sub(tallies.len(), Relaxed);
                for PeakTally { hash, sample, tally, key, .. } in tallies {
                    plan.add(sample, hash, &key, tally);
                }
                plan.fit(MAX_BYTES);
                latest = Arc::downgrade(&plan);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let now = hour(clock.now());
        if now > expired {
            expired = now;
            if let Some(plan) = latest.upgrade() {
                plan.expire(clock.now());
            }
        }
    }
}
