//! How close clients come to their limits: a bounded sample of the keys of each policy and route, with the most that
//! each has used in a window during the last 24 hours. It shows the effect that a change of a limit would have.
//!
//! | file | content |
//! | --- | --- |
//! | `recorder.rs` | a worker's end: a hash and a comparison for most requests, and a tally for keys of the sample |
//! | `collector.rs` | the thread that merges the tallies |
//! | `plan.rs` | which samples a configuration needs: one for each route, policy and override |
//! | `sample.rs` | a uniform sample of the keys of the last 24 hours, by their hashes |
//! | `demand.rs` | the units that one key has used and asked for in the windows of its limits |
//! | `hourly_max.rs` | the greatest number of the last 24 hours |
//! | `key_name.rs` | keys as operators see them |
//! | `distribution.rs` | quantiles, shares, and the effect of another limit |
//!
//! The peak of a key is:
//!
//! - the use that a decision of the store tells, after the request: it is right for all instances together;
//! - and the units that were denied in the same window on this instance, so that a peak may be above the limit.

mod collector;
mod demand;
mod distribution;
mod hourly_max;
mod key_name;
mod plan;
mod recorder;
mod sample;

pub use collector::PeakCollector;
pub use demand::LimitPeaks;
pub use distribution::{Distribution, SampledKey};
pub use plan::{PeakPlan, SampleName};
pub use recorder::{DecidedCheck, PeakRecorder};
