//! A real `redis-server` on a free port, which ends with the test that started it.

use std::{
    env, fs,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::sleep,
    time::Duration,
};

use bb8_redis::redis::{Parser, RedisResult, Value, cmd};
use tempfile::TempDir;

use super::{FakeClock, PATIENCE, eventually, free_port};

/// Which `redis-server` is started, if not the one in PATH: another version, or one that speaks the same.
const PROGRAM: &str = "TOLLGATE_TEST_REDIS_SERVER";

/// A server without persistence, empty at first.
pub struct Redis {
    pub port: u16,
    /// Where it speaks TLS: only if its arguments have `--tls-cert-file`.
    pub tls_port: Option<u16>,
    arguments: Vec<String>,
    directory: TempDir,
    clock: Option<Arc<FakeClock>>,
    running: Option<Running>,
    is_paused: AtomicBool,
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
        Self::with_each(|_, _| Vec::new(), arguments)
    }

    /// Whose wall time is this.
    pub fn under(clock: Arc<FakeClock>) -> Self {
        let mut redis = Self::start();
        redis.clock = Some(clock);
        redis.restart();
        redis
    }

    /// With settings besides that depend on the server's directory and port, before those that do not.
    pub(super) fn with_each(own: impl Fn(&Path, u16) -> Vec<String>, arguments: &[&str]) -> Self {
        const IN_MEMORY: [&str; 4] = ["--save", "", "--appendonly", "no"];
        Self::launch_with(
            |directory, port| {
                let in_memory = IN_MEMORY.map(str::to_owned);
                in_memory.into_iter().chain(own(directory, port)).collect()
            },
            arguments,
        )
    }

    /// A Sentinel with this configuration.
    pub(super) fn sentinel(configuration: &str, arguments: &[&str]) -> Self {
        Self::launch_with(
            |directory, _| {
                // It rewrites this file.
                let file = directory.join("sentinel.conf");
                fs::write(&file, configuration).unwrap();
                vec![file.to_str().unwrap().to_owned(), "--sentinel".to_owned()]
            },
            arguments,
        )
    }

    fn launch_with(own: impl Fn(&Path, u16) -> Vec<String>, arguments: &[&str]) -> Self {
        let has_tls = arguments.contains(&"--tls-cert-file");
        // Somebody else may take the port before the server does: then another is tried.
        for _ in 0..10 {
            let (port, directory) = (free_port(), TempDir::new().unwrap());
            let mut all = own(directory.path(), port);
            let tls_port = has_tls.then(free_port);
            if let Some(port) = tls_port {
                all.extend(["--tls-port".to_owned(), port.to_string()]);
            }
            all.extend(arguments.iter().map(|&argument| argument.to_owned()));
            let is_paused = AtomicBool::new(false);
            let mut redis =
                Self { port, tls_port, arguments: all, directory, clock: None, running: None, is_paused };
            if redis.launch() {
                return redis;
            }
            eprint!("{}", fs::read_to_string(redis.log()).unwrap_or_default());
            // A machine that is busy may refuse a process for a moment.
            sleep(Duration::from_millis(300));
        }
        panic!("redis-server does not start (Debian package redis-server)");
    }

    /// Starts it again where it was, empty.
    pub fn restart(&mut self) {
        // Another process that asked for a free port may have this one for a moment.
        eventually("redis-server starts again", || {
            self.kill();
            self.launch()
        });
    }

    fn launch(&mut self) -> bool {
        let directory = self.directory.path().to_str().unwrap();
        let mut shell = Command::new("sh");
        self.clock.iter().for_each(|clock| clock.wear(&mut shell));
        let mut shell = shell
            .arg("-c")
            .arg(r#""$0" "$@" >&2 & echo $!; cat; kill -KILL $!; wait"#)
            .arg(env::var(PROGRAM).unwrap_or_else(|_| "redis-server".to_owned()))
            .args(&self.arguments)
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--dir", directory])
            .args(["--loglevel", "warning"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(self.log()).unwrap())
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

    /// What it writes.
    fn log(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    fn lives(&self) -> bool {
        let running = self.running.as_ref().expect("it was started");
        let stat = fs::read_to_string(format!("/proc/{}/stat", running.pid)).unwrap_or_default();
        // One that has ended and was not waited for yet is a zombie.
        stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
    }

    /// Without a password. By TLS where it has a port for it.
    pub fn url(&self) -> String {
        match self.tls_port {
            Some(port) => format!("rediss://127.0.0.1:{port}"),
            None => format!("redis://127.0.0.1:{}", self.port),
        }
    }

    /// Where other servers reach it: where it speaks TLS, if `--tls-replication` says so.
    pub(super) fn peer_port(&self) -> u16 {
        let by_tls = self.arguments.windows(2).any(|pair| pair == ["--tls-replication", "yes"]);
        self.tls_port.filter(|_| by_tls).unwrap_or(self.port)
    }

    /// What it asks for, by its arguments.
    pub fn password(&self) -> Option<&str> {
        let at = self.arguments.iter().position(|argument| argument == "--requirepass")?;
        self.arguments.get(at + 1).map(String::as_str)
    }

    /// What `redis-cli ARGUMENTS` prints, but for where it does not connect. A command is sent from here, on a connection of
    /// its own: tests that wait for something ask often, and each process would take time from the others. `redis-cli` itself
    /// runs if the first argument is one of its options.
    pub fn cli(&self, arguments: &[&str]) -> String {
        if arguments[0].starts_with('-') {
            return self.cli_with(arguments, "");
        }
        let reply = self.ask(arguments).map_or_else(|error| error.to_string(), |value| printed(&value));
        reply.trim_end().to_owned()
    }

    fn ask(&self, arguments: &[&str]) -> RedisResult<Value> {
        let mut server = TcpStream::connect(("127.0.0.1", self.port))?;
        server.set_read_timeout(Some(PATIENCE))?;
        let mut send = |arguments: &[&str]| {
            let mut command = cmd(arguments[0]);
            command.arg(&arguments[1..]);
            server.write_all(&command.get_packed_command())?;
            Parser::new().parse_value(&mut server)
        };
        if let Some(password) = self.password() {
            send(&["auth", password])?;
        }
        send(arguments)
    }

    /// What `redis-cli` prints with `input`, which `-x` makes the last argument: it may be of any length.
    pub fn cli_with(&self, arguments: &[&str], input: &str) -> String {
        let mut command = Command::new("redis-cli");
        if let Some(password) = self.password() {
            command.env("REDISCLI_AUTH", password);
        }
        let mut child = command
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
        let mut keys: Vec<_> = self.cli(&["keys", "*"]).lines().map(str::to_owned).collect();
        keys.sort();
        keys
    }

    /// Stops it where it stands: it takes connections, and answers nothing.
    pub fn pause(&self) {
        self.signal("STOP");
        self.is_paused.store(true, SeqCst);
    }

    pub fn resume(&self) {
        self.signal("CONT");
        self.is_paused.store(false, SeqCst);
    }

    /// Whether it runs, and is not paused.
    pub fn answers(&self) -> bool {
        self.running.is_some() && !self.is_paused.load(SeqCst)
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        if let Some(Running { mut shell, .. }) = self.running.take() {
            drop(shell.stdin.take());
            let _ = shell.wait();
            self.is_paused.store(false, SeqCst);
        }
    }

    fn signal(&self, name: &str) {
        let running = self.running.as_ref().expect("it runs");
        let status = Command::new("kill").arg(format!("-{name}")).arg(&running.pid).status().unwrap();
        assert!(status.success());
    }
}

/// As `redis-cli` prints it where its output is no terminal.
fn printed(value: &Value) -> String {
    match value {
        Value::Nil => String::new(),
        Value::Okay => "OK".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::SimpleString(text) => text.clone(),
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Array(values) => values.iter().map(printed).collect::<Vec<_>>().join("\n"),
        Value::ServerError(error) => format!("{} {}", error.code(), error.details().unwrap_or_default()),
        other => panic!("RESP2 has no such value: {other:?}"),
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

#[test]
fn commands_are_printed_as_redis_cli_prints_them() {
    let (redis, other) = (Redis::start(), Redis::start());
    let commands: [&[&str]; 12] = [
        &["set", "a", "1"],
        &["get", "a"],
        &["get", "none"],
        &["incr", "a"],
        &["incr", "a", "b"],
        &["rpush", "list", "b", "", "a"],
        &["lrange", "list", "0", "-1"],
        &["lpop", "a"],
        &["command", "getkeys", "mset", "a", "1", "b", "2"],
        &["eval", "return { 1, { 'a', false }, { err = 'MINE of mine' } }", "0"],
        &["config", "get", "maxmemory"],
        &["keys", "li*"],
    ];
    for command in commands {
        assert_eq!(redis.cli(command), other.cli_with(command, ""), "{command:?}");
    }
}
