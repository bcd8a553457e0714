//! The `log_format` directives of an nginx.conf.

use std::{fs, path::Path};

use super::{
    line_format::LogFormat,
    notation::{self, FormatError},
    template::Template,
    value::Escape,
};

/// Files that are included deeper are not read: they may include each other.
const DEEPEST: usize = 16;
/// Most files to read.
const MOST_FILES: usize = 1_000;

impl LogFormat {
    /// The formats that an nginx.conf and the files that it includes define, and `combined`, which is built in. Those with
    /// the most variables come first.
    ///
    /// # Errors
    /// A file can't be read, or a format can't be used.
    pub fn of_nginx_conf(path: &Path) -> Result<Vec<Self>, FormatError> {
        let mut found = Vec::new();
        let mut files = 0;
        add_formats(path, path.parent().unwrap_or(Path::new("")), DEEPEST, &mut files, &mut found)?;
        found.extend(Self::parse("combined")?);
        found.sort_by_key(|format| std::cmp::Reverse(format.telling()));
        Ok(found)
    }
}

/// Adds the formats of a file, and of those that it includes. `root`: the directory of the main file.
fn add_formats(
    path: &Path,
    root: &Path,
    depth: usize,
    files: &mut usize,
    found: &mut Vec<LogFormat>,
) -> Result<(), FormatError> {
    let error = |error: String| FormatError::Conf { file: path.display().to_string(), error };
    *files += 1;
    if *files > MOST_FILES {
        return Err(error(format!("more than {MOST_FILES} files are included")));
    }
    let text = fs::read(path).map_err(|cause| error(cause.to_string()))?;
    let text = String::from_utf8_lossy(&text);
    found.extend(formats(&text).map_err(|cause| error(cause.to_string()))?);
    for directive in directives(&text) {
        let [name, pattern] = directive.as_slice() else { continue };
        if name != "include" {
            continue;
        }
        for included in matching(&root.join(pattern)) {
            if depth == 0 {
                return Err(error("files include each other".to_owned()));
            }
            add_formats(&included, root, depth - 1, files, found)?;
        }
    }
    Ok(())
}

/// The formats that the `log_format` directives of a text define.
pub(super) fn formats(text: &str) -> Result<Vec<LogFormat>, FormatError> {
    let (mut found, mut unusable) = (Vec::new(), Vec::new());
    for directive in directives(text) {
        let [directive, name, parts @ ..] = directive.as_slice() else { continue };
        if directive != "log_format" {
            continue;
        }
        let (escape, parts) = match parts {
            [escape, parts @ ..] if escape == "escape=none" => (Escape::None, parts),
            [escape, parts @ ..] if escape.starts_with("escape=") => (Escape::Backslash, parts),
            parts => (Escape::Backslash, parts),
        };
        let template =
            notation::nginx(&parts.concat()).and_then(|parts| Template::compile(parts, escape, false));
        match template {
            Ok(template) => found.push(LogFormat::of_template(format!("log_format {name}"), template)),
            Err(error) => unusable
                .push(FormatError::Conf { file: format!("log_format {name}"), error: error.to_string() }),
        }
    }
    // One that logs no requests, such as those of streams, is no obstacle to others.
    if let (true, Some(error)) = (found.is_empty(), unusable.into_iter().next()) {
        return Err(error);
    }
    Ok(found)
}

/// The directives of an nginx.conf, each with its arguments, wherever they are.
fn directives(text: &str) -> Vec<Vec<String>> {
    let mut directives = Vec::new();
    let mut words = Vec::new();
    let mut characters = text.chars().peekable();
    while let Some(first) = characters.next() {
        match first {
            ' ' | '\t' | '\r' | '\n' => {}
            '#' => while characters.next_if(|&c| c != '\n').is_some() {},
            '{' | '}' | ';' => directives.push(std::mem::take(&mut words)),
            quote @ ('"' | '\'') => {
                let mut word = String::new();
                while let Some(next) = characters.next_if(|&c| c != quote) {
                    match (next, characters.peek()) {
                        ('\\', Some(&escaped @ ('"' | '\'' | '\\'))) => word.push(escaped),
                        ('\\', Some('t')) => word.push('\t'),
                        ('\\', Some('r')) => word.push('\r'),
                        ('\\', Some('n')) => word.push('\n'),
                        (next, _) => {
                            word.push(next);
                            continue;
                        }
                    }
                    characters.next();
                }
                characters.next();
                words.push(word);
            }
            first => {
                let mut word = String::from(first);
                // `${name}` has braces of its own.
                let mut is_in_braces = false;
                while let Some(&next) = characters.peek() {
                    let is_brace = next == '{' && word.ends_with('$') || next == '}' && is_in_braces;
                    if !is_brace && matches!(next, ' ' | '\t' | '\r' | '\n' | ';' | '{' | '}') {
                        break;
                    }
                    is_in_braces = next == '{' || is_in_braces && next != '}';
                    word.push(next);
                    characters.next();
                }
                words.push(word);
            }
        }
    }
    directives.push(words);
    directives.retain(|words| !words.is_empty());
    directives
}

/// The files that match a path with `*` in its name, sorted.
fn matching(pattern: &Path) -> Vec<std::path::PathBuf> {
    let (Some(directory), Some(name)) = (pattern.parent(), pattern.file_name()) else { return Vec::new() };
    let name = name.to_string_lossy();
    let Some((begin, end)) = name.split_once('*') else { return vec![pattern.to_owned()] };
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .filter(|entry| {
            let file = entry.file_name();
            let file = file.to_string_lossy();
            file.len() >= begin.len() + end.len()
                && file.starts_with(begin)
                && file.ends_with(end)
                && !file.starts_with('.')
        })
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}
