//! What lies in `deploy/`: it is read by the programs it is for, as far as they are here.

use std::{
    fs,
    io::{BufRead, BufReader},
    iter,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    slice,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{self, Authority, eventually, file_name, free_port, installed, tollgate, tollgate_in};

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

fn compose(name: &str) -> Value {
    serde_yaml::from_str(&text(name)).unwrap()
}

/// A setting of a service: what it says for itself, or has from what is merged into it.
fn setting<'a>(service: &'a Value, key: &str) -> &'a Value {
    let merged: &[Value] = match &service["<<"] {
        Value::Array(all) => all,
        one => slice::from_ref(one),
    };
    let mut said = iter::once(service).chain(merged).map(|mapping| &mapping[key]);
    said.find(|value| !value.is_null()).unwrap_or(&Value::Null)
}

/// The command of a service, without the program.
fn arguments(service: &Value) -> Vec<&str> {
    let command = setting(service, "command").as_array().unwrap();
    command[1..].iter().map(|argument| argument.as_str().unwrap()).collect()
}

#[test]
fn the_configurations_for_containers_are_valid_and_want_a_token() {
    for file in ["proxy.yaml", "proxy.cluster.yaml"].map(deploy) {
        let check =
            |variables: &[_]| tollgate_in(Path::new("."), variables, &["check", file.to_str().unwrap()]);
        let ended = check(&[("TOLLGATE_ADMIN_TOKEN", "d0c41f6b7e9a4c52a3f8")]);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
        let ended = check(&[]);
        assert_eq!(ended.code, Some(78));
        assert!(ended.stderr.contains("TOLLGATE_ADMIN_TOKEN"), "{}", ended.stderr);
    }
}

#[test]
fn every_container_is_shut_in_watched_and_bounded() {
    for (file, redis) in [("compose.yaml", "redis"), ("compose.cluster.yaml", "redis-1")] {
        let compose = compose(file);
        let services = compose["services"].as_object().unwrap();
        for (name, service) in services {
            let said = |key: &str| setting(service, key);
            assert_eq!(said("read_only"), true, "{file}: {name}");
            assert_eq!(said("cap_drop"), &serde_json::json!(["ALL"]), "{file}: {name}");
            let no_privileges = serde_json::json!(["no-new-privileges:true"]);
            assert_eq!(said("security_opt"), &no_privileges, "{file}: {name}");
            // One that only has to succeed once is not watched.
            let (policy, watched) = match name.as_str() {
                "cluster" => ("on-failure", None),
                _ => ("unless-stopped", Some("healthcheck")),
            };
            assert_eq!(said("restart"), policy, "{file}: {name}");
            for key in ["mem_limit", "cpus", "pids_limit"].into_iter().chain(watched) {
                assert!(!said(key).is_null(), "{file}: {name} has no {key}");
            }
            let published = said("ports").as_array().is_some();
            assert_eq!(published, name == "proxy", "{file}: {name}");
            for volume in said("volumes").as_array().into_iter().flatten() {
                if let Some((source, _)) = volume.as_str().unwrap().split_once(':') {
                    assert!(deploy(source).is_file(), "{file}: {name}: {source}");
                }
            }
        }
        assert_eq!(compose["networks"]["store"]["internal"], true, "{file}");
        let networks = match setting(&services[redis], "networks") {
            Value::Object(networks) => networks.keys().cloned().collect(),
            networks => serde_json::from_value::<Vec<String>>(networks.clone()).unwrap(),
        };
        assert_eq!(networks, ["store"], "{file}");
        let token = services["proxy"]["environment"]["TOLLGATE_ADMIN_TOKEN"].as_str().unwrap();
        assert!(token.starts_with("${TOLLGATE_ADMIN_TOKEN:?"), "{file}: {token}");
    }
}

#[test]
fn https_is_served_as_compose_publishes_it() {
    let authority = Authority::new("Authority of the tests");
    let issued = authority.issue("server", &["localhost"]);
    let file = deploy("proxy.tls.yaml");
    let variables = [
        ("TOLLGATE_ADMIN_TOKEN", "d0c41f6b7e9a4c52a3f8"),
        ("CERTIFICATE", file_name(&issued.cert)),
        ("CERTIFICATE_KEY", file_name(&issued.key)),
    ];
    let check = |variables: &[_]| tollgate_in(Path::new("."), variables, &["check", file_name(&file)]);
    let ended = check(&variables);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    // Without the variables, the files are those that compose.tls.yaml mounts.
    let ended = check(&variables[..1]);
    for name in ["/run/tls/tls.crt", "/run/tls/tls.key"] {
        assert!(ended.stderr.contains(&format!(":-{name}}}` cannot be read")), "{}", ended.stderr);
    }
    let [tls, plain] = ["compose.tls.yaml", "compose.yaml"].map(compose);
    let proxy = &tls["services"]["proxy"];
    let volumes = texts(&proxy["volumes"]);
    assert!(volumes.iter().any(|volume| volume.ends_with(":/run/tls:ro")), "{volumes:?}");
    // It takes the place of the other configuration.
    let configuration = volumes.iter().find_map(|volume| volume.strip_prefix("./proxy.tls.yaml:")).unwrap();
    let replaced = texts(&plain["services"]["proxy"]["volumes"]);
    assert!(replaced.contains(&format!("./proxy.yaml:{configuration}").as_str()), "{replaced:?}");
    let configuration: Value = serde_yaml::from_str(&text("proxy.tls.yaml")).unwrap();
    let listeners = configuration["listeners"].as_array().unwrap();
    let port = |address: &Value| address.as_str().unwrap().rsplit(':').next().unwrap().to_owned();
    let listening: Vec<_> = listeners.iter().map(|listener| port(&listener["address"])).collect();
    let published = texts(&proxy["ports"]);
    let expected: Vec<_> =
        ["80", "443"].iter().zip(&listening).map(|(on, to)| format!("{on}:{to}")).collect();
    assert_eq!(published, expected);
    assert!(listeners[0]["tls"].is_null() && listeners[1]["redirect"].is_null());
}

#[test]
fn keys_are_kept_on_disk_by_the_redis_of_compose() {
    let [plans, plain] = ["compose.plans.yaml", "compose.yaml"].map(compose);
    let [command, before] = [&plans, &plain].map(|file| texts(&file["services"]["redis"]["command"]));
    let added = command.strip_prefix(&*before).expect("it starts Redis as compose.yaml does");
    assert_eq!(added, ["--appendonly", "yes", "--dir", "/data"]);
    assert_eq!(texts(&plans["services"]["redis"]["volumes"]), ["keys:/data"]);
    assert!(plans["volumes"].as_object().unwrap().contains_key("keys"));
    let volumes = texts(&plans["services"]["proxy"]["volumes"]);
    let configuration = volumes[0].strip_prefix("./proxy.plans.yaml:").unwrap();
    let replaced = texts(&plain["services"]["proxy"]["volumes"]);
    assert!(replaced.contains(&format!("./proxy.yaml:{configuration}").as_str()), "{replaced:?}");
}

/// The texts of a list.
fn texts(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

/// The nodes of a cluster as `compose.cluster.yaml` starts them, and their addresses as `cluster` takes them.
fn nodes(services: &Value) -> (Vec<harness::Redis>, String) {
    let nodes = (1..=6).map(|number| {
        let arguments = arguments(&services[format!("redis-{number}")]);
        // The file and who may connect, which are for containers, are not tried here.
        let from = arguments.iter().position(|argument| argument.starts_with("--cluster")).unwrap();
        let bus = free_port().to_string();
        let node = harness::Redis::with(&[&arguments[from..], &["--cluster-port", &bus]].concat());
        let address = format!("127.0.0.1:{}@{bus}", node.port);
        (node, address)
    });
    let (nodes, addresses): (_, Vec<_>) = nodes.unzip();
    (nodes, addresses.join(" "))
}

#[test]
fn a_cluster_of_three_primaries_and_three_replicas_forms_by_itself() {
    let compose = compose("compose.cluster.yaml");
    let services = &compose["services"];
    let (nodes, addresses) = nodes(services);
    let form = || {
        // Compose takes `$$` for a dollar sign.
        let arguments: Vec<_> =
            arguments(&services["cluster"]).iter().map(|text| text.replace("$$", "$")).collect();
        Command::new("sh").args(arguments).env("NODES", &addresses).output().unwrap()
    };
    let formed = form();
    assert!(formed.status.success(), "{formed:?}");
    let roles = || -> Vec<_> {
        let known = nodes[5].cli(&["cluster", "nodes"]);
        ["master", "slave"].map(|role| known.lines().filter(|line| line.contains(role)).count()).into()
    };
    eventually("all have joined", || roles() == [3, 3]);
    eventually("all slots are served", || {
        nodes[5].cli(&["cluster", "info"]).contains("cluster_slots_ok:16384")
    });
    let again = form();
    assert!(again.status.success() && again.stdout.is_empty(), "it is left alone: {again:?}");
    let default: Vec<_> = services["cluster"]["environment"]["NODES"].as_str().unwrap().split(' ').collect();
    assert_eq!(default, [1, 2, 3, 4, 5, 6].map(|number| format!("redis-{number}:6379")));
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

/// Debian 12 has systemd 252, which knows no `notify-reload`.
#[test]
fn the_unit_works_on_any_systemd() {
    let unit = text("tollgate.service");
    assert_eq!(settings(&unit, "Type"), ["notify"]);
    assert_eq!(settings(&unit, "NotifyAccess"), ["main"]);
    let [reload] = settings(&unit, "ExecReload")[..] else { panic!("no ExecReload") };
    assert!(reload.contains("kill -HUP $$MAINPID"), "{reload}");
    let Some(analyze) = installed("systemd-analyze") else { return };
    let directory = TempDir::new().unwrap();
    let binary = harness::command(Path::new(".")).get_program().to_str().unwrap().to_owned();
    let unit = unit.replace("/usr/local/bin/tollgate", &binary);
    fs::write(directory.path().join("tollgate.service"), unit).unwrap();
    fs::write(directory.path().join("tollgate.socket"), text("tollgate.socket")).unwrap();
    let verified = Command::new(analyze)
        .args(["verify", "./tollgate.service", "./tollgate.socket"])
        .current_dir(directory.path())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&verified.stderr), "");
    assert!(verified.status.success(), "{verified:?}");
}

/// As systemd runs it: without a shell around it, with the process to reload in `MAINPID`.
#[test]
fn the_unit_s_reload_reloads() {
    let origin = harness::Origin::ok();
    let tollgate = harness::Tollgate::start(harness::Config::new(&[origin.address], ""));
    let unit = text("tollgate.service");
    let command = settings(&unit, "ExecReload")[0].strip_prefix("/bin/sh -c '").unwrap();
    let command = command.strip_suffix('\'').unwrap().replace("$$", "$");
    let ended =
        Command::new("/bin/sh").args(["-c", &command]).env("MAINPID", tollgate.pid().to_string()).status();
    assert!(ended.unwrap().success());
    eventually("it reloads", || tollgate.has_logged(&["Tollgate is reloading the configuration"]));
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
    let compose = compose("compose.yaml");
    let redis = Redis::start(&arguments(&compose["services"]["redis"])[1..]);
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
