//! What would become of a request, and why: by the rules that hold for real ones, consuming nothing.

mod checks;
mod identity;
mod request;

pub use checks::{CheckVerdict, ExplainedCheck};
pub use request::{ExplainedRequest, ExplainedRoute, ExplainedVerdict, Explanation, explain};
