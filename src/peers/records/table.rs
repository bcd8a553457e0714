//! A table of records: entries that several instances change, within a budget of bytes. See `lua/record_prelude.lua`.

use std::sync::LazyLock;

use bb8_redis::redis::{
    self, FromRedisValue, RedisResult, Script, ScriptInvocation, Value, aio::ConnectionLike,
};

use crate::peers::time::unix_micros;

/// Bytes of what one client or one user takes at most. What is longer was written by no instance.
pub(super) const MAX_VALUE: usize = 256 << 10;
/// Entries that are written by one call of a script: Redis does nothing else meanwhile.
pub(super) const BATCH: usize = 100;
/// Entries that a sweep asks for at a time.
const SWEEP: usize = 100;

/// About how many bytes of Redis an entry takes in the index and the dues, its names aside.
const ENTRY_OVERHEAD: usize = 190;
/// About how many bytes of Redis a key takes, its name and its value aside.
const KEY_OVERHEAD: usize = 96;
/// Bytes of a unit of size.
const UNIT: usize = 64;
/// Sizes are less than this; see `lua/record_prelude.lua`.
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

/// A table of records, and what it may take.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) keys: TableKeys,
    /// How many keys an entry has.
    pub(super) width: usize,
    /// Milliseconds for which the table stays at least.
    pub(super) retain: u64,
    /// Bytes.
    pub(super) budget: u64,
    /// Entries.
    pub(super) most: usize,
}

/// The keys of a table, beside those of its entries.
#[derive(Debug, Clone)]
pub(super) struct TableKeys {
    pub(super) index: String,
    pub(super) dues: String,
    pub(super) total: String,
}

/// An entry to be written, or to be removed if its first value is empty.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) keys: Vec<String>,
    /// How its first value began when it was read; empty if there was none.
    pub(super) expected: Vec<u8>,
    /// Whether other instances are to read it again: not where it is written because something has expired.
    pub(super) is_change: bool,
    /// Milliseconds until something in it expires.
    pub(super) due_in: u64,
    /// Of each key: the value, empty if it is to be removed, and for how many milliseconds it is kept.
    pub(super) values: Vec<(Vec<u8>, u64)>,
}

/// What became of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Written,
    /// Another instance has written it since it was read.
    Conflict,
}

/// What a script says of a table.
pub(super) struct Reply<T> {
    pub(super) found: T,
    /// Names of entries that have to go.
    pub(super) excess: Vec<Vec<u8>>,
    /// Bytes that the table takes.
    pub(super) bytes: u64,
}

impl Entry {
    /// In units.
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

/// How many bytes Redis' allocator gives to a string: it has four sizes for each power of two.
fn allocated(length: usize) -> usize {
    // A string has its length in front.
    let bytes = length + 6;
    bytes.next_multiple_of((bytes.next_power_of_two() / 8).max(8))
}

/// Which of these tables have to be swept: something in them has expired, or they take too much. Most rounds ask only this.
///
/// # Errors
/// Redis refuses or can't be asked.
pub(super) async fn to_be_swept<const N: usize>(
    connection: &mut impl ConnectionLike,
    tables: [&Table; N],
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
        // What can't be read the script mends.
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

impl Table {
    fn call<'a>(&self, script: &'a Script) -> ScriptInvocation<'a> {
        let TableKeys { index, dues, total } = &self.keys;
        let mut call = script.prepare_invoke();
        call.key(index).key(dues).key(total);
        call
    }

    /// Writes entries.
    ///
    /// # Errors
    /// Redis refuses or can't be asked. Some may have been written.
    pub(super) async fn write(
        &self,
        connection: &mut impl ConnectionLike,
        entries: &[Entry],
    ) -> RedisResult<Reply<Vec<Outcome>>> {
        let mut call = self.call(&WRITE);
        call.arg(self.retain).arg(self.budget).arg(self.most).arg(self.width);
        for entry in entries {
            let Entry { name, keys, expected, is_change, due_in, values } = entry;
            call.key(keys).arg(name).arg(expected);
            call.arg(u8::from(*is_change)).arg(entry.size()).arg(due_in);
            for (value, kept) in values {
                call.arg(value).arg(kept);
            }
        }
        let (outcomes, excess, bytes): (Vec<u8>, Vec<Vec<u8>>, u64) = call.invoke_async(connection).await?;
        let outcome = |number: u8| if number == 0 { Outcome::Written } else { Outcome::Conflict };
        Ok(Reply { found: outcomes.into_iter().map(outcome).collect(), excess, bytes })
    }

    /// The names of some entries in which something has expired. Others are not told of them for a while.
    ///
    /// # Errors
    /// Redis refuses or can't be asked.
    pub(super) async fn sweep(
        &self,
        connection: &mut impl ConnectionLike,
    ) -> RedisResult<Reply<Vec<Vec<u8>>>> {
        let mut call = self.call(&SWEEP_DUE);
        call.arg(self.budget).arg(self.most).arg(SWEEP);
        let (found, excess, bytes) = call.invoke_async(connection).await?;
        Ok(Reply { found, excess, bytes })
    }

    /// Removes entries, and says how many bytes the table takes then.
    ///
    /// # Errors
    /// Redis refuses or can't be asked.
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
