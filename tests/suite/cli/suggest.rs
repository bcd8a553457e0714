//! `tollgate suggest`: limits for generated traffic with known abusers, whose truth an independent computation finds.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs,
    path::Path,
};

use fastrand::Rng;
use jiff::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Ended, tollgate_in};

/// Microseconds.
const SECOND: i64 = 1_000_000;
/// 2026-07-02T00:00:00Z
const START: i64 = 1_782_950_400 * SECOND;
const OFFICE: &str = "198.51.100.7";
/// A scraper that takes all it can, one that takes its time, and a guesser of passwords.
const ABUSERS: [&str; 3] = ["203.0.113.1", "203.0.113.2", "203.0.113.3"];

/// A request of the generated traffic.
struct Visit {
    /// In microseconds.
    time: i64,
    client: String,
    method: &'static str,
    path: String,
    status: u16,
    agent: String,
}

/// The shape of the traffic.
#[derive(Clone, Copy)]
struct Shape {
    clients: usize,
    hours: i64,
    /// How much clients differ: the deviation of the logarithm of how often they come.
    spread: f64,
    is_json: bool,
    has_abusers: bool,
}

/// People with browsers who come by chance, more of them by day, an office behind one address, and the abusers.
fn traffic(seed: u64, shape: Shape) -> Vec<Visit> {
    let mut rng = Rng::with_seed(seed);
    let end = START + shape.hours * 3_600 * SECOND;
    let mut visits = Vec::new();
    for nth in 0..shape.clients {
        let normal = (0..12).map(|_| rng.f64()).sum::<f64>() - 6.0;
        let per_hour = 0.8 * (shape.spread * normal).exp();
        let agent = format!("Mozilla/5.0 ({})", rng.u32(..20));
        let client = format!("10.0.{}.{}", nth / 250, nth % 250);
        browse(&mut visits, &mut rng, &client, |_| agent.clone(), per_hour, end);
    }
    browse(&mut visits, &mut rng, OFFICE, |rng| format!("Mozilla/5.0 ({})", rng.u32(..20)), 60.0, end);
    if shape.has_abusers {
        let mut add = |client: &str, time, method, path: String, status, agent: &str| {
            visits.push(Visit { time, client: client.into(), method, path, status, agent: agent.into() });
        };
        for nth in 0..3_000 {
            let time = START + 3_600 * SECOND + nth * 20_000 + rng.i64(0..9_000);
            add(ABUSERS[0], time, "GET", format!("/items/{nth}"), 200, "python-requests/2.31");
        }
        let mut time = START;
        while time < end {
            add(ABUSERS[1], time, "GET", format!("/items/{}", rng.u32(..5_000)), 200, "Scrapy/2.11");
            time += rng.i64(1_600_000..2_400_000);
        }
        for nth in 0..500 {
            let time = START + 3_600 * SECOND + nth * 6 * SECOND + rng.i64(0..SECOND);
            add(ABUSERS[2], time, "POST", "/login".into(), 401, "Mozilla/5.0 (1)");
        }
    }
    visits.retain(|visit| visit.time < end);
    visits.sort_by_key(|visit| visit.time);
    visits
}

/// Adds the page views of one address until `end`, each with the files of its page, some with a login or a purchase.
fn browse(
    visits: &mut Vec<Visit>,
    rng: &mut Rng,
    client: &str,
    agent: impl Fn(&mut Rng) -> String,
    per_hour: f64,
    end: i64,
) {
    let exponential = |rng: &mut Rng, mean: f64| -mean * (1.0 - rng.f64()).ln();
    let mut begin = START;
    loop {
        begin += (exponential(rng, 3_600.0 / per_hour) * 1e6) as i64;
        if begin >= end {
            return;
        }
        let hour = (begin - START) as f64 / 3.6e9;
        if rng.f64() > 0.6 + 0.4 * (hour / 24.0 * std::f64::consts::TAU).sin() {
            continue;
        }
        let agent = agent(rng);
        let mut add = |time, method, path: String, status| {
            visits.push(Visit { time, client: client.into(), method, path, status, agent: agent.clone() });
        };
        if rng.f64() < 0.3 {
            add(begin, "POST", "/login".into(), if rng.f64() < 0.9 { 200 } else { 401 });
        }
        let mut time = begin;
        for _ in 0..1 + exponential(rng, 2.0) as usize {
            add(time, "GET", format!("/items/{}", rng.u32(..5_000)), 200);
            for file in 0..rng.u32(2..9) {
                add(time + rng.i64(50_000..600_000), "GET", format!("/static/{file}.js"), 200);
            }
            time += rng.i64(2 * SECOND..60 * SECOND);
        }
    }
}

fn log(visits: &[Visit], is_json: bool) -> String {
    let mut out = String::new();
    for Visit { time, client, method, path, status, agent } in visits {
        let time = Timestamp::from_microsecond(*time).unwrap();
        if is_json {
            let line = json!({
                "time": format!("{time:.6}"), "client": client, "method": method, "path": path, "status": status,
                "duration_ms": 1, "user_agent": agent,
            });
            writeln!(out, "{line}").unwrap();
        } else {
            let time = time.strftime("%d/%b/%Y:%H:%M:%S +0000");
            writeln!(out, "{client} - - [{time}] \"{method} {path} HTTP/1.1\" {status} 1 \"-\" \"{agent}\"")
                .unwrap();
        }
    }
    out
}

/// The times of requests for which `is_counted` holds, by client. Requests of a second are spread over it if the log has
/// no fractions.
fn times(visits: &[Visit], is_json: bool, is_counted: impl Fn(&Visit) -> bool) -> BTreeMap<&str, Vec<i64>> {
    let mut times: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    let second = |visit: &Visit| visit.time.div_euclid(SECOND);
    for of_second in visits.chunk_by(|a, b| second(a) == second(b)) {
        for (nth, visit) in of_second.iter().enumerate() {
            let spread = second(visit) * SECOND + (nth as i64 * SECOND) / of_second.len() as i64;
            let time = if is_json { visit.time } else { spread };
            if is_counted(visit) {
                times.entry(&visit.client).or_default().push(time);
            }
        }
    }
    times
}

/// The largest number of requests in any (t − window, t].
fn peak(times: &[i64], window: i64) -> u64 {
    let ending_at = |end: usize| {
        let begin = times.partition_point(|&time| time <= times[end] - window);
        (end + 1 - begin) as u64
    };
    (0..times.len()).map(ending_at).max().unwrap_or(0)
}

/// Microseconds of `1s`, `1m` or `1h`.
fn micros(window: &str) -> i64 {
    [("1s", 1), ("1m", 60), ("1h", 3_600)].into_iter().find(|(name, _)| *name == window).unwrap().1 * SECOND
}

/// The limit and the window, in microseconds, of `20/1m`.
fn limits(of: &Value) -> Vec<(u64, i64)> {
    let tiers = of["limits"].as_array().unwrap().iter().map(|tier| tier.as_str().unwrap());
    tiers
        .map(|tier| tier.split_once('/').unwrap())
        .map(|(limit, window)| (limit.parse().unwrap(), micros(window)))
        .collect()
}

fn run(directory: &Path, arguments: &[&str]) -> Ended {
    tollgate_in(directory, &[], arguments)
}

/// The suggestion as JSON for `access.log` in `directory`, whose YAML is written to `suggested.yaml`.
fn suggest(directory: &Path, arguments: &[&str]) -> Value {
    let ended = run(directory, &[&["suggest", "--json"], arguments].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let suggestion: Value = serde_json::from_str(&ended.stdout).unwrap();
    fs::write(directory.join("suggested.yaml"), suggestion["yaml"].as_str().unwrap()).unwrap();
    suggestion
}

/// `check` accepts the file, without a warning.
#[track_caller]
fn is_valid(directory: &Path, file: &str) {
    let checked = run(directory, &["check", file]);
    let yaml = fs::read_to_string(directory.join(file)).unwrap();
    assert_eq!((checked.code, checked.stderr.as_str()), (Some(0), ""), "{yaml}");
}

/// The addresses that `replay` says `suggested.yaml` would have denied, and how many requests.
fn replayed(directory: &Path, file: &str) -> (BTreeSet<String>, u64) {
    let ended = run(directory, &["replay", "--json", "--config", file, "access.log"]);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended:?}"));
    let keys = report["keys"].as_array().unwrap().iter().map(|key| key["key"].as_str().unwrap());
    let keys = keys.map(|key| key.strip_prefix("ip:").unwrap().to_owned()).collect();
    (keys, report["denied"].as_u64().unwrap())
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_default()
}

/// Tests the suggestion for this traffic against its truth.
fn suggestion_is_right(seed: u64, shape: Shape) {
    let directory = TempDir::new().unwrap();
    let visits = traffic(seed, shape);
    fs::write(directory.path().join("access.log"), log(&visits, shape.is_json)).unwrap();
    let suggestion = suggest(directory.path(), &["access.log"]);
    let yaml = text(&suggestion, "yaml");
    assert_eq!(suggestion["requests"], visits.len());
    assert_eq!(suggestion["spread"], !shape.is_json);

    // The peaks are those of an independent computation.
    for route in suggestion["routes"].as_array().unwrap() {
        let path = text(route, "route");
        let is_counted = |visit: &Visit| match path.strip_suffix("/*") {
            Some(prefix) if !prefix.is_empty() => {
                visit.method == route["methods"][0] && visit.path.starts_with(&format!("{prefix}/"))
            }
            Some(_) => true,
            None => visit.method == route["methods"][0] && visit.path == path,
        };
        let times = times(&visits, shape.is_json, is_counted);
        assert_eq!(route["clients"], times.len(), "{path}");
        for window in route["windows"].as_array().unwrap() {
            let length = micros(text(window, "window"));
            let mut peaks: Vec<_> = times.values().map(|times| peak(times, length)).collect();
            peaks.sort_unstable();
            let at = |share: f64| peaks[(share * peaks.len() as f64).ceil() as usize - 1];
            for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)] {
                assert_eq!(window[name], at(share), "{name} of {path} in {window}");
            }
            let limit = window["limit"].as_u64().unwrap();
            let above = peaks.iter().filter(|&&peak| peak > limit).count();
            assert_eq!(window["clients_above"], above, "{path} {window}");
        }
    }

    // No honest client is denied: by a computation of what the algorithm may count, and by replay.
    is_valid(directory.path(), "suggested.yaml");
    let (denied, count) = replayed(directory.path(), "suggested.yaml");
    assert_eq!(suggestion["replayed"]["denied"], count, "{yaml}");
    assert_eq!(suggestion["replayed"]["denied_clients"], denied.len(), "{yaml}");
    let planted: BTreeSet<_> = ABUSERS.map(str::to_owned).into_iter().filter(|_| shape.has_abusers).collect();
    assert_eq!(denied, planted, "{yaml}");
    let mut stopped = BTreeSet::new();
    for route in suggestion["routes"].as_array().unwrap().iter().filter(|route| route["policy"].is_object()) {
        let is_counted = |visit: &Visit| match text(route, "route") {
            "/*" => true,
            path => visit.path == path && visit.method == route["methods"][0],
        };
        let policy = &route["policy"];
        let office = policy["overrides"].as_array().unwrap().iter().find(|of| of["ip"] == OFFICE);
        for (client, times) in times(&visits, shape.is_json, is_counted) {
            let tiers = limits(office.filter(|_| client == OFFICE).unwrap_or(policy));
            if planted.contains(client) {
                if tiers.iter().any(|&(limit, window)| peak(&times, window) > 2 * limit) {
                    stopped.insert(client.to_owned());
                }
                continue;
            }
            for (limit, window) in tiers {
                let counted = peak(&times, window / 10 * 11);
                assert!(counted <= limit, "{client}: {counted} of {limit} in {window}\n{yaml}");
            }
        }
    }
    assert_eq!(stopped, planted, "each sends twice as much as it may\n{yaml}");
}

#[test]
fn planted_abusers_are_stopped_and_nobody_else() {
    let shape = Shape { clients: 150, hours: 5, spread: 0.7, is_json: false, has_abusers: true };
    suggestion_is_right(1, shape);
}

#[test]
fn exact_times_are_measured_exactly() {
    let shape = Shape { clients: 90, hours: 4, spread: 0.5, is_json: true, has_abusers: true };
    suggestion_is_right(2, shape);
}

#[test]
fn people_who_differ_much_are_no_abusers() {
    let shape = Shape { clients: 250, hours: 3, spread: 1.0, is_json: true, has_abusers: true };
    suggestion_is_right(3, shape);
}

#[test]
fn without_abusers_nobody_is_denied() {
    let shape = Shape { clients: 200, hours: 3, spread: 0.7, is_json: false, has_abusers: false };
    suggestion_is_right(4, shape);
}

/// Writes a log of 40 clients, of which one stands apart on /api. Lines have users and API keys.
fn write_small_log(directory: &Path) {
    let mut lines: Vec<(i64, String)> = Vec::new();
    let mut add = |time: i64, client: usize, path: &str| {
        let stamp = Timestamp::from_microsecond(START + time).unwrap();
        let line = json!({
            "time": format!("{stamp:.6}"), "client": format!("10.0.0.{client}"), "method": "GET", "path": path, "status": 200,
            "duration_ms": 1, "user": format!("user-{client}"), "http_x_api_key": format!("key-{client}"),
        });
        lines.push((time, line.to_string()));
    };
    for client in 0..40 {
        for nth in 0..4 + client as i64 % 4 {
            add(nth * 90 * SECOND + client as i64, client, "/api/items");
            add(nth * 80 * SECOND + client as i64, client, "/");
        }
    }
    (0..400).for_each(|nth| add(nth * SECOND / 2, 77, "/api/items"));
    lines.sort();
    let text: String = lines.into_iter().map(|(_, line)| line + "\n").collect();
    fs::write(directory.join("access.log"), text).unwrap();
}

const CONFIG: &str = "user: [basic]
policies:
  api-per-ip: { algorithm: fixed_window, key: ip, limit: 9/1d }
upstreams: { api: { endpoints: [\"http://127.0.0.1:1\"], policies: [api-per-ip] } }
routes:
  - { name: api, path: /api/*, upstream: api }
  - { name: rest, path: /*, upstream: api }
";

#[test]
fn with_a_configuration_each_route_gets_a_policy_to_paste() {
    let directory = TempDir::new().unwrap();
    write_small_log(directory.path());
    fs::write(directory.path().join("proxy.yaml"), CONFIG).unwrap();
    let suggestion = suggest(directory.path(), &["--config", "proxy.yaml", "--window", "1m", "access.log"]);
    let [api, rest] = [0, 1].map(|nth| &suggestion["routes"][nth]);
    assert_eq!((text(api, "route"), text(rest, "route")), ("api", "rest"));
    assert_eq!((&api["windows"][0]["max"], &rest["windows"][0]["max"]), (&json!(120), &json!(1)));
    assert_eq!(api["windows"][0]["knee"], json!({ "below": 1, "above": 120, "clients_above": 1 }));
    assert_eq!(
        (&api["policy"]["name"], &rest["policy"]["name"]),
        (&json!("api-per-ip-2"), &json!("rest-per-ip"))
    );
    assert_eq!((&api["policy"]["limits"], &api["policy"]["clients_above"]), (&json!(["5/1m"]), &json!(1)));
    let yaml = text(&suggestion, "yaml");
    assert!(yaml.contains("#   route api: policies: [api-per-ip-2]"), "{yaml}");

    // Pasted, with the names where the comments say, it is valid, and does what they say.
    let added = yaml.split_once("policies:\n").unwrap().1;
    let pasted = CONFIG
        .replace("policies:\n", &format!("policies:\n{added}"))
        .replace(", policies: [api-per-ip] }", " }");
    let pasted = pasted.replace("name: api,", "name: api, policies: [api-per-ip-2],");
    let pasted = pasted.replace("name: rest,", "name: rest, policies: [rest-per-ip],");
    fs::write(directory.path().join("pasted.yaml"), &pasted).unwrap();
    let checked = run(directory.path(), &["check", "pasted.yaml"]);
    assert_eq!(checked.code, Some(0), "{checked:?}\n{pasted}");
    let (denied, count) = replayed(directory.path(), "pasted.yaml");
    assert_eq!(suggestion["replayed"]["denied"], count, "{pasted}");
    assert_eq!(denied, BTreeSet::from(["10.0.0.77".to_owned()]));
}

#[test]
fn any_key_of_the_log_can_be_limited() {
    let directory = TempDir::new().unwrap();
    write_small_log(directory.path());
    for (key, named) in [
        ("user", "user:user-77"),
        ("header:x-api-key", "header:x-api-key=key-77"),
        ("path+ip", "ip:10.0.0.77+path:/api/items"),
    ] {
        let suggestion = suggest(directory.path(), &["--key", key, "access.log"]);
        let policy = &suggestion["routes"][0]["policy"];
        assert_eq!(policy["above"][0]["key"], named, "{policy:#}");
        let checked = run(directory.path(), &["check", "suggested.yaml"]);
        assert_eq!(checked.code, Some(0), "{checked:?}\n{}", text(&suggestion, "yaml"));
    }
    let refused = |arguments: &[&str]| {
        let ended = run(directory.path(), &[&["suggest"], arguments, &["access.log"]].concat());
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{ended:?}");
        ended.stderr
    };
    assert!(refused(&["--key", "header:x-other"]).contains("$http_x_api_key"));
    assert!(refused(&["--key", "customer"]).contains("add --config FILE"));
}

#[test]
fn standard_input_is_measured_but_not_replayed() {
    let directory = TempDir::new().unwrap();
    write_small_log(directory.path());
    let ended = crate::harness::printed(
        crate::harness::program("bash", "bash")
            .current_dir(directory.path())
            .args(["-c", "cat access.log | $TOLLGATE suggest --json -"])
            .env("TOLLGATE", env!("CARGO_BIN_EXE_tollgate")),
    );
    let suggestion: Value = serde_json::from_str(&ended).unwrap();
    assert_eq!(suggestion["replayed"], Value::Null);
    assert_eq!(suggestion["routes"].as_array().unwrap().len(), 1);
    assert!(text(&suggestion, "yaml").contains("Not replayed"));
    fs::write(directory.path().join("suggested.yaml"), text(&suggestion, "yaml")).unwrap();
    is_valid(directory.path(), "suggested.yaml");
    let from_file = suggest(directory.path(), &["access.log"]);
    assert_eq!(from_file["routes"][0]["windows"], suggestion["routes"][0]["windows"]);
}

#[test]
fn wrong_arguments_and_logs_are_named() {
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("empty.log"), "").unwrap();
    fs::write(directory.path().join("text.log"), "a: b\n").unwrap();
    fs::write(directory.path().join("wrong.yaml"), "routes: 1\n").unwrap();
    for (arguments, code, words) in [
        (&["--spare", "101%", "a.log"][..], 2, "expected a percentage from 0% to 100%"),
        (&["--live", "a.log"], 2, "cannot be used with"),
        (&["--window", "1", "a.log"], 2, "add a unit: 1s"),
        (&["--key", "address", "a.log"], 2, "did you mean `ip`?"),
        (&[], 2, "<LOG|--live>"),
        (&["none.log"], 1, "none.log cannot be read"),
        (&["empty.log"], 1, "empty.log is empty"),
        (&["text.log"], 1, "text.log is not an access log"),
        (&["--config", "wrong.yaml", "empty.log"], 78, "wrong.yaml:1:"),
    ] {
        let ended = run(directory.path(), &[&["suggest"], arguments].concat());
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(code), ""), "{arguments:?}: {ended:?}");
        assert!(ended.stderr.contains(words), "{arguments:?}: {}", ended.stderr);
    }
}
