//! Endpoints that a file lists.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use tempfile::TempDir;

use crate::harness::{Config, Load, Origin, Tollgate, eventually, get};

/// A file that lists these endpoints.
fn listing(endpoints: &[SocketAddr]) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("endpoints.yaml");
    fs::write(&file, list(endpoints)).unwrap();
    (directory, file)
}

fn list(endpoints: &[SocketAddr]) -> String {
    endpoints.iter().map(|address| format!("- http://{address}\n")).collect()
}

fn config(file: &Path) -> Config {
    Config::yaml(format!(
        "upstreams:\n  api: {{ endpoints: {{ file: {} }}, balance: round_robin }}\nroutes: [{{ path: /*, upstream: api }}]\n",
        file.display()
    ))
}

/// Writes the file anew as programs do that others read from.
fn replace(file: &Path, text: &str) {
    let new = file.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, file).unwrap();
}

#[test]
fn requests_follow_the_file_and_none_fails() {
    let origins = [Origin::ok(), Origin::ok(), Origin::ok()];
    let [first, second, third] = origins.each_ref().map(|origin| origin.address);
    let (_directory, file) = listing(&[first, second]);
    let tollgate = Tollgate::start(config(&file));
    let load = Load::start(&[tollgate.address], &["/"], 4, Duration::from_millis(2));
    eventually("both have them", || origins[..2].iter().all(|origin| origin.heads().len() > 50));
    let kept = origins[1].connections();
    replace(&file, &list(&[second, third]));
    eventually("the third one has them", || origins[2].heads().len() > 50);
    eventually("the first one has no connection", || origins[0].open_connections() == 0);
    let at_first = origins[0].heads().len();
    let more = origins[2].heads().len() + 50;
    eventually("there are more", || origins[2].heads().len() > more);
    assert_eq!(origins[0].heads().len(), at_first, "the first one gets none");
    // What one worker had too few of, it opens.
    assert!(origins[1].connections() <= kept + 4, "{} and {kept}", origins[1].connections());
    // Written in place.
    fs::write(&file, list(&[first])).unwrap();
    eventually("the first one has them again", || origins[0].heads().len() > at_first + 50);
    eventually("the others have none", || origins[1..].iter().all(|origin| origin.open_connections() == 0));
    let samples = load.stop();
    let failed: Vec<_> = samples.iter().filter(|sample| sample.status != 200).collect();
    assert!(failed.is_empty(), "{failed:?}");
    assert!(tollgate.has_logged(&["upstream api: the endpoints in", "endpoints.yaml have changed"]));
}

#[test]
fn a_wrong_file_never_replaces_a_right_one() {
    let (origin, other) = (Origin::ok(), Origin::ok());
    let (_directory, file) = listing(&[origin.address]);
    let tollgate = Tollgate::start(config(&file));
    let wrong = [
        ("- http://127.0.0.1:1\n- ftp://127.0.0.1:2\n", "line 2: `ftp://127.0.0.1:2`"),
        ("", "it is empty"),
        ("[]", "an upstream needs an endpoint"),
        (
            "- http://127.0.0.1:1\n- http://127.0.0.1:1\n",
            "line 2: `http://127.0.0.1:1` is in this list twice",
        ),
        ("- [", "line"),
    ];
    for (text, error) in wrong {
        replace(&file, text);
        eventually(error, || {
            tollgate.has_logged(&["ERROR", "the previous contents stay in use", "endpoints.yaml", error])
        });
        assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    }
    fs::remove_file(&file).unwrap();
    eventually("it is gone", || tollgate.has_logged(&["ERROR", "endpoints.yaml can't be read"]));
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    fs::write(&file, format!("[{{\"url\": \"http://{}\"}}]", other.address)).unwrap();
    eventually("JSON, which is right", || {
        assert_eq!(get(tollgate.address, "/", &[]).status, 200);
        !other.heads().is_empty()
    });
}

#[test]
fn a_wrong_file_is_an_error_of_the_configuration() {
    let (_directory, file) = listing(&[]);
    let refused = || Tollgate::refuses(config(&file));
    for (text, error) in [("", "it is empty"), ("- http://a\n- nonsense\n", "line 2: `nonsense`")] {
        fs::write(&file, text).unwrap();
        let (code, said) = refused();
        assert_eq!(code, Some(78), "{said}");
        assert!(said.contains("proxy.yaml:") && said.contains(error), "{said}");
    }
    fs::remove_file(&file).unwrap();
    let (code, said) = refused();
    assert!(code == Some(78) && said.contains("cannot be read: No such file"), "{said}");
}

#[test]
fn a_thousand_endpoints_are_reread_at_once() {
    let origin = Origin::ok();
    let (_directory, file) = listing(&[origin.address]);
    // Nobody listens there, and nobody is asked: they are drained.
    let drained = |port: usize| format!("- {{ url: \"http://127.0.0.2:{port}\", drain: true }}\n");
    let thousand = |from: usize| -> String {
        let rest: String = (from..from + 1_000).map(drained).collect();
        list(&[origin.address]) + &rest
    };
    let tollgate = Tollgate::start(config(&file));
    let endpoints = || {
        let upstreams = tollgate.admin("GET", "/v1/upstreams").json();
        upstreams["upstreams"][0]["endpoints"].as_array().unwrap().len()
    };
    replace(&file, &thousand(1_000));
    eventually("they are there", || endpoints() == 1_001);
    replace(&file, &thousand(1_500));
    let last = "http://127.0.0.2:2499";
    eventually("half of them are others", || tollgate.admin("GET", "/v1/upstreams").text().contains(last));
    assert_eq!((endpoints(), get(tollgate.address, "/", &[]).status), (1_001, 200));
}
