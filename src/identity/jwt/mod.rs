//! Users from JSON Web Tokens (RFC 7519): whose signature is wrong, or whose time has not come or is over, is
//! nobody.

mod cache;
mod doubt;
mod file;
mod source;
mod token;

use std::{
    io,
    sync::{Arc, Weak},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use compact_str::CompactString;
use http::HeaderMap;
use smallvec::SmallVec;

use super::claims::Claims;
use crate::config::model::UserSource;
use cache::Cache;
pub use doubt::Doubt;
pub use file::UnusableKeys;
use source::Source;

/// How often key files are looked at.
const EVERY: Duration = Duration::from_secs(1);

/// What a verified token says.
#[derive(Debug, Clone)]
pub(super) struct Verified {
    /// The claim that is the user ID, where the token has it.
    pub(super) user: Option<CompactString>,
    pub(super) claims: Arc<Claims>,
}

/// Verifies the tokens of all configured sources; one for the whole process.
///
/// A token counts if
/// - its field stands there once, with `Bearer` before it where it is `authorization`;
/// - its signature is right, by the algorithm that the configuration or the key set says: what the token says of
///   itself only picks among them;
/// - it has `exp`, and `exp` and `nbf`, give or take a minute for clocks that differ, let it count now. A token
///   that is good for ever could never be taken back;
/// - it names the issuer and the audience where the configuration has them;
/// - it demands nothing that is not known here (`crit`).
pub struct Verifier {
    sources: Vec<Source>,
    cache: Cache,
}

impl Verifier {
    /// Reads the keys of the tokens among `sources`.
    ///
    /// # Errors
    /// A file can't be read, or holds no key for its source.
    pub fn new(sources: &[UserSource]) -> Result<Self, UnusableKeys> {
        let of_tokens = sources.iter().filter_map(|source| match source {
            UserSource::Jwt(jwt) => Some(Source::new(jwt.clone())),
            _ => None,
        });
        Ok(Self { sources: of_tokens.collect::<Result<_, _>>()?, cache: Cache::default() })
    }

    /// Looks at the key files once a second from now on, as long as anybody holds the verifier. A new file counts
    /// from then on, for tokens that were seen before as well; one that is broken changes nothing.
    ///
    /// # Errors
    /// There is no thread left.
    pub fn watch(self: &Arc<Self>) -> io::Result<()> {
        if self.sources.is_empty() {
            return Ok(());
        }
        let verifier = Arc::downgrade(self);
        thread::Builder::new().name("keys".into()).spawn(move || keep_up(&verifier))?;
        Ok(())
    }

    /// For each source of tokens, in the configuration's order, what the request's token says.
    pub(super) fn verified(&self, headers: &HeaderMap) -> SmallVec<[Option<Verified>; 1]> {
        if self.sources.is_empty() {
            return SmallVec::new();
        }
        let now = unix_seconds();
        let mut verified = SmallVec::new();
        for (index, source) in self.sources.iter().enumerate() {
            let token = token::of(headers, source.field());
            verified.push(token.and_then(|token| self.cache.verified(source, index, token, now)));
        }
        verified
    }

    /// Why the request's token of the `nth` source of tokens does not count; or what claim it lacks, if it does.
    pub(super) fn doubt(&self, nth: usize, headers: &HeaderMap) -> Doubt {
        let Some(source) = self.sources.get(nth) else { return Doubt::Absent };
        let Some(token) = token::of(headers, source.field()) else { return Doubt::Absent };
        source.verify(token, &source.keys()).err().unwrap_or_else(|| Doubt::Lacks(source.claim().to_owned()))
    }

    fn look_at_files(&self) {
        self.sources.iter().for_each(Source::look_at_file);
    }
}

fn keep_up(verifier: &Weak<Verifier>) {
    loop {
        thread::sleep(EVERY);
        match verifier.upgrade() {
            Some(verifier) => verifier.look_at_files(),
            None => return,
        }
    }
}

/// By the machine's clock, which may be set at any time: that is what tokens go by.
fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
