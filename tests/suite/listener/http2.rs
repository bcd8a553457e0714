//! HTTP/2: what its clients are served, what each stream may do, and what a connection may not.

use std::{
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use h2::{Reason, client::Builder};

use super::Https;
use crate::harness::{
    Client, Config, Http2Client, Http2Origin, Origin, PATIENCE, Tollgate, by_http2, eventually,
    frames::{self, DATA, END_HEADERS, END_STREAM, FrameClient, HEADERS, RST_STREAM, frame},
    in_runtime, printed, program, read, reset_of,
};

/// What curl prints of a request by these options: the version, and the status.
fn curl(options: &[&str], url: &str) -> String {
    let common = ["-sS", "--max-time", "10", "-o", "/dev/null", "-w", "%{http_version} %{http_code}"];
    printed(program("curl", "curl").args(common).args(options).arg(url))
}

#[test]
fn clients_choose_it_in_the_handshake_or_begin_with_it() {
    let origin = Origin::ok();
    let https = Https::before(&origin);
    let ca = https.authority.file();
    let ca = ca.to_str().unwrap();
    assert_eq!(curl(&["--cacert", ca], &https.url("/")), "2 200");
    assert_eq!(curl(&["--cacert", ca, "--http1.1"], &https.url("/")), "1.1 200");
    let plain = Tollgate::start(Config::new(&[origin.address], ""));
    let url = format!("http://{}/", plain.address);
    assert_eq!(curl(&["--http2-prior-knowledge"], &url), "2 200");
    // An upgrade is not taken: the request is served as it is.
    assert_eq!(curl(&["--http2"], &url), "1.1 200");
    assert_eq!(curl(&[], &url), "1.1 200");
}

#[test]
fn a_listener_without_it_speaks_http_1_alone() {
    let origin = Origin::ok();
    let https = Https::with(&origin, ", http2: false", "");
    let ca = https.authority.file();
    assert_eq!(curl(&["--cacert", ca.to_str().unwrap()], &https.url("/")), "1.1 200");
    let plain = Tollgate::start(Config::new(
        &[origin.address],
        "listeners: [{ address: \"127.0.0.1:0\", http2: false }]",
    ));
    let mut client = Client::sending(plain.address, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert!(client.closed() || client.unread().starts_with("HTTP/1.1 4"), "{}", client.unread());
}

#[test]
fn a_method_that_begins_like_the_preface_is_one_of_http_1() {
    let origin = Origin::echo();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    for first in ["P", "PR", "PRI", "PRI * HTTP/2.0\r\n\r"] {
        let mut client = Client::sending(tollgate.address, first);
        client.wait_until_read();
        client.send("OPFIND / HTTP/1.1\r\nHost: a\r\n\r\n");
        let is_request = first.len() < 4;
        assert_eq!(client.reply().status, if is_request { 200 } else { 505 }, "{first:?}");
    }
}

#[test]
fn the_origin_gets_one_request_of_http_1() {
    let origin = Origin::echo();
    let tollgate =
        Tollgate::start(Config::new(&[origin.address], "access_log: { format: json, to: stdout }"));
    by_http2(tollgate.address, async |mut client| {
        let fields = [("cookie", "a=1"), ("cookie", "b=2"), ("te", "trailers"), ("x-a", "1"), ("x-a", "2")];
        let reply = client.get("/a/./b?c=d", &fields).await.unwrap();
        assert_eq!(reply.status(), 200);
        assert!(!reply.head.headers().contains_key("connection"), "{:?}", reply.head.headers());
        let seen: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!(seen["target"], "/a/b?c=d");
        let all = |wanted: &str| -> Vec<&str> {
            let fields = seen["headers"].as_array().unwrap().iter();
            let of = fields.filter(|field| field[0].as_str().unwrap().eq_ignore_ascii_case(wanted));
            of.map(|field| field[1].as_str().unwrap()).collect()
        };
        assert_eq!(all("cookie"), ["a=1; b=2"]);
        assert_eq!(all("host"), [tollgate.address.to_string()]);
        assert_eq!(all("via"), ["2.0 tollgate"]);
        assert_eq!(all("x-a"), ["1", "2"]);
        assert_eq!(all("transfer-encoding").len() + all("content-length").len(), 0, "it has no body");

        let (answer, mut body) = client.send("POST", "/up", &[], false).await.unwrap();
        body.send_data(Bytes::from_static(b"hello "), false).unwrap();
        client.ping().await.unwrap();
        body.send_data(Bytes::from_static(b"world"), true).unwrap();
        let seen: serde_json::Value = serde_json::from_slice(&read(answer).await.unwrap().body).unwrap();
        assert_eq!((&seen["body"], &seen["method"]), (&"hello world".into(), &"POST".into()));
    });
    let line = || tollgate.stdout().into_iter().find(|line| line.contains("/a/./b?c=d"));
    eventually("it is logged", || line().is_some());
    let line: serde_json::Value = serde_json::from_str(&line().unwrap()).unwrap();
    assert_eq!(line["protocol"], "HTTP/2.0");
    assert_eq!(line["host"], tollgate.address.to_string());
}

#[test]
fn ambiguous_requests_are_refused() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::new(&[origin.address], "client_limits: { headers: 20 }"));
    by_http2(tollgate.address, async |mut client| {
        let reply = client.get("/", &[("host", "other.example")]).await.unwrap();
        assert_eq!(reply.status(), 400, "{}", reply.text());
        let own = tollgate.address.to_string();
        assert_eq!(client.get("/", &[("host", &own)]).await.unwrap().status(), 200);
        let names: Vec<String> = (0..21).map(|n| format!("x-{n}")).collect();
        let many: Vec<_> = names.iter().map(|name| (name.as_str(), "v")).collect();
        assert_eq!(client.get("/", &many).await.unwrap().status(), 431);
        assert_eq!(client.get("/", &[]).await.unwrap().status(), 200, "the connection goes on");
    });
    assert_eq!(origin.heads().len(), 2);
}

/// hyper tells a body that was reset without an error like one that has ended.
#[test]
fn a_body_that_was_reset_never_ends_as_if_it_were_whole() {
    let origin = Origin::echo();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    in_runtime(async {
        for reason in 0..14_u32 {
            let before = origin.ended();
            let mut client = Http2Client::connect(tollgate.address).await;
            let path = format!("/cut-off-{reason}");
            let (_answer, mut body) = client.send("POST", &path, &[], false).await.unwrap();
            body.send_data(Bytes::from_static(b"the first half"), false).unwrap();
            client.ping().await.unwrap();
            let is_there =
                || origin.received().iter().any(|all| all.contains(&path) && all.contains("the first half"));
            eventually("the first half is there", is_there);
            body.send_reset(Reason::from(reason));
            client.ping().await.unwrap();
            eventually("the origin's connection ends", || origin.ended() > before);
            let received = origin.received().into_iter().find(|all| all.contains(&path)).unwrap();
            assert!(!received.ends_with("0\r\n\r\n"), "{reason}: {received:?}");
        }
    });
}

#[test]
fn a_stream_that_stalls_ends_alone() {
    const LARGE: usize = 4 << 20;
    let origin = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            conn.body(&head)?;
            let body = if head.starts_with("GET /large") { vec![b'x'; LARGE] } else { b"ok".to_vec() };
            conn.answer("200 OK", &[], &body)?;
        }
        Ok(())
    });
    let limits = "client_limits: { idle_timeout: 1s }";
    let tollgate = Tollgate::start(Config::new(&[origin.address], limits));
    in_runtime(async {
        let mut settings = Builder::new();
        settings.initial_window_size(10_000).initial_connection_window_size(1 << 20);
        let mut client = Http2Client::with(tollgate.address, &settings).await;
        let begun = Instant::now();
        let (stalled, _) = client.send("GET", "/large", &[], true).await.unwrap();
        let stalled = tokio::spawn(async move { reset_of(stalled.await.unwrap().into_body()).await });
        let (upload, mut body) =
            client.send("POST", "/up", &[("content-length", "100000")], false).await.unwrap();
        body.send_data(Bytes::from_static(b"first"), false).unwrap();
        let mut served = 0;
        while !stalled.is_finished() {
            assert_eq!(client.get("/", &[]).await.unwrap().status(), 200);
            served += 1;
            // The test is about time.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(stalled.await.unwrap(), Some(Reason::CANCEL));
        let elapsed = begun.elapsed();
        assert!(Duration::from_millis(900) < elapsed && elapsed < Duration::from_secs(5), "{elapsed:?}");
        assert!(served > 5, "{served} others were served");
        assert_eq!(read(upload).await.unwrap().status(), 408);
        assert_eq!(client.get("/", &[]).await.unwrap().status(), 200);
    });
    let cut_off = |body: &str| {
        tollgate
            .metric(&format!("tollgate_requests_cut_off_total{{body=\"{body}\",reason=\"idle_timeout\"}}"))
    };
    eventually("both are counted", || (cut_off("response"), cut_off("request")) == (1.0, 1.0));
}

#[test]
fn a_client_that_reads_a_stream_below_the_rate_is_cut_off() {
    let origin = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            conn.body(&head)?;
            conn.answer("200 OK", &[], &vec![b'x'; 4 << 20])?;
        }
        Ok(())
    });
    let limits = "client_limits: { idle_timeout: 60s, min_rate: { bytes: 100000, grace: 1s } }";
    let tollgate = Tollgate::start(Config::new(&[origin.address], limits));
    in_runtime(async {
        let mut settings = Builder::new();
        settings.initial_window_size(10_000);
        let mut client = Http2Client::with(tollgate.address, &settings).await;
        let begun = Instant::now();
        let (answer, _) = client.send("GET", "/large", &[], true).await.unwrap();
        let mut stream = answer.await.unwrap().into_body();
        let reason = loop {
            match stream.data().await {
                Some(Ok(data)) => {
                    // 10 kB in 200 ms.
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    let released = stream.flow_control().release_capacity(data.len());
                    if let Err(error) = released {
                        break error.reason();
                    }
                }
                Some(Err(error)) => break error.reason(),
                None => panic!("it was not cut off"),
            }
            assert!(begun.elapsed() < Duration::from_secs(15), "it is not cut off");
        };
        assert_eq!(reason, Some(Reason::CANCEL));
    });
    eventually("it is counted", || {
        tollgate.metric("tollgate_requests_cut_off_total{body=\"response\",reason=\"min_rate\"}") == 1.0
    });
}

#[test]
fn a_banned_client_is_answered_and_loses_its_connection() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    tollgate.command(&["ban", "127.0.0.1", "--for", "1h", "--force"]);
    by_http2(tollgate.address, async |mut client| {
        assert_eq!(client.get("/", &[]).await.unwrap().status(), 403);
        closed_in_order(&mut client).await;
    });
}

/// The connection ends with GOAWAY, and without an error.
async fn closed_in_order(client: &mut Http2Client) {
    if let Err(error) = client.ended().await {
        assert!(error.is_go_away() && error.reason() == Some(Reason::NO_ERROR), "{error:?}");
    }
}

#[test]
fn a_drain_ends_connections_after_their_requests() {
    let origin = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            conn.body(&head)?;
            if head.starts_with("GET /slow") {
                conn.pause()?;
            }
            conn.answer("200 OK", &[], b"ok")?;
        }
        Ok(())
    });
    let mut tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    by_http2(tollgate.address, async |mut client| {
        let mut idle = Http2Client::connect(tollgate.address).await;
        assert_eq!(idle.get("/", &[]).await.unwrap().status(), 200);
        let (answer, _) = client.send("GET", "/slow", &[], true).await.unwrap();
        client.ping().await.unwrap();
        eventually("it is under way", || origin.heads().iter().any(|head| head.starts_with("GET /slow")));
        tollgate.signal("TERM");
        closed_in_order(&mut idle).await;
        let refused = async {
            while client.send("GET", "/", &[], true).await.is_ok() {
                // One after the other at once, all of them reset, would be a flood.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), refused).await.expect("no other request is taken");
        origin.resume();
        assert_eq!(read(answer).await.unwrap().status(), 200);
        closed_in_order(&mut client).await;
    });
    assert!(tollgate.wait().success());
}

#[test]
fn idle_connections_are_closed_in_order() {
    let origin = Origin::ok();
    let limits = "client_limits: { idle_timeout: 1s, header_timeout: 1s }";
    let tollgate = Tollgate::start(Config::new(&[origin.address], limits));
    in_runtime(async {
        let mut silent = Http2Client::connect(tollgate.address).await;
        let mut served = Http2Client::connect(tollgate.address).await;
        assert_eq!(served.get("/", &[]).await.unwrap().status(), 200);
        closed_in_order(&mut silent).await;
        closed_in_order(&mut served).await;
    });
    eventually("nothing is left", || tollgate.metric("tollgate_connections") == 0.0);
}

#[test]
fn open_streams_cost_little() {
    const CONNECTIONS: usize = 50;
    const STREAMS: usize = 10;
    // Takes every connection, and answers none.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let held = Arc::<Mutex<Vec<TcpStream>>>::default();
    let taken = Arc::clone(&held);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            taken.lock().unwrap().push(stream);
        }
    });
    let tollgate = Tollgate::start(Config::new(&[address], ""));
    in_runtime(async {
        let mut clients = Vec::new();
        for _ in 0..CONNECTIONS {
            clients.push(Http2Client::connect(tollgate.address).await);
        }
        let before = tollgate.resident_kib();
        let mut open = Vec::new();
        for client in &mut clients {
            for _ in 0..STREAMS {
                open.push(client.send("GET", "/", &[], true).await.unwrap());
            }
            client.ping().await.unwrap();
        }
        // Without blocking the clients: they may not have sent all of it.
        let under_way = async {
            while held.lock().unwrap().len() < CONNECTIONS * STREAMS {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, under_way).await.expect("all are under way");
        let each = tollgate.resident_kib().saturating_sub(before) / (CONNECTIONS * STREAMS) as u64;
        eprintln!("{each} KiB a stream, its connection to the origin included");
        // 25 to 34 KiB as measured. Another buffer of 16 KiB would be seen.
        assert!(each < 42, "{each} KiB a stream");
    });
}

/// HTTP/2 keeps fields that were sent in a table, so that they need not be sent again. A field that keeps the whole buffer
/// that it was received in makes some 60 buffers of each connection.
#[test]
fn fields_that_were_sent_keep_no_buffer() {
    const CONNECTIONS: usize = 10;
    const RESPONSES: usize = 60;
    let sent = AtomicUsize::new(0);
    let origin = Origin::start(move |conn| {
        while conn.head()?.is_some() {
            let (tag, body) = (sent.fetch_add(1, Ordering::SeqCst).to_string(), [0; 50_000]);
            conn.answer("200 OK", &[("x-tag", &tag)], &body)?;
        }
        Ok(())
    });
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    in_runtime(async {
        // The first responses bring the buffers to their size.
        let mut first = Http2Client::connect(tollgate.address).await;
        for _ in 0..RESPONSES {
            assert_eq!(first.get("/", &[]).await.unwrap().body.len(), 50_000);
        }
        let before = tollgate.resident_kib();
        let mut clients = Vec::new();
        for _ in 0..CONNECTIONS {
            let mut client = Http2Client::connect(tollgate.address).await;
            for _ in 0..RESPONSES {
                assert_eq!(client.get("/", &[]).await.unwrap().body.len(), 50_000);
            }
            clients.push(client);
        }
        let each = tollgate.resident_kib().saturating_sub(before) / CONNECTIONS as u64;
        eprintln!("{each} KiB a connection");
        assert!(each < 150, "{each} KiB a connection");
    });
}

#[test]
fn a_refused_upload_of_unknown_length_leaves_no_stream_open() {
    const COUNT: u32 = 20;
    let origin = Origin::start(|conn| {
        conn.head()?;
        conn.rest();
        Ok(())
    });
    for (protocol, max) in [("h1", "100KiB"), ("h2", "100KiB"), ("h1", "10KiB"), ("h2", "1KiB")] {
        let http2 = Http2Origin::start(|mut exchange| async move {
            let _broken = exchange.read().await;
            exchange.reset_unanswered().await
        });
        let endpoint = if protocol == "h1" { origin.address } else { http2.address };
        let tollgate = Tollgate::start(Config::yaml(format!(
            "upstreams:\n  a: {{ endpoints: [\"http://{endpoint}\"], protocol: {protocol}, timeouts: {{ response: 120s }} }}\nroutes:\n  - {{ path: /*, upstream: a, max_body: {max} }}\nclient_limits: {{ idle_timeout: 120s }}\n"
        )));
        let mut client = FrameClient::connect(tollgate.address);
        // The windows are open once the connection has begun.
        client.send(&frame(frames::PING, 0, 0, &[0; 8]));
        while client.next().expect("it begins").kind != frames::PING {}
        let streams = (0..COUNT).map(|n| 2 * n + 1);
        for stream in streams {
            client.send(&frame(HEADERS, END_HEADERS, stream, &frames::request("POST", "/")));
            for _ in 0..8 {
                client.send(&frame(DATA, 0, stream, &[0; 16 << 10]));
            }
            let (mut is_answered, mut has_ended, mut reset) = (false, false, None);
            while reset.is_none() {
                let got = client.next().expect("the connection goes on");
                if got.stream != stream {
                    assert_ne!(got.kind, frames::GOAWAY, "{:?}", got.payload);
                    continue;
                }
                is_answered |= got.kind == HEADERS;
                has_ended |= matches!(got.kind, HEADERS | DATA) && got.flags & END_STREAM != 0;
                if got.kind == RST_STREAM {
                    reset = Some(got.payload);
                }
            }
            assert!(is_answered && has_ended, "{protocol} {max} {stream}");
            assert_eq!(reset.unwrap(), [0; 4], "NO_ERROR");
        }
    }
}
