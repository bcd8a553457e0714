//! 103 Early Hints: they come to the client before the answer does, and never amid a message.

use std::{thread, time::Duration};

use crate::harness::{Browser, Client, Config, Origin, Tollgate, by_http2, printed, program};

const PASS: &str = "early_hints: pass\n";
const HINT: &str = "HTTP/1.1 103 Early Hints\r\nlink: </style.css>; rel=preload; as=style\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// An origin that sends `first` as the beginning of each answer, and `rest` once the test says so.
fn in_two_parts(first: impl Into<String>, rest: &'static str) -> Origin {
    let first = first.into();
    Origin::start(move |conn| {
        while let Some(head) = conn.head()? {
            conn.send(first.as_bytes())?;
            conn.pause()?;
            conn.body(&head)?;
            conn.send(rest.as_bytes())?;
        }
        Ok(())
    })
}

#[test]
fn a_hint_comes_before_the_answer_without_what_is_not_the_clients() {
    let hint = "HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\nlink: </b.js>; rel=preload\r\n\
                connection: x-secret, keep-alive\r\nx-secret: 1\r\nkeep-alive: timeout=5\r\ncontent-length: 7\r\n\r\n";
    let origin = in_two_parts(hint, OK);
    let tollgate = Tollgate::start(Config::new(&[origin.address], PASS));
    let mut client = Client::connect(tollgate.address);
    for _ in 0..3 {
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        let hint = client.reply();
        assert_eq!((hint.status, hint.reason.as_str()), (103, "Early Hints"));
        let fields =
            [("link", "</a.css>; rel=preload"), ("link", "</b.js>; rel=preload"), ("via", "1.1 tollgate")];
        let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(hint.headers, fields);
        origin.resume();
        assert_eq!(client.reply().text(), "ok");
    }
    // With a body, which waits to be asked for, too.
    client.send("POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n");
    assert_eq!(client.reply().status, 103);
    assert_eq!(client.reply().status, 100);
    origin.resume();
    assert_eq!(client.send("body").reply().text(), "ok");
}

#[test]
fn hints_that_come_with_the_answer_come_before_it_and_other_informational_answers_do_not() {
    let others = "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 199 X\r\n\r\n";
    let origin = Origin::saying(format!("{HINT}{others}{HINT}{OK}"));
    let tollgate = Tollgate::start(Config::new(&[origin.address], PASS));
    for _ in 0..20 {
        let mut client = Client::sending(tollgate.address, "GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        let statuses = [client.reply().status, client.reply().status, client.reply().status];
        assert_eq!(statuses, [103, 103, 200]);
    }
}

#[test]
fn hints_pass_where_a_route_says_so_and_only_to_clients_of_http_1_1() {
    let origin = Origin::saying(format!("{HINT}{OK}"));
    let tollgate = Tollgate::start(Config::yaml(format!(
        "
upstreams: {{ origin: {{ endpoints: [\"http://{}\"] }} }}
routes:
  - {{ path: /hinted, upstream: origin, early_hints: pass }}
  - {{ path: /*, upstream: origin }}
",
        origin.address
    )));
    let first = |request: &str| {
        let mut client = Client::connect(tollgate.address);
        client.send(request).reply().status
    };
    assert_eq!(first("GET /hinted HTTP/1.1\r\nhost: a\r\n\r\n"), 103);
    assert_eq!(first("GET / HTTP/1.1\r\nhost: a\r\n\r\n"), 200);
    assert_eq!(first("GET /hinted HTTP/1.0\r\nhost: a\r\n\r\n"), 200);
    by_http2(tollgate.address, async |mut client| {
        let reply = client.get("/hinted", &[]).await.unwrap();
        assert_eq!((reply.status(), reply.text().as_str()), (200, "ok"));
    });
}

/// Answers each request by a hint and its target, once or many times over.
fn telling_targets(times: usize) -> Origin {
    Origin::start(move |conn| {
        while let Some(head) = conn.head()? {
            let target = head.split(' ').nth(1).unwrap_or_default();
            let hint = format!("HTTP/1.1 103 Early Hints\r\nlink: <{target}>; rel=preload\r\n\r\n");
            conn.send(hint.as_bytes())?;
            conn.answer("200 OK", &[], target.repeat(times).as_bytes())?;
        }
        Ok(())
    })
}

#[test]
fn pipelined_answers_stay_whole_and_in_order() {
    let origin = telling_targets(1);
    let tollgate = Tollgate::start(Config::new(&[origin.address], PASS));
    let mut client = Client::connect(tollgate.address);
    let requests: String = (0..50).map(|n| format!("GET /{n} HTTP/1.1\r\nhost: a\r\n\r\n")).collect();
    client.send(requests);
    for n in 0..50 {
        let hint = client.reply();
        assert_eq!(
            (hint.status, hint.header("link").unwrap()),
            (103, format!("</{n}>; rel=preload").as_str())
        );
        assert_eq!(client.reply().text(), format!("/{n}"));
    }
}

/// The answers fill the sockets' buffers: hints come while the last answer waits to be written, too.
#[test]
fn a_client_that_reads_late_gets_whole_answers() {
    // 12 bytes each time: from a little to more than the kernel holds.
    for times in [1, 5_000, 40_000, 400_000] {
        let origin = telling_targets(times);
        let tollgate = Tollgate::start(Config::new(&[origin.address], PASS));
        let mut client = Client::connect(tollgate.address);
        let targets: Vec<String> = (0..6).map(|n| format!("/0123456789{n}")).collect();
        let requests: String =
            targets.iter().map(|target| format!("GET {target} HTTP/1.1\r\nhost: a\r\n\r\n")).collect();
        client.send(requests);
        // Nothing tells when all buffers are full.
        thread::sleep(Duration::from_millis(300));
        for target in &targets {
            let mut reply = client.reply();
            if reply.status == 103 {
                assert_eq!(reply.header("link").unwrap(), format!("<{target}>; rel=preload"));
                reply = client.reply();
            }
            assert_eq!(reply.status, 200);
            assert!(reply.text() == target.repeat(times), "{target} {times}");
        }
    }
}

#[test]
fn large_hints_hold_no_memory_while_the_client_does_not_read() {
    let origin = Origin::start(|conn| {
        while conn.head()?.is_some() {
            let hint = format!("HTTP/1.1 103 Early Hints\r\nx: {}\r\n\r\n", "x".repeat(8_000));
            for _ in 0..8 {
                conn.send(hint.as_bytes())?;
            }
            conn.send(OK.as_bytes())?;
        }
        Ok(())
    });
    let tollgate = Tollgate::start(Config::new(&[origin.address], PASS));
    let mut client = Client::connect(tollgate.address);
    let before = tollgate.forget_peak();
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    crate::harness::eventually("the origin has said all", || {
        tollgate.metric("tollgate_requests_total{route=\"/*\",status=\"2xx\"}") > 0.5
            || client.has_something_to_read()
    });
    let mut hints = 0;
    let last = loop {
        match client.reply() {
            hint if hint.status == 103 => hints += 1,
            answer => break answer,
        }
    };
    assert_eq!((last.status, last.text().as_str()), (200, "ok"));
    assert!(hints > 0);
    let grown = tollgate.peak_kib().saturating_sub(before);
    assert!(grown < 16 << 10, "{grown} KiB for {hints} hints");
}

#[test]
fn a_request_that_is_repeated_has_hints_as_well() {
    let origin = Origin::start(|conn| {
        while conn.head()?.is_some() {
            conn.send(format!("{HINT}{OK}").as_bytes())?;
            // A connection that is closed before its second request.
            if conn.number == 0 && conn.head()?.is_some() {
                return Ok(());
            }
        }
        Ok(())
    });
    let tollgate = Tollgate::start(Config::new(&[origin.address], &format!("workers: 1\n{PASS}")));
    let mut client = Client::connect(tollgate.address);
    for _ in 0..2 {
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        assert_eq!([client.reply().status, client.reply().status], [103, 200]);
    }
    assert_eq!(origin.connections(), 2);
}

#[test]
fn curl_shows_both_answers() {
    let origin = Origin::saying(format!("{HINT}{OK}"));
    let tollgate = Tollgate::start(Config::new(&[origin.address], PASS));
    let url = format!("http://{}/", tollgate.address);
    let seen = printed(program("curl", "curl").args(["-sSi", "--max-time", "10", &url]));
    let answers: Vec<_> = seen.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect();
    assert_eq!(answers, ["103", "200"], "{seen}");
    assert!(seen.contains("link: </style.css>; rel=preload; as=style") && seen.ends_with("ok"), "{seen}");
}

/// It takes hints by HTTP/2 alone, and has to put up with others.
#[test]
fn chromium_shows_the_page() {
    const PAGE: &str = "<!doctype html><link rel=stylesheet href=/style.css><p id=state>shown</p>";
    let origin = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            conn.send(HINT.as_bytes())?;
            if head.starts_with("GET / ") {
                conn.answer("200 OK", &[("content-type", "text/html")], PAGE.as_bytes())?;
            } else {
                conn.answer("200 OK", &[("content-type", "text/css")], b"p { color: red }")?;
            }
        }
        Ok(())
    });
    let tollgate = Tollgate::start(Config::new(&[origin.address], PASS));
    let browser = Browser::open_at(&format!("http://{}", tollgate.address), "/", &[]);
    browser.shows("#state", "shown");
}
