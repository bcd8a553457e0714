//! A snapshot of what the admin port knows.

use bytes::Bytes;
use http::Method;
use serde::Serialize;

use super::super::client::{AdminError, Connection};
use crate::{
    abuse::Sort,
    admin::dto::{
        Blocked, BlockedAddress, Policies, Policy, Route, Routes, Status, StoreStatus, Upstream, Upstreams,
    },
};

/// Addresses that are fetched: more than any screen shows.
pub(super) const ADDRESSES: usize = 200;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Snapshot {
    pub(super) status: Status,
    pub(super) routes: Vec<Route>,
    pub(super) upstreams: Vec<Upstream>,
    pub(super) policies: Vec<Policy>,
    pub(super) blocked: Vec<BlockedAddress>,
}

impl Snapshot {
    pub(super) async fn fetch(connection: &mut Connection, sort: Sort) -> Result<Self, AdminError> {
        let addresses = format!("/v1/blocked?sort={}&limit={ADDRESSES}", sort.name());
        let mut get = async |target: &str| connection.send(Method::GET, target, Bytes::new()).await;
        let answers = [
            get("/v1/status").await?,
            get("/v1/routes").await?,
            get("/v1/upstreams").await?,
            get("/v1/policies").await?,
            get(&addresses).await?,
        ];
        let [status, routes, upstreams, policies, blocked] = answers;
        Ok(Self {
            status: connection.parse(&status)?,
            routes: connection.parse::<Routes>(&routes)?.routes,
            upstreams: connection.parse::<Upstreams>(&upstreams)?.upstreams,
            policies: connection.parse::<Policies>(&policies)?.policies,
            blocked: connection.parse::<Blocked>(&blocked)?.blocked,
        })
    }

    /// How many endpoints are healthy, and how many there are.
    pub(super) fn endpoints(&self) -> (usize, usize) {
        let endpoints = || self.upstreams.iter().flat_map(|upstream| &upstream.endpoints);
        (endpoints().filter(|endpoint| endpoint.healthy).count(), endpoints().count())
    }

    /// The store in words: `redis, master, 250ms, breaker closed, 2 instances`.
    pub(super) fn store(&self) -> String {
        let StoreStatus { topology, keys, shared, .. } = &self.status.store;
        let Some(shared) = shared else { return format!("{topology}, {keys} keys") };
        let latency = shared.latency.as_deref().unwrap_or("no answer");
        let role = shared.role.as_deref().unwrap_or("unreachable");
        let plural = if shared.instances == 1 { "" } else { "s" };
        let (breaker, instances) = (&shared.breaker, shared.instances);
        format!("{topology}, {role}, {latency}, breaker {breaker}, {instances} instance{plural}")
    }

    /// Whether the configured store answers and its breaker is closed.
    pub(super) fn is_store_healthy(&self) -> bool {
        let shared = self.status.store.shared.as_ref();
        shared.is_none_or(|shared| shared.breaker == "closed" && shared.latency.is_some())
    }

    /// `ready`, `draining` or `not ready`.
    pub(super) fn phase(&self) -> &'static str {
        match &self.status {
            status if status.draining => "draining",
            status if status.ready => "ready",
            _ => "not ready",
        }
    }
}

/// The part of a hint that fits into a column.
pub(super) fn short_hint(hint: &str) -> &str {
    hint.split(':').next().unwrap_or(hint)
}
