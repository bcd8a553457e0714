//! Tests of the path and of the URL.

use percent_encoding::percent_decode_str;

use crate::convert::{
    condition::Condition,
    path::{Path, encoded, escaped},
};

/// A value of `path_beg`, `path_sub`, … `kind`: `beg`, `sub`, ….
pub(super) fn path_test(kind: &str, value: &str, is_insensitive: bool, shown: &str) -> Condition {
    let unknown = |why: String| Condition::unknown_place(why);
    if kind == "reg" {
        return Path::regex(value, is_insensitive).map_or_else(unknown, Condition::path);
    }
    // A path has neither a query nor characters that must be encoded.
    if !value.chars().all(|c| c.is_ascii_graphic() && c != '?') {
        return Condition::NEVER;
    }
    let decoded = percent_decode_str(value).decode_utf8_lossy();
    let begins = |text: &str| text.starts_with('/');
    let regex = |text: &str| Path::regex(text, is_insensitive);
    let found = match kind {
        "str" | "beg" if !(begins(value) || kind == "beg" && value.is_empty()) => return Condition::NEVER,
        "str" if is_insensitive => regex(&format!("^{}$", escaped(&decoded))),
        "str" => Path::exact(&decoded),
        "beg" if is_insensitive => regex(&format!("^{}", escaped(&decoded))),
        "beg" => Path::prefix(&decoded),
        "end" => Path::suffix(&decoded, is_insensitive),
        "sub" => regex(&escaped(&decoded)),
        "dir" if !value.trim_matches('/').is_empty() => {
            regex(&format!("/{}(?:/|$)", escaped(decoded.trim_matches('/'))))
        }
        _ => return unknown(format!("Tollgate does not test `{shown}`")),
    };
    let condition = found.map_or_else(unknown, Condition::path);
    match encoded(&decoded) == value {
        true => condition,
        // Tollgate reads `%61` as `a`.
        false => Condition::between_places(
            Condition::NEVER,
            condition,
            format!("HAProxy compares `{shown}` with its percent-encoding, Tollgate without"),
        ),
    }
}

/// A value of `url_beg` and its like. The URL is the path with the query.
pub(super) fn url_test(kind: &str, value: &str, is_insensitive: bool, shown: &str) -> Condition {
    let why = format!("`{shown}` also looks at the query");
    match (kind, value.split_once('?')) {
        ("beg", None) => path_test(kind, value, is_insensitive, shown),
        ("beg" | "str", found) => {
            let path = found.map_or(value, |(path, _)| path);
            Condition::between_places(Condition::NEVER, path_test("str", path, is_insensitive, shown), why)
        }
        _ => Condition::unknown_place(why),
    }
}
