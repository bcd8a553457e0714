//! The values of the settings' placeholders for one request.

use std::{fmt::Write, net::IpAddr, sync::Arc};

use compact_str::CompactString;
use http::HeaderValue;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};

use super::headers::never_indexed;
use crate::{
    config::model::{FieldText, Placeholder, PlaceholderText, TextPart},
    identity::Identity,
    request_values::{FoundValues, RequestValue},
    router::{Host, Rejection, Router, Target, assembled_path},
};

/// The values of one request, after its route has matched.
pub(super) struct PlaceholderValues<'a> {
    pub(super) router: &'a Router,
    /// The route's index.
    pub(super) route: usize,
    pub(super) target: &'a Target,
    /// The client's address.
    pub(super) address: IpAddr,
    pub(super) identity: &'a Identity,
    pub(super) request_id: &'a HeaderValue,
    /// The values that the configuration names, and those of the request: of each call, if it is a batch.
    pub(super) values: (&'a [Arc<RequestValue>], &'a [FoundValues]),
}

impl PlaceholderValues<'_> {
    /// The value of a header field, with characters that are not allowed there percent-encoded. `None`: it is empty.
    pub(super) fn field(&self, field: &FieldText) -> Option<HeaderValue> {
        if let Some(constant) = &field.constant {
            return Some(constant.clone());
        }
        let mut value = Vec::new();
        for part in &field.text.parts {
            match part {
                TextPart::Literal(literal) => value.extend_from_slice(literal.as_bytes()),
                TextPart::Placeholder(placeholder) => self.with(*placeholder, |text| {
                    for &byte in text {
                        match byte.is_ascii_control() {
                            true => value
                                .extend_from_slice(percent_encoding::percent_encode_byte(byte).as_bytes()),
                            false => value.push(byte),
                        }
                    }
                }),
            }
        }
        let value = HeaderValue::from_bytes(value.trim_ascii()).ok().filter(|value| !value.is_empty())?;
        Some(never_indexed(value))
    }

    /// A path. Captures of the request's path keep their percent-encoding, and all other values are encoded, so no
    /// value adds a slash, a query or a fragment.
    ///
    /// # Errors
    /// 400 if the path would have dot segments, or if the request has no value for a placeholder other than a
    /// capture.
    pub(super) fn path(&self, text: &PlaceholderText) -> Result<String, Rejection> {
        let mut path = String::new();
        for part in &text.parts {
            match part {
                TextPart::Literal(literal) => path.push_str(literal),
                TextPart::Placeholder(Placeholder::Capture(index)) => path.push_str(self.capture(*index)),
                TextPart::Placeholder(placeholder) => {
                    let before = path.len();
                    self.with(*placeholder, |value| {
                        path.extend(percent_encoding::percent_encode(value, RESERVED));
                    });
                    // `/users/{user}/orders` without a user could be read as the orders of all users.
                    if path.len() == before {
                        return Err(Rejection::bad_request(
                            "The path needs a value that the request does not have.",
                        ));
                    }
                }
            }
        }
        assembled_path(&path)
    }

    /// A capture of the route's path. It is searched each time, since hardly any setting uses it twice.
    fn capture(&self, index: usize) -> &str {
        self.router.captures(self.route, self.target).get(index).copied().unwrap_or_default()
    }

    /// Passes the value of `placeholder` to `read`, unless it has none.
    fn with(&self, placeholder: Placeholder, read: impl FnOnce(&[u8])) {
        match placeholder {
            Placeholder::ClientAddress => {
                let mut text = CompactString::default();
                // Writing to a string does not fail.
                let _written = write!(text, "{}", self.address.to_canonical());
                read(text.as_bytes());
            }
            // The upstream gets verified users only.
            Placeholder::User => {
                if let Some(user) = self.identity.user.as_ref().filter(|_| self.identity.is_verified) {
                    read(user.as_bytes());
                }
            }
            Placeholder::OfKey(field) => {
                if let Some(value) = self.identity.valid_key().and_then(|key| key.field(field)) {
                    read(value.as_bytes());
                }
            }
            Placeholder::RequestId => read(self.request_id.as_bytes()),
            Placeholder::Host => read(self.target.host().map_or("", Host::name).as_bytes()),
            Placeholder::Capture(index) => read(self.capture(index).as_bytes()),
            Placeholder::Value(index) => {
                let (names, found) = self.values;
                let Some(value) = names.get(index) else { return };
                let mut texts: Vec<&str> = found.iter().filter_map(|of| of.get(&value.name).text()).collect();
                texts.dedup();
                read(texts.join(",").as_bytes());
            }
        }
    }
}

/// All characters but the unreserved ones (RFC 3986, 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
