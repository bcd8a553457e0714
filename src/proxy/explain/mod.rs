//! Explains the verdict on a request by the same rules as for real requests, consuming nothing.

mod body;
mod changes;
mod checks;
mod endpoint;
pub(super) mod host;
mod identity;
mod listeners;
mod request;

pub use body::ExplainedBodyLimit;
pub use checks::{CheckVerdict, ExplainedCheck};
pub use endpoint::ExplainedEndpoint;
pub use host::AssumedHost;
pub use listeners::ExplainedListener;
pub use request::{
    ExplainedReply, ExplainedRequest, ExplainedRoute, ExplainedVerdict, Explanation, HeaderChange, explain,
};
