//! The old process' side: it starts the new process and waits until that serves or fails.

use std::{
    env,
    io::{self, Write},
    os::unix::net::UnixStream as StdStream,
    path::PathBuf,
    pin::Pin,
    process::ExitStatus,
    rc::Rc,
    time::Duration,
};

use command_fds::{CommandFdExt, FdMapping, FdMappingCollision};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
    process::{Child, Command},
    sync::Notify,
    time::timeout,
};
use zeroize::Zeroizing;

use super::{
    messages::{FAILED, READY, SESSIONS, TAKE_OVER},
    program::Program,
};
use crate::app::{HANDOVER_VARIABLE, ListeningSockets, SessionKeys};

/// Maximum time until the new process serves.
const START: Duration = Duration::from_secs(30);
/// Maximum time for its last message to arrive when it has ended.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// Maximum length of a line read from it, in bytes.
const LINE: u64 = 16 << 10;
/// Maximum length of the line with keys of TLS sessions, in bytes: about 100 listeners.
const MAX_SESSIONS: usize = 64 << 10;
/// The first inherited descriptor (sd_listen_fds(3)).
const FIRST_DESCRIPTOR: i32 = 3;
/// Environment variables that only concern this process. Without WATCHDOG_PID the watchdog applies to the process that
/// reads it.
const NOT_INHERITED: [&str; 4] = ["LISTEN_PID", "LISTEN_FDNAMES", "LISTEN_FDS_FIRST_FD", "WATCHDOG_PID"];

/// Starts the new process, which writes its ID before it executes the program, waits for it, and exits with its status.
///
/// systemd must be the parent of a main process. If the process is the child of another one when systemd is notified of
/// it (`main_pid_alien` in its service.c), `systemctl stop` would not wait for its end but kill it. So a shell is its
/// parent until the new process serves; then the shell ends, and systemd adopts the orphan.
const SHELL: &str = r#"/bin/sh -c 'echo "pid $$" >&3; exec "$@"' sh "$@" & wait $!; exit $?"#;
/// The text before the ID.
const PID: &str = "pid ";

/// Why the new process did not take over.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum HandoverError {
    #[error("can't start {}: {error}", path.display())]
    Spawn { path: PathBuf, error: io::Error },
    #[error("can't hand the listening sockets over: {0}")]
    Sockets(#[from] io::Error),
    #[error("can't hand the listening sockets over: {0}")]
    Descriptors(#[from] FdMappingCollision),
    #[error("{0}")]
    Failed(String),
    #[error("it ended before it was ready ({0})")]
    Ended(ExitStatus),
    #[error("it was not ready within {0:?}, and was killed")]
    Late(Duration),
    #[error("this process ends")]
    Aborted,
    #[error("it is not a Tollgate that can take over: it said {0:?}")]
    Unknown(String),
}

/// A new process that has been started.
pub(in crate::cli) struct Handover {
    abort: Rc<Notify>,
    outcome: Pin<Box<dyn Future<Output = Result<NewProcess, HandoverError>>>>,
}

impl Handover {
    /// Starts `program` with all `sockets`, and the keys of TLS `sessions`. Needs a runtime.
    ///
    /// # Errors
    /// It can't be started.
    pub(in crate::cli) fn begin(
        program: &Program,
        sockets: &ListeningSockets,
        sessions: &[SessionKeys],
    ) -> Result<Self, HandoverError> {
        let (ours, theirs) = StdStream::pair()?;
        ours.set_nonblocking(true)?;
        send_sessions(&ours, sessions)?;
        let (sockets, description) = sockets.duplicate()?;
        let is_behind_shell = env::var_os("NOTIFY_SOCKET").is_some();
        let mut command = if is_behind_shell { program.command_behind(SHELL) } else { program.command() };
        for name in NOT_INHERITED {
            command.env_remove(name);
        }
        command.env("LISTEN_FDS", (sockets.len() + 1).to_string()).env(HANDOVER_VARIABLE, description);
        let descriptors = std::iter::once(theirs.into()).chain(sockets).zip(FIRST_DESCRIPTOR..);
        command.fd_mappings(
            descriptors.map(|(parent_fd, child_fd)| FdMapping { parent_fd, child_fd }).collect(),
        )?;
        // Drops the command, and with it this process' duplicates of the descriptors for the new one.
        let child = Command::from(command)
            .spawn()
            .map_err(|error| HandoverError::Spawn { path: program.path().to_owned(), error })?;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).map(Pid::from_raw);
        let channel = BufReader::new(UnixStream::from_std(ours)?);
        let pid = pid.filter(|_| !is_behind_shell);
        let started = Started { child, channel, pid, is_behind_shell };
        let abort = Rc::<Notify>::default();
        Ok(Self { outcome: Box::pin(started.outcome(limit(), Rc::clone(&abort))), abort })
    }

    /// Completes when the new process serves. If it fails, it has ended by then.
    ///
    /// # Errors
    /// It reported a failure, ended, or did neither in time.
    pub(in crate::cli) async fn outcome(&mut self) -> Result<NewProcess, HandoverError> {
        (&mut self.outcome).await
    }

    /// Kills the new process.
    pub(in crate::cli) async fn abort(self) {
        self.abort.notify_one();
        if let Ok(new) = self.outcome.await {
            // It has just reported that it serves.
            let _gone = kill(new.pid, Signal::SIGKILL);
        }
    }
}

/// A new process that serves clients.
pub(in crate::cli) struct NewProcess {
    pid: Pid,
    channel: UnixStream,
}

impl NewProcess {
    pub(in crate::cli) fn pid(&self) -> u32 {
        self.pid.as_raw().unsigned_abs()
    }

    /// Notifies it that this process accepts no more connections. `reload`: makes it reload its configuration.
    pub(in crate::cli) async fn take_over(mut self, reload: bool) {
        if let Err(error) = self.channel.write_all(format!("{TAKE_OVER}\n").as_bytes()).await {
            tracing::warn!("the new process can't be reached: {error}");
        }
        if reload && let Err(error) = kill(self.pid, Signal::SIGHUP) {
            tracing::warn!("the new process can't be told to reload its configuration: {error}");
        }
    }
}

/// Sends the keys to the new process. They are not passed by a file or the environment, which others could read.
fn send_sessions(mut channel: &StdStream, sessions: &[SessionKeys]) -> io::Result<()> {
    let line = Zeroizing::new(format!("{SESSIONS}{}\n", serde_json::to_string(sessions)?));
    // The buffer of the channel takes this much without a reader.
    if line.len() <= MAX_SESSIONS {
        return channel.write_all(line.as_bytes());
    }
    tracing::warn!("too many listeners have TLS: the new process can't go on with their sessions");
    channel.write_all(format!("{SESSIONS}[]\n").as_bytes())
}

/// 30 seconds, unless tests set `TOLLGATE_HANDOVER_TIMEOUT_MS`.
fn limit() -> Duration {
    let millis = env::var("TOLLGATE_HANDOVER_TIMEOUT_MS").ok().and_then(|text| text.parse().ok());
    millis.map_or(START, Duration::from_millis)
}

/// A started process that has not reported yet whether it serves.
struct Started {
    /// The new process, or the shell that is its parent.
    child: Child,
    channel: BufReader<UnixStream>,
    /// The ID of the new process. `None`: the shell has not written it yet.
    pid: Option<Pid>,
    is_behind_shell: bool,
}

impl Started {
    async fn outcome(mut self, limit: Duration, abort: Rc<Notify>) -> Result<NewProcess, HandoverError> {
        let result = tokio::select! {
            biased;
            () = abort.notified() => Err(HandoverError::Aborted),
            result = timeout(limit, self.message()) => result.unwrap_or(Err(HandoverError::Late(limit))),
        };
        match (result, self.pid) {
            (Ok(()), Some(pid)) => {
                if self.is_behind_shell {
                    // The service manager becomes the parent of the new process.
                    self.child.kill().await?;
                }
                Ok(NewProcess { pid, channel: self.channel.into_inner() })
            }
            (result, _) => {
                self.kill().await;
                Err(result.err().unwrap_or(HandoverError::Aborted))
            }
        }
    }

    /// Waits until the new process reports or ends.
    async fn message(&mut self) -> Result<(), HandoverError> {
        if self.pid.is_none() {
            self.read_pid().await?;
        }
        let Self { child, channel, .. } = self;
        let mut line = String::new();
        let ended = tokio::select! {
            biased;
            // It closed its end without a message: it ends, or never becomes ready.
            read = read_line(channel, &mut line) => if read? == 0 { Some(child.wait().await?) } else { None },
            status = child.wait() => Some(status?),
        };
        if let Some(status) = ended {
            let read = timeout(LAST_WORDS, read_line(channel, &mut line)).await;
            if !matches!(read, Ok(Ok(1..))) {
                return Err(HandoverError::Ended(status));
            }
        }
        let line = line.trim_end();
        match line.strip_prefix(FAILED) {
            Some(reason) => Err(HandoverError::Failed(reason.to_owned())),
            None if ended.is_none() && line == READY => Ok(()),
            None => Err(HandoverError::Unknown(line.to_owned())),
        }
    }

    /// Reads the ID, the first message behind a shell.
    async fn read_pid(&mut self) -> Result<(), HandoverError> {
        let mut line = String::new();
        read_line(&mut self.channel, &mut line).await?;
        let pid = line.strip_prefix(PID).and_then(|pid| pid.trim_end().parse().ok());
        self.pid = pid.filter(|pid| *pid > 1).map(Pid::from_raw);
        if self.pid.is_none() { Err(HandoverError::Unknown(line)) } else { Ok(()) }
    }

    /// Kills the started processes and waits for them, so that no zombie is left.
    async fn kill(&mut self) {
        if self.is_behind_shell && self.pid.is_none() {
            let _unknown = timeout(LAST_WORDS, self.read_pid()).await;
        }
        // As long as the shell runs, the ID cannot be reused.
        if let (true, Some(pid), Some(_)) = (self.is_behind_shell, self.pid, self.child.id()) {
            let _gone = kill(pid, Signal::SIGKILL);
            let _ended = timeout(LAST_WORDS, self.child.wait()).await;
        }
        // It may already have ended.
        let _gone = self.child.kill().await;
    }
}

/// Appends a line, or less at the end; 0 bytes mean the end. A process that ends without reading the keys resets the
/// channel: that is its end, too.
async fn read_line(channel: &mut BufReader<UnixStream>, line: &mut String) -> io::Result<usize> {
    match (&mut *channel).take(LINE).read_line(line).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(0),
        read => read,
    }
}
