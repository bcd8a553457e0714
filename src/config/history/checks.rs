//! History that would not be whole, or would name people who are not to be named.

use crate::config::{abuse::settings::Users, reader::Cursor, resolved::Config};

/// Checks `history`, which is at `value`, against the other settings.
pub(in crate::config) fn check_history(value: Cursor<'_>, config: &Config) {
    let Some(history) = &config.history else { return };
    if let Some(file) = value.entry("store").and_then(|store| store.entry("file"))
        && let Some(path) = &history.store.file
    {
        if config.store.redis.is_some() && !history.store.single {
            let help = "use `postgres`, which all instances share; or, if this is the only instance, add `single: true`";
            file.report(
                "limits are shared in Redis, but each instance would have a history of its own",
                help.to_owned(),
            );
        }
        file.warn_without_directory(path);
    }
    if let Some(usage) = value.entry("usage")
        && history.counts_users()
    {
        if config.abuse.users == Users::Off {
            let help = "remove `user`, or set `abuse.users: hashed`".to_owned();
            usage.report("users are not recorded: `abuse.users` is off", help);
        } else if config.user.is_empty() && config.api_keys.is_none() {
            let help = "set where the user ID comes from: `user` at the top level".to_owned();
            usage.report("no request has a user ID, because `user` is not configured", help);
        }
    }
    if history.counts_customers() && !history.counts_users() && config.api_keys.is_none() {
        value.warn(
            "no request has a customer, because there are no `api_keys`: usage is that of all together",
            "add `usage: [user]`, or `api_keys`".to_owned(),
        );
    }
    if let Some((at, name)) = value.entry("value").zip(history.value.as_ref())
        && !config.values.iter().any(|value| value.name == *name)
    {
        at.report(format!("`{name}` is not one of `values`"), "name a value that `values` has".to_owned());
    }
    if history.store.postgres.is_some()
        && history.spool_directory.is_none()
        && history.spool > 0
        && let Some(at) = value.entry("spool").or_else(|| value.entry("store"))
    {
        at.warn(
            "there is no directory for the spool: while PostgreSQL is away, history waits in memory, and a crash loses it",
            "set `spool_directory`, such as /var/lib/tollgate/spool".to_owned(),
        );
    }
}
