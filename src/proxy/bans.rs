//! Bans: finds the ban that applies to a request, and records the offenses that lead to bans.

use std::{net::IpAddr, sync::Arc, time::Instant};

use compact_str::CompactString;
use ipnet::IpNet;
use smallvec::SmallVec;

use super::{
    checks::is_met,
    exchange::Exchange,
    open_exchanges::{ExchangeKind, ExchangeOwner, OpenExchangeGuard},
    peer::Peer,
    request_context::RequestContext,
    rules::Rules,
    worker::Worker,
};
use crate::{
    abuse::{
        self,
        bans::{Ban, BanTable, BannedKey},
    },
    config::model::{BanKey, BanRule, Condition},
    identity::{Identity, user_identifier},
    limit::Clock,
    telemetry::{diagnostics::FloodingClient, metrics::Http2Abuse},
};

/// A ban that matches a request.
#[derive(Debug)]
pub struct BanMatch {
    pub(super) ban: Arc<Ban>,
    /// The index of the ban's rule. For a ban by an operator, or by a rule that is not configured here, it is the
    /// number of rules.
    pub(super) rule: usize,
}

/// The ban that denies the request. `in_shadow` is called for each ban that would deny it in shadow.
pub(super) fn find_ban(
    bans: &BanTable,
    context: &RequestContext<'_, '_>,
    now: i64,
    mut in_shadow: impl FnMut(&BanMatch),
) -> Option<BanMatch> {
    let config = &context.rules.config;
    let mut decisive: Option<BanMatch> = None;
    for matched in matching_bans(bans, context, now) {
        if config.bans.get(matched.rule).is_some_and(|rule| is_exempt(rule, context)) {
            continue;
        }
        if matched.ban.is_shadow {
            in_shadow(&matched);
        } else if decisive.as_ref().is_none_or(|other| other.ban.until < matched.ban.until) {
            // The ban that ends last, because a client that comes back earlier is denied again.
            decisive = Some(matched);
        }
    }
    decisive
}

/// The bans in force at `now` that match the client's address or user, whether or not the request is exempt from
/// them.
pub(super) fn matching_bans(
    bans: &BanTable,
    context: &RequestContext<'_, '_>,
    now: i64,
) -> SmallVec<[BanMatch; 2]> {
    let mut matches = SmallVec::new();
    bans.for_each_match(
        context.found.client.ip,
        || user_key(&context.found.identity),
        now,
        |ban| {
            matches.push(BanMatch { ban: Arc::clone(ban), rule: rule_index(context.rules, ban) });
        },
    );
    matches
}

impl<S> Worker<S> {
    /// The network whose connections are limited together with those of `peer`. `None`: they are not limited, because
    /// `peer` is a process of this machine, or a trusted proxy or a load balancer with many clients.
    pub fn limited_network(&self, peer: Peer) -> Option<IpNet> {
        let Peer::Address(address) = peer else { return None };
        let prefix = self.config().client_address.ipv6_prefix;
        (!self.trusts(peer)).then(|| abuse::masked(address.ip(), prefix))
    }

    /// Records that a connection of `peer` was closed for an HTTP/2 flood.
    pub fn record_flood(&self, peer: Peer, abuse: Http2Abuse) {
        let prefix = self.config().client_address.ipv6_prefix;
        let network = abuse::masked(peer.address().ip(), prefix);
        let stands_for_many = matches!(peer, Peer::Balancer(_)) || self.trusts(peer);
        let client = FloodingClient { network, is_trusted_proxy: stands_for_many };
        self.sampler.record_flood(client, abuse);
    }

    /// Whether a ban denies all requests of this address. A ban of a rule that exempts certain users or requests does
    /// not.
    pub fn is_banned(&self, address: IpAddr) -> bool {
        if self.bans.is_empty() {
            return false;
        }
        let now = self.telemetry.clock.now();
        let mut is_banned = false;
        self.bans.for_each_match(
            address,
            || None,
            now,
            |ban| {
                let rule = self.config().bans.get(rule_index(&self.rules, ban));
                let mut exempt = rule.into_iter().flat_map(|rule| &rule.exempt);
                let may_be_exempt = exempt.any(|exempt| match exempt {
                    Condition::Address(network) => network.contains(&address.to_canonical()),
                    _ => true,
                });
                is_banned |= !ban.is_shadow && !may_be_exempt;
            },
        );
        is_banned
    }

    /// Closes the tunnels and streamed responses of clients that are banned now, if that is configured, and of API keys
    /// that are not valid any more.
    pub(super) fn close_banned_exchanges(&self, now: Instant) {
        if self.config().close_banned_tunnels {
            self.open_exchanges.close_banned(&self.bans, self.telemetry.clock.at(now));
        }
        if let Some(keys) = &self.rules.keys {
            self.open_exchanges.close_revoked(keys.registry(), self.telemetry.clock.at(now));
        }
    }

    /// Registers an exchange that may last long. It is closed at once if its client was banned, or its API key revoked,
    /// since the request arrived.
    pub(super) fn register_exchange(&self, kind: ExchangeKind, owner: ExchangeOwner) -> OpenExchangeGuard {
        let is_banned = self.config().close_banned_tunnels
            && !self.bans.is_empty()
            && owner.is_banned(&self.bans, self.telemetry.clock.now());
        let keys = self.rules.keys.as_ref().filter(|_| owner.key.is_some());
        let is_revoked =
            keys.is_some_and(|keys| owner.is_revoked(keys.registry(), self.telemetry.clock.now()));
        let guard = self.open_exchanges.register(kind, owner);
        if is_banned || is_revoked {
            guard.close_for_ban();
        }
        guard
    }

    /// A number that grows whenever an address is banned.
    pub fn addresses_banned(&self) -> u64 {
        self.bans.addresses_banned()
    }
}

/// The names of the ban rules that the request is exempt from, if bans close open exchanges.
#[inline]
pub(super) fn exempt_rules(context: &RequestContext<'_, '_>) -> Vec<CompactString> {
    match context.rules.config.close_banned_tunnels {
        false => Vec::new(),
        true => names_of_exempt_rules(context),
    }
}

fn names_of_exempt_rules(context: &RequestContext<'_, '_>) -> Vec<CompactString> {
    let rules = context.rules.bans.iter().zip(&context.rules.config.bans);
    let exempt = rules.filter(|(_, configured)| is_exempt(configured, context));
    exempt.map(|(rule, _)| CompactString::from(&*rule.name)).collect()
}

/// The key of the user's bans. `None`: the request names no user.
pub(super) fn user_key(identity: &Identity) -> Option<BannedKey> {
    BannedKey::from_canonical(&user_identifier(identity.user.as_deref(), identity.pseudonym.as_deref())?)
}

/// See [`BanMatch::rule`].
fn rule_index(rules: &Rules, ban: &Ban) -> usize {
    let made = |rule: &Arc<abuse::bans::LadderRule>| !ban.is_manual() && *rule.name == *ban.by;
    rules.bans.iter().position(made).unwrap_or(rules.bans.len())
}

/// Counts a request that policies denied as an offense, for each ban rule that counts one of them. `denials`: the
/// policies, and the identifiers of the limits that denied.
///
/// Any client can send another user's name. So an offense counts for a user only if the user is verified, or if the
/// user's own limit denied the request.
pub(super) fn record_offense<'d, S, D: Iterator<Item = (usize, &'d str)>>(
    worker: &Worker<S>,
    exchange: &Exchange,
    context: &RequestContext<'_, '_>,
    denials: impl Fn() -> D,
) {
    let (config, attributes) = (worker.config(), context.attributes());
    for (rule, configured) in worker.rules.bans.iter().zip(&config.bans) {
        if is_exempt(configured, context) {
            continue;
        }
        let mut counted = denials().filter(|(policy, _)| configured.counts(*policy));
        let offense = match rule.key {
            BanKey::Ip if !attributes.has_address => None,
            BanKey::Ip => counted.next().map(|denial| (attributes.address.identifier().clone(), denial)),
            BanKey::User => user_identifier(attributes.user, attributes.pseudonym).and_then(|user| {
                let denial = counted.find(|(_, limited)| attributes.is_user_verified || *limited == user)?;
                Some((user, denial))
            }),
        };
        if let Some((offender, (policy, _))) = offense {
            let policy = config.policies.get(policy).map_or("", |policy| &policy.name);
            worker.offenses.note(rule, offender, policy, exchange.time());
        }
    }
}

fn is_exempt(rule: &BanRule, context: &RequestContext<'_, '_>) -> bool {
    rule.exempt.iter().any(|condition| is_met(condition, context))
}
