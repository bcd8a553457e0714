//! A YAML tree with comments, and how it is written.

use super::Note;

/// The longest line, in characters, but for values that cannot be broken.
const WIDTH: usize = 110;
const INDENTATION: usize = 2;

/// A comment before an entry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Comment {
    Plain(String),
    /// What has no equal. It is also listed apart.
    Unconverted(Note),
}

impl Comment {
    pub(super) fn note(&self) -> Option<&Note> {
        match self {
            Self::Plain(_) => None,
            Self::Unconverted(note) => Some(note),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Plain(text) => text.clone(),
            Self::Unconverted(Note { place, text }) => format!("{place}: {text}"),
        }
    }
}

/// A value, and the comments before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct YamlNode {
    pub(super) comments: Vec<Comment>,
    pub(super) value: YamlValue,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum YamlValue {
    /// Quoted where YAML would read anything but this text.
    Text(String),
    /// A number, `true`, `false` or another word, written as it is.
    Bare(String),
    List(Vec<YamlNode>),
    Map(Map),
}

/// A mapping in the order in which its keys were set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Map(Vec<(String, YamlNode)>);

impl Map {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// This mapping with one more key.
    pub(super) fn with(mut self, key: &str, node: impl Into<YamlNode>) -> Self {
        self.set(key, node);
        self
    }

    /// Sets the value of `key`, and replaces one that is there.
    pub(super) fn set(&mut self, key: &str, node: impl Into<YamlNode>) {
        let node = node.into();
        match self.get_mut(key) {
            Some(present) => *present = node,
            None => self.0.push((key.to_owned(), node)),
        }
    }

    /// Sets the value of `key`, if there is one.
    pub(super) fn extend_some(&mut self, key: &str, node: Option<impl Into<YamlNode>>) {
        if let Some(node) = node {
            self.set(key, node);
        }
    }

    pub(super) fn remove(&mut self, key: &str) {
        self.0.retain(|(known, _)| known != key);
    }

    /// Keeps the keys for which `is_kept` holds.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.0.retain(|(key, _)| is_kept(key));
    }

    pub(super) fn get(&self, key: &str) -> Option<&YamlNode> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, node)| node)
    }

    pub(super) fn get_mut(&mut self, key: &str) -> Option<&mut YamlNode> {
        self.0.iter_mut().find(|(known, _)| known == key).map(|(_, node)| node)
    }

    /// Changes the mapping at `key`, which is added if it is missing.
    pub(super) fn change(&mut self, key: &str, change: impl FnOnce(&mut Self)) {
        match self.get_mut(key) {
            Some(YamlNode { value: YamlValue::Map(map), .. }) => change(map),
            _ => {
                let mut map = Self::new();
                change(&mut map);
                self.set(key, map);
            }
        }
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &YamlNode)> {
        self.0.iter().map(|(key, node)| (key.as_str(), node))
    }

    /// Sorts by key; keys with the same rank keep their order.
    pub(super) fn sort_by_key<R: Ord>(&mut self, rank: impl Fn(&str) -> R) {
        self.0.sort_by_key(|(key, _)| rank(key));
    }

    /// Adds the notes of all comments in this mapping.
    pub(super) fn collect_notes(&self, notes: &mut Vec<Note>) {
        for (_, node) in &self.0 {
            node.collect_notes(notes);
        }
    }
}

impl YamlNode {
    /// This value with one more comment.
    pub(super) fn commented(mut self, comment: Comment) -> Self {
        self.comments.push(comment);
        self
    }

    fn collect_notes(&self, notes: &mut Vec<Note>) {
        notes.extend(self.comments.iter().filter_map(Comment::note).cloned());
        match &self.value {
            YamlValue::Text(_) | YamlValue::Bare(_) => {}
            YamlValue::List(items) => items.iter().for_each(|item| item.collect_notes(notes)),
            YamlValue::Map(map) => map.collect_notes(notes),
        }
    }

    /// The value in one line. `None` if it has comments inside, or is longer than `width`.
    fn flow(&self, width: usize) -> Option<String> {
        let text = match &self.value {
            YamlValue::Text(text) => scalar(text),
            YamlValue::Bare(text) => text.clone(),
            YamlValue::List(items) => {
                let items: Option<Vec<_>> = items.iter().map(|item| item.inner_flow(width)).collect();
                format!("[{}]", items?.join(", "))
            }
            YamlValue::Map(Map(entries)) if entries.is_empty() => "{}".to_owned(),
            YamlValue::Map(Map(entries)) => {
                let entry = |(key, node): &(String, Self)| {
                    Some(format!("{}: {}", scalar(key), node.inner_flow(width)?))
                };
                format!("{{ {} }}", entries.iter().map(entry).collect::<Option<Vec<_>>>()?.join(", "))
            }
        };
        (text.chars().count() <= width).then_some(text)
    }

    fn inner_flow(&self, width: usize) -> Option<String> {
        if self.comments.is_empty() { self.flow(width) } else { None }
    }
}

impl From<YamlValue> for YamlNode {
    fn from(value: YamlValue) -> Self {
        Self { comments: Vec::new(), value }
    }
}

impl From<&str> for YamlNode {
    fn from(text: &str) -> Self {
        YamlValue::Text(text.to_owned()).into()
    }
}

impl From<String> for YamlNode {
    fn from(text: String) -> Self {
        YamlValue::Text(text).into()
    }
}

impl From<u64> for YamlNode {
    fn from(number: u64) -> Self {
        YamlValue::Bare(number.to_string()).into()
    }
}

impl From<bool> for YamlNode {
    fn from(value: bool) -> Self {
        YamlValue::Bare(value.to_string()).into()
    }
}

impl From<Map> for YamlNode {
    fn from(map: Map) -> Self {
        YamlValue::Map(map).into()
    }
}

impl<N: Into<YamlNode>> From<Vec<N>> for YamlNode {
    fn from(items: Vec<N>) -> Self {
        YamlValue::List(items.into_iter().map(Into::into).collect()).into()
    }
}

/// A document: comments at its head, and sections with an empty line before each.
pub(super) fn document(head: &[Comment], sections: &Map) -> String {
    let mut out = String::new();
    write_comments(&mut out, head, 0);
    for (name, node) in &sections.0 {
        if !out.is_empty() {
            out.push('\n');
        }
        write_comments(&mut out, &node.comments, 0);
        write_entry(&mut out, name, node, 0);
    }
    out
}

fn write_comments(out: &mut String, comments: &[Comment], indentation: usize) {
    for comment in comments {
        // A line break or another control character would end the comment.
        let text: String = comment.text().chars().map(|c| if is_special(c) { ' ' } else { c }).collect();
        let mut line = String::new();
        let flush = |line: &mut String, out: &mut String| {
            out.push_str(&format!("{:indentation$}# {line}\n", ""));
            line.clear();
        };
        for word in text.split_whitespace() {
            let length = indentation + 2 + line.chars().count() + 1 + word.chars().count();
            if !line.is_empty() && length > WIDTH {
                flush(&mut line, out);
                line.push_str("  ");
            } else if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        flush(&mut line, out);
    }
}

/// Writes `key: value`. A value of the top level is in one line only if there are only scalars in it.
fn write_entry(out: &mut String, key: &str, node: &YamlNode, indentation: usize) {
    let key = scalar(key);
    let begin = format!("{:indentation$}{key}:", "");
    let room = WIDTH.saturating_sub(begin.chars().count() + 1);
    let is_section = indentation == 0 && is_structured(node);
    let flow = if is_section { None } else { node.flow(room) };
    match (&node.value, flow) {
        (_, Some(flow)) => out.push_str(&format!("{begin} {flow}\n")),
        (YamlValue::List(items), None) if !items.is_empty() => {
            out.push_str(&format!("{begin}\n"));
            write_items(out, items, indentation + INDENTATION);
        }
        (YamlValue::Map(Map(entries)), None) if !entries.is_empty() => {
            out.push_str(&format!("{begin}\n"));
            for (key, node) in entries {
                write_comments(out, &node.comments, indentation + INDENTATION);
                write_entry(out, key, node, indentation + INDENTATION);
            }
        }
        (_, None) => out.push_str(&format!("{begin} {}\n", node.flow(usize::MAX).unwrap_or_default())),
    }
}

/// Whether this has lists or mappings in it.
fn is_structured(node: &YamlNode) -> bool {
    let is_collection = |node: &YamlNode| matches!(node.value, YamlValue::List(_) | YamlValue::Map(_));
    match &node.value {
        YamlValue::Text(_) | YamlValue::Bare(_) => false,
        YamlValue::List(items) => items.iter().any(is_collection),
        YamlValue::Map(Map(entries)) => entries.iter().any(|(_, node)| is_collection(node)),
    }
}

fn write_items(out: &mut String, items: &[YamlNode], indentation: usize) {
    for item in items {
        write_comments(out, &item.comments, indentation);
        let room = WIDTH.saturating_sub(indentation + 2);
        match (&item.value, item.flow(room)) {
            (YamlValue::Map(Map(entries)), None) if !entries.is_empty() => {
                let mut block = String::new();
                for (key, node) in entries {
                    write_comments(&mut block, &node.comments, indentation + INDENTATION);
                    write_entry(&mut block, key, node, indentation + INDENTATION);
                }
                // The dash takes the place of the first key's indentation, unless a comment stands there.
                let begin = format!("{:indentation$}-", "");
                match block.trim_start().starts_with('#') {
                    true => out.push_str(&format!("{begin}\n{block}")),
                    false => out.push_str(&format!("{begin} {}", block.trim_start())),
                }
            }
            (YamlValue::List(items), None) if !items.is_empty() => {
                out.push_str(&format!("{:indentation$}-\n", ""));
                write_items(out, items, indentation + INDENTATION);
            }
            (_, flow) => {
                let flow = flow.or_else(|| item.flow(usize::MAX)).unwrap_or_default();
                out.push_str(&format!("{:indentation$}- {flow}\n", ""));
            }
        }
    }
}

/// A scalar that is read as `text` again, in block and in flow style. Interpolation is off: `${` is written `$${`.
fn scalar(text: &str) -> String {
    let text = text.replace("${", "$${");
    if is_plain(&text) {
        text
    } else if text.contains(['\\', '"']) && !text.chars().any(is_special) {
        format!("'{}'", text.replace('\'', "''"))
    } else {
        let mut quoted = String::from("\"");
        for c in text.chars() {
            match c {
                '"' | '\\' => quoted.extend(['\\', c]),
                '\n' => quoted.push_str("\\n"),
                '\t' => quoted.push_str("\\t"),
                '\r' => quoted.push_str("\\r"),
                c if is_special(c) => {
                    let code = u32::from(c);
                    quoted.push_str(&match code {
                        0..=0xffff => format!("\\u{code:04x}"),
                        _ => format!("\\U{code:08x}"),
                    });
                }
                c => quoted.push(c),
            }
        }
        quoted + "\""
    }
}

/// Whether a character must not stand in a document as it is: controls, line breaks, byte order marks, noncharacters.
fn is_special(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' | '\u{200b}'..='\u{200f}'
        )
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
}

/// Whether YAML reads `text` without quotes as this text, also in flow style.
fn is_plain(text: &str) -> bool {
    const WORDS: [&str; 10] = ["true", "false", "null", "yes", "no", "on", "y", "n", "nan", "inf"];
    let allowed = |c: char| c.is_ascii_alphanumeric() || " /._:+=@%*~^$()<>!?;&|-".contains(c);
    let begins = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '^' | '$' | '(');
    let is_number = text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_digit() || "_.:+-eExXoO".contains(c))
        && text.parse::<std::net::IpAddr>().is_err()
        && text.parse::<std::net::SocketAddr>().is_err();
    let word = text.trim_start_matches('.').to_ascii_lowercase();
    text.starts_with(begins)
        && text.chars().all(allowed)
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains("::")
        && !is_number
        && !WORDS.contains(&word.as_str())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value as Json;

    use super::*;
    use crate::offline::convert::SourceLine;

    /// Reads as `config` does.
    fn read(text: &str) -> Json {
        let options = serde_yaml::options! { strict_booleans: true };
        serde_yaml::from_str_with_options(text, options).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    fn json(text: &str) -> Json {
        // Interpolation, which comes behind, reads `$${` as `${`.
        Json::String(text.replace("${", "$${"))
    }

    #[test]
    fn only_what_needs_quotes_has_them() {
        for (text, expected) in [
            ("api", "api"),
            ("/files/*", "/files/*"),
            ("10/1s", "10/1s"),
            ("http://10.0.0.5:3000", "http://10.0.0.5:3000"),
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("1MiB", "1MiB"),
            ("/users/{id}", "\"/users/{id}\""),
            (r"~\.php$", r"'~\.php$'"),
            ("a 'b' \\", r"'a ''b'' \'"),
            ("*.example.org", "\"*.example.org\""),
            ("[::]:80", "\"[::]:80\""),
            ("2001:db8::/32", "\"2001:db8::/32\""),
            ("2", "\"2\""),
            ("1.3", "\"1.3\""),
            ("yes", "\"yes\""),
            ("", "\"\""),
            ("a: b", "\"a: b\""),
            ("a #b", "\"a #b\""),
            ("ok\n", "\"ok\\n\""),
            ("${HOME}", "\"$${HOME}\""),
        ] {
            assert_eq!(scalar(text), expected, "{text}");
        }
    }

    #[test]
    fn long_entries_are_blocks_and_short_ones_are_not() {
        let note = Note { place: SourceLine { file: "a".into(), line: 1 }, text: "no equal ".repeat(20) };
        let long = Map::new()
            .with("path", "/*")
            .with("methods", vec!["GET", "POST"])
            .with("rewrite", Map::new().with("path", "/x".repeat(30)))
            .with("list", vec!["a".repeat(60), "b".repeat(60)]);
        let commented = YamlNode::from(
            Map::new().with("b", YamlNode::from("c").commented(Comment::Plain("why\nnot".into()))),
        );
        let sections = Map::new()
            .with("short", Map::new().with("a", 1).with("b", true))
            .with("routes", vec![YamlNode::from(long).commented(Comment::Unconverted(note)), commented]);
        let expected = format!(
            "short: {{ a: 1, b: true }}\n\nroutes:\n  # a:1: {a}no\n  #   equal {b}no equal\n  - path: /*\n    \
             methods: [GET, POST]\n    rewrite: {{ path: {x} }}\n    list:\n      - {l}\n      - {m}\n  -\n    \
             # why not\n    b: c\n",
            a = "no equal ".repeat(11),
            b = "no equal ".repeat(7),
            x = "/x".repeat(30),
            l = "a".repeat(60),
            m = "b".repeat(60),
        );
        let written = document(&[], &sections);
        assert_eq!(written, expected);
        assert!(written.lines().all(|line| line.chars().count() <= WIDTH));
    }

    proptest! {
        #[test]
        fn any_text_is_read_as_itself(text in any::<String>(), key in "\\PC{0,12}", plain in "[-a-z0-9 :#.,~!&*'\"{}\\[\\]|>%@`/?_+=$]{0,10}") {
            let map = Map::new()
                .with(&key, text.as_str())
                .with("list", vec![text.as_str(), plain.as_str()])
                .with("deep", vec![YamlNode::from(Map::new().with(&plain, plain.as_str()).with("long", "x".repeat(120)))]);
            let found = read(&document(&[Comment::Plain(text.clone())], &map));
            let name = |key: &str| key.replace("${", "$${");
            if key != "list" && key != "deep" {
                prop_assert_eq!(&found[name(&key).as_str()], &json(&text));
            }
            prop_assert_eq!(&found["list"][0], &json(&text));
            prop_assert_eq!(&found["list"][1], &json(&plain));
            if plain != "long" {
                prop_assert_eq!(&found["deep"][0][name(&plain).as_str()], &json(&plain));
            }
        }
    }
}
