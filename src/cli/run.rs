//! `tollgate run`: serves until a signal ends it.

use std::{
    future::pending,
    io,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc::Receiver,
};

use super::{
    handover::{Handover, HandoverError, NewProcess, OldProcess, Succession},
    report_config_errors,
    service_manager::ServiceManager,
};
use crate::{
    admin::{ReloadRequest, dto::ConfigurationError},
    app::{self, App, InheritedSockets, Loaded, StartError},
    config::{self, Config, Purpose},
    telemetry::log,
};

/// How long idle connections stay open after a handover: a client that uses one of them again learns from the response
/// that it closes, and loses no request. Closing them at once would cross with requests that are on their way.
const IDLE_AFTER_HANDOVER: Duration = Duration::from_secs(5);

/// Arguments of `tollgate run`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = "proxy.yaml")]
    config: PathBuf,
}

pub(super) fn run(args: &Args) -> ExitCode {
    // Before anything is opened.
    let mut inherited = InheritedSockets::from_environment();
    let succession = Succession::of_this_process(OldProcess::new(inherited.take_old_process()));
    let (config, warnings) = match load(&args.config, Purpose::Start) {
        Ok(loaded) => loaded,
        Err(errors) => {
            let errors_of = to_configuration_errors(&errors);
            let first = errors_of.first().map_or("", ConfigurationError::summary);
            succession.old_process.failed(format_args!("its configuration is invalid: {first}"));
            return report_config_errors(&errors);
        }
    };
    let _messages = log::init(config.log);
    for warning in &warnings {
        tracing::warn!("{warning}");
    }
    let sessions = succession.old_process.sessions();
    // The same file, wherever the process may be by then.
    let path = std::path::absolute(&args.config).unwrap_or_else(|_| args.config.clone());
    let start = || app::start(config, warnings, inherited, &sessions);
    let load = || load(&path, Purpose::Reload).map_err(|errors| to_configuration_errors(&errors));
    serve_until_signal(start, load, succession)
}

/// The configuration and its warnings.
fn load(path: &Path, purpose: Purpose) -> Result<(Config, Vec<String>), config::Errors> {
    config::load_with_warnings(path, purpose).map(|(config, warnings)| (config, warnings.lines().collect()))
}

/// The errors as the admin API shows them.
pub(super) fn to_configuration_errors(errors: &config::Errors) -> Vec<ConfigurationError> {
    let to_dto = |(problem, text): (&config::Problem, String)| ConfigurationError {
        line: problem.location.map(|location| location.line),
        column: problem.location.map(|location| location.column),
        message: problem.message.clone(),
        text,
    };
    errors.each().map(to_dto).collect()
}

/// Serves with the app that `start` returns until SIGTERM or SIGINT, finishes what runs, and ends. A second signal
/// ends at once. Signals are watched before the start: one that comes as soon as clients are let in
/// does not break them off. `load` reads the configuration again, whenever that is asked for.
pub(super) fn serve_until_signal(
    start: impl FnOnce() -> Result<App, StartError>,
    load: impl Fn() -> Loaded,
    succession: Succession,
) -> ExitCode {
    let prepared = tokio::runtime::Builder::new_current_thread().enable_all().build().and_then(|runtime| {
        let signals = runtime.block_on(async { Signals::listen() })?;
        Ok((runtime, signals))
    });
    match prepared.map_err(|error| format!("can't wait for signals: {error}")) {
        Ok((runtime, signals)) => match start() {
            Ok(app) => runtime.block_on(serve(app, signals, load, succession)),
            Err(error) => succession.fail(error),
        },
        Err(error) => succession.fail(error),
    }
}

async fn serve(
    mut app: App,
    mut signals: Signals,
    load: impl Fn() -> Loaded,
    succession: Succession,
) -> ExitCode {
    let mut reload_requests = app.reload_requests();
    let mut manager = ServiceManager::from_environment();
    let Succession { old_process, program } = succession;
    old_process.ready();
    manager.ready(&app);
    let mut handover: Option<Handover> = None;
    let new_process = loop {
        tokio::select! {
            name = signals.end.recv() => {
                tracing::info!("{name}: finishing open requests");
                break None;
            }
            _ = signals.reopen.recv() => app.reopen_access_log(),
            // The new process has read its configuration already: reloads wait until it is clear who serves.
            _ = signals.reload.recv(), if handover.is_none() => {
                tracing::info!("SIGHUP: reloading the configuration");
                manager.reloading();
                // What is wrong with it is in the log.
                let _outcome = app.reload(load(), "SIGHUP").await;
                manager.ready(&app);
            }
            Some(request) = next(&mut reload_requests), if handover.is_none() => {
                manager.reloading();
                let outcome = app.reload(load(), request.by()).await;
                request.answer(outcome);
                manager.ready(&app);
            }
            _ = signals.hand_over.recv() => match (&handover, &program) {
                (Some(_), _) => tracing::warn!("SIGUSR2: a new process is starting already"),
                (None, Err(reason)) => tracing::error!("SIGUSR2: can't hand over to a new process: {reason}"),
                (None, Ok(program)) => {
                    tracing::info!(program = %program.path().display(), "SIGUSR2: starting a new process");
                    match Handover::begin(program, app.listening_sockets(), &app.session_keys()) {
                        Ok(started) => {
                            handover = Some(started);
                            manager.reloading();
                        }
                        Err(error) => report(&error),
                    }
                }
            },
            outcome = outcome(&mut handover) => {
                handover = None;
                match outcome {
                    Ok(new_process) => break Some(new_process),
                    Err(error) => {
                        report(&error);
                        manager.ready(&app);
                    }
                }
            }
            working = app.housekeeping() => {
                if !working {
                    tracing::error!("all workers have stopped");
                    return ExitCode::FAILURE;
                }
                manager.notify_watchdog(&mut app);
            }
        }
    };
    if let Some(handover) = handover {
        handover.abort().await;
    }
    match new_process {
        None => {
            app.drain();
            manager.draining(&app);
            finish(app, signals, false).await
        }
        Some(new_process) => {
            let pid = new_process.pid();
            manager.main_process(pid);
            app.leave_sockets();
            // What came too late for this process is for the new one.
            new_process.take_over(signals.reload.recv().now_or_never().is_some()).await;
            tracing::info!(pid, "a new process serves clients: finishing open requests");
            finish(app, signals, true).await
        }
    }
}

/// Waits until open requests have finished, for `shutdown.drain` at most, and ends. Another signal ends at once; after a
/// handover, no signal has come yet, and it takes two: a service manager that stops the service stops both processes.
async fn finish(mut app: App, mut signals: Signals, handed_over: bool) -> ExitCode {
    let deadline = Instant::now() + app.drain_limit();
    let mut idle_until = handed_over.then(|| deadline.min(Instant::now() + IDLE_AFTER_HANDOVER));
    let mut is_last_signal = !handed_over;
    loop {
        let until = idle_until.unwrap_or(deadline);
        tokio::select! {
            finished = app.ended_within(until.saturating_duration_since(Instant::now())) => {
                if finished {
                    break;
                }
                if idle_until.take().is_some() {
                    app.drain();
                    continue;
                }
                tracing::warn!(connections = app.connections(), "shutdown.drain is over: closing the remaining connections");
                app.break_off().await;
                break;
            }
            name = signals.end.recv() => {
                if is_last_signal {
                    tracing::warn!("{name} again: exiting immediately");
                    app.break_off().await;
                    return ExitCode::FAILURE;
                }
                is_last_signal = true;
                tracing::info!("{name}: open requests are finishing already; one more signal exits immediately");
            }
            _ = signals.reopen.recv() => app.reopen_access_log(),
            _ = signals.hand_over.recv() => tracing::warn!("SIGUSR2: this process is ending, and can't hand over"),
        }
    }
    app.close();
    tracing::info!("ended");
    ExitCode::SUCCESS
}

/// Says why a new process did not take over.
fn report(error: &HandoverError) {
    tracing::error!("no new process took over, and this one goes on serving: {error}");
}

/// What becomes of the new process, if one was started.
async fn outcome(handover: &mut Option<Handover>) -> Result<NewProcess, HandoverError> {
    match handover {
        Some(handover) => handover.outcome().await,
        None => pending().await,
    }
}

/// The next reload request of the admin port.
async fn next(requests: &mut Option<Receiver<ReloadRequest>>) -> Option<ReloadRequest> {
    requests.as_mut()?.recv().await
}

struct Signals {
    end: EndSignals,
    reload: Signal,
    reopen: Signal,
    hand_over: Signal,
}

/// The signals that end the process.
struct EndSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        let end = EndSignals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        };
        Ok(Self {
            end,
            reload: signal(SignalKind::hangup())?,
            reopen: signal(SignalKind::user_defined1())?,
            hand_over: signal(SignalKind::user_defined2())?,
        })
    }
}

impl EndSignals {
    /// The name of the next one.
    async fn recv(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
