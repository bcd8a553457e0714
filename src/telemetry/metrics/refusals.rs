//! Requests that are refused regardless of limits and bans.

use std::fmt;

use http::StatusCode;
use prometheus_client::encoding::DescriptorEncoder;
use tollgate_derive::Label;

use super::families::counters_by_reason;

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Label)]
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
    /// Its body has a coding or a content type with which it can't be read before the decision.
    MediaType,
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
    /// The reason for a response of the proxy with this status. `None` for those that have several reasons, and for other
    /// statuses.
    pub fn of(status: StatusCode) -> Option<Self> {
        let mut found = Self::ALL.into_iter().filter(|refusal| refusal.status() == status);
        found.next().filter(|_| found.next().is_none())
    }

    /// The status of the response.
    pub fn status(self) -> StatusCode {
        match self {
            Self::Malformed => StatusCode::BAD_REQUEST,
            Self::NoCredential
            | Self::WrongCredential
            | Self::ExpiredCredential
            | Self::UnjudgedCredential => StatusCode::UNAUTHORIZED,
            Self::Address | Self::Origin => StatusCode::FORBIDDEN,
            Self::Timeout => StatusCode::REQUEST_TIMEOUT,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UriTooLong => StatusCode::URI_TOO_LONG,
            Self::MediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Expectation => StatusCode::EXPECTATION_FAILED,
            Self::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::NotImplemented => StatusCode::NOT_IMPLEMENTED,
            Self::Version => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
        }
    }
}

pub(super) fn expose(refused: impl Fn(Refusal) -> u64, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Requests refused for what they are, neither by a policy nor by a ban, by reason";
    let counts = Refusal::ALL.map(|refusal| (refusal.name(), refused(refusal)));
    counters_by_reason(out, "tollgate_requests_refused", help, counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_has_its_reason() {
        for (index, refusal) in Refusal::ALL.into_iter().enumerate() {
            let status = refusal.status();
            let has_several = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&status);
            let reason = Some(refusal).filter(|_| !has_several);
            assert_eq!((refusal as usize, Refusal::of(status)), (index, reason));
        }
        assert_eq!(Refusal::of(StatusCode::TOO_MANY_REQUESTS), None);
    }
}
