//! The list of who changed what, which all instances share.

use std::{cell::RefCell, sync::LazyLock};

use redis::{RedisResult, Script, aio::MultiplexedConnection};

use super::bans::Keys;
use crate::abuse::{AuditEntry, AuditLog, ENTRIES};

static NOTE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("../../lua/key_prelude.lua"), include_str!("../../lua/audit_log.lua")))
});

/// Entries that are written at a time.
const CHUNK: usize = 64;
/// 366 days, in milliseconds.
const STAYS: u64 = 366 * 86_400_000;

/// What is known of the list.
#[derive(Debug, Default)]
pub(super) struct Journal {
    /// Its newest entry.
    newest: RefCell<Option<Vec<u8>>>,
}

impl Journal {
    /// Writes down what this instance has done lately.
    pub(super) async fn write(
        &self,
        connection: &mut MultiplexedConnection,
        keys: &Keys,
        log: &AuditLog,
    ) -> RedisResult<()> {
        let entries = log.untold(CHUNK);
        if entries.is_empty() {
            return Ok(());
        }
        let mut call = NOTE.key(&keys.journal);
        call.arg(ENTRIES).arg(STAYS);
        for entry in &entries {
            // Strings and numbers: there is nothing in it that JSON could not say.
            call.arg(serde_json::to_string(entry).unwrap_or_default());
        }
        let _count: u64 = call.invoke_async(connection).await?;
        log.told(&entries);
        Ok(())
    }

    /// Reads what the others have done, where there is something new.
    pub(super) async fn read(
        &self,
        connection: &mut MultiplexedConnection,
        keys: &Keys,
        log: &AuditLog,
    ) -> RedisResult<()> {
        let newest: RedisResult<Option<Vec<u8>>> =
            redis::cmd("LINDEX").arg(&keys.journal).arg(-1).query_async(connection).await;
        let newest = match newest {
            // Somebody else wrote there; whoever writes next mends it.
            Err(error) if error.code() == Some("WRONGTYPE") => None,
            newest => newest?,
        };
        let known = self.newest.replace(newest.clone());
        if newest.is_none() && known.is_some() {
            log.tell_all_anew();
        }
        if newest.is_none() || newest == known {
            return Ok(());
        }
        let list: Vec<Vec<u8>> =
            redis::cmd("LRANGE").arg(&keys.journal).arg(0).arg(-1).query_async(connection).await?;
        log.learn(list.iter().filter_map(|entry| serde_json::from_slice::<AuditEntry>(entry).ok()));
        Ok(())
    }
}
