//! The declaration of a setting: its key, type, default, range, meaning and example.

/// A mapping whose keys are settings.
pub(in crate::config) struct Mapping {
    /// What it configures, in a sentence.
    pub(super) about: &'static str,
    /// The page of the guide about it, and a part of it: `limits.md#memory`.
    pub(super) page: &'static str,
    pub(super) settings: &'static [Setting],
    pub(super) parts: &'static [&'static [Setting]],
    pub(super) rules: &'static [Rule],
    /// A small mapping that is right, without the braces.
    pub(super) sample: &'static str,
    /// The line to write where a single value stands in place of the mapping. In it, `VALUE` becomes that value.
    pub(super) such_as: Option<&'static str>,
    /// The section of the foreign names.
    pub(in crate::config) foreign: &'static str,
}

impl Mapping {
    pub(super) const fn new(about: &'static str, page: &'static str, settings: &'static [Setting]) -> Self {
        Self { about, page, settings, parts: &[], rules: &[], sample: "", such_as: None, foreign: "" }
    }

    /// As a derive makes it.
    pub(in crate::config) const fn of(
        about: &'static str,
        page: &'static str,
        parts: &'static [&'static [Setting]],
    ) -> Self {
        Self { parts, ..Self::new(about, page, &[]) }
    }

    pub(in crate::config) const fn such_as(self, such_as: Option<&'static str>) -> Self {
        Self { such_as, ..self }
    }

    pub(in crate::config) const fn foreign(self, foreign: &'static str) -> Self {
        Self { foreign, ..self }
    }

    pub(in crate::config) const fn rules(self, rules: &'static [Rule]) -> Self {
        Self { rules, ..self }
    }

    pub(in crate::config) const fn sample(self, sample: &'static str) -> Self {
        Self { sample, ..self }
    }

    /// The keys that are written as they stand here.
    pub(in crate::config) fn keys(&self) -> impl Iterator<Item = &'static str> {
        self.settings().filter(|setting| setting.prefix().is_none()).map(|setting| setting.key)
    }

    /// Whether `key` is one of its settings.
    pub(in crate::config) fn has(&self, key: &str) -> bool {
        self.setting(key).is_some()
    }

    /// The setting that has this key.
    pub(super) fn setting(&self, key: &str) -> Option<&'static Setting> {
        let begins = |setting: &&Setting| setting.prefix().is_some_and(|prefix| key.starts_with(prefix));
        self.settings().find(|setting| setting.key == key).or_else(|| self.settings().find(begins))
    }

    /// All settings, in the order of the reference.
    pub(super) fn settings(&self) -> impl Iterator<Item = &'static Setting> + Clone {
        self.settings.iter().chain(self.parts.iter().copied().flatten())
    }
}

/// One setting.
pub(in crate::config) struct Setting {
    /// As it is written; `jwt:*` is any key that begins with `jwt:`.
    pub(super) key: &'static str,
    pub(super) kind: Kind,
    pub(super) about: &'static str,
    pub(super) default: Default,
    /// A value.
    pub(super) example: &'static str,
    /// What the example needs beside it, without braces.
    pub(super) beside: &'static str,
    /// The paths of the settings that it interacts with.
    pub(super) see: &'static [&'static str],
    /// It does not affect requests, and may differ between instances that share their limits.
    pub(super) of_the_instance: bool,
    /// Its value is not shown where a reload lists what has changed.
    pub(super) confidential: bool,
}

impl Setting {
    pub(in crate::config) const fn new(key: &'static str, kind: Kind, about: &'static str) -> Self {
        let (default, example, beside) = (Default::Required, "", "");
        let (of_the_instance, confidential) = (false, false);
        Self { key, kind, about, default, example, beside, see: &[], of_the_instance, confidential }
    }

    /// With another meaning.
    pub(in crate::config) const fn about(self, about: &'static str) -> Self {
        Self { about, ..self }
    }

    /// What holds without it, as it would be written.
    pub(in crate::config) const fn default(self, value: &'static str) -> Self {
        Self { default: Default::Value(value), ..self }
    }

    /// What holds without it, in words.
    pub(in crate::config) const fn unset(self, meaning: &'static str) -> Self {
        Self { default: Default::Meaning(meaning), ..self }
    }

    pub(in crate::config) const fn example(self, value: &'static str) -> Self {
        Self { example: value, ..self }
    }

    pub(in crate::config) const fn beside(self, others: &'static str) -> Self {
        Self { beside: others, ..self }
    }

    pub(in crate::config) const fn see(self, paths: &'static [&'static str]) -> Self {
        Self { see: paths, ..self }
    }

    pub(in crate::config) const fn of_the_instance(self) -> Self {
        Self { of_the_instance: true, ..self }
    }

    pub(in crate::config) const fn confidential(self) -> Self {
        Self { confidential: true, ..self }
    }

    /// What all its keys begin with, where only that is fixed.
    pub(super) fn prefix(&self) -> Option<&'static str> {
        self.key.strip_suffix('*')
    }
}

/// What applies where a setting is left out.
pub(super) enum Default {
    /// Nothing: it must be there, or one of several must.
    Required,
    Value(&'static str),
    Meaning(&'static str),
}

/// What a value is.
pub(in crate::config) enum Kind {
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
pub(in crate::config) enum Items {
    Any,
    /// It has at least one item.
    Some,
    /// No item stands in it twice.
    Unique,
    /// Both.
    SomeUnique,
}

impl Items {
    pub(super) fn is_never_empty(self) -> bool {
        matches!(self, Self::Some | Self::SomeUnique)
    }

    pub(super) fn is_unique(self) -> bool {
        matches!(self, Self::Unique | Self::SomeUnique)
    }
}

/// Text of one form.
pub(in crate::config) struct Text {
    /// What it is: `an IP address and a port`.
    pub(super) name: &'static str,
    /// A regular expression that all such text matches, and most other text does not.
    pub(super) pattern: &'static str,
    /// Whether what YAML takes for a number or a boolean is such text, too.
    pub(super) is_any_scalar: bool,
    /// Whether it must never be shown.
    pub(super) is_secret: bool,
    /// Whether parts of it may be such.
    pub(super) may_have_credentials: bool,
}

/// What settings of one mapping say about each other.
pub(in crate::config) enum Rule {
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
