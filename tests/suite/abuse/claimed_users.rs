//! Users whose requests only claim to be theirs: what one client can, and cannot, bring upon another's name.

use crate::harness::{Client, Config, Deployment, Origin, Tollgate, eventually, on_each_store};

on_each_store!(only_a_users_own_denials_ban_the_user);

/// A gateway says who is verified; anybody can claim to be anyone.
const IDENTITIES: &str = "
trusted_proxies: [127.0.0.1]
user:
  - header: x-verified-user
  - { header: x-user-id, from: anyone }
bans:
  addresses: { key: ip, after: 5/10s, for: 1h }
  users: { key: user, after: 5/10s, for: 1h }
";

fn start(origin: &Origin, redis: Option<&Deployment>, policies: &str, names: &str) -> Tollgate {
    let store = redis.map_or(String::new(), |redis| {
        format!("store: {{ redis: {{ {}, timeout: 5s }} }}\n", redis.settings())
    });
    let rest = format!("{IDENTITIES}{store}policies:\n{policies}");
    Tollgate::start(Config::new(&[origin.address], &rest).with_policy(names))
}

fn status(tollgate: &Tollgate, address: &str, field: &str, user: &str) -> u16 {
    let fields = [("x-forwarded-for", address), (field, user)];
    Client::connect(tollgate.address).request("GET", "/a", &fields, b"").status
}

/// The keys that are banned.
fn banned(tollgate: &Tollgate) -> Vec<String> {
    let bans = tollgate.admin("GET", "/v1/bans").json();
    let mut keys: Vec<_> =
        bans["bans"].as_array().unwrap().iter().map(|ban| ban["key"].as_str().unwrap().to_owned()).collect();
    keys.sort();
    keys
}

fn only_a_users_own_denials_ban_the_user(redis: Option<&Deployment>) {
    let origin = Origin::ok();
    let policies = "
  per-ip: { algorithm: sliding_log, key: ip, limit: 3/1h }
  per-pair: { algorithm: sliding_log, key: ip+user, limit: 3/1h }
";
    let tollgate = start(&origin, redis, policies, "per-ip, per-pair");
    // The limits of the client's own address are reached, and the requests name somebody else.
    eventually("the address is banned", || {
        status(&tollgate, "203.0.113.7", "x-user-id", "victim");
        banned(&tollgate).contains(&"ip:203.0.113.7".to_owned())
    });
    // Both rules are told of a denial at the same time.
    assert_eq!(banned(&tollgate), ["ip:203.0.113.7"]);
    assert_eq!(status(&tollgate, "198.51.100.1", "x-user-id", "victim"), 200);
    assert_eq!(status(&tollgate, "198.51.100.1", "x-verified-user", "victim"), 200);

    // One that a gateway vouches for is banned for what it does.
    eventually("the verified user is banned", || {
        status(&tollgate, "203.0.113.8", "x-verified-user", "mallory");
        banned(&tollgate).contains(&"user:mallory".to_owned())
    });
    assert_eq!(status(&tollgate, "198.51.100.2", "x-verified-user", "mallory"), 403);
    // Operators see who was vouched for.
    let addresses =
        |user: &str| tollgate.admin("GET", &format!("/v1/users/{user}")).json()["addresses"][0].clone();
    let (victim, mallory) = (addresses("victim"), addresses("mallory"));
    assert_eq!((&victim["address"], &victim["verified"]), (&"203.0.113.7".into(), &0.into()));
    assert!(mallory["verified"].as_u64() > Some(0) && mallory["verified"] == mallory["denied"], "{mallory}");
    let page = |user: &str| tollgate.admin("GET", &format!("/users/{user}")).text();
    assert!(page("victim").contains(">claimed<") && page("mallory").contains(">verified<"));
    drop(tollgate);

    if let Some(redis) = redis {
        redis.clear();
    }
    // The limit of the very name is reached.
    let tollgate =
        start(&origin, redis, "  per-user: { algorithm: sliding_log, key: user, limit: 3/1h }\n", "per-user");
    let mut address = 0;
    eventually("the user is banned", || {
        address += 1;
        status(&tollgate, &format!("203.0.113.{}", address % 250), "x-user-id", "eve");
        banned(&tollgate).contains(&"user:eve".to_owned())
    });
    assert_eq!(status(&tollgate, "198.51.100.3", "x-user-id", "eve"), 403);
    assert_eq!(status(&tollgate, "198.51.100.3", "x-user-id", "ann"), 200);
}
