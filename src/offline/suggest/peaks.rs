//! The peaks of one client: the largest number of its requests in any window, found exactly while its requests are read
//! in the order of their times.
//!
//! A window of length W that ends at t is (t − W, t]: a request exactly as old as the window no longer counts, as in all
//! algorithms of policies.

use std::collections::VecDeque;

use smallvec::SmallVec;

/// The requests of one client, as far as its longest window still has them, and the peaks so far.
///
/// The times of those requests are kept as differences, of 1 byte up to 127 µs, 2 up to 16 ms, 3 up to 2 s, 4 up to
/// 4 min and 5 up to 9 h. So memory is bounded by the requests that one client sends in the longest window, and
/// [`KeyPeaks::release`] frees those of clients that send nothing.
#[derive(Debug, Clone, Default)]
pub(super) struct KeyPeaks {
    /// Number of all its requests.
    pub(super) requests: u64,
    /// The time of its last request.
    last: i64,
    /// The differences between the times of successive requests. The first is behind the oldest request of the longest
    /// window.
    differences: VecDeque<u8>,
    /// In the order of the windows.
    windows: SmallVec<[WindowCount; 6]>,
}

/// The requests in the window that ends now.
#[derive(Debug, Clone, Copy)]
struct WindowCount {
    /// The time of its oldest request.
    oldest: i64,
    /// Where in `differences` the one behind that request begins.
    next: usize,
    count: u32,
    peak: u32,
}

impl KeyPeaks {
    /// Counts a request at `time`, in microseconds, which is not before the last one. `windows`: the same in each call,
    /// in microseconds, the longest last. Returns by how many bytes the memory for its requests has grown.
    pub(super) fn add(&mut self, time: i64, windows: &[i64]) -> isize {
        let before = self.differences.len() as isize;
        let longest = windows.last().copied().unwrap_or(0);
        if self.requests == 0 || time - self.last >= longest {
            self.restart(time, windows);
        } else {
            push(&mut self.differences, (time - self.last) as u64);
            for (window, length) in self.windows.iter_mut().zip(windows) {
                window.slide_to(time - length, &self.differences);
            }
            // The longest window is the last, and has the oldest request.
            let unused = self.windows.last().map_or(0, |window| window.next);
            self.differences.drain(..unused);
            self.windows.iter_mut().for_each(|window| window.next -= unused);
        }
        self.requests += 1;
        self.last = time;
        self.differences.len() as isize - before
    }

    /// The peak in each window.
    pub(super) fn peaks(&self) -> impl Iterator<Item = u32> {
        self.windows.iter().map(|window| window.peak)
    }

    /// The peak in the window of this index.
    pub(super) fn peak(&self, nth: usize) -> u32 {
        self.windows.get(nth).map_or(0, |window| window.peak)
    }

    /// Frees the memory for its requests if none of them is in a window that ends `now`. Returns the bytes that are still
    /// in use.
    pub(super) fn release(&mut self, now: i64, longest: i64) -> usize {
        if now - self.last >= longest {
            self.differences = VecDeque::new();
        }
        self.differences.len()
    }

    /// Makes the request at `time` the only one in each window.
    fn restart(&mut self, time: i64, windows: &[i64]) {
        self.differences.clear();
        let peak = |nth| self.windows.get(nth).map_or(1, |window: &WindowCount| window.peak);
        self.windows = (0..windows.len())
            .map(|nth| WindowCount { oldest: time, next: 0, count: 1, peak: peak(nth) })
            .collect();
    }
}

impl WindowCount {
    /// Adds the newest request, and removes those up to the time `start`.
    fn slide_to(&mut self, start: i64, differences: &VecDeque<u8>) {
        self.count += 1;
        while self.oldest <= start {
            let Some(difference) = read(differences, &mut self.next) else { break };
            self.oldest += difference as i64;
            self.count -= 1;
        }
        self.peak = self.peak.max(self.count);
    }
}

/// Appends a number in LEB128: 7 bits a byte, the lowest first.
fn push(bytes: &mut VecDeque<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push_back(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push_back(number as u8);
}

/// Reads the number at `at`, and moves behind it. `None`: there is none.
fn read(bytes: &VecDeque<u8>, at: &mut usize) -> Option<u64> {
    let (mut number, mut shift) = (0, 0);
    loop {
        let byte = *bytes.get(*at)?;
        *at += 1;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
        shift += 7;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The largest number of `times` in any (t − window, t], counted anew for each t.
    fn peak(times: &[i64], window: i64) -> u32 {
        let count = |&end: &i64| times.iter().filter(|&&time| time > end - window && time <= end).count();
        times.iter().map(count).max().unwrap_or(0) as u32
    }

    fn peaks(times: &[i64], windows: &[i64]) -> Vec<u32> {
        let mut key = KeyPeaks::default();
        times.iter().for_each(|&time| {
            key.add(time, windows);
        });
        assert_eq!(key.requests, times.len() as u64);
        key.peaks().collect()
    }

    #[test]
    fn a_request_as_old_as_the_window_no_longer_counts() {
        assert_eq!(peaks(&[0, 10], &[10]), [1]);
        assert_eq!(peaks(&[0, 9, 10, 18, 19], &[10]), [3]);
        assert_eq!(peaks(&[5, 5, 5], &[1, 10]), [3, 3]);
    }

    #[test]
    fn memory_is_bounded_by_the_longest_window() {
        let (mut key, mut bytes) = (KeyPeaks::default(), 0);
        for nth in 0..100_000 {
            bytes += key.add(nth * 1_000, &[10_000, 1_000_000]);
            assert!((0..=2_000).contains(&bytes), "{bytes}");
        }
        assert_eq!(key.peaks().collect::<Vec<_>>(), [10, 1_000]);
        assert_eq!(key.release(100_000_000, 1_000_000), bytes as usize, "the window still has requests");
        assert_eq!(key.release(200_000_000, 1_000_000), 0);
        key.add(200_000_000, &[10_000, 1_000_000]);
        assert_eq!(key.peaks().collect::<Vec<_>>(), [10, 1_000]);
    }

    proptest! {
        #[test]
        fn peaks_are_those_of_counting_each_window_anew(
            mut times in prop::collection::vec(
                prop_oneof![0..300_i64, 0..100_000_i64, 1_000_000_i64..1_000_100, 0..100_000_000_000_i64],
                1..200,
            ),
            mut windows in prop::collection::vec(
                prop_oneof![1..100_i64, 1_000..2_000_000_i64, 1_000_000_000..100_000_000_000_i64],
                1..5,
            ),
            release_every in 1..50_usize,
        ) {
            times.sort_unstable();
            windows.sort_unstable();
            let longest = *windows.last().unwrap();
            let mut key = KeyPeaks::default();
            for (nth, &time) in times.iter().enumerate() {
                if nth % release_every == 0 {
                    key.release(time, longest);
                }
                key.add(time, &windows);
            }
            let expected: Vec<_> = windows.iter().map(|&window| peak(&times, window)).collect();
            prop_assert_eq!(key.peaks().collect::<Vec<_>>(), expected);
        }
    }
}
