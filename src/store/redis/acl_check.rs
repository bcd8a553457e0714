//! What the user may do on a server, and what is missing there, in words.

use bb8_redis::redis::{RedisError, aio::MultiplexedConnection};

use super::{channel, script};

/// What is missing; nothing is if the user may do all that limits take. Writes nothing to a server that can tell
/// by itself (Redis 7), and leaves nothing behind on others.
///
/// # Errors
/// It does not answer, or can't at the moment.
pub(super) async fn missing(
    connection: &mut MultiplexedConnection,
    prefix: &str,
) -> Result<Vec<String>, RedisError> {
    let mut call = script::AUDIT.key(format!("{prefix}:audit"));
    call.arg(channel::name(prefix));
    match call.invoke_async::<Vec<String>>(connection).await {
        Ok(found) => Ok(in_words(&found, prefix)),
        Err(error) => without_scripts(error, prefix).map(|warning| vec![warning]),
    }
}

/// Whether an error is the server's last word: that the command is not for us, or not there.
pub(super) fn is_final(error: &RedisError) -> bool {
    matches!(error.code(), Some("NOPERM" | "ERR"))
}

/// What it means that the script can't even be called.
fn without_scripts(error: RedisError, prefix: &str) -> Result<String, RedisError> {
    let refused = error.code() == Some("NOPERM");
    let detail = error.detail().unwrap_or_default();
    match detail.split('\'').nth(1) {
        // The command stands in quotes, such as 'script|load'; servers before version 7 leave out its second word.
        Some(command) if refused => {
            let (name, right) = (command.to_uppercase().replace('|', " "), command.to_lowercase());
            Ok(format!("the user may not run {name} (ACL: +{right}): nothing can be decided"))
        }
        _ if refused => {
            Ok(format!("the user may not use keys {prefix}:* (ACL: ~{prefix}:*): nothing can be decided"))
        }
        _ if is_final(&error) => {
            Ok(format!("the server runs no scripts, so nothing can be decided ({error})"))
        }
        _ => Err(error),
    }
}

/// What the script found, one sentence a kind.
fn in_words(found: &[String], prefix: &str) -> Vec<String> {
    let channel = channel::name(prefix);
    let refused = |on: &str| {
        let names = named(found, "refused", on);
        let rights: Vec<_> =
            names.iter().map(|name| format!("+{}", name.to_lowercase().replace(' ', "|"))).collect();
        (!names.is_empty()).then(|| (names.join(", "), rights.join(" ")))
    };
    let keys = refused("keys").map(|(names, rights)| {
        format!("the user may not run {names} on keys {prefix}:* (ACL: {rights} ~{prefix}:*): limits fail, or records of them")
    });
    let server = refused("server").map(|(names, rights)| {
        format!("the user may not run {names} (ACL: {rights}): limits fail, or unblocking does")
    });
    let told = refused("channel").map(|(names, rights)| {
        format!("the user may not run {names} on the channel {channel} (ACL: {rights} &{channel}): instances don't learn what others unblock")
    });
    let unknown: Vec<_> =
        ["keys", "server", "channel"].iter().flat_map(|on| named(found, "unknown", on)).collect();
    let unknown = (!unknown.is_empty()).then(|| {
        format!("the server does not know {}, which limits take: it may be renamed there", unknown.join(", "))
    });
    [keys, server, told, unknown].into_iter().flatten().collect()
}

/// The commands with this problem, on this.
fn named<'a>(found: &'a [String], problem: &str, on: &str) -> Vec<&'a str> {
    let name =
        |line: &'a String| line.strip_prefix(problem)?.strip_prefix(' ')?.strip_prefix(on)?.strip_prefix(' ');
    found.iter().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(lines: &[&str]) -> Vec<String> {
        in_words(&lines.iter().map(|&line| line.to_owned()).collect::<Vec<_>>(), "app")
    }

    #[test]
    fn what_is_missing_is_said_together_with_what_gives_it() {
        assert_eq!(found(&[]), [""; 0]);
        let said = found(&[
            "refused keys SET",
            "refused keys GET",
            "refused server SCRIPT LOAD",
            "refused channel PUBLISH",
        ]);
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said[0].contains("may not run SET, GET on keys app:* (ACL: +set +get ~app:*)"), "{said:?}");
        assert!(said[1].contains("may not run SCRIPT LOAD (ACL: +script|load)"), "{said:?}");
        assert!(said[2].contains("on the channel app:unblock (ACL: +publish &app:unblock)"), "{said:?}");
    }

    #[test]
    fn a_command_that_was_renamed_is_not_taken_for_a_refused_one() {
        let said = found(&["unknown server SCAN", "unknown keys SET"]);
        assert!(said.len() == 1 && said[0].contains("does not know SET, SCAN"), "{said:?}");
    }
}
