//! Parses text into a [`Document`].

use serde_yaml::{
    DuplicateKeyPolicy, Error, MessageFormatter, NonFiniteFloatPolicy, Options, Spanned, UserMessageFormatter,
};

use super::{
    duplicates::duplicates,
    node::{Node, RawValue, to_location},
    quoting,
};
use crate::config::{FileLocation, Problem, redact::mask_credentials};

/// A document, and errors for its repeated keys. The tree has the first value of a repeated key.
pub(crate) struct Document {
    pub(crate) root: Node,
    pub(crate) duplicates: Vec<Problem>,
}

/// Reads one YAML document.
///
/// # Errors
/// It is not YAML, or exceeds the limits on size and depth.
pub(crate) fn parse(text: &str) -> Result<Document, Problem> {
    match raw(text, DuplicateKeyPolicy::Error) {
        Ok(root) => Ok(Document { root: Node::new(root, text), duplicates: Vec::new() }),
        // The parser stops at the first repeated key. Parse again to find all errors.
        Err(error @ Error::DuplicateMappingKey { .. }) => {
            let root = raw(text, DuplicateKeyPolicy::FirstWins).map_err(|error| problem(&error, text))?;
            let mut found = duplicates(text);
            if found.is_empty() {
                found.push(problem(&error, text));
            }
            Ok(Document { root: Node::new(root, text), duplicates: found })
        }
        Err(error) => Err(problem(&error, text)),
    }
}

fn raw(text: &str, duplicates: DuplicateKeyPolicy) -> Result<Spanned<RawValue>, Error> {
    serde_yaml::from_str_with_options(text, options(duplicates))
}

/// Reads `off` as text, and refuses hostile documents before they cost much.
fn options(duplicates: DuplicateKeyPolicy) -> Options {
    serde_yaml::options! {
        budget: serde_yaml::budget! {
            max_depth: 24,
            // Some 50 for each of 10,000 routes.
            max_nodes: 500_000,
            max_total_scalar_bytes: 8 << 20,
        },
        duplicate_keys: duplicates,
        strict_booleans: true,
        reject_unsupported_tags: true,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        with_snippet: false,
    }
}

/// As [`options`], with room for long lists in files of their own.
pub(super) fn options_of_listings() -> Options {
    serde_yaml::options! {
        budget: serde_yaml::budget! {
            max_depth: 24,
            max_events: 50_000_000,
            // Some 20 for each of 250,000 keys.
            max_nodes: 10_000_000,
            max_total_scalar_bytes: 64 << 20,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        strict_booleans: true,
        reject_unsupported_tags: true,
        with_snippet: false,
    }
}

pub(super) fn problem(error: &Error, text: &str) -> Problem {
    let mut location = error.location().map_or(FileLocation { line: 1, column: 1 }, to_location);
    let too_much = "this is too large or too deeply nested for a configuration";
    let mut help = quoting::help(text, location);
    let message = match without_alias(error) {
        Error::UnknownAnchor { .. } => "this refers to an anchor that is not defined before it".to_owned(),
        Error::RecursiveReferencesRequireWeakTypes { .. } => "this anchor refers to itself".to_owned(),
        Error::MultipleDocuments { .. } => {
            help = Some("a configuration is a single document: remove `---`".to_owned());
            "a second YAML document begins before this".to_owned()
        }
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => {
            help = None;
            too_much.to_owned()
        }
        Error::Unexpected { .. } | Error::NullIntoString { .. } => "a key must be a single value".to_owned(),
        Error::DuplicateMappingKey { .. } => "this key appears twice".to_owned(),
        other => {
            let message = UserMessageFormatter.format_message(other);
            if message.contains("recursion limit") {
                return Problem::new(location, too_much);
            }
            // The parser names the value before the tab.
            if message.contains("found a tab")
                && let Some(tab) = quoting::tab_behind(text, location)
            {
                location = tab;
                help = quoting::help(text, location);
            }
            help = help.or_else(|| {
                let help = match () {
                    () if message.contains("did not find expected key") => {
                        "check the indentation of this line against the lines around it"
                    }
                    () if message.contains("simple key expected") => {
                        "put a space behind the colon of each key, and behind the dash of each item of a list"
                    }
                    () if message.contains("unknown escape character") => {
                        r"in double quotes, YAML reads \ itself: use single quotes, such as '~^/v\d+/'"
                    }
                    () if message.contains("mapping values are not allowed") => {
                        "put quotes around a value that has a colon and a space in it; and a space behind the colon of each key, in the line before as well"
                    }
                    () => return None,
                };
                Some(help.to_owned())
            });
            // The parser may quote the file.
            mask_credentials(&format!("not YAML: {message}"))
        }
    };
    Problem::new(location, message).help(help)
}

/// The inner error, where the parser wraps it in an alias error.
fn without_alias(error: &Error) -> &Error {
    match error {
        Error::AliasError { error, .. } => without_alias(error),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::yaml::NodeKind;

    fn entries(text: &str) -> Vec<(String, Node)> {
        match parse(text).unwrap_or_else(|problem| panic!("{problem:?}")).root.kind {
            NodeKind::Mapping { entries, .. } => {
                entries.into_iter().map(|(key, node)| (key.name, node)).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    fn words(text: &str) -> Vec<String> {
        entries(text)
            .into_iter()
            .map(|(_, node)| match node.kind {
                NodeKind::Scalar(word) => word,
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn a_word_is_what_stands_in_the_file() {
        let text =
            "a: off\nb: 1.10\nc: 007\nd: 1e999\ne: 'x'\nf: true\ng: .inf\nh: -5\ni: 99999999999999999999\n";
        assert_eq!(
            words(text),
            ["off", "1.10", "007", "1e999", "x", "true", ".inf", "-5", "99999999999999999999"]
        );
    }

    #[test]
    fn values_of_an_alias_or_a_merge_are_located_where_they_were_written() {
        let all = entries("x-a: &a { limit: 5 }\nb: { <<: *a, key: ip }\nc: *a\n");
        let NodeKind::Mapping { entries: merged, braces } = &all[1].1.kind else { panic!() };
        assert!(braces);
        let limit = merged.iter().find(|(key, _)| key.name == "limit").unwrap();
        assert_eq!(limit.0.location, FileLocation { line: 1, column: 11 });
        assert_eq!(limit.1.kind, NodeKind::Scalar("5".to_owned()));
        assert_eq!(all[2].1.location, FileLocation { line: 1, column: 9 });
    }

    #[test]
    fn hostile_documents_are_refused_early() {
        let deep: String = (0..100).map(|n| format!("{}a:\n", " ".repeat(n))).collect();
        let aliases: String = (1..12)
            .map(|n| (char::from(b'a' + n - 1), char::from(b'a' + n)))
            .map(|(of, name)| format!("{name}: &{name} [{}]\n", vec![format!("*{of}"); 10].join(",")))
            .collect();
        for text in [deep, format!("a: &a [1,1,1,1]\n{aliases}"), "[".repeat(100_000)] {
            let problem = parse(&text).err().unwrap();
            assert_eq!(problem.message, "this is too large or too deeply nested for a configuration");
        }
        assert_eq!(parse("a: &a [*a]").err().unwrap().message, "this anchor refers to itself");
    }
}
