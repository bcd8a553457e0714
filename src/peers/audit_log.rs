//! Replicates the audit log: two lists in Redis, which all instances append to and read. Operators and rules each have
//! one.
//!
//! An instance of an earlier version knows the operators' list alone and appends all entries to it: the author of each
//! entry read there decides to which list it belongs.

use std::{
    cell::{Cell, RefCell},
    sync::LazyLock,
    time::Duration,
};

use bb8_redis::redis::{self, RedisResult, Script};
use tokio::{sync::watch, time::Instant};

use super::{probe::Probes, rounds::Rounds, time::jittered};
use crate::{
    abuse::{AuditEntry, AuditLog, Author, MAX_AUDIT_ENTRIES, Pending},
    store::redis::RoutedConnection,
};

pub(super) static APPEND: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("../../lua/key_prelude.lua"), include_str!("../../lua/audit_log.lua")))
});

/// How often pending entries are written.
const PUSH_EVERY: Duration = Duration::from_millis(50);
/// How often the entries of other instances are read.
const PULL_EVERY: Duration = Duration::from_millis(500);
/// Delay after a failed round.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Entries written by one call of the script.
const BATCH: usize = 64;
/// Lifetime of a list after its last entry: 366 days, in milliseconds.
const EXPIRE_AFTER: u64 = 366 * 86_400_000;

/// The shared lists.
#[derive(Debug)]
pub(super) struct SharedAuditLog {
    /// One for each author. All keys are in one slot.
    lists: [SharedList; Author::ALL.len()],
}

/// The shared list of one author.
#[derive(Debug)]
struct SharedList {
    author: Author,
    key: String,
    /// The newest entry at the last read.
    newest: RefCell<Option<Vec<u8>>>,
    /// Whether entries of this instance may be missing in Redis.
    is_doubtful: Cell<bool>,
}

impl SharedAuditLog {
    pub(super) fn new(prefix: &str) -> Self {
        let key = |author| match author {
            Author::Operator => format!("{prefix}:{{audit}}"),
            Author::Rule => format!("{prefix}:{{audit}}:rules"),
        };
        let list = |author| SharedList {
            author,
            key: key(author),
            newest: RefCell::default(),
            is_doubtful: Cell::default(),
        };
        Self { lists: Author::ALL.map(list) }
    }

    /// Replicates `log` until the process `ends`.
    pub(super) async fn run(&self, probes: &Probes<'_>, log: &AuditLog, ends: &watch::Receiver<bool>) {
        let mut rounds = Rounds::new(PUSH_EVERY, ends);
        let (mut pull_at, mut retry_at, mut server) = (Instant::now(), Instant::now(), None);
        while rounds.next().await {
            let connection = probes.connection(&self.lists[0].key).filter(|_| retry_at <= Instant::now());
            let Some(mut connection) = connection else { continue };
            let current = probes.server(&self.lists[0].key);
            if server.replace(current.clone()).is_some_and(|before| before != current) {
                // A server that was restarted or replaced may have lost some entries and have later ones.
                self.lists.iter().for_each(|list| list.is_doubtful.set(true));
                pull_at = Instant::now();
            }
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
                RedisResult::Ok(())
            };
            if let Err(error) = round.await {
                tracing::debug!(%error, "can't share the audit log with other instances");
                retry_at = Instant::now() + RETRY_AFTER;
            }
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
            // The key has another type: the next entry replaces it.
            Err(error) if error.code() == Some("WRONGTYPE") => None,
            newest => newest?,
        };
        let is_known = *self.newest.borrow() == newest;
        if newest.is_none() && !is_known {
            self.is_doubtful.set(true);
        }
        if is_known && !self.is_doubtful.get() {
            return Ok(());
        }
        let list: Vec<Vec<u8>> = match newest {
            Some(_) => redis::cmd("LRANGE").arg(&self.key).arg(0).arg(-1).query_async(connection).await?,
            None => Vec::new(),
        };
        let entries: Vec<AuditEntry> =
            list.iter().filter_map(|entry| serde_json::from_slice(entry).ok()).collect();
        if self.is_doubtful.replace(false) {
            log.resend_missing(self.author, &entries);
        }
        log.merge(entries);
        // Set last: if the read failed, the next round reads again.
        *self.newest.borrow_mut() = newest;
        Ok(())
    }
}
