//! What a server says of itself that an operator should know, in words.

use bb8_redis::redis::{self, RedisError, aio::MultiplexedConnection};

use super::acl_check;

/// The oldest version that is tested.
const OLDEST: (u32, u32) = (6, 2);

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ServerCheck {
    /// `master` or `slave`.
    pub(crate) role: String,
    pub(crate) version: String,
    pub(crate) warnings: Vec<String>,
    /// Keys evicted since the server's start, where it says so.
    pub(crate) evicted: Option<u64>,
    /// Whether it is a node of a cluster.
    has_other_keys: bool,
}

/// Looks at the server's role, version, memory, and at what we may do there.
///
/// # Errors
/// It does not answer. That it refuses to is a warning, not an error.
pub(crate) async fn check_server(
    connection: &mut MultiplexedConnection,
    prefix: &str,
) -> Result<ServerCheck, RedisError> {
    let info: Result<String, _> = redis::cmd("INFO").query_async(connection).await;
    let mut check = match info {
        Ok(info) => of(&info),
        Err(error) if acl_check::is_final(&error) => {
            ServerCheck { warnings: vec![silent(&error)], ..ServerCheck::default() }
        }
        Err(error) => return Err(error),
    };
    match acl_check::missing(connection, prefix).await {
        Ok(missing) => check.warnings.extend(missing),
        // A node of a cluster has not all keys, which was said; and a Sentinel has none.
        Err(error) if check.has_other_keys && error.is_cluster_error() => {}
        Err(error) => return Err(error),
    }
    Ok(check)
}

fn silent(error: &RedisError) -> String {
    let why = match error.code() {
        Some("NOPERM") => "the user may not run INFO (ACL: +info)".to_owned(),
        _ => format!("the server does not tell what it is ({error})"),
    };
    format!("{why}: neither role, version nor memory is known")
}

/// What the answer to INFO says.
fn of(info: &str) -> ServerCheck {
    let field = |name: &str| {
        let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.map(str::trim).unwrap_or_default().to_owned()
    };
    let (role, version) = (field("role"), field("redis_version"));
    // Valkey has names of its own, and names the version of Redis that it is like.
    let (valkey, mode) = (field("valkey_version"), field("redis_mode") + &field("server_mode"));
    let mut warnings = Vec::new();
    if !version.is_empty() && number(&version) < OLDEST {
        let (major, minor) = OLDEST;
        warnings.push(format!("Redis {version} is older than {major}.{minor}, the oldest that is tested"));
    }
    if role == "slave" {
        warnings.push(
            "the server is a replica and takes no writes: point store.redis.url to its master".to_owned(),
        );
    }
    match mode.as_str() {
        "cluster" => warnings.push(
            "the server is part of a cluster, of which store.redis.url reaches one node only".to_owned(),
        ),
        "sentinel" => warnings.push(
            "the server is a Sentinel, which keeps no limits: point store.redis.url to the master".to_owned(),
        ),
        _ => {}
    }
    warnings.extend(of_memory(&field("maxmemory"), &field("maxmemory_policy")));
    warnings.extend(nearly_full(&field("used_memory"), &field("maxmemory")));
    let version = if valkey.is_empty() { version } else { format!("Valkey {valkey}") };
    let evicted = field("evicted_keys").parse().ok();
    ServerCheck { role, version, warnings, evicted, has_other_keys: mode == "cluster" }
}

fn nearly_full(used: &str, limit: &str) -> Option<String> {
    let (used, limit): (u64, u64) = (used.parse().ok()?, limit.parse().ok()?);
    // In words that stay the same, lest each percent be another warning.
    (limit > 0 && used / 9 >= limit / 10).then(|| {
        "more than nine tenths of maxmemory are in use: once it is full, limits forget what they counted, or can't be counted"
            .to_owned()
    })
}

fn of_memory(limit: &str, policy: &str) -> Option<String> {
    match policy {
        // Old or foreign servers may not say.
        "" => None,
        _ if limit == "0" => Some(
            "maxmemory is not set: Redis grows until the system ends it; set maxmemory, and maxmemory-policy to volatile-ttl"
                .to_owned(),
        ),
        "volatile-ttl" => None,
        "noeviction" => Some(
            "maxmemory-policy is noeviction: once memory is full no limit can be counted, and on_store_error holds; volatile-ttl gives up what ends first"
                .to_owned(),
        ),
        _ if policy.starts_with("allkeys-") => Some(format!(
            "maxmemory-policy is {policy}: a limit that holds may be evicted, and starts anew; volatile-ttl gives up what ends first"
        )),
        _ => Some(format!(
            "maxmemory-policy is {policy}: limits are evicted whenever they end; volatile-ttl gives up what ends first"
        )),
    }
}

fn number(version: &str) -> (u32, u32) {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(version: &str, role: &str, limit: &str, policy: &str) -> String {
        format!(
            "# Server\r\nredis_version:{version}\r\nredis_mode:standalone\r\n# Memory\r\nmaxmemory:{limit}\r\nmaxmemory_policy:{policy}\r\n# Replication\r\nrole:{role}\r\n"
        )
    }

    #[test]
    fn a_server_as_it_should_be_gives_no_warning() {
        let check = of(&info("7.0.15", "master", "1048576", "volatile-ttl"));
        assert_eq!((check.role.as_str(), check.version.as_str()), ("master", "7.0.15"));
        assert_eq!(check.warnings, Vec::<String>::new());
    }

    #[test]
    fn whatever_may_hurt_is_said() {
        for (info, word) in [
            (info("5.0.7", "master", "1", "volatile-ttl"), "older than 6.2"),
            (info("7.0.15", "slave", "1", "volatile-ttl"), "replica"),
            (info("7.0.15", "master", "0", "noeviction"), "maxmemory is not set"),
            (info("7.0.15", "master", "1", "noeviction"), "noeviction"),
            (info("7.0.15", "master", "1", "allkeys-lru"), "may be evicted"),
            (info("7.0.15", "master", "1", "volatile-lru"), "volatile-lru"),
            ("redis_version:7.0.15\r\nredis_mode:cluster\r\n".to_owned(), "part of a cluster"),
            ("redis_version:7.2.4\r\nserver_mode:cluster\r\n".to_owned(), "part of a cluster"),
            ("redis_version:7.0.15\r\nredis_mode:sentinel\r\n".to_owned(), "a Sentinel"),
        ] {
            let warnings = of(&info).warnings;
            assert!(warnings.len() == 1 && warnings[0].contains(word), "{warnings:?}");
        }
    }

    #[test]
    fn memory_that_is_nearly_full_is_told_of() {
        let of_memory = |used: u64| {
            of(&(info("7.0.15", "master", "1000000", "volatile-ttl") + &format!("used_memory:{used}\r\n")))
        };
        assert_eq!(of_memory(899_990).warnings, [""; 0]);
        assert!(of_memory(900_001).warnings[0].contains("nine tenths"));
        let unlimited = of(&(info("7.0.15", "master", "0", "volatile-ttl") + "used_memory:5\r\n"));
        assert_eq!(unlimited.warnings.len(), 1, "{:?}", unlimited.warnings);
    }

    #[test]
    fn valkey_is_named() {
        let check = of(&(info("7.2.4", "master", "1", "volatile-ttl") + "valkey_version:8.0.1\r\n"));
        assert_eq!((check.version.as_str(), check.warnings.len()), ("Valkey 8.0.1", 0));
    }

    #[test]
    fn a_server_that_says_nothing_is_not_blamed() {
        assert_eq!(of("").warnings, Vec::<String>::new());
        assert_eq!(of("# Server\r\nredis_version:nonsense\r\n").warnings.len(), 1);
    }
}
