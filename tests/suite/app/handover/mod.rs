//! SIGUSR2: a new process of the binary takes over, and clients notice nothing.

mod failures;
mod kept;
mod service_manager;
mod tls_sessions;
mod under_load;

use std::{
    fs,
    os::unix::{
        fs::{PermissionsExt, symlink},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tempfile::TempDir;

use crate::harness::{Config, Origin, Tollgate, command, eventually};

/// The words of the old process when a new one has taken over.
const HANDED_OVER: &str = "a new process serves clients";
/// The first words of the new process.
const TOOK_OVER: &str = "took over from the old process";
/// When no new process has taken over.
const NOT_HANDED_OVER: &str = "this one goes on serving";

/// Where the binary is installed, to be replaced.
struct Installation {
    directory: TempDir,
}

impl Installation {
    fn new() -> Self {
        let installation = Self { directory: TempDir::new().unwrap() };
        symlink(env!("CARGO_BIN_EXE_tollgate"), installation.binary()).unwrap();
        installation
    }

    fn binary(&self) -> PathBuf {
        self.directory.path().join("tollgate")
    }

    /// Puts a shell script in the binary's place.
    fn replace(&self, script: &str) {
        let (text, new) = (self.directory.path().join("text"), self.directory.path().join("new"));
        fs::write(&text, format!("#!/bin/sh\n{script}\n")).unwrap();
        copy(&text, &new);
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(new, self.binary()).unwrap();
    }

    /// Puts the binary back.
    fn restore(&self) {
        fs::remove_file(self.binary()).unwrap();
        symlink(env!("CARGO_BIN_EXE_tollgate"), self.binary()).unwrap();
    }

    fn start(&self, config: Config) -> Service {
        self.start_with(&[], config)
    }

    fn start_with(&self, variables: &[(&str, &str)], config: Config) -> Service {
        let mut command = Command::new(self.binary());
        command.envs(variables.iter().copied());
        launch(command, config)
    }
}

/// Runs `tollgate run` by `command`.
pub fn launch(mut command: Command, config: Config) -> Service {
    // A group of their own, by which all processes can be ended.
    command.args(["run", "--config", "proxy.yaml"]).stdin(Stdio::null()).process_group(0);
    Service(Tollgate::launch(command, config))
}

/// Tollgate by its built path.
pub fn start(config: Config) -> Service {
    launch(command(Path::new(".")), config)
}

/// Tollgate with all processes that it hands over to. Their messages are in one log. Killed when it is dropped.
pub struct Service(pub Tollgate);

impl Service {
    fn count(&self, message: &str) -> usize {
        self.0.log().iter().filter(|line| line.contains(message)).count()
    }

    #[track_caller]
    fn says(&self, message: &str) {
        eventually(message, || self.count(message) > 0);
    }

    /// Asks the process that was started first to hand over, and waits until it has. Returns the new one's ID.
    #[track_caller]
    pub fn hand_over(&self) -> u32 {
        self.hand_over_from(self.0.pid())
    }

    #[track_caller]
    fn hand_over_from(&self, pid: u32) -> u32 {
        let handed_over = self.count(HANDED_OVER);
        signal("USR2", pid);
        eventually("a new process serves", || self.count(HANDED_OVER) > handed_over);
        eventually("the new process knows", || self.count(TOOK_OVER) > handed_over);
        let log = self.0.log();
        let line = log.iter().rev().find(|line| line.contains(HANDED_OVER)).unwrap();
        line.split("pid=").nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap()
    }

    /// Rewrites the configuration file.
    fn configure(&self, change: impl FnOnce(String) -> String) {
        let file = self.0.directory().join("proxy.yaml");
        let yaml = fs::read_to_string(&file).unwrap();
        fs::write(file, change(yaml)).unwrap();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Those that are left.
        let _ = Command::new("kill").args(["-KILL", "--", &format!("-{}", self.0.pid())]).output();
    }
}

/// Copies a file that is to be run. By a process of its own: one that another test starts would hold this process' open
/// file for a moment, and a file that is being written can't be run.
fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").args([from, to]).status().unwrap().success());
}

fn signal(name: &str, pid: u32) {
    assert!(Command::new("kill").args([format!("-{name}"), pid.to_string()]).status().unwrap().success());
}

/// Whether there is such a process. A zombie, which somebody should have waited for, is one.
fn is_there(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// Children of the process, zombies included.
fn children(pid: u32) -> Vec<u32> {
    let file = format!("/proc/{pid}/task/{pid}/children");
    fs::read_to_string(file).unwrap().split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// Answers 200; `/slow` once the test says so.
fn origin() -> Origin {
    Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            if head.starts_with("GET /slow ") {
                conn.pause()?;
            }
            conn.answer("200 OK", &[], b"ok")?;
        }
        Ok(())
    })
}
