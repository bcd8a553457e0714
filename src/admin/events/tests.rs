//! The stream as those who listen read it.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use super::{super::testing::Harness, STREAMS};
use crate::telemetry::Event;

/// Somebody who listens.
struct Listener(BufReader<TcpStream>);

impl Listener {
    fn new(harness: &Harness) -> Self {
        let mut stream = TcpStream::connect(harness.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        Self(BufReader::new(stream))
    }

    /// Reads on to a line that begins so.
    fn line(&mut self, begins: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "it ended before {begins}");
            if line.starts_with(begins) {
                return line.trim_end().to_owned();
            }
        }
    }

    /// Waits until it listens.
    fn listening(harness: &Harness) -> Self {
        let mut listener = Self::new(harness);
        listener.line("retry:");
        listener
    }
}

#[test]
fn what_happens_is_heard_with_a_name_an_id_and_data() {
    let harness = Harness::start(None);
    let mut listener = Listener::new(&harness);
    listener.line("HTTP/1.1 200");
    assert_eq!(listener.line("content-type:"), "content-type: text/event-stream");
    assert_eq!(listener.line("retry:"), "retry: 2000");
    harness.events.tell(|| Event::Unblocked { address: "203.0.113.7".into() });
    assert_eq!(listener.line("event: unblocked"), "event: unblocked");
    assert!(listener.line("id:").len() > 4);
    assert_eq!(listener.line("data:"), r#"data: {"address":"203.0.113.7"}"#);
    // How things stand is told unasked.
    listener.line("event: tick");
    let tick: serde_json::Value = serde_json::from_str(&listener.line("data:")[5..]).unwrap();
    assert_eq!((&tick["blocked"], &tick["ready"]), (&0.into(), &true.into()));
    assert_eq!(tick["store"]["topology"], "memory");
}

#[test]
fn whoever_reads_slowly_is_told_that_he_missed_some() {
    let harness = Harness::start(None);
    let mut listener = Listener::listening(&harness);
    let long = "x".repeat(10_000);
    for n in 0..4_000 {
        harness.events.tell(|| Event::Unblocked { address: format!("{n} {long}") });
    }
    listener.line("event: missed");
    let missed: serde_json::Value = serde_json::from_str(&listener.line("data:")[5..]).unwrap();
    assert!(missed["missed"].as_u64().unwrap() > 0, "{missed}");
    listener.line(&format!("data: {{\"address\":\"{} ", 3_999));
}

#[test]
fn listeners_are_counted_and_a_place_is_given_back() {
    let harness = Harness::start(None);
    let mut listeners: Vec<_> = (0..STREAMS).map(|_| Listener::listening(&harness)).collect();
    harness.get("/v1/events").is_problem(503);
    // Others are answered all the same.
    assert_eq!(harness.get("/v1/status").status, 200);
    listeners.pop();
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let mut another = Listener::new(&harness);
        let mut status = String::new();
        another.0.read_line(&mut status).unwrap();
        if status.starts_with("HTTP/1.1 200") {
            break;
        }
        assert!(Instant::now() < until, "{status}");
    }
    harness.get("/v1/events?x=1").is_problem(400);
}

#[test]
fn a_stop_ends_streams_well_and_soon() {
    let harness = Harness::start(None);
    let mut listeners = [Listener::listening(&harness), Listener::listening(&harness)];
    let begun = Instant::now();
    harness.stop();
    assert!(begun.elapsed() < Duration::from_secs(5));
    for listener in &mut listeners {
        let mut rest = String::new();
        listener.0.read_to_string(&mut rest).unwrap();
        assert!(rest.ends_with("0\r\n\r\n"), "it was broken off: {rest:?}");
    }
}
