//! What single words mean. Pure: text in, value or [`Invalid`] out.

mod address;
mod choice;
mod collector;
mod condition;
mod endpoint;
mod factor;
mod field;
mod host;
mod invalid;
mod key;
mod path;
mod pem;
mod quantity;
mod rate;
mod redis_url;
mod status;
mod template;
mod token_key;

pub(super) use address::{network, socket};
pub(super) use choice::{choice, switch};
pub(super) use collector::collector;
pub(super) use condition::{condition, condition_of};
pub(super) use endpoint::endpoint_url;
pub(super) use factor::factor;
pub(super) use field::{
    bearer_token, cookie_name, field_name, field_value, free_field_name, key_prefix, method, name_of_thing,
    pseudonym, reply_field_name, request_id_name, route_name, text,
};
pub(super) use host::host_pattern;
pub(super) use invalid::Invalid;
pub(super) use key::key_recipe;
pub(super) use path::path_pattern;
pub(super) use pem::{authorities, belongs_to, certificates, private_key};
pub(super) use quantity::{LONGEST, count, duration, number, percentage, size};
pub(super) use rate::{MOST, rate};
pub(super) use redis_url::{REDIS_URL, redis_url};
pub(super) use status::{denial_status, statuses};
pub(super) use template::template;
pub(super) use token_key::token_key;
