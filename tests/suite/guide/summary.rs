//! The table of contents.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs")
}

/// All pages below a directory.
fn pages(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found.sort();
}

/// `a/./b/../c` as `a/c`.
fn plain(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut all, part| {
        match part {
            Component::ParentDir => drop(all.pop()),
            Component::CurDir => {}
            other => all.push(other),
        }
        all
    })
}

#[test]
fn the_contents_name_every_page_once() {
    let summary = fs::read_to_string(docs().join("SUMMARY.md")).unwrap();
    assert!(summary.starts_with("# Summary\n"), "{summary:.40}");
    let mut named: Vec<PathBuf> = Vec::new();
    for line in summary.lines().skip(1).filter(|line| !line.is_empty() && !line.starts_with("# ")) {
        // mdBook takes nothing else.
        let link = line.trim_start().strip_prefix("- [").or_else(|| line.strip_prefix('['));
        let link = link
            .and_then(|link| link.strip_suffix(")")?.split_once("]("))
            .unwrap_or_else(|| panic!("{line}"));
        named.push(plain(&docs().join(link.1)));
    }
    let count = named.len();
    named.sort();
    named.dedup();
    assert_eq!(named.len(), count, "a page is named twice");
    let mut all = Vec::new();
    pages(&docs(), &mut all);
    all.retain(|page| !page.ends_with("SUMMARY.md"));
    assert_eq!(named, all, "docs/SUMMARY.md and the pages of docs differ");
}
