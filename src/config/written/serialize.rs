//! Functions for serde that write values as `proxy.yaml` does.

use std::{fmt::Display, sync::Arc, time::Duration};

use http::{HeaderName, HeaderValue, StatusCode};
use serde::{Serialize, Serializer};

use crate::config::written::format::{format_duration, format_size};

pub(in crate::config) fn displayed<S: Serializer>(value: &impl Display, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

pub(in crate::config) fn optional_displayed<S: Serializer>(
    value: &Option<impl Display>,
    to: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => to.collect_str(value),
        None => to.serialize_none(),
    }
}

/// The value, or `off` for `None`.
pub(in crate::config) fn or_off<S: Serializer>(
    value: &Option<impl Serialize>,
    to: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => value.serialize(to),
        None => to.serialize_str("off"),
    }
}

pub(in crate::config) fn displayed_each<S: Serializer>(
    values: &[impl Display],
    to: S,
) -> Result<S::Ok, S::Error> {
    to.collect_seq(values.iter().map(ToString::to_string))
}

pub(in crate::config) fn shared<T: Serialize, S: Serializer>(
    values: &[Arc<T>],
    to: S,
) -> Result<S::Ok, S::Error> {
    to.collect_seq(values.iter().map(Arc::as_ref))
}

pub(in crate::config) fn duration<S: Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&format_duration(*value))
}

pub(in crate::config) fn size<S: Serializer>(bytes: &usize, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&format_size(*bytes))
}

pub(in crate::config) fn optional_size<S: Serializer>(
    bytes: &Option<usize>,
    to: S,
) -> Result<S::Ok, S::Error> {
    match bytes {
        Some(bytes) => size(bytes, to),
        None => to.serialize_none(),
    }
}

/// As its type serializes it.
pub(in crate::config) fn plain<T: Serialize, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    value.serialize(to)
}

/// A share of 1, as a percentage.
pub(in crate::config) fn percentage<S: Serializer>(share: &f64, to: S) -> Result<S::Ok, S::Error> {
    // Shares are read from decimals, and 0.07 × 100 is not quite 7.
    let percent = (share * 1e8).round() / 1e6;
    to.collect_str(&format_args!("{percent}%"))
}

pub(in crate::config) fn status<S: Serializer>(status: &StatusCode, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u16(status.as_u16())
}

pub(in crate::config) fn header_value<S: Serializer>(value: &HeaderValue, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&String::from_utf8_lossy(value.as_bytes()))
}

pub(in crate::config) fn headers<S: Serializer>(
    headers: &[(HeaderName, HeaderValue)],
    to: S,
) -> Result<S::Ok, S::Error> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    to.collect_map(headers.iter().map(|(name, value)| (name.as_str(), text(value))))
}

pub(in crate::config) fn fields<T: Serialize, S: Serializer>(
    fields: &[(HeaderName, T)],
    to: S,
) -> Result<S::Ok, S::Error> {
    to.collect_seq(fields.iter().map(|(name, value)| (name.as_str(), value)))
}

pub(in crate::config) fn optional_shared<T: Serialize, S: Serializer>(
    value: &Option<Arc<T>>,
    to: S,
) -> Result<S::Ok, S::Error> {
    value.as_deref().serialize(to)
}

pub(in crate::config) fn pairs<S: Serializer>(pairs: &[(String, String)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(pairs.iter().map(|(name, value)| (name, value)))
}

/// Whether the number is 0, which means the same as leaving the setting out.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "that is how serde asks")]
pub(in crate::config) fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percentages_without_the_noise_of_binary_fractions() {
        let text = |share: f64| percentage(&share, serde_json::value::Serializer).unwrap();
        for (share, percent) in
            [(0.07, "7%"), (0.005, "0.5%"), (1.0, "100%"), (0.0, "0%"), (0.00001, "0.001%")]
        {
            assert_eq!(text(share), percent);
        }
    }
}
