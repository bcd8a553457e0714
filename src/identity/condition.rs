//! Of whom something holds: exemptions and other limits.

use std::net::IpAddr;

use super::identifier::Facts;
use crate::config::model::Condition;

/// Whether `condition` holds of the request. Nobody may choose his own limits: a user or a claim counts if it
/// was verified, a field if a trusted proxy sent it. `address`: the client's.
pub fn applies(condition: &Condition, facts: &Facts<'_>, address: IpAddr) -> bool {
    match condition {
        Condition::Address(net) => net.contains(&address.to_canonical()),
        Condition::User(name) => facts.is_user_verified && facts.user == Some(name),
        Condition::Jwt { claim, value } => {
            facts.claims.and_then(|claims| claims.get(claim)).is_some_and(|said| said == *value)
        }
        Condition::Header { name, value } => {
            let mut lines = facts.headers.get_all(name).iter();
            facts.is_peer_trusted && lines.next() == Some(value) && lines.next().is_none()
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};
    use serde_json::json;

    use super::{super::claims::Claims, super::identifier::tests::facts, *};

    #[test]
    fn only_what_is_verified_or_said_by_a_trusted_proxy_counts() {
        let mut headers = HeaderMap::new();
        headers.insert("x-plan", HeaderValue::from_static("gold"));
        let claims = Claims::new(json!({"plan": "gold", "level": 3}).as_object().unwrap().clone());
        let address = "10.1.2.3".parse().unwrap();
        let known =
            Facts { is_user_verified: true, is_peer_trusted: true, claims: Some(&claims), ..facts(&headers) };
        let user = Condition::User("acme".to_owned());
        let header = Condition::Header {
            name: HeaderName::from_static("x-plan"),
            value: HeaderValue::from_static("gold"),
        };
        let jwt =
            |claim: &str, value: &str| Condition::Jwt { claim: claim.to_owned(), value: value.to_owned() };

        for condition in [&user, &header, &jwt("plan", "gold"), &jwt("level", "3")] {
            assert!(applies(condition, &known, address), "{condition:?}");
            assert!(!applies(condition, &facts(&headers), address), "{condition:?}: nobody vouches for it");
        }
        assert!(!applies(&jwt("plan", "silver"), &known, address));
        assert!(!applies(&Condition::User("other".to_owned()), &known, address));

        let net = Condition::Address("10.0.0.0/8".parse().unwrap());
        assert!(applies(&net, &facts(&headers), address));
        assert!(applies(&net, &facts(&headers), "::ffff:10.1.2.3".parse().unwrap()));
        assert!(!applies(&net, &facts(&headers), "11.1.2.3".parse().unwrap()));
    }

    #[test]
    fn of_two_lines_one_may_be_the_clients_own() {
        let mut headers = HeaderMap::new();
        headers.append("x-plan", HeaderValue::from_static("gold"));
        headers.append("x-plan", HeaderValue::from_static("silver"));
        let condition = Condition::Header {
            name: HeaderName::from_static("x-plan"),
            value: HeaderValue::from_static("gold"),
        };
        let known = Facts { is_peer_trusted: true, ..facts(&headers) };
        assert!(!applies(&condition, &known, "10.1.2.3".parse().unwrap()));
    }
}
