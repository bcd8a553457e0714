//! The services behind the proxy: which host serves a request, and the connections to it.
//!
//! A [`UpstreamHost`] is one address of an upstream's endpoints. [`SharedUpstream`] has the state that all workers
//! share: the hosts and their health, the number of connections, and the connections of each client address. Each
//! worker has an [`UpstreamPool`] of its own, so that a request never moves to another thread.

mod addresses;
mod affinity;
mod atomic_instant;
mod balance;
mod connect;
mod drains;
mod endpoints_file;
mod error_hint;
mod health;
mod host_state;
mod hosts;
mod http1;
mod http2;
mod incoming;
mod io;
mod names;
mod outgoing;
mod pool;
mod queue;
mod rendezvous;
mod resolver;
mod retry_budget;
mod server_verifier;
mod shared;
mod tls;
mod upkeep;

pub use addresses::{ClientWait, Eviction, UpstreamClient};
pub use affinity::{Affinity, AffinityHash, HostId};
pub use balance::{HostChoice, KeyOwner};
pub use connect::ConnectError;
pub use drains::{
    DrainTable, DrainUpdate, EndpointDrain, EndpointId, MAX_DRAINS, PendingDrain, TooManyDrains,
};
pub use endpoints_file::EndpointsFileError;
pub use health::monitor as monitor_health;
pub use host_state::{ChangedBy, HostChange, HostState, Standing};
pub use hosts::UpstreamHost;
pub use http1::ResponseFault;
pub use http2::StreamNeeds;
pub use incoming::{ExchangeError, IncomingBody, OnInformational, SendError};
pub use outgoing::OutgoingBody;
pub use pool::{HostPool, UpgradedConnection, UpstreamConnection, UpstreamPool};
pub use shared::SharedUpstream;
pub use tls::{UpstreamTlsContext, UpstreamTlsError};
pub use upkeep::keep_up;
