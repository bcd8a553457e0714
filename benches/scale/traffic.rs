//! What comes: requests at random moments, with keys by Zipf's law.

use compact_str::{CompactString, format_compact};
use crc::{CRC_16_XMODEM, Crc};

/// Which parts of an instance's store take part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    /// Each decision is Redis'.
    Bare,
    /// With local denials.
    Denials,
    /// With local denials and slices.
    Slices,
}

impl Variant {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bare => "Redis decides all",
            Self::Denials => "local denials",
            Self::Slices => "local denials and slices",
        }
    }
}

/// How often each key comes: the n-th 1/n times as often as the first.
pub(crate) struct Demand {
    /// The share of this key and of those before it.
    shares: Vec<f64>,
}

/// A request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    /// Nanoseconds from the beginning.
    pub(crate) at: i64,
    pub(crate) instance: usize,
    pub(crate) key: u32,
}

impl Demand {
    pub(crate) fn zipf(keys: u32) -> Self {
        let mut sum = 0.0;
        let mut shares: Vec<f64> = (1..=keys)
            .map(|rank| {
                sum += 1.0 / f64::from(rank);
                sum
            })
            .collect();
        shares.iter_mut().for_each(|share| *share /= sum);
        Self { shares }
    }

    /// Requests of all instances, `rate` a second, each at a multiple of `tick` nanoseconds.
    pub(crate) fn arrivals(
        &self,
        rate: f64,
        instances: usize,
        seed: u64,
        tick: i64,
    ) -> impl Iterator<Item = Arrival> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut at = 0.0;
        std::iter::repeat_with(move || {
            at += -(1.0 - random.f64()).ln() / rate * 1e9;
            let drawn = random.f64();
            let key = self.shares.partition_point(|&share| share < drawn);
            let at = (at as i64 / tick + 1) * tick;
            Arrival { at, instance: random.usize(..instances), key: u32::try_from(key).unwrap_or_default() }
        })
    }
}

pub(crate) fn identifier(key: u32) -> CompactString {
    format_compact!("header:key-{key}")
}

/// The node of so many that has the limits of an identifier.
pub(crate) fn node_of(identifier: &str, nodes: usize) -> usize {
    const CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);
    let slot = usize::from(CRC.checksum(identifier.as_bytes()) % 16_384);
    // Node n has the slots from 16,384 × n ÷ nodes on.
    ((slot + 1) * nodes - 1) / 16_384
}
