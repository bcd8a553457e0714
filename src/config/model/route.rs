//! Which requests go to which upstream.

use http::{HeaderName, HeaderValue, Method};
use serde::Serialize;

use super::{Timeouts, serialize};

/// Which requests go to which upstream, under which policies.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Route {
    pub name: String,
    /// Empty: all.
    pub hosts: Vec<HostPattern>,
    pub path: PathPattern,
    /// Empty: all.
    #[serde(serialize_with = "serialize::displayed_each")]
    pub methods: Vec<Method>,
    /// A request must have each field with exactly this value.
    #[serde(serialize_with = "serialize::headers")]
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Index into [`Config::upstreams`](super::Config::upstreams).
    pub upstream: usize,
    /// Indexes into [`Config::policies`](super::Config::policies): the upstream's first, then the route's own, each once.
    pub policies: Vec<usize>,
    /// Those of the upstream, unless the route has its own.
    pub timeouts: Timeouts,
}

/// A host in lower case, without port and trailing dot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostPattern {
    Exact(String),
    /// `*.example.org` as `.example.org`: any host that ends with it, and is longer.
    Suffix(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathPattern {
    Exact(String),
    /// `/prefix/*` as `/prefix/`: any path that begins with it. `/*` is `/`: any path.
    Prefix(String),
    /// `/users/{id}/posts`: the same number of segments, each equal or a parameter.
    Template(Vec<Segment>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    Literal(String),
    /// `{id}`: any segment that is not empty.
    Parameter(String),
}
