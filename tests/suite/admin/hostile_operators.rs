//! Load on the admin port does not delay requests of clients.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use crate::harness::{Client, Config, Origin, Tollgate, eventually};

const POLICIES: &str = "
policies:
  per-ip: { algorithm: fixed_window, key: ip, limit: 100000/1s }
";
/// No request takes longer, even on a busy machine, unless the admin port delays it.
const SOON: Duration = Duration::from_secs(5);

/// Sends `ask` again and again without a pause, and counts the responses.
fn hammer(admin: SocketAddr, ask: &str, ended: &AtomicBool, answered: &AtomicUsize) {
    let ask = ask.as_bytes();
    while !ended.load(Relaxed) {
        let Ok(mut stream) = TcpStream::connect(admin) else { continue };
        let mut response = Vec::new();
        // The connection may be evicted.
        if stream.write_all(ask).and_then(|()| stream.read_to_end(&mut response)).is_ok()
            && response.starts_with(b"HTTP/1.1 ")
        {
            answered.fetch_add(1, Relaxed);
        }
    }
}

fn ask(method: &str, target: &str, body: &str) -> String {
    let head = "host: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n";
    format!("{method} {target} HTTP/1.1\r\n{head}content-length: {}\r\n\r\n{body}", body.len())
}

#[test]
fn hammering_the_admin_port_delays_no_request() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::new(&[origin.address], POLICIES).with_policy("per-ip"));
    let admin = tollgate.admin;
    let (ended, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    // Clients that never finish their request, and clients that never read the response.
    let slow = ["GET / HTTP/1.1\r\nhost: ", "GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n"];
    let _slow: Vec<TcpStream> = slow
        .iter()
        .cycle()
        .take(300)
        .filter_map(|head| {
            let mut stream = TcpStream::connect(admin).ok()?;
            stream.write_all(head.as_bytes()).ok()?;
            Some(stream)
        })
        .collect();
    let explained = r#"{"url": "http://a/b", "headers": {"x": "y"}}"#;
    let asks = [
        ask("GET", "/v1/blocked?limit=1000&sort=denied", ""),
        ask("GET", "/metrics", ""),
        ask("POST", "/v1/explain", explained),
        ask("POST", "/v1/bans", r#"{"key": "ip:192.0.2.1", "for": "1h"}"#),
        ask("DELETE", "/v1/blocked/192.0.2.1", ""),
        ask("GET", "/", ""),
    ];
    let hammering: Vec<_> = asks
        .into_iter()
        .map(|ask| {
            let (ended, answered) = (Arc::clone(&ended), Arc::clone(&answered));
            thread::spawn(move || hammer(admin, &ask, &ended, &answered))
        })
        .collect();
    eventually("the admin port is busy", || answered.load(Relaxed) > 100);

    let before = answered.load(Relaxed);
    let mut client = Client::connect(tollgate.address);
    let mut slowest = Duration::ZERO;
    for _ in 0..500 {
        let begun = Instant::now();
        assert_eq!(client.request("GET", "/", &[], b"").status, 200);
        slowest = slowest.max(begun.elapsed());
    }
    assert!(slowest < SOON, "a request took {slowest:?}");
    eventually("it was busy all the while", || answered.load(Relaxed) > before);
    ended.store(true, Relaxed);
    for thread in hammering {
        thread.join().unwrap();
    }
    // The admin port still responds.
    assert_eq!(tollgate.admin("GET", "/v1/status").status, 200);
}
