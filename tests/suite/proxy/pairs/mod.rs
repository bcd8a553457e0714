//! Every pair of protocols, a client's and an origin's: the same messages pass, and whatever breaks off on one side is told
//! to the other, never as a whole message, and leaves nothing behind.

mod client;
mod origin;

use std::cell::Cell;

use serde_json::Value;

use self::{
    client::{Call, ClientProtocol, Length},
    origin::{AnyOrigin, BODY_LENGTH, HALF, OriginProtocol, end},
};
use crate::harness::{Authority, Config, Tollgate, eventually, file_name};

/// A Tollgate between clients and an origin. Under `/leased`, requests hold a place of a `concurrency` limit.
struct Site {
    client: ClientProtocol,
    protocol: OriginProtocol,
    origin: AnyOrigin,
    tollgate: Tollgate,
    authority: Authority,
    paths: Cell<usize>,
}

impl Site {
    fn start(client: ClientProtocol, protocol: OriginProtocol) -> Self {
        let authority = Authority::new("Authority of the tests");
        let certificate = authority.issue("server", &["localhost", "127.0.0.1"]);
        let origin = AnyOrigin::start(protocol, &certificate);
        let tls = match client.is_tls() {
            true => format!(
                ", tls: {{ certificates: [{{ cert: \"{}\", key: \"{}\" }}] }}",
                file_name(&certificate.cert),
                file_name(&certificate.key)
            ),
            false => String::new(),
        };
        let scheme = if protocol.is_tls() { "https" } else { "http" };
        let mut settings = String::new();
        if protocol.is_tls() {
            settings.push_str(&format!("tls: {{ ca: \"{}\" }}, ", file_name(&authority.file())));
        }
        if protocol.is_http2() {
            settings.push_str("protocol: h2, ");
        }
        let tollgate = Tollgate::start(Config::yaml(format!(
            "
listeners: [{{ address: \"127.0.0.1:0\"{tls} }}]
access_log: {{ format: json, to: stdout }}
upstreams:
  origin: {{ endpoints: [\"{scheme}://{}\"], {settings}timeouts: {{ response: 15s }} }}
policies:
  places: {{ algorithm: concurrency, key: ip, limit: 100, lease: 60s }}
routes:
  - {{ path: /leased/*, upstream: origin, trailers: pass, policies: [places], timeouts: {{ response: 2s }} }}
  - {{ path: /*, upstream: origin, trailers: pass }}
",
            origin.address
        )));
        Self { client, protocol, origin, tollgate, authority, paths: Cell::new(0) }
    }

    /// A path of its own.
    fn path(&self, name: &str, how: u32) -> String {
        self.paths.set(self.paths.get() + 1);
        format!("{name}/{how}/{}", self.paths.get())
    }

    fn begin(&self, path: &str, length: Length) -> Call {
        Call::begin(self.client, self.tollgate.address, &self.authority, path, length)
    }

    /// What the log says of the request for `path`.
    fn logged(&self, path: &str) -> Value {
        let line = || self.tollgate.stdout().into_iter().find(|line| line.contains(&format!("\"{path}\"")));
        eventually(&format!("{path} is logged"), || line().is_some());
        serde_json::from_str(&line().unwrap()).unwrap()
    }

    /// Waits until nothing is left of requests that have ended.
    fn settles(&self, what: &str) {
        let zero = |metric: &str| {
            eventually(&format!("{what}: {metric} is 0"), || self.tollgate.metric(metric) == 0.0);
        };
        zero("tollgate_connections ");
        zero("tollgate_leases");
        zero("tollgate_upstream_connections{upstream=\"origin\",state=\"active\"}");
    }

    fn all(&self) {
        eprintln!("{:?} to {:?}", self.client, self.protocol);
        self.bodies_pass_both_ways();
        self.settles("bodies");
        self.trailers_pass_both_ways();
        self.an_early_answer_is_passed_on();
        self.settles("trailers and early answers");
        self.each_event_comes_before_the_next_is_sent();
        self.settles("events");
        self.a_client_that_gives_up_is_told_to_the_origin();
        self.settles("clients that give up");
        self.an_origin_that_dies_is_told_to_the_client();
        self.settles("origins that die");
    }

    fn bodies_pass_both_ways(&self) {
        for name in ["/echo", "/length", "/leased/echo"] {
            for length in [Length::Known(BODY_LENGTH), Length::Unknown] {
                let path = self.path(name, 0);
                let body = body();
                let mut call = self.begin(&path, length);
                call.send(&body[..HALF]);
                // It does not wait for the whole body.
                self.origin.sees("half", &path);
                call.send(&body[HALF..]);
                call.finish(&[]);
                let (head, got, _) = call.answer().unwrap();
                assert_eq!(head.status, 200, "{path}: {head:?}");
                assert_eq!(self.logged(&path)["aborted_by"], Value::Null);
                assert!(got == body, "{path} by {length:?}: {} bytes came back", got.len());
                let announced = head.fields.iter().any(|(name, _)| name == "content-length");
                assert_eq!(announced, name == "/length", "{path}: {head:?}");
            }
        }
    }

    fn trailers_pass_both_ways(&self) {
        let path = self.path("/echo", 0);
        let mut call = self.begin(&path, Length::Unknown);
        call.send(&body());
        call.finish(&[("x-sum", "of all")]);
        let (_, got, trailers) = call.answer().unwrap();
        assert!(got == body());
        assert_eq!(trailers, [("x-sum".to_owned(), "of all".to_owned())], "{path}");
    }

    fn an_early_answer_is_passed_on(&self) {
        for length in [Length::Known(BODY_LENGTH), Length::Unknown] {
            let path = self.path("/early", 0);
            let mut call = self.begin(&path, length);
            call.send(&body()[..HALF]);
            let (head, got, _) = call.answer().unwrap_or_else(|error| panic!("{path}: {error}"));
            assert_eq!((head.status, &got[..]), (403, &b"early"[..]), "{path}");
        }
    }

    /// Long polling, and what follows it.
    fn each_event_comes_before_the_next_is_sent(&self) {
        let path = self.path("/events", 0);
        let mut call = self.begin(&path, Length::None);
        self.origin.turn();
        let head = call.head().unwrap();
        assert!(head.fields.contains(&("content-type".to_owned(), "text/event-stream".to_owned())));
        for event in 0..3 {
            self.origin.turn();
            let expected = format!("data: {event}\n\n");
            assert_eq!(String::from_utf8(call.take(expected.len()).unwrap()).unwrap(), expected);
        }
        assert_eq!(call.rest().unwrap().0, b"");
    }

    fn a_client_that_gives_up_is_told_to_the_origin(&self) {
        for prefix in ["", "/leased"] {
            let aborts = self.client.aborts();
            // Before the head of the answer.
            let path = || self.path(&format!("{prefix}/hang"), 0);
            let hanging: Vec<_> = aborts.iter().map(|how| (path(), *how)).collect();
            let begun = hanging.iter().map(|(path, how)| {
                let call = self.begin(path, Length::None);
                self.origin.sees("asked", path);
                (path, *how, call)
            });
            let begun: Vec<_> = begun.collect();
            let left: Vec<_> =
                begun.into_iter().map(|(path, how, call)| (path, how, call.abort(how))).collect();
            for (path, how, _) in &left {
                eprintln!("before the head: {how:?}");
                self.origin.sees("told", path);
                let line = self.logged(path);
                let told = (&line["status"], &line["aborted_by"]);
                assert_eq!(told, (&499.into(), &"client".into()), "{how:?}: {line}");
            }
            drop(left);

            for how in aborts {
                // Amid the request.
                for length in [Length::Known(BODY_LENGTH), Length::Unknown] {
                    eprintln!("amid the request, {length:?}: {how:?}");
                    let path = self.path(&format!("{prefix}/echo"), 0);
                    let mut call = self.begin(&path, length);
                    call.send(&body()[..HALF]);
                    self.origin.sees("half", &path);
                    let _left = call.abort(how);
                    self.origin.sees("broken", &path);
                    assert!(!self.origin.has_seen("whole", &path));
                    assert_eq!(self.logged(&path)["aborted_by"], "client");
                }
                // Amid the answer.
                eprintln!("amid the answer: {how:?}");
                let path = self.path(&format!("{prefix}/endless"), 0);
                let mut call = self.begin(&path, Length::None);
                assert_eq!(call.head().unwrap().status, 200);
                call.take(HALF).unwrap();
                let _left = call.abort(how);
                self.origin.sees("told", &path);
                let line = self.logged(&path);
                let told = (&line["status"], &line["bytes"], &line["aborted_by"]);
                assert_eq!(told, (&200.into(), &HALF.into(), &"client".into()), "{how:?}: {line}");
            }
        }
    }

    fn an_origin_that_dies_is_told_to_the_client(&self) {
        let codes: Vec<u32> = match self.protocol {
            OriginProtocol::Http1 => vec![end::CLOSE, end::RESET],
            OriginProtocol::Https => vec![end::CLOSE, end::RESET, end::UNTOLD],
            OriginProtocol::Http2 | OriginProtocol::Http2OverTls => (0..14).collect(),
        };
        for how in codes {
            for prefix in ["", "/leased"] {
                let path = self.path(&format!("{prefix}/dies-before"), how);
                let (head, ..) = self.begin(&path, Length::None).answer().unwrap();
                assert_eq!(head.status, 502, "{path}");
                assert_eq!(self.logged(&path)["status"], 502, "{path}");
                for name in ["dies-length", "dies-chunked", "dies-unframed"] {
                    // An answer of HTTP/1.1 without framing ends with its connection.
                    if name == "dies-unframed" && (self.protocol.is_http2() || how == end::CLOSE) {
                        continue;
                    }
                    let path = self.path(&format!("{prefix}/{name}"), how);
                    let mut call = self.begin(&path, Length::None);
                    assert_eq!(call.head().unwrap().status, 200, "{path}");
                    assert_eq!(call.take(HALF).unwrap(), [b'x'; HALF], "{path}");
                    self.origin.turn();
                    let rest = call.rest();
                    assert!(rest.is_err(), "{path}: taken for a whole one: {rest:?}");
                    let line = self.logged(&path);
                    let told = (&line["status"], &line["bytes"], &line["aborted_by"]);
                    assert_eq!(told, (&200.into(), &HALF.into(), &"upstream".into()), "{line}");
                }
            }
        }
    }
}

/// The same for all, and no part of it like another.
fn body() -> Vec<u8> {
    let mut body = vec![0; BODY_LENGTH];
    fastrand::Rng::with_seed(7).fill(&mut body);
    body
}

/// A test for each client before each origin.
macro_rules! pairs {
    ($($origin:ident: $protocol:ident),*) => {
        $(
            mod $origin {
                use super::*;

                #[test]
                fn from_http1() {
                    Site::start(ClientProtocol::Http1, OriginProtocol::$protocol).all();
                }

                #[test]
                fn from_https() {
                    Site::start(ClientProtocol::Https, OriginProtocol::$protocol).all();
                }

                #[test]
                fn from_http2() {
                    Site::start(ClientProtocol::Http2, OriginProtocol::$protocol).all();
                }

                #[test]
                fn from_http2_over_tls() {
                    Site::start(ClientProtocol::Http2OverTls, OriginProtocol::$protocol).all();
                }
            }
        )*
    };
}

pairs!(to_http1: Http1, to_https: Https, to_http2: Http2, to_http2_over_tls: Http2OverTls);
