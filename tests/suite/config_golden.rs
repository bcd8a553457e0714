//! Bad configurations, each beside exactly what it is answered.
//!
//! `UPDATE_GOLDEN=1` writes the answers anew; read them before they are kept.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tollgate::config;

use crate::environment::{Environment, SECRET};

fn golden() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
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

#[test]
fn every_bad_configuration_is_answered_as_it_was() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let files = golden();
    assert!(files.len() > 20);
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
    for path in golden() {
        let found = answer(&path);
        for secret in [SECRET, "2222", "10.22"] {
            assert!(!found.contains(secret), "{}: {found}", path.display());
        }
    }
}

#[test]
fn no_answer_stands_without_its_configuration() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        assert!(path.with_extension("yaml").exists(), "{}", path.display());
    }
}
