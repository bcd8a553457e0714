//! The script that decides over limits, joined from the files of `lua/`, with its SHA1.

use std::sync::LazyLock;

use bb8_redis::redis::{RedisError, Script, aio::MultiplexedConnection};

use crate::limit::algorithm::{AlgorithmDescription, Kind};

/// Where `lua/decide.lua` defines the algorithm that a batch names.
const ALGORITHMS: &str = "    -- ALGORITHMS\n";

/// Decides over a batch: `lua/decide.lua` after `lua/prelude.lua`. Each algorithm is a branch of its own: defining all of them
/// in each call would take a good part of the script's time.
pub(super) static DECIDE: LazyLock<Script> = LazyLock::new(|| {
    let mut branches = String::new();
    for AlgorithmDescription { number, script, .. } in Kind::ALL.map(Kind::description) {
        let word = if branches.is_empty() { "if" } else { "elseif" };
        branches += &format!("{word} number == {number} then\n{script}");
    }
    branches += "end\n";
    let driver = include_str!("../../../lua/decide.lua").replace(ALGORITHMS, &branches);
    Script::new(&format!("{}{driver}", include_str!("../../../lua/prelude.lua")))
});

/// Makes the script known to a server.
///
/// # Errors
/// The server refuses it, or does not answer.
pub(crate) async fn load_script(connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
    DECIDE.load_async(connection).await.map(drop)
}
