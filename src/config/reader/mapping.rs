//! Mappings whose keys are settings, and tables of names that settings refer to.

use std::collections::HashMap;

use super::{Cursor, NamedEntry, foreign_name::ForeignName};
use crate::config::{
    FileLocation,
    nearest::{nearest, suggestion},
    settings::Mapping,
    value::Invalid,
    yaml::{Key, Node},
};

/// A mapping whose keys are settings. [`MappingCursor::finish`] reports unknown keys.
pub(in crate::config) struct MappingCursor<'t> {
    cursor: Cursor<'t>,
    entries: &'t [(Key, Node)],
    /// The section of `foreign_names.txt` for its keys. Empty: none.
    foreign_names: &'static str,
    /// The declaration of its settings. `None`: only some keys are looked up.
    described: Option<&'static Mapping>,
    /// Help for some unknown keys of this mapping: the unknown key, the right key, and the help.
    explained: Vec<(String, &'static str, String)>,
}

impl<'t> MappingCursor<'t> {
    pub(super) fn new(cursor: Cursor<'t>, entries: &'t [(Key, Node)]) -> Self {
        Self { cursor, entries, foreign_names: "", described: None, explained: Vec::new() }
    }

    /// Sets the declaration of its settings.
    pub(in crate::config) fn of(self, described: &'static Mapping) -> Self {
        Self { described: Some(described), ..self.knowing(described.foreign) }
    }

    /// Sets the section of `foreign_names.txt` for its keys.
    pub(in crate::config) fn knowing(self, section: &'static str) -> Self {
        debug_assert!(
            section.is_empty() || ForeignName::has_section(section),
            "foreign_names.txt has no [{section}]"
        );
        Self { foreign_names: section, ..self }
    }

    /// Sets the help for the unknown key `key`, which means `ours`.
    pub(in crate::config) fn explain(&mut self, key: &str, ours: &'static str, help: String) {
        self.explained.push((key.to_owned(), ours, help));
    }

    /// The right key in place of the unknown key `key`, and the help.
    fn explanation(&self, key: &Key, node: &'t Node) -> Option<(&'static str, String)> {
        if let Some((_, ours, help)) = self.explained.iter().find(|(name, ..)| *name == key.name) {
            return Some((*ours, help.clone()));
        }
        let foreign = ForeignName::find(self.foreign_names, &key.name)?;
        Some((foreign.ours(), foreign.help(self.cursor.child(node))))
    }

    /// The value of `key`, which need not be a setting.
    pub(in crate::config) fn peek(&self, key: &str) -> Option<Cursor<'t>> {
        let (_, node) = self.entries.iter().find(|(k, node)| k.name == key && !node.is_null())?;
        Some(self.cursor.child(node))
    }

    /// The location of `key`, if the mapping has it.
    pub(in crate::config) fn key_location(&self, key: &str) -> Option<FileLocation> {
        self.entries.iter().find(|(k, _)| k.name == key).map(|(key, _)| key.location)
    }

    /// Reports an error of the mapping as a whole.
    pub(in crate::config) fn report(&self, message: impl Into<String>, help: impl Into<Option<String>>) {
        self.cursor.report(message, help);
    }

    /// Reports an error at `location`.
    pub(in crate::config) fn report_at(
        &self,
        location: FileLocation,
        message: impl Into<String>,
        help: impl Into<Option<String>>,
    ) {
        self.cursor.report_at(location, message, help);
    }

    /// The value of `key`. A key without a value is an error: if all items of a list are commented out, the setting
    /// must not be lost silently.
    pub(in crate::config) fn take(&mut self, key: &'static str) -> Option<Cursor<'t>> {
        debug_assert!(
            self.described.is_none_or(|mapping| mapping.has(key)),
            "`{key}` is not described in config::settings"
        );
        let (found, node) = self.entries.iter().find(|(k, _)| k.name == key)?;
        let value = self.cursor.child(node);
        if value.is_null() {
            let help = "set one, or remove the line".to_owned();
            value.report_at(found.location, format!("`{key}` has no value"), help);
            return None;
        }
        Some(value)
    }

    /// The location, key and value of each entry whose key begins with one of `prefixes` and is not a setting of its
    /// own. Entries without a value are reported and left out.
    pub(in crate::config) fn entries_with_prefix(&self, prefixes: &[&str]) -> Vec<NamedEntry<'t>> {
        let is_one = |key: &Key| {
            prefixes.iter().any(|prefix| key.name.starts_with(prefix))
                && self.described.is_none_or(|mapping| !mapping.keys().any(|own| own == key.name))
        };
        let mut found = Vec::new();
        for (key, node) in self.entries.iter().filter(|(key, _)| is_one(key)) {
            if node.is_null() {
                self.report_at(key.location, format!("`{}` has no value", key.name), None);
            } else {
                found.push((key.location, key.name.as_str(), self.cursor.child(node)));
            }
        }
        found
    }

    /// As [`MappingCursor::take`]; a missing key is an error.
    pub(in crate::config) fn require(&mut self, key: &'static str, help: &str) -> Option<Cursor<'t>> {
        let value = self.take(key);
        self.report_if_missing(key, help);
        value
    }

    /// Reports that `key` is missing, unless it is there or misspelled.
    pub(in crate::config) fn report_if_missing(&self, key: &'static str, help: &str) {
        if !self.has_or_misspells(key) {
            self.report(format!("`{key}` is missing"), help.to_owned());
        }
    }

    /// Whether the mapping has `key`, or an unknown key that is probably a misspelling of it. The latter is reported as
    /// unknown, so `key` need not be reported as missing.
    pub(in crate::config) fn has_or_misspells(&self, key: &'static str) -> bool {
        let is_meant = |found: &Key, node| match self.explanation(found, node) {
            Some((ours, _)) => ours == key,
            None => nearest(&found.name, [key]).is_some(),
        };
        self.entries
            .iter()
            .any(|(found, node)| found.name == key || !self.is_known(&found.name) && is_meant(found, node))
    }

    /// The value of `key`, parsed by `parse`; `default` if it is missing, or invalid and reported.
    pub(in crate::config) fn parse_or<T>(
        &mut self,
        key: &'static str,
        default: T,
        parse: impl FnOnce(&str) -> Result<T, Invalid>,
    ) -> T {
        self.take(key).and_then(|value| value.parse(parse)).unwrap_or(default)
    }

    fn is_known(&self, key: &str) -> bool {
        self.described.is_some_and(|mapping| mapping.has(key))
    }

    /// Reports every key that is not a setting of the mapping.
    pub(in crate::config) fn finish(self) {
        let known = || self.described.into_iter().flat_map(Mapping::keys);
        for (key, node) in self.entries {
            let name = key.name.as_str();
            if !self.is_known(name) {
                let help = self.explanation(key, node).map(|(_, help)| help);
                let help = help.or_else(|| {
                    // The text behind the colon is left out: it may be a secret.
                    let (before, _) = name.split_once(':').filter(|(before, _)| self.is_known(before))?;
                    Some(format!("put a space behind the colon: `{before}: …`"))
                });
                let help = help.or_else(|| suggestion(name, known().collect::<Vec<_>>(), "known keys:"));
                // The help may quote the value.
                self.cursor.child(node).report_at(key.location, format!("unknown key `{name}`"), help);
            }
        }
    }
}

/// The names of all policies, or of all upstreams, in the order of the resolved configuration.
///
/// An invalid policy has its name here, too, so that references to it are not reported as well.
pub(in crate::config) struct NameTable<'t> {
    kind: &'static str,
    names: Vec<&'t str>,
    indexes: HashMap<&'t str, usize>,
    /// A name that may not be used here, and why.
    excepted: Option<(&'static str, &'static str)>,
}

impl<'t> NameTable<'t> {
    /// `kind` is the noun for error messages, such as `policy`.
    pub(in crate::config) fn new(kind: &'static str, names: Vec<&'t str>) -> Self {
        // The first of two equal names, which are an error, is kept.
        let indexes = names.iter().enumerate().rev().map(|(index, name)| (*name, index)).collect();
        Self { kind, names, indexes, excepted: None }
    }

    /// The same table, where references to `name` are reported. `reason`: the end of a sentence about the name.
    pub(in crate::config) fn except(self, name: &'static str, reason: &'static str) -> Self {
        Self { excepted: Some((name, reason)), ..self }
    }

    /// The name at `index`.
    pub(in crate::config) fn name(&self, index: usize) -> Option<&'t str> {
        self.names.get(index).copied()
    }

    /// The index of the name at `cursor`.
    pub(in crate::config) fn resolve(&self, cursor: Cursor<'_>) -> Option<usize> {
        cursor.parse(|name| self.find(name))
    }

    /// The index of this name.
    pub(in crate::config) fn find(&self, name: &str) -> Result<usize, Invalid> {
        self.indexes.get(name).copied().ok_or_else(|| {
            if let Some((_, reason)) = self.excepted.filter(|(excepted, _)| *excepted == name) {
                return Invalid::new(reason);
            }
            let invalid = Invalid::unknown_name(self.kind);
            match suggestion(name, self.names.iter().copied(), "known names:") {
                Some(help) => invalid.suggestion(help),
                None => invalid.suggestion(format!("the configuration names no {}", self.kind)),
            }
        })
    }
}
