//! The body of a refused request.

use std::{
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use http::{HeaderMap, Version};
use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout;

use super::{exchange::Exchange, expect_continue, min_rate::RateBudget, worker::Worker};
use crate::{
    config::model::ClientLimits,
    telemetry::metrics::{CutOff, CutOffBody, CutOffReason},
};

/// Bytes of a refused request's body that are read to keep its connection.
const MAX_DISCARDED: u64 = 64 << 10;
/// How long the body of a refused HTTP/2 request is read.
const DISCARD_STREAM_FOR: Duration = Duration::from_secs(1);

/// Reads and drops the body of a refused request, so that its connection can serve the next one: hyper closes a
/// connection whose body is dropped unread.
///
/// Over HTTP/2, a dropped body resets only its own stream. But some clients lose a response that is followed by a
/// reset at once (seen with curl 7.88), so the body is read for a while. Unread, its bytes would occupy the window
/// that all streams of the connection share.
///
/// False if the connection has to be closed: over HTTP/1, if the body is long, or the client waits for a 100 before
/// it sends it.
pub(super) fn discard<S>(
    worker: &Worker<S>,
    exchange: &Exchange,
    version: Version,
    headers: &HeaderMap,
    mut body: Incoming,
) -> bool {
    if body.is_end_stream() {
        return true;
    }
    if version == Version::HTTP_2 {
        let client = Rc::clone(exchange.connection());
        tokio::task::spawn_local(async move {
            let read = async {
                while let Some(Ok(frame)) = body.frame().await {
                    client.meter().add_received(frame.data_ref().map_or(0, |data| data.len() as u64));
                }
            };
            let _late = timeout(DISCARD_STREAM_FOR, read).await;
        });
        return true;
    }
    if body.size_hint().lower() > MAX_DISCARDED || expect_continue::wants_continue(version, headers) {
        return false;
    }
    let ClientLimits { idle_timeout, min_rate, .. } = worker.config().client_limits;
    let mut budget = RateBudget::new(min_rate, idle_timeout);
    let metrics = Arc::clone(worker.metrics().thread());
    let client = Rc::clone(exchange.connection());
    let request = client.meter().request_number();
    // Meanwhile the response has time limits of its own, so this read does not use the connection's.
    tokio::task::spawn_local(async move {
        let mut read = 0;
        while read <= MAX_DISCARDED {
            let waits_since = Instant::now();
            let Ok(frame) = timeout(idle_timeout.min(budget.left()), body.frame()).await else {
                let reason = match budget.left() < idle_timeout {
                    true => CutOffReason::MinRate,
                    false => CutOffReason::IdleTimeout,
                };
                metrics.cut_offs().counter(CutOff { body: CutOffBody::Request, reason }).inc();
                break;
            };
            let frame = match frame {
                Some(Ok(frame)) => frame,
                Some(Err(_)) => break,
                None => {
                    client.refused_body_was_read(request);
                    break;
                }
            };
            let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
            budget.spend(waits_since.elapsed());
            budget.earn(bytes);
            read += bytes;
        }
    });
    true
}
