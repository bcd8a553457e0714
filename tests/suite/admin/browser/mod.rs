//! The page in a real browser.

mod keys;
mod look;
mod outages;
mod peaks;
mod sign_in;
mod work;

use crate::harness::{Browser, Client, Config, Origin, Tollgate, eventually, request};

/// Limits all requests by address, three per hour; users are not verified. `rest`: more YAML at the top level.
fn start(origin: &Origin, rest: &str) -> Tollgate {
    let policies = "
user: [{ header: x-user-id, from: anyone }]
policies:
  inspect: { algorithm: metadata_list, key: ip, limit: 3/1h }
  trial: { algorithm: gcra, key: user, limit: 1/1m, mode: shadow }
";
    let upstream = format!("\"http://{}\"", origin.address);
    Tollgate::start(Config::yaml(format!(
        "{policies}{rest}
upstreams:
  origin: {{ endpoints: [{upstream}], policies: [inspect, trial] }}
routes:
  - {{ name: orders, path: /orders/*, upstream: origin }}
  - {{ name: all, path: /*, upstream: origin }}
"
    )))
}

/// Sends a request as each of `users`, from one address over one connection.
fn ask_as(tollgate: &Tollgate, source: &str, users: &[&str]) -> Vec<u16> {
    let mut client = Client::connect_from(source.parse().unwrap(), tollgate.address);
    users.iter().map(|user| client.request("GET", "/orders/7", &[("x-user-id", user)], b"").status).collect()
}

/// Sends requests of `users` until `source` is limited, and waits until the admin port lists it.
#[track_caller]
fn limit(tollgate: &Tollgate, source: &str, users: &[&str]) {
    assert_eq!(ask_as(tollgate, source, users).last(), Some(&429));
    eventually("it is listed", || tollgate.admin("GET", &format!("/v1/blocked/{source}")).status == 200);
}

/// Bans a key for a week.
#[track_caller]
fn ban(tollgate: &Tollgate, key: &str) {
    let ban = serde_json::json!({"key": key, "for": "7d", "reason": "scraping", "force": true}).to_string();
    let fields = [("content-type", "application/json")];
    let reply = request(tollgate.admin, "POST", "/v1/bans", &fields, ban.as_bytes());
    assert_eq!(reply.status, 201, "{}", reply.text());
}

/// Asserts that the browser logged no errors.
#[track_caller]
fn is_content(browser: &Browser) {
    let logged = browser.logged();
    assert!(logged.is_empty(), "{logged:#?}");
}
