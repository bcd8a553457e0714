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

#[test]
fn no_session_outlives_a_handover_to_another_client_authentication() {
    let (origin, authority, strangers) = (origin(), Authority::new("us"), Authority::new("others"));
    let issued = authority.issue("api", &["localhost"]);
    let [ca, other_ca] = [&authority, &strangers].map(|of| file_name(&of.file()).to_owned());
    let [none, optional, required, other] = [
        String::new(),
        format!(", client_ca: {ca}, client_auth: optional"),
        format!(", client_ca: {ca}, client_auth: required"),
        format!(", client_ca: {other_ca}, client_auth: required"),
    ];
    let tls = |client_auth: &str| {
        let (cert, key) = (file_name(&issued.cert), file_name(&issued.key));
        format!("tls: {{ certificates: [{{ cert: {cert}, key: {key} }}]{client_auth} }} }}]")
    };
    let listeners = format!("listeners: [{{ address: \"127.0.0.1:0\", {}\n", tls(&none));
    let service = start(Config::new(&[origin.address], &listeners));
    let connector = TlsConnector::new(&authority);
    let ask = || {
        let client = connector.connect(service.0.address, "localhost").unwrap();
        let is_resumed = client.is_resumed();
        let answer = client.get("/", "").unwrap();
        (is_resumed, answer.split(' ').nth(1).unwrap().to_owned())
    };
    let is = |is_resumed: bool, status: &str| assert_eq!(ask(), (is_resumed, status.to_owned()));
    is(false, "200");
    is(true, "200");
    let (mut pid, mut before) = (service.0.pid(), &none);
    for (next, is_resumed, status) in [
        (&none, true, "200"),
        (&optional, false, "200"),
        (&required, false, "403"),
        (&required, true, "403"),
        (&other, false, "403"),
        (&optional, false, "200"),
        (&none, false, "200"),
    ] {
        service.configure(|yaml| {
            assert!(yaml.contains(&tls(before)), "{yaml}");
            yaml.replace(&tls(before), &tls(next))
        });
        pid = service.hand_over_from(pid);
        is(is_resumed, status);
        is(true, status);
        before = next;
    }
}
