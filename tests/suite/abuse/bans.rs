//! Bans, by operators and by rules, in one process and on instances that share a Redis.

use std::{
    cell::Cell,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::harness::{
    Client, Config, Deployment, Origin, Redis, Relay, Reply, Servers, Tollgate, becomes, eventually,
    on_each_topology, on_own_servers, request,
};

on_each_topology!(
    a_ban_known_only_to_other_instances_is_lifted_and_reported,
    bans_are_shown_wherever_their_clients_are,
    repeat_offenders_are_banned_longer_each_time_with_redis,
    exactly_as_many_denials_as_the_rule_says_ban_for_about_as_long,
    a_ban_holds_on_every_instance_within_a_second_and_so_does_its_end,
    changes_out_of_order_cause_no_resync,
    invalid_data_in_redis_does_no_harm,
    made_up_users_push_out_no_change_by_an_operator_on_any_instance,
);
on_own_servers!(
    every_key_of_bans_in_redis_expires,
    bans_outlast_instances_and_redis,
    flushed_bans_are_restored_though_another_ban_comes_first,
    bans_lifted_while_redis_was_away_do_not_come_back,
    bans_made_after_the_last_save_are_restored_when_redis_comes_back,
    denials_counted_without_redis_count_when_it_is_back,
    a_hundred_thousand_bans_of_a_class_are_read_and_held,
);

/// Three a second of an address pass. A client that is denied five times within ten seconds is banned for two seconds at first.
const RULES: &str = "
user: [{ header: x-user-id }]
trusted_proxies: [127.0.0.1]
policies:
  per-ip: { algorithm: sliding_log, key: ip, limit: 3/1s }
";

const LADDER: &str = "
bans:
  hammering: { key: ip, after: 5/10s, for: 2s, factor: 3, jitter: 0%, exempt: [198.51.100.0/24] }
";

/// Besides, users are watched.
const WATCHED: &str = "
bans:
  hammering: { key: ip, after: 5/10s, for: 1s, exempt: [198.51.100.0/24] }
  watched: { key: user, after: 5/10s, for: 1h, mode: shadow }
";

fn instance(origin: &Origin, rest: &str) -> Tollgate {
    let rest = format!("{RULES}{rest}");
    Tollgate::start(Config::new(&[origin.address], &rest).with_policy("per-ip"))
}

/// The timeout is for a machine that does much else.
fn store(redis: &str) -> String {
    format!("store: {{ redis: {{ {redis}, timeout: 5s }} }}\n")
}

fn sharing(origin: &Origin, redis: &Deployment, rest: &str) -> Tollgate {
    instance(origin, &format!("{}{rest}", store(&redis.settings())))
}

fn ask(tollgate: &Tollgate, address: &str, user: &str) -> Reply {
    let fields = [("x-forwarded-for", address), ("x-user-id", user)];
    Client::connect(tollgate.address).request("GET", "/a", &fields, b"")
}

fn status(tollgate: &Tollgate, address: &str, user: &str) -> u16 {
    ask(tollgate, address, user).status
}

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

fn give(tollgate: &Tollgate, body: &Value) -> Reply {
    request(tollgate.admin, "POST", "/v1/bans", &JSON, body.to_string().as_bytes())
}

#[track_caller]
fn ban(tollgate: &Tollgate, key: &str) {
    let reply = give(tollgate, &json!({"key": key, "for": "1h", "reason": "abuse"}));
    assert_eq!(reply.status, 201, "{}", reply.text());
}

fn bans(tollgate: &Tollgate) -> Vec<Value> {
    tollgate.admin("GET", "/v1/bans").json()["bans"].as_array().unwrap().clone()
}

fn keys(tollgate: &Tollgate) -> Vec<String> {
    bans(tollgate).iter().map(|ban| ban["key"].as_str().unwrap().to_owned()).collect()
}

fn sorted_keys(tollgate: &Tollgate) -> Vec<String> {
    let mut keys = keys(tollgate);
    keys.sort();
    keys
}

fn actions(tollgate: &Tollgate) -> Vec<String> {
    let audit = tollgate.admin("GET", "/v1/audit").json();
    let entry = |entry: &Value| {
        format!("{} {}", entry["action"].as_str().unwrap(), entry["target"].as_str().unwrap())
    };
    audit["entries"].as_array().unwrap().iter().map(entry).collect()
}

/// Has an address denied until a rule bans it. The level of the ban.
#[track_caller]
fn hammer(tollgate: &Tollgate, address: &str) -> u64 {
    let key = format!("ip:{address}");
    let mut level = 0;
    eventually(&format!("{address} is banned"), || {
        status(tollgate, address, "ann");
        let found = bans(tollgate).into_iter().find(|ban| ban["key"] == *key && ban["mode"] == "enforce");
        level = found.map_or(0, |ban| ban["level"].as_u64().unwrap());
        level > 0
    });
    level
}

/// Each question takes longer than half a second allows for a few of them.
#[test]
fn instances_far_from_redis_share_bans_and_limited_clients() {
    const CLIENTS: u32 = 300;
    let (redis, origin) = (Redis::start(), Origin::ok());
    let far = |relay: &Relay| {
        instance(&origin, &format!("store: {{ redis: {{ url: \"{}\", timeout: 850ms }} }}", relay.url()))
    };
    let near = instance(&origin, &store(&format!("url: \"{}\"", redis.url())));
    ban(&near, "user:bob");
    eventually("Redis knows of it", || redis.keys().iter().any(|key| key == "ratelimit:{bans}:version"));
    let relay = Relay::to(redis.port);
    relay.delay(Duration::from_millis(400));
    let one = far(&relay);
    eventually("it is in touch", || one.has_logged(&["connected to Redis"]));
    eventually("it knows who is banned", || keys(&one) == ["user:bob"]);
    let mut connection = Client::connect(one.address);
    for n in 0..CLIENTS {
        let address = format!("10.7.{}.{}", n / 250, n % 250 + 1);
        let fields = [("x-forwarded-for", address.as_str()), ("x-user-id", "bob")];
        assert_eq!(connection.request("GET", "/a", &fields, b"").status, 403);
    }
    let shared = || near.admin("GET", "/v1/blocked?limit=1000").json()["blocked"].as_array().unwrap().len();
    eventually("all that were denied are known", || shared() == CLIENTS as usize);
    let failed = |line: &String| line.contains("Redis check failed") || line.contains("is unavailable");
    assert!(!one.log().iter().any(failed), "{:?}", one.log());
}

#[test]
fn a_rule_counts_the_denials_of_its_policies_alone() {
    let (origin, logins) =
        (Origin::ok(), Origin::saying("HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n"));
    let tollgate = Tollgate::start(Config::yaml(format!(
        "
trusted_proxies: [127.0.0.1]
user: [{{ header: x-user-id }}]
policies:
  plan: {{ algorithm: fixed_window, key: ip, limit: 2/1h }}
  failed-logins: {{ algorithm: sliding_window, key: [ip, user], limit: 2/1h, count: {{ statuses: [401] }} }}
bans:
  guessing: {{ key: ip, policies: [failed-logins], after: 3/1h, for: 1h }}
  watched: {{ key: user, policies: [failed-logins], after: 3/1h, for: 1h, mode: shadow }}
upstreams:
  origin: {{ endpoints: [\"http://{}\"] }}
  logins: {{ endpoints: [\"http://{}\"] }}
routes:
  - {{ path: /login, upstream: logins, policies: [failed-logins] }}
  - {{ path: /*, upstream: origin, policies: [plan] }}
",
        origin.address, logins.address
    )));
    let ask = |path: &str, address: &str| {
        let fields = [("x-forwarded-for", address), ("x-user-id", "ann")];
        Client::connect(tollgate.address).request("GET", path, &fields, b"").status
    };
    let denied = |path: &str, address: &str| (0..12).filter(|_| ask(path, address) == 429).count();
    assert_eq!(denied("/", "203.0.113.7"), 10, "a customer who goes on after the plan is used up");
    // Denials are counted in their order: where these have banned, those before had their chance.
    (0..6).for_each(|_| assert!(ask("/login", "203.0.113.8") > 400));
    eventually("a client that guesses is banned", || keys(&tollgate).contains(&"ip:203.0.113.8".to_owned()));
    eventually("so is the user, in shadow", || keys(&tollgate).contains(&"user:ann".to_owned()));
    let bans = bans(&tollgate);
    assert_eq!(bans.len(), 2, "{bans:?}");
    for ban in bans {
        let rule = ban["by"].as_str().unwrap();
        let reason = format!("{rule}: 3 requests denied within 1h, the last by failed-logins");
        assert_eq!(ban["reason"], reason);
    }
}

#[test]
fn operators_ban_addresses_prefixes_and_users() {
    let origin = Origin::ok();
    let tollgate = instance(&origin, "");
    assert_eq!(status(&tollgate, "203.0.113.7", "ann"), 200);
    for key in ["ip:203.0.113.7", "ip:10.0.0.0/8", "ip:2001:db8::1", "user:a:b"] {
        ban(&tollgate, key);
    }
    for (address, user, expected) in [
        ("203.0.113.7", "ann", 403),
        ("203.0.113.8", "ann", 200),
        ("10.1.2.3", "ann", 403),
        ("11.1.2.3", "ann", 200),
        ("2001:db8::ffff", "ann", 403),
        ("2001:db8:0:1::1", "ann", 200),
        ("192.0.2.1", "a:b", 403),
        ("192.0.2.1", "a", 200),
    ] {
        assert_eq!(status(&tollgate, address, user), expected, "{address} {user}");
    }
    let denied = ask(&tollgate, "203.0.113.7", "ann");
    assert_eq!(denied.header("content-type"), Some("application/problem+json"));
    let retry_after: u64 = denied.header("retry-after").unwrap().parse().unwrap();
    assert!((3_500..=3_600).contains(&retry_after), "{retry_after}");
    let text = denied.text();
    assert!(text.contains("banned until 20") && !text.contains("abuse"), "{text}");
    becomes(5.0, || tollgate.metric("tollgate_ban_denials_total{ban=\"ban\",verdict=\"denied\"}"));
    becomes(4.0, || tollgate.metric("tollgate_bans{mode=\"enforce\"}"));

    let replaced = give(&tollgate, &json!({"key": "203.0.113.7", "for": "2h"}));
    assert_eq!((replaced.status, replaced.json()["reason"].as_str()), (200, Some("")));
    eventually("it is listed", || tollgate.admin("GET", "/v1/blocked/203.0.113.7").json()["denied"] != 0);
    let evidence = tollgate.admin("GET", "/v1/blocked/203.0.113.7").json();
    assert_eq!(evidence["policies"], json!(["ban"]));
    assert_eq!(evidence["bans"][0]["key"], "ip:203.0.113.7");
    assert_eq!(tollgate.admin("GET", "/v1/blocked?policy=ban").status, 200);

    let asked =
        json!({"url": "http://api.example.com/a", "headers": {"x-forwarded-for": "10.9.9.9"}}).to_string();
    let explained = request(tollgate.admin, "POST", "/v1/explain", &JSON, asked.as_bytes()).json();
    assert_eq!((&explained["verdict"], &explained["status"]), (&json!("banned"), &json!(403)), "{explained}");
    assert_eq!(explained["bans"][0]["key"], "ip:10.0.0.0/8");

    assert_eq!(tollgate.command(&["unban", "user:a:b"]).code, Some(0));
    assert_eq!(tollgate.command(&["unban", "user:a:b"]).code, Some(1));
    assert_eq!(status(&tollgate, "192.0.2.2", "a:b"), 200);
    let listed = tollgate.command(&["bans"]).stdout;
    assert!(listed.contains("ip:10.0.0.0/8") && !listed.contains("user:"), "{listed}");
    assert_eq!(actions(&tollgate)[..2], ["lift user:a%3Ab".to_owned(), "ban ip:203.0.113.7".to_owned()],);
}

#[test]
fn an_unblock_lifts_the_ban_of_the_address_and_names_that_of_its_prefix() {
    let origin = Origin::ok();
    let tollgate = instance(&origin, "");
    for key in ["ip:203.0.113.7", "ip:203.0.113.0/24"] {
        ban(&tollgate, key);
    }
    assert_eq!(status(&tollgate, "203.0.113.7", "ann"), 403);
    let unblocked = tollgate.admin("DELETE", "/v1/blocked/203.0.113.7").json();
    assert_eq!((&unblocked["bans_lifted"], &unblocked["other_keys"]), (&json!(1), &json!([])));
    assert_eq!(unblocked["still_banned"], json!(bans(&tollgate)));
    assert_eq!(keys(&tollgate), ["ip:203.0.113.0/24"]);
    assert_eq!(status(&tollgate, "203.0.113.7", "ann"), 403, "its prefix is banned");
    assert_eq!(actions(&tollgate)[0], "unblock 203.0.113.7");

    ban(&tollgate, "ip:203.0.113.7");
    let ended = tollgate.command(&["unblock", "203.0.113.7"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for sentence in [
        "203.0.113.7 is still banned, because ip:203.0.113.0/24 is banned until 20",
        "To lift that ban: tollgate unban ip:203.0.113.0/24",
        "Its own ban was lifted.",
    ] {
        assert!(ended.stdout.contains(sentence), "{}", ended.stdout);
    }
    assert!(!ended.stdout.contains("is unblocked"), "{}", ended.stdout);
    // This address has no ban of its own: nothing changes, and the ban of its prefix is named.
    let ended = tollgate.command(&["unblock", "203.0.113.8"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("it is banned because ip:203.0.113.0/24 is"), "{}", ended.stderr);
}

/// The entry of an address in the list.
fn listed(tollgate: &Tollgate, address: &str) -> Value {
    let list = tollgate.admin("GET", "/v1/blocked").json();
    let found = list["blocked"].as_array().unwrap().iter().find(|found| found["address"] == address);
    found.cloned().unwrap_or_default()
}

fn bans_are_shown_wherever_their_clients_are(redis: &Deployment) {
    let origin = Origin::ok();
    bans_are_shown(&sharing(&origin, redis, ""));
}

#[test]
fn bans_are_shown_wherever_their_clients_are_without_redis() {
    let origin = Origin::ok();
    bans_are_shown(&instance(&origin, ""));
}

/// Whether a text says that an hour is left, or little less, in the form of `pattern`.
fn is_an_hour(text: &str, pattern: &str) -> bool {
    ["1h 0m", "59m ", "1 h", "59 min"].iter().any(|left| {
        let (before, after) = pattern.split_once("{}").unwrap();
        text.contains(&format!("{before}{left}{after}"))
    })
}

/// Two addresses and a user are limited for a second, and then banned for an hour: one by itself, one by its prefix.
fn bans_are_shown(tollgate: &Tollgate) {
    for address in ["198.51.100.7", "203.0.113.7", "192.0.2.1"] {
        // It is so for a second at most: it may be over before it is listed, and then it has to be limited again.
        eventually("it is limited, and listed", || {
            status(tollgate, address, "ann") == 429 && listed(tollgate, address)["state"] == "limited"
        });
        assert_eq!(listed(tollgate, address)["banned_until"], Value::Null);
    }
    eventually("the limits are free again", || listed(tollgate, "192.0.2.1")["state"] == "free");
    let active = || {
        let list = tollgate.admin("GET", "/v1/blocked?active=true&sort=address").json();
        let address = |found: &Value| found["address"].as_str().unwrap().to_owned();
        list["blocked"].as_array().unwrap().iter().map(address).collect::<Vec<_>>()
    };
    assert_eq!(active(), Vec::<String>::new());
    for key in ["ip:198.51.100.7", "ip:203.0.113.0/24", "user:ann"] {
        ban(tollgate, key);
    }
    for (address, key) in [("198.51.100.7", "ip:198.51.100.7"), ("203.0.113.7", "ip:203.0.113.0/24")] {
        let evidence = tollgate.admin("GET", &format!("/v1/blocked/{address}")).json();
        let given = &evidence["bans"][0];
        assert_eq!((&given["key"], evidence["bans"].as_array().unwrap().len()), (&json!(key), 1));
        assert_eq!([&evidence["until"], &evidence["banned_until"]], [&given["until"]; 2], "{address}");
        assert_eq!(evidence["state"], "banned", "{address}");
        // By way of Redis, it may end a few milliseconds later.
        eventually("it is listed likewise", || {
            let (listed, bans) = (listed(tollgate, address), bans(tollgate));
            let given = bans.iter().find(|ban| ban["key"] == key).unwrap();
            [&listed["until"], &listed["banned_until"]] == [&given["until"]; 2] && listed["state"] == "banned"
        });
        assert_eq!(evidence["users"][0]["user"], "ann");
        assert!(evidence["users"][0]["banned_until"].is_string(), "{evidence}");
        let page = tollgate.command(&["blocked", address]).stdout;
        assert!(page.contains(": banned, ") && is_an_hour(&page, "time left  {}"), "{page}");
        assert!(page.contains(&format!("\n{key}")), "{page}");
        let page = tollgate.admin("GET", &format!("/blocked/{address}")).text();
        assert!(page.contains(">Banned<") && is_an_hour(&page, ">{}<"), "{page}");
    }
    assert_eq!(active(), ["198.51.100.7", "203.0.113.7"]);
    let list = tollgate.command(&["blocked"]).stdout;
    let line = |address: &str| list.lines().find(|line| line.starts_with(address)).unwrap().to_owned();
    for address in ["198.51.100.7", "203.0.113.7"] {
        assert!(line(address).contains("banned") && is_an_hour(&line(address), "  {}"), "{list}");
    }
    assert!(line("192.0.2.1").contains("free") && line("192.0.2.1").ends_with('-'), "{list}");
    for path in ["/", "/blocked"] {
        let page = tollgate.admin("GET", path).text();
        assert_eq!(page.matches(">Banned<").count(), 2, "{path}: {page}");
        assert!(is_an_hour(&page, ">{}<"), "{path}: {page}");
    }
    let top = tollgate.command(&["top"]).stdout;
    let banned = top.lines().filter(|line| line.contains("banned") && is_an_hour(line, "  {}")).count();
    assert_eq!(banned, 2, "{top}");

    let user = tollgate.admin("GET", "/v1/users/ann").json();
    assert_eq!(user["bans"][0]["key"], "user:ann");
    assert_eq!(user["bans"][0]["until"], user["banned_until"]);
    let addresses = user["addresses"].as_array().unwrap();
    let banned = addresses.iter().filter(|found| found["banned_until"].is_string()).count();
    assert_eq!((addresses.len(), banned), (3, 2), "{user}");
    let record = &user["records"][0];
    assert_eq!([&record["path"], &record["policy"]], [&json!("/a"), &json!("per-ip")]);
    let page = tollgate.admin("GET", "/users/ann").text();
    assert_eq!(page.matches(">Banned<").count(), 3, "the user and two addresses: {page}");
    assert!(page.contains("data-about=\"user:ann\""), "it can be lifted: {page}");

    // A lifted ban is gone everywhere at once.
    for key in ["ip:198.51.100.7", "ip:203.0.113.0/24", "user:ann"] {
        assert_eq!(tollgate.admin("DELETE", &format!("/v1/bans?key={key}")).status, 200);
    }
    for address in ["198.51.100.7", "203.0.113.7"] {
        let found = listed(tollgate, address);
        assert_eq!((&found["state"], &found["banned_until"]), (&json!("free"), &Value::Null));
    }
    assert_eq!(active(), Vec::<String>::new());
}

#[test]
fn a_user_who_is_banned_and_was_never_limited_is_shown() {
    let origin = Origin::ok();
    let tollgate = instance(&origin, "");
    assert_eq!(tollgate.admin("GET", "/v1/users/a:b").status, 404);
    ban(&tollgate, "user:a:b");
    let user = tollgate.admin("GET", "/v1/users/a:b").json();
    assert_eq!(user["bans"], json!(bans(&tollgate)));
    assert_eq!([&user["denied"], &user["addresses"], &user["records"]], [&json!(0), &json!([]), &json!([])]);
    let page = tollgate.admin("GET", "/users/a:b").text();
    assert!(page.contains(">Banned<") && page.contains("data-about=\"user:a%3Ab\""), "{page}");
    assert!(!page.contains("Not limited recently"), "{page}");
}

#[test]
fn the_limits_of_a_user_are_shown() {
    let origin = Origin::ok();
    let rest = "
user: [{ header: x-user-id, from: anyone }]
trusted_proxies: [127.0.0.1]
policies:
  each: { algorithm: sliding_log, key: user, limit: 2/1h }
  both: { algorithm: single_counter, key: ip+user, limit: 1/1h, mode: enforce }
";
    let tollgate = Tollgate::start(Config::new(&[origin.address], rest).with_policy("each, both"));
    let statuses =
        ["192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.3"].map(|from| status(&tollgate, from, "a b+c"));
    assert_eq!(statuses, [200, 429, 200, 429]);
    let mut limits = Value::Null;
    eventually("all its limits are known", || {
        limits = tollgate.admin("GET", "/v1/users/a%20b+c").json()["limits"].clone();
        limits.as_array().is_some_and(|limits| limits.len() == 2)
    });
    let shown = |limit: &Value| {
        [&limit["policy"], &limit["key"], &limit["used"], &limit["limit"]].map(Value::to_string)
    };
    let shown: Vec<_> = limits.as_array().unwrap().iter().map(shown).collect();
    assert_eq!(
        shown,
        [["\"each\"", "\"user:a b%2Bc\"", "2", "2"], ["\"both\"", "\"ip:192.0.2.1+user:a b%2Bc\"", "1", "1"],]
    );
}

#[test]
fn a_banned_address_that_was_never_denied_is_shown() {
    let origin = Origin::ok();
    let tollgate = instance(&origin, "");
    assert_eq!(tollgate.admin("GET", "/v1/blocked/203.0.113.7").status, 404);
    ban(&tollgate, "ip:203.0.113.0/24");
    let evidence = tollgate.admin("GET", "/v1/blocked/203.0.113.7").json();
    let [given] = &bans(&tollgate)[..] else { panic!("one was given") };
    assert_eq!(evidence["bans"], json!([given]));
    assert_eq!([&evidence["first"], &evidence["last"]], [&given["since"]; 2]);
    assert_eq!(evidence["until"], given["until"]);
    assert_eq!([&evidence["denied"], &evidence["distinct_users"]], [0, 0]);
    assert_eq!((&evidence["hint"], &evidence["records"]), (&json!("unknown"), &json!([])));
    assert_eq!(tollgate.admin("GET", "/v1/blocked/203.0.114.7").status, 404);
}

fn a_ban_known_only_to_other_instances_is_lifted_and_reported(redis: &Deployment) {
    let origin = Origin::ok();
    let tollgate = sharing(&origin, redis, "");
    ban(&tollgate, "user:first");
    eventually("Redis knows of bans", || redis.keys().iter().any(|key| key == "ratelimit:{bans}:version"));
    // Stored in Redis, but not published yet.
    for key in ["user:ann", "ip:203.0.113.7"] {
        let id = format!("e {key}");
        redis.cli(&["zadd", "ratelimit:{bans}:ends", "4000000000000000", &id]);
        redis.cli(&["hset", "ratelimit:{bans}:told", &id, "1 0 {\"reason\":\"\",\"by\":\"operator\"}"]);
    }
    redis.cli(&["zadd", "ratelimit:{bans}:ends", "1000000", "e user:over"]);
    assert_eq!(keys(&tollgate), ["user:first"]);
    assert_eq!(tollgate.admin("DELETE", "/v1/bans?key=user:ann").json()["bans_lifted"], 1);
    assert_eq!(tollgate.admin("DELETE", "/v1/blocked/203.0.113.7").json()["bans_lifted"], 1);
    assert_eq!(tollgate.admin("DELETE", "/v1/bans?key=user:over").status, 404);
    eventually("they are gone", || redis.cli(&["zcard", "ratelimit:{bans}:ends"]) == "1");
    assert_eq!(actions(&tollgate)[..2], ["unblock 203.0.113.7".to_owned(), "lift user:ann".to_owned()]);
}

#[test]
fn invalid_bans_are_refused() {
    let origin = Origin::ok();
    let tollgate = instance(&origin, "");
    for (field, value) in [
        ("key", json!("ip:0.0.0.0/0")),
        ("key", json!("ip:::/0")),
        ("key", json!("ip:10.0.0.1/8")),
        ("key", json!("acme")),
        ("key", json!(7)),
        ("for", json!("0s")),
        ("for", json!("367d")),
        ("for", json!("soon")),
        ("reason", json!("a".repeat(257))),
        ("reason", json!("a\nb")),
        ("since", json!("now")),
    ] {
        let mut body = json!({"key": "ip:203.0.113.7", "for": "1h", "reason": "abuse"});
        body[field] = value;
        let reply = give(&tollgate, &body);
        assert_eq!(reply.status, 400, "{body}: {}", reply.text());
        assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    }
    let reason = "é".repeat(256);
    assert_eq!(give(&tollgate, &json!({"key": "user:x", "for": "366d", "reason": reason})).status, 201);
    assert_eq!(keys(&tollgate), ["user:x"]);
    assert_eq!(tollgate.admin("DELETE", "/v1/bans?key=ip:203.0.113.7").status, 404);
    assert_eq!(tollgate.admin("DELETE", "/v1/bans").status, 400);
    assert_eq!(tollgate.admin("GET", "/v1/bans?limit=0").status, 400);
}

#[test]
fn a_ban_that_shuts_out_more_than_one_client_is_refused_without_force() {
    let origin = Origin::ok();
    let tollgate = instance(&origin, "");
    for (key, named) in [
        ("ip:0.0.0.0/1", vec!["one in 2 of all IPv4 addresses", "the trusted proxy 127.0.0.1/32"]),
        ("ip:128.0.0.0/1", vec!["one in 2 of all IPv4 addresses"]),
        ("2000::/3", vec!["536870912 IPv6 networks"]),
        ("127.0.0.0/8", vec!["this machine itself (127.0.0.1)", "the trusted proxy 127.0.0.1/32"]),
        ("::1", vec!["this machine itself (::1)"]),
    ] {
        let mut body = json!({"key": key, "for": "1h"});
        let refused = give(&tollgate, &body);
        assert_eq!(refused.status, 409, "{key}: {}", refused.text());
        assert_eq!(refused.header("content-type"), Some("application/problem+json"));
        let problem = refused.json();
        assert_eq!(problem["type"], "urn:tollgate:problem:far-reaching-ban");
        for named in named {
            assert!(problem["detail"].as_str().unwrap().contains(named), "{problem}");
            assert!(problem["shuts_out"].to_string().contains(named), "{problem}");
        }
        let command = tollgate.command(&["ban", key, "--for", "1h"]);
        assert_eq!(command.code, Some(1));
        let stderr = &command.stderr;
        assert!(stderr.contains("would shut out") && stderr.contains("--force"), "{stderr}");
        assert_eq!(keys(&tollgate), [""; 0]);
        body["force"] = json!(true);
        assert_eq!(give(&tollgate, &body).status, 201);
        assert_eq!(tollgate.command(&["ban", key, "--for", "2h", "--force"]).code, Some(0));
        assert_eq!(tollgate.command(&["unban", key]).code, Some(0));
    }
    for key in ["203.0.0.0/8", "2001:db8::/32", "user:ann"] {
        ban(&tollgate, key);
    }
}

#[test]
fn operators_do_not_lock_themselves_out_by_mistake() {
    let origin = Origin::ok();
    let tollgate = instance(&origin, "");
    let ban_from = |address: &str| {
        let body = json!({"key": "127.0.0.8/29", "for": "1h"}).to_string();
        let mut operator = Client::connect_from(address.parse().unwrap(), tollgate.admin);
        operator.request("POST", "/v1/bans", &JSON, body.as_bytes())
    };
    let refused = ban_from("127.0.0.9");
    assert_eq!(refused.status, 409);
    assert_eq!(refused.json()["shuts_out"], json!(["your own address 127.0.0.9"]));
    assert_eq!(ban_from("127.0.0.20").status, 201);
}

/// Waits until the ban of an address that is banned ends, neither earlier than is said nor much later. How many seconds it
/// lasts by what is said.
#[track_caller]
fn ends(tollgate: &Tollgate, address: &str) -> i64 {
    let key = format!("ip:{address}");
    let ban = bans(tollgate).into_iter().find(|ban| ban["key"] == *key).expect("it is banned");
    let [since, until] = ["since", "until"].map(|at| time(&ban[at]));
    eventually("the ban ends", || status(tollgate, address, "ann") != 403);
    let now = jiff::Timestamp::now().as_millisecond();
    assert!((until - 100..until + 10_000).contains(&now), "{now}: {ban}");
    (until - since + 500) / 1_000
}

fn time(time: &Value) -> i64 {
    time.as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_millisecond()
}

fn climbs(tollgate: &Tollgate) {
    assert_eq!(hammer(tollgate, "203.0.113.7"), 1);
    let denied = ask(tollgate, "203.0.113.7", "ann");
    assert_eq!(denied.status, 403, "{}", denied.text());
    assert_eq!(ends(tollgate, "203.0.113.7"), 2);
    assert_eq!(hammer(tollgate, "203.0.113.7"), 2);
    assert_eq!(ends(tollgate, "203.0.113.7"), 6);
    let list = tollgate.admin("GET", "/v1/blocked?policy=bans.hammering").json();
    assert_eq!(list["blocked"][0]["address"], "203.0.113.7");
    let issued = tollgate.metric("tollgate_bans_issued_total{ban=\"bans.hammering\"}");
    assert!(issued >= 2.0, "{issued}");
    assert!(actions(tollgate).contains(&"ban ip:203.0.113.7".to_owned()));

    // Lifting forgets the level.
    hammer(tollgate, "203.0.113.7");
    assert_eq!(tollgate.admin("DELETE", "/v1/blocked/203.0.113.7").json()["bans_lifted"], 1);
    assert_eq!(hammer(tollgate, "203.0.113.7"), 1);
}

#[test]
fn repeat_offenders_are_banned_longer_each_time() {
    let origin = Origin::ok();
    climbs(&instance(&origin, LADDER));
}

fn repeat_offenders_are_banned_longer_each_time_with_redis(redis: &Deployment) {
    let origin = Origin::ok();
    let tollgate = sharing(&origin, redis, LADDER);
    eventually("it is in touch", || tollgate.has_logged(&["connected to Redis"]));
    climbs(&tollgate);
    assert!(redis.keys().iter().any(|key| key == "ratelimit:{bans}:ladders"), "{:?}", redis.keys());
}

/// One request of an address passes, and five that are denied ban it for about a hundred seconds.
const STRICT: &str = "
trusted_proxies: [127.0.0.1]
policies:
  strict: { algorithm: single_counter, key: ip, limit: 1/1h }
bans:
  hammering: { key: ip, after: 5/1h, for: 100s, jitter: 50% }
";

fn strict(origin: &Origin, rest: &str) -> Tollgate {
    Tollgate::start(Config::new(&[origin.address], &format!("{STRICT}{rest}")).with_policy("strict"))
}

fn counts(tollgate: &Tollgate) {
    let is_banned = |address: &str| keys(tollgate).contains(&format!("ip:{address}"));
    let deny = |address: &str, times: u8| (0..times).for_each(|_| drop(ask(tollgate, address, "")));
    deny("203.0.113.7", 1 + 4);
    // A client that is denied later is banned later.
    deny("203.0.113.8", 1 + 5);
    eventually("five denials ban", || is_banned("203.0.113.8"));
    deny("203.0.113.9", 1 + 5);
    eventually("they do again", || is_banned("203.0.113.9"));
    assert!(!is_banned("203.0.113.7"), "four do not");
    deny("203.0.113.7", 1);
    eventually("the fifth does", || is_banned("203.0.113.7"));

    let others: Vec<_> = (1..=20).map(|n| format!("198.51.100.{n}")).collect();
    others.iter().for_each(|address| deny(address, 6));
    eventually("all are banned", || others.iter().all(|address| is_banned(address)));
    let given = bans(tollgate);
    let given = given.iter().filter(|ban| ban["by"] == "bans.hammering");
    let lasts: Vec<_> = given.map(|ban| time(&ban["until"]) - time(&ban["since"])).collect();
    assert!(lasts.iter().all(|lasts| (49_000..=151_000).contains(lasts)), "{lasts:?}");
    assert!(lasts.iter().max().unwrap() - lasts.iter().min().unwrap() > 10_000, "{lasts:?}");
}

fn exactly_as_many_denials_as_the_rule_says_ban_for_about_as_long(redis: &Deployment) {
    let origin = Origin::ok();
    counts(&strict(&origin, ""));
    let shared = strict(&origin, &store(&redis.settings()));
    eventually("it is in touch", || shared.has_logged(&["connected to Redis"]));
    ban(&shared, "user:first");
    eventually("Redis knows of bans", || redis.keys().iter().any(|key| key == "ratelimit:{bans}:version"));
    counts(&shared);
    assert!(redis.cli(&["hlen", "ratelimit:{bans}:ladders"]).parse::<u32>().unwrap() >= 23);
}

/// While an instance says that it lives, which takes as long as Redis is far, it goes on to count with the others.
#[test]
fn a_slow_redis_counts_every_denial() {
    let (origin, redis) = (Origin::ok(), Redis::start());
    let relay = Relay::to(redis.port);
    let shared = strict(&origin, &store(&format!("url: \"{}\"", relay.url())));
    ban(&shared, "user:first");
    eventually("Redis knows of bans", || redis.keys().iter().any(|key| key == "ratelimit:{bans}:version"));
    relay.delay(Duration::from_millis(150));
    let ladders = || redis.cli(&["hlen", "ratelimit:{bans}:ladders"]).parse::<usize>().unwrap();
    for n in 1..=40 {
        (0..2).for_each(|_| drop(ask(&shared, &format!("198.51.100.{n}"), "")));
    }
    // Nothing was counted alone, to be counted again.
    eventually("all are counted", || ladders() == 40);
}

#[test]
fn exempt_clients_are_not_banned_and_shadow_bans_refuse_no_request() {
    let origin = Origin::ok();
    let tollgate = instance(&origin, WATCHED);
    for _ in 0..40 {
        status(&tollgate, "198.51.100.7", "bob");
    }
    eventually("the shadow rule bans", || keys(&tollgate) == ["user:bob"]);
    assert_eq!(bans(&tollgate)[0]["mode"], "shadow");
    eventually("the window has passed", || status(&tollgate, "198.51.100.7", "bob") == 200);
    let shadow = "tollgate_ban_denials_total{ban=\"bans.watched\",verdict=\"shadow_denied\"}";
    assert!(tollgate.metric(shadow) > 0.0);
    assert_eq!(tollgate.metric("tollgate_ban_denials_total{ban=\"bans.hammering\",verdict=\"denied\"}"), 0.0);
    becomes(1.0, || tollgate.metric("tollgate_bans{mode=\"shadow\"}"));
}

fn a_ban_holds_on_every_instance_within_a_second_and_so_does_its_end(redis: &Deployment) {
    let origin = Origin::ok();
    let [one, other] = [0, 1].map(|_| sharing(&origin, redis, LADDER));
    eventually("both are in touch", || {
        [&one, &other].iter().all(|at| at.has_logged(&["connected to Redis"]))
    });
    ban(&one, "ip:192.0.2.1");
    eventually("it is known", || keys(&other).len() == 1);
    let timed = |what: &str, change: &dyn Fn(), held: &dyn Fn() -> bool| {
        change();
        let begun = Instant::now();
        eventually(what, held);
        begun.elapsed()
    };
    // From another address each time: the rule would ban one that asks again and again.
    let next = Cell::new(0);
    let is_out = || {
        next.set(next.get() + 1);
        status(&other, &format!("203.0.113.{}", next.get() % 256), "ann") == 403
    };
    let lift = || assert_eq!(one.admin("DELETE", "/v1/bans?key=ip:203.0.113.0/24").status, 200);
    let unblock = || assert_eq!(other.admin("DELETE", "/v1/blocked/198.51.100.7").json()["bans_lifted"], 1);
    let mut took = [const { Vec::new() }; 3];
    for _ in 0..5 {
        took[0].push(timed("a ban holds elsewhere", &|| ban(&one, "ip:203.0.113.0/24"), &is_out));
        took[1].push(timed("a ban is lifted elsewhere", &lift, &|| !is_out()));
        ban(&other, "ip:198.51.100.7");
        eventually("it is known", || keys(&one).len() == 2);
        took[2].push(timed("an unblock lifts elsewhere", &unblock, &|| keys(&one) == ["ip:192.0.2.1"]));
    }
    eprintln!("a ban, its end and an unblock hold elsewhere after {took:?}");
    // A busy machine holds some of them up, but not all.
    assert!(took.iter().all(|took| took.iter().min().unwrap() < &Duration::from_secs(1)), "{took:?}");
    // Both count together: neither has seen enough alone.
    hammer(&one, "198.18.0.1");
    eventually("the rule's ban is known", || keys(&other).contains(&"ip:198.18.0.1".to_owned()));
    let issued = |tollgate: &Tollgate| tollgate.metric("tollgate_bans_issued_total{ban=\"bans.hammering\"}");
    assert_eq!(issued(&one) + issued(&other), 1.0, "it was given once");
    let mut expected = actions(&one);
    eventually("both show all changes", || {
        expected = actions(&one);
        expected.len() >= 5 && actions(&other) == expected
    });
}

/// Bans that every instance has forgotten leave Redis as well.
fn every_key_of_bans_in_redis_expires(redis: &Deployment) {
    let origin = Origin::ok();
    let tollgate = sharing(&origin, redis, "");
    ban(&tollgate, "ip:203.0.113.7");
    let script = "local found = redis.call('KEYS', '*{bans}*')
    for at, key in ipairs(found) do
        found[at] = key .. (redis.call('PTTL', key) > 0 and ' expires' or ' stays')
    end
    return table.concat(found, ', ')";
    let said = || redis.each(&["EVAL", script, "0"]).concat();
    eventually("the ban is in Redis", || said().contains("{bans}:version"));
    assert!(!said().contains("stays"), "{}", said());
}

/// Changes are published on one connection and answered on another, so either may come first.
fn changes_out_of_order_cause_no_resync(redis: &Deployment) {
    let origin = Origin::ok();
    let tollgate = sharing(&origin, redis, "");
    ban(&tollgate, "user:first");
    let version = "ratelimit:{bans}:version";
    eventually("Redis knows of it", || redis.cli(&["hget", version, "n"]) == "1");
    thread::sleep(Duration::from_secs(1));
    let seconds: u64 = redis.cli(&["time"]).lines().next().unwrap().parse().unwrap();
    let details = r#"{\"reason\":\"\",\"by\":\"operator\"}"#;
    // An instance that reads everything comes to know it.
    redis.cli(&["zadd", "ratelimit:{bans}:ends", &format!("{}000000", seconds + 3_600), "e user:hidden"]);
    let plain = details.replace('\\', "");
    redis.cli(&["hset", "ratelimit:{bans}:told", "e user:hidden", &format!("{seconds}000000 0 {plain}")]);
    let epoch = redis.cli(&["hget", version, "epoch"]);
    let message = |n: u8| {
        let change = format!(r#"["{epoch}","{n}","banned","e user:{n}","9000000000","0","0","{details}"]"#);
        format!("redis.call('PUBLISH', 'ratelimit:unblock', [==[{change}]==])\n")
    };
    let later = [message(3), message(4), message(2)].concat();
    redis.cli(&["eval", &format!("redis.call('HSET', '{version}', 'n', 4)\n{later}"), "1", version]);
    eventually("all three are known", || {
        ["user:2", "user:3", "user:4"].iter().all(|key| keys(&tollgate).contains(&(*key).to_owned()))
    });
    thread::sleep(Duration::from_secs(1));
    assert!(!keys(&tollgate).contains(&"user:hidden".to_owned()));
    // A change that is never published is found all the same.
    redis.cli(&["hset", version, "n", "5"]);
    eventually("all was read", || keys(&tollgate).contains(&"user:hidden".to_owned()));
}

fn bans_outlast_instances_and_redis(redis: &mut Deployment) {
    let origin = Origin::ok();
    let [one, other] = [0, 1].map(|_| sharing(&origin, redis, LADDER));
    ban(&one, "ip:203.0.113.7");
    eventually("it is known", || keys(&other).len() == 1);
    eventually("so is who gave it", || actions(&other) == ["ban ip:203.0.113.7"]);
    drop((one, other));
    let [one, other] = [0, 1].map(|_| sharing(&origin, redis, LADDER));
    for tollgate in [&one, &other] {
        eventually("it is known again", || keys(tollgate) == ["ip:203.0.113.7"]);
        eventually("so is who gave it", || actions(tollgate) == ["ban ip:203.0.113.7"]);
    }

    redis.kill();
    assert_eq!(status(&one, "203.0.113.7", "ann"), 403);
    ban(&one, "ip:203.0.113.8");
    assert_eq!(status(&one, "203.0.113.8", "ann"), 403);
    hammer(&other, "198.18.0.1");
    assert_eq!(one.admin("DELETE", "/v1/bans?key=ip:203.0.113.7").status, 200);
    // It comes back empty.
    redis.restart();
    eventually("changes made meanwhile are published", || {
        [&one, &other].iter().all(|at| keys(at).contains(&"ip:203.0.113.8".to_owned()))
    });
    eventually("both agree", || keys(&one) == keys(&other));
}

#[test]
fn an_unblock_that_redis_has_no_memory_for_lifts_the_ban_and_is_audited() {
    let origin = Origin::ok();
    let redis = Redis::with(&["--maxmemory", "100mb", "--maxmemory-policy", "noeviction"]);
    let redis = Deployment::from(Servers::Server(redis));
    let tollgate = sharing(&origin, &redis, "");
    while status(&tollgate, "203.0.113.7", "ann") == 200 {}
    ban(&tollgate, "ip:203.0.113.7");
    eventually("Redis has it", || redis.keys().iter().any(|key| key == "ratelimit:{bans}:ends"));
    assert_eq!(redis.cli(&["set", "filler", &"x".repeat(100_000)]), "OK");
    assert_eq!(redis.cli(&["config", "set", "maxmemory", "100kb"]), "OK");
    let reply = tollgate.admin("DELETE", "/v1/blocked/203.0.113.7");
    assert!(reply.status == 503 && reply.text().contains("OOM"), "{reply:?}");
    assert_eq!(keys(&tollgate), [""; 0]);
    assert!(actions(&tollgate).contains(&"unblock 203.0.113.7".to_owned()), "{:?}", actions(&tollgate));
}

/// Though a change begins the count of changes anew before the loss is noticed.
fn flushed_bans_are_restored_though_another_ban_comes_first(redis: &mut Deployment) {
    let origin = Origin::ok();
    let tollgate = sharing(&origin, redis, "");
    let in_redis = || redis.each(&["zrange", "ratelimit:{bans}:ends", "0", "-1"]).concat();
    ban(&tollgate, "ip:203.0.113.7");
    eventually("Redis has it", || in_redis().contains("203.0.113.7"));
    for round in 0..4 {
        redis.each(&["flushall"]);
        ban(&tollgate, &format!("ip:203.0.113.{}", 10 + round));
        eventually("it is restored", || in_redis().contains("ip:203.0.113.7"));
        assert!(keys(&tollgate).contains(&"ip:203.0.113.7".to_owned()));
        eventually("so are the others", || in_redis().matches("ip:").count() == 2 + round);
    }
}

/// Though another instance knows them still, and Redis nothing.
fn bans_lifted_while_redis_was_away_do_not_come_back(redis: &mut Deployment) {
    let origin = Origin::ok();
    let [one, other] = [0, 1].map(|_| sharing(&origin, redis, ""));
    let in_redis = |redis: &Deployment| redis.each(&["zrange", "ratelimit:{bans}:ends", "0", "-1"]).concat();
    ban(&one, "ip:203.0.113.7");
    ban(&one, "ip:203.0.113.8");
    eventually("they are known", || keys(&other).len() == 2);
    // The other one restores its bans only after this one has.
    other.signal("STOP");
    redis.kill();
    assert_eq!(one.admin("DELETE", "/v1/bans?key=ip:203.0.113.7").status, 200);
    redis.restart();
    eventually("one ban is restored", || in_redis(redis).contains("203.0.113.8"));
    other.signal("CONT");
    let restores = || other.has_logged(&["this instance restores those that it knows"]);
    eventually("the other one restores what it knows", restores);
    // Its next change comes after that.
    ban(&other, "ip:203.0.113.9");
    eventually("it is known", || keys(&one).contains(&"ip:203.0.113.9".to_owned()));
    for tollgate in [&one, &other] {
        let log = tollgate.log();
        assert!(!tollgate.has_logged(&["this instance tells it the bans"]), "one event: {log:#?}");
    }
    assert!(!in_redis(redis).contains("203.0.113.7"));
    for tollgate in [&one, &other] {
        eventually("the lifted one is gone", || {
            sorted_keys(tollgate) == ["ip:203.0.113.8", "ip:203.0.113.9"]
        });
    }
}

/// Redis comes back from a file that has the first bans alone, and gets new ones before it gets those it lost.
fn bans_made_after_the_last_save_are_restored_when_redis_comes_back(redis: &mut Deployment) {
    let origin = Origin::ok();
    let [one, other] = [0, 1].map(|_| sharing(&origin, redis, ""));
    let replace = |tollgate: &Tollgate, duration: &str| {
        give(tollgate, &json!({"key": "ip:203.0.113.9", "for": duration})).status
    };
    ban(&one, "ip:203.0.113.1");
    ban(&one, "ip:203.0.113.8");
    assert_eq!(replace(&one, "9h"), 201);
    eventually("they are known", || keys(&other).len() == 3);
    redis.each(&["save"]);
    ban(&one, "ip:203.0.113.2");
    assert_eq!(one.admin("DELETE", "/v1/bans?key=ip:203.0.113.8").status, 200);
    assert_eq!(replace(&one, "2h"), 200);
    let known = ["ip:203.0.113.1", "ip:203.0.113.2", "ip:203.0.113.9"];
    eventually("the changes are known", || sorted_keys(&other) == known);
    redis.kill();
    // As many as Redis has lost, so that its number of changes is what it was.
    for n in 3..7 {
        ban(if n < 5 { &one } else { &other }, &format!("ip:203.0.113.{n}"));
    }
    redis.restart();
    let all = [1, 2, 3, 4, 5, 6, 9].map(|n| format!("ip:203.0.113.{n}"));
    let in_redis = || redis.each(&["zrange", "ratelimit:{bans}:ends", "0", "-1"]).concat();
    eventually("Redis has all of them", || all.iter().all(|key| in_redis().contains(key)));
    let later = sharing(&origin, redis, "");
    for tollgate in [&one, &other, &later] {
        eventually("all bans are known everywhere, and what was lifted is not", || {
            sorted_keys(tollgate) == all
        });
        let bans = bans(tollgate);
        let shortened = bans.iter().find(|ban| ban["key"] == "ip:203.0.113.9").unwrap();
        assert!(time(&shortened["until"]) - time(&shortened["since"]) < 7_300_000, "{shortened}");
    }
    let entry = |target: &str| actions(&later).contains(&target.to_owned());
    eventually("so are the changes that were made", || {
        entry("ban ip:203.0.113.2") && entry("lift ip:203.0.113.8") && entry("ban ip:203.0.113.6")
    });
}

fn denials_counted_without_redis_count_when_it_is_back(redis: &mut Deployment) {
    let origin = Origin::ok();
    let tollgate = strict(&origin, &store(&redis.settings()));
    ban(&tollgate, "user:first");
    eventually("Redis knows of bans", || redis.keys().iter().any(|key| key == "ratelimit:{bans}:version"));
    redis.kill();
    eventually("it is away", || tollgate.has_logged(&["is unavailable ("]));
    // Denied by the instance's own count.
    (0..1 + 4).for_each(|_| drop(ask(&tollgate, "203.0.113.7", "")));
    redis.restart();
    eventually("it is back", || redis.keys().iter().any(|key| key == "ratelimit:{bans}:ladders"));
    assert!(!keys(&tollgate).contains(&"ip:203.0.113.7".to_owned()), "four do not ban");
    eventually("its limits count in Redis", || {
        redis.keys().iter().any(|key| key.contains("{ip:198.51.100.9}"))
            || ask(&tollgate, "198.51.100.9", "").status != 200
    });
    // Redis counts from nothing: one passes.
    (0..1 + 1).for_each(|_| drop(ask(&tollgate, "203.0.113.7", "")));
    eventually("the fifth does", || keys(&tollgate).contains(&"ip:203.0.113.7".to_owned()));
}

fn invalid_data_in_redis_does_no_harm(redis: &Deployment) {
    let origin = Origin::ok();
    for command in [
        ["set", "ratelimit:{bans}:ends", "x"].as_slice(),
        &["hset", "ratelimit:{bans}:told", "e ip:10.0.0.0/8", "x"],
        &["hset", "ratelimit:{bans}:version", "n", "x"],
        &["hset", "ratelimit:{bans}:ladders", "ip:203.0.113.7", "x"],
        &["lpush", "ratelimit:{bans}:expiries", "x"],
        &["set", "ratelimit:{bans}:manual", "x"],
        &["set", "ratelimit:{bans}:users", "x"],
        &["zadd", "ratelimit:{bans}:addresses", "1", "nonsense"],
        &["set", "ratelimit:{audit}", "x"],
        &["set", "ratelimit:{audit}:rules", "x"],
    ] {
        redis.cli(command);
    }
    let tollgate = sharing(&origin, redis, LADDER);
    eventually("it is in touch", || tollgate.has_logged(&["connected to Redis"]));
    assert_eq!(hammer(&tollgate, "203.0.113.7"), 1);
    for message in
        ["[", "[\"a\"]", "[1,2,3]", "[\"a\",\"9\",\"banned\",\"e ip:0.0.0.0/0\",\"9\",\"9\",\"9\",\"{}\"]"]
    {
        redis.cli(&["publish", "ratelimit:unblock", message]);
    }
    let far = "99999999999999999999999";
    redis.cli(&["zadd", "ratelimit:{bans}:ends", far, "e ip:0.0.0.0/0", far, "nonsense"]);
    redis.cli(&["hset", "ratelimit:{bans}:told", "e ip:0.0.0.0/0", "1 1 {}"]);
    redis.cli(&["hset", "ratelimit:{bans}:version", "n", "77"]);
    ban(&tollgate, "user:bob");
    assert_eq!(status(&tollgate, "192.0.2.1", "bob"), 403);
    eventually("the audit list is mended", || redis.cli(&["type", "ratelimit:{audit}"]) == "list");
    thread::sleep(Duration::from_secs(1));
    assert_eq!(status(&tollgate, "192.0.2.1", "bob"), 403, "after all was read anew");
    assert_eq!(status(&tollgate, "192.0.2.2", "ann"), 200);
}

fn a_hundred_thousand_bans_of_a_class_are_read_and_held(redis: &Deployment) {
    const MOST: usize = 100_000;
    let origin = Origin::ok();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros();
    let mut script = String::new();
    let mut put = |class: &str, level: usize, key: &str, ends: u128| {
        let details = format!("{now} {level} {{\\\"reason\\\":\\\"\\\",\\\"by\\\":\\\"bans.made-up\\\"}}");
        script += &format!("ZADD ratelimit:{{bans}}:ends {ends} \"e {key}\"\n");
        script += &format!("ZADD ratelimit:{{bans}}:{class} {ends} \"e {key}\"\n");
        script += &format!("HSET ratelimit:{{bans}}:told \"e {key}\" \"{details}\"\n");
    };
    for n in 0..MOST {
        put("users", 1, &format!("user:u{n}"), now + 3_600_000_000 + n as u128);
    }
    // They end before all of the others.
    put("manual", 0, "user:by-hand", now + 1_800_000_000);
    put("addresses", 1, "ip:10.0.0.1", now + 1_800_000_000);
    script += "HSET ratelimit:{bans}:version epoch x n 5\n";
    redis.server_of("ratelimit:{bans}:ends").cli_with(&["--pipe"], &script);
    assert_eq!(redis.cli(&["zcard", "ratelimit:{bans}:users"]), MOST.to_string());
    let begun = Instant::now();
    let rules = "bans:\n  made-up: { key: user, after: 2/10s, for: 2h }\n";
    let tollgate = sharing(&origin, redis, rules);
    let enforced = || tollgate.metric("tollgate_bans{mode=\"enforce\"}");
    eventually("all are known", || enforced() == (MOST + 2) as f64);
    eprintln!("{MOST} bans are known after {:?}", begun.elapsed());
    assert_eq!(status(&tollgate, "192.0.2.1", "u99999"), 403);
    assert_eq!(status(&tollgate, "192.0.2.1", "u100000"), 200);
    // One more, and the one of its class that ends first goes.
    eventually("the rule bans", || status(&tollgate, "192.0.2.2", "u100000") == 403);
    eventually("the first has gone", || status(&tollgate, "192.0.2.3", "u0") == 200);
    assert_eq!(redis.cli(&["zcard", "ratelimit:{bans}:users"]), MOST.to_string());
    // One by hand takes the place of none.
    ban(&tollgate, "ip:203.0.113.7");
    assert_eq!(status(&tollgate, "203.0.113.7", "ann"), 403);
    eventually("there is one more", || {
        !redis.cli(&["zscore", "ratelimit:{bans}:ends", "e ip:203.0.113.7"]).is_empty()
    });
    assert_eq!(redis.cli(&["zcard", "ratelimit:{bans}:ends"]), (MOST + 3).to_string());
    assert_eq!(status(&tollgate, "192.0.2.4", "by-hand"), 403);
    assert_eq!(status(&tollgate, "10.0.0.1", "ann"), 403);
    assert_eq!(status(&tollgate, "192.0.2.5", "u1"), 403);
}

/// One client that names a new user whenever a rule has banned the last.
const MADE_UP: &str = "
bans:
  made-up: { key: user, after: 2/10s, for: 1h }
";

/// Has more users banned than the audit log has room for, all by one client.
fn make_up_users(tollgate: &Tollgate) {
    let mut client = Client::connect(tollgate.address);
    for n in 0..1_200 {
        let user = format!("made-up-{n}");
        let fields = [("x-forwarded-for", "203.0.113.7"), ("x-user-id", user.as_str())];
        for _ in 0..3 {
            client.request("GET", "/", &fields, b"");
        }
    }
}

/// How many changes are listed by rules, and what operators did, the newest first.
fn audited(tollgate: &Tollgate) -> (usize, Vec<String>) {
    let list = |path: &str| -> Vec<Value> {
        tollgate.admin("GET", path).json()["entries"].as_array().unwrap().clone()
    };
    let [rules, operators] = ["rule", "operator"].map(|by| list(&format!("/v1/audit?limit=1000&by={by}")));
    assert!(rules.iter().all(|entry| entry["by"] == "bans.made-up"), "{rules:?}");
    let all = list("/v1/audit?limit=1000");
    assert!(all.is_sorted_by(|one, next| one["time"].as_str() >= next["time"].as_str()), "{all:?}");
    (rules.len(), operators.iter().map(|entry| entry["target"].as_str().unwrap().to_owned()).collect())
}

#[test]
fn made_up_users_push_out_no_change_by_an_operator() {
    let origin = Origin::ok();
    let tollgate = instance(&origin, MADE_UP);
    let begun = Instant::now();
    ban(&tollgate, "user:before");
    make_up_users(&tollgate);
    ban(&tollgate, "user:after");
    eventually("a thousand bans are listed, and what operators did", || {
        audited(&tollgate) == (1_000, vec!["user:after".to_owned(), "user:before".to_owned()])
    });
    assert_eq!(status(&tollgate, "192.0.2.1", "before"), 403);
    // Nor do they fill the log: ten a second.
    let lines = tollgate.log().iter().filter(|line| line.contains("by=\"bans.made-up\"")).count() as u64;
    let seconds = begun.elapsed().as_secs() + 2;
    assert!((1..=10 * seconds).contains(&lines), "{lines} lines in {seconds} s");
}

fn made_up_users_push_out_no_change_by_an_operator_on_any_instance(redis: &Deployment) {
    let origin = Origin::ok();
    // As instances of earlier versions left them, all in one list.
    for (id, by, target) in [(1, "operator at 127.0.0.1", "user:long-ago"), (2, "bans.made-up", "user:then")]
    {
        let entry = json!({"id": id, "time": id, "by": by, "action": "ban", "target": target, "detail": "", "instance": "old"});
        redis.cli(&["rpush", "ratelimit:{audit}", &entry.to_string()]);
    }
    let [here, there] = [(); 2].map(|()| sharing(&origin, redis, MADE_UP));
    eventually("what was there is listed", || audited(&there) == (1, vec!["user:long-ago".to_owned()]));
    ban(&here, "user:before");
    make_up_users(&here);
    ban(&there, "user:after");
    let by_operators = ["user:after", "user:before", "user:long-ago"].map(str::to_owned).to_vec();
    for tollgate in [&here, &there] {
        eventually("a thousand bans are listed, and what operators did", || {
            audited(tollgate) == (1_000, by_operators.clone())
        });
        assert_eq!(status(tollgate, "192.0.2.1", "before"), 403);
    }
    let length = |key: &str| redis.cli(&["llen", key]);
    assert_eq!([length("ratelimit:{audit}"), length("ratelimit:{audit}:rules")], ["4", "1000"]);
    // One that starts now reads both.
    let third = sharing(&origin, redis, MADE_UP);
    eventually("it lists them", || audited(&third) == (1_000, by_operators.clone()));
}

/// Of such a name, limits and bans know a hash.
#[test]
fn a_user_with_a_long_name_is_banned_and_reset() {
    let origin = Origin::ok();
    let rest = "user: [{ header: x-user-id, from: anyone }]
policies: { p: { algorithm: sliding_log, key: user, limit: 1/1h } }\n";
    let tollgate = Tollgate::start(Config::new(&[origin.address], rest).with_policy("p"));
    for name in ["tenant:ann".to_owned(), "n".repeat(129), "n".repeat(384)] {
        let status = || request(tollgate.address, "GET", "/", &[("x-user-id", &name)], b"").status;
        assert_eq!([status(), status()], [200, 429]);
        let key = format!("user:{name}");
        let reset = tollgate.command(&["limits", &key, "--reset"]);
        assert_eq!((reset.code, status()), (Some(0), 200), "{reset:?}");
        assert_eq!(tollgate.command(&["ban", &key, "--for=1h"]).code, Some(0));
        assert_eq!(status(), 403, "{name}");
        assert_eq!(tollgate.command(&["unban", &key]).code, Some(0));
        assert_eq!(status(), 429);
    }
    // Records keep the beginning of it, which is the name of nobody.
    let cut = format!("{}…", "n".repeat(125));
    let evidence = || tollgate.admin("GET", "/v1/blocked/127.0.0.1").text();
    eventually("it is recorded as one that is cut", || evidence().contains(&format!("\"{cut}\"")));
    let key = format!("user:{cut}");
    let refused = tollgate.command(&["ban", &key, "--for=1h"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("write the whole name"), "{refused:?}");
    assert_eq!(tollgate.command(&["ban", &key, "--for=1h", "--force"]).code, Some(0));
}
