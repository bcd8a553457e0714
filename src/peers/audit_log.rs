//! Replicates the audit log: two lists in Redis, which all instances append to and read. Operators and rules each have one.
//!
//! An instance of an earlier version knows the operators' list alone, and appends all entries to it: what is read there goes
//! by its author.

use std::{cell::RefCell, sync::LazyLock, time::Duration};

use bb8_redis::redis::{self, RedisResult, Script};
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use super::{probe::Probes, rounds::Rounds, time::jittered};
use crate::{
    abuse::{AuditEntry, AuditLog, Author, MAX_AUDIT_ENTRIES, Pending},
    store::redis::RoutedConnection,
};

static APPEND: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("../../lua/key_prelude.lua"), include_str!("../../lua/audit_log.lua")))
});

/// How often entries are written, where there are any.
const PUSH_EVERY: Duration = Duration::from_millis(50);
/// How often the entries of others are read.
const PULL_EVERY: Duration = Duration::from_millis(500);
/// For one round.
const ROUND_TIMEOUT: Duration = Duration::from_secs(1);
/// After a round that failed.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Entries written by one call of the script.
const BATCH: usize = 64;
/// How long a list stays after the last entry: 366 days, in milliseconds.
const EXPIRE_AFTER: u64 = 366 * 86_400_000;

/// The shared lists.
#[derive(Debug)]
pub(super) struct SharedAuditLog {
    /// Of each author. All keys are in one slot.
    lists: [SharedList; Author::ALL.len()],
}

/// The shared list of one author.
#[derive(Debug)]
struct SharedList {
    author: Author,
    key: String,
    /// The newest entry when the list was read last.
    newest: RefCell<Option<Vec<u8>>>,
}

impl SharedAuditLog {
    pub(super) fn new(prefix: &str) -> Self {
        let key = |author| match author {
            Author::Operator => format!("{prefix}:{{audit}}"),
            Author::Rule => format!("{prefix}:{{audit}}:rules"),
        };
        let list = |author| SharedList { author, key: key(author), newest: RefCell::default() };
        Self { lists: Author::ALL.map(list) }
    }

    /// Replicates `log` until the process `ends`.
    pub(super) async fn run(&self, probes: &Probes<'_>, log: &AuditLog, ends: &watch::Receiver<bool>) {
        let mut rounds = Rounds::new(PUSH_EVERY, ends);
        let (mut pull_at, mut retry_at) = (Instant::now(), Instant::now());
        while rounds.next().await {
            let connection = probes.connection(&self.lists[0].key).filter(|_| retry_at <= Instant::now());
            let Some(mut connection) = connection else { continue };
            let is_pull_due = pull_at <= Instant::now();
            if is_pull_due {
                pull_at = Instant::now() + jittered(PULL_EVERY);
            }
            let round = async {
                for list in &self.lists {
                    if is_pull_due {
                        list.pull(&mut connection, log).await?;
                    }
                    list.push(&mut connection, log).await?;
                }
                Ok(())
            };
            let why = match timeout(ROUND_TIMEOUT, round).await {
                Ok(RedisResult::Ok(())) => continue,
                Ok(Err(error)) => error.to_string(),
                Err(_) => "it timed out".to_owned(),
            };
            tracing::debug!(%why, "can't share the audit log with other instances");
            retry_at = Instant::now() + RETRY_AFTER;
        }
    }
}

impl SharedList {
    /// Appends the pending entries of this instance.
    async fn push(&self, connection: &mut RoutedConnection, log: &AuditLog) -> RedisResult<()> {
        let entries = log.pending(self.author, BATCH);
        if entries.is_empty() {
            return Ok(());
        }
        let mut call = APPEND.key(&self.key);
        call.arg(MAX_AUDIT_ENTRIES).arg(EXPIRE_AFTER);
        for Pending { item: entry, .. } in &entries {
            // Strings and numbers: this can't fail.
            call.arg(serde_json::to_string(entry).unwrap_or_default());
        }
        let _count: u64 = call.invoke_async(connection).await?;
        log.ack(self.author, &entries);
        Ok(())
    }

    /// Reads the entries of other instances, if there are new ones.
    async fn pull(&self, connection: &mut RoutedConnection, log: &AuditLog) -> RedisResult<()> {
        let newest: RedisResult<Option<Vec<u8>>> =
            redis::cmd("LINDEX").arg(&self.key).arg(-1).query_async(connection).await;
        let newest = match newest {
            // Something else was written there; the next entry replaces it.
            Err(error) if error.code() == Some("WRONGTYPE") => None,
            newest => newest?,
        };
        let known = self.newest.borrow().clone();
        if newest == known {
            return Ok(());
        }
        if newest.is_none() {
            log.resend_all(self.author);
        } else {
            let list: Vec<Vec<u8>> =
                redis::cmd("LRANGE").arg(&self.key).arg(0).arg(-1).query_async(connection).await?;
            log.merge(list.iter().filter_map(|entry| serde_json::from_slice::<AuditEntry>(entry).ok()));
        }
        // Last: entries that could not be read are read in the next round.
        self.newest.replace(newest);
        Ok(())
    }
}
