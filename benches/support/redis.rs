//! A redis-server of its own for a measurement.

use std::{
    cell::Cell,
    fs,
    net::TcpListener,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use bb8_redis::redis::{Client, aio::MultiplexedConnection};
use tempfile::TempDir;
use tollgate::{
    config::model,
    store::redis::{RedisStore, Topology},
    telemetry::metrics::StoreMetrics,
};

/// What a server has done so far.
#[derive(Clone, Copy, Default)]
struct Totals {
    cpu: f64,
    calls: u64,
    wakes: u64,
}

/// A server of its own, which ends when it is dropped.
pub(crate) struct Redis {
    child: Child,
    port: u16,
    mark: Cell<Totals>,
    _directory: TempDir,
}

impl Redis {
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    /// The primaries of a cluster, without replicas.
    pub(crate) fn cluster(count: usize) -> Vec<Self> {
        let start = || {
            let bus = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
            Self::with(&["--cluster-enabled", "yes", "--cluster-port", &bus])
        };
        let nodes: Vec<Self> = (0..count).map(|_| start()).collect();
        for (index, node) in nodes.iter().enumerate() {
            let (first, last) = (16_384 * index / count, 16_384 * (index + 1) / count - 1);
            node.cli(&["cluster", "addslotsrange", &first.to_string(), &last.to_string()]);
            node.cli(&["cluster", "set-config-epoch", &(index + 1).to_string()]);
            let info = nodes[0].cli(&["info", "cluster"]);
            assert!(info.contains("cluster_enabled:1"), "{info}");
            let bus = nodes[0].cli(&["config", "get", "cluster-port"]);
            let bus = bus.lines().nth(1).unwrap_or_default().to_owned();
            node.cli(&["cluster", "meet", "127.0.0.1", &nodes[0].port.to_string(), &bus]);
        }
        let is_ready = |node: &Self| {
            let slots = node.cli(&["cluster", "info"]);
            slots.contains("cluster_state:ok") && slots.contains(&format!("cluster_size:{count}"))
        };
        while !nodes.iter().all(is_ready) {
            std::thread::sleep(Duration::from_millis(50));
        }
        nodes
    }

    fn with(arguments: &[&str]) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let directory = TempDir::new().unwrap();
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .arg("--dir")
            .arg(directory.path())
            .args(arguments)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let redis = Self { child, port, mark: Cell::default(), _directory: directory };
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
        redis
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) async fn connect(&self) -> MultiplexedConnection {
        Client::open(self.url()).unwrap().get_multiplexed_async_connection().await.unwrap()
    }

    pub(crate) fn store(&self) -> RedisStore {
        let config = settings(std::slice::from_ref(self), Duration::from_secs(5));
        let topology = Topology::open(&config).unwrap();
        let metrics = Arc::new(StoreMetrics::default());
        RedisStore::new(topology, &config, metrics, None)
    }

    /// CPU time so far, in microseconds.
    fn cpu(&self) -> f64 {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let of = |task: fs::DirEntry| {
            let stat = fs::read_to_string(task.path().join("schedstat")).unwrap();
            stat.split(' ').next().unwrap().parse::<f64>().unwrap()
        };
        tasks.map(|task| of(task.unwrap())).sum::<f64>() / 1e3
    }

    /// Batches that it has decided.
    fn calls(&self) -> u64 {
        let stats = self.cli(&["info", "commandstats"]);
        let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        calls.and_then(|calls| calls.split(',').next()?.parse().ok()).unwrap_or(0)
    }

    fn wakes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let wakes = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        wakes.and_then(|wakes| wakes.trim().parse().ok()).unwrap_or_default()
    }

    /// The output of `redis-cli ARGUMENTS`.
    fn cli(&self, arguments: &[&str]) -> String {
        let port = self.port.to_string();
        let output = Command::new("redis-cli").args(["-p", &port]).args(arguments).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn mark(&self) {
        self.mark.set(Totals { calls: self.calls(), cpu: self.cpu(), wakes: self.wakes() });
    }

    pub(crate) fn cpu_since_mark(&self) -> f64 {
        self.cpu() - self.mark.get().cpu
    }

    /// How often it had nothing to do, and something came.
    pub(crate) fn wakes_since_mark(&self) -> f64 {
        (self.wakes() - self.mark.get().wakes) as f64
    }

    pub(crate) fn calls_since_mark(&self) -> f64 {
        (self.calls() - self.mark.get().calls) as f64
    }
}

/// How to connect to a server, or to the nodes of a cluster.
pub(crate) fn settings(nodes: &[Redis], timeout: Duration) -> model::Redis {
    let url = |node: &Redis| model::Secret::new(node.url());
    let topology = match nodes {
        [node] => model::RedisTopology::Url(url(node)),
        _ => model::RedisTopology::Cluster(model::Cluster {
            nodes: nodes.iter().map(url).collect(),
            is_strict: false,
        }),
    };
    model::Redis { timeout, ..model::Redis::new(topology) }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
