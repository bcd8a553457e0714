//! A request that a client has sent, as the [`StepHost`] of its steps: it asks the store, counts, logs and records.

use std::{rc::Rc, time::Duration};

use http::{HeaderValue, StatusCode, request};
use http_body::Body as _;
use hyper::body::Incoming;
use smallvec::SmallVec;
use tokio::task::yield_now;

use super::{
    bans::{BanMatch, record_offense},
    checks::{CheckInputs, Checks, SkipReason},
    client::ClientInfo,
    cors::CorsResponse,
    credential::CredentialFault,
    decisions::Question,
    early_ends::Judgement,
    exchange::Exchange,
    header_edits::FilledEdits,
    headers,
    peer::Peer,
    read_request::{BodyReading, ReceivedPart},
    reply::Reply,
    request_buffering::{NeededPart, NotReceived, ReceivedBody, receive_before_decision, receive_small},
    request_context::{FoundRoute, RequestContext},
    request_facts::RequestFacts,
    reservation::reserve,
    rules::Rules,
    steps::{RefusedBy, StepHost},
    worker::Worker,
};
use crate::{
    history::DeniedBy,
    identity::{ClientIp, Identity, RequestKeyFault, TokenRefusal},
    limit::{Check, Decision, GrpcOutcome, ResponseStatus, StoreAdmin},
    router::Target,
    telemetry::metrics::{self, BanVerdict, Http2Abuse, SourceLabel, VerdictLabel},
    upstream::UpstreamClient,
};

/// The request of a client.
pub(super) struct ClientRequest<'a, S> {
    pub(super) worker: &'a Rc<Worker<S>>,
    pub(super) client: &'a Rc<ClientInfo>,
    /// Counts and logs the request when it is dropped, at the latest with the response's body.
    pub(super) exchange: Box<Exchange>,
    /// `None`: it was received, or is being forwarded.
    pub(super) body: Option<ReceivedBody>,
}

impl<'a, S> ClientRequest<'a, S> {
    /// A request of `client` that has just arrived.
    pub(super) fn new(
        worker: &'a Rc<Worker<S>>,
        client: &'a Rc<ClientInfo>,
        request: &request::Parts,
        body: Incoming,
    ) -> Self {
        let request_id =
            headers::request_id(&request.headers, &worker.config().request_id, client.is_trusted());
        let exchange = Exchange::new(&worker.telemetry, client, request, request_id);
        Self { worker, client, exchange, body: Some(ReceivedBody::Stream(body)) }
    }

    /// A request that a question of `client` describes. It has no body that could be read.
    pub(super) fn described(
        worker: &'a Rc<Worker<S>>,
        client: &'a Rc<ClientInfo>,
        request: &request::Parts,
    ) -> Self {
        let request_id =
            headers::request_id(&request.headers, &worker.config().request_id, client.is_trusted());
        let exchange = Exchange::new(&worker.telemetry, client, request, request_id);
        Self { worker, client, exchange, body: None }
    }

    /// The facts of a described request.
    pub(super) fn described_facts<'f>(
        &self,
        request: &'f request::Parts,
        question: &'f Question,
    ) -> RequestFacts<'f>
    where
        'a: 'f,
    {
        let Self { worker, client, .. } = self;
        let (peer, peer_identifier, is_peer_trusted, certificate) = match question.source() {
            Some((address, identifier, certificate)) => {
                (address, identifier, worker.rules.trusted_proxies.contains(address), certificate)
            }
            // The certificate of the connection is that of the proxy that asks.
            None => (client.peer().address().ip(), client.address(), true, None),
        };
        RequestFacts {
            request,
            survey: worker.rules.survey(&request.headers),
            peer,
            peer_identifier,
            is_peer_trusted,
            certificate,
            listener: Some(client.listener()),
            body_length: None,
            has_body: false,
            bans: Some(&worker.bans),
            question: Some(question),
        }
    }

    /// The facts of the request.
    pub(super) fn facts(&self, request: &'a request::Parts) -> RequestFacts<'a> {
        let Self { worker, client, body, .. } = self;
        RequestFacts {
            request,
            survey: worker.rules.survey(&request.headers),
            peer: client.peer().address().ip(),
            peer_identifier: client.address(),
            is_peer_trusted: client.is_trusted(),
            certificate: client.certificate(),
            listener: Some(client.listener()),
            body_length: body.as_ref().map(ReceivedBody::least_length),
            has_body: body.as_ref().is_some_and(|body| !body.is_empty()),
            bans: Some(&worker.bans),
            question: None,
        }
    }

    /// Notes the route, and the fields that it adds to the response.
    pub(super) fn routed(&mut self, request: &request::Parts, found: &FoundRoute) {
        let (rules, exchange) = (&self.worker.rules, &mut self.exchange);
        exchange.set_route(found.route);
        if let Some(Some(cors)) = rules.cors.get(found.route) {
            exchange.set_cors(CorsResponse::new(cors, &request.headers));
        }
        if let Some(edits) = &rules.config.routes[found.route].response_headers {
            let edits = FilledEdits::new(edits, &found.placeholders(rules, exchange.request_id()));
            exchange.edit_response(edits);
        }
    }

    fn identify_user(&mut self, rules: &Rules, facts: &RequestFacts<'_>) -> Identity {
        let identity = rules.identify(facts, || self.exchange.time(), |_| ());
        self.exchange.set_user(rules.written_user(&identity));
        self.exchange.set_usage_user(rules.written_user(&identity), identity.is_verified);
        if let Some(Ok(key)) = &identity.key {
            self.exchange.set_key(key);
            if let Some(keys) = &rules.keys {
                keys.note_use(key, self.exchange.time());
            }
        }
        identity
    }

    /// Identifies the user of a request again, after a wait for the key that has signed its token, at most as long as `longest`.
    pub(super) async fn identify_again(
        &mut self,
        facts: &RequestFacts<'_>,
        client: ClientIp,
        longest: Duration,
    ) -> Identity {
        let rules = &self.worker.rules;
        self.client.timer().wait_for_store();
        let address = rules.identifying_address(client.ip);
        let is_unjudged = rules.verifier.fetch_missing_key(&facts.request.headers, address, longest).await;
        let mut identity = self.identify_user(rules, facts);
        if is_unjudged && identity.refused_token == Some(TokenRefusal::UnknownKey) {
            identity.refused_token = Some(TokenRefusal::Unjudged);
        }
        identity
    }

    /// The client, as the upstream of this index identifies it.
    pub(super) fn upstream_client(&self, index: usize, found: &FoundRoute) -> Rc<UpstreamClient> {
        let address = self.worker.rules.identifying_address(found.client.ip);
        self.client.hand_off().upstream_client(self.worker.upstreams[index].shared(), address)
    }

    /// The `body`, which is received first if it has at most `limit` bytes.
    pub(super) fn receive_small<'r>(
        &self,
        body: Incoming,
        request: &'r request::Parts,
        limit: usize,
    ) -> impl Future<Output = Result<ReceivedBody, Box<Reply>>> + use<'a, 'r, S> {
        let Self { worker, client, .. } = self;
        let limits = &worker.config().client_limits;
        receive_small(body, request, limit, &worker.body_room, client.connection(), limits)
    }
}

impl<S: StoreAdmin + 'static> ClientRequest<'_, S> {
    /// Charges a described request that is admitted: it will be forwarded.
    pub(super) async fn charge(&mut self) {
        let status = ResponseStatus { http: StatusCode::OK, grpc: GrpcOutcome::Known(None) };
        self.settle(|| status).await;
        if let Some(reservation) = self.exchange.reservation() {
            reservation.completed();
            // The proxy's next question arrives later.
            yield_now().await;
        }
    }

    /// Notes that the decision begins, and counts the shadow policies that deny without asking the store.
    pub(super) fn begin_decision(&mut self, checks: &Checks<'_>) {
        for &policy in &checks.denied_in_shadow {
            self.count_decision(policy, VerdictLabel::ShadowDenied, SourceLabel::Store);
            self.exchange.verdict.deny_in_shadow(policy);
        }
        if !checks.as_slice().is_empty() {
            self.client.timer().wait_for_store();
            self.exchange.decision_started(checks.as_slice().len());
        }
    }

    /// Counts a request that a look has denied, where policies that have denied it count that.
    async fn count_denied(&self, checks: &Checks<'_>, looked: &Decision) {
        let counting = checks.outcomes(looked).filter(|of| of.is_denial() && of.check.policy.count_denied);
        let counting: SmallVec<[Check<'_>; 2]> =
            counting.map(|of| Check { cost: 1, ..of.check.clone() }).collect();
        if !counting.is_empty() {
            // The look remains the decision.
            let _counted = self.worker.store.decide(&counting).await;
        }
    }

    /// Reads the request before the decision, and completes the `checks` by it.
    ///
    /// # Errors
    /// The reply for the client: it broke the body off, was too slow, or the body can't be read.
    async fn read_body<'r>(
        &mut self,
        checks: &mut Checks<'r>,
        context: &RequestContext<'r, '_>,
    ) -> Result<(), Box<Reply>> {
        let (worker, limits) = (self.worker, &self.worker.config().client_limits);
        let reading = match context.body_reading(checks) {
            Ok(reading) => reading,
            Err(_) if checks.reads_for_usage_alone() => return Ok(()),
            Err(fault) => return Err(fault.into()),
        };
        let for_usage = checks.reads_for_usage_alone();
        let body = match self.body.take() {
            Some(ReceivedBody::Stream(body)) => body,
            None if context.facts.question.is_some() => {
                let nothing = ReceivedPart { bytes: &[], is_whole: true, least_length: 0 };
                let completed = context.complete(checks, nothing, (reading, 0), &self.inputs());
                return completed.map(|_unchanged| ()).map_err(Box::from);
            }
            _ => return Ok(()),
        };
        let length = body.size_hint().exact();
        if for_usage && length.is_none_or(|length| length > checks.longest_for_usage() as u64) {
            self.body = Some(ReceivedBody::Stream(body));
            return Ok(());
        }
        if !reading.needs_bytes() && (length.is_some() || !checks.reserves_by_length) {
            // Its length is all that counts.
            let body = ReceivedBody::Stream(body);
            let completed = context.complete(checks, body.received(), (reading, 0), &self.inputs());
            self.body = Some(body);
            return completed.map(|_unchanged| ()).map_err(Box::from);
        }
        let max_body = worker.config().max_body(context.route, self.client.listener());
        let limit = checks
            .longest_request(&worker.rules.policies)
            .max(checks.longest_for_usage())
            .min(max_body.map_or(usize::MAX, |max| max as usize));
        let is_small = length.is_some_and(|length| length <= SMALL_BODY.min(limit as u64));
        let part = match reading {
            BodyReading::Begin(_) if !is_small => NeededPart::Begin,
            _ => NeededPart::Whole,
        };
        let memory = (&worker.body_memory, worker.rules.identifying_address(self.exchange.address()));
        let client = self.client.connection();
        let (body, memory) = match receive_before_decision(body, (part, limit), memory, client, limits).await
        {
            Ok(received) => received,
            Err(NotReceived { reply, rest }) => {
                match rest {
                    // It is discarded with the reply.
                    Some(rest) => self.body = Some(ReceivedBody::Stream(rest)),
                    None => self.exchange.client_broke_off(),
                }
                return Err(reply);
            }
        };
        match context.complete(checks, body.received(), (reading, limit), &self.inputs()) {
            Ok(edited) => {
                let body = edited.map_or(body, |edited| ReceivedBody::Edited(edited.into()));
                self.body = Some(body.held_in(memory));
                Ok(())
            }
            Err(_) if for_usage => {
                self.body = Some(body.held_in(memory));
                Ok(())
            }
            Err(fault) => {
                // The rest of it is discarded with the reply.
                self.body = Some(body);
                Err(fault.into())
            }
        }
    }
}

/// A body of another type than JSON up to this length is received as a whole.
const SMALL_BODY: u64 = 64 << 10;

impl<'r, S: StoreAdmin + 'static> StepHost<'r> for ClientRequest<'_, S> {
    fn note_refusal(
        &mut self,
        refused: RefusedBy,
        context: Option<&RequestContext<'_, '_>>,
    ) -> Result<(), RefusedBy> {
        let (worker, config) = (self.worker, self.worker.config());
        match (&refused, context) {
            (RefusedBy::Access { denial, .. }, _) => {
                let by = if denial.setting() == "deny" { DeniedBy::Deny } else { DeniedBy::Allow };
                self.keep_denial(by, StatusCode::FORBIDDEN, context);
                if let Some(context) = context {
                    self.record_own_refusal(context, StatusCode::FORBIDDEN, false);
                }
                let names = &worker.telemetry.policies;
                let setting = names.iter().rposition(|name| name == denial.setting());
                self.exchange.verdict.forbid(setting.unwrap_or(names.len()));
            }
            (RefusedBy::Ban(BanMatch { ban, rule }), Some(context)) => {
                worker.metrics().ban_denial(*rule, BanVerdict::Denied);
                let policy = config.policies.len() + rule;
                self.exchange.verdict.ban(policy);
                let status = config.bans.get(*rule).map_or(StatusCode::FORBIDDEN, |rule| rule.reply.status);
                self.keep_denial(DeniedBy::Ban { rule: *rule as u32 }, status, Some(context));
                self.denial_record(context).record_banned(worker, policy, ban);
            }
            (&RefusedBy::MissingKey(policy), Some(context)) => {
                self.count_decision(policy, VerdictLabel::Denied, SourceLabel::Store);
                self.denial_record(context).record_unidentified(worker, policy);
                record_offense(worker, &self.exchange, context, || [(policy, "")].into_iter());
                self.exchange.verdict.deny(policy);
                self.keep_denial(
                    DeniedBy::Unidentified { policy: policy as u32 },
                    self.status_of(policy),
                    Some(context),
                );
            }
            (RefusedBy::Credential(fault), Some(context)) => {
                let refusal = fault.refusal();
                self.exchange.verdict.reject_credential(refusal == Some(metrics::Refusal::ExpiredCredential));
                if let Some(refusal) = refusal {
                    self.exchange.count_refusal(refusal);
                }
                self.keep_denial(DeniedBy::Credential, StatusCode::UNAUTHORIZED, Some(context));
                if !matches!(fault, CredentialFault::NotLoaded) {
                    self.record_own_refusal(context, StatusCode::UNAUTHORIZED, fault.is_guess());
                }
            }
            _ => {}
        }
        Err(refused)
    }

    #[inline(always)]
    fn located(&mut self, rules: &Rules, client: ClientIp) -> Result<(), RefusedBy> {
        self.exchange.set_address(client.ip);
        let Some(watched) = self.client.hand_off().watched() else { return Ok(()) };
        match watched.judge(rules.identifying_address(client.ip), self.client.timer().now()) {
            Judgement::Served => return Ok(()),
            Judgement::Refused => {}
            Judgement::RefusedNow => {
                self.worker.record_flood(Peer::Address((client.ip, 0).into()), Http2Abuse::RapidResets);
                self.worker.metrics().thread().http2_abuse(Http2Abuse::RapidResets).inc();
            }
        }
        Err(RefusedBy::EarlyEnds)
    }

    #[inline(always)]
    fn check_listener(&mut self, facts: &RequestFacts<'_>, target: &Target) -> Result<(), RefusedBy> {
        match self.client.listener_reply() {
            Some(reply) if reply.is_for(&facts.request.headers, facts.is_peer_trusted) => {
                Err(RefusedBy::Listener(Box::new(reply.reply(target))))
            }
            _ => Ok(()),
        }
    }

    #[inline(always)]
    fn identify(&mut self, rules: &Rules, facts: &RequestFacts<'_>) -> Identity {
        let identity = self.identify_user(rules, facts);
        let untrusted = match facts.is_peer_trusted || facts.question.is_some() {
            true => None,
            false => rules.untrusted_peer(self.client.peer(), &facts.request.headers, facts.survey),
        };
        if facts.has_address() {
            self.worker.sampler.record(self.exchange.address(), untrusted);
        }
        identity
    }

    fn draw(&mut self, total: u64) -> Option<u64> {
        Some(fastrand::u64(..total))
    }

    fn inputs(&self) -> CheckInputs<'_> {
        CheckInputs { time: self.exchange.time(), tokens: &self.worker.tokens }
    }

    fn banned_in_shadow(&mut self, ban: &BanMatch) {
        self.worker.metrics().ban_denial(ban.rule, BanVerdict::ShadowDenied);
        self.exchange.verdict.deny_in_shadow(self.worker.config().policies.len() + ban.rule);
    }

    fn skipped(&mut self, policies: &[(usize, SkipReason<'_>)], context: &RequestContext<'_, '_>) {
        if context.facts.question.is_some() {
            for (policy, reason) in policies {
                if matches!(reason, SkipReason::Question) {
                    context.rules.warnings.warn_of_skipped(&context.rules.policies[*policy]);
                }
            }
        }
    }

    /// Asks the store for one decision on all checks, and records it. The exchange keeps the request's reservation.
    async fn decide(
        &mut self,
        checks: &Checks<'r>,
        context: &RequestContext<'r, '_>,
    ) -> Result<Duration, RefusedBy> {
        let (worker, all) = (self.worker, checks.as_slice());
        self.begin_decision(checks);
        if all.is_empty() && !checks.settles_uncounted() {
            self.exchange.units = checks.fixed_units();
            return Ok(Duration::ZERO);
        }
        let is_reserved = checks.may_refund() || checks.settles_uncounted() || worker.store.must_finish(all);
        let decided = if is_reserved {
            let (decided, reservation) = reserve(worker, checks, Some(self.exchange.owner.clone())).await;
            if let (Some(reservation), Some(body)) = (&reservation, &self.body) {
                let bytes = checks.request_bytes.unwrap_or_else(|| body.least_length());
                reservation.set_request(bytes, checks.max_output);
            }
            self.exchange.set_reservation(reservation);
            decided
        } else {
            worker.store.decide(all).await
        };
        if !all.is_empty() {
            let source = decided.as_ref().ok().map(|decision| SourceLabel::from(decision.source));
            self.exchange.decision_ended(source);
        }
        let Ok(decision) = decided else {
            let mut policies: SmallVec<[usize; 2]> =
                checks.iter().map(|(_, variant)| variant.policy).collect();
            policies.dedup();
            for policy in policies {
                self.count_decision(policy, VerdictLabel::Error, SourceLabel::Fallback);
            }
            return Err(RefusedBy::Store);
        };
        self.record_outcomes(context.found.route, checks, &decision);
        if !decision.admitted {
            return Err(self.denied(checks, &decision, context));
        }
        if !is_reserved && self.exchange.history().is_some() {
            self.exchange.units = checks.fixed_units();
        }
        if all.is_empty() {
            return Ok(Duration::ZERO);
        }
        self.exchange.verdict.allow();
        // The slot is taken already, so the number of waiting requests is bounded: by the outflow of a bucket within
        // the policy's `delay`, and by the number of connections.
        let delay = self.exchange.outcomes.iter().map(|outcome| outcome.verdict.delay).max().unwrap_or(0);
        self.exchange.verdict.delay(delay);
        Ok(Duration::from_micros(u64::try_from(delay).unwrap_or(0)))
    }

    async fn may_try_keys(
        &mut self,
        attempts: &Checks<'r>,
        context: &RequestContext<'r, '_>,
        fault: Option<CredentialFault>,
    ) -> bool {
        self.client.timer().wait_for_store();
        let is_guess = fault.is_some_and(CredentialFault::is_guess);
        let decided = match is_guess {
            true => self.worker.store.decide(attempts.as_slice()).await,
            false => self.worker.store.look(attempts.as_slice()).await,
        };
        let Ok(decision) = decided else { return false };
        // A token of another kind is the upstream's, unless it was a guess: it counts, and nobody is blamed for it.
        let is_blamed = is_guess && fault != Some(CredentialFault::Key(RequestKeyFault::OtherToken));
        if is_blamed && !decision.admitted {
            self.record_denials(attempts, &decision, context);
        }
        if let Some(outcome) = attempts.outcomes(&decision).next().filter(|_| is_guess) {
            let verdict = match decision.admitted {
                true => VerdictLabel::Allowed,
                false => VerdictLabel::Denied,
            };
            self.count_decision(outcome.variant.policy, verdict, decision.source.into());
        }
        decision.admitted
    }

    fn key_ignored(&mut self, rules: &Rules, identity: &Identity) {
        self.exchange.set_user(rules.written_user(identity));
        self.exchange.set_usage_user(rules.written_user(identity), identity.is_verified);
        self.exchange.forget_key();
    }

    async fn read_request(
        &mut self,
        checks: &mut Checks<'r>,
        context: &RequestContext<'r, '_>,
    ) -> Result<(), RefusedBy> {
        // If a limit denies whatever the body says, the body is not read, and this look is the decision.
        self.client.timer().wait_for_store();
        let reads_body = context.facts.has_body
            && (checks.reads_members() || checks.reserves_by_length)
            && !checks.reads_for_usage_alone();
        if reads_body
            && !checks.as_slice().is_empty()
            && let Ok(decision) = self.worker.store.look(&checks.with_least_costs()).await
            && !decision.admitted
        {
            self.begin_decision(checks);
            self.count_denied(checks, &decision).await;
            self.exchange.decision_ended(Some(SourceLabel::from(decision.source)));
            self.record_outcomes(context.found.route, checks, &decision);
            return Err(self.denied(checks, &decision, context));
        }
        let read = self.read_body(checks, context).await;
        if let Some(values) = context.found.values.get() {
            self.exchange.log_values(&self.worker.config().access_log.values, values);
            self.exchange.set_usage_value(values);
        }
        let Err(reply) = read else { return Ok(()) };
        // It counts as a request, and costs nothing that a response would tell.
        checks.remove_response_costs();
        self.decide(checks, context).await?;
        Err(RefusedBy::Body(reply))
    }

    async fn wait(&mut self, delay: Duration) -> bool {
        let timer = self.client.timer();
        timer.delay(delay).await;
        !timer.is_call_over()
    }

    fn cors(&self) -> Option<&CorsResponse> {
        self.exchange.cors()
    }

    fn request_id(&self) -> &HeaderValue {
        self.exchange.request_id()
    }
}
