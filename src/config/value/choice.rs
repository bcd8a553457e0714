//! A choice between a few words.

use super::Invalid;
use crate::config::nearest::nearest;

/// Common words for on and off, and our words for them.
const ON_AND_OFF: [(&[&str], &[&str]); 2] = [
    (&["on", "yes", "true", "1", "enable", "enabled", "y"], &["true"]),
    (&["off", "no", "false", "0", "disable", "disabled", "n", "none", "never"], &["false", "off"]),
];

/// Reads one of the words of `options`.
pub(in crate::config) fn choice<T: Copy>(
    options: &[(&'static str, T)],
) -> impl Fn(&str) -> Result<T, Invalid> {
    move |text| {
        find(text, options).ok_or_else(|| {
            with_suggestion(Invalid::new("is not valid here"), text, options.iter().map(|(word, _)| *word))
        })
    }
}

/// As [`choice`]. `noun`: the noun for the options; `others`: other names of options, each with the line to write.
pub(in crate::config) fn named_choice<T: Copy>(
    noun: &str,
    options: &[(&'static str, T)],
    others: &[(&str, &str)],
) -> impl Fn(&str) -> Result<T, Invalid> {
    move |text| {
        find(text, options).ok_or_else(|| {
            let plain = text.to_ascii_lowercase().replace(['-', ' '], "_");
            let invalid = Invalid::unknown_name(noun);
            let invalid = with_suggestion(invalid, &plain, options.iter().map(|(word, _)| *word));
            match others.iter().find(|(other, _)| *other == plain) {
                Some((_, line)) => invalid.suggestion(*line),
                None => invalid,
            }
        })
    }
}

fn find<T: Copy>(text: &str, options: &[(&'static str, T)]) -> Option<T> {
    options.iter().find(|(word, _)| *word == text).map(|(_, value)| *value)
}

/// Adds the options, and suggests the most similar one.
fn with_suggestion(invalid: Invalid, text: &str, words: impl Iterator<Item = &'static str>) -> Invalid {
    let words: Vec<_> = words.collect();
    let invalid = invalid.expected(format!("one of {}", words.join(", ")));
    let lower = text.to_ascii_lowercase();
    let same = ON_AND_OFF.iter().find(|(others, _)| others.contains(&&*lower));
    let same = same.and_then(|(_, ours)| words.iter().find(|word| ours.contains(*word)).copied());
    match same.or_else(|| nearest(text, words)) {
        Some(word) => invalid.suggestion(format!("did you mean `{word}`?")),
        None => invalid,
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
        assert_eq!(read("no").unwrap_err().help(false).unwrap(), "did you mean `off`?");
        assert_eq!(read("on").unwrap_err().help(false).unwrap(), "one of json, off");
        for (text, word) in
            [("on", "true"), ("Yes", "true"), ("TRUE", "true"), ("off", "false"), ("0", "false")]
        {
            assert_eq!(boolean(text).unwrap_err().help(false).unwrap(), format!("did you mean `{word}`?"));
        }
    }
}
