//! What was used and who was denied, asked later: of a file, and of PostgreSQL.

mod alerts;
mod customers;
mod denials;
mod faults;
mod usage;

use std::{collections::BTreeMap, net::SocketAddr, path::Path};

use serde_json::Value;

use crate::harness::{Client, Config, Ended, Tollgate, eventually};

/// Keys of customers in a file.
fn keys_file(directory: &Path, customers: &[(&str, Option<&str>)]) -> String {
    let key = |(customer, plan): &(&str, Option<&str>)| {
        let plan = plan.map(|plan| format!(", plan: {plan}")).unwrap_or_default();
        format!(
            "  - {{ id: {customer}, hash: \"{}\", customer: {customer}{plan} }}\n",
            hash(&key_of(customer))
        )
    };
    let path = directory.join("keys.yaml");
    std::fs::write(&path, format!("keys:\n{}", customers.iter().map(key).collect::<String>())).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The key of a customer.
fn key_of(customer: &str) -> String {
    format!("the-key-of-the-customer-{customer}")
}

fn hash(key: &str) -> String {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(key.as_bytes());
    format!("sha256:{}", digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

/// A Tollgate in front of the upstream `api` at `origin`. `history`: the setting's value.
fn start(origin: SocketAddr, history: &str, rest: &str) -> Tollgate {
    Tollgate::start(config(origin, history, rest))
}

fn config(origin: SocketAddr, history: &str, rest: &str) -> Config {
    Config::yaml(format!(
        "upstreams: {{ api: {{ endpoints: [\"http://{origin}\"] }} }}\nhistory: {history}\n{rest}\n"
    ))
}

/// The statuses of requests for `path` with the key of `customer`, one after the other.
fn send(address: SocketAddr, customer: &str, path: &str, count: usize) -> BTreeMap<u16, usize> {
    let mut client = Client::connect(address);
    let key = key_of(customer);
    let mut statuses = BTreeMap::new();
    for _ in 0..count {
        let status = client.request("GET", path, &[("x-api-key", &key)], b"").status;
        *statuses.entry(status).or_default() += 1;
    }
    statuses
}

/// `/v1/usage` with this query.
#[track_caller]
fn usage(tollgate: &Tollgate, query: &str) -> Value {
    let reply = tollgate.admin("GET", &format!("/v1/usage?limit=1000&{query}"));
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

/// The rows by `key`: requests, denied ones, and the units of each policy.
#[track_caller]
fn rows(tollgate: &Tollgate, key: &str, query: &str) -> BTreeMap<String, (u64, u64, BTreeMap<String, u64>)> {
    let usage = usage(tollgate, query);
    let row = |row: &Value| {
        let units = row["units"].as_array().unwrap().iter();
        let units =
            units.map(|of| (of["policy"].as_str().unwrap().to_owned(), of["units"].as_u64().unwrap()));
        let counts = [&row["requests"], &row["denied"]].map(|count| count.as_u64().unwrap());
        (row[key].as_str().unwrap().to_owned(), (counts[0], counts[1], units.collect()))
    };
    usage["rows"].as_array().unwrap().iter().map(row).collect()
}

/// Waits until so many requests are in the history.
#[track_caller]
fn has_requests(tollgate: &Tollgate, expected: u64) {
    let mut found = 0;
    eventually(&format!("{expected} requests are in the history"), || {
        let reply = tollgate.admin("GET", "/v1/usage?by=route&limit=1000");
        if reply.status == 200 {
            found = reply.json()["rows"]
                .as_array()
                .unwrap()
                .iter()
                .map(|row| row["requests"].as_u64().unwrap())
                .sum();
        }
        assert!(found <= expected, "{found} of {expected}");
        found == expected
    });
}

#[track_caller]
fn prints(ended: &Ended, expected: &[&str]) {
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    for part in expected {
        assert!(ended.stdout.contains(part), "{part:?} is not in:\n{}", ended.stdout);
    }
}
