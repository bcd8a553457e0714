//! TLS for connections that Tollgate opens to servers of its own: a database, an identity provider, a webhook.

use std::{fmt::Display, fs, path::Path, sync::Arc};

use rustls::{ClientConfig, crypto::aws_lc_rs::default_provider};

use super::{authorities, certificates, private_key, system_authorities};

/// A configuration that trusts the authorities in the file `ca`, or those of the system, and shows the certificate and its
/// chain, with its key, in these two files. All are in PEM.
///
/// # Errors
/// A file can't be read, or the certificate and the key can't be used.
pub fn client_config(ca: Option<&Path>, certificate: Option<(&Path, &Path)>) -> Result<ClientConfig, String> {
    let refused = |path: &Path, error: &dyn Display| format!("{} {error}", path.display());
    let read =
        |path: &Path| fs::read(path).map_err(|error| refused(path, &format!("can't be read: {error}")));
    let authorities = match ca {
        Some(path) => Arc::new(authorities(&read(path)?).map_err(|error| refused(path, &error))?),
        None => system_authorities::trusted(),
    };
    let of_tls = |error: rustls::Error| error.to_string();
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(of_tls)?
        .with_root_certificates(authorities);
    match certificate {
        Some((cert, key)) => {
            let chain = certificates(&read(cert)?).map_err(|error| refused(cert, &error))?;
            let private_key = private_key(&read(key)?).map_err(|error| refused(key, &error))?;
            builder.with_client_auth_cert(chain, private_key).map_err(of_tls)
        }
        None => Ok(builder.with_no_client_auth()),
    }
}
