//! The task that sends requests to the admin port, so that the screen and the keys never wait for a response.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use tokio::sync::mpsc::{Receiver, Sender};

use super::{
    super::client::{self, AdminConnection, AdminError, Options},
    snapshot::Snapshot,
};
use crate::{
    abuse::Sort,
    admin::dto::{Banned, Evidence, NewBan, Unblocked},
};

/// Maximum time for a response: an operator should soon see that the numbers are old.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The duration of a ban by pressing a key.
const BAN_DURATION: &str = "1h";

/// A request to the admin port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AdminRequest {
    /// A new snapshot, and the evidence of the open address.
    Refresh {
        sort: Sort,
        address: Option<String>,
    },
    Change(AddressChange),
}

/// A change that an operator can make to an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AddressChange {
    Unblock(String),
    Ban(String),
}

/// An address and its evidence, or the error.
pub(super) type AddressEvidence = (String, Result<Evidence, String>);

/// The outcome of a request.
#[derive(Debug)]
pub(super) enum AdminResponse {
    Refreshed {
        snapshot: Box<Snapshot>,
        evidence: Option<Box<AddressEvidence>>,
    },
    /// A description of the change.
    Changed(String),
    RefreshFailed(AdminError),
    ChangeFailed(AdminError),
}

/// Serves one request at a time, until either channel is closed.
pub(super) async fn serve(
    options: Options,
    mut requests: Receiver<AdminRequest>,
    responses: Sender<AdminResponse>,
) {
    let mut client = AdminClient { options, connection: None };
    while let Some(request) = requests.recv().await {
        let result = client::with_timeout(&client.options.clone(), TIMEOUT, client.perform(&request)).await;
        let response = result.unwrap_or_else(|failure| match request {
            AdminRequest::Refresh { .. } => AdminResponse::RefreshFailed(failure),
            AdminRequest::Change(_) => AdminResponse::ChangeFailed(failure),
        });
        if responses.send(response).await.is_err() {
            return;
        }
    }
}

struct AdminClient {
    options: Options,
    /// Kept until a request fails.
    connection: Option<AdminConnection>,
}

impl AdminClient {
    async fn perform(&mut self, request: &AdminRequest) -> Result<AdminResponse, AdminError> {
        if let Some(mut kept) = self.connection.take() {
            match perform(&mut kept, request).await {
                // Closed while idle. A retry is safe, since all requests are idempotent.
                Err(AdminError::Broken { .. }) => {}
                result => {
                    self.connection = result.is_ok().then_some(kept);
                    return result;
                }
            }
        }
        let mut fresh = AdminConnection::open(&self.options).await?;
        let response = perform(&mut fresh, request).await?;
        self.connection = Some(fresh);
        Ok(response)
    }
}

async fn perform(
    connection: &mut AdminConnection,
    request: &AdminRequest,
) -> Result<AdminResponse, AdminError> {
    match request {
        AdminRequest::Refresh { sort, address } => {
            let snapshot = Box::new(Snapshot::fetch(connection, *sort).await?);
            let evidence = match address {
                Some(address) => Some(Box::new((address.clone(), evidence(connection, address).await?))),
                None => None,
            };
            Ok(AdminResponse::Refreshed { snapshot, evidence })
        }
        AdminRequest::Change(AddressChange::Unblock(address)) => unblock(connection, address).await,
        AdminRequest::Change(AddressChange::Ban(address)) => ban(connection, address).await,
    }
}

/// The evidence of an address, or the error.
async fn evidence(
    connection: &mut AdminConnection,
    address: &str,
) -> Result<Result<Evidence, String>, AdminError> {
    match connection.request(Method::GET, &blocked_path(address), Bytes::new()).await {
        Ok(evidence) => Ok(Ok(evidence)),
        Err(AdminError::Refused(reason) | AdminError::Unavailable(reason)) => Ok(Err(reason)),
        Err(failure) => Err(failure),
    }
}

async fn unblock(connection: &mut AdminConnection, address: &str) -> Result<AdminResponse, AdminError> {
    let unblocked: Unblocked =
        connection.request(Method::DELETE, &blocked_path(address), Bytes::new()).await?;
    let (limits, bans) = (unblocked.cleared.len(), unblocked.bans_lifted);
    let address = &unblocked.address;
    let mut text = match unblocked.still_banned.first() {
        None => format!("{address} is unblocked: {limits} limits cleared, {bans} bans lifted"),
        Some(ban) => format!(
            "{address} is still banned, because {} is banned: {limits} limits cleared, {bans} bans lifted",
            ban.key
        ),
    };
    text += place(unblocked.shared);
    if !unblocked.other_keys.is_empty() {
        text += &format!("; still limited: {}", unblocked.other_keys.join(", "));
    }
    Ok(AdminResponse::Changed(text))
}

async fn ban(connection: &mut AdminConnection, address: &str) -> Result<AdminResponse, AdminError> {
    let ban = NewBan {
        key: format!("ip:{address}"),
        lasts: BAN_DURATION.to_owned(),
        reason: "manually, in tollgate top".to_owned(),
        force: false,
    };
    let body = serde_json::to_vec(&ban).map_err(std::io::Error::from)?;
    let Banned { ban, shared } = connection.request(Method::POST, "/v1/bans", body.into()).await?;
    Ok(AdminResponse::Changed(format!("{} is banned for {BAN_DURATION}{}", ban.key, place(shared))))
}

/// Where a change of bans applies, if not everywhere.
fn place(shared: bool) -> &'static str {
    if shared { "" } else { " at this instance, and at the others once Redis answers" }
}

fn blocked_path(address: &str) -> String {
    format!("/v1/blocked/{}", client::percent_encoded(address))
}
