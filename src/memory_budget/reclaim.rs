//! Returns memory to the system that one thread has allocated and another has freed.
//!
//! Workers allocate limits and evidence, and other threads free them. mimalloc collects blocks freed by another thread
//! only when the allocating thread runs out of blocks of that size, or once in 10,000 allocations that no free list
//! serves. After a flood neither may happen for a long time, and the freed memory would stay resident.

use std::{
    cell::Cell,
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// Freed bytes after which a thread collects them.
const ENOUGH: usize = 4 << 20;
/// Larger than blocks that the allocator keeps in free lists.
const BLOCK: usize = 2 << 10;
/// This many ticks, with this many allocations each, trigger one collection, at some 40 µs a tick.
const TICKS: u32 = 11;
const ALLOCATIONS: usize = 1_000;

/// Bytes freed since the start, by all threads.
#[derive(Debug, Clone, Default)]
pub struct FreedBytes(Arc<AtomicUsize>);

impl FreedBytes {
    pub fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes, Relaxed);
    }

    fn total(&self) -> usize {
        self.0.load(Relaxed)
    }
}

/// Makes the allocator collect memory of the current thread that other threads have freed.
#[derive(Debug)]
pub struct Reclaimer {
    freed: Vec<FreedBytes>,
    /// Freed bytes at the last collection.
    seen: Cell<usize>,
    ticks: Cell<u32>,
}

impl Reclaimer {
    /// Collects whenever enough of `freed` was added.
    pub fn new(freed: Vec<FreedBytes>) -> Self {
        Self { freed, seen: Cell::new(0), ticks: Cell::new(0) }
    }

    /// Whether a collection has begun that needs more ticks.
    pub fn is_collecting(&self) -> bool {
        self.ticks.get() > 0
    }

    /// To be called a few times a second. Costs nothing while little is freed.
    pub fn tick(&self) {
        let total = self.freed.iter().fold(0_usize, |sum, freed| sum.wrapping_add(freed.total()));
        if self.ticks.get() == 0 {
            if total.wrapping_sub(self.seen.get()) < ENOUGH {
                return;
            }
            self.seen.set(total);
            self.ticks.set(TICKS);
        }
        self.ticks.set(self.ticks.get() - 1);
        for _ in 0..ALLOCATIONS {
            drop(black_box(Vec::<u8>::with_capacity(BLOCK)));
        }
    }
}
