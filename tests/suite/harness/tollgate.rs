//! The binary under test, as its users run it.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::Instant,
};

use tempfile::TempDir;

use super::{
    Ended, PATIENCE, Reply,
    command::{command, tollgate},
    eventually, request,
};

/// A configuration, as YAML. Listener and admin port are free ones.
pub struct Config(String);

impl Config {
    /// One upstream `origin` at `endpoints`, one route for everything; `rest` is YAML for the top level.
    pub fn new(endpoints: &[SocketAddr], rest: &str) -> Self {
        let endpoints: Vec<_> = endpoints.iter().map(|address| format!("\"http://{address}\"")).collect();
        Self(format!(
            "upstreams:\n  origin: {{ endpoints: [{}] }}\nroutes:\n  - {{ path: /*, upstream: origin }}\n{rest}",
            endpoints.join(", ")
        ))
    }

    /// The same with more settings of the upstream: `settings` is what stands after `endpoints` in braces.
    pub fn upstream(endpoints: &[SocketAddr], settings: &str, rest: &str) -> Self {
        let Self(yaml) = Self::new(endpoints, rest);
        Self(yaml.replacen("] }", &format!("], {settings} }}"), 1))
    }

    /// The upstream of [`Config::new`], held back by this policy, which `rest` has to define.
    pub fn with_policy(self, name: &str) -> Self {
        Self(self.0.replacen("] }\nroutes", &format!("], policies: [{name}] }}\nroutes"), 1))
    }

    /// The whole file but for the ports.
    pub fn yaml(yaml: impl Into<String>) -> Self {
        Self(yaml.into())
    }
}

/// A running Tollgate, killed when it is dropped.
pub struct Tollgate {
    /// Where clients are served.
    pub address: SocketAddr,
    /// The admin port.
    pub admin: SocketAddr,
    child: Child,
    stderr: Arc<Mutex<Vec<String>>>,
    stdout: Arc<Mutex<Vec<String>>>,
    directory: TempDir,
}

impl Tollgate {
    /// Starts it with `config`, and waits until it listens. Two workers, unless the file says otherwise;
    /// access log off likewise.
    pub fn start(config: Config) -> Self {
        Self::start_as(&["run", "--config", "proxy.yaml"], config)
    }

    /// Likewise with these arguments, in the directory that holds the configuration as `proxy.yaml`.
    pub fn start_as(arguments: &[&str], config: Config) -> Self {
        let mut command = command(Path::new("."));
        command.args(arguments).stdin(Stdio::null());
        Self::launch(command, config)
    }

    /// Starts it as [`Tollgate::start`] does.
    ///
    /// # Errors
    /// It ends before it listens: what it said.
    pub fn try_start(config: Config) -> Result<Self, String> {
        let mut command = command(Path::new("."));
        command.args(["run", "--config", "proxy.yaml"]).stdin(Stdio::null());
        Self::try_launch(command, config)
    }

    /// Likewise by a command of the test's own, whose stdin is left as it is.
    pub fn launch(command: Command, config: Config) -> Self {
        Self::try_launch(command, config).unwrap_or_else(|said| panic!("{said}"))
    }

    fn try_launch(command: Command, config: Config) -> Result<Self, String> {
        let (mut child, directory, yaml) = spawn(command, config);
        let stderr = collect(child.stderr.take().unwrap());
        let stdout = collect(child.stdout.take().unwrap());
        let find = |marker: &str| -> Option<SocketAddr> {
            let lines = stderr.lock().unwrap();
            let line = lines.iter().find(|line| line.contains(marker))?;
            match serde_json::from_str::<serde_json::Value>(line) {
                Ok(line) => line["address"].as_str()?.parse().ok(),
                Err(_) => line.split("address=").nth(1)?.split_whitespace().next()?.parse().ok(),
            }
        };
        let end = Instant::now() + PATIENCE;
        let (address, admin) = loop {
            if let (Some(address), Some(admin)) = (find("serving clients"), find("admin port")) {
                break (address, admin);
            }
            if let Some(status) = child.try_wait().unwrap() {
                return Err(format!("ended with {status}: {:#?}\n{yaml}", stderr.lock().unwrap()));
            }
            assert!(Instant::now() < end, "never listened: {:#?}", stderr.lock().unwrap());
            thread::sleep(std::time::Duration::from_millis(2));
        };
        Ok(Self { address, admin, child, stderr, stdout, directory })
    }

    /// Starts it with `config` where it should refuse to start: its exit code, and what it said.
    #[track_caller]
    pub fn refuses(config: Config) -> (Option<i32>, String) {
        let mut command = command(Path::new("."));
        command.args(["run", "--config", "proxy.yaml"]).stdin(Stdio::null());
        let (mut child, _directory, _) = spawn(command, config);
        let stderr = collect(child.stderr.take().unwrap());
        let mut status = None;
        eventually("it refuses to start", || {
            status = child.try_wait().unwrap();
            status.is_some() || stderr.lock().unwrap().iter().any(|line| line.contains("serving clients"))
        });
        let _ = child.kill();
        let status = status.unwrap_or_else(|| panic!("it serves: {:#?}", stderr.lock().unwrap()));
        // Whatever it said is in the pipe by now, and the pipe's other end is closed.
        eventually("its messages end", || Arc::strong_count(&stderr) == 1);
        let said = stderr.lock().unwrap().join("\n");
        (status.code(), said)
    }

    /// The lines written to stderr so far.
    pub fn log(&self) -> Vec<String> {
        self.stderr.lock().unwrap().clone()
    }

    /// Whether a line of the log has all of these words.
    pub fn has_logged(&self, words: &[&str]) -> bool {
        self.log().iter().any(|line| words.iter().all(|word| line.contains(word)))
    }

    /// The lines written to stdout so far.
    pub fn stdout(&self) -> Vec<String> {
        self.stdout.lock().unwrap().clone()
    }

    /// Where it runs, and where its configuration lies.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Runs `tollgate ARGUMENTS` against its admin port.
    #[track_caller]
    pub fn command(&self, arguments: &[&str]) -> Ended {
        let admin = format!("--admin=http://{}", self.admin);
        tollgate(&[arguments, &[admin.as_str()]].concat())
    }

    /// A request to the admin port.
    pub fn admin(&self, method: &str, path: &str) -> Reply {
        request(self.admin, method, path, &[], b"")
    }

    /// The value of the first metric whose line begins with `name`, 0 if there is none.
    pub fn metric(&self, name: &str) -> f64 {
        let reply = self.admin("GET", "/metrics");
        let text = reply.text();
        text.lines()
            .find(|line| line.starts_with(name))
            .and_then(|line| line.rsplit(' ').next())
            .map_or(0.0, |value| value.parse().unwrap())
    }

    /// The sum of all metrics of this `name`.
    pub fn metric_total(&self, name: &str) -> f64 {
        let text = self.admin("GET", "/metrics").text();
        let values = text.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
        values.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let status =
            Command::new("kill").arg(format!("-{name}")).arg(self.pid().to_string()).status().unwrap();
        assert!(status.success());
    }

    /// Waits for the end of the process.
    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("the process ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Resident memory in KiB, without the pages of files: those of the program come and go with the code that runs and with
    /// what else the machine does.
    pub fn resident_kib(&self) -> u64 {
        self.memory("RssAnon:")
    }

    /// The most resident memory, in KiB, since the last call of [`Tollgate::forget_peak`], pages of files included.
    pub fn peak_kib(&self) -> u64 {
        self.memory("VmHWM:")
    }

    /// Begins to watch for a new peak (proc(5), `clear_refs`), and returns the present one.
    pub fn forget_peak(&self) -> u64 {
        std::fs::write(format!("/proc/{}/clear_refs", self.pid()), "5").unwrap();
        self.peak_kib()
    }

    fn memory(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Tollgate {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            for line in self.stderr.lock().unwrap().iter().rev().take(40).rev() {
                eprintln!("    tollgate: {line}");
            }
            return;
        }
        // A panic ends a request, not the process: without a look at the log, nobody would notice.
        let stderr = self.stderr.lock().unwrap();
        let panics: Vec<_> = stderr.iter().filter(|line| line.contains("panicked at")).collect();
        assert!(panics.is_empty(), "{panics:#?}");
    }
}

/// Runs `command` in a directory that holds `config`.
fn spawn(mut command: Command, config: Config) -> (Child, TempDir, String) {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("proxy.yaml");
    let mut yaml = config.0;
    for (key, default) in [
        ("listeners:", "listeners: [{ address: \"127.0.0.1:0\" }]"),
        ("admin:", "admin: { address: \"127.0.0.1:0\" }"),
        ("workers:", "workers: 2"),
        ("access_log:", "access_log: off"),
        ("log:", "log: { level: debug, format: text }"),
    ] {
        if !yaml.lines().any(|line| line.starts_with(key)) {
            yaml = format!("{default}\n{yaml}");
        }
    }
    std::fs::write(&file, &yaml).unwrap();
    let child =
        command.current_dir(directory.path()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    (child, directory, yaml)
}

fn collect(stream: impl std::io::Read + Send + 'static) -> Arc<Mutex<Vec<String>>> {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let target = Arc::clone(&lines);
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            target.lock().unwrap().push(line);
        }
    });
    lines
}
