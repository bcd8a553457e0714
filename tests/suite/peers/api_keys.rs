//! API keys that instances share: changes, losses, and who was away.

use std::{collections::BTreeMap, sync::Arc};

use tollgate::{
    api_keys::{ApiKey, ApiKeys, KeyFault, KeyHash, KeySecret, KeyState, KeyStore, PutError},
    peers::Monitor,
};

use crate::{
    harness::{Deployment, Servers, eventually, on_each_topology, on_own_servers},
    store::redis_audit::monitor,
};

on_each_topology!(
    a_change_is_known_to_all_instances_and_to_those_that_start_later,
    of_changes_at_several_instances_the_latest_holds_everywhere,
    a_revocation_wins_over_a_later_change_at_another_instance,
    an_import_after_a_revocation_brings_no_key_back,
    without_its_version_redis_still_has_all_keys,
    a_key_used_at_one_instance_is_seen_as_used_at_all,
    what_others_wrote_there_does_no_harm,
);
on_own_servers!(
    keys_that_redis_loses_are_restored,
    who_was_away_brings_no_key_back,
    while_redis_is_away_keys_hold_and_changes_are_refused,
);

/// 2026-07-03.
const NOW: i64 = 1_783_080_000_000_000;

struct Instance {
    keys: Arc<ApiKeys>,
    monitor: Option<Monitor>,
}

impl Instance {
    fn start(redis: &Deployment) -> Self {
        let instance = Self { keys: Arc::new(ApiKeys::new(KeyStore::Redis)), monitor: None }.started(redis);
        eventually("the keys are read", || instance.keys.is_loaded() && instance.keys.is_store_up());
        instance
    }

    /// It knows nothing of what is in Redis before it is [`Instance::started`].
    fn unstarted() -> Self {
        let keys = Arc::new(ApiKeys::new(KeyStore::Redis));
        keys.set_store_up(true);
        Self { keys, monitor: None }
    }

    fn started(mut self, redis: &Deployment) -> Self {
        self.monitor = Some(monitor(redis.located(), redis.prefix(), Arc::clone(&self.keys)).0);
        self
    }

    fn put(&self, key: ApiKey) {
        let mark = self.keys.put(key).unwrap();
        eventually("it is shared", || self.keys.is_shared(&mark));
    }

    fn finds(&self, id: &str) -> Result<(), KeyFault> {
        self.keys.find(&KeyHash::of(id.as_bytes()), NOW).map(drop)
    }

    /// All records, for comparison.
    fn records(&self) -> Vec<ApiKey> {
        self.keys.all().iter().map(|key| ApiKey::clone(key)).collect()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Some(monitor) = self.monitor.take() {
            monitor.stop();
        }
    }
}

/// A key whose text is its ID.
fn key(id: &str) -> ApiKey {
    ApiKey {
        id: id.into(),
        secrets: vec![KeySecret { hash: KeyHash::of(id.as_bytes()), created: NOW, expires: None }],
        customer: "acmé \"GmbH\"".into(),
        plan: Some("pro".into()),
        name: "".into(),
        labels: BTreeMap::new(),
        created: NOW,
        expires: None,
        routes: Vec::new(),
        state: KeyState::Active,
        changed: NOW,
    }
}

/// The end of time for tombstones: they are kept by the clock of Redis.
fn revoked(id: &str) -> ApiKey {
    let state = KeyState::Revoked { at: NOW + 366 * 86_400_000_000, reason: "leaked".into() };
    ApiKey { state, changed: NOW + 1, ..key(id) }
}

fn a_change_is_known_to_all_instances_and_to_those_that_start_later(redis: &Deployment) {
    let instances = [0, 1, 2].map(|_| Instance::start(redis));
    instances[0].put(key("a"));
    for instance in &instances {
        eventually("it is known", || instance.finds("a").is_ok());
    }
    assert_eq!(instances[2].records(), [key("a")]);
    let before = instances.each_ref().map(|instance| instance.keys.changes());
    instances[1].put(revoked("a"));
    for (instance, before) in instances.iter().zip(before) {
        eventually("it is revoked", || instance.finds("a") == Err(KeyFault::Revoked));
        assert!(instance.keys.changes() > before, "its tunnels are closed");
    }
    let more: Vec<String> = (0..450).map(|n| format!("more{n}")).collect();
    for id in &more {
        instances[0].keys.put(key(id)).unwrap();
    }
    for instance in &instances {
        eventually("all are known", || instance.keys.counts().1 == 451);
    }
    let late = Instance::start(redis);
    assert_eq!(late.records(), instances[0].records(), "it has read several pages");
    assert_eq!(late.finds("a"), Err(KeyFault::Revoked));
    assert_eq!(redis.cli(&["pttl", "ratelimit:{keys}:records"]).trim(), "-1", "keys are no counters");
}

fn of_changes_at_several_instances_the_latest_holds_everywhere(redis: &Deployment) {
    let instances = [0, 1, 2].map(|_| Instance::start(redis));
    for round in 0..20 {
        for (number, instance) in instances.iter().enumerate() {
            let changed = NOW + round * 7 + [3, 1, 3][number];
            let name = format!("{round} by {number}").as_str().into();
            instance.keys.put(ApiKey { name, changed, ..key("a") }).unwrap();
        }
    }
    let all_sent = || instances.iter().all(|instance| !instance.keys.has_unsent());
    eventually("all is sent", all_sent);
    let agreed = || instances.iter().all(|instance| instance.records() == instances[0].records());
    eventually("they agree", agreed);
    let late = Instance::start(redis);
    assert_eq!(late.records(), instances[0].records(), "Redis agrees, too");
}

fn a_revocation_wins_over_a_later_change_at_another_instance(redis: &Deployment) {
    let [one, other] = [0, 1].map(|_| Instance::start(redis));
    let ids = ["a", "b", "c", "d", "e"];
    ids.iter().for_each(|id| one.put(key(id)));
    eventually("they are known", || other.keys.counts().1 == ids.len());
    // Neither knows of the other's change: both are sent later.
    for id in ids {
        let renamed = ApiKey { name: "renamed".into(), changed: NOW + 9, ..key(id) };
        other.keys.put(renamed).unwrap();
        one.keys.put(revoked(id)).unwrap();
    }
    eventually("all is sent", || !one.keys.has_unsent() && !other.keys.has_unsent());
    for id in ids {
        eventually("it is revoked", || {
            [&one, &other].iter().all(|instance| instance.finds(id) == Err(KeyFault::Revoked))
        });
    }
    eventually("they agree", || one.records() == other.records());
    let late = Instance::start(redis);
    assert_eq!(late.records(), one.records(), "Redis agrees, too");
}

fn an_import_after_a_revocation_brings_no_key_back(redis: &Deployment) {
    let [one, other] = [0, 1].map(|_| Instance::start(redis));
    one.put(key("a"));
    one.put(revoked("a"));
    let later = ApiKey { changed: NOW + 1_000, ..key("a") };
    let copy = ApiKey { id: "copy".into(), ..later.clone() };
    eventually("it is revoked", || other.finds("a") == Err(KeyFault::Revoked));
    for instance in [&one, &other] {
        assert_eq!(instance.keys.put(later.clone()), Err(PutError::Revoked("a".into())));
        assert_eq!(instance.keys.put(copy.clone()), Err(PutError::SecretInUse("a".into())));
    }
    // Instances that do not know of it yet.
    let behind = [later, copy].map(|key| {
        let instance = Instance::unstarted();
        instance.keys.put(key).unwrap();
        instance.started(redis)
    });
    let late = Instance::start(redis);
    let all = [&one, &other, &behind[0], &behind[1], &late];
    eventually("the copy is known", || all.iter().all(|instance| instance.keys.counts().1 == 2));
    for instance in all {
        eventually("it is revoked", || instance.finds("a") == Err(KeyFault::Revoked));
    }
}

fn without_its_version_redis_still_has_all_keys(redis: &Deployment) {
    let instances = [0, 1, 2].map(|_| Instance::start(redis));
    for n in 0..450 {
        instances[0].keys.put(key(&format!("k{n}"))).unwrap();
    }
    let all_know = |count| {
        eventually("all are known", || {
            instances.iter().all(|instance| instance.keys.counts().1 == count && !instance.keys.has_unsent())
        });
    };
    all_know(450);
    redis.cli(&["del", "ratelimit:{keys}:version"]);
    instances[1].put(revoked("k7"));
    instances[2].put(key("later"));
    all_know(451);
    let late = Instance::start(redis);
    for instance in instances.iter().chain([&late]) {
        eventually("they agree", || instance.records() == instances[0].records());
        assert_eq!(instance.finds("k7"), Err(KeyFault::Revoked));
    }
    assert_eq!(late.keys.counts().1, 451);
    // Numbers go on above those of the keys.
    let number =
        |key: &[&str]| redis.cli(key).trim().lines().last().unwrap_or_default().parse::<u64>().unwrap();
    let last = number(&["zrange", "ratelimit:{keys}:order", "-1", "-1", "withscores"]);
    assert_eq!(number(&["hget", "ratelimit:{keys}:version", "n"]), last);
    assert!(last >= 452, "{last}");
}

fn a_key_used_at_one_instance_is_seen_as_used_at_all(redis: &Deployment) {
    let [one, other] = [0, 1].map(|_| Instance::start(redis));
    one.put(key("a"));
    eventually("it is known", || other.finds("a").is_ok());
    one.keys.note_use("a", NOW);
    eventually("its use is known", || other.keys.last_use("a") == Some(NOW));
    other.keys.note_use("a", NOW - 60_000_000);
    other.keys.note_use("a", NOW + 120_000_000 + 7);
    eventually("the last use is known", || one.keys.last_use("a") == Some(NOW + 120_000_000));
}

fn what_others_wrote_there_does_no_harm(redis: &Deployment) {
    redis.cli(&["set", "ratelimit:{keys}:order", "x"]);
    redis.cli(&["set", "ratelimit:{keys}:uses", "x"]);
    let one = Instance::start(redis);
    one.put(key("a"));
    redis.cli(&["hset", "ratelimit:{keys}:records", "b", "nonsense"]);
    redis.cli(&["zadd", "ratelimit:{keys}:order", "7", "b", "8", "c"]);
    redis.cli(&["hset", "ratelimit:{keys}:version", "n", "9"]);
    let other = Instance::start(redis);
    assert_eq!(other.records(), [key("a")]);
    other.put(key("c"));
    eventually("it is known", || one.finds("c").is_ok());
    one.keys.note_use("a", NOW);
    eventually("uses are shared", || other.keys.last_use("a") == Some(NOW));
}

fn keys_that_redis_loses_are_restored(redis: &mut Deployment) {
    let [one, other] = [0, 1].map(|_| Instance::start(redis));
    one.put(key("a"));
    other.put(revoked("b"));
    eventually("all is known", || one.keys.counts().1 == 2 && other.keys.counts().1 == 2);
    redis.each(&["flushall"]);
    let is_back = || redis.cli(&["zcard", "ratelimit:{keys}:order"]).trim() == "2";
    eventually("the keys are back", is_back);
    let late = Instance::start(redis);
    assert!(late.finds("a").is_ok() && late.finds("b") == Err(KeyFault::Revoked));
    if let Servers::Server(server) = redis.own() {
        server.kill();
        server.restart();
        eventually("the keys are back after a restart", is_back_on(server));
        eventually("changes can be made", || one.keys.is_store_up());
    }
    one.put(ApiKey { changed: NOW + 9, ..key("c") });
    eventually("others go on to learn", || other.finds("c").is_ok() && late.finds("c").is_ok());
}

fn is_back_on(server: &crate::harness::Redis) -> impl Fn() -> bool {
    move || server.answers() && server.cli(&["zcard", "ratelimit:{keys}:order"]).trim() == "2"
}

fn who_was_away_brings_no_key_back(redis: &mut Deployment) {
    let one = Instance::start(redis);
    one.put(key("a"));
    let mut away = Instance::start(redis);
    assert!(away.finds("a").is_ok());
    // It ends, and another one goes on with what it knew.
    away.monitor.take().unwrap().stop();
    one.put(revoked("a"));
    away.keys.set_store_up(true);
    away.keys.put(ApiKey { name: "older".into(), changed: NOW, ..key("b") }).unwrap();
    away.monitor = Some(monitor(redis.located(), redis.prefix(), Arc::clone(&away.keys)).0);
    eventually("it learns", || away.finds("a") == Err(KeyFault::Revoked));
    eventually("what it has is learned", || one.finds("b").is_ok());
    assert_eq!(one.finds("a"), Err(KeyFault::Revoked));
}

fn while_redis_is_away_keys_hold_and_changes_are_refused(redis: &mut Deployment) {
    let one = Instance::start(redis);
    one.put(key("a"));
    let servers = redis.servers().len();
    assert!(servers > 0);
    redis.servers().iter().for_each(|server| server.pause());
    eventually("it is noticed", || !one.keys.is_store_up());
    assert_eq!(one.keys.put(key("b")), Err(PutError::Away));
    assert!(one.finds("a").is_ok());
    redis.servers().iter().for_each(|server| server.resume());
    eventually("it is back", || one.keys.is_store_up());
    one.put(key("b"));
}
