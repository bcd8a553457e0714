//! The body of a request on its way to a stream.

use std::{cell::RefCell, future::poll_fn, pin::Pin, rc::Rc, task::Poll};

use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::Frame;
use tokio::task::AbortHandle;

use crate::upstream::OutgoingBody;

/// A body that is being sent, until it is dropped.
pub(super) struct Upload<B> {
    source: Rc<RefCell<UploadBody<B>>>,
    stream: Rc<RefCell<SendStream<Bytes>>>,
    task: AbortHandle,
}

struct UploadBody<B> {
    /// `None`: it was taken back.
    body: Option<B>,
    /// Whether anything of it was taken.
    is_begun: bool,
}

impl<B> Drop for Upload<B> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<B: OutgoingBody> Upload<B> {
    /// Sends `body`, in a task of its own: it must go on while nobody reads the answer. If it breaks off, `may_reset` tells whether
    /// the stream is reset at once.
    pub(super) fn begin(body: B, stream: SendStream<Bytes>, may_reset: impl Fn() -> bool + 'static) -> Self {
        let source = Rc::new(RefCell::new(UploadBody { body: Some(body), is_begun: false }));
        let stream = Rc::new(RefCell::new(stream));
        let task = tokio::task::spawn_local(send(Rc::clone(&source), Rc::clone(&stream), may_reset));
        Self { source, stream, task: task.abort_handle() }
    }

    /// Sends no more. The stream, which is reset once nobody has it any more, unless the body has been sent to its end.
    pub(super) fn stop(self) -> Rc<RefCell<SendStream<Bytes>>> {
        Rc::clone(&self.stream)
    }

    /// The body, if nothing of it was taken: then it can be sent elsewhere.
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
                    // An error means that the stream has ended, which the answer tells.
                    let _ended = stream.borrow_mut().send_trailers(trailers);
                    return;
                }
            }
        }
    }
}

/// The next frame, and whether it is the last one. `None`: there is none, because the body has ended, which it tells the
/// stream; because it broke off, which resets the stream; or because the stream has ended.
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
        // Not with what the client's stream was reset with: that must never look like the end of a message.
        (Some(Err(_)), _) if may_reset() => stream.borrow_mut().send_reset(Reason::CANCEL),
        (Some(Err(_)), _) => {}
        (None, _) => {
            let _ended = stream.borrow_mut().send_data(Bytes::new(), true);
        }
    }
    None
}

/// Waits until the stream's window has room. False where the stream has ended.
///
/// Window is asked for only with data in hand: what a stream holds back and does not use, the connection's others lack.
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
