//! Things that other parts of the configuration refer to by name.

use super::Cursor;
use crate::config::{nearest::suggestion, value::Invalid};

/// The names of one kind of thing, in the order in which the resolved configuration holds them.
///
/// A thing that is itself wrong has its name here all the same, so that it isn't missed as well.
pub(in crate::config) struct Names<'t> {
    kind: &'static str,
    names: Vec<&'t str>,
}

impl<'t> Names<'t> {
    /// `kind` is what errors call one: `policy`.
    pub(in crate::config) fn new(kind: &'static str, names: Vec<&'t str>) -> Self {
        Self { kind, names }
    }

    /// The index of the thing that `cursor` names.
    pub(in crate::config) fn resolve(&self, cursor: Cursor<'_>) -> Option<usize> {
        cursor.parse(|name| {
            self.names.iter().position(|known| *known == name).ok_or_else(|| {
                let invalid = Invalid::new(format!("is the name of no {}", self.kind));
                match suggestion(name, self.names.iter().copied(), "there are:") {
                    Some(help) => invalid.guess(help),
                    None => invalid,
                }
            })
        })
    }
}
