//! What clients are told of the limits that hold for them: the fields of every answer, and the answer to a denial.

mod ban;
mod denial;
mod fields;
mod quotas;
mod said;
mod words;

pub(super) use ban::banned;
pub use quotas::Quotas;
pub(super) use said::Said;

const MICROS: i64 = 1_000_000;

/// Whole seconds, rounded up: a client that waits so long does not come too early.
fn seconds(micros: i64) -> i64 {
    micros.max(0).saturating_add(MICROS - 1) / MICROS
}
