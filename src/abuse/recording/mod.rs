//! How workers record denied requests, and how the records reach the registry of limited clients.

mod collector;
pub(super) mod denial;
pub(super) mod masking;
pub(super) mod queue;
mod recorder;
pub(super) mod response;

pub use collector::Collector;
pub use denial::DenialReport;
pub use recorder::Recorder;
pub use response::ObservedResponse;
