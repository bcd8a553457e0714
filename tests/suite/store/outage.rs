//! Limits while Redis is away, slow, full, or no master: every request is answered in time, with nothing but the
//! verdict that its policy is configured to have then; and Redis is asked again soon after it is back.

use std::{
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use super::redis_audit::warnings;
use crate::harness::{
    Client, Cluster, Config, Deployment, Latencies, Load, MASTER, Origin, Redis, Relay, Sample, Sentinels,
    Servers, Tollgate, Topology, eventually, nobody, on_own_servers,
};

on_own_servers!(
    each_of_two_instances_admits_its_share,
    a_list_of_instances_that_is_lost_raises_no_share,
    a_connection_that_was_closed_while_idle_fails_nobody,
    a_connection_that_was_closed_just_now_fails_nobody,
);

/// Each on one server, on one that a Sentinel names, and on a cluster whose nodes are all struck. Where Redis itself stops for
/// longer than its node timeout, and where the Sentinel knows a replica, another server takes over: `topologies.rs` tests that.
macro_rules! on_each_site {
    ($($test:ident),* $(,)?) => {
        $(
            mod $test {
                #[test]
                fn server() {
                    super::$test(super::Site::server());
                }

                #[test]
                fn sentinel() {
                    super::$test(super::Site::sentinel());
                }

                #[test]
                fn cluster() {
                    super::$test(super::Site::cluster());
                }
            }
        )*
    };
}

on_each_site!(
    redis_forgets_its_scripts,
    redis_is_slow,
    redis_is_slow_but_not_too_slow,
    the_way_to_redis_is_cut_without_a_word,
    all_connections_are_reset,
);

/// What a decision may take, as it is by default.
const TIMEOUT: Duration = Duration::from_millis(50);
/// Where it is not the time that is tested, on a machine that does much else.
const PATIENT: Duration = Duration::from_secs(5);
/// What the rest may take, in a debug build on a machine that does much else. It is twenty milliseconds that are
/// aimed at.
const SPARE: Duration = Duration::from_millis(400);
/// From the end of an outage to decisions by Redis. What is aimed at are two seconds.
const BACK_WITHIN: Duration = Duration::from_millis(3_500);

const PATHS: &[&str] = &["/local", "/allow", "/deny"];

/// A policy of each sort of `on_store_error`, each on a route of its own name, with limits out of reach.
const ROUTES: &str = "
policies:
  local: { algorithm: fixed_window, key: ip, limit: 100000000/1d }
  allow: { algorithm: sliding_log, key: ip, limit: 100000000/1s, on_store_error: allow }
  deny: { algorithm: single_counter, key: ip, limit: 100000000/1d, on_store_error: deny }
  tight: { algorithm: single_counter, key: 'header:x-key', limit: 9/1d }
  priced: { algorithm: single_counter, key: 'header:x-key', limit: 9/1d }
  few: { algorithm: sliding_log, key: 'header:x-key', limit: 9/1d, on_store_error: allow }
routes:
  - { path: /local, upstream: origin, policies: [local] }
  - { path: /allow, upstream: origin, policies: [allow] }
  - { path: /deny, upstream: origin, policies: [deny] }
  - { path: /tight, upstream: origin, policies: [tight] }
  - { path: /priced, upstream: origin, policies: [{ name: priced, cost: 7 }] }
  - { path: /few, upstream: origin, policies: [few] }
";

/// One server, as `store.redis` names it.
fn at(url: &str) -> String {
    format!("url: \"{url}\"")
}

/// With the default timeout; `redis` is where it is, as `store.redis` says it.
fn instance(origin: &Origin, redis: &str) -> Tollgate {
    instance_with(origin, redis, TIMEOUT)
}

fn instance_with(origin: &Origin, redis: &str, timeout: Duration) -> Tollgate {
    Tollgate::start(Config::yaml(format!(
        "
upstreams:
  origin: {{ endpoints: [\"http://{}\"] }}
store: {{ redis: {{ {redis}, timeout: {}ms }} }}
log: {{ level: info, format: text }}
{ROUTES}
",
        origin.address,
        timeout.as_millis()
    )))
}

fn get(address: SocketAddr, path: &str, key: &str) -> u16 {
    Client::connect(address).request("GET", path, &[("x-key", key)], b"").status
}

/// Decisions that Redis has taken of a policy.
fn by_store(tollgate: &Tollgate, policy: &str) -> f64 {
    let name =
        format!("tollgate_decisions_total{{policy=\"{policy}\",verdict=\"allowed\",source=\"store\"}}");
    tollgate.metric(&name)
}

fn breaker_is_open(tollgate: &Tollgate) -> bool {
    tollgate.metric("tollgate_store_breaker_open") == 1.0
}

/// Waits until Redis decides, which it does as soon as it is asked: two workers, each with connections to make.
#[track_caller]
fn wait_for_the_store(tollgate: &Tollgate) {
    let before = by_store(tollgate, "deny");
    eventually("Redis decides", || {
        get(tollgate.address, "/deny", "k");
        by_store(tollgate, "deny") >= before + 8.0
    });
}

/// What was seen of one outage.
#[derive(Debug)]
struct Outage {
    /// While it lasted, and until Redis decided again.
    during: Vec<Sample>,
    /// Connections to Redis while it was watched: from the beginning of the outage until two seconds after.
    connections: usize,
    watched: Duration,
    /// Those that the instance has ended, old or new.
    ended_connections: usize,
    /// How many there are.
    servers: usize,
    /// Connections that a Sentinel makes a second while it reaches nobody.
    of_sentinel: usize,
    opened: bool,
}

/// Servers behind relays: all are struck at once.
struct Site {
    redis: Deployment,
    relays: Vec<Relay>,
    /// It knows the server by its relay alone.
    sentinel: Option<Redis>,
}

impl Site {
    fn server() -> (Self, String) {
        let redis = Topology::Server.start();
        let relay = Relay::to(redis.primaries()[0].port);
        let settings = at(&relay.url());
        (Self { redis, relays: vec![relay], sentinel: None }, settings)
    }

    fn sentinel() -> (Self, String) {
        let (site, _) = Self::server();
        let sentinel = Sentinels::alone(site.relays[0].address.port());
        let settings = format!("sentinel: {{ master: {MASTER}, nodes: [\"{}\"] }}", sentinel.url());
        (Self { sentinel: Some(sentinel), ..site }, settings)
    }

    fn cluster() -> (Self, String) {
        let cluster = Cluster::behind_relays();
        let settings = cluster.settings();
        (Self { redis: Servers::Cluster(cluster).into(), relays: Vec::new(), sentinel: None }, settings)
    }

    fn relays(&self) -> &[Relay] {
        match self.redis.running() {
            Servers::Cluster(cluster) => cluster.relays(),
            _ => &self.relays,
        }
    }

    fn delay(&self, delay: Duration) {
        self.relays().iter().for_each(|relay| relay.delay(delay));
    }

    fn stall(&self, stalled: bool) {
        self.relays().iter().for_each(|relay| relay.stall(stalled));
    }

    fn refuse(&self, refusing: bool) {
        self.relays().iter().for_each(|relay| relay.refuse(refusing));
    }

    fn connections(&self) -> usize {
        self.relays().iter().map(Relay::connections).sum()
    }

    fn ended_connections(&self) -> usize {
        self.relays().iter().map(Relay::ended_connections).sum()
    }
}

/// An instance under the load of 16 clients, to whose servers `strike` does something bad; after `lasts` `mend` takes it back.
fn suffer(
    site: (Site, String),
    what: &str,
    lasts: Duration,
    strike: impl FnOnce(&mut Site),
    mend: impl FnOnce(&mut Site),
) -> Outage {
    suffer_with(site, TIMEOUT, what, lasts, strike, mend)
}

fn suffer_with(
    (mut site, settings): (Site, String),
    timeout: Duration,
    what: &str,
    lasts: Duration,
    strike: impl FnOnce(&mut Site),
    mend: impl FnOnce(&mut Site),
) -> Outage {
    let origin = Origin::ok();
    let tollgate = instance_with(&origin, &settings, timeout);
    wait_for_the_store(&tollgate);
    let load = Load::start(&[tollgate.address], PATHS, 16, Duration::from_millis(4));
    thread::sleep(Duration::from_millis(500));

    let (begun, connections, ended_connections) =
        (Instant::now(), site.connections(), site.ended_connections());
    strike(&mut site);
    let mut opened = false;
    while begun.elapsed() < lasts {
        opened |= breaker_is_open(&tollgate);
        thread::sleep(Duration::from_millis(20));
    }
    mend(&mut site);
    let (ended, before) = (Instant::now(), by_store(&tollgate, "deny"));
    eventually("Redis decides again", || by_store(&tollgate, "deny") > before + 10.0);
    let back = Instant::now();
    eventually("the breaker is closed", || !breaker_is_open(&tollgate));
    thread::sleep(Duration::from_millis(500));
    let settled = Instant::now();
    thread::sleep(Duration::from_millis(1_500));
    let (connections, watched) = (site.connections() - connections, begun.elapsed());
    let ended_connections = site.ended_connections() - ended_connections;
    let samples = load.stop();

    let between = |from: Instant, to: Instant| {
        samples.iter().filter(|sample| from <= sample.sent && sample.sent < to).cloned().collect::<Vec<_>>()
    };
    let during = between(begun, back);
    let latencies = Latencies::of(&during);
    let back_after = back - ended;
    eprintln!(
        "{what}: {latencies}, breaker opened: {opened}, back after {back_after:?}, {connections} new connections, {ended_connections} ended"
    );
    assert!(latencies.p99 < timeout + SPARE, "{what}: {latencies}");
    // One moment in which this machine stands still is that of all clients.
    assert!(latencies.p999 < timeout + Duration::from_secs(2), "{what}: {latencies}");
    assert!(back_after < BACK_WITHIN, "{what}: back after {back_after:?}");
    only_the_configured(what, &during);
    // Clients that were refused while it lasted are not refused any more, give or take slow moments of this machine.
    let after = between(settled, settled + Duration::from_secs(1));
    let refused = after.iter().filter(|sample| sample.status != 200).count();
    assert!(refused * 2 <= after.len(), "{what}: {refused} of {} refused after it", after.len());
    let of_sentinel = if site.sentinel.is_some() { 2 } else { 0 };
    Outage {
        during,
        connections,
        watched,
        ended_connections,
        servers: site.relays().len(),
        of_sentinel,
        opened,
    }
}

/// `local` and `allow` let pass; `deny` refuses with 503, and says when to come again.
fn only_the_configured(what: &str, samples: &[Sample]) {
    for sample in samples {
        let is_right = match (sample.path, sample.status) {
            (_, 200) => true,
            ("/deny", 503) => sample.retry_after.is_some(),
            _ => false,
        };
        assert!(is_right, "{what}: {sample:?}");
    }
}

impl Outage {
    /// As long as Redis does not answer, requests that need it do not pass.
    fn refused(&self) -> usize {
        self.during.iter().filter(|sample| sample.status == 503).count()
    }

    /// Requests were refused without a question to Redis.
    #[track_caller]
    fn opened_the_breaker(&self) {
        assert!(self.opened && self.refused() > 100, "{}", self.refused());
        self.made_few_connections();
    }

    /// Two workers with two connections each make new ones when they fail and when they are back, and the monitor makes
    /// two a second.
    #[track_caller]
    fn made_few_connections(&self) {
        let seconds = self.watched.as_secs() as usize + 1;
        let most = self.servers * 2 * 2 * 4 + (self.servers * 3 + self.of_sentinel) * seconds;
        let (made, watched) = (self.connections, self.watched);
        assert!(made <= most, "{made} connections in {watched:?}, more than {most}");
    }
}

const LASTS: Duration = Duration::from_millis(2_500);

#[test]
fn redis_stops_where_it_stands() {
    let outage =
        suffer(Site::server(), "SIGSTOP", LASTS, |site| site.redis.pause(), |site| site.redis.resume());
    outage.opened_the_breaker();
}

#[test]
fn redis_is_killed_and_comes_back_empty() {
    let outage =
        suffer(Site::server(), "killed", LASTS, |site| site.redis.kill(), |site| site.redis.restart());
    outage.opened_the_breaker();
}

#[test]
fn redis_is_restarted_at_once() {
    let outage =
        suffer(Site::server(), "restarted", Duration::from_millis(300), |site| site.redis.restart(), |_| {});
    outage.made_few_connections();
}

fn redis_forgets_its_scripts(site: (Site, String)) {
    let outage = suffer_with(
        site,
        PATIENT,
        "SCRIPT FLUSH",
        Duration::from_millis(500),
        // By one connection, one right after the other.
        |site| {
            site.redis.each(&["-r", "300", "script", "flush"]);
        },
        |_| {},
    );
    assert!(!outage.opened);
    assert_eq!(outage.refused(), 0, "nothing ran, so it is sent again");
    // A pool may make one more for a busy moment.
    assert_eq!(outage.ended_connections, 0);
}

fn redis_is_slow(site: (Site, String)) {
    let slow = Duration::from_millis(100);
    let outage =
        suffer(site, "slow by 100 ms", LASTS, |site| site.delay(slow), |site| site.delay(Duration::ZERO));
    outage.opened_the_breaker();
}

fn redis_is_slow_but_not_too_slow(site: (Site, String)) {
    let slow = Duration::from_millis(10);
    let outage =
        suffer(site, "slow by 10 ms", LASTS, |site| site.delay(slow), |site| site.delay(Duration::ZERO));
    let refused = outage.refused();
    assert!(refused * 2 <= outage.during.len(), "{refused} of {} refused", outage.during.len());
}

fn the_way_to_redis_is_cut_without_a_word(site: (Site, String)) {
    let outage = suffer(site, "black hole", LASTS, |site| site.stall(true), |site| site.stall(false));
    outage.opened_the_breaker();
}

fn all_connections_are_reset(site: (Site, String)) {
    let outage = suffer(site, "reset", LASTS, |site| site.refuse(true), |site| site.refuse(false));
    outage.opened_the_breaker();
}

#[test]
fn redis_makes_clients_wait() {
    let outage = suffer(
        Site::server(),
        "CLIENT PAUSE",
        LASTS,
        |site| assert_eq!(site.redis.cli(&["client", "pause", "2500", "all"]), "OK"),
        |_| {},
    );
    outage.opened_the_breaker();
}

#[test]
fn redis_is_busy_with_something_else() {
    let outage = suffer(
        Site::server(),
        "a script of 2 s",
        LASTS,
        |site| {
            let port = site.redis.primaries()[0].port.to_string();
            // Its end is awaited by nobody: the server is asked to run it, and is busy.
            let script = "local t = redis.call('TIME') local e = t[1] * 1000 + t[2] / 1000 + 2000 \
                          repeat t = redis.call('TIME') until t[1] * 1000 + t[2] / 1000 > e";
            let mut busy = std::process::Command::new("redis-cli")
                .args(["-p", &port, "eval", script, "0"])
                .spawn()
                .unwrap();
            thread::spawn(move || busy.wait());
        },
        |_| {},
    );
    outage.opened_the_breaker();
}

fn each_of_two_instances_admits_its_share(redis: &mut Deployment) {
    let origin = Origin::ok();
    let both = two_instances(&origin, redis);
    each_admits_its_half(redis, &both);
    for tollgate in &both {
        assert_eq!(tollgate.metric("tollgate_instances"), 2.0, "as it last knew");
    }
}

/// Two that know of each other.
fn two_instances(origin: &Origin, redis: &Deployment) -> [Tollgate; 2] {
    let both = [0, 1].map(|_| instance(origin, &redis.settings()));
    eventually("each knows of the other", || {
        both.iter().all(|tollgate| tollgate.metric("tollgate_instances") == 2.0)
    });
    both
}

/// Without Redis, each of two instances admits half of a limit of nine, whichever worker is asked.
fn each_admits_its_half(redis: &mut Deployment, both: &[Tollgate; 2]) {
    redis.kill();
    for tollgate in both {
        eventually("it knows", || {
            get(tollgate.address, "/allow", "k");
            breaker_is_open(tollgate)
        });
        let admitted = (0..20).filter(|_| get(tollgate.address, "/tight", "fresh") == 200).count();
        assert_eq!(admitted, 4, "half of nine");
        let admitted = (0..9).filter(|_| get(tollgate.address, "/priced", "fresh") == 200).count();
        assert_eq!(admitted, 1, "a share is at least the price of a request");
    }
}

fn a_list_of_instances_that_is_lost_raises_no_share(redis: &mut Deployment) {
    let origin = Origin::ok();
    let both = two_instances(&origin, redis);
    // As an eviction does.
    assert_eq!(redis.cli(&["DEL", "ratelimit:instances"]), "1");
    eventually("one of them knows of itself alone", || {
        redis.cli(&["DEL", "ratelimit:instances"]);
        both.iter().any(|tollgate| tollgate.metric("tollgate_instances") == 1.0)
    });
    each_admits_its_half(redis, &both);
}

#[test]
fn it_starts_without_redis_and_takes_it_when_it_comes() {
    let (origin, mut redis) = (Origin::ok(), Redis::start());
    redis.kill();
    let begun = Instant::now();
    let tollgate = instance(&origin, &at(&redis.url()));
    assert_eq!(["/local", "/allow", "/deny"].map(|path| get(tollgate.address, path, "k")), [200, 200, 503]);
    assert!(begun.elapsed() < Duration::from_secs(5), "it serves at once, not after {:?}", begun.elapsed());
    eventually("it warns", || tollgate.has_logged(&["WARN", "Redis"]));
    let status = || tollgate.admin("GET", "/v1/status").json()["store"].clone();
    eventually("the status warns", || {
        warnings(&tollgate).iter().any(|warning| warning.contains("is unavailable ("))
    });
    let store = status();
    assert_eq!((&store["topology"], &store["role"]), (&"redis".into(), &serde_json::Value::Null));
    assert_eq!((&store["latency"], &store["instances"]), (&serde_json::Value::Null, &1.into()));
    eventually("the breaker opens", || {
        get(tollgate.address, "/allow", "k");
        status()["breaker"] == "open"
    });

    // Nobody waits for a connection that is refused. Some of the failures that open the breaker are those of probes.
    let errors = |kind: &str| tollgate.metric(&format!("tollgate_store_errors_total{{kind=\"{kind}\"}}"));
    assert!(errors("connection") >= 5.0 - 3.0 && errors("timeout") == 0.0);

    redis.restart();
    let begun = Instant::now();
    eventually("Redis decides", || get(tollgate.address, "/deny", "k") == 200);
    eprintln!("taken {:?} after it came", begun.elapsed());
    assert!(begun.elapsed() < BACK_WITHIN);
    eventually("the status knows", || status()["latency"].is_string());
    let store = status();
    assert_eq!((&store["role"], &store["breaker"]), (&"master".into(), &"closed".into()));
    assert!(store["version"].as_str().unwrap().contains('.'), "{store}");
    assert!(store["keys"].is_u64() && store["evicted"].is_u64(), "of the memory that stands in: {store}");
    eventually("the outage is over", || {
        let warnings = warnings(&tollgate).join("\n");
        warnings.contains("maxmemory is not set") && !warnings.contains("is unavailable (")
    });
    assert_eq!(store["warnings"], serde_json::Value::Null, "they are told once");
}

fn a_connection_that_was_closed_while_idle_fails_nobody(redis: &Deployment) {
    let origin = Origin::ok();
    let tollgate = instance_with(&origin, &redis.settings(), PATIENT);
    wait_for_the_store(&tollgate);
    let mut statuses = Vec::new();
    for _ in 0..4 {
        // As the server's `timeout` does it, or something on the way.
        redis.each(&["client", "kill", "type", "normal"]);
        thread::sleep(Duration::from_millis(1_200));
        statuses.extend((0..8).map(|_| get(tollgate.address, "/deny", "k")));
    }
    assert_eq!(statuses, [200; 32]);
}

/// Two questions would take longer than a decision may.
#[test]
fn a_quiet_instance_asks_redis_once_for_a_decision() {
    let (origin, redis) = (Origin::ok(), Redis::start());
    let relay = Relay::to(redis.port);
    let tollgate = instance_with(&origin, &at(&relay.url()), Duration::from_secs(1));
    wait_for_the_store(&tollgate);
    relay.delay(Duration::from_millis(600));
    for _ in 0..3 {
        thread::sleep(Duration::from_millis(1_200));
        assert_eq!(get(tollgate.address, "/deny", "k"), 200);
    }
}

/// The request comes as soon as the connections are closed.
fn a_connection_that_was_closed_just_now_fails_nobody(redis: &Deployment) {
    let origin = Origin::ok();
    let tollgate = instance_with(&origin, &redis.settings(), PATIENT);
    wait_for_the_store(&tollgate);
    let (mut statuses, before) = (Vec::new(), by_store(&tollgate, "deny"));
    for _ in 0..20 {
        statuses.extend((0..4).map(|_| get(tollgate.address, "/deny", "k")));
        redis.each(&["client", "kill", "type", "normal"]);
    }
    assert_eq!(statuses, [200; 80]);
    assert_eq!(by_store(&tollgate, "deny") - before, 80.0);
}

#[test]
fn where_memory_is_full_requests_fall_back_and_denials_hold() {
    let origin = Origin::ok();
    let redis = Redis::with(&["--maxmemory", "100mb", "--maxmemory-policy", "noeviction"]);
    let relay = Relay::to(redis.port);
    let tollgate = instance_with(&origin, &at(&relay.url()), PATIENT);
    wait_for_the_store(&tollgate);
    while get(tollgate.address, "/tight", "used up") == 200 {}
    // More than there may be, at once.
    assert_eq!(redis.cli(&["set", "filler", &"x".repeat(100_000)]), "OK");
    assert_eq!(redis.cli(&["config", "set", "maxmemory", "100kb"]), "OK");
    // What is remembered of the denial ends.
    thread::sleep(Duration::from_millis(1_100));

    let connections = relay.connections();
    let denied = |source: &str| {
        let name =
            format!("tollgate_decisions_total{{policy=\"tight\",verdict=\"denied\",source=\"{source}\"}}");
        tollgate.metric(&name)
    };
    let before = denied("store");
    assert_eq!(get(tollgate.address, "/tight", "used up"), 429);
    assert_eq!(denied("store"), before + 1.0, "it is Redis that denies");
    let load = Load::start(&[tollgate.address], PATHS, 16, Duration::from_millis(4));
    let before = denied("store");
    for _ in 0..40 {
        // Among those that Redis can't count: each time by it, or by what a worker remembers.
        assert_eq!(get(tollgate.address, "/tight", "used up"), 429);
        thread::sleep(Duration::from_millis(50));
    }
    assert!(denied("store") > before && denied("fallback") == 0.0);
    let samples = load.stop();
    // None is denied because others, which were decided with it, were to be counted.
    thread::scope(|scope| {
        let burst = [(); 64].map(|()| scope.spawn(|| get(tollgate.address, "/few", "fresh")));
        assert!(burst.into_iter().all(|request| request.join().unwrap() == 200));
    });
    only_the_configured("OOM", &samples);
    let refused = samples.iter().filter(|sample| sample.status == 503).count();
    assert!(refused > 100, "{refused}");
    eprintln!("OOM: {}", Latencies::of(&samples));
    assert!(!breaker_is_open(&tollgate), "Redis answers");
    assert!(tollgate.metric("tollgate_store_errors_total{kind=\"out_of_memory\"}") > 100.0);
    let made = relay.connections() - connections;
    eprintln!("OOM: {made} new connections, {} requests", samples.len());
    assert!(made < 20, "{made} new connections: those that there are serve");
    eventually("the status warns", || warnings(&tollgate).iter().any(|warning| warning.contains("OOM")));
    eventually("it is logged", || tollgate.has_logged(&["WARN", "OOM"]));

    assert_eq!(redis.cli(&["config", "set", "maxmemory", "100mb"]), "OK");
    let begun = Instant::now();
    eventually("Redis counts again", || get(tollgate.address, "/deny", "k") == 200);
    assert!(begun.elapsed() < BACK_WITHIN, "after {:?}", begun.elapsed());
}

#[test]
fn an_unblock_without_redis_lifts_the_ban_and_says_what_is_left() {
    let (origin, mut redis) = (Origin::ok(), Redis::start());
    let tollgate = instance(&origin, &at(&redis.url()));
    wait_for_the_store(&tollgate);
    redis.kill();
    eventually("Redis is away", || {
        get(tollgate.address, "/deny", "k");
        breaker_is_open(&tollgate)
    });
    let ban = tollgate.command(&["ban", "ip:127.0.0.9", "--for=1h"]);
    assert_eq!(ban.code, Some(0), "{ban:?}");
    let status = || crate::harness::get_from("127.0.0.9", tollgate.address, "/local", &[]).status;
    assert_eq!(status(), 403);
    let ended = tollgate.command(&["unblock", "127.0.0.9"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended.stderr.contains("limits may be left in Redis, 1 ban lifted at this instance; try again"),
        "{ended:?}"
    );
    assert_ne!(status(), 403);
    let audit = tollgate.admin("GET", "/v1/audit").json();
    let entry = &audit["entries"][0];
    assert_eq!((&entry["action"], &entry["target"]), (&"unblock".into(), &"127.0.0.9".into()), "{audit}");
}

#[test]
fn a_server_that_becomes_a_replica_is_left_alone_until_it_is_a_master_again() {
    let master = nobody();
    let port = master.port().to_string();
    let outage = suffer(
        Site::server(),
        "REPLICAOF",
        LASTS,
        |site| assert_eq!(site.redis.cli(&["replicaof", "127.0.0.1", &port]), "OK"),
        |site| assert_eq!(site.redis.cli(&["replicaof", "no", "one"]), "OK"),
    );
    outage.opened_the_breaker();
}

/// While it waits for the store, a request is neither idle, nor late, nor in the way of the one behind it.
#[test]
fn a_request_that_waits_for_the_store_is_answered() {
    // Longer than a connection may be silent before it is idle, and than a head may take.
    const ROUND_TRIP: Duration = Duration::from_millis(1_300);
    let (origin, redis) = (Origin::ok(), Redis::start());
    let relay = Relay::to(redis.port);
    let tollgate = Tollgate::start(Config::yaml(format!(
        "
client_limits: {{ header_timeout: 1s, connections: 1 }}
upstreams:
  origin: {{ endpoints: [\"http://{}\"] }}
store: {{ redis: {{ url: \"{}\", timeout: 10s }} }}
{ROUTES}
",
        origin.address,
        relay.url(),
    )));
    wait_for_the_store(&tollgate);
    relay.delay(ROUND_TRIP);
    let mut client = Client::connect(tollgate.address);
    let began = Instant::now();
    client.send("GET /local HTTP/1.1\r\nhost: a\r\n\r\nGET /deny HTTP/1.1\r\nhost: a\r\n\r\n");
    thread::sleep(Duration::from_millis(600));
    // It would take the place of an idle connection.
    let other = "127.0.0.2".parse::<std::net::IpAddr>().unwrap();
    assert!(Client::connect_from(other, tollgate.address).closed());
    assert_eq!([client.reply().status, client.reply().status], [200, 200]);
    assert!(began.elapsed() > 2 * ROUND_TRIP, "each has waited: {:?}", began.elapsed());
}
