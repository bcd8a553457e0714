//! The body of a request on its way to the upstream.

use std::{
    cell::Cell,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::{
    expect::Gate,
    headers::clean_trailers,
    patience::{Patience, Waiting},
};

/// A request's body as the upstream is sent it: either whole, or broken off with an error, which tears
/// the upstream's connection down. It never ends early as if it were whole.
#[derive(Debug)]
pub enum RequestBody {
    /// No body.
    Empty,
    /// The client's.
    Stream(Box<Stream>),
}

/// A body that is streamed.
#[derive(Debug)]
pub struct Stream {
    incoming: Incoming,
    /// Bytes still to come, where the length was announced.
    left: Option<u64>,
    gate: Option<Gate>,
    progress: Rc<Progress>,
    patience: Rc<Patience>,
    timeouts: BodyTimeouts,
    /// Whether the client's bytes are waited for: a deadline is set when that begins, not at every look.
    starved: bool,
}

/// How long each side may take.
#[derive(Debug, Clone, Copy)]
pub struct BodyTimeouts {
    /// The client, for the next bytes.
    pub client: Duration,
    /// The upstream, to take them, and then to answer.
    pub upstream: Duration,
}

/// How far a body has come, for whoever waits for the answer to it.
#[derive(Debug, Default)]
pub struct Progress {
    state: Cell<State>,
    bytes: Cell<u64>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Sending,
    Sent,
    /// The client broke it off, or sent what is not a body.
    Broken,
    /// The answer is complete; nobody needs the rest.
    Abandoned,
}

impl Progress {
    /// Whether the whole body was sent.
    pub fn is_sent(&self) -> bool {
        self.state.get() == State::Sent
    }

    /// Whether the client is to blame that it was not.
    pub fn is_broken(&self) -> bool {
        self.state.get() == State::Broken
    }

    /// Bytes of the body that were passed on.
    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Notes that the answer is complete. An end of the body that comes later is not its real end:
    /// hyper stops reading a request once it is answered, and tells that as the end of the body.
    pub fn abandon(&self) {
        if self.state.get() == State::Sending {
            self.state.set(State::Abandoned);
        }
    }
}

/// Why a body broke off.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The client broke it off or sent what is not a body.
    #[error("the request's body broke off: {0}")]
    Client(#[from] hyper::Error),
    /// It ended before its announced length, or before its last chunk.
    #[error("the request's body ended early")]
    Incomplete,
}

impl RequestBody {
    /// The client's body, to be streamed.
    pub fn stream(
        incoming: Incoming,
        gate: Option<Gate>,
        patience: Rc<Patience>,
        timeouts: BodyTimeouts,
    ) -> (Self, Rc<Progress>) {
        let progress = Rc::new(Progress::default());
        let stream = Stream {
            left: incoming.size_hint().exact(),
            incoming,
            gate,
            progress: Rc::clone(&progress),
            patience,
            timeouts,
            starved: false,
        };
        (Self::Stream(Box::new(stream)), progress)
    }
}

impl Stream {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(gate) = &mut self.gate {
            ready!(gate.poll_open(cx));
            self.gate = None;
        }
        let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(cx) else {
            if !self.starved && self.progress.state.get() == State::Sending {
                self.starved = true;
                self.patience.wait(Waiting::RequestBody, self.timeouts.client);
            }
            return Poll::Pending;
        };
        self.starved = false;
        if self.progress.state.get() == State::Sending {
            self.patience.wait(Waiting::Upstream, self.timeouts.upstream);
        }
        Poll::Ready(match frame {
            Some(Ok(mut frame)) => {
                let trailers = frame.trailers_mut().map(clean_trailers).is_some();
                let length = frame.data_ref().map_or(0, Bytes::len) as u64;
                self.left = self.left.map(|left| left.saturating_sub(length));
                self.progress.bytes.set(self.progress.bytes.get() + length);
                if trailers || self.left == Some(0) {
                    self.finish(State::Sent);
                }
                Some(Ok(frame))
            }
            Some(Err(error)) => {
                self.finish(State::Broken);
                Some(Err(error.into()))
            }
            None if self.progress.is_sent() => None,
            None if self.left.is_none() && self.progress.state.get() == State::Sending => {
                self.finish(State::Sent);
                None
            }
            None => {
                self.finish(State::Broken);
                Some(Err(BodyError::Incomplete))
            }
        })
    }

    fn finish(&self, state: State) {
        if self.progress.state.get() == State::Sending {
            self.progress.state.set(state);
        }
        if state == State::Sent {
            self.patience.expect_body(false);
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Stream(stream) => stream.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            // Not the incoming body's own word: it has none for a body that broke off.
            Self::Stream(stream) => stream.left == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Stream(stream) => stream.left.map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}
