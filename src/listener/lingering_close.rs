//! The lingering close: waits for a client for a while before its connection is closed, so that it sees the response.

use std::time::{Duration, Instant};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{sleep, timeout},
};

use super::stream::{ClientStream, Socket};

/// Time and bytes that a lingering close reads at most. After that the connection is reset.
#[derive(Clone, Copy)]
pub(super) struct Linger {
    pub(super) time: Duration,
    pub(super) bytes: usize,
}

impl Linger {
    /// For a client that has nothing more to send than the bytes on their way.
    pub(super) const SHORT: Self = Self { time: Duration::from_secs(2), bytes: 1 << 20 };
    /// For a client whose request was refused before its body had arrived. Many clients send the whole body before they
    /// read the response. nginx waits as long.
    pub(super) const UPLOAD: Self = Self { time: Duration::from_secs(30), bytes: 64 << 20 };
}

/// How often the kernel is asked how much the client has acknowledged.
const ACKNOWLEDGED_EVERY: Duration = Duration::from_millis(10);

/// How long a client may send nothing, or acknowledge nothing, during a lingering close.
const LINGER_IDLE: Duration = Duration::from_secs(2);

/// Reads and drops bytes from the client until it has seen that the connection is closing (nginx' lingering close).
///
/// A socket that is closed with unread bytes is reset, and the reset may overtake the response on its way to the client
/// (RFC 9112, 9.6). A client whose upload was refused would see a broken connection instead of the refusal.
pub(super) async fn lingering_close(mut stream: ClientStream, linger: Linger) {
    let mut scratch = [0; 4096];
    let drain = async {
        // Sends the close_notify of TLS. Later bytes from the client need not be decrypted.
        let _broken = stream.shutdown().await;
        let mut socket = stream.into_socket();
        let mut left = linger.bytes;
        while let Ok(Ok(read @ 1..)) = timeout(LINGER_IDLE, socket.read(&mut scratch)).await {
            left = left.saturating_sub(read);
            // A reset drops bytes that the kernel has not delivered to the client yet.
            if left == 0 && socket.is_acknowledged() {
                break;
            }
        }
    };
    // The connection is closed in either case.
    let _ = timeout(linger.time, drain).await;
}

/// Resets a connection whose end would be taken for the end of the response, once the client's kernel has all of it that
/// was written: the reset drops the bytes in our own buffer. A client that takes no more meanwhile is not waited for.
pub(super) async fn reset_once_taken(socket: Socket) {
    let taken = async {
        let (mut before, mut since) = (None, Instant::now());
        while !socket.is_acknowledged() && since.elapsed() < LINGER_IDLE {
            if socket.acknowledged() != before {
                (before, since) = (socket.acknowledged(), Instant::now());
            }
            sleep(ACKNOWLEDGED_EVERY).await;
        }
    };
    let _ = timeout(Linger::UPLOAD.time, taken).await;
    socket.reset();
}
