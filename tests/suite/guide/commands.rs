//! Every `tollgate …` that the pages show is a command that the binary knows, with its arguments.

use std::{fs, path::Path};

use tempfile::TempDir;

use crate::harness::{Authority, Ended, program};

use super::links::pages;

/// The commands of a page: what follows a prompt in its blocks, and the lines of blocks without one.
fn commands(text: &str) -> Vec<&str> {
    let fenced = text.split("\n```").skip(1).step_by(2);
    let lines = fenced.flat_map(|block| {
        let prompt = if block.contains("\n$ ") { "$ " } else { "" };
        block.lines().filter_map(move |line| line.strip_prefix(prompt))
    });
    let indented = text.lines().filter_map(|line| line.strip_prefix("    "));
    lines.chain(indented).filter(|line| line.starts_with("tollgate ")).collect()
}

/// Runs `line` where nobody listens at the admin port.
fn run(line: &str, directory: &Path) -> Ended {
    let binaries = Path::new(env!("CARGO_BIN_EXE_tollgate")).parent().unwrap();
    let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = program("bash", "bash");
    shell.args(["-c", line]).current_dir(directory).env("PATH", path).env("TOLLGATE_ADMIN", "127.0.0.1:1");
    let output = shell.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

#[test]
fn the_binary_knows_every_command() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directory = TempDir::new().unwrap();
    let authority = Authority::new("Authority of the tests");
    fs::copy(authority.issue("client", &[]).cert, directory.path().join("client.pem")).unwrap();
    let mut all = vec![root.join("README.md")];
    for name in ["docs", "deploy", "examples"] {
        pages(&root.join(name), &mut all);
    }
    let (mut count, mut wrong) = (0, Vec::new());
    for page in &all {
        let text = fs::read_to_string(page).unwrap();
        for line in commands(&text) {
            // Of a pipeline, the first command; those that serve would not end.
            let command = line.split(" | ").next().unwrap_or(line).split(" && ").next().unwrap_or(line);
            if ["tollgate run", "tollgate demo"].iter().any(|serves| command.starts_with(serves)) {
                continue;
            }
            count += 1;
            let ended = run(command, directory.path());
            if ended.stderr.contains("Usage:") || ended.stderr.contains("For more information, try '--help'")
            {
                wrong.push(format!("{}: {line}\n{}", page.display(), ended.stderr));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 40, "{count}");
}
