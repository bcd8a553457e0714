//! Finds keys that occur twice in one mapping.

use std::collections::HashMap;

use serde_yaml::granit_parser::{Event, Parser, Span};

use crate::config::{FileLocation, Problem};

/// A collection whose end has not been parsed yet.
enum OpenCollection {
    List,
    /// The keys so far, and whether the next node is a key.
    Mapping {
        keys: HashMap<String, FileLocation>,
        key_next: bool,
    },
}

/// An error for each repeated key, at its second occurrence. `text` is valid YAML.
pub(super) fn duplicates(text: &str) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut open: Vec<OpenCollection> = Vec::new();
    for (event, span) in Parser::new_from_str(text).map_while(Result::ok) {
        match event {
            Event::MappingStart(..) => {
                node(&mut open, None);
                open.push(OpenCollection::Mapping { keys: HashMap::new(), key_next: true });
            }
            Event::SequenceStart(..) => {
                node(&mut open, None);
                open.push(OpenCollection::List);
            }
            Event::MappingEnd | Event::SequenceEnd => {
                open.pop();
            }
            Event::Scalar(word, ..) => found.extend(node(&mut open, Some((&word, &span)))),
            Event::Alias(..) | Event::UnresolvedAlias(..) => {
                node(&mut open, None);
            }
            _ => {}
        }
    }
    found
}

/// Takes one node of the innermost open collection. Returns an error if it repeats a key.
fn node(open: &mut [OpenCollection], word: Option<(&str, &Span)>) -> Option<Problem> {
    let Some(OpenCollection::Mapping { keys, key_next }) = open.last_mut() else { return None };
    let is_key = *key_next;
    *key_next = !is_key;
    let (word, span) = word.filter(|(word, _)| is_key && *word != "<<")?;
    let location = FileLocation { line: span.start.line(), column: span.start.col() + 1 };
    match keys.get(word) {
        None => {
            keys.insert(word.to_owned(), location);
            None
        }
        Some(first) => {
            let help = format!("it is already in line {}", first.line);
            Some(Problem::new(location, format!("the key `{word}` appears twice")).help(help))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_all_and_only_keys_of_one_mapping() {
        let text = "a: a\nb:\n  a: 1\n  c: [a, a, {d: d, d: 1}]\n  ? [a, a]\n  : a\na: 2\nb: 3\n";
        let locations: Vec<_> =
            duplicates(text).into_iter().filter_map(|p| p.location).map(|p| (p.line, p.column)).collect();
        assert_eq!(locations, [(4, 20), (7, 1), (8, 1)]);
    }

    #[test]
    fn merging_twice_and_overriding_is_no_repetition() {
        assert_eq!(duplicates("x: &x {a: 1}\ny: &y {b: 1}\nz:\n  <<: *x\n  <<: *y\n  a: 2\n"), []);
    }
}
