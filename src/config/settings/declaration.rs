//! The declaration of a setting: its key, type, default, range, meaning and example.

/// A mapping whose keys are settings.
pub(in crate::config) struct Mapping {
    /// A description in one sentence.
    pub(super) about: &'static str,
    /// Its page of the guide, with or without a section: `limits.md#memory`.
    pub(super) page: &'static str,
    pub(super) parts: &'static [&'static [Setting]],
    pub(super) rules: &'static [Rule],
    /// A small valid mapping, without the braces.
    pub(super) sample: &'static str,
    /// The line that the help suggests to a user who wrote a single value in place of the mapping. `VALUE` in it
    /// becomes this value.
    pub(super) such_as: Option<fn(&str) -> &'static str>,
    /// The section of `foreign_names.txt` for its keys. Empty: none.
    pub(in crate::config) foreign: &'static str,
}

impl Mapping {
    pub(in crate::config) const fn new(
        about: &'static str,
        page: &'static str,
        parts: &'static [&'static [Setting]],
    ) -> Self {
        Self { about, page, parts, rules: &[], sample: "", such_as: None, foreign: "" }
    }

    pub(in crate::config) const fn such_as(self, such_as: Option<fn(&str) -> &'static str>) -> Self {
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

    /// The fixed keys, without those that only have a fixed prefix.
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
        self.parts.iter().copied().flatten()
    }
}

/// One setting.
#[derive(Clone, Copy)]
pub(in crate::config) struct Setting {
    /// The key in the file. `jwt:*` is any key that begins with `jwt:`.
    pub(super) key: &'static str,
    pub(super) kind: Kind,
    pub(super) about: &'static str,
    pub(super) default: Default,
    /// A value.
    pub(super) example: &'static str,
    /// Other settings that the example needs, without braces.
    pub(super) beside: &'static str,
    /// The paths of related settings.
    pub(super) see: &'static [&'static str],
    /// It does not affect requests, and may differ between instances that share their limits.
    pub(super) of_the_instance: bool,
    /// A reload reports that it changed, and does not show its value.
    pub(super) confidential: bool,
}

impl Setting {
    pub(in crate::config) const fn new(key: &'static str, kind: Kind, about: &'static str) -> Self {
        let (default, example, beside) = (Default::Required, "", "");
        let (of_the_instance, confidential) = (false, false);
        Self { key, kind, about, default, example, beside, see: &[], of_the_instance, confidential }
    }

    /// `settings` of another mapping that apply in this one, too, where they are left out. `meaning`: says so.
    pub(in crate::config) const fn inherited<const N: usize>(
        settings: &[Self],
        meaning: &'static str,
    ) -> [Self; N] {
        let mut all = [settings[0]; N];
        let mut nth = 0;
        while nth < N {
            all[nth] = settings[nth].unset(meaning);
            nth += 1;
        }
        all
    }

    /// Sets the default, as the file would write it.
    pub(in crate::config) const fn default(self, value: &'static str) -> Self {
        Self { default: Default::Value(value), ..self }
    }

    /// Sets the default, described in words.
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

    /// The fixed prefix of its keys: `jwt:` for `jwt:*`.
    pub(super) fn prefix(&self) -> Option<&'static str> {
        self.key.strip_suffix('*')
    }
}

/// The default of a setting.
#[derive(Clone, Copy)]
pub(super) enum Default {
    /// None: this setting, or one of several, is required.
    Required,
    Value(&'static str),
    Meaning(&'static str),
}

/// The type of a value.
#[derive(Clone, Copy)]
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
    /// From 0% to this percentage. `false`: 0% is not allowed.
    Percentage(bool, u8),
    Text(&'static Text),
    /// The path of a file.
    File,
    List(&'static Kind, Items),
    /// Names that the operator chooses, each with a value.
    Names(&'static Text, &'static Kind, Items),
    Mapping(fn() -> &'static Mapping),
    /// One of several kinds.
    Either(&'static [Kind]),
    /// Any value.
    Any,
}

/// Constraints on the items of a list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum Items {
    Any,
    /// At least one item.
    Some,
    /// No item twice.
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
    /// A noun phrase: `an IP address and a port`.
    pub(super) name: &'static str,
    /// A regular expression that all such text matches, and most other text does not.
    pub(super) pattern: &'static str,
    /// Whether numbers and booleans of YAML are such text, too.
    pub(super) is_any_scalar: bool,
    /// Whether it must never be shown.
    pub(super) is_secret: bool,
    /// Whether parts of it may be credentials.
    pub(super) may_have_credentials: bool,
}

/// A rule about several settings of one mapping.
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
    /// The first is required where the second has one of these values.
    RequiredWhere(&'static str, &'static str, &'static [&'static str]),
    /// The first is of this kind where the second has this value, and of that kind elsewhere.
    KindWhere(&'static str, &'static str, &'static str, Kind, Kind),
}
