//! Names of endpoints and their addresses. One thread resolves the names of all upstreams, again and again, according
//! to their TTL.

use std::{
    collections::HashMap,
    fmt, io,
    net::IpAddr,
    sync::{Arc, LazyLock, Weak},
    time::{Duration, Instant, SystemTime},
};

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    time::timeout_at,
};

use super::resolver::{FamilyResult, ResolvedName};
use crate::{config::model::format_duration, telemetry::metrics::ResolutionFacts};

/// Bounds for the TTL of addresses. Docker's DNS has a TTL of ten minutes, although containers move.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

/// After a failure, a name is resolved again in a second. Each further failure doubles this pause, up to this limit.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The most addresses in a line of the log.
const SHOWN: usize = 10;

/// Notified when a name is to be resolved early. Only one thread resolves.
pub(super) static WANTED: Notify = Notify::const_new();

/// All names in use. A reload that replaces an upstream must not forget the addresses of its names.
static NAMES: LazyLock<Mutex<HashMap<String, Weak<Name>>>> = LazyLock::new(Mutex::default);

/// A name of an endpoint.
pub(super) struct Name {
    name: String,
    state: Mutex<NameState>,
    /// Counts attempts to resolve it that have ended, or that have found a first address.
    attempts: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct NameState {
    /// By version of IP: the addresses found last.
    addresses: [Vec<IpAddr>; 2],
    /// Addresses that the current attempt has found so far, for requests that wait for it.
    early: Vec<IpAddr>,
    /// The full name of these addresses, if they are from DNS.
    full_name: Option<String>,
    facts: ResolutionFacts,
    /// Attempts in a row that have failed.
    failures: u32,
    /// When it is to be resolved again. `None`: now.
    next: Option<Instant>,
    /// When the last attempt began.
    began: Option<Instant>,
    is_under_way: bool,
    /// Whether it is to be resolved early.
    is_wanted: bool,
}

impl Name {
    fn new(name: &str) -> Arc<Self> {
        let (attempts, _) = watch::channel(0);
        Arc::new(Self { name: name.to_owned(), state: Mutex::default(), attempts })
    }

    /// The name in use, or else a new one.
    pub(super) fn in_use(name: &str) -> Arc<Self> {
        let mut names = NAMES.lock();
        if let Some(known) = names.get(name).and_then(Weak::upgrade) {
            return known;
        }
        names.retain(|_, known| known.strong_count() > 0);
        let new = Self::new(name);
        names.insert(name.to_owned(), Arc::downgrade(&new));
        WANTED.notify_one();
        new
    }

    pub(super) fn as_str(&self) -> &str {
        &self.name
    }

    /// The addresses found last.
    pub(super) fn known(&self) -> Vec<IpAddr> {
        self.state.lock().addresses.concat()
    }

    pub(super) fn facts(&self) -> ResolutionFacts {
        self.state.lock().facts.clone()
    }

    /// Its addresses. If there are none yet, waits for the first attempt to resolve it, until `within` after its start.
    /// Later attempts make no request wait.
    ///
    /// # Errors
    /// The name has no address.
    pub(super) async fn addresses(&self, within: Duration) -> io::Result<Vec<IpAddr>> {
        let mut attempts = self.attempts.subscribe();
        if *attempts.borrow_and_update() == 0 {
            let began = self.state.lock().began.unwrap_or_else(Instant::now);
            // An error would mean that the attempt is late, or that this name was dropped.
            let _ended = timeout_at((began + within).into(), attempts.changed()).await;
        }
        let found = {
            let state = self.state.lock();
            let known = state.addresses.concat();
            if known.is_empty() { state.early.clone() } else { known }
        };
        match found {
            found if found.is_empty() => {
                let error = self.facts().error;
                let error = error.unwrap_or_else(|| format!("no answer within {}", format_duration(within)));
                Err(io::Error::other(format!("the name {} has no address: {error}", self.name)))
            }
            found => Ok(found),
        }
    }

    /// Requests an early attempt: now, or a second after the start of the last one.
    pub(super) fn want(&self) {
        let mut state = self.state.lock();
        if !state.is_under_way && !state.is_wanted {
            state.is_wanted = true;
            WANTED.notify_one();
        }
    }

    /// Begins an attempt, if one is due.
    ///
    /// # Errors
    /// When it is due. `None`: an attempt is in progress.
    pub(super) fn begin(&self, now: Instant) -> Result<(), Option<Instant>> {
        let mut state = self.state.lock();
        if state.is_under_way {
            return Err(None);
        }
        let at_once = state.began.map_or(now, |began| began + SHORTEST);
        let due = if state.is_wanted { at_once } else { state.next.unwrap_or(now) };
        if now < due {
            return Err(Some(due));
        }
        (state.is_under_way, state.is_wanted, state.began) = (true, false, Some(now));
        Ok(())
    }

    /// The full name of its addresses, if they are from DNS.
    pub(super) fn full_name(&self) -> Option<String> {
        self.state.lock().full_name.clone()
    }

    /// Hands the addresses found so far to requests that wait for the attempt.
    pub(super) fn found_early(&self, addresses: Vec<IpAddr>) {
        self.state.lock().early = addresses;
        self.attempts.send_modify(|attempts| *attempts += 1);
    }

    /// Stores the result of an attempt. A version of IP whose lookup failed keeps its addresses, and if the name has no
    /// address at all any more, all are kept.
    pub(super) fn end(&self, ResolvedName { full_name, results }: ResolvedName, now: Instant) -> NameChange {
        let mut state = self.state.lock();
        let before = state.addresses.concat();
        let found = results.iter().any(|result| matches!(result, FamilyResult::Addresses(..)));
        // No address in one version of IP is not an error.
        let error = results.iter().zip(["IPv4", "IPv6"]).find_map(|(result, version)| match result {
            FamilyResult::Failed(error) if found => {
                Some(format!("its {version} addresses are unknown: {error}"))
            }
            FamilyResult::Failed(error) => Some(error.clone()),
            FamilyResult::None(why) if !found => Some(why.clone()),
            _ => None,
        });
        let longest = match error {
            None => LONGEST,
            Some(_) => SHORTEST.saturating_mul(1 << state.failures.min(8)).min(LONGEST_PAUSE),
        };
        state.failures = if error.is_some() { state.failures.saturating_add(1) } else { 0 };
        let mut until = now + longest;
        if found && state.full_name != full_name {
            // Addresses of two names must not be mixed.
            state.addresses = Default::default();
            state.full_name = full_name;
        }
        for (addresses, result) in state.addresses.iter_mut().zip(results) {
            match result {
                FamilyResult::Addresses(found, valid_until) => {
                    *addresses = found;
                    until = until.min(valid_until);
                }
                FamilyResult::None(_) if found => addresses.clear(),
                FamilyResult::None(_) | FamilyResult::Failed(_) => {}
            }
        }
        let next = until.max(now + SHORTEST);
        state.next = Some(next);
        state.is_under_way = false;
        state.early.clear();
        let system_now = SystemTime::now();
        let error_before = std::mem::replace(&mut state.facts.error, error);
        state.facts.next = system_now.checked_add(next - now);
        if found {
            state.facts.resolved = Some(system_now);
        }
        let addresses = state.addresses.concat();
        let change = NameChange {
            is_moved: before != addresses,
            error: state.facts.error.clone().filter(|error| error_before.as_ref() != Some(error)),
            is_mended: error_before.is_some() && state.facts.error.is_none(),
            addresses,
        };
        drop(state);
        self.attempts.send_modify(|attempts| *attempts += 1);
        change
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Name").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The change after an attempt to resolve a name.
pub(super) struct NameChange {
    /// Its current addresses.
    addresses: Vec<IpAddr>,
    /// Whether they have changed.
    is_moved: bool,
    /// Why the attempt failed, unless the previous one failed for the same reason.
    error: Option<String>,
    /// Whether the previous attempt failed, and this one did not.
    is_mended: bool,
}

impl NameChange {
    pub(super) fn announce(&self, upstream: &str, name: &str) {
        let shown = self.addresses.iter().take(SHOWN).map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let addresses = match self.addresses.len().saturating_sub(SHOWN) {
            0 => shown,
            more => format!("{shown} and {more} more"),
        };
        match &self.error {
            Some(error) if self.addresses.is_empty() => {
                tracing::error!("upstream {upstream}: no request can be sent to {name}: {error}");
            }
            // Only the addresses of one version of IP were found.
            Some(error) if self.is_moved => {
                tracing::warn!("upstream {upstream}: {name} has the addresses {addresses}, and {error}");
            }
            Some(error) => {
                tracing::warn!(
                    "upstream {upstream}: {name} was not resolved again, and keeps {addresses}: {error}"
                );
            }
            None if self.is_moved => {
                tracing::info!("upstream {upstream}: {name} has the addresses {addresses}");
            }
            None if self.is_mended => {
                tracing::info!("upstream {upstream}: {name} is resolved again: {addresses}");
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(all: &[&str], ttl: Duration, now: Instant) -> FamilyResult {
        FamilyResult::Addresses(all.iter().map(|address| address.parse().unwrap()).collect(), now + ttl)
    }

    fn none() -> FamilyResult {
        FamilyResult::None("there is none".into())
    }

    fn failed() -> FamilyResult {
        FamilyResult::Failed("no server answers".into())
    }

    fn resolved(results: [FamilyResult; 2]) -> ResolvedName {
        ResolvedName { full_name: None, results }
    }

    fn known(name: &Name) -> Vec<String> {
        name.known().iter().map(ToString::to_string).collect()
    }

    impl Name {
        /// Sets these addresses, as an attempt would.
        pub(in crate::upstream) fn found(&self, all: &[&str]) {
            let (v6, v4): (Vec<&str>, Vec<&str>) = all.iter().partition(|address| address.contains(':'));
            let now = Instant::now();
            self.end(resolved([v4, v6].map(|all| addresses(&all, LONGEST, now))), now);
        }
    }

    #[test]
    fn addresses_stay_until_others_are_found() {
        let (name, now) = (Name::new("db"), Instant::now());
        let second = Duration::from_secs(1);
        let end = |results| drop(name.end(resolved(results), now));
        end([none(), none()]);
        assert!(name.known().is_empty());
        end([addresses(&["10.0.0.1"], second, now), addresses(&["::1"], second, now)]);
        end([failed(), addresses(&["::2"], second, now)]);
        assert_eq!(known(&name), ["10.0.0.1", "::2"]);
        assert_eq!(name.facts().error.unwrap(), "its IPv4 addresses are unknown: no server answers");
        end([addresses(&["10.0.0.2"], second, now), none()]);
        assert_eq!((known(&name), name.facts().error), (vec!["10.0.0.2".to_owned()], None));
        for lost in [[none(), none()], [failed(), failed()], [failed(), none()]] {
            end(lost);
            assert_eq!(known(&name), ["10.0.0.2"]);
            assert!(name.facts().error.is_some());
        }
    }

    #[test]
    fn addresses_of_two_full_names_are_never_mixed() {
        let (name, now) = (Name::new("db"), Instant::now());
        let of = |full_name: &str, results| ResolvedName { full_name: Some(full_name.to_owned()), results };
        let found = |address: &str| addresses(&[address], LONGEST, now);
        name.end(of("db.one.", [found("10.0.0.1"), found("::1")]), now);
        name.end(of("db.one.", [failed(), found("::2")]), now);
        assert_eq!(known(&name), ["10.0.0.1", "::2"]);
        name.end(of("db.two.", [found("10.0.0.3"), failed()]), now);
        assert_eq!(known(&name), ["10.0.0.3"]);
    }

    #[test]
    fn a_name_is_due_when_its_ttl_ends_within_bounds_and_at_once_where_it_is_wanted() {
        let (name, now) = (Name::new("db"), Instant::now());
        let seconds = Duration::from_secs;
        let found = |ttl, now| resolved([addresses(&["10.0.0.1"], seconds(ttl), now), none()]);
        for (ttl, due) in [(0, 1), (7, 7), (600, 30)] {
            assert_eq!(name.begin(now), Ok(()));
            assert_eq!(name.begin(now), Err(None), "it is under way");
            name.end(found(ttl, now), now);
            assert_eq!(name.begin(now), Err(Some(now + seconds(due))));
            name.state.lock().next = None;
        }
        assert_eq!(name.begin(now), Ok(()));
        name.end(found(20, now), now);
        name.want();
        assert_eq!(name.begin(now), Err(Some(now + seconds(1))), "a second after the last attempt");
        let mut now = now + seconds(1);
        for pause in [1, 2, 4, 5, 5] {
            assert_eq!(name.begin(now), Ok(()));
            name.end(resolved([failed(), failed()]), now);
            assert_eq!(name.begin(now), Err(Some(now + seconds(pause))), "pauses grow");
            now += seconds(pause);
        }
        assert_eq!(name.begin(now), Ok(()));
        name.end(found(20, now), now);
        assert_eq!(name.begin(now), Err(Some(now + seconds(20))));
    }

    #[tokio::test]
    async fn nobody_waits_for_more_than_the_first_attempt() {
        let (name, within) = (Name::new("db"), Duration::from_millis(200));
        let elapsed = async || {
            let began = Instant::now();
            (name.addresses(within).await.unwrap_err().to_string(), began.elapsed())
        };
        let late = "the name db has no address: no answer within 200ms";
        let (error, waited) = elapsed().await;
        assert!(error == late && waited >= within, "{error} {waited:?}");
        name.begin(Instant::now().checked_sub(within).unwrap()).unwrap();
        let (error, waited) = elapsed().await;
        assert!(error == late && waited < within, "{error} {waited:?}");
        name.end(resolved([none(), none()]), Instant::now());
        let (error, waited) = elapsed().await;
        assert!(
            error == "the name db has no address: there is none" && waited < within,
            "{error} {waited:?}"
        );
    }

    #[test]
    fn upstreams_share_a_name() {
        let name = Name::in_use("shared.test");
        name.found(&["10.0.0.1"]);
        assert_eq!(known(&Name::in_use("shared.test")), ["10.0.0.1"]);
        drop(name);
        assert!(Name::in_use("shared.test").known().is_empty(), "nobody had it any more");
    }
}
