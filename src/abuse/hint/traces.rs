//! Tests whether hints are right: generated traffic of a known class, limited as by a proxy, recorded as by workers,
//! and merged as by the registry.
//!
//! The thresholds were set by [`TUNING`]. [`JUDGING`] has other seeds and parameters, and was not used to set them.

use std::{ops::Range, sync::Arc};

use fastrand::Rng;
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use super::{
    super::{
        ClientRegistry, Credential, DenialReport, ObservedResponse, Recorder, RequestLine, Signs, address,
        is_refusal,
        recording::queue::{TickReceiver, tick_queue},
        testing::{SECOND, policy},
    },
    Hint,
};
use crate::{
    limit::algorithm::metadata_list::Entry,
    telemetry::{self, metrics::Metrics},
};

const TICK: i64 = SECOND / 10;
const BROWSERS: [&str; 3] = [
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/131.0.0.0 Safari/537.36",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) Version/18.1 Safari/605.1.15",
    "Mozilla/5.0 (X11; Linux x86_64; rv:133.0) Gecko/20100101 Firefox/133.0",
];
/// A Wednesday in 2026.
const START: i64 = 1_783_080_000 * SECOND;
const ADDRESS: &str = "203.0.113.7";
/// Maximum number of requests of a trace.
const LONGEST: usize = 20_000;

/// A request of a trace, and the upstream's response if it is admitted. Times are seconds since the trace's start.
#[derive(Debug, Clone)]
struct TracedRequest {
    time: f64,
    user: Option<String>,
    method: Method,
    path: String,
    query: Option<String>,
    status: u16,
    headers: HeaderMap,
}

/// Requests of one client.
struct ClientTrace {
    requests: Vec<TracedRequest>,
    /// Requests per second that are admitted in the long run, and at once.
    limit: (f64, f64),
}

/// The ranges from which the parameters of traces are drawn.
struct Parameters {
    seed: u64,
    /// Requests per second.
    flood: Range<f64>,
    retries: Range<f64>,
    scraper: Range<f64>,
    guesser: Range<f64>,
    stuffer: Range<f64>,
    /// Requests of one person per minute.
    person: Range<f64>,
    /// Seconds.
    flooding: Range<f64>,
    lasting: Range<f64>,
    /// Users behind a carrier's address, and in an office.
    carrier: Range<f64>,
    office: Range<f64>,
    /// Users whose passwords are guessed.
    victims: Range<f64>,
    /// Shares of guessed passwords that are right, and of passwords that people mistype.
    guessed: Range<f64>,
    mistyped: Range<f64>,
    /// URLs that a scraper requests again.
    revisited: Range<f64>,
    /// The share of the requests that the limit admits.
    admitted: Range<f64>,
}

const TUNING: Parameters = Parameters {
    seed: 1,
    flood: 70.0..400.0,
    retries: 18.0..60.0,
    scraper: 1.0..25.0,
    guesser: 0.2..15.0,
    stuffer: 0.3..25.0,
    person: 2.0..15.0,
    flooding: 5.0..40.0,
    lasting: 60.0..900.0,
    carrier: 5.0..400.0,
    office: 6.0..60.0,
    victims: 1.0..4.0,
    guessed: 0.0..0.05,
    mistyped: 0.02..0.2,
    revisited: 0.0..0.3,
    admitted: 0.1..0.8,
};

const JUDGING: Parameters = Parameters {
    seed: 0x20_26_11_22,
    flood: 60.0..700.0,
    retries: 16.0..90.0,
    scraper: 0.7..35.0,
    guesser: 0.1..25.0,
    stuffer: 0.2..40.0,
    person: 1.0..20.0,
    flooding: 4.0..60.0,
    lasting: 45.0..1_500.0,
    carrier: 5.0..500.0,
    office: 5.0..90.0,
    victims: 1.0..5.0,
    guessed: 0.0..0.1,
    mistyped: 0.01..0.25,
    revisited: 0.0..0.4,
    admitted: 0.05..0.9,
};

/// Draws traces.
struct Model<'a> {
    random: Rng,
    parameters: &'a Parameters,
}

impl Model<'_> {
    fn between(&mut self, range: &Range<f64>) -> f64 {
        range.start + self.random.f64() * (range.end - range.start)
    }

    /// Draws small numbers as often as large ones.
    fn log_between(&mut self, range: &Range<f64>) -> f64 {
        (self.between(&(range.start.ln()..range.end.ln()))).exp()
    }

    fn has(&mut self, chance: f64) -> bool {
        self.random.f64() < chance
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.random.usize(..of.len())]
    }

    /// Times at this rate for this number of seconds: even, random, or with breaks.
    fn times(&mut self, rate: f64, lasts: f64) -> Vec<f64> {
        let (is_even, with_breaks) = (self.has(0.3), self.has(0.3));
        let (mut times, mut time) = (Vec::new(), 0.0);
        while time < lasts && times.len() < LONGEST {
            times.push(time);
            time += if is_even { 1.0 / rate } else { -(1.0 - self.random.f64()).ln() / rate };
            if with_breaks && self.has(0.02) {
                time += self.between(&(1.0..10.0));
            }
        }
        times
    }

    fn get(time: f64, user: Option<&str>, path: &str) -> TracedRequest {
        let (path, query) = match path.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (path, None),
        };
        let (user, path) = (user.map(str::to_owned), path.to_owned());
        let headers = HeaderMap::new();
        TracedRequest { time, user, method: Method::GET, path, query, status: 200, headers }
    }

    fn trace(&mut self, mut requests: Vec<TracedRequest>) -> ClientTrace {
        requests.sort_by(|one, other| one.time.total_cmp(&other.time));
        let lasts = requests.last().map_or(1.0, |request| request.time.max(1.0));
        let admitted = self.between(&self.parameters.admitted.clone());
        let rate = requests.len() as f64 / lasts * admitted;
        let burst = self.between(&(1.0..(requests.len() as f64 / 6.0).clamp(2.0, 60.0)));
        ClientTrace { requests, limit: (rate, burst) }
    }

    fn draw(&mut self, class: Hint) -> ClientTrace {
        let requests = match class {
            Hint::Flood => self.flood(),
            Hint::Scraping => self.scraping(),
            Hint::PasswordGuessing => self.guessing(),
            Hint::CredentialStuffing => self.stuffing(),
            Hint::SharedAddress => self.shared(),
            Hint::Unknown => self.anything_else(),
        };
        let mut requests = requests;
        self.dress(class, &mut requests);
        self.trace(requests)
    }

    /// Gives the requests the fields that such a client sends.
    fn dress(&mut self, class: Hint, requests: &mut [TracedRequest]) {
        let (kind, has_cookies) = (self.random.u8(..4), self.has(0.7));
        let own = BROWSERS[self.random.usize(..BROWSERS.len())];
        for (nth, request) in requests.iter_mut().enumerate() {
            let is_of_people = matches!(class, Hint::SharedAddress | Hint::Unknown);
            let user = request.user.as_deref().unwrap_or_default();
            // The same for all requests of a user.
            let of_user = user.bytes().map(usize::from).sum::<usize>();
            let agent = match (is_of_people, kind) {
                (true, _) => BROWSERS[of_user % BROWSERS.len()].to_owned(),
                (false, 0) => "python-requests/2.32.3".to_owned(),
                (false, 1) => format!("Mozilla/5.0 (rotating {nth})"),
                (false, _) => own.to_owned(),
            };
            request.headers.insert("user-agent", HeaderValue::from_str(&agent).unwrap());
            // One session, or none as no browser sends it.
            let cookie = match (is_of_people, kind) {
                (true, _) => has_cookies.then(|| format!("sid=session-of-{user}")),
                (false, 2) => Some("sid=a-single-session".to_owned()),
                (false, _) => None,
            };
            if let Some(cookie) = cookie {
                request.headers.insert("cookie", HeaderValue::from_str(&cookie).unwrap());
            }
        }
    }

    /// One path, several, or another query each time; or a client that retries at once.
    fn flood(&mut self) -> Vec<TracedRequest> {
        let (kind, parameters) = (self.random.u8(..5), self.parameters);
        let rate = self.log_between(if kind == 4 { &parameters.retries } else { &parameters.flood });
        let lasts = self.between(&parameters.flooding).max(400.0 / rate);
        let paths: Vec<_> = match kind {
            1 => (0..self.random.usize(2..9)).map(|n| format!("/api/{n}")).collect(),
            _ => vec![self.pick(&["/", "/api/search", "/api/orders", "/graphql", "/api/login"]).to_owned()],
        };
        let accounts = self.random.usize(..4);
        let (makes_up_users, is_post) = (kind == 3, self.has(0.3));
        let times = self.times(rate, lasts);
        let request = |(n, time): (usize, f64)| {
            let user = match (makes_up_users, accounts) {
                (true, _) => Some(format!("{:x}", self.random.u32(..))),
                (false, 0) => None,
                (false, accounts) => Some(format!("account-{}", n % accounts)),
            };
            let path = paths[self.random.usize(..paths.len())].clone();
            let query = (kind == 2).then(|| self.random.u32(..).to_string());
            let method = if is_post { Method::POST } else { Method::GET };
            let status = if self.has(0.1) { 503 } else { 200 };
            TracedRequest { time, user, method, path, query, status, headers: HeaderMap::new() }
        };
        times.into_iter().enumerate().map(request).collect()
    }

    /// One product or page after the other.
    fn scraping(&mut self) -> Vec<TracedRequest> {
        let rate = self.log_between(&self.parameters.scraper.clone());
        let lasts = self.between(&self.parameters.lasting.clone()).max(150.0 / rate);
        let accounts = self.random.usize(..4);
        let revisited = self.between(&self.parameters.revisited.clone());
        let refused = if self.has(0.3) { 0.3 } else { 0.0 };
        let kind = self.random.u8(..3);
        let times = self.times(rate, lasts);
        let mut next = 0;
        let request = |(n, time): (usize, f64)| {
            let user = (accounts > 0).then(|| format!("trial-{}", n % accounts.max(1)));
            let page = if next > 0 && self.has(revisited) { self.random.usize(..next) } else { next };
            next = next.max(page + 1);
            let path = match kind {
                0 => format!("/products/{page}"),
                1 => format!("/api/prices?page={page}"),
                _ => format!("/{}/{}/{page}", ["books", "music", "toys"][page % 3], page / 50),
            };
            let status = if self.has(refused) { 403 } else { 200 };
            TracedRequest { status, ..Self::get(time, user.as_deref(), &path) }
        };
        times.into_iter().enumerate().map(request).collect()
    }

    /// Few known users, or none, and one password after the other; often slowly, or from many addresses including
    /// this one.
    fn guessing(&mut self) -> Vec<TracedRequest> {
        let rate = self.log_between(&self.parameters.guesser.clone());
        let is_distributed = self.has(0.3);
        let lasts = match is_distributed {
            true => self.between(&(15.0..40.0)) / rate,
            false => self.between(&self.parameters.lasting.clone()).max(40.0 / rate),
        };
        let is_known = self.has(0.7);
        let victims = self.between(&self.parameters.victims.clone()).round() as usize;
        let guessed = self.between(&self.parameters.guessed.clone());
        let path = self.pick(&["/api/login", "/login", "/oauth/token", "/users/sign_in"]);
        let (asks_form_first, status) = (self.has(0.2), if self.has(0.2) { 403 } else { 401 });
        let times = self.times(rate, lasts);
        let mut requests = Vec::new();
        for (n, time) in times.into_iter().enumerate() {
            let user = is_known.then(|| format!("victim-{}", n % victims));
            if asks_form_first {
                requests.push(Self::get(time, None, path));
            }
            let status = if self.has(guessed) { 200 } else { status };
            let attempt = Self::get(time + 0.01, user.as_deref(), path);
            requests.push(TracedRequest { method: Method::POST, status, ..attempt });
        }
        requests
    }

    /// A list of leaked passwords: each user once, or a few times.
    fn stuffing(&mut self) -> Vec<TracedRequest> {
        let rate = self.log_between(&self.parameters.stuffer.clone());
        let lasts = self.between(&self.parameters.lasting.clone()).max(60.0 / rate);
        let guessed = self.between(&self.parameters.guessed.clone());
        let each = self.random.usize(1..4);
        let path = self.pick(&["/api/login", "/login", "/oauth/token", "/users/sign_in"]);
        let status = if self.has(0.2) { 403 } else { 401 };
        let times = self.times(rate, lasts);
        let request = |(n, time): (usize, f64)| {
            let user = format!("leaked-{}", n / each);
            let status = if self.has(guessed) { 200 } else { status };
            TracedRequest { method: Method::POST, status, ..Self::get(time, Some(&user), path) }
        };
        times.into_iter().enumerate().map(request).collect()
    }

    /// A mobile carrier or an office: people who use the same application.
    fn shared(&mut self) -> Vec<TracedRequest> {
        let of = if self.has(0.6) { &self.parameters.carrier } else { &self.parameters.office };
        let users = self.log_between(of).round() as usize;
        let lasts = self.between(&self.parameters.lasting.clone());
        let mistyped = self.between(&self.parameters.mistyped.clone());
        let is_morning = self.has(0.3);
        let mut requests = Vec::new();
        for user in 0..users {
            let user = format!("person-{user}");
            let rate = self.log_between(&self.parameters.person.clone()) / 60.0;
            let (begins, stays) = (self.random.f64() * lasts, self.between(&(60.0..600.0)));
            let begins = if self.has(0.5) { 0.0 } else { begins };
            if is_morning || self.has(0.3) {
                for nth in 0..9 {
                    let is_wrong = self.has(mistyped);
                    let login = Self::get(begins + f64::from(nth), Some(&user), "/api/login");
                    let status = if is_wrong { 401 } else { 200 };
                    requests.push(TracedRequest { method: Method::POST, status, ..login });
                    if !is_wrong {
                        break;
                    }
                }
            }
            for time in self.times(rate, stays.min(lasts - begins).max(1.0)) {
                let path = match self.random.u8(..10) {
                    0..4 => self.pick(&["/api/me", "/api/feed", "/api/orders", "/api/messages"]).to_owned(),
                    4..7 => format!("/api/orders/{}", self.random.u16(..400)),
                    7 => format!("/api/feed?before={}", self.random.u16(..)),
                    _ => "/api/messages".to_owned(),
                };
                let method = if self.has(0.15) { Method::POST } else { Method::GET };
                let status = if self.has(0.01) { 403 } else { 200 };
                requests.push(TracedRequest {
                    method,
                    status,
                    ..Self::get(begins + time, Some(&user), &path)
                });
            }
        }
        requests.truncate(LONGEST);
        requests
    }

    /// Traffic of no class.
    fn anything_else(&mut self) -> Vec<TracedRequest> {
        let lasts = self.between(&self.parameters.lasting.clone());
        let user = self.has(0.7).then_some("acme");
        match self.random.u8(..6) {
            // A page with its parts, now and then.
            0 => {
                let parts = self.random.usize(8..22);
                let pauses = self.times(0.03, lasts);
                let part = |(n, begin): (usize, f64)| {
                    let time = begin + n as f64 * 0.02;
                    Self::get(time, user, &format!("/static/{n}"))
                };
                pauses.into_iter().flat_map(|begin| (0..parts).map(move |n| (n, begin))).map(part).collect()
            }
            // A job that fails and retries, not often.
            1 => {
                let rate = self.log_between(&(0.1..6.0));
                let status = if self.has(0.5) { 503 } else { 200 };
                let times = self.times(rate, lasts.max(20.0 / rate));
                let request = |time| TracedRequest {
                    method: Method::POST,
                    status,
                    ..Self::get(time, user, "/api/jobs")
                };
                times.into_iter().map(request).collect()
            }
            // An application with an expired token.
            2 => {
                let rate = self.log_between(&(0.1..4.0));
                let times = self.times(rate, lasts.max(20.0 / rate));
                let paths = ["/api/feed", "/api/messages", "/api/me"];
                let paths = &paths[..self.random.usize(1..4)];
                let request = |time| TracedRequest { status: 401, ..Self::get(time, user, self.pick(paths)) };
                times.into_iter().map(request).collect()
            }
            // A backend that synchronises.
            3 => {
                let rate = self.log_between(&(0.5..8.0));
                let times = self.times(rate, lasts.max(60.0 / rate));
                let things = self.random.usize(4..25);
                let request = |time| {
                    let method = if self.has(0.4) { Method::PUT } else { Method::GET };
                    let path = format!("/api/stock/{}", self.random.usize(..things));
                    TracedRequest { method, ..Self::get(time, user, &path) }
                };
                times.into_iter().map(request).collect()
            }
            // Too little traffic for a hint.
            4 => {
                let times = self.times(1.0, 12.0);
                let times = times.into_iter().take(8);
                times.map(|time| Self::get(time, user, &format!("/api/{}", self.random.u8(..9)))).collect()
            }
            // A family.
            _ => {
                let people = self.random.usize(2..4);
                let times = self.times(0.5, lasts);
                let request = |time| {
                    let user = format!("person-{}", self.random.usize(..people));
                    let path = format!("/api/films/{}", self.random.u8(..12));
                    let is_login = self.has(0.05);
                    let request = Self::get(time, Some(&user), if is_login { "/api/login" } else { &path });
                    let status = if is_login && self.has(0.3) { 401 } else { 200 };
                    let method = if is_login || self.has(0.2) { Method::POST } else { Method::GET };
                    TracedRequest { method, status, ..request }
                };
                times.into_iter().map(request).collect()
            }
        }
    }
}

/// A proxy with one limit, reduced to its records.
struct ProxyModel {
    registry: ClientRegistry,
    recorder: Recorder,
    ticks: TickReceiver,
}

impl ProxyModel {
    fn new() -> Self {
        let metrics = Metrics::new(&telemetry::testing::config(), 1);
        let retain = std::time::Duration::from_secs(3_600);
        let registry = ClientRegistry::new(&[policy()], retain, Arc::clone(&metrics)).without_peers();
        let (sender, ticks) = tick_queue(registry.queued_bytes());
        let watched = Arc::clone(&registry.watched);
        let recorder = Recorder::new(sender, registry.policies(), registry.names(), watched, metrics);
        Self { registry, recorder, ticks }
    }

    fn tick(&self, now: i64) {
        self.recorder.flush();
        while let Some(tick) = self.ticks.try_recv() {
            self.registry.record(tick, now);
        }
        self.registry.sweep(now);
    }

    /// The hint and its reasons, after all requests of the client.
    fn hint(&self, trace: &ClientTrace) -> Option<(Hint, String)> {
        let (rate, burst) = trace.limit;
        let (mut tokens, mut before, mut ticked) = (burst, 0.0, START);
        let client = address::parse(ADDRESS).unwrap();
        let mut now = START;
        for request in &trace.requests {
            now = START + (request.time * 1e6) as i64;
            if now - ticked >= TICK {
                self.tick(now);
                ticked = now;
            }
            tokens = (tokens + (request.time - before) * rate).min(burst);
            before = request.time;
            let line = RequestLine {
                is_safe: request.method.is_safe(),
                path: &request.path,
                query: request.query.as_deref(),
                headers: Some(&request.headers),
                is_logged: false,
            };
            if tokens < 1.0 {
                let denial = DenialReport {
                    address: ADDRESS,
                    policy: 0,
                    identifier: "ip:203.0.113.7",
                    user: request.user.as_deref(),
                    is_user_verified: false,
                    is_customer: false,
                    now,
                    until: now + SECOND,
                };
                let entry = || {
                    Arc::new(Entry {
                        time: now,
                        user: request.user.as_deref().map(Into::into),
                        method: request.method.clone(),
                        path: request.path.as_str().into(),
                    })
                };
                self.recorder.record(&denial, || line, entry);
                continue;
            }
            tokens -= 1.0;
            let status = StatusCode::from_u16(request.status).unwrap();
            let is_watched = self.recorder.watches(client.addr());
            if is_watched || is_refusal(status) {
                self.recorder.record_response(&ObservedResponse {
                    client,
                    route: 0,
                    method: &request.method,
                    request: RequestLine { headers: None, ..line },
                    signs: is_watched.then(|| Signs::of(&request.headers, &request.path, false)),
                    credential: Credential::None,
                    user: None,
                    may_be_attempt: true,
                    is_customer: false,
                    status,
                    now,
                });
            }
        }
        self.tick(now);
        self.registry.find(client, now).map(|(client, ..)| (client.hint, client.reasons))
    }
}

/// The hints for `count` traces per class. Wrong ones are printed.
fn confusion(parameters: &Parameters, count: usize) -> [[usize; 6]; 6] {
    let mut matrix = [[0; 6]; 6];
    for (row, class) in Hint::ALL.into_iter().enumerate() {
        let mut model = Model { random: Rng::with_seed(parameters.seed ^ (row as u64) << 32), parameters };
        let mut drawn = 0;
        while drawn < count {
            let trace = model.draw(class);
            // A client that its limit never denies is not listed.
            let Some((hint, reasons)) = ProxyModel::new().hint(&trace) else { continue };
            drawn += 1;
            if hint != class {
                println!("{}: {}: {reasons}", class.name(), hint.name());
            }
            let column = Hint::ALL.iter().position(|&of| of == hint).unwrap();
            matrix[row][column] += 1;
        }
    }
    println!("{:20} {}", "", Hint::ALL.map(|class| format!("{:>20}", class.name())).concat());
    for (row, class) in matrix.iter().zip(Hint::ALL) {
        println!("{:20} {}", class.name(), row.map(|count| format!("{count:>20}")).concat());
    }
    matrix
}

/// The share of the traces with the right hint, in percent.
fn right(matrix: &[[usize; 6]; 6]) -> usize {
    let right = (0..6).map(|class| matrix[class][class]).sum::<usize>();
    right * 100 / matrix.iter().flatten().sum::<usize>()
}

#[test]
fn hints_are_right_for_the_traces_that_they_were_made_by() {
    let matrix = confusion(&TUNING, 20);
    assert!(right(&matrix) >= 95, "{} %", right(&matrix));
}

#[test]
fn hints_are_right_for_traces_that_they_were_not_made_by() {
    let matrix = confusion(&JUDGING, 20);
    assert!(right(&matrix) >= 95, "{} %", right(&matrix));
    for (class, row) in Hint::ALL.iter().zip(&matrix) {
        let of_class = row[Hint::ALL.iter().position(|of| of == class).unwrap()];
        assert!(of_class >= 17, "{}: {row:?}", class.name());
    }
}
