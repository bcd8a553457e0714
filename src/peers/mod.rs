//! The exchange between instances that share a Redis: heartbeats, resets of limits, records of limited clients, bans,
//! drains of endpoints, and the audit log.
//!
//! One [`Monitor`] per process talks to the server, so that requests need not.

mod api_keys;
mod audit_log;
mod bans;
mod drains;
mod heartbeat;
mod incidents;
mod instance_count;
mod introduction;
mod lost_nodes;
mod monitor;
mod monitor_config;
mod probe;
pub mod records;
mod rounds;
mod server_status;
mod subscription;
mod time;

pub use monitor::Monitor;
pub use monitor_config::MonitorConfig;
