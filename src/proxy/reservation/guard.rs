//! The request's side of a reservation.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    rc::Rc,
    sync::Arc,
    task::{Poll, Waker},
};

use crate::{
    config::model::{Measure, MissingCost, ResponseCost},
    limit::{Check, GrpcOutcome, ResponseStatus},
    proxy::worker_telemetry::WorkerTelemetry,
    telemetry::access_log::ComposedLine,
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

/// Units of a policy that are reserved until the response tells the cost.
#[derive(Debug)]
pub(in crate::proxy) struct ReservedCost {
    pub(in crate::proxy) settings: Arc<ResponseCost>,
    /// The units that were taken before the response.
    reserved: u64,
    /// The units taken so far: bytes that pass take more of them.
    pub(in crate::proxy) units: Cell<u64>,
    /// The most that the response is charged beyond them: the largest limit. The store charges each tier one limit of its
    /// own at most: a faulty number can't lock a client out for long.
    pub(in crate::proxy) max_excess: u64,
    charge: Cell<Option<Charge>>,
}

/// What a response costs after all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proxy) struct Charge {
    pub(in crate::proxy) units: u64,
    /// Why the response did not say it.
    pub(in crate::proxy) missing: Option<MissingReason>,
}

/// Why a response does not tell its cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proxy) enum MissingReason {
    /// It has no such number, or there is no response.
    NoNumber,
    FaultyNumber,
    ContentCoding,
}

impl Charge {
    /// Of a request that the upstream has not got.
    pub(in crate::proxy) const NONE: Self = Self::reported(0);

    /// What the response says, or what has passed of it.
    pub(in crate::proxy) const fn reported(units: u64) -> Self {
        Self { units, missing: None }
    }
}

/// The most that a response costs which no limit counts.
const UNLIMITED: u64 = 1 << 50;

impl ReservedCost {
    /// The units that `check` has taken. `is_counted`: by a limit.
    pub(super) fn new(check: &Check<'_>, settings: &Arc<ResponseCost>, is_counted: bool) -> Self {
        let largest = check.policy.tiers.iter().map(|tier| tier.limit).max().unwrap_or_default();
        Self {
            settings: Arc::clone(settings),
            reserved: check.cost,
            units: Cell::new(check.cost),
            max_excess: if is_counted { largest } else { UNLIMITED },
            charge: Cell::new(None),
        }
    }

    /// The charge for a response that does not say it.
    pub(in crate::proxy) fn missing(&self, reason: MissingReason) -> Charge {
        let units = match self.settings.missing {
            MissingCost::Reserved => self.units.get(),
            MissingCost::Units(units) => units,
        };
        Charge { units, missing: Some(reason) }
    }

    /// What it costs after all, once that is known.
    pub(in crate::proxy) fn charge(&self) -> Option<Charge> {
        self.charge.get()
    }

    /// Notes what it costs after all.
    pub(in crate::proxy) fn set_charge(&self, charge: Charge) {
        self.charge.set(Some(charge));
    }
}

/// A request's reservation. Its task releases it when the last clone of this guard is dropped; nothing waits for
/// that.
#[derive(Debug)]
pub(in crate::proxy) struct ReservationGuard(Rc<ReservationStage>);

/// The progress of the request, for the reservation's task.
#[derive(Debug)]
pub(super) struct RequestProgress(Rc<ReservationStage>);

#[derive(Debug)]
struct ReservationStage {
    stage: Cell<RequestStage>,
    /// Whether the task has not seen this stage.
    is_new: Cell<bool>,
    /// The clones of the guard. Without one, the request has ended.
    guards: Cell<usize>,
    /// Whether to wake the task at each stage, and not only at the end.
    wakes_at_stages: Cell<bool>,
    task: RefCell<Option<Waker>>,
    /// The costs that the response tells.
    costs: Box<[ReservedCost]>,
    /// Bytes of the request's body, as far as they are known.
    request_bytes: Cell<u64>,
    /// The most units of output that the request asks for.
    max_output: Cell<u64>,
    /// The request's line of the access log, which waits for its cost.
    line: RefCell<Option<(ComposedLine, Rc<WorkerTelemetry>)>>,
}

impl ReservationStage {
    /// Writes the line that waits for the cost.
    fn write_line(&self) {
        if let Some((line, telemetry)) = self.line.take()
            && let Some(cost) = self.costs.first()
        {
            let charged = cost.charge().map_or(cost.units.get(), |charge| charge.units);
            telemetry.access_log.write_composed(line, (cost.reserved, charged));
        }
    }

    fn set(&self, stage: RequestStage) {
        self.stage.set(stage);
        self.is_new.set(true);
        if self.wakes_at_stages.get() {
            self.wake();
        }
    }

    fn wake(&self) {
        let task = self.task.take();
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl Drop for ReservationStage {
    fn drop(&mut self) {
        self.write_line();
    }
}

impl RequestProgress {
    /// The costs are final.
    pub(super) fn settled(&self) {
        self.0.write_line();
    }

    /// The costs that the response tells.
    pub(super) fn costs(&self) -> &[ReservedCost] {
        &self.0.costs
    }

    /// The stage that the request has reached.
    pub(super) fn stage(&self) -> RequestStage {
        self.0.stage.get()
    }

    /// Waits for a stage that was not returned yet, if `wants_stages`. Returns `None` once the request has ended.
    pub(super) async fn next_stage(&self, wants_stages: bool) -> Option<RequestStage> {
        let progress = &*self.0;
        poll_fn(|cx| {
            if wants_stages && progress.is_new.take() {
                return Poll::Ready(Some(progress.stage.get()));
            }
            if progress.guards.get() == 0 {
                return Poll::Ready(None);
            }
            progress.wakes_at_stages.set(wants_stages);
            progress.task.replace(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await
    }
}

impl Clone for ReservationGuard {
    fn clone(&self) -> Self {
        self.0.guards.set(self.0.guards.get() + 1);
        Self(Rc::clone(&self.0))
    }
}

impl Drop for ReservationGuard {
    fn drop(&mut self) {
        self.0.guards.set(self.0.guards.get() - 1);
        if self.0.guards.get() == 0 {
            self.0.wake();
        }
    }
}

impl ReservationGuard {
    /// A guard, and the progress of its request. `costs`: the ones that the response tells.
    pub(super) fn new(costs: Box<[ReservedCost]>) -> (Self, RequestProgress) {
        let progress = Rc::new(ReservationStage {
            stage: Cell::new(RequestStage::Unsent),
            is_new: Cell::new(false),
            guards: Cell::new(1),
            wakes_at_stages: Cell::new(false),
            task: RefCell::new(None),
            costs,
            request_bytes: Cell::new(0),
            max_output: Cell::new(u64::MAX),
            line: RefCell::new(None),
        });
        (Self(Rc::clone(&progress)), RequestProgress(progress))
    }

    /// The request is being sent to the upstream. Returns the previous stage, for [`ReservationGuard::not_sent`].
    pub(in crate::proxy) fn sending(&self) -> RequestStage {
        // No cost depends on it, so the task need not wake.
        self.0.stage.replace(RequestStage::Sent)
    }

    /// Not a byte was sent by the attempt that began at the stage `before`.
    pub(in crate::proxy) fn not_sent(&self, before: RequestStage) {
        self.0.stage.set(before);
    }

    /// The proxy itself replies: the request costs nothing, unless it was sent to the upstream before. Returns
    /// whether it costs nothing from now on.
    pub(in crate::proxy) fn refused(&self) -> bool {
        let is_unsent = self.0.stage.get() == RequestStage::Unsent;
        if is_unsent {
            self.0.costs.iter().for_each(|cost| cost.set_charge(Charge::NONE));
            self.0.set(RequestStage::Refused);
        }
        is_unsent
    }

    /// The upstream's response has begun.
    pub(in crate::proxy) fn responded(&self, status: ResponseStatus) {
        self.0.set(RequestStage::Responded { status, is_complete: false });
    }

    /// The trailers of the upstream's response have arrived, with this `grpc-status`. Returns whether it was unknown
    /// before.
    pub(in crate::proxy) fn call_ended(&self, grpc_status: Option<u32>) -> bool {
        match self.0.stage.get() {
            RequestStage::Responded {
                status: status @ ResponseStatus { grpc: GrpcOutcome::Pending, .. },
                is_complete,
            } => {
                let status = ResponseStatus { grpc: GrpcOutcome::Known(grpc_status), ..status };
                self.0.set(RequestStage::Responded { status, is_complete });
                true
            }
            _ => false,
        }
    }

    /// Whether the cost of the call depends on its trailers, which have not arrived yet.
    pub(in crate::proxy) fn waits_for_trailers(&self) -> bool {
        matches!(
            self.0.stage.get(),
            RequestStage::Responded { status: ResponseStatus { grpc: GrpcOutcome::Pending, .. }, .. }
        )
    }

    /// The upstream's response was read to its end.
    pub(in crate::proxy) fn completed(&self) {
        if let RequestStage::Responded { status, .. } = self.0.stage.get() {
            let stage = RequestStage::Responded { status, is_complete: true };
            match self.0.costs.is_empty() {
                // The task reacts when the request ends.
                true => self.0.stage.set(stage),
                // It settles before the client has the end of the response.
                false => self.0.set(stage),
            }
        }
    }

    /// The costs that the response tells.
    pub(in crate::proxy) fn costs(&self) -> &[ReservedCost] {
        &self.0.costs
    }

    /// The units that were reserved for the first of these costs, and what it was after all, once that is known.
    pub(in crate::proxy) fn first_cost(&self) -> Option<(u64, Option<u64>)> {
        let cost = self.0.costs.first()?;
        Some((cost.reserved, cost.charge().map(|charge| charge.units)))
    }

    /// Sets the request's line of the access log, which is written once its cost is known.
    pub(in crate::proxy) fn set_line(&self, line: ComposedLine, telemetry: Rc<WorkerTelemetry>) {
        self.0.line.replace(Some((line, telemetry)));
    }

    /// Why the response does not tell a cost that it should, if its upstream is to blame.
    pub(in crate::proxy) fn faulty_cost(&self) -> Option<MissingReason> {
        let reasons = self.0.costs.iter().filter_map(|cost| cost.charge()?.missing);
        reasons.into_iter().find(|reason| *reason != MissingReason::NoNumber)
    }

    /// A tunnel has ended, which has sent these bytes to the client. It tells no other cost.
    pub(in crate::proxy) fn tunnel_closed(&self, sent: u64) {
        for cost in &self.0.costs {
            cost.set_charge(match cost.settings.measure {
                Measure::Bytes => Charge::reported(sent),
                Measure::Sum(_) => cost.missing(MissingReason::NoNumber),
            });
        }
        self.completed();
    }

    /// The client has gone, and nobody waits for the response any longer: it costs what the request asks for, or else the
    /// most that one reserves.
    pub(in crate::proxy) fn left_unknown(&self) {
        for cost in self.0.costs.iter().filter(|cost| cost.charge().is_none()) {
            if let Measure::Sum(_) = cost.settings.measure {
                let asked = Some(self.max_output()).filter(|asked| *asked != u64::MAX);
                let units = asked.unwrap_or(cost.settings.reserve.of_unknown()).max(cost.reserved);
                let units = units.min(cost.reserved.saturating_add(cost.max_excess));
                cost.set_charge(Charge { units, missing: Some(MissingReason::NoNumber) });
            }
        }
    }

    /// Bytes have passed that take more units of one of the costs.
    pub(in crate::proxy) fn costs_more(&self) {
        self.0.set(self.0.stage.get());
    }

    /// Bytes of the request's body, as far as they are known.
    pub(in crate::proxy) fn request_bytes(&self) -> u64 {
        self.0.request_bytes.get()
    }

    /// The most units of output that the request asks for.
    pub(in crate::proxy) fn max_output(&self) -> u64 {
        self.0.max_output.get()
    }

    /// Notes the bytes of the request's body, and the most units of output that it asks for, if it says so.
    pub(in crate::proxy) fn set_request(&self, bytes: u64, max_output: Option<u64>) {
        self.0.request_bytes.set(bytes);
        self.0.max_output.set(max_output.unwrap_or(u64::MAX));
    }
}
