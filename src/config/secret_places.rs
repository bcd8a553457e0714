//! Finds the secrets of a configuration by their places in the tree: values of secret settings, of headers with
//! credentials, and of unknown keys that look like credentials; and credentials in URLs. Names that the operator
//! chooses are not looked at.

use std::{iter, ops::Range};

use url::Url;

use super::{
    redact::{
        MASK, Secrets, behind_a_space, credential_ranges, cut_user_info, disjoint, is_all_interpolated,
        lines, looks_random, mask_ranges, random_ranges, ranges_in_key, ranges_in_text, shifted,
    },
    settings::Place,
    yaml::{Document, Key, Node, NodeKind},
};

/// Words of a secret with at least this many characters are masked wherever they occur.
const MIN_SECRET_CHARS: usize = 4;

impl Secrets {
    /// Finds the secrets of `text`, whose tree is in `document`. `place`: the place of its root.
    pub(super) fn of_tree(text: &str, document: &Document, place: Place) -> Self {
        // The tree lacks the values of repeated keys.
        let is_complete = document.duplicates.is_empty();
        let mut search = Search { text, found: Self::default(), keys: Vec::new(), is_complete };
        search.visit(&document.root, place);
        search.visit_comments();
        let Search { mut found, is_complete, .. } = search;
        if !is_complete {
            found.ranges.extend(Self::by_words(text).ranges);
        }
        found.ranges.extend(cut_user_info(text));
        found.ranges = disjoint(found.ranges);
        found
    }

    /// Adds each occurrence of `secrets` in values and comments of `text`. `secrets`: the values of its secret settings.
    pub(super) fn and_values(mut self, text: &str, secrets: &[String]) -> Self {
        // Elsewhere, a password may be written as URLs encode it.
        let encoded: Vec<_> =
            secrets.iter().filter_map(|secret| Some(Url::parse(secret).ok()?.to_string())).collect();
        let words: Vec<&str> = secrets.iter().chain(&encoded).flat_map(|secret| words_of(secret)).collect();
        for (part, word) in self.texts.iter().flat_map(|part| words.iter().map(move |word| (part, *word))) {
            let occurrences = text[part.clone()].match_indices(word);
            self.ranges.extend(shifted(occurrences.map(|(at, word)| at..at + word.len()), part.start));
        }
        self.ranges = disjoint(self.ranges);
        self
    }
}

/// A walk through a tree.
struct Search<'a> {
    text: &'a str,
    found: Secrets,
    keys: Vec<Range<usize>>,
    /// Whether the position of every value is known.
    is_complete: bool,
}

impl Search<'_> {
    fn visit(&mut self, node: &Node, place: Place) {
        match &node.kind {
            NodeKind::Null => {}
            NodeKind::Scalar(word) => {
                self.is_complete &= word.is_empty() || !node.span.is_empty();
                self.visit_scalar(&node.span, place);
            }
            NodeKind::List(items) => items.iter().for_each(|item| self.visit(item, place.item())),
            NodeKind::Mapping { entries, .. } => {
                for (key, value) in entries {
                    self.keys.push(key.span.clone());
                    let below = place.entry(&key.name);
                    self.visit_key(key, below);
                    self.visit(value, below);
                }
            }
        }
    }

    /// Looks for a value in a key, as in `{ token:VALUE }`, `{ token = VALUE }` and `{ token VALUE }`, and for a secret in its
    /// place.
    fn visit_key(&mut self, key: &Key, below: Place) {
        if matches!(below, Place::Unknown) && looks_random(&key.name) {
            self.found.keys.push((key.name.clone(), MASK.to_owned()));
            self.found.ranges.push(key.span.clone());
        }
        let inside = ranges_in_key(&key.name);
        if !inside.is_empty() {
            self.found.keys.push((key.name.clone(), mask_ranges(&key.name, &inside, 1).0));
            let (inner, at) = unquoted(self.text, &key.span);
            self.found.ranges.extend(shifted(ranges_in_key(inner), at));
        }
    }

    fn visit_scalar(&mut self, span: &Range<usize>, place: Place) {
        self.found.texts.push(span.clone());
        let written = &self.text[span.clone()];
        let (inner, inner_at) = unquoted(self.text, span);
        let found = match place {
            Place::Secret if is_all_interpolated(inner) => return,
            Place::Secret => iter::once(inner_at..inner_at + inner.len()).collect(),
            _ if inner.contains("PRIVATE KEY-----") => iter::once(inner_at..inner_at + inner.len()).collect(),
            Place::Unknown if is_mail_address(inner) => return,
            Place::Unknown => {
                let found = [random_ranges(written), credential_ranges(written)].concat();
                shifted(found, span.start)
            }
            _ if place.is_plain_text() => shifted(ranges_in_text(written, true), span.start),
            _ => shifted(credential_ranges(written), span.start),
        };
        self.found.ranges.extend(found);
        if matches!(place, Place::Known(_)) && !place.is_plain_text() {
            self.found.ranges.extend(shifted(behind_a_space(inner), inner_at));
        }
    }

    /// Searches the comments, which are all that follows a `#` outside keys and values.
    fn visit_comments(&mut self) {
        let mut scalars = [&self.keys[..], &self.found.texts].concat();
        scalars.sort_by_key(|span| (span.start, span.end));
        let end = self.text.len();
        let mut at = 0;
        for span in scalars.into_iter().chain(iter::once(end..end)) {
            for (line_at, line) in lines(self.text.get(at..span.start).unwrap_or_default()) {
                let Some(mark) = line.find('#') else { continue };
                let start = at + line_at + mark;
                self.found.texts.push(start..at + line_at + line.len());
                self.found.ranges.extend(shifted(ranges_in_text(&line[mark..], false), start));
            }
            at = at.max(span.end);
        }
    }
}

/// Whether `text` is `a@b.c`, which could only be a password where a URL is expected.
fn is_mail_address(text: &str) -> bool {
    let is_word = |part: &str, others: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(c))
    };
    let Some((name, domain)) = text.split_once('@') else { return false };
    is_word(name, ".+-_") && is_word(domain, ".-") && domain.contains('.')
}

/// The scalar at `span` without its quotes, and the byte at which it begins.
fn unquoted<'a>(text: &'a str, span: &Range<usize>) -> (&'a str, usize) {
    let written = &text[span.clone()];
    let quote = written.chars().next().filter(|c| matches!(c, '"' | '\''));
    let inner = quote.and_then(|quote| written.strip_prefix(quote)?.strip_suffix(quote)).unwrap_or(written);
    (inner, span.start + usize::from(inner.len() < written.len()))
}

/// The words of a secret, and the whole; of a URL: user info, password, and the password in the query.
fn words_of(secret: &str) -> impl Iterator<Item = &str> {
    let parts = match secret.split_once("://") {
        None => [Some(secret), None, None],
        Some((_, rest)) => {
            let user_info = rest.rsplit_once('@').map(|(user_info, _)| user_info);
            let password = user_info.and_then(|user_info| Some(user_info.split_once(':')?.1));
            let passed = rest.split_once("pass=").and_then(|(_, passed)| passed.split('&').next());
            [user_info, password, passed]
        }
    };
    let each = parts.into_iter().flatten();
    each.flat_map(|part| iter::once(part).chain(part.split_whitespace()))
        .filter(|word| word.chars().count() >= MIN_SECRET_CHARS)
}

#[cfg(test)]
mod tests {
    use super::super::{Lookup, parse};

    struct Inserted;

    impl Lookup for Inserted {
        fn variable(&self, _: &str) -> Option<String> {
            Some("from-elsewhere".to_owned())
        }

        fn read_text(&self, _: &std::path::Path) -> std::io::Result<String> {
            Ok("from-a-file".to_owned())
        }

        fn read_bytes(&self, _: &std::path::Path) -> std::io::Result<Vec<u8>> {
            Ok(Vec::new())
        }
    }

    fn redacted(settings: &str) -> String {
        let text = format!(
            "{settings}\nupstreams: {{ api: {{ endpoints: [http://127.0.0.1:3000] }} }}\nroutes: [{{ path: /*, upstream: api }}]\n"
        );
        parse("proxy.yaml", &text, &Inserted).unwrap_or_else(|errors| panic!("{errors}")).source.redacted_text
    }

    #[test]
    fn what_looks_like_a_secret_is_hidden_where_no_setting_is() {
        for settings in [
            "api_keys: { file: k, keys: [{ name: a, key: sk_live_4f9a8c7b6d5e4f3a }] }",
            "api_keys: { sk_live_4f9a8c7b6d5e4f3a: acme }",
            "api_keys: [sk_live_4f9a8c7b6d5e4f3a]",
            "admin: { address: 127.0.0.1:9900, key: sk_live_4f9a8c7b6d5e4f3a }",
            "user: [{ jwt: { keys: sk_live_4f9a8c7b6d5e4f3a } }]",
            "alerts: [{ url: https://hooks.example.com/T0/sk_live_4f9a8c7b6d5e4f3a }]",
            "listeners: [{ tls: { certificates: [{ cert: \"-----BEGIN PRIVATE KEY-----\\nsk_live_4f9a8c7b6d5e4f3a\", key: k }] } }]",
        ] {
            let text = format!("{settings}\nroutes: []\n");
            let errors = parse("proxy.yaml", &text, &Inserted).unwrap_err().to_string();
            assert!(!errors.contains("4f9a8c7b"), "{settings}\n\n{errors}");
        }
        assert!(
            redacted("x-a: { key: ip+path, image: orders-2024 }")
                .contains("{ key: ip+path, image: orders-2024 }")
        );
    }

    #[test]
    fn an_address_of_mail_is_no_secret_where_no_url_is_expected() {
        assert!(redacted("x-by: { who: ann@b.example }").contains("ann@b.example"));
        for settings in ["x-u: hunter2@b", "x-u: u:hunter2@b.example", "x-u: redis://hunter2@b.example"] {
            assert!(!redacted(settings).contains("hunter2"), "{settings}");
        }
        let text = "x-u: &u hunter2@b.example\nstore: { redis: { url: *u } }\n";
        let errors = parse("proxy.yaml", text, &Inserted).unwrap_err().to_string();
        assert!(errors.contains("is not a URL") && !errors.contains("hunter2"), "{errors}");
    }

    #[test]
    fn no_secret_is_shown_however_it_is_written() {
        for settings in [
            "admin: { token: hunter2 }",
            "admin:\n  token: hunter2 # the token: hunter2",
            "admin:\n  token: \"hunter2\"",
            "admin:\n  token:\n    hunter2",
            "admin:\n  token: >-\n    hunter2",
            "admin:\n  token: |-\n    hunter2\n  address: 127.0.0.1:9900",
            "admin:\n  token: \"hun\\\n    ter2\"\n",
            "x-t: &t \"hun\\x74er2\"\nadmin: { token: *t }",
            "x-token: &t hunter2\nadmin:\n  token: *t",
            "x-any: &any hunter2\nadmin: { token: *any }",
            "x-all: &all { token: hunter2 }\nadmin: *all",
            "store: { redis: { url: \"redis://user:hunter2@host:6379/0\" } }",
            "store: { redis: { url: \"redis://:hunter2@host\" } }",
            "store:\n  redis:\n    url:\n      redis://:hunter2@host",
            "store:\n  redis: &r\n    url: >-\n      redis://user:hunter2@host:6379/0",
            "store: { redis: { url: \"unix:///s?pass=hunter2\" } }",
            "admin: { token: \"${T:-hunter2}\" }",
            "admin: { token: \"ab\\\"hunter2\" }",
            "x-set: { Authorization: \"Basic hunter2\" }",
            "x-set:\n  Authorization: >-\n    Basic\n    hunter2",
        ] {
            let shown = redacted(settings);
            assert!(!shown.contains("hunter2") && !shown.contains("ter2"), "{settings}\n\n{shown}");
            assert!(shown.contains("***") && shown.contains("upstreams:"), "{shown}");
        }
    }

    /// A missing space or colon turns a key and its value into one key.
    #[test]
    fn no_error_shows_a_secret() {
        for settings in [
            "admin: { token:hunter2 }",
            "admin: { \"token:hunter2\" }",
            "admin: { token = hunter2 }",
            "admin: { token hunter2 }",
            "admin: { token=hunter2, address: 127.0.0.1:9900 }",
            "admin:\n  token:hunter2",
            "admin:\n  token hunter2",
            "admin:\n  token hunter2\n  address: 127.0.0.1:9900",
            "admin: { token:hunter2, token:hunter2 }",
            "x-a: &a { token:hunter2 }\nadmin: *a",
            "store: { redis: { url: \"redis://h\", password:hunter2 } }",
            "store: { redis: { url: redis://: hunter2,a@host, timout: 1s } }",
            "store: { redis: { url: redis://:a hunter2,a@host, timout: 1s } }",
            "reply_headers: { set: { x-api-key:hunter2 } }",
            "policies: { p: { algorithm: gcra, key: ip, limit: 1/1s, exempt: [\"hader:x-api-key=a hunter2&hunter2\"] } }",
            "policies: { p: { algorithm: gcra, key: ip, limit: 1/1s, exempt: [\"header:x api-key=hunter2\"] } }",
            "policies: { p: { algorithm: gcra, key: ip, limit: 1/1s, exempt: [\"header:x-api-key:hunter2\"] } }",
            "policies: { p: { algorithm: gcra, key: ip, limit: 1/1s, exempt: [x-api-key=hunter2] } }",
            "x-r: 1\nroutes: [{ path: \"/x?token=hunter2\", upstream: api }]",
            "x-r: 1\nroutes: [{ path: \"/x#a&token=hunter2\", upstream: api }]",
        ] {
            let text = format!("{settings}\nupstreams: {{ api: {{ endpoint: [http://127.0.0.1:3000] }} }}\n");
            let errors = parse("proxy.yaml", &text, &Inserted).unwrap_err().to_string();
            assert!(!errors.contains("hunter2"), "{settings}\n\n{errors}");
        }
    }

    /// The settings above, and some more.
    #[test]
    fn secrets_are_found_by_their_places() {
        let shown = redacted(
            "policies:
  tokens: { algorithm: gcra, key: \"header:x-api-key\", limit: 1/1s, exempt: [10.0.0.0/8] }
  cookies: { algorithm: gcra, key: ip, limit: 1/1s, reply: { headers: { set-cookie: s=hunter2, x-plan: gold } } }
  secret:
    algorithm: gcra
    key: ip
    limit: 1/1s
    overrides: [{ \"header:x-api-key\": hunter2, limit: 9/1s }]
trusted_proxies: [10.0.0.1] # of password: hunter2
trusted_headers: [x-api-key]
x-routes:
  - &all { name: password-reset, path: \"/a/*\", upstream: api, request_headers: { set: { x-api-key: hunter2 } } }
  - { path: /*, upstream: secrets, request_headers: { add: { X-Api-Key: [hunter2, 'hunter2 two'], x-b: b } } }
  - { path: /c, token:
        hunter2
    }
x-notes: { token:hunter2, \"token hunter2\": 1, per-key: gold }
x-pages: [\"http://auth:3000/@x/\", redis://auth:6379]",
        );
        assert!(!shown.contains("hunter2"), "{shown}");
        for kept in [
            "  tokens: { algorithm: gcra, key: \"header:x-api-key\", limit: 1/1s, exempt: [10.0.0.0/8] }",
            "  secret:\n    algorithm: gcra\n",
            "{ \"header:x-api-key\": ***, limit: 9/1s }",
            "# of password: ***",
            "name: password-reset, path: \"/a/*\"",
            "set: { x-api-key: *** }",
            "upstream: secrets, request_headers: { add: { X-Api-Key: [***, '***'], x-b: b } }",
            "{ set-cookie: ***, x-plan: gold }",
            "x-notes: { token:***, \"token ***\": 1, per-key: gold }",
            "x-pages: [\"http://auth:3000/@x/\", redis://auth:6379]",
        ] {
            assert!(shown.contains(kept), "{kept}\n\n{shown}");
        }
    }

    #[test]
    fn inserted_values_are_shown_by_their_names() {
        let shown = redacted(
            "admin: { token: \"${TOKEN}\" }\nstore: { redis: { url: \"redis://:${file:/run/p}@host\" } }",
        );
        assert!(!shown.contains("from-elsewhere") && !shown.contains("from-a-file"), "{shown}");
        assert!(shown.contains("${TOKEN}"), "{shown}");
    }

    /// The values of secret settings alone: no word beside them says that they are secret.
    #[test]
    fn a_secret_is_masked_wherever_the_file_has_it() {
        let shown = redacted(
            "x-a: [from-elsewhere, \"a hunter2\", hunter3 b] # from-elsewhere, hunter2, hunter3\nadmin: { token: \"${T}\" }
abuse: { users: hashed, secret: hunter2 }\nstore: { redis: { url: \"redis://user:hunter3@host\" } }",
        );
        assert!(shown.starts_with("x-a: [***, \"a ***\", *** b] # ***, ***, ***\n"), "{shown}");
        let shown = redacted("# pâss1, p%C3%A2ss1\nstore: { redis: { url: \"redis://user:pâss1@host\" } }");
        assert!(shown.starts_with("# ***, ***\n"), "{shown}");
    }

    #[test]
    fn settings_without_secrets_are_shown_as_written() {
        let settings = "# Ours.\nworkers: 2\npolicies:\n  one: { algorithm: gcra, key: ip, limit: 1/1s }\n\nx-a: &a\n  - 10.0.0.0/8";
        assert!(redacted(settings).starts_with(settings), "{}", redacted(settings));
    }
}
