//! Reads long lists one item at a time: a tree of 100,000 items would take more than a second and 200 MiB.

use std::{fmt, marker::PhantomData};

use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_yaml::{Error, Spanned};

use super::{node::to_location, parse};
use crate::config::{FileLocation, Problem, nearest::suggestion, redact::looks_random};

/// Reads a document that has nothing but a list under `key`. Each item is given to `take`, with its location.
///
/// # Errors
/// The first thing that is not as expected.
pub(in crate::config) fn read_listing<T: DeserializeOwned>(
    text: &str,
    key: &'static str,
    mut take: impl FnMut(FileLocation, T),
) -> Result<(), Problem> {
    let mut wrong_key = None;
    let listing = Listing { key, take: &mut take, wrong_key: &mut wrong_key, items: PhantomData };
    let read =
        serde_yaml::with_deserializer_from_str_with_options(text, parse::options_of_listings(), |from| {
            listing.deserialize(from)
        });
    read.map_err(|error| wrong_key.unwrap_or_else(|| problem(&error, text)))
}

fn problem(error: &Error, text: &str) -> Problem {
    let at = |location| to_location(location);
    match error {
        Error::SerdeUnknownField { field, expected, location } => {
            let help = suggestion(field, expected.iter().copied(), "known here:");
            let named = if looks_random(field) { "this name".to_owned() } else { format!("`{field}`") };
            Problem::new(at(*location), format!("{named} is not known here")).help(help)
        }
        Error::SerdeMissingField { field, location } => {
            Problem::new(at(*location), format!("`{field}` is missing"))
        }
        Error::Message { msg, location } => Problem::new(at(*location), msg.clone()),
        other => parse::problem(other, text),
    }
}

/// The mapping with the list.
struct Listing<'t, T, F> {
    key: &'static str,
    take: &'t mut F,
    /// The error for another key: that of the parser has no location.
    wrong_key: &'t mut Option<Problem>,
    items: PhantomData<T>,
}

impl<'de, T: DeserializeOwned, F: FnMut(FileLocation, T)> DeserializeSeed<'de> for Listing<'_, T, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de, T: DeserializeOwned, F: FnMut(FileLocation, T)> Visitor<'de> for Listing<'_, T, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a mapping with `{}:`", self.key)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let mut has_list = false;
        while let Some(Spanned { value: key, defined, .. }) = entries.next_key::<Spanned<String>>()? {
            if key != self.key {
                // It may be a secret.
                let message = format!("expected `{}:` and nothing else at the top level", self.key);
                *self.wrong_key = Some(Problem::new(to_location(defined), message.clone()));
                return Err(serde::de::Error::custom(message));
            }
            has_list = true;
            entries.next_value_seed(ListItems { take: &mut *self.take, items: PhantomData })?;
        }
        match has_list {
            true => Ok(()),
            false => Err(serde::de::Error::custom(format!("`{}:` is missing", self.key))),
        }
    }
}

/// The list.
struct ListItems<'t, T, F> {
    take: &'t mut F,
    items: PhantomData<T>,
}

impl<'de, T: DeserializeOwned, F: FnMut(FileLocation, T)> DeserializeSeed<'de> for ListItems<'_, T, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de, T: DeserializeOwned, F: FnMut(FileLocation, T)> Visitor<'de> for ListItems<'_, T, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    /// A list whose last item was removed.
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(item) = items.next_element::<Spanned<T>>()? {
            (self.take)(to_location(item.defined), item.value);
        }
        Ok(())
    }
}
