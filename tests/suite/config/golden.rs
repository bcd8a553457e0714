//! Bad configurations, each beside exactly what it is answered.
//!
//! `UPDATE_GOLDEN=1` writes the answers anew; read them before they are kept.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tollgate::config;

use super::environment::{Environment, SECRET};

pub(super) fn golden() -> Vec<PathBuf> {
    files("tests/golden")
}

/// Configurations that are right, and yet may not be what was meant.
pub(super) fn doubtful() -> Vec<PathBuf> {
    files("tests/golden/warnings")
}

fn files(directory: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
    let mut files: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    files.sort();
    files
}

fn answer(path: &Path) -> String {
    let name = path.file_name().unwrap().to_str().unwrap();
    let text = fs::read_to_string(path).unwrap();
    match config::parse(name, &text, &Environment) {
        Ok(_) => panic!("{name} is right"),
        Err(errors) => errors.to_string(),
    }
}

fn warning(path: &Path) -> String {
    let name = path.file_name().unwrap().to_str().unwrap();
    let text = fs::read_to_string(path).unwrap();
    let (_, warnings) = config::parse_with_warnings(name, &text, &Environment)
        .unwrap_or_else(|errors| panic!("{name} is wrong: {errors}"));
    assert_eq!(warnings.is_empty(), warnings.lines().count() == 0);
    warnings.to_string()
}

#[test]
fn every_bad_configuration_is_answered_as_it_was() {
    assert!(golden().len() > 20);
    compare(golden(), answer);
}

#[test]
fn every_doubtful_configuration_has_its_golden_warning() {
    assert!(!doubtful().is_empty());
    compare(doubtful(), warning);
}

fn compare(files: Vec<PathBuf>, answer: fn(&Path) -> String) {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut wrong = Vec::new();
    for path in files {
        let found = answer(&path);
        let expected = path.with_extension("stderr");
        if update {
            fs::write(&expected, &found).unwrap();
        } else if fs::read_to_string(&expected).unwrap_or_default() != found {
            wrong.push(format!("--- {}\n{found}", expected.display()));
        }
    }
    assert!(wrong.is_empty(), "answered otherwise than before:\n{}", wrong.join("\n"));
}

#[test]
fn no_answer_shows_what_was_inserted() {
    let warnings = doubtful().into_iter().map(|path| (warning(&path), path));
    let answers = golden().into_iter().map(|path| (answer(&path), path));
    for (found, path) in answers.chain(warnings) {
        for secret in [SECRET, "2222", "10.22"] {
            assert!(!found.contains(secret), "{}: {found}", path.display());
        }
    }
}

#[test]
fn no_answer_stands_without_its_configuration() {
    for directory in ["tests/golden", "tests/golden/warnings"] {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            assert!(path.is_dir() || path.with_extension("yaml").exists(), "{}", path.display());
        }
    }
}
