//! Reads fields of a form (`application/x-www-form-urlencoded`; WHATWG URL, 5.1) strictly.
//!
//! Of a field that comes twice, some frameworks take the first, others the last. PHP takes `user name`, `user.name` and
//! `user_name[]` for `user_name`, and some parsers end a field at a semicolon. Here, what is asked has one meaning.

use std::borrow::Cow;

use compact_str::CompactString;
use percent_encoding::percent_decode;

use super::{
    BodyRefusal,
    members::{is_alike, shown},
};

/// The bytes of a name that are compared. Longer ones may be taken for it only by their beginning.
const COMPARED: usize = 1_024;
/// The most fields of a form.
const MAX_FIELDS: usize = 10_000;

/// A form.
#[derive(Clone, Copy)]
pub struct Form<'b> {
    body: &'b [u8],
    is_utf8: bool,
}

impl<'b> Form<'b> {
    pub fn new(body: &'b [u8]) -> Self {
        Self { body, is_utf8: true }
    }

    /// One in ISO 8859-1, of which only ASCII is read.
    pub fn in_latin(body: &'b [u8]) -> Self {
        Self { body, is_utf8: false }
    }

    /// The field of this name. `None`: it is not there.
    ///
    /// # Errors
    /// It, or a name like it, comes several times, or servers may read it in several ways.
    pub fn field(&self, asked: &str) -> Result<Option<CompactString>, BodyRefusal> {
        // Strings of C end there.
        if self.body.contains(&0) {
            return Err(BodyRefusal::malformed("has a NUL"));
        }
        let asked_parts = parts(asked.as_bytes());
        let (mut found, mut fields) = (None, 0);
        for pair in self.body.split(|byte| *byte == b'&') {
            for (nth, piece) in pair.split(|byte| *byte == b';').enumerate() {
                fields += 1;
                if fields > MAX_FIELDS {
                    return Err(BodyRefusal::too_large(format!(
                        "is a form of more than {MAX_FIELDS} fields"
                    )));
                }
                let name = &piece[..name_length(piece)];
                if !is_well_encoded(name) {
                    let what = format!("has a field {} with a `%` that encodes nothing", shown(name));
                    return Err(BodyRefusal::malformed(what));
                }
                let name = decoded_name(name);
                if *name != *asked.as_bytes() {
                    if is_taken_for(&name, asked, &asked_parts) {
                        let what =
                            format!("has a field {}, which some servers take for `{asked}`", shown(&name));
                        return Err(BodyRefusal::malformed(what));
                    }
                    continue;
                }
                if found.is_some() || nth > 0 || pair.contains(&b';') {
                    let what = format!("has the field `{asked}` several times, or with a semicolon");
                    return Err(BodyRefusal::malformed(what));
                }
                found = Some(piece.get(name_length(piece) + 1..).unwrap_or_default());
            }
        }
        let Some(value) = found else { return Ok(None) };
        let unreadable = || BodyRefusal::malformed(format!("has no text in the field `{asked}`"));
        if !is_well_encoded(value) {
            return Err(unreadable());
        }
        let text = String::from_utf8(decoded(value).into_owned()).map_err(|_| unreadable())?;
        if self.is_utf8 || text.is_ascii() { Ok(Some(text.into())) } else { Err(unreadable()) }
    }
}

/// The bytes of the name of a field.
fn name_length(piece: &[u8]) -> usize {
    piece.iter().position(|byte| *byte == b'=').unwrap_or(piece.len())
}

/// The beginning of a name, which is compared, with one of the blanks before it.
fn decoded_name(name: &[u8]) -> Cow<'_, [u8]> {
    let mut rest = name;
    loop {
        let blank = match rest {
            [b'%', b'2', b'0', ..] | [b'%', b'0', b'9' | b'a'..=b'd' | b'A'..=b'D', ..] => 3,
            [first, ..] if *first == b'+' || first.is_ascii_whitespace() => 1,
            _ => break,
        };
        rest = &rest[blank..];
    }
    let begin = decoded(rest.get(..COMPARED).unwrap_or(rest));
    if rest.len() == name.len() { begin } else { [b" ", &*begin].concat().into() }
}

/// Whether some servers take the field `name` for another one, `asked`, which has these parts: PHP, Rack and Express read brackets
/// in different ways, and PHP takes dots and blanks for underscores.
fn is_taken_for(name: &[u8], asked: &str, asked_parts: &[Vec<u8>]) -> bool {
    if name.is_empty() {
        return false;
    }
    let of_name = parts(name);
    // One of the two is within the other, or in its place.
    let begins_alike = !of_name.is_empty()
        && of_name.iter().zip(asked_parts).all(|(part, asked)| is_alike_part(part, asked));
    begins_alike || is_alike_part(&plain(name), &plain(asked.as_bytes()))
}

fn is_alike_part(part: &[u8], asked: &[u8]) -> bool {
    str::from_utf8(asked).is_ok_and(|asked| is_alike(part, asked))
}

/// The parts of a name between its brackets.
fn parts(name: &[u8]) -> Vec<Vec<u8>> {
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let parts = name.split(|byte| matches!(byte, b'[' | b']')).map(plain);
    parts.filter(|part| !part.is_empty()).collect()
}

/// A name with an underscore for each character that PHP takes for one.
fn plain(name: &[u8]) -> Vec<u8> {
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default().trim_ascii();
    // Spring marks fields that are left out by an exclamation mark.
    let name = name.strip_prefix(b"!").unwrap_or(name);
    let plain = |byte: &u8| if matches!(byte, b' ' | b'.' | b'[' | b']') { b'_' } else { *byte };
    name.iter().map(plain).collect()
}

fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    match text.contains(&b'+') {
        true => {
            let spaced: Vec<u8> = text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
            Cow::Owned(percent_decode(&spaced).collect())
        }
        false => percent_decode(text).into(),
    }
}

/// Whether each `%` begins an encoding.
fn is_well_encoded(text: &[u8]) -> bool {
    let mut parts = text.split(|byte| *byte == b'%');
    let _before = parts.next();
    parts.all(|part| part.get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(body: &str, asked: &str) -> Result<Option<String>, String> {
        let found = Form::new(body.as_bytes()).field(asked);
        found.map(|text| text.map(|text| text.to_string())).map_err(|error| error.detail)
    }

    #[test]
    fn a_field_is_decoded() {
        for (body, text) in [
            ("username=ann", Some("ann")),
            ("password=x&username=ann%40example.org&next=/", Some("ann@example.org")),
            ("username=a+b", Some("a b")),
            ("%75sername=ann", Some("ann")),
            ("username=a=b", Some("a=b")),
            ("username", Some("")),
            ("username=", Some("")),
            ("", None),
            ("password=x;y", None),
            ("user[name]=ann&xusername=x", None),
        ] {
            assert_eq!(field(body, "username"), Ok(text.map(str::to_owned)), "{body}");
        }
        assert_eq!(field("user[login]=ann&user[password]=x", "user[login]"), Ok(Some("ann".to_owned())));
        assert_eq!(field("user.name=ann", "user.name"), Ok(Some("ann".to_owned())));
    }

    #[test]
    fn what_servers_read_in_several_ways_is_refused() {
        for body in [
            "username=ann&username=bob",
            "username=ann&Username=bob",
            "Username=ann",
            "username=ann&username[]=bob",
            "username[a]=ann",
            "+username=ann",
            "username%00x=ann",
            "ｕsername=ann",
            "[username]=ann",
            "a\0=1&username=ann",
            "!username=ann",
            "%u0075sername=ann",
            "username]=ann",
            "%20%09username=ann",
            "a=1;username=bob",
            "username=ann;x=1",
            "username=%zz",
            "username=%4",
            "username=%ff",
        ] {
            assert!(field(body, "username").is_err(), "{body}");
        }
        assert!(field(&format!("{}username=ann", "+".repeat(400)), "username").is_err());
        assert!(field(&format!("username%00{}=ann", "a".repeat(2_000)), "username").is_err());
        assert!(field(&"a&".repeat(10_001), "username").is_err());
        assert!(field("user[name=ann", "user_name").is_err());
        for name in [
            "user",
            "user[]",
            "user[login]x",
            "user[login][]",
            "[user][login]",
            "user[login]]",
            "user[[login]",
            "user]login]",
        ] {
            assert!(field(&format!("{name}=ann"), "user[login]").is_err(), "{name}");
        }
        assert!(field("user_name=ann", "user.name").is_err());
        assert!(field("user name=ann", "user_name").is_err());
        assert!(field("User[login]=ann", "user[login]").is_err());
    }
}
