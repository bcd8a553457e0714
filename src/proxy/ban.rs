//! Who is shut out, and what counts towards it.

use std::{
    net::IpAddr,
    sync::{Arc, LazyLock},
};

use compact_str::CompactString;
use http::header;
use smallvec::SmallVec;

use super::{
    checks::Asked, client::Client, exchange::Exchange, quota, record::Denied, reply::Reply, worker::Worker,
};
use crate::{
    abuse::{
        self,
        bans::{Ban, Key},
    },
    config::model::{BanKey, BanRule, KeyPart, KeyRecipe},
    identity::{Facts, address_text, applies, identifier},
    telemetry::metrics::BanVerdict,
};

static USER: LazyLock<KeyRecipe> = LazyLock::new(|| KeyRecipe(vec![KeyPart::User]));

/// A ban that holds for a request.
struct Found {
    ban: Arc<Ban>,
    /// The index of the rule that it comes from; behind all of them where an operator gave it, or a rule that is not
    /// configured here.
    rule: usize,
}

/// Whether a ban holds for the request, and then what the client is told. A request that is shut out is noted as one that
/// was denied.
pub(super) fn shut_out<S>(
    worker: &Worker<S>,
    client: &Client,
    exchange: &mut Exchange,
    asked: &Asked<'_>,
) -> Option<Reply> {
    if worker.bans.is_empty() {
        return None;
    }
    let config = worker.config();
    let found = found(worker, asked, exchange.time());
    if found.is_empty() {
        return None;
    }
    let address = address(worker, client, asked.address);
    let facts = asked.facts(&address);
    let mut decisive: Option<Found> = None;
    for found in found {
        if config.bans.get(found.rule).is_some_and(|rule| is_exempt(rule, &facts, asked.address)) {
            continue;
        }
        if found.ban.is_shadow {
            worker.metrics().ban_denial(found.rule, BanVerdict::ShadowDenied);
            exchange.shadow_limited(config.policies.len() + found.rule);
        } else if decisive.as_ref().is_none_or(|known| known.ban.until < found.ban.until) {
            // The one that ends last: whoever comes back before it is shut out again.
            decisive = Some(found);
        }
    }
    let Found { ban, rule } = decisive?;
    worker.metrics().ban_denial(rule, BanVerdict::Denied);
    let policy = config.policies.len() + rule;
    exchange.limited(policy);
    Denied { exchange, asked, address: &address }.record_banned(worker, policy, &ban);
    let cross_origin = asked.request.headers.contains_key(header::ORIGIN);
    Some(quota::banned(config.bans.get(rule).map(|rule| &**rule), &ban, exchange.time(), cross_origin))
}

fn found<S>(worker: &Worker<S>, asked: &Asked<'_>, now: i64) -> SmallVec<[Found; 2]> {
    let rules = &worker.rules.bans;
    let mut found = SmallVec::new();
    let user = || Key::read(&identifier(&USER, &asked.facts(""))?);
    worker.bans.of(asked.address, user, now, |ban| {
        let of = |rule: &Arc<abuse::bans::Rule>| !ban.is_by_hand() && *rule.name == *ban.by;
        let rule = rules.iter().position(of).unwrap_or(rules.len());
        found.push(Found { ban: Arc::clone(ban), rule });
    });
    found
}

/// Notes for all rules that a policy has denied the request, of which these `facts` are known.
pub(super) fn strike<S>(worker: &Worker<S>, exchange: &Exchange, asked: &Asked<'_>, facts: &Facts<'_>) {
    for (rule, configured) in worker.rules.bans.iter().zip(&worker.config().bans) {
        if is_exempt(configured, facts, asked.address) {
            continue;
        }
        let counted = match rule.key {
            BanKey::Ip => Some(abuse::identifier(facts.address)),
            BanKey::User => identifier(&USER, facts),
        };
        if let Some(counted) = counted {
            worker.strikes.note(rule, counted, exchange.time());
        }
    }
}

fn is_exempt(rule: &BanRule, facts: &Facts<'_>, address: IpAddr) -> bool {
    rule.exempt.iter().any(|of| applies(of, facts, address))
}

/// The client's address as it identifies a client: mostly the peer's, which is written already.
pub(super) fn address<S>(worker: &Worker<S>, client: &Client, address: IpAddr) -> CompactString {
    if client.peer().ip() == address {
        client.address().clone()
    } else {
        address_text(address, worker.config().client_address.ipv6_prefix)
    }
}
