//! Endpoints that take no new requests: by configuration, and by operators on all instances.

use std::{
    fs,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::harness::{
    Client, Config, Deployment, Origin, Redis, Relay, Reply, Tollgate, becomes, eventually, get,
    on_each_topology, request,
};

on_each_topology!(a_drain_holds_on_every_instance_and_outlasts_them);

/// Two origins, and an instance before both. `rest` stands in the configuration.
fn instance(origins: &[Origin], rest: &str) -> Tollgate {
    let addresses: Vec<_> = origins.iter().map(|origin| origin.address).collect();
    Tollgate::start(Config::new(&addresses, rest))
}

fn origins() -> [Origin; 2] {
    [Origin::ok(), Origin::ok()]
}

fn url(origin: &Origin) -> String {
    format!("http://{}", origin.address)
}

fn drain(tollgate: &Tollgate, origin: &Origin, more: &Value) -> Reply {
    let mut body = json!({"upstream": "origin", "endpoint": url(origin)});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let fields = [("content-type", "application/json")];
    request(tollgate.admin, "POST", "/v1/drains", &fields, body.to_string().as_bytes())
}

fn undrain(tollgate: &Tollgate, origin: &Origin) -> Reply {
    let target = format!("/v1/drains?upstream=origin&endpoint={}", url(origin));
    let fields = [("content-type", "application/json")];
    request(tollgate.admin, "DELETE", &target, &fields, b"")
}

/// How an endpoint stands, as `/v1/upstreams` has it.
fn endpoint(tollgate: &Tollgate, origin: &Origin) -> Value {
    let upstreams = tollgate.admin("GET", "/v1/upstreams").json();
    let endpoints = upstreams["upstreams"][0]["endpoints"].as_array().unwrap();
    endpoints.iter().find(|endpoint| endpoint["url"] == url(origin)).unwrap().clone()
}

fn state(tollgate: &Tollgate, origin: &Origin) -> String {
    endpoint(tollgate, origin)["state"].as_str().unwrap().to_owned()
}

/// Whether of many requests none goes to this origin, and none fails.
#[track_caller]
fn is_spared(tollgate: &Tollgate, origin: &Origin) -> bool {
    let before = origin.heads().len();
    for _ in 0..8 {
        assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    }
    origin.heads().len() == before
}

#[test]
fn an_endpoint_drained_by_the_configuration_gets_no_request() {
    let [one, other] = origins();
    let urls = format!("[{{ url: \"{}\", drain: true }}, \"{}\"]", url(&one), url(&other));
    let yaml = format!(
        "upstreams:\n  origin: {{ endpoints: {urls} }}\nroutes:\n  - {{ path: /*, upstream: origin }}\n"
    );
    let tollgate = Tollgate::start(Config::yaml(yaml));
    assert!(is_spared(&tollgate, &one));
    assert_eq!(one.connections(), 0);
    let drained = endpoint(&tollgate, &one);
    assert_eq!((&drained["state"], &drained["by"]), (&json!("drained"), &json!("configuration")));
    assert_eq!(drained["reason"], "drain: true");
    let labels = format!("{{upstream=\"origin\",endpoint=\"{}\"}}", url(&one));
    becomes(1.0, || tollgate.metric(&format!("tollgate_upstream_endpoint_drained{labels}")));
    // What the configuration drains no operator undrains.
    let refused = undrain(&tollgate, &one);
    assert_eq!(refused.status, 404);
    assert!(refused.text().contains("drained by `drain: true` in the configuration"), "{}", refused.text());
    // The other one is the last that takes requests.
    assert_eq!(drain(&tollgate, &other, &json!({})).status, 409);

    let file = tollgate.directory().join("proxy.yaml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("drain: true", "drain: false")).unwrap();
    assert_eq!(tollgate.command(&["reload"]).code, Some(0));
    assert_eq!(state(&tollgate, &one), "healthy");
    eventually("it is sent requests", || !is_spared(&tollgate, &one));
}

#[test]
fn requests_in_flight_end_as_they_would_and_others_get_503_at_once_where_all_is_drained() {
    let slow = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            conn.body(&head)?;
            conn.pause()?;
            conn.answer("200 OK", &[], b"late")?;
        }
        Ok(())
    });
    let tollgate = Tollgate::start(Config::new(&[slow.address], ""));
    let mut client = Client::sending(tollgate.address, "GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    eventually("the request has come", || slow.heads().len() == 1);
    let refused = drain(&tollgate, &slow, &json!({}));
    assert_eq!(refused.status, 409);
    assert_eq!(refused.json()["type"], "urn:tollgate:problem:last-endpoint");
    assert_eq!(drain(&tollgate, &slow, &json!({"force": true})).status, 201);
    let denied = get(tollgate.address, "/", &[]);
    assert_eq!((denied.status, denied.header("retry-after")), (503, Some("1")));
    assert_eq!(endpoint(&tollgate, &slow)["active"], 1);
    slow.resume();
    let answer = client.reply();
    assert_eq!((answer.status, answer.text().as_str()), (200, "late"));
    eventually("its connection is closed", || slow.open_connections() == 0);
    eventually("the log says so", || tollgate.has_logged(&["all endpoints of upstream origin are drained"]));
    eventually("an outage is raised", || {
        let outages = tollgate.admin("GET", "/v1/status").json()["outages"].take();
        outages.as_array().unwrap().iter().any(|outage| outage["kind"] == "upstream")
    });
    assert_eq!(undrain(&tollgate, &slow).status, 200);
    slow.resume();
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
}

#[test]
fn a_request_that_waits_for_a_connection_goes_to_no_endpoint_that_is_drained_meanwhile() {
    let slow = || {
        Origin::start(|conn| {
            let head = conn.head()?.unwrap_or_default();
            conn.body(&head)?;
            conn.pause()?;
            conn.answer("200 OK", &[("connection", "close")], b"late")
        })
    };
    let origins = [slow(), slow()];
    let addresses = origins.each_ref().map(|origin| origin.address);
    let settings = "balance: round_robin, max_connections: 1, timeouts: { connect: 30s }";
    let tollgate = Tollgate::start(Config::upstream(&addresses, settings, "workers: 1\n"));
    let mut clients = [(); 2].map(|()| Client::connect(tollgate.address));
    clients[0].send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    eventually("the first is served", || origins.iter().any(|origin| origin.heads().len() == 1));
    // The second is for the other endpoint, and waits.
    let first = usize::from(origins[0].heads().is_empty());
    clients[1].send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    clients[1].wait_until_read();
    assert_eq!(drain(&tollgate, &origins[1 - first], &json!({})).status, 201);
    origins[first].resume();
    assert_eq!(clients[0].reply().status, 200);
    eventually("the second is served", || origins[first].heads().len() == 2);
    origins[first].resume();
    assert_eq!(clients[1].reply().status, 200);
    assert_eq!(origins[1 - first].connections(), 0);
}

#[test]
fn operators_drain_and_undrain_by_command_and_it_is_written_down() {
    let urls = origins().map(|origin| format!("\"http://localhost:{}\"", origin.address.port())).join(", ");
    let tollgate = Tollgate::start(Config::yaml(format!(
        "upstreams: {{ origin: {{ endpoints: [{urls}] }} }}\nroutes: [{{ path: /*, upstream: origin }}]\n"
    )));
    let origins = tollgate.admin("GET", "/v1/upstreams").json()["upstreams"][0]["endpoints"].take();
    let endpoint = origins[0]["url"].as_str().unwrap().to_owned();
    let drained = tollgate.command(&["drain", "origin", &endpoint, "--reason", "a new disk"]);
    assert_eq!((drained.code, drained.stderr.as_str()), (Some(0), ""), "{drained:?}");
    assert_eq!(
        drained.stdout,
        format!(
            "{endpoint} of upstream origin is drained: it takes no new requests, and those in flight go on.\n"
        )
    );
    let listed = tollgate.command(&["upstreams"]).stdout;
    let line = listed.lines().rfind(|line| line.contains(&endpoint)).unwrap();
    for told in ["drained", "operator at 127.0.0.1", "a new disk"] {
        assert!(line.contains(told), "{listed}");
    }
    let json: Value = serde_json::from_str(&tollgate.command(&["upstreams", "--json"]).stdout).unwrap();
    assert_eq!(json["upstreams"][0]["endpoints"][0]["state"], "drained");
    let top = tollgate.command(&["top"]);
    assert!(top.stdout.contains("1 of 2 healthy, 1 drained"), "{top:?}");
    let audit = tollgate.admin("GET", "/v1/audit").json();
    assert_eq!(
        (&audit["entries"][0]["action"], &audit["entries"][0]["target"], &audit["entries"][0]["detail"]),
        (&json!("drain"), &json!(format!("origin {endpoint}")), &json!("a new disk"))
    );
    assert_eq!(tollgate.admin("GET", "/v1/drains").json()["drains"][0]["configured"], true);
    let unknown = tollgate.command(&["drain", "apo", &endpoint]);
    assert_eq!(unknown.code, Some(1));
    assert!(unknown.stderr.contains("no upstream is named apo; the upstreams are origin"), "{unknown:?}");
    // A reload forgets nothing, also if the file spells the same endpoint in another way.
    let file = tollgate.directory().join("proxy.yaml");
    let text = fs::read_to_string(&file).unwrap();
    let respelled = text.replace("localhost", "LOCALHOST");
    assert_ne!(respelled, text);
    fs::write(&file, respelled + "\nrequest_id: x-other-id\n").unwrap();
    assert_eq!(tollgate.command(&["reload"]).code, Some(0));
    assert!(tollgate.command(&["upstreams"]).stdout.contains("a new disk"));
    let respelled = endpoint.replace("http://localhost", "HTTP://LocalHost") + "/";
    assert_eq!(tollgate.command(&["undrain", "origin", &respelled]).code, Some(0));
    assert_eq!(tollgate.command(&["undrain", "origin", &endpoint]).code, Some(1));
    assert!(!tollgate.command(&["upstreams"]).stdout.contains("a new disk"));
}

fn a_drain_holds_on_every_instance_and_outlasts_them(redis: &Deployment) {
    let origins = origins();
    let sharing =
        || instance(&origins, &format!("store: {{ redis: {{ {}, timeout: 5s }} }}", redis.settings()));
    let [here, there] = [sharing(), sharing()];
    let [one, other] = &origins;
    for tollgate in [&here, &there] {
        eventually("each is sent requests", || !is_spared(tollgate, one));
    }
    let drained = drain(&here, one, &json!({"reason": "a new disk"}));
    assert_eq!(drained.status, 201, "{}", drained.text());
    assert!(is_spared(&here, one));
    let begun = Instant::now();
    eventually("the other instance spares it", || is_spared(&there, one));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(state(&there, one), "drained");
    assert_eq!(endpoint(&there, one)["by"], "operator at 127.0.0.1");
    assert_eq!(drain(&there, other, &json!({})).status, 409, "there is no other one");
    // One that starts later knows, and so does one when all have ended.
    let later = sharing();
    eventually("one that starts later knows", || state(&later, one) == "drained");
    assert!(is_spared(&later, one));
    drop((here, there, later));
    let again = sharing();
    eventually("it outlasts all instances", || state(&again, one) == "drained");
    let another = sharing();
    eventually("both know", || state(&another, one) == "drained");
    // Redis has lost it: an instance that knows it restores it.
    redis.clear();
    eventually("it is restored", || redis.keys().iter().any(|key| key == "ratelimit:{drains}"));
    assert_eq!([state(&again, one), state(&another, one)], ["drained", "drained"]);
    assert_eq!(undrain(&another, one).status, 200);
    assert_eq!(state(&another, one), "healthy");
    eventually("it is undrained everywhere", || state(&again, one) == "healthy");
    eventually("it is sent requests", || !is_spared(&again, one));
    // Something else under the key does no harm.
    redis.cli(&["set", "ratelimit:{drains}", "x"]);
    eventually("it can be drained again", || {
        drain(&again, one, &json!({})).status < 300 && state(&another, one) == "drained"
    });
}

#[test]
fn an_instance_that_starts_reads_the_drains_before_it_serves() {
    let redis = Redis::start();
    let origins = origins();
    let here =
        instance(&origins, &format!("store: {{ redis: {{ url: \"{}\", timeout: 5s }} }}", redis.url()));
    let [one, _] = &origins;
    assert_eq!(drain(&here, one, &json!({})).status, 201);
    eventually("it is written", || redis.keys().iter().any(|key| key == "ratelimit:{drains}"));
    // So far away that every question takes its time.
    let relay = Relay::to(redis.port);
    relay.delay(Duration::from_millis(60));
    let later =
        instance(&origins, &format!("store: {{ redis: {{ url: \"{}\", timeout: 5s }} }}", relay.url()));
    assert!(is_spared(&later, one));
    assert_eq!(state(&later, one), "drained");
}

#[test]
fn drains_that_a_failover_loses_are_restored_and_others_followed() {
    let redis = Redis::start();
    let origins = [(); 4].map(|()| Origin::ok());
    let settings = format!("store: {{ redis: {{ url: \"{}\", timeout: 5s }} }}", redis.url());
    let [here, there] = [(); 2].map(|()| instance(&origins, &settings));
    let [one, two, three, _] = &origins;
    let both_know = |origin: &Origin, known: &str| {
        eventually(known, || [&here, &there].iter().all(|tollgate| state(tollgate, origin) == known));
    };
    let version = || redis.cli(&["hget", "ratelimit:{drains}", "version"]);
    assert_eq!(drain(&here, one, &json!({})).status, 201);
    both_know(one, "drained");
    let before = version();
    assert_eq!(drain(&here, two, &json!({})).status, 201);
    both_know(two, "drained");
    assert_ne!(version(), before);
    // As by a failover to a replica that has only got the first.
    let field = format!("origin {}", url(two));
    let lose = "redis.call('hdel', KEYS[1], ARGV[1]) redis.call('hset', KEYS[1], 'version', ARGV[2])";
    redis.cli(&["eval", lose, "1", "ratelimit:{drains}", &field, &before]);
    eventually("it is restored", || redis.cli(&["hget", "ratelimit:{drains}", &field]).contains("since"));
    assert_eq!([state(&here, two), state(&there, two)], ["drained", "drained"]);
    assert!(is_spared(&here, two) && is_spared(&there, two));
    // What the replica did not get, and what follows it at once.
    redis.cli(&["eval", lose, "1", "ratelimit:{drains}", &field, &before]);
    assert_eq!(drain(&there, three, &json!({})).status, 201);
    both_know(three, "drained");
    eventually("it is restored again", || {
        redis.cli(&["hget", "ratelimit:{drains}", &field]).contains("since")
    });
    // What was undrained is not restored.
    assert_eq!(undrain(&there, two).status, 200);
    both_know(two, "healthy");
    both_know(three, "drained");
}

/// Redis comes back from a file that knows the first drain and not what followed.
#[test]
fn drains_made_after_the_last_save_are_restored_when_redis_comes_back() {
    let mut redis = Redis::start();
    let origins = [(); 3].map(|()| Origin::ok());
    let settings = format!("store: {{ redis: {{ url: \"{}\", timeout: 5s }} }}", redis.url());
    let [here, there] = [(); 2].map(|()| instance(&origins, &settings));
    let [one, two, _] = &origins;
    assert_eq!(drain(&here, one, &json!({})).status, 201);
    eventually("both know", || state(&there, one) == "drained");
    redis.cli(&["save"]);
    assert_eq!(drain(&here, two, &json!({})).status, 201);
    assert_eq!(undrain(&here, one).status, 200);
    eventually("both know of the changes", || {
        state(&there, one) == "healthy" && state(&there, two) == "drained"
    });
    redis.restart();
    let stored =
        |origin: &Origin| redis.cli(&["hget", "ratelimit:{drains}", &format!("origin {}", url(origin))]);
    eventually("they are restored", || stored(one).starts_with("undrained") && stored(two).contains("since"));
    let later = instance(&origins, &settings);
    for tollgate in [&here, &there, &later] {
        eventually("they hold everywhere", || {
            state(tollgate, one) == "healthy" && state(tollgate, two) == "drained"
        });
    }
}

#[test]
fn drains_of_an_instance_without_redis_are_sent_once_it_is_back() {
    let mut redis = Redis::start();
    let origins = origins();
    let settings = format!("store: {{ redis: {{ url: \"{}\", timeout: 5s }} }}", redis.url());
    let [here, there] = [(); 2].map(|()| instance(&origins, &settings));
    let [one, _] = &origins;
    redis.kill();
    assert_eq!(drain(&here, one, &json!({})).status, 201);
    assert!(is_spared(&here, one), "it holds here at once");
    redis.restart();
    eventually("the other one is told", || state(&there, one) == "drained");
}
