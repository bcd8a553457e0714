use std::sync::Arc;

use super::*;
use crate::{
    config::model::{
        AccessLogFormat, Algorithm, BanKey, BanRule, DenialReply, KeyPart, KeyRecipe, Mode, Policy, Rate,
        Secret, Workers,
    },
    telemetry::testing,
};

fn rate(limit: u64, seconds: u64) -> Rate {
    Rate { limit, window: std::time::Duration::from_secs(seconds) }
}

/// What is told of `change`.
fn told(change: impl FnOnce(&mut Config)) -> (Vec<String>, Vec<String>) {
    let old = testing::config();
    let mut new = old.clone();
    change(&mut new);
    let difference = Difference::between(&old, new, true);
    (difference.changed, difference.needs_restart)
}

fn changed(change: impl FnOnce(&mut Config)) -> Vec<String> {
    let (changed, needs_restart) = told(change);
    assert!(needs_restart.is_empty(), "{needs_restart:?}");
    changed
}

fn policy(config: &mut Config) -> &mut Policy {
    Arc::make_mut(&mut config.policies[0])
}

#[test]
fn of_what_is_the_same_nothing_is_told() {
    assert_eq!(told(|_| ()), (Vec::new(), Vec::new()));
}

#[test]
fn of_a_policy_each_setting_is_told() {
    let name = testing::config().policies[0].name.clone();
    let limits = changed(|config| policy(config).tiers = vec![rate(20, 1), rate(7, 5_400)]);
    assert!(limits[0].starts_with(&format!("policy {name}: limits ")), "{limits:?}");
    assert!(limits[0].ends_with(" → 20/1s, 7/90m"), "{limits:?}");
    let several = changed(|config| {
        let policy = policy(config);
        policy.algorithm = Algorithm::Gcra { burst: 9, delay: std::time::Duration::from_millis(250) };
        policy.keys = vec![
            KeyRecipe(vec![KeyPart::Ip, KeyPart::Path]),
            KeyRecipe(vec![KeyPart::Header(http::HeaderName::from_static("x-key"))]),
        ];
        policy.mode = Mode::Shadow;
        policy.slice = 0.05;
        policy.preflight = true;
    });
    let ends = [
        " → gcra with burst 9 and delay 250ms",
        " → ip+path, header:x-key",
        ": mode enforce → shadow",
        ": preflight false → true",
        ": slice 0% → 5%",
    ];
    assert_eq!(several.len(), ends.len(), "{several:?}");
    for (line, end) in several.iter().zip(ends) {
        assert!(line.starts_with(&format!("policy {name}: ")) && line.ends_with(end), "{line}");
    }
}

#[test]
fn what_comes_and_what_goes_is_told_by_name() {
    let keys = vec![KeyRecipe(vec![KeyPart::Ip])];
    let added = Policy::new("login", Algorithm::SlidingLog, keys, vec![rate(1, 1)]);
    // Before the other: what has another index only has not changed.
    assert_eq!(
        changed(|config| {
            config.policies.insert(0, Arc::new(added));
            config
                .routes
                .iter_mut()
                .for_each(|route| route.policies.iter_mut().for_each(|index| *index += 1));
        }),
        ["policy login: added"]
    );
    let gone = changed(|config| {
        config.routes.clear();
        config.upstreams.clear();
    });
    assert_eq!(gone, ["upstream api: removed", "route all: removed"]);
}

#[test]
fn rules_of_bans_are_told() {
    let rule = |limit| {
        Arc::new(BanRule {
            name: "hammering".to_owned(),
            key: BanKey::Ip,
            after: rate(limit, 60),
            lasts: std::time::Duration::from_secs(60),
            factor: 2.0,
            jitter: 0.1,
            max: std::time::Duration::from_secs(3_600),
            mode: Mode::Enforce,
            exempt: Vec::new(),
            reply: DenialReply { status: http::StatusCode::FORBIDDEN, headers: Vec::new(), body: None },
        })
    };
    let mut old = testing::config();
    assert_eq!(changed(|config| config.bans.push(rule(5))), ["ban hammering: added"]);
    old.bans.push(rule(5));
    let new = Config { bans: vec![rule(6)], ..old.clone() };
    assert_eq!(Difference::between(&old, new, true).changed, ["ban hammering: after 5/1m → 6/1m"]);
}

#[test]
fn what_needs_a_restart_stays_as_it_was() {
    let old = testing::config();
    let mut new = old.clone();
    new.workers = Workers::Count(77);
    new.admin.token = Some(Secret::new("hush"));
    new.access_log.format = AccessLogFormat::Combined;
    new.client_limits.connections = 7;
    let Difference { in_force, changed, needs_restart } = Difference::between(&old, new.clone(), false);
    assert_eq!(changed, [format!("client_limits.connections: {} → 7", old.client_limits.connections)]);
    let workers = words::workers(&old.workers);
    assert_eq!(needs_restart[..2], ["admin.token: changed".to_owned(), format!("workers: {workers} → 77")]);
    assert_eq!((in_force.workers, &in_force.admin), (old.workers, &old.admin));
    assert_eq!(in_force.access_log, old.access_log, "nobody would write it");
    assert_eq!(in_force.client_limits.connections, 7);
    let told = Difference::between(&old, new, true).changed;
    assert!(
        old.access_log.format == AccessLogFormat::Combined
            || told.iter().any(|line| line.starts_with("access_log.format: "))
    );
}

#[test]
fn credentials_are_never_told() {
    for (url, shown) in [
        ("redis://me:pass@host:6379/1", "redis://***@host:6379/1"),
        ("redis://:p@ss@host", "redis://***@host"),
        ("rediss://host", "rediss://host"),
        ("unix:///run/redis.sock?db=1&pass=word", "unix:///run/redis.sock?***"),
    ] {
        assert_eq!(without_credentials(&Secret::new(url)), shown);
    }
}
