//! The formats of bans in Redis and of the messages about their changes. All of it is untrusted: text that no instance
//! writes is ignored.

use serde::{Deserialize, Serialize};

use super::change_log::BanVersion;
use crate::abuse::bans::{Ban, BanChange, BannedKey};

/// Most bytes of a reason and of a ban's author; instances write less.
const MAX_TEXT: usize = 1_024;
/// 366 days, in microseconds, and a little for jitter in clocks.
const MAX_SPAN: i64 = 367 * 86_400 * 1_000_000;

/// The details of a ban other than its times and its level.
#[derive(Debug, Serialize, Deserialize)]
struct Description {
    reason: String,
    by: String,
}

/// The reason of a ban and its author, as JSON.
pub(super) fn describe(reason: &str, by: &str) -> String {
    let description = Description { reason: reason.to_owned(), by: by.to_owned() };
    // Strings always serialize.
    serde_json::to_string(&description).unwrap_or_default()
}

/// Parses a message: `[EPOCH, NUMBER, "banned", MODE KEY, LASTS, AGO, LEVEL, DESCRIPTION]`, `[EPOCH, NUMBER, "dropped",
/// MODE KEY]`, `[EPOCH, NUMBER, "lifted", KEY]` or `[EPOCH, NUMBER, "forgotten", KEY]`, all of them strings, times in microseconds. `now`: microseconds
/// since the Unix epoch, by this instance's clock.
pub(super) fn parse(message: &[u8], now: i64) -> Option<(BanVersion, BanChange)> {
    // Owned strings: a string with escapes can't be borrowed.
    let parts: Vec<String> = serde_json::from_slice(message).ok()?;
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let (&[epoch, number], rest) = parts.split_first_chunk()?;
    let version = BanVersion { epoch: epoch.to_owned(), number: number.parse().ok()? };
    let change = match rest {
        ["banned", ban, lasts, ago, level, description] => {
            let (key, is_shadow) = parse_id(ban)?;
            let until = now.checked_add(parse_span(lasts)?)?;
            let since = now.checked_sub(parse_span(ago)?)?;
            BanChange::Banned(ban_of(key, is_shadow, since, until, level, description)?)
        }
        ["dropped", ban] => {
            let (key, is_shadow) = parse_id(ban)?;
            BanChange::Dropped { key, is_shadow }
        }
        ["lifted", key] => BanChange::Lifted(BannedKey::from_canonical(key)?),
        ["forgotten", key] => BanChange::Forgotten(BannedKey::from_canonical(key)?),
        _ => return None,
    };
    Some((version, change))
}

/// Parses a stored ban: `MODE KEY`, and `SINCE LEVEL DESCRIPTION`. `ends`, SINCE and `redis_now` are by Redis' clock.
pub(super) fn parse_ban(ban: &str, ends: i64, details: &str, redis_now: i64, now: i64) -> Option<Ban> {
    let (key, is_shadow) = parse_id(ban)?;
    let mut parts = details.splitn(3, ' ');
    let (since, level, description) = (parts.next()?.parse::<i64>().ok()?, parts.next()?, parts.next()?);
    let (left, ago) = (ends.checked_sub(redis_now)?, redis_now.checked_sub(since)?);
    if !(0..=MAX_SPAN).contains(&left) || !(-MAX_SPAN..=MAX_SPAN).contains(&ago) {
        return None;
    }
    ban_of(key, is_shadow, now.checked_sub(ago)?, now.checked_add(left)?, level, description)
}

fn ban_of(
    key: BannedKey,
    is_shadow: bool,
    since: i64,
    until: i64,
    level: &str,
    description: &str,
) -> Option<Ban> {
    let Description { reason, by } = serde_json::from_str(description).ok()?;
    let is_short = reason.len() <= MAX_TEXT && by.len() <= MAX_TEXT;
    is_short.then_some(Ban { key, since, until, reason, by, level: level.parse().ok()?, is_shadow })
}

/// The mode of a ban. A ban is identified by its mode and its key.
pub(super) fn mode(is_shadow: bool) -> &'static str {
    if is_shadow { "s" } else { "e" }
}

fn parse_id(ban: &str) -> Option<(BannedKey, bool)> {
    let (mode, key) = ban.split_once(' ')?;
    let is_shadow = match mode {
        "e" => false,
        "s" => true,
        _ => return None,
    };
    Some((BannedKey::from_canonical(key)?, is_shadow))
}

fn parse_span(text: &str) -> Option<i64> {
    text.parse().ok().filter(|span| (0..=MAX_SPAN).contains(span))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_783_080_001_000_000;

    #[test]
    fn changes_are_read_as_scripts_write_them() {
        let description = describe("20 denied\nrequests", "bans.hammering").replace('"', "\\\"");
        let description = description.replace("\\n", "\\\\n");
        let message = format!(r#"["a1","7","banned","s user:é b","5000000","1","3","{description}"]"#);
        let (version, change) = parse(message.as_bytes(), NOW).unwrap();
        assert_eq!(version, BanVersion { epoch: "a1".into(), number: 7 });
        let BanChange::Banned(ban) = change else { panic!("{change:?}") };
        assert_eq!((ban.until, ban.since, ban.level, ban.is_shadow), (NOW + 5_000_000, NOW - 1, 3, true));
        assert_eq!((ban.reason.as_str(), ban.by.as_str()), ("20 denied\nrequests", "bans.hammering"));
        let lifted = parse(br#"["a1","8","lifted","ip:10.0.0.0/8"]"#, NOW).unwrap().1;
        assert_eq!(lifted, BanChange::Lifted(BannedKey::from_canonical("ip:10.0.0.0/8").unwrap()));
    }

    #[test]
    fn messages_that_no_instance_writes_are_not_read() {
        let good = r#"{\"reason\":\"\",\"by\":\"x\"}"#;
        for message in [
            "".to_owned(),
            "[]".to_owned(),
            r#"["a","1","lifted","ip:0.0.0.0/0"]"#.to_owned(),
            r#"["a","-1","lifted","ip:10.0.0.1"]"#.to_owned(),
            r#"["a","1","raised","ip:10.0.0.1"]"#.to_owned(),
            format!(r#"["a","1","banned","x ip:10.0.0.1","5","1","3","{good}"]"#),
            format!(r#"["a","1","banned","e ip:10.0.0.1","-5","1","3","{good}"]"#),
            format!(r#"["a","1","banned","e ip:10.0.0.1","9223372036854775807","1","3","{good}"]"#),
            format!(r#"["a","1","banned","e ip:10.0.0.1","5","1","3.5","{good}"]"#),
            r#"["a","1","banned","e ip:10.0.0.1","5","1","3","{}"]"#.to_owned(),
        ] {
            assert_eq!(parse(message.as_bytes(), NOW), None, "{message}");
        }
        let details = r#"5 1 {"reason":"","by":"x"}"#;
        assert!(parse_ban("e ip:10.0.0.1", 20, details, 10, NOW).is_some());
        for (ban, ends, details) in
            [("e ip:10.0.0.1", i64::MAX, details), ("ip:10.0.0.1", 20, details), ("e ip:10.0.0.1", 20, "5 1")]
        {
            assert_eq!(parse_ban(ban, ends, details, 10, NOW), None);
        }
    }
}
