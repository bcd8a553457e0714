//! The script that decides over limits, joined from the files of `lua/`, with its SHA1.

use std::sync::LazyLock;

use bb8_redis::redis::{self, Cmd, Script};
use futures_util::future::join_all;

use super::{acl_check::ACL_CHECK, server_connection::ServerConnection};
use crate::limit::algorithm::{AlgorithmDescription, Kind};

/// The place in `lua/decide.lua` for the definitions of the algorithms.
const ALGORITHMS: &str = "    -- ALGORITHMS\n";

/// Decides over a batch: `lua/decide.lua` after `lua/prelude.lua`. Each algorithm is a branch, since defining all of
/// them in each call would take a good part of the script's time.
static SOURCE: LazyLock<String> = LazyLock::new(|| {
    let mut branches = String::new();
    for AlgorithmDescription { number, script, .. } in Kind::ALL.map(Kind::description) {
        let word = if branches.is_empty() { "if" } else { "elseif" };
        branches += &format!("{word} number == {number} then\n{script}");
    }
    branches += "end\n";
    let driver = include_str!("../../../lua/decide.lua").replace(ALGORITHMS, &branches);
    format!("{}{driver}", include_str!("../../../lua/prelude.lua"))
});

/// Its SHA1, by which it is called.
pub(super) static HASH: LazyLock<String> = LazyLock::new(|| Script::new(&SOURCE).get_hash().to_owned());

/// Loads the script into a server.
pub(super) fn load_command() -> Cmd {
    let mut command = redis::cmd("SCRIPT");
    command.arg("LOAD").arg(SOURCE.as_str());
    command
}

/// Loads the script and `others` into a server, in one round trip. Errors are ignored: a later call of the script
/// gets the error.
pub(super) async fn load_scripts(connection: &ServerConnection, others: &[&Script]) {
    let own = async { load_command().exec_async(&mut connection.clone()).await };
    let others = [&*ACL_CHECK]
        .into_iter()
        .chain(others.iter().copied())
        .map(async |script| script.prepare_invoke().load_async(&mut connection.clone()).await.map(drop));
    let (_own, _others) = tokio::join!(own, join_all(others));
}
