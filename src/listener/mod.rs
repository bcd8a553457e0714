//! Sockets and the connections of clients on them, up to where a request begins.

mod connection;
mod connections;
mod current_worker;
mod inherited;
mod io;
mod liveness;
mod run;
mod socket;

pub use connections::ConnectionLimit;
pub use current_worker::WorkerUpdate;
pub use inherited::InheritedSockets;
pub use liveness::{LivenessMonitor, WorkerLiveness};
pub use run::{Lifecycle, run};
pub use socket::{BindError, BoundListener};
