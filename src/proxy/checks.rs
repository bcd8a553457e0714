//! What a request is held against: each policy of its route, with the limits that it has for this request, applied to
//! each identifier.

use std::{cell::OnceCell, net::IpAddr, sync::Arc};

use http::{HeaderMap, Method, header, request};
use sha2::{Digest, Sha256};
use smallvec::SmallVec;

use super::{cost, quota::Said, record::written_down, rules::Rules, tokens::Tokens};
use crate::{
    abuse::Names,
    config::model::{Condition, Route},
    identity::{Facts, Identity, MissingIdentifier, applies, identifiers, value},
    limit::{
        Check, Decision, Policy,
        algorithm::{Detail, Kind, Member, metadata_list::Entry},
    },
    router::{Host, Target},
};

/// What is known of a request once its route is found.
pub(super) struct Asked<'a> {
    pub(super) request: &'a request::Parts,
    pub(super) target: &'a Target,
    pub(super) route: &'a Route,
    pub(super) address: IpAddr,
    pub(super) identity: &'a Identity,
    /// Whether it came over a trusted proxy.
    pub(super) is_peer_trusted: bool,
}

impl<'a> Asked<'a> {
    /// What of it may identify it. `address`: the client's, as it identifies a client.
    pub(super) fn facts(&self, address: &'a str) -> Facts<'a> {
        Facts {
            address,
            user: self.identity.user.as_deref(),
            is_user_verified: self.identity.is_verified,
            claims: self.identity.claims.as_deref(),
            is_peer_trusted: self.is_peer_trusted,
            method: &self.request.method,
            host: self.target.host().map(Host::name),
            path: self.target.loosest_path(),
            query: self.target.query(),
            headers: &self.request.headers,
            route: &self.route.name,
        }
    }
}

/// What checks take that is no part of the request.
pub(super) struct Supplies<'a, T> {
    /// When the request came, in microseconds since the Unix epoch.
    pub(super) time: T,
    pub(super) tokens: &'a Tokens,
    /// How users are written down.
    pub(super) names: &'a Names,
}

/// A policy's limits: its own or an override's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// The policy's index.
    pub(super) policy: usize,
    /// Which of [`Policy::variants`].
    pub(super) variant: usize,
}

impl Limits {
    pub(super) fn of(self, policies: &[Policy]) -> Option<&Policy> {
        policies.get(self.policy)?.variants().nth(self.variant)
    }
}

/// The checks of one request.
#[derive(Default)]
pub(super) struct Checks<'a> {
    pub(super) all: SmallVec<[Check<'a>; 2]>,
    /// Of each, by what limits it goes.
    pub(super) limits: SmallVec<[Limits; 2]>,
    /// Shadow policies that would deny whatever the store says, since the request lacks what they go by.
    pub(super) denied_in_shadow: SmallVec<[usize; 1]>,
}

/// Why a policy of its route does not hold for a request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Passed<'a> {
    /// It is a CORS preflight.
    Preflight,
    Exempt(&'a Condition),
    /// It lacks the value that `distinct` counts.
    NoValue,
}

/// `missing: deny`, and something is missing: what this policy goes by.
pub(super) struct Unidentified(pub(super) usize);

impl<'a> Checks<'a> {
    /// All that hold for a request, of which these `facts` are known. `passed` is told the policies that do not hold for
    /// it, and why.
    ///
    /// # Errors
    /// The request lacks what a policy demands.
    pub(super) fn of<T: Fn() -> i64>(
        rules: &'a Rules,
        supplies: &Supplies<'_, T>,
        asked: &Asked<'_>,
        facts: &Facts<'_>,
        mut passed: impl FnMut(usize, Passed<'a>),
    ) -> Result<Self, Unidentified> {
        let is_preflight = is_preflight(&asked.request.method, &asked.request.headers);
        let details = Details { supplies, asked, facts, entry: OnceCell::new(), token: OnceCell::new() };
        let mut checks = Self::default();
        for &index in &asked.route.policies {
            let Some(policy) = rules.policies.get(index) else { continue };
            if is_preflight && !policy.preflight {
                passed(index, Passed::Preflight);
                continue;
            }
            if let Some(of) = policy.exempt.iter().find(|of| applies(of, facts, asked.address)) {
                passed(index, Passed::Exempt(of));
                continue;
            }
            match checks.add(index, policy, &details) {
                Err(MissingIdentifier) if policy.is_shadow => checks.denied_in_shadow.push(index),
                Err(MissingIdentifier) => return Err(Unidentified(index)),
                Ok(true) => {}
                Ok(false) => passed(index, Passed::NoValue),
            }
        }
        Ok(checks)
    }

    /// What the policies that are enforced say, as `decision` has it.
    pub(super) fn said(&self, decision: &Decision) -> impl Iterator<Item = Said> {
        let each = self.all.iter().zip(&self.limits).zip(&decision.verdicts);
        let enforced = each.filter(|((check, _), _)| !check.policy.is_shadow);
        enforced.map(|((check, limits), verdict)| Said::of(check, *limits, *verdict))
    }

    /// Whether something of what they take may have to be refunded.
    pub(super) fn may_refund(&self) -> bool {
        self.all.iter().any(|check| check.policy.may_refund())
    }

    /// Whether there was something to check.
    fn add<T: Fn() -> i64>(
        &mut self,
        index: usize,
        policy: &'a Policy,
        details: &Details<'_, T>,
    ) -> Result<bool, MissingIdentifier> {
        let Details { asked, facts, .. } = *details;
        let place = policy.overrides.iter().position(|(of, _)| applies(of, facts, asked.address));
        let variant = place.map_or(0, |place| place + 1);
        let policy =
            place.and_then(|place| policy.overrides.get(place)).map_or(policy, |(_, variant)| variant);
        let identifiers = identifiers(&policy.keys, policy.missing, facts)?;
        let Some(detail) = details.of(policy)? else { return Ok(false) };
        let cost = cost::units(&policy.cost, facts.headers, facts.is_peer_trusted);
        for identifier in identifiers {
            self.all.push(Check { policy, identifier, cost, detail: detail.clone() });
            self.limits.push(Limits { policy: index, variant });
        }
        Ok(true)
    }
}

/// What checks take beside their cost: one entry and one token a request, made when they are needed.
struct Details<'a, T> {
    supplies: &'a Supplies<'a, T>,
    asked: &'a Asked<'a>,
    facts: &'a Facts<'a>,
    entry: OnceCell<Arc<Entry>>,
    token: OnceCell<Member>,
}

impl<T: Fn() -> i64> Details<'_, T> {
    /// What checks of this policy take. `None`: there is nothing to check.
    fn of(&self, policy: &Policy) -> Result<Option<Detail>, MissingIdentifier> {
        Ok(Some(match policy.kind {
            Kind::MetadataList => {
                let Supplies { time, names, .. } = self.supplies;
                let written_down = || written_down(time(), self.asked, names);
                Detail::Entry(Arc::clone(self.entry.get_or_init(written_down)))
            }
            Kind::Concurrency => Detail::Member(*self.token.get_or_init(|| self.supplies.tokens.draw())),
            Kind::Distinct => match &policy.value {
                Some(recipe) => match value(recipe, policy.missing, self.facts)? {
                    Some(value) => Detail::Member(hashed(value.as_bytes())),
                    None => return Ok(None),
                },
                None => return Ok(None),
            },
            _ => Detail::None,
        }))
    }
}

/// Half of the value's SHA-256: nobody finds two values that are one, and no store learns whose they are.
fn hashed(value: &[u8]) -> Member {
    let hash = Sha256::digest(value);
    hash.iter().take(size_of::<Member>()).fold(0, |member, byte| member << 8 | Member::from(*byte))
}

/// A CORS preflight (Fetch, 4.8), which browsers send of their own accord.
fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    *method == Method::OPTIONS
        && headers.contains_key(header::ORIGIN)
        && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}
