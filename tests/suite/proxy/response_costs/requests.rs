//! What a request reserves by what its body says, and how its body reaches the origin.

use super::{ask, left, left_in, logged, one_policy, path_of, settles, start, units, used, with_fields};
use crate::harness::{
    Client, Deployment, Origin, becomes, by_http2, eventually, on_each_store, read, request,
};

const LIMIT: u64 = 1_000_000;

/// Two policies that reserve alike, but that one estimates the prompt; no response costs anything.
const POLICIES: &str = "
policies:
  tokens:
    algorithm: sliding_window
    key: user
    limit: 1000000/1h
    cost:
      response: { header: x-cost }
      reserve: { json: [max_completion_tokens, max_tokens, generationConfig.maxOutputTokens], default: 1000, max: 3000 }
      missing: 0
  estimated:
    algorithm: sliding_window
    key: user
    limit: 1000000/1h
    cost:
      response: { header: x-cost }
      reserve: { json: max_tokens, default: 1000, max: 3000, prompt: estimate }
      missing: 0
routes:
  - { path: /estimated, upstream: api, policies: [estimated] }
  - { path: /*, upstream: api, policies: [tokens] }
";

/// Answers with the body of the request.
fn reflecting() -> Origin {
    Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            let (body, _) = conn.body(&head)?;
            conn.send(&with_fields("200 OK", "", body))?;
        }
        Ok(())
    })
}

const JSON: (&str, &str) = ("content-type", "application/json");

fn a_request_reserves_what_it_asks_for(redis: Option<&Deployment>) {
    let origin = reflecting();
    let tollgate = start(redis, origin.address, POLICIES);
    let long = format!(r#"{{"max_tokens":77,"prompt":"{}"}}"#, "x".repeat(2_000));
    // What each policy reads in it; the second one adds a quarter of the bytes.
    let cases = [
        (r#"{"max_completion_tokens":50}"#, 50, 1_000),
        (r#"{"max_tokens":60}"#, 60, 60),
        (r#"{"max_tokens":60,"max_completion_tokens":50}"#, 60, 60),
        (r#"{"max_completion_tokens":0,"max_tokens":2500}"#, 2_500, 2_500),
        (r#"{"generationConfig":{"maxOutputTokens":70}}"#, 70, 1_000),
        (r#"{"generation_config":{"max_output_tokens":70}}"#, 70, 1_000),
        (r#"{"generationConfig":{"maxOutputTokens":70,"candidateCount":2}}"#, 140, 2_000),
        (r#" { "n" : 3 , "max_tokens" : 60 } "#, 180, 180),
        (r#"{"max_tokens":60,"n":0}"#, 60, 60),
        (r#"{"max_tokens":60,"prompt":["a","b"],"best_of":2}"#, 240, 240),
        (r#"{"max_tokens":2999}"#, 2_999, 2_999),
        (r#"{"max_tokens":3001}"#, 3_000, 3_000),
        (r#"{"max_tokens":1000,"n":1000}"#, 3_000, 3_000),
        (r#"{"max_tokens":0}"#, 1, 0),
        (r#"{"max_tokens":-1}"#, 1_000, 1_000),
        (r#"{"max_tokens":6e1}"#, 60, 60),
        (r#"{"max_tokens":null}"#, 1_000, 1_000),
        (r#"{"messages":[{"max_tokens":5}]}"#, 1_000, 1_000),
        (r#"[{"max_tokens":5},{"max_tokens":7}]"#, 12, 12),
        (r#"[{"max_tokens":5},{}]"#, 1_005, 1_005),
        ("{}", 1_000, 1_000),
        ("\"text\"", 1_000, 1_000),
        ("", 1_000, 1_000),
        (long.as_str(), 77, 77),
    ];
    let mut client = Client::connect(tollgate.address);
    for (body, tokens, estimated) in cases {
        let estimated = (estimated + body.len() as u64 / 4).min(3_000);
        for (user, path, reserved) in [("ann", "/", tokens), ("bob", "/estimated", estimated)] {
            let reply = client.request("POST", path, &[("x-user", user), JSON], body.as_bytes());
            assert_eq!((reply.status, reply.text().as_str()), (200, body));
            assert_eq!(LIMIT - left(&reply), reserved, "{path}: {body}");
        }
    }
    let body = br#"{"max_tokens":60}"#;
    for media_type in ["application/json; charset=utf-8", "Application/JSON", "application/vnd.api+json", ""]
    {
        let fields = [("x-user", "ann"), ("content-type", media_type)];
        let reply = client.request("POST", "/", &fields, body);
        assert_eq!((reply.body.as_slice(), LIMIT - left(&reply)), (&body[..], 60), "{media_type}");
    }
    // Something else than JSON says nothing.
    for (media_type, body) in [
        ("multipart/form-data; boundary=a", "--a\r\n\r\n{}"),
        ("audio/wav", "RIFF{"),
        ("text/plain", "\r\n "),
    ] {
        let fields = [("x-user", "ann"), ("content-type", media_type)];
        let reply = client.request("POST", "/", &fields, body.as_bytes());
        assert_eq!((reply.text().as_str(), LIMIT - left(&reply)), (body, 1_000), "{media_type}");
    }
    settles(&tollgate, "tokens", "ann", 0);
    settles(&tollgate, "estimated", "bob", 0);
    assert_eq!(units(&tollgate, "tokens").charged, 0);
}

on_each_store!(a_request_reserves_what_it_asks_for, what_can_not_be_read_is_refused);

/// A policy that counts requests beside one that reads them.
const COUNTED: &str = "
policies:
  requests: { algorithm: fixed_window, key: user, limit: 1000/1h }
  tokens:
    algorithm: sliding_window
    key: user
    limit: 1000000/1h
    cost: { response: { header: x-cost }, reserve: { json: max_tokens, default: 1000 }, most: 5000, max_request: 1KiB }
routes: [{ path: /*, upstream: api, policies: [requests, tokens] }]
";

fn what_can_not_be_read_is_refused(redis: Option<&Deployment>) {
    let origin = reflecting();
    let tollgate = start(redis, origin.address, COUNTED);
    let long = format!(r#"{{"max_tokens":5,"x":"{}"}}"#, "x".repeat(2_000));
    let blank = format!("{}{{}}", " ".repeat(2_000));
    let cases = [
        (&[JSON][..], r#"{"max_tokens":1.5}"#, 400, "has no whole number at `max_tokens`."),
        (&[JSON], r#"{"max_tokens":"60"}"#, 400, "has no whole number at `max_tokens`."),
        (&[JSON], r#"{"max_tokens":5,"max_tokens":6}"#, 400, "has the member `max_tokens` twice."),
        (
            &[JSON],
            r#"{"Max_Tokens":5}"#,
            400,
            "has a member `Max_Tokens`, which some servers take for `max_tokens`.",
        ),
        (&[JSON], "max_tokens=5", 400, "is no JSON: expected value at line 1 column 1."),
        (&[JSON], r#"{"max_tokens":5"#, 400, "is no JSON: EOF while parsing an object at line 1 column 15."),
        (
            &[JSON],
            r#"{"max_tokens":5001}"#,
            400,
            "The request asks for 5001 units, and may ask for 5000 at most.",
        ),
        (&[JSON], &long, 413, "has more than 1024 bytes, so it is not read, and it has to be read."),
        (&[], &long, 413, "has more than 1024 bytes"),
        (&[("content-type", "text/plain")], &blank, 415, "The request's body begins "),
        (&[("content-type", "text/plain")], "{}", 415, "begins as JSON does, but has another content type"),
        (&[("content-type", "application/jsonp")], "[]", 415, "begins as JSON does"),
        (&[JSON, ("content-encoding", "gzip")], "{}", 415, "has a content coding"),
        (&[JSON, JSON], "{}", 415, "has several content types."),
        (
            &[("content-type", "application/json; charset=utf-16")],
            "{}",
            415,
            "is not UTF-8, by its content type.",
        ),
    ];
    for (nth, (fields, body, status, detail)) in cases.iter().enumerate() {
        let fields = [&[("x-user", "ann")], *fields].concat();
        // By its length, and in chunks.
        let mut client = Client::connect(tollgate.address);
        let reply = client.request("POST", "/", &fields, body.as_bytes());
        assert_eq!(reply.status, *status, "{body}");
        let told = reply.json()["detail"].as_str().unwrap().to_owned();
        assert!(told.contains(detail), "{body}: {told}");
        let mut client = Client::connect(tollgate.address);
        let lines: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        client.send(format!("POST / HTTP/1.1\r\nhost: a\r\n{lines}transfer-encoding: chunked\r\n\r\n"));
        client.send(super::chunk(body)).send("0\r\n\r\n");
        let reply = client.reply();
        assert_eq!(reply.status, *status, "{body} in chunks");
        let told = reply.json()["detail"].as_str().unwrap().to_owned();
        assert!(told.contains(detail), "{body} in chunks: {told}");
        // It was a request, and cost no tokens.
        becomes(2 * (nth as u64 + 1), || used(&tollgate, "requests", "ann"));
    }
    assert_eq!((used(&tollgate, "tokens", "ann"), units(&tollgate, "tokens").reserved), (0, 0));
    assert!(origin.heads().is_empty());
    // The connection goes on where the body was read.
    let mut client = Client::connect(tollgate.address);
    for _ in 0..3 {
        let fields = [("x-user", "ann"), JSON];
        assert_eq!(client.request("POST", "/", &fields, b"{").status, 400);
        assert_eq!(client.request("POST", "/", &fields, b"{}").status, 200);
    }
}

#[test]
fn bodies_of_every_size_and_framing_arrive_whole() {
    let origin = reflecting();
    let tollgate = start(None, origin.address, POLICIES);
    let mut client = Client::connect(tollgate.address);
    for length in [0, 20, 1_023, 1_024, 1_025, 1_026, 5_000, 70_000, 3_000_000] {
        let start = r#"{"max_tokens":60,"x":""#;
        let body = format!("{start}{}\"}}", "x".repeat(length));
        let reply = client.request("POST", "/", &[("x-user", "ann"), JSON], body.as_bytes());
        assert_eq!((reply.text() == body, LIMIT - left(&reply)), (true, 60), "{length}");
        let last_head = || origin.heads().pop().unwrap();
        assert!(last_head().contains(&format!("content-length: {}", body.len())), "{}", last_head());

        // The same without a length, in chunks.
        client.send("POST / HTTP/1.1\r\nhost: a\r\nx-user: ann\r\n");
        client.send("content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n");
        let mut sender = client.stream.try_clone().unwrap();
        let sent = body.clone();
        let sending = std::thread::spawn(move || {
            for piece in sent.as_bytes().chunks(1_000) {
                std::io::Write::write_all(&mut sender, &super::chunk(piece)).unwrap();
            }
            std::io::Write::write_all(&mut sender, b"0\r\n\r\n").unwrap();
        });
        let reply = client.reply();
        sending.join().unwrap();
        assert_eq!((reply.text() == body, LIMIT - left(&reply)), (true, 60), "{length} in chunks");
        assert!(last_head().contains("content-length: "), "{}", last_head());
    }
    settles(&tollgate, "tokens", "ann", 0);
}

#[test]
fn a_body_that_trickles_in_chunks_is_read_before_a_connection_is_taken() {
    let origin = reflecting();
    let tollgate = start(None, origin.address, POLICIES);
    let mut client = Client::sending(tollgate.address, "POST / HTTP/1.1\r\nhost: a\r\nx-user: ann\r\n");
    client.send("content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n");
    for piece in [r#"{"max"#, "_tok", r#"ens":4"#, "5}"] {
        client.send(super::chunk(piece)).wait_until_read();
        assert_eq!(origin.connections(), 0);
    }
    let reply = client.send("0\r\nx-trailer: 1\r\n\r\n").reply();
    assert_eq!((reply.text().as_str(), LIMIT - left(&reply)), (r#"{"max_tokens":45}"#, 45));
    // The next request on the same connection is one of its own.
    assert_eq!(left(&ask(&mut client, "/", "ann")), LIMIT - 1_000);
}

#[test]
fn a_client_that_waits_to_be_asked_is_asked() {
    let origin = reflecting();
    let tollgate = start(None, origin.address, POLICIES);
    let mut client = Client::connect(tollgate.address);
    for length in [10, 5_000] {
        let body = format!(r#"{{"max_tokens":60,"x":"{}"}}"#, "x".repeat(length));
        client.send(format!(
            "POST / HTTP/1.1\r\nhost: a\r\nx-user: ann\r\ncontent-type: application/json\r\n\
             expect: 100-continue\r\ncontent-length: {}\r\n\r\n",
            body.len()
        ));
        assert_eq!(client.head().status, 100, "{length}");
        let reply = client.send(&body).reply();
        assert_eq!((reply.status, reply.text() == body), (200, true), "{length}");
        assert_eq!(LIMIT - left(&reply), 60, "{length}");
    }
}

#[test]
fn clients_of_http2_reserve_alike() {
    let origin = reflecting();
    let tollgate = start(None, origin.address, POLICIES);
    by_http2(tollgate.address, async |mut client| {
        for length in [0, 900, 1_100, 60_000] {
            for has_length in [false, true] {
                let body = format!(r#"{{"max_tokens":60,"x":"{}"}}"#, "x".repeat(length));
                let announced = body.len().to_string();
                let fields = [("x-user", "ann"), JSON, ("content-length", announced.as_str())];
                let fields = if has_length { &fields[..] } else { &fields[..2] };
                let (answer, mut upload) = client.send("POST", "/", fields, false).await.unwrap();
                crate::harness::send_body(&mut upload, body.clone().into()).await.unwrap();
                upload.send_data(bytes::Bytes::new(), true).unwrap();
                let reply = read(answer).await.unwrap();
                assert!(reply.text() == body, "{length}: {} bytes", reply.body.len());
                let told = left_in(reply.head.headers()["ratelimit"].to_str().unwrap());
                assert_eq!(LIMIT - told, 60, "{length}, {has_length}");
            }
        }
    });
    settles(&tollgate, "tokens", "ann", 0);
}

fn a_body_that_breaks_off_takes_nothing(redis: Option<&Deployment>) {
    let origin = reflecting();
    let tollgate = start(redis, origin.address, POLICIES);
    for body in
        ["content-length: 30\r\n\r\n{\"max_tokens\"", "transfer-encoding: chunked\r\n\r\n5\r\n{\"max\r\n"]
    {
        let mut client = Client::connect(tollgate.address);
        client.send(format!(
            "POST / HTTP/1.1\r\nhost: a\r\nx-user: ann\r\ncontent-type: application/json\r\n{body}"
        ));
        let reply = client.finish().reply();
        assert_eq!(reply.status, 400, "{body}");
        assert_eq!(reply.header("ratelimit"), None, "nothing was decided");
        assert!(client.closed());
    }
    assert_eq!((used(&tollgate, "tokens", "ann"), units(&tollgate, "tokens").reserved), (0, 0));
    assert_eq!(origin.connections(), 0);
    becomes(2, || logged(&tollgate).len());
    assert_eq!(logged(&tollgate), [(None, None); 2]);
}

fn the_body_of_a_request_without_units_left_stays_unread(redis: Option<&Deployment>) {
    let origin = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            conn.skip_body(&head)?;
            conn.send(&with_fields("200 OK", &format!("x-cost: {}\r\n", &path_of(&head)[1..]), ""))?;
        }
        Ok(())
    });
    let cost = "response: { header: x-cost }, reserve: { json: max_tokens, default: 10 }";
    let tollgate = start(redis, origin.address, &one_policy(100, cost));
    let head = |length: usize| {
        format!(
            "POST /5 HTTP/1.1\r\nhost: a\r\nx-user: ann\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        )
    };
    // 3 of 100 are left.
    assert_eq!(request(tollgate.address, "POST", "/97", &[("x-user", "ann")], b"{}").status, 200);
    eventually("it is settled", || used(&tollgate, "tokens", "ann") == 97);
    // What it asks for says that it does not fit.
    let mut client = Client::connect(tollgate.address);
    let reply = client.send(head(16)).send(r#"{"max_tokens":4}"#).reply();
    assert_eq!((reply.status, left(&reply)), (429, 3));
    let reply = client.send(head(16)).send(r#"{"max_tokens":3}"#).reply();
    assert_eq!((reply.status, left(&reply)), (200, 0));
    // Nothing is left: the denial comes before a byte of the body.
    for length in [16, 900_000] {
        let mut client = Client::connect(tollgate.address);
        let reply = client.send(head(length)).reply();
        assert_eq!((reply.status, left(&reply)), (429, 0), "{length}");
    }
    settles(&tollgate, "tokens", "ann", 102);
    assert_eq!(origin.heads().len(), 2);
}

on_each_store!(a_body_that_breaks_off_takes_nothing, the_body_of_a_request_without_units_left_stays_unread,);

#[test]
fn only_codings_that_can_be_read_are_asked_for() {
    let origin = reflecting();
    let tollgate = start(
        None,
        origin.address,
        "policies:
  json: { algorithm: fixed_window, key: user, limit: 100000/30d, cost: { response: openai, reserve: 1 } }
  asks: { algorithm: fixed_window, key: user, limit: 100000/30d, cost: { response: { preset: openai, ask: true }, reserve: 1 } }
  bytes: { algorithm: fixed_window, key: user, limit: 1GiB/30d, cost: { response: bytes, reserve: 1KiB } }
  header: { algorithm: fixed_window, key: user, limit: 100000/30d, cost: { response: [{ header: a }, { trailer: b }], reserve: 1 } }
routes:
  - { path: /json, upstream: api, policies: [json] }
  - { path: /asks, upstream: api, policies: [asks] }
  - { path: /both, upstream: api, policies: [json, asks] }
  - { path: /bytes, upstream: api, policies: [bytes] }
  - { path: /header, upstream: api, policies: [header] }
  - { path: /none, upstream: api }",
    );
    let mut client = Client::connect(tollgate.address);
    let mut coding = |path: &str, accepted: &[&str]| {
        let fields: Vec<_> = accepted.iter().map(|accepted| ("accept-encoding", *accepted)).collect();
        client.request("POST", path, &[&[("x-user", "ann"), JSON], fields.as_slice()].concat(), b"{}");
        let head = origin.heads().pop().unwrap();
        let lines: Vec<_> = head.lines().filter_map(|line| line.strip_prefix("accept-encoding: ")).collect();
        lines.join(" | ")
    };
    for accepted in [&["gzip, deflate, br, zstd"][..], &["br", "GZip;q=0.5"], &["*"], &["gzip"]] {
        assert_eq!(coding("/json", accepted), "gzip, identity", "{accepted:?}");
    }
    for accepted in [&["br"][..], &["br, gzip;q=0"], &["gzip; q=0.000"], &["identity"], &[]] {
        assert_eq!(coding("/json", accepted), "identity", "{accepted:?}");
    }
    // None of these is edited: a stream that was asked for its usage comes without a coding.
    for path in ["/asks", "/both"] {
        assert_eq!(coding(path, &["gzip, br"]), "gzip, identity", "{path}");
    }
    for path in ["/bytes", "/header", "/none"] {
        assert_eq!(coding(path, &["gzip, br", "zstd"]), "gzip, br | zstd", "{path}");
        assert_eq!(coding(path, &[]), "", "{path}");
    }
}

/// A decision that was made unread would take the default.
#[test]
fn what_denies_at_first_sight_is_the_decision() {
    let origin = reflecting();
    let tollgate = start(
        None,
        origin.address,
        "policies:
  busy: { algorithm: concurrency, key: user, limit: 2 }
  tokens:
    { algorithm: sliding_window, key: user, limit: 1000000000/1h, cost: { response: { header: x-cost }, reserve: { json: max_tokens, default: 1 } } }
routes: [{ path: /*, upstream: api, policies: [busy, tokens] }]",
    );
    let served: usize = std::thread::scope(|scope| {
        let ask = || {
            let mut client = Client::connect(tollgate.address);
            let fields = [("x-user", "ann"), JSON];
            let mut ask = |_| client.request("POST", "/", &fields, br#"{"max_tokens":500}"#).status;
            (0..40).map(&mut ask).filter(|status| *status == 200).count()
        };
        let clients: Vec<_> = (0..16).map(|_| scope.spawn(ask)).collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    });
    assert!(served > 0 && served == origin.heads().len());
    becomes(500 * served as u64, || units(&tollgate, "tokens").reserved);
}

#[test]
fn a_response_in_the_background_costs_the_most_that_is_reserved() {
    let origin = reflecting();
    let cost = "response: openai, reserve: { json: max_output_tokens, default: 10, max: 700 }";
    let tollgate = start(None, origin.address, &one_policy(100_000, cost));
    let mut client = Client::connect(tollgate.address);
    let mut spent = 0;
    for (body, cost) in [
        (r#"{"input":"a","max_output_tokens":50}"#, 50),
        (r#"{"input":"a","max_output_tokens":50,"background":false}"#, 50),
        (r#"{"input":"a","max_output_tokens":50,"background":true}"#, 700),
    ] {
        assert_eq!(client.request("POST", "/", &[("x-user", "ann"), JSON], body.as_bytes()).status, 200);
        spent += cost;
        settles(&tollgate, "tokens", "ann", spent);
    }
}

#[test]
fn a_request_without_a_body_costs_no_tokens() {
    let origin = reflecting();
    let tollgate = start(
        None,
        origin.address,
        "policies:
  fixed: { algorithm: fixed_window, key: user, limit: 100000/1h, cost: { response: openai, reserve: 100 } }
  read: { algorithm: fixed_window, key: user, limit: 100000/1h, cost: { response: anthropic, reserve: { json: max_tokens, default: 100 } } }
  points: { algorithm: fixed_window, key: user, limit: 100000/1h, cost: { response: { json: cost }, reserve: { json: max_tokens, default: 100 } } }
routes: [{ path: /*, upstream: api, policies: [fixed, read, points] }]",
    );
    let mut client = Client::connect(tollgate.address);
    let costs = |expected: [u64; 3]| {
        let names = ["fixed", "read", "points"];
        becomes(expected, || names.map(|name| used(&tollgate, name, "ann")));
    };
    assert_eq!(client.request("GET", "/v1/models", &[("x-user", "ann")], b"").status, 200);
    costs([0, 0, 100]);
    client.send("POST / HTTP/1.1\r\nhost: a\r\nx-user: ann\r\ncontent-length: 0\r\n\r\n");
    assert_eq!(client.reply().status, 200);
    costs([0, 0, 200]);
    // That it is empty is known at its end.
    client.send("POST / HTTP/1.1\r\nhost: a\r\nx-user: ann\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n");
    assert_eq!(client.reply().status, 200);
    costs([0, 0, 300]);
    assert_eq!(client.request("POST", "/", &[("x-user", "ann"), JSON], b"{}").status, 200);
    costs([100, 100, 400]);
}
