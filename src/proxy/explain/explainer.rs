//! Takes the steps of a request that no client has sent, and notes their findings.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::{
    body, changes, checks, endpoint,
    explanation::{ExplainedReply, ExplainedRequest, ExplainedVerdict, Explanation, MASK},
    host::assume_host,
    identity,
    listeners::{self, MeantListeners},
    route,
};
use crate::{
    abuse::bans::BanTable,
    config::model::{Rewrite, RouteAction},
    identity::{AccessDenial, ClientIp, Identity},
    limit::{DecisionSource, Store},
    proxy::{
        bans::{BanMatch, matching_bans},
        checks::{CheckInputs, Checks, SkipReason},
        cors::CorsResponse,
        credential::CredentialFault,
        decisions::Question,
        outcome::{Outcomes, tightest},
        placeholders::PlaceholderValues,
        read_request::ReceivedPart,
        request_context::{FoundRoute, RequestContext},
        request_facts::{RequestFacts, usually_has_body},
        reservation::LeaseTokens,
        route_reply::{LocalReply, ReplyOrigin, location},
        rules::Rules,
        steps::{RefusedBy, ResponseSource, StepHost, admit, check_optional_key, find, has_optional_key},
    },
    router::{Rejection, Target},
    upstream::SharedUpstream,
};

/// Shown in place of the ID that a real request would get.
static REQUEST_ID: HeaderValue = HeaderValue::from_static("{request_id}");

/// Why the key of a request to a route that requires none does not count.
const KEY_IGNORED: &str =
    "; the API key is ignored, because the address has sent too many wrong ones (`api_keys.attempts`)";

/// Explains a request received at the time `now`, in microseconds since the Unix epoch. `upstreams`: the
/// configuration's, in its order.
pub async fn explain<S: Store>(
    rules: &Rules,
    upstreams: &[Arc<SharedUpstream>],
    store: &S,
    bans: &BanTable,
    mut asked: ExplainedRequest,
    now: i64,
) -> Explanation {
    let is_peer_trusted = rules.trusted_proxies.contains(asked.peer);
    let likely = asked.listener.unwrap_or_else(|| listeners::likely(rules, &asked, is_peer_trusted));
    let assumed_host = assume_host(rules, &mut asked.request, &[likely]);
    let is_asked = asked.listener.or(Some(likely)).is_some_and(|listener| rules.is_asked_on(listener));
    let as_sent = asked.request.headers.clone();
    rules.conceal(&mut asked.request, is_peer_trusted || is_asked);
    let assumed_listener = match asked.listener {
        Some(_) => None,
        None => listeners::assume(rules, &asked.request, likely),
    };
    let ExplainedRequest { request, body, peer, is_https, certificate, listener } = &asked;
    let length = request.headers.get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
    let peer_identifier = rules.address_identifier(*peer);
    let on = rules.config.listeners.get(listener.unwrap_or(likely));
    let question = on.and_then(|listener| listener.decisions.as_ref()).map(|_| Question::default());
    let asked_on = on.and_then(listeners::of_decisions);
    let facts = RequestFacts {
        request,
        survey: rules.survey(&request.headers),
        peer: *peer,
        peer_identifier: &peer_identifier,
        is_peer_trusted,
        certificate: certificate.as_ref(),
        listener: listener.or(assumed_listener.as_ref().map(|_| likely)),
        body_length: body.as_ref().map(|body| body.len() as u64).or(length),
        has_body: match body {
            Some(body) => !body.is_empty(),
            None => length.is_some() || usually_has_body(&request.method),
        },
        bans: Some(bans),
        question: question.as_ref(),
    };
    let (client, why_address) = identity::address(rules, &facts, &as_sent);
    let address = rules.address_identifier(client.ip);
    let (identity, user) = identity::user(rules, &facts, &as_sent, now);
    let explanation = Explanation {
        assumed_host,
        assumed_listener: asked_on.or(assumed_listener),
        address: (address.address().into(), why_address),
        user: (identity.pseudonym.clone().or_else(|| identity.user.clone()), user),
        because: "no policy applies".to_owned(),
        ..Explanation::default()
    };
    let request_id = request.headers.get(&rules.config.request_id).filter(|_| facts.is_peer_trusted);
    let mut explainer = Explainer {
        rules,
        store,
        now,
        is_peer_trusted: facts.is_peer_trusted,
        is_https: *is_https,
        listener: *listener,
        client,
        identity,
        request_id: request_id.unwrap_or(&REQUEST_ID),
        body: body.as_ref(),
        is_body_missing: false,
        tokens: LeaseTokens::new(),
        cors: None,
        outcomes: Outcomes::new(),
        explanation,
    };
    match find(&mut explainer, rules, &facts) {
        Ok(mut found) => {
            if has_optional_key(rules, &found) {
                check_optional_key(&mut explainer, rules, &facts, &mut found).await;
            }
            explainer.explain_found(&facts, &found, upstreams).await;
        }
        Err(RefusedBy::Routing(Rejection { status: StatusCode::NOT_FOUND, .. })) if question.is_some() => {
            let because = "no route matches, so the proxy that asks may forward it";
            because.clone_into(&mut explainer.explanation.because);
        }
        Err(refused) => explainer.note(refused, None),
    }
    explainer.explanation
}

/// The route's own reply. `None`: it has an upstream, or the target of its redirect can't be built.
fn own_reply(action: &RouteAction, values: &PlaceholderValues<'_>) -> Option<ExplainedReply> {
    match action {
        RouteAction::Upstream(_) | RouteAction::Decision => None,
        RouteAction::Usage => Some(ExplainedReply { status: StatusCode::OK.as_u16(), location: None }),
        RouteAction::Reply(reply) => Some(ExplainedReply { status: reply.status.as_u16(), location: None }),
        RouteAction::Redirect(redirect) => {
            let location = location(redirect, values).ok()?;
            let location = if redirect.is_secret() { MASK.to_owned() } else { location };
            Some(ExplainedReply { status: redirect.status.as_u16(), location: Some(location) })
        }
    }
}

/// Takes the steps without taking anything from limits. It goes on after a refusal, and the first one counts.
struct Explainer<'a, S> {
    rules: &'a Rules,
    store: &'a S,
    now: i64,
    is_peer_trusted: bool,
    /// Whether the request arrives over HTTPS. `None`: either way.
    is_https: Option<bool>,
    /// The index of the listener that the question names.
    listener: Option<usize>,
    client: ClientIp,
    identity: Identity,
    request_id: &'a HeaderValue,
    /// `None`: it is not known.
    body: Option<&'a Bytes>,
    /// Whether its body would have been read.
    is_body_missing: bool,
    tokens: LeaseTokens,
    cors: Option<Box<CorsResponse>>,
    /// Of the enforced policies, if they deny the request.
    outcomes: Outcomes,
    explanation: Explanation,
}

impl<S: Store> Explainer<'_, S> {
    /// Explains a request whose route is found.
    async fn explain_found(
        &mut self,
        facts: &RequestFacts<'_>,
        found: &FoundRoute,
        upstreams: &[Arc<SharedUpstream>],
    ) {
        let (rules, headers) = (self.rules, &facts.request.headers);
        let cors = rules.cors.get(found.route).and_then(Option::as_ref);
        self.cors = cors.map(|cors| CorsResponse::new(cors, headers));
        let mut context = RequestContext::new(rules, facts, found);
        let source = admit(self, &mut context).await;
        self.explain_source(source, &context);

        let (route, attributes) = (context.route, context.attributes());
        let values = found.placeholders(rules, self.request_id);
        let upstream = route.action.upstream().and_then(|index| upstreams.get(index));
        let cors = self.explain_cors(&context);
        let explained = &mut self.explanation;
        explained.cors = cors;
        explained.route = Some(route::explain(rules, facts, &found.target, Some(found.route)));
        explained.reply = own_reply(&route.action, &values);
        explained.upstream = route::upstream_name(rules, route).map(str::to_owned);
        explained.endpoint = upstream.and_then(|upstream| endpoint::explain(upstream, attributes));
        explained.body_limit = body::limit(&rules.config, route, facts.listener);
        explained.request_headers = changes::header_changes(route.request_headers.as_deref(), &values);
        explained.response_headers = changes::header_changes(route.response_headers.as_deref(), &values);
        let bans = facts.bans.map(|bans| matching_bans(bans, &context, self.now));
        explained.bans = bans.into_iter().flatten().map(|matched| matched.ban).collect();
        checks::sort(&mut explained.checks, &context);
    }

    /// Explains the source of the response.
    fn explain_source(
        &mut self,
        source: Result<ResponseSource<'_>, RefusedBy>,
        context: &RequestContext<'_, '_>,
    ) {
        let LocalReply { reply, origin } = match source {
            Ok(ResponseSource::Local(reply)) => *reply,
            Ok(ResponseSource::Usage) if context.facts.question.is_some() => return,
            Ok(ResponseSource::Usage) => return self.explain_usage(context),
            Ok(ResponseSource::Upstream(_, path)) => {
                let is_secret = matches!(&context.route.rewrite, Some(Rewrite::Path(text)) if text.is_secret);
                self.explanation.rewritten_path = path.map(|path| match is_secret {
                    true => MASK.to_owned(),
                    false => path.path_and_query().to_string(),
                });
                return;
            }
            Err(refused) => return self.note(refused, Some(context)),
        };
        if context.facts.question.is_some() {
            // The proxy that asks forwards it.
            return;
        }
        let explained = &mut self.explanation;
        if explained.verdict != ExplainedVerdict::Allowed {
            return;
        }
        explained.status = Some(reply.status);
        match origin {
            // An explained request does not wait, so no deadline passes.
            ReplyOrigin::Route | ReplyOrigin::Deadline => {}
            ReplyOrigin::Preflight { .. } => {
                "it is a CORS preflight, which Tollgate answers".clone_into(&mut explained.because);
            }
            ReplyOrigin::MaxForwards => {
                "Max-Forwards is 0, so Tollgate does not forward it".clone_into(&mut explained.because);
            }
            ReplyOrigin::FaultyRedirect | ReplyOrigin::FaultyRewrite => {
                explained.verdict = ExplainedVerdict::Refused;
                explained.because = reply.detail.into_owned();
            }
        }
    }

    /// Explains a request for the rest of the limits of its key.
    fn explain_usage(&mut self, context: &RequestContext<'_, '_>) {
        let explained = &mut self.explanation;
        if explained.verdict != ExplainedVerdict::Allowed {
            return;
        }
        explained.status = Some(StatusCode::OK);
        if context.found.identity.valid_key().is_none() {
            (explained.verdict, explained.status) = (ExplainedVerdict::Refused, Some(StatusCode::FORBIDDEN));
            "the route shows the holder of a valid API key its limits, and the request has none"
                .clone_into(&mut explained.because);
        }
    }

    /// Whether pages of the request's origin may read the response. `None`: the route has no `cors`, or no page has
    /// sent the request.
    fn explain_cors(&self, context: &RequestContext<'_, '_>) -> Option<String> {
        let allowed = context.route.cors.as_ref()?.origins.names().join(", ");
        let origin = context.request().headers.get(header::ORIGIN)?;
        let origin = String::from_utf8_lossy(origin.as_bytes());
        Some(match self.cors.as_ref()?.allows_origin() {
            true => format!("pages of {origin} may read the response: {allowed}"),
            false => format!("pages of {origin} may not read the response: only {allowed}"),
        })
    }

    /// Notes a refusal, unless an earlier step has refused the request.
    fn note(&mut self, refused: RefusedBy, context: Option<&RequestContext<'_, '_>>) {
        if self.explanation.verdict != ExplainedVerdict::Allowed {
            return;
        }
        let because = self.reason(&refused, context);
        let reply =
            refused.reply(self.rules, self.is_peer_trusted, || self.now, &self.outcomes, HeaderMap::new());
        self.explanation.status = Some(reply.status);
        (self.explanation.verdict, self.explanation.because) = because;
    }

    /// The verdict of a refusal, and the reason in words.
    fn reason(
        &self,
        refused: &RefusedBy,
        context: Option<&RequestContext<'_, '_>>,
    ) -> (ExplainedVerdict, String) {
        let policy_name = |index: usize| self.rules.policies.get(index).map_or("", |policy| &*policy.name);
        match refused {
            RefusedBy::Access { denial, is_of_route } => {
                (ExplainedVerdict::Forbidden, self.access_reason(*denial, context.filter(|_| *is_of_route)))
            }
            RefusedBy::Ban(BanMatch { ban, .. }) => {
                let reason = if ban.reason.is_empty() { String::new() } else { format!(": {}", ban.reason) };
                (ExplainedVerdict::Banned, format!("{} is banned by {}{reason}", ban.key, ban.by))
            }
            RefusedBy::MissingKey(policy) => (
                ExplainedVerdict::Denied,
                format!("denied by {}: {}", policy_name(*policy), checks::LACKS_KEYS),
            ),
            RefusedBy::Policies(decisive) => {
                let by =
                    self.outcomes.get(*decisive).map_or("", |outcome| policy_name(outcome.variant.policy));
                (ExplainedVerdict::Denied, format!("denied by {by}: the limit is reached"))
            }
            RefusedBy::Store => {
                let because = "the store is unavailable, and a policy has on_store_error: deny";
                (ExplainedVerdict::Undecided, because.to_owned())
            }
            RefusedBy::Credential(fault) => (ExplainedVerdict::Unauthorized, fault.reason().to_owned()),
            RefusedBy::BodySize => {
                let length = context.and_then(|context| context.facts.body_length).unwrap_or_default();
                let because = format!("the body has {length} bytes, which is more than max_body allows");
                (ExplainedVerdict::Refused, because)
            }
            RefusedBy::Head(Rejection { detail, .. }) | RefusedBy::Routing(Rejection { detail, .. }) => {
                (ExplainedVerdict::Refused, (*detail).to_owned())
            }
            RefusedBy::Listener(_) => {
                let listener = self.explanation.listeners.first();
                let because =
                    listener.map(|of| format!("listener {} replies itself: {}", of.listener, of.because));
                (ExplainedVerdict::Refused, because.unwrap_or_default())
            }
            RefusedBy::Body(reply) => (ExplainedVerdict::Refused, reply.detail.clone().into_owned()),
            // Only real requests are refused for the first reason, and replayed ones for the others.
            RefusedBy::EarlyEnds | RefusedBy::Log | RefusedBy::UnknownListener => {
                (ExplainedVerdict::Refused, String::new())
            }
        }
    }

    /// Why the client's address may not send the request. `context`: the request's, if its route forbids it.
    fn access_reason(&self, denial: AccessDenial, context: Option<&RequestContext<'_, '_>>) -> String {
        let access = &self.rules.access;
        let (rule, place) = match context {
            Some(context) => (access.of_route(context.found.route), "of the route"),
            None => (access.everywhere(), "at the top level"),
        };
        let address = self.client.ip;
        match denial {
            denial if !self.client.is_known => {
                format!("the client's address is unknown, and {} {place} is set", denial.setting())
            }
            AccessDenial::Denied => {
                let entry = rule.and_then(|rule| rule.denied_by(address)).unwrap_or_default();
                format!("deny {place} names {address}: {entry}")
            }
            AccessDenial::NotAllowed => format!("allow {place} does not name {address}"),
        }
    }
}

impl<'r, S: Store> StepHost<'r> for Explainer<'_, S> {
    fn note_refusal(
        &mut self,
        refused: RefusedBy,
        context: Option<&RequestContext<'_, '_>>,
    ) -> Result<(), RefusedBy> {
        if let RefusedBy::MissingKey(index) = refused
            && let Some(policy) = self.rules.policies.get(index)
        {
            self.explanation.checks.push(checks::unidentified(index, policy));
        }
        self.note(refused, context);
        Ok(())
    }

    /// If the question names no listener, the explanation lists the ones that would reply, and goes on about the others.
    /// Until its route is found, it has none.
    fn check_listener(&mut self, facts: &RequestFacts<'_>, target: &Target) -> Result<(), RefusedBy> {
        if self.explanation.verdict == ExplainedVerdict::Allowed {
            let meant = self.listener.map_or(MeantListeners::By(self.is_https), MeantListeners::One);
            let replies = listeners::explain(self.rules, facts, meant, target);
            let (explained, replies): (Vec<_>, Vec<_>) = replies.into_iter().unzip();
            self.explanation.listeners = explained;
            if let Some(reply) = replies.into_iter().next().filter(|_| self.listener.is_some()) {
                self.note(RefusedBy::Listener(Box::new(reply)), None);
            }
        }
        self.explanation.route = Some(route::explain(self.rules, facts, target, None));
        Ok(())
    }

    fn identify(&mut self, _rules: &Rules, _facts: &RequestFacts<'_>) -> Identity {
        std::mem::take(&mut self.identity)
    }

    /// Most requests go to the first upstream.
    fn draw(&mut self, _total: u64) -> Option<u64> {
        None
    }

    fn inputs(&self) -> CheckInputs<'_> {
        CheckInputs { time: self.now, tokens: &self.tokens }
    }

    fn skipped(&mut self, policies: &[(usize, SkipReason<'_>)], context: &RequestContext<'_, '_>) {
        let rows = policies.iter().filter_map(|&(index, why)| {
            Some(checks::skipped(index, self.rules.policies.get(index)?, why, context.attributes()))
        });
        self.explanation.checks.extend(rows);
    }

    async fn read_request(
        &mut self,
        checks: &mut Checks<'r>,
        context: &RequestContext<'r, '_>,
    ) -> Result<(), RefusedBy> {
        let reading = context.body_reading(checks);
        let needs_bytes = matches!(reading, Ok(reading) if reading.needs_bytes());
        let (bytes, is_whole) = match self.body {
            Some(body) => (&**body, true),
            None if needs_bytes => {
                let waiting = checks.take_awaiting().into_iter();
                let policies = waiting.filter_map(|index| Some((index, self.rules.policies.get(index)?)));
                let rows = policies.map(|(index, policy)| checks::unread(index, policy));
                self.explanation.checks.extend(rows);
                self.is_body_missing = true;
                return Ok(());
            }
            None => (&[][..], !context.facts.has_body),
        };
        let limit = checks.longest_request(&self.rules.policies);
        let is_too_long = bytes.len() > limit && matches!(reading, Ok(reading) if reading.needs_whole());
        let received =
            ReceivedPart { bytes, is_whole: is_whole && !is_too_long, least_length: bytes.len() as u64 };
        let inputs = CheckInputs { time: self.now, tokens: &self.tokens };
        let completed =
            reading.and_then(|reading| context.complete(checks, received, (reading, limit), &inputs));
        if let Err(refusal) = completed {
            checks.remove_response_costs();
            self.note(RefusedBy::of_body(refusal), Some(context));
        }
        Ok(())
    }

    async fn decide(
        &mut self,
        checks: &Checks<'r>,
        context: &RequestContext<'r, '_>,
    ) -> Result<Duration, RefusedBy> {
        let all = checks.as_slice();
        let decided = if all.is_empty() { None } else { Some(self.store.look(all).await) };
        let decision = decided.as_ref().and_then(|decided| decided.as_ref().ok());
        self.explanation.checks.extend(checks::decided(checks, decision, context));
        match decided {
            None => {}
            Some(Err(_)) => self.note(RefusedBy::Store, Some(context)),
            Some(Ok(decision)) => {
                let is_refused = self.explanation.verdict != ExplainedVerdict::Allowed;
                if decision.admitted && !is_refused {
                    "every enforced policy admits the request".clone_into(&mut self.explanation.because);
                    if self.is_body_missing {
                        self.explanation.because += "; what its body says is not known (`--body`)";
                    }
                } else if !decision.admitted {
                    self.outcomes = checks.enforced_outcomes(&decision).collect();
                    let decisive = tightest(&self.outcomes).unwrap_or_default();
                    self.note(RefusedBy::Policies(decisive), Some(context));
                }
                if decision.source == DecisionSource::Fallback && !is_refused {
                    self.explanation.because += "; the store is unavailable, so it was not asked";
                }
            }
        }
        Ok(Duration::ZERO)
    }

    async fn may_try_keys(
        &mut self,
        attempts: &Checks<'r>,
        _context: &RequestContext<'r, '_>,
        _fault: Option<CredentialFault>,
    ) -> bool {
        self.store.look(attempts.as_slice()).await.is_ok_and(|decision| decision.admitted)
    }

    fn key_ignored(&mut self, _rules: &Rules, identity: &Identity) {
        let (user, why) = &mut self.explanation.user;
        *user = identity.pseudonym.clone().or_else(|| identity.user.clone());
        *why += KEY_IGNORED;
    }

    fn cors(&self) -> Option<&CorsResponse> {
        self.cors.as_deref()
    }

    fn request_id(&self) -> &HeaderValue {
        self.request_id
    }
}
