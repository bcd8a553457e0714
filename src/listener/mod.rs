//! Sockets and the connections of clients on them, up to where a request begins.

mod connection;
mod current;
mod inherited;
mod io;
mod linger;
mod pulse;
mod run;
mod socket;
mod visitor;

pub use current::Renewal;
pub use inherited::Inherited;
pub use pulse::{Pulse, Pulses};
pub use run::{Phase, Slots, run};
pub use socket::{BindError, Bound};
