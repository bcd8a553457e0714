//! The scripts of `lua/`, embedded, with the hashes by which Redis knows them.

use std::sync::LazyLock;

use redis::Script;

/// Decides over a batch: `lua/decide.lua` behind its algorithms.
pub(super) static DECIDE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("../../../lua/prelude.lua"),
        include_str!("../../../lua/single_counter.lua"),
        include_str!("../../../lua/fixed_window.lua"),
        include_str!("../../../lua/sliding_log.lua"),
        include_str!("../../../lua/metadata_list.lua"),
        include_str!("../../../lua/sliding_counter.lua"),
        include_str!("../../../lua/gcra.lua"),
        include_str!("../../../lua/sliding_window.lua"),
        include_str!("../../../lua/members.lua"),
        include_str!("../../../lua/concurrency.lua"),
        include_str!("../../../lua/distinct.lua"),
        include_str!("../../../lua/decide.lua"),
    ))
});

/// Says that an instance lives.
pub(super) static HEARTBEAT: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../../../lua/heartbeat.lua")));

/// Finds out what the user may do.
pub(super) static AUDIT: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../../../lua/audit.lua")));
