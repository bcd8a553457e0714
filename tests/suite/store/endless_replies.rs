//! A server that sends without end: what it sends is not kept, and requests are decided without it.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use crate::harness::{Config, Origin, Redis, Tollgate, eventually, get};

/// What a server sends to whatever it is asked: first, and then without end.
const ENDLESS: [(&str, &str, &str); 8] = [
    ("a long list", "*1000000000\r\n", ":1\r\n"),
    ("lists of lists", "", "*250000\r\n"),
    ("nested lists", "", "*1\r\n"),
    ("a line", "+", "x"),
    ("a long text", "$1000000000\r\n", "x"),
    ("a text that is nearly too long", "$16000000\r\n", "x"),
    ("null replies", "", "$-1\r\n"),
    ("messages", "", ">3\r\n$7\r\nmessage\r\n+c\r\n+m\r\n"),
];
/// Most KiB that all of it may take.
const ROOM: u64 = 100 << 10;

/// Accepts connections, each on a thread of its own. Returns where, and how many have been closed by the other side while
/// they were flooded.
fn listen(
    serve: impl Fn(TcpStream) -> io::Result<()> + Send + Sync + 'static,
) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, closed) = (listener.local_addr().unwrap(), Arc::<AtomicUsize>::default());
    let (serve, count) = (Arc::new(serve), Arc::clone(&closed));
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (serve, count) = (Arc::clone(&serve), Arc::clone(&count));
            thread::spawn(move || {
                if serve(stream).is_err() {
                    count.fetch_add(1, SeqCst);
                }
            });
        }
    });
    (address, closed)
}

fn flood(stream: &mut TcpStream, first: &str, again: &str) -> io::Result<()> {
    stream.write_all(first.as_bytes())?;
    let again = again.repeat((64 << 10) / again.len());
    loop {
        stream.write_all(again.as_bytes())?;
    }
}

fn instance(origin: &Origin, redis: &str) -> Tollgate {
    Tollgate::start(Config::yaml(format!(
        "
workers: 1
upstreams:
  origin: {{ endpoints: [\"http://{}\"] }}
store: {{ redis: {{ url: \"{redis}\", timeout: 2s, connections: 1 }} }}
policies:
  p: {{ algorithm: fixed_window, key: ip, limit: 5/1d }}
routes:
  - {{ path: /*, upstream: origin, policies: [p] }}
",
        origin.address
    )))
}

/// Calls `round` until so many connections were closed, and checks what memory that took.
fn stays_small(tollgate: &Tollgate, what: &str, closed: &AtomicUsize, least: usize, mut round: impl FnMut()) {
    let before = tollgate.forget_peak();
    eventually(&format!("connections with {what} are closed"), || {
        round();
        closed.load(SeqCst) >= least
    });
    let grown = tollgate.peak_kib().saturating_sub(before);
    assert!(grown < ROOM, "{what}: {grown} KiB");
}

#[test]
fn replies_without_end_are_not_kept() {
    let origin = Origin::ok();
    for (what, first, again) in ENDLESS {
        let (address, closed) = listen(move |mut stream| {
            // A client that closes before it asks is not flooded.
            if stream.read(&mut [0; 4096]).is_ok_and(|read| read == 0) {
                return Ok(());
            }
            flood(&mut stream, first, again)
        });
        let tollgate = instance(&origin, &format!("redis://{address}"));
        let mut admitted = 0;
        stays_small(&tollgate, what, &closed, 6, || {
            let status = get(tollgate.address, "/", &[]).status;
            admitted += u32::from(status == 200);
            assert!(matches!(status, 200 | 429), "{what}: {status}");
        });
        assert!(
            (1..=5).contains(&admitted),
            "{what}: the instance counts by itself, and {admitted} were admitted"
        );
    }
}

/// The server decides as it should, and floods only those that listen to its channel.
#[test]
fn messages_without_end_are_not_kept() {
    let (origin, redis) = (Origin::ok(), Redis::start());
    let port = redis.port;
    let (address, closed) = listen(move |mut near| {
        let mut first = [0; 4096];
        let read = near.read(&mut first).unwrap_or(0);
        let asked = String::from_utf8_lossy(&first[..read]).into_owned();
        if asked.contains("SUBSCRIBE") {
            let channel = "ratelimit:unblock";
            let length = channel.len();
            let confirmed = format!("*3\r\n$9\r\nsubscribe\r\n${length}\r\n{channel}\r\n:1\r\n");
            let message =
                format!("*3\r\n$7\r\nmessage\r\n${length}\r\n{channel}\r\n$100\r\n{}\r\n", "x".repeat(100));
            return flood(&mut near, &confirmed, &message);
        }
        let Ok(mut far) = TcpStream::connect(("127.0.0.1", port)) else { return Ok(()) };
        let (mut back, mut forth) = (far.try_clone().unwrap(), near.try_clone().unwrap());
        thread::spawn(move || io::copy(&mut back, &mut forth));
        let _ended = far.write_all(&first[..read]).and_then(|()| io::copy(&mut near, &mut far));
        Ok(())
    });
    let tollgate = instance(&origin, &format!("redis://{address}"));
    let mut statuses = Vec::new();
    stays_small(&tollgate, "messages to subscribers", &closed, 3, || {
        statuses.push(get(tollgate.address, "/", &[]).status);
    });
    let admitted = statuses.iter().filter(|status| **status == 200).count();
    assert_eq!(admitted, statuses.len().min(5), "{statuses:?}");
}
