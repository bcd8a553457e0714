//! API keys that instances share: changes, losses, and who was away.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use tollgate::{
    api_keys::{
        ApiKey, ApiKeys, ChangeState, KeyFault, KeyHash, KeySecret, KeyState, KeyStore, PendingChange,
        PutError, Stamp,
    },
    peers::Monitor,
};

use crate::{
    harness::{Deployment, Servers, eventually, on_each_topology, on_own_servers},
    store::redis_audit::monitor,
};

on_each_topology!(
    a_change_is_known_to_all_instances_and_to_those_that_start_later,
    a_revocation_does_not_wait_for_an_import,
    of_changes_at_several_instances_the_latest_holds_everywhere,
    a_revocation_wins_over_a_later_change_at_another_instance,
    an_import_after_a_revocation_brings_no_key_back,
    of_two_changes_of_one_version_redis_makes_one,
    a_key_is_made_once_at_whichever_instance,
    without_its_version_redis_still_has_all_keys,
    a_key_used_at_one_instance_is_seen_as_used_at_all,
    an_instance_that_starts_knows_when_keys_were_used,
    an_instance_whose_clock_is_ahead_hides_no_use,
    invalid_data_beside_the_keys_in_redis_does_no_harm,
);
on_own_servers!(
    keys_that_redis_loses_are_restored,
    a_change_of_a_key_that_redis_has_lost_is_made_to_the_restored_one,
    an_instance_that_was_away_brings_no_revoked_key_back,
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

    /// Waits for the decision on a change.
    fn decided(&self, change: &Arc<PendingChange>) -> ChangeState {
        eventually("the store decides", || change.is_decided());
        change.state()
    }

    /// The key with this ID, as this instance knows it.
    fn known(&self, id: &str) -> ApiKey {
        ApiKey::clone(&self.keys.get(id).unwrap())
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

fn a_revocation_does_not_wait_for_an_import(redis: &Deployment) {
    let other = Instance::start(redis);
    other.put(key("a"));
    let keys = Arc::new(ApiKeys::new(KeyStore::Redis));
    keys.set_store_up(true);
    // Several rounds.
    for n in 0..5_000 {
        keys.import(ApiKey { customer: "b".into(), ..key(&format!("imported{n}")) }).unwrap();
    }
    keys.put(revoked("a")).unwrap();
    let monitor = Some(monitor(redis.located(), redis.prefix(), Arc::clone(&keys)).0);
    let _one = Instance { keys, monitor };
    eventually("the import arrives", || other.keys.get("imported0").is_some());
    assert_eq!(other.finds("a"), Err(KeyFault::Revoked));
    eventually("all of it", || other.keys.counts().1 == 5_001);
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

fn of_two_changes_of_one_version_redis_makes_one(redis: &Deployment) {
    let [one, other] = [0, 1].map(|_| Instance::start(redis));
    one.put(key("a"));
    eventually("it is known", || other.finds("a").is_ok());
    for round in 0..20_i64 {
        let base = one.known("a");
        eventually("both know the same", || other.known("a") == base);
        let stamp = Some(Stamp::of(&base));
        // The clock of one is ahead: its version would be the later one.
        let name = format!("{round}").as_str().into();
        let renamed = ApiKey { name, changed: base.changed + 9_000_000, ..base.clone() };
        let plan = Some(format!("plan{round}").as_str().into());
        let moved = ApiKey { plan, changed: base.changed + 1, ..base.clone() };
        let changes = [one.keys.propose(renamed, stamp).unwrap(), other.keys.propose(moved, stamp).unwrap()];
        let states = [one.decided(&changes[0]), other.decided(&changes[1])];
        // The one that came too late knows the newest version now.
        let again = match states {
            [ChangeState::Made, ChangeState::Outdated] => {
                let newest = other.known("a");
                assert_eq!(Stamp::of(&newest), Stamp::of(&changes[0].key));
                let moved = ApiKey { plan: changes[1].key.plan.clone(), ..newest.clone() };
                (&other, other.keys.propose(moved, Some(Stamp::of(&newest))).unwrap())
            }
            [ChangeState::Outdated, ChangeState::Made] => {
                let newest = one.known("a");
                assert_eq!(Stamp::of(&newest), Stamp::of(&changes[1].key));
                let renamed = ApiKey { name: changes[0].key.name.clone(), ..newest.clone() };
                (&one, one.keys.propose(renamed, Some(Stamp::of(&newest))).unwrap())
            }
            states => panic!("{states:?}"),
        };
        assert_eq!(again.0.decided(&again.1), ChangeState::Made);
        for instance in [&one, &other] {
            eventually("both changes stand", || {
                let key = instance.known("a");
                key.name == changes[0].key.name && key.plan == changes[1].key.plan
            });
        }
    }
    let late = Instance::start(redis);
    assert_eq!(late.records(), one.records(), "Redis agrees");
}

fn a_key_is_made_once_at_whichever_instance(redis: &Deployment) {
    let [one, other] = [0, 1].map(|_| Instance::start(redis));
    let theirs = ApiKey { secrets: key("theirs").secrets, customer: "other".into(), ..key("a") };
    let changes = [one.keys.propose(key("a"), None).unwrap(), other.keys.propose(theirs, None).unwrap()];
    let states = [one.decided(&changes[0]), other.decided(&changes[1])];
    let made = states.iter().position(|&state| state == ChangeState::Made).unwrap();
    assert_eq!(states[1 - made], ChangeState::Outdated);
    for instance in [&one, &other] {
        eventually("all know it", || instance.keys.get("a").is_some_and(|key| *key == changes[made].key));
    }
    assert_eq!(one.keys.propose(key("a"), None).err(), Some(PutError::IdInUse("a".into())));
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

fn an_instance_that_starts_knows_when_keys_were_used(redis: &Deployment) {
    // Several pages of keys, which are still being read when the uses could be read already.
    let ids: Vec<String> = (0..1_500).map(|n| format!("k{n}")).collect();
    let minute = |nth: usize| NOW - nth as i64 * 60_000_000;
    let one = Instance::start(redis);
    for (nth, id) in ids.iter().enumerate() {
        one.keys.put(key(id)).unwrap();
        one.keys.note_use(id, minute(nth));
    }
    eventually("all is sent", || !one.keys.has_unsent() && !one.keys.uses().has_unsent());
    eventually("all is in Redis", || redis.cli(&["zcard", "ratelimit:{keys}:uses"]).trim() == "1500");
    let late = Instance::start(redis);
    let knows = || ids.iter().enumerate().all(|(nth, id)| late.keys.last_use(id) == Some(minute(nth)));
    eventually("it knows them", knows);
}

fn an_instance_whose_clock_is_ahead_hides_no_use(redis: &Deployment) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as i64;
    let [ahead, other] = [0, 1].map(|_| Instance::start(redis));
    ahead.put(key("a"));
    ahead.put(key("b"));
    eventually("they are known", || other.finds("a").is_ok() && other.finds("b").is_ok());
    ahead.keys.note_use("a", now + 600_000_000);
    eventually("its use is known", || other.keys.last_use("a").is_some());
    other.keys.note_use("b", now);
    eventually("the other's is known, too", || ahead.keys.last_use("b").is_some());
    let late = Instance::start(redis);
    eventually("both are known", || ["a", "b"].iter().all(|id| late.keys.last_use(id).is_some()));
}

fn invalid_data_beside_the_keys_in_redis_does_no_harm(redis: &Deployment) {
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

fn a_change_of_a_key_that_redis_has_lost_is_made_to_the_restored_one(redis: &mut Deployment) {
    let [one, other] = [0, 1].map(|_| Instance::start(redis));
    one.put(key("a"));
    eventually("it is known", || other.finds("a").is_ok());
    redis.each(&["flushall"]);
    let renamed = ApiKey { name: "renamed".into(), ..key("a") };
    let change = one.keys.propose(renamed, Some(Stamp::of(&key("a")))).unwrap();
    assert_eq!(one.decided(&change), ChangeState::Made);
    eventually("the other hears of it", || other.known("a").name == "renamed");
    let late = Instance::start(redis);
    assert_eq!(late.known("a").name, "renamed");
}

fn is_back_on(server: &crate::harness::Redis) -> impl Fn() -> bool {
    move || server.answers() && server.cli(&["zcard", "ratelimit:{keys}:order"]).trim() == "2"
}

fn an_instance_that_was_away_brings_no_revoked_key_back(redis: &mut Deployment) {
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
