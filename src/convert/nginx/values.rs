//! Values of directives: times, sizes, variables, expressions, and what they are in Tollgate.

/// A time of nginx, such as `30s`, `1h30m`, `500ms` or `60` (seconds), in milliseconds.
pub(super) fn milliseconds(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut total = 0_u64;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
        let factor = match &rest[..unit] {
            "ms" => 1,
            "" | "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 604_800_000,
            _ => return None,
        };
        rest = rest[unit..].trim_start();
        total = total.checked_add(number.checked_mul(factor)?)?;
    }
    (!text.is_empty()).then_some(total)
}

/// A size of nginx, such as `10m` or `512k`, as Tollgate reads it.
pub(super) fn size(text: &str) -> Option<String> {
    let text = text.to_ascii_lowercase();
    let (digits, unit) = match text.strip_suffix(['k', 'm', 'g']) {
        Some(digits) => (digits, &text[digits.len()..]),
        None => (text.as_str(), ""),
    };
    let number: u64 = digits.parse().ok()?;
    let unit = match unit {
        _ if number == 0 => "",
        "k" => "KiB",
        "m" => "MiB",
        "g" => "GiB",
        _ => "",
    };
    Some(format!("{number}{unit}"))
}

/// A part of a text with variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Literal(String),
    /// Its name, without `$`.
    Variable(String),
}

/// Splits a text at its variables, `$name` and `${name}`.
pub(super) fn parts(text: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let behind = rest.strip_prefix('$').unwrap_or("");
        let (name, end) = match behind.strip_prefix('{') {
            Some(inner) => match inner.split_once('}') {
                Some((name, end)) => (name, end),
                None => ("", ""),
            },
            None => {
                let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
                let length = behind.find(|c| !is_word(c)).unwrap_or(behind.len());
                behind.split_at(length)
            }
        };
        if name.is_empty() {
            literal.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        }
        if !literal.is_empty() {
            parts.push(Part::Literal(std::mem::take(&mut literal)));
        }
        parts.push(Part::Variable(name.to_owned()));
        rest = end;
    }
    if !literal.is_empty() {
        parts.push(Part::Literal(literal));
    }
    parts
}

pub(super) fn has_variable(text: &str) -> bool {
    parts(text).iter().any(|part| matches!(part, Part::Variable(_)))
}

/// The text of a header with Tollgate's placeholders. `Err`: the variable that has no equal.
pub(super) fn header_text(text: &str) -> Result<String, String> {
    let mut out = String::new();
    for part in parts(text) {
        match part {
            Part::Literal(text) => out += &text.replace('{', "{{").replace('}', "}}"),
            Part::Variable(name) => {
                out += match name.as_str() {
                    "remote_addr" | "realip_remote_addr" => "{client_address}",
                    "host" => "{host}",
                    "request_id" => "{request_id}",
                    _ => return Err(name),
                }
            }
        }
    }
    Ok(out)
}

/// A regular expression as Tollgate's engine reads it.
///
/// # Errors
/// It uses what that engine lacks, such as look-around.
pub(in crate::convert) fn expression(pattern: &str, is_insensitive: bool) -> Result<String, String> {
    // PCRE takes `\/` and other escapes that the engine refuses.
    let mut text = String::new();
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('\\', Some(&next)) => {
                chars.next();
                if !matches!(
                    next,
                    '/' | '"' | '\'' | '@' | '!' | ':' | ',' | '=' | '%' | ' ' | '`' | ';' | '_'
                ) {
                    text.push('\\');
                }
                text.push(next);
            }
            _ => text.push(c),
        }
    }
    let mut parser = regex_syntax::ParserBuilder::new().unicode(false).utf8(false).build();
    match parser.parse(&text) {
        Ok(_) => Ok(format!("~{}{text}", if is_insensitive { "*" } else { "" })),
        Err(_) => Err("Tollgate's regular expressions have no look-around and no back-references".to_owned()),
    }
}

/// Names the groups of an expression `p1`, `p2`, …, so that a rewrite can use them.
pub(super) fn with_named_groups(pattern: &str) -> String {
    let (mut out, mut number) = (String::new(), 0);
    let mut chars = pattern.chars().peekable();
    let mut is_in_class = false;
    while let Some(c) = chars.next() {
        out.push(c);
        match c {
            '\\' => out.extend(chars.next()),
            '[' => is_in_class = true,
            ']' => is_in_class = false,
            '(' if !is_in_class && chars.peek() != Some(&'?') => {
                number += 1;
                out += &format!("?P<p{number}>");
            }
            _ => {}
        }
    }
    out
}

/// A literal path as a part of a regular expression.
pub(in crate::convert) fn escaped(path: &str) -> String {
    // A dash needs no escape outside of a class.
    regex_syntax::escape(&encoded(path)).replace(r"\-", "-")
}

/// A path with characters percent-encoded that must be.
pub(in crate::convert) fn encoded(path: &str) -> String {
    let mut out = String::new();
    for byte in path.bytes() {
        match byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#' | b'%') {
            true => out.push(char::from(byte)),
            false => out += &format!("%{byte:02X}"),
        }
    }
    out
}

/// Whether this can be a host with a port.
pub(in crate::convert) fn is_authority(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || ".-_:[]".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes() {
        for (text, expected) in [
            ("60", Some(60_000)),
            ("60s", Some(60_000)),
            ("1h30m", Some(5_400_000)),
            ("500ms", Some(500)),
            ("1m 30s", Some(90_000)),
            ("", None),
            ("x", None),
            ("99999999999999999999s", None),
        ] {
            assert_eq!(milliseconds(text), expected, "{text}");
        }
        for (text, expected) in
            [("10m", "10MiB"), ("512K", "512KiB"), ("0", "0"), ("100", "100"), ("1g", "1GiB")]
        {
            assert_eq!(size(text).as_deref(), Some(expected), "{text}");
        }
        assert_eq!(size("1x"), None);
    }

    #[test]
    fn variables() {
        let variable = |name: &str| Part::Variable(name.into());
        let literal = |text: &str| Part::Literal(text.into());
        assert_eq!(parts("a$b/c"), [literal("a"), variable("b"), literal("/c")]);
        assert_eq!(parts("${a}b$c"), [variable("a"), literal("b"), variable("c")]);
        assert_eq!(parts("$ ${x"), [literal("$ ${x")]);
        assert_eq!(header_text("a{$remote_addr}").as_deref(), Ok("a{{{client_address}}}"));
        assert_eq!(header_text("$geoip_country"), Err("geoip_country".to_owned()));
    }

    #[test]
    fn expressions() {
        assert_eq!(expression(r"\.php$", false).as_deref(), Ok(r"~\.php$"));
        assert_eq!(expression(r"^\/a\/", true).as_deref(), Ok("~*^/a/"));
        assert!(expression("^/(?!a)", false).is_err());
        assert_eq!(with_named_groups(r"^/(a|(?:b))/\(([()])$"), r"^/(?P<p1>a|(?:b))/\((?P<p2>[()])$");
    }
}
