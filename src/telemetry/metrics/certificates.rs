//! Certificates of listeners and for upstreams: expiry, and whether reloading their files succeeds.

use std::{
    collections::BTreeMap,
    fmt,
    path::PathBuf,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use prometheus_client::encoding::DescriptorEncoder;

use super::families::gauge;
use crate::tls::CertificateInfo;

/// The TLS of a listener.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFacts {
    /// The bound addresses; at least one.
    pub addresses: Vec<String>,
    /// In the configuration's order; the first is the default for unknown names.
    pub certificates: Vec<CertificateFacts>,
    /// `None`: client certificates are not requested.
    pub client_ca: Option<ClientCaFacts>,
}

/// A certificate that is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFacts {
    pub file: PathBuf,
    pub info: Arc<CertificateInfo>,
    /// When it was read.
    pub loaded: SystemTime,
    /// Why the current content of its files is not served.
    pub reload_error: Option<String>,
}

/// The CA certificates that verify client certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCaFacts {
    pub file: PathBuf,
    pub loaded: SystemTime,
    /// As [`CertificateFacts::reload_error`].
    pub reload_error: Option<String>,
}

/// The TLS to an upstream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpstreamTlsFacts {
    pub upstream: String,
    /// The client certificate sent to its endpoints, if any.
    pub certificate: Option<CertificateFacts>,
    /// Why the current content of a file is not used, by file.
    pub reload_errors: Vec<(PathBuf, String)>,
}

impl TlsFacts {
    /// The files that failed to reload, and the errors.
    pub fn reload_errors(&self) -> impl Iterator<Item = (&PathBuf, &String)> {
        let certificates = self.certificates.iter().map(|served| (&served.file, &served.reload_error));
        let client_ca = self.client_ca.iter().map(|served| (&served.file, &served.reload_error));
        certificates.chain(client_ca).filter_map(|(file, error)| Some((file, error.as_ref()?)))
    }
}

/// Writes the families of listeners' certificates.
pub(super) fn expose(listeners: &[TlsFacts], out: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let (name, help) = (
        "tollgate_tls_certificate_expiry_timestamp_seconds",
        "When the certificate expires, by its first name, since the Unix epoch",
    );
    let mut family = gauge(out, name, help)?;
    // Several certificates may have the same first name: the one that expires first counts.
    let mut expiries = BTreeMap::new();
    for (label, served) in listeners.iter().flat_map(|of| of.certificates.iter().map(move |c| (label(of), c)))
    {
        let name = served.info.names.first().map_or("", String::as_str);
        let expiry = seconds(served.info.not_after);
        let first = expiries.entry((label, name)).or_insert(expiry);
        *first = expiry.min(*first);
    }
    for ((listener, name), expiry) in expiries {
        family.encode_family(&[("listener", listener), ("name", name)])?.encode_gauge(&expiry)?;
    }
    let (name, help) = (
        "tollgate_tls_last_reload_successful",
        "Whether the listener serves what the files of its TLS hold now",
    );
    let mut family = gauge(out, name, help)?;
    for of in listeners {
        let is_successful = of.reload_errors().next().is_none();
        family.encode_family(&[("listener", label(of))])?.encode_gauge(&u64::from(is_successful))?;
    }
    Ok(())
}

/// Writes the families of upstreams' certificates.
pub(super) fn expose_upstreams(
    upstreams: &[UpstreamTlsFacts],
    out: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let (name, help) = (
        "tollgate_upstream_tls_certificate_expiry_timestamp_seconds",
        "When the certificate that the upstream is shown expires, since the Unix epoch",
    );
    let mut family = gauge(out, name, help)?;
    for of in upstreams {
        if let Some(certificate) = &of.certificate {
            let expiry = seconds(certificate.info.not_after);
            family.encode_family(&[("upstream", of.upstream.as_str())])?.encode_gauge(&expiry)?;
        }
    }
    let (name, help) = (
        "tollgate_upstream_tls_last_reload_successful",
        "Whether TLS to the upstream uses what its files hold now",
    );
    let mut family = gauge(out, name, help)?;
    for of in upstreams {
        let is_successful = of.reload_errors.is_empty();
        family
            .encode_family(&[("upstream", of.upstream.as_str())])?
            .encode_gauge(&u64::from(is_successful))?;
    }
    Ok(())
}

/// The listener's first address, which is unique.
fn label(facts: &TlsFacts) -> &str {
    facts.addresses.first().map_or("", String::as_str)
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::telemetry::{
        metrics::{ExpositionFormat, Metrics},
        testing,
    };

    fn certificate(names: &[&str], expiry: u64, reload_error: Option<&str>) -> CertificateFacts {
        let info = CertificateInfo {
            names: names.iter().map(|&name| name.to_owned()).collect(),
            subject: String::new(),
            issuer: String::new(),
            key_type: String::new(),
            fingerprint: String::new(),
            not_before: UNIX_EPOCH,
            not_after: UNIX_EPOCH + Duration::from_secs(expiry),
        };
        let reload_error = reload_error.map(str::to_owned);
        CertificateFacts { file: PathBuf::new(), info: Arc::new(info), loaded: UNIX_EPOCH, reload_error }
    }

    #[test]
    fn each_listener_has_one_series_for_a_name() {
        let metrics = Metrics::new(&testing::config(), 1);
        metrics.tls.watch(|| {
            let one = vec![
                certificate(&["a.test", "b.test"], 300, None),
                certificate(&["b.test"], 100, None),
                // Shares its first name with the first: the earliest expiry counts.
                certificate(&["a.test"], 200, None),
            ];
            let addresses = |port: &str| vec![format!("[::]:{port}"), format!("0.0.0.0:{port}")];
            let other = vec![certificate(&["a.test"], 400, Some("it can't be read"))];
            vec![
                TlsFacts { addresses: addresses("443"), certificates: one, client_ca: None },
                TlsFacts { addresses: addresses("444"), certificates: other, client_ca: None },
            ]
        });
        let page = metrics.expose(ExpositionFormat::Text).unwrap();
        let found: Vec<_> = page
            .lines()
            .filter(|line| {
                line.starts_with("tollgate_tls_certificate") || line.starts_with("tollgate_tls_last")
            })
            .collect();
        assert_eq!(
            found,
            [
                r#"tollgate_tls_certificate_expiry_timestamp_seconds{listener="[::]:443",name="a.test"} 200"#,
                r#"tollgate_tls_certificate_expiry_timestamp_seconds{listener="[::]:443",name="b.test"} 100"#,
                r#"tollgate_tls_certificate_expiry_timestamp_seconds{listener="[::]:444",name="a.test"} 400"#,
                r#"tollgate_tls_last_reload_successful{listener="[::]:443"} 1"#,
                r#"tollgate_tls_last_reload_successful{listener="[::]:444"} 0"#,
            ]
        );
    }
}
