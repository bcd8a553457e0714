//! Settles the units of a request that has a response.

use tokio::task;

use super::guard::ReservationGuard;
use crate::{
    limit::{Policy, ResponseStatus, algorithm::Kind},
    proxy::outcome::PolicyOutcome,
};

/// Settles a request that the upstream has responded to with `status`: units that the response does not cost are
/// refunded, in `outcomes` as well.
pub(in crate::proxy) async fn settle(
    policies: &[Policy],
    reservation: Option<&ReservationGuard>,
    outcomes: &mut [PolicyOutcome],
    status: impl FnOnce() -> ResponseStatus,
) {
    let Some(reservation) = reservation else { return };
    let status = status();
    reservation.responded(status);
    let mut is_refunded = false;
    for outcome in outcomes {
        let policy = policies.get(outcome.variant.policy);
        if let Some(policy) = policy.filter(|policy| policy.counts(status) == Some(false)) {
            *outcome = outcome.after_response(policy, status);
            is_refunded = true;
        }
    }
    if is_refunded {
        // Let the task ask the store before the client has its response: the client's next request arrives later.
        task::yield_now().await;
    }
}

/// Settles a request that the proxy itself replies to: if nothing of it was sent to the upstream, units that only
/// some responses cost are refunded, in `outcomes` as well.
pub(in crate::proxy) async fn settle_refused(
    policies: &[Policy],
    reservation: Option<&ReservationGuard>,
    outcomes: &mut [PolicyOutcome],
) {
    if !reservation.is_some_and(ReservationGuard::refused) {
        return;
    }
    for outcome in outcomes {
        let policy = policies.get(outcome.variant.policy);
        // A concurrency slot is free only when the request has ended.
        if policy.is_some_and(|policy| policy.may_refund() && policy.kind != Kind::Concurrency) {
            *outcome = outcome.refunded();
        }
    }
    // As above: the client's next request arrives later.
    task::yield_now().await;
}
