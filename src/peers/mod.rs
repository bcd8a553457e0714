//! What instances that share a Redis tell each other: that they live, whose limits were taken back, whom they limit,
//! whom they ban, which endpoints operators drain, and who changed what.
//!
//! One [`Monitor`] a process keeps in touch with the server, so that no request has to.

mod audit_log;
mod bans;
mod drains;
mod heartbeat;
mod instance_count;
mod introduction;
mod lost_nodes;
mod monitor;
mod probe;
pub mod records;
mod rounds;
mod server_status;
mod subscription;
mod time;

pub use monitor::{Monitor, MonitorConfig};

use bb8_redis::redis::Script;

/// All scripts of this room, to be loaded together.
fn scripts() -> Vec<&'static Script> {
    let mut scripts = vec![&*heartbeat::HEARTBEAT, &*drains::WRITE, &*audit_log::APPEND];
    scripts.extend(bans::scripts());
    scripts.extend(records::scripts());
    scripts
}
