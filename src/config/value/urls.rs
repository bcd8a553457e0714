//! URLs: of endpoints, of a trace collector, of key sets, and of Redis.

use http::{
    Uri,
    uri::{PathAndQuery, Scheme},
};
use percent_encoding::percent_decode_str;
use rustls::pki_types::ServerName;
use url::{ParseError, Url};

use crate::{
    config::value::{Invalid, network::is_host, quantity::whole_number},
    jwt_keys::provider_url,
};

/// The expected form.
pub(in crate::config) const REDIS_URL: &str =
    "write redis://HOST:PORT/DATABASE, rediss:// for TLS, or unix:///PATH, such as redis://127.0.0.1:6379";

/// The expected form with a password, which often contains characters that must be encoded.
const REDIS_URL_WITH_PASSWORD: &str = "write redis://USER:PASSWORD@HOST:PORT or redis://:PASSWORD@HOST:PORT; in a password, write % as \
    %25, @ as %40, : as %3A, / as %2F, ? as %3F, # as %23";

/// The highest number that Redis takes for a database.
const MAX_DATABASE: u64 = i32::MAX as u64;

/// Reads `redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]`, the same with `rediss`, or
/// `unix:///PATH[?db=DATABASE&user=USER&pass=PASSWORD]`.
pub(in crate::config) fn redis_url(text: &str) -> Result<Url, Invalid> {
    let expected =
        if text.contains('@') && !text.ends_with("#insecure") { REDIS_URL_WITH_PASSWORD } else { REDIS_URL };
    let invalid = |reason: &'static str| Invalid::new(reason).expected(expected);
    // The parser would ignore some of these.
    if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(invalid("has a space or a control character"));
    }
    if !text.contains("://") {
        return Err(invalid("is not a URL"));
    }
    let url = Url::parse(text).map_err(|error| match error {
        ParseError::EmptyHost => invalid("has no host"),
        ParseError::InvalidPort => invalid("has an invalid port"),
        ParseError::InvalidIpv6Address | ParseError::InvalidDomainCharacter => invalid(INVALID_HOST),
        _ => invalid("is not a URL"),
    })?;
    let wrong = match url.scheme() {
        "redis" | "rediss" => host_url_error(&url),
        "unix" => socket_url_error(&url),
        _ => Some("has a scheme other than redis, rediss or unix"),
    };
    wrong.map_or(Ok(url), |reason| Err(invalid(reason)))
}

/// Reads the URL of a Sentinel or of a node of a cluster: `redis://[[USER]:PASSWORD@]HOST[:PORT]`, or the same with
/// `rediss`.
pub(in crate::config) fn redis_node_url(text: &str) -> Result<Url, Invalid> {
    let url = redis_url(text)?;
    let invalid = |reason: &'static str| {
        Err(Invalid::new(reason).expected("write redis://HOST:PORT, or rediss:// for TLS"))
    };
    match url.scheme() {
        "unix" => invalid("is the path of a socket, not a host"),
        _ if !url.path().trim_start_matches('/').is_empty() => {
            invalid("has a database, which does not apply here")
        }
        _ => Ok(url),
    }
}

/// Reads the number of a database.
pub(in crate::config) fn database(text: &str) -> Result<u32, Invalid> {
    let number = whole_number(text).filter(|number| *number <= MAX_DATABASE);
    let number = number.and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| Invalid::new("is not a number from 0 to 2147483647"))
}

const INVALID_HOST: &str = "has a host that is neither a name nor an address";
const INVALID_DATABASE: &str = "has a database that is not a number from 0 to 2147483647";

/// Why the URL of a host is invalid. `None`: it is valid.
fn host_url_error(url: &Url) -> Option<&'static str> {
    let host = url.host_str().unwrap_or_default();
    let encoded = [url.username(), url.password().unwrap_or_default()];
    let database = url.path().trim_start_matches('/');
    Some(match () {
        () if host.is_empty() => "has no host",
        () if !is_host(host) => INVALID_HOST,
        () if matches!(host, "0.0.0.0" | "[::]") => "has a host that is for listening, not for connecting",
        () if url.port() == Some(0) => "has an invalid port",
        () if encoded.iter().any(|part| percent_decode_str(part).decode_utf8().is_err()) => {
            "has a user or a password that is not UTF-8"
        }
        // The client would ignore the user.
        () if !url.username().is_empty() && url.password().is_none() => {
            "has a user without a password, or a password without the colon before it"
        }
        () if !database.is_empty() && !is_database(database) => INVALID_DATABASE,
        () if url.query().is_some() => "has a query, which is not supported",
        () if url.fragment() == Some("insecure") => {
            "turns certificate verification off, which is not supported: set `tls.ca` to your certificate \
                authority"
        }
        () if url.fragment().is_some() => "has a fragment, which is not supported",
        () => return None,
    })
}

/// Why the URL of a Unix socket is invalid. `None`: it is valid.
fn socket_url_error(url: &Url) -> Option<&'static str> {
    let query = || url.query_pairs();
    let has = |key: &str| query().any(|(name, value)| name == key && !value.is_empty());
    Some(match () {
        () if url.host().is_some() => {
            "has a host: write the socket's path, which begins with /, right after unix://"
        }
        () if url.path().len() < 2 || url.to_file_path().is_err() => "has no socket path",
        () if url.fragment().is_some() => "has a fragment, which is not supported",
        () if query().any(|(name, _)| !matches!(&*name, "db" | "user" | "pass")) => {
            "has a query with parameters other than db, user and pass"
        }
        () if has("user") && !has("pass") => "has a user without a password: add `pass`",
        () if query().any(|(name, value)| name == "db" && !is_database(&value)) => INVALID_DATABASE,
        () => return None,
    })
}

/// The expected form.
const POSTGRES_FORM: &str = "write postgres://USER:PASSWORD@HOST:PORT/DATABASE, or postgres://USER@/DATABASE?host=/run/postgresql for \
    a socket";

/// Reads `postgres://[USER[:PASSWORD]@]HOST[:PORT]/DATABASE`, or `postgres://[USER[:PASSWORD]@]/DATABASE?host=/DIRECTORY` for the
/// socket of a server on this machine.
pub(in crate::config) fn postgres_url(text: &str) -> Result<Url, Invalid> {
    let invalid = |reason: &'static str| Invalid::new(reason).expected(POSTGRES_FORM);
    if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(invalid("has a space or a control character"));
    }
    let url = Url::parse(text).map_err(|_| invalid("is not a URL"))?;
    let is_socket = is_socket_of_postgres(&url);
    let encoded = [url.username(), url.password().unwrap_or_default()];
    let wrong = match () {
        () if !matches!(url.scheme(), "postgres" | "postgresql") => "has a scheme other than postgres",
        () if url.host_str().unwrap_or_default().is_empty() && !is_socket => "has no host",
        () if url.port() == Some(0) => "has an invalid port",
        () if encoded.iter().any(|part| percent_decode_str(part).decode_utf8().is_err()) => {
            "has a user or a password that is not UTF-8"
        }
        () if url.path().trim_start_matches('/').is_empty() => "has no database",
        () if url.path().trim_start_matches('/').contains('/') => "has a path other than a database",
        () if url.query_pairs().any(|(name, _)| name == "sslmode") => {
            "has sslmode, which is not supported: the connection is encrypted, unless the server is on this machine"
        }
        () if url.query().is_some() && !is_socket => "has a query, which is not supported",
        () if url.fragment().is_some() => "has a fragment, which is not supported",
        () => return Ok(url),
    };
    Err(invalid(wrong))
}

/// Whether it is the URL of a socket, and nothing else is in its query.
fn is_socket_of_postgres(url: &Url) -> bool {
    let mut query = url.query_pairs();
    let is_directory = query.next().is_some_and(|(name, value)| name == "host" && value.starts_with('/'));
    is_directory && query.next().is_none() && url.host_str().unwrap_or_default().is_empty()
}

/// Whether the server of this URL, which [`postgres_url`] has read, is on this machine.
pub(in crate::config) fn is_loopback_url(text: &str) -> bool {
    let Ok(url) = Url::parse(text) else { return false };
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let is_address = host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    is_socket_of_postgres(&url) || host == "localhost" || is_address
}

fn is_database(text: &str) -> bool {
    whole_number(text).is_some_and(|number| number <= MAX_DATABASE)
}

/// Reads the URL of a webhook: `https`, or `http` on this machine.
pub(in crate::config) fn webhook_url(text: &str) -> Result<String, Invalid> {
    let invalid =
        |reason: &'static str| Invalid::new(reason).expected("such as https://hooks.example.com/T0/B0");
    if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(invalid("has a space or a control character"));
    }
    let url = Url::parse(text).map_err(|_| invalid("is not a URL"))?;
    match () {
        () if url.scheme() == "http" && !is_loopback_url(text) => {
            Err(invalid("is not encrypted: whoever is in between would read who uses how much"))
        }
        () if !matches!(url.scheme(), "https" | "http") => Err(invalid("has a scheme other than https")),
        () if !url.username().is_empty() || url.password().is_some() => {
            Err(invalid("has a user or a password, which are not sent"))
        }
        () if url.fragment().is_some() => Err(invalid("has a fragment, which is never sent")),
        () if url.port() == Some(0) => Err(invalid("has an invalid port")),
        () => Ok(url.into()),
    }
}

/// A URL up to its path, which may be a secret: `https://hooks.example.com`.
pub(in crate::config) fn origin_of(url: &str) -> String {
    Url::parse(url).map(|url| url.origin().ascii_serialization()).unwrap_or_default()
}

/// Reads a name or an address that the certificate of a server can be for.
pub(in crate::config) fn server_name(text: &str) -> Result<String, Invalid> {
    let expected = "such as orders.internal or 10.0.0.7";
    let invalid = |reason: &'static str| Invalid::new(reason).expected(expected);
    match ServerName::try_from(text) {
        Ok(_) => Ok(text.to_ascii_lowercase()),
        Err(_) if text.contains("://") => Err(invalid("is a URL, not a name")),
        Err(_) if text.contains('*') => {
            Err(invalid("is a wildcard: write a name that the certificate is for"))
        }
        Err(_) => Err(invalid("is neither a name nor an address that a certificate can be for")),
    }
}

/// The path that takes spans, below the path of the collector.
const TRACES_PATH: &str = "/v1/traces";

/// Reads the URL of a provider's key set.
pub(in crate::config) fn key_set_url(text: &str) -> Result<Url, Invalid> {
    provider_url(text).map_err(|error| {
        Invalid::new(error.to_string()).expected("write https://HOST/PATH, or http:// for a host on loopback")
    })
}

/// Reads `http://HOST:PORT`, or the same with a path, as the URL that spans are sent to: with `/v1/traces` at its
/// end (OpenTelemetry Protocol Exporter, "Endpoint URLs for OTLP/HTTP").
pub(in crate::config) fn collector_url(text: &str) -> Result<Uri, Invalid> {
    let expected = "write http://HOST:PORT, such as http://127.0.0.1:4318";
    let invalid = |reason: &'static str| Invalid::new(reason).expected(expected);
    if !text.contains("://") {
        return Err(invalid("is not a URL").suggestion(format!("did you mean `http://{text}`?")));
    }
    let url: Uri = text.parse().map_err(|_| invalid("is not a URL"))?;
    match url.scheme() {
        Some(scheme) if *scheme == Scheme::HTTP => {}
        Some(scheme) if *scheme == Scheme::HTTPS => {
            return Err(invalid(
                "asks for TLS to the collector, which is not supported: run a collector next to Tollgate and let it \
                    forward spans over TLS",
            ));
        }
        Some(scheme) if scheme.as_str().eq_ignore_ascii_case("grpc") => {
            return Err(invalid(
                "is the port for gRPC: Tollgate sends spans over HTTP, usually to port 4318",
            ));
        }
        _ => return Err(invalid("has a scheme other than http")),
    }
    if url.query().is_some() || text.contains('#') {
        return Err(invalid("has something other than a host, a port and a path"));
    }
    let authority = url.authority().ok_or_else(|| invalid("has no host"))?;
    if authority.as_str().contains('@') {
        return Err(invalid(
            "has a user name: set headers for the collector with OTEL_EXPORTER_OTLP_HEADERS",
        ));
    }
    if !is_host(authority.host()) {
        return Err(invalid("has a host that is neither a name nor an address"));
    }
    let port = authority.as_str().get(authority.host().len()..).unwrap_or_default();
    let number = port.strip_prefix(':').and_then(|port| port.parse::<u16>().ok());
    if !port.is_empty() && number.is_none_or(|port| port == 0) {
        return Err(invalid("has an invalid port"));
    }
    traces_url(url).ok_or_else(|| invalid("is not a URL"))
}

fn traces_url(url: Uri) -> Option<Uri> {
    let path = url.path().trim_end_matches('/').to_owned();
    let path = if path.ends_with(TRACES_PATH) { path } else { path + TRACES_PATH };
    let mut parts = url.into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(path).ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_redis_are_those_that_its_client_takes() {
        for text in [
            "redis://127.0.0.1",
            "redis://127.0.0.1:6379/0",
            "redis://redis_1.internal:65535/2147483647",
            "rediss://app:p%40ss@cache.example.com:6380/3",
            "redis://:hunter2@[::1]:6379/",
            "redis://:@localhost",
            "redis://u:p:p@localhost",
            "unix:///run/redis.sock",
            "unix:///run/redis.sock?db=1&user=app&pass=p%26",
        ] {
            let url = redis_url(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
            // The Redis client accepts it, too.
            assert!(
                bb8_redis::redis::IntoConnectionInfo::into_connection_info(url.as_str()).is_ok(),
                "{text}"
            );
        }
    }

    #[test]
    fn other_redis_urls_are_refused() {
        for (text, reason) in [
            ("", "not a URL"),
            ("redis", "not a URL"),
            ("127.0.0.1:6379", "not a URL"),
            ("redis:127.0.0.1", "not a URL"),
            ("http://localhost", "scheme"),
            ("valkey://localhost", "scheme"),
            ("redis+unix:///run/s", "scheme"),
            ("redis://", "no host"),
            ("redis:///0", "no host"),
            ("redis://:6379", "no host"),
            ("redis://user:hunter2@", "no host"),
            ("redis://a..b", "neither"),
            ("redis://a%20b", "neither"),
            ("redis://127.0.0.999", "neither"),
            ("redis://[::x]", "neither"),
            ("redis://[::1", "neither"),
            ("redis://é.fr", "neither"),
            ("redis://0.0.0.0", "for listening"),
            ("redis://[::]:1", "for listening"),
            ("redis://h:0", "port"),
            ("redis://h:65536", "port"),
            ("redis://h:x", "port"),
            ("redis://:hun/ter2@h", "no host"),
            ("redis://u:hun/ter2@h", "port"),
            ("redis://u:%ff@h", "UTF-8"),
            ("redis://hunter2@h", "without a password"),
            ("redis://h/x", "database"),
            ("redis://h/-1", "database"),
            ("redis://h/0/1", "database"),
            ("redis://h/2147483648", "database"),
            ("redis://h/?protocol=resp3", "query"),
            ("rediss://h/#insecure", "verification"),
            ("redis://h#x", "fragment"),
            ("redis://h h", "space"),
            ("redis://h\n", "space"),
            ("unix://run/redis.sock", "host"),
            ("unix://", "path"),
            ("unix:///", "path"),
            ("unix:///s?database=1", "other than"),
            ("unix:///s?db=x", "database"),
            ("unix:///s?user=u", "pass"),
            ("unix:///s#x", "fragment"),
        ] {
            let error = redis_url(text).map(|url| url.to_string()).unwrap_err();
            assert!(error.reason.contains(reason), "{text}: {error:?}");
        }
    }

    #[test]
    fn help_tells_how_to_encode_a_password() {
        let help = |text| redis_url(text).unwrap_err().help(true).unwrap();
        assert!(help("redis://:p/w@host").contains("/ as %2F"));
        assert!(!help("redis://host:x").contains("%2F"));
    }

    #[test]
    fn server_names_are_those_of_certificates() {
        for text in ["orders.internal", "orders_1", "10.0.0.7", "::1"] {
            assert_eq!(server_name(text).unwrap(), text);
        }
        assert_eq!(server_name("Orders").unwrap(), "orders");
        for (text, reason) in
            [("", "neither"), ("*.internal", "wildcard"), ("https://orders", "URL"), ("a:443", "neither")]
        {
            let error = server_name(text).unwrap_err();
            assert!(error.reason.contains(reason), "{text}: {error:?}");
        }
    }

    #[test]
    fn spans_are_sent_below_the_path_of_the_collector() {
        for (text, url) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://collector:4318/", "http://collector:4318/v1/traces"),
            ("http://collector", "http://collector/v1/traces"),
            ("http://[::1]:4318", "http://[::1]:4318/v1/traces"),
            ("http://collector/otlp/", "http://collector/otlp/v1/traces"),
            ("http://collector:4318/v1/traces", "http://collector:4318/v1/traces"),
        ] {
            let read = collector_url(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
            assert_eq!(read, url, "{text}");
        }
    }

    #[test]
    fn other_collectors_are_refused() {
        for (text, reason) in [
            ("127.0.0.1:4318", "not a URL"),
            ("https://collector:4318", "TLS"),
            ("grpc://collector:4317", "gRPC"),
            ("ftp://collector", "scheme"),
            ("http://", "not a URL"),
            ("http://collector?x", "other than"),
            ("http://collector#x", "other than"),
            ("http://user:word@collector", "user name"),
            ("http://collector:0", "port"),
            ("http://collector:", "port"),
            ("http://collector:99999", ""),
            ("http://[::1].example:4318", "port"),
            ("http://a..b", "neither"),
        ] {
            let error = collector_url(text).unwrap_err();
            assert!(error.reason.contains(reason), "{text}: {error:?}");
        }
    }
}
