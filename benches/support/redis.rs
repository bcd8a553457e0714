//! A redis-server of its own for a measurement.

use std::{
    fs,
    net::TcpListener,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use bb8_redis::redis::{Client, aio::MultiplexedConnection};
use tollgate::{
    config::model,
    limit::Breaker,
    store::redis::{RedisStore, Server},
    telemetry::metrics::StoreMetrics,
};

/// A server of its own, which ends when it is dropped.
pub(crate) struct Redis {
    child: Child,
    port: u16,
    mark: std::cell::Cell<f64>,
}

impl Redis {
    pub(crate) fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let redis = Self { child, port, mark: std::cell::Cell::new(0.0) };
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
        redis
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) async fn connect(&self) -> MultiplexedConnection {
        Client::open(self.url()).unwrap().get_multiplexed_async_connection().await.unwrap()
    }

    pub(crate) fn store(&self) -> RedisStore {
        let config = model::Redis {
            url: model::Secret::new(self.url()),
            tls: model::RedisTls::default(),
            timeout: Duration::from_secs(5),
            connections: 2,
            prefix: "ratelimit".to_owned(),
            breaker: model::Breaker { failures: 5, retry_after: Duration::from_secs(1) },
        };
        let server = Server::new(&config).unwrap();
        let metrics = Arc::new(StoreMetrics::default());
        RedisStore::new(server, &config, Arc::new(Breaker::new(5)), metrics, None)
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

    pub(crate) fn mark_cpu(&self) {
        self.mark.set(self.cpu());
    }

    pub(crate) fn cpu_since_mark(&self) -> f64 {
        self.cpu() - self.mark.get()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
