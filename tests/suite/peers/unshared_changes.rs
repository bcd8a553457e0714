//! What operators change at an instance while Redis is away.

use std::time::Duration;

use crate::harness::{Config, Origin, Redis, Relay, Tollgate, eventually};

fn start(origins: &[&Origin], redis: &Redis) -> Tollgate {
    let addresses: Vec<_> = origins.iter().map(|origin| origin.address).collect();
    let rest = format!("store: {{ redis: {{ url: \"{}\", timeout: 5s }} }}\n", redis.url());
    Tollgate::start(Config::new(&addresses, &rest))
}

fn count(tollgate: &Tollgate, list: &str) -> usize {
    tollgate.admin("GET", &format!("/v1/{list}")).json()[list].as_array().map_or(0, Vec::len)
}

#[test]
fn a_change_while_redis_is_away_is_said_to_hold_at_one_instance() {
    const UNSHARED: &str = "The other instances have not been told yet: Tollgate goes on trying.\n";
    let (one, other, mut redis) = (Origin::ok(), Origin::ok(), Redis::start());
    let [here, elsewhere] = [(); 2].map(|()| start(&[&one, &other], &redis));
    for tollgate in [&here, &elsewhere] {
        eventually("they know each other", || {
            tollgate.admin("GET", "/v1/status").json()["store"]["instances"] == 2
        });
    }
    let run = |arguments: &[&str]| {
        let ended = here.command(arguments);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.stdout
    };
    let endpoint = format!("http://{}", one.address);
    let ban = ["ban", "user:eve", "--for", "1h"];
    let lifted = "user:eve is no longer banned";
    assert!(run(&ban).starts_with("user:eve is banned until "));
    eventually("the other has heard of it", || count(&elsewhere, "bans") == 1);
    assert_eq!(run(&["unban", "user:eve"]), format!("{lifted}.\n"));
    eventually("the other has heard of it", || count(&elsewhere, "bans") == 0);

    redis.kill();
    let banned = run(&ban);
    assert!(
        banned.starts_with("user:eve is banned at this instance until ") && banned.ends_with(UNSHARED),
        "{banned}"
    );
    assert_eq!(run(&["unban", "user:eve"]), format!("{lifted} at this instance.\n{UNSHARED}"));
    let drained = run(&["drain", "origin", &endpoint]);
    assert!(drained.contains(" is drained at this instance: ") && drained.ends_with(UNSHARED), "{drained}");
    let undrained = run(&["undrain", "origin", &endpoint]);
    assert!(
        undrained.ends_with(&format!("takes requests again at this instance.\n{UNSHARED}")),
        "{undrained}"
    );
    for change in [&ban[..], &["drain", "origin", &endpoint]] {
        let told = run(&[change, &["--json"]].concat());
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        assert_eq!(told["shared"], false, "{told}");
    }
    assert_eq!((count(&elsewhere, "bans"), count(&elsewhere, "drains")), (0, 0));

    redis.restart();
    eventually("the other hears of it", || {
        (count(&elsewhere, "bans"), count(&elsewhere, "drains")) == (1, 1)
    });
    assert_eq!(run(&["unban", "user:eve"]), format!("{lifted}.\n"));
    assert!(!run(&["undrain", "origin", &endpoint]).contains("at this instance"));
}

#[test]
fn a_change_that_redis_takes_slowly_is_waited_for() {
    let (origin, redis) = (Origin::ok(), Redis::start());
    let relay = Relay::to(redis.port);
    let rest = format!("store: {{ redis: {{ url: \"{}\", timeout: 2500ms }} }}\n", relay.url());
    let slow = Tollgate::start(Config::new(&[origin.address], &rest));
    let elsewhere = start(&[&origin], &redis);
    eventually("they know each other", || {
        elsewhere.admin("GET", "/v1/status").json()["store"]["instances"] == 2
    });
    relay.delay(Duration::from_millis(1200));
    for command in [&["ban", "user:eve", "--for", "1h"][..], &["unban", "user:eve"]] {
        let ended = slow.command(command);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(!ended.stdout.contains("have not been told"), "{ended:?}");
    }
}

/// An outage of Redis is reported once: by what probes it. Only a subscription that fails alone is reported by itself.
#[test]
fn an_outage_of_redis_is_told_once() {
    let told = |tollgate: &Tollgate, what: &str| {
        tollgate.log().iter().filter(|line| line.contains("WARN") && line.contains(what)).count()
    };
    let subscription = "unblocks of other instances can't be received";
    let (origin, mut redis) = (Origin::ok(), Redis::start());
    let tollgate = start(&[&origin], &redis);
    redis.kill();
    eventually("it is reported", || told(&tollgate, "is unavailable") == 1);
    let late = start(&[&origin], &redis);
    eventually("it is reported", || told(&late, "is unavailable") == 1);
    for tollgate in [&tollgate, &late] {
        eventually("each tries several times to subscribe", || {
            tollgate.log().iter().filter(|line| line.contains("can't listen to other instances")).count() > 3
        });
    }
    redis.restart();
    for tollgate in [&tollgate, &late] {
        eventually("it is back", || {
            !tollgate.admin("GET", "/v1/status").json()["store"]["latency"].is_null()
        });
        assert_eq!((told(tollgate, "is unavailable"), told(tollgate, subscription)), (1, 0));
    }

    assert_eq!(redis.cli(&["acl", "setuser", "default", "resetchannels"]), "OK");
    redis.cli(&["client", "kill", "type", "pubsub"]);
    eventually("what fails alone is reported", || told(&tollgate, subscription) == 1);
    assert_eq!(told(&tollgate, "is unavailable"), 1);
}
