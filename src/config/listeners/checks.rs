//! Certificates that can't be used, or will expire soon: of listeners, of the admin port, and towards servers.

use std::{path::Path, time::SystemTime};

use crate::{
    config::{Purpose, reader::Cursor},
    tls::{CertificateError, CertificateInfo, Validity},
};

/// Reports an error of a certificate or a key.
pub(in crate::config) fn report_certificate(value: Cursor<'_>, file: &Path, error: &CertificateError) {
    value.report(format!("`{}` {error}", value.name_of(file)), error.help().map(str::to_owned));
}

/// Warns about a certificate that expires soon. The running process logs this daily, and stops after a renewal.
pub(in crate::config) fn warn_of_expiry(
    value: Cursor<'_>,
    file: &Path,
    info: &CertificateInfo,
    now: SystemTime,
) {
    if value.purpose() == Purpose::Check && info.validity(now) == Validity::Expiring {
        let days = info.days_left(now).unwrap_or_default();
        let plural = if days == 1 { "" } else { "s" };
        let message = format!("`{}` expires in {days} day{plural}", value.name_of(file));
        value.warn(message, "renew it; the files are read again when they change".to_owned());
    }
}
