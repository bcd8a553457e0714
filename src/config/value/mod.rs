//! Single values, and their parsers. Pure: text in, value or [`Invalid`] out. They know no topic.

mod choice;
mod foreign_value;
pub(super) mod http;
mod invalid;
pub(super) mod key;
mod key_files;
mod names;
pub(super) mod network;
pub(super) mod origin;
pub(super) mod path_matching;
pub(super) mod path_regex;
pub(super) mod patterns;
pub(super) mod placeholders;
mod quantity;
pub(super) mod rate;
pub(super) mod template;
mod urls;

pub(super) use choice::{boolean, choice, named_choice};
pub(super) use foreign_value::foreign_value;
pub(super) use http::{
    bearer_token, cookie_name, cookie_value, denial_status, editable_field_name, editable_fields, field_name,
    field_value, grpc_status, method, parameter_name, parameter_value, pseudonym, reply_field_name,
    request_id_field_name, route_reply_field_name, route_reply_status, status_range, unreserved_field_name,
};
pub(super) use invalid::Invalid;
pub(super) use key::{certificate_field, condition, condition_with_key, key_recipe, suggest_key};
pub(super) use key_files::{authorities, certificates, check_key_matches, private_key, token_keys};
pub(super) use names::{api_key_prefix, json_path, key_prefix, printable_text, resource_name, route_name};
pub(super) use network::{address_file, dns_server, file_mode, listen_address, network, socket_address};
pub(super) use origin::origin;
pub(super) use patterns::{host_pattern, name_pattern, path_pattern, stripped_prefix, suggest_hosts};
pub(super) use placeholders::{Placeholders, suggest_field};
pub(super) use quantity::{
    MAX_BYTES, MAX_DURATION, MAX_LIMIT, body_size, count, duration, factor, number, percentage, quota,
    quota_of_bytes, rate, size, suggest_rate, suggest_size,
};
pub(super) use template::template;
pub(super) use urls::{
    REDIS_URL, collector_url, database, is_loopback_url, key_set_url, origin_of, postgres_url,
    redis_node_url, redis_url, server_name, webhook_url,
};
