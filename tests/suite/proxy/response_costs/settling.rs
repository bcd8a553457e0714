//! What a response is charged, by each form in which it tells its cost.

use super::{
    EVENTS, JSON, Units, answering, ask, chunk, chunked_head, costing_as_asked, gzip, in_chunks, left,
    logged, one_policy, settles, start, start_with, units, whole, with_fields,
};
use crate::harness::{Client, Deployment, Http2Origin, Origin, Topology, becomes, eventually, on_each_store};

const CHAT: &str = r#"{"id":"chatcmpl-1","object":"chat.completion","choices":[{"index":0,"message":{"role":
"assistant","content":"{\"usage\":{\"total_tokens\":7}}"},"finish_reason":"stop"}],
"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29}}"#;

const CHAT_STREAM: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}],\"usage\":null}\n\n\
    : a comment\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\ndata: \"total_tokens\":31}}\n\ndata: [DONE]\n\n";

const RESPONSES_STREAM: &str = "event: response.created\r\n\
    data: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\",\"usage\":null}}\r\n\r\n\
    event: response.completed\r\n\
    data: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":37,\"total_tokens\":124}}}\r\n\r\n";

const MESSAGES_STREAM: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\
    \"input_tokens\":25,\"cache_creation_input_tokens\":3,\"cache_read_input_tokens\":2,\"output_tokens\":1}}}\n\n\
    event: ping\ndata: {\"type\": \"ping\"}\n\n\
    event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":15}}\n\n\
    event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";

const GENERATED: &str = "[{\"candidates\":[],\"usageMetadata\":{\"promptTokenCount\":4,\"totalTokenCount\":5}},\r\n\
    {\"candidates\":[],\"usageMetadata\":{\"promptTokenCount\":4,\"totalTokenCount\":250}}]";

const LINES: &str =
    "{\"response\":\"Hello\",\"done\":false}\n{\"response\":\"\",\"done\":true,\"eval_count\":90}\n";

/// A response, what it is by the settings, and what it costs.
struct Case {
    name: &'static str,
    response: &'static str,
    answer: Vec<u8>,
    body: Vec<u8>,
    costs: u64,
}

fn case(name: &'static str, response: &'static str, answer: Vec<u8>, body: &[u8], costs: u64) -> Case {
    Case { name, response, answer, body: body.to_vec(), costs }
}

fn cases() -> Vec<Case> {
    let streamed = |body: &str| in_chunks(&format!("content-type: {EVENTS}; charset=utf-8\r\n"), body, "");
    let packed = |media_type: &str, body: &str| {
        let fields = format!("content-type: {media_type}\r\ncontent-encoding: gzip\r\n");
        in_chunks(&fields, gzip(body), "")
    };
    let whole_packed = |body: &str| {
        let fields = format!("content-type: {JSON}\r\ncontent-encoding: gzip\r\n");
        with_fields("200 OK", &fields, gzip(body))
    };
    let weighted = "[{ json: a.in }, { json: a.out, times: 4 }, { header: x-base, times: 10 }]";
    let weighted_answer =
        with_fields("200 OK", &format!("content-type: {JSON}\r\nx-base: 3\r\n"), r#"{"a":{"in":5,"out":6}}"#);
    vec![
        case("chat", "openai", whole(JSON, CHAT), CHAT.as_bytes(), 29),
        case("chat-gzip", "openai", whole_packed(CHAT), &gzip(CHAT), 29),
        case("chat-stream", "openai", streamed(CHAT_STREAM), CHAT_STREAM.as_bytes(), 31),
        case("stream-gzip", "openai", packed(EVENTS, CHAT_STREAM), &gzip(CHAT_STREAM), 31),
        case("responses", "openai", streamed(RESPONSES_STREAM), RESPONSES_STREAM.as_bytes(), 124),
        case("messages", "anthropic", streamed(MESSAGES_STREAM), MESSAGES_STREAM.as_bytes(), 45),
        case("generated", "gemini", whole(JSON, GENERATED), GENERATED.as_bytes(), 250),
        case("lines", "{ json: eval_count }", whole("application/x-ndjson", LINES), LINES.as_bytes(), 90),
        case(
            "points",
            "{ json: extensions.cost.actual }",
            whole("application/graphql-response+json", r#"{"data":{},"extensions":{"cost":{"actual":17}}}"#),
            br#"{"data":{},"extensions":{"cost":{"actual":17}}}"#,
            17,
        ),
        case("weighted", weighted, weighted_answer, br#"{"a":{"in":5,"out":6}}"#, 5 + 24 + 30),
        case("header", "{ header: x-cost }", with_fields("200 OK", "x-cost: 0\r\n", "free"), b"free", 0),
        case(
            "trailer",
            "{ trailer: x-cost }",
            in_chunks("trailer: x-cost\r\n", "abcdef", "x-cost: 108\r\n"),
            b"abcdef",
            108,
        ),
        case("bytes", "bytes", in_chunks("", [b'x'; 333], ""), &[b'x'; 333], 333),
    ]
}

fn every_form_of_a_cost_is_settled_to_the_unit_before_the_next_request(redis: Option<&Deployment>) {
    const RESERVED: u64 = 100;
    let cases = cases();
    let answers = cases.iter().map(|case| (format!("/{}", case.name), case.answer.clone())).collect();
    let origin = answering(answers);
    let policies: String = cases
        .iter()
        .map(|Case { name, response, .. }| {
            format!(
                "  {name}: {{ algorithm: fixed_window, key: user, limit: 100000/30d, \
                 cost: {{ response: {response}, reserve: {RESERVED} }} }}\n"
            )
        })
        .collect();
    let routes: String = cases
        .iter()
        .map(|Case { name, .. }| format!("  - {{ path: /{name}, upstream: api, policies: [{name}] }}\n"))
        .collect();
    let tollgate = start(redis, origin.address, &format!("policies:\n{policies}routes:\n{routes}"));
    for Case { name, body, costs, .. } in &cases {
        let mut client = Client::connect(tollgate.address);
        for round in 0..3 {
            let gzip = ("accept-encoding", "br, gzip");
            let reply = client.request("POST", &format!("/{name}"), &[("x-user", "ann"), gzip], b"{}");
            assert_eq!(reply.body, *body, "{name}: {:?}", reply.text());
            // A step of bytes that has passed is charged at once, and what is left of it refunded.
            assert_eq!(left(&reply), 100_000 - round * costs - RESERVED, "{name}: round {round}");
            // The last step of bytes is settled after the store has taken it. A Cluster gets settlements and decisions in
            // batches of their own.
            if *name == "bytes" || redis.is_some_and(|redis| redis.topology() == Topology::Cluster) {
                settles(&tollgate, name, "ann", (round + 1) * costs);
            }
        }
        settles(&tollgate, name, "ann", 3 * costs);
        let found = units(&tollgate, name);
        assert_eq!((found.charged, found.open, found.missing), (3 * costs, 0, 0), "{name}");
        if *name != "bytes" {
            let (refunded, excess) = (RESERVED.saturating_sub(*costs), costs.saturating_sub(RESERVED));
            assert_eq!(
                (found.reserved, found.refunded, found.excess),
                (3 * RESERVED, 3 * refunded, 3 * excess)
            );
        }
    }
    let mut expected: Vec<_> =
        cases.iter().flat_map(|case| [(Some(RESERVED), Some(case.costs)); 3]).collect();
    eventually("each request is logged", || logged(&tollgate).len() == expected.len());
    // Several workers write.
    let mut lines = logged(&tollgate);
    lines.sort_unstable();
    expected.sort_unstable();
    assert_eq!(lines, expected);
}

on_each_store!(every_form_of_a_cost_is_settled_to_the_unit_before_the_next_request);

#[test]
fn a_stream_that_is_cut_anywhere_is_charged_alike() {
    let origin = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            conn.skip_body(&head)?;
            let cut: usize = super::path_of(&head)[1..].parse().unwrap();
            let (first, rest) = RESPONSES_STREAM.split_at(cut);
            conn.send(&[chunked_head("content-type: text/event-stream\r\n"), chunk(first)].concat())?;
            conn.pause()?;
            conn.send(&[chunk(rest), b"0\r\n\r\n".to_vec()].concat())?;
        }
        Ok(())
    });
    let tollgate = start(None, origin.address, &one_policy(1_000_000, "response: openai, reserve: 200"));
    let mut client = Client::connect(tollgate.address);
    for (nth, cut) in (1..RESPONSES_STREAM.len()).enumerate() {
        client
            .send(format!("POST /{cut} HTTP/1.1\r\nhost: a\r\nx-user: ann\r\ncontent-length: 2\r\n\r\n{{}}"));
        let head = client.head();
        assert_eq!(left(&head), 1_000_000 - 124 * nth as u64 - 200, "before cut {cut}");
        let mut body = client.chunk().unwrap().unwrap();
        origin.resume();
        while let Some(more) = client.chunk().unwrap() {
            body.extend(more);
        }
        client.trailers().unwrap();
        assert_eq!(String::from_utf8(body).unwrap(), RESPONSES_STREAM);
    }
}

#[test]
fn an_origin_of_http2_tells_it_in_data_and_in_trailers() {
    let origin = Http2Origin::start(|mut exchange| async move {
        exchange.read().await?;
        let path = exchange.head.uri().path().to_owned();
        let has_length = path.ends_with("length");
        let body = r#"{"cost":70}"#;
        let length = body.len().to_string();
        let fields = [("content-type", JSON), ("content-length", length.as_str())];
        let mut stream = exchange.head(200, if has_length { &fields } else { &fields[..1] })?;
        for piece in body.as_bytes().chunks(4) {
            stream.send_data(bytes::Bytes::copy_from_slice(piece), false)?;
        }
        match path.as_str() {
            "/trailer" | "/trailer/length" => {
                let mut trailers = http::HeaderMap::new();
                trailers.insert("x-cost", "230".parse().unwrap());
                stream.send_trailers(trailers)
            }
            // The end of the stream comes by itself.
            _ => stream.send_data(bytes::Bytes::new(), true),
        }
    });
    let policy = |name: &str, response: &str| {
        format!(
            "{name}: {{ algorithm: sliding_window, key: user, limit: 10000/1h, cost: {{ response: {response}, reserve: 100 }} }}"
        )
    };
    let rest = format!(
        "policies:\n  {}\n  {}\nroutes:\n  \
         - {{ path: /data/*, upstream: api, policies: [data] }}\n  \
         - {{ path: /*, upstream: api, policies: [trailer] }}\n",
        policy("data", "{ json: cost }"),
        policy("trailer", "{ trailer: x-cost }"),
    );
    let tollgate = start_with(None, origin.address, "protocol: h2", &rest);
    for (path, costs) in [("/data/a", 70), ("/data/length", 70), ("/trailer", 230), ("/trailer/length", 230)]
    {
        let mut client = Client::connect(tollgate.address);
        for round in 0..20 {
            let reply = ask(&mut client, path, &path.replace('/', "-"));
            assert_eq!(reply.text(), r#"{"cost":70}"#);
            // A client of HTTP/1.1 has it all, by the length, before the trailers are there.
            if path == "/trailer/length" {
                settles(&tollgate, "trailer", "-trailer-length", (round + 1) * costs);
            }
            assert_eq!(left(&reply), 10_000 - round * costs - 100, "{path}, round {round}");
        }
    }
}

/// Several policies of one request.
const SEVERAL: &str = r"
policies:
  tokens:
    algorithm: sliding_window
    key: user
    limits: [1200/1m, 5000/1h]
    cost: { response: { json: cost }, reserve: 300 }
    overrides: [{ ip: 127.0.0.2, limit: 120/1m }]
  same: { algorithm: fixed_window, key: global, limit: 90000/30d, cost: { response: { json: cost }, reserve: 10 } }
  double: { algorithm: single_counter, key: user, limit: 9000/1h, cost: { response: { json: cost, times: 2 }, reserve: 50 } }
  traffic: { algorithm: fixed_window, key: user, limit: 1MiB/30d, cost: { response: bytes, reserve: 1KiB } }
  requests: { algorithm: gcra, key: user, limit: 100/1h }
routes: [{ path: /*, upstream: api, policies: [tokens, same, double, traffic, requests] }]
";

fn several_policies_are_settled_each_by_its_own_formula(redis: Option<&Deployment>) {
    let origin = costing_as_asked();
    let tollgate = start(redis, origin.address, SEVERAL);
    let mut client = Client::connect(tollgate.address);
    let mut cost = 0;
    let mut bytes = 0;
    for of_this in [0, 299, 300, 301, 45] {
        let reply = ask(&mut client, &format!("/{of_this}"), "ann");
        assert_eq!(reply.status, 200);
        cost += of_this;
        bytes += reply.body.len() as u64;
    }
    for (policy, units) in [("tokens", cost), ("double", 2 * cost), ("traffic", bytes)] {
        settles(&tollgate, policy, "ann", units);
    }
    let global = tollgate.admin("GET", "/v1/limits?policy=same&key=global").json();
    assert_eq!(global["limits"][0]["used"], cost);
    assert_eq!(units(&tollgate, "requests"), Units::default());
    let expected = Units { reserved: 1_500, charged: 945, refunded: 556, excess: 1, open: 0, missing: 0 };
    assert_eq!(units(&tollgate, "tokens"), expected);
    // 255 are left in the minute: a reservation of 300 does not fit, whatever the other policies say.
    let denied = ask(&mut client, "/0", "ann");
    assert_eq!((denied.status, left(&denied)), (429, 255), "{denied:?}");
    assert_eq!(units(&tollgate, "double").open, 0, "a denied request has reserved nothing");
}

fn a_reservation_is_never_more_than_the_limit_of_the_user(redis: Option<&Deployment>) {
    let origin = costing_as_asked();
    let tollgate = start(redis, origin.address, SEVERAL);
    let mut client = Client::connect_from("127.0.0.2".parse().unwrap(), tollgate.address);
    let mut left_of = |path: &str| left(&ask(&mut client, path, "small"));
    assert_eq!(left_of("/0"), 0, "all 120 are reserved");
    assert_eq!(left_of("/0"), 0, "and were given back");
    // It is charged one limit beyond the reservation, whatever it says.
    assert_eq!(left_of("/1000000000"), 0);
    settles(&tollgate, "tokens", "small", 240);
    settles(&tollgate, "double", "small", 9_050);
    let excess = units(&tollgate, "tokens").excess;
    assert_eq!(excess, 120);
    let denied = ask(&mut client, "/0", "small");
    assert_eq!((denied.status, left(&denied)), (429, 0), "{denied:?}");
    becomes(4, || logged(&tollgate).len());
    assert_eq!(
        logged(&tollgate),
        [(Some(120), Some(0)), (Some(120), Some(0)), (Some(120), Some(240)), (None, None)]
    );
}

on_each_store!(
    several_policies_are_settled_each_by_its_own_formula,
    a_reservation_is_never_more_than_the_limit_of_the_user,
);
