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

/// The longest name, as sent, that may be taken for an asked one, beside twelve times the length of that.
const MAX_NAME: usize = 256;

/// A form.
#[derive(Clone, Copy)]
pub struct Form<'b>(&'b [u8]);

impl<'b> Form<'b> {
    pub fn new(body: &'b [u8]) -> Self {
        Self(body)
    }

    /// The field of this name. `None`: it is not there.
    ///
    /// # Errors
    /// It, or a name like it, comes several times, or servers may read it in several ways.
    pub fn field(&self, asked: &str) -> Result<Option<CompactString>, BodyRefusal> {
        let mut found = None;
        for pair in self.0.split(|byte| *byte == b'&') {
            for (nth, piece) in pair.split(|byte| *byte == b';').enumerate() {
                let name = piece.split(|byte| *byte == b'=').next().unwrap_or_default();
                if name.is_empty() || name.len() > 12 * asked.len() + MAX_NAME {
                    continue;
                }
                let name = decoded(name);
                if name != asked.as_bytes() && !is_taken_for(&name, asked) {
                    continue;
                }
                if name != asked.as_bytes() {
                    let shown = shown(&name);
                    let what = format!("has a field {shown}, which some servers take for `{asked}`");
                    return Err(BodyRefusal::malformed(what));
                }
                if found.is_some() || nth > 0 || pair.contains(&b';') {
                    let what = format!("has the field `{asked}` several times, or with a semicolon");
                    return Err(BodyRefusal::malformed(what));
                }
                found = Some(piece.get(piece.len().min(name_length(piece) + 1)..).unwrap_or_default());
            }
        }
        let Some(value) = found else { return Ok(None) };
        let unreadable = || BodyRefusal::malformed(format!("has no text in the field `{asked}`"));
        if !is_well_encoded(value) {
            return Err(unreadable());
        }
        String::from_utf8(decoded(value).into_owned()).map(|text| Some(text.into())).map_err(|_| unreadable())
    }
}

/// The bytes of the name of a field.
fn name_length(piece: &[u8]) -> usize {
    piece.iter().position(|byte| *byte == b'=').unwrap_or(piece.len())
}

/// Whether some servers take the field `name` for `asked`.
fn is_taken_for(name: &[u8], asked: &str) -> bool {
    let is_list = asked.contains('[');
    let ends = |byte: &u8| *byte == 0 || *byte == b'[' && !is_list;
    let begin = name.split(ends).next().unwrap_or_default();
    let plain = |byte: u8| if matches!(byte, b' ' | b'.' | b'_') { b'_' } else { byte };
    let begin: Vec<u8> = begin.trim_ascii_start().iter().copied().map(plain).collect();
    let asked: String = asked.replace([' ', '.'], "_");
    begin == asked.as_bytes() || is_alike(&begin, &asked)
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
            "a=1;username=bob",
            "username=ann;x=1",
            "username=%zz",
            "username=%4",
            "username=%ff",
        ] {
            assert!(field(body, "username").is_err(), "{body}");
        }
        assert!(field("user_name=ann", "user.name").is_err());
        assert!(field("user name=ann", "user_name").is_err());
        assert!(field("User[login]=ann", "user[login]").is_err());
    }
}
