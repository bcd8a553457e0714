//! Limits of what is in flight: requests that a service has not answered yet. Each is sent after the one before it has
//! reached the service, or has been denied.

use std::{
    env,
    net::{IpAddr, SocketAddr},
    path::Path,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use super::{
    super::{
        agreement::{Both, NotRunning},
        converted::Taken,
        dice::Dice,
        outcome::Outcome,
        source::{Generated, Listener, Noted, Places, Source, TlsFiles},
    },
    Traefik,
};
use crate::harness::{Client, Origin, Running, eventually};

const CONFIGURATIONS: u64 = 20;
const REQUESTS: usize = 16;

/// Traefik with such limits and little else.
struct InFlight;

impl Source for InFlight {
    const NAME: &'static str = Traefik::NAME;
    const FIRST_SEED: u64 = 1;
    const TO_BE_MET: &'static [&'static str] = &[];
    const NOTED: &'static [Noted] = &[];

    fn generate(seed: u64, places: &Places<'_>) -> Generated {
        generate(seed, places)
    }

    fn start(directory: &Path, generated: &Generated) -> Running {
        Traefik::start(directory, generated)
    }
}

/// A service that answers when it is told to.
struct Slow {
    origin: Origin,
    received: Arc<AtomicUsize>,
    gate: Arc<(Mutex<bool>, Condvar)>,
}

impl Slow {
    fn start() -> Self {
        let received = Arc::<AtomicUsize>::default();
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let (counted, opened) = (Arc::clone(&received), Arc::clone(&gate));
        let origin = Origin::start(move |conn| {
            while conn.head()?.is_some() {
                counted.fetch_add(1, SeqCst);
                let (is_open, changed) = &*opened;
                let guard = changed.wait_while(is_open.lock().unwrap(), |is_open| !*is_open).unwrap();
                drop(guard);
                conn.answer("200 OK", &[], b"done")?;
            }
            Ok(())
        });
        Self { origin, received, gate }
    }

    fn open(&self, is_open: bool) {
        *self.gate.0.lock().unwrap() = is_open;
        self.gate.1.notify_all();
    }
}

/// A request.
#[derive(Debug, Clone)]
struct One {
    peer: IpAddr,
    host: &'static str,
    path: &'static str,
    key: Option<&'static str>,
}

impl One {
    fn sent(&self, address: SocketAddr) -> Client {
        let Self { peer, host, path, key } = self;
        let mut client = Client::try_connect_from(*peer, address).unwrap();
        let key = key.map_or(String::new(), |key| format!("x-key: {key}\r\n"));
        client.send(format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n{key}\r\n"));
        client
    }
}

/// Sends all without waiting for answers: what became of those that are denied. Those that are admitted give their places
/// back.
fn denied(slow: &Slow, address: SocketAddr, requests: &[One]) -> Vec<Option<Outcome>> {
    slow.open(false);
    let (mut all, mut admitted) = (Vec::new(), Vec::new());
    for one in requests {
        let before = slow.received.load(SeqCst);
        let mut client = one.sent(address);
        let is_received = || slow.received.load(SeqCst) > before;
        eventually("it is admitted or denied", || is_received() || client.has_something_to_read());
        if is_received() {
            all.push(None);
            admitted.push((one, client));
        } else {
            all.push(Some(Outcome::new(client.try_reply(), Vec::new())));
        }
    }
    slow.open(true);
    for (one, client) in &mut admitted {
        assert_eq!(client.try_reply().unwrap().status, 200, "{one:?}");
    }
    for (one, _) in admitted {
        eventually("it is admitted again", || one.sent(address).try_reply().unwrap().status == 200);
    }
    all
}

fn generate(seed: u64, places: &Places<'_>) -> Generated {
    let dice = &mut Dice::new(seed);
    let (port, service) = (places.ports[0], places.origins[0]);
    let limit = |dice: &mut Dice| {
        let amount =
            dice.weighted(&[(2, "1"), (4, "2"), (4, "3"), (2, "5"), (1, "0"), (1, "'{{ env \"LIMIT\" }}'")]);
        let criterion = dice.weighted(&[
            (4, ""),
            (3, ", sourceCriterion: { ipStrategy: { depth: 0 } }"),
            (2, ", sourceCriterion: { requestHost: true }"),
            (2, ", sourceCriterion: { requestHeaderName: X-Key }"),
        ]);
        format!("inFlightReq: {{ amount: {amount}{criterion} }}")
    };
    let of_program = format!(
        "entryPoints:\n  web:\n    address: \"127.0.0.1:{port}\"\nproviders: {{ file: {{ filename: dynamic.yml }} }}\n"
    );
    let of_app = dice.pick(&["", ", middlewares: [first]", ", middlewares: [second]"]);
    let of_all = dice.pick(&[", middlewares: [first]", ", middlewares: [first, second]"]);
    let dynamic = format!(
        "http:
  routers:
    app: {{ rule: 'PathPrefix(`/app`)', service: one{of_app} }}
    all: {{ rule: 'PathPrefix(`/`)', priority: 1, service: one{of_all} }}
  middlewares:
    first: {{ {} }}
    second: {{ {} }}
  services:
    one: {{ loadBalancer: {{ servers: [{{ url: \"http://{service}\" }}] }} }}
",
        limit(dice),
        limit(dice)
    );
    Generated {
        files: vec![("traefik.yml".to_owned(), of_program), ("dynamic.yml".to_owned(), dynamic)],
        listeners: vec![Listener { address: ([127, 0, 0, 1], port).into(), is_tls: false }],
        ..Generated::default()
    }
}

fn request(dice: &mut Dice) -> One {
    One {
        peer: dice.pick(&["127.0.0.1", "127.0.0.1", "127.0.0.2"]).parse().unwrap(),
        host: dice.pick(&["a.test", "a.test", "b.test"]),
        path: dice.pick(&["/", "/x", "/app"]),
        key: dice.maybe(60, &["k1", "k2"]),
    }
}

/// What one configuration comes to.
#[derive(Default)]
struct Counts {
    both: usize,
    neither: usize,
    /// Tollgate alone denies, and a note says so.
    noted: usize,
}

/// # Errors
/// Tollgate admits more, or fewer without a note.
fn configuration(seed: u64, counts: &mut Counts) -> Result<(), String> {
    let slow = Slow::start();
    let tls = TlsFiles::default();
    let origins = [slow.origin.address];
    let both = Both::of(|ports| generate(seed, &Places { ports, origins: &origins, tls: &tls }));
    let head = format!("=== TOLLGATE_TEST_SEED={seed}\n{}", both.text());
    let pair = match both.start::<InFlight>() {
        Ok(pair) => pair,
        Err(NotRunning::Theirs(error) | NotRunning::Ours(error)) => return Err(format!("{head}\n{error}")),
    };
    let mut dice = Dice::new(seed);
    let requests: Vec<One> = (0..REQUESTS).map(|_| request(&mut dice)).collect();
    let [theirs, ours] =
        [&pair.theirs, &pair.ours].map(|listeners| denied(&slow, listeners[0].address, &requests));
    for (nth, denied) in theirs.into_iter().zip(ours).enumerate() {
        let fault = match denied {
            (None, None) => {
                counts.both += 1;
                continue;
            }
            (Some(_), Some(_)) => {
                counts.neither += 1;
                continue;
            }
            (None, Some(refusal)) => {
                if pair.converted.is_noted(&Taken::by(&pair.tollgate, &refusal)) {
                    // Places that are taken there are free here: the rest cannot be compared.
                    counts.noted += 1;
                    return Ok(());
                }
                "Silent: one admits what Tollgate denies"
            }
            (Some(_), None) => "Laxer: Tollgate admits what one denies",
        };
        let (yaml, sent) = (&pair.converted.yaml, &requests[nth]);
        return Err(format!("{head}--- proxy.yaml\n{yaml}\n{fault}: {nth}: {sent:?}"));
    }
    Ok(())
}

#[test]
fn traefik_admits_no_fewer_in_flight() {
    if !Traefik::is_installed() {
        return;
    }
    let number = |name: &str| env::var(name).ok().map(|number| number.parse::<u64>().unwrap());
    let only = number("TOLLGATE_TEST_SEED");
    let count = CONFIGURATIONS * number("TOLLGATE_TEST_ROUNDS").unwrap_or(1);
    let mut counts = Counts::default();
    let seeds = only.map_or(1..count + 1, |seed| seed..seed + 1);
    let failures: Vec<String> = seeds.filter_map(|seed| configuration(seed, &mut counts).err()).collect();
    let Counts { both, neither, noted } = counts;
    println!("{both} admitted by both, {neither} by neither, {noted} by Traefik alone, with a note");
    assert!(failures.is_empty(), "{} configurations, such as:\n\n{}", failures.len(), failures.join("\n\n"));
    assert!(only.is_some() || both > 50 && neither > 50, "it compares too little");
}
