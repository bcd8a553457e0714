//! Prometheus: Go's client. It scrapes through Tollgate, and writes what it scraped through it.

use std::{
    fs,
    net::{SocketAddr, TcpStream},
    process::Stdio,
};

use serde_json::Value;
use tempfile::TempDir;

use super::Served;
use crate::harness::{Running, eventually, file_name, get, nobody, program};

/// How many targets it scrapes over its connection.
const TARGETS: usize = 30;

fn start(served: &Served, directory: &TempDir) -> (Running, SocketAddr) {
    let address = nobody();
    let target = format!("localhost:{}", served.service.0.address.port());
    let authority = served.authority.file();
    let tls = format!("scheme: https, tls_config: {{ ca_file: \"{}\" }}", file_name(&authority));
    let targets: Vec<_> = (0..TARGETS)
        .map(|number| {
            format!("{{ targets: [\"{target}\"], labels: {{ __param_n: \"{number}\", n: \"{number}\" }} }}")
        })
        .collect();
    let configuration = format!(
        "
global: {{ scrape_interval: 10s, scrape_timeout: 10s }}
scrape_configs:
  - {{ job_name: many, metrics_path: /metrics, scrape_interval: 3s, scrape_timeout: 3s, {tls}, static_configs: [{}] }}
  - {{ job_name: large, metrics_path: /samples, {tls}, static_configs: [{{ targets: [\"{target}\"] }}] }}
  - {{ job_name: held, metrics_path: /held/samples, {tls}, static_configs: [{{ targets: [\"{target}\"] }}] }}
  - {{ job_name: limited, metrics_path: /limited, scrape_interval: 3s, scrape_timeout: 3s, {tls},
       static_configs: [{{ targets: [\"{target}\"] }}] }}
remote_write:
  - {{ url: \"https://{target}/write\", tls_config: {{ ca_file: \"{}\" }},
       queue_config: {{ max_samples_per_send: 50000, capacity: 100000, max_shards: 1 }} }}
",
        targets.join(", "),
        file_name(&authority)
    );
    let file = directory.path().join("prometheus.yml");
    fs::write(&file, configuration).unwrap();
    let child = program("prometheus", "prometheus")
        .arg(format!("--config.file={}", file.display()))
        .arg(format!("--storage.tsdb.path={}", directory.path().join("data").display()))
        .arg(format!("--web.listen-address={address}"))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let running = Running(child);
    eventually("Prometheus listens", || TcpStream::connect(address).is_ok());
    (running, address)
}

/// The value of the only sample that the query finds.
fn value(address: SocketAddr, query: &str) -> Option<f64> {
    let query = percent_encoding::utf8_percent_encode(query, percent_encoding::NON_ALPHANUMERIC);
    let answer = get(address, &format!("/api/v1/query?query={query}"), &[]);
    // It listens before it is ready.
    let answer: Value = serde_json::from_slice(&answer.body).ok()?;
    answer["data"]["result"][0]["value"][1].as_str()?.parse().ok()
}

#[test]
fn prometheus_is_served() {
    let (mut served, directory) = (Served::start(), TempDir::new().unwrap());
    let (_prometheus, address) = start(&served, &directory);
    let is = |query: &str, wanted: f64| {
        eventually(&format!("{query} is {wanted}"), || value(address, query) == Some(wanted));
    };
    let targets = f64::from(u32::try_from(TARGETS).unwrap());
    // A scrape is under way while a new process takes over.
    served.hand_over_during(|_| is("up{job=\"held\"}", 1.0));
    is("sum(up{job=\"many\"})", targets);
    is("count(sample)", 20_000.0);
    is("up{job=\"limited\"}", 0.0);
    let all = get(address, "/api/v1/targets", &[]).text();
    assert!(all.contains("server returned HTTP status 429 Too Many Requests"), "{all}");
    let uploaded = || -> usize {
        let received = served.origin.received();
        received.iter().filter(|all| all.contains("POST /write ")).map(String::len).sum()
    };
    eventually("what it scraped is written", || uploaded() > 2 << 20);

    let scrapes = || served.logged().iter().filter(|(path, ..)| path.starts_with("/metrics?")).count();
    let before = scrapes();
    eventually("all are scraped again", || scrapes() >= before + TARGETS);
    assert_eq!(value(address, "min(min_over_time(up{job=~\"many|large\"}[1h]))"), Some(1.0));
    let logged = served.logged();
    assert!(logged.iter().all(|(_, protocol, _)| protocol == "HTTP/2.0"), "{logged:?}");
    // The origin holds each of these scrapes, also those that the test does not wait for.
    let is_amiss = |(path, _, status): &&(String, String, u64)| {
        !["/limited", "/held/samples"].contains(&path.as_str()) && *status != 200
    };
    assert_eq!(logged.iter().find(is_amiss), None);
}
