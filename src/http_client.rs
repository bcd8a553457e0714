//! The HTTP client for requests of our own: to identity providers, and to webhooks.

use std::{error::Error, time::Duration};

use bytes::Bytes;
use http_body::Body;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use rustls::ClientConfig;

/// How long a connection may take, and how long an idle one is kept.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_secs(5);

/// A client for requests with a body of type `B`. It connects without a proxy, and follows no redirects.
pub type HttpClient<B> = Client<HttpsConnector<HttpConnector>, B>;

/// A client with this `tls` for `https`.
pub fn client<B>(tls: ClientConfig) -> HttpClient<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let connector =
        HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(tcp);
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(1)
        .build(connector)
}

/// An error and its causes, each once: `client error (Connect): tcp connect error: Connection refused`.
pub fn reasons(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text += ": ";
            text += &cause_text;
        }
        next = cause.source();
    }
    text
}
