//! Chooses the server for each request, and follows redirections of cluster nodes.

use std::{
    cell::{RefCell, RefMut},
    collections::HashMap,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use bb8_redis::redis::{self, Cmd};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::{
    batch::{BatchScope, DecisionReply},
    connection::LateReply,
    failure::{Failure, Reroute},
    key,
    link::{LinkConfig, NodeLink, SendRounds},
    server_address::ServerAddress,
    topology::{NodeMap, RedisNode, Topology, of_tag, slot_of},
};
use crate::{
    config::model,
    limit::{Check, Clock},
    telemetry::{Throttle, metrics::StoreMetrics},
};

/// How long requests on a moving slot are sent one by one.
const MOVING_FOR: Duration = Duration::from_secs(1);
/// Time between attempts while a slot is being moved.
const RETRY_AFTER: Duration = Duration::from_millis(5);
/// Shard numbers from here on are slots; lower ones are nodes, of which there are fewer.
const SLOT_SHARDS: u32 = 1 << 16;

/// A thread's links to all primaries.
pub(super) struct Routing {
    config: Rc<LinkConfig>,
    topology: Arc<Topology>,
    links: RefCell<Links>,
    /// The only slot, if all keys have one hash tag.
    strict_slot: Option<u16>,
}

/// The nodes as this thread knows them, and its links to them.
struct Links {
    map: Arc<NodeMap>,
    /// Links used so far, in no order.
    links: Vec<NodeLink>,
    /// Moving slots, and until when each is presumed to move.
    moving: HashMap<u16, Instant>,
}

impl Routing {
    /// As [`RedisStore::new`](super::RedisStore::new).
    pub(super) fn new(
        topology: Arc<Topology>,
        config: &model::Redis,
        metrics: Arc<StoreMetrics>,
        clock: Option<Arc<dyn Clock>>,
    ) -> Self {
        let prefix = config.key_prefix();
        let strict_slot = prefix.starts_with('{').then(|| slot_of(prefix.as_bytes()));
        let config = LinkConfig {
            prefix,
            timeout: config.timeout,
            connections: config.connections,
            metrics,
            clock,
            topology: Arc::clone(&topology),
            rounds: SendRounds::default(),
            spoilt_messages: Throttle::default(),
        };
        let links = Links { map: topology.map(), links: Vec::new(), moving: HashMap::new() };
        Self { config: Rc::new(config), topology, links: RefCell::new(links), strict_slot }
    }

    /// Opens connections to all known servers, so that the first requests need not wait for them. Must be called in a
    /// runtime.
    pub(super) fn warm_up(&self) {
        let mut links = self.links();
        for node in links.map.nodes.clone() {
            if let Ok(link) = self.link_to(&mut links, node) {
                link.warm_up();
            }
        }
    }

    pub(super) fn prefix(&self) -> &str {
        &self.config.prefix
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.topology.is_cluster()
    }

    /// Timeout of a decision.
    pub(super) fn timeout(&self) -> Duration {
        self.config.timeout
    }

    /// The shard of a check: a node, or a slot while slots are decided alone. Checks of one shard are decided together.
    pub(super) fn shard(&self, check: &Check<'_>) -> u32 {
        if self.strict_slot.is_some() || !self.topology.is_cluster() {
            return 0;
        }
        let slot = self.slot(&check.identifier);
        let links = self.links();
        let owner = links.map.owner_index(slot);
        let node = owner.and_then(|index| links.map.nodes.get(index));
        let is_together = node.is_some_and(|node| node.takes_any_slots());
        drop(links);
        match owner.and_then(|index| u32::try_from(index).ok()) {
            Some(index) if is_together && !self.is_moving(slot) => index,
            _ => SLOT_SHARDS + u32::from(slot),
        }
    }

    /// The links, updated to the current map.
    fn links(&self) -> RefMut<'_, Links> {
        let mut links = self.links.borrow_mut();
        if links.map.epoch != self.topology.epoch() {
            let map = self.topology.map();
            // A link to a server that is no longer used replies to its pending calls, then closes.
            links.links.retain(|link| map.nodes.iter().any(|node| Arc::ptr_eq(node, link.node())));
            links.map = map;
        }
        links
    }

    /// The link to the node that decides over the keys of a slot.
    ///
    /// # Errors
    /// No known node serves it, or its breaker is open.
    fn link_of(&self, slot: u16) -> Result<NodeLink, Failure> {
        let mut links = self.links();
        let node = links.map.owner_index(slot).and_then(|index| links.map.nodes.get(index)).cloned();
        let Some(node) = node else {
            self.topology.doubt();
            return Err(Failure::no_node());
        };
        self.link_to(&mut links, node)
    }

    fn link_to(&self, links: &mut Links, node: Arc<RedisNode>) -> Result<NodeLink, Failure> {
        if node.breaker.is_open() {
            return Err(Failure::breaker_open());
        }
        if let Some(link) = links.links.iter().find(|link| Arc::ptr_eq(link.node(), &node)) {
            return Ok(link.clone());
        }
        let link = NodeLink::new(node, Rc::clone(&self.config));
        links.links.push(link.clone());
        Ok(link)
    }

    /// The link to a node that another node has named.
    fn link_at(&self, address: &ServerAddress) -> Result<NodeLink, Failure> {
        let node = self.topology.node_at(address).ok_or_else(Failure::no_node)?;
        self.link_to(&mut self.links(), node)
    }

    /// The slot of an identifier's limits; 0 if there are no slots.
    pub(super) fn slot(&self, identifier: &str) -> u16 {
        match self.strict_slot {
            Some(slot) => slot,
            None if self.topology.is_cluster() => of_tag(key::hash_tag(identifier).as_bytes()),
            None => 0,
        }
    }

    /// The slot of these checks; `None` if they have several.
    pub(super) fn slot_of_all(&self, checks: &[Check<'_>]) -> Option<u16> {
        let mut slots = checks.iter().map(|check| self.slot(&check.identifier));
        let first = slots.next()?;
        slots.all(|slot| slot == first).then_some(first)
    }

    fn mark_moving(&self, slot: u16) {
        let (mut links, now) = (self.links.borrow_mut(), Instant::now());
        links.moving.retain(|_, until| *until > now);
        links.moving.insert(slot, now + MOVING_FOR);
    }

    fn is_moving(&self, slot: u16) -> bool {
        let links = self.links.borrow();
        !links.moving.is_empty() && links.moving.get(&slot).is_some_and(|until| *until > Instant::now())
    }

    /// Sends a request to the node that has the keys of `checks`. `ask`: makes the request.
    pub(super) async fn ask(
        &self,
        checks: &[Check<'_>],
        scope: impl Fn(u16, &RedisNode) -> BatchScope,
        ask: impl AsyncFn(NodeLink, BatchScope) -> DecisionReply,
    ) -> DecisionReply {
        let Some(check) = checks.first() else { return Err(Failure::protocol("a request without checks")) };
        let (begun, slot) = (Instant::now(), self.slot(&check.identifier));
        let link = self.link_of(slot)?;
        let scope = if self.topology.is_cluster() { scope(slot, link.node()) } else { BatchScope::AllKeys };
        match ask(link, scope).await {
            Err(Failure { reroute: Some(reroute), .. }) => {
                let rerouted = self.reroute(checks, reroute, ask);
                timeout_at(begun + self.config.timeout, rerouted)
                    .await
                    .unwrap_or_else(|_| Err(Failure::timeout()))
            }
            reply => reply,
        }
    }

    /// Follows MOVED and ASK. The node ran nothing, so the request is safe to send again; keys of one slot share one
    /// redirection.
    async fn reroute(
        &self,
        checks: &[Check<'_>],
        mut reroute: Reroute,
        ask: impl AsyncFn(NodeLink, BatchScope) -> DecisionReply,
    ) -> DecisionReply {
        let slot = self.slot_of_all(checks).ok_or_else(Failure::moving)?;
        loop {
            let (link, scope) = match &reroute {
                Reroute::Moved(address) => {
                    self.topology.moved(slot, address);
                    (self.link_of(slot)?, BatchScope::Alone)
                }
                Reroute::Ask(address) => {
                    self.mark_moving(slot);
                    (self.link_at(address)?, BatchScope::Importing)
                }
                Reroute::TryAgain => {
                    self.mark_moving(slot);
                    // Each key alone is on one of the two nodes.
                    if checks.len() > 1 {
                        return Err(Failure::moving());
                    }
                    sleep(RETRY_AFTER).await;
                    (self.link_of(slot)?, BatchScope::Alone)
                }
                Reroute::OtherSlot => (self.link_of(slot)?, BatchScope::Alone),
            };
            match ask(link, scope).await {
                Err(Failure { reroute: Some(next), .. }) => {
                    // Two nodes that name each other will agree soon.
                    if next == reroute || matches!(next, Reroute::Moved(_)) {
                        sleep(RETRY_AFTER).await;
                    }
                    reroute = next;
                }
                reply => return reply,
            }
        }
    }

    /// Decides over checks of one node. At most one of them may be on the same limit.
    pub(super) async fn decide_limits(&self, checks: &[Check<'_>]) -> DecisionReply {
        if !self.topology.is_cluster() {
            return self.link_of(0)?.decide(BatchScope::AllKeys, checks).await;
        }
        // Boxed, so that it does not enlarge the futures of other topologies.
        Box::pin(self.decide_in_cluster(checks)).await
    }

    async fn decide_in_cluster(&self, checks: &[Check<'_>]) -> DecisionReply {
        let is_moving = checks.iter().any(|check| self.is_moving(self.slot(&check.identifier)));
        if is_moving && self.slot_of_all(checks).is_none() {
            return Err(Failure::moving());
        }
        let scope = |slot, node: &RedisNode| match () {
            () if is_moving => BatchScope::Alone,
            () if self.strict_slot.is_none() && node.takes_any_slots() => BatchScope::AnySlots,
            () => BatchScope::Slot(slot),
        };
        self.ask(checks, scope, async |link, scope| link.decide(scope, checks).await).await
    }

    /// Runs one command on the node that has `key`.
    pub(super) async fn run<T: redis::FromRedisValue>(
        &self,
        key: &[u8],
        command: &Cmd,
    ) -> Result<T, Failure> {
        self.run_in(if self.topology.is_cluster() { slot_of(key) } else { 0 }, command).await
    }

    /// Runs one command on the node that has the keys of a slot.
    pub(super) async fn run_in<T: redis::FromRedisValue>(
        &self,
        slot: u16,
        command: &Cmd,
    ) -> Result<T, Failure> {
        let run = async {
            let mut link = self.link_of(slot)?;
            let mut is_importing = false;
            loop {
                let connection = link.connection().await?;
                let reply = match is_importing {
                    true => {
                        let asking = vec![redis::cmd("ASKING")];
                        connection.ask_after(asking, command.clone(), &LateReply::default()).await
                    }
                    false => connection.ask(command.clone(), &LateReply::default()).await,
                };
                let failure = match reply {
                    Ok(reply) => {
                        return redis::from_redis_value(reply)
                            .map_err(|error| Failure::protocol(error.to_string()));
                    }
                    Err(error) => Failure::of_node(error, &link.node().address, false),
                };
                match &failure.reroute {
                    Some(Reroute::Moved(address)) => {
                        self.topology.moved(slot, address);
                        (link, is_importing) = (self.link_of(slot)?, false);
                    }
                    Some(Reroute::Ask(address)) => (link, is_importing) = (self.link_at(address)?, true),
                    Some(_) => sleep(RETRY_AFTER).await,
                    None => return Err(failure),
                }
            }
        };
        timeout(self.config.timeout, run).await.unwrap_or_else(|_| Err(Failure::timeout()))
    }

    /// Links to all nodes that may have keys of a slot, its owner first: all nodes while the slot may be moving, which
    /// this thread may not know.
    ///
    /// # Errors
    /// No known node serves the slot, or its breaker is open.
    pub(super) fn links_of(&self, slot: u16) -> Result<Vec<NodeLink>, Failure> {
        let own = self.link_of(slot)?;
        let mut links = self.links();
        let nodes = links.map.nodes.clone();
        let others = nodes.into_iter().filter(|node| !Arc::ptr_eq(node, own.node()));
        let others: Vec<NodeLink> = others.filter_map(|node| self.link_to(&mut links, node).ok()).collect();
        Ok([vec![own], others].concat())
    }
}
