//! A subscription to a channel of one server.

use std::{pin::pin, sync::Arc, time::Duration};

use bb8_redis::redis::{RedisError, Value, aio::PubSub};
use futures_util::StreamExt;
use tokio::time::{interval, timeout};

use super::{
    connection::Server, error_hint, reply_bounds::ConnectionProgress, server_connection::open_stream,
};

/// How often the connection is tested, and the timeout of the test.
const PING: Duration = Duration::from_secs(5);
const TOO_LATE: &str = "it timed out";

/// A confirmed subscription.
pub(crate) struct ConfirmedSubscription {
    connection: PubSub,
    progress: Arc<ConnectionProgress>,
}

impl Server {
    /// Subscribes to a channel.
    ///
    /// # Errors
    /// The reason, as text.
    pub(crate) async fn subscribe(&self, channel: &str) -> Result<ConfirmedSubscription, String> {
        let subscribe = async {
            let (stream, progress) = open_stream(self.info(), self.tls()).await?;
            let mut connection = PubSub::new(self.info().redis_settings(), stream).await?;
            connection.subscribe(channel).await?;
            Ok::<_, RedisError>(ConfirmedSubscription { connection, progress })
        };
        let subscribed = timeout(self.connect_timeout(), subscribe).await.map_err(|_| TOO_LATE)?;
        subscribed.map_err(|error| error_hint::describe(&error))
    }
}

impl ConfirmedSubscription {
    /// Passes messages on until the connection ends.
    ///
    /// # Errors
    /// The reason, as text, unless the server has closed it.
    pub(crate) async fn listen(self, mut on_message: impl FnMut(&[u8])) -> Result<(), String> {
        let (mut sink, messages) = self.connection.split();
        let (mut messages, mut pings) = (pin!(messages), interval(PING));
        loop {
            tokio::select! {
                message = messages.next() => match (message, self.progress.exceeded.get()) {
                    (Some(message), _) => on_message(message.get_payload_bytes()),
                    (None, why) => return why.map_or(Ok(()), |why| Err((*why).to_owned())),
                },
                _ = pings.tick() => {
                    let pong = timeout(PING, sink.ping::<Value>()).await.map_err(|_| TOO_LATE)?;
                    pong.map_err(|error| error_hint::describe(&error))?;
                }
            }
        }
    }
}
