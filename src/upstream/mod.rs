//! The services behind the proxy: which host serves a request, and the connections to it.
//!
//! A [`Host`] is one address of an upstream's endpoints. What all workers share of an upstream (its hosts and how they stand, how
//! many connections it has, what each client address holds) is in [`SharedUpstream`]; each worker has an [`UpstreamPool`] of its
//! own, so that a request never changes threads.

mod addresses;
mod affinity;
mod balance;
mod connect;
mod connection;
mod drains;
mod endpoints_file;
mod health;
mod host_state;
mod hosts;
mod http2;
mod incoming;
mod io;
mod names;
mod pool;
mod queue;
mod rendezvous;
mod resolver;
mod retry_budget;
mod server_verifier;
mod shared;
mod tls;
mod upgraded;
mod upkeep;

use std::error::Error;

use bytes::Bytes;

pub use addresses::{ClientWait, Eviction, UpstreamClient};
pub use affinity::{Affinity, HostChoice, HostId, KeyHash, KeyOwner};
pub use connect::ConnectError;
pub use connection::{Connection, SendError};
pub use drains::{Drain, DrainTable, DrainUpdate, EndpointId, MAX_DRAINS, PendingDrain, TooManyDrains};
pub use endpoints_file::EndpointsFileError;
pub use health::monitor as monitor_health;
pub use host_state::{ChangedBy, HostChange, HostState, Standing};
pub use hosts::Host;
pub use http2::StreamNeeds;
pub use incoming::{ExchangeError, IncomingBody, OnInformational};
pub use pool::{HostPool, UpstreamPool};
pub use shared::SharedUpstream;
pub use tls::{UpstreamTlsContext, UpstreamTlsError};
pub use upgraded::UpgradedConnection;
pub use upkeep::keep_up;

/// An error with its cause, which hyper leaves to the caller.
pub fn with_cause(error: &(dyn Error + 'static)) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// A body that can be sent to an upstream.
pub trait RequestBody:
    http_body::Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin + 'static
{
    /// A copy to send again, if all of it is at hand.
    fn repeatable(&self) -> Option<Self>
    where
        Self: Sized;

    /// All of it, if it is at hand.
    ///
    /// # Errors
    /// Itself: it is still to come.
    fn into_whole(self) -> Result<Bytes, Self>
    where
        Self: Sized;
}
