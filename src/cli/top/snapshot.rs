//! A snapshot of the data of the admin port.

use bytes::Bytes;
use http::Method;
use serde::Serialize;

use super::super::client::{AdminConnection, AdminError};
use crate::{
    abuse::Sort,
    admin::dto::{
        Blocked, BlockedAddress, Endpoint, Policies, Policy, Route, Routes, Status, Upstream, Upstreams,
    },
};

/// Number of addresses fetched: more than any screen shows.
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
    pub(super) async fn fetch(connection: &mut AdminConnection, sort: Sort) -> Result<Self, AdminError> {
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

    /// The endpoints of all upstreams, with the upstreams' names.
    pub(super) fn endpoints(&self) -> impl Iterator<Item = (&str, &Endpoint)> {
        self.upstreams.iter().flat_map(|upstream| {
            upstream.endpoints.iter().map(move |endpoint| (upstream.name.as_str(), endpoint))
        })
    }

    /// The number of endpoints in this state.
    pub(super) fn endpoints_in(&self, state: &str) -> usize {
        self.endpoints().filter(|(_, endpoint)| endpoint.state == state).count()
    }
}
