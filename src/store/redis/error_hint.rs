//! Errors of Redis as text, with a hint at the setting that causes them.

use std::{error::Error, io, sync::Arc};

use bb8_redis::redis::{ErrorKind, RedisError};

use crate::tls::{ServerSettings, handshake_hint};

const SETTINGS: ServerSettings<'_> = ServerSettings {
    tls: "store.redis.tls",
    host: "the host in store.redis",
    without_tls: "write redis://, or use its tls-port",
    without_protocol: "the server offers only other protocols in its TLS handshake (ALPN)",
};

/// The error on one line, after a hint if a setting can cause it.
pub(crate) fn describe(error: &RedisError) -> String {
    let text = one_line(error);
    match hint(error) {
        Some(hint) => format!("{hint} ({text})"),
        None => text,
    }
}

/// The peer may not be Redis and may send anything: its text is reduced to one line of the log.
fn one_line(error: &RedisError) -> String {
    let text = error.to_string();
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ")
}

/// The same for the first command on a connection without TLS: a port that wants TLS closes it there.
pub(super) fn describe_first(error: &RedisError) -> String {
    if is_closed(error) {
        return format!(
            "the server closed the connection after the first command: if the port uses TLS, write rediss:// \
                ({})",
            one_line(error)
        );
    }
    describe(error)
}

fn hint(error: &RedisError) -> Option<String> {
    if let Some(tls) = find_tls_error(error) {
        return handshake_hint(tls, SETTINGS);
    }
    let hint = match (error.kind(), error.code()) {
        (ErrorKind::AuthenticationFailed, _) | (_, Some("WRONGPASS")) => {
            "the server rejects the user or password in store.redis"
        }
        (_, Some("NOAUTH")) => "the server requires a password: add it to store.redis",
        (_, Some("NOPERM")) => "the user in store.redis lacks permissions that limits need",
        (_, Some("NOREPLICAS")) => {
            "the primary has fewer replicas than its min-replicas-to-write, so it takes no writes"
        }
        (_, Some("ERR"))
            if error.detail().is_some_and(|detail| detail.contains("cluster support disabled")) =>
        {
            "the server is not in cluster mode: set store.redis.url instead of store.redis.cluster"
        }
        (_, Some("DENIED")) => {
            "the server is in protected mode without a password, so it accepts only local connections"
        }
        // The reply is not the Redis protocol: it may begin a TLS alert.
        (ErrorKind::Parse, _) => {
            "the server does not speak the Redis protocol: if the port uses TLS, write rediss://"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

/// The TLS error that is a cause of `error`.
fn find_tls_error(error: &RedisError) -> Option<&rustls::Error> {
    let inner = error.source()?.downcast_ref::<Arc<dyn Error + Send + Sync>>()?;
    let io = inner.downcast_ref::<io::Error>();
    io.and_then(io::Error::get_ref).map_or_else(|| inner.downcast_ref(), |held| held.downcast_ref())
}

/// Whether the server closed the connection.
fn is_closed(error: &RedisError) -> bool {
    let inner = error.source().and_then(|source| source.downcast_ref::<Arc<dyn Error + Send + Sync>>());
    let kind = inner.and_then(|inner| inner.downcast_ref::<io::Error>()).map(io::Error::kind);
    matches!(
        kind,
        Some(io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_server_stays_one_line() {
        let text = "-ERR no\u{1b}[31m\twonder\r\n2026 WARN forged".to_owned();
        let error = RedisError::from((ErrorKind::Extension, "it said", text));
        let words = describe(&error);
        assert!(
            !words.contains(char::is_control) && words.contains("no [31m wonder 2026 WARN forged"),
            "{words}"
        );
    }
}
