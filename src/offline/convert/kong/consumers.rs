//! Consumers and their keys: `key-auth` (kong/plugins/key-auth/handler.lua).

use super::{
    Effects, Kong, always,
    scopes::Plugin,
    transformers::is_header,
    values::{all_read, flag, ignore, is_named},
};
use crate::offline::convert::{
    document::{Fields, Item},
    site::{Edit, Effect, HeaderRule},
    yaml::{Comment, Map, YamlNode},
};

/// Headers in which Kong tells services who asks, and which clients cannot send.
const IDENTITY: [&str; 4] =
    ["x-consumer-id", "x-consumer-custom-id", "x-credential-identifier", "x-anonymous-consumer"];

/// The one that Tollgate sends, too.
const USERNAME: &str = "x-consumer-username";

/// Credentials that Tollgate does not check.
pub(super) const OTHERS: &str = "basicauth_credentials hmacauth_credentials oauth2_credentials jwt_secrets";

/// What the file says about consumers.
#[derive(Default)]
pub(super) struct Consumers<'d> {
    pub(super) all: Vec<(String, Item<'d>)>,
    keys: Vec<Item<'d>>,
}

impl<'d> Consumers<'d> {
    /// The name of a consumer to which something refers.
    pub(super) fn name(&self, name: &str) -> String {
        let known = self.all.iter().find(|(_, item)| is_named(*item, name));
        known.map_or(name, |(name, _)| name).to_owned()
    }
}

impl<'d> Kong<'d> {
    pub(super) fn collect_consumers(&mut self, root: &Fields<'d>) {
        let mut found = Consumers::default();
        for item in root.items("consumers") {
            let fields = item.fields();
            let name = ["username", "custom_id", "id"].iter().find_map(|key| fields.text(key));
            let name = name.unwrap_or_default().to_owned();
            found.keys.extend(fields.items("keyauth_credentials"));
            ignore(&fields, "username custom_id plugins groups acls");
            if let Err(text) = all_read(&fields) {
                self.note(item, format!("the consumer `{name}`: {text}; give it an API key"));
            }
            found.all.push((name, item));
        }
        for item in root.items("keyauth_credentials") {
            self.note(item, "the commands for keys.yaml do not read this key: add it");
            found.keys.push(item);
        }
        self.consumers = found;
    }

    /// Whether the requests of a route need a key.
    pub(super) fn is_keyed(&self, route: usize) -> bool {
        self.effective("key-auth", route, None).is_some()
    }

    pub(super) fn key_auth(
        &mut self,
        nth: usize,
        route: usize,
        config: &Fields<'d>,
    ) -> Result<Effects, String> {
        ignore(config, "anonymous key_names realm key_in_header key_in_query");
        if config.text("anonymous").is_some() {
            let text = "`anonymous`: set `require: none`, and let the service look at X-Consumer-Username";
            return Err(text.to_owned());
        }
        let remove = |name: &str| Effect::Edit(Edit::Request(HeaderRule::Remove(name.to_owned())));
        let mut effects: Vec<_> = IDENTITY.iter().copied().map(remove).collect();
        effects.extend((!self.has_usernames()).then(|| remove(USERNAME)));
        if flag(config, "run_on_preflight", true)? && self.effective("cors", route, None).is_none() {
            // Else preflights need no key.
            effects.push(Effect::Edit(Edit::Setting("method_override", "allow".into())));
        }
        let mut text = "`key-auth`: services get X-Consumer-Username alone".to_owned();
        if flag(config, "key_in_body", false)? {
            text += "; keys in bodies are not read";
        }
        if !flag(config, "hide_credentials", false)?
            && self.key_plugins().iter().any(|plugin| hides_key(plugin))
        {
            text += "; no service gets the key, since another plugin hides it";
        }
        if let Some(plugin) = self.plugins.get(nth) {
            self.note(plugin.item, text);
        }
        Ok(always(effects))
    }

    /// Whether customers have the names that Kong tells services.
    fn has_usernames(&self) -> bool {
        self.consumers.all.iter().all(|(name, item)| item.fields().text("username") == Some(name))
    }

    /// The `key-auth` plugins that apply to some route.
    pub(super) fn key_plugins(&self) -> Vec<&Plugin<'d>> {
        let mut used: Vec<_> =
            (0..self.routes.len()).filter_map(|route| self.effective("key-auth", route, None)).collect();
        used.sort_unstable();
        used.dedup();
        used.into_iter().filter_map(|nth| self.plugins.get(nth)).collect()
    }

    /// Adds `api_keys`.
    pub(super) fn finish_consumers(&mut self) {
        let plugins = self.key_plugins();
        if plugins.is_empty() {
            if let Some(item) = self.consumers.keys.first().copied() {
                self.note(item, "no plugin of this file asks for these keys: not converted");
            }
            return;
        }
        let (mut from, mut comments): (Vec<Map>, Vec<Comment>) = (Vec::new(), Vec::new());
        for plugin in &plugins {
            let config = plugin.config();
            let sources = sources(&config);
            if config.texts("key_names").iter().any(|name| name.eq_ignore_ascii_case("authorization")) {
                comments.push(plugin.item.note("keys in `authorization` are not read: see `bearer`"));
            }
            if !from.is_empty() && sources != from {
                comments.push(plugin.item.note("each route takes keys from all of these places"));
            }
            for source in sources {
                if !from.contains(&source) {
                    from.push(source);
                }
            }
        }
        if from.is_empty() {
            from.push(Map::new().with("header", "apikey"));
        }
        let mut keys = Map::new().with("from", from).with("file", "keys.yaml");
        if !plugins.iter().any(|plugin| hides_key(plugin)) {
            keys.set("forward", true);
        } else if (0..self.routes.len()).any(|route| !self.is_keyed(route)) {
            comments
                .push(Comment::Plain("The key is removed from requests to other routes, too.".to_owned()));
        }
        let headers = self.has_usernames().then(|| Map::new().with("customer", USERNAME));
        keys.extend_some("headers", headers);
        for item in &self.consumers.keys {
            let ttl = item.fields().text("ttl");
            comments.extend(ttl.map(|_| item.note("`ttl`: write `expires` into keys.yaml")));
        }
        let text =
            "keys.yaml has hashes of keys: docs/migration/kong-key-auth.md has the commands that write it.";
        comments.push(Comment::Plain(text.to_owned()));
        self.draft.settings.set("api_keys", YamlNode { comments, ..YamlNode::from(keys) });
    }
}

/// Whether services do not get the key, or this cannot be read.
fn hides_key(plugin: &Plugin<'_>) -> bool {
    flag(&plugin.config(), "hide_credentials", false) != Ok(false)
}

/// Where keys are read. They are read in more places where that cannot be told.
fn sources(config: &Fields<'_>) -> Vec<Map> {
    let names = config.texts("key_names");
    let names = if names.is_empty() { vec!["apikey"] } else { names };
    let is_on = |key: &str| flag(config, key, true) != Ok(false);
    let (in_header, in_query) = (is_on("key_in_header"), is_on("key_in_query"));
    let mut sources = Vec::new();
    for name in names {
        let header = name.to_ascii_lowercase();
        // These have another use.
        let is_free = is_header(&header) && !matches!(header.as_str(), "authorization" | "cookie");
        sources.extend((in_header && is_free).then(|| Map::new().with("header", header)));
        sources.extend(in_query.then(|| Map::new().with("query", name)));
    }
    sources
}
