//! Shares what incidents are found in, and the incidents: each instance writes its minutes and reads those of the others, so that all
//! find the same. An incident has the ID that the first instance has given it.
//!
//! All of it is bounded, and expires: minutes after a quarter of an hour, incidents as records do.

use std::{
    cell::{Cell, RefCell},
    cmp::Reverse,
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use bb8_redis::redis::{self, RedisResult, ToRedisArgs};
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::watch;

use super::{monitor_config::MonitorConfig, probe::Probes, rounds::Rounds};
use crate::{
    abuse::{Incidents, Minute, Mute, SlotCounts},
    limit::Clock,
    store::redis::RoutedConnection,
};

/// How often minutes are exchanged.
const ROUND: Duration = Duration::from_secs(5);
/// How long minutes are kept, and the ID of an incident that goes on; milliseconds.
const MINUTES_KEPT: u64 = 900_000;
/// How long slots of ten minutes are kept: a day, and an hour more.
const SLOTS_KEPT: u64 = 26 * 3_600_000;
/// Minutes that are read at first.
const WINDOW: i64 = 10;
/// Most bytes of a value that is read.
const MAX_VALUE: usize = 8 << 20;
/// Most incidents that Redis has.
const MAX_INCIDENTS: usize = 128;
/// Most incidents that are read, the latest: as many as fit with all of their members.
const MAX_READ: usize = 64;
/// Most incidents in a row at the same place.
const MAX_KEYS: usize = 8;

/// Shares incidents, on the monitor's thread.
pub(super) struct SharedIncidents<'a> {
    config: &'a MonitorConfig,
    prefix: String,
    /// The last minute that was read.
    read_until: Cell<i64>,
    /// Slots that were read, and those of this instance that were written.
    slots_read: RefCell<HashSet<i64>>,
    slots_written: RefCell<HashSet<i64>>,
    /// What operators have said, as it was last written or read.
    words: RefCell<HashMap<String, Vec<u8>>>,
    /// The keys with the IDs of incidents, by ID.
    id_keys: RefCell<HashMap<String, Vec<String>>>,
    /// Incidents that there is no room for, or that can't be read, with when they were last seen.
    left_out: RefCell<HashMap<String, i64>>,
}

impl<'a> SharedIncidents<'a> {
    pub(super) fn new(config: &'a MonitorConfig, prefix: &str) -> Self {
        Self {
            config,
            prefix: format!("{prefix}:{{incidents}}"),
            read_until: Cell::new(0),
            slots_read: RefCell::default(),
            slots_written: RefCell::default(),
            words: RefCell::default(),
            id_keys: RefCell::default(),
            left_out: RefCell::default(),
        }
    }

    fn key(&self, name: &str) -> String {
        format!("{}:{name}", self.prefix)
    }

    fn incidents(&self) -> &Incidents {
        self.config.registry.incidents()
    }

    /// Runs until the process `ends`.
    pub(super) async fn run(&self, probes: &Probes<'_>, ends: &watch::Receiver<bool>) {
        let mut rounds = Rounds::new(ROUND, ends);
        self.incidents().set_shared(true);
        while rounds.next().await {
            let Some(mut connection) = probes.connection(&self.key("all")) else {
                self.lose();
                continue;
            };
            let round = self.round(&mut connection).await;
            if let Err(error) = &round {
                tracing::debug!(%error, "can't share incidents with other instances");
                self.lose();
                continue;
            }
            self.incidents().set_shared(true);
        }
    }

    /// Other instances can't be heard: all that is looked at is sent and read again.
    fn lose(&self) {
        self.incidents().set_shared(false);
        self.incidents().resend(self.config.clock.now());
        self.read_until.set(0);
    }

    async fn round(&self, connection: &mut RoutedConnection) -> RedisResult<()> {
        let now = self.config.clock.now();
        self.write_minutes(connection).await?;
        self.read_minutes(connection, now.div_euclid(60_000_000)).await?;
        self.read_incidents(connection, now).await?;
        self.agree(connection, now).await?;
        self.write_incidents(connection, now).await?;
        self.exchange_words(connection, now).await?;
        self.exchange_slots(connection).await
    }

    async fn write_minutes(&self, connection: &mut RoutedConnection) -> RedisResult<()> {
        for minute in self.incidents().changed_minutes() {
            let key = self.key(&format!("minute:{}", minute.number));
            self.write(connection, &key, &self.config.instance, encode(&minute), MINUTES_KEPT).await?;
        }
        Ok(())
    }

    /// Reads the minute in progress and the one before; and all that are looked at, once in a minute: an instance may have been away.
    async fn read_minutes(&self, connection: &mut RoutedConnection, current: i64) -> RedisResult<()> {
        let is_first = self.read_until.replace(current) != current;
        let from = if is_first { current - WINDOW + 1 } else { current - 1 };
        for number in from..=current {
            let minutes = read_all::<Minute>(connection, &self.key(&format!("minute:{number}"))).await?;
            let others = minutes.into_iter().filter(|(instance, _)| *instance != self.config.instance);
            self.incidents()
                .replace_peer_minutes(others.filter(|(_, minute)| minute.number == number).collect());
        }
        Ok(())
    }

    /// Gives each new incident the ID that the first instance proposes. If that is of one that is over, the next one has a key of its own.
    async fn agree(&self, connection: &mut RoutedConnection, now: i64) -> RedisResult<()> {
        for (place, proposed) in self.incidents().unshared() {
            let (mut key, mut keys) = (self.key(&format!("id:{place}")), Vec::new());
            let mut agreed = proposed.clone();
            for _ in 0..MAX_KEYS {
                let mut set = redis::cmd("SET");
                set.arg(&key).arg(&proposed).arg("NX").arg("PX").arg(MINUTES_KEPT);
                let _is_first: Option<String> = set.query_async(connection).await?;
                let (id,): (Option<String>,) = redis::cmd("MGET").arg(&key).query_async(connection).await?;
                agreed = id.filter(|id| is_id(id)).unwrap_or_else(|| proposed.clone());
                keys.push(key.clone());
                if agreed == proposed || !self.incidents().is_over(&agreed, now) {
                    break;
                }
                key = format!("{key}:{agreed}");
            }
            if self.incidents().is_over(&agreed, now) {
                agreed.clone_from(&proposed);
            }
            self.incidents().agree(&proposed, &agreed, now);
            self.id_keys.borrow_mut().insert(agreed, keys);
        }
        let open = self.incidents().open_ids(now);
        self.id_keys.borrow_mut().retain(|id, _| open.contains(id));
        let keys: Vec<_> = self.id_keys.borrow().values().flatten().cloned().collect();
        for key in keys {
            self.expire(connection, &key, MINUTES_KEPT).await?;
        }
        Ok(())
    }

    async fn write_incidents(&self, connection: &mut RoutedConnection, now: i64) -> RedisResult<()> {
        let kept = self.config.scope.retain_millis();
        for (id, incident) in self.incidents().changed_incidents(now) {
            self.write(connection, &self.key("all"), &id, encode(&incident), kept).await?;
            self.write(connection, &self.key("ends"), &id, incident.last, kept).await?;
        }
        Ok(())
    }

    /// Reads incidents that others have found, or that were found before this process began. The oldest beyond a number are removed.
    async fn read_incidents(&self, connection: &mut RoutedConnection, now: i64) -> RedisResult<()> {
        let key = self.key("ends");
        let ends_of: HashMap<String, String> =
            redis::cmd("HGETALL").arg(&key).query_async(connection).await?;
        let last = |last: &String| last.parse::<i64>().unwrap_or(0);
        let mut ends: Vec<_> = ends_of.iter().map(|(id, of)| (id.clone(), last(of))).collect();
        ends.sort_by_key(|(_, last)| Reverse(*last));
        let known = self.incidents().known();
        let oldest = (now / 1_000).saturating_sub_unsigned(self.config.scope.retain_millis()) / 1_000;
        for (nth, (id, last)) in ends.into_iter().enumerate() {
            if last <= oldest || nth >= MAX_INCIDENTS {
                for key in [self.key("all"), self.key("ends")] {
                    let _removed: u64 = redis::cmd("HDEL").arg(key).arg(&id).query_async(connection).await?;
                }
                continue;
            }
            // Of one that is found here as well, a minute more is no news. A few large ones fill the room for all.
            let is_known = known.get(&id).is_some_and(|known| last.saturating_sub(*known) < 60);
            let is_left_out = self.left_out.borrow().get(&id) == Some(&last);
            if !is_id(&id) || is_known || is_left_out || nth >= MAX_READ {
                continue;
            }
            let stored: Option<Vec<u8>> =
                redis::cmd("HGET").arg(self.key("all")).arg(&id).query_async(connection).await?;
            let written = stored.as_deref().and_then(decode);
            if !written.is_some_and(|written| self.incidents().restore(&id, written, now)) {
                self.left_out.borrow_mut().insert(id, last);
            }
        }
        self.left_out.borrow_mut().retain(|id, _| ends_of.contains_key(id));
        Ok(())
    }

    /// Exchanges what operators have said of incidents.
    async fn exchange_words(&self, connection: &mut RoutedConnection, now: i64) -> RedisResult<()> {
        let key = self.key("words");
        let [mutes, acknowledged] = self.incidents().words();
        let named = mutes.into_iter().map(|(place, mute)| (format!("mute {place}"), mute));
        let all = named.chain(acknowledged.into_iter().map(|(id, by)| (format!("ack {id}"), by)));
        for (field, mute) in all {
            let value = encode(&(mute.said, mute.until, mute.by));
            if self.words.borrow().get(&field) != Some(&value) {
                self.write(connection, &key, &field, value.clone(), self.config.scope.retain_millis())
                    .await?;
                self.words.borrow_mut().insert(field, value);
            }
        }
        let read: HashMap<String, Vec<u8>> = redis::cmd("HGETALL").arg(&key).query_async(connection).await?;
        let known = self.incidents().known();
        let retain = i64::try_from(self.config.scope.retain_millis()).unwrap_or(i64::MAX);
        let oldest = now.saturating_sub(retain.saturating_mul(1_000));
        let (mut mutes, mut acknowledged, mut old) = (Vec::new(), Vec::new(), Vec::new());
        for (field, value) in &read {
            let word = decode::<(i64, i64, String)>(value).map(|(said, until, by)| Mute { said, until, by });
            let is_unknown = field.strip_prefix("ack ").is_some_and(|id| !known.contains_key(id));
            let is_old =
                word.as_ref().is_none_or(|word| word.until <= now || is_unknown && word.said <= oldest);
            match (field.split_once(' '), word) {
                _ if is_old => old.push(field.clone()),
                (Some(("mute", place)), Some(mute)) => mutes.push((place.to_owned(), mute)),
                (Some(("ack", id)), Some(mute)) => acknowledged.push((id.to_owned(), mute)),
                _ => {}
            }
        }
        for field in old {
            let _removed: u64 = redis::cmd("HDEL").arg(&key).arg(&field).query_async(connection).await?;
        }
        self.incidents().hear(mutes, acknowledged);
        *self.words.borrow_mut() = read;
        Ok(())
    }

    /// Exchanges the counts of each ten minutes, once they have ended.
    async fn exchange_slots(&self, connection: &mut RoutedConnection) -> RedisResult<()> {
        let (needed, current) = self.incidents().needed_slots();
        let ended = current - 1;
        if !self.slots_written.borrow().contains(&ended) {
            let counts = self.incidents().slot_counts(ended);
            let list: Vec<_> =
                counts.iter().map(|(route, of)| (&**route, of.refused, of.succeeded)).collect();
            if !list.is_empty() {
                let key = self.key(&format!("slot:{ended}"));
                self.write(connection, &key, &self.config.instance, encode(&list), SLOTS_KEPT).await?;
            }
            self.slots_written.borrow_mut().retain(|slot| *slot >= ended);
            self.slots_written.borrow_mut().insert(ended);
        }
        // Another instance may write one a little later.
        for slot in needed.iter().copied().filter(|slot| *slot < ended) {
            if self.slots_read.borrow().contains(&slot) {
                continue;
            }
            let of_all =
                read_all::<Vec<(String, u64, u64)>>(connection, &self.key(&format!("slot:{slot}"))).await?;
            let mut sums = BTreeMap::<String, SlotCounts>::new();
            for (route, refused, succeeded) in of_all.iter().flat_map(|(_, list)| list.iter().cloned()) {
                let sum = sums.entry(route).or_default();
                sum.refused = sum.refused.saturating_add(refused);
                sum.succeeded = sum.succeeded.saturating_add(succeeded);
            }
            if !of_all.is_empty() {
                let counts = sums.into_iter().map(|(route, counts)| (Arc::from(route), counts)).collect();
                self.incidents().replace_slot(slot, counts);
            }
            self.slots_read.borrow_mut().insert(slot);
        }
        self.slots_read.borrow_mut().retain(|slot| needed.contains(slot));
        Ok(())
    }

    async fn write(
        &self,
        connection: &mut RoutedConnection,
        key: &str,
        field: &str,
        value: impl ToRedisArgs,
        kept: u64,
    ) -> RedisResult<()> {
        let _is_new: u64 = redis::cmd("HSET").arg(key).arg(field).arg(value).query_async(connection).await?;
        self.expire(connection, key, kept).await
    }

    async fn expire(&self, connection: &mut RoutedConnection, key: &str, kept: u64) -> RedisResult<()> {
        let _is_there: u64 = redis::cmd("PEXPIRE").arg(key).arg(kept).query_async(connection).await?;
        Ok(())
    }
}

/// All fields of a hash that can be read.
async fn read_all<T: DeserializeOwned>(
    connection: &mut RoutedConnection,
    key: &str,
) -> RedisResult<Vec<(String, T)>> {
    let all: HashMap<String, Vec<u8>> = redis::cmd("HGETALL").arg(key).query_async(connection).await?;
    Ok(all.into_iter().filter_map(|(field, value)| Some((field, decode(&value)?))).collect())
}

fn encode(content: &impl Serialize) -> Vec<u8> {
    // Numbers, strings and lists always serialize into a vector.
    postcard::to_allocvec(content).unwrap_or_default()
}

/// `None`: another version or another program has written it.
fn decode<T: DeserializeOwned>(value: &[u8]) -> Option<T> {
    if value.len() > MAX_VALUE {
        return None;
    }
    postcard::from_bytes(value).ok()
}

fn is_id(text: &str) -> bool {
    text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abuse::{Cause, WrittenIncident};

    #[test]
    fn what_no_instance_writes_is_passed_over() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut minute = Minute::default();
        minute.number = 7;
        minute.causes.insert(Cause::Route("/login".into()), Default::default());
        let good = encode(&minute);
        assert_eq!(decode::<Minute>(&good), Some(minute));
        for _ in 0..5_000 {
            let mut value = good.clone();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..value.len());
                value[at] = random.u8(..);
            }
            value.truncate(random.usize(..=value.len()));
            let _any = decode::<Minute>(&value);
            let _any = decode::<WrittenIncident>(&value);
        }
        assert!(is_id("0a1b2c3d") && !is_id("0a1b2c3") && !is_id("../../..") && !is_id(""));
    }
}
