//! Explains the verdict on a request by the same steps as for real requests, consuming nothing.

mod body;
mod changes;
mod checks;
mod endpoint;
mod explainer;
mod explanation;
mod host;
mod identity;
mod listeners;
mod route;

pub use explainer::explain;
pub use explanation::{
    AssumedHost, AssumedListener, CheckVerdict, ExplainedBodyLimit, ExplainedCheck, ExplainedEndpoint,
    ExplainedListener, ExplainedReply, ExplainedRequest, ExplainedRoute, ExplainedVerdict, Explanation,
    HeaderChange, PassedOver,
};
pub use host::assume_host;
