//! Clients that keep asking while something happens, and what became of each request.

use std::{
    fmt,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{Client, HiccupWatch, Reply};

/// What became of one request.
#[derive(Debug, Clone)]
pub struct Sample {
    pub path: &'static str,
    pub sent: Instant,
    pub took: Duration,
    pub status: u16,
    pub retry_after: Option<String>,
    /// This machine stood still meanwhile.
    pub is_disturbed: bool,
}

/// Clients under way, each on a connection of its own.
pub struct Load {
    stop: Arc<AtomicBool>,
    hiccups: HiccupWatch,
    clients: Vec<JoinHandle<Vec<Sample>>>,
}

impl Load {
    /// So many clients, spread over `addresses` and `paths`; each rests for `pause` after an answer.
    pub fn start(
        addresses: &[SocketAddr],
        paths: &'static [&'static str],
        clients: usize,
        pause: Duration,
    ) -> Self {
        Self::start_with(addresses, paths, clients, pause, &[])
    }

    /// Likewise with these headers.
    pub fn start_with(
        addresses: &[SocketAddr],
        paths: &'static [&'static str],
        clients: usize,
        pause: Duration,
        headers: &[(&'static str, &str)],
    ) -> Self {
        let headers: Arc<[(&str, String)]> =
            headers.iter().map(|&(name, value)| (name, value.to_owned())).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let spawn = |client: usize| {
            let (address, path) = (addresses[client % addresses.len()], paths[client % paths.len()]);
            let (stop, headers) = (Arc::clone(&stop), Arc::clone(&headers));
            thread::spawn(move || {
                let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
                let mut connection = Client::connect(address);
                let mut samples = Vec::new();
                while !stop.load(SeqCst) {
                    let sent = Instant::now();
                    let reply = connection.request("GET", path, &headers, b"");
                    samples.push(sample(path, sent, &reply));
                    thread::sleep(pause);
                }
                samples
            })
        };
        Self { hiccups: HiccupWatch::start(), clients: (0..clients).map(spawn).collect(), stop }
    }

    /// Ends it: all requests, by when they were sent.
    pub fn stop(self) -> Vec<Sample> {
        self.stop.store(true, SeqCst);
        let mut samples: Vec<_> = self
            .clients
            .into_iter()
            .flat_map(|client| client.join().expect("every request is answered"))
            .collect();
        let hiccups = self.hiccups.stop();
        for sample in &mut samples {
            sample.is_disturbed = hiccups.disturbed(sample.sent, sample.took);
        }
        samples.sort_by_key(|sample| sample.sent);
        samples
    }
}

fn sample(path: &'static str, sent: Instant, reply: &Reply) -> Sample {
    let retry_after = reply.header("retry-after").map(str::to_owned);
    Sample { path, sent, took: sent.elapsed(), status: reply.status, retry_after, is_disturbed: false }
}

/// How long requests took.
#[derive(Debug, Clone, Copy)]
pub struct Latencies {
    pub count: usize,
    pub p50: Duration,
    pub p99: Duration,
    pub p999: Duration,
    pub max: Duration,
}

impl Latencies {
    /// Of those that were not disturbed: more than a tenth of all, so that there is something to judge by.
    pub fn of<'a>(samples: impl IntoIterator<Item = &'a Sample>) -> Self {
        let (disturbed, undisturbed): (Vec<&Sample>, Vec<_>) =
            samples.into_iter().partition(|sample| sample.is_disturbed);
        let mut took: Vec<_> = undisturbed.into_iter().map(|sample| sample.took).collect();
        took.sort_unstable();
        let all = took.len() + disturbed.len();
        assert!(took.len() * 10 > all, "{} of {all} requests were disturbed", disturbed.len());
        let at = |share: f64| took[((took.len() as f64 * share) as usize).min(took.len() - 1)];
        Self { count: took.len(), p50: at(0.5), p99: at(0.99), p999: at(0.999), max: at(1.0) }
    }
}

impl fmt::Display for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, p50, p99, p999, max } = self;
        write!(f, "{count} requests, p50 {p50:.1?}, p99 {p99:.1?}, p99.9 {p999:.1?}, at most {max:.1?}")
    }
}
