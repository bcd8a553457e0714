//! A position in the tree, with the methods that read the value there.

use std::{
    fmt::Display,
    io,
    path::{Path, PathBuf},
};

use super::{MappingCursor, Purpose, ReadContext, slips};
use crate::config::{
    FileLocation, Problem,
    interpolate::interpolate,
    redact::{MASK, is_all_interpolated},
    value::Invalid,
    yaml::{Node, NodeKind},
};

/// One value of the tree. A method that parses reports the error before it returns `None`.
#[derive(Clone, Copy)]
pub(in crate::config) struct Cursor<'t> {
    node: &'t Node,
    context: &'t ReadContext<'t>,
}

/// The location of a key, the key, and its value.
pub(in crate::config) type NamedEntry<'t> = (FileLocation, &'t str, Cursor<'t>);

impl<'t> Cursor<'t> {
    /// The root of a tree.
    pub(in crate::config) fn root(node: &'t Node, context: &'t ReadContext<'t>) -> Self {
        Self { node, context }
    }

    pub(in crate::config) fn location(self) -> FileLocation {
        self.node.location
    }

    /// The reason to read the configuration.
    pub(in crate::config) fn purpose(self) -> Purpose {
        self.context.purpose
    }

    /// Reads a value a second time. Its errors and warnings were already reported, so they are dropped.
    pub(in crate::config) fn again<T>(self, read: impl FnOnce() -> T) -> T {
        let (problems, warnings) = (&self.context.problems, &self.context.warnings);
        let (errors, doubts) = (problems.borrow().len(), warnings.borrow().len());
        let value = read();
        problems.borrow_mut().truncate(errors);
        warnings.borrow_mut().truncate(doubts);
        value
    }

    /// Rewrites `text` of other software for the place of `mark` in `foreign_names.txt`.
    pub(super) fn rewrite_foreign(self, mark: &str, text: &str) -> String {
        (self.context.rewrite_foreign)(mark, text)
    }

    /// The scalar as the file has it, before interpolation. `None` for other nodes.
    pub(in crate::config) fn scalar(self) -> Option<&'t str> {
        match &self.node.kind {
            NodeKind::Scalar(word) => Some(word),
            _ => None,
        }
    }

    /// The scalar after interpolation. `None` for other nodes, and for a failed interpolation, which is not reported.
    pub(in crate::config) fn interpolated(self) -> Option<String> {
        self.scalar()?;
        self.again(|| self.parse(|text| Ok(text.to_owned())))
    }

    /// Whether the scalar, or one below it, must not be shown: it is secret, or has text from the environment or from
    /// files.
    pub(in crate::config) fn is_hidden(self) -> bool {
        let mut entries = match &self.node.kind {
            NodeKind::Mapping { entries, .. } => entries.as_slice(),
            _ => &[],
        }
        .iter();
        self.scalar().is_some_and(|written| written.replace("$${", "").contains("${"))
            || self.is_secret()
            || entries.any(|(_, node)| self.child(node).is_hidden())
    }

    /// Whether a part of this scalar came from the environment or from a file. Known only after the scalar was parsed.
    pub(in crate::config) fn is_inserted(self) -> bool {
        self.context.inserted.borrow().contains(&self.location())
    }

    /// The name of the file at `path`, for messages. If a part of the path was inserted, this is the text before
    /// interpolation.
    pub(in crate::config) fn name_of(self, path: &Path) -> String {
        let written = self.scalar().filter(|_| self.is_inserted());
        written.map_or_else(|| path.display().to_string(), str::to_owned)
    }

    /// Whether the environment has this variable.
    pub(in crate::config) fn has_variable(self, name: &str) -> bool {
        self.context.lookup.variable(name).is_some()
    }

    /// Whether there is a directory at `path`.
    pub(in crate::config) fn is_directory(self, path: &str) -> bool {
        self.context.lookup.is_directory(Path::new(path)).unwrap_or(false)
    }

    /// Warns if the directory of `file`, which Tollgate creates at startup, does not exist. This is not an error: a
    /// service manager may create it, or the check may run on another machine.
    pub(in crate::config) fn warn_without_directory(self, file: &Path) {
        let directory = file.parent().filter(|directory| !directory.as_os_str().is_empty());
        let Some(directory) = directory else { return };
        let found = self.context.lookup.is_directory(directory);
        if found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            let name = match self.scalar().filter(|_| self.is_inserted()) {
                Some(written) => format!("of `{written}`"),
                None => directory.display().to_string(),
            };
            let message = format!("the directory {name} does not exist on this machine");
            self.warn(message, "create it before Tollgate starts, or correct the path".to_owned());
        }
    }

    pub(in crate::config) fn is_null(self) -> bool {
        self.node.is_null()
    }

    pub(in crate::config) fn is_empty_list(self) -> bool {
        matches!(&self.node.kind, NodeKind::List(items) if items.is_empty())
    }

    /// Reports an error of this value.
    pub(in crate::config) fn report(self, message: impl Into<String>, help: impl Into<Option<String>>) {
        self.report_at(self.location(), message, help);
    }

    /// Warns about this value, which is valid but probably not intended.
    pub(in crate::config) fn warn(self, message: impl Into<String>, help: impl Into<Option<String>>) {
        self.warn_at(self.location(), message, help);
    }

    /// Warns about a part of this value.
    pub(in crate::config) fn warn_at(
        self,
        location: FileLocation,
        message: impl Into<String>,
        help: impl Into<Option<String>>,
    ) {
        self.context.warn(self.problem(location, message.into(), help.into()));
    }

    /// Reports an error of a part of this value.
    pub(in crate::config) fn report_at(
        self,
        location: FileLocation,
        message: impl Into<String>,
        help: impl Into<Option<String>>,
    ) {
        self.context.report(self.problem(location, message.into(), help.into()));
    }

    /// A problem of this value. If its text quotes a secret value, the secret is masked.
    fn problem(self, location: FileLocation, message: String, help: Option<String>) -> Problem {
        let without_secrets = |text: String| match self.scalar().zip(self.masked()) {
            // A short secret may be a part of other words.
            Some((word, masked)) if word.len() < 4 => {
                text.replace(&format!("`{word}`"), &format!("`{masked}`"))
            }
            Some((word, masked)) => text.replace(word, &masked),
            None => text,
        };
        Problem::new(location, without_secrets(message)).help(help.map(without_secrets))
    }

    /// This scalar with its secrets masked. `None`: it has none.
    fn masked(self) -> Option<String> {
        self.context.secrets.masked(&self.node.span, self.scalar()?)
    }

    /// Whether this is a scalar that is secret, or that has a credential in it.
    pub(in crate::config) fn is_secret(self) -> bool {
        self.masked().is_some()
    }

    /// Interpolates the scalar, and parses it with `parse`. An error quotes the file, never an interpolated value.
    pub(in crate::config) fn parse<T>(self, parse: impl FnOnce(&str) -> Result<T, Invalid>) -> Option<T> {
        self.parse_scalar(false, parse)
    }

    /// As [`Cursor::parse`]; errors do not quote the value.
    pub(in crate::config) fn parse_unquoted<T>(
        self,
        parse: impl FnOnce(&str) -> Result<T, Invalid>,
    ) -> Option<T> {
        self.parse_scalar(true, parse)
    }

    /// As [`Cursor::parse_unquoted`], for a secret setting: its value is masked wherever the file has it.
    pub(in crate::config) fn parse_secret<T>(
        self,
        parse: impl FnOnce(&str) -> Result<T, Invalid>,
    ) -> Option<T> {
        self.parse_unquoted(|text| {
            self.context.secret_values.borrow_mut().push(text.to_owned());
            parse(text)
        })
    }

    /// The path of a file.
    pub(in crate::config) fn path(self) -> Option<PathBuf> {
        self.parse(|path| Ok(PathBuf::from(path)))
    }

    /// Reads the file that this value names. Returns its path, and its contents parsed by `read`.
    pub(in crate::config) fn file<T>(
        self,
        read: impl FnOnce(&[u8]) -> Result<T, Invalid>,
    ) -> Option<(PathBuf, T)> {
        self.parse(|path| {
            if path.contains("-----BEGIN") {
                return Err(Invalid::new("is what a file contains, not the name of a file"));
            }
            let bytes = self.context.lookup.read_bytes(Path::new(path));
            let bytes = bytes.map_err(|error| Invalid::new(format!("cannot be read: {error}")))?;
            Ok((PathBuf::from(path), read(&bytes)?))
        })
    }

    fn parse_scalar<T>(self, secret: bool, parse: impl FnOnce(&str) -> Result<T, Invalid>) -> Option<T> {
        let written = self.expect_scalar()?;
        let masked = self.masked();
        let secret = secret || masked.as_deref() == Some(MASK);
        let text = interpolate(written, self.context.lookup)
            .map_err(|unresolved| {
                for problem in unresolved {
                    self.report(problem.message, problem.help.map(str::to_owned));
                }
            })
            .ok()?;
        if text.is_foreign {
            self.context.inserted.borrow_mut().insert(self.location());
        }
        let about = |invalid: Invalid| {
            let message = match text.inserted {
                _ if secret && !is_all_interpolated(written) => invalid.about("this value"),
                true => invalid.about(&format!("the value of `{written}`")),
                // The reason might quote the secret part.
                false if masked.is_some() => invalid.about(&format!("`{written}`")),
                false => invalid.about_written(written),
            };
            let unspoken = secret || text.inserted || masked.is_some();
            (message, invalid.help(unspoken))
        };
        let curly = slips::between_curly_quotes(written).map(slips::in_curly_quotes);
        match parse(&text.value) {
            // It would be a password that everybody can guess.
            Ok(_) if secret && slips::is_shell_variable(written) => {
                let invalid = slips::shell_variable_taken_as_text();
                self.report(invalid.about("this value"), invalid.help(true));
                None
            }
            Ok(value) => {
                let slip = curly
                    .or_else(|| slips::is_shell_variable(written).then(slips::shell_variable_taken_as_text));
                if let Some((message, help)) = slip.map(about) {
                    self.warn(message, help);
                }
                Some(value)
            }
            Err(invalid) => {
                let braced = slips::with_braces(written)
                    .map(|text| format!("a variable is written in braces: \"{text}\""));
                let invalid = match braced {
                    Some(help) => invalid.suggestion(help),
                    None => invalid,
                };
                let (message, help) = about(curly.unwrap_or(invalid));
                self.report(message, help);
                None
            }
        }
    }

    fn expect_scalar(self) -> Option<&'t str> {
        let help = match &self.node.kind {
            NodeKind::Scalar(word) => return Some(word),
            // YAML reads `{id}` as a mapping with a key and no value.
            NodeKind::Mapping { braces: true, entries }
                if entries.iter().all(|(_, value)| value.is_null()) =>
            {
                Some("quote a value that begins with {: \"{…}\"".to_owned())
            }
            _ => None,
        };
        self.report(format!("expected a single value, not {}", self.kind_name()), help);
        None
    }

    /// The items of a list. Null items are reported and left out.
    pub(in crate::config) fn list(self) -> Option<Vec<Cursor<'t>>> {
        let NodeKind::List(items) = &self.node.kind else {
            let help = self.scalar().filter(|word| !word.contains(['$', '[', '{', '*']) && !self.is_secret());
            let help = match &self.node.kind {
                NodeKind::Mapping { braces: true, .. } => Some("put it into brackets: [{ … }]".to_owned()),
                NodeKind::Mapping { .. } => Some("begin it with `- `, as an item of a list".to_owned()),
                _ => help.map(|word| match word.starts_with('-') {
                    true => "put a space behind the dash of each item: `- ITEM`".to_owned(),
                    false => format!("write [{}]", word.replace('|', ", ")),
                }),
            };
            self.report(format!("expected a list, not {}", self.kind_name()), help);
            return None;
        };
        let items = items.iter().map(|node| Cursor { node, ..self });
        Some(
            items
                .filter(|item| {
                    if item.is_null() {
                        item.report("this item has no value", None);
                    }
                    !item.is_null()
                })
                .collect(),
        )
    }

    /// The items of a list, each read by `read`. Invalid ones are left out.
    pub(in crate::config) fn items<T>(self, read: impl FnMut(Cursor<'t>) -> Option<T>) -> Vec<T> {
        self.list().unwrap_or_default().into_iter().filter_map(read).collect()
    }

    /// As [`Cursor::items`]; a repeated item is an error.
    pub(in crate::config) fn unique_items<T: PartialEq>(
        self,
        mut read: impl FnMut(Cursor<'t>) -> Option<T>,
    ) -> Vec<T> {
        let mut all = Vec::new();
        for item in self.list().unwrap_or_default() {
            let Some(value) = read(item) else { continue };
            if all.contains(&value) {
                let word = item.scalar().map_or("this".to_owned(), |word| format!("`{word}`"));
                item.report(format!("{word} is in this list twice"), None);
            } else {
                all.push(value);
            }
        }
        all
    }

    /// As [`Cursor::mapping`]. The error for a single value shows `line` as the line to write, with the value in place
    /// of `VALUE`.
    pub(in crate::config) fn mapping_such_as(self, line: &str) -> Option<MappingCursor<'t>> {
        let Some(word) = self.scalar() else { return self.mapping() };
        let word = if self.is_secret() { "…" } else { word };
        let is_in_line = |key: &str| line.split([' ', '{']).any(|part| part.strip_suffix(':') == Some(key));
        let help = match word.split_once(':').filter(|(key, _)| is_in_line(key)) {
            Some((key, value)) => format!("put a space behind the colon: `{key}: {value}`"),
            None => format!("write `{}`", line.replace("VALUE", word)),
        };
        self.report("expected a mapping, not a single value", help);
        None
    }

    /// The only entry of a mapping that has one: its key and its value.
    pub(in crate::config) fn only_entry(self) -> Option<(&'t str, Cursor<'t>)> {
        match &self.node.kind {
            NodeKind::Mapping { entries, .. } => match &entries[..] {
                [(key, value)] => Some((key.name.as_str(), self.child(value))),
                _ => None,
            },
            _ => None,
        }
    }

    /// The value of `key`, if this is a mapping that has one.
    pub(in crate::config) fn entry(self, key: &str) -> Option<Cursor<'t>> {
        let NodeKind::Mapping { entries, .. } = &self.node.kind else { return None };
        let (_, node) = entries.iter().find(|(found, node)| found.name == key && !node.is_null())?;
        Some(self.child(node))
    }

    pub(in crate::config) fn is_list(self) -> bool {
        matches!(&self.node.kind, NodeKind::List(_))
    }

    pub(in crate::config) fn is_mapping(self) -> bool {
        matches!(&self.node.kind, NodeKind::Mapping { .. })
    }

    /// A mapping whose keys are settings.
    pub(in crate::config) fn mapping(self) -> Option<MappingCursor<'t>> {
        match &self.node.kind {
            NodeKind::Mapping { entries, .. } => Some(MappingCursor::new(self, entries)),
            _ => {
                self.report(format!("expected a mapping, not {}", self.kind_name()), None);
                None
            }
        }
    }

    /// The entries of a mapping whose keys are names, in the order of the file. Entries without a value are reported
    /// and left out.
    pub(in crate::config) fn named_entries(self) -> Option<Vec<NamedEntry<'t>>> {
        let NodeKind::Mapping { entries, .. } = &self.node.kind else {
            self.report(format!("expected a mapping with names as its keys, not {}", self.kind_name()), None);
            return None;
        };
        let entries = entries.iter().map(|(key, node)| (key, Cursor { node, ..self }));
        Some(
            entries
                .filter(|(key, value)| {
                    if value.is_null() {
                        value.report_at(key.location, format!("`{}` has no value", key.name), None);
                    }
                    !value.is_null()
                })
                .map(|(key, value)| (key.location, key.name.as_str(), value))
                .collect(),
        )
    }

    /// The entries of a mapping whose keys are names, each read by `read_name` and `read`. `None`: one is invalid.
    pub(in crate::config) fn entries_by_name<N: PartialEq + Display, T>(
        self,
        read_name: impl Fn(&str) -> Result<N, Invalid>,
        read: impl Fn(Self) -> Option<T>,
    ) -> Option<Vec<(N, T)>> {
        let entries = self.named_entries()?;
        let count = entries.len();
        let mut all: Vec<(N, T)> = Vec::new();
        for (location, name, value) in entries {
            let content = read(value);
            match read_name(name) {
                Err(invalid) => {
                    value.report_at(location, format!("`{name}` {}", invalid.reason), invalid.help(false));
                }
                // YAML forbids equal keys, and only the names of headers have several spellings.
                Ok(name) if all.iter().any(|(other, _)| *other == name) => {
                    let message = format!("`{name}` is set twice; header names are case-insensitive");
                    value.report_at(location, message, None);
                }
                Ok(name) => all.extend(content.map(|content| (name, content))),
            }
        }
        (all.len() == count).then_some(all)
    }

    pub(super) fn child(self, node: &'t Node) -> Self {
        Self { node, ..self }
    }

    fn kind_name(self) -> &'static str {
        match &self.node.kind {
            NodeKind::Null => "nothing",
            NodeKind::Scalar(_) => "a single value",
            NodeKind::List(_) => "a list",
            NodeKind::Mapping { .. } => "a mapping",
        }
    }
}
