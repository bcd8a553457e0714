//! git, cloning from and pushing to `git http-backend`, which nginx runs by way of fcgiwrap.

use std::{
    fs,
    io::Write,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tempfile::TempDir;

use super::{alone, before, noise};
use crate::harness::{Config, Running, Tollgate, eventually, nginx, printed, program};

/// Two empty repositories: `/open.git`, and `/private/closed.git` for `user` with `password`.
struct Server {
    address: SocketAddr,
    directory: TempDir,
    _running: [Running; 2],
}

impl Server {
    fn start() -> Self {
        let directory = TempDir::new().unwrap();
        let path = directory.path();
        fs::write(
            path.join(".gitconfig"),
            "[user] name = A\n email = a@example.org\n[init] defaultBranch = main\n[gc] auto = 0\n[core] compression = 0\n",
        )
        .unwrap();
        let this = |name: &str, port: &str| path.join(name).join(port);
        for repository in [this("open.git", ""), this("private", "closed.git")] {
            printed(git(path).args(["init", "-q", "--bare"]).arg(&repository));
            printed(git(&repository).args(["config", "http.receivepack", "true"]));
        }
        fs::write(path.join("passwords"), "user:{PLAIN}password\n").unwrap();

        let wrapper = program("fcgiwrap", "fcgiwrap")
            .args(["-c", "1", "-s", "unix:git.socket"])
            .current_dir(path)
            .env("HOME", path)
            .stderr(Stdio::null())
            .spawn()
            .map(Running)
            .unwrap();
        eventually("fcgiwrap listens", || path.join("git.socket").exists());
        let backend = PathBuf::from(printed(git(path).arg("--exec-path")).trim()).join("git-http-backend");
        let to_git = format!(
            "fastcgi_pass unix:{path}/git.socket;
             fastcgi_param SCRIPT_FILENAME {backend}; fastcgi_param GIT_PROJECT_ROOT {path};
             fastcgi_param GIT_HTTP_EXPORT_ALL 1; fastcgi_param GIT_PROTOCOL $http_git_protocol;
             fastcgi_param PATH_INFO $uri; fastcgi_param QUERY_STRING $query_string;
             fastcgi_param REQUEST_METHOD $request_method; fastcgi_param REMOTE_USER $remote_user;
             fastcgi_param CONTENT_TYPE $content_type; fastcgi_param CONTENT_LENGTH $content_length;",
            path = path.display(),
            backend = backend.display(),
        );
        let server = format!(
            "client_max_body_size 0;
             location / {{ {to_git} }}
             location /private/ {{ auth_basic git; auth_basic_user_file passwords; {to_git} }}"
        );
        let (nginx, address) = nginx(path, "", &server);
        Self { address, directory, _running: [wrapper, nginx] }
    }

    /// git in this directory of its own; the root for the empty one.
    fn git(&self, name: &str) -> Command {
        git(&self.directory.path().join(name))
    }

    /// A repository on this machine with a file of so many MiB that do not compress.
    fn repository(&self, name: &str, mebibytes: usize) -> PathBuf {
        let path = self.directory.path().join(name);
        printed(self.git("").args(["init", "-q", name]));
        self.commit(name, "large.bin", &noise(mebibytes << 20));
        path
    }

    fn commit(&self, name: &str, file: &str, content: &[u8]) {
        fs::write(self.directory.path().join(name).join(file), content).unwrap();
        printed(self.git(name).args(["add", file]));
        printed(self.git(name).args(["commit", "-q", "-m", file]));
    }
}

fn git(directory: &Path) -> Command {
    let mut git = program("git", "git");
    // The nearest ancestor with a `.gitconfig` is the home of all that a test makes.
    let home = directory.ancestors().find(|path| path.join(".gitconfig").exists()).unwrap_or(directory);
    alone(&mut git, home).current_dir(directory).envs([
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("LC_ALL", "C"),
    ]);
    git
}

/// Runs git to its end, which has to be a good one: what it told of its requests.
#[track_caller]
fn traced(command: &mut Command) -> String {
    let output = command.env("GIT_TRACE_CURL", "1").env("GIT_TRACE_CURL_NO_DATA", "1").output().unwrap();
    let trace = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {trace}");
    trace.to_ascii_lowercase()
}

/// Runs git to its end, which has to be a bad one: what it complained of.
#[track_caller]
fn complaint(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(!output.status.success(), "{command:?} succeeded");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn large_files_are_pushed_cloned_and_fetched() {
    let server = Server::start();
    let tollgate = before(server.address);
    let url = format!("http://{}/open.git", tollgate.address);

    let work = server.repository("work", 24);
    let trace = traced(server.git("work").args(["push", "-q", &url, "main"]));
    assert!(trace.contains("transfer-encoding: chunked"), "pushed in one piece: {trace}");
    printed(server.git("").args(["clone", "-q", &url, "clone"]));
    printed(server.git("clone").args(["fsck", "--strict"]));
    let large =
        |directory: &str| fs::read(server.directory.path().join(directory).join("large.bin")).unwrap();
    assert!(large("work") == large("clone"));

    server.commit("clone", "more.bin", &noise(3 << 20));
    printed(server.git("clone").args(["push", "-q", "origin", "main"]));
    printed(server.git("work").args(["pull", "-q", "--ff-only", &url, "main"]));
    assert!(fs::read(work.join("more.bin")).unwrap() == noise(3 << 20));
}

#[test]
fn a_shallow_clone_is_deepened_in_version_2_of_the_protocol() {
    let server = Server::start();
    let tollgate = before(server.address);
    let url = format!("http://{}/open.git", tollgate.address);
    server.repository("work", 0);
    for number in 1..5 {
        server.commit("work", &number.to_string(), b"");
    }
    printed(server.git("work").args(["push", "-q", &url, "main"]));

    let trace = traced(server.git("").args(["clone", "-q", "--depth", "1", &url, "clone"]));
    assert!(trace.contains("git-protocol: version=2"), "{trace}");
    let commits = || printed(server.git("clone").args(["rev-list", "--count", "HEAD"]));
    assert_eq!(commits(), "1\n");
    printed(server.git("clone").args(["fetch", "-q", "--deepen", "2"]));
    assert_eq!(commits(), "3\n");
    printed(server.git("clone").args(["fetch", "-q", "--unshallow"]));
    assert_eq!(commits(), "5\n");
}

#[test]
fn requests_that_git_compresses_are_understood() {
    let server = Server::start();
    let tollgate = before(server.address);
    let url = format!("http://{}/open.git", tollgate.address);
    // So many branches that to name what is wanted takes more than the 1 KiB from which on git compresses.
    let mut import =
        server.git("open.git").args(["fast-import", "--quiet"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stream = import.stdin.take().unwrap();
    for number in 0..64 {
        writeln!(stream, "commit refs/heads/{number}\ncommitter A <a> {number} +0000\ndata 0").unwrap();
    }
    drop(stream);
    assert!(import.wait().unwrap().success());

    let trace = traced(server.git("").args(["clone", "-q", "--bare", &url, "clone"]));
    assert!(trace.contains("content-encoding: gzip"), "{trace}");
    let branches = printed(server.git("clone").arg("branch"));
    assert_eq!(branches.lines().count(), 64);
}

#[test]
fn credentials_reach_the_origin_and_its_401_the_client() {
    let server = Server::start();
    let tollgate = before(server.address);
    let url = |user: &str| format!("http://{user}{}/private/closed.git", tollgate.address);
    server.repository("work", 2);

    let refused = complaint(server.git("").args(["ls-remote", &url("")]));
    assert!(refused.contains("could not read Username"), "{refused}");
    let refused = complaint(server.git("work").args(["push", &url("user:wrong@"), "main"]));
    assert!(refused.contains("Authentication failed"), "{refused}");
    printed(server.git("work").args(["push", "-q", &url("user:password@"), "main"]));
    let branches = printed(server.git("").args(["ls-remote", &url("user:password@"), "main"]));
    assert!(
        branches.starts_with(printed(server.git("work").args(["rev-parse", "main"])).trim()),
        "{branches}"
    );
}

#[test]
fn git_reports_that_it_is_limited() {
    let server = Server::start();
    let policy = "policies:\n  few: { algorithm: fixed_window, key: ip, limit: 2/1h }\n";
    let tollgate = Tollgate::start(Config::new(&[server.address], policy).with_policy("few"));
    let url = format!("http://{}/open.git", tollgate.address);
    for _ in 0..2 {
        printed(server.git("").args(["-c", "protocol.version=0", "ls-remote", &url]));
    }
    let limited = complaint(server.git("").args(["ls-remote", &url]));
    assert!(limited.contains("429"), "{limited}");
}
