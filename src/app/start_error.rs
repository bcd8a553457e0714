//! Why Tollgate did not start.

use std::io;

use super::keys_file::KeysFileError;
use crate::{
    api_keys::data_file::DataFileError,
    identity::{UnusableAddresses, UnusableKeys},
    listener::{BindError, TlsError},
    store::redis::ServerError,
    telemetry::{access_log::AccessLogError, traces::TracingError},
    upstream::{EndpointsFileError, UpstreamTlsError},
};

/// Why Tollgate did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A socket can't be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The access log can't be written.
    #[error(transparent)]
    AccessLog(#[from] AccessLogError),
    /// A file for the connection to Redis can't be read.
    #[error(transparent)]
    Redis(#[from] ServerError),
    /// Traces can't be sent.
    #[error(transparent)]
    Traces(#[from] TracingError),
    /// A certificate can't be served.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// TLS to an upstream can't be set up.
    #[error(transparent)]
    UpstreamTls(#[from] UpstreamTlsError),
    /// An upstream's endpoints file can't be used.
    #[error(transparent)]
    Endpoints(#[from] EndpointsFileError),
    /// The keys of a token can't be read.
    #[error(transparent)]
    Keys(#[from] UnusableKeys),
    /// The file of API keys can't be used.
    #[error(transparent)]
    ApiKeys(#[from] KeysFileError),
    /// The data file of API keys can't be used.
    #[error(transparent)]
    KeyData(#[from] DataFileError),
    /// A file of addresses can't be read.
    #[error(transparent)]
    Addresses(#[from] UnusableAddresses),
    /// A name can't be sent in a field.
    #[error("the name of a policy or reply_headers.via is not a valid header value: {0}")]
    Name(#[from] http::header::InvalidHeaderValue),
    /// A thread or a runtime can't be started.
    #[error("can't start a thread: {0}")]
    Thread(#[from] io::Error),
}
