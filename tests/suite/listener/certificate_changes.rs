//! Certificates change while clients come, come again, and stay.

use std::{
    env, fs,
    io::ErrorKind,
    os::unix::fs::symlink,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use rustls::pki_types::{CertificateDer, pem::PemObject};
use tempfile::TempDir;

use super::Https;
use crate::harness::{
    Authority, Config, Issued, Origin, TLS_VERSIONS, TlsConnector, Tollgate, eventually, file_name,
};

/// `TOLLGATE_TEST_ROUNDS=20` for a long run.
fn rounds() -> usize {
    env::var("TOLLGATE_TEST_ROUNDS").map_or(6, |rounds| rounds.parse().unwrap())
}

fn der(issued: &Issued) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(&issued.cert).unwrap()
}

/// Puts a file in the place of another at once, as certbot and lego do.
fn replace(file: &Path, with: &Path) {
    let temporary = file.with_extension("new");
    fs::copy(with, &temporary).unwrap();
    fs::rename(temporary, file).unwrap();
}

fn is_served(https: &Https, issued: &Issued) -> bool {
    let client = https.connector().connect(https.address(), "localhost").unwrap();
    client.0.conn.peer_certificates().unwrap()[0] == der(issued)
}

#[test]
fn no_request_fails_and_no_session_is_lost_while_certificates_change() {
    let origin = Origin::ok();
    let https = Https::before(&origin);
    let (stop, requests) = (Arc::new(AtomicBool::new(false)), Arc::<AtomicUsize>::default());
    let ask = |name: String, mut once: Box<dyn FnMut() -> Result<(), String> + Send>| {
        let (stop, requests) = (Arc::clone(&stop), Arc::clone(&requests));
        let client = move || {
            while !stop.load(SeqCst) {
                if let Err(error) = once() {
                    return Err(format!("{name}: {error}"));
                }
                requests.fetch_add(1, SeqCst);
                thread::sleep(Duration::from_millis(3));
            }
            Ok(())
        };
        thread::spawn(client)
    };
    let address = https.address();
    let mut clients = Vec::new();
    for (name, version) in TLS_VERSIONS {
        let fresh = || TlsConnector::speaking(&https.authority, version);
        let get = move |connector: &TlsConnector, is_known: bool| {
            let client = connector.connect(address, "localhost").map_err(|error| error.to_string())?;
            if client.is_resumed() != is_known {
                return Err(format!("resumed: {}", client.is_resumed()));
            }
            let reply = client.into_http().try_request("GET", "/", b"").map_err(|error| error.to_string())?;
            if reply.status == 200 { Ok(()) } else { Err(format!("{reply:?}")) }
        };
        let authority_is_trusted = fresh();
        // A new client each time.
        let config = Arc::clone(authority_is_trusted.config());
        clients.push(ask(
            format!("new, {name}"),
            Box::new(move || {
                let mut config = (*config).clone();
                config.resumption = rustls::client::Resumption::disabled();
                get(&TlsConnector::from(config), false)
            }),
        ));
        // One that comes again and again.
        let connector = fresh();
        get(&connector, false).unwrap();
        clients.push(ask(format!("resumed, {name}"), Box::new(move || get(&connector, true))));
        // One that stays.
        let mut staying = fresh().connect(address, "localhost").unwrap().into_http();
        clients.push(ask(
            format!("kept, {name}"),
            Box::new(move || {
                let reply = staying.try_request("GET", "/", b"").map_err(|error| error.to_string())?;
                if reply.status == 200 { Ok(()) } else { Err(format!("{reply:?}")) }
            }),
        ));
    }
    let began = Instant::now();
    for round in 0..rounds() {
        let next = https.authority.issue(&format!("round {round}"), &["localhost"]);
        // One after the other: for a moment they do not belong together.
        replace(&https.certificate.key, &next.key);
        thread::sleep(Duration::from_millis(30));
        replace(&https.certificate.cert, &next.cert);
        let since = Instant::now();
        eventually("the new certificate is served", || is_served(&https, &next));
        assert!(since.elapsed() < Duration::from_secs(10), "served after {:?}", since.elapsed());
        assert!(clients.iter().all(|client| !client.is_finished()), "a client has given up");
    }
    let took = began.elapsed();
    stop.store(true, SeqCst);
    for client in clients {
        client.join().unwrap().unwrap();
    }
    let requests = requests.load(SeqCst);
    eprintln!("{} changes in {took:.1?}, {requests} requests, none failed", rounds());
    assert!(requests > 20 * rounds(), "{requests} requests are too few to tell");
    assert!(!https.tollgate.has_logged(&["ERROR"]), "{:#?}", https.tollgate.log());
}

#[test]
fn a_changed_link_is_noticed() {
    // As certbot (`live/NAME/fullchain.pem`) and Kubernetes (`..data`) do it: the path stays, what it leads to changes.
    let authority = Authority::new("Authority of the tests");
    let [first, second] = ["first", "second"].map(|name| authority.issue(name, &["localhost"]));
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name);
    for (version, issued) in [("..1", &first), ("..2", &second)] {
        fs::create_dir(path(version)).unwrap();
        fs::copy(&issued.cert, path(version).join("tls.crt")).unwrap();
        fs::copy(&issued.key, path(version).join("tls.key")).unwrap();
    }
    symlink("..1", path("..data")).unwrap();
    for name in ["tls.crt", "tls.key"] {
        symlink(Path::new("..data").join(name), path(name)).unwrap();
    }
    let origin = Origin::ok();
    let certificate = Issued { cert: path("tls.crt"), key: path("tls.key") };
    let listeners = format!(
        "listeners: [{{ address: \"127.0.0.1:0\", tls: {{ certificates: [{}] }} }}]\n",
        super::pair(&certificate)
    );
    let tollgate = Tollgate::start(Config::new(&[origin.address], &listeners));
    let https = Https { tollgate, authority, certificate };
    assert!(is_served(&https, &first));
    // The new link is renamed over the old one: both files change in one step.
    symlink("..2", path("..data_tmp")).unwrap();
    fs::rename(path("..data_tmp"), path("..data")).unwrap();
    let since = Instant::now();
    eventually("the new certificate is served", || is_served(&https, &second));
    eprintln!("served after {:.1?}", since.elapsed());
}

#[test]
fn a_ticket_does_not_get_in_once_its_authority_is_taken_out() {
    for (name, version) in TLS_VERSIONS {
        let origin = Origin::ok();
        let server = Authority::new("Authority of the server");
        let [old, new] = ["Old authority of clients", "New authority of clients"].map(Authority::new);
        let certificate = server.issue("server", &["localhost"]);
        let listeners = format!(
            "listeners: [{{ address: \"127.0.0.1:0\", tls: {{ certificates: [{}], client_ca: \"{}\" }} }}]\n",
            super::pair(&certificate),
            file_name(&old.file())
        );
        let tollgate = Tollgate::start(Config::new(&[origin.address], &listeners));
        let client = |authority: &Authority| {
            let own = authority.issue("client", &["client"]);
            TlsConnector::with_certificate_speaking(&server, &own, version)
        };
        let get = |connector: &TlsConnector| {
            let client = connector.connect(tollgate.address, "localhost")?;
            let is_resumed = client.is_resumed();
            let reply = client.into_http().try_request("GET", "/", b"")?;
            Ok::<_, std::io::Error>((is_resumed, reply.status))
        };
        let (of_old, of_new) = (client(&old), client(&new));
        assert_eq!(get(&of_old).unwrap(), (false, 200));
        assert_eq!(get(&of_old).unwrap(), (true, 200));
        assert!(get(&of_new).is_err(), "nobody trusts its authority yet");
        let mut kept = of_old.connect(tollgate.address, "localhost").unwrap().into_http();

        fs::copy(new.file(), old.file()).unwrap();
        eventually("the new authority is trusted", || get(&of_new).is_ok_and(|got| got.1 == 200));
        let seen = origin.heads().len();
        // With its ticket, and then without.
        for _ in 0..2 {
            let error = get(&of_old).expect_err("its authority is no longer trusted");
            assert_ne!(error.kind(), ErrorKind::WouldBlock, "{name}");
        }
        assert_eq!(origin.heads().len(), seen, "{name}");
        assert_eq!(get(&of_new).unwrap(), (true, 200), "{name}");
        // What was open stays open: nothing but the end of a connection ends it.
        assert_eq!(kept.request("GET", "/", &[], b"").status, 200, "{name}");
    }
}
