//! Programs that none of us wrote, behind the proxy and in front of it, as their users run them: what
//! works without the proxy works through it.

mod examples;
mod git;
mod load;
mod node_api;
mod npm;
mod oidc_provider;
mod pip;
mod python_api;

use std::{net::SocketAddr, path::Path, process::Command};

use crate::harness::{Config, Tollgate};

/// A Tollgate in front of this address, with every setting at its default.
fn before(address: SocketAddr) -> Tollgate {
    Tollgate::start(Config::new(&[address], ""))
}

/// `size` bytes that do not compress.
fn noise(size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    fastrand::Rng::with_seed(size as u64).fill(&mut bytes);
    bytes
}

/// Without the settings of the user who runs the tests: another proxy, another home.
fn alone<'a>(command: &'a mut Command, home: &Path) -> &'a mut Command {
    for name in
        ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"]
    {
        command.env_remove(name);
    }
    command.env("HOME", home)
}
