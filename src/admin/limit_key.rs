//! Limit keys as operators write them, and the policies that can have them.

use std::{borrow::Cow, net::IpAddr};

use ipnet::IpNet;
use percent_encoding::percent_decode_str;

use crate::{
    abuse::{self, UserNaming, bans::normalize_user},
    api_keys::{ApiKey, KeyField},
    config::model::{Condition, KeyPart, KeyRecipe, Missing, UserSource},
    limit::Policy,
};

/// Kinds of key parts: `path:/a`.
const PLAIN: [&str; 9] = ["ip", "user", "customer", "api_key", "plan", "path", "route", "host", "method"];
/// Kinds of key parts with a name: `header:x-api-key=VALUE`.
const NAMED: [&str; 7] = ["header", "cookie", "query", "jwt", "tls", "value", "descriptor"];

/// The key of a limit: `ip:203.0.113.7+path:/a`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LimitKey {
    pub(super) text: String,
    parts: Vec<String>,
}

impl LimitKey {
    /// Parses a key. An address becomes the prefix that identifies its client; alone, it needs no `ip:`. A user is
    /// named as `names` name users in keys.
    ///
    /// # Errors
    /// The key is malformed: the reason, for operators.
    pub(super) fn parse(text: &str, ipv6_prefix: u8, names: &UserNaming) -> Result<Self, String> {
        let is_address = text.parse::<IpAddr>().is_ok() || text.parse::<IpNet>().is_ok();
        let text = if is_address { Cow::Owned(format!("ip:{text}")) } else { Cow::Borrowed(text) };
        let parts: Vec<String> = split(&text)
            .into_iter()
            .map(|part| read_part(part, ipv6_prefix, names))
            .collect::<Result<_, _>>()?;
        Ok(Self { text: parts.join("+"), parts })
    }

    /// A key as the store has it.
    pub(super) fn stored(text: &str) -> Self {
        Self { text: text.to_owned(), parts: text.split('+').map(str::to_owned).collect() }
    }

    /// The key of limits by this field of an API key.
    pub(super) fn of_field(api_key: &ApiKey, field: KeyField) -> Self {
        Self::stored(&format!(
            "{}:{}",
            field.name(),
            normalize_user(api_key.field(field).unwrap_or_default())
        ))
    }

    /// Whether a limit of this policy may have the key.
    pub(super) fn may_be_of(&self, policy: &Policy) -> bool {
        self.is_keyed(policy) || self.is_address() && policy.missing != Missing::Deny
    }

    /// Whether one of the policy's recipes makes such keys. If not, the policy can have the key only as a fallback, for
    /// requests that lack all its recipes' parts.
    pub(super) fn is_keyed(&self, policy: &Policy) -> bool {
        policy.keys.iter().any(|recipe| self.is_made_by(recipe))
    }

    fn is_address(&self) -> bool {
        matches!(self.parts.as_slice(), [only] if only.starts_with("ip:"))
    }

    /// The parts, by kind and value.
    fn values(&self) -> impl Iterator<Item = (&str, &str)> {
        self.parts.iter().filter_map(|part| part.split_once(':'))
    }

    /// The value of the part of this kind.
    pub(super) fn value_of(&self, kind: &str) -> Option<&str> {
        self.values().find(|(of, _)| *of == kind).map(|(_, value)| value)
    }

    /// Whether it names a client by something of its requests, which others do not have.
    pub(super) fn names_a_client(&self) -> bool {
        self.values().any(|(kind, _)| NAMED.contains(&kind) && kind != "value")
    }

    /// Whether requests with this API key can have the key. `sources`: where users are read from.
    pub(super) fn is_held_with(&self, api_key: &ApiKey, sources: &[UserSource], names: &UserNaming) -> bool {
        let mut fields =
            KeyField::ALL.into_iter().filter_map(|field| Some((field, self.value_of(field.name())?)));
        let user = self.value_of("user");
        let names_user = |source: &UserSource| match source {
            UserSource::ApiKey(field) => {
                user.zip(api_key.field(*field)).is_some_and(|(user, name)| is_user(user, name, names))
            }
            _ => false,
        };
        fields.all(|(field, value)| api_key.field(field) == Some(&decoded(value)))
            && user.is_none_or(|_| sources.iter().any(names_user))
    }

    /// Whether requests with this key meet the condition; of one on a value, the part about the value. `None`: the key does not
    /// tell.
    pub(super) fn is_certain_of(&self, condition: &Condition, names: &UserNaming) -> Option<bool> {
        let named = |kind: &str, name: &str| {
            let mut values = self.values().filter(|(of, _)| *of == kind);
            values.find_map(|(_, value)| value.split_once('=').filter(|(of, _)| decoded(of) == name))
        };
        let is = |(_, actual): (&str, &str), value: &str| decoded(actual) == value;
        match condition {
            Condition::Address(net) => {
                let client = abuse::parse(self.value_of("ip")?)?;
                // Of a client that is a prefix, some requests may come from a smaller one.
                (net.contains(&client) || !client.contains(net)).then(|| net.contains(&client))
            }
            Condition::User(name) => self.value_of("user").map(|user| is_user(user, name, names)),
            Condition::Tls { field, value } => named("tls", field.name()).map(|part| is(part, value)),
            Condition::OfKey { field, value } => self.value_of(field.name()).map(|of| decoded(of) == *value),
            Condition::Jwt { claim, value } => named("jwt", claim).map(|part| is(part, value)),
            Condition::Value { name, text, .. } => named("value", name).map(|part| {
                let pseudonym = names.pseudonym(text);
                is(part, text) || pseudonym.is_some_and(|pseudonym| is(part, &pseudonym))
            }),
            // It is also a matter of who sent it.
            Condition::Header { name, value } => {
                let differs = named("header", name.as_str())?.1;
                (decoded(differs).as_bytes() != value.as_bytes()).then_some(false)
            }
        }
    }

    fn is_made_by(&self, recipe: &KeyRecipe) -> bool {
        recipe.0.len() == self.parts.len()
            && recipe.0.iter().zip(&self.parts).all(|(part, text)| is_made_by(part, text))
    }
}

/// Whether `part` of a key, which may be a pseudonym, is this user.
fn is_user(part: &str, name: &str, names: &UserNaming) -> bool {
    names.pseudonym(name).map_or_else(|| decoded(part) == name, |pseudonym| part == pseudonym)
}

fn is_made_by(part: &KeyPart, text: &str) -> bool {
    let (kind, value) = text.split_once(':').unwrap_or((text, ""));
    let is_named = |of: &str, name: &str| {
        kind == of && value.split_once('=').is_some_and(|(named, _)| decoded(named) == name)
    };
    match part {
        KeyPart::Ip => kind == "ip",
        KeyPart::User => kind == "user",
        KeyPart::Path => kind == "path",
        KeyPart::Route => kind == "route",
        KeyPart::Host => kind == "host",
        KeyPart::Method => kind == "method",
        KeyPart::Global => text == "global",
        KeyPart::Header(name) => is_named("header", name.as_str()),
        KeyPart::Cookie(name) => is_named("cookie", name),
        KeyPart::Query(name) => is_named("query", name),
        KeyPart::Jwt(claim) => is_named("jwt", claim),
        KeyPart::Tls(field) => is_named("tls", field.name()),
        KeyPart::OfKey(field) => kind == field.name(),
        KeyPart::Value(name) => is_named("value", name),
        KeyPart::Descriptor(name) => is_named("descriptor", name),
    }
}

fn decoded(text: &str) -> Cow<'_, str> {
    percent_decode_str(text).decode_utf8_lossy()
}

/// Splits a key at each `+`, and at each space before another part: a `+` in a URL's query is decoded as a space. That
/// is unambiguous: a colon follows only the kind of a part, except in addresses, which have no spaces.
fn split(text: &str) -> Vec<&str> {
    let begins_part = |rest: &str| {
        let is_kind = |kind: &str| PLAIN.contains(&kind) || NAMED.contains(&kind);
        rest == "global"
            || rest.starts_with("global+")
            || rest.split_once(':').is_some_and(|(kind, _)| is_kind(kind))
    };
    let (mut parts, mut from) = (Vec::new(), 0);
    for (at, byte) in text.bytes().enumerate() {
        if byte == b'+' || byte == b' ' && begins_part(&text[at + 1..]) {
            parts.push(&text[from..at]);
            from = at + 1;
        }
    }
    parts.push(&text[from..]);
    parts
}

fn read_part(part: &str, ipv6_prefix: u8, names: &UserNaming) -> Result<String, String> {
    const FORM: &str = "write it as the store does, such as ip:203.0.113.7, user:acme, header:x-api-key=VALUE or \
        ip:203.0.113.7+path:/a";
    if part == "global" {
        return Ok(part.to_owned());
    }
    let wrong = |why: &str| format!("{} {why}; {FORM}", part.escape_debug());
    match part.split_once(':') {
        Some((_, "")) => Err(wrong("has no value")),
        Some(("ip", address)) => {
            let net: Option<IpNet> = match address.parse::<IpAddr>() {
                Ok(address) => Some(abuse::masked(address, ipv6_prefix)),
                Err(_) => abuse::parse(address).filter(|net| abuse::masked(net.addr(), ipv6_prefix) == *net),
            };
            net.map(|net| format!("ip:{}", abuse::shown(net)))
                .ok_or_else(|| wrong("is not a client's address"))
        }
        Some(("user", name)) => Ok(match names.pseudonym_of_input(&decoded(name)) {
            Some(pseudonym) => format!("user:{pseudonym}"),
            None => format!("user:{}", normalize_user(name)),
        }),
        Some((kind, _)) if PLAIN.contains(&kind) => Ok(part.to_owned()),
        Some((kind, value)) if NAMED.contains(&kind) => match value.split_once('=') {
            // A value that can't be read is empty.
            Some((name, value)) if !name.is_empty() && (!value.is_empty() || kind == "value") => {
                Ok(part.to_owned())
            }
            _ => Err(wrong("needs a name and a value")),
        },
        _ => Err(wrong("is not a valid part of a key")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::CertificateField;

    fn read(text: &str) -> Result<String, String> {
        LimitKey::parse(text, 64, &UserNaming::default()).map(|key| key.text)
    }

    #[test]
    fn keys_are_read_as_the_store_has_them() {
        for (written, key) in [
            ("ip:203.0.113.7", "ip:203.0.113.7"),
            ("203.0.113.7", "ip:203.0.113.7"),
            ("2001:db8::1", "ip:2001:db8::/64"),
            ("2001:db8::/64", "ip:2001:db8::/64"),
            ("ip:2001:db8::1", "ip:2001:db8::/64"),
            ("ip:2001:db8::/64", "ip:2001:db8::/64"),
            ("ip:::ffff:203.0.113.7", "ip:203.0.113.7"),
            ("ip:203.0.113.7+path:/a b", "ip:203.0.113.7+path:/a b"),
            ("ip:203.0.113.7 path:/a", "ip:203.0.113.7+path:/a"),
            ("user:a b", "user:a b"),
            ("user:tenant:ann", "user:tenant%3Aann"),
            ("user:tenant%3Aann", "user:tenant%3Aann"),
            ("user:a global", "user:a+global"),
            ("user:any host", "user:any host"),
            ("header:x-api-key=a=b", "header:x-api-key=a=b"),
            ("tls:subject=CN=a b,O=c path:/a", "tls:subject=CN=a b,O=c+path:/a"),
            ("global", "global"),
        ] {
            assert_eq!(read(written).as_deref(), Ok(key), "{written}");
        }
        for wrong in [
            "",
            "ip",
            "ip:",
            "ip:x",
            "ip:10.0.0.0/8",
            "10.0.0.0/8",
            "user:",
            "header:x",
            "header:=x",
            "x:y",
            "ip:1.2.3.4+",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_key_is_of_the_policies_that_can_make_it() {
        let recipe = |parts: &[KeyPart]| KeyRecipe(parts.to_vec());
        let key = |text: &str| LimitKey::parse(text, 64, &UserNaming::default()).unwrap();
        let composite = recipe(&[KeyPart::Ip, KeyPart::Path]);
        assert!(key("ip:1.2.3.4+path:/a").is_made_by(&composite));
        assert!(!key("ip:1.2.3.4").is_made_by(&composite));
        let header = recipe(&[KeyPart::Header("x-api-key".parse().unwrap())]);
        assert!(key("header:x-api-key=a").is_made_by(&header));
        assert!(!key("header:x-api-keys=a").is_made_by(&header));
        let subject = recipe(&[KeyPart::Tls(CertificateField::Subject)]);
        assert!(key("tls:subject=CN=a,O=b").is_made_by(&subject));
        assert!(!key("tls:fingerprint=ab").is_made_by(&subject));
        let of = |value: &str| Condition::Tls { field: CertificateField::Subject, value: value.to_owned() };
        let names = UserNaming::default();
        assert_eq!(key("tls:subject=CN=a%2BO=b").is_certain_of(&of("CN=a+O=b"), &names), Some(true));
        assert_eq!(key("tls:subject=CN=a").is_certain_of(&of("CN=b"), &names), Some(false));
        assert_eq!(key("tls:fingerprint=CN=a").is_certain_of(&of("CN=a"), &names), None);
        assert!(
            key("jwt:https%3A//a/plan=gold")
                .is_made_by(&recipe(&[KeyPart::Jwt("https://a/plan".to_owned())]))
        );
    }
}
