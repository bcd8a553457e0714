//! Suggestions for misspelled words.

use strsim::damerau_levenshtein;

/// The most similar of `known`, if it differs in at most one of every four letters.
pub(super) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // The comparison is quadratic in length, and all known words are short.
    if word.len() > 64 {
        return None;
    }
    let plain = |word: &str| word.to_lowercase().replace('-', "_");
    let word = plain(word);
    known
        .into_iter()
        .map(|name| (damerau_levenshtein(&word, &plain(name)), name))
        .filter(|(slips, name)| *slips <= (word.len().max(name.len()) / 4).max(1) && *slips < name.len())
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, name)| name)
}

/// `did you mean …`, or the known words after `lead_in`, such as `known here:`.
pub(super) fn suggestion<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
    lead_in: &str,
) -> Option<String> {
    if let Some(name) = nearest(word, known.clone()) {
        return Some(format!("did you mean `{name}`?"));
    }
    let known: Vec<_> = known.into_iter().collect();
    // Nobody reads a long list.
    let (shown, more) = known.split_at(known.len().min(20));
    let more = if more.is_empty() { "" } else { ", …" };
    (!shown.is_empty()).then(|| format!("{lead_in} {}{more}", shown.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_meant_and_nothing_far_off() {
        let known = ["limit", "limits", "key", "algorithm", "header_size"];
        assert_eq!(nearest("limt", known), Some("limit"));
        assert_eq!(nearest("limitss", known), Some("limits"));
        assert_eq!(nearest("Header-Size", known), Some("header_size"));
        assert_eq!(nearest("burst", known), None);
        assert_eq!(nearest("sliding_window", ["sliding_log"]), None);
        assert_eq!(nearest("a", ["b"]), None);
        assert_eq!(nearest(&"x".repeat(10_000), known), None);
    }

    #[test]
    fn tells_the_choice_where_nothing_is_near() {
        assert_eq!(suggestion("kye", ["key"], "known:"), Some("did you mean `key`?".to_owned()));
        assert_eq!(suggestion("tls", ["key", "limit"], "known:"), Some("known: key, limit".to_owned()));
        assert_eq!(suggestion("tls", [], "known:"), None);
    }
}
