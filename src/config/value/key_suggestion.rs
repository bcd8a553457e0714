//! Keys as other proxies and people write them, in the form that we read: `ip + path`, `api_key`, `$binary_remote_addr`.

use super::key::exact_key_recipe;

/// Names of parts of a key, and ours.
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
    (&["api_key", "apikey", "key_auth", "credential", "http_x_api_key"], "header:x-api-key"),
    (&["session", "session_id", "sessionid"], "cookie:session"),
    (&["uri", "url", "request_uri", "request_path", "document_uri"], "path"),
    (&["hostname", "server_name", "http_host", "request_host", "domain"], "host"),
    (&["request_method", "verb", "http_method"], "method"),
    (&["all", "any", "everyone", "everybody", "shared", "total"], "global"),
    (&["ssl_client_s_dn", "client_cert", "certificate"], "tls:subject"),
    (&["ssl_client_fingerprint"], "tls:fingerprint"),
];

/// Variables of nginx, and names of others, that hold a name after this beginning.
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

/// What stands between the parts of a key.
pub(super) const SEPARATORS: [char; 7] = ['+', ',', '&', '|', ';', ' ', '$'];

/// The key that was probably meant, if all of its parts are known.
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
    if let Some((kind @ ("header" | "cookie" | "query" | "jwt" | "tls"), name)) = word.split_once(':') {
        return Some(format!("{kind}:{}", name.trim()));
    }
    let lower = word.to_ascii_lowercase();
    let plain = lower.replace('-', "_");
    if ["ip", "user", "path", "route", "host", "method", "global"].contains(&&*lower) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_others() {
        for (text, meant) in [
            ("ip + path", "ip+path"),
            ("ip,path", "ip+path"),
            ("ip and user", "ip+user"),
            ("IP", "ip"),
            ("api_key", "header:x-api-key"),
            ("api-key", "header:x-api-key"),
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
