//! Middlewares that change the path.

use super::middlewares::{Middleware, Step};
use crate::convert::{
    condition::Condition,
    draft::literal,
    path::{Path, encoded, is_open, parse},
    site::{Edit, Effect, PathEdit, Rule},
};

fn edit(middleware: &Middleware<'_>, edit: PathEdit) -> Rule {
    middleware.always(Effect::Edit(Edit::Path(edit)))
}

/// `stripPrefix`: the first of the prefixes with which the path begins is removed.
pub(super) fn strip_prefix(middleware: &Middleware<'_>) -> Step {
    // The path gets a slash in any case.
    middleware.fields.ignore(&["forceSlash"]);
    let mut branches = Vec::new();
    for prefix in middleware.fields.texts("prefixes").into_iter().map(str::trim) {
        let rule = match prefix {
            // The path stays.
            "" | "/" => edit(middleware, PathEdit::Prepend(String::new())),
            _ => edit(middleware, PathEdit::Replace { prefix: encoded(prefix), by: String::new() }),
        };
        // No path begins with anything but a slash.
        if let Ok(path) = Path::prefix(prefix) {
            branches.push((Condition::path(path), rule));
        }
    }
    Step::Branches(branches)
}

/// `stripPrefixRegex`: the first expression that is found at the beginning is removed.
pub(super) fn strip_prefix_regex(middleware: &Middleware<'_>) -> Step {
    let mut branches = Vec::new();
    for pattern in middleware.fields.texts("regex").into_iter().map(str::trim) {
        let pattern = pattern.strip_prefix('^').unwrap_or(pattern);
        if parse(pattern).is_none() {
            return Step::Rules(vec![middleware.close(format!("`{pattern}` is no expression"))]);
        }
        match Path::regex(&format!("^(?:{pattern})/?(?P<rest>.*)$"), false) {
            Ok(path) => branches
                .push((Condition::path(path), edit(middleware, PathEdit::Template("/{rest}".to_owned())))),
            Err(text) => return Step::Rules(vec![middleware.close(text)]),
        }
    }
    Step::Branches(branches)
}

pub(super) fn add_prefix(middleware: &Middleware<'_>) -> Vec<Rule> {
    match middleware.fields.text("prefix") {
        None => vec![middleware.close("`prefix` is empty")],
        Some(prefix) => {
            let slash = if prefix.starts_with('/') { "" } else { "/" };
            vec![edit(middleware, PathEdit::Prepend(format!("{slash}{}", encoded(prefix))))]
        }
    }
}

pub(super) fn replace_path(middleware: &Middleware<'_>) -> Vec<Rule> {
    let path = middleware.fields.text("path").unwrap_or("/");
    vec![edit(middleware, PathEdit::Whole(path.to_owned()))]
}

/// `replacePathRegex`: what the expression matches is replaced.
pub(super) fn replace_path_regex(middleware: &Middleware<'_>) -> Step {
    let pattern = middleware.fields.text("regex").unwrap_or_default().trim();
    let replacement = middleware.fields.text("replacement").unwrap_or_default().trim();
    let (plain, is_insensitive) = match pattern.strip_prefix("(?i)") {
        Some(plain) => (plain, true),
        None => (pattern, false),
    };
    let branch = match replaced(plain, replacement) {
        Some((groups, change)) => {
            Path::regex(&groups, is_insensitive).map(|path| (path, edit(middleware, change)))
        }
        None => {
            let hint =
                format!("from {pattern} to {replacement}: write a route for these paths, with `rewrite`");
            Path::regex(pattern, false).map(|path| (path, middleware.close(hint)))
        }
    };
    match branch {
        Ok((path, rule)) => Step::Branches(vec![(Condition::path(path), rule)]),
        Err(text) => Step::Rules(vec![middleware.close(text)]),
    }
}

/// An expression for the whole path, with names for its groups, and what takes the place of the path.
fn replaced(pattern: &str, replacement: &str) -> Option<(String, PathEdit)> {
    let is_ended = pattern.ends_with('$') || pattern.ends_with(".*") || pattern.ends_with(".*)");
    if is_open(pattern) || !pattern.starts_with('^') && !is_ended {
        return None;
    }
    let (groups, text) = (named_groups(pattern)?, template(replacement)?);
    let (begin, head) = match pattern.starts_with('^') {
        true => ("", ""),
        false => ("^(?P<head>.*?)", "{head}"),
    };
    let (end, tail) = if is_ended { ("", "") } else { ("(?P<tail>.*)$", "{tail}") };
    let whole = format!("{head}{text}{tail}");
    let groups = format!("{begin}{groups}{end}");
    match whole.starts_with('/') {
        true if whole.replace("{{", "").contains('{') => Some((groups, PathEdit::Template(whole))),
        true => Some((groups, PathEdit::Whole(text))),
        false => None,
    }
}

/// The expression with a name for each group: `g1`, `g2` and so on.
pub(super) fn named_groups(pattern: &str) -> Option<String> {
    let (mut named, mut chars, mut count, mut is_in_class) =
        (String::new(), pattern.chars().peekable(), 0, false);
    while let Some(c) = chars.next() {
        named.push(c);
        match c {
            '\\' => named.extend(chars.next()),
            '[' => is_in_class = true,
            ']' => is_in_class = false,
            '(' if !is_in_class && chars.peek() != Some(&'?') => {
                count += 1;
                named += &format!("?P<g{count}>");
            }
            // Names of the source would be mixed up with these.
            '(' if !is_in_class => {
                let rest: String = chars.clone().take(3).collect();
                if rest.starts_with("?P") || rest.starts_with("?<") {
                    return None;
                }
            }
            _ => {}
        }
    }
    Some(named)
}

/// `$1` and `${1}` of Go's replacements as placeholders.
pub(super) fn template(replacement: &str) -> Option<String> {
    let (mut text, mut rest) = (String::new(), replacement);
    while let Some(at) = rest.find('$') {
        text += &literal(&rest[..at]);
        rest = &rest[at + 1..];
        let (name, after) = if let Some(braced) = rest.strip_prefix('{') {
            braced.split_once('}')?
        } else if let Some(after) = rest.strip_prefix('$') {
            text.push('$');
            rest = after;
            continue;
        } else {
            rest.split_at(rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len()))
        };
        let group: u32 = name.parse().ok().filter(|group| *group > 0)?;
        text += &format!("{{g{group}}}");
        rest = after;
    }
    Some(text + &literal(rest))
}
