//! A Redis of a test's own.

use std::{
    io::Write,
    net::{Ipv4Addr, TcpListener},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use super::PATIENCE;

/// A running `redis-server` that keeps nothing on disk, killed when it is dropped.
pub struct Redis {
    pub port: u16,
    child: Child,
    _directory: TempDir,
}

impl Redis {
    /// Starts it on a free port, and waits until it answers.
    pub fn start() -> Self {
        loop {
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
            // Somebody else may have taken the port meanwhile.
            if let Some(redis) = Self::start_on(free) {
                return redis;
            }
        }
    }

    /// `None` where the port is taken.
    fn start_on(port: u16) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let child = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "no"])
            .arg("--dir")
            .arg(directory.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("redis-server: {error}"));
        let mut redis = Self { port, child, _directory: directory };
        // Whoever answers has to be this one.
        let itself = format!("process_id:{}", redis.child.id());
        let end = Instant::now() + PATIENCE;
        while !redis.cli(&["INFO", "server"]).lines().any(|line| line.trim_end() == itself) {
            if redis.child.try_wait().unwrap().is_some() {
                return None;
            }
            assert!(Instant::now() < end, "redis-server never answers");
            thread::sleep(Duration::from_millis(5));
        }
        Some(redis)
    }

    /// `redis://127.0.0.1:6379`
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// What `redis-cli ARGUMENTS` says, without the newline at its end.
    pub fn cli(&self, arguments: &[&str]) -> String {
        self.cli_with(arguments, "")
    }

    /// Likewise with `input`, which `-x` makes the last argument: it may be of any length.
    pub fn cli_with(&self, arguments: &[&str], input: &str) -> String {
        let mut child = Command::new("redis-cli")
            .args(["-h", "127.0.0.1", "-p", &self.port.to_string()])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("redis-cli: {error}"));
        // What takes no input may have ended.
        let _unread = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
        let output = child.wait_with_output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim_end_matches('\n').to_owned()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}
