//! Declares a setting of `proxy.yaml` once, at the field that holds it.
//!
//! [`Settings`] turns a struct into a mapping of the file. It generates the description for the reference, the JSON
//! Schema and `explain-setting`; the code that reads the mapping, with an error for each invalid value; `Default`; and
//! `Serialize`. [`Word`] turns an enum into the words of a setting.
//!
//! A new setting is a field with a doc comment, which is its text in the reference, and an attribute:
//!
//! ```ignore
//! /// Limits on connections and requests, for all routes.
//! #[derive(Settings)]
//! #[settings(page = "connections.md")]
//! pub struct ClientLimits {
//!     /// The most headers of a request. A request with more gets 431.
//!     #[setting(count = "1..=10000", default = "100", example = "200")]
//!     pub headers: usize,
//!     /// The slowest rate at which a client may send a body or take a response.
//!     #[setting(mapping, unset = "240 bytes a second, after 20s", example = "{ bytes: 1KiB }")]
//!     pub min_rate: MinRate,
//! }
//! ```
//!
//! Without a kind (`count`, `mapping` …), the type of the field is the kind, by its `impl Value`: `bool`, a [`Word`],
//! or a type of the model with its own parser. A field of type `Option<T>` is `None` without the setting. Any other
//! field needs `default`, `value` or `unset`, or the setting is required. Tests read all defaults, examples and ranges.
//!
//! # `#[setting(…)]` above a field
//!
//! Several attributes may be above one field.
//!
//! | attribute | meaning | example |
//! | --- | --- | --- |
//! | a kind | the kind of value; see the next table | `count = "1..=100"` |
//! | `default` | the default, as the file would write it; it is parsed as a value of the file | `default = "32KiB"` |
//! | `value` | the default in Rust, if `default` cannot be parsed as a single value | `value = Destination::Stdout` |
//! | `unset` | the default in words; the field has `Default::default()`, or `value` | `unset = "no cookie"` |
//! | `missing` | the setting is required; this is the help if it is missing | ``missing = "such as `path: /healthz`"`` |
//! | `example` | a value | `example = "64KiB"` |
//! | `beside` | other settings that the example needs, without braces | `beside = "key: tls/me.key"` |
//! | `see` | the paths of related settings | `see = ["trusted_proxies"]` |
//! | `key` | the key, if it differs from the field; `*` at its end allows any key with this prefix | `key = "jwt:*"` |
//! | `parse` | the function that parses a single value: `fn(&str) -> Result<T, Invalid>` | `parse = body_size` |
//! | `read` | the function that reads any value, and reports its errors: `fn(Cursor) -> Option<T>` | `read = Redis::read` |
//! | `shown` | the function that serializes the value, as serde's `serialize_with` | `shown = serialize::plain` |
//! | `omit_if` | the function that decides whether a value is not serialized | `omit_if = Vec::is_empty` |
//! | `flatten` | the settings of the field's type are in the same mapping | `flatten` |
//! | `before` | the settings of this type precede the setting in the reference | `before = RouteDefaults` |
//! | `inherited` | beside `before`: the default, in words, of those settings at this place | `inherited = "the one at the top level"` |
//! | `skip` | the field is not a setting | `skip` |
//! | `restart` | a change takes effect after a restart: a reload keeps the old value | `restart` |
//! | `flags` | `of_the_instance`: does not affect requests, and may differ between instances; `confidential`: a reload does not show the value | `flags(confidential)` |
//!
//! # Kinds
//!
//! | attribute | value |
//! | --- | --- |
//! | `size = "1KiB..=1MiB"` | a number of bytes |
//! | `count = "1..=100"` | a whole number |
//! | `duration = "1ms..=366d"` | a duration |
//! | `share = "0..=50"`, `share = "0<..=100"` | a percentage; `0<` excludes 0% |
//! | `text = FIELD` | text of this form of `settings::text`; needs `parse` or `read`, unless the field is a `Cursor` |
//! | `word("auto", "off")` | one of these words |
//! | `boolean`, `file`, `any` | `true` or `false`; the path of a file; any value |
//! | `mapping`, `mapping(TYPE)` | a mapping, declared by the field's type, or by `TYPE` |
//! | `list(text = METHOD, Unique)` | a list; the second argument is a variant of `settings::Items` |
//! | `names(RESOURCE, mapping(TYPE), Any)` | names of this form, chosen by the operator, each with a value |
//! | `either(boolean, mapping)` | one of several kinds |
//! | `of(TYPE)` | the `Value::KIND` of `TYPE` |
//!
//! # `#[settings(…)]` above a struct
//!
//! | attribute | meaning | example |
//! | --- | --- | --- |
//! | `page` | the page of the guide, with or without a section | `page = "limits.md#memory"` |
//! | `sample` | a small valid mapping, without braces | `sample = "cookie: tg"` |
//! | `rules` | rules about several settings: variants of `settings::Rule` | `rules(With("cert", "key"))` |
//! | `check` | a function that checks several settings: `fn(&MappingCursor, Option<&Self>)` | `check = checks::redis::check` |
//! | `such_as` | the line to suggest for a single value in place of the mapping | `such_as = "log: { level: VALUE }"` |
//! | `foreign` | the section of `foreign_names.txt` for unknown keys | `foreign = "client_limits"` |
//! | `last` | the settings of this type follow the others | `last = ForAnchors` |
//! | `constructor` | generates `new`, which takes the required settings | `constructor` |
//! | `of` | beside `written`: the type that other code makes of the struct has the same settings | `of = ClientTls` |
//! | `written` | the struct has the values of the file, from which other code makes the configuration; neither `Default` nor `Serialize` | `written` |
//! | `unread` | other code reads the mapping, and implements `Default` and `Serialize` | `unread` |

mod attributes;
mod kind;
mod settings;
mod word;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Declares a mapping of the file. The doc comments of the struct and of its fields are the descriptions that users
/// read. The documentation of the crate lists all attributes.
#[proc_macro_derive(Settings, attributes(settings, setting))]
pub fn settings(input: TokenStream) -> TokenStream {
    settings::derive(&parse_macro_input!(input as DeriveInput))
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Declares the words of a setting. A variant is written in snake_case, or as `#[word("client-cert")]` says.
#[proc_macro_derive(Word, attributes(word))]
pub fn word(input: TokenStream) -> TokenStream {
    word::word(&parse_macro_input!(input as DeriveInput))
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Makes `ALL`, and `name`: the label of a metric. A variant is written in snake_case, or as `#[label("lease")]` says.
#[proc_macro_derive(Label, attributes(label))]
pub fn label(input: TokenStream) -> TokenStream {
    word::label(&parse_macro_input!(input as DeriveInput))
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}
