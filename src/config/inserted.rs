//! Finds the settings that came from the environment or from files. A reload must not show their values.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    FileLocation,
    yaml::{Node, NodeKind},
};
use crate::config::resolved::Config;

/// The paths in [`Config::values`] of the settings whose scalars are `inserted`. Items of lists have their names in
/// them: `routes.login.path`.
pub(super) fn inserted_settings(
    root: &Node,
    inserted: &BTreeSet<FileLocation>,
    config: &Config,
) -> BTreeSet<String> {
    let mut search = Search { inserted, found: BTreeSet::new() };
    if !inserted.is_empty() {
        search.visit(root, &config.values(), "");
        // Settings at the top level that have no value there are choices of words for all routes.
        search.found.remove("");
    }
    search.found
}

struct Search<'a> {
    inserted: &'a BTreeSet<FileLocation>,
    found: BTreeSet<String>,
}

impl Search<'_> {
    /// Visits `node`, which became `value`. If an inserted part has no place of its own in `value`, all of `value`
    /// counts as inserted.
    fn visit(&mut self, node: &Node, value: &Value, path: &str) {
        if !self.is_inserted(node) {
            return;
        }
        let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        match (&node.kind, value) {
            (NodeKind::Mapping { entries, .. }, _) => {
                for (key, node) in entries {
                    // `limit` is one of the `limits`.
                    let names = [key.name.clone(), format!("{}s", key.name)];
                    let found = names.iter().find_map(|name| Some((below(name), entry(value, name)?)));
                    let (path, value) = found.unwrap_or((path.to_owned(), &Value::Null));
                    self.visit(node, value, &path);
                }
            }
            (NodeKind::List(nodes), Value::Array(items))
                if nodes.len() == items.len() && items.iter().all(|item| name(item).is_some()) =>
            {
                for (node, item) in nodes.iter().zip(items) {
                    self.visit(node, item, &below(&name(item).unwrap_or_default()));
                }
            }
            _ => drop(self.found.insert(path.to_owned())),
        }
    }

    /// Whether any scalar in it is inserted.
    fn is_inserted(&self, node: &Node) -> bool {
        match &node.kind {
            NodeKind::Null => false,
            NodeKind::Scalar(_) => self.inserted.contains(&node.location),
            NodeKind::List(items) => items.iter().any(|item| self.is_inserted(item)),
            NodeKind::Mapping { entries, .. } => entries.iter().any(|(_, node)| self.is_inserted(node)),
        }
    }
}

/// The value of `key` in a mapping, or the item of a list with this name.
fn entry<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    match value {
        Value::Array(items) => items.iter().find(|item| name(item).is_some_and(|name| name == key)),
        value => value.get(key),
    }
}

/// The name of an item of a list; for a listener, its addresses. A listener without settings is its address alone.
fn name(item: &Value) -> Option<String> {
    match item.get("address").or_else(|| item.get("name")).unwrap_or(item) {
        Value::String(name) => Some(name.clone()),
        Value::Array(addresses) => {
            let addresses: Option<Vec<_>> = addresses.iter().map(Value::as_str).collect();
            Some(addresses?.join(", "))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::{io, path::Path};

    use super::super::{Lookup, parse};

    struct Environment;

    impl Lookup for Environment {
        fn variable(&self, name: &str) -> Option<String> {
            let value = match name {
                "RATE" => "10/1s",
                "PORT" => "8081",
                "WORD" => "word",
                _ => return None,
            };
            Some(value.to_owned())
        }

        fn read_text(&self, _: &Path) -> io::Result<String> {
            Ok("hidden".to_owned())
        }

        fn read_bytes(&self, _: &Path) -> io::Result<Vec<u8>> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn inserted_values_are_named_by_their_paths() {
        let text = r#"
listeners: [{ address: "127.0.0.1:80" }, { address: "127.0.0.1:${PORT}", max_body: 1MiB }]
admin: { token: "${NONE:-a-token-of-the-file}", address: 127.0.0.1:9900 }
request_id: "x-${WORD}"
x-any: "${WORD}"
policies:
  per-ip: { algorithm: sliding_log, key: ip, limit: "${RATE}" }
  plain: &plain { algorithm: sliding_log, key: ip, limit: 1/1s }
upstreams:
  api: { endpoints: ["http://${WORD}:3000", "http://b"], timeouts: { connect: 1s } }
routes:
  - { path: "/hook/${file:/run/secret}", upstream: api, request_headers: { set: { x-a: "${WORD}", x-b: b } } }
  - { name: old, path: /old, redirect: { to: "https://${WORD}/{path}" } }
  - { name: ok, path: /ok, reply: { status: 200, body: "${WORD}" } }
  - { name: split, path: /split, upstreams: [{ name: api }] }
"#
        .replace("/{path}", "/");
        let config = parse("proxy.yaml", &text, &Environment).unwrap_or_else(|errors| panic!("{errors}"));
        let found: Vec<&str> = config.source.inserted.iter().map(String::as_str).collect();
        let expected = [
            "listeners.127.0.0.1:8081.address",
            "policies.per-ip.limits",
            "request_id",
            "routes./hook/${file:/run/secret}.path",
            "routes./hook/${file:/run/secret}.request_headers.set",
            "routes.ok.reply.body",
            "routes.old.redirect.to",
            "upstreams.api.endpoints.http://word:3000",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn there_are_none_where_nothing_is_inserted() {
        let text = "upstreams: { api: { endpoints: [http://a] } }\nroutes: [{ path: \"${NONE:-/}\", upstream: api }]";
        assert!(parse("proxy.yaml", text, &Environment).unwrap().source.inserted.is_empty());
    }
}
