//! An admin port on a free port, with a few limited clients, for tests that send it requests.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::sync::Notify;

use super::{
    ActiveConfig, AdminHandle, AdminState, Backends, ConfigSnapshot, ProcessFacts, ProcessPhase, Readiness,
    StoreFactsSources, spawn, state::FactsSource,
};
use crate::{
    abuse::{
        self, Archive, AuditLog, ClientRegistry, Collector, DenialReport, Recorder,
        bans::BanTable,
        testing::{LINE, policy},
    },
    api_keys::{ApiKeys, KeyStore, data_file::DataFile},
    config::model::{KeyPart, KeyRecipe, ListenAddress, Secret},
    identity::{AccessRules, Verifier},
    limit::{
        Check, ClearedLimit, Decision, LimitUsage, ManualClock, Policy, PolicyId, SteadyClock, Store,
        StoreAdmin, Taken, Unavailable,
        algorithm::{Verdict, metadata_list::Entry},
    },
    peaks::PeakPlan,
    proxy::Rules,
    store::memory::MemoryStore,
    telemetry::{
        Events,
        diagnostics::SharedWarnings,
        metrics::{MemoryFacts, Metrics, StoreFacts},
        testing::config,
    },
    upstream::{DrainTable, SharedUpstream},
};

/// 2026-07-03T12:00:01Z
pub(crate) const NOW: i64 = 1_783_080_001_000_000;

/// By policy and identifier.
type Filled = BTreeMap<(String, String), Vec<Arc<Entry>>>;

/// A store of lists without windows, enough to show limits and to clear them.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    filled: Mutex<Filled>,
    pub(crate) fault: Fault,
}

/// Faults of the store that tests inject.
#[derive(Debug, Default)]
pub(crate) struct Fault {
    /// Changes wait for `resume`.
    pub(crate) holds_changes: AtomicBool,
    /// Changes that have begun to wait.
    pub(crate) held: AtomicUsize,
    pub(crate) resume: Notify,
    /// Every call panics.
    pub(crate) panics: AtomicBool,
}

impl Fault {
    fn call(&self) {
        assert!(!self.panics.load(Relaxed), "a test wants this panic");
    }

    async fn change(&self) {
        self.call();
        if self.holds_changes.load(Relaxed) {
            self.held.fetch_add(1, Relaxed);
            self.resume.notified().await;
        }
    }
}

impl Lists {
    pub(crate) fn fill(&self, policy: &str, identifier: &str, entries: &[Arc<Entry>]) {
        self.filled.lock().insert((policy.to_owned(), identifier.to_owned()), entries.to_vec());
    }
}

impl Store for Lists {
    async fn decide(&self, _: &[Check<'_>]) -> Result<Decision, Unavailable> {
        Err(Unavailable::Abandoned("nothing is decided here"))
    }

    async fn look(&self, checks: &[Check<'_>]) -> Result<Decision, Unavailable> {
        self.decide(checks).await
    }

    async fn settle(&self, _: &[Taken<'_>]) -> Result<(), Unavailable> {
        Err(Unavailable::Abandoned("nothing was taken here"))
    }
}

impl StoreAdmin for Lists {
    async fn peek(&self, policy: &Policy, identifier: &str) -> Result<LimitUsage, Unavailable> {
        let used = self.entries(policy, identifier).await?.len() as u64;
        let limit = policy.tiers[0].limit;
        let verdict = Verdict {
            admitted: used < limit,
            tier: 0,
            limit,
            remaining: limit.saturating_sub(used),
            reset: if used > 0 { 41_000_000 } else { 0 },
            retry_after: Some(0),
            delay: 0,
            renews: false,
        };
        Ok(LimitUsage { used, verdict })
    }

    async fn entries(&self, policy: &Policy, identifier: &str) -> Result<Vec<Arc<Entry>>, Unavailable> {
        self.fault.call();
        let key = (policy.name.clone(), identifier.to_owned());
        Ok(self.filled.lock().get(&key).cloned().unwrap_or_default())
    }

    async fn reset(&self, policies: &[Policy], identifier: &str) -> Result<Vec<ClearedLimit>, Unavailable> {
        self.fault.change().await;
        let composite = format!("{identifier}+");
        let mut cleared = Vec::new();
        self.filled.lock().retain(|(policy, key), _| {
            let known = policies.iter().any(|known| known.name == *policy);
            let hit = known && (key == identifier || key.starts_with(&composite));
            if hit {
                cleared.push(ClearedLimit { policy: policy.clone(), identifier: key.clone() });
            }
            !hit
        });
        Ok(cleared)
    }

    async fn clear(&self, policies: &[Policy], identifier: &str) -> Result<Vec<ClearedLimit>, Unavailable> {
        self.fault.change().await;
        let mut cleared = Vec::new();
        for policy in policies {
            if self.filled.lock().remove(&(policy.name.clone(), identifier.to_owned())).is_some() {
                cleared.push(ClearedLimit { policy: policy.name.clone(), identifier: identifier.to_owned() });
            }
        }
        Ok(cleared)
    }
}

pub(crate) struct Harness {
    pub(crate) address: SocketAddr,
    pub(crate) store: Arc<Lists>,
    pub(crate) readiness: Arc<Readiness>,
    pub(crate) events: Events,
    pub(crate) bans: Arc<BanTable>,
    pub(crate) api_keys: Arc<ApiKeys>,
    /// Decides on changes of keys. `None`: it is closed.
    key_data: Option<DataFile>,
    _directory: TempDir,
    registry: Arc<ClientRegistry>,
    recorder: Recorder,
    handle: AdminHandle,
}

impl Harness {
    pub(crate) fn start(token: Option<&str>) -> Self {
        Self::with_archive(token, ())
    }

    pub(crate) fn with_archive(token: Option<&str>, archive: impl Archive + Send + 'static) -> Self {
        Self::launch(token, archive, None)
    }

    /// An instance with a shared store in this state.
    pub(crate) fn with_store(facts: StoreFacts) -> Self {
        Self::launch(None, (), Some(Box::new(move || facts.clone())))
    }

    fn launch(
        token: Option<&str>,
        archive: impl Archive + Send + 'static,
        shared: Option<FactsSource<StoreFacts>>,
    ) -> Self {
        let metrics = Metrics::new(&config(), 1);
        let per_user = Policy {
            id: PolicyId(1),
            name: "per-user".into(),
            keys: vec![KeyRecipe(vec![KeyPart::User])],
            ..policy()
        };
        let policies = [policy(), per_user];
        let registry =
            Arc::new(ClientRegistry::new(&policies, Duration::from_secs(60), Arc::clone(&metrics)));
        let clock = || ManualClock::new(NOW);
        let collector = Collector::spawn(Arc::clone(&registry), clock(), Arc::clone(&metrics)).unwrap();
        let readiness = Arc::new(Readiness::default());
        readiness.enter(ProcessPhase::Ready);
        let verifier = Arc::new(Verifier::new(&[]).unwrap());
        let rules = {
            let config = Arc::new(config());
            let access = Arc::new(AccessRules::open(&config).unwrap());
            Rules::new(config, policies.into(), verifier, access, Arc::default()).unwrap()
        };
        let events = Events::new();
        let drains = Arc::new(DrainTable::new(events.clone(), false));
        let upstreams = rules.config().upstreams.iter();
        let upstreams = upstreams
            .map(|upstream| SharedUpstream::open(upstream.clone(), None, &drains, None).unwrap())
            .collect();
        let peaks = PeakPlan::new(rules.config(), Arc::clone(rules.policies()), None);
        let active_config = Arc::new(ActiveConfig::new(ConfigSnapshot {
            rules: Arc::new(rules),
            peaks: Arc::new(peaks),
            history: None,
            upstreams,
            hash: "abc123".into(),
            decides: "def456".into(),
            loaded: NOW,
            warnings: vec!["mind the gap".into()],
        }));
        let audit = Arc::new(AuditLog::new(Arc::new(clock()), "one", false));
        let bans = {
            let (clock, audit, metrics) = (Arc::new(clock()), Arc::clone(&audit), Arc::clone(&metrics));
            Arc::new(BanTable::new(clock, events.clone(), audit, metrics, false))
        };
        let api_keys = Arc::new(ApiKeys::new(KeyStore::DataFile));
        let directory = tempfile::tempdir().unwrap();
        let key_data = DataFile::open(&directory.path().join("keys.json"), &api_keys).unwrap();
        let state = AdminState {
            token: token.map(Secret::new),
            registry: Arc::clone(&registry),
            bans: Arc::clone(&bans),
            api_keys: Arc::clone(&api_keys),
            drains: Arc::clone(&drains),
            audit,
            history: None,
            alerts: None,
            active_config,
            reloads: super::ReloadSender::channel().0,
            metrics,
            readiness: Arc::clone(&readiness),
            events: events.clone(),
            warnings: SharedWarnings::default(),
            clock: Arc::new(clock()),
            facts: ProcessFacts {
                available_memory: None,
                listeners: vec![ListenAddress::Tcp(([127, 0, 0, 1], 8080).into())],
                workers: 1,
                started: NOW,
            },
            store_facts: StoreFactsSources { memory: Box::new(MemoryFacts::default), shared },
        };
        let store = Arc::new(Lists::default());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let lists = Arc::clone(&store);
        let handle = {
            let wrong_tokens = Arc::new(MemoryStore::new(100, Arc::new(SteadyClock::new())));
            let backends = Backends { store: move || lists, archive: move || archive, wrong_tokens };
            spawn(listener, state, backends).unwrap()
        };
        let recorder = collector.recorder();
        Self {
            address: handle.address(),
            store,
            readiness,
            events,
            bans,
            api_keys,
            key_data: Some(key_data),
            _directory: directory,
            registry,
            recorder,
            handle,
        }
    }

    /// Three users share an address that `per-ip` limits; `per-user` limits one of them, too.
    pub(crate) fn with_shared_address(token: Option<&str>) -> Self {
        let harness = Self::start(token);
        let filled: Vec<_> =
            [(-3_000_000, "bob"), (-2_000_000, "eve")].map(|(ago, user)| entry(NOW + ago, user)).into();
        harness.store.fill("per-ip", "ip:203.0.113.7", &filled);
        harness.store.fill("per-ip", "ip:203.0.113.7+path:/a", &filled[..1]);
        harness.store.fill("per-ip", "ip:203.0.113.70", &filled);
        harness.deny("203.0.113.7", 1, "user:acme", "acme", -1_500_000);
        harness.deny("203.0.113.7", 0, "ip:203.0.113.7", "acme", -1_000_000);
        harness.recorder.record_evidence("203.0.113.7", 0, "ip:203.0.113.7", filled);
        harness.settle("203.0.113.7");
        // The denials and the evidence may be recorded one after the other.
        harness.until("the records come", |harness| {
            let client = harness.registry.find(abuse::parse("203.0.113.7").unwrap(), NOW);
            client.is_some_and(|(_, records, _)| records.len() == 4)
        });
        harness
    }

    /// Records a denied request of `user`, `ago` microseconds from now.
    pub(crate) fn deny<'a>(
        &self,
        address: &'a str,
        policy: usize,
        identifier: &'a str,
        user: &'a str,
        ago: i64,
    ) -> DenialReport<'a> {
        let now = NOW + ago;
        let user = Some(user).filter(|user| !user.is_empty());
        let denial = DenialReport {
            address,
            policy,
            identifier,
            user,
            is_user_verified: false,
            is_customer: false,
            now,
            until: now + 60_000_000,
        };
        let record = Entry { user: user.map(Into::into), ..(*entry(now, "")).clone() };
        self.recorder.record(&denial, || LINE, || Arc::new(record));
        denial
    }

    /// Flushes the recorder, and waits until `last` is listed.
    pub(crate) fn settle(&self, last: &str) {
        self.recorder.flush();
        let last = abuse::parse(last).unwrap();
        self.until("it is listed", |harness| harness.registry.find(last, NOW).is_some());
    }

    pub(crate) fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !holds(self) {
            assert!(Instant::now() < deadline, "never: {what}");
            std::thread::yield_now();
        }
    }

    /// Sends `request` unchanged.
    pub(crate) fn raw(&self, request: &str) -> Reply {
        Self::reply(self.begin(request))
    }

    /// Sends `request`, or a part of it.
    pub(crate) fn begin(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    /// Waits for the response.
    pub(crate) fn reply(mut stream: TcpStream) -> Reply {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        Reply { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    pub(crate) fn send(&self, method: &str, target: &str, fields: &str) -> Reply {
        let end = "connection: close\r\n\r\n";
        self.raw(&format!("{method} {target} HTTP/1.1\r\nhost: {}\r\n{fields}{end}", self.address))
    }

    /// Sends a body of JSON.
    pub(crate) fn send_json(&self, method: &str, target: &str, body: &serde_json::Value) -> Reply {
        self.raw(&self.json_request(method, target, body))
    }

    pub(crate) fn json_request(&self, method: &str, target: &str, body: &serde_json::Value) -> String {
        let body = body.to_string();
        let head = format!("{method} {target} HTTP/1.1\r\nhost: {}\r\nconnection: close", self.address);
        let fields = format!("content-type: application/json\r\ncontent-length: {}", body.len());
        format!("{head}\r\n{fields}\r\n\r\n{body}")
    }

    pub(crate) fn get(&self, target: &str) -> Reply {
        self.send("GET", target, "")
    }

    /// No change of a key can be made from now on.
    pub(crate) fn lose_key_store(&mut self) {
        self.key_data.take().unwrap().close();
        self.api_keys.set_store_up(false);
    }

    pub(crate) fn stop(self) {
        self.handle.stop();
    }
}

fn entry(time: i64, user: &str) -> Arc<Entry> {
    abuse::testing::entry(time, user)
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// In lower case.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    pub(crate) fn is_problem(&self, status: u16) -> &Self {
        assert_eq!(self.status, status, "{self:?}");
        assert!(self.head.contains("content-type: application/problem+json"), "{self:?}");
        assert_eq!(self.json()["status"], status);
        assert!(self.json()["detail"].is_string());
        self
    }
}
