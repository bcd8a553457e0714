//! The condition of a rule of another proxy on a request.

use std::collections::BTreeSet;

use super::{networks::Networks, path::Path};

/// A condition of a rule, on the request as it is when the rule runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RequestCondition {
    Test(Test),
    Not(Box<RequestCondition>),
    All(Vec<RequestCondition>),
    Any(Vec<RequestCondition>),
    /// Holds wherever `inner` holds, and only where `outer` holds. Tollgate cannot tell which of the requests between
    /// the two meet it.
    Between {
        inner: Box<RequestCondition>,
        outer: Box<RequestCondition>,
        why: Doubt,
    },
}

/// Why Tollgate cannot tell whether a condition holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Doubt {
    pub(super) text: String,
    /// It is the host, the path or the listener that cannot be told.
    pub(super) is_of_place: bool,
}

/// What Tollgate compares, and compares as the source does. The differences that remain are the standing ones of
/// docs/migration/README.md.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Test {
    Hosts(BTreeSet<HostCondition>),
    Path(Path),
    /// Each by itself: GET is not HEAD.
    Methods(BTreeSet<String>),
    /// One of the values that the request has for this name.
    Value {
        kind: ValueKind,
        name: String,
        value: String,
    },
    Addresses(Networks),
    /// The names of listeners.
    Listeners(BTreeSet<String>),
}

/// A host without a port, in lower case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HostCondition {
    Exact(String),
    /// Every name below this one.
    Below(String),
}

/// Whether this can be a host of a route, but for its case.
pub(super) fn is_host(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ValueKind {
    Header,
    Query,
    Cookie,
}

impl ValueKind {
    /// The key of a route.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Header => "headers",
            Self::Query => "query",
            Self::Cookie => "cookie",
        }
    }
}

/// Whether a condition holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Truth {
    True,
    False,
    Unknown(Doubt),
}

impl From<bool> for Truth {
    fn from(value: bool) -> Self {
        if value { Self::True } else { Self::False }
    }
}

impl From<bool> for RequestCondition {
    fn from(holds: bool) -> Self {
        if holds { Self::ALWAYS } else { Self::NEVER }
    }
}

impl From<Test> for RequestCondition {
    fn from(test: Test) -> Self {
        Self::Test(test)
    }
}

/// The methods that every Tollgate knows.
const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

/// Whether a route can have this method. A name that differs from a known one in a letter is read as a misspelling.
fn is_method(method: &str) -> bool {
    let is_usual = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    let is_near = |known: &&str| strsim::damerau_levenshtein(known, method) <= 1;
    METHODS.contains(&method)
        || method.starts_with(|c: char| c.is_ascii_uppercase())
            && method.bytes().all(is_usual)
            && !METHODS.iter().any(is_near)
            && !matches!(method, "ANY" | "ALL")
}

impl RequestCondition {
    pub(super) const ALWAYS: Self = Self::All(Vec::new());
    pub(super) const NEVER: Self = Self::Any(Vec::new());

    /// A condition on something that Tollgate does not compare. `why` is the reason, for a note.
    pub(super) fn unknown(why: impl Into<String>) -> Self {
        Self::between(Self::NEVER, Self::ALWAYS, why)
    }

    /// A condition on the host, the path or the listener that Tollgate cannot compare.
    pub(super) fn unknown_place(why: impl Into<String>) -> Self {
        Self::between_places(Self::NEVER, Self::ALWAYS, why)
    }

    /// A condition that holds wherever `inner` holds, and only where `outer` holds.
    pub(super) fn between(inner: Self, outer: Self, why: impl Into<String>) -> Self {
        let why = Doubt { text: why.into(), is_of_place: false };
        Self::Between { inner: Box::new(inner), outer: Box::new(outer), why }
    }

    /// The same for a condition on the host, the path or the listener that can only be bounded.
    pub(super) fn between_places(inner: Self, outer: Self, why: impl Into<String>) -> Self {
        let why = Doubt { text: why.into(), is_of_place: true };
        Self::Between { inner: Box::new(inner), outer: Box::new(outer), why }
    }

    pub(super) fn not(self) -> Self {
        match self {
            Self::Not(inner) => *inner,
            never if never == Self::NEVER => Self::ALWAYS,
            always if always == Self::ALWAYS => Self::NEVER,
            other => Self::Not(Box::new(other)),
        }
    }

    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (one, other) if one == Self::NEVER || other == Self::NEVER => Self::NEVER,
            (one, other) if one == Self::ALWAYS => other,
            (one, other) if other == Self::ALWAYS => one,
            (Self::All(mut all), other) => {
                all.push(other);
                Self::All(all)
            }
            (one, other) => Self::All(vec![one, other]),
        }
    }

    pub(super) fn host(host: HostCondition) -> Self {
        Test::Hosts([host].into()).into()
    }

    pub(super) fn path(path: Path) -> Self {
        Test::Path(path).into()
    }

    pub(super) fn method(method: &str) -> Self {
        Self::methods([method])
    }

    /// One of these methods, as far as a route can have them.
    pub(super) fn methods<'m>(methods: impl IntoIterator<Item = &'m str>) -> Self {
        let methods = methods.into_iter().map(str::to_owned);
        let (known, others): (BTreeSet<String>, BTreeSet<String>) =
            methods.partition(|method| is_method(method));
        let known = Self::from(Test::Methods(known));
        let Some(other) = others.first() else { return known };
        let usual = Self::from(Test::Methods(METHODS.map(str::to_owned).into()));
        let outer = Self::Any(vec![known.clone(), usual.not()]);
        Self::between(known, outer, format!("a route cannot have the method `{other}`"))
    }

    pub(super) fn value(kind: ValueKind, name: impl Into<String>, value: impl Into<String>) -> Self {
        Test::Value { kind, name: name.into(), value: value.into() }.into()
    }

    /// Whether the condition holds, as far as `known` tells of each test. The error is a test that decides it, and that
    /// `known` does not know.
    pub(super) fn truth<'c>(&'c self, known: &dyn Fn(&Test) -> Option<Truth>) -> Result<Truth, &'c Test> {
        match self {
            Self::Test(test) => known(test).ok_or(test),
            Self::Not(inner) => Ok(match inner.truth(known)? {
                Truth::True => Truth::False,
                Truth::False => Truth::True,
                unknown => unknown,
            }),
            Self::All(all) => decided(all, &Truth::False, known),
            Self::Any(any) => decided(any, &Truth::True, known),
            Self::Between { inner, outer, why } => {
                let (inner, outer) = (inner.truth(known), outer.truth(known));
                match (inner, outer) {
                    (Ok(Truth::True), _) => Ok(Truth::True),
                    (_, Ok(Truth::False)) => Ok(Truth::False),
                    (Err(test), _) | (_, Err(test)) => Err(test),
                    (Ok(Truth::Unknown(why)), _) | (_, Ok(Truth::Unknown(why))) => Ok(Truth::Unknown(why)),
                    _ => Ok(Truth::Unknown(why.clone())),
                }
            }
        }
    }

    /// The condition without its tests of methods and values: it holds wherever this one holds.
    pub(super) fn of_place(&self) -> Self {
        self.widened(&|test| matches!(test, Test::Methods(_) | Test::Value { .. }), true, true)
    }

    /// The condition without its tests of addresses: it holds wherever this one holds.
    pub(super) fn of_any_address(&self) -> Self {
        self.widened(&|test| matches!(test, Test::Addresses(_)), false, true)
    }

    /// `is_dropped` tells which tests do not count, `drops_doubts` whether doubts do not count that are about none of
    /// host, path and listener. `holds`: what takes their place.
    fn widened(&self, is_dropped: &dyn Fn(&Test) -> bool, drops_doubts: bool, holds: bool) -> Self {
        let widened = |one: &Self, holds: bool| one.widened(is_dropped, drops_doubts, holds);
        match self {
            Self::Test(test) if !is_dropped(test) => self.clone(),
            Self::Test(_) if holds => Self::ALWAYS,
            Self::Test(_) => Self::NEVER,
            Self::Not(inner) => widened(inner, !holds).not(),
            Self::All(all) => Self::All(all.iter().map(|one| widened(one, holds)).collect()),
            Self::Any(any) => Self::Any(any.iter().map(|one| widened(one, holds)).collect()),
            Self::Between { inner, outer, why } if drops_doubts && !why.is_of_place => {
                widened(if holds { outer } else { inner }, holds)
            }
            Self::Between { inner, outer, why } => Self::Between {
                inner: Box::new(widened(inner, holds)),
                outer: Box::new(widened(outer, holds)),
                why: why.clone(),
            },
        }
    }
}

/// `decisive`: the value of one that decides all.
fn decided<'c>(
    conditions: &'c [RequestCondition],
    decisive: &Truth,
    known: &dyn Fn(&Test) -> Option<Truth>,
) -> Result<Truth, &'c Test> {
    let (mut missing, mut unknown) = (None, None);
    for condition in conditions {
        match condition.truth(known) {
            Ok(truth) if truth == *decisive => return Ok(truth),
            Ok(Truth::Unknown(why)) => unknown = unknown.or(Some(why)),
            Ok(_) => {}
            Err(test) => missing = missing.or(Some(test)),
        }
    }
    match (missing, unknown, decisive) {
        (Some(test), _, _) => Err(test),
        (None, Some(why), _) => Ok(Truth::Unknown(why)),
        (None, None, Truth::False) => Ok(Truth::True),
        (None, None, _) => Ok(Truth::False),
    }
}
