//! Writes bans and counts offenses in Redis.

use std::sync::LazyLock;

use bb8_redis::redis::{RedisResult, Script, ScriptInvocation};

use super::{
    codec::{describe, mode},
    keys::BanKeys,
};
use crate::{
    abuse::{
        Pending,
        bans::{Ban, BanUpdate, BannedKey, MAX_BANS, Offense},
    },
    store::redis::RoutedConnection,
};

pub(super) static OFFENSE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("../../../lua/key_prelude.lua"),
        include_str!("../../../lua/version_prelude.lua"),
        include_str!("../../../lua/bans_prelude.lua"),
        include_str!("../../../lua/offense.lua")
    ))
});

pub(super) static BAN: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("../../../lua/key_prelude.lua"),
        include_str!("../../../lua/version_prelude.lua"),
        include_str!("../../../lua/bans_prelude.lua"),
        include_str!("../../../lua/ban.lua")
    ))
});

/// The reply of a script, with messages as published.
pub(super) struct BanReply {
    pub(super) changes: Vec<Vec<u8>>,
    /// Bans for which there was no room.
    pub(super) refused: usize,
    /// The changes that are bans by rules for offenses at this instance.
    pub(super) issued: Vec<Vec<u8>>,
}

/// Counts offenses together with those of other instances. `now`: by the clock that stamped them.
pub(super) async fn count_offenses(
    connection: &mut RoutedConnection,
    keys: &BanKeys,
    offenses: &[Offense],
    now: i64,
) -> RedisResult<BanReply> {
    let mut call = prepare(&OFFENSE, keys);
    for Offense { rule, key, count, first, last, policy } in offenses {
        let terms = &rule.terms;
        call.arg(&*rule.name).arg(key.to_string()).arg(*count);
        call.arg(now.saturating_sub(*first).max(0)).arg(now.saturating_sub(*last).max(0));
        call.arg(terms.limit)
            .arg(terms.window)
            .arg(terms.first_duration)
            .arg(terms.factor)
            .arg(terms.max_duration);
        call.arg(rule.draw_jitter())
            .arg(mode(rule.is_shadow))
            .arg(describe(&rule.reason(policy), &rule.name));
    }
    let (changes, refused, issued) = call.invoke_async(connection).await?;
    Ok(BanReply { changes, refused, issued })
}

/// Issues and lifts bans for all instances. `now`: by this instance's clock.
pub(super) async fn send_updates(
    connection: &mut RoutedConnection,
    keys: &BanKeys,
    updates: &[Pending<BanUpdate>],
    now: i64,
) -> RedisResult<BanReply> {
    let mut call = prepare(&BAN, keys);
    for Pending { item: update, .. } in updates {
        match update {
            BanUpdate::Replace(ban) => push_ban(&mut call, "give", ban, now),
            BanUpdate::Merge(ban) => push_ban(&mut call, "merge", ban, now),
            BanUpdate::Lift { key, at } => push_end(&mut call, "lift", key, now.saturating_sub(*at).max(0)),
            BanUpdate::Forget(key) => push_end(&mut call, "forget", key, 0),
        }
    }
    let (changes, refused) = call.invoke_async(connection).await?;
    Ok(BanReply { changes, refused, issued: Vec::new() })
}

fn push_end(call: &mut ScriptInvocation<'_>, action: &str, key: &BannedKey, ago: i64) {
    call.arg(action).arg(key.to_string()).arg("").arg(0).arg(ago).arg(0).arg("").arg("");
}

fn push_ban(call: &mut ScriptInvocation<'_>, action: &str, ban: &Ban, now: i64) {
    call.arg(action).arg(ban.key.to_string()).arg(mode(ban.is_shadow));
    call.arg(ban.until.saturating_sub(now).max(0)).arg(now.saturating_sub(ban.since).max(0));
    call.arg(ban.level).arg(&ban.by).arg(describe(&ban.reason, &ban.by));
}

fn prepare<'a>(script: &'a Script, keys: &BanKeys) -> ScriptInvocation<'a> {
    let mut call = script.prepare_invoke();
    for key in &keys.all {
        call.key(key);
    }
    call.arg(&keys.channel).arg(format!("{:016x}", fastrand::u64(..))).arg(MAX_BANS);
    call
}
