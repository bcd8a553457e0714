//! Hash slots of Redis Cluster: which part of the key space a key is in.
//!
//! Source: [Redis Cluster specification](https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/),
//! "Key distribution model" and "Hash tags".

use crc::{CRC_16_XMODEM, Crc};

/// The number of slots.
pub(crate) const SLOTS: usize = 16_384;

const CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// The slot of a key: of its hash tag, the text in its first braces, or else of the whole key.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    of_tag(hash_tag(key))
}

/// The slot of a hash tag.
pub(in crate::store::redis) fn of_tag(tag: &[u8]) -> u16 {
    CRC.checksum(tag) % 16_384
}

fn hash_tag(key: &[u8]) -> &[u8] {
    let tag = key.iter().position(|&byte| byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|&byte| byte == b'}')?;
        Some(&rest[..close])
    });
    tag.filter(|tag| !tag.is_empty()).unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replies of `CLUSTER KEYSLOT` of Redis 7.0.15.
    #[test]
    fn slots_are_those_of_redis() {
        for (key, slot) in [
            ("123456789", 12_739),
            ("foo", 12_182),
            ("{user1000}.following", 3_443),
            ("{user1000}.followers", 3_443),
            ("foo{}{bar}", 8_363),
            ("foo{{bar}}zap", 4_015),
            ("foo{bar}{zap}", 5_061),
            ("", 0),
        ] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
    }
}
