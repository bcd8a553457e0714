//! Incidents on real instances: attacks from many addresses behind a trusted proxy, refusals that are none, an office, and made-up
//! addresses.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::harness::{Client, Config, Deployment, Origin, Redis, Tollgate, eventually, on_each_store};

on_each_store!(addresses_that_guess_passwords_quietly_are_one_incident);

/// Nobody can log in without the right password, and tokens are refused if they have expired.
fn origin() -> Origin {
    Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            let lowered = head.to_lowercase();
            conn.skip_body(&head)?;
            let is_refused = head.contains(" /login ") && !lowered.contains("x-right: 1")
                || lowered.contains("bearer expired");
            conn.answer(if is_refused { "401 Unauthorized" } else { "200 OK" }, &[], b"")?;
        }
        Ok(())
    })
}

fn start(origin: &Origin, redis: Option<&str>) -> Tollgate {
    let store =
        redis.map_or_else(String::new, |redis| format!("store: {{ redis: {{ {redis}, timeout: 5s }} }}"));
    Tollgate::start(Config::yaml(format!(
        "
trusted_proxies: [127.0.0.0/8]
upstreams:
  origin: {{ endpoints: [\"http://{}\"] }}
policies:
  logins: {{ algorithm: fixed_window, key: ip, limit: 20/1h, exempt: [203.0.113.39] }}
  pages: {{ algorithm: fixed_window, key: ip, limit: 40/1h }}
routes:
  - {{ name: login, path: /login, upstream: origin, policies: [logins] }}
  - {{ name: api, path: /api/*, upstream: origin }}
  - {{ name: pages, path: /*, upstream: origin, policies: [pages] }}
{store}
",
        origin.address
    )))
}

/// Sends requests of many clients over one connection of a trusted proxy.
struct Proxy(Client);

impl Proxy {
    fn of(instance: &Tollgate) -> Self {
        Self(Client::connect(instance.address))
    }

    fn send(&mut self, client: &str, method: &str, path: &str, headers: &[(&str, &str)]) -> u16 {
        let all = [&[("x-forwarded-for", client)], headers].concat();
        self.0.request(method, path, &all, b"").status
    }
}

fn open(instance: &Tollgate) -> Vec<Value> {
    let list = instance.admin("GET", "/v1/incidents?open=true").json();
    list["incidents"].as_array().cloned().unwrap_or_default()
}

/// The only incident, once `is` holds of it on all instances, which call it the same.
fn incident(instances: &[&Tollgate], what: &str, is: impl Fn(&Value) -> bool) -> Value {
    let mut found = Value::Null;
    eventually(what, || {
        let all: Vec<_> = instances.iter().map(|instance| open(instance)).collect();
        let is_one =
            all.iter().all(|open| open.len() == 1 && open[0]["id"] == all[0][0]["id"] && is(&open[0]));
        if is_one {
            found = all[0][0].clone();
        }
        is_one
    });
    found
}

fn members(instance: &Tollgate, id: &str) -> Vec<Value> {
    let page = instance.admin("GET", &format!("/v1/incidents/{id}/members?limit=1000")).json();
    page["members"].as_array().cloned().unwrap()
}

fn addresses_that_guess_passwords_quietly_are_one_incident(redis: Option<&Deployment>) {
    let origin = origin();
    let redis = redis.map(Deployment::settings);
    let instances: Vec<_> =
        (0..if redis.is_some() { 2 } else { 1 }).map(|_| start(&origin, redis.as_deref())).collect();
    let all: Vec<_> = instances.iter().collect();
    let mut proxies: Vec<_> = all.iter().map(|instance| Proxy::of(instance)).collect();
    let attacker = |nth: usize| format!("203.0.113.{nth}");
    // Five of 40 are loud and denied in the end; each of the others fails three times.
    for attempt in 0..24 {
        for nth in 1..=40 {
            if attempt < 3 || nth <= 5 {
                let at = (attempt + nth) % proxies.len();
                let status = proxies[at].send(
                    &attacker(nth),
                    "POST",
                    "/login",
                    &[("user-agent", "python-requests/2.32.3")],
                );
                assert_eq!(status, if attempt < 20 { 401 } else { 429 }, "{nth} {attempt}");
            }
        }
    }
    // Two people mistype their passwords, and are let in then.
    let browser = ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:133.0) Gecko/20100101 Firefox/133.0");
    for person in ["198.51.100.1", "198.51.100.2"] {
        assert_eq!(proxies[0].send(person, "POST", "/login", &[browser]), 401);
        assert_eq!(proxies[0].send(person, "POST", "/login", &[browser, ("x-right", "1")]), 200);
    }
    // One of the attackers finds a password.
    assert_eq!(proxies[0].send(&attacker(40), "POST", "/login", &[]), 401);
    assert_eq!(proxies[0].send(&attacker(40), "POST", "/login", &[("x-right", "1")]), 200);

    let is_whole = |incident: &Value| {
        incident["addresses"] == 40
            && incident["denied_addresses"] == 5
            && incident["possible_takeovers"] == 1
    };
    let found = incident(&all, "40 addresses guess passwords, 5 of them denied", is_whole);
    assert_eq!(
        (&found["kind"], &found["attack"], &found["routes"]),
        (&json!("password guessing"), &json!(true), &json!(["login"])),
        "{found}"
    );
    let text = found["text"].as_str().unwrap();
    assert!(
        text.starts_with("40 addresses, POST /login, password guessing, ")
            && text.ends_with("; 5 were denied; one was let in after failing"),
        "{text}"
    );
    assert_eq!(found["network"]["prefix"], "203.0.113.0/24");
    let id = found["id"].as_str().unwrap().to_owned();
    for instance in &all {
        let members = members(instance, &id);
        assert_eq!(members.len(), 40, "{members:?}");
        assert_eq!(
            (&members[0]["address"], &members[0]["possible_takeover"]),
            (&json!("203.0.113.40"), &json!(true))
        );
        assert!(members.iter().all(|member| !member["address"].as_str().unwrap().starts_with("198.51")));
        let csv = instance.admin("GET", &format!("/v1/incidents/{id}/members?format=csv")).text();
        assert_eq!(csv.lines().count(), 41, "{csv}");
        let listed = instance.command(&["incidents"]).stdout;
        assert!(
            listed.contains(&id) && listed.contains("40 addresses, POST /login, password guessing"),
            "{listed}"
        );
        let shown = instance.command(&["incidents", &id]).stdout;
        assert!(
            shown.contains("addresses  40: 5 denied, 1 let in after failing")
                && shown.contains("203.0.113.40"),
            "{shown}"
        );
        let page = instance.admin("GET", "/").text();
        assert!(page.contains("40 addresses, POST /login"), "the overview begins with it");
        let page = instance.admin("GET", &format!("/incidents/{id}")).text();
        assert!(page.contains("203.0.113.40") && page.contains("let in after failing"), "{page}");
        assert!(instance.metric("tollgate_incidents{kind=\"password guessing\"}") >= 1.0);
    }

    // An act on all: the one who was let in, and the exempt address, are spared.
    let banned = all[0].command(&["incidents", "ban", &id, "--for", "1h"]);
    assert_eq!(banned.code, Some(0), "{banned:?}");
    assert_eq!(banned.stdout, "38 addresses are banned.\n203.0.113.39 is spared: exempt\n");
    for (client, status) in [(1, 403), (6, 403), (38, 403), (39, 401), (40, 401)] {
        eventually("it is banned at all instances, or is not", || {
            proxies.iter_mut().all(|proxy| proxy.send(&attacker(client), "POST", "/login", &[]) == status)
        });
    }
    let audit = all[0].admin("GET", "/v1/audit?limit=5").json();
    let entries: Vec<_> =
        audit["entries"].as_array().unwrap().iter().map(|entry| entry["action"].clone()).collect();
    assert_eq!(entries, ["ban_incident"], "one act is one entry");
    assert_eq!(all[0].command(&["incidents", "unblock", &id]).stdout, "38 addresses are unblocked.\n");
    eventually("all are let through again", || {
        proxies.iter_mut().all(|proxy| proxy.send(&attacker(6), "POST", "/login", &[]) == 401)
    });

    // What operators say of it is known everywhere.
    assert_eq!(
        all[0].command(&["incidents", "acknowledge", &id]).stdout,
        format!("Incident {id} is acknowledged.\n")
    );
    assert!(
        all[0]
            .command(&["incidents", "mute", &id, "--for", "1h"])
            .stdout
            .starts_with(&format!("Incident {id} is muted until "))
    );
    incident(&all, "it is acknowledged and muted", |incident| {
        incident["acknowledged"]["by"] == "operator at 127.0.0.1" && incident["muted_until"].is_string()
    });
    assert_eq!(all[0].command(&["incidents", "0a1b2c3d"]).code, Some(1));
}

#[test]
fn a_restarted_instance_knows_the_incident_from_redis() {
    let (origin, redis) = (origin(), Redis::start());
    let settings = format!("url: \"{}\"", redis.url());
    let first = start(&origin, Some(&settings));
    let mut proxy = Proxy::of(&first);
    for nth in (1..=30).cycle().take(120) {
        assert_eq!(proxy.send(&format!("203.0.113.{nth}"), "POST", "/login", &[]), 401);
    }
    let found = incident(&[&first], "30 addresses guess passwords", |incident| incident["addresses"] == 30);
    let id = found["id"].as_str().unwrap().to_owned();
    eventually("it is written", || {
        redis.cli(&["HGET", "ratelimit:{incidents}:ends", &id]).trim().parse().is_ok_and(|last: i64| last > 0)
    });
    drop(first);
    let second = start(&origin, Some(&settings));
    let read = incident(&[&second], "it is read", |incident| incident["addresses"] == 30);
    assert_eq!((read["id"].as_str(), members(&second, &id).len()), (Some(id.as_str()), 30));
}

#[test]
fn clients_with_an_expired_token_are_refusals_without_acts() {
    let origin = origin();
    let instance = start(&origin, None);
    let mut proxy = Proxy::of(&instance);
    for client in 0..2_000 {
        let address = format!("198.18.{}.{}", client / 250, client % 250 + 1);
        let path = format!("/api/{}", client % 38);
        let method = if client % 5 == 0 { "POST" } else { "GET" };
        assert_eq!(proxy.send(&address, method, &path, &[("authorization", "Bearer expired")]), 401);
    }
    let found = incident(&[&instance], "they are refusals", |incident| incident["addresses"] == 2_000);
    assert_eq!((&found["kind"], &found["attack"]), (&json!("refusals"), &json!(false)));
    let text = found["text"].as_str().unwrap();
    assert_eq!(text, "2,000 addresses get 401 on 38 paths: expired tokens, or a changed key?");
    let id = found["id"].as_str().unwrap();
    let refused = instance.command(&["incidents", "ban", id, "--for", "1h"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("these are refusals, and no attack"), "{refused:?}");
}

#[test]
fn an_office_is_called_one_and_a_scraper_is_not() {
    let origin = origin();
    let instance = start(&origin, None);
    let mut proxy = Proxy::of(&instance);
    let browser =
        "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/131.0.0.0 Safari/537.36";
    let (mut office, mut script) = (Vec::new(), Vec::new());
    for nth in 0..240 {
        let cookie = format!("theme=dark; sessionid=c0ffee-of-person-{}", nth % 30);
        let fields = [
            ("user-agent", browser),
            ("cookie", &*cookie),
            ("sec-fetch-dest", "document"),
            ("accept", "text/html"),
        ];
        office.push(proxy.send("192.0.2.30", "GET", &format!("/products/{nth}"), &fields));
        script.push(proxy.send(
            "192.0.2.31",
            "GET",
            &format!("/products/{nth}"),
            &[("user-agent", "curl/8.5.0")],
        ));
        thread::sleep(Duration::from_millis(35));
    }
    assert!(office.contains(&429) && script.contains(&429));
    let told = |address: &str, hint: &str| {
        let mut found = Value::Null;
        eventually(&format!("{address} is called {hint}"), || {
            found = instance.admin("GET", &format!("/v1/blocked/{address}")).json();
            found["denied"] == 200 && found["hint"] == hint
        });
        found
    };
    let found = told("192.0.2.30", "shared address");
    let reason = found["hint_reason"].as_str().unwrap();
    assert!(
        reason.starts_with("an office or a carrier: about ")
            && reason.contains(" sessions, one User-Agent, "),
        "{reason}"
    );
    assert!(found["hint_advice"].as_str().unwrap().contains("Limit by user or session"), "{found}");
    let found = told("192.0.2.31", "scraping");
    let reason = found["hint_reason"].as_str().unwrap();
    assert!(
        reason.contains("; one client, ") && reason.contains("with the User-Agent of a program"),
        "{reason}"
    );
    assert!(open(&instance).is_empty());
}

#[test]
fn made_up_addresses_neither_hide_an_attack_nor_grow_memory() {
    let origin = origin();
    let instance = start(&origin, None);
    let mut proxy = Proxy::of(&instance);
    for attempt in 0..4 {
        for nth in 1..=30 {
            let agent = format!("Mozilla/5.0 (made up {attempt} {nth})");
            let status = proxy.send(&format!("203.0.113.{nth}"), "POST", "/login", &[("user-agent", &agent)]);
            assert_eq!(status, 401);
        }
    }
    incident(&[&instance], "30 addresses guess passwords", |incident| incident["addresses"] == 30);
    let before = instance.resident_kib();
    // Each from another /64 of one provider, with another User-Agent and another cookie.
    let begun = Instant::now();
    for nth in 0..40_000_u32 {
        let client = format!("2001:db8:{:x}:{:x}::1", nth >> 16, nth & 0xffff);
        let fields = [
            ("authorization", "Bearer expired"),
            ("user-agent", &*format!("agent {nth}")),
            ("cookie", &*format!("sid=made-up-{nth}")),
        ];
        assert_eq!(proxy.send(&client, "GET", "/api/a", &fields), 401);
    }
    println!("{:?} for the flood", begun.elapsed());
    let mut found = Vec::new();
    eventually("the refusals are told as well", || {
        found = open(&instance);
        found.len() == 2
    });
    let guessing = found.iter().find(|incident| incident["kind"] == "password guessing").unwrap();
    assert_eq!(guessing["addresses"], 30, "{guessing}");
    let refusals = found.iter().find(|incident| incident["kind"] == "refusals").unwrap();
    let addresses = refusals["addresses"].as_u64().unwrap();
    assert!((30_000..=52_000).contains(&addresses), "{refusals}");
    let grown = instance.resident_kib().saturating_sub(before);
    assert!(grown < 80 << 10, "{grown} KiB");
}
