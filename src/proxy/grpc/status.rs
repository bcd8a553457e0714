//! The status of a call, and the details of `grpc-status-details-bin`.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use http::StatusCode;
use prost::Message;

/// The codes of the proxy's own replies (<https://grpc.io/docs/guides/status-codes/>).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(in crate::proxy) enum GrpcStatus {
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    Unauthenticated = 16,
}

impl GrpcStatus {
    /// The status that gRPC clients derive from an HTTP status
    /// (<https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md>). Only 429, which is `UNAVAILABLE`
    /// there, becomes the status that gRPC services send.
    pub(in crate::proxy) fn from_http(status: StatusCode) -> Self {
        match status {
            StatusCode::BAD_REQUEST => Self::Internal,
            StatusCode::UNAUTHORIZED => Self::Unauthenticated,
            StatusCode::FORBIDDEN => Self::PermissionDenied,
            StatusCode::NOT_FOUND => Self::Unimplemented,
            StatusCode::TOO_MANY_REQUESTS => Self::ResourceExhausted,
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
                Self::Unavailable
            }
            _ => Self::Unknown,
        }
    }
}

// From googleapis: google/rpc/status.proto and google/rpc/error_details.proto, the parts that are sent.

/// `google.rpc.Status`
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// `google.protobuf.Any`
#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `google.rpc.RetryInfo`
#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<ProtoDuration>,
}

/// `google.protobuf.Duration`
#[derive(Clone, PartialEq, Message)]
struct ProtoDuration {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

/// The value of `grpc-status-details-bin`, with the delay until the call may be repeated.
pub(super) fn details(status: GrpcStatus, message: &str, retry_after: Duration) -> String {
    let retry_delay = ProtoDuration {
        seconds: i64::try_from(retry_after.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(retry_after.subsec_nanos()).unwrap_or(0),
    };
    let retry_info = RetryInfo { retry_delay: Some(retry_delay) };
    let details = RpcStatus {
        code: status as i32,
        message: message.to_owned(),
        details: vec![Any {
            type_url: "type.googleapis.com/google.rpc.RetryInfo".to_owned(),
            value: retry_info.encode_to_vec(),
        }],
    };
    STANDARD_NO_PAD.encode(details.encode_to_vec())
}
