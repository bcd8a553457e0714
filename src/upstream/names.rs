//! Names of endpoints, and the addresses that they have: resolved again as their TTL says, by one thread for all upstreams.

use std::{
    fmt, io,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::{
    SharedUpstream,
    resolver::{Answer, Resolver},
};
use crate::{config::model, telemetry::metrics::ResolutionFacts};

/// How long addresses hold: what their TTL says, within these bounds. Docker says ten minutes, while containers move.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

/// How often the thread looks for names that are new.
const INTERVAL: Duration = Duration::from_secs(1);

/// Notified when a name is wanted before its time. There is one thread that resolves.
static WANTED: Notify = Notify::const_new();

/// A name that requests are sent to.
pub(super) struct Name {
    name: String,
    state: Mutex<NameState>,
    /// Counts the attempts to resolve it that have ended.
    attempts: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct NameState {
    /// By version of IP: what was found last.
    addresses: [Vec<IpAddr>; 2],
    facts: ResolutionFacts,
    /// When it is to be resolved again. `None`: now.
    next: Option<Instant>,
    /// When the last attempt began.
    began: Option<Instant>,
    is_under_way: bool,
    /// It is wanted before its time.
    is_wanted: bool,
}

impl Name {
    pub(super) fn new(name: &str) -> Arc<Self> {
        let (attempts, _) = watch::channel(0);
        WANTED.notify_one();
        Arc::new(Self { name: name.to_owned(), state: Mutex::default(), attempts })
    }

    pub(super) fn as_str(&self) -> &str {
        &self.name
    }

    /// The addresses that were found last.
    pub(super) fn known(&self) -> Vec<IpAddr> {
        self.state.lock().addresses.concat()
    }

    pub(super) fn facts(&self) -> ResolutionFacts {
        self.state.lock().facts.clone()
    }

    /// Its addresses, or if there are none, what the next attempt finds: at most one a second.
    ///
    /// # Errors
    /// That attempt failed, or the one before it just now.
    pub(super) async fn addresses(&self) -> io::Result<Vec<IpAddr>> {
        let mut attempts = self.attempts.subscribe();
        let is_new = {
            let state = self.state.lock();
            let failed_lately = state.began.is_some_and(|began| began.elapsed() < SHORTEST);
            state.is_under_way || !failed_lately
        };
        if is_new && self.known().is_empty() {
            self.want();
            // An error would mean that this name is gone.
            let _ended = attempts.changed().await;
        }
        match self.known() {
            known if known.is_empty() => {
                let error = self.facts().error.unwrap_or_else(|| "it was not resolved yet".to_owned());
                Err(io::Error::other(format!("the name {} has no address: {error}", self.name)))
            }
            known => Ok(known),
        }
    }

    /// Has it resolved at once, or a second after the last attempt.
    pub(super) fn want(&self) {
        let mut state = self.state.lock();
        if !state.is_under_way && !state.is_wanted {
            state.is_wanted = true;
            WANTED.notify_one();
        }
    }

    /// Begins an attempt, if it is time for one.
    ///
    /// # Errors
    /// When it is. `None`: one is under way.
    fn begin(&self, now: Instant) -> Result<(), Option<Instant>> {
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

    /// Takes what an attempt has found: a version of IP that could not be asked for keeps its addresses, and all of them stay
    /// where the name has none any more.
    fn end(&self, answers: [Answer; 2], now: Instant) -> NameChange {
        let mut state = self.state.lock();
        let before = state.addresses.concat();
        let found = answers.iter().any(|answer| matches!(answer, Answer::Addresses(..)));
        // That it has no address of one version of IP is no error.
        let error = answers.iter().find_map(|answer| match answer {
            Answer::Failed(error) => Some(error.clone()),
            Answer::None(why) if !found => Some(why.clone()),
            _ => None,
        });
        let mut until = now + if error.is_some() || !found { SHORTEST } else { LONGEST };
        for (addresses, answer) in state.addresses.iter_mut().zip(answers) {
            match answer {
                Answer::Addresses(found, valid_until) => {
                    *addresses = found;
                    until = until.min(valid_until);
                }
                Answer::None(_) if found => addresses.clear(),
                Answer::None(_) | Answer::Failed(_) => {}
            }
        }
        let next = until.max(now + SHORTEST);
        state.next = Some(next);
        state.is_under_way = false;
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

/// What an attempt to resolve a name has changed.
struct NameChange {
    /// The addresses that it has now.
    addresses: Vec<IpAddr>,
    /// They are others than before.
    is_moved: bool,
    /// Why the attempt failed, unless the one before it failed likewise.
    error: Option<String>,
    /// The attempt before failed, and this one has not.
    is_mended: bool,
}

impl NameChange {
    fn announce(&self, upstream: &str, name: &str) {
        let addresses = self.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        match &self.error {
            Some(error) if self.addresses.is_empty() => {
                tracing::error!("upstream {upstream}: no request can be sent to {name}: {error}");
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

/// Resolves the names of all upstreams, each when it is due, as long as the process lives. `in_force` tells the upstreams, and
/// who is asked.
pub(super) async fn keep_resolved(in_force: impl Fn() -> (Vec<Arc<SharedUpstream>>, model::Resolver)) {
    let mut resolver = Resolver::default();
    loop {
        let (upstreams, settings) = in_force();
        resolver.follow(&settings);
        let now = Instant::now();
        let mut wake = now + INTERVAL;
        for upstream in upstreams {
            for name in upstream.names() {
                match name.begin(now) {
                    Ok(()) => {
                        let (upstream, lookup) = (Arc::clone(&upstream), resolver.lookup(name.as_str()));
                        tokio::task::spawn_local(async move {
                            let answers = lookup.await;
                            let change = name.end(answers, Instant::now());
                            change.announce(&upstream.config.name, name.as_str());
                            upstream.name_resolved(&name);
                        });
                    }
                    Err(Some(due)) => wake = wake.min(due),
                    Err(None) => {}
                }
            }
        }
        tokio::select! {
            () = WANTED.notified() => {}
            () = tokio::time::sleep_until(wake.into()) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(all: &[&str], ttl: Duration, now: Instant) -> Answer {
        Answer::Addresses(all.iter().map(|address| address.parse().unwrap()).collect(), now + ttl)
    }

    fn none() -> Answer {
        Answer::None("there is none".into())
    }

    fn failed() -> Answer {
        Answer::Failed("no server answers".into())
    }

    fn known(name: &Name) -> Vec<String> {
        name.known().iter().map(ToString::to_string).collect()
    }

    impl Name {
        /// As if an attempt had found these.
        pub(in crate::upstream) fn found(&self, all: &[&str]) {
            let (v6, v4): (Vec<&str>, Vec<&str>) = all.iter().partition(|address| address.contains(':'));
            let now = Instant::now();
            self.end([v4, v6].map(|all| addresses(&all, LONGEST, now)), now);
        }
    }

    #[test]
    fn what_was_found_stays_until_something_else_is() {
        let (name, now) = (Name::new("db"), Instant::now());
        let second = Duration::from_secs(1);
        name.end([none(), none()], now);
        assert!(name.known().is_empty());
        name.end([addresses(&["10.0.0.1"], second, now), addresses(&["::1"], second, now)], now);
        name.end([failed(), addresses(&["::2"], second, now)], now);
        assert_eq!(known(&name), ["10.0.0.1", "::2"]);
        assert_eq!(name.facts().error.unwrap(), "no server answers");
        name.end([addresses(&["10.0.0.2"], second, now), none()], now);
        assert_eq!((known(&name), name.facts().error), (vec!["10.0.0.2".to_owned()], None));
        for lost in [[none(), none()], [failed(), failed()], [failed(), none()]] {
            name.end(lost, now);
            assert_eq!(known(&name), ["10.0.0.2"]);
            assert!(name.facts().error.is_some());
        }
    }

    #[test]
    fn a_name_is_due_when_its_ttl_ends_within_bounds_and_at_once_where_it_is_wanted() {
        let (name, now) = (Name::new("db"), Instant::now());
        let seconds = Duration::from_secs;
        for (ttl, due) in [(0, 1), (7, 7), (600, 30)] {
            assert_eq!(name.begin(now), Ok(()));
            assert_eq!(name.begin(now), Err(None), "it is under way");
            name.end([addresses(&["10.0.0.1"], seconds(ttl), now), none()], now);
            assert_eq!(name.begin(now), Err(Some(now + seconds(due))));
            name.state.lock().next = None;
        }
        assert_eq!(name.begin(now), Ok(()));
        name.end([addresses(&["10.0.0.1"], seconds(20), now), none()], now);
        name.want();
        assert_eq!(name.begin(now), Err(Some(now + seconds(1))), "a second after the last attempt");
        assert_eq!(name.begin(now + seconds(1)), Ok(()));
        name.end([failed(), failed()], now + seconds(1));
        assert_eq!(name.begin(now + seconds(1)), Err(Some(now + seconds(2))), "soon after a failure");
    }
}
