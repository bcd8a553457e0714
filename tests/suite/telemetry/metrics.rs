//! What `/metrics` says after traffic that is known, read strictly.

use std::collections::{BTreeMap, BTreeSet};

use crate::harness::{Client, Config, Origin, Tollgate, eventually, get, nobody, request};

/// The page, sample by sample: name and labels as they stand there, and the value.
struct Page(BTreeMap<String, f64>);

impl Page {
    /// Reads OpenMetrics text.
    ///
    /// # Panics
    /// A line is none, a sample is of no family that was announced, or one is told twice.
    #[track_caller]
    fn of(tollgate: &Tollgate) -> Self {
        let accept = [("accept", "application/openmetrics-text; version=1.0.0, text/plain;q=0.5")];
        let reply = request(tollgate.admin, "GET", "/metrics", &accept, b"");
        assert_eq!(reply.status, 200);
        assert!(
            reply.header("content-type").unwrap().starts_with("application/openmetrics-text; version=1.0.0")
        );
        let text = String::from_utf8(reply.body).unwrap();
        let text = text.strip_suffix("# EOF\n").expect("the page has an end");
        let (mut families, mut samples) = (BTreeMap::new(), BTreeMap::new());
        let mut helped = BTreeSet::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert_eq!(families.insert(name, kind), None, "announced twice: {line}");
            } else if let Some(rest) = line.strip_prefix("# HELP ") {
                helped.insert(rest.split_once(' ').unwrap().0);
            } else {
                let (sample, value) = line.rsplit_once(' ').unwrap();
                let name = labelled(sample);
                let family = ["_total", "_bucket", "_sum", "_count", ""]
                    .iter()
                    .find_map(|suffix| families.get_key_value(name.strip_suffix(suffix)?));
                let (family, kind) = family.unwrap_or_else(|| panic!("of no family: {line}"));
                assert!(helped.contains(family), "no help: {line}");
                assert_eq!(*kind == "counter", name.ends_with("_total"), "{line}");
                assert_eq!(samples.insert(sample.to_owned(), value.parse().unwrap()), None, "twice: {line}");
            }
        }
        Self(samples)
    }

    #[track_caller]
    fn value(&self, sample: &str) -> f64 {
        *self.0.get(sample).unwrap_or_else(|| panic!("no {sample}"))
    }

    /// The sum over all samples that begin so.
    fn sum(&self, begin: &str) -> f64 {
        self.0.iter().filter(|(sample, _)| sample.starts_with(begin)).map(|(_, value)| value).sum()
    }
}

/// The name of a sample, whose labels are `{name="value",…}` if it has any.
#[track_caller]
fn labelled(sample: &str) -> &str {
    let Some((name, labels)) = sample.split_once('{') else { return sample };
    let mut rest = labels.strip_suffix('}').unwrap();
    while !rest.is_empty() {
        let (label, after) = rest.split_once("=\"").unwrap();
        assert!(label.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{sample}");
        let mut escaped = false;
        let end = after.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        rest = &after[end.unwrap() + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    name
}

/// The page once so many requests are counted, which is when their answers have left: clients may have
/// seen them a moment before.
#[track_caller]
fn settled(tollgate: &Tollgate, requests: f64) -> Page {
    let mut page = Page::of(tollgate);
    eventually("all requests are counted", || {
        page = Page::of(tollgate);
        page.sum("tollgate_request_duration_seconds_count") >= requests
    });
    page
}

fn start(origin: &Origin) -> Tollgate {
    Tollgate::start(Config::yaml(format!(
        "
upstreams: {{ api: {{ endpoints: [\"http://{}\"] }} }}
policies: {{ five: {{ algorithm: sliding_log, key: ip, limit: 5/1h }} }}
routes:
  - {{ name: limited, path: /limited, upstream: api, policies: [five] }}
  - {{ name: 'a \"quoted\" name', path: /plain/*, upstream: api }}
",
        origin.address
    )))
}

#[test]
fn requests_are_counted_by_route_and_status_class() {
    let origin = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            let status = if head.starts_with("GET /plain/500") { "500 No" } else { "200 OK" };
            conn.answer(status, &[], b"")?;
        }
        Ok(())
    });
    let tollgate = start(&origin);
    for (count, path) in [(8, "/limited"), (3, "/plain/a"), (2, "/plain/500"), (4, "/nowhere")] {
        for _ in 0..count {
            get(tollgate.address, path, &[]);
        }
    }
    let page = settled(&tollgate, 17.0);
    let requests = |route: &str, class: &str| {
        page.value(&format!("tollgate_requests_total{{route=\"{route}\",status=\"{class}\"}}"))
    };
    assert_eq!((requests("limited", "2xx"), requests("limited", "4xx")), (5.0, 3.0));
    let quoted = r#"a \"quoted\" name"#;
    assert_eq!((requests(quoted, "2xx"), requests(quoted, "5xx")), (3.0, 2.0));
    assert_eq!((requests("", "4xx"), requests("", "2xx")), (4.0, 0.0));
    assert_eq!(page.sum("tollgate_requests_total"), 17.0);
    assert_eq!(page.sum("tollgate_request_duration_seconds_count"), 17.0);
    let decisions = |verdict: &str| {
        page.value(&format!(
            "tollgate_decisions_total{{policy=\"five\",verdict=\"{verdict}\",source=\"store\"}}"
        ))
    };
    assert_eq!((decisions("allowed"), decisions("denied"), decisions("error")), (5.0, 3.0, 0.0));
    assert_eq!(page.sum("tollgate_upstream_requests_total"), 10.0);
    assert_eq!(page.value("tollgate_upstream_requests_total{upstream=\"api\",result=\"ok\"}"), 10.0);
    assert_eq!(page.value("tollgate_memory_keys"), 1.0);
    assert_eq!(page.value("tollgate_memory_discarded_total"), 0.0);
}

#[test]
fn buckets_of_durations_add_up() {
    let origin = Origin::ok();
    let tollgate = start(&origin);
    for _ in 0..20 {
        get(tollgate.address, "/plain/a", &[]);
    }
    let page = settled(&tollgate, 20.0);
    let quoted = r#"route="a \"quoted\" name""#;
    let name = "tollgate_request_duration_seconds";
    assert_eq!(page.value(&format!("{name}_bucket{{le=\"+Inf\",{quoted}}}")), 20.0);
    let sum = page.value(&format!("{name}_sum{{{quoted}}}"));
    assert!(sum > 0.0 && sum < 20.0, "{sum}");
    let mut buckets: Vec<(f64, f64)> = page
        .0
        .iter()
        .filter(|(sample, _)| sample.starts_with(&format!("{name}_bucket")) && sample.contains(quoted))
        .map(|(sample, &count)| (sample.split('"').nth(1).unwrap().parse().unwrap(), count))
        .collect();
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    assert!(buckets.len() > 5 && buckets.is_sorted_by(|a, b| a.1 <= b.1), "{buckets:?}");
}

#[test]
fn hosts_methods_and_paths_of_clients_are_no_labels() {
    let origin = Origin::ok();
    let tollgate = start(&origin);
    request(
        tollgate.address,
        "BREW",
        "/plain/zebra",
        &[("host", "zebra.example"), ("user-agent", "zebra")],
        b"",
    );
    assert!(!tollgate.admin("GET", "/metrics").text().contains("zebra"));
    Page::of(&tollgate);
}

#[test]
fn open_connections_are_a_gauge() {
    let origin = Origin::ok();
    let tollgate = start(&origin);
    let clients: Vec<_> = (0..7).map(|_| Client::connect(tollgate.address)).collect();
    eventually("they are counted", || tollgate.metric("tollgate_connections ") == 7.0);
    drop(clients);
    eventually("they are gone", || tollgate.metric("tollgate_connections ") == 0.0);
}

#[test]
fn endpoints_that_can_not_be_reached_are_seen() {
    let (origin, gone) = (Origin::ok(), nobody());
    let tollgate = Tollgate::start(Config::new(&[origin.address, gone], ""));
    let about = |name: &str, endpoint: std::net::SocketAddr| {
        let labels = format!("upstream=\"origin\",endpoint=\"http://{endpoint}\"");
        Page::of(&tollgate).value(&format!("{name}{{{labels}}}"))
    };
    let (healthy, ejections) = ("tollgate_upstream_endpoint_healthy", "tollgate_upstream_ejections_total");
    assert_eq!([origin.address, gone].map(|endpoint| about(healthy, endpoint)), [1.0, 1.0]);
    eventually("it was tried", || {
        assert_eq!(get(tollgate.address, "/", &[]).status, 200);
        about(healthy, gone) == 0.0
    });
    assert_eq!((about(ejections, gone), about(ejections, origin.address)), (1.0, 0.0));
    let listener = std::net::TcpListener::bind(gone).unwrap();
    let mut clients = Vec::new();
    eventually("it is tried again", || {
        // A client that gets to it waits for an answer in vain. If it went away, it might do so before it is tried.
        clients.push(Client::sending(tollgate.address, "GET / HTTP/1.1\r\nhost: a\r\n\r\n"));
        about(healthy, gone) == 1.0
    });
    drop(listener);
    assert_eq!(about(ejections, gone), 1.0);
}
