//! Clients that keep asking while processes change.

use std::{
    io::{self, Write},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use super::{Service, origin, start};
use crate::harness::{Client, Config, Origin, Redis, Reply, eventually, get};

/// A slow request waits as long as two handovers take.
const PATIENT: &str = "timeouts: { response: 5m }";

/// Clients that never stop to ask, each in its own way.
struct Clients {
    stop: Arc<AtomicBool>,
    /// Answers so far.
    answered: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<Vec<String>>>,
}

impl Clients {
    fn start(address: SocketAddr) -> Self {
        let (stop, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let spawn = |ask: fn(SocketAddr, Duration, (&AtomicBool, &AtomicUsize)) -> Vec<String>, pause| {
            let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
            thread::spawn(move || ask(address, Duration::from_millis(pause), (&stop, &answered)))
        };
        let threads =
            [0, 1, 7, 40].map(|pause| [spawn(on_new_connections, pause), spawn(on_kept_ones, pause)]);
        Self { threads: threads.into_iter().flatten().collect(), stop, answered }
    }

    /// Waits for this many more answers.
    fn ask(&self, more: usize) {
        let enough = self.answered.load(SeqCst) + more;
        eventually("clients are answered", || self.answered.load(SeqCst) >= enough);
    }

    /// What went wrong, and how many requests were answered.
    fn stop(self) -> (Vec<String>, usize) {
        self.stop.store(true, SeqCst);
        let failures = self.threads.into_iter().flat_map(|client| client.join().unwrap()).collect();
        (failures, self.answered.load(SeqCst))
    }
}

/// Asks until it is told to stop: what went wrong.
fn ask_repeatedly(
    how: &str,
    pause: Duration,
    (stop, answered): (&AtomicBool, &AtomicUsize),
    mut ask: impl FnMut() -> io::Result<Reply>,
) -> Vec<String> {
    let mut failures = Vec::new();
    while !stop.load(SeqCst) {
        match ask() {
            Ok(reply) if reply.status == 200 => {
                answered.fetch_add(1, SeqCst);
            }
            other => failures.push(format!("{how}: {other:?}")),
        }
        thread::sleep(pause);
    }
    failures
}

fn on_new_connections(
    address: SocketAddr,
    pause: Duration,
    shared: (&AtomicBool, &AtomicUsize),
) -> Vec<String> {
    ask_repeatedly("on a new connection", pause, shared, || Client::try_get(address))
}

/// Uses a connection until an answer says that it closes.
fn on_kept_ones(address: SocketAddr, pause: Duration, shared: (&AtomicBool, &AtomicUsize)) -> Vec<String> {
    let mut client = Client::connect(address);
    ask_repeatedly("on a kept connection", pause, shared, || {
        let sent = client.stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        let reply = sent.and_then(|()| client.try_reply());
        let stays_open = |reply: &Reply| reply.status == 200 && reply.header("connection") != Some("close");
        if !reply.as_ref().is_ok_and(stays_open) {
            client = Client::connect(address);
        }
        reply
    })
}

/// Two handovers in a row under load, with a slow request in flight at each.
fn nothing_is_lost(origin: &Origin, mut service: Service) {
    let address = service.0.address;
    let clients = Clients::start(address);
    let mut pid = service.0.pid();
    let mut slow = Vec::new();
    for _ in 0..2 {
        clients.ask(200);
        let client = Client::sending(address, "GET /slow HTTP/1.1\r\nhost: a\r\n\r\n");
        let waiting = |head: &String| head.starts_with("GET /slow ");
        eventually("the slow request is on its way", || {
            origin.heads().iter().filter(|head| waiting(head)).count() > slow.len()
        });
        slow.push(client);
        let new = service.hand_over_from(pid);
        assert_ne!(new, pid);
        pid = new;
    }
    clients.ask(200);
    for client in &mut slow {
        origin.resume();
        assert_eq!(client.reply().status, 200);
    }
    // Idle connections are closed after five seconds, and nobody waits longer.
    assert_eq!(service.0.wait().code(), Some(0));
    clients.ask(200);
    let (failures, answered) = clients.stop();
    assert!(failures.is_empty(), "{} of {answered}: {failures:#?}", failures.len());
    assert_eq!(get(address, "/", &[]).status, 200);
}

#[test]
fn two_handovers_lose_nothing() {
    let origin = origin();
    let config = Config::upstream(&[origin.address], PATIENT, "shutdown: { drain: 5m }\n");
    nothing_is_lost(&origin, start(config));
}

#[test]
fn two_handovers_with_redis_lose_nothing() {
    let (origin, redis) = (origin(), Redis::start());
    let policy = "policies:\n  many: { algorithm: fixed_window, key: ip, limit: 1000000/1h }\n";
    let store = format!("store: {{ redis: {{ url: \"{}\", timeout: 5s }} }}\n", redis.url());
    let rest = format!("shutdown: {{ drain: 5m }}\n{store}{policy}");
    nothing_is_lost(
        &origin,
        start(Config::upstream(&[origin.address], &format!("{PATIENT}, policies: [many]"), &rest)),
    );
}

/// The new process has other workers than the old one has sockets.
#[test]
fn another_number_of_workers_loses_nothing() {
    let origin = origin();
    let service = start(Config::upstream(&[origin.address], PATIENT, "shutdown: { drain: 5m }\n"));
    let clients = Clients::start(service.0.address);
    let mut pid = service.0.pid();
    for (from, to) in [(2, 5), (5, 1), (1, 3)] {
        clients.ask(100);
        service.configure(|yaml| yaml.replace(&format!("workers: {from}"), &format!("workers: {to}")));
        pid = service.hand_over_from(pid);
    }
    clients.ask(200);
    let (failures, answered) = clients.stop();
    assert!(failures.is_empty(), "{} of {answered}: {failures:#?}", failures.len());
}
