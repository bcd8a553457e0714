//! The thread that merges the workers' records. Workers never wait for it.

use std::{
    io,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    super::clients::ClientRegistry,
    Recorder,
    queue::{TickReceiver, TickSender, tick_queue},
};
use crate::{limit::Clock, telemetry::metrics::Metrics};

/// How often expired records are removed while there are new or expired ones.
const SWEEP: Duration = Duration::from_millis(100);
/// The longest pause between two sweeps: with clients in the registry, and without.
const REST: Duration = Duration::from_secs(1);
const REST_WHEN_EMPTY: Duration = Duration::from_secs(10);

/// Receives the recorders' ticks. Its thread ends when it and all its recorders are dropped.
#[derive(Debug)]
pub struct Collector {
    queue: TickSender,
    /// Closed once the thread has ended; nothing is ever sent.
    ended: Receiver<()>,
    registry: Arc<ClientRegistry>,
    metrics: Arc<Metrics>,
}

impl Collector {
    /// Starts the thread.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn spawn(
        registry: Arc<ClientRegistry>,
        clock: impl Clock + 'static,
        metrics: Arc<Metrics>,
    ) -> io::Result<Self> {
        let (queue, ticks) = tick_queue(registry.queued_bytes());
        let merged = Arc::clone(&registry);
        let (working, ended) = channel();
        let work = move || {
            collect(&ticks, &merged, &clock);
            drop(working);
        };
        thread::Builder::new().name("abuse".into()).spawn(work)?;
        Ok(Self { queue, ended, registry, metrics })
    }

    /// Waits until everything that the recorders handed over is merged, once they are all dropped. Returns whether
    /// that happened within `limit`.
    pub fn finish(self, limit: Duration) -> bool {
        drop(self.queue);
        self.ended.recv_timeout(limit) == Err(RecvTimeoutError::Disconnected)
    }

    /// A recorder for one worker. It refers to policies by their current indexes: after a reload, the worker needs
    /// another one.
    pub fn recorder(&self) -> Recorder {
        let (policies, names) = (self.registry.policies(), self.registry.names());
        let watched = Arc::clone(&self.registry.watched);
        Recorder::new(self.queue.clone(), policies, names, watched, Arc::clone(&self.metrics))
    }
}

fn collect(ticks: &TickReceiver, registry: &ClientRegistry, clock: &impl Clock) {
    let (mut swept, mut pause) = (Instant::now(), SWEEP);
    loop {
        let received = ticks.receive(pause, |tick| registry.record(tick, clock.now()));
        if received == Err(RecvTimeoutError::Disconnected) {
            return;
        }
        if received.is_ok() {
            pause = SWEEP;
        }
        if swept.elapsed() >= SWEEP {
            swept = Instant::now();
            let has_removed = registry.sweep(clock.now());
            let has_evidence = registry.look_for_incidents(clock.now());
            let is_empty = registry.len_and_bytes().0 == 0 && !has_evidence;
            let most = if is_empty { REST_WHEN_EMPTY } else { REST };
            pause = if has_removed || received.is_ok() { SWEEP } else { (pause * 2).min(most) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            super::{
                address,
                testing::{LINE, entry, policy},
            },
            DenialReport,
        },
        *,
    };
    use crate::{limit::ManualClock, telemetry::testing};

    #[test]
    fn recorded_denials_reach_the_registry() {
        let metrics = Metrics::new(&testing::config(), 1);
        let registry =
            Arc::new(ClientRegistry::new(&[policy()], Duration::from_secs(60), Arc::clone(&metrics)));
        let collector = Collector::spawn(Arc::clone(&registry), ManualClock::new(10), metrics).unwrap();
        let recorder = collector.recorder();
        let denial = DenialReport {
            address: "2001:db8::/64",
            policy: 0,
            identifier: "ip:2001:db8::/64",
            user: Some("acme"),
            is_user_verified: true,
            is_customer: true,
            now: 9,
            until: 20,
        };
        assert!(recorder.record(&denial, || LINE, || entry(9, "acme")));
        recorder.record_evidence(
            denial.address,
            0,
            denial.identifier,
            vec![entry(1, "bob"), entry(2, "eve")],
        );
        recorder.flush();
        let address = address::parse("2001:db8::/64").unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        let records = loop {
            // The denial arrives first, then the requests that filled its limit.
            match registry.find(address, 10) {
                Some((client, records, _)) if client.users == 3 => break records,
                found => assert!(Instant::now() < deadline, "not all arrived: {found:?}"),
            }
            thread::yield_now();
        };
        let users: Vec<_> = records.iter().filter_map(|record| record.entry.user.as_deref()).collect();
        assert_eq!(users, ["acme", "eve", "bob"]);
    }
}
