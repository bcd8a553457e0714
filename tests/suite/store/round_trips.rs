//! Long round trips to Redis.

use std::{thread, time::Duration};

use crate::harness::{Config, Origin, Redis, Relay, Tollgate, eventually, get};

/// Of a decision; the round trip takes most of it.
const TIMEOUT: Duration = Duration::from_secs(1);
const ROUND_TRIP: Duration = Duration::from_millis(700);
/// From one request to the next, so that each comes while others are in flight.
const PACE: Duration = Duration::from_millis(25);

#[test]
fn no_decision_waits_for_the_round_trip_of_another() {
    let (origin, redis) = (Origin::ok(), Redis::start());
    let relay = Relay::to(redis.port);
    let tollgate = Tollgate::start(Config::yaml(format!(
        "
workers: 1
upstreams: {{ origin: {{ endpoints: [\"http://{}\"] }} }}
store: {{ redis: {{ url: \"{}\", timeout: {}ms, connections: 1 }} }}
policies: {{ wide: {{ algorithm: fixed_window, key: ip, limit: 1000/1d, on_store_error: deny }} }}
routes: [{{ path: /*, upstream: origin, policies: [wide] }}]
",
        origin.address,
        relay.url(),
        TIMEOUT.as_millis()
    )));
    let ask = || get(tollgate.address, "/", &[]).status;
    eventually("Redis decides", || ask() == 200);
    relay.delay(ROUND_TRIP);
    let answers: Vec<u16> = thread::scope(|scope| {
        let begin = |number: u32| {
            scope.spawn(move || {
                thread::sleep(PACE * number);
                ask()
            })
        };
        let asked: Vec<_> = (0..60).map(begin).collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    assert_eq!(answers, [200; 60], "a decision that times out is denied");
}
