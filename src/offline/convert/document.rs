//! A YAML file of another proxy. Each key is ticked off when it is converted, so that keys that nobody has read can be
//! named at the end.

use std::{cell::RefCell, collections::HashSet};

use super::{ConvertError, Note, SourceLine, yaml::Comment};
use crate::config::{
    Problem,
    yaml::{self, Key, Node, NodeKind},
};

/// A file of another proxy.
pub(super) struct ForeignDocument {
    name: String,
    root: Node,
}

impl ForeignDocument {
    /// Parses the file `name`.
    ///
    /// # Errors
    /// It is not YAML, or has a key twice.
    pub(super) fn parse(name: &str, text: &str) -> Result<Self, ConvertError> {
        let document = yaml::parse(text).map_err(|problem| syntax_error(name, &problem))?;
        match document.duplicates.first() {
            Some(problem) => Err(syntax_error(name, problem)),
            None => Ok(Self { name: name.to_owned(), root: document.root }),
        }
    }

    pub(super) fn root(&self) -> Item<'_> {
        Item { file: &self.name, line: self.root.location.line, node: &self.root }
    }
}

fn syntax_error(name: &str, problem: &Problem) -> ConvertError {
    let (line, column) = problem.location.map_or((1, 1), |location| (location.line, location.column));
    let help = problem.help.as_ref().map(|help| format!("; {help}")).unwrap_or_default();
    ConvertError::Syntax {
        file: name.to_owned(),
        line,
        column,
        message: format!("{}{help}", problem.message),
    }
}

/// A value of the file.
#[derive(Clone, Copy)]
pub(super) struct Item<'d> {
    file: &'d str,
    /// The line of its key, or its own in a list.
    line: usize,
    node: &'d Node,
}

impl<'d> Item<'d> {
    pub(super) fn place(self) -> SourceLine {
        SourceLine { file: self.file.to_owned(), line: self.line }
    }

    /// A comment that says which part has no equal in Tollgate.
    pub(super) fn note(self, text: impl Into<String>) -> Comment {
        Comment::Unconverted(Note { place: self.place(), text: text.into() })
    }

    pub(super) fn is_null(self) -> bool {
        self.node.is_null()
    }

    pub(super) fn is_mapping(self) -> bool {
        matches!(self.node.kind, NodeKind::Mapping { .. })
    }

    /// A single value, as text. `None` for a list, a mapping or nothing.
    pub(super) fn text(self) -> Option<&'d str> {
        match &self.node.kind {
            NodeKind::Scalar(text) => Some(text),
            NodeKind::Null | NodeKind::List(_) | NodeKind::Mapping { .. } => None,
        }
    }

    pub(super) fn is_true(self) -> bool {
        self.text().is_some_and(|text| text.eq_ignore_ascii_case("true"))
    }

    /// The items of a list. A single value is a list of one, as many programs read it.
    pub(super) fn items(self) -> Vec<Self> {
        match &self.node.kind {
            NodeKind::List(items) => {
                items.iter().map(|node| Item { file: self.file, line: node.location.line, node }).collect()
            }
            NodeKind::Null => Vec::new(),
            NodeKind::Scalar(_) | NodeKind::Mapping { .. } => vec![self],
        }
    }

    /// The single values of a list.
    pub(super) fn texts(self) -> Vec<&'d str> {
        self.items().into_iter().filter_map(Item::text).collect()
    }

    /// The keys of a mapping; none of anything else.
    pub(super) fn fields(self) -> Fields<'d> {
        let entries: &[(Key, Node)] = match &self.node.kind {
            NodeKind::Mapping { entries, .. } => entries,
            NodeKind::Null | NodeKind::Scalar(_) | NodeKind::List(_) => &[],
        };
        Fields { file: self.file, line: self.line, entries, taken: RefCell::default() }
    }
}

/// The keys of a mapping, which are ticked off as they are taken.
pub(super) struct Fields<'d> {
    file: &'d str,
    line: usize,
    entries: &'d [(Key, Node)],
    taken: RefCell<HashSet<usize>>,
}

impl<'d> Fields<'d> {
    pub(super) fn place(&self) -> SourceLine {
        SourceLine { file: self.file.to_owned(), line: self.line }
    }

    /// A comment that says which part has no equal in Tollgate.
    pub(super) fn note(&self, text: impl Into<String>) -> Comment {
        Comment::Unconverted(Note { place: self.place(), text: text.into() })
    }

    /// The value of the key, in any case of its letters.
    pub(super) fn take(&self, name: &str) -> Option<Item<'d>> {
        let (nth, (key, node)) =
            self.entries.iter().enumerate().find(|(_, (key, _))| key.name.eq_ignore_ascii_case(name))?;
        self.taken.borrow_mut().insert(nth);
        Some(Item { file: self.file, line: key.location.line, node })
    }

    /// The single value of the key, unless it is empty.
    pub(super) fn text(&self, name: &str) -> Option<&'d str> {
        self.take(name)?.text().filter(|text| !text.is_empty())
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.replace('_', "").parse().ok()
    }

    /// Whether the key has the value `true`.
    pub(super) fn is_true(&self, name: &str) -> bool {
        self.take(name).is_some_and(Item::is_true)
    }

    pub(super) fn texts(&self, name: &str) -> Vec<&'d str> {
        self.take(name).map(Item::texts).unwrap_or_default()
    }

    pub(super) fn items(&self, name: &str) -> Vec<Item<'d>> {
        self.take(name).map(Item::items).unwrap_or_default()
    }

    /// The mapping of the key. Without the key, it is empty.
    pub(super) fn fields(&self, name: &str) -> Fields<'d> {
        self.take(name).map_or(
            Fields { file: self.file, line: self.line, entries: &[], taken: RefCell::default() },
            Item::fields,
        )
    }

    /// Ticks off keys that change nothing.
    pub(super) fn ignore(&self, names: &[&str]) {
        for name in names {
            self.take(name);
        }
    }

    /// Every key and its value, ticked off.
    pub(super) fn each(&self) -> Vec<(&'d str, Item<'d>)> {
        self.taken.borrow_mut().extend(0..self.entries.len());
        self.entries.iter().map(|(key, node)| self.entry(key, node)).collect()
    }

    /// The keys that nobody has taken, and that have a value.
    pub(super) fn rest(&self) -> Vec<(&'d str, Item<'d>)> {
        let taken = self.taken.borrow();
        let rest = self.entries.iter().enumerate().filter(|(nth, _)| !taken.contains(nth));
        rest.map(|(_, (key, node))| self.entry(key, node)).filter(|(_, item)| !item.is_null()).collect()
    }

    fn entry(&self, key: &'d Key, node: &'d Node) -> (&'d str, Item<'d>) {
        (key.name.as_str(), Item { file: self.file, line: key.location.line, node })
    }
}
