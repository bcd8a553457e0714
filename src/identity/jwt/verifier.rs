//! Verifies the tokens of requests.

use std::{
    io,
    sync::{Arc, Weak},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use http::HeaderMap;
use smallvec::SmallVec;

use super::{
    cache::TokenCache,
    key_file::UnusableKeys,
    token::{TokenError, TokenIdentity, find_token},
    token_source::TokenSource,
};
use crate::config::model::UserSource;

/// How often key files are checked for changes.
const RELOAD_INTERVAL: Duration = Duration::from_secs(1);

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
    /// Reads the keys of the token sources among `sources`.
    ///
    /// # Errors
    /// A file can't be read, or contains no key for its source.
    pub fn new(sources: &[UserSource]) -> Result<Self, UnusableKeys> {
        let token_sources = sources.iter().filter_map(|source| match source {
            UserSource::Jwt(jwt) => Some(TokenSource::new(jwt.clone())),
            _ => None,
        });
        Ok(Self { sources: token_sources.collect::<Result<_, _>>()?, cache: TokenCache::default() })
    }

    /// Checks the key files for changes once a second, while the verifier is in use. New keys invalidate cached tokens;
    /// a broken file changes nothing.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn watch_key_files(self: &Arc<Self>) -> io::Result<()> {
        if self.sources.is_empty() {
            return Ok(());
        }
        let verifier = Arc::downgrade(self);
        thread::Builder::new().name("keys".into()).spawn(move || reload_until_dropped(&verifier))?;
        Ok(())
    }

    /// The request's valid token for each token source, in the configuration's order.
    pub(in crate::identity) fn verify(&self, headers: &HeaderMap) -> SmallVec<[Option<TokenIdentity>; 1]> {
        if self.sources.is_empty() {
            return SmallVec::new();
        }
        let now = unix_seconds();
        let mut tokens = SmallVec::new();
        for (index, source) in self.sources.iter().enumerate() {
            let token = find_token(headers, source.field());
            tokens.push(token.and_then(|token| self.cache.verify(source, index, token, now)));
        }
        tokens
    }

    /// Whether the request has a token for one of the sources, valid or not.
    pub fn has_token(&self, headers: &HeaderMap) -> bool {
        self.sources.iter().any(|source| find_token(headers, source.field()).is_some())
    }

    /// Why the request's token for the `nth` token source is refused, or which claim a valid one lacks.
    pub(in crate::identity) fn explain_failure(&self, nth: usize, headers: &HeaderMap) -> TokenError {
        let Some(source) = self.sources.get(nth) else { return TokenError::Absent };
        let Some(token) = find_token(headers, source.field()) else { return TokenError::Absent };
        source
            .verify(token, &source.keys())
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

/// The system time, which tokens refer to.
fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
