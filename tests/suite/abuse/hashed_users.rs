//! `abuse.users: hashed | off`: no name of a user is written down, wherever users are.

use std::fs;

use serde_json::{Value, json};

use crate::harness::{
    Client, Config, Deployment, Origin, Tollgate, eventually, on_each_store, on_topologies, request,
};

on_each_store!(
    a_hash_stands_for_every_user,
    users_that_are_off_are_limited_and_banned_all_the_same,
    bans_by_name_are_bans_by_hash_once_users_are_hashed,
);
on_topologies!(shared [server] bans_of_a_plain_instance_hold_there_and_at_a_hashed_one);

/// In each name, and in nothing else.
const NAME: &str = "-s3cret-name";
/// printf acme-s3cret-name | openssl dgst -sha256 -hmac s3cret
const ACME: &str = "hmac:e63cd7d681c64ed4";

const RULES: &str = "
user: [{ header: x-user-id }]
trusted_proxies: [127.0.0.1]
access_log: { format: json, to: stdout }
policies:
  per-user: { algorithm: sliding_log, key: user, limit: 3/1h, overrides: [{ user: someone-else, limit: 9/1h }] }
  per-pair: { algorithm: fixed_window, key: ip+user, limit: 90/1h }
  inspect: { algorithm: metadata_list, key: ip, limit: 90/1h }
  users: { algorithm: distinct, key: ip, value: user, limit: 90/1h }
bans:
  hammering: { key: user, after: 5/10s, for: 1h }
";
const POLICIES: &str = "per-user, per-pair, inspect, users";

const HASHED: &str = "abuse: { users: hashed, secret: s3cret }\n";
const OFF: &str = "abuse: { users: off }\n";

fn config(origin: &Origin, redis: Option<&Deployment>, abuse: &str) -> Config {
    let store = redis.map_or(String::new(), |redis| {
        format!("store: {{ redis: {{ {}, timeout: 5s }} }}\n", redis.settings())
    });
    Config::new(&[origin.address], &format!("{RULES}{store}{abuse}")).with_policy(POLICIES)
}

fn status(tollgate: &Tollgate, user: &str) -> u16 {
    let fields = [("x-forwarded-for", "203.0.113.7"), ("x-user-id", &format!("{user}{NAME}"))];
    Client::connect(tollgate.address).request("GET", "/a", &fields, b"").status
}

fn bans(tollgate: &Tollgate) -> Vec<String> {
    let bans = tollgate.admin("GET", "/v1/bans").json();
    bans["bans"].as_array().unwrap().iter().map(|ban| ban["key"].as_str().unwrap().to_owned()).collect()
}

/// All that Redis holds, each key on a line with all of its value.
fn dump(redis: &Deployment) -> String {
    let read = |key: String| {
        let value = match redis.cli(&["type", &key]).as_str() {
            "string" => redis.cli(&["get", &key]),
            "list" => redis.cli(&["lrange", &key, "0", "-1"]),
            "hash" => redis.cli(&["hgetall", &key]),
            "set" => redis.cli(&["smembers", &key]),
            "zset" => redis.cli(&["zrange", &key, "0", "-1", "withscores"]),
            "none" => String::new(),
            other => panic!("{key} is a {other}"),
        };
        format!("{key}: {}\n", value.replace('\n', " "))
    };
    redis.keys().into_iter().map(read).collect()
}

/// Everything that an operator, or a reader of the logs or of Redis, can see.
fn all_that_is_shown(tollgate: &Tollgate, redis: Option<&Deployment>) -> String {
    let mut shown = tollgate.log().join("\n") + &tollgate.stdout().join("\n");
    for path in [
        "/v1/bans",
        "/v1/audit?limit=1000",
        "/v1/blocked",
        "/v1/blocked/203.0.113.7",
        "/v1/status",
        "/metrics",
        "/",
        "/bans",
        "/audit",
        "/blocked",
        "/blocked/203.0.113.7",
    ] {
        shown += &tollgate.admin("GET", path).text();
    }
    shown += &redis.map(dump).unwrap_or_default();
    shown
}

#[track_caller]
fn shows_no_name(shown: &str) {
    let lines: Vec<_> = shown.lines().filter(|line| line.contains(NAME)).collect();
    assert!(lines.is_empty(), "{lines:#?}");
}

/// Has `user` denied by its own limit until the rule bans it.
#[track_caller]
fn hammer(tollgate: &Tollgate, user: &str) {
    eventually("the user is banned", || status(tollgate, user) == 403);
    eventually("it is recorded", || {
        let evidence = tollgate.admin("GET", "/v1/blocked/203.0.113.7").json();
        evidence["policies"].as_array().is_some_and(|policies| policies.contains(&json!("bans.hammering")))
    });
}

fn explained_keys(tollgate: &Tollgate, user: &str) -> Value {
    let headers = json!({"x-user-id": format!("{user}{NAME}"), "x-forwarded-for": "203.0.113.7"});
    let asked = json!({"url": "http://api.example.com/a", "headers": headers}).to_string();
    let fields = [("content-type", "application/json")];
    let explained = request(tollgate.admin, "POST", "/v1/explain", &fields, asked.as_bytes());
    shows_no_name(&explained.text());
    explained.json()
}

fn a_hash_stands_for_every_user(redis: Option<&Deployment>) {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(config(&origin, redis, HASHED));
    let mut events = Client::connect(tollgate.admin);
    events.send(format!("GET /v1/events HTTP/1.1\r\nhost: {}\r\n\r\n", tollgate.admin));
    assert_eq!(events.head().status, 200);
    assert_eq!([(); 4].map(|()| status(&tollgate, "acme")), [200, 200, 200, 429]);
    hammer(&tollgate, "acme");
    assert_eq!(bans(&tollgate), [format!("user:{ACME}")]);

    // Operators may write the name.
    let acme = format!("user:acme{NAME}");
    for key in [&acme, &format!("user:{ACME}")] {
        let limits = tollgate.admin("GET", &format!("/v1/limits?policy=per-user&key={key}")).json();
        assert_eq!(
            (&limits["limits"][0]["used"], &limits["limits"][0]["limit"]),
            (&json!(3), &json!(3)),
            "{limits}"
        );
    }
    let others = tollgate.admin("GET", "/v1/limits?policy=per-user&key=user:someone-else").json();
    assert_eq!(others["limits"][0]["limit"], 9, "{others}");
    for user in [format!("acme{NAME}"), ACME.to_owned()] {
        let user = tollgate.admin("GET", &format!("/v1/users/{user}")).json();
        assert_eq!((&user["user"], &user["addresses"][0]["address"]), (&json!(ACME), &json!("203.0.113.7")));
    }
    assert_eq!(tollgate.command(&["unban", &acme]).code, Some(0));
    assert_eq!(tollgate.admin("DELETE", &format!("/v1/limits?key={acme}")).status, 200);
    eventually("it is let through", || status(&tollgate, "acme") == 200);
    let banned = tollgate.command(&["ban", &acme, "--for", "1h"]);
    assert!(banned.stdout.starts_with(&format!("user:{ACME} is banned")), "{banned:?}");
    eventually("it is banned", || status(&tollgate, "acme") == 403);
    assert_eq!(status(&tollgate, "bob"), 200);

    let explained = explained_keys(&tollgate, "acme");
    assert_eq!((&explained["verdict"], &explained["user"]["user"]), (&json!("banned"), &json!(ACME)));
    assert_eq!(explained["checks"][0]["key"], format!("user:{ACME}"));

    let audit = tollgate.admin("GET", "/v1/audit").json();
    assert_eq!(
        (&audit["entries"][0]["action"], &audit["entries"][0]["target"]),
        (&json!("ban"), &json!(format!("user:{ACME}")))
    );
    let mut told = String::new();
    while told.matches("event: banned").count() < 2 {
        told += &String::from_utf8(events.chunk().unwrap().unwrap()).unwrap();
    }
    assert!(told.contains("event: lifted") && told.contains(ACME), "{told}");
    eventually("requests are logged", || {
        tollgate.stdout().iter().any(|line| line.contains(&format!("\"user\":\"{ACME}\"")))
    });
    let mut shown = String::new();
    eventually("all of it is shown", || {
        shown = all_that_is_shown(&tollgate, redis);
        // The limit itself, the list of who filled it, and the records.
        redis.is_none() || [":per-user:", ":inspect:", "{abuse}"].iter().all(|key| shown.contains(key))
    });
    assert!(shown.contains(ACME));
    shows_no_name(&(shown + &told));
}

fn users_that_are_off_are_limited_and_banned_all_the_same(redis: Option<&Deployment>) {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(config(&origin, redis, OFF));
    assert_eq!([(); 4].map(|()| status(&tollgate, "acme")), [200, 200, 200, 429]);
    assert_eq!(status(&tollgate, "bob"), 200);
    hammer(&tollgate, "acme");
    // A ban has to tell users apart, and nothing else does.
    let key = bans(&tollgate).remove(0);
    assert!(key.starts_with("user:hmac:"), "{key}");
    let audit = tollgate.admin("GET", "/v1/audit").json();
    assert_eq!(audit["entries"][0]["target"], "user:*");
    explained_keys(&tollgate, "acme");
    let evidence = tollgate.admin("GET", "/v1/blocked/203.0.113.7").json();
    assert!(
        evidence["records"].as_array().unwrap().iter().all(|record| record["user"].is_null()),
        "{evidence}"
    );
    assert!(tollgate.stdout().iter().all(|line| !line.contains("hmac:")));
    assert!(tollgate.log().iter().all(|line| !line.contains("hmac:")));
    shows_no_name(&all_that_is_shown(&tollgate, redis));
    assert_eq!(tollgate.command(&["unban", &format!("user:acme{NAME}")]).code, Some(0));
}

fn bans_by_name_are_bans_by_hash_once_users_are_hashed(redis: Option<&Deployment>) {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(config(&origin, redis, ""));
    hammer(&tollgate, "acme");
    assert_eq!(tollgate.command(&["ban", &format!("user:eve{NAME}"), "--for", "1h"]).code, Some(0));
    assert!(all_that_is_shown(&tollgate, redis).contains(NAME));
    let file = tollgate.directory().join("proxy.yaml");
    let yaml = fs::read_to_string(&file).unwrap();
    fs::write(&file, yaml + HASHED).unwrap();
    assert_eq!(tollgate.command(&["reload"]).code, Some(0));
    eventually("the bans name no user", || bans(&tollgate).iter().all(|key| key.starts_with("user:hmac:")));
    assert_eq!(
        [
            bans(&tollgate).len(),
            usize::from(status(&tollgate, "acme")),
            usize::from(status(&tollgate, "eve"))
        ],
        [2, 403, 403]
    );
    let shown = |path: &str| tollgate.admin("GET", path).text();
    for path in ["/v1/audit", "/v1/bans", "/v1/blocked/203.0.113.7", "/blocked/203.0.113.7", "/bans"] {
        shows_no_name(&shown(path));
    }
    let Some(redis) = redis else { return };
    eventually("Redis knows no ban by name", || {
        let bans = dump(redis);
        let bans: Vec<_> = bans.lines().filter(|line| line.contains("{bans}:")).collect();
        bans.iter().any(|line| line.contains(ACME)) && !bans.iter().any(|line| line.contains(NAME))
    });
    // One that starts now knows them, too.
    let other = Tollgate::start(config(&origin, Some(redis), HASHED));
    eventually("it has read them", || bans(&other).len() == 2);
    assert_eq!(status(&other, "acme"), 403);
}

fn bans_of_a_plain_instance_hold_there_and_at_a_hashed_one(redis: &Deployment) {
    let origin = Origin::ok();
    let plain = Tollgate::start(config(&origin, Some(redis), ""));
    let ban = |user: &str| {
        let banned = plain.command(&["ban", &format!("user:{user}{NAME}"), "--for", "1h"]);
        assert_eq!(banned.code, Some(0), "{banned:?}");
    };
    let lifted = |at: &Tollgate, user: &str| {
        assert_eq!(at.command(&["unban", &format!("user:{user}{NAME}")]).code, Some(0));
    };
    ban("before");
    let hashed = Tollgate::start(config(&origin, Some(redis), HASHED));
    ban("acme");
    for user in ["before", "acme"] {
        eventually("the ban holds at the hashed one", || status(&hashed, user) == 403);
    }
    let warns = |line: &String| line.contains("bans by name are kept for it");
    eventually("it is warned of", || hashed.log().iter().any(warns));
    // Its bans are read anew, and nothing of the plain one is gone.
    assert_eq!(["before", "acme"].map(|user| status(&plain, user)), [403, 403]);
    assert_eq!(bans(&hashed).iter().filter(|key| !key.starts_with("user:hmac:")).count(), 0);

    // A lift at either one is a lift at both.
    lifted(&plain, "acme");
    lifted(&hashed, "before");
    for user in ["before", "acme"] {
        for tollgate in [&plain, &hashed] {
            eventually("the ban is lifted", || status(tollgate, user) == 200);
        }
    }

    // Once all are alike, no name is left.
    ban("eve");
    let file = plain.directory().join("proxy.yaml");
    let yaml = fs::read_to_string(&file).unwrap();
    fs::write(&file, yaml + HASHED).unwrap();
    assert_eq!(plain.command(&["reload"]).code, Some(0));
    eventually("Redis knows no ban by name", || {
        // A lift names whom it has freed for a day.
        let is_of_ban = |line: &str| line.contains("{bans}:") && !line.contains("{bans}:lifts");
        !dump(redis).lines().any(|line| is_of_ban(line) && line.contains(NAME))
    });
    assert_eq!([&plain, &hashed].map(|tollgate| status(tollgate, "eve")), [403, 403]);
}
