//! Listens on the store's channel.

use std::{pin::pin, time::Duration};

use bb8_redis::redis::{RedisError, Value};
use futures_util::StreamExt;
use tokio::time::{interval, sleep, timeout};

use super::time::jittered;
use crate::store::redis::{Server, channel, error_hint};

/// For a new subscription, from its first packet to its confirmation.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// How often the connection is tested, and how long its answer may take.
const PING: Duration = Duration::from_secs(5);
/// From the end of a subscription to the next.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Listens for as long as it is polled. `on_message` gets each message; `None` whenever some may have been missed.
pub(super) async fn listen(server: &Server, prefix: &str, on_message: impl Fn(Option<&str>)) {
    let mut was_reported = false;
    loop {
        let ended = listen_once(server, &channel::name(prefix), &on_message, &mut was_reported).await;
        if let Err(why) = ended
            && !was_reported
        {
            was_reported = true;
            tracing::warn!(%why, "can't receive unblocks from other instances: local denials still expire after a second");
        }
        sleep(jittered(RETRY_AFTER)).await;
    }
}

/// One subscription, to its end. `was_reported`: whether the failure of the last one was; cleared once this one is confirmed.
async fn listen_once(
    server: &Server,
    channel: &str,
    on_message: &impl Fn(Option<&str>),
    was_reported: &mut bool,
) -> Result<(), String> {
    let subscribe = async {
        let mut connection = server.client().get_async_pubsub().await?;
        connection.subscribe(channel).await?;
        Ok::<_, RedisError>(connection)
    };
    let too_late = |_| "it timed out".to_owned();
    let connection = timeout(CONNECT_TIMEOUT, subscribe).await.map_err(too_late)?;
    let connection = connection.map_err(|error| error_hint::describe(&error))?;
    *was_reported = false;
    on_message(None);
    let (mut sink, messages) = connection.split();
    let (mut messages, mut pings) = (pin!(messages), interval(PING));
    loop {
        tokio::select! {
            message = messages.next() => match message {
                Some(message) => on_message(std::str::from_utf8(message.get_payload_bytes()).ok()),
                None => return Ok(()),
            },
            _ = pings.tick() => {
                let pong = timeout(PING, sink.ping::<Value>()).await.map_err(too_late)?;
                pong.map_err(|error| error_hint::describe(&error))?;
            }
        }
    }
}
