//! Who is shut out, and what counts towards it.

use std::{
    net::IpAddr,
    sync::{Arc, LazyLock},
};

use compact_str::CompactString;
use http::header;
use smallvec::SmallVec;

use super::{
    checks::Asked, client::Client, exchange::Exchange, quota, record::Denied, reply::Reply, rules::Rules,
    worker::Worker,
};
use crate::{
    abuse::{
        self,
        bans::{Ban, Bans, Key},
    },
    config::model::{BanKey, BanRule, KeyPart, KeyRecipe},
    identity::{Facts, address_text, applies, identifier},
    telemetry::metrics::BanVerdict,
};

static USER: LazyLock<KeyRecipe> = LazyLock::new(|| KeyRecipe(vec![KeyPart::User]));

/// A ban that holds for a request.
pub(super) struct Found {
    pub(super) ban: Arc<Ban>,
    /// The index of the rule that it comes from; behind all of them where an operator gave it, or a rule that is not
    /// configured here.
    pub(super) rule: usize,
}

impl Found {
    /// Whether its rule is not for this request.
    pub(super) fn is_exempt(&self, rules: &Rules, facts: &Facts<'_>, address: IpAddr) -> bool {
        rules.config.bans.get(self.rule).is_some_and(|rule| is_exempt(rule, facts, address))
    }
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
    let (rules, now) = (&*worker.rules, exchange.time());
    let found = found(rules, &worker.bans, asked, now);
    if found.is_empty() {
        return None;
    }
    let address = address(worker, client, asked.address);
    let facts = asked.facts(&address);
    let holding = found.into_iter().filter(|found| !found.is_exempt(rules, &facts, asked.address));
    let (shadow, enforced): (SmallVec<[Found; 2]>, SmallVec<[Found; 2]>) =
        holding.partition(|found| found.ban.is_shadow);
    let policies = rules.config.policies.len();
    for Found { rule, .. } in shadow {
        worker.metrics().ban_denial(rule, BanVerdict::ShadowDenied);
        exchange.shadow_limited(policies + rule);
    }
    // The one that ends last: whoever comes back before it is shut out again.
    let Found { ban, rule } = enforced.into_iter().max_by_key(|found| found.ban.until)?;
    worker.metrics().ban_denial(rule, BanVerdict::Denied);
    exchange.limited(policies + rule);
    Denied { exchange, asked, address: &address }.record_banned(worker, policies + rule, &ban);
    let cross_origin = asked.request.headers.contains_key(header::ORIGIN);
    let rule = rules.config.bans.get(rule).map(Arc::as_ref);
    Some(quota::banned(rule, &ban, now, cross_origin))
}

/// All bans of the request's address and user, those among them whose rule is not for it.
pub(super) fn found(rules: &Rules, bans: &Bans, asked: &Asked<'_>, now: i64) -> SmallVec<[Found; 2]> {
    let mut found = SmallVec::new();
    let user = || Key::read(&identifier(&USER, &asked.facts(""))?);
    bans.of(asked.address, user, now, |ban| {
        let of = |rule: &Arc<abuse::bans::Rule>| !ban.is_by_hand() && *rule.name == *ban.by;
        let rule = rules.bans.iter().position(of).unwrap_or(rules.bans.len());
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
