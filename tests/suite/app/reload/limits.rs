//! No count is lost where a policy keeps its name and shape, and its new limits hold at once.

use std::fs;

use super::{file, limited, plain, reload, start, words, write_and_reload};
use crate::harness::{Client, Config, Origin, Redis, Tollgate, eventually, get, tollgate};

/// The statuses of so many requests.
fn statuses(tollgate: &Tollgate, count: usize) -> Vec<u16> {
    (0..count).map(|_| get(tollgate.address, "/", &[]).status).collect()
}

/// The whole story, wherever limits are kept.
fn counts_are_kept(store: &str) {
    let origin = Origin::ok();
    let yaml = |policy: &str| limited(origin.address, policy, store);
    for algorithm in ["single_counter", "fixed_window", "sliding_log", "sliding_window", "metadata_list"] {
        let with = |limit: &str| {
            yaml(&format!("algorithm: {algorithm}, key: ip, limit: {limit}, on_store_error: deny"))
        };
        let tollgate = start(&with("3/30d"));
        if !store.is_empty() {
            eventually("Redis decides", || {
                tollgate.admin("GET", "/v1/status").json()["store"]["role"] == "master"
            });
            // Each algorithm is a shape of its own, so that none finds another's counts.
        }
        assert_eq!(statuses(&tollgate, 4), [200, 200, 200, 429], "{algorithm}");
        // A local denial is not older than this, and the limit it was made under is.
        assert_eq!(words(&reload(&tollgate, &with("5/30d")), "changed"), ["policy p: limits 3/30d → 5/30d"]);
        assert_eq!(statuses(&tollgate, 3), [200, 200, 429], "{algorithm}: raised, and three were used");
        reload(&tollgate, &with("4/30d"));
        assert_eq!(statuses(&tollgate, 1), [429], "{algorithm}: lowered, and five were used");
        reload(&tollgate, &with("6/30d"));
        assert_eq!(statuses(&tollgate, 2), [200, 429], "{algorithm}");
        // Another window is another shape.
        reload(&tollgate, &with("2/29d"));
        assert_eq!(statuses(&tollgate, 3), [200, 200, 429], "{algorithm}: afresh");
        reload(&tollgate, &with("7/30d"));
        assert_eq!(statuses(&tollgate, 2), [200, 429], "{algorithm}: what it had counted before");
    }
}

#[test]
fn counts_are_kept_in_memory() {
    counts_are_kept("");
}

#[test]
fn counts_are_kept_in_redis() {
    let redis = Redis::start();
    counts_are_kept(&format!("store: {{ redis: {{ url: \"{}\", timeout: 5s }} }}\n", redis.url()));
}

#[test]
fn a_policy_comes_and_goes() {
    let origin = Origin::ok();
    let held = limited(origin.address, "algorithm: single_counter, key: ip, limit: 1/1h", "");
    let tollgate = start(&plain(origin.address, ""));
    assert_eq!(statuses(&tollgate, 3), [200, 200, 200]);
    let changed = words(&reload(&tollgate, &held), "changed");
    assert_eq!(changed, ["policy p: added", "route /*: policies none → p"]);
    assert_eq!(statuses(&tollgate, 2), [200, 429]);
    let changed = words(&reload(&tollgate, &plain(origin.address, "")), "changed");
    assert_eq!(changed, ["policy p: removed", "route /*: policies p → none"]);
    assert_eq!(statuses(&tollgate, 2), [200, 200]);
    reload(&tollgate, &held);
    assert_eq!(statuses(&tollgate, 1), [429], "it has the counts that it had");
    // What is in force is what the admin port asks.
    let unblocked = tollgate.admin("DELETE", "/v1/blocked/127.0.0.1").json();
    assert_eq!(unblocked["cleared"][0]["policy"], "p");
    assert_eq!(statuses(&tollgate, 2), [200, 429]);
}

/// `limit: 2` of `concurrency` is no rate, wherever it is shown.
#[test]
fn a_limit_of_concurrency_is_shown_as_so_many_at_a_time() {
    let origin = Origin::ok();
    let concurrency =
        |limit: &str| limited(origin.address, &format!("algorithm: concurrency, key: ip, {limit}"), "");
    let tollgate = start(&concurrency("limit: 2"));
    let policies = tollgate.admin("GET", "/v1/policies").json();
    assert_eq!(policies["policies"][0]["limits"], serde_json::json!(["2 at a time"]));
    let page = tollgate.admin("GET", "/policies").text();
    assert!(page.contains("2 at a time") && !page.contains("2/1m"), "{page}");
    let explained = tollgate.command(&["explain", "http://localhost/"]);
    assert!(explained.stdout.contains("2 at a time"), "{}{}", explained.stdout, explained.stderr);
    let changed = words(&reload(&tollgate, &concurrency("limit: 3, lease: 90s")), "changed");
    assert_eq!(changed, ["policy p: lease 1m → 90s", "policy p: limits 2 at a time → 3 at a time"]);
    eventually("it is logged", || tollgate.has_logged(&["3 at a time"]));
}

#[test]
fn a_limited_client_stays_listed_under_the_policy_that_limited_it() {
    let origin = Origin::ok();
    let held = limited(origin.address, "algorithm: single_counter, key: ip, limit: 1/1h", "");
    // Its index is another's then.
    let moved = held
        .replace("policies:\n", "policies:\n  before: { algorithm: sliding_log, key: ip, limit: 9/1h }\n");
    let tollgate = start(&held);
    assert_eq!(statuses(&tollgate, 2), [200, 429]);
    reload(&tollgate, &moved);
    assert_eq!(statuses(&tollgate, 1), [429]);
    let listed = || tollgate.admin("GET", "/v1/blocked").json()["blocked"][0].clone();
    eventually("both denials are noted", || listed()["denied"] == 2);
    assert_eq!(listed()["policies"], serde_json::json!(["p"]));
    let evidence = tollgate.admin("GET", "/v1/blocked/127.0.0.1").json();
    let names: Vec<_> = evidence["limits"].as_array().unwrap().iter().map(|limit| &limit["policy"]).collect();
    assert_eq!(names, ["before", "p"]);
    reload(&tollgate, &format!("{moved}abuse: {{ retain: 1s }}\n"));
    eventually("nobody is retained", || listed().is_null());
}

#[test]
fn a_lease_taken_under_the_old_configuration_counts_under_the_new_one_until_it_is_given_back() {
    for redis in [None, Some(Redis::start())] {
        let origin = Origin::start(|conn| {
            while conn.head()?.is_some() {
                conn.pause()?;
                conn.answer("200 OK", &[], b"ok")?;
            }
            Ok(())
        });
        let store = redis.as_ref().map_or_else(String::new, |redis| {
            format!("store: {{ redis: {{ url: \"{}\", timeout: 5s }} }}\n", redis.url())
        });
        let yaml = |limit: u32| {
            limited(
                origin.address,
                &format!("algorithm: concurrency, key: ip, limit: {limit}, on_store_error: deny"),
                &store,
            )
        };
        let tollgate = start(&yaml(1));
        if redis.is_some() {
            eventually("Redis decides", || {
                tollgate.admin("GET", "/v1/status").json()["store"]["role"] == "master"
            });
        }
        let mut first = Client::sending(tollgate.address, "GET /first HTTP/1.1\r\nhost: a\r\n\r\n");
        eventually("it is under way", || origin.heads().len() == 1);
        reload(&tollgate, &yaml(2));
        assert_eq!(tollgate.metric("tollgate_leases"), 1.0);
        let mut second = Client::sending(tollgate.address, "GET /second HTTP/1.1\r\nhost: a\r\n\r\n");
        eventually("it is under way, too", || origin.heads().len() == 2);
        assert_eq!(get(tollgate.address, "/third", &[]).status, 429);
        reload(&tollgate, &yaml(1));
        origin.resume();
        origin.resume();
        assert_eq!((first.reply().status, second.reply().status), (200, 200));
        eventually("both were given back", || tollgate.metric("tollgate_leases") == 0.0);
        if let Some(redis) = &redis {
            eventually("in Redis as well", || !redis.keys().iter().any(|key| key.ends_with(":p:cc.1m")));
        }
        let mut third = Client::sending(tollgate.address, "GET /third HTTP/1.1\r\nhost: a\r\n\r\n");
        eventually("there is a place", || origin.heads().len() == 3);
        origin.resume();
        assert_eq!(third.reply().status, 200);
    }
}

#[test]
fn while_redis_is_away_a_reload_holds_all_the_same() {
    let (origin, mut redis) = (Origin::ok(), Redis::start());
    let store = format!("store: {{ redis: {{ url: \"{}\", breaker: {{ failures: 1 }} }} }}\n", redis.url());
    let yaml = |limit: u32, otherwise: &str| {
        let policy =
            format!("algorithm: single_counter, key: ip, limit: {limit}/1h, on_store_error: {otherwise}");
        limited(origin.address, &policy, &store)
    };
    let tollgate = start(&yaml(2, "local"));
    redis.kill();
    eventually("the circuit breaker is open", || {
        get(tollgate.address, "/elsewhere", &[]);
        tollgate.metric("tollgate_store_breaker_open") == 1.0
    });
    eventually("it stands in, and is exact", || statuses(&tollgate, 1) == [429]);
    reload(&tollgate, &yaml(4, "local"));
    let admitted = statuses(&tollgate, 5).into_iter().filter(|status| *status == 200).count();
    assert!((1..=4).contains(&admitted), "the new limit, and the old counts: {admitted}");
    reload(&tollgate, &yaml(4, "deny"));
    assert_eq!(statuses(&tollgate, 1), [503]);
    reload(&tollgate, &yaml(4, "allow"));
    assert_eq!(statuses(&tollgate, 1), [200]);
    redis.restart();
    eventually("Redis decides again", || tollgate.metric("tollgate_store_breaker_open") == 0.0);
}

#[test]
fn a_slice_taken_under_other_limits_is_void() {
    let (origin, redis) = (Origin::ok(), Redis::start());
    let store = format!("store: {{ redis: {{ url: \"{}\", timeout: 5s }} }}\n", redis.url());
    let yaml = |limit: u32| {
        let policy =
            format!("algorithm: fixed_window, key: ip, limit: {limit}/30d, slice: 50%, on_store_error: deny");
        limited(origin.address, &policy, &store)
    };
    let tollgate = start(&yaml(20));
    eventually("Redis decides", || tollgate.admin("GET", "/v1/status").json()["store"]["role"] == "master");
    // A slice of ten, one of which is spent.
    assert_eq!(statuses(&tollgate, 1), [200]);
    reload(&tollgate, &yaml(10));
    assert_eq!(statuses(&tollgate, 1), [429], "ten were taken, and ten is the limit");
    reload(&tollgate, &yaml(12));
    assert_eq!(statuses(&tollgate, 3), [200, 200, 429]);
}

#[test]
fn keys_of_tokens_may_move() {
    let origin = Origin::ok();
    let [first, second] = [(); 2].map(|()| crate::harness::Issuer::new(jsonwebtoken::Algorithm::EdDSA));
    let yaml = |key: &str| {
        let user = format!("user: [{{ jwt: {{ key: {{ file: {key} }}, algorithm: EdDSA }} }}]\n");
        limited(origin.address, "algorithm: single_counter, key: user, limit: 1/1h, missing: deny", &user)
    };
    let directory = tempfile::TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    fs::write(path("first.pem"), first.public()).unwrap();
    fs::write(path("second.pem"), second.public()).unwrap();
    let tollgate = Tollgate::start(Config::yaml(yaml(&path("first.pem"))));
    let of = |issuer: &crate::harness::Issuer, user: &str| {
        let claims = serde_json::json!({ "sub": user, "exp": crate::harness::in_seconds(600) });
        let field = format!("Bearer {}", issuer.sign(&claims));
        get(tollgate.address, "/", &[("authorization", field.as_str())]).status
    };
    assert_eq!((of(&first, "a"), of(&second, "b")), (200, 429));
    let watches = || {
        let threads = fs::read_dir(format!("/proc/{}/task", tollgate.pid())).unwrap();
        // A thread may end while it is looked at.
        let names = threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("comm")).ok());
        names.filter(|name| name == "keys\n").count()
    };
    assert_eq!(watches(), 1);
    let changed = words(&reload(&tollgate, &yaml(&path("second.pem"))), "changed");
    assert_eq!(changed.len(), 1);
    assert!(
        changed[0].starts_with("user: { jwt: { ") && changed[0].ends_with("second.pem } }"),
        "{changed:?}"
    );
    assert_eq!((of(&first, "c"), of(&second, "d")), (429, 200));
    eventually("the first's watch ends", || watches() == 1);
    // A file that is no key is refused before anything is changed.
    fs::write(path("third.pem"), "no key").unwrap();
    assert_eq!(write_and_reload(&tollgate, &yaml(&path("third.pem"))).status, 422);
    assert_eq!(of(&second, "e"), 200);
    let checked = tollgate_check(&tollgate);
    assert_eq!(checked, Some(78));
}

fn tollgate_check(running: &Tollgate) -> Option<i32> {
    tollgate(&["check", file(running).to_str().unwrap()]).code
}
