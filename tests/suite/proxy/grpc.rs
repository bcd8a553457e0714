//! gRPC: calls are told in gRPC's own words why they fail, and take no longer than their clients wait.

use std::{
    thread,
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use bytes::Bytes;
use http::HeaderMap;
use prost::Message;
use serde_json::Value;

use super::timeouts::Full;
use crate::harness::{
    Client, Config, Latch, Origin, Redis, Tollgate, by_http2, eventually, printed, program, python, request,
};

const LIMIT: &str = "policies: { calls: { algorithm: sliding_log, key: ip, limit: 1/1h } }\n";
const LOG: &str = "access_log: { format: json, to: stdout }\n";
const GRPC: (&str, &str) = ("content-type", "application/grpc");

/// Before `origin`, with a limit of one call.
fn limited(origin: &Origin, rest: &str) -> Tollgate {
    Tollgate::start(Config::new(&[origin.address], &format!("{LIMIT}{rest}")).with_policy("calls"))
}

/// An origin that answers calls with one empty message, and `OK`.
fn service() -> Origin {
    Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            conn.body(&head)?;
            conn.send(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\ntrailer: grpc-status\r\n\
                  transfer-encoding: chunked\r\n\r\n5\r\n\0\0\0\0\0\r\n0\r\ngrpc-status: 0\r\n\r\n",
            )?;
        }
        Ok(())
    })
}

/// The fields of the answer to a call over a connection of its own, which has no body.
fn call(tollgate: &Tollgate, path: &str, fields: &[(&str, &str)]) -> HeaderMap {
    by_http2(tollgate.address, async |mut client| {
        let (answer, _) =
            client.send("POST", path, &[&[GRPC, ("te", "trailers")], fields].concat(), true).await.unwrap();
        let (head, body) = answer.await.unwrap().into_parts();
        assert!(body.is_end_stream(), "the status is in the trailers of {head:?}, or nowhere");
        assert_eq!(
            (head.status.as_u16(), &head.headers["content-type"]),
            (200, &"application/grpc".parse().unwrap())
        );
        head.headers
    })
}

fn status(fields: &HeaderMap) -> &str {
    fields["grpc-status"].to_str().unwrap()
}

fn logged(tollgate: &Tollgate, is_wanted: impl Fn(&Value) -> bool) -> Value {
    let find = || {
        let lines = tollgate.stdout();
        let mut lines = lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.find(|line| is_wanted(line))
    };
    eventually("it is logged", || find().is_some());
    find().unwrap()
}

#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(message, tag = "2")]
    retry_info: Option<RetryInfo>,
}

#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    delay: Option<Delay>,
}

#[derive(Clone, PartialEq, Message)]
struct Delay {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

/// What `grpc-status-details-bin` says: the code, the message, and after how many milliseconds to come back.
fn details(fields: &HeaderMap) -> (i32, String, i64) {
    let bytes = STANDARD_NO_PAD.decode(&fields["grpc-status-details-bin"]).unwrap();
    let status = RpcStatus::decode(&*bytes).unwrap();
    let [Any { type_url, retry_info }] = &*status.details else { panic!("{status:?}") };
    assert_eq!(type_url, "type.googleapis.com/google.rpc.RetryInfo");
    let delay = retry_info.clone().unwrap().delay.unwrap();
    (status.code, status.message, delay.seconds * 1_000 + i64::from(delay.nanos / 1_000_000))
}

#[test]
fn a_denied_call_is_told_when_to_come_back() {
    let origin = service();
    let tollgate = limited(&origin, LOG);
    assert_eq!(request(tollgate.address, "POST", "/", &[GRPC], b"body").status, 200);
    let denied = call(&tollgate, "/a.Service/Method", &[]);
    let message = "The rate limit of this policy is exceeded: calls";
    assert_eq!((status(&denied), denied["grpc-message"].to_str().unwrap()), ("8", message));
    let pushback: i64 = denied["grpc-retry-pushback-ms"].to_str().unwrap().parse().unwrap();
    assert!((3_500_000..=3_600_000).contains(&pushback), "{pushback}");
    let (code, told, delay) = details(&denied);
    assert_eq!((code, told.as_str()), (8, message));
    assert!((pushback - 1..=pushback).contains(&delay), "{delay} {pushback}");
    for name in ["ratelimit", "ratelimit-policy", "retry-after", "x-request-id"] {
        assert!(denied.contains_key(name), "{name} of {denied:?}");
    }

    let line = logged(&tollgate, |line| line["verdict"] == "denied");
    assert_eq!(
        (&line["status"], &line["grpc_status"], &line["policy"]),
        (&200.into(), &8.into(), &"calls".into())
    );
    let served = logged(&tollgate, |line| line["verdict"] == "allowed");
    assert_eq!((&served["status"], &served["grpc_status"]), (&200.into(), &0.into()));
    let count = |name: &str| tollgate.metric(name);
    assert!(count("tollgate_requests_denied_total{route=\"/*\"}") > 0.5);
    assert!(count("tollgate_requests_total{route=\"/*\",status=\"4xx\"}") > 0.5);
    assert!(tollgate.admin("GET", "/v1/blocked").text().contains("calls"));
}

#[test]
fn grpc_web_reads_the_same_by_http_1() {
    let origin = service();
    let tollgate = limited(&origin, "");
    let mut client = Client::connect(tollgate.address);
    for form in ["-web", "-web+proto", "-web-text", "-web-text+proto", "+proto"] {
        let content_type = format!("application/grpc{form}");
        let fields =
            [("content-type", content_type.as_str()), ("origin", "https://app.example"), ("x-grpc-web", "1")];
        let mut reply = client.request("POST", "/a.Service/Method", &fields, b"\0\0\0\0\0");
        if form == "-web" {
            assert_eq!((reply.status, reply.header("grpc-status")), (200, None), "the first is admitted");
            reply = client.request("POST", "/a.Service/Method", &fields, b"\0\0\0\0\0");
        }
        assert_eq!((reply.status, reply.header("grpc-status")), (200, Some("8")), "{form}");
        assert_eq!(reply.all("content-type"), [content_type.as_str()]);
        assert_eq!((reply.body.len(), reply.header("content-length")), (0, Some("0")));
        let exposed = reply.all("access-control-expose-headers").join(", ");
        for name in ["RateLimit", "Retry-After", "grpc-status", "grpc-message", "grpc-retry-pushback-ms"] {
            assert!(exposed.contains(name), "{exposed}");
        }
    }
    // What is no call is answered as ever.
    let other = [("content-type", "application/grpcio")];
    assert_eq!(client.request("POST", "/", &other, b"body").status, 429);
    assert_eq!(client.request("GET", "/", &[GRPC], b"").status, 429);
}

#[test]
fn nghttp_sees_one_frame() {
    let origin = service();
    let tollgate = limited(&origin, "");
    assert_eq!(request(tollgate.address, "POST", "/", &[GRPC], b"body").status, 200);
    let body = tollgate.directory().join("body");
    std::fs::write(&body, b"\0\0\0\0\0").unwrap();
    let url = format!("http://{}/a.Service/Method", tollgate.address);
    let mut nghttp = program("nghttp", "nghttp2-client");
    let seen = printed(nghttp.args(["-v", "-Hcontent-type: application/grpc", "-d"]).arg(&body).arg(url));
    let answer = seen.split(") :status: 200").nth(1).unwrap_or_else(|| panic!("{seen}"));
    assert!(answer.contains("grpc-status: 8") && answer.contains("; END_STREAM"), "{seen}");
    assert!(!answer.contains("recv DATA"), "{seen}");
}

#[test]
fn whatever_a_policy_replies_a_denial_is_one_of_its_limit() {
    let origin = service();
    let tollgate = Tollgate::start(
        Config::new(
            &[origin.address],
            "
trusted_proxies: [127.0.0.1]
policies:
  calls:
    algorithm: sliding_log
    key: ip
    limit: 1/1h
    cost: { header: x-cost, max: 9 }
    reply: { status: 503, body: 'come back', content_type: text/plain, headers: { x-support: 'https://example.org' } }
",
        )
        .with_policy("calls"),
    );
    let never = call(&tollgate, "/", &[("x-cost", "2")]);
    assert_eq!((status(&never), never["grpc-retry-pushback-ms"].to_str().unwrap()), ("8", "-1"));
    assert_eq!(never["grpc-message"], "This policy never admits a request like this one: calls");
    assert!(!never.contains_key("grpc-status-details-bin") && !never.contains_key("retry-after"));
    assert_eq!(request(tollgate.address, "POST", "/", &[GRPC], b"body").status, 200);
    let denied = call(&tollgate, "/", &[]);
    assert_eq!((status(&denied), denied["x-support"].to_str().unwrap()), ("8", "https://example.org"));
    assert_eq!(details(&denied).0, 8);
}

#[test]
fn a_ban_is_permission_denied_unless_it_replies_something_else() {
    let origin = service();
    let tollgate = Tollgate::start(Config::new(&[origin.address], LOG));
    let banned = tollgate.command(&["ban", "127.0.0.1", "--for", "1h", "--force"]);
    assert_eq!(banned.code, Some(0), "{}", banned.stderr);
    let answer = call(&tollgate, "/", &[]);
    assert_eq!((status(&answer), details(&answer).0), ("7", 7));
    assert!(answer["grpc-message"].to_str().unwrap().starts_with("This client is banned until "));
    assert!(answer.contains_key("grpc-retry-pushback-ms"));
    let line = logged(&tollgate, |line| line["verdict"] == "banned");
    assert_eq!((&line["status"], &line["grpc_status"]), (&200.into(), &7.into()));

    let tollgate = Tollgate::start(
        Config::new(
            &[origin.address],
            &format!(
                "{LIMIT}bans: {{ calls: {{ key: ip, after: 1/1m, for: 1h, reply: {{ status: 429 }} }} }}\n"
            ),
        )
        .with_policy("calls"),
    );
    eventually("it is banned", || {
        let answer =
            request(tollgate.address, "POST", "/", &[("content-type", "application/grpc-web")], b"body");
        assert!([None, Some("8")].contains(&answer.header("grpc-status")), "{answer:?}");
        answer.header("grpc-message").is_some_and(|message| message.contains("banned"))
    });
}

#[test]
fn other_answers_go_by_the_table_for_http() {
    let (origin, _ended) = hanging(b"");
    let full = Full::listen();
    let redis = Redis::start();
    let tollgate = Tollgate::start(Config::yaml(format!(
        "
upstreams:
  nobody: {{ endpoints: [\"http://{}\"] }}
  full: {{ endpoints: [\"http://{}\"], timeouts: {{ connect: 100ms }} }}
  hangs: {{ endpoints: [\"http://{}\"], timeouts: {{ response: 100ms }} }}
policies: {{ closed: {{ algorithm: sliding_log, key: ip, limit: 1000/1s, on_store_error: deny }} }}
store: {{ redis: {{ url: {}, timeout: 200ms }} }}
routes:
  - {{ path: /nobody, upstream: nobody }}
  - {{ path: /full, upstream: full }}
  - {{ path: /hangs, upstream: hangs }}
  - {{ path: /closed, upstream: nobody, policies: [closed] }}
client_limits: {{ headers: 20 }}
{LOG}
",
        crate::harness::nobody(),
        full.address,
        origin.address,
        redis.url(),
    )));
    drop(redis);
    let names: Vec<String> = (0..21).map(|n| format!("x-{n}")).collect();
    let many: Vec<_> = names.iter().map(|name| (name.as_str(), "v")).collect();
    for (path, fields, expected, http) in [
        ("/none", &[][..], "12", "4xx"),
        ("/nobody", &[], "14", "5xx"),
        ("/full", &[], "14", "5xx"),
        ("/hangs", &[], "14", "5xx"),
        ("/closed", &[], "14", "5xx"),
        ("/nobody", &[("host", "other.example")], "13", "4xx"),
        ("/nobody", &many, "2", "4xx"),
    ] {
        let counted = || {
            let all = tollgate.admin("GET", "/metrics");
            let all = all.text();
            let of = all.lines().filter(|line| line.starts_with("tollgate_requests_total"));
            let of = of
                .filter(|line| line.contains(http))
                .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
            of.sum::<u64>()
        };
        let before = counted();
        let answer = call(&tollgate, path, fields);
        assert_eq!(status(&answer), expected, "{path} {answer:?}");
        eventually("it is counted by its status of HTTP", || counted() == before + 1);
        let pushback = answer.get("grpc-retry-pushback-ms").map(|value| value.to_str().unwrap());
        assert_eq!(pushback, (path == "/closed").then_some("1000"), "{path}");
    }
    assert!(
        tollgate.metric("tollgate_server_errors_total{route=\"/hangs\",source=\"proxy\",status=\"504\"}")
            > 0.5
    );
    let line = logged(&tollgate, |line| line["verdict"] == "undecided");
    assert_eq!((&line["status"], &line["grpc_status"]), (&200.into(), &14.into()));
}

/// Sends `bytes` in place of an answer, and the latch tells when the proxy has had enough.
fn hanging(bytes: &'static [u8]) -> (Origin, Latch) {
    let ended = Latch::new();
    let end = ended.clone();
    let origin = Origin::start(move |conn| {
        conn.head()?;
        conn.send(bytes)?;
        conn.closed();
        end.open();
        Ok(())
    });
    (origin, ended)
}

#[test]
fn a_call_takes_no_longer_than_its_client_waits() {
    let (origin, ended) = hanging(b"");
    let tollgate = Tollgate::start(Config::upstream(&[origin.address], "timeouts: { response: 15s }", LOG));
    let begun = Instant::now();
    let late = call(&tollgate, "/late", &[("grpc-timeout", "1S")]);
    assert_eq!(
        (status(&late), late["grpc-message"].to_str().unwrap()),
        ("4", "The deadline of the call has passed.")
    );
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_secs(1) && waited < Duration::from_secs(10), "{waited:?}");
    ended.wait();
    let head = &origin.heads()[0];
    assert!(head.contains("\r\ngrpc-timeout: 1S"), "{head}");
    assert_eq!(logged(&tollgate, |line| line["path"] == "/late")["grpc_status"], 4);
    assert!(
        tollgate.metric("tollgate_upstream_requests_total{upstream=\"origin\",result=\"timeout\"}") < 0.5
    );

    // One that is over before it has begun does not reach the upstream.
    assert_eq!(status(&call(&tollgate, "/", &[("grpc-timeout", "0n")])), "4");
    assert_eq!(origin.heads().len(), 1);
}

/// Or deadlines that pass at once would have more worked on than the limit allows.
#[test]
fn a_deadline_frees_no_place_while_the_origin_is_at_work() {
    let origin = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            conn.body(&head)?;
            conn.pause()?;
            conn.answer("200 OK", &[], b"")?;
        }
        Ok(())
    });
    let policy = "workers: 1\npolicies: { calls: { algorithm: concurrency, key: ip, limit: 1 } }\n";
    let tollgate = Tollgate::start(Config::new(&[origin.address], policy).with_policy("calls"));
    assert_eq!(status(&call(&tollgate, "/", &[("grpc-timeout", "1S")])), "4");
    assert_eq!(origin.heads().len(), 1);
    assert_eq!(status(&call(&tollgate, "/", &[])), "8");
    origin.resume();
    origin.resume();
    eventually("the place is free", || {
        request(tollgate.address, "POST", "/", &[GRPC], b"body").header("grpc-status").is_none()
    });
    assert_eq!(origin.connections(), 1, "the answer was read to its end");
}

#[test]
fn an_invalid_grpc_timeout_passes_on_and_the_shorter_time_holds() {
    let (origin, _ended) = hanging(b"");
    let tollgate = Tollgate::start(Config::upstream(&[origin.address], "timeouts: { response: 200ms }", ""));
    for timeout in ["1H", "10", "1s", "123456789n", "-1S"] {
        assert_eq!(status(&call(&tollgate, "/", &[("grpc-timeout", timeout)])), "14", "{timeout}");
        assert!(origin.heads().last().unwrap().contains(&format!("\r\ngrpc-timeout: {timeout}")));
    }
    // Only calls have it.
    let mut client = Client::connect(tollgate.address);
    let reply =
        client.request("POST", "/", &[("grpc-timeout", "1m"), ("content-type", "text/plain")], b"body");
    assert_eq!((reply.status, reply.header("grpc-status")), (504, None));
}

#[test]
fn the_time_of_a_call_runs_while_it_waits_for_its_slot_or_for_a_connection() {
    let (origin, _ended) = hanging(b"");
    let tollgate = Tollgate::start(
        Config::new(
            &[origin.address],
            "policies: { slots: { algorithm: gcra, key: ip, limit: 4/1m, burst: 1, delay: 1m } }\n",
        )
        .with_policy("slots"),
    );
    assert_eq!(status(&call(&tollgate, "/", &[("grpc-timeout", "1S")])), "4");
    let begun = Instant::now();
    assert_eq!(status(&call(&tollgate, "/", &[("grpc-timeout", "100m")])), "4");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(origin.heads().len(), 1, "the second never had its slot");

    let settings = "max_connections: 1, timeouts: { connect: 15s, response: 15s }";
    let tollgate = Tollgate::start(Config::upstream(&[origin.address], settings, ""));
    let _first = Client::sending(tollgate.address, "GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    eventually("it has the connection", || origin.heads().len() == 2);
    let begun = Instant::now();
    assert_eq!(status(&call(&tollgate, "/", &[("grpc-timeout", "100m")])), "4");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());

    let full = Full::listen();
    let settings = "timeouts: { connect: 15s }";
    let tollgate = Tollgate::start(Config::upstream(&[full.address], settings, ""));
    assert_eq!(status(&call(&tollgate, "/", &[("grpc-timeout", "100m")])), "4");
    assert!(!tollgate.has_logged(&["accepted no connection"]), "{:?}", tollgate.log());
}

#[test]
fn the_time_of_a_call_runs_while_its_client_sends() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    by_http2(tollgate.address, async |mut client| {
        for length in [None, Some(("content-length", "100"))] {
            let fields = [GRPC, ("grpc-timeout", "200m")];
            let fields: Vec<_> = fields.into_iter().chain(length).collect();
            let (answer, mut body) = client.send("POST", "/", &fields, false).await.unwrap();
            body.send_data(Bytes::from_static(b"begun"), false).unwrap();
            let head = tokio::time::timeout(Duration::from_secs(15), answer).await.expect("in time").unwrap();
            assert_eq!(status(head.headers()), "4", "{head:?}");
        }
    });
    assert!(tollgate.metric("tollgate_requests_cut_off_total") < 0.5, "no client was too slow");
}

#[test]
fn an_answer_that_has_begun_ends_with_trailers() {
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\ntransfer-encoding: chunked\r\n\r\n5\r\n\0\0\0\0\0\r\n";
    let (origin, ended) = hanging(head);
    let tollgate = Tollgate::start(Config::new(&[origin.address], LOG));
    by_http2(tollgate.address, async |mut client| {
        let (answer, _) = client.send("POST", "/", &[GRPC, ("grpc-timeout", "1S")], true).await.unwrap();
        let mut body = answer.await.unwrap().into_body();
        assert_eq!(&body.data().await.unwrap().unwrap()[..], b"\0\0\0\0\0");
        let ends = async {
            assert!(body.data().await.is_none(), "the stream ends in order");
            body.trailers().await.unwrap().unwrap()
        };
        let trailers = tokio::time::timeout(Duration::from_secs(15), ends).await.expect("in time");
        assert_eq!(status(&trailers), "4");
        client.ping().await.expect("the connection goes on");
    });
    ended.wait();
    assert_eq!(logged(&tollgate, |_| true)["grpc_status"], 4);
    assert!(!tollgate.has_logged(&["stalled"]), "{:?}", tollgate.log());
}

#[test]
fn the_time_of_a_call_ends_with_it() {
    let origin = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            conn.body(&head)?;
            if head.contains("/slow") {
                conn.pause()?;
            }
            conn.answer("200 OK", &[], b"ok")?;
        }
        Ok(())
    });
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    let mut client = Client::connect(tollgate.address);
    let web = [("content-type", "application/grpc-web"), ("grpc-timeout", "2S")];
    assert_eq!(client.request("POST", "/", &web, b"body").text(), "ok");
    client.send(
        "POST /slow HTTP/1.1\r\nhost: a\r\ncontent-type: application/grpc-web\r\ncontent-length: 0\r\n\r\n",
    );
    eventually("the origin has it", || origin.heads().len() == 2);
    // It is the deadline of the first that has to pass.
    thread::sleep(Duration::from_millis(2_100));
    origin.resume();
    assert_eq!(client.reply().text(), "ok");
}

/// The first call passes. The second is denied, or, with a retry policy, repeated after the time that the answer says:
/// without it, all attempts would be over within milliseconds.
const GRPCIO: &str = r#"
import json, sys, time
import grpc

port, retries = int(sys.argv[1]), sys.argv[2] == "retry"
config = {"methodConfig": [{"name": [{}], "retryPolicy": {
    "maxAttempts": 3, "initialBackoff": "0.001s", "maxBackoff": "0.001s", "backoffMultiplier": 1,
    "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}
options = [("grpc.service_config", json.dumps(config))] if retries else []
with grpc.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
    call = channel.unary_unary("/a.Service/Method")
    assert call(b"", timeout=20) == b""
    begun = time.monotonic()
    if retries:
        assert call(b"", timeout=20) == b""
        print("repeated after", time.monotonic() - begun)
    else:
        for method in [call, channel.stream_unary("/a.Service/Stream")]:
            try:
                method(b"" if method is call else iter([b"a", b"b"]), timeout=20)
                raise SystemExit("it passed")
            except grpc.RpcError as error:
                denied = error
            assert denied.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, denied
            assert denied.details() == "The rate limit of this policy is exceeded: calls", denied
            fields = dict(denied.trailing_metadata())
            assert int(fields["grpc-retry-pushback-ms"]) > 0, fields
            assert "ratelimit" in fields, fields
            assert b"google.rpc.RetryInfo" in fields["grpc-status-details-bin"], fields
        stream = channel.unary_stream("/a.Service/Watch")(b"", timeout=20)
        try:
            next(stream)
            raise SystemExit("it passed")
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, error
    print("grpcio", grpc.__version__)
"#;

#[test]
fn grpcio_reads_the_denial() {
    let origin = service();
    let tollgate = limited(&origin, "");
    let Some(said) = python(GRPCIO, &[&tollgate.address.port().to_string(), "once"]) else { return };
    eprint!("{said}");
    assert_eq!(origin.heads().len(), 1);
}

#[test]
fn grpcio_repeats_a_call_when_it_may_come_back() {
    let origin = service();
    let policy = "policies: { calls: { algorithm: sliding_log, key: ip, limit: 1/1s } }\n";
    let tollgate = Tollgate::start(Config::new(&[origin.address], policy).with_policy("calls"));
    let Some(said) = python(GRPCIO, &[&tollgate.address.port().to_string(), "retry"]) else { return };
    eprint!("{said}");
    assert_eq!(origin.heads().len(), 2);
}

/// A deadline of the client's own.
const LATE: &str = r#"
import sys, time
import grpc

with grpc.insecure_channel(f"127.0.0.1:{sys.argv[1]}") as channel:
    begun = time.monotonic()
    try:
        channel.unary_unary("/a.Service/Method")(b"", timeout=1)
        raise SystemExit("it passed")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED, error
    assert time.monotonic() - begun < 10
"#;

#[test]
fn grpcios_deadline_ends_the_work_of_the_origin() {
    let (origin, ended) = hanging(b"");
    let tollgate = Tollgate::start(Config::upstream(&[origin.address], "timeouts: { response: 1m }", ""));
    if python(LATE, &[&tollgate.address.port().to_string()]).is_some() {
        ended.wait();
    }
}
