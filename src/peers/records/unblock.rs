//! Records that an operator has unblocked a client, for all instances, including those that missed the message.

use bb8_redis::redis::{self, RedisError, RedisResult, aio::ConnectionLike};
use ipnet::IpNet;

use super::{
    codec::{self, StoredValue},
    read::MAX_AUTHOR_BYTES,
    scope::RecordScope,
    table::{RecordEntry, SLACK, WriteOutcome},
    write,
};
use crate::{
    abuse::{self, SharedUnblock, Unblock},
    peers::time::unix_micros,
};

/// Attempts: an instance writes the same client once a second at most.
const ATTEMPTS: usize = 10;

/// Marks a client as unblocked by `by`. Its stored records keep their expiry. If there are none, the mark alone is
/// stored, for records that are not published yet.
///
/// # Errors
/// Redis refuses the call or can't be reached. It may be marked all the same.
pub(super) async fn unblock(
    connection: &mut impl ConnectionLike,
    scope: &RecordScope,
    address: IpNet,
    by: &str,
) -> RedisResult<()> {
    for _ in 0..ATTEMPTS {
        let entry = marked(connection, scope, address, by).await?;
        if write::write(connection, scope, &[entry]).await?.first() == Some(&WriteOutcome::Written) {
            return Ok(());
        }
    }
    let why = (redis::ErrorKind::Client, "other instances keep writing the records of the address");
    Err(RedisError::from(why))
}

/// The time; the counts and the evidence; and the milliseconds for which each of the two is kept.
type ClientReply = ((i64, i64), [Option<Vec<u8>>; 2], i64, i64);

/// The stored client with the mark added.
async fn marked(
    connection: &mut impl ConnectionLike,
    scope: &RecordScope,
    address: IpNet,
    by: &str,
) -> RedisResult<RecordEntry> {
    let keys = scope.client_keys(address);
    let mut pipeline = redis::pipe();
    pipeline.cmd("TIME").cmd("MGET").arg(&keys);
    for key in &keys {
        pipeline.cmd("PTTL").arg(key);
    }
    let (time, values, counts_kept, evidence_kept): ClientReply = pipeline.query_async(connection).await?;
    let [counts, evidence] = values.each_ref().map(Option::as_deref);
    let StoredValue { stamp, content } = codec::decode_client(counts, evidence);
    let mut client = content.unwrap_or_default();
    client.counts.until = client.counts.until.min(client.counts.last);
    let by = by[..by.floor_char_boundary(MAX_AUTHOR_BYTES)].to_owned();
    let unblock = Unblock { time: unix_micros(time), by };
    client.counts.unblocked = Some(SharedUnblock { unblock, denied_since: false });
    let [counts, evidence] = codec::encode_client(&client);
    // A value without an expiry was written by another program.
    let millis = |left: i64| u64::try_from(left).ok().filter(|&left| left > 0);
    let kept = millis(counts_kept).unwrap_or(scope.retain_millis());
    let evidence_kept = millis(evidence_kept).unwrap_or(kept).min(kept);
    let due_in = if evidence.is_empty() { kept } else { evidence_kept.saturating_sub(SLACK) };
    Ok(RecordEntry {
        name: abuse::shown(address).into(),
        keys: keys.into(),
        expected: stamp,
        is_change: true,
        due_in,
        values: vec![(counts, kept), (evidence, evidence_kept)],
    })
}
