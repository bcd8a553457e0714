//! Keys as operators see them. A value of a header, a cookie or the query may be a secret, so it is replaced by a
//! hash that means nothing outside this process.

use compact_str::CompactString;
use sha2::{Digest, Sha256};

/// Parts of keys whose values are hidden.
const HIDDEN: [&str; 3] = ["header:", "cookie:", "query:"];

/// The key with its values hidden. `secret`: of this process.
pub(super) fn shown(key: &CompactString, secret: u64) -> CompactString {
    if !HIDDEN.iter().any(|kind| key.contains(kind)) {
        return key.clone();
    }
    let mut shown = CompactString::default();
    for part in key.split('+') {
        if !shown.is_empty() {
            shown.push('+');
        }
        match part.split_once('=') {
            Some((name, value)) if HIDDEN.iter().any(|kind| name.starts_with(kind)) => {
                let mut hash = Sha256::new_with_prefix(secret.to_le_bytes());
                hash.update(value);
                shown.extend([name, "=hash-"]);
                let hash = hash.finalize();
                shown.extend(hash.iter().take(5).map(|byte| format!("{byte:02x}")));
            }
            _ => shown.push_str(part),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_may_hold_a_secret_are_hidden() {
        for key in ["ip:203.0.113.7", "user:acme", "ip:203.0.113.7+path:/a", "jwt:plan=pro", "global"] {
            assert_eq!(shown(&key.into(), 7), key);
        }
        let one = shown(&"ip:203.0.113.7+header:x-api-key=s3cret+path:/a".into(), 7);
        let (before, after) = (one.split_once("hash-").unwrap(), "+path:/a");
        assert_eq!(before.0, "ip:203.0.113.7+header:x-api-key=");
        assert!(before.1.len() == 10 + after.len() && before.1.ends_with(after), "{one}");
        let of = |key: &str, secret| shown(&key.into(), secret);
        assert_ne!(of("cookie:s=a", 7), of("cookie:s=b", 7));
        assert_ne!(of("cookie:s=a", 7), of("cookie:s=a", 8));
    }
}
