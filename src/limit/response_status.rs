//! The outcome of a request, by the upstream's response.

use http::StatusCode;

/// The status of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseStatus {
    /// The HTTP status.
    pub http: StatusCode,
    /// The gRPC status.
    pub grpc: GrpcOutcome,
}

/// The known outcome of a gRPC call, by `grpc-status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrpcOutcome {
    /// It may follow in the trailers.
    Pending,
    /// The response has this `grpc-status`, or none.
    Known(Option<u32>),
}
