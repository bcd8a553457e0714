//! However often the configuration is read again, nothing is left of those before it.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use super::{HEAD, reload, start};
use crate::harness::{Client, Origin, PATIENCE, Tollgate, get};

#[derive(Debug)]
struct Held {
    threads: usize,
    descriptors: usize,
}

fn held(tollgate: &Tollgate) -> Held {
    let count = |of: &str| fs::read_dir(format!("/proc/{}/{of}", tollgate.pid())).unwrap().count();
    Held { threads: count("task"), descriptors: count("fd") }
}

fn threads(tollgate: &Tollgate) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", tollgate.pid())).unwrap();
    tasks.map(|task| fs::read_to_string(task.unwrap().path().join("comm")).unwrap()).collect()
}

#[test]
fn hundreds_of_reloads_leave_no_threads_no_descriptors_and_hardly_memory() {
    let origins = [Origin::ok(), Origin::ok()];
    let directory = tempfile::TempDir::new().unwrap();
    let issuer = crate::harness::Issuer::new(jsonwebtoken::Algorithm::EdDSA);
    let keys = [0, 1].map(|n| {
        let path = directory.path().join(n.to_string());
        fs::write(&path, issuer.public()).unwrap();
        path.display().to_string()
    });
    // Everything changes each time, and a hundred routes and policies make it large.
    let yaml = |n: usize| {
        let policies: String = (0..100)
            .map(|p| format!("  p{p}: {{ algorithm: single_counter, key: ip, limit: {}/1s }}\n", 1_000 + n))
            .collect();
        let first = n % 2;
        let routes: String = (first..100)
            .map(|r| format!("  - {{ path: /{r}/*, upstream: origin, policies: [p{r}] }}\n"))
            .collect();
        format!(
            "{HEAD}user: [{{ jwt: {{ key: {{ file: {} }}, algorithm: EdDSA }} }}]\nupstreams:\n  origin: {{ endpoints: [\"http://{}\"] }}\n\
             policies:\n{policies}routes:\n{routes}",
            keys[n % 2],
            origins[n % 2].address
        )
    };
    let tollgate = start(&yaml(0));
    let mut kept = Client::connect(tollgate.address);
    let mut round = |n: usize| {
        reload(&tollgate, &yaml(n));
        assert_eq!(kept.request("GET", "/7/x", &[], b"").status, 200);
        assert_eq!(get(tollgate.address, "/8/x", &[]).status, 200);
    };
    (1..=60).for_each(&mut round);
    let settle = |most: Held| {
        let (end, mut now) = (Instant::now() + PATIENCE, held(&tollgate));
        while now.threads > most.threads || now.descriptors > most.descriptors {
            assert!(
                Instant::now() < end,
                "{:?} {now:?} is left of before, more than {most:?}",
                threads(&tollgate)
            );
            thread::sleep(Duration::from_millis(5));
            now = held(&tollgate);
        }
        now
    };
    // Those of the start, and those that read files for them.
    const THREADS: usize = 16;
    let before = settle(Held { threads: THREADS, descriptors: 60 });
    let memory = tollgate.resident_kib();
    (61..=360).for_each(&mut round);
    settle(Held { threads: THREADS, descriptors: before.descriptors + 4 });
    let grown = tollgate.resident_kib().saturating_sub(memory);
    assert!(grown < 8 << 10, "{grown} KiB more after 300 reloads");
}
