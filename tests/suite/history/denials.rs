//! Why somebody was refused, asked later.

use serde_json::Value;
use tempfile::TempDir;

use super::{keys_file, prints, send, start};
use crate::harness::{Client, Origin, Tollgate, eventually, get_from, request};

/// `/v1/denials` with this query.
#[track_caller]
fn denials(tollgate: &Tollgate, query: &str) -> Vec<Value> {
    let reply = tollgate.admin("GET", &format!("/v1/denials?{query}"));
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["denials"].as_array().unwrap().clone()
}

fn count(rows: &[Value]) -> u64 {
    rows.iter().map(|row| row["count"].as_u64().unwrap()).sum()
}

#[test]
fn each_denial_is_found_with_its_reason() {
    let origin = Origin::echo();
    let directory = TempDir::new().unwrap();
    let keys = keys_file(directory.path(), &[("acme", Some("free")), ("globex", None)]);
    let rest = format!(
        "api_keys: {{ file: {keys} }}
plans: {{ free: {{ per-hour: 5/1h }} }}
policies:
  per-hour: {{ algorithm: fixed_window, key: customer, limit: 10/1h }}
  tenants: {{ algorithm: fixed_window, key: \"header:x-tenant\", limit: 10/1h, missing: deny }}
  anybody: {{ algorithm: fixed_window, key: ip, limit: 3/1h }}
routes:
  - {{ name: closed, path: /closed, upstream: api, deny: [127.0.0.5] }}
  - {{ name: tenants, path: /tenants, upstream: api, policies: [tenants], require: none }}
  - {{ name: open, path: /open, upstream: api, policies: [anybody], require: none }}
  - {{ name: orders, path: /*, upstream: api, policies: [per-hour] }}"
    );
    let tollgate = start(origin.address, "{ store: { file: history.db } }", &rest);
    assert_eq!(send(tollgate.address, "acme", "/v1/orders", 36)[&429], 31);
    assert_eq!(send(tollgate.address, "globex", "/v1/orders", 12)[&429], 2);
    assert_eq!(send(tollgate.address, "nobody", "/v1/orders", 4)[&401], 4);
    for _ in 0..5 {
        get_from("127.0.0.7", tollgate.address, "/open", &[]);
        get_from("127.0.0.5", tollgate.address, "/closed", &[]);
    }
    assert_eq!(request(tollgate.address, "POST", "/tenants", &[], b"").status, 429);
    let ban = r#"{"key":"ip:127.0.0.9","for":"1h","reason":"abuse of acme"}"#;
    let json = [("content-type", "application/json")];
    assert!(request(tollgate.admin, "POST", "/v1/bans", &json, ban.as_bytes()).status < 300);
    for _ in 0..3 {
        assert_eq!(get_from("127.0.0.9", tollgate.address, "/open", &[]).status, 403);
    }
    eventually("all denials are in the history", || {
        count(&denials(&tollgate, "limit=1000")) == 31 + 2 + 4 + 2 + 5 + 1 + 3
    });

    let acme = denials(&tollgate, "customer=acme");
    assert_eq!(count(&acme), 31);
    let row = &acme[0];
    for (member, value) in [
        ("policy", "per-hour"),
        ("limit", "5/1h"),
        ("plan", "free"),
        ("route", "orders"),
        ("method", "GET"),
        ("kind", "limit"),
        ("address", "127.0.0.1"),
    ] {
        assert_eq!(row[member], value, "{row}");
    }
    assert_eq!((&row["sample"]["path"], &row["sample"]["status"]), (&"/v1/orders".into(), &429.into()));
    assert_eq!(denials(&tollgate, "customer=globex")[0]["limit"], "10/1h");
    let of_kind = |query: &str, kind: &str| {
        let rows = denials(&tollgate, query);
        count(&rows.into_iter().filter(|row| row["kind"] == kind).collect::<Vec<_>>())
    };
    assert_eq!(of_kind("status=401", "credential"), 4);
    assert_eq!(of_kind("address=127.0.0.5", "deny"), 5);
    assert_eq!(of_kind("address=127.0.0.0/28", "ban"), 3);
    assert_eq!(of_kind("policy=tenants", "unidentified"), 1);
    assert_eq!(count(&denials(&tollgate, "route=open")), 5);
    assert!(denials(&tollgate, "to=2026-01-01T00:00:00Z").is_empty());
    // Page by page.
    let first = tollgate.admin("GET", "/v1/denials?limit=2").json();
    let second = tollgate
        .admin("GET", &format!("/v1/denials?limit=1000&cursor={}", first["cursor"].as_str().unwrap()))
        .json();
    let all = [first, second].map(|page| page["denials"].as_array().unwrap().clone()).concat();
    assert_eq!(count(&all), 48);

    // The sample's request is found again by its ID.
    let id = row["sample"]["request_id"].as_str().unwrap();
    prints(
        &tollgate.command(&["why", "--request", id]),
        &["31 requests of acme, such as GET /v1/orders, were denied by per-hour (5/1h, plan free)"],
    );
    prints(&tollgate.command(&["why", "--request", "another"]), &["No denied request with this ID is kept"]);
    let why = tollgate.command(&["why", "--customer", "acme"]);
    prints(&why, &["31 requests of acme", "Meanwhile:", "ban ip:127.0.0.9"]);
    prints(
        &tollgate.command(&["why", "--address", "127.0.0.9"]),
        &["3 requests of 127.0.0.9, such as GET /open, were refused by an operator's ban"],
    );
    prints(&tollgate.command(&["why", "--customer", "initech"]), &["No request was denied."]);
    let wrong = tollgate.command(&["why", "--at", "yesterday"]);
    assert_eq!(wrong.code, Some(2), "{}", wrong.stderr);
}

#[test]
fn what_a_client_makes_long_or_strange_is_kept_within_bounds() {
    let origin = Origin::echo();
    let tollgate = start(
        origin.address,
        "{ store: { file: history.db } }",
        "policies: { none: { algorithm: fixed_window, key: ip, limit: 1/1h } }
routes: [{ path: /*, upstream: api, policies: [none] }]",
    );
    let long = format!("/{}", "a%C3%A9".repeat(200));
    let agent = "x".repeat(5_000);
    let mut client = Client::connect(tollgate.address);
    for nth in 0..50 {
        let method = format!("M{nth}");
        client.request(&method, &long, &[("user-agent", &agent)], b"");
    }
    eventually("they are in the history", || count(&denials(&tollgate, "limit=1000")) == 49);
    let rows = denials(&tollgate, "limit=1000");
    assert!(rows.len() <= 2, "a minute may have ended: {rows:?}");
    assert_eq!(rows[0]["method"], "OTHER");
    for member in ["path", "user_agent"] {
        assert!(rows[0]["sample"][member].as_str().unwrap().len() <= 256, "{rows:?}");
    }
}
