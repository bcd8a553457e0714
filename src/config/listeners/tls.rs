//! `listeners[].tls`: certificates of the listener, and of its clients.

use std::time::SystemTime;

use crate::{
    config::{
        Purpose,
        listeners::{
            checks::{report_certificate, warn_of_expiry},
            settings::{CertificateFiles, ClientAuth, ClientAuthSettings, ListenerTlsSettings, Tls},
        },
        reader::{Cursor, MappingCursor},
        settings::{Read, Settings},
        value::{authorities, certificates, choice, private_key},
    },
    tls::{Certificate, CertificateError},
};

/// The status of the response to a client without a certificate.
const DEFAULT_REFUSAL: u16 = 403;

/// Reads the settings of TLS and their files. Returns the settings, and the names of all certificates. `None`: an error
/// was reported.
pub(in crate::config) fn tls(value: Cursor<'_>) -> Option<(Tls, Vec<String>)> {
    let mut mapping = value.mapping()?.of(ListenerTlsSettings::mapping());
    let ListenerTlsSettings { certificates, client_ca, client_auth, min_version, hsts } =
        ListenerTlsSettings::fields(&mut mapping)?;
    let client_auth = required_certificate(&mapping, client_ca, client_auth);
    mapping.finish();
    let (certificates, names) = certificate_list(certificates?)?;
    Some((Tls { certificates, client_auth: client_auth?, min_version, hsts }, names))
}

/// The pairs of files, and the names of all certificates.
fn certificate_list(list: Cursor<'_>) -> Option<(Vec<CertificateFiles>, Vec<String>)> {
    let items = list.list()?;
    if items.is_empty() {
        list.report("this list is empty", "add at least one: { cert: api.pem, key: api.key }".to_owned());
        return None;
    }
    let count = items.len();
    let mut known: Vec<String> = Vec::new();
    let files: Vec<_> = items.into_iter().filter_map(|item| certificate(item, &mut known)).collect();
    (files.len() == count).then_some((files, known))
}

/// Reads a pair of files, in the same way as after a change. `known`: the names of the certificates before it.
fn certificate(item: Cursor<'_>, known: &mut Vec<String>) -> Option<CertificateFiles> {
    let mut mapping = item.mapping()?.of(CertificateFiles::mapping());
    let files = CertificateFiles::fields(&mut mapping);
    let values = (mapping.peek("cert"), mapping.peek("key"));
    let names =
        mapping.peek("names").map_or(0, |names| names.again(|| names.list()).map_or(0, |names| names.len()));
    mapping.finish();
    let ((cert_value, key_value), files) = ((values.0?, values.1?), files?);
    if files.names.len() != names {
        return None;
    }
    let chain = cert_value.file(certificates);
    // Report the errors of both.
    let key = key_value.file(private_key);
    let ((_, chain), (_, private_key)) = (chain?, key?);
    let CertificateFiles { cert, key, names } = &files;
    let report = |error: &CertificateError| {
        let (value, file) = if error.is_of_key() { (key_value, key) } else { (cert_value, cert) };
        report_certificate(value, file, error);
    };
    let certificate = Certificate::new(chain, private_key, names).map_err(|error| report(&error)).ok()?;
    let info = certificate.info();
    let shadowed = info.names.iter().filter(|name| known.contains(name));
    let shadowed: Vec<&str> = shadowed.map(String::as_str).collect();
    if !shadowed.is_empty() {
        let message = format!("a certificate before this one already serves {}", shadowed.join(", "));
        cert_value.warn(message, None);
    }
    known.extend(info.names.iter().cloned());
    let now = SystemTime::now();
    match info.check_validity(now) {
        Ok(()) => warn_of_expiry(cert_value, cert, info, now),
        // It is served nevertheless, with a warning as long as it is invalid.
        Err(_) if cert_value.purpose() == Purpose::Start => {}
        Err(error) => {
            report(&error);
            return None;
        }
    }
    Some(files)
}

/// `client_ca` and `client_auth`.
fn required_certificate(
    mapping: &MappingCursor<'_>,
    client_ca: Option<Cursor<'_>>,
    client_auth: Option<Cursor<'_>>,
) -> Option<Option<ClientAuth>> {
    let ca = client_ca.map(|value| value.file(authorities));
    let required = client_auth.map_or(Some(Some(DEFAULT_REFUSAL)), required);
    match ca {
        None => {
            let location = mapping.key_location("client_auth");
            if let Some(location) = location.filter(|_| !mapping.has_or_misspells("client_ca")) {
                let help =
                    "add `client_ca: FILE`, the authorities that sign clients' certificates".to_owned();
                mapping.report_at(location, "`client_auth` is set without `client_ca`", help);
            }
            required.map(|_| None)
        }
        Some(ca) => Some(Some(ClientAuth { ca: ca?.0, required: required? })),
    }
}

/// `required`, `optional`, or `{ required: STATUS }`.
fn required(value: Cursor<'_>) -> Option<Option<u16>> {
    if value.scalar().is_some() {
        return value.parse(choice(&[("required", Some(DEFAULT_REFUSAL)), ("optional", None)]));
    }
    ClientAuthSettings::read(value).map(|settings| Some(settings.required))
}
