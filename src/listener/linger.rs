//! Closing a connection on which the client may still be sending.

use std::time::Duration;

use tokio::{io::AsyncReadExt, net::TcpStream, time::timeout};

/// How long and how much is still read. What comes after that is reset.
const TIME: Duration = Duration::from_secs(2);
const BYTES: usize = 1 << 20;

/// Reads and forgets what the client still sends, until it has seen that the connection is closing.
///
/// A socket that is closed with bytes unread is reset, and a reset may overtake the answer on its way
/// to the client (RFC 9112, 9.6): a client whose upload was refused would see a broken connection
/// instead of the refusal.
pub(super) async fn linger(mut stream: TcpStream) {
    let mut scratch = [0; 4096];
    let drain = async {
        let mut left = BYTES;
        while let Ok(read @ 1..) = stream.read(&mut scratch).await {
            left = left.saturating_sub(read);
            if left == 0 {
                break;
            }
        }
    };
    // Either way the connection ends here.
    let _ = timeout(TIME, drain).await;
}
