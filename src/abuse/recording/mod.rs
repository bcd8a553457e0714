//! What workers note of denied requests, and how it reaches the registry of limited clients.

mod collector;
pub(super) mod denial;
pub(super) mod prepare;
mod recorder;

pub use collector::Collector;
pub use denial::Denial;
pub use recorder::Recorder;
