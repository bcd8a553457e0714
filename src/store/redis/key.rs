//! The names of limits' keys in Redis: `PREFIX:{IDENTIFIER}REST:POLICY:SHAPE`, such as
//! `ratelimit:{ip:203.0.113.7}+path:/a:expensive:sl.1m`.
//!
//! The braces are the hash tag of Redis Cluster: all limits of one identifier are in one slot. Parts that clients sent
//! are percent-encoded, so that they contain neither braces nor `+`.

use crate::limit::{
    Policy,
    algorithm::{Kind, metadata_list},
};

/// Appends the key of a limit.
pub(super) fn append(key: &mut Vec<u8>, prefix: &str, policy: &Policy, identifier: &str) {
    let first = hash_tag(identifier);
    let rest = &identifier[first.len()..];
    for part in [prefix, ":{", first, "}", rest, ":", &policy.name, ":", &policy.shape] {
        key.extend_from_slice(part.as_bytes());
    }
}

/// The hash tag of the keys of an identifier's limits: its first part.
pub(super) fn hash_tag(identifier: &str) -> &str {
    &identifier[..identifier.find('+').unwrap_or(identifier.len())]
}

/// The key of a limit.
pub(super) fn limit_key(prefix: &str, policy: &Policy, identifier: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(96);
    append(&mut key, prefix, policy, identifier);
    key
}

/// The keys of the lists with the entries of a `metadata_list`, oldest first: one, or one for each
/// [slice](metadata_list::slice) that is kept at the time `now`, in microseconds.
pub(super) fn entry_lists(prefix: &str, policy: &Policy, identifier: &str, now: i64) -> Vec<Vec<u8>> {
    let key = limit_key(prefix, policy, identifier);
    let Kind::MetadataList { retain } = policy.kind else { return Vec::new() };
    let Some(length) = metadata_list::slice(policy.tiers[0], retain) else { return vec![key] };
    let newest = now.div_euclid(length);
    let of_slice = |slice: i64| [key.as_slice(), format!(":{slice}").as_bytes()].concat();
    (newest - metadata_list::SLICES + 1..=newest).map(of_slice).collect()
}

/// The SCAN pattern of all composites that begin with `identifier`.
pub(super) fn composites_pattern(prefix: &str, identifier: &str) -> String {
    format!("{}:{{{}}}+*", escape(prefix), escape(identifier))
}

/// The identifier of a composite's key, if it belongs to `policy`.
pub(super) fn identifier(key: &[u8], prefix: &str, policy: &Policy) -> Option<String> {
    let key = std::str::from_utf8(key).ok()?;
    let rest = key.strip_prefix(prefix)?.strip_prefix(":{")?;
    let rest = rest.strip_suffix(policy.shape.as_str())?.strip_suffix(':')?;
    let (first, rest) = rest.strip_suffix(policy.name.as_str())?.strip_suffix(':')?.split_once('}')?;
    Some(format!("{first}{rest}"))
}

/// The name of the policy in a limit's key.
pub(super) fn policy_of(key: &[u8]) -> Option<&str> {
    str::from_utf8(key.rsplit(|&byte| byte == b':').nth(1)?).ok()
}

/// Escapes the characters that have a meaning in a pattern.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}
