//! A batch: the requests that go to Redis in one call of `lua/decide.lua`. Encodes the call, and splits the reply.

use std::fmt;

use bb8_redis::redis::{Cmd, Value};
use rmp::encode;
use smallvec::SmallVec;
use tokio::{sync::oneshot, time::Instant};

use super::{description::PolicyDescription, entry, failure::Failure, key, key_set::KeySet, reply};
use crate::limit::{
    Check, Policy, Taken,
    algorithm::{AlgorithmDescription, DetailKind},
};

/// The most requests of one call. With more, the first would wait for the last, and other clients of Redis for them all.
const MAX_REQUESTS: usize = 64;
/// A cost is at most this, which no limit admits: beyond 2⁵³, Lua's numbers are not exact.
const MAX_COST: u64 = 1 << 40;

/// The script's reply to one request.
pub(super) type DecisionReply = Result<RequestReply, Failure>;

/// Whether a request is admitted (1 or 0), then the numbers of its limits. Empty for a refund.
#[derive(Debug)]
pub(super) struct RequestReply {
    /// The time of the decision, in microseconds since the Unix epoch.
    pub(super) time: i64,
    pub(super) numbers: SmallVec<[i64; 8]>,
}

/// Which requests go in one call together, and how the call names their keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// All: there is one server.
    AllKeys,
    /// All whose keys one node of a cluster has: in several slots, so that they can't be keys of the call.
    AnySlots,
    /// Those whose keys are in this slot.
    Slot(u16),
    /// One request.
    Alone,
    /// One request, to a node that is about to get its slot.
    Importing,
}

/// Requests that wait for one call. Each is encoded when it is added.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) scope: Scope,
    /// The deadline of the first of them.
    pub(super) deadline: Instant,
    /// The keys whose state is a string, which the script reads with one MGET, and the others.
    string_keys: KeySet,
    other_keys: KeySet,
    /// The policies, which requests name by their position.
    policies: SmallVec<[PolicyDescription; 4]>,
    /// Checks to refund, which the script does before any decision.
    refunds: PackedValues,
    refund_count: u64,
    refund_waiters: Vec<oneshot::Sender<DecisionReply>>,
    requests: PackedValues,
    waiters: Vec<Waiter>,
    /// The batch has one request, which must not write anything.
    is_read_only: bool,
}

/// Values in MessagePack, and their number.
#[derive(Debug, Default)]
struct PackedValues {
    bytes: Vec<u8>,
    values: usize,
}

impl PackedValues {
    fn put(&mut self, number: u64) {
        debug_assert_written(&encode::write_uint(&mut self.bytes, number));
        self.values += 1;
    }

    fn put_signed(&mut self, number: i64) {
        debug_assert_written(&encode::write_sint(&mut self.bytes, number));
        self.values += 1;
    }

    fn put_text(&mut self, text: &[u8]) {
        debug_assert_written(&encode::write_str_len(
            &mut self.bytes,
            u32::try_from(text.len()).unwrap_or(u32::MAX),
        ));
        self.bytes.extend_from_slice(text);
        self.values += 1;
    }
}

/// A request that waits for its reply, and how many numbers its reply has.
#[derive(Debug)]
struct Waiter {
    answer: oneshot::Sender<DecisionReply>,
    numbers: usize,
}

impl Batch {
    pub(super) fn new(scope: Scope, deadline: Instant) -> Self {
        Self {
            scope,
            deadline,
            string_keys: KeySet::default(),
            other_keys: KeySet::default(),
            policies: SmallVec::new(),
            refunds: PackedValues::default(),
            refund_count: 0,
            refund_waiters: Vec::new(),
            requests: PackedValues { bytes: Vec::with_capacity(256), values: 0 },
            waiters: Vec::new(),
            is_read_only: false,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiters.len() + self.refund_waiters.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.is_read_only
            || match self.scope {
                Scope::Alone | Scope::Importing => self.len() > 0,
                Scope::AllKeys | Scope::AnySlots | Scope::Slot(_) => self.len() >= MAX_REQUESTS,
            }
    }

    /// Adds a request. At most one of its checks may be on the same limit.
    pub(super) fn add(&mut self, prefix: &str, checks: &[Check<'_>]) -> oneshot::Receiver<DecisionReply> {
        let mut numbers = 1;
        let mut packed = std::mem::take(&mut self.requests);
        packed.put(checks.len() as u64);
        for check in checks {
            self.pack_check(&mut packed, prefix, check);
            numbers += reply::width(check.policy);
        }
        self.requests = packed;
        let (answer, answered) = oneshot::channel();
        self.waiters.push(Waiter { answer, numbers });
        answered
    }

    /// Makes this a batch of one request that writes nothing. At most one of its checks may be on the same limit.
    pub(super) fn look(&mut self, prefix: &str, checks: &[Check<'_>]) -> oneshot::Receiver<DecisionReply> {
        self.is_read_only = true;
        self.add(prefix, checks)
    }

    /// Adds a refund of what was taken.
    pub(super) fn refund(&mut self, prefix: &str, taken: &[Taken<'_>]) -> oneshot::Receiver<DecisionReply> {
        let mut packed = std::mem::take(&mut self.refunds);
        for Taken { check, receipt } in taken {
            self.pack_check(&mut packed, prefix, check);
            packed.put_signed(receipt.time);
        }
        self.refunds = packed;
        self.refund_count += taken.len() as u64;
        let (answer, answered) = oneshot::channel();
        self.refund_waiters.push(answer);
        answered
    }

    /// Packs a check: its limit, its policy, its cost, and the detail if its algorithm needs one.
    fn pack_check(&mut self, packed: &mut PackedValues, prefix: &str, check: &Check<'_>) {
        let policy = check.policy;
        let &AlgorithmDescription { is_string, detail, .. } = policy.kind.description();
        let keys = if is_string { &mut self.string_keys } else { &mut self.other_keys };
        let number = keys.number_of(|key| key::append(key, prefix, policy, &check.identifier));
        packed.put_signed(if is_string { number } else { -number });
        packed.put(self.describe(policy) as u64 + 1);
        packed.put(check.cost.min(MAX_COST));
        match detail {
            DetailKind::None => {}
            DetailKind::Entry => {
                let recorded = check.detail.entry().filter(|_| policy.record.keep > 0);
                packed.put_text(recorded.map(|entry| entry::encode(entry)).unwrap_or_default().as_bytes());
            }
            DetailKind::Token | DetailKind::Value => packed.put_text(&check.detail.member().to_be_bytes()),
        }
    }

    /// The policy's index in the batch.
    fn describe(&mut self, policy: &Policy) -> usize {
        self.policies.iter().position(|known| known.matches(policy)).unwrap_or_else(|| {
            self.policies.push(PolicyDescription::new(policy, self.scope != Scope::AllKeys));
            self.policies.len() - 1
        })
    }

    /// The call. `now`: the time in microseconds, if it is not Redis' own.
    pub(super) fn command(&self, hash: &str, now: Option<i64>) -> Cmd {
        let (string_keys, other_keys) = (&self.string_keys, &self.other_keys);
        let count = string_keys.len() + other_keys.len();
        let bytes =
            string_keys.bytes() + other_keys.bytes() + self.requests.bytes.len() + self.refunds.bytes.len();
        let mut command = Cmd::with_capacity(count + 5, bytes + 128);
        let are_keys = self.scope != Scope::AnySlots;
        command.arg("EVALSHA").arg(hash).arg(if are_keys { count } else { 0 });
        let limits = || string_keys.iter().chain(other_keys.iter());
        if are_keys {
            for key in limits() {
                command.arg(key);
            }
        }
        match now {
            Some(now) => command.arg(now),
            None => command.arg(""),
        };
        command.arg(self.pack());
        if self.is_read_only {
            command.arg("read_only");
        } else if !are_keys {
            command.arg("");
        }
        if !are_keys {
            for key in limits() {
                command.arg(key);
            }
        }
        command
    }

    /// The whole batch in MessagePack: the number of string keys, the policies, the number of refunds, the refunds, the
    /// requests. See ARGV[2] in `lua/decide.lua`.
    fn pack(&self) -> Vec<u8> {
        let mut head = PackedValues::default();
        head.put(self.string_keys.len() as u64);
        head.put(self.policies.len() as u64);
        for policy in &self.policies {
            head.put(policy.algorithm());
            head.put(policy.flags());
            let numbers = policy.numbers();
            head.put(numbers.len() as u64);
            for number in numbers {
                head.put(number);
            }
        }
        head.put(self.refund_count);
        let parts = [&head, &self.refunds, &self.requests];
        let values = parts.iter().map(|part| part.values).sum::<usize>();
        let mut packed = Vec::with_capacity(5 + parts.iter().map(|part| part.bytes.len()).sum::<usize>());
        debug_assert_written(&encode::write_array_len(
            &mut packed,
            u32::try_from(values).unwrap_or(u32::MAX),
        ));
        for part in parts {
            packed.extend_from_slice(&part.bytes);
        }
        packed
    }

    /// Sends each request its part of the reply. Returns how many states the script discarded. Returns an error, too, if only
    /// some requests failed for lack of memory.
    pub(super) fn answer(self, reply: Result<Value, Failure>) -> Result<u64, Failure> {
        let numbers = reply.and_then(|reply| numbers(&reply));
        let expected_len = 2 + self.waiters.iter().map(|waiter| waiter.numbers).sum::<usize>();
        let numbers = match numbers {
            Ok(numbers) if numbers.len() == expected_len => numbers,
            other => {
                let failure = other.err().unwrap_or_else(|| Failure::protocol("a reply of the wrong length"));
                let waiters = self.waiters.into_iter().map(|waiter| waiter.answer);
                for answer in waiters.chain(self.refund_waiters) {
                    let _gone = answer.send(Err(failure.clone()));
                }
                return Err(failure);
            }
        };
        let (discarded, time, mut rest) = (numbers[0], numbers[1], &numbers[2..]);
        let mut outcome = Ok(u64::try_from(discarded).unwrap_or_default());
        for Waiter { answer, numbers } in self.waiters {
            let (own, others) = rest.split_at(numbers);
            rest = others;
            let own = match own.first() {
                Some(2) => Err(Failure::out_of_memory()),
                _ => Ok(RequestReply { time, numbers: SmallVec::from_slice(own) }),
            };
            if let Err(failure) = &own {
                outcome = Err(failure.clone());
            }
            let _gone = answer.send(own);
        }
        for answer in self.refund_waiters {
            let _gone = answer.send(Ok(RequestReply { time, numbers: SmallVec::new() }));
        }
        outcome
    }
}

fn numbers(reply: &Value) -> Result<Vec<i64>, Failure> {
    let number = |value: &Value| match value {
        Value::Int(number) => Ok(*number),
        _ => Err(Failure::protocol("a reply that is not a number")),
    };
    match reply {
        Value::Array(values) => values.iter().map(number).collect(),
        _ => Err(Failure::protocol("a reply that is not a list")),
    }
}

/// Writing to memory does not fail.
fn debug_assert_written<T: fmt::Debug, E: fmt::Debug>(result: &Result<T, E>) {
    debug_assert!(result.is_ok(), "{result:?}");
}
