//! The subscription to the store's channel.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep, timeout};

use super::time::jittered;
use crate::{
    config::model,
    store::redis::{RedisNode, Server, Topology, channel},
};

/// Time from the end of a subscription to the next.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// An event of the subscription.
pub(super) enum SubscriptionEvent<'a> {
    Message(&'a str),
    /// Some messages may have been missed, as before each new subscription.
    MayHaveMissed,
    /// There is no subscription now. Another attempt follows.
    NotSubscribed,
}

/// Subscribes while polled. The first call of `on_event` reports the result of the first attempt.
///
/// In a cluster every node forwards all messages, so one subscription is enough.
pub(super) async fn listen(
    topology: &Topology,
    redis: &model::Redis,
    on_event: impl Fn(SubscriptionEvent<'_>),
) {
    let (mut failures, mut was_reported, mut changes) = (0_u32, false, topology.changes());
    let channel = channel::name(&redis.key_prefix());
    loop {
        changes.borrow_and_update();
        let Some(node) = choose(topology) else {
            on_event(SubscriptionEvent::NotSubscribed);
            let _changed = timeout(RETRY_AFTER, changes.changed()).await;
            continue;
        };
        let gone = async {
            while topology.map().nodes.iter().any(|known| Arc::ptr_eq(known, &node)) {
                if changes.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        let (begun, was_up) = (Instant::now(), is_up(&node));
        let ended = tokio::select! {
            ended = listen_once(&node.server, &channel, &on_event, &mut failures) => ended,
            // Another server is the primary, or the node has left the cluster.
            () = gone => continue,
        };
        on_event(SubscriptionEvent::NotSubscribed);
        if let Err(why) = ended {
            failures = failures.saturating_add(1);
            was_reported &= failures > 1;
            // The probes report an outage, perhaps a moment later.
            if failures > 1 && !was_reported && was_up && is_up(&node) {
                was_reported = true;
                tracing::warn!(%why, "unblocks of other instances can't be received ({why}): local denials still expire after a second");
            } else {
                tracing::debug!(%why, "can't listen to other instances");
            }
        }
        // A subscription that lasted is replaced at once.
        sleep(jittered(RETRY_AFTER).saturating_sub(begun.elapsed())).await;
    }
}

/// Whether the last probe of the server succeeded.
fn is_up(node: &RedisNode) -> bool {
    let seen = node.seen.lock();
    !node.breaker.is_open() && seen.failure.is_none() && seen.latency.is_some()
}

/// A random node that is up, or any if none is.
fn choose(topology: &Topology) -> Option<Arc<RedisNode>> {
    let map = topology.map();
    let serving: Vec<_> = map.nodes.iter().filter(|node| !node.breaker.is_open()).collect();
    let nodes = if serving.is_empty() { map.nodes.iter().collect() } else { serving };
    fastrand::choice(nodes).cloned()
}

/// Runs one subscription to its end. `failures`: attempts that failed in a row before; set to 0 once this one is
/// confirmed.
async fn listen_once(
    server: &Server,
    channel: &str,
    on_event: &impl Fn(SubscriptionEvent<'_>),
    failures: &mut u32,
) -> Result<(), String> {
    let subscription = server.subscribe(channel).await?;
    *failures = 0;
    on_event(SubscriptionEvent::MayHaveMissed);
    let on_message = |message: &[u8]| {
        on_event(match str::from_utf8(message) {
            Ok(message) => SubscriptionEvent::Message(message),
            Err(_) => SubscriptionEvent::MayHaveMissed,
        });
    };
    subscription.listen(on_message).await
}
