//! Envoy's rate limit service: each descriptor stands for a request, and all descriptors of a call are one decision.

use std::{rc::Rc, time::Duration};

use compact_str::CompactString;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version, header, request,
};
use prost::Message;

use super::{
    Question, TOLLGATE_STATUS,
    calls::{self, CallFault},
    ext_authz::written,
    messages::{
        Code, CurrentLimit, DescriptorEntry, DescriptorStatus, ProtoDuration, RateLimitDescriptor,
        RateLimitRequest, RateLimitResponse,
    },
    question::{Descriptor, Source, append, described_uri, read_address},
};
use crate::{
    config::model::ATTEMPTS_POLICY,
    identity::{ClientIp, Identity, TokenRefusal},
    limit::{
        Check, Decision, DecisionSource, StoreAdmin, Taken,
        algorithm::{Kind, Verdict},
    },
    proxy::{
        bans::BanMatch,
        checks::{CheckInputs, Checks, SkipReason},
        client::ClientInfo,
        client_request::ClientRequest,
        cors::CorsResponse,
        credential::CredentialFault,
        outcome::{CheckOutcome, Outcomes, PolicyOutcome, tightest},
        reply::Reply,
        request_context::{FoundRoute, RequestContext},
        request_facts::RequestFacts,
        reservation::reserve,
        response_body::ResponseBody,
        rules::Rules,
        steps::{RefusedBy, StepHost, admit, check_optional_key, find, has_optional_key},
        worker::Worker,
    },
    router::{Rejection, Target},
    telemetry::metrics::{Answer, AskedBy, SourceLabel},
};

pub(super) const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// The most descriptors of a call.
const MAX_DESCRIPTORS: usize = 64;

/// What a descriptor adds to its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hits {
    /// Nothing: it asks whether a unit would fit.
    Look,
    Add(u64),
    GiveBack(u64),
}

/// A descriptor as the request that it stands for.
struct Described {
    request: request::Parts,
    question: Question,
    hits: Hits,
    /// What the client has sent makes no request.
    fault: Option<Rejection>,
}

impl Described {
    fn new(
        (domain, hits_of_call): (&str, u32),
        descriptor: RateLimitDescriptor,
        rules: &Rules,
    ) -> Result<Self, CallFault> {
        let RateLimitDescriptor { entries, hits_addend, is_negative_hits, .. } = descriptor;
        if entries.is_empty() || entries.iter().any(|entry| entry.key.is_empty()) {
            return Err(CallFault::invalid("A descriptor has no entries, or one without a key."));
        }
        let (mut request, ()) = Request::new(()).into_parts();
        // A request of HTTP/1.0 need not have a host.
        request.version = Version::HTTP_10;
        let mut fault = None;
        let (mut address, mut user) = (None, None);
        for DescriptorEntry { key, value } in &entries {
            let is_repeated = || entries.iter().filter(|other| other.key == *key).count() > 1;
            if ["remote_address", "method", "path", "host", "user"].contains(&key.as_str()) && is_repeated() {
                // Clients may have sent one of them.
                let twice = Rejection::bad_request(
                    "An entry that describes the request stands twice in a descriptor.",
                );
                fault = fault.or(Some(twice));
                continue;
            }
            let read = match key.as_str() {
                "remote_address" => {
                    address = str::from_utf8(value).ok().and_then(read_address);
                    address.map(|_| ()).ok_or(Rejection::bad_request(
                        "The entry remote_address of a descriptor is no address.",
                    ))
                }
                "user" => {
                    user = Some(CompactString::from_utf8_lossy(value)).filter(|user| !user.is_empty());
                    Ok(())
                }
                "method" => Method::from_bytes(value)
                    .map(|method| request.method = method)
                    .map_err(|_| Rejection::bad_request("The method of the descriptor is malformed.")),
                "path" => described_uri(value).map(|uri| request.uri = uri),
                "host" => insert(&mut request, &header::HOST, value),
                key => match key.strip_prefix("header.") {
                    None => Ok(()),
                    Some(name) => {
                        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| {
                            CallFault::invalid(format!("The entry {key} of a descriptor names no header."))
                        })?;
                        insert(&mut request, &name, value)
                    }
                },
            };
            fault = fault.or(read.err());
        }
        rules.conceal_key(&mut request);
        let source = address.map(|address| Source::new(address, rules, None));
        let entries = entries.into_iter().map(|DescriptorEntry { key, value }| {
            // Bytes that are none stand for each other.
            (key, String::from_utf8_lossy(&value).into_owned())
        });
        let entries = entries.collect();
        let descriptor = Descriptor { domain: domain.to_owned(), entries, user };
        let question = Question { source, descriptor: Some(descriptor) };
        let hits = match (hits_addend.unwrap_or(u64::from(hits_of_call.max(1))), is_negative_hits) {
            (0, _) => Hits::Look,
            (hits, false) => Hits::Add(hits),
            (hits, true) => Hits::GiveBack(hits),
        };
        Ok(Self { request, question, hits, fault })
    }
}

/// Appends a field of a described request.
fn insert(request: &mut request::Parts, name: &HeaderName, value: &[u8]) -> Result<(), Rejection> {
    let malformed = |_| Rejection::bad_request("A field of the descriptor is malformed.");
    append(&mut request.headers, name.clone(), HeaderValue::from_bytes(value).map_err(malformed)?)
}

/// The request of a descriptor, as the host of its steps. It asks for no decision: all descriptors are decided together.
struct DescriptorRequest<'a, S> {
    served: ClientRequest<'a, S>,
    /// What is to be decided. `None`: nothing.
    checks: Option<Checks<'a>>,
    refused: Option<RefusedBy>,
    /// Whether a limit is used up that does not decide: what was added to it is charged.
    is_overdrawn: bool,
}

impl<'r, S: StoreAdmin + 'static> StepHost<'r> for DescriptorRequest<'r, S> {
    fn note_refusal(
        &mut self,
        refused: RefusedBy,
        context: Option<&RequestContext<'_, '_>>,
    ) -> Result<(), RefusedBy> {
        self.served.note_refusal(refused, context)
    }

    fn located(&mut self, rules: &Rules, client: ClientIp) -> Result<(), RefusedBy> {
        self.served.located(rules, client)
    }

    fn check_listener(&mut self, facts: &RequestFacts<'_>, target: &Target) -> Result<(), RefusedBy> {
        self.served.check_listener(facts, target)
    }

    fn identify(&mut self, rules: &Rules, facts: &RequestFacts<'_>) -> Identity {
        self.served.identify(rules, facts)
    }

    fn draw(&mut self, total: u64) -> Option<u64> {
        self.served.draw(total)
    }

    fn inputs(&self) -> CheckInputs<'_> {
        self.served.inputs()
    }

    fn banned_in_shadow(&mut self, ban: &BanMatch) {
        self.served.banned_in_shadow(ban);
    }

    fn skipped(&mut self, policies: &[(usize, SkipReason<'_>)], context: &RequestContext<'_, '_>) {
        self.served.skipped(policies, context);
    }

    async fn read_request(
        &mut self,
        checks: &mut Checks<'r>,
        context: &RequestContext<'r, '_>,
    ) -> Result<(), RefusedBy> {
        self.served.read_request(checks, context).await
    }

    async fn decide(
        &mut self,
        checks: &Checks<'r>,
        context: &RequestContext<'r, '_>,
    ) -> Result<Duration, RefusedBy> {
        // Guesses of credentials are counted whatever is decided.
        if checks.iter().any(|(check, _)| check.policy.name == ATTEMPTS_POLICY) {
            return self.served.decide(checks, context).await;
        }
        self.checks = Some(checks.clone());
        Ok(Duration::ZERO)
    }

    async fn may_try_keys(
        &mut self,
        attempts: &Checks<'r>,
        context: &RequestContext<'r, '_>,
        fault: Option<CredentialFault>,
    ) -> bool {
        self.served.may_try_keys(attempts, context, fault).await
    }

    fn key_ignored(&mut self, rules: &Rules, identity: &Identity) {
        self.served.key_ignored(rules, identity);
    }

    fn cors(&self) -> Option<&CorsResponse> {
        None
    }

    fn request_id(&self) -> &HeaderValue {
        self.served.request_id()
    }
}

/// Where the verdict of a check is.
enum Decided {
    Looked(usize),
    Taken(usize),
}

/// What the descriptors of a call ask the store, each limit once.
#[derive(Default)]
struct Asked<'a> {
    /// Limits of which nothing is taken here.
    looked: Vec<Check<'a>>,
    taken: Checks<'a>,
    /// What is charged or given back if all is admitted: the check with what was taken of it, what it costs, and the index of
    /// the look at its limit.
    settled: Vec<(Check<'a>, u64, usize)>,
    /// Of each check of each descriptor.
    verdicts: Vec<Vec<Decided>>,
    /// Whether a check that only looks may deny the call.
    decides_by_look: Vec<bool>,
}

impl<'a> Asked<'a> {
    /// Adds the checks of one descriptor, and sets their costs. Returns whether they can be decided with those of the others:
    /// a limit of distinct values counts one value of a call.
    ///
    /// # Errors
    /// A policy of the descriptor gives nothing back.
    fn add(&mut self, checks: &mut Checks<'a>, hits: Hits) -> Result<bool, CallFault> {
        let mut verdicts = Vec::new();
        for (check, variant) in checks.iter_mut() {
            let overdraw = check.policy.overdraw;
            let (Hits::Add(units) | Hits::GiveBack(units)) = hits else {
                self.look(check, true, &mut verdicts);
                continue;
            };
            if check.policy.kind != Kind::Distinct {
                check.cost = check.cost.saturating_mul(units);
            }
            match hits {
                Hits::GiveBack(_) if !overdraw => {
                    let name = &check.policy.name;
                    return Err(CallFault::invalid(format!(
                        "is_negative_hits: the policy {name} gives nothing back; set `overdraw: true`"
                    )));
                }
                Hits::GiveBack(_) => {
                    let nth = self.look(check, false, &mut verdicts);
                    self.settled.push((check.clone(), 0, nth));
                }
                _ if overdraw => {
                    let nth = self.look(check, false, &mut verdicts);
                    self.settled.push((Check { cost: 0, ..check.clone() }, check.cost, nth));
                }
                _ => {
                    let Some(nth) = self.taken.add_or_merge(check, variant) else { return Ok(false) };
                    verdicts.push(Decided::Taken(nth));
                }
            }
        }
        self.verdicts.push(verdicts);
        Ok(true)
    }

    /// Adds a look at the limit of this check. Returns its index.
    fn look(&mut self, check: &Check<'a>, decides: bool, verdicts: &mut Vec<Decided>) -> usize {
        let is_same = |other: &Check<'a>| {
            other.policy.id == check.policy.id
                && other.policy.tiers == check.policy.tiers
                && other.identifier == check.identifier
        };
        let nth = self.looked.iter().position(is_same).unwrap_or_else(|| {
            self.looked.push(Check { cost: 1, ..check.clone() });
            self.decides_by_look.push(false);
            self.looked.len() - 1
        });
        self.decides_by_look[nth] |= decides;
        verdicts.push(Decided::Looked(nth));
        nth
    }

    /// What is charged and given back, where the limits are that `looked` has found.
    fn settlements(&self, looked: &Decision) -> Vec<Taken<'a>> {
        let known = self.settled.iter().filter(|(.., nth)| {
            looked.verdicts.get(*nth).is_some_and(|verdict| *verdict != Verdict::UNKNOWN)
        });
        known
            .map(|(check, actual, nth)| {
                let mut receipt = looked.receipt(*nth);
                // What a slice has left says nothing of where a charge goes.
                if receipt.source == DecisionSource::Slice {
                    receipt.source = DecisionSource::Store;
                }
                Taken { check: check.clone(), receipt, actual: *actual }
            })
            .collect()
    }
}

/// Answers the call with this `message`.
///
/// # Errors
/// The message is malformed, or asks for what its routes do not do.
pub(super) async fn limit<S: StoreAdmin + 'static>(
    message: &[u8],
    worker: &Rc<Worker<S>>,
    client: &Rc<ClientInfo>,
) -> Result<Response<ResponseBody>, CallFault> {
    let RateLimitRequest { domain, descriptors, hits_addend } = RateLimitRequest::decode(message)
        .map_err(|_| CallFault::invalid("The message is no RateLimitRequest."))?;
    if domain.is_empty() || descriptors.is_empty() || descriptors.len() > MAX_DESCRIPTORS {
        return Err(CallFault::invalid("A call needs a domain, and 1 to 64 descriptors."));
    }
    if descriptors.iter().any(|descriptor| descriptor.limit.is_some()) {
        worker.rules.warnings.warn_of_override();
    }
    if !worker.config().routes.iter().any(|route| route.domain.as_ref() == Some(&domain)) {
        worker.rules.warnings.warn_of_domain(&domain);
    }
    let described: Vec<Described> = descriptors
        .into_iter()
        .map(|descriptor| Described::new((&domain, hits_addend), descriptor, &worker.rules))
        .collect::<Result<_, _>>()?;

    // Whose requests are they, and what are their routes?
    let rules = &worker.rules;
    let mut hosts = Vec::with_capacity(described.len());
    for Described { request, .. } in &described {
        let mut served = ClientRequest::described(worker, client, request);
        served.exchange.set_front(AskedBy::RateLimits, false);
        hosts.push(DescriptorRequest { served, checks: None, refused: None, is_overdrawn: false });
    }
    let facts: Vec<RequestFacts<'_>> = described
        .iter()
        .zip(&hosts)
        .map(|(of, host)| host.served.described_facts(&of.request, &of.question))
        .collect();
    let mut found: Vec<Option<FoundRoute>> = Vec::with_capacity(described.len());
    for ((of, facts), host) in described.iter().zip(&facts).zip(&mut hosts) {
        found.push(match of.fault {
            Some(rejection) => {
                rules.warnings.warn_of_question(rejection.detail);
                host.refused = Some(RefusedBy::Head(rejection));
                None
            }
            None => route(host, rules, facts).await,
        });
    }

    // Are they admitted, but for the store?
    let mut contexts: Vec<Option<RequestContext<'_, '_>>> = facts
        .iter()
        .zip(&found)
        .map(|(facts, found)| Some(RequestContext::new(rules, facts, found.as_ref()?)))
        .collect();
    for (host, context) in hosts.iter_mut().zip(&mut contexts) {
        if let Some(context) = context {
            host.refused = admit(host, context).await.err();
        }
    }

    // One decision.
    let mut asked = Asked::default();
    for (host, of) in hosts.iter_mut().zip(&described) {
        let mut nothing = Checks::default();
        if !asked.add(host.checks.as_mut().unwrap_or(&mut nothing), of.hits)? {
            let detail = "Two descriptors of the request have different values for one limit.";
            host.refused = Some(RefusedBy::Head(Rejection::bad_request(detail)));
        }
    }
    let is_refused = hosts.iter().any(|host| host.refused.is_some());
    let decided = if is_refused { None } else { Some(decide(&mut asked, worker, &mut hosts).await) };
    if let Some(decided) = decided {
        for (nth, (host, context)) in hosts.iter_mut().zip(&contexts).enumerate() {
            let (Some(checks), Some(context)) = (host.checks.take(), context) else { continue };
            match &decided {
                Ok(decided) => {
                    let hits = described[nth].hits;
                    let decision = decided.of(&asked.verdicts[nth]);
                    conclude(host, &checks, &decision, (context, hits));
                }
                Err(()) => host.refused = Some(RefusedBy::Store),
            }
        }
    }
    Ok(reply(worker, hosts))
}

/// The route of a descriptor. `None`: it has none, and is admitted, or it is refused.
async fn route<'r, S: StoreAdmin + 'static>(
    host: &mut DescriptorRequest<'r, S>,
    rules: &'r Rules,
    facts: &RequestFacts<'_>,
) -> Option<FoundRoute> {
    match find(host, rules, facts) {
        Ok(mut found) => {
            if found.identity.refused_token.is_some_and(TokenRefusal::may_be_of_new_key) {
                // Envoy waits for 20 ms unless told otherwise, and there may be 64 of them.
                found.identity = host.served.identify_again(facts, found.client, Duration::ZERO).await;
            }
            if has_optional_key(rules, &found) {
                check_optional_key(host, rules, facts, &mut found).await;
            }
            host.served.exchange.set_route(found.route);
            Some(found)
        }
        Err(RefusedBy::Routing(Rejection { status: StatusCode::NOT_FOUND, .. })) => None,
        Err(refused) => {
            host.refused = Some(refused);
            None
        }
    }
}

/// The decisions of the store on a call.
struct CallDecision {
    admitted: bool,
    looked: Decision,
    taken: Decision,
}

impl CallDecision {
    /// The part of one descriptor.
    fn of(&self, verdicts: &[Decided]) -> Decision {
        let verdicts = verdicts.iter().filter_map(|decided| match decided {
            Decided::Looked(nth) => self.looked.verdicts.get(*nth).copied(),
            Decided::Taken(nth) => self.taken.verdicts.get(*nth).copied(),
        });
        let of = if self.taken.verdicts.is_empty() { &self.looked } else { &self.taken };
        let (source, time) = (of.source, of.time);
        Decision { admitted: self.admitted, source, time, verdicts: verdicts.collect(), parts: None }
    }
}

/// Asks the store.
///
/// # Errors
/// It was not available.
async fn decide<S: StoreAdmin + 'static>(
    asked: &mut Asked<'_>,
    worker: &Rc<Worker<S>>,
    hosts: &mut [DescriptorRequest<'_, S>],
) -> Result<CallDecision, ()> {
    let store = &worker.store;
    let mut looked = Decision::of_nothing();
    if !asked.looked.is_empty() {
        looked = store.look(&asked.looked).await.map_err(drop)?;
        let mut verdicts = looked.verdicts.iter().zip(&asked.looked).zip(&asked.decides_by_look);
        if verdicts
            .any(|((verdict, check), decides)| *decides && !verdict.admitted && !check.policy.is_shadow)
        {
            let taken = match asked.taken.as_slice() {
                [] => Decision::of_nothing(),
                checks => store.look(checks).await.map_err(drop)?,
            };
            show_left(&mut looked);
            return Ok(CallDecision { admitted: false, looked, taken });
        }
    }
    let mut taken = Decision::of_nothing();
    if !asked.taken.as_slice().is_empty() {
        taken = if store.must_finish(asked.taken.as_slice())
            && let Some(host) = hosts.first_mut()
        {
            // What each descriptor has used is recorded with it.
            let (decided, reservation) = reserve(worker, &asked.taken, None).await;
            host.served.exchange.set_reservation(reservation);
            host.served.charge().await;
            decided.map_err(drop)?
        } else {
            store.decide(asked.taken.as_slice()).await.map_err(drop)?
        };
    }
    let mut settled = None;
    if taken.admitted && !asked.settled.is_empty() {
        // The call is decided whatever becomes of this.
        match store.settle(&asked.settlements(&looked)).await {
            Ok(()) => settled = store.look(&asked.looked).await.ok(),
            Err(error) => {
                worker.metrics().thread().settlements_lost().inc();
                tracing::debug!(%error, "can't tell whether the store has settled a cost: it stays as it is");
            }
        }
    }
    match settled {
        None => show_left(&mut looked),
        Some(mut settled) => {
            show_left(&mut settled);
            for (before, after) in looked.verdicts.iter_mut().zip(settled.verdicts) {
                // Whether a unit fitted was decided before.
                *before = Verdict { admitted: before.admitted, ..after };
            }
        }
    }
    let admitted = taken.admitted;
    Ok(CallDecision { admitted, looked, taken })
}

/// Makes the verdicts of a look those of the limits as they are: if it was admitted, each is that after one unit, which was not
/// taken.
fn show_left(looked: &mut Decision) {
    for verdict in looked.verdicts.iter_mut().filter(|verdict| looked.admitted && verdict.admitted) {
        verdict.remaining += 1;
    }
}

/// Records what was decided on one descriptor.
fn conclude<S: StoreAdmin + 'static>(
    host: &mut DescriptorRequest<'_, S>,
    checks: &Checks<'_>,
    decision: &Decision,
    (context, hits): (&RequestContext<'_, '_>, Hits),
) {
    let served = &mut host.served;
    served.begin_decision(checks);
    served.exchange.decision_ended(Some(SourceLabel::from(decision.source)));
    let denies = |outcome: CheckOutcome<'_>| {
        let decides = hits == Hits::Look || !outcome.check.policy.overdraw;
        outcome.is_denial().then_some(decides)
    };
    let is_denied = checks.outcomes(decision).any(|outcome| denies(outcome) == Some(true));
    host.is_overdrawn = matches!(hits, Hits::Add(_))
        && checks.outcomes(decision).any(|outcome| denies(outcome) == Some(false));
    if matches!(hits, Hits::Add(_)) && !host.is_overdrawn {
        served.record_outcomes(context.found.route, checks, decision);
    } else {
        served.exchange.outcomes.extend(checks.enforced_outcomes(decision));
    }
    if is_denied {
        host.refused = Some(served.denied(checks, decision, context));
    } else if decision.admitted {
        served.exchange.verdict.allow();
        if matches!(hits, Hits::Add(_)) && served.exchange.history().is_some() {
            served.exchange.units = checks.fixed_units();
        }
    }
}

/// Replies to a call.
fn reply<S: StoreAdmin + 'static>(
    worker: &Rc<Worker<S>>,
    hosts: Vec<DescriptorRequest<'_, S>>,
) -> Response<ResponseBody> {
    let rules = &worker.rules;
    let mut response = RateLimitResponse { overall_code: Code::Ok as i32, ..RateLimitResponse::default() };
    let (mut all, mut answering, mut undecided, mut is_over) = (Outcomes::new(), None, None, false);
    let refuses =
        |host: &DescriptorRequest<'_, S>| host.refused.as_ref().is_some_and(|by| !by.is_undecided());
    let is_refused = hosts.iter().any(refuses);
    let is_undecided = !is_refused && hosts.iter().any(|host| host.refused.is_some());
    for host in hosts {
        let DescriptorRequest { served, refused, is_overdrawn, .. } = host;
        let mut exchange = served.exchange;
        response.statuses.push(status(rules, &exchange.outcomes, refused.is_some() || is_overdrawn));
        all.extend(exchange.outcomes.iter().copied());
        let Some(refused) = refused else {
            if is_overdrawn {
                is_over = true;
            }
            // Another one of its descriptors may decide on the request.
            let (answer, status) = match () {
                () if is_refused => (Answer::Refused, StatusCode::TOO_MANY_REQUESTS),
                () if is_undecided => (Answer::Undecided, StatusCode::SERVICE_UNAVAILABLE),
                () => (Answer::Allowed, StatusCode::OK),
            };
            exchange.count_answer(AskedBy::RateLimits, answer);
            exchange.take_answer(Reply { status, ..Reply::no_content() });
            answering.get_or_insert(exchange);
            continue;
        };
        let is_undecided = refused.is_undecided();
        let reply = refused.described_reply(rules, &exchange, HeaderMap::new());
        if is_undecided {
            exchange.count_answer(AskedBy::RateLimits, Answer::Undecided);
            let detail = reply.detail.clone();
            exchange.take_answer(reply);
            undecided.get_or_insert((exchange, detail));
            continue;
        }
        exchange.count_answer(AskedBy::RateLimits, Answer::Refused);
        let (mut head, body) = exchange.take_answer(reply);
        if response.overall_code != Code::OverLimit as i32 {
            response.overall_code = Code::OverLimit as i32;
            if head.status != StatusCode::TOO_MANY_REQUESTS {
                head.headers.insert(&TOLLGATE_STATUS, HeaderValue::from(head.status.as_u16()));
            }
            response.response_headers_to_add =
                head.headers.iter().map(|(name, value)| written(name, value)).collect();
            response.raw_body = body;
        }
        answering.get_or_insert(exchange);
    }
    if response.overall_code == Code::Ok as i32 {
        let mut quota = HeaderMap::new();
        rules.quotas.add_fields(&mut quota, &all);
        response.response_headers_to_add = quota.iter().map(|(name, value)| written(name, value)).collect();
    }
    if is_over {
        response.overall_code = Code::OverLimit as i32;
    }
    if let Some((exchange, detail)) = undecided.filter(|_| is_undecided) {
        return calls::undecided(exchange, &detail);
    }
    match answering {
        Some(exchange) => calls::reply(exchange, &response),
        // Each call has a descriptor.
        None => Response::new(ResponseBody::none()),
    }
}

/// The status of a descriptor with these outcomes.
fn status(rules: &Rules, outcomes: &[PolicyOutcome], is_refused: bool) -> DescriptorStatus {
    let code = if is_refused { Code::OverLimit } else { Code::Ok } as i32;
    let outcome = tightest(outcomes).and_then(|nth| outcomes.get(nth));
    let policy = outcome.and_then(|outcome| outcome.variant.resolve(&rules.policies));
    let (Some(PolicyOutcome { verdict, .. }), Some(policy)) = (outcome, policy) else {
        return DescriptorStatus { code, ..DescriptorStatus::default() };
    };
    let calendar = policy.calendar(verdict.tier).map(|calendar| calendar.to_string());
    let window = policy.tiers.get(verdict.tier).map_or(0, |tier| tier.window / 1_000_000);
    let unit = match (calendar.as_deref().and_then(|calendar| calendar.split(' ').next()), window) {
        (None, 1) => 1,
        (None, 60) => 2,
        (Some("hour"), _) | (None, 3_600) => 3,
        (Some("day"), _) | (None, 86_400) => 4,
        (Some("month"), _) => 5,
        _ => 0,
    };
    let reset = verdict.retry_after.filter(|_| is_refused).unwrap_or(verdict.reset).max(0);
    DescriptorStatus {
        code,
        current_limit: Some(CurrentLimit {
            requests_per_unit: u32::try_from(verdict.limit).unwrap_or(u32::MAX),
            unit,
            name: policy.quota_names.get(verdict.tier).unwrap_or(&policy.name).clone(),
        }),
        limit_remaining: u32::try_from(verdict.remaining).unwrap_or(u32::MAX),
        duration_until_reset: Some(ProtoDuration {
            seconds: reset / 1_000_000,
            nanos: i32::try_from(reset % 1_000_000 * 1_000).unwrap_or(0),
        }),
    }
}
