//! `tollgate run`: serves until a signal ends it.

use std::{
    io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc::Receiver,
};

use super::{report_config_errors, service_manager::ServiceManager};
use crate::{
    admin::{ReloadRequest, dto::ConfigurationError},
    app::{self, App, InheritedSockets, Loaded},
    config::{self, Config},
    telemetry::log,
};

/// Arguments of `tollgate run`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = "proxy.yaml")]
    config: PathBuf,
}

pub(super) fn run(args: &Args) -> ExitCode {
    // Before anything is opened.
    let inherited = InheritedSockets::from_environment();
    let (config, warnings) = match load(&args.config) {
        Ok(loaded) => loaded,
        Err(errors) => return report_config_errors(&errors),
    };
    let _messages = log::init(config.log);
    for warning in &warnings {
        tracing::warn!("{warning}");
    }
    // The same file, wherever the process may be by then.
    let path = std::path::absolute(&args.config).unwrap_or_else(|_| args.config.clone());
    let start = || {
        app::start(config, warnings, inherited).map_err(|error| {
            tracing::error!("{error}");
            ExitCode::FAILURE
        })
    };
    serve_until_signal(start, || load(&path).map_err(|errors| to_configuration_errors(&errors)))
}

/// The configuration and its warnings.
fn load(path: &Path) -> Result<(Config, Vec<String>), config::Errors> {
    config::load_with_warnings(path).map(|(config, warnings)| (config, warnings.lines().collect()))
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
    start: impl FnOnce() -> Result<App, ExitCode>,
    load: impl Fn() -> Loaded,
) -> ExitCode {
    let prepared = tokio::runtime::Builder::new_current_thread().enable_all().build().and_then(|runtime| {
        let signals = runtime.block_on(async { Signals::listen() })?;
        Ok((runtime, signals))
    });
    match prepared {
        Ok((runtime, signals)) => match start() {
            Ok(app) => runtime.block_on(serve(app, signals, load)),
            Err(code) => code,
        },
        Err(error) => {
            tracing::error!("can't wait for signals: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(mut app: App, signals: Signals, load: impl Fn() -> Loaded) -> ExitCode {
    let Signals { mut end, mut reload, mut reopen } = signals;
    let mut reload_requests = app.reload_requests();
    let mut manager = ServiceManager::from_environment();
    manager.ready(&app);
    loop {
        tokio::select! {
            name = end.recv() => {
                tracing::info!("{name}: finishing open requests");
                break;
            }
            _ = reopen.recv() => app.reopen_access_log(),
            _ = reload.recv() => {
                tracing::info!("SIGHUP: reloading the configuration");
                manager.reloading();
                // What is wrong with it is in the log.
                let _outcome = app.reload(load(), "SIGHUP").await;
                manager.ready(&app);
            }
            Some(request) = next(&mut reload_requests) => {
                manager.reloading();
                let outcome = app.reload(load(), request.by()).await;
                request.answer(outcome);
                manager.ready(&app);
            }
            working = app.housekeeping() => {
                if !working {
                    tracing::error!("all workers have stopped");
                    return ExitCode::FAILURE;
                }
                manager.notify_watchdog(&mut app);
            }
        }
    }
    app.drain();
    manager.draining(&app);
    tokio::select! {
        finished = app.drained() => {
            if !finished {
                tracing::warn!(connections = app.connections(), "shutdown.drain is over: closing the remaining connections");
                app.break_off().await;
            }
        }
        name = end.recv() => {
            tracing::warn!("{name} again: exiting immediately");
            app.break_off().await;
            return ExitCode::FAILURE;
        }
    }
    app.close();
    tracing::info!("ended");
    ExitCode::SUCCESS
}

/// The next reload request of the admin port.
async fn next(requests: &mut Option<Receiver<ReloadRequest>>) -> Option<ReloadRequest> {
    requests.as_mut()?.recv().await
}

struct Signals {
    end: EndSignals,
    reload: Signal,
    reopen: Signal,
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
        Ok(Self { end, reload: signal(SignalKind::hangup())?, reopen: signal(SignalKind::user_defined1())? })
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
