//! Tests of the path and of the URL.

use percent_encoding::percent_decode_str;

use crate::offline::convert::{
    condition::RequestCondition,
    path::{Path, encoded, escaped},
};

/// A value of `path_beg`, `path_sub`, … `kind`: `beg`, `sub`, ….
pub(super) fn path_test(kind: &str, value: &str, is_insensitive: bool, shown: &str) -> RequestCondition {
    let path = |pattern: &str| {
        Path::regex(pattern, is_insensitive)
            .map_or_else(RequestCondition::unknown_place, RequestCondition::path)
    };
    if kind == "reg" {
        return path(value);
    }
    // A path has neither a query nor characters that must be encoded.
    if !value.chars().all(|c| c.is_ascii_graphic() && c != '?') {
        return RequestCondition::NEVER;
    }
    let decoded = percent_decode_str(value).decode_utf8_lossy();
    let text = escaped(&decoded);
    let found = match kind {
        "beg" if value.is_empty() => RequestCondition::ALWAYS,
        "str" | "beg" if !value.starts_with('/') => RequestCondition::NEVER,
        "str" => path(&format!("^{text}$")),
        "beg" => path(&format!("^{text}")),
        "end" => path(&format!("{text}$")),
        "sub" => path(&text),
        "dir" if !text.trim_matches('/').is_empty() => path(&format!("/{}(?:/|$)", text.trim_matches('/'))),
        _ => return RequestCondition::unknown_place(format!("Tollgate does not test `{shown}`")),
    };
    if encoded(&decoded) == value {
        return found;
    }
    // Tollgate reads `%61` as `a`.
    let why = format!("HAProxy compares `{shown}` with its percent-encoding, Tollgate without");
    RequestCondition::between_places(RequestCondition::NEVER, found, why)
}

/// A value of `url_beg` and its like. The URL is the path with the query.
pub(super) fn url_test(kind: &str, value: &str, is_insensitive: bool, shown: &str) -> RequestCondition {
    let why = format!("`{shown}` also looks at the query");
    match (kind, value.split_once('?')) {
        ("beg", None) => path_test(kind, value, is_insensitive, shown),
        ("beg" | "str", found) => {
            let path = found.map_or(value, |(path, _)| path);
            RequestCondition::between_places(
                RequestCondition::NEVER,
                path_test("str", path, is_insensitive, shown),
                why,
            )
        }
        _ => RequestCondition::unknown_place(why),
    }
}
