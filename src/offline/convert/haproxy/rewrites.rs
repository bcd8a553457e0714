//! Changes of the path.

use crate::offline::convert::{
    condition::RequestCondition,
    path::Path,
    site::{Edit, Effect, PathEdit},
};

/// The change that an action makes, and for which paths. `None`: Tollgate cannot make it. `words`: the action and its
/// arguments.
pub(super) fn rewrite(words: &[&str]) -> Option<(RequestCondition, Effect)> {
    let (when, edit) = match words {
        ["replace-path", pattern, by] => replaced(pattern, by)?,
        // They see the query as well: a rewrite that keeps the path must keep the query.
        ["replace-uri" | "replace-pathq", pattern, by] => prefix(pattern, by)?,
        ["set-path", value] => match (value.strip_suffix("%[path]"), value.strip_prefix("%[path,regsub(")) {
            (Some(before), _) => (RequestCondition::ALWAYS, PathEdit::Prepend(plain(before)?)),
            (None, Some(inner)) => {
                let (pattern, by) = inner.strip_suffix(")]")?.split_once(',')?;
                let pattern = pattern.strip_prefix('^')?;
                let prefix = literal(pattern)?;
                let edit = PathEdit::Replace { prefix: prefix.clone(), by: plain_or_empty(by)? };
                (RequestCondition::path(Path::prefix(&prefix).ok()?), edit)
            }
            _ => (RequestCondition::ALWAYS, PathEdit::Whole(plain(value)?)),
        },
        _ => return None,
    };
    Some((when, Effect::Edit(Edit::Path(edit))))
}

/// `replace-path`. HAProxy puts the text in place of the whole path, if the expression is found in it.
fn replaced(pattern: &str, by: &str) -> Option<(RequestCondition, PathEdit)> {
    if let Some(found) = prefix(pattern, by) {
        return Some(found);
    }
    let path = |pattern: &str| Path::regex(pattern, false).ok();
    if !by.contains('\\') {
        return Some((RequestCondition::path(path(pattern)?), PathEdit::Whole(plain(by)?)));
    }
    // Each group gets a name.
    let (mut named, mut groups, mut before) = (String::new(), 0, ' ');
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        named.push(c);
        if c == '(' && before != '\\' && before != '[' && chars.peek() != Some(&'?') {
            groups += 1;
            named += &format!("?P<g{groups}>");
        }
        before = if before == '\\' { ' ' } else { c };
    }
    let (mut template, mut rest) = (String::new(), by);
    while let Some((text, behind)) = rest.split_once('\\') {
        let group =
            behind.chars().next().and_then(|c| c.to_digit(10)).filter(|nth| (1..=groups).contains(nth))?;
        template += &format!("{}{{g{group}}}", plain_or_empty(text)?);
        rest = &behind[1..];
    }
    template += &plain_or_empty(rest)?;
    template.starts_with('/').then_some(())?;
    Some((RequestCondition::path(path(&named)?), PathEdit::Template(template)))
}

/// `^/api/(.*)` by `/\1`, and its like: the rest of the path is kept.
fn prefix(pattern: &str, by: &str) -> Option<(RequestCondition, PathEdit)> {
    let text = pattern.strip_suffix('$').unwrap_or(pattern);
    // An expression that every path meets is found at the beginning.
    let text = text.strip_prefix('^').or(Some(text).filter(|text| *text == "(.*)"))?;
    let kept = |by: &str, group: &str| plain_or_empty(by.strip_suffix(group)?);
    let (prefix, by) = if let Some(begin) = text.strip_suffix("(/)?(.*)") {
        // A slash is taken, and one is put.
        (literal(begin)?, kept(by, r"/\2")?)
    } else if let Some(begin) = text.strip_suffix("(/.*)") {
        (format!("{}/", literal(begin)?), format!("{}/", kept(by, r"\1")?))
    } else {
        (literal(text.strip_suffix("(.*)")?)?, kept(by, r"\1")?)
    };
    Some((RequestCondition::path(Path::prefix(&prefix).ok()?), PathEdit::Replace { prefix, by }))
}

/// The path that an expression without operators stands for.
fn literal(pattern: &str) -> Option<String> {
    let text = pattern.replace(r"\.", ".").replace(r"\/", "/");
    let is_literal = !pattern.replace(r"\.", "").contains('.');
    (is_literal && (text.is_empty() || text.starts_with('/'))).then_some(())?;
    text.chars().all(|c| c.is_ascii_alphanumeric() || "/-_.~".contains(c)).then_some(text)
}

/// A path without fetches, groups and placeholders.
fn plain(text: &str) -> Option<String> {
    plain_or_empty(text).filter(|text| text.starts_with('/'))
}

fn plain_or_empty(text: &str) -> Option<String> {
    text.chars().all(|c| c.is_ascii_alphanumeric() || "/-_.~".contains(c)).then(|| text.to_owned())
}
