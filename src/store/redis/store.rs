//! [`Store`] and [`StoreAdmin`] over Redis.

use std::sync::Arc;

use bb8_redis::redis;
use futures_util::future::try_join_all;
use smallvec::SmallVec;
use tokio::time::timeout;

use super::{
    batch::{BatchScope, RequestReply},
    channel,
    connection::LateReply,
    entry,
    failure::Failure,
    key,
    link::NodeLink,
    reply,
    routing::Routing,
    topology::{RedisNode, Topology},
};
use crate::{
    config::model,
    limit::{
        Check, ClearedLimit, Clock, Decision, DecisionSource, LimitUsage, Policy, Receipt, Store, StoreAdmin,
        Taken, Unavailable,
        algorithm::{Detail, Verdict, metadata_list::Entry},
    },
    telemetry::metrics::StoreMetrics,
};

/// Keys visited by one step of a SCAN.
const SCAN_COUNT: usize = 1_000;

/// A thread's handle to limits in Redis. Time is Redis' own.
///
/// In a cluster it decides over checks of one node, identified by their [`shard`](Store::shard).
/// [`ShardedStore`](crate::limit::ShardedStore) splits the checks of a request.
pub struct RedisStore {
    routing: Routing,
}

impl RedisStore {
    /// A handle for this thread, which must run a local runtime or `LocalSet`. Connects with the first request. `clock`
    /// replaces Redis' own time, for tests.
    pub fn new(
        topology: Arc<Topology>,
        config: &model::Redis,
        metrics: Arc<StoreMetrics>,
        clock: Option<Arc<dyn Clock>>,
    ) -> Self {
        Self { routing: Routing::new(topology, config, metrics, clock) }
    }

    /// Opens connections to all known servers, so that the first requests need not wait for them. Must be called in a
    /// runtime.
    pub fn warm_up(&self) {
        self.routing.warm_up();
    }

    /// The script's numbers of a limit, and its time. Changes nothing.
    async fn read_limit(
        &self,
        policy: &Policy,
        identifier: &str,
    ) -> Result<(i64, SmallVec<[i64; 8]>), Failure> {
        let check = Check { policy, identifier: identifier.into(), cost: 0, detail: Detail::None };
        let RequestReply { time, numbers, .. } = self.routing.decide_limits(&[check]).await?;
        Ok((time, numbers))
    }

    /// Removes one limit. Returns it if it was in use.
    async fn forget(&self, policy: &Policy, identifier: String) -> Result<Option<ClearedLimit>, Failure> {
        // A key may outlive its window.
        let (time, numbers) = self.read_limit(policy, &identifier).await?;
        let is_used = reply::is_used(policy, &numbers);
        let prefix = self.routing.prefix();
        // One of the lists may be the limit itself. One command each: while their slot is being moved, some are on one
        // node and some on the other.
        let lists = key::entry_lists(prefix, policy, &identifier, time);
        let keys = [vec![key::limit_key(prefix, policy, &identifier)], lists].concat();
        let commands: Vec<_> = keys.iter().map(|key| redis::cmd("DEL").arg(key).take()).collect();
        let removals = keys.iter().zip(&commands).map(|(key, command)| self.routing.run::<u64>(key, command));
        let removed: u64 = try_join_all(removals).await?.into_iter().sum();
        Ok((is_used && removed > 0).then(|| ClearedLimit { policy: policy.name.clone(), identifier }))
    }

    /// Announces to all instances which limits of an identifier were reset.
    async fn announce(&self, identifier: &str, message: channel::ChannelMessage<'_>) -> Result<(), Failure> {
        let mut command = redis::cmd("PUBLISH");
        command.arg(channel::name(self.routing.prefix())).arg(message.to_string());
        // Any node of a cluster forwards the message to all. This one has just removed the limits.
        self.routing.run_in::<u64>(self.routing.slot(identifier), &command).await?;
        Ok(())
    }

    /// The composites of these policies that begin with `identifier`, each as the index of its policy and its
    /// identifier. Scans all keys, some at a time, if a policy has composites.
    async fn composites(
        &self,
        policies: &[&Policy],
        identifier: &str,
    ) -> Result<Vec<(usize, String)>, Failure> {
        let prefix = self.routing.prefix();
        let has_composites = |policy: &&Policy| policy.keys.iter().any(|key| key.0.len() > 1);
        if !policies.iter().any(has_composites) {
            return Ok(Vec::new());
        }
        let policy_and_identifier = |key: &Vec<u8>| {
            let mut each = policies.iter().enumerate();
            each.find_map(|(index, policy)| Some((index, key::identifier(key, prefix, policy)?)))
        };
        let pattern = key::composites_pattern(prefix, identifier);
        let mut found = Vec::new();
        for (nth, link) in self.routing.links_of(self.routing.slot(identifier))?.iter().enumerate() {
            match self.scan(link, &pattern).await {
                Ok(keys) => found.extend(keys.iter().filter_map(policy_and_identifier)),
                // Another node than the owner has some of them only while the slot is being moved.
                Err(failure) if nth > 0 => {
                    let reason = failure.reason();
                    tracing::debug!(node = %link.node().address, "can't look for limits at a Redis node: {reason}");
                }
                Err(failure) => return Err(failure),
            }
        }
        // SCAN may return a key twice.
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// All keys of a node that match `pattern`; some may be repeated.
    async fn scan(&self, link: &NodeLink, pattern: &str) -> Result<Vec<Vec<u8>>, Failure> {
        let (mut found, mut cursor) = (Vec::new(), 0_u64);
        loop {
            let mut command = redis::cmd("SCAN");
            command.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(SCAN_COUNT);
            let scan = async {
                Ok::<_, Failure>(link.connection().await?.ask(command, &LateReply::default()).await?)
            };
            let reply = timeout(self.routing.timeout(), scan).await.map_err(|_| Failure::timeout())??;
            let (next, keys): (u64, Vec<Vec<u8>>) =
                redis::from_redis_value(reply).map_err(|error| Failure::protocol(error.to_string()))?;
            found.extend(keys);
            cursor = next;
            if cursor == 0 {
                return Ok(found);
            }
        }
    }
}

/// Merges the checks of one request on the same limit into one, with the sum of their costs. Returns the merged checks,
/// and for each check the index of its merged one.
fn merge_limits<'a>(checks: &[Check<'a>]) -> (SmallVec<[Check<'a>; 4]>, SmallVec<[usize; 4]>) {
    let mut limits: SmallVec<[Check<'a>; 4]> = SmallVec::new();
    let mut limit_of_check = SmallVec::new();
    for check in checks {
        let same =
            |known: &Check<'_>| known.policy.id == check.policy.id && known.identifier == check.identifier;
        match limits.iter().position(same) {
            Some(index) => {
                limits[index].cost = limits[index].cost.saturating_add(check.cost);
                limit_of_check.push(index);
            }
            None => {
                limit_of_check.push(limits.len());
                limits.push(check.clone());
            }
        }
    }
    (limits, limit_of_check)
}

/// The policies and overrides with keys of their own: an override of the same shape shares its policy's.
fn variants(policies: &[Policy]) -> Vec<&Policy> {
    let mut variants: Vec<&Policy> = policies.iter().flat_map(Policy::variants).collect();
    variants.sort_by_key(|policy| policy.id.0);
    variants.dedup_by_key(|policy| policy.id);
    variants
}

/// Decodes the reply to one request. `limit_of_check`: for each check, the index of its limit. `costs`: the units of
/// each limit.
fn to_decision(
    checks: &[Check<'_>],
    limit_of_check: &[usize],
    costs: &[u64],
    reply: &RequestReply,
) -> Decision {
    let (admitted, mut rest) = (reply.admitted, reply.numbers.as_slice());
    let mut verdicts: SmallVec<[Verdict; 4]> = SmallVec::new();
    let mut times: SmallVec<[i64; 4]> = SmallVec::new();
    for (index, &cost) in costs.iter().enumerate() {
        // The first check on a limit has its policy.
        let Some(check) =
            limit_of_check.iter().position(|&limit| limit == index).and_then(|at| checks.get(at))
        else {
            break;
        };
        let (own, others) = rest.split_at(reply::width(check.policy).min(rest.len()));
        rest = others;
        let verdict = reply::verdict(check.policy, own, cost);
        let is_taken = admitted && verdict.admitted && cost > 0;
        let ahead = if is_taken { reply::ahead(check.policy, own, reply.time) } else { 0 };
        times.push(reply.time.saturating_add(ahead));
        // The request was denied by another check: report this limit's current status.
        let took_nothing = !admitted && verdict.admitted;
        verdicts.push(if took_nothing { reply::verdict(check.policy, own, 0) } else { verdict });
    }
    let verdicts = limit_of_check.iter().filter_map(|&limit| verdicts.get(limit).copied()).collect();
    let source = DecisionSource::Store;
    let receipt = |&limit: &usize| Receipt { source, time: times.get(limit).copied().unwrap_or(reply.time) };
    let is_ahead = times.iter().any(|&time| time > reply.time);
    let parts = is_ahead.then(|| limit_of_check.iter().map(receipt).collect());
    Decision { admitted, source, time: reply.time, verdicts, parts }
}

impl Store for RedisStore {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Decision, Unavailable> {
        match checks {
            [] => Ok(Decision {
                admitted: true,
                source: DecisionSource::Store,
                time: 0,
                verdicts: SmallVec::new(),
                parts: None,
            }),
            [check] => {
                Ok(to_decision(checks, &[0], &[check.cost], &self.routing.decide_limits(checks).await?))
            }
            _ => {
                let (limits, limit_of_check) = merge_limits(checks);
                let costs: SmallVec<[u64; 4]> = limits.iter().map(|limit| limit.cost).collect();
                Ok(to_decision(checks, &limit_of_check, &costs, &self.routing.decide_limits(&limits).await?))
            }
        }
    }

    async fn look(&self, checks: &[Check<'_>]) -> Result<Decision, Unavailable> {
        if checks.is_empty() {
            return self.decide(checks).await;
        }
        let (limits, limit_of_check) = merge_limits(checks);
        let costs: SmallVec<[u64; 4]> = limits.iter().map(|limit| limit.cost).collect();
        let scope = |_, node: &RedisNode| match self.routing.slot_of_all(&limits) {
            None if node.takes_any_slots() => BatchScope::AnySlots,
            _ => BatchScope::Alone,
        };
        let reply =
            self.routing.ask(&limits, scope, async |link, scope| link.look(scope, &limits).await).await?;
        Ok(to_decision(checks, &limit_of_check, &costs, &reply))
    }

    async fn settle(&self, taken: &[Taken<'_>]) -> Result<(), Unavailable> {
        if taken.is_empty() {
            return Ok(());
        }
        let checks: SmallVec<[Check<'_>; 2]> = taken.iter().map(|taken| taken.check.clone()).collect();
        if self.routing.is_cluster() && self.routing.slot_of_all(&checks).is_none() {
            return Err(Unavailable::Moving);
        }
        let scope = |slot, _: &RedisNode| BatchScope::Slot(slot);
        self.routing.ask(&checks, scope, async |link, scope| link.settle(scope, taken).await).await?;
        Ok(())
    }

    fn shard(&self, check: &Check<'_>) -> u32 {
        self.routing.shard(check)
    }

    fn is_sharded(&self) -> bool {
        self.routing.is_cluster()
    }
}

impl StoreAdmin for RedisStore {
    async fn peek(&self, policy: &Policy, identifier: &str) -> Result<LimitUsage, Unavailable> {
        let (_, numbers) = self.read_limit(policy, identifier).await?;
        let verdict = reply::verdict(policy, &numbers, 0);
        Ok(LimitUsage { used: reply::used(policy, &numbers, verdict.tier), verdict })
    }

    async fn entries(&self, policy: &Policy, identifier: &str) -> Result<Vec<Arc<Entry>>, Unavailable> {
        if !policy.keeps_entries() {
            return Ok(Vec::new());
        }
        let read = async {
            let (time, numbers) = self.read_limit(policy, identifier).await?;
            let verdict = reply::verdict(policy, &numbers, 0);
            let Some(ends) = time.checked_add(verdict.reset).filter(|_| reply::is_used(policy, &numbers))
            else {
                return Ok(Vec::new());
            };
            let keep = policy.record.keep.max(1);
            let lists = key::entry_lists(self.routing.prefix(), policy, identifier, time);
            let read = async |key: Vec<u8>| {
                let mut command = redis::cmd("LRANGE");
                // The list may be longer for a while.
                command.arg(&key).arg(-(keep as i64)).arg(-1);
                self.routing.run::<Vec<Vec<u8>>>(&key, &command).await
            };
            let elements = try_join_all(lists.into_iter().map(read)).await?.concat();
            let of_window = |element: &Vec<u8>| entry::decode(element).filter(|(end, _)| *end == ends)?.1;
            let mut entries: Vec<_> = elements.iter().filter_map(of_window).collect();
            entries.drain(..entries.len().saturating_sub(keep));
            Ok(entries)
        };
        // A client waits for both.
        timeout(self.routing.timeout(), read).await.unwrap_or_else(|_| Err(Failure::timeout().into()))
    }

    async fn reset(&self, policies: &[Policy], identifier: &str) -> Result<Vec<ClearedLimit>, Unavailable> {
        let variants: Vec<&Policy> = variants(policies);
        let mut cleared = Vec::new();
        // These first: their redirections correct the map that composites are searched by.
        for policy in &variants {
            cleared.extend(self.forget(policy, identifier.to_owned()).await?);
        }
        for (policy, identifier) in self.composites(&variants, identifier).await? {
            let Some(&policy) = variants.get(policy) else { continue };
            cleared.extend(self.forget(policy, identifier).await?);
        }
        // After the limits are removed, not before: until then they deny, and the denial would be cached.
        self.announce(identifier, channel::ChannelMessage::Identifier(identifier)).await?;
        Ok(cleared)
    }

    async fn clear(&self, policies: &[Policy], identifier: &str) -> Result<Vec<ClearedLimit>, Unavailable> {
        let mut cleared = Vec::new();
        for policy in variants(policies) {
            cleared.extend(self.forget(policy, identifier.to_owned()).await?);
        }
        for policy in policies {
            self.announce(identifier, channel::ChannelMessage::Limit { policy: &policy.name, identifier })
                .await?;
        }
        Ok(cleared)
    }
}
