//! `tollgate run`: serves until it is told to end.

use std::{io, path::PathBuf, process::ExitCode};

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::misconfigured;
use crate::{
    app::{self, App},
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
    let config = match config::load(&args.config) {
        Ok(config) => config,
        Err(errors) => return misconfigured(&errors),
    };
    log::init(config.log);
    match app::start(config) {
        Ok(app) => until_told_to_end(app),
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Serves until SIGTERM or SIGINT, finishes what runs, and ends. A second signal ends at once.
pub(super) fn until_told_to_end(app: App) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!("can't wait for signals: {error}");
            return ExitCode::FAILURE;
        }
    };
    runtime.block_on(async {
        match Signals::listen() {
            Ok(signals) => serve(app, signals).await,
            Err(error) => {
                tracing::error!("can't wait for signals: {error}");
                ExitCode::FAILURE
            }
        }
    })
}

async fn serve(mut app: App, signals: Signals) -> ExitCode {
    let Signals { mut end, mut reopen } = signals;
    loop {
        tokio::select! {
            name = end.recv() => {
                tracing::info!("{name}: finishing what runs");
                break;
            }
            _ = reopen.recv() => app.reopen_access_log(),
            () = app.housekeeping() => {}
        }
    }
    app.drain();
    tokio::select! {
        finished = app.drained() => {
            if !finished {
                tracing::warn!(connections = app.connections(), "shutdown.drain is over: closing what still runs");
            }
        }
        name = end.recv() => {
            tracing::warn!("{name} again: ending at once");
            app.close();
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
