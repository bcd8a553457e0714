//! Warns about an admin token that can be guessed.

use crate::config::reader::Cursor;

/// OWASP requires 64 bits in a session identifier. A few less are accepted, because chance can look like a pattern.
const MIN_BITS: f64 = 60.0;
/// Bits that a common word, or a repetition, adds.
const PATTERN_BITS: f64 = 8.0;
/// The shortest repetition that counts, in characters.
const MIN_REPEATED: usize = 3;

/// Words and rows of keys that people use in tokens.
const COMMON: [&str; 66] = [
    "administrator",
    "production",
    "kubernetes",
    "localhost",
    "monitoring",
    "iloveyou",
    "changeme",
    "password",
    "passwort",
    "tollgate",
    "internal",
    "company",
    "default",
    "example",
    "gateway",
    "letmein",
    "private",
    "replace",
    "staging",
    "battery",
    "correct",
    "welcome",
    "access",
    "bearer",
    "change",
    "docker",
    "dragon",
    "foobar",
    "github",
    "hunter",
    "master",
    "monkey",
    "passwd",
    "please",
    "public",
    "qwerty",
    "qwertz",
    "sample",
    "secret",
    "server",
    "staple",
    "system",
    "admin",
    "azerty",
    "guest",
    "hello",
    "horse",
    "local",
    "login",
    "proxy",
    "redis",
    "super",
    "token",
    "trust",
    "asdf",
    "auth",
    "demo",
    "pass",
    "prod",
    "root",
    "test",
    "todo",
    "user",
    "your",
    "zxcv",
    "key",
];

pub(in crate::config) fn warn(value: Cursor<'_>, token: &str) {
    if estimated_bits(token) < MIN_BITS {
        let help = "use at least 16 random characters, such as those that `openssl rand -hex 32` prints";
        value.warn(
            "the admin token can be guessed: it is short, or made of words or patterns",
            help.to_owned(),
        );
    }
}

/// The bits that an attacker has to guess. The attacker knows the kinds of characters in the token, common words,
/// repetitions and sequences.
fn estimated_bits(token: &str) -> f64 {
    let of_character = alphabet(token).log2();
    let lower: Vec<u8> = token.bytes().map(|byte| byte.to_ascii_lowercase()).collect();
    let letters: Vec<u8> = lower.iter().map(|&byte| letter(byte)).collect();
    let (mut bits, mut at) = (0.0, 0);
    while at < lower.len() {
        let word = COMMON.iter().find(|word| letters[at..].starts_with(word.as_bytes()));
        let pattern = word.map_or(0, |word| word.len()).max(repeated(&lower, at));
        if pattern > 0 {
            bits += PATTERN_BITS;
            at += pattern;
        } else {
            bits += if continues_sequence(&lower, at) { 1.0 } else { of_character };
            at += 1;
        }
    }
    bits
}

/// The number of characters in the alphabets that `token` uses.
fn alphabet(token: &str) -> f64 {
    let has = |is: fn(&u8) -> bool| token.bytes().any(|byte| is(&byte));
    let (upper, lower) = (has(u8::is_ascii_uppercase), has(u8::is_ascii_lowercase));
    if token.bytes().all(|byte| byte.is_ascii_hexdigit()) && !(upper && lower) {
        return if upper || lower { 16.0 } else { 10.0 };
    }
    let sizes = [
        (upper, 26.0),
        (lower, 26.0),
        (has(u8::is_ascii_digit), 10.0),
        (has(u8::is_ascii_punctuation), 32.0),
    ];
    sizes.iter().filter(|(is_there, _)| *is_there).map(|(_, size)| size).sum()
}

/// The letter that `byte` often replaces, as in `p4ssw0rd`.
fn letter(byte: u8) -> u8 {
    match byte {
        b'0' => b'o',
        b'1' => b'l',
        b'3' => b'e',
        b'4' | b'@' => b'a',
        b'5' | b'$' => b's',
        b'7' => b't',
        other => other,
    }
}

/// The length of the sequence at `at` that also occurs before it. 0 if it is so short that it may be chance.
fn repeated(text: &[u8], at: usize) -> usize {
    let (before, rest) = text.split_at(at);
    let starts =
        (0..before.len()).map(|start| before[start..].iter().zip(rest).take_while(|(a, b)| a == b).count());
    starts.max().filter(|&length| length >= MIN_REPEATED).unwrap_or(0)
}

/// Whether the character continues the sequence of the two before it: `abc`, `321`, `aaa`.
fn continues_sequence(text: &[u8], at: usize) -> bool {
    let step = |at: usize| i16::from(text[at]) - i16::from(text[at - 1]);
    at >= 2 && step(at) == step(at - 1) && step(at).abs() <= 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_that_people_think_of_are_guessable() {
        for token in [
            "a",
            "secret",
            "s3cret-token",
            "changeme",
            "hunter2",
            "P4ssw0rd!",
            "tollgate-admin-token",
            "letmein123",
            "correct-horse-battery-staple",
            "12345678901234567890",
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            "abcdefghijklmnopqrstuvwxyz",
            "abcabcabcabcabcabcabcabc",
            "deadbeef",
            "qwertyqwertyqwerty",
            "Xk9!pQ2z",
            "admin:admin",
            "4815162342",
            "my-secret-key",
            "0000000000000000",
            "ffffffffffffffffffffffffffffffff",
        ] {
            assert!(estimated_bits(token) < MIN_BITS, "{token}: {}", estimated_bits(token));
        }
    }

    #[test]
    fn tokens_of_generators_are_not_guessable() {
        for token in [
            "9f86d081884c7d65",
            "d41d8cd98f00b204e9800998ecf8427e",
            "b7yT4mQzR8fL2wKx",
            "Ks8vQz1LmTfB",
            "f47ac10b-58cc-4372-a567-0e02b2c3d479",
            "hV8mZQ2xwq0P4hJ1p7cN6w==",
            "83719264501837465920",
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        ] {
            assert!(estimated_bits(token) >= MIN_BITS, "{token}: {}", estimated_bits(token));
        }
    }
}
