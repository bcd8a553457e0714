//! The syntax of X-Forwarded-For and `Forwarded` (RFC 7239).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The last element of a comma-separated list, and the part before its comma. Quotes are matched from the right, where
/// the trusted elements are, so that an open quote further left has no effect.
pub(super) fn last_element(list: &[u8]) -> (Option<&[u8]>, &[u8]) {
    split_last(list, b',')
}

/// The address in one element of `Forwarded`: the value of its only `for`. `None` for `unknown`, obfuscated identifiers
/// (RFC 7239, 6) and malformed elements. A pair may be empty (RFC 7239, 4).
pub(super) fn forwarded_for(element: &[u8]) -> Option<IpAddr> {
    let mut found = None;
    let mut rest = Some(element);
    while let Some(pairs) = rest {
        let (before, pair) = split_last(pairs, b';');
        rest = before;
        if pair.trim_ascii().is_empty() {
            continue;
        }
        let equals = pair.iter().position(|&byte| byte == b'=')?;
        let (name, value) = pair.split_at(equals);
        if name.trim_ascii().eq_ignore_ascii_case(b"for") && found.replace(&value[1..]).is_some() {
            return None;
        }
    }
    let value = found?.trim_ascii();
    let unquoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
    node_address(unquoted.unwrap_or(value))
}

/// An address with or without brackets and port: `1.2.3.4:5678`, `[::1]:80`, `::1`. The port may be obfuscated (RFC
/// 7239, 6.3). An IPv4-mapped address is returned as IPv4.
pub(super) fn node_address(text: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(text.trim_ascii()).ok()?;
    let address = if let Some(bracketed) = text.strip_prefix('[') {
        let (address, port) = bracketed.split_once(']')?;
        let is_well_formed = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        is_well_formed.then(|| address.parse::<Ipv6Addr>().ok()).flatten()?.into()
    } else if let Some((address, _)) = text.split_once(':').filter(|(_, port)| is_port(port)) {
        IpAddr::from(address.parse::<Ipv4Addr>().ok()?)
    } else {
        text.parse::<IpAddr>().ok()?
    };
    Some(address.to_canonical())
}

fn is_port(text: &str) -> bool {
    match text.strip_prefix('_') {
        Some(name) => {
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
        }
        None => text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok(),
    }
}

/// Splits at the last `separator` outside quotes, counted from the right.
fn split_last(text: &[u8], separator: u8) -> (Option<&[u8]>, &[u8]) {
    let mut quoted = false;
    for (at, &byte) in text.iter().enumerate().rev() {
        match byte {
            b'"' if !is_escaped(&text[..at]) => quoted = !quoted,
            _ if byte == separator && !quoted => return (Some(&text[..at]), &text[at + 1..]),
            _ => {}
        }
    }
    (None, text)
}

/// Whether the byte after `before` is the second half of a quoted pair.
fn is_escaped(before: &[u8]) -> bool {
    before.iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_split_outside_of_quotes() {
        for (list, before, part) in [
            ("a, b", Some("a"), " b"),
            ("a", None, "a"),
            ("a,", Some("a"), ""),
            ("a,\"b,c\"", Some("a"), "\"b,c\""),
            ("a,\"b\\\",c\"", Some("a"), "\"b\\\",c\""),
            ("\"a,b", Some("\"a"), "b"),
            ("", None, ""),
        ] {
            assert_eq!(last_element(list.as_bytes()), (before.map(str::as_bytes), part.as_bytes()), "{list}");
        }
    }

    #[test]
    fn addresses_may_have_brackets_and_ports() {
        for (text, address) in [
            ("1.2.3.4", "1.2.3.4"),
            (" 1.2.3.4\t", "1.2.3.4"),
            ("1.2.3.4:5678", "1.2.3.4"),
            ("1.2.3.4:_port-1", "1.2.3.4"),
            ("[::1]:80", "::1"),
            ("[::1]", "::1"),
            ("::1", "::1"),
            ("::ffff:1.2.3.4", "1.2.3.4"),
            ("[::ffff:1.2.3.4]:80", "1.2.3.4"),
        ] {
            assert_eq!(node_address(text.as_bytes()), address.parse().ok(), "{text}");
        }
        let bad = [
            "",
            "unknown",
            "_x",
            "1.2.3",
            "1.2.3.4:",
            "1.2.3.4:x",
            "1.2.3.4:65536",
            "1.2.3.4:+80",
            "[1.2.3.4]",
            "[::1",
            "[::1]80",
            "[::1]:",
            "::1]",
            "fe80::1%eth0",
            "1.2.3.4 5",
            "0x1.2.3.4",
            "01.2.3.4",
            "localhost",
        ];
        for text in bad {
            assert_eq!(node_address(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn an_element_has_one_for() {
        for (element, address) in [
            ("for=1.2.3.4", Some("1.2.3.4")),
            (" FOR=\"1.2.3.4\" ; proto=http", Some("1.2.3.4")),
            ("by=9.9.9.9;for=\"[2001:db8::1]:_p\"", Some("2001:db8::1")),
            ("x=\"for=9.9.9.9;for=8.8.8.8\";for=1.2.3.4", Some("1.2.3.4")),
            ("for=1.2.3.4;for=1.2.3.4", None),
            ("for=\"1.2.3.4", None),
            ("for=", None),
            ("for", None),
            ("proto=http", None),
            ("for=unknown", None),
            ("for=1.2.3.4;;", Some("1.2.3.4")),
            (" ; for=1.2.3.4; ;proto=http;", Some("1.2.3.4")),
            ("for=1.2.3.4;unknown;", None),
            ("; ;", None),
        ] {
            let address = address.map(|address| address.parse().unwrap());
            assert_eq!(forwarded_for(element.as_bytes()), address, "{element}");
        }
    }
}
