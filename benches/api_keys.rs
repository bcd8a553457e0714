//! A file of 100,000 API keys: how long it takes to read, the memory that the keys take, and how long a lookup takes.
//!
//! `cargo bench --bench api_keys`, or `-- 10000` for fewer.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "figures are what it is for, and it may end")]

use std::{env, fmt::Write, fs, hint::black_box, sync::Arc, time::Instant};

use tollgate::{
    api_keys::{ApiKeys, KeyHash, KeyStore},
    config::model::KeysFileRules,
};

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const LOOKUPS: usize = 4_000_000;
/// 2026-07-03
const NOW: i64 = 1_783_080_000_000_000;

fn main() {
    let count = env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(100_000_usize);
    let hashes: Vec<KeyHash> =
        (0..count).map(|n| KeyHash::of(format!("key of customer {n}").as_bytes())).collect();
    let mut text = String::from("keys:\n");
    for (n, hash) in hashes.iter().enumerate() {
        let line = format_args!(
            "- {{ id: key{n:07}, hash: \"{hash}\", customer: customer-{}, plan: pro, name: CI of {n} }}\n",
            n % 5_000
        );
        let _infallible = text.write_fmt(line);
    }
    let rules = KeysFileRules { plans: Some(vec!["pro".to_owned()]), routes: Vec::new() };
    let (keys, before) = (ApiKeys::new(KeyStore::None), resident());
    let begun = Instant::now();
    let found = rules.read(text.as_bytes(), NOW).unwrap();
    keys.set_file(found.keys.into_iter().map(Arc::new).collect());
    let took = begun.elapsed();
    println!(
        "{count} keys, {} KiB: read in {took:.0?}, {} KiB of memory",
        text.len() >> 10,
        resident() - before
    );

    let mut at = 0;
    let begun = Instant::now();
    for _ in 0..LOOKUPS {
        at = (at + 7_919) % count;
        let _valid = black_box(keys.find(black_box(&hashes[at]), NOW));
    }
    println!("a lookup takes {:.0?}", begun.elapsed() / LOOKUPS as u32);
    let unknown: Vec<KeyHash> = (0..1_000).map(|n| KeyHash::of(format!("unknown {n}").as_bytes())).collect();
    let begun = Instant::now();
    for n in 0..LOOKUPS {
        let _invalid = black_box(keys.find(black_box(&unknown[n % unknown.len()]), NOW));
    }
    println!("a lookup of an unknown key takes {:.0?}", begun.elapsed() / LOOKUPS as u32);
}

/// The resident memory, in KiB.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
