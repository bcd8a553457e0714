//! The thread that keeps in touch with Redis, so that no request has to: it says that this instance lives,
//! probes a server that was away, looks at what it is, publishes limited clients, and hears whom other instances
//! unblock.

use std::{
    io,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    runtime,
    sync::watch,
    time::{interval, timeout},
};

use super::{
    Duties,
    bans::BanSync,
    heartbeat::{Pulse, Seen},
    records, subscription,
};
use crate::{
    limit::{Breaker, Clock, Fleet},
    store::redis::{ServerCheck, channel::Message},
    telemetry::metrics::StoreFacts,
};

/// How often limited clients are published.
const ROUND: Duration = Duration::from_millis(250);
/// For one round.
const ROUND_TIMEOUT: Duration = Duration::from_millis(500);

/// The running monitor. Dropped, it ends by itself.
#[derive(Debug)]
pub struct Monitor {
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
    seen: Arc<Mutex<Seen>>,
    /// For a decision.
    timeout: Duration,
}

impl Monitor {
    /// Starts the thread.
    ///
    /// # Errors
    /// There is no thread or runtime left.
    pub fn spawn(duties: Duties) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = watch::channel(false);
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (watching, timeout) = (Arc::clone(&seen), duties.config.timeout);
        let run = move || {
            runtime.block_on(keep_in_touch(&duties, &watching, stopped));
            // A name that is still looked up must not keep the process.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("redis".into()).spawn(run)?;
        Ok(Self { stop, thread, seen, timeout })
    }

    /// What is known of the server, to be asked at any time.
    pub fn facts(
        &self,
        breaker: Arc<Breaker>,
        fleet: Arc<Fleet>,
    ) -> impl Fn() -> StoreFacts + Send + Sync + use<> {
        let (seen, limit) = (Arc::clone(&self.seen), self.timeout);
        move || {
            let seen = seen.lock();
            let ServerCheck { role, version, warnings, .. } = seen.audit.clone();
            let away = seen.trouble.iter().map(|why| format!("Redis can't be asked: {why}"));
            let far = seen.latency.and_then(|latency| far(latency, limit));
            StoreFacts {
                breaker_open: breaker.is_open(),
                instances: fleet.instances(),
                role,
                version,
                latency: seen.latency,
                warnings: away.chain(far).chain(seen.evictions()).chain(warnings).collect(),
                clock_offset: seen.fleet.own.as_ref().map(|own| own.clock_offset),
                own: seen.fleet.own.clone(),
                others: seen.fleet.others.clone(),
            }
        }
    }

    /// Says good-bye to the other instances and ends the thread.
    pub fn stop(self) {
        self.stop.send_replace(true);
        if self.thread.join().is_err() {
            tracing::error!("the monitor of Redis had crashed");
        }
    }
}

/// Under load a decision waits for the one before it: it takes two round trips, and some time besides.
fn far(latency: u64, timeout: Duration) -> Option<String> {
    let latency = Duration::from_micros(latency);
    (latency * 3 > timeout).then(|| {
        format!("a round trip takes {latency:.1?}: under load decisions will be late; store.redis.timeout should be three times that, and is {timeout:?}")
    })
}

async fn keep_in_touch(duties: &Duties, seen: &Mutex<Seen>, mut stopped: watch::Receiver<bool>) {
    let Duties { server, config, fleet, unblocked, cleared, .. } = duties;
    let ban_sync = BanSync::new(duties);
    let heard = |message: Option<&str>| {
        match message.map(Message::parse) {
            Some(Message::Array(change)) => return ban_sync.receive(change.as_bytes()),
            Some(Message::Identifier(identifier)) => unblocked(identifier),
            Some(Message::Limit { policy, identifier }) => cleared(policy, identifier),
            None => ban_sync.miss(),
        }
        fleet.pardon();
    };
    let pulse = Pulse::new(duties, seen);
    tokio::select! {
        () = subscription::listen(server, &config.prefix, heard) => {}
        () = pulse.beat_on() => {}
        () = publish(duties, &pulse) => {}
        () = ban_sync.run(&pulse) => {}
        _ = stopped.changed() => {}
    }
    pulse.say_goodbye().await;
}

/// Publishes limited clients for as long as it is polled. What can't be published now stays due.
async fn publish(duties: &Duties, pulse: &Pulse<'_>) {
    let Duties { breaker, scope, registry, clock, .. } = duties;
    let mut rounds = interval(ROUND);
    loop {
        rounds.tick().await;
        let Some(mut connection) = pulse.connection().filter(|_| !breaker.is_open()) else { continue };
        let round = records::publish_round(&mut connection, scope, registry, clock.now());
        match timeout(ROUND_TIMEOUT, round).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::debug!(%error, "limited clients can't be published"),
            Err(_) => tracing::debug!("limited clients can't be published in time"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_far_for_its_timeout_is_told_of() {
        let timeout = Duration::from_millis(50);
        assert_eq!(far(16_000, timeout), None);
        let warning = far(17_000, timeout).unwrap();
        assert!(warning.contains("takes 17.0ms") && warning.contains("is 50ms"), "{warning}");
    }
}
