//! Finds commands that the server's ACL denies to the user.

use std::sync::LazyLock;

use bb8_redis::redis::{RedisError, Script};

use super::{channel, server_connection::ServerConnection, topology::Topology};

pub(super) static ACL_CHECK: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../../../lua/acl_check.lua")));

/// Returns a warning for each kind of missing right. Writes nothing to a server that can check by itself (Redis 7), and
/// leaves nothing behind on others. `key`: one that the server has, and that nothing else uses.
///
/// # Errors
/// The server does not reply, or can't reply now.
pub(super) async fn missing_rights(
    connection: &mut ServerConnection,
    prefix: &str,
    key: &str,
    topology: &Topology,
) -> Result<Vec<String>, RedisError> {
    let mut call = ACL_CHECK.key(key);
    call.arg(channel::name(prefix));
    call.arg(match () {
        () if topology.is_cluster() => "cluster",
        () if topology.has_sentinels() => "sentinel",
        () => "",
    });
    match call.invoke_async::<Vec<String>>(connection).await {
        Ok(found) => Ok(to_warnings(&found, prefix)),
        Err(error) => no_scripts_warning(error, prefix).map(|warning| vec![warning]),
    }
}

/// Whether the server will keep refusing: the command is not granted, or unknown.
pub(super) fn is_refusal(error: &RedisError) -> bool {
    matches!(error.code(), Some("NOPERM" | "ERR"))
}

/// The warning that the script can't even be called.
fn no_scripts_warning(error: RedisError, prefix: &str) -> Result<String, RedisError> {
    let refused = error.code() == Some("NOPERM");
    let detail = error.detail().unwrap_or_default();
    match detail.split('\'').nth(1) {
        // The command is in quotes, such as 'script|load'; servers before version 7 leave out its second word.
        Some(command) if refused => {
            let (name, right) = (command.to_uppercase().replace('|', " "), command.to_lowercase());
            Ok(format!(
                "the user is not allowed to run {name}, so no limit can be checked (add to its ACL: +{right})"
            ))
        }
        _ if refused => Ok(format!(
            "the user is not allowed to use keys {prefix}:*, so no limit can be checked (add to its ACL: \
                ~{prefix}:*)"
        )),
        _ if is_refusal(&error) => {
            Ok(format!("the server does not run scripts, so no limit can be checked ({error})"))
        }
        _ => Err(error),
    }
}

/// Turns the script's reply into warnings, one for each kind.
fn to_warnings(found: &[String], prefix: &str) -> Vec<String> {
    let channel = channel::name(prefix);
    let refused = |on: &str| {
        let names = commands_with(found, "refused", on);
        let rights: Vec<_> =
            names.iter().map(|name| format!("+{}", name.to_lowercase().replace(' ', "|"))).collect();
        (!names.is_empty()).then(|| (names.join(", "), rights.join(" ")))
    };
    let keys = refused("keys").map(|(names, rights)| {
        format!("the user is not allowed to run {names} on keys {prefix}:*, so limits or their records fail (add to \
            its ACL: {rights} ~{prefix}:*)")
    });
    let server = refused("server").map(|(names, rights)| {
        format!(
            "the user is not allowed to run {names}, so limits or unblocking fail (add to its ACL: {rights})"
        )
    });
    let channel_rights = refused("channel").map(|(names, rights)| {
        format!(
            "the user is not allowed to run {names} on the channel {channel}, so instances do not learn of \
            unblocks (add to its ACL: {rights} &{channel})"
        )
    });
    let unknown: Vec<_> =
        ["keys", "server", "channel"].iter().flat_map(|on| commands_with(found, "unknown", on)).collect();
    let unknown = (!unknown.is_empty()).then(|| {
        format!(
            "the server does not know {}, which limits need: the command may have been renamed",
            unknown.join(", ")
        )
    });
    [keys, server, channel_rights, unknown].into_iter().flatten().collect()
}

/// The commands with this problem on `on`.
fn commands_with<'a>(found: &'a [String], problem: &str, on: &str) -> Vec<&'a str> {
    let name =
        |line: &'a String| line.strip_prefix(problem)?.strip_prefix(' ')?.strip_prefix(on)?.strip_prefix(' ');
    found.iter().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings_about(lines: &[&str]) -> Vec<String> {
        to_warnings(&lines.iter().map(|&line| line.to_owned()).collect::<Vec<_>>(), "app")
    }

    #[test]
    fn a_missing_right_is_warned_of_with_the_rule_that_grants_it() {
        assert_eq!(warnings_about(&[]), [""; 0]);
        let warnings = warnings_about(&[
            "refused keys SET",
            "refused keys GET",
            "refused server SCRIPT LOAD",
            "refused channel PUBLISH",
        ]);
        assert_eq!(warnings.len(), 3, "{warnings:?}");
        assert!(
            warnings[0].contains("is not allowed to run SET, GET on keys app:*, so limits or their records fail (add to its ACL: +set +get ~app:*)"),
            "{warnings:?}"
        );
        assert!(warnings[1].contains("is not allowed to run SCRIPT LOAD, so limits or unblocking fail (add to its ACL: +script|load)"), "{warnings:?}");
        assert!(
            warnings[2].contains("on the channel app:unblock, so instances do not learn of unblocks (add to its ACL: +publish &app:unblock)"),
            "{warnings:?}"
        );
    }

    #[test]
    fn a_command_that_was_renamed_is_not_taken_for_a_refused_one() {
        let warnings = warnings_about(&["unknown server SCAN", "unknown keys SET"]);
        assert!(warnings.len() == 1 && warnings[0].contains("does not know SET, SCAN"), "{warnings:?}");
    }
}
