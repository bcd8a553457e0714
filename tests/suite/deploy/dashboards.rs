//! The dashboard and the rules of `deploy/`: they ask for what is there, and the programs they are for read them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use jsonwebtoken::Algorithm;
use serde_json::json;
use tollgate::{
    config,
    telemetry::metrics::{ExpositionFormat, Metrics, NodeFacts, StoreFacts, StoreTopology},
};

use crate::{
    config::environment::Environment,
    harness::{Authority, Config, Issued, Issuer, Origin, Redis, Tollgate, file_name, get, printed, program},
};

/// The least that a configuration says.
const SMALLEST: &str = "
upstreams: { origin: { endpoints: [\"http://127.0.0.1:1\"] } }
routes: [{ path: /*, upstream: origin }]
";

/// What Prometheus itself records of each target.
const OF_TARGETS: &str = "up";

/// Labels that Prometheus adds, and that of histograms.
const ADDED: [&str; 3] = ["job", "instance", "le"];

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(name)
}

/// A page with everything that may be on one: of a Tollgate that has a Redis and speaks TLS, and has been asked.
fn page() -> String {
    let (origin, redis) = (Origin::ok(), Redis::start());
    let keys = json!({ "keys": [Issuer::new(Algorithm::ES256).jwk("a")] }).to_string();
    let provider = Origin::start(move |conn| {
        while conn.head()?.is_some() {
            conn.answer("200 OK", &[], keys.as_bytes())?;
        }
        Ok(())
    });
    let authority = Authority::new("an authority");
    let Issued { cert, key } = authority.issue("server", &["api.example.com"]);
    let rest = format!(
        "listeners:
  - {{ address: \"127.0.0.1:0\" }}
  - {{ address: \"127.0.0.1:0\", tls: {{ certificates: [{{ cert: \"{}\", key: \"{}\" }}] }} }}
user: [{{ jwt: {{ jwks: \"http://{}/keys\", audience: api }} }}]
store: {{ redis: {{ url: \"{}\", timeout: 5s }} }}
policies: {{ per-ip: {{ algorithm: sliding_log, key: ip, limit: 1/1h }} }}
alerts: [{{ when: usage, policy: per-ip, at: [100%], to: \"http://127.0.0.1:1/\" }}]
upstreams:
  origin: {{ endpoints: [\"http://{}\"], policies: [per-ip] }}
  secure: {{ endpoints: [\"https://127.0.0.1:1\"], tls: {{ ca: \"{}\", cert: \"{}\", key: \"{}\" }} }}
history: {{ store: {{ file: history.db, single: true }} }}
routes:
  - {{ path: /secure, upstream: secure }}
  - {{ path: /*, upstream: origin }}
",
        file_name(&cert),
        file_name(&key),
        provider.address,
        redis.url(),
        origin.address,
        file_name(&authority.file()),
        file_name(&cert),
        file_name(&key),
    );
    let tollgate = Tollgate::start(Config::yaml(rest));
    for _ in 0..3 {
        get(tollgate.address, "/", &[]);
    }
    tollgate.admin("GET", "/metrics").text()
}

/// The samples that are there only if the store is a cluster.
fn cluster_samples() -> String {
    let config =
        config::parse("proxy.yaml", SMALLEST, &Environment).unwrap_or_else(|errors| panic!("{errors}"));
    let metrics = Metrics::new(&config, 1);
    let facts = StoreFacts {
        topology: StoreTopology::Cluster,
        nodes: vec![NodeFacts { lag: Some(1), ..NodeFacts::default() }],
        ..StoreFacts::default()
    };
    metrics.store.watch(move || Some(facts.clone()));
    metrics.expose(ExpositionFormat::Text).unwrap()
}

/// Every metric of a page, with the labels that its samples have.
fn metrics(page: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut metrics = BTreeMap::<String, BTreeSet<String>>::new();
    for sample in page.lines().filter(|line| !line.starts_with('#')) {
        let (name, labels) = sample.split_once(['{', ' ']).unwrap();
        let labels = if sample[name.len()..].starts_with('{') { labels } else { "" };
        let of = metrics.entry(name.to_owned()).or_default();
        of.extend(labels.split("\",").filter_map(|label| Some(label.split_once('=')?.0.to_owned())));
    }
    metrics
}

/// The names of all metrics.
pub fn metric_names() -> BTreeSet<String> {
    metrics(&(page() + &cluster_samples())).into_keys().collect()
}

/// The words of an expression that Prometheus would take for names: each with whether a brace follows, and the labels in it.
fn selected(expression: &str) -> Vec<(String, Vec<String>)> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(at) = rest.find(is_name) {
        let length = rest[at..].find(|c| !is_name(c)).unwrap_or(rest.len() - at);
        let name = &rest[at..at + length];
        rest = &rest[at + length..];
        let mut labels = Vec::new();
        if let Some(inside) = rest.strip_prefix('{') {
            let (inside, after) = inside.split_once('}').unwrap();
            let matchers = inside.split("\",").filter(|matcher| !matcher.is_empty());
            labels
                .extend(matchers.map(|matcher| matcher.split(['=', '!']).next().unwrap().trim().to_owned()));
            rest = after;
        }
        if name.starts_with("tollgate") || name.starts_with("process_") || name == OF_TARGETS {
            found.push((name.to_owned(), labels));
        }
    }
    found
}

/// The labels of all `by (…)`.
fn grouped(expression: &str) -> Vec<String> {
    let groups = expression.split("by (").skip(1).filter_map(|rest| rest.split_once(')'));
    groups.flat_map(|(labels, _)| labels.split(',').map(|label| label.trim().to_owned())).collect()
}

/// What of the expression is not on the page. `recorded`: the names that rules make.
fn missing(
    expression: &str,
    metrics: &BTreeMap<String, BTreeSet<String>>,
    recorded: &BTreeSet<String>,
) -> Vec<String> {
    let mut missing = Vec::new();
    let selected = selected(expression);
    assert!(!selected.is_empty(), "it asks for nothing: {expression}");
    let mut known: BTreeSet<&str> = ADDED.into();
    for (name, labels) in &selected {
        if recorded.contains(name) || name == OF_TARGETS {
            continue;
        }
        let Some(own) = metrics.get(name) else {
            missing.push(format!("{name} in {expression}"));
            continue;
        };
        known.extend(own.iter().map(String::as_str));
        let unknown = labels.iter().filter(|label| !own.contains(*label) && !ADDED.contains(&label.as_str()));
        missing.extend(unknown.map(|label| format!("{name}{{{label}}} in {expression}")));
    }
    let unknown = grouped(expression).into_iter().filter(|label| !known.contains(label.as_str()));
    missing.extend(unknown.map(|label| format!("by ({label}) in {expression}")));
    missing
}

/// The texts under `key`, wherever they stand.
fn texts(value: &serde_json::Value, key: &str) -> Vec<String> {
    match value {
        serde_json::Value::Object(object) => object
            .iter()
            .flat_map(|(name, value)| match value {
                serde_json::Value::String(text) if name == key => vec![text.clone()],
                other => texts(other, key),
            })
            .collect(),
        serde_json::Value::Array(items) => items.iter().flat_map(|item| texts(item, key)).collect(),
        _ => Vec::new(),
    }
}

fn dashboard() -> serde_json::Value {
    serde_json::from_str(&fs::read_to_string(deploy("grafana/dashboard.json")).unwrap()).unwrap()
}

#[test]
fn the_dashboard_asks_for_what_there_is() {
    let metrics = metrics(&(page() + &cluster_samples()));
    let expressions = texts(&dashboard(), "expr");
    assert!(expressions.len() > 30, "{}", expressions.len());
    let missing: Vec<_> =
        expressions.iter().flat_map(|expression| missing(expression, &metrics, &BTreeSet::new())).collect();
    assert_eq!(missing, [""; 0]);
    // What is counted is also shown, but for what only the panels of others need.
    let shown = expressions.join("\n");
    let unseen = |name: &&String| {
        let stem = name.trim_end_matches("_bucket").trim_end_matches("_sum").trim_end_matches("_count");
        !shown.contains(stem)
    };
    let unseen: Vec<_> = metrics.keys().filter(unseen).collect();
    assert!(unseen.iter().all(|name| *name == "tollgate_instances"), "{unseen:?}");
}

#[test]
fn panels_of_the_dashboard_stand_beside_each_other_and_have_a_source() {
    let dashboard = dashboard();
    let mut taken = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(x < 24 && taken.insert((x, y)), "{panel:#}");
            }
        }
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel:#}");
        if panel["type"] != "row" {
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{panel:#}");
        }
    }
}

#[test]
fn the_rules_ask_for_what_there_is() {
    let metrics = metrics(&(page() + &cluster_samples()));
    let text = fs::read_to_string(deploy("prometheus/rules.yaml")).unwrap();
    let recorded: BTreeSet<_> =
        text.lines().filter_map(|line| Some(line.trim().strip_prefix("- record: ")?.to_owned())).collect();
    let mut expressions = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(expression) = line.trim().strip_prefix("expr: ") else { continue };
        let mut expression = expression.trim_start_matches('|').to_owned();
        // What is indented further belongs to it.
        while let Some(more) = lines.next_if(|line| line.starts_with("          ")) {
            expression += more;
        }
        expressions.push(expression);
    }
    assert_eq!(expressions.len(), text.matches("expr:").count());
    let missing: Vec<_> =
        expressions.iter().flat_map(|expression| missing(expression, &metrics, &recorded)).collect();
    assert_eq!(missing, [""; 0]);
}

#[test]
fn unknown_metrics_and_labels_in_an_expression_are_found() {
    let metrics = metrics("tollgate_a_total{route=\"x\",status=\"2xx\"} 1\ntollgate_b 2\n");
    assert_eq!(metrics["tollgate_a_total"], BTreeSet::from(["route".to_owned(), "status".to_owned()]));
    let recorded = BTreeSet::from(["tollgate:c".to_owned()]);
    for (expression, count) in [
        ("sum by (route) (rate(tollgate_a_total{status=\"2xx\",job=~\"$job\"}[5m]))", 0),
        ("tollgate_b / tollgate:c", 0),
        ("up{job=\"tollgate\"} == 0", 0),
        ("tollgate_c", 1),
        ("tollgate:d", 1),
        ("tollgate_b{route=\"x\"}", 1),
        ("sum by (policy) (tollgate_a_total)", 1),
    ] {
        assert_eq!(missing(expression, &metrics, &recorded).len(), count, "{expression}");
    }
}

#[test]
fn promtool_finds_nothing_wrong_with_the_page() {
    let text = page();
    let mut child = program("promtool", "prometheus")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && said.is_empty(), "{said}");
}

#[test]
fn promtool_takes_the_rules_and_their_test() {
    let promtool = || -> Command { program("promtool", "prometheus") };
    let rules = deploy("prometheus/rules.yaml");
    assert!(printed(promtool().args(["check", "rules"]).arg(rules)).contains("SUCCESS: 36 rules"));
    let tests = deploy("prometheus/rules_test.yaml");
    assert!(printed(promtool().args(["test", "rules"]).arg(tests)).contains("SUCCESS"));
    let scrape = deploy("prometheus/scrape.yaml");
    assert!(printed(promtool().args(["check", "config", "--syntax-only"]).arg(scrape)).contains("SUCCESS"));
}
