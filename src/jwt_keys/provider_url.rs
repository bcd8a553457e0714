//! The URLs of a provider of tokens.

use url::{Host, Url};

/// Why no keys may be fetched from a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("is not a URL")]
    Malformed,
    #[error("has a scheme other than https: whoever is in between could replace the keys")]
    Insecure,
    #[error("has a user or a password, which would be shown in logs")]
    Credentials,
    #[error("has a fragment, which is never sent")]
    Fragment,
}

/// Parses a URL from which keys may be fetched: `https`, or `http` on loopback.
///
/// # Errors
/// It is not such a URL.
pub fn provider_url(text: &str) -> Result<Url, UrlError> {
    // The parser would ignore some of these.
    if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(UrlError::Malformed);
    }
    let url = Url::parse(text).map_err(|_| UrlError::Malformed)?;
    match url.scheme() {
        "https" => {}
        "http" if is_loopback(&url) => {}
        _ => return Err(UrlError::Insecure),
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(UrlError::Credentials);
    }
    match url.fragment() {
        None => Ok(url),
        Some(_) => Err(UrlError::Fragment),
    }
}

/// The URL of the provider's metadata: `issuer` without its final `/`, and the well-known path (OpenID Connect
/// Discovery, 4).
///
/// # Errors
/// `issuer` is not the URL of a provider, or has a query.
pub fn discovery_url(issuer: &str) -> Result<Url, UrlError> {
    let url = provider_url(issuer)?;
    if url.query().is_some() {
        return Err(UrlError::Malformed);
    }
    provider_url(&format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/')))
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_fetched_by_https_or_from_this_machine() {
        for text in [
            "https://id.example.com/jwks.json",
            "https://id.example.com:8443/keys?p=a",
            "http://127.0.0.1:9000/jwks",
            "http://[::1]/jwks",
            "http://localhost/jwks",
        ] {
            assert_eq!(provider_url(text).map(String::from).as_deref(), Ok(text));
        }
        for (text, error) in [
            ("id.example.com", UrlError::Malformed),
            ("https://", UrlError::Malformed),
            ("https://id example", UrlError::Malformed),
            ("http://id.example.com/jwks", UrlError::Insecure),
            ("http://127.0.0.1.example.com/", UrlError::Insecure),
            ("http://10.0.0.1/jwks", UrlError::Insecure),
            ("file:///etc/passwd", UrlError::Insecure),
            ("https://me:secret@id.example.com/", UrlError::Credentials),
            ("https://id.example.com/#keys", UrlError::Fragment),
        ] {
            assert_eq!(provider_url(text), Err(error), "{text}");
        }
    }

    #[test]
    fn metadata_is_below_the_issuer() {
        for (issuer, url) in [
            ("https://id.example.com", "https://id.example.com/.well-known/openid-configuration"),
            ("https://id.example.com/", "https://id.example.com/.well-known/openid-configuration"),
            ("https://id.example.com/a/b", "https://id.example.com/a/b/.well-known/openid-configuration"),
        ] {
            assert_eq!(discovery_url(issuer).map(String::from).as_deref(), Ok(url));
        }
        assert_eq!(discovery_url("https://id.example.com?a=b"), Err(UrlError::Malformed));
    }
}
