//! The token of a request, its claims, and the reasons to refuse it.

use std::{borrow::Cow, sync::Arc};

use compact_str::CompactString;
use http::{HeaderMap, HeaderName, header::AUTHORIZATION};
use jsonwebtoken::errors::ErrorKind;
use serde_json::{Map, Value};

use crate::identity::header_fields::single_value;

/// The longest token, in bytes. A longer one is ignored.
const MAX_TOKEN: usize = 16 << 10;

/// The user and the claims of a verified token.
#[derive(Debug, Clone)]
pub(in crate::identity) struct TokenIdentity {
    /// The claim that has the user ID, if the token has it.
    pub(in crate::identity) user: Option<CompactString>,
    pub(in crate::identity) claims: Arc<TokenClaims>,
}

/// The claims of a token (RFC 7519, 4) whose signature and times were verified.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TokenClaims(Map<String, Value>);

impl TokenClaims {
    /// Wraps verified claims.
    pub fn new(claims: Map<String, Value>) -> Self {
        Self(claims)
    }

    /// A claim that is a string, a number or a boolean, as text. `None` for lists and objects.
    pub fn get(&self, name: &str) -> Option<Cow<'_, str>> {
        match self.0.get(name)? {
            Value::String(text) => Some(Cow::Borrowed(text)),
            Value::Number(number) => Some(Cow::Owned(number.to_string())),
            Value::Bool(true) => Some(Cow::Borrowed("true")),
            Value::Bool(false) => Some(Cow::Borrowed("false")),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }
}

/// The finding about a token that is refused. Of several tokens, the last in this order counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TokenRefusal {
    /// Anybody can have made it up.
    Unproven,
    /// Its provider has signed it: it has expired, is not valid yet, or is not for here.
    Signed,
    /// Another key than the one that it names has signed it. The provider may have given that name to a new key.
    OtherKey,
    /// The key that it names is missing. The provider may have added it since its key set was fetched.
    UnknownKey,
    /// Likewise, and the fetch that would tell is due, or under way.
    Unjudged,
    /// All keys are missing: no key set of its provider was read so far, or the last one is too old.
    NoKeySet,
}

impl TokenRefusal {
    /// Whether other keys might verify it.
    pub fn may_be_of_new_key(self) -> bool {
        matches!(self, Self::OtherKey | Self::UnknownKey)
    }
}

/// Why a token is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("there is no token")]
    Absent,
    #[error("the token is malformed")]
    Malformed,
    #[error("the token requires an extension that is not supported (crit)")]
    UnknownCritical,
    #[error("no key matches the token's kid and algorithm")]
    NoKey,
    #[error("the key set of the token's provider could not be fetched")]
    NoKeySet,
    #[error("no key of the provider's set has signed the token")]
    UnknownKey,
    #[error("the key of the provider's set that the token names has not signed it")]
    OtherKey,
    #[error("the token's signature is invalid")]
    Signature,
    #[error("the token has expired")]
    Expired,
    #[error("the token is not valid yet")]
    NotYetValid,
    #[error("the token has another issuer")]
    Issuer,
    #[error("the token is for another audience")]
    Audience,
    #[error("the token lacks the claim {0}")]
    MissingClaim(String),
}

impl TokenError {
    /// The finding about the token. Claims are checked once the signature is.
    pub(super) fn refusal(&self) -> TokenRefusal {
        match self {
            Self::NoKeySet => TokenRefusal::NoKeySet,
            Self::UnknownKey => TokenRefusal::UnknownKey,
            Self::OtherKey => TokenRefusal::OtherKey,
            Self::Expired | Self::NotYetValid | Self::Issuer | Self::Audience | Self::MissingClaim(_) => {
                TokenRefusal::Signed
            }
            Self::Absent | Self::Malformed | Self::UnknownCritical | Self::NoKey | Self::Signature => {
                TokenRefusal::Unproven
            }
        }
    }

    pub(super) fn from_kind(kind: &ErrorKind) -> Self {
        match kind {
            ErrorKind::InvalidSignature => Self::Signature,
            ErrorKind::ExpiredSignature => Self::Expired,
            ErrorKind::ImmatureSignature => Self::NotYetValid,
            ErrorKind::InvalidIssuer => Self::Issuer,
            ErrorKind::InvalidAudience => Self::Audience,
            ErrorKind::MissingRequiredClaim(claim) => Self::MissingClaim(claim.clone()),
            _ => Self::Malformed,
        }
    }
}

/// The token in this field. In `authorization` it follows `Bearer`, in any case (RFC 6750, 2.1; RFC 9110, 11.1); other
/// fields contain only the token.
pub(super) fn find_token<'a>(headers: &'a HeaderMap, field: &HeaderName) -> Option<&'a [u8]> {
    let value = single_value(headers, field)?;
    let token = if *field == AUTHORIZATION {
        let (scheme, token) = value.split_at_checked("Bearer ".len())?;
        scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())?
    } else {
        value
    };
    (!token.is_empty() && token.len() <= MAX_TOKEN).then_some(token)
}
