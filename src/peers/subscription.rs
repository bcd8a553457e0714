//! What instances tell each other: that somebody's limits were taken back.

use std::{pin::pin, time::Duration};

use futures_util::StreamExt;
use redis::RedisError;
use tokio::time::{interval, timeout};

use crate::store::redis::{Server, channel, error_hint};

/// For a new subscription, from its first packet to its confirmation.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// How often a silent connection is asked whether it still is one, and how long it may take to say so.
const PING: Duration = Duration::from_secs(5);
/// From the end of a subscription to the next, give or take a quarter.
const AGAIN: Duration = Duration::from_secs(1);

/// Listens for as long as it is polled. `heard` gets each message; `None` whenever some may have been missed.
pub(super) async fn listen(server: &Server, prefix: &str, heard: impl Fn(Option<&str>)) {
    let mut complained = false;
    loop {
        if let Err(why) = subscription(server, &channel::name(prefix), &heard, &mut complained).await
            && !complained
        {
            complained = true;
            tracing::warn!(%why, "can't hear what other instances unblock: local denials end by themselves, after a second");
        }
        tokio::time::sleep(jittered(AGAIN)).await;
    }
}

/// One subscription, to its end.
async fn subscription(
    server: &Server,
    channel: &str,
    heard: &impl Fn(Option<&str>),
    complained: &mut bool,
) -> Result<(), String> {
    let subscribe = async {
        let mut connection = server.client().get_async_pubsub().await?;
        connection.subscribe(channel).await?;
        Ok::<_, RedisError>(connection)
    };
    let late = |_| "it takes too long".to_owned();
    let connection = timeout(CONNECT_TIMEOUT, subscribe)
        .await
        .map_err(late)?
        .map_err(|error| error_hint::words(&error))?;
    *complained = false;
    heard(None);
    let (mut sink, messages) = connection.split();
    let (mut messages, mut pings) = (pin!(messages), interval(PING));
    loop {
        tokio::select! {
            message = messages.next() => match message {
                Some(message) => heard(std::str::from_utf8(message.get_payload_bytes()).ok()),
                None => return Ok(()),
            },
            _ = pings.tick() => {
                let alive = timeout(PING, sink.ping::<redis::Value>()).await.map_err(late)?;
                alive.map_err(|error| error_hint::words(&error))?;
            }
        }
    }
}

/// Give or take a quarter, so that many instances do not come at once.
pub(super) fn jittered(duration: Duration) -> Duration {
    duration.mul_f64(0.75 + fastrand::f64() / 2.0)
}
