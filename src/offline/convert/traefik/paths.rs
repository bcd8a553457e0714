//! Middlewares that change the path.

#![expect(clippy::result_large_err, reason = "the error is the rule that closes a route, and few are made")]

use super::middlewares::{Middleware, MiddlewareStep};
use crate::offline::convert::{
    condition::RequestCondition,
    path::{Path, encoded},
    site::{Edit, Effect, PathEdit, SiteRule},
};

fn edit(middleware: &Middleware<'_>, edit: PathEdit) -> SiteRule {
    middleware.always(Effect::Edit(Edit::Path(edit)))
}

/// `stripPrefix`: the first of the prefixes with which the path begins is removed. `has_more`: something may be put
/// before what is left, which has a slash in front then, unless it is nothing.
pub(super) fn strip_prefix(middleware: &Middleware<'_>, has_more: bool) -> MiddlewareStep {
    // The path gets a slash in any case.
    middleware.fields.ignore(&["forceSlash"]);
    let mut branches = Vec::new();
    for prefix in middleware.fields.texts("prefixes").into_iter().map(str::trim) {
        let change = match prefix {
            // The path stays.
            "" | "/" => PathEdit::Prepend(String::new()),
            _ => PathEdit::Replace { prefix: encoded(prefix), by: String::new() },
        };
        // No path begins with anything but a slash.
        let Ok(path) = Path::prefix(prefix) else { continue };
        if let (true, Path::Prefix(text)) = (has_more, &path) {
            let whole = RequestCondition::path(Path::Exact(text.clone()));
            branches.push((whole, edit(middleware, PathEdit::Whole(String::new()))));
        }
        branches.push((RequestCondition::path(path), edit(middleware, change)));
    }
    MiddlewareStep::Branches(branches)
}

pub(super) fn add_prefix(middleware: &Middleware<'_>) -> Vec<SiteRule> {
    match middleware.fields.text("prefix") {
        None => vec![middleware.close("`prefix` is empty")],
        Some(prefix) => {
            let slash = if prefix.starts_with('/') { "" } else { "/" };
            vec![edit(middleware, PathEdit::Prepend(format!("{slash}{}", encoded(prefix))))]
        }
    }
}

pub(super) fn replace_path(middleware: &Middleware<'_>) -> Vec<SiteRule> {
    let path = middleware.fields.text("path").unwrap_or("/");
    vec![edit(middleware, PathEdit::Whole(path.to_owned()))]
}

/// `replacePathRegex`: what the expression matches is replaced. Where it is more than a text at the beginning and what
/// follows it, it has no equal.
pub(super) fn replace_path_regex(middleware: &Middleware<'_>) -> Result<MiddlewareStep, SiteRule> {
    let pattern = middleware.fields.text("regex").unwrap_or_default().trim();
    let replacement = middleware.fields.text("replacement").unwrap_or_default().trim();
    let branches = match plain(pattern, replacement) {
        Some((begins, by)) => {
            let branch = |begin: String| {
                let path = Path::prefix(&begin)?;
                let change = PathEdit::Replace { prefix: encoded(&begin), by: encoded(by) };
                Ok((RequestCondition::path(path), edit(middleware, change)))
            };
            begins.into_iter().map(branch).collect()
        }
        None => {
            let hint =
                format!("from {pattern} to {replacement}: write a route for these paths, with `rewrite`");
            Path::regex(pattern, false)
                .map(|path| vec![(RequestCondition::path(path), middleware.close(hint))])
        }
    };
    branches.map(MiddlewareStep::Branches).map_err(|text: String| middleware.close(text))
}

/// The texts at the beginning of paths that are replaced, the first of them first, and their replacements.
fn plain<'r>(pattern: &str, replacement: &'r str) -> Option<(Vec<String>, &'r str)> {
    let pattern = pattern.strip_prefix('^')?;
    let (begin, by) = match pattern.strip_suffix("(.*)$").or(pattern.strip_suffix("(.*)")) {
        Some(begin) => (begin, replacement.strip_suffix("$1").or(replacement.strip_suffix("${1}"))?),
        None => (pattern, replacement),
    };
    let begins = match begin.strip_suffix("/?") {
        Some(begin) => vec![format!("{}/", text_of(begin)?), text_of(begin)?],
        None => vec![text_of(begin)?],
    };
    let is_plain = begins.iter().all(|begin| begin.starts_with('/')) && !by.contains('$');
    (is_plain && (by.starts_with('/') || by.is_empty())).then_some((begins, by))
}

/// The text that an expression stands for, if that is one text.
pub(super) fn text_of(pattern: &str) -> Option<String> {
    let text = pattern.replace(r"\.", "\u{1}").replace(r"\/", "/").replace(r"\-", "-");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/_~-\u{1}".contains(c);
    text.chars().all(is_plain).then(|| text.replace('\u{1}', "."))
}
