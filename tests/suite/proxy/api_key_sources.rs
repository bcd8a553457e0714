//! Where API keys are kept: the file of those who have them in git, and the data file.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::tunnels::{close_of, echo, open_with, switches};
use crate::harness::{Config, Origin, Tollgate, eventually, get, tollgate_in};

const ACME: &str = "acme-key-00000000001";
const GLOBEX: &str = "globex-key-000000001";

fn entry(id: &str, key: &str, more: &str) -> String {
    let hex: String = Sha256::digest(key.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("- {{ id: {id}, hash: \"sha256:{hex}\", customer: {id}{more} }}\n")
}

fn write(path: &Path, entries: &[String]) {
    // At once, as editors and deployments do.
    let new = path.with_extension("new");
    fs::write(&new, format!("keys:\n{}", entries.concat())).unwrap();
    fs::rename(new, path).unwrap();
}

fn config(origin: &Origin, keys: &str, rest: &str) -> Config {
    Config::yaml(format!(
        "api_keys: {{ {keys}, attempts: 100000/1m }}\nupstreams: {{ a: {{ endpoints: [\"http://{}\"] }} }}\n{rest}routes: [{{ path: /*, upstream: a }}]\n",
        origin.address
    ))
}

fn status(tollgate: &Tollgate, key: &str) -> u16 {
    get(tollgate.address, "/", &[("x-api-key", key)]).status
}

#[test]
fn a_file_is_reread_and_a_wrong_one_leaves_the_keys_as_they_were() {
    let (origin, directory) = (Origin::ok(), TempDir::new().unwrap());
    let path = directory.path().join("keys.yaml");
    write(&path, &[entry("acme", ACME, "")]);
    let tollgate = Tollgate::start(config(&origin, &format!("file: \"{}\"", path.display()), ""));
    assert_eq!((status(&tollgate, ACME), status(&tollgate, GLOBEX)), (200, 401));
    write(&path, &[entry("acme", ACME, ""), entry("globex", GLOBEX, "")]);
    eventually("the new key is valid", || status(&tollgate, GLOBEX) == 200);
    let said = |words: &str| tollgate.has_logged(&[words]);
    assert!(said("were reread: 2 keys"));

    write(&path, &[entry("acme", ACME, ""), entry("acme", GLOBEX, "")]);
    let wrong = "line 3: key `acme`: this ID is used in line 2 already";
    eventually("the error is logged", || said(wrong) && said("the previous contents stay in use"));
    let warns = || tollgate.admin("GET", "/v1/status").json()["warnings"].to_string().contains(wrong);
    eventually("it is in the status", warns);
    assert_eq!((status(&tollgate, ACME), status(&tollgate, GLOBEX)), (200, 200));

    write(&path, &[entry("globex", GLOBEX, ", expires: 2020-01-01"), entry("acme", ACME, "")]);
    eventually("an expired key is not valid, and does no harm to others", || {
        status(&tollgate, GLOBEX) == 401
    });
    assert_eq!(status(&tollgate, ACME), 200);
    eventually("the warning ends", || !warns());
}

#[test]
fn the_warning_of_a_wrong_file_ends_with_the_setting() {
    let (origin, directory) = (Origin::ok(), TempDir::new().unwrap());
    let path = directory.path().join("keys.yaml");
    write(&path, &[entry("acme", ACME, "")]);
    let tollgate = Tollgate::start(config(&origin, &format!("file: \"{}\"", path.display()), ""));
    fs::write(&path, "").unwrap();
    let warns = || tollgate.admin("GET", "/v1/status").json()["warnings"].to_string().contains("keys.yaml");
    eventually("an empty file is told", warns);
    assert_eq!(status(&tollgate, ACME), 200);
    let proxy = tollgate.directory().join("proxy.yaml");
    let text = fs::read_to_string(&proxy).unwrap();
    let rest: Vec<&str> = text.lines().filter(|line| !line.starts_with("api_keys:")).collect();
    assert_eq!(rest.len(), text.lines().count() - 1, "{text}");
    fs::write(&proxy, rest.join("\n")).unwrap();
    let reloaded = tollgate.admin("POST", "/v1/reload");
    assert_eq!(reloaded.status, 200, "{}", reloaded.text());
    eventually("the warning ends", || !warns());
}

#[test]
fn a_check_and_a_start_tell_what_is_wrong_in_the_file() {
    let (origin, directory) = (Origin::ok(), TempDir::new().unwrap());
    let path = directory.path().join("keys.yaml");
    write(&path, &[entry("acme", ACME, ", plan: por")]);
    let plans = "plans: { pro: { a: 1/1s } }\npolicies: { a: { algorithm: single_counter, key: customer, limit: 1/1m } }\n";
    let config = |path: &Path| config(&origin, &format!("file: \"{}\"", path.display()), plans);
    let (code, said) = Tollgate::refuses(config(&path));
    assert!(
        code != Some(0) && said.contains("line 2: key `acme`: there is no plan `por`; did you mean `pro`?"),
        "{said}"
    );
    let (code, said) = Tollgate::refuses(config(Path::new("/nowhere/keys.yaml")));
    assert!(code != Some(0) && said.contains("/nowhere/keys.yaml"), "{said}");
    write(&path, &[entry("acme", ACME, ", plan: pro, expires: 2020-01-01")]);
    let tollgate = Tollgate::start(config(&path));
    assert!(tollgate.has_logged(&["key `acme` has expired: remove it"]));
    let checked = tollgate_in(tollgate.directory(), &[], &["check", "--config", "proxy.yaml"]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    let warned = "warning: in the file of API keys, line 2: key `acme` has expired: remove it";
    assert!(format!("{checked:?}").contains(warned), "{checked:?}");
    let reloaded = tollgate.admin("POST", "/v1/reload");
    assert_eq!(reloaded.status, 200, "{}", reloaded.text());
    assert_eq!(status(&tollgate, ACME), 401);
    let refused = tollgate.metric("tollgate_requests_refused_total{reason=\"expired_credential\"}");
    assert_eq!(refused, 1.0, "it is known, and no guess");
}

#[test]
fn a_key_that_leaves_the_file_takes_its_tunnels_along() {
    let (origin, directory) = (switches(echo), TempDir::new().unwrap());
    let path = directory.path().join("keys.yaml");
    write(&path, &[entry("acme", ACME, ""), entry("globex", GLOBEX, "")]);
    let tollgate = Tollgate::start(config(&origin, &format!("file: \"{}\"", path.display()), ""));
    let mut acme = open_with(tollgate.address, "/", &format!("x-api-key: {ACME}\r\n"));
    let mut globex = open_with(tollgate.address, "/", &format!("x-api-key: {GLOBEX}\r\n"));
    write(&path, &[entry("globex", GLOBEX, "")]);
    assert_eq!(close_of(&acme.rest()).0, 1008);
    globex.send("x");
    assert_eq!(globex.take(1).unwrap(), b"x", "its key is still there");
}

#[test]
fn the_data_file_is_made_and_one_that_is_torn_is_never_overwritten() {
    let (origin, directory) = (Origin::ok(), TempDir::new().unwrap());
    let path = directory.path().join("keys.json");
    let settings = format!("store: true, data: \"{}\"", path.display());
    let tollgate = Tollgate::start(config(&origin, &settings, ""));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(status(&tollgate, ACME), 401, "the keys were read: there are none");
    assert_eq!(tollgate.admin("GET", "/readyz").status, 200);
    drop(tollgate);
    let torn = &fs::read_to_string(&path).unwrap()[..9];
    fs::write(&path, torn).unwrap();
    let (code, said) = Tollgate::refuses(config(&origin, &settings, ""));
    assert!(code != Some(0) && said.contains("keys.json has no API keys that can be read"), "{said}");
    assert_eq!(fs::read_to_string(&path).unwrap(), torn);
}
