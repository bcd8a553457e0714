//! What no request alone can tell: checks of services, and connections that are left without an answer.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use super::{
    super::{
        agreement::{Both, NotRunning, Pair, Run},
        sent::Sent,
        source::{Generated, Listener},
    },
    Haproxy,
};
use crate::harness::{Origin, eventually};

/// HAProxy and its conversion, with one listener, at `PORT`.
fn pair(text: &str) -> Pair {
    let generated = |ports: &[u16]| {
        let head = "defaults\n    mode http\n    timeout connect 2s\n    timeout client 10s\n    timeout server 10s\n";
        Generated {
            files: vec![(
                "haproxy.cfg".to_owned(),
                format!("{head}{}", text.replace("PORT", &ports[0].to_string())),
            )],
            listeners: vec![Listener { address: ([127, 0, 0, 1], ports[0]).into(), is_tls: false }],
            ..Generated::default()
        }
    };
    match Both::of(generated).start::<Haproxy>() {
        Ok(pair) => pair,
        Err(NotRunning::Theirs(error) | NotRunning::Ours(error)) => panic!("{error}\n{text}"),
    }
}

/// A service that answers checks only if they name this host. How many checks it got.
fn checked(host: &'static str) -> (Origin, Arc<AtomicUsize>) {
    let count = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&count);
    let origin = Origin::start(move |conn| {
        while let Some(head) = conn.head()? {
            let lower = head.to_ascii_lowercase();
            let is_check = head.contains(" /checked");
            counted.fetch_add(usize::from(is_check), Ordering::Relaxed);
            let is_well = !is_check || lower.contains(&format!("\r\nhost: {host}\r\n"));
            conn.answer(if is_well { "200 OK" } else { "404 Not Found" }, &[], b"service")?;
        }
        Ok(())
    });
    (origin, count)
}

#[test]
fn checks_of_services_name_their_host() {
    for check in [
        "option httpchk GET /checked HTTP/1.1\\r\\nHost:\\ well.test",
        "option httpchk\n    http-check send meth GET uri /checked ver HTTP/1.1 hdr host well.test",
        "option httpchk\n    http-check connect\n    http-check send meth GET uri /checked ver HTTP/1.1 hdr Host well.test\n    \
         http-check expect status 200-299",
    ] {
        let (origin, count) = checked("well.test");
        let pair = pair(&format!(
            "frontend web\n    bind 127.0.0.1:PORT\n    default_backend app\nbackend app\n    {check}\n    \
             server one {} check inter 100ms fall 2 rise 1\n",
            origin.address
        ));
        // Of both programs, and more than it takes to be thought ill.
        eventually("there are checks", || count.load(Ordering::Relaxed) > 12);
        let run = Run::new();
        let sent = Sent::parse("GET a.test/");
        for listeners in [&pair.theirs, &pair.ours] {
            let reply = sent.send(&listeners[0], &run.clients).unwrap();
            assert_eq!(reply.status, 200, "{}: {check}\n{}", listeners[0].address, pair.converted.yaml);
        }
    }
}

#[test]
fn a_silent_drop_becomes_a_refusal() {
    let origin = Origin::start(|conn| {
        while conn.head()?.is_some() {
            conn.answer("200 OK", &[], b"service")?;
        }
        Ok(())
    });
    let pair = pair(&format!(
        "frontend web\n    bind 127.0.0.1:PORT\n    http-request silent-drop if {{ path_beg /x }}\n    \
         default_backend app\nbackend app\n    server one {}\n",
        origin.address
    ));
    let run = Run::new();
    let [dropped, passed] = ["GET a.test/x", "GET a.test/"].map(Sent::parse);
    for listeners in [&pair.theirs, &pair.ours] {
        assert_eq!(passed.send(&listeners[0], &run.clients).unwrap().status, 200);
    }
    let mut stream = TcpStream::connect(pair.theirs[0].address).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    stream.write_all(b"GET /x HTTP/1.1\r\nhost: a.test\r\n\r\n").unwrap();
    assert!(!stream.read(&mut [0]).is_ok_and(|count| count > 0), "HAProxy answers");
    let reply = dropped.send(&pair.ours[0], &run.clients);
    assert!(!reply.is_ok_and(|reply| reply.status < 400), "{}", pair.converted.yaml);
}
