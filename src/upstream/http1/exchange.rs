//! One connection to an endpoint, and the request that it carries.

use std::{
    cell::RefCell,
    fmt,
    future::poll_fn,
    mem,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, Waker, ready},
};

use bytes::{Bytes, BytesMut};
use http::{Method, Request, Response, header};
use http_body::{Frame, SizeHint};
use tokio::{
    io::{AsyncReadExt, AsyncWrite},
    task::AbortHandle,
};

use super::{
    ResponseFault,
    body::{BodyDecoder, BodyPart},
    flusher::{Flush, Flusher},
    head::{FinalHead, Framing, Head, MAX_HEAD, take_head},
    request::{BodyEncoding, ShortBody, Unsent},
};
use crate::upstream::{
    IncomingBody, OnInformational, OutgoingBody, SendError, incoming::ExchangeError, io::UpstreamIo,
};

/// Bytes of the first read of a response. Reads that fill their room double it, up to [`MAX_HEAD`].
const FIRST_READ: usize = 4 << 10;
/// Bytes of a body after which other tasks have a turn, however many more have arrived.
const TURN: usize = 256 << 10;
/// Most informational responses before the final one.
const MAX_INFORMATIONAL: u8 = 8;

/// A connection as the pool keeps it between requests. Closed when dropped.
pub(in crate::upstream) struct Http1Connection<B: OutgoingBody> {
    exchange: Rc<RefCell<Http1Exchange<B>>>,
    flusher: Rc<Flusher>,
    /// The version of the TLS settings that it was opened under. 0: it has no TLS.
    pub(in crate::upstream) tls_version: u64,
}

/// The body of a response. It is read from the connection while it is polled.
pub(in crate::upstream) enum Http1Body {
    Open(Rc<RefCell<dyn PolledBody>>),
    /// The connection may be carrying another response.
    Ended,
    Broken,
}

/// A connection and its request.
struct Http1Exchange<B> {
    /// `None`: the connection is closed.
    io: Option<UpstreamIo>,
    /// Whether anything was received since the last request, once the connection is closed.
    has_received: bool,
    /// Received bytes that are not taken yet. Without memory while the connection is idle.
    buffer: BytesMut,
    /// Bytes of the buffer that have no end of a head.
    searched: usize,
    read_size: usize,
    sending: SendStage,
    unsent: Unsent,
    /// The rest of the request's body, after the bytes in `unsent`.
    upload: Option<(B, BodyEncoding)>,
    method: Method,
    /// The request, until its response comes, if it may be sent again then.
    unanswered: Option<Request<B>>,
    on_informational: Option<OnInformational>,
    informational: u8,
    decoder: BodyDecoder,
    /// Bytes of the body that were passed on in this turn.
    passed: usize,
    /// Whether the connection may carry another request after this response.
    is_kept: bool,
}

/// How far the request has been sent.
enum SendStage {
    /// The flusher is going to write it. The task that waits for the response is woken if there is anything to do.
    Queued(Option<Waker>),
    /// By the task that waits for the response.
    Started,
    /// By a task of its own since the response has begun: a client that does not read the response must not hold its
    /// own upload up. `waiting`: the task that waits for the end of either.
    Detached {
        task: AbortHandle,
        waiting: Option<Waker>,
    },
    Sent,
    /// Nothing of it was sent, since the connection had ended.
    Refused(ResponseFault),
    /// It broke off.
    Broken(ResponseFault),
}

impl<B: OutgoingBody> Http1Connection<B> {
    pub(in crate::upstream) fn new(io: UpstreamIo, tls_version: u64, flusher: &Rc<Flusher>) -> Self {
        let exchange = Http1Exchange {
            io: Some(io),
            has_received: false,
            buffer: BytesMut::new(),
            searched: 0,
            read_size: FIRST_READ,
            sending: SendStage::Sent,
            unsent: Unsent::default(),
            upload: None,
            method: Method::GET,
            unanswered: None,
            on_informational: None,
            informational: 0,
            decoder: BodyDecoder::new(Framing::Length(0)),
            passed: 0,
            is_kept: true,
        };
        Self { exchange: Rc::new(RefCell::new(exchange)), flusher: Rc::clone(flusher), tls_version }
    }

    /// Sends `request`, and waits for the head of its response.
    pub(in crate::upstream) fn send(
        &self,
        request: Request<B>,
    ) -> impl Future<Output = Result<Response<IncomingBody>, SendError<B>>> + use<B> {
        let exchange = Rc::clone(&self.exchange);
        exchange.borrow_mut().queue(request);
        self.flusher.flush_soon(Rc::clone(&exchange) as Rc<dyn Flush>);
        async move {
            match poll_fn(|cx| exchange.borrow_mut().poll_head(cx)).await {
                Ok(parts) => {
                    send_the_rest(&exchange);
                    let has_body = !exchange.borrow().decoder.has_ended();
                    let body = if has_body { Http1Body::Open(exchange) } else { Http1Body::Ended };
                    Ok(Response::from_parts(parts, IncomingBody::Http1(body)))
                }
                Err((fault, is_unprocessed)) => {
                    let request = exchange.borrow_mut().unanswered.take().map(Box::new);
                    Err(SendError { error: ExchangeError::Http1(fault), is_unprocessed, request })
                }
            }
        }
    }

    /// Whether the last request was sent, and its response read to the end, so that another one may follow.
    pub(in crate::upstream) fn is_at_rest(&self) -> bool {
        self.exchange.borrow().is_at_rest()
    }

    /// Whether it may carry a request: it is at rest, and the endpoint has sent nothing since.
    pub(in crate::upstream) fn is_usable(&self) -> bool {
        let mut exchange = self.exchange.borrow_mut();
        exchange.is_at_rest() && exchange.check_silence(&mut Context::from_waker(Waker::noop())).is_ok()
    }

    /// Whether anything was received since the last request was sent.
    pub(in crate::upstream) fn has_received(&self) -> bool {
        let exchange = self.exchange.borrow();
        exchange.io.as_ref().map_or(exchange.has_received, UpstreamIo::has_received)
    }

    /// Waits until the rest of the request is sent, after the end of its response. `false`: the connection can't be
    /// used again.
    pub(in crate::upstream) async fn finish(&self) -> bool {
        poll_fn(|cx| self.exchange.borrow_mut().poll_rest(cx)).await;
        self.is_at_rest()
    }

    /// Whether the response has ended, and the rest of its request can still be written.
    pub(in crate::upstream) fn is_unfinished(&self) -> bool {
        let exchange = self.exchange.borrow();
        let is_open = exchange.io.as_ref().is_some_and(|io| !io.has_hung_up());
        is_open && exchange.decoder.has_ended() && matches!(exchange.sending, SendStage::Detached { .. })
    }

    /// The stream of bytes behind the head of a response that switches protocols, with the bytes that were received.
    pub(in crate::upstream) fn into_upgraded(self) -> Option<(UpstreamIo, Bytes)> {
        let mut exchange = self.exchange.borrow_mut();
        let mut io = exchange.io.take()?;
        io.set_upgraded();
        Some((io, mem::take(&mut exchange.buffer).freeze()))
    }
}

impl<B: OutgoingBody> Drop for Http1Connection<B> {
    fn drop(&mut self) {
        self.exchange.borrow_mut().close();
    }
}

impl<B> Http1Exchange<B> {
    fn close(&mut self) {
        self.has_received = self.io.take().map_or(self.has_received, |io| io.has_received());
        (self.upload, self.is_kept) = (None, false);
        if let SendStage::Detached { task, .. } = &self.sending {
            task.abort();
        }
    }

    /// As [`Http1Connection::is_at_rest`].
    fn is_at_rest(&self) -> bool {
        self.is_kept && self.decoder.has_ended() && matches!(self.sending, SendStage::Sent)
    }

    /// Checks whether the endpoint was silent since the end of the last response, and closes the connection if not. The
    /// task of `cx` is woken by the next bytes.
    ///
    /// # Errors
    /// It was not.
    fn check_silence(&mut self, cx: &mut Context<'_>) -> Result<(), ResponseFault> {
        let Some(io) = &mut self.io else { return Err(ResponseFault::NoResponse) };
        let Poll::Ready(heard) = io.poll_noise(cx) else { return Ok(()) };
        self.close();
        Err(match heard {
            Ok(0) => ResponseFault::NoResponse,
            Ok(_) => ResponseFault::Unasked,
            Err(error) => ResponseFault::Io(error),
        })
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, ResponseFault>> {
        let Some(io) = &mut self.io else { return Poll::Ready(Err(ResponseFault::EarlyEnd)) };
        self.buffer.reserve(self.read_size);
        let room = self.buffer.capacity() - self.buffer.len();
        let read = ready!(pin!(io.read_buf(&mut self.buffer)).poll(cx))?;
        if read == room {
            self.read_size = (self.read_size * 2).min(MAX_HEAD);
        } else if read < self.read_size / 4 {
            self.read_size = (self.read_size / 2).max(FIRST_READ);
        }
        Poll::Ready(Ok(read))
    }

    /// Writes the bytes that wait.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ResponseFault>> {
        let Some(io) = &mut self.io else { return Poll::Ready(Err(ResponseFault::EarlyEnd)) };
        while !self.unsent.is_empty() {
            let written = ready!(Pin::new(&mut *io).poll_write(cx, self.unsent.next()))?;
            self.unsent.advance(written);
        }
        Pin::new(io).poll_flush(cx).map_err(ResponseFault::Io)
    }
}

impl<B: OutgoingBody> Http1Exchange<B> {
    fn queue(&mut self, request: Request<B>) {
        (self.method, self.on_informational) =
            (request.method().clone(), request.extensions().get().cloned());
        (self.unanswered, self.informational, self.searched) = (Some(request), 0, 0);
        // A connection that has ended refuses it when it is flushed.
        if self.is_at_rest() {
            self.sending = SendStage::Queued(None);
        } else {
            self.sending = SendStage::Refused(ResponseFault::NoResponse);
        }
    }

    /// Begins to write the queued request, and keeps it if it may be sent again.
    fn begin(&mut self) {
        let Some(request) = self.unanswered.take() else { return };
        let (mut parts, body) = request.into_parts();
        let encoding = self.unsent.head(&mut parts, &body);
        let is_repeatable = parts.method.is_idempotent() && !parts.headers.contains_key(header::UPGRADE);
        let copy = if is_repeatable { body.repeatable() } else { None };
        self.unanswered = copy.map(|body| Request::from_parts(parts, body));
        self.sending = SendStage::Started;
        self.decoder = BodyDecoder::new(Framing::UntilClose);
        if let Some(io) = &mut self.io {
            io.request_sent();
        }
        let Some(mut encoding) = encoding else { return };
        match body.into_whole() {
            Ok(whole) => {
                self.unsent.data(whole, &mut encoding);
                if let Err(ShortBody) = self.unsent.end(None, &encoding) {
                    self.sending = SendStage::Broken(short());
                }
            }
            Err(body) => self.upload = Some((body, encoding)),
        }
    }

    /// Sends the request. Ready once all of it was written.
    fn poll_upload(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ResponseFault>> {
        loop {
            ready!(self.poll_write(cx))?;
            let Some((body, encoding)) = &mut self.upload else {
                self.unsent.rest();
                return Poll::Ready(Ok(()));
            };
            let is_over = match ready!(Pin::new(&mut *body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        let is_whole = self.unsent.data(data, encoding);
                        // Its end is written with it.
                        let is_over = is_whole || body.is_end_stream();
                        if is_over {
                            self.unsent.end(None, encoding).map_err(|ShortBody| short())?;
                        }
                        is_over
                    }
                    Err(frame) => {
                        self.unsent.end(frame.trailers_ref(), encoding).map_err(|ShortBody| short())?;
                        true
                    }
                },
                // The endpoint never gets the last chunk.
                Some(Err(error)) => return Poll::Ready(Err(ResponseFault::Upload(error.into()))),
                None => {
                    self.unsent.end(None, encoding).map_err(|ShortBody| short())?;
                    true
                }
            };
            if is_over {
                self.upload = None;
            }
        }
    }

    /// Waits for the head of the response, and sends the request meanwhile.
    ///
    /// # Errors
    /// There is none. With whether nothing of the request was sent.
    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<http::response::Parts, (ResponseFault, bool)>> {
        if let SendStage::Queued(waker) = &mut self.sending {
            *waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        if let SendStage::Refused(_) | SendStage::Broken(_) = self.sending {
            let ended = mem::replace(&mut self.sending, SendStage::Started);
            self.close();
            return Poll::Ready(Err(match ended {
                SendStage::Refused(fault) => (fault, true),
                SendStage::Broken(fault) => (fault, false),
                _ => (ResponseFault::NoResponse, false),
            }));
        }
        let mut head = self.poll_any_head(cx);
        // A response that has come counts, even if the request has broken off.
        if head.is_pending() && matches!(self.sending, SendStage::Started) {
            match self.poll_upload(cx) {
                Poll::Ready(Ok(())) => self.sending = SendStage::Sent,
                Poll::Ready(Err(fault)) => head = Poll::Ready(Err(fault)),
                Poll::Pending => {}
            }
        }
        if let Poll::Ready(Err(_)) = head {
            self.close();
        }
        head.map_err(|fault| (fault, false))
    }

    fn poll_any_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<http::response::Parts, ResponseFault>> {
        loop {
            match take_head(&mut self.buffer, &mut self.searched, &self.method)? {
                Some(Head::Final(FinalHead { parts, framing, is_kept })) => {
                    (self.decoder, self.is_kept) = (BodyDecoder::new(framing), is_kept);
                    (self.unanswered, self.on_informational) = (None, None);
                    if framing != Framing::Switched {
                        self.note_end();
                    }
                    return Poll::Ready(Ok(parts));
                }
                Some(Head::Informational(response)) => {
                    self.informational += 1;
                    if self.informational > MAX_INFORMATIONAL {
                        return Poll::Ready(Err(ResponseFault::ManyInformational));
                    }
                    if let Some(callback) = &self.on_informational {
                        callback.call(&response);
                    }
                }
                None => {
                    if ready!(self.poll_read(cx))? == 0 {
                        let has_received = self.io.as_ref().is_some_and(UpstreamIo::has_received);
                        let fault =
                            if has_received { ResponseFault::EarlyEnd } else { ResponseFault::NoResponse };
                        return Poll::Ready(Err(fault));
                    }
                }
            }
        }
    }

    /// Ready once the rest of the request is sent, or can't be sent, after the end of its response.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let SendStage::Detached { waiting, .. } = &mut self.sending else { return Poll::Ready(()) };
        *waiting = Some(cx.waker().clone());
        // A failed write is not reported, but the endpoint's end is.
        let heard = self.io.as_mut().is_none_or(|io| io.poll_noise(cx).is_ready());
        if heard {
            self.close();
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// Notes that the response may have ended. Bytes behind it belong to nobody.
    fn note_end(&mut self) {
        if self.decoder.has_ended() {
            self.is_kept &= self.buffer.is_empty();
            (self.buffer, self.read_size) = (BytesMut::new(), FIRST_READ);
        }
    }

    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame<Bytes>>, ResponseFault>> {
        let passed = mem::take(&mut self.passed);
        if passed >= TURN {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        loop {
            let part = self.decoder.take(&mut self.buffer)?;
            self.note_end();
            match part {
                BodyPart::Data(data) => {
                    self.passed = passed + data.len();
                    return Poll::Ready(Ok(Some(Frame::data(data))));
                }
                BodyPart::Trailers(trailers) => return Poll::Ready(Ok(Some(Frame::trailers(trailers)))),
                BodyPart::End => return Poll::Ready(Ok(None)),
                BodyPart::Pending => {
                    if ready!(self.poll_read(cx))? == 0 {
                        self.decoder.connection_ended()?;
                    }
                }
            }
        }
    }
}

/// Sends the rest of a request, if there is any, in a task of its own.
fn send_the_rest<B: OutgoingBody>(exchange: &Rc<RefCell<Http1Exchange<B>>>) {
    let mut unfinished = exchange.borrow_mut();
    if matches!(unfinished.sending, SendStage::Sent) {
        return;
    }
    let exchange = Rc::clone(exchange);
    let task = tokio::task::spawn_local(async move {
        let sent = poll_fn(|cx| exchange.borrow_mut().poll_upload(cx)).await;
        let ended = sent.map_or_else(SendStage::Broken, |()| SendStage::Sent);
        let sending = mem::replace(&mut exchange.borrow_mut().sending, ended);
        if let SendStage::Detached { waiting: Some(waker), .. } = sending {
            waker.wake();
        }
    });
    unfinished.sending = SendStage::Detached { task: task.abort_handle(), waiting: None };
}

impl<B: OutgoingBody> Flush for RefCell<Http1Exchange<B>> {
    fn flush(&self) {
        let mut exchange = self.borrow_mut();
        let SendStage::Queued(waker) = &mut exchange.sending else { return };
        let waker = waker.take();
        // Also lets the first bytes of the response wake the task.
        let silence =
            exchange.check_silence(&mut Context::from_waker(waker.as_ref().unwrap_or(Waker::noop())));
        if let Err(fault) = silence {
            exchange.sending = SendStage::Refused(fault);
        } else {
            exchange.begin();
            let written = exchange.poll_write(&mut Context::from_waker(Waker::noop()));
            if matches!(exchange.sending, SendStage::Started)
                && exchange.upload.is_none()
                && matches!(written, Poll::Ready(Ok(())))
            {
                exchange.unsent.rest();
                exchange.sending = SendStage::Sent;
                return;
            }
        }
        // The task that waits for the response writes the bytes that the socket had no room for.
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The body of a request has fewer bytes than its head announces.
fn short() -> ResponseFault {
    ResponseFault::Upload("the request body ended early".into())
}

/// The body of a response, whatever the body of its request is.
pub(in crate::upstream) trait PolledBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ResponseFault>>>;
    fn has_ended(&self) -> bool;
    fn exact(&self) -> Option<u64>;
}

impl<B: OutgoingBody> PolledBody for Http1Exchange<B> {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ResponseFault>>> {
        if matches!(self.sending, SendStage::Broken(_))
            && let SendStage::Broken(fault) = mem::replace(&mut self.sending, SendStage::Started)
        {
            self.close();
            return Poll::Ready(Some(Err(fault)));
        }
        let part = self.poll_part(cx);
        if part.is_pending()
            && let SendStage::Detached { waiting, .. } = &mut self.sending
        {
            *waiting = Some(cx.waker().clone());
        }
        if let Poll::Ready(Err(_)) = part {
            self.close();
        }
        part.map(Result::transpose)
    }

    fn has_ended(&self) -> bool {
        self.decoder.has_ended()
    }

    fn exact(&self) -> Option<u64> {
        self.decoder.exact()
    }
}

impl Http1Body {
    pub(in crate::upstream) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ResponseFault>>> {
        let exchange = match self {
            Self::Open(exchange) => exchange,
            Self::Ended => return Poll::Ready(None),
            Self::Broken => return Poll::Ready(Some(Err(ResponseFault::EarlyEnd))),
        };
        let mut exchange = exchange.borrow_mut();
        let frame = ready!(exchange.poll_frame(cx));
        let has_ended = exchange.has_ended();
        drop(exchange);
        if matches!(frame, Some(Err(_))) {
            *self = Self::Broken;
        } else if has_ended {
            *self = Self::Ended;
        }
        Poll::Ready(frame)
    }

    pub(in crate::upstream) fn is_end_stream(&self) -> bool {
        matches!(self, Self::Ended)
    }

    pub(in crate::upstream) fn size_hint(&self) -> SizeHint {
        let exact = match self {
            Self::Open(exchange) => exchange.borrow().exact(),
            Self::Ended => Some(0),
            Self::Broken => None,
        };
        exact.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl fmt::Debug for Http1Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Http1Body")
    }
}
