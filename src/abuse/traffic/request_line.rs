//! A request in the form that traffic counts.

use http::HeaderMap;

/// Bytes of a path that are kept. Longer paths are cut.
const MAX_PATH_BYTES: usize = 128;
/// FNV-1a, 64 bits. Instances compare their hashes, so it must never change.
const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

/// The method, the URL and the fields of a request.
#[derive(Debug, Clone, Copy, Default)]
pub struct RequestLine<'a> {
    /// Whether its method only reads (RFC 9110, 9.2.1).
    pub is_safe: bool,
    pub path: &'a str,
    pub query: Option<&'a str>,
    /// Its fields, if they say whether people sent it.
    pub headers: Option<&'a HeaderMap>,
    /// Whether they are those of an access log, which may lack some.
    pub is_logged: bool,
}

impl<'a> RequestLine<'a> {
    /// The part of the path that records keep.
    pub fn recorded_path(&self) -> &'a str {
        &self.path[..self.path.floor_char_boundary(MAX_PATH_BYTES)]
    }

    /// The hash of the path.
    pub(in crate::abuse) fn path_hash(&self) -> u32 {
        path_hash(self.recorded_path())
    }

    /// The hash of the path, and the hash of the path with the query.
    pub(super) fn hashes(&self) -> (u32, u32) {
        let path = add(OFFSET, self.recorded_path());
        let url = self.query.map_or(path, |query| add(add(path, "?"), query));
        (spread(path), spread(url))
    }
}

/// The hash of a path, equal to the one of [`RequestLine::hashes`].
pub(in crate::abuse) fn path_hash(recorded: &str) -> u32 {
    spread(add(OFFSET, recorded))
}

fn add(hash: u64, text: &str) -> u64 {
    add_bytes(hash, text.as_bytes())
}

fn add_bytes(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().copied().fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

/// The hash of a field's value, the same on all instances.
pub(in crate::abuse) fn value_hash(value: &[u8]) -> u32 {
    spread(add_bytes(OFFSET, value))
}

/// Spreads the hash: FNV leaves short texts close to each other.
fn spread(hash: u64) -> u32 {
    ((hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}
