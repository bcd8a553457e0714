//! Listeners' own replies.

use http::header;

use super::{ExplainedReply, ExplainedRequest};
use crate::{
    config::model::Listener,
    proxy::{listener_reply::ListenerReply, rules::Rules},
    router::Target,
};

/// A listener that replies to the request itself, if it receives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedListener {
    /// Its addresses.
    pub listener: String,
    pub reply: ExplainedReply,
    pub because: &'static str,
}

/// The listeners that reply to the request for `target` themselves, among the ones that may receive it.
pub(super) fn explain(
    rules: &Rules,
    asked: &ExplainedRequest,
    is_peer_trusted: bool,
    target: &Target,
) -> Vec<ExplainedListener> {
    let may_come_in =
        |listener: &&Listener| asked.is_https.is_none_or(|https| https == listener.tls.is_some());
    let explained = |listener: &Listener| {
        let response = ListenerReply::new(listener, asked.certificate.is_some())
            .filter(|response| response.is_for(&asked.request.headers, is_peer_trusted))?;
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
