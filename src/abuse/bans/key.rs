//! The key of a ban: the address of a client, a prefix, or a user.

use std::{fmt, net::IpAddr};

use compact_str::CompactString;
use ipnet::{IpNet, Ipv4Net};

use super::{
    super::{UserNaming, address, is_pseudonym},
    user_name,
};

/// Longest name of a user that an operator may write, in bytes.
const MAX_USER_BYTES: usize = 1_024;

/// Written `ip:203.0.113.7`, `ip:10.0.0.0/8`, `user:acme`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BannedKey {
    /// Without bits after the prefix, and never the prefix of all addresses.
    Address(IpNet),
    /// Encoded as in identifiers of limits.
    User(CompactString),
}

/// Why a key cannot be banned. For operators.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnusableKey {
    #[error("a key is ip:203.0.113.7, ip:10.0.0.0/8 or user:acme, not {0}")]
    Malformed(String),
    #[error("{0} has bits set beyond its prefix length; write ip:{1} to ban the whole prefix")]
    HostBits(String, IpNet),
    #[error("{0} would ban every client")]
    AllAddresses(String),
}

impl BannedKey {
    /// Parses an operator's input; `ip:` may be left out. An address means the client that it belongs to: an IPv6
    /// address its first `ipv6_prefix` bits. `names`: the form of users in keys.
    ///
    /// # Errors
    /// The key is invalid, or would ban every client.
    pub fn parse(text: &str, ipv6_prefix: u8, names: &UserNaming) -> Result<Self, UnusableKey> {
        let shown = || text.escape_debug().to_string();
        let malformed = || UnusableKey::Malformed(shown());
        if let Some(user) = text.strip_prefix("user:") {
            let is_name =
                !user.is_empty() && user.len() <= MAX_USER_BYTES && !user.chars().any(char::is_control);
            return if is_name { Ok(Self::of_input(user, names)) } else { Err(malformed()) };
        }
        let written = text.strip_prefix("ip:").unwrap_or(text);
        if let Ok(address) = written.parse::<IpAddr>() {
            return Ok(Self::Address(address::masked(address, ipv6_prefix)));
        }
        let net = written.parse::<IpNet>().map_err(|_| malformed())?;
        match canonical(net.trunc()) {
            prefix if prefix.prefix_len() == 0 => Err(UnusableKey::AllAddresses(shown())),
            prefix if net.trunc() != net => Err(UnusableKey::HostBits(shown(), prefix)),
            prefix => Ok(Self::Address(prefix)),
        }
    }

    /// The key of a user by the name in requests, even if it looks encoded, or by the pseudonym.
    pub fn from_user_name(name: &str, names: &UserNaming) -> Self {
        Self::User(names.pseudonym_of_input(name).unwrap_or_else(|| user_name::encode(name)))
    }

    /// The key of a user from an operator's input: by name, by encoded name, or by pseudonym.
    fn of_input(user: &str, names: &UserNaming) -> Self {
        let pseudonym = user_name::decode(user).and_then(|name| names.pseudonym_of_input(&name));
        Self::User(pseudonym.unwrap_or_else(|| user_name::normalize(user)))
    }

    /// The key with the user's pseudonym, if this one has the name, and names are not stored.
    pub(super) fn masked(&self, names: &UserNaming) -> Option<Self> {
        let Self::User(user) = self else { return None };
        if is_pseudonym(user) {
            return None;
        }
        names.pseudonym(&user_name::decode(user)?).map(Self::User)
    }

    /// Whether it is a user, which a client may make up, and not an address, of which it has few.
    pub(super) fn is_user(&self) -> bool {
        matches!(self, Self::User(_))
    }

    /// Parses a key as [`BannedKey`] displays it, and nothing else.
    pub fn from_canonical(text: &str) -> Option<Self> {
        if let Some(user) = text.strip_prefix("user:") {
            let is_name = !user.is_empty() && user_name::is_encoded(user);
            return is_name.then(|| Self::User(user.into()));
        }
        let net = address::from_identifier(text).filter(|net| net.prefix_len() > 0)?;
        let key = Self::Address(net);
        (key.to_string() == text).then_some(key)
    }

    /// The key of a client by the text of its address.
    pub fn from_client(shown: &str) -> Option<Self> {
        address::parse(shown).map(Self::Address)
    }
}

impl fmt::Display for BannedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(net) => write!(f, "ip:{}", address::shown(*net)),
            Self::User(user) => write!(f, "user:{user}"),
        }
    }
}

/// A prefix of mapped addresses as an IPv4 prefix.
fn canonical(net: IpNet) -> IpNet {
    let IpNet::V6(v6) = net else { return net };
    let mapped = v6.addr().to_ipv4_mapped().zip(v6.prefix_len().checked_sub(96));
    mapped.and_then(|(address, length)| Ipv4Net::new(address, length).ok()).map_or(net, IpNet::V4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{abuse::testing::names, config::model::Users};

    fn parsed(text: &str) -> Result<String, String> {
        BannedKey::parse(text, 64, &UserNaming::default())
            .map(|key| key.to_string())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn keys_are_read_as_they_are_written() {
        for (text, key) in [
            ("ip:203.0.113.7", "ip:203.0.113.7"),
            ("203.0.113.7", "ip:203.0.113.7"),
            ("ip:203.0.113.7/32", "ip:203.0.113.7"),
            ("ip:10.0.0.0/8", "ip:10.0.0.0/8"),
            ("ip:2001:db8::1", "ip:2001:db8::/64"),
            ("2001:db8::/32", "ip:2001:db8::/32"),
            ("ip:::ffff:203.0.113.7", "ip:203.0.113.7"),
            ("ip:::ffff:10.0.0.0/104", "ip:10.0.0.0/8"),
            ("user:acme", "user:acme"),
            ("user:a:b", "user:a%3Ab"),
        ] {
            assert_eq!(parsed(text).as_deref(), Ok(key));
            assert_eq!(BannedKey::from_canonical(key).map(|key| key.to_string()).as_deref(), Some(key));
        }
    }

    #[test]
    fn a_user_is_banned_by_the_name_in_its_requests() {
        for (name, key) in [
            ("acme", "user:acme"),
            ("a+b", "user:a%2Bb"),
            ("a%2Bb", "user:a%252Bb"),
            ("hmac:1", "user:hmac%3A1"),
        ] {
            assert_eq!(BannedKey::from_user_name(name, &UserNaming::default()).to_string(), key);
            assert_eq!(parsed(key).as_deref(), Ok(key));
        }
    }

    #[test]
    fn a_user_is_banned_by_the_hash_where_names_are_not_written_down() {
        let hashed = names(Users::Hashed);
        let read = |text: &str| BannedKey::parse(text, 64, &hashed).unwrap().to_string();
        let acme = format!("user:{}", hashed.pseudonym("a:b").unwrap());
        for text in ["user:a:b", "user:a%3Ab", &acme] {
            assert_eq!(read(text), acme, "{text}");
            assert_eq!(BannedKey::from_canonical(&read(text)).unwrap().to_string(), acme);
        }
        assert_eq!(BannedKey::from_user_name("a:b", &hashed).to_string(), acme);
        let plain = BannedKey::from_canonical("user:a%3Ab").unwrap();
        assert_eq!(plain.masked(&hashed).unwrap().to_string(), acme);
        assert_eq!(plain.masked(&UserNaming::default()), None);
        assert_eq!(BannedKey::from_canonical(&acme).unwrap().masked(&hashed), None);
        assert_eq!(parsed(&acme).as_deref(), Ok(&*acme), "one that is left from before");
    }

    #[test]
    fn malformed_keys_and_all_addresses_are_refused() {
        for text in ["", "ip:", "user:", "acme", "ip:acme", "user:a\nb", "host:a", "ip:10.0.0.0/33"] {
            assert!(parsed(text).unwrap_err().starts_with("a key is ip:"), "{text}");
        }
        for text in ["ip:0.0.0.0/0", "10.0.0.0/0", "::/0", "ip:::ffff:0.0.0.0/96"] {
            assert!(parsed(text).unwrap_err().ends_with("would ban every client"), "{text}");
        }
        let error = parsed("ip:10.0.0.1/8").unwrap_err();
        assert!(error.ends_with("write ip:10.0.0.0/8 to ban the whole prefix"), "{error}");
    }

    #[test]
    fn only_canonical_keys_are_parsed_as_such() {
        for text in
            ["203.0.113.7", "ip:10.0.0.1/8", "ip:0.0.0.0/0", "user:", "user:a:b", "ip:1.2.3.4/32", "x"]
        {
            assert_eq!(BannedKey::from_canonical(text), None, "{text}");
        }
    }
}
