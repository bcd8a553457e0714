//! Endpoints that fail under load, of which clients see nothing.

use std::{net::SocketAddr, thread, time::Duration};

use tempfile::TempDir;

use crate::harness::{
    Config, Latencies, Load, Origin, Running, Sample, Tollgate, eventually, nginx, start_nginx,
};

/// An nginx that answers each request at once, and can be ended and started anew.
struct Endpoint {
    directory: TempDir,
    running: Option<Running>,
    address: SocketAddr,
}

impl Endpoint {
    fn start() -> Self {
        let directory = TempDir::new().unwrap();
        let (running, address) = nginx(directory.path(), "", "location / { return 200 ok; }");
        Self { directory, running: Some(running), address }
    }

    /// Ends it without a word to anybody.
    fn kill(&mut self) {
        self.running = None;
    }

    fn restart(&mut self) {
        self.kill();
        self.running = Some(start_nginx(self.directory.path(), self.address));
    }

    fn signal(&self, name: &str) {
        let pid = self.running.as_ref().unwrap().0.id();
        let status =
            std::process::Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
        assert!(status.unwrap().success());
    }
}

/// What became of the requests of some clients while `happens` happens amid some seconds of them.
fn under_load(tollgate: &Tollgate, happens: impl FnOnce()) -> Vec<Sample> {
    let load = Load::start(&[tollgate.address], &["/"], 8, Duration::from_millis(2));
    thread::sleep(Duration::from_secs(1));
    happens();
    thread::sleep(Duration::from_secs(1));
    load.stop()
}

#[track_caller]
fn assert_all_served(what: &str, samples: &[Sample]) {
    let failed: Vec<_> = samples.iter().filter(|sample| sample.status != 200).collect();
    assert!(failed.is_empty(), "{what}: {} of {}: {failed:?}", failed.len(), samples.len());
    eprintln!("{what}: {}", Latencies::of(samples));
}

fn before(endpoints: &[SocketAddr], settings: &str) -> Tollgate {
    Tollgate::start(Config::upstream(endpoints, settings, ""))
}

#[test]
fn an_endpoint_that_is_killed_fails_no_request() {
    let mut endpoints = [(); 2].map(|()| Endpoint::start());
    let tollgate = before(&endpoints.each_ref().map(|endpoint| endpoint.address), "idle_connections: 64");
    let samples = under_load(&tollgate, || endpoints[0].kill());
    assert_all_served("killed", &samples);
}

#[test]
fn endpoints_that_are_rolled_one_after_the_other_fail_no_request() {
    let mut endpoints = [(); 3].map(|()| Endpoint::start());
    let tollgate = before(&endpoints.each_ref().map(|endpoint| endpoint.address), "idle_connections: 64");
    let samples = under_load(&tollgate, || {
        for endpoint in &mut endpoints {
            endpoint.kill();
            thread::sleep(Duration::from_millis(300));
            endpoint.restart();
            // As long as an endpoint that could not be reached rests.
            thread::sleep(Duration::from_millis(1_200));
        }
    });
    assert_all_served("rolled", &samples);
}

#[test]
fn an_endpoint_that_hangs_fails_no_request() {
    let endpoints = [(); 2].map(|()| Endpoint::start());
    let addresses = endpoints.each_ref().map(|endpoint| endpoint.address);
    let tollgate = before(
        &addresses,
        "timeouts: { response: 1500ms }, retry: { max: 2, when: [connect, refused, timeout] }",
    );
    let samples = under_load(&tollgate, || {
        endpoints[0].signal("STOP");
        thread::sleep(Duration::from_secs(4));
    });
    endpoints[0].signal("CONT");
    assert_all_served("hung", &samples);
}

#[test]
fn an_endpoint_that_answers_503_fails_no_request() {
    let busy = Origin::start(|conn| {
        while conn.head()?.is_some() {
            conn.answer("503 Service Unavailable", &[], b"busy")?;
        }
        Ok(())
    });
    let endpoints = [(); 2].map(|()| Endpoint::start());
    let addresses = [busy.address, endpoints[0].address, endpoints[1].address];
    // It is not ejected: it takes a third of the requests, which the default budget would not do.
    let settings =
        "balance: round_robin, outlier: off, retry: { when: [connect, refused, 503], budget: 50% }";
    let tollgate = before(&addresses, settings);
    let samples = under_load(&tollgate, || eventually("it is asked", || busy.heads().len() > 100));
    assert_all_served("busy", &samples);
}
