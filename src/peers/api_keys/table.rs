//! The keys in Redis: their names, and the scripts that read and write them.

use std::sync::LazyLock;

use bb8_redis::redis::{self, RedisResult, Script};
use compact_str::CompactString;

use super::CHANGED;
use crate::{
    api_keys::{ApiKey, MAX_STORED_KEYS, Stamp, kept_until, record},
    store::redis::{RoutedConnection, channel},
};

static WRITE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("../../../lua/key_prelude.lua"),
        include_str!("../../../lua/version_prelude.lua"),
        include_str!("../../../lua/api_keys_write.lua")
    ))
});

static READ: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../../lua/api_keys_read.lua")));

static WRITE_USES: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("../../../lua/key_prelude.lua"),
        include_str!("../../../lua/api_keys_uses.lua")
    ))
});

/// All scripts of API keys.
pub(in crate::peers) fn scripts() -> [&'static Script; 3] {
    [&WRITE, &READ, &WRITE_USES]
}

/// Keys read by one call, during which Redis does nothing else.
pub(super) const PAGE_SIZE: usize = 200;
/// Last uses read by one call.
pub(super) const USES_PAGE_SIZE: usize = 1_000;
/// Uses are kept of the keys of files, too.
const MAX_USES: usize = 2 * MAX_STORED_KEYS;

/// A position in the sequence of changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct KeyVersion {
    /// A new one begins when Redis has lost all keys. Empty if there never was a change.
    pub(super) epoch: String,
    /// The number of the last change in this epoch, from 1.
    pub(super) number: u64,
}

/// The version that a written one replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Replaced {
    /// Any that is not greater.
    Lesser,
    /// This one. `None`: the key is new.
    Exactly(Option<Stamp>),
}

/// The reply to a written version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Written {
    /// Redis has it, or a greater one where that is allowed.
    Stored,
    NoRoom,
    /// Redis has another version than the one to replace. `None`: none, or none that can be read.
    Outdated(Option<Box<(ApiKey, Stamp)>>),
}

/// Some keys, in the order of their changes.
pub(super) struct KeyPage {
    /// Of Redis, when it was read.
    pub(super) version: KeyVersion,
    pub(super) keys: Vec<(ApiKey, Stamp)>,
    /// The number of the last change that was read, if there are more.
    pub(super) next: Option<u64>,
}

/// The keys in Redis. They have one hash tag, so that they are in one slot and one script reaches them all.
#[derive(Debug)]
pub(in crate::peers) struct KeyTable {
    records: String,
    order: String,
    version: String,
    tombstones: String,
    uses: String,
    channel: String,
}

impl KeyTable {
    pub(in crate::peers) fn new(prefix: &str) -> Self {
        let name = |part: &str| format!("{prefix}:{{keys}}:{part}");
        Self {
            records: name("records"),
            order: name("order"),
            version: name("version"),
            tombstones: name("tombstones"),
            uses: name("uses"),
            channel: channel::name(prefix),
        }
    }

    /// A key in the slot of all of them.
    pub(in crate::peers) fn slot(&self) -> &str {
        &self.version
    }

    /// Writes these versions of keys. Redis stores each only if it has the version to be replaced.
    pub(super) async fn write<'k>(
        &self,
        connection: &mut RoutedConnection,
        keys: impl Iterator<Item = (&'k ApiKey, Replaced)>,
    ) -> RedisResult<Vec<Written>> {
        let mut call = WRITE.key(&self.records);
        call.key(&self.order).key(&self.version).key(&self.tombstones).key(&self.uses);
        call.arg(&self.channel).arg(CHANGED).arg(format!("{:016x}", fastrand::u64(..))).arg(MAX_STORED_KEYS);
        for (key, replaced) in keys {
            let Stamp { finality, changed, tie } = Stamp::of(key);
            call.arg(&*key.id).arg(finality).arg(changed).arg(tie).arg(kept_until(key).unwrap_or(0));
            call.arg(record::encode(key)).arg(match replaced {
                Replaced::Lesser => "*".to_owned(),
                Replaced::Exactly(None) => String::new(),
                Replaced::Exactly(Some(Stamp { finality, changed, tie })) => {
                    format!("{finality} {changed} {tie}")
                }
            });
        }
        let replies: Vec<Vec<u8>> = call.invoke_async(connection).await?;
        let written = |reply: &Vec<u8>| match reply.as_slice() {
            b"" => Written::Stored,
            b"full" => Written::NoRoom,
            record => Written::Outdated(parse(record).map(Box::new)),
        };
        Ok(replies.iter().map(written).collect())
    }

    /// Reads keys that were changed after `since`; all, if Redis has not got that far. `goes_on`: `since` is where the page
    /// before has ended.
    pub(super) async fn read(
        &self,
        connection: &mut RoutedConnection,
        since: &KeyVersion,
        goes_on: bool,
    ) -> RedisResult<KeyPage> {
        let mut call = READ.key(&self.records);
        call.key(&self.order).key(&self.version);
        call.arg(since.number).arg(&since.epoch).arg(PAGE_SIZE).arg(u8::from(goes_on));
        let reply: Vec<Vec<u8>> = call.invoke_async(connection).await?;
        let text = |at: usize| reply.get(at).and_then(|part| std::str::from_utf8(part).ok());
        let number = |at: usize| text(at).and_then(|text| text.parse().ok()).unwrap_or(0);
        let version = KeyVersion { epoch: text(0).unwrap_or_default().to_owned(), number: number(1) };
        let found = reply.get(2..).unwrap_or_default().chunks_exact(2);
        let is_full = found.len() == PAGE_SIZE;
        let keys = found.filter_map(|found| parse(found.get(1)?)).collect();
        Ok(KeyPage { version, keys, next: is_full.then(|| number(reply.len().saturating_sub(2))) })
    }

    /// Writes last uses, in minutes since the Unix epoch.
    pub(super) async fn write_uses(
        &self,
        connection: &mut RoutedConnection,
        uses: &[(CompactString, i64)],
    ) -> RedisResult<()> {
        let mut call = WRITE_USES.key(&self.uses);
        call.arg(MAX_USES);
        for (id, minute) in uses {
            call.arg(&**id).arg(minute);
        }
        call.invoke_async(connection).await
    }

    /// Reads a page of the last uses since this minute, from the `skipped`th on.
    pub(super) async fn read_uses(
        &self,
        connection: &mut RoutedConnection,
        since: i64,
        skipped: usize,
    ) -> RedisResult<Vec<(Vec<u8>, f64)>> {
        let mut call = redis::cmd("ZRANGEBYSCORE");
        call.arg(&self.uses).arg(since).arg("+inf").arg("WITHSCORES");
        call.arg("LIMIT").arg(skipped).arg(USES_PAGE_SIZE);
        match call.query_async(connection).await {
            // The next write replaces it.
            Err(error) if error.code() == Some("WRONGTYPE") => Ok(Vec::new()),
            uses => uses,
        }
    }
}

/// Reads `FINALITY CHANGED TIE JSON`. `None` for a row that no instance writes.
fn parse(stored: &[u8]) -> Option<(ApiKey, Stamp)> {
    let mut parts = stored.splitn(4, |byte| *byte == b' ');
    let mut number = || std::str::from_utf8(parts.next()?).ok()?.parse::<u64>().ok();
    let (finality, changed, tie) = (number()?, number()?, number()?);
    let key = record::decode(parts.next()?)?;
    let stamp = Stamp { finality: key.state.finality(), changed: key.changed, tie };
    let is_its = u64::from(stamp.finality) == finality && u64::try_from(stamp.changed) == Ok(changed);
    is_its.then_some((key, stamp))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api_keys::testing::key;

    #[test]
    fn records_are_read_as_they_are_written_and_nothing_else_is() {
        let key = key("a");
        let stamp = Stamp::of(&key);
        let stored = |stamp: Stamp, json: &str| {
            format!("{} {} {} {json}", stamp.finality, stamp.changed, stamp.tie).into_bytes()
        };
        let json = record::encode(&key);
        assert_eq!(parse(&stored(stamp, &json)), Some((key, stamp)));
        let (later, revoked) =
            (Stamp { changed: stamp.changed + 1, ..stamp }, Stamp { finality: 1, ..stamp });
        for (stamp, json) in [(later, json.as_str()), (revoked, json.as_str()), (stamp, "{}"), (stamp, "")] {
            assert_eq!(parse(&stored(stamp, json)), None, "{stamp:?} {json}");
        }
        assert_eq!(parse(format!("0 x 1 {json}").as_bytes()), None);
        assert_eq!(parse(b""), None);
    }
}
