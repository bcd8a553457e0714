//! Reads text with placeholders, and warns about those that are never known.

use crate::{
    api_keys::KeyField,
    config::{
        identity::settings::IdentitySources,
        reader::Cursor,
        value::{
            Invalid, Placeholders,
            patterns::{PathPattern, Segment},
            placeholders::{FieldText, Placeholder, PlaceholderText, REST},
        },
    },
};

impl PathPattern {
    /// The names of its captures: its parameters in order, or `rest` for its `*`.
    pub fn captures(&self) -> Vec<&str> {
        match self {
            Self::Exact(_) => Vec::new(),
            Self::Prefix(_) => vec![REST],
            Self::Regex(regex) => regex.capture_names().collect(),
            Self::Template(segments) => segments
                .iter()
                .filter_map(|segment| match segment {
                    Segment::Literal(_) => None,
                    Segment::Parameter(name) => Some(name.as_str()),
                })
                .collect(),
        }
    }
}

/// Reads text with placeholders of one route, or of all.
#[derive(Clone, Copy)]
pub(in crate::config) struct TextReader<'a> {
    pub(in crate::config) placeholders: Placeholders<'a>,
    pub(in crate::config) identity: IdentitySources,
}

impl TextReader<'_> {
    /// A path with placeholders.
    pub(in crate::config) fn path(self, value: Cursor<'_>) -> Option<PlaceholderText> {
        let mut text = self.read(value, |written| self.placeholders.path(written))?;
        self.warn_of_user(value, &text);
        text.is_secret = value.is_hidden();
        Some(text)
    }

    /// The value of a header field.
    pub(in crate::config) fn field(self, value: Cursor<'_>) -> Option<FieldText> {
        let read = |written: &str| self.placeholders.field(written);
        // An error quotes nothing of a credential.
        let mut field = match value.is_secret() {
            true => value.parse_unquoted(read)?,
            false => self.read(value, read)?,
        };
        self.warn_of_user(value, &field.text);
        field.text.is_secret = value.is_hidden();
        if let Some(constant) = &mut field.constant {
            constant.set_sensitive(field.text.is_secret);
        }
        Some(field)
    }

    /// Warns where the user is never known.
    fn warn_of_user(self, value: Cursor<'_>, text: &PlaceholderText) {
        let of_key = KeyField::ALL.into_iter().find(|field| text.has(Placeholder::OfKey(*field)));
        if let Some(field) = of_key.filter(|_| !self.identity.has_api_keys) {
            value.warn(
                format!("{{{}}} is always empty, because no request has an API key", field.name()),
                "set `api_keys`, such as `api_keys: { file: keys.yaml }`".to_owned(),
            );
        }
        if !text.has(Placeholder::User) || self.identity.has_verified_users {
            return;
        }
        match self.identity.has_users {
            false => value.warn(
                "{user} is always empty, because no request has a user",
                "set `user`, such as `user: [{ header: x-user-id }]`; see docs/identity.md".to_owned(),
            ),
            true => value.warn(
                "{user} is always empty, because no source of `user` is verified",
                "use a token, a client certificate, or a header from trusted_proxies; see docs/identity.md"
                    .to_owned(),
            ),
        }
    }

    /// `${name}` reads the environment, and is a slip where a placeholder was meant.
    pub(in crate::config) fn read<T>(
        self,
        value: Cursor<'_>,
        read: impl FnOnce(&str) -> Result<T, Invalid>,
    ) -> Option<T> {
        let written = value.scalar().unwrap_or_default();
        for (at, _) in written.match_indices("${").filter(|(at, _)| !written[..*at].ends_with('$')) {
            let name = written[at + 2..].split('}').next().unwrap_or_default();
            if let Some(meant) = self.placeholders.meant(name).filter(|_| !value.has_variable(name)) {
                let help =
                    format!("did you mean `\"{}\"`?", written.replace(&format!("${{{name}}}"), &meant));
                value.report(format!("`${{{name}}}` is an environment variable, and it is not set"), help);
                return None;
            }
        }
        value.parse(read)
    }
}
