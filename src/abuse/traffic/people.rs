//! Signs that people are behind a client, or a script.

use http::{HeaderMap, header};
use memchr::{memchr, memmem};
use serde::{Deserialize, Serialize};

use super::{request_line::value_hash, sketch::Sketch};

/// From this number of sessions or `User-Agent`s on, many people share an address.
const MANY: u32 = 5;
/// Of more, a sketch does not tell how many there are.
const COUNTLESS: u32 = 350;
/// A session or a `User-Agent` of a person has this many requests on average: made-up ones have one each.
const REQUESTS_EACH: u32 = 3;
/// The most requests of a person per minute.
const MOST_PER_MINUTE: f64 = 40.0;
/// Fewer heads, or gaps between requests, prove nothing.
const FEW: u32 = 20;
/// The share of all heads that have a sign of a script, if it is one.
const NEARLY_ALL: f64 = 0.9;
/// Gaps in microseconds that count: shorter ones are between the requests of one tick, longer ones are breaks.
const SHORTEST_GAP: i64 = 100_000;
const LONGEST_GAP: i64 = 30_000_000;
/// The deviation of gaps from their mean, relative to it, of requests that come evenly. Of those that people send, it is 1.
const EVEN: f64 = 0.35;

/// `User-Agent`s of programs begin with one of these, or have one of these words.
const PROGRAMS: [&[u8]; 9] = [
    b"curl/",
    b"wget/",
    b"python",
    b"go-http-client",
    b"java/",
    b"libwww",
    b"scrapy",
    b"node-fetch",
    b"axios/",
];
const ROBOTS: [&[u8]; 7] = [b"bot", b"Bot", b"spider", b"Spider", b"crawl", b"Crawl", b"Headless"];
/// Bytes of a `User-Agent`, and of a line of cookies, that are looked at.
const LOOKED_AT: usize = 256;
const COOKIES_LOOKED_AT: usize = 2_048;
/// Names of cookies that identify a session contain one of these.
const SESSIONS: [&str; 6] = ["sess", "sid", "auth", "token", "login", "remember"];
/// A shorter value identifies nobody.
const SHORTEST_SESSION: usize = 8;
/// Files that belong to a page.
const ASSETS: [&str; 12] =
    [".js", ".mjs", ".css", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", ".ico", ".woff", ".woff2"];

/// What one request tells about who has sent it. Values are hashed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Signs {
    agent: Option<u32>,
    session: Option<u32>,
    is_page: bool,
    is_asset: bool,
    /// Its `User-Agent` is a program's, or it has none.
    is_of_program: bool,
    /// It claims to come from a browser, and lacks all fields that browsers add.
    is_pretended: bool,
}

impl Signs {
    /// `path`: of the request, without the query. `is_logged`: a log may lack fields, so that nothing follows from their absence.
    pub fn of(headers: &HeaderMap, path: &str, is_logged: bool) -> Self {
        let agent = headers.get(header::USER_AGENT).map(|value| value.as_bytes());
        let destination = headers.get("sec-fetch-dest").map(|value| value.as_bytes());
        let is_file = ASSETS.iter().any(|end| path.ends_with(end));
        let accepts_page =
            || headers.get(header::ACCEPT).is_some_and(|accept| accept.as_bytes().starts_with(b"text/html"));
        let (is_page, is_asset) = match destination {
            Some(b"document" | b"iframe") => (true, false),
            Some(b"script" | b"style" | b"image" | b"font") => (false, true),
            _ => (!is_file && accepts_page(), is_file),
        };
        let is_of_browser = destination.is_some()
            || [header::COOKIE, header::REFERER].iter().any(|name| headers.contains_key(name))
            || headers.contains_key("sec-fetch-mode");
        Self {
            agent: agent.map(value_hash),
            session: session(headers),
            is_page,
            is_asset,
            is_of_program: agent.map_or(!is_logged, is_program),
            is_pretended: !is_logged
                && !is_of_browser
                && agent.is_some_and(|agent| agent.starts_with(b"Mozilla/")),
        }
    }

    /// Whether its `User-Agent` is a program's, or it has none.
    pub(in crate::abuse) fn is_of_program(&self) -> bool {
        self.is_of_program
    }

    /// The hash of the `User-Agent`.
    pub(in crate::abuse) fn agent(&self) -> Option<u32> {
        self.agent
    }
}

fn is_program(agent: &[u8]) -> bool {
    let agent = &agent[..agent.len().min(LOOKED_AT)];
    let begins_with = |of: &&[u8]| agent.get(..of.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(of));
    PROGRAMS.iter().any(begins_with) || ROBOTS.iter().any(|of| memmem::find(agent, of).is_some())
}

/// The hash of what identifies a session: its cookie, or the credential of each request.
fn session(headers: &HeaderMap) -> Option<u32> {
    let cookies = headers.get_all(header::COOKIE).iter().map(|line| line.as_bytes());
    let cookies =
        cookies.flat_map(|line| line[..line.len().min(COOKIES_LOOKED_AT)].split(|&byte| byte == b';'));
    let value = |pair: &'_ [u8]| {
        let at = memchr(b'=', pair)?;
        let (name, value) = (pair[..at].trim_ascii(), &pair[at + 1..]);
        (value.len() >= SHORTEST_SESSION && is_of_session(name)).then(|| value_hash(value))
    };
    cookies.into_iter().find_map(value).or_else(|| {
        let credential = headers.get(header::AUTHORIZATION).or_else(|| headers.get("x-api-key"));
        credential.map(|value| value_hash(value.as_bytes()))
    })
}

/// Whether a cookie of this name identifies a session.
fn is_of_session(name: &[u8]) -> bool {
    let has = |part: &str| name.windows(part.len()).any(|of| of.eq_ignore_ascii_case(part.as_bytes()));
    !has("csrf") && SESSIONS.iter().any(|part| has(part))
}

/// The signs of all requests of a client that were looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct People {
    heads: u32,
    agents: Sketch,
    with_agent: u32,
    sessions: Sketch,
    with_session: u32,
    pages: u32,
    assets: u32,
    of_programs: u32,
    pretended: u32,
    gaps: Gaps,
}

/// The time between requests of a client that follow each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Gaps {
    /// When the last request came, in microseconds since the Unix epoch.
    #[serde(skip)]
    last: i64,
    count: u32,
    /// Milliseconds, beyond the shortest gap that counts; and the sum of their squares.
    sum: u64,
    squares: u64,
}

/// Who seems to be behind a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::abuse) enum Who {
    /// About so many people.
    People(u32),
    /// One client, for this reason.
    Script(&'static str),
    /// A few people or more, or a script: there are signs of both, or of none.
    Unclear,
}

impl People {
    /// Adds a request that counts for `weight` of them.
    pub(in crate::abuse) fn add(&mut self, signs: Signs, weight: u32) {
        let Signs { agent, session, is_page, is_asset, is_of_program, is_pretended } = signs;
        agent.into_iter().for_each(|hash| self.agents.add(hash));
        session.into_iter().for_each(|hash| self.sessions.add(hash));
        for (count, is_one) in [
            (&mut self.heads, true),
            (&mut self.with_agent, agent.is_some()),
            (&mut self.with_session, session.is_some()),
            (&mut self.pages, is_page),
            (&mut self.assets, is_asset),
            (&mut self.of_programs, is_of_program),
            (&mut self.pretended, is_pretended),
        ] {
            *count = count.saturating_add(if is_one { weight } else { 0 });
        }
    }

    /// Notes that there was a request at this time, the last one of a tick.
    pub(in crate::abuse) fn add_time(&mut self, time: i64) {
        let Gaps { last, count, sum, squares } = &mut self.gaps;
        let gap = time - *last;
        if gap < SHORTEST_GAP {
            *last = time.max(*last);
            return;
        }
        if *last > 0 && gap <= LONGEST_GAP {
            let milliseconds = (gap - SHORTEST_GAP).unsigned_abs() / 1_000;
            *count = count.saturating_add(1);
            *sum = sum.saturating_add(milliseconds);
            *squares = squares.saturating_add(milliseconds * milliseconds);
        }
        *last = time;
    }

    /// Adds the signs of other requests of the same client.
    pub(in crate::abuse) fn merge(&mut self, other: &Self) {
        self.agents.merge(other.agents);
        self.sessions.merge(other.sessions);
        for (count, more) in [
            (&mut self.heads, other.heads),
            (&mut self.with_agent, other.with_agent),
            (&mut self.with_session, other.with_session),
            (&mut self.pages, other.pages),
            (&mut self.assets, other.assets),
            (&mut self.of_programs, other.of_programs),
            (&mut self.pretended, other.pretended),
            (&mut self.gaps.count, other.gaps.count),
        ] {
            *count = count.saturating_add(more);
        }
        self.gaps.sum = self.gaps.sum.saturating_add(other.gaps.sum);
        self.gaps.squares = self.gaps.squares.saturating_add(other.gaps.squares);
        self.gaps.last = self.gaps.last.max(other.gaps.last);
    }

    /// The number of heads that were looked at.
    pub(in crate::abuse) fn heads(&self) -> u32 {
        self.heads
    }

    /// The approximate numbers of `User-Agent`s and of sessions.
    pub(in crate::abuse) fn counts(&self) -> (u32, u32) {
        (self.agents.count(), self.sessions.count())
    }

    /// Whether requests come as evenly as a script sends them.
    pub(in crate::abuse) fn is_even(&self) -> bool {
        let Gaps { count, sum, squares, .. } = self.gaps;
        let mean = as_f64(sum) / f64::from(count.max(1));
        let variance = as_f64(squares) / f64::from(count.max(1)) - mean * mean;
        count >= FEW && variance.max(0.0).sqrt() <= EVEN * mean
    }

    /// Who seems to be behind the client, by its requests in so many minutes. Anyone can make up cookies and `User-Agent`s, so
    /// that no sign proves people; and no sign of people proves no script.
    pub(in crate::abuse) fn who(&self, requests: u32, minutes: f64) -> Who {
        let (agents, sessions) = self.counts();
        let each_is_slow =
            |of: u32| f64::from(requests) <= MOST_PER_MINUTE * f64::from(of) * minutes.max(1.0);
        let are_people = |count: u32, with: u32| {
            (MANY..=COUNTLESS).contains(&count) && with / count >= REQUESTS_EACH && each_is_slow(count)
        };
        if are_people(sessions, self.with_session) && self.with_session >= self.heads / 2 {
            return Who::People(sessions);
        }
        let is_made_up = agents >= MANY && self.with_agent / agents < REQUESTS_EACH;
        if are_people(agents, self.with_agent) && self.pages >= agents && self.assets >= self.pages {
            return Who::People(agents);
        }
        let nearly_all = |count: u32| f64::from(count) >= NEARLY_ALL * f64::from(self.heads);
        let script = match () {
            () if self.heads < FEW => None,
            () if is_made_up => Some("with another User-Agent each time"),
            () if (1..=2).contains(&sessions) && nearly_all(self.with_session) => Some("in one session"),
            () if nearly_all(self.of_programs) => Some("with the User-Agent of a program"),
            () if nearly_all(self.pretended) => Some("as no browser sends them"),
            () => None,
        };
        match script {
            Some(reason) => Who::Script(reason),
            None if self.is_even() && agents < MANY && sessions < MANY => Who::Script("evenly"),
            None => Who::Unclear,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate")]
fn as_f64(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHROME: &str =
        "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/131.0.0.0 Safari/537.36";

    fn signs(path: &str, fields: &[(&'static str, &str)]) -> Signs {
        let fields = fields.iter().map(|&(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        Signs::of(&fields.collect(), path, false)
    }

    /// What is behind these requests, which a minute has.
    fn behind(requests: impl Iterator<Item = Signs>) -> Who {
        let mut people = People::default();
        requests.for_each(|signs| people.add(signs, 1));
        people.who(people.heads, 1.0)
    }

    #[test]
    fn a_head_tells_whether_a_browser_asks_for_a_page_or_for_a_part_of_it() {
        let page = signs("/", &[("user-agent", CHROME), ("sec-fetch-dest", "document")]);
        assert!(page.is_page && !page.is_asset && !page.is_pretended && !page.is_of_program);
        assert!(signs("/app.js", &[]).is_asset && signs("/a", &[("sec-fetch-dest", "image")]).is_asset);
        assert!(
            signs("/a", &[("accept", "text/html,*/*")]).is_page
                && !signs("/a.css", &[("accept", "text/html")]).is_page
        );
        assert!(signs("/", &[("user-agent", CHROME)]).is_pretended);
        for agent in ["curl/8.5.0", "Python-urllib/3.11", "Scrapy/2.11", "Googlebot/2.1"] {
            assert!(signs("/", &[("user-agent", agent)]).is_of_program, "{agent}");
        }
        assert!(
            signs("/", &[]).is_of_program
                && !signs("/", &[("user-agent", "Shop/7.1 CFNetwork")]).is_of_program
        );
    }

    #[test]
    fn a_session_is_a_cookie_of_that_name_or_a_credential() {
        let of = |fields: &[(&'static str, &str)]| signs("/", fields).session;
        let session = of(&[("cookie", "theme=dark; PHPSESSID=0123456789ab")]);
        assert!(session.is_some());
        assert_eq!(session, of(&[("cookie", "a=b"), ("cookie", "connect.sid=0123456789ab; lang=de")]));
        assert_eq!(of(&[("cookie", "theme=dark; csrf-token=0123456789ab; sid=1")]), None);
        assert_ne!(of(&[("authorization", "Bearer a")]), of(&[("authorization", "Bearer b")]));
        assert_eq!(of(&[("x-api-key", "Bearer a")]), of(&[("authorization", "Bearer a")]));
    }

    #[test]
    fn sessions_with_several_slow_requests_are_people() {
        let of = |nth: usize, people: usize| {
            signs("/a", &[("user-agent", CHROME), ("cookie", &format!("sid=session-{}", nth % people))])
        };
        assert!(matches!(behind((0..300).map(|nth| of(nth, 30))), Who::People(25..36)));
        assert_eq!(behind((0..90).map(|nth| of(nth, 90))), Who::Unclear, "made up");
        assert_eq!(behind((0..3_000).map(|nth| of(nth, 3_000))), Who::Unclear, "made up");
        assert_eq!(behind((0..3_000).map(|nth| of(nth, 6))), Who::Unclear, "too fast");
        assert_eq!(behind((0..100).map(|nth| of(nth, 1))), Who::Script("in one session"));
    }

    #[test]
    fn several_browsers_that_load_whole_pages_are_people() {
        let of = |nth: usize, with_parts: bool| {
            let agent = format!("{CHROME} {}", nth % 7);
            let kind = if with_parts && !(nth / 7).is_multiple_of(3) { "image" } else { "document" };
            signs("/a", &[("user-agent", &agent), ("sec-fetch-dest", kind)])
        };
        assert!(matches!(behind((0..210).map(|nth| of(nth, true))), Who::People(6..9)));
        assert_eq!(behind((0..210).map(|nth| of(nth, false))), Who::Unclear);
        let rotating = |nth: usize| signs("/a", &[("user-agent", &format!("{CHROME} {nth}"))]);
        assert_eq!(behind((0..100).map(rotating)), Who::Script("with another User-Agent each time"));
    }

    #[test]
    fn gaps_of_a_script_are_even() {
        let people = |gap: &mut dyn FnMut() -> f64| {
            let (mut people, mut time) = (People::default(), 1_783_080_000_000_000.0);
            for _ in 0..400 {
                time += gap() * 1e6;
                people.add_time(time as i64);
            }
            people
        };
        let mut random = fastrand::Rng::with_seed(7);
        for rate in [0.1, 1.0, 3.0, 6.0] {
            assert!(people(&mut || 1.0 / rate + random.f64() * 0.03).is_even(), "{rate}");
        }
        for rate in [0.1, 1.0, 9.0, 40.0] {
            assert!(!people(&mut || -(1.0 - random.f64()).ln() / rate).is_even(), "{rate}");
        }
        assert_eq!(people(&mut || 0.5).who(400, 3.0), Who::Script("evenly"));
    }
}
