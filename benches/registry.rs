//! A million limited addresses: the memory that they take, how long a page of each list takes, and for how long the
//! collector and others have to wait meanwhile.
//!
//! `cargo bench --bench registry`, or `-- 100000` for fewer.

use std::{
    env, fs,
    net::{IpAddr, Ipv4Addr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use tollgate::{
    abuse::{
        self, ClientQuery, ClientRegistry, Collector, DenialReport, PageScan, Recorder, RequestLine, Sort,
    },
    config::{self, SystemLookup},
    limit::{Clock, ManualClock, Policy, algorithm::metadata_list::Entry},
    telemetry::metrics::Metrics,
};

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Addresses handed over at once.
const BATCH: usize = 4_000;
const PAGE: usize = 1_000;
const DAY: Duration = Duration::from_secs(86_400);
/// 2026-07-03T12:00:01Z
const NOW: i64 = 1_783_080_001_000_000;

const CONFIG: &str = "
policies: { per-ip: { algorithm: single_counter, key: ip, limit: 3/1m } }
upstreams: { origin: { endpoints: [\"http://127.0.0.1:1\"] } }
routes: [{ path: /*, upstream: origin }]
";

fn address(n: usize) -> IpAddr {
    // Apart from each other, and not in order.
    let n = u32::try_from(n).unwrap_or(0).wrapping_mul(2_654_435_761);
    IpAddr::V4(Ipv4Addr::from(n))
}

fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok());
    kib.unwrap_or(0_usize) * 1_024
}

fn fill(registry: &ClientRegistry, recorder: &Recorder, count: usize) {
    for n in 0..count {
        let shown = abuse::shown(abuse::masked(address(n), 64));
        let identifier = abuse::identifier(&shown);
        let now = NOW + n as i64;
        let user = format!("user-{}", n % 50_000);
        let denial = DenialReport {
            address: &shown,
            policy: 0,
            identifier: &identifier,
            user: Some(&user),
            is_user_verified: false,
            is_customer: false,
            now,
            until: now + 60_000_000,
        };
        let line =
            || RequestLine { is_safe: true, path: "/orders", query: None, headers: None, is_logged: false };
        recorder.record(&denial, line, || {
            let user = Some(user.as_str().into());
            Arc::new(Entry { time: now, user, method: http::Method::GET, path: "/orders".into() })
        });
        if (n + 1) % BATCH == 0 || n + 1 == count {
            recorder.flush();
            while registry.len_and_bytes().0 < n + 1 {
                thread::yield_now();
            }
        }
    }
}

/// The longest wait for the registry while `work` was done, in which the collector has some to do, too.
fn longest_wait(registry: &Arc<ClientRegistry>, work: impl FnOnce()) -> Duration {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut longest = Duration::ZERO;
            while !done.load(Relaxed) {
                let begun = Instant::now();
                registry.len_and_bytes();
                longest = longest.max(begun.elapsed());
                thread::sleep(Duration::from_micros(200));
            }
            longest
        });
        work();
        done.store(true, Relaxed);
        waiting.join().unwrap_or_default()
    })
}

/// Walks a list to its end: the pages, the first, the longest, and the longest step, which holds the lock.
fn pages(registry: &ClientRegistry, wanted: &ClientQuery) -> (usize, [Duration; 3]) {
    let (mut count, mut times, mut after) = (0, [Duration::ZERO; 3], None);
    loop {
        let begun = Instant::now();
        let mut walk = PageScan::new(ClientQuery { after, ..wanted.clone() }, PAGE);
        loop {
            let step = Instant::now();
            let goes_on = registry.advance(&mut walk, NOW);
            times[2] = times[2].max(step.elapsed());
            if !goes_on {
                break;
            }
        }
        let (clients, next) = walk.page();
        let took = begun.elapsed();
        count += clients.len();
        times[0] = if after.is_none() { took } else { times[0] };
        times[1] = times[1].max(took);
        after = next;
        if after.is_none() {
            return (count, times);
        }
    }
}

#[expect(clippy::print_stdout, reason = "it is what it is for")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count = env::args().filter_map(|word| word.parse().ok()).next().unwrap_or(1_000_000);
    let config = config::parse("proxy.yaml", CONFIG, &SystemLookup)?;
    let policies = Policy::all(config.policies.iter().map(Arc::as_ref));
    let metrics = Metrics::new(&config, 1);
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(NOW));
    let registry = Arc::new(ClientRegistry::new(&policies, DAY, Arc::clone(&metrics)).without_peers());
    let collector = Collector::spawn(Arc::clone(&registry), clock, Arc::clone(&metrics))?;
    let recorder = collector.recorder();

    let before = resident();
    let begun = Instant::now();
    let wait = longest_wait(&registry, || fill(&registry, &recorder, count));
    let (held, bytes) = registry.len_and_bytes();
    println!("{held} addresses in {:.1?}; longest wait {wait:.1?}", begun.elapsed());
    let taken = resident().saturating_sub(before);
    println!(
        "accounted for {} MB, resident {} MB: {} bytes each",
        bytes >> 20,
        taken >> 20,
        taken / held.max(1)
    );
    println!("evicted {}, dropped {}", metrics.abuse_evicted(), metrics.abuse_dropped());

    println!(
        "pages of {PAGE}: addresses, the first, the longest, the longest step, the longest wait of others"
    );
    let prefix = Some(abuse::parse("10.0.0.0/8").ok_or("a prefix")?);
    let sorts = [Sort::Last, Sort::First, Sort::Denied, Sort::Users, Sort::Address];
    let all = sorts.map(|sort| (sort.name(), ClientQuery { sort, ..ClientQuery::default() }));
    let some = [
        ("10.0.0.0/8 by last", ClientQuery { prefix, ..ClientQuery::default() }),
        ("nobody's policy", ClientQuery { policy: Some("none".into()), ..ClientQuery::default() }),
    ];
    for (name, wanted) in all.into_iter().chain(some) {
        let mut walked = (0, [Duration::ZERO; 3]);
        let wait = longest_wait(&registry, || walked = pages(&registry, &wanted));
        let (count, [first, longest, step]) = walked;
        println!("{name:>18}: {count:>9} {first:>9.1?} {longest:>9.1?} {step:>9.1?} {wait:>9.1?}");
    }
    Ok(())
}
