//! The current keys of a provider, and the fetch that a token may ask for.

use std::{
    fmt, io,
    net::IpAddr,
    sync::{Arc, Weak},
    thread,
    time::{Duration, Instant, SystemTime},
};

use parking_lot::{Condvar, Mutex, RwLock};
use sha2::{Digest, Sha256};
use tokio::{
    runtime::{Builder, Runtime},
    sync::watch,
    time::{sleep, timeout, timeout_at},
};
use url::Url;

use super::{
    fetch::{FetchError, FetchedSet, KeySetClient},
    timing::KeySetTiming,
    waiting::WaitingRequests,
};
use crate::{
    config::model::Jwt,
    identity::jwt::CurrentKeys,
    jwt_keys::{JwtAlgorithm, JwtKeys, KeyError},
    telemetry::metrics::KeySetFacts,
};

/// Where a provider's key set is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::identity::jwt) enum KeySetSource {
    Url(Url),
    /// Named by the metadata of this issuer.
    Issuer(String),
}

/// The URL of the set, or of the issuer.
impl fmt::Display for KeySetSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => url.fmt(f),
            Self::Issuer(issuer) => issuer.fmt(f),
        }
    }
}

impl KeySetSource {
    /// `None`: the keys are in a file.
    pub(in crate::identity::jwt) fn of(jwt: &Jwt) -> Option<Self> {
        let issuer = || jwt.issuer.clone().filter(|_| jwt.discover).map(Self::Issuer);
        jwt.jwks.clone().map(Self::Url).or_else(issuer)
    }
}

/// Why a key set can't be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum SetError {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("fetching it takes longer than {0:?}")]
    TimedOut(Duration),
    #[error("the key set {0}")]
    Keys(#[from] KeyError),
}

/// The key set of a provider. All token sources with the same settings share one.
pub(in crate::identity::jwt) struct KeySet {
    source: KeySetSource,
    algorithm: Option<JwtAlgorithm>,
    /// How long the keys are used after they have grown old.
    stale: Duration,
    timing: KeySetTiming,
    /// `None`: no set was read so far, or the last one is too old.
    current: RwLock<Option<CurrentKeys>>,
    state: Mutex<SetState>,
    /// Tells that the first fetch has ended.
    first_ended: Condvar,
    /// How many fetches tokens have asked for.
    asked: watch::Sender<u64>,
    /// How many of them have ended.
    answered: watch::Sender<u64>,
    waiting: WaitingRequests,
}

#[derive(Default)]
struct SetState {
    /// How often the keys were replaced.
    generation: u64,
    digest: Option<[u8; 32]>,
    keys: usize,
    fetched: Option<SystemTime>,
    /// When the keys are too old, by the monotonic clock and by wall time. The first of them counts: only wall time
    /// includes the time in which the machine was suspended, and only wall time can be set back.
    expiry: Option<(Instant, SystemTime)>,
    /// Why the last fetch failed.
    error: Option<String>,
    /// Failures in a row.
    failures: u32,
    /// Fetches that succeeded, and that failed.
    fetches: [u64; 2],
    last_ask: Option<Instant>,
}

impl SetState {
    /// How long the keys are not too old yet.
    fn usable_for(&self) -> Option<Duration> {
        let (expiry, by_wall) = self.expiry?;
        let by_wall = by_wall.duration_since(SystemTime::now()).unwrap_or_default();
        let left = expiry.saturating_duration_since(Instant::now()).min(by_wall);
        (left > Duration::ZERO).then_some(left)
    }
}

impl KeySet {
    /// Begins to fetch the key set.
    ///
    /// # Errors
    /// There is no thread for it.
    pub(in crate::identity::jwt) fn open(
        source: KeySetSource,
        jwt: &Jwt,
        timing: KeySetTiming,
    ) -> io::Result<Arc<Self>> {
        let set = Arc::new(Self {
            source,
            algorithm: jwt.algorithm,
            stale: jwt.stale(),
            timing,
            current: RwLock::default(),
            state: Mutex::default(),
            first_ended: Condvar::new(),
            asked: watch::Sender::new(0),
            answered: watch::Sender::new(0),
            waiting: WaitingRequests::default(),
        });
        spawn(&set)?;
        Ok(set)
    }

    /// Whether these settings need no other set.
    pub(in crate::identity::jwt) fn serves(&self, source: &KeySetSource, jwt: &Jwt) -> bool {
        self.source == *source && self.algorithm == jwt.algorithm && self.stale == jwt.stale()
    }

    pub(in crate::identity::jwt) fn source(&self) -> &KeySetSource {
        &self.source
    }

    pub(super) fn timing(&self) -> &KeySetTiming {
        &self.timing
    }

    /// The current keys. `None`: no set was read so far, or the last one is too old.
    pub(in crate::identity::jwt) fn current(&self) -> Option<CurrentKeys> {
        self.current.read().clone()
    }

    /// Why no set was read so far. `None`: one was.
    pub(in crate::identity::jwt) fn unread(&self) -> Option<String> {
        let state = self.state.lock();
        let reason = || state.error.clone().unwrap_or_else(|| "the first fetch has not ended yet".to_owned());
        state.fetched.is_none().then(reason)
    }

    /// Waits for the end of the first fetch. Blocks: not for a worker's thread.
    pub(in crate::identity::jwt) fn wait_for_first(&self) {
        let mut state = self.state.lock();
        self.first_ended.wait_while_for(&mut state, |state| state.fetches == [0, 0], self.timing.first);
    }

    /// Asks for a fetch, unless one was asked for a short time ago, and waits for its end, or for that of the fetch
    /// that another token has asked for. Returns whether it has ended: the keys that there are tell all about the token.
    pub(in crate::identity::jwt) async fn ask(&self, address: IpAddr, end: Option<Instant>) -> bool {
        let Some(_waiting) = self.waiting.enter(address) else { return false };
        let Some((number, deadline)) = self.begin_ask() else { return false };
        let mut answered = self.answered.subscribe();
        let deadline = end.map_or(deadline, |end| end.min(deadline));
        if deadline <= Instant::now() {
            // A timer takes a millisecond at least.
            return *self.answered.borrow() >= number;
        }
        timeout_at(deadline.into(), answered.wait_for(|answered| *answered >= number)).await.is_ok()
    }

    /// The number of the fetch to wait for, and until when. `None`: there was one a short time ago, and the next is due.
    fn begin_ask(&self) -> Option<(u64, Instant)> {
        let mut state = self.state.lock();
        let (now, asked) = (Instant::now(), *self.asked.borrow());
        // A fetch may be under way when another one is asked for.
        let limit = 2 * self.timing.fetch;
        match state.last_ask {
            Some(last) if now.duration_since(last) < self.timing.ask || *self.answered.borrow() < asked => {
                let deadline = last + limit;
                (*self.answered.borrow() < asked && now < deadline).then_some((asked, deadline))
            }
            _ => {
                state.last_ask = Some(now);
                self.asked.send_replace(asked + 1);
                Some((asked + 1, now + limit))
            }
        }
    }

    /// Whether a token of this client that nobody could judge counts for nothing. So many do until the next fetch ends.
    pub(in crate::identity::jwt) fn excuses(&self, address: IpAddr) -> bool {
        self.waiting.excuse(address)
    }

    /// Receives the number of each fetch that is asked for.
    pub(super) fn asks(&self) -> watch::Receiver<u64> {
        self.asked.subscribe()
    }

    /// Notes the result of a fetch, which began after as many as `asked` were asked for. Returns when the next one is
    /// due.
    pub(super) fn fetched(&self, fetched: Result<FetchedSet, SetError>, asked: u64) -> Duration {
        let read = fetched.and_then(|set| {
            let digest = Sha256::digest(&set.body).into();
            let keys = JwtKeys::read_published(&set.body, self.algorithm)?;
            Ok((keys, digest, self.timing.lifetime(&set.headers)))
        });
        let mut state = self.state.lock();
        let pause = match read {
            Ok((keys, digest, lifetime)) => {
                self.succeeded(&mut state, keys, digest, lifetime);
                KeySetTiming::refresh_after(lifetime)
            }
            Err(error) => self.failed(&mut state, &error.to_string()),
        };
        drop(state);
        self.first_ended.notify_all();
        if self.answered.send_replace(asked) < asked {
            self.waiting.forget_excused();
        }
        pause
    }

    fn succeeded(&self, state: &mut SetState, keys: JwtKeys, digest: [u8; 32], lifetime: Duration) {
        let source = &self.source;
        state.fetches[0] += 1;
        state.failures = 0;
        state.fetched = Some(SystemTime::now());
        let usable = lifetime.saturating_add(self.stale);
        state.expiry = Instant::now().checked_add(usable).zip(SystemTime::now().checked_add(usable));
        if state.error.take().is_some() {
            tracing::info!(%source, "the JWT keys of {source} can be fetched again");
        }
        // The cache of verified tokens is void with another generation.
        let mut current = self.current.write();
        if current.is_some() && state.digest == Some(digest) {
            return;
        }
        for ignored in keys.ignored() {
            tracing::warn!(%source, "of the JWT keys of {source}, {ignored}");
        }
        tracing::info!(%source, keys = keys.count(), "the JWT keys of {source} were fetched");
        (state.digest, state.keys) = (Some(digest), keys.count());
        state.generation += 1;
        *current = Some(CurrentKeys { keys: Arc::new(keys), generation: state.generation });
    }

    /// Returns when to try again, or when the keys are too old.
    fn failed(&self, state: &mut SetState, error: &str) -> Duration {
        let source = &self.source;
        state.fetches[1] += 1;
        state.failures = state.failures.saturating_add(1);
        let is_known = state.error.as_deref() == Some(error);
        state.error = Some(error.to_owned());
        let retry = self.timing.retry_after(state.failures);
        match state.usable_for() {
            Some(left) => {
                if !is_known {
                    tracing::warn!(%source, "the previous JWT keys of {source} stay in use: {error}");
                }
                retry.min(left)
            }
            None => {
                let had_keys = self.current.write().take().is_some();
                state.keys = 0;
                if had_keys {
                    tracing::error!(%source, "the JWT keys of {source} are too old to be used any more: {error}");
                } else if !is_known {
                    tracing::error!(%source, "the JWT keys of {source} can't be fetched: {error}");
                }
                retry
            }
        }
    }

    /// The state of the set.
    pub(in crate::identity::jwt) fn facts(&self) -> KeySetFacts {
        let state = self.state.lock();
        let usable_until = state.usable_for().and_then(|left| SystemTime::now().checked_add(left));
        KeySetFacts {
            source: self.source.to_string(),
            keys: state.keys as u64,
            fetched: state.fetched,
            usable_until: usable_until.filter(|_| state.keys > 0),
            error: state.error.clone(),
            fetches: state.fetches,
        }
    }
}

/// Starts the thread that fetches a key set, as long as the set is in use.
///
/// # Errors
/// There is no thread or no runtime for it.
fn spawn(set: &Arc<KeySet>) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let client = KeySetClient::new().map_err(io::Error::other)?;
    let (asks, set) = (set.asks(), Arc::downgrade(set));
    thread::Builder::new().name("key-set".into()).spawn(move || run(runtime, &client, &set, asks))?;
    Ok(())
}

fn run(runtime: Runtime, client: &KeySetClient, set: &Weak<KeySet>, asks: watch::Receiver<u64>) {
    runtime.block_on(keep_fresh(client, set, asks));
    // A name may still be being resolved.
    runtime.shutdown_background();
}

/// Fetches the set whenever it is due or asked for. One fetch follows another: there are never two at a time.
async fn keep_fresh(client: &KeySetClient, set: &Weak<KeySet>, mut asks: watch::Receiver<u64>) {
    while let Some((source, limit)) = set.upgrade().map(|set| (set.source().clone(), set.timing().fetch)) {
        // A fetch that began before a token asked may lack the key that the token needs.
        let asked = *asks.borrow_and_update();
        let fetched = match timeout(limit, client.fetch(&source)).await {
            Ok(fetched) => fetched.map_err(SetError::from),
            Err(_) => Err(SetError::TimedOut(limit)),
        };
        let Some(pause) = set.upgrade().map(|set| set.fetched(fetched, asked)) else { return };
        tokio::select! {
            () = sleep(pause) => {}
            // Dropping the set closes the channel.
            changed = asks.changed() => if changed.is_err() { return },
        }
    }
}
