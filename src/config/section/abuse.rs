//! `abuse` and `bans`: what is kept of limited clients, and who is shut out for being limited again and again.

use std::{sync::Arc, time::Duration};

use http::StatusCode;

use super::{
    policies::{exempt, reply},
    user::Known,
};
use crate::config::{
    model::{Abuse, BanKey, BanRule, DenialReply, Mode, Secret, Users},
    reader::{Cursor, Mapping},
    value::{Invalid, LONGEST_DURATION, choice, duration, factor, name_of_thing, percentage, rate},
};

/// The shortest ban.
const SHORTEST: Duration = Duration::from_secs(1);
/// How long a ban lasts at most, unless the first is longer.
const MAX: Duration = Duration::from_secs(24 * 60 * 60);
const FACTOR: f64 = 2.0;
const JITTER: f64 = 0.1;

const KEY: &str = "who is shut out: `key: ip`, or `key: user`";
const AFTER: &str = "how many denied requests in how long, such as `after: 20/1m`";
const FOR: &str = "how long the first ban lasts, such as `for: 5m`";

/// Reads all rules. None where one is wrong. `known`: what the configuration says of users and proxies.
pub(super) fn bans(value: Option<Cursor<'_>>, known: Known) -> Option<Vec<Arc<BanRule>>> {
    let mut all = Vec::new();
    for (place, name, value) in value.and_then(Cursor::named).unwrap_or_default() {
        if let Err(invalid) = name_of_thing(name) {
            value.report_at(place, format!("`{name}` {}", invalid.what), invalid.help(false));
        }
        all.push(value.mapping().and_then(|at| rule(name, at, known)).map(Arc::new));
    }
    all.into_iter().collect()
}

fn rule(name: &str, mut at: Mapping<'_>, known: Known) -> Option<BanRule> {
    let key = at.require("key", KEY).and_then(|value| key(value, known));
    let after = at.require("after", AFTER).and_then(|value| value.parse(rate));
    let first_duration =
        at.require("for", FOR).and_then(|value| value.parse(duration(SHORTEST..=LONGEST_DURATION)));
    let factor = at.parse_or("factor", FACTOR, factor);
    let jitter = at.parse_or("jitter", JITTER, jitter);
    let max = max(&mut at, first_duration);
    let mode = choice(&[("enforce", Mode::Enforce), ("shadow", Mode::Shadow)]);
    let mode = at.parse_or("mode", Mode::Enforce, mode);
    let exempt = exempt(at.take("exempt"), known);
    let told = at.take("reply").map(|value| reply(value, StatusCode::FORBIDDEN));
    at.finish();
    let default = DenialReply { status: StatusCode::FORBIDDEN, headers: Vec::new(), body: None };
    Some(BanRule {
        name: name.to_owned(),
        key: key?,
        after: after?,
        first_duration: first_duration?,
        factor,
        jitter,
        max,
        mode,
        exempt,
        reply: told.unwrap_or(Some(default))?,
    })
}

fn key(value: Cursor<'_>, known: Known) -> Option<BanKey> {
    let key = value.parse(choice(&[("ip", BanKey::Ip), ("user", BanKey::User)]))?;
    if key == BanKey::User && !known.users {
        let help = "say where the user ID comes from, in `user` at the top level";
        value.report("no request has a user as long as `user` is not configured", help.to_owned());
    }
    Some(key)
}

/// At most half, so that the next ban of a ladder is rarely shorter than the one before.
fn jitter(text: &str) -> Result<f64, Invalid> {
    let share = percentage(text)?;
    match share <= 0.5 {
        true => Ok(share),
        false => Err(Invalid::new("is too large").form("from 0% to 50%")),
    }
}

fn max(at: &mut Mapping<'_>, first_duration: Option<Duration>) -> Duration {
    let default = first_duration.map_or(MAX, |first_duration| first_duration.max(MAX));
    let Some(value) = at.take("max") else { return default };
    let Some(max) = value.parse(duration(SHORTEST..=LONGEST_DURATION)) else { return default };
    if first_duration.is_some_and(|first_duration| max < first_duration) {
        value.report("no ban would last as long as `for` says", "`max` is at least `for`".to_owned());
    }
    max
}

pub(super) fn abuse(value: Option<Cursor<'_>>) -> Abuse {
    let default = Abuse { retain: Duration::from_secs(24 * 60 * 60), users: Users::Plain, secret: None };
    let Some(mut at) = value.and_then(Cursor::mapping) else { return default };
    let retain = at.parse_or("retain", default.retain, duration(Duration::from_secs(1)..=LONGEST_DURATION));
    let written = at.take("users");
    let words = [("plain", Users::Plain), ("hashed", Users::Hashed), ("off", Users::Off)];
    let users = written.and_then(|value| value.parse(choice(&words))).unwrap_or(default.users);
    let secret = at.take("secret").map(|value| value.parse_secret(|text| Ok(text.to_owned())));
    at.finish();
    // One that is wrong was reported as such; it isn't missing as well.
    let is_missing = secret.as_ref().is_none_or(|secret| secret.as_deref() == Some(""));
    if let Some(value) = written.filter(|_| users == Users::Hashed && is_missing) {
        let help = "set `secret`, to the same on every instance".to_owned();
        value.report("there is no secret to hash users by", help);
    }
    let secret = secret.flatten().filter(|secret| !secret.is_empty()).map(Secret::new);
    Abuse { retain, users, secret }
}
