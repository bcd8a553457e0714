//! Replicates the audit log: a list in Redis, which all instances append to and read.

use std::{cell::RefCell, sync::LazyLock};

use bb8_redis::redis::{self, RedisResult, Script, aio::MultiplexedConnection};

use crate::abuse::{AuditEntry, AuditLog, MAX_AUDIT_ENTRIES, Pending};

static APPEND: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("../../lua/key_prelude.lua"), include_str!("../../lua/audit_log.lua")))
});

/// Entries written by one call of the script.
const BATCH: usize = 64;
/// How long the list stays after the last entry: 366 days, in milliseconds.
const EXPIRE_AFTER: u64 = 366 * 86_400_000;

/// The shared list.
#[derive(Debug)]
pub(super) struct SharedAuditLog {
    key: String,
    /// The newest entry when the list was read last.
    newest: RefCell<Option<Vec<u8>>>,
}

impl SharedAuditLog {
    pub(super) fn new(prefix: &str) -> Self {
        Self { key: format!("{prefix}:{{audit}}"), newest: RefCell::default() }
    }

    /// Appends the pending entries of this instance.
    pub(super) async fn push(
        &self,
        connection: &mut MultiplexedConnection,
        log: &AuditLog,
    ) -> RedisResult<()> {
        let entries = log.pending(BATCH);
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
        log.ack(&entries);
        Ok(())
    }

    /// Reads the entries of other instances, if there are new ones.
    pub(super) async fn pull(
        &self,
        connection: &mut MultiplexedConnection,
        log: &AuditLog,
    ) -> RedisResult<()> {
        let newest: RedisResult<Option<Vec<u8>>> =
            redis::cmd("LINDEX").arg(&self.key).arg(-1).query_async(connection).await;
        let newest = match newest {
            // Something else was written there; the next entry replaces it.
            Err(error) if error.code() == Some("WRONGTYPE") => None,
            newest => newest?,
        };
        let known = self.newest.replace(newest.clone());
        if newest.is_none() && known.is_some() {
            log.resend_all();
        }
        if newest.is_none() || newest == known {
            return Ok(());
        }
        let list: Vec<Vec<u8>> =
            redis::cmd("LRANGE").arg(&self.key).arg(0).arg(-1).query_async(connection).await?;
        log.merge(list.iter().filter_map(|entry| serde_json::from_slice::<AuditEntry>(entry).ok()));
        Ok(())
    }
}
