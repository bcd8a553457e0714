//! Answers what another proxy asks about its requests, which it forwards itself.
//!
//! A question becomes the request that it describes. This takes the steps of every request, up to where it would be
//! forwarded; the answer says what they have decided, in the words of the proxy that asks. What a step needs of the
//! response or of the body is not known here: policies that count by it are left out, and a request that would have to wait
//! is denied.

mod calls;
mod ext_authz;
mod messages;
mod question;
mod rate_limits;

use std::{
    rc::Rc,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Version, header, request, response};
use hyper::body::Incoming;
use parking_lot::Mutex;

pub use self::question::Question;
use super::{
    claims::is_spelling,
    client::ClientInfo,
    client_request::ClientRequest,
    credential::CredentialFault,
    exchange::Exchange,
    header_edits::{FilledEdits, replaces},
    peer::Peer,
    refused_body::discard,
    reply::Reply,
    request_buffering::ReceivedBody,
    request_context::RequestContext,
    response_body::{BodySource, ResponseBody},
    route_reply::{LocalReply, ReplyOrigin},
    rules::Rules,
    steps::{RefusedBy, admit, check_optional_key, find, has_optional_key},
    worker::Worker,
};
use crate::{
    config::model::{DecisionService, FieldPattern, Front, HeaderEdits},
    identity::TokenRefusal,
    limit::{Policy, StoreAdmin},
    router::Rejection,
    telemetry::metrics::Answer,
};

/// The reply to others than trusted proxies.
pub(super) const ASKERS: &str = "Only trusted proxies may ask for decisions.";

/// How long a question waits for the key that has signed a token. The recipe for Envoy has it wait for an answer for 100 ms.
const KEY_WAIT: Duration = Duration::from_millis(30);

/// The status of a refusal, for fronts that pass on no other than 401 and 403.
static TOLLGATE_STATUS: HeaderName = HeaderName::from_static("x-tollgate-status");

/// The fields that Envoy removes from an admitted request.
static REMOVED_FOR_ENVOY: HeaderName = HeaderName::from_static("x-envoy-auth-headers-to-remove");

/// Answers the question `asked` of `client`.
pub(super) async fn answer<S: StoreAdmin + 'static>(
    asked: (request::Parts, Incoming),
    worker: Rc<Worker<S>>,
    client: Rc<ClientInfo>,
    service: DecisionService,
) -> Response<ResponseBody> {
    let (request, body) = asked;
    if !client.is_trusted() {
        worker.rules.warnings.warn_of_stranger(client.peer());
        let served = ClientRequest::new(&worker, &client, &request, body);
        return served.refuse(
            RefusedBy::Listener(Box::new(Reply::problem(StatusCode::FORBIDDEN, ASKERS))),
            request.version,
            request.headers,
        );
    }
    match service.front {
        Some(front) if asks_by_http(&service, &request) => {
            answer_front(front, &service, (request, body), &worker, &client).await
        }
        _ => calls::answer((request, body), &worker, &client).await,
    }
}

/// Whether it is a question by HTTP, on a port of a front. Envoy may ask by gRPC there, too.
fn asks_by_http(service: &DecisionService, request: &request::Parts) -> bool {
    let Some(prefix) = &service.path_prefix else { return service.front != Some(Front::Envoy) };
    let rest = request.uri.path().strip_prefix(prefix.as_str());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Answers a question by HTTP.
async fn answer_front<S: StoreAdmin + 'static>(
    front: Front,
    service: &DecisionService,
    (mut request, body): (request::Parts, Incoming),
    worker: &Rc<Worker<S>>,
    client: &Rc<ClientInfo>,
) -> Response<ResponseBody> {
    let is_head = request.method == http::Method::HEAD;
    let described = question::describe(front, service.path_prefix.as_deref(), &mut request);
    worker.rules.conceal_key(&mut request);
    let mut served = ClientRequest::new(worker, client, &request, body);
    served.exchange.set_front(front.into(), is_head);
    let body = served.body.take();
    let question = Question::default();
    let decided = match described {
        Ok(()) => decide(&mut served, &request, &question).await,
        Err(rejection) => {
            worker.rules.warnings.warn_of_question(rejection.detail);
            Err(RefusedBy::Head(rejection))
        }
    };
    // A front that announces a body may not send it: what follows would be taken for it.
    let has_body = body.as_ref().is_some_and(|body| !body.is_empty());
    let closes = has_body && request.version != Version::HTTP_2;
    served.body = body.filter(|_| !closes);
    match decided {
        Ok(Told { mut headers, removed }) => {
            served.exchange.count_answer(front.into(), Answer::Allowed);
            if front == Front::Envoy && !removed.is_empty() {
                let removed: Vec<_> = removed.iter().map(HeaderName::as_str).collect();
                // Names are made of what values may have.
                if let Ok(removed) = HeaderValue::try_from(removed.join(",")) {
                    headers.insert(&REMOVED_FOR_ENVOY, removed);
                }
            }
            let reply = Reply { status: StatusCode::OK, headers, ..Reply::no_content() };
            let reply = if closes { reply.closing() } else { reply };
            served.respond(&request, LocalReply { reply, origin: ReplyOrigin::Route }).await
        }
        Err(refused) => {
            let body = served.body.take().and_then(ReceivedBody::into_rest);
            let ClientRequest { worker, mut exchange, .. } = served;
            let stays_open =
                body.is_none_or(|body| discard(worker, &exchange, request.version, &request.headers, body));
            let is_undecided = refused.is_undecided();
            let reply = refused.described_reply(&worker.rules, &exchange, request.headers);
            exchange
                .count_answer(front.into(), if is_undecided { Answer::Undecided } else { Answer::Refused });
            let (mut head, body) = exchange.take_answer(reply);
            if !is_undecided {
                adapt(front, &mut head);
            }
            if closes || !stays_open {
                head.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            exchange.respond(head, BodySource::Whole(body))
        }
    }
}

/// What an upstream gets of Tollgate with a described request.
#[derive(Debug)]
struct Told {
    /// The fields to set: whose key the request has, and `request_headers` of its route.
    headers: HeaderMap,
    /// The fields to remove: those of the same names that a client has sent, and what the route removes.
    removed: Vec<HeaderName>,
}

/// Takes the steps of a described request. Returns what its upstream gets.
///
/// # Errors
/// The refusal of a step.
async fn decide<S: StoreAdmin + 'static>(
    served: &mut ClientRequest<'_, S>,
    request: &request::Parts,
    question: &Question,
) -> Result<Told, RefusedBy> {
    let rules = &Rc::clone(served.worker).rules;
    let facts = served.described_facts(request, question);
    let mut found = match find(served, rules, &facts) {
        Ok(found) => found,
        // The proxy that asks has routes of its own.
        Err(RefusedBy::Routing(Rejection { status: StatusCode::NOT_FOUND, .. })) => {
            let removed = removed(rules, None, &request.headers, &HeaderMap::new());
            return Ok(Told { headers: HeaderMap::new(), removed });
        }
        Err(refused) => return Err(refused),
    };
    if found.identity.refused_token.is_some_and(TokenRefusal::may_be_of_new_key) {
        found.identity = served.identify_again(&facts, found.client, KEY_WAIT).await;
    }
    if has_optional_key(rules, &found) {
        check_optional_key(served, rules, &facts, &mut found).await;
    }
    served.exchange.set_route(found.route);
    let mut context = RequestContext::new(rules, &facts, &found);
    // Where its response would come from does not matter.
    admit(served, &mut context).await?;
    Ok(told(served, &context))
}

/// What the upstream gets with an admitted request.
fn told<S>(served: &ClientRequest<'_, S>, context: &RequestContext<'_, '_>) -> Told {
    let (rules, found) = (context.rules, context.found);
    let mut headers = HeaderMap::new();
    if let Some(keys) = &rules.keys {
        keys.prepare_upstream(&mut headers, &found.identity);
    }
    let edits = context.route.request_headers.as_ref();
    if let Some(edits) = edits {
        let values = found.placeholders(rules, served.exchange.request_id());
        FilledEdits::new(edits, &values).apply_to_request(&mut headers);
    }
    let removed = removed(rules, edits.map(|edits| &**edits), &context.request().headers, &headers);
    Told { headers, removed }
}

/// The fields of a request, with those that were `sent`, that do not reach its upstream as the client wrote them, but for those
/// that are `set`: the ones that only Tollgate may set, and those of the route's `edits`, in each spelling.
fn removed(rules: &Rules, edits: Option<&HeaderEdits>, sent: &HeaderMap, set: &HeaderMap) -> Vec<HeaderName> {
    let mut removed: Vec<HeaderName> =
        rules.keys.iter().flat_map(|keys| keys.header_names()).cloned().collect();
    if let Some(edits) = edits {
        removed.extend(edits.set.iter().map(|(name, _)| name.clone()));
        removed.extend(edits.remove.iter().filter_map(|pattern| match pattern {
            FieldPattern::Name(name) => Some(name.clone()),
            FieldPattern::Prefix(_) => None,
        }));
    }
    let is_removed = |name: &&HeaderName| {
        removed.iter().any(|removed| is_spelling(name.as_str(), removed.as_str()))
            || edits.is_some_and(|edits| replaces(edits, name))
    };
    let spellings: Vec<_> = sent.keys().filter(is_removed).cloned().collect();
    removed.extend(spellings);
    removed.retain(|name| !set.contains_key(name));
    removed.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
    removed.dedup();
    removed
}

/// Writes a refusal in a form that the front passes on: nginx knows 401 and 403 alone, and takes other ones for errors; Envoy
/// takes those of servers for errors.
fn adapt(front: Front, head: &mut response::Parts) {
    let is_passed_on = match front {
        Front::Nginx | Front::IngressNginx => head.status == StatusCode::UNAUTHORIZED,
        Front::Envoy => !head.status.is_server_error(),
        Front::Traefik | Front::Caddy => true,
    };
    if is_passed_on {
        return;
    }
    head.headers.insert(&TOLLGATE_STATUS, HeaderValue::from(head.status.as_u16()));
    head.status = StatusCode::FORBIDDEN;
}

/// Warnings about what questions ask in vain, each once for a configuration.
#[derive(Debug, Default)]
pub(super) struct DecisionWarnings {
    overrides: AtomicBool,
    strangers: AtomicBool,
    unreadable: AtomicBool,
    domains: AtomicBool,
    /// The names of policies.
    skipped: Mutex<Vec<String>>,
}

impl DecisionWarnings {
    /// A descriptor has a limit of its own.
    fn warn_of_override(&self) {
        if !self.overrides.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "a descriptor has a limit of its own (`limit`), which does not count: policies have the limits"
            );
        }
    }

    /// A question can't be read: the proxy that asks is another one than the listener expects, or is not set up.
    fn warn_of_question(&self, detail: &str) {
        if !self.unreadable.swap(true, Ordering::Relaxed) {
            tracing::warn!("a question of another proxy can't be read, and gets 400: {detail}");
        }
    }

    /// No route has this domain.
    fn warn_of_domain(&self, domain: &str) {
        if !self.domains.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "Envoy asks for the domain `{}`, which no route has: everything is admitted",
                domain.escape_debug()
            );
        }
    }

    /// This peer asks, and is no trusted proxy.
    fn warn_of_stranger(&self, peer: Peer) {
        if self.strangers.swap(true, Ordering::Relaxed) {
            return;
        }
        if peer == Peer::Unix {
            tracing::warn!(
                "a process asks for decisions over a Unix socket, and gets 403: trusted_proxies lacks `unix`"
            );
        } else {
            let address = peer.address().ip();
            tracing::warn!(
                "{address} asks for decisions, and gets 403: it is not in trusted_proxies. A proxy may take that for an outage, and \
                 let its requests pass"
            );
        }
    }

    /// This policy does not apply to requests about which another proxy asks.
    pub(super) fn warn_of_skipped(&self, policy: &Policy) {
        let mut skipped = self.skipped.lock();
        if skipped.contains(&policy.name) {
            return;
        }
        skipped.push(policy.name.clone());
        tracing::warn!(
            "policy `{}` does not apply where another proxy asks for decisions: it needs the response, the body, or the end of a request",
            policy.name
        );
    }
}

impl RefusedBy {
    /// Whether nothing is decided: the store was not available, or credentials can't be verified yet. What happens to the request
    /// is up to the proxy that asks.
    fn is_undecided(&self) -> bool {
        matches!(self, Self::Store | Self::Credential(CredentialFault::NotLoaded))
    }

    /// The reply for the client of a described request. The connection is another proxy's, which keeps it.
    fn described_reply(self, rules: &Rules, exchange: &Exchange, headers: HeaderMap) -> Reply {
        let mut reply = self.reply(rules, true, || exchange.time(), &exchange.outcomes, headers);
        reply.headers.remove(header::CONNECTION);
        reply
    }
}
