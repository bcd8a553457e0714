//! Suggestions for misspelled words.

pub(super) use crate::text::nearest;

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
