//! Control groups with a limit of memory, where the test may make them.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{self, Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use super::command;

/// A control group of the test's own. It is removed when it is dropped, after the processes in it have ended.
pub struct Cgroup {
    directory: PathBuf,
    files: &'static Files,
}

/// The names of its files.
struct Files {
    limit: &'static str,
    /// Of memory and swap together; or of swap alone, with the number that forbids it.
    limit_with_swap: (&'static str, Option<usize>),
    peak: &'static str,
    /// Where the kernel counts the processes that it killed for memory.
    events: &'static str,
}

const V1: Files = Files {
    limit: "memory.limit_in_bytes",
    limit_with_swap: ("memory.memsw.limit_in_bytes", None),
    peak: "memory.max_usage_in_bytes",
    events: "memory.oom_control",
};
const V2: Files = Files {
    limit: "memory.max",
    limit_with_swap: ("memory.swap.max", Some(0)),
    peak: "memory.peak",
    events: "memory.events",
};

impl Cgroup {
    /// A group that may take so many bytes. Where none can be made, the reason.
    ///
    /// # Errors
    /// There is no hierarchy of control groups for memory that this process may write to.
    pub fn with_memory(bytes: usize) -> Result<Self, String> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("tollgate-test-{}-{}", process::id(), COUNT.fetch_add(1, Relaxed));
        let unified = Path::new("/sys/fs/cgroup");
        let controls = fs::read_to_string(unified.join("cgroup.subtree_control")).unwrap_or_default();
        let (parent, files) = match controls.split_whitespace().any(|controller| controller == "memory") {
            true => (unified.to_owned(), &V2),
            false => (unified.join("memory"), &V1),
        };
        if !parent.join("cgroup.procs").exists() {
            return Err(format!("{} is no hierarchy of control groups for memory", parent.display()));
        }
        let group = Self { directory: parent.join(name), files };
        let made = fs::create_dir(&group.directory).and_then(|()| group.limit(bytes));
        made.map_err(|error| format!("{} can't be made: {error}", group.directory.display()))?;
        Ok(group)
    }

    fn limit(&self, bytes: usize) -> io::Result<()> {
        fs::write(self.directory.join(self.files.limit), bytes.to_string())?;
        // A kernel that does not count swap has no such file.
        let (name, with_swap) = self.files.limit_with_swap;
        let _is_counted = fs::write(self.directory.join(name), with_swap.unwrap_or(bytes).to_string());
        Ok(())
    }

    /// `tollgate ARGUMENTS`, in the group from its first instruction on.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let binary = command(Path::new("."));
        let script = r#"echo $$ > "$0/cgroup.procs" && exec "$@""#;
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(script).arg(&self.directory).arg(binary.get_program()).args(arguments);
        for (name, value) in binary.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        shell.stdin(Stdio::null());
        shell
    }

    /// What a shell runs in the group, with all that it starts.
    pub fn shell(&self, script: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!(r#"echo $$ > "$0/cgroup.procs" && {script}"#)).arg(&self.directory);
        shell
    }

    /// The most bytes that it has taken at once, with the pages of files that it has read.
    pub fn peak(&self) -> usize {
        let text = fs::read_to_string(self.directory.join(self.files.peak)).unwrap();
        text.trim().parse().unwrap()
    }

    /// How many of its processes were killed because it had no memory left.
    pub fn killed(&self) -> u64 {
        let text = fs::read_to_string(self.directory.join(self.files.events)).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill ")).unwrap_or("0");
        line.trim().parse().unwrap()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.directory);
    }
}
