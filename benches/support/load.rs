//! Decisions under way, as a busy proxy has them.

use std::time::{Duration, Instant};

use tokio::{
    runtime::{Builder, LocalOptions},
    task::spawn_local,
};

use super::Redis;

pub(crate) const UNDER_WAY: usize = 32;
const WARM: Duration = Duration::from_millis(500);
pub(crate) const RUN: Duration = Duration::from_secs(2);

/// Keeps as many decisions under way for the time of a run, and says how many were made after the warm-up.
pub(crate) async fn under_way<W: AsyncFn(u64) + 'static>(redis: &Redis, worker: impl Fn(usize) -> W) -> u64 {
    let (begun, end) = (Instant::now() + WARM, Instant::now() + WARM + RUN);
    let tasks: Vec<_> = (0..UNDER_WAY)
        .map(|index| {
            let worker = worker(index);
            spawn_local(async move {
                let (mut number, mut made) = (index as u64, 0);
                while Instant::now() < end {
                    worker(number).await;
                    number += UNDER_WAY as u64;
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

/// Runs `work` on a runtime of its own.
pub(crate) fn local<T>(work: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    runtime.unwrap().block_on(work)
}
