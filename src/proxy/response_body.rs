//! The body of a response on its way to the client.

use std::{
    mem,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::{
    connection_state::{ConnectionState, Phase},
    exchange::Exchange,
    open_exchanges::OpenExchangeGuard,
    request_body::BodyFault,
    trailers::TrailerFilter,
    upstream_response::CheckedOutConnection,
};
use crate::{
    response_cost::UsageEventFilter,
    telemetry::metrics::Refusal,
    upstream::{ExchangeError, IncomingBody},
};

/// A response's body. Its exchange ends with it: when the last byte was passed on, or when it is dropped before.
#[derive(Debug)]
pub struct ResponseBody {
    source: BodySource,
    /// `None`: a tunnel follows, which owns the exchange.
    exchange: Option<Box<Exchange>>,
}

/// The source of a response's body.
#[derive(Debug)]
pub(super) enum BodySource {
    /// The proxy itself.
    Whole(Bytes),
    /// The upstream. Boxed: hyper moves a body several times.
    Upstream(Box<UpstreamBody>),
}

/// A body that is streamed from the upstream.
#[derive(Debug)]
pub(super) struct UpstreamBody {
    incoming: IncomingBody,
    connection: CheckedOutConnection,
    trailers: TrailerFilter,
    client: Rc<ConnectionState>,
    /// For the upstream's next bytes.
    upstream_timeout: Duration,
    /// For the client to read them.
    client_timeout: Duration,
    /// Whether it waits for the upstream's bytes.
    starved: bool,
    /// The last item, held back while other tasks run.
    held_back: Option<Box<LastItem>>,
    /// The part of the last frame that was not read for the cost yet, because what was read expands far.
    unread: Bytes,
    /// Whether others have their turn before it is read.
    yields: bool,
    /// Takes the event out with the usage that the client had not asked for.
    usage_filter: Option<Box<UsageEventFilter>>,
    /// For a body of unknown length: tells when it has to be closed.
    guard: Option<OpenExchangeGuard>,
}

/// The last item of a body. `None`: the end that follows the last frame.
type LastItem = Option<Result<Frame<Bytes>, ResponseBodyError>>;

/// Why a response's body broke off. The client notices, because its connection ends without the last byte or chunk.
#[derive(Debug, thiserror::Error)]
pub enum ResponseBodyError {
    /// The upstream broke it off, or sent an invalid body.
    #[error("the upstream's response broke off: {0}")]
    Upstream(#[from] ExchangeError),
    /// The upstream's next bytes were not received in time.
    #[error("the upstream's response stalled")]
    Stalled,
    /// The client was banned meanwhile.
    #[error("the client is banned")]
    Banned,
}

impl UpstreamBody {
    /// Streams `incoming`, which arrives over `connection`.
    pub(super) fn new(
        incoming: IncomingBody,
        connection: CheckedOutConnection,
        client: Rc<ConnectionState>,
        upstream_timeout: Duration,
        client_timeout: Duration,
        trailers: TrailerFilter,
    ) -> Self {
        Self {
            incoming,
            connection,
            trailers,
            client,
            upstream_timeout,
            client_timeout,
            starved: false,
            held_back: None,
            unread: Bytes::new(),
            yields: false,
            usage_filter: None,
            guard: None,
        }
    }

    /// Takes the event with the usage out of the stream.
    pub(super) fn without_usage(self, is_unasked: bool) -> Self {
        Self { usage_filter: is_unasked.then(|| Box::new(UsageEventFilter::new())), ..self }
    }

    /// Closes the body before its end if `guard` asks for it.
    pub(super) fn guarded(self, guard: Option<OpenExchangeGuard>) -> Self {
        Self { guard, ..self }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ResponseBodyError>>> {
        if let Some(last) = self.held_back.take() {
            let meter = self.client.meter();
            if matches!(*last, Some(Err(ResponseBodyError::Upstream(_) | ResponseBodyError::Stalled)))
                && meter.is_write_blocked()
            {
                // hyper would drop bytes for which the client has no room yet.
                meter.await_writes();
                self.held_back = Some(last);
                return Poll::Pending;
            }
            if !matches!(*last, Some(Err(_))) {
                let is_metered = self.connection.is_metered();
                self.connection.end();
                if is_metered {
                    // As in `meter`.
                    return self.hold_back(*last, cx);
                }
            }
            return Poll::Ready(*last);
        }
        if self.guard.as_ref().is_some_and(|guard| guard.poll_closing(cx).is_ready()) {
            return self.hold_back(Some(Err(ResponseBodyError::Banned)), cx);
        }
        if mem::take(&mut self.yields) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Poll::Ready(frame) = self.poll_unread(cx) else {
            if !self.starved {
                self.starved = true;
                self.client.timer().enter_upstream(self.upstream_timeout);
            } else if self.client.timer().take_timed_out() {
                if !self.client.timer().is_call_over() {
                    self.connection.excuse_client();
                }
                self.client.timer().enter(Phase::Client, self.client_timeout);
                return self.hold_back(Some(Err(ResponseBodyError::Stalled)), cx);
            }
            return Poll::Pending;
        };
        self.starved = false;
        self.client.timer().enter(Phase::Client, self.client_timeout);
        let mut frame = match frame.transpose() {
            Ok(frame) => frame,
            // hyper and h2 drop unwritten bytes, including the head, when a body breaks off.
            Err(error) => return self.hold_back(Some(Err(error.into())), cx),
        };
        if let Some(trailers) = frame.as_mut().and_then(Frame::trailers_mut) {
            let is_settled = self.connection.call_ended(trailers);
            self.trailers.apply(trailers);
            if is_settled {
                // Let the reservation's task ask the store before the client gets this: the client's next request
                // arrives later.
                return self.hold_back(frame.map(Ok), cx);
            }
        }
        let is_last = frame.as_ref().is_none_or(Frame::is_trailers) || self.incoming.is_end_stream();
        if self.connection.is_metered() || self.usage_filter.is_some() {
            return self.meter(frame, is_last, cx);
        }
        if is_last {
            self.connection.end();
        }
        Poll::Ready(frame.map(Ok))
    }

    /// The next frame: what is left of the last one, or what the upstream has sent.
    fn poll_unread(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ExchangeError>>> {
        match self.unread.is_empty() {
            true => Pin::new(&mut self.incoming).poll_frame(cx),
            false => Poll::Ready(Some(Ok(Frame::data(mem::take(&mut self.unread))))),
        }
    }

    /// Reads the cost of the response from this frame, and passes it on.
    fn meter(
        &mut self,
        mut frame: Option<Frame<Bytes>>,
        mut is_last: bool,
        cx: &mut Context<'_>,
    ) -> Poll<LastItem> {
        if let Some(data) = frame.as_mut().and_then(Frame::data_mut) {
            self.unread = data.split_off(self.connection.meter_data(data));
            self.yields = !self.unread.is_empty();
            is_last &= !self.yields;
            if let Some(filter) = &mut self.usage_filter {
                *data = filter.filter(data);
                if is_last {
                    *data = [std::mem::take(data), filter.finish()].concat().into();
                }
            }
            if data.is_empty() && !is_last {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        } else if let Some(filter) = &mut self.usage_filter
            && let rest = filter.finish()
            && !rest.is_empty()
        {
            // Data before the end, or before trailers, passes first.
            let end = frame.replace(Frame::data(rest));
            self.held_back = Some(Box::new(end.map(Ok)));
            return Poll::Ready(frame.map(Ok));
        }
        if !is_last {
            return Poll::Ready(frame.map(Ok));
        }
        // Let the reservation's task ask the store before the client has it all: its next request arrives later.
        self.connection.end();
        self.hold_back(frame.map(Ok), cx)
    }

    /// Passes `last` on after other tasks have run.
    #[cold]
    fn hold_back(
        &mut self,
        last: LastItem,
        cx: &Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ResponseBodyError>>> {
        self.held_back = Some(Box::new(last));
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl ResponseBody {
    /// The body of the response of `exchange`.
    pub(super) fn new(source: BodySource, exchange: Box<Exchange>) -> Self {
        Self { source, exchange: Some(exchange) }
    }

    /// Whether it is the proxy's answer to a call, which has not ended.
    fn ends_with_trailers(&self) -> bool {
        self.exchange.as_ref().is_some_and(|exchange| exchange.ends_with_trailers())
    }

    /// No body: the bytes that follow are not HTTP.
    pub(super) fn none() -> Self {
        Self { source: BodySource::Whole(Bytes::new()), exchange: None }
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        let BodySource::Upstream(body) = mem::replace(&mut self.source, BodySource::Whole(Bytes::new()))
        else {
            return;
        };
        if body.connection.has_ended() {
            return;
        }
        if body.unread.is_empty() && body.incoming.size_hint().exact() == Some(0) {
            // hyper does not ask for more than the announced length.
            let UpstreamBody { connection, incoming, .. } = *body;
            connection.read_end(incoming);
        } else if let Some(exchange) = &mut self.exchange {
            exchange.client_broke_off();
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = ResponseBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ResponseBodyError>>> {
        let this = self.get_mut();
        let frame = match &mut this.source {
            BodySource::Whole(bytes) if bytes.is_empty() => None,
            BodySource::Whole(bytes) => Some(Ok(Frame::data(std::mem::take(bytes)))),
            BodySource::Upstream(body) => std::task::ready!(body.poll_frame(cx)),
        };
        let Some(exchange) = &mut this.exchange else { return Poll::Ready(frame) };
        match &frame {
            Some(Ok(frame)) => match frame.trailers_ref() {
                Some(trailers) => exchange.note_trailers(trailers),
                None => exchange.add_sent(frame.data_ref().map_or(0, Bytes::len) as u64),
            },
            Some(Err(error)) => {
                let last_words = match error {
                    ResponseBodyError::Upstream(_) => None,
                    ResponseBodyError::Stalled => exchange.late_trailers(),
                    ResponseBodyError::Banned => exchange.banned_trailers(),
                };
                if let Some(trailers) = last_words {
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                }
                if let BodySource::Upstream(body) = &this.source
                    && !matches!(error, ResponseBodyError::Banned)
                {
                    let connection = &body.connection;
                    match connection.request_fault() {
                        Some(BodyFault::TooLarge) => {
                            exchange.client_broke_off();
                            exchange.count_refusal(Refusal::BodyTooLarge);
                        }
                        Some(BodyFault::Broken) => exchange.client_broke_off(),
                        None => exchange.upstream_broke_off(connection.endpoint_url(), error),
                    }
                }
            }
            None => {
                if let Some(trailers) = exchange.take_answer_trailers() {
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                }
            }
        }
        Poll::Ready(frame)
    }

    #[inline]
    fn is_end_stream(&self) -> bool {
        match &self.source {
            BodySource::Whole(bytes) => bytes.is_empty() && !self.ends_with_trailers(),
            BodySource::Upstream(body) => {
                body.held_back.is_none() && body.unread.is_empty() && body.incoming.is_end_stream()
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            BodySource::Whole(_) if self.ends_with_trailers() => SizeHint::default(),
            BodySource::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            BodySource::Upstream(body) if body.usage_filter.is_some() => SizeHint::default(),
            BodySource::Upstream(body) => body.incoming.size_hint(),
        }
    }
}
