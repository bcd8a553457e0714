//! Limited clients of several instances that share a Redis: each shows what all of them saw.

use std::{io, net::TcpListener, sync::Arc, thread::sleep, time::Duration};

use bb8_redis::redis::RedisResult;
use serde_json::{Value, json};
use tollgate::{
    abuse::{self, AuditLog, ClientRegistry, Collector, DenialReport, Recorder, RequestLine, bans::BanTable},
    admin::{self, AdminHandle, Readiness},
    config::{self, model},
    identity::{AccessRules, Verifier},
    limit::{Clock, Policy, PolicyId, WallClock, algorithm::metadata_list::Entry},
    peaks::PeakPlan,
    peers::records::{self, RecordArchive, RecordScope},
    proxy::Rules,
    store::{memory::MemoryStore, redis::Topology},
    telemetry::{Events, metrics::Metrics},
    upstream::DrainTable,
};

use crate::{
    config::environment::Environment,
    harness::{Deployment, Redis, Reply, eventually, on_each_topology, on_own_servers, request},
};

on_each_topology!(
    every_instance_shows_the_records_of_all,
    shared_records_are_shown_once_and_up_to_keep,
    an_unblock_on_one_instance_is_one_on_all,
    users_of_all_instances_are_counted_once_each,
    an_instance_that_missed_an_unblock_does_not_undo_it,
    a_restarted_instance_shows_its_earlier_records,
    many_clients_are_read_in_pages,
    denials_of_twenty_instances_count_once_each,
);
on_own_servers!(
    one_connection_serves_many_queries_and_is_replaced,
    a_user_is_found_at_all_addresses_and_at_unblocked_ones_too,
    clocks_that_differ_make_no_difference_to_an_unblock,
    invalid_records_are_skipped,
    a_failed_publication_is_repeated,
    while_redis_is_down_an_instance_shows_its_own_records,
    restarts_leave_one_copy,
);

// It fills the server by a script of some seconds: Sentinels and the nodes of a cluster would take another.
on_own_servers!([server] redis_holds_a_bounded_number_of_clients);

const HOUR: Duration = Duration::from_secs(3_600);
/// Of a reply.
const TIMEOUT: Duration = Duration::from_millis(500);
/// Which clients were limited, and when last.
const CHANGED: &str = "ratelimit:{abuse}:v3:clients";
/// What is known of one.
const CLIENT: &str = "ratelimit:{abuse}:v3:client:203.0.113.7";

/// Two policies; `per-ip` keeps four records.
const CONFIG: &str = "
user: [{ header: x-user-id, from: anyone }]
policies:
  per-ip: { algorithm: metadata_list, key: ip, limit: 3/1m, record: { keep: 4 } }
  per-user: { algorithm: sliding_log, key: user, limit: 3/1m }
upstreams:
  origin: { endpoints: [\"http://127.0.0.1:1\"] }
routes:
  - { path: /*, upstream: origin }
";

/// An instance's record keeping with an admin port; it publishes when a test says so.
struct Instance {
    registry: Arc<ClientRegistry>,
    recorder: Recorder,
    clock: Arc<dyn Clock>,
    topology: Arc<Topology>,
    scope: RecordScope,
    admin: AdminHandle,
    _collector: Collector,
}

impl Instance {
    fn start(redis: &Deployment, id: &str) -> Self {
        Self::start_at(redis.located(), redis.prefix(), id, 0)
    }

    /// `ahead`: microseconds that its clock is ahead.
    fn start_at(redis: model::RedisTopology, prefix: &str, id: &str, ahead: i64) -> Self {
        let config = config::parse("proxy.yaml", CONFIG, &Environment).unwrap_or_else(|e| panic!("{e}"));
        let policies: Arc<[Policy]> =
            (0..).zip(&config.policies).map(|(id, policy)| Policy::new(policy, PolicyId(id))).collect();
        let metrics = Metrics::new(&config, 1);
        let clock: Arc<dyn Clock> = Arc::new(Ahead(WallClock, ahead));
        let registry = Arc::new(ClientRegistry::new(&policies, HOUR, Arc::clone(&metrics)));
        let collector =
            Collector::spawn(Arc::clone(&registry), Arc::clone(&clock), Arc::clone(&metrics)).unwrap();
        let audit = Arc::new(AuditLog::new(Arc::clone(&clock), id, true));
        let bans =
            BanTable::new(Arc::clone(&clock), Events::new(), Arc::clone(&audit), Arc::clone(&metrics), true);
        let verifier = Arc::new(Verifier::new(&config.user).unwrap());
        let rules = {
            let access = Arc::new(AccessRules::open(&config).unwrap());
            Rules::new(Arc::new(config), policies, verifier, access, Arc::default()).unwrap()
        };
        let peaks = PeakPlan::new(rules.config(), Arc::clone(rules.policies()), None);
        let active_config = Arc::new(admin::ActiveConfig::new(admin::ConfigSnapshot {
            rules: Arc::new(rules),
            peaks: Arc::new(peaks),
            history: None,
            upstreams: Vec::new(),
            hash: String::new(),
            decides: String::new(),
            loaded: 0,
            warnings: Vec::new(),
        }));
        let state = admin::AdminState {
            token: None,
            registry: Arc::clone(&registry),
            bans: Arc::new(bans),
            api_keys: Arc::default(),
            drains: Arc::new(DrainTable::new(Events::new(), true)),
            audit,
            history: None,
            alerts: None,
            active_config,
            reloads: admin::ReloadSender::channel().0,
            metrics,
            readiness: Arc::new(Readiness::default()),
            events: Events::new(),
            warnings: tollgate::telemetry::diagnostics::SharedWarnings::default(),
            clock: Arc::clone(&clock),
            facts: admin::ProcessFacts::default(),
            store_facts: admin::StoreFactsSources { memory: Box::new(Default::default), shared: None },
        };
        let store = Arc::new(MemoryStore::new(1_000, Arc::clone(&clock)));
        let topology = Topology::open(&model::Redis::new(redis)).unwrap();
        block_on(topology.learn()).unwrap();
        let scope = RecordScope::new(prefix, id, HOUR);
        let (theirs, of) = (Arc::clone(&topology), scope.clone());
        let archive =
            move || RecordArchive::new(of, TIMEOUT, async move |key: &str| theirs.connect(key).await);
        let wrong_tokens = Arc::new(MemoryStore::new(admin::WRONG_TOKEN_KEYS, Arc::clone(&clock)));
        let backends = admin::Backends { store: move || store, archive, wrong_tokens };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let admin = admin::spawn(listener, state, backends).unwrap();
        let recorder = collector.recorder();
        Self { registry, recorder, clock, topology, scope, admin, _collector: collector }
    }

    /// Records a denial of `user` by the policy with this index, and waits until the registry has it.
    fn deny(&self, address: &str, user: &str, policy: usize) {
        self.deny_user(address, user, false, policy);
    }

    fn deny_user(&self, address: &str, user: &str, is_user_verified: bool, policy: usize) {
        let now = self.clock.now();
        let identifier = if policy == 0 { format!("ip:{address}") } else { format!("user:{user}") };
        let denial = DenialReport {
            is_customer: false,
            address,
            policy,
            identifier: &identifier,
            user: Some(user),
            is_user_verified,
            now,
            until: now + 60_000_000,
        };
        let client = abuse::parse(address).unwrap();
        let denied = || self.registry.find(client, now).map_or(0, |(client, ..)| client.denied);
        let before = denied();
        let line = || RequestLine { is_safe: true, path: "/a", query: None, headers: None, is_logged: false };
        self.recorder.record(&denial, line, || entry(now, user));
        self.recorder.flush();
        eventually("it is recorded", || denied() > before);
    }

    /// Records the requests that filled the limit of an address.
    fn record_evidence(&self, address: &str, entries: &[Arc<Entry>]) {
        self.recorder.record_evidence(address, 0, &format!("ip:{address}"), entries.to_vec());
        self.recorder.flush();
    }

    fn try_publish(&self) -> RedisResult<usize> {
        block_on(async {
            let unreachable = |_| io::Error::from(io::ErrorKind::NotConnected);
            let mut connection = self.topology.connect(CHANGED).await.map_err(unreachable)?;
            records::publish_round(&mut connection, &self.scope, &self.registry, self.clock.now()).await
        })
    }

    /// Waits until this is all that is unpublished of it, and publishes it.
    #[track_caller]
    fn publish(&self, clients: usize) {
        let mut published = 0;
        eventually("everything is published", || {
            // What can't be published in time on a busy machine is published in the next round.
            published += self.try_publish().unwrap_or_else(|error| {
                assert!(error.is_timeout(), "{error}");
                0
            });
            published >= clients
        });
        assert_eq!(published, clients);
    }

    fn ask(&self, method: &str, path: &str) -> Reply {
        request(self.admin.address(), method, path, &[], b"")
    }

    /// Addresses that are listed now, by the number of their denials.
    fn listed(&self) -> Vec<(String, u64)> {
        let list = self.ask("GET", "/v1/blocked?sort=address&limit=1000").json();
        let entry = |found: &Value| {
            (found["address"].as_str().unwrap().to_owned(), found["denied"].as_u64().unwrap())
        };
        list["blocked"].as_array().unwrap().iter().map(entry).collect()
    }

    /// Their states, in the same order.
    fn states(&self) -> Vec<String> {
        let list = self.ask("GET", "/v1/blocked?sort=address&limit=1000").json();
        let state = |found: &Value| found["state"].as_str().unwrap().to_owned();
        list["blocked"].as_array().unwrap().iter().map(state).collect()
    }

    #[track_caller]
    fn lists(&self, expected: &[(&str, u64)]) {
        let expected: Vec<_> =
            expected.iter().map(|&(address, denied)| (address.to_owned(), denied)).collect();
        let mut listed = Vec::new();
        eventually(&format!("{expected:?} is listed"), || {
            listed = self.listed();
            listed == expected
        });
    }

    fn evidence(&self, address: &str) -> Value {
        self.ask("GET", &format!("/v1/blocked/{address}")).json()
    }
}

/// A clock that is ahead of others by so many microseconds.
struct Ahead(WallClock, i64);

impl Clock for Ahead {
    fn now(&self) -> i64 {
        self.0.now() + self.1
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn entry(time: i64, user: &str) -> Arc<Entry> {
    Arc::new(Entry { time, user: Some(user.into()), method: http::Method::GET, path: "/a".into() })
}

/// Users of the records, sorted.
fn users(evidence: &Value) -> Vec<&str> {
    let records = evidence["records"].as_array().unwrap();
    let mut users: Vec<_> = records.iter().map(|record| record["user"].as_str().unwrap()).collect();
    users.sort_unstable();
    users
}

/// Every key expires, and none later than an hour from now.
#[track_caller]
fn all_expire(redis: &Deployment) {
    let script = "local found = redis.call('KEYS', ARGV[1])
    for at, key in ipairs(found) do
        local left = redis.call('PTTL', key)
        if left <= 0 or left > 3600000 then found[at] = key .. ' expires in ' .. left else found[at] = '' end
    end
    return table.concat(found)";
    assert_ne!(redis.keys(), [""; 0]);
    assert_eq!(redis.each(&["EVAL", script, "0", redis.pattern()]).concat(), "");
}

fn one_connection_serves_many_queries_and_is_replaced(redis: &mut Deployment) {
    let [a, b] = ["a", "b"].map(|id| Instance::start(redis, id));
    a.deny("203.0.113.7", "ann", 0);
    a.publish(1);
    let server = redis.server_of(CHANGED);
    let connections = || -> u64 {
        let stats = server.cli(&["info", "stats"]);
        let connections =
            stats.lines().find_map(|line| line.strip_prefix("total_connections_received:")).unwrap();
        connections.trim().parse().unwrap()
    };
    let before = connections();
    for _ in 0..20 {
        assert_eq!(b.evidence("203.0.113.7")["denied"], 1);
    }
    // The one that counts them is one, too.
    assert!(connections() - before <= 2, "{} connections", connections() - before);
    redis.each(&["client", "kill", "type", "normal"]);
    a.deny("203.0.113.7", "bob", 0);
    a.publish(1);
    assert_eq!(b.evidence("203.0.113.7")["denied"], 2, "the next reader does not get less");
}

fn every_instance_shows_the_records_of_all(redis: &Deployment) {
    let [a, b] = ["a", "b"].map(|id| Instance::start(redis, id));
    a.deny("203.0.113.7", "ann", 0);
    a.deny("203.0.113.7", "bob", 1);
    a.publish(1);
    b.lists(&[("203.0.113.7", 2)]);
    b.deny("203.0.113.7", "bob", 0);
    b.deny("203.0.113.7", "eve", 0);
    b.deny("2001:db8::/64", "eve", 0);
    b.publish(2);
    for instance in [&a, &b] {
        instance.lists(&[("203.0.113.7", 4), ("2001:db8::/64", 1)]);
        let evidence = instance.evidence("203.0.113.7");
        assert_eq!(evidence["distinct_users"], 3);
        assert_eq!(users(&evidence), ["ann", "bob", "bob", "eve"]);
        let mut policies: Vec<_> =
            evidence["policies"].as_array().unwrap().iter().map(Value::to_string).collect();
        policies.sort();
        assert_eq!(policies, ["\"per-ip\"", "\"per-user\""]);
    }
    assert_eq!(a.evidence("203.0.113.7")["first"], b.evidence("203.0.113.7")["first"]);
    assert_eq!(a.evidence("203.0.113.7")["until"], b.evidence("203.0.113.7")["until"]);
    let of =
        |instance: &Instance, query| instance.ask("GET", query).json()["blocked"].as_array().unwrap().len();
    assert_eq!(of(&b, "/v1/blocked?policy=per-user"), 1, "it is filtered by what only the other saw");
    all_expire(redis);

    // Published twice, read twice: nothing is counted twice.
    a.registry.republish_all(a.clock.now());
    a.publish(1);
    b.lists(&[("203.0.113.7", 4), ("2001:db8::/64", 1)]);
    assert_eq!(b.evidence("203.0.113.7")["denied"], 4);
}

fn shared_records_are_shown_once_and_up_to_keep(redis: &Deployment) {
    let [a, b] = ["a", "b"].map(|id| Instance::start(redis, id));
    let now = a.clock.now();
    let filled = [entry(now - 3, "ann"), entry(now - 2, "bob"), entry(now - 1, "ann")];
    for (instance, user) in [(&a, "ann"), (&b, "eve")] {
        instance.deny("203.0.113.7", user, 0);
        instance.record_evidence("203.0.113.7", &filled);
        eventually("the list is recorded", || users(&instance.evidence("203.0.113.7")).len() == 4);
        instance.publish(1);
    }
    for instance in [&a, &b] {
        eventually("both were denied", || instance.evidence("203.0.113.7")["denied"] == 2);
        let evidence = instance.evidence("203.0.113.7");
        assert_eq!(
            users(&evidence),
            ["ann", "ann", "bob", "eve"],
            "of the user with the most, the oldest goes"
        );
        assert_eq!(evidence["distinct_users"], 3);
    }
}

fn an_unblock_on_one_instance_is_one_on_all(redis: &Deployment) {
    let [a, b, c] = ["a", "b", "c"].map(|id| Instance::start(redis, id));
    for (instance, user) in [(&a, "ann"), (&b, "bob")] {
        instance.deny("203.0.113.7", user, 1);
        instance.deny("203.0.113.8", user, 1);
        instance.publish(2);
    }
    // The instance that unblocks has no denial of its own.
    let unblocked = c.ask("DELETE", "/v1/blocked/203.0.113.7");
    assert_eq!(unblocked.status, 200, "{}", unblocked.text());
    assert_eq!(unblocked.json()["other_keys"], json!(["user:ann", "user:bob"]));
    for instance in [&a, &b, &c] {
        let evidence = instance.evidence("203.0.113.7");
        assert_eq!((&evidence["state"], &evidence["denied"]), (&json!("unblocked"), &json!(2)));
        assert_eq!(evidence["unblocked"]["by"], "operator at 127.0.0.1");
        assert_eq!(users(&evidence), ["ann", "bob"]);
        instance.lists(&[("203.0.113.7", 2), ("203.0.113.8", 2)]);
        assert_eq!(instance.states(), ["unblocked", "limited"]);
    }
    // These two know of it by the mark in Redis alone; they have nothing left to publish.
    assert_eq!(a.try_publish().unwrap() + b.try_publish().unwrap(), 0);
    assert_eq!(c.ask("DELETE", "/v1/blocked/203.0.113.7").status, 404);
    all_expire(redis);

    a.deny("203.0.113.7", "ann", 1);
    a.publish(1);
    for instance in [&a, &b, &c] {
        eventually("it is limited again", || instance.evidence("203.0.113.7")["denied"] == 3);
        assert_eq!(instance.states(), ["limited", "limited"]);
        assert_eq!(users(&instance.evidence("203.0.113.7")), ["ann", "ann", "bob"]);
    }
    all_expire(redis);
}

fn users_of_all_instances_are_counted_once_each(redis: &Deployment) {
    let [a, b, c] = ["a", "b", "c"].map(|id| Instance::start(redis, id));
    for (instance, names) in [(&a, 0..60), (&b, 40..100)] {
        names.for_each(|name| instance.deny("203.0.113.7", &format!("user-{name}"), 0));
    }
    for instance in [&a, &b] {
        eventually("everything is published", || {
            instance.registry.republish_all(instance.clock.now());
            instance.try_publish().unwrap() == 0
        });
    }
    for instance in [&a, &b, &c] {
        let users = instance.evidence("203.0.113.7")["distinct_users"].as_u64().unwrap();
        assert!(users.abs_diff(100) <= 2, "{users}");
        let listed = instance.ask("GET", "/v1/blocked?sort=users").json();
        assert_eq!(listed["blocked"][0]["distinct_users"], users);
    }
    all_expire(redis);
    assert_eq!(c.ask("DELETE", "/v1/blocked/203.0.113.7").status, 200);
}

fn a_user_is_found_at_all_addresses_and_at_unblocked_ones_too(redis: &mut Deployment) {
    let [a, b, c] = ["a", "b", "c"].map(|id| Instance::start(redis, id));
    let behind = Instance::start_at(redis.located(), redis.prefix(), "behind", -30_000_000);
    for (instance, address, is_verified) in [
        (&a, "203.0.113.7", false),
        (&a, "203.0.113.8", false),
        (&b, "203.0.113.8", true),
        (&behind, "203.0.113.9", true),
    ] {
        instance.deny_user(address, "ann", is_verified, 0);
        instance.deny(address, "bob", 0);
    }
    for instance in [&a, &b, &behind] {
        instance.try_publish().unwrap();
    }
    let of = |instance: &Instance, user: &str| {
        let found = instance.ask("GET", &format!("/v1/users/{user}")).json();
        let entry = |found: &Value| {
            let count = |name: &str| found[name].as_u64().unwrap();
            (found["address"].as_str().unwrap().to_owned(), count("denied"), count("verified"))
        };
        let mut found: Vec<_> = found["addresses"].as_array().into_iter().flatten().map(entry).collect();
        found.sort();
        found
    };
    let seen = |verified: [u64; 3]| {
        let addresses = ["203.0.113.7", "203.0.113.8", "203.0.113.9"].map(str::to_owned);
        let found = addresses.into_iter().zip([1, 2, 1]).zip(verified);
        found.map(|((address, denied), verified)| (address, denied, verified)).collect::<Vec<_>>()
    };
    for instance in [&a, &b, &c, &behind] {
        assert_eq!(of(instance, "ann"), seen([0, 1, 1]));
    }
    all_expire(redis);
    // Published twice, it counts once.
    a.registry.republish_all(a.clock.now());
    a.try_publish().unwrap();
    assert_eq!(of(&c, "ann"), seen([0, 1, 1]));
    for address in ["203.0.113.8", "203.0.113.9"] {
        assert_eq!(c.ask("DELETE", &format!("/v1/blocked/{address}")).status, 200);
    }
    assert_eq!(of(&c, "bob"), seen([0; 3]));
    let users: Vec<_> = redis.keys().into_iter().filter(|key| key.contains(":user:")).collect();
    assert_eq!(users.len(), 2);
    assert!(!users.concat().contains("ann"), "{users:?}");
    users.iter().for_each(|key| assert_eq!(redis.cli(&["SET", key, "nonsense"]), "OK"));
    assert_eq!(of(&c, "ann"), []);
    redis.kill();
    assert_eq!(of(&a, "ann").len(), 2, "what it saw itself");
}

fn an_instance_that_missed_an_unblock_does_not_undo_it(redis: &Deployment) {
    let [a, b] = ["a", "b"].map(|id| Instance::start(redis, id));
    a.deny("203.0.113.7", "ann", 0);
    a.publish(1);
    b.deny("203.0.113.7", "bob", 0);
    assert_eq!(a.ask("DELETE", "/v1/blocked/203.0.113.7").status, 200);
    // Denied before, published after.
    b.publish(1);
    let now = b.clock.now();
    assert!(b.registry.clients(now, |client| client.until > now).is_empty(), "it has learned by it");
    for instance in [&a, &b] {
        instance.lists(&[("203.0.113.7", 2)]);
        assert_eq!(instance.states(), ["unblocked"]);
        assert_eq!(users(&instance.evidence("203.0.113.7")), ["ann", "bob"]);
    }
}

fn clocks_that_differ_make_no_difference_to_an_unblock(redis: &mut Deployment) {
    for ahead in [-30_000_000, 30_000_000] {
        redis.each(&["FLUSHALL"]);
        let a = Instance::start(redis, "a");
        let wrong = Instance::start_at(redis.located(), redis.prefix(), "wrong", ahead);
        for address in ["203.0.113.7", "203.0.113.8"] {
            wrong.deny(address, "ann", 0);
        }
        wrong.publish(2);
        a.lists(&[("203.0.113.7", 1), ("203.0.113.8", 1)]);
        wrong.deny("203.0.113.8", "ann", 0);
        // Clocks are compared as exactly as a reply is quick.
        sleep(TIMEOUT);
        for address in ["203.0.113.7", "203.0.113.8"] {
            assert_eq!(a.ask("DELETE", &format!("/v1/blocked/{address}")).status, 200);
        }
        wrong.deny("203.0.113.7", "bob", 0);
        wrong.publish(2);
        for instance in [&a, &wrong] {
            instance.lists(&[("203.0.113.7", 2), ("203.0.113.8", 2)]);
            assert_eq!(instance.states(), ["limited", "unblocked"], "one was denied since");
        }
    }
}

fn a_restarted_instance_shows_its_earlier_records(redis: &Deployment) {
    let before = Instance::start(redis, "a1");
    before.deny("203.0.113.7", "ann", 0);
    before.publish(1);
    drop(before);
    let after = Instance::start(redis, "a2");
    after.lists(&[("203.0.113.7", 1)]);
    after.deny("203.0.113.7", "bob", 0);
    after.publish(1);
    assert_eq!(users(&after.evidence("203.0.113.7")), ["ann", "bob"]);
    // At once, even before the list is requested.
    let other = Instance::start(redis, "b");
    assert_eq!(other.evidence("203.0.113.7")["denied"], 2);
}

fn invalid_records_are_skipped(redis: &mut Deployment) {
    let a = Instance::start(redis, "a");
    let long = "x".repeat(300 << 10);
    for (n, (kind, value, is_known)) in [
        ("records", "nonsense", true),
        ("records", &long, true),
        ("client", "x", false),
        ("client", "nonsense that is longer", false),
        ("client", &long, false),
    ]
    .into_iter()
    .enumerate()
    {
        let address = format!("203.0.113.{}", 20 + n);
        a.deny(&address, "ann", 0);
        a.publish(1);
        let key = format!("ratelimit:{{abuse}}:v3:{kind}:{address}");
        assert_eq!(redis.server_of(&key).cli_with(&["-x", "SET", &key], value), "OK");
        let other = Instance::start(redis, "b");
        let status = other.ask("GET", &format!("/v1/blocked/{address}")).status;
        assert_eq!(status, if is_known { 200 } else { 404 }, "{kind}: {}", value.len());
        // What another instance finds, it mends.
        a.deny(&address, "ann", 0);
        a.publish(1);
        assert_eq!(other.evidence(&address)["denied"], 2);
        assert_eq!(users(&other.evidence(&address)), ["ann", "ann"]);
        assert_eq!(other.ask("DELETE", &format!("/v1/blocked/{address}")).status, 200);
    }
    let b = Instance::start(redis, "b");
    a.deny("203.0.113.7", "ann", 0);
    a.publish(1);
    redis.cli(&["ZADD", CHANGED, "9e18", "not an address", "inf", "203.0.113.9"]);
    redis.cli(&["HSET", "ratelimit:{abuse}:v3:client:203.0.113.9", "not", "a string"]);
    // The others are unblocked.
    let limited = || b.states().iter().filter(|state| **state == "limited").count();
    eventually("it is listed", || limited() == 1);
    assert_eq!(b.listed().len(), 6);
    assert_eq!(b.ask("GET", "/v1/blocked/203.0.113.9").status, 404);

    // Nor does it stay for ever.
    a.deny("203.0.113.9", "ann", 0);
    a.publish(1);
    eventually("it is listed", || limited() == 2);
    for key in [CHANGED, "ratelimit:{abuse}:v3:clients:dues", "ratelimit:{abuse}:v3:clients:bytes"] {
        redis.cli(&["SET", key, "not a sorted set"]);
        a.deny("203.0.113.10", "ann", 0);
        a.publish(1);
        eventually("it is listed", || limited() == 3);
    }
    all_expire(redis);
}

fn a_failed_publication_is_repeated(redis: &mut Deployment) {
    let [a, b] = ["a", "b"].map(|id| Instance::start(redis, id));
    a.deny("203.0.113.7", "ann", 0);
    // More than there are.
    redis.each(&["CONFIG", "SET", "min-replicas-to-write", "9"]);
    assert!(a.try_publish().is_err());
    a.deny("203.0.113.7", "ann", 0);
    a.deny("203.0.113.8", "ann", 0);
    assert!(a.try_publish().is_err());
    redis.each(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    // As it does after it was restarted.
    redis.each(&["SCRIPT", "FLUSH"]);
    a.publish(2);
    b.lists(&[("203.0.113.7", 2), ("203.0.113.8", 1)]);

    redis.each(&["FLUSHALL"]);
    let fresh = Instance::start(redis, "c");
    fresh.lists(&[]);
    a.registry.republish_all(a.clock.now());
    a.publish(2);
    fresh.lists(&[("203.0.113.7", 2), ("203.0.113.8", 1)]);
}

fn while_redis_is_down_an_instance_shows_its_own_records(redis: &mut Deployment) {
    let [a, b] = ["a", "b"].map(|id| Instance::start(redis, id));
    a.deny("203.0.113.7", "ann", 0);
    a.publish(1);
    b.lists(&[("203.0.113.7", 1)]);
    b.deny("203.0.113.8", "bob", 0);
    redis.each(&["CLIENT", "PAUSE", "600000", "ALL"]);
    // It hangs, and then it is gone.
    for _ in 0..2 {
        b.lists(&[("203.0.113.7", 1), ("203.0.113.8", 1)]);
    }
    assert_eq!(b.evidence("203.0.113.8")["denied"], 1);
    assert_eq!(b.ask("DELETE", "/v1/blocked/203.0.113.8").status, 503);
    assert_eq!(b.evidence("203.0.113.8")["denied"], 1, "what the others would bring back is not forgotten");
    redis.kill();
    assert_eq!(b.evidence("203.0.113.7")["denied"], 1);
    b.lists(&[("203.0.113.7", 1), ("203.0.113.8", 1)]);
    assert!(b.try_publish().is_err());
}

fn many_clients_are_read_in_pages(redis: &Deployment) {
    let [a, b] = ["a", "b"].map(|id| Instance::start(redis, id));
    for n in 0..700 {
        a.deny(&format!("10.0.{}.{}", n / 256, n % 256), "ann", 0);
    }
    a.publish(700);
    eventually("all are listed", || b.listed().len() == 700);
}

/// More than are told apart.
fn denials_of_twenty_instances_count_once_each(redis: &Deployment) {
    let instances: Vec<_> = (0..20).map(|n| Instance::start(redis, &format!("i{n}"))).collect();
    let all_count = |rounds: u64| {
        for (n, instance) in instances.iter().enumerate() {
            assert_eq!(
                instance.evidence("203.0.113.7")["denied"],
                rounds * 20,
                "instance {n}, round {rounds}"
            );
        }
    };
    for round in 1..=4 {
        for instance in &instances {
            instance.deny("203.0.113.7", "ann", 0);
            instance.publish(1);
        }
        all_count(round);
    }
    // The user may be recorded a moment after the address.
    let of_user = |instance: &Instance| {
        let found = instance.ask("GET", "/v1/users/ann").json();
        found["addresses"][0]["denied"].as_u64()
    };
    for instance in &instances {
        eventually("each denial of the user counts once", || {
            for instance in &instances {
                instance.try_publish().unwrap();
            }
            of_user(instance) == Some(80)
        });
    }
    // All is lost, and each instance notices it by itself.
    redis.keys().iter().for_each(|key| drop(redis.cli(&["DEL", key])));
    for _ in 0..2 {
        for instance in &instances {
            instance.registry.republish_all(instance.clock.now());
            instance.publish(1);
        }
        all_count(4);
        assert_eq!(of_user(&instances[0]), Some(80));
    }
    all_expire(redis);
}

fn redis_holds_a_bounded_number_of_clients(redis: &mut Deployment) {
    let a = Instance::start(redis, "a");
    let fill = "for n = 1, 100005 do
        local address = string.format('10.0.%d.%d', n / 256, n % 256)
        redis.call('ZADD', KEYS[1], ARGV[1] + n, address)
        redis.call('ZADD', KEYS[1] .. ':dues', string.format('%.0f', (ARGV[1] / 100000 + 9000) * 262144 + 1), address)
        redis.call('SET', 'ratelimit:{abuse}:v3:client:' .. address, 'x', 'PX', 300000)
    end";
    let lately = (a.clock.now() / 1_000_000 * 1_000_000 - 60_000_000).to_string();
    assert_eq!(redis.cli(&["EVAL", fill, "1", CHANGED, &lately]), "");
    a.deny("203.0.113.7", "ann", 0);
    a.publish(1);
    assert_eq!(redis.cli(&["ZCARD", CHANGED]), "100000");
    let exists =
        |address: &str| redis.cli(&["EXISTS", &format!("ratelimit:{{abuse}}:v3:client:{address}")]) == "1";
    assert!(!exists("10.0.0.1") && !exists("10.0.0.6"), "those that changed longest ago go");
    assert!(exists("10.0.0.7") && exists("203.0.113.7"));
    all_expire(redis);
}

/// A process that starts anew is another instance.
fn restarts_leave_one_copy(redis: &mut Deployment) {
    let mut bytes = Vec::new();
    for id in 0..40 {
        let instance = Instance::start(redis, &format!("a{id}"));
        for user in 0..4 {
            instance.deny("203.0.113.7", &format!("user-{user}"), 0);
        }
        instance.publish(1);
        assert_eq!(instance.evidence("203.0.113.7")["denied"], (id + 1) * 4);
        assert_eq!(users(&instance.evidence("203.0.113.7")).len(), 4, "as many as are kept");
        let of = |key: &str| redis.cli(&["STRLEN", key]).parse::<usize>().unwrap();
        bytes.push(of(CLIENT) + of(&CLIENT.replace(":client:", ":records:")));
    }
    // What each instance counted is told apart, of sixteen instances.
    assert!(bytes[39] < bytes[0] + 1_000 && bytes[39] <= bytes[20] + 10, "{bytes:?}");
}

#[test]
fn either_protocol_will_do() {
    let redis = Redis::start();
    let [old, new] = ["resp2", "resp3"]
        .map(|protocol| (format!("{}/?protocol={protocol}", redis.url()), protocol))
        .map(|(url, protocol)| {
            let redis = model::RedisTopology::Url(model::Secret::new(url));
            Instance::start_at(redis, "ratelimit", protocol, 0)
        });
    old.deny("203.0.113.7", "ann", 0);
    old.publish(1);
    new.deny("203.0.113.7", "bob", 0);
    new.publish(1);
    for instance in [&old, &new] {
        instance.lists(&[("203.0.113.7", 2)]);
    }
}
