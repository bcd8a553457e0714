//! `ask: true`: the upstream is asked for the usage of a stream, and the client gets the stream that it has asked for.

use std::sync::{Arc, Mutex};

use bytes::Bytes;

use super::{
    EVENTS, JSON, chunk, chunked_head, in_chunks, left, left_in, one_policy, path_of, settles, start,
    start_with, units, with_fields,
};
use crate::harness::{
    Client, Deployment, Http2Origin, Origin, Reply, Tollgate, becomes, by_http2, on_each_store, read,
    send_body,
};

const COST: &str = "response: { preset: openai, ask: true }, reserve: 100";

/// The stream without its usage, in two parts, and the event with the usage that comes between them.
const BEFORE: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}],\"usage\":null}\n\n: wait\n\n";
const USAGE: &str =
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":28,\"total_tokens\":37}}\n\n";
const AFTER: &str = "data: [DONE]\n\n";

fn whole_stream() -> String {
    format!("{BEFORE}{USAGE}{AFTER}")
}

/// The bodies that an origin got.
type Bodies = Arc<Mutex<Vec<String>>>;

/// Sends the whole stream in chunks of three bytes; on `/length`, with a length; on `/end`, with the usage as its end, which no
/// empty line follows.
fn origin() -> (Origin, Bodies) {
    let bodies = Bodies::default();
    let theirs = Arc::clone(&bodies);
    let origin = Origin::start(move |conn| {
        while let Some(head) = conn.head()? {
            let (body, _) = conn.body(&head)?;
            theirs.lock().unwrap().push(String::from_utf8(body).unwrap());
            let fields = format!("content-type: {EVENTS}\r\n");
            match path_of(&head) {
                "/length" => conn.send(&with_fields("200 OK", &fields, whole_stream()))?,
                "/end" => conn.send(&in_chunks(&fields, format!("{BEFORE}{}", USAGE.trim_end()), ""))?,
                "/torn" => {
                    let stream = format!("{BEFORE}{USAGE}{}", AFTER.trim_end());
                    conn.send(&in_chunks(&fields, stream, ""))?;
                }
                "/trailer" => {
                    let stream = format!("{BEFORE}{USAGE}{}", AFTER.trim_end());
                    conn.send(&in_chunks(&format!("{fields}trailer: x-end\r\n"), stream, "x-end: 1\r\n"))?;
                }
                _ => conn.send(&in_chunks(&fields, whole_stream(), ""))?,
            }
        }
        Ok(())
    });
    (origin, bodies)
}

#[track_caller]
fn post(client: &mut Client, path: &str, body: &str) -> Reply {
    client.request("POST", path, &[("x-user", "ann"), ("content-type", JSON)], body.as_bytes())
}

fn the_upstream_is_asked_and_the_client_gets_what_it_has_asked_for(redis: Option<&Deployment>) {
    let (origin, bodies) = origin();
    let tollgate = start(redis, origin.address, &one_policy(100_000, COST));
    let without = format!("{BEFORE}{AFTER}");
    let edited = |rest: &str| format!(r#"{{"stream_options":{{"include_usage":true}},{rest}"#);
    let plain = r#" "model": "gpt",  "messages": [ {"role":"user","content":"h\u00e9 \"stream\":false"} ], "stream" : true }"#;
    // What the client sends, what the origin gets, and what the client gets.
    let cases = [
        (format!("{{{plain}"), edited(plain), without.clone()),
        (
            r#"{"messages":[],"stream":true,"stream_options":{ "x": 1 }}"#.to_owned(),
            r#"{"messages":[],"stream":true,"stream_options":{"include_usage":true, "x": 1 }}"#.to_owned(),
            without.clone(),
        ),
        (
            r#"{"messages":[],"stream":true,"stream_options":{"include_usage":false}}"#.to_owned(),
            r#"{"messages":[],"stream":true,"stream_options":{"include_usage":true}}"#.to_owned(),
            without.clone(),
        ),
    ];
    let unchanged = [
        r#"{"messages":[],"stream":true,"stream_options":{"include_usage":true}}"#,
        r#"{"messages":[],"stream":false}"#,
        r#"{"messages":[]}"#,
        r#"{"input":"hello","stream":true}"#,
    ];
    let unchanged = unchanged.map(|body| (body.to_owned(), body.to_owned(), whole_stream()));
    let mut client = Client::connect(tollgate.address);
    let mut spent = 0;
    for (sent, got, received) in cases.into_iter().chain(unchanged) {
        for path in ["/", "/length"] {
            let reply = post(&mut client, path, &sent);
            assert_eq!(reply.text(), received, "{path}: {sent}");
            assert_eq!(left(&reply), 100_000 - spent - 100, "{path}: {sent}");
            assert_eq!(bodies.lock().unwrap().pop().unwrap(), got);
            // The origin reads by it, and the next request is one of its own: it is right.
            let length = format!("content-length: {}", got.len());
            let head = origin.heads().pop().unwrap();
            assert!(head.lines().any(|line| line == length), "{head}");
            spent += 37;
        }
    }
    // One of unknown length is edited alike.
    client.send("POST / HTTP/1.1\r\nhost: a\r\nx-user: ann\r\ncontent-type: application/json\r\n");
    client.send("transfer-encoding: chunked\r\n\r\n").send(chunk(format!("{{{plain}"))).send("0\r\n\r\n");
    assert_eq!(client.reply().text(), without);
    assert_eq!(bodies.lock().unwrap().pop().unwrap(), edited(plain));
    settles(&tollgate, "tokens", "ann", spent + 37);
    assert_eq!(units(&tollgate, "tokens").missing, 0);
}

on_each_store!(the_upstream_is_asked_and_the_client_gets_what_it_has_asked_for);

const ASKS: &str = r#"{"messages":[],"stream":true}"#;

#[test]
fn a_stream_that_ends_with_the_event_is_settled_before_its_end() {
    let (origin, _) = origin();
    let tollgate = start(None, origin.address, &one_policy(100_000, COST));
    let mut client = Client::connect(tollgate.address);
    for round in 0..20 {
        let reply = post(&mut client, "/end", ASKS);
        assert_eq!(left(&reply), 100_000 - 37 * round - 100);
        assert_eq!(reply.text(), BEFORE);
    }
    // All at once: each is answered before the next is looked at.
    for (path, received) in [
        ("/", format!("{BEFORE}{AFTER}")),
        ("/end", BEFORE.to_owned()),
        ("/torn", format!("{BEFORE}data: [DONE]")),
        ("/trailer", format!("{BEFORE}data: [DONE]")),
    ] {
        let requests = (0..20).map(|_| {
            format!(
                "POST {path} HTTP/1.1\r\nhost: a\r\nx-user: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{ASKS}",
                path.replace('/', "-"),
                ASKS.len()
            )
        });
        client.send(requests.collect::<String>());
        for round in 0..20 {
            let reply = client.reply();
            assert_eq!(left(&reply), 100_000 - 37 * round - 100, "{path}");
            assert_eq!(reply.text(), received, "{path}");
        }
    }
}

#[test]
fn the_event_is_taken_out_wherever_it_is_split() {
    let stream = whole_stream();
    let sent = stream.clone();
    let origin = Origin::start(move |conn| {
        while let Some(head) = conn.head()? {
            conn.skip_body(&head)?;
            let (first, rest) = sent.split_at(path_of(&head)[1..].parse().unwrap());
            conn.send(&[chunked_head("content-type: text/event-stream\r\n"), chunk(first)].concat())?;
            conn.pause()?;
            conn.send(&[chunk(rest), b"0\r\n\r\n".to_vec()].concat())?;
        }
        Ok(())
    });
    let tollgate = start(None, origin.address, &one_policy(1_000_000, COST));
    let mut client = Client::connect(tollgate.address);
    for (nth, cut) in (1..stream.len()).enumerate() {
        client.send(format!(
            "POST /{cut} HTTP/1.1\r\nhost: a\r\nx-user: ann\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{ASKS}",
            ASKS.len()
        ));
        let head = client.head();
        assert_eq!(left(&head), 1_000_000 - 37 * nth as u64 - 100, "before cut {cut}");
        // Whole events that came have passed, before the rest is there.
        let whole_events = stream[..cut].rfind("\n\n").map_or(0, |end| end + 2).min(BEFORE.len());
        let mut body = Vec::new();
        while body.len() < whole_events {
            body.extend(client.chunk().unwrap().unwrap());
        }
        origin.resume();
        while let Some(more) = client.chunk().unwrap() {
            body.extend(more);
        }
        client.trailers().unwrap();
        assert_eq!(String::from_utf8(body).unwrap(), format!("{BEFORE}{AFTER}"), "cut at {cut}");
    }
}

#[test]
fn over_http2_it_is_the_same() {
    let bodies = Bodies::default();
    let theirs = Arc::clone(&bodies);
    let origin = Http2Origin::start(move |mut exchange| {
        let theirs = Arc::clone(&theirs);
        async move {
            let (body, _) = exchange.read().await?;
            theirs.lock().unwrap().push(String::from_utf8(body).unwrap());
            let length = whole_stream().len().to_string();
            let fields = [("content-type", EVENTS), ("content-length", length.as_str())];
            let has_length = exchange.head.uri().path() == "/length";
            let mut stream = exchange.head(200, if has_length { &fields } else { &fields[..1] })?;
            for piece in whole_stream().as_bytes().chunks(11) {
                stream.send_data(Bytes::copy_from_slice(piece), false)?;
            }
            stream.send_data(Bytes::new(), true)
        }
    });
    let tollgate = start_with(None, origin.address, "protocol: h2", &one_policy(1_000_000, COST));
    let asks = |is_asked: bool| match is_asked {
        true => r#"{"messages":[],"stream":true,"stream_options":{"include_usage":true}}"#,
        false => ASKS,
    };
    by_http2(tollgate.address, async |mut client| {
        for (nth, (path, is_asked)) in
            [("/", false), ("/length", false), ("/", true), ("/length", true)].into_iter().enumerate()
        {
            let body = asks(is_asked);
            let length = body.len().to_string();
            let fields = [("x-user", "ann"), ("content-type", JSON), ("content-length", length.as_str())];
            let (answer, mut upload) = client.send("POST", path, &fields, false).await.unwrap();
            send_body(&mut upload, body.into()).await.unwrap();
            upload.send_data(Bytes::new(), true).unwrap();
            let reply = read(answer).await.unwrap();
            let expected = if is_asked { whole_stream() } else { format!("{BEFORE}{AFTER}") };
            assert_eq!(reply.text(), expected, "{path}, {is_asked}");
            let told = left_in(reply.head.headers()["ratelimit"].to_str().unwrap());
            assert_eq!(told, 1_000_000 - 37 * nth as u64 - 100, "{path}, {is_asked}");
            let got = bodies.lock().unwrap().pop().unwrap();
            assert!(got.contains(r#""stream_options":{"include_usage":true}"#), "{got}");
            let length = got.len().to_string();
            assert_eq!(origin.heads().pop().unwrap().headers()["content-length"], length);
        }
    });
    assert_eq!(charged(&tollgate), 4 * 37);
}

fn charged(tollgate: &Tollgate) -> u64 {
    units(tollgate, "tokens").charged
}

#[test]
fn a_client_that_leaves_still_pays_for_the_usage_that_it_does_not_see() {
    let origin = Origin::start(|conn| {
        let Some(head) = conn.head()? else { return Ok(()) };
        conn.skip_body(&head)?;
        conn.send(&chunked_head("content-type: text/event-stream\r\n"))?;
        conn.send(&chunk(format!("{BEFORE}{}", USAGE.replace("37", "3700"))))?;
        conn.closed();
        Ok(())
    });
    let tollgate = start(None, origin.address, &one_policy(100_000, COST));
    let mut client = Client::connect(tollgate.address);
    client.send(format!(
            "POST / HTTP/1.1\r\nhost: a\r\nx-user: ann\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{ASKS}",
            ASKS.len()
        ));
    client.head();
    assert_eq!(client.chunk().unwrap().unwrap(), BEFORE.as_bytes());
    drop(client);
    becomes(0, || units(&tollgate, "tokens").open);
    settles(&tollgate, "tokens", "ann", 3_700);
}
