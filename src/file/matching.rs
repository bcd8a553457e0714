//! Files that a pattern names, as in the `include` of nginx.

use std::path::{Path, PathBuf};

use glob::{MatchOptions, glob_with};

/// Most files that a pattern names.
const MOST: usize = 10_000;

/// The files that a path with `*`, `?` and `[…]` names, sorted, 10,000 at most. As in a shell, `*` does not match a hidden
/// file. Without such characters, the file itself if it is there. A pattern that is malformed names no file.
pub fn matching_files(pattern: &Path) -> Vec<PathBuf> {
    let options = MatchOptions {
        case_sensitive: true,
        require_literal_separator: true,
        require_literal_leading_dot: true,
    };
    let found = pattern.to_str().and_then(|pattern| glob_with(pattern, options).ok());
    found.into_iter().flatten().filter_map(Result::ok).filter(|path| path.is_file()).take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn patterns_name_files_in_any_directory() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["sites-a/b.conf", "sites-a/a.conf", "sites-a/.c.conf", "sites-b/x.conf", "sites-b/y.txt"]
        {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let found = |pattern: &str| {
            let paths = matching_files(&directory.path().join(pattern));
            let name = |path: &PathBuf| path.strip_prefix(directory.path()).unwrap().display().to_string();
            paths.iter().map(name).collect::<Vec<_>>()
        };
        assert_eq!(found("sites-*/*.conf"), ["sites-a/a.conf", "sites-a/b.conf", "sites-b/x.conf"]);
        assert_eq!(found("sites-[!a]/?.conf"), ["sites-b/x.conf"]);
        assert_eq!(found("sites-a/a.conf"), ["sites-a/a.conf"]);
        assert_eq!([found("none.conf"), found("sites-a"), found("[")], [[""; 0]; 3]);
    }
}
