//! All settings, each with its path.

use super::{Default, Kind, Mapping, Rule, Setting, Settings};
use crate::config::resolved::Config;

/// A setting at its place in the file.
#[derive(Clone)]
pub struct SettingEntry {
    /// The steps from the top level.
    pub(super) steps: Vec<PathStep>,
    pub(super) mapping: &'static Mapping,
    pub(super) setting: &'static Setting,
}

/// A step down.
#[derive(Clone, Copy)]
pub(super) enum PathStep {
    /// To a setting of a mapping.
    Key(&'static Setting),
    /// To an item of a list.
    Item,
    /// To the value under a name.
    Name,
}

impl SettingEntry {
    /// Its path: `listeners[].tls.min_version`, `policies.*.slice`.
    pub fn path(&self) -> String {
        path(&self.steps)
    }

    /// The path of the mapping that it is in. Empty: the top level.
    pub(super) fn parent(&self) -> String {
        path(self.steps.split_last().map_or(&[], |(_, above)| above))
    }

    /// The page of the guide about it, below `docs`. Empty: none.
    pub(super) fn page(&self) -> &'static str {
        let mut page = self.mapping.page;
        descend(&self.setting.kind, &mut Vec::new(), &mut |mapping, _| {
            page = if page.is_empty() { mapping.page } else { page };
        });
        page
    }

    /// The rules of its mapping that concern it, each as a sentence.
    pub(super) fn rules(&self) -> Vec<String> {
        let mut others: Vec<_> =
            self.mapping.rules.iter().flat_map(|rule| rule.excluded_by(self.setting)).collect();
        others.sort_unstable();
        others.dedup();
        let others: Vec<_> = others.into_iter().map(|key| format!("`{key}`")).collect();
        let excluded = (!others.is_empty()).then(|| format!("Not together with {}.", listed(&others, "or")));
        self.mapping.rules.iter().filter_map(|rule| rule.about(self.setting)).chain(excluded).collect()
    }

    /// The default, or `required` or `none`.
    pub(super) fn default(&self) -> String {
        match self.setting.default {
            Default::Value(value) => format!("`{value}`"),
            Default::Meaning(meaning) => meaning.to_owned(),
            Default::Required if self.mapping.requires(self.setting) => "required".to_owned(),
            Default::Required => "none".to_owned(),
        }
    }

    /// The example with the settings that it needs: `algorithm: gcra, burst: 100`.
    pub(super) fn example(&self) -> String {
        let Setting { key, example, beside, .. } = *self.setting;
        let key = match key {
            "*" => "hammering".to_owned(),
            _ if key.ends_with('*') => {
                let name = match key {
                    "jwt:*" => "plan",
                    "tls:*" => "subject",
                    "value:*" => "model",
                    _ => "x-plan",
                };
                let key = key.trim_end_matches('*');
                if key == "x-" { "x-anchors".to_owned() } else { format!("\"{key}{name}\"") }
            }
            _ => key.to_owned(),
        };
        match beside {
            "" => format!("{key}: {example}"),
            _ => format!("{beside}, {key}: {example}"),
        }
    }
}

impl Mapping {
    /// Whether `setting` is required, regardless of the other settings.
    pub(super) fn requires(&self, setting: &Setting) -> bool {
        let is_one_of_several = |rule: &Rule| match rule {
            Rule::One(keys) | Rule::AtLeastOne(keys) => keys.contains(&setting.key),
            _ => false,
        };
        matches!(setting.default, Default::Required)
            && setting.prefix().is_none()
            && !self.rules.iter().any(is_one_of_several)
    }
}

impl Rule {
    /// The keys that can't be set beside `setting`, unless the sentence about this rule names them.
    fn excluded_by(&self, setting: &Setting) -> Vec<&'static str> {
        match self {
            Self::AtMostOne(keys) if keys.contains(&setting.key) => {
                keys.iter().copied().filter(|key| *key != setting.key).collect()
            }
            _ => Vec::new(),
        }
    }

    fn about(&self, setting: &Setting) -> Option<String> {
        let key = setting.key;
        let others = |keys: &[&str]| {
            let others: Vec<_> =
                keys.iter().filter(|other| **other != key).map(|key| format!("`{key}`")).collect();
            (others.len() < keys.len()).then(|| listed(&others, "or"))
        };
        let values = |other: &str, values: &[&str]| {
            let values: Vec<_> = values.iter().filter(|value| !value.is_empty()).collect();
            let values: Vec<_> = values.iter().map(|value| format!("`{other}: {value}`")).collect();
            listed(&values, "or")
        };
        match self {
            Self::One(keys) => Some(format!("Set either this or {}.", others(keys)?)),
            Self::AtLeastOne(keys) => Some(format!("Required unless {} is set.", others(keys)?)),
            Self::With(one, other) if *one == key => Some(format!("Only together with `{other}`.")),
            Self::Where(one, other, of) if *one == key => Some(format!("Only with {}.", values(other, of))),
            Self::NotWhere(one, other, of) if *one == key => Some(format!("Not with {}.", values(other, of))),
            Self::RequiredWhere(one, other, of) if *one == key => {
                Some(format!("Required with {}.", values(other, of)))
            }
            Self::KindWhere(one, other, value, then, otherwise) if *one == key => {
                Some(format!("With `{other}: {value}`, {}; otherwise {}.", then.name(), otherwise.name()))
            }
            _ => None,
        }
    }
}

/// `a, b or c`
pub(super) fn listed(words: &[String], conjunction: &str) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [all @ .., last] => format!("{} {conjunction} {last}", all.join(", ")),
    }
}

fn path(steps: &[PathStep]) -> String {
    let mut path = String::new();
    for step in steps {
        match step {
            PathStep::Key(setting) if path.is_empty() => path.push_str(setting.key),
            PathStep::Key(setting) => {
                path.push('.');
                path.push_str(setting.key);
            }
            PathStep::Item => path.push_str("[]"),
            PathStep::Name => path.push_str(".*"),
        }
    }
    path
}

/// All settings, in the order of the reference.
pub fn entries() -> Vec<SettingEntry> {
    let mut all = Vec::new();
    collect(Config::mapping(), &mut Vec::new(), &mut all);
    all
}

/// The paths of the settings that do not affect requests.
pub(in crate::config) fn of_the_instance() -> Vec<String> {
    entries().iter().filter(|entry| entry.setting.of_the_instance).map(SettingEntry::path).collect()
}

/// The keys of the settings whose values a reload does not show when it lists the changes.
pub(in crate::config) fn confidential() -> Vec<&'static str> {
    entries().iter().filter(|entry| entry.setting.confidential).map(|entry| entry.setting.key).collect()
}

/// The settings of a mapping, followed by the settings of the mappings in it.
fn collect(mapping: &'static Mapping, steps: &mut Vec<PathStep>, all: &mut Vec<SettingEntry>) {
    for setting in mapping.settings() {
        steps.push(PathStep::Key(setting));
        all.push(SettingEntry { steps: steps.clone(), mapping, setting });
        steps.pop();
    }
    for setting in mapping.settings() {
        steps.push(PathStep::Key(setting));
        descend(&setting.kind, steps, &mut |mapping, steps| collect(mapping, steps, all));
        steps.pop();
    }
}

/// Calls `found` for each mapping that a value of this kind may be, or may consist of.
pub(super) fn descend(
    kind: &'static Kind,
    steps: &mut Vec<PathStep>,
    found: &mut dyn FnMut(&'static Mapping, &mut Vec<PathStep>),
) {
    match kind {
        Kind::Mapping(mapping) => found(mapping(), steps),
        Kind::Either(kinds) => kinds.iter().for_each(|kind| descend(kind, steps, found)),
        Kind::List(item, _) => {
            steps.push(PathStep::Item);
            descend(item, steps, found);
            steps.pop();
        }
        Kind::Names(_, value, _) => {
            steps.push(PathStep::Name);
            descend(value, steps, found);
            steps.pop();
        }
        _ => {}
    }
}
