//! The thread that looks at everything once a second.

use std::{
    io, mem,
    sync::{
        Arc, Weak,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
    thread,
    time::Instant,
};

use parking_lot::Mutex;

use super::{
    board::{Board, Change},
    facts::{Configured, Facts},
    health::Health,
    pace::Pace,
    rules::{self, Subject},
    tally::Tally,
    watch::Watch,
    window::Window,
};
use crate::{
    config::model::{AddressHeader, Config, KeyPart},
    telemetry::{Event, Events, metrics::Metrics},
};

/// The warnings that hold at the moment, besides those of the store itself. Cheap to clone: all are one.
#[derive(Debug, Clone, Default)]
pub struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    /// All of them, in words.
    pub fn list(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}

/// What workers count, and what comes of it. The thread ends when this is dropped.
#[derive(Debug)]
pub struct Practice {
    /// Of the configuration in force.
    ipv6_prefix: Arc<AtomicU8>,
    configured: Arc<Mutex<Configured>>,
    tallies: Arc<Mutex<Vec<Arc<Mutex<Tally>>>>>,
    warnings: Warnings,
}

impl Practice {
    /// The end that one worker counts with.
    pub fn watch(&self) -> Watch {
        let tally = Arc::<Mutex<Tally>>::default();
        self.tallies.lock().push(Arc::clone(&tally));
        Watch::new(Arc::clone(&self.ipv6_prefix), tally)
    }

    /// Goes by another configuration from now on.
    pub fn reconfigure(&self, config: &Config) {
        self.ipv6_prefix.store(config.client_address.ipv6_prefix, Relaxed);
        *self.configured.lock() = configured(config);
    }

    /// What was found.
    pub fn warnings(&self) -> Warnings {
        self.warnings.clone()
    }
}

/// Starts to look at what workers count and at what `metrics` knows of the store.
///
/// # Errors
/// There is no thread left.
pub fn attend(config: &Config, metrics: Arc<Metrics>, events: Events, pace: Pace) -> io::Result<Practice> {
    let practice = Practice {
        ipv6_prefix: Arc::new(config.client_address.ipv6_prefix.into()),
        configured: Arc::new(Mutex::new(configured(config))),
        tallies: Arc::default(),
        warnings: Warnings::default(),
    };
    let doctor = Doctor {
        tallies: Arc::downgrade(&practice.tallies),
        warnings: practice.warnings(),
        configured: Arc::clone(&practice.configured),
        metrics,
        events,
        pace,
    };
    thread::Builder::new().name("doctor".into()).spawn(move || doctor.look_on())?;
    Ok(practice)
}

fn configured(config: &Config) -> Configured {
    let mut keys = config.policies.iter().flat_map(|policy| &policy.keys).flat_map(|key| &key.0);
    Configured {
        limits_addresses: keys.any(|part| *part == KeyPart::Ip),
        trusts_proxies: !config.trusted_proxies.is_empty(),
        field: match &config.client_address.header {
            AddressHeader::XForwardedFor | AddressHeader::Forwarded => "X-Forwarded-For".to_owned(),
            AddressHeader::Single(name) => name.to_string(),
        },
    }
}

struct Doctor {
    tallies: Weak<Mutex<Vec<Arc<Mutex<Tally>>>>>,
    warnings: Warnings,
    configured: Arc<Mutex<Configured>>,
    metrics: Arc<Metrics>,
    events: Events,
    pace: Pace,
}

impl Doctor {
    /// Looks until nobody counts any more.
    fn look_on(self) {
        let (mut window, mut board, mut health) =
            (Window::default(), Board::new(self.pace), Health::default());
        loop {
            thread::sleep(self.pace.beat());
            let Some(sample) = self.sample() else { return };
            window.push(sample);
            let facts = Facts {
                traffic: window.total(),
                configured: self.configured.lock().clone(),
                store: self.metrics.store(),
            };
            let changes = board.update(rules::findings(&facts), Instant::now());
            *self.warnings.0.lock() = board.texts();
            changes.into_iter().for_each(|change| self.tell(change));
            health.update(&facts.store, self.metrics.endpoints()).into_iter().for_each(|change| {
                self.events.tell(|| change);
            });
        }
    }

    /// What was counted since the last time.
    fn sample(&self) -> Option<Tally> {
        let mut sample = Tally::default();
        for tally in self.tallies.upgrade()?.lock().iter() {
            sample.add(&mem::take(&mut *tally.lock()));
        }
        Some(sample)
    }

    fn tell(&self, Change { finding, is_raised }: Change) {
        let text = finding.text;
        match (&finding.subject, is_raised) {
            // Whoever keeps in touch with the store has said so.
            (Subject::Store(_), _) => {}
            (_, true) => tracing::warn!("{text}"),
            (_, false) => tracing::info!("no longer: {text}"),
        }
        self.events.tell(|| Event::Warning { text, is_raised });
    }
}
