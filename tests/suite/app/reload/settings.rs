//! What takes effect at once, and what is told to need a restart.

use std::{fs, io::Write, path::Path};

use tempfile::TempDir;

use super::{HEAD, KEY, file, keys_file, plain, reload, start, words, write_and_reload};
use crate::{
    harness::{Client, Config, Origin, Tollgate, command, eventually, get, tollgate_in},
    store::redis_audit::warnings,
};

#[test]
fn settings_that_need_a_restart_are_listed_with_both_values_and_the_others_apply() {
    let origin = Origin::ok();
    let tollgate = start(&plain(origin.address, ""));
    let hash = || tollgate.admin("GET", "/v1/status").json()["configuration"]["hash"].clone();
    let before = hash();
    let other = HEAD
        .replace("listeners: [{ address: \"127.0.0.1:0\" }]", "listeners: [{ address: \"127.0.0.1:1\" }]")
        .replace(
            "admin: { address: \"127.0.0.1:0\" }",
            "admin: { address: \"127.0.0.1:2\", token: hush-hush }",
        )
        .replace("workers: 2", "workers: auto")
        .replace("access_log: off", "access_log: { format: json, to: /nonexistent/log }")
        .replace("level: debug", "level: info");
    let store = "store: { memory: { max_keys: 5 }, redis: { url: \"redis://me:pass-word@localhost:9\" } }\n";
    let yaml = plain(origin.address, store).replace(HEAD, &other);
    let answer = reload(&tollgate, &format!("{yaml}request_id: x-id\n"));
    assert_eq!(words(&answer, "changed"), ["request_id: x-request-id → x-id"]);
    assert_eq!(
        words(&answer, "needs_restart"),
        [
            "listener 127.0.0.1:0: removed",
            "listener 127.0.0.1:1: added",
            "access_log.format: off → json",
            "access_log.to: stdout → /nonexistent/log",
            "admin.address: 127.0.0.1:0 → 127.0.0.1:2",
            "admin.token: none → ***",
            "log.level: debug → info",
            "store.memory.max_keys: 1000000 → 5",
            "store.redis: none → { breaker: { failures: 5, retry_after: 1s }, connections: 2, prefix: ratelimit, \
             timeout: 50ms, url: redis://***@localhost:9 }",
            "workers: 2 → auto",
        ]
    );
    assert!(!answer.to_string().contains("hush") && !answer.to_string().contains("pass-word"));
    let logged = |what: &str| tollgate.has_logged(&[what]);
    eventually("it is in the log", || logged("needs a restart: log.level: debug"));
    assert!(!logged("hush") && !logged("pass-word"));
    assert!(get(tollgate.address, "/", &[]).header("x-id").is_some());
    assert_ne!(hash(), before);
    // As long as it stands there, it is told.
    let again = reload(&tollgate, &format!("{yaml}request_id: x-id\n"));
    assert_eq!((words(&again, "changed").len(), words(&again, "needs_restart").len()), (0, 10));
    reload(&tollgate, &plain(origin.address, ""));
    assert_eq!(hash(), before, "as it was");
}

#[test]
fn values_from_files_are_compared_and_never_shown() {
    let (origin, directory) = (Origin::ok(), TempDir::new().unwrap());
    let secrets = directory.path().join("secret");
    let inserted = format!("${{file:{}}}", secrets.display());
    let yaml = format!(
        "{HEAD}upstreams:\n  origin: {{ endpoints: [\"http://{}\"] }}\nroutes:\n  \
         - {{ path: \"/hook/{inserted}\", upstream: origin, rewrite: {{ path: \"/{inserted}\" }} }}\n  \
         - {{ name: named, path: \"/named/{inserted}\", redirect: {{ to: \"https://a.example/{inserted}\" }} }}\n  \
         - {{ name: reply, path: /reply, reply: {{ body: \"{inserted}\" }} }}\n",
        origin.address
    );
    fs::write(&secrets, "s3cret-one").unwrap();
    let tollgate = start(&yaml);
    fs::write(&secrets, "s3cret-two").unwrap();
    let answer = reload(&tollgate, &format!("{yaml}request_id: x-id\n"));
    let hook = format!("/hook/{inserted}");
    assert_eq!(
        words(&answer, "changed"),
        [
            format!("route {hook}: path changed"),
            format!("route {hook}: rewrite.path changed"),
            "route named: path changed".to_owned(),
            "route named: redirect.to changed".to_owned(),
            "route reply: reply changed".to_owned(),
            "request_id: x-request-id → x-id".to_owned(),
        ]
    );
    assert_eq!(get(tollgate.address, "/hook/s3cret-two", &[]).status, 200);
    assert_eq!(get(tollgate.address, "/hook/s3cret-one", &[]).status, 404);
    let shown = ["/v1/routes", "/v1/config", "/v1/audit", "/"].map(|path| tollgate.admin("GET", path).text());
    assert!(shown[0].contains(&hook), "{}", shown[0]);
    let explained = ["/hook/s3cret-two", "/named/s3cret-two", "/nowhere"].map(|path| {
        tollgate.command(&["explain", &format!("http://h{path}"), "--json"]).stdout.replace(path, "")
    });
    eventually("it is in the log", || tollgate.has_logged(&["request_id: "]));
    let log = tollgate.log().join("\n");
    for text in shown.iter().chain(&explained).chain([&answer.to_string(), &log]) {
        assert!(!text.contains("s3cret"), "{text}");
    }
}

#[test]
fn limits_of_clients_hold_for_the_connections_that_come() {
    let origin = Origin::ok();
    let tollgate = start(&plain(origin.address, ""));
    let long = "x".repeat(3_000);
    let mut kept = Client::connect(tollgate.address);
    let ask = |client: &mut Client| client.request("GET", "/", &[("x-long", long.as_str())], b"").status;
    assert_eq!(ask(&mut kept), 200);
    let limits = "client_limits: { header_size: 2KiB, connections: 2 }\n";
    assert_eq!(words(&reload(&tollgate, &plain(origin.address, limits)), "changed").len(), 2);
    assert_eq!(ask(&mut kept), 200, "it came before");
    let mut next = Client::connect(tollgate.address);
    assert_eq!(ask(&mut next), 431);
    drop(next);
    let mut second = None;
    eventually("its place is free", || {
        let mut client = Client::connect(tollgate.address);
        let sent = client.stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        second = sent.and_then(|()| client.try_reply()).ok().map(|_| client);
        second.is_some()
    });
    eventually("a third is refused", || Client::try_get(tollgate.address).is_err());
    reload(&tollgate, &plain(origin.address, ""));
    assert_eq!(get(tollgate.address, "/", &[]).status, 200, "there is room for it");
}

#[test]
fn the_longest_body_holds_for_the_next_request() {
    let origin = Origin::ok();
    let tollgate = start(&plain(origin.address, ""));
    let mut kept = Client::connect(tollgate.address);
    let mut post = || kept.request("POST", "/", &[], b"hello").status;
    assert_eq!(post(), 200);
    let limit = |bytes: &str| plain(origin.address, &format!("client_limits: {{ max_body: {bytes} }}\n"));
    let answer = reload(&tollgate, &limit("4"));
    assert_eq!(words(&answer, "changed"), ["client_limits.max_body: 0 → 4"]);
    assert_eq!(post(), 413, "also on a connection that came before");
    let listener =
        limit("4").replace("{ address: \"127.0.0.1:0\" }]", "{ address: \"127.0.0.1:0\", max_body: 5 }]");
    let answer = reload(&tollgate, &listener);
    assert_eq!(words(&answer, "changed"), ["listener 127.0.0.1:0: max_body none → 5"]);
    assert_eq!(post(), 200);
    let route = listener.replace("upstream: origin }", "upstream: origin, max_body: 3 }");
    let answer = reload(&tollgate, &route);
    assert_eq!(words(&answer, "changed"), ["route /*: max_body none → 3"]);
    assert_eq!(post(), 413);
}

#[test]
fn the_access_log_changes_its_format_and_can_be_turned_off_and_on() {
    let origin = Origin::ok();
    let yaml =
        |log: &str| plain(origin.address, "").replace("access_log: off", &format!("access_log: {log}"));
    let tollgate = start(&yaml("{ format: combined }"));
    let lines = |with: &str| tollgate.stdout().iter().filter(|line| line.contains(with)).count();
    assert_eq!(get(tollgate.address, "/combined", &[]).status, 200);
    eventually("it is logged", || lines("\"GET /combined HTTP/1.1\"") == 1);
    let answer = reload(&tollgate, &yaml("{ format: json, to: /nonexistent/log }"));
    assert_eq!(words(&answer, "changed"), ["access_log.format: combined → json"]);
    assert_eq!(words(&answer, "needs_restart"), ["access_log.to: stdout → /nonexistent/log"]);
    assert_eq!(get(tollgate.address, "/json", &[]).status, 200);
    eventually("it is logged in JSON", || lines("\"path\":\"/json\"") == 1);
    reload(&tollgate, &yaml("off"));
    assert_eq!(get(tollgate.address, "/unseen", &[]).status, 200);
    reload(&tollgate, &yaml("{ format: json }"));
    assert_eq!(get(tollgate.address, "/seen", &[]).status, 200);
    eventually("it is logged again", || lines("/seen") == 1);
    assert_eq!(lines("/unseen"), 0);
}

#[test]
fn the_file_is_the_one_of_the_start_and_the_environment_likewise() {
    let origin = Origin::ok();
    let yaml = plain(origin.address, "request_id: \"${ID_FIELD:-x-first}\"\n");
    let tollgate = start(&yaml);
    assert!(get(tollgate.address, "/", &[]).header("x-first").is_some());
    let told = tollgate.command(&["reload", "--json"]);
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    fs::write(file(&tollgate), yaml.replace("x-first", "x-second")).unwrap();
    // The command has an environment of its own, which is not the proxy's.
    let admin = format!("--admin=http://{}", tollgate.admin);
    let ended = tollgate_in(tollgate.directory(), &[("ID_FIELD", "x-other")], &["reload", &admin]);
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (Some(0), "Changed:\n  request_id: x-first → x-second\n")
    );
    assert!(get(tollgate.address, "/", &[]).header("x-second").is_some());
}

#[test]
fn a_store_of_api_keys_is_not_opened_by_a_reload() {
    let (origin, directory) = (Origin::ok(), TempDir::new().unwrap());
    let path = |name: &str| directory.path().join(name).display().to_string();
    fs::write(path("keys.yaml"), keys_file(&[KEY])).unwrap();
    let with = |settings: &str| plain(origin.address, &format!("api_keys: {{ {settings} }}\n"));
    let (file, store) =
        (format!("file: {}", path("keys.yaml")), format!("store: true, data: {}", path("data.json")));
    let tollgate = start(&plain(origin.address, ""));
    let status = || get(tollgate.address, "/", &[("x-api-key", KEY)]).status;
    let refused = |yaml: &str| {
        let reply = write_and_reload(&tollgate, yaml);
        assert_eq!(reply.status, 422, "{}", reply.text());
        let text = reply.text();
        assert!(text.contains("api_keys.store: true takes effect only when Tollgate starts"), "{text}");
    };
    // Its keys would get 401 until the restart.
    refused(&with(&store));
    refused(&with(&format!("{file}, {store}")));
    assert_eq!((status(), get(tollgate.address, "/", &[]).status), (200, 200), "no key is needed still");
    reload(&tollgate, &with(&file));
    assert_eq!((status(), get(tollgate.address, "/", &[]).status), (200, 401));
    refused(&with(&store));
    assert_eq!(status(), 200);
    // Nobody who has a valid key loses it.
    let answer = reload(&tollgate, &with(&format!("{file}, {store}, required: false")));
    assert!(words(&answer, "changed").contains(&"api_keys.required: true → false".to_owned()), "{answer}");
    assert!(words(&answer, "needs_restart").contains(&"api_keys.store: false → true".to_owned()), "{answer}");
    assert_eq!((status(), get(tollgate.address, "/", &[]).status), (200, 200));
}

#[test]
fn an_error_in_a_file_of_api_keys_is_over_when_the_file_is_not_used_any_more() {
    let (origin, directory) = (Origin::ok(), TempDir::new().unwrap());
    let keys = directory.path().join("keys.yaml");
    fs::write(&keys, keys_file(&[KEY])).unwrap();
    let mut command = command(Path::new("."));
    command.args(["run", "--config", "proxy.yaml"]).env("TOLLGATE_DOCTOR_MINUTE_MS", "600");
    let yaml = plain(origin.address, &format!("api_keys: {{ file: {} }}\n", keys.display()));
    let tollgate = Tollgate::launch(command, Config::yaml(yaml));
    fs::write(&keys, "nonsense").unwrap();
    let is_warned = || warnings(&tollgate).iter().any(|warning| warning.contains("keys.yaml"));
    eventually("it is reported", is_warned);
    reload(&tollgate, &plain(origin.address, ""));
    eventually("it is over", || !is_warned());
}
