//! Values of the file: numbers and flags that may be placeholders, references, and keys that nobody has read.

use crate::offline::convert::document::{Fields, Item};

/// Keys of entities that change nothing for requests: names for people and for Kong's own database.
const META: &str = "id tags created_at updated_at ws_id instance_name _comment";

/// The number of a key. Fractions are rounded up.
///
/// # Errors
/// It cannot be read, such as decK's `${{ env "DECK_LIMIT" }}`.
pub(super) fn number(fields: &Fields<'_>, key: &str) -> Result<Option<u64>, String> {
    fields.take(key).filter(|item| !item.is_null()).map(|item| read_number(key, item, 1.0)).transpose()
}

/// A number of seconds in milliseconds.
pub(super) fn milliseconds(fields: &Fields<'_>, key: &str) -> Option<u64> {
    read_number(key, fields.take(key)?, 1000.0).ok().filter(|time| *time > 0)
}

/// The numbers of a list.
pub(super) fn numbers(fields: &Fields<'_>, key: &str) -> Result<Vec<u64>, String> {
    fields.items(key).into_iter().map(|item| read_number(key, item, 1.0)).collect()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is not negative")]
fn read_number(key: &str, item: Item<'_>, times: f64) -> Result<u64, String> {
    let number = item.text().and_then(|text| text.parse::<f64>().ok());
    let number = number.filter(|number| number.is_finite() && *number >= 0.0);
    number.map(|number| (number * times).ceil() as u64).ok_or_else(|| unreadable(key, item))
}

/// Whether a key is true. `default`: without the key.
///
/// # Errors
/// It cannot be read.
pub(super) fn flag(fields: &Fields<'_>, key: &str, default: bool) -> Result<bool, String> {
    let Some(item) = fields.take(key).filter(|item| !item.is_null()) else { return Ok(default) };
    match item.text().unwrap_or_default().to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" => Ok(true),
        "false" | "no" | "off" => Ok(false),
        _ => Err(unreadable(key, item)),
    }
}

fn unreadable(key: &str, item: Item<'_>) -> String {
    format!("`{key}: {}` cannot be read", item.text().unwrap_or("…"))
}

/// The name or the ID by which an entity refers to another.
pub(super) fn reference(item: Item<'_>) -> Option<&str> {
    let fields = item.fields();
    item.text().or_else(|| ["id", "name", "username"].iter().find_map(|key| fields.text(key)))
}

pub(super) fn is_named(item: Item<'_>, name: &str) -> bool {
    let fields = item.fields();
    ["name", "id", "username", "custom_id"].iter().any(|key| fields.text(key) == Some(name))
}

/// Whether a value says nothing, as most of what decK dumps.
fn is_unset(item: Item<'_>) -> bool {
    match item.text() {
        Some(text) => matches!(text, "" | "false"),
        None if item.is_mapping() => item.fields().each().into_iter().all(|(_, item)| is_unset(item)),
        None => item.items().into_iter().all(is_unset),
    }
}

/// The value of a key, if it says something.
pub(super) fn given<'d>(fields: &Fields<'d>, key: &str) -> Option<Item<'d>> {
    fields.take(key).filter(|item| !is_unset(*item))
}

/// Ticks off keys, which are words of a text.
pub(super) fn ignore(fields: &Fields<'_>, keys: &str) {
    keys.split_whitespace().for_each(|key| fields.ignore(&[key]));
}

/// The keys that nobody has read and that say something.
pub(super) fn rest<'d>(fields: &Fields<'d>) -> Vec<(&'d str, Item<'d>)> {
    ignore(fields, META);
    fields.rest().into_iter().filter(|(key, item)| *key == "enabled" || !is_unset(*item)).collect()
}

/// # Errors
/// Nobody has read some keys.
pub(super) fn all_read(fields: &Fields<'_>) -> Result<(), String> {
    let keys: Vec<_> = rest(fields).into_iter().map(|(key, _)| format!("`{key}`")).collect();
    if keys.is_empty() { Ok(()) } else { Err(format!("{} has no equal", keys.join(", "))) }
}
