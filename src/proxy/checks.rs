//! The checks of a request: each policy of its route, with the limits that apply to this request, for each
//! identifier.

use std::{cell::OnceCell, sync::Arc};

use http::{HeaderMap, HeaderName};
use sha2::{Digest, Sha256};
use smallvec::SmallVec;

use super::{
    cors::is_preflight,
    outcome::{CheckOutcome, PolicyOutcome, VariantRef},
    request_context::RequestContext,
    reservation::LeaseTokens,
};
use crate::{
    config::model::{
        ATTEMPTS_POLICY, Condition, Cost, KeyPart, KeyRecipe, Missing, Reserve, ResponseCost, RouteAction,
        RoutePolicy,
    },
    identity::{MissingIdentifier, RequestAttributes, condition_matches, distinct_value, identifiers},
    limit::{
        Check, Decision, Policy,
        algorithm::{Detail, Kind, Member, metadata_list::Entry},
    },
    request_values::{Members, UnreadableBody, is_in_background},
};

/// Bytes of a body that make about one token.
pub(super) const BYTES_PER_TOKEN: u64 = 4;

/// Inputs of checks that do not come from the request.
pub struct CheckInputs<'a> {
    /// When the request was received, in microseconds since the Unix epoch.
    pub time: i64,
    pub tokens: &'a LeaseTokens,
}

/// The checks of one request.
#[derive(Default)]
pub struct Checks<'a> {
    checks: SmallVec<[Check<'a>; 2]>,
    /// The limits of each check. Kept beside the checks, because a store takes a slice of checks.
    variants: SmallVec<[VariantRef; 2]>,
    /// Shadow policies that would deny the request without asking the store, because it lacks the value that
    /// identifies it.
    pub(super) denied_in_shadow: SmallVec<[usize; 1]>,
    /// The policies of the route that do not apply to the request.
    pub skipped: SmallVec<[(usize, SkipReason<'a>); 1]>,
    /// The enforced policy that denies the request, because it lacks the value that identifies it (`missing: deny`).
    /// There are no checks of the policies after it.
    pub(super) unidentified: Option<usize>,
    /// Whether the request's body is received before the decision.
    pub(super) reads_request: bool,
    /// Whether members of it say how much to reserve, or whether the response is asked for its usage.
    pub(super) reads_members: bool,
    /// Bytes of the request's body, as the client has sent it, if it was read.
    pub(super) request_bytes: Option<u64>,
    /// The most units of output that the request's body asks for, if it was read and says so.
    pub(super) max_output: Option<u64>,
}

/// Why a policy of the route does not apply to the request.
#[derive(Debug, Clone, Copy)]
pub enum SkipReason<'a> {
    /// It is a CORS preflight.
    Preflight,
    /// It meets a condition of `exempt`, or its plan has no limit.
    Exempt(&'a Condition),
    /// It lacks the value that `distinct` counts, under these limits.
    NoValue(VariantRef),
    /// It has no body, so that no language model responds.
    NoBody,
    /// Its route shows the usage of limits: it takes nothing from limits of the key's holder, nor units that upstreams'
    /// responses cost.
    Usage,
}

impl<'a> Checks<'a> {
    /// The checks of a request. Inlined into its one caller, which saves a copy.
    #[inline(always)]
    pub(super) fn new(inputs: &CheckInputs<'_>, context: &RequestContext<'a, '_>) -> Self {
        let is_preflight = is_preflight(context.request(), context.route);
        let is_usage = context.route.action == RouteAction::Usage;
        let details = Details { inputs, context, entry: OnceCell::new(), token: OnceCell::new() };
        let mut checks = Self::default();
        for &RoutePolicy { policy: index, price } in &context.route.policies {
            let Some(policy) = context.rules.policies.get(index) else { continue };
            if is_preflight && !policy.preflight {
                checks.skipped.push((index, SkipReason::Preflight));
                continue;
            }
            if is_usage && counts_no_usage_request(policy) {
                checks.skipped.push((index, SkipReason::Usage));
                continue;
            }
            let price = price.or(is_usage.then_some(1));
            match checks.add(index, policy, price, &details) {
                Err(MissingIdentifier) if policy.is_shadow => checks.denied_in_shadow.push(index),
                Err(MissingIdentifier) => {
                    checks.unidentified = Some(index);
                    break;
                }
                Ok(None) => {}
                Ok(Some(skipped)) => checks.skipped.push((index, skipped)),
            }
        }
        checks
    }

    /// The check of a request whose credential is wrong: it is counted by address.
    pub(super) fn of_attempt(inputs: &CheckInputs<'_>, context: &RequestContext<'a, '_>) -> Self {
        let details = Details { inputs, context, entry: OnceCell::new(), token: OnceCell::new() };
        let mut checks = Self::default();
        let last = context.rules.policies.iter().enumerate().last();
        if let Some((index, policy)) = last.filter(|(_, policy)| policy.name == ATTEMPTS_POLICY) {
            // Every request has an address.
            let _identified = checks.add(index, policy, None, &details);
        }
        checks
    }

    /// The checks in the form that a store takes.
    pub(super) fn as_slice(&self) -> &[Check<'a>] {
        &self.checks
    }

    /// Each check with its limits.
    pub fn iter(&self) -> impl Iterator<Item = (&Check<'a>, VariantRef)> {
        self.checks.iter().zip(self.variants.iter().copied())
    }

    /// Each check with its limits and its verdict in `decision`.
    pub(super) fn outcomes<'c>(&'c self, decision: &'c Decision) -> impl Iterator<Item = CheckOutcome<'c>> {
        let checks = self.checks.iter().zip(&self.variants).zip(&decision.verdicts);
        checks.map(|((check, &variant), &verdict)| CheckOutcome { check, variant, verdict })
    }

    /// The outcomes of the enforced policies in `decision`.
    pub(super) fn enforced_outcomes<'c>(
        &'c self,
        decision: &'c Decision,
    ) -> impl Iterator<Item = PolicyOutcome> {
        let enforced = self.outcomes(decision).filter(|outcome| !outcome.check.policy.is_shadow);
        enforced.map(PolicyOutcome::from)
    }

    /// Whether some of the units taken may have to be refunded.
    pub(super) fn may_refund(&self) -> bool {
        self.checks.iter().any(|check| check.policy.may_refund())
    }

    /// The checks, with the least that a request costs whose response tells its cost.
    pub(super) fn with_least_costs(&self) -> SmallVec<[Check<'a>; 2]> {
        let least = |check: &Check<'a>| match check.policy.cost.of_response() {
            Some(_) => Check { cost: 1, ..check.clone() },
            None => check.clone(),
        };
        self.checks.iter().map(least).collect()
    }

    /// The longest request body that is read for a reservation, in bytes.
    pub(super) fn longest_request(&self) -> usize {
        let costs = self.checks.iter().filter_map(|check| check.policy.cost.of_response());
        costs.map(|cost| cost.max_request).max().unwrap_or_default()
    }

    /// Sets the reservations by the uses of the request's body, and its `length` in bytes. The policies to which a request
    /// without a body costs nothing do not apply.
    ///
    /// # Errors
    /// A member is something else than it may be, or the request asks for more than it may.
    pub(super) fn reserve(&mut self, uses: &[Members<'_, '_>], length: u64) -> Result<(), UnreadableBody> {
        self.request_bytes = Some(length);
        if length == 0 {
            self.remove(|cost| cost.has_preset());
        }
        let mut is_first = true;
        for check in &mut self.checks {
            let Some(cost) = check.policy.cost.of_response() else { continue };
            let Reserve { bounds, default, max, prompt, .. } = &cost.reserve;
            let (mut output, mut bound, mut is_told_later) = (0_u64, Some(0_u64), false);
            for members in uses {
                let asked = bounds.as_ref().map(|bounds| bounds.asked(members)).transpose()?;
                let responses = asked.map_or(1, |asked| asked.responses);
                let each = asked.and_then(|asked| asked.bound).unwrap_or(*default);
                output = output.saturating_add(each.saturating_mul(responses));
                let is_bounded = asked.is_some_and(|asked| asked.is_bounded);
                bound = bound
                    .filter(|_| is_bounded)
                    .map(|bound| bound.saturating_add(each.saturating_mul(responses)));
                is_told_later |= cost.is_of_openai() && is_in_background(members);
            }
            if let Some(most) = cost.most.filter(|most| output.min(*max) > *most) {
                return Err(UnreadableBody::asks_for_too_much(output, most));
            }
            self.max_output =
                if is_first { bound } else { self.max_output.zip(bound).map(|(one, other)| one.max(other)) };
            is_first = false;
            let prompt = if *prompt { length / BYTES_PER_TOKEN } else { 0 };
            let least = if is_told_later { cost.reserve.of_unknown() } else { 0 };
            let units = output.saturating_add(prompt).min(*max).max(least);
            check.cost = units.clamp(1, check.policy.most_admissible().max(1));
        }
        Ok(())
    }

    /// Removes the checks of policies whose responses would have told the cost: the request is not forwarded.
    pub(super) fn remove_response_costs(&mut self) {
        self.remove(|_| true);
    }

    /// Removes the checks of policies with such a cost.
    fn remove(&mut self, is_removed: impl Fn(&ResponseCost) -> bool) {
        let stays = |check: &Check<'_>| !check.policy.cost.of_response().is_some_and(|cost| is_removed(cost));
        let mut stay: SmallVec<[bool; 4]> = self.checks.iter().map(stays).collect();
        self.checks.retain(|check| stays(check));
        self.variants.retain(|_| stay.remove(0));
    }

    /// Whether the upstream is asked for the usage of a stream.
    pub(super) fn asks_for_usage(&self) -> bool {
        self.checks.iter().any(|check| check.policy.cost.of_response().is_some_and(|cost| cost.asks()))
    }

    /// Adds the checks of one policy, or returns why there is none. `price`: the route's own
    /// cost in place of the policy's.
    fn add(
        &mut self,
        index: usize,
        policy: &'a Policy,
        price: Option<u64>,
        details: &Details<'_, '_, '_>,
    ) -> Result<Option<SkipReason<'a>>, MissingIdentifier> {
        let attributes = details.context.attributes();
        let (variant, policy) = match policy.applicable(|of| is_met(of, details.context)) {
            Ok((variant, limits)) => (VariantRef { policy: index, variant }, limits),
            Err(condition) => return Ok(Some(SkipReason::Exempt(condition))),
        };
        let identifiers = identifiers(&policy.keys, policy.missing, attributes)?;
        let Some(detail) = details.detail(policy)? else { return Ok(Some(SkipReason::NoValue(variant))) };
        if policy.cost.of_response().is_some_and(|cost| cost.has_preset())
            && details.context.is_without_body()
        {
            return Ok(Some(SkipReason::NoBody));
        }
        let cost = match (price, &policy.cost) {
            (Some(price), _) => price,
            (None, Cost::Fixed(units)) => *units,
            (None, Cost::Header { name, default, max }) => {
                cost_in_header(attributes.headers, attributes.is_peer_trusted, (name, *default, *max))
            }
            (None, Cost::Response(cost)) => {
                self.reads_request |= cost.reads_request();
                self.reads_members |= cost.reads_members();
                // A plan's limit may be less.
                cost.reserve.default.min(policy.most_admissible())
            }
        };
        for identifier in identifiers {
            self.checks.push(Check { policy, identifier, cost, detail: detail.clone() });
            self.variants.push(variant);
        }
        Ok(None)
    }
}

/// Whether this policy skips requests to routes that show usage: it limits the key's holder, or counts units that upstreams'
/// responses cost.
fn counts_no_usage_request(policy: &Policy) -> bool {
    let is_holders = |part: &KeyPart| matches!(part, KeyPart::OfKey(_) | KeyPart::User);
    let is_of_holder = |key: &KeyRecipe| key.0.iter().any(is_holders) && !key.0.contains(&KeyPart::Ip);
    policy.cost.of_response().is_some() || policy.keys.iter().any(is_of_holder)
}

/// Inputs of checks beside their cost: one entry and one token per request, made when the first check needs it.
struct Details<'d, 'r, 'a> {
    inputs: &'d CheckInputs<'d>,
    context: &'d RequestContext<'r, 'a>,
    entry: OnceCell<Arc<Entry>>,
    token: OnceCell<Member>,
}

impl Details<'_, '_, '_> {
    /// The input of checks of `policy`. `None`: there is nothing to check.
    fn detail(&self, policy: &Policy) -> Result<Option<Detail>, MissingIdentifier> {
        Ok(Some(match policy.kind {
            Kind::MetadataList { .. } => {
                Detail::Entry(Arc::clone(self.entry.get_or_init(|| self.context.evidence(self.inputs.time))))
            }
            Kind::Concurrency => Detail::Member(*self.token.get_or_init(|| self.inputs.tokens.draw())),
            Kind::Distinct => return distinct_detail(policy, policy.missing, self.context.attributes()),
            _ => Detail::None,
        }))
    }
}

/// The value that `policy` counts, as the input of its checks. `missing`: the rule for a request that lacks it. `None`:
/// there is nothing to check.
pub fn distinct_detail(
    policy: &Policy,
    missing: Missing,
    attributes: &RequestAttributes<'_>,
) -> Result<Option<Detail>, MissingIdentifier> {
    let Some(recipe) = &policy.value else { return Ok(None) };
    let value = distinct_value(recipe, missing, attributes)?;
    Ok(value.map(|value| Detail::Member(hash(value.as_bytes()))))
}

/// Whether the request meets `condition`.
pub(super) fn is_met(condition: &Condition, context: &RequestContext<'_, '_>) -> bool {
    condition_matches(condition, context.attributes(), context.known_address())
}

/// Half of the value's SHA-256: values do not collide, and the store does not see them.
fn hash(value: &[u8]) -> Member {
    let hash = Sha256::digest(value);
    hash.iter().take(size_of::<Member>()).fold(0, |member, byte| member << 8 | Member::from(*byte))
}

/// The units that a request with these `headers` costs. The header counts only if a trusted proxy sends it with one
/// whole number. The cost is at least 1: with 0, the request would bypass the limit.
fn cost_in_header(
    headers: &HeaderMap,
    is_peer_trusted: bool,
    (name, default, max): (&HeaderName, u64, u64),
) -> u64 {
    let mut lines = headers.get_all(name).iter();
    let sent = match (lines.next(), lines.next()) {
        (Some(only), None) if is_peer_trusted => number(only.as_bytes().trim_ascii()),
        _ => None,
    };
    sent.map_or(default, |units| units.clamp(1, max.max(1)))
}

/// Parses decimal digits only, saturating.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |sum, byte| match byte {
        b'0'..=b'9' => Some(sum.saturating_mul(10).saturating_add(u64::from(byte - b'0'))),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_cost_that_a_trusted_proxy_sends_counts_within_bounds() {
        let name = HeaderName::from_static("x-cost");
        let units = |lines: &[&'static str], trusted| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(&name, HeaderValue::from_static(line));
            }
            cost_in_header(&headers, trusted, (&name, 3, 100))
        };
        assert_eq!(units(&["7"], true), 7);
        assert_eq!(units(&["7"], false), 3, "a client chooses nothing");
        assert_eq!([units(&["0"], true), units(&["101"], true)], [1, 100]);
        assert_eq!(units(&["99999999999999999999999"], true), 100);
        for lines in [&[][..], &[""], &["7", "7"], &["7, 8"], &["-1"], &["+1"], &["1.5"], &["x"]] {
            assert_eq!(units(lines, true), 3, "{lines:?}");
        }
    }
}
