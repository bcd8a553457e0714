//! What a limit is counted by.

use super::{
    Invalid,
    field::{cookie_name, field_name},
};
use crate::config::{
    model::{KeyPart, KeyRecipe},
    nearest::nearest,
};

const KINDS: [&str; 11] = [
    "ip",
    "user",
    "header:NAME",
    "cookie:NAME",
    "query:NAME",
    "jwt:CLAIM",
    "path",
    "route",
    "host",
    "method",
    "global",
];

/// Reads `ip`, `header:x-api-key`, or several parts as one key: `ip+path`. Names cannot hold a `+`.
///
/// The address stands first wherever it was written, the others in their order: `path+ip` and `ip+path`
/// are the same key, and whoever clears an address clears all that is limited by it.
pub(in crate::config) fn key_recipe(text: &str) -> Result<KeyRecipe, Invalid> {
    let mut parts = Vec::new();
    for word in text.split('+') {
        let part = part(word)?;
        if parts.contains(&part) {
            return Err(Invalid::new("has a part twice"));
        }
        parts.push(part);
    }
    parts.sort_by_key(|part| *part != KeyPart::Ip);
    Ok(KeyRecipe(parts))
}

fn part(word: &str) -> Result<KeyPart, Invalid> {
    let named = word.split_once(':');
    match named {
        Some(("header", name)) => field_name(name).map(KeyPart::Header),
        Some(("cookie", name)) => cookie_name(name).map(KeyPart::Cookie),
        Some(("jwt", claim)) if !claim.is_empty() => Ok(KeyPart::Jwt(claim.to_owned())),
        Some(("query", name)) if !name.is_empty() => Ok(KeyPart::Query(name.to_owned())),
        _ => match word {
            "ip" => Ok(KeyPart::Ip),
            "user" => Ok(KeyPart::User),
            "path" => Ok(KeyPart::Path),
            "route" => Ok(KeyPart::Route),
            "host" => Ok(KeyPart::Host),
            "method" => Ok(KeyPart::Method),
            "global" => Ok(KeyPart::Global),
            _ => Err(unknown(named.map_or(word, |(kind, _)| kind))),
        },
    }
    .map_err(|invalid| match named {
        Some(("header" | "cookie", _)) => {
            Invalid::new("has a name in it that no header field or cookie can have")
        }
        _ => invalid,
    })
}

fn unknown(kind: &str) -> Invalid {
    let invalid =
        Invalid::new("is not a key").form(format!("one of {}, or several: ip+path", KINDS.join(", ")));
    let bare = KINDS.map(|kind| kind.split(':').next().unwrap_or(kind));
    let near = nearest(kind, bare).and_then(|near| KINDS.into_iter().find(|kind| kind.starts_with(near)));
    match near {
        Some(near) => invalid.guess(format!("did you mean `{near}`?")),
        None => invalid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(part: KeyPart) -> Result<KeyRecipe, Invalid> {
        Ok(KeyRecipe(vec![part]))
    }

    #[test]
    fn keys() {
        assert_eq!(key_recipe("ip"), one(KeyPart::Ip));
        assert_eq!(key_recipe("header:X-Api-Key"), one(KeyPart::Header("x-api-key".parse().unwrap())));
        assert_eq!(key_recipe("cookie:Session"), one(KeyPart::Cookie("Session".to_owned())));
        assert_eq!(key_recipe("query:a:b"), one(KeyPart::Query("a:b".to_owned())));
        assert_eq!(key_recipe("jwt:https://a/b"), one(KeyPart::Jwt("https://a/b".to_owned())));
        assert_eq!(key_recipe("ip+path"), Ok(KeyRecipe(vec![KeyPart::Ip, KeyPart::Path])));
    }

    #[test]
    fn the_address_stands_first() {
        assert_eq!(key_recipe("path+ip"), key_recipe("ip+path"));
        let parts = vec![KeyPart::Ip, KeyPart::User, KeyPart::Method, KeyPart::Host];
        assert_eq!(key_recipe("user+method+ip+host"), Ok(KeyRecipe(parts)));
    }

    #[test]
    fn nothing_else() {
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
        for text in ["tls:subject", "tls:fingerprint"] {
            assert_eq!(key_recipe(text).unwrap_err().what, "is not a key", "{text}");
        }
        assert_eq!(key_recipe("usr").unwrap_err().help(false).unwrap(), "did you mean `user`?");
        assert_eq!(key_recipe("heder:x").unwrap_err().help(false).unwrap(), "did you mean `header:NAME`?");
    }
}
