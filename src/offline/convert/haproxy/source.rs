//! References of the lines of a section: other sections, files, listeners.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use super::syntax::{ConfigLine, Section};
use crate::offline::convert::{
    condition::{RequestCondition, Test, is_host},
    read,
};

/// A listener that is opened.
pub(super) struct Bound<'c> {
    pub(super) section: &'c Section,
    pub(super) name: String,
    pub(super) port: u16,
    pub(super) is_tls: bool,
}

/// A configuration that is read.
pub(super) struct HaproxyConfig<'c> {
    pub(super) sections: &'c [Section],
    directory: PathBuf,
    pub(super) listeners: Vec<Bound<'c>>,
    /// The hosts that any condition names, in lower case.
    pub(super) hosts: BTreeSet<String>,
}

impl<'c> HaproxyConfig<'c> {
    pub(super) fn new(sections: &'c [Section], path: &Path) -> Self {
        let directory = path.parent().unwrap_or(Path::new("")).to_owned();
        let words = sections.iter().flat_map(|section| &section.lines).flat_map(|line| {
            let of_host = line.words.iter().position(|word| word.to_ascii_lowercase().contains("(host"));
            line.words.iter().skip(of_host.map_or(usize::MAX, |at| at + 1))
        });
        let hosts = words.map(|word| word.to_ascii_lowercase());
        let hosts = hosts.filter(|host| host.contains('.') && is_host(host)).collect();
        Self { sections, directory, listeners: Vec::new(), hosts }
    }

    /// The lines of a section behind those of its `defaults`, without those that a `no` takes back.
    pub(super) fn lines(&self, section: &'c Section) -> Vec<&'c ConfigLine> {
        let mut lines = self.defaults(section).map(|defaults| self.lines(defaults)).unwrap_or_default();
        for line in &section.lines {
            match line.words.as_slice() {
                [no, option, name, ..] if no == "no" && option == "option" => {
                    lines.retain(|known| known.word(0) != "option" || known.word(1) != name);
                }
                [no, name, ..] if no == "no" => lines.retain(|known| known.word(0) != name),
                _ => lines.push(line),
            }
        }
        lines
    }

    /// The `defaults` of a section, which are before it.
    fn defaults(&self, section: &'c Section) -> Option<&'c Section> {
        let is_before = |known: &&Section| known.head.place.line < section.head.place.line;
        let mut defaults = self.sections.iter().filter(|known| known.kind() == "defaults").filter(is_before);
        match (section.head.after("from"), section.kind()) {
            (Some(name), _) => defaults.rfind(|known| known.name() == name),
            (None, "defaults") => None,
            (None, _) => defaults.next_back(),
        }
    }

    /// The last line of this name.
    pub(super) fn last(lines: &[&'c ConfigLine], name: &str) -> Option<&'c ConfigLine> {
        lines.iter().rfind(|line| line.word(0) == name).copied()
    }

    /// The section with this stick table, or this backend. A frontend may have the name of a backend.
    pub(super) fn section(&self, name: &str) -> Option<&'c Section> {
        let of = |kinds: &[&str]| {
            self.sections.iter().find(|section| section.name() == name && kinds.contains(&section.kind()))
        };
        of(&["backend", "listen"]).or_else(|| of(&["frontend"]))
    }

    /// Whether any rule sets this header, which is in lower case.
    pub(super) fn sets(&self, header: &str) -> bool {
        let mut lines = self.sections.iter().flat_map(|section| &section.lines);
        lines.any(|line| line.word(1).ends_with("-header") && line.word(2).eq_ignore_ascii_case(header))
    }

    /// A setting of `global`.
    pub(super) fn global(&self, name: &str) -> Option<&'c ConfigLine> {
        let lines = self.sections.iter().filter(|section| section.kind() == "global");
        lines.flat_map(|section| &section.lines).rfind(|line| line.word(0) == name)
    }

    /// A file that a line names. `base`: the setting of the folder for such files.
    pub(super) fn file(&self, name: &str, base: Option<&str>) -> PathBuf {
        let base = base.and_then(|base| self.global(base)).map_or("", |line| line.word(1));
        self.directory.join(base).join(name)
    }

    /// The values in a file of an ACL.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub(super) fn values(&self, name: &str) -> Result<Vec<String>, String> {
        let text = read(&self.file(name, None)).map_err(|error| format!("`-f {name}`: {error}"))?;
        let lines = text.lines().map(str::trim);
        Ok(lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect())
    }

    /// Whether a request comes to one of the listeners that meet this.
    pub(super) fn at(&self, is_met: impl Fn(&Bound<'_>) -> bool) -> RequestCondition {
        let names = self.listeners.iter().filter(|bound| is_met(bound));
        Test::Listeners(names.map(|bound| bound.name.clone()).collect()).into()
    }
}
