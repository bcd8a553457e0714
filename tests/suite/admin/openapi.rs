//! The OpenAPI description of the admin port: it is complete, and all responses match it.

use std::{collections::BTreeSet, env, fs, process::Command};

use serde_json::Value;

use crate::harness::{Client, Config, Origin, Redis, Tollgate, eventually, get_from, program, request};

const TOKEN: &str = "s3cret";

/// An instance with data for all endpoints: limited addresses, users, bans.
fn instance(origin: &Origin, rest: &str) -> Tollgate {
    let tollgate = Tollgate::start(
        Config::new(
            &[origin.address],
            &format!(
                "
admin: {{ address: 127.0.0.1:0, token: {TOKEN} }}
trusted_proxies: [127.0.0.9]
user: [{{ header: x-user-id, from: anyone }}]
policies:
  one: {{ algorithm: metadata_list, key: [ip, user], limit: 1/1h }}
  hourly: {{ algorithm: fixed_window, key: ip, limit: 1000/1h }}
  each: {{ algorithm: fixed_window, key: ip+path, limits: [1/1s, 1/1h], mode: shadow }}
bans: {{ hammering: {{ key: ip, after: 4/1m, for: 5m }} }}
api_keys: {{ store: true, required: false, data: keys.json }}
{rest}"
            ),
        )
        .with_policy("one, each, hourly"),
    );
    for from in ["127.0.0.1", "127.0.0.2", "127.0.0.3"] {
        for user in ["ann", "bob", "ann", "b o+b", "ann", "bob"] {
            get_from(from, tollgate.address, "/a", &[("x-user-id", user)]);
        }
        let page = format!("/v1/blocked/{from}");
        eventually("somebody is limited", || authorized(&tollgate, "GET", &page).status == 200);
    }
    tollgate
}

/// One where nobody can log in.
fn origin() -> Origin {
    Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            conn.skip_body(&head)?;
            let status = if head.contains(" /login ") { "401 Unauthorized" } else { "200 OK" };
            conn.answer(status, &[], b"ok")?;
        }
        Ok(())
    })
}

/// Lets many addresses guess passwords. Returns the ID of the incident.
fn attack(tollgate: &Tollgate) -> String {
    let mut proxy = Client::connect_from([127, 0, 0, 9].into(), tollgate.address);
    for nth in 0..70 {
        let address = format!("203.0.113.{nth}");
        assert_eq!(proxy.request("POST", "/login", &[("x-forwarded-for", &address)], b"").status, 401);
    }
    let mut id = None;
    eventually("they are an incident", || {
        let list = authorized(tollgate, "GET", "/v1/incidents").json();
        id = list["incidents"][0]["id"].as_str().map(str::to_owned);
        id.is_some()
    });
    id.unwrap()
}

fn authorized(tollgate: &Tollgate, method: &str, path: &str) -> crate::harness::Reply {
    request(tollgate.admin, method, path, &[("authorization", "Bearer s3cret")], b"")
}

/// Each method of each path in the description.
fn described(tollgate: &Tollgate) -> BTreeSet<String> {
    let description = authorized(tollgate, "GET", "/v1/openapi.json").json();
    let paths = description["paths"].as_object().unwrap();
    let methods = |(path, item): (&String, &Value)| {
        let methods = item.as_object().unwrap().keys();
        methods.map(|method| format!("{} {path}", method.to_uppercase())).collect::<Vec<_>>()
    };
    paths.iter().flat_map(methods).collect()
}

/// Each method of each path in the table of the guide.
fn documented() -> BTreeSet<String> {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/admin.md")).unwrap();
    let mut found = BTreeSet::new();
    for row in page.lines().filter_map(|line| line.strip_prefix("| ")) {
        // A first cell: GET, DELETE `/v1/limits?policy=&key=`
        let (methods, paths) =
            row.split(" | ").next().and_then(|cell| cell.split_once(" `")).unwrap_or_default();
        let is_method = |word: &&str| word.bytes().all(|byte| byte.is_ascii_uppercase());
        for path in paths.split('`').filter(|path| path.starts_with('/')) {
            let path = path.split('?').next().unwrap();
            found.extend(methods.split(", ").filter(is_method).map(|method| format!("{method} {path}")));
        }
    }
    found
}

#[test]
fn the_guide_lists_every_method_of_every_path() {
    let origin = Origin::ok();
    let tollgate = instance(&origin, "");
    let described = described(&tollgate);
    assert_eq!(documented(), described);
    assert!(described.contains("DELETE /v1/blocked/{ip}"), "{described:?}");
}

#[test]
fn whatever_is_described_is_described_in_full() {
    let origin = Origin::ok();
    let tollgate = instance(&origin, "");
    let description = authorized(&tollgate, "GET", "/v1/openapi.json").json();
    let is_said = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    let mut names = BTreeSet::new();
    for (path, item) in description["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let of = format!("{method} {path}");
            assert!(is_said(&operation["summary"]) && is_said(&operation["tags"][0]), "{of}");
            assert!(names.insert(operation["operationId"].as_str().unwrap()), "{of}: its name is taken");
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                assert!(is_said(&parameter["description"]), "{of}: {parameter}");
            }
            for (status, response) in operation["responses"].as_object().unwrap() {
                assert!(is_said(&response["description"]), "{of}: {status}");
                assert!(response["content"].is_object(), "{of}: {status}");
            }
        }
    }
    // Every reference has its target.
    let text = description.to_string();
    for name in text.split("\"#/components/schemas/").skip(1).filter_map(|rest| rest.split('"').next()) {
        assert!(description["components"]["schemas"][name].is_object(), "there is no {name}");
    }
    let led_to = text.split("\"links\":").skip(1).flat_map(|links| links.split("\"operationId\":\"").skip(1));
    for name in led_to.filter_map(|rest| rest.split('"').next()) {
        assert!(names.contains(name), "there is no {name}");
    }
}

#[test]
fn events_come_as_they_are_described() {
    let origin = Origin::ok();
    let tollgate = instance(&origin, "");
    let description = authorized(&tollgate, "GET", "/v1/openapi.json").json();
    let described = &description["paths"]["/v1/events"]["get"]["responses"]["200"]["content"];
    assert!(described["text/event-stream"].is_object(), "{described}");
    let mut client = Client::connect(tollgate.admin);
    client.send(format!("GET /v1/events HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {TOKEN}\r\n\r\n"));
    let head = client.head();
    assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
}

#[test]
fn every_change_by_an_operator_is_described() {
    let origin = origin();
    let tollgate = instance(&origin, &with_history(&origin));
    let incident = attack(&tollgate);
    let endpoint = format!("http://{}", origin.address);
    let keys = tollgate.directory().join("keys.csv");
    fs::write(&keys, "key,customer\na-key-of-a-customer,acme\n").unwrap();
    for command in [
        &["ban", "203.0.113.7", "--for", "1h"][..],
        &["unban", "203.0.113.7"],
        &["unblock", "127.0.0.1"],
        &["limits", "127.0.0.2", "--reset"],
        &["drain", "origin", &endpoint, "--force"],
        &["undrain", "origin", &endpoint],
        &["reload"],
        &["usage", "close", "2026-10"],
        &["alerts", "test"],
        &["incidents", "ban", &incident, "--for", "1h"],
        &["incidents", "unblock", &incident],
        &["incidents", "acknowledge", &incident],
        &["incidents", "mute", &incident, "--for", "1h"],
        &["keys", "create", "--customer", "acme", "--id", "a"],
        &["keys", "set", "a", "--name", "CI"],
        &["customers", "set", "acme", "--plan", "pro"],
        &["keys", "rotate", "a"],
        &["keys", "revoke", "a"],
        &["keys", "delete", "a"],
        &["keys", "import", keys.to_str().unwrap()],
    ] {
        let done = tollgate.command(&[command, &["--token", TOKEN]].concat());
        assert_eq!(done.code, Some(0), "{command:?}: {}", done.stderr);
    }
    let description = authorized(&tollgate, "GET", "/v1/openapi.json").json();
    let described = description["components"]["schemas"]["Action"]["enum"].as_array().unwrap();
    let audit = authorized(&tollgate, "GET", "/v1/audit?by=operator").json();
    let actions: Vec<_> = audit["entries"].as_array().unwrap().iter().map(|entry| &entry["action"]).collect();
    // `not_reloaded`, for a failed reload, is the only other one.
    assert!(described.contains(&"not_reloaded".into()));
    assert_eq!(actions.len(), described.len() - 1, "{audit}");
    for action in actions {
        assert!(described.contains(action), "{action}");
    }
}

#[test]
fn whatever_it_is_asked_it_answers_as_it_is_described() {
    let origin = Origin::ok();
    asked(&with_history(&origin));
}

/// The settings of a history, and of alerts that the origin is told.
fn with_history(origin: &Origin) -> String {
    format!(
        "history: {{ store: {{ file: history.db }} }}
alerts: [{{ when: usage, policy: hourly, at: [1%], to: \"http://{}/hook\" }}]
",
        origin.address
    )
}

#[test]
fn whatever_it_is_asked_of_a_shared_store_it_answers_as_it_is_described() {
    let redis = Redis::start();
    // A long timeout: on a busy machine the store must not seem unavailable, which would be a server error.
    asked(&format!("store: {{ redis: {{ url: \"{}\", timeout: 5s }} }}\n", redis.url()));
}

/// Lets schemathesis send an instance all kinds of requests that its description allows or forbids.
fn asked(store: &str) {
    const PHASES: [&str; 4] = ["Examples", "Coverage", "Fuzzing", "Stateful"];
    let Ok(directory) = env::var("SCHEMATHESIS") else {
        eprintln!("left out: `scripts/test` installs schemathesis and says where in SCHEMATHESIS");
        return;
    };
    let origin = origin();
    let tollgate = instance(&origin, store);
    attack(&tollgate);
    let seconds: u64 = env::var("SCHEMATHESIS_SECONDS").map_or(25, |seconds| seconds.parse().unwrap());
    // A busy machine does not get to all phases in that time.
    let has_all = [seconds, 6 * seconds].into_iter().any(|seconds| {
        let said = schemathesis(&directory, &tollgate, seconds);
        PHASES.iter().all(|phase| said.contains(&format!("✅ {phase}")))
    });
    assert!(has_all, "a phase was left out");
    assert_eq!(authorized(&tollgate, "GET", "/readyz").status, 200);
}

/// What it says after so many seconds at most.
fn schemathesis(directory: &str, tollgate: &Tollgate, seconds: u64) -> String {
    let mut schemathesis: Command = program("python3", "python3");
    let output = schemathesis
        .env("PYTHONPATH", directory)
        .current_dir(tollgate.directory())
        .arg(format!("{directory}/bin/schemathesis"))
        .arg("--config-file")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/schemathesis.toml"))
        .args(["run", "--checks", "all", "--max-time", &seconds.to_string(), "--request-timeout", "10"])
        .args(["--no-color", "--header", &format!("authorization: Bearer {TOKEN}")])
        // An unblock keeps the evidence: the address is still listed, as unblocked.
        .args(["--exclude-checks", "use_after_free"])
        // The stream of events never ends.
        .args(["--exclude-path", "/v1/events"])
        .arg(format!("http://{}/v1/openapi.json", tollgate.admin))
        .output()
        .unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    eprintln!("{said}");
    assert!(output.status.success(), "{:#?}", tollgate.log());
    said
}
