//! Concurrent decisions, as in a busy proxy.

use std::time::{Duration, Instant};

use tokio::{
    runtime::{Builder, LocalOptions},
    task::spawn_local,
};

use super::Redis;

pub(crate) const CONCURRENCY: usize = 32;
const WARM_UP: Duration = Duration::from_millis(500);
pub(crate) const RUN_TIME: Duration = Duration::from_secs(2);

/// Keeps [`CONCURRENCY`] decisions in flight during a run. Returns how many were made after the warm-up.
pub(crate) async fn run_concurrently<W: AsyncFn(u64) + 'static>(
    redis: &Redis,
    worker: impl Fn(usize) -> W,
) -> u64 {
    let (begun, end) = (Instant::now() + WARM_UP, Instant::now() + WARM_UP + RUN_TIME);
    let tasks: Vec<_> = (0..CONCURRENCY)
        .map(|index| {
            let worker = worker(index);
            spawn_local(async move {
                let (mut number, mut made) = (index as u64, 0);
                while Instant::now() < end {
                    worker(number).await;
                    number += CONCURRENCY as u64;
                    made += u64::from(Instant::now() >= begun);
                }
                made
            })
        })
        .collect();
    tokio::time::sleep_until(begun.into()).await;
    redis.mark();
    let mut made = 0;
    for task in tasks {
        made += task.await.unwrap();
    }
    made
}

/// Runs `work` on a local runtime of its own.
pub(crate) fn block_on_local<T>(work: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    runtime.unwrap().block_on(work)
}
