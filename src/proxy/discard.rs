//! Bodies that nobody needs.

use http::request;
use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::expect;

/// Bytes that are read for the sake of the connection.
const MOST: u64 = 64 << 10;

/// Reads and forgets the body of a request that is refused, with this head, so that its connection can
/// serve the next one: hyper closes a connection whose body is dropped before it has come.
///
/// Says whether the connection can go on. It can't where the body is long, or will only be sent if it
/// is asked for.
pub fn discard(request: &request::Parts, mut body: Incoming) -> bool {
    if body.is_end_stream() {
        return true;
    }
    if body.size_hint().lower() > MOST || expect::wants_continue(request.version, &request.headers) {
        return false;
    }
    tokio::task::spawn_local(async move {
        let mut read = 0;
        while let Some(Ok(frame)) = body.frame().await
            && read <= MOST
        {
            read += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
    });
    true
}
