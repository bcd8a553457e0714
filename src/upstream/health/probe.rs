//! One probe of one host, over a connection of its own.

use std::{rc::Rc, time::Instant};

use bytes::{BufMut, Bytes, BytesMut};
use h2::{RecvStream, client::SendRequest};
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{ACCEPT, CONNECTION, CONTENT_TYPE, HOST, TE, USER_AGENT},
    uri::{Authority, PathAndQuery, Scheme},
};
use http_body_util::{BodyExt, Empty};
use prost::Message;
use tokio::time::{Duration, timeout, timeout_at};

use crate::{
    config::model::{Endpoint, HealthCheck, Probe, format_duration},
    upstream::{
        ConnectError, SharedUpstream, UpstreamHost,
        connect::{Connected, connect},
        host_state::ProbeFailure,
        http1::{Flusher, Http1Connection},
        http2::{StreamNeeds, UpstreamHttp2Connection},
        io::UpstreamIo,
    },
};

/// The `user-agent` of probes.
const AGENT: &str = concat!("tollgate-health/", env!("CARGO_PKG_VERSION"));

/// Most bytes of a response's body that are read.
const MAX_BODY: usize = 64 << 10;

/// How long the rest of a response is read after its status: some servers log an error if the connection is closed
/// earlier.
const REST: Duration = Duration::from_millis(100);

/// The method of `grpc.health.v1` (<https://github.com/grpc/grpc/blob/master/doc/health-checking.md>).
const GRPC_CHECK: PathAndQuery = PathAndQuery::from_static("/grpc.health.v1.Health/Check");

/// The longest response to it.
const MAX_GRPC_RESPONSE: usize = 4 << 10;

/// Probes `host` once, within the check's timeout. `None`: this machine could not open a connection, which is no
/// failure of the host.
pub(super) async fn probe(
    upstream: &SharedUpstream,
    host: &UpstreamHost,
    check: &HealthCheck,
) -> Option<Result<(), ProbeFailure>> {
    let late = Instant::now() + check.timeout;
    let connected = match connect(upstream, host, check.timeout).await {
        Ok(connected) => connected,
        Err(ConnectError::Exhausted(_)) => return None,
        Err(error) => {
            let reason = upstream.describe_connect_error(host, &error);
            return Some(Err(ProbeFailure { reason, is_unreachable: true }));
        }
    };
    let result = match timeout_at(late.into(), Box::pin(ask(connected, host, check))).await {
        Ok(result) => result,
        Err(_) => Err(format!("it did not respond within {}", format_duration(check.timeout))),
    };
    Some(result.map_err(|reason| ProbeFailure { reason, is_unreachable: false }))
}

/// Sends the probe over a new connection to `host`. An error is the end of a sentence.
async fn ask(connected: Connected, host: &UpstreamHost, check: &HealthCheck) -> Result<(), String> {
    let endpoint = &host.endpoint;
    match &check.probe {
        Probe::Tcp => Ok(()),
        Probe::Http { path, host, statuses } => {
            let host = host.as_ref().unwrap_or(&endpoint.authority);
            let status = if connected.is_http2 {
                let requests = open_http2(connected, endpoint).await?;
                http2_status(requests, endpoint, path, host).await?
            } else {
                http1_status(connected.io, path, host).await?
            };
            match statuses.contains(status.as_u16()) {
                true => Ok(()),
                false => Err(format!("it responded {status} to GET {path}")),
            }
        }
        Probe::Grpc { .. } if !connected.is_http2 => {
            Err("it has chosen HTTP/1.1 in the TLS handshake, and gRPC needs HTTP/2".to_owned())
        }
        Probe::Grpc { service, host } => {
            let host = host.as_ref().unwrap_or(&endpoint.authority);
            let requests = open_http2(connected, endpoint).await?;
            grpc_check(requests, endpoint, host, service, check.timeout).await
        }
    }
}

/// The status of a host's response over HTTP/1.1.
async fn http1_status(io: UpstreamIo, path: &PathAndQuery, host: &Authority) -> Result<StatusCode, String> {
    let request = Request::get(path.as_str())
        .header(HOST, host.as_str())
        .header(USER_AGENT, AGENT)
        .header(ACCEPT, "*/*")
        .header(CONNECTION, "close");
    let request = request.body(Empty::new()).map_err(|error| error.to_string())?;
    let connection = Http1Connection::new(io, 0, &Rc::new(Flusher::start()));
    let response = connection.send(request).await.map_err(|failed| failed.error.to_string())?;
    let status = response.status();
    let rest = async {
        let (mut body, mut left) = (response.into_body(), MAX_BODY);
        while left > 0
            && let Some(Ok(frame)) = body.frame().await
        {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
        }
    };
    // The result does not matter.
    let _ended = timeout(REST, rest).await;
    Ok(status)
}

async fn open_http2(connected: Connected, endpoint: &Endpoint) -> Result<Http2Requests, String> {
    let Connected { io, tls_version, .. } = connected;
    let needs = StreamNeeds::default();
    let connection = UpstreamHttp2Connection::open(io, endpoint, tls_version, needs, Instant::now());
    let connection = connection.await.map_err(|error| error.to_string())?;
    let requests = connection.requests().ready().await.map_err(|error| broken_stream(&error))?;
    Ok(Http2Requests { requests, _connection: connection })
}

/// The sender of HTTP/2 requests, and its connection, which is closed with it.
struct Http2Requests {
    requests: SendRequest<Bytes>,
    _connection: Rc<UpstreamHttp2Connection>,
}

async fn http2_status(
    mut http2: Http2Requests,
    endpoint: &Endpoint,
    path: &PathAndQuery,
    host: &Authority,
) -> Result<StatusCode, String> {
    let mut request = http2_head(Method::GET, endpoint, path, host)?;
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static("*/*"));
    let (response, _) = http2.requests.send_request(request, true).map_err(|error| broken_stream(&error))?;
    let (head, mut body) = response.await.map_err(|error| broken_stream(&error))?.into_parts();
    // The result does not matter.
    let _ended = timeout(REST, read(&mut body, MAX_BODY)).await;
    Ok(head.status)
}

async fn grpc_check(
    mut http2: Http2Requests,
    endpoint: &Endpoint,
    host: &Authority,
    service: &str,
    within: Duration,
) -> Result<(), String> {
    let mut request = http2_head(Method::POST, endpoint, &GRPC_CHECK, host)?;
    let headers = request.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(TE, HeaderValue::from_static("trailers"));
    // At most eight digits.
    let timeout = format!("{}m", within.as_millis().clamp(1, 99_999_999));
    headers.extend(
        HeaderValue::try_from(timeout).map(|value| (http::HeaderName::from_static("grpc-timeout"), value)),
    );
    let sent = http2.requests.send_request(request, false);
    let (response, mut stream) = sent.map_err(|error| broken_stream(&error))?;
    stream.send_data(grpc_message(service), true).map_err(|error| broken_stream(&error))?;
    let response = response.await.map_err(|error| broken_stream(&error))?;
    grpc_result(response, service).await
}

/// The request as a message of gRPC: a flag for no compression, the length, and the data.
fn grpc_message(service: &str) -> Bytes {
    let message = HealthCheckRequest { service: service.to_owned() }.encode_to_vec();
    let mut frame = BytesMut::with_capacity(5 + message.len());
    frame.put_u8(0);
    // In range: names of services are short.
    frame.put_u32(message.len() as u32);
    frame.extend_from_slice(&message);
    frame.freeze()
}

async fn grpc_result(response: Response<RecvStream>, service: &str) -> Result<(), String> {
    let (head, mut body) = response.into_parts();
    if head.status != StatusCode::OK {
        return Err(format!("it responded {} to {GRPC_CHECK}", head.status));
    }
    let received = read(&mut body, MAX_GRPC_RESPONSE).await.map_err(|error| broken_stream(&error))?;
    let trailers = body.trailers().await.map_err(|error| broken_stream(&error))?;
    let service = if service.is_empty() { "the server".to_owned() } else { format!("service {service}") };
    // A response without a message has its status in the head.
    match grpc_status(trailers.as_ref().unwrap_or(&head.headers)) {
        Some("0") => {}
        Some("5") => return Err(format!("it knows no health of {service} (NOT_FOUND)")),
        Some("12") => return Err("it has no grpc.health.v1.Health service (UNIMPLEMENTED)".to_owned()),
        Some(status) => return Err(format!("it responded grpc-status {status} to {GRPC_CHECK}")),
        None => return Err(format!("its response to {GRPC_CHECK} is not one of gRPC")),
    }
    let message = match received.get(..5) {
        Some([0, ..]) => received.get(5..),
        _ => None,
    };
    let decoded = message.and_then(|message| HealthCheckResponse::decode(message).ok());
    match decoded.map(|response| response.status) {
        Some(SERVING) => Ok(()),
        Some(NOT_SERVING) => Err(format!("it says that {service} is NOT_SERVING")),
        Some(status) => Err(format!("it says that {service} has status {status}, not SERVING")),
        None => Err(format!("its response to {GRPC_CHECK} is not one of grpc.health.v1")),
    }
}

fn grpc_status(fields: &HeaderMap) -> Option<&str> {
    fields.get("grpc-status")?.to_str().ok()
}

/// Reads the body, at most `most` bytes of it.
async fn read(body: &mut RecvStream, most: usize) -> Result<Vec<u8>, h2::Error> {
    let mut read = Vec::new();
    while read.len() < most
        && let Some(data) = body.data().await
    {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        read.extend_from_slice(&data);
    }
    Ok(read)
}

fn http2_head(
    method: Method,
    endpoint: &Endpoint,
    path: &PathAndQuery,
    host: &Authority,
) -> Result<Request<()>, String> {
    let scheme = endpoint.url.scheme().cloned().unwrap_or(Scheme::HTTP);
    let uri = Uri::builder().scheme(scheme).authority(host.clone()).path_and_query(path.clone());
    let uri = uri.build().map_err(|error| error.to_string())?;
    let request = Request::builder().method(method).uri(uri).version(http::Version::HTTP_2);
    request.header(USER_AGENT, AGENT).body(()).map_err(|error| error.to_string())
}

fn broken_stream(error: &h2::Error) -> String {
    format!("the connection broke: {error}")
}

#[derive(Clone, PartialEq, Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, PartialEq, Message)]
struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_of_grpc_is_framed() {
        assert_eq!(&grpc_message("")[..], b"\0\0\0\0\0");
        assert_eq!(&grpc_message("a.B")[..], b"\0\0\0\0\x05\x0a\x03a.B");
    }
}
