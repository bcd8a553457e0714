//! The order in which Kong tries routes.

use std::{cmp::Reverse, collections::BTreeSet};

use super::values::number;
use crate::offline::convert::{
    SourceLine,
    condition::RequestCondition,
    document::Fields,
    path::Path,
    site::{Effect, SiteRule},
};

/// How early a route is tried: the greater, the earlier. It is that of the default router since 3.0,
/// `traditional_compatible` (kong/router/transform.lua, `get_priority`): how many kinds of conditions the route has,
/// whether all hosts are plain, how many headers, whether its path is an expression, of which priority, and its length.
pub(super) type Rank = (usize, bool, usize, bool, u64, usize);

/// `path`: its length, and whether it is an expression.
pub(super) fn rank(kinds: &BTreeSet<&str>, fields: &Fields<'_>, path: Option<(usize, bool)>) -> Rank {
    let hosts = fields.texts("hosts");
    let has_plain_hosts = !hosts.is_empty() && hosts.iter().all(|host| !host.contains('*'));
    let headers = fields.fields("headers").each().len();
    // A route whose priority cannot be read is closed: it comes first.
    let priority = number(fields, "regex_priority").map_or(u64::MAX, |priority| priority.unwrap_or(0));
    let count = kinds.len() + usize::from(path.is_some());
    match path.unwrap_or_default() {
        (_, true) => (count, has_plain_hosts, headers, true, priority, 0),
        (length, false) => (count, has_plain_hosts, headers, false, 0, length),
    }
}

/// A route with one of its paths.
pub(super) struct OrderedRoute {
    pub(super) rank: Rank,
    pub(super) when: RequestCondition,
    pub(super) path: Option<Path>,
    /// Unless some stand for several. Empty: every host.
    pub(super) hosts: BTreeSet<String>,
    pub(super) place: SourceLine,
    pub(super) name: String,
    pub(super) rules: Vec<SiteRule>,
}

/// The rules of all entries. Kong tries those of one rank in the order of their IDs, which a file does not tell: requests
/// to two of them are closed.
pub(super) fn rules(mut entries: Vec<OrderedRoute>) -> Vec<SiteRule> {
    entries.sort_by_key(|entry| Reverse(entry.rank));
    let mut rules = Vec::new();
    for (nth, entry) in entries.iter().enumerate() {
        for other in entries.iter().skip(nth + 1).take_while(|other| other.rank == entry.rank) {
            if entry.may_meet(other) && entry.effects() != other.effects() {
                let text = format!("Kong does not say whether it tries it before the route `{}`", other.name);
                let both = entry.when.clone().and(other.when.clone());
                rules.push(SiteRule::new(both, Effect::Close(text), &entry.place, entry.name.as_str()));
            }
        }
        let inner = Effect::Enter(entry.rules.clone());
        rules.push(SiteRule::new(entry.when.clone(), inner, &entry.place, entry.name.as_str()));
    }
    rules
}

impl OrderedRoute {
    /// Whether some requests may meet both.
    fn may_meet(&self, other: &Self) -> bool {
        let differ =
            !self.hosts.is_empty() && !other.hosts.is_empty() && self.hosts.is_disjoint(&other.hosts);
        let paths = self.path.as_ref().zip(other.path.as_ref());
        !differ && paths.is_none_or(|(one, other)| one.and(other) != Ok(None))
    }

    /// What it does, without its name.
    fn effects(&self) -> Vec<(&RequestCondition, &Effect)> {
        let effects = self.rules.iter().map(|rule| (&rule.when, &rule.effect));
        effects.filter(|(_, effect)| !matches!(effect, Effect::Name(_))).collect()
    }
}
