//! The credential that a route requires: a valid API key, or a verified user.

use http::{HeaderValue, StatusCode, header::WWW_AUTHENTICATE};

use super::{reply::Reply, request_context::RequestContext, request_facts::RequestKey, rules::Rules};
use crate::{
    api_keys::KeyFault,
    config::model::{KeySource, Require, RouteAction},
    identity::{RequestKeyFault, TokenRefusal},
    telemetry::metrics::Refusal,
};

/// Why a request has no credential that its route accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialFault {
    /// It has none.
    Missing(Require),
    /// Its API key is not valid.
    Key(RequestKeyFault),
    /// It has a token that names no user. `None`: it is valid.
    Token(Option<TokenRefusal>),
    /// The credentials can't be verified yet.
    NotLoaded,
    /// Its API key is for other routes only.
    OtherRoute,
}

impl CredentialFault {
    /// The fault of the key of a request whose route requires no credential. `None`: the key is valid, or there is none.
    pub(super) fn of_optional_key(key: &RequestKey) -> Option<Self> {
        key.as_ref().and_then(|key| key.as_ref().err()).map(|&fault| match fault {
            RequestKeyFault::NotLoaded => Self::NotLoaded,
            fault => Self::Key(fault),
        })
    }

    /// The fault of a request, if its route does not accept it.
    pub(super) fn of(context: &RequestContext<'_, '_>) -> Option<Self> {
        let (require, identity) = (context.route.require, &context.found.identity);
        let has_user = identity.is_verified && identity.user.is_some();
        let is_usage = matches!(context.route.action, RouteAction::Usage);
        let key = match &identity.key {
            None => None,
            // Such a route is for everybody.
            Some(_) if require == Some(Require::None) => return None,
            Some(Ok(key)) if !key.is_valid_for(&context.route.name) && !is_usage => {
                return Some(Self::OtherRoute);
            }
            Some(Ok(key)) => Some(key),
            Some(Err(RequestKeyFault::NotLoaded)) => return Some(Self::NotLoaded),
            // It may be meant for the upstream.
            Some(Err(RequestKeyFault::OtherToken)) if matches!(require, None | Some(Require::User)) => None,
            Some(Err(RequestKeyFault::OtherToken)) if require == Some(Require::Any) && has_user => None,
            Some(Err(fault)) => return Some(Self::Key(*fault)),
        };
        let is_met = match require {
            None | Some(Require::None) => true,
            Some(Require::ApiKey) => key.is_some(),
            Some(Require::User) => has_user,
            Some(Require::Any) => key.is_some() || has_user,
        };
        if is_met {
            return None;
        }
        // The API key is no token.
        let is_token_read = matches!(require, Some(Require::User | Require::Any)) && key.is_none();
        if is_token_read && identity.refused_token == Some(TokenRefusal::NoKeySet) {
            return Some(Self::NotLoaded);
        }
        match is_token_read && context.rules.verifier.has_token(&context.request().headers) {
            true => Some(Self::Token(identity.refused_token)),
            false => require.map(Self::Missing),
        }
    }

    /// What the fault is for metrics. `None`: the response is no 401.
    pub(super) fn refusal(self) -> Option<Refusal> {
        Some(match self {
            Self::Missing(_) => Refusal::NoCredential,
            Self::Key(
                RequestKeyFault::Invalid(KeyFault::Expired | KeyFault::Revoked)
                | RequestKeyFault::OtherInvalid(_),
            )
            | Self::Token(None | Some(TokenRefusal::Signed)) => Refusal::ExpiredCredential,
            Self::Token(Some(TokenRefusal::Unjudged)) => Refusal::UnjudgedCredential,
            Self::Key(_) | Self::Token(_) => Refusal::WrongCredential,
            Self::NotLoaded | Self::OtherRoute => return None,
        })
    }

    /// Whether the request may have guessed a credential. Guesses are counted. A known key, and a token that its provider
    /// has signed, are none; nor is a token that nobody can judge yet.
    pub(super) fn is_guess(self) -> bool {
        self.refusal() == Some(Refusal::WrongCredential)
    }

    /// The reply. All keys that are not valid get the same.
    pub(super) fn reply(self, rules: &Rules) -> Reply {
        let (status, detail, error) = match self {
            Self::Missing(Require::User) => (StatusCode::UNAUTHORIZED, "A verified user is required.", None),
            Self::Missing(Require::Any) => {
                (StatusCode::UNAUTHORIZED, "An API key or a verified user is required.", None)
            }
            Self::Missing(_) => (StatusCode::UNAUTHORIZED, "An API key is required.", None),
            Self::Key(_) => (StatusCode::UNAUTHORIZED, "The API key is not valid.", Some("invalid_token")),
            Self::Token(_) => (StatusCode::UNAUTHORIZED, "The token is not valid.", Some("invalid_token")),
            Self::OtherRoute => {
                (StatusCode::FORBIDDEN, "The API key is not valid for this.", Some("insufficient_scope"))
            }
            Self::NotLoaded => return Reply::credentials_unknown(),
        };
        let mut reply = Reply::problem(status, detail);
        reply.headers.insert(WWW_AUTHENTICATE, challenge(rules, self, error));
        reply
    }

    /// The fault in words, for operators.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Missing(Require::User) => "the route requires a verified user, and the request has none",
            Self::Missing(Require::Any) => {
                "the route requires an API key or a verified user, and the request has neither"
            }
            Self::Missing(_) => "the route requires an API key, and the request has none",
            Self::Key(RequestKeyFault::Several) => "the request has several API keys that differ",
            Self::Key(RequestKeyFault::OtherToken) => "the bearer token is no API key",
            Self::Key(RequestKeyFault::Malformed) => {
                "the API key is not one of 16 to 512 visible ASCII characters"
            }
            Self::Key(RequestKeyFault::Invalid(fault) | RequestKeyFault::OtherInvalid(fault)) => {
                match fault {
                    KeyFault::Unknown => "the API key is unknown",
                    KeyFault::Expired => "the API key has expired, or was rotated",
                    KeyFault::Revoked => "the API key is revoked",
                }
            }
            Self::Token(Some(TokenRefusal::Signed)) => {
                "the route requires a verified user, and the token has expired, or is not for here"
            }
            Self::Token(Some(TokenRefusal::Unjudged)) => {
                "the route requires a verified user, and the key of the token is still to be fetched"
            }
            Self::Token(_) => "the route requires a verified user, and the token is not valid",
            Self::Key(RequestKeyFault::NotLoaded) | Self::NotLoaded => {
                "the API keys, or the keys of tokens, were not read yet"
            }
            Self::OtherRoute => "the API key is for other routes only",
        }
    }
}

/// `WWW-Authenticate` of a reply (RFC 9110, 11.6.1). A request without a credential is told no error (RFC 6750, 3.1).
fn challenge(rules: &Rules, fault: CredentialFault, error: Option<&'static str>) -> HeaderValue {
    let is_of_token = matches!(fault, CredentialFault::Token(_) | CredentialFault::Missing(Require::User));
    let takes_bearer = is_of_token
        || rules.keys.as_ref().is_none_or(|keys| keys.settings().from.contains(&KeySource::Bearer));
    let scheme = if takes_bearer { "Bearer" } else { "ApiKey" };
    let error = error.map_or(String::new(), |error| format!(r#", error="{error}""#));
    HeaderValue::try_from(format!(r#"{scheme} realm="api"{error}"#))
        .unwrap_or_else(|_| HeaderValue::from_static("Bearer"))
}
