//! The bytes of heap that a value takes. The binary's allocator, mimalloc, rounds each block up to a size class, so a
//! block may be a quarter larger than requested.

use std::mem::size_of;

use compact_str::CompactString;

/// The size of a block for `bytes`. Up to 64 bytes, size classes are 16 bytes apart; above, there are four between two
/// powers of two.
pub const fn block(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        1..=8 => 8,
        9..=64 => bytes.next_multiple_of(16),
        _ => {
            let step = 1 << ((bytes - 1).ilog2() - 2);
            bytes.next_multiple_of(step)
        }
    }
}

/// The size of a vector or a boxed slice with room for so many `T`.
pub const fn array<T>(capacity: usize) -> usize {
    block(capacity.saturating_mul(size_of::<T>()))
}

/// The size of the value behind an `Arc`.
pub const fn shared<T>() -> usize {
    block(2 * size_of::<usize>() + size_of::<T>())
}

/// The size of a text. A short one is stored inline.
pub fn text(text: &CompactString) -> usize {
    if text.is_heap_allocated() { block(text.capacity()) } else { 0 }
}

/// The size of an entry of `bytes` in a large B-tree. A node has room for eleven and is about two thirds full; a leaf
/// has a header of 16 bytes, and one node in eight has an edge for each child.
pub const fn tree_entry(bytes: usize) -> usize {
    const ROOM: usize = 11;
    const HELD: usize = 7;
    let leaf = block(ROOM * bytes + 16);
    let edges = (ROOM + 1) * size_of::<usize>() / HELD;
    leaf.div_ceil(HELD) + edges.div_ceil(HELD)
}

/// The size of a hash table with room for `capacity` entries: buckets are a power of two, and an eighth of them is
/// free.
pub const fn hash_table(capacity: usize, entry: usize) -> usize {
    if capacity == 0 {
        return 0;
    }
    let buckets = if capacity < 8 {
        (capacity + 1).next_power_of_two()
    } else {
        (capacity * 8 / 7).next_power_of_two()
    };
    // One control byte for each bucket, and one more group.
    block(buckets * (entry + 1) + 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_those_of_the_allocator() {
        let sizes =
            [0, 1, 8, 9, 17, 24, 64, 65, 80, 81, 128, 129, 160, 161, 256, 257, 1_000, 1_024, 1_025, 100_000];
        let blocks =
            [0, 8, 8, 16, 32, 32, 64, 80, 80, 96, 128, 160, 160, 192, 256, 320, 1_024, 1_024, 1_280, 114_688];
        assert_eq!(sizes.map(block), blocks);
    }

    #[test]
    fn a_short_text_takes_nothing() {
        assert_eq!(text(&"ip:203.0.113.107".into()), 0);
        assert_eq!(text(&"ip:2001:db8:1234:5678::/64".into()), 32);
    }
}
