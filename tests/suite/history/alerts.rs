//! Webhooks are told that a share of a limit is used: once in each window, by one instance, until they have taken it.

use std::{
    collections::BTreeSet,
    net::TcpListener,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use http::HeaderMap;
use serde_json::Value;
use standardwebhooks::Webhook;
use tempfile::TempDir;

use super::{keys_file, prints, send, start};
use crate::harness::{Client, Origin, Postgres, Redis, Tollgate, becomes, eventually, postgres::url};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYqr";

/// A webhook that replies with a status to each message, and keeps what it has got.
struct Hook {
    origin: Origin,
    messages: Arc<Mutex<Vec<Message>>>,
}

#[derive(Clone)]
struct Message {
    headers: HeaderMap,
    body: String,
}

impl Message {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    fn id(&self) -> String {
        self.headers["webhook-id"].to_str().unwrap().to_owned()
    }

    /// `acme 80`
    fn what(&self) -> String {
        let data = &self.json()["data"];
        format!("{} {}", data["subject"].as_str().unwrap(), data["share"])
    }
}

impl Hook {
    /// `reply`: to the message with this number, from 0 on.
    fn start(reply: impl Fn(usize) -> &'static str + Send + Sync + 'static) -> Self {
        Self::at(TcpListener::bind("127.0.0.1:0").unwrap(), reply)
    }

    fn at(listener: TcpListener, reply: impl Fn(usize) -> &'static str + Send + Sync + 'static) -> Self {
        let messages = Arc::<Mutex<Vec<Message>>>::default();
        let (kept, count) = (Arc::clone(&messages), AtomicUsize::new(0));
        let origin = Origin::at(listener, move |conn| {
            while let Some(head) = conn.head()? {
                let (body, _) = conn.body(&head)?;
                let mut headers = HeaderMap::new();
                for (name, value) in head.lines().skip(1).filter_map(|line| line.split_once(": ")) {
                    let name: http::HeaderName = name.parse().unwrap();
                    headers.append(name, value.parse().unwrap());
                }
                let body = String::from_utf8(body).unwrap();
                kept.lock().unwrap().push(Message { headers, body });
                conn.answer(reply(count.fetch_add(1, SeqCst)), &[], b"")?;
            }
            Ok(())
        });
        Self { origin, messages }
    }

    fn messages(&self) -> Vec<Message> {
        self.messages.lock().unwrap().clone()
    }

    fn url(&self) -> String {
        format!("http://{}/T0/B0", self.origin.address)
    }

    /// Waits until it has got so many.
    #[track_caller]
    fn has(&self, count: usize) -> Vec<Message> {
        eventually(&format!("{count} messages"), || self.messages().len() >= count);
        let messages = self.messages();
        assert_eq!(messages.len(), count, "{:?}", messages.iter().map(Message::what).collect::<Vec<_>>());
        messages
    }
}

fn rest(directory: &TempDir, alert: &str) -> String {
    let keys = keys_file(directory.path(), &[("acme", Some("pro")), ("globex", None)]);
    format!(
        "api_keys: {{ file: {keys} }}
plans: {{ pro: {{ monthly: 20/month }} }}
policies: {{ monthly: {{ key: customer, limit: 10/month, time_zone: Europe/Berlin, algorithm: fixed_window }} }}
alerts: [{alert}]
routes: [{{ path: /*, upstream: api, policies: [monthly] }}]"
    )
}

fn file(directory: &TempDir) -> String {
    format!("{{ store: {{ file: {}/history.db }} }}", directory.path().display())
}

#[test]
fn a_message_for_each_share_is_signed_and_says_who_has_used_what() {
    let (origin, hook, directory) =
        (Origin::echo(), Hook::start(|_| "204 No Content"), TempDir::new().unwrap());
    let secrets = format!("[{SECRET}, the-one-before-was-plain-text]");
    let alert = format!(
        "{{ when: usage, policy: monthly, at: [80%, 100%], to: \"{}\", secret: {secrets} }}",
        hook.url()
    );
    let tollgate = start(origin.address, &file(&directory), &rest(&directory, &alert));
    send(tollgate.address, "acme", "/", 15);
    send(tollgate.address, "globex", "/", 7);
    assert!(hook.messages().is_empty(), "15 of 20 and 7 of 10");
    send(tollgate.address, "acme", "/", 1);
    let first = hook.has(1).remove(0);
    for verifier in [Webhook::new(SECRET), Webhook::from_bytes(b"the-one-before-was-plain-text".to_vec())] {
        verifier.unwrap().verify(first.body.as_bytes(), &first.headers).unwrap();
    }
    let other = Webhook::from_bytes(b"another".to_vec()).unwrap();
    assert!(other.verify(first.body.as_bytes(), &first.headers).is_err());
    assert_eq!(first.headers["content-type"], "application/json");
    let message = first.json();
    assert_eq!(message["type"], "usage.share_reached");
    let data = &message["data"];
    let texts = ["policy", "subject", "customer", "plan", "limit_text", "mode"]
        .map(|name| data[name].as_str().unwrap());
    assert_eq!(texts, ["monthly", "customer:acme", "acme", "pro", "20/month (Europe/Berlin)", "enforce"]);
    assert_eq!([&data["share"], &data["used"], &data["limit"]], [&Value::from(80.0), &16.into(), &20.into()]);
    assert!(data["window_end"].as_str().unwrap().contains("-01T00:00:00+0"), "{data}");
    let text = message["text"].as_str().unwrap();
    assert!(text.starts_with("acme has used 80 % of monthly: 16 of 20, until 20"), "{text}");
    // Denied requests reach it, too; what was told is not told again.
    send(tollgate.address, "acme", "/", 10);
    send(tollgate.address, "globex", "/", 5);
    let all: BTreeSet<String> = hook.has(4).iter().map(Message::what).collect();
    assert_eq!(
        Vec::from_iter(all),
        ["customer:acme 100.0", "customer:acme 80.0", "customer:globex 100.0", "customer:globex 80.0"]
    );
    eventually("all are known to be delivered", || {
        tollgate.metric("tollgate_alerts_total{result=\"delivered\"}") == 4.0
    });
    prints(
        &tollgate.command(&["alerts"]),
        &["customer:acme", "80% of monthly", "16 of 20/month (Europe/Berlin)", "delivered: 204 No Content"],
    );
    eventually("it is in the history of the customer", || {
        let why = tollgate.command(&["why", "--customer", "acme"]);
        why.stdout.contains("80 % of monthly is used") && why.stdout.contains("was told")
    });
}

#[test]
fn one_of_two_instances_sends_and_goes_on_until_it_is_taken() {
    let (origin, redis, postgres) = (Origin::echo(), Redis::start(), Postgres::start());
    let hook = Hook::start(|nth| if nth < 2 { "503 Service Unavailable" } else { "200 OK" });
    let (directory, spool) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let history = format!(
        "{{ store: {{ postgres: \"{}\" }}, spool_directory: {} }}",
        url(postgres.port),
        spool.path().display()
    );
    let alert = format!("{{ when: usage, policy: monthly, at: [50%], to: \"{}\" }}", hook.url());
    let rest = format!("{}\nstore: {{ redis: {{ url: \"{}\" }} }}", rest(&directory, &alert), redis.url());
    let instances = [0, 1].map(|_| start(origin.address, &history, &rest));
    for _ in 0..6 {
        for tollgate in &instances {
            send(tollgate.address, "acme", "/", 1);
        }
    }
    eventually("it says that the webhook does not take it", || {
        instances.iter().any(|tollgate| {
            tollgate.admin("GET", "/v1/status").text().contains("alerts can't be sent to http://127.0.0.1")
        })
    });
    let messages = hook.has(3);
    assert_eq!(messages.iter().map(Message::id).collect::<BTreeSet<_>>().len(), 1, "one message, one ID");
    assert!(!messages[0].headers.contains_key("webhook-signature"), "there is no secret");
    for tollgate in &instances {
        eventually("both list it", || {
            let list = tollgate.admin("GET", "/v1/alerts").json();
            let alert = &list["alerts"][0];
            alert["state"] == "delivered"
                && alert["attempts"] == 3
                && list["alerts"].as_array().unwrap().len() == 1
        });
    }
    let delivered = "tollgate_alerts_total{result=\"delivered\"}";
    becomes(1, || instances.iter().map(|tollgate| tollgate.metric(delivered) as u64).sum());
    eventually("no warning is left", || {
        instances
            .iter()
            .all(|tollgate| !tollgate.admin("GET", "/v1/status").text().contains("alerts can't be sent"))
    });
}

#[test]
fn the_next_process_sends_what_one_that_was_killed_has_noted() {
    let (origin, directory) = (Origin::echo(), TempDir::new().unwrap());
    // Connections to it wait in its queue until it is served.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let alert = format!("{{ when: usage, policy: monthly, at: [50%], to: \"http://{address}/\" }}");
    let (history, rest) = (file(&directory), rest(&directory, &alert));
    let first = start(origin.address, &history, &rest);
    send(first.address, "globex", "/", 5);
    eventually("it was tried", || first.command(&["alerts"]).stdout.contains("refused"));
    first.signal("KILL");
    drop(first);
    let hook = Hook::at(TcpListener::bind(address).unwrap(), |_| "200 OK");
    let next = start(origin.address, &history, &rest);
    assert_eq!(hook.has(1)[0].what(), "customer:globex 50.0");
    // The counts are in memory, and begin anew: the same share is reached again, and is told already.
    send(next.address, "globex", "/", 6);
    send(next.address, "acme", "/", 10);
    assert_eq!(hook.has(2)[1].what(), "customer:acme 50.0");
}

#[test]
fn a_test_says_what_each_webhook_replies() {
    let (origin, directory) = (Origin::echo(), TempDir::new().unwrap());
    let (good, bad) = (Hook::start(|_| "200 OK"), Hook::start(|_| "404 Not Found"));
    let alerts = [&good, &bad].map(|hook| {
        format!("{{ when: usage, policy: monthly, at: [99.5%], to: \"{}\", secret: {SECRET} }}", hook.url())
    });
    let tollgate = start(origin.address, &file(&directory), &rest(&directory, &alerts.join(", ")));
    let tested = tollgate.command(&["alerts", "test"]);
    assert_eq!(tested.code, Some(1), "{}{}", tested.stdout, tested.stderr);
    let lines: Vec<&str> = tested.stdout.lines().collect();
    assert!(lines[1].contains(&good.origin.address.to_string()) && lines[1].ends_with("200 OK"), "{lines:?}");
    assert!(lines[2].ends_with("it replies 404 Not Found"), "{lines:?}");
    assert!(tested.stderr.contains("1 of the webhooks did not take the test"), "{}", tested.stderr);
    assert!(!tested.stdout.contains("T0/B0"), "the path may be a secret");
    let message = good.has(1).remove(0);
    Webhook::new(SECRET).unwrap().verify(message.body.as_bytes(), &message.headers).unwrap();
    assert_eq!(message.json()["type"], "test");
    prints(&tollgate.command(&["alerts"]), &["Nobody has used such a share"]);
    let config = tollgate.admin("GET", "/v1/config").text();
    assert!(
        config.contains("http://127.0.0.1") && !config.contains("B0") && !config.contains("MfKQ9r8"),
        "{config}"
    );
    prints(&tollgate.command(&["audit"]), &["test_alerts"]);
}

#[test]
fn a_webhook_that_hangs_keeps_no_other_waiting_and_a_reload_changes_them() {
    let (origin, directory) = (Origin::echo(), TempDir::new().unwrap());
    let (hung, good, new) = (Origin::sink(), Hook::start(|_| "200 OK"), Hook::start(|_| "200 OK"));
    let alert = |to: &str| format!("{{ when: usage, policy: monthly, at: [10%], to: \"{to}\" }}");
    let alerts = [alert(&format!("http://{}/", hung.address)), alert(&good.url())].join(", ");
    let rest = rest(&directory, &alerts);
    let tollgate = start(origin.address, &file(&directory), &rest);
    send(tollgate.address, "acme", "/", 3);
    assert_eq!(good.has(1)[0].what(), "customer:acme 10.0");
    assert_eq!(hung.connections(), 1);
    let path = tollgate.directory().join("proxy.yaml");
    let yaml = std::fs::read_to_string(&path).unwrap();
    assert!(yaml.contains(&alerts));
    std::fs::write(&path, yaml.replace(&alerts, &alert(&new.url()))).unwrap();
    prints(&tollgate.command(&["reload"]), &["alerts"]);
    send(tollgate.address, "globex", "/", 1);
    send(tollgate.address, "acme", "/", 1);
    let told: BTreeSet<String> = new.has(2).iter().map(Message::what).collect();
    assert_eq!(Vec::from_iter(told), ["customer:acme 10.0", "customer:globex 10.0"]);
    good.has(1);
}

#[test]
fn made_up_users_cause_no_more_than_their_share_of_alerts() {
    let (origin, hook, directory) = (Origin::echo(), Hook::start(|_| "200 OK"), TempDir::new().unwrap());
    let rest = format!(
        "user: [{{ header: x-user, from: anyone }}]
policies: {{ few: {{ algorithm: fixed_window, key: user, limit: 1/1h }} }}
alerts: [{{ when: usage, policy: few, at: [100%], to: \"{}\" }}]
routes: [{{ path: /*, upstream: api, policies: [few] }}]",
        hook.url()
    );
    let tollgate: Tollgate = start(origin.address, &file(&directory), &rest);
    let flood = |source: &str, count: usize| {
        let mut client = Client::connect_from(source.parse().unwrap(), tollgate.address);
        for nth in 0..count {
            let user = format!("{source}-{nth}");
            assert_eq!(client.request("GET", "/", &[("x-user", &user)], b"").status, 200);
        }
    };
    flood("127.0.0.1", 1_000);
    flood("127.0.0.2", 1);
    let dropped = "tollgate_alerts_total{result=\"dropped\"}";
    eventually("the others are dropped", || tollgate.metric(dropped) == 800.0);
    eventually("its share is sent", || hook.messages().len() == 201);
    assert!(hook.messages().iter().any(|message| message.what().contains("127.0.0.2-0")));
    eventually("it says so", || {
        tollgate.admin("GET", "/v1/status").text().contains("alerts were not sent in this hour")
    });
}
