//! `Expect: 100-continue` (RFC 9110, 10.1.1): the client is asked for its body once the upstream wants it.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use atomic_waker::AtomicWaker;
use http::{HeaderMap, Version, header};
use tokio::time::Sleep;

/// How long to wait for the 100 of an upstream, which may not know the expectation. curl waits as long.
const FALLBACK: Duration = Duration::from_secs(1);

/// Whether the client waits for a 100 before it sends its body. Ignored for HTTP/1.0, which has no 100, and for
/// HTTP/2, where hyper sends none. hyper looks at the last line only, which must contain nothing else.
pub fn wants_continue(version: Version, headers: &HeaderMap) -> bool {
    version == Version::HTTP_11
        && headers
            .get_all(header::EXPECT)
            .iter()
            .next_back()
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// Closed until the upstream has sent a 100 or its time is over. Only then the body is read, which makes hyper send
/// the 100 to the client.
#[derive(Debug)]
pub struct ContinueGate {
    signal: Arc<Signal>,
    fallback: Pin<Box<Sleep>>,
}

#[derive(Debug, Default)]
struct Signal {
    open: AtomicBool,
    waker: AtomicWaker,
}

impl ContinueGate {
    /// A closed gate.
    pub fn new() -> Self {
        Self { signal: Arc::default(), fallback: Box::pin(tokio::time::sleep(FALLBACK)) }
    }

    /// The opener of this gate.
    pub fn opener(&self) -> GateOpener {
        GateOpener(Arc::clone(&self.signal))
    }

    /// Ready once the body may be read.
    pub fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.signal.waker.register(cx.waker());
        if self.signal.open.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        self.fallback.as_mut().poll(cx)
    }
}

/// Opens a [`ContinueGate`].
#[derive(Debug)]
pub struct GateOpener(Arc<Signal>);

impl GateOpener {
    /// Opens the gate, because the upstream has sent a 100.
    pub fn open(&self) {
        self.0.open.store(true, Ordering::Release);
        self.0.waker.wake();
    }
}
