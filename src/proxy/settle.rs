//! Giving back. Whatever a request may have to give back is taken by a task of its own, which sees to it that it comes
//! back however the request ends: answered, denied, broken off, or given up while the store was still being asked.

use std::rc::Rc;

use compact_str::CompactString;
use http::StatusCode;
use smallvec::SmallVec;
use tokio::{sync::oneshot, task};

use super::{
    checks::{Checks, Limits},
    exchange::Exchange,
    held::Held,
    quota::Said,
    taken::Taken,
    worker::Worker,
};
use crate::limit::{Check, Decision, Policy, Store, Unavailable, algorithm::Detail};

type Decided = (Result<Decision, Unavailable>, Option<Held>);

/// A check without its policy, which the worker has.
struct Order {
    limits: Limits,
    identifier: CompactString,
    cost: u64,
    detail: Detail,
}

/// Asks the store about checks of which something may have to be refunded. Beside the decision, what the request
/// holds from now on.
///
/// The task asks, and not the request: it goes on if the client goes away meanwhile, and knows what was taken.
pub(super) async fn decide<S: Store + 'static>(worker: &Rc<Worker<S>>, checks: &Checks<'_>) -> Decided {
    let order = |(check, limits): (&Check<'_>, &Limits)| Order {
        limits: *limits,
        identifier: check.identifier.clone(),
        cost: check.cost,
        detail: check.detail.clone(),
    };
    let orders = checks.all.iter().zip(&checks.limits).map(order).collect();
    let (answer, decided) = oneshot::channel();
    task::spawn_local(accompany(Rc::clone(worker), orders, answer));
    decided.await.unwrap_or_else(|_| (Err(Unavailable("the decision was given up".to_owned())), None))
}

/// What the policies say once the upstream has answered with `status`, and what need not be paid is refunded.
pub(super) async fn charge(policies: &[Policy], exchange: &Exchange, said: &mut [Said], status: StatusCode) {
    let Some(held) = exchange.held() else { return };
    held.answered(Some(status));
    let mut is_free = false;
    for said in said {
        if let Some(policy) = policies.get(said.policy).filter(|policy| !policy.counts(status.as_u16())) {
            *said = said.once_answered(policy, status);
            is_free = true;
        }
    }
    if is_free {
        // The store is asked before the client is answered: what it does next comes after.
        task::yield_now().await;
    }
}

async fn accompany<S: Store + 'static>(
    worker: Rc<Worker<S>>,
    orders: SmallVec<[Order; 2]>,
    answer: oneshot::Sender<Decided>,
) {
    let _open = worker.settlements.open();
    let checks: SmallVec<[Check<'_>; 2]> =
        orders.iter().filter_map(|order| order.check(&worker.rules.policies)).collect();
    let decided = worker.store.decide(&checks).await;
    let taken = Taken::of(&worker, &checks, &decided);
    let (held, stage) = Held::new();
    // What may have been taken in vain is given back at once; and all of it, if nobody waits for the answer any more.
    let is_admitted = decided.as_ref().is_ok_and(|decision| decision.admitted);
    let held = (is_admitted && !taken.is_empty()).then_some(held);
    drop(answer.send((decided, held)));
    taken.see_through(stage).await;
}

impl Order {
    fn check<'a>(&self, policies: &'a [Policy]) -> Option<Check<'a>> {
        let (identifier, detail) = (self.identifier.clone(), self.detail.clone());
        Some(Check { policy: self.limits.of(policies)?, identifier, cost: self.cost, detail })
    }
}
