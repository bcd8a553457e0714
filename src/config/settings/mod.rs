//! What every setting is: its type, default, range, meaning and an example.
//!
//! This is the one source of `docs/reference.md`, of the JSON Schema, and of `tollgate explain-setting`. A reader names
//! the `Mapping` that it reads, and a debug build stops where the two differ in a key; the tests hold types, ranges,
//! defaults and examples against what the readers say.

mod bans;
mod derived;
mod entries;
mod explain;
mod markdown;
mod place;
mod policies;
mod schema;
pub(super) mod shims;
#[cfg(test)]
mod tests;
pub(super) mod text;
mod upstreams;

pub(super) use self::{
    bans::{ABUSE, BAN},
    derived::{
        Ignored, Read, ReadOver, Settings, Value, count_in, duration_in, flatten, parsed, share_up_to,
        size_in,
    },
    place::Place,
    policies::{COST, COUNT, OVERRIDE, POLICY, RECORD, REPLY},
    upstreams::{
        BALANCE, ENDPOINT, ENDPOINTS_FILE, HEALTH, OUTLIER, RESOLVER, RETRY, STICKY, TIMEOUTS,
        TLS_TO_UPSTREAM, UPSTREAM,
    },
};
pub use self::{
    entries::{Entry, entries},
    explain::explain,
    markdown::markdown,
    schema::json_schema,
};

use super::Config;

/// A mapping whose keys are settings.
pub(super) struct Mapping {
    /// What it configures, in a sentence.
    about: &'static str,
    /// The page of the guide about it, and a part of it: `limits.md#memory`.
    page: &'static str,
    settings: &'static [Setting],
    parts: &'static [&'static [Setting]],
    rules: &'static [Rule],
    /// A small mapping that is right, without the braces.
    sample: &'static str,
    /// The line to write where a single value stands in place of the mapping. In it, `VALUE` becomes that value.
    such_as: Option<&'static str>,
    /// The section of the foreign names.
    pub(super) foreign: &'static str,
}

impl Mapping {
    const fn new(about: &'static str, page: &'static str, settings: &'static [Setting]) -> Self {
        Self { about, page, settings, parts: &[], rules: &[], sample: "", such_as: None, foreign: "" }
    }

    /// As a derive makes it.
    pub(super) const fn of(
        about: &'static str,
        page: &'static str,
        parts: &'static [&'static [Setting]],
    ) -> Self {
        Self { parts, ..Self::new(about, page, &[]) }
    }

    pub(super) const fn such_as(self, such_as: Option<&'static str>) -> Self {
        Self { such_as, ..self }
    }

    pub(super) const fn foreign(self, foreign: &'static str) -> Self {
        Self { foreign, ..self }
    }

    pub(super) const fn rules(self, rules: &'static [Rule]) -> Self {
        Self { rules, ..self }
    }

    pub(super) const fn sample(self, sample: &'static str) -> Self {
        Self { sample, ..self }
    }

    /// The keys that are written as they stand here.
    pub(super) fn keys(&self) -> impl Iterator<Item = &'static str> {
        self.settings().filter(|setting| setting.prefix().is_none()).map(|setting| setting.key)
    }

    /// Whether `key` is one of its settings.
    pub(super) fn has(&self, key: &str) -> bool {
        self.setting(key).is_some()
    }

    /// All settings, in the order of the reference.
    fn settings(&self) -> impl Iterator<Item = &'static Setting> + Clone {
        self.settings.iter().chain(self.parts.iter().copied().flatten())
    }
}

/// One setting.
#[derive(Clone, Copy)]
pub(super) struct Setting {
    /// As it is written; `jwt:*` is any key that begins with `jwt:`.
    key: &'static str,
    kind: Kind,
    about: &'static str,
    default: Default,
    /// A value.
    example: &'static str,
    /// What the example needs beside it, without braces.
    beside: &'static str,
    /// The paths of the settings that it interacts with.
    see: &'static [&'static str],
    /// It does not affect requests, and may differ between instances that share their limits.
    of_the_instance: bool,
    /// Its value is not shown where a reload lists what has changed.
    confidential: bool,
}

impl Setting {
    pub(super) const fn new(key: &'static str, kind: Kind, about: &'static str) -> Self {
        let (default, example, beside) = (Default::Required, "", "");
        let (of_the_instance, confidential) = (false, false);
        Self { key, kind, about, default, example, beside, see: &[], of_the_instance, confidential }
    }

    /// `settings` of another mapping that apply in this one, too, where they are left out. `meaning`: says so.
    pub(super) const fn inherited<const N: usize>(settings: &[Self], meaning: &'static str) -> [Self; N] {
        let mut all = [settings[0]; N];
        let mut nth = 0;
        while nth < N {
            all[nth] = settings[nth].unset(meaning);
            nth += 1;
        }
        all
    }

    /// What holds without it, as it would be written.
    pub(super) const fn default(self, value: &'static str) -> Self {
        Self { default: Default::Value(value), ..self }
    }

    /// What holds without it, in words.
    pub(super) const fn unset(self, meaning: &'static str) -> Self {
        Self { default: Default::Meaning(meaning), ..self }
    }

    pub(super) const fn example(self, value: &'static str) -> Self {
        Self { example: value, ..self }
    }

    pub(super) const fn beside(self, others: &'static str) -> Self {
        Self { beside: others, ..self }
    }

    pub(super) const fn see(self, paths: &'static [&'static str]) -> Self {
        Self { see: paths, ..self }
    }

    pub(super) const fn of_the_instance(self) -> Self {
        Self { of_the_instance: true, ..self }
    }

    pub(super) const fn confidential(self) -> Self {
        Self { confidential: true, ..self }
    }

    /// What all its keys begin with, where only that is fixed.
    fn prefix(&self) -> Option<&'static str> {
        self.key.strip_suffix('*')
    }
}

/// What applies where a setting is left out.
#[derive(Clone, Copy)]
enum Default {
    /// Nothing: it must be there, or one of several must.
    Required,
    Value(&'static str),
    Meaning(&'static str),
}

/// What a value is.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Boolean,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A whole number from the first to the second.
    Count(u64, u64),
    /// Milliseconds.
    Duration(u64, u64),
    /// Bytes.
    Size(u64, u64),
    /// From nothing to so many percent. `false`: it must be more than 0%.
    Percentage(bool, u8),
    Text(&'static Text),
    /// The path of a file.
    File,
    List(&'static Kind, Items),
    /// Names that the operator chooses, each with a value.
    Names(&'static Text, &'static Kind, Items),
    Mapping(fn() -> &'static Mapping),
    /// Any of several.
    Either(&'static [Kind]),
    /// Anything at all.
    Any,
}

/// What a list may be like.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Items {
    Any,
    /// It has at least one item.
    Some,
    /// No item stands in it twice.
    Unique,
    /// Both.
    SomeUnique,
}

impl Items {
    fn is_never_empty(self) -> bool {
        matches!(self, Self::Some | Self::SomeUnique)
    }

    fn is_unique(self) -> bool {
        matches!(self, Self::Unique | Self::SomeUnique)
    }
}

/// Text of one form.
pub(super) struct Text {
    /// What it is: `an IP address and a port`.
    name: &'static str,
    /// A regular expression that all such text matches, and most other text does not.
    pattern: &'static str,
    /// Whether what YAML takes for a number or a boolean is such text, too.
    is_any_scalar: bool,
    /// Whether it must never be shown.
    is_secret: bool,
    /// Whether parts of it may be such.
    may_have_credentials: bool,
}

/// What settings of one mapping say about each other.
pub(super) enum Rule {
    /// Exactly one of these.
    One(&'static [&'static str]),
    AtLeastOne(&'static [&'static str]),
    /// At most one of these.
    AtMostOne(&'static [&'static str]),
    /// The first works only beside the second.
    With(&'static str, &'static str),
    /// The first works only where the second has one of these values.
    Where(&'static str, &'static str, &'static [&'static str]),
    /// The first works only where the second has none of these values.
    NotWhere(&'static str, &'static str, &'static [&'static str]),
    /// The first must be there where the second has one of these values.
    RequiredWhere(&'static str, &'static str, &'static [&'static str]),
    /// The first is of this kind where the second has this value, and of that kind elsewhere.
    KindWhere(&'static str, &'static str, &'static str, Kind, Kind),
}

/// The whole file.
pub(super) fn root() -> &'static Mapping {
    Config::mapping()
}

/// The paths of the settings that do not affect requests.
pub(super) fn of_the_instance() -> Vec<String> {
    entries().iter().filter(|entry| entry.setting.of_the_instance).map(Entry::path).collect()
}

/// The keys of the settings whose values are not shown where a reload lists what has changed.
pub(super) fn confidential() -> Vec<&'static str> {
    entries().iter().filter(|entry| entry.setting.confidential).map(|entry| entry.setting.key).collect()
}

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
/// The longest duration of most settings.
const LONGEST: u64 = 366 * DAY;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;
