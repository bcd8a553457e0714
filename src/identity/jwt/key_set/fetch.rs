//! Fetches a key set over HTTP.

use std::{error::Error, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use rustls::{ClientConfig, crypto::aws_lc_rs::default_provider};
use serde::Deserialize;
use url::Url;

use super::KeySetSource;
use crate::{
    jwt_keys::{UrlError, discovery_url, provider_url},
    tls::system_authorities,
};

/// The most bytes of a response.
const MAX_BYTES: usize = 1 << 20;
/// The most redirects of a request.
const MAX_REDIRECTS: usize = 3;
/// How long a connection may take, and how long an idle one is kept: from the provider's metadata to its keys.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_secs(5);

/// Why a key set was not fetched.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("{url}: {}", reasons(&**.error))]
    Connection { url: Url, error: Box<dyn Error + Send + Sync> },
    #[error("{url} responds with {status}")]
    Status { url: Url, status: StatusCode },
    #[error("{url} redirects to another origin, which is not followed")]
    OtherOrigin { url: Url },
    #[error("{url} redirects too often, or to nowhere")]
    Redirects { url: Url },
    #[error("{url} responds with more than {} KiB", MAX_BYTES >> 10)]
    TooLong { url: Url },
    #[error("{url} is not the metadata of an OpenID provider: it has no `issuer` and `jwks_uri`")]
    NoMetadata { url: Url },
    #[error("{url} is the metadata of another issuer: `{found}`")]
    OtherIssuer { url: Url, found: String },
    #[error("{url} has a jwks_uri that {reason}")]
    KeysUrl { url: Url, reason: UrlError },
    #[error("the issuer {0}")]
    Issuer(#[from] UrlError),
}

/// The metadata of a provider (OpenID Connect Discovery, 3; RFC 8414, 2).
#[derive(Deserialize)]
struct Metadata {
    issuer: String,
    jwks_uri: String,
}

/// A fetched key set, and its headers.
pub(super) struct FetchedSet {
    pub(super) body: Bytes,
    pub(super) headers: HeaderMap,
    pub(super) url: Url,
}

/// An HTTP client for key sets. It trusts the authorities that the system trusts, and connects without a proxy.
pub(super) struct KeySetClient(Client<HttpsConnector<HttpConnector>, Empty<Bytes>>);

impl KeySetClient {
    /// # Errors
    /// There is no TLS.
    pub(super) fn new() -> Result<Self, rustls::Error> {
        let tls = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(system_authorities::trusted())
            .with_no_client_auth();
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(1)
            .build(connector);
        Ok(Self(client))
    }

    /// Fetches the key set of `source`. The caller limits the time.
    ///
    /// # Errors
    /// It can't be fetched.
    pub(super) async fn fetch(&self, source: &KeySetSource) -> Result<FetchedSet, FetchError> {
        match source {
            KeySetSource::Url(url) => self.get(url.clone()).await,
            KeySetSource::Issuer(issuer) => {
                let url = self.keys_url(issuer).await?;
                self.get(url).await
            }
        }
    }

    /// Where `issuer` has its keys. They may be at another host.
    async fn keys_url(&self, issuer: &str) -> Result<Url, FetchError> {
        let FetchedSet { body, url, .. } = self.get(discovery_url(issuer)?).await?;
        let Ok(metadata) = serde_json::from_slice::<Metadata>(&body) else {
            return Err(FetchError::NoMetadata { url });
        };
        // Another issuer's metadata would make its keys valid for this one (OpenID Connect Discovery, 4.3).
        if metadata.issuer != issuer {
            let found = metadata.issuer.chars().take(200).collect();
            return Err(FetchError::OtherIssuer { url, found });
        }
        provider_url(&metadata.jwks_uri).map_err(|reason| FetchError::KeysUrl { url, reason })
    }

    async fn get(&self, mut url: Url) -> Result<FetchedSet, FetchError> {
        for _ in 0..=MAX_REDIRECTS {
            let failed = |error| FetchError::Connection { url: url.clone(), error };
            let request = Request::get(url.as_str())
                .header(
                    header::ACCEPT,
                    HeaderValue::from_static("application/json, application/jwk-set+json"),
                )
                .header(header::USER_AGENT, concat!("tollgate/", env!("CARGO_PKG_VERSION")))
                .body(Empty::new())
                .map_err(|error| failed(error.into()))?;
            let response = self.0.request(request).await.map_err(|error| failed(error.into()))?;
            let (head, body) = response.into_parts();
            match head.status {
                StatusCode::OK => {
                    let body =
                        Limited::new(body, MAX_BYTES).collect().await.map_err(|error| match error
                            .downcast_ref::<LengthLimitError>(
                        ) {
                            Some(_) => FetchError::TooLong { url: url.clone() },
                            None => failed(error),
                        })?;
                    return Ok(FetchedSet { body: body.to_bytes(), headers: head.headers, url });
                }
                StatusCode::MOVED_PERMANENTLY
                | StatusCode::FOUND
                | StatusCode::SEE_OTHER
                | StatusCode::TEMPORARY_REDIRECT
                | StatusCode::PERMANENT_REDIRECT => {
                    let location = head.headers.get(header::LOCATION).and_then(|value| value.to_str().ok());
                    let Some(next) = location.and_then(|location| url.join(location).ok()) else {
                        return Err(FetchError::Redirects { url });
                    };
                    if next.origin() != url.origin() {
                        return Err(FetchError::OtherOrigin { url });
                    }
                    url = next;
                }
                status => return Err(FetchError::Status { url, status }),
            }
        }
        Err(FetchError::Redirects { url })
    }
}

/// An error and its causes, each once: `client error (Connect): tcp connect error: Connection refused`.
fn reasons(error: &(dyn Error + Send + Sync)) -> String {
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
