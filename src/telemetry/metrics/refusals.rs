//! Requests that are refused regardless of limits and bans.

use std::fmt;

use http::StatusCode;
use prometheus_client::encoding::DescriptorEncoder;

use super::families::{count, counter};

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Malformed or ambiguous HTTP, or an incomplete body.
    Malformed,
    /// It has no credential, and its route requires one.
    NoCredential,
    /// Its credential is wrong: it may be a guess.
    WrongCredential,
    /// Its API key or token is known, and not valid any more, or not here.
    ExpiredCredential,
    /// The key of its token is still to be fetched.
    UnjudgedCredential,
    /// `deny` or `allow` rejects its address.
    Address,
    /// A CORS preflight of an origin that `cors` does not allow.
    Origin,
    /// Its head or body did not arrive in time.
    Timeout,
    /// Its body is longer than `max_body`.
    BodyTooLarge,
    UriTooLong,
    /// Its `Expect` is not `100-continue`.
    Expectation,
    /// Its head is longer than `client_limits.header_size`, or has more fields than `client_limits.headers`.
    HeadTooLarge,
    /// A CONNECT, or a transfer coding other than chunked.
    NotImplemented,
    /// An unsupported version of HTTP.
    Version,
}

impl Refusal {
    pub(super) const ALL: [(Self, &'static str, StatusCode); 14] = [
        (Self::Malformed, "malformed", StatusCode::BAD_REQUEST),
        (Self::NoCredential, "no_credential", StatusCode::UNAUTHORIZED),
        (Self::WrongCredential, "wrong_credential", StatusCode::UNAUTHORIZED),
        (Self::ExpiredCredential, "expired_credential", StatusCode::UNAUTHORIZED),
        (Self::UnjudgedCredential, "unjudged_credential", StatusCode::UNAUTHORIZED),
        (Self::Address, "address", StatusCode::FORBIDDEN),
        (Self::Origin, "origin", StatusCode::FORBIDDEN),
        (Self::Timeout, "timeout", StatusCode::REQUEST_TIMEOUT),
        (Self::BodyTooLarge, "body_too_large", StatusCode::PAYLOAD_TOO_LARGE),
        (Self::UriTooLong, "uri_too_long", StatusCode::URI_TOO_LONG),
        (Self::Expectation, "expectation", StatusCode::EXPECTATION_FAILED),
        (Self::HeadTooLarge, "head_too_large", StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
        (Self::NotImplemented, "not_implemented", StatusCode::NOT_IMPLEMENTED),
        (Self::Version, "version", StatusCode::HTTP_VERSION_NOT_SUPPORTED),
    ];

    /// The reason for a response of the proxy with this status. `None` for those that have several reasons, and for other
    /// statuses.
    pub fn of(status: StatusCode) -> Option<Self> {
        let mut found = Self::ALL.iter().filter(|(.., of)| *of == status).map(|(refusal, ..)| *refusal);
        found.next().filter(|_| found.next().is_none())
    }

    /// The status of the response.
    pub fn status(self) -> StatusCode {
        Self::ALL[self as usize].2
    }
}

pub(super) fn expose(refused: impl Fn(Refusal) -> u64, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Requests refused for what they are, neither by a policy nor by a ban, by reason";
    let mut family = counter(out, "tollgate_requests_refused", help)?;
    for (refusal, reason, _) in Refusal::ALL {
        count(&mut family, [("reason", reason)], refused(refusal))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_has_its_reason() {
        for (index, (refusal, _, status)) in Refusal::ALL.into_iter().enumerate() {
            let has_several = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&status);
            let reason = Some(refusal).filter(|_| !has_several);
            assert_eq!((refusal as usize, Refusal::of(status)), (index, reason));
            assert_eq!(refusal.status(), status);
        }
        assert_eq!(Refusal::of(StatusCode::TOO_MANY_REQUESTS), None);
    }
}
