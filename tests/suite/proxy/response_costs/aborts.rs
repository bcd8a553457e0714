//! Clients that leave before the end of their response: that is no way around the limit.

use std::{thread::sleep, time::Duration};

use super::{
    EVENTS, answer_cost, chunk, chunked_head, left_in, logged, one_policy, path_of, settles, start, units,
    used, whole,
};
use crate::harness::{Client, Deployment, Origin, Tollgate, becomes, by_http2, on_each_store};

/// Requests whose clients have left, as far as Tollgate has noticed.
fn missed(tollgate: &Tollgate) -> usize {
    tollgate.metric("tollgate_requests_total{route=\"/*\",status=\"4xx\"}") as usize
}

/// Answers once the test says so: `/N` with a cost of N.
fn waiting() -> Origin {
    Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            conn.skip_body(&head)?;
            conn.pause()?;
            answer_cost(conn, &path_of(&head)[1..])?;
        }
        Ok(())
    })
}

fn the_response_is_waited_for_when_the_client_leaves_before_its_head(redis: Option<&Deployment>) {
    let origin = waiting();
    let tollgate =
        start(redis, origin.address, &one_policy(10_000, "response: { json: cost }, reserve: 100"));
    for (nth, cost) in [0, 42, 100, 2_000].into_iter().enumerate() {
        let user = format!("user-{cost}");
        let mut client = Client::connect(tollgate.address);
        client.send(format!(
            "POST /{cost} HTTP/1.1\r\nhost: a\r\nx-user: {user}\r\ncontent-length: 2\r\n\r\n{{}}"
        ));
        becomes(nth + 1, || origin.heads().len());
        client.reset();
        becomes(nth + 1, || missed(&tollgate));

        becomes(100, || used(&tollgate, "tokens", &user));
        assert_eq!(tollgate.stdout().len(), nth, "the line waits for the cost");
        origin.resume();
        becomes(cost, || used(&tollgate, "tokens", &user));
        becomes(0, || units(&tollgate, "tokens").open);
        becomes(nth + 1, || tollgate.stdout().len());
        assert_eq!(logged(&tollgate).last(), Some(&(Some(100), Some(cost))));
    }
    let found = units(&tollgate, "tokens");
    assert_eq!((found.charged, found.refunded, found.excess, found.missing), (2_142, 158, 1_900, 0));
}

fn the_response_is_waited_for_when_a_client_of_http2_resets_its_stream(redis: Option<&Deployment>) {
    let origin = waiting();
    let tollgate =
        start(redis, origin.address, &one_policy(10_000, "response: { json: cost }, reserve: 100"));
    by_http2(tollgate.address, async |mut client| {
        for (nth, cost) in [7, 900].into_iter().enumerate() {
            let user = format!("user-{cost}");
            let sent = client.send("GET", &format!("/{cost}"), &[("x-user", &user)], true).await.unwrap();
            client.ping().await.unwrap();
            becomes(nth + 1, || origin.heads().len());
            drop(sent);
            client.ping().await.unwrap();
            becomes(nth + 1, || missed(&tollgate));

            becomes(100, || used(&tollgate, "tokens", &user));
            origin.resume();
            becomes(cost, || used(&tollgate, "tokens", &user));
        }
    });
}

on_each_store!(
    the_response_is_waited_for_when_the_client_leaves_before_its_head,
    the_response_is_waited_for_when_a_client_of_http2_resets_its_stream,
);

#[test]
fn a_long_response_is_read_to_its_number_when_the_client_has_left() {
    let origin = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            conn.pause()?;
            conn.send(&chunked_head(&format!("content-type: {EVENTS}\r\n")))?;
            let event = event(1_000);
            for _ in 0..400 {
                conn.send(&chunk(&event))?;
            }
            if path_of(&head) == "/broken" {
                return Ok(());
            }
            conn.send(&chunk("data: {\"usage\":{\"total_tokens\":5000}}\n\n"))?;
            conn.send(b"0\r\n\r\n")?;
        }
        Ok(())
    });
    let tollgate = start(None, origin.address, &one_policy(1_000_000, "response: openai, reserve: 100"));
    // 400 events with 1000 letters pass before it breaks off.
    for (nth, (path, costs)) in [("/whole", 5_000), ("/broken", 100_000)].into_iter().enumerate() {
        let mut client = Client::connect(tollgate.address);
        client.send(format!(
            "POST {path} HTTP/1.1\r\nhost: a\r\nx-user: {}\r\ncontent-length: 2\r\n\r\n{{}}",
            &path[1..]
        ));
        becomes(nth + 1, || origin.heads().len());
        client.reset();
        becomes(nth + 1, || missed(&tollgate));

        origin.resume();
        becomes(0, || units(&tollgate, "tokens").open);
        settles(&tollgate, "tokens", &path[1..], costs);
    }
}

/// An event with so many letters of text.
fn event(letters: usize) -> String {
    format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n", "x".repeat(letters))
}

/// Sends a head and so many letters of text as the path says, and then nothing.
fn stalling() -> Origin {
    Origin::start(|conn| {
        let head = conn.head()?.unwrap();
        conn.skip_body(&head)?;
        conn.send(&chunked_head(&format!("content-type: {EVENTS}\r\n")))?;
        conn.send(&chunk(event(path_of(&head)[1..].parse().unwrap())))?;
        conn.closed();
        Ok(())
    })
}

/// Letters of the response, bytes of the request, and what they cost with a reservation of 100.
const STREAMS: [(usize, usize, u64); 5] =
    [(2, 1, 100), (400, 3, 100), (404, 1, 101), (100, 400, 100), (40_000, 8_001, 10_000)];

fn a_client_that_leaves_amid_a_stream_pays_for_the_part_that_passed(redis: Option<&Deployment>) {
    let origin = stalling();
    let tollgate = start(redis, origin.address, &one_policy(1_000_000, "response: openai, reserve: 100"));
    for (nth, (passed, sent, cost)) in STREAMS.into_iter().enumerate() {
        let user = format!("user-{passed}");
        let mut client = Client::connect(tollgate.address);
        let prompt = "y".repeat(sent);
        client.send(format!(
            "POST /{passed} HTTP/1.1\r\nhost: a\r\nx-user: {user}\r\ncontent-length: {sent}\r\n\r\n{prompt}"
        ));
        assert_eq!(client.head().status, 200);
        let mut received = 0;
        while received < event(passed).len() {
            received += client.chunk().unwrap().unwrap().len();
        }
        client.reset();
        becomes(nth + 1, || origin.ended());
        becomes(0, || units(&tollgate, "tokens").open);
        settles(&tollgate, "tokens", &user, cost);
        assert_charged(&tollgate, nth, cost);
    }
    assert_eq!(units(&tollgate, "tokens").missing, 0);
}

/// The last of the lines in the access log says so.
#[track_caller]
fn assert_charged(tollgate: &Tollgate, nth: usize, cost: u64) {
    becomes(nth + 1, || logged(tollgate).len());
    assert_eq!(logged(tollgate)[nth], (Some(100), Some(cost)));
}

fn a_client_of_http2_that_leaves_amid_a_stream_pays_for_the_part_that_passed(redis: Option<&Deployment>) {
    let origin = stalling();
    let tollgate = start(redis, origin.address, &one_policy(1_000_000, "response: openai, reserve: 100"));
    by_http2(tollgate.address, async |mut client| {
        for (nth, (passed, sent, cost)) in STREAMS.into_iter().enumerate() {
            let user = format!("user-{passed}");
            let length = sent.to_string();
            let fields = [("x-user", user.as_str()), ("content-length", &length)];
            let (answer, mut upload) =
                client.send("POST", &format!("/{passed}"), &fields, sent == 0).await.unwrap();
            if sent > 0 {
                upload.send_data("y".repeat(sent).into(), true).unwrap();
            }
            let head = answer.await.unwrap();
            assert_eq!(left_in(head.headers()["ratelimit"].to_str().unwrap()), 999_900);
            let mut stream = head.into_body();
            let mut received = 0;
            while received < event(passed).len() {
                let data = stream.data().await.unwrap().unwrap();
                received += data.len();
                stream.flow_control().release_capacity(data.len()).unwrap();
            }
            drop((stream, upload));
            client.ping().await.unwrap();
            becomes(nth + 1, || origin.ended());
            becomes(0, || units(&tollgate, "tokens").open);
            settles(&tollgate, "tokens", &user, cost);
            assert_charged(&tollgate, nth, cost);
        }
    });
}

on_each_store!(
    a_client_that_leaves_amid_a_stream_pays_for_the_part_that_passed,
    a_client_of_http2_that_leaves_amid_a_stream_pays_for_the_part_that_passed
);

#[test]
fn a_faulty_number_of_a_stream_that_is_left_costs_one_limit_more_at_most() {
    let origin = Origin::start(|conn| {
        let Some(head) = conn.head()? else { return Ok(()) };
        let event =
            "data: {\"message\":{\"usage\":{\"input_tokens\":1000000000,\"output_tokens\":1000000000}}}\n\n";
        if path_of(&head) == "/whole" {
            return conn.send(&whole(EVENTS, event));
        }
        conn.send(&chunked_head(&format!("content-type: {EVENTS}\r\n")))?;
        conn.send(&chunk(event))?;
        conn.closed();
        Ok(())
    });
    let tollgate = start(None, origin.address, &one_policy(1_000, "response: anthropic, reserve: 300"));
    for path in ["/whole", "/left"] {
        let mut client = Client::connect(tollgate.address);
        client.send(format!(
            "POST {path} HTTP/1.1\r\nhost: a\r\nx-user: {}\r\ncontent-length: 2\r\n\r\n{{}}",
            &path[1..]
        ));
        assert_eq!(client.head().status, 200);
        client.take(1).unwrap();
        drop(client);
        becomes(0, || units(&tollgate, "tokens").open);
        settles(&tollgate, "tokens", &path[1..], 1_300);
    }
}

#[test]
fn a_response_that_takes_long_is_waited_for_as_long_as_its_upstream_may_take() {
    let origin = waiting();
    let tollgate = start(None, origin.address, &one_policy(100_000, "response: { json: cost }, reserve: 15"));
    let mut client = Client::connect(tollgate.address);
    client.send("POST /20010 HTTP/1.1\r\nhost: a\r\nx-user: ann\r\ncontent-length: 2\r\n\r\n{}");
    becomes(1, || origin.heads().len());
    client.reset();
    becomes(1, || missed(&tollgate));
    sleep(Duration::from_millis(11_500));
    assert_eq!(used(&tollgate, "tokens", "ann"), 15);
    origin.resume();
    becomes(20_010, || used(&tollgate, "tokens", "ann"));
}

#[test]
fn of_a_client_that_leaves_many_requests_the_last_cost_what_they_ask_for() {
    let origin = waiting();
    let cost = "response: { json: cost }, reserve: { json: max_tokens, default: 10, max: 200 }";
    let tollgate = start(None, origin.address, &one_policy(100_000, cost));
    let leave = |nth: usize, body: &str| {
        let mut client = Client::connect(tollgate.address);
        client.send(format!(
            "POST /1 HTTP/1.1\r\nhost: a\r\nx-user: ann\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ));
        becomes(nth + 1, || origin.heads().len());
        client.reset();
        becomes(nth + 1, || missed(&tollgate));
    };
    (0..64).for_each(|nth| leave(nth, r#"{"max_tokens":300}"#));
    becomes(64 * 200, || used(&tollgate, "tokens", "ann"));
    leave(64, r#"{"max_tokens":300}"#);
    becomes(64 * 200 + 300, || used(&tollgate, "tokens", "ann"));
    // One that says nothing costs the most that is reserved.
    leave(65, "{}");
    becomes(64 * 200 + 300 + 200, || used(&tollgate, "tokens", "ann"));
    (0..64).for_each(|_| origin.resume());
    becomes(64 + 300 + 200, || used(&tollgate, "tokens", "ann"));
}
