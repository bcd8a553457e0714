//! The request's side of a reservation.

use std::rc::Rc;

use compact_str::CompactString;
use smallvec::SmallVec;
use tokio::{
    sync::{oneshot, watch},
    task,
};

use super::task::Reservation;
use crate::{
    limit::{
        Check, Decision, GrpcOutcome, Policy, ResponseStatus, Store, Unavailable,
        algorithm::{Detail, Kind},
    },
    proxy::{
        checks::Checks,
        exchange::Exchange,
        outcome::{PolicyOutcome, VariantRef},
        worker::Worker,
    },
};

/// How far a request has got, as its reservation depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proxy) enum RequestStage {
    /// Not a byte of it was sent to the upstream.
    Unsent,
    /// It will not be sent: the proxy has replied itself.
    Refused,
    /// The upstream may be processing it.
    Sent,
    /// The upstream has responded with this status.
    Responded {
        status: ResponseStatus,
        /// Whether the whole response has arrived, not only its head.
        is_complete: bool,
    },
}

/// A request's reservation. Its task releases it when the last clone of this guard is dropped; nothing waits for
/// that.
#[derive(Debug, Clone)]
pub(in crate::proxy) struct ReservationGuard(watch::Sender<RequestStage>);

impl ReservationGuard {
    /// A guard, and the receiver that shows its task how far the request has got: an error once the guard is dropped.
    fn new() -> (Self, watch::Receiver<RequestStage>) {
        let (sender, receiver) = watch::channel(RequestStage::Unsent);
        (Self(sender), receiver)
    }

    /// The request is being sent to the upstream. Returns the previous stage, for [`ReservationGuard::not_sent`].
    pub(in crate::proxy) fn sending(&self) -> RequestStage {
        self.0.send_replace(RequestStage::Sent)
    }

    /// Not a byte was sent by the attempt that began at the stage `before`.
    pub(in crate::proxy) fn not_sent(&self, before: RequestStage) {
        self.0.send_replace(before);
    }

    /// The proxy itself replies: the request costs nothing, unless it was sent to the upstream before. Returns
    /// whether it costs nothing from now on.
    pub(in crate::proxy) fn refused(&self) -> bool {
        self.0.send_if_modified(|stage| {
            let is_unsent = *stage == RequestStage::Unsent;
            if is_unsent {
                *stage = RequestStage::Refused;
            }
            is_unsent
        })
    }

    /// The upstream's response has begun.
    pub(in crate::proxy) fn responded(&self, status: ResponseStatus) {
        self.0.send_replace(RequestStage::Responded { status, is_complete: false });
    }

    /// The trailers of the upstream's response have arrived, with this `grpc-status`. Returns whether it was unknown
    /// before.
    pub(in crate::proxy) fn call_ended(&self, grpc_status: Option<u32>) -> bool {
        self.0.send_if_modified(|stage| match stage {
            RequestStage::Responded { status: ResponseStatus { grpc, .. }, .. }
                if *grpc == GrpcOutcome::Pending =>
            {
                *grpc = GrpcOutcome::Known(grpc_status);
                true
            }
            _ => false,
        })
    }

    /// Whether the cost of the call depends on its trailers, which have not arrived yet.
    pub(in crate::proxy) fn waits_for_trailers(&self) -> bool {
        let stage = &*self.0.borrow();
        matches!(
            stage,
            RequestStage::Responded { status: ResponseStatus { grpc: GrpcOutcome::Pending, .. }, .. }
        )
    }

    /// The upstream's response was read to its end.
    pub(in crate::proxy) fn completed(&self) {
        self.0.send_if_modified(|stage| {
            if let RequestStage::Responded { is_complete, .. } = stage {
                *is_complete = true;
            }
            // The task reacts when the request ends.
            false
        });
    }
}

/// The store's decision, and the request's reservation.
type Reserved = (Result<Decision, Unavailable>, Option<ReservationGuard>);

/// Asks the store about checks whose units may have to be refunded in part.
///
/// A task asks rather than the request: it continues if the client goes away meanwhile, and knows the units taken.
pub(in crate::proxy) async fn reserve<S: Store + 'static>(
    worker: &Rc<Worker<S>>,
    checks: &Checks<'_>,
) -> Reserved {
    let checks = checks.iter().map(OwnedCheck::new).collect();
    let (sender, reserved) = oneshot::channel();
    task::spawn_local(hold(Rc::clone(worker), checks, sender));
    reserved.await.unwrap_or_else(|_| (Err(Unavailable::Abandoned("the decision was abandoned")), None))
}

async fn hold<S: Store + 'static>(
    worker: Rc<Worker<S>>,
    checks: SmallVec<[OwnedCheck; 2]>,
    reserved: oneshot::Sender<Reserved>,
) {
    let _pending = worker.reservations.begin();
    let checks: SmallVec<[Check<'_>; 2]> =
        checks.into_iter().filter_map(|check| check.resolve(&worker.rules.policies)).collect();
    let decided = worker.store.decide(&checks).await;
    let reservation = Reservation::new(&worker, &checks, &decided);
    let (guard, stage) = ReservationGuard::new();
    // Without a guard, everything that may have been taken is released at once: if the request was not admitted, or
    // has gone away meanwhile.
    let is_admitted = decided.as_ref().is_ok_and(|decision| decision.admitted);
    let guard = (is_admitted && !reservation.is_empty()).then_some(guard);
    drop(reserved.send((decided, guard)));
    reservation.run(stage).await;
}

/// Settles a request that the upstream has responded to with `status`: units that the response does not cost are
/// refunded, in `outcomes` as well.
pub(in crate::proxy) async fn settle(
    policies: &[Policy],
    exchange: &Exchange,
    outcomes: &mut [PolicyOutcome],
    status: impl FnOnce() -> ResponseStatus,
) {
    let Some(reservation) = exchange.reservation() else { return };
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
    exchange: &Exchange,
    outcomes: &mut [PolicyOutcome],
) {
    if !exchange.reservation().is_some_and(ReservationGuard::refused) {
        return;
    }
    for outcome in outcomes {
        let policy = policies.get(outcome.variant.policy);
        // A concurrency slot is free only when the request has ended.
        if policy.is_some_and(|policy| policy.count.is_some() && policy.kind != Kind::Concurrency) {
            *outcome = outcome.refunded();
        }
    }
    // As above: the client's next request arrives later.
    task::yield_now().await;
}

/// A check that does not borrow its policy.
struct OwnedCheck {
    variant: VariantRef,
    identifier: CompactString,
    cost: u64,
    detail: Detail,
}

impl OwnedCheck {
    fn new((check, variant): (&Check<'_>, VariantRef)) -> Self {
        let Check { identifier, cost, detail, .. } = check;
        Self { variant, identifier: identifier.clone(), cost: *cost, detail: detail.clone() }
    }

    fn resolve(self, policies: &[Policy]) -> Option<Check<'_>> {
        let Self { variant, identifier, cost, detail } = self;
        Some(Check { policy: variant.resolve(policies)?, identifier, cost, detail })
    }
}
