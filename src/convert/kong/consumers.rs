//! Consumers and their credentials.

use std::collections::BTreeSet;

use super::{Kong, leftovers, plugins::Plugin, reference};
use crate::convert::{
    document::{Fields, Item},
    yaml::{Comment, Map, Node},
};

/// The shortest key that Tollgate takes, in characters.
const SHORTEST_KEY: usize = 16;

/// What the file says about consumers.
#[derive(Default)]
pub(super) struct Consumers<'d> {
    consumers: Vec<(String, Item<'d>)>,
    /// Consumers with keys, and whether a key is too short.
    keys: Vec<(String, Item<'d>, bool)>,
    /// Consumers with `jwt_secrets`.
    tokens: Vec<(String, Item<'d>)>,
    /// Consumers and their groups of ACLs.
    groups: Vec<(String, &'d str)>,
}

impl<'d> Consumers<'d> {
    pub(super) fn new(root: &Fields<'d>, head: &mut Vec<Comment>) -> Self {
        let mut found = Self::default();
        for item in root.items("consumers") {
            let fields = item.fields();
            let name = ["username", "custom_id", "id"]
                .iter()
                .find_map(|key| fields.text(key))
                .unwrap_or_default()
                .to_owned();
            for credential in fields.items("keyauth_credentials") {
                found.key(&name, credential);
            }
            found.tokens.extend(fields.items("jwt_secrets").into_iter().map(|item| (name.clone(), item)));
            for group in fields.items("acls") {
                found.groups.extend(group.fields().text("group").map(|group| (name.clone(), group)));
            }
            for (key, hint) in [
                ("basicauth_credentials", "Tollgate checks no passwords: give this customer an API key"),
                (
                    "hmacauth_credentials",
                    "Tollgate checks no HMAC signatures: give this customer an API \
                    key",
                ),
                ("oauth2_credentials", "let an identity provider issue tokens: `user: [{ jwt: … }]`"),
                ("groups", "consumer groups become plans: name the plan at the customer's keys"),
            ] {
                if let Some(item) = fields.take(key).filter(|item| !item.items().is_empty()) {
                    head.push(item.note(format!("`{key}` of {name}: {hint}")));
                }
            }
            fields.ignore(&["username", "custom_id", "plugins"]);
            head.extend(leftovers(&fields, &name));
            found.consumers.push((name, item));
        }
        let name_of = |found: &Self, item: Item<'d>| -> String {
            let consumer = item.fields().take("consumer").and_then(reference).unwrap_or_default();
            let known = found
                .consumers
                .iter()
                .find(|(name, item)| name == consumer || item.fields().text("id") == Some(consumer));
            known.map_or(consumer, |(name, _)| name).to_owned()
        };
        for item in root.items("keyauth_credentials") {
            let name = name_of(&found, item);
            found.key(&name, item);
        }
        for item in root.items("jwt_secrets") {
            let name = name_of(&found, item);
            found.tokens.push((name, item));
        }
        for item in root.items("acls") {
            let name = name_of(&found, item);
            found.groups.extend(item.fields().text("group").map(|group| (name, group)));
        }
        for key in ["basicauth_credentials", "hmacauth_credentials", "oauth2_credentials"] {
            if let Some(item) = root.take(key).filter(|item| !item.items().is_empty()) {
                head.push(item.note(format!(
                    "`{key}`: Tollgate checks neither passwords nor signatures; give these customers \
                        API keys"
                )));
            }
        }
        if let Some(item) = root.take("consumer_groups").filter(|item| !item.items().is_empty()) {
            head.push(item.note(
                "`consumer_groups`: write their limits into `plans`, and `plan` at the \
                keys of their customers",
            ));
        }
        found
    }

    fn key(&mut self, consumer: &str, credential: Item<'d>) {
        let fields = credential.fields();
        let key = fields.text("key").unwrap_or_default();
        let is_short = !key.contains('$') && key.chars().count() < SHORTEST_KEY;
        self.keys.push((consumer.to_owned(), credential, is_short));
    }

    pub(super) fn has_tokens(&self) -> bool {
        !self.tokens.is_empty()
    }

    /// The plugins of consumers.
    pub(super) fn collect_plugins(&self, plugins: &mut Vec<Plugin<'d>>) {
        for (name, item) in &self.consumers {
            plugins.extend(
                item.fields()
                    .items("plugins")
                    .into_iter()
                    .map(|plugin| Plugin::new(plugin, None, None, Some(name))),
            );
        }
    }

    /// Whether every consumer with a key or a token is in one of the groups. `false` if there are none: who will have a
    /// key is not known then.
    pub(super) fn all_in(&self, groups: &[&str]) -> bool {
        let mut names = self.credentials().peekable();
        names.peek().is_some() && names.all(|name| self.in_any(name, groups))
    }

    /// The consumers of all keys and tokens.
    fn credentials(&self) -> impl Iterator<Item = &str> {
        let keys = self.keys.iter().map(|(name, ..)| name.as_str());
        keys.chain(self.tokens.iter().map(|(name, _)| name.as_str()))
    }

    fn in_any(&self, name: &str, groups: &[&str]) -> bool {
        self.groups.iter().any(|(member, group)| member == name && groups.contains(group))
    }

    /// The consumers with keys or tokens that are in one of the groups.
    pub(super) fn members(&self, groups: &[&str]) -> BTreeSet<&str> {
        self.credentials().filter(|name| self.in_any(name, groups)).collect()
    }
}

impl<'d> Kong<'d> {
    /// Adds `api_keys` and `user`.
    pub(super) fn finish_consumers(&mut self) {
        if self.uses_keys {
            self.api_keys();
        } else if let Some((_, item, _)) = self.consumers.keys.first() {
            let note = item.note("no plugin of this file asks for these keys: not converted");
            self.draft.head.push(note);
        }
        if self.plugins.iter().any(|plugin| plugin.name == "jwt" && plugin.is_enabled) {
            self.tokens();
        }
    }

    fn api_keys(&mut self) {
        let plugins: Vec<_> =
            self.plugins.iter().filter(|plugin| plugin.name == "key-auth" && plugin.is_enabled).collect();
        let mut from: Vec<Map> = Vec::new();
        let mut comments = Vec::new();
        let mut forwards = false;
        for (nth, plugin) in plugins.iter().enumerate() {
            let config = plugin.item.fields().fields("config");
            let names = config.texts("key_names");
            let names = if names.is_empty() { vec!["apikey"] } else { names };
            let is_off = |key: &str| config.take(key).is_some_and(|item| item.text() == Some("false"));
            let (in_header, in_query) = (!is_off("key_in_header"), !is_off("key_in_query"));
            let mut sources = Vec::new();
            for name in names {
                if in_header {
                    sources.push(Map::new().with("header", name.to_ascii_lowercase()));
                }
                if in_query {
                    sources.push(Map::new().with("query", name));
                }
            }
            if nth > 0 && sources.iter().any(|source| !from.contains(source)) {
                comments.push(config.note(
                    "several `key-auth` plugins read keys from different places: \
                    here, each route takes all of them",
                ));
            }
            for source in sources {
                if !from.contains(&source) {
                    from.push(source);
                }
            }
            if config.is_true("key_in_body") {
                comments.push(config.note("`key_in_body`: send keys in a header"));
            }
            forwards |= !config.is_true("hide_credentials");
            config.ignore(&["anonymous", "run_on_preflight", "realm", "identity_realms"]);
            comments.extend(leftovers(&config, "key-auth"));
        }
        let mut keys = Map::new().with("from", from);
        keys.set("file", "keys.yaml");
        if forwards {
            keys.set("forward", true);
        }
        let short: Vec<_> = self.consumers.keys.iter().filter(|(.., is_short)| *is_short).collect();
        comments.extend(short.iter().map(|(name, item, _)| {
            item.note(format!(
                "the key of {name} has less than {SHORTEST_KEY} characters: give this customer a new one"
            ))
        }));
        let file = plugins.first().map_or_else(String::new, |plugin| plugin.item.place().file);
        // The key itself never leaves the file: a secret is not copied.
        comments.extend(
            [
                "keys.yaml has hashes of keys. To write it with yq:".to_owned(),
                "echo \"keys:\" > keys.yaml".to_owned(),
                "yq -r '.consumers[] | .username as $name | .keyauth_credentials // [] | .[] | $name + \" \
                \" + .key' \\"
                    .to_owned(),
                format!("{file} | while read -r customer key; do"),
                "hash=$(printf %s \"$key\" | sha256sum | cut -d\" \" -f1); id=$(printf %s \"$hash\" | cut \
                -c1-10)"
                    .to_owned(),
                "echo \" - { id: \\\"$id\\\", hash: \\\"sha256:$hash\\\", customer: $customer }\" >> \
                keys.yaml; done"
                    .to_owned(),
            ]
            .map(Comment::Plain),
        );
        let mut node = Node::from(keys);
        node.comments = comments;
        self.draft.settings.set("api_keys", node);
    }

    fn tokens(&mut self) {
        let mut users: Vec<Node> = Vec::new();
        let claim = self
            .plugins
            .iter()
            .filter(|plugin| plugin.name == "jwt")
            .find_map(|plugin| plugin.item.fields().fields("config").text("key_claim_name"))
            .unwrap_or("iss");
        for (_, token) in &self.consumers.tokens {
            let fields = token.fields();
            let Some(key) = fields.text("key") else { continue };
            let algorithm = fields.text("algorithm").unwrap_or("HS256");
            let is_secret = algorithm.starts_with("HS");
            let file_name: String = key
                .chars()
                .map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' })
                .collect();
            let file = format!("keys/{file_name}.{}", if is_secret { "secret" } else { "pem" });
            let mut jwt = Map::new()
                .with("header", "authorization")
                .with("claim", claim)
                .with("key", Map::new().with("file", file.as_str()));
            jwt.set("algorithm", algorithm);
            let what = if is_secret { "secret" } else { "public key" };
            let mut comment = format!("Write the {what} of this credential ({}) into {file}.", token.place());
            match claim {
                "iss" => jwt.set("issuer", key),
                _ => comment += &format!(" Kong takes tokens with {claim}: {key} only."),
            }
            if fields.is_true("secret_is_base64") {
                comment += " Decode it first.";
            }
            users.push(Node::from(Map::new().with("jwt", jwt)).commented(Comment::Plain(comment)));
        }
        if !users.is_empty() {
            self.draft.settings.set("user", Node::from(crate::convert::yaml::Value::List(users)));
        }
    }
}
