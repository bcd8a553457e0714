//! The fields of a certificate: names, issuer, key type and validity.

use std::{
    net::IpAddr,
    time::{Duration, SystemTime},
};

use rustls::pki_types::CertificateDer;
use x509_cert::{
    SubjectPublicKeyInfo,
    certificate::{CertificateInner, Profile, Raw},
    der::{Decode, asn1::Uint},
    ext::pkix::{SubjectAltName, name::GeneralName},
    spki::ObjectIdentifier,
};

use super::{
    CertificateError,
    identity::{fingerprint, printed},
};

const DAY: u64 = 24 * 60 * 60;

/// The fields of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateInfo {
    /// The hosts that it covers, in lower case: DNS names, whose first label may be `*`, and IP addresses.
    pub names: Vec<String>,
    /// In the form of RFC 4514: `CN=api.example.com,O=Example`. May be empty.
    pub subject: String,
    /// In the form of RFC 4514.
    pub issuer: String,
    /// `ECDSA P-256`, `RSA 2048`, `Ed25519`; the object identifier of any other type.
    pub key_type: String,
    /// SHA-256 of the certificate, in lower-case hex.
    pub fingerprint: String,
    pub not_before: SystemTime,
    pub not_after: SystemTime,
}

/// The validity of a certificate at some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    NotYetValid,
    Valid,
    /// Valid for less than [`CertificateInfo::RENEWAL_DAYS`].
    Expiring,
    Expired,
}

impl Validity {
    /// The name: `not_yet_valid`.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotYetValid => "not_yet_valid",
            Self::Valid => "valid",
            Self::Expiring => "expiring",
            Self::Expired => "expired",
        }
    }
}

impl CertificateInfo {
    /// Warnings begin this many days before a certificate expires.
    pub const RENEWAL_DAYS: u64 = 14;

    /// Reads a certificate. `None`: it is damaged.
    pub fn read(der: &CertificateDer<'_>) -> Option<Self> {
        let certificate = CertificateInner::<Raw>::from_der(der).ok()?;
        let certificate = certificate.tbs_certificate();
        let names = certificate.get_extension::<SubjectAltName>().ok()?;
        let (not_before, not_after) = times(certificate.validity())?;
        Some(Self {
            names: names.map_or_else(Vec::new, |(_, names)| names.0.iter().filter_map(host).collect()),
            // A malformed name does not keep the certificate from being served.
            subject: printed(certificate.subject()).unwrap_or_default(),
            issuer: printed(certificate.issuer()).unwrap_or_default(),
            key_type: key_type(certificate.subject_public_key_info()),
            fingerprint: fingerprint(der),
            not_before,
            not_after,
        })
    }

    /// The validity at `now`.
    pub fn validity(&self, now: SystemTime) -> Validity {
        match self.days_left(now) {
            None => Validity::Expired,
            Some(_) if now < self.not_before => Validity::NotYetValid,
            Some(days) if days < Self::RENEWAL_DAYS => Validity::Expiring,
            Some(_) => Validity::Valid,
        }
    }

    /// Checks that the certificate is valid at `now`.
    ///
    /// # Errors
    /// The certificate is not valid yet, or has expired.
    pub fn check_validity(&self, now: SystemTime) -> Result<(), CertificateError> {
        match self.validity(now) {
            Validity::NotYetValid => Err(CertificateError::NotYetValid(date(self.not_before))),
            Validity::Expired => Err(CertificateError::Expired(date(self.not_after))),
            Validity::Valid | Validity::Expiring => Ok(()),
        }
    }

    /// Whole days from `now` until the certificate expires. `None`: it has expired.
    pub fn days_left(&self, now: SystemTime) -> Option<u64> {
        Some(self.not_after.duration_since(now).ok()?.as_secs() / DAY)
    }

    /// The end of its validity, as `2026-11-22 07:30:00 UTC`.
    pub fn expiry_date(&self) -> String {
        date(self.not_after)
    }
}

/// Whether the present time is within the validity of `certificate`.
pub fn is_valid_now(certificate: &CertificateDer<'_>) -> bool {
    let certificate = CertificateInner::<Raw>::from_der(certificate).ok();
    let times = certificate.and_then(|certificate| times(certificate.tbs_certificate().validity()));
    times.is_some_and(|(not_before, not_after)| (not_before..=not_after).contains(&SystemTime::now()))
}

/// The begin and the end of the validity.
fn times<P: Profile>(validity: &x509_cert::time::Validity<P>) -> Option<(SystemTime, SystemTime)> {
    let time = |since: Duration| SystemTime::UNIX_EPOCH.checked_add(since);
    Some((time(validity.not_before.to_unix_duration())?, time(validity.not_after.to_unix_duration())?))
}

/// Whether one of `names` is `host`, or a wildcard for it. `host` may itself be a wildcard.
pub fn covers(names: &[String], host: &str) -> bool {
    let wildcard = host.split_once('.').map(|(_, parent)| format!("*.{parent}"));
    names.iter().any(|name| name == host || wildcard.as_ref() == Some(name))
}

fn host(name: &GeneralName) -> Option<String> {
    match name {
        GeneralName::DnsName(name) => Some(name.as_str().to_ascii_lowercase()),
        GeneralName::IpAddress(octets) => {
            let octets = octets.as_bytes();
            let address = <[u8; 4]>::try_from(octets)
                .map(IpAddr::from)
                .or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from));
            address.ok().map(|address| address.to_string())
        }
        _ => None,
    }
}

/// The algorithm of the public key (RFC 3279, RFC 5480, RFC 8410), with the size of an RSA key or the curve.
fn key_type(key: &SubjectPublicKeyInfo) -> String {
    let algorithm = key.algorithm.oid.to_string();
    match algorithm.as_str() {
        "1.2.840.113549.1.1.1" => {
            // A SEQUENCE of modulus and exponent, both INTEGER.
            let numbers = Vec::<Uint>::from_der(key.subject_public_key.raw_bytes()).unwrap_or_default();
            numbers.first().map_or_else(|| "RSA".to_owned(), |modulus| format!("RSA {}", bits(modulus)))
        }
        "1.2.840.10045.2.1" => {
            let curve = key.algorithm.parameters.as_ref();
            let curve = curve.and_then(|curve| curve.decode_as::<ObjectIdentifier>().ok());
            let curve = curve.map(|curve| curve.to_string()).unwrap_or_default();
            let name = match curve.as_str() {
                "1.2.840.10045.3.1.7" => "P-256",
                "1.3.132.0.34" => "P-384",
                "1.3.132.0.35" => "P-521",
                other => other,
            };
            format!("ECDSA {name}").trim_end().to_owned()
        }
        "1.3.101.112" => "Ed25519".to_owned(),
        _ => algorithm,
    }
}

fn bits(number: &Uint) -> usize {
    let bytes = number.as_bytes();
    let unused = bytes.first().map_or(0, |first| first.leading_zeros() as usize);
    (bytes.len() * 8).saturating_sub(unused)
}

/// The time, as `2026-11-22 07:30:00 UTC`.
fn date(time: SystemTime) -> String {
    let time = jiff::Timestamp::try_from(time).map(|time| time.strftime("%F %T UTC").to_string());
    // After the year 9999.
    time.unwrap_or_else(|_| "a date beyond the year 9999".to_owned())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, SanType};

    use super::*;

    fn params(names: &[&str]) -> CertificateParams {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        CertificateParams::new(names).unwrap()
    }

    fn read(params: &CertificateParams, key: &KeyPair) -> CertificateInfo {
        CertificateInfo::read(params.self_signed(key).unwrap().der()).unwrap()
    }

    fn info(params: &CertificateParams) -> CertificateInfo {
        read(params, &KeyPair::generate().unwrap())
    }

    #[test]
    fn names_are_hosts_and_addresses_in_lower_case() {
        let mut params = params(&["API.Example.com", "*.Example.org", "192.0.2.7", "2001:DB8::1"]);
        params.subject_alt_names.push(SanType::Rfc822Name("me@example.com".try_into().unwrap()));
        let names = info(&params).names;
        assert_eq!(names, ["api.example.com", "*.example.org", "192.0.2.7", "2001:db8::1"]);
        assert_eq!(info(&CertificateParams::default()).names, [""; 0]);
    }

    #[test]
    fn a_wildcard_stands_for_one_label() {
        let names = ["*.example.com".to_owned(), "192.0.2.7".to_owned()];
        for host in ["a.example.com", "*.example.com", "192.0.2.7"] {
            assert!(covers(&names, host), "{host}");
        }
        for host in ["example.com", "a.b.example.com", "example.org", "a.example.com.org", "192.0.2.8"] {
            assert!(!covers(&names, host), "{host}");
        }
        assert!(!covers(&["a.example.com".to_owned()], "*.example.com"));
    }

    #[test]
    fn days_are_whole_and_the_last_fortnight_is_told() {
        let mut params = params(&["a"]);
        params.not_before = rcgen::date_time_ymd(2026, 3, 1);
        params.not_after = rcgen::date_time_ymd(2026, 6, 1);
        let info = info(&params);
        let before_end = |seconds: u64| info.not_after - Duration::from_secs(seconds);
        let found = |now| (info.validity(now), info.days_left(now));
        assert_eq!(found(before_end(14 * DAY)), (Validity::Valid, Some(14)));
        assert_eq!(found(before_end(14 * DAY - 1)), (Validity::Expiring, Some(13)));
        assert_eq!(found(before_end(0)), (Validity::Expiring, Some(0)));
        assert_eq!(info.check_validity(before_end(0)), Ok(()));
        let after = info.not_after + Duration::from_secs(1);
        assert_eq!(found(after), (Validity::Expired, None));
        let expired = CertificateError::Expired("2026-06-01 00:00:00 UTC".to_owned());
        assert_eq!(info.check_validity(after), Err(expired));
        let early = info.not_before - Duration::from_secs(1);
        assert_eq!(found(early).0, Validity::NotYetValid);
        let not_yet = CertificateError::NotYetValid("2026-03-01 00:00:00 UTC".to_owned());
        assert_eq!(info.check_validity(early), Err(not_yet));
    }

    #[test]
    fn keys_subjects_and_fingerprints_are_told() {
        let mut params = params(&["a"]);
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "Example");
        params.distinguished_name.push(rcgen::DnType::CommonName, "api, the");
        let key = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
        let p384 = read(&params, &key);
        assert_eq!((&*p384.key_type, &*p384.subject), ("ECDSA P-384", r"CN=api\, the,O=Example"));
        assert_eq!(p384.issuer, p384.subject);
        assert_eq!(info(&params).key_type, "ECDSA P-256");
        assert_eq!(read(&params, &KeyPair::generate_for(&PKCS_ED25519).unwrap()).key_type, "Ed25519");
        let der = params.self_signed(&key).unwrap();
        let digest = rustls_digest(der.der());
        assert_eq!(CertificateInfo::read(der.der()).unwrap().fingerprint, digest);
        assert_eq!(digest.len(), 64);
    }

    /// The digest by another library.
    fn rustls_digest(bytes: &[u8]) -> String {
        use rustls::crypto::{CipherSuiteCommon, aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256};
        let rustls::SupportedCipherSuite::Tls13(suite) = TLS13_AES_128_GCM_SHA256 else { panic!() };
        let CipherSuiteCommon { hash_provider, .. } = suite.common;
        hash_provider.hash(bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn an_rsa_key_is_told_with_its_size() {
        let key = KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048).unwrap();
        assert_eq!(read(&params(&["a"]), &key).key_type, "RSA 2048");
    }

    #[test]
    fn invalid_certificates_are_damaged() {
        let der = params(&["a"]).self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec();
        assert_eq!(CertificateInfo::read(&CertificateDer::from(der[..der.len() - 1].to_vec())), None);
        assert_eq!(CertificateInfo::read(&CertificateDer::from(Vec::new())), None);
    }
}
