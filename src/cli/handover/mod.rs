//! SIGUSR2: a new process of the binary takes over the listening sockets, and this one ends once its requests have
//! finished. Clients notice nothing of an upgrade.
//!
//! The old process starts the new one with all listening sockets and a connection between the two. Until the new
//! process says that it serves, the old one goes on as if nothing had happened, and goes on for good if the new one
//! fails. Both accept on the same sockets for a moment, so no connection in their queues is lost.

mod new_process;
mod old_process;
mod program;

use std::{env, fmt::Display, os::unix::process::parent_id, process, process::ExitCode};

pub(super) use new_process::{Handover, HandoverError, NewProcess};
pub(super) use old_process::OldProcess;
use program::Program;

/// From the old process to the new one, first of all: the keys of TLS sessions follow, as JSON.
const SESSIONS: &str = "sessions: ";
/// From one process to the other: clients are served.
const READY: &str = "ready";
/// Why the new process can't serve; the reason follows.
const FAILED: &str = "failed: ";
/// From the old process to the new one: it accepts no more connections, and is no longer the service's main process.
const TAKE_OVER: &str = "take over";

/// The processes before and after this one.
#[derive(Debug)]
pub(super) struct Succession {
    pub(super) old_process: OldProcess,
    /// What a new process is started with, or why none can be.
    pub(super) program: Result<Program, String>,
}

impl Succession {
    /// To be called at the start.
    pub(super) fn of_this_process(old_process: OldProcess) -> Self {
        let program = match Situation::at_start(old_process.is_there()).obstacle() {
            Some(obstacle) => Err(obstacle.to_owned()),
            None => Program::of_this_process()
                .map_err(|error| format!("the path of the binary is unknown: {error}")),
        };
        Self { old_process, program }
    }

    /// For a process that no other can replace, because of this `reason`.
    pub(super) fn none(reason: &str) -> Self {
        Self { old_process: OldProcess::none(), program: Err(reason.to_owned()) }
    }

    /// Reports why this process can't serve.
    pub(super) fn fail(&self, error: impl Display) -> ExitCode {
        tracing::error!("{error}");
        self.old_process.failed(error);
        ExitCode::FAILURE
    }
}

/// How this process was started, as far as a handover depends on it.
#[derive(Debug, Clone, Copy)]
struct Situation {
    pid: u32,
    /// Of the process that started this one.
    parent: u32,
    /// Whether an old process handed over to this one.
    handed_over: bool,
    /// Whether a service manager can be told that another process is the main one.
    has_service_manager: bool,
}

impl Situation {
    /// At the start: the parent may be gone later.
    fn at_start(handed_over: bool) -> Self {
        Self {
            pid: process::id(),
            parent: parent_id(),
            handed_over,
            has_service_manager: env::var_os("NOTIFY_SOCKET").is_some(),
        }
    }

    /// Why the end of this process would take the new one with it.
    fn obstacle(self) -> Option<&'static str> {
        let Self { pid, parent, handed_over, has_service_manager } = self;
        if pid == 1 {
            return Some(
                "Tollgate is PID 1 of its container, which ends when PID 1 ends, and the new process with it. Start a \
                    container with the new version beside this one, then stop this one with SIGTERM",
            );
        }
        // Who came by a handover may have PID 1 for its parent since the old process has ended.
        if parent == 1 && !handed_over && !has_service_manager {
            return Some(
                "PID 1 started Tollgate and takes its end for the end of the container or of the service. Under \
                    systemd set Type=notify; in a container start one with the new version beside this one, then stop \
                    this one with SIGTERM",
            );
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn obstacle(pid: u32, parent: u32, handed_over: bool, has_service_manager: bool) -> Option<&'static str> {
        Situation { pid, parent, handed_over, has_service_manager }.obstacle()
    }

    #[test]
    fn who_is_watched_by_pid_1_can_not_hand_over() {
        for has_service_manager in [false, true] {
            assert!(obstacle(1, 0, false, has_service_manager).unwrap().contains("is PID 1"));
        }
        assert!(obstacle(7, 1, false, false).unwrap().contains("Type=notify"));
    }

    #[test]
    fn others_can() {
        for (parent, handed_over, has_service_manager) in
            [(1, false, true), (1, true, false), (1, true, true), (400, false, false), (400, false, true)]
        {
            assert_eq!(obstacle(7, parent, handed_over, has_service_manager), None);
        }
    }
}
