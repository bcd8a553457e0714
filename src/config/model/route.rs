//! Which requests go to which upstream.

use http::{HeaderName, HeaderValue, Method};
use serde::Serialize;

use super::{Timeouts, serialize};

/// Where requests of a kind go, and what holds them back.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Route {
    pub name: String,
    /// Empty: any.
    pub hosts: Vec<HostPattern>,
    pub path: PathPattern,
    /// Empty: any.
    #[serde(serialize_with = "serialize::displayed_each")]
    pub methods: Vec<Method>,
    /// All must be there with exactly this value.
    #[serde(serialize_with = "serialize::headers")]
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Index into [`Config::upstreams`].
    pub upstream: usize,
    /// Indexes into [`Config::policies`]: the upstream's first, then the route's own, each once.
    pub policies: Vec<usize>,
    /// The upstream's, with what the route itself says.
    pub timeouts: Timeouts,
}

/// A host in lower case, without port and trailing dot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostPattern {
    Exact(String),
    /// `*.example.org` as `.example.org`: any host that ends so and has more before it.
    Suffix(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathPattern {
    Exact(String),
    /// `/prefix/*` as `/prefix/`: whatever begins so. `/*` is `/`: everything.
    Prefix(String),
    /// `/users/{id}/posts`: as many segments, each equal or a parameter.
    Template(Vec<Segment>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    Literal(String),
    /// `{id}`: any one segment that is not empty.
    Parameter(String),
}
