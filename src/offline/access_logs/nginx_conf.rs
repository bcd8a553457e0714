//! The `log_format` directives of an nginx.conf.

use std::{fs, path::Path};

use super::{
    line_format::LogFormat,
    notation,
    template::{FormatError, Template},
    value::Escape,
};
use crate::file::matching_files;

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
        let mut found = LogDirectives::default();
        found.add(path, path.parent().unwrap_or(Path::new("")), DEEPEST)?;
        let LogDirectives { formats: mut found, unusable, .. } = found;
        // One that logs no requests, such as those of streams, is no obstacle to others.
        if let (true, Some(error)) = (found.is_empty(), unusable) {
            return Err(error);
        }
        found.extend(Self::parse("combined")?);
        found.sort_by_key(|format| std::cmp::Reverse(format.telling()));
        Ok(found)
    }
}

/// What the files define.
#[derive(Default)]
struct LogDirectives {
    files: usize,
    formats: Vec<LogFormat>,
    /// The first format that can't be used.
    unusable: Option<FormatError>,
}

impl LogDirectives {
    /// Adds the formats of a file, and of those that it includes. `root`: the directory of the main file.
    fn add(&mut self, path: &Path, root: &Path, depth: usize) -> Result<(), FormatError> {
        let error = |error: String| FormatError::Conf { file: path.display().to_string(), error };
        self.files += 1;
        if self.files > MOST_FILES {
            return Err(error(format!("more than {MOST_FILES} files are included")));
        }
        let text = fs::read(path).map_err(|cause| error(cause.to_string()))?;
        let text = String::from_utf8_lossy(&text);
        for format in formats(&text) {
            match format {
                Ok(format) => self.formats.push(format),
                Err(cause) => self.unusable = self.unusable.take().or(Some(error(cause.to_string()))),
            }
        }
        for directive in directives(&text) {
            let [name, pattern] = directive.as_slice() else { continue };
            if name != "include" {
                continue;
            }
            for included in matching_files(&root.join(pattern)) {
                if depth == 0 {
                    return Err(error("files include each other".to_owned()));
                }
                self.add(&included, root, depth - 1)?;
            }
        }
        Ok(())
    }
}

/// The formats that the `log_format` directives of a text define.
pub(super) fn formats(text: &str) -> Vec<Result<LogFormat, FormatError>> {
    let mut found = Vec::new();
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
        let name = format!("log_format {name}");
        let template =
            notation::nginx(&parts.concat()).and_then(|parts| Template::compile(parts, escape, false));
        found.push(match template {
            Ok(template) => Ok(LogFormat::of_template(name, template)),
            Err(error) => Err(FormatError::Conf { file: name, error: error.to_string() }),
        });
    }
    found
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(formats: &[LogFormat]) -> Vec<&str> {
        formats.iter().map(LogFormat::name).collect()
    }

    #[test]
    fn formats_are_found_wherever_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        fs::create_dir(directory.path().join("conf.d")).unwrap();
        write(
            "nginx.conf",
            r#"
            # log_format commented '$msec';
            http { log_format main '$remote_addr [$time_local] "$request" '
                                   "$status \"${http_user_agent}\"";
                map $a $b { default 'x;}'; ~^/a{2} 1; }
                include conf.d/*.conf;
                include mime.types; }"#,
        );
        write("mime.types", "types { text/html html; }");
        write("conf.d/b.conf", "log_format short escape=none $msec|$remote_addr|$request;");
        write("conf.d/.hidden.conf", "log_format hidden $msec|$remote_addr|$request;");
        write("conf.d/stream.conf", "log_format stream '$remote_addr [$time_local] $protocol $status';");
        let formats = LogFormat::of_nginx_conf(&directory.path().join("nginx.conf")).unwrap();
        assert_eq!(names(&formats), ["combined", "log_format main", "log_format short"]);
    }

    #[test]
    fn a_log_format_that_cannot_be_read_is_an_error_with_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nginx.conf");
        let error = || LogFormat::of_nginx_conf(&path).unwrap_err().to_string();
        assert!(error().ends_with("nginx.conf: No such file or directory (os error 2)"), "{}", error());
        fs::write(&path, "include nginx.conf;").unwrap();
        assert!(error().ends_with("nginx.conf: files include each other"), "{}", error());
        fs::write(&path, "log_format a '$msec $request';").unwrap();
        assert!(error().ends_with(
            "nginx.conf: log_format a: the format does not tell the client: it needs $remote_addr"
        ));
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in "(log_format |[a$'\"\\\\{};# \n]){0,30}|\\PC{0,60}") {
            directives(&text);
            let _any = formats(&text);
        }
    }
}
