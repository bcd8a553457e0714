//! `limit_req` and `limit_conn` beside nginx.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    super::{
        agreement::{Both, NotRunning, Pair},
        counts,
        dice::Dice,
        sent::{Body, Sent},
        source::{Generated, Listener, Noted, Places, Source},
    },
    Nginx,
};
use crate::harness::{Client, Origin, Running, eventually};

/// nginx with limits and little else.
struct Limits;

impl Source for Limits {
    const NAME: &'static str = "nginx";
    const FIRST_SEED: u64 = 1;
    const TO_BE_MET: &'static [&'static str] = &[
        "admitted none",
        "admitted some",
        "admitted all",
        "several zones",
        "exempt",
        "dry run",
        "two bursts of a zone",
    ];
    const NOTED: &'static [Noted] = &[];

    fn generate(seed: u64, places: &Places<'_>) -> Generated {
        generate(seed, places)
    }

    fn start(directory: &Path, generated: &Generated) -> Running {
        Nginx::start(directory, generated)
    }
}

#[test]
fn nginx_admits_no_fewer_at_once() {
    counts::run::<Limits>();
}

/// A configuration with one listener, at `PORT`, and one service, at `ORIGIN`.
fn pair(text: &str, origin: &Origin) -> Pair {
    let generated = |ports: &[u16]| {
        let text = text.replace("PORT", &ports[0].to_string()).replace("ORIGIN", &origin.address.to_string());
        let head = "events { }\nhttp {\n  access_log off; client_body_temp_path body; proxy_temp_path proxy;\n  \
                    fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n";
        Generated {
            files: vec![("nginx.conf".to_owned(), format!("{head}{text}\n}}\n"))],
            listeners: vec![Listener { address: ([127, 0, 0, 1], ports[0]).into(), is_tls: false }],
            requests: Vec::new(),
            ..Generated::default()
        }
    };
    match Both::of(generated).start::<Limits>() {
        Ok(pair) => pair,
        Err(NotRunning::Theirs(error) | NotRunning::Ours(error)) => panic!("{error}\n{text}"),
    }
}

/// Requests that stay: how often, from where and for which path.
type Staying = (usize, &'static str, &'static str);

/// Tables, zones and servers, and what they get.
const CONCURRENT: [(&str, &[Staying]); 5] = [
    (
        "limit_conn_zone $binary_remote_addr zone=addr:1m;
         server { listen 127.0.0.1:PORT; location / { limit_conn addr 2; proxy_pass http://ORIGIN; } }",
        &[(4, "127.0.0.1", "/"), (4, "127.0.0.2", "/x"), (1, "127.0.0.1", "/y")],
    ),
    (
        "limit_conn_zone $binary_remote_addr zone=addr:1m;
         server { listen 127.0.0.1:PORT;
           location /one/ { limit_conn addr 1; proxy_pass http://ORIGIN; }
           location /three/ { limit_conn addr 3; proxy_pass http://ORIGIN; }
           location / { proxy_pass http://ORIGIN; } }",
        &[
            (2, "127.0.0.1", "/one/"),
            (4, "127.0.0.1", "/three/"),
            (2, "127.0.0.1", "/one/"),
            (5, "127.0.0.1", "/"),
        ],
    ),
    (
        "limit_conn_zone $binary_remote_addr zone=addr:1m; limit_conn_zone $server_name zone=server:1m;
         server { listen 127.0.0.1:PORT; server_name a.test; limit_conn server 3;
           location / { proxy_pass http://ORIGIN; }
           location /own/ { limit_conn addr 1; proxy_pass http://ORIGIN; }
           location /both/ { limit_conn addr 1; limit_conn server 4; proxy_pass http://ORIGIN; } }",
        &[
            (4, "127.0.0.1", "/"),
            (2, "127.0.0.2", "/own/"),
            (3, "127.0.0.9", "/both/"),
            (2, "127.0.0.2", "/both/"),
        ],
    ),
    (
        "geo $is_limited { default 1; 127.0.0.2 0; }
         map $is_limited $limited { 0 \"\"; 1 $binary_remote_addr; }
         limit_conn_zone $limited zone=some:1m;
         server { listen 127.0.0.1:PORT; location / { limit_conn some 1; proxy_pass http://ORIGIN; } }",
        &[(5, "127.0.0.2", "/"), (3, "127.0.0.1", "/"), (3, "127.0.0.9", "/")],
    ),
    (
        "limit_conn_zone $binary_remote_addr zone=addr:1m; limit_conn addr 2;
         server { listen 127.0.0.1:PORT; limit_conn_status 429;
           location / { proxy_pass http://ORIGIN; }
           location /free/ { return 204; }
           location /dry/ { limit_conn_dry_run on; proxy_pass http://ORIGIN; } }",
        &[
            (3, "127.0.0.1", "/"),
            (1, "127.0.0.1", "/free/"),
            (5, "127.0.0.9", "/dry/"),
            (3, "127.0.0.9", "/"),
        ],
    ),
];

#[test]
fn nginx_admits_no_fewer_concurrent_requests() {
    for (text, requests) in CONCURRENT {
        let received = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&received);
        let origin = Origin::start(move |conn| {
            while let Some(head) = conn.head()? {
                conn.body(&head)?;
                counter.fetch_add(1, SeqCst);
                conn.pause()?;
                conn.answer("200 OK", &[], b"")?;
            }
            Ok(())
        });
        let pair = pair(text, &origin);
        let yaml = &pair.converted.yaml;
        let admitted = [&pair.theirs, &pair.ours].map(|listeners| {
            let (mut waiting, mut admitted) = (Vec::new(), Vec::new());
            for (count, peer, path) in requests {
                let before = received.load(SeqCst);
                let connect = || Client::connect_from(peer.parse().unwrap(), listeners[0].address);
                let mut clients: Vec<_> = (0..*count).map(|_| connect()).collect();
                for client in &mut clients {
                    client.send(format!("GET {path} HTTP/1.1\r\nhost: a.test\r\n\r\n"));
                }
                eventually("each waits or is answered", || {
                    let answered = clients.iter().filter(|client| client.has_something_to_read()).count();
                    answered + received.load(SeqCst) - before == *count
                });
                admitted.push(received.load(SeqCst) - before);
                waiting.extend(clients);
            }
            (0..admitted.iter().sum()).for_each(|_| origin.resume());
            waiting.iter_mut().for_each(|client| drop(client.reply()));
            admitted
        });
        for (nth, (theirs, ours)) in admitted[0].iter().zip(&admitted[1]).enumerate() {
            let (count, peer, path) = requests[nth];
            assert!(
                ours == theirs || ours < theirs && pair.converted.has_notes,
                "of {count} from {peer} for {path}, nginx forwards {theirs}, Tollgate {ours}\n{text}\n{yaml}"
            );
            if ours != theirs {
                break;
            }
        }
    }
}

#[test]
fn nginx_admits_no_fewer_in_a_second() {
    const RATE: u32 = 20;
    let origin = Origin::ok();
    for (limit, burst) in [("burst=10 nodelay", 10), ("", 0), ("burst=5", 5), ("burst=8 delay=4", 8)] {
        let text = format!(
            "limit_req_zone $binary_remote_addr zone=all:1m rate={RATE}r/s;
             server {{ listen 127.0.0.1:PORT; limit_req_status 429;
               location / {{ limit_req zone=all {limit}; proxy_pass http://ORIGIN; }} }}"
        );
        let pair = pair(&text, &origin);
        for (who, listeners) in [("nginx", &pair.theirs), ("Tollgate", &pair.ours)] {
            let begun = Instant::now();
            // Some at once, since each may have to wait.
            let clients: Vec<_> = (0..4)
                .map(|_| {
                    let address = listeners[0].address;
                    thread::spawn(move || {
                        let mut admitted = 0;
                        while begun.elapsed() < Duration::from_secs(2) {
                            let status = Client::connect(address).request("GET", "/", &[], b"").status;
                            assert!(matches!(status, 200 | 429), "{status}");
                            admitted += u32::from(status == 200);
                        }
                        admitted
                    })
                })
                .collect();
            let admitted: u32 = clients.into_iter().map(|client| client.join().unwrap()).sum();
            // nginx counts in milliseconds, and each may be decided a little before it is answered.
            let most = f64::from(burst + 2) + f64::from(RATE) * begun.elapsed().as_secs_f64();
            let yaml = &pair.converted.yaml;
            assert!(f64::from(admitted) <= most, "{who} admits {admitted} of {most} with `{limit}`\n{yaml}");
            assert!(admitted > burst, "{who} admits {admitted} with `{limit}`\n{yaml}");
        }
    }
}

/// What limits count by.
const KEYS: [&str; 10] = [
    "$binary_remote_addr",
    "$binary_remote_addr",
    "$remote_addr",
    "$binary_remote_addr$uri",
    "$host",
    "$server_name",
    "$http_x_key",
    "$arg_token",
    "$limited",
    "$of_plan",
];
const LOCATIONS: [&str; 6] = ["/", "/app/", "/api/", "= /exact", "~ ^/user/[a-z]+$", "/app/admin/"];
const PATHS: [&str; 9] =
    ["/", "/x", "/app/", "/app/x", "/api/x", "/exact", "/user/ann", "/user/bob", "/app/admin/x"];

fn generate(seed: u64, places: &Places<'_>) -> Generated {
    let dice = &mut Dice::new(seed);
    let mut words = Vec::new();
    let zones: Vec<String> = (0..dice.number(1..4)).map(|nth| format!("zone{nth}")).collect();
    let mut text = String::from(
        "events { }\nhttp {\n  \
         access_log off; client_body_temp_path body; proxy_temp_path proxy;\n  \
         fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n  \
         geo $is_limited { default 1; 127.0.0.2 0; 127.1.0.0/16 0; }\n  \
         map $is_limited $limited { 0 \"\"; 1 $binary_remote_addr; }\n  \
         map $http_x_plan $of_plan { default $binary_remote_addr; gold \"\"; }\n",
    );
    for zone in &zones {
        let key = dice.pick(&KEYS);
        if matches!(key, "$limited" | "$of_plan") {
            words.push("exempt");
        }
        let rate = dice.pick(&["1r/m", "1r/m", "2r/m"]);
        text += &format!("  limit_req_zone {key} zone={zone}:1m rate={rate};\n");
    }
    let mut uses = 0;
    let mut limits = |dice: &mut Dice, indent: &str, percent: u8| {
        let mut lines = String::new();
        if !dice.chance(percent) {
            return lines;
        }
        let count = dice.weighted(&[(3, 1), (1, 2)]);
        let chosen = dice.some(count, &zones);
        if chosen.len() > 1 {
            words.push("several zones");
        }
        for zone in chosen {
            let burst = dice.pick(&["", " burst=1 nodelay", " burst=2 nodelay", " burst=4 nodelay"]);
            lines += &format!("{indent}limit_req zone={zone}{burst};\n");
            uses += 1;
        }
        if uses > zones.len() {
            words.push("two bursts of a zone");
        }
        if dice.chance(8) {
            words.push("dry run");
            lines += &format!("{indent}limit_req_dry_run on;\n");
        }
        lines
    };
    text += &limits(dice, "  ", 20);
    text += dice.maybe(30, &["  limit_req_status 429;\n"]).unwrap_or_default();
    for nth in 0..dice.number(1..3) {
        let name = ["a.test", "b.test"][nth];
        let listen = places.ports[0];
        text += &format!("  server {{\n    listen 127.0.0.1:{listen};\n    server_name {name};\n");
        text += &limits(dice, "    ", 35);
        let count = dice.number(1..4);
        for location in dice.some(count, &LOCATIONS) {
            text += &format!("    location {location} {{\n");
            text += &limits(dice, "      ", 60);
            let origin = places.origins[dice.number(..3)];
            text += &format!("      proxy_pass http://{origin};\n    }}\n");
        }
        text += "  }\n";
    }
    text += "}\n";
    Generated {
        files: vec![("nginx.conf".to_owned(), text)],
        listeners: vec![Listener { address: ([127, 0, 0, 1], places.ports[0]).into(), is_tls: false }],
        requests: (0..9).map(|_| request(dice)).collect(),
        words,
        ..Generated::default()
    }
}

fn request(dice: &mut Dice) -> Sent {
    let mut headers = vec![("host".to_owned(), dice.pick(&["a.test", "b.test", "other.test"]).to_owned())];
    for (name, values) in [("x-key", ["one", "two"]), ("x-plan", ["gold", "silver"])] {
        if dice.chance(40) {
            headers.push((name.to_owned(), dice.pick(&values).to_owned()));
        }
    }
    let query = dice.pick(&["", "", "?token=t", "?token=u"]);
    Sent {
        listener: 0,
        peer: dice.pick(&["127.0.0.1", "127.0.0.2", "127.0.0.9", "127.1.0.1"]).parse().unwrap(),
        to: None,
        tls_name: "a.test".to_owned(),
        has_certificate: false,
        method: dice.pick(&["GET", "GET", "POST"]).to_owned(),
        target: format!("{}{query}", dice.pick(&PATHS)),
        headers,
        body: Body::None,
    }
}
