//! The identity of a client by its certificate.

use std::{
    fmt::{Display, Write},
    str::FromStr,
};

use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde::Serialize;
use sha2::{Digest, Sha256};
use x509_cert::{
    der::{self, Decode, Reader, SliceReader, Tag, TagNumber, Tagged, asn1::AnyRef},
    name::RdnSequence,
};

/// The longest subject as text, in bytes. Attributes of real certificates have at most 64 characters (RFC 5280,
/// appendix A.1).
const MAX_SUBJECT: usize = 1_024;
/// The longest encoded subject, in bytes. Its attributes are sorted in quadratic time.
const MAX_SUBJECT_DER: usize = 4 * MAX_SUBJECT;
/// The most bytes of alternative names that are kept of each kind.
const MAX_NAMES: usize = 4_096;

/// id-ce-subjectAltName (RFC 5280, 4.2.1.6).
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// The identity of a client by its certificate, whose chain was verified and whose private key the client has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsIdentity {
    subject: String,
    fingerprint: String,
    chain: Vec<CertificateDer<'static>>,
    uris: Vec<String>,
    dns_names: Vec<String>,
}

/// The part of a client's certificate that identifies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CertificateField {
    /// RFC 4514, with the last part first: `CN=acme,O=Acme`.
    Subject,
    /// SHA-256 in hexadecimal digits.
    Fingerprint,
}

impl CertificateField {
    /// All fields by their names in `proxy.yaml`, after `tls:`.
    pub const ALL: [(&'static str, Self); 2] =
        [("subject", Self::Subject), ("fingerprint", Self::Fingerprint)];

    /// Its name in `proxy.yaml`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Subject => "subject",
            Self::Fingerprint => "fingerprint",
        }
    }
}

/// The TLS session of a connection, common to all of its requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSession {
    /// The protocol version as it is logged: `TLSv1.3`.
    pub version: &'static str,
    /// The client's certificate. `None`: it sent none.
    pub identity: Option<TlsIdentity>,
}

/// Why a certificate chain identifies no client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    #[error("no certificate")]
    Missing,
    #[error("the certificate is not valid X.509")]
    Malformed,
    #[error("the certificate's subject has more than {MAX_SUBJECT} bytes")]
    LongSubject,
}

impl TlsIdentity {
    /// The identity of a client that sent `chain`, with its own certificate first.
    ///
    /// # Errors
    /// The chain is empty, or its first certificate can't be read or has a longer subject than 1,024 bytes.
    pub fn from_chain(chain: &[CertificateDer<'_>]) -> Result<Self, IdentityError> {
        let leaf = chain.first().ok_or(IdentityError::Missing)?;
        let CertificateNames { subject, uris, dns_names } = CertificateNames::read(leaf)?;
        let chain = chain.iter().map(|certificate| certificate.clone().into_owned()).collect();
        Ok(Self { subject, fingerprint: fingerprint(leaf), chain, uris, dns_names })
    }

    /// The identity of a client with the certificates in `pem`, its own first.
    ///
    /// # Errors
    /// Errors of [`TlsIdentity::from_chain`], or `pem` is not PEM.
    pub fn from_pem(pem: &[u8]) -> Result<Self, IdentityError> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        Self::from_chain(&chain.map_err(|_| IdentityError::Malformed)?)
    }

    /// An identity of which only these are known, as returned by [`canonical_subject`] and [`read_fingerprint`], or
    /// empty.
    pub fn assumed(subject: String, fingerprint: String) -> Self {
        Self { subject, fingerprint, ..Self::default() }
    }

    /// The subject in the form of RFC 4514, with its last part first: `CN=acme,O=Acme`. Empty if the certificate has
    /// none.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// The SHA-256 of the certificate: 64 hexadecimal digits in lower case.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The part of the certificate that identifies the client. Empty if it has none.
    pub fn field(&self, field: CertificateField) -> &str {
        match field {
            CertificateField::Subject => &self.subject,
            CertificateField::Fingerprint => &self.fingerprint,
        }
    }

    /// The certificates that the client sent, its own first. The others need not be part of the verified path. Empty
    /// for an assumed identity.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// The URIs among the alternative names, of visible ASCII, 4 KiB of them at most.
    pub fn uris(&self) -> &[String] {
        &self.uris
    }

    /// The DNS names among the alternative names, of visible ASCII, 4 KiB of them at most.
    pub fn dns_names(&self) -> &[String] {
        &self.dns_names
    }
}

/// A subject in the form of [`TlsIdentity::subject`]: `cn=acme,O=Acm\C3\A9` becomes `CN=acme,O=Acmé`. `None`: not a
/// distinguished name (RFC 4514), or too long.
pub fn canonical_subject(text: &str) -> Option<String> {
    if text.len() > MAX_SUBJECT_DER {
        return None;
    }
    let name = RdnSequence::from_str(&hexadecimal_escapes(text)?).ok()?;
    printed(&name).ok()
}

/// Rewrites all escapes as two hexadecimal digits: the crate takes the comma of `\\\,` for a separator. `None`: an
/// escape is malformed.
fn hexadecimal_escapes(text: &str) -> Option<String> {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, escape)) = rest.split_once('\\') {
        out.push_str(before);
        let first = escape.chars().next().filter(char::is_ascii)?;
        rest = if first.is_ascii_hexdigit() {
            let digits = escape.get(..2).filter(|digits| digits.bytes().all(|c| c.is_ascii_hexdigit()))?;
            let _ = write!(out, "\\{digits}");
            &escape[2..]
        } else {
            let _ = write!(out, "\\{:02x}", u32::from(first));
            &escape[1..]
        };
    }
    out.push_str(rest);
    Some(out)
}

/// A fingerprint in the form of [`TlsIdentity::fingerprint`], from digits in either case, with or without colons
/// between the bytes. `None`: not a SHA-256.
pub fn read_fingerprint(text: &str) -> Option<String> {
    let digits: String = match text.contains(':') {
        true if text.split(':').all(|byte| byte.len() == 2) => text.replace(':', ""),
        _ => text.to_owned(),
    };
    let is_sha256 = digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_sha256.then(|| digits.to_ascii_lowercase())
}

/// The SHA-256 of a certificate: 64 hexadecimal digits in lower case.
pub(super) fn fingerprint(certificate: &[u8]) -> String {
    Sha256::digest(certificate).iter().fold(String::with_capacity(64), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// A distinguished name in the form of RFC 4514.
pub(super) fn printed(name: &impl Display) -> Result<String, IdentityError> {
    let mut text = String::new();
    write!(text, "{name}").map_err(|_| IdentityError::Malformed)?;
    if text.len() > MAX_SUBJECT { Err(IdentityError::LongSubject) } else { Ok(text) }
}

/// The names in a certificate.
struct CertificateNames {
    subject: String,
    uris: Vec<String>,
    dns_names: Vec<String>,
}

impl CertificateNames {
    /// Reads only these fields. The rest was checked when the chain was verified, and a malformed field there must not
    /// lock out a client.
    fn read(certificate: &[u8]) -> Result<Self, IdentityError> {
        let fields = to_be_signed(certificate).map_err(|_| IdentityError::Malformed)?;
        // RFC 5280, 4.1: a version in [0], serialNumber, signature, issuer, validity, subject, subjectPublicKeyInfo, and
        // the extensions in [3].
        let skipped = usize::from(fields.first().is_some_and(|first| is_context(*first, TagNumber(0))));
        let subject = fields.get(skipped + 4).ok_or(IdentityError::Malformed)?;
        if subject.value().len() > MAX_SUBJECT_DER {
            return Err(IdentityError::LongSubject);
        }
        let name: RdnSequence = subject.decode_as().map_err(|_| IdentityError::Malformed)?;
        let extensions = fields.iter().skip(skipped + 6).find(|field| is_context(**field, TagNumber(3)));
        let alternatives = match extensions {
            Some(extensions) => alternatives(*extensions).map_err(|_| IdentityError::Malformed)?,
            None => Vec::new(),
        };
        let of_kind = |kind| {
            let names = alternatives.iter().filter(move |name| is_context(**name, kind));
            kept(names.map(|name| name.value()))
        };
        Ok(Self { subject: printed(&name)?, uris: of_kind(TagNumber(6)), dns_names: of_kind(TagNumber(2)) })
    }
}

/// The fields of the TBSCertificate.
fn to_be_signed(certificate: &[u8]) -> der::Result<Vec<AnyRef<'_>>> {
    let parts = elements(AnyRef::from_der(certificate)?)?;
    elements(*parts.first().ok_or_else(|| Tag::Sequence.value_error())?)
}

/// The alternative names of the subject. `extensions`: `[3] { SEQUENCE OF { OID, critical DEFAULT FALSE, OCTET STRING } }`.
fn alternatives(extensions: AnyRef<'_>) -> der::Result<Vec<AnyRef<'_>>> {
    for extension in elements(AnyRef::from_der(extensions.value())?)? {
        let parts = elements(extension)?;
        if let (Some(id), Some(value)) = (parts.first(), parts.last())
            && id.tag() == Tag::ObjectIdentifier
            && id.value() == SUBJECT_ALT_NAME
        {
            return elements(AnyRef::from_der(value.value())?);
        }
    }
    Ok(Vec::new())
}

/// The elements of a sequence.
fn elements(sequence: AnyRef<'_>) -> der::Result<Vec<AnyRef<'_>>> {
    sequence.sequence(|reader: &mut SliceReader<'_>| {
        let mut found = Vec::new();
        while !reader.is_finished() {
            found.push(AnyRef::decode(reader)?);
        }
        Ok(found)
    })
}

fn is_context(element: AnyRef<'_>, expected: TagNumber) -> bool {
    matches!(element.tag(), Tag::ContextSpecific { number, .. } if number == expected)
}

/// Names of visible ASCII, as URIs and host names are, up to [`MAX_NAMES`] bytes together.
fn kept<'a>(names: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
    let mut left = MAX_NAMES;
    let visible = names.filter(|name| !name.is_empty() && name.iter().all(u8::is_ascii_graphic));
    let texts = visible.filter_map(|name| str::from_utf8(name).ok());
    texts
        .map_while(|name| {
            left = left.checked_sub(name.len())?;
            Some(name.to_owned())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, CustomExtension, DistinguishedName, DnType, DnValue, KeyPair, SanType};

    use super::*;

    fn certificate(change: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        change(&mut params);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    fn named(parts: &[(DnType, &str)]) -> CertificateDer<'static> {
        certificate(|params| {
            parts.iter().for_each(|(kind, value)| params.distinguished_name.push(kind.clone(), *value));
        })
    }

    fn identity(certificate: CertificateDer<'static>) -> TlsIdentity {
        TlsIdentity::from_chain(&[certificate]).unwrap()
    }

    #[test]
    fn the_subject_is_written_last_part_first() {
        let acme = [
            (DnType::CountryName, "FR"),
            (DnType::OrganizationName, "Acmé, Inc."),
            (DnType::OrganizationalUnitName, "#1 \"a+b\" <c>; d\\e "),
            (DnType::CommonName, "a\r\nb=c"),
        ];
        let shown = r#"CN=a\0d\0ab=c,OU=\#1 \"a\+b\" \<c\>\; d\\e\ ,O=Acmé\, Inc.,C=FR"#;
        let subject = identity(named(&acme)).subject;
        assert_eq!(subject, shown);
        assert_eq!(canonical_subject(&subject).as_deref(), Some(shown));
        assert_eq!(identity(named(&[])).subject, "");
    }

    #[test]
    fn values_that_are_no_text_are_written_as_hexadecimal() {
        let odd = certificate(|params| {
            let text = DnValue::BmpString("é".try_into().unwrap());
            params.distinguished_name.push(DnType::CommonName, text);
            params.distinguished_name.push(DnType::CustomDnType(vec![1, 2, 3, 4]), "x");
        });
        assert_eq!(identity(odd).subject, "1.2.3.4=#0c0178,2.5.4.3=#1e0200e9");
    }

    #[test]
    fn subjects_are_read_in_every_spelling() {
        for (written, canonical) in [
            ("CN=acme,O=Acme", "CN=acme,O=Acme"),
            ("cn=acme,o=Acme", "CN=acme,O=Acme"),
            ("commonName=acme,2.5.4.10=Acme", "CN=acme,O=Acme"),
            (r"CN=Acm\C3\A9\2C Inc.", r"CN=Acmé\, Inc."),
            ("emailAddress=a@b.example,UID=x", "EMAIL=a@b.example,UID=x"),
            ("OU=b+CN=a,DC=example", "CN=a+OU=b,DC=example"),
            (r"CN=a\\\,b,O=c", r"CN=a\\\,b,O=c"),
        ] {
            assert_eq!(canonical_subject(written).as_deref(), Some(canonical), "{written}");
        }
        let long = format!("CN={}", "x".repeat(MAX_SUBJECT));
        for wrong in [
            "",
            "acme",
            "CN=acme, O=Acme",
            "CN=acme,",
            "x=1",
            "CN=a\\",
            "CN=a\\0",
            "CN=a\\é",
            "CN=#zz",
            "=",
            ",",
            &long,
        ] {
            assert_eq!(canonical_subject(wrong), None, "{wrong}");
        }
    }

    /// Data stored under a subject would be lost if another version of the crate renamed an attribute.
    #[test]
    fn attributes_keep_their_names() {
        for (oid, name) in [
            ("2.5.4.3", "CN"),
            ("2.5.4.4", "SN"),
            ("2.5.4.5", "SERIALNUMBER"),
            ("2.5.4.6", "C"),
            ("2.5.4.7", "L"),
            ("2.5.4.8", "ST"),
            ("2.5.4.9", "STREET"),
            ("2.5.4.10", "O"),
            ("2.5.4.11", "OU"),
            ("2.5.4.12", "TITLE"),
            ("2.5.4.42", "GN"),
            ("2.5.4.97", "2.5.4.97"),
            ("0.9.2342.19200300.100.1.1", "UID"),
            ("0.9.2342.19200300.100.1.25", "DC"),
            ("1.2.840.113549.1.9.1", "EMAIL"),
        ] {
            let value = if oid == name { "#0c0178" } else { "x" };
            assert_eq!(canonical_subject(&format!("{oid}=x")), Some(format!("{name}={value}")));
        }
    }

    #[test]
    fn the_fingerprint_is_that_of_openssl() {
        // printf x | sha256sum
        let hex = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881";
        assert_eq!(fingerprint(b"x"), hex);
        let colons: Vec<String> =
            hex.as_bytes().chunks(2).map(|byte| String::from_utf8_lossy(byte).to_uppercase()).collect();
        assert_eq!(read_fingerprint(&colons.join(":")).as_deref(), Some(hex));
        assert_eq!(read_fingerprint(hex).as_deref(), Some(hex));
        for wrong in ["", "2d", &hex[1..], &format!("{hex}0"), &hex.replace('2', "g"), &format!(":{hex}")] {
            assert_eq!(read_fingerprint(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn alternative_names_are_kept_as_far_as_they_are_ones() {
        let all = certificate(|params| {
            params.subject_alt_names = vec![
                SanType::DnsName("a.example".try_into().unwrap()),
                SanType::URI("spiffe://example/a".try_into().unwrap()),
                SanType::IpAddress([10, 0, 0, 1].into()),
                SanType::DnsName("*.b.example".try_into().unwrap()),
                SanType::URI("urn:with space".try_into().unwrap()),
                SanType::DnsName("a\nb".try_into().unwrap()),
            ];
        });
        let found = identity(all);
        assert_eq!(found.dns_names, ["a.example", "*.b.example"]);
        assert_eq!(found.uris, ["spiffe://example/a"]);

        let many = certificate(|params| {
            params.subject_alt_names =
                (0..1_000).map(|n| SanType::DnsName(format!("{n}.example").try_into().unwrap())).collect();
        });
        let kept = identity(many).dns_names;
        assert!(kept.len() > 300 && kept.concat().len() <= MAX_NAMES, "{}", kept.len());
    }

    #[test]
    fn chains_are_kept_and_read_from_pem() {
        let (leaf, above) = (named(&[(DnType::CommonName, "leaf")]), named(&[(DnType::CommonName, "ca")]));
        let found = TlsIdentity::from_chain(&[leaf.clone(), above.clone()]).unwrap();
        assert_eq!(found.chain(), [leaf.clone(), above]);
        assert_eq!((found.subject(), found.fingerprint()), ("CN=leaf", fingerprint(&leaf).as_str()));
        assert_eq!(TlsIdentity::from_chain(&[]), Err(IdentityError::Missing));
        assert_eq!(TlsIdentity::from_pem(b""), Err(IdentityError::Missing));
        assert_eq!(TlsIdentity::from_pem(b"-----BEGIN CERTIFICATE-----"), Err(IdentityError::Malformed));
    }

    #[test]
    fn long_subjects_are_refused() {
        let of = |length: usize| {
            let name = "x".repeat(length);
            TlsIdentity::from_chain(&[named(&[(DnType::CommonName, &name)])])
        };
        assert!(of(MAX_SUBJECT - 3).is_ok());
        assert_eq!(of(MAX_SUBJECT - 2), Err(IdentityError::LongSubject));
        assert_eq!(of(60_000), Err(IdentityError::LongSubject));
    }

    #[test]
    fn a_damaged_extension_is_an_error() {
        let damaged = |content: &[u8]| {
            let content = content.to_vec();
            let certificate = certificate(|params| {
                let extension = CustomExtension::from_oid_content(&[2, 5, 29, 17], content);
                params.custom_extensions = vec![extension];
            });
            TlsIdentity::from_chain(&[certificate])
        };
        for content in [&b""[..], b"x", b"\x30\x05\x82", b"\x30\x03\x82\x05a"] {
            assert_eq!(damaged(content), Err(IdentityError::Malformed));
        }
        assert_eq!(damaged(b"\x30\x03\x82\x01a").unwrap().dns_names, ["a"]);
    }

    fn sample() -> Vec<u8> {
        certificate(|params| {
            params.distinguished_name.push(DnType::OrganizationName, "Acme");
            params.distinguished_name.push(DnType::CommonName, "acme");
            params.subject_alt_names = vec![SanType::URI("spiffe://example/a".try_into().unwrap())];
        })
        .to_vec()
    }

    #[test]
    fn a_cut_certificate_is_an_error() {
        let whole = sample();
        for length in 0..whole.len() {
            let cut = CertificateDer::from(&whole[..length]);
            assert_eq!(TlsIdentity::from_chain(&[cut]), Err(IdentityError::Malformed), "{length}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = TlsIdentity::from_chain(&[CertificateDer::from(bytes.as_slice())]);
            let _ = TlsIdentity::from_pem(&bytes);
            let _ = RdnSequence::from_der(&bytes).map(|name| name.to_string());
        }

        #[test]
        fn no_change_makes_it_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
            let mut bytes = sample();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Ok(identity) = TlsIdentity::from_chain(&[CertificateDer::from(bytes)]) {
                prop_assert!(identity.subject.len() <= MAX_SUBJECT && identity.fingerprint.len() == 64);
                prop_assert!(!identity.subject.contains(|c: char| c.is_ascii_control()));
            }
        }

        #[test]
        fn any_subject_can_be_read(text in any::<String>()) {
            if let Some(subject) = canonical_subject(&text) {
                prop_assert_eq!(canonical_subject(&subject), Some(subject));
            }
        }

        #[test]
        fn any_name_is_written_so_that_it_can_be_read(names in prop::collection::vec("[ -~é\u{0}\r\u{85}]{1,8}", 1..4)) {
            let kinds = [DnType::CommonName, DnType::OrganizationName, DnType::LocalityName];
            let parts: Vec<_> = kinds.into_iter().zip(names.iter().map(String::as_str)).collect();
            let subject = identity(named(&parts)).subject;
            prop_assert_eq!(canonical_subject(&subject), Some(subject));
        }
    }
}
