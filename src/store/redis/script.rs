//! The scripts of `lua/`, embedded, with the hashes by which Redis knows them.

use std::sync::LazyLock;

use bb8_redis::redis::Script;

use crate::limit::algorithm::{AlgorithmDescription, Kind};

/// Decides over a batch: `lua/decide.lua` behind its algorithms. Each is a function that defines it when a batch first
/// names it: a script that defined all of them each time would take a good part of its time for that.
pub(super) static DECIDE: LazyLock<Script> = LazyLock::new(|| {
    let mut script = String::from(concat!(
        include_str!("../../../lua/prelude.lua"),
        include_str!("../../../lua/window_counter.lua"),
        include_str!("../../../lua/members.lua"),
    ));
    for AlgorithmDescription { number, script: algorithm, .. } in Kind::ALL.map(Kind::description) {
        script += &format!("define[{number}] = function()\n{algorithm}end\n");
    }
    script += include_str!("../../../lua/decide.lua");
    Script::new(&script)
});
