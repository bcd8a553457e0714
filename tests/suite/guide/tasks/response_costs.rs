//! The pages about costs that the response tells. Each runs with the service that it shows; what it says of other responses is
//! tried with one that responds as a test says.

use std::{fs, net::SocketAddr};

use regex::Regex;
use serde_json::Value;
use tempfile::TempDir;

use super::{Task, alike, shell};
use crate::{
    guide::Page,
    harness::{
        Client, Ended, Origin, Redis, Reply, Running, becomes, eventually, free_port, nobody, tollgate_in,
    },
};

/// Has the access log written where the tests read it.
const LOG: (&str, &str) = ("policies:\n", "access_log: { format: json, to: stdout }\npolicies:\n");

/// This URL of Redis, in a configuration whose requests wait longer for it: with 50 ms, a busy machine would count some here alone.
fn patient(url: &str) -> String {
    format!("{url}\", timeout: \"5s")
}

/// A service that a page shows, run as its reader does.
struct Service {
    address: String,
    directory: TempDir,
    _running: Running,
}

impl Service {
    /// Runs `line` of the page, and before it saves the script that the page says to.
    #[track_caller]
    fn start(page: &str, line: &str) -> Self {
        let page = Page::open(&format!("tasks/{page}.md"));
        assert!(page.text.contains(line), "{line}");
        let directory = TempDir::new().unwrap();
        let port = free_port().to_string();
        if let Some(file) = Regex::new(r"Save it as `(\w+\.py)`").unwrap().captures(&page.text) {
            let script = page.block("python", "3000").replace("3000", &port);
            fs::write(directory.path().join(&file[1]), script).unwrap();
        }
        let line = line.replace("3000", &port).replace("python3", "exec python3");
        let log = fs::File::create(directory.path().join("log")).unwrap();
        let running = Running(shell(directory.path(), &line).stderr(log).spawn().unwrap());
        let address: SocketAddr = format!("127.0.0.1:{port}").parse().unwrap();
        eventually("the service listens", || Client::try_connect(address).is_some());
        Self { address: address.to_string(), directory, _running: running }
    }

    /// In place of the address on the page.
    fn place(&self) -> (&str, &str) {
        ("127.0.0.1:3000", &self.address)
    }

    /// How many requests of this method it got.
    fn requests(&self, method: &str) -> usize {
        let log = fs::read_to_string(self.directory.path().join("log")).unwrap();
        log.matches(&format!("\"{method} ")).count()
    }
}

/// A service that responds as the request's fields say: with `x-status`, `x-type`, `x-coding`, `x-body`, `x-cost` as a header and
/// `x-trailer` as a trailer, which are both called x-query-cost. `x-wait: head` waits for [`Origin::resume`] before the
/// response, and `x-wait: end` for the proxy to close the connection before the last byte.
fn as_told() -> Origin {
    Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            conn.body(&head)?;
            let of =
                |name: &str| head.split("\r\n").find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            let body = of("x-body").unwrap_or("{}").to_owned()
                + &" ".repeat(of("x-spaces").map_or(0, |spaces| spaces.parse().unwrap()));
            let mut fields = vec![("content-type", of("x-type").unwrap_or("application/json"))];
            fields.extend(of("x-cost").map(|cost| ("x-query-cost", cost)));
            fields.extend(of("x-coding").map(|coding| ("content-encoding", coding)));
            if of("x-wait") == Some("head") {
                conn.pause()?;
            }
            let is_left = of("x-wait") == Some("end");
            let status = of("x-status").unwrap_or("200 OK");
            if let Some(cost) = of("x-trailer") {
                let chunk = format!("{:x}\r\n{body}\r\n0\r\nx-query-cost: {cost}\r\n\r\n", body.len());
                let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\n");
                conn.send(
                    format!("{head}trailer: x-query-cost\r\ntransfer-encoding: chunked\r\n\r\n{chunk}")
                        .as_bytes(),
                )?;
            } else if is_left {
                let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\n");
                conn.send(format!("{head}content-length: {}\r\n\r\n{body}", body.len() + 1).as_bytes())?;
                conn.closed();
                return Ok(());
            } else {
                conn.answer(status, &fields, body.as_bytes())?;
            }
        }
        Ok(())
    })
}

/// A request of a customer or a user.
struct Request<'a> {
    task: &'a Task,
    path: &'static str,
    credential: (&'static str, String),
    body: &'static str,
}

impl Request<'_> {
    /// Sends it with these fields.
    fn send(&self, fields: &[(&str, &str)]) -> Client {
        let mut client = Client::connect(self.task.tollgate.address);
        let method = if self.body.is_empty() { "GET" } else { "POST" };
        let mut head = format!("{method} {} HTTP/1.1\r\nhost: localhost\r\n", self.path);
        let (name, value) = &self.credential;
        for (name, value) in fields.iter().copied().chain([(*name, value.as_str())]) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !self.body.is_empty() {
            let length = self.body.len();
            head.push_str(&format!("content-type: application/json\r\ncontent-length: {length}\r\n"));
        }
        client.send(format!("{head}\r\n{}", self.body));
        client
    }

    fn reply(&self, fields: &[(&str, &str)]) -> Reply {
        self.send(fields).reply()
    }

    /// What it costs with such a response: the units reserved, and charged.
    #[track_caller]
    fn costs(&self, fields: &[(&str, &str)]) -> [u64; 2] {
        self.task.logs(|| {
            self.reply(fields);
        })
    }

    /// What it costs if the client leaves when it has got the body but for its last byte.
    #[track_caller]
    fn costs_if_left(&self, body: &str, spaces: usize) -> [u64; 2] {
        let ended = self.task.origin.ended();
        let costs = self.task.logs(|| {
            let spaced = spaces.to_string();
            let mut client = self.send(&[("x-wait", "end"), ("x-body", body), ("x-spaces", &spaced)]);
            client.head();
            client.take(body.len() + spaces).unwrap();
        });
        becomes(ended + 1, || self.task.origin.ended());
        costs
    }
}

impl Task {
    /// A request with the key in this variable.
    fn request(&self, variable: &str, path: &'static str, body: &'static str) -> Request<'_> {
        let key = self.keys.iter().find(|(name, _)| name == variable);
        Request { task: self, path, credential: ("x-api-key", key.unwrap().1.clone()), body }
    }

    /// A query of the customer whose key is in this variable.
    fn query(&self, variable: &str) -> Request<'_> {
        self.request(variable, "/graphql", r#"{"query":"{ a }"}"#)
    }

    /// The units that the access log has as reserved and charged for the request that `act` makes.
    #[track_caller]
    fn logs(&self, act: impl FnOnce()) -> [u64; 2] {
        let before = self.tollgate.stdout().len();
        act();
        becomes(before + 1, || self.tollgate.stdout().len());
        self.logged()[before].map(|units| units.expect("the response tells the cost"))
    }

    /// What the access log has as reserved and charged.
    fn logged(&self) -> Vec<[Option<u64>; 2]> {
        let lines = self.tollgate.stdout();
        let lines = lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.map(|line| ["reserved", "charged"].map(|field| line[field].as_u64())).collect()
    }

    /// What is used of this limit.
    #[track_caller]
    fn used(&self, policy: &str, key: &str) -> u64 {
        let shown = self.tollgate.command(&["limits", key, "--policy", policy, "--json"]);
        let shown: Value = serde_json::from_str(&shown.stdout).unwrap_or_else(|_| panic!("{shown:?}"));
        shown.pointer("/limits/0/used").and_then(Value::as_u64).unwrap_or_else(|| panic!("{shown}"))
    }
}

/// The configuration's section of policies.
fn policies(yaml: &str) -> &str {
    let begin = yaml.find("policies:\n").unwrap();
    yaml[begin..].split_inclusive("\n\n").next().unwrap().trim_end()
}

/// `tollgate check` of the page's configuration that contains `mark`, with `changes`.
fn check(task: &Task, mark: &str, changes: &[(&str, &str)]) -> Ended {
    let yaml = crate::guide::replace(&task.page.block("yaml", mark), changes);
    fs::write(task.directory.path().join("proxy.yaml"), yaml).unwrap();
    tollgate_in(task.directory.path(), &[], &["check", "proxy.yaml"])
}

const COMPLETIONS: &str = "/v1/chat/completions";
const MODEL: &str = "python3 model.py";
/// Of 32 bytes, which are 8 tokens by the estimate.
const ASKS_400: &str = r#"{"max_tokens":400,"messages":[]}"#;
/// The beginning of a response whose text follows.
const TEXT: &str = r#"{"choices":[{"message":{"content":""#;
const USED_7: (&str, &str) = ("x-body", r#"{"usage":{"total_tokens":7}}"#);

#[test]
fn tokens() {
    let model = Service::start("limit-tokens", MODEL);
    let mut task = Task::start("limit-tokens", "prompt: estimate", &[model.place(), LOG], as_told());
    task.shows("r=99592");
    task.shows("data: [DONE]");
    task.shows("\n429\n");
    becomes(3, || task.logged().len());
    // Two workers write it.
    let mut logged = task.logged();
    logged.sort_unstable();
    assert_eq!(logged, [[None; 2], [Some(408), Some(120)], [Some(411), Some(120)]]);
    let denied = task.request("KEY", COMPLETIONS, r#"{"max_tokens":99900}"#).reply(&[]);
    assert_eq!((denied.status, denied.header("retry-after").is_some()), (429, true));
    assert_eq!(model.requests("POST"), 2);
    let total = |kind| {
        task.tollgate.metric(&format!("tollgate_cost_units_total{{policy=\"tokens\",kind=\"{kind}\"}}"))
    };
    becomes([819.0, 240.0, 579.0, 0.0], || ["reserved", "charged", "refunded", "excess"].map(total));
    task.shows("tollgate explain");

    // A list.
    let list = task.page.block("yaml", "times: 3");
    let page = task.page.block("yaml", "prompt: estimate");
    task.restart("prompt: estimate", &[(policies(&page), policies(&list)), LOG, model.place()]);
    assert_eq!(task.request("KEY", COMPLETIONS, ASKS_400).costs(&[]), [4_000, 420]);
    let streams = r#"{"max_tokens":400,"stream":true,"messages":[]}"#;
    assert_eq!(task.request("KEY", COMPLETIONS, streams).costs(&[])[1], 420);
}

#[test]
fn models() {
    let model = Service::start("limit-tokens", MODEL);
    let task = Task::start("limit-by-model", "allow_values", &[model.place(), LOG], as_told());
    task.shows("r=19600");
    becomes(120, || task.used("tokens", "customer:acme+value:model=big"));
    task.shows("| jq -r .detail");
    task.shows("--body -");
    assert_eq!(model.requests("POST"), 2);
}

#[test]
fn tokens_are_charged_as_the_page_says() {
    let mut task = Task::start("limit-tokens", "prompt: estimate", &[LOG], as_told());
    let request = task.request("KEY", COMPLETIONS, ASKS_400);
    assert_eq!(request.costs(&[USED_7]), [408, 7]);
    assert_eq!(request.costs(&[("x-coding", "br")]), [408, 408]);
    let warned =
        |line: &String| line.contains("a response has a content coding in which its cost can't be read");
    eventually("a warning is logged", || task.tollgate.log().iter().any(warned));
    for number in ["null", "-1", "1.5", "1000000001"] {
        let body = format!(r#"{{"usage":{{"total_tokens":{number}}}}}"#);
        assert_eq!(request.costs(&[("x-body", &body)]), [408, 408], "{number}");
    }
    assert_eq!(request.costs(&[]), [408, 408]);
    let becomes_metric = |name: &str, value| becomes(value, || task.tollgate.metric(name));
    becomes_metric("tollgate_cost_missing_total{policy=\"tokens\"}", 6.0);
    for status in ["400 Bad Request", "500 Internal Server Error"] {
        assert_eq!(request.costs(&[("x-status", status)]), [408, 0]);
        assert_eq!(request.costs(&[("x-status", status), USED_7]), [408, 7]);
    }
    // The client leaves before the response.
    let used = task.used("tokens", "customer:acme");
    let requests = task.origin.heads().len();
    let leaving = request.send(&[("x-wait", "head"), USED_7]);
    becomes(requests + 1, || task.origin.heads().len());
    assert_eq!(task.used("tokens", "customer:acme"), used + 408);
    // Its line in the log waits for the cost.
    let left = || {
        let metrics = task.tollgate.admin("GET", "/metrics").text();
        let lines = metrics.lines().filter(|line| line.starts_with("tollgate_requests_total"));
        let errors = lines.filter(|line| line.contains("status=\"4xx\""));
        errors.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>()
    };
    let before = left();
    drop(leaving);
    becomes(before + 1.0, left);
    task.origin.resume();
    becomes(used + 7, || task.used("tokens", "customer:acme"));
    eventually("it is logged", || task.tollgate.stdout().last().is_some_and(|line| line.contains(":499,")));
    // And within it: with a prompt of 8 tokens, and at most 400 of output.
    assert_eq!(request.costs_if_left(TEXT, 99), [408, 408]);
    assert_eq!(request.costs_if_left(TEXT, 8_000), [408, 408]);
    // Without `max_tokens`, and with a prompt of 3.
    let request = task.request("KEY", COMPLETIONS, r#"{"messages":[]}"#);
    assert_eq!(request.costs_if_left(TEXT, 99), [1_003, 1_003]);
    assert_eq!(request.costs_if_left(TEXT, 8_000), [1_003, 2_003]);
    // What is no text of a response counts for nothing.
    assert_eq!(request.costs_if_left("{", 8_000), [1_003, 1_003]);
    let nobody = nobody().to_string();
    task.restart("prompt: estimate", &[LOG, ("127.0.0.1:3000", &nobody)]);
    assert_eq!(task.request("KEY", COMPLETIONS, ASKS_400).costs(&[]), [408, 0]);
}

#[test]
fn tokens_of_other_apis() {
    let mut task = Task::start("limit-tokens", "prompt: estimate", &[LOG], as_told());
    let apis = [
        ("openai", "max_output_tokens", r#"{"max_output_tokens":400}"#, r#"{"usage":{"total_tokens":120}}"#),
        (
            "anthropic",
            "max_tokens",
            r#"{"max_tokens":400}"#,
            r#"{"usage":{"input_tokens":20,"output_tokens":100}}"#,
        ),
        (
            "gemini",
            "generationConfig.maxOutputTokens",
            r#"{"generationConfig":{"maxOutputTokens":400}}"#,
            r#"{"usageMetadata":{"totalTokenCount":120}}"#,
        ),
    ];
    for (response, path, asked, body) in apis {
        assert!(task.page.text.contains(&format!("| `{response}` | `[{path}]` |")), "{response}");
        let changes = [
            ("{ preset: openai, ask: true }", response),
            ("[max_completion_tokens, max_tokens]", path),
            (", prompt: estimate", ""),
            LOG,
        ];
        task.restart("prompt: estimate", &changes);
        assert_eq!(
            task.request("KEY", COMPLETIONS, asked).costs(&[("x-body", body)]),
            [400, 120],
            "{response}"
        );
    }
}

#[test]
fn exceptions_of_tokens() {
    // Each of 200 requests reserves 93 tokens of output, and 7 of the prompt.
    let mut task =
        Task::start("limit-tokens", "prompt: estimate", &[LOG, ("100000/1m", "1000/1h")], as_told());
    let request = task.request("KEY", COMPLETIONS, r#"{"max_tokens":93,"messages":[]}"#);
    let mut clients: Vec<_> = (0..200).map(|_| request.send(&[("x-wait", "head")])).collect();
    becomes(10, || task.origin.heads().len());
    becomes(190, || task.tollgate.stdout().len());
    (0..10).for_each(|_| task.origin.resume());
    let admitted = clients.iter_mut().map(Client::reply).filter(|reply| reply.status == 200);
    assert_eq!(admitted.count(), 10);
    assert_eq!(task.origin.heads().len(), 10);
    // The whole limit, and the settings that bound what is reserved.
    let cases = [
        ("default: 1000", "default: 1000", r#"{"max_tokens":32000}"#, [1_000, 1_000]),
        ("default: 1000", "default: 100, max: 100", r#"{"max_tokens":32000}"#, [100, 100]),
        (", prompt: estimate", "", r#"{"max_tokens":40,"n":3}"#, [120, 120]),
        ("prompt: estimate }", "prompt: estimate }\n      missing: 0", ASKS_400, [408, 0]),
        ("prompt: estimate }", "prompt: estimate }\n      missing: 500", ASKS_400, [408, 500]),
    ];
    for (from, to, body, costs) in cases {
        task.restart("prompt: estimate", &[LOG, ("100000/1m", "1000/1h"), (from, to)]);
        assert_eq!(task.request("KEY", COMPLETIONS, body).costs(&[]), costs, "{to}");
    }
    // More than was reserved is worked off.
    task.restart("prompt: estimate", &[LOG, ("100000/1m", "1000/1h")]);
    let request = task.request("KEY", COMPLETIONS, ASKS_400);
    assert_eq!(request.costs(&[("x-body", r#"{"usage":{"total_tokens":1200}}"#)]), [408, 1_200]);
    becomes(1_200, || task.used("tokens", "customer:acme"));
    let denied = request.reply(&[]);
    assert_eq!((denied.status, denied.header("retry-after").is_some()), (429, true));
    for algorithm in ["sliding_log", "concurrency"] {
        let ended = check(&task, "prompt: estimate", &[("sliding_window", algorithm)]);
        assert_eq!(ended.code, Some(78), "{ended:?}");
    }
}

#[test]
fn budgets() {
    let (model, mut redis) = (Service::start("limit-tokens", MODEL), Redis::start());
    let url = redis.url();
    let url = patient(&url);
    let stored = ("redis://127.0.0.1:6379", url.as_str());
    let mut task = Task::start("token-budgets", "enterprise:", &[model.place(), stored], as_told());
    task.shows("ratelimit-policy");
    task.shows("jq");
    task.shows("tollgate limits");
    // A customer's own budget, with what it has used.
    let own = "time_zone: Europe/Berlin\n    overrides: [{ customer: acme, limit: 2000000/month }]";
    assert!(task.page.text.contains("`overrides: [{ customer: acme, limit: 2000000/month }]`"));
    task.restart("enterprise:", &[stored, ("time_zone: Europe/Berlin", own)]);
    let limits = task.run(
        "curl -s -H \"X-API-Key: $FREE\" http://127.0.0.1:8080/usage | jq -c '.limits[0] | [.limit, .used]'",
    );
    assert_eq!(limits.trim(), "[2000000,120]");
    // The budget is used up.
    task.restart("enterprise:", &[stored, ("limit: 1000000/month", "limit: 120/month")]);
    let denied = task.run(&format!(
        "curl -s -i -H \"X-API-Key: $FREE\" --json '{ASKS_400}' http://127.0.0.1:8080{COMPLETIONS}"
    ));
    let shown = task.page.block("text", "HTTP/1.1 429");
    assert!(alike(&shown, &denied), "{denied}");
    // Money in place of tokens: 20 × 3 + 100 × 15.
    let list = Regex::new(r"`response: (\[[^`]*times: 3 [^`]*\])`").unwrap();
    let list = list.captures(&task.page.text).unwrap()[1].to_owned();
    task.restart("enterprise:", &[stored, model.place(), LOG, ("{ preset: openai, ask: true }", &list)]);
    assert_eq!(task.request("PRO", COMPLETIONS, ASKS_400).costs(&[]), [408, 1_560]);
    let streams = r#"{"max_tokens":400,"stream":true,"messages":[]}"#;
    assert_eq!(task.request("PRO", COMPLETIONS, streams).costs(&[])[1], 1_560);

    task.restart("enterprise:", &[stored, LOG]);
    let request = task.request("PRO", COMPLETIONS, ASKS_400);
    assert_eq!(request.costs(&[]), [408, 408]);
    assert_eq!(request.costs(&[("x-status", "500 Internal Server Error")]), [408, 0]);
    assert_eq!(request.costs_if_left(USED_7.1, 0), [408, 408]);
    // The instance dies while a request is under way.
    let monthly = |task: &Task| task.used("monthly", "customer:globex");
    // Money is another unit than tokens, with counts of its own.
    becomes(2 * 408, || monthly(&task));
    let requests = task.origin.heads().len();
    let _open = request.send(&[("x-wait", "head")]);
    becomes(requests + 1, || task.origin.heads().len());
    task.tollgate.signal("KILL");
    task.restart("enterprise:", &[stored, LOG]);
    assert_eq!(monthly(&task), 3 * 408);
    // Redis is away.
    redis.kill();
    assert_eq!(task.request("PRO", COMPLETIONS, ASKS_400).reply(&[]).status, 503);
    let memory = check(&task, "enterprise:", &[("    on_store_error: deny\n", "")]);
    assert!(memory.stderr.contains("from zero at each outage"), "{memory:?}");
}

#[test]
fn points() {
    let server = Service::start("graphql-points", "python3 graphql.py");
    let mut task =
        Task::start("graphql-points", "extensions.cost.actual }", &[server.place(), LOG], as_told());
    task.shows("r=950");
    task.shows("no such field");
    becomes(2, || task.logged().len());
    // Two workers write it.
    let mut logged = task.logged();
    logged.sort_unstable();
    assert_eq!(logged, [[Some(50), Some(12)], [Some(50), Some(50)]]);
    // 20 queries at the same moment. A limit that drains slowly admits no 21st meanwhile.
    task.restart("extensions.cost.actual }", &[LOG, ("1000/1m", "1000/1d")]);
    let query = task.query("ACME");
    let mut running: Vec<_> = (0..20).map(|_| query.send(&[("x-wait", "head"), POINTS_7])).collect();
    becomes(20, || task.origin.heads().len());
    let denied = query.reply(&[]);
    let wait: u64 = denied.header("retry-after").unwrap().parse().unwrap();
    assert!(denied.status == 429 && (3_000..=50 * 86_400 / 1_000).contains(&wait), "{denied:?}");
    (0..20).for_each(|_| task.origin.resume());
    assert!(running.iter_mut().all(|client| client.reply().status == 200));
    becomes(21, || task.logged().len());
    assert_eq!(query.costs(&[POINTS_7]), [50, 7]);
}

const POINTS_7: (&str, &str) = ("x-body", r#"{"extensions":{"cost":{"actual":7,"fields":3,"resolvers":2}}}"#);

#[test]
fn where_points_may_stand() {
    let mut task = Task::start("graphql-points", "extensions.cost.actual }", &[LOG], as_told());
    let places = [
        ("{ json: extensions.cost.actual }", POINTS_7),
        ("[{ json: extensions.cost.fields }, { json: extensions.cost.resolvers, times: 2 }]", POINTS_7),
        ("{ header: x-query-cost }", ("x-cost", "7")),
        ("{ trailer: x-query-cost }", ("x-trailer", "7")),
    ];
    for (response, field) in places {
        assert!(task.page.text.contains(&format!("| `{response}` |")), "{response}");
        let passed = ("max_body: 64KiB", "trailers: pass");
        let changes = [LOG, ("{ json: extensions.cost.actual }", response), passed];
        task.restart("extensions.cost.actual }", &changes);
        assert_eq!(task.query("ACME").costs(&[field]), [50, 7], "{response}");
        let reply = task.query("ACME").reply(&[field, ("te", "trailers")]);
        match field.0 {
            "x-cost" => assert_eq!(reply.header("x-query-cost"), Some("7")),
            "x-trailer" => assert_eq!(reply.trailers, [("x-query-cost".to_owned(), "7".to_owned())]),
            _ => assert_eq!(reply.text(), field.1),
        }
    }
    assert!(task.page.text.contains("`response_headers: { remove: [x-query-cost] }`"));
    let changes = [
        ("{ json: extensions.cost.actual }", "{ header: x-query-cost }"),
        ("max_body: 64KiB", "response_headers: { remove: [x-query-cost] }"),
        LOG,
    ];
    task.restart("extensions.cost.actual }", &changes);
    assert_eq!(task.query("ACME").costs(&[("x-cost", "7")]), [50, 7]);
    assert_eq!(task.query("ACME").reply(&[("x-cost", "7")]).header("x-query-cost"), None);
}

#[test]
fn points_are_charged_as_the_page_says() {
    let mut task = Task::start("graphql-points", "extensions.cost.actual }", &[LOG], as_told());
    let query = task.query("ACME");
    assert_eq!(query.costs(&[]), [50, 50]);
    assert_eq!(query.costs(&[POINTS_7]), [50, 7]);
    for status in ["400 Bad Request", "500 Internal Server Error"] {
        assert_eq!(query.costs(&[("x-status", status)]), [50, 0]);
    }
    assert_eq!(query.costs(&[POINTS_7, ("x-type", "multipart/mixed")]), [50, 50]);
    assert_eq!(query.costs_if_left(POINTS_7.1, 0), [50, 50]);
    assert_eq!(query.costs_if_left("{", 7_999), [50, 50]);
    for (number, charged) in [("1.5", 50), ("300", 300), ("1000000", 1_050)] {
        let body = format!(r#"{{"extensions":{{"cost":{{"actual":{number}}}}}}}"#);
        assert_eq!(task.query("GLOBEX").costs(&[("x-body", &body)]), [50, charged]);
    }
    assert_eq!(task.query("GLOBEX").reply(&[]).status, 429);
    let warnings = || {
        let log = task.tollgate.log();
        let warnings =
            log.iter().filter(|line| line.contains("a response tells a cost that is no whole number"));
        warnings.filter(|line| line.contains("route=/graphql") || line.contains("route=\"/graphql\"")).count()
    };
    becomes(1, warnings);
    task.restart("extensions.cost.actual }", &[LOG, ("reserve: 50", "reserve: 50\n      missing: 0")]);
    assert_eq!(task.query("ACME").costs(&[]), [50, 0]);
    let nobody = nobody().to_string();
    task.restart("extensions.cost.actual }", &[LOG, ("127.0.0.1:3000", &nobody)]);
    assert_eq!(task.query("ACME").costs(&[]), [50, 0]);
}

#[test]
fn traffic() {
    const SERVE: &str = "mkdir -p files && head -c 3145728 /dev/zero > files/three && python3 -m http.server -d files -b 127.0.0.1 3000";
    const MIB: u64 = 1 << 20;
    let (files, mut redis) = (Service::start("traffic-quota", SERVE), Redis::start());
    let url = redis.url();
    let url = patient(&url);
    let stored = ("redis://127.0.0.1:6379", url.as_str());
    let mut task = Task::start("traffic-quota", "1TiB/month", &[files.place(), stored, LOG], as_told());
    task.shows("size_download");
    task.shows("qu=");
    let downloads = || {
        let logged = task.logged();
        logged.into_iter().filter(|[reserved, _]| reserved.is_some()).collect::<Vec<_>>()
    };
    becomes(2, || downloads().len());
    assert_eq!(downloads(), [[Some(MIB), Some(3 * MIB)]; 2]);
    let used = |task: &Task| task.used("traffic", "customer:acme");
    becomes(6 * MIB, || used(&task));
    // Without a body, and with that of an error.
    let with_key = |rest: &str| {
        format!("curl -s -o body -w '%{{http_code}} %{{size_download}}' -H \"X-API-Key: $KEY\" {rest}")
    };
    assert_eq!(task.run(&with_key("-I http://127.0.0.1:8080/three")), "200 0");
    assert_eq!(
        task.run(&with_key(
            "-H 'If-Modified-Since: Thu, 01 Jan 2037 00:00:00 GMT' http://127.0.0.1:8080/three"
        )),
        "304 0"
    );
    becomes(6 * MIB, || used(&task));
    let error = task.run(&with_key("http://127.0.0.1:8080/four"));
    let length: u64 = error.strip_prefix("404 ").unwrap().parse().unwrap();
    assert!(length > 0);
    becomes(6 * MIB + length, || used(&task));
    // A download passes the end of the quota. The next is denied, which costs nothing.
    task.restart("1TiB/month", &[files.place(), stored, LOG, ("100GiB/month", "8MiB/month")]);
    assert_eq!(task.run(&with_key("http://127.0.0.1:8080/three")), "200 3145728");
    becomes(9 * MIB + length, || used(&task));
    assert!(task.run(&with_key("http://127.0.0.1:8080/three")).starts_with("429 "));
    assert_eq!(used(&task), 9 * MIB + length);

    task.restart("1TiB/month", &[stored, LOG]);
    let request = task.request("KEY", "/a", "");
    assert_eq!(request.costs_if_left("a", 999), [MIB, 1_000]);
    let nobody = nobody().to_string();
    task.restart("1TiB/month", &[stored, LOG, ("127.0.0.1:3000", &nobody)]);
    assert_eq!(task.request("KEY", "/a", "").costs(&[]), [MIB, 0]);

    task.restart("1TiB/month", &[stored, LOG, ("key: customer", "key: ip"), ("100GiB/month", "10GiB/1d")]);
    task.request("KEY", "/a", "").reply(&[]);
    becomes(2, || task.used("traffic", "ip:127.0.0.1"));
    // Redis is away.
    task.restart("1TiB/month", &[stored, LOG]);
    redis.kill();
    assert_eq!(task.request("KEY", "/a", "").reply(&[]).status, 200);
    redis.restart();
    task.restart("1TiB/month", &[stored, LOG, ("on_store_error: allow", "on_store_error: deny")]);
    redis.kill();
    assert_eq!(task.request("KEY", "/a", "").reply(&[]).status, 503);
}
