//! The conditions of exemptions and of overrides.

use std::net::IpAddr;

use super::identifier::RequestAttributes;
use crate::{config::model::Condition, request_values::FoundValue};

/// Whether a request meets `condition`. A client must not be able to choose its own limits: a user or a claim counts if
/// it was verified, a certificate always (only verified ones are known), a header field if a trusted proxy sent it. A value
/// of the request is also in the key, so that each has a count of its own.
/// `address`: the client's, if known.
pub fn condition_matches(
    condition: &Condition,
    attributes: &RequestAttributes<'_>,
    address: Option<IpAddr>,
) -> bool {
    match condition {
        Condition::Address(net) => address.is_some_and(|address| net.contains(&address.to_canonical())),
        Condition::User(name) => attributes.is_user_verified && attributes.user == Some(name),
        Condition::Jwt { claim, value } => {
            attributes.claims.and_then(|claims| claims.get(claim)).is_some_and(|actual| actual == *value)
        }
        Condition::Tls { field, value } => {
            attributes.certificate.is_some_and(|certificate| certificate.field(*field) == value)
        }
        Condition::OfKey { field, value } => {
            attributes.key.and_then(|key| key.field(*field)).is_some_and(|actual| actual == value)
        }
        Condition::Value { name, text, client } => {
            matches!(attributes.values.get(name), FoundValue::Text(found) if found == text)
                && client.as_ref().is_none_or(|client| condition_matches(client, attributes, address))
        }
        Condition::Header { name, value } => {
            let mut lines = attributes.headers.get_all(name).iter();
            attributes.is_peer_trusted && lines.next() == Some(value) && lines.next().is_none()
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};
    use serde_json::json;

    use super::{super::identifier::tests::attributes, super::jwt::TokenClaims, *};
    use crate::tls::{CertificateField, TlsIdentity};

    #[test]
    fn only_verified_users_and_fields_of_trusted_proxies_count() {
        let mut headers = HeaderMap::new();
        headers.insert("x-plan", HeaderValue::from_static("gold"));
        let claims = TokenClaims::new(json!({"plan": "gold", "level": 3}).as_object().unwrap().clone());
        let address = Some("10.1.2.3".parse().unwrap());
        let known = RequestAttributes {
            is_user_verified: true,
            is_peer_trusted: true,
            claims: Some(&claims),
            ..attributes(&headers)
        };
        let user = Condition::User("acme".to_owned());
        let header = Condition::Header {
            name: HeaderName::from_static("x-plan"),
            value: HeaderValue::from_static("gold"),
        };
        let jwt =
            |claim: &str, value: &str| Condition::Jwt { claim: claim.to_owned(), value: value.to_owned() };

        for condition in [&user, &header, &jwt("plan", "gold"), &jwt("level", "3")] {
            assert!(condition_matches(condition, &known, address), "{condition:?}");
            assert!(
                !condition_matches(condition, &attributes(&headers), address),
                "{condition:?}: not verified"
            );
        }
        assert!(!condition_matches(&jwt("plan", "silver"), &known, address));
        assert!(!condition_matches(&Condition::User("other".to_owned()), &known, address));

        let acme = TlsIdentity::assumed("CN=acme".to_owned(), "ab".repeat(32));
        let with_certificate = RequestAttributes { certificate: Some(&acme), ..attributes(&headers) };
        for (field, value, is_met) in [
            (CertificateField::Subject, "CN=acme", true),
            (CertificateField::Subject, "CN=acme,O=Acme", false),
            (CertificateField::Subject, "", false),
            (CertificateField::Fingerprint, &*"ab".repeat(32), true),
            (CertificateField::Fingerprint, "CN=acme", false),
        ] {
            let condition = Condition::Tls { field, value: value.to_owned() };
            assert_eq!(condition_matches(&condition, &with_certificate, address), is_met, "{condition:?}");
            assert!(!condition_matches(&condition, &known, address), "{condition:?}: no certificate");
        }

        let net = Condition::Address("10.0.0.0/8".parse().unwrap());
        assert!(condition_matches(&net, &attributes(&headers), address));
        assert!(condition_matches(&net, &attributes(&headers), "::ffff:10.1.2.3".parse().ok()));
        assert!(!condition_matches(&net, &attributes(&headers), "11.1.2.3".parse().ok()));
        assert!(!condition_matches(&net, &attributes(&headers), None));
    }

    #[test]
    fn a_repeated_field_does_not_count() {
        let mut headers = HeaderMap::new();
        headers.append("x-plan", HeaderValue::from_static("gold"));
        headers.append("x-plan", HeaderValue::from_static("silver"));
        let condition = Condition::Header {
            name: HeaderName::from_static("x-plan"),
            value: HeaderValue::from_static("gold"),
        };
        let known = RequestAttributes { is_peer_trusted: true, ..attributes(&headers) };
        assert!(!condition_matches(&condition, &known, "10.1.2.3".parse().ok()));
    }
}
