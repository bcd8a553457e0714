//! The client addresses behind trusted proxies whose requests end before the response.
//!
//! Envoy's rule against rapid resets (CVE-2023-44487) closes a connection if half of its streams were reset at once.
//! The connection of a trusted proxy carries the requests of many clients, so the rule applies to each client's
//! address there.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    net::IpAddr,
    rc::Rc,
    time::{Duration, Instant},
};

use foldhash::fast::RandomState;

/// An address with this many requests within the period is judged: it is refused if half of them ended early.
pub const JUDGED_FROM: u64 = 500;
const JUDGED_FOR: Duration = Duration::from_secs(60);

/// The number of addresses that are watched at a time.
const MAX_ADDRESSES: usize = 4096;

/// The watched client addresses.
#[derive(Debug, Default)]
pub struct EarlyEnds(RefCell<HashMap<IpAddr, Watched, RandomState>>);

#[derive(Debug)]
struct Watched {
    since: Instant,
    requests: u64,
    early: u64,
    is_refused: bool,
}

/// Whether a request is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judgement {
    Served,
    /// The address is refused from now on.
    RefusedNow,
    Refused,
}

impl EarlyEnds {
    /// Judges a new request of `address`.
    pub(super) fn judge(&self, address: IpAddr, now: Instant) -> Judgement {
        let mut addresses = self.0.borrow_mut();
        let is_over = |watched: &Watched| now.saturating_duration_since(watched.since) >= JUDGED_FOR;
        if addresses.len() >= MAX_ADDRESSES && !addresses.contains_key(&address) {
            addresses.retain(|_, watched| !is_over(watched));
            if addresses.len() >= MAX_ADDRESSES {
                return Judgement::Served;
            }
        }
        let begin = || Watched { since: now, requests: 0, early: 0, is_refused: false };
        let watched = addresses.entry(address).or_insert_with(begin);
        if is_over(watched) {
            *watched = begin();
        }
        watched.requests += 1;
        if watched.is_refused {
            return Judgement::Refused;
        }
        watched.is_refused = watched.requests > JUDGED_FROM && watched.early * 2 >= watched.requests;
        if watched.is_refused { Judgement::RefusedNow } else { Judgement::Served }
    }

    fn ended_early(&self, address: IpAddr) {
        if let Some(watched) = self.0.borrow_mut().get_mut(&address) {
            watched.early += 1;
        }
    }
}

/// A request of a client behind a trusted proxy.
#[derive(Debug)]
pub struct WatchedRequest {
    ends: Rc<EarlyEnds>,
    /// `None` until the request's head is read.
    address: Cell<Option<IpAddr>>,
}

impl WatchedRequest {
    /// A request whose address is not known yet.
    pub fn new(ends: &Rc<EarlyEnds>) -> Rc<Self> {
        Rc::new(Self { ends: Rc::clone(ends), address: Cell::new(None) })
    }

    /// Sets the request's address, and judges it.
    pub(super) fn judge(&self, address: IpAddr, now: Instant) -> Judgement {
        self.address.set(Some(address));
        self.ends.judge(address, now)
    }

    /// The request has ended early, before its response.
    pub fn ended_early(&self) {
        if let Some(address) = self.address.get() {
            self.ends.ended_early(address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_refused_for_the_rest_of_the_time_if_half_of_its_requests_end_early() {
        let (ends, start) = (EarlyEnds::default(), Instant::now());
        let (bad, good) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        for number in 0..2 * JUDGED_FROM {
            if ends.judge(bad, start) == Judgement::RefusedNow {
                assert!(number >= JUDGED_FROM, "{number}");
                break;
            }
            ends.ended_early(bad);
            assert_eq!(ends.judge(good, start), Judgement::Served);
            if number % 3 == 0 {
                ends.ended_early(good);
            }
        }
        let later = start + JUDGED_FOR - Duration::from_secs(1);
        assert_eq!(ends.judge(bad, later), Judgement::Refused);
        assert_eq!(ends.judge(good, later), Judgement::Served);
        assert_eq!(ends.judge(bad, start + JUDGED_FOR), Judgement::Served);
    }

    #[test]
    fn many_addresses_take_no_more_room() {
        let (ends, start) = (EarlyEnds::default(), Instant::now());
        for number in 0..20_000_u32 {
            assert_eq!(ends.judge(IpAddr::from(number.to_be_bytes()), start), Judgement::Served);
        }
        assert!(ends.0.borrow().len() <= MAX_ADDRESSES);
        ends.judge(IpAddr::from([192, 0, 2, 1]), start + JUDGED_FOR);
        assert_eq!(ends.0.borrow().len(), 1);
    }
}
