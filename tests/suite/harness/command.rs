//! Commands of the binary, run to their end.

use std::{env, path::Path, process::Command};

/// What became of one.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs `tollgate ARGUMENTS`.
#[track_caller]
pub fn tollgate(arguments: &[&str]) -> Ended {
    tollgate_in(Path::new("."), &[], arguments)
}

/// Runs `tollgate ARGUMENTS` in a directory, with these variables.
#[track_caller]
pub fn tollgate_in(directory: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> Ended {
    let output = command(directory)
        .envs(variables.iter().copied())
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("tollgate {arguments:?}: {error}"));
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// The binary, in a directory, with nothing of its own in the environment. `TOLLGATE_TEST_BINARY` names another one, such as a
/// release build.
pub fn command(directory: &Path) -> Command {
    let built = env!("CARGO_BIN_EXE_tollgate").into();
    let mut command = Command::new(env::var_os("TOLLGATE_TEST_BINARY").unwrap_or(built));
    for name in ["TOLLGATE_ADMIN", "TOLLGATE_ADMIN_TOKEN", "LISTEN", "ADMIN", "ORIGIN"] {
        command.env_remove(name);
    }
    command.current_dir(directory);
    command
}
