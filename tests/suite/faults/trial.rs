//! Instances under steady load while something happens to a part of them, and the verdict on what they let through.

use std::{
    collections::HashMap,
    fmt,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::{
    app::handover::Service,
    harness::{Client, HiccupWatch, Origin, PATIENCE},
};

/// Each of these has this limit, in a window that outlasts the test: what is admitted of a key is exact, whenever it was asked.
const BUDGETS: [&str; 6] =
    ["single_counter", "fixed_window", "sliding_log", "sliding_window", "gcra", "metadata_list"];
pub const LIMIT: usize = 6;
/// Each of these has this limit in a second.
const RATES: [&str; 3] = ["sliding_log", "sliding_window", "gcra"];
pub const RATE: usize = 20;
const WINDOW: Duration = Duration::from_secs(1);

/// Clients, each with a connection of its own, and how often each asks.
const CLIENTS: usize = 32;
const PERIOD: Duration = Duration::from_millis(80);
/// How long a key is used, some 20 times.
const GENERATION: Duration = Duration::from_millis(400);

/// The policies and routes, under which everything in the tests counts.
pub fn rules(timeout: Duration, redis: &str, origin: SocketAddr) -> String {
    let policies = BUDGETS.map(|algorithm| {
        format!("  {algorithm}: {{ algorithm: {algorithm}, key: 'header:x-key', limit: {LIMIT}/1d }}\n")
    });
    let rates = RATES.map(|algorithm| {
        format!("  rate_{algorithm}: {{ algorithm: {algorithm}, key: 'header:x-key', limit: {RATE}/1s }}\n")
    });
    let paths = BUDGETS.map(str::to_owned).into_iter().chain(RATES.map(|of| format!("rate_{of}")));
    let routes = paths.map(|name| format!("  - {{ path: /{name}, upstream: origin, policies: [{name}] }}\n"));
    format!(
        "upstreams:\n  origin: {{ endpoints: [\"http://{origin}\"] }}\n\
         store: {{ redis: {{ {redis}, timeout: {}ms }} }}\nlog: {{ level: info, format: text }}\n\
         policies:\n{}{}routes:\n{}",
        timeout.as_millis(),
        policies.concat(),
        rates.concat(),
        routes.collect::<String>()
    )
}

/// When each admitted request arrived, by its number.
pub struct Judge {
    pub origin: Origin,
    stamps: Arc<Mutex<HashMap<u64, Instant>>>,
}

impl Judge {
    pub fn start() -> Self {
        let stamps = Arc::<Mutex<HashMap<u64, Instant>>>::default();
        let arrived = Arc::clone(&stamps);
        let origin = Origin::start(move |conn| {
            while let Some(head) = conn.head()? {
                let number = head.lines().find_map(|line| line.strip_prefix("x-number: "));
                let number = number.and_then(|number| number.parse().ok()).unwrap_or_default();
                arrived.lock().unwrap().insert(number, Instant::now());
                conn.answer("200 OK", &[], b"ok")?;
            }
            Ok(())
        });
        Self { origin, stamps }
    }
}

/// One request.
pub struct Sample {
    number: u64,
    /// Whether it counts under a rate, and the index of its algorithm.
    is_rate: bool,
    algorithm: usize,
    generation: u64,
    sent: Instant,
    took: Duration,
    /// `None`: the connection ended.
    status: Option<u16>,
    is_disturbed: bool,
}

/// Clients under way.
pub struct Traffic {
    stop: Arc<AtomicBool>,
    hiccups: HiccupWatch,
    clients: Vec<JoinHandle<Vec<Sample>>>,
}

impl Traffic {
    /// Spread over these instances, with keys of this `run` alone. Every fifth request of a client counts under a rate, with a key
    /// that stays.
    pub fn start(instances: &[SocketAddr], run: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let begun = Instant::now();
        let spawn = |client: usize| {
            let (address, stop) = (instances[client % instances.len()], Arc::clone(&stop));
            let instances = instances.len();
            thread::spawn(move || {
                let mut connection = None;
                let mut samples = Vec::new();
                let offset = PERIOD * client as u32 / CLIENTS as u32;
                for turn in 0.. {
                    let due = begun + offset + PERIOD * turn;
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                    if stop.load(SeqCst) {
                        break;
                    }
                    let generation = (due - begun).as_millis() / GENERATION.as_millis();
                    let mut sample = Sample {
                        number: (run << 32) + u64::from(turn) * CLIENTS as u64 + client as u64,
                        is_rate: turn % 5 == 4,
                        algorithm: 0,
                        generation: generation as u64,
                        sent: Instant::now(),
                        took: Duration::ZERO,
                        status: None,
                        is_disturbed: false,
                    };
                    // Each instance asks for each of them.
                    let nth = client / instances + turn as usize;
                    sample.algorithm = nth % if sample.is_rate { RATES.len() } else { BUDGETS.len() };
                    sample.send(address, &mut connection);
                    samples.push(sample);
                }
                samples
            })
        };
        Self { clients: (0..CLIENTS).map(spawn).collect(), hiccups: HiccupWatch::start(), stop }
    }

    /// Ends it: all requests, by when they were sent.
    pub fn stop(self) -> Vec<Sample> {
        self.stop.store(true, SeqCst);
        let joined = self.clients.into_iter().map(|client| client.join().expect("clients do not panic"));
        let mut samples: Vec<Sample> = joined.flatten().collect();
        let hiccups = self.hiccups.stop();
        for sample in &mut samples {
            sample.is_disturbed = hiccups.disturbed(sample.sent, sample.took);
        }
        samples.sort_by_key(|sample| sample.sent);
        samples
    }
}

impl Sample {
    /// Sends it, and notes what became of it.
    fn send(&mut self, address: SocketAddr, connection: &mut Option<Client>) {
        let run = self.number >> 32;
        let (path, key) = match self.is_rate {
            true => (format!("rate_{}", RATES[self.algorithm]), format!("run{run}")),
            false => (BUDGETS[self.algorithm].to_owned(), format!("run{run}-{}", self.generation)),
        };
        let number = self.number;
        let head = format!("GET /{path} HTTP/1.1\r\nhost: a\r\nx-key: {key}\r\nx-number: {number}\r\n\r\n");
        // A connection may have been closed while it was idle.
        for _ in 0..2 {
            let Some(mut client) = connection.take().or_else(|| Client::try_connect(address)) else { break };
            let reply = client.try_send(&head).and_then(|()| client.try_reply());
            self.took = self.sent.elapsed();
            let Ok(reply) = reply else { continue };
            self.status = Some(reply.status);
            if reply.header("connection").is_none() {
                *connection = Some(client);
            }
            break;
        }
    }
}

/// From when to when something was wrong.
#[derive(Clone, Copy)]
pub struct Phases {
    pub struck: Instant,
    /// The part works again.
    pub mended: Instant,
    /// Redis decides again.
    pub back: Instant,
}

/// What was seen of a fault, in one round or in several.
#[derive(Debug, Default, Clone)]
pub struct Seen {
    /// The most that was admitted of one key.
    pub most: usize,
    /// Admitted beyond the limit of a key, of so many that were admitted.
    pub beyond: (usize, usize),
    /// Refused although the limit had room, of so many units that all limits had.
    pub below: (usize, usize),
    /// The most that was certainly admitted in a window under a rate.
    pub most_of_rate: usize,
    /// Keys whose life was outside of the fault, and which admitted another number than their limit.
    pub unsteady: Vec<String>,
    /// While something was wrong, undisturbed.
    pub waits: Vec<Duration>,
    /// From the end of the fault on.
    pub recoveries: Vec<Duration>,
    /// Answered with neither 200 nor 429, or not at all, and of how many.
    pub failed: (usize, usize),
}

impl Seen {
    /// Judges a round. `is_gone`: whether the instance of a client was killed. `timeout`: of decisions; a key of which one took as
    /// long was struck by something else.
    pub fn judge(
        traffic: Traffic,
        judge: &Judge,
        phases: Phases,
        timeout: Duration,
        is_gone: impl Fn(u64) -> bool,
    ) -> Self {
        let samples = traffic.stop();
        let stamps = judge.stamps.lock().unwrap();
        let mut seen = Self {
            recoveries: vec![phases.back.saturating_duration_since(phases.mended)],
            ..Self::default()
        };
        let last = samples.last().map_or(0, |sample| sample.generation);
        for generation in 0..last {
            for (algorithm, name) in BUDGETS.iter().enumerate() {
                let of_key: Vec<_> = samples
                    .iter()
                    .filter(|of| !of.is_rate && (of.generation, of.algorithm) == (generation, algorithm))
                    .collect();
                let admitted = of_key.iter().filter(|of| stamps.contains_key(&of.number)).count();
                let room = LIMIT.min(of_key.len());
                seen.most = seen.most.max(admitted);
                seen.beyond = (seen.beyond.0 + admitted.saturating_sub(LIMIT), seen.beyond.1 + admitted);
                seen.below = (seen.below.0 + room.saturating_sub(admitted), seen.below.1 + room);
                let is_steady = of_key.iter().all(|of| {
                    (of.sent + of.took < phases.struck || of.sent > phases.back)
                        && of.took < timeout / 2
                        && !of.is_disturbed
                });
                if is_steady && admitted != room {
                    seen.unsteady.push(format!("{generation} of {name}: {admitted}"));
                }
            }
        }
        for (algorithm, name) in RATES.into_iter().enumerate() {
            let admitted: Vec<_> = samples
                .iter()
                .filter(|of| of.is_rate && of.algorithm == algorithm)
                .filter_map(|of| Some((of.sent, *stamps.get(&of.number)?)))
                .collect();
            // Decided after the first was sent, and before the window was over.
            let within = |first: Instant| {
                admitted.iter().filter(|(sent, stamp)| *sent >= first && *stamp < first + WINDOW).count()
            };
            // A bucket that is full admits its burst, and what flows into it meanwhile.
            let of_burst = if name == "gcra" { RATE } else { 0 };
            let most = admitted.iter().map(|(sent, _)| within(*sent)).max().unwrap_or_default();
            seen.most_of_rate = seen.most_of_rate.max(most.saturating_sub(of_burst));
        }
        let alive = |of: &&Sample| !is_gone(of.number % CLIENTS as u64);
        let is_failed = |of: &&Sample| !matches!(of.status, Some(200 | 429));
        let living: Vec<_> = samples.iter().filter(alive).collect();
        seen.failed = (living.iter().filter(|of| is_failed(of)).count(), living.len());
        let during = living.into_iter().filter(|of| phases.struck <= of.sent && of.sent <= phases.back);
        seen.waits = during.filter(|of| !of.is_disturbed).map(|of| of.took).collect();
        seen
    }

    /// Adds another round.
    pub fn add(&mut self, other: Self) {
        let sum = |one: (usize, usize), another: (usize, usize)| (one.0 + another.0, one.1 + another.1);
        self.most = self.most.max(other.most);
        self.most_of_rate = self.most_of_rate.max(other.most_of_rate);
        self.beyond = sum(self.beyond, other.beyond);
        self.below = sum(self.below, other.below);
        self.failed = sum(self.failed, other.failed);
        self.unsteady.extend(other.unsteady);
        self.waits.extend(other.waits);
        self.recoveries.extend(other.recoveries);
    }

    /// This share of the waits was no longer.
    pub fn wait(&self, share: f64) -> Duration {
        let mut waits = self.waits.clone();
        waits.sort_unstable();
        let nth = (waits.len() as f64 * share) as usize;
        waits.get(nth.min(waits.len().saturating_sub(1))).copied().unwrap_or_default()
    }

    pub fn longest_recovery(&self) -> Duration {
        self.recoveries.iter().max().copied().unwrap_or_default()
    }
}

impl fmt::Display for Seen {
    /// The cells of its row in the guide.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |(count, all): (usize, usize)| match count {
            0 => "0".to_owned(),
            _ => format!("{count} of {all}"),
        };
        write!(
            f,
            "{} of {LIMIT} | {} | {} | {} of {RATE} | {} / {} ms | {:.1} s | {}",
            self.most,
            of(self.beyond),
            of(self.below),
            self.most_of_rate,
            self.wait(0.999).as_millis(),
            self.wait(1.0).as_millis(),
            self.longest_recovery().as_secs_f64(),
            of(self.failed)
        )
    }
}

/// Waits until Redis alone decides at all of these instances. Returns since when it does.
#[track_caller]
pub fn wait_until_back(instances: &[&Service]) -> Instant {
    const QUIET: Duration = Duration::from_millis(600);
    let count = |source: &str| -> f64 {
        let sums = instances.iter().map(|instance| {
            let text = instance.0.admin("GET", "/metrics").text();
            let lines = text.lines().filter(|line| {
                line.starts_with("tollgate_decisions_total") && line.contains(&format!("source=\"{source}\""))
            });
            lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>()
        });
        sums.sum()
    };
    let begun = Instant::now();
    let (mut by_fallback, mut by_store, mut since) = (count("fallback"), count("store"), begun);
    loop {
        thread::sleep(Duration::from_millis(50));
        let now = count("fallback");
        if now > by_fallback {
            (by_fallback, by_store, since) = (now, count("store"), Instant::now());
        }
        if since.elapsed() > QUIET && count("store") > by_store {
            return since;
        }
        assert!(begun.elapsed() < PATIENCE, "Redis never decides again");
    }
}
