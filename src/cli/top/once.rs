//! How things stand, once, as text or in JSON: where no terminal is drawn upon.

use std::{fmt::Write, time::Duration};

use jiff::Timestamp;
use tokio::{runtime, time};

use super::{
    super::{
        client::{self, Connection, Failure, Options},
        terminal::{moment, printable, printable_json, table, time_left},
    },
    draw::words::{latency, rate, uptime},
    rates::Rates,
    snapshot::{Snapshot, short},
};
use crate::abuse::Sort;

/// Between the two looks that rates are made of.
const SECOND: Duration = Duration::from_secs(1);
/// For all of it.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn output(options: &Options) -> Result<String, Failure> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(client::in_time(options, PATIENCE, async {
        let mut connection = Connection::open(options).await?;
        let first = Snapshot::ask(&mut connection, Sort::Denied).await?;
        if options.json {
            let json = serde_json::to_string(&first).map_err(std::io::Error::from)?;
            return Ok(printable_json(&json) + "\n");
        }
        let asked = time::Instant::now();
        time::sleep(SECOND).await;
        let second = Snapshot::ask(&mut connection, Sort::Denied).await?;
        let rates = Rates::between(&first, &second, asked.elapsed());
        Ok(text(&second, &rates, Timestamp::now()))
    }))
}

fn text(snapshot: &Snapshot, rates: &Rates, now: Timestamp) -> String {
    let status = &snapshot.status;
    let (healthy, endpoints) = snapshot.endpoints();
    let mut text = format!(
        "tollgate {}, up {}, {}\nstore      {}\nendpoints  {healthy} of {endpoints} healthy\n",
        printable(&status.version),
        printable(&uptime(&status.uptime)),
        snapshot.phase(),
        printable(&snapshot.store()),
    );
    if let Some(total) = rates.total {
        let [requests, denied] = [total.requests, total.denied].map(|of| rate(Some(of)));
        let _infallible = writeln!(text, "requests   {requests}/s, of which {denied}/s denied");
    }
    for warning in &status.warnings {
        let _infallible = writeln!(text, "warning    {}", printable(warning));
    }
    text += &format!("\n{}", routes(snapshot, rates));
    if snapshot.blocked.is_empty() {
        return text + "\nNo address was limited lately.\n";
    }
    text + "\n" + &blocked(snapshot, rates, now)
}

fn routes(snapshot: &Snapshot, rates: &Rates) -> String {
    let rows = snapshot.routes.iter().map(|route| {
        let of = rates.routes.get(&route.name);
        let [p50, p99] = [route.latency.map(|of| of.p50), route.latency.map(|of| of.p99)].map(latency);
        let requests = rate(of.map(|of| of.requests));
        let [denied, failed] = [of.map(|of| of.denied), of.map(|of| of.failed)].map(rate);
        [route.name.clone(), requests, denied, failed, p50, p99]
    });
    table(["ROUTE", "REQ/S", "DENIED/S", "5XX/S", "P50", "P99"], rows)
}

fn blocked(snapshot: &Snapshot, rates: &Rates, now: Timestamp) -> String {
    let rows = snapshot.blocked.iter().map(|of| {
        [
            of.address.clone(),
            of.denied.to_string(),
            rate(rates.denied.get(&of.address).copied()),
            of.distinct_users.to_string(),
            short(&of.hint).to_owned(),
            of.policies.join(", "),
            moment(&of.last),
            time_left(&of.until, now),
        ]
    });
    table(["ADDRESS", "DENIED", "+/S", "USERS", "HINT", "POLICIES", "LAST (UTC)", "TIME LEFT"], rows)
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
    use crate::admin::testing::Harness;

    #[test]
    fn how_things_stand_is_told_as_text() {
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

ROUTE   REQ/S  DENIED/S  5XX/S  P50    P99
/api/*  12.0   0         0      2.1ms  1.2s
/*      0      0         0      2.1ms  1.2s

ADDRESS        DENIED  +/S  USERS  HINT           POLICIES    LAST (UTC)           TIME LEFT
203.0.113.7    60      0    3      many users     a\\u{1b}[2J  2026-07-03 12:00:00  59s
198.51.100.9   20      0    1      one user       per-ip      2026-07-03 12:00:00  59s
2001:db8::/64  5       0    0      no user known  per-ip      2026-07-03 12:00:00  59s
"
        );
    }

    #[test]
    fn json_is_one_object_of_all_answers() {
        let harness = Harness::with_shared_address(Some("s3cret"));
        let options = Options { json: true, ..options(harness.address, Some("s3cret")) };
        let told: serde_json::Value = serde_json::from_str(&output(&options).unwrap()).unwrap();
        assert_eq!(told["blocked"][0]["address"], "203.0.113.7");
        assert_eq!(told["status"]["version"], env!("CARGO_PKG_VERSION"));
        assert!(told["routes"].is_array() && told["policies"].is_array() && told["upstreams"].is_array());
    }

    #[test]
    fn a_token_is_wanted_as_everywhere() {
        let harness = Harness::start(Some("s3cret"));
        let refused = output(&options(harness.address, Some("wrong"))).unwrap_err();
        assert!(matches!(refused, Failure::WrongToken(_)), "{refused}");
    }
}
