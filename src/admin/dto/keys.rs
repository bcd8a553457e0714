//! API keys.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, SeqAccess, Visitor},
};
use utoipa::ToSchema;

use super::{bans::is_shared, schema};
use crate::api_keys::{ImportRow, KeyText, MAX_IMPORTED};

/// An API key, without its text, which nobody keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApiKey {
    #[schema(value_type = schema::KeyId)]
    pub id: String,
    pub customer: String,
    pub plan: Option<String>,
    pub name: String,
    pub labels: BTreeMap<String, String>,
    /// The names of the routes that it is valid for; empty for all.
    pub routes: Vec<String>,
    #[schema(value_type = schema::Time)]
    pub created: String,
    #[schema(value_type = Option<schema::Time>)]
    pub expires: Option<String>,
    #[schema(value_type = schema::KeyState)]
    pub state: String,
    /// When and why it was revoked.
    pub revoked: Option<Revoked>,
    /// Its secrets, newest last: two while it is rotated.
    pub secrets: Vec<KeySecret>,
    /// Where it is kept.
    #[schema(value_type = schema::KeySource)]
    pub source: String,
    /// To the minute, over all instances; `null` if it was not used yet.
    #[schema(value_type = Option<schema::Time>)]
    pub last_used: Option<String>,
    /// It changes with each change of the key, but not by its use. `If-Match` names it in double quotes.
    #[serde(default)]
    pub version: String,
}

/// A revocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Revoked {
    #[schema(value_type = schema::Time)]
    pub at: String,
    pub reason: String,
}

/// One of the secrets of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeySecret {
    /// The SHA-256 of the whole key.
    #[schema(value_type = schema::KeyHash)]
    pub hash: String,
    #[schema(value_type = schema::Time)]
    pub created: String,
    /// It was rotated, and is valid until then.
    #[schema(value_type = Option<schema::Time>)]
    pub expires: Option<String>,
}

/// `GET /v1/keys`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApiKeys {
    /// In the order of their IDs.
    pub keys: Vec<ApiKey>,
    #[schema(value_type = Option<schema::Cursor>)]
    pub cursor: Option<String>,
}

/// The body of `POST /v1/keys`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewApiKey {
    /// Made if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::KeyId>)]
    pub id: Option<String>,
    #[schema(value_type = schema::KeyName)]
    pub customer: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::KeyName>)]
    pub plan: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(value_type = schema::Reason)]
    pub name: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<String>,
    /// A duration from now (`90d`), a date, or a time of RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "90d")]
    pub expires: Option<String>,
}

/// The body of `PATCH /v1/keys/{id}`: what is left out stays as it is, and `null` removes it (RFC 7396).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApiKeyChange {
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::KeyName>)]
    pub plan: Option<Option<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Reason>)]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, Option<String>>,
    /// All of its routes; empty for all that there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routes: Option<Vec<String>>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "90d")]
    pub expires: Option<Option<String>>,
}

/// Tells `null` from a field that is left out.
fn given<'de, D: Deserializer<'de>>(field: D) -> Result<Option<Option<String>>, D::Error> {
    Deserialize::deserialize(field).map(Some)
}

/// The body of `POST /v1/keys/{id}/rotate`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rotation {
    /// How long the secret that it has now stays valid, 0s to 366d; 24h by default.
    #[serde(default = "default_overlap")]
    #[schema(value_type = schema::Duration)]
    pub overlap: String,
}

fn default_overlap() -> String {
    "24h".to_owned()
}

/// The body of `POST /v1/keys/{id}/revoke`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Revocation {
    #[serde(default)]
    #[schema(value_type = schema::Reason)]
    pub reason: String,
}

/// `POST /v1/keys`, `POST /v1/keys/{id}/rotate`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MadeApiKey {
    /// The key itself. It can't be read again.
    #[schema(value_type = String)]
    pub key: KeyText,
    #[serde(flatten)]
    pub changed: ChangedApiKey,
}

/// `PATCH /v1/keys/{id}`, `POST /v1/keys/{id}/revoke`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangedApiKey {
    #[serde(flatten)]
    pub record: ApiKey,
    /// A plan or a route that is not there.
    pub warnings: Vec<String>,
    /// `false`: it was not sent to the other instances yet, so it holds at this one alone. Sending is retried.
    #[serde(default = "is_shared")]
    pub shared: bool,
}

/// `DELETE /v1/keys/{id}`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeletedApiKey {
    #[schema(value_type = schema::KeyId)]
    pub id: String,
    /// `false`: it was not sent to the other instances yet, so it is deleted at this one alone. Sending is retried.
    #[serde(default = "is_shared")]
    pub shared: bool,
}

/// The body of `POST /v1/keys/import`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Import {
    /// 1 to 100,000 keys.
    #[serde(deserialize_with = "rows")]
    pub keys: Vec<ImportRow>,
}

/// Reads no more rows than may be imported: a row takes up to twenty times the memory of its text.
fn rows<'de, D: Deserializer<'de>>(field: D) -> Result<Vec<ImportRow>, D::Error> {
    struct Rows;

    impl<'de> Visitor<'de> for Rows {
        type Value = Vec<ImportRow>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of keys")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut rows = Vec::new();
            while let Some(row) = list.next_element()? {
                if rows.len() == MAX_IMPORTED {
                    let error = "there are more than 100000 keys: import them in several parts";
                    return Err(A::Error::custom(error));
                }
                rows.push(row);
            }
            Ok(rows)
        }
    }

    field.deserialize_seq(Rows)
}

/// `POST /v1/keys/import`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Imported {
    pub imported: u64,
    /// Keys that were there already, of the same customer. They are left as they are.
    pub unchanged: u64,
    /// Plans and routes that are not there.
    pub warnings: Vec<String>,
    /// `false`: they were not all sent to the other instances yet. Sending is retried.
    #[serde(default = "is_shared")]
    pub shared: bool,
}
