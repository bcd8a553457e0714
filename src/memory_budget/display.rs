//! Sizes in bytes, rounded for people.

/// `512 B`, `3.4 KiB`, `128 MiB`
pub fn format_bytes(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let Some((unit, name)) = UNITS.iter().find(|(unit, _)| bytes >= *unit) else {
        return format!("{bytes} B");
    };
    let tenths = (u128::from(bytes) * 10 + u128::from(unit / 2)) / u128::from(*unit);
    match tenths {
        100.. => format!("{} {name}", (tenths + 5) / 10),
        _ if tenths.is_multiple_of(10) => format!("{} {name}", tenths / 10),
        _ => format!("{}.{} {name}", tenths / 10, tenths % 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_rounded_to_a_unit() {
        let shown = [0, 1_023, 1_024, 3_500, 12 << 20, (128 << 20) + 9, u64::MAX].map(format_bytes);
        assert_eq!(shown, ["0 B", "1023 B", "1 KiB", "3.4 KiB", "12 MiB", "128 MiB", "17179869184 GiB"]);
    }
}
