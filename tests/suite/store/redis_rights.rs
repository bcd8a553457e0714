//! The least that a user of Redis needs: with it all works, without any of it what is missing is named, and nothing
//! beyond it can be touched.

use std::{collections::BTreeSet, fs, path::Path};

use super::redis_audit::{AS_IT_SHOULD_BE, Watched, warnings};
use crate::harness::{Client, Config, Origin, Redis, Tollgate, eventually, get};

const PASSWORD: &str = "CHANGE-ME";

fn text(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The rules of the user as `deploy/redis-users.acl` has them.
fn rules() -> Vec<String> {
    let file = text("deploy/redis-users.acl");
    let line = file.lines().find_map(|line| line.strip_prefix("user tollgate ")).unwrap();
    line.split(' ').map(str::to_owned).collect()
}

/// A Redis that knows the user; the test itself may do anything there.
fn restricted() -> Redis {
    let redis = Redis::with(&AS_IT_SHOULD_BE);
    allow(&redis, &rules());
    redis
}

#[track_caller]
fn allow(redis: &Redis, rules: &[impl AsRef<str>]) {
    let rules = rules.iter().map(AsRef::as_ref);
    let command: Vec<_> = ["acl", "setuser", "tollgate"].into_iter().chain(rules).collect();
    assert_eq!(redis.cli(&command), "OK", "{command:?}");
}

/// Whether it is of a version that says what a user may do.
fn tells_by_itself(redis: &Redis) -> bool {
    !redis.cli(&["info", "server"]).contains("redis_version:6.")
}

fn url(redis: &Redis, password: &str) -> String {
    format!("redis://tollgate:{password}@127.0.0.1:{}", redis.port)
}

/// What the user gets when it asks by itself.
fn as_the_user(redis: &Redis, command: &[&str]) -> String {
    let who = ["--user", "tollgate", "--pass", PASSWORD, "--no-auth-warning"];
    redis.cli(&[&who, command].concat())
}

/// All that limits can be, held in Redis by that user.
fn limited(origin: &Origin, url: &str) -> Tollgate {
    Tollgate::start(Config::yaml(format!(
        "
user: [{{ header: x-user-id, from: anyone }}]
store: {{ redis: {{ url: \"{url}\", timeout: 5s }} }}
upstreams:
  origin: {{ endpoints: [\"http://{}\"], policies: [single, fixed, log, composite, list] }}
policies:
  single: {{ algorithm: single_counter, key: ip, limit: 100/1h }}
  fixed: {{ algorithm: fixed_window, key: user, limits: [100/1h, 200/1d] }}
  log: {{ algorithm: sliding_log, key: ip, limit: 20/1h }}
  composite: {{ algorithm: single_counter, key: ip+user, limit: 100/1h }}
  list: {{ algorithm: metadata_list, key: ip, limit: 9/1h }}
routes:
  - {{ path: /*, upstream: origin }}
",
        origin.address
    )))
}

fn ask(tollgate: &Tollgate) -> u16 {
    get(tollgate.address, "/a", &[("x-user-id", "ann")]).status
}

#[test]
fn the_line_of_the_guide_is_that_of_the_file() {
    let line = format!("ACL SETUSER tollgate {}", rules().join(" "));
    assert!(text("docs/redis.md").contains(&line), "docs/redis.md lacks: {line}");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/redis-users.acl");
    let redis = Redis::with(&["--aclfile", file.to_str().unwrap()]);
    assert!(redis.cli(&["ping"]).contains("NOAUTH"), "nobody else may come in");
    assert_eq!(as_the_user(&redis, &["ping"]), "PONG");
}

#[test]
fn with_the_least_rights_everything_works() {
    let (origin, redis) = (Origin::ok(), restricted());
    let [one, other] = [0, 1].map(|_| limited(&origin, &url(&redis, PASSWORD)));
    for tollgate in [&one, &other] {
        eventually("it is in touch", || {
            tollgate.log().iter().any(|line| line.contains("connected to Redis"))
        });
        assert_eq!(warnings(tollgate), [""; 0]);
    }
    let mut client = Client::connect(one.address);
    for _ in 0..9 {
        assert_eq!(client.request("GET", "/a", &[("x-user-id", "ann")], b"").status, 200);
    }
    assert_eq!([&other, &one, &other].map(ask), [429; 3]);
    for shape in ["sc.1h", "fw.1h.1d", "sl.1h", "ml.1h"] {
        assert!(redis.keys().iter().any(|key| key.contains(shape)), "{shape}: {:?}", redis.keys());
    }
    let mut evidence = serde_json::Value::Null;
    eventually("the requests are told of", || {
        evidence = other.admin("GET", "/v1/blocked/127.0.0.1").json();
        evidence["records"]
            .as_array()
            .is_some_and(|records| records.iter().any(|record| record["path"] == "/a"))
    });
    eventually("it is listed", || one.admin("GET", "/v1/blocked/127.0.0.1").status == 200);
    assert_eq!(other.command(&["unblock", "127.0.0.1"]).code, Some(0));
    eventually("the other one has heard of it", || one.admin("GET", "/v1/blocked/127.0.0.1").status == 404);
    let left: Vec<_> = redis.keys().into_iter().filter(|key| key.contains("{ip:")).collect();
    assert_eq!(left, [""; 0], "composites are found, too");
    assert_eq!([&one, &other].map(ask), [200; 2]);
    for tollgate in [&one, &other] {
        assert_eq!(warnings(tollgate), [""; 0]);
        assert_eq!(tollgate.metric("tollgate_store_errors_total{kind=\"rights\"}"), 0.0);
    }
    assert_eq!(redis.cli(&["acl", "log"]), "", "nothing was refused");
}

#[test]
fn a_command_that_is_missing_is_named() {
    let redis = restricted();
    let commands: Vec<_> =
        rules().iter().filter_map(|rule| Some(rule.strip_prefix('+')?.to_owned())).collect();
    assert!(commands.len() > 20, "{commands:?}");
    let look = || Watched::start(&url(&redis, PASSWORD), "ratelimit").audited();
    assert_eq!(look(), [""; 0]);
    for command in &commands {
        let name = command.to_uppercase().replace('|', " ");
        for cached in [true, false] {
            // A check that tries commands on an older server leaves these out.
            if !tells_by_itself(&redis)
                && ["script|load", "multi", "exec", "publish", "subscribe"].contains(&command.as_str())
            {
                continue;
            }
            if !cached {
                redis.cli(&["script", "flush"]);
            }
            allow(&redis, &[format!("-{command}")]);
            let said = look();
            let is_named = said.len() == 1
                && [", so ", " on ", " (add to its ACL: "]
                    .iter()
                    .any(|then| said[0].starts_with(&format!("the user is not allowed to run {name}{then}")))
                && said[0].contains(&format!("+{command}"));
            assert!(is_named, "{name}: {said:?}");
            allow(&redis, &[format!("+{command}")]);
        }
    }
    assert_eq!(look(), [""; 0]);
    eventually("the instances have said good-bye", || redis.keys().is_empty());
}

#[test]
fn keys_and_channels_that_are_missing_are_named() {
    let redis = restricted();
    let look = || Watched::start(&url(&redis, PASSWORD), "ratelimit").audited();
    allow(&redis, &["resetkeys", "~other:*"]);
    let said = look();
    assert!(
        said.len() == 1 && said[0].contains("is not allowed to use keys ratelimit:*, so no limit can be checked (add to its ACL: ~ratelimit:*)"),
        "{said:?}"
    );
    if !tells_by_itself(&redis) {
        return;
    }
    allow(&redis, &["~ratelimit:*", "resetchannels", "&other:unblock"]);
    let said = look();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].contains("is not allowed to run PUBLISH, SUBSCRIBE on the channel ratelimit:unblock"),
        "{said:?}"
    );
    allow(&redis, &["resetkeys", "%R~ratelimit:*", "&ratelimit:unblock"]);
    let said = look();
    assert!(said.len() == 1 && said[0].contains("ratelimit:*"), "{said:?}");
}

#[test]
fn what_lies_outside_can_t_be_touched() {
    let redis = restricted();
    for command in [
        ["set", "other", "1"].as_slice(),
        &["get", "other"],
        &["del", "other"],
        &["del", "ratelimit"],
        &["rpush", "x:ratelimit:a", "1"],
        &["publish", "other:unblock", "ip:203.0.113.7"],
        &["subscribe", "other:unblock"],
        &["evalsha", "5332031c6b470dc5a0dd9b4bf2030dea6d65de91", "1", "other"],
        &["eval", "return 1", "0"],
        &["config", "get", "maxmemory"],
        &["flushall"],
        &["keys", "*"],
        &["acl", "list"],
        &["script", "flush"],
        &["client", "list"],
        &["shutdown"],
    ] {
        let said = as_the_user(&redis, command);
        assert!(said.contains("NOPERM"), "{command:?}: {said}");
    }
    // A script that is loaded does no more than its caller may.
    let hash = as_the_user(&redis, &["script", "load", "return redis.call('MGET', 'other')"]);
    let said = as_the_user(&redis, &["evalsha", &hash, "1", "ratelimit:a"]);
    assert!(["NOPERM", "ACL failure", "can't access"].iter().any(|words| said.contains(words)), "{said}");
    assert_eq!(as_the_user(&redis, &["set", "ratelimit:a", "1"]), "OK");
}

#[test]
fn a_wrong_password_is_reported_and_taken_once_it_is_right() {
    let origin = Origin::ok();
    let redis = restricted();
    redis.cli(&["acl", "setuser", "tollgate", "resetpass", ">another"]);
    let told = "the server rejects the user or password in store.redis.url";
    let wrong = limited(&origin, &url(&redis, "hunter2"));
    let unknown = limited(&origin, &url(&redis, "hunter2").replace("tollgate:", "nobody:"));
    for tollgate in [&wrong, &unknown] {
        eventually("it is told", || warnings(tollgate).iter().any(|warning| warning.contains(told)));
        assert_eq!(ask(tollgate), 200, "it counts by itself meanwhile");
        let log = tollgate.log().join("\n");
        assert!(log.contains(told) && !log.contains("hunter2"), "{log}");
        assert!(!tollgate.admin("GET", "/v1/status").text().contains("hunter2"));
    }
    assert_eq!(redis.keys(), [""; 0]);
    allow(&redis, &[">hunter2"]);
    redis.cli(&["acl", "setuser", "nobody", "on", ">hunter2", "~*", "&*", "+@all"]);
    for tollgate in [&wrong, &unknown] {
        eventually("it is in touch", || warnings(tollgate).is_empty());
    }
    eventually("they count in Redis", || {
        ask(&wrong);
        redis.keys().iter().any(|key| key.contains("{ip:"))
    });
}

#[test]
fn a_missing_password_is_reported() {
    let (origin, redis) = (Origin::ok(), restricted());
    redis.cli(&["acl", "setuser", "default", "off"]);
    let tollgate = limited(&origin, &redis.url());
    let told = "the server requires a password: add it to store.redis.url";
    eventually("it is told", || warnings(&tollgate).iter().any(|warning| warning.contains(told)));
    assert_eq!(ask(&tollgate), 200);
}

#[test]
fn a_limit_that_may_not_be_read_is_not_taken_for_an_unused_one() {
    let (origin, redis) = (Origin::ok(), restricted());
    for command in ["lindex", "zrange"] {
        let tollgate = limited(&origin, &url(&redis, PASSWORD));
        eventually("it is in touch", || {
            tollgate.log().iter().any(|line| line.contains("connected to Redis"))
        });
        allow(&redis, &[format!("-{command}")]);
        // Nine fit into the list, wherever they are counted.
        let admitted = (0..25).filter(|_| ask(&tollgate) == 200).count();
        assert_eq!(admitted, 9, "without {command}");
        assert!(tollgate.metric("tollgate_store_errors_total{kind=\"rights\"}") > 0.0, "without {command}");
        allow(&redis, &[format!("+{command}")]);
        redis.cli(&["flushall"]);
    }
}

/// Words of scripts in capitals that are no commands.
const NO_COMMANDS: [&str; 8] =
    ["count", "keepttl", "limit", "oom", "wrongtype", "withscores", "noperm", "px"];

#[test]
fn whatever_is_called_is_granted() {
    let rules = rules();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut called = BTreeSet::new();
    let rust = ["src/store/redis", "src/peers", "src/peers/bans", "src/peers/records"];
    for (directory, before) in [("lua", "'")].into_iter().chain(rust.map(|rust| (rust, "cmd(\""))) {
        for entry in fs::read_dir(root.join(directory)).unwrap() {
            let path = entry.unwrap().path();
            let text = if path.is_file() { fs::read_to_string(path).unwrap() } else { String::new() };
            let words = text.split(before).skip(1).filter_map(|rest| rest.split(['\'', '"']).next());
            let names =
                words.filter(|word| word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_uppercase()));
            called.extend(names.map(str::to_lowercase));
        }
    }
    assert!(called.contains("mget") && called.len() > 25, "{called:?}");
    // Of this the name is two words.
    called.remove("script");
    called.remove("load");
    let is_granted = |name: &str| NO_COMMANDS.contains(&name) || rules.contains(&format!("+{name}"));
    let missing: Vec<_> = called.iter().filter(|name| !is_granted(name)).collect();
    assert_eq!(missing, [""; 0], "add them to deploy/redis-users.acl, docs/redis.md and lua/acl_check.lua");
}
