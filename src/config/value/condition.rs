//! Of whom something holds.

use super::{Invalid, address::network, field::text as name, field_name, field_value};
use crate::config::{model::Condition, nearest::nearest};

const KINDS: [&str; 3] = ["user:NAME", "jwt:CLAIM=VALUE", "header:NAME=VALUE"];

/// Reads an address or a network, `user:NAME`, `jwt:CLAIM=VALUE`, `header:NAME=VALUE`.
pub(in crate::config) fn condition(text: &str) -> Result<Condition, Invalid> {
    let valued = |rest: &str| rest.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    match text.split_once(':') {
        Some(("user", user)) => condition_of("user", user),
        Some((kind @ ("jwt" | "header"), rest)) => match valued(rest) {
            Some((name, value)) => condition_of(&format!("{kind}:{name}"), &value),
            None => Err(Invalid::new("has no value").form(format!("{kind}:NAME=VALUE"))),
        },
        kind => network(text).map(Condition::Address).map_err(|invalid| {
            let near = kind.and_then(|(kind, _)| nearest(kind, ["user", "jwt", "header"]));
            match near.and_then(|near| KINDS.into_iter().find(|kind| kind.starts_with(near))) {
                Some(near) => Invalid::new("is no condition").guess(format!("did you mean `{near}`?")),
                None if text.parse::<ipnet::IpNet>().is_ok() => invalid,
                None => Invalid::new("is no condition")
                    .form(format!("an address or a network, or one of {}", KINDS.join(", "))),
            }
        }),
    }
}

/// Reads the value that goes with `user`, `ip`, `jwt:CLAIM` or `header:NAME`.
pub(in crate::config) fn condition_of(key: &str, value: &str) -> Result<Condition, Invalid> {
    match key.split_once(':') {
        Some(("jwt", claim)) => {
            if claim.is_empty() || value.is_empty() {
                return Err(Invalid::new("has an empty claim or value").form("jwt:CLAIM=VALUE"));
            }
            Ok(Condition::Jwt { claim: claim.to_owned(), value: value.to_owned() })
        }
        Some(("header", header)) => {
            Ok(Condition::Header { name: field_name(header)?, value: field_value(value)? })
        }
        _ if key == "user" => name(value).map(Condition::User),
        _ => network(value).map(Condition::Address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions() {
        let jwt = |claim: &str, value: &str| Condition::Jwt { claim: claim.into(), value: value.into() };
        assert_eq!(condition("10.0.0.0/8"), Ok(Condition::Address("10.0.0.0/8".parse().unwrap())));
        assert_eq!(condition("2001:db8::1"), Ok(Condition::Address("2001:db8::1/128".parse().unwrap())));
        assert_eq!(condition("user:a:b"), Ok(Condition::User("a:b".to_owned())));
        assert_eq!(condition("jwt:plan=gold=1"), Ok(jwt("plan", "gold=1")));
        assert_eq!(condition("jwt:https://a/plan=gold"), Ok(jwt("https://a/plan", "gold")));
        let header = Condition::Header { name: "x-plan".parse().unwrap(), value: "gold".parse().unwrap() };
        assert_eq!(condition("header:X-Plan=gold"), Ok(header.clone()));
        assert_eq!(condition_of("header:x-plan", "gold"), Ok(header));
        assert_eq!(condition_of("ip", "::ffff:10.0.0.1"), condition("10.0.0.1"));
    }

    #[test]
    fn nothing_else() {
        for text in
            ["", "acme", "user:", "jwt:plan", "jwt:=x", "jwt:plan=", "header:x", "header:a b=c", "path:/a"]
        {
            assert!(condition(text).is_err(), "{text}");
        }
        assert_eq!(condition("usr:a").unwrap_err().help(false).unwrap(), "did you mean `user:NAME`?");
        assert!(condition("10.0.0.1/8").unwrap_err().help(false).unwrap().contains("10.0.0.0/8"));
    }
}
