//! Rate limits of other proxies, and the policies that take their place: both get the same requests, and admit what the pages say.

use std::{
    env, fs,
    net::{SocketAddr, TcpStream},
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use super::{Page, replace};
use crate::harness::{
    Client, Config, Origin, Running, Tollgate, eventually, haproxy, nginx, nobody, program, tollgate_in,
};

/// The proxy of a page and Tollgate in its place, before the same service.
struct Pair {
    theirs: SocketAddr,
    ours: SocketAddr,
    _proxy: Running,
    _directory: TempDir,
    _tollgate: Tollgate,
}

impl Pair {
    /// `changes` are made in the blocks of both.
    fn start(page: &Page, origin: &Origin, changes: &[(&str, &str)], our_changes: &[(&str, &str)]) -> Self {
        let (directory, theirs) = (TempDir::new().unwrap(), nobody());
        let service = origin.address.to_string();
        let is_nginx = page.name.ends_with("nginx.md");
        let (language, listen, listen_here) = match is_nginx {
            true => ("nginx", "listen 80;", format!("listen {theirs};")),
            false => ("haproxy", "bind :80", format!("bind {theirs}")),
        };
        let block = page.block(language, listen);
        let block = replace(&block, &[(listen, &listen_here), ("10.0.0.5:3000", &service)]);
        let block = replace(&block, changes);
        let proxy = match is_nginx {
            true => nginx(directory.path(), &block, "").0,
            false => haproxy(directory.path(), &block, theirs),
        };
        let yaml = page.block("yaml", "policies:");
        let yaml = replace(&yaml, &[("0.0.0.0:80", "\"127.0.0.1:0\""), ("10.0.0.5:3000", &service)]);
        let tollgate = Tollgate::start(Config::yaml(replace(&yaml, our_changes)));
        let ours = tollgate.address;
        Self { theirs, ours, _proxy: proxy, _directory: directory, _tollgate: tollgate }
    }

    fn each(&self) -> [(&'static str, SocketAddr); 2] {
        [("the other proxy", self.theirs), ("Tollgate", self.ours)]
    }
}

/// A request: when it was sent and answered, and whether it was admitted.
#[derive(Debug, Clone, Copy)]
struct Sent {
    at: Instant,
    answered: Instant,
    is_admitted: bool,
}

/// Asks once, over this connection.
#[track_caller]
fn ask(client: &mut Client) -> Sent {
    let at = Instant::now();
    let status = client.request("GET", "/", &[], b"").status;
    assert!(status == 200 || status == 429, "{status}");
    Sent { at, answered: Instant::now(), is_admitted: status == 200 }
}

/// `requests`, one after another, were admitted by a bucket of so many, from which one leaves in each `interval`. What is not
/// known is when, between being sent and answered, each was decided: so the time at which the bucket is empty lies between two.
#[track_caller]
fn fit(requests: &[Sent], burst: u32, interval: Duration, who: &str) {
    // nginx counts in milliseconds, by a clock that it reads once for all that came meanwhile.
    let blur = Duration::from_millis(3);
    let room = interval * (burst - 1);
    let (mut earliest, mut latest) = (requests[0].at, requests[0].at);
    for (number, request) in requests.iter().enumerate() {
        if request.is_admitted {
            let is_early = earliest > request.answered + room + blur;
            assert!(!is_early, "{who} admits request {number} too early: {requests:#?}");
            earliest = earliest.max(request.at) + interval;
            latest = latest.max(request.answered) + interval;
        } else {
            let has_room = latest + blur <= request.at + room;
            assert!(!has_room, "{who} denies request {number}, which fits: {requests:#?}");
        }
    }
    let admitted = requests.iter().filter(|request| request.is_admitted).count();
    assert!(admitted > burst as usize, "{who}: {requests:#?}");
}

/// The rows of nginx' table: what stands there for nginx, and here.
fn rows(page: &Page) -> Vec<(String, String)> {
    let cell = |text: &str| text.split('`').nth(1).unwrap_or_default().to_owned();
    let rows = page.text.lines().filter(|line| line.starts_with("| `rate="));
    rows.map(|line| line.split('|').collect::<Vec<_>>())
        .map(|cells| (cell(cells[1]), cell(cells[2])))
        .collect()
}

/// The number behind `name` in a row: `burst=20`, `burst: 21`.
fn number(row: &str, name: &str) -> u32 {
    let digits = row.split_once(name).map(|(_, rest)| rest.chars().take_while(char::is_ascii_digit));
    digits.map_or(0, |digits| digits.collect::<String>().parse().unwrap())
}

/// nginx with one row of the table, and Tollgate likewise.
fn row_of_nginx(page: &Page, origin: &Origin, theirs: &str, ours: &str) -> Pair {
    let (rate, burst) = theirs.split_once(' ').unwrap_or((theirs, ""));
    let theirs = [("rate=10r/s", rate), ("burst=20 nodelay", burst), ("limit_conn connections 10;", "")];
    // As many may wait as `limit_req` lets: `limit_conn` is another test's.
    let ours = [("limit: 10/1s, burst: 21", ours), ("limit: 10 }", "limit: 1000 }")];
    Pair::start(page, origin, &theirs, &ours)
}

#[test]
fn gcra_admits_as_many_as_limit_req() {
    let (page, origin) = (Page::open("migration/nginx.md"), Origin::ok());
    let rows = rows(&page);
    assert_eq!(rows.len(), 5, "{rows:?}");
    for (theirs, ours) in rows.iter().filter(|(_, ours)| !ours.contains("delay")) {
        let pair = row_of_nginx(&page, &origin, theirs, ours);
        let burst = number(theirs, "burst=") + 1;
        assert_eq!(number(ours, "burst: "), burst, "{ours}");
        let interval = match theirs.contains("r/m") {
            true => Duration::from_secs(60) / number(theirs, "rate="),
            false => Duration::from_secs(1) / number(theirs, "rate="),
        };
        for (who, address) in pair.each() {
            let mut client = Client::connect(address);
            let mut requests = vec![ask(&mut client)];
            // Until three more than the burst were admitted, or two of a slow rate.
            let after = if interval > Duration::from_secs(1) { 1 } else { 3 };
            while requests.iter().filter(|request| request.is_admitted).count() < (burst + after) as usize {
                // Enough to meet each interval, and not more than nginx serves on a connection.
                thread::sleep(if requests.len() < 40 { Duration::ZERO } else { interval / 20 });
                requests.push(ask(&mut client));
            }
            fit(&requests, burst, interval, &format!("{who} with {theirs}"));
        }
    }
}

#[test]
fn gcra_delays_as_many_as_limit_req() {
    let (page, origin) = (Page::open("migration/nginx.md"), Origin::ok());
    let rows = rows(&page);
    let delayed: Vec<_> = rows.iter().filter(|(_, ours)| ours.contains("delay")).collect();
    assert_eq!(delayed.len(), 2, "{rows:?}");
    let interval = Duration::from_millis(100);
    for (theirs, ours) in delayed {
        let pair = row_of_nginx(&page, &origin, theirs, ours);
        let at_once = number(theirs, "delay=") + 1;
        let all = number(theirs, "burst=") + 1;
        for (who, address) in pair.each() {
            let mut clients: Vec<_> = (0..25).map(|_| Client::connect(address)).collect();
            let first = Instant::now();
            for client in &mut clients {
                client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
            }
            let (sent, answers) = (Instant::now(), clients.into_iter());
            let answers =
                answers.map(|mut client| thread::spawn(move || (client.reply().status, Instant::now())));
            let answers: Vec<_> =
                answers.collect::<Vec<_>>().into_iter().map(|one| one.join().unwrap()).collect();
            let mut admitted: Vec<_> =
                answers.iter().filter(|(status, _)| *status == 200).map(|(_, when)| *when).collect();
            admitted.sort();
            let denied = answers.iter().filter(|(status, _)| *status == 429).count();
            assert_eq!(admitted.len() + denied, 25, "{answers:?}");
            // While they were being sent, and read, some may have left the bucket.
            let read = *answers
                .iter()
                .filter(|(status, _)| *status == 429)
                .map(|(_, when)| when)
                .max()
                .unwrap_or(&sent);
            let more = (read - first).as_millis() as usize / 100 + 1;
            assert!((all as usize..=all as usize + more).contains(&admitted.len()), "{who}: {answers:?}");
            for (number, when) in admitted.iter().enumerate().skip(at_once as usize) {
                let turn = interval * (number as u32 + 1 - at_once);
                let blur = Duration::from_millis(3);
                assert!(
                    *when - first + blur >= turn,
                    "{who} with {theirs}, {number}: {admitted:?} from {first:?}"
                );
            }
        }
    }
}

#[test]
fn concurrency_admits_as_many_as_limit_conn() {
    let page = Page::open("migration/nginx.md");
    let origin = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            conn.body(&head)?;
            conn.pause()?;
            conn.answer("200 OK", &[], b"")?;
        }
        Ok(())
    });
    let pair = Pair::start(&page, &origin, &[], &[]);
    for (who, address) in pair.each() {
        let mut clients: Vec<_> = (0..12).map(|_| Client::connect(address)).collect();
        for client in &mut clients {
            client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        }
        let denied = |clients: &[Client]| clients.iter().filter(|one| one.has_something_to_read()).count();
        eventually("two are denied", || denied(&clients) == 2);
        for _ in 0..10 {
            origin.resume();
        }
        let mut statuses: Vec<_> = clients.iter_mut().map(|client| client.reply().status).collect();
        statuses.sort_unstable();
        let expected: Vec<_> = [[200; 10].as_slice(), &[429; 2]].concat();
        assert_eq!(statuses, expected, "{who}");
    }
}

#[test]
fn a_sliding_window_admits_as_many_as_a_stick_table() {
    let (page, origin) = (Page::open("migration/haproxy.md"), Origin::ok());
    let pair = Pair::start(&page, &origin, &[], &[]);
    for (who, address) in pair.each() {
        let mut client = Client::connect(address);
        let admitted = (0..30).filter(|_| ask(&mut client).is_admitted).count();
        assert_eq!(admitted, 20, "{who} admits so many at once");
    }
}

#[test]
fn after_a_flood_a_sliding_window_admits_earlier_than_a_stick_table() {
    let (page, origin) = (Page::open("migration/haproxy.md"), Origin::ok());
    let window = Duration::from_secs(3);
    let pair = Pair::start(&page, &origin, &[("10s", "3s")], &[("20/10s", "20/3s")]);
    let [mut theirs, mut ours] = [pair.theirs, pair.ours].map(Client::connect);
    for client in [&mut theirs, &mut ours] {
        assert!((0..20).all(|_| ask(client).is_admitted));
    }
    // Both count denied requests: a client that goes on stays denied.
    let begin = Instant::now();
    while begin.elapsed() < window * 5 / 2 {
        assert!(!ask(&mut theirs).is_admitted && !ask(&mut ours).is_admitted, "{:?}", begin.elapsed());
        thread::sleep(Duration::from_millis(4));
    }
    // One bucket more than the window, which is what its sum spans, and a little.
    thread::sleep(window + window / 10 + Duration::from_millis(100));
    assert!(ask(&mut ours).is_admitted, "one window after the flood");
    assert!(!ask(&mut theirs).is_admitted, "the flood counts for a part of the window after it");
    eventually("the stick table has forgotten the flood", || {
        thread::sleep(Duration::from_millis(100));
        ask(&mut theirs).is_admitted
    });
}

#[test]
fn a_single_counter_admits_as_many_as_express_rate_limit() {
    let Ok(packages) = env::var("NODE_PACKAGES") else {
        eprintln!(
            "left out: `scripts/test` installs `express-rate-limit` where npm is, and says where in NODE_PACKAGES"
        );
        return;
    };
    let (page, theirs) = (Page::open("migration/express-rate-limit.md"), nobody());
    let limiter =
        replace(&page.block("js", "rateLimit("), &[("60 * 1000", "2000"), ("limit: 100", "limit: 5")]);
    let script = format!(
        "const app = require('express')(), {{ rateLimit }} = require('express-rate-limit');\n{limiter}\n\
         app.get('/', (request, response) => response.end());\napp.listen({}, '127.0.0.1');",
        theirs.port()
    );
    let mut node = program("node", "nodejs");
    node.env("NODE_PATH", packages).args(["-e", &script]).stdout(Stdio::null());
    let _express = Running(node.spawn().unwrap());
    eventually("Express listens", || TcpStream::connect(theirs).is_ok());
    let origin = Origin::ok();
    let service = origin.address.to_string();
    let changes = [("0.0.0.0:8080", "\"127.0.0.1:0\""), ("127.0.0.1:3000", &service), ("100/1m", "5/2s")];
    let tollgate = Tollgate::start(Config::yaml(replace(&page.block("yaml", "policies:"), &changes)));
    for (who, address) in [("express-rate-limit", theirs), ("Tollgate", tollgate.address)] {
        let mut client = Client::connect(address);
        let (window, blur) = (Duration::from_secs(2), Duration::from_millis(3));
        let mut first = ask(&mut client);
        for _ in 0..2 {
            assert!(first.is_admitted, "{who}");
            assert!((1..5).all(|_| ask(&mut client).is_admitted), "{who}");
            // Until the next window, which begins with a request.
            loop {
                let next = ask(&mut client);
                if next.is_admitted {
                    assert!(next.answered - first.at + blur >= window, "{who}: {first:?} {next:?}");
                    first = next;
                    break;
                }
                let since = next.at.saturating_duration_since(first.answered);
                assert!(since < window + blur, "{who} denies still: {first:?} {next:?}");
                thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

#[test]
fn samples_are_converted_as_the_pages_show() {
    let pages = [
        ("nginx", "nginx", "listen 80;", "nginx.conf"),
        ("haproxy", "haproxy", "bind :80", "haproxy.cfg"),
        ("kong", "yml", "_format_version", "kong.yml"),
        ("kong-key-auth", "yml", "_format_version", "kong.yml"),
    ];
    for (name, language, mark, file) in pages {
        let (page, directory) = (Page::open(&format!("migration/{name}.md")), TempDir::new().unwrap());
        fs::write(directory.path().join(file), page.block(language, mark)).unwrap();
        let converted = tollgate_in(directory.path(), &[], &["convert", file]);
        let steps = page.steps("# Converted from");
        assert_eq!(steps, [(format!("tollgate convert {file}"), converted.stdout.clone())], "{converted:?}");
    }
}
