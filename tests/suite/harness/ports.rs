//! Ports for those who are told theirs, and for those who leave one and come back to it.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    process,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

/// Below are ports of services.
const FIRST: u32 = 10_000;

/// A port that nobody listens on, and that nobody gets who asks for any port: it is none of those that the system gives
/// to connections and to listeners at port 0, as far as the system leaves any. Each call returns another one.
pub fn free_port() -> u16 {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let given: u32 = range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(32_768);
    let count = given.saturating_sub(FIRST);
    if count < 1_000 {
        return TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    }
    loop {
        // Where several suites run at once, each begins elsewhere.
        let next = process::id().wrapping_mul(7_919).wrapping_add(CALLS.fetch_add(1, Relaxed));
        let port = u16::try_from(FIRST + next % count).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// An address where nobody listens.
pub fn nobody() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}
