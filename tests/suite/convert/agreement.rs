//! Runs both programs, sends each request to both, and compares.
//!
//! Of each request the outcome is *the same*; or *stricter, and a note names it*: Tollgate refuses what the other program
//! forwards, answers or redirects, and the route that did it has a comment. Everything else is a failure: *stricter and
//! silent*; *laxer*: Tollgate forwards or answers what the other program refuses, or forwards what it answers or
//! redirects; and any other difference that is not one of `standing`, but for the few that a note may say
//! ([`Source::NOTED`]).

use std::{
    collections::BTreeMap,
    env, fmt, fs,
    net::{IpAddr, SocketAddr, TcpStream},
    path::Path,
    time::Duration,
};

use tempfile::TempDir;

use super::{
    compare::{self, Fault, Verdict},
    converted::Converted,
    origins::Origins,
    outcome::Outcome,
    sent::{Clients, Sent},
    shrink,
    source::{CERTIFIED, Generated, Listener, Noted, PORTS, Places, Source, TlsFiles, listens},
};
use crate::harness::{Authority, PATIENCE, Running, Tollgate, file_name, free_port};

const CONFIGURATIONS: u64 = 30;
/// How many of the configurations with failures are printed, and how many failures of each.
const PRINTED: usize = 12;
const SHOWN: usize = 5;
/// Of the requests that the program forwards, at least so many of a hundred are forwarded: a conversion that closes
/// everything is never laxer.
const FORWARDED: usize = 90;

/// How many requests had which outcome.
#[derive(Default)]
pub struct Counts {
    same: usize,
    standing: usize,
    noted: usize,
    changed: usize,
    faults: BTreeMap<Fault, usize>,
    /// In configurations without a word that the converter does not know: requests that the program forwards, and those
    /// of them that Tollgate forwards, too.
    to_forward: usize,
    forwarded: usize,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { same, standing, noted, changed, faults, to_forward, forwarded } = self;
        let count = |fault| faults.get(&fault).copied().unwrap_or(0);
        write!(
            f,
            "{same} same, {standing} with a standing difference, {noted} stricter with a note, {changed} changed with a \
             note; {} laxer, {} stricter and silent, {} different, {} broken; {forwarded} of {to_forward} forwarded",
            count(Fault::Laxer),
            count(Fault::Silent),
            count(Fault::Different),
            count(Fault::Broken)
        )
    }
}

/// All configurations of a run.
pub struct Run {
    pub origins: Origins,
    addresses: Vec<SocketAddr>,
    pub clients: Clients,
    tls: TlsFiles,
    _authority: Authority,
    counts: Counts,
    /// What has happened, and how often.
    met: BTreeMap<String, usize>,
    failures: Vec<String>,
}

/// Compares the program of a source with what its configurations are converted to.
pub fn run<S: Source>() {
    if !S::is_installed() {
        return;
    }
    let only = number("TOLLGATE_TEST_SEED");
    let count = CONFIGURATIONS * number("TOLLGATE_TEST_ROUNDS").unwrap_or(1);
    let seeds = only.map_or(S::FIRST_SEED..S::FIRST_SEED + count, |seed| seed..seed + 1);
    let mut run = Run::new();
    for seed in seeds {
        run.check::<S>(&format!("TOLLGATE_TEST_SEED={seed}"), |places| S::generate(seed, places));
    }
    let (counts, met) = finish::<S>(run);
    if only.is_none() {
        let Counts { forwarded, to_forward, .. } = counts;
        assert!(forwarded * 100 >= to_forward * FORWARDED, "{}: too much is closed: {counts}", S::NAME);
        let missed: Vec<_> = S::TO_BE_MET.iter().filter(|kind| !met.contains_key(**kind)).collect();
        assert!(missed.is_empty(), "{}: never met: {missed:?}", S::NAME);
    }
}

/// A number in the environment.
pub fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|number| number.parse().unwrap())
}

/// Fails if anything has failed. What was counted and met.
pub fn finish<S: Source>(run: Run) -> (Counts, BTreeMap<String, usize>) {
    let Run { counts, met, failures, .. } = run;
    eprintln!("{met:#?}\n{}: {counts}", S::NAME);
    let most = number("TOLLGATE_TEST_PRINTED").map_or(PRINTED, |most| most as usize);
    let printed = failures.iter().take(most).map(String::as_str).collect::<Vec<_>>().join("\n\n");
    assert!(failures.is_empty(), "{}: {counts}. Such as:\n\n{printed}\n", S::NAME);
    (counts, met)
}

/// One configuration for both programs: the same lines with other ports.
#[derive(Clone)]
pub struct Both {
    pub theirs: Generated,
    pub ours: Generated,
    /// All ports of both.
    ports: Vec<u16>,
    /// How long the program may take to listen.
    pub patience: Duration,
}

/// Both programs with one configuration.
pub struct Pair {
    pub converted: Converted,
    pub tollgate: Tollgate,
    pub theirs: Vec<Listener>,
    pub ours: Vec<Listener>,
    pub ports: Vec<u16>,
    /// Clients whose claims are believed.
    pub trusted: Vec<IpAddr>,
    pub noted: &'static [Noted],
    pub alike: fn(&Sent) -> Option<Sent>,
    /// [`Source::ADDED`]
    pub added: &'static [&'static str],
    _program: Running,
    _directories: [TempDir; 2],
}

/// Why the two do not run.
pub enum NotRunning {
    /// The other program does not take the configuration.
    Theirs(String),
    /// The result of the conversion does not load.
    Ours(String),
}

impl NotRunning {
    fn text(&self) -> &str {
        let (Self::Theirs(text) | Self::Ours(text)) = self;
        text
    }
}

impl Both {
    /// What `generate` makes of the ports of each.
    pub fn of(generate: impl Fn(&[u16]) -> Generated) -> Self {
        let ports: Vec<u16> = (0..2 * PORTS).map(|_| free_port()).collect();
        let (theirs, ours) = (generate(&ports[..PORTS]), generate(&ports[PORTS..]));
        Self { theirs, ours, ports, patience: PATIENCE }
    }

    /// The files as they are converted.
    pub fn text(&self) -> String {
        self.ours.files.iter().map(|(name, text)| format!("--- {name}\n{text}")).collect()
    }

    /// Starts the program, converts, and starts Tollgate.
    pub fn start<S: Source>(&self) -> Result<Pair, NotRunning> {
        let directories = [TempDir::new().unwrap(), TempDir::new().unwrap()];
        let [their_directory, our_directory] = [0, 1].map(|side: usize| directories[side].path());
        write(their_directory, &self.theirs);
        write(our_directory, &self.ours);
        let mut program = S::start(their_directory, &self.theirs);
        listens(&mut program, &self.theirs.listeners, &their_directory.join("log"), self.patience)
            .map_err(NotRunning::Theirs)?;
        let converted = Converted::new(our_directory, &self.ours.files, S::NAME).map_err(NotRunning::Ours)?;
        let tollgate = converted.run().map_err(NotRunning::Ours)?;
        Ok(Pair {
            converted,
            tollgate,
            theirs: self.theirs.listeners.clone(),
            ours: self.ours.listeners.clone(),
            ports: self.ports.clone(),
            trusted: self.ours.trusted.clone(),
            noted: S::NOTED,
            alike: S::alike,
            added: S::ADDED,
            _program: program,
            _directories: directories,
        })
    }
}

fn write(directory: &Path, generated: &Generated) {
    for (name, text) in &generated.files {
        fs::write(directory.join(name), text).unwrap();
    }
}

impl Run {
    pub fn new() -> Self {
        let authority = Authority::new("authority");
        let server = authority.issue("server", &CERTIFIED);
        let client = authority.issue("acme", &[]);
        let both = server.cert.with_extension("both");
        let [cert, key] = [&server.cert, &server.key].map(|file| fs::read_to_string(file).unwrap());
        fs::write(&both, cert + &key).unwrap();
        let tls = TlsFiles {
            cert: file_name(&server.cert).to_owned(),
            key: file_name(&server.key).to_owned(),
            both: file_name(&both).to_owned(),
            ca: file_name(&authority.file()).to_owned(),
        };
        let origins = Origins::start();
        Self {
            addresses: origins.addresses(),
            origins,
            clients: Clients::new(&authority, &client),
            tls,
            _authority: authority,
            counts: Counts::default(),
            met: BTreeMap::new(),
            failures: Vec::new(),
        }
    }

    /// A configuration for both programs.
    fn both(&self, generate: impl Fn(&Places<'_>) -> Generated) -> Both {
        Both::of(|ports| generate(&Places { ports, origins: &self.addresses, tls: &self.tls }))
    }

    /// Starts both programs with a configuration.
    pub fn start<S: Source>(
        &self,
        generate: impl Fn(&Places<'_>) -> Generated,
    ) -> (Both, Result<Pair, NotRunning>) {
        let mut tries = 0;
        loop {
            let both = self.both(&generate);
            let started = both.start::<S>();
            // Another process may have taken a port meanwhile. What the configuration itself takes twice stays.
            let is_taken = matches!(&started, Err(error) if error.text().contains("ddress already in use"));
            if tries == 2 || !is_taken {
                return (both, started);
            }
            tries += 1;
        }
    }

    fn meet(&mut self, kind: impl Into<String>) {
        *self.met.entry(kind.into()).or_default() += 1;
    }

    fn fail(&mut self, fault: Fault, text: &str) {
        *self.counts.faults.entry(fault).or_default() += 1;
        self.failures.push(format!("{fault:?}: {text}"));
    }

    /// Sends the requests of a configuration to both programs. `generate` is a function of the places; `name` is for
    /// failures.
    pub fn check<S: Source>(&mut self, name: &str, generate: impl Fn(&Places<'_>) -> Generated) {
        let (both, started) = self.start::<S>(generate);
        let head = format!("=== {name}\n{}", both.text());
        let pair = match started {
            Ok(pair) => pair,
            Err(NotRunning::Theirs(error)) => panic!("{head}\n{} does not start: {error}", S::NAME),
            Err(NotRunning::Ours(error)) => return self.fail(Fault::Broken, &format!("{head}\n{error}")),
        };
        let head = format!("{head}--- proxy.yaml\n{}", pair.converted.yaml);
        for word in &both.ours.words {
            self.meet(*word);
        }
        let unknown = both.ours.unknown.as_deref();
        if let Some(unknown) = unknown.filter(|word| !pair.converted.says(word)) {
            self.fail(Fault::Silent, &format!("{head}\nno note says `{unknown}`"));
        }
        for word in both.ours.noted.iter().filter(|word| !pair.converted.says(word)) {
            self.fail(Fault::Silent, &format!("{head}\nno note says `{word}`"));
        }
        if let Some(off) = both.ours.off.iter().find(|address| TcpStream::connect(address).is_ok()) {
            self.fail(Fault::Laxer, &format!("{head}\n{off} is open"));
        }
        let mut failures = Vec::new();
        let mut kinds = BTreeMap::new();
        for (nth, sent) in both.ours.requests.iter().enumerate() {
            if let Some((label, text)) =
                self.request(&pair, nth, sent, unknown.is_none() && !both.ours.is_odd)
            {
                kinds.entry(label).or_insert_with(|| sent.clone());
                failures.push(text);
            }
        }
        if failures.is_empty() {
            return;
        }
        if env::var_os("TOLLGATE_TEST_SHRINK").is_some() {
            drop(pair);
            for (label, sent) in kinds {
                let small = shrink::shrunk::<S>(self, both.clone(), sent, &label);
                eprintln!("=== {name}, made small: {label}\n{small}\n");
            }
        }
        let more = failures.len().saturating_sub(SHOWN);
        failures.truncate(SHOWN);
        self.failures.push(format!("{head}\n{}\n… and {more} more", failures.join("\n")));
    }

    /// What both do with a request.
    pub fn outcomes(&self, pair: &Pair, sent: &Sent) -> [Outcome; 2] {
        [&pair.theirs, &pair.ours].map(|listeners| {
            self.origins.take();
            let reply = sent.send(&listeners[sent.listener], &self.clients);
            Outcome::new(reply, self.origins.take())
        })
    }

    /// What both do with a request, and how that compares. If it differs, they are asked with the plain one as well.
    pub fn judged(&self, pair: &Pair, sent: &Sent) -> ([Outcome; 2], Verdict) {
        let [theirs, ours] = self.outcomes(pair, sent);
        let mut verdict = compare::verdict(pair, sent, &theirs, &ours);
        if let (Verdict::Failure { .. }, Some(alike)) = (&verdict, (pair.alike)(sent)) {
            let [their_second, our_second] = self.outcomes(pair, &alike);
            let second = compare::verdict(pair, &alike, &their_second, &our_second);
            if our_second.kind() == ours.kind() && !matches!(second, Verdict::Failure { .. }) {
                verdict = Verdict::Standing;
            }
        }
        ([theirs, ours], verdict)
    }

    /// Sends one request to both; what kind of failure it is, and how to show it, if they differ.
    fn request(&mut self, pair: &Pair, nth: usize, sent: &Sent, is_known: bool) -> Option<(String, String)> {
        let ([theirs, ours], verdict) = self.judged(pair, sent);
        if is_known && theirs.kind() == "forwarded" {
            self.counts.to_forward += 1;
            self.counts.forwarded += usize::from(ours.kind() == "forwarded");
        }
        let (kind, count) = match &verdict {
            Verdict::Same => ("same", &mut self.counts.same),
            Verdict::Standing => ("standing", &mut self.counts.standing),
            Verdict::Noted(_) => ("stricter with a note", &mut self.counts.noted),
            Verdict::Changed => ("changed with a note", &mut self.counts.changed),
            Verdict::Failure { fault, .. } => ("failure", self.counts.faults.entry(*fault).or_default()),
        };
        *count += 1;
        self.meet(format!("{kind}: {}", theirs.kind()));
        if let Verdict::Noted(words) = &verdict
            && theirs.kind() == "forwarded"
        {
            let counted = if is_known { "" } else { ", not counted" };
            words.iter().for_each(|word| self.meet(format!("closed by `{word}`{counted}")));
        }
        let Verdict::Failure { fault, label, why } = verdict else { return None };
        self.meet(format!("{fault:?}: {label}"));
        Some((label, shown(fault, &why, nth, sent, [&theirs, &ours])))
    }
}

/// A failure of a request.
pub fn shown(fault: Fault, why: &str, nth: usize, sent: &Sent, [theirs, ours]: [&Outcome; 2]) -> String {
    format!("{fault:?}: {why}\n  {nth}: {sent}\n  theirs: {theirs}\n  ours: {ours}")
}
