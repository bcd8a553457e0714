//! A worker's sums of what was used, and of who was denied. It is on the path of a request: most requests end with a hash and
//! a comparison.

use std::{
    cell::{Cell, RefCell},
    hash::BuildHasher,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
        mpsc::Sender,
    },
    time::{Duration, Instant},
};

use compact_str::CompactString;
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use http::{Method, StatusCode};
use ipnet::IpNet;
use smallvec::SmallVec;

use super::{collector::Message, plan::HistoryPlan};
use crate::{
    abuse::{masked, shorten_name},
    api_keys::ApiKey,
    limit::WallClock,
};

/// The part of time in which a tally is: days of all time zones begin with one.
pub(super) const QUARTER: i64 = 15 * 60;
/// Denials of single clients that a worker tallies at once. Further ones are tallied by network, and then all together.
const MAX_CLIENTS: usize = 2_048;
const MAX_NETWORKS: usize = 4_096;
/// Tallies of all workers that may wait to be merged.
const MAX_QUEUED: usize = 2_000_000;
/// The longest texts of a sample, in bytes.
const MAX_PATH: usize = 256;
const MAX_TEXT: usize = 128;

/// Whose usage a request is.
#[derive(Debug, Clone, Default)]
pub struct UsageOwner {
    /// Its valid API key, which names the customer and the plan.
    pub key: Option<Arc<ApiKey>>,
    /// The index of its route. `None`: it has matched none.
    pub route: Option<u32>,
    /// Names that its request has. Few have any, and those that have none are compared at once.
    names: Option<Box<OwnerNames>>,
}

/// The names in a request. Empty: none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct OwnerNames {
    pub(super) user: CompactString,
    pub(super) value: CompactString,
}

impl UsageOwner {
    /// Sets the user, in the form that may be stored. Empty: it has none, or users are not told apart.
    pub fn set_user(&mut self, user: &str) {
        if !user.is_empty() || self.names.is_some() {
            self.names.get_or_insert_default().user = (*shorten_name(user)).into();
        }
    }

    /// Sets the value that tells usage apart.
    pub fn set_value(&mut self, value: &str) {
        if !value.is_empty() || self.names.is_some() {
            self.names.get_or_insert_default().value = value.into();
        }
    }

    /// Without the names in its request.
    #[must_use]
    pub fn unnamed(&self) -> Self {
        Self { key: self.key.clone(), route: self.route, names: None }
    }

    pub(super) fn names(&self) -> OwnerNames {
        self.names.as_deref().cloned().unwrap_or_default()
    }

    #[inline]
    fn is(&self, other: &Self) -> bool {
        self.key_address() == other.key_address() && self.route == other.route && self.names == other.names
    }

    /// Tells keys apart that are held.
    fn key_address(&self) -> usize {
        self.key.as_ref().map_or(0, |key| Arc::as_ptr(key) as usize)
    }

    /// A hash of the key and the route, which no client chooses, and of the names.
    fn hash(&self, state: &RandomState) -> u64 {
        let hash = mixed(self.key_address() as u64, u64::from(self.route.unwrap_or(u32::MAX)));
        match &self.names {
            None => hash,
            Some(names) => mixed(hash, state.hash_one(names)),
        }
    }
}

/// Folds the product, so that each bit depends on each.
fn mixed(one: u64, other: u64) -> u64 {
    const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
    let product = u128::from(one ^ SEED) * u128::from(other.rotate_left(32) ^ 0xd1b5_4a32_d192_ed03);
    product as u64 ^ (product >> 64) as u64
}

/// The units that policies charge, by their indexes.
pub type ChargedUnits = SmallVec<[(u32, u64); 2]>;

/// Why a request was denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeniedBy {
    /// A limit: the policy's index, the variant and its tier.
    Limit { policy: u32, variant: u16, tier: u16 },
    /// It lacks the value that identifies it for the policy of this index.
    Unidentified { policy: u32 },
    /// The ban rule of this index.
    Ban { rule: u32 },
    /// `deny`.
    Deny,
    /// `allow`.
    Allow,
    /// It lacks a valid credential.
    Credential,
}

impl DeniedBy {
    /// A number for each.
    fn code(self) -> u64 {
        match self {
            Self::Limit { policy, variant, tier } => {
                u64::from(policy) << 32 | u64::from(variant) << 16 | u64::from(tier)
            }
            Self::Unidentified { policy } => u64::from(policy) << 32 | 0xffff_ffff,
            Self::Ban { rule } => 1 << 63 | u64::from(rule),
            Self::Deny => 1 << 62,
            Self::Allow => 1 << 62 | 1,
            Self::Credential => 1 << 62 | 2,
        }
    }
}

/// One request, as an example of those that were denied.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DenialSample {
    pub path: String,
    pub host: String,
    pub user_agent: String,
    pub request_id: String,
    pub status: u16,
}

impl DenialSample {
    /// Cuts what clients can make long.
    pub fn new(path: &str, host: &str, user_agent: &str, request_id: &str, status: StatusCode) -> Self {
        let cut = |text: &str, max: usize| text[..text.floor_char_boundary(max)].to_owned();
        Self {
            path: cut(path, MAX_PATH),
            host: cut(host, MAX_TEXT),
            user_agent: cut(user_agent, MAX_TEXT),
            request_id: cut(request_id, MAX_TEXT),
            status: status.as_u16(),
        }
    }
}

/// What an owner has used in a part of a quarter of an hour.
#[derive(Debug)]
pub(super) struct UsageTally {
    hash: u64,
    pub(super) owner: UsageOwner,
    pub(super) counts: RequestCounts,
    pub(super) units: ChargedUnits,
}

/// Requests, the denied ones among them, and all by the class of their status, from 1xx on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RequestCounts {
    pub requests: u64,
    pub denied: u64,
    pub classes: [u64; 5],
}

impl RequestCounts {
    pub(super) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.denied += other.denied;
        for (sum, more) in self.classes.iter_mut().zip(other.classes) {
            *sum += more;
        }
    }
}

/// Who was denied, and by what.
#[derive(Debug, Clone)]
pub(super) struct DeniedKey {
    /// The client's address. Of many clients, their network, or all addresses.
    pub(super) network: IpNet,
    pub(super) owner: UsageOwner,
    pub(super) by: DeniedBy,
    pub(super) method: Method,
}

#[derive(Debug)]
pub(super) struct DenialTally {
    hash: u64,
    pub(super) key: DeniedKey,
    pub(super) count: u64,
    /// In microseconds since the Unix epoch.
    pub(super) first: i64,
    pub(super) last: i64,
    pub(super) sample: DenialSample,
}

/// The tallies of one tick of a worker.
#[derive(Debug)]
pub(super) struct TickTallies {
    pub(super) plan: Arc<HistoryPlan>,
    /// The quarter of an hour in which the usage was, since the Unix epoch.
    pub(super) quarter: i64,
    pub(super) usage: Vec<UsageTally>,
    pub(super) denials: Vec<DenialTally>,
}

/// Sums what is used. Belongs to one worker and one configuration.
#[derive(Debug)]
pub struct HistoryRecorder {
    plan: Arc<HistoryPlan>,
    sender: TallySender,
    clock: WallClock,
    /// The quarter of an hour of the tallies, and when it ends.
    quarter: Cell<i64>,
    ends: Cell<Instant>,
    state: RandomState,
    /// Nobody outside knows it.
    seed: u64,
    usage: RefCell<UsageTallies>,
    denials: RefCell<DenialTallies>,
}

/// The tallies of usage. The last one is at hand: a client's requests often follow each other.
#[derive(Debug, Default)]
struct UsageTallies {
    last: Option<UsageTally>,
    others: HashTable<UsageTally>,
}

/// The tallies of denials. The last one is at hand: in a flood, it is the same again and again.
#[derive(Debug, Default)]
struct DenialTallies {
    last: Option<LastDenial>,
    all: HashTable<DenialTally>,
}

/// Further requests that are denied like the last one, and are not in its tally yet.
#[derive(Debug)]
struct LastDenial {
    hash: u64,
    address: IpAddr,
    user: CompactString,
    key: DeniedKey,
    more: u64,
    time: i64,
}

/// A request that is denied.
#[derive(Clone, Copy)]
pub struct DeniedRequest<'a> {
    /// Its client's address, and how many bits of an IPv6 address identify a client.
    pub address: IpAddr,
    pub ipv6_prefix: u8,
    /// Whose it is, but for the user.
    pub owner: &'a UsageOwner,
    /// In the form that may be stored.
    pub user: Option<&'a str>,
    pub by: DeniedBy,
    pub method: &'a Method,
    /// In microseconds since the Unix epoch.
    pub time: i64,
}

impl HistoryRecorder {
    pub(super) fn new(plan: Arc<HistoryPlan>, sender: TallySender, clock: WallClock) -> Self {
        let recorder = Self {
            plan,
            sender,
            clock,
            quarter: Cell::new(0),
            ends: Cell::new(Instant::now()),
            state: RandomState::default(),
            seed: fastrand::u64(..),
            usage: RefCell::default(),
            denials: RefCell::default(),
        };
        recorder.enter_quarter(Instant::now());
        recorder
    }

    /// What it tells usage apart by.
    pub fn plan(&self) -> &HistoryPlan {
        &self.plan
    }

    /// Counts a request that has ended `now`, and the `units` that it has cost for good. `is_denied`: by a limit or a ban.
    pub fn record(
        &self,
        owner: &UsageOwner,
        now: Instant,
        status: StatusCode,
        is_denied: bool,
        units: &ChargedUnits,
    ) {
        self.with_tally(owner, now, |tally| {
            tally.counts.requests += 1;
            tally.counts.denied += u64::from(is_denied);
            let class = usize::from(status.as_u16() / 100).clamp(1, 5) - 1;
            tally.counts.classes[class] += 1;
            if !units.is_empty() {
                add_units(&mut tally.units, units);
            }
        });
    }

    /// Counts units that a request has cost for good.
    pub fn record_units(&self, owner: &UsageOwner, units: &ChargedUnits) {
        if !units.is_empty() {
            self.with_tally(owner, Instant::now(), |tally| add_units(&mut tally.units, units));
        }
    }

    fn with_tally(&self, owner: &UsageOwner, now: Instant, change: impl FnOnce(&mut UsageTally)) {
        if now >= self.ends.get() {
            self.enter_quarter(now);
        }
        let UsageTallies { last, others } = &mut *self.usage.borrow_mut();
        if let Some(last) = last.as_mut().filter(|last| last.owner.is(owner)) {
            return change(last);
        }
        let hash = owner.hash(&self.state);
        let found = others.find_entry(hash, |tally| tally.hash == hash && tally.owner.is(owner));
        let mut tally = match found {
            Ok(found) => found.remove().0,
            Err(_) => {
                let (owner, counts, units) = (owner.clone(), RequestCounts::default(), ChargedUnits::new());
                UsageTally { hash, owner, counts, units }
            }
        };
        change(&mut tally);
        if let Some(before) = last.replace(tally) {
            others.insert_unique(before.hash, before, |tally| tally.hash);
        }
    }

    /// Counts a request that was denied.
    pub fn record_denial(&self, request: DeniedRequest<'_>, sample: impl FnOnce() -> DenialSample) {
        let denials = &mut *self.denials.borrow_mut();
        if let Some(last) = &mut denials.last
            && last.is(&request)
        {
            last.more += 1;
            last.time = last.time.max(request.time);
            return;
        }
        self.begin_denials(denials, &request, sample);
    }

    /// Counts a request that was denied otherwise than the last one.
    #[inline(never)]
    fn begin_denials(
        &self,
        denials: &mut DenialTallies,
        request: &DeniedRequest<'_>,
        sample: impl FnOnce() -> DenialSample,
    ) {
        denials.finish_last();
        let DeniedRequest { address, ipv6_prefix, by, method, time, .. } = *request;
        let mut owner = request.owner.unnamed();
        owner.set_user(request.user.unwrap_or_default());
        let client = masked(address, ipv6_prefix);
        let denied = Denied { network: client, owner: &owner, by, method };
        let DenialTallies { last, all } = denials;
        if !self.count_denial(all, denied, time) {
            let known = all.len();
            if known >= MAX_CLIENTS {
                return self.record_network(all, denied, time, sample);
            }
            self.begin_denial(all, denied, time, sample());
        }
        let hash = self.denial_hash(denied);
        let key = DeniedKey { network: client, owner, by, method: known_method(method) };
        let user = request.user.unwrap_or_default().into();
        *last = Some(LastDenial { hash, address, user, key, more: 0, time });
    }

    /// Counts a request of one of very many clients by its network; of very many networks, all together.
    fn record_network(
        &self,
        denials: &mut HashTable<DenialTally>,
        denied: Denied<'_>,
        time: i64,
        sample: impl FnOnce() -> DenialSample,
    ) {
        let (is_full, address) = (denials.len() >= MAX_NETWORKS, denied.network.addr());
        let bits = match (is_full, address) {
            (true, _) => 0,
            (false, IpAddr::V4(_)) => 24,
            (false, IpAddr::V6(_)) => 48,
        };
        let mut owner = denied.owner.unnamed();
        if is_full {
            owner.key = None;
        }
        let denied = Denied { network: masked_to(address, bits), owner: &owner, ..denied };
        if !self.count_denial(denials, denied, time) {
            self.begin_denial(denials, denied, time, sample());
        }
    }

    /// Counts a denial among those that are alike, if there are any.
    fn count_denial(&self, denials: &mut HashTable<DenialTally>, denied: Denied<'_>, time: i64) -> bool {
        let hash = self.denial_hash(denied);
        let found = denials.find_mut(hash, |tally| tally.hash == hash && denied.is_of(&tally.key));
        found.is_some_and(|tally| {
            tally.count += 1;
            tally.last = tally.last.max(time);
            true
        })
    }

    fn begin_denial(
        &self,
        denials: &mut HashTable<DenialTally>,
        denied: Denied<'_>,
        time: i64,
        sample: DenialSample,
    ) {
        let Denied { network, owner, by, method } = denied;
        let hash = self.denial_hash(denied);
        let key = DeniedKey { network, owner: owner.clone(), by, method: known_method(method) };
        let tally = DenialTally { hash, key, count: 1, first: time, last: time, sample };
        denials.insert_unique(hash, tally, |tally| tally.hash);
    }

    /// Clients choose their addresses, and nothing else of it.
    fn denial_hash(&self, denied: Denied<'_>) -> u64 {
        let address = match denied.network.addr() {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        };
        let address = mixed(address as u64 ^ self.seed, (address >> 64) as u64 ^ self.seed.rotate_left(17));
        mixed(mixed(denied.owner.hash(&self.state), denied.by.code()), address)
    }

    /// Hands the tallies over. To be called a few times a second.
    pub fn flush(&self) {
        let mut usage = self.usage.borrow_mut();
        let last = usage.last.take();
        let usage: Vec<UsageTally> = usage.others.drain().chain(last).collect();
        let mut denials = self.denials.borrow_mut();
        denials.finish_last();
        let denials: Vec<DenialTally> = denials.all.drain().collect();
        if !usage.is_empty() || !denials.is_empty() {
            let (plan, quarter) = (Arc::clone(&self.plan), self.quarter.get());
            self.sender.send(TickTallies { plan, quarter, usage, denials });
        }
    }

    /// Begins the tallies of the quarter of an hour in which `now` is.
    #[cold]
    fn enter_quarter(&self, now: Instant) {
        self.flush();
        let seconds = self.clock.at(now).div_euclid(1_000_000);
        // A clock that was set back doesn't change what is past.
        let quarter = seconds.div_euclid(QUARTER).max(self.quarter.get());
        self.quarter.set(quarter);
        let rest = (quarter + 1) * QUARTER - seconds;
        // The clock may be set: it is read again soon.
        self.ends.set(now + Duration::from_secs(rest.clamp(1, 60).unsigned_abs()));
    }
}

impl Drop for HistoryRecorder {
    fn drop(&mut self) {
        self.flush();
    }
}

impl LastDenial {
    /// Whether `request` is denied likewise.
    #[inline]
    fn is(&self, request: &DeniedRequest<'_>) -> bool {
        self.address == request.address
            && self.key.by == request.by
            && self.key.owner.key_address() == request.owner.key_address()
            && self.key.owner.route == request.owner.route
            && self.key.method == *request.method
            && self.user.as_str() == request.user.unwrap_or_default()
    }
}

impl DenialTallies {
    /// Adds what is counted beside the last tally to it.
    fn finish_last(&mut self) {
        let Some(LastDenial { hash, key, more, time, .. }) = self.last.take() else { return };
        let denied = Denied { network: key.network, owner: &key.owner, by: key.by, method: &key.method };
        if more > 0
            && let Some(tally) =
                self.all.find_mut(hash, |tally| tally.hash == hash && denied.is_of(&tally.key))
        {
            tally.count += more;
            tally.last = tally.last.max(time);
        }
    }
}

/// A denial, as it is looked up.
#[derive(Clone, Copy)]
struct Denied<'a> {
    network: IpNet,
    owner: &'a UsageOwner,
    by: DeniedBy,
    method: &'a Method,
}

impl Denied<'_> {
    fn is_of(&self, key: &DeniedKey) -> bool {
        key.by == self.by
            && key.network == self.network
            && key.owner.is(self.owner)
            && (key.method == self.method || key.method == known_method(self.method))
    }
}

pub(super) fn masked_to(address: IpAddr, bits: u8) -> IpNet {
    IpNet::new(address, bits).map_or_else(|_| address.into(), |network| network.trunc())
}

/// The method, or one for all that are not standard: clients make them up.
fn known_method(method: &Method) -> Method {
    const KNOWN: [Method; 9] = [
        Method::GET,
        Method::POST,
        Method::PUT,
        Method::DELETE,
        Method::HEAD,
        Method::OPTIONS,
        Method::CONNECT,
        Method::PATCH,
        Method::TRACE,
    ];
    KNOWN
        .into_iter()
        .find(|known| known == method)
        .unwrap_or_else(|| Method::from_bytes(b"OTHER").unwrap_or_default())
}

pub(super) fn add_units(sums: &mut ChargedUnits, units: &ChargedUnits) {
    for &(policy, more) in units {
        match sums.iter_mut().find(|(known, _)| *known == policy) {
            Some((_, sum)) => *sum = sum.saturating_add(more),
            None => sums.push((policy, more)),
        }
    }
}

/// A worker's end of the queue.
#[derive(Clone)]
pub(super) struct TallySender {
    pub(super) queue: Sender<Message>,
    pub(super) queued: Arc<AtomicUsize>,
    pub(super) dropped: Arc<AtomicU64>,
}

impl TallySender {
    /// Hands a tick over. It is dropped, and counted, only if nobody takes them for minutes.
    fn send(&self, tick: TickTallies) {
        let count = tick.usage.len() + tick.denials.len();
        let before = self.queued.fetch_add(count, Relaxed);
        if before > MAX_QUEUED || self.queue.send(Message::Tick(tick)).is_err() {
            self.queued.fetch_sub(count, Relaxed);
            self.dropped.fetch_add(1, Relaxed);
        }
    }
}

impl std::fmt::Debug for TallySender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TallySender").finish_non_exhaustive()
    }
}
