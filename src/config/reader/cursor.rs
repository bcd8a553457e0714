//! One value of the tree, to be read as what it should be.

use std::{
    cell::RefCell,
    path::{Path, PathBuf},
};

use super::Mapping;
use crate::config::{
    Place, Problem, Sources,
    interpolate::interpolate,
    redact::{is_inserted, is_open},
    value::Invalid,
    yaml::{Kind, Node},
};

/// A value under the reader's eye. Every method that gives an `Option` has reported why it gives none.
#[derive(Clone, Copy)]
pub(in crate::config) struct Cursor<'t> {
    node: &'t Node,
    reader: &'t Reader<'t>,
}

impl<'t> Cursor<'t> {
    pub(super) fn new(node: &'t Node, reader: &'t Reader<'t>) -> Self {
        Self { node, reader }
    }

    pub(in crate::config) fn place(self) -> Place {
        self.node.place
    }

    /// The text as it stands in the file, if this is a word.
    pub(in crate::config) fn written(self) -> Option<&'t str> {
        match &self.node.kind {
            Kind::Word(word) => Some(word),
            _ => None,
        }
    }

    pub(in crate::config) fn is_nothing(self) -> bool {
        self.node.is_nothing()
    }

    pub(in crate::config) fn is_empty_list(self) -> bool {
        matches!(&self.node.kind, Kind::List(items) if items.is_empty())
    }

    /// Reports an error of this value.
    pub(in crate::config) fn report(self, message: impl Into<String>, help: impl Into<Option<String>>) {
        self.report_at(self.place(), message, help);
    }

    /// Warns of this value, which is right and yet may not be what was meant.
    pub(in crate::config) fn warn(self, message: impl Into<String>, help: impl Into<Option<String>>) {
        self.reader.warn(Problem::new(self.place(), message).help(help));
    }

    /// Reports an error of a part of this value.
    pub(in crate::config) fn report_at(
        self,
        place: Place,
        message: impl Into<String>,
        help: impl Into<Option<String>>,
    ) {
        self.reader.report(Problem::new(place, message).help(help));
    }

    /// A word, typed by `parse` after `${…}` was inserted. Where it is wrong, what is shown is what
    /// stands in the file, never what was inserted.
    pub(in crate::config) fn parse<T>(self, parse: impl FnOnce(&str) -> Result<T, Invalid>) -> Option<T> {
        self.typed(false, parse)
    }

    /// As [`Cursor::parse`], for what is a secret as a whole: of that nothing is shown.
    pub(in crate::config) fn parse_secret<T>(
        self,
        parse: impl FnOnce(&str) -> Result<T, Invalid>,
    ) -> Option<T> {
        self.typed(true, parse)
    }

    /// The path of a file, and what `read` makes of the bytes in it.
    pub(in crate::config) fn file<T>(
        self,
        read: impl FnOnce(&[u8]) -> Result<T, Invalid>,
    ) -> Option<(PathBuf, T)> {
        self.parse(|path| {
            let bytes = self.reader.sources.bytes(Path::new(path));
            let bytes = bytes.map_err(|error| Invalid::new(format!("cannot be read: {error}")))?;
            Ok((PathBuf::from(path), read(&bytes)?))
        })
    }

    fn typed<T>(self, secret: bool, parse: impl FnOnce(&str) -> Result<T, Invalid>) -> Option<T> {
        let written = self.word()?;
        let text = interpolate(written, self.reader.sources)
            .map_err(|unresolved| {
                for problem in unresolved {
                    self.report(problem.message, problem.help.map(str::to_owned));
                }
            })
            .ok()?;
        parse(&text.value)
            .map_err(|invalid| {
                let shown = match text.inserted {
                    _ if secret && !is_inserted(written) => "this value".to_owned(),
                    true => format!("the value of `{written}`"),
                    false => format!("`{written}`"),
                };
                let unspoken = secret || text.inserted || !is_open(written);
                self.report(format!("{shown} {}", invalid.what), invalid.help(unspoken));
            })
            .ok()
    }

    fn word(self) -> Option<&'t str> {
        let help = match &self.node.kind {
            Kind::Word(word) => return Some(word),
            // `{id}` is a mapping to YAML, whose key has no value.
            Kind::Mapping { braces: true, entries }
                if entries.iter().all(|(_, value)| value.is_nothing()) =>
            {
                Some("a value that begins with { wants quotes: \"{…}\"".to_owned())
            }
            _ => None,
        };
        self.report(format!("expected a word, not {}", self.describe()), help);
        None
    }

    /// The items of a list. One that is nothing is reported and left out.
    pub(in crate::config) fn list(self) -> Option<Vec<Cursor<'t>>> {
        let Kind::List(items) = &self.node.kind else {
            let help = self.written().filter(|word| !word.contains(['$', '[', '{', '*']) && is_open(word));
            let help = help.map(|word| format!("write [{word}]"));
            self.report(format!("expected a list, not {}", self.describe()), help);
            return None;
        };
        let items = items.iter().map(|node| Cursor { node, ..self });
        Some(
            items
                .filter(|item| {
                    if item.is_nothing() {
                        item.report("an item without a value", None);
                    }
                    !item.is_nothing()
                })
                .collect(),
        )
    }

    /// The items of a list, each read by `read`; what is wrong is reported and left out.
    pub(in crate::config) fn items<T>(self, read: impl FnMut(Cursor<'t>) -> Option<T>) -> Vec<T> {
        self.list().unwrap_or_default().into_iter().filter_map(read).collect()
    }

    /// As [`Cursor::items`]; an item that equals one before it is an error.
    pub(in crate::config) fn distinct<T: PartialEq>(
        self,
        mut read: impl FnMut(Cursor<'t>) -> Option<T>,
    ) -> Vec<T> {
        let mut all = Vec::new();
        for item in self.list().unwrap_or_default() {
            let Some(value) = read(item) else { continue };
            if all.contains(&value) {
                let word = item.written().map_or("this".to_owned(), |word| format!("`{word}`"));
                item.report(format!("{word} stands twice in this list"), None);
            } else {
                all.push(value);
            }
        }
        all
    }

    /// A mapping whose keys are settings.
    pub(in crate::config) fn mapping(self) -> Option<Mapping<'t>> {
        match &self.node.kind {
            Kind::Mapping { entries, .. } => Some(Mapping::new(self, entries)),
            _ => {
                self.report(format!("expected a mapping, not {}", self.describe()), None);
                None
            }
        }
    }

    /// A mapping whose keys are names, in the order of the file. One without a value is reported and left out.
    pub(in crate::config) fn named(self) -> Option<Vec<(Place, &'t str, Cursor<'t>)>> {
        let Kind::Mapping { entries, .. } = &self.node.kind else {
            self.report(format!("expected a mapping of names, not {}", self.describe()), None);
            return None;
        };
        let entries = entries.iter().map(|(key, node)| (key, Cursor { node, ..self }));
        Some(
            entries
                .filter(|(key, value)| {
                    if value.is_nothing() {
                        value.report_at(key.place, format!("`{}` has no value", key.name), None);
                    }
                    !value.is_nothing()
                })
                .map(|(key, value)| (key.place, key.name.as_str(), value))
                .collect(),
        )
    }

    pub(super) fn child(self, node: &'t Node) -> Self {
        Self { node, ..self }
    }

    fn describe(self) -> &'static str {
        match &self.node.kind {
            Kind::Nothing => "nothing",
            Kind::Word(_) => "a word",
            Kind::List(_) => "a list",
            Kind::Mapping { .. } => "a mapping",
        }
    }
}

/// One reading of one configuration.
pub(in crate::config) struct Reader<'a> {
    pub(super) sources: &'a dyn Sources,
    problems: RefCell<Vec<Problem>>,
    warnings: RefCell<Vec<Problem>>,
}

impl<'a> Reader<'a> {
    pub(in crate::config) fn new(sources: &'a dyn Sources) -> Self {
        Self { sources, problems: RefCell::default(), warnings: RefCell::default() }
    }

    /// Where a walk begins.
    pub(in crate::config) fn root<'t>(&'t self, root: &'t Node) -> Cursor<'t> {
        Cursor::new(root, self)
    }

    /// Notes an error; the walk goes on.
    pub(in crate::config) fn report(&self, problem: Problem) {
        self.problems.borrow_mut().push(problem);
    }

    /// Notes what is right and yet may not be what was meant.
    pub(super) fn warn(&self, problem: Problem) {
        self.warnings.borrow_mut().push(problem);
    }

    /// The errors, and the warnings.
    pub(in crate::config) fn into_problems(self) -> (Vec<Problem>, Vec<Problem>) {
        (self.problems.into_inner(), self.warnings.into_inner())
    }
}
