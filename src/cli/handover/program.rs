//! The binary and the arguments that this process was started with.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
    process::Command,
};

/// The binary of this process, even if it was renamed.
const THIS_PROCESS: &str = "/proc/self/exe";
/// The kernel's suffix of the name of a deleted file (proc(5)).
const DELETED: &[u8] = b" (deleted)";

/// The command line for starting another process like this one.
#[derive(Debug, Clone)]
pub(in crate::cli) struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

impl Program {
    /// To be called at the start, before the file may be renamed.
    ///
    /// # Errors
    /// The path of the binary is unknown.
    pub(in crate::cli) fn of_this_process() -> io::Result<Self> {
        let mut arguments = env::args_os();
        let name = arguments.next().unwrap_or_default();
        let path = match by_name(&name, &env::var_os("PATH").unwrap_or_default()) {
            Some(path) => path,
            None => without_mark(env::current_exe()?),
        };
        Ok(Self { path, arguments: arguments.collect() })
    }

    /// The path of the new binary.
    pub(in crate::cli) fn path(&self) -> &Path {
        &self.path
    }

    /// The command with this shell script, which gets the program as its arguments.
    pub(super) fn command_behind(&self, script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script, "sh"]).arg(&self.path).args(&self.arguments);
        command
    }

    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.args(&self.arguments);
        command
    }
}

/// The path by which this process was called, because a symbolic link may point to the next version later. `None` if
/// the file is not this process' binary, since a caller may pass any name.
fn by_name(name: &OsStr, path: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return std::path::absolute(name).ok().filter(|path| is_this_process(path));
    }
    let candidates = env::split_paths(path).map(|directory| directory.join(name));
    candidates.filter_map(|path| std::path::absolute(path).ok()).find(|path| is_this_process(path))
}

fn is_this_process(path: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    identity(path).is_some_and(|file| identity(Path::new(THIS_PROCESS)) == Some(file))
}

fn without_mark(path: PathBuf) -> PathBuf {
    match path.as_os_str().as_bytes().strip_suffix(DELETED) {
        Some(path) => OsStr::from_bytes(path).into(),
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_not_resolved() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("current");
        std::os::unix::fs::symlink(env::current_exe().unwrap(), &link).unwrap();
        assert_eq!(by_name(link.as_os_str(), OsStr::new("")), Some(link.clone()));
        let path = env::join_paths([Path::new("/nonexistent"), directory.path()]).unwrap();
        assert_eq!(by_name(OsStr::new("current"), &path), Some(link));
    }

    #[test]
    fn another_file_of_that_name_is_not_it() {
        assert_eq!(by_name(OsStr::new("/bin/sh"), OsStr::new("")), None);
        assert_eq!(by_name(OsStr::new("sh"), OsStr::new("/bin:/usr/bin")), None);
    }

    #[test]
    fn a_file_that_is_gone_has_its_name_still() {
        assert_eq!(without_mark("/opt/tollgate (deleted)".into()), Path::new("/opt/tollgate"));
        assert_eq!(without_mark("/opt/tollgate".into()), Path::new("/opt/tollgate"));
    }
}
