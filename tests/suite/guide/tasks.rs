//! The pages of `docs/tasks`: their configurations run as they stand there, and their commands print what the pages show.

use std::{env, fs, path::Path, process::Command, sync::LazyLock};

use jiff::{Zoned, tz::TimeZone};
use jsonwebtoken::Algorithm;
use regex::Regex;
use serde_json::json;
use tempfile::TempDir;

use super::{Page, replace};
use crate::harness::{
    Client, Config, Issuer, Origin, Tollgate, eventually, file_name, get, in_seconds, printed, program,
    request,
};

mod history;
mod response_costs;

/// What differs from run to run, and what takes its place before texts are compared.
static VARYING: LazyLock<[(Regex, &str); 10]> = LazyLock::new(|| {
    [
        (r"\d{4}-\d\d-\d\dT00:00:00\+\d\d:00\[Europe/Berlin\]", "BEGIN OF A MONTH"),
        (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME"),
        (r"^\d{4}-\d\d-01 to \d{4}-\d\d-\d\d \(Europe/Berlin, \w+\)$", "MONTH"),
        (r"^\d{4}-\d\d-\d\d \d\d:\d\d to \d{4}-\d\d-\d\d \d\d:\d\d \(.*\)$", "TIMES"),
        (r"^\d\d:\d\d(:\d\d|–\d\d:\d\d)?: ", "WHEN: "),
        (r"^Requests are those of \d{4}-\d\d\.$", "MONTH"),
        (r"^(\d+ keys? of \w+ ha(s|ve) plan \w+ now: ).*", "${1}KEYS"),
        (r"(retry-after: |x-ratelimit-reset: |;t=)\d+", "${1}SECONDS"),
        (r"^(x-request-id: )[0-9a-f]{32}$", "${1}ID"),
        (r"(^| )\d+(ms|s|m|h)( \d+s)?\b", "${1}DURATION"),
    ]
    .map(|(expression, replacement)| (Regex::new(expression).unwrap(), replacement))
});

/// Commands whose answers lag behind.
const LATE: [&str; 10] = [
    "sleep 1;",
    "tollgate blocked",
    "tollgate bans",
    "tollgate policies",
    "tollgate limits",
    "tollgate usage",
    "tollgate why",
    "tollgate customers",
    "tollgate alerts",
    "/usage",
];

/// A page, an API behind a Tollgate with a configuration of the page, and a directory for what its commands need.
struct Task {
    page: Page,
    origin: Origin,
    issuer: Issuer,
    directory: TempDir,
    /// The API keys that the page has its reader make, by the names of their variables.
    keys: Vec<(String, String)>,
    tollgate: Tollgate,
}

impl Task {
    /// `mark` is in the configuration; `changes` are made in it.
    #[track_caller]
    fn start(name: &str, mark: &str, changes: &[(&str, &str)], origin: Origin) -> Self {
        let page = Page::open(&format!("tasks/{name}.md"));
        let directory = TempDir::new().unwrap();
        let issuer = Issuer::new(Algorithm::RS256);
        fs::write(directory.path().join("issuer.pem"), issuer.public()).unwrap();
        let keys = make_keys(&page, directory.path());
        let tollgate = serve(&page, mark, changes, &origin, &directory);
        Self { page, origin, issuer, directory, keys, tollgate }
    }

    /// Another configuration of the page.
    #[track_caller]
    fn restart(&mut self, mark: &str, changes: &[(&str, &str)]) {
        self.tollgate = serve(&self.page, mark, changes, &self.origin, &self.directory);
    }

    /// A client's token with these claims, and an expiry.
    fn token(&self, mut claims: serde_json::Value) -> String {
        claims["exp"] = json!(in_seconds(3600));
        self.issuer.sign(&claims)
    }

    /// Runs `line` as the page's reader would.
    fn run(&self, line: &str) -> String {
        // What a page asks about a time is asked about now.
        let now = Zoned::now();
        let minute = now.strftime("'%Y-%m-%d %H:%M'").to_string();
        let month = now.with_time_zone(TimeZone::get("Europe/Berlin").unwrap()).strftime("--month %Y-%m");
        let line = line.replace("127.0.0.1:8080", &self.tollgate.address.to_string());
        let line = line.replace("'2026-11-27 14:05'", &minute).replace("--month 2026-11", &month.to_string());
        let mut shell = shell(self.directory.path(), &line);
        shell.env("TOLLGATE_ADMIN", format!("http://{}", self.tollgate.admin));
        shell.env("ANN", self.token(json!({ "sub": "ann" })));
        shell.env("BOB", self.token(json!({ "sub": "bob" })));
        shell.env("FREE", self.token(json!({ "sub": "acme", "plan": "free" })));
        shell.env("PRO", self.token(json!({ "sub": "globex", "plan": "pro" })));
        shell.envs(self.keys.iter().cloned());
        String::from_utf8(shell.output().unwrap().stdout).unwrap()
    }

    /// The commands of the block with `mark`, each with what stands below it.
    fn steps(&self, mark: &str) -> Vec<(String, String)> {
        self.page.steps(mark)
    }

    /// Each command of the block with `mark` prints what stands below it.
    #[track_caller]
    fn shows(&self, mark: &str) {
        shows(&self.steps(mark), |line| self.run(line));
    }
}

/// Each of these commands prints what stands below it.
#[track_caller]
pub(super) fn shows(steps: &[(String, String)], run: impl Fn(&str) -> String) {
    for (line, shown) in steps {
        let mut printed = run(line);
        // What the commands tell of clients comes ten times a second, the history is written every five seconds, and costs are
        // settled after the response.
        if LATE.iter().any(|part| line.contains(part)) && !alike(shown, &printed) {
            eventually(line, || {
                printed = run(line);
                alike(shown, &printed)
            });
        }
        assert!(alike(shown, &printed), "{line}\n{printed}\nin place of\n{shown}");
    }
}

/// A Tollgate with the page's configuration that contains `mark`.
#[track_caller]
fn serve(
    page: &Page,
    mark: &str,
    changes: &[(&str, &str)],
    origin: &Origin,
    directory: &TempDir,
) -> Tollgate {
    let (issuer, keys) = (directory.path().join("issuer.pem"), directory.path().join("keys.yaml"));
    let yaml = replace(&page.block("yaml", mark), changes);
    let address = origin.address.to_string();
    let places = [
        ("0.0.0.0:8080", "\"127.0.0.1:0\""),
        ("127.0.0.1:3000", address.as_str()),
        ("keys/issuer.pem", file_name(&issuer)),
        ("keys.yaml", file_name(&keys)),
    ];
    let places: Vec<_> = places.into_iter().filter(|(from, _)| yaml.contains(from)).collect();
    Tollgate::start(Config::yaml(replace(&yaml, &places)))
}

/// The shell that runs `line` in `directory`.
pub(super) fn shell(directory: &Path, line: &str) -> Command {
    let binaries = Path::new(env!("CARGO_BIN_EXE_tollgate")).parent().unwrap();
    let path = format!("{}:{}", binaries.display(), env::var("PATH").unwrap_or_default());
    let mut shell = program("bash", "bash");
    shell.current_dir(directory).args(["-c", line]);
    shell.env("PATH", path).env_remove("TOLLGATE_ADMIN_TOKEN");
    shell
}

/// Runs the page's commands that make API keys in `directory`: the keys, by the variables into which the page puts them.
fn make_keys(page: &Page, directory: &Path) -> Vec<(String, String)> {
    let commands = Regex::new(r"(?m)^    (tollgate keys create --file keys.yaml .*)$").unwrap();
    let names = Regex::new(r"into\s+`\$([A-Z]+)`(?:\s+and\s+`\$([A-Z]+)`)?").unwrap();
    let names = names.captures(&page.text);
    let names = names.iter().flat_map(|names| names.iter().skip(1).flatten());
    let made = commands.captures_iter(&page.text).map(|command| {
        let made = printed(&mut shell(directory, &command[1]));
        made.split_whitespace().find(|word| word.starts_with("tgk_")).expect(&made).to_owned()
    });
    names.map(|name| name.as_str().to_owned()).zip(made).collect()
}

/// Whether this was printed: lines of `…` stand for any lines, and what varies may differ.
fn alike(shown: &str, printed: &str) -> bool {
    fn lines(text: &str) -> Vec<String> {
        let lines = text.lines().map(|line| {
            let words = line.split_whitespace().collect::<Vec<_>>().join(" ");
            VARYING.iter().fold(words, |line, (varying, by)| varying.replace_all(&line, *by).into_owned())
        });
        lines.filter(|line| !line.is_empty()).collect()
    }
    fn matches(shown: &[String], printed: &[String]) -> bool {
        match shown.split_first() {
            None => printed.is_empty(),
            Some((line, rest)) if line == "…" => {
                (0..=printed.len()).any(|from| matches(rest, &printed[from..]))
            }
            Some((line, rest)) => printed.first() == Some(line) && matches(rest, &printed[1..]),
        }
    }
    matches(&lines(shown), &lines(printed))
}

/// Sends `count` requests over one connection: how many got 200.
fn admitted(tollgate: &Tollgate, count: usize, headers: &[(&str, &str)]) -> usize {
    let mut client = Client::connect(tollgate.address);
    let headers = [&[("host", "localhost")], headers].concat();
    (0..count).filter(|_| client.request("GET", "/", &headers, b"").status == 200).count()
}

#[test]
fn limit_by_address() {
    let mut task = Task::start("limit-by-address", "per-ip", &[], Origin::ok());
    task.shows("sort | uniq -c");
    // The page shows only what is added for a proxy in front.
    let added = task.page.block("yaml", "trusted_proxies: [10.0.0.2]\n");
    task.restart("per-ip", &[("policies:\n", &format!("{added}policies:\n"))]);
    task.shows("--peer 10.0.0.2");
}

#[test]
fn limit_by_user() {
    let task = Task::start("limit-by-user", "jwt:", &[], Origin::ok());
    task.shows("sort | uniq -c");
}

#[test]
fn plans_of_tokens() {
    let task = Task::start("plans", "jwt:plan", &[], Origin::ok());
    task.shows("$PRO");
}

#[test]
fn expensive_requests() {
    let mut task = Task::start("expensive-requests", "graphql", &[], Origin::ok());
    task.shows("sort | uniq -c");
    assert_eq!(get(task.tollgate.address, "/", &[]).status, 200);
    task.restart("cost: 50", &[]);
    let shown = task.page.block("text", "r=950");
    for (path, shown) in ["/export/1", "/search", "/"].into_iter().zip(shown.lines()) {
        let reply = get(task.tollgate.address, path, &[]);
        assert!(alike(shown, &format!("ratelimit: {}", reply.header("ratelimit").unwrap())), "{shown}");
    }
    task.restart("x-cost", &[("10.0.0.2", "127.0.0.1")]);
    let shown = task.page.block("text", "r=4750");
    let headers: [&[(&str, &str)]; 2] = [&[("x-cost", "250")], &[]];
    for (headers, shown) in headers.into_iter().zip(shown.lines()) {
        let reply = request(task.tollgate.address, "POST", "/graphql", headers, b"");
        assert!(alike(shown, &format!("ratelimit: {}", reply.header("ratelimit").unwrap())), "{shown}");
    }
}

#[test]
fn uploads() {
    let mut task = Task::start("uploads-and-slow-clients", "uploads-at-once", &[], Origin::ok());
    for (name, mebibytes) in [("two", 2), ("big", 101)] {
        fs::File::create(task.directory.path().join(name)).unwrap().set_len(mebibytes << 20).unwrap();
    }
    task.shows("-T big");
    let upload = || {
        Client::sending(
            task.tollgate.address,
            "PUT /upload/a HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n",
        )
    };
    let before = task.origin.heads().len();
    let _running = [upload(), upload()];
    eventually("two uploads are running", || task.origin.heads().len() == before + 2);
    let denied = upload().send("0\r\n\r\n").reply();
    assert_eq!((denied.status, denied.header("retry-after")), (429, Some("1")));
    task.restart("uploads-at-once", &[("grace: 20s", "grace: 1s")]);
    task.shows("sleep 1");
}

#[test]
fn an_office() {
    let changes =
        [("203.0.113.0/29", "192.0.2.0/29"), ("policies:\n", "trusted_proxies: [127.0.0.1]\npolicies:\n")];
    let mut task = Task::start("unblock-an-office", "overrides", &changes, Origin::ok());
    let of_office = |user, count| {
        let authorization = format!("Bearer {}", task.token(json!({ "sub": user })));
        admitted(
            &task.tollgate,
            count,
            &[("x-forwarded-for", "203.0.113.7"), ("authorization", &authorization)],
        )
    };
    assert_eq!(["ann", "bob", "cid", "dan", "eve"].map(|user| of_office(user, 60)), [60; 5]);
    assert_eq!([("fay", 5), ("gus", 4), ("hal", 3)].map(|(user, count)| of_office(user, count)), [0; 3]);
    task.shows("RECORDS");
    task.shows("tollgate unblock");
    assert_eq!(of_office("fay", 60), 60);
    task.restart("overrides", &[]);
    task.shows("tollgate explain");
}

#[test]
fn try_a_limit() {
    let log = [("policies:\n", "access_log: { format: json, to: stdout }\npolicies:\n")];
    let task = Task::start("from-shadow-to-enforced", "shadow", &log, Origin::ok());
    assert_eq!(admitted(&task.tollgate, 131, &[("user-agent", "curl/8.14.1")]), 131);
    task.shows("tollgate policies");
    eventually("all are logged", || task.tollgate.stdout().len() == 131);
    let log = task.tollgate.stdout().join("\n") + "\n";
    fs::write(task.directory.path().join("access.log"), log).unwrap();
    task.shows("jq");
    fs::copy(task.tollgate.directory().join("proxy.yaml"), task.directory.path().join("proxy.yaml")).unwrap();
    task.shows("tollgate replay access.log");
    task.shows("--compare");
    let file = task.tollgate.directory().join("proxy.yaml");
    let yaml = fs::read_to_string(&file).unwrap();
    fs::write(&file, replace(&yaml, &[(", mode: shadow", "")])).unwrap();
    task.shows("tollgate reload");
}

#[test]
fn find_the_right_limit() {
    let page = Page::open("tasks/find-the-right-limit.md");
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("traffic.py"), page.block("python", "access.log")).unwrap();
    printed(&mut shell(directory.path(), "python3 traffic.py"));
    for mark in ["# Suggested by", "tollgate replay"] {
        for (line, shown) in page.steps(mark) {
            let printed = printed(&mut shell(directory.path(), &line));
            assert!(alike(&shown, &printed), "{line}\n{printed}\nin place of\n{shown}");
        }
    }
}

#[test]
fn test_a_limit() {
    let mut task = Task::start("test-a-limit", "8080 }]\npolicies", &[], Origin::ok());
    task.shows("[1-120]");
    task.shows("xargs");
    task.shows("tail -1");
    task.restart("for tests only", &[]);
    let left = |client| {
        let reply = get(task.tollgate.address, "/api/orders", &[("x-forwarded-for", client)]);
        reply.header("ratelimit").unwrap().to_owned()
    };
    let all = ["203.0.113.7", "203.0.113.8", "203.0.113.8"].map(left);
    assert!(all[0].contains("r=99;") && all[1].contains("r=99;") && all[2].contains("r=98;"), "{all:?}");
}

#[test]
fn handle_429() {
    let mut task = Task::start("handle-429", "reply_headers", &[], Origin::ok());
    // On a busy machine, a second may pass between the commands.
    eventually("the commands print what the page shows", || {
        task.restart("reply_headers", &[]);
        task.steps("curl").iter().all(|(line, shown)| alike(shown, &task.run(line)))
    });
    task.restart("reply_headers", &[]);
    let url = format!("http://{}/", task.tollgate.address);
    let all = format!("for _ in range(25): print(get('{url}').status)\n");
    let script = task.page.block("python", "Retry-After") + &all;
    fs::write(task.directory.path().join("client.py"), script).unwrap();
    assert_eq!(task.run("python3 client.py").lines().filter(|line| *line == "200").count(), 25);
    // curl empties the file before it tries again, which fails with /dev/null.
    let curl =
        "for i in $(seq 25); do curl -s --retry 5 -o body -w '%{http_code}\\n' http://127.0.0.1:8080/; done";
    assert_eq!(task.run(curl).lines().filter(|line| *line == "200").count(), 25);
}
