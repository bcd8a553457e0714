//! The traits that `#[derive(Settings)]` and `#[derive(Word)]` implement, and the functions that the derived code
//! calls.

use std::{ops::RangeInclusive, time::Duration};

use serde::{Serialize, ser::SerializeMap};

use super::{Kind, Mapping, Setting};
use crate::config::{
    reader::{Cursor, MappingCursor},
    value::{Invalid, boolean, duration, number, percentage, size},
};

/// A mapping of the file, declared as a struct.
pub(in crate::config) trait Settings {
    /// Its own settings. Empty if settings of other structs are between them: then see [`Settings::PARTS`].
    const OWN: &'static [Setting];
    /// All settings, in the order of the reference.
    const PARTS: &'static [&'static [Setting]];

    fn mapping() -> &'static Mapping;

    /// Whether one of its settings takes effect only when Tollgate starts.
    const RESTART: bool = false;

    /// Takes from `old` the values of the settings that take effect only when Tollgate starts.
    fn keep_until_restart(&mut self, old: &Self)
    where
        Self: Sized,
    {
        let _ = old;
    }
}

/// Reads the mapping. Each error is reported.
pub(in crate::config) trait Read<'t>: Settings + Sized {
    /// `None`: a required setting is missing or wrong.
    fn fields(mapping: &mut MappingCursor<'t>) -> Option<Self>;

    /// Checks several settings together, and reports errors. `read` is `None` if a required setting is missing or
    /// wrong.
    fn check(_: &MappingCursor<'t>, _: Option<&Self>) {}

    /// `None`: this is not a mapping, or a required setting is missing or wrong.
    fn read(value: Cursor<'t>) -> Option<Self> {
        let mut mapping = opened::<Self>(value)?;
        let read = Self::fields(&mut mapping);
        Self::check(&mapping, read.as_ref());
        mapping.finish();
        read
    }
}

/// Reads a mapping whose settings may all be left out.
pub(in crate::config) trait ReadOver<'t>: Read<'t> {
    /// Settings that are left out, or wrong, have the values of `default`.
    fn over(default: Self, mapping: &mut MappingCursor<'t>) -> Self;

    /// As [`ReadOver::over`], for a mapping that may be left out as a whole.
    fn or(value: Option<Cursor<'t>>, default: Self) -> Self {
        let Some(mut mapping) = value.and_then(opened::<Self>) else { return default };
        let read = Self::over(default, &mut mapping);
        Self::check(&mapping, Some(&read));
        mapping.finish();
        read
    }
}

/// The mapping at `value`. `None`: it is something else, which is reported.
pub(in crate::config) fn opened<T: Settings>(value: Cursor<'_>) -> Option<MappingCursor<'_>> {
    let described = T::mapping();
    let mapping = match described.such_as {
        Some(line) => value.mapping_such_as(line(value.scalar().unwrap_or_default())),
        None => value.mapping(),
    };
    mapping.map(|mapping| mapping.of(described))
}

/// A single value whose type determines how it is read.
pub(in crate::config) trait Value: Sized {
    const KIND: Kind;

    /// # Errors
    /// The text is not a value of this type.
    fn parse(text: &str) -> Result<Self, Invalid>;
}

impl Value for bool {
    const KIND: Kind = Kind::Boolean;

    fn parse(text: &str) -> Result<Self, Invalid> {
        boolean(text)
    }
}

/// Parses the default of a setting, written as in the file.
#[expect(clippy::panic, reason = "the tests read every default")]
pub(in crate::config) fn parsed<T>(text: &str, parse: impl FnOnce(&str) -> Result<T, Invalid>) -> T {
    parse(text).unwrap_or_else(|invalid| panic!("the default {}", invalid.about_written(text)))
}

/// Reads a whole number.
pub(in crate::config) fn count_in<T: TryFrom<u64>>(
    allowed: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, Invalid> {
    move |text| number(allowed.clone())(text).and_then(narrowed)
}

/// Reads a size in bytes.
pub(in crate::config) fn size_in<T: TryFrom<u64>>(
    allowed: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, Invalid> {
    let end = |bytes: &u64| usize::try_from(*bytes).unwrap_or(usize::MAX);
    let allowed = end(allowed.start())..=end(allowed.end());
    move |text| size(allowed.clone())(text).and_then(|bytes| narrowed(bytes as u64))
}

fn narrowed<T: TryFrom<u64>>(number: u64) -> Result<T, Invalid> {
    T::try_from(number).map_err(|_| Invalid::new("is too large"))
}

/// Reads a percentage from 0% on.
pub(in crate::config) fn share_up_to(most: u8) -> impl Fn(&str) -> Result<f64, Invalid> {
    move |text| match percentage(text)? {
        share if share <= f64::from(most) / 100.0 => Ok(share),
        _ => Err(Invalid::new("is too large").expected(format!("from 0% to {most}%"))),
    }
}

/// Adds the settings of `value` to those in `map`.
pub(in crate::config) fn flatten<M: SerializeMap>(
    value: &impl Serialize,
    map: &mut M,
) -> Result<(), M::Error> {
    let entries = serde_json::to_value(value).map_err(serde::ser::Error::custom)?;
    let entries = entries.as_object().into_iter().flatten();
    entries.into_iter().try_for_each(|(key, value)| map.serialize_entry(key, value))
}

/// Reads a duration; the ends are in milliseconds.
pub(in crate::config) fn duration_in(
    allowed: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<Duration, Invalid> {
    let [least, most] = [allowed.start(), allowed.end()].map(|end| Duration::from_millis(*end));
    duration(least..=most)
}
