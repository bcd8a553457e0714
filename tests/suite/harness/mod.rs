//! What the tests stand on: the real binary on free ports, origins that do exactly what a test says,
//! and clients that send exactly the bytes a test wants.

mod bound;
mod browser;
mod certificates;
mod cgroup;
mod client;
mod collector;
mod command;
mod dns;
mod fake_clock;
pub mod frames;
mod hiccups;
mod http2;
mod http2_origin;
mod http_reader;
mod hung_disk;
mod issuer;
mod latch;
mod load;
mod origin;
mod ports;
pub mod postgres;
mod program;
mod redis;
mod redis_cluster;
mod redis_sentinel;
mod redis_topology;
mod relay;
mod terminal;
mod tls;
mod tollgate;

pub use browser::Browser;
pub use certificates::{Authority, Issued, file_name};
pub use cgroup::Cgroup;
pub use client::{Client, Reply, get, get_from, request};
pub use collector::{Collector, attribute};
pub use command::{Ended, command, tollgate, tollgate_in};
pub use dns::{Dns, DnsAnswer};
pub use fake_clock::FakeClock;
pub use hiccups::HiccupWatch;
pub use http_reader::{Framing, framing};
pub use http2::{Http2Client, Http2Reply, by_http2, in_runtime, read, reset_of};
pub use http2_origin::{Handled, Http2Exchange, Http2Origin, send_body};
pub use hung_disk::HungDisk;
pub use issuer::{Issuer, in_seconds};
pub use latch::Latch;
pub use load::{Latencies, Load, Sample};
pub use origin::{Conn, Origin};
pub use ports::{free_port, nobody};
pub use postgres::Postgres;
pub use program::{
    Running, caddy, haproxy, installed, new_caddy, nginx, printed, program, python, start_nginx,
};
pub use redis::Redis;
pub use redis_cluster::{Cluster, slot_of};
pub use redis_sentinel::{MASTER, Sentinels};
pub use redis_topology::{Deployment, Servers, Topology};
pub(crate) use redis_topology::{on_each_store, on_each_topology, on_own_servers, on_topologies};
pub use relay::Relay;
pub use terminal::Terminal;
pub use tls::{HttpsClient, TLS_VERSIONS, TlsConnector, roots, server_config};
pub use tollgate::{Config, Tollgate};

use std::{
    fmt::Debug,
    time::{Duration, Instant},
};

/// How long anything that should happen may take before a test gives up on it. Sentinels that vote for several of them at once try
/// again after six seconds, and a busy machine takes its time besides.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// How long the quickest of several tries took, of which each says how long it took itself. What has to wait for something waits
/// every time; what need not may still be held up by a busy machine, but not every time.
pub fn quickest(attempt: impl FnMut() -> Duration) -> Duration {
    std::iter::repeat_with(attempt).take(10).min().expect("ten tries")
}

/// Waits until `condition` holds.
#[track_caller]
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "never came true: {what}");
        pause(begun);
    }
}

/// Waits until `value` is what is `expected`, such as a counter or the number of lines in a log: what it counts may be
/// over a moment before it is counted.
#[track_caller]
pub fn becomes<T: Copy + PartialEq + Debug>(expected: T, value: impl Fn() -> T) {
    let begun = Instant::now();
    let mut last = value();
    while last != expected {
        assert!(begun.elapsed() < PATIENCE, "never became {expected:?}, but {last:?}");
        pause(begun);
        last = value();
    }
}

/// Between two looks at something that is waited for since `begun`. Looking often for a long time would slow other tests down.
fn pause(begun: Instant) {
    const SHORTEST: Duration = Duration::from_millis(2);
    const LONGEST: Duration = Duration::from_millis(50);
    std::thread::sleep((begun.elapsed() / 10).clamp(SHORTEST, LONGEST));
}
