//! Clients that flood by HTTP/2: their connections end, the reason is counted, memory stays flat, and others are served.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use h2::Reason;
use serde_json::Value;

use crate::harness::{
    Client, Config, Http2Client, Http2Origin, Origin, PATIENCE, Tollgate, by_http2, command, eventually,
    frames::{
        CONTINUATION, DATA, END_HEADERS, END_STREAM, FrameClient, GOAWAY, HEADERS, INITIAL_WINDOW_SIZE,
        Outcome, PADDED, PING, PRIORITY, SETTINGS, block, field, frame, request, setting, string,
        window_update,
    },
    in_runtime, read, send_body,
};

const ENHANCE_YOUR_CALM: u32 = 11;
const MIB: usize = 1 << 20;

fn abuse(tollgate: &Tollgate, reason: &str) -> f64 {
    tollgate.metric(&format!("tollgate_http2_abuse_total{{reason=\"{reason}\"}}"))
}

/// All connections that were closed for floods.
fn abuses(tollgate: &Tollgate) -> f64 {
    ["rapid_resets", "empty_frames", "excessive_load"].iter().map(|reason| abuse(tollgate, reason)).sum()
}

/// Has `attack` run while another client asks all the time. It returns within the time that a test has.
#[track_caller]
fn withstands<T: Send + 'static>(
    tollgate: &Tollgate,
    name: &str,
    attack: impl FnOnce() -> T + Send + 'static,
) -> T {
    let resident = tollgate.forget_peak();
    let begun = Instant::now();
    let attacking = thread::spawn(attack);
    let mut client = Client::connect(tollgate.address);
    let (mut served, mut slowest) = (0, Duration::ZERO);
    while !attacking.is_finished() {
        let asked = Instant::now();
        assert_eq!(client.request("GET", "/", &[], b"").status, 200, "{name}");
        slowest = slowest.max(asked.elapsed());
        served += 1;
    }
    let more = tollgate.peak_kib().saturating_sub(resident);
    eprintln!(
        "{name}: {:?}, {more} KiB more, {served} others served, the slowest in {slowest:?}",
        begun.elapsed()
    );
    assert!(more < 30_000, "{name}: {more} KiB more");
    assert!(slowest < Duration::from_secs(10), "{name}: another client waited {slowest:?}");
    attacking.join().unwrap()
}

/// Sends `first`, and `frames` again and again until the connection ends: what it was told, and how much it has sent.
fn flood(mut client: FrameClient, first: &[u8], frames: impl Fn(u32) -> Vec<u8>) -> (Option<u32>, usize) {
    let told = client.read_to_end();
    let mut sent = 0;
    let mut is_open = client.send(first);
    for round in 0.. {
        let frames = frames(round);
        is_open = is_open && client.send(&frames);
        if !is_open {
            break;
        }
        sent += frames.len();
        assert!(sent < 100 * MIB, "it goes on");
    }
    (told.join().unwrap(), sent)
}

fn odd(n: u32) -> u32 {
    2 * n + 1
}

/// The header block of a request on each stream from the `from`-th on, so many.
fn requests(from: u32, count: u32, path: &str, rest: impl Fn(u32) -> Vec<u8>) -> Vec<u8> {
    let one =
        |n| [frame(HEADERS, END_HEADERS | END_STREAM, odd(n), &request("GET", path)), rest(odd(n))].concat();
    (from..from + count).flat_map(one).collect()
}

#[test]
fn frames_that_ask_for_nothing_end_the_connection() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::new(&[origin.address], "client_limits: { header_timeout: 60s }"));
    let open = frame(HEADERS, END_HEADERS, 1, &request("POST", "/"));
    let begun = frame(HEADERS, 0, 1, &request("GET", "/"));
    let padded = |data: &[u8]| frame(DATA, PADDED, 1, &[&[255], data, &[0; 255]].concat());
    let flips = [setting(INITIAL_WINDOW_SIZE, 0), setting(INITIAL_WINDOW_SIZE, 0x7fff_ffff)].concat();
    let priorities = [[0, 0, 0, 5, 0], [0, 0, 0, 3, 255]]
        .iter()
        .zip([3, 5])
        .flat_map(|(of, stream)| frame(PRIORITY, 0, stream, of));
    for (name, first, frames, reason) in [
        ("PING", vec![], frame(PING, 0, 0, &[0; 8]), "empty_frames"),
        ("PONG", vec![], frame(PING, 1, 0, &[0; 8]), "empty_frames"),
        ("SETTINGS", vec![], setting(INITIAL_WINDOW_SIZE, 65_535), "empty_frames"),
        ("SETTINGS without any", vec![], frame(SETTINGS, 0, 0, &[]), "empty_frames"),
        ("windows that flip", open.clone(), flips, "empty_frames"),
        ("a circle of PRIORITY", vec![], priorities.collect(), "empty_frames"),
        ("unknown frames", vec![], frame(0x7f, 0, 0, &[0; 100]), "empty_frames"),
        ("windows of a byte", vec![], window_update(0, 1), "empty_frames"),
        ("CONTINUATION", begun.clone(), frame(CONTINUATION, 0, 1, &field(b"a", b"b")), "excessive_load"),
        ("empty CONTINUATION", begun, frame(CONTINUATION, 0, 1, &[]), "excessive_load"),
        ("empty DATA", open.clone(), frame(DATA, 0, 1, &[]), "excessive_load"),
        ("padding alone", open, padded(b""), "excessive_load"),
    ] {
        let before = abuse(&tollgate, reason);
        let many = frames.repeat(64 * 1024 / frames.len());
        let address = tollgate.address;
        let (told, sent) = withstands(&tollgate, name, move || {
            flood(FrameClient::connect(address), &first, |_| many.clone())
        });
        assert_eq!(told, Some(ENHANCE_YOUR_CALM), "{name}");
        eventually(name, || abuse(&tollgate, reason) == before + 1.0);
        assert!(sent < 20 * MIB, "{name}: {sent}");
    }
    let lines = tollgate.log().len();
    assert!(lines < 1_000, "a flood is not one of the log: {lines} lines");
}

/// What is asked for below `/slow` is never answered.
fn with_slow_answers() -> ([Origin; 2], Tollgate) {
    let origins = [Origin::ok(), Origin::sink()];
    let tollgate = Tollgate::start(Config::yaml(format!(
        "
upstreams:
  origin: {{ endpoints: [\"http://{}\"] }}
  slow: {{ endpoints: [\"http://{}\"] }}
routes: [{{ path: /slow, upstream: slow }}, {{ path: /*, upstream: origin }}]
",
        origins[0].address, origins[1].address
    )));
    (origins, tollgate)
}

/// The frames that follow a request on its stream.
type Attack = fn(u32) -> Vec<u8>;

#[test]
fn requests_that_end_before_their_answer_end_the_connection() {
    let (_origins, tollgate) = with_slow_answers();
    let overflow = |stream| [window_update(stream, 0x7fff_ffff), window_update(stream, 0x7fff_ffff)].concat();
    let reset = |stream| frame(3, 0, stream, &8_u32.to_be_bytes());
    let loops = |stream: u32| frame(PRIORITY, 0, stream, &[&stream.to_be_bytes()[..], &[0]].concat());
    // The server has to reset them (CVE-2025-8671, MadeYouReset).
    let attacks: [(&str, Attack); 3] = [
        ("reset by the client", reset),
        ("reset for a window that overflows", overflow),
        ("reset for a stream that depends on itself", loops),
    ];
    for (name, rest) in attacks {
        let before = abuses(&tollgate);
        let address = tollgate.address;
        let (told, sent) = withstands(&tollgate, name, move || {
            flood(FrameClient::connect(address), &[], |round| requests(round * 10, 10, "/slow", rest))
        });
        assert_eq!(told, Some(ENHANCE_YOUR_CALM), "{name}");
        eventually(name, || abuses(&tollgate) == before + 1.0);
        // The close takes a mebibyte more.
        assert!(sent < 3 * MIB, "{name}: {sent}");
    }
    // Each is under way before it is reset.
    let before = abuse(&tollgate, "rapid_resets");
    by_http2(tollgate.address, async |mut client| {
        let mut sent = 0;
        while let Ok((_answer, mut stream)) = client.send("GET", "/slow", &[], true).await {
            if !matches!(
                tokio::time::timeout(PATIENCE, client.pings.ping(h2::Ping::opaque())).await,
                Ok(Ok(_))
            ) {
                break;
            }
            stream.send_reset(Reason::CANCEL);
            sent += 1;
            assert!(sent < 1_000, "it goes on");
        }
        assert!(sent >= 490, "{sent}");
        let ended = client.ended().await.unwrap_err();
        assert_eq!(ended.reason(), Some(Reason::ENHANCE_YOUR_CALM));
    });
    eventually("it is counted", || abuse(&tollgate, "rapid_resets") == before + 1.0);
}

#[test]
fn streams_beyond_the_limit_are_refused_and_then_end_the_connection() {
    let (_origins, tollgate) = with_slow_answers();
    let address = tollgate.address;
    let (told, sent) = withstands(&tollgate, "too many streams", move || {
        flood(FrameClient::connect(address), &[], |round| requests(round * 50, 50, "/slow", |_| vec![]))
    });
    assert_eq!(told, Some(ENHANCE_YOUR_CALM));
    assert!(sent < 3 * MIB, "{sent}");
    eventually("it is counted", || abuse(&tollgate, "excessive_load") == 1.0);
}

/// A field of 4 KiB, which the table of fields holds from then on, and is then named by a byte each.
#[test]
fn header_bombs_do_not_unfold() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    let first = request("GET", "/");
    let large = [&[0x40][..], &string(b"x"), &string(&[b'a'; 4_000])].concat();
    let crumb = [&[0x40][..], &string(b"cookie"), &string(b"a")].concat();
    let indexed = |count| vec![0xbe; count];
    let head = |parts: &[&[u8]]| frame(HEADERS, END_HEADERS | END_STREAM, 1, &parts.concat());
    let too_many = "excessive_load";
    for (name, frames, outcome, reason) in [
        (
            "a large field",
            head(&[&first, &large, &indexed(12_000)]),
            Outcome::GoAway(ENHANCE_YOUR_CALM),
            too_many,
        ),
        (
            "crumbs of a cookie",
            head(&[&first, &crumb, &indexed(15_000)]),
            Outcome::GoAway(ENHANCE_YOUR_CALM),
            too_many,
        ),
        ("a large field, less often", head(&[&first, &large, &indexed(8)]), Outcome::Status(431), ""),
        ("fewer crumbs", head(&[&first, &crumb, &indexed(300)]), Outcome::Status(200), ""),
        ("some crumbs", head(&[&first, &crumb, &indexed(50)]), Outcome::Status(200), ""),
        // Nothing, named with nothing (CVE-2019-9516): an error of the connection, and none that costs anything.
        ("fields without a name", head(&[&first, &field(b"", b"").repeat(4_000)]), Outcome::GoAway(1), ""),
    ] {
        let before = abuses(&tollgate);
        let address = tollgate.address;
        let seen = withstands(&tollgate, name, move || {
            (0..30)
                .map(|_| {
                    let mut client = FrameClient::connect(address);
                    client.send(&frames);
                    client.outcome(1)
                })
                .collect::<Vec<_>>()
        });
        assert!(seen.iter().all(|seen| *seen == outcome), "{name}: {seen:?}");
        let closed = if reason.is_empty() { 0.0 } else { 30.0 };
        eventually(name, || abuses(&tollgate) == before + closed);
    }
    // The table made as small as can be, and large again, as often as fits.
    let address = tollgate.address;
    let resize = [&[0x20, 0x3f, 0xe1, 0x1f].repeat(4_000)[..], &first].concat();
    let (told, sent) = withstands(&tollgate, "a table that is resized", move || {
        let frames = move |round| frame(HEADERS, END_HEADERS | END_STREAM, odd(round), &resize);
        flood(FrameClient::connect(address), &[], frames)
    });
    assert_eq!(told, Some(ENHANCE_YOUR_CALM));
    assert!(sent < 20 * MIB, "{sent}");
    eventually("it is counted", || abuse(&tollgate, "empty_frames") == 1.0);
}

/// An origin with large answers, and a proxy that gives up on clients after a second.
fn with_large_answers() -> (Origin, Tollgate) {
    let origin = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            conn.body(&head)?;
            let body = if head.starts_with("GET /large") { vec![b'x'; 4 * MIB] } else { b"ok".to_vec() };
            conn.answer("200 OK", &[], &body)?;
        }
        Ok(())
    });
    let limits =
        "client_limits: { header_timeout: 1s, idle_timeout: 1s, min_rate: { bytes: 10000, grace: 1s } }";
    let tollgate = Tollgate::start(Config::new(&[origin.address], limits));
    (origin, tollgate)
}

fn cut_off(tollgate: &Tollgate) -> f64 {
    ["idle_timeout", "min_rate"]
        .iter()
        .map(|reason| {
            tollgate
                .metric(&format!("tollgate_requests_cut_off_total{{body=\"response\",reason=\"{reason}\"}}"))
        })
        .sum()
}

#[test]
fn clients_that_take_nothing_of_large_answers_are_cut_off() {
    let (_origin, tollgate) = with_large_answers();
    let address = tollgate.address;
    let all = requests(0, 100, "/large", |_| vec![]);
    // No window at all; and windows of a byte (CVE-2019-9511).
    for trickle in [0, 1] {
        let before = cut_off(&tollgate);
        let first = [setting(INITIAL_WINDOW_SIZE, 0), all.clone()].concat();
        withstands(&tollgate, "windows that stay closed", move || {
            let mut client = FrameClient::connect(address);
            let told = client.read_to_end();
            client.send(&first);
            let grains: Vec<u8> = (0..100).flat_map(|n| window_update(odd(n), 1)).collect();
            while !told.is_finished() && (trickle == 0 || client.send(&grains)) {
                // Slow, as the attack is.
                thread::sleep(Duration::from_millis(10));
            }
            told.join().unwrap()
        });
        eventually("all are cut off", || cut_off(&tollgate) == before + 100.0);
    }
    // Windows as large as can be, and nobody who reads (CVE-2019-9517).
    let before = cut_off(&tollgate);
    let connections = tollgate.metric("tollgate_connections ");
    let first = [setting(INITIAL_WINDOW_SIZE, 0x7fff_ffff), window_update(0, 0x7fff_0000), all].concat();
    let held = withstands(&tollgate, "nobody who reads", move || {
        let mut client = FrameClient::connect(address);
        client.send(&first);
        thread::sleep(Duration::from_secs(3));
        client
    });
    eventually("all are cut off", || cut_off(&tollgate) >= before + 95.0);
    eventually("the connection is closed", || tollgate.metric("tollgate_connections ") <= connections);
    drop(held);
    assert_eq!(abuses(&tollgate), 0.0, "to be slow is no flood");
}

/// As long as it is used, a client opens windows: that is no flood, however much it takes.
#[test]
fn a_client_that_opens_its_window_in_small_steps_gets_all_of_a_large_answer() {
    const LARGE: usize = 48 * MIB;
    let origin = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            conn.body(&head)?;
            conn.answer("200 OK", &[], &vec![b'x'; LARGE])?;
        }
        Ok(())
    });
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    let mut client = FrameClient::connect(tollgate.address);
    client.send(&requests(0, 1, "/", |_| vec![]));
    let (mut received, mut sent) = (0, 0);
    while received < LARGE {
        let answer = client.next().expect("the connection goes on");
        assert_ne!((answer.kind, answer.flags), (GOAWAY, 0));
        if answer.kind == DATA {
            received += answer.payload.len();
            // As clients do that have little memory, a step for each kilobyte or so.
            for _ in 0..answer.payload.len().div_ceil(64) {
                let step = [window_update(0, 64), window_update(1, 64)].concat();
                sent += step.len();
                client.send(&step);
            }
        }
    }
    assert!(sent > 9 * MIB, "{sent}");
    assert_eq!(abuses(&tollgate), 0.0);
}

#[test]
fn connections_that_only_take_up_room_are_closed() {
    let (_origin, tollgate) = with_large_answers();
    let address = tollgate.address;
    let begun = frame(HEADERS, 0, 1, &request("GET", "/"));
    let nothing = Vec::new();
    let done = requests(0, 1, "/", |_| vec![]);
    for (name, frames) in [
        ("nothing is asked", nothing),
        ("a head that never ends", begun.clone()),
        (
            "a head that never ends, behind a request",
            [&done[..], &frame(HEADERS, 0, 3, &request("GET", "/"))].concat(),
        ),
        ("half a frame", begun[..20].to_vec()),
        ("GOAWAY, and nothing more", [&done[..], &frame(GOAWAY, 0, 0, &[0; 8])].concat()),
    ] {
        let begun = Instant::now();
        withstands(&tollgate, name, move || {
            let clients: Vec<_> = (0..20)
                .map(|_| {
                    let mut client = FrameClient::connect(address);
                    client.send(&frames);
                    client
                })
                .collect();
            // They stay open, and PING keeps none of them.
            for client in clients {
                client.read_to_end().join().unwrap();
            }
        });
        assert!(begun.elapsed() < Duration::from_secs(20), "{name}");
        eventually(name, || tollgate.metric("tollgate_connections ") <= 1.0);
    }
    assert_eq!(abuses(&tollgate), 0.0);
}

#[test]
fn clients_that_flood_are_named_in_a_warning_until_they_stop() {
    let origin = Origin::ok();
    let mut command = command(Path::new("."));
    command.args(["run", "--config", "proxy.yaml"]).env("TOLLGATE_DOCTOR_MINUTE_MS", "2000");
    let tollgate = Tollgate::launch(command, Config::new(&[origin.address], ""));
    let warnings = || {
        let status = tollgate.admin("GET", "/v1/status").json();
        let all = status["warnings"].as_array().unwrap().iter();
        all.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    let attack = |count| {
        for _ in 0..count {
            let begun = frame(HEADERS, 0, 1, &request("GET", "/"));
            let (told, _) =
                flood(FrameClient::connect(tollgate.address), &begun, |_| frame(CONTINUATION, 0, 1, &[]));
            assert_eq!(told, Some(ENHANCE_YOUR_CALM));
        }
    };
    attack(3);
    let named = "127.0.0.1 floods by HTTP/2, and ";
    let remedy = "if it goes on, ban it: tollgate ban 127.0.0.1 --for 1h";
    eventually("it is in the status", || {
        warnings()
            .iter()
            .any(|of| of.starts_with(named) && of.contains("(excessive_load ") && of.ends_with(remedy))
    });
    eventually("it is logged", || tollgate.has_logged(&["WARN 127.0.0.1 floods by HTTP/2"]));
    eventually("it is over", || warnings().is_empty());
    eventually("it is logged", || tollgate.has_logged(&["this is resolved: 127.0.0.1 floods by HTTP/2"]));
    let client = "client floods it with frames";
    eventually("it is logged", || tollgate.has_logged(&[client, "127.0.0.1"]));
    // Heads that are malformed are no flood.
    let mut client = FrameClient::connect(tollgate.address);
    client.send(&frame(HEADERS, END_HEADERS, 1, &block(&[(b"A", b"b")])));
    assert!(matches!(client.outcome(1), Outcome::GoAway(1) | Outcome::Reset(1)));
    assert_eq!(abuses(&tollgate), 3.0);
}

#[test]
fn fields_that_are_repeated_by_a_byte_pay_for_no_ping() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    let address = tollgate.address;
    // A field of 3,000 bytes, put into the table by the first request, and named by the others four times each.
    let (told, sent) = withstands(&tollgate, "PING", move || {
        let indexed = [&[0x40][..], &string(b"x"), &string(&[b'x'; 3_000])].concat();
        let first = [request("GET", "/"), indexed].concat();
        let again = [request("GET", "/"), vec![0xbe; 4]].concat();
        let requests = (0..1_000)
            .map(|n| frame(HEADERS, END_HEADERS | END_STREAM, odd(n), if n == 0 { &first } else { &again }));
        let mut client = FrameClient::connect(address);
        for request in requests {
            client.send(&request);
            client.send(&frame(PING, 0, 0, &[0; 8]));
            while client.next().is_some_and(|frame| frame.kind != PING) {}
        }
        flood(client, &[], |_| frame(PING, 0, 0, &[0; 8]).repeat(4_000))
    });
    assert_eq!(told, Some(ENHANCE_YOUR_CALM));
    assert!(sent < 20 * MIB, "{sent}");
}

#[test]
fn behind_a_trusted_proxy_the_client_that_cancels_is_refused_and_the_others_are_not() {
    let (release, released) = tokio::sync::watch::channel(false);
    let origin = Http2Origin::start(move |mut exchange| {
        let mut released = released.clone();
        async move {
            if exchange.head.uri().path() == "/slow" {
                tokio::select! {
                    _ = released.wait_for(|released| *released) => {}
                    reset = exchange.reset_unanswered() => return reset,
                }
            }
            exchange.respond(200, &[], b"ok")
        }
    });
    let rest = "workers: 1\ntrusted_proxies: [127.0.0.1]\n";
    let tollgate = Tollgate::start(Config::upstream(&[origin.address], "protocol: h2", rest));
    in_runtime(async {
        let mut proxy = Http2Client::connect(tollgate.address).await;
        let mut others = Vec::new();
        for number in 1..=5 {
            let fields = [("x-forwarded-for", &*format!("192.0.2.{number}"))];
            others.push(proxy.send("GET", "/slow", &fields, true).await.unwrap().0);
        }
        let bad = [("x-forwarded-for", "192.0.2.66")];
        for _ in 0..64 {
            let mut cancelled = Vec::new();
            for _ in 0..10 {
                cancelled.push(proxy.send("GET", "/slow", &bad, true).await.unwrap());
            }
            proxy.ping().await.unwrap();
            drop(cancelled);
            proxy.ping().await.unwrap();
        }
        let refused = proxy.get("/", &bad).await.unwrap();
        assert_eq!((refused.status(), refused.head.headers()["retry-after"].to_str().unwrap()), (429, "60"));
        let fine = proxy.get("/", &[("x-forwarded-for", "192.0.2.7")]).await.unwrap();
        assert_eq!(fine.status(), 200);
        release.send_replace(true);
        for other in others {
            assert_eq!(read(other).await.unwrap().status(), 200);
        }
    });
    assert_eq!(abuse(&tollgate, "rapid_resets"), 1.0);
}

const LONG: usize = 4 << 20;
static BODY: [u8; LONG] = [b'x'; LONG];

/// Has one address ask for `path` on all streams of so many connections, with such a `window`, and read nothing, while another client
/// reads a long response.
#[track_caller]
fn memory_of_held_responses_is_bounded(path: &str, connections: usize, window: u32, is_cut_off: bool) {
    let origin = Http2Origin::start(|mut exchange| async move {
        let mut stream = exchange.head(200, &[])?;
        let body = if exchange.head.uri().path() == "/long" { &BODY[..] } else { &BODY[..16_000] };
        send_body(&mut stream, bytes::Bytes::from_static(body)).await?;
        stream.send_data(bytes::Bytes::new(), true)
    });
    let settings = "protocol: h2, timeouts: { connect: 30s }";
    let limits = "workers: 1\nclient_limits: { min_rate: { bytes: 0 }, idle_timeout: 600s }\n";
    let tollgate = Tollgate::start(Config::upstream(&[origin.address], settings, limits));
    let mut other = Client::connect_from([127, 0, 0, 3].into(), tollgate.address);
    other.send("GET /long HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(other.head().status, 200);
    let greedy: Vec<_> = (0..connections)
        .map(|_| {
            let window = setting(INITIAL_WINDOW_SIZE, window);
            let mut client = FrameClient::connect_from([127, 0, 0, 2].into(), tollgate.address, &window);
            client.send(&requests(0, 100, path, |_| Vec::new()));
            client
        })
        .collect();
    let cut_off = || tollgate.metric("tollgate_requests_cut_off_total{body=\"response\",reason=\"memory\"}");
    // They are many: a busy machine takes its time.
    let begun = Instant::now();
    while origin.heads().len() <= 100 * connections && cut_off() < 1.0 {
        assert!(begun.elapsed() < Duration::from_secs(150), "{} heads", origin.heads().len());
        thread::sleep(Duration::from_millis(50));
    }
    // Whatever else comes is held, or not.
    thread::sleep(Duration::from_secs(2));
    let mib = tollgate.peak_kib() >> 10;
    assert!(mib < 450, "{mib} MiB");
    assert_eq!(other.take(LONG).unwrap().len(), LONG);
    assert!(!is_cut_off || cut_off() >= 1.0);
    drop(greedy);
}

#[test]
fn responses_that_are_held_for_their_clients_windows_have_a_budget_of_memory() {
    // hyper hands a whole frame over once there is room for a byte of it.
    memory_of_held_responses_is_bounded("/short", 110, 1, true);
}

#[test]
fn downloads_that_nobody_reads_have_a_budget_of_memory() {
    // Endpoints are asked for less, mostly before anybody is cut off.
    memory_of_held_responses_is_bounded("/long", 20, 0, false);
    memory_of_held_responses_is_bounded("/long", 60, 0, true);
}
