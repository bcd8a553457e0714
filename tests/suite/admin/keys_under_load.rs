//! Keys of three instances that share a Redis are rotated and revoked while clients use them.

use std::time::{Duration, Instant};

use serde_json::json;

use super::keys::{keyed, send};
use crate::harness::{Deployment, Load, Origin, Sample, Tollgate, eventually, get, on_topologies};

on_topologies!(shared [server cluster]
    no_request_fails_while_keys_are_rotated,
    a_revoked_key_is_refused_by_all_instances,
);

const CLIENTS: usize = 24;
const PAUSE: Duration = Duration::from_millis(5);

/// Three instances, and the first key of a customer without a limit.
fn start(origin: &Origin, redis: &Deployment) -> ([Tollgate; 3], String) {
    let instances = [(); 3].map(|()| keyed(origin, Some(&redis.settings()), ""));
    let mut key = String::new();
    let new = json!({ "customer": "acme", "plan": "all", "id": "a" });
    eventually("the store of keys is up", || {
        let made = send(&instances[0], "POST", "/v1/keys", &new);
        if made.status == 201 {
            key = made.json()["key"].as_str().unwrap().to_owned();
        }
        made.status == 201
    });
    for instance in &instances {
        eventually("the key is known", || status(instance, &key) == 200);
    }
    (instances, key)
}

fn status(tollgate: &Tollgate, key: &str) -> u16 {
    get(tollgate.address, "/", &[("x-api-key", key)]).status
}

fn load(instances: &[Tollgate; 3], key: &str) -> Load {
    let addresses = instances.each_ref().map(|instance| instance.address);
    Load::start_with(&addresses, &["/"], CLIENTS, PAUSE, &[("x-api-key", key)])
}

fn no_request_fails_while_keys_are_rotated(redis: &Deployment) {
    let origin = Origin::ok();
    let (instances, mut key) = start(&origin, redis);
    let mut samples: Vec<Sample> = Vec::new();
    for round in 0..4 {
        let of_old = load(&instances, &key);
        let rotated = send(&instances[round % 3], "POST", "/v1/keys/a/rotate", &json!({ "overlap": "1h" }));
        assert_eq!(rotated.status, 200, "{}", rotated.text());
        let newer = rotated.json()["key"].as_str().unwrap().to_owned();
        for instance in &instances {
            eventually("the new secret is known", || status(instance, &newer) == 200);
        }
        let of_new = load(&instances, &newer);
        // Who uses the old one goes on for a while.
        let sent = origin.heads().len();
        eventually("both are used", || origin.heads().len() > sent + 10 * CLIENTS);
        samples.extend(of_old.stop());
        samples.extend(of_new.stop());
        key = newer;
    }
    assert!(samples.iter().all(|sample| sample.status == 200), "{samples:#?}");
    eprintln!("four rotations under load: {} requests, none failed", samples.len());
}

fn a_revoked_key_is_refused_by_all_instances(redis: &Deployment) {
    let origin = Origin::ok();
    let (instances, first) = start(&origin, redis);
    let (mut took, mut key) = (Vec::new(), first);
    for round in 0..3 {
        let clients = load(&instances, &key);
        let sent = origin.heads().len();
        eventually("the key is used", || origin.heads().len() > sent + 2 * CLIENTS);
        let id = if round == 0 { "a".to_owned() } else { format!("a{round}") };
        let path = format!("/v1/keys/{id}/revoke");
        let revoked = send(&instances[round % 3], "POST", &path, &json!({ "reason": "leaked" }));
        assert_eq!(revoked.status, 200, "{}", revoked.text());
        let begun = Instant::now();
        for instance in &instances {
            eventually("it is refused", || matches!(status(instance, &key), 401 | 429));
        }
        let samples = clients.stop();
        let last = samples.iter().filter(|sample| sample.status == 200).map(|sample| sample.sent).max();
        let after = last.map_or(Duration::ZERO, |last| last.saturating_duration_since(begun));
        took.push(after);
        // Once it is refused, it stays so: on no connection is it valid again.
        let is_refused = |sample: &&Sample| sample.sent > begun + after;
        assert!(samples.iter().filter(is_refused).all(|sample| matches!(sample.status, 401 | 429)));
        let next = json!({ "customer": "acme", "plan": "all", "id": format!("a{}", round + 1) });
        key = send(&instances[0], "POST", "/v1/keys", &next).json()["key"].as_str().unwrap().to_owned();
        for instance in &instances {
            eventually("the next key is known", || status(instance, &key) == 200);
        }
    }
    eprintln!("a revoked key was last admitted by one of three instances {took:.0?} later");
    // A busy machine holds some of them up, but not all.
    assert!(took.iter().min().unwrap() < &Duration::from_secs(1), "{took:?}");
}
