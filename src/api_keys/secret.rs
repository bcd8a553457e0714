//! The text of an API key, which only its holder has: `tgk_ID_SECRET_CHECK`.

use std::fmt;

use aws_lc_rs::rand;
use compact_str::CompactString;
use crc::{CRC_32_ISO_HDLC, Crc};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// The shortest text that can be a key, in bytes. Shorter ones could be guessed.
pub const MIN_KEY_LENGTH: usize = 16;
/// The longest one.
pub const MAX_KEY_LENGTH: usize = 512;
const ID_LENGTH: usize = 10;
const SECRET_LENGTH: usize = 32;
/// Of base 62. The remainder of a 32-bit number has at most six letters.
const CHECK_LENGTH: usize = 6;

const CHECKSUM: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);
const BASE_62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The SHA-256 of a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyHash(pub [u8; 32]);

impl KeyHash {
    /// The hash of the key `text`.
    pub fn of(text: &[u8]) -> Self {
        Self(Sha256::digest(text).into())
    }

    /// Parses `sha256:HEX`, in either letter case.
    pub fn parse(text: &str) -> Option<Self> {
        let hex = text.strip_prefix("sha256:")?.as_bytes();
        let mut hash = [0; 32];
        if hex.len() != 2 * hash.len() {
            return None;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        for (byte, pair) in hash.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(hash))
    }
}

impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Serialize for KeyHash {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for KeyHash {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(from)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("not `sha256:` and 64 hexadecimal digits"))
    }
}

/// A hash is no secret, but nobody needs it in a log either.
impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash(…)")
    }
}

/// A key that was just made. Its text is shown once, and then forgotten.
pub struct NewKey {
    pub id: CompactString,
    pub text: Zeroizing<String>,
}

impl NewKey {
    /// Makes a key with a random ID.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn generate(prefix: &str) -> Result<Self, NoRandomNumbers> {
        Self::with_id(prefix, &random_letters::<ID_LENGTH>()?)
    }

    /// Makes another key with this ID, for its rotation.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn with_id(prefix: &str, id: &str) -> Result<Self, NoRandomNumbers> {
        let secret = random_letters::<SECRET_LENGTH>()?;
        let mut text =
            Zeroizing::new(String::with_capacity(prefix.len() + id.len() + SECRET_LENGTH + CHECK_LENGTH + 3));
        text.extend([prefix, "_", id, "_", &secret]);
        let check = checksum(text.as_bytes());
        text.extend(["_", &check]);
        Ok(Self { id: id.into(), text })
    }

    pub fn hash(&self) -> KeyHash {
        KeyHash::of(self.text.as_bytes())
    }
}

/// An ID for a key that was made elsewhere.
///
/// # Errors
/// The system has no random numbers.
pub fn random_id() -> Result<CompactString, NoRandomNumbers> {
    Ok(random_letters::<ID_LENGTH>()?.as_str().into())
}

/// The system's source of random numbers failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the system has no random numbers")]
pub struct NoRandomNumbers;

/// Whether `text` has the form of a key that was made here with `prefix`, but not its checksum: a letter is wrong or
/// missing.
pub fn is_mistyped(prefix: &str, text: &[u8]) -> bool {
    let Some(rest) = text.strip_prefix(prefix.as_bytes()).and_then(|rest| rest.strip_prefix(b"_")) else {
        return false;
    };
    let is_whole = rest.iter().filter(|&&byte| byte == b'_').count() == 2;
    let last = text.iter().rposition(|&byte| byte == b'_').unwrap_or(0);
    !is_whole || checksum(&text[..last]).as_bytes() != &text[last + 1..]
}

/// CRC-32 in base 62, padded with zeros.
fn checksum(text: &[u8]) -> String {
    let mut rest = CHECKSUM.checksum(text);
    let mut letters = [b'0'; CHECK_LENGTH];
    for letter in letters.iter_mut().rev() {
        *letter = BASE_62[(rest % 62) as usize];
        rest /= 62;
    }
    letters.iter().copied().map(char::from).collect()
}

/// Letters of base 62, each as likely as any other.
fn random_letters<const N: usize>() -> Result<Zeroizing<String>, NoRandomNumbers> {
    let mut letters = Zeroizing::new(String::with_capacity(N));
    let mut bytes = Zeroizing::new([0; 64]);
    while letters.len() < N {
        rand::fill(&mut *bytes).map_err(|_| NoRandomNumbers)?;
        // The remainder of a larger byte would favour the first letters.
        let even =
            bytes.iter().filter(|&&byte| byte < 4 * 62).map(|byte| char::from(BASE_62[(byte % 62) as usize]));
        let missing = N - letters.len();
        letters.extend(even.take(missing));
    }
    Ok(letters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_key_has_its_form_and_a_typing_error_is_told() {
        let key = NewKey::generate("tgk").unwrap();
        let parts: Vec<&str> = key.text.split('_').collect();
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [3, 10, 32, 6]);
        assert_eq!((parts[0], parts[1]), ("tgk", &*key.id));
        assert!(!is_mistyped("tgk", key.text.as_bytes()));
        for at in 0..key.text.len() {
            let mut wrong = key.text.as_bytes().to_vec();
            wrong[at] = if wrong[at] == b'x' { b'y' } else { b'x' };
            let has_prefix = wrong.starts_with(b"tgk_");
            assert_eq!(is_mistyped("tgk", &wrong), has_prefix, "at {at}");
        }
        assert!(is_mistyped("tgk", &key.text.as_bytes()[..key.text.len() - 1]));
        assert!(is_mistyped("tgk", b"tgk_") && is_mistyped("tgk", b"tgk_a_b_c_d"));
        assert!(!is_mistyped("tgk", b"some-other-key-of-a-customer"));
    }

    #[test]
    fn keys_differ_and_use_all_letters() {
        let keys: Vec<NewKey> = (0..200).map(|_| NewKey::generate("tgk").unwrap()).collect();
        let ids: std::collections::BTreeSet<_> = keys.iter().map(|key| key.id.clone()).collect();
        assert_eq!(ids.len(), 200);
        let secrets: std::collections::BTreeSet<u8> =
            keys.iter().flat_map(|key| key.text.as_bytes()[15..47].to_vec()).collect();
        assert_eq!(secrets.len(), 62);
        let again = NewKey::with_id("tgk", &keys[0].id).unwrap();
        assert_eq!(again.id, keys[0].id);
        assert!(again.hash() != keys[0].hash());
    }

    #[test]
    fn hashes_are_written_in_hex() {
        let hash = KeyHash::of(b"abc");
        let text = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hash.to_string(), text);
        assert!(KeyHash::parse(text) == Some(hash) && KeyHash::parse(&text.replace('b', "B")) == Some(hash));
        for wrong in [
            "",
            "sha256:",
            "sha256:zz",
            &text[7..],
            &text[..70],
            &format!("{text}0"),
            &text.replace('f', "é"),
        ] {
            assert!(KeyHash::parse(wrong).is_none(), "{wrong}");
        }
    }
}
