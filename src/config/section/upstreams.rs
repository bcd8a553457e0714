//! `upstreams`: the services behind the proxy.

use std::time::Duration;

use super::SHORTEST;
use crate::config::{
    model::{Balance, Endpoint, HostHeader, Timeouts, Upstream},
    reader::{Cursor, Mapping, Names},
    value::{Invalid, LONGEST_DURATION, choice, count, duration, endpoint_url, name_of_thing},
};

/// What routes refer to, and the upstreams themselves where all are right.
pub(super) struct Upstreams<'t> {
    pub(super) names: Names<'t>,
    pub(super) resolved: Option<Vec<Upstream>>,
    /// For each, what [`Upstreams::inherited`] gives.
    inherited: Vec<(Vec<usize>, Timeouts)>,
}

impl Upstreams<'_> {
    /// The policies that hold for every route to this upstream, and its timeouts.
    pub(super) fn inherited(&self, upstream: Option<usize>) -> (Vec<usize>, Timeouts) {
        let inherited = upstream.and_then(|upstream| self.inherited.get(upstream));
        inherited.cloned().unwrap_or((Vec::new(), TIMEOUTS))
    }
}

const TIMEOUTS: Timeouts = Timeouts {
    connect: Duration::from_secs(1),
    response: Duration::from_secs(30),
    idle: Duration::from_secs(60),
};

pub(super) fn upstreams<'t>(value: Option<Cursor<'t>>, policies: &Names<'_>) -> Upstreams<'t> {
    let entries = value.and_then(|value| {
        let entries = value.named()?;
        if entries.is_empty() {
            value.report("there is no upstream, so nothing could be forwarded", None);
        }
        Some(entries)
    });
    let entries = entries.unwrap_or_default();
    let names = entries.iter().map(|(_, name, _)| *name).collect();
    let (mut inherited, mut all) = (Vec::new(), Vec::new());
    for (place, name, value) in entries {
        if let Err(invalid) = name_of_thing(name) {
            value.report_at(place, format!("`{name}` {}", invalid.what), invalid.help(false));
        }
        let (policies, upstream) = match value.mapping() {
            Some(mut at) => {
                let own = at.take("policies").map(|list| list.distinct(|item| policies.resolve(item)));
                (own.unwrap_or_default(), upstream(name, at))
            }
            None => (Vec::new(), None),
        };
        inherited.push((policies, upstream.as_ref().map_or(TIMEOUTS, |upstream| upstream.timeouts)));
        all.push(upstream);
    }
    Upstreams { names: Names::new("upstream", names), inherited, resolved: all.into_iter().collect() }
}

fn upstream(name: &str, mut at: Mapping<'_>) -> Option<Upstream> {
    let endpoints = at.require("endpoints", "such as `endpoints: [http://127.0.0.1:3000]`").map(endpoints);
    let balance = choice(&[("least_request", Balance::LeastRequest), ("round_robin", Balance::RoundRobin)]);
    let balance = at.parse_or("balance", Balance::LeastRequest, balance);
    let timeouts = timeouts(at.take("timeouts"), TIMEOUTS);
    let max_connections = at.parse_or("max_connections", 1024, count(1..=1_000_000));
    let idle_connections = at.parse_or("idle_connections", 64, count(0..=1_000_000));
    let host = choice(&[("preserve", HostHeader::Preserve), ("rewrite", HostHeader::Rewrite)]);
    let host = at.parse_or("host", HostHeader::Preserve, host);
    at.finish();
    Some(Upstream {
        name: name.to_owned(),
        endpoints: endpoints?,
        balance,
        timeouts,
        max_connections,
        idle_connections,
        host,
    })
}

fn endpoints(value: Cursor<'_>) -> Vec<Endpoint> {
    if value.is_empty_list() {
        value.report("an upstream needs an endpoint", "such as [http://127.0.0.1:3000]".to_owned());
    }
    value.items(|item| {
        if item.written().is_some() {
            return item.parse(endpoint_url);
        }
        let mut at = item.mapping()?;
        let url = at.require("url", "such as `url: http://127.0.0.1:3000`");
        let weight = at.parse_or("weight", 1, |text| {
            let weight = count(1..=1000)(text)?;
            u32::try_from(weight).map_err(|_| Invalid::new("is too large"))
        });
        at.finish();
        Some(Endpoint { weight, ..url?.parse(endpoint_url)? })
    })
}

/// The timeouts that are written, and those of `default` for the rest.
pub(super) fn timeouts(value: Option<Cursor<'_>>, default: Timeouts) -> Timeouts {
    let Some(mut at) = value.and_then(Cursor::mapping) else { return default };
    let time = || duration(SHORTEST..=LONGEST_DURATION);
    let timeouts = Timeouts {
        connect: at.parse_or("connect", default.connect, time()),
        response: at.parse_or("response", default.response, time()),
        idle: at.parse_or("idle", default.idle, time()),
    };
    at.finish();
    timeouts
}
