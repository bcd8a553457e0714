//! The audit log: changes, and their authors. Operators and rules have separate room: a client that makes rules ban
//! thousands of users pushes out no entry of an operator.

use std::{
    cmp::Reverse,
    collections::HashSet,
    sync::{Arc, OnceLock},
    time::Instant,
};

use parking_lot::{Mutex, MutexGuard, RwLock};
use serde::{Deserialize, Serialize};

use super::{
    UserNaming,
    outbox::{Outbox, Pending},
};
use crate::{limit::Clock, telemetry::Throttle};

/// Maximum number of entries of operators, and of rules; and as many of each that wait to be sent. The oldest are
/// dropped first.
pub const MAX_AUDIT_ENTRIES: usize = 1_000;
/// Entries of rules that are written to the process' log per second.
const RULE_MESSAGES: u32 = 10;
/// Longest text in an entry, in bytes.
const MAX_TEXT_BYTES: usize = 1_024;

/// The kind of author of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Author {
    /// By the admin port, or by a signal.
    Operator,
    /// A rule of `bans`.
    Rule,
}

impl Author {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::Operator, Self::Rule];
}

/// A change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Distinguishes otherwise equal entries.
    pub id: u64,
    /// Microseconds since the Unix epoch, by the clock of the instance.
    pub time: i64,
    /// The author: `operator at 127.0.0.1`, `bans.hammering`.
    pub by: String,
    /// `unblock`, `ban`, `lift`, `reset`, `drain`, `undrain`, `reload`, `not_reloaded`
    pub action: String,
    /// The changed thing: an address, a key, a policy with a key, a configuration.
    pub target: String,
    pub detail: String,
    /// The instance that changed it.
    pub instance: String,
}

impl AuditEntry {
    /// The kind of author.
    pub fn author(&self) -> Author {
        if self.by.starts_with("bans.") { Author::Rule } else { Author::Operator }
    }

    /// For the process' log: `operator at 127.0.0.1 banned ip:203.0.113.7 for 1h: scraping`.
    fn sentence(&self) -> String {
        let Self { by, target, detail, .. } = self;
        match self.action.as_str() {
            "ban" => format!("{by} banned {target} {detail}"),
            "lift" => format!("{by} lifted the ban of {target}"),
            "unblock" => format!("{by} unblocked {target}: {detail}"),
            "reset" => format!("{by} reset the limits of {target}: {detail}"),
            "drain" => format!("{by} drained {target}{}{detail}", if detail.is_empty() { "" } else { ": " }),
            "undrain" => format!("{by} undrained {target}"),
            "reload" => format!("{by} had the {detail}"),
            "not_reloaded" => format!("{by} asked for a reload, which failed, so {target} stays: {detail}"),
            action => format!("{by} changed {target} ({action}): {detail}"),
        }
    }
}

type Keeper = Box<dyn Fn(&AuditEntry) + Send + Sync>;

/// The last changes: this instance's, and those of others that append to the same shared lists.
pub struct AuditLog {
    clock: Arc<dyn Clock>,
    instance: String,
    /// Whether there are shared lists, to which [pending](AuditLog::pending) entries are appended.
    is_shared: bool,
    /// By author.
    entries: [Mutex<Entries>; Author::ALL.len()],
    names: RwLock<UserNaming>,
    /// Keeps this instance's entries for longer.
    keeper: OnceLock<Keeper>,
    /// Limits entries of rules, because a flood of them would push other messages out of the log.
    rule_messages: Mutex<Throttle>,
}

#[derive(Debug)]
struct Entries {
    /// Newest first.
    all: Vec<AuditEntry>,
    /// This instance's entries that are not in the shared list yet.
    outbox: Outbox<AuditEntry>,
}

impl AuditLog {
    /// An empty log of this instance. `is_shared`: whether instances share lists.
    pub fn new(clock: Arc<dyn Clock>, instance: impl Into<String>, is_shared: bool) -> Self {
        let entries = Author::ALL
            .map(|_| Mutex::new(Entries { all: Vec::new(), outbox: Outbox::new(MAX_AUDIT_ENTRIES) }));
        let rule_messages = Mutex::new(Throttle::of(RULE_MESSAGES));
        let (names, keeper) = (RwLock::default(), OnceLock::new());
        Self { clock, instance: instance.into(), is_shared, entries, names, keeper, rule_messages }
    }

    /// Hands each entry of this instance to `keeper` from now on. To be called once.
    pub fn keep_with(&self, keeper: impl Fn(&AuditEntry) + Send + Sync + 'static) {
        let _once = self.keeper.set(Box::new(keeper));
    }

    /// Names users in the form that `names` gives from now on.
    pub fn set_names(&self, names: UserNaming) {
        *self.names.write() = names;
    }

    /// A key in the form that may be stored.
    pub(super) fn mask_key(&self, key: &str) -> String {
        self.names.read().mask_key(key).into_owned()
    }

    fn of(&self, author: Author) -> MutexGuard<'_, Entries> {
        self.entries[author as usize].lock()
    }

    /// Adds an entry, and logs it. Of the entries by rules, only a few per second are logged.
    pub fn write(&self, by: &str, action: &str, target: &str, detail: &str) {
        let target = self.mask_key(target);
        let [by, action, target, detail] = [by, action, &target, detail].map(truncate);
        let [by, action, target, detail] = [by, action, target, detail].map(str::to_owned);
        let (time, instance) = (self.clock.now(), self.instance.clone());
        let entry = AuditEntry { id: fastrand::u64(..), time, by, action, target, detail, instance };
        self.log(&entry);
        if let Some(keep) = self.keeper.get() {
            keep(&entry);
        }
        let mut entries = self.of(entry.author());
        if self.is_shared {
            entries.outbox.push(entry.clone());
        }
        entries.add([entry]);
    }

    fn log(&self, entry: &AuditEntry) {
        let AuditEntry { by, action, target, .. } = entry;
        match entry.author() {
            Author::Operator => tracing::info!(by, action, target, "{}", entry.sentence()),
            Author::Rule => match self.rule_messages.lock().pass(Instant::now()) {
                Some(0) => tracing::info!(by, action, target, "{}", entry.sentence()),
                Some(others) => tracing::info!(by, action, target, others, "{}", entry.sentence()),
                None => {}
            },
        }
    }

    /// Up to `max` entries of one author, or of both, newest first. `after`: the time and ID of the entry after which
    /// they begin.
    pub fn entries(&self, author: Option<Author>, after: Option<(i64, u64)>, max: usize) -> Vec<AuditEntry> {
        let is_behind = |entry: &&AuditEntry| after.is_none_or(|after| position(entry) < after);
        let mut found = Vec::new();
        for author in Author::ALL.into_iter().filter(|one| author.is_none_or(|wanted| wanted == *one)) {
            found.extend(self.of(author).all.iter().filter(is_behind).take(max).cloned());
        }
        found.sort_by_key(|entry| Reverse(position(entry)));
        found.truncate(max);
        // Other instances, or this one before a reload, may have stored more.
        found.iter_mut().for_each(|entry| entry.target = self.mask_key(&entry.target));
        found
    }

    /// Up to `max` entries that are not in the author's shared list yet, oldest first.
    pub fn pending(&self, author: Author, max: usize) -> Vec<Pending<AuditEntry>> {
        self.of(author).outbox.pending(max)
    }

    /// Acknowledges that these entries were appended to the author's shared list.
    pub fn ack(&self, author: Author, sent: &[Pending<AuditEntry>]) {
        self.of(author).outbox.ack(sent);
    }

    /// Appends this instance's entries again that are not among those `found` in the author's shared list, because
    /// the list may have been lost in part.
    pub fn resend_missing(&self, author: Author, found: &[AuditEntry]) {
        let found: HashSet<_> = found.iter().map(position).collect();
        let mut entries = self.of(author);
        let Entries { all, outbox } = &mut *entries;
        outbox.clear();
        for entry in all.iter().rev() {
            if entry.instance == self.instance && !found.contains(&position(entry)) {
                outbox.push(entry.clone());
            }
        }
    }

    /// Adds entries of shared lists, in any order.
    pub fn merge(&self, found: impl IntoIterator<Item = AuditEntry>) {
        let is_short = |entry: &AuditEntry| {
            [&entry.by, &entry.action, &entry.target, &entry.detail, &entry.instance]
                .into_iter()
                .all(|text| text.len() <= MAX_TEXT_BYTES)
        };
        let short = found.into_iter().filter(is_short);
        let (operators, rules): (Vec<_>, Vec<_>) =
            short.partition(|entry| entry.author() == Author::Operator);
        self.of(Author::Operator).add(operators);
        self.of(Author::Rule).add(rules);
    }
}

impl Entries {
    fn add(&mut self, entries: impl IntoIterator<Item = AuditEntry>) {
        self.all.extend(entries);
        self.all.sort_by_key(|entry| Reverse(position(entry)));
        self.all.dedup_by_key(|entry| position(entry));
        self.all.truncate(MAX_AUDIT_ENTRIES);
    }
}

/// The position of an entry among all, in ascending order.
fn position(entry: &AuditEntry) -> (i64, u64) {
    (entry.time, entry.id)
}

fn truncate(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT_BYTES)]
}

impl std::fmt::Debug for AuditLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuditLog").field("instance", &self.instance).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::ManualClock;

    fn targets(log: &AuditLog) -> Vec<String> {
        log.entries(None, None, MAX_AUDIT_ENTRIES).into_iter().map(|entry| entry.target).collect()
    }

    #[test]
    fn each_change_is_a_sentence_in_the_log() {
        let sentence = |action: &str, target: &str, detail: &str| {
            let (by, instance) = ("operator at 127.0.0.1".to_owned(), "one".to_owned());
            let [action, target, detail] = [action, target, detail].map(str::to_owned);
            AuditEntry { id: 0, time: 0, by, action, target, detail, instance }.sentence()
        };
        for (entry, expected) in [
            (("ban", "ip:198.51.100.7", "for 1h: scraping"), "banned ip:198.51.100.7 for 1h: scraping"),
            (("lift", "ip:198.51.100.7", ""), "lifted the ban of ip:198.51.100.7"),
            (("unblock", "198.51.100.7", "1 limit cleared"), "unblocked 198.51.100.7: 1 limit cleared"),
            (("reset", "ip:198.51.100.7", "per-ip"), "reset the limits of ip:198.51.100.7: per-ip"),
            (("drain", "api http://10.0.0.5", "a new disk"), "drained api http://10.0.0.5: a new disk"),
            (("undrain", "api http://10.0.0.5", ""), "undrained api http://10.0.0.5"),
            (
                ("reload", "configuration 1a2b", "configuration reloaded: x"),
                "had the configuration reloaded: x",
            ),
            (
                ("not_reloaded", "configuration 1a2b", "proxy.yaml:3:5: error: x"),
                "asked for a reload, which failed, so configuration 1a2b stays: proxy.yaml:3:5: error: x",
            ),
        ] {
            assert_eq!(sentence(entry.0, entry.1, entry.2), format!("operator at 127.0.0.1 {expected}"));
        }
    }

    #[test]
    fn entries_are_listed_newest_first_and_the_oldest_are_dropped() {
        let clock = Arc::new(ManualClock::new(0));
        let log = AuditLog::new(Arc::clone(&clock) as Arc<dyn Clock>, "one", true);
        for n in 0..MAX_AUDIT_ENTRIES + 2 {
            clock.set(n as i64);
            log.write("operator at 127.0.0.1", "lift", &n.to_string(), "");
        }
        let newest = log.entries(None, None, 2);
        assert_eq!([&newest[0].target, &newest[1].target], ["1001", "1000"]);
        let behind = log.entries(None, Some((newest[1].time, newest[1].id)), 1);
        assert_eq!(behind[0].target, "999");
        assert_eq!(
            (log.entries(None, None, 9_999).len(), log.pending(Author::Operator, 9_999).len()),
            (MAX_AUDIT_ENTRIES, MAX_AUDIT_ENTRIES)
        );
    }

    #[test]
    fn entries_of_others_are_merged_once() {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(5));
        let (one, other) =
            (AuditLog::new(Arc::clone(&clock), "one", true), AuditLog::new(clock, "other", true));
        one.write("operator at 127.0.0.1", "lift", "ip:203.0.113.7", "");
        let sent = one.pending(Author::Operator, 9);
        one.ack(Author::Operator, &sent);
        assert_eq!(one.pending(Author::Operator, 9), []);
        for _ in 0..2 {
            other.merge(sent.iter().map(|sent| sent.item.clone()));
        }
        assert_eq!(targets(&other), ["ip:203.0.113.7"]);
        one.resend_missing(Author::Operator, &[]);
        other.resend_missing(Author::Operator, &[]);
        let pending = |log: &AuditLog| log.pending(Author::Operator, 9).len();
        assert_eq!((pending(&one), pending(&other)), (1, 0), "each sends its own");
    }

    #[test]
    fn rules_push_out_no_entry_of_an_operator() {
        let clock = Arc::new(ManualClock::new(0));
        let [here, there] =
            ["one", "other"].map(|name| AuditLog::new(Arc::clone(&clock) as Arc<dyn Clock>, name, true));
        here.write("operator at 127.0.0.1", "ban", "ip:203.0.113.7", "");
        for n in 1..=MAX_AUDIT_ENTRIES + 200 {
            clock.set(n as i64);
            here.write("bans.hammering", "ban", &format!("user:{n}"), "");
        }
        clock.set(9_999);
        here.write("SIGHUP", "reload", "configuration", "");
        let by = |log: &AuditLog, author| -> Vec<String> {
            let entries = log.entries(author, None, 9_999);
            entries.into_iter().map(|entry| entry.target).collect()
        };
        let check = |log: &AuditLog| {
            let (all, rules) = (by(log, None), by(log, Some(Author::Rule)));
            assert_eq!(by(log, Some(Author::Operator)), ["configuration", "ip:203.0.113.7"]);
            assert_eq!((rules.len(), &*rules[0]), (MAX_AUDIT_ENTRIES, "user:1200"));
            assert_eq!(
                (&all[..2], &all[1_001]),
                (&["configuration".to_owned(), rules[0].clone()][..], &"ip:203.0.113.7".to_owned())
            );
        };
        check(&here);
        let sent = Author::ALL.map(|author| here.pending(author, 9_999));
        assert_eq!(sent.each_ref().map(Vec::len), [2, MAX_AUDIT_ENTRIES]);
        there.merge(sent.into_iter().flatten().map(|sent| sent.item));
        check(&there);
        // Pages continue where the previous one ended, across both.
        let (mut after, mut read) = (None, Vec::new());
        loop {
            let page = here.entries(None, after, 300);
            let Some(last) = page.last() else { break };
            after = Some((last.time, last.id));
            read.extend(page.into_iter().map(|entry| entry.target));
        }
        assert_eq!(read, by(&here, None));
    }
}
