//! Why a token does not count.

use jsonwebtoken::errors::ErrorKind;

/// What is wrong with a token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Doubt {
    #[error("there is no token")]
    Absent,
    #[error("the token is malformed")]
    Malformed,
    #[error("the token demands something that is not known here (crit)")]
    Critical,
    #[error("no key is of the token's kid and algorithm")]
    NoKey,
    #[error("the token's signature is wrong")]
    Signature,
    #[error("the token has expired")]
    Expired,
    #[error("the token's time has not come")]
    Early,
    #[error("the token is of another issuer")]
    Issuer,
    #[error("the token is meant for another audience")]
    Audience,
    #[error("the token lacks the claim {0}")]
    Lacks(String),
}

impl Doubt {
    pub(super) fn of(kind: &ErrorKind) -> Self {
        match kind {
            ErrorKind::InvalidSignature => Self::Signature,
            ErrorKind::ExpiredSignature => Self::Expired,
            ErrorKind::ImmatureSignature => Self::Early,
            ErrorKind::InvalidIssuer => Self::Issuer,
            ErrorKind::InvalidAudience => Self::Audience,
            ErrorKind::MissingRequiredClaim(claim) => Self::Lacks(claim.clone()),
            _ => Self::Malformed,
        }
    }
}
