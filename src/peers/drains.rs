//! Replicates drains of endpoints: one hash in Redis, which all instances write and read.
//!
//! There are few, so an instance reads all of them after each change. It learns of a change on the store's channel, or
//! up to half a second later by the version. Unlike bans, changes need no order. A note of each undrain is kept for a
//! day: a drain that is missing without a note was lost, by a flush or a failover to a lagging replica, and instances
//! that know it restore it.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, HashSet},
    sync::LazyLock,
    time::Duration,
};

use bb8_redis::redis::{self, RedisResult, Script};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, interval};

use super::{probe::Probes, time::jittered};
use crate::{
    store::redis::{RoutedConnection, channel},
    upstream::{DrainTable, DrainUpdate, EndpointDrain, EndpointId, MAX_DRAINS, PendingDrain},
};

pub(super) static WRITE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("../../lua/key_prelude.lua"), include_str!("../../lua/drains.lua")))
});

/// The message that announces a change.
pub(super) const CHANGED: &str = r#"["drains"]"#;
/// The field of the version. Endpoints' fields contain a space.
const VERSION: &str = "version";
/// How often pending drains are written, and changed ones are read.
const ROUND: Duration = Duration::from_millis(50);
/// How often the version is read, to detect missed changes.
const VERSION_CHECK: Duration = Duration::from_millis(500);
/// Delay after a failed round.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How long undrains are noted, less an hour for clocks that differ.
const UNDRAINS_NOTED: Duration = Duration::from_hours(23);
/// Lifetime of drains after the last instance has ended: 366 days, in milliseconds.
const EXPIRE_AFTER: u64 = 366 * 86_400_000;
/// How often the lifetime is renewed.
const RENEW_EVERY: Duration = Duration::from_hours(1);
/// Most bytes of a reason and of an operator's name; instances write less.
const MAX_TEXT: usize = 1_024;

/// The drains of all instances.
#[derive(Debug)]
pub(super) struct SharedDrains {
    key: String,
    channel: String,
    /// `None` before the first read.
    last_read: RefCell<Option<LastRead>>,
    /// Whether it may have changed since.
    is_stale: Cell<bool>,
    renew_at: Cell<Instant>,
}

/// The hash at the last read.
#[derive(Debug)]
struct LastRead {
    /// Empty if there were no drains.
    version: String,
    at: Instant,
}

/// A field of the hash, for one endpoint.
#[derive(Debug, PartialEq)]
enum StoredDrain {
    Drained(EndpointDrain),
    Undrained(EndpointId),
}

/// The JSON of a drain.
#[derive(Debug, Serialize, Deserialize)]
struct DrainRecord {
    /// Microseconds since the Unix epoch, by the clock of the instance that drained it.
    since: i64,
    reason: String,
    by: String,
}

impl SharedDrains {
    pub(super) fn new(prefix: &str) -> Self {
        Self {
            key: format!("{prefix}:{{drains}}"),
            channel: channel::name(prefix),
            last_read: RefCell::default(),
            is_stale: Cell::new(false),
            renew_at: Cell::new(Instant::now()),
        }
    }

    /// Drains have changed, or may have.
    pub(super) fn miss(&self) {
        self.is_stale.set(true);
    }

    /// Replicates `table` while polled. `on_read` is called after each attempt to read the drains.
    pub(super) async fn run(&self, probes: &Probes<'_>, table: &DrainTable, on_read: impl Fn()) {
        let (mut rounds, mut check_at, mut retry_at) = (interval(ROUND), Instant::now(), Instant::now());
        let mut server = None;
        loop {
            rounds.tick().await;
            let connection = probes.connection(&self.key).filter(|_| retry_at <= Instant::now());
            let Some(mut connection) = connection else { continue };
            let current = probes.server(&self.key);
            if server.replace(current.clone()).is_some_and(|before| before != current) {
                // It may have lost the undrain of an endpoint and still have the drain.
                table.resend_undrains();
            }
            let is_check_due = check_at <= Instant::now();
            if is_check_due {
                check_at = Instant::now() + jittered(VERSION_CHECK);
            }
            let round = async {
                self.write(&mut connection, table).await?;
                if is_check_due || self.is_stale.replace(false) {
                    self.read(&mut connection, table).await?;
                }
                RedisResult::Ok(())
            };
            let ended = round.await;
            on_read();
            if let Err(error) = ended {
                tracing::debug!(%error, "can't share drains with other instances");
                self.is_stale.set(true);
                retry_at = Instant::now() + RETRY_AFTER;
            }
        }
    }

    /// Writes the drains and undrains of this instance's operators.
    async fn write(&self, connection: &mut RoutedConnection, table: &DrainTable) -> RedisResult<()> {
        let updates = table.pending_updates();
        if updates.is_empty() {
            return Ok(());
        }
        let mut call = WRITE.key(&self.key);
        call.arg(&self.channel).arg(CHANGED).arg(format!("{:016x}", fastrand::u64(..)));
        call.arg(MAX_DRAINS).arg(EXPIRE_AFTER);
        for PendingDrain { update, .. } in &updates {
            let (action, json) = match update {
                DrainUpdate::Drain(drain) => ("drain", encode(drain)),
                DrainUpdate::Restore(drain) => ("restore", encode(drain)),
                DrainUpdate::Undrain { at: None, .. } => ("undrain", String::new()),
                DrainUpdate::Undrain { at: Some(at), .. } => ("undrain", at.to_string()),
            };
            call.arg(action).arg(update.endpoint().to_string()).arg(json);
        }
        let refused: u64 = call.invoke_async(connection).await?;
        if refused > 0 {
            // Read anew, so that refused drains are not taken for lost ones.
            *self.last_read.borrow_mut() = None;
            tracing::warn!(
                "{refused} of the drains made here are undone: all instances have {MAX_DRAINS} already"
            );
        }
        table.ack_updates(&updates);
        self.is_stale.set(true);
        Ok(())
    }

    /// Reads all drains, if they have changed.
    async fn read(&self, connection: &mut RoutedConnection, table: &DrainTable) -> RedisResult<()> {
        let version: RedisResult<Option<Vec<u8>>> =
            redis::cmd("HGET").arg(&self.key).arg(VERSION).query_async(connection).await;
        let version = match version {
            // The key has another type: the next drain replaces it.
            Err(error) if error.code() == Some("WRONGTYPE") => None,
            version => version?,
        };
        let version = String::from_utf8_lossy(&version.unwrap_or_default()).into_owned();
        if !version.is_empty() && self.renew_at.get() <= Instant::now() {
            let _is_there: u64 =
                redis::cmd("PEXPIRE").arg(&self.key).arg(EXPIRE_AFTER).query_async(connection).await?;
            self.renew_at.set(Instant::now() + RENEW_EVERY);
        }
        if let Some(last) = &mut *self.last_read.borrow_mut()
            && last.version == version
        {
            last.at = Instant::now();
            return Ok(());
        }
        let all: HashMap<Vec<u8>, Vec<u8>> = match version.as_str() {
            "" => HashMap::new(),
            _ => redis::cmd("HGETALL").arg(&self.key).query_async(connection).await?,
        };
        // If it has changed since the version was read, the next round reads it again.
        let before = self.last_read.borrow_mut().replace(LastRead { version, at: Instant::now() });
        let (mut drains, mut undrained) = (Vec::new(), HashSet::new());
        for stored in all.iter().filter_map(|(endpoint, text)| decode(endpoint, text)) {
            match stored {
                StoredDrain::Drained(drain) => drains.push(drain),
                StoredDrain::Undrained(endpoint) => drop(undrained.insert(endpoint)),
            }
        }
        let sees_all_undrains = before.as_ref().is_some_and(|before| before.at.elapsed() < UNDRAINS_NOTED);
        let is_lost = |endpoint: &EndpointId| sees_all_undrains && !undrained.contains(endpoint);
        table.replace_all(drains, is_lost, before.is_none());
        Ok(())
    }
}

fn encode(drain: &EndpointDrain) -> String {
    let EndpointDrain { since, reason, by, .. } = drain;
    let record = DrainRecord { since: *since, reason: reason.clone(), by: by.clone() };
    // Strings and a number: this can't fail.
    serde_json::to_string(&record).unwrap_or_default()
}

/// `None` for the version, and for fields that no instance writes.
fn decode(endpoint: &[u8], text: &[u8]) -> Option<StoredDrain> {
    let endpoint = str::from_utf8(endpoint).ok()?;
    let (upstream, url) = endpoint.split_once(' ')?;
    let id = EndpointId { upstream: upstream.to_owned(), url: url.to_owned() };
    if text.starts_with(b"undrained ") {
        return Some(StoredDrain::Undrained(id));
    }
    let DrainRecord { since, reason, by } = serde_json::from_slice(text).ok()?;
    let is_short = [endpoint, &reason, &by].into_iter().all(|text| text.len() <= MAX_TEXT);
    is_short.then_some(StoredDrain::Drained(EndpointDrain { endpoint: id, since, reason, by }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drains_are_read_as_they_are_written_and_nothing_else_is() {
        let endpoint = EndpointId { upstream: "api".into(), url: "http://[::1]:1".into() };
        let drain = EndpointDrain {
            endpoint,
            since: 7,
            reason: "a \"new\"\ndisk".into(),
            by: "operator at ::1".into(),
        };
        let name = drain.endpoint.to_string();
        let decode = |endpoint: &str, text: &[u8]| decode(endpoint.as_bytes(), text);
        assert_eq!(decode(&name, b"undrained 7"), Some(StoredDrain::Undrained(drain.endpoint.clone())));
        assert_eq!(decode(&name, encode(&drain).as_bytes()), Some(StoredDrain::Drained(drain)));
        let good = r#"{"since":1,"reason":"","by":"x"}"#;
        assert!(decode("api http://a", good.as_bytes()).is_some());
        let long = format!(r#"{{"since":1,"reason":"{}","by":"x"}}"#, "x".repeat(MAX_TEXT + 1));
        for (endpoint, json) in [("version", good), ("api http://a", "7"), ("api http://a", &long)] {
            assert_eq!(decode(endpoint, json.as_bytes()), None, "{endpoint} {json}");
        }
    }
}
