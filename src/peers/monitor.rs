//! The thread that keeps in touch with Redis, so that no request has to. It hosts all that instances tell each other: its
//! heartbeats probe a server that was away, too.

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
    bans::BanSync,
    heartbeat::Heartbeat,
    records::{self, Scope},
    server_status::ServerStatus,
    subscription,
};
use crate::{
    abuse::{AuditLog, ClientRegistry, bans::BanTable},
    config::model,
    limit::{Breaker, Clock, Instances, SystemClock},
    store::redis::{Server, ServerCheck, channel::Message},
    telemetry::metrics::StoreFacts,
};

/// How often records of limited clients are published.
const PUBLISH_EVERY: Duration = Duration::from_millis(250);
/// For publishing them once.
const PUBLISH_TIMEOUT: Duration = Duration::from_millis(500);

/// Takes a policy's name and an identifier.
type OnLimit = Box<dyn Fn(&str, &str) + Send>;

/// What the monitor works with.
pub struct MonitorConfig {
    pub server: Server,
    pub redis: model::Redis,
    /// How this instance is told from others, and whose records it publishes.
    pub instance: String,
    /// How often the server is checked again: a warning ends once an operator has mended its cause.
    pub check_every: Duration,
    pub scope: Scope,
    pub registry: Arc<ClientRegistry>,
    pub bans: Arc<BanTable>,
    pub audit: Arc<AuditLog>,
    pub clock: SystemClock,
    pub breaker: Arc<Breaker>,
    pub instances: Arc<Instances>,
    /// The hash of the configuration, which may change.
    pub configuration: Box<dyn Fn() -> String + Send>,
    /// Called with the identifier whose limits were all taken back, by whatever instance.
    pub on_unblocked: Box<dyn Fn(&str) + Send>,
    /// Called with the policy and the identifier whose limit alone was taken back.
    pub on_cleared: OnLimit,
}

/// The running monitor. Dropped, it ends by itself.
#[derive(Debug)]
pub struct Monitor {
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
    status: Arc<Mutex<ServerStatus>>,
    /// For a decision.
    timeout: Duration,
}

impl Monitor {
    /// Starts the thread.
    ///
    /// # Errors
    /// There is no thread or runtime left.
    pub fn spawn(config: MonitorConfig) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = watch::channel(false);
        let status = Arc::new(Mutex::new(ServerStatus::default()));
        let (updated, timeout) = (Arc::clone(&status), config.redis.timeout);
        let run = move || {
            runtime.block_on(keep_in_touch(&config, &updated, stopped));
            // A name that is still looked up must not keep the process.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("redis".into()).spawn(run)?;
        Ok(Self { stop, thread, status, timeout })
    }

    /// What is known of the server, to be asked at any time.
    pub fn facts(
        &self,
        breaker: Arc<Breaker>,
        instances: Arc<Instances>,
    ) -> impl Fn() -> StoreFacts + Send + Sync + use<> {
        let (status, timeout) = (Arc::clone(&self.status), self.timeout);
        move || {
            let status = status.lock();
            let ServerCheck { role, version, .. } = status.check.clone();
            StoreFacts {
                breaker_open: breaker.is_open(),
                instances: instances.count(),
                role,
                version,
                latency: status.latency,
                warnings: status.warnings(timeout),
                clock_offset: status.peers.own.as_ref().map(|own| own.clock_offset),
                own: status.peers.own.clone(),
                others: status.peers.others.clone(),
            }
        }
    }

    /// Says good-bye to the other instances and ends the thread.
    pub fn stop(self) {
        self.stop.send_replace(true);
        if self.thread.join().is_err() {
            tracing::error!("the Redis monitor crashed");
        }
    }
}

async fn keep_in_touch(
    config: &MonitorConfig,
    status: &Mutex<ServerStatus>,
    mut stopped: watch::Receiver<bool>,
) {
    let MonitorConfig { server, redis, instances, on_unblocked, on_cleared, .. } = config;
    let ban_sync = BanSync::new(config);
    let on_message = |message: Option<&str>| {
        match message.map(Message::parse) {
            Some(Message::Array(change)) => return ban_sync.receive(change.as_bytes()),
            Some(Message::Identifier(identifier)) => on_unblocked(identifier),
            Some(Message::Limit { policy, identifier }) => on_cleared(policy, identifier),
            None => ban_sync.miss(),
        }
        instances.invalidate();
    };
    let heartbeat = Heartbeat::new(config, status);
    tokio::select! {
        () = subscription::listen(server, &redis.prefix, on_message) => {}
        () = heartbeat.run() => {}
        () = publish_records(config, &heartbeat) => {}
        () = ban_sync.run(&heartbeat) => {}
        _ = stopped.changed() => {}
    }
    heartbeat.say_goodbye().await;
}

/// Publishes records of limited clients for as long as it is polled. What can't be published now stays due.
async fn publish_records(config: &MonitorConfig, heartbeat: &Heartbeat<'_>) {
    let MonitorConfig { breaker, scope, registry, clock, .. } = config;
    let mut rounds = interval(PUBLISH_EVERY);
    loop {
        rounds.tick().await;
        let Some(mut connection) = heartbeat.connection().filter(|_| !breaker.is_open()) else { continue };
        let round = records::publish_round(&mut connection, scope, registry, clock.now());
        match timeout(PUBLISH_TIMEOUT, round).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::debug!(%error, "can't publish limited clients"),
            Err(_) => tracing::debug!("publishing limited clients timed out"),
        }
    }
}
