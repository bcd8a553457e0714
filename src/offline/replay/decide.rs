//! Replays past requests: the decisions of a configuration's policies, by the same rules as for real requests.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use compact_str::CompactString;
use http::{HeaderValue, StatusCode, header::HOST, request};
use smallvec::SmallVec;

use crate::{
    abuse::{RequestLine, is_pseudonym},
    api_keys::{ApiKey, KeyState},
    config::model::{
        Condition, Config, HeaderFrom, KeyPart, KeyRecipe, Measure, Missing, RouteAction, RoutePolicy,
        UserSource,
    },
    identity::{Identifiers, Identity, MissingIdentifier, RequestAttributes, identifier},
    limit::{
        Check, Decision, GrpcOutcome, ManualClock, Policy, ResponseStatus, Store, Taken, Unavailable,
        algorithm::{Detail, Kind},
    },
    offline::access_logs::{LoggedKey, LoggedProgress, LoggedRequest, LoggedUser},
    proxy::{
        Rules,
        explain::assume_host,
        steps::{
            CheckInputs, Checks, CorsResponse, LeaseTokens, RefusedBy, RequestContext, RequestFacts,
            SkipReason, StepHost, VariantRef, admit, distinct_detail, find, usually_has_body,
        },
    },
    request_values::{FoundValue, FoundValues, RequestValue},
    router::Target,
};

/// The log does not have the IDs of requests.
static NO_ID: HeaderValue = HeaderValue::from_static("");

/// For configurations whose routes take any host.
const ANY_HOST: HeaderValue = HeaderValue::from_static("localhost");

/// Longer than any request takes, in microseconds: a lease ends with its request.
const LEASE: i64 = 366 * 86_400_000_000;

/// The verdict on a replayed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayedVerdict {
    Admitted,
    /// Enforced policies admit it, and a shadow policy would not.
    ShadowDenied,
    Denied,
    /// `deny` or `allow` refuses its address.
    Forbidden,
    /// It is malformed, or no route matches.
    Refused,
    /// It did not reach the policies: according to the log, it was refused before.
    Unchecked,
    /// It is not decided: its route depends on the listener on which it came in, and the log does not have that.
    Unknown,
}

/// The decision of one policy on one request.
#[derive(Debug, Clone, Copy)]
pub struct ReplayedCheck<'a> {
    /// The policy's index.
    pub policy: usize,
    pub request: &'a LoggedRequest,
    pub line: RequestLine<'a>,
    /// The user, by name or in the stored form, or else the customer.
    pub user: Option<&'a str>,
    /// `None`: the log lacks a value that the policy needs. Reported once per request, if one of its keys was not
    /// checked.
    pub decided: Option<ReplayedDecision<'a>>,
}

/// The decision of one limit on one request.
#[derive(Debug, Clone, Copy)]
pub struct ReplayedDecision<'a> {
    /// `ip:203.0.113.7`
    pub key: &'a str,
    pub is_admitted: bool,
    /// Whether the request would have waited for its slot.
    pub is_delayed: bool,
    /// The tightest limit, and how much of it is used after the request.
    pub limit: u64,
    pub used: u64,
}

/// Replays past requests under the rules of one configuration.
pub struct Replay<'r, S> {
    rules: &'r Rules,
    store: &'r S,
    /// The store's clock.
    clock: &'r ManualClock,
    tokens: LeaseTokens,
    /// Whether users in the log count as verified, because each source of the configuration verifies users.
    is_user_verified: bool,
    /// Whether no route has `hosts`.
    takes_any_host: bool,
    /// What is settled at the end of requests, by the time of the end, then by number.
    unsettled: BTreeMap<(i64, u64), SmallVec<[Taken<'r>; 2]>>,
    requests: u64,
    /// Conditions that the log cannot confirm or rule out, by their policy's index and their own.
    unknown_conditions: BTreeSet<(usize, usize)>,
    /// Number of requests whose host the log does not have.
    without_host: u64,
    /// By policy, the number of admitted requests whose responses tell a cost that the log does not have.
    unknown_costs: Vec<u64>,
}

/// The facts known about a request.
struct KnownRequest<'a> {
    attributes: RequestAttributes<'a>,
    line: RequestLine<'a>,
    logged: &'a LoggedRequest,
    has_host: bool,
    /// Whether each source of the configuration verifies users.
    is_user_verified: bool,
}

/// The keys of a policy for a request, as far as the log has their values.
struct LoggedKeys {
    identifiers: Identifiers,
    /// Whether the request may have further keys, which the log does not tell.
    has_unknown: bool,
}

/// The policies of `config`, for its [`Rules`] in a replay. They skip missing values, because a log does not have all
/// values of a request. `Replayed` applies `missing` to values that the request itself lacks.
pub fn policies(config: &Config) -> Vec<Policy> {
    let mut policies = Policy::all(config.policies.iter().map(AsRef::as_ref));
    for policy in &mut policies {
        skip_missing(policy);
        policy.overrides.iter_mut().for_each(|(_, variant)| skip_missing(variant));
    }
    policies
}

fn skip_missing(policy: &mut Policy) {
    policy.missing = Missing::Skip;
    if policy.kind == Kind::Concurrency {
        policy.tiers.iter_mut().for_each(|tier| tier.window = LEASE);
    }
}

impl<'r, S: Store> Replay<'r, S> {
    /// A replay under `rules`, whose policies are [`policies`]. `store` is empty, and uses `clock`.
    pub fn new(rules: &'r Rules, store: &'r S, clock: &'r ManualClock) -> Self {
        let is_verified = |source: &UserSource| match source {
            UserSource::Header { from, .. } => *from == HeaderFrom::TrustedProxies,
            UserSource::Jwt(_) | UserSource::Tls(_) | UserSource::ApiKey(_) => true,
            UserSource::Cookie(_) | UserSource::Basic => false,
        };
        Self {
            rules,
            store,
            clock,
            tokens: LeaseTokens::new(),
            is_user_verified: rules.config().user.iter().all(is_verified),
            takes_any_host: rules.config().routes.iter().all(|route| route.hosts.is_empty()),
            unsettled: BTreeMap::new(),
            requests: 0,
            unknown_conditions: BTreeSet::new(),
            without_host: 0,
            unknown_costs: vec![0; rules.policies().len()],
        }
    }

    /// The conditions of `exempt` and `overrides` of a policy, by its index, that the log could not confirm or rule
    /// out. They were taken as not met.
    pub fn unknown_conditions(&self, policy: usize) -> Vec<String> {
        let Some(of) = self.rules.policies().get(policy) else { return Vec::new() };
        let is_unknown = |&(nth, _): &(usize, _)| self.unknown_conditions.contains(&(policy, nth));
        conditions(of).enumerate().filter(is_unknown).map(|(_, condition)| condition.to_string()).collect()
    }

    /// Number of requests that a policy, by its index, admitted and whose response tells a cost that the log does not
    /// have. They cost what they had reserved.
    pub fn unknown_costs(&self, policy: usize) -> u64 {
        self.unknown_costs.get(policy).copied().unwrap_or_default()
    }

    /// Number of requests that were assigned to the host of the first matching route, because the log does not have
    /// their own.
    pub fn without_host(&self) -> u64 {
        self.without_host
    }

    /// Decides on a request that is no earlier than the previous ones. `on_check` is called for each policy that
    /// applies to it, for each of its keys.
    ///
    /// # Errors
    /// The store gives no reply.
    pub async fn decide(
        &mut self,
        mut logged: LoggedRequest,
        on_check: impl FnMut(ReplayedCheck<'_>),
    ) -> Result<ReplayedVerdict, Unavailable> {
        self.end_requests(logged.time).await?;
        self.clock.set(logged.time);
        let rules = self.rules;
        rules.conceal_key(&mut logged.request);
        group_values(&mut logged.values, &rules.config().values);
        let has_host = self.assume_host(&mut logged.request);
        self.without_host += u64::from(!has_host);
        if logged.user == LoggedUser::Absent && !rules.names.is_enabled() {
            // If names are not stored, the log has none.
            logged.user = LoggedUser::Unknown;
        }
        let peer_identifier = rules.address_identifier(logged.client);
        let facts = RequestFacts {
            request: &logged.request,
            survey: rules.survey(&logged.request.headers),
            // The log has the address of the client itself.
            peer: logged.client,
            peer_identifier: &peer_identifier,
            is_peer_trusted: false,
            certificate: None,
            listener: None,
            body_length: None,
            has_body: usually_has_body(&logged.request.method),
            bans: None,
            question: None,
        };
        let mut replayed = Replayed {
            replay: self,
            logged: &logged,
            has_host,
            on_check,
            is_admitted_by_all: true,
            denied_in_shadow: SmallVec::new(),
            failed: None,
        };
        let refused = match find(&mut replayed, rules, &facts) {
            Ok(found) => {
                let mut context = RequestContext::new(rules, &facts, &found);
                admit(&mut replayed, &mut context).await.err()
            }
            Err(refused) => Some(refused),
        };
        let Replayed { is_admitted_by_all, failed, .. } = replayed;
        if let Some(failed) = failed {
            return Err(failed);
        }
        Ok(match refused {
            Some(RefusedBy::Access { .. }) => ReplayedVerdict::Forbidden,
            Some(RefusedBy::Policies(_) | RefusedBy::MissingKey(_)) => ReplayedVerdict::Denied,
            Some(RefusedBy::Log) => ReplayedVerdict::Unchecked,
            Some(RefusedBy::UnknownListener) => ReplayedVerdict::Unknown,
            // After the first two: a log lacks these facts, and a failure of the store was returned above.
            Some(
                RefusedBy::Head(_)
                | RefusedBy::Routing(_)
                | RefusedBy::EarlyEnds
                | RefusedBy::Listener(_)
                | RefusedBy::Ban(_)
                | RefusedBy::Credential(_)
                | RefusedBy::BodySize
                | RefusedBy::Body(_)
                | RefusedBy::Store,
            ) => ReplayedVerdict::Refused,
            None if logged.progress == LoggedProgress::Unchecked => ReplayedVerdict::Unchecked,
            None if is_admitted_by_all => ReplayedVerdict::Admitted,
            None => ReplayedVerdict::ShadowDenied,
        })
    }

    /// Returns whether the request has a host. If not, it gets one.
    fn assume_host(&self, request: &mut request::Parts) -> bool {
        let has_host = request.uri.authority().is_some() || request.headers.contains_key(HOST);
        if !has_host && self.takes_any_host {
            request.headers.insert(HOST, ANY_HOST);
        } else if !has_host {
            // Whether the route depends on the listener is decided later.
            assume_host(self.rules, request, self.rules.router.distinct_listeners());
        }
        has_host
    }

    /// The user of the request, from the name in the log, or from header fields that the log has.
    fn identify(&self, logged: &LoggedRequest, facts: &RequestFacts<'_>) -> Identity {
        let key = logged.key.clone().map(|key| Ok(Arc::new(record(key))));
        match &logged.user {
            LoggedUser::Named(name) if is_pseudonym(name) => {
                Identity { pseudonym: Some(name.clone()), key, ..Identity::default() }
            }
            LoggedUser::Named(name) => {
                let (user, is_verified) = (Some(name.clone()), self.is_user_verified);
                let mut identity = Identity { user, is_verified, key, ..Identity::default() };
                self.rules.add_pseudonym(&mut identity);
                identity
            }
            LoggedUser::Absent | LoggedUser::Unknown => self.rules.identify_holder(facts, key, |_| ()),
        }
    }

    /// Notes the conditions of these policies that the log cannot confirm or rule out.
    fn note_unknown_conditions(&mut self, policies: &[RoutePolicy], known: &KnownRequest<'_>) {
        for &RoutePolicy { policy, .. } in policies {
            let conditions = self.rules.policies().get(policy).into_iter().flat_map(conditions).enumerate();
            let unknown = conditions.filter(|(_, condition)| !known.is_certain_of(condition));
            self.unknown_conditions.extend(unknown.map(|(nth, _)| (policy, nth)));
        }
    }

    /// Notes what is settled at the end of the admitted request `logged`. `policies`: the index of each check's policy.
    /// `action`: its route's.
    fn note_end(
        &mut self,
        checks: SmallVec<[Check<'r>; 2]>,
        policies: &[usize],
        decision: &Decision,
        (logged, action): (&LoggedRequest, &RouteAction),
    ) {
        let mut taken = SmallVec::new();
        // The log has the cost by the first policy.
        let mut charged = logged.charged;
        for (index, (check, &policy)) in checks.into_iter().zip(policies).enumerate() {
            let cost = check.policy.cost.of_response().cloned();
            let charged = if cost.is_some() { charged.take() } else { None };
            if decision.verdicts.get(index).is_none_or(|verdict| !verdict.admitted) {
                continue;
            }
            let receipt = decision.receipt(index);
            if ends_with_request(check.policy, logged, action) {
                taken.push(Taken::refunded(check, receipt));
                continue;
            }
            let Some(cost) = cost else { continue };
            let actual = match (logged.progress, action) {
                // Only upstreams' responses cost something.
                (
                    _,
                    RouteAction::Reply(_)
                    | RouteAction::Redirect(_)
                    | RouteAction::Usage
                    | RouteAction::Decision,
                ) => Some(0),
                (LoggedProgress::Responded, _) if cost.measure == Measure::Bytes => logged.bytes,
                (LoggedProgress::Responded, _) => charged,
                // The upstream may have done the work.
                (LoggedProgress::NoResponse, _) => Some(check.cost),
                // If it was refused, nobody knows what the response would have cost.
                (
                    LoggedProgress::Unforwarded | LoggedProgress::Unchecked | LoggedProgress::Unrouted,
                    RouteAction::Upstream(_),
                ) => charged,
            };
            match actual {
                Some(actual) if actual == check.cost => {}
                Some(actual) => taken.push(Taken { check, receipt, actual }),
                None => {
                    if let Some(unknown) = self.unknown_costs.get_mut(policy) {
                        *unknown += 1;
                    }
                }
            }
        }
        if !taken.is_empty() {
            let end = logged.time.saturating_add(logged.duration.unwrap_or(0));
            self.unsettled.insert((end, self.requests), taken);
        }
        self.requests += 1;
    }

    /// Settles the requests that have ended by the time `now`.
    async fn end_requests(&mut self, now: i64) -> Result<(), Unavailable> {
        while let Some(next) = self.unsettled.first_entry().filter(|next| next.key().0 <= now) {
            self.clock.set(next.key().0);
            self.store.settle(&next.remove()).await?;
        }
        Ok(())
    }
}

/// One request of a replay, as the [`StepHost`] of its steps.
struct Replayed<'l, 'r, S, F> {
    replay: &'l mut Replay<'r, S>,
    logged: &'l LoggedRequest,
    has_host: bool,
    on_check: F,
    is_admitted_by_all: bool,
    /// The shadow policies that deny the request, which lacks the value that identifies it.
    denied_in_shadow: SmallVec<[usize; 1]>,
    /// The failure of the store.
    failed: Option<Unavailable>,
}

impl<'r, S: Store, F: FnMut(ReplayedCheck<'_>)> Replayed<'_, 'r, S, F> {
    /// The checks of a request as far as the log has their keys, with the index of the policy of each.
    ///
    /// # Errors
    /// The request itself lacks a key or a value of an enforced policy with `missing: deny`.
    fn known_checks(
        &mut self,
        checks: &Checks<'r>,
        policies: &[RoutePolicy],
        known: &KnownRequest<'_>,
    ) -> Result<SmallVec<[(usize, Check<'r>); 2]>, RefusedBy> {
        let mut found = SmallVec::new();
        for &RoutePolicy { policy, .. } in policies {
            // Only the first check of a policy is used: its keys are read from the log.
            if let Some((check, _)) = checks.iter().find(|(_, variant)| variant.policy == policy) {
                self.add_known(policy, check, known, &mut found)?;
            } else if let Some(&(_, SkipReason::NoValue(variant) | SkipReason::LacksValues(variant))) =
                checks.skipped.iter().find(|(skipped, _)| *skipped == policy)
            {
                self.add_without_value(variant, known, &mut found)?;
            }
        }
        // Nothing counts of a request that a later policy has denied for what it lacks.
        for policy in std::mem::take(&mut self.denied_in_shadow) {
            self.note_missing(policy, known);
        }
        Ok(found)
    }

    /// Adds the checks of one policy, which differ from `check` in their keys.
    fn add_known(
        &mut self,
        policy: usize,
        check: &Check<'r>,
        known: &KnownRequest<'_>,
        found: &mut SmallVec<[(usize, Check<'r>); 2]>,
    ) -> Result<(), RefusedBy> {
        let Ok(LoggedKeys { identifiers, has_unknown }) = known.keys(check.policy, self.missing(policy))
        else {
            return self.deny_for_missing(policy, check.policy, known);
        };
        if has_unknown {
            self.note_unknown(policy, known);
        }
        let checks = identifiers.into_iter().map(|identifier| Check { identifier, ..check.clone() });
        found.extend(checks.map(|check| (policy, check)));
        Ok(())
    }

    /// Adds the checks of a policy whose value to count was not found. `variant`: the limits that apply.
    fn add_without_value(
        &mut self,
        variant: VariantRef,
        known: &KnownRequest<'_>,
        found: &mut SmallVec<[(usize, Check<'r>); 2]>,
    ) -> Result<(), RefusedBy> {
        let policy = variant.policy;
        let Some(of) = variant.resolve(self.replay.rules.policies()) else { return Ok(()) };
        let lacks_keys = of.keys.iter().all(|key| known.lacks(key));
        if !lacks_keys && !of.value.as_ref().is_some_and(|value| known.lacks(value)) {
            self.note_unknown(policy, known);
            return Ok(());
        }
        if of.value.is_none() {
            let (identifier, detail) = (CompactString::default(), Detail::None);
            return self.add_known(policy, &Check { policy: of, identifier, cost: 1, detail }, known, found);
        }
        match distinct_detail(of, self.missing(policy), &known.attributes) {
            Ok(None) => Ok(()),
            Ok(Some(detail)) => {
                let check = Check { policy: of, identifier: CompactString::default(), cost: 1, detail };
                self.add_known(policy, &check, known, found)
            }
            Err(MissingIdentifier) => self.deny_for_missing(policy, of, known),
        }
    }

    /// The rule of this policy for values that the request lacks: the policies of a replay skip them.
    fn missing(&self, policy: usize) -> Missing {
        self.replay.rules.config().policies.get(policy).map_or(Missing::Skip, |policy| policy.missing)
    }

    /// Lets a policy deny the request, which lacks the value that identifies it.
    fn deny_for_missing(
        &mut self,
        index: usize,
        policy: &Policy,
        known: &KnownRequest<'_>,
    ) -> Result<(), RefusedBy> {
        if policy.is_shadow {
            self.denied_in_shadow.push(index);
            return Ok(());
        }
        self.note_missing(index, known);
        Err(RefusedBy::MissingKey(index))
    }

    /// Notes that the log lacks what a policy needs.
    fn note_unknown(&mut self, policy: usize, known: &KnownRequest<'_>) {
        (self.on_check)(known.check(policy, None));
    }

    /// Notes that a policy has denied the request, which lacks the value that identifies it.
    fn note_missing(&mut self, policy: usize, known: &KnownRequest<'_>) {
        let key = known.attributes.address.identifier();
        let decided = ReplayedDecision { key, is_admitted: false, is_delayed: false, limit: 0, used: 0 };
        (self.on_check)(known.check(policy, Some(decided)));
        self.is_admitted_by_all = false;
    }
}

impl<'r, S: Store, F: FnMut(ReplayedCheck<'_>)> StepHost<'r> for Replayed<'_, 'r, S, F> {
    fn note_refusal(
        &mut self,
        refused: RefusedBy,
        _context: Option<&RequestContext<'_, '_>>,
    ) -> Result<(), RefusedBy> {
        match refused {
            // No log has the key itself, so the request may have had a valid one.
            RefusedBy::Credential(_) => Ok(()),
            refused => Err(refused),
        }
    }

    fn check_listener(&mut self, _facts: &RequestFacts<'_>, _target: &Target) -> Result<(), RefusedBy> {
        if self.logged.progress == LoggedProgress::Unrouted { Err(RefusedBy::Log) } else { Ok(()) }
    }

    fn identify(&mut self, _rules: &Rules, facts: &RequestFacts<'_>) -> Identity {
        self.replay.identify(self.logged, facts)
    }

    fn draw(&mut self, total: u64) -> Option<u64> {
        Some(fastrand::u64(..total))
    }

    fn inputs(&self) -> CheckInputs<'_> {
        CheckInputs { time: self.logged.time, tokens: &self.replay.tokens }
    }

    /// Completes the checks by the values that the log has.
    async fn read_request(
        &mut self,
        checks: &mut Checks<'r>,
        context: &RequestContext<'r, '_>,
    ) -> Result<(), RefusedBy> {
        let logged = &self.logged.values;
        let found = |value: &Arc<RequestValue>| match logged.get(&value.name) {
            Some(Some(text)) if text.is_empty() => FoundValue::Unreadable,
            Some(Some(text)) => FoundValue::Text(text.clone()),
            Some(None) | None => FoundValue::Absent,
        };
        let values = FoundValues::known(context.asked_values().iter().map(|of| (Arc::clone(of), found(of))));
        let are_known = context.asked_values().iter().all(|value| logged.contains_key(&value.name));
        context.complete_by_log(checks, values, are_known, &self.inputs())
    }

    async fn decide(
        &mut self,
        checks: &Checks<'r>,
        context: &RequestContext<'r, '_>,
    ) -> Result<Duration, RefusedBy> {
        if self.logged.progress == LoggedProgress::Unchecked {
            return Err(RefusedBy::Log);
        }
        let known = KnownRequest {
            attributes: context.uses().first().copied().unwrap_or(*context.attributes()),
            line: context.request_line(),
            logged: self.logged,
            has_host: self.has_host,
            is_user_verified: self.replay.is_user_verified,
        };
        self.replay.note_unknown_conditions(&context.route.policies, &known);
        let found = self.known_checks(checks, &context.route.policies, &known)?;
        let (policies, mut checks): (SmallVec<[usize; 2]>, SmallVec<[Check<'r>; 2]>) =
            found.into_iter().unzip();
        let of_response = checks.iter_mut().find(|check| check.policy.cost.of_response().is_some());
        if let Some((check, reserved)) = of_response.zip(self.logged.reserved) {
            check.cost = reserved.clamp(1, check.policy.most_admissible().max(1));
        }
        let decision = match self.replay.store.decide(&checks).await {
            Ok(decision) => decision,
            Err(failed) => {
                self.failed = Some(failed);
                return Err(RefusedBy::Store);
            }
        };
        for ((check, policy), verdict) in checks.iter().zip(policies.iter().copied()).zip(&decision.verdicts)
        {
            let decided = ReplayedDecision {
                key: &check.identifier,
                is_admitted: verdict.admitted,
                is_delayed: decision.admitted && verdict.delay > 0,
                limit: verdict.limit,
                used: verdict.limit.saturating_sub(verdict.remaining),
            };
            (self.on_check)(known.check(policy, Some(decided)));
        }
        if !decision.admitted {
            return Err(RefusedBy::Policies(0));
        }
        self.is_admitted_by_all &= decision.verdicts.iter().all(|verdict| verdict.admitted);
        self.replay.note_end(checks, &policies, &decision, (self.logged, &context.route.action));
        Ok(Duration::ZERO)
    }

    fn cors(&self) -> Option<&CorsResponse> {
        None
    }

    fn request_id(&self) -> &HeaderValue {
        &NO_ID
    }
}

/// The record of an API key from a log, without what no log has.
fn record(key: LoggedKey) -> ApiKey {
    let LoggedKey { id, customer, plan } = key;
    ApiKey {
        id,
        secrets: Vec::new(),
        customer,
        plan,
        name: CompactString::default(),
        labels: BTreeMap::new(),
        created: 0,
        expires: None,
        routes: Vec::new(),
        state: KeyState::Active,
        changed: 0,
    }
}

/// Whether the units that a request took from a limit are refunded once it has its response.
fn ends_with_request(policy: &Policy, logged: &LoggedRequest, action: &RouteAction) -> bool {
    if policy.kind == Kind::Concurrency {
        return true;
    }
    let reply_of_route = match action {
        RouteAction::Upstream(_) | RouteAction::Decision => None,
        RouteAction::Reply(reply) => Some(reply.status),
        RouteAction::Redirect(redirect) => Some(redirect.status),
        RouteAction::Usage => Some(StatusCode::OK),
    };
    let response = match (logged.progress, reply_of_route) {
        (LoggedProgress::Responded, _) => logged.status,
        // A route's reply counts as a service's response does.
        (_, Some(http)) => ResponseStatus { http, grpc: GrpcOutcome::Known(None) },
        // The service may have done the work.
        (LoggedProgress::NoResponse, None) => return false,
        (LoggedProgress::Unforwarded | LoggedProgress::Unchecked | LoggedProgress::Unrouted, None) => {
            return policy.count.is_some();
        }
    };
    policy.counts(response) == Some(false)
}

/// Brings values of a log into the groups of this configuration. One that may have been another group is not known.
fn group_values(logged: &mut BTreeMap<String, Option<CompactString>>, values: &[Arc<RequestValue>]) {
    logged.retain(|name, text| {
        let (Some(value), Some(text)) = (values.iter().find(|value| value.name == *name), text) else {
            return true;
        };
        if text.is_empty() {
            return true;
        }
        let group = value.group_of_logged(text).map(CompactString::from);
        let is_known = group.is_some();
        *text = group.unwrap_or_default();
        is_known
    });
}

/// The conditions of `exempt` and of `overrides`.
fn conditions(policy: &Policy) -> impl Iterator<Item = &Condition> {
    policy
        .exempt
        .iter()
        .chain(policy.overrides.iter().map(|(condition, _)| condition))
        .chain(&policy.unlimited)
}

impl<'a> KnownRequest<'a> {
    /// The decision of a policy on this request.
    fn check<'c>(&self, policy: usize, decided: Option<ReplayedDecision<'c>>) -> ReplayedCheck<'c>
    where
        'a: 'c,
    {
        let RequestAttributes { user, pseudonym, key, .. } = self.attributes;
        let user = user.or(pseudonym).or(key.map(|key| key.customer.as_str()));
        ReplayedCheck { policy, request: self.logged, line: self.line, user, decided }
    }

    /// Whether the log can confirm or rule out `condition`. No log has the headers that a trusted proxy sent.
    fn is_certain_of(&self, condition: &Condition) -> bool {
        match condition {
            Condition::Address(_) => true,
            // The log does not say which of several sources has named the user.
            Condition::User(name) => match self.attributes.user {
                Some(user) => user != name || self.is_user_verified,
                None => self.logged.user == LoggedUser::Absent,
            },
            Condition::OfKey { .. } => self.attributes.key.is_some(),
            Condition::Value { name, client, .. } => {
                let is_client_certain = || client.as_ref().is_none_or(|client| self.is_certain_of(client));
                self.logged.values.contains_key(name) && is_client_certain()
            }
            Condition::Jwt { .. } | Condition::Tls { .. } | Condition::Header { .. } => false,
        }
    }

    /// The identifiers of the request for the keys of `policy`, as [`identifiers`](crate::identity::identifiers)
    /// would return them if the log had the whole request.
    ///
    /// # Errors
    /// With [`Missing::Deny`], if the request itself, and not only the log, lacks a key.
    fn keys(&self, policy: &Policy, missing: Missing) -> Result<LoggedKeys, MissingIdentifier> {
        let by_address = || self.attributes.address.identifier().clone();
        let mut keys = LoggedKeys { identifiers: Identifiers::new(), has_unknown: false };
        for key in &policy.keys {
            let is_told = self.has_host || !key.0.contains(&KeyPart::Host);
            let next = match identifier(key, &self.attributes).filter(|_| is_told) {
                Some(next) => next,
                None if !self.lacks(key) => {
                    keys.has_unknown = true;
                    continue;
                }
                None => match missing {
                    Missing::Skip => continue,
                    Missing::Ip => by_address(),
                    Missing::Deny => return Err(MissingIdentifier),
                },
            };
            if !keys.identifiers.contains(&next) {
                keys.identifiers.push(next);
            }
        }
        if !self.has_duration_for(policy) {
            return Ok(LoggedKeys { identifiers: Identifiers::new(), has_unknown: true });
        }
        // A request that lacks all keys of a policy is identified by its address, unless it lacks their values.
        let lacks_values = policy.keys.iter().all(|key| key.value_names().any(|name| self.lacks_value(name)));
        if keys.identifiers.is_empty() && !keys.has_unknown && !lacks_values {
            keys.identifiers.push(by_address());
        }
        Ok(keys)
    }

    /// Whether the request itself, and not only the log, lacks a part of `key`.
    fn lacks(&self, key: &KeyRecipe) -> bool {
        let RequestAttributes { user, pseudonym, key: of_request, .. } = self.attributes;
        key.0.iter().any(|part| match part {
            KeyPart::User => self.logged.user == LoggedUser::Absent && user.is_none() && pseudonym.is_none(),
            KeyPart::OfKey(field) => of_request.is_some_and(|key| key.field(*field).is_none()),
            KeyPart::Value(name) => self.lacks_value(name),
            _ => false,
        })
    }

    /// Whether the log says that the request has no such value.
    fn lacks_value(&self, name: &str) -> bool {
        self.logged.values.get(name).is_some_and(Option::is_none)
    }

    fn has_duration_for(&self, policy: &Policy) -> bool {
        self.logged.duration.is_some() || policy.kind != Kind::Concurrency
    }
}
