//! The grammar of haproxy.cfg: lines of words, and sections.

use std::{fmt::Display, path::Path};

use crate::offline::convert::{ConvertError, Note, SourceLine, yaml::Comment};

/// A line: its words without quotes and escapes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ConfigLine {
    pub(super) words: Vec<String>,
    pub(super) place: SourceLine,
    /// Whether it depends on `.if` or on a variable of the environment.
    pub(super) is_in_doubt: bool,
}

impl ConfigLine {
    /// The word at `index`, or an empty text.
    pub(super) fn word(&self, index: usize) -> &str {
        self.words.get(index).map_or("", String::as_str)
    }

    /// The word behind `name`.
    pub(super) fn after(&self, name: &str) -> Option<&str> {
        let at = self.words.iter().position(|word| word == name)?;
        self.words.get(at + 1).map(String::as_str)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.words.iter().any(|word| word == name)
    }

    /// A comment that says which part has no equal in Tollgate.
    pub(super) fn note(&self, text: impl Display) -> Comment {
        let text = format!("`{}`: {text}", self.shown());
        Comment::Unconverted(Note { place: self.place.clone(), text })
    }

    /// The line, for a comment.
    pub(super) fn shown(&self) -> String {
        const MOST_CHARACTERS: usize = 160;
        let text = self.words.join(" ");
        match text.chars().count() > MOST_CHARACTERS {
            true => text.chars().take(MOST_CHARACTERS).chain(['…']).collect(),
            false => text,
        }
    }
}

/// A section: its kind and name, and its lines.
#[derive(Debug, Clone)]
pub(super) struct Section {
    pub(super) head: ConfigLine,
    pub(super) lines: Vec<ConfigLine>,
}

impl Section {
    pub(super) fn kind(&self) -> &str {
        self.head.word(0)
    }

    pub(super) fn name(&self) -> &str {
        self.head.word(1)
    }
}

const SECTIONS: &str = "global defaults frontend backend listen userlist peers resolvers cache mailers program ring \
                        http-errors fcgi-app log-forward crt-store traces";

/// Parses `text`, the file at `path`.
///
/// # Errors
/// A quote is not closed, or a line is in no section.
pub(super) fn parse(text: &str, path: &Path) -> Result<Vec<Section>, ConvertError> {
    let mut sections: Vec<Section> = Vec::new();
    let name = path.display().to_string();
    // How many `.if` are open.
    let mut depth = 0_usize;
    for (index, line) in text.lines().enumerate() {
        let place = SourceLine { file: name.clone(), line: index + 1 };
        let error = |column: usize, message: &str| ConvertError::Syntax {
            file: name.clone(),
            line: index + 1,
            column,
            message: message.to_owned(),
        };
        let (words, has_variable) =
            words(line).map_err(|column| error(column, "this quote is not closed"))?;
        let Some(first) = words.first() else { continue };
        match first.as_str() {
            ".if" => depth += 1,
            ".endif" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if first.starts_with('.') {
            continue;
        }
        let is_section = SECTIONS.split_whitespace().any(|known| known == first);
        let line = ConfigLine { words, place, is_in_doubt: depth > 0 || has_variable };
        match sections.last_mut() {
            _ if is_section => sections.push(Section { head: line, lines: Vec::new() }),
            Some(section) => section.lines.push(line),
            None => return Err(error(1, &format!("`{}` is in no section", line.word(0)))),
        }
    }
    Ok(sections)
}

/// The words of a line, and whether a variable of the environment is in them.
///
/// # Errors
/// The column of a quote that is not closed.
fn words(line: &str) -> Result<(Vec<String>, bool), usize> {
    let mut has_variable = false;
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<(char, usize)> = None;
    let mut chars = line.chars().enumerate();
    while let Some((index, c)) = chars.next() {
        match (c, quote) {
            ('\\', None | Some(('"', _))) => {
                let next = chars.next().map(|(_, c)| c);
                let text = word.get_or_insert_default();
                match next {
                    Some(c @ (' ' | '#' | '\\' | '"' | '\'' | '$')) => text.push(c),
                    Some('n') => text.push('\n'),
                    Some('r') => text.push('\r'),
                    Some('t') => text.push('\t'),
                    Some(c) => text.extend(['\\', c]),
                    None => text.push('\\'),
                }
            }
            (c, Some((end, _))) if c == end => quote = None,
            (c, Some((end, _))) => {
                has_variable |= (c, end) == ('$', '"');
                word.get_or_insert_default().push(c);
            }
            ('"' | '\'', None) => {
                quote = Some((c, index + 1));
                word.get_or_insert_default();
            }
            ('#', None) => break,
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, None) => word.get_or_insert_default().push(c),
        }
    }
    if let Some((_, column)) = quote {
        return Err(column);
    }
    words.extend(word);
    Ok((words, has_variable))
}

/// A time of HAProxy, in milliseconds: `10s`, `5000` (milliseconds), `1m`, `500us`.
pub(super) fn milliseconds(text: &str) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let number: u64 = text[..digits].parse().ok()?;
    match &text[digits..] {
        "" | "ms" => Some(number),
        "us" => Some(number / 1000),
        "s" => number.checked_mul(1_000),
        "m" => number.checked_mul(60_000),
        "h" => number.checked_mul(3_600_000),
        "d" => number.checked_mul(86_400_000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_are_words() {
        for (line, expected) in [
            ("a b  c # d", vec!["a", "b", "c"]),
            (r#"a "b c" 'd "e' f\ g"#, vec!["a", "b c", "d \"e", "f g"]),
            (r"path_reg ^/v\d+\.php$", vec!["path_reg", r"^/v\d+\.php$"]),
            (r#""a\n" '\n'"#, vec!["a\n", r"\n"]),
            ("a\"b\"c", vec!["abc"]),
            ("\"\"", vec![""]),
            ("# a", vec![]),
        ] {
            assert_eq!(words(line).unwrap().0, expected, "{line}");
        }
        assert_eq!(words("a \"b"), Err(3));
    }

    #[test]
    fn sections_have_lines() {
        let sections =
            parse("global\n  daemon\nfrontend web\n\tbind :80 # all\n", Path::new("haproxy.cfg")).unwrap();
        assert_eq!(sections.len(), 2);
        assert_eq!(
            (sections[1].kind(), sections[1].name(), sections[1].lines[0].place.line),
            ("frontend", "web", 4)
        );
        let error = parse("\n bind :80", Path::new("haproxy.cfg")).unwrap_err().to_string();
        assert_eq!(error, "haproxy.cfg:2:1: `bind` is in no section");
    }

    #[test]
    fn lines_that_the_preprocessor_decides_are_in_doubt() {
        let text = "frontend a\n.if defined(X)\nbind :80\n.endif\nbind :81\nbind \"$A:82\"\nbind '$A:83'";
        let sections = parse(text, Path::new("haproxy.cfg")).unwrap();
        let in_doubt: Vec<bool> = sections[0].lines.iter().map(|line| line.is_in_doubt).collect();
        assert_eq!(in_doubt, [true, false, true, false]);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(global|frontend a|\n|[ a-z{}\"'\\\\#!()%]){0,40}|\\PC{0,40}") {
            let _ = parse(&text, Path::new("haproxy.cfg"));
        }
    }
}
