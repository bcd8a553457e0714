//! 103 Early Hints (RFC 8297): what an upstream says before its answer goes to the client at once.
//!
//! hyper sends a client nothing before the head of the answer. So hints are queued here, and the client's stream writes them
//! when hyper flushes it: then hyper has handed over all that it has, and since the answer has not begun, that is whole
//! messages.

use std::{sync::Arc, task::Waker};

use http::{HeaderMap, Request, StatusCode, Version, header};
use parking_lot::Mutex;

use super::{
    expect_continue::GateOpener,
    headers::{self, Via},
    phase_timer::PhaseTimer,
};
use crate::upstream::OnInformational;

/// Bytes of hints that wait for their client. More are dropped, which an answer does not depend on.
const MAX_QUEUED: usize = 16 << 10;

/// The hints of one request that have come and that its client was not sent yet.
#[derive(Debug)]
pub struct EarlyHints {
    /// Whole heads, one behind the other.
    queued: Mutex<Vec<u8>>,
    /// Of the client's connection.
    connection: Option<Waker>,
}

impl EarlyHints {
    /// The heads that have come since this was last asked.
    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.queued.lock())
    }

    /// Queues a head with these fields, as far as they concern the client.
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

/// Hints of a request go to its client until this is dropped, which has to be before its answer begins.
pub(super) struct HintedRequest<'a> {
    hints: Arc<EarlyHints>,
    timer: &'a PhaseTimer,
}

impl<'a> HintedRequest<'a> {
    /// The request in flight on the client's connection, which has this `timer`.
    pub(super) fn new(timer: &'a PhaseTimer) -> Self {
        let hints = Arc::new(EarlyHints { queued: Mutex::default(), connection: timer.waker() });
        timer.set_early_hints(Some(Arc::clone(&hints)));
        Self { hints, timer }
    }

    /// Ready once the client was sent what has come so far, unless it has to read first.
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

/// Has informational answers to `request` heeded: a 100 opens its gate, and each 103 is one of its `hints`.
pub(super) fn heed_informational<B>(
    request: &mut Request<B>,
    opener: Option<GateOpener>,
    hints: Option<Arc<EarlyHints>>,
    via: &Via,
) {
    if opener.is_none() && hints.is_none() {
        return;
    }
    let via = via.clone();
    let heed = move |status, fields: &HeaderMap, version| match (status, &opener, &hints) {
        (StatusCode::CONTINUE, Some(opener), _) => opener.open(),
        (StatusCode::EARLY_HINTS, _, Some(hints)) => hints.queue(fields, version, &via),
        _ => {}
    };
    // By whichever version of HTTP the upstream will be spoken to.
    let heed = Arc::new(heed);
    let http2 = Arc::clone(&heed);
    let http2 =
        OnInformational::new(move |answer| http2(answer.status(), answer.headers(), answer.version()));
    request.extensions_mut().insert(http2);
    hyper::ext::on_informational(request, move |answer| {
        heed(answer.status(), answer.headers(), answer.version());
    });
}
