//! `Expect: 100-continue` (RFC 9110, 10.1.1): the client's body is asked for once the upstream wants it.

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
use http::{HeaderMap, Request, StatusCode, Version, header};
use tokio::time::Sleep;

/// How long an upstream is waited for that may not know the expectation. What curl waits.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whether the client waits for a 100 before it sends its body. One that speaks HTTP/1.0 can't be sent
/// any: what it expects is ignored.
pub fn wants_continue(version: Version, headers: &HeaderMap) -> bool {
    version != Version::HTTP_10
        && headers
            .get(header::EXPECT)
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// Closed until the upstream has said 100, or has had its time to say it. Only then the body is read,
/// which is what makes the 100 go out to the client.
#[derive(Debug)]
pub struct Gate {
    signal: Arc<Signal>,
    patience: Pin<Box<Sleep>>,
}

#[derive(Debug, Default)]
struct Signal {
    open: AtomicBool,
    waker: AtomicWaker,
}

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        Self { signal: Arc::default(), patience: Box::pin(tokio::time::sleep(PATIENCE)) }
    }

    /// Returns what opens this gate when `request` is answered by a 100.
    pub fn opener(&self) -> Opener {
        Opener(Arc::clone(&self.signal))
    }

    /// Ready once the body may be read.
    pub fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.signal.waker.register(cx.waker());
        if self.signal.open.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        self.patience.as_mut().poll(cx)
    }
}

/// Opens a [`Gate`].
#[derive(Debug)]
pub struct Opener(Arc<Signal>);

impl Opener {
    /// Opens the gate when `request` is answered by a 100.
    pub fn attach<B>(self, request: &mut Request<B>) {
        hyper::ext::on_informational(request, move |response| {
            if response.status() == StatusCode::CONTINUE {
                self.0.open.store(true, Ordering::Release);
                self.0.waker.wake();
            }
        });
    }
}
