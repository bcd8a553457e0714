//! [`Store`] and [`StoreAdmin`] over Redis.

use std::sync::Arc;

use bb8_redis::redis::{self, Cmd};
use smallvec::SmallVec;
use tokio::time::timeout;

use super::{
    batch::RequestReply,
    channel,
    connection::Server,
    entry,
    failure::Failure,
    key,
    link::{Link, LinkConfig},
    reply,
};
use crate::{
    config::model,
    limit::{
        Breaker, Check, ClearedLimit, Clock, Decision, DecisionSource, LimitUsage, Policy, Receipt, Store,
        StoreAdmin, Unavailable,
        algorithm::{Detail, Verdict, metadata_list::Entry},
    },
    telemetry::metrics::StoreMetrics,
};

/// Keys that one step of a SCAN visits.
const SCAN_COUNT: usize = 1_000;

/// A thread's handle to limits in Redis. Time is Redis' own.
pub struct RedisStore {
    link: Link,
}

impl RedisStore {
    /// A handle for this thread, which must run a local runtime or `LocalSet`. Connects with the first request. `clock`
    /// replaces Redis' own time, for tests.
    pub fn new(
        server: Server,
        config: &model::Redis,
        breaker: Arc<Breaker>,
        metrics: Arc<StoreMetrics>,
        clock: Option<Arc<dyn Clock>>,
    ) -> Self {
        let config = LinkConfig {
            prefix: config.prefix.clone(),
            timeout: config.timeout,
            connections: config.connections,
            breaker,
            metrics,
            clock,
        };
        Self { link: Link::new(server, config) }
    }

    /// Runs one command.
    async fn run<T: redis::FromRedisValue>(&self, command: &Cmd) -> Result<T, Failure> {
        let run = async {
            let mut connection = self.link.connection().await?;
            let reply = connection.ask(command).await?;
            redis::from_redis_value(reply).map_err(|error| Failure::protocol(error.to_string()))
        };
        timeout(self.link.timeout(), run).await.unwrap_or_else(|_| Err(Failure::timeout()))
    }

    /// The script's numbers of a limit. Changes nothing.
    async fn read_limit(&self, policy: &Policy, identifier: &str) -> Result<SmallVec<[i64; 8]>, Failure> {
        let check = Check { policy, identifier: identifier.into(), cost: 0, detail: Detail::None };
        let mut numbers = self.link.decide(&[check]).await?.numbers;
        // The first says that it is admitted.
        if !numbers.is_empty() {
            numbers.remove(0);
        }
        Ok(numbers)
    }

    /// Removes one limit. Returns it if it was in use.
    async fn forget(&self, policy: &Policy, identifier: String) -> Result<Option<ClearedLimit>, Failure> {
        // A key may outlive its window.
        let is_used = reply::is_used(policy, &self.read_limit(policy, &identifier).await?);
        let mut command = redis::cmd("DEL");
        command.arg(key::limit_key(self.link.prefix(), policy, &identifier));
        let removed: u64 = self.run(&command).await?;
        Ok((is_used && removed > 0).then(|| ClearedLimit { policy: policy.name.clone(), identifier }))
    }

    /// Tells all instances which limits were reset.
    async fn announce(&self, message: channel::Message<'_>) -> Result<(), Failure> {
        let mut command = redis::cmd("PUBLISH");
        command.arg(channel::name(self.link.prefix())).arg(message.to_string());
        self.run::<u64>(&command).await?;
        Ok(())
    }

    /// The composites of these policies that begin with `identifier`, each as the index of its policy and its identifier.
    /// Scans all keys, some at a time, if a policy has composites.
    async fn composites(
        &self,
        policies: &[&Policy],
        identifier: &str,
    ) -> Result<Vec<(usize, String)>, Failure> {
        let prefix = self.link.prefix();
        let has_composites = |policy: &&Policy| policy.keys.iter().any(|key| key.0.len() > 1);
        if !policies.iter().any(has_composites) {
            return Ok(Vec::new());
        }
        let policy_and_identifier = |key: &Vec<u8>| {
            let mut each = policies.iter().enumerate();
            each.find_map(|(index, policy)| Some((index, key::identifier(key, prefix, policy)?)))
        };
        let pattern = key::composites_pattern(prefix, identifier);
        let (mut cursor, mut found) = (0_u64, Vec::new());
        loop {
            let mut command = redis::cmd("SCAN");
            command.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(SCAN_COUNT);
            let (next, keys): (u64, Vec<Vec<u8>>) = self.run(&command).await?;
            found.extend(keys.iter().filter_map(policy_and_identifier));
            cursor = next;
            if cursor == 0 {
                // SCAN may return a key twice.
                found.sort_unstable();
                found.dedup();
                return Ok(found);
            }
        }
    }
}

/// Merges the checks of one request on the same limit into one, with the sum of their costs. Returns the merged checks, and the
/// index of the merged one for each check.
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

/// The policies and overrides that have keys of their own: an override of the same shape shares its policy's.
fn variants(policies: &[Policy]) -> Vec<&Policy> {
    let mut variants: Vec<&Policy> = policies.iter().flat_map(Policy::variants).collect();
    variants.sort_by_key(|policy| policy.id.0);
    variants.dedup_by_key(|policy| policy.id);
    variants
}

/// Decodes the reply to one request. `limit_of_check`: for each check, the index of its limit. `costs`: the units of each
/// limit.
fn to_decision(
    checks: &[Check<'_>],
    limit_of_check: &[usize],
    costs: &[u64],
    reply: &RequestReply,
) -> Decision {
    let numbers = reply.numbers.as_slice();
    let (admitted, mut rest) =
        numbers.split_first().map_or((false, numbers), |(first, rest)| (*first == 1, rest));
    let mut verdicts: SmallVec<[Verdict; 4]> = SmallVec::new();
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
        // The request was denied by another check: report this limit's current status.
        let took_nothing = !admitted && verdict.admitted;
        verdicts.push(if took_nothing { reply::verdict(check.policy, own, 0) } else { verdict });
    }
    let verdicts = limit_of_check.iter().filter_map(|&limit| verdicts.get(limit).copied()).collect();
    Decision { admitted, source: DecisionSource::Store, time: reply.time, verdicts }
}

impl Store for RedisStore {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Decision, Unavailable> {
        match checks {
            [] => Ok(Decision {
                admitted: true,
                source: DecisionSource::Store,
                time: 0,
                verdicts: SmallVec::new(),
            }),
            [check] => Ok(to_decision(checks, &[0], &[check.cost], &self.link.decide(checks).await?)),
            _ => {
                let (limits, limit_of_check) = merge_limits(checks);
                let costs: SmallVec<[u64; 4]> = limits.iter().map(|limit| limit.cost).collect();
                Ok(to_decision(checks, &limit_of_check, &costs, &self.link.decide(&limits).await?))
            }
        }
    }

    async fn look(&self, checks: &[Check<'_>]) -> Result<Decision, Unavailable> {
        if checks.is_empty() {
            return self.decide(checks).await;
        }
        let (limits, limit_of_check) = merge_limits(checks);
        let costs: SmallVec<[u64; 4]> = limits.iter().map(|limit| limit.cost).collect();
        Ok(to_decision(checks, &limit_of_check, &costs, &self.link.look(&limits).await?))
    }

    async fn refund(&self, checks: &[Check<'_>], receipt: Receipt) -> Result<(), Unavailable> {
        self.link.refund(checks, receipt.time).await?;
        Ok(())
    }
}

impl StoreAdmin for RedisStore {
    async fn peek(&self, policy: &Policy, identifier: &str) -> Result<LimitUsage, Unavailable> {
        let numbers = self.read_limit(policy, identifier).await?;
        let verdict = reply::verdict(policy, &numbers, 0);
        Ok(LimitUsage { used: reply::used(policy, &numbers, verdict.tier), verdict })
    }

    async fn entries(&self, policy: &Policy, identifier: &str) -> Result<Vec<Arc<Entry>>, Unavailable> {
        if !policy.keeps_entries() {
            return Ok(Vec::new());
        }
        let read = async {
            if self.peek(policy, identifier).await?.used == 0 {
                return Ok(Vec::new());
            }
            let mut command = redis::cmd("LRANGE");
            command.arg(key::limit_key(self.link.prefix(), policy, identifier));
            // The list may hold more for a while.
            command.arg(-(policy.record.keep.max(1) as i64)).arg(-1);
            let elements: Vec<Vec<u8>> = self.run(&command).await?;
            Ok(elements.iter().filter_map(|element| entry::decode(element)?.1).collect())
        };
        // A client waits for both.
        timeout(self.link.timeout(), read).await.unwrap_or_else(|_| Err(Failure::timeout().into()))
    }

    async fn reset(&self, policies: &[Policy], identifier: &str) -> Result<Vec<ClearedLimit>, Unavailable> {
        let variants: Vec<&Policy> = variants(policies);
        let mut found = self.composites(&variants, identifier).await?;
        found.extend((0..variants.len()).map(|index| (index, identifier.to_owned())));
        let mut cleared = Vec::new();
        for (policy, identifier) in found {
            let Some(&policy) = variants.get(policy) else { continue };
            cleared.extend(self.forget(policy, identifier).await?);
        }
        // After the limits are removed, not before: until then they deny, and that would be cached.
        self.announce(channel::Message::Identifier(identifier)).await?;
        Ok(cleared)
    }

    async fn clear(&self, policies: &[Policy], identifier: &str) -> Result<Vec<ClearedLimit>, Unavailable> {
        let mut cleared = Vec::new();
        for policy in variants(policies) {
            cleared.extend(self.forget(policy, identifier.to_owned()).await?);
        }
        for policy in policies {
            self.announce(channel::Message::Limit { policy: &policy.name, identifier }).await?;
        }
        Ok(cleared)
    }
}
