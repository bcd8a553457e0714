//! Arguments of commands that are written as in `proxy.yaml`.

use std::time::Duration;

use super::value::{self, Invalid, MAX_DURATION};
use crate::config::value::key::KeyRecipe;

/// Reads the key of a policy: `ip`, `header:x-api-key`, `ip+path`.
///
/// # Errors
/// A sentence that says why it is invalid.
pub fn key(text: &str) -> Result<KeyRecipe, String> {
    value::key_recipe(text).map_err(|invalid| sentence(invalid, text))
}

/// Reads a window of a limit: `1s`, `1m`, `1h`; 1 ms to 366 days.
///
/// # Errors
/// A sentence that says why it is invalid.
pub fn window(text: &str) -> Result<Duration, String> {
    value::duration(Duration::from_millis(1)..=MAX_DURATION)(text).map_err(|invalid| sentence(invalid, text))
}

fn sentence(invalid: Invalid, text: &str) -> String {
    let about = invalid.about_written(text);
    match invalid.help(false) {
        Some(help) => format!("{about}: {help}"),
        None => about,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_as_in_the_file() {
        assert_eq!(key("path+ip").map(|key| key.to_string()), Ok("ip+path".to_owned()));
        assert_eq!(window("90s"), Ok(Duration::from_secs(90)));
        for (message, words) in [
            (key("address").unwrap_err(), "did you mean `ip`?"),
            (window("1").unwrap_err(), "add a unit: 1s, 1ms"),
            (window("0s").unwrap_err(), "`0s`"),
        ] {
            assert!(message.contains(words), "{message}");
        }
    }
}
