//! How users are stored and logged: by name, by a keyed hash, or not at all; and their pseudonyms in the keys of
//! limits and bans, which distinguish users in any case.

use std::{borrow::Cow, sync::Arc};

use compact_str::{CompactString, format_compact};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::{
    config::model::{Abuse, Users},
    limit::algorithm::metadata_list::Entry,
};

/// Bytes of a name that are kept. Longer names are cut.
const MAX_NAME_BYTES: usize = 128;
/// Follows the beginning of a name that is cut.
const CUT: &str = "…";
/// The beginning of a pseudonym; 16 hexadecimal digits follow.
const HASH_PREFIX: &str = "hmac:";
/// Replaces, in a key, a user whose name must not be stored.
const HIDDEN_USER: &str = "*";

/// The form in which users are stored and logged. Hashing takes a fraction of a microsecond. If names are not stored, a
/// request hashes its user once, and uses the pseudonym from then on.
#[derive(Debug, Clone)]
pub struct UserNaming {
    users: Users,
    /// Keyed with the secret. `None` if there is no secret: names are then stored in the clear, and the hashes only
    /// have to differ.
    mac: Option<Hmac<Sha256>>,
}

/// A user in records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedUser {
    /// Distinguishes users; the same on every instance with the same secret.
    pub(super) hash: u64,
    pub(super) written: CompactString,
}

impl Default for UserNaming {
    fn default() -> Self {
        Self { users: Users::Plain, mac: None }
    }
}

impl UserNaming {
    /// The form set by `abuse.users` and `abuse.secret`.
    pub fn new(config: &Abuse) -> Self {
        let secret = config.secret.as_ref().map(|secret| secret.reveal().as_bytes());
        // A key of any length is valid (RFC 2104), so there is no error.
        let mac = secret.and_then(|secret| Hmac::new_from_slice(secret).ok());
        Self { users: config.users, mac }
    }

    /// The user's pseudonym in the keys of limits and bans. `None`: keys have the name itself.
    pub fn pseudonym(&self, user: &str) -> Option<CompactString> {
        (self.users != Users::Plain).then(|| hashed(self.hash(user)))
    }

    /// The pseudonym of an operator's input, which may be the name or the pseudonym. `None`: keys have the name itself.
    pub fn pseudonym_of_input(&self, text: &str) -> Option<CompactString> {
        match self.users {
            Users::Plain => None,
            _ if is_pseudonym(text) => Some(text.into()),
            Users::Hashed | Users::Off => self.pseudonym(text),
        }
    }

    /// The form in logs and records of a user whose [pseudonym](UserNaming::pseudonym) is known.
    pub fn written<'a>(&self, user: Option<&'a str>, pseudonym: Option<&'a str>) -> Option<&'a str> {
        match self.users {
            Users::Plain => user,
            Users::Hashed => pseudonym,
            Users::Off => None,
        }
    }

    /// The form in logs of a user whose pseudonym is not known.
    pub fn log_name<'a>(&self, user: &'a str) -> Option<Cow<'a, str>> {
        match self.users {
            Users::Plain => Some(user.into()),
            Users::Hashed => Some(String::from(hashed(self.hash(user))).into()),
            Users::Off => None,
        }
    }

    /// The form in records: shortened by [`shorten_name`], or the pseudonym. `None` if records have no users. `text`:
    /// the name or the stored form, as in an operator's input or in a record made under other settings.
    pub fn stored_name<'a>(&self, text: &'a str) -> Option<Cow<'a, str>> {
        match self.users {
            Users::Plain => Some(shorten_name(text)),
            Users::Hashed if is_pseudonym(text) => Some(text.into()),
            Users::Hashed | Users::Off => self.log_name(text),
        }
    }

    /// The user of a record, which may have been made under other settings, by this instance or another.
    pub(super) fn identify(&self, stored: &str) -> Option<NamedUser> {
        let known = parse_hash(stored).filter(|_| self.users == Users::Hashed);
        let hash = || known.unwrap_or_else(|| self.hash(stored));
        match self.users {
            Users::Plain => Some(NamedUser { hash: hash(), written: shorten_name(stored).into() }),
            Users::Hashed => Some(hash()).map(|hash| NamedUser { hash, written: hashed(hash) }),
            Users::Off => None,
        }
    }

    /// A record in the form that may be stored, and its user. Another instance, or this one before a reload, may have
    /// stored more.
    pub(super) fn mask_entry(&self, entry: &Arc<Entry>) -> (Arc<Entry>, Option<NamedUser>) {
        let named = entry.user.as_deref().and_then(|user| self.identify(user));
        let user = named.as_ref().map(|named| named.written.clone());
        let entry = match user == entry.user {
            true => Arc::clone(entry),
            false => Arc::new(Entry { user, ..Entry::clone(entry) }),
        };
        (entry, named)
    }

    /// A key of limits in the form that may be stored: `user:acme`, `ip:203.0.113.7+user:acme`.
    pub fn mask_key<'a>(&self, key: &'a str) -> Cow<'a, str> {
        if self.users == Users::Plain || !names_a_user(key) {
            return Cow::Borrowed(key);
        }
        let parts = key.split('+').map(|part| match part.strip_prefix("user:") {
            Some(_) if self.users == Users::Off => format_compact!("user:{HIDDEN_USER}"),
            // A client's colon is encoded, so this one is ours.
            Some(written) if is_pseudonym(written) => part.into(),
            Some(user) => {
                let user = percent_encoding::percent_decode_str(user).decode_utf8_lossy();
                format_compact!("user:{}", hashed(self.hash(&user)))
            }
            None => part.into(),
        });
        Cow::Owned(parts.collect::<Vec<_>>().join("+"))
    }

    /// Whether the stored form of a key does not tell its user.
    pub fn hides_user(&self, key: &str) -> bool {
        self.users == Users::Off && names_a_user(key)
    }

    /// Whether users are stored at all.
    pub fn is_enabled(&self) -> bool {
        self.users != Users::Off
    }

    /// The first 64 bits, big-endian, of the name's HMAC-SHA256, or without a secret of a SHA-256 with a prefix of
    /// its own. Hashes the whole name: users whose names begin alike have limits of their own.
    fn hash(&self, user: &str) -> u64 {
        let user = user.as_bytes();
        let digest = match &self.mac {
            Some(mac) => mac.clone().chain_update(user).finalize().into_bytes(),
            None => Sha256::new().chain_update(b"tollgate user\0").chain_update(user).finalize(),
        };
        digest.iter().take(8).fold(0, |hash, &byte| hash << 8 | u64::from(byte))
    }
}

fn hashed(hash: u64) -> CompactString {
    format_compact!("{HASH_PREFIX}{hash:016x}")
}

/// Whether this is a pseudonym.
pub fn is_pseudonym(text: &str) -> bool {
    parse_hash(text).is_some()
}

/// The hash in a pseudonym.
fn parse_hash(text: &str) -> Option<u64> {
    let digits = text.strip_prefix(HASH_PREFIX)?;
    let is_written = digits.len() == 16 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    u64::from_str_radix(digits, 16).ok().filter(|_| is_written)
}

fn names_a_user(key: &str) -> bool {
    key.split('+').any(|part| part.starts_with("user:"))
}

/// A name in records: a long one is cut, with `…` at its end.
pub fn shorten_name(user: &str) -> Cow<'_, str> {
    if user.len() <= MAX_NAME_BYTES {
        return user.into();
    }
    let kept = user.floor_char_boundary(MAX_NAME_BYTES - CUT.len());
    format!("{}{CUT}", &user[..kept]).into()
}

/// Whether this is a long name cut by [`shorten_name`]; or, hardly ever, a name that looks like one.
pub fn is_shortened(name: &str) -> bool {
    // The cut may have removed a whole character before the end.
    name.ends_with(CUT) && name.len() > MAX_NAME_BYTES - char::MAX.len_utf8()
}

#[cfg(test)]
mod tests {
    use super::{super::testing::names, *};

    #[test]
    fn names_are_plain_hashed_or_off() {
        // printf acme | openssl dgst -sha256 -hmac s3cret
        const ACME: &str = "hmac:5559b01469a0a939";
        assert_eq!(names(Users::Plain).stored_name("acme").as_deref(), Some("acme"));
        assert_eq!(names(Users::Hashed).stored_name("acme").as_deref(), Some(ACME));
        assert_eq!(names(Users::Off).stored_name("acme"), None);
        let named = names(Users::Hashed).identify("acme").unwrap();
        assert_eq!(named.written, ACME);
        assert_eq!(names(Users::Hashed).identify(ACME), Some(named.clone()));
        assert_eq!(names(Users::Plain).identify("acme").unwrap().hash, named.hash, "the secret makes it");
        assert_eq!(names(Users::Off).identify("acme"), None);
    }

    #[test]
    fn a_name_that_looks_like_a_hash_is_hashed_all_the_same() {
        let posing = "hmac:0123456789abcdef";
        assert_ne!(names(Users::Hashed).log_name(posing).as_deref(), Some(posing));
        assert_ne!(names(Users::Hashed).mask_key("user:hmac%3A0123456789abcdef"), format!("user:{posing}"));
        let stored = names(Users::Hashed);
        assert_eq!(stored.stored_name(posing).as_deref(), Some(posing), "an operator means the hash");
        assert_eq!(names(Users::Plain).identify(posing).unwrap().written, posing);
        assert_ne!(names(Users::Plain).identify(posing).unwrap().hash, 0x0123_4567_89ab_cdef);
        for other in ["hmac:0123456789ABCDEF", "hmac:+123456789abcdef", "hmac:0", "acme"] {
            assert_eq!(parse_hash(other), None, "{other}");
        }
    }

    #[test]
    fn a_pseudonym_stands_for_a_name_that_is_not_written_down() {
        let acme = names(Users::Hashed).pseudonym("acme");
        assert_eq!(acme.as_deref(), names(Users::Hashed).stored_name("acme").as_deref());
        assert_eq!(
            (names(Users::Plain).pseudonym("acme"), names(Users::Off).pseudonym("acme")),
            (None, acme.clone())
        );
        let written = |users| names(users).written(Some("acme"), acme.as_deref()).map(str::to_owned);
        assert_eq!(written(Users::Plain).as_deref(), Some("acme"));
        assert_eq!(written(Users::Hashed), acme.as_deref().map(str::to_owned));
        assert_eq!(written(Users::Off), None);
        for users in [Users::Hashed, Users::Off] {
            assert_eq!(names(users).pseudonym_of_input("acme"), acme);
            assert_eq!(names(users).pseudonym_of_input(acme.as_deref().unwrap()), acme);
        }
    }

    #[test]
    fn keys_hide_the_user_and_nothing_else() {
        let hashed = names(Users::Hashed);
        let acme = hashed.stored_name("a:b").unwrap();
        assert_eq!(hashed.mask_key("user:a%3Ab"), format!("user:{acme}"));
        assert_eq!(hashed.mask_key("ip:203.0.113.7+user:a%3Ab"), format!("ip:203.0.113.7+user:{acme}"));
        assert_eq!(hashed.mask_key(&format!("user:{acme}")), format!("user:{acme}"));
        assert_eq!(hashed.mask_key("ip:203.0.113.7+path:/user:a"), "ip:203.0.113.7+path:/user:a");
        assert_eq!(names(Users::Off).mask_key("user:acme+path:/a"), "user:*+path:/a");
        assert_eq!(names(Users::Off).mask_key(&format!("user:{acme}")), "user:*");
        assert_eq!(names(Users::Plain).mask_key("user:acme"), "user:acme");
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        for (long, kept) in [("ä".repeat(100), 62), ("n".repeat(129), 125), ("😀".repeat(33), 31)] {
            let stored = shorten_name(&long);
            let expected: String = long.chars().take(kept).chain(['…']).collect();
            assert_eq!((&*stored, &*shorten_name(&stored)), (expected.as_str(), expected.as_str()));
            assert!(is_shortened(&stored) && !is_shortened(&long));
        }
        for whole in ["n".repeat(128), "and so on…".to_owned()] {
            assert!(shorten_name(&whole) == whole && !is_shortened(&whole));
        }
        let long = "ä".repeat(100);
        assert_ne!(
            names(Users::Hashed).pseudonym(&long),
            names(Users::Hashed).pseudonym(&shorten_name(&long)),
            "they are two users"
        );
    }
}
