//! The policies of a route, applied to whoever asks: checks made, decided, and recorded if they deny.

use std::{net::IpAddr, rc::Rc, sync::Arc};

use compact_str::CompactString;
use http::{HeaderMap, Method, header, request};
use smallvec::SmallVec;
use tokio::task;

use super::{client::Client, exchange::Exchange, quota::Said, reply::Reply, worker::Worker};
use crate::{
    abuse::Denial,
    config::model::Route,
    identity::{Facts, Identity, address_text, identifiers},
    limit::{
        Check, Source, Store,
        algorithm::{Detail, Verdict, metadata_list::Entry},
    },
    router::{Host, Target},
    telemetry::metrics,
};

/// Bytes of a user ID and of a path that evidence keeps.
const LONGEST_USER: usize = 128;
const LONGEST_PATH: usize = 512;

/// What is known of a request once its route is found.
pub(super) struct Asked<'a> {
    pub(super) request: &'a request::Parts,
    pub(super) target: &'a Target,
    pub(super) route: &'a Route,
    pub(super) address: IpAddr,
    pub(super) identity: &'a Identity,
}

/// Whether a request may go on.
pub(super) enum Admission {
    /// It may; this is what its policies said.
    Admitted(SmallVec<[Said; 2]>),
    /// It may not.
    Denied {
        /// The index of the policy that decided.
        policy: usize,
        /// What the client is told.
        reply: Reply,
    },
    /// The store could not say.
    Undecided,
}

/// Holds the request against all policies of its route, in one decision of the store.
pub(super) async fn admit<S: Store + 'static>(
    worker: &Rc<Worker<S>>,
    client: &Client,
    exchange: &Exchange,
    asked: &Asked<'_>,
) -> Admission {
    if asked.route.policies.is_empty() || is_preflight(&asked.request.method, &asked.request.headers) {
        return Admission::Admitted(SmallVec::new());
    }
    let address = address(worker, client, asked.address);
    let facts = Facts {
        address: &address,
        user: asked.identity.user.as_deref(),
        is_user_verified: asked.identity.is_verified,
        claims: asked.identity.claims.as_deref(),
        is_peer_trusted: client.is_trusted(),
        method: &asked.request.method,
        host: asked.target.host().map(Host::name),
        path: asked.target.loosest_path(),
        query: asked.target.query(),
        headers: &asked.request.headers,
        route: &asked.route.name,
    };

    let mut entry = None;
    let mut checks: SmallVec<[Check<'_>; 2]> = SmallVec::new();
    let mut policies: SmallVec<[usize; 2]> = SmallVec::new();
    for &index in &asked.route.policies {
        let policy = &worker.policies[index];
        let Ok(identifiers) = identifiers(&policy.keys, policy.missing, &facts) else {
            return unidentified(worker, exchange, asked, &address, index);
        };
        for identifier in identifiers {
            let detail = match policy.keeps_entries() {
                true => Detail::Entry(Arc::clone(entry.get_or_insert_with(|| written_down(exchange, asked)))),
                false => Detail::None,
            };
            checks.push(Check { policy, identifier, cost: 1, detail });
            policies.push(index);
        }
    }

    let Ok(decision) = worker.store.decide(&checks).await else {
        for &policy in &asked.route.policies {
            worker.metrics().decision(policy, metrics::Verdict::Error, metrics::Source::Fallback);
        }
        return Admission::Undecided;
    };
    let source = counted(decision.source);
    let said: SmallVec<[Said; 2]> = policies
        .into_iter()
        .zip(decision.verdicts)
        .map(|(policy, verdict)| Said { policy, verdict })
        .collect();
    if decision.admitted {
        for said in &said {
            worker.metrics().decision(said.policy, metrics::Verdict::Allowed, source);
        }
        return Admission::Admitted(said);
    }
    let denying = said.iter().zip(&checks).filter(|(said, _)| !said.verdict.admitted);
    for (nth, (said, check)) in denying.enumerate() {
        worker.metrics().decision(said.policy, metrics::Verdict::Denied, source);
        let new = record(worker, exchange, asked, &address, said, check, nth == 0);
        // What is remembered, or said in the store's place, tells nothing new of who filled a list.
        if new && decision.source == Source::Store {
            record_evidence(worker, &denial(exchange, asked, &address, said, check));
        }
    }
    let cross_origin = asked.request.headers.contains_key(header::ORIGIN);
    let decisive = said.iter().find(|said| !said.verdict.admitted).map_or(0, |said| said.policy);
    Admission::Denied { policy: decisive, reply: worker.quotas.denial(&said, cross_origin) }
}

fn counted(source: Source) -> metrics::Source {
    match source {
        Source::Store => metrics::Source::Store,
        Source::Slice => metrics::Source::Lease,
        Source::LocalDenial => metrics::Source::LocalDenial,
        Source::Fallback => metrics::Source::Fallback,
    }
}

/// The client's address as it identifies a client: mostly the peer's, which is written already.
fn address<S>(worker: &Worker<S>, client: &Client, address: IpAddr) -> CompactString {
    if client.peer().ip() == address {
        client.address().clone()
    } else {
        address_text(address, worker.config.client_address.ipv6_prefix)
    }
}

/// The request as evidence. What clients make long is cut: it is kept for a while.
fn written_down(exchange: &Exchange, asked: &Asked<'_>) -> Arc<Entry> {
    Arc::new(Entry {
        time: exchange.time(),
        user: asked.identity.user.as_deref().map(|user| cut(user, LONGEST_USER).into()),
        method: asked.request.method.clone(),
        path: cut(asked.target.path(), LONGEST_PATH).into(),
    })
}

fn cut(text: &str, longest: usize) -> &str {
    &text[..text.floor_char_boundary(longest)]
}

/// Notes who was denied, for the admin port: the request itself, once however many policies deny it. True where
/// a list should be asked who filled it.
fn record<S>(
    worker: &Worker<S>,
    exchange: &Exchange,
    asked: &Asked<'_>,
    address: &str,
    said: &Said,
    check: &Check<'_>,
    first: bool,
) -> bool {
    let denial = denial(exchange, asked, address, said, check);
    let new = if first {
        let entry = || check.detail.entry().cloned().unwrap_or_else(|| written_down(exchange, asked));
        worker.recorder.denied(&denial, entry)
    } else {
        worker.recorder.also(&denial)
    };
    new && check.policy.keeps_entries()
}

/// Notes who filled the list that denied, once the store has told. Nobody waits for it.
fn record_evidence<S: Store + 'static>(worker: &Rc<Worker<S>>, denial: &Denial<'_>) {
    let worker = Rc::clone(worker);
    let Denial { policy, now, until, .. } = *denial;
    let (address, identifier) = (CompactString::from(denial.address), CompactString::from(denial.identifier));
    task::spawn_local(async move {
        let Some(of) = worker.policies.get(policy) else { return };
        if let Ok(entries) = worker.store.entries(of, &identifier).await {
            let (address, identifier) = (address.as_str(), identifier.as_str());
            worker
                .recorder
                .evidence(&Denial { address, policy, identifier, user: None, now, until }, entries);
        }
    });
}

fn denial<'a>(
    exchange: &Exchange,
    asked: &Asked<'a>,
    address: &'a str,
    said: &Said,
    check: &'a Check<'_>,
) -> Denial<'a> {
    let now = exchange.time();
    Denial {
        address,
        policy: said.policy,
        identifier: &check.identifier,
        user: asked.identity.user.as_deref(),
        now,
        until: now + said.verdict.retry_after.unwrap_or(0),
    }
}

/// `missing: deny`, and something is missing: no quota is asked, and none will ever admit it.
fn unidentified<S>(
    worker: &Worker<S>,
    exchange: &Exchange,
    asked: &Asked<'_>,
    address: &str,
    index: usize,
) -> Admission {
    let policy = &worker.policies[index];
    worker.metrics().decision(index, metrics::Verdict::Denied, metrics::Source::Store);
    let now = exchange.time();
    let denial = Denial {
        address,
        policy: index,
        identifier: "",
        user: asked.identity.user.as_deref(),
        now,
        until: now,
    };
    worker.recorder.denied(&denial, || written_down(exchange, asked));
    let verdict = Verdict {
        admitted: false,
        tier: 0,
        limit: policy.tiers[0].limit,
        remaining: 0,
        reset: 0,
        retry_after: None,
        delay: 0,
    };
    let cross_origin = asked.request.headers.contains_key(header::ORIGIN);
    let said = [Said { policy: index, verdict }];
    Admission::Denied { policy: index, reply: worker.quotas.denial(&said, cross_origin) }
}

/// A CORS preflight (Fetch, 4.8), which browsers send of their own accord.
fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    *method == Method::OPTIONS
        && headers.contains_key(header::ORIGIN)
        && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}
