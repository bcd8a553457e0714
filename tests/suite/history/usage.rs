//! Usage: exactly what was served, by customer, plan, route, value, policy and time.

use std::{
    collections::BTreeMap,
    sync::Arc,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{has_requests, key_of, keys_file, prints, rows, send, start, usage};
use crate::harness::{Client, Config, Origin, Tollgate, becomes, eventually, get};

fn units(of: &[(&str, u64)]) -> BTreeMap<String, u64> {
    of.iter().map(|(policy, units)| ((*policy).to_owned(), *units)).collect()
}

const FILE: &str = "{ store: { file: history.db } }";

#[test]
fn each_request_counts_once_and_units_also_without_a_limit() {
    let origin = Origin::echo();
    let directory = TempDir::new().unwrap();
    let keys = keys_file(
        directory.path(),
        &[("acme", Some("free")), ("globex", Some("pro")), ("umbrella", None), ("initech", Some("free"))],
    );
    let rest = format!(
        "api_keys: {{ file: {keys}, required: false }}
plans:
  free: {{ monthly: 20/month }}
  pro: {{ monthly: unlimited, minutes: unlimited }}
policies:
  monthly: {{ algorithm: fixed_window, key: customer, limit: 1000/month, time_zone: Europe/Berlin }}
  minutes: {{ algorithm: sliding_window, key: [ip, customer], limit: 1000000/1m, exempt: [\"customer:umbrella\"] }}
  shadowed: {{ algorithm: fixed_window, key: ip, limit: 1/1h, mode: shadow }}
  slots: {{ algorithm: concurrency, key: ip, limit: 100, lease: 1m }}
routes:
  - {{ name: heavy, path: /heavy, upstream: api, policies: [{{ name: monthly, cost: 3 }}, minutes] }}
  - {{ name: own, path: /own, reply: {{ status: 204 }} }}
  - {{ name: all, path: /*, upstream: api, policies: [monthly, minutes, shadowed, slots] }}"
    );
    let tollgate = start(origin.address, FILE, &rest);
    let of = |customer, path, count| send(tollgate.address, customer, path, count);
    assert_eq!(of("acme", "/", 25), BTreeMap::from([(200, 20), (429, 5)]));
    assert_eq!(of("globex", "/", 30), BTreeMap::from([(200, 30)]));
    assert_eq!(of("globex", "/heavy", 4), BTreeMap::from([(200, 4)]));
    assert_eq!(of("umbrella", "/", 10), BTreeMap::from([(200, 10)]));
    assert_eq!(of("initech", "/heavy", 8), BTreeMap::from([(200, 6), (429, 2)]));
    assert_eq!(of("unknown", "/", 2), BTreeMap::from([(401, 2)]));
    for path in ["/own", "/nothing", "/"] {
        get(tollgate.address, path, &[]);
    }
    has_requests(&tollgate, 25 + 30 + 4 + 10 + 8 + 2 + 3);
    let by_customer = rows(&tollgate, "customer", "by=customer");
    assert_eq!(by_customer["acme"], (25, 5, units(&[("minutes", 20), ("monthly", 20)])));
    assert_eq!(by_customer["globex"], (34, 0, units(&[("minutes", 34), ("monthly", 42)])));
    assert_eq!(by_customer["umbrella"], (10, 0, units(&[("minutes", 10), ("monthly", 10)])));
    assert_eq!(by_customer["initech"], (8, 2, units(&[("minutes", 6), ("monthly", 18)])));
    assert_eq!(by_customer[""].0, 5);
    let by_route = rows(&tollgate, "route", "by=route");
    assert_eq!([by_route["all"].0, by_route["heavy"].0, by_route["own"].0], [69, 12, 1]);
    let by_plan = rows(&tollgate, "plan", "by=plan");
    assert_eq!([by_plan["free"].0, by_plan["pro"].0, by_plan[""].0], [33, 34, 15]);
    let statuses = usage(&tollgate, "by=status&customer=acme");
    let statuses: Vec<_> =
        statuses["rows"].as_array().unwrap().iter().map(|row| (&row["status"], &row["requests"])).collect();
    assert_eq!(statuses, [(&json!("2xx"), &json!(20)), (&json!("4xx"), &json!(5))]);
    let total = usage(&tollgate, "by=day");
    assert_eq!(total["zone"], "Europe/Berlin");
    let requests: u64 =
        total["rows"].as_array().unwrap().iter().map(|row| row["requests"].as_u64().unwrap()).sum();
    assert_eq!(requests, 82);

    // The commands print the same.
    prints(&tollgate.command(&["usage"]), &["CUSTOMER", "globex    34"]);
    let csv = tollgate.command(&["usage", "--csv", "--customer", "globex"]);
    prints(
        &csv,
        &["zone,from,to,state,late,customer,user,plan,route,value,day,hour,status,requests,denied,"],
    );
    let lines: Vec<&str> = csv.stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{}", csv.stdout);
    assert!(lines[1].contains(",globex,,,,,,,,34,0,0,34,0,0,0,,"), "{}", lines[1]);
    assert!(lines[3].ends_with(",monthly,42"), "{}", lines[3]);
    let wrong = tollgate.command(&["usage", "--by", "colour"]);
    assert_eq!(wrong.code, Some(2), "{}", wrong.stderr);
    let early = tollgate.command(&["usage", "close", "2999-01"]);
    assert_eq!(early.code, Some(1), "{}", early.stderr);
    assert!(early.stderr.contains("has not ended"), "{}", early.stderr);
}

#[test]
fn costs_that_responses_tell_are_usage_also_of_unlimited_plans() {
    let origin = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            conn.skip_body(&head)?;
            let body = r#"{"usage":{"total_tokens":120}}"#;
            conn.answer("200 OK", &[("content-type", "application/json")], body.as_bytes())?;
        }
        Ok(())
    });
    let directory = TempDir::new().unwrap();
    let keys = keys_file(directory.path(), &[("acme", Some("free")), ("globex", Some("pro"))]);
    let rest = format!(
        "api_keys: {{ file: {keys} }}
plans: {{ free: {{ tokens: 1000/1d }}, pro: {{ tokens: unlimited }} }}
values: {{ model: {{ json: model, groups: {{ big: [\"gpt-4o*\"], mini: [\"gpt-4o-mini*\"] }} }} }}
policies:
  tokens:
    algorithm: fixed_window
    key: [customer, \"customer+value:model\"]
    limit: 10/1d
    cost: {{ response: {{ preset: openai, ask: true }}, reserve: {{ json: [max_tokens], default: 50 }} }}
routes: [{{ path: /*, upstream: api, policies: [tokens] }}]"
    );
    let tollgate = start(origin.address, FILE, &rest);
    let ask = |customer: &str, model: &str| {
        let key = key_of(customer);
        let body = json!({ "model": model, "max_tokens": 100, "messages": [] }).to_string();
        let headers = [("x-api-key", key.as_str()), ("content-type", "application/json")];
        Client::connect(tollgate.address)
            .request("POST", "/v1/chat/completions", &headers, body.as_bytes())
            .status
    };
    let statuses: Vec<u16> = (0..10).map(|_| ask("acme", "gpt-4o")).collect();
    let admitted = statuses.iter().filter(|status| **status == 200).count() as u64;
    assert!(admitted < 10, "{statuses:?}");
    for model in ["gpt-4o", "gpt-4o-mini", "llama", "gpt-4o-mini"] {
        assert_eq!(ask("globex", model), 200);
    }
    has_requests(&tollgate, 14);
    eventually("all costs are settled", || {
        rows(&tollgate, "customer", "by=customer")["globex"].2 == units(&[("tokens", 480)])
    });
    assert_eq!(rows(&tollgate, "customer", "by=customer")["acme"].2, units(&[("tokens", admitted * 120)]));
    let by_model = rows(&tollgate, "value", "by=value&customer=globex");
    let of = |model: &str| (by_model[model].0, by_model[model].2["tokens"]);
    assert_eq!([of("big"), of("mini"), of("other")], [(1, 120), (2, 240), (1, 120)]);
}

#[test]
fn what_is_read_for_usage_alone_is_never_refused() {
    let origin = Origin::echo();
    let directory = TempDir::new().unwrap();
    let keys = keys_file(directory.path(), &[("globex", Some("pro"))]);
    let rest = format!(
        "api_keys: {{ file: {keys} }}
plans: {{ pro: {{ tokens: unlimited, names: unlimited }} }}
policies:
  tokens:
    algorithm: fixed_window
    key: customer
    limit: 10/1d
    cost:
      response: {{ preset: openai, ask: true }}
      reserve: {{ json: [max_tokens], default: 50 }}
      max_request: 64KiB
      most: 100
  names: {{ algorithm: distinct, key: customer, value: user, limit: 5/1d }}
routes: [{{ path: /*, upstream: api, policies: [tokens, names] }}]"
    );
    let tollgate = start(origin.address, FILE, &rest);
    let key = key_of("globex");
    let long = format!("{{\"messages\":[\"{}\"]}}", "a".repeat(100_000));
    let bodies: [(&str, &str, &str); 7] = [
        ("text/plain", "identity", "no JSON"),
        ("application/json", "identity", "{\"max_tokens\": \"abc\", \"messages\": []}"),
        ("application/json", "identity", "{\"max_tokens\": 5000, \"messages\": []}"),
        ("application/json", "identity", "{\"max_tokens\": 1, \"max_tokens\": 2}"),
        ("application/json", "gzip", "\u{1f}\u{8b}"),
        ("application/json", "identity", "{"),
        ("application/json", "identity", &long),
    ];
    for (kind, coding, body) in bodies {
        let headers = [("x-api-key", key.as_str()), ("content-type", kind), ("content-encoding", coding)];
        let reply = Client::connect(tollgate.address).request(
            "POST",
            "/v1/chat/completions",
            &headers,
            body.as_bytes(),
        );
        assert_eq!(reply.status, 200, "{kind} {coding} {body:.40}: {}", reply.text());
        assert_eq!(reply.json()["body_bytes"].as_u64(), Some(body.len() as u64), "{body:.40}");
    }
    has_requests(&tollgate, 7);
    eventually("each has cost what nobody tells", || {
        let found = rows(&tollgate, "customer", "by=customer")["globex"].2.clone();
        found.get("tokens").is_some_and(|tokens| *tokens >= 7 * 50) && !found.contains_key("names")
    });
}

#[test]
fn units_of_responses_that_do_not_count_are_no_usage() {
    let nth = Arc::new(AtomicUsize::new(0));
    let origin = Origin::start(move |conn| {
        while conn.head()?.is_some() {
            let status =
                if nth.fetch_add(1, SeqCst).is_multiple_of(3) { "401 Unauthorized" } else { "200 OK" };
            conn.answer(status, &[], b"")?;
        }
        Ok(())
    });
    let directory = TempDir::new().unwrap();
    let keys = keys_file(directory.path(), &[("acme", None), ("globex", Some("pro"))]);
    let rest = format!(
        "api_keys: {{ file: {keys} }}
plans: {{ pro: {{ failures: unlimited }} }}
policies:
  failures: {{ algorithm: fixed_window, key: customer, limit: 1000/1h, count: {{ statuses: [401] }} }}
  all: {{ algorithm: fixed_window, key: customer, limit: 1000/1h }}
routes: [{{ path: /*, upstream: api, policies: [failures, all] }}]"
    );
    let tollgate = start(origin.address, FILE, &rest);
    for customer in ["acme", "globex"] {
        send(tollgate.address, customer, "/", 30);
    }
    has_requests(&tollgate, 60);
    for customer in ["acme", "globex"] {
        let query = format!("by=customer&customer={customer}");
        eventually("it is settled", || {
            rows(&tollgate, "customer", &query)[customer].2 == units(&[("all", 30), ("failures", 10)])
        });
    }
}

#[test]
fn users_who_are_not_verified_are_one_row() {
    let origin = Origin::echo();
    let tollgate = Tollgate::start(Config::new(
        &[origin.address],
        "user: [{ header: x-user, from: trusted_proxies }, { header: x-claimed, from: anyone }]
trusted_proxies: [127.0.0.1]
history: { store: { file: history.db }, usage: [user] }",
    ));
    let mut client = Client::connect(tollgate.address);
    for (header, user, count) in [
        ("x-user", "ann", 3),
        ("x-user", "bob", 2),
        ("x-claimed", "eve", 4),
        ("x-claimed", "mallory", 1),
        ("x-none", "", 5),
    ] {
        for _ in 0..count {
            assert_eq!(client.request("GET", "/", &[(header, user)], b"").status, 200);
        }
    }
    has_requests(&tollgate, 15);
    let by_user = rows(&tollgate, "user", "by=user");
    let of = |user: &str| by_user[user].0;
    assert_eq!([of("ann"), of("bob"), of("(unverified)"), of("")], [3, 2, 5, 5]);
    assert_eq!(by_user.len(), 4);
}

#[test]
fn a_killed_process_loses_seconds_and_counts_nothing_twice() {
    let origin = Origin::echo();
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("history.db");
    let keys = keys_file(directory.path(), &[("acme", None)]);
    let history = format!("{{ store: {{ file: {} }} }}", file.display());
    let rest = format!("api_keys: {{ file: {keys} }}\nroutes: [{{ path: /*, upstream: api }}]");
    let first = start(origin.address, &history, &rest);
    send(first.address, "acme", "/", 100);
    has_requests(&first, 100);
    send(first.address, "acme", "/", 50);
    first.signal("KILL");
    drop(first);
    let second = start(origin.address, &history, &rest);
    send(second.address, "acme", "/", 7);
    let found = || rows(&second, "customer", "by=customer").get("acme").map_or(0, |row| row.0);
    eventually("the second process has written", || found() >= 107);
    let kept = found();
    assert!((107..=157).contains(&kept), "{kept}");
    // A clean end writes all.
    send(second.address, "acme", "/", 11);
    second.signal("TERM");
    let mut second = second;
    assert!(second.wait().success());
    let third = start(origin.address, &history, &rest);
    becomes(kept + 11, || rows(&third, "customer", "by=customer").get("acme").map_or(0, |row| row.0));
}

#[test]
fn a_configuration_that_can_keep_no_history_is_refused() {
    for (settings, said) in [
        (
            "history: { store: { file: h.db } }\nstore: { redis: { url: \"redis://127.0.0.1:1\" } }",
            "a history of its own",
        ),
        ("history: { store: { file: h.db, postgres: \"postgres://a@b/c\" } }", "exclude each other"),
        ("history: {}", "missing"),
        ("history: { store: { postgres: \"mysql://a@b/c\" } }", "scheme other than postgres"),
        ("history: { store: { file: h.db }, usage: [user] }\nabuse: { users: off }", "not recorded"),
        ("history: { store: { file: h.db }, value: model }", "is not one of `values`"),
    ] {
        let (code, stderr) = Tollgate::refuses(Config::new(&["127.0.0.1:1".parse().unwrap()], settings));
        assert_eq!(code, Some(78), "{settings}: {stderr}");
        assert!(stderr.contains(said), "{settings}: {stderr}");
    }
    let none = Tollgate::start(Config::new(&["127.0.0.1:1".parse().unwrap()], ""));
    let reply = none.admin("GET", "/v1/usage");
    assert_eq!(reply.status, 404);
    let detail: Value = reply.json();
    assert!(detail["detail"].as_str().unwrap().contains("no history is kept"), "{detail}");
}
