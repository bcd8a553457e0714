//! Decisions that go to Redis together, in one call of `decide.lua`.

use std::{fmt, hash::BuildHasher, sync::LazyLock};

use hashbrown::HashTable;
use redis::{Cmd, Value};
use rmp::encode;
use smallvec::SmallVec;
use tokio::{sync::oneshot, time::Instant};

use super::{entry, failure::Failure, key, standing};
use crate::limit::{
    Check, Policy, PolicyId,
    algorithm::{Kind, Tier, sliding_log::MAX_COST},
};

/// Decisions of one call. More would make the first wait for the last, and others for them all.
const MOST: usize = 64;
/// A cost is at most this, which no limit admits: beyond 2⁵³, Lua's numbers are not exact.
const HIGHEST_COST: u64 = 1 << 40;

/// Seeded at random: identifiers come from clients, who must not be able to choose collisions.
static HASHER: LazyLock<foldhash::fast::RandomState> = LazyLock::new(foldhash::fast::RandomState::default);

/// What the script says of one request: whether it is admitted, and the numbers of its limits.
pub(super) type Answer = Result<SmallVec<[i64; 8]>, Failure>;

/// Requests that wait for one call. They are encoded as they come.
#[derive(Debug)]
pub(super) struct Batch {
    /// By when the first of them wants to know.
    pub(super) deadline: Instant,
    /// All keys, each once, and where each ends.
    keys: Vec<u8>,
    ends: Vec<usize>,
    /// The keys by what they are: a hot one is asked for again and again.
    known: HashTable<usize>,
    /// The policies by which requests name them, and how they are described.
    policies: SmallVec<[Described; 4]>,
    /// The requests in MessagePack, and how many values they are.
    requests: Vec<u8>,
    values: usize,
    waiting: Vec<Waiting>,
}

/// A policy as a batch describes it: one of another configuration may have the same ID.
#[derive(Debug, PartialEq)]
struct Described {
    id: PolicyId,
    kind: Kind,
    tiers: SmallVec<[Tier; 3]>,
    keep: usize,
}

/// Whoever asked, and how many numbers are his.
#[derive(Debug)]
struct Waiting {
    answer: oneshot::Sender<Answer>,
    numbers: usize,
}

impl Batch {
    pub(super) fn new(deadline: Instant) -> Self {
        Self {
            deadline,
            keys: Vec::with_capacity(1024),
            ends: Vec::new(),
            known: HashTable::new(),
            policies: SmallVec::new(),
            requests: Vec::with_capacity(256),
            values: 0,
            waiting: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= MOST
    }

    /// Adds a request whose checks name each limit once.
    pub(super) fn add(&mut self, prefix: &str, checks: &[Check<'_>]) -> oneshot::Receiver<Answer> {
        let mut numbers = 1;
        self.put(checks.len() as u64);
        for check in checks {
            let policy = check.policy;
            let limit = self.limit(prefix, policy, &check.identifier);
            self.put(limit as u64 + 1);
            let index = self.describe(policy);
            self.put(index as u64 + 1);
            self.put(check.cost.min(HIGHEST_COST));
            if policy.kind == Kind::MetadataList {
                let wanted = check.entry.as_deref().filter(|_| policy.record.keep > 0);
                let entry = wanted.map(entry::write).unwrap_or_default();
                written(&encode::write_str(&mut self.requests, &entry));
                self.values += 1;
            }
            numbers += standing::numbers(policy);
        }
        let (answer, answered) = oneshot::channel();
        self.waiting.push(Waiting { answer, numbers });
        answered
    }

    fn put(&mut self, number: u64) {
        written(&encode::write_uint(&mut self.requests, number));
        self.values += 1;
    }

    /// The limit's place in the batch.
    fn limit(&mut self, prefix: &str, policy: &Policy, identifier: &str) -> usize {
        let Self { keys, ends, known, .. } = self;
        let start = keys.len();
        key::write(keys, prefix, policy, identifier);
        let begins = |index: usize| index.checked_sub(1).map_or(0, |before| ends[before]);
        let (hash, key) = (HASHER.hash_one(&keys[start..]), &keys[start..]);
        let found = known.find(hash, |&index| &keys[begins(index)..ends[index]] == key).copied();
        if let Some(index) = found {
            keys.truncate(start);
            return index;
        }
        let index = ends.len();
        known.insert_unique(hash, index, |&index| HASHER.hash_one(&keys[begins(index)..ends[index]]));
        ends.push(keys.len());
        index
    }

    /// The policy's place in the batch.
    fn describe(&mut self, policy: &Policy) -> usize {
        let keep = policy.record.keep;
        let same = |known: &Described| {
            known.id == policy.id
                && known.kind == policy.kind
                && known.tiers[..] == policy.tiers[..]
                && known.keep == keep
        };
        self.policies.iter().position(same).unwrap_or_else(|| {
            let tiers = policy.tiers.iter().copied().collect();
            self.policies.push(Described { id: policy.id, kind: policy.kind, tiers, keep });
            self.policies.len() - 1
        })
    }

    /// The call. `now`: microseconds, where it is not Redis that tells the time.
    pub(super) fn command(&self, hash: &str, now: Option<i64>) -> Cmd {
        let mut command =
            Cmd::with_capacity(self.ends.len() + 5, self.keys.len() + self.requests.len() + 128);
        command.arg("EVALSHA").arg(hash).arg(self.ends.len());
        let mut start = 0;
        for &end in &self.ends {
            command.arg(&self.keys[start..end]);
            start = end;
        }
        match now {
            Some(now) => command.arg(now),
            None => command.arg(""),
        };
        command.arg(self.described());
        command
    }

    /// The whole batch in MessagePack: the policies, then the requests.
    fn described(&self) -> Vec<u8> {
        let descriptions: SmallVec<[SmallVec<[u64; 8]>; 4]> =
            self.policies.iter().map(Described::numbers).collect();
        let values = 1 + descriptions.iter().map(|numbers| 2 + numbers.len()).sum::<usize>() + self.values;
        let mut packed = Vec::with_capacity(self.requests.len() + 16 * values.min(64));
        written(&encode::write_array_len(&mut packed, u32::try_from(values).unwrap_or(u32::MAX)));
        written(&encode::write_uint(&mut packed, descriptions.len() as u64));
        for (policy, numbers) in self.policies.iter().zip(&descriptions) {
            written(&encode::write_uint(&mut packed, policy.algorithm()));
            written(&encode::write_uint(&mut packed, numbers.len() as u64));
            for &number in numbers {
                written(&encode::write_uint(&mut packed, number));
            }
        }
        packed.extend_from_slice(&self.requests);
        packed
    }

    /// Gives everyone his part of the reply. Says how many states the script has discarded; that it had no memory to
    /// admit somebody is an error, if not everybody's.
    pub(super) fn answer(self, reply: Result<Value, Failure>) -> Result<u64, Failure> {
        let numbers = reply.and_then(|reply| numbers(&reply));
        let numbers = match numbers {
            Ok(numbers) if numbers.len() == 1 + self.waiting.iter().map(|one| one.numbers).sum::<usize>() => {
                numbers
            }
            other => {
                let failure = other.err().unwrap_or_else(|| Failure::nonsense("a reply of another length"));
                for Waiting { answer, .. } in self.waiting {
                    let _gone = answer.send(Err(failure.clone()));
                }
                return Err(failure);
            }
        };
        let (discarded, mut rest) = (numbers[0], &numbers[1..]);
        let mut outcome = Ok(u64::try_from(discarded).unwrap_or_default());
        for Waiting { answer, numbers } in self.waiting {
            let (own, others) = rest.split_at(numbers);
            rest = others;
            let own = match own.first() {
                Some(2) => Err(Failure::out_of_memory()),
                _ => Ok(SmallVec::from_slice(own)),
            };
            if let Err(failure) = &own {
                outcome = Err(failure.clone());
            }
            let _gone = answer.send(own);
        }
        outcome
    }
}

impl Described {
    /// By which number the script knows it.
    fn algorithm(&self) -> u64 {
        match self.kind {
            Kind::SingleCounter => 1,
            Kind::FixedWindow => 2,
            Kind::SlidingLog => 3,
            Kind::MetadataList => 4,
        }
    }

    fn numbers(&self) -> SmallVec<[u64; 8]> {
        let window = |tier: &Tier| u64::try_from(tier.window).unwrap_or(1);
        let mut numbers: SmallVec<[u64; 8]> =
            self.tiers.iter().flat_map(|tier| [tier.limit, window(tier)]).collect();
        match self.kind {
            Kind::SlidingLog => numbers.push(MAX_COST),
            // A list of nothing would be no list: the newest request is kept, if only to count.
            Kind::MetadataList => numbers.push(self.keep.max(1) as u64),
            Kind::SingleCounter | Kind::FixedWindow => {}
        }
        numbers
    }
}

fn numbers(reply: &Value) -> Result<Vec<i64>, Failure> {
    let number = |value: &Value| match value {
        Value::Int(number) => Ok(*number),
        _ => Err(Failure::nonsense("a reply that is no number")),
    };
    match reply {
        Value::Array(values) => values.iter().map(number).collect(),
        _ => Err(Failure::nonsense("a reply that is no list")),
    }
}

/// Writing to memory does not fail.
fn written<T: fmt::Debug, E: fmt::Debug>(result: &Result<T, E>) {
    debug_assert!(result.is_ok(), "{result:?}");
}
