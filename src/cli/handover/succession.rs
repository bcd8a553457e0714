//! Whether this process took over from an old one, and whether a new one can take over from it.

use std::{env, fmt::Display, os::unix::process::parent_id, process, process::ExitCode};

use super::{old_process::OldProcess, program::Program};

/// The processes before and after this one.
#[derive(Debug)]
pub(in crate::cli) struct Succession {
    pub(in crate::cli) old_process: OldProcess,
    /// The program of a new process, or why none can be started.
    pub(in crate::cli) program: Result<Program, String>,
}

impl Succession {
    /// To be called at the start.
    pub(in crate::cli) fn of_this_process(old_process: OldProcess) -> Self {
        let program = match Situation::at_start(old_process.is_there()).obstacle() {
            Some(obstacle) => Err(obstacle.to_owned()),
            None => Program::of_this_process()
                .map_err(|error| format!("the path of the binary is unknown: {error}")),
        };
        Self { old_process, program }
    }

    /// For a process that cannot be replaced; `reason`: why.
    pub(in crate::cli) fn none(reason: &str) -> Self {
        Self { old_process: OldProcess::none(), program: Err(reason.to_owned()) }
    }

    /// Reports why this process can't serve.
    pub(in crate::cli) fn fail(&self, error: impl Display) -> ExitCode {
        tracing::error!("{error}");
        self.old_process.failed(error);
        ExitCode::FAILURE
    }
}

/// The circumstances of this process that determine whether a handover is possible.
#[derive(Debug, Clone, Copy)]
struct Situation {
    pid: u32,
    /// The ID of the process that started this one.
    parent: u32,
    /// Whether an old process handed over to this one.
    handed_over: bool,
    /// Whether a service manager can be notified of another main process.
    has_service_manager: bool,
}

impl Situation {
    /// To be called at the start, because the parent may end later.
    fn at_start(handed_over: bool) -> Self {
        Self {
            pid: process::id(),
            parent: parent_id(),
            handed_over,
            has_service_manager: env::var_os("NOTIFY_SOCKET").is_some(),
        }
    }

    /// Why the end of this process would also end the new one.
    fn obstacle(self) -> Option<&'static str> {
        let Self { pid, parent, handed_over, has_service_manager } = self;
        if pid == 1 {
            return Some(
                "Tollgate is PID 1 of its container, which ends when PID 1 ends, and the new process with it. Start a \
                    container with the new version beside this one, then stop this one with SIGTERM",
            );
        }
        // A process started by a handover may have PID 1 as its parent, since the old process has ended.
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
    fn a_process_that_pid_1_watches_can_not_hand_over() {
        for has_service_manager in [false, true] {
            assert!(obstacle(1, 0, false, has_service_manager).unwrap().contains("is PID 1"));
        }
        assert!(obstacle(7, 1, false, false).unwrap().contains("Type=notify"));
    }

    #[test]
    fn a_process_that_pid_1_does_not_watch_can_hand_over() {
        for (parent, handed_over, has_service_manager) in
            [(1, false, true), (1, true, false), (1, true, true), (400, false, false), (400, false, true)]
        {
            assert_eq!(obstacle(7, parent, handed_over, has_service_manager), None);
        }
    }
}
