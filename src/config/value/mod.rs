//! What single words mean. Pure: text in, value or [`Invalid`] out.

mod address;
mod choice;
mod endpoint;
mod field;
mod host;
mod invalid;
mod key;
mod path;
mod pem;
mod quantity;
mod rate;
mod redis_url;

pub(super) use address::{network, socket};
pub(super) use choice::choice;
pub(super) use endpoint::endpoint_url;
pub(super) use field::{
    bearer_token, cookie_name, field_name, field_value, free_field_name, key_prefix, method, name_of_thing,
    pseudonym, request_id_name, route_name,
};
pub(super) use host::host_pattern;
pub(super) use invalid::Invalid;
pub(super) use key::key_recipe;
pub(super) use path::path_pattern;
pub(super) use pem::{authorities, belongs_to, certificates, private_key};
pub(super) use quantity::{LONGEST, count, duration, percentage, size};
pub(super) use rate::rate;
pub(super) use redis_url::{REDIS_URL, redis_url};
