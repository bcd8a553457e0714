//! What each fault of a part does to limits, to waits, and for how long: two instances under steady load, with real servers.
//!
//! One short round of each runs with the other tests. `scripts/faults` runs ten with a release build, and `scripts/faults --write`
//! puts what it measured into docs/reliability.md.

mod trial;

use std::{
    env, fs,
    net::SocketAddr,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use self::trial::{Judge, LIMIT, Phases, Seen, Traffic, rules, wait_until_back};
use crate::{
    app::handover::{self, Service},
    harness::{
        Cgroup, Cluster, Config, Deployment, FakeClock, MASTER, Redis, Relay, Servers, Topology, command,
        eventually, slot_of,
    },
};

/// How long a fault lasts, and the steady time before and after it.
const LASTS: Duration = Duration::from_secs(2);
const STEADY: Duration = Duration::from_millis(1_200);

/// Rounds of a measurement that is to be published. `None`: one short round, in a debug build on a machine that does much else.
fn rounds() -> Option<usize> {
    env::var("TOLLGATE_FAULT_ROUNDS").ok().map(|rounds| rounds.parse().unwrap())
}

/// What a decision may take: the default where it is measured.
fn timeout() -> Duration {
    if rounds().is_some() { Duration::from_millis(50) } else { Duration::from_millis(400) }
}

/// Instances, and what they need.
struct Site {
    redis: Deployment,
    /// Before a single server.
    relay: Option<Relay>,
    /// What stands in `store.redis`.
    settings: String,
    instances: Vec<Service>,
    /// The first instances, so many of which were killed or stand still.
    gone: usize,
    /// Of the first instance, or of all.
    clock: Option<FakeClock>,
    /// Of a single server.
    redis_clock: Option<Arc<FakeClock>>,
    log_disk: Option<LogDisk>,
    /// What takes the first instance's memory, or its core.
    neighbors: Vec<Neighbor>,
    /// In which it runs.
    container: Option<Cgroup>,
    /// YAML of each instance besides.
    rest: String,
    judge: Judge,
}

impl Site {
    fn new(redis: Deployment) -> Self {
        let settings = redis.settings();
        let judge = Judge::start();
        Self {
            redis,
            relay: None,
            settings,
            instances: Vec::new(),
            gone: 0,
            clock: None,
            redis_clock: None,
            log_disk: None,
            container: None,
            neighbors: Vec::new(),
            rest: String::new(),
            judge,
        }
    }

    fn server() -> Self {
        Self::new(Topology::Server.start())
    }

    /// A server behind a relay.
    fn relayed() -> Self {
        let site = Self::server();
        let relay = Relay::to(site.redis.primaries()[0].port);
        Self { settings: format!("url: \"{}\"", relay.url()), relay: Some(relay), ..site }
    }

    fn relay(&self) -> &Relay {
        self.relay.as_ref().expect("the site has one")
    }

    /// Starts so many instances.
    fn start(&mut self, count: usize) {
        for nth in 0..count {
            let yaml = rules(timeout(), &self.settings, self.judge.origin.address);
            let mut command = match self.container.as_ref().filter(|_| nth == 0) {
                Some(container) => container.command(&[]),
                None => command(Path::new(".")),
            };
            if let Some(clock) = self.clock.as_ref().filter(|_| nth == 0 || self.redis_clock.is_some()) {
                clock.wear(&mut command);
            }
            self.instances.push(handover::launch(command, Config::yaml(format!("{yaml}{}", self.rest))));
        }
        wait_until_they_know_each_other(&self.instances);
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.instances.iter().map(|instance| instance.0.address).collect()
    }

    fn living(&self) -> Vec<&Service> {
        self.instances.iter().skip(self.gone).collect()
    }
}

/// Until each divides limits by their number, if Redis is away.
#[track_caller]
fn wait_until_they_know_each_other(instances: &[Service]) {
    eventually("the instances know each other", || {
        instances.iter().all(|instance| instance.0.metric("tollgate_instances") == instances.len() as f64)
    });
}

/// A fault, and what is promised of it.
struct Fault {
    /// The first cell of its row in the guide.
    name: &'static str,
    site: fn() -> Site,
    instances: usize,
    /// The most that may be admitted of one limit, as a multiple of it.
    most: usize,
    strike: fn(&mut Site),
    /// Returns when the part works again.
    mend: fn(&mut Site),
}

impl Fault {
    /// Of a part that two instances share.
    fn of(name: &'static str, most: usize, site: fn() -> Site) -> Self {
        let nothing: fn(&mut Site) = |_| ();
        Self { name, site, instances: 2, most, strike: nothing, mend: nothing }
    }

    #[track_caller]
    fn happens(self, strike: fn(&mut Site), mend: fn(&mut Site)) {
        let fault = Self { strike, mend, ..self };
        let mut all = Seen::default();
        for _ in 0..rounds().unwrap_or(1) {
            all.add(fault.round());
        }
        eprintln!("\n| {} | {all} |", fault.name);
        fault.check(&all);
        if env::var_os("TOLLGATE_FAULT_WRITE").is_some() {
            write_row(fault.name, &all);
        }
    }

    fn round(&self) -> Seen {
        let mut site = (self.site)();
        site.start(self.instances);
        // Connections are made, and scripts are loaded.
        let warm = Traffic::start(&site.addresses(), 0);
        wait_until_back(&site.living());
        warm.stop();
        let traffic = Traffic::start(&site.addresses(), 1);
        thread::sleep(STEADY);
        let struck = Instant::now();
        (self.strike)(&mut site);
        thread::sleep(LASTS.saturating_sub(struck.elapsed()));
        (self.mend)(&mut site);
        let mended = Instant::now();
        let back = wait_until_back(&site.living()).max(mended);
        thread::sleep(STEADY);
        let (gone, count) = (site.gone, self.instances);
        let is_gone = |client: u64| client as usize % count < gone;
        Seen::judge(traffic, &site.judge, Phases { struck, mended, back }, timeout(), is_gone)
    }

    /// Holds what was seen against what is promised.
    #[track_caller]
    fn check(&self, seen: &Seen) {
        let Self { name, most, .. } = self;
        assert!(seen.most <= most * LIMIT, "{name}: {seen}");
        assert!(seen.most_of_rate <= most * trial::RATE, "{name}: {seen}");
        assert!(*most > 1 || seen.beyond.0 == 0, "{name}: {seen}");
        assert!(seen.unsteady.is_empty(), "{name}: {:?}", seen.unsteady);
        assert_eq!(seen.failed.0, 0, "{name}: {seen}");
        // A debug build on a machine that does much else takes its time.
        let spare = if rounds().is_some() { Duration::from_millis(200) } else { Duration::from_secs(2) };
        assert!(seen.wait(0.99) <= timeout() + spare, "{name}: {seen}");
        assert!(seen.longest_recovery() <= Duration::from_millis(3_500), "{name}: {seen}");
    }
}

/// Puts the measured cells into the row of this name in the guide.
fn write_row(name: &str, seen: &Seen) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reliability.md");
    let text = fs::read_to_string(&file).unwrap();
    let begin = format!("| {name} | ");
    let lines = text.lines().map(|line| match line.strip_prefix(&begin) {
        // What is promised stays.
        Some(rest) => format!("{begin}{} | {seen} |", rest.split(" | ").next().unwrap_or_default()),
        None => line.to_owned(),
    });
    let written = lines.map(|line| line + "\n").collect::<String>();
    assert!(text.contains(&begin), "docs/reliability.md has no row `{name}`");
    fs::write(file, written).unwrap();
}

#[test]
fn redis_loses_its_scripts() {
    Fault::of("Redis loses its scripts (`SCRIPT FLUSH`), ten times a second", 1, Site::server).happens(
        |site| {
            for _ in 0..20 {
                site.redis.each(&["script", "flush"]);
                thread::sleep(LASTS / 20);
            }
        },
        |_| (),
    );
}

#[test]
fn redis_pauses_its_clients() {
    Fault::of("Redis is paused (`CLIENT PAUSE`)", 2, Site::server).happens(
        |site| {
            let lasts = LASTS.as_millis().to_string();
            site.redis.each(&["client", "pause", &lasts, "ALL"]);
        },
        |_| (),
    );
}

#[test]
fn redis_stands_still() {
    Fault::of("Redis stands still (SIGSTOP)", 2, Site::server)
        .happens(|site| site.redis.pause(), |site| site.redis.resume());
}

#[test]
fn redis_is_killed_and_comes_back_empty() {
    Fault::of("Redis is killed, and comes back empty", 2, Site::server)
        .happens(|site| site.redis.kill(), |site| site.redis.restart());
}

#[test]
fn redis_is_full() {
    Fault::of("Redis is full (`maxmemory`, noeviction)", 2, Site::server).happens(
        |site| {
            site.redis.each(&["config", "set", "maxmemory-policy", "noeviction"]);
            site.redis.each(&["config", "set", "maxmemory", "1"]);
        },
        |site| drop(site.redis.each(&["config", "set", "maxmemory", "0"])),
    );
}

fn sentinels() -> Site {
    Site::new(Topology::Sentinel.start())
}

#[test]
fn a_primary_behind_sentinel_is_killed() {
    Fault::of("The primary behind Sentinel is killed", 2, sentinels).happens(
        |site| {
            let dead = site.redis.kill_primary(0);
            site.redis.wait_for_another_primary(0, dead);
        },
        |_| (),
    );
}

#[test]
fn a_primary_behind_sentinel_hands_over() {
    // What a replica has not received yet is free again.
    Fault::of("A planned failover (`SENTINEL FAILOVER`)", 3, sentinels).happens(
        |site| {
            let Servers::Sentinel(redis) = site.redis.running() else { return };
            let old = redis.primary();
            redis.sentinels[0].cli(&["sentinel", "failover", MASTER]);
            redis.promoted(old);
        },
        |_| (),
    );
}

fn cluster() -> Site {
    Site::new(Topology::Cluster.start())
}

#[test]
fn a_primary_of_a_cluster_is_killed() {
    Fault::of("A primary of a cluster of three is killed", 2, cluster).happens(
        |site| {
            let dead = site.redis.kill_primary(0);
            site.redis.wait_for_another_primary(0, dead);
        },
        |_| (),
    );
}

/// All limits are in one slot.
fn strict_cluster() -> Site {
    let redis: Deployment = Servers::Cluster(Cluster::start()).into();
    let site = Site::new(redis);
    let settings = site.settings.replacen("cluster: { ", "cluster: { strict: true, ", 1);
    assert_ne!(settings, site.settings);
    Site { settings, ..site }
}

#[test]
fn the_slot_of_all_limits_moves() {
    Fault::of("The slot of all limits moves from node to node", 1, strict_cluster).happens(
        |site| {
            let cluster = site.redis.cluster();
            let slot = slot_of("{ratelimit}");
            let begun = Instant::now();
            while begun.elapsed() < LASTS {
                cluster.migrate_slot(slot, (cluster.node_of_slot(slot) + 1) % 3);
                // Each move is another operator's: the nodes have agreed on the last one.
                cluster.wait_until_settled();
            }
        },
        |_| (),
    );
}

#[test]
fn the_network_is_cut() {
    Fault::of("The network to Redis is cut without a word", 2, Site::relayed)
        .happens(|site| site.relay().stall(true), |site| site.relay().stall(false));
}

#[test]
fn connections_are_refused() {
    Fault::of("Redis' host resets all connections", 2, Site::relayed)
        .happens(|site| site.relay().refuse(true), |site| site.relay().refuse(false));
}

#[test]
fn the_network_is_slow() {
    Fault::of("The network is slow: 20 ms", 1, Site::relayed).happens(
        |site| site.relay().delay(Duration::from_millis(20)),
        |site| site.relay().delay(Duration::ZERO),
    );
}

#[test]
fn the_network_is_too_slow() {
    Fault::of("The network is too slow: twice `timeout`", 2, Site::relayed)
        .happens(|site| site.relay().delay(2 * timeout()), |site| site.relay().delay(Duration::ZERO));
}

/// Sets the clocks that the site has.
fn set_clocks(site: &Site, ahead: &str) {
    site.clock.iter().chain(site.redis_clock.as_deref()).for_each(|clock| clock.set(ahead));
}

#[test]
fn the_clock_of_an_instance_is_wrong() {
    if FakeClock::new().is_none() {
        return;
    }
    let site = || Site { clock: FakeClock::new(), ..Site::server() };
    Fault::of("The clock of one instance is 10 minutes ahead", 1, site)
        .happens(|site| set_clocks(site, "+600"), |site| set_clocks(site, "+0"));
}

/// A server with a clock of its own.
fn server_with_clock() -> Site {
    let clock = Arc::new(FakeClock::of_redis());
    let redis = Servers::Server(Redis::under(Arc::clone(&clock)));
    Site { redis_clock: Some(clock), ..Site::new(redis.into()) }
}

#[test]
fn the_clock_of_redis_is_set() {
    Fault::of("The clock of Redis' host is set 10 minutes ahead, and back", 2, server_with_clock)
        .happens(|site| set_clocks(site, "+600"), |site| set_clocks(site, "+0"));
}

#[test]
fn the_clocks_of_all_hosts_are_set() {
    if FakeClock::new().is_none() {
        return;
    }
    let site = || Site { clock: FakeClock::new(), ..server_with_clock() };
    Fault::of("The clocks of all hosts are set 10 minutes ahead, and back", 2, site)
        .happens(|site| set_clocks(site, "+600"), |site| set_clocks(site, "+0"));
}

/// A process that takes from others, until it is dropped.
struct Neighbor(Child);

impl Neighbor {
    fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).process_group(0).spawn().unwrap())
    }
}

impl Drop for Neighbor {
    fn drop(&mut self) {
        let group = format!("-{}", self.0.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.0.wait();
    }
}

/// The kernel kills the neighbor, which begins anew.
#[test]
fn a_neighbor_uses_up_the_memory() {
    const BYTES: usize = 400 << 20;
    if let Err(reason) = Cgroup::with_memory(BYTES) {
        eprintln!("no container can be made here: not tested: {reason}");
        return;
    }
    let site = || Site { container: Cgroup::with_memory(BYTES).ok(), ..Site::server() };
    Fault::of("A neighbor uses up the memory of an instance's container", 1, site).happens(
        |site| {
            let container = site.container.as_ref().expect("the site has one");
            let mut greedy = container.shell("while :; do tail /dev/zero; done");
            site.neighbors.push(Neighbor::start(greedy.stderr(Stdio::null())));
            eventually("the memory is used up", || container.killed() > 0);
        },
        |site| site.neighbors.clear(),
    );
}

/// Three busy loops share the core with it.
#[test]
fn an_instance_gets_a_quarter_of_a_core() {
    Fault::of("An instance gets a quarter of a core", 2, Site::server).happens(
        |site| {
            let pid = site.instances[0].0.pid().to_string();
            let pinned = Command::new("taskset").args(["-apc", "0", &pid]).stdout(Stdio::null()).status();
            assert!(pinned.unwrap().success());
            for _ in 0..3 {
                let mut busy = Command::new("taskset");
                site.neighbors.push(Neighbor::start(busy.args([
                    "-c",
                    "0",
                    "sh",
                    "-c",
                    "while :; do :; done",
                ])));
            }
        },
        |site| site.neighbors.clear(),
    );
}

/// Lets an instance open so many files.
fn limit_files(site: &Site, most: &str) {
    let pid = site.instances[0].0.pid().to_string();
    let limited = Command::new("prlimit").args(["--pid", &pid, &format!("--nofile={most}:")]).status();
    assert!(limited.unwrap().success());
}

/// Those who are connected stay so.
#[test]
fn an_instance_may_open_no_more_files() {
    Fault::of("An instance may open no more files", 1, Site::server)
        .happens(|site| limit_files(site, "3"), |site| limit_files(site, "1024"));
}

#[test]
fn half_of_the_instances_are_killed() {
    let fault = Fault::of("Two of four instances are killed", 1, Site::server);
    Fault { instances: 4, ..fault }.happens(
        |site| {
            site.gone = 2;
            site.instances.iter().take(2).for_each(|instance| instance.0.signal("KILL"));
        },
        |_| (),
    );
}

/// Gives the first instance this limit, and has it read.
fn configure(site: &Site, limit: usize) {
    let tollgate = &site.instances[0].0;
    let file = tollgate.directory().join("proxy.yaml");
    let yaml = fs::read_to_string(&file).unwrap();
    let other = if limit == LIMIT { 2 * LIMIT } else { LIMIT };
    fs::write(&file, yaml.replace(&format!("limit: {other}/1d"), &format!("limit: {limit}/1d"))).unwrap();
    let reloads = || tollgate.metric("tollgate_config_reloads_total{result=\"success\"}");
    let before = reloads();
    tollgate.signal("HUP");
    eventually("it has the limit", || reloads() > before);
}

#[test]
fn configurations_differ() {
    Fault::of("One instance has twice the limit of the other", 2, Site::server)
        .happens(|site| configure(site, 2 * LIMIT), |site| configure(site, LIMIT));
}

#[test]
fn an_instance_hands_over_to_a_new_process() {
    Fault::of("An instance hands over to a new process (SIGUSR2)", 1, Site::server).happens(
        |site| {
            site.instances[0].hand_over();
        },
        |_| (),
    );
}

#[test]
fn an_instance_stands_still() {
    Fault::of("An instance stands still (SIGSTOP)", 2, Site::server).happens(
        |site| {
            // Its clients wait as long as it stands.
            site.gone = 1;
            site.instances[0].0.signal("STOP");
        },
        |site| site.instances[0].0.signal("CONT"),
    );
}

/// A process, or a mounted file system, that is there for an access log.
struct LogDisk {
    directory: TempDir,
    kind: DiskKind,
}

enum DiskKind {
    /// A file system of 1 MiB.
    Small,
    /// One that the kernel makes read-only after an error.
    Fragile,
    /// A pipe that a process reads.
    Pipe(Child),
}

impl LogDisk {
    /// `None`: only root can mount one.
    fn small() -> Option<Self> {
        let disk = Self { directory: TempDir::new().unwrap(), kind: DiskKind::Small };
        disk.mount(&["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
    }

    /// `None`: only root can mount one.
    fn fragile() -> Option<Self> {
        let disk = Self { directory: TempDir::new().unwrap(), kind: DiskKind::Fragile };
        let image = TempDir::new().unwrap();
        let image = image.path().join("image");
        fs::File::create(&image).and_then(|file| file.set_len(8 << 20)).unwrap();
        let made = Command::new("mkfs.ext4").arg("-q").arg(&image).status();
        if !made.is_ok_and(|status| status.success()) {
            eprintln!("mkfs.ext4 can't be run here: not tested");
            return None;
        }
        disk.mount(&["-o", "loop,errors=remount-ro", image.to_str().unwrap()])
    }

    fn mount(self, arguments: &[&str]) -> Option<Self> {
        let mounted = Command::new("mount").args(arguments).arg(self.directory.path()).status();
        if !mounted.is_ok_and(|status| status.success()) {
            eprintln!("no file system can be mounted here: not tested");
            return None;
        }
        Some(self)
    }

    fn pipe() -> Self {
        let directory = TempDir::new().unwrap();
        let pipe = directory.path().join("access.log");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let reader = Command::new("cat").arg(&pipe).stdout(Stdio::null()).spawn().unwrap();
        Self { directory, kind: DiskKind::Pipe(reader) }
    }

    fn site(self) -> Site {
        let log = self.directory.path().join("access.log");
        let rest = format!("access_log: {{ format: json, to: \"{}\" }}\n", log.display());
        Site { rest, log_disk: Some(self), ..Site::server() }
    }

    /// Makes it take nothing more; or take it again.
    fn is_broken(&self, is_broken: bool) {
        let filler = self.directory.path().join("filler");
        match (&self.kind, is_broken) {
            (DiskKind::Pipe(reader), _) => {
                let name = if is_broken { "-STOP" } else { "-CONT" };
                assert!(
                    Command::new("kill").args([name, &reader.id().to_string()]).status().unwrap().success()
                );
            }
            (DiskKind::Fragile, true) => {
                let mounts = fs::read_to_string("/proc/mounts").unwrap();
                let at = self.directory.path().to_str().unwrap();
                let device = mounts.lines().find(|line| line.split(' ').nth(1) == Some(at)).unwrap();
                let device = device.trim_start_matches("/dev/").split(' ').next().unwrap_or_default();
                fs::write(format!("/sys/fs/ext4/{device}/trigger_fs_error"), "a test").unwrap();
                assert!(fs::write(filler, "more").is_err(), "it is read-only");
            }
            // It stays so until somebody checks and mounts it.
            (DiskKind::Fragile, false) => {}
            (DiskKind::Small, true) => {
                let filled = fs::write(filler, vec![0; 2 << 20]);
                assert!(filled.is_err(), "the disk is full");
            }
            (DiskKind::Small, false) => fs::remove_file(filler).unwrap(),
        }
    }
}

impl Drop for LogDisk {
    fn drop(&mut self) {
        match &mut self.kind {
            DiskKind::Pipe(reader) => {
                let _ = reader.kill();
                let _ = reader.wait();
            }
            DiskKind::Small | DiskKind::Fragile => {
                let _ = Command::new("umount").arg("-l").arg(self.directory.path()).status();
            }
        }
    }
}

fn break_the_disk(site: &mut Site) {
    site.log_disk.as_ref().expect("the site has one").is_broken(true);
}

fn mend_the_disk(site: &mut Site) {
    site.log_disk.as_ref().expect("the site has one").is_broken(false);
}

#[test]
fn the_disk_of_the_access_log_is_full() {
    if LogDisk::small().is_some() {
        let site = || LogDisk::small().expect("there was one").site();
        Fault::of("The disk of the access log is full", 1, site).happens(break_the_disk, mend_the_disk);
    }
}

#[test]
fn the_disk_of_the_access_log_becomes_read_only() {
    if LogDisk::fragile().is_some() {
        let site = || LogDisk::fragile().expect("there was one").site();
        Fault::of("The file system of the access log becomes read-only", 1, site)
            .happens(break_the_disk, mend_the_disk);
    }
}

#[test]
fn the_disk_of_the_access_log_hangs() {
    Fault::of("The disk of the access log hangs", 1, || LogDisk::pipe().site())
        .happens(break_the_disk, mend_the_disk);
}
