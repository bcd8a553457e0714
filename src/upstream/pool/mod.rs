//! One worker's connections to the hosts of one upstream: idle, checked out for a request, or shared by several.

mod checkout;
mod connection;
mod host_pool;
mod sharing;
mod upgraded;
mod upstream_pool;

pub use connection::UpstreamConnection;
pub use host_pool::HostPool;
pub use upgraded::UpgradedConnection;
pub use upstream_pool::UpstreamPool;
