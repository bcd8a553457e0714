//! How many of something large run at once, however many tests ask for one.

use std::sync::{Condvar, Mutex};

/// A semaphore. A test takes one room of a kind, and its servers before its browser: otherwise two tests could wait for
/// each other for ever.
pub(super) struct Bound {
    free: Mutex<usize>,
    freed: Condvar,
}

impl Bound {
    pub(super) const fn new(most: usize) -> Self {
        Self { free: Mutex::new(most), freed: Condvar::new() }
    }

    /// Waits until there is room, which is taken until what is returned is dropped.
    pub(super) fn enter(&'static self) -> Room {
        let mut free = self.freed.wait_while(self.free.lock().unwrap(), |free| *free == 0).unwrap();
        *free -= 1;
        Room(self)
    }
}

/// Room for one of them.
pub(super) struct Room(&'static Bound);

impl Drop for Room {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap() += 1;
        self.0.freed.notify_one();
    }
}

#[test]
fn no_more_run_than_there_is_room_for() {
    static BOUND: Bound = Bound::new(2);
    let running = Mutex::new((0, 0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let room = BOUND.enter();
                    let count = |by| {
                        let mut running = running.lock().unwrap();
                        running.0 += by;
                        running.1 = running.1.max(running.0);
                    };
                    count(1);
                    std::thread::yield_now();
                    count(-1);
                    drop(room);
                }
            });
        }
    });
    let (left, most) = *running.lock().unwrap();
    assert_eq!(left, 0);
    assert!((1..=2).contains(&most), "{most}");
}
