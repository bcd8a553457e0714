//! Durations and sizes as `proxy.yaml` writes them.

use std::time::Duration;

/// A duration in the largest unit that is exact: `90s`, `1m`, `1h`, `30d`.
pub fn format_duration(duration: Duration) -> String {
    const UNITS: [(u128, &str); 5] =
        [(86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "m"), (1_000_000, "s"), (1_000, "ms")];
    let micros = duration.as_micros();
    match UNITS.iter().find(|(unit, _)| micros >= *unit && micros.is_multiple_of(*unit)) {
        _ if micros == 0 => "0s".to_owned(),
        Some((unit, name)) => format!("{}{name}", micros / unit),
        None => format!("{micros}us"),
    }
}

/// Bytes in the largest unit that is exact: `32KiB`, `1MiB`; otherwise without a unit.
pub fn format_size(bytes: usize) -> String {
    const UNITS: [(usize, &str); 5] =
        [(1 << 50, "PiB"), (1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.iter().find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", bytes / unit),
        None => bytes.to_string(),
    }
}

/// A limit of `concurrency`, which is not a rate: `2 at a time`.
pub fn format_concurrency(limit: u64) -> String {
    format!("{limit} at a time")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_exact_unit_is_taken() {
        assert_eq!(format_duration(Duration::from_micros(1_500)), "1500us");
        assert_eq!(format_duration(Duration::ZERO), "0s");
        assert_eq!([0, 1_000, 32 << 10, 1 << 30].map(format_size), ["0", "1000", "32KiB", "1GiB"]);
    }
}
