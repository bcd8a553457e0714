//! What a response costs that does not tell it.

use super::{
    EVENTS, JSON, answering, ask, gzip, in_chunks, left, logged, one_policy, path_of, settles, start, units,
    whole, with_fields,
};
use crate::harness::{Client, Deployment, Origin, becomes, eventually, nobody, on_each_store, request};

/// Policies that reserve 100, and charge that, nothing or 7 for a response without a number.
const POLICIES: &str = "
policies:
  kept: { algorithm: sliding_window, key: user, limit: 100000/1h, cost: { response: { json: cost }, reserve: 100 } }
  free: { algorithm: sliding_window, key: user, limit: 100000/1h, cost: { response: { json: cost }, reserve: 100, missing: 0 } }
  flat: { algorithm: sliding_window, key: user, limit: 100000/1h, cost: { response: { json: cost }, reserve: 100, missing: 7 } }
routes: [{ path: /*, upstream: api, policies: [kept, free, flat] }]
";
const NAMES: [&str; 3] = ["kept", "free", "flat"];
/// What each charges for a response without a number.
const MISSING: [u64; 3] = [100, 0, 7];

fn json(cost: &str) -> Vec<u8> {
    whole(JSON, format!("{{\"cost\":{cost}}}"))
}

fn a_response_without_a_number_costs_what_is_set_for_it(redis: Option<&Deployment>) {
    let coded = |coding: &str, body: &[u8]| {
        with_fields("200 OK", &format!("content-type: {JSON}\r\ncontent-encoding: {coding}\r\n"), body)
    };
    let answers = [
        ("/without", whole(JSON, "{}")),
        ("/elsewhere", whole(JSON, r#"{"usage":{"cost":5}}"#)),
        ("/null", json("null")),
        ("/negative", json("-5")),
        ("/fraction", json("1.5")),
        ("/large", json("1e10")),
        ("/above", json("1000000001")),
        ("/word", json("\"12\"")),
        ("/list", json("[12]")),
        ("/text", whole("text/plain", r#"{"cost":12}"#)),
        ("/untyped", with_fields("200 OK", "", r#"{"cost":12}"#)),
        ("/empty", whole(JSON, "")),
        ("/brotli", coded("br", br#"{"cost":12}"#)),
        ("/twice", coded("gzip, gzip", br#"{"cost":12}"#)),
        ("/no-gzip", coded("gzip", br#"{"cost":12}"#)),
        ("/created", b"HTTP/1.1 204 No Content\r\n\r\n".to_vec()),
        ("/unchanged", b"HTTP/1.1 304 Not Modified\r\ncontent-length: 11\r\n\r\n".to_vec()),
        ("/stream", in_chunks(&format!("content-type: {EVENTS}\r\n"), "data: [DONE]\n\ndata: x\n\n", "")),
    ];
    let origin =
        answering(answers.iter().map(|(path, answer)| ((*path).to_owned(), answer.clone())).collect());
    let tollgate = start(redis, origin.address, POLICIES);
    let mut client = Client::connect(tollgate.address);
    for (nth, (path, _)) in answers.iter().enumerate() {
        ask(&mut client, path, "ann");
        for (name, missing) in NAMES.iter().zip(MISSING) {
            let times = nth as u64 + 1;
            settles(&tollgate, name, "ann", missing * times);
            let units = units(&tollgate, name);
            assert_eq!((units.missing, units.charged, units.open), (times, missing * times, 0), "{path}");
        }
    }
}

fn a_failure_costs_nothing_unless_it_says_what_it_costs(redis: Option<&Deployment>) {
    let failure = |status: &str, body: &str| with_fields(status, &format!("content-type: {JSON}\r\n"), body);
    let answers = [
        ("/400", failure("400 Bad Request", r#"{"error":{}}"#), [0; 3], 0),
        ("/429", failure("429 Too Many Requests", ""), [0; 3], 0),
        ("/500", with_fields("500 Internal Server Error", "", "oops"), [0; 3], 0),
        ("/200", in_chunks("", "", ""), MISSING, 1),
        ("/402", failure("402 Payment Required", r#"{"cost":12}"#), [12; 3], 0),
        ("/502", failure("502 Bad Gateway", r#"{"cost":-12}"#), MISSING, 1),
    ];
    let origin =
        answering(answers.iter().map(|(path, answer, ..)| ((*path).to_owned(), answer.clone())).collect());
    let tollgate = start(redis, origin.address, POLICIES);
    let mut client = Client::connect(tollgate.address);
    let (mut expected, mut expected_missing) = ([0; 3], 0);
    for (path, _, costs, missing) in answers {
        ask(&mut client, path, "ann");
        expected_missing += missing;
        for ((name, expected), cost) in NAMES.iter().zip(&mut expected).zip(costs) {
            *expected += cost;
            settles(&tollgate, name, "ann", *expected);
            assert_eq!(units(&tollgate, name).missing, expected_missing, "{path}");
        }
    }
}

on_each_store!(
    a_response_without_a_number_costs_what_is_set_for_it,
    a_failure_costs_nothing_unless_it_says_what_it_costs,
);

#[test]
fn the_answer_to_head_has_no_body_that_tells_it() {
    let origin =
        answering(vec![("/".to_owned(), with_fields("200 OK", "content-type: application/json\r\n", ""))]);
    let tollgate = start(None, origin.address, POLICIES);
    let mut client = Client::connect(tollgate.address);
    for times in 1..=2 {
        let reply = client.request("HEAD", "/", &[("x-user", "ann")], b"");
        assert_eq!(reply.status, 200);
        for (name, missing) in NAMES.iter().zip(MISSING) {
            settles(&tollgate, name, "ann", missing * times);
        }
    }
}

fn an_upstream_that_is_not_there_costs_nothing(redis: Option<&Deployment>) {
    let tollgate = start(redis, nobody(), POLICIES);
    let mut client = Client::connect(tollgate.address);
    for _ in 0..3 {
        let reply = client.request("POST", "/", &[("x-user", "ann")], b"{}");
        // What a request has reserved that never left is free again; its own response says so or not.
        assert_eq!(reply.status, 502);
        for name in NAMES {
            settles(&tollgate, name, "ann", 0);
            let units = units(&tollgate, name);
            assert_eq!((units.charged, units.missing, units.open), (0, 0, 0), "{name}");
        }
    }
    becomes(3, || logged(&tollgate).len());
    assert_eq!(logged(&tollgate), [(Some(100), Some(0)); 3]);
}

on_each_store!(an_upstream_that_is_not_there_costs_nothing);

#[test]
fn an_upstream_that_closes_before_its_head_costs_what_was_reserved() {
    let origin = Origin::start(|conn| {
        let head = conn.head()?.unwrap();
        conn.skip_body(&head).map(drop)
    });
    let tollgate = start(None, origin.address, POLICIES);
    let reply = request(tollgate.address, "POST", "/", &[("x-user", "ann")], b"{}");
    assert_eq!((reply.status, origin.connections()), (502, 1));
    // It may have done all the work.
    for name in NAMES {
        eventually("it is settled", || units(&tollgate, name).open == 0);
        settles(&tollgate, name, "ann", 100);
        assert_eq!(units(&tollgate, name).missing, 1, "{name}");
    }
}

/// The beginning of a response whose text follows.
const TEXT: &str = r#"{"choices":[{"message":{"content":""#;

#[test]
fn a_response_that_breaks_off_costs_at_least_the_reservation_and_what_has_passed() {
    let origin = Origin::start(|conn| {
        let head = conn.head()?.unwrap();
        conn.skip_body(&head)?;
        let media_type = if path_of(&head) == "/late" { JSON } else { EVENTS };
        conn.send(
            format!("HTTP/1.1 200 OK\r\ncontent-type: {media_type}\r\ncontent-length: 5000\r\n\r\n")
                .as_bytes(),
        )?;
        let body = match path_of(&head) {
            "/told" => format!("data: {{\"usage\":{{\"total_tokens\":321}}}}\n\n{}", " ".repeat(200)),
            "/short" => "data: {}\n\n".to_owned(),
            _ => format!("{TEXT}{}", "x".repeat(1_600)),
        };
        conn.send(body.as_bytes())?;
        conn.pause()?;
        conn.reset()
    });
    let tollgate = start(None, origin.address, &one_policy(100_000, "response: openai, reserve: 100"));
    for (path, costs) in [("/told", 321), ("/short", 100), ("/late", 400)] {
        let mut client = Client::connect(tollgate.address);
        let body = "y".repeat(40);
        client.send(format!(
            "POST {path} HTTP/1.1\r\nhost: a\r\nx-user: {}\r\ncontent-length: 40\r\n\r\n{body}",
            &path[1..]
        ));
        let head = client.head();
        assert_eq!(left(&head), 99_900, "{path}");
        client.take(10).unwrap();
        if path == "/late" {
            client.take(TEXT.len() + 1_590).unwrap();
        }
        origin.resume();
        assert!(client.closed());
        eventually("it is settled", || units(&tollgate, "tokens").open == 0);
        settles(&tollgate, "tokens", &path[1..], costs);
    }
    assert_eq!(units(&tollgate, "tokens").missing, 0, "it was estimated");
}

#[test]
fn a_response_without_a_number_costs_its_text_however_it_is_packed() {
    // Framing, escapes and compression do not count.
    let event = |text: &str| {
        format!("event: x\nid: 1\ndata: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
    };
    let letters = event("x").repeat(4_000);
    let far = event(&"x".repeat(4_000_000));
    let packed = |body: &str| {
        let fields = format!("content-type: {EVENTS}\r\ncontent-encoding: gzip\r\n");
        with_fields("200 OK", &fields, gzip(body))
    };
    let answers = [
        ("/letters", whole(EVENTS, &*letters), 1_000),
        ("/packed", packed(&letters), 1_000),
        ("/far", packed(&far), 1_000_000),
        ("/escaped", whole(EVENTS, event(&"\\n\\u0041".repeat(1_000))), 750),
        ("/few", whole(EVENTS, event("x")), 100),
        ("/other", whole("text/plain", "x".repeat(40_000)), 100),
        (
            "/thoughts",
            whole(
                JSON,
                format!(
                    r#"{{"choices":[{{"message":{{"reasoning_content":"{0}","tool_calls":[{{"function":{{"name":"{0}","arguments":"{0}"}}}}]}}}}]}}"#,
                    "x".repeat(400)
                ),
            ),
            303,
        ),
    ];
    let origin =
        answering(answers.iter().map(|(path, answer, _)| ((*path).to_owned(), answer.clone())).collect());
    let tollgate = start(None, origin.address, &one_policy(10_000_000, "response: openai, reserve: 100"));
    let mut client = Client::connect(tollgate.address);
    for (path, _, cost) in answers {
        assert_eq!(ask(&mut client, path, &path[1..]).status, 200);
        settles(&tollgate, "tokens", &path[1..], cost);
    }
}
