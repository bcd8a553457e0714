//! The scripts of `lua/`, embedded, with the hashes by which Redis knows them.

use std::sync::LazyLock;

use bb8_redis::redis::Script;

/// Behind the head of a function that defines the algorithm of this number when a batch first names it: a script that
/// defined all of them each time would take a good part of its time for that.
macro_rules! algorithm {
    ($number:literal, $file:literal) => {
        concat!(
            "define[",
            $number,
            "] = function()\n",
            include_str!(concat!("../../../lua/", $file)),
            "end\n"
        )
    };
}

/// Decides over a batch: `lua/decide.lua` behind its algorithms.
pub(super) static DECIDE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("../../../lua/prelude.lua"),
        include_str!("../../../lua/window_counter.lua"),
        include_str!("../../../lua/members.lua"),
        algorithm!(1, "single_counter.lua"),
        algorithm!(2, "fixed_window.lua"),
        algorithm!(3, "sliding_log.lua"),
        algorithm!(4, "metadata_list.lua"),
        algorithm!(5, "sliding_window.lua"),
        algorithm!(6, "sliding_counter.lua"),
        algorithm!(7, "gcra.lua"),
        algorithm!(8, "concurrency.lua"),
        algorithm!(9, "distinct.lua"),
        include_str!("../../../lua/decide.lua"),
    ))
});
