//! A choice between a few words.

use super::Invalid;
use crate::config::nearest::nearest;

/// Reads one of the words of `options`.
pub(in crate::config) fn choice<T: Copy>(
    options: &[(&'static str, T)],
) -> impl Fn(&str) -> Result<T, Invalid> {
    move |text| {
        if let Some((_, value)) = options.iter().find(|(word, _)| *word == text) {
            return Ok(*value);
        }
        let words: Vec<_> = options.iter().map(|(word, _)| *word).collect();
        let invalid = Invalid::new("is not valid here").expected(format!("one of {}", words.join(", ")));
        Err(match nearest(text, words) {
            Some(word) => invalid.suggestion(format!("did you mean `{word}`?")),
            None => invalid,
        })
    }
}

/// Reads `true` or `false`.
pub(in crate::config) fn boolean(text: &str) -> Result<bool, Invalid> {
    choice(&[("true", true), ("false", false)])(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_choice() {
        let read = choice(&[("json", 1), ("off", 2)]);
        assert_eq!(read("off"), Ok(2));
        assert_eq!(read("jsno").unwrap_err().help(false).unwrap(), "did you mean `json`?");
        assert_eq!(read("xml").unwrap_err().help(false).unwrap(), "one of json, off");
    }
}
