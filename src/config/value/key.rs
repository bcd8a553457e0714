//! Keys of policies, and conditions of exemptions and overrides.

use http::{HeaderName, HeaderValue};
use ipnet::IpNet;

use crate::{
    api_keys::KeyField,
    config::{
        nearest::nearest,
        value::{
            Invalid,
            http::{cookie_name, field_name, field_value, parameter_name},
            names::{printable_text, resource_name},
            network::network,
        },
    },
    tls::{CertificateField, canonical_subject, read_fingerprint},
};

const KEY_FORMS: [&str; 18] = [
    "ip",
    "user",
    "customer",
    "api_key",
    "plan",
    "header:NAME",
    "cookie:NAME",
    "query:NAME",
    "jwt:CLAIM",
    "tls:subject",
    "tls:fingerprint",
    "path",
    "route",
    "host",
    "method",
    "value:NAME",
    "descriptor:NAME",
    "global",
];

/// Reads `ip`, `header:x-api-key`, or several parts as one key: `ip+path`. Names cannot hold a `+`.
///
/// The address always comes first, and the other parts keep their order. So `path+ip` and `ip+path` are the same key, and
/// clearing an address clears all its limits.
pub(in crate::config) fn key_recipe(text: &str) -> Result<KeyRecipe, Invalid> {
    exact_key_recipe(text).map_err(|invalid| with_suggestion(invalid, text))
}

/// As [`key_recipe`], without a suggestion for several parts.
fn exact_key_recipe(text: &str) -> Result<KeyRecipe, Invalid> {
    let mut parts = Vec::new();
    for word in text.split('+') {
        let part = key_part(word)?;
        if parts.contains(&part) {
            return Err(Invalid::new("names the same part twice"));
        }
        parts.push(part);
    }
    parts.sort_by_key(|part| *part != KeyPart::Ip);
    Ok(KeyRecipe(parts))
}

/// A suggestion for the whole key: one for a part alone would drop the others.
fn with_suggestion(invalid: Invalid, text: &str) -> Invalid {
    let is_known_kind = text.starts_with("header: ") || text.starts_with("cookie: ");
    if is_known_kind && !text.contains('+') {
        return invalid;
    }
    match suggest_key(text) {
        Some(key) if text.contains(',') => invalid.suggestion(format!(
            "did you mean `[{}]`, each limited on its own, or `{key}`, each combination?",
            key.replace('+', ", ")
        )),
        Some(key) => invalid.suggestion(format!("did you mean `{key}`?")),
        None if text.contains(SEPARATORS) => Invalid::new("is not a key").expected(key_forms()),
        None => invalid,
    }
}

fn key_forms() -> String {
    format!("one of {}, or several joined by +, such as ip+path", KEY_FORMS.join(", "))
}

fn key_part(word: &str) -> Result<KeyPart, Invalid> {
    let named = word.split_once(':');
    match named {
        Some(("header", name)) => field_name(name).map(KeyPart::Header),
        Some(("cookie", name)) => cookie_name(name).map(KeyPart::Cookie),
        Some(("jwt", claim)) if !claim.is_empty() => Ok(KeyPart::Jwt(claim.to_owned())),
        Some(("tls", field)) => certificate_field(field).map(KeyPart::Tls),
        Some(("value", name)) if !name.is_empty() => resource_name(name).map(KeyPart::Value),
        Some(("query", name)) if !name.is_empty() => parameter_name(name).map(KeyPart::Query),
        Some(("descriptor", name)) if !name.is_empty() => parameter_name(name).map(KeyPart::Descriptor),
        _ => match word {
            "ip" => Ok(KeyPart::Ip),
            "user" => Ok(KeyPart::User),
            "path" => Ok(KeyPart::Path),
            "route" => Ok(KeyPart::Route),
            "host" => Ok(KeyPart::Host),
            "method" => Ok(KeyPart::Method),
            "global" => Ok(KeyPart::Global),
            _ => KeyField::named(word)
                .map(KeyPart::OfKey)
                .ok_or_else(|| unknown_key(named.map_or(word, |(kind, _)| kind))),
        },
    }
    .map_err(|invalid| match named {
        Some((kind @ ("header" | "cookie"), name)) if name.starts_with(' ') => {
            let suggestion = format!("write `{kind}:{}`", name.trim());
            Invalid::new(format!("has a space after `{kind}:`")).suggestion(suggestion)
        }
        Some((kind @ ("header" | "cookie"), _)) => Invalid::new(format!("has an invalid {kind} name")),
        _ => invalid,
    })
}

/// Reads the field in `tls:FIELD`.
pub(in crate::config) fn certificate_field(text: &str) -> Result<CertificateField, Invalid> {
    let named = |name: &str| CertificateField::ALL.into_iter().find(|(known, _)| *known == name);
    if let Some((_, field)) = named(text) {
        return Ok(field);
    }
    let invalid = Invalid::new("names no part of a certificate").expected("tls:subject or tls:fingerprint");
    Err(match nearest(text.trim(), CertificateField::ALL.map(|(name, _)| name)) {
        Some(name) => invalid.suggestion(format!("did you mean `tls:{name}`?")),
        None => invalid,
    })
}

fn unknown_key(kind: &str) -> Invalid {
    let invalid = Invalid::new("is not a key").expected(key_forms());
    let bare = KEY_FORMS.map(|kind| kind.split(':').next().unwrap_or(kind));
    let near = nearest(kind, bare).and_then(|near| KEY_FORMS.into_iter().find(|kind| kind.starts_with(near)));
    match near {
        Some(near) => invalid.suggestion(format!("did you mean `{near}`?")),
        None => invalid,
    }
}

/// Names of parts of a key in other proxies, and ours.
const NAMES: [(&[&str], &str); 10] = [
    (
        &[
            "address",
            "addr",
            "client",
            "client_ip",
            "clientip",
            "remote_addr",
            "remote_address",
            "remote_ip",
            "source_ip",
            "src",
            "binary_remote_addr",
            "ip_address",
            "ipaddress",
            "x_forwarded_for",
            "x_real_ip",
        ],
        "ip",
    ),
    (&["username", "user_id", "userid", "consumer", "account", "remote_user", "login", "user_name"], "user"),
    (&["api_key", "apikey", "key_auth", "credential"], "api_key"),
    (&["session", "session_id", "sessionid"], "cookie:session"),
    (&["uri", "url", "request_uri", "request_path", "document_uri"], "path"),
    (&["hostname", "server_name", "http_host", "request_host", "domain"], "host"),
    (&["request_method", "verb", "http_method"], "method"),
    (&["all", "any", "everyone", "everybody", "shared", "total"], "global"),
    (&["ssl_client_s_dn", "client_cert", "certificate"], "tls:subject"),
    (&["ssl_client_fingerprint"], "tls:fingerprint"),
];

/// Prefixes of nginx's variables, and of other proxies' names, with a name behind them; and ours.
const PREFIXES: [(&str, &str); 12] = [
    ("http_", "header:"),
    ("cookie_", "cookie:"),
    ("arg_", "query:"),
    ("jwt_claim_", "jwt:"),
    ("header.", "header:"),
    ("headers.", "header:"),
    ("header=", "header:"),
    ("header[", "header:"),
    ("cookie.", "cookie:"),
    ("cookies.", "cookie:"),
    ("query.", "query:"),
    ("jwt.", "jwt:"),
];

/// Separators of the parts of a key.
const SEPARATORS: [char; 7] = ['+', ',', '&', '|', ';', ' ', '$'];

/// The key that was probably meant by `ip + path`, `api_key`, `$binary_remote_addr`, if all of its parts are known.
pub(in crate::config) fn suggest_key(text: &str) -> Option<String> {
    let text = text.trim().replace(": ", ":").replace(" and ", "+");
    let parts: Option<Vec<String>> = match part(&text) {
        Some(part) => Some(vec![part]),
        None => text.split(SEPARATORS).filter(|word| !word.is_empty()).map(part).collect(),
    };
    let mut unique: Vec<String> = Vec::new();
    for part in parts? {
        if !unique.contains(&part) {
            unique.push(part);
        }
    }
    let key = unique.join("+");
    exact_key_recipe(&key).is_ok().then_some(key)
}

/// One part.
fn part(word: &str) -> Option<String> {
    let word = word.trim().trim_start_matches('$').trim_matches(['{', '}']);
    if let Some((kind @ ("header" | "cookie" | "query" | "jwt" | "tls" | "value" | "descriptor"), name)) =
        word.split_once(':')
    {
        return Some(format!("{kind}:{}", name.trim()));
    }
    let lower = word.to_ascii_lowercase();
    let plain = lower.replace('-', "_");
    if KEY_FORMS.contains(&&*lower) {
        return Some(lower);
    }
    if let Some((_, ours)) = NAMES.iter().find(|(theirs, _)| theirs.contains(&&*plain)) {
        return Some((*ours).to_owned());
    }
    for (prefix, kind) in PREFIXES {
        if let Some(name) = lower.strip_prefix(prefix).map(|name| name.trim_end_matches(']')) {
            let name = if prefix == "http_" { name.replace('_', "-") } else { name.to_owned() };
            return Some(format!("{kind}{name}"));
        }
    }
    lower.starts_with("x-").then(|| format!("header:{lower}"))
}

const CONDITION_FORMS: [&str; 8] = [
    "user:NAME",
    "customer:NAME",
    "api_key:ID",
    "plan:NAME",
    "jwt:CLAIM=VALUE",
    "header:NAME=VALUE",
    "tls:subject=SUBJECT",
    "tls:fingerprint=SHA256",
];

/// Reads an address or a network, `user:NAME`, `customer:NAME`, `api_key:ID`, `plan:NAME`, `jwt:CLAIM=VALUE`, `header:NAME=VALUE`, `tls:subject=SUBJECT`,
/// `tls:fingerprint=SHA256`.
pub(in crate::config) fn condition(text: &str) -> Result<Condition, Invalid> {
    let valued = |rest: &str| rest.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    match text.split_once(':') {
        Some((kind @ ("user" | "customer" | "api_key" | "plan"), name)) => condition_with_key(kind, name),
        Some((kind @ ("jwt" | "header"), rest)) => match valued(rest) {
            Some((name, value)) => condition_with_key(&format!("{kind}:{name}"), &value),
            None => Err(Invalid::new("has no value").expected(format!("{kind}:NAME=VALUE"))),
        },
        Some(("tls", rest)) => match valued(rest) {
            Some((field, value)) => condition_with_key(&format!("tls:{field}"), &value),
            None => Err(certificate_field(rest)
                .err()
                .unwrap_or_else(|| Invalid::new("has no value").expected(format!("tls:{rest}=VALUE")))),
        },
        kind => network(text).map(Condition::Address).map_err(|invalid| {
            let near = kind.and_then(|(kind, _)| {
                nearest(kind, ["user", "customer", "api_key", "plan", "jwt", "header", "tls"])
            });
            match near.and_then(|near| CONDITION_FORMS.into_iter().find(|kind| kind.starts_with(near))) {
                Some(near) => {
                    Invalid::new("is not a valid condition").expected(format!("did you mean `{near}`?"))
                }
                None if text.parse::<ipnet::IpNet>().is_ok() => invalid,
                None => Invalid::new("is not a valid condition")
                    .expected(format!("an address, a network, or one of {}", CONDITION_FORMS.join(", "))),
            }
        }),
    }
}

/// Reads the value beside `user`, `ip`, `customer`, `api_key`, `plan`, `jwt:CLAIM`, `header:NAME`, `tls:subject` or `tls:fingerprint`.
pub(in crate::config) fn condition_with_key(key: &str, value: &str) -> Result<Condition, Invalid> {
    match key.split_once(':') {
        Some(("jwt", claim)) => {
            if claim.is_empty() || value.is_empty() {
                return Err(Invalid::new("has an empty claim or value").expected("jwt:CLAIM=VALUE"));
            }
            Ok(Condition::Jwt { claim: claim.to_owned(), value: value.to_owned() })
        }
        Some(("header", header)) => {
            Ok(Condition::Header { name: field_name(header)?, value: field_value(value)? })
        }
        Some(("tls", field)) => {
            let field = certificate_field(field)?;
            Ok(Condition::Tls { field, value: certificate_value(field, value)? })
        }
        _ if key == "user" => printable_text(value).map(Condition::User),
        _ => match KeyField::named(key) {
            Some(field) => printable_text(value).map(|value| Condition::OfKey { field, value }),
            None => network(value).map(Condition::Address),
        },
    }
}

/// Reads the value that a part of a certificate must have, in the form in which certificates are compared.
fn certificate_value(field: CertificateField, value: &str) -> Result<String, Invalid> {
    match field {
        CertificateField::Subject => canonical_subject(value).ok_or_else(|| {
            Invalid::new("is not a valid subject").expected(
                "as `openssl x509 -noout -subject -nameopt RFC2253` writes it, such as CN=acme,O=Acme",
            )
        }),
        CertificateField::Fingerprint => read_fingerprint(value).ok_or_else(|| {
            Invalid::new("is not a valid fingerprint")
                .expected("64 hexadecimal digits, as `openssl x509 -noout -fingerprint -sha256` writes them")
        }),
    }
}

/// Selects clients for an exemption or an override. Only verified values match, and headers from trusted proxies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    Address(IpNet),
    User(String),
    /// A claim of a verified token has this value.
    Jwt {
        claim: String,
        value: String,
    },
    /// A trusted proxy sent this header with this value.
    Header {
        name: HeaderName,
        value: HeaderValue,
    },
    /// The client's verified certificate has this subject (as [`crate::tls::canonical_subject`] writes it) or this
    /// fingerprint (in lower case).
    Tls {
        field: CertificateField,
        value: String,
    },
    /// The request's API key has this value in its record.
    OfKey {
        field: KeyField,
        value: String,
    },
    /// A value of `values` is this text; and the client meets another condition, if there is one.
    Value {
        name: String,
        text: String,
        client: Option<Box<Self>>,
    },
}

impl Condition {
    /// The header that it asks for.
    pub fn header(&self) -> Option<&HeaderName> {
        match self {
            Self::Header { name, .. } => Some(name),
            Self::Value { client, .. } => client.as_ref()?.header(),
            _ => None,
        }
    }
}

/// The parts of one key; more than one make a composite (`ip+path`), in which the address comes first.
/// Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecipe(pub Vec<KeyPart>);

/// One part of a key: which value of a request identifies the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyPart {
    Ip,
    User,
    Header(HeaderName),
    Cookie(String),
    Query(String),
    /// A claim of a verified token.
    Jwt(String),
    /// Of the client's verified certificate.
    Tls(CertificateField),
    /// Of the record of the request's API key.
    OfKey(KeyField),
    /// The normalised path without query.
    Path,
    Route,
    Host,
    Method,
    /// A value of `values`.
    Value(String),
    /// An entry of the descriptor.
    Descriptor(String),
    /// One budget for all.
    Global,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(part: KeyPart) -> Result<KeyRecipe, Invalid> {
        Ok(KeyRecipe(vec![part]))
    }

    #[test]
    fn keys_are_read() {
        assert_eq!(key_recipe("ip"), one(KeyPart::Ip));
        assert_eq!(key_recipe("header:X-Api-Key"), one(KeyPart::Header("x-api-key".parse().unwrap())));
        assert_eq!(key_recipe("cookie:Session"), one(KeyPart::Cookie("Session".to_owned())));
        assert_eq!(key_recipe("query:a:b"), one(KeyPart::Query("a:b".to_owned())));
        assert_eq!(key_recipe("jwt:https://a/b"), one(KeyPart::Jwt("https://a/b".to_owned())));
        assert_eq!(key_recipe("tls:subject"), one(KeyPart::Tls(CertificateField::Subject)));
        assert_eq!(key_recipe("tls:fingerprint"), one(KeyPart::Tls(CertificateField::Fingerprint)));
        assert_eq!(key_recipe("ip+path"), Ok(KeyRecipe(vec![KeyPart::Ip, KeyPart::Path])));
    }

    #[test]
    fn the_address_stands_first() {
        assert_eq!(key_recipe("path+ip"), key_recipe("ip+path"));
        let parts = vec![KeyPart::Ip, KeyPart::User, KeyPart::Method, KeyPart::Host];
        assert_eq!(key_recipe("user+method+ip+host"), Ok(KeyRecipe(parts)));
    }

    #[test]
    fn other_keys_are_refused() {
        for text in [
            "",
            "IP",
            "ip+",
            "+",
            "ip+ip",
            "ip+path+ip",
            "ip path",
            "header:",
            "header",
            "query:",
            "jwt:",
            "jwt",
            "cookie:a b",
            "ip:x",
        ] {
            assert!(key_recipe(text).is_err(), "{text}");
        }
        for text in ["tls", "tls:", "tls:issuer", "tls: subject", "tls:subjct"] {
            assert!(key_recipe(text).is_err(), "{text}");
        }
        let help = |text: &str| key_recipe(text).unwrap_err().help(false).unwrap();
        assert_eq!(help("tls:subjct"), "did you mean `tls:subject`?");
        assert_eq!(help("tls: fingerprint"), "did you mean `tls:fingerprint`?");
        assert_eq!(help("tls:issuer"), "tls:subject or tls:fingerprint");
        assert_eq!(key_recipe("usr").unwrap_err().help(false).unwrap(), "did you mean `user`?");
        assert_eq!(key_recipe("heder:x").unwrap_err().help(false).unwrap(), "did you mean `header:NAME`?");
    }

    #[test]
    fn conditions_are_read() {
        let jwt = |claim: &str, value: &str| Condition::Jwt { claim: claim.into(), value: value.into() };
        assert_eq!(condition("10.0.0.0/8"), Ok(Condition::Address("10.0.0.0/8".parse().unwrap())));
        assert_eq!(condition("2001:db8::1"), Ok(Condition::Address("2001:db8::1/128".parse().unwrap())));
        assert_eq!(condition("user:a:b"), Ok(Condition::User("a:b".to_owned())));
        assert_eq!(condition("jwt:plan=gold=1"), Ok(jwt("plan", "gold=1")));
        assert_eq!(condition("jwt:https://a/plan=gold"), Ok(jwt("https://a/plan", "gold")));
        let header = Condition::Header { name: "x-plan".parse().unwrap(), value: "gold".parse().unwrap() };
        assert_eq!(condition("header:X-Plan=gold"), Ok(header.clone()));
        assert_eq!(condition_with_key("header:x-plan", "gold"), Ok(header));
        let tls = |field, value: &str| Condition::Tls { field, value: value.to_owned() };
        let subject = tls(CertificateField::Subject, "CN=acme,O=Acme");
        assert_eq!(condition("tls:subject=cn=acme,O=Acme"), Ok(subject.clone()));
        assert_eq!(condition_with_key("tls:subject", "CN=acme,O=Acme"), Ok(subject));
        let fingerprint = tls(CertificateField::Fingerprint, &"ab".repeat(32));
        assert_eq!(condition(&format!("tls:fingerprint={}AB", "AB:".repeat(31))), Ok(fingerprint));
        assert_eq!(condition_with_key("ip", "::ffff:10.0.0.1"), condition("10.0.0.1"));
    }

    #[test]
    fn other_conditions_are_refused() {
        for text in
            ["", "acme", "user:", "jwt:plan", "jwt:=x", "jwt:plan=", "header:x", "header:a b=c", "path:/a"]
        {
            assert!(condition(text).is_err(), "{text}");
        }
        for text in
            ["tls:", "tls:subject", "tls:subject=", "tls:subject=acme", "tls:fingerprint=ab", "tls:x=y"]
        {
            assert!(condition(text).is_err(), "{text}");
        }
        let help = |text: &str| condition(text).unwrap_err().help(false).unwrap();
        assert_eq!(help("tls:subjct=CN=a"), "did you mean `tls:subject`?");
        assert_eq!(help("tls:subject"), "tls:subject=VALUE");
        assert_eq!(condition("usr:a").unwrap_err().help(false).unwrap(), "did you mean `user:NAME`?");
        assert!(condition("10.0.0.1/8").unwrap_err().help(false).unwrap().contains("10.0.0.0/8"));
    }

    #[test]
    fn keys_of_others() {
        for (text, meant) in [
            ("ip + path", "ip+path"),
            ("ip,path", "ip+path"),
            ("ip and user", "ip+user"),
            ("IP", "ip"),
            ("api_key", "api_key"),
            ("api-key", "api_key"),
            ("X-API-Key", "header:x-api-key"),
            ("header: X-API-Key", "header:X-API-Key"),
            ("ip + header: X-API-Key", "ip+header:X-API-Key"),
            ("header.x-api-key", "header:x-api-key"),
            ("headers[x-api-key]", ""),
            ("header[X-API-Key]", "header:x-api-key"),
            ("$binary_remote_addr", "ip"),
            ("$binary_remote_addr$uri", "ip+path"),
            ("$http_x_tenant", "header:x-tenant"),
            ("$cookie_sid", "cookie:sid"),
            ("$arg_token", "query:token"),
            ("${remote_addr}", "ip"),
            ("remote_address", "ip"),
            ("consumer", "user"),
            ("client-ip", "ip"),
            ("everyone", "global"),
            ("ip + ip", "ip"),
            ("ip + shoe size", ""),
            ("", ""),
            ("shoe", ""),
        ] {
            assert_eq!(suggest_key(text).unwrap_or_default(), meant, "{text}");
        }
    }
}
