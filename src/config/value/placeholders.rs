//! Text with placeholders: `/new/{rest}`.

use http::HeaderValue;
use serde::{Serialize, Serializer};

use crate::{
    api_keys::KeyField,
    config::{
        nearest::nearest,
        value::{
            Invalid,
            http::field_value,
            patterns::{has_dot_segment, is_percent_encoded},
        },
    },
};

/// The placeholders that a setting may have: those of every request, the captures of the route's path, and values.
#[derive(Debug, Clone, Copy)]
pub(in crate::config) struct Placeholders<'a> {
    pub(in crate::config) captures: &'a [&'a str],
    /// `value:NAME` for each value of `values`, in their order; none where they are not known yet.
    pub(in crate::config) values: &'a [String],
}

impl<'a> Placeholders<'a> {
    /// Reads text in which `{name}` is a placeholder, and `{{` and `}}` are braces.
    pub(in crate::config) fn text(self, written: &str) -> Result<PlaceholderText, Invalid> {
        if let Some((variable, name)) = variable_of_another_proxy(written, |name| self.meant(name).is_some())
        {
            let invalid = Invalid::new("has a variable of another proxy in it").expected(self.known());
            return Err(match self.meant(name) {
                Some(meant) => did_you_mean(invalid, &written.replace(variable, &meant)),
                None => invalid,
            });
        }
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = written;
        while let Some(at) = rest.find(['{', '}']) {
            literal.push_str(&rest[..at]);
            rest = &rest[at..];
            if let Some(after) = rest.strip_prefix("{{") {
                self.check_doubled(written, after)?;
                literal.push('{');
                rest = after;
            } else if let Some(after) = rest.strip_prefix("}}") {
                literal.push('}');
                rest = after;
            } else if let Some((name, after)) = rest[1..].split_once('}').filter(|_| rest.starts_with('{')) {
                let placeholder = self.placeholder(written, name)?;
                if !literal.is_empty() {
                    parts.push(TextPart::Literal(std::mem::take(&mut literal)));
                }
                parts.push(TextPart::Placeholder(placeholder));
                rest = after;
            } else {
                return Err(plain_brace(written));
            }
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            parts.push(TextPart::Literal(literal));
        }
        Ok(PlaceholderText { written: written.to_owned(), parts, is_secret: false })
    }

    /// Reads a path: `/v2/users/{id}`. It begins with one slash, and has no dot segments.
    pub(in crate::config) fn path(self, written: &str) -> Result<PlaceholderText, Invalid> {
        let text = self.text(written)?;
        let example =
            self.captures.first().map_or("/new/path".to_owned(), |name| format!("\"/new/{{{name}}}\""));
        let invalid =
            |reason: &'static str| Invalid::new(reason).expected(format!("write a path such as {example}"));
        if let Some((_, after)) = written.split_once("://") {
            let path = after.find('/').map_or("/", |at| &after[at..]);
            return Err(did_you_mean(invalid("is a URL, not a path"), path));
        }
        if !written.starts_with('/') {
            return Err(did_you_mean(invalid("does not begin with /"), &format!("/{written}")));
        }
        if written[1..].starts_with(['/', '\\']) {
            let path = written.trim_start_matches(['/', '\\']);
            return Err(did_you_mean(invalid("begins with two slashes"), &format!("/{path}")));
        }
        if written.contains(['?', '#']) {
            let reason = "has a query or a fragment, which is not part of a path";
            return Err(Invalid::new(reason)
                .expected("write the path alone; the query of the request stays as it is"));
        }
        let is_literal = |part: &TextPart| match part {
            TextPart::Literal(text) => text.bytes().all(|b| b.is_ascii_graphic()) && is_percent_encoded(text),
            TextPart::Placeholder(_) => true,
        };
        if !text.parts.iter().all(is_literal) {
            return Err(invalid("has characters that must be percent-encoded in a path, such as %20"));
        }
        if has_dot_segment(written) {
            return Err(invalid("has a . or .. segment, which leads to another path"));
        }
        Ok(text)
    }

    /// Reads the value of a header field.
    pub(in crate::config) fn field(self, written: &str) -> Result<FieldText, Invalid> {
        let text = self.text(written)?;
        let constant = match text.constant() {
            Some("") => {
                return Err(
                    Invalid::new("is an empty value").expected("to remove a header, write `remove: [NAME]`")
                );
            }
            Some(literal) => Some(field_value(literal)?),
            None => None,
        };
        for part in &text.parts {
            if let TextPart::Literal(literal) = part {
                HeaderValue::from_str(literal).map_err(|_| Invalid::new("is not a valid header value"))?;
            }
        }
        Ok(FieldText { text, constant })
    }

    fn placeholder(self, written: &str, name: &str) -> Result<Placeholder, Invalid> {
        let of_request = Placeholder::OF_EVERY_REQUEST.iter().find(|(known, _)| *known == name);
        match (self.captures.iter().position(|known| *known == name), of_request) {
            (Some(_), Some(_)) => Err(Invalid::new(format!(
                "has {{{name}}} in it, which is a value of every request and a part of this route's path"
            ))
            .expected(format!("give the part of the path another name, such as {{{name}_name}}"))),
            (Some(index), None) => Ok(Placeholder::Capture(index)),
            (None, Some((_, placeholder))) => Ok(*placeholder),
            (None, None) => match self.values.iter().position(|known| known == name) {
                Some(index) => Ok(Placeholder::Value(index)),
                None => Err(self.unknown(written, name)),
            },
        }
    }

    /// The error for an unknown placeholder.
    fn unknown(self, written: &str, name: &str) -> Invalid {
        let plain = name.trim();
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:".contains(&byte);
        if plain.is_empty() || !plain.bytes().all(is_name) {
            return plain_brace(written);
        }
        let invalid = Invalid::new("has an unknown placeholder in it")
            .quoting(format!("has the unknown placeholder {{{plain}}} in it"))
            .expected(self.known());
        if let Some(variable) = plain.strip_prefix("env.") {
            return did_you_mean(invalid, &written.replace(&braced(name), &format!("${{{variable}}}")));
        }
        let meant = self.meant(plain).or_else(|| nearest(plain, self.names()).map(braced));
        match meant {
            Some(meant) => did_you_mean(invalid, &written.replace(&braced(name), &meant)),
            None if plain == REST => invalid.expected(
                "{rest} is what the * of the route's path matches: write `path: /PREFIX/*` to use it",
            ),
            None => invalid,
        }
    }

    /// `{{user}}` is a placeholder only in the body of a policy's reply.
    fn check_doubled(self, written: &str, after: &str) -> Result<(), Invalid> {
        match after.split_once("}}").filter(|(name, _)| self.names().any(|known| known == name.trim())) {
            None => Ok(()),
            Some((name, _)) => {
                let invalid = Invalid::new("has a placeholder in double braces, which are text here");
                let doubled = format!("{{{{{name}}}}}");
                Err(did_you_mean(invalid, &written.replace(&doubled, &braced(name.trim()))))
            }
        }
    }

    /// Our placeholder for `name` of other software.
    pub(in crate::config) fn meant(self, name: &str) -> Option<String> {
        let plain = name.to_ascii_lowercase().replace('-', "_");
        if let Some(known) = self.names().find(|known| known.eq_ignore_ascii_case(&plain)) {
            return Some(braced(known));
        }
        if let Some((ours, _)) = OTHER_NAMES.iter().find(|(_, others)| others.contains(&&*plain)) {
            return Some(braced(ours));
        }
        if PATHS.contains(&&*plain) {
            return self.captures.contains(&REST).then(|| format!("/{}", braced(REST)));
        }
        let number = plain.rsplit('.').next().and_then(|number| number.parse::<usize>().ok())?;
        self.captures.get(number.checked_sub(1)?).map(|name| braced(name))
    }

    /// The names of all.
    pub(in crate::config) fn names(self) -> impl Iterator<Item = &'a str> + Clone {
        let of_route = self.captures.iter().copied().chain(self.values.iter().map(String::as_str));
        Placeholder::OF_EVERY_REQUEST.iter().map(|(name, _)| *name).chain(of_route)
    }

    fn known(self) -> String {
        let names: Vec<String> = self.names().map(braced).collect();
        format!("known placeholders: {}", names.join(", "))
    }
}

fn braced(name: &str) -> String {
    format!("{{{name}}}")
}

fn did_you_mean(invalid: Invalid, text: &str) -> Invalid {
    invalid.suggestion(format!("did you mean `\"{text}\"`?"))
}

fn plain_brace(written: &str) -> Invalid {
    let doubled = written.replace('{', "{{").replace('}', "}}");
    Invalid::new("has a brace that is not part of a placeholder")
        .expected("double a brace that is text: {{ or }}")
        .suggestion(format!("double a brace that is text: `'{doubled}'`"))
}

/// `x-real-ip: "{client_address}"` for `X-Real-IP $remote_addr`.
pub(in crate::config) fn suggest_field(text: &str) -> String {
    let text = text.trim_end_matches(';').trim();
    let Some((name, value)) = text.split_once([' ', ':']) else { return "NAME: VALUE".to_owned() };
    let mut value = value.trim().trim_end_matches(" always").trim_matches(['"', '\'']).to_owned();
    let placeholders = Placeholders { captures: &[], values: &[] };
    while let Some((variable, name)) =
        variable_of_another_proxy(&value, |name| placeholders.meant(name).is_some())
    {
        let Some(meant) = placeholders.meant(name) else { break };
        value = value.replace(variable, &meant);
    }
    format!("{}: \"{value}\"", name.trim_start_matches(['+', '-', '>', '?']).to_ascii_lowercase())
}

/// The first variable in `text` as nginx, Apache, Traefik, Envoy or HAProxy write it, and its name. `is_known`: whether
/// a name is the name of a variable; other names behind a `$` are text.
fn variable_of_another_proxy(text: &str, is_known: impl Fn(&str) -> bool) -> Option<(&str, &str)> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(['$', '%']).find_map(|(at, mark)| {
        let after = &text[at + 1..];
        let name = &after[..after.find(|c| !is_name(c)).unwrap_or(after.len())];
        let (name, length) = match mark {
            "$" if is_known(name) || !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()) => {
                (name, name.len())
            }
            "%" if after.starts_with('[') => {
                let (name, _) = after[1..].split_once(']')?;
                (name, name.len() + 2)
            }
            // Two hexadecimal digits are a percent-encoding.
            "%" if name.len() > 2 && !name.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit) => {
                let (command, _) = after.split_once('%')?;
                let arguments = command[name.len()..].starts_with('(') || command.len() == name.len();
                let is_command =
                    name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_') && arguments;
                is_command.then_some((command, command.len() + 1))?
            }
            _ => return None,
        };
        Some((&text[at..=at + length], name))
    })
}

/// Our placeholders, and their names in nginx, Apache, Caddy, Envoy and HAProxy, and in common speech.
const OTHER_NAMES: [(&str, &[&str]); 4] = [
    (
        "client_address",
        &[
            "remote_addr",
            "realip_remote_addr",
            "http_x_forwarded_for",
            "http_x_real_ip",
            "proxy_add_x_forwarded_for",
            "remote_host",
            "remote_ip",
            "remote",
            "client_ip",
            "ip",
            "address",
            "src",
            "http.request.remote",
            "http.request.remote.host",
            "http.vars.client_ip",
            "downstream_remote_address",
            "downstream_remote_address_without_port",
            "downstream_direct_remote_address_without_port",
        ],
    ),
    (
        "user",
        &["remote_user", "user_id", "username", "user_name", "http.auth.user.id", "authenticated_userid"],
    ),
    (
        "request_id",
        &["requestid", "req_id", "unique_id", "http.request.uuid", "uuid", "req(x_request_id)", "stream_id"],
    ),
    (
        "host",
        &[
            "http_host",
            "server_name",
            "hostname",
            "domain",
            "hostport",
            "http.request.host",
            "http.request.hostport",
            "req(:authority)",
            "req(host)",
            "req.hdr(host)",
        ],
    ),
];

/// Their names for the path of a request.
const PATHS: [&str; 10] = [
    "uri",
    "request_uri",
    "document_uri",
    "path",
    "http.request.uri",
    "http.request.uri.path",
    "http.request.orig_uri",
    "http.request.orig_uri.path",
    "req(:path)",
    "pathq",
];

/// Text such as `/new/{rest}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaceholderText {
    /// The text in `proxy.yaml`.
    pub written: String,
    pub parts: Vec<TextPart>,
    /// Whether it is a credential, or a part of it was inserted from outside the file, so that it must not be shown.
    pub is_secret: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextPart {
    Literal(String),
    Placeholder(Placeholder),
}

/// The value that replaces a placeholder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placeholder {
    /// `{client_address}`
    ClientAddress,
    /// `{user}`
    User,
    /// `{customer}`, `{api_key}`, `{plan}`: of the request's API key.
    OfKey(KeyField),
    /// `{request_id}`
    RequestId,
    /// `{host}`: without port.
    Host,
    /// The text that a part of the route's path matched: its index among the pattern's captures.
    Capture(usize),
    /// `{value:model}`: its index in the configuration.
    Value(usize),
}

impl Placeholder {
    /// The placeholders that do not depend on the route's path, by their names.
    pub const OF_EVERY_REQUEST: [(&'static str, Self); 7] = [
        ("client_address", Self::ClientAddress),
        ("user", Self::User),
        ("customer", Self::OfKey(KeyField::Customer)),
        ("api_key", Self::OfKey(KeyField::ApiKey)),
        ("plan", Self::OfKey(KeyField::Plan)),
        ("request_id", Self::RequestId),
        ("host", Self::Host),
    ];
}

impl PlaceholderText {
    /// The whole text, if it is the same for every request.
    pub fn constant(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [] => Some(""),
            [TextPart::Literal(text)] => Some(text),
            _ => None,
        }
    }

    /// Whether it has this placeholder.
    pub fn has(&self, placeholder: Placeholder) -> bool {
        self.parts.contains(&TextPart::Placeholder(placeholder))
    }
}

impl Serialize for PlaceholderText {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.written)
    }
}

/// The name of the text that the `*` at the end of a path matches.
pub const REST: &str = "rest";

/// The value of a field, which is left out where its text is empty for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldText {
    pub text: PlaceholderText,
    /// The value, if it is the same for every request.
    pub constant: Option<HeaderValue>,
}

impl Serialize for FieldText {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.text.serialize(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_ROUTE: Placeholders<'_> = Placeholders { captures: &["id", "rest"], values: &[] };
    const OF_NO_CAPTURES: Placeholders<'_> = Placeholders { captures: &[], values: &[] };

    fn literal(text: &str) -> TextPart {
        TextPart::Literal(text.to_owned())
    }

    fn help(text: &str) -> String {
        OF_ROUTE.text(text).unwrap_err().help(false).unwrap_or_default()
    }

    #[test]
    fn names_in_braces_are_placeholders_and_double_braces_are_braces() {
        use TextPart::Placeholder as P;
        for (text, parts) in [
            ("", vec![]),
            ("plain", vec![literal("plain")]),
            ("{user}", vec![P(Placeholder::User)]),
            (
                "/{id}/{host}-{rest}",
                vec![
                    literal("/"),
                    P(Placeholder::Capture(0)),
                    literal("/"),
                    P(Placeholder::Host),
                    literal("-"),
                    P(Placeholder::Capture(1)),
                ],
            ),
            ("{client_address}{request_id}", vec![P(Placeholder::ClientAddress), P(Placeholder::RequestId)]),
            ("{{\"a\":\"{id}\"}}", vec![literal("{\"a\":\""), P(Placeholder::Capture(0)), literal("\"}")]),
            ("5 $ or $5x, 100%", vec![literal("5 $ or $5x, 100%")]),
        ] {
            assert_eq!(OF_ROUTE.text(text).map(|text| text.parts), Ok(parts), "{text}");
        }
    }

    #[test]
    fn placeholders_of_other_programs_are_suggested_in_our_form() {
        for (text, meant) in [
            ("{ id }", "{id}"),
            ("/x/{ID}", "/x/{id}"),
            ("{client-address}", "{client_address}"),
            ("{client_adress}", "{client_address}"),
            ("/v2/$1", "/v2/{id}"),
            ("/v2/$2/x", "/v2/{rest}/x"),
            ("$remote_addr", "{client_address}"),
            ("/new$uri", "/new/{rest}"),
            ("$host", "{host}"),
            ("$request_id", "{request_id}"),
            ("%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%", "{client_address}"),
            ("%REQ(X-REQUEST-ID)%", "{request_id}"),
            ("%REQ(:AUTHORITY)%", "{host}"),
            ("%[src]", "{client_address}"),
            ("{http.request.uri}", "/{rest}"),
            ("{http.request.host}", "{host}"),
            ("{remote_host}", "{client_address}"),
            ("{http.regexp.1}", "{id}"),
            ("{{user}}", "{user}"),
            ("{env.HOME}", "${HOME}"),
        ] {
            assert_eq!(help(text), format!("did you mean `\"{meant}\"`?"), "{text}");
        }
        for text in ["{nothing}", "%REQ(X-FOO)%", "%[rand]", "$7"] {
            assert_eq!(
                help(text),
                "known placeholders: {client_address}, {user}, {customer}, {api_key}, {plan}, {request_id}, {host}, {id}, {rest}",
                "{text}"
            );
        }
        assert_eq!(help("{\"group\":1}"), "double a brace that is text: `'{{\"group\":1}}'`");
        for text in ["{", "}", "a}b", "{}", "{a b}"] {
            assert!(OF_ROUTE.text(text).unwrap_err().reason.contains("brace"), "{text}");
        }
        let rest = OF_NO_CAPTURES.text("/new/{rest}").unwrap_err().help(false).unwrap();
        assert!(rest.contains("path: /PREFIX/*"), "{rest}");
        let named = Placeholders { captures: &["host"], values: &[] };
        assert!(named.text("{host}").unwrap_err().reason.contains("{host}"));
    }

    #[test]
    fn a_path_is_one_before_requests_fill_it_in() {
        for text in ["/", "/v2/{id}", "/{rest}", "/a%20b/{id}/", "/a//b", "/{host}/{user}", "/a{id}b"] {
            assert!(OF_ROUTE.path(text).is_ok(), "{text}");
        }
        for (text, reason) in [
            ("", "begin"),
            ("{rest}", "begin"),
            ("v2/{id}", "begin"),
            ("//{rest}", "two slashes"),
            ("/\\{rest}", "two slashes"),
            ("https://a.example/b", "URL"),
            ("/a?b={id}", "query"),
            ("/a#b", "query"),
            ("/a b", "percent"),
            ("/é", "percent"),
            ("/a%2", "percent"),
            ("/a%{id}", "percent"),
            ("/a/../{id}", ".."),
            ("/.", "."),
        ] {
            let error = OF_ROUTE.path(text).unwrap_err();
            assert!(error.reason.contains(reason), "{text}: {error:?}");
        }
    }

    #[test]
    fn a_field_value_holds_no_second_line() {
        assert_eq!(OF_ROUTE.field("a").unwrap().constant.unwrap(), "a");
        assert_eq!(OF_ROUTE.field("{{a}}").unwrap().constant.unwrap(), "{a}");
        assert_eq!(OF_ROUTE.field("{user}").unwrap().constant, None);
        for text in ["", " a", "a\r\nb: c", "{user}\n", "{user}\0"] {
            assert!(OF_ROUTE.field(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_line_of_nginx_becomes_a_field() {
        for (text, field) in [
            ("X-Real-IP $remote_addr", "x-real-ip: \"{client_address}\""),
            ("X-Frame-Options \"DENY\" always", "x-frame-options: \"DENY\""),
            ("X-Frame-Options: DENY;", "x-frame-options: \"DENY\""),
            ("X-A $unknown", "x-a: \"$unknown\""),
            ("X-Original-URI $request_uri", "x-original-uri: \"$request_uri\""),
            ("", "NAME: VALUE"),
        ] {
            assert_eq!(suggest_field(text), field, "{text}");
        }
    }
}
