//! A real PostgreSQL on a free port, which ends with the test that started it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

use super::{eventually, free_port, printed};

/// A server with the empty database `tollgate`, of the user of the same name.
pub struct Postgres {
    pub port: u16,
    directory: TempDir,
    settings: Vec<String>,
    server: Option<Child>,
}

impl Postgres {
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// With these settings besides, such as `max_connections=5`.
    pub fn with(settings: &[&str]) -> Self {
        let directory = TempDir::new().unwrap();
        let data = directory.path().join("data");
        if is_root() {
            printed(Command::new("chown").arg("postgres:").arg(directory.path()));
        }
        let mut init = as_its_user(&programs().join("initdb"));
        init.arg("-D").arg(&data).args(["-U", "tollgate", "--auth=trust", "-N", "--locale=C.UTF-8"]);
        printed(&mut init);
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        let mut postgres = Self { port: free_port(), directory, settings, server: None };
        postgres.launch();
        postgres.query_in("postgres", "CREATE DATABASE tollgate");
        postgres
    }

    fn launch(&mut self) {
        // Another process that asked for a free port may have this one for a moment.
        eventually("PostgreSQL starts", || {
            self.stop();
            let mut server = as_its_user(&programs().join("postgres"));
            server.arg("-D").arg(self.directory.path().join("data")).arg("-p").arg(self.port.to_string());
            for setting in ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off"] {
                server.args(["-c", setting]);
            }
            self.settings.iter().for_each(|setting| {
                server.args(["-c", setting]);
            });
            let log = fs::File::create(self.directory.path().join("log")).unwrap();
            let mut child = server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
            let mut is_up = false;
            eventually("PostgreSQL listens, or ends", || {
                let ready = Command::new(programs().join("pg_isready"))
                    .args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()])
                    .status()
                    .unwrap();
                is_up = ready.success();
                is_up || child.try_wait().unwrap().is_some()
            });
            self.server = Some(child);
            is_up
        });
    }

    /// Ends it, and all its connections, at once.
    pub fn stop(&mut self) {
        if let Some(mut server) = self.server.take() {
            // SIGQUIT: its processes end as well.
            let _sent = Command::new("kill").arg("-QUIT").arg(server.id().to_string()).status();
            let _ended = server.wait();
        }
    }

    /// Starts it again, with what it had.
    pub fn restart(&mut self) {
        self.launch();
    }

    /// The result of `query` in the database `tollgate`, without heads, with `|` between columns.
    #[track_caller]
    pub fn query(&self, query: &str) -> String {
        self.query_in("tollgate", query)
    }

    #[track_caller]
    fn query_in(&self, database: &str, query: &str) -> String {
        let mut psql = Command::new(programs().join("psql"));
        psql.args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", "tollgate", "-d", database]);
        printed(psql.args(["-At", "-v", "ON_ERROR_STOP=1", "-c", query])).trim_end().to_owned()
    }
}

/// The URL of the database `tollgate` behind this port.
pub fn url(port: u16) -> String {
    format!("postgres://tollgate@127.0.0.1:{port}/tollgate")
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop();
    }
}

fn is_root() -> bool {
    nix::unistd::Uid::effective().is_root()
}

/// The directory of the newest version's programs.
fn programs() -> PathBuf {
    let versions =
        fs::read_dir("/usr/lib/postgresql").expect("this test needs PostgreSQL: apt-get install postgresql");
    let newest = versions
        .flatten()
        .filter(|version| version.path().join("bin/postgres").exists())
        .max_by_key(|version| version.file_name().to_string_lossy().parse::<u32>().unwrap_or_default());
    newest.expect("a version of PostgreSQL").path().join("bin")
}

/// PostgreSQL does not run as root.
fn as_its_user(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
    // The directory of the test may be closed to it.
    command.current_dir("/");
    command
}
