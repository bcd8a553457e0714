//! A report as text or JSON, if the output is not a terminal.

use std::{fmt::Write, time::Duration};

use jiff::Timestamp;
use tokio::{runtime, time};

use super::{
    super::{
        client::{self, AdminConnection, AdminError, Options},
        format::{latency, rate, uptime},
        status::{failing_nodes, phase, store},
        terminal::{moment, printable, printable_json, table, time_left},
    },
    rates::Rates,
    snapshot::Snapshot,
};
use crate::{abuse::Sort, admin::dto::Endpoint};

/// Time between the two snapshots from which rates are computed.
const SECOND: Duration = Duration::from_secs(1);
/// Maximum time for both snapshots.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(super) fn output(options: &Options) -> Result<String, AdminError> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(client::with_timeout(options, TIMEOUT, async {
        let mut connection = AdminConnection::open(options).await?;
        let first = Snapshot::fetch(&mut connection, Sort::Denied).await?;
        if options.json {
            let json = serde_json::to_string(&first).map_err(std::io::Error::from)?;
            return Ok(printable_json(&json) + "\n");
        }
        let fetched = time::Instant::now();
        time::sleep(SECOND).await;
        let second = Snapshot::fetch(&mut connection, Sort::Denied).await?;
        let rates = Rates::between(&first, &second, fetched.elapsed());
        Ok(text(&second, &rates, Timestamp::now()))
    }))
}

fn text(snapshot: &Snapshot, rates: &Rates, now: Timestamp) -> String {
    let status = &snapshot.status;
    let (endpoints, healthy) = (snapshot.endpoints().count(), snapshot.endpoints_in("healthy"));
    let drained = match snapshot.endpoints_in("drained") {
        0 => String::new(),
        drained => format!(", {drained} drained"),
    };
    let mut text = format!(
        "tollgate {}, up {}, {}\nstore      {}\nendpoints  {healthy} of {endpoints} healthy{drained}\n",
        printable(&status.version),
        printable(&uptime(&status.uptime)),
        phase(status),
        printable(&store(&status.store)),
    );
    if let Some(nodes) = failing_nodes(&status.store) {
        let _infallible = writeln!(text, "not up     {}", printable(&nodes));
    }
    if let Some(total) = rates.total {
        let [requests, denied] = [total.requests, total.denied].map(|value| rate(Some(value)));
        let _infallible = writeln!(text, "requests   {requests}/s, of which {denied}/s denied");
    }
    for outage in &status.outages {
        let _infallible = writeln!(text, "outage     {}", printable(&outage.text));
    }
    for warning in status.other_warnings() {
        let _infallible = writeln!(text, "warning    {}", printable(warning));
    }
    text += &format!("\n{}\n{}", routes(snapshot, rates), endpoints_table(snapshot));
    if snapshot.blocked.is_empty() {
        return text + "\nNo address was limited recently.\n";
    }
    text + "\n" + &blocked(snapshot, rates, now)
}

fn routes(snapshot: &Snapshot, rates: &Rates) -> String {
    let rows = snapshot.routes.iter().map(|route| {
        let rates = rates.routes.get(&route.name);
        let [p50, p99] = [route.latency.map(|it| it.p50), route.latency.map(|it| it.p99)].map(latency);
        let requests = rate(rates.map(|rates| rates.requests));
        let [denied, failed] = [rates.map(|rates| rates.denied), rates.map(|rates| rates.failed)].map(rate);
        [route.name.clone(), requests, denied, failed, p50, p99, route.tunnels.to_string()]
    });
    table(["ROUTE", "REQ/S", "DENIED/S", "5XX/S", "P50", "P99", "TUNNELS"], rows)
}

fn endpoints_table(snapshot: &Snapshot) -> String {
    let rows = snapshot.endpoints().map(|(upstream, endpoint)| {
        let Endpoint { url, state, active, requests, errors, .. } = endpoint;
        let [active, requests, errors] = [active, requests, errors].map(ToString::to_string);
        let resolver = endpoint.resolver_error().map(|error| format!("the resolver fails: {error}"));
        let reason = endpoint.reason.iter().cloned().chain(resolver).collect::<Vec<_>>().join("; ");
        [url.clone(), upstream.to_owned(), state.clone(), active, requests, errors, reason]
    });
    table(["ENDPOINT", "UPSTREAM", "STATE", "IN FLIGHT", "REQUESTS", "ERRORS", "REASON"], rows)
}

fn blocked(snapshot: &Snapshot, rates: &Rates, now: Timestamp) -> String {
    let rows = snapshot.blocked.iter().map(|blocked| {
        [
            blocked.address.clone(),
            blocked.state.clone(),
            blocked.denied.to_string(),
            rate(rates.denied.get(&blocked.address).copied()),
            blocked.distinct_users.to_string(),
            blocked.hint.clone(),
            blocked.policies.join(", "),
            moment(&blocked.last),
            time_left(&blocked.until, now),
        ]
    });
    table(["ADDRESS", "STATE", "DENIED", "+/S", "USERS", "HINT", "POLICIES", "LAST (UTC)", "TIME LEFT"], rows)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            super::client::testing::options,
            testing::{NOW, snapshot},
        },
        *,
    };
    use crate::{admin::testing::Harness, telemetry::testing::cluster};

    #[test]
    fn the_report_is_text() {
        let (before, mut after) = (snapshot(), snapshot());
        after.routes[0].requests += 12;
        after.blocked[0].policies = vec!["a\u{1b}[2J".to_owned()];
        let rates = Rates::between(&before, &after, SECOND);
        assert_eq!(
            text(&after, &rates, NOW.parse().unwrap()),
            "\
tollgate 1.2.3, up 3h 0m, ready
store      redis, master, 2ms, breaker closed, 2 instances
endpoints  1 of 2 healthy
requests   12.0/s, of which 0/s denied
warning    Redis evicts keys
warning    clocks differ

ROUTE   REQ/S  DENIED/S  5XX/S  P50    P99   TUNNELS
/api/*  12.0   0         0      2.1ms  1.2s  0
/*      0      0         0      2.1ms  1.2s  0

ENDPOINT              UPSTREAM  STATE      IN FLIGHT  REQUESTS  ERRORS  REASON
http://10.0.0.5:3000  api       healthy    1          90        2
http://10.0.0.6:3000  api       unhealthy  0          0         0       AdminConnection refused

ADDRESS        STATE    DENIED  +/S  USERS  HINT                 POLICIES    LAST (UTC)           TIME LEFT
203.0.113.7    limited  60      0    3      credential stuffing  a\\u{1b}[2J  2026-07-03 12:00:00  59s
198.51.100.9   banned   20      0    1      password guessing    per-ip      2026-07-03 12:00:00  12m 0s
2001:db8::/64  limited  5       0    0      unknown              per-ip      2026-07-03 12:00:00  59s
"
        );
    }

    #[test]
    fn redis_servers_that_fail_are_named() {
        let mut snapshot = snapshot();
        snapshot.status.store.shared = Some(cluster().into());
        let text = text(&snapshot, &Rates::default(), NOW.parse().unwrap());
        assert!(text.contains("\nnot up     10.0.0.2:6379 (breaker open), 10.0.0.4:6379 (down)\n"), "{text}");
    }

    #[test]
    fn json_is_one_object_of_all_answers() {
        let harness = Harness::with_shared_address(Some("s3cret"));
        let options = Options { json: true, ..options(harness.address, Some("s3cret")) };
        let json: serde_json::Value = serde_json::from_str(&output(&options).unwrap()).unwrap();
        assert_eq!(json["blocked"][0]["address"], "203.0.113.7");
        assert_eq!(json["status"]["version"], env!("CARGO_PKG_VERSION"));
        assert!(json["routes"].is_array() && json["policies"].is_array() && json["upstreams"].is_array());
    }

    #[test]
    fn a_wrong_token_is_refused() {
        let harness = Harness::start(Some("s3cret"));
        let refused = output(&options(harness.address, Some("wrong"))).unwrap_err();
        assert!(matches!(refused, AdminError::WrongToken(_)), "{refused}");
    }
}
