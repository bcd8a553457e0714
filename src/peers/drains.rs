//! Replicates drains of endpoints: one hash in Redis, which all instances write and read.
//!
//! There are few of them, so that an instance reads all whenever something has changed, which it learns on the store's
//! channel, or half a second later by the version. Unlike bans, no order of changes has to be kept. What was undrained is
//! noted for a day: a drain that has gone without a note was lost, with all others or by a failover to a replica that had not
//! got it yet, and the instances that know it restore it.

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

/// The message that there is a change to be read.
pub(super) const CHANGED: &str = r#"["drains"]"#;
/// The field of the version, which no endpoint has: those have a space.
const VERSION: &str = "version";
/// How often drains are written and read, where there is a reason.
const ROUND: Duration = Duration::from_millis(50);
/// How often the version is read, to find out what was missed.
const VERSION_CHECK: Duration = Duration::from_millis(500);
/// After a round that failed.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// For how long it is noted that an endpoint was undrained, less an hour for clocks that differ.
const UNDRAINS_NOTED: Duration = Duration::from_hours(23);
/// How long drains stay after the last instance has gone: 366 days, in milliseconds.
const EXPIRE_AFTER: u64 = 366 * 86_400_000;
/// How often that is put off.
const RENEW_EVERY: Duration = Duration::from_hours(1);
/// Bytes of a reason, and of an operator's name. More than any instance writes.
const MAX_TEXT: usize = 1_024;

/// The drains of all instances.
#[derive(Debug)]
pub(super) struct SharedDrains {
    key: String,
    channel: String,
    /// `None`: the hash was not read yet.
    last_read: RefCell<Option<LastRead>>,
    /// It has changed since.
    is_stale: Cell<bool>,
    renew_at: Cell<Instant>,
}

/// How the hash was when it was looked at last.
#[derive(Debug)]
struct LastRead {
    /// Empty: there were none.
    version: String,
    at: Instant,
}

/// What the hash holds of an endpoint.
#[derive(Debug, PartialEq)]
enum Stored {
    Drained(EndpointDrain),
    Undrained(EndpointId),
}

/// What the hash holds of a drain, as JSON.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
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

    /// Replicates `table` for as long as it is polled. `on_read` is called after each attempt to read them.
    pub(super) async fn run(&self, probes: &Probes<'_>, table: &DrainTable, on_read: impl Fn()) {
        let (mut rounds, mut check_at, mut retry_at) = (interval(ROUND), Instant::now(), Instant::now());
        let mut server = None;
        loop {
            rounds.tick().await;
            let connection = probes.connection(&self.key).filter(|_| retry_at <= Instant::now());
            let Some(mut connection) = connection else { continue };
            let current = probes.server(&self.key);
            if server.replace(current.clone()).is_some_and(|before| before != current) {
                // It may have lost that an endpoint was undrained, and still have the drain.
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

    /// Writes what operators have drained and undrained at this instance.
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
            // They were not lost.
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
        let version: RedisResult<Option<String>> =
            redis::cmd("HGET").arg(&self.key).arg(VERSION).query_async(connection).await;
        let version = match version {
            // Something else was written there; the next drain replaces it.
            Err(error) if error.code() == Some("WRONGTYPE") => None,
            version => version?,
        };
        let version = version.unwrap_or_default();
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
        let all: HashMap<String, Vec<u8>> = match version.as_str() {
            "" => HashMap::new(),
            _ => redis::cmd("HGETALL").arg(&self.key).query_async(connection).await?,
        };
        // It may have changed since the version was read: then it is read once more.
        let before = self.last_read.borrow_mut().replace(LastRead { version, at: Instant::now() });
        let (mut drains, mut undrained) = (Vec::new(), HashSet::new());
        for stored in all.iter().filter_map(|(endpoint, text)| decode(endpoint, text)) {
            match stored {
                Stored::Drained(drain) => drains.push(drain),
                Stored::Undrained(endpoint) => drop(undrained.insert(endpoint)),
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
    let record = Record { since: *since, reason: reason.clone(), by: by.clone() };
    // Strings and a number: this can't fail.
    serde_json::to_string(&record).unwrap_or_default()
}

/// `None` for the version, and for what no instance writes.
fn decode(endpoint: &str, text: &[u8]) -> Option<Stored> {
    let (upstream, url) = endpoint.split_once(' ')?;
    let id = EndpointId { upstream: upstream.to_owned(), url: url.to_owned() };
    if text.starts_with(b"undrained ") {
        return Some(Stored::Undrained(id));
    }
    let Record { since, reason, by } = serde_json::from_slice(text).ok()?;
    let is_short = [endpoint, &reason, &by].into_iter().all(|text| text.len() <= MAX_TEXT);
    is_short.then_some(Stored::Drained(EndpointDrain { endpoint: id, since, reason, by }))
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
        assert_eq!(decode(&name, b"undrained 7"), Some(Stored::Undrained(drain.endpoint.clone())));
        assert_eq!(decode(&name, encode(&drain).as_bytes()), Some(Stored::Drained(drain)));
        let good = r#"{"since":1,"reason":"","by":"x"}"#;
        assert!(decode("api http://a", good.as_bytes()).is_some());
        let long = format!(r#"{{"since":1,"reason":"{}","by":"x"}}"#, "x".repeat(MAX_TEXT + 1));
        for (endpoint, json) in [("version", good), ("api http://a", "7"), ("api http://a", &long)] {
            assert_eq!(decode(endpoint, json.as_bytes()), None, "{endpoint} {json}");
        }
    }
}
