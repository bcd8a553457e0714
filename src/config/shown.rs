//! A configuration's text as operators are shown it: with everything secret masked.
//!
//! What looks like a credential is hidden line by line, as in errors; a value that goes on over more lines is hidden to
//! its end. Then, whatever of the secrets themselves still stands there, in an anchor, say, is hidden as well. What `${…}`
//! inserts stands nowhere in the text.

use super::{Config, mask::masked};

const MASK: &str = "***";
/// Keys whose value is a secret, or may hold one.
const SECRET: [&str; 6] = ["token", "password", "secret", "pass", "url", "x-"];
/// Of a secret, a word of so many characters or more is hidden wherever it stands.
const SHORTEST: usize = 4;

/// `text`, of which `config` came, without its secrets.
pub(super) fn shown(text: &str, config: &Config) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let indent = indent(line);
        let goes_on = lines.peek().is_some_and(|next| !next.trim().is_empty() && self::indent(next) > indent);
        match secret_that_goes_on(line).filter(|_| goes_on) {
            Some(end) => {
                shown += &line[..end];
                shown += " ";
                shown += MASK;
                while lines.next_if(|next| next.trim().is_empty() || self::indent(next) > indent).is_some() {}
            }
            None if is_disguised(line) => {
                shown += line.split_once(':').map_or("", |(key, _)| key);
                shown += ": ";
                shown += MASK;
            }
            None => shown += &masked(line),
        }
        shown.push('\n');
    }
    for word in words(config) {
        shown = shown.replace(&word, MASK);
    }
    shown
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches([' ', '-']).len()
}

/// Where the key of a secret ends whose value stands, or goes on, below: there is none beside it, it is a block, or a
/// quote is left open.
fn secret_that_goes_on(line: &str) -> Option<usize> {
    let (key, value) = line.split_once(':')?;
    let name = key.trim_start_matches([' ', '-', '{', '?']).trim_matches(['"', '\'', ' ']);
    let is_secret = SECRET.iter().any(|secret| match secret.strip_suffix('-') {
        Some(_) => name.starts_with(secret),
        None => name == *secret,
    });
    let value = value.split(" #").next().unwrap_or_default().trim();
    // An anchor or a tag stands before what it is of.
    let value = value.split_whitespace().find(|word| !word.starts_with(['&', '!'])).map_or("", |_| value);
    let is_mapping = name.starts_with("x-") && value.is_empty();
    let is_block = value.is_empty() || value.ends_with(['|', '>', '-', '+']) && value.len() <= 3;
    let is_open = |quote: char| value.starts_with(quote) && value.matches(quote).count() == 1;
    let is_plain = !value.is_empty() && !value.starts_with(['{', '[', '"', '\'']);
    (is_secret && !is_mapping && (is_block || is_open('"') || is_open('\'') || is_plain))
        .then_some(key.len() + 1)
}

/// Whether it names a value that others may refer to, written with escapes: that would not be found by what it says.
fn is_disguised(line: &str) -> bool {
    line.contains('&') && line.contains('\\')
}

/// What must stand nowhere.
fn words(config: &Config) -> Vec<String> {
    let secrets = config.secrets().flat_map(|secret| {
        let text = secret.reveal();
        match text.split_once("://") {
            // Of a URL, what stands before its host, and what is passed behind it.
            Some((_, rest)) => {
                let user_info = rest.rsplit_once('@').map_or("", |(user_info, _)| user_info);
                let password = user_info.split_once(':').map_or(user_info, |(_, password)| password);
                let passed =
                    rest.split_once("pass=").map_or("", |(_, rest)| rest.split('&').next().unwrap_or(""));
                vec![user_info, password, passed]
            }
            None => vec![text],
        }
    });
    let each = secrets.flat_map(|secret| std::iter::once(secret).chain(secret.split_whitespace()));
    let mut words: Vec<String> =
        each.filter(|word| word.chars().count() >= SHORTEST).map(str::to_owned).collect();
    // The longest first: one may hold another.
    words.sort_by_key(|word| std::cmp::Reverse(word.len()));
    words
}

#[cfg(test)]
mod tests {
    use super::super::{Sources, parse};

    struct Inserted;

    impl Sources for Inserted {
        fn variable(&self, _: &str) -> Option<String> {
            Some("from-elsewhere".to_owned())
        }

        fn file(&self, _: &std::path::Path) -> std::io::Result<String> {
            Ok("from-a-file".to_owned())
        }

        fn bytes(&self, _: &std::path::Path) -> std::io::Result<Vec<u8>> {
            Ok(Vec::new())
        }
    }

    fn of(settings: &str) -> String {
        let text = format!(
            "{settings}\nupstreams: {{ api: {{ endpoints: [http://127.0.0.1:3000] }} }}\nroutes: [{{ path: /*, upstream: api }}]\n"
        );
        parse("proxy.yaml", &text, &Inserted).unwrap_or_else(|errors| panic!("{errors}")).source.shown
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
        ] {
            let shown = of(settings);
            assert!(!shown.contains("hunter2") && !shown.contains("ter2"), "{settings}\n\n{shown}");
            assert!(shown.contains("***") && shown.contains("upstreams:"), "{shown}");
        }
    }

    #[test]
    fn what_is_inserted_is_shown_by_its_name() {
        let shown =
            of("admin: { token: \"${TOKEN}\" }\nstore: { redis: { url: \"redis://:${file:/run/p}@host\" } }");
        assert!(!shown.contains("from-elsewhere") && !shown.contains("from-a-file"), "{shown}");
        assert!(shown.contains("${TOKEN}"), "{shown}");
    }

    #[test]
    fn what_is_no_secret_is_as_it_was_written() {
        let settings = "# Ours.\nworkers: 2\npolicies:\n  one: { algorithm: gcra, key: ip, limit: 1/1s }\n\nx-a: &a\n  - 10.0.0.0/8";
        assert!(of(settings).starts_with(settings), "{}", of(settings));
    }
}
