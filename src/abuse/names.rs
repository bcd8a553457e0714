//! How a user is written down: by name, by a keyed hash of it, or not at all; and what stands for the name in the keys of
//! limits and bans, which have to tell users apart in any case.

use std::{borrow::Cow, sync::Arc};

use compact_str::{CompactString, format_compact};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::{
    config::model::{Abuse, Users},
    limit::algorithm::metadata_list::Entry,
};

/// Bytes of a name that are kept. What clients make longer is cut.
const MAX_NAME_BYTES: usize = 128;
/// Stands behind the beginning of a name that is cut.
const CUT: &str = "…";
/// What a hashed name begins with; 16 hexadecimal digits follow.
const HASH_PREFIX: &str = "hmac:";
/// Stands in a key for a user whose name must not be stored.
const HIDDEN_USER: &str = "*";

/// How users are written down. Hashing takes a fraction of a microsecond. Where names are not written down, it is done once
/// a request, and the rest of the request goes by the hash.
#[derive(Debug, Clone)]
pub struct UserNaming {
    users: Users,
    /// Keyed with the secret. `None` where there is no secret: names are then stored in the clear, and the hashes only
    /// have to differ.
    mac: Option<Hmac<Sha256>>,
}

/// A user as in records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedUser {
    /// Tells users apart; the same on every instance that has the same secret.
    pub(super) hash: u64,
    pub(super) written: CompactString,
}

impl Default for UserNaming {
    fn default() -> Self {
        Self { users: Users::Plain, mac: None }
    }
}

impl UserNaming {
    /// As `abuse.users` and `abuse.secret` say.
    pub fn new(config: &Abuse) -> Self {
        let secret = config.secret.as_ref().map(|secret| secret.reveal().as_bytes());
        // A key of any length will do (RFC 2104): there is no error.
        let mac = secret.and_then(|secret| Hmac::new_from_slice(secret).ok());
        Self { users: config.users, mac }
    }

    /// What stands for a user in the keys of limits and bans. `None`: the name itself.
    pub fn pseudonym(&self, user: &str) -> Option<CompactString> {
        (self.users != Users::Plain).then(|| hashed(self.hash(user)))
    }

    /// What may be written down of a user whose [pseudonym](UserNaming::pseudonym) is known.
    pub fn written<'a>(&self, user: Option<&'a str>, pseudonym: Option<&'a str>) -> Option<&'a str> {
        match self.users {
            Users::Plain => user,
            Users::Hashed => pseudonym,
            Users::Off => None,
        }
    }

    /// What may be logged of a user whose pseudonym is not known.
    pub fn log_name<'a>(&self, user: &'a str) -> Option<Cow<'a, str>> {
        match self.users {
            Users::Plain => Some(user.into()),
            Users::Hashed => self.pseudonym(user).map(|pseudonym| String::from(pseudonym).into()),
            Users::Off => None,
        }
    }

    /// As an operator's input names the user in keys: by name or by pseudonym. `None`: it is the name itself.
    pub fn pseudonym_of_input(&self, text: &str) -> Option<CompactString> {
        match self.users {
            Users::Plain => None,
            _ if is_pseudonym(text) => Some(text.into()),
            Users::Hashed | Users::Off => self.pseudonym(text),
        }
    }

    /// The name under which records keep a user: shortened by [`shorten_name`], or as `hmac:` and 16 hexadecimal digits. `None`
    /// if records keep no users.
    pub fn stored_name<'a>(&self, user: &'a str) -> Option<Cow<'a, str>> {
        match self.users {
            Users::Plain => Some(shorten_name(user)),
            Users::Hashed | Users::Off => self.log_name(user),
        }
    }

    /// Whether a key as stored does not say which user's it is.
    pub fn hides_user(&self, key: &str) -> bool {
        self.users == Users::Off && names_a_user(key)
    }

    /// As [`UserNaming::stored_name`], for an operator's input and for what was stored before: the user's name, or the name as
    /// stored.
    pub fn stored_name_of_input<'a>(&self, text: &'a str) -> Option<Cow<'a, str>> {
        match parse_hash(text) {
            Some(_) if self.users == Users::Hashed => Some(Cow::Borrowed(text)),
            _ => self.stored_name(text),
        }
    }

    /// A key of limits as it may be stored: `user:acme`, `ip:203.0.113.7+user:acme`.
    pub fn mask_key<'a>(&self, key: &'a str) -> Cow<'a, str> {
        if self.users == Users::Plain || !names_a_user(key) {
            return Cow::Borrowed(key);
        }
        let parts = key.split('+').map(|part| match part.strip_prefix("user:") {
            Some(_) if self.users == Users::Off => format_compact!("user:{HIDDEN_USER}"),
            // A colon that a client wrote is encoded: this one we did.
            Some(written) if is_pseudonym(written) => part.into(),
            Some(user) => {
                let user = percent_encoding::percent_decode_str(user).decode_utf8_lossy();
                format_compact!("user:{}", self.stored_name(&user).as_deref().unwrap_or(HIDDEN_USER))
            }
            None => part.into(),
        });
        Cow::Owned(parts.collect::<Vec<_>>().join("+"))
    }

    /// Whether a key is stored unchanged.
    pub fn is_unchanged(&self, key: &str) -> bool {
        self.users == Users::Plain || !names_a_user(key)
    }

    /// Whether users are stored at all.
    pub fn is_enabled(&self) -> bool {
        self.users != Users::Off
    }

    /// A user by name.
    pub(super) fn identify(&self, user: &str) -> Option<NamedUser> {
        let hash = || self.hash(user);
        match self.users {
            Users::Plain => Some(NamedUser { hash: hash(), written: shorten_name(user).into() }),
            Users::Hashed => Some(hash()).map(|hash| NamedUser { hash, written: hashed(hash) }),
            Users::Off => None,
        }
    }

    /// A user that a record names. A name stored before names were hashed is hashed now.
    pub(super) fn identify_stored(&self, written: &str) -> Option<NamedUser> {
        match parse_hash(written).filter(|_| self.users == Users::Hashed) {
            Some(hash) => Some(NamedUser { hash, written: written.into() }),
            None => self.identify(written),
        }
    }

    /// A record as it may be stored, and its user. Another instance, or this one before a reload, may have stored
    /// more.
    pub(super) fn mask_entry(&self, entry: &Arc<Entry>) -> (Arc<Entry>, Option<NamedUser>) {
        let named = entry.user.as_deref().and_then(|user| self.identify_stored(user));
        let user = named.as_ref().map(|named| named.written.clone());
        let entry = match user == entry.user {
            true => Arc::clone(entry),
            false => Arc::new(Entry { user, ..Entry::clone(entry) }),
        };
        (entry, named)
    }

    /// The first 64 bits, big-endian, of HMAC-SHA256 of the name; without a secret of a SHA-256 that nothing else
    /// makes of it. Of the whole name: users whose names begin alike have limits of their own.
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

/// Whether this stands for a name in a key.
pub fn is_pseudonym(text: &str) -> bool {
    parse_hash(text).is_some()
}

/// The hash that a hashed name holds.
fn parse_hash(text: &str) -> Option<u64> {
    let digits = text.strip_prefix(HASH_PREFIX)?;
    let is_written = digits.len() == 16 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    u64::from_str_radix(digits, 16).ok().filter(|_| is_written)
}

fn names_a_user(key: &str) -> bool {
    key.split('+').any(|part| part.starts_with("user:"))
}

/// A name as records keep it: of a long one the beginning, and `…`.
pub fn shorten_name(user: &str) -> Cow<'_, str> {
    if user.len() <= MAX_NAME_BYTES {
        return user.into();
    }
    let kept = user.floor_char_boundary(MAX_NAME_BYTES - CUT.len());
    format!("{}{CUT}", &user[..kept]).into()
}

/// Whether this is the beginning of a long name, as records keep it; or, hardly ever, a name that looks like that.
pub fn is_shortened(name: &str) -> bool {
    // A character before the end may have been cut whole.
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
        assert_eq!(names(Users::Hashed).identify_stored(ACME), Some(named.clone()));
        assert_eq!(names(Users::Hashed).identify_stored("acme"), Some(named.clone()), "written before");
        assert_eq!(names(Users::Plain).identify("acme").unwrap().hash, named.hash, "the secret makes it");
        assert_eq!(names(Users::Off).identify("acme"), None);
    }

    #[test]
    fn a_name_that_looks_like_a_hash_is_hashed_all_the_same() {
        let posing = "hmac:0123456789abcdef";
        assert_ne!(names(Users::Hashed).stored_name(posing).as_deref(), Some(posing));
        assert_eq!(
            names(Users::Hashed).stored_name_of_input(posing).as_deref(),
            Some(posing),
            "an operator means the hash"
        );
        assert_eq!(names(Users::Plain).identify_stored(posing), names(Users::Plain).identify(posing));
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
