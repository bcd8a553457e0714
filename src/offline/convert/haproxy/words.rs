//! The words of words.txt: those that need nothing, since nobody outside can see what they do, and those that are
//! only noted.

use super::syntax::ConfigLine;

/// The treatment of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WordMeaning {
    /// It is converted elsewhere.
    Converted,
    NeedsNothing,
    Noted(&'static str),
    Closed(&'static str),
    Unknown,
}

/// Whether a list has this word, and whether a value is behind it.
fn lists(words: &str, word: &str) -> Option<bool> {
    words.split_whitespace().find_map(|known| {
        let name = known.trim_end_matches('=');
        let is_it = name.strip_suffix('*').map_or(word == name, |begin| word.starts_with(begin));
        is_it.then_some(known != name)
    })
}

/// A word of a kind, and whether a value is behind it.
fn class(kind: &str, word: &str) -> (WordMeaning, bool) {
    let found = include_str!("words.txt").lines().find_map(|line| {
        let said = |begin: &str| line.strip_prefix(begin)?.split_once(": ");
        let (class, words) = match (said("noted "), said("closed ")) {
            (Some((words, text)), _) => (WordMeaning::Noted(text), words),
            (_, Some((words, text))) => (WordMeaning::Closed(text), words),
            _ => (WordMeaning::NeedsNothing, line),
        };
        Some((class, lists(words.strip_prefix(kind)?.strip_prefix(' ')?, word)?))
    });
    found.unwrap_or((WordMeaning::Unknown, false))
}

/// A word of this kind.
pub(super) fn of(kind: &str, word: &str) -> WordMeaning {
    class(kind, word).0
}

/// The action of a rule, without its arguments. `kind`: `http-request` or `http-response`.
pub(super) fn action(kind: &str, action: &str) -> WordMeaning {
    let name = action.split('(').next().unwrap_or_default();
    match class("action", name) {
        (WordMeaning::Unknown, _) => class(kind, name).0,
        (known, _) => known,
    }
}

/// A line of a section.
pub(super) fn line(line: &ConfigLine) -> WordMeaning {
    let (name, of) = (line.word(0), line.word(1));
    match (class("converted", name), class("converted", &format!("{name}:{of}"))) {
        ((WordMeaning::Unknown, _), (WordMeaning::Unknown, _)) => match name {
            "option" => class("option", of).0,
            name => class("section", name).0,
        },
        _ => WordMeaning::Converted,
    }
}

/// The options of `bind` or `server` among these words, each with its value.
pub(super) fn options<'w>(kind: &str, words: &[&'w str]) -> Vec<(&'w str, &'w str, WordMeaning)> {
    let mut found = Vec::new();
    let mut words = words.iter().copied();
    while let Some(word) = words.next() {
        let (class, has_value) = class(kind, word);
        let value = if has_value { words.next().unwrap_or_default() } else { "" };
        found.push((word, value, class));
    }
    found
}

/// Headers that Tollgate sends to services by itself.
pub(super) const OWN: [&str; 3] = ["x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offline::convert::SourceLine;

    #[test]
    fn lines_are_noted_converted_unknown_or_need_nothing() {
        let class = |text: &str| {
            let words = text.split(' ').map(str::to_owned).collect();
            line(&ConfigLine {
                words,
                place: SourceLine { file: String::new(), line: 1 },
                is_in_doubt: false,
            })
        };
        for text in [
            "errorfile 503 a",
            "compression algo gzip",
            "rate-limit sessions 5",
            "maxconn 5",
            "option originalto",
        ] {
            assert!(matches!(class(text), WordMeaning::Noted(_)), "{text}");
        }
        for text in ["log global", "tune.ssl.x 1", "option httplog"] {
            assert_eq!(class(text), WordMeaning::NeedsNothing, "{text}");
        }
        for text in ["timeout queue 5s", "option httpchk", "acl a path /"] {
            assert_eq!(class(text), WordMeaning::Converted, "{text}");
        }
        for text in ["frobnicate spoe", "option x", "algo", "set-var"] {
            assert_eq!(class(text), WordMeaning::Unknown, "{text}");
        }
        let found = options("server", &["weight", "5", "frobnicate", "check"]);
        let found: Vec<_> = found
            .iter()
            .map(|(word, value, class)| (*word, *value, *class == WordMeaning::Unknown))
            .collect();
        assert_eq!(found, [("weight", "5", false), ("frobnicate", "", true), ("check", "", false)]);
    }
}
