//! Notifications for the service manager that started the process (sd_notify(3)), if one did.

use std::{
    fmt::Write,
    time::{Duration, Instant},
};

use sd_notify::NotifyState;

use crate::app::App;

/// How often the workers are asked for a sign of life while the watchdog waits for one.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// How long housekeeping may wait if there is no watchdog.
const NO_WATCHDOG: Duration = Duration::from_secs(60);

/// Time beyond `shutdown.drain` for the last lines of the access log and the admin port.
const AFTER_DRAIN: Duration = Duration::from_secs(10);

/// systemd, or another manager that set `NOTIFY_SOCKET`.
#[derive(Debug)]
pub(super) struct ServiceManager {
    watchdog: Option<Watchdog>,
}

/// The manager restarts the process if it gets no notification in time.
#[derive(Debug)]
struct Watchdog {
    /// Half of the watchdog's timeout.
    interval: Duration,
    due: Instant,
    complained: bool,
}

impl ServiceManager {
    /// From `NOTIFY_SOCKET` and `WATCHDOG_USEC`.
    pub(super) fn from_environment() -> Self {
        let now = Instant::now();
        let watchdog = sd_notify::watchdog_enabled().filter(|interval| !interval.is_zero());
        let watchdog =
            watchdog.map(|interval| Watchdog { interval: interval / 2, due: now, complained: false });
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
        notify(&[NotifyState::Ready, NotifyState::Status(&status)]);
    }

    /// The configuration is being reloaded; [`ServiceManager::ready`] follows in any case.
    pub(super) fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => notify(&[NotifyState::Reloading, now]),
            Err(error) => tracing::warn!("the service manager can't be notified of a reload: {error}"),
        }
    }

    /// Another process becomes the service's main process. This one sends no more messages, because managers accept
    /// only those of the main process (`NotifyAccess=main`).
    pub(super) fn main_process(&self, pid: u32) {
        notify(&[NotifyState::MainPid(pid)]);
    }

    /// Shutdown has begun. The manager is to wait for as long as requests may take to finish, even if its own timeout
    /// (`TimeoutStopSec`) is shorter.
    pub(super) fn draining(&self, app: &App) {
        let timeout = app.drain_limit().saturating_add(AFTER_DRAIN).as_micros();
        let timeout = u32::try_from(timeout).unwrap_or(u32::MAX);
        let status = format!("finishing open requests on {} connections", app.connections());
        notify(&[
            NotifyState::Stopping,
            NotifyState::ExtendTimeoutUsec(timeout),
            NotifyState::Status(&status),
        ]);
    }

    /// When to call [`ServiceManager::notify_watchdog`] at the latest.
    pub(super) fn watchdog_due(&self) -> Instant {
        let now = Instant::now();
        self.watchdog.as_ref().map_or(now + NO_WATCHDOG, |watchdog| watchdog.due.max(now + ASK_AGAIN))
    }

    /// Notifies the watchdog if it is due and every worker is alive.
    pub(super) fn notify_watchdog(&mut self, app: &mut App) {
        let Some(watchdog) = &mut self.watchdog else { return };
        let now = Instant::now();
        if now < watchdog.due {
            return;
        }
        if app.all_workers_alive() {
            watchdog.due = now + watchdog.interval;
            watchdog.complained = false;
            notify(&[NotifyState::Watchdog]);
        } else if now > watchdog.due + watchdog.interval / 2 && !watchdog.complained {
            watchdog.complained = true;
            tracing::error!("a worker hangs or has stopped: the watchdog will restart the process");
        }
    }
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!("the service manager can't be notified ({}): {error}", states[0]);
    }
}
