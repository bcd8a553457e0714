//! Windows of the calendar: what clients and operators are told about a month.

use jiff::{Timestamp, Zoned};

use super::start;
use crate::harness::{Config, Deployment, Origin, Tollgate, get, on_each_store};

const MONTHLY: &str = "monthly: { algorithm: fixed_window, key: ip, limits: [100/1m, 3/month], time_zone: Asia/Kathmandu, on_store_error: deny }";

fn a_month_ends_at_midnight_in_its_zone_for_all_who_ask(redis: Option<&Deployment>) {
    let origin = Origin::ok();
    let tollgate = start(&origin, redis, &[MONTHLY], "");
    let begun = Timestamp::now();
    let replies = [(); 4].map(|()| get(tollgate.address, "/", &[]));
    let ended = Timestamp::now();
    assert_eq!(replies.each_ref().map(|reply| reply.status), [200, 200, 200, 429]);
    assert!(
        replies.iter().all(|reply| reply.header("ratelimit-policy")
            == Some("\"monthly-1m\";q=100;w=60, \"monthly-month\";q=3"))
    );
    let limits = tollgate.admin("GET", "/v1/limits?key=127.0.0.1").json();
    let ends = limits["limits"][0]["window_ends"].as_str().unwrap();
    assert!(ends.ends_with("-01T00:00:00+05:45[Asia/Kathmandu]"), "{ends}");
    let end = ends.parse::<Zoned>().unwrap().timestamp();
    let seconds = |reply: &crate::harness::Reply, name: &str, after: &str| {
        reply.header(name).unwrap().strip_prefix(after).unwrap().parse::<i64>().unwrap()
    };
    let told = [
        seconds(&replies[2], "ratelimit", "\"monthly-month\";r=0;t="),
        seconds(&replies[3], "ratelimit", "\"monthly-month\";r=0;t="),
        seconds(&replies[3], "retry-after", ""),
    ];
    for seconds in told {
        // Rounded up to seconds, and decided between these two times.
        assert!(end.as_microsecond() - begun.as_microsecond() > (seconds - 1) * 1_000_000);
        assert!(end.as_microsecond() - ended.as_microsecond() <= seconds * 1_000_000);
    }

    let policies = tollgate.admin("GET", "/v1/policies").json();
    let policy = &policies["policies"][0];
    assert_eq!(policy["limits"], serde_json::json!(["100/1m", "3/month (Asia/Kathmandu)"]));
    assert_eq!(policy["calendar_windows"][0]["ends"], ends);
    let explained = tollgate.command(&["explain", "/"]).stdout;
    assert!(explained.contains(&format!("its window ends {ends}; tightest limit: 3/month")), "{explained}");
    for command in [&["policies"][..], &["limits", "127.0.0.1"]] {
        let shown = tollgate.command(command);
        assert!(shown.code == Some(0) && shown.stdout.contains(ends), "{shown:?}");
    }
    let page = tollgate.admin("GET", "/policies");
    assert!(page.text().contains(&format!("3/month (Asia/Kathmandu): <time>{ends}</time>")), "{page:?}");

    let reset = tollgate.command(&["limits", "127.0.0.1", "--reset"]);
    assert!(reset.stdout.contains("monthly"), "{reset:?}");
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    assert!(tollgate.metric_total("tollgate_store_errors_total") == 0.0);
}

on_each_store!(a_month_ends_at_midnight_in_its_zone_for_all_who_ask);

#[test]
fn an_override_follows_the_time_zone_of_its_policy() {
    let origin = Origin::ok();
    let policy = "daily: { algorithm: fixed_window, key: ip, limit: 1/day, time_zone: Asia/Tokyo, reset_day: 9, \
         overrides: [{ ip: 127.0.0.1, limit: 2/month }] }";
    let tollgate = start(&origin, None, &[policy], "");
    let statuses = [(); 3].map(|()| get(tollgate.address, "/", &[]).status);
    assert_eq!(statuses, [200, 200, 429]);
    let limits = tollgate.admin("GET", "/v1/limits?key=127.0.0.1&policy=daily").json();
    let ends: Vec<_> =
        limits["limits"].as_array().unwrap().iter().map(|limit| &limit["window_ends"]).collect();
    assert!(
        ends.iter().any(|ends| ends.as_str().unwrap().ends_with("-09T00:00:00+09:00[Asia/Tokyo]")),
        "{limits:#}"
    );
}

#[test]
fn a_reload_to_another_zone_begins_another_count() {
    let origin = Origin::ok();
    let yaml = |zone: &str| {
        format!(
            "upstreams: {{ origin: {{ endpoints: [\"http://{}\"], policies: [m] }} }}
policies:
  m: {{ algorithm: fixed_window, key: ip, limit: 1/month, time_zone: {zone} }}
routes:
  - {{ path: /*, upstream: origin }}
",
            origin.address
        )
    };
    let tollgate = Tollgate::start(Config::yaml(yaml("UTC")));
    let statuses = || [(); 2].map(|()| get(tollgate.address, "/", &[]).status);
    assert_eq!(statuses(), [200, 429]);
    for (zone, expected) in [("Europe/Berlin", [200, 429]), ("UTC", [429, 429])] {
        std::fs::write(tollgate.directory().join("proxy.yaml"), yaml(zone)).unwrap();
        let reloaded = tollgate.command(&["reload"]);
        assert_eq!(reloaded.code, Some(0), "{reloaded:?}");
        assert_eq!(statuses(), expected, "{zone}");
    }
}
