//! A route whose requests several upstreams share.

use std::fs;

use serde_json::json;

use crate::harness::{Client, Config, Origin, Tollgate, eventually, get, request};

/// Two upstreams, of which the second has a policy.
fn config(stable: &Origin, canary: &Origin, route: &str) -> String {
    format!(
        "
workers: 1
policies:
  canary: {{ algorithm: fixed_window, key: global, limit: 100000/1h, reply: {{ status: 403 }} }}
upstreams:
  stable: {{ endpoints: [\"http://{}\"] }}
  canary: {{ endpoints: [\"http://{}\"], policies: [canary] }}
routes:
  - {{ name: all, path: /*, {route} }}
",
        stable.address, canary.address
    )
}

fn split(stable: u32, canary: u32) -> String {
    format!("upstreams: [{{ name: stable, weight: {stable} }}, {{ name: canary, weight: {canary} }}]")
}

/// The answer of every request says who has answered it.
fn origins() -> [Origin; 2] {
    ["stable", "canary"].map(|name| {
        Origin::start(move |conn| {
            while conn.head()?.is_some() {
                conn.answer("200 OK", &[], name.as_bytes())?;
            }
            Ok(())
        })
    })
}

fn by(tollgate: &Tollgate, user: &str) -> String {
    get(tollgate.address, "/", &[("cookie", &format!("user={user}"))]).text()
}

#[test]
fn each_upstream_gets_its_share() {
    let [stable, canary] = origins();
    let tollgate = Tollgate::start(Config::yaml(config(&stable, &canary, &split(90, 10))));
    let mut client = Client::connect(tollgate.address);
    let requests = 2_000;
    for _ in 0..requests {
        assert_eq!(client.request("GET", "/", &[], b"").status, 200);
    }
    let share = canary.heads().len();
    // 200, and six standard deviations.
    assert!((120..=280).contains(&share), "{share} of {requests}");
    assert_eq!(stable.heads().len() + share, requests);

    let metrics = tollgate.admin("GET", "/metrics").text();
    let line = format!("tollgate_upstream_requests_total{{upstream=\"canary\",result=\"ok\"}} {share}");
    assert!(metrics.contains(&line), "{metrics}");
    let routes = tollgate.admin("GET", "/v1/routes").json();
    assert_eq!(
        routes["routes"][0]["upstreams"],
        json!([{ "name": "stable", "weight": 90 }, { "name": "canary", "weight": 10 }])
    );
    assert_eq!(routes["routes"][0]["policies"], json!(["canary"]));
    let upstreams = tollgate.admin("GET", "/v1/upstreams").json();
    assert_eq!(upstreams["upstreams"][0]["policies"], json!([]));
    assert_eq!(upstreams["upstreams"][1]["policies"], json!(["canary"]));
}

#[test]
fn a_weight_of_0_gets_nothing_until_a_reload_raises_it() {
    let [stable, canary] = origins();
    let tollgate = Tollgate::start(Config::yaml(config(&stable, &canary, &split(1, 0))));
    for _ in 0..50 {
        assert_eq!(get(tollgate.address, "/", &[]).text(), "stable");
    }
    let file = tollgate.directory().join("proxy.yaml");
    let yaml = fs::read_to_string(&file).unwrap();
    fs::write(&file, yaml.replace(&split(1, 0), &split(0, 1))).unwrap();
    let reloaded = tollgate.admin("POST", "/v1/reload");
    assert!(reloaded.text().contains("route all: upstreams"), "{}", reloaded.text());
    eventually("the other takes over", || get(tollgate.address, "/", &[]).text() == "canary");
    for _ in 0..20 {
        assert_eq!(get(tollgate.address, "/", &[]).text(), "canary");
    }
}

#[test]
fn policies_of_the_chosen_upstream_hold() {
    let [stable, canary] = origins();
    let yaml = config(&stable, &canary, &split(1, 1)).replace("100000/1h", "1/1h");
    let tollgate = Tollgate::start(Config::yaml(yaml));
    // The canary admits one request; those to the other upstream are not limited.
    let mut client = Client::connect(tollgate.address);
    let statuses: Vec<u16> = (0..60).map(|_| client.request("GET", "/", &[], b"").status).collect();
    assert_eq!(canary.heads().len(), 1, "{statuses:?}");
    let denied = statuses.iter().filter(|status| **status == 403).count();
    assert_eq!(stable.heads().len(), 59 - denied);
    assert!(denied > 5 && stable.heads().len() > 5, "{statuses:?}");
}

#[test]
fn a_key_keeps_a_client_at_one_upstream() {
    let [stable, canary] = origins();
    let route = format!("{}, split_by: \"cookie:user\"", split(70, 30));
    let yaml = config(&stable, &canary, &route);
    let tollgate = Tollgate::start(Config::yaml(yaml.as_str()));
    let users: Vec<String> = (0..200).map(|user| format!("user-{user}")).collect();
    let first: Vec<String> = users.iter().map(|user| by(&tollgate, user)).collect();
    let share = first.iter().filter(|upstream| *upstream == "canary").count();
    assert!((30..=90).contains(&share), "{share} of 200");
    let again: Vec<String> = users.iter().map(|user| by(&tollgate, user)).collect();
    assert_eq!(first, again);
    // Without a cookie, the address decides.
    let anonymous = get(tollgate.address, "/", &[]).text();
    assert!((0..20).all(|_| get(tollgate.address, "/", &[]).text() == anonymous));

    // Another instance decides alike. With a larger share some come, and none goes.
    let larger = Tollgate::start(Config::yaml(yaml.replace(&split(70, 30), &split(40, 60))));
    let more: Vec<String> = users.iter().map(|user| by(&larger, user)).collect();
    let gone = first.iter().zip(&more).filter(|(before, after)| *before == "canary" && *after == "stable");
    assert_eq!(gone.count(), 0);
    let share = more.iter().filter(|upstream| *upstream == "canary").count();
    assert!((85..=155).contains(&share), "{share} of 200");
}

#[test]
fn explain_names_the_upstream() {
    let [stable, canary] = origins();
    let explain = |route: &str, user: &str| {
        let tollgate = Tollgate::start(Config::yaml(config(&stable, &canary, route)));
        let asked = json!({ "url": "/", "headers": { "host": "a", "cookie": format!("user={user}") } });
        let json = [("content-type", "application/json")];
        let explained =
            request(tollgate.admin, "POST", "/v1/explain", &json, asked.to_string().as_bytes()).json();
        (explained, by(&tollgate, user))
    };
    let (explained, _) = explain(&split(5, 95), "x");
    assert_eq!(explained["upstream"], "canary");
    let why = explained["route"]["because"].as_str().unwrap();
    assert_eq!(why, "the path matches /*; of 100 requests go 5 to stable, 95 to canary, at random");
    assert_eq!(explained["checks"][0]["policy"], "canary", "{explained}");

    for user in ["a", "b", "c", "d"] {
        let route = format!("{}, split_by: \"cookie:user\"", split(1, 1));
        let (explained, upstream) = explain(&route, user);
        assert_eq!(explained["upstream"], upstream);
        let why = explained["route"]["because"].as_str().unwrap();
        assert!(why.ends_with("of 2 go 1 to stable, 1 to canary, chosen by cookie:user"), "{why}");
    }
}
