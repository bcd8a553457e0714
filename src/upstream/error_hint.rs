//! Errors of hosts for the log, with a hint at the likely cause.

use std::error::Error;

use super::{
    connect::ConnectError, hosts::UpstreamHost, http1::ResponseFault, incoming::with_cause,
    shared::SharedUpstream,
};
use crate::{
    config::model,
    tls::{ServerSettings, find_tls_error, handshake_hint},
};

impl SharedUpstream {
    /// The text of a host's error, with a hint at the setting that causes it if that is known.
    pub fn describe(&self, host: &UpstreamHost, error: &(dyn Error + 'static)) -> String {
        let http1: Option<&ResponseFault> = error.downcast_ref();
        if !host.endpoint.is_https() {
            let is_nonsense = http1.is_some_and(ResponseFault::is_nonsense);
            let also = if is_nonsense { " (if the port uses TLS, write https://)" } else { "" };
            return with_cause(error) + also;
        }
        let section = format!("upstreams.{}.tls", self.config.name);
        let named = match self.config.tls.as_ref().and_then(|tls| tls.server_name.as_ref()) {
            Some(name) => format!("{section}.server_name ({name})"),
            None => "the host in its URL".to_owned(),
        };
        let without_protocol = match self.config.protocol {
            model::Protocol::H1 => "the server does not offer HTTP/1.1 in its TLS handshake (ALPN)",
            model::Protocol::H2 => {
                "the server does not speak HTTP/2, by its TLS handshake (ALPN): set `protocol: h1`"
            }
            model::Protocol::Auto => {
                "the server offers neither HTTP/2 nor HTTP/1.1 in its TLS handshake (ALPN)"
            }
        };
        let settings =
            ServerSettings { tls: &section, host: &named, without_tls: "write http://", without_protocol };
        let hint = find_tls_error(error).and_then(|error| handshake_hint(error, settings));
        let error = with_cause(error);
        match hint {
            Some(hint) => format!("{hint} ({error})"),
            None => error,
        }
    }

    /// Why no connection to a host could be opened: the end of a sentence that begins with the host.
    pub fn describe_connect_error(&self, host: &UpstreamHost, error: &ConnectError) -> String {
        match error {
            ConnectError::Handshake(error) => self.describe(host, &**error),
            ConnectError::HandshakeTimeout => {
                format!("{error}: if the port does not use TLS, write http://")
            }
            ConnectError::Full(_)
            | ConnectError::NoHost
            | ConnectError::Exhausted(_)
            | ConnectError::Unreachable(_)
            | ConnectError::Timeout => error.to_string(),
        }
    }
}
