//! The ID of a request, by which its lines in all logs are found.

use http::{HeaderMap, HeaderName, HeaderValue};

/// The ID that a trusted proxy gave the request, or a new one: 128 random bits in hex.
pub(super) fn of(headers: &HeaderMap, name: &HeaderName, trusted: bool) -> HeaderValue {
    if trusted && let Some(id) = headers.get(name) {
        return id.clone();
    }
    let mut hex = [0; 32];
    for (digits, byte) in hex.chunks_exact_mut(2).zip(fastrand::u128(..).to_le_bytes()) {
        digits.copy_from_slice(&HEX[usize::from(byte)]);
    }
    HeaderValue::from_bytes(&hex).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// Two digits a byte.
const HEX: [[u8; 2]; 256] = {
    let mut table = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = [b"0123456789abcdef"[byte >> 4], b"0123456789abcdef"[byte & 15]];
        byte += 1;
    }
    table
};
