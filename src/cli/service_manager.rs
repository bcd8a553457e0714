//! What the service manager that started the process is told (sd_notify(3)). Where none did, nothing is.

use std::{
    fmt::Write,
    time::{Duration, Instant},
};

use sd_notify::NotifyState;

use crate::app::App;

/// Beyond `shutdown.drain`, for the last lines of the access log and the admin port.
const AFTER_DRAIN: Duration = Duration::from_secs(10);

/// systemd, or whatever else set `NOTIFY_SOCKET`.
#[derive(Debug)]
pub(super) struct ServiceManager {
    watchdog: Option<Watchdog>,
}

/// It restarts the process after so long without a sign of life.
#[derive(Debug)]
struct Watchdog {
    /// Half of what it waits.
    every: Duration,
    due: Instant,
    complained: bool,
}

impl ServiceManager {
    /// As the environment tells.
    pub(super) fn from_environment() -> Self {
        let now = Instant::now();
        let watchdog = sd_notify::watchdog_enabled().filter(|interval| !interval.is_zero());
        let watchdog = watchdog.map(|interval| Watchdog { every: interval / 2, due: now, complained: false });
        Self { watchdog }
    }

    /// Clients are served.
    pub(super) fn ready(&self, app: &App) {
        let mut status = String::from("serving");
        for address in &app.addresses {
            // Writing to a string does not fail.
            let _ = write!(status, " {address}");
        }
        let _ = write!(status, ", admin port {}", app.admin());
        tell(&[NotifyState::Ready, NotifyState::Status(&status)]);
    }

    /// The configuration is read again; [`ServiceManager::ready`] follows, whatever comes of it.
    pub(super) fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => tell(&[NotifyState::Reloading, now]),
            Err(error) => tracing::warn!("can't tell the service manager of a reload: {error}"),
        }
    }

    /// No more clients are let in. The manager is to wait for as long as the configuration lets requests
    /// run on, even where its own patience (`TimeoutStopSec`) is shorter.
    pub(super) fn draining(&self, app: &App) {
        let patience = app.drain_limit().saturating_add(AFTER_DRAIN).as_micros();
        let patience = u32::try_from(patience).unwrap_or(u32::MAX);
        let status = format!("finishing what runs on {} connections", app.connections());
        tell(&[
            NotifyState::Stopping,
            NotifyState::ExtendTimeoutUsec(patience),
            NotifyState::Status(&status),
        ]);
    }

    /// Gives a sign of life if one is due and every worker has given its own. To be called several times
    /// as often as signs are due.
    pub(super) fn watch(&mut self, app: &mut App) {
        let Some(watchdog) = &mut self.watchdog else { return };
        let now = Instant::now();
        if now < watchdog.due {
            return;
        }
        if app.workers_go_on() {
            watchdog.due = now + watchdog.every;
            watchdog.complained = false;
            tell(&[NotifyState::Watchdog]);
        } else if now > watchdog.due + watchdog.every / 2 && !watchdog.complained {
            watchdog.complained = true;
            tracing::error!("a worker hangs or has ended: the watchdog will restart the process");
        }
    }
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!("can't tell the service manager ({}): {error}", states[0]);
    }
}
