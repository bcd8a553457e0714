//! `deploy/kubernetes`, as `kubectl` builds it: clusters take it, its parts fit each other, and its configurations serve.

use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Config, Origin, Redis, Tollgate, file_name, get, printed, program, request, tollgate};

const OVERLAYS: [&str; 3] = ["memory", "redis", "replicas"];
/// The oldest clusters that know all fields, and the newest whose schemas there are.
const CLUSTERS: [&str; 4] = ["-k", "1.30", "-k", "1.37"];
/// Where the pods find the secrets.
const SECRETS: &str = "/run/secrets/tollgate";
const TOKEN: &str = "9c1185a5c5e9fc54612808977ee8f548b2258d31";
const PASSWORD: &str = "5f2d8c1e0b7a49d3a6e4c8f1b2d0937e6a5c4b3d";

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(name)
}

/// Where `scripts/test` has installed the programs. None: nothing is installed.
fn programs() -> Option<PathBuf> {
    let directory = env::var_os("KUBERNETES").map(PathBuf::from);
    if directory.is_none() {
        eprintln!("left out: `scripts/test` installs kubectl and says where in KUBERNETES");
    }
    directory
}

/// What an overlay below `kubernetes` is made into.
fn build(programs: &Path, kubernetes: &Path, overlay: &str) -> String {
    let mut kubectl = Command::new(programs.join("kubectl/kubectl"));
    printed(kubectl.arg("kustomize").arg(kubernetes.join("overlays").join(overlay)))
}

/// The objects of an overlay.
struct Objects(Vec<Value>);

impl Objects {
    fn parse(text: &str) -> Self {
        Self(text.split("\n---\n").map(|object| serde_yaml::from_str(object).unwrap()).collect())
    }

    fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.0.iter().filter(move |object| object["kind"] == kind)
    }

    #[track_caller]
    fn named(&self, kind: &str, name: &str) -> &Value {
        let mut of_kind = self.of_kind(kind);
        let found = of_kind.find(|object| object["metadata"]["name"] == name);
        found.unwrap_or_else(|| panic!("there is no {kind} {name}"))
    }

    /// The pods' part of the Deployment of Tollgate.
    fn pod(&self) -> &Value {
        &self.named("Deployment", "tollgate")["spec"]["template"]["spec"]
    }

    fn container(&self) -> &Value {
        &self.pod()["containers"][0]
    }

    /// The configuration in the ConfigMap that the pods mount.
    fn configuration(&self) -> String {
        let name = items(&self.pod()["volumes"])
            .iter()
            .find_map(|volume| volume["configMap"]["name"].as_str())
            .unwrap();
        self.named("ConfigMap", name)["data"]["proxy.yaml"].as_str().unwrap().to_owned()
    }

    /// The Deployment whose pods `labels` select.
    #[track_caller]
    fn selected(&self, labels: &Value) -> &Value {
        let mut found = self
            .of_kind("Deployment")
            .filter(|one| has_labels(&one["spec"]["template"]["metadata"]["labels"], labels));
        let deployment = found.next().unwrap_or_else(|| panic!("{labels} select no pod"));
        assert!(found.next().is_none(), "{labels} select several");
        deployment
    }
}

/// Every overlay with its objects.
fn overlays(programs: &Path) -> [(&'static str, Objects); 3] {
    let kubernetes = deploy("kubernetes");
    OVERLAYS.map(|overlay| (overlay, Objects::parse(&build(programs, &kubernetes, overlay))))
}

/// The items of a list; none if there is no list.
fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// What each item of a list says under `key`.
fn each<'a>(list: &'a Value, key: &str) -> Vec<&'a Value> {
    items(list).iter().map(|item| &item[key]).collect()
}

fn has_labels(labels: &Value, wanted: &Value) -> bool {
    let wanted = wanted.as_object().unwrap();
    !wanted.is_empty() && wanted.iter().all(|(name, value)| labels[name] == *value)
}

/// Whether a pod of this Deployment has a port of this name.
fn has_port(deployment: &Value, name: &Value) -> bool {
    let containers = items(&deployment["spec"]["template"]["spec"]["containers"]);
    containers.iter().any(|container| each(&container["ports"], "name").contains(&name))
}

/// The configuration of an overlay, with secrets where the test can write them.
fn with_secrets(configuration: &str, directory: &Path) -> String {
    fs::write(directory.join("admin-token"), format!("{TOKEN}\n")).unwrap();
    fs::write(directory.join("redis-password"), PASSWORD).unwrap();
    assert!(configuration.contains(SECRETS));
    configuration.replace(SECRETS, file_name(directory))
}

/// The configuration of an overlay as it is served here: at free ports, in front of `origin`.
fn here(configuration: &str, directory: &Path, origin: &Origin) -> Config {
    let mut text = with_secrets(configuration, directory);
    for (from, to) in [
        ("address: 0.0.0.0:8080", "address: 127.0.0.1:0"),
        ("address: 0.0.0.0:9900", "address: 127.0.0.1:0"),
        ("api.default.svc.cluster.local:8080", &origin.address.to_string()),
    ] {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    Config::yaml(text)
}

#[test]
fn clusters_old_and_new_take_every_overlay() {
    let Some(programs) = programs() else { return };
    let directory = TempDir::new().unwrap();
    let validate = |text: &str| {
        let file = directory.path().join("objects.yaml");
        fs::write(&file, text).unwrap();
        let mut python = program("python3", "python3");
        python.env("PYTHONPATH", programs.join("validate")).args(["-m", "kubernetes_validate", "--strict"]);
        let output = python.args(CLUSTERS).arg(&file).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    for overlay in OVERLAYS {
        let text = build(&programs, &deploy("kubernetes"), overlay);
        let (is_valid, said) = validate(&text);
        assert!(is_valid, "{overlay}: {said}");
        // The Prometheus Operator brings the schema of its own kind. What the object says is looked at below.
        let monitors = Objects::parse(&text).of_kind("ServiceMonitor").count();
        assert_eq!(monitors, usize::from(overlay == "replicas"));
        let unknown = said.lines().filter(|line| !line.starts_with("INFO"));
        let (of_monitors, others): (Vec<_>, Vec<_>) =
            unknown.partition(|line| line.contains("schema for kind ServiceMonitor"));
        assert_eq!((of_monitors.len(), others), (2 * monitors, Vec::new()), "{said}");
    }
    let text = build(&programs, &deploy("kubernetes"), "memory");
    for (right, wrong) in [("failureThreshold: 30", "failureThreshhold: 30"), ("seconds: 10", "seconds: 10s")]
    {
        assert!(text.contains(right));
        let (is_valid, said) = validate(&text.replacen(right, wrong, 1));
        assert!(!is_valid, "{wrong}: {said}");
    }
}

#[test]
fn every_configuration_is_valid_without_a_warning_and_wants_its_secrets() {
    let Some(programs) = programs() else { return };
    for (overlay, objects) in overlays(&programs) {
        let directory = TempDir::new().unwrap();
        let file = directory.path().join("proxy.yaml");
        let text = with_secrets(&objects.configuration(), directory.path());
        fs::write(&file, text).unwrap();
        let ended = tollgate(&["check", file_name(&file)]);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{overlay}");
        fs::remove_file(directory.path().join("admin-token")).unwrap();
        let ended = tollgate(&["check", file_name(&file)]);
        assert_eq!(ended.code, Some(78), "{overlay}");
        assert!(ended.stderr.contains("admin-token"), "{overlay}: {}", ended.stderr);
    }
}

/// The level `restricted` of the Pod Security Standards, and a root file system that can't be written.
#[test]
fn pods_are_shut_in() {
    let Some(programs) = programs() else { return };
    for (overlay, objects) in overlays(&programs) {
        for deployment in objects.of_kind("Deployment") {
            let name = format!("{overlay}: {}", deployment["metadata"]["name"]);
            let pod = &deployment["spec"]["template"]["spec"];
            assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{name}");
            assert!(pod["securityContext"]["runAsUser"].as_u64().unwrap() > 0, "{name}");
            assert_eq!(pod["securityContext"]["seccompProfile"], json!({"type": "RuntimeDefault"}), "{name}");
            assert_eq!(pod["automountServiceAccountToken"], false, "{name}");
            for key in ["hostNetwork", "hostPID", "hostIPC"] {
                assert_eq!(pod[key], Value::Null, "{name}");
            }
            for volume in items(&pod["volumes"]) {
                let is_own = ["configMap", "secret"].into_iter().any(|key| !volume[key].is_null());
                assert!(is_own, "{name}: {volume}");
                let mode = &volume["secret"]["defaultMode"];
                assert!(mode.is_null() || *mode == 0o440, "{name}: {volume}");
            }
            for container in items(&pod["containers"]) {
                let context = json!({
                    "allowPrivilegeEscalation": false,
                    "readOnlyRootFilesystem": true,
                    "capabilities": { "drop": ["ALL"] },
                });
                assert_eq!(container["securityContext"], context, "{name}");
                let resources = &container["resources"];
                assert!(!resources["limits"]["memory"].is_null(), "{name}");
                assert_eq!(resources["limits"]["memory"], resources["requests"]["memory"], "{name}");
                let is_safe = |mount: &Value| mount["readOnly"] == true && mount["subPath"].is_null();
                assert!(items(&container["volumeMounts"]).iter().all(is_safe), "{name}");
            }
        }
    }
    // The user of the image is the one that the pods set.
    let dockerfile = fs::read_to_string(deploy("Dockerfile")).unwrap();
    let user = dockerfile.lines().find_map(|line| line.strip_prefix("USER ")).unwrap();
    let [(_, memory), ..] = overlays(&programs);
    let context = &memory.pod()["securityContext"];
    assert_eq!(user, format!("{}:{}", context["runAsUser"], context["runAsGroup"]));
    assert_eq!(memory.container()["image"], concat!("tollgate:", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_pod_has_time_to_drain() {
    let Some(programs) = programs() else { return };
    for (overlay, objects) in overlays(&programs) {
        let pre_stop = objects.container()["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64().unwrap();
        let configuration: Value = serde_yaml::from_str(&objects.configuration()).unwrap();
        let drain = configuration["shutdown"]["drain"].as_str().unwrap();
        let drain: u64 = drain.strip_suffix('s').unwrap().parse().unwrap();
        let grace = objects.pod()["terminationGracePeriodSeconds"].as_u64().unwrap();
        // What does not end by itself is broken off, and the last lines are written: two seconds for each.
        assert!(pre_stop >= 5 && grace >= pre_stop + drain + 5, "{overlay}: {pre_stop}, {drain}, {grace}");
        let rolling = &objects.named("Deployment", "tollgate")["spec"]["strategy"]["rollingUpdate"];
        assert_eq!(rolling, &json!({"maxSurge": 1, "maxUnavailable": 0}), "{overlay}");
    }
}

#[test]
fn config_maps_secrets_and_ports_that_objects_name_exist() {
    let Some(programs) = programs() else { return };
    let guide = fs::read_to_string(deploy("README.md")).unwrap();
    for (overlay, objects) in overlays(&programs) {
        for deployment in objects.of_kind("Deployment") {
            let pod = &deployment["spec"]["template"]["spec"];
            for volume in items(&pod["volumes"]) {
                if let Some(name) = volume["configMap"]["name"].as_str() {
                    objects.named("ConfigMap", name);
                }
                // Those that the reader of the guide makes.
                if let Some(name) = volume["secret"]["secretName"].as_str() {
                    assert!(guide.contains(&format!("create secret generic {name} ")), "{overlay}: {name}");
                }
            }
            for container in items(&pod["containers"]) {
                let mounted = each(&container["volumeMounts"], "name");
                assert_eq!(mounted, each(&pod["volumes"], "name"), "{overlay}");
                for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
                    let ports = ["httpGet", "tcpSocket"].map(|how| &container[probe][how]["port"]);
                    let mut ports = ports.into_iter().filter(|port| !port.is_null());
                    assert!(ports.all(|port| has_port(deployment, port)), "{overlay}: {probe}");
                }
            }
        }
        for service in objects.of_kind("Service") {
            let deployment = objects.selected(&service["spec"]["selector"]);
            let targets = each(&service["spec"]["ports"], "targetPort");
            assert!(targets.iter().all(|port| has_port(deployment, port)), "{overlay}: {service}");
        }
        for policy in objects.of_kind("NetworkPolicy") {
            let deployment = objects.selected(&policy["spec"]["podSelector"]["matchLabels"]);
            for ports in each(&policy["spec"]["ingress"], "ports") {
                let ports = each(ports, "port");
                assert!(ports.iter().all(|port| has_port(deployment, port)), "{overlay}: {policy}");
            }
        }
    }
}

#[test]
fn the_configuration_fits_its_pod() {
    let Some(programs) = programs() else { return };
    for (overlay, objects) in overlays(&programs) {
        let container = objects.container();
        let configuration: Value = serde_yaml::from_str(&objects.configuration()).unwrap();
        // It listens where the Services lead, and is read where it is mounted.
        let addresses = [&configuration["listeners"][0]["address"], &configuration["admin"]["address"]];
        assert_eq!(addresses, ["0.0.0.0:8080", "0.0.0.0:9900"], "{overlay}");
        assert_eq!(each(&container["ports"], "containerPort"), [8080, 9900], "{overlay}");
        assert_eq!(container["args"], json!(["run", "--config", "/etc/tollgate/proxy.yaml"]), "{overlay}");
        assert_eq!(each(&container["volumeMounts"], "mountPath"), ["/etc/tollgate", SECRETS], "{overlay}");
        // The network lets the proxies reach their upstream.
        let url = configuration["upstreams"]["api"]["endpoints"][0].as_str().unwrap();
        let [_, namespace] = url.split('.').take(2).collect::<Vec<_>>()[..] else { panic!("{url}") };
        let egress = objects.named("NetworkPolicy", "tollgate")["spec"]["egress"].to_string();
        assert!(egress.contains(&format!("\"kubernetes.io/metadata.name\":\"{namespace}\"")), "{egress}");
        let port = url.rsplit(':').next().unwrap();
        assert!(egress.contains(&format!("{{\"port\":{port}}}")), "{egress}");
    }
}

#[test]
fn three_replicas_stay_and_are_watched() {
    let Some(programs) = programs() else { return };
    let [(_, memory), (_, redis), (_, replicas)] = overlays(&programs);
    let count = |objects: &Objects| objects.named("Deployment", "tollgate")["spec"]["replicas"].clone();
    assert_eq!((count(&memory), count(&redis)), (json!(1), Value::Null));
    // The autoscaler alone says how many there are.
    assert_eq!(count(&replicas), Value::Null);
    let autoscaler = &replicas.named("HorizontalPodAutoscaler", "tollgate")["spec"];
    let target = autoscaler["scaleTargetRef"].as_object().unwrap();
    replicas.named(target["kind"].as_str().unwrap(), target["name"].as_str().unwrap());
    assert_eq!(autoscaler["minReplicas"], 3);
    let budget = &replicas.named("PodDisruptionBudget", "tollgate")["spec"];
    assert_eq!(budget["maxUnavailable"], 1);
    assert_eq!(replicas.selected(&budget["selector"]["matchLabels"])["metadata"]["name"], "tollgate");
    let spread = items(&replicas.pod()["topologySpreadConstraints"]);
    assert_eq!(spread.len(), 2);
    for constraint in spread {
        let selected = replicas.selected(&constraint["labelSelector"]["matchLabels"]);
        assert_eq!(selected["metadata"]["name"], "tollgate");
    }
    // Prometheus finds the admin port of each pod once, and knows its token.
    let monitor = &replicas.named("ServiceMonitor", "tollgate")["spec"];
    let labels = &monitor["selector"]["matchLabels"];
    let found: Vec<_> =
        replicas.of_kind("Service").filter(|one| has_labels(&one["metadata"]["labels"], labels)).collect();
    let [service] = found[..] else { panic!("{found:?}") };
    let [endpoint] = items(&monitor["endpoints"]) else { panic!("{monitor}") };
    assert_eq!(service["spec"]["ports"][0]["name"], endpoint["port"]);
    assert_eq!(service["spec"]["ports"][0]["targetPort"], "admin");
    let credentials = json!({"name": "tollgate", "key": "admin-token"});
    assert_eq!(endpoint["authorization"]["credentials"], credentials);
    assert!(replicas.configuration().contains(&format!("token: \"${{file:{SECRETS}/admin-token}}\"")));
    let rule = &replicas.named("NetworkPolicy", "tollgate-metrics")["spec"]["ingress"][0];
    assert_eq!(rule["ports"], json!([{"port": "admin"}]));
}

#[test]
fn a_change_of_the_configuration_is_rolled_out() {
    let Some(programs) = programs() else { return };
    for (overlay, file) in [("memory", "base/proxy.yaml"), ("replicas", "overlays/redis/proxy.yaml")] {
        let copy = TempDir::new().unwrap();
        printed(Command::new("cp").arg("-R").arg(deploy("kubernetes")).arg(copy.path()));
        let kubernetes = copy.path().join("kubernetes");
        let pod = || Objects::parse(&build(&programs, &kubernetes, overlay)).pod().clone();
        let before = pod();
        assert_eq!(pod(), before);
        let file = kubernetes.join(file);
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace("limit: 50/1s", "limit: 60/1s")).unwrap();
        assert_ne!(pod(), before, "{overlay}: the pods stay");
    }
}

/// As the guide shows it.
#[test]
fn an_overlay_of_another_directory_sets_image_and_configuration() {
    let Some(programs) = programs() else { return };
    let guide = fs::read_to_string(deploy("README.md")).unwrap();
    let shown = guide.split("```yml\n").filter_map(|rest| rest.split("```").next());
    let own = shown.into_iter().find(|block| block.starts_with("resources:")).unwrap();
    let directory = TempDir::new().unwrap();
    let kubernetes = directory.path().join("tollgate/deploy");
    fs::create_dir_all(&kubernetes).unwrap();
    printed(Command::new("cp").arg("-R").arg(deploy("kubernetes")).arg(&kubernetes));
    let overlay = directory.path().join("overlays/own");
    fs::create_dir_all(&overlay).unwrap();
    fs::write(overlay.join("kustomization.yaml"), own.replace("../tollgate", "../../tollgate")).unwrap();
    fs::write(overlay.join("proxy.yaml"), "own: true\n").unwrap();
    let objects = Objects::parse(&build(&programs, directory.path(), "own"));
    assert_eq!(objects.configuration(), "own: true\n");
    let image = concat!("registry.example.com/tollgate:", env!("CARGO_PKG_VERSION"));
    assert_eq!(objects.container()["image"], image);
}

#[test]
fn probes_and_prometheus_ask_what_there_is() {
    let Some(programs) = programs() else { return };
    let [(_, memory), _, (_, replicas)] = overlays(&programs);
    let (origin, secrets) = (Origin::ok(), TempDir::new().unwrap());
    let tollgate = Tollgate::start(here(&memory.configuration(), secrets.path(), &origin));
    let container = memory.container();
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        let path = container[probe]["httpGet"]["path"].as_str().unwrap();
        assert_eq!(tollgate.admin("GET", path).status, 200, "{probe}");
    }
    let path = replicas.named("ServiceMonitor", "tollgate")["spec"]["endpoints"][0]["path"].as_str().unwrap();
    assert_eq!(tollgate.admin("GET", path).status, 401);
    let token = format!("Bearer {TOKEN}");
    let metrics = request(tollgate.admin, "GET", path, &[("authorization", &token)], b"");
    assert!(metrics.text().contains("tollgate_build_info"), "{metrics:?}");
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
}

#[test]
fn limits_are_in_the_redis_of_the_overlay() {
    let Some(programs) = programs() else { return };
    let [_, (_, objects), _] = overlays(&programs);
    let (origin, secrets) = (Origin::ok(), TempDir::new().unwrap());
    // The user that the guide has its reader put into the secret.
    let users = secrets.path().join("users.acl");
    let acl = fs::read_to_string(deploy("redis-users.acl")).unwrap();
    fs::write(&users, acl.replace("CHANGE-ME", PASSWORD)).unwrap();
    let container = &objects.named("Deployment", "redis")["spec"]["template"]["spec"]["containers"][0];
    let mut arguments: Vec<_> = items(&container["args"]).iter().filter_map(Value::as_str).collect();
    assert_eq!(arguments.remove(0), "redis-server");
    // What deploy/redis.conf sets, but for who may connect, these arguments set as well.
    let settings = fs::read_to_string(deploy("redis.conf")).unwrap();
    let settings = settings.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    for (name, value) in settings.map(|line| line.split_once(' ').unwrap()) {
        let at = arguments.iter().position(|one| one.strip_prefix("--") == Some(name));
        let set = at.map(|at| arguments[at + 1]);
        let is_own = ["bind", "protected-mode", "port"].contains(&name);
        assert!(is_own || set == Some(value.trim_matches('"')), "{name}: {set:?}, not {value}");
    }
    let file = arguments.iter().position(|argument| *argument == "--aclfile").unwrap() + 1;
    assert_eq!(arguments[file], "/run/secrets/redis/users.acl");
    arguments[file] = file_name(&users);
    let redis = Redis::with(&arguments);
    let configuration = objects.configuration();
    assert!(configuration.contains("@redis:6379"));
    let configuration = configuration
        .replace("@redis:6379", &format!("@127.0.0.1:{}", redis.port))
        .replace("timeout: 50ms", "timeout: 5s");
    let tollgate = Tollgate::start(here(&configuration, secrets.path(), &origin));
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    let ask = |path: &str| {
        let token = format!("Bearer {TOKEN}");
        request(tollgate.admin, "GET", path, &[("authorization", &token)], b"")
    };
    let metrics = ask("/metrics").text();
    let decided = r#"tollgate_decisions_total{policy="per-ip",verdict="allowed",source="store"} 1"#;
    assert!(metrics.contains(decided), "{metrics}");
    assert_eq!(ask("/v1/status").json()["warnings"], json!([]));
}

/// As the kubelet updates a ConfigMap that is mounted: a link is replaced, and the path of the file stays.
#[test]
fn a_reload_rereads_a_configuration_that_is_mounted() {
    let (origin, directory) = (Origin::ok(), TempDir::new().unwrap());
    let path = |name: &str| directory.path().join(name);
    let configuration = |limit: &str| {
        format!(
            "listeners: [{{ address: \"127.0.0.1:0\" }}]\nadmin: {{ address: \"127.0.0.1:0\" }}\n\
             policies: {{ per-ip: {{ algorithm: gcra, key: ip, limit: {limit} }} }}\n\
             upstreams: {{ origin: {{ endpoints: [\"http://{}\"], policies: [per-ip] }} }}\n\
             routes: [{{ path: /*, upstream: origin }}]\n",
            origin.address
        )
    };
    for (version, limit) in [("..1", "10/1s"), ("..2", "20/1s")] {
        fs::create_dir(path(version)).unwrap();
        fs::write(path(version).join("proxy.yaml"), configuration(limit)).unwrap();
    }
    symlink("..1", path("..data")).unwrap();
    symlink("..data/proxy.yaml", path("proxy.yaml")).unwrap();
    let file = path("proxy.yaml");
    // The harness' own configuration is not read.
    let tollgate = Tollgate::start_as(&["run", "--config", file_name(&file)], Config::yaml(""));
    symlink("..2", path("..data_tmp")).unwrap();
    fs::rename(path("..data_tmp"), path("..data")).unwrap();
    let reloaded = tollgate.command(&["reload"]);
    assert_eq!(reloaded.code, Some(0), "{reloaded:?}");
    assert!(reloaded.stdout.contains("policy per-ip: limits 10/1s → 20/1s"), "{}", reloaded.stdout);
}
