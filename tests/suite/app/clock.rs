//! A machine whose wall time is set while Tollgate runs: `libfaketime` sets it for one process, and leaves the monotonic
//! clock.

use std::{fs, path::Path, process::Stdio};

use tempfile::TempDir;

use crate::harness::{Config, Origin, Tollgate, becomes, command, get, tollgate_in};

/// An instance whose wall time is ahead by what the file `ahead` in `directory` says. `None`: the library is not
/// installed.
fn start(directory: &Path, config: Config) -> Option<Tollgate> {
    let libraries = fs::read_dir("/usr/lib").unwrap().filter_map(Result::ok);
    let library =
        libraries.map(|entry| entry.path().join("faketime/libfaketimeMT.so.1")).find(|path| path.exists());
    let Some(library) = library else {
        eprintln!("left out: faketime is not installed");
        return None;
    };
    set(directory, "+0");
    let mut command = command(Path::new("."));
    command
        .args(["run", "--config", "proxy.yaml"])
        .stdin(Stdio::null())
        .env("LD_PRELOAD", library)
        .env("FAKETIME_TIMESTAMP_FILE", directory.join("ahead"))
        .env("FAKETIME_NO_CACHE", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    Some(Tollgate::launch(command, config))
}

fn set(directory: &Path, ahead: &str) {
    // The library may read it at any moment: it is replaced at once.
    fs::write(directory.join("next"), ahead).unwrap();
    fs::rename(directory.join("next"), directory.join("ahead")).unwrap();
}

/// As after a late step of NTP, or a suspension.
#[test]
fn keys_and_bans_end_by_wall_time_as_it_is_now() {
    let (origin, directory) = (Origin::ok(), TempDir::new().unwrap());
    let create = ["keys", "create", "--customer", "acme", "--expires", "10m", "--file", "keys.yaml"];
    let made = tollgate_in(directory.path(), &[], &create);
    let key = made.stdout.trim();
    assert!(key.starts_with("tgk_"), "{made:?}");
    let rest = format!("api_keys: {{ file: \"{}/keys.yaml\" }}\n", directory.path().display());
    let Some(tollgate) = start(directory.path(), Config::new(&[origin.address], &rest)) else { return };
    let status = || get(tollgate.address, "/", &[("x-api-key", key)]).status;
    assert_eq!(status(), 200);
    set(directory.path(), "+1h");
    becomes(401, status);
    set(directory.path(), "+0");
    becomes(200, status);
    let banned = tollgate.command(&["ban", "127.0.0.1", "--for", "10m", "--reason", "a test", "--force"]);
    assert_eq!(banned.code, Some(0), "{banned:?}");
    becomes(403, status);
    set(directory.path(), "+11m");
    // The key has expired as well.
    becomes(401, status);
}

/// A month and an hour go on as before. The month that had not ended has not ended.
#[test]
fn a_wall_time_that_was_wrong_for_a_moment_moves_no_window() {
    let (origin, directory) = (Origin::ok(), TempDir::new().unwrap());
    let config = format!(
        "
upstreams: {{ origin: {{ endpoints: [\"http://{}\"] }} }}
policies:
  monthly: {{ algorithm: fixed_window, key: 'header:x-user', limit: 2/month }}
  hourly: {{ algorithm: single_counter, key: 'header:x-user', limit: 2/1h }}
routes:
  - {{ path: /month, upstream: origin, policies: [monthly] }}
  - {{ path: /hour, upstream: origin, policies: [hourly] }}
",
        origin.address
    );
    let Some(tollgate) = start(directory.path(), Config::yaml(config)) else { return };
    let status = |path: &str, user: &str| get(tollgate.address, path, &[("x-user", user)]).status;
    for (path, user) in [("/month", "ann"), ("/hour", "ann"), ("/month", "bob")] {
        assert_eq!([(); 3].map(|()| status(path, user)), [200, 200, 429], "{path} {user}");
    }
    set(directory.path(), "+32d");
    becomes(200, || status("/month", "bob"));
    assert_eq!(status("/hour", "ann"), 429, "no hour has passed");
    // Limits that have expired are removed meanwhile.
    for number in 0..300 {
        status("/month", &format!("user{number}"));
    }
    set(directory.path(), "+0");
    assert_eq!(status("/month", "ann"), 429, "the month has not ended");
    assert_eq!(status("/hour", "ann"), 429);
}
