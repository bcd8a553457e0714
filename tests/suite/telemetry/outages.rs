//! Outages: routes that fail, endpoints that can't be reached, a store that is away.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener},
    path::Path,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    harness::{Client, Config, Origin, Redis, Tollgate, becomes, command, eventually, get, nobody},
    store::redis_audit::{AS_IT_SHOULD_BE, warnings},
};

/// A tenth of a minute, so that what takes ten seconds takes one.
fn start(config: Config) -> Tollgate {
    let mut command = command(Path::new("."));
    command.args(["run", "--config", "proxy.yaml"]).stdin(Stdio::null());
    command.env("TOLLGATE_DOCTOR_MINUTE_MS", "6000");
    Tollgate::launch(command, config)
}

/// Answers with the status that the path ends with.
fn as_asked() -> Origin {
    Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            let path = head.split(' ').nth(1).unwrap_or_default();
            let status = path.rsplit('/').next().unwrap_or("500").to_owned();
            conn.answer(&format!("{status} Said"), &[], b"")?;
        }
        Ok(())
    })
}

/// Answers 200 at this address from now on.
fn listen_at(address: SocketAddr) {
    let listener = TcpListener::bind(address).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut stream = stream;
            let _read = stream.read(&mut [0; 4096]);
            let _sent =
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        }
    });
}

fn outages(tollgate: &Tollgate) -> Vec<Value> {
    tollgate.admin("GET", "/v1/status").json()["outages"].as_array().unwrap().clone()
}

/// Waits until this is an outage, and returns its text.
#[track_caller]
fn comes_up(tollgate: &Tollgate, kind: &str, name: &str) -> String {
    let find =
        || outages(tollgate).into_iter().find(|outage| outage["kind"] == kind && outage["name"] == name);
    eventually(&format!("{kind} {name} is out of order"), || find().is_some());
    find().unwrap()["text"].as_str().unwrap().to_owned()
}

#[track_caller]
fn all_end(tollgate: &Tollgate) {
    eventually("all is in order", || outages(tollgate).is_empty());
}

fn said(tollgate: &Tollgate, level: &str, message: &str) -> usize {
    tollgate.log().iter().filter(|line| line.contains(level) && line.contains(message)).count()
}

#[test]
fn an_endpoint_that_is_down_is_named_by_its_url_until_it_is_back() {
    let down = nobody();
    let tollgate = start(Config::new(&[down], ""));
    assert_eq!(get(tollgate.address, "/", &[]).status, 502);
    let url = format!("http://{down}");
    let text = comes_up(&tollgate, "endpoint", &url);
    assert!(text.starts_with(&format!("endpoint {url} of upstream origin is unreachable")), "{text}");
    assert_eq!(warnings(&tollgate), [text.as_str()]);
    becomes(1, || said(&tollgate, "WARN", &text));
    let no_index = |line: &String| !line.contains("endpoint 0") && !line.contains("endpoint: 0");
    assert!(tollgate.log().iter().all(no_index), "{:#?}", tollgate.log());
    eventually("what the connection failed of is logged", || {
        said(&tollgate, "WARN", "Connection refused") > 0
    });

    for command in [["status"], ["top"]] {
        let ended = tollgate.command(&command);
        assert!(ended.stdout.contains(&text), "{command:?}: {ended:?}");
        assert!(ended.stdout.contains(", outage"), "it is not only ready: {ended:?}");
    }
    assert_eq!(get(tollgate.admin, "/readyz", &[]).status, 200, "the process is");
    for page in
        ["/", "/blocked", "/bans", "/policies", "/explain", "/audit", "/blocked/127.0.0.9", "/nothing"]
    {
        let page = get(tollgate.admin, page, &[("accept", "text/html")]).text();
        assert!(page.contains(&format!("endpoint {url} of upstream origin is unreachable")), "{page}");
        assert!(!page.contains(r#"<span class="badge good">Ready"#), "{page}");
    }

    listen_at(down);
    eventually("it answers", || get(tollgate.address, "/", &[]).status == 200);
    all_end(&tollgate);
    eventually("it says so", || {
        said(&tollgate, "INFO", &format!("endpoint {url} of upstream origin is reachable again")) == 1
    });
    let page = get(tollgate.admin, "/", &[]).text();
    assert!(page.contains(r#"<span class="badge good">Ready"#) && !page.contains("Outage"), "{page}");
}

#[test]
fn one_stray_error_is_nothing_and_a_route_that_fails_is_told_within_seconds() {
    let origin = as_asked();
    let tollgate = start(Config::new(&[origin.address], ""));
    let mut client = Client::connect(tollgate.address);
    let mut ask = |path: &str, count: usize| {
        (0..count).map(|_| client.request("GET", path, &[], b"").status).last().unwrap()
    };
    assert_eq!(ask("/200", 5), 200);
    assert_eq!(ask("/500", 1), 500);
    let looked = Instant::now();
    eventually("it has looked ten times", || looked.elapsed() > Duration::from_secs(1));
    assert_eq!(outages(&tollgate), [Value::Null; 0]);

    assert_eq!(ask("/503", 20), 503);
    let asked = Instant::now();
    comes_up(&tollgate, "route", "/*");
    assert!(asked.elapsed() < Duration::from_secs(20), "{:?}", asked.elapsed());
    // It may have come up when some of them were counted.
    let mut text = String::new();
    eventually("it counts all", || {
        text = comes_up(&tollgate, "route", "/*");
        text.starts_with("route /* fails: 2")
    });
    assert!(text.ends_with("all from the origin"), "{text}");
    becomes(1, || said(&tollgate, "ERROR", "route /* fails: "));
    // Nobody asks it any more: it goes on failing as far as anybody knows.
    let looked = Instant::now();
    eventually("it has looked", || looked.elapsed() > Duration::from_secs(2));
    assert_eq!(outages(&tollgate).len(), 1);
    eventually("requests that succeed end it", || {
        assert_eq!(ask("/200", 20), 200);
        outages(&tollgate).is_empty()
    });
    eventually("it says so", || said(&tollgate, "INFO", "route /* no longer fails") == 1);
    let errors = tollgate.admin("GET", "/v1/routes").json()["routes"][0]["server_errors"].clone();
    assert_eq!((&errors["origin"], &errors["proxy"]), (&21.into(), &0.into()), "{errors}");
}

#[test]
fn the_errors_of_the_proxy_and_those_of_the_origin_are_told_apart() {
    let origin = as_asked();
    let broken = Origin::start(|conn| conn.head().map(drop));
    let slow = Origin::start(|conn| {
        conn.head()?;
        conn.pause()
    });
    let tollgate = start(Config::yaml(format!(
        "
upstreams:
  origin: {{ endpoints: [\"http://{}\"] }}
  broken: {{ endpoints: [\"http://{}\"] }}
  slow: {{ endpoints: [\"http://{}\"], timeouts: {{ response: 50ms }} }}
routes:
  - {{ name: broken, path: /broken, upstream: broken }}
  - {{ name: slow, path: /slow, upstream: slow }}
  - {{ name: all, path: /*, upstream: origin }}
",
        origin.address, broken.address, slow.address
    )));
    for (path, status, count) in [("/502", 502, 1), ("/broken", 502, 4), ("/slow", 504, 3)] {
        for _ in 0..count {
            assert_eq!(get(tollgate.address, path, &[]).status, status, "{path}");
        }
    }
    for (route, source, status, count) in [
        ("all", "origin", "5xx", 1.0),
        ("all", "proxy", "502", 0.0),
        ("broken", "proxy", "502", 4.0),
        ("slow", "proxy", "504", 3.0),
    ] {
        let labels = format!("{{route=\"{route}\",source=\"{source}\",status=\"{status}\"}}");
        let metric = format!("tollgate_server_errors_total{labels}");
        eventually(&metric, || tollgate.metric(&metric) == count);
    }
    let text = comes_up(&tollgate, "route", "broken");
    assert_eq!(
        text,
        "route broken fails: 4 of its last 4 requests got 5xx, all from Tollgate itself (4 × 502)"
    );
    assert!(comes_up(&tollgate, "route", "slow").ends_with("(3 × 504)"));
    assert_eq!(outages(&tollgate).len(), 2);
    let page = get(tollgate.admin, "/", &[]).text();
    assert!(page.contains("2 outages") && page.contains("route broken fails: 4 of"), "{page}");
}

#[test]
fn a_store_that_is_away_is_an_outage_until_it_is_back() {
    let (origin, mut redis) = (Origin::ok(), Redis::with(&AS_IT_SHOULD_BE));
    let rest = format!(
        "store: {{ redis: {{ url: \"{}\" }} }}\npolicies: {{ per-ip: {{ algorithm: sliding_log, key: ip, limit: 9/1h }} }}\n",
        redis.url()
    );
    let tollgate = start(Config::new(&[origin.address], &rest).with_policy("per-ip"));
    eventually("it is asked", || tollgate.admin("GET", "/v1/status").json()["store"]["latency"].is_string());
    assert_eq!(outages(&tollgate), [Value::Null; 0]);
    redis.kill();
    let address = format!("127.0.0.1:{}", redis.port);
    let text = comes_up(&tollgate, "store", &address);
    assert!(text.starts_with(&format!("Redis at {address} is unavailable (")), "{text}");
    assert!(text.ends_with("): policies follow their on_store_error"), "{text}");
    assert!(
        get(tollgate.admin, "/policies", &[]).text().contains(&format!("Redis at {address} is unavailable"))
    );
    // Requests open the breaker, and probes go on: one fault has one message.
    eventually("the breaker is open", || {
        get(tollgate.address, "/", &[]);
        tollgate.metric("tollgate_store_breaker_open") == 1.0
    });
    assert_eq!(warnings(&tollgate).len(), 1, "{:#?}", warnings(&tollgate));
    let page = get(tollgate.admin, "/", &[]).text();
    assert!(page.contains("is unavailable (") && !page.contains("id=\"warnings\""), "{page}");
    assert_eq!(said(&tollgate, "WARN", "Redis"), 1, "{:#?}", tollgate.log());
    redis.restart();
    all_end(&tollgate);
}
