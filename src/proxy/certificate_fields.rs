//! The fields that show the client's certificate to the upstream: X-Forwarded-Client-Cert in Envoy's format, and
//! `Client-Cert` (RFC 9440).

use std::fmt::Write;

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{Entry, InvalidHeaderValue},
};

use super::headers::append_to_list;
use crate::{config::model::ForwardClientCertificate, tls::TlsIdentity};

static X_FORWARDED_CLIENT_CERT: HeaderName = HeaderName::from_static("x-forwarded-client-cert");
static CLIENT_CERT: HeaderName = HeaderName::from_static("client-cert");
static CLIENT_CERT_CHAIN: HeaderName = HeaderName::from_static("client-cert-chain");

/// Bytes of the certificates above the client's own that are forwarded. A client may send any there, and origins do
/// not accept fields of any length.
const MAX_CHAIN: usize = 16 << 10;

/// The fields about one certificate.
#[derive(Debug, Default)]
pub(super) struct CertificateFields {
    x_forwarded: Option<HeaderValue>,
    client_cert: Option<HeaderValue>,
    chain: Option<HeaderValue>,
}

impl CertificateFields {
    /// The fields about `certificate` in this form.
    pub(super) fn new(certificate: &TlsIdentity, form: ForwardClientCertificate) -> Self {
        let (leaf, above) = match certificate.chain() {
            [leaf, above @ ..] => (leaf.as_ref(), above),
            [] => return Self::default(),
        };
        let with_chain = match form {
            ForwardClientCertificate::Off => return Self::default(),
            ForwardClientCertificate::Xfcc => return Self::x_forwarded(certificate, None),
            ForwardClientCertificate::XfccCert => return Self::x_forwarded(certificate, Some(leaf)),
            ForwardClientCertificate::ClientCert => false,
            ForwardClientCertificate::ClientCertChain => true,
        };
        let is_short = above.iter().map(|certificate| certificate.len()).sum::<usize>() <= MAX_CHAIN;
        let is_shown = with_chain && !above.is_empty() && is_short;
        Self {
            x_forwarded: None,
            client_cert: byte_sequences([leaf]).ok(),
            chain: is_shown.then(|| byte_sequences(above.iter().map(AsRef::as_ref)).ok()).flatten(),
        }
    }

    fn x_forwarded(certificate: &TlsIdentity, shown: Option<&[u8]>) -> Self {
        Self { x_forwarded: element(certificate, shown).ok(), ..Self::default() }
    }

    /// Adds the fields to the request. X-Forwarded-Client-Cert of a trusted proxy gets another element, as
    /// X-Forwarded-For does. `Client-Cert` has room for one certificate: the one that the first proxy saw is kept.
    pub(super) fn add_to(&self, headers: &mut HeaderMap) {
        if let Some(element) = &self.x_forwarded {
            append_to_list(headers, &X_FORWARDED_CLIENT_CERT, element);
        }
        if let Some(certificate) = &self.client_cert
            && let Entry::Vacant(vacant) = headers.entry(&CLIENT_CERT)
        {
            vacant.insert(certificate.clone());
            headers.remove(&CLIENT_CERT_CHAIN);
            if let Some(chain) = &self.chain {
                headers.insert(&CLIENT_CERT_CHAIN, chain.clone());
            }
        }
    }
}

/// Byte sequences of a structured field, in a list (RFC 9440, 2.1; RFC 9651, 3.3.5).
fn byte_sequences<'a>(
    certificates: impl IntoIterator<Item = &'a [u8]>,
) -> Result<HeaderValue, InvalidHeaderValue> {
    let texts = certificates.into_iter().map(|certificate| format!(":{}:", STANDARD.encode(certificate)));
    HeaderValue::try_from(texts.collect::<Vec<_>>().join(", "))
}

/// One element of X-Forwarded-Client-Cert, in Envoy's order. Values with `,`, `;` or `=` in them are quoted.
fn element(certificate: &TlsIdentity, shown: Option<&[u8]>) -> Result<HeaderValue, InvalidHeaderValue> {
    let mut out = format!("Hash={}", certificate.fingerprint());
    if let Some(der) = shown {
        out += &format!(";Cert=\"{}\"", encoded_pem(der));
    }
    out += ";Subject=\"";
    push_subject(&mut out, certificate.subject());
    out.push('"');
    let uris = certificate.uris().iter().map(|name| ("URI", name));
    for (key, name) in uris.chain(certificate.dns_names().iter().map(|name| ("DNS", name))) {
        // No valid name has these characters, and readers disagree on how to escape them.
        if name.contains(['"', '\\']) {
            continue;
        }
        out += &match name.contains([',', ';', '=']) {
            true => format!(";{key}=\"{name}\""),
            false => format!(";{key}={name}"),
        };
    }
    HeaderValue::try_from(out)
}

/// Writes the subject in ASCII, as OpenSSL's `-nameopt RFC2253` does. Quotes and backslashes are `\22` and `\5C`,
/// which RFC 4514 allows, so that no reader takes one for the end of the quoted value, or for an escape of that end.
fn push_subject(out: &mut String, subject: &str) {
    let mut rest = subject.chars();
    while let Some(character) = rest.next() {
        let escaped = if character == '\\' { rest.clone().next() } else { None };
        match (character, escaped) {
            ('\\', Some(special @ ('"' | '\\'))) => {
                rest.next();
                let _ = write!(out, "\\{:02X}", u32::from(special));
            }
            (character, _) if character.is_ascii() => out.push(character),
            (character, _) => {
                let mut buffer = [0; 4];
                for byte in character.encode_utf8(&mut buffer).bytes() {
                    // Writing to a string cannot fail.
                    let _ = write!(out, "\\{byte:02X}");
                }
            }
        }
    }
}

/// PEM (RFC 7468) in percent-encoding, as Envoy and nginx write it.
fn encoded_pem(der: &[u8]) -> String {
    let base64 = STANDARD.encode(der);
    let mut out = String::with_capacity(base64.len() + base64.len() / 8 + 80);
    out.push_str("-----BEGIN%20CERTIFICATE-----%0A");
    for (at, character) in base64.chars().enumerate() {
        if at > 0 && at % 64 == 0 {
            out.push_str("%0A");
        }
        match character {
            '+' => out.push_str("%2B"),
            '/' => out.push_str("%2F"),
            '=' => out.push_str("%3D"),
            character => out.push(character),
        }
    }
    out + "%0A-----END%20CERTIFICATE-----%0A"
}

#[cfg(test)]
mod tests {
    use percent_encoding::percent_decode_str;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
    use rustls::pki_types::CertificateDer;

    use super::*;

    fn certificate(parts: &[(DnType, &str)], names: Vec<SanType>) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        parts.iter().for_each(|(kind, value)| params.distinguished_name.push(kind.clone(), *value));
        params.subject_alt_names = names;
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    fn fields(chain: &[CertificateDer<'_>], form: ForwardClientCertificate) -> HeaderMap {
        let mut headers = HeaderMap::new();
        CertificateFields::new(&TlsIdentity::from_chain(chain).unwrap(), form).add_to(&mut headers);
        headers
    }

    fn acme() -> CertificateDer<'static> {
        let names = vec![
            SanType::DnsName("a.example".try_into().unwrap()),
            SanType::URI("spiffe://example/a".try_into().unwrap()),
            SanType::URI("https://example/?a=b;c,d".try_into().unwrap()),
            SanType::URI("urn:\"x".try_into().unwrap()),
        ];
        certificate(&[(DnType::OrganizationName, "Acme, Inc."), (DnType::CommonName, "acme")], names)
    }

    #[test]
    fn envoys_field_has_its_order_and_quotes() {
        let acme = acme();
        let hash = TlsIdentity::from_chain(std::slice::from_ref(&acme)).unwrap().fingerprint().to_owned();
        let headers = fields(std::slice::from_ref(&acme), ForwardClientCertificate::Xfcc);
        let names = r#"URI=spiffe://example/a;URI="https://example/?a=b;c,d";DNS=a.example"#;
        assert_eq!(
            headers["x-forwarded-client-cert"].to_str().unwrap(),
            format!(r#"Hash={hash};Subject="CN=acme,O=Acme\, Inc.";{names}"#)
        );
        assert_eq!(headers.len(), 1);

        let headers = fields(std::slice::from_ref(&acme), ForwardClientCertificate::XfccCert);
        let text = headers["x-forwarded-client-cert"].to_str().unwrap();
        let (_, encoded) = text.split_once(";Cert=\"").unwrap();
        let (encoded, after) = encoded.split_once('"').unwrap();
        assert!(after.starts_with(";Subject=\"CN=acme"), "{after}");
        let pem = percent_decode_str(encoded).decode_utf8().unwrap();
        assert_eq!(TlsIdentity::from_pem(pem.as_bytes()).unwrap().chain(), [acme]);
        assert!(pem.lines().all(|line| line.len() <= 64), "{pem}");
    }

    #[test]
    fn no_subject_ends_its_quotes() {
        for (name, written) in [
            ("a\";URI=spiffe://forged", r"CN=a\22\;URI=spiffe://forged"),
            ("a\\", r"CN=a\5C"),
            ("a\\\";b", r"CN=a\5C\22\;b"),
            ("é\r\n", r"CN=\C3\A9\0d\0a"),
            ("a,b+c ", r"CN=a\,b\+c\ "),
            ("", "CN="),
        ] {
            let headers =
                fields(&[certificate(&[(DnType::CommonName, name)], vec![])], ForwardClientCertificate::Xfcc);
            let text = headers["x-forwarded-client-cert"].to_str().unwrap();
            let (_, subject) = text.split_once(";Subject=\"").unwrap();
            assert_eq!(subject, format!("{written}\""));
        }
    }

    #[test]
    fn client_cert_is_a_byte_sequence() {
        let (leaf, above) = (acme(), certificate(&[(DnType::CommonName, "ca")], vec![]));
        let chain = [leaf.clone(), above.clone(), above.clone()];
        let sequence = |der: &[u8]| format!(":{}:", STANDARD.encode(der));
        let headers = fields(&chain, ForwardClientCertificate::ClientCert);
        assert_eq!(headers["client-cert"], sequence(&leaf));
        assert_eq!(headers.len(), 1);
        let headers = fields(&chain, ForwardClientCertificate::ClientCertChain);
        assert_eq!(headers["client-cert-chain"], format!("{0}, {0}", sequence(&above)));
        assert_eq!(headers.len(), 2);
        assert_eq!(fields(&chain[..1], ForwardClientCertificate::ClientCertChain).len(), 1);
        let endless: Vec<_> = std::iter::once(leaf).chain(std::iter::repeat_n(above, 60)).collect();
        assert_eq!(fields(&endless, ForwardClientCertificate::ClientCertChain).len(), 1);
        assert!(fields(&endless, ForwardClientCertificate::Off).is_empty());
    }

    #[test]
    fn fields_of_a_trusted_proxy_come_first() {
        let chain = [acme(), certificate(&[(DnType::CommonName, "ca")], vec![])];
        let identity = TlsIdentity::from_chain(&chain).unwrap();
        let said = |form| {
            let mut headers = HeaderMap::new();
            headers.insert(&X_FORWARDED_CLIENT_CERT, HeaderValue::from_static("Hash=1"));
            headers.insert(&CLIENT_CERT, HeaderValue::from_static(":AA==:"));
            CertificateFields::new(&identity, form).add_to(&mut headers);
            headers
        };
        let headers = said(ForwardClientCertificate::Xfcc);
        let text = headers["x-forwarded-client-cert"].to_str().unwrap();
        assert!(text.starts_with("Hash=1, Hash="), "{text}");
        let headers = said(ForwardClientCertificate::ClientCertChain);
        assert_eq!(headers["client-cert"], ":AA==:");
        assert!(!headers.contains_key("client-cert-chain"), "of another certificate");
    }
}
