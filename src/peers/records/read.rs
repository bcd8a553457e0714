//! Reads what other instances know of limited clients.

use bb8_redis::redis::{self, RedisResult, aio::ConnectionLike};
use ipnet::IpNet;

use super::{
    codec::{self, Stored},
    scope::Scope,
};
use crate::{
    abuse::{self, ChangesPage, PeerView, SharedClient},
    peers::time::unix_micros,
};

/// Microseconds that a time may be ahead of the server's: more means another server's clock, as in
/// `lua/record_prelude.lua`.
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
) -> RedisResult<Vec<PeerView>> {
    if addresses.is_empty() {
        return Ok(Vec::new());
    }
    let mut pipeline = redis::pipe();
    pipeline.cmd("TIME").cmd("MGET");
    for &address in addresses {
        pipeline.arg(&scope.client_keys(address));
    }
    let (time, values): ((i64, i64), Vec<Option<Vec<u8>>>) = pipeline.query_async(connection).await?;
    let now = unix_micros(time);
    let view = |pair: &[Option<Vec<u8>>]| {
        let value = |at: usize| pair.get(at).and_then(Option::as_deref);
        to_view(scope, codec::decode_client(value(0), value(1)), now)
    };
    Ok(values.chunks(2).map(view).collect())
}

/// `now`: by the server's clock.
fn to_view(scope: &Scope, stored: Stored<SharedClient>, now: i64) -> PeerView {
    let users = stored.content.as_ref().map_or(0, |client| client.users.len());
    let snapshot = stored.content.and_then(|client| client.of_others(scope.instance));
    PeerView {
        forgotten: forgotten_ago(stored.forgotten, now),
        users: snapshot.as_ref().map_or(0, |_| users),
        snapshot,
    }
}

/// How long ago a client was forgotten. A time in the future says nothing of what was denied before.
fn forgotten_ago(forgotten: i64, now: i64) -> Option<i64> {
    (forgotten > 0 && forgotten <= now.saturating_add(MAX_AHEAD))
        .then(|| now.saturating_sub(forgotten).max(0))
}
