//! `/v1/keys` of real instances: with a file of data, and in Redis.

use std::thread;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{
    Config, Deployment, Origin, Redis, Reply, Tollgate, eventually, get, on_each_store, request,
};

/// An instance whose routes require a key.
pub fn keyed(origin: &Origin, redis: Option<&str>, rest: &str) -> Tollgate {
    let store = redis.map(|redis| format!("store: {{ redis: {{ {redis}, timeout: 5s }} }}\n"));
    let rest = format!(
        "api_keys: {{ store: true, data: keys.json }}
policies: {{ monthly: {{ algorithm: fixed_window, key: customer, limit: 2/1d }} }}
plans: {{ pro: {{ monthly: 5/1d }}, all: {{ monthly: unlimited }} }}
{}{rest}",
        store.unwrap_or_default()
    );
    Tollgate::start(Config::new(&[origin.address], &rest).with_policy("monthly"))
}

pub fn send(tollgate: &Tollgate, method: &str, path: &str, body: &Value) -> Reply {
    let fields = [("content-type", "application/json")];
    request(tollgate.admin, method, path, &fields, body.to_string().as_bytes())
}

fn status(tollgate: &Tollgate, key: &str) -> u16 {
    get(tollgate.address, "/", &[("x-api-key", key)]).status
}

fn a_key_holds_from_the_moment_it_is_made_until_it_is_revoked(redis: Option<&Deployment>) {
    let origin = Origin::ok();
    let tollgate = keyed(&origin, redis.map(|redis| redis.settings()).as_deref(), "");
    eventually("the store of keys is up", || {
        send(&tollgate, "POST", "/v1/keys", &json!({"customer": "first"})).status == 201
    });
    let made = send(&tollgate, "POST", "/v1/keys", &json!({"customer": "acme", "plan": "pro", "id": "a"}));
    let key = made.json()["key"].as_str().unwrap().to_owned();
    assert_eq!(made.json()["shared"], true);
    assert_eq!(status(&tollgate, &key), 200);
    assert_eq!(status(&tollgate, "tgk_no_such_key"), 401);
    eventually("its use is known", || tollgate.admin("GET", "/v1/keys/a").json()["last_used"].is_string());
    let rotated = send(&tollgate, "POST", "/v1/keys/a/rotate", &json!({"overlap": "1h"})).json();
    let newer = rotated["key"].as_str().unwrap().to_owned();
    assert_eq!([status(&tollgate, &key), status(&tollgate, &newer)], [200, 200]);
    let rotated = send(&tollgate, "POST", "/v1/keys/a/rotate", &json!({"overlap": "0s"})).json();
    let newest = rotated["key"].as_str().unwrap().to_owned();
    assert_eq!([&key, &newer, &newest].map(|key| status(&tollgate, key)), [401, 401, 200]);
    // All secrets have one quota.
    let usage = tollgate.admin("GET", "/v1/limits?key=customer:acme").json();
    assert_eq!(usage["limits"][0]["used"], 4, "{usage}");
    assert_eq!(send(&tollgate, "POST", "/v1/keys/a/revoke", &json!({"reason": "leaked"})).status, 200);
    assert_eq!(status(&tollgate, &newest), 401);
    let log = format!("{:?}", tollgate.log());
    let audit = tollgate.admin("GET", "/v1/audit").text();
    for secret in [&key, &newer, &newest] {
        assert!(!log.contains(secret.as_str()) && !audit.contains(secret.as_str()));
    }
}

fn an_imported_key_goes_on_to_be_valid(redis: Option<&Deployment>) {
    let origin = Origin::ok();
    let tollgate = keyed(&origin, redis.map(|redis| redis.settings()).as_deref(), "");
    let keys = json!({"keys": [{"key": "a-key-of-a-customer", "customer": "acme", "plan": "all"}]});
    eventually("it is imported", || send(&tollgate, "POST", "/v1/keys/import", &keys).status == 200);
    assert_eq!([(); 4].map(|()| status(&tollgate, "a-key-of-a-customer")), [200; 4]);
}

fn the_page_shows_what_each_of_many_customers_has_used(redis: Option<&Deployment>) {
    let origin = Origin::ok();
    let users = "user: [{ api_key: customer }]\n";
    let tollgate = keyed(&origin, redis.map(|redis| redis.settings()).as_deref(), users);
    let customers: Vec<_> = (0..40).map(|n| (format!("customer-{n:02}"), n % 4)).collect();
    let row = |(name, _): &(String, usize)| json!({"key": format!("a-key-of-{name}"), "id": name, "customer": name});
    let keys = json!({"keys": customers.iter().map(row).collect::<Vec<_>>()});
    eventually("they are imported", || send(&tollgate, "POST", "/v1/keys/import", &keys).status == 200);
    for (name, requests) in &customers {
        for nth in 0..*requests {
            assert_eq!(status(&tollgate, &format!("a-key-of-{name}")), if nth < 2 { 200 } else { 429 });
        }
    }
    eventually("the page has all of it", || {
        let page = tollgate.admin("GET", "/keys").text();
        let rows: Vec<_> = page.split("<tr data-key=\"").skip(1).collect();
        let is_right = |(row, (name, requests)): (&&str, &(String, usize))| {
            row.starts_with(name)
                && row.contains(&format!("monthly: {} of 2", requests.min(&2)))
                && row.contains(&format!("data-label=\"Denied\">{}<", requests / 3))
        };
        rows.len() == 40 && rows.iter().zip(&customers).all(is_right)
    });
}

on_each_store!(
    a_key_holds_from_the_moment_it_is_made_until_it_is_revoked,
    an_imported_key_goes_on_to_be_valid,
    the_page_shows_what_each_of_many_customers_has_used,
);

#[test]
fn another_instance_knows_what_was_done_to_a_key_and_the_later_change_wins() {
    let (origin, redis) = (Origin::ok(), Redis::start());
    let settings = format!("url: \"{}\"", redis.url());
    let [one, other] = [(); 2].map(|()| keyed(&origin, Some(&settings), ""));
    eventually("the store of keys is up", || {
        send(&one, "POST", "/v1/keys", &json!({"customer": "acme", "id": "a"})).status != 503
    });
    eventually("the other instance knows it", || other.admin("GET", "/v1/keys/a").status == 200);
    assert_eq!(send(&one, "PATCH", "/v1/keys/a", &json!({"name": "one"})).status, 200);
    eventually("the change came", || other.admin("GET", "/v1/keys/a").json()["name"] == "one");
    assert_eq!(send(&other, "PATCH", "/v1/keys/a", &json!({"name": "other"})).status, 200);
    for instance in [&one, &other] {
        eventually("the later change holds", || {
            instance.admin("GET", "/v1/keys/a").json()["name"] == "other"
        });
        eventually("both are audited", || {
            instance.admin("GET", "/v1/audit").text().matches("change_key").count() == 2
        });
    }
}

/// The key with this ID, as the instance knows it.
fn shown(tollgate: &Tollgate, id: &str) -> Value {
    tollgate.admin("GET", &format!("/v1/keys/{id}")).json()
}

/// Two instances that change keys at the same time, each as an operator would who knows nothing of the other.
fn changes_at_two_instances_all_stand(instances: &[Tollgate; 2]) {
    let [one, other] = instances;
    for round in 0..25 {
        let id = format!("k{round}");
        let new = json!({"customer": "acme", "id": id, "plan": "all"});
        eventually("it is made", || matches!(send(one, "POST", "/v1/keys", &new).status, 201 | 422));
        eventually("the other instance knows it", || shown(other, &id)["plan"] == "all");
        let path = format!("/v1/keys/{id}");
        // The downgrade here, the rotation there, and the next time the other way round.
        let (downgrades, rotates) = if round % 2 == 0 { (one, other) } else { (other, one) };
        let (downgraded, rotated) = thread::scope(|scope| {
            let downgraded = scope.spawn(|| send(downgrades, "PATCH", &path, &json!({"plan": "pro"})));
            let rotated = send(rotates, "POST", &format!("{path}/rotate"), &json!({"overlap": "0s"}));
            (downgraded.join().unwrap(), rotated)
        });
        assert_eq!(
            (downgraded.status, rotated.status),
            (200, 200),
            "{}",
            downgraded.text() + &rotated.text()
        );
        assert_eq!(
            (downgraded.json()["shared"].clone(), rotated.json()["shared"].clone()),
            (json!(true), json!(true))
        );
        let newest = rotated.json()["secrets"].as_array().unwrap().last().unwrap()["hash"].clone();
        for instance in instances {
            eventually("both changes stand", || {
                let key = shown(instance, &id);
                key["plan"] == "pro" && key["secrets"].as_array().unwrap().last().unwrap()["hash"] == newest
            });
        }
    }
    // Many at once: the label of each is there in the end.
    thread::scope(|scope| {
        for writer in 0..4 {
            scope.spawn(move || {
                for nth in 0..7 {
                    let label = json!({"labels": {format!("{writer}-{nth}"): "x"}});
                    let changed = send(&instances[writer % 2], "PATCH", "/v1/keys/k0", &label);
                    assert_eq!(changed.status, 200, "{}", changed.text());
                }
            });
        }
    });
    for instance in instances {
        eventually("no label is lost", || shown(instance, "k0")["labels"].as_object().unwrap().len() == 28);
    }
}

/// A change to a version is made at any instance, and only while it is the newest.
fn a_stale_version_is_refused_at_any_instance(instances: &[Tollgate; 2]) {
    let [one, other] = instances;
    let if_match = |tollgate: &Tollgate, version: &Value, body: &Value| {
        let version = format!("\"{}\"", version.as_str().unwrap());
        let fields = [("content-type", "application/json"), ("if-match", version.as_str())];
        request(tollgate.admin, "PATCH", "/v1/keys/v", &fields, body.to_string().as_bytes())
    };
    let made = send(one, "POST", "/v1/keys", &json!({"customer": "acme", "id": "v"})).json();
    eventually("the other instance knows it", || shown(other, "v")["version"] == made["version"]);
    let mut version = made["version"].clone();
    for round in 0..10 {
        // The other one may not have heard of the newest version.
        let here = &instances[round % 2];
        let changed = if_match(here, &version, &json!({"name": format!("{round}")}));
        assert_eq!(changed.status, 200, "{}", changed.text());
        let newest = changed.json()["version"].clone();
        assert_eq!(changed.header("etag"), Some(&*format!("\"{}\"", newest.as_str().unwrap())));
        for tollgate in instances {
            let refused = if_match(tollgate, &version, &json!({"name": "stale"}));
            assert_eq!(refused.status, 412, "{}", refused.text());
            assert!(refused.text().contains("Read it again"), "{}", refused.text());
        }
        version = newest;
    }
    for instance in instances {
        eventually("the last change holds", || shown(instance, "v")["name"] == "9");
    }
}

#[test]
fn changes_at_two_instances_with_redis_all_stand() {
    let (origin, redis) = (Origin::ok(), Redis::start());
    let settings = format!("url: \"{}\"", redis.url());
    let instances = [(); 2].map(|()| keyed(&origin, Some(&settings), ""));
    changes_at_two_instances_all_stand(&instances);
    a_stale_version_is_refused_at_any_instance(&instances);
}

#[test]
fn changes_at_two_instances_with_one_data_file_all_stand() {
    let (origin, directory) = (Origin::ok(), TempDir::new().unwrap());
    let plans = "policies: { monthly: { algorithm: fixed_window, key: customer, limit: 2/1d } }
plans: { pro: { monthly: 5/1d }, all: { monthly: unlimited } }
";
    let keys = format!("api_keys: {{ store: true, data: \"{}/keys.json\" }}\n", directory.path().display());
    let config = || Config::new(&[origin.address], &format!("{keys}{plans}")).with_policy("monthly");
    let instances = [(); 2].map(|()| Tollgate::start(config()));
    changes_at_two_instances_all_stand(&instances);
    a_stale_version_is_refused_at_any_instance(&instances);
}

#[test]
fn an_import_has_room_of_its_own_and_other_bodies_do_not() {
    let origin = Origin::ok();
    let tollgate = keyed(&origin, None, "");
    let row = |nth: usize| json!({"key": format!("a-key-of-a-customer-{nth}"), "customer": "acme"});
    let keys = json!({"keys": (0..2_000).map(row).collect::<Vec<_>>()});
    assert!(keys.to_string().len() > 64 << 10);
    let imported = send(&tollgate, "POST", "/v1/keys/import", &keys);
    assert_eq!(imported.json()["imported"], 2_000);
    let long = json!({"customer": "acme", "name": "x".repeat(65 << 10)});
    assert_eq!(send(&tollgate, "POST", "/v1/keys", &long).status, 413);
}

#[test]
fn without_a_store_keys_can_not_be_made() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    let refused = send(&tollgate, "POST", "/v1/keys", &json!({"customer": "acme"}));
    assert_eq!(refused.status, 422);
    assert!(refused.text().contains("`api_keys.store` is not set"), "{}", refused.text());
    assert_eq!(tollgate.admin("GET", "/v1/keys").json()["keys"], json!([]));
}
