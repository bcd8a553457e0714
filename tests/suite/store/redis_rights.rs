//! The least that a user of Redis needs: with it all works, without any of it what is missing is named, and nothing
//! beyond it can be touched.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use super::redis_audit::{AS_IT_SHOULD_BE, Watched, by_url, warnings};
use crate::harness::{
    Client, Config, Deployment, Origin, Redis, Servers, Tollgate, eventually, get, on_own_servers,
};

const PASSWORD: &str = "CHANGE-ME";

fn text(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The files that grant what is needed on each [`Topology`], and what each grants beyond the first, as the guide says it.
const FILES: [(&str, &str); 3] = [
    ("deploy/redis-users.acl", ""),
    ("deploy/redis-users.sentinel.acl", "+role"),
    ("deploy/redis-users.cluster.acl", "+get +asking +cluster|slots +cluster|keyslot"),
];

/// What is needed on Sentinels.
const OF_SENTINELS: &str = "deploy/sentinel-users.acl";

/// The rules of the user as this file has them.
fn rules_of(file: &str) -> Vec<String> {
    let text = text(file);
    let line = text.lines().find_map(|line| line.strip_prefix("user tollgate ")).unwrap();
    line.split(' ').map(str::to_owned).collect()
}

/// The rules of the user of a single server.
fn rules() -> Vec<String> {
    rules_of(FILES[0].0)
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

/// Lets the user in on every server, with no more than it needs there. What then stands in `store.redis`.
fn restrict(redis: &Deployment) -> String {
    let (file, _) = FILES[redis.topology() as usize];
    for server in redis.servers() {
        for setting in AS_IT_SHOULD_BE.chunks(2) {
            assert_eq!(server.cli(&["config", "set", setting[0].trim_start_matches('-'), setting[1]]), "OK");
        }
        allow(server, &rules_of(file));
    }
    let user = format!("user: tollgate, password: {PASSWORD}");
    match redis.running() {
        Servers::Server(redis) => settings(redis, PASSWORD),
        Servers::Sentinel(all) => {
            all.sentinels.iter().for_each(|sentinel| allow(sentinel, &rules_of(OF_SENTINELS)));
            format!("{}, {user}", redis.settings().replacen("{ ", &format!("{{ {user}, "), 1))
        }
        Servers::Cluster(_) => format!("{}, {user}", redis.settings()),
    }
}

/// What stands in `store.redis` for that user.
fn settings(redis: &Redis, password: &str) -> String {
    format!("url: \"{}\"", url(redis, password))
}

/// What the user gets when it asks by itself.
fn as_the_user(redis: &Redis, command: &[&str]) -> String {
    let who = ["--user", "tollgate", "--pass", PASSWORD, "--no-auth-warning"];
    redis.cli(&[&who, command].concat())
}

/// All that limits can be, held in Redis by that user.
fn limited(origin: &Origin, settings: &str) -> Tollgate {
    Tollgate::start(Config::yaml(format!(
        "
user: [{{ header: x-user-id, from: anyone }}]
store: {{ redis: {{ {settings}, timeout: 5s }} }}
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
fn the_lines_of_the_guide_are_those_of_the_files() {
    // In a table, it writes `|` with a backslash.
    let guide = text("docs/redis.md").replace("\\|", "|");
    for file in [FILES[0].0, OF_SENTINELS] {
        let line = format!("ACL SETUSER tollgate {}", rules_of(file).join(" "));
        assert!(guide.contains(&line), "docs/redis.md lacks: {line}");
    }
    for (file, added) in FILES {
        assert!(guide.contains(&format!("`{added}`")) || added.is_empty(), "docs/redis.md lacks: {added}");
        let added = added.split_whitespace().map(str::to_owned);
        let expected: BTreeSet<_> = rules().into_iter().chain(added).collect();
        assert_eq!(rules_of(file).into_iter().collect::<BTreeSet<_>>(), expected, "{file}");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let redis = Redis::with(&["--aclfile", path.to_str().unwrap()]);
        assert!(redis.cli(&["ping"]).contains("NOAUTH"), "{file}: nobody else may come in");
        assert_eq!(as_the_user(&redis, &["ping"]), "PONG", "{file}");
    }
}

on_own_servers!([server sentinel cluster] with_the_least_rights_everything_works);

fn with_the_least_rights_everything_works(redis: &mut Deployment) {
    let (origin, settings) = (Origin::ok(), restrict(redis));
    let [one, other] = [0, 1].map(|_| limited(&origin, &settings));
    for tollgate in [&one, &other] {
        eventually("it is in touch", || tollgate.has_logged(&["connected to Redis"]));
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
    eventually("the other one has heard of it", || {
        one.admin("GET", "/v1/blocked/127.0.0.1").json()["state"] == "unblocked"
    });
    let left: Vec<_> = redis.keys().into_iter().filter(|key| key.contains("{ip:")).collect();
    assert_eq!(left, [""; 0], "composites are found, too");
    for tollgate in [&one, &other] {
        eventually("it is let in", || ask(tollgate) == 200);
    }
    for tollgate in [&one, &other] {
        assert_eq!(warnings(tollgate), [""; 0]);
        assert_eq!(tollgate.metric("tollgate_store_errors_total{kind=\"rights\"}"), 0.0);
    }
    let sentinels = match redis.running() {
        Servers::Sentinel(redis) => &redis.sentinels[..],
        _ => &[],
    };
    for server in redis.servers().into_iter().chain(sentinels) {
        assert_eq!(server.cli(&["acl", "log"]), "", "nothing was refused");
    }
}

#[test]
fn a_command_that_is_missing_is_named() {
    let redis = restricted();
    let commands: Vec<_> =
        rules().iter().filter_map(|rule| Some(rule.strip_prefix('+')?.to_owned())).collect();
    assert!(commands.len() > 20, "{commands:?}");
    let look = || Watched::start(by_url(&url(&redis, PASSWORD)), "ratelimit").audited();
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
    let look = || Watched::start(by_url(&url(&redis, PASSWORD)), "ratelimit").audited();
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
fn keys_and_channels_outside_of_the_prefix_are_refused() {
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
    let told = "the server rejects the user or password in store.redis";
    let wrong = limited(&origin, &settings(&redis, "hunter2"));
    let unknown = limited(&origin, &settings(&redis, "hunter2").replace("tollgate:", "nobody:"));
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
    let tollgate = limited(&origin, &format!("url: \"{}\"", redis.url()));
    let told = "the server requires a password: add it to store.redis";
    eventually("it is told", || warnings(&tollgate).iter().any(|warning| warning.contains(told)));
    assert_eq!(ask(&tollgate), 200);
}

#[test]
fn a_limit_that_may_not_be_read_is_not_taken_for_an_unused_one() {
    let (origin, redis) = (Origin::ok(), restricted());
    for command in ["lindex", "zrange"] {
        let tollgate = limited(&origin, &settings(&redis, PASSWORD));
        eventually("it is in touch", || tollgate.has_logged(&["connected to Redis"]));
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

/// Commands that need not be granted: `CONFIG GET` could read passwords, and without it another sign is looked at.
const OPTIONAL: [&str; 1] = ["config"];

/// All files in a directory, and in those in it.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn whatever_is_called_is_granted() {
    let granted: BTreeSet<_> =
        FILES.into_iter().map(|(file, _)| file).chain([OF_SENTINELS]).flat_map(rules_of).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut called = BTreeSet::new();
    for (directory, before) in [("lua", "'"), ("src/store/redis", "cmd(\""), ("src/peers", "cmd(\"")] {
        for path in files(&root.join(directory)) {
            let text = fs::read_to_string(path).unwrap();
            let words = text.split(before).skip(1).filter_map(|rest| rest.split(['\'', '"']).next());
            let names =
                words.filter(|word| word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_uppercase()));
            called.extend(names.map(str::to_lowercase));
        }
    }
    assert!(called.contains("mget") && called.len() > 25, "{called:?}");
    // Of some the name is two words.
    let is_granted = |name: &str| {
        let has_word = |granted: &String| granted.trim_start_matches('+').split('|').any(|word| word == name);
        NO_COMMANDS.contains(&name) || OPTIONAL.contains(&name) || granted.iter().any(has_word)
    };
    let missing: Vec<_> = called.iter().filter(|name| !is_granted(name)).collect();
    assert_eq!(missing, [""; 0], "add them to deploy/*.acl, docs/redis.md and lua/acl_check.lua");
}
