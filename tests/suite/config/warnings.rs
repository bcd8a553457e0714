//! Warnings about a configuration: that they are right, and where they are shown.

use std::fs;

use proptest::prelude::*;
use serde_json::json;
use tollgate::{
    config::{self, Purpose},
    limit::algorithm::{Detail, Kind, LimitRule, LimitState, Tier},
};

use super::environment::Environment;
use crate::{
    harness::{Config, Origin, Tollgate, get, get_from},
    store::redis_audit::warnings,
};

/// What starts with it would not: the files can't be created.
#[test]
fn directories_that_do_not_exist_are_warned_of() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path().display();
    let file = directory.path().join("proxy.yaml");
    let warnings = |format: &str, below: &str| {
        let text = format!(
            "listeners: [{{ address: \"unix:{here}{below}/proxy.sock\" }}]
access_log: {{ format: {format}, to: \"{here}{below}/access.log\" }}
upstreams: {{ api: {{ endpoints: [\"http://127.0.0.1:3000\"] }} }}
routes: [{{ path: /*, upstream: api }}]
"
        );
        fs::write(&file, text).unwrap();
        let (_, warnings) = config::load_with_warnings(&file, Purpose::Check).unwrap();
        warnings.to_string()
    };
    assert_eq!(warnings("json", ""), "");
    let missing = format!("the directory {here}/missing does not exist on this machine");
    let said = warnings("json", "/missing");
    for place in [":1:24: warning: ", ":2:33: warning: "] {
        assert!(said.contains(&format!("{place}{missing}")), "{said}");
    }
    assert_eq!(warnings("off", "/missing").matches(&missing).count(), 1, "no log is written");
    let said = warnings("json", "/missing${HOME}");
    for named in ["the directory of `unix:", "the directory of `/"] {
        assert!(said.contains(named), "{said}");
    }
    let home = std::env::var("HOME").unwrap();
    assert!(!said.contains(&format!("/missing{home}")), "{said}");
}

#[test]
fn doubtful_settings_are_in_the_status_and_on_the_page() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::yaml(format!(
        "
policies:
  used: {{ algorithm: fixed_window, key: ip, limits: [10/1s, 700/1m] }}
  forgotten: {{ algorithm: sliding_log, key: ip, limit: 1/1h }}
upstreams: {{ api: {{ endpoints: [\"http://{}\"], policies: [used] }} }}
routes:
  - {{ path: /users/:id, upstream: api }}
  - {{ path: /*, upstream: api }}
",
        origin.address
    )));
    assert_eq!([(); 2].map(|()| get(tollgate.address, "/", &[]).status), [200, 200], "nothing limits to 1");
    let found = warnings(&tollgate);
    for (line, text) in [
        (8, "this limit is never reached: `10/1s` admits at most 600 in 1m; set less than"),
        (9, "no route uses this policy, so it limits nothing; add it to"),
        (12, "`:id` is plain text here: this matches only `/users/:id` itself; for any value"),
    ] {
        assert!(
            found.iter().any(|found| found.contains(&format!(":{line}:")) && found.contains(text)),
            "{text}: {found:#?}"
        );
    }
    assert_eq!(found.len(), 3, "{found:#?}");
    let log = tollgate.log();
    assert!(
        log.iter().any(|line| line.contains("WARN") && line.contains("no route uses this policy")),
        "{log:#?}"
    );

    let policies = tollgate.admin("GET", "/v1/policies").json()["policies"].take();
    let used = policies.as_array().unwrap().iter().map(|policy| (&policy["name"], &policy["used"]));
    assert_eq!(
        used.collect::<Vec<_>>(),
        [(&json!("used"), &json!(true)), (&json!("forgotten"), &json!(false))]
    );
    let page = get(tollgate.admin, "/policies", &[]).text();
    let card = |name: &str| {
        page.split("<article").find(|card| card.contains(&format!("data-key=\"{name}\""))).unwrap()
    };
    assert!(card("forgotten").contains("not used") && !card("forgotten").contains("enforced"), "{page}");
    assert!(card("used").contains("enforced") && !card("used").contains("not used"), "{page}");
}

#[test]
fn a_trusted_header_reaches_the_upstream_from_trusted_proxies_only() {
    let origin = Origin::ok();
    let settings = "trusted_proxies: [127.0.0.2]\ntrusted_headers: [X-Plan]\n";
    let tollgate = Tollgate::start(Config::new(&[origin.address], settings));
    for source in ["127.0.0.1", "127.0.0.2"] {
        let fields = [("x-plan", "gold"), ("X_Plan", "gold"), ("x-other", "kept")];
        assert_eq!(get_from(source, tollgate.address, "/", &fields).status, 200);
    }
    let heads = origin.heads();
    assert!(heads.iter().all(|head| head.contains("x-other: kept")), "{heads:?}");
    let plans = heads.iter().map(|head| head.to_lowercase().matches("plan: gold").count());
    assert_eq!(plans.collect::<Vec<_>>(), [0, 1], "{heads:?}");
    assert!(heads[1].contains("x-plan: gold"), "as it is configured: {heads:?}");
    assert_eq!(warnings(&tollgate), [""; 0]);
}

/// Of all times at which buckets can begin, in microseconds: a quarter of a millisecond.
const STEP: i64 = 250;

/// Whether a client that uses up whatever it can from `start` on is ever denied by tier 1 alone.
fn is_reached(kind: Kind, tiers: [Tier; 2], start: i64) -> bool {
    let (both, first) =
        (LimitRule { kind, tiers: &tiers, bounds: &[] }, LimitRule { kind, tiers: &tiers[..1], bounds: &[] });
    let (mut of_both, mut of_first) = (LimitState::new(kind), LimitState::new(kind));
    let end = start + 2 * (tiers[0].window + tiers[1].window);
    (start..end).step_by(usize::try_from(STEP).unwrap()).any(|now| {
        while of_both.read(both, now, 1, &Detail::None).admitted {
            of_both.write(both, now, 1, &Detail::None, 0);
            of_first.write(first, now, 1, &Detail::None, 0);
        }
        of_first.read(first, now, 1, &Detail::None).admitted
    })
}

/// Whether a client whose requests take one of `costs` each, in this order, is ever denied by tier 1 alone.
fn is_reached_by(kind: Kind, tiers: [Tier; 2], costs: &[u64]) -> bool {
    let (both, first) =
        (LimitRule { kind, tiers: &tiers, bounds: &[] }, LimitRule { kind, tiers: &tiers[..1], bounds: &[] });
    let (mut of_both, mut of_first) = (LimitState::new(kind), LimitState::new(kind));
    let start = 100 * tiers[0].window * tiers[1].window / 1_000;
    let times = (start..start + 4 * (tiers[0].window + tiers[1].window)).step_by(STEP as usize / 5);
    times.zip(costs.iter().cycle()).any(|(now, &cost)| {
        if !of_first.read(first, now, cost, &Detail::None).admitted {
            return false;
        }
        let is_admitted = of_both.read(both, now, cost, &Detail::None).admitted;
        if is_admitted {
            of_both.write(both, now, cost, &Detail::None, 0);
            of_first.write(first, now, cost, &Detail::None, 0);
        }
        !is_admitted
    })
}

fn gcd(one: i64, other: i64) -> i64 {
    if other == 0 { one } else { gcd(other, one % other) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// A tier is said to be never reached if and only if the algorithm never denies because of it.
    #[test]
    fn exactly_the_tiers_that_never_deny_are_warned_of(
        is_sliding: bool,
        limits in prop::array::uniform2(1_u64..14),
        windows in prop::array::uniform2(1_i64..8).prop_filter("differ", |[one, other]| one != other),
    ) {
        let (name, kind) = match is_sliding {
            true => ("sliding_window\n    buckets: 4", Kind::SlidingWindow { buckets: 4 }),
            false => ("fixed_window", Kind::FixedWindow),
        };
        let rate = |n: usize| format!("{}/{}ms", limits[n], windows[n]);
        let text = format!(
            "policies:\n  p:\n    algorithm: {name}\n    key: ip\n    limits:\n      - {}\n      - {}\n\
                upstreams: {{ api: {{ endpoints: [http://127.0.0.1:1], policies: [p] }} }}\n\
                routes: [{{ path: /*, upstream: api }}]\n",
            rate(0), rate(1)
        );
        let (_, warnings) = config::parse_with_warnings("p", &text, &Environment).unwrap();
        let line = 7 + usize::from(is_sliding);
        let is_warned = warnings.lines().any(|warning| warning.starts_with(&format!("p:{line}:")));

        let tier = |n: usize| Tier { limit: limits[n], window: windows[n] * 1_000 };
        let period = windows[0] * windows[1] / gcd(windows[0], windows[1]) * 1_000;
        // The algorithm never runs backward: begin late enough for every window to have room before.
        let starts = (period * 10..period * 11).step_by(usize::try_from(STEP).unwrap());
        let is_reached = starts.into_iter().any(|start| is_reached(kind, [tier(0), tier(1)], start));
        prop_assert_eq!(is_warned, !is_reached, "{}", text);
    }

    /// No tier is said to be never reached that requests of different prices reach. The policy's own cost is that of no
    /// route.
    #[test]
    fn a_limit_that_check_calls_unreachable_is_never_reached_with_any_prices(
        is_sliding: bool,
        limits in prop::array::uniform2(4_u64..30),
        windows in prop::array::uniform2(1_i64..6).prop_filter("differ", |[one, other]| one != other),
        unit in 1_u64..4,
        prices in prop::collection::vec(1_u64..4, 1..4),
        costs in prop::collection::vec(0..4_usize, 1..60),
    ) {
        let (name, kind) = match is_sliding {
            true => ("sliding_window\n    buckets: 4", Kind::SlidingWindow { buckets: 4 }),
            false => ("fixed_window", Kind::FixedWindow),
        };
        let lowest = limits[0].min(limits[1]);
        let prices: Vec<u64> = prices.iter().map(|price| (price * unit).min(lowest)).collect();
        let routes: String = prices
            .iter()
            .enumerate()
            .map(|(nth, price)| {
                format!("  - {{ path: /{nth}, upstream: api, policies: [{{ name: p, cost: {price} }}] }}\n")
            })
            .collect();
        let rates = [0, 1].map(|n| format!("      - {}/{}ms\n", limits[n], windows[n])).concat();
        let text = format!(
            "policies:\n  p:\n    algorithm: {name}\n    key: ip\n    cost: {lowest}\n    limits:\n{rates}\
                upstreams: {{ api: {{ endpoints: [http://127.0.0.1:1] }} }}\nroutes:\n{routes}"
        );
        let (_, warnings) = config::parse_with_warnings("p", &text, &Environment).unwrap();
        let line = 8 + usize::from(is_sliding);
        let is_warned = warnings.lines().any(|warning| warning.starts_with(&format!("p:{line}:")));

        let tier = |n: usize| Tier { limit: limits[n], window: windows[n] * 1_000 };
        let costs: Vec<u64> = costs.iter().map(|nth| prices[nth % prices.len()]).collect();
        prop_assert!(!is_warned || !is_reached_by(kind, [tier(0), tier(1)], &costs), "{}", text);
    }
}
