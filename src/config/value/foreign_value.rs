//! Rewrites values of other software as Tollgate would have them.

use super::{suggest_field, suggest_hosts, suggest_key, suggest_size};

/// Rewrites `text` for the place of `mark` in `foreign_names.txt`, which documents the marks.
pub(in crate::config) fn foreign_value(mark: &str, text: &str) -> String {
    match mark {
        "VALUE" => in_quotes_if_needed(text),
        "SIZE" => suggest_size(text).unwrap_or(text.to_owned()),
        "DURATION" if text.bytes().all(|byte| byte.is_ascii_digit()) => format!("{text}s"),
        "PATH" => path_and_below(text),
        "HOSTS" => suggest_hosts(text),
        "FIELD" => suggest_field(text),
        "KEY" => suggest_key(text).unwrap_or("ip".to_owned()),
        _ => text.to_owned(),
    }
}

/// `*` as `"*"`: without quotes, YAML would take it for an alias.
fn in_quotes_if_needed(text: &str) -> String {
    match text.starts_with(['*', '&', '!', '%', '@', '`', '[', '{']) && !text.contains(['"', '\\']) {
        true => format!("\"{text}\""),
        false => text.to_owned(),
    }
}

/// `/api` as `/api/*`. In nginx and Kong, a path is a prefix.
fn path_and_below(text: &str) -> String {
    // A rule of Traefik: PathPrefix(`/api`)
    let text = text.split('`').nth(1).unwrap_or(text);
    if text.starts_with('~') {
        return format!("'{text}'");
    }
    let path = text.trim_start_matches(['^', '~', '*', '=', ' ']).trim_end_matches(['*', '/', '$', '.']);
    format!("{path}/*")
}
