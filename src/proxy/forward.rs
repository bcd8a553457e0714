//! To the upstream and back: a connection, the request on it, the head of the answer.

use std::rc::Rc;

use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;

use super::{
    client::Client,
    headers::is_coded,
    patience::{Patience, Waiting},
    reply::Reply,
    request_body::{Progress, RequestBody},
    response_body::Lease,
    worker::Worker,
};
use crate::{
    config::model::{HostHeader, Route, Timeouts},
    telemetry::{
        Throttle,
        metrics::{Outcome, WorkerMetrics},
    },
    upstream::{self, ConnectError, SendError, Upstream},
};

/// Where a request goes, and what of it is known meanwhile.
#[derive(Clone, Copy)]
pub struct Way<'a> {
    /// The upstream.
    pub upstream: &'a Rc<Upstream<RequestBody>>,
    /// Its index.
    pub index: usize,
    /// How long it may take.
    pub timeouts: Timeouts,
    /// The client's patience.
    pub patience: &'a Patience,
    /// Where it is counted.
    pub metrics: &'a WorkerMetrics,
    /// How often is told what goes wrong.
    pub complaints: &'a Throttle,
}

/// The head of the answer, the body to come, and the connection it comes over.
pub struct Answer {
    /// As the upstream sent it.
    pub response: Response<Incoming>,
    /// Its connection.
    pub lease: Lease,
    /// The endpoint's index.
    pub endpoint: usize,
}

/// Sends `request` and waits for the head of the answer.
///
/// It is repeated once where that is safe: if the endpoint could not be reached, on another one; if a
/// pooled connection turned out to be closed, on a new one (to another endpoint where there is one), as
/// long as no byte was sent or the request is idempotent and has no body (RFC 9110, 9.2.2).
///
/// # Errors
/// The reply for the client.
pub async fn forward(
    way: Way<'_>,
    mut request: Request<RequestBody>,
    progress: Option<Rc<Progress>>,
) -> Result<Answer, Reply> {
    let mut repeated = false;
    let mut fresh = false;
    let mut avoid = None;
    loop {
        let endpoint = way.upstream.pick(avoid, way.patience.now());
        let pooled = if fresh { None } else { way.upstream.idle(endpoint) };
        let mut connection = match pooled {
            Some(connection) => connection,
            // Boxed: it is rare, and would make every request's future as large as itself.
            None => match Box::pin(way.connect(endpoint)).await {
                Ok(connection) => connection,
                Err(Unconnected::Unreachable(_)) if !repeated && way.upstream.has_others() => {
                    way.metrics.upstream_retry(way.index);
                    (repeated, avoid) = (true, Some(endpoint));
                    continue;
                }
                Err(Unconnected::Unreachable(reply) | Unconnected::Final(reply)) => return Err(reply),
            },
        };
        let endpoint = connection.endpoint();
        // HTTP/1.0 may come without a Host; what goes on is HTTP/1.1.
        let nameless = !request.headers().contains_key(header::HOST);
        if nameless || way.upstream.shared().config.host == HostHeader::Rewrite {
            let authority = way.upstream.shared().config.endpoints[endpoint].authority.as_str();
            // An authority is made of characters that a field may have.
            if let Ok(host) = HeaderValue::from_str(authority) {
                request.headers_mut().insert(header::HOST, host);
            }
        }
        let spare = (connection.is_reused() && !repeated).then(|| repetition(&request)).flatten();

        // What nothing else is said of: the client went away, or broke its own request off.
        let mut attempt = Attempt { way, outcome: Outcome::Cancelled };
        let failed = match way.patience.bound(way.timeouts.response, connection.send(request)).await {
            Ok(Ok(response)) if !is_asked_for(&response) => {
                attempt.outcome = Outcome::Error;
                return Err(Reply::bad_gateway());
            }
            Ok(Ok(response)) => {
                attempt.outcome = Outcome::Ok;
                return Ok(Answer { response, lease: Lease::new(connection, progress), endpoint });
            }
            Ok(Err(failed)) => failed,
            Err(_) if way.patience.waiting() == Waiting::RequestBody => return Err(Reply::slow_body()),
            Err(_) => {
                attempt.outcome = Outcome::Timeout;
                return Err(Reply::gateway_timeout());
            }
        };
        if progress.as_ref().is_some_and(|progress| progress.is_broken()) {
            return Err(Reply::broken_body());
        }
        attempt.outcome = Outcome::Error;
        let SendError { error, unsent } = failed;
        match unsent.or(spare) {
            Some(again) if !repeated => {
                way.metrics.upstream_retry(way.index);
                request = again;
                // An endpoint that closes connections may be going away: another one is the better choice.
                (repeated, fresh, avoid) = (true, true, Some(endpoint));
            }
            _ => {
                way.complain(format_args!("endpoint {endpoint} gave no answer: {error}"));
                return Err(Reply::bad_gateway());
            }
        }
    }
}

/// One request on one connection: counted when it is dropped, however that comes about.
struct Attempt<'a> {
    way: Way<'a>,
    outcome: Outcome,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.way.metrics.upstream(self.way.index, self.outcome);
    }
}

/// Why there is no connection, and what the client is told if that is the end of it.
enum Unconnected {
    /// Another endpoint may do better.
    Unreachable(Reply),
    /// No endpoint would do better.
    Final(Reply),
}

impl<'a> Way<'a> {
    /// The way that `route` takes.
    pub fn to<S>(worker: &'a Worker<S>, client: &'a Client, route: &Route) -> Self {
        Self {
            upstream: &worker.upstreams[route.upstream],
            index: route.upstream,
            timeouts: route.timeouts,
            patience: client.patience(),
            metrics: worker.metrics(),
            complaints: &worker.ledger.complaints,
        }
    }

    fn complain(&self, what: std::fmt::Arguments<'_>) {
        if let Some(held_back) = self.complaints.pass(self.patience.now()) {
            tracing::warn!(upstream = %self.upstream.shared().config.name, held_back, "{what}");
        }
    }

    async fn connect(&self, endpoint: usize) -> Result<upstream::Connection<RequestBody>, Unconnected> {
        // Both waits of it have a bound of their own.
        let backstop = self.timeouts.connect.saturating_mul(3);
        let connect = self.upstream.connect(endpoint, self.timeouts.connect);
        let error = match self.patience.bound(backstop, connect).await {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(error)) => error,
            Err(_) => ConnectError::Timeout(endpoint),
        };
        self.complain(format_args!("{error}"));
        let (outcome, reply) = match error {
            ConnectError::Unreachable { .. } => (Outcome::ConnectError, Reply::bad_gateway()),
            ConnectError::Full(_) => (Outcome::Overloaded, Reply::overloaded()),
            ConnectError::Timeout(_) => (Outcome::Timeout, Reply::gateway_timeout()),
        };
        self.metrics.upstream(self.index, outcome);
        Err(match outcome {
            Outcome::Overloaded => Unconnected::Final(reply),
            _ => Unconnected::Unreachable(reply),
        })
    }
}

/// Nobody asked for another protocol, nor for other codings than what every recipient knows: `Upgrade`
/// and `TE` were not passed on.
fn is_asked_for<B>(response: &Response<B>) -> bool {
    response.status() != StatusCode::SWITCHING_PROTOCOLS && !is_coded(response.headers())
}

/// The same request once more, if it does no harm to send it twice.
fn repetition(request: &Request<RequestBody>) -> Option<Request<RequestBody>> {
    let idempotent = matches!(
        *request.method(),
        Method::GET | Method::HEAD | Method::OPTIONS | Method::PUT | Method::DELETE
    );
    if !idempotent || !matches!(request.body(), RequestBody::Empty) {
        return None;
    }
    let mut again = Request::new(RequestBody::Empty);
    *again.method_mut() = request.method().clone();
    *again.uri_mut() = request.uri().clone();
    *again.headers_mut() = request.headers().clone();
    Some(again)
}
