//! The listener on which an explained request comes in, and the replies of listeners themselves.

use http::{StatusCode, header, request};

use super::explanation::{AssumedListener, ExplainedListener, ExplainedReply, ExplainedRequest};
use crate::{
    config::model::{Front, Listener},
    proxy::{
        decisions::ASKERS,
        listener_reply::ListenerReply,
        reply::Reply,
        request_facts::RequestFacts,
        rules::{Rules, parse_target},
    },
    router::{RequestParts, Target},
};

/// The listeners on which a request may come in.
#[derive(Clone, Copy)]
pub(super) enum MeantListeners {
    /// The one with this index.
    One(usize),
    /// Listeners with TLS, or without. `None`: all.
    By(Option<bool>),
}

impl MeantListeners {
    fn contains(self, index: usize, listener: &Listener) -> bool {
        match self {
            Self::One(meant) => index == meant,
            Self::By(is_https) => is_https.is_none_or(|https| https == listener.tls.is_some()),
        }
    }
}

/// The listeners that reply to the request for `target` themselves, among those that are `meant`, with their replies.
pub(super) fn explain(
    rules: &Rules,
    facts: &RequestFacts<'_>,
    meant: MeantListeners,
    target: &Target,
) -> Vec<(ExplainedListener, Reply)> {
    let explained = |(_, listener): (usize, &Listener)| {
        if listener.decisions.is_some() && !facts.is_peer_trusted {
            let reply = Reply::problem(StatusCode::FORBIDDEN, ASKERS);
            let explained = ExplainedListener {
                listener: listener.shown_addresses(),
                reply: ExplainedReply { status: reply.status.as_u16(), location: None },
                because: "only trusted proxies may ask for decisions".to_owned(),
            };
            // Of a request that names no listener, it says nothing.
            return matches!(meant, MeantListeners::One(_)).then_some((explained, reply));
        }
        let response = ListenerReply::new(listener, facts.certificate.is_some())
            .filter(|response| response.is_for(&facts.request.headers, facts.is_peer_trusted))?;
        let because = match response {
            ListenerReply::RedirectToHttps(_) => "it redirects to HTTPS",
            ListenerReply::CertificateRequired(_) => "it requires a client certificate",
        };
        let reply = response.reply(target);
        let location = reply.headers.get(header::LOCATION).and_then(|location| location.to_str().ok());
        let explained = ExplainedListener {
            listener: listener.shown_addresses(),
            reply: ExplainedReply { status: reply.status.as_u16(), location: location.map(str::to_owned) },
            because: because.to_owned(),
        };
        Some((explained, reply))
    };
    let listeners = rules.config.listeners.iter().enumerate();
    listeners.filter(|(index, listener)| meant.contains(*index, listener)).filter_map(explained).collect()
}

/// The `listener`, and who asks there. `None`: it forwards requests.
pub(super) fn of_decisions(listener: &Listener) -> Option<AssumedListener> {
    let front = listener.decisions.as_ref()?.front.map_or("envoy", Front::name);
    Some(AssumedListener {
        listener: listener.shown(),
        because: format!("{front} asks here, and forwards the request itself"),
    })
}

/// The index of the listener on which `asked` most likely comes in: the first that may receive it and does not reply
/// itself.
pub(super) fn likely(rules: &Rules, asked: &ExplainedRequest, is_peer_trusted: bool) -> usize {
    let meant = MeantListeners::By(asked.is_https);
    let replies = |listener: &Listener| {
        ListenerReply::new(listener, asked.certificate.is_some())
            .is_some_and(|response| response.is_for(&asked.request.headers, is_peer_trusted))
    };
    let mut listeners = rules
        .config
        .listeners
        .iter()
        .enumerate()
        .filter(|(index, listener)| meant.contains(*index, listener));
    let first = listeners.clone().next();
    let serving = listeners.find(|(_, listener)| !replies(listener) && listener.decisions.is_none());
    serving.or(first).map_or(0, |(index, _)| index)
}

/// Takes the listener of this index for the one on which the request comes in, if its route depends on that. `None`: its
/// route is the same on all listeners.
pub(super) fn assume(rules: &Rules, request: &request::Parts, likely: usize) -> Option<AssumedListener> {
    let target = parse_target(request, rules.survey(&request.headers), &rules.config.client_limits).ok()?;
    let route = |listener: usize| {
        let (method, headers) = (&request.method, &request.headers);
        let is_question = rules.is_asked_on(listener);
        let parts =
            RequestParts { method, target: &target, headers, listener, is_question, descriptor: None };
        (rules.router.find_on(&parts), rules.router.explain(&parts).matched)
    };
    let on_likely = route(likely);
    if rules.router.distinct_listeners().iter().all(|&listener| route(listener) == on_likely) {
        return None;
    }
    Some(AssumedListener {
        listener: rules.config.listeners.get(likely)?.shown(),
        because: "assumed, because the route depends on the listener and none is named".to_owned(),
    })
}
