//! One policy applied to one identifier of one request.

use std::{fmt, sync::Arc};

use compact_str::CompactString;

use super::{Policy, algorithm::metadata_list::Entry};

/// One policy, one identifier, one cost.
#[derive(Debug, Clone)]
pub struct Check<'a> {
    pub policy: &'a Policy,
    /// What is limited: `ip:203.0.113.7`, or `ip:203.0.113.7+path:/a`. What came from clients in it is
    /// percent-encoded, so that `+` parts it unmistakably.
    pub identifier: CompactString,
    /// Units taken. 0 only looks.
    pub cost: u64,
    /// What `metadata_list` writes down of the request.
    pub entry: Option<Arc<Entry>>,
}

impl Check<'_> {
    /// The name of the state that this check is held against.
    pub fn key(&self) -> Key {
        Key {
            identifier: self.identifier.clone(),
            policy: self.policy.name.clone(),
            shape: self.policy.shape.clone(),
        }
    }
}

/// The name of one limit's state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    pub identifier: CompactString,
    pub policy: String,
    pub shape: String,
}

impl fmt::Display for Key {
    /// `{ip:203.0.113.7}+path:/a:expensive:fw.1m`: the store's key without its prefix.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, rest) = match self.identifier.find('+') {
            Some(at) => self.identifier.split_at(at),
            None => (self.identifier.as_str(), ""),
        };
        write!(f, "{{{first}}}{rest}:{}:{}", self.policy, self.shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_braces_hold_the_first_part_of_a_composite() {
        let mut key =
            Key { identifier: "ip:203.0.113.7".into(), policy: "login".into(), shape: "fw.1s.1m.1h".into() };
        assert_eq!(key.to_string(), "{ip:203.0.113.7}:login:fw.1s.1m.1h");
        key = Key {
            identifier: "ip:203.0.113.7+path:/a".into(),
            policy: "expensive".into(),
            shape: "fw.1m".into(),
        };
        assert_eq!(key.to_string(), "{ip:203.0.113.7}+path:/a:expensive:fw.1m");
    }
}
