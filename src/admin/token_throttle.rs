//! How often somebody may be wrong about the token.
//!
//! Each address by itself: whoever guesses keeps nobody out who comes from elsewhere, nor anybody who has signed in.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::abuse;

/// Wrong tokens of an address a [`PERIOD`]; after those, none of its is looked at until it is over.
pub(super) const FAILURES: u32 = 30;
const PERIOD: Duration = Duration::from_secs(1);
/// Addresses that are counted apart; what comes from more is counted together.
const ADDRESSES: usize = 1_024;
/// How much of an IPv6 address is somebody's own.
const IPV6_PREFIX: u8 = 64;
/// Stands for those together.
const OTHERS: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// The wrong ones of late.
#[derive(Debug, Default)]
pub(super) struct Guesses(Mutex<HashMap<IpAddr, (Instant, u32)>>);

impl Guesses {
    /// Whether another of this address may be looked at.
    pub(super) fn may_guess(&self, address: IpAddr, now: Instant) -> bool {
        let periods = self.0.lock();
        let counted = periods.get(&whose(address)).or_else(|| {
            let is_full = periods.len() >= ADDRESSES;
            periods.get(&OTHERS).filter(|_| is_full)
        });
        counted.is_none_or(|&(began, failures)| is_over(began, now) || failures < FAILURES)
    }

    /// Another was wrong; whether it is the first of its period.
    pub(super) fn wrong(&self, address: IpAddr, now: Instant) -> bool {
        let mut periods = self.0.lock();
        let mut whose = whose(address);
        if !periods.contains_key(&whose) && periods.len() >= ADDRESSES {
            periods.retain(|_, &mut (began, _)| !is_over(began, now));
            if periods.len() >= ADDRESSES {
                whose = OTHERS;
            }
        }
        let period = periods.entry(whose).or_insert((now, 0));
        if is_over(period.0, now) {
            *period = (now, 0);
        }
        period.1 = period.1.saturating_add(1);
        period.1 == 1
    }
}

fn whose(address: IpAddr) -> IpAddr {
    abuse::masked(address, IPV6_PREFIX).addr()
}

fn is_over(began: Instant, now: Instant) -> bool {
    now.saturating_duration_since(began) >= PERIOD
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }

    #[test]
    fn after_so_many_wrong_ones_the_next_waits_for_the_second_to_end() {
        let (guesses, now) = (Guesses::default(), Instant::now());
        for nth in 0..FAILURES {
            assert!(guesses.may_guess(v4(1), now));
            assert_eq!(guesses.wrong(v4(1), now), nth == 0);
        }
        assert!(!guesses.may_guess(v4(1), now + PERIOD / 2));
        assert!(guesses.may_guess(v4(2), now), "somebody elsewhere is not kept out");
        assert!(guesses.may_guess(v4(1), now + PERIOD));
        assert!(guesses.wrong(v4(1), now + PERIOD));
        assert!(guesses.may_guess(v4(1), now + PERIOD), "they are counted anew");
    }

    #[test]
    fn one_host_has_no_more_guesses_for_having_many_addresses() {
        let (guesses, now) = (Guesses::default(), Instant::now());
        for host in 0..FAILURES {
            guesses.wrong(format!("2001:db8::{host:x}").parse().unwrap(), now);
        }
        assert!(!guesses.may_guess("2001:db8::ffff".parse().unwrap(), now));
        assert!(guesses.may_guess("2001:db8:0:1::".parse().unwrap(), now));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (guesses, now) = (Guesses::default(), Instant::now());
        for number in 0..3 * ADDRESSES {
            guesses.wrong(v4(u32::try_from(number).unwrap()), now);
        }
        assert!(guesses.0.lock().len() <= ADDRESSES + 1);
        assert!(!guesses.may_guess(v4(u32::MAX), now), "those who are not counted apart share theirs");
        assert!(guesses.may_guess(v4(1), now));
        guesses.wrong(v4(u32::MAX), now + PERIOD);
        assert_eq!(guesses.0.lock().len(), 1);
    }
}
