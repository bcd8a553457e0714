//! What is left of a request's body when the proxy answers without needing it.

use std::time::Duration;

use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;

/// A body of up to this many bytes is read and forgotten, so that its connection can go on.
const SMALL: u64 = 64 << 10;
/// For what has not come yet of such a body; mostly it came with its head.
const TIME: Duration = Duration::from_millis(100);

/// Reads `body` to its end if that is near. Says whether it was: else the connection has to end after the
/// answer, which has to say so (RFC 9112, 9.6), for what is left would be taken for the next request.
pub(super) async fn read_out(body: Incoming) -> bool {
    if body.is_end_stream() {
        return true;
    }
    if body.size_hint().lower() > SMALL {
        return false;
    }
    tokio::time::timeout(TIME, read(body)).await.unwrap_or(false)
}

async fn read(mut body: Incoming) -> bool {
    let mut left = SMALL;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return false };
        let length = frame.data_ref().map_or(0, bytes::Bytes::len) as u64;
        match left.checked_sub(length) {
            Some(rest) => left = rest,
            None => return false,
        }
    }
    true
}
