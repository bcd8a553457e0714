//! The file of API keys, compared with the plans and the routes that its keys name.

use std::time::SystemTime;

use crate::config::{
    Purpose, keys::keys_file::KeysFileRules, reader::Cursor, resolved::Config, value::Invalid,
};

/// Reports the errors of the file of API keys. To serve, it is read elsewhere: it may be large.
pub(in crate::config) fn check_keys_file(value: Cursor<'_>, config: &Config) {
    if value.purpose() != Purpose::Check {
        return;
    }
    let routes = config.routes.iter().map(|route| route.name.clone()).collect();
    let rules = KeysFileRules { plans: Some(config.plan_names()), routes };
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = i64::try_from(since.as_micros()).unwrap_or(i64::MAX);
    let read = value.file(|bytes| {
        rules
            .read(bytes, now)
            .map_err(|error| Invalid::new(format!("lists no API keys that can be used: {error}")))
    });
    for warning in read.into_iter().flat_map(|(_, found)| found.warnings) {
        value.warn(format!("in the file of API keys, {warning}"), None);
    }
}
