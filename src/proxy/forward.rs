//! To the upstream and back: a connection, the request on it, the head of the answer.

use std::rc::Rc;

use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;

use super::{
    patience::{Patience, Waiting},
    reply::Reply,
    request_body::{Progress, RequestBody},
    response_body::Lease,
};
use crate::{
    config::model::{HostHeader, Timeouts},
    telemetry::metrics::{Outcome, WorkerMetrics},
    upstream::{CheckoutError, SendError, Upstream},
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
/// pooled connection turned out to be closed, on a new one, as long as no byte was sent or the request
/// is idempotent and has no body (RFC 9110, 9.2.2).
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
        // The checkout has bounds of its own, for its turn and for a new connection.
        let backstop = way.timeouts.connect.saturating_mul(3);
        let checkout = way.upstream.checkout(fresh, avoid, way.timeouts.connect);
        let mut connection = match way.patience.bound(backstop, checkout).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(CheckoutError::Full(_))) => {
                way.metrics.upstream(way.index, Outcome::Overloaded);
                return Err(Reply::overloaded());
            }
            Ok(Err(error @ (CheckoutError::Connect { endpoint, .. } | CheckoutError::Timeout(endpoint)))) => {
                tracing::warn!(upstream = %way.upstream.shared().config.name, "{error}");
                let late = matches!(error, CheckoutError::Timeout(_));
                let outcome = if late { Outcome::Timeout } else { Outcome::ConnectError };
                way.metrics.upstream(way.index, outcome);
                if !repeated && way.upstream.shared().config.endpoints.len() > 1 {
                    way.metrics.upstream_retry(way.index);
                    (repeated, avoid) = (true, Some(endpoint));
                    continue;
                }
                return Err(if late { Reply::gateway_timeout() } else { Reply::bad_gateway() });
            }
            Err(_) => {
                way.metrics.upstream(way.index, Outcome::Timeout);
                return Err(Reply::gateway_timeout());
            }
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

        let failed = match way.patience.bound(way.timeouts.response, connection.send(request)).await {
            Ok(Ok(response)) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                // Nobody asked for it: `Upgrade` was not passed on.
                way.metrics.upstream(way.index, Outcome::Error);
                return Err(Reply::bad_gateway());
            }
            Ok(Ok(response)) => {
                way.metrics.upstream(way.index, Outcome::Ok);
                return Ok(Answer { response, lease: Lease::new(connection, progress), endpoint });
            }
            Ok(Err(failed)) => failed,
            Err(_) if way.patience.waiting() == Waiting::RequestBody => return Err(Reply::slow_body()),
            Err(_) => {
                way.metrics.upstream(way.index, Outcome::Timeout);
                return Err(Reply::gateway_timeout());
            }
        };
        if progress.as_ref().is_some_and(|progress| progress.is_broken()) {
            return Err(Reply::broken_body());
        }
        let SendError { error, unsent } = failed;
        match unsent.or(spare) {
            Some(again) if !repeated => {
                way.metrics.upstream_retry(way.index);
                request = again;
                (repeated, fresh) = (true, true);
            }
            _ => {
                let name = &way.upstream.shared().config.name;
                tracing::warn!(upstream = %name, endpoint, "no answer: {error}");
                way.metrics.upstream(way.index, Outcome::Error);
                return Err(Reply::bad_gateway());
            }
        }
    }
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
