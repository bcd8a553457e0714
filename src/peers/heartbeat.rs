//! Heartbeats: they show other instances that this one is alive.

use std::{
    cell::{Cell, RefCell},
    sync::LazyLock,
    time::Duration,
};

use bb8_redis::redis::{RedisResult, Script};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::{
    instance_count::InstanceCount,
    introduction::{Introduction, Peers},
    monitor_config::MonitorConfig,
};
use crate::{
    limit::Clock,
    store::redis::{Failure, RoutedConnection, is_unknown_script},
    telemetry::metrics::InstanceFacts,
};

pub(super) static HEARTBEAT: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../../lua/heartbeat.lua")));

/// For how long an instance counts as alive after a heartbeat.
const ALIVE_FOR: Duration = Duration::from_secs(5);
/// How long the server keeps the list of instances without a heartbeat. The times in it tell who is alive.
const KEPT_FOR: Duration = Duration::from_secs(15);
/// One heartbeat in this many introduces the instance and reads the other introductions.
const INTRODUCE_EVERY: u32 = 5;
/// Timeout of the last heartbeat, which removes the instance.
const GOODBYE_TIMEOUT: Duration = Duration::from_millis(500);

/// Sends heartbeats, and keeps the facts about other instances in their replies.
pub(super) struct Heartbeat<'a> {
    config: &'a MonitorConfig,
    peers: &'a Mutex<Peers>,
    /// The keys of the instances and of their introductions.
    keys: [String; 2],
    count: Cell<u32>,
    instances: RefCell<InstanceCount>,
}

impl<'a> Heartbeat<'a> {
    pub(super) fn new(config: &'a MonitorConfig, peers: &'a Mutex<Peers>) -> Self {
        let instances = format!("{}:instances", config.redis.key_prefix());
        // In the same slot as the first key.
        let introductions = format!("{}:{{{instances}}}:introductions", config.redis.key_prefix());
        Self {
            config,
            peers,
            keys: [instances, introductions],
            count: Cell::new(0),
            instances: RefCell::default(),
        }
    }

    /// The key that determines the slot.
    pub(super) fn key(&self) -> &str {
        &self.keys[0]
    }

    /// One heartbeat. `evicts`: the server has evicted keys lately.
    pub(super) async fn beat(&self, connection: &mut RoutedConnection, evicts: bool) -> Result<(), Failure> {
        let count = self.count.replace(self.count.get().wrapping_add(1));
        let introduction = count.is_multiple_of(INTRODUCE_EVERY).then(|| Introduction::new(self.config));
        let reply = self.send(connection, ALIVE_FOR, introduction.as_ref()).await;
        let HeartbeatReply { instances, clock_offset, introductions } = match reply {
            // Another client keeps flushing scripts. The server is up, and the next heartbeat follows in a second.
            Err(error) if is_unknown_script(&error) => return Ok(()),
            reply => reply?,
        };
        let sharing = self.instances.borrow_mut().report(instances, evicts, Instant::now());
        self.config.instances.set_count(instances, sharing);
        if let Some(introduction) = introduction {
            let peers = Peers::new(&introduction, clock_offset, &introductions);
            let is_like = |of: &InstanceFacts| {
                peers.own.as_ref().is_some_and(|own| own.configuration == of.configuration)
            };
            // Another one may not have introduced itself yet.
            let are_alike = peers.others.iter().all(is_like) && peers.others.len() + 1 >= instances as usize;
            self.config.bans.forget_names(are_alike);
            *self.peers.lock() = peers;
        }
        Ok(())
    }

    /// Removes this instance from the list.
    pub(super) async fn say_goodbye(&self, connection: &mut RoutedConnection) {
        let goodbye = self.send(connection, Duration::ZERO, None);
        let _late = timeout(GOODBYE_TIMEOUT, goodbye).await;
    }

    async fn send(
        &self,
        connection: &mut RoutedConnection,
        alive_for: Duration,
        introduction: Option<&Introduction>,
    ) -> RedisResult<HeartbeatReply> {
        let mut call = HEARTBEAT.prepare_invoke();
        for key in &self.keys {
            call.key(key);
        }
        call.arg(&self.config.instance).arg(u64::try_from(alive_for.as_micros()).unwrap_or(u64::MAX));
        call.arg(KEPT_FOR.as_secs() * 1_000);
        if let Some(introduction) = introduction {
            call.arg(self.config.clock.now()).arg(introduction.to_string());
        }
        let (instances, clock_offset, introductions) = call.invoke_async(connection).await?;
        Ok(HeartbeatReply { instances, clock_offset, introductions })
    }
}

/// The script's reply.
struct HeartbeatReply {
    /// How many instances are alive.
    instances: u32,
    /// Microseconds by which this clock is ahead; 0 without an introduction.
    clock_offset: i64,
    /// The other instances' introductions; none without an introduction of this one.
    introductions: Vec<Vec<u8>>,
}
