//! Verifies the tokens of requests.

use std::{
    io,
    net::IpAddr,
    sync::{Arc, Weak},
    thread,
    time::{Duration, Instant},
};

use http::HeaderMap;
use smallvec::SmallVec;

use super::{
    cache::TokenCache,
    key_file::UnusableKeys,
    key_set::{KeySet, KeySetSource, KeySetTiming},
    token::{TokenError, TokenIdentity, TokenRefusal, find_token},
    token_source::TokenSource,
    unix_seconds,
};
use crate::{
    config::model::{Jwt, UserSource},
    telemetry::metrics::KeySetFacts,
};

/// How often key files are checked for changes.
const RELOAD_INTERVAL: Duration = Duration::from_secs(1);

/// The tokens of a request.
#[derive(Default)]
pub(in crate::identity) struct VerifiedTokens {
    /// The valid token of each token source.
    pub(in crate::identity) tokens: SmallVec<[Option<TokenIdentity>; 1]>,
    /// The findings about the other tokens.
    pub(in crate::identity) refusal: Option<TokenRefusal>,
}

/// Verifies the tokens of all configured sources. There is one for the whole process.
///
/// A token is valid if
/// - its field has a single line, with `Bearer` before the token in `authorization`;
/// - its signature is valid, by an algorithm of the configuration or the key set: the token's own header only selects
///   among them;
/// - it has `exp`, and `exp` and `nbf` allow the current time, with a tolerance of a minute between clocks. A token
///   without an expiry could never be revoked;
/// - it names the issuer and the audience, if they are configured;
/// - it requires no extension (`crit`).
pub struct Verifier {
    sources: Vec<TokenSource>,
    cache: TokenCache,
}

impl Verifier {
    /// Reads the keys of the token sources among `sources`. Waits for the first fetch of providers' key sets, but starts
    /// without a set that can't be fetched now. Blocks: not for a worker's thread.
    ///
    /// # Errors
    /// A file can't be read, or contains no key for its source; or there is no thread to fetch a key set.
    pub fn new(sources: &[UserSource]) -> Result<Self, UnusableKeys> {
        Self::with_timing(sources, KeySetTiming::default())
    }

    /// As [`Verifier::new`], with other times of key sets.
    ///
    /// # Errors
    /// As [`Verifier::new`].
    pub fn with_timing(sources: &[UserSource], timing: KeySetTiming) -> Result<Self, UnusableKeys> {
        let verifier = Self::open(sources, &[], timing)?;
        verifier.key_sets().iter().for_each(|set| set.wait_for_first());
        Ok(verifier)
    }

    /// As [`Verifier::new`], after `before`, whose key sets are taken over.
    ///
    /// # Errors
    /// As [`Verifier::new`], or a key set that `before` does not have can't be fetched.
    pub fn replacing(before: &Self, sources: &[UserSource]) -> Result<Self, UnusableKeys> {
        let known = before.key_sets();
        let verifier = Self::open(sources, &known, KeySetTiming::default())?;
        for set in verifier.key_sets() {
            if known.iter().any(|known| Arc::ptr_eq(known, &set)) {
                continue;
            }
            set.wait_for_first();
            if let Some(reason) = set.unread() {
                return Err(UnusableKeys::Set { set: set.source().to_string(), reason });
            }
        }
        Ok(verifier)
    }

    fn open(
        sources: &[UserSource],
        known: &[Arc<KeySet>],
        timing: KeySetTiming,
    ) -> Result<Self, UnusableKeys> {
        let mut sets = known.to_vec();
        let mut opened = |jwt: &Jwt| {
            let Some(source) = KeySetSource::of(jwt) else { return TokenSource::with_file(jwt.clone()) };
            let set = match sets.iter().find(|set| set.serves(&source, jwt)) {
                Some(set) => Arc::clone(set),
                None => {
                    let set = KeySet::open(source, jwt, timing)?;
                    sets.push(Arc::clone(&set));
                    set
                }
            };
            Ok(TokenSource::with_set(jwt.clone(), set))
        };
        let token_sources = sources.iter().filter_map(|source| match source {
            UserSource::Jwt(jwt) => Some(opened(jwt)),
            _ => None,
        });
        Ok(Self { sources: token_sources.collect::<Result<_, _>>()?, cache: TokenCache::default() })
    }

    /// Each key set once.
    fn key_sets(&self) -> Vec<Arc<KeySet>> {
        let mut sets: Vec<Arc<KeySet>> = Vec::new();
        for set in self.sources.iter().filter_map(TokenSource::key_set) {
            if sets.iter().all(|known| !Arc::ptr_eq(known, set)) {
                sets.push(Arc::clone(set));
            }
        }
        sets
    }

    /// The key sets of providers, of which none was read since the start, and the reasons. Until they are, the process
    /// is not ready.
    pub fn unread_key_sets(&self) -> Vec<String> {
        let unread = |set: Arc<KeySet>| {
            Some(format!("the JWT keys of {} were not fetched yet: {}", set.source(), set.unread()?))
        };
        self.key_sets().into_iter().filter_map(unread).collect()
    }

    /// The state of the key sets of providers.
    pub fn key_set_facts(&self) -> Vec<KeySetFacts> {
        self.key_sets().iter().map(|set| set.facts()).collect()
    }

    /// Checks the key files for changes once a second, while the verifier is in use. New keys invalidate cached tokens;
    /// a broken file changes nothing.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn watch_key_files(self: &Arc<Self>) -> io::Result<()> {
        if self.sources.iter().all(|source| source.key_set().is_some()) {
            return Ok(());
        }
        let verifier = Arc::downgrade(self);
        thread::Builder::new().name("keys".into()).spawn(move || reload_until_dropped(&verifier))?;
        Ok(())
    }

    /// The request's valid token for each token source, in the configuration's order.
    pub(in crate::identity) fn verify(&self, headers: &HeaderMap) -> VerifiedTokens {
        let mut verified = VerifiedTokens::default();
        if self.sources.is_empty() {
            return verified;
        }
        let now = unix_seconds();
        for (index, source) in self.sources.iter().enumerate() {
            let token = find_token(headers, source.field());
            let token = token.map(|token| self.cache.verify(source, index, token, now));
            if let Some(Err(refusal)) = token {
                verified.refusal = verified.refusal.max(Some(refusal));
            }
            verified.tokens.push(token.and_then(Result::ok));
        }
        verified
    }

    /// Has the key sets fetched that lack the key of a token of this request, of a client at `address`, unless they
    /// were a short time ago, and waits for that, at most as long as `longest`. Returns whether a token stays unjudged: the
    /// fetch that would tell is due or under way. So many of one address do; the next ones count as made up.
    pub async fn fetch_missing_key(&self, headers: &HeaderMap, address: IpAddr, longest: Duration) -> bool {
        let now = unix_seconds();
        let end = Instant::now().checked_add(longest);
        let mut is_unjudged = false;
        for (index, source) in self.sources.iter().enumerate() {
            if let (Some(token), Some(set)) = (find_token(headers, source.field()), source.key_set())
                && let Err(refusal) = self.cache.verify(source, index, token, now)
                && refusal.may_be_of_new_key()
            {
                let is_judged = set.ask(address, end).await;
                is_unjudged |= !is_judged && refusal == TokenRefusal::UnknownKey && set.excuses(address);
            }
        }
        is_unjudged
    }

    /// Whether the request has a token for one of the sources, valid or not.
    pub fn has_token(&self, headers: &HeaderMap) -> bool {
        self.sources.iter().any(|source| find_token(headers, source.field()).is_some())
    }

    /// Why the request's token for the `nth` token source is refused, or which claim a valid one lacks.
    pub(in crate::identity) fn explain_failure(&self, nth: usize, headers: &HeaderMap) -> TokenError {
        let Some(source) = self.sources.get(nth) else { return TokenError::Absent };
        let Some(token) = find_token(headers, source.field()) else { return TokenError::Absent };
        let Some(keys) = source.keys() else { return TokenError::NoKeySet };
        source
            .verify(token, &keys)
            .err()
            .unwrap_or_else(|| TokenError::MissingClaim(source.claim().to_owned()))
    }

    /// Rereads the key files that have changed. Blocks: not for a worker's thread.
    pub fn reload_changed_keys(&self) {
        self.sources.iter().for_each(TokenSource::reload_keys_if_changed);
    }
}

fn reload_until_dropped(verifier: &Weak<Verifier>) {
    loop {
        thread::sleep(RELOAD_INTERVAL);
        match verifier.upgrade() {
            Some(verifier) => verifier.reload_changed_keys(),
            None => return,
        }
    }
}
