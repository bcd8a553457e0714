//! Policies whose keys take so much memory that few of them fit.

use crate::{
    config::{
        FileLocation,
        policies::{algorithm::Algorithm, settings::Policy},
        reader::Cursor,
        store::settings::{MemoryStoreSettings, StoreSettings},
    },
    memory_budget::{MemoryBudgets, format_bytes},
};

/// Bytes of a key without its log or its list.
const KEY: u64 = 110;
/// Bytes of a unit of `sliding_log`.
const UNIT: u64 = 8;
/// Bytes of an entry of `metadata_list` with a path and a user of usual length.
const ENTRY: u64 = 250;
/// The same in Redis: a sorted set of more than 128 units, and the list of entries, which may be twice as long for a while.
const REDIS_UNIT: u64 = 118;
const REDIS_ENTRY: u64 = 2 * 100;

/// If fewer keys fit, an attacker with a few addresses fills the memory.
const FEW_KEYS: u64 = 1_000;
/// A larger key in Redis is warned about, because the memory of Redis is not known here.
const LARGE_REDIS_KEY: u64 = 1 << 20;
/// The share of the budget that the log of one key may take.
const LOG_SHARE: u64 = 8;

/// The memory of the store of limits.
pub(in crate::config) struct StoreMemory {
    /// Bytes that limits may take in this process.
    budget: u64,
    /// The most keys, if the file sets them.
    max_keys: Option<u64>,
    is_redis: bool,
}

impl StoreMemory {
    pub(in crate::config) fn new(store: &StoreSettings) -> Self {
        let MemoryStoreSettings { max_keys, max_bytes } = store.memory;
        Self {
            budget: MemoryBudgets::new(max_bytes, None).limits as u64,
            max_keys: (max_keys != MemoryStoreSettings::default().max_keys).then_some(max_keys as u64),
            is_redis: store.redis.is_some(),
        }
    }
}

/// The part of a key that takes most of its memory.
struct LargePart {
    /// How many there are at most.
    count: u64,
    /// `units`, `entries`
    name: &'static str,
    bytes: u64,
    redis_bytes: u64,
    help: &'static str,
}

impl LargePart {
    /// Of the variant of a policy that takes most.
    fn of(policy: &Policy) -> Option<Self> {
        let variants = policy.overrides.iter().map(|variant| &variant.tiers).chain([&policy.tiers]);
        let limit = variants.flatten().map(|tier| tier.limit).max()?;
        match policy.algorithm {
            Algorithm::SlidingLog => Some(Self {
                count: limit,
                name: "units",
                bytes: UNIT,
                redis_bytes: REDIS_UNIT,
                help: "use `sliding_window` or `gcra`, whose keys take the same few bytes however large the limit is",
            }),
            Algorithm::MetadataList => Some(Self {
                count: limit.min(policy.record.keep as u64),
                name: "entries",
                bytes: ENTRY,
                redis_bytes: REDIS_ENTRY,
                help: "lower `record.keep`, or use `sliding_window` or `gcra`, which record denied requests only",
            }),
            _ => None,
        }
    }
}

/// Warns at `location` if the keys of this policy could take more memory than there is.
pub(in crate::config) fn warn(
    value: Cursor<'_>,
    location: Option<FileLocation>,
    policy: &Policy,
    store: &StoreMemory,
) {
    let Some(part) = LargePart::of(policy) else { return };
    let LargePart { count, name, bytes, redis_bytes, help } = part;
    let algorithm = if name == "units" { "sliding_log" } else { "metadata_list" };
    let message = if store.is_redis {
        let key = count.saturating_mul(redis_bytes);
        if key < LARGE_REDIS_KEY {
            return;
        }
        format!(
            "a key of this {algorithm} takes up to {} in Redis ({count} {name} of some {redis_bytes} bytes): \
                {FEW_KEYS} such keys take {}",
            format_bytes(key),
            format_bytes(key.saturating_mul(FEW_KEYS))
        )
    } else {
        let part = count.saturating_mul(bytes);
        let key = part.saturating_add(KEY);
        let (budget, fit) = (store.budget, store.budget / key);
        if fit >= store.max_keys.unwrap_or(FEW_KEYS) {
            return;
        }
        let held = format!(
            "a key of this {algorithm} takes up to {} ({count} {name} of {bytes} bytes)",
            format_bytes(key)
        );
        let budget_text = format_bytes(budget);
        if name == "units" && part > budget / LOG_SHARE {
            let lowered = budget / LOG_SHARE / UNIT;
            format!(
                "{held}, and may take an eighth of the {budget_text} for limits: the limit is lowered to {lowered}"
            )
        } else {
            format!("{held}: only {fit} such keys fit into the {budget_text} for limits")
        }
    };
    let redis = if store.is_redis {
        ", or see to it that `maxmemory` is enough"
    } else {
        ", or raise store.memory.max_bytes"
    };
    let help = format!("{help}{redis}");
    match location {
        Some(location) => value.warn_at(location, message, help),
        None => value.warn(message, help),
    }
}
