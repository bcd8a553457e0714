//! Files that are none, or on a disk that does not answer: what waits for them holds nothing else.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::{fs::symlink, net::UnixDatagram},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::harness::{
    Authority, Config, HungDisk, Origin, TlsConnector, Tollgate, command, eventually, get, tollgate_in,
};

/// What is obeyed at once. The issue's second, on a machine that does much else besides.
const AT_ONCE: Duration = Duration::from_secs(4);
/// How long reading a file may take.
const READ_LIMIT: Duration = Duration::from_secs(10);

fn make_pipe(path: &Path) {
    let _ = fs::remove_file(path);
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

fn file(tollgate: &Tollgate) -> PathBuf {
    tollgate.directory().join("proxy.yaml")
}

/// Puts a pipe in the place of the configuration, and has it read. Its text.
fn reload_from_a_pipe(tollgate: &Tollgate) -> String {
    let text = fs::read_to_string(file(tollgate)).unwrap();
    make_pipe(&file(tollgate));
    tollgate.signal("HUP");
    eventually("it is being read", || tollgate.has_logged(&["is reloading the configuration"]));
    text
}

/// Sends a signal, and sees it obeyed.
#[track_caller]
fn ends_at_once(mut tollgate: Tollgate, signal: &str) {
    let begun = Instant::now();
    tollgate.signal(signal);
    assert_eq!(tollgate.wait().code(), Some(0));
    assert!(begun.elapsed() < AT_ONCE, "SIG{signal} was obeyed after {:?}", begun.elapsed());
}

#[test]
fn signals_that_end_are_obeyed_while_a_reload_waits() {
    let origin = Origin::ok();
    for signal in ["TERM", "INT"] {
        let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
        reload_from_a_pipe(&tollgate);
        ends_at_once(tollgate, signal);
    }
}

#[test]
fn all_else_goes_on_while_a_reload_waits_and_a_good_one_follows() {
    let (origin, directory) = (Origin::ok(), TempDir::new().unwrap());
    let manager = UnixDatagram::bind(directory.path().join("notify")).unwrap();
    let watched = Arc::new(AtomicUsize::new(0));
    // As a service manager does, it reads all that comes.
    thread::spawn({
        let watched = Arc::clone(&watched);
        move || {
            let mut message = [0; 1_024];
            while let Ok(length) = manager.recv(&mut message) {
                watched.fetch_add(usize::from(message[..length].starts_with(b"WATCHDOG=1")), Relaxed);
            }
        }
    });
    let mut run = command(Path::new("."));
    run.args(["run", "--config", "proxy.yaml"])
        .stdin(Stdio::null())
        .env("NOTIFY_SOCKET", directory.path().join("notify"))
        .env("WATCHDOG_USEC", "400000");
    let log = directory.path().join("access.log");
    let config = format!("access_log: {{ format: json, to: \"{}\" }}\n", log.display());
    let tollgate = Tollgate::launch(run, Config::new(&[origin.address], &config));
    let text = reload_from_a_pipe(&tollgate);
    let begun = Instant::now();
    // Of the admin port, a second reload waits for the first.
    let reloads = thread::spawn({
        let admin = tollgate.admin;
        move || crate::harness::request(admin, "POST", "/v1/reload", &[], b"")
    });
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    assert_eq!(tollgate.admin("GET", "/v1/status").status, 200);
    assert_eq!(tollgate.admin("GET", "/metrics").status, 200);
    fs::rename(&log, directory.path().join("access.log.1")).unwrap();
    tollgate.signal("USR1");
    eventually("the access log is opened anew", || log.exists());
    let before = watched.load(Relaxed);
    eventually("the watchdog is told", || watched.load(Relaxed) > before + 10);
    assert!(
        begun.elapsed() < READ_LIMIT - Duration::from_secs(2),
        "the watchdog waited {:?}",
        begun.elapsed()
    );
    eventually("the reload gives up", || tollgate.has_logged(&["the configuration was not reloaded"]));
    assert!((READ_LIMIT / 2..READ_LIMIT + AT_ONCE).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    let words = "cannot be read: it is a pipe that nobody has written to its end within 10s";
    assert!(tollgate.has_logged(&[words]), "{:#?}", tollgate.log());
    // A good one, for the reload that waits.
    let good = file(&tollgate).with_extension("new");
    fs::write(&good, text).unwrap();
    fs::rename(&good, file(&tollgate)).unwrap();
    // It may have begun with the pipe: then it says so, too.
    let waited = reloads.join().unwrap();
    assert!(waited.status == 200 || waited.text().contains(words), "{}", waited.text());
    assert_eq!(tollgate.admin("POST", "/v1/reload").status, 200);
    ends_at_once(tollgate, "TERM");
}

#[test]
fn a_pipe_that_somebody_writes_is_a_configuration() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    let text = reload_from_a_pipe(&tollgate);
    OpenOptions::new().write(true).open(file(&tollgate)).unwrap().write_all(text.as_bytes()).unwrap();
    eventually("it is read", || tollgate.has_logged(&["configuration reloaded"]));
}

#[test]
fn a_handover_to_a_process_that_hangs_leaves_the_old_one() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    reload_from_a_pipe(&tollgate);
    tollgate.signal("USR2");
    eventually("a new process starts", || tollgate.has_logged(&["Tollgate is starting a new process"]));
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    eventually("it gives up", || {
        tollgate.has_logged(&["this one goes on serving: its configuration is invalid"])
    });
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    eventually("so does the reload", || tollgate.has_logged(&["the configuration was not reloaded"]));
    ends_at_once(tollgate, "TERM");
}

/// Runs `tollgate ARGUMENTS` in the background.
fn spawn(directory: &Path, arguments: &[&str], stdin: Stdio) -> Child {
    command(directory)
        .args(arguments)
        .stdin(stdin)
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn signal(child: &Child, name: &str) {
    assert!(
        Command::new("kill").args([format!("-{name}"), child.id().to_string()]).status().unwrap().success()
    );
}

/// Waits until the process has a thread that waits in this system call, by proc(5).
fn waits(child: &Child, what: &str) {
    let tasks = format!("/proc/{}/task", child.id());
    eventually(what, || {
        fs::read_dir(&tasks)
            .unwrap()
            .flatten()
            .any(|task| fs::read_to_string(task.path().join("wchan")).is_ok_and(|call| call.contains("poll")))
    });
}

#[test]
fn a_start_or_a_check_that_waits_is_ended_by_a_signal() {
    let directory = TempDir::new().unwrap();
    make_pipe(&directory.path().join("proxy.yaml"));
    for arguments in [["run", "--config", "proxy.yaml"].as_slice(), &["check", "proxy.yaml"]] {
        for name in ["INT", "TERM"] {
            let mut child = spawn(directory.path(), arguments, Stdio::null());
            waits(&child, "it waits for the pipe");
            let begun = Instant::now();
            signal(&child, name);
            child.wait().unwrap();
            assert!(begun.elapsed() < AT_ONCE, "{arguments:?}, SIG{name}: {:?}", begun.elapsed());
        }
    }
}

#[test]
fn directories_sockets_pipes_and_endless_files_are_refused_by_name() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name);
    make_pipe(&path("pipe"));
    let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
    let check = |name: &str| tollgate_in(directory.path(), &[], &["check", name]);
    for (name, words) in [
        (".", "it is a directory, not a file"),
        ("socket", "it is a socket, or a device that is not there, not a file"),
        ("/dev/zero", "it is longer than 4MiB"),
        ("pipe", "it is a pipe that nobody has written to its end within 10s"),
    ] {
        let ended = check(name);
        let error = format!("{name}: cannot be read: {words}\n");
        assert_eq!((ended.code, ended.stderr), (Some(78), error));
    }
    // What is read again later is to be a file.
    let named = |name: &str| {
        let tls = format!("tls: {{ certificates: [{{ cert: {name}, key: {name} }}] }}");
        format!(
            "listeners: [{{ address: \"127.0.0.1:0\", {tls} }}]\nupstreams: {{ o: {{ endpoints: [\"http://127.0.0.1:1\"] }} }}\nroutes: [{{ path: /*, upstream: o }}]\n"
        )
    };
    for (name, words) in [
        ("pipe", "it is a pipe, not a file"),
        ("/dev/null", "it is a device, not a file"),
        (".", "it is a directory, not a file"),
    ] {
        fs::write(path("proxy.yaml"), named(name)).unwrap();
        let ended = check("proxy.yaml");
        assert!(ended.code == Some(78) && ended.stderr.contains(words), "{}", ended.stderr);
    }
}

#[test]
fn a_check_reads_what_another_command_writes() {
    let directory = TempDir::new().unwrap();
    let text =
        "upstreams: { o: { endpoints: [\"http://127.0.0.1:1\"] } }\nroutes: [{ path: /*, upstream: o }]\n";
    fs::write(directory.path().join("good.yaml"), text).unwrap();
    let binary = env!("CARGO_BIN_EXE_tollgate");
    for script in [
        format!("cat good.yaml | {binary} check /dev/stdin"),
        format!("{binary} check /dev/stdin < good.yaml"),
        format!("{binary} check <(cat good.yaml)"),
        format!("{binary} check <(sleep 1; cat good.yaml)"),
    ] {
        let output = Command::new("bash").args(["-c", &script]).current_dir(&directory).output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    }
    // Somebody types it, and thinks longer than a file may take.
    let mut child = spawn(directory.path(), &["check", "/dev/stdin"], Stdio::piped());
    let mut typed = child.stdin.take().unwrap();
    typed.write_all(&text.as_bytes()[..20]).unwrap();
    thread::sleep(READ_LIMIT + Duration::from_secs(1));
    typed.write_all(&text.as_bytes()[20..]).unwrap();
    drop(typed);
    assert!(child.wait().unwrap().success());
}

/// A listener for each of these directories, which hold a certificate and its key.
fn tls_listeners(directories: &[&Path]) -> String {
    let listener = |directory: &&Path| {
        let path = directory.display();
        format!(
            "  - {{ address: \"127.0.0.1:0\", tls: {{ certificates: [{{ cert: \"{path}/cert.pem\", key: \"{path}/cert.key\" }}] }} }}\n"
        )
    };
    let plain = "  - { address: \"127.0.0.1:0\" }\n".to_owned();
    format!("listeners:\n{plain}{}", directories.iter().map(listener).collect::<String>())
}

fn install(authority: &Authority, name: &str, directory: &Path) {
    let issued = authority.issue(name, &[name]);
    fs::copy(issued.cert, directory.join("cert.pem")).unwrap();
    fs::copy(issued.key, directory.join("cert.key")).unwrap();
}

/// The reload errors of the listeners that speak TLS, and their addresses.
fn tls_status(tollgate: &Tollgate) -> Vec<(String, String)> {
    let status = tollgate.admin("GET", "/v1/status").json();
    let error = |tls: &serde_json::Value| {
        tls["certificates"][0]["reload_error"].as_str().unwrap_or_default().to_owned()
    };
    let address = |tls: &serde_json::Value| tls["addresses"][0].as_str().unwrap().to_owned();
    status["tls"].as_array().unwrap().iter().map(|tls| (address(tls), error(tls))).collect()
}

#[test]
fn a_disk_that_does_not_answer_holds_no_other_certificate_no_signal_and_no_request() {
    let Some(disk) = HungDisk::mount() else { return };
    let (origin, authority) = (Origin::ok(), Authority::new("an authority"));
    let directory = TempDir::new().unwrap();
    let [first, local, link] = ["first", "local", "link"].map(|name| directory.path().join(name));
    [&first, &local].iter().for_each(|path| fs::create_dir(path).unwrap());
    install(&authority, "first.test", &first);
    install(&authority, "local.test", &local);
    symlink(&first, &link).unwrap();
    let tollgate = Tollgate::start(Config::new(&[origin.address], &tls_listeners(&[&link, &local])));
    let point_to = |target: &Path| {
        let new = directory.path().join("new");
        symlink(target, &new).unwrap();
        fs::rename(new, &link).unwrap();
    };
    point_to(disk.path());
    // Renewed on the disk that answers.
    install(&authority, "renewed.test", &local);
    let connector = TlsConnector::new(&authority);
    let served = |name: &str, listener: usize| {
        let address = tls_status(&tollgate)[listener].0.parse().unwrap();
        connector.connect(address, name).is_ok()
    };
    let begun = Instant::now();
    eventually("the other certificate is read anew", || served("renewed.test", 1));
    assert!(begun.elapsed() < READ_LIMIT, "{:?}", begun.elapsed());
    assert!(served("first.test", 0), "what was read before is served");
    // A reload gives up in time, and the process goes on.
    let refused = tollgate.admin("POST", "/v1/reload");
    assert_eq!(refused.status, 422);
    assert!(
        refused.text().contains("cannot be read: reading it takes longer than 10s"),
        "{}",
        refused.text()
    );
    eventually("the certificate is told of", || {
        tls_status(&tollgate)[0].1.ends_with("link/cert.pem can't be read: reading it takes longer than 10s")
    });
    let threads = || fs::read_dir(format!("/proc/{}/task", tollgate.pid())).unwrap().count();
    let before = threads();
    thread::sleep(Duration::from_secs(3));
    assert!(threads() <= before, "each round leaves a thread");
    // It is mended in another way.
    install(&authority, "second.test", &first);
    point_to(&first);
    assert_eq!(tollgate.admin("POST", "/v1/reload").status, 200);
    assert!(served("second.test", 0));
    point_to(disk.path());
    tollgate.signal("HUP");
    eventually("it is being read", || tollgate.has_logged(&["is reloading the configuration"]));
    ends_at_once(tollgate, "TERM");
}

#[test]
fn a_start_on_a_disk_that_does_not_answer_is_ended_by_a_signal() {
    let Some(disk) = HungDisk::mount() else { return };
    let directory = TempDir::new().unwrap();
    let text = format!("store: {{ redis: {{ url: \"${{file:{}/url}}\" }} }}\n", disk.path().display());
    fs::write(directory.path().join("proxy.yaml"), text).unwrap();
    for arguments in [["run", "--config", "proxy.yaml"].as_slice(), &["check", "proxy.yaml"]] {
        let mut child = spawn(directory.path(), arguments, Stdio::null());
        thread::sleep(Duration::from_millis(300));
        assert!(child.try_wait().unwrap().is_none(), "it waits");
        let begun = Instant::now();
        signal(&child, "TERM");
        child.wait().unwrap();
        assert!(begun.elapsed() < AT_ONCE, "{arguments:?}: {:?}", begun.elapsed());
    }
    let ended = tollgate_in(directory.path(), &[], &["check", "proxy.yaml"]);
    assert!(ended.stderr.contains("cannot be read: reading it takes longer than 10s"), "{}", ended.stderr);
}

#[test]
fn an_access_log_that_nobody_reads_holds_neither_requests_nor_signals() {
    let (origin, directory) = (Origin::ok(), TempDir::new().unwrap());
    let pipe = directory.path().join("access.log");
    make_pipe(&pipe);
    // One worker, so that lines keep their order.
    let config = format!("workers: 1\naccess_log: {{ format: json, to: \"{}\" }}\n", pipe.display());
    let tollgate = Tollgate::start(Config::new(&[origin.address], &config));
    assert_eq!(get(tollgate.address, "/early", &[]).status, 200);
    tollgate.signal("USR1");
    // Somebody reads it at last: what was kept, then what follows.
    let mut reader =
        Command::new("head").args(["-n", "2"]).arg(&pipe).stdout(Stdio::piped()).spawn().unwrap();
    eventually("it reads", || {
        get(tollgate.address, "/late", &[]).status == 200 && reader.try_wait().unwrap().is_some()
    });
    let mut read = String::new();
    std::io::Read::read_to_string(&mut reader.stdout.take().unwrap(), &mut read).unwrap();
    assert!(read.contains("/early") && read.contains("/late"), "{read}");
    // More than the pipe holds, and the queue before it.
    let mut client = crate::harness::Client::connect(tollgate.address);
    let long = format!("/{}", "a".repeat(4_000));
    eventually("lines are dropped", || {
        (0..200).for_each(|_| assert_eq!(client.request("GET", &long, &[], b"").status, 200));
        tollgate.metric("tollgate_access_log_dropped_total") > 0.0
    });
    let mut tollgate = tollgate;
    let begun = Instant::now();
    tollgate.signal("TERM");
    assert_eq!(tollgate.wait().code(), Some(0));
    // Two seconds for the last lines.
    assert!(begun.elapsed() < AT_ONCE + Duration::from_secs(2), "{:?}", begun.elapsed());
}
