//! Costs that responses tell, under load and faults: what is reserved never passes a limit, and in the end what is used is
//! the sum of what the origin has told.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
};

use crate::{
    app::handover::{Service, start},
    harness::{
        Client, Config, Conn, Deployment, Latch, Origin, Redis, Relay, Tollgate, becomes, eventually,
        on_own_servers, on_topologies, request,
    },
};

on_topologies!(shared [server cluster]
    reservations_of_parallel_streams_stay_within_the_limit_and_settle_to_the_unit,
    bytes_of_parallel_downloads_are_charged_to_the_byte,
    clients_that_leave_and_upstreams_that_break_off_are_charged_across_a_reload,
    clients_that_leave_and_upstreams_that_break_off_are_charged_across_a_handover,
    an_instance_that_is_killed_leaves_what_it_had_reserved,
);

on_own_servers!([sentinel cluster] settlements_wait_for_another_primary);
on_own_servers!(
    decisions_that_have_timed_out_are_undone_by_their_late_replies,
    costs_wait_for_servers_that_refuse_connections,
);

const STREAMS: usize = 200;
const CUSTOMERS: [&str; 5] = ["ada", "bob", "cleo", "dan", "eve"];
/// The routes, each held back by the policy of its name.
const ROUTES: [&str; 2] = ["fixed", "sliding"];
const RESERVED: u64 = 100;
const LIMIT: u64 = 2_000;

/// A route's limit of one customer.
type Limit = (&'static str, &'static str);

/// What becomes of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It ends with its usage.
    Complete,
    /// The client goes away after the first event.
    ClientLeaves,
    /// The client goes away before the head, and the stream ends with its usage.
    LeavesEarly,
    /// The same, but the stream breaks off after the first event.
    LeavesEarlyAndBreaks,
    /// The upstream resets the connection after the first event.
    Reset,
    /// The upstream responds 503, and tells no usage.
    Refused,
}

/// One request for a stream.
#[derive(Debug, Clone, Copy)]
struct Plan {
    number: usize,
    limit: Limit,
    fate: Fate,
    /// The number that the origin tells.
    tokens: u64,
    /// Bytes of the first event.
    first_event: usize,
}

impl Plan {
    /// Of the stream with this number, one of several of its customer.
    fn of(number: usize, fate: Fate) -> Self {
        let limit = (ROUTES[number % 2], CUSTOMERS[number / 2 % CUSTOMERS.len()]);
        let tokens = if number.is_multiple_of(7) { 180 } else { (number * 37 % 60) as u64 };
        let first_event = if number.is_multiple_of(4) { 1_200 } else { 40 };
        Self { number, limit, fate, tokens, first_event }
    }

    fn request(&self) -> String {
        let Self { number, limit: (route, customer), fate, tokens, first_event } = self;
        format!(
            "POST /{route} HTTP/1.1\r\nhost: a\r\nx-number: {number}\r\nx-customer: {customer}\r\nx-fate: {fate:?}\r\n\
             x-tokens: {tokens}\r\nx-first-event: {first_event}\r\ncontent-length: 2\r\n\r\n{{}}"
        )
    }

    fn leaves_early(&self) -> bool {
        matches!(self.fate, Fate::LeavesEarly | Fate::LeavesEarlyAndBreaks)
    }

    /// What it costs in the end.
    fn cost(&self) -> u64 {
        match self.fate {
            Fate::Complete | Fate::LeavesEarly => self.tokens,
            Fate::ClientLeaves | Fate::LeavesEarlyAndBreaks | Fate::Reset => {
                RESERVED.max(self.first_event as u64 / 4)
            }
            Fate::Refused => 0,
        }
    }
}

fn sum(plans: impl IntoIterator<Item = Plan>) -> BTreeMap<Limit, u64> {
    let mut sums = BTreeMap::new();
    for plan in plans {
        *sums.entry(plan.limit).or_default() += plan.cost();
    }
    sums
}

/// The value of a field of a request.
fn value<'h>(head: &'h str, name: &str) -> &'h str {
    let line = head.split("\r\n").find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    line.unwrap_or_else(|| panic!("no {name}: {head}"))
}

fn chunk(data: &str) -> String {
    format!("{:x}\r\n{data}\r\n", data.len())
}

/// What streams wait for.
#[derive(Clone, Default)]
struct Gates {
    /// Before the head, where the client is to go away before it.
    early: Latch,
    /// After the first event.
    end: Latch,
    /// The numbers of the streams that have been asked for.
    arrived: Arc<Mutex<BTreeSet<usize>>>,
}

/// Streams as `x-fate` says.
fn serve(conn: &mut Conn, gates: &Mutex<Gates>) -> std::io::Result<()> {
    const HEAD: &str =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    while let Some(head) = conn.head()? {
        conn.skip_body(&head)?;
        let Gates { early, end, arrived } = gates.lock().unwrap().clone();
        arrived.lock().unwrap().insert(value(&head, "x-number").parse().unwrap());
        let fate = value(&head, "x-fate");
        let length: usize = value(&head, "x-first-event").parse().unwrap();
        let first = chunk(&event(length));
        let usage =
            chunk(&format!("data: {{\"usage\":{{\"total_tokens\":{}}}}}\n\n", value(&head, "x-tokens")));
        match fate {
            "LeavesEarly" => {
                early.wait();
                conn.send(format!("{HEAD}{first}{usage}0\r\n\r\n").as_bytes())?;
            }
            "LeavesEarlyAndBreaks" => {
                early.wait();
                return conn.send(format!("{HEAD}{first}").as_bytes());
            }
            "Refused" => conn.answer("503 Service Unavailable", &[], b"no")?,
            "ClientLeaves" => {
                conn.send(format!("{HEAD}{first}").as_bytes())?;
                conn.closed();
                return Ok(());
            }
            "Reset" => {
                conn.send(format!("{HEAD}{first}").as_bytes())?;
                end.wait();
                return conn.reset();
            }
            _ => {
                conn.send(format!("{HEAD}{first}").as_bytes())?;
                end.wait();
                conn.send(format!("{usage}0\r\n\r\n").as_bytes())?;
            }
        }
    }
    Ok(())
}

/// Two instances before the same origin.
struct Site {
    instances: [Service; 2],
    _origin: Origin,
    /// Those of the next streams.
    gates: Arc<Mutex<Gates>>,
    /// Of each customer.
    limit: u64,
}

/// An admitted stream, whose client has read its first event.
struct Stream {
    plan: Plan,
    instance: usize,
    /// `None`: the client has gone.
    client: Option<Client>,
}

impl Site {
    /// `redis`: the settings of `store.redis`.
    fn start(redis: &str, limit: u64) -> Self {
        let gates = Arc::<Mutex<Gates>>::default();
        let of_origin = Arc::clone(&gates);
        let origin = Origin::start(move |conn| serve(conn, &of_origin));
        let instances = [(); 2].map(|()| start(Config::yaml(config(&origin, redis, limit))));
        for Service(tollgate) in &instances {
            eventually("each knows of the other", || tollgate.metric("tollgate_instances") == 2.0);
        }
        Self { instances, _origin: origin, gates, limit }
    }

    fn tollgate(&self, instance: usize) -> &Tollgate {
        &self.instances[instance].0
    }

    /// Units that an instance says to be used.
    fn used(&self, instance: usize, (policy, customer): Limit) -> Option<u64> {
        used(self.tollgate(instance), policy, customer)
    }

    #[track_caller]
    fn uses(&self, instance: usize, expected: &BTreeMap<Limit, u64>) {
        for (&limit, &sum) in expected {
            becomes((limit, Some(sum)), || (limit, self.used(instance, limit)));
        }
    }

    /// Asks for all of these streams at once, in turn of both instances, and looks at the limits meanwhile. Returns those that
    /// were admitted.
    fn open(&self, plans: &[Plan]) -> Vec<Stream> {
        let (barrier, streams) = (Barrier::new(plans.len()), Mutex::new(Vec::new()));
        let arrived = Arc::clone(&self.gates.lock().unwrap().arrived);
        // An upstream is waited for ten seconds after its client has gone: those go last.
        let (is_open, last) = (AtomicBool::new(false), Latch::new());
        let before: BTreeMap<Limit, u64> =
            plans.iter().map(|plan| (plan.limit, self.used(0, plan.limit).unwrap())).collect();
        thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let mut looks = 0;
                while !is_open.load(SeqCst) {
                    for (&limit, &before) in &before {
                        let used = self.used(looks % 2, limit).unwrap();
                        assert!(used <= self.limit.max(before), "{limit:?}: {used}");
                        looks += 1;
                    }
                }
                looks
            });
            let clients: Vec<_> = plans
                .iter()
                .enumerate()
                .map(|(number, &plan)| {
                    let (barrier, streams, last, arrived) = (&barrier, &streams, &last, &arrived);
                    scope.spawn(move || {
                        let instance = number / 10 % 2;
                        let mut client = Client::connect(self.tollgate(instance).address);
                        barrier.wait();
                        if plan.leaves_early() {
                            last.wait();
                            client.send(plan.request());
                            // A request that was not sent on yet would cost nothing.
                            eventually("it is under way", || arrived.lock().unwrap().contains(&plan.number));
                            client.reset();
                            streams.lock().unwrap().push(Stream { plan, instance, client: None });
                        } else if let Some(client) = begin(client, plan) {
                            streams.lock().unwrap().push(Stream { plan, instance, client });
                        }
                    })
                })
                .collect();
            let (early, others): (Vec<_>, Vec<_>) =
                clients.into_iter().zip(plans).partition(|(_, plan)| plan.leaves_early());
            let mut ended: Vec<_> = others.into_iter().map(|(client, _)| client.join()).collect();
            last.open();
            ended.extend(early.into_iter().map(|(client, _)| client.join()));
            is_open.store(true, SeqCst);
            assert!(watch.join().unwrap() > 0);
            ended.into_iter().for_each(|ended| ended.unwrap());
        });
        let streams = streams.into_inner().unwrap();
        let left = streams.iter().filter(|stream| stream.client.is_some()).count() as f64;
        eventually("it is noticed who has gone", || self.total("tollgate_connections ") == left);
        self.gates.lock().unwrap().early.open();
        streams
    }

    /// The sum of a metric over both instances.
    fn total(&self, metric: &str) -> f64 {
        self.instances.iter().map(|instance| instance.0.metric(metric)).sum()
    }

    /// Lets all streams end. Clients read theirs to the end.
    fn finish(&self, streams: Vec<Stream>) {
        self.let_go();
        for Stream { plan, client, .. } in streams {
            let Some(mut client) = client else { continue };
            match plan.fate {
                Fate::Complete => while client.chunk().unwrap().is_some() {},
                _ => assert!(client.chunk().is_err()),
            }
        }
    }

    /// The next streams wait at another gate.
    fn let_go(&self) {
        std::mem::take(&mut *self.gates.lock().unwrap()).end.open();
    }
}

/// An event with so many letters of text.
fn event(letters: usize) -> String {
    format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n", "x".repeat(letters))
}

/// Asks for a stream, and reads what comes before its gate. `None`: it was denied, or costs nothing. The client of one that is left is
/// `None`.
fn begin(mut client: Client, plan: Plan) -> Option<Option<Client>> {
    client.send(plan.request());
    let head = client.head();
    if head.status != 200 {
        let expected = if plan.fate == Fate::Refused { [429, 503] } else { [429, 429] };
        assert!(expected.contains(&head.status), "{head:?}");
        return None;
    }
    assert_eq!(client.chunk().unwrap().unwrap().len(), event(plan.first_event).len());
    match plan.fate {
        Fate::ClientLeaves => client.reset(),
        _ => return Some(Some(client)),
    }
    Some(None)
}

fn config(origin: &Origin, redis: &str, limit: u64) -> String {
    format!(
        "
store: {{ redis: {{ {redis}, timeout: 5s }} }}
shutdown: {{ drain: 5m }}
upstreams: {{ origin: {{ endpoints: [\"http://{}\"], timeouts: {{ connect: 60s, response: 5m }} }} }}
policies:
  fixed:
    {{ algorithm: fixed_window, key: 'header:x-customer', limits: [{limit}/1d, 100000/30d], cost: {{ response: openai, reserve: {RESERVED} }} }}
  sliding:
    {{ algorithm: sliding_window, key: 'header:x-customer', limits: [{limit}/1d, 100000/30d], cost: {{ response: openai, reserve: {RESERVED} }} }}
routes:
  - {{ path: /fixed, upstream: origin, policies: [fixed] }}
  - {{ path: /sliding, upstream: origin, policies: [sliding] }}
",
        origin.address
    )
}

/// `None`: the instance does not know.
fn used(tollgate: &Tollgate, policy: &str, customer: &str) -> Option<u64> {
    let reply =
        tollgate.admin("GET", &format!("/v1/limits?policy={policy}&key=header:x-customer={customer}"));
    (reply.status == 200).then(|| reply.json()["limits"][0]["used"].as_u64().unwrap())
}

fn count(streams: &[Stream], limit: Limit) -> u64 {
    streams.iter().filter(|stream| stream.plan.limit == limit).count() as u64
}

fn limits() -> impl Iterator<Item = Limit> {
    ROUTES.into_iter().flat_map(|route| CUSTOMERS.map(|customer| (route, customer)))
}

fn reservations_of_parallel_streams_stay_within_the_limit_and_settle_to_the_unit(redis: &Deployment) {
    let site = Site::start(&redis.settings(), LIMIT);
    let mut expected: BTreeMap<Limit, u64> = limits().map(|limit| (limit, 0)).collect();
    for wave in 0..2 {
        let plans: Vec<_> = (0..STREAMS).map(|number| Plan::of(number + wave * 3, Fate::Complete)).collect();
        let streams = site.open(&plans);
        for (&limit, &before) in &expected {
            let admitted = count(&streams, limit);
            assert_eq!(admitted, LIMIT.saturating_sub(before) / RESERVED, "{limit:?} in wave {wave}");
            assert_eq!(site.used(wave, limit), Some(before + admitted * RESERVED), "{limit:?}");
        }
        for (limit, sum) in sum(streams.iter().map(|stream| stream.plan)) {
            *expected.get_mut(&limit).unwrap() += sum;
        }
        site.finish(streams);
        site.uses(1 - wave, &expected);
    }
    let charged =
        |policy| site.total(&format!("tollgate_cost_units_total{{policy=\"{policy}\",kind=\"charged\"}}"));
    assert_eq!(ROUTES.map(charged).iter().sum::<f64>(), expected.values().sum::<u64>() as f64);
}

fn bytes_of_parallel_downloads_are_charged_to_the_byte(redis: &Deployment) {
    let origin = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            let length: usize = value(&head, "x-length").parse().unwrap();
            conn.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
            for piece in vec![b'x'; length].chunks(3_000) {
                conn.send(chunk(std::str::from_utf8(piece).unwrap()).as_bytes())?;
            }
            conn.send(b"0\r\n\r\n")?;
        }
        Ok(())
    });
    let config = format!(
        "
store: {{ redis: {{ {}, timeout: 5s }} }}
upstreams: {{ origin: {{ endpoints: [\"http://{}\"], timeouts: {{ connect: 60s, response: 5m }} }} }}
policies:
  fixed:
    {{ algorithm: fixed_window, key: 'header:x-customer', limit: 1PiB/1d, cost: {{ response: bytes, reserve: 1KiB }} }}
  single:
    {{ algorithm: single_counter, key: 'header:x-customer', limit: 1GiB/1d, cost: {{ response: bytes, reserve: 9KiB }} }}
routes: [{{ path: /, upstream: origin, policies: [fixed, single] }}]
",
        redis.settings(),
        origin.address
    );
    let both = [(); 2].map(|()| Tollgate::start(Config::yaml(config.as_str())));
    let length = |number: usize| if number.is_multiple_of(9) { 0 } else { number * 311 % 40_000 };
    let barrier = Barrier::new(STREAMS);
    thread::scope(|scope| {
        for number in 0..STREAMS {
            let (both, barrier) = (&both, &barrier);
            scope.spawn(move || {
                let (customer, length) = (CUSTOMERS[number % CUSTOMERS.len()], length(number).to_string());
                let mut client = Client::connect(both[number / 10 % 2].address);
                barrier.wait();
                for _ in 0..3 {
                    let reply =
                        client.request("GET", "/", &[("x-customer", customer), ("x-length", &length)], b"");
                    assert_eq!((reply.status, reply.body.len().to_string()), (200, length.clone()));
                }
            });
        }
    });
    for (nth, customer) in CUSTOMERS.iter().enumerate() {
        let lengths = (nth..STREAMS).step_by(CUSTOMERS.len()).map(length);
        let sum = 3 * lengths.sum::<usize>() as u64;
        for policy in ["fixed", "single"] {
            becomes((policy, Some(sum)), || (policy, used(&both[nth % 2], policy, customer)));
        }
    }
}

/// Streams of all fates, while `change` happens to both instances.
fn charges_all_fates(redis: &Deployment, change: impl Fn(&Service)) {
    const FATES: [Fate; 7] = [
        Fate::Complete,
        Fate::ClientLeaves,
        Fate::Reset,
        Fate::LeavesEarly,
        Fate::Refused,
        Fate::LeavesEarlyAndBreaks,
        Fate::Complete,
    ];
    // What those pay that leave may be more than they reserve.
    let site = Site::start(&redis.settings(), 10 * LIMIT);
    let plans: Vec<_> =
        (0..STREAMS).map(|number| Plan::of(number, FATES[number / 10 % FATES.len()])).collect();
    let streams = site.open(&plans);
    let refused = plans.iter().filter(|plan| plan.fate == Fate::Refused).count();
    assert_eq!(streams.len(), STREAMS - refused, "all were admitted");
    site.instances.iter().for_each(change);
    site.finish(streams);
    site.uses(0, &sum(plans));
    assert_eq!(site.total("tollgate_cost_settlements_lost_total"), 0.0);
}

fn clients_that_leave_and_upstreams_that_break_off_are_charged_across_a_reload(redis: &Deployment) {
    charges_all_fates(redis, |Service(tollgate)| {
        let file = tollgate.directory().join("proxy.yaml");
        let yaml = fs::read_to_string(&file).unwrap();
        let changed =
            yaml.replace(&format!("reserve: {RESERVED}"), "reserve: 70").replace("20000/1d", "30000/1d");
        assert_ne!(yaml, changed);
        fs::write(file, changed).unwrap();
        let reply = tollgate.admin("POST", "/v1/reload");
        assert_eq!(reply.status, 200, "{}", reply.text());
    });
}

fn clients_that_leave_and_upstreams_that_break_off_are_charged_across_a_handover(redis: &Deployment) {
    charges_all_fates(redis, |service| {
        service.hand_over();
    });
}

fn an_instance_that_is_killed_leaves_what_it_had_reserved(redis: &Deployment) {
    let site = Site::start(&redis.settings(), 2 * LIMIT);
    let plans: Vec<_> = (0..STREAMS).map(|number| Plan::of(number, Fate::Complete)).collect();
    let streams = site.open(&plans);
    assert_eq!(streams.len(), STREAMS);
    site.finish(streams);
    let mut expected = sum(plans.iter().copied());
    site.uses(1, &expected);

    let streams = site.open(&plans);
    assert_eq!(streams.len(), STREAMS);
    site.tollgate(0).signal("KILL");
    let (killed, kept): (Vec<_>, Vec<_>) = streams.into_iter().partition(|stream| stream.instance == 0);
    for Stream { plan, .. } in &killed {
        *expected.get_mut(&plan.limit).unwrap() += RESERVED;
    }
    for (limit, sum) in sum(kept.iter().map(|stream| stream.plan)) {
        *expected.get_mut(&limit).unwrap() += sum;
    }
    site.finish(kept);
    site.uses(1, &expected);
}

/// Streams of one cost, which is less than what is reserved.
fn cheap_streams() -> Vec<Plan> {
    (0..80).map(|number| Plan { tokens: 60, ..Plan::of(number, Fate::Complete) }).collect()
}

/// Whether all is charged that was used, and no more beside it than what lost settlements have left reserved.
fn is_settled(site: &Site, plans: &[Plan], leaves_all: bool) -> bool {
    let lost = site.total("tollgate_cost_settlements_lost_total") as u64;
    let left = lost * (RESERVED - 60);
    let expected = sum(plans.iter().copied());
    let used: BTreeMap<_, _> = expected.keys().map(|&limit| (limit, site.used(0, limit).unwrap())).collect();
    // An instance that does not reach Redis says 0.
    if expected.iter().any(|(limit, told)| used[limit] < *told) {
        return false;
    }
    let above = used.values().sum::<u64>() - expected.values().sum::<u64>();
    if leaves_all { above == left } else { above <= left }
}

fn settlements_wait_for_another_primary(redis: &mut Deployment) {
    let site = Site::start(&redis.settings(), LIMIT);
    let plans = cheap_streams();
    let streams = site.open(&plans);
    assert_eq!(streams.len(), plans.len());
    eventually("replicas have all", || redis.primaries().into_iter().all(is_replicated));
    let dead = redis.kill_primary(0);
    site.finish(streams);
    redis.wait_for_another_primary(0, dead);
    // Those on their way to the dead one are lost, and counted; how many is a matter of when its end was noticed.
    eventually("all are settled", || is_settled(&site, &plans, true));
}

/// Whether the replicas of a primary have all that it has written.
fn is_replicated(primary: &Redis) -> bool {
    let replication = primary.cli(&["info", "replication"]);
    let number = |name: &str| -> Vec<u64> {
        let parts = replication.split(name).skip(1);
        parts.map(|part| part.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()).collect()
    };
    let written = number("master_repl_offset:");
    let acknowledged = number(",offset=");
    !acknowledged.is_empty() && acknowledged.iter().all(|offset| *offset >= written[0])
}

/// Two instances, between which and Redis is a relay.
fn behind_a_relay() -> (Site, Relay, Redis) {
    let redis = Redis::start();
    let relay = Relay::to(redis.port);
    (Site::start(&format!("url: \"{}\"", relay.url()), LIMIT), relay, redis)
}

#[test]
fn settlements_not_sent_while_redis_was_away_arrive_when_it_is_back() {
    let (site, relay, _redis) = behind_a_relay();
    let plans = cheap_streams();
    let streams = site.open(&plans);
    assert_eq!(streams.len(), plans.len());
    relay.refuse(true);
    let refused = Plan { limit: ("fixed", "nobody"), ..Plan::of(0, Fate::Refused) };
    for Service(tollgate) in &site.instances {
        eventually("it knows that Redis is away", || {
            assert!(begin(Client::connect(tollgate.address), refused).is_none());
            tollgate.metric("tollgate_store_breaker_open") == 1.0
        });
    }
    site.finish(streams);
    relay.refuse(false);
    site.uses(0, &sum(plans));
    assert_eq!(site.total("tollgate_cost_settlements_lost_total"), 0.0);
}

/// What it has used beyond its reservation counts when it is charged, though the reservation's window has passed.
#[test]
fn a_stream_longer_than_the_window_is_charged_when_redis_is_back() {
    let redis = Redis::start();
    let relay = Relay::to(redis.port);
    let gates = Arc::<Mutex<Gates>>::default();
    let of_origin = Arc::clone(&gates);
    let origin = Origin::start(move |conn| serve(conn, &of_origin));
    let yaml = config(&origin, &format!("url: \"{}\"", relay.url()), LIMIT);
    let yaml = yaml.replace(&format!("[{LIMIT}/1d, 100000/30d]"), "[2000/6s]");
    let tollgate = Tollgate::start(Config::yaml(yaml));
    let used = || used(&tollgate, "sliding", "ada");
    eventually("Redis decides", || used() == Some(0));
    let plan = Plan { tokens: 150, ..Plan::of(1, Fate::Complete) };
    let mut client = begin(Client::connect(tollgate.address), plan).unwrap().unwrap();
    assert_eq!(used(), Some(RESERVED));
    eventually("the window has passed", || used() == Some(0));
    relay.refuse(true);
    let refused = Plan { limit: ("fixed", "nobody"), ..Plan::of(0, Fate::Refused) };
    eventually("it knows that Redis is away", || {
        assert!(begin(Client::connect(tollgate.address), refused).is_none());
        tollgate.metric("tollgate_store_breaker_open") == 1.0
    });
    gates.lock().unwrap().end.open();
    while client.chunk().unwrap().is_some() {}
    relay.refuse(false);
    becomes(Some(150 - RESERVED), used);
    assert_eq!(tollgate.metric("tollgate_cost_settlements_lost_total"), 0.0);
}

#[test]
fn settlements_without_a_reply_are_lost_and_counted() {
    let (site, relay, _redis) = behind_a_relay();
    let plans = cheap_streams();
    let streams = site.open(&plans);
    assert_eq!(streams.len(), plans.len());
    relay.stall(true);
    site.finish(streams);
    let lost = || site.total("tollgate_cost_settlements_lost_total");
    eventually("some are lost", || lost() > 0.0);
    relay.stall(false);
    // A lost one may have been made all the same.
    eventually("the others are settled", || is_settled(&site, &plans, false));
}

/// The fallback decides about requests while Redis stands still. What Redis decides about them later is undone.
fn decisions_that_have_timed_out_are_undone_by_their_late_replies(redis: &mut Deployment) {
    let origin = Origin::start(|conn| serve(conn, &Mutex::new(open_gates())));
    let yaml = config(&origin, &redis.settings(), LIMIT).replace("timeout: 5s", "timeout: 100ms");
    let tollgate = Tollgate::start(Config::yaml(yaml));
    let ask = |limit| {
        let plan = Plan { tokens: 10, limit, ..Plan::of(1, Fate::Complete) };
        assert_eq!(Client::connect(tollgate.address).send(plan.request()).reply().status, 200);
    };
    let by_store = || {
        let each = ROUTES.map(|policy| {
            format!("tollgate_decisions_total{{policy=\"{policy}\",verdict=\"allowed\",source=\"store\"}}")
        });
        each.map(|name| tollgate.metric(&name)).iter().sum::<f64>()
    };
    // Of other limits, on all nodes: so the connections are open.
    for number in 0..32 {
        eventually("Redis decides", || {
            let before = by_store();
            ROUTES.iter().for_each(|route| ask((route, &*format!("warm{number}").leak())));
            by_store() == before + 2.0
        });
    }
    redis.pause();
    thread::scope(|scope| limits().for_each(|limit| drop(scope.spawn(move || ask(limit)))));
    redis.resume();
    eventually("what Redis has decided late is undone", || {
        let keys = redis.keys();
        // Those that were sent at all have keys.
        let late = limits().filter(|(_, customer)| keys.iter().any(|key| key.contains(customer)));
        let mut used = late.map(|(route, customer)| used(&tollgate, route, customer)).peekable();
        used.peek().is_some() && used.all(|used| used == Some(0))
    });
}

/// Their end was noticed, so that nothing is written to them: it is kept, and sent when they are back, empty.
fn costs_wait_for_servers_that_refuse_connections(redis: &mut Deployment) {
    let gates = Arc::<Mutex<Gates>>::default();
    let of_origin = Arc::clone(&gates);
    let origin = Origin::start(move |conn| serve(conn, &of_origin));
    let settings = format!("{}, breaker: {{ failures: 1000000 }}", redis.settings());
    let tollgate = Tollgate::start(Config::yaml(config(&origin, &settings, LIMIT)));
    let plans: Vec<Plan> =
        limits().map(|limit| Plan { tokens: 180, limit, ..Plan::of(1, Fate::Complete) }).collect();
    let used = |plan: &Plan| used(&tollgate, plan.limit.0, plan.limit.1);
    let mut clients = Vec::new();
    for plan in &plans {
        eventually("Redis decides", || used(plan) == Some(0));
        clients.push(begin(Client::connect(tollgate.address), *plan).unwrap().unwrap());
        assert_eq!(used(plan), Some(RESERVED));
    }
    redis.kill();
    let refused = Plan { limit: ("fixed", "nobody"), ..Plan::of(0, Fate::Refused) };
    let failures = || tollgate.metric("tollgate_store_errors_total{kind=\"connection\"}");
    eventually("it knows that they are away", || {
        assert!(begin(Client::connect(tollgate.address), refused).is_none());
        failures() > 8.0
    });
    gates.lock().unwrap().end.open();
    for client in &mut clients {
        while client.chunk().unwrap().is_some() {}
    }
    let before = failures();
    eventually("they have been tried", || failures() > before);
    redis.restart();
    for plan in &plans {
        becomes(Some(180 - RESERVED), || used(plan));
    }
    assert_eq!(tollgate.metric("tollgate_cost_settlements_lost_total"), 0.0);
}

/// Of the share of an instance, which the reservation is more than.
#[test]
fn costs_of_requests_that_the_fallback_decided_are_settled_in_it() {
    let redis = Redis::start();
    let relay = Relay::to(redis.port);
    let origin = Origin::start(|conn| serve(conn, &Mutex::new(open_gates())));
    let yaml = config(&origin, &format!("url: \"{}\"", relay.url()), 1_000);
    let yaml = yaml.replace(&format!("reserve: {RESERVED}"), "reserve: 800");
    let both = [(); 2].map(|()| Tollgate::start(Config::yaml(yaml.as_str())));
    for tollgate in &both {
        eventually("each knows of the other", || tollgate.metric("tollgate_instances") == 2.0);
    }
    relay.refuse(true);
    for (customer, tokens) in CUSTOMERS.into_iter().zip([0, 100, 500, 800, 900]) {
        for route in ROUTES {
            let plan = Plan { tokens, limit: (route, customer), ..Plan::of(1, Fate::Complete) };
            let mut client = Client::connect(both[0].address);
            assert_eq!(client.send(plan.request()).reply().status, 200);
            becomes((tokens, Some(tokens)), || (tokens, used(&both[0], route, customer)));
            let status =
                request(both[0].address, "POST", &format!("/{route}"), &fields(customer), b"{}").status;
            // Each of the instances has half of the limit.
            assert_eq!(status, if tokens == 0 { 200 } else { 429 }, "{route}: {tokens}");
        }
    }
    let by_store = "tollgate_decisions_total{policy=\"fixed\",verdict=\"allowed\",source=\"store\"}";
    assert_eq!(both[0].metric(by_store), 0.0);
}

fn open_gates() -> Gates {
    let gates = Gates::default();
    gates.early.open();
    gates.end.open();
    gates
}

fn fields(customer: &str) -> [(&str, &str); 5] {
    let [number, fate] = [("x-number", "0"), ("x-fate", "Complete")];
    [number, ("x-customer", customer), fate, ("x-tokens", "0"), ("x-first-event", "40")]
}
