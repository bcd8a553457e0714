//! Changes of the text of a file of keys, as an operator would make them: comments and the other keys stay as they are.
//! Pure. Before a changed text is written, it is read, to see that it has the right keys.

use std::{fmt::Write, ops::Range};

use jiff::Timestamp;

use super::ApiKey;
use crate::text::yaml_quoted;

/// Why the text can't be changed here; an editor can.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    #[error(
        "its `keys` are written in brackets: write each key in lines of its own, which begin with `- id: …`"
    )]
    InBrackets,
    #[error("it has no list `keys`")]
    NoList,
    #[error("its keys can't be told apart: write each in lines of its own, which begin with `- id: …`")]
    Unclear,
}

/// Spaces before the entries of a new list.
const INDENT: &str = "  ";

/// The lines of a list of keys.
struct List<'t> {
    lines: Vec<&'t str>,
    /// The line of `keys:`.
    head: usize,
    /// The rest of that line, without `[]`.
    comment: &'t str,
    /// The spaces before each entry.
    indent: &'t str,
    /// The first line of each entry.
    entries: Vec<usize>,
    /// The line after the last one that is not blank.
    end: usize,
}

impl<'t> List<'t> {
    fn find(text: &'t str) -> Result<Self, TextError> {
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let head = lines.iter().position(|line| line.starts_with("keys:")).ok_or(TextError::NoList)?;
        let rest = &lines[head]["keys:".len()..];
        let comment = rest.trim_start_matches(' ').strip_prefix("[]").unwrap_or(rest);
        if !is_blank(comment) {
            return Err(TextError::InBrackets);
        }
        let is_of_list = |line: &&&str| {
            is_blank(line) || line.starts_with(' ') || line.starts_with('-') && !line.starts_with("---")
        };
        let length = lines[head + 1..].iter().take_while(is_of_list).count();
        let inside = head + 1..head + 1 + length;
        let end = inside.clone().rev().find(|&at| !is_blank(lines[at])).map_or(head + 1, |last| last + 1);
        let indent_of = |line: &'t str| &line[..line.len() - line.trim_start_matches(' ').len()];
        let indent =
            inside.clone().find(|&at| !is_blank(lines[at])).map_or(INDENT, |at| indent_of(lines[at]));
        let begins = |line: &str| {
            let rest = line.strip_prefix(indent).and_then(|rest| rest.strip_prefix('-'));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\r', '\n']))
        };
        let entries = inside.filter(|&at| begins(lines[at])).collect();
        Ok(Self { lines, head, comment, indent, entries, end })
    }

    /// The lines of the `nth` of `count` entries, and the comments within.
    fn entry(&self, nth: usize, count: usize) -> Result<(Range<usize>, String), TextError> {
        let from =
            *self.entries.get(nth).filter(|_| self.entries.len() == count).ok_or(TextError::Unclear)?;
        let next = self.entries.get(nth + 1).copied().unwrap_or(self.end);
        let last = (from..next).rev().find(|&at| !is_blank(self.lines[at])).unwrap_or(from);
        let comments = self.lines[from..last].iter().filter(|line| line.trim_start().starts_with('#'));
        Ok((from..last + 1, comments.map(|line| format!("{}{}\n", self.indent, line.trim())).collect()))
    }

    /// The text with `by` in place of these lines. `keys`: how the list begins.
    fn replaced(&self, keys: &str, lines: Range<usize>, by: &str) -> String {
        let before = self.lines[..self.head].concat();
        let between = self.lines[self.head + 1..lines.start].concat();
        let mut text = before + keys + self.comment + &between;
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text + by + &self.lines[lines.end..].concat()
    }
}

/// Whether a line has nothing but a comment.
pub fn is_blank(line: &str) -> bool {
    let rest = line.trim();
    rest.is_empty() || rest.starts_with('#')
}

/// The text with one more key, at the end of the list.
///
/// # Errors
/// There is no list that a key can be written into.
pub fn append(text: &str, key: &ApiKey) -> Result<String, TextError> {
    if text.lines().all(is_blank) {
        let separator = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        return Ok(format!("{text}{separator}keys:\n{}", entry(key, INDENT)));
    }
    let list = List::find(text)?;
    Ok(list.replaced("keys:", list.end..list.end, &entry(key, list.indent)))
}

/// The text with `key` in place of the `nth` one of `count`. Comments within its lines go before it.
///
/// # Errors
/// The keys can't be told apart.
pub fn replace(text: &str, nth: usize, count: usize, key: &ApiKey) -> Result<String, TextError> {
    let list = List::find(text)?;
    let (lines, comments) = list.entry(nth, count)?;
    Ok(list.replaced("keys:", lines, &(comments + &entry(key, list.indent))))
}

/// The text without the `nth` key of `count`. Comments within its lines stay, and a `note` of one line follows them.
///
/// # Errors
/// The keys can't be told apart.
pub fn remove(text: &str, nth: usize, count: usize, note: Option<&str>) -> Result<String, TextError> {
    let list = List::find(text)?;
    let (lines, mut comments) = list.entry(nth, count)?;
    if let Some(note) = note {
        comments += &format!("{}# {note}\n", list.indent);
    }
    let keys = if count == 1 { "keys: []" } else { "keys:" };
    Ok(list.replaced(keys, lines, &comments))
}

/// The text of a file with these keys.
pub fn whole(keys: &[ApiKey]) -> String {
    match keys {
        [] => "keys: []\n".to_owned(),
        keys => "keys:\n".to_owned() + &keys.iter().map(|key| entry(key, INDENT)).collect::<String>(),
    }
}

/// A key as an entry of the list. A file can't say when a secret that was rotated ends: such a secret is left out.
fn entry(key: &ApiKey, indent: &str) -> String {
    let mut lines = vec![format!("id: {}", scalar(&key.id))];
    let time =
        |micros: i64| Timestamp::from_microsecond(micros).map(|time| time.to_string()).unwrap_or_default();
    let lasting = key.secrets.iter().filter(|secret| secret.expires.is_none());
    let hashes: Vec<String> = lasting.map(|secret| format!("\"{}\"", secret.hash)).collect();
    match hashes.as_slice() {
        [hash] => lines.push(format!("hash: {hash}")),
        hashes => lines.push(format!("hashes: [{}]", hashes.join(", "))),
    }
    lines.push(format!("customer: {}", scalar(&key.customer)));
    lines.extend(key.plan.as_ref().map(|plan| format!("plan: {}", scalar(plan))));
    if !key.name.is_empty() {
        lines.push(format!("name: {}", scalar(&key.name)));
    }
    lines.extend(key.expires.map(|expires| format!("expires: \"{}\"", time(expires))));
    if !key.routes.is_empty() {
        let routes: Vec<String> = key.routes.iter().map(|route| scalar(route)).collect();
        lines.push(format!("routes: [{}]", routes.join(", ")));
    }
    if !key.labels.is_empty() {
        let label = |(name, value): (&String, &String)| format!("{}: {}", scalar(name), scalar(value));
        lines.push(format!("labels: {{ {} }}", key.labels.iter().map(label).collect::<Vec<_>>().join(", ")));
    }
    let mut text = String::new();
    for (nth, line) in lines.iter().enumerate() {
        let lead = if nth == 0 { "- " } else { "  " };
        // Writing to a string does not fail.
        let _ = writeln!(text, "{indent}{lead}{line}");
    }
    text
}

/// A text as YAML: plain if no reader could take it for anything else, else in quotes.
fn scalar(text: &str) -> String {
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&&*text.to_lowercase());
    match is_plain {
        true => text.to_owned(),
        false => yaml_quoted(text),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::operations, *};

    const NOW: i64 = 1_783_080_001_000_000;
    const FILE: &str = "\
# Keys of our customers
keys:

  # Of the build
  - id: ci
    # made by Ann
    hash: sha256:1
    customer: acme
  - { id: web,
      hash: sha256:2, customer: acme }
# the end
";

    fn key(customer: &str) -> ApiKey {
        let id = Some("new".into());
        let fields = operations::KeyFields { id, customer: customer.into(), ..<_>::default() };
        operations::create(fields, "tgk", NOW).unwrap().0
    }

    #[test]
    fn a_key_is_written_behind_the_others_and_comments_stay() {
        let key = key("acme");
        let item = format!("  - id: new\n    hash: \"{}\"\n    customer: acme\n", key.secrets[0].hash);
        let appended = append(FILE, &key).unwrap();
        assert_eq!(appended, FILE.replace("# the end", &format!("{item}# the end")));
        for (empty, before) in [
            ("", "keys:\n"),
            ("# a\n", "# a\nkeys:\n"),
            ("# keys: []\nkeys: []  # none\n# b", "# keys: []\nkeys:  # none\n"),
            ("keys:", "keys:\n"),
        ] {
            let after = if empty.ends_with("# b") { "# b" } else { "" };
            assert_eq!(append(empty, &key).unwrap(), format!("{before}{item}{after}"), "{empty}");
        }
        let flush = "keys:\n- id: a\n  customer: b";
        assert_eq!(
            append(flush, &key).unwrap(),
            format!("{flush}\n{}", item.replace("  - ", "- ").replace("    ", "  "))
        );
        assert_eq!(append("keys: [{ id: a }]\n", &key), Err(TextError::InBrackets));
        assert_eq!(append("other: 1\n", &key), Err(TextError::NoList));
    }

    #[test]
    fn a_key_is_replaced_or_removed_alone() {
        let key = key("a\"b: #");
        let item =
            format!("  - id: new\n    hash: \"{}\"\n    customer: \"a\\\"b: #\"\n", key.secrets[0].hash);
        let ci = "  - id: ci\n    # made by Ann\n    hash: sha256:1\n    customer: acme\n";
        let web = "  - { id: web,\n      hash: sha256:2, customer: acme }\n";
        let replaced = replace(FILE, 0, 2, &key).unwrap();
        assert_eq!(replaced, FILE.replace(ci, &format!("  # made by Ann\n{item}")));
        assert_eq!(replace(FILE, 1, 2, &key).unwrap(), FILE.replace(web, &item));
        assert_eq!(remove(FILE, 1, 2, None).unwrap(), FILE.replace(web, ""));
        let noted = FILE.replace(ci, "  # made by Ann\n  # leaked\n");
        assert_eq!(remove(FILE, 0, 2, Some("leaked")).unwrap(), noted);
        let last = "# keys: ours\nkeys:  # all\n- id: a\n# the end\n";
        let empty = "# keys: ours\nkeys: []  # all\n# leaked\n# the end\n";
        assert_eq!(remove(last, 0, 1, Some("leaked")).unwrap(), empty);
        assert_eq!(append(empty, &key).unwrap(), empty.replace(" []  # all\n", &format!("  # all\n{item}")));
        assert_eq!(remove(FILE, 0, 3, None), Err(TextError::Unclear));
    }
}
