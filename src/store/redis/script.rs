//! The script that decides over limits, joined from the files of `lua/`, with its SHA1.

use std::sync::LazyLock;

use bb8_redis::redis::{RedisError, Script, aio::MultiplexedConnection};

use crate::limit::algorithm::{AlgorithmDescription, Kind};

/// Decides over a batch: `lua/decide.lua` after the algorithms. Each algorithm is wrapped in a function, which runs when a batch
/// first names it: defining all of them in each run would take a good part of the script's time.
pub(super) static DECIDE: LazyLock<Script> = LazyLock::new(|| {
    let mut script = String::from(concat!(
        include_str!("../../../lua/prelude.lua"),
        include_str!("../../../lua/window_counter.lua"),
        include_str!("../../../lua/members.lua"),
    ));
    for AlgorithmDescription { number, script: algorithm, .. } in Kind::ALL.map(Kind::description) {
        script += &format!("definitions[{number}] = function()\n{algorithm}end\n");
    }
    script += include_str!("../../../lua/decide.lua");
    Script::new(&script)
});

/// Makes the script known to a server.
///
/// # Errors
/// The server refuses it, or does not answer.
pub(crate) async fn load_script(connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
    DECIDE.load_async(connection).await.map(drop)
}
