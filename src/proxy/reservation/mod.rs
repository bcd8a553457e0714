//! What a request reserves of its limits and gives back: leases, which it holds until the upstream has done with it, and
//! units that its answer may turn out not to cost.
//!
//! A request that was sent to the upstream is charged, unless the upstream's answer says otherwise. One of which not a byte
//! was sent costs nothing.
//!
//! Whatever may have to be given back is reserved by a task of its own ([`reserve`]). The task gives it back however the
//! request ends: answered, denied, aborted, or given up while the store was still being asked. The request has a
//! [`ReservationGuard`], which tells the task how far it has come, and that it has ended when it is dropped. A worker
//! waits for its tasks when its last request has ended ([`PendingReservations`]).

mod guard;
mod task;
mod worker;

pub(super) use guard::{ReservationGuard, reserve, settle, settle_refused};
pub use worker::{LeaseTokens, PendingReservations};
