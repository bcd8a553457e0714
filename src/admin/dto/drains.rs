//! Endpoints that operators drain.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{bans::is_shared, schema};

/// An endpoint that takes no new requests, because an operator has drained it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Drain {
    #[schema(value_type = schema::UpstreamName)]
    pub upstream: String,
    #[schema(value_type = schema::EndpointUrl)]
    pub endpoint: String,
    #[schema(value_type = schema::Time)]
    pub since: String,
    pub reason: String,
    /// The operator.
    #[schema(example = "operator at 127.0.0.1")]
    pub by: String,
    /// `false`: this instance has no such endpoint, so the drain applies to other instances, or once it is configured.
    pub configured: bool,
}

/// `POST /v1/drains`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Drained {
    #[serde(flatten)]
    pub drain: Drain,
    /// `false`: it was not sent to the other instances yet, so it is drained at this one alone. Sending is retried.
    #[serde(default = "is_shared")]
    pub shared: bool,
}

/// `GET /v1/drains`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Drains {
    /// By upstream and endpoint.
    pub drains: Vec<Drain>,
}

/// The body of `POST /v1/drains`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewDrain {
    #[schema(value_type = schema::UpstreamName)]
    pub upstream: String,
    /// The URL of the endpoint, as in `endpoints`.
    #[schema(value_type = schema::EndpointUrl)]
    pub endpoint: String,
    #[serde(default)]
    #[schema(value_type = schema::Reason)]
    pub reason: String,
    /// Drains even the last endpoint of the upstream that takes requests.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// `DELETE /v1/drains?upstream=&endpoint=`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Undrained {
    #[schema(value_type = schema::UpstreamName)]
    pub upstream: String,
    #[schema(value_type = schema::EndpointUrl)]
    pub endpoint: String,
    /// `true`: it still takes no requests, because the configuration has `drain: true`.
    pub drained_by_configuration: bool,
    /// `false`: it was not sent to the other instances yet, so it is undrained at this one alone. Sending is retried.
    #[serde(default = "is_shared")]
    pub shared: bool,
}
