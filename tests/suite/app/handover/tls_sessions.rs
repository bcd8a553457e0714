//! TLS sessions go on from process to process, and over changes of certificates.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use super::{origin, start};
use crate::harness::{Authority, Config, TlsConnector, eventually, file_name};

/// Changes of the certificate before each handover.
fn changes() -> usize {
    std::env::var("TOLLGATE_TEST_ROUNDS").map_or(2, |rounds| rounds.parse().unwrap())
}

#[test]
fn two_handovers_and_new_certificates_lose_no_request_and_no_session() {
    let (origin, authority) = (origin(), Authority::new("us"));
    let issued = authority.issue("api", &["localhost"]);
    let listeners = format!(
        "listeners: [{{ address: \"127.0.0.1:0\", tls: {{ certificates: [{{ cert: {}, key: {} }}] }} }}]
shutdown: {{ drain: 20s }}",
        file_name(&issued.cert),
        file_name(&issued.key)
    );
    let mut service = start(Config::new(&[origin.address], &listeners));
    let address = service.0.address;
    let (stop, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let clients: Vec<_> = std::iter::repeat_with(|| TlsConnector::new(&authority))
        .take(4)
        .map(|connector| {
            let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
            thread::spawn(move || {
                let (mut failures, mut has_session) = (Vec::new(), false);
                while !stop.load(SeqCst) {
                    let ask = || {
                        let client = connector.connect(address, "localhost")?;
                        let is_resumed = client.is_resumed();
                        client.get("/", "").map(|answer| (is_resumed, answer))
                    };
                    match ask() {
                        Ok((is_resumed, answer)) if answer.starts_with("HTTP/1.1 200 ") => {
                            if has_session && !is_resumed {
                                failures.push("a full handshake, although there was a session".to_owned());
                            }
                            has_session = true;
                            answered.fetch_add(1, SeqCst);
                        }
                        other => failures.push(format!("{other:?}")),
                    }
                }
                failures
            })
        })
        .collect();
    let ask = |more: usize| {
        let enough = answered.load(SeqCst) + more;
        eventually("clients are answered", || answered.load(SeqCst) >= enough);
    };
    ask(20);
    let mut pid = service.0.pid();
    for handover in 0..2 {
        for change in 0..changes() {
            let next = authority.issue(&format!("next-{handover}-{change}"), &["localhost"]);
            let reloaded = service.count(" was reloaded");
            fs::copy(&next.cert, &issued.cert).unwrap();
            fs::copy(&next.key, &issued.key).unwrap();
            eventually("the new certificate is served", || service.count(" was reloaded") > reloaded);
            ask(20);
        }
        pid = service.hand_over_from(pid);
        ask(40);
    }
    stop.store(true, SeqCst);
    let failures: Vec<_> = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
    assert!(failures.is_empty(), "{} of {}: {failures:#?}", failures.len(), answered.load(SeqCst));
    assert_eq!(service.0.wait().code(), Some(0), "the first process has ended in order");
}
