//! Places of the file: the kind of value at each, and whether it is secret.

use std::{ptr, slice};

use super::{Kind, Mapping, text};
use crate::config::redact::{is_credential_field, is_credential_key};

/// A place of the file.
#[derive(Clone, Copy)]
pub(in crate::config) enum Place {
    /// The place of a value of this kind.
    Known(&'static Kind),
    /// No setting: the key is unknown, or begins with `x-`.
    Unknown,
    /// Everything at this place is secret.
    Secret,
}

impl Place {
    /// The value of the setting `key` of `mapping`.
    pub(in crate::config) fn of_setting(mapping: &'static Mapping, key: &str) -> Self {
        mapping.setting(key).map_or(Self::Unknown, |setting| Self::new(&setting.kind))
    }

    /// The items of a list at this place.
    pub(in crate::config) fn item(self) -> Self {
        let item = self.kinds().iter().find_map(|kind| match kind {
            Kind::List(item, _) => Some(Self::new(item)),
            _ => None,
        });
        item.unwrap_or(self.unknown())
    }

    /// The value of `key` in a mapping at this place. The declaration decides for known keys. The name of a header and
    /// an unknown key make the value secret if they look like credentials; the name of a policy or an upstream never
    /// does.
    pub(in crate::config) fn entry(self, key: &str) -> Self {
        let named = self.kinds().iter().find_map(|kind| match kind {
            Kind::Mapping(mapping) => {
                let setting = mapping().setting(key)?;
                let name = setting.prefix().map_or("", |prefix| &key[prefix.len()..]);
                let is_field = setting.key == "header:*";
                Some(if is_field && is_credential_field(name) {
                    Self::Secret
                } else {
                    Self::new(&setting.kind)
                })
            }
            Kind::Names(name, value, _) => {
                let is_chosen = ptr::eq(*name, &text::RESOURCE);
                Some(if !is_chosen && is_credential_field(key) { Self::Secret } else { Self::new(value) })
            }
            _ => None,
        });
        match named.unwrap_or(self.unknown()) {
            Self::Unknown if is_credential_key(key) => Self::Secret,
            place => place,
        }
    }

    /// Whether single values at this place are text without credentials, even if some words look like credentials.
    pub(in crate::config) fn is_plain_text(self) -> bool {
        let may_have_credentials =
            |kind: &Kind| matches!(kind, Kind::Text(text) if text.may_have_credentials);
        let is_text = |kind: &Kind| matches!(kind, Kind::Text(_) | Kind::File);
        self.kinds().iter().any(is_text) && !self.kinds().iter().any(may_have_credentials)
    }

    fn new(kind: &'static Kind) -> Self {
        let is_secret = |kind: &Kind| matches!(kind, Kind::Text(text) if text.is_secret);
        match kind {
            Kind::Any => Self::Unknown,
            Kind::Either(kinds) if kinds.iter().any(is_secret) => Self::Secret,
            kind if is_secret(kind) => Self::Secret,
            _ => Self::Known(kind),
        }
    }

    /// A place inside this one for which there is no declaration.
    fn unknown(self) -> Self {
        if matches!(self, Self::Secret) { self } else { Self::Unknown }
    }

    /// The kinds of value that this place may have.
    fn kinds(self) -> &'static [Kind] {
        match self {
            Self::Known(Kind::Either(kinds)) => kinds,
            Self::Known(kind) => slice::from_ref(kind),
            Self::Unknown | Self::Secret => &[],
        }
    }
}
