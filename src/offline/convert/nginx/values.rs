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
pub(super) enum VariablePart {
    Literal(String),
    /// Its name, without `$`.
    Variable(String),
}

/// Splits a text at its variables, `$name` and `${name}`.
pub(super) fn parts(text: &str) -> Vec<VariablePart> {
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
            parts.push(VariablePart::Literal(std::mem::take(&mut literal)));
        }
        parts.push(VariablePart::Variable(name.to_owned()));
        rest = end;
    }
    if !literal.is_empty() {
        parts.push(VariablePart::Literal(literal));
    }
    parts
}

pub(super) fn has_variable(text: &str) -> bool {
    parts(text).iter().any(|part| matches!(part, VariablePart::Variable(_)))
}

/// The text of a header with Tollgate's placeholders. `Err`: the variable that has no equal.
pub(super) fn header_text(text: &str) -> Result<String, String> {
    let mut out = String::new();
    for part in parts(text) {
        match part {
            VariablePart::Literal(text) => out += &text.replace('{', "{{").replace('}', "}}"),
            VariablePart::Variable(name) => {
                out += match name.as_str() {
                    "remote_addr" => "{client_address}",
                    "host" => "{host}",
                    "request_id" => "{request_id}",
                    _ => return Err(name),
                }
            }
        }
    }
    Ok(out)
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
        let variable = |name: &str| VariablePart::Variable(name.into());
        let literal = |text: &str| VariablePart::Literal(text.into());
        assert_eq!(parts("a$b/c"), [literal("a"), variable("b"), literal("/c")]);
        assert_eq!(parts("${a}b$c"), [variable("a"), literal("b"), variable("c")]);
        assert_eq!(parts("$ ${x"), [literal("$ ${x")]);
        assert_eq!(header_text("a{$remote_addr}").as_deref(), Ok("a{{{client_address}}}"));
        assert_eq!(header_text("$geoip_country"), Err("geoip_country".to_owned()));
    }
}
