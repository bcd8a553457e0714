//! Traces, as a collector and as origins receive them.

use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind, status::StatusCode};

use crate::harness::{
    Client, Collector, Config, Origin, Reply, Tollgate, attribute, eventually, get, nobody, request,
};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";

fn parent(flags: &str) -> String {
    format!("00-{TRACE}-{SPAN}-{flags}")
}

fn start(origin: &Origin, collector: std::net::SocketAddr, sample: &str, rest: &str) -> Tollgate {
    Tollgate::start(Config::yaml(format!(
        "
tracing: {{ otlp: \"http://{collector}\", sample: {sample} }}
access_log: {{ format: json, to: access.log }}
upstreams: {{ api: {{ endpoints: [\"http://{}\"] }} }}
policies: {{ two: {{ algorithm: sliding_log, key: ip, limit: 2/1h }} }}
routes:
  - {{ name: login, path: /login, upstream: api, policies: [two] }}
  - {{ name: all, path: /*, upstream: api }}
{rest}
",
        origin.address
    )))
}

const TRUSTED: &str = "trusted_proxies: [127.0.0.0/8]\n";

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[track_caller]
fn of_kind(spans: &[Span], kind: SpanKind) -> &Span {
    spans.iter().find(|span| span.kind == kind as i32).unwrap_or_else(|| panic!("no {kind:?} in {spans:#?}"))
}

/// What the origin received in the field `name`.
fn received(reply: &Reply, name: &str) -> Vec<String> {
    let echo: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
    let headers = echo["headers"].as_array().unwrap().iter();
    headers.filter(|header| header[0] == name).map(|header| header[1].as_str().unwrap().to_owned()).collect()
}

fn logged(tollgate: &Tollgate) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(tollgate.directory().join("access.log")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_request_has_a_span_and_two_below_it() {
    let (origin, collector) = (Origin::echo(), Collector::start());
    let tollgate = start(&origin, collector.address(), "100%", "");
    let reply = get(tollgate.address, "/login?token=secret", &[("host", "api.example:81")]);
    let spans = collector.wait_for(3);
    let server = of_kind(&spans, SpanKind::Server);
    assert_eq!((server.name.as_str(), server.parent_span_id.len()), ("GET login", 0));
    for (key, value) in [
        ("http.request.method", "GET"),
        ("http.route", "login"),
        ("http.response.status_code", "200"),
        ("url.path", "/login"),
        ("url.scheme", "http"),
        ("client.address", "127.0.0.1"),
        ("server.address", "api.example"),
        ("server.port", "81"),
        ("tollgate.verdict", "allowed"),
        ("tollgate.request_id", reply.header("x-request-id").unwrap()),
    ] {
        assert_eq!(attribute(&server.attributes, key).as_deref(), Some(value), "{key}");
    }
    assert_eq!(attribute(&server.attributes, "tollgate.policy"), None);
    let decide = of_kind(&spans, SpanKind::Internal);
    assert_eq!(decide.name, "decide");
    for (key, value) in [("tollgate.store", "memory"), ("tollgate.source", "store"), ("tollgate.checks", "1")]
    {
        assert_eq!(attribute(&decide.attributes, key).as_deref(), Some(value), "{key}");
    }
    let forward = of_kind(&spans, SpanKind::Client);
    for (key, value) in [
        ("tollgate.upstream", "api".to_owned()),
        ("server.address", "127.0.0.1".to_owned()),
        ("server.port", origin.address.port().to_string()),
        ("http.response.status_code", "200".to_owned()),
        ("url.full", format!("http://{}/login", origin.address)),
    ] {
        assert_eq!(attribute(&forward.attributes, key), Some(value), "{key}");
    }
    assert_eq!(
        received(&reply, "traceparent"),
        [format!("00-{}-{}-01", hex(&server.trace_id), hex(&forward.span_id))]
    );
    for child in [decide, forward] {
        assert_eq!((&child.trace_id, &child.parent_span_id), (&server.trace_id, &server.span_id));
        assert!(server.start_time_unix_nano <= child.start_time_unix_nano, "{spans:#?}");
        assert!(child.start_time_unix_nano <= child.end_time_unix_nano, "{spans:#?}");
        assert!(child.end_time_unix_nano <= server.end_time_unix_nano, "{spans:#?}");
    }
    assert!(!format!("{spans:?}").contains("secret"), "{spans:#?}");
    for (key, value) in [("service.name", "tollgate"), ("service.version", env!("CARGO_PKG_VERSION"))] {
        assert_eq!(attribute(&collector.resource(), key).as_deref(), Some(value), "{key}");
    }
    assert_eq!(attribute(&collector.resource(), "service.instance.id").unwrap().len(), 16);
    assert!(collector.heads()[0].starts_with("POST /v1/traces HTTP/1.1"), "{:?}", collector.heads());
    eventually("it is logged", || logged(&tollgate).len() == 1);
    assert_eq!(logged(&tollgate)[0]["trace_id"], hex(&server.trace_id));
    eventually("they are counted", || tollgate.metric("tollgate_spans_exported_total") == 3.0);
    assert_eq!(tollgate.metric("tollgate_spans_dropped_total"), 0.0);
}

#[test]
fn denials_and_failures_are_in_the_span() {
    let origin = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            match head.split(' ').nth(1) {
                Some("/break") => return Ok(()),
                Some("/500") => conn.answer("500 No", &[], b"")?,
                _ => conn.answer("200 OK", &[], b"")?,
            }
        }
        Ok(())
    });
    let collector = Collector::start();
    let tollgate = start(&origin, collector.address(), "100%", "");
    let server = |path: &str, count: usize| {
        let status = get(tollgate.address, path, &[]).status;
        let spans = collector.wait_for(count);
        let path = Some(path.to_owned());
        let of_path = |span: &&Span| attribute(&span.attributes, "url.path") == path;
        let mut found: Vec<Span> = spans.iter().filter(of_path).cloned().collect();
        (status, found.pop().unwrap(), spans)
    };
    server("/login", 3);
    server("/login", 6);
    // Two spans: nothing was forwarded.
    let (status, denied, _) = server("/login", 8);
    assert_eq!(status, 429);
    for (key, value) in
        [("tollgate.verdict", "denied"), ("tollgate.policy", "two"), ("http.response.status_code", "429")]
    {
        assert_eq!(attribute(&denied.attributes, key).as_deref(), Some(value), "{key}");
    }
    assert_eq!(attribute(&denied.attributes, "error.type"), None, "it is the client's fault");
    // No policy was asked.
    let (status, failed, spans) = server("/500", 10);
    assert_eq!((status, failed.status.unwrap().code), (500, StatusCode::Error as i32));
    assert_eq!(attribute(&failed.attributes, "error.type").as_deref(), Some("500"));
    assert_eq!(attribute(&failed.attributes, "tollgate.verdict"), None);
    let forward = spans.iter().rfind(|span| span.kind == SpanKind::Client as i32).unwrap();
    assert_eq!(attribute(&forward.attributes, "error.type").as_deref(), Some("500"));
    let (status, broken, spans) = server("/break", 12);
    assert_eq!((status, broken.status.unwrap().code), (502, StatusCode::Error as i32));
    let is_unanswered =
        |span: &Span| attribute(&span.attributes, "error.type").as_deref() == Some("no_answer");
    assert_eq!(spans.iter().filter(|span| is_unanswered(span)).count(), 1, "{spans:#?}");
}

#[test]
fn a_client_that_goes_away_ends_its_spans() {
    let (origin, collector) = (Origin::sink(), Collector::start());
    let tollgate = start(&origin, collector.address(), "100%", "");
    let client = Client::sending(tollgate.address, "GET /wait HTTP/1.1\r\nhost: a\r\n\r\n");
    eventually("it is under way", || origin.received().concat().starts_with("GET "));
    drop(client);
    let spans = collector.wait_for(2);
    for span in &spans {
        assert_eq!(attribute(&span.attributes, "error.type").as_deref(), Some("cancelled"), "{span:#?}");
        assert_eq!(attribute(&span.attributes, "http.response.status_code"), None);
    }
    let children = spans.iter().filter(|span| !span.parent_span_id.is_empty()).count();
    assert_eq!(children, 1, "{spans:#?}");
}

#[test]
fn a_trusted_peer_decides_whether_its_trace_is_sampled() {
    let (origin, collector) = (Origin::echo(), Collector::start());
    // What nobody has decided is not sampled here, and of the other all.
    for (sample, flags, count) in [("0%", "01", 2), ("100%", "00", 0)] {
        let before = collector.spans().len();
        let tollgate = start(&origin, collector.address(), sample, TRUSTED);
        let state = "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7";
        let fields = [("traceparent", parent(flags)), ("tracestate", state.to_owned())];
        let fields = fields.each_ref().map(|(name, value)| (*name, value.as_str()));
        let reply = get(tollgate.address, "/", &fields);
        assert_eq!(received(&reply, "tracestate"), [state]);
        let spans = collector.wait_for(before + count).split_off(before);
        if count == 0 {
            assert_eq!(received(&reply, "traceparent"), [parent("00")], "as it came");
        } else {
            let (server, forward) = (of_kind(&spans, SpanKind::Server), of_kind(&spans, SpanKind::Client));
            assert_eq!((hex(&server.trace_id), hex(&server.parent_span_id)), (TRACE.into(), SPAN.into()));
            assert_eq!(received(&reply, "traceparent"), [format!("00-{TRACE}-{}-01", hex(&forward.span_id))]);
        }
        eventually("it is logged", || logged(&tollgate).len() == 1);
        assert_eq!(logged(&tollgate)[0]["trace_id"], TRACE);
        end(tollgate);
        assert_eq!(collector.spans().len(), before + count);
    }
}

#[test]
fn a_stranger_decides_nothing() {
    let (origin, collector) = (Origin::echo(), Collector::start());
    for (sample, count) in [("0%", 0), ("100%", 2)] {
        let tollgate = start(&origin, collector.address(), sample, "");
        let fields = [("traceparent", parent("01")), ("tracestate", "a=1".to_owned())];
        let fields = fields.each_ref().map(|(name, value)| (*name, value.as_str()));
        let reply = get(tollgate.address, "/", &fields);
        let spans = collector.wait_for(count);
        let parent_received = received(&reply, "traceparent").remove(0);
        assert!(!parent_received.contains(TRACE), "{parent_received}");
        assert!(parent_received.ends_with(if count == 0 { "-00" } else { "-01" }), "{parent_received}");
        assert_eq!(received(&reply, "tracestate"), Vec::<String>::new());
        if count > 0 {
            let server = of_kind(&spans, SpanKind::Server);
            assert_eq!((server.parent_span_id.len(), server.links.len()), (0, 1), "{server:#?}");
            let link = &server.links[0];
            assert_eq!((hex(&link.trace_id), hex(&link.span_id)), (TRACE.into(), SPAN.into()));
        }
        end(tollgate);
        assert_eq!(collector.spans().len(), count);
    }
}

#[test]
fn a_malformed_traceparent_begins_a_new_trace() {
    let (origin, collector) = (Origin::echo(), Collector::start());
    let tollgate = start(&origin, collector.address(), "0%", TRUSTED);
    for malformed in ["00-0-0-01", &parent("01").to_uppercase(), "ff-00-00-01", ""] {
        let reply = get(tollgate.address, "/", &[("traceparent", malformed), ("tracestate", "a=1")]);
        let said = received(&reply, "traceparent").remove(0);
        assert!(said.starts_with("00-") && said.ends_with("-00") && said.len() == 55, "{said}");
        assert_eq!(received(&reply, "tracestate"), Vec::<String>::new());
    }
    let twice = get(tollgate.address, "/", &[("traceparent", &parent("01")), ("traceparent", &parent("01"))]);
    assert!(!received(&twice, "traceparent").remove(0).contains(TRACE));
    let too_many = vec!["a=1"; 33].join(",");
    let reply = get(tollgate.address, "/", &[("traceparent", &parent("01")), ("tracestate", &too_many)]);
    assert!(received(&reply, "traceparent").remove(0).contains(TRACE));
    assert_eq!(received(&reply, "tracestate"), Vec::<String>::new());
}

#[test]
fn without_tracing_fields_pass_as_they_come() {
    let origin = Origin::echo();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    let fields = [("traceparent", "whatever"), ("tracestate", "a=1")];
    let reply = get(tollgate.address, "/", &fields);
    assert_eq!(
        (received(&reply, "traceparent"), received(&reply, "tracestate")),
        (vec!["whatever".into()], vec!["a=1".into()])
    );
    assert_eq!(received(&get(tollgate.address, "/", &[]), "traceparent"), Vec::<String>::new());
}

#[test]
fn a_share_is_sampled() {
    let (origin, collector) = (Origin::ok(), Collector::start());
    let tollgate = start(&origin, collector.address(), "50%", "");
    let mut client = Client::connect(tollgate.address);
    for _ in 0..400 {
        assert_eq!(client.request("GET", "/", &[], b"").status, 200);
    }
    end(tollgate);
    let sampled = collector.spans().len() / 2;
    assert!((100..300).contains(&sampled), "{sampled} of 400");
}

#[test]
fn a_collector_that_is_away_costs_spans_alone() {
    let origin = Origin::ok();
    let tollgate = start(&origin, nobody(), "100%", "");
    for _ in 0..20 {
        assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    }
    eventually("it is told", || tollgate.has_logged(&["traces can't be sent"]));
    eventually("they are counted", || tollgate.metric("tollgate_spans_dropped_total") >= 40.0);
    let reports = tollgate.log().iter().filter(|line| line.contains("traces can't be sent")).count();
    assert_eq!(reports, 1, "{:#?}", tollgate.log());
    end(tollgate);
}

#[test]
fn a_collector_that_hangs_holds_up_nobody() {
    let (origin, collector) = (Origin::ok(), Origin::sink());
    let tollgate = start(&origin, collector.address, "100%", "");
    let mut client = Client::connect(tollgate.address);
    // More than may wait.
    for _ in 0..5_000 {
        assert_eq!(client.request("GET", "/", &[], b"").status, 200);
    }
    eventually("what there is no room for is dropped", || {
        tollgate.metric("tollgate_spans_dropped_total") > 0.0
    });
    drop(client);
    let begun = Instant::now();
    end(tollgate);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[test]
fn the_last_spans_are_sent_at_the_end() {
    let (origin, collector) = (Origin::ok(), Collector::start());
    let tollgate = start(&origin, collector.address(), "100%", "");
    for _ in 0..10 {
        request(tollgate.address, "POST", "/", &[], b"x");
    }
    end(tollgate);
    assert_eq!(collector.spans().len(), 20);
}

/// Ends it, and waits until it has.
#[track_caller]
fn end(mut tollgate: Tollgate) {
    tollgate.signal("TERM");
    assert_eq!(tollgate.wait().code(), Some(0));
}

/// The status of HTTP is 200, and tells nothing.
#[test]
fn calls_of_grpc_have_their_own_status() {
    let collector = Collector::start();
    let tollgate = Tollgate::start(Config::yaml(format!(
        "
tracing: {{ otlp: \"http://{}\", sample: 100% }}
upstreams: {{ nobody: {{ endpoints: [\"http://{}\"] }} }}
policies: {{ one: {{ algorithm: sliding_log, key: ip, limit: 1/1h }} }}
routes: [{{ name: all, path: /*, upstream: nobody, policies: [one] }}]
",
        collector.address(),
        nobody()
    )));
    for status in ["14", "8"] {
        let call = request(tollgate.address, "POST", "/", &[("content-type", "application/grpc")], b"body");
        assert_eq!(call.header("grpc-status"), Some(status));
    }
    let spans = collector.wait_for(5);
    for (status, is_error) in [("14", true), ("8", false)] {
        let of =
            |span: &&Span| attribute(&span.attributes, "rpc.grpc.status_code").as_deref() == Some(status);
        let span = spans.iter().find(of).unwrap_or_else(|| panic!("no {status} in {spans:#?}"));
        assert_eq!(attribute(&span.attributes, "http.response.status_code").as_deref(), Some("200"));
        assert_eq!(attribute(&span.attributes, "error.type").is_some(), is_error, "{span:#?}");
        let code = span.status.as_ref().map_or(0, |status| status.code);
        assert_eq!(code == StatusCode::Error as i32, is_error, "{span:#?}");
    }
}
