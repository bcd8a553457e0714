//! Displays values as `proxy.yaml` writes them.

use std::fmt::{Display, Formatter, Result, Write};

use crate::config::{
    policies::{cost::NumberSource, settings::Statuses},
    value::{
        key::{Condition, KeyPart, KeyRecipe},
        patterns::{HostPattern, PathPattern, Segment},
    },
};

impl Display for KeyRecipe {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        for (nth, part) in self.0.iter().enumerate() {
            if nth > 0 {
                f.write_char('+')?;
            }
            write!(f, "{part}")?;
        }
        Ok(())
    }
}

impl Display for NumberSource {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Preset { preset, .. } => f.write_str(preset.name()),
            Self::Json(path) => write!(f, "{path}"),
            Self::Header(name) | Self::Trailer(name) => write!(f, "{name}"),
        }
    }
}

impl Display for KeyPart {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Ip => f.write_str("ip"),
            Self::User => f.write_str("user"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Query(name) => write!(f, "query:{name}"),
            Self::Jwt(claim) => write!(f, "jwt:{claim}"),
            Self::Tls(field) => write!(f, "tls:{}", field.name()),
            Self::OfKey(field) => f.write_str(field.name()),
            Self::Path => f.write_str("path"),
            Self::Route => f.write_str("route"),
            Self::Host => f.write_str("host"),
            Self::Method => f.write_str("method"),
            Self::Value(name) => write!(f, "value:{name}"),
            Self::Descriptor(name) => write!(f, "descriptor:{name}"),
            Self::Global => f.write_str("global"),
        }
    }
}

impl Display for Condition {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Address(net) if net.prefix_len() == net.max_prefix_len() => write!(f, "{}", net.addr()),
            Self::Address(net) => write!(f, "{net}"),
            Self::User(name) => write!(f, "user:{name}"),
            Self::Jwt { claim, value } => write!(f, "jwt:{claim}={value}"),
            Self::Tls { field, value } => write!(f, "tls:{}={value}", field.name()),
            Self::OfKey { field, value } => write!(f, "{}:{value}", field.name()),
            Self::Header { name, value } => {
                write!(f, "header:{name}={}", String::from_utf8_lossy(value.as_bytes()))
            }
            Self::Value { name, text, client } => {
                client.iter().try_for_each(|client| write!(f, "{client} with "))?;
                write!(f, "value:{name}={text}")
            }
        }
    }
}

impl Condition {
    /// As operators see it: without the value of a header that must not be shown.
    pub fn shown(&self) -> String {
        match self {
            Self::Header { name, value } if value.is_sensitive() => format!("header:{name}=***"),
            Self::Value { name, text, client: Some(client) } => {
                format!("{} with value:{name}={text}", client.shown())
            }
            condition => condition.to_string(),
        }
    }
}

impl Display for Statuses {
    /// `401, 4xx, 200-399`
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        for (nth, range) in self.0.iter().enumerate() {
            let separator = if nth > 0 { ", " } else { "" };
            match (*range.start(), *range.end()) {
                (first, last) if first == last => write!(f, "{separator}{first}")?,
                (first, last) if first % 100 == 0 && last == first + 99 => {
                    write!(f, "{separator}{}xx", first / 100)?;
                }
                (first, last) => write!(f, "{separator}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

impl Display for HostPattern {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Suffix(suffix) => write!(f, "*{suffix}"),
        }
    }
}

impl Display for PathPattern {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Exact(path) => f.write_str(path),
            Self::Prefix(prefix) => write!(f, "{prefix}*"),
            Self::Template(segments) => segments.iter().try_for_each(|segment| match segment {
                Segment::Literal(text) => write!(f, "/{text}"),
                Segment::Parameter(name) => write!(f, "/{{{name}}}"),
            }),
            Self::Regex(regex) => {
                let mark = if regex.ignores_case() { "~*" } else { "~" };
                write!(f, "{mark}{}", regex.pattern())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn patterns_are_displayed_as_they_were_written() {
        let segments = vec![Segment::Literal("users".to_owned()), Segment::Parameter("id".to_owned())];
        for (path, text) in [
            (PathPattern::Exact("/a".to_owned()), "/a"),
            (PathPattern::Prefix("/a/".to_owned()), "/a/*"),
            (PathPattern::Template(segments), "/users/{id}"),
        ] {
            assert_eq!(path.to_string(), text);
        }
        assert_eq!(HostPattern::Suffix(".example.org".to_owned()).to_string(), "*.example.org");
        let mut value = HeaderValue::from_static("gold");
        let plan = |value: &HeaderValue| {
            Condition::Header { name: HeaderName::from_static("x-plan"), value: value.clone() }.shown()
        };
        assert_eq!(plan(&value), "header:x-plan=gold");
        value.set_sensitive(true);
        assert_eq!(plan(&value), "header:x-plan=***");
        let key = KeyRecipe(vec![KeyPart::Ip, KeyPart::Jwt("plan".to_owned())]);
        assert_eq!(key.to_string(), "ip+jwt:plan");
        for (net, text) in [("10.0.0.0/8", "10.0.0.0/8"), ("10.1.2.3/32", "10.1.2.3")] {
            assert_eq!(Condition::Address(net.parse().unwrap()).to_string(), text);
        }
        assert_eq!(Statuses(vec![401..=401, 500..=599, 200..=399]).to_string(), "401, 5xx, 200-399");
    }
}
