//! Which requests are sent to an upstream once more, how often, and what is told of it.

use std::{
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::harness::{
    Client, Config, Conn, Deployment, Http2Origin, Load, Origin, Reply, Tollgate, eventually, get, nobody,
    on_each_store, request,
};

/// One worker before these endpoints, which take turns; `settings` stand in the upstream's braces.
fn before(endpoints: &[SocketAddr], settings: &str) -> Tollgate {
    started(endpoints, settings, "")
}

fn started(endpoints: &[SocketAddr], settings: &str, rest: &str) -> Tollgate {
    let settings = format!("balance: round_robin, {settings}");
    let rest = format!("workers: 1\naccess_log: {{ format: json, to: stdout }}\n{rest}");
    Tollgate::start(Config::upstream(endpoints, &settings, &rest))
}

/// Answers each request with this status line and its own as the body, on kept connections.
fn answering(status: &'static str) -> Origin {
    Origin::start(move |conn| {
        while let Some(head) = conn.head()? {
            conn.body(&head)?;
            conn.answer(status, &[], status.as_bytes())?;
        }
        Ok(())
    })
}

/// Reads the head of a request, and closes.
fn closing() -> Origin {
    Origin::start(|conn| conn.head().map(drop))
}

fn retries(tollgate: &Tollgate, reason: &str) -> f64 {
    tollgate.metric(&format!("tollgate_upstream_retries_total{{upstream=\"origin\",reason=\"{reason}\"}}"))
}

/// The lines of the access log, once there are so many.
#[track_caller]
fn logged(tollgate: &Tollgate, count: usize) -> Vec<Value> {
    eventually("the lines are written", || tollgate.stdout().len() >= count);
    tollgate.stdout().iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

const FAST: &str = "timeouts: { connect: 1s, response: 1s }";

#[test]
fn a_try_that_fails_for_a_reason_that_is_named_is_followed_by_another_one() {
    let [bad_gateway, unavailable, late] =
        ["502 Bad Gateway", "503 Service Unavailable", "504 Gateway Timeout"].map(answering);
    let (closing, hanging) = (closing(), Origin::sink());
    for (reason, failing) in [
        ("connect", nobody()),
        ("refused", closing.address),
        ("502", bad_gateway.address),
        ("503", unavailable.address),
        ("504", late.address),
        ("timeout", hanging.address),
    ] {
        let origin = Origin::ok();
        let settings = format!("{FAST}, retry: {{ when: [{reason}] }}");
        let tollgate = before(&[failing, origin.address], &settings);
        for method in ["GET", "PUT"] {
            let replies = [(); 2].map(|()| request(tollgate.address, method, "/", &[], b"body"));
            assert!(replies.iter().all(|reply| reply.status == 200), "{reason} {method}: {replies:?}");
        }
        let received = origin.received().concat();
        assert_eq!(received.matches("\r\n\r\nbody").count(), 4, "{reason}: {received}");
        assert!(retries(&tollgate, reason) >= 1.0, "{reason}");
        let lines = logged(&tollgate, 4);
        let retried: Vec<_> = lines.iter().filter(|line| line.get("retried").is_some()).collect();
        assert_eq!(retried.len() as f64, retries(&tollgate, reason), "{reason}");
        for line in retried {
            let tried = json!([{ "upstream": failing.to_string(), "reason": reason }]);
            assert_eq!((&line["tries"], &line["retried"]), (&json!(2), &tried), "{line}");
            assert_eq!(line["upstream"], origin.address.to_string());
        }
    }
}

#[test]
fn failures_that_when_does_not_name_are_not_retried() {
    let (unavailable, hanging, origin) = (answering("503 Service Unavailable"), Origin::sink(), Origin::ok());
    for (failing, settings, status) in [
        (unavailable.address, "retry: { when: [connect, refused, 502, 504, timeout] }", 503),
        (unavailable.address, "", 503),
        (hanging.address, FAST, 504),
        (nobody(), "retry: { max: 0 }", 502),
        (nobody(), "retry: { when: [refused] }", 502),
    ] {
        let tollgate = before(&[failing, origin.address], settings);
        let replies = [(); 2].map(|()| get(tollgate.address, "/", &[]).status);
        assert!(replies.contains(&status), "{settings}: {replies:?}");
        assert_eq!(tollgate.metric_total("tollgate_upstream_retries_total"), 0.0, "{settings}");
        assert!(logged(&tollgate, 2).iter().all(|line| line.get("tries").is_none()));
    }
}

const ALL: &str = "retry: { max: 3, when: [connect, refused, 502, 503, 504, timeout] }";

#[test]
fn a_request_that_the_upstream_may_have_processed_is_repeated_only_where_that_is_safe() {
    // Answers 503, closes, or hangs, as it is asked to.
    let handle = |conn: &mut Conn| {
        let head = conn.head()?.unwrap_or_default();
        conn.body(&head)?;
        match head.split(' ').nth(1) {
            Some("/close") => Ok(()),
            Some("/hang") => {
                conn.closed();
                Ok(())
            }
            _ => conn.answer("503 Service Unavailable", &[("connection", "close")], b"busy"),
        }
    };
    let origins = [(); 3].map(|()| Origin::start(handle));
    let addresses = origins.each_ref().map(|origin| origin.address);
    let sent = || origins.iter().map(|origin| origin.heads().len()).sum::<usize>();
    let settings = format!("{FAST}, {ALL}, request_buffering: 16");
    let tollgate = before(&addresses, &settings);
    let long = [b'x'; 17];
    let upgrade: &[_] = &[("connection", "upgrade"), ("upgrade", "websocket")];
    for (path, status) in [("/busy", 503), ("/close", 502), ("/hang", 504)] {
        for (method, headers, body, tries) in [
            ("POST", &[][..], &b""[..], 1),
            ("POST", &[], b"short", 1),
            ("PATCH", &[], b"short", 1),
            ("PUT", &[], &long, 1),
            ("GET", upgrade, b"", 1),
            ("POST", &[("content-type", "application/grpc-web")], b"", 1),
            ("GET", &[], b"", 4),
            ("PUT", &[], b"short", 4),
            ("DELETE", &[], b"", 4),
        ] {
            let before = sent();
            let reply = request(tollgate.address, method, path, headers, body);
            let grpc = headers.iter().any(|(_, value)| value.contains("grpc")) && status != 503;
            let status = if grpc { 200 } else { status };
            assert_eq!((reply.status, sent() - before), (status, tries), "{method} {path} {headers:?}");
        }
    }
}

#[test]
fn the_last_answer_is_the_client_s() {
    let (first, second) = (answering("503 Service Unavailable"), answering("502 Bad Gateway"));
    let tollgate = before(&[first.address, second.address], "retry: { when: [502, 503] }");
    let replies: [Reply; 4] = [(); 4].map(|()| get(tollgate.address, "/", &[]));
    let lines = logged(&tollgate, 4);
    for reply in &replies {
        assert!([502, 503].contains(&reply.status) && reply.text().starts_with(&reply.status.to_string()));
    }
    for line in lines {
        // The answer that is passed on is not the one that was retried.
        assert_eq!(line["tries"], 2);
        assert_ne!(line["retried"][0]["reason"], line["status"].to_string());
    }
    assert_eq!(first.heads().len() + second.heads().len(), 8);
    // An answer that is not passed on leaves its connection as good as another one.
    assert_eq!(first.connections() + second.connections(), 2);
    // The last try may have none.
    let closing = closing();
    let tollgate = before(&[first.address, closing.address], "retry: { when: [503] }");
    let replies = [(); 2].map(|()| get(tollgate.address, "/", &[]).status);
    assert_eq!(replies, [502, 502]);
}

#[test]
fn a_long_answer_that_is_not_passed_on_costs_its_connection_alone() {
    let busy = Origin::start(|conn| {
        while conn.head()?.is_some() {
            conn.send(b"HTTP/1.1 503 Busy\r\ncontent-length: 1000000\r\n\r\nbegun")?;
        }
        Ok(())
    });
    let origin = Origin::ok();
    let tollgate = before(&[busy.address, origin.address], "retry: { when: [503] }");
    for _ in 0..6 {
        assert_eq!(get(tollgate.address, "/", &[]).text(), "ok");
    }
    eventually("its connections are closed", || busy.open_connections() == 0);
}

#[test]
fn more_tries_reach_more_endpoints() {
    let busy = [(); 3].map(|()| answering("503 Service Unavailable"));
    let origin = Origin::ok();
    let mut addresses = busy.each_ref().map(|origin| origin.address).to_vec();
    addresses.push(origin.address);
    let tollgate = before(&addresses, "retry: { max: 3, when: [503] }");
    for _ in 0..8 {
        assert_eq!(get(tollgate.address, "/", &[]).text(), "ok", "each endpoint is tried once");
    }
}

#[test]
fn a_request_that_is_tied_to_an_endpoint_is_tried_at_each_before_it_is_at_any_again() {
    let busy = [(); 3].map(|()| answering("503 Service Unavailable"));
    let origin = Origin::ok();
    let mut addresses = busy.each_ref().map(|origin| origin.address).to_vec();
    addresses.push(origin.address);
    let settings =
        "balance: { hash: header:x-user }, retry: { max: 3, when: [503], budget: 100% }, outlier: off";
    let tollgate = Tollgate::start(Config::upstream(&addresses, settings, "workers: 1\n"));
    for user in 0..24 {
        assert_eq!(get(tollgate.address, "/", &[("x-user", &user.to_string())]).text(), "ok", "{user}");
    }
    // Where all were tried, one of them is tried again.
    let addresses = busy.each_ref().map(|origin| origin.address);
    let heads = || busy.iter().map(|origin| origin.heads().len()).sum::<usize>();
    let (before, tollgate) =
        (heads(), Tollgate::start(Config::upstream(&addresses[..2], settings, "workers: 1\n")));
    assert_eq!(get(tollgate.address, "/", &[]).status, 503);
    assert_eq!(heads() - before, 4);
}

#[test]
fn a_route_has_settings_of_its_own() {
    let (busy, origin) = (answering("503 Service Unavailable"), Origin::ok());
    let tollgate = Tollgate::start(Config::yaml(format!(
        "workers: 1
upstreams:
  origin:
    endpoints: [\"http://{}\", \"http://{}\"]
    balance: round_robin
    retry: {{ max: 2, when: [503] }}
routes:
  - {{ path: /never, upstream: origin, retry: {{ max: 0 }} }}
  - {{ path: /other, upstream: origin, retry: {{ when: [502] }} }}
  - {{ path: /*, upstream: origin, retry: {{ budget: 50% }} }}
",
        busy.address, origin.address
    )));
    for (path, expected) in [("/never", 503), ("/other", 503), ("/", 200)] {
        let replies = [(); 2].map(|()| get(tollgate.address, path, &[]).status);
        assert!(replies.contains(&expected), "{path}: {replies:?}");
        assert_eq!(replies.iter().all(|status| *status == 200), expected == 200, "{path}: {replies:?}");
    }
}

#[test]
fn a_stream_that_http2_refuses_goes_to_another_endpoint_whatever_the_method() {
    let refusing = Http2Origin::start(|mut exchange| async move {
        exchange.answer.send_reset(h2::Reason::REFUSED_STREAM);
        Ok(())
    });
    let busy = Http2Origin::start(|mut exchange| async move {
        exchange.read().await?;
        exchange.respond(503, &[], b"busy")
    });
    let origin = Http2Origin::echo();
    let settings = "protocol: h2, retry: { max: 2, when: [refused, 503] }";
    let tollgate = before(&[refusing.address, busy.address, origin.address], settings);
    for _ in 0..6 {
        assert_eq!(request(tollgate.address, "PUT", "/", &[], b"body").text(), "body");
    }
    let replies = [(); 6].map(|()| request(tollgate.address, "POST", "/", &[], b"body").status);
    assert!(replies.contains(&200) && replies.contains(&503), "{replies:?}");
    assert!(replies.iter().all(|status| [200, 503].contains(status)), "{replies:?}");
    assert!(retries(&tollgate, "refused") > 0.0 && retries(&tollgate, "503") > 0.0);
}

#[test]
fn with_everything_down_no_more_than_a_share_is_retried() {
    let busy = [(); 2].map(|()| answering("503 Service Unavailable"));
    let addresses = busy.each_ref().map(|origin| origin.address);
    let settings = "retry: { max: 3, when: [connect, 503], budget: 20% }";
    let tollgate = Tollgate::start(Config::upstream(&addresses, settings, ""));
    let begun = Instant::now();
    let load = Load::start(&[tollgate.address], &["/"], 8, Duration::from_millis(1));
    eventually("there were many requests", || {
        busy.iter().map(|origin| origin.heads().len()).sum::<usize>() > 4_000
    });
    let samples = load.stop();
    assert!(samples.iter().all(|sample| sample.status == 503));
    let received = busy.iter().map(|origin| origin.heads().len()).sum::<usize>() as f64;
    let requests = samples.len() as f64;
    // Two workers, each with the minimum of three a second, and ten seconds' of it at hand.
    let minimum = 2.0 * 3.0 * (10.0 + begun.elapsed().as_secs_f64());
    assert!(received <= requests * 1.2 + minimum, "{received} for {requests} in {:?}", begun.elapsed());
    assert!(received >= requests * 1.1, "{received} for {requests}: too few");
    assert_eq!(tollgate.metric_total("tollgate_upstream_retries_total"), received - requests);
    assert!(tollgate.metric_total("tollgate_upstream_retry_budget_exhausted_total") > 0.0);
}

#[test]
fn all_tries_together_have_a_time_limit() {
    let hanging = [(); 2].map(|()| Origin::sink());
    let addresses = hanging.each_ref().map(|origin| origin.address);
    let settings = "timeouts: { response: 2s, total: 5s }, retry: { max: 10, when: [timeout] }";
    let tollgate = before(&addresses, settings);
    let begun = Instant::now();
    let reply = get(tollgate.address, "/", &[]);
    let took = begun.elapsed();
    assert_eq!((reply.status, reply.header("content-type")), (504, Some("application/problem+json")));
    assert!((Duration::from_secs(5)..Duration::from_secs(15)).contains(&took), "{took:?}");
    assert_eq!(retries(&tollgate, "timeout"), 2.0);
    assert_eq!(logged(&tollgate, 1)[0]["tries"], 3);
}

#[test]
fn the_time_limit_of_all_tries_holds_for_the_wait_for_a_connection_and_for_a_streamed_body() {
    let hanging = Origin::sink();
    let tollgate = Tollgate::start(Config::yaml(format!(
        "workers: 1
upstreams:
  a: {{ endpoints: [\"http://{}\"], timeouts: {{ connect: 15s, response: 15s }}, max_connections: 2 }}
routes:
  - {{ path: /held, upstream: a }}
  - {{ path: /*, upstream: a, timeouts: {{ total: 500ms }} }}
",
        hanging.address
    )));
    let timed_out = |method, body: &[u8]| {
        let begun = Instant::now();
        let reply = request(tollgate.address, method, "/", &[], body);
        let took = begun.elapsed();
        assert_eq!((reply.status, reply.header("content-type")), (504, Some("application/problem+json")));
        assert!((Duration::from_millis(500)..Duration::from_secs(10)).contains(&took), "{took:?}");
    };
    timed_out("GET", b"");
    timed_out("POST", &[b'x'; 20_000]);
    let _held = [(); 2].map(|()| Client::sending(tollgate.address, "GET /held HTTP/1.1\r\nhost: a\r\n\r\n"));
    eventually("all connections are taken", || hanging.open_connections() == 2);
    timed_out("GET", b"");
    assert_eq!(hanging.connections(), 4);
}

#[test]
fn the_time_limit_of_all_tries_holds_for_a_client_that_sends_its_body_slowly() {
    let origin = Origin::echo();
    let settings = "timeouts: { total: 500ms }, request_buffering: 0";
    let tollgate = before(&[origin.address], settings);
    let begun = Instant::now();
    let mut client = Client::connect(tollgate.address);
    client.send("PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\nbegun");
    let mut sending = client.stream.try_clone().unwrap();
    // Never slow enough for the other limits.
    let sender = thread::spawn(move || {
        while std::io::Write::write_all(&mut sending, b"x").is_ok()
            && begun.elapsed() < Duration::from_secs(8)
        {
            thread::sleep(Duration::from_millis(50));
        }
    });
    let reply = client.head();
    let took = begun.elapsed();
    assert_eq!((reply.status, reply.header("content-type")), (504, Some("application/problem+json")));
    assert!((Duration::from_millis(500)..Duration::from_secs(7)).contains(&took), "{took:?}");
    drop(client);
    sender.join().unwrap();
    // One that sends no more at all.
    let mut client = Client::connect(tollgate.address);
    client.send("PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\nbegun");
    assert_eq!(client.reply().status, 504);
    let line = &logged(&tollgate, 2)[1];
    assert_eq!(line["status"], 504, "{line}");
}

#[test]
fn the_time_limit_of_all_tries_ends_with_the_head_of_the_answer() {
    let slow = Origin::start(|conn| {
        conn.head()?;
        conn.send(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nha")?;
        thread::sleep(Duration::from_millis(900));
        conn.send(b"lf")
    });
    let tollgate = Tollgate::start(Config::yaml(format!(
        "upstreams: {{ a: {{ endpoints: [\"http://{}\"], timeouts: {{ total: 1h }} }} }}
routes: [{{ path: /*, upstream: a, timeouts: {{ total: 500ms }} }}]\n",
        slow.address
    )));
    assert_eq!(get(tollgate.address, "/", &[]).text(), "half");
}

on_each_store!(a_request_that_is_retried_takes_its_place_once);

fn a_request_that_is_retried_takes_its_place_once(redis: Option<&Deployment>) {
    let busy = answering("503 Service Unavailable");
    let held = Origin::start(|conn| {
        while conn.head()?.is_some() {
            conn.pause()?;
            conn.answer("200 OK", &[], b"ok")?;
        }
        Ok(())
    });
    let store = redis.map_or_else(String::new, |redis| {
        format!("store: {{ redis: {{ {}, timeout: 5s }} }}\n", redis.settings())
    });
    let policies =
        format!("{store}policies: {{ one: {{ algorithm: concurrency, key: ip, limit: 1, lease: 60s }} }}\n");
    let tollgate =
        started(&[busy.address, held.address], "policies: [one], retry: { when: [503] }", &policies);
    for turn in 1..=3 {
        let mut client = Client::sending(tollgate.address, "GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        eventually("it is at the second endpoint", || held.heads().len() == turn);
        assert_eq!(tollgate.metric("tollgate_leases"), 1.0);
        assert_eq!(get(tollgate.address, "/", &[]).status, 429, "its place is taken");
        held.resume();
        assert_eq!(client.reply().status, 200);
        eventually("it has come back", || tollgate.metric("tollgate_leases") == 0.0);
    }
    assert!(retries(&tollgate, "503") > 0.0);
}
