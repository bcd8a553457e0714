//! A real `redis-server` on a free port, which ends with the test that started it.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

use super::eventually;

/// Which `redis-server` is started, if not the one in PATH: another version, or one that speaks the same.
const PROGRAM: &str = "TOLLGATE_TEST_REDIS_SERVER";

/// A port that nobody listens on just now.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A server without persistence, empty at first.
pub struct Redis {
    pub port: u16,
    arguments: Vec<String>,
    directory: TempDir,
    running: Option<Running>,
}

struct Running {
    /// A shell that kills the server once its standard input ends: when the test does, however it ends.
    shell: Child,
    pid: String,
}

impl Redis {
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// With these settings besides, as arguments of `redis-server`: `--maxmemory 2mb`.
    pub fn with(arguments: &[&str]) -> Self {
        // Somebody else may take the port before the server does: then another is tried.
        for _ in 0..10 {
            let port = free_port();
            let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
            let directory = TempDir::new().unwrap();
            let mut redis = Self { port, arguments, directory, running: None };
            if redis.launch() {
                return redis;
            }
        }
        panic!("redis-server does not start (Debian package redis-server)");
    }

    /// Starts it again where it was, empty.
    pub fn restart(&mut self) {
        self.kill();
        assert!(self.launch(), "redis-server does not start again");
    }

    fn launch(&mut self) -> bool {
        let mut shell = Command::new("sh")
            .arg("-c")
            .arg(r#""$0" "$@" >&2 & echo $!; cat; kill -KILL $!; wait"#)
            .arg(env::var(PROGRAM).unwrap_or_else(|_| "redis-server".to_owned()))
            .args([
                "--port",
                &self.port.to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
            ])
            .args(["--dir", self.directory.path().to_str().unwrap(), "--loglevel", "warning"])
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell");
        let mut pid = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut pid).unwrap();
        let pid = pid.trim().to_owned();
        let itself = format!("process_id:{pid}");
        self.running = Some(Running { shell, pid });
        let mut up = false;
        eventually("redis-server starts, or ends", || {
            // The server that answers has to be this one. One that takes no one without a password says so, and is up.
            let answer = self.cli(&["info", "server"]);
            let refusals = ["NOAUTH", "NOPERM", "unknown command"];
            up = answer.contains(&itself) || refusals.into_iter().any(|word| answer.contains(word));
            up || !self.lives()
        });
        up && self.lives()
    }

    fn lives(&self) -> bool {
        let running = self.running.as_ref().expect("it was started");
        // A process that has ended and was not waited for yet has no memory.
        std::fs::read_to_string(format!("/proc/{}/cmdline", running.pid)).is_ok_and(|line| !line.is_empty())
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// What `redis-cli ARGUMENTS` prints, on whichever of its outputs.
    pub fn cli(&self, arguments: &[&str]) -> String {
        self.cli_with(arguments, "")
    }

    /// Likewise with `input`, which `-x` makes the last argument: it may be of any length.
    pub fn cli_with(&self, arguments: &[&str], input: &str) -> String {
        let mut child = Command::new("redis-cli")
            .args(["-p", &self.port.to_string()])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("redis-cli (Debian package redis-tools)");
        // What takes no input may have ended.
        let _unread = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
        let output = child.wait_with_output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&text).trim_end().to_owned()
    }

    /// All keys, sorted.
    pub fn keys(&self) -> Vec<String> {
        let mut keys: Vec<_> = self.cli(&["--scan"]).lines().map(str::to_owned).collect();
        keys.sort();
        keys
    }

    /// Stops it where it stands: it takes connections, and answers nothing.
    pub fn pause(&self) {
        self.signal("STOP");
    }

    pub fn resume(&self) {
        self.signal("CONT");
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        if let Some(Running { mut shell, .. }) = self.running.take() {
            drop(shell.stdin.take());
            let _ = shell.wait();
        }
    }

    fn signal(&self, name: &str) {
        let running = self.running.as_ref().expect("it runs");
        let status = Command::new("kill").arg(format!("-{name}")).arg(&running.pid).status().unwrap();
        assert!(status.success());
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}
