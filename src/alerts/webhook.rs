//! A webhook: its URL, its keys, and how a message is sent to it.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::Full;
use sha2::{Digest, Sha256};
use tokio::{sync::Semaphore, task::spawn_blocking, time::timeout};

use super::message::signature;
use crate::{
    config::model::{Alert, ClientTls},
    http_client::{self, HttpClient, reasons},
    tls,
};

/// Messages that are on their way to one webhook.
const AT_ONCE: usize = 4;
/// How long a webhook may take to reply (Standard Webhooks: 15 to 30 seconds).
const TIMEOUT: Duration = Duration::from_secs(15);

/// A webhook.
pub(super) struct Webhook {
    /// Tells it from others, and does not tell its URL.
    pub(super) id: String,
    /// Its URL up to the path, which may be a secret: `https://hooks.example.com`.
    pub(super) receiver: String,
    /// The policies that it is told about.
    pub(super) policies: Vec<String>,
    url: String,
    /// Newest first. Empty: messages are not signed.
    keys: Vec<Vec<u8>>,
    tls: ClientTls,
    /// Permits for messages on their way.
    pub(super) room: Arc<Semaphore>,
}

/// A message was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SendFailure {
    pub(super) reason: String,
    /// The webhook is gone for good.
    pub(super) is_final: bool,
    /// How long it wants to be left alone.
    pub(super) retry_after: Option<Duration>,
}

impl Webhook {
    pub(super) fn new(alert: &Alert, policies: Vec<String>) -> Self {
        Self {
            id: id_of(alert),
            receiver: alert.origin(),
            policies,
            url: alert.to.reveal().to_owned(),
            keys: alert.signing_keys().collect(),
            tls: alert.tls.clone(),
            room: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// Shows a part of its ID, as others have the same origin.
    pub(super) fn tell_apart(&mut self) {
        self.receiver = format!("{} ({})", self.receiver, &self.id[..4]);
    }

    /// Whether `alert` tells this webhook.
    pub(super) fn is_of(&self, alert: &Alert) -> bool {
        self.id == id_of(alert)
    }

    /// Sends a message at the time `now`, in seconds since the Unix epoch. Returns the status of the reply.
    ///
    /// # Errors
    /// It was not taken.
    pub(super) async fn send(&self, id: &str, now: i64, body: String) -> Result<StatusCode, SendFailure> {
        timeout(TIMEOUT, self.exchange(id, now, body))
            .await
            .unwrap_or_else(|_| Err(SendFailure::of(format!("no reply within {} s", TIMEOUT.as_secs()))))
    }

    async fn exchange(&self, id: &str, now: i64, body: String) -> Result<StatusCode, SendFailure> {
        // The files may have changed since the last message.
        let files = self.tls.clone();
        let tls = spawn_blocking(move || {
            let certificate = files.certificate.as_ref().map(|files| (&*files.cert, &*files.key));
            tls::client_config(files.ca.as_deref(), certificate)
        });
        let tls = tls.await.map_err(|error| SendFailure::of(error.to_string()))?;
        let tls = tls.map_err(|reason| SendFailure::of(format!("alerts[].tls: {reason}")))?;
        let client: HttpClient<Full<Bytes>> = http_client::client(tls);
        let mut request = Request::post(&self.url)
            .header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .header(header::USER_AGENT, concat!("tollgate/", env!("CARGO_PKG_VERSION")))
            .header("webhook-id", id)
            .header("webhook-timestamp", now);
        if !self.keys.is_empty() {
            request = request.header("webhook-signature", signature(&self.keys, id, now, &body));
        }
        let request =
            request.body(Full::new(Bytes::from(body))).map_err(|error| SendFailure::of(error.to_string()))?;
        let response = client.request(request).await.map_err(|error| SendFailure::of(reasons(&error)))?;
        let status = response.status();
        if status.is_success() {
            return Ok(status);
        }
        let seconds =
            response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        Err(SendFailure {
            reason: format!("it replies {status}"),
            is_final: status == StatusCode::GONE,
            retry_after: seconds.map(Duration::from_secs),
        })
    }
}

impl SendFailure {
    fn of(reason: String) -> Self {
        Self { reason, is_final: false, retry_after: None }
    }
}

fn id_of(alert: &Alert) -> String {
    let hash = Sha256::digest(alert.to.reveal());
    hash[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhook").field("receiver", &self.receiver).finish_non_exhaustive()
    }
}
