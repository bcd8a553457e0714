//! Listeners' own replies.

use http::header;

use super::explanation::{ExplainedListener, ExplainedReply};
use crate::{
    config::model::Listener,
    proxy::{listener_reply::ListenerReply, request_context::RequestFacts, rules::Rules},
    router::Target,
};

/// The listeners that reply to the request for `target` themselves, among the ones that may receive it.
/// `is_https`: whether it arrives over HTTPS. `None`: either way.
pub(super) fn explain(
    rules: &Rules,
    facts: &RequestFacts<'_>,
    is_https: Option<bool>,
    target: &Target,
) -> Vec<ExplainedListener> {
    let may_come_in = |listener: &&Listener| is_https.is_none_or(|https| https == listener.tls.is_some());
    let explained = |listener: &Listener| {
        let response = ListenerReply::new(listener, facts.certificate.is_some())
            .filter(|response| response.is_for(&facts.request.headers, facts.is_peer_trusted))?;
        let because = match response {
            ListenerReply::RedirectToHttps(_) => "it redirects to HTTPS",
            ListenerReply::CertificateRequired(_) => "it requires a client certificate",
        };
        let reply = response.reply(target);
        let location = reply.headers.get(header::LOCATION).and_then(|location| location.to_str().ok());
        let addresses: Vec<_> = listener.addresses.iter().map(ToString::to_string).collect();
        Some(ExplainedListener {
            listener: addresses.join(", "),
            reply: ExplainedReply { status: reply.status, location: location.map(str::to_owned) },
            because,
        })
    };
    rules.config.listeners.iter().filter(may_come_in).filter_map(explained).collect()
}
