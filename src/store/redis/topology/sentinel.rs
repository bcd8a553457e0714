//! Reads the primary from Sentinels, and subscribes to failovers.
//!
//! Source: [guidelines for Redis clients with support for
//! Sentinel](https://redis.io/docs/latest/develop/reference/sentinel-clients/).

use std::{collections::HashMap, time::Duration};

use bb8_redis::redis::{self, RedisError, RedisResult};
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};

use crate::store::redis::{
    connection::{Server, ServerError},
    error_hint,
    failure::Failure,
    server_address::ServerAddress,
    server_connection::ServerConnection,
};

/// The channel on which a Sentinel announces a failover.
const SWITCHED: &str = "+switch-master";
/// Time from the end of a subscription to the next.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The Sentinels, and the primary that they monitor.
#[derive(Debug)]
pub(super) struct SentinelGroup {
    /// The name of the primary.
    master: String,
    sentinels: Vec<SentinelNode>,
    /// The settings for servers that they name.
    primary: Server,
    /// The last opinion that was adopted.
    newest: Mutex<Option<Opinion>>,
}

#[derive(Debug)]
struct SentinelNode {
    server: Server,
    /// The connection of the last query, if that succeeded.
    connection: Mutex<Option<ServerConnection>>,
}

/// The result of querying all Sentinels.
pub(super) struct SentinelReport {
    pub(super) primary: Result<ServerAddress, Failure>,
    /// Warnings for operators.
    pub(super) warnings: Vec<String>,
}

/// The primary that one Sentinel names.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Opinion {
    primary: ServerAddress,
    /// Incremented by each failover: the highest is the newest.
    epoch: u64,
}

impl SentinelGroup {
    pub(super) fn new(master: String, sentinels: Vec<Server>, primary: Server) -> Self {
        let sentinels = sentinels
            .into_iter()
            .map(|server| SentinelNode { server, connection: Mutex::default() })
            .collect();
        Self { master, sentinels, primary, newest: Mutex::default() }
    }

    /// The server at an address that Sentinels have named.
    pub(super) fn server_at(&self, address: &ServerAddress) -> Result<Server, ServerError> {
        self.primary.at(address)
    }

    /// Queries all Sentinels at once. If they disagree, the newest failover wins: a Sentinel that was cut off from the
    /// others names the previous primary. `longest`: the timeout of each.
    pub(super) async fn ask(&self, longest: Duration) -> SentinelReport {
        let asked = self.sentinels.iter().map(|sentinel| async {
            match timeout(longest, sentinel.ask(&self.master)).await {
                Ok(opinion) => opinion,
                Err(_) => Err("it does not answer".to_owned()),
            }
        });
        let opinions = join_all(asked).await;
        let newest = self.newest(opinions.iter().flatten());
        let each = self.sentinels.iter().zip(&opinions);
        let warnings = each.filter_map(|(sentinel, opinion)| {
            let address = sentinel.server.address();
            match (opinion, &newest) {
                (Err(why), _) => Some(format!("can't ask Sentinel {address}: {why}")),
                (Ok(opinion), Some(newest)) if opinion.primary != newest.primary => Some(format!(
                    "Sentinel {address} names {} as the primary, but after a newer failover that is {}",
                    opinion.primary, newest.primary
                )),
                _ => None,
            }
        });
        let warnings: Vec<String> = warnings.collect();
        let primary = newest.map(|opinion| opinion.primary).ok_or_else(|| {
            let why = warnings.first().cloned();
            Failure::unreachable(why.unwrap_or_else(|| "no Sentinel is configured".to_owned()))
        });
        SentinelReport { primary, warnings }
    }

    /// Picks the primary with the highest failover epoch. A remembered primary loses to one that most Sentinels name
    /// now, for example after `SENTINEL REMOVE` and `SENTINEL MONITOR`.
    fn newest<'a>(&self, opinions: impl Iterator<Item = &'a Opinion> + Clone) -> Option<Opinion> {
        let newest = opinions.clone().max_by_key(|opinion| opinion.epoch)?;
        let naming_it = opinions.filter(|opinion| opinion.primary == newest.primary).count();
        let mut known = self.newest.lock();
        let is_older = known.as_ref().is_some_and(|known| {
            known.epoch > newest.epoch
                && (known.primary == newest.primary || naming_it * 2 <= self.sentinels.len())
        });
        if !is_older {
            *known = Some(newest.clone());
        }
        known.clone()
    }

    /// Calls `on_switch` when a Sentinel announces a failover, while polled.
    pub(super) async fn watch(&self, on_switch: impl Fn()) {
        let watches = self.sentinels.iter().map(|sentinel| async {
            loop {
                let begun = Instant::now();
                if let Err(why) = sentinel.watch_once(&on_switch).await {
                    tracing::debug!(address = %sentinel.server.address(), %why, "can't listen to a Sentinel");
                }
                // A subscription that lasted is replaced at once.
                sleep(RETRY_AFTER.saturating_sub(begun.elapsed())).await;
            }
        });
        join_all(watches).await;
    }
}

impl SentinelNode {
    async fn ask(&self, master: &str) -> Result<Opinion, String> {
        let idle = self.connection.lock().take();
        if let Some(mut connection) = idle
            && let Ok(opinion) = question(&mut connection, master).await
        {
            self.connection.lock().replace(connection);
            return self.understand(&opinion);
        }
        let describe = |error: RedisError| error_hint::describe(&error);
        let mut connection = self.server.connect().await.map_err(describe)?;
        let opinion = question(&mut connection, master).await.map_err(|error| match error.code() {
            Some("ERR") => format!(
                "it watches no primary named {master}: see `sentinel monitor` in its settings ({error})"
            ),
            _ => describe(error),
        })?;
        self.connection.lock().replace(connection);
        self.understand(&opinion)
    }

    fn understand(&self, (fields, address): &PrimaryReply) -> Result<Opinion, String> {
        let number = |name: &str| fields.get(name).and_then(|text| text.parse::<u64>().ok());
        let written = fields.get("ip").zip(number("port").and_then(|port| u16::try_from(port).ok()));
        let address = address.as_ref().map(|(host, port)| (host, *port)).or(written);
        let (host, port) = address.ok_or("its answer to SENTINEL MASTER can't be understood")?;
        let primary = ServerAddress::new(host, port, &self.server.address().host);
        Ok(Opinion { primary, epoch: number("config-epoch").unwrap_or(0) })
    }

    /// Runs one subscription to its end.
    async fn watch_once(&self, on_switch: &impl Fn()) -> Result<(), String> {
        let subscription = self.server.subscribe(SWITCHED).await?;
        // A failover may have happened before.
        on_switch();
        subscription.listen(|_| on_switch()).await
    }
}

/// Queries a Sentinel for the fields of a primary and the address that clients get. After a failover the address is the
/// new primary's at once; the fields still have the old one while other replicas are reconfigured.
async fn question(connection: &mut ServerConnection, master: &str) -> Result<PrimaryReply, RedisError> {
    let mut pipeline = redis::pipe();
    pipeline.ignore_errors().cmd("SENTINEL").arg("MASTER").arg(master);
    pipeline.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(master);
    let replies = pipeline.query_async::<(RedisResult<_>, RedisResult<Option<_>>)>(connection).await?;
    let (fields, address) = replies;
    // The ACL of a Sentinel may allow only the first command.
    Ok((fields?, address.ok().flatten()))
}

/// The fields of a primary, and its address.
type PrimaryReply = (HashMap<String, String>, Option<(String, u16)>);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::model::{self, Secret},
        store::redis::connection::ServerCredentials,
    };

    #[test]
    fn a_sentinel_alone_does_not_name_the_primary_of_before() {
        let open = |port: u16| {
            Server::open(
                &format!("redis://127.0.0.1:{port}"),
                ServerCredentials::default(),
                &model::Redis::at(Secret::new("redis://h")),
            )
            .unwrap()
        };
        let group = SentinelGroup::new("main".to_owned(), [1, 2, 3].map(open).to_vec(), open(4));
        let opinion = |host: &str, epoch| Opinion { primary: ServerAddress::new(host, 6379, ""), epoch };
        let (old, new) = (opinion("10.0.0.1", 1), opinion("10.0.0.2", 2));
        let newest = |opinions: &[&Opinion]| group.newest(opinions.iter().copied());
        assert_eq!(newest(&[]), None);
        assert_eq!(newest(&[&old]).as_ref(), Some(&old));
        assert_eq!(newest(&[&old, &new]).as_ref(), Some(&new));
        // The others did not reply, or do not know yet of the failover of a server that they named before.
        for lagging in [&old, &opinion("10.0.0.2", 1)] {
            assert_eq!(newest(&[lagging]).as_ref(), Some(&new));
        }
        // They were reconfigured to monitor another primary.
        let other = opinion("10.0.0.3", 0);
        assert_eq!(newest(&[&new, &other]).as_ref(), Some(&new));
        assert_eq!(newest(&[&other, &other]).as_ref(), Some(&other));
    }
}
