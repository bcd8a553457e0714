//! A batch: the requests that go to Redis in one call of `lua/decide.lua`. Encodes the call, and splits the reply.

use std::fmt;

use bb8_redis::redis::{Cmd, Value};
use rmp::{decode, encode};
use smallvec::SmallVec;
use tokio::{sync::oneshot, time::Instant};

use super::{description::PolicyDescription, entry, failure::Failure, key, key_set::LimitKeys, reply};
use crate::limit::{
    Check, Policy, Taken,
    algorithm::{AlgorithmDescription, DetailKind},
};

/// Most requests in one call. With more, the first would wait for the last, and Redis' other clients for all of them.
const MAX_REQUESTS: usize = 64;
/// Most numbers in a reply: Lua passes at most 8,000 values in a function call.
const MAX_NUMBERS: usize = 4_000;
/// The bytes of a number in the reply.
const NUMBER: usize = 8;
/// Upper bound of a cost, which no limit admits (they are 1 PiB at most): Lua's numbers are not exact beyond 2⁵³.
const MAX_COST: u64 = 1 << 51;

/// The script's reply to one request.
pub(super) type DecisionReply = Result<RequestReply, Failure>;

/// The script's reply to one request. The reply to a refund has only the time.
#[derive(Debug)]
pub(super) struct RequestReply {
    /// The time of the decision, in microseconds since the Unix epoch.
    pub(super) time: i64,
    pub(super) admitted: bool,
    /// The status of each limit.
    pub(super) numbers: SmallVec<[i64; 8]>,
}

/// Which requests share a call, and how the call names their keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BatchScope {
    /// All requests: there is one server.
    AllKeys,
    /// Requests whose keys are on one node of a cluster, in several slots, so that they can't be keys of the call.
    AnySlots,
    /// Requests whose keys are in this slot.
    Slot(u16),
    /// One request.
    Alone,
    /// One request, to a node that is importing its slot.
    Importing,
}

/// Requests that wait for one call, each encoded when it is added.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) scope: BatchScope,
    /// The deadline of the first of them.
    pub(super) deadline: Instant,
    /// Keys whose state is a string, which the script reads with one MGET, and the other keys.
    string_keys: LimitKeys,
    other_keys: LimitKeys,
    /// The policies; requests refer to them by position.
    policies: SmallVec<[PolicyDescription; 4]>,
    /// Settlements, which the script does before all decisions.
    settlements: PackedValues,
    settlement_count: u64,
    settlement_waiters: Vec<oneshot::Sender<DecisionReply>>,
    /// The limits of all requests, and the details.
    requests: PackedValues,
    runs: Vec<SamePolicies>,
    waiters: Vec<Waiter>,
    /// Numbers in the reply, after the first two.
    reply_len: usize,
    /// Whether the batch is one request that must not write anything.
    is_read_only: bool,
}

/// Successive requests that differ in their limits alone: the script looks up their policies once.
#[derive(Debug)]
struct SamePolicies {
    requests: u64,
    /// The policy and the cost of each check of a request.
    terms: SmallVec<[Terms; 2]>,
    /// Their end in [`Batch::requests`].
    end: usize,
}

/// The number of a policy in the batch, from 1, and a cost.
type Terms = (u64, u64);

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

    fn put_terms(&mut self, (policy, cost): Terms) {
        self.put(policy);
        self.put(cost);
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

/// A request that waits for its reply, and the reply's length in numbers.
#[derive(Debug)]
struct Waiter {
    /// `None`: it has timed out.
    sender: Option<oneshot::Sender<DecisionReply>>,
    numbers: usize,
}

/// The outcome of a batch.
#[derive(Debug)]
pub(super) struct Distributed {
    /// The number of states that the script discarded.
    pub(super) discarded: u64,
    /// The time of the decisions.
    time: i64,
    /// The requests that took units, and no longer wait for their replies, by index.
    abandoned: Vec<usize>,
}

impl Batch {
    pub(super) fn new(scope: BatchScope, deadline: Instant) -> Self {
        Self {
            scope,
            deadline,
            string_keys: LimitKeys::default(),
            other_keys: LimitKeys::default(),
            policies: SmallVec::new(),
            settlements: PackedValues::default(),
            settlement_count: 0,
            settlement_waiters: Vec::new(),
            requests: PackedValues { bytes: Vec::with_capacity(256), values: 0 },
            runs: Vec::new(),
            waiters: Vec::new(),
            reply_len: 0,
            is_read_only: false,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiters.len() + self.settlement_waiters.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.is_read_only
            || match self.scope {
                BatchScope::Alone | BatchScope::Importing => self.len() > 0,
                BatchScope::AllKeys | BatchScope::AnySlots | BatchScope::Slot(_) => {
                    self.len() >= MAX_REQUESTS || self.reply_len >= MAX_NUMBERS
                }
            }
    }

    /// Adds a request. At most one of its checks may be on the same limit.
    pub(super) fn add(&mut self, prefix: &str, checks: &[Check<'_>]) -> oneshot::Receiver<DecisionReply> {
        let mut numbers = 0;
        let mut packed = std::mem::take(&mut self.requests);
        let mut terms = SmallVec::new();
        for check in checks {
            terms.push(self.terms(check));
            self.pack_limit(&mut packed, prefix, check);
            numbers += reply::width(check.policy);
        }
        let end = packed.bytes.len();
        self.requests = packed;
        match self.runs.last_mut() {
            Some(run) if run.terms == terms => {
                run.requests += 1;
                run.end = end;
            }
            _ => self.runs.push(SamePolicies { requests: 1, terms, end }),
        }
        self.reply_len += 1 + numbers;
        let (sender, receiver) = oneshot::channel();
        self.waiters.push(Waiter { sender: Some(sender), numbers });
        receiver
    }

    /// Makes this a batch of one request that writes nothing. At most one of its checks may be on the same limit.
    pub(super) fn look(&mut self, prefix: &str, checks: &[Check<'_>]) -> oneshot::Receiver<DecisionReply> {
        self.is_read_only = true;
        self.add(prefix, checks)
    }

    /// Adds a settlement.
    pub(super) fn settle(&mut self, prefix: &str, taken: &[Taken<'_>]) -> oneshot::Receiver<DecisionReply> {
        let mut packed = std::mem::take(&mut self.settlements);
        for Taken { check, receipt, actual } in taken {
            let (policy, cost) = self.terms(check);
            packed.put(policy);
            packed.put_signed(cost.cast_signed() - actual.min(&MAX_COST).cast_signed());
            self.pack_limit(&mut packed, prefix, check);
            packed.put_signed(receipt.time);
        }
        self.settlements = packed;
        self.settlement_count += taken.len() as u64;
        let (sender, receiver) = oneshot::channel();
        self.settlement_waiters.push(sender);
        receiver
    }

    fn terms(&mut self, check: &Check<'_>) -> Terms {
        (self.describe(check.policy) as u64 + 1, check.cost.min(MAX_COST))
    }

    /// Packs a check's limit, and the detail if its algorithm needs one.
    fn pack_limit(&mut self, packed: &mut PackedValues, prefix: &str, check: &Check<'_>) {
        let policy = check.policy;
        let &AlgorithmDescription { is_string, detail, .. } = policy.kind.description();
        let keys = if is_string { &mut self.string_keys } else { &mut self.other_keys };
        let number = keys.number_of(|key| key::append(key, prefix, policy, &check.identifier));
        packed.put_signed(if is_string { number } else { -number });
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
            self.policies.push(PolicyDescription::new(policy, self.scope != BatchScope::AllKeys));
            self.policies.len() - 1
        })
    }

    /// Whether some limits have windows of the calendar.
    pub(super) fn has_calendar(&self) -> bool {
        self.policies.iter().any(PolicyDescription::has_calendar)
    }

    /// The call. `now`: the time in microseconds; `None`: Redis' own. `about`: about what time it is for Redis, for windows
    /// of the calendar.
    pub(super) fn command(&self, hash: &str, now: Option<i64>, about: i64) -> Cmd {
        let (string_keys, other_keys) = (&self.string_keys, &self.other_keys);
        let count = string_keys.len() + other_keys.len();
        let bytes = string_keys.bytes()
            + other_keys.bytes()
            + self.requests.bytes.len()
            + self.settlements.bytes.len();
        let mut command = Cmd::with_capacity(count + 5, bytes + 128);
        let are_keys = self.scope != BatchScope::AnySlots;
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
        command.arg(self.pack(about));
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

    /// The whole batch in MessagePack: the number of string keys, the policies, the number of settlements, the settlements, the
    /// runs of requests. See ARGV[2] in `lua/decide.lua`.
    fn pack(&self, about: i64) -> Vec<u8> {
        let mut head = PackedValues::default();
        head.put(self.string_keys.len() as u64);
        head.put(self.policies.len() as u64);
        for policy in &self.policies {
            head.put(policy.algorithm());
            head.put(policy.flags());
            let (numbers, bounds) = (policy.numbers(), policy.window_bounds(about));
            head.put((numbers.len() + bounds.len()) as u64);
            for number in numbers {
                head.put(number);
            }
            for instant in bounds {
                head.put_signed(instant);
            }
        }
        head.put(self.settlement_count);
        let of_runs = self.runs.iter().map(|run| 2 + 2 * run.terms.len()).sum::<usize>();
        let values = head.values + self.settlements.values + of_runs + self.requests.values;
        let bytes = head.bytes.len() + self.settlements.bytes.len() + 9 * of_runs + self.requests.bytes.len();
        let mut packed = PackedValues { bytes: Vec::with_capacity(5 + bytes), values: 0 };
        debug_assert_written(&encode::write_array_len(
            &mut packed.bytes,
            u32::try_from(values).unwrap_or(u32::MAX),
        ));
        packed.bytes.extend_from_slice(&head.bytes);
        packed.bytes.extend_from_slice(&self.settlements.bytes);
        let mut begin = 0;
        for SamePolicies { requests, terms, end } in &self.runs {
            packed.put(*requests);
            packed.put(terms.len() as u64);
            for &each in terms {
                packed.put_terms(each);
            }
            packed.bytes.extend_from_slice(&self.requests.bytes[begin..*end]);
            begin = *end;
        }
        packed.bytes
    }

    /// Sends each request its part of the reply, and passes the keys whose values can't be ours to `spoilt`. A late reply
    /// may follow an error. Returns an error, too, if only some requests failed for lack of memory.
    pub(super) fn distribute(
        &mut self,
        reply: Result<Value, Failure>,
        mut spoilt: impl FnMut(&[u8]),
    ) -> Result<Distributed, Failure> {
        let most_spoilt = self.string_keys.len() + self.other_keys.len();
        let lengths = 2 + self.reply_len..=2 + self.reply_len + most_spoilt;
        let reply = reply.and_then(|reply| match reply {
            Value::BulkString(bytes)
                if bytes.len() % NUMBER == 0 && lengths.contains(&(bytes.len() / NUMBER)) =>
            {
                Ok(bytes)
            }
            Value::BulkString(_) => Err(Failure::protocol("a reply of the wrong length")),
            _ => Err(Failure::protocol("a reply that is not a string")),
        });
        let reply = match reply {
            Ok(reply) => reply,
            Err(failure) => {
                let waiters = self.waiters.iter_mut().filter_map(|waiter| waiter.sender.take());
                for sender in waiters.chain(self.settlement_waiters.drain(..)) {
                    let _gone = sender.send(Err(failure.clone()));
                }
                return Err(failure);
            }
        };
        let (numbers, _) = reply.as_chunks::<NUMBER>();
        // All are integers, which Lua represents as doubles.
        let mut rest = numbers.iter().map(|&number| f64::from_le_bytes(number) as i64);
        let mut next = || rest.next().unwrap_or_default();
        let (discarded, time) = (next(), next());
        let outcome = u64::try_from(discarded).map_err(|_| Failure::out_of_memory());
        let mut abandoned = Vec::new();
        for (index, Waiter { sender, numbers }) in self.waiters.iter_mut().enumerate() {
            let admitted = next();
            let numbers = (0..*numbers).map(|_| next()).collect();
            let reply = match admitted {
                // The request was to be counted, or was denied because another was.
                1 | -1 if outcome.is_err() => Err(Failure::out_of_memory()),
                SPOILT => Err(Failure::spoilt()),
                _ => Ok(RequestReply { time, admitted: admitted > 0, numbers }),
            };
            let is_delivered = sender.take().is_some_and(|sender| sender.send(reply).is_ok());
            if admitted == 1 && !is_delivered && !self.is_read_only {
                abandoned.push(index);
            }
        }
        for sender in self.settlement_waiters.drain(..) {
            let settled = RequestReply { time, admitted: true, numbers: SmallVec::new() };
            let _gone =
                sender.send(if outcome.is_ok() { Ok(settled) } else { Err(Failure::out_of_memory()) });
        }
        for number in rest {
            let keys = if number > 0 { &self.string_keys } else { &self.other_keys };
            let key =
                usize::try_from(number.unsigned_abs()).ok().and_then(|nth| keys.get(nth.checked_sub(1)?));
            key.into_iter().for_each(&mut spoilt);
        }
        outcome.map(|discarded| Distributed { discarded, time, abandoned })
    }

    /// Builds the batch that refunds the units of abandoned requests; `None` if there are none. It skips shadow policies,
    /// since the reply does not say whether they took units.
    pub(super) fn undo(self, distributed: &Distributed, deadline: Instant) -> Option<Self> {
        if distributed.abandoned.is_empty() {
            return None;
        }
        let mut undo = Self {
            string_keys: self.string_keys,
            other_keys: self.other_keys,
            policies: self.policies,
            ..Self::new(self.scope, deadline)
        };
        let mut rest = self.requests.bytes.as_slice();
        let requests = self.runs.iter().flat_map(|run| (0..run.requests).map(|_| &run.terms));
        for (index, terms) in requests.enumerate() {
            let is_abandoned = distributed.abandoned.binary_search(&index).is_ok();
            for &(number, cost) in terms {
                let policy = undo.policies.get(usize::try_from(number).ok()?.checked_sub(1)?)?;
                let limit = decode::read_int::<i64, _>(&mut rest).ok()?;
                let detail = match policy.has_detail() {
                    true => {
                        let length = usize::try_from(decode::read_str_len(&mut rest).ok()?).ok()?;
                        rest.split_off(..length)
                    }
                    false => None,
                };
                if is_abandoned && !policy.is_shadow() && cost > 0 {
                    undo.settlements.put(number);
                    undo.settlements.put(cost);
                    undo.settlements.put_signed(limit);
                    if let Some(detail) = detail {
                        undo.settlements.put_text(detail);
                    }
                    undo.settlements.put_signed(distributed.time);
                    undo.settlement_count += 1;
                }
            }
        }
        // It counts as one request, so that none joins it where each is sent alone.
        undo.settlement_waiters.push(oneshot::channel().0);
        Some(undo)
    }
}

/// The time of a reply, by which Redis has decided, or has decided nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplyTime {
    Decided(i64),
    /// No window of the call held the time, and nothing was taken.
    NoWindow(i64),
}

/// When Redis has replied. `None`: the reply is not one of the script's.
pub(super) fn time_of(reply: &Value) -> Option<ReplyTime> {
    let Value::BulkString(bytes) = reply else { return None };
    let (numbers, _) = bytes.as_chunks::<NUMBER>();
    let [first, time, ..] = *numbers else { return None };
    let time = f64::from_le_bytes(time) as i64;
    let is_decided = f64::from_le_bytes(first) as i64 != NO_WINDOW;
    Some(if is_decided { ReplyTime::Decided(time) } else { ReplyTime::NoWindow(time) })
}

/// Stands for a request that was not decided, since the value of a limit can't be ours.
const SPOILT: i64 = -3;
/// The first number of a reply that has decided nothing.
const NO_WINDOW: i64 = -2;

/// Writing to memory does not fail.
fn debug_assert_written<T: fmt::Debug, E: fmt::Debug>(result: &Result<T, E>) {
    debug_assert!(result.is_ok(), "{result:?}");
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        config::model::{self, Algorithm},
        limit::{PolicyId, algorithm::Detail},
    };

    fn policy(id: u32) -> Policy {
        let keys = vec![model::KeyRecipe(vec![model::KeyPart::Ip])];
        let rates = vec![model::Rate { limit: 10, window: Duration::from_secs(60) }];
        Policy::new(&model::Policy::new("p", Algorithm::FixedWindow, keys, rates), PolicyId(id))
    }

    fn batch_of(costs: &[(&Policy, u64)]) -> (Batch, Vec<oneshot::Receiver<DecisionReply>>) {
        let mut batch = Batch::new(BatchScope::AllKeys, Instant::now());
        let mut add = |&(policy, cost): &(&Policy, u64)| {
            batch.add("ratelimit", &[Check { policy, identifier: "ip:1".into(), cost, detail: Detail::None }])
        };
        let receivers = costs.iter().map(&mut add).collect();
        (batch, receivers)
    }

    fn reply(numbers: &[i64]) -> Value {
        Value::BulkString(numbers.iter().flat_map(|&number| (number as f64).to_le_bytes()).collect())
    }

    #[test]
    fn successive_requests_with_the_same_terms_are_one_run() {
        let (one, other) = (policy(0), policy(1));
        let (batch, _) =
            batch_of(&[(&one, 1), (&one, 1), (&one, 5), (&other, 5), (&other, 5), (&other, 5), (&one, 1)]);
        let runs: Vec<_> = batch.runs.iter().map(|run| (run.requests, run.terms.to_vec())).collect();
        assert_eq!(runs, [(2, vec![(1, 1)]), (1, vec![(1, 5)]), (3, vec![(2, 5)]), (1, vec![(1, 1)])]);
    }

    #[test]
    fn each_request_gets_its_part_of_the_reply() {
        let policy = policy(0);
        let (mut batch, mut receivers) = batch_of(&[(&policy, 1), (&policy, 0), (&policy, 20)]);
        let written = reply(&[3, 1_800_000_000_000_000, 1, 4, 60_000_000, 2, 5, 59_999_999, 0, 5, 1]);
        assert!(batch.distribute(Ok(written), |_| ()).is_ok_and(|outcome| outcome.discarded == 3));
        let mut next = || receivers.remove(0).try_recv().unwrap().unwrap();
        for (admitted, numbers) in [(true, [4, 60_000_000]), (true, [5, 59_999_999]), (false, [5, 1])] {
            let reply = next();
            assert_eq!((reply.time, reply.admitted), (1_800_000_000_000_000, admitted));
            assert_eq!(reply.numbers[..], numbers);
        }
    }

    #[test]
    fn where_memory_lacks_only_requests_that_were_to_be_counted_fail() {
        let policy = policy(0);
        let (mut batch, mut receivers) =
            batch_of(&[(&policy, 1), (&policy, 20), (&policy, 0), (&policy, 20)]);
        let written = reply(&[-1, 7, 1, 4, 6, -1, 4, 6, 2, 4, 6, 0, 4, 6]);
        assert!(batch.distribute(Ok(written), |_| ()).is_err());
        let mut next = || receivers.remove(0).try_recv().unwrap();
        assert!(next().is_err());
        assert!(next().is_err(), "it was denied because the first was counted");
        assert!(next().is_ok_and(|reply| reply.admitted));
        assert!(next().is_ok_and(|reply| !reply.admitted));
    }

    #[test]
    fn spoilt_limits_are_named_and_fail_only_the_requests_that_the_script_names() {
        let policy = policy(0);
        let (mut batch, mut receivers) = batch_of(&[(&policy, 1), (&policy, 1)]);
        let mut keys = Vec::new();
        let outcome =
            batch.distribute(Ok(reply(&[0, 7, -3, 0, 6, 1, 0, 6, 1])), |key| keys.push(key.to_vec()));
        assert!(outcome.is_ok());
        assert_eq!(keys, [b"ratelimit:{ip:1}:p:fw.1m"]);
        assert!(receivers.remove(0).try_recv().unwrap().is_err());
        assert!(receivers.remove(0).try_recv().unwrap().is_ok_and(|reply| reply.admitted));
    }

    #[test]
    fn a_reply_that_is_none_fails_all() {
        let policy = policy(0);
        let too_long = reply(&[0, 7, 1, 4, 6, 1, 1, 1]);
        for written in [reply(&[0, 7, 1, 4]), too_long, Value::Array(Vec::new()), Value::Nil] {
            let (mut batch, mut receivers) = batch_of(&[(&policy, 1)]);
            assert!(batch.distribute(Ok(written), |_| ()).is_err());
            assert!(receivers.remove(0).try_recv().unwrap().is_err());
        }
    }

    #[test]
    fn a_reply_that_has_decided_nothing_has_the_time() {
        assert_eq!(time_of(&reply(&[-2, 7])), Some(ReplyTime::NoWindow(7)));
        assert_eq!(time_of(&reply(&[0, 7, 1, 4, 6])), Some(ReplyTime::Decided(7)));
        assert_eq!(time_of(&reply(&[-1, 7])), Some(ReplyTime::Decided(7)), "of settlements, without memory");
        assert_eq!((time_of(&reply(&[-2])), time_of(&Value::Nil)), (None, None));
    }
}
