//! The requests that a route selects, as a set: it can be split by a test, and compared.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    condition::{HostCondition, Test, ValueKind},
    path::{Inexpressible, Path},
    yaml::Map,
};

/// The conditions on a request. All must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Requests {
    /// `None`: every listener.
    pub(super) listeners: Option<BTreeSet<String>>,
    /// `None`: every host.
    pub(super) hosts: Option<BTreeSet<HostCondition>>,
    pub(super) path: Path,
    /// `None`: every method.
    pub(super) methods: Option<BTreeSet<String>>,
    pub(super) values: BTreeMap<(ValueKind, String), String>,
}

/// The requests that pass a test, that fail it, and those where Tollgate cannot tell.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TestSplit {
    All,
    None,
    /// These requests meet the test, or not, and those that are left do not meet it. They are tried in this order.
    Parts(Vec<(Requests, bool)>),
}

impl HostCondition {
    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Below(suffix), Self::Exact(name) | Self::Below(name)) => {
                self == other || name.strip_suffix(suffix.as_str()).is_some_and(|rest| rest.ends_with('.'))
            }
            (Self::Exact(_), _) => self == other,
        }
    }
}

impl Requests {
    /// Splits these requests by a test.
    ///
    /// # Errors
    /// A route cannot select those that meet it.
    pub(super) fn split(&self, test: &Test) -> Result<TestSplit, Inexpressible> {
        let part = |part: Self| TestSplit::Parts(vec![(part, true)]);
        Ok(match test {
            Test::Addresses(_) => return Err(Inexpressible),
            Test::Listeners(some) => match common(self.listeners.as_ref(), some) {
                Common::All => TestSplit::All,
                Common::None => TestSplit::None,
                Common::Some(both) => part(Self { listeners: Some(both), ..self.clone() }),
            },
            Test::Hosts(some) => self.split_hosts(some),
            Test::Path(path) => match self.path.and(path)? {
                None => TestSplit::None,
                Some(both) if both == self.path => TestSplit::All,
                Some(path) => part(Self { path, ..self.clone() }),
            },
            Test::Methods(some) => match common(self.methods.as_ref(), some) {
                Common::All => TestSplit::All,
                Common::None => TestSplit::None,
                Common::Some(both) => {
                    let mut parts = Vec::new();
                    // A route for GET takes HEAD, too.
                    let has_head = self.methods.as_ref().is_none_or(|methods| methods.contains("HEAD"));
                    if both.contains("GET") && !both.contains("HEAD") && has_head {
                        parts.push((
                            Self { methods: Some(["HEAD".to_owned()].into()), ..self.clone() },
                            false,
                        ));
                    }
                    parts.push((Self { methods: Some(both), ..self.clone() }, true));
                    TestSplit::Parts(parts)
                }
            },
            Test::Value { kind, name, value } => match self.values.get(&(*kind, name.clone())) {
                Some(known) if known == value => TestSplit::All,
                // A request may have both values, in two lines of one name: this is one of the standing differences.
                Some(_) => TestSplit::None,
                None => {
                    let mut both = self.clone();
                    both.values.insert((*kind, name.clone()), value.clone());
                    part(both)
                }
            },
        })
    }

    fn split_hosts(&self, some: &BTreeSet<HostCondition>) -> TestSplit {
        if some.is_empty() {
            return TestSplit::None;
        }
        let Some(own) = &self.hosts else {
            return TestSplit::Parts(vec![(Self { hosts: Some(some.clone()), ..self.clone() }, true)]);
        };
        let narrower = |host: &HostCondition, others: &BTreeSet<HostCondition>| {
            others.iter().any(|other| other.covers(host))
        };
        if own.iter().all(|host| narrower(host, some)) {
            return TestSplit::All;
        }
        let both: BTreeSet<HostCondition> = own
            .iter()
            .filter(|host| narrower(host, some))
            .chain(some.iter().filter(|host| narrower(host, own)))
            .cloned()
            .collect();
        match both.is_empty() {
            true => TestSplit::None,
            false => TestSplit::Parts(vec![(Self { hosts: Some(both), ..self.clone() }, true)]),
        }
    }

    /// Whether every request of `other` is one of these.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let covers_hosts = || match (&self.hosts, &other.hosts) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(some), Some(others)) => {
                others.iter().all(|other| some.iter().any(|host| host.covers(other)))
            }
        };
        self.values.iter().all(|(name, value)| other.values.get(name) == Some(value))
            && is_within(other.listeners.as_ref(), self.listeners.as_ref())
            && covers_hosts()
            && self.covers_methods(other)
            && self.path.covers(&other.path)
    }

    fn covers_methods(&self, other: &Self) -> bool {
        let follows_get = |method: &String| {
            method == "HEAD" && self.methods.as_ref().is_some_and(|own| own.contains("GET"))
        };
        match (&self.methods, &other.methods) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(own), Some(others)) => {
                others.iter().all(|method| own.contains(method) || follows_get(method))
            }
        }
    }

    /// One route for both, if they differ only in their hosts, or only in their methods.
    pub(super) fn merged(&self, other: &Self) -> Option<Self> {
        fn joined<T: Ord + Clone>(
            one: Option<&BTreeSet<T>>,
            other: Option<&BTreeSet<T>>,
        ) -> Option<BTreeSet<T>> {
            one.zip(other).map(|(one, other)| one.union(other).cloned().collect())
        }
        if (Self { hosts: self.hosts.clone(), ..other.clone() }) == *self {
            let hosts = joined(self.hosts.as_ref(), other.hosts.as_ref());
            return Some(Self { hosts, ..self.clone() });
        }
        if (Self { methods: self.methods.clone(), ..other.clone() }) == *self {
            let methods = joined(self.methods.as_ref(), other.methods.as_ref());
            return Some(Self { methods, ..self.clone() });
        }
        None
    }

    /// Sets the conditions of a route, but for its listeners.
    pub(super) fn write(&self, path: &str, route: &mut Map) {
        if let Some(hosts) = &self.hosts {
            let written = hosts.iter().map(|host| match host {
                HostCondition::Exact(name) => name.clone(),
                HostCondition::Below(name) => format!("*.{name}"),
            });
            route.set("hosts", written.collect::<Vec<_>>());
        }
        route.set("path", path);
        if let Some(methods) = &self.methods {
            let of_get = |method: &&String| *method != "HEAD" || !methods.contains("GET");
            route.set("methods", methods.iter().filter(of_get).cloned().collect::<Vec<_>>());
        }
        for ((kind, name), value) in &self.values {
            route.change(kind.key(), |values| values.set(name, value.as_str()));
        }
    }
}

enum Common {
    All,
    None,
    Some(BTreeSet<String>),
}

/// The intersection of `some` with all, or with `own`.
fn common(own: Option<&BTreeSet<String>>, some: &BTreeSet<String>) -> Common {
    let Some(own) = own.filter(|_| !some.is_empty()) else {
        return if some.is_empty() { Common::None } else { Common::Some(some.clone()) };
    };
    let both: BTreeSet<_> = own.intersection(some).cloned().collect();
    match (both.len() == own.len(), both.is_empty()) {
        (true, _) => Common::All,
        (_, true) => Common::None,
        _ => Common::Some(both),
    }
}

fn is_within(some: Option<&BTreeSet<String>>, all: Option<&BTreeSet<String>>) -> bool {
    match (some, all) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(some), Some(all)) => some.is_subset(all),
    }
}
