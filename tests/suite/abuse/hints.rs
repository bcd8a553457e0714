//! What limited clients are said to be: a client of each kind, and what the admin port, the page and the commands call it.

use std::{net::IpAddr, thread, time::Duration};

use serde_json::Value;

use crate::harness::{Client, Config, Deployment, Origin, Tollgate, eventually, on_each_store};

on_each_store!(each_kind_of_client_is_named_for_what_it_is);

/// Clients, and how many requests of each are admitted.
const FLOOD: &str = "127.3.0.1";
const SCRAPER: &str = "127.3.0.2";
const GUESSER: &str = "127.3.0.3";
const STUFFER: &str = "127.3.0.4";
const OFFICE: &str = "127.3.0.5";
const OTHER: &str = "127.3.0.6";
const LIMIT: usize = 10;

/// One where nobody can log in.
fn origin() -> Origin {
    Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            conn.skip_body(&head)?;
            let status = if head.contains(" /login ") { "401 Unauthorized" } else { "200 OK" };
            conn.answer(status, &[], b"")?;
        }
        Ok(())
    })
}

fn start(origin: &Origin, redis: Option<&Deployment>) -> Tollgate {
    let store = redis.map_or_else(String::new, |redis| {
        format!("store: {{ redis: {{ {}, timeout: 5s }} }}", redis.settings())
    });
    Tollgate::start(Config::yaml(format!(
        "
user: [{{ header: x-user-id, from: anyone }}]
upstreams:
  origin: {{ endpoints: [\"http://{}\"] }}
policies:
  per-ip: {{ algorithm: single_counter, key: ip, limit: {LIMIT}/1h }}
routes:
  - {{ path: /static/*, upstream: origin }}
  - {{ path: /*, upstream: origin, policies: [per-ip] }}
{store}
",
        origin.address
    )))
}

/// Sends so many requests from `source`, in turn to these instances, and says how many were denied. `request`: the method,
/// the path and the user of each.
fn send(
    instances: &[&Tollgate],
    source: &str,
    count: usize,
    request: impl Fn(usize) -> (&'static str, String, String),
) -> usize {
    let source: IpAddr = source.parse().unwrap();
    let connect = |instance: &&Tollgate| Client::connect_from(source, instance.address);
    let mut clients: Vec<_> = instances.iter().map(connect).collect();
    let mut denied = 0;
    for n in 0..count {
        let (method, path, user) = request(n);
        let headers: &[(&str, &str)] = if user.is_empty() { &[] } else { &[("x-user-id", &user)] };
        let at = n % clients.len();
        denied += usize::from(clients[at].request(method, &path, headers, b"").status == 429);
    }
    denied
}

/// What is told of an address, once it is called this.
fn told(instance: &Tollgate, address: &str, denied: usize, hint: &str) -> Value {
    let mut found = Value::Null;
    eventually(&format!("{address} is called {hint}"), || {
        found = instance.admin("GET", &format!("/v1/blocked/{address}")).json();
        found["denied"] == denied && found["hint"] == hint
    });
    found
}

fn each_kind_of_client_is_named_for_what_it_is(redis: Option<&Deployment>) {
    let origin = origin();
    let instances: Vec<_> = (0..if redis.is_some() { 2 } else { 1 }).map(|_| start(&origin, redis)).collect();
    let all: Vec<_> = instances.iter().collect();
    let user = |name: &str, n: usize| format!("{name}-{n}");
    let none = String::new;
    let clients = [
        (FLOOD, "flood", send(&all, FLOOD, 600, |_| ("GET", "/search?q=a".into(), none()))),
        (
            SCRAPER,
            "scraping",
            send(&all, SCRAPER, 120, |n| {
                // It is what it does for a while that tells it from a page with many parts.
                thread::sleep(Duration::from_millis(35));
                ("GET", format!("/products/{n}"), "trial".into())
            }),
        ),
        (
            GUESSER,
            "password guessing",
            send(&all, GUESSER, 40, |n| ("POST", "/login".into(), user("victim", n % 2))),
        ),
        (
            STUFFER,
            "credential stuffing",
            send(&all, STUFFER, 60, |n| ("POST", "/login".into(), user("leaked", n))),
        ),
        (
            OFFICE,
            "shared address",
            send(&all, OFFICE, 120, |n| ("GET", format!("/orders/{}", n % 7), user("colleague", n % 40))),
        ),
        (OTHER, "unknown", send(&all, OTHER, LIMIT + 5, |_| ("GET", "/a".into(), user("acme", 0)))),
    ];
    // What no policy limits is no part of it.
    send(&all, OTHER, 600, |_| ("GET", "/static/logo.png".into(), none()));
    for (address, hint, denied) in clients {
        assert!(denied > 0, "{address}");
        for instance in &all {
            told(instance, address, denied, hint);
        }
        eventually("all instances give the same reasons", || {
            let reason = |instance: &Tollgate| {
                instance.admin("GET", &format!("/v1/blocked/{address}")).json()["hint_reason"].clone()
            };
            all.iter().all(|instance| reason(instance) == reason(all[0]))
        });
        for instance in &all {
            let listed = instance.admin("GET", &format!("/v1/blocked?hint={}", hint.replace(' ', "%20")));
            let listed = listed.json()["blocked"].clone();
            assert!(listed.as_array().unwrap().iter().all(|found| found["hint"] == hint), "{listed}");
            assert!(listed.as_array().unwrap().iter().any(|found| found["address"] == address), "{listed}");
            let page = instance.admin("GET", &format!("/blocked/{address}")).text();
            assert!(page.contains(&format!(">{hint}<")), "{page}");
            assert!(instance.command(&["blocked"]).stdout.contains(hint));
        }
    }
    let stuffer = told(all[0], STUFFER, 60 - LIMIT, "credential stuffing");
    let reason = stuffer["hint_reason"].as_str().unwrap();
    assert!(reason.ends_with(" users, 100 % of answers 401 or 403, all to /login"), "{reason}");
    let top = all[0].command(&["top"]).stdout;
    assert!(top.contains("credential stuffing") && top.contains("shared address"), "{top}");
}
