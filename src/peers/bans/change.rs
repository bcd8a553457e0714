//! Changes of bans as scripts tell them, and bans as they are written down. All of it comes from outside: what no instance
//! writes is not read.

use serde::{Deserialize, Serialize};

use crate::abuse::bans::{Ban, Change, Key};

/// Bytes of a reason, and of who gave a ban. More than any instance writes.
const LONGEST: usize = 1_024;
/// 366 days, in microseconds, and a little for jitter in clocks.
const LASTS: i64 = 367 * 86_400 * 1_000_000;

/// How far something has come: the epoch, which is new when all was lost, and the number of the last change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) epoch: String,
    pub(super) n: u64,
}

/// What is told of a ban beside its times.
#[derive(Debug, Serialize, Deserialize)]
struct Told {
    reason: String,
    by: String,
}

/// What is told of a ban, as JSON.
pub(super) fn told(ban: &Ban) -> String {
    json(&ban.reason, &ban.by)
}

/// Likewise before there is one.
pub(super) fn json(reason: &str, by: &str) -> String {
    let told = Told { reason: reason.to_owned(), by: by.to_owned() };
    // Strings alone: there is nothing in them that JSON could not say.
    serde_json::to_string(&told).unwrap_or_default()
}

/// A change and its version. `now`: microseconds since the Unix epoch, by this instance's clock.
pub(super) fn read(message: &[u8], now: i64) -> Option<(Version, Change)> {
    // What stands in a text as an escape can't be borrowed.
    let parts: Vec<String> = serde_json::from_slice(message).ok()?;
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let (&[epoch, n], rest) = parts.split_first_chunk()?;
    let version = Version { epoch: epoch.to_owned(), n: n.parse().ok()? };
    let change = match rest {
        ["banned", ban, lasts, ago, level, told] => {
            let (key, is_shadow) = id(ban)?;
            let until = now.checked_add(span(lasts)?)?;
            let since = now.checked_sub(span(ago)?)?;
            Change::Banned(ban_of(key, is_shadow, since, until, level, told)?)
        }
        ["dropped", ban] => {
            let (key, is_shadow) = id(ban)?;
            Change::Dropped { key, is_shadow }
        }
        ["lifted", key] => Change::Lifted(Key::read(key)?),
        _ => return None,
    };
    Some((version, change))
}

/// A ban as it is written down. `ends` and `redis_now`: by Redis' clock.
pub(super) fn read_ban(ban: &str, ends: i64, told: &str, redis_now: i64, now: i64) -> Option<Ban> {
    let (key, is_shadow) = id(ban)?;
    let mut parts = told.splitn(3, ' ');
    let (since, level, told) = (parts.next()?.parse::<i64>().ok()?, parts.next()?, parts.next()?);
    let (left, ago) = (ends.checked_sub(redis_now)?, redis_now.checked_sub(since)?);
    if !(0..=LASTS).contains(&left) || !(-LASTS..=LASTS).contains(&ago) {
        return None;
    }
    ban_of(key, is_shadow, now.checked_sub(ago)?, now.checked_add(left)?, level, told)
}

fn ban_of(key: Key, is_shadow: bool, since: i64, until: i64, level: &str, told: &str) -> Option<Ban> {
    let Told { reason, by } = serde_json::from_str(told).ok()?;
    let is_short = reason.len() <= LONGEST && by.len() <= LONGEST;
    is_short.then_some(Ban { key, since, until, reason, by, level: level.parse().ok()?, is_shadow })
}

/// How bans are told apart: by mode and key.
pub(super) fn mode(is_shadow: bool) -> &'static str {
    if is_shadow { "s" } else { "e" }
}

fn id(ban: &str) -> Option<(Key, bool)> {
    let (mode, key) = ban.split_once(' ')?;
    let is_shadow = match mode {
        "e" => false,
        "s" => true,
        _ => return None,
    };
    Some((Key::read(key)?, is_shadow))
}

fn span(text: &str) -> Option<i64> {
    text.parse().ok().filter(|span| (0..=LASTS).contains(span))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_783_080_001_000_000;

    #[test]
    fn changes_are_read_as_scripts_write_them() {
        let told = json("20 denied\nrequests", "bans.hammering").replace('"', "\\\"");
        let told = told.replace("\\n", "\\\\n");
        let message = format!(r#"["a1","7","banned","s user:é b","5000000","1","3","{told}"]"#);
        let (version, change) = read(message.as_bytes(), NOW).unwrap();
        assert_eq!(version, Version { epoch: "a1".into(), n: 7 });
        let Change::Banned(ban) = change else { panic!("{change:?}") };
        assert_eq!((ban.until, ban.since, ban.level, ban.is_shadow), (NOW + 5_000_000, NOW - 1, 3, true));
        assert_eq!((ban.reason.as_str(), ban.by.as_str()), ("20 denied\nrequests", "bans.hammering"));
        let lifted = read(br#"["a1","8","lifted","ip:10.0.0.0/8"]"#, NOW).unwrap().1;
        assert_eq!(lifted, Change::Lifted(Key::read("ip:10.0.0.0/8").unwrap()));
    }

    #[test]
    fn what_no_instance_writes_is_not_read() {
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
            assert_eq!(read(message.as_bytes(), NOW), None, "{message}");
        }
        let told = r#"5 1 {"reason":"","by":"x"}"#;
        assert!(read_ban("e ip:10.0.0.1", 20, told, 10, NOW).is_some());
        for (ban, ends, told) in
            [("e ip:10.0.0.1", i64::MAX, told), ("ip:10.0.0.1", 20, told), ("e ip:10.0.0.1", 20, "5 1")]
        {
            assert_eq!(read_ban(ban, ends, told, 10, NOW), None);
        }
    }
}
