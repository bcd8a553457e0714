//! An entry of the reference for a terminal.

use std::fmt::Write;

use super::{
    Kind, SettingEntry,
    entries::{descend, entries},
};
use crate::config::nearest::nearest;

/// Describes the setting `name`: a path as in the reference, a path as in a file, or a key alone, which several
/// settings may have.
///
/// # Errors
/// No setting has this name. The message has the nearest names.
pub fn explain(name: &str) -> Result<String, String> {
    let all = entries();
    let asked: Vec<String> =
        name.split('.').map(|part| part.split('[').next().unwrap_or_default().to_owned()).collect();
    let asked: Vec<&str> = asked.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    let mut found: Vec<&SettingEntry> = all.iter().filter(|entry| entry.path() == name).collect();
    if found.is_empty() {
        found = all.iter().filter(|entry| is_at(&segments(entry), &asked)).collect();
    }
    if let ([key], true) = (&asked[..], found.is_empty()) {
        found = all.iter().filter(|entry| entry.setting.key == *key).collect();
    }
    if found.is_empty() {
        return Err(unknown(name, &asked, &all));
    }
    Ok(found.into_iter().map(text).collect::<Vec<_>>().join("\n"))
}

/// The parts of its path, without lists.
fn segments(entry: &SettingEntry) -> Vec<String> {
    entry.path().replace("[]", "").split('.').map(str::to_owned).collect()
}

/// Whether `asked` leads to `path`. A `*` of the path is any name; numbers of items and further `*` may be left out.
fn is_at(path: &[String], asked: &[&str]) -> bool {
    let is_item = |part: &str| part == "*" || part.bytes().all(|byte| byte.is_ascii_digit());
    match (path.split_first(), asked.split_first()) {
        (None, None) => true,
        (Some((segment, below)), Some((part, rest))) => {
            let fits = match segment.strip_suffix('*') {
                Some(prefix) => part.starts_with(prefix),
                None => segment == part,
            };
            fits && is_at(below, rest) || is_item(part) && is_at(path, rest)
        }
        _ => false,
    }
}

fn unknown(name: &str, asked: &[&str], all: &[SettingEntry]) -> String {
    let paths: Vec<String> = all.iter().map(SettingEntry::path).collect();
    let key = asked.last().copied().unwrap_or_default();
    let mut near: Vec<&str> = nearest(name, paths.iter().map(String::as_str)).into_iter().collect();
    let keys = all.iter().map(|entry| entry.setting.key);
    if let Some(meant) = nearest(key, keys) {
        near.extend(
            all.iter().zip(&paths).filter(|(entry, _)| entry.setting.key == meant).map(|(_, path)| &**path),
        );
    }
    if key.len() >= 3 {
        near.extend(
            all.iter()
                .zip(&paths)
                .filter(|(entry, _)| entry.setting.key.contains(key))
                .map(|(_, path)| &**path),
        );
    }
    let mut shown: Vec<&str> = Vec::new();
    near.into_iter().for_each(|path| {
        if !shown.contains(&path) && shown.len() < 5 {
            shown.push(path);
        }
    });
    match &shown[..] {
        [] => format!("no setting is named `{name}`; docs/reference.md lists them all"),
        [one] => format!("no setting is named `{name}`; did you mean `{one}`?"),
        several => format!("no setting is named `{name}`; did you mean one of `{}`?", several.join("`, `")),
    }
}

fn text(entry: &SettingEntry) -> String {
    let setting = entry.setting;
    let plain = |text: &str| text.replace('`', "");
    let mut text = format!("{}\n  {}\n\n", entry.path(), plain(setting.about));
    let mut line = |title: &str, content: &str| {
        let _ = writeln!(text, "  {title:<10}{content}");
    };
    line("type", &plain(&setting.kind.name()));
    line("default", &plain(&entry.default()));
    if !setting.example.is_empty() {
        line("example", &entry.example());
    }
    for rule in entry.rules() {
        line("rule", &plain(&rule));
    }
    let keys = keys(&setting.kind);
    if !keys.is_empty() {
        line("settings", &keys.join(", "));
    }
    if !setting.see.is_empty() {
        line("see also", &setting.see.join(", "));
    }
    if !entry.page().is_empty() {
        line("guide", &format!("docs/{}", entry.page()));
    }
    text
}

/// The keys of the mappings that the value may be, or consist of.
fn keys(kind: &'static Kind) -> Vec<&'static str> {
    let mut keys = Vec::new();
    descend(kind, &mut Vec::new(), &mut |mapping, _| {
        keys.extend(mapping.settings().map(|setting| setting.key));
    });
    keys.dedup();
    keys
}
