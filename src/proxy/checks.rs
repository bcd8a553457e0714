//! The checks of a request: each policy of its route, with the limits that apply to this request, for each
//! identifier.

use std::{cell::OnceCell, sync::Arc};

use compact_str::CompactString;
use http::{HeaderMap, HeaderName};
use sha2::{Digest, Sha256};
use smallvec::SmallVec;

use super::{
    cors::is_preflight,
    outcome::{CheckOutcome, PolicyOutcome, VariantRef},
    read_request::{ReadRequest, ReceivedPart, RequestUse},
    request_context::RequestContext,
    reservation::LeaseTokens,
};
use crate::{
    config::model::{
        ATTEMPTS_POLICY, Condition, Cost, DEFAULT_MAX_REQUEST, KeyPart, KeyRecipe, Missing, Reserve,
        ResponseCost, RouteAction, RoutePolicy,
    },
    history::ChargedUnits,
    identity::{MissingIdentifier, RequestAttributes, condition_matches, distinct_value, identifiers},
    limit::{
        Check, Decision, Policy,
        algorithm::{Detail, Kind, Member, metadata_list::Entry},
    },
    request_values::{BodyRefusal, is_in_background},
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
#[derive(Default, Clone)]
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
    /// What policies that exempt the request would have counted, for its usage. Empty if none is recorded.
    uncounted: Vec<(Check<'a>, VariantRef)>,
    /// Whether a policy that counts the request reads it.
    reads_counted: bool,
    /// Policies that wait for values of the request.
    awaiting: SmallVec<[RoutePolicy; 1]>,
    /// Whether the request is read before the decision.
    pub(super) reads_request: bool,
    /// Whether members of its body say how much to reserve, or whether the response is asked for its usage.
    pub(super) reads_costs: bool,
    /// Whether the body says values of the request.
    pub(super) reads_values: bool,
    /// Whether reservations depend on the length of the body.
    pub(super) reserves_by_length: bool,
    /// Bytes of the request's body, as the client has sent it, if it was read.
    pub(super) request_bytes: Option<u64>,
    /// The most units of output that the request's body asks for, if it was read and says so.
    pub(super) max_output: Option<u64>,
    /// Whether another proxy asks about the request: it does not wait.
    pub(super) is_question: bool,
}

/// Which uses of a request a check is for: one bit each.
#[derive(Debug, Clone, Copy)]
pub(super) struct Uses(u64);

impl Uses {
    const ALL: Self = Self(u64::MAX);

    fn only(nth: usize) -> Self {
        Self(1_u64.checked_shl(nth as u32).unwrap_or_default())
    }

    fn has(self, nth: usize) -> bool {
        self.0 & Self::only(nth).0 != 0
    }

    fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// What a use of a request, or several, asks for under a cost.
struct AskedUnits {
    /// Units of output.
    output: u64,
    /// The same, if each use bounds it.
    bound: Option<u64>,
    /// Whether a response does not tell its cost, but a later one.
    is_told_later: bool,
}

impl AskedUnits {
    fn of(cost: &ResponseCost, RequestUse { members, .. }: &RequestUse<'_, '_>) -> Result<Self, BodyRefusal> {
        let asked = cost.reserve.bounds.as_ref().map(|bounds| bounds.asked(members)).transpose()?;
        let responses = asked.map_or(1, |asked| asked.responses);
        let output =
            asked.and_then(|asked| asked.bound).unwrap_or(cost.reserve.default).saturating_mul(responses);
        let bound = asked.filter(|asked| asked.is_bounded).map(|_| output);
        Ok(Self { output, bound, is_told_later: cost.is_of_openai() && is_in_background(members) })
    }

    /// The units to reserve for a request whose body has this `length`.
    fn units(&self, cost: &ResponseCost, length: u64) -> u64 {
        let Reserve { max, prompt, .. } = &cost.reserve;
        let prompt = if *prompt { length / BYTES_PER_TOKEN } else { 0 };
        let least = if self.is_told_later { cost.reserve.of_unknown() } else { 0 };
        self.output.saturating_add(prompt).min(*max).max(least)
    }

    fn sum<'u>(all: impl Iterator<Item = &'u Self>) -> Self {
        all.fold(Self { output: 0, bound: Some(0), is_told_later: false }, |sum, of| Self {
            output: sum.output.saturating_add(of.output),
            bound: sum.bound.zip(of.bound).map(|(one, other)| one.saturating_add(other)),
            is_told_later: sum.is_told_later | of.is_told_later,
        })
    }
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
    /// It lacks the values that its keys name, under these limits.
    LacksValues(VariantRef),
    /// Another proxy asks about the request, and the policy needs its response, its body, or to know when it ends.
    Question,
    /// Its route shows the usage of limits: it takes nothing from limits of the key's holder, nor units that upstreams'
    /// responses cost.
    Usage,
}

impl<'a> Checks<'a> {
    /// The checks of a request. Inlined into its one caller, which saves a copy.
    #[inline(always)]
    pub(super) fn new(inputs: &CheckInputs<'_>, context: &RequestContext<'a, '_>) -> Self {
        let is_preflight = is_preflight(context.request(), context.route);
        let is_question = context.facts.question.is_some();
        let is_usage = context.route.action == RouteAction::Usage && !is_question;
        let details = Details { inputs, context, entry: OnceCell::new(), token: OnceCell::new() };
        let mut checks = Self { is_question, ..Self::default() };
        // Browsers send preflights without a body.
        let asks_values = !is_preflight && !context.asked_values().is_empty();
        if asks_values {
            checks.reads_request = true;
            checks.reads_values = context.values_need_body();
        }
        for &RoutePolicy { policy: index, price } in &context.route.policies {
            let policies = if is_question { &context.rules.undelayed } else { &context.rules.policies };
            let Some(policy) = policies.get(index) else { continue };
            if is_question && context.needs_more_than_head(policy) {
                checks.skipped.push((index, SkipReason::Question));
                continue;
            }
            if is_preflight && !policy.preflight {
                checks.skipped.push((index, SkipReason::Preflight));
                continue;
            }
            if is_usage && counts_no_usage_request(policy) {
                checks.skipped.push((index, SkipReason::Usage));
                continue;
            }
            let price = price.or(is_usage.then_some(1));
            if asks_values && !policy.value_names.is_empty() {
                if let Some(cost) = policy.cost.of_response() {
                    checks.note_cost(cost);
                }
                checks.awaiting.push(RoutePolicy { policy: index, price });
                continue;
            }
            match checks.add(index, policy, price, &details, context.attributes()) {
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
            let _identified = checks.add(index, policy, None, &details, context.attributes());
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

    /// Each check, to be changed, with its limits.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&mut Check<'a>, VariantRef)> {
        self.checks.iter_mut().zip(self.variants.iter().copied())
    }

    /// Adds `check` of another request with which this one is decided. If there is one of the same limit, its cost grows.
    /// Returns the index of the check; `None`: the other one counts another value.
    pub(super) fn add_or_merge(&mut self, check: &Check<'a>, variant: VariantRef) -> Option<usize> {
        self.is_question = true;
        let is_same = |(other, of): (&Check<'a>, VariantRef)| {
            (of.policy, of.variant) == (variant.policy, variant.variant)
                && other.identifier == check.identifier
        };
        let Some(nth) = self.iter().position(is_same) else {
            self.checks.push(check.clone());
            self.variants.push(variant);
            return Some(self.checks.len() - 1);
        };
        let other = &mut self.checks[nth];
        match (&other.detail, &check.detail) {
            (Detail::Member(one), Detail::Member(another)) if one != another => return None,
            (Detail::Member(_), _) => {}
            _ => other.cost = other.cost.saturating_add(check.cost),
        }
        Some(nth)
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

    /// Whether the request is read for its usage alone. Then nothing in it can be wrong.
    pub(super) fn reads_for_usage_alone(&self) -> bool {
        !self.uncounted.is_empty() && !self.reads_counted && !self.reads_values && self.awaiting.is_empty()
    }

    /// The longest request that is read for its usage alone, in bytes.
    pub(super) fn longest_for_usage(&self) -> usize {
        let costs = self.uncounted.iter().filter_map(|(check, _)| check.policy.cost.of_response());
        costs.map(|cost| cost.max_request).max().unwrap_or_default()
    }

    /// What policies that exempt the request would have counted, for its usage.
    pub(super) fn uncounted(&self) -> &[(Check<'a>, VariantRef)] {
        &self.uncounted
    }

    /// Whether the usage that no policy counts depends on the response.
    pub(super) fn settles_uncounted(&self) -> bool {
        self.uncounted.iter().any(|(check, _)| check.policy.may_refund())
    }

    /// The units of a request whose usage does not depend on its response, by policy.
    pub(super) fn fixed_units(&self) -> ChargedUnits {
        let mut units = ChargedUnits::new();
        let uncounted = self.uncounted.iter().map(|(check, variant)| (check, *variant));
        for (check, variant) in self.iter().chain(uncounted) {
            let is_used = !check.policy.is_shadow && !variant.is_further && has_units(check.policy);
            if is_used && check.cost > 0 {
                match units.iter_mut().find(|(policy, _)| *policy as usize == variant.policy) {
                    Some((_, sum)) => *sum = sum.saturating_add(check.cost),
                    None => units.push((variant.policy as u32, check.cost)),
                }
            }
        }
        units
    }

    /// The checks, with the least that a request costs whose response tells its cost.
    pub(super) fn with_least_costs(&self) -> SmallVec<[Check<'a>; 2]> {
        let least = |check: &Check<'a>| match check.policy.cost.of_response() {
            Some(_) => Check { cost: 1, ..check.clone() },
            None => check.clone(),
        };
        self.checks.iter().map(least).collect()
    }

    /// The longest request body that is read, in bytes. `policies`: all.
    pub(super) fn longest_request(&self, policies: &[Policy]) -> usize {
        let awaiting = self.awaiting.iter().filter_map(|of| policies.get(of.policy));
        let policies = self.checks.iter().map(|check| check.policy).chain(awaiting);
        let of_costs = policies.filter_map(|policy| policy.cost.of_response()).map(|cost| cost.max_request);
        of_costs.chain(self.reads_values.then_some(DEFAULT_MAX_REQUEST)).max().unwrap_or_default()
    }

    /// The policies that wait for values, which are not known.
    pub(super) fn take_awaiting(&mut self) -> SmallVec<[usize; 1]> {
        self.awaiting.drain(..).map(|of| of.policy).collect()
    }

    /// Whether something of the body is read.
    pub(super) fn reads_members(&self) -> bool {
        self.reads_costs || self.reads_values
    }

    /// Adds the checks of the policies that wait for the values of the request, and sets the reservations by what was `read`
    /// and by what was `received` of its body. The policies to which a request without a body costs nothing do not apply.
    ///
    /// # Errors
    /// A member is something else than it may be, or the request asks for more than it may.
    pub(super) fn complete(
        &mut self,
        read: &ReadRequest<'_, '_>,
        received: ReceivedPart<'_>,
        inputs: &CheckInputs<'_>,
        context: &RequestContext<'a, '_>,
    ) -> Result<(), BodyRefusal> {
        let is_empty = received.is_whole && received.least_length == 0 && !context.asks_for_tunnel();
        let mut uses = self.add_awaiting(read, inputs, context)?;
        if is_empty {
            let is_removed =
                |check: &Check<'_>| check.policy.cost.of_response().is_some_and(|cost| cost.has_preset());
            let mut of_checks = self.checks.iter();
            uses.retain(|_| !of_checks.next().is_some_and(is_removed));
            self.remove(|cost| cost.has_preset());
        }
        self.reserve(read, &uses, received.least_length)
    }

    /// Adds the checks of the policies that wait for values: one for each limit, identifier and value that is counted. Returns
    /// for each check which uses of the request it is for.
    pub(super) fn add_awaiting(
        &mut self,
        read: &ReadRequest<'_, '_>,
        inputs: &CheckInputs<'_>,
        context: &RequestContext<'a, '_>,
    ) -> Result<SmallVec<[Uses; 2]>, BodyRefusal> {
        let mut uses: SmallVec<[Uses; 2]> = self.checks.iter().map(|_| Uses::ALL).collect();
        let details = Details { inputs, context, entry: OnceCell::new(), token: OnceCell::new() };
        for RoutePolicy { policy: index, price } in std::mem::take(&mut self.awaiting) {
            let policies = if self.is_question { &context.rules.undelayed } else { &context.rules.policies };
            let Some(policy) = policies.get(index) else { continue };
            let (first, mut skipped) = (self.checks.len(), None);
            for (nth, RequestUse { values, .. }) in read.uses.iter().enumerate() {
                let attributes = RequestAttributes { values, ..*context.attributes() };
                let before = self.checks.len();
                match self.add(index, policy, price, &details, &attributes) {
                    Err(MissingIdentifier) if policy.is_shadow => {
                        self.denied_in_shadow.push(index);
                        self.checks.truncate(first);
                        self.variants.truncate(first);
                        break;
                    }
                    Err(MissingIdentifier) => {
                        self.unidentified = Some(index);
                        return Ok(uses);
                    }
                    Ok(reason) => skipped = skipped.or(reason),
                }
                uses.resize(self.checks.len(), Uses::only(nth));
                self.merge(first, before, &mut uses)?;
            }
            uses.truncate(self.checks.len());
            if self.checks.len() == first {
                self.skipped.extend(skipped.map(|reason| (index, reason)));
            }
        }
        Ok(uses)
    }

    /// Merges the checks from `before` on into those from `first` on that have the same limit.
    ///
    /// # Errors
    /// One of them counts another value than the other: a limit is checked once in a request.
    fn merge(
        &mut self,
        first: usize,
        before: usize,
        uses: &mut SmallVec<[Uses; 2]>,
    ) -> Result<(), BodyRefusal> {
        let mut nth = before;
        while let Some(check) = self.checks.get(nth) {
            let is_equal = |other: usize| {
                let (one, is_same) =
                    (&self.checks[other], self.variants[other].variant == self.variants[nth].variant);
                is_same && one.identifier == check.identifier
            };
            let Some(equal) = (first..before).find(|other| is_equal(*other)) else {
                nth += 1;
                continue;
            };
            if self.checks[equal].detail != check.detail {
                return Err(BodyRefusal::several_values(&check.policy.name));
            }
            if !matches!(check.policy.kind, Kind::Concurrency | Kind::Distinct) {
                self.checks[equal].cost = self.checks[equal].cost.saturating_add(self.checks[nth].cost);
            }
            let merged = uses[nth];
            uses[equal].add(merged);
            self.variants[equal].is_further &= self.variants[nth].is_further;
            self.checks.remove(nth);
            self.variants.remove(nth);
            uses.remove(nth);
        }
        Ok(())
    }

    /// Sets the reservations by the `uses` of each check.
    fn reserve(&mut self, read: &ReadRequest<'_, '_>, uses: &[Uses], length: u64) -> Result<(), BodyRefusal> {
        self.request_bytes = Some(length);
        let mut bounds = SmallVec::<[Option<u64>; 2]>::new();
        let (mut policy, mut each) = (None, SmallVec::<[AskedUnits; 1]>::new());
        for ((check, variant), of_check) in self.checks.iter_mut().zip(&self.variants).zip(uses) {
            let Some(cost) = check.policy.cost.of_response() else { continue };
            let Reserve { max, .. } = &cost.reserve;
            // A policy's checks follow each other.
            if policy.replace(variant.policy) != Some(variant.policy) {
                each = read.uses.iter().map(|of| AskedUnits::of(cost, of)).collect::<Result<_, _>>()?;
                // The response is that to all calls of a batch.
                bounds.push(AskedUnits::sum(each.iter()).bound);
            }
            let asked = AskedUnits::sum(
                each.iter().enumerate().filter(|(nth, _)| of_check.has(*nth)).map(|(_, of)| of),
            );
            if let Some(most) = cost.most.filter(|most| asked.output.min(*max) > *most) {
                return Err(BodyRefusal::asks_for_too_much(asked.output, most));
            }
            check.cost = asked.units(cost, length).clamp(1, check.policy.most_admissible().max(1));
        }
        for (check, _) in &mut self.uncounted {
            let Some(cost) = check.policy.cost.of_response() else { continue };
            // Nothing holds the request against a limit: what it asks for can't be too much, or wrong.
            let each = read.uses.iter().map(|of| AskedUnits::of(cost, of));
            if let Ok(each) = each.collect::<Result<SmallVec<[AskedUnits; 1]>, _>>() {
                let asked = AskedUnits::sum(each.iter());
                bounds.push(asked.bound);
                check.cost = asked.units(cost, length).max(1);
            }
        }
        self.max_output =
            bounds.into_iter().collect::<Option<SmallVec<[u64; 2]>>>().and_then(|all| all.into_iter().max());
        Ok(())
    }

    /// Removes the checks of policies whose responses would have told the cost, or that wait for values: the request is not
    /// forwarded.
    pub(super) fn remove_response_costs(&mut self) {
        self.awaiting.clear();
        self.remove(|_| true);
    }

    /// Removes the checks of policies with such a cost.
    fn remove(&mut self, is_removed: impl Fn(&ResponseCost) -> bool) {
        let stays = |check: &Check<'_>| !check.policy.cost.of_response().is_some_and(|cost| is_removed(cost));
        self.uncounted.retain(|(check, _)| stays(check));
        let mut stay: SmallVec<[bool; 4]> = self.checks.iter().map(stays).collect();
        self.checks.retain(|check| stays(check));
        self.variants.retain(|_| stay.remove(0));
    }

    /// Whether the upstream is asked for the usage of a stream.
    pub(super) fn asks_for_usage(&self) -> bool {
        let uncounted = self.uncounted.iter().map(|(check, _)| check);
        let mut all = self.checks.iter().chain(uncounted);
        all.any(|check| check.policy.cost.of_response().is_some_and(|cost| cost.asks()))
    }

    /// Notes what a `cost` needs of the request.
    fn note_cost(&mut self, cost: &ResponseCost) {
        self.reads_request |= cost.reads_request();
        self.reads_counted |= cost.reads_request() || cost.reserve.prompt;
        self.reads_costs |= cost.reads_members();
        self.reserves_by_length |= cost.reserve.prompt;
    }

    /// Adds the checks of one policy, or returns why there is none. `price`: the route's own
    /// cost in place of the policy's. `attributes`: of the request, or of one call of its batch.
    fn add(
        &mut self,
        index: usize,
        policy: &'a Policy,
        price: Option<u64>,
        details: &Details<'_, '_, '_>,
        attributes: &RequestAttributes<'_>,
    ) -> Result<Option<SkipReason<'a>>, MissingIdentifier> {
        let address = details.context.known_address();
        let (variant, policy) = match policy.applicable(|of| condition_matches(of, attributes, address)) {
            Ok((variant, limits)) => {
                (VariantRef { policy: index, variant: variant as u32, is_further: false }, limits)
            }
            Err(condition) => {
                if details.context.rules.records_usage && !policy.is_shadow {
                    self.add_uncounted(index, policy, price, details, attributes);
                }
                return Ok(Some(SkipReason::Exempt(condition)));
            }
        };
        if policy.cost.of_response().is_some_and(|cost| cost.has_preset())
            && details.context.is_without_body()
        {
            return Ok(Some(SkipReason::NoBody));
        }
        let identifiers = identifiers(&policy.keys, policy.missing, attributes)?;
        if identifiers.is_empty() {
            return Ok(Some(SkipReason::LacksValues(variant)));
        }
        let Some(detail) = details.detail(policy, attributes)? else {
            return Ok(Some(SkipReason::NoValue(variant)));
        };
        // A plan's limit may be less.
        let cost = self.cost_of(policy, price, attributes).min(match policy.cost.of_response() {
            Some(_) if price.is_none() => policy.most_admissible(),
            _ => u64::MAX,
        });
        for (nth, identifier) in identifiers.into_iter().enumerate() {
            self.checks.push(Check { policy, identifier, cost, detail: detail.clone() });
            self.variants.push(VariantRef { is_further: nth > 0, ..variant });
        }
        Ok(None)
    }

    /// The units that a request costs under `policy`; for a cost that the response tells, those to reserve.
    #[inline]
    fn cost_of(&mut self, policy: &Policy, price: Option<u64>, attributes: &RequestAttributes<'_>) -> u64 {
        match (price, &policy.cost) {
            (Some(price), _) => price,
            (None, Cost::Fixed(units)) => *units,
            (None, cost) => self.told_cost(cost, attributes),
        }
    }

    /// The units of a cost that the request or its response tells.
    #[inline(never)]
    fn told_cost(&mut self, cost: &Cost, attributes: &RequestAttributes<'_>) -> u64 {
        match cost {
            Cost::Fixed(units) => *units,
            Cost::Header { name, default, max } => {
                cost_in_header(attributes.headers, attributes.is_peer_trusted, (name, *default, *max))
            }
            Cost::Response(cost) => {
                self.note_cost(cost);
                cost.reserve.default
            }
        }
    }

    /// Adds what `policy`, which exempts the request, would have counted.
    #[cold]
    fn add_uncounted(
        &mut self,
        index: usize,
        policy: &'a Policy,
        price: Option<u64>,
        details: &Details<'_, '_, '_>,
        attributes: &RequestAttributes<'_>,
    ) {
        let has_preset = policy.cost.of_response().is_some_and(|cost| cost.has_preset());
        if !has_units(policy) || has_preset && details.context.is_without_body() {
            return;
        }
        let reads_counted = self.reads_counted;
        let cost = self.cost_of(policy, price, attributes);
        self.reads_counted = reads_counted;
        // Of a batch, each call is asked for. The response is that to all of them.
        if let Some((known, _)) = self.uncounted.iter_mut().find(|(_, variant)| variant.policy == index) {
            if policy.cost.of_response().is_none() {
                known.cost = known.cost.saturating_add(cost);
            }
            return;
        }
        let check = Check { policy, identifier: CompactString::default(), cost, detail: Detail::None };
        self.uncounted.push((check, VariantRef { policy: index, variant: 0, is_further: false }));
    }
}

/// Whether what a policy counts are units that are used up: neither slots nor values.
pub(super) fn has_units(policy: &Policy) -> bool {
    !matches!(policy.kind, Kind::Concurrency | Kind::Distinct)
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
    fn detail(
        &self,
        policy: &Policy,
        attributes: &RequestAttributes<'_>,
    ) -> Result<Option<Detail>, MissingIdentifier> {
        Ok(Some(match policy.kind {
            Kind::MetadataList { .. } => {
                Detail::Entry(Arc::clone(self.entry.get_or_init(|| self.context.evidence(self.inputs.time))))
            }
            Kind::Concurrency => Detail::Member(*self.token.get_or_init(|| self.inputs.tokens.draw())),
            Kind::Distinct => return distinct_detail(policy, policy.missing, attributes),
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
