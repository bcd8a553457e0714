//! Reads the bans in Redis, and their version.

use std::sync::LazyLock;

use bb8_redis::redis::{self, FromRedisValue, RedisResult, Script, Value, aio::ConnectionLike};

use super::{
    change_log::BanVersion,
    codec::{mode, parse_ban},
    keys::BanKeys,
};
use crate::{
    abuse::bans::{Ban, BannedKey},
    peers::time::unix_micros,
    store::redis::RoutedConnection,
};

pub(super) static BANS: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../../../lua/bans.lua")));

/// Bans read by one call, during which Redis does nothing else.
pub(super) const PAGE_SIZE: usize = 500;

/// A page of a snapshot of all bans.
pub(super) struct SnapshotPage {
    pub(super) version: BanVersion,
    pub(super) bans: Vec<Ban>,
    /// The start of the next page; `None` on the last.
    pub(super) next: Option<String>,
}

/// Counts the bans of exactly this key.
pub(in crate::peers) async fn count_bans(
    connection: &mut impl ConnectionLike,
    prefix: &str,
    key: &BannedKey,
) -> RedisResult<u64> {
    let [ends, ..] = BanKeys::new(prefix).all;
    let mut pipeline = redis::pipe();
    pipeline.ignore_errors().cmd("TIME");
    for is_shadow in [false, true] {
        pipeline.cmd("ZSCORE").arg(&ends).arg(format!("{} {key}", mode(is_shadow)));
    }
    let mut replies = pipeline.query_async::<Vec<RedisResult<Value>>>(connection).await?.into_iter();
    let Some(time) = replies.next() else { return Ok(0) };
    let now = unix_micros(FromRedisValue::from_redis_value(time?)?);
    // A key of another type has no bans.
    let ends = replies.filter_map(|end| f64::from_redis_value(end.ok()?).ok());
    Ok(ends.filter(|end| *end as i64 > now).count() as u64)
}

/// Reads the version alone.
pub(super) async fn read_version(
    connection: &mut RoutedConnection,
    keys: &BanKeys,
) -> RedisResult<BanVersion> {
    Ok(read_page(connection, keys, "", 0, 0).await?.version)
}

/// Reads a page of up to `most` bans, ordered by their end, from `from` on; empty: from now on. `now`: by this
/// instance's clock.
pub(super) async fn read_page(
    connection: &mut RoutedConnection,
    keys: &BanKeys,
    from: &str,
    most: usize,
    now: i64,
) -> RedisResult<SnapshotPage> {
    let mut call = BANS.prepare_invoke();
    for key in keys.all.iter().take(3) {
        call.key(key);
    }
    call.arg(from).arg(most);
    let reply: Vec<Vec<u8>> = call.invoke_async(connection).await?;
    let text = |at: usize| reply.get(at).and_then(|part| std::str::from_utf8(part).ok()).unwrap_or_default();
    let version = BanVersion { epoch: text(0).to_owned(), number: text(1).parse().unwrap_or(0) };
    let redis_now: i64 = text(2).parse().unwrap_or(0);
    let found = reply.get(3..).unwrap_or_default().chunks_exact(3);
    let (count, last) = (found.len(), text(reply.len().saturating_sub(2)).to_owned());
    let bans = found.filter_map(|found| {
        let [ban, ends, details] = found else { return None };
        let [ban, ends, details] = [ban, ends, details].map(|part| std::str::from_utf8(part).ok());
        parse_ban(ban?, ends?.parse().ok()?, details?, redis_now, now)
    });
    let bans = bans.collect();
    // If all bans of a page end at the same time, the others that end then are skipped, lest the same page is read for
    // ever.
    let next = if last == from { format!("({last}") } else { last };
    Ok(SnapshotPage { version, bans, next: (most > 0 && count == most).then_some(next) })
}
