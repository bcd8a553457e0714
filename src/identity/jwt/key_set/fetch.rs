//! Fetches a key set over HTTP.

use std::error::Error;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use serde::Deserialize;
use url::Url;

use super::KeySetSource;
use crate::{
    http_client::{self, HttpClient, reasons},
    jwt_keys::{UrlError, discovery_url, provider_url},
    tls,
};

/// The most bytes of a response.
const MAX_BYTES: usize = 1 << 20;
/// The most redirects of a request.
const MAX_REDIRECTS: usize = 3;

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
pub(super) struct KeySetClient(HttpClient<Empty<Bytes>>);

impl KeySetClient {
    /// # Errors
    /// There is no TLS.
    pub(super) fn new() -> Result<Self, String> {
        let tls = tls::client_config(None, None)?;
        Ok(Self(http_client::client(tls)))
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
