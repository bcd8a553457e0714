//! The reference of all settings, `docs/reference.md`.

use std::{collections::HashMap, fmt::Write, time::Duration};

use super::{
    Items, Kind, SettingEntry,
    entries::{entries, listed},
};
use crate::config::written::format::{format_duration, format_size};

const HEAD: &str = "\
# Reference of all settings

This page lists every setting of `proxy.yaml`, as `tollgate check` reads them. `tollgate explain-setting policies.*.slice`
prints one entry. `tollgate schema` prints a JSON Schema, with which editors complete and check settings as you type.

In the paths below, `*` stands for a name that you choose, and `[]` for each item of a list: `policies.*.slice` is
`slice` of every policy, and `listeners[].address` is `address` of every listener.

| type | written as |
| --- | --- |
| duration | a whole number and a unit: `250ms`, `1s`, `5m`, `1h`, `30d` |
| size | bytes, or a whole number and a unit: `16KiB`, `10MiB`, `1GiB` |
| rate | a number and a window: `100/1s`; `10/m` is `10/1m` |
| percentage | `1%`, `0.5%` |
| network | `10.0.0.0/8`, `\"2001:db8::/32\"` |

Every single value may contain `${NAME}` or `${NAME:-fallback}`, which insert an environment variable, and `${file:PATH}`,
which inserts the content of a file. Write `$${` for a literal `${`. An unknown key is an error that names the nearest
known one.
";

/// The whole page.
pub fn markdown() -> String {
    let entries = entries();
    let anchors = anchors(&entries);
    let mut page = HEAD.to_owned();
    let mut section = None;
    for entry in &entries {
        let parent = entry.parent();
        if section.as_ref() != Some(&parent) {
            page += &section_head(entry, &parent, &anchors);
            section = Some(parent);
        }
        page += &body(entry, &anchors);
    }
    page
}

/// The heading of the section that begins with `entry`.
fn section_head(entry: &SettingEntry, parent: &str, anchors: &HashMap<String, String>) -> String {
    let mapping = entry.mapping;
    let heading = if parent.is_empty() { "The top level".to_owned() } else { format!("`{parent}`") };
    let mut text = format!("\n## {heading}\n\n{}", mapping.about);
    if let Some(file) = mapping.page.split('#').next().filter(|file| !file.is_empty()) {
        let _ = write!(text, " Guide: [{file}]({}).", mapping.page);
    }
    if !mapping.sample.is_empty() {
        let _ = write!(text, " A minimal example: `{{ {} }}`.", mapping.sample);
    }
    text.push_str("\n\n| setting | default |\n| --- | --- |\n");
    for setting in mapping.settings() {
        let path =
            if parent.is_empty() { setting.key.to_owned() } else { format!("{parent}.{}", setting.key) };
        let anchor = anchors.get(&path).map_or("", String::as_str);
        let own = SettingEntry { setting, ..entry.clone() };
        let _ = writeln!(text, "| [`{}`](#{anchor}) | {} |", setting.key, own.default());
    }
    text
}

fn body(entry: &SettingEntry, anchors: &HashMap<String, String>) -> String {
    let setting = entry.setting;
    let mut text = format!("\n### `{}`\n\n{}\n\n", entry.path(), setting.about);
    let _ = writeln!(text, "- Type: {}", setting.kind.name());
    let _ = writeln!(text, "- Default: {}", entry.default());
    if !setting.example.is_empty() {
        let _ = writeln!(text, "- Example: `{}`", entry.example());
    }
    for rule in entry.rules() {
        let _ = writeln!(text, "- {rule}");
    }
    let link = |path: &&str| {
        let anchor = anchors.get(*path).map_or("", String::as_str);
        format!("[`{path}`](#{anchor})")
    };
    let see: Vec<_> = setting.see.iter().map(link).collect();
    if !see.is_empty() {
        let _ = writeln!(text, "- See also: {}", listed(&see, "and"));
    }
    text
}

/// The anchor of each setting's heading, as forges and mdBook derive it from the text.
fn anchors(entries: &[SettingEntry]) -> HashMap<String, String> {
    let mut times: HashMap<String, usize> = HashMap::new();
    let mut all = HashMap::new();
    let mut section = None;
    for entry in entries {
        let (path, parent) = (entry.path(), entry.parent());
        let mut anchor = |heading: &str| {
            let is_kept = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
            let plain: String =
                heading.to_ascii_lowercase().replace(' ', "-").chars().filter(is_kept).collect();
            let time = times.entry(plain.clone()).or_insert(0);
            *time += 1;
            if *time == 1 { plain } else { format!("{plain}-{}", *time - 1) }
        };
        if section.as_ref() != Some(&parent) {
            anchor(if parent.is_empty() { "The top level" } else { &parent });
            section = Some(parent);
        }
        let own = anchor(&path);
        all.insert(path, own);
    }
    all
}

impl Kind {
    /// A description of the value.
    pub(super) fn name(&self) -> String {
        let milliseconds = |length: &u64| format_duration(Duration::from_millis(*length));
        let bytes = |size: &u64| format_size(usize::try_from(*size).unwrap_or(usize::MAX));
        match self {
            Self::Boolean => "`true` or `false`".to_owned(),
            Self::Word(words) => {
                let words: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
                listed(&words, "or")
            }
            Self::Count(least, most) => format!("a whole number from {least} to {most}"),
            Self::Duration(least, most) => {
                format!("a duration from {} to {}", milliseconds(least), milliseconds(most))
            }
            Self::Size(least, most) => format!("a size from {} to {}", bytes(least), bytes(most)),
            Self::Percentage(true, most) => format!("a percentage from 0% to {most}%"),
            Self::Percentage(false, most) => format!("a percentage above 0%, up to {most}%"),
            Self::Text(text) => text.name.to_owned(),
            Self::File => "the path of a file".to_owned(),
            Self::List(item, items) => format!("{}; each item is {}", items.name(), item.name()),
            Self::Names(name, value, _) => format!("a mapping from {} to {}", name.name, value.name()),
            Self::Mapping(mapping) if mapping().settings().map(|setting| setting.key).eq(["file"]) => {
                "`{ file: PATH }`".to_owned()
            }
            Self::Mapping(_) => "a mapping".to_owned(),
            // Alternatives to the list precede the description of its items.
            Self::Either([Self::List(item, items), other]) => {
                format!("{}, or {}; each item is {}", items.name(), other.name(), item.name())
            }
            Self::Either(kinds) => kinds.iter().map(Self::name).collect::<Vec<_>>().join(", or "),
            Self::Any => "anything".to_owned(),
        }
    }
}

impl Items {
    /// A description of a list of such values.
    fn name(self) -> &'static str {
        if self.is_never_empty() { "a list that is not empty" } else { "a list" }
    }
}
