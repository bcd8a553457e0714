//! One request on a connection that it shares with others.

use std::{
    cell::{Cell, OnceCell, RefCell},
    future::poll_fn,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use bytes::Bytes;
use h2::{Reason, SendStream, client::ResponseFuture, ext::Protocol};
use http::{Request, Response, StatusCode};

use super::{body::Http2Body, connection::UpstreamHttp2Connection, request::http2_head, upload::Upload};
use crate::upstream::{
    ExchangeError, IncomingBody, OnInformational, OutgoingBody, SendError, UpstreamClient,
};

/// A stream that is given up after at least this time without a byte from the endpoint makes its connection suspicious.
const SILENCE: Duration = Duration::from_secs(1);

/// Informational responses to a request. With more, the response is a 502.
const MAX_INFORMATIONAL: usize = 8;

/// The right to one stream of a connection, and the state of the request on it.
pub(in crate::upstream) struct StreamSlot<B> {
    pub(in crate::upstream) connection: Rc<UpstreamHttp2Connection>,
    /// The client of the request, once that is known.
    client: OnceCell<Rc<UpstreamClient>>,
    sending: Cell<Sending<B>>,
    /// When the request was sent, and the bytes received on the connection by then. `None`: it does not wait for a
    /// response head.
    waiting: Cell<Option<(Instant, u64)>>,
    /// Whether the body broke off before the response head, which ends the wait for that.
    is_broken: Cell<bool>,
    waiter: Cell<Option<Waker>>,
    /// Whether an early end is not the client's fault.
    is_excused: Cell<bool>,
}

/// The sending side of a stream. The stream is not reset while a handle of it exists.
#[derive(Default)]
enum Sending<B> {
    /// Nothing was sent, or the stream has ended.
    #[default]
    Nothing,
    /// The whole request was sent.
    Whole(SendStream<Bytes>),
    Upload(Upload<B>),
    /// The stream switches protocols.
    Tunnel(SendStream<Bytes>),
}

impl<B: OutgoingBody> StreamSlot<B> {
    /// Takes a stream of `connection`, which has room.
    pub(in crate::upstream) fn take(connection: Rc<UpstreamHttp2Connection>) -> Rc<Self> {
        connection.take_stream();
        Rc::new(Self {
            connection,
            client: OnceCell::new(),
            sending: Cell::default(),
            waiting: Cell::new(None),
            is_broken: Cell::new(false),
            waiter: Cell::new(None),
            is_excused: Cell::new(false),
        })
    }

    /// Sets the client of the request.
    pub(in crate::upstream) fn set_client(&self, client: &Rc<UpstreamClient>) {
        let _twice = self.client.set(Rc::clone(client));
    }

    /// Whether the stream can carry a WebSocket.
    pub(in crate::upstream) fn offers_websockets(&self) -> bool {
        self.connection.offers_websockets()
    }

    /// Whether the connection has had other streams.
    pub(in crate::upstream) fn has_had_company(&self) -> bool {
        self.connection.opened() > 1
    }

    /// An early end of the request is not its client's fault.
    pub(in crate::upstream) fn excuse_client(&self) {
        self.is_excused.set(true);
    }

    /// Sends `request` and waits for the response head.
    ///
    /// For the handshake of a WebSocket the response is the one of HTTP/1.1: 101 if the endpoint has accepted it.
    pub(in crate::upstream) fn send(
        self: &Rc<Self>,
        request: Request<B>,
    ) -> impl Future<Output = Result<Response<IncomingBody>, SendError<B>>> + use<B> {
        let slot = Rc::clone(self);
        async move {
            let (head, body) = request.into_parts();
            // h2 takes the head, and does not give it back.
            let copy = head.clone();
            let mut repeatable = body.repeatable();
            let is_idempotent = head.method.is_idempotent();
            let on_informational = head.extensions.get::<OnInformational>().cloned();
            let message = http2_head(head, &body.size_hint(), &slot.connection.endpoint);
            let is_tunnel = message.extensions().get::<Protocol>().is_some();
            let is_whole = body.is_end_stream() && !is_tunnel;
            slot.waiting.set(Some((Instant::now(), slot.connection.received())));
            let result = match slot.connection.requests().send_request(message, is_whole) {
                Ok((response, stream)) => {
                    slot.sending.set(match is_tunnel {
                        true => Sending::Tunnel(stream),
                        false if is_whole => Sending::Whole(stream),
                        false => slot.send_body(body, stream),
                    });
                    slot.response_head(response, on_informational).await
                }
                Err(error) => {
                    repeatable = repeatable.or(Some(body));
                    Err(error)
                }
            };
            match result {
                Ok(mut response) => {
                    slot.responded(&mut response);
                    Ok(response)
                }
                Err(error) => {
                    let is_unprocessed = is_unprocessed(&error);
                    let body = match slot.sending.take() {
                        // The body is lost, but the stream still has to be reset.
                        sending if slot.is_broken.get() => {
                            slot.sending.set(sending);
                            None
                        }
                        _ if !is_unprocessed && (!is_idempotent || is_tunnel) => None,
                        Sending::Upload(upload) => upload.take_unbegun(),
                        _ => repeatable,
                    };
                    let request = body.map(|body| Box::new(Request::from_parts(copy, body)));
                    Err(SendError { error: ExchangeError::Http2(error), is_unprocessed, request })
                }
            }
        }
    }

    /// Sends `body` by `stream`: at once if the whole of it is at hand.
    fn send_body(self: &Rc<Self>, body: B, mut stream: SendStream<Bytes>) -> Sending<B> {
        match body.into_whole() {
            Ok(whole) => {
                // An error means that the stream has ended: the response reports it.
                let _ended = stream.send_data(whole, true);
                Sending::Whole(stream)
            }
            Err(body) => {
                let of = Rc::downgrade(self);
                let may_reset = move || of.upgrade().is_some_and(|slot| slot.body_broke_off());
                Sending::Upload(Upload::begin(body, stream, may_reset))
            }
        }
    }

    /// The response head was received. If the stream becomes a tunnel, it gets the status of HTTP/1.1.
    fn responded(&self, response: &mut Response<IncomingBody>) {
        self.waiting.set(None);
        self.sending.set(match self.sending.take() {
            Sending::Tunnel(stream) if response.status().is_success() => {
                *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                Sending::Tunnel(stream)
            }
            Sending::Tunnel(mut refused) => {
                let _ended = refused.send_data(Bytes::new(), true);
                Sending::Whole(refused)
            }
            sending => sending,
        });
    }

    /// The sending side of a stream that has switched protocols. `None`: it has not.
    pub(super) fn take_tunnel(&self) -> Option<SendStream<Bytes>> {
        match self.sending.take() {
            Sending::Tunnel(sender) => Some(sender),
            _ => None,
        }
    }

    /// The tunnel on the stream is dropped before both sides have ended, which resets the stream by its `sender`.
    pub(super) fn tunnel_reset(&self, sender: &mut SendStream<Bytes>) {
        if !has_ended(sender) {
            self.count_end();
            self.connection.may_reset(Instant::now());
        }
    }

    /// The whole response was read. The rest of the request, which the endpoint did not want, is not sent.
    pub(in crate::upstream) fn release(&self) {
        self.waiting.set(None);
        self.sending.set(Sending::Nothing);
    }

    /// Gives the stream up. Unless the whole response has come, it is reset, now or later.
    pub(in crate::upstream) fn give_up(&self) {
        self.abandon(self.sending.take());
        // A dropped request counts as well: its client may not wait as long as the proxy does.
        if let Some((since, received)) = self.waiting.get()
            && received == self.connection.received()
            && since.elapsed() >= SILENCE
        {
            self.connection.note_silence();
        }
    }

    /// The body of the request broke off. Returns whether the stream is to be reset now.
    fn body_broke_off(&self) -> bool {
        if self.waiting.get().is_none() {
            self.count_end();
            return self.connection.may_reset(Instant::now());
        }
        self.is_broken.set(true);
        if let Some(waiter) = self.waiter.take() {
            waiter.wake();
        }
        false
    }

    /// The request has ended before its time.
    fn count_end(&self) {
        if let Some(client) = self.client.get().filter(|_| !self.is_excused.get()) {
            client.ended_early(Instant::now());
        }
    }

    /// Resets the stream, unless it has ended.
    fn abandon(&self, sending: Sending<B>) {
        let stream = match sending {
            Sending::Nothing => return,
            Sending::Whole(stream) | Sending::Tunnel(stream) => Rc::new(RefCell::new(stream)),
            Sending::Upload(upload) => upload.stop(),
        };
        if has_ended(&mut stream.borrow_mut()) {
            return;
        }
        self.count_end();
        if !self.connection.may_reset(Instant::now()) {
            self.connection.abandon(stream);
        }
    }

    /// Waits for the response head.
    async fn response_head(
        &self,
        mut future: ResponseFuture,
        on_informational: Option<OnInformational>,
    ) -> Result<Response<IncomingBody>, h2::Error> {
        let mut informational = 0;
        let response = poll_fn(|cx| {
            while let Poll::Ready(Some(response)) = future.poll_informational(cx) {
                let response = response?;
                informational += 1;
                if informational > MAX_INFORMATIONAL {
                    // The stream is reset when it is given up, and the connection closed: the endpoint may go on.
                    self.is_broken.set(true);
                    self.connection.wear_out();
                    return Poll::Ready(Err(Reason::ENHANCE_YOUR_CALM.into()));
                }
                if let Some(on_informational) = &on_informational {
                    on_informational.call(&response);
                }
            }
            let polled = Pin::new(&mut future).poll(cx);
            if polled.is_pending() {
                if self.is_broken.get() {
                    return Poll::Ready(Err(Reason::CANCEL.into()));
                }
                self.waiter.set(Some(cx.waker().clone()));
            }
            polled
        })
        .await?;
        let (head, stream) = response.into_parts();
        let body =
            Http2Body::new(stream, &head.headers, self.connection.bodies(), self.client.get().cloned());
        Ok(Response::from_parts(head, IncomingBody::Http2(body)))
    }
}

/// Whether the stream was reset, or its connection has ended.
fn has_ended(stream: &mut SendStream<Bytes>) -> bool {
    stream.poll_reset(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// Whether the endpoint says that it has not processed the request (RFC 9113, 8.7).
fn is_unprocessed(error: &h2::Error) -> bool {
    error.is_remote() && (error.is_go_away() || error.reason() == Some(Reason::REFUSED_STREAM))
}
