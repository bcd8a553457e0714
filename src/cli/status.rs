//! `tollgate status`: the state of a running Tollgate and of its store.

use std::{fmt::Write, process::ExitCode, time::Duration};

use http::Method;

use super::{
    client::{self, EXIT_CODES, Options},
    format::{latency, uptime},
    terminal::{moment, printable, table},
};
use crate::{
    admin::dto::{
        KeySetStatus, ListenerTls, MemoryBudget, MemoryStatus, ServedCertificate, Status, StoreNode,
        StoreStatus, UpstreamStatus,
    },
    memory_budget::format_bytes,
};

/// Show the version, configuration, store, upstreams and warnings of a running Tollgate
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct Args {
    #[command(flatten)]
    pub options: Options,
}

/// Sends the request and prints the response.
pub(super) fn run(args: &Args) -> ExitCode {
    client::print_result(client::request(&args.options, Method::GET, "/v1/status", text))
}

fn text(status: &Status) -> String {
    let configuration = &status.configuration;
    let (version, up) = (printable(&status.version), uptime(&status.uptime));
    let mut text = format!("tollgate {version}, up {}, {}\n", printable(&up), phase(status));
    let mut line = |name: &str, value: &str| {
        let _infallible = writeln!(text, "{name:<15}{}", printable(value));
    };
    line("configuration", &format!("{}, loaded {} UTC", configuration.hash, moment(&configuration.loaded)));
    if let Some((time, error)) = configuration.failed_reload() {
        line("reload failed", &format!("{} UTC: {error}", moment(time)));
    }
    line("listeners", &status.listeners.join(", "));
    line("workers", &status.workers.to_string());
    line("store", &store(&status.store));
    line("memory", &memory(&status.memory));
    for each in &status.key_sets {
        line("key set", &key_set(each));
    }
    for each in &status.upstreams {
        line("upstream", &upstream(each));
    }
    for outage in &status.outages {
        line("outage", &format!("{}, since {} UTC", outage.text, moment(&outage.since)));
    }
    for warning in status.remaining_warnings() {
        line("warning", warning);
    }
    let mut add_table = |table: String| text.extend(["\n", &table]);
    if !status.tls.is_empty() {
        add_table(table(CERTIFICATE_COLUMNS, status.tls.iter().flat_map(certificate_rows)));
    }
    if !status.store.nodes().is_empty() {
        add_table(table(NODE_COLUMNS, status.store.nodes().iter().map(node_row)));
    }
    text
}

/// `https://login.example.com: 2 keys, fetched 2026-07-01 12:00:00 UTC`; its warning has the error.
fn key_set(set: &KeySetStatus) -> String {
    let KeySetStatus { source, keys, fetched, error, .. } = set;
    let keys = format!("{keys} {}", if *keys == 1 { "key" } else { "keys" });
    let failed = if error.is_some() { ", can't be fetched now" } else { "" };
    match fetched {
        Some(fetched) => format!("{source}: {keys}, fetched {} UTC{failed}", moment(fetched)),
        None => format!("{source}: not fetched yet"),
    }
}

/// Maximum number of problems in an upstream's line.
const NAMED_PROBLEMS: usize = 3;

/// `api: 1 of 2 endpoints healthy; http://10.0.0.6:3000 is unreachable: Connection refused`
fn upstream(upstream: &UpstreamStatus) -> String {
    let UpstreamStatus { name, endpoints, healthy, problems } = upstream;
    let mut text = format!("{name}: {healthy} of {endpoints} endpoints healthy");
    for problem in problems.iter().take(NAMED_PROBLEMS) {
        text += &format!("; {problem}");
    }
    match problems.len().saturating_sub(NAMED_PROBLEMS) {
        0 => text,
        more => text + &format!("; and {more} more, see `tollgate upstreams`"),
    }
}

const CERTIFICATE_COLUMNS: [&str; 6] = ["LISTENER", "NAMES", "FILE", "EXPIRES (UTC)", "DAYS LEFT", "STATE"];

fn certificate_rows(tls: &ListenerTls) -> impl Iterator<Item = [String; 6]> {
    let row = |served: &ServedCertificate| {
        let failed = if served.reload_error.is_some() { ", not reloaded" } else { "" };
        [
            tls.addresses.join(", "),
            served.names.join(", "),
            served.file.clone(),
            moment(&served.not_after),
            served.days_left.map_or_else(|| "-".to_owned(), |days| days.to_string()),
            format!("{}{failed}", served.state.replace('_', " ")),
        ]
    };
    tls.certificates.iter().map(row)
}

const NODE_COLUMNS: [&str; 8] =
    ["NODE", "ROLE", "SLOTS", "ROUND TRIP", "LAG", "DECISIONS/S", "VERSION", "STATE"];

fn node_row(node: &StoreNode) -> [String; 8] {
    let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    let role = node.role.as_deref().unwrap_or("-");
    let role = match &node.primary {
        Some(primary) => format!("{role} of {primary}"),
        None => role.to_owned(),
    };
    let state = match &node.failure {
        Some(failure) => format!("{}: {failure}", state(node)),
        None => state(node),
    };
    [
        node.address.clone(),
        role,
        or_dash(node.slots_in_short()),
        latency(node.latency_us.map(|micros| Duration::from_micros(micros).as_secs_f64())),
        or_dash(node.lag_bytes.map(|bytes| format!("{bytes} B")).unwrap_or_default()),
        node.decisions_per_second.to_string(),
        or_dash(node.version.clone().unwrap_or_default()),
        state,
    ]
}

/// `up`, `down`, `breaker open`
fn state(node: &StoreNode) -> String {
    node.state.replace('_', " ")
}

/// `ready`, `outage` (ready, but something is out of order), `draining` or `not ready`.
pub(super) fn phase(status: &Status) -> &'static str {
    match status {
        status if status.draining => "draining",
        status if status.ready && !status.outages.is_empty() => "outage",
        status if status.ready => "ready",
        _ => "not ready",
    }
}

/// Describes the store: `redis, master, 250ms, breaker closed, 2 instances`. Several servers are counted instead of the
/// role: `cluster, 5/6 up`.
pub(super) fn store(store: &StoreStatus) -> String {
    let StoreStatus { topology, keys, shared, .. } = store;
    let Some(shared) = shared else {
        return format!("{topology}, {keys} {}", if *keys == 1 { "key" } else { "keys" });
    };
    let servers = match shared.nodes.as_slice() {
        [] | [_] => shared.role.clone().unwrap_or_else(|| "unreachable".to_owned()),
        nodes => format!("{}/{} up", store.nodes_up(), nodes.len()),
    };
    let latency = shared.latency.as_deref().unwrap_or("no answer");
    let plural = if shared.instances == 1 { "" } else { "s" };
    let (breaker, instances) = (&shared.breaker, shared.instances);
    format!("{topology}, {servers}, {latency}, breaker {breaker}, {instances} instance{plural}")
}

/// `limits 12 MiB of 128 MiB, evidence 3 MiB of 128 MiB`
fn memory(memory: &MemoryStatus) -> String {
    let part = |budget: &MemoryBudget| {
        format!("{} of {}", format_bytes(budget.held_bytes), format_bytes(budget.budget_bytes))
    };
    format!("limits {}, evidence {}", part(&memory.limits), part(&memory.evidence))
}

/// The failing ones of several servers: `10.0.0.2:6379 (down), 10.0.0.4:6379 (breaker open)`.
pub(super) fn failing_nodes(store: &StoreStatus) -> Option<String> {
    let nodes = store.nodes();
    let failing = nodes.iter().filter(|node| nodes.len() > 1 && node.is_failing());
    let listed = failing.map(|node| format!("{} ({})", node.address, state(node))).collect::<Vec<_>>();
    (!listed.is_empty()).then(|| listed.join(", "))
}

#[cfg(test)]
mod tests {
    use super::{super::client::testing::options, *};
    use crate::{
        admin::testing::Harness,
        telemetry::{
            metrics::{StoreFacts, StoreTopology},
            testing::cluster,
        },
    };

    fn shown(harness: &Harness) -> String {
        client::request(&options(harness.address, None), Method::GET, "/v1/status", text).unwrap()
    }

    #[test]
    fn each_redis_server_of_a_cluster_is_a_row() {
        let harness = Harness::with_store(cluster());
        assert_eq!(
            shown(&harness),
            format!(
                "\
tollgate {}, up 0s, ready
configuration  abc123, loaded 2026-07-03 12:00:01 UTC
listeners      127.0.0.1:8080
workers        1
store          cluster, 1/4 up, 1ms, breaker closed, 2 instances
memory         limits 0 B of 0 B, evidence 0 B of 0 B
warning        mind the gap

NODE           ROLE                      SLOTS              ROUND TRIP  LAG     DECISIONS/S  VERSION  STATE
10.0.0.1:6379  primary                   0-8192             0.3ms       -       40           7.2.4    up
10.0.0.2:6379  primary                   8193-16382, 16383  -           -       0            -        breaker open: Connection refused
10.0.0.3:6379  -                         -                  -           -       0            -        unknown
10.0.0.4:6379  replica of 10.0.0.1:6379  -                  -           4096 B  0            -        down: no connection within 1s
",
                env!("CARGO_PKG_VERSION")
            )
        );
    }

    #[test]
    fn an_upstream_is_a_line_with_what_is_wrong() {
        let of = |problems: &[&str]| UpstreamStatus {
            name: "api".into(),
            endpoints: 5,
            healthy: 5 - problems.len(),
            problems: problems.iter().map(|&problem| problem.to_owned()).collect(),
        };
        assert_eq!(upstream(&of(&[])), "api: 5 of 5 endpoints healthy");
        assert_eq!(
            upstream(&of(&["http://a is drained by operator at ::1"])),
            "api: 4 of 5 endpoints healthy; http://a is drained by operator at ::1"
        );
        assert_eq!(
            upstream(&of(&["a", "b", "c", "d"])),
            "api: 1 of 5 endpoints healthy; a; b; c; and 1 more, see `tollgate upstreams`"
        );
    }

    #[test]
    fn one_server_has_a_row_and_its_role_in_the_summary() {
        let one =
            StoreFacts { topology: StoreTopology::Single, nodes: cluster().nodes[..1].into(), ..cluster() };
        let shown = shown(&Harness::with_store(one));
        assert!(
            shown.contains("store          redis, master, 1ms, breaker closed, 2 instances\n"),
            "{shown}"
        );
        assert_eq!(shown.lines().filter(|line| line.starts_with("10.0.0.1:6379")).count(), 1, "{shown}");
    }

    #[test]
    fn without_redis_there_are_no_servers() {
        let shown = shown(&Harness::start(None));
        assert!(shown.contains("store          memory, 0 keys\n") && !shown.contains("NODE"), "{shown}");
    }

    #[test]
    fn more_than_three_ranges_of_slots_are_counted() {
        let mut facts = cluster();
        facts.nodes[0].slots = vec![(0, 1), (3, 4), (6, 6), (8, 9), (11, 12)];
        let shown = shown(&Harness::with_store(facts));
        assert!(shown.contains("  0-1, 3-4, 6 and 2 more  "), "{shown}");
    }
}
