//! 103 Early Hints (RFC 8297): hints that an upstream sends before its response reach the client at once.

use std::sync::Arc;

use http::{HeaderMap, Request, StatusCode, Version, header};

use super::{
    connection_state::{ConnectionState, HandOff, QueuedHints},
    expect_continue::GateOpener,
    headers::{self, Via},
};
use crate::{config::model::EarlyHints, upstream::OnInformational};

/// The head of the hints for the client: only the fields that concern it.
fn head(fields: &HeaderMap, version: Version, via: &Via) -> Vec<u8> {
    let mut fields = fields.clone();
    headers::remove_hop_by_hop(&mut fields, |_| false);
    // RFC 9110, 8.6
    fields.remove(header::CONTENT_LENGTH);
    headers::append_via(&mut fields, via, version);
    let mut head = b"HTTP/1.1 103 Early Hints\r\n".to_vec();
    for (name, value) in &fields {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    head
}

/// Hints of a request are sent to its client until this is dropped, which has to be before the response begins.
pub(super) struct HintedRequest<'a> {
    hints: Arc<QueuedHints>,
    hand_off: &'a HandOff,
}

impl<'a> HintedRequest<'a> {
    /// Hints for the request in flight on the `client`'s connection, if its route passes them on. hyper supports none
    /// over HTTP/2, and HTTP/1.0 has none.
    #[inline]
    pub(super) fn new(setting: EarlyHints, version: Version, client: &'a ConnectionState) -> Option<Self> {
        (setting == EarlyHints::Pass && version == Version::HTTP_11).then(|| Self::begin(client))
    }

    fn begin(client: &'a ConnectionState) -> Self {
        let hints = Arc::new(QueuedHints::new(client.timer().waker().clone()));
        client.hand_off().set_early_hints(Some(Arc::clone(&hints)));
        Self { hints, hand_off: client.hand_off() }
    }

    /// Ready once the queued hints are sent, unless the client has to read first.
    pub(super) async fn flushed(&self) {
        if !self.hints.is_empty() {
            // hyper flushes when the request has to wait.
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for HintedRequest<'_> {
    fn drop(&mut self) {
        self.hand_off.set_early_hints(None);
    }
}

/// Handles informational responses to `request`: a 100 opens its gate, and each 103 is queued in `hints`.
pub(super) fn handle_informational<B>(
    request: &mut Request<B>,
    opener: Option<GateOpener>,
    hints: Option<Arc<QueuedHints>>,
    via: &Via,
) {
    if opener.is_none() && hints.is_none() {
        return;
    }
    let via = via.clone();
    let handle = move |status, fields: &HeaderMap, version| match (status, &opener, &hints) {
        (StatusCode::CONTINUE, Some(opener), _) => opener.open(),
        (StatusCode::EARLY_HINTS, _, Some(hints)) => hints.push(&head(fields, version, &via)),
        _ => {}
    };
    request.extensions_mut().insert(OnInformational::new(move |response| {
        handle(response.status(), response.headers(), response.version());
    }));
}
