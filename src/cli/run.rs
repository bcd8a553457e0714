//! `tollgate run`: serves until it is told to end.

use std::{io, path::PathBuf, process::ExitCode};

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{misconfigured, service_manager::ServiceManager};
use crate::{
    app::{self, App, Inherited},
    config,
    telemetry::log,
};

/// Arguments of `tollgate run`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The configuration
    #[arg(long, value_name = "FILE", default_value = "proxy.yaml")]
    config: PathBuf,
}

pub(super) fn run(args: &Args) -> ExitCode {
    // Before anything is opened.
    let inherited = Inherited::from_environment();
    let (config, warnings) = match config::load_warning(&args.config) {
        Ok(loaded) => loaded,
        Err(errors) => return misconfigured(&errors),
    };
    let _messages = log::init(config.log);
    let warnings: Vec<String> = warnings.lines().collect();
    for warning in &warnings {
        tracing::warn!("{warning}");
    }
    until_told_to_end(|| {
        app::start(config, warnings, inherited).map_err(|error| {
            tracing::error!("{error}");
            ExitCode::FAILURE
        })
    })
}

/// Serves with what `start` gives until SIGTERM or SIGINT, finishes what runs, and ends. A second signal
/// ends at once. Signals are watched before the start: one that comes as soon as clients are let in
/// does not break them off.
pub(super) fn until_told_to_end(start: impl FnOnce() -> Result<App, ExitCode>) -> ExitCode {
    let prepared = tokio::runtime::Builder::new_current_thread().enable_all().build().and_then(|runtime| {
        let signals = runtime.block_on(async { Signals::listen() })?;
        Ok((runtime, signals))
    });
    match prepared {
        Ok((runtime, signals)) => match start() {
            Ok(app) => runtime.block_on(serve(app, signals)),
            Err(code) => code,
        },
        Err(error) => {
            tracing::error!("can't wait for signals: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(mut app: App, signals: Signals) -> ExitCode {
    let Signals { mut end, mut reopen } = signals;
    let mut manager = ServiceManager::from_environment();
    manager.ready(&app);
    loop {
        tokio::select! {
            name = end.recv() => {
                tracing::info!("{name}: finishing what runs");
                break;
            }
            _ = reopen.recv() => app.reopen_access_log(),
            working = app.housekeeping() => {
                if !working {
                    tracing::error!("all workers have ended");
                    return ExitCode::FAILURE;
                }
                manager.watch(&mut app);
            }
        }
    }
    app.drain();
    manager.draining(&app);
    tokio::select! {
        finished = app.drained() => {
            if !finished {
                tracing::warn!(connections = app.connections(), "shutdown.drain is over: closing what still runs");
                app.break_off().await;
            }
        }
        name = end.recv() => {
            tracing::warn!("{name} again: ending at once");
            app.break_off().await;
            return ExitCode::FAILURE;
        }
    }
    app.close();
    tracing::info!("ended");
    ExitCode::SUCCESS
}

struct Signals {
    end: End,
    reopen: Signal,
}

/// The signals that tell the process to end.
struct End {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        let end =
            End { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? };
        Ok(Self { end, reopen: signal(SignalKind::user_defined1())? })
    }
}

impl End {
    /// The name of the next one.
    async fn recv(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
