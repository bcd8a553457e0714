//! Reads a server's role, version, memory, rights and replicas, and derives warnings.

use std::sync::Arc;

use bb8_redis::redis::{self, RedisError, Script};

use super::{
    acl_check,
    script::load_scripts,
    server_address::ServerAddress,
    server_connection::ServerConnection,
    topology::{RedisNode, ReplicaSeen, ServerCheck, ServerMemory, Topology},
};

/// The oldest version that is tested.
const OLDEST_TESTED: (u32, u32) = (6, 2);

/// A server that has not saved its changes for so many seconds saves none: with the default settings, it does so within
/// an hour.
const LONG_UNSAVED: u64 = 7_200;

/// Reads the server's memory. Cheap enough for every probe.
///
/// # Errors
/// The server does not reply. If it refuses INFO, nothing is known.
pub(crate) async fn read_memory(connection: &mut ServerConnection) -> Result<ServerMemory, RedisError> {
    let mut pipeline = redis::pipe();
    pipeline.cmd("INFO").arg("memory").cmd("INFO").arg("stats");
    match pipeline.query_async::<(String, String)>(connection).await {
        Ok((memory, stats)) => Ok(parse_memory(&(memory + &stats))),
        Err(error) if acl_check::is_refusal(&error) => Ok(ServerMemory::default()),
        Err(error) => Err(error),
    }
}

fn parse_memory(info: &str) -> ServerMemory {
    let number = |name: &str| field(info, name).parse::<u64>().ok();
    // Output for replicas is not counted.
    let used = number("used_memory")
        .map(|used| used.saturating_sub(number("mem_not_counted_for_evict").unwrap_or(0)));
    ServerMemory {
        evicted: number("evicted_keys"),
        used,
        limit: number("maxmemory").filter(|limit| *limit > 0),
    }
}

/// Checks the server's role, version, memory and our rights. Loads the store's scripts and `scripts`. `keeps_keys`:
/// whether API keys are kept there, which must not get lost.
///
/// # Errors
/// The server does not reply. A refusal is a warning, not an error.
pub(crate) async fn check_server(
    connection: &mut ServerConnection,
    prefix: &str,
    topology: &Topology,
    node: &Arc<RedisNode>,
    scripts: &[&Script],
    keeps_keys: bool,
) -> Result<ServerCheck, RedisError> {
    let info: Result<String, _> = redis::cmd("INFO").query_async(connection).await;
    let mut check = match info {
        Ok(info) => {
            let mut check = parse_info(&info, topology.is_cluster());
            if keeps_keys {
                let save = save_points(connection).await?;
                check.warnings.extend(key_loss_warnings(&info, save.as_deref()));
            }
            check
        }
        Err(error) if acl_check::is_refusal(&error) => {
            ServerCheck { warnings: vec![refused_info_warning(&error)], ..ServerCheck::default() }
        }
        Err(error) => return Err(error),
    };
    // In one round trip with the next command.
    let loading = connection.clone();
    let loading = load_scripts(&loading, scripts);
    // Without a key of ours on this server, rights can't be tried.
    let Some(key) = key_of(prefix, topology, node) else {
        loading.await;
        return Ok(check);
    };
    let ((), missing) = tokio::join!(loading, acl_check::missing_rights(connection, prefix, &key, topology));
    match missing {
        Ok(missing) => check.warnings.extend(missing),
        // A cluster node does not have all keys, which is a warning already; and a Sentinel has none.
        Err(error) if check.has_other_keys && error.is_cluster_error() => {}
        Err(error) => return Err(error),
    }
    Ok(check)
}

/// A key in the slots of this server that nothing else uses.
fn key_of(prefix: &str, topology: &Topology, node: &Arc<RedisNode>) -> Option<String> {
    let key = format!("{prefix}:audit");
    if !topology.is_cluster() {
        return Some(key);
    }
    let map = topology.map();
    let has = |key: &String| map.owner_of(key.as_bytes()).is_some_and(|owner| Arc::ptr_eq(owner, node));
    // Each is in another slot; with thousands of them, one is on this server even if it has few slots.
    std::iter::once(key).chain((0..100_000).map(|number| format!("{prefix}:{{{number}}}:audit"))).find(has)
}

/// Reads the replicas of a server. `host`: the server's, as configured or discovered.
///
/// # Errors
/// The server does not reply. If it refuses INFO, none are known.
pub(crate) async fn read_replicas(
    connection: &mut ServerConnection,
    host: &str,
) -> Result<Vec<ReplicaSeen>, RedisError> {
    let info: Result<String, _> = redis::cmd("INFO").arg("replication").query_async(connection).await;
    match info {
        Ok(info) => Ok(parse_replicas(&info, host)),
        Err(error) if acl_check::is_refusal(&error) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Parses `slave0:ip=10.0.0.2,port=6379,state=online,offset=42,lag=0`.
fn parse_replicas(info: &str, host: &str) -> Vec<ReplicaSeen> {
    let written =
        info.lines().find_map(|line| line.strip_prefix("master_repl_offset:")?.trim().parse::<u64>().ok());
    let replica = |line: &str| {
        let (number, fields) = line.strip_prefix("slave")?.split_once(':')?;
        number.parse::<u32>().ok()?;
        let field = |name: &str| {
            fields.trim().split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
        };
        let address = ServerAddress::new(field("ip")?, field("port")?.parse().ok()?, host);
        let acknowledged = field("offset").and_then(|offset| offset.parse::<u64>().ok());
        let lag = written.zip(acknowledged).map(|(written, known)| written.saturating_sub(known));
        Some(ReplicaSeen { address, is_online: field("state") == Some("online"), lag })
    };
    info.lines().filter_map(replica).collect()
}

fn refused_info_warning(error: &RedisError) -> String {
    let why = match error.code() {
        Some("NOPERM") => "the user is not allowed to run INFO (add to its ACL: +info)".to_owned(),
        _ => format!("the server rejects INFO ({error})"),
    };
    format!("{why}: its role, version and memory settings are unknown")
}

/// A field of the reply to INFO; empty if it is missing.
fn field<'a>(info: &'a str, name: &str) -> &'a str {
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.map(str::trim).unwrap_or_default()
}

/// Parses the reply to INFO.
fn parse_info(info: &str, is_cluster: bool) -> ServerCheck {
    let field = |name: &str| field(info, name).to_owned();
    let (role, version, run_id) = (field("role"), field("redis_version"), field("run_id"));
    // Valkey has its own field names, and also reports a compatible Redis version.
    let (valkey, mode) = (field("valkey_version"), field("redis_mode") + &field("server_mode"));
    let mut warnings = Vec::new();
    if !version.is_empty() && parse_version(&version) < OLDEST_TESTED {
        let (major, minor) = OLDEST_TESTED;
        warnings.push(format!(
            "Redis {version} is older than {major}.{minor}, the oldest version that is tested"
        ));
    }
    if role == "slave" {
        warnings.push("the server is a read-only replica: point store.redis.url to its primary".to_owned());
    }
    match mode.as_str() {
        "cluster" if !is_cluster => warnings.push(
            "the server is a node of a Redis Cluster, and store.redis.url reaches only this node: set \
                store.redis.cluster instead"
                .to_owned(),
        ),
        "sentinel" => warnings.push(
            "the server is a Sentinel, which stores no data: set store.redis.sentinel instead of \
                store.redis.url"
                .to_owned(),
        ),
        _ => {}
    }
    warnings.extend(eviction_policy_warning(&field("maxmemory"), &field("maxmemory_policy")));
    warnings.extend(memory_use_warning(&field("used_memory"), &field("maxmemory")));
    let version = if valkey.is_empty() { version } else { format!("Valkey {valkey}") };
    ServerCheck { role, version, run_id, warnings, has_other_keys: mode == "cluster" }
}

/// When the server saves its data to disk, as in its configuration. `None`: it does not tell.
async fn save_points(connection: &mut ServerConnection) -> Result<Option<String>, RedisError> {
    let mut call = redis::cmd("CONFIG");
    match call.arg("GET").arg("save").query_async::<Vec<String>>(connection).await {
        Ok(reply) => Ok(reply.get(1).cloned()),
        Err(error) if acl_check::is_refusal(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Warnings that the server may lose API keys. `save`: its save points, if they are known.
fn key_loss_warnings(info: &str, save: Option<&str>) -> Vec<String> {
    let policy = field(info, "maxmemory_policy");
    let evicts = policy.starts_with("allkeys-") && field(info, "maxmemory") != "0";
    let eviction = evicts.then(|| {
        format!(
            "maxmemory-policy is {policy}, so Redis may evict API keys: set volatile-ttl, which evicts none \
                of them"
        )
    });
    let number = |name: &str| field(info, name).parse::<u64>().ok();
    let is_unsaved = || {
        let (saved, now) = number("rdb_last_save_time").zip(number("server_time_usec"))?;
        let changes = number("rdb_changes_since_last_save")?;
        Some(changes > 0 && now / 1_000_000 > saved + LONG_UNSAVED)
    };
    let is_on_disk = field(info, "aof_enabled") != "0"
        || save.map_or_else(|| !is_unsaved().unwrap_or(false), |save| !save.is_empty());
    let disk = (!is_on_disk).then(|| {
        "Redis keeps nothing on disk, so all API keys are lost when it is restarted while no instance runs: \
            set appendonly to yes"
            .to_owned()
    });
    eviction.into_iter().chain(disk).collect()
}

fn memory_use_warning(used: &str, limit: &str) -> Option<String> {
    let (used, limit): (u64, u64) = (used.parse().ok()?, limit.parse().ok()?);
    // A constant text, lest each percent is a new warning.
    (limit > 0 && used / 9 >= limit / 10).then(|| {
        "more than 90 % of maxmemory is in use: once it is full, limits lose their counts or can't be counted"
            .to_owned()
    })
}

fn eviction_policy_warning(limit: &str, policy: &str) -> Option<String> {
    match policy {
        // Old or compatible servers may not report it.
        "" => None,
        _ if limit == "0" => Some(
            "maxmemory is not set, so Redis may grow until the system kills it: set maxmemory, and \
                maxmemory-policy to volatile-ttl"
                .to_owned(),
        ),
        "volatile-ttl" => None,
        "noeviction" => Some(
            "maxmemory-policy is noeviction: once memory is full, no limit can be counted and on_store_error \
                applies, and no ban is shared; set volatile-ttl, which evicts what expires first"
                .to_owned(),
        ),
        _ if policy.starts_with("allkeys-") => Some(format!(
            "maxmemory-policy is {policy}: limits in use may be evicted and start over; set volatile-ttl, which \
                evicts what expires first"
        )),
        _ => Some(format!(
            "maxmemory-policy is {policy}: limits are evicted no matter when they expire; set volatile-ttl, \
                which evicts what expires first"
        )),
    }
}

fn parse_version(version: &str) -> (u32, u32) {
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
        let check = parse_info(&info("7.0.15", "master", "1048576", "volatile-ttl"), false);
        assert_eq!((check.role.as_str(), check.version.as_str()), ("master", "7.0.15"));
        assert_eq!(check.warnings, Vec::<String>::new());
    }

    #[test]
    fn every_unsuitable_setting_gives_a_warning() {
        for (info, word) in [
            (info("5.0.7", "master", "1", "volatile-ttl"), "older than 6.2"),
            (info("7.0.15", "slave", "1", "volatile-ttl"), "replica"),
            (info("7.0.15", "master", "0", "noeviction"), "maxmemory is not set"),
            (info("7.0.15", "master", "1", "noeviction"), "noeviction"),
            (info("7.0.15", "master", "1", "allkeys-lru"), "may be evicted"),
            (info("7.0.15", "master", "1", "volatile-lru"), "volatile-lru"),
            ("redis_version:7.0.15\r\nredis_mode:cluster\r\n".to_owned(), "a node of a Redis Cluster"),
            ("redis_version:7.2.4\r\nserver_mode:cluster\r\n".to_owned(), "a node of a Redis Cluster"),
            ("redis_version:7.0.15\r\nredis_mode:sentinel\r\n".to_owned(), "a Sentinel"),
        ] {
            let warnings = parse_info(&info, false).warnings;
            assert!(warnings.len() == 1 && warnings[0].contains(word), "{warnings:?}");
        }
    }

    #[test]
    fn memory_that_is_nearly_full_gives_a_warning() {
        let check_using = |used: u64| {
            parse_info(
                &(info("7.0.15", "master", "1000000", "volatile-ttl") + &format!("used_memory:{used}\r\n")),
                false,
            )
        };
        assert_eq!(check_using(899_990).warnings, [""; 0]);
        assert!(check_using(900_001).warnings[0].contains("more than 90 %"));
        let unlimited =
            parse_info(&(info("7.0.15", "master", "0", "volatile-ttl") + "used_memory:5\r\n"), false);
        assert_eq!(unlimited.warnings.len(), 1, "{:?}", unlimited.warnings);
    }

    #[test]
    fn memory_is_read_as_far_as_it_is_told() {
        let memory = parse_memory(
            "# Memory\r\nused_memory:900\r\nmaxmemory:1000\r\nmem_not_counted_for_evict:40\r\n\
                # Stats\r\nevicted_keys:7\r\n",
        );
        assert_eq!(memory, ServerMemory { evicted: Some(7), used: Some(860), limit: Some(1_000) });
        assert_eq!(parse_memory("maxmemory:0\r\n"), ServerMemory::default());
    }

    #[test]
    fn valkey_is_named_by_its_own_version() {
        let check =
            parse_info(&(info("7.2.4", "master", "1", "volatile-ttl") + "valkey_version:8.0.1\r\n"), true);
        assert_eq!((check.version.as_str(), check.warnings.len()), ("Valkey 8.0.1", 0));
    }

    #[test]
    fn replicas_are_read_with_their_lag() {
        let info = "role:master\r\nslave0:ip=10.0.0.2,port=6379,state=online,offset=40,lag=1\r\n\
            slave1:ip=,port=6380,state=wait_bgsave,offset=0,lag=0\r\nslave_read_only:1\r\nmaster_repl_offset:42\r\n";
        let replica = |address: &str, is_online, lag| ReplicaSeen {
            address: ServerAddress::parse(address, "").unwrap(),
            is_online,
            lag: Some(lag),
        };
        let expected = [replica("10.0.0.2:6379", true, 2), replica("10.0.0.1:6380", false, 42)];
        assert_eq!(parse_replicas(info, "10.0.0.1"), expected);
    }

    #[test]
    fn a_node_of_a_cluster_is_warned_of_only_outside_of_one() {
        let info = "redis_version:7.0.15\r\nredis_mode:cluster\r\n";
        assert_eq!(parse_info(info, true).warnings, Vec::<String>::new());
        assert_eq!(parse_info(info, false).warnings.len(), 1);
    }

    #[test]
    fn a_server_that_may_lose_keys_is_warned_of() {
        let info = |policy: &str, aof: u8, changes: u64, saved: u64| {
            format!(
                "maxmemory:1000\r\nmaxmemory_policy:{policy}\r\naof_enabled:{aof}\r\nrdb_changes_since_last_save:{changes}\r\n\
                rdb_last_save_time:{saved}\r\nserver_time_usec:10000000000\r\n"
            )
        };
        let count = |info: String, save| key_loss_warnings(&info, save).len();
        assert_eq!(count(info("volatile-ttl", 1, 0, 0), Some("")), 0);
        assert_eq!(count(info("volatile-ttl", 0, 0, 0), Some("3600 1")), 0);
        assert_eq!(count(info("volatile-ttl", 0, 0, 0), Some("")), 1);
        assert_eq!(count(info("allkeys-lru", 0, 0, 0), Some("")), 2);
        // It does not tell when it saves.
        assert_eq!(count(info("volatile-ttl", 0, 7, 10_000 - LONG_UNSAVED - 1), None), 1);
        assert_eq!(count(info("volatile-ttl", 0, 7, 10_000 - LONG_UNSAVED), None), 0);
        assert_eq!(count(info("volatile-ttl", 0, 0, 0), None), 0);
        assert_eq!(count(String::new(), None), 0);
    }

    #[test]
    fn a_server_that_says_nothing_gives_no_warning() {
        assert_eq!(parse_info("", false).warnings, Vec::<String>::new());
        assert_eq!(parse_info("# Server\r\nredis_version:nonsense\r\n", false).warnings.len(), 1);
    }
}
