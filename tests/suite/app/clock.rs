//! A machine whose wall time is set while Tollgate runs: `libfaketime` sets it for one process, and leaves the monotonic
//! clock.

use std::{path::Path, process::Stdio};

use crate::harness::{Config, FakeClock, Origin, Tollgate, becomes, command, get, tollgate_in};

/// An instance of this wall time.
fn start(clock: &FakeClock, config: Config) -> Tollgate {
    let mut command = command(Path::new("."));
    command.args(["run", "--config", "proxy.yaml"]).stdin(Stdio::null());
    clock.wear(&mut command);
    Tollgate::launch(command, config)
}

/// As after a late step of NTP, or a suspension.
#[test]
fn keys_and_bans_end_by_wall_time_as_it_is_now() {
    let Some(clock) = FakeClock::new() else { return };
    let origin = Origin::ok();
    let create = ["keys", "create", "--customer", "acme", "--expires", "10m", "--file", "keys.yaml"];
    let made = tollgate_in(clock.directory(), &[], &create);
    let key = made.stdout.trim();
    assert!(key.starts_with("tgk_"), "{made:?}");
    let rest = format!("api_keys: {{ file: \"{}/keys.yaml\" }}\n", clock.directory().display());
    let tollgate = start(&clock, Config::new(&[origin.address], &rest));
    let status = || get(tollgate.address, "/", &[("x-api-key", key)]).status;
    assert_eq!(status(), 200);
    clock.set("+1h");
    becomes(401, status);
    clock.set("+0");
    becomes(200, status);
    let banned = tollgate.command(&["ban", "127.0.0.1", "--for", "10m", "--reason", "a test", "--force"]);
    assert_eq!(banned.code, Some(0), "{banned:?}");
    becomes(403, status);
    clock.set("+11m");
    // The key has expired as well.
    becomes(401, status);
}

/// A month and an hour go on as before. The month that had not ended has not ended.
#[test]
fn a_wall_time_that_was_wrong_for_a_moment_moves_no_window() {
    let Some(clock) = FakeClock::new() else { return };
    let origin = Origin::ok();
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
    let tollgate = start(&clock, Config::yaml(config));
    let status = |path: &str, user: &str| get(tollgate.address, path, &[("x-user", user)]).status;
    for (path, user) in [("/month", "ann"), ("/hour", "ann"), ("/month", "bob")] {
        assert_eq!([(); 3].map(|()| status(path, user)), [200, 200, 429], "{path} {user}");
    }
    clock.set("+32d");
    becomes(200, || status("/month", "bob"));
    assert_eq!(status("/hour", "ann"), 429, "no hour has passed");
    // Limits that have expired are removed meanwhile.
    for number in 0..300 {
        status("/month", &format!("user{number}"));
    }
    clock.set("+0");
    assert_eq!(status("/month", "ann"), 429, "the month has not ended");
    assert_eq!(status("/hour", "ann"), 429);
}
