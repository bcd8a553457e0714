//! `require` of routes: credentials that no request can have.

use crate::config::{
    model::{IdentitySources, Require},
    reader::Cursor,
};

/// Reports a credential that no request can have: each would get 401.
pub(in crate::config) fn check(value: Cursor<'_>, require: Option<Require>, identity: IdentitySources) {
    match require {
        Some(Require::ApiKey) => identity.report_without_api_keys(value),
        Some(Require::User | Require::Any) if !identity.has_verified_users && !identity.has_api_keys => {
            let help =
                "under `user`, configure a `jwt`, a client certificate, or a header from trusted_proxies";
            value.report("no request has a verified user", help.to_owned());
        }
        Some(Require::User) if !identity.has_verified_users => {
            let help = "under `user`, configure a `jwt`; or write `require: api_key`";
            value.report("no request has a verified user", help.to_owned());
        }
        _ => {}
    }
}
