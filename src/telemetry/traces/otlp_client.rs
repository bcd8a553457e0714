//! The HTTP client that sends spans: one connection per batch, on the exporter's thread.

use std::{io, pin::Pin, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use opentelemetry_http::{HttpClient, HttpError};
use parking_lot::Mutex;
use tokio::{
    net::TcpStream,
    runtime::{Builder, Runtime},
    time::timeout,
};

/// Maximum size of a response in bytes; it contains the number of rejected spans, and why.
const MAX_RESPONSE: usize = 64 << 10;

/// Has its own runtime, because the exporter's thread has none; sending blocks that thread.
#[derive(Debug)]
pub(super) struct OtlpClient {
    runtime: Mutex<Runtime>,
    timeout: Duration,
}

impl OtlpClient {
    /// Gives up on a request after `timeout`.
    ///
    /// # Errors
    /// No runtime could be started.
    pub(super) fn new(timeout: Duration) -> io::Result<Self> {
        Ok(Self { runtime: Mutex::new(Builder::new_current_thread().enable_all().build()?), timeout })
    }

    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        self.runtime.lock().block_on(async { timeout(self.timeout, exchange(request)).await? })
    }
}

impl HttpClient for OtlpClient {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move { self.send(request) })
    }
}

async fn exchange(request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let (mut head, body) = request.into_parts();
    let authority = head.uri.authority().ok_or("the collector's URL has no host")?.clone();
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    let stream = TcpStream::connect((host, authority.port_u16().unwrap_or(80))).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    head.headers.insert(header::HOST, HeaderValue::from_str(authority.as_str())?);
    if let Some(path) = head.uri.path_and_query().cloned() {
        head.uri = path.into();
    }
    let connection = tokio::spawn(connection);
    let response = sender.send_request(Request::from_parts(head, Full::new(body))).await;
    let (head, body) = response?.into_parts();
    let body = Limited::new(body, MAX_RESPONSE).collect().await?.to_bytes();
    connection.abort();
    Ok(Response::from_parts(head, body))
}
