//! Gives memory back that one thread has allocated and another has freed.
//!
//! Limits and evidence are allocated by workers, and given up by other threads. What mimalloc hears of blocks that another
//! thread frees, the allocating thread looks at when it runs out of blocks of that size, or once in 10,000 allocations that
//! no list serves. After a flood neither may happen for long, and what was given up would stay resident.

use std::{
    cell::Cell,
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// Bytes freed after which a thread looks at them.
const ENOUGH: usize = 4 << 20;
/// Larger than what the allocator keeps in lists.
const BLOCK: usize = 2 << 10;
/// So many ticks with so many allocations each make the allocator look once, at some 40 µs a tick.
const TICKS: u32 = 11;
const ALLOCATIONS: usize = 1_000;

/// Bytes that were given up since the start, by whatever thread.
#[derive(Debug, Clone, Default)]
pub struct FreedBytes(Arc<AtomicUsize>);

impl FreedBytes {
    /// So many more.
    pub fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes, Relaxed);
    }

    fn total(&self) -> usize {
        self.0.load(Relaxed)
    }
}

/// Has the allocator look for what others have freed of the memory of the thread that it belongs to.
#[derive(Debug)]
pub struct Reclaimer {
    freed: Vec<FreedBytes>,
    /// What was freed when it looked last.
    seen: Cell<usize>,
    ticks: Cell<u32>,
}

impl Reclaimer {
    /// Looks whenever enough of this was freed.
    pub fn new(freed: Vec<FreedBytes>) -> Self {
        Self { freed, seen: Cell::new(0), ticks: Cell::new(0) }
    }

    /// To be called a few times a second. Costs nothing as long as little is given up.
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
