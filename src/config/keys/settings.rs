//! API keys: where requests have them, where they are kept, and which routes require one.

use std::{path::PathBuf, time::Duration};

use http::{HeaderName, header::AUTHORIZATION};
use serde::Serialize;
use tollgate_derive::{Settings, Word};

use crate::{
    api_keys::KeyField,
    config::{
        reader::{Cursor, MappingCursor},
        settings::Read,
        value::{Invalid, api_key_prefix, parameter_name, rate, rate::Rate, unreserved_field_name},
        written::serialize,
    },
};

/// API keys of customers. Every request is checked for a key before it is counted.
#[derive(Debug, Clone, PartialEq, Eq, Settings)]
#[settings(page = "tasks/plans.md", sample = "file: keys.yaml", check = check_sources)]
pub struct ApiKeySettings {
    /// Where requests have their key: a header, `Authorization: Bearer`, or a query parameter. They are tried in order.
    /// A bearer token is a key if it begins with `prefix`; any other is one only if no token is verified under `user`
    /// and `required` is true.
    #[setting(list(either(word("bearer"), mapping(KeySourceSettings)), SomeUnique), read = sources)]
    #[setting(unset = "`x-api-key`, then `Authorization: Bearer`", value = KeySource::defaults())]
    #[setting(example = "[{ header: x-api-key }, bearer, { query: api_key }]")]
    pub from: Vec<KeySource>,
    /// The file that lists the keys, by their hashes. It is read again when it changes.
    #[setting(file, read = Cursor::path, unset = "no file", example = "keys.yaml", see = ["api_keys.store"])]
    #[setting(flags(of_the_instance))]
    pub file: Option<PathBuf>,
    /// Whether there are also keys that `tollgate keys` and the admin port make. All instances that share a Redis share
    /// them; without Redis, they are in `data`.
    #[setting(default = "false", example = "true", see = ["api_keys.data", "store"])]
    pub store: bool,
    /// The file of the keys that are made, where there is no Redis.
    #[setting(file, parse = data_file, default = "/var/lib/tollgate/keys.json", example = "data/keys.json")]
    #[setting(beside = "store: true", flags(of_the_instance))]
    pub data: PathBuf,
    /// The first part of keys that are made here, by which they are told from other tokens.
    #[setting(text = KEY_PREFIX, parse = api_key_prefix, default = "tgk", example = "acme")]
    pub prefix: String,
    /// Whether routes require a key unless they say otherwise. With `false`, a request without a key goes on without
    /// one; a key that is not valid gets 401 in any case.
    #[setting(default = "true", example = "false", see = ["routes[].require"])]
    pub required: bool,
    /// How many keys and tokens that are not valid an address may send in which time. Further ones get 429. Bans count
    /// these denials as those of the policy `api_keys`. Without `api_keys`, 30 wrong tokens a minute on routes with
    /// `require`.
    #[setting(text = RATE, parse = rate, default = "30/1m", value = DEFAULT_ATTEMPTS, example = "10/1m")]
    #[setting(see = ["bans.*.policies", "routes[].require"])]
    #[setting(shown = serialize::displayed)]
    pub attempts: Rate,
    /// Whether upstreams get the key. By default, it is removed before a request is forwarded.
    #[setting(default = "false", example = "true")]
    pub forward: bool,
    /// The headers that tell upstreams whose key a request has. They are removed from what clients send.
    #[setting(mapping, unset = "none", example = "{ customer: x-customer, plan: x-plan }")]
    pub headers: KeyHeaders,
}

/// The name of the policy that limits failed credentials. It is the last policy of a configuration in which a request
/// may lack a valid one.
pub const ATTEMPTS_POLICY: &str = "api_keys";

pub(in crate::config) const DEFAULT_ATTEMPTS: Rate = Rate { limit: 30, window: Duration::from_secs(60) };

impl ApiKeySettings {
    /// Whether this header may hold a key.
    pub(in crate::config) fn reads_header(&self, name: &HeaderName) -> bool {
        self.from.iter().any(|source| match source {
            KeySource::Header(header) => header == name,
            KeySource::Bearer => *name == AUTHORIZATION,
            KeySource::Query(_) => false,
        })
    }

    /// Whether this parameter of the query may hold a key.
    pub(in crate::config) fn reads_parameter(&self, name: &str) -> bool {
        self.from.iter().any(|source| matches!(source, KeySource::Query(parameter) if parameter == name))
    }
}

/// A place in a request that may hold its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeySource {
    #[serde(serialize_with = "serialize::displayed")]
    Header(HeaderName),
    /// `Authorization: Bearer KEY`.
    Bearer,
    /// A parameter of the query, by its decoded name.
    Query(String),
}

impl KeySource {
    fn defaults() -> Vec<Self> {
        vec![Self::Header(HeaderName::from_static("x-api-key")), Self::Bearer]
    }

    fn read(item: Cursor<'_>) -> Option<Self> {
        if item.scalar().is_some() {
            return item.parse(|text| match text {
                "bearer" => Ok(Self::Bearer),
                _ => Err(Invalid::new("is no place of a key").expected(FORMS)),
            });
        }
        let KeySourceSettings { header, query } = KeySourceSettings::read(item)?;
        match (header, query) {
            (Some(header), None) => header.parse(unreserved_field_name).map(Self::Header),
            (None, Some(query)) => query.parse(parameter_name).map(Self::Query),
            _ => {
                item.report("each place of a key is exactly one header or query parameter", FORMS.to_owned());
                None
            }
        }
    }
}

const FORMS: &str = "one of `{ header: NAME }`, `bearer` or `{ query: NAME }`";

fn sources(list: Cursor<'_>) -> Option<Vec<KeySource>> {
    let sources = list.unique_items(KeySource::read);
    if list.is_empty_list() {
        list.report("no request could have a key", "such as `from: [{ header: x-api-key }]`".to_owned());
    }
    (!sources.is_empty()).then_some(sources)
}

/// A header or a query parameter that may hold a request's key.
#[derive(Settings)]
#[settings(written, page = "tasks/plans.md", sample = "header: x-api-key", rules(One(&["header", "query"])))]
pub(in crate::config) struct KeySourceSettings<'t> {
    /// The header that holds the key alone.
    #[setting(text = FIELD, example = "x-api-key")]
    header: Option<Cursor<'t>>,
    /// The query parameter that holds the key. It is removed from the URL before anything else sees it.
    #[setting(text = PARAMETER, example = "api_key")]
    query: Option<Cursor<'t>>,
}

/// The headers that tell upstreams whose key a request has.
#[derive(Debug, Clone, PartialEq, Eq, Settings)]
#[settings(page = "tasks/plans.md")]
pub struct KeyHeaders {
    /// The header with the customer.
    #[setting(text = FIELD, parse = unreserved_field_name, example = "x-customer")]
    #[setting(unset = "none", shown = serialize::displayed)]
    pub customer: Option<HeaderName>,
    /// The header with the plan.
    #[setting(text = FIELD, parse = unreserved_field_name, example = "x-plan")]
    #[setting(unset = "none", shown = serialize::displayed)]
    pub plan: Option<HeaderName>,
    /// The header with the ID of the key.
    #[setting(text = FIELD, parse = unreserved_field_name, example = "x-key-id")]
    #[setting(unset = "none", shown = serialize::displayed)]
    pub key: Option<HeaderName>,
}

impl KeyHeaders {
    /// The headers that are set, each with its part of the record.
    pub fn all(&self) -> impl Iterator<Item = (&HeaderName, KeyField)> {
        let all = [
            (&self.customer, KeyField::Customer),
            (&self.plan, KeyField::Plan),
            (&self.key, KeyField::ApiKey),
        ];
        all.into_iter().filter_map(|(name, field)| Some((name.as_ref()?, field)))
    }
}

fn data_file(text: &str) -> Result<PathBuf, Invalid> {
    Ok(PathBuf::from(text))
}

fn check_sources(mapping: &MappingCursor<'_>, keys: Option<&ApiKeySettings>) {
    if let Some(keys) = keys
        && keys.file.is_none()
        && !keys.store
        && !mapping.has_or_misspells("file")
        && !mapping.has_or_misspells("store")
    {
        let help = "name the file that lists them, `file: keys.yaml`; or write `store: true`, and make them by `tollgate keys \
                    create`";
        mapping.report("no key could ever be valid", help.to_owned());
    }
}

/// The credential that the requests of a route must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Word)]
pub enum Require {
    /// None. A key that is not valid counts as none.
    None,
    /// A valid key.
    ApiKey,
    /// A verified user: by a token, a client certificate or a trusted proxy.
    User,
    /// A valid key or a verified user.
    Any,
}
