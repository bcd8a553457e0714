//! Bans: finds the ban that applies to a request, and records the offenses that lead to bans.

use std::{net::IpAddr, sync::Arc, time::Instant};

use compact_str::CompactString;
use http::header;
use ipnet::IpNet;
use smallvec::SmallVec;

use super::{
    client::{ClientInfo, Peer},
    denial_record::DenialRecord,
    exchange::Exchange,
    open_exchanges::{ExchangeKind, ExchangeOwner, OpenExchangeGuard},
    quota,
    reply::Reply,
    request_context::{RequestContext, client_address},
    rules::Rules,
    worker::Worker,
};
use crate::{
    abuse::{
        self,
        bans::{Ban, BanTable, BannedKey},
    },
    config::model::{BanKey, BanRule, Condition, Config},
    identity::{Identity, RequestAttributes, condition_matches, user_identifier},
    telemetry::{
        diagnostics::FloodingClient,
        metrics::{BanVerdict, Http2Abuse},
    },
};

/// A ban that matches a request.
pub(super) struct BanMatch {
    pub(super) ban: Arc<Ban>,
    /// The index of the ban's rule. For a ban by an operator, or by a rule that is not configured here, it is the
    /// number of rules.
    pub(super) rule: usize,
}

/// The response for a banned client; `None` if no ban applies to the request. A banned request is recorded as denied.
pub(super) fn check_bans<S>(
    worker: &Worker<S>,
    client: &ClientInfo,
    exchange: &mut Exchange,
    context: &RequestContext<'_>,
) -> Option<Reply> {
    if worker.bans.is_empty() {
        return None;
    }
    let config = worker.config();
    let matches = matching_bans(&worker.rules, &worker.bans, context, exchange.time());
    if matches.is_empty() {
        return None;
    }
    let address = client_address(worker, client, context.address);
    let attributes = context.attributes(&address);
    let decisive = decisive_ban(config, matches, context, &attributes, |shadow| {
        worker.metrics().ban_denial(shadow.rule, BanVerdict::ShadowDenied);
        exchange.verdict.deny_in_shadow(config.policies.len() + shadow.rule);
    });
    let BanMatch { ban, rule } = decisive?;
    worker.metrics().ban_denial(rule, BanVerdict::Denied);
    let policy = config.policies.len() + rule;
    exchange.verdict.ban(policy);
    DenialRecord { exchange, context, address: address.address() }.record_banned(worker, policy, &ban);
    let cross_origin = context.request.headers.contains_key(header::ORIGIN);
    let reply = quota::banned(config.bans.get(rule).map(|rule| &**rule), &ban, exchange.time(), cross_origin);
    // The connection of a trusted proxy carries the requests of other clients, too.
    Some(if context.is_peer_trusted { reply } else { reply.closing() })
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
        let now = self.telemetry.clock.at(Instant::now());
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

    /// Closes the tunnels and streamed responses of clients that are banned now, if that is configured.
    pub(super) fn close_banned_exchanges(&self, now: Instant) {
        if self.config().close_banned_tunnels {
            self.open_exchanges.close_banned(&self.bans, self.telemetry.clock.at(now));
        }
    }

    /// Registers an exchange that may last long. It is closed at once if its client was banned since the request
    /// arrived.
    pub(super) fn register_exchange(&self, kind: ExchangeKind, owner: ExchangeOwner) -> OpenExchangeGuard {
        let is_banned = self.config().close_banned_tunnels
            && !self.bans.is_empty()
            && owner.is_banned(&self.bans, self.telemetry.clock.at(Instant::now()));
        let guard = self.open_exchanges.register(kind, owner);
        if is_banned {
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
pub(super) fn exempt_rules<S>(
    worker: &Worker<S>,
    client: &ClientInfo,
    context: &RequestContext<'_>,
) -> Vec<CompactString> {
    let config = worker.config();
    if !config.close_banned_tunnels || config.bans.is_empty() {
        return Vec::new();
    }
    let address = client_address(worker, client, context.address);
    let attributes = context.attributes(&address);
    let rules = worker.rules.bans.iter().zip(&config.bans);
    let exempt = rules.filter(|(_, configured)| is_exempt(configured, &attributes, context));
    exempt.map(|(rule, _)| CompactString::from(&*rule.name)).collect()
}

/// Picks the ban that denies the request among `matches`. `shadow` is called for each ban that would deny it in
/// shadow.
pub(super) fn decisive_ban(
    config: &Config,
    matches: impl IntoIterator<Item = BanMatch>,
    context: &RequestContext<'_>,
    attributes: &RequestAttributes<'_>,
    mut shadow: impl FnMut(&BanMatch),
) -> Option<BanMatch> {
    let mut decisive: Option<BanMatch> = None;
    for matched in matches {
        if config.bans.get(matched.rule).is_some_and(|rule| is_exempt(rule, attributes, context)) {
            continue;
        }
        if matched.ban.is_shadow {
            shadow(&matched);
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
    rules: &Rules,
    bans: &BanTable,
    context: &RequestContext<'_>,
    now: i64,
) -> SmallVec<[BanMatch; 2]> {
    let mut matches = SmallVec::new();
    bans.for_each_match(
        context.address,
        || user_key(context.identity),
        now,
        |ban| {
            matches.push(BanMatch { ban: Arc::clone(ban), rule: rule_index(rules, ban) });
        },
    );
    matches
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
    context: &RequestContext<'_>,
    attributes: &RequestAttributes<'_>,
    denials: impl Fn() -> D,
) {
    let config = worker.config();
    for (rule, configured) in worker.rules.bans.iter().zip(&config.bans) {
        if is_exempt(configured, attributes, context) {
            continue;
        }
        let mut counted = denials().filter(|(policy, _)| configured.counts(*policy));
        let offense = match rule.key {
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

fn is_exempt(rule: &BanRule, attributes: &RequestAttributes<'_>, context: &RequestContext<'_>) -> bool {
    rule.exempt.iter().any(|of| condition_matches(of, attributes, context.known_address()))
}
