//! How an upstream's answer says that a request went.

use http::StatusCode;

/// The status of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerStatus {
    /// Of HTTP.
    pub http: StatusCode,
    /// Of gRPC.
    pub grpc: GrpcOutcome,
}

/// What is known of a call's `grpc-status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrpcOutcome {
    /// It may come in the trailers.
    Pending,
    /// The answer has it, or has none.
    Known(Option<u32>),
}
