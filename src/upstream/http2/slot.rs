//! One request on a connection that it shares with others.

use std::{
    cell::Cell,
    future::poll_fn,
    rc::Rc,
    task::Poll,
    time::{Duration, Instant},
};

use bytes::Bytes;
use h2::{Reason, SendStream, client::ResponseFuture, ext::Protocol};
use http::{Request, Response, StatusCode};

use super::{
    body::{Http2Body, OpenBodies},
    connection::Http2Connection,
    request::http2_head,
    tunnel::Http2Tunnel,
    upload::Upload,
};
use crate::upstream::{
    ExchangeError, HostPool, IncomingBody, OnInformational, RequestBody, SendError, UpstreamPool,
};

/// A stream that outlasts this without a byte from the endpoint, and is then given up, makes its connection suspicious.
const SILENCE: Duration = Duration::from_secs(1);

/// The right to one stream of a connection. Dropped before the whole answer has come, the stream is reset.
pub(in crate::upstream) struct StreamSlot<B: RequestBody> {
    pub(in crate::upstream) connection: Rc<Http2Connection>,
    host: Rc<HostPool<B>>,
    pool: Rc<UpstreamPool<B>>,
    state: Rc<StreamState<B>>,
}

/// How far the request has come.
struct StreamState<B> {
    upload: Cell<Option<Upload<B>>>,
    /// The sending side of a stream that switches protocols.
    tunnel: Cell<Option<SendStream<Bytes>>>,
    /// When it was sent, and what had been received by then. `None`: it does not wait for the head of an answer.
    waiting: Cell<Option<(Instant, u64)>>,
}

impl<B: RequestBody> StreamSlot<B> {
    /// Takes a stream of `connection` to `host`, which has room.
    pub(in crate::upstream) fn take(
        connection: Rc<Http2Connection>,
        host: &Rc<HostPool<B>>,
        pool: &Rc<UpstreamPool<B>>,
    ) -> Self {
        connection.take_stream();
        let state =
            StreamState { upload: Cell::new(None), tunnel: Cell::new(None), waiting: Cell::new(None) };
        Self { connection, host: Rc::clone(host), pool: Rc::clone(pool), state: Rc::new(state) }
    }

    /// Sends `request` and waits for the head of the answer.
    ///
    /// The handshake of a WebSocket is answered as by HTTP/1.1: with 101 where the endpoint has accepted it.
    pub(in crate::upstream) fn send(
        &self,
        request: Request<B>,
    ) -> impl Future<Output = Result<Response<IncomingBody>, SendError<B>>> + use<B> {
        let (connection, state) = (Rc::clone(&self.connection), Rc::clone(&self.state));
        let host = Rc::clone(&self.host);
        async move {
            let (head, body) = request.into_parts();
            // The head goes to h2, which does not give it back.
            let copy = head.clone();
            let mut repeatable = body.repeatable();
            let is_idempotent = head.method.is_idempotent();
            let on_informational = head.extensions.get::<OnInformational>().cloned();
            let message = http2_head(head, &body.size_hint(), &host.endpoint);
            let is_tunnel = message.extensions().get::<Protocol>().is_some();
            let is_empty = body.is_end_stream();
            let may_repeat = is_idempotent && !is_tunnel;
            let is_whole = is_empty && !is_tunnel;
            state.waiting.set(Some((Instant::now(), connection.received())));
            let result = match connection.requests().send_request(message, is_whole) {
                Ok((answer, mut stream)) => {
                    if is_tunnel {
                        state.tunnel.set(Some(stream));
                    } else if !is_whole {
                        match body.into_whole() {
                            Ok(whole) => {
                                // An error means that the stream has ended, which the answer tells.
                                let _ended = stream.send_data(whole, true);
                            }
                            Err(body) => state.upload.set(Some(Upload::begin(body, stream))),
                        }
                    }
                    answer_head(answer, on_informational, connection.bodies()).await
                }
                Err(error) => {
                    repeatable = repeatable.or(Some(body));
                    Err(error)
                }
            };
            match result {
                Ok(mut response) => {
                    state.waiting.set(None);
                    if is_tunnel && response.status().is_success() {
                        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                    } else if let Some(mut refused) = state.tunnel.take() {
                        let _ended = refused.send_data(Bytes::new(), true);
                    }
                    Ok(response)
                }
                Err(error) => {
                    let is_unprocessed = is_unprocessed(&error);
                    let body = match state.upload.take() {
                        _ if !is_unprocessed && !may_repeat => None,
                        Some(upload) => upload.take_unbegun(),
                        None => repeatable,
                    };
                    let request = body.map(|body| Box::new(Request::from_parts(copy, body)));
                    Err(SendError { error: ExchangeError::Http2(error), is_unprocessed, request })
                }
            }
        }
    }

    /// The stream of bytes that it has become with `answer`. `None`: it has not switched protocols.
    pub(in crate::upstream) fn upgrade(self, answer: IncomingBody) -> Option<Http2Tunnel<B>> {
        let sender = self.state.tunnel.take()?;
        let IncomingBody::Http2(body) = answer else { return None };
        Some(Http2Tunnel::new(body, sender, self))
    }

    /// The whole answer was read. What the endpoint did not want of the request is not sent.
    pub(in crate::upstream) fn release(self) {
        self.state.waiting.set(None);
    }
}

impl<B: RequestBody> Drop for StreamSlot<B> {
    fn drop(&mut self) {
        drop(self.state.upload.take());
        let connection = &self.connection;
        // Also where the request that waits for it is dropped: its client may not wait as long as the proxy does.
        if let Some((since, received)) = self.state.waiting.get()
            && received == connection.received()
            && since.elapsed() >= SILENCE
        {
            connection.note_silence();
        }
        self.pool.stream_ended(connection, &self.host);
    }
}

/// The head of the answer.
async fn answer_head(
    mut answer: ResponseFuture,
    on_informational: Option<OnInformational>,
    bodies: &Rc<OpenBodies>,
) -> Result<Response<IncomingBody>, h2::Error> {
    let response = poll_fn(|cx| {
        // Others are skipped.
        if let Some(on_informational) = &on_informational {
            while let Poll::Ready(Some(response)) = answer.poll_informational(cx) {
                on_informational.call(&response?);
            }
        }
        std::pin::Pin::new(&mut answer).poll(cx)
    })
    .await?;
    let (head, stream) = response.into_parts();
    let body = Http2Body::new(stream, &head.headers, bodies);
    Ok(Response::from_parts(head, IncomingBody::Http2(body)))
}

/// Whether the endpoint says that it has done nothing of the request (RFC 9113, 8.7).
fn is_unprocessed(error: &h2::Error) -> bool {
    error.is_remote() && (error.is_go_away() || error.reason() == Some(Reason::REFUSED_STREAM))
}
