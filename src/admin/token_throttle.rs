//! Limits how often an address may send a wrong token.
//!
//! The right token always passes: many clients may share an address, such as a proxy's, and none may lock the others out.
//! So this slows programs with an old token and keeps the log short, but does not limit guesses. The token itself makes
//! guessing hopeless: the port's thread compares some ten thousand tokens a second, which takes a million years for one of
//! 60 bits, and `tollgate check` warns of a weaker one. Sessions never limited guesses either: anyone can make the MAC of a
//! guessed token and send it as a cookie.

use std::{net::IpAddr, sync::Arc, time::Duration};

use axum::response::{IntoResponse, Response};
use http::{StatusCode, header::RETRY_AFTER};

use super::{problem::Problem, store_client::StoreClient};
use crate::{
    abuse,
    config::model::{self, Algorithm, KeyPart, KeyRecipe, Rate},
    limit::{Check, Policy, PolicyIds, Store, algorithm::Detail},
};

/// Wrong tokens of an address per [`WINDOW`]. Further ones get 429 until the window has passed.
const MAX_FAILURES: u64 = 30;
const WINDOW: Duration = Duration::from_secs(1);
/// Addresses that may use up their guesses in one window before further ones get 429, too: one host may have many.
const MAX_ADDRESSES: u64 = 1_024;
/// Keys that the store of wrong tokens needs: an address may fail at the login and in `Authorization`.
pub const WRONG_TOKEN_KEYS: usize = 2_050;
/// Length of the IPv6 prefix that identifies a host.
const IPV6_PREFIX: u8 = 64;

/// Limits the wrong tokens in one place: on the login page, or in `Authorization`.
pub(super) struct TokenThrottle {
    store: Arc<StoreClient>,
    /// One by address, one for all addresses together.
    policies: Vec<Policy>,
}

/// The result of checking a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenVerdict {
    Right,
    /// `is_first`: its address sent no other wrong one in the window.
    Wrong {
        is_first: bool,
    },
    /// It is wrong, and its address, or all together, sent too many of them.
    Throttled,
}

impl TokenThrottle {
    /// Counts in `store`, by its own policies: `name` begins their names, `ids` numbers them.
    pub(super) fn new(store: Arc<StoreClient>, ids: &mut PolicyIds, name: &str) -> Self {
        let policy = |key: KeyPart, limit| {
            let (name, tiers) = (format!("{name} by {key}"), vec![Rate { limit, window: WINDOW }]);
            model::Policy::new(name, Algorithm::SingleCounter, vec![KeyRecipe(vec![key])], tiers)
        };
        let per_address = policy(KeyPart::Ip, MAX_FAILURES);
        let overall = policy(KeyPart::Global, MAX_FAILURES * MAX_ADDRESSES);
        Self { store, policies: ids.policies([&per_address, &overall]) }
    }

    /// The verdict on a token of a client at `address`. Only wrong tokens count.
    pub(super) async fn check(&self, address: IpAddr, is_right: bool) -> TokenVerdict {
        if is_right {
            return TokenVerdict::Right;
        }
        let identifiers = [format!("ip:{}", abuse::masked(address, IPV6_PREFIX)), "global".to_owned()];
        let checks: Vec<Check<'_>> = self
            .policies
            .iter()
            .zip(&identifiers)
            .map(|(policy, identifier)| Check {
                policy,
                identifier: identifier.into(),
                cost: 1,
                detail: Detail::None,
            })
            .collect();
        // The store is in memory and does not fail; if it did, responses must not become unlimited.
        match self.store.decide(&checks).await {
            Ok(decision) if decision.admitted => {
                let remaining = decision.verdicts.first().map(|verdict| verdict.remaining);
                TokenVerdict::Wrong { is_first: remaining == Some(MAX_FAILURES - 1) }
            }
            _ => TokenVerdict::Throttled,
        }
    }
}

/// The response to a throttled client.
pub(super) fn throttled_response() -> Response {
    let problem =
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "too many wrong tokens: try again in one second");
    ([(RETRY_AFTER, "1")], problem).into_response()
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::{limit::ManualClock, store::memory::MemoryStore};

    const KEYS: usize = WRONG_TOKEN_KEYS;

    struct Throttle {
        clock: Arc<ManualClock>,
        store: Arc<MemoryStore>,
        throttle: TokenThrottle,
    }

    impl Throttle {
        fn new() -> Self {
            let clock = Arc::new(ManualClock::new(1_783_080_001_000_000));
            let store = Arc::new(MemoryStore::new(KEYS, Arc::clone(&clock) as _));
            let client = Arc::new(StoreClient::new(Arc::clone(&store)));
            Self { clock, store, throttle: TokenThrottle::new(client, &mut PolicyIds::default(), "token") }
        }

        fn attempt(&self, address: &str, is_right: bool) -> TokenVerdict {
            self.throttle.check(address.parse().unwrap(), is_right).now_or_never().unwrap()
        }

        fn wrong(&self, address: &str) -> TokenVerdict {
            self.attempt(address, false)
        }
    }

    #[test]
    fn after_so_many_wrong_ones_the_next_waits_for_the_second_to_end() {
        let throttle = Throttle::new();
        let start = 1_783_080_001_000_000;
        for nth in 0..MAX_FAILURES {
            assert_eq!(throttle.attempt("192.0.2.1", true), TokenVerdict::Right, "right ones do not count");
            assert_eq!(throttle.wrong("192.0.2.1"), TokenVerdict::Wrong { is_first: nth == 0 });
        }
        throttle.clock.set(start + 500_000);
        assert_eq!(throttle.wrong("192.0.2.1"), TokenVerdict::Throttled);
        assert_eq!(throttle.attempt("192.0.2.1", true), TokenVerdict::Right, "a right one always passes");
        assert_eq!(throttle.wrong("192.0.2.2"), TokenVerdict::Wrong { is_first: true });
        throttle.clock.set(start + 1_000_000);
        assert_eq!(throttle.wrong("192.0.2.1"), TokenVerdict::Wrong { is_first: true });
    }

    #[test]
    fn one_host_has_no_more_guesses_for_having_many_addresses() {
        let throttle = Throttle::new();
        for host in 0..MAX_FAILURES {
            throttle.wrong(&format!("2001:db8::{host:x}"));
        }
        assert_eq!(throttle.wrong("2001:db8::ffff"), TokenVerdict::Throttled);
        assert_eq!(throttle.wrong("2001:db8:0:1::"), TokenVerdict::Wrong { is_first: true });
    }

    #[test]
    fn addresses_and_the_guesses_of_all_of_them_together_are_bounded() {
        let throttle = Throttle::new();
        let address = |number: u64| std::net::Ipv4Addr::from(u32::try_from(number).unwrap()).to_string();
        for number in 0..MAX_FAILURES * MAX_ADDRESSES {
            assert!(matches!(throttle.wrong(&address(number)), TokenVerdict::Wrong { .. }), "{number}");
        }
        assert!(throttle.store.stats().keys <= KEYS);
        assert_eq!(throttle.wrong(&address(u64::from(u32::MAX))), TokenVerdict::Throttled);
        throttle.clock.set(1_783_080_002_000_000);
        assert_eq!(throttle.wrong(&address(u64::from(u32::MAX))), TokenVerdict::Wrong { is_first: true });
    }
}
