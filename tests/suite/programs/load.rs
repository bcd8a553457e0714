//! Load on an API, and what came of it.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};

use crate::harness::{Client, eventually, printed, program};

/// Clients on kept connections that ask one request after the other, until the test has seen enough.
pub struct Load {
    end: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    clients: Vec<JoinHandle<Vec<u16>>>,
}

impl Load {
    /// `clients` of them begin, each with a path of its own from `/0` on. Between an answer and the next
    /// request they do what `pause` says.
    pub fn begin(address: SocketAddr, clients: usize, pause: impl Fn() + Clone + Send + 'static) -> Self {
        let (end, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let client = |number: usize| {
            let (end, answered, pause) = (Arc::clone(&end), Arc::clone(&answered), pause.clone());
            thread::spawn(move || {
                let mut client = Client::connect(address);
                let (path, mut statuses) = (format!("/{number}"), Vec::new());
                while !end.load(Ordering::SeqCst) {
                    statuses.push(client.request("GET", &path, &[], b"").status);
                    answered.fetch_add(1, Ordering::SeqCst);
                    pause();
                }
                statuses
            })
        };
        let clients = (0..clients).map(client).collect();
        Self { end, answered, clients }
    }

    /// Waits until so many more are answered.
    #[track_caller]
    pub fn goes_on(&self, more: usize) {
        let enough = self.answered.load(Ordering::SeqCst) + more;
        eventually("more answers", || self.answered.load(Ordering::SeqCst) >= enough);
    }

    /// Ends it: how many were answered, and how many of them other than 200.
    pub fn end(self) -> (usize, usize) {
        self.end.store(true, Ordering::SeqCst);
        let statuses: Vec<u16> = self.clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
        (statuses.len(), statuses.iter().filter(|&&status| status != 200).count())
    }
}

/// h2load, `requests` over 16 connections with these `arguments`: how many answers of 2xx, 3xx, 4xx, 5xx.
#[track_caller]
pub fn h2load(address: SocketAddr, requests: usize, arguments: &[&str]) -> [usize; 4] {
    let said = printed(
        program("h2load", "nghttp2-client")
            .args(["--h1", "-c", "16", "-t", "1", "-n", &requests.to_string()])
            .args(arguments)
            .arg(format!("http://{address}/")),
    );
    let line =
        said.lines().find_map(|line| line.strip_prefix("status codes: ")).unwrap_or_else(|| panic!("{said}"));
    let counts: Vec<usize> =
        line.split(", ").filter_map(|count| count.split(' ').next()?.parse().ok()).collect();
    counts.try_into().unwrap_or_else(|counts| panic!("{counts:?}: {said}"))
}
