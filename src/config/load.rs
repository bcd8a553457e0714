//! Loads a configuration from a file or from text.

use std::{io, path::Path};

use super::{
    Errors, FileLocation, Lookup, Problem, Warnings,
    foreign::foreign,
    inserted::inserted_settings,
    interpolate::ImpatientLookup,
    reader::{Cursor, Findings, Purpose, ReadContext},
    redact::Secrets,
    root,
    settings::{Kind, Place, Settings},
    value::foreign_value,
    yaml,
};
use crate::config::resolved::{Config, ConfigSource};
use crate::file;

/// The largest configuration that is read, in bytes. Real ones are far smaller, and a wrong path (a log, a device)
/// is noticed before it fills the memory.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// The paths of standard input. Reading it may take long: a person types it, or a slow command writes it.
const STDIN: [&str; 3] = ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"];
/// The file as a value: a mapping of the settings at its top level.
static FILE: Kind = Kind::Mapping(Config::mapping);

/// Reads the configuration at `path`, with `${…}` from the environment and from disk.
///
/// # Errors
/// The file cannot be read, or all errors in it.
pub fn load(path: &Path) -> Result<Config, Errors> {
    load_with_warnings(path, Purpose::Check).map(|(config, _)| config)
}

/// As [`load`], with warnings about settings that are valid but probably not intended.
///
/// # Errors
/// As [`load`].
pub fn load_with_warnings(path: &Path, purpose: Purpose) -> Result<(Config, Warnings), Errors> {
    parse_read(&path.display().to_string(), read(path, purpose), purpose)
}

/// As [`load_with_warnings`], to check standard input, which is read to its end.
///
/// # Errors
/// As [`load`].
pub fn load_from_stdin() -> Result<(Config, Warnings), Errors> {
    // Not by its path, because a socket cannot be opened by path.
    parse_read("stdin", file::read_to_end(io::stdin(), MAX_FILE_BYTES), Purpose::Check)
}

fn parse_read(name: &str, read: io::Result<Vec<u8>>, purpose: Purpose) -> Result<(Config, Warnings), Errors> {
    let text = read
        .map_err(|error| format!("cannot be read: {error}"))
        .and_then(|bytes| decode(name, bytes))
        .map_err(|message| Errors::new(name, "", &Secrets::default(), vec![Problem::of_file(message)]))?;
    parse_for(name, &text, &ImpatientLookup::default(), purpose)
}

/// Reads a configuration from `text`. Errors name it `file_name`.
///
/// # Errors
/// All errors, sorted by location. Two are reported alone: a YAML syntax error, because the text after it cannot be
/// parsed reliably, and a configuration of another proxy.
pub fn parse(file_name: &str, text: &str, lookup: &dyn Lookup) -> Result<Config, Errors> {
    parse_with_warnings(file_name, text, lookup).map(|(config, _)| config)
}

/// As [`parse`], with warnings about settings that are valid but probably not intended.
///
/// # Errors
/// As [`parse`].
pub fn parse_with_warnings(
    file_name: &str,
    text: &str,
    lookup: &dyn Lookup,
) -> Result<(Config, Warnings), Errors> {
    parse_for(file_name, text, lookup, Purpose::Check)
}

fn parse_for(
    file_name: &str,
    text: &str,
    lookup: &dyn Lookup,
    purpose: Purpose,
) -> Result<(Config, Warnings), Errors> {
    // Some editors begin a file with a byte order mark. It is not part of the text.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let wrong = |secrets: &Secrets, problems| match foreign(file_name, text) {
        Some(message) => Errors::new(file_name, "", &Secrets::default(), vec![Problem::of_file(message)]),
        None => Errors::new(file_name, text, secrets, problems),
    };
    let tree = yaml::parse(text).map_err(|problem| wrong(&Secrets::by_words(text), vec![problem]))?;
    let secrets = Secrets::of_tree(text, &tree, Place::Known(&FILE));
    let context = ReadContext::new(lookup, purpose, &secrets, foreign_value);
    for duplicate in tree.duplicates {
        context.report(duplicate);
    }
    let config = root::read(Cursor::root(&tree.root, &context));
    let Findings { problems, warnings, inserted, secret_values } = context.into_findings();
    match (config, problems) {
        (Some(mut config), problems) if problems.is_empty() => {
            let secrets = secrets.and_values(text, &secret_values);
            config.source = ConfigSource {
                path: file_name.to_owned(),
                redacted_text: secrets.mask(text),
                inserted: inserted_settings(&tree.root, &inserted, &config),
            };
            Ok((config, Warnings::new(file_name, text, &secrets, warnings)))
        }
        (None, problems) if problems.is_empty() => {
            let start = FileLocation { line: 1, column: 1 };
            let unexplained = Problem::new(start, "this configuration cannot be used");
            Err(wrong(&secrets, vec![unexplained]))
        }
        (_, problems) => Err(wrong(&secrets, problems)),
    }
}

fn read(path: &Path, purpose: Purpose) -> io::Result<Vec<u8>> {
    let is_stdin = STDIN.iter().any(|name| path == Path::new(name));
    match is_stdin && purpose != Purpose::Reload {
        true => file::read_patiently(path, MAX_FILE_BYTES),
        false => file::read(path, MAX_FILE_BYTES),
    }
}

fn decode(name: &str, bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to();
        // Comments in an older nginx.conf are in Latin-1, say.
        foreign(name, &String::from_utf8_lossy(error.as_bytes()))
            .unwrap_or_else(|| format!("cannot be read: byte {offset} is not UTF-8"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_there_is_said_by_name() {
        let error = load(Path::new("/nowhere/proxy.yaml")).unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/proxy.yaml: cannot be read: No such file"), "{error}");
    }

    #[test]
    fn a_file_that_is_not_utf_8_or_too_long_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("proxy.yaml");
        std::fs::write(&path, b"workers: \xff").unwrap();
        assert!(load(&path).unwrap_err().to_string().ends_with("byte 9 is not UTF-8\n"));
        std::fs::write(&path, b"# caf\xe9\nserver {\n  listen 80;\n}").unwrap();
        let error = load(&path).unwrap_err().to_string();
        assert!(error.contains("this is an nginx configuration"), "{error}");
        std::fs::write(&path, vec![b' '; MAX_FILE_BYTES as usize + 1]).unwrap();
        assert!(load(&path).unwrap_err().to_string().ends_with("it is longer than 4MiB\n"));
        let error = load(directory.path()).unwrap_err().to_string();
        assert!(error.ends_with("cannot be read: it is a directory, not a file\n"), "{error}");
    }
}
