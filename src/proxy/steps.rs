//! The steps of a request, from its head to the source of its response. Their order stands here once, for all that take
//! them: `serve` for a client's request, `explain` for a question about one, and `replay` for a line of an access log.

use std::{cell::OnceCell, time::Duration};

use http::{HeaderMap, HeaderValue, StatusCode, header};

pub(crate) use super::request_facts::usually_has_body;
use super::{
    bans::{BanMatch, find_ban},
    cors::is_preflight,
    credential::CredentialFault,
    outcome::PolicyOutcome,
    path_rewrite::RewrittenPath,
    quota,
    reply::Reply,
    request_context::FoundRoute,
    route_reply::{LocalReply, ReplyOrigin, upstream_of},
    rules::{Rules, parse_target},
    split::point_of,
};
pub use super::{
    checks::{CheckInputs, Checks, SkipReason, distinct_detail},
    cors::CorsResponse,
    outcome::VariantRef,
    request_context::RequestContext,
    request_facts::RequestFacts,
    reservation::LeaseTokens,
};
use crate::{
    config::model::{MethodOverride, Require, RouteAction},
    identity::{AccessDenial, AccessRule, ClientIp, Identity},
    request_values::BodyRefusal,
    router::{Rejection, RequestParts, Target},
};

/// Takes the steps of one request: it does the parts that only it can do, and notes the results.
pub(crate) trait StepHost<'r> {
    /// Notes that a step refuses the request although the next ones could be taken: `deny` or `allow`, a ban, a
    /// credential, `max_body`, or `missing: deny`. After `Ok`, they are taken all the same.
    ///
    /// # Errors
    /// The refusal, which ends the steps.
    fn note_refusal(
        &mut self,
        refused: RefusedBy,
        _context: Option<&RequestContext<'_, '_>>,
    ) -> Result<(), RefusedBy> {
        Err(refused)
    }

    /// The client's address is known.
    ///
    /// # Errors
    /// Its requests are not served at the moment.
    fn located(&mut self, _rules: &Rules, _client: ClientIp) -> Result<(), RefusedBy> {
        Ok(())
    }

    /// The listener may reply by itself to a request for `target`.
    ///
    /// # Errors
    /// It does not serve the request.
    fn check_listener(&mut self, facts: &RequestFacts<'_>, target: &Target) -> Result<(), RefusedBy>;

    /// Identifies the user.
    fn identify(&mut self, rules: &Rules, facts: &RequestFacts<'_>) -> Identity;

    /// A random number below `total`. `None`: the most likely upstream gets the request.
    fn draw(&mut self, total: u64) -> Option<u64>;

    /// The inputs of checks.
    fn inputs(&self) -> CheckInputs<'_>;

    /// A ban would refuse the request, but only in shadow.
    fn banned_in_shadow(&mut self, _ban: &BanMatch) {}

    /// These policies of the route do not apply to the request.
    fn skipped(&mut self, _policies: &[(usize, SkipReason<'_>)], _context: &RequestContext<'_, '_>) {}

    /// Completes the `checks` by the values of the request, and by what its body says of its cost.
    ///
    /// # Errors
    /// It can't be read, has a value that is not allowed, or is denied whatever its body says.
    async fn read_request(
        &mut self,
        checks: &mut Checks<'r>,
        context: &RequestContext<'r, '_>,
    ) -> Result<(), RefusedBy>;

    /// Asks the store about the checks of the request, of which there may be none. Returns how long the request has to
    /// wait.
    ///
    /// # Errors
    /// The refusal, which ends the steps.
    async fn decide(
        &mut self,
        checks: &Checks<'r>,
        context: &RequestContext<'r, '_>,
    ) -> Result<Duration, RefusedBy>;

    /// Whether the client's address may try further keys on a route that requires none. `fault`: of the request's key; a
    /// guess is counted. `None`: the key is valid.
    async fn may_try_keys(
        &mut self,
        _attempts: &Checks<'r>,
        _context: &RequestContext<'r, '_>,
        _fault: Option<CredentialFault>,
    ) -> bool {
        true
    }

    /// The key of the request does not count. It has this `identity` without it.
    fn key_ignored(&mut self, _rules: &Rules, _identity: &Identity) {}

    /// Waits. Returns false if the client's own deadline has passed.
    async fn wait(&mut self, _delay: Duration) -> bool {
        true
    }

    /// The CORS part of the response, if the route has `cors`.
    fn cors(&self) -> Option<&CorsResponse>;

    /// The request's ID.
    fn request_id(&self) -> &HeaderValue;
}

/// The step that refuses a request.
#[derive(Debug)]
pub enum RefusedBy {
    /// The target, the framing or the fields are malformed or not supported.
    Head(Rejection),
    /// Too many requests of the client have ended before their response.
    EarlyEnds,
    /// `deny` or `allow`, at the top level or of the route.
    Access {
        denial: AccessDenial,
        is_of_route: bool,
    },
    /// The listener redirects, or requires a certificate.
    Listener(Box<Reply>),
    /// No route matches.
    Routing(Rejection),
    /// Its route depends on the listener on which it came in, and nobody knows that.
    UnknownListener,
    Ban(BanMatch),
    /// It lacks the credential that the route requires, or its API key is not valid.
    Credential(CredentialFault),
    /// The body is longer than `max_body` allows.
    BodySize,
    /// The body, which is read before the decision, broke off, was too slow, can't be read, or says something that is not
    /// allowed.
    Body(Box<Reply>),
    /// The request lacks the value that identifies it for the policy of this index.
    MissingKey(usize),
    /// The policies. The outcome for the client to follow is the one with this index.
    Policies(usize),
    /// The store was not available.
    Store,
    /// According to the log, a step before the policies had refused it.
    Log,
}

impl RefusedBy {
    /// A refusal by the body.
    pub(super) fn of_body(refusal: BodyRefusal) -> Self {
        Self::Body(refusal.into())
    }

    /// The reply for the client, without the quota. `outcomes`: of the enforced policies. The map `headers`, which
    /// has the fields of the request, is emptied and reused.
    pub(super) fn reply(
        self,
        rules: &Rules,
        is_peer_trusted: bool,
        now: impl FnOnce() -> i64,
        outcomes: &[PolicyOutcome],
        headers: HeaderMap,
    ) -> Reply {
        // The connection of a trusted proxy carries the requests of other clients, too.
        let for_client = |reply: Reply| if is_peer_trusted { reply } else { reply.closing() };
        match self {
            Self::Head(Rejection { status, detail }) => Reply::problem(status, detail).closing(),
            Self::EarlyEnds => Reply::too_many_ended_early(),
            Self::Access { is_of_route: false, .. } => for_client(Reply::forbidden_address()),
            Self::Access { is_of_route: true, .. } => Reply::forbidden_address(),
            Self::Listener(reply) | Self::Body(reply) => *reply,
            Self::Routing(Rejection { status, detail }) => Reply::problem(status, detail),
            Self::Ban(BanMatch { ban, rule }) => {
                let is_cross_origin = headers.contains_key(header::ORIGIN);
                let rule = rules.config.bans.get(rule).map(|rule| &**rule);
                for_client(quota::banned(rule, &ban, now(), is_cross_origin))
            }
            Self::Credential(fault) => fault.reply(rules),
            Self::BodySize => Reply::body_too_large(),
            Self::MissingKey(policy) => {
                rules.quotas.unidentified(PolicyOutcome::unidentified(policy, &rules.policies[policy]))
            }
            Self::Policies(decisive) => rules.quotas.denial(outcomes, decisive, headers),
            Self::Store | Self::Log | Self::UnknownListener => Reply::undecided(),
        }
    }
}

/// Finds out whose request it is, and its route.
///
/// # Errors
/// The refusal of a step.
#[inline(always)]
pub(crate) fn find<'r, C: StepHost<'r>>(
    caller: &mut C,
    rules: &Rules,
    facts: &RequestFacts<'_>,
) -> Result<FoundRoute, RefusedBy> {
    let headers = &facts.request.headers;
    let target =
        parse_target(facts.request, facts.survey, &rules.config.client_limits).map_err(RefusedBy::Head)?;
    let client = rules.trusted_proxies.client_address(facts.peer, facts.is_peer_trusted, headers);
    if facts.has_address() {
        caller.located(rules, client)?;
    }
    check_access(caller, rules.access.everywhere().filter(|_| facts.has_address()), client, None)?;
    caller.check_listener(facts, &target)?;
    let identity = caller.identify(rules, facts);
    let route = find_route(rules, facts, &target)?;
    let is_peer = facts.peer == client.ip;
    let address = (!is_peer).then(|| rules.address_identifier(client.ip));
    Ok(FoundRoute { target, client, address, identity, route, values: OnceCell::new() })
}

/// The index of the request's route.
fn find_route(rules: &Rules, facts: &RequestFacts<'_>, target: &Target) -> Result<usize, RefusedBy> {
    let find = |listener| {
        let parts = facts.parts(target, listener);
        let found = rules.router.find_on(&parts);
        if found.is_err() { or_ambiguous(rules, facts, &parts, found) } else { found }
    };
    let found = match facts.listener {
        Some(listener) => find(listener),
        None => {
            let [first, others @ ..] = rules.router.distinct_listeners() else {
                return Err(RefusedBy::UnknownListener);
            };
            let found = find(*first);
            if others.iter().any(|other| find(*other) != found) {
                return Err(RefusedBy::UnknownListener);
            }
            found
        }
    };
    found.map_err(RefusedBy::Routing)
}

/// What was `found` of a route, or the error that an origin may find one where a question has none.
#[cold]
fn or_ambiguous(
    rules: &Rules,
    facts: &RequestFacts<'_>,
    parts: &RequestParts<'_>,
    found: Result<usize, Rejection>,
) -> Result<usize, Rejection> {
    match found {
        Err(Rejection { status: StatusCode::NOT_FOUND, .. }) if facts.question.is_some() => {
            rules.router.check_unrouted(parts).and(found)
        }
        found => found,
    }
}

/// Whether the request has a key, and its route requires none.
pub(super) fn has_optional_key(rules: &Rules, found: &FoundRoute) -> bool {
    found.identity.key.is_some() && rules.config.routes[found.route].require == Some(Require::None)
}

/// Checks the key of a request whose route requires none. A wrong key is counted there, too: the response to a good one
/// may differ, for example in its `RateLimit` fields. From an address that has sent too many wrong ones, no key counts.
pub(super) async fn check_optional_key<'r, C: StepHost<'r>>(
    caller: &mut C,
    rules: &'r Rules,
    facts: &RequestFacts<'_>,
    found: &mut FoundRoute,
) {
    let fault = CredentialFault::of_optional_key(&found.identity.key);
    if fault == Some(CredentialFault::NotLoaded) {
        return;
    }
    let may_try = {
        let context = RequestContext::new(rules, facts, found);
        let attempts = Checks::of_attempt(&caller.inputs(), &context);
        caller.may_try_keys(&attempts, &context, fault).await
    };
    if !may_try {
        found.identity = rules.identify_holder(facts, None, |_| ());
        caller.key_ignored(rules, &found.identity);
    }
}

/// The source of the response to an admitted request.
pub(crate) enum ResponseSource<'a> {
    /// The upstream of this index. It gets the rewritten path, if there is one. Boxed: most requests have none.
    Upstream(usize, Option<Box<RewrittenPath<'a>>>),
    Local(Box<LocalReply>),
    /// The limits of the request's API key, as the store has them.
    Usage,
}

/// Decides whether the request is admitted, and finds the source of its response.
///
/// # Errors
/// The refusal of a step.
pub(crate) async fn admit<'r, C: StepHost<'r>>(
    caller: &mut C,
    context: &mut RequestContext<'r, '_>,
) -> Result<ResponseSource<'r>, RefusedBy> {
    choose_upstream(caller, context);
    let of_route = context.rules.access.of_route(context.found.route);
    let of_route = of_route.filter(|_| context.facts.has_address());
    check_access(caller, of_route, context.found.client, Some(context))?;
    if let Some(bans) = context.facts.bans.filter(|bans| !bans.is_empty())
        && let Some(ban) = find_ban(bans, context, caller.inputs().time, |ban| caller.banned_in_shadow(ban))
    {
        caller.note_refusal(RefusedBy::Ban(ban), Some(context))?;
    }
    if (context.route.require.is_some() || context.found.identity.key.is_some())
        && let Some(fault) = CredentialFault::of(context)
        && !is_open_preflight(context)
    {
        // Boxed: it is rare, and all requests would need room for it.
        Box::pin(refuse_credential(caller, context, fault)).await?;
    }
    if is_body_too_long(context) {
        caller.note_refusal(RefusedBy::BodySize, Some(context))?;
    }
    let mut delay = Duration::ZERO;
    if !context.route.policies.is_empty() || !context.asked_values().is_empty() {
        let mut checks = Checks::new(&caller.inputs(), context);
        if checks.reads_request && checks.unidentified.is_none() {
            // Boxed: most requests do not need it.
            Box::pin(caller.read_request(&mut checks, context)).await?;
        }
        caller.skipped(&checks.skipped, context);
        match checks.unidentified {
            None => delay = caller.decide(&checks, context).await?,
            Some(policy) => caller.note_refusal(RefusedBy::MissingKey(policy), Some(context))?,
        }
    }
    if !caller.wait(delay).await {
        let (reply, origin) = (Reply::gateway_timeout(), ReplyOrigin::Deadline);
        return Ok(ResponseSource::Local(Box::new(LocalReply { reply, origin })));
    }
    Ok(find_source(caller, context))
}

/// Whether it is a CORS preflight, which browsers send without credentials. It needs none, unless the upstream might take
/// it for a request of another method.
fn is_open_preflight(context: &RequestContext<'_, '_>) -> bool {
    let is_answered_here = context.route.cors.is_some();
    (is_answered_here || context.route.method_override == MethodOverride::Remove)
        && is_preflight(context.request(), context.route)
}

/// Refuses a request that lacks a valid credential. A wrong one is counted, and its address is limited in the end.
async fn refuse_credential<'r, C: StepHost<'r>>(
    caller: &mut C,
    context: &RequestContext<'r, '_>,
    fault: CredentialFault,
) -> Result<(), RefusedBy> {
    if fault.is_guess() {
        let attempts = Checks::of_attempt(&caller.inputs(), context);
        caller.decide(&attempts, context).await?;
    }
    caller.note_refusal(RefusedBy::Credential(fault), Some(context))
}

/// Picks one of several upstreams of the route.
fn choose_upstream<'r, C: StepHost<'r>>(caller: &mut C, context: &mut RequestContext<'_, '_>) {
    if let Some(split) = &context.route.split
        && let Some(point) = point_of(split, context).or_else(|| caller.draw(split.total().max(1)))
    {
        context.route = split.at(point).unwrap_or(context.route);
    }
}

/// Applies `deny` and `allow`. `context`: the request's, for the `rule` of its route.
fn check_access<'r, C: StepHost<'r>>(
    caller: &mut C,
    rule: Option<&AccessRule>,
    client: ClientIp,
    context: Option<&RequestContext<'_, '_>>,
) -> Result<(), RefusedBy> {
    match rule.and_then(|rule| rule.denial(client)) {
        None => Ok(()),
        Some(denial) => {
            caller.note_refusal(RefusedBy::Access { denial, is_of_route: context.is_some() }, context)
        }
    }
}

/// Whether the body is longer than `max_body` allows on each listener that may receive the request.
fn is_body_too_long(context: &RequestContext<'_, '_>) -> bool {
    let Some(length) = context.facts.body_length else { return false };
    let config = &context.rules.config;
    let is_too_long = |listener| config.max_body(context.route, listener).is_some_and(|max| length > max);
    match context.facts.listener {
        Some(listener) => is_too_long(listener),
        None => (0..config.listeners.len()).map(is_too_long).min().unwrap_or(false),
    }
}

/// Finds the source of the response, and the path that an upstream gets.
fn find_source<'r, C: StepHost<'r>>(caller: &C, context: &RequestContext<'r, '_>) -> ResponseSource<'r> {
    let is_preflight = || caller.cors().is_some() && is_preflight(context.request(), context.route);
    if matches!(context.route.action, RouteAction::Usage) && !is_preflight() {
        return ResponseSource::Usage;
    }
    let upstream = match upstream_of(context, caller.cors(), caller.request_id()) {
        Ok(upstream) => upstream,
        Err(reply) => return ResponseSource::Local(reply),
    };
    let Some(rewrite) = &context.route.rewrite else { return ResponseSource::Upstream(upstream, None) };
    match RewrittenPath::new(rewrite, &context.found.placeholders(context.rules, caller.request_id())) {
        Ok(path) => ResponseSource::Upstream(upstream, path.map(Box::new)),
        Err(Rejection { status, detail }) => {
            let (reply, origin) = (Reply::problem(status, detail), ReplyOrigin::FaultyRewrite);
            ResponseSource::Local(Box::new(LocalReply { reply, origin }))
        }
    }
}
