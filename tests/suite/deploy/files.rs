//! What lies in `deploy/`: it is read by the programs it is for, as far as they are here.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{eventually, tollgate, tollgate_in};

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(name)
}

fn text(name: &str) -> String {
    fs::read_to_string(deploy(name)).unwrap()
}

/// The values of a unit file's settings of this name.
fn settings<'a>(unit: &'a str, name: &str) -> Vec<&'a str> {
    unit.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('=')).collect()
}

fn compose() -> Value {
    serde_yaml::from_str(&text("compose.yaml")).unwrap()
}

#[test]
fn the_configuration_for_containers_is_valid_and_wants_a_token() {
    let file = deploy("proxy.yaml");
    let check = |variables: &[_]| tollgate_in(Path::new("."), variables, &["check", file.to_str().unwrap()]);
    let ended = check(&[("TOLLGATE_ADMIN_TOKEN", "s3cret")]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let ended = check(&[]);
    assert_eq!(ended.code, Some(78));
    assert!(ended.stderr.contains("TOLLGATE_ADMIN_TOKEN"), "{}", ended.stderr);
}

#[test]
fn every_container_is_shut_in_watched_and_bounded() {
    let compose = compose();
    let services = compose["services"].as_object().unwrap();
    assert_eq!(services.keys().collect::<Vec<_>>(), ["origin", "proxy", "redis"]);
    for (name, service) in services {
        // What it says for itself, or has from what is merged into it.
        let said = |key: &str| match &service[key] {
            Value::Null => &service["<<"][key],
            said => said,
        };
        assert_eq!(said("read_only"), true, "{name}");
        assert_eq!(said("cap_drop"), &serde_json::json!(["ALL"]), "{name}");
        assert_eq!(said("security_opt"), &serde_json::json!(["no-new-privileges:true"]), "{name}");
        for key in ["healthcheck", "mem_limit", "cpus", "pids_limit"] {
            assert!(!said(key).is_null(), "{name} has no {key}");
        }
        let published = service["ports"].as_array().is_some();
        assert_eq!(published, name == "proxy", "{name}");
        for volume in service["volumes"].as_array().into_iter().flatten() {
            let (file, _) = volume.as_str().unwrap().split_once(':').unwrap();
            assert!(deploy(file).is_file(), "{name}: {file}");
        }
    }
    assert_eq!(compose["networks"]["store"]["internal"], true);
    assert_eq!(services["redis"]["networks"], serde_json::json!(["store"]));
    let token = services["proxy"]["environment"]["TOLLGATE_ADMIN_TOKEN"].as_str().unwrap();
    assert!(token.starts_with("${TOLLGATE_ADMIN_TOKEN:?"), "{token}");
}

#[test]
fn the_image_is_built_from_files_that_are_here_and_not_ignored() {
    let root = deploy("..");
    let ignored = fs::read_to_string(root.join(".dockerignore")).unwrap();
    let kept: Vec<_> = ignored.lines().filter_map(|line| line.strip_prefix('!')).collect();
    let dockerfile = text("Dockerfile");
    let copied = dockerfile.lines().filter_map(|line| line.strip_prefix("COPY "));
    let sources: Vec<_> = copied
        .filter(|line| !line.starts_with("--from"))
        .flat_map(|line| line.split_whitespace().rev().skip(1))
        .collect();
    assert!(sources.len() > 4, "{sources:?}");
    for source in sources {
        assert!(root.join(source).exists() && kept.contains(&source), "{source}");
    }
    let user = dockerfile.lines().find_map(|line| line.strip_prefix("USER ")).unwrap();
    assert!(user.split(':').all(|id| id.parse::<u32>().is_ok_and(|id| id > 0)), "{user}");
}

/// What is compiled in (`include_str!`) and is no source, from the root of the repository.
fn compiled_in() -> Vec<PathBuf> {
    let root = fs::canonicalize(deploy("..")).unwrap();
    let mut directories = vec![root.join("src")];
    let mut found = Vec::new();
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let names = text.split("include_str!(\"").skip(1).filter_map(|rest| rest.split('"').next());
            found.extend(names.map(|name| fs::canonicalize(directory.join(name)).unwrap()));
        }
    }
    found.iter().map(|path| path.strip_prefix(&root).unwrap().to_owned()).collect()
}

#[test]
fn the_image_is_built_with_all_that_is_compiled_in() {
    let dockerfile = text("Dockerfile");
    let copied: Vec<_> = dockerfile
        .lines()
        .filter_map(|line| line.strip_prefix("COPY "))
        .filter(|line| !line.starts_with("--from"))
        .flat_map(|line| line.split_whitespace().rev().skip(1))
        .collect();
    let files = compiled_in();
    assert!(files.len() > 5, "{files:?}");
    for file in files {
        assert!(copied.iter().any(|source| file.starts_with(source)), "{} is not copied", file.display());
    }
}

#[test]
fn the_unit_knows_the_exit_code_of_a_wrong_configuration() {
    let unit = text("tollgate.service");
    let code = tollgate(&["check", "no-such-file.yaml"]).code.unwrap();
    assert_eq!(settings(&unit, "RestartPreventExitStatus"), [code.to_string()]);
    // Its command is one that the binary takes.
    let command = settings(&unit, "ExecStart")[0];
    let arguments: Vec<_> = command.split_whitespace().skip(1).collect();
    assert_eq!(arguments[..2], ["run", "--config"]);
    assert_eq!(tollgate(&["run", "--config", "no-such-file.yaml"]).code, Some(code));
}

/// A Redis with `deploy/redis.conf`, killed when it is dropped.
struct Redis {
    child: Child,
    directory: TempDir,
}

impl Redis {
    fn start(arguments: &[&str]) -> Self {
        let directory = TempDir::new().unwrap();
        let mut child = Command::new("redis-server")
            .arg(deploy("redis.conf"))
            // Redis knows no "any free port": it is asked over a file of its own directory.
            .args(["--port", "0", "--unixsocket", "redis.sock", "--dir"])
            .arg(directory.path())
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let said: Vec<_> = lines.by_ref().take_while(|line| !line.contains("ready to accept")).collect();
        let running = Self { child, directory };
        assert!(!said.iter().any(|line| line.contains("FATAL") || line.contains("Aborting")), "{said:#?}");
        running
    }

    /// What a command answers, line by line.
    fn ask(&self, command: &[&str]) -> Vec<String> {
        let mut client = Command::new("redis-cli");
        client.current_dir(self.directory.path()).args(["-s", "redis.sock"]);
        let output = client.args(command).output().unwrap();
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn redis_takes_its_configuration_and_keeps_nothing() {
    // As compose.yaml calls it.
    let compose = compose();
    let command = compose["services"]["redis"]["command"].as_array().unwrap();
    let arguments: Vec<_> = command[2..].iter().map(|argument| argument.as_str().unwrap()).collect();
    let redis = Redis::start(&arguments);
    eventually("it answers", || redis.ask(&["PING"]) == ["PONG"]);
    for (name, value) in [
        ("maxmemory-policy", "volatile-ttl"),
        ("save", ""),
        ("appendonly", "no"),
        ("timeout", "0"),
        ("lazyfree-lazy-expire", "yes"),
        ("bind", "* -::*"),
        ("protected-mode", "no"),
    ] {
        assert_eq!(redis.ask(&["CONFIG", "GET", name]), [name, value]);
    }
    assert_ne!(redis.ask(&["CONFIG", "GET", "maxmemory"])[1], "0");
}

#[test]
fn redis_by_itself_is_for_its_own_machine_alone() {
    let redis = Redis::start(&[]);
    eventually("it answers", || redis.ask(&["PING"]) == ["PONG"]);
    assert_eq!(redis.ask(&["CONFIG", "GET", "bind"])[1], "127.0.0.1 -::1");
    assert_eq!(redis.ask(&["CONFIG", "GET", "protected-mode"])[1], "yes");
}
