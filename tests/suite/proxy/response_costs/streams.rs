//! Reservations of requests at the same time, and what the next request of a client sees.

use std::{
    io,
    time::{Duration, Instant},
};

use super::{
    EVENTS, JSON, Units, answer_cost, ask, chunk, chunked_head, costing_as_asked, in_chunks, left, left_in,
    one_policy, path_of, settles, start, units, used, whole, with_fields,
};
use crate::harness::{Client, Conn, Deployment, Origin, Topology, by_http2, eventually, on_each_store, read};

/// A stream that ends when the test says so, and costs as much as its path says.
fn stream(conn: &mut Conn, cost: &str) -> io::Result<()> {
    conn.send(&chunked_head(&format!("content-type: {EVENTS}\r\n")))?;
    conn.send(&chunk("data: {\"usage\":null}\n\n"))?;
    conn.pause()?;
    conn.send(&chunk(format!("data: {{\"usage\":{{\"total_tokens\":{cost}}}}}\n\n")))?;
    conn.send(b"0\r\n\r\n")
}

/// `/stream/N` is such a stream, `/N` costs N at once.
fn streaming() -> Origin {
    Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            conn.skip_body(&head)?;
            let path = path_of(&head);
            match path.strip_prefix("/stream/") {
                Some(cost) => stream(conn, cost)?,
                None => {
                    conn.send(&whole(JSON, format!("{{\"usage\":{{\"total_tokens\":{}}}}}", &path[1..])))?;
                }
            }
        }
        Ok(())
    })
}

/// Opens a stream, and reads its first event.
#[track_caller]
fn open(client: &mut Client, path: &str, user: &str) -> u64 {
    client
        .send(format!("POST {path} HTTP/1.1\r\nhost: a\r\nx-user: {user}\r\ncontent-length: 2\r\n\r\n{{}}"));
    let head = client.head();
    assert_eq!(head.status, 200, "{head:?}");
    assert_eq!(client.chunk().unwrap().unwrap(), b"data: {\"usage\":null}\n\n");
    left(&head)
}

#[track_caller]
fn read_end(client: &mut Client) {
    while client.chunk().unwrap().is_some() {}
    client.trailers().unwrap();
}

fn open_streams_hold_what_they_have_reserved(redis: Option<&Deployment>) {
    let origin = streaming();
    let policies = "policies:
  tokens: { algorithm: single_counter, key: user, limit: 1000/1h, cost: { response: openai, reserve: 200 } }
routes: [{ path: /*, upstream: api, policies: [tokens] }]";
    let tollgate = start(redis, origin.address, policies);
    let begun = Instant::now();
    let mut clients: Vec<_> = (0..5).map(|_| Client::connect(tollgate.address)).collect();
    let lefts: Vec<_> = clients.iter_mut().map(|client| open(client, "/stream/50", "ann")).collect();
    assert_eq!(lefts, [800, 600, 400, 200, 0]);
    assert_eq!(units(&tollgate, "tokens"), Units { reserved: 1_000, open: 1_000, ..Units::default() });
    assert_eq!(used(&tollgate, "tokens", "ann"), 1_000);

    let mut late = Client::connect(tollgate.address);
    let denied = ask(&mut late, "/stream/50", "ann");
    assert_eq!((denied.status, left(&denied)), (429, 0));
    // The window has begun with the first request.
    let retry_after: u64 = denied.header("retry-after").unwrap().parse().unwrap();
    let hour = Duration::from_secs(3600);
    let soonest = hour.saturating_sub(begun.elapsed()).as_secs();
    assert!((soonest..=3600).contains(&retry_after), "{retry_after}");
    assert_eq!(left(&ask(&mut late, "/10", "bob")), 800, "another user has units of its own");

    for _ in 0..5 {
        origin.resume();
    }
    clients.iter_mut().for_each(read_end);
    // Other connections may be served by the other worker, which asks Redis over a connection of its own.
    settles(&tollgate, "tokens", "ann", 250);
    for (nth, client) in clients.iter_mut().enumerate() {
        let spent = 250 + 10 * nth as u64;
        assert_eq!(left(&ask(client, "/10", "ann")), 1_000 - spent - 200);
        settles(&tollgate, "tokens", "ann", spent + 10);
    }
    // What was given back lets others in, and no more than fit: 700 are left.
    let lefts: Vec<_> = clients[..3].iter_mut().map(|client| open(client, "/stream/400", "ann")).collect();
    assert_eq!(lefts, [500, 300, 100]);
    assert_eq!(ask(&mut late, "/0", "ann").status, 429);
    for _ in 0..3 {
        origin.resume();
    }
    clients[..3].iter_mut().for_each(read_end);
    // They were more expensive than reserved: 300 + 1200 are used.
    settles(&tollgate, "tokens", "ann", 1_500);
    let denied = ask(&mut late, "/0", "ann");
    assert_eq!((denied.status, left(&denied)), (429, 0));
    let expected = Units {
        reserved: 14 * 200,
        charged: 250 + 50 + 10 + 1_200,
        refunded: 5 * 150 + 6 * 190,
        excess: 600,
        open: 0,
        missing: 0,
    };
    assert_eq!(units(&tollgate, "tokens"), expected);
}

/// Numbers of several sizes, below and above a reservation of 100.
fn costs() -> impl Iterator<Item = u64> {
    (0..60).map(|nth: u64| nth * 7_919 % 211)
}

fn the_next_request_of_a_connection_sees_what_the_last_has_cost(redis: Option<&Deployment>) {
    let origin = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            conn.skip_body(&head)?;
            let mut words = path_of(&head)[1..].split('/');
            let (form, cost) = (words.next().unwrap(), words.next().unwrap());
            let fields = format!("x-cost: {cost}\r\n");
            let body = format!("{{\"cost\":{cost}}}");
            match form {
                "whole" => answer_cost(conn, cost)?,
                "chunked" => conn.send(&in_chunks(&format!("content-type: {JSON}\r\n"), body, ""))?,
                "trailer" => conn.send(&in_chunks("trailer: x-cost\r\n", "x", &fields))?,
                "empty" => conn.send(&with_fields("200 OK", &fields, ""))?,
                "none" => conn.send(format!("HTTP/1.1 204 No Content\r\n{fields}\r\n").as_bytes())?,
                "head" => {
                    conn.send(format!("HTTP/1.1 200 OK\r\n{fields}content-length: 9\r\n\r\n").as_bytes())?;
                }
                _ => return Ok(()),
            }
        }
        Ok(())
    });
    let policies = "policies:
  tokens:
    algorithm: sliding_window
    key: user
    limit: 1000000/1h
    cost: { response: [{ json: cost }, { header: x-cost }, { trailer: x-cost }], reserve: 100 }
routes: [{ path: /*, upstream: api, policies: [tokens] }]";
    let tollgate = start(redis, origin.address, policies);
    for form in ["whole", "chunked", "trailer", "empty", "none", "head"] {
        let mut client = Client::connect(tollgate.address);
        let method = if form == "head" { "HEAD" } else { "GET" };
        let (mut spent, mut last) = (0, 0);
        for cost in costs() {
            let reply = client.request(method, &format!("/{form}/{cost}"), &[("x-user", form)], b"");
            sees(redis, left(&reply), (spent, last), form);
            (spent, last) = (spent + cost, cost);
        }
        // All at once: each is answered before the next is looked at.
        let user = format!("{form}-at-once");
        let requests: String = costs()
            .map(|cost| format!("{method} /{form}/{cost} HTTP/1.1\r\nhost: a\r\nx-user: {user}\r\n\r\n"))
            .collect();
        client.send(requests);
        let (mut spent, mut last) = (0, 0);
        for cost in costs() {
            let reply = if form == "head" { client.head() } else { client.reply() };
            sees(redis, left(&reply), (spent, last), &user);
            (spent, last) = (spent + cost, cost);
        }
    }
}

/// Asserts that `told` is what is left of a million after requests that have `spent` so much, of it the `last` one, and the
/// reservation of 100 of this one. In a Cluster, settlements and decisions are sent in batches of their own: the last
/// settlement may still be on its way.
#[track_caller]
fn sees(redis: Option<&Deployment>, told: u64, (spent, last): (u64, u64), what: &str) {
    let is_late = redis.is_some_and(|redis| redis.topology() == Topology::Cluster)
        && told == 1_000_000 - (spent - last) - 2 * 100;
    assert!(is_late || told == 1_000_000 - spent - 100, "{what}: {told} after {spent}, the last {last}");
}

fn a_client_of_http2_sees_it_too(redis: Option<&Deployment>) {
    let origin = costing_as_asked();
    let tollgate =
        start(redis, origin.address, &one_policy(1_000_000, "response: { json: cost }, reserve: 100"));
    by_http2(tollgate.address, async |mut client| {
        let (mut spent, mut last) = (0, 0);
        for cost in costs() {
            let reply = client.get(&format!("/{cost}"), &[("x-user", "ann")]).await.unwrap();
            let told = left_in(reply.head.headers()["ratelimit"].to_str().unwrap());
            sees(redis, told, (spent, last), "HTTP/2");
            (spent, last) = (spent + cost, cost);
        }
        // Streams at the same time: they see each other's reservations, and end as one sum.
        let mut answers = Vec::new();
        for cost in costs() {
            let (answer, _) =
                client.send("GET", &format!("/{cost}"), &[("x-user", "bob")], true).await.unwrap();
            answers.push(answer);
        }
        for answer in answers {
            assert_eq!(read(answer).await.unwrap().status(), 200);
        }
        eventually("all are settled", || used(&tollgate, "tokens", "bob") == costs().sum::<u64>());
    });
}

on_each_store!(
    open_streams_hold_what_they_have_reserved,
    the_next_request_of_a_connection_sees_what_the_last_has_cost,
    a_client_of_http2_sees_it_too,
);
