//! What single words mean. Pure: text in, value or [`Invalid`] out.

mod choice;
mod http;
mod invalid;
mod key;
mod key_files;
mod names;
mod network;
mod patterns;
mod quantity;
mod template;
mod urls;

pub(super) use choice::{choice, switch};
pub(super) use http::{
    bearer_token, cookie_name, denial_status, field_name, field_value, free_field_name, method, pseudonym,
    reply_field_name, request_id_name, statuses,
};
pub(super) use invalid::Invalid;
pub(super) use key::{condition, condition_of, key_recipe};
pub(super) use key_files::{authorities, belongs_to, certificates, private_key, token_key};
pub(super) use names::{key_prefix, name_of_thing, route_name, text};
pub(super) use network::{network, socket};
pub(super) use patterns::{host_pattern, path_pattern};
pub(super) use quantity::{
    LARGEST_LIMIT, LONGEST_DURATION, count, duration, factor, number, percentage, rate, size,
};
pub(super) use template::template;
pub(super) use urls::{REDIS_URL, collector, endpoint_url, redis_url};
