//! Reads what other instances know of limited clients. What is found there may be of another version,
//! or of no instance: it is passed over.

use bb8_redis::redis::{self, FromRedisValue, RedisResult, Value, aio::ConnectionLike};
use ipnet::IpNet;

use super::scope::{FORGOTTEN_FIELD, MAX_INSTANCES, MAX_SNAPSHOT, Scope};
use crate::{
    abuse::{self, ChangesPage, ClientSnapshot, PeerView},
    peers::time::unix_micros,
};

/// Microseconds that a time may be ahead of the server's: more means another server's clock, as in `lua/record.lua`.
pub(super) const MAX_AHEAD: i64 = 1_000_000;
/// Clients a page.
const PAGE_SIZE: usize = 1_024;

/// Clients that changed at `since` or later, by Redis' clock in microseconds; see
/// [`Archive::changed`](crate::abuse::Archive::changed).
pub(super) async fn read_changed(
    connection: &mut impl ConnectionLike,
    scope: &Scope,
    since: i64,
) -> RedisResult<ChangesPage> {
    let mut pipeline = redis::pipe();
    pipeline.cmd("TIME");
    pipeline.cmd("ZRANGEBYSCORE").arg(scope.changed_key()).arg(since).arg("+inf").arg("WITHSCORES");
    pipeline.arg("LIMIT").arg(0).arg(PAGE_SIZE);
    let (time, found): ((i64, i64), Page) = pipeline.query_async(connection).await?;
    // As a number of Lua's: exact up to 2⁵³, which is the year 2255.
    let next = found.last().filter(|_| found.len() == PAGE_SIZE).map(|(_, score)| *score as i64);
    let client = |(address, score): (Vec<u8>, f64)| {
        Some((abuse::parse(str::from_utf8(&address).ok()?)?, score as i64))
    };
    Ok(ChangesPage { now: unix_micros(time), clients: found.into_iter().filter_map(client).collect(), next })
}

type Page = Vec<(Vec<u8>, f64)>;

/// What the other instances know of these clients, in the same order; see
/// [`Archive::read`](crate::abuse::Archive::read).
pub(super) async fn read_clients(
    connection: &mut impl ConnectionLike,
    scope: &Scope,
    addresses: &[IpNet],
    now: i64,
) -> RedisResult<Vec<PeerView>> {
    if addresses.is_empty() {
        return Ok(Vec::new());
    }
    let mut pipeline = redis::pipe();
    pipeline.ignore_errors().cmd("TIME");
    for &address in addresses {
        pipeline.cmd("HGETALL").arg(scope.client_key(address));
        // Of several keys it counts the union.
        pipeline.cmd("PFCOUNT").arg(scope.users_keys(address, now));
    }
    let replies: Vec<RedisResult<Value>> = pipeline.query_async(connection).await?;
    let mut replies = replies.into_iter();
    let now = match replies.next() {
        // From here on by the server's.
        Some(time) => unix_micros(FromRedisValue::from_redis_value(time?)?),
        None => return Ok(Vec::new()),
    };
    let mut found = Vec::with_capacity(addresses.len());
    while let Some(reply) = replies.next() {
        let users = replies.next().and_then(Result::ok).and_then(|users| u64::from_redis_value(users).ok());
        found.push(PeerView { users: users.unwrap_or(0), ..parse_others(scope, fields(reply)?, now) });
    }
    Ok(found)
}

/// The fields of a hash, or none where the key holds something else.
pub(super) fn fields(reply: RedisResult<Value>) -> RedisResult<Vec<(Vec<u8>, Vec<u8>)>> {
    match reply {
        Ok(value) => Ok(Vec::from_redis_value(value)?),
        Err(error) if error.code() == Some("WRONGTYPE") => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn parse_others(scope: &Scope, fields: Vec<(Vec<u8>, Vec<u8>)>, now: i64) -> PeerView {
    let mut others = PeerView::default();
    for (field, value) in fields.into_iter().take(MAX_INSTANCES + 1) {
        if field == FORGOTTEN_FIELD.as_bytes() {
            let time = str::from_utf8(&value).ok().and_then(|time| time.parse::<i64>().ok());
            // One in the future says nothing of what was denied before.
            let time = time.filter(|time| *time <= now.saturating_add(MAX_AHEAD));
            others.forgotten = time.map(|time| now.saturating_sub(time).max(0));
        } else if field != scope.instance.as_bytes() {
            others.snapshots.extend(parse_snapshot(&field, &value));
        }
    }
    others
}

fn parse_snapshot(field: &[u8], value: &[u8]) -> Option<ClientSnapshot> {
    let known =
        if value.len() > MAX_SNAPSHOT { None } else { serde_json::from_slice::<ClientSnapshot>(value).ok() };
    let current = known.filter(ClientSnapshot::is_current);
    if current.is_none() {
        let instance = String::from_utf8_lossy(field);
        tracing::debug!(%instance, bytes = value.len(), "can't read a record of another instance");
    }
    current
}
