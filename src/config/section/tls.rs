//! `listeners[].tls`: certificates, and what is asked of clients.

use std::{
    ops::RangeInclusive,
    time::{Duration, SystemTime},
};

use crate::{
    config::{
        Purpose,
        checks::certificates::{report_certificate, warn_of_expiry},
        model::{CertificateFiles, ClientAuth, Hsts, Tls, TlsVersion},
        reader::{Cursor, MappingCursor},
        settings,
        value::{
            Invalid, MAX_DURATION, authorities, boolean, certificates, choice, count, duration, name_pattern,
            private_key,
        },
    },
    tls::{Certificate, CertificateError},
};

/// The statuses that say that a client is refused.
const REFUSALS: RangeInclusive<usize> = 400..=499;
const DEFAULT_REFUSAL: u16 = 403;

/// Reads the settings of TLS, and the files that they name. With them the names of all certificates. `None`: something is
/// wrong, and was reported.
pub(super) fn tls(value: Cursor<'_>) -> Option<(Tls, Vec<String>)> {
    let mut mapping = value.mapping()?.of(&settings::LISTENER_TLS);
    let certificates =
        mapping.require("certificates", "such as `certificates: [{ cert: api.pem, key: api.key }]`");
    let client_auth = client_auth(&mut mapping);
    let version = choice(&[("1.2", TlsVersion::V1_2), ("1.3", TlsVersion::V1_3)]);
    let min_version = mapping.parse_or("min_version", TlsVersion::V1_2, version);
    let hsts = mapping.take("hsts").map_or(Some(None), |value| hsts(value).map(Some));
    mapping.finish();
    let (certificates, names) = certificate_list(certificates?)?;
    Some((Tls { certificates, client_auth: client_auth?, min_version, hsts: hsts? }, names))
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

/// Reads a pair as it will be read again when its files change. `known`: the names of the certificates before it.
fn certificate(item: Cursor<'_>, known: &mut Vec<String>) -> Option<CertificateFiles> {
    let mut mapping = item.mapping()?.of(&settings::CERTIFICATE);
    let cert = mapping.require("cert", "the file of the certificate and its chain, PEM");
    let key = mapping.require("key", "the file of the private key, PEM");
    let names = mapping.take("names").map_or(Some(Vec::new()), |list| names(list));
    mapping.finish();
    let (cert_value, key_value, names) = (cert?, key?, names?);
    let chain = cert_value.file(certificates);
    // Report the errors of both.
    let key = key_value.file(private_key);
    let ((cert, chain), (key, private_key)) = (chain?, key?);
    let report = |error: &CertificateError| {
        let (value, file) = if error.is_of_key() { (key_value, &key) } else { (cert_value, &cert) };
        report_certificate(value, file, error);
    };
    let certificate = Certificate::new(chain, private_key, &names).map_err(|error| report(&error)).ok()?;
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
        Ok(()) => warn_of_expiry(cert_value, &cert, info, now),
        // It is served all the same, and warned of as long as it is.
        Err(_) if cert_value.purpose() == Purpose::Start => {}
        Err(error) => {
            report(&error);
            return None;
        }
    }
    Some(CertificateFiles { cert, key, names })
}

fn names(list: Cursor<'_>) -> Option<Vec<String>> {
    let count = list.list()?.len();
    let names = list.unique_items(|item| item.parse(name_pattern));
    (names.len() == count).then_some(names)
}

/// `client_ca` and `client_auth`.
fn client_auth(mapping: &mut MappingCursor<'_>) -> Option<Option<ClientAuth>> {
    let ca = mapping.take("client_ca").map(|value| value.file(authorities));
    let location = mapping.key_location("client_auth");
    let required = mapping.take("client_auth").map_or(Some(Some(DEFAULT_REFUSAL)), required);
    match ca {
        None => {
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
    let mut mapping = value.mapping()?.of(&settings::CLIENT_AUTH);
    let status = mapping.require("required", "the status of the reply to a client without a certificate");
    mapping.finish();
    let status = status?.parse(|text| {
        let status = count(REFUSALS)(text).map_err(|invalid| invalid.expected("a status from 400 to 499"))?;
        u16::try_from(status).map_err(|_| Invalid::new("is too large"))
    });
    status.map(Some)
}

/// A duration, or `{ max_age, include_subdomains, preload }`.
pub(super) fn hsts(value: Cursor<'_>) -> Option<Hsts> {
    let max_age = duration(Duration::ZERO..=MAX_DURATION * 2);
    if value.scalar().is_some() {
        let max_age = value.parse(max_age)?;
        return Some(Hsts { max_age, include_subdomains: false, preload: false });
    }
    let mut mapping = value.mapping()?.of(&settings::HSTS);
    let age = mapping.require("max_age", "such as `max_age: 365d`");
    let include_subdomains = mapping.parse_or("include_subdomains", false, boolean);
    let preload = mapping.parse_or("preload", false, boolean);
    mapping.finish();
    Some(Hsts { max_age: age?.parse(max_age)?, include_subdomains, preload })
}
