//! Periodic tasks: sample the counters and, while there are subscribers to events, read the archive of other instances
//! and publish ticks.

use std::{sync::Arc, time::Duration};

use tokio::time::{self, Instant, MissedTickBehavior};

use super::{client_state, context::HandlerContext, dto::Tick, status};
use crate::telemetry::{metrics::History, time::rfc3339};

/// Interval of reading the archive.
const REFRESH: Duration = Duration::from_secs(1);
/// Interval of [`Tick`]s.
const TICK: Duration = Duration::from_secs(2);

/// Samples the counters for the charts.
pub(super) async fn sample(context: Arc<HandlerContext>) {
    let mut every = every(History::EVERY);
    loop {
        every.tick().await;
        let now = context.state.clock.now();
        context.history.lock().record(&context.state.metrics, now);
    }
}

/// Reads the archive while there are subscribers, so that the registry publishes clients that other instances limit.
pub(super) async fn refresh(context: Arc<HandlerContext>) {
    let mut every = every(REFRESH);
    loop {
        context.state.events.subscribed().await;
        every.tick().await;
        context.peers.refresh().await;
    }
}

/// Publishes a [`Tick`] while there are subscribers.
pub(super) async fn tick(context: Arc<HandlerContext>) {
    loop {
        context.state.events.subscribed().await;
        let (mut at, mut before) = (Instant::now(), context.state.metrics.completed());
        loop {
            time::sleep(TICK).await;
            if !context.state.events.has_subscribers() {
                break;
            }
            let answered = context.state.metrics.completed();
            let elapsed = at.elapsed().as_secs_f64().max(0.001);
            at = Instant::now();
            let rate = |now: u64, before: u64| rounded(now.saturating_sub(before), elapsed);
            let rates = (rate(answered.0, before.0), rate(answered.1, before.1));
            before = answered;
            context.ticks.send_replace(Some(Arc::new(tick_dto(&context, rates).await)));
        }
        context.ticks.send_if_modified(|tick| tick.take().is_some());
    }
}

async fn tick_dto(context: &HandlerContext, (requests, denied): (f64, f64)) -> Tick {
    let status = status::status_dto(&context.state);
    let now = context.state.clock.now();
    let blocked = client_state::count_active(context).await;
    Tick {
        time: rfc3339(now),
        requests_per_second: requests,
        denied_per_second: denied,
        blocked,
        ready: status.ready,
        draining: status.draining,
        store: status.store,
    }
}

/// To a tenth.
#[expect(clippy::cast_precision_loss, reason = "a rate")]
fn rounded(count: u64, seconds: f64) -> f64 {
    (count as f64 / seconds * 10.0).round() / 10.0
}

fn every(period: Duration) -> time::Interval {
    let mut every = time::interval(period);
    every.set_missed_tick_behavior(MissedTickBehavior::Skip);
    every
}
