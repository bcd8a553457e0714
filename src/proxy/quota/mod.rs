//! What clients are told of the limits: the quota fields of every answer, and the answers to denied requests.

mod headers;
mod replies;
mod texts;

pub(super) use replies::banned;
pub(super) use texts::QuotaTexts;

const MICROS: i64 = 1_000_000;

/// Whole seconds, rounded up, so that a client that waits as long does not come too early.
fn seconds(micros: i64) -> i64 {
    micros.max(0).saturating_add(MICROS - 1) / MICROS
}
