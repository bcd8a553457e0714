//! 103 Early Hints (RFC 8297): hints that an upstream sends before its response reach the client at once.
//!
//! hyper sends a client nothing before the head of the response. So hints are queued here, and the client's stream
//! writes them when hyper flushes it: then hyper has handed over all of its bytes, and since the response has not
//! begun, these are whole messages.

use std::{sync::Arc, task::Waker};

use http::{HeaderMap, Request, StatusCode, Version, header};
use parking_lot::Mutex;

use super::{
    expect_continue::GateOpener,
    headers::{self, Via},
    phase_timer::PhaseTimer,
};
use crate::upstream::OnInformational;

/// Bytes of hints that wait for their client. More are dropped, which is safe: a response does not depend on hints.
const MAX_QUEUED: usize = 16 << 10;

/// The hints of one request that were received but not sent to the client yet.
#[derive(Debug)]
pub struct QueuedHints {
    /// Whole heads, one after another.
    queued: Mutex<Vec<u8>>,
    /// Wakes the client's connection.
    connection: Option<Waker>,
}

impl QueuedHints {
    /// Takes the heads that were queued since the last call.
    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.queued.lock())
    }

    /// Queues a head with the fields that concern the client.
    fn queue(&self, fields: &HeaderMap, version: Version, via: &Via) {
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
        let mut queued = self.queued.lock();
        if queued.len() + head.len() <= MAX_QUEUED {
            queued.extend_from_slice(&head);
            drop(queued);
            self.connection.iter().for_each(Waker::wake_by_ref);
        }
    }
}

/// Hints of a request are sent to its client until this is dropped, which has to be before the response begins.
pub(super) struct HintedRequest<'a> {
    hints: Arc<QueuedHints>,
    timer: &'a PhaseTimer,
}

impl<'a> HintedRequest<'a> {
    /// Hints for the request in flight on the client's connection, whose timer is `timer`.
    pub(super) fn new(timer: &'a PhaseTimer) -> Self {
        let hints = Arc::new(QueuedHints { queued: Mutex::default(), connection: timer.waker() });
        timer.set_early_hints(Some(Arc::clone(&hints)));
        Self { hints, timer }
    }

    /// Ready once the queued hints are sent, unless the client has to read first.
    pub(super) async fn flushed(&self) {
        if !self.hints.queued.lock().is_empty() {
            // hyper flushes when the request has to wait.
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for HintedRequest<'_> {
    fn drop(&mut self) {
        self.timer.set_early_hints(None);
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
        (StatusCode::EARLY_HINTS, _, Some(hints)) => hints.queue(fields, version, &via),
        _ => {}
    };
    // For either version of HTTP that the upstream may speak.
    let handle = Arc::new(handle);
    let http2 = Arc::clone(&handle);
    let http2 = OnInformational::new(move |response| {
        http2(response.status(), response.headers(), response.version());
    });
    request.extensions_mut().insert(http2);
    hyper::ext::on_informational(request, move |response| {
        handle(response.status(), response.headers(), response.version());
    });
}
