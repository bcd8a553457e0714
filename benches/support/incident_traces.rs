//! Tests whether incidents are right: generated traffic of many clients, by seed, through the recorder, the registry and the rules that
//! serve real requests.
//!
//! `cargo test --lib incidents::traces -- --nocapture` prints the table of docs/security.md. The thresholds were set by the first fifty
//! traces; the last ten have other seeds and parameters, and were not looked at before.

use std::{collections::BTreeSet, sync::Arc};

use fastrand::Rng;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use ipnet::IpNet;

use super::{IncidentKind, Incidents};
use crate::{
    abuse::{
        ClientRegistry, Credential, DenialReport, Hint, ObservedResponse, RecordedRoute, Recorder,
        RequestLine, Signs, address,
        recording::queue::{TickReceiver, tick_queue},
        testing::{SECOND, policy},
    },
    limit::algorithm::metadata_list::Entry,
    telemetry::{self, metrics::Metrics},
};

/// A Wednesday in 2026, 11:00.
const START: i64 = 1_783_076_400 * SECOND;
/// Routes: the login, an API of 36 paths, and others.
const ROUTES: usize = 40;
const LOGIN: usize = 0;
const TRACES: u64 = 60;
/// Of them, those that were not looked at when the thresholds were set.
const JUDGING: u64 = 10;

/// What sends a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    Attacker,
    Person,
    Office,
    Customer,
}

#[derive(Debug, Clone)]
struct Traced {
    /// Seconds since the start.
    time: f64,
    client: IpNet,
    role: Role,
    route: usize,
    is_post: bool,
    path: String,
    credential: Credential,
    user: Option<String>,
    status: u16,
    agent: &'static str,
    cookie: Option<String>,
    /// Whether a policy denies it.
    is_denied: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scenario {
    Stuffing,
    QuietGuessing,
    BasicGuessing,
    Flood,
    Scrapers,
    Office,
    Carrier,
    Expiry,
    ProviderDown,
    Telemetry,
    Permissions,
    Partners,
    EndedSessions,
    Mixed,
}

const SCENARIOS: [Scenario; 14] = [
    Scenario::Stuffing,
    Scenario::QuietGuessing,
    Scenario::BasicGuessing,
    Scenario::Flood,
    Scenario::Scrapers,
    Scenario::Office,
    Scenario::Carrier,
    Scenario::Expiry,
    Scenario::ProviderDown,
    Scenario::Telemetry,
    Scenario::Permissions,
    Scenario::Partners,
    Scenario::EndedSessions,
    Scenario::Mixed,
];

const BROWSERS: [&str; 6] = [
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/131.0.0.0 Safari/537.36",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) Version/18.1 Safari/605.1.15",
    "Mozilla/5.0 (X11; Linux x86_64; rv:133.0) Gecko/20100101 Firefox/133.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:133.0) Gecko/20100101 Firefox/133.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/130.0.0.0 Safari/537.36 Edg/130.0.0.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) Version/18.1 Mobile/15E148 Safari/604.1",
];
const SCRIPTS: [&str; 3] = ["python-requests/2.32.3", "Go-http-client/1.1", "curl/8.5.0"];

/// Draws the requests of a scenario.
struct Model {
    random: Rng,
    requests: Vec<Traced>,
    /// The next address of each kind of network.
    next: u32,
    /// Seconds that the scenario lasts.
    lasts: f64,
}

impl Model {
    fn between(&mut self, from: f64, to: f64) -> f64 {
        from + self.random.f64() * (to - from)
    }

    fn has(&mut self, chance: f64) -> bool {
        self.random.f64() < chance
    }

    /// An address in one of so many /24 networks.
    fn address(&mut self, base: u32, networks: u32) -> IpNet {
        self.next += 1;
        let (network, host) = (self.next % networks, self.next / networks % 250 + 1);
        IpNet::from(std::net::IpAddr::from(std::net::Ipv4Addr::from(base + network * 256 + host)))
    }

    fn login(&mut self, time: f64, client: IpNet, role: Role, user: Option<String>, status: u16) -> Traced {
        let agent = match role {
            Role::Attacker if self.has(0.5) => SCRIPTS[self.random.usize(..SCRIPTS.len())],
            _ => BROWSERS[self.random.usize(..BROWSERS.len())],
        };
        Traced {
            time,
            client,
            role,
            route: LOGIN,
            is_post: true,
            path: "/login".into(),
            credential: Credential::None,
            user,
            status,
            agent,
            cookie: None,
            is_denied: false,
        }
    }

    fn get(&mut self, time: f64, client: IpNet, role: Role, path: String, session: Option<String>) -> Traced {
        let credential = if session.is_some() { Credential::Cookie } else { Credential::None };
        let agent = BROWSERS[self.random.usize(..BROWSERS.len())];
        let (route, user) = (1 + path.len() % (ROUTES - 1), None);
        Traced {
            time,
            client,
            role,
            route,
            is_post: false,
            path,
            credential,
            user,
            status: 200,
            agent,
            cookie: session,
            is_denied: false,
        }
    }

    /// People who log in, some after a mistyped password, and use the application.
    fn people(&mut self, count: usize, logins_work: bool) {
        for person in 0..count {
            let client = self.address(0x5000_0000, 200);
            let mut time = self.between(0.0, self.lasts);
            let name = Some(format!("person-{person}"));
            let mut tries = 0;
            while tries < 4 {
                tries += 1;
                let is_wrong = !logins_work || self.has(0.08);
                let login =
                    self.login(time, client, Role::Person, name.clone(), if is_wrong { 401 } else { 200 });
                self.requests.push(login);
                time += self.between(5.0, 30.0);
                if !is_wrong {
                    break;
                }
            }
            if logins_work {
                for nth in 0..self.random.usize(3..20) {
                    let page = self.get(
                        time + nth as f64 * 4.0,
                        client,
                        Role::Person,
                        format!("/page/{nth}"),
                        Some(format!("session-{person}")),
                    );
                    self.requests.push(page);
                }
            }
        }
    }

    /// An office behind one address: people with cookies, of whom some mistype their passwords.
    fn office(&mut self, people: usize, denied: f64) {
        let client = self.address(0x5A00_0000, 50);
        for person in 0..people {
            let agent = BROWSERS[self.random.usize(..BROWSERS.len())];
            let session = format!("office-session-{}-{person}", self.next);
            let mut time = self.between(0.0, self.lasts * 0.5);
            if self.has(0.3) {
                let login = self.login(time, client, Role::Office, None, 401);
                self.requests.push(login);
                time += 10.0;
            }
            let login = self.login(time, client, Role::Office, None, 200);
            self.requests.push(login);
            let pause = self.between(2.0, 20.0);
            for nth in 0..self.random.usize(10..40) {
                let path = if self.has(0.6) {
                    format!("/static/part-{}.js", nth % 20)
                } else {
                    format!("/products/{}", self.random.u16(..))
                };
                let at = time + nth as f64 * pause * self.random.f64() * 2.0;
                let mut page = self.get(at, client, Role::Office, path, Some(session.clone()));
                (page.agent, page.is_denied) = (agent, self.has(denied));
                self.requests.push(page);
            }
        }
    }

    /// Attackers who each make a few attempts.
    fn attackers(&mut self, count: usize, networks: u32, each: (f64, f64), users: bool, basic: bool) {
        for _ in 0..count {
            let client = self.address(0xC000_0000, networks);
            let attempts = self.between(each.0, each.1).round() as usize;
            for _ in 0..attempts.max(1) {
                let time = self.between(0.0, self.lasts);
                let user = users.then(|| format!("leaked-{}", self.random.u32(..)));
                let status = if self.has(0.002) { 200 } else { 401 };
                let mut attempt = self.login(time, client, Role::Attacker, user, status);
                if basic {
                    (attempt.credential, attempt.is_post) = (Credential::Basic, false);
                }
                self.requests.push(attempt);
            }
        }
    }

    /// Clients with tokens that are refused from some time on.
    fn tokens(&mut self, count: usize, posts: f64, status: u16, paths: usize) {
        for _ in 0..count {
            let address = self.address(0x6000_0000, 240);
            let pause = self.between(20.0, 90.0);
            let mut time = self.between(0.0, 60.0);
            let is_post = self.has(posts);
            while time < self.lasts {
                let path = format!("/api/{}", self.random.usize(..paths));
                let mut request = self.get(time, address, Role::Person, path, None);
                request.route = 1 + self.random.usize(..paths.min(ROUTES - 1));
                (request.credential, request.is_post, request.status) = (Credential::Token, is_post, status);
                request.user = None;
                request.agent = "Shop/7.1 CFNetwork/1494";
                request.cookie = None;
                self.requests.push(request);
                time += pause;
            }
        }
    }

    fn flood(&mut self, count: usize) {
        for _ in 0..count {
            let client = self.address(0xC100_0000, 100);
            let rate = self.between(60.0, 90.0);
            let begin = self.between(0.0, 60.0);
            for nth in 0..(rate * 12.0) as usize {
                let mut request =
                    self.get(begin + nth as f64 / rate, client, Role::Attacker, "/api/search".into(), None);
                (request.agent, request.is_denied) = (SCRIPTS[0], true);
                self.requests.push(request);
            }
        }
    }

    fn scrapers(&mut self, count: usize) {
        for _ in 0..count {
            let client = self.address(0xC200_0000, 30);
            let (agent, pause) = (SCRIPTS[self.random.usize(..SCRIPTS.len())], self.between(0.3, 1.5));
            for nth in 0..200 {
                let path = format!("/products/{}", self.random.u32(..));
                let mut request = self.get(f64::from(nth) * pause, client, Role::Attacker, path, None);
                (request.agent, request.is_denied) = (agent, nth % 2 == 0);
                self.requests.push(request);
            }
        }
    }

    /// Pages that are still open, whose sessions have ended, beside those of others.
    fn ended_sessions(&mut self, count: usize) {
        for person in 0..count * 8 {
            let client = self.address(0x6200_0000, 250);
            let is_over = person % 8 == 0;
            let begin = self.between(0.0, 50.0);
            for nth in 0..9 {
                let time = begin + f64::from(nth) * 55.0;
                let mut beat =
                    self.get(time, client, Role::Person, "/heartbeat".into(), Some(format!("of-{person}")));
                (beat.is_post, beat.status) = (true, if is_over { 401 } else { 200 });
                self.requests.push(beat);
            }
        }
    }

    fn partners(&mut self) {
        for partner in 0..6 {
            let client = self.address(0x6100_0000, 6);
            for nth in 0..300 {
                let mut request = self.get(
                    f64::from(nth) * 2.0,
                    client,
                    Role::Customer,
                    format!("/orders/{}", nth % 40),
                    None,
                );
                (request.credential, request.is_denied) = (Credential::Token, nth % 3 == 0);
                (request.user, request.agent) = (Some(format!("partner-{partner}")), "acme-sync/2.0");
                self.requests.push(request);
            }
        }
    }
}

/// What a scenario should be found to be.
struct Expected {
    attacks: Vec<&'static [IncidentKind]>,
    /// Whether there are refusals.
    refusals: bool,
}

const LOGINS: &[IncidentKind] = &[IncidentKind::PasswordGuessing, IncidentKind::CredentialStuffing];

fn draw(scenario: Scenario, seed: u64) -> (Vec<Traced>, Expected) {
    let is_judging = seed >= TRACES - JUDGING;
    let mut model = Model {
        random: Rng::with_seed(if is_judging { seed ^ 0x59_2026_1130 } else { seed }),
        requests: Vec::new(),
        next: 0,
        lasts: 540.0,
    };
    // Those that judge have other numbers of people, of attackers and of attempts.
    let people = if is_judging { model.random.usize(40..900) } else { model.random.usize(100..500) };
    let of =
        |few: usize, many: usize| if is_judging { (few * 2 / 3).max(25)..many * 3 / 2 } else { few..many };
    let mut expected = Expected { attacks: Vec::new(), refusals: false };
    let logins_work = scenario != Scenario::ProviderDown;
    model.people(people, logins_work);
    match scenario {
        Scenario::Stuffing => {
            let count = model.random.usize(of(400, 600));
            model.attackers(count, 300, (1.0, 6.0), true, false);
            expected.attacks.push(LOGINS);
        }
        Scenario::QuietGuessing => {
            let count = model.random.usize(of(38, 80));
            model.attackers(count, 20, (2.0, 9.0), false, false);
            expected.attacks.push(LOGINS);
        }
        Scenario::BasicGuessing => {
            let count = model.random.usize(of(40, 120));
            model.attackers(count, 40, (3.0, 12.0), false, true);
            expected.attacks.push(LOGINS);
        }
        Scenario::Flood => {
            model.flood(25);
            expected.attacks.push(&[IncidentKind::Flood]);
        }
        Scenario::Scrapers => {
            let count = model.random.usize(12..30);
            model.scrapers(count);
            expected.attacks.push(&[IncidentKind::Scraping]);
        }
        Scenario::Office => {
            for _ in 0..3 {
                let size = model.random.usize(if is_judging { 5..200 } else { 8..120 });
                model.office(size, 0.3);
            }
        }
        Scenario::Carrier => {
            for _ in 0..8 {
                let size = model.random.usize(60..200);
                model.office(size, 0.2);
            }
        }
        Scenario::Expiry => {
            let count = model.random.usize(of(800, 1_500));
            model.tokens(count, 0.0, 401, 38);
            expected.refusals = true;
        }
        Scenario::ProviderDown => expected.refusals = people >= 60,
        Scenario::Telemetry => {
            let count = model.random.usize(of(300, 900));
            model.tokens(count, 1.0, 401, 1);
            expected.refusals = true;
        }
        Scenario::Permissions => {
            let count = model.random.usize(of(100, 300));
            model.tokens(count, 0.3, 403, 3);
            expected.refusals = true;
        }
        Scenario::Partners => model.partners(),
        Scenario::EndedSessions => {
            let count = model.random.usize(of(60, 200));
            model.ended_sessions(count);
            expected.refusals = true;
        }
        Scenario::Mixed => {
            let (count, expired) = (model.random.usize(of(300, 500)), model.random.usize(of(400, 800)));
            model.attackers(count, 200, (1.0, 6.0), true, false);
            model.tokens(expired, 0.5, 401, 30);
            model.office(40, 0.3);
            expected.attacks.push(LOGINS);
            expected.refusals = true;
        }
    }
    let mut requests = model.requests;
    requests.sort_by(|a, b| a.time.total_cmp(&b.time));
    (requests, expected)
}

/// A process, reduced to its records.
struct Process {
    registry: ClientRegistry,
    recorder: Recorder,
    ticks: TickReceiver,
}

impl Process {
    fn new() -> Self {
        let metrics = Metrics::new(&telemetry::testing::config(), 1);
        let routes: Vec<_> = (0..ROUTES)
            .map(|route| RecordedRoute { name: format!("route-{route}").into(), guards_logins: false })
            .collect();
        let retain = std::time::Duration::from_secs(86_400);
        let registry = ClientRegistry::new(&[policy()], retain, Arc::clone(&metrics))
            .without_peers()
            .with_routes(&routes);
        let (sender, ticks) = tick_queue(registry.queued_bytes());
        let watched = Arc::clone(&registry.watched);
        let recorder = Recorder::new(sender, registry.policies(), registry.names(), watched, metrics);
        Self { registry, recorder, ticks }
    }

    fn incidents(&self) -> &Incidents {
        self.registry.incidents()
    }

    fn tick(&self, now: i64) {
        self.recorder.flush();
        while let Some(tick) = self.ticks.try_recv() {
            self.registry.record(tick, now);
        }
        self.registry.look_for_incidents(now);
        self.registry.sweep(now);
    }

    /// What was usual in the hour and the day before: people who log in.
    fn had_a_day_before(&self, logins: u64) {
        let minutes = (START / 60 / SECOND - 1_500)..(START / 60 / SECOND);
        self.incidents().set_usual(minutes, "route-0", 2, logins / 9);
    }

    fn send(&self, request: &Traced) {
        let now = START + (request.time * 1e6) as i64;
        let mut headers = HeaderMap::new();
        headers.insert("user-agent", HeaderValue::from_static(request.agent));
        if let Some(cookie) = &request.cookie {
            headers.insert("cookie", format!("sid={cookie}").parse().unwrap());
            headers.insert("sec-fetch-mode", HeaderValue::from_static("navigate"));
        }
        let method = if request.is_post { Method::POST } else { Method::GET };
        let line = RequestLine {
            is_safe: !request.is_post,
            path: &request.path,
            query: None,
            headers: Some(&headers),
            is_logged: false,
        };
        let is_customer = request.role == Role::Customer;
        if request.is_denied {
            let shown = address::shown(request.client);
            let identifier = match is_customer {
                true => format!("user:{}", request.user.as_deref().unwrap_or_default()),
                false => address::identifier(&shown).to_string(),
            };
            let denial = DenialReport {
                address: &shown,
                policy: 0,
                identifier: &identifier,
                user: request.user.as_deref().filter(|_| is_customer),
                is_user_verified: is_customer,
                is_customer,
                now,
                until: now + SECOND,
            };
            let entry = || {
                Arc::new(Entry {
                    time: now,
                    user: None,
                    method: method.clone(),
                    path: request.path.as_str().into(),
                })
            };
            self.recorder.record(&denial, || line, entry);
            return;
        }
        let status = StatusCode::from_u16(request.status).unwrap();
        self.incidents().count_response(&format!("route-{}", request.route), request.status < 400);
        let is_watched = self.recorder.watches(request.client.addr());
        if is_watched || matches!(request.status, 401 | 403) {
            let response = ObservedResponse {
                client: request.client,
                route: request.route,
                method: &method,
                request: RequestLine { headers: None, ..line },
                signs: is_watched.then(|| Signs::of(&headers, &request.path, false)),
                credential: request.credential,
                user: request.user.as_deref(),
                may_be_attempt: true,
                is_customer,
                status,
                now,
            };
            self.recorder.note_response(&response);
            self.recorder.record_response(&response);
        }
    }
}

/// What was found of a trace.
struct Judged {
    /// Members of the attacks that are attackers, all that are members, and all attackers.
    right: usize,
    members: usize,
    attackers: usize,
    /// Customers and offices among the members.
    innocent: usize,
    missed_attack: bool,
    false_attack: bool,
    missed_refusals: bool,
    /// Offices that are called a script, and scripts that are called an office.
    confused: usize,
    told: usize,
}

fn judge(scenario: Scenario, seed: u64) -> Judged {
    let (requests, expected) = draw(scenario, seed);
    let process = Process::new();
    process.had_a_day_before(300);
    let mut next_tick = 0.1;
    for request in &requests {
        while request.time >= next_tick {
            process.tick(START + (next_tick * 1e6) as i64);
            next_tick += 0.1;
        }
        process.send(request);
    }
    let end = START + 560 * SECOND;
    process.tick(end);
    process.tick(end + 6 * SECOND);
    let all = process.incidents().all(end + 7 * SECOND);
    let attacks: Vec<_> = all.iter().filter(|kept| kept.incident.kind.is_attack()).collect();
    let members: BTreeSet<IpNet> =
        attacks.iter().flat_map(|kept| kept.incident.members.keys().copied()).collect();
    let of_role = |role: Role| -> BTreeSet<IpNet> {
        requests.iter().filter(|request| request.role == role).map(|request| request.client).collect()
    };
    let (attackers, offices, customers) =
        (of_role(Role::Attacker), of_role(Role::Office), of_role(Role::Customer));
    let is_found = |kinds: &&[IncidentKind]| attacks.iter().any(|kept| kinds.contains(&kept.incident.kind));
    let missed_attack = !expected.attacks.iter().all(is_found);
    let is_expected = |kind: IncidentKind| expected.attacks.iter().any(|kinds| kinds.contains(&kind));
    let false_attack = attacks.iter().any(|kept| !is_expected(kept.incident.kind));
    let has_refusals = all.iter().any(|kept| kept.incident.kind == IncidentKind::Refusals);
    let hints = process.registry.clients(end, |_| true);
    let (mut confused, mut told) = (0, 0);
    for client in &hints {
        let is_script = matches!(client.hint, Hint::Scraping | Hint::Flood);
        let wrong = offices.contains(&client.address) && is_script
            || attackers.contains(&client.address) && client.hint == Hint::SharedAddress;
        told += usize::from(offices.contains(&client.address) || attackers.contains(&client.address));
        confused += usize::from(wrong);
    }
    for kept in &all {
        println!("  {scenario:?} {seed}: {}", kept.incident.sentence());
    }
    Judged {
        right: members.intersection(&attackers).count(),
        members: members.len(),
        attackers: if expected.attacks.is_empty() { 0 } else { attackers.len() },
        innocent: members.intersection(&offices).count() + members.intersection(&customers).count(),
        missed_attack,
        false_attack,
        missed_refusals: expected.refusals && !has_refusals,
        confused,
        told,
    }
}

#[test]
fn attacks_are_told_from_refusals_and_members_from_people() {
    let (mut members, mut right, mut attackers, mut wrong) = (0, 0, 0, Vec::new());
    println!(
        "| traffic | traces | attacks found | members right | attackers found | offices, customers in attacks | refusals found | people and scripts confused |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    let (mut told, mut confused) = (0, 0);
    let mut rows = Vec::new();
    for (nth, scenario) in SCENARIOS.into_iter().enumerate() {
        let seeds: Vec<u64> = (0..TRACES).filter(|seed| *seed as usize % SCENARIOS.len() == nth).collect();
        let judged: Vec<_> = seeds.iter().map(|&seed| judge(scenario, seed)).collect();
        let sum = |of: fn(&Judged) -> usize| judged.iter().map(of).sum::<usize>();
        let row = [sum(|of| of.right), sum(|of| of.members), sum(|of| of.attackers), sum(|of| of.innocent)];
        for (seed, of) in seeds.iter().zip(&judged) {
            if of.missed_attack || of.false_attack || of.missed_refusals || of.innocent > 0 {
                wrong.push(format!(
                    "{scenario:?} {seed}: missed {}, false {}, refusals missed {}, innocent {}",
                    of.missed_attack, of.false_attack, of.missed_refusals, of.innocent
                ));
            }
        }
        (right, members, attackers) = (right + row[0], members + row[1], attackers + row[2]);
        (told, confused) = (told + sum(|of| of.told), confused + sum(|of| of.confused));
        rows.push(format!(
            "| {scenario:?} | {} | {} | {} of {} | {} of {} | {} | {} | {} of {} |",
            judged.len(),
            judged.iter().filter(|of| !of.missed_attack && !of.false_attack).count(),
            row[0],
            row[1],
            row[0],
            row[2],
            row[3],
            judged.iter().filter(|of| !of.missed_refusals).count(),
            sum(|of| of.confused),
            sum(|of| of.told)
        ));
    }
    rows.iter().for_each(|row| println!("{row}"));
    assert_eq!(wrong, [""; 0]);
    assert!(right * 100 >= members * 95, "{right} of {members} members are attackers");
    assert!(right * 100 >= attackers * 95, "{right} of {attackers} attackers are members");
    assert!(confused * 100 <= told * 5, "{confused} of {told} are confused");
}
