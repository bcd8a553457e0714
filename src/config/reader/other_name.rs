//! Names that others have for our settings.

use super::Cursor;
use crate::config::value::{suggest_field, suggest_hosts, suggest_key, suggest_size};

/// The longest value that is shown in a suggestion, in bytes.
const MAX_SHOWN: usize = 80;

/// What others call one of our settings, and the line to write. In the line, `VALUE` is replaced by the value that was
/// written, `SIZE` by that value as a size, `PATH` by that value as a path and all paths below it, `HOSTS` by that value as
/// hosts, `REGEX` by that value, `FIELD` by that value as a header of nginx or Caddy, and `KEY` by that value as a key.
pub(in crate::config) struct OtherName {
    others: &'static [&'static str],
    line: &'static str,
    more: &'static str,
}

impl OtherName {
    /// `line` begins with our name.
    pub(in crate::config) const fn new(others: &'static [&'static str], line: &'static str) -> Self {
        Self { others, line, more: "" }
    }

    /// With `more` behind the line.
    pub(in crate::config) const fn with(self, more: &'static str) -> Self {
        Self { more, ..self }
    }

    pub(super) fn is_of(&self, name: &str) -> bool {
        let plain = name.to_ascii_lowercase().replace('-', "_");
        self.others.contains(&&*plain)
    }

    /// Our name for it.
    pub(super) fn ours(&self) -> &'static str {
        self.line.split(':').next().unwrap_or_default()
    }

    /// The help where `value` was written.
    pub(super) fn help(&self, value: Cursor<'_>) -> String {
        let value = value.scalar().filter(|text| text.len() <= MAX_SHOWN && !value.is_secret());
        let mut line = self.line.to_owned();
        if line == "address: VALUE" && value.is_some_and(|port| port.parse::<u16>().is_ok()) {
            line = "address: 0.0.0.0:VALUE".to_owned();
        }
        for (mark, text) in [
            ("VALUE", value.map(in_quotes_if_needed)),
            ("SIZE", value.map(|text| suggest_size(text).unwrap_or(text.to_owned()))),
            ("PATH", value.map(path_and_below)),
            ("HOSTS", value.map(suggest_hosts)),
            ("FIELD", value.map(suggest_field)),
            ("REGEX", value.map(str::to_owned)),
            ("KEY", value.map(|text| suggest_key(text).unwrap_or("ip".to_owned()))),
        ] {
            line = line.replace(mark, text.as_deref().unwrap_or("…"));
        }
        match self.more {
            "" => format!("did you mean `{line}`?"),
            more => format!("write `{line}`{more}"),
        }
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
