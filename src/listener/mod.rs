//! Sockets and the connections of clients on them, up to where a request begins.

mod connection;
mod io;
mod linger;
mod run;
mod socket;

pub use run::{Phase, Slots, run};
pub use socket::{BindError, Bound, bind};
