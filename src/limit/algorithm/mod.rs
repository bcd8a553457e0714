//! The algorithms: pure state × now × cost → verdict. No I/O, no clock; times are integer
//! microseconds, windows half-open (an entry exactly as old as the window is out).
//!
//! Each keeps to the same rules:
//! - `read` changes nothing, it does not even prune. `write` follows only a read that admitted.
//! - Time never runs backward: state up to a window ahead of now counts as of now. State further ahead is void, and the
//!   next write discards it, so that a clock that jumped ahead and back can't freeze a limit.
//! - State counts used units, never remaining ones: a raised or lowered limit takes effect at once, and no count is
//!   lost.
//! - `refund` undoes one write, if it still counts, and nothing else. `count_denied` counts a denied request, up to the
//!   limit: the newest units are kept.

pub mod calendar_window;
pub mod concurrency;
mod detail;
pub mod distinct;
pub mod fixed_window;
pub mod gcra;
mod kind;
mod level;
mod members;
pub mod metadata_list;
pub mod single_counter;
pub mod sliding_counter;
pub mod sliding_log;
pub mod sliding_window;
mod state;
mod verdict;
mod window;

pub use calendar_window::WindowBounds;
pub use detail::{Detail, Member};
pub use kind::{AlgorithmDescription, DetailKind, Kind, LimitRule};
pub use level::Level;

pub use state::LimitState;
pub use verdict::{Tier, TierStatus, Verdict};
