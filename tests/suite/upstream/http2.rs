//! HTTP/2 to upstreams.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use h2::{Reason, client::ResponseFuture, server::Builder};
use http::Response;
use tokio::sync::watch;

use super::PATIENT;
use crate::harness::{
    Authority, Client, Config, Conn, Http2Client, Http2Origin, Origin, PATIENCE, Tollgate, by_http2,
    eventually,
    frames::{DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM, SETTINGS, block, frame},
    get, in_runtime, printed, program, quickest, read, request, send_body, server_config,
};

#[test]
fn the_origin_of_these_tests_answers_resets_and_speaks_tls() {
    let echo = Http2Origin::echo();
    by_http2(echo.address, async |mut client| {
        let (answer, mut body) = client.send("POST", "/a", &[("x-a", "1")], false).await.unwrap();
        body.send_data(Bytes::from_static(b"body"), false).unwrap();
        body.send_trailers([("x-sum".parse().unwrap(), "4".parse().unwrap())].into_iter().collect()).unwrap();
        let reply = read(answer).await.unwrap();
        assert_eq!(
            (reply.text().as_str(), &reply.head.headers()["x-got-x-a"]),
            ("body", &"1".parse().unwrap())
        );
        assert_eq!(echo.heads()[0].uri().path(), "/a");
        echo.go_away();
        assert!(client.ended().await.is_ok());
    });
    eventually("its connection has ended", || echo.open_connections() == 0);
    assert_eq!(echo.connections(), 1);

    let stalling = Http2Origin::start(|mut exchange| async move {
        if exchange.head.uri().path() == "/unanswered" {
            return exchange.reset_unanswered().await;
        }
        assert_eq!(exchange.data().await?, "up");
        let mut stream = exchange.head(200, &[("x-connection", &exchange.connection.to_string())])?;
        send_body(&mut stream, Bytes::from_static(b"down")).await?;
        exchange.reset(&mut stream).await
    });
    by_http2(stalling.address, async |mut client| {
        let (unanswered, _) = client.send("GET", "/unanswered", &[], true).await.unwrap();
        client.ping().await.unwrap();
        drop(unanswered);
        let (answer, mut body) = client.send("POST", "/", &[], false).await.unwrap();
        body.send_data(Bytes::from_static(b"up"), false).unwrap();
        let answer = answer.await.unwrap();
        assert_eq!(answer.headers()["x-connection"], "0");
        assert_eq!(stalling.open_streams(), 1, "the other one was reset");
        drop((answer, body));
        while stalling.resets().len() < 2 {
            client.ping().await.unwrap();
        }
        stalling.close();
        let _ = client.ended().await;
    });
    eventually("its streams have ended", || stalling.open_streams() == 0);
    assert_eq!(stalling.resets(), [Reason::CANCEL, Reason::CANCEL]);

    let authority = Authority::new("tests");
    let certificate = authority.issue("origin", &["localhost"]);
    let secure = Http2Origin::over_tls(&certificate, Builder::new(), |mut exchange| async move {
        exchange.respond(200, &[], b"ok")
    });
    let url = format!("https://localhost:{}/", secure.address.port());
    let ca = authority.file();
    let common = ["-sS", "--max-time", "10", "-w", " %{http_version}", "--cacert", ca.to_str().unwrap()];
    assert_eq!(printed(program("curl", "curl").args(common).arg(url)), "ok 2");
    let ok = Http2Origin::ok();
    let url = format!("http://{}/", ok.address);
    assert_eq!(printed(program("curl", "curl").args(["-sS", "--http2-prior-knowledge"]).arg(url)), "ok");
}

/// Waits until `condition` holds, while the clients of the runtime go on.
pub(super) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "never came true: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// In front of these endpoints, which speak HTTP/2, with one worker. `settings` are those of the upstream.
fn before(endpoints: &[SocketAddr], settings: &str, rest: &str) -> Tollgate {
    let settings = format!("protocol: h2, {settings}");
    Tollgate::start(Config::upstream(endpoints, &settings, &format!("workers: 1\n{rest}")))
}

#[test]
fn messages_pass_between_every_pair_of_versions() {
    let origin = Http2Origin::echo();
    let tollgate = before(&[origin.address], "", "");
    let url = format!("http://{}/a/./b?c=d", tollgate.address);
    let common = ["-sS", "--max-time", "20", "-i", "-H", "Cookie: a=1; b=2", "-H", "X-A: 1"];
    for version in ["--http1.0", "--http1.1", "--http2-prior-knowledge"] {
        let seen = printed(program("curl", "curl").args(common).args([version, "-d", "body"]).arg(&url));
        let has = |line: &str| assert!(seen.to_lowercase().contains(line), "{line}: {seen}");
        has("x-target: http://");
        has(&format!("x-target: http://{}/a/b?c=d\r\n", tollgate.address));
        has("x-method: post\r\n");
        has("x-got-content-length: 4\r\n");
        has("x-got-cookie: a=1; b=2\r\n");
        has("x-got-x-a: 1\r\n");
        has("x-got-x-forwarded-for: 127.0.0.1\r\n");
        has("via: 2.0 tollgate\r\n");
        assert!(seen.ends_with("\r\n\r\nbody"), "{seen}");
        for field in
            ["x-got-host", "x-got-connection", "x-got-te:", "x-got-transfer-encoding", "x-got-keep-alive"]
        {
            assert!(!seen.to_lowercase().contains(field), "{seen}");
        }
        let seen = printed(program("curl", "curl").args(common).args([version, "-I"]).arg(&url));
        assert!(seen.to_lowercase().contains("x-method: head\r\n"), "{seen}");
    }
    let rewriting = before(&[origin.address], "host: rewrite", "");
    let reply = get(rewriting.address, "/", &[]);
    assert_eq!(reply.header("x-target"), Some(format!("http://{}/", origin.address).as_str()));
    assert_eq!(origin.connections(), 2, "one for each proxy");
}

#[test]
fn long_bodies_pass_both_ways() {
    let origin = Http2Origin::echo();
    let tollgate = before(&[origin.address], "", "");
    let body: Vec<u8> = (0..16 << 20).map(|n: u32| (n / 7) as u8).collect();
    let reply = request(tollgate.address, "POST", "/", &[], &body);
    assert_eq!(reply.status, 200);
    assert!(reply.body == body, "{} bytes", reply.body.len());
}

/// By HTTP/2, trailers may follow a body of known length, as Go's servers send it.
/// Some servers say the end of a stream in a frame of its own. A client of HTTP/1.1 has its answer before.
#[test]
fn an_answer_is_whole_before_its_stream_has_ended() {
    let origin = Http2Origin::start(|mut exchange| async move {
        let status = match exchange.head.uri().path() {
            "/204" => 204,
            "/304" => 304,
            _ => 200,
        };
        let mut stream = match status {
            204 => exchange.head(status, &[])?,
            _ => exchange.head(status, &[("content-length", "5")])?,
        };
        if status == 200 && exchange.head.method() != "HEAD" {
            stream.send_data(Bytes::from_static(b"hello"), false)?;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        stream.send_data(Bytes::new(), true)
    });
    let policy = "policies: { one: { algorithm: concurrency, key: ip, limit: 1 } }\n\
                  access_log: { format: json, to: stdout }\n";
    let tollgate = before(&[origin.address], "policies: [one]", policy);
    let mut client = Client::connect(tollgate.address);
    for (method, path, status) in
        [("GET", "/", 200), ("HEAD", "/", 200), ("GET", "/204", 204), ("GET", "/304", 304)]
    {
        for _ in 0..3 {
            let reply = client.request(method, path, &[], b"");
            assert_eq!(reply.status, status, "{method} {path}");
        }
    }
    eventually("all streams have ended", || origin.open_streams() == 0);
    assert_eq!(origin.resets(), []);
    let logged = || tollgate.stdout().iter().filter(|line| line.contains("\"status\"")).count();
    eventually("all are logged", || logged() == 12);
    assert!(!tollgate.stdout().join("\n").contains("aborted_by\":\"client"), "{:#?}", tollgate.stdout());
}

#[test]
fn trailers_behind_a_length_pass_and_are_counted() {
    let origin = Http2Origin::start(|mut exchange| async move {
        let answer =
            Response::builder().header("content-type", "application/grpc").header("content-length", 5);
        let mut stream = exchange.answer.send_response(answer.body(()).unwrap(), false)?;
        stream.send_data(Bytes::from_static(&[0; 5]), false)?;
        stream.send_trailers([("grpc-status".parse().unwrap(), "16".parse().unwrap())].into_iter().collect())
    });
    let tollgate = Tollgate::start(Config::yaml(format!(
        "upstreams: {{ origin: {{ endpoints: [\"http://{}\"], protocol: h2 }} }}
policies: {{ failures: {{ algorithm: sliding_log, key: ip, limit: 2/1h, count: {{ grpc_statuses: [16] }} }} }}
routes: [{{ path: /counted, upstream: origin, policies: [failures] }}, {{ path: /*, upstream: origin }}]",
        origin.address
    )));
    by_http2(tollgate.address, async |mut client| {
        let (answer, _) =
            client.send("POST", "/", &[("content-type", "application/grpc")], true).await.unwrap();
        let mut stream = answer.await.unwrap().into_body();
        assert_eq!(stream.data().await.unwrap().unwrap().len(), 5);
        assert_eq!(stream.trailers().await.unwrap().unwrap()["grpc-status"], "16");
    });
    // By HTTP/1.1, nobody reads the trailers.
    let call = || {
        let reply =
            request(tollgate.address, "POST", "/counted", &[("content-type", "application/grpc")], b"");
        reply.header("grpc-status").map(str::to_owned)
    };
    assert_eq!([call(), call(), call()], [None, None, Some("8".to_owned())]);
}

#[test]
fn trailers_pass_both_ways_with_pass_and_not_with_drop() {
    let origin = Http2Origin::echo();
    for (setting, passes) in [("pass", true), ("drop", false)] {
        let tollgate = Tollgate::start(Config::yaml(format!(
            "upstreams: {{ origin: {{ endpoints: [\"http://{}\"], protocol: h2 }} }}
routes: [{{ path: /*, upstream: origin, trailers: {setting} }}]",
            origin.address
        )));
        by_http2(tollgate.address, async |mut client| {
            let fields = [("te", "trailers"), ("x-a", "1")];
            let (answer, mut body) = client.send("POST", "/", &fields, false).await.unwrap();
            body.send_data(Bytes::from_static(b"body"), false).unwrap();
            let trailers = [("x-sum".parse().unwrap(), "4".parse().unwrap())];
            body.send_trailers(trailers.into_iter().collect()).unwrap();
            let (head, mut stream) = answer.await.unwrap().into_parts();
            assert_eq!(head.headers["x-got-te"], "trailers");
            assert_eq!(stream.data().await.unwrap().unwrap(), "body");
            let trailers = stream.trailers().await.unwrap().unwrap_or_default();
            assert_eq!(trailers.contains_key("x-sum"), passes, "{trailers:?}");
        });
    }
}

/// Answers each request once the test has said so, or the client has gone.
fn held(settings: Builder) -> (Http2Origin, watch::Sender<usize>) {
    let (sender, released) = watch::channel(0);
    let origin = Http2Origin::with(settings, move |mut exchange| {
        let mut released = released.clone();
        async move {
            let number: usize = exchange.head.uri().path()[1..].parse().unwrap_or(0);
            tokio::select! {
                _ = released.wait_for(|released| *released > number) => {
                    let connection = exchange.connection.to_string();
                    exchange.respond(200, &[("x-connection", &connection)], b"ok")
                }
                reset = exchange.reset_unanswered() => reset,
            }
        }
    });
    (origin, sender)
}

/// Sends GETs of `/0`, `/1`, … at once.
async fn gets(client: &mut Http2Client, count: usize) -> Vec<ResponseFuture> {
    let mut answers = Vec::new();
    for number in 0..count {
        answers.push(client.send("GET", &format!("/{number}"), &[], true).await.unwrap().0);
    }
    answers
}

/// The statuses of all these answers, sorted.
async fn statuses(answers: Vec<ResponseFuture>) -> Vec<u16> {
    let replies = futures_util::future::join_all(answers.into_iter().map(read)).await;
    let mut statuses: Vec<_> = replies.into_iter().map(|reply| reply.unwrap().status()).collect();
    statuses.sort_unstable();
    statuses
}

/// An endpoint that holds its requests, and takes so many at once on a connection.
fn held_with_streams(most: u32) -> (Http2Origin, watch::Sender<usize>) {
    let mut settings = Builder::new();
    settings.max_concurrent_streams(most);
    held(settings)
}

#[test]
fn requests_share_as_few_connections_as_the_endpoint_allows() {
    let (origin, release) = held_with_streams(4);
    let tollgate = before(&[origin.address], "timeouts: { connect: 10s }", "");
    by_http2(tollgate.address, async |mut client| {
        let answers = gets(&mut client, 10).await;
        until("all are there", || origin.open_streams() == 10).await;
        assert_eq!(origin.connections(), 3);
        release.send_replace(10);
        assert_eq!(statuses(answers).await, [200; 10]);
        for _ in 0..3 {
            assert_eq!(client.get("/0", &[]).await.unwrap().status(), 200);
        }
    });
    assert_eq!(origin.connections(), 3);
}

#[test]
fn requests_beyond_what_connections_take_wait_in_the_queue() {
    let (origin, release) = held_with_streams(2);
    let tollgate = before(&[origin.address], "max_connections: 1, timeouts: { connect: 2s }", "");
    by_http2(tollgate.address, async |mut client| {
        let answers = gets(&mut client, 3).await;
        until("two are there", || origin.open_streams() == 2).await;
        // The queue has one place, as there is one connection.
        assert_eq!(client.get("/9", &[]).await.unwrap().status(), 503);
        assert_eq!((origin.heads().len(), origin.connections()), (2, 1));
        release.send_replace(3);
        assert_eq!(statuses(answers).await, [200; 3]);
    });
    assert_eq!(origin.connections(), 1);
}

#[test]
fn workers_without_a_connection_get_their_turn() {
    let (origin, release) = held(Builder::new());
    release.send_replace(1);
    let settings = "protocol: h2, max_connections: 2, timeouts: { connect: 10s }";
    let tollgate = Tollgate::start(Config::upstream(&[origin.address], settings, "workers: 4"));
    in_runtime(async {
        let one = async || {
            let mut client = Http2Client::connect(tollgate.address).await;
            for _ in 0..20 {
                assert_eq!(client.get("/0", &[]).await.unwrap().status(), 200);
            }
        };
        futures_util::future::join_all((0..3).map(|_| one())).await;
    });
}

#[test]
fn an_endpoint_that_goes_away_finishes_what_it_has() {
    let (origin, release) = held(Builder::new());
    let tollgate = before(&[origin.address], "", "");
    by_http2(tollgate.address, async |mut client| {
        let (first, _) = client.send("GET", "/0", &[], true).await.unwrap();
        until("it is there", || origin.open_streams() == 1).await;
        origin.go_away();
        release.send_replace(2);
        // The next one comes over another connection, or over this one before the endpoint has said so.
        let reply = read(first).await.unwrap();
        assert_eq!(reply.head.headers()["x-connection"], "0");
        until("the connection has ended", || origin.open_connections() == 0).await;
        let reply = client.get("/0", &[]).await.unwrap();
        assert_eq!((reply.status(), &reply.head.headers()["x-connection"]), (200, &"1".parse().unwrap()));
    });
}

#[test]
fn a_refused_stream_is_tried_once_more_and_its_connection_goes_on() {
    // Refuses a request when it comes first.
    let (origin, release) = {
        let (release, released) = watch::channel(false);
        let seen = Arc::<AtomicUsize>::default();
        let origin = Http2Origin::start(move |mut exchange| {
            let (mut released, seen) = (released.clone(), Arc::clone(&seen));
            async move {
                let path = exchange.head.uri().path().to_owned();
                if path == "/held" {
                    let _released = released.wait_for(|released| *released).await;
                } else if path == "/never" || seen.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) {
                    exchange.answer.send_reset(Reason::REFUSED_STREAM);
                    return Ok(());
                }
                let (body, _) = exchange.read().await?;
                exchange.respond(200, &[], &body)
            }
        });
        (origin, release)
    };
    let tollgate = before(&[origin.address], "max_connections: 1, retry: { budget: 100% }", "");
    by_http2(tollgate.address, async |mut client| {
        let (held, _) = client.send("GET", "/held", &[], true).await.unwrap();
        until("it is there", || origin.open_streams() == 1).await;
        for _ in 0..3 {
            let (answer, mut body) =
                client.send("POST", "/", &[("content-length", "4")], false).await.unwrap();
            body.send_data(Bytes::from_static(b"body"), true).unwrap();
            let reply = read(answer).await.unwrap();
            assert_eq!((reply.status(), reply.text().as_str()), (200, "body"));
        }
        assert_eq!(origin.heads().len(), 7);
        assert_eq!(client.get("/never", &[]).await.unwrap().status(), 502);
        assert_eq!(origin.heads().len(), 9, "once more");
        release.send_replace(true);
        assert_eq!(read(held).await.unwrap().status(), 200);
    });
    assert_eq!(origin.connections(), 1);
    assert_eq!(tollgate.metric_total("tollgate_upstream_retries_total"), 4.0);
}

/// The frames that this origin gets, and can send: what no well-behaved one does.
fn next_frame(conn: &mut Conn) -> std::io::Result<(u8, u32)> {
    let head = conn.take(9)?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    conn.take(length as usize)?;
    Ok((head[3], u32::from_be_bytes([head[5], head[6], head[7], head[8]])))
}

/// `:status: 200` in HPACK's static table.
const OK: &[u8] = &[0x88];

/// Begins a connection, and reads until the first request: its stream.
fn first_request(conn: &mut Conn) -> std::io::Result<u32> {
    conn.take(24)?;
    conn.send(&frame(SETTINGS, 0, 0, &[]))?;
    loop {
        if let (HEADERS, stream) = next_frame(conn)? {
            return Ok(stream);
        }
    }
}

/// Sends what `answer` says to the request on stream `1`, counted from 0 by connection.
fn raw_origin(answer: impl Fn(usize) -> Vec<u8> + Send + Sync + 'static) -> Origin {
    Origin::start(move |conn| {
        first_request(conn)?;
        let answer = answer(conn.number);
        conn.send(&answer)?;
        while !answer.is_empty() {
            next_frame(conn)?;
        }
        Ok(())
    })
}

#[test]
fn a_post_is_sent_again_only_where_the_endpoint_says_that_it_has_not_processed_it() {
    let go_away = |last: u32| frame(GOAWAY, 0, 0, &[last.to_be_bytes(), [0; 4]].concat());
    let answer = [frame(HEADERS, END_HEADERS, 1, OK), frame(DATA, END_STREAM, 1, b"second")].concat();
    let reset = frame(RST_STREAM, 0, 1, &2_u32.to_be_bytes());
    for (case, first, connections) in [
        ("a GOAWAY that leaves the request out", go_away(0), 2),
        ("a GOAWAY that covers it, and a reset", [go_away(1), reset].concat(), 1),
        ("the end of the connection", Vec::new(), 1),
    ] {
        let second = answer.clone();
        let origin = raw_origin(move |connection| [&first, &second][connection.min(1)].clone());
        let tollgate = before(&[origin.address], "", "");
        let reply = request(tollgate.address, "POST", "/", &[], b"body");
        assert_eq!(reply.status, if connections == 2 { 200 } else { 502 }, "{case}");
        assert_eq!(reply.text() == "second", connections == 2, "{case}");
        assert_eq!(origin.connections(), connections, "{case}");
    }
}

#[test]
fn a_reset_amid_a_body_is_never_its_end() {
    for head in [OK.to_vec(), [OK, &[0x0f, 0x0d, 0x01, b'9']].concat()] {
        let origin = Origin::start(move |conn| {
            first_request(conn)?;
            conn.send(&[frame(HEADERS, END_HEADERS, 1, &head), frame(DATA, 0, 1, b"part")].concat())?;
            conn.pause()?;
            conn.send(&frame(RST_STREAM, 0, 1, &[0; 4]))?;
            conn.closed();
            Ok(())
        });
        let tollgate = before(&[origin.address], "", "");
        let mut client = Client::sending(tollgate.address, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        eventually("the head is there", || client.has_something_to_read());
        origin.resume();
        client.broken_off();
        eventually("it is logged", || tollgate.has_logged(&["failed", "broke off"]));
        origin.resume();
        let tollgate = before(&[origin.address], "", "");
        by_http2(tollgate.address, async |mut client| {
            let (answer, _) = client.send("GET", "/", &[], true).await.unwrap();
            let error = read(answer).await.unwrap_err();
            assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR), "{error}");
        });
    }
}

#[test]
fn an_answer_before_the_end_of_the_upload_comes_whole() {
    // As RFC 9113, 8.1 has it: the whole answer, and a reset without an error, which h2 sends for what was not read.
    let origin = Http2Origin::start(|mut exchange| async move {
        exchange.data().await?;
        exchange.respond(413, &[("x-a", "1")], &[b'x'; 100_000])
    });
    let tollgate = before(&[origin.address], "", "");
    let mut client = Client::connect(tollgate.address);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nbegun");
    let reply = client.reply();
    assert_eq!((reply.status, reply.body.len()), (413, 100_000));
    by_http2(tollgate.address, async |mut client| {
        let (answer, mut body) = client.send("POST", "/", &[], false).await.unwrap();
        body.send_data(Bytes::from_static(b"begun"), false).unwrap();
        let reply = read(answer).await.unwrap();
        assert_eq!((reply.status(), reply.body.len()), (413, 100_000));
        assert_eq!(client.get("/", &[]).await.unwrap().status(), 413, "the connection goes on");
    });
    assert_eq!(origin.connections(), 1, "and so does the endpoint's");
}

#[test]
fn a_client_that_goes_away_cancels_its_stream_alone() {
    let (origin, release) = held(Builder::new());
    let tollgate = before(&[origin.address], "", "");
    by_http2(tollgate.address, async |mut client| {
        let (other, _) = client.send("GET", "/1", &[], true).await.unwrap();
        // By HTTP/2, and by HTTP/1, with a body and without.
        let (unanswered, _) = client.send("GET", "/5", &[], true).await.unwrap();
        let mut closing = Client::connect(tollgate.address);
        closing.send("POST /5 HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nbegun");
        until("all are there", || origin.open_streams() == 3).await;
        drop((unanswered, closing));
        until("two are reset", || origin.resets() == [Reason::CANCEL, Reason::CANCEL]).await;
        release.send_replace(2);
        assert_eq!(read(other).await.unwrap().status(), 200);
    });
    assert_eq!((origin.connections(), origin.open_connections()), (1, 1));
}

#[test]
fn a_client_that_goes_away_cancels_a_call_that_both_sides_still_send() {
    // Reads nothing of the request, so that its body waits for a window.
    let origin = Http2Origin::start(|mut exchange| async move {
        let mut stream = exchange.head(200, &[])?;
        send_body(&mut stream, Bytes::from_static(b"begun")).await?;
        exchange.reset(&mut stream).await
    });
    let tollgate = before(&[origin.address], "", "");
    by_http2(tollgate.address, async |mut client| {
        let (answer, mut body) = client.send("POST", "/", &[], false).await.unwrap();
        let mut answer = answer.await.unwrap().into_body();
        assert_eq!(answer.data().await.unwrap().unwrap(), "begun");
        let upload = Bytes::from(vec![0; 200_000]);
        body.send_data(upload, false).unwrap();
        client.ping().await.unwrap();
        body.send_reset(Reason::CANCEL);
        drop((answer, body));
        client.ping().await.unwrap();
    });
    eventually("it is reset", || origin.resets() == [Reason::CANCEL]);
    eventually("its handler has ended", || origin.open_streams() == 0);
}

#[test]
fn an_upload_that_breaks_off_is_never_whole() {
    for end in [Reason::NO_ERROR, Reason::CANCEL, Reason::REFUSED_STREAM] {
        let origin = Http2Origin::start(|mut exchange| async move {
            let error = exchange.read().await.expect_err("it broke off");
            assert_eq!(error.reason(), Some(Reason::CANCEL));
            exchange.reset_unanswered().await
        });
        let tollgate = before(&[origin.address], "", "");
        by_http2(tollgate.address, async |mut client| {
            let (_answer, mut body) = client.send("POST", "/", &[], false).await.unwrap();
            body.send_data(Bytes::from_static(b"begun"), false).unwrap();
            until("it is there", || origin.open_streams() == 1).await;
            body.send_reset(end);
            client.ping().await.unwrap();
        });
        eventually("it is reset", || origin.resets() == [Reason::CANCEL]);
    }
}

#[test]
fn a_client_that_reads_nothing_stops_its_own_stream_alone() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&sent);
    let origin = Http2Origin::start(move |mut exchange| {
        let counter = Arc::clone(&counter);
        async move {
            if exchange.head.uri().path() == "/short" {
                return exchange.respond(200, &[], &[0; 100_000]);
            }
            let mut stream = exchange.head(200, &[])?;
            loop {
                send_body(&mut stream, Bytes::from(vec![0; 16 << 10])).await?;
                counter.fetch_add(16 << 10, Ordering::SeqCst);
            }
        }
    });
    let tollgate = before(&[origin.address], "", "");
    by_http2(tollgate.address, async |mut client| {
        let mut stalled = Vec::new();
        for _ in 0..50 {
            let (answer, _) = client.send("GET", "/endless", &[], true).await.unwrap();
            stalled.push(answer.await.unwrap().into_body());
        }
        let mut other = Http2Client::connect(tollgate.address).await;
        let mut before = 0;
        // Until nothing moves any more, and still the others are served.
        loop {
            for _ in 0..20 {
                let reply = other.get("/short", &[]).await.unwrap();
                assert_eq!((reply.status(), reply.body.len()), (200, 100_000));
            }
            let now = sent.load(Ordering::SeqCst);
            if now == before {
                break;
            }
            before = now;
        }
        // A window, and what is on its way to the client and in the frame at hand.
        let most = 50 * ((256 << 10) + (64 << 10) + (64 << 10) + (16 << 10));
        assert!(before <= most, "{before} bytes were sent");
    });
    assert_eq!(origin.connections(), 1);
}

/// A gRPC service sends each message in a frame of its own. h2 gives a connection up whose small frames nobody reads. With a larger
/// `data_frame_budget` it would keep them, and needs some 400 bytes of memory for each.
#[test]
fn clients_that_read_none_of_many_small_messages_stop_their_own_streams_alone() {
    let origin = Http2Origin::start(move |mut exchange| async move {
        if exchange.head.uri().path() == "/short" {
            return exchange.respond(200, &[], &[0; 100_000]);
        }
        let mut stream = exchange.head(200, &[])?;
        let mut message = 0_u32;
        loop {
            send_body(&mut stream, Bytes::from(format!("{message:016}"))).await?;
            message += 1;
        }
    });
    let tollgate = before(&[origin.address], "", "");
    in_runtime(async {
        let mut settings = h2::client::Builder::new();
        settings.initial_window_size(4_096).data_frame_budget(usize::MAX);
        let resident = tollgate.resident_kib();
        let mut client = Http2Client::with(tollgate.address, &settings).await;
        let mut stalled = Vec::new();
        for _ in 0..8 {
            let (answer, _) = client.send("GET", "/endless", &[], true).await.unwrap();
            stalled.push(answer.await.unwrap().into_body());
        }
        let mut other = Http2Client::connect(tollgate.address).await;
        let end = Instant::now() + Duration::from_secs(5);
        while Instant::now() < end {
            let reply = other.get("/short", &[]).await.unwrap();
            assert_eq!((reply.status(), reply.body.len()), (200, 100_000));
        }
        let more = tollgate.resident_kib().saturating_sub(resident);
        assert!(more < 30_000, "{more} KiB more");
        // What was held for them is whole, and in order.
        for body in &mut stalled {
            let mut received = Vec::new();
            while received.len() < 400_000 {
                let data = body.data().await.unwrap().unwrap();
                body.flow_control().release_capacity(data.len()).unwrap();
                received.extend_from_slice(&data);
            }
            let messages =
                received.chunks_exact(16).map(|message| String::from_utf8_lossy(message).into_owned());
            let sent = (0..received.len() / 16).map(|message| format!("{message:016}"));
            assert!(messages.eq(sent));
        }
    });
    assert_eq!(origin.connections(), 1);
}

/// As a gRPC client does that streams what it has, before there is a connection to its service.
#[test]
fn many_small_messages_at_once_pass() {
    let mut settings = Builder::new();
    settings.data_frame_budget(usize::MAX);
    let origin = Http2Origin::with(settings, |mut exchange| async move {
        let (body, _) = exchange.read().await?;
        exchange.respond(200, &[], &body)
    });
    let tollgate = before(&[origin.address], "", "");
    by_http2(tollgate.address, async |mut client| {
        let messages = 12_000;
        let (answer, mut body) = client.send("POST", "/", &[], false).await.unwrap();
        for message in 0..messages {
            body.send_data(Bytes::from(format!("{message:016}")), message + 1 == messages).unwrap();
        }
        let reply = read(answer).await.unwrap();
        let sent: String = (0..messages).map(|message| format!("{message:016}")).collect();
        assert!(reply.body == sent.into_bytes(), "{} {} bytes", reply.status(), reply.body.len());
    });
}

/// As in a stream of events of which the client confirms each.
#[test]
fn a_call_may_be_quiet_after_a_message_of_its_client() {
    let origin = Http2Origin::start(|mut exchange| async move {
        let mut answer = exchange.head(200, &[("content-type", "application/grpc")])?;
        while let Ok(data) = exchange.data().await {
            if data.is_empty() {
                break;
            }
            send_body(&mut answer, data).await?;
        }
        answer.send_trailers([("grpc-status".parse().unwrap(), "0".parse().unwrap())].into_iter().collect())
    });
    let limits = "client_limits: { idle_timeout: 1s, min_rate: { bytes: 1000, grace: 500ms } }\n";
    let tollgate = before(&[origin.address], "timeouts: { response: 10s, idle: 10s }", limits);
    by_http2(tollgate.address, async |mut client| {
        let fields = [("content-type", "application/grpc"), ("te", "trailers")];
        let (answer, mut body) = client.send("POST", "/", &fields, false).await.unwrap();
        let mut answer = answer.await.unwrap().into_body();
        for pause in [0, 2_500, 1_500] {
            tokio::time::sleep(Duration::from_millis(pause)).await;
            send_body(&mut body, Bytes::from_static(b"message")).await.unwrap();
            let message = answer.data().await.unwrap().unwrap();
            answer.flow_control().release_capacity(message.len()).unwrap();
            assert_eq!(message, "message");
        }
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        body.send_data(Bytes::new(), true).unwrap();
        assert!(answer.data().await.is_none());
        assert_eq!(answer.trailers().await.unwrap().unwrap()["grpc-status"], "0");
    });
}

#[test]
fn an_endpoint_that_reads_nothing_stops_the_upload() {
    let origin = Http2Origin::start(|mut exchange| async move { exchange.reset_unanswered().await });
    let tollgate = before(&[origin.address], "", "");
    by_http2(tollgate.address, async |mut client| {
        let (_answer, mut body) = client.send("POST", "/", &[], false).await.unwrap();
        let mut taken = 0;
        let chunk = Bytes::from(vec![0; 16 << 10]);
        let moves = Duration::from_secs(2);
        while let Ok(sent) = tokio::time::timeout(moves, send_body(&mut body, chunk.clone())).await {
            sent.unwrap();
            taken += chunk.len();
            assert!(taken <= 1 << 20, "{taken} bytes were taken");
        }
    });
}

#[test]
fn an_endpoint_is_asked_whether_it_wants_the_body() {
    let origin = Http2Origin::start(|mut exchange| async move {
        if exchange.head.uri().path() == "/refused" {
            return exchange.respond(401, &[], b"no");
        }
        let go_on = http::Response::builder().status(100).body(()).unwrap();
        exchange.answer.send_informational(go_on)?;
        let (body, _) = exchange.read().await?;
        exchange.respond(200, &[], &body)
    });
    let tollgate = before(&[origin.address], "", "");
    let took = quickest(|| {
        let mut client = Client::connect(tollgate.address);
        client.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
        let begun = Instant::now();
        assert!(client.line().unwrap().starts_with("HTTP/1.1 100"));
        assert_eq!(client.line().unwrap(), "");
        let took = begun.elapsed();
        client.send("body");
        assert_eq!(client.reply().text(), "body");
        took
    });
    assert!(took < Duration::from_millis(900), "it did not wait for the fallback");
    let mut client = Client::connect(tollgate.address);
    client.send("POST /refused HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
    assert_eq!(client.reply().status, 401);
}

#[test]
fn an_endpoint_that_speaks_http_1_gets_502_and_a_warning_that_says_so() {
    let origin = Origin::saying("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    let tollgate = before(&[origin.address], "", "");
    assert_eq!(get(tollgate.address, "/", &[]).status, 502);
    let url = format!("http://{}", origin.address);
    eventually("it is logged", || {
        tollgate.has_logged(&["WARN", &url, "does not speak HTTP/2", "set `protocol: h1`"])
    });
}

#[test]
fn all_requests_that_wait_for_an_endpoint_that_says_nothing_get_504_at_once() {
    let origin = Origin::sink();
    let tollgate = before(&[origin.address], "timeouts: { connect: 500ms }", "");
    by_http2(tollgate.address, async |mut client| {
        let begun = Instant::now();
        let answers = gets(&mut client, 20).await;
        assert_eq!(statuses(answers).await, [504; 20]);
        assert!(begun.elapsed() < Duration::from_secs(5), "one after the other");
    });
    assert!(origin.connections() <= 2, "{}", origin.connections());
}

#[test]
fn an_endpoint_slower_to_connect_to_than_any_request_may_take_is_connected_to() {
    let origin = Origin::start(|conn| {
        conn.take(24)?;
        thread::sleep(Duration::from_millis(400));
        conn.send(&frame(SETTINGS, 0, 0, &[]))?;
        loop {
            if let (HEADERS, stream) = next_frame(conn)? {
                conn.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream, OK))?;
            }
        }
    });
    let tollgate = before(&[origin.address], "timeouts: { connect: 10s, total: 200ms }", "");
    assert_eq!(get(tollgate.address, "/", &[]).status, 504);
    eventually("a request is answered", || get(tollgate.address, "/", &[]).status == 200);
    assert_eq!(origin.connections(), 1, "all wait for the same");
}

/// Does not answer `/` on its first connection.
fn silent_on_the_first() -> Http2Origin {
    Http2Origin::start(|mut exchange| async move {
        match (exchange.connection, exchange.head.uri().path()) {
            (0, "/") => exchange.reset_unanswered().await,
            _ => exchange.respond(200, &[], b"ok"),
        }
    })
}

#[test]
fn a_connection_that_is_silent_gets_no_other_request() {
    let origin = silent_on_the_first();
    let tollgate = before(&[origin.address], "timeouts: { response: 1500ms }", "");
    // What opens the connection has come by then.
    assert_eq!(get(tollgate.address, "/first", &[]).status, 200);
    assert_eq!(get(tollgate.address, "/", &[]).status, 504);
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    eventually("the first one is closed", || origin.open_connections() == 1);
}

#[test]
fn a_connection_that_is_silent_serves_where_no_other_may_be_opened() {
    let (origin, release) = held(Builder::new());
    release.send_replace(1);
    for (connections, expected) in [(1, ["0", "0"]), (2, ["1", "0"])] {
        let settings = format!("max_connections: {connections}, timeouts: {{ response: 10s }}");
        let before_it = origin.connections();
        let tollgate = before(&[origin.address], &settings, "");
        by_http2(tollgate.address, async |mut client| {
            let number = async |client: &mut Http2Client| {
                let reply = client.get("/0", &[]).await.unwrap();
                assert_eq!(reply.status(), 200, "{}", reply.text());
                let number = reply.head.headers()["x-connection"].to_str().unwrap().parse::<usize>().unwrap();
                (number - before_it).to_string()
            };
            assert_eq!(number(&mut client).await, "0");
            let (held, _) = client.send("GET", "/1", &[], true).await.unwrap();
            until("it is there", || origin.open_streams() == 1).await;
            let (given_up, _) = client.send("GET", "/2", &[], true).await.unwrap();
            until("it is there", || origin.open_streams() == 2).await;
            tokio::time::sleep(Duration::from_millis(1200)).await;
            drop(given_up);
            until("it is cancelled", || origin.open_streams() == 1).await;
            assert_eq!(number(&mut client).await, expected[0]);
            // Something comes over the first one.
            let begun = Instant::now();
            release.send_replace(2);
            assert_eq!(read(held).await.unwrap().status(), 200);
            release.send_replace(1);
            assert!(begun.elapsed() < Duration::from_secs(5));
            assert_eq!(number(&mut client).await, expected[1]);
        });
        eventually("its connections are there", || origin.connections() == before_it + connections);
    }
}

#[test]
fn a_dead_connection_is_closed_under_load_where_no_other_may_be_opened() {
    let origin = silent_on_the_first();
    let tollgate = before(&[origin.address], "max_connections: 1, timeouts: { response: 1500ms }", "");
    assert_eq!(get(tollgate.address, "/first", &[]).status, 200);
    let statuses = Arc::<Mutex<Vec<u16>>>::default();
    by_http2(tollgate.address, async |mut client| {
        let end = Instant::now() + PATIENCE;
        // There is always one on the way.
        while !statuses.lock().unwrap().contains(&200) {
            assert!(Instant::now() < end, "{statuses:?}");
            let (answer, _) = client.send("GET", "/", &[], true).await.unwrap();
            let seen = Arc::clone(&statuses);
            tokio::spawn(async move {
                let reply = read(answer).await.unwrap();
                seen.lock().unwrap().push(reply.status());
            });
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    });
    assert_eq!(origin.connections(), 2);
}

#[test]
fn an_idle_connection_is_closed_in_time() {
    let origin = Http2Origin::ok();
    let tollgate = before(&[origin.address], "timeouts: { idle: 300ms }", "");
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    eventually("it is closed", || origin.open_connections() == 0);
    let states = |state: &str| {
        tollgate.metric(&format!("tollgate_upstream_connections{{upstream=\"origin\",state=\"{state}\"}}"))
    };
    eventually("it is not counted", || states("idle") + states("active") == 0.0);
    eventually("it is idle", || {
        assert_eq!(get(tollgate.address, "/", &[]).status, 200);
        states("idle") == 1.0
    });
}

#[test]
fn a_dead_connection_fails_its_own_streams_alone() {
    let (dead, _held) = held(Builder::new());
    let (alive, release) = held(Builder::new());
    let tollgate = before(&[dead.address, alive.address], "balance: round_robin", "");
    by_http2(tollgate.address, async |mut client| {
        let mut answers = Vec::new();
        for _ in 0..6 {
            answers.push(client.send("POST", "/0", &[], true).await.unwrap().0);
        }
        until("all are there", || dead.open_streams() == 3 && alive.open_streams() == 3).await;
        dead.close();
        release.send_replace(1);
        assert_eq!(statuses(answers).await, [200, 200, 200, 502, 502, 502]);
    });
}

#[test]
fn the_lease_of_a_request_lasts_until_its_stream_is_answered_or_given_up() {
    let (origin, release) = held(Builder::new());
    let tollgate = before(
        &[origin.address],
        "policies: [parallel]",
        "policies: { parallel: { algorithm: concurrency, key: ip, limit: 1, lease: 60s } }",
    );
    let client = Client::sending(tollgate.address, "GET /0 HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("it is there", || origin.open_streams() == 1);
    assert_eq!(get(tollgate.address, "/1", &[]).status, 429);
    // The endpoint works on: only its answer tells that it has done with it.
    drop(client);
    assert_eq!(get(tollgate.address, "/1", &[]).status, 429);
    release.send_replace(2);
    eventually("the lease is given back", || get(tollgate.address, "/1", &[]).status == 200);
}

#[test]
fn the_handshake_chooses_the_version() {
    let authority = Authority::new("tests");
    let certificate = authority.issue("origin", &["127.0.0.1"]);
    let of_http2 = Http2Origin::over_tls(&certificate, Builder::new(), |mut exchange| async move {
        exchange.read().await?;
        exchange.respond(200, &[], b"ok")
    });
    let mut config = server_config(&certificate);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let of_http1 = Origin::start_tls(config, Conn::serve_ok);
    for (protocol, address, via) in [
        ("auto", of_http2.address, Some("2.0 tollgate")),
        ("h2", of_http2.address, Some("2.0 tollgate")),
        ("h1", of_http2.address, None),
        ("auto", of_http1.address, Some("1.1 tollgate")),
        ("h1", of_http1.address, Some("1.1 tollgate")),
        ("h2", of_http1.address, None),
    ] {
        let ca = authority.file();
        let tollgate = Tollgate::start(Config::yaml(format!(
            "upstreams: {{ origin: {{ endpoints: [\"https://{address}\"], protocol: {protocol}, tls: {{ ca: {} }}, {PATIENT} }} }}
routes: [{{ path: /*, upstream: origin }}]",
            ca.display()
        )));
        for _ in 0..2 {
            let reply = request(tollgate.address, "POST", "/", &[], b"body");
            assert_eq!(reply.status, if via.is_some() { 200 } else { 502 }, "{protocol}: {}", reply.text());
            assert_eq!(reply.header("via"), via, "{protocol}");
        }
        if via.is_none() {
            let why = match protocol {
                "h1" => "the server does not offer HTTP/1.1 in its TLS handshake (ALPN)",
                _ => "the server does not speak HTTP/2, by its TLS handshake (ALPN): set `protocol: h1`",
            };
            eventually("it is logged", || tollgate.has_logged(&["WARN", "could not be reached", why]));
        }
    }
}

/// An origin that answers each request with 103s without end, and never with anything else.
fn flooding() -> Origin {
    Origin::start(|conn| {
        let stream = first_request(conn)?;
        let fields = block(&[(b":status", b"103"), (b"link", b"</a.css>")]);
        let hints = frame(HEADERS, END_HEADERS, stream, &fields).repeat(1000);
        loop {
            conn.send(&hints)?;
        }
    })
}

#[test]
fn a_flood_of_informational_responses_is_a_502_and_delays_nobody() {
    let (flooding, origin) = (flooding(), Origin::ok());
    let tollgate = Tollgate::start(Config::yaml(format!(
        "
workers: 1
upstreams:
  flooding: {{ endpoints: [\"http://{}\"], protocol: h2, timeouts: {{ response: 60s }} }}
  good: {{ endpoints: [\"http://{}\"] }}
routes:
  - {{ path: /flood, upstream: flooding }}
  - {{ path: /hinted, upstream: flooding, early_hints: pass }}
  - {{ path: /*, upstream: good }}
",
        flooding.address, origin.address
    )));
    let is_over = AtomicBool::new(false);
    let longest = thread::scope(|scope| {
        let others = scope.spawn(|| {
            let (mut client, mut longest) = (Client::connect(tollgate.address), Duration::ZERO);
            while !is_over.load(Ordering::SeqCst) {
                let asked = Instant::now();
                assert_eq!(client.request("GET", "/", &[], b"").status, 200);
                longest = longest.max(asked.elapsed());
            }
            longest
        });
        for path in ["/flood", "/hinted"].repeat(20) {
            let mut client = Client::connect(tollgate.address);
            client.send(format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n"));
            let mut hints = 0;
            let status = loop {
                match client.reply().status {
                    103 => hints += 1,
                    status => break status,
                }
            };
            assert_eq!(status, 502);
            assert!(hints <= 8, "{hints}");
        }
        eventually("the floods are cut off", || flooding.open_connections() == 0);
        is_over.store(true, Ordering::SeqCst);
        others.join().unwrap()
    });
    // Some fifty times what it takes.
    assert!(longest < Duration::from_secs(5), "{longest:?}");
}
