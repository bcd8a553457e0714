//! The records of keys as JSON, in Redis and in the data file, and the bounds of their parts.

use super::ApiKey;

/// Most bytes of a record.
pub const MAX_RECORD: usize = 16 << 10;
/// Most bytes of an ID.
pub const MAX_ID: usize = 64;
/// Most bytes of the names of customers and plans, and of an operator's name for a key.
pub const MAX_NAME: usize = 128;
/// Most secrets that a key has at a time.
pub const MAX_SECRETS: usize = 4;
/// Latest time of a change: Redis compares them as doubles.
const MAX_CHANGED: i64 = 1 << 53;
/// Most labels of a key, and most routes that it is valid for.
pub const MAX_LABELS: usize = 32;

/// The record of a key. The same key always has the same record.
pub fn encode(key: &ApiKey) -> String {
    // Strings and numbers: this can't fail.
    serde_json::to_string(key).unwrap_or_default()
}

/// Reads a record. `None` for one that no instance writes: other clients of Redis may write anything there.
pub fn decode(record: &[u8]) -> Option<ApiKey> {
    let key: ApiKey = serde_json::from_slice(record).ok().filter(|_| record.len() <= MAX_RECORD)?;
    key.check().ok().map(|()| key)
}

impl ApiKey {
    /// Whether the record keeps to its bounds.
    ///
    /// # Errors
    /// The fault, for people.
    pub fn check(&self) -> Result<(), String> {
        check_id(&self.id)?;
        check_name("customer", &self.customer)?;
        if let Some(plan) = &self.plan {
            check_name("plan", plan)?;
        }
        if self.name.len() > MAX_NAME {
            return Err(format!("the name is longer than {MAX_NAME} bytes"));
        }
        let secrets = self.secrets.len();
        if !(1..=MAX_SECRETS).contains(&secrets) {
            return Err(format!("a key has 1 to {MAX_SECRETS} secrets, not {secrets}"));
        }
        if self.labels.len() > MAX_LABELS || self.routes.len() > MAX_LABELS {
            return Err(format!("a key has {MAX_LABELS} labels and {MAX_LABELS} routes at most"));
        }
        if !(0..MAX_CHANGED).contains(&self.changed) {
            return Err(format!("it can't have been changed at {} µs since 1970", self.changed));
        }
        if encode(self).len() > MAX_RECORD {
            return Err(format!("the record is longer than {} KiB", MAX_RECORD >> 10));
        }
        Ok(())
    }
}

/// Checks the ID of a key: it is a part of paths, of commands and of logs.
///
/// # Errors
/// The fault, for people.
pub fn check_id(id: &str) -> Result<(), String> {
    let is_plain = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    // Clients remove `.` and `..` from paths.
    match !id.is_empty() && id.len() <= MAX_ID && is_plain && id != "." && id != ".." {
        true => Ok(()),
        false => {
            Err(format!("an ID has 1 to {MAX_ID} letters, digits, `-`, `_` and `.`, and is not `.` or `..`"))
        }
    }
}

/// Checks the name of a customer or of a plan: it stands in keys of limits and in headers.
///
/// # Errors
/// The fault, for people.
pub fn check_name(what: &str, name: &str) -> Result<(), String> {
    let is_plain = name.trim() == name && !name.chars().any(char::is_control);
    match !name.is_empty() && name.len() <= MAX_NAME && is_plain {
        true => Ok(()),
        false => Err(format!(
            "the {what} has 1 to {MAX_NAME} bytes, without control characters and without spaces around it"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_can_be_a_part_of_a_path() {
        for id in ["a", "...", "a.b", "Xk3vT9aLq0", "-_", &"x".repeat(MAX_ID)] {
            assert_eq!(check_id(id), Ok(()), "{id}");
        }
        for id in ["", ".", "..", "a/b", "a b", "é", "a\n", &"x".repeat(MAX_ID + 1)] {
            assert!(check_id(id).is_err(), "{id}");
        }
    }
}
