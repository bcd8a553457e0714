//! Reservations of a request: leases, which it holds until the upstream is finished with it, and units that its
//! response may turn out not to cost, or to cost more of.
//!
//! A request that was sent to the upstream is charged, unless the upstream's response says otherwise. One of which
//! not a byte was sent costs nothing.
//!
//! A future of its own makes each reservation ([`reserve`]) and releases it however the request ends: with a response,
//! denied, aborted, or given up while the store was still being asked. From its first wait on, it is a task. The request has a [`ReservationGuard`], which
//! shows the task how far the request has got, and, when dropped, that it has ended. A worker waits for its tasks
//! when its last request has ended ([`PendingReservations`]).

mod costs;
mod guard;
mod settlement;
mod task;
mod worker;

pub(super) use guard::{Charge, MissingReason, RequestStage, ReservationGuard, ReservedCost};
pub(super) use settlement::{settle, settle_refused};
pub(super) use task::reserve;
pub use worker::{LeaseTokens, PendingReservations};
