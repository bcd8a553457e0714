//! The old process' side: the process that it has started, until that serves or has failed.

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

use super::{FAILED, Program, READY, SESSIONS, TAKE_OVER};
use crate::app::{HANDOVER_VARIABLE, ListeningSockets, SessionKeys};

/// How long the new process may take until it serves.
const START: Duration = Duration::from_secs(30);
/// How long its last words may take when it has ended.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// The longest line that is read from it, in bytes.
const LINE: u64 = 16 << 10;
/// The longest line of keys of TLS sessions, in bytes: some 100 listeners.
const MAX_SESSIONS: usize = 64 << 10;
/// The first inherited descriptor (sd_listen_fds(3)).
const FIRST_DESCRIPTOR: i32 = 3;
/// Variables that were for this process alone. Without WATCHDOG_PID the watchdog holds for the process that
/// reads it.
const NOT_INHERITED: [&str; 4] = ["LISTEN_PID", "LISTEN_FDNAMES", "LISTEN_FDS_FIRST_FD", "WATCHDOG_PID"];

/// Starts the new process, which says its ID before it becomes the program, waits for it, and ends as it does.
///
/// systemd must be the parent of a main process. It does not wait for the end of one that is the child of another
/// process when it learns of it (`main_pid_alien` in its service.c): `systemctl stop` would kill it at once. So a shell is
/// between the two until the new process serves, and its end makes that an orphan, which systemd adopts.
const SHELL: &str = r#"/bin/sh -c 'echo "pid $$" >&3; exec "$@"' sh "$@" & wait $!; exit $?"#;
/// What it says before the ID.
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
        // The command is dropped here, and with it this process' ends of what it gives away.
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

    /// Completes when the new process serves. If it fails, it is gone by then.
    ///
    /// # Errors
    /// It said that it can't, ended, or did neither in time.
    pub(in crate::cli) async fn outcome(&mut self) -> Result<NewProcess, HandoverError> {
        (&mut self.outcome).await
    }

    /// Kills the new process.
    pub(in crate::cli) async fn abort(self) {
        self.abort.notify_one();
        if let Ok(new) = self.outcome.await {
            // It had just said that it serves.
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

    /// Tells it that this process accepts nobody any more. If `reload`, it is asked to read its configuration again.
    pub(in crate::cli) async fn take_over(mut self, reload: bool) {
        if let Err(error) = self.channel.write_all(format!("{TAKE_OVER}\n").as_bytes()).await {
            tracing::warn!("the new process can't be reached: {error}");
        }
        if reload && let Err(error) = kill(self.pid, Signal::SIGHUP) {
            tracing::warn!("the new process can't be told to reload its configuration: {error}");
        }
    }
}

/// Leaves the keys for the new process to read. They pass through no file and no environment, which others could read.
fn send_sessions(mut channel: &StdStream, sessions: &[SessionKeys]) -> io::Result<()> {
    let line = Zeroizing::new(format!("{SESSIONS}{}\n", serde_json::to_string(sessions)?));
    // What the connection holds without a reader.
    if line.len() <= MAX_SESSIONS {
        return channel.write_all(line.as_bytes());
    }
    tracing::warn!("too many listeners have TLS: the new process can't go on with their sessions");
    channel.write_all(format!("{SESSIONS}[]\n").as_bytes())
}

/// 30 seconds, unless `TOLLGATE_HANDOVER_TIMEOUT_MS` says otherwise, which is there for tests.
fn limit() -> Duration {
    let millis = env::var("TOLLGATE_HANDOVER_TIMEOUT_MS").ok().and_then(|text| text.parse().ok());
    millis.map_or(START, Duration::from_millis)
}

/// A process that was started, and has not said yet whether it serves.
struct Started {
    /// The new process, or the shell that is its parent.
    child: Child,
    channel: BufReader<UnixStream>,
    /// Of the new process. `None`: the shell has not said it yet.
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
                    // From now on the new process is a child of the service manager.
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

    /// Waits until the new process says something, or ends.
    async fn message(&mut self) -> Result<(), HandoverError> {
        if self.pid.is_none() {
            self.read_pid().await?;
        }
        let Self { child, channel, .. } = self;
        let mut line = String::new();
        let ended = tokio::select! {
            biased;
            // Without a word: it has closed its end, and ends as well, or never becomes ready.
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

    /// The first words behind a shell.
    async fn read_pid(&mut self) -> Result<(), HandoverError> {
        let mut line = String::new();
        read_line(&mut self.channel, &mut line).await?;
        let pid = line.strip_prefix(PID).and_then(|pid| pid.trim_end().parse().ok());
        self.pid = pid.filter(|pid| *pid > 1).map(Pid::from_raw);
        if self.pid.is_none() { Err(HandoverError::Unknown(line)) } else { Ok(()) }
    }

    /// Kills what was started, and waits for it, so that no zombie stays.
    async fn kill(&mut self) {
        if self.is_behind_shell && self.pid.is_none() {
            let _unknown = timeout(LAST_WORDS, self.read_pid()).await;
        }
        // While the shell is there, nobody else can have this ID.
        if let (true, Some(pid), Some(_)) = (self.is_behind_shell, self.pid, self.child.id()) {
            let _gone = kill(pid, Signal::SIGKILL);
            let _ended = timeout(LAST_WORDS, self.child.wait()).await;
        }
        // It may have ended by itself.
        let _gone = self.child.kill().await;
    }
}

/// Appends a line, or less at the end: 0 bytes are the end. A process that ends without having read
/// the keys resets the connection: that is its end, too.
async fn read_line(channel: &mut BufReader<UnixStream>, line: &mut String) -> io::Result<usize> {
    match (&mut *channel).take(LINE).read_line(line).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(0),
        read => read,
    }
}
