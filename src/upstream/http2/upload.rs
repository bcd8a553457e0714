//! The body of a request on its way to a stream.

use std::{cell::RefCell, future::poll_fn, pin::Pin, rc::Rc, task::Poll};

use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::Frame;
use tokio::task::AbortHandle;

use crate::upstream::OutgoingBody;

/// A body that is being sent. Dropping it stops.
pub(super) struct Upload<B> {
    source: Rc<RefCell<UploadBody<B>>>,
    stream: Rc<RefCell<SendStream<Bytes>>>,
    task: AbortHandle,
}

struct UploadBody<B> {
    /// `None`: it was taken back.
    body: Option<B>,
    /// Whether any frame was taken.
    is_begun: bool,
}

impl<B> Drop for Upload<B> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<B: OutgoingBody> Upload<B> {
    /// Sends `body` in a task of its own, because it must continue while nobody reads the response. If the body breaks
    /// off, `may_reset` decides whether the stream is reset at once.
    pub(super) fn begin(body: B, stream: SendStream<Bytes>, may_reset: impl Fn() -> bool + 'static) -> Self {
        let source = Rc::new(RefCell::new(UploadBody { body: Some(body), is_begun: false }));
        let stream = Rc::new(RefCell::new(stream));
        let task = tokio::task::spawn_local(send(Rc::clone(&source), Rc::clone(&stream), may_reset));
        Self { source, stream, task: task.abort_handle() }
    }

    /// Stops sending, and returns the stream. Dropping the last handle resets it, unless the whole body was sent.
    pub(super) fn stop(self) -> Rc<RefCell<SendStream<Bytes>>> {
        Rc::clone(&self.stream)
    }

    /// The body, if no frame was taken: then it can be sent elsewhere.
    pub(super) fn take_unbegun(&self) -> Option<B> {
        let mut source = self.source.borrow_mut();
        if source.is_begun { None } else { source.body.take() }
    }
}

async fn send<B: OutgoingBody>(
    source: Rc<RefCell<UploadBody<B>>>,
    stream: Rc<RefCell<SendStream<Bytes>>>,
    may_reset: impl Fn() -> bool,
) {
    while let Some((frame, is_last)) = next_frame(&source, &stream, &may_reset).await {
        match frame.into_data() {
            Ok(data) => {
                if !data.is_empty() && !wait_for_window(&stream).await {
                    return;
                }
                if stream.borrow_mut().send_data(data, is_last).is_err() || is_last {
                    return;
                }
            }
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    // An error means that the stream has ended: the response reports it.
                    let _ended = stream.borrow_mut().send_trailers(trailers);
                    return;
                }
            }
        }
    }
}

/// The next frame, and whether it is the last one. `None` if there is no next frame: the body has ended, which ends the
/// stream; it broke off, which may reset the stream; or the stream itself has ended.
async fn next_frame<B: OutgoingBody>(
    source: &RefCell<UploadBody<B>>,
    stream: &RefCell<SendStream<Bytes>>,
    may_reset: &impl Fn() -> bool,
) -> Option<(Frame<Bytes>, bool)> {
    let frame = poll_fn(|cx| {
        if stream.borrow_mut().poll_reset(cx).is_ready() {
            return Poll::Ready(None);
        }
        let source = &mut *source.borrow_mut();
        let Some(body) = &mut source.body else { return Poll::Ready(None) };
        let frame = Pin::new(&mut *body).poll_frame(cx);
        source.is_begun |= frame.is_ready();
        frame.map(|frame| Some((frame, body.is_end_stream())))
    });
    match frame.await? {
        (Some(Ok(frame)), is_last) => return Some((frame, is_last)),
        // Never with the code of the client's own reset: it must not look like the end of a message.
        (Some(Err(_)), _) if may_reset() => stream.borrow_mut().send_reset(Reason::CANCEL),
        (Some(Err(_)), _) => {}
        (None, _) => {
            let _ended = stream.borrow_mut().send_data(Bytes::new(), true);
        }
    }
    None
}

/// Waits until the stream's window has room. False: the stream has ended.
///
/// Reserves window only when there is data to send: reserved but unused window starves the other streams.
async fn wait_for_window(stream: &RefCell<SendStream<Bytes>>) -> bool {
    stream.borrow_mut().reserve_capacity(1);
    poll_fn(|cx| {
        let stream = &mut *stream.borrow_mut();
        loop {
            if stream.capacity() > 0 {
                return Poll::Ready(true);
            }
            match stream.poll_capacity(cx) {
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(_) => return Poll::Ready(false),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await
}
