//! Messages of Envoy's services, as far as they are read or sent
//! (<https://github.com/envoyproxy/envoy/tree/main/api/envoy>).

use std::collections::HashMap;

use prost::{Message, Oneof};

/// `envoy.service.auth.v3.CheckRequest`
#[derive(Clone, PartialEq, Message)]
pub(super) struct CheckRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) attributes: Option<AttributeContext>,
}

/// `envoy.service.auth.v3.AttributeContext`
#[derive(Clone, PartialEq, Message)]
pub(super) struct AttributeContext {
    #[prost(message, optional, tag = "1")]
    pub(super) source: Option<Peer>,
    #[prost(message, optional, tag = "4")]
    pub(super) request: Option<AttributeRequest>,
}

/// `envoy.service.auth.v3.AttributeContext.Peer`
#[derive(Clone, PartialEq, Message)]
pub(super) struct Peer {
    #[prost(message, optional, tag = "1")]
    pub(super) address: Option<Address>,
    /// In PEM, percent-encoded.
    #[prost(string, tag = "5")]
    pub(super) certificate: String,
}

/// `envoy.config.core.v3.Address`
#[derive(Clone, PartialEq, Message)]
pub(super) struct Address {
    #[prost(message, optional, tag = "1")]
    pub(super) socket_address: Option<SocketAddress>,
}

/// `envoy.config.core.v3.SocketAddress`
#[derive(Clone, PartialEq, Message)]
pub(super) struct SocketAddress {
    #[prost(string, tag = "2")]
    pub(super) address: String,
}

/// `envoy.service.auth.v3.AttributeContext.Request`
#[derive(Clone, PartialEq, Message)]
pub(super) struct AttributeRequest {
    #[prost(message, optional, tag = "2")]
    pub(super) http: Option<HttpRequest>,
}

/// `envoy.service.auth.v3.AttributeContext.HttpRequest`
#[derive(Clone, PartialEq, Message)]
pub(super) struct HttpRequest {
    // These are strings of UTF-8 by the definition. What a client has sent must not make the message unreadable.
    #[prost(bytes = "vec", tag = "2")]
    pub(super) method: Vec<u8>,
    /// Several lines of a field are joined by commas.
    #[prost(map = "string, bytes", tag = "3")]
    pub(super) headers: HashMap<String, Vec<u8>>,
    /// With its query.
    #[prost(bytes = "vec", tag = "4")]
    pub(super) path: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    pub(super) host: Vec<u8>,
    /// In place of `headers`, with `encode_raw_headers`.
    #[prost(message, optional, tag = "13")]
    pub(super) header_map: Option<Headers>,
}

/// `envoy.config.core.v3.HeaderMap`
#[derive(Clone, PartialEq, Message)]
pub(super) struct Headers {
    #[prost(message, repeated, tag = "1")]
    pub(super) headers: Vec<Header>,
}

/// `envoy.config.core.v3.HeaderValue`
#[derive(Clone, PartialEq, Message)]
pub(super) struct Header {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
    #[prost(bytes = "vec", tag = "3")]
    pub(super) raw_value: Vec<u8>,
}

/// `envoy.config.core.v3.HeaderValueOption`
#[derive(Clone, PartialEq, Message)]
pub(super) struct HeaderOption {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(int32, tag = "3")]
    pub(super) append_action: i32,
}

/// `google.rpc.Status`
#[derive(Clone, PartialEq, Message)]
pub(super) struct RpcStatus {
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
}

/// `envoy.service.auth.v3.CheckResponse`
#[derive(Clone, PartialEq, Message)]
pub(super) struct CheckResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<RpcStatus>,
    #[prost(oneof = "HttpResponse", tags = "2, 3")]
    pub(super) http_response: Option<HttpResponse>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum HttpResponse {
    #[prost(message, tag = "2")]
    Denied(DeniedResponse),
    #[prost(message, tag = "3")]
    Ok(OkResponse),
}

/// `envoy.service.auth.v3.DeniedHttpResponse`
#[derive(Clone, PartialEq, Message)]
pub(super) struct DeniedResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<HttpStatus>,
    #[prost(message, repeated, tag = "2")]
    pub(super) headers: Vec<HeaderOption>,
    #[prost(string, tag = "3")]
    pub(super) body: String,
}

/// `envoy.type.v3.HttpStatus`
#[derive(Clone, PartialEq, Message)]
pub(super) struct HttpStatus {
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
}

/// `envoy.service.auth.v3.OkHttpResponse`
#[derive(Clone, PartialEq, Message)]
pub(super) struct OkResponse {
    /// For the upstream.
    #[prost(message, repeated, tag = "2")]
    pub(super) headers: Vec<HeaderOption>,
    #[prost(string, repeated, tag = "5")]
    pub(super) headers_to_remove: Vec<String>,
    /// For the client.
    #[prost(message, repeated, tag = "6")]
    pub(super) response_headers_to_add: Vec<HeaderOption>,
}

/// `envoy.service.ratelimit.v3.RateLimitRequest`
#[derive(Clone, PartialEq, Message)]
pub(super) struct RateLimitRequest {
    #[prost(string, tag = "1")]
    pub(super) domain: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) descriptors: Vec<RateLimitDescriptor>,
    #[prost(uint32, tag = "3")]
    pub(super) hits_addend: u32,
}

/// `envoy.extensions.common.ratelimit.v3.RateLimitDescriptor`
#[derive(Clone, PartialEq, Message)]
pub(super) struct RateLimitDescriptor {
    #[prost(message, repeated, tag = "1")]
    pub(super) entries: Vec<DescriptorEntry>,
    /// `RateLimitOverride`, of which it counts only that it is there.
    #[prost(message, optional, tag = "2")]
    pub(super) limit: Option<RateLimitOverride>,
    /// `google.protobuf.UInt64Value`
    #[prost(message, optional, tag = "3")]
    pub(super) hits_addend: Option<u64>,
    #[prost(bool, tag = "4")]
    pub(super) is_negative_hits: bool,
}

/// `envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.RateLimitOverride`
#[derive(Clone, PartialEq, Message)]
pub(super) struct RateLimitOverride {}

/// `envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.Entry`
#[derive(Clone, PartialEq, Message)]
pub(super) struct DescriptorEntry {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    /// A string of UTF-8 by the definition, but clients may send other bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
}

/// `envoy.service.ratelimit.v3.RateLimitResponse`
#[derive(Clone, PartialEq, Message)]
pub(super) struct RateLimitResponse {
    #[prost(enumeration = "Code", tag = "1")]
    pub(super) overall_code: i32,
    #[prost(message, repeated, tag = "2")]
    pub(super) statuses: Vec<DescriptorStatus>,
    #[prost(message, repeated, tag = "3")]
    pub(super) response_headers_to_add: Vec<Header>,
    #[prost(bytes = "bytes", tag = "5")]
    pub(super) raw_body: bytes::Bytes,
}

/// `envoy.service.ratelimit.v3.RateLimitResponse.Code`
#[derive(Debug, Clone, Copy, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(super) enum Code {
    Unknown = 0,
    Ok = 1,
    OverLimit = 2,
}

/// `envoy.service.ratelimit.v3.RateLimitResponse.DescriptorStatus`
#[derive(Clone, PartialEq, Message)]
pub(super) struct DescriptorStatus {
    #[prost(enumeration = "Code", tag = "1")]
    pub(super) code: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) current_limit: Option<CurrentLimit>,
    #[prost(uint32, tag = "3")]
    pub(super) limit_remaining: u32,
    #[prost(message, optional, tag = "4")]
    pub(super) duration_until_reset: Option<ProtoDuration>,
}

/// `envoy.service.ratelimit.v3.RateLimitResponse.RateLimit`
#[derive(Clone, PartialEq, Message)]
pub(super) struct CurrentLimit {
    #[prost(uint32, tag = "1")]
    pub(super) requests_per_unit: u32,
    /// 0: unknown; 1 to 5: second, minute, hour, day, month.
    #[prost(int32, tag = "2")]
    pub(super) unit: i32,
    #[prost(string, tag = "3")]
    pub(super) name: String,
}

/// `grpc.health.v1.HealthCheckResponse`
#[derive(Clone, PartialEq, Message)]
pub(super) struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    pub(super) status: i32,
}

/// `google.protobuf.Duration`
#[derive(Clone, PartialEq, Message)]
pub(super) struct ProtoDuration {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(super) nanos: i32,
}
