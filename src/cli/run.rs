//! `tollgate run`: serves until a signal ends it.

use std::{
    future::pending,
    io,
    path::Path,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use tokio::{
    runtime::{self, Runtime},
    signal::unix::{Signal, SignalKind, signal},
    sync::{mpsc::Receiver, oneshot},
    time::timeout,
};

use super::{
    config_file::ConfigFile,
    failure::{print_error, report_config_errors},
    handover::{Handover, HandoverError, NewProcess, OldProcess, Succession},
    service_manager::ServiceManager,
};
use crate::{
    admin::{ReloadRequest, dto::ConfigurationError},
    app::{self, App, InheritedSockets, Loaded, PreparationOutcome, PreparingReload, StartError},
    config::{self, Config, Purpose},
    telemetry::log,
};

/// Time for which idle connections are kept open after a handover. A client that reuses one learns from the response
/// that it closes, and loses no request; closing immediately could lose requests in flight.
const IDLE_AFTER_HANDOVER: Duration = Duration::from_secs(5);

/// Additional time for the start to complete after a signal to end.
const NEARLY_STARTED: Duration = Duration::from_millis(500);

/// Arguments of `tollgate run`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit code: 0 after a signal has ended it, 1 if it cannot serve (a port is taken), 2 if an argument is wrong, \
        78 (EX_CONFIG) if the configuration has errors."
)]
pub(super) struct Args {
    #[command(flatten)]
    pub config: ConfigFile,
}

pub(super) fn run(args: &Args) -> ExitCode {
    let file = match args.config.path() {
        Ok(file) => file,
        Err(code) => return code,
    };
    // Before any descriptor is opened.
    let mut inherited = InheritedSockets::from_environment();
    let succession = Succession::of_this_process(OldProcess::new(inherited.take_old_process()));
    let mut process = match Process::new() {
        Ok(process) => process,
        Err(error) => {
            print_error(format_args!("tollgate: {error}\n"));
            return succession.fail(error);
        }
    };
    // Absolute, because the working directory may change before a reload.
    let path = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let named = file.to_owned();
    let (config, warnings) = match process.unless_ended(move || load(&named, Purpose::Start)) {
        Ok(Ok(loaded)) => loaded,
        Ok(Err(errors)) => {
            let errors_of = to_configuration_errors(&errors);
            let first = errors_of.first().map_or("", ConfigurationError::summary);
            succession.old_process.failed(format_args!("its configuration is invalid: {first}"));
            return report_config_errors(&errors);
        }
        Err(interruption) => {
            print_error(format_args!("tollgate: {interruption}\n"));
            return interruption.exit_code();
        }
    };
    let _messages = log::init(config.log);
    for warning in &warnings {
        tracing::warn!("{warning}");
    }
    let sessions = succession.old_process.sessions();
    let start = move || app::start(config, warnings, inherited, &sessions);
    let load = move || load(&path, Purpose::Reload).map_err(|errors| to_configuration_errors(&errors));
    let (error, succession) = match process.serve_until_signal(start, load, succession) {
        Ok(code) => return code,
        Err(failed) => *failed,
    };
    let code = succession.fail(&error);
    // A check reads the file of API keys as well, and says where it is named.
    if matches!(error, StartError::ApiKeys(_))
        && file.is_file()
        && let Err(errors) = config::load_with_warnings(file, Purpose::Check)
    {
        return report_config_errors(&errors);
    }
    code
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

/// A serving process: the runtime of its main thread, and the signals, which are watched from the start, so that even
/// an early one lets requests finish.
pub(super) struct Process {
    runtime: Runtime,
    signals: ProcessSignals,
}

/// Why blocking work was not completed.
#[derive(Debug, thiserror::Error)]
enum Interruption {
    #[error("{0} was received: Tollgate ended before clients were served")]
    Signal(&'static str),
    #[error("can't start a thread: {0}")]
    Thread(#[from] io::Error),
    #[error("the start crashed")]
    Crash,
}

impl Interruption {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Signal(_) => ExitCode::SUCCESS,
            Self::Thread(_) | Self::Crash => ExitCode::FAILURE,
        }
    }
}

impl Process {
    /// Watches for signals from now on.
    ///
    /// # Errors
    /// The runtime or the signal handlers can't be set up.
    pub(super) fn new() -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let signals = runtime.block_on(async { ProcessSignals::listen() })?;
        Ok(Self { runtime, signals })
    }

    /// Does `work` on a separate thread, because reading files from a stalled disk may block: a signal that ends the
    /// process ends the wait.
    fn unless_ended<T: Send + 'static>(
        &mut self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Interruption> {
        let (done, mut result) = oneshot::channel();
        thread::Builder::new().name("start".into()).spawn(move || drop(done.send(work())))?;
        self.runtime.block_on(async {
            let signal = tokio::select! {
                biased;
                value = &mut result => return value.map_err(|_| Interruption::Crash),
                name = self.signals.end.recv() => name,
            };
            // Clients may already be served: then let their requests finish.
            match timeout(NEARLY_STARTED, result).await {
                Ok(value) => {
                    self.signals.end.pending = Some(signal);
                    value.map_err(|_| Interruption::Crash)
                }
                Err(_) => Err(Interruption::Signal(signal)),
            }
        })
    }

    /// Serves with the app that `start` returns until SIGTERM or SIGINT, lets requests finish, and ends. A second
    /// signal ends immediately. `load` reads the configuration for each reload.
    ///
    /// # Errors
    /// It did not start.
    pub(super) fn serve_until_signal(
        mut self,
        start: impl FnOnce() -> Result<App, StartError> + Send + 'static,
        load: impl Fn() -> Loaded + Clone + Send + 'static,
        succession: Succession,
    ) -> Result<ExitCode, Box<(StartError, Succession)>> {
        match self.unless_ended(start) {
            Ok(Ok(app)) => Ok(self.runtime.block_on(serve(app, self.signals, load, succession))),
            Ok(Err(error)) => Err(Box::new((error, succession))),
            Err(interruption) => {
                tracing::info!("{interruption}");
                Ok(interruption.exit_code())
            }
        }
    }
}

async fn serve(
    mut app: App,
    mut signals: ProcessSignals,
    load: impl Fn() -> Loaded + Clone + Send + 'static,
    succession: Succession,
) -> ExitCode {
    let mut reload_requests = app.reload_requests();
    let mut manager = ServiceManager::from_environment();
    let Succession { old_process, program } = succession;
    old_process.ready();
    manager.ready(&app);
    let mut handover: Option<Handover> = None;
    let mut reload: Option<Reload> = None;
    let new_process = loop {
        tokio::select! {
            name = signals.end.recv() => {
                tracing::info!("{name} was received: open requests are being finished");
                break None;
            }
            _ = signals.reopen.recv() => app.reopen_access_log(),
            // A new process has already read its configuration: reloads wait until it has taken over or failed.
            _ = signals.reload.recv(), if handover.is_none() && reload.is_none() => {
                tracing::info!("SIGHUP was received: Tollgate is reloading the configuration");
                manager.reloading();
                reload = Some(Reload { request: None, preparing: app.prepare_reload(load.clone()) });
            }
            Some(request) = next(&mut reload_requests), if handover.is_none() && reload.is_none() => {
                manager.reloading();
                reload = Some(Reload { request: Some(request), preparing: app.prepare_reload(load.clone()) });
            }
            prepared = prepared(&mut reload), if handover.is_none() => {
                let request = reload.take().and_then(|reload| reload.request);
                let outcome = app.reload(prepared, request.as_ref().map_or("SIGHUP", ReloadRequest::by)).await;
                // Errors are also logged.
                if let Some(request) = request {
                    request.answer(outcome);
                }
                manager.ready(&app);
            }
            _ = signals.hand_over.recv() => match (&handover, &program) {
                (Some(_), _) => tracing::warn!("SIGUSR2 was received again: a new process is starting already"),
                (None, Err(reason)) => tracing::error!("Tollgate can't hand over to a new process: {reason}"),
                (None, Ok(program)) => {
                    let program_path = program.path().display();
                    tracing::info!(program = %program_path, "SIGUSR2 was received: Tollgate is starting a new process of {program_path}");
                    match Handover::begin(program, app.listening_sockets(), &app.session_keys()) {
                        Ok(started) => {
                            handover = Some(started);
                            manager.reloading();
                        }
                        Err(error) => app.keep_serving(error),
                    }
                }
            },
            outcome = outcome(&mut handover) => {
                handover = None;
                match outcome {
                    Ok(new_process) => break Some(new_process),
                    Err(error) => {
                        app.keep_serving(error);
                        manager.ready(&app);
                    }
                }
            }
            working = app.housekeeping(manager.watchdog_due()) => {
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
    // Dropped, so that an operator waiting for a reload gets an error.
    let has_given_up_reload = reload.take().is_some();
    drop(reload_requests);
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
            // The new process does reloads that arrived too late for this one.
            let reloads = has_given_up_reload || signals.reload.recv().now_or_never().is_some();
            new_process.take_over(reloads).await;
            tracing::info!(pid, "a new process serves clients: this one finishes its open requests");
            finish(app, signals, true).await
        }
    }
}

/// Waits until open requests have finished, at most `shutdown.drain`, then ends. Another signal ends immediately. After
/// a handover two signals are needed: a service manager that stops the service signals both processes.
async fn finish(mut app: App, mut signals: ProcessSignals, handed_over: bool) -> ExitCode {
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
                tracing::warn!(connections = app.connections(), "shutdown.drain is over: Tollgate closes the remaining connections");
                app.abort_requests().await;
                break;
            }
            name = signals.end.recv() => {
                if is_last_signal {
                    tracing::warn!("{name} was received again: Tollgate ends immediately");
                    app.abort_requests().await;
                    return ExitCode::FAILURE;
                }
                is_last_signal = true;
                tracing::info!("{name} was received: open requests are being finished already, and one more signal ends Tollgate immediately");
            }
            _ = signals.reopen.recv() => app.reopen_access_log(),
            _ = signals.hand_over.recv() => tracing::warn!("SIGUSR2 was received, but this process is ending, and can't hand over"),
        }
    }
    app.close();
    tracing::info!("Tollgate has ended");
    ExitCode::SUCCESS
}

/// Waits for the outcome of a handover; pending without one.
async fn outcome(handover: &mut Option<Handover>) -> Result<NewProcess, HandoverError> {
    match handover {
        Some(handover) => handover.outcome().await,
        None => pending().await,
    }
}

/// A reload whose configuration is being read.
struct Reload {
    /// The request of the admin port. `None`: SIGHUP.
    request: Option<ReloadRequest>,
    preparing: PreparingReload,
}

/// Waits for the outcome of reading the configuration; pending if it is not being read.
async fn prepared(reload: &mut Option<Reload>) -> PreparationOutcome {
    match reload {
        Some(reload) => reload.preparing.outcome().await,
        None => pending().await,
    }
}

/// The next reload request of the admin port.
async fn next(requests: &mut Option<Receiver<ReloadRequest>>) -> Option<ReloadRequest> {
    requests.as_mut()?.recv().await
}

struct ProcessSignals {
    end: EndSignals,
    reload: Signal,
    reopen: Signal,
    hand_over: Signal,
}

/// The signals that end the process.
struct EndSignals {
    terminate: Signal,
    interrupt: Signal,
    /// The name of a received signal that was not handled yet.
    pending: Option<&'static str>,
}

impl ProcessSignals {
    fn listen() -> io::Result<Self> {
        let end = EndSignals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            pending: None,
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
    /// Waits for the next signal and returns its name.
    async fn recv(&mut self) -> &'static str {
        if let Some(name) = self.pending.take() {
            return name;
        }
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
