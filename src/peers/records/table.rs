//! A table of records: entries that several instances change, within a budget of bytes. See `lua/record_prelude.lua`.

use std::sync::LazyLock;

use bb8_redis::redis::{
    self, FromRedisValue, RedisResult, Script, ScriptInvocation, Value, aio::ConnectionLike,
};

use crate::peers::time::unix_micros;

/// Most bytes of a value. A longer one was written by another program.
pub(super) const MAX_VALUE: usize = 256 << 10;
/// Entries written by one call of a script, during which Redis does nothing else.
pub(super) const BATCH: usize = 100;
/// Milliseconds for which evidence may outlive its first record that has expired. Before that, a live instance writes
/// it again without that record.
pub(super) const SLACK: u64 = 800;
/// Entries in one reply to a sweep.
const SWEEP: usize = 100;

/// Approximate bytes of an entry in the index and the dues, without its names.
const ENTRY_OVERHEAD: usize = 190;
/// Approximate bytes of a key in Redis, without its name and value.
const KEY_OVERHEAD: usize = 96;
/// Bytes of a unit of size.
const UNIT: usize = 64;
/// Upper bound of sizes, exclusive; see `lua/record_prelude.lua`.
const SIZES: usize = 1 << 18;

macro_rules! script {
    ($file:literal) => {
        LazyLock::new(|| {
            Script::new(concat!(
                include_str!("../../../lua/key_prelude.lua"),
                include_str!("../../../lua/record_prelude.lua"),
                include_str!(concat!("../../../lua/", $file))
            ))
        })
    };
}

pub(super) static WRITE: LazyLock<Script> = script!("record.lua");
pub(super) static SWEEP_DUE: LazyLock<Script> = script!("record_sweep.lua");
pub(super) static REMOVE: LazyLock<Script> = script!("record_remove.lua");

/// A table of records, and its bounds.
#[derive(Debug, Clone)]
pub(super) struct RecordTable {
    pub(super) keys: TableKeys,
    /// Keys of an entry.
    pub(super) width: usize,
    /// Milliseconds for which the table is kept at least.
    pub(super) retain: u64,
    /// Most bytes.
    pub(super) budget: u64,
    /// Most entries.
    pub(super) most: usize,
}

/// The keys of a table, without those of its entries.
#[derive(Debug, Clone)]
pub(super) struct TableKeys {
    pub(super) index: String,
    pub(super) dues: String,
    pub(super) total: String,
}

/// An entry to write, or to remove if its first value is empty.
#[derive(Debug)]
pub(super) struct RecordEntry {
    pub(super) name: String,
    pub(super) keys: Vec<String>,
    /// The first bytes of its first value when it was read; empty if there was none.
    pub(super) expected: Vec<u8>,
    /// Whether other instances have to read it again; false if only expired parts are removed.
    pub(super) is_change: bool,
    /// Milliseconds until a part of it expires.
    pub(super) due_in: u64,
    /// For each key: the value, empty to remove it, and the milliseconds for which it is kept.
    pub(super) values: Vec<(Vec<u8>, u64)>,
}

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteOutcome {
    Written,
    /// Another instance has written the entry since it was read.
    Conflict,
}

/// A script's reply about a table.
pub(super) struct TableReply<T> {
    pub(super) found: T,
    /// Names of entries to remove.
    pub(super) excess: Vec<Vec<u8>>,
    /// Bytes that the table takes.
    pub(super) bytes: u64,
}

impl RecordEntry {
    /// The size in units of [`UNIT`] bytes.
    fn size(&self) -> usize {
        let values = self.keys.iter().zip(&self.values).filter(|(_, (value, _))| !value.is_empty());
        let values = values.map(|(key, (value, _))| key_bytes(key, value.len()));
        units(entry_bytes(&self.name) + values.sum::<usize>())
    }
}

fn entry_bytes(name: &str) -> usize {
    ENTRY_OVERHEAD + 2 * allocated(name.len())
}

fn key_bytes(key: &str, value: usize) -> usize {
    KEY_OVERHEAD + allocated(key.len()) + allocated(value)
}

/// Bytes that Redis' allocator uses for a string: it has four sizes for each power of two.
fn allocated(length: usize) -> usize {
    // A string is preceded by its length.
    let bytes = length + 6;
    bytes.next_multiple_of((bytes.next_power_of_two() / 8).max(8))
}

/// Which of these tables need a sweep: a part of an entry has expired, or the table is over budget. Most rounds ask
/// only this.
///
/// # Errors
/// Redis refuses the call or can't be reached.
pub(super) async fn to_be_swept<const N: usize>(
    connection: &mut impl ConnectionLike,
    tables: [&RecordTable; N],
) -> RedisResult<[bool; N]> {
    let mut pipeline = redis::pipe();
    pipeline.ignore_errors().cmd("TIME");
    for table in tables {
        pipeline.cmd("ZRANGE").arg(&table.keys.dues).arg(0).arg(0).arg("WITHSCORES");
        pipeline.cmd("MGET").arg(&table.keys.total);
    }
    let mut replies = pipeline.query_async::<Vec<RedisResult<Value>>>(connection).await?.into_iter();
    let mut next = || replies.next().and_then(Result::ok).unwrap_or(Value::Nil);
    let tenths = <(i64, i64)>::from_redis_value(next()).map_or(0, |time| unix_micros(time) / 100_000);
    Ok(tables.map(|table| {
        // The sweep repairs a value that can't be read.
        let first = Vec::<(Vec<u8>, f64)>::from_redis_value(next());
        let is_due =
            first.map_or(true, |first| first.iter().any(|(_, score)| *score as i64 / SIZES as i64 <= tenths));
        let total = <[Option<u64>; 1]>::from_redis_value(next()).ok().and_then(|[units]| units).unwrap_or(0);
        is_due || total.saturating_mul(UNIT as u64) > table.budget
    }))
}

fn units(bytes: usize) -> usize {
    bytes.div_ceil(UNIT).min(SIZES - 1)
}

impl RecordTable {
    fn call<'a>(&self, script: &'a Script) -> ScriptInvocation<'a> {
        let TableKeys { index, dues, total } = &self.keys;
        let mut call = script.prepare_invoke();
        call.key(index).key(dues).key(total);
        call
    }

    /// Writes entries.
    ///
    /// # Errors
    /// Redis refuses the call or can't be reached. Some may have been written.
    pub(super) async fn write(
        &self,
        connection: &mut impl ConnectionLike,
        entries: &[RecordEntry],
    ) -> RedisResult<TableReply<Vec<WriteOutcome>>> {
        let mut call = self.call(&WRITE);
        call.arg(self.retain).arg(self.budget).arg(self.most).arg(self.width);
        for entry in entries {
            let RecordEntry { name, keys, expected, is_change, due_in, values } = entry;
            call.key(keys).arg(name).arg(expected);
            call.arg(u8::from(*is_change)).arg(entry.size()).arg(due_in);
            for (value, kept) in values {
                call.arg(value).arg(kept);
            }
        }
        let (outcomes, excess, bytes): (Vec<u8>, Vec<Vec<u8>>, u64) = call.invoke_async(connection).await?;
        let outcome = |number: u8| if number == 0 { WriteOutcome::Written } else { WriteOutcome::Conflict };
        Ok(TableReply { found: outcomes.into_iter().map(outcome).collect(), excess, bytes })
    }

    /// Names of some entries with expired parts. For a while, other instances do not get the same ones.
    ///
    /// # Errors
    /// Redis refuses the call or can't be reached.
    pub(super) async fn sweep(
        &self,
        connection: &mut impl ConnectionLike,
    ) -> RedisResult<TableReply<Vec<Vec<u8>>>> {
        let mut call = self.call(&SWEEP_DUE);
        call.arg(self.budget).arg(self.most).arg(SWEEP);
        let (found, excess, bytes) = call.invoke_async(connection).await?;
        Ok(TableReply { found, excess, bytes })
    }

    /// Removes entries. Returns the bytes that the table takes then.
    ///
    /// # Errors
    /// Redis refuses the call or can't be reached.
    pub(super) async fn remove(
        &self,
        connection: &mut impl ConnectionLike,
        names: &[Vec<u8>],
        keys: &[String],
    ) -> RedisResult<u64> {
        let mut call = self.call(&REMOVE);
        call.key(keys).arg(names);
        call.invoke_async(connection).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_allocator() {
        assert_eq!([10, 42, 58, 100, 8_500].map(allocated), [16, 48, 64, 112, 10_240]);
    }
}
