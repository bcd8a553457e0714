//! How workers record denied requests, and how the records reach the registry of limited clients.

pub(super) mod answer;
mod collector;
pub(super) mod denial;
pub(super) mod masking;
pub(super) mod queue;
mod recorder;

pub use answer::Answer;
pub use collector::Collector;
pub use denial::Denial;
pub use recorder::Recorder;
