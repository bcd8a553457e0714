//! The addresses whose responses are counted. Checked for every request, so this has to be cheap.

use std::{
    net::IpAddr,
    sync::atomic::{AtomicU8, Ordering::Relaxed},
};

/// Number of slots, which addresses share. An address that shares another's slot is counted needlessly.
const SLOTS: usize = 65_536;
/// How many times [`WatchedAddresses::fade`] is called before an address is removed.
const LIFE: u8 = 10;

/// Addresses that were denied, or got 401 or 403, in the last ten minutes. All threads share it.
#[derive(Debug)]
pub(in crate::abuse) struct WatchedAddresses(Box<[AtomicU8]>);

impl Default for WatchedAddresses {
    fn default() -> Self {
        Self((0..SLOTS).map(|_| AtomicU8::new(0)).collect())
    }
}

impl WatchedAddresses {
    /// Whether responses to this client are to be counted. True for some others, too.
    pub(in crate::abuse) fn contains(&self, address: IpAddr) -> bool {
        self.0[slot(address)].load(Relaxed) > 0
    }

    pub(in crate::abuse) fn add(&self, address: IpAddr) {
        let life = &self.0[slot(address)];
        // Most are there already; not writing them keeps them in the other threads' caches.
        if life.load(Relaxed) < LIFE {
            life.store(LIFE, Relaxed);
        }
    }

    /// To be called once a minute.
    pub(in crate::abuse) fn fade(&self) {
        for life in &self.0 {
            let left = life.load(Relaxed);
            if left > 0 {
                life.store(left - 1, Relaxed);
            }
        }
    }
}

fn slot(address: IpAddr) -> usize {
    let bits = match address {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        // The upper half identifies a client.
        IpAddr::V6(address) => (address.to_bits() >> 64) as u64 ^ address.to_bits() as u64,
    };
    let hash = bits.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> 40) as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_watched_for_a_while() {
        let watched = WatchedAddresses::default();
        let address = |n: u8| IpAddr::from([203, 0, 113, n]);
        watched.add(address(7));
        watched.add("2001:db8:7::".parse().unwrap());
        (1..LIFE).for_each(|_| watched.fade());
        assert!(watched.contains(address(7)) && watched.contains("2001:db8:7::".parse().unwrap()));
        let others = (0..=255).filter(|&n| watched.contains(address(n))).count();
        assert!(others <= 3, "{others}");
        watched.add(address(7));
        watched.fade();
        assert!(watched.contains(address(7)) && !watched.contains("2001:db8:7::".parse().unwrap()));
    }
}
