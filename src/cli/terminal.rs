//! Text for a terminal: tables, times, and escaped text of clients.

use std::borrow::Cow;

use jiff::Timestamp;

/// Longer cells are cut: `--json` has them whole.
const CELL: usize = 80;

/// `text` with whatever would move the cursor, colour the screen or turn the writing direction around
/// written as an escape.
pub(super) fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_harmful) {
        return text.into();
    }
    let mut out = String::new();
    for character in text.chars() {
        if is_harmful(character) {
            out.extend(character.escape_unicode());
        } else {
            out.push(character);
        }
    }
    out.into()
}

/// As [`printable`], but line breaks stay.
pub(super) fn printable_lines(text: &str) -> String {
    text.lines().map(printable).collect::<Vec<_>>().join("\n")
}

/// The same JSON with such characters escaped. Outside its strings JSON has none but line breaks.
pub(super) fn printable_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if is_harmful(character) && character != '\n' {
            out += &format!("\\u{:04x}", u32::from(character));
        } else {
            out.push(character);
        }
    }
    out
}

fn is_harmful(character: char) -> bool {
    // Marks, embeddings, overrides and isolates of the bidirectional algorithm.
    let turns =
        matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    character.is_control() || turns || matches!(character, '\u{2028}' | '\u{2029}')
}

/// Columns as wide as their widest cell, two spaces apart.
pub(super) fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut lines = vec![head.map(str::to_owned)];
    lines.extend(rows.into_iter().map(|row| row.map(|cell| truncated(&printable(&cell)))));
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut out = String::new();
    for line in &lines {
        let padded = line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}  "));
        out += padded.collect::<String>().trim_end();
        out.push('\n');
    }
    out
}

fn truncated(cell: &str) -> String {
    match cell.char_indices().nth(CELL) {
        Some((end, _)) => format!("{}…", &cell[..end]),
        None => cell.to_owned(),
    }
}

/// `2026-07-03 12:00:01` for a time in RFC 3339; other text stays as it is.
pub(super) fn moment(time: &str) -> String {
    match time.parse::<Timestamp>() {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%S").to_string(),
        Err(_) => time.to_owned(),
    }
}

/// How long until `until` (RFC 3339): `41s`, `1m 30s`, `2h 5m`; `-` where it is past.
pub(super) fn time_left(until: &str, now: Timestamp) -> String {
    let Ok(until) = until.parse::<Timestamp>() else { return "-".to_owned() };
    let millis = until.as_millisecond().saturating_sub(now.as_millisecond());
    if millis <= 0 {
        return "-".to_owned();
    }
    span(millis / 1_000 + i64::from(millis % 1_000 > 0))
}

/// Seconds in the two largest units: `41s`, `1m 30s`, `2h 5m`.
pub(super) fn span(seconds: i64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h {}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(printable("Grüße"), "Grüße");
        assert_eq!(printable("a\x1b[2J\u{9b}1m\r\n\u{202e}"), r"a\u{1b}[2J\u{9b}1m\u{d}\u{a}\u{202e}");
        let json = printable_json("{\"user\":\"\u{9b}2J\u{7f}\"}\n");
        assert_eq!(json, "{\"user\":\"\\u009b2J\\u007f\"}\n");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["user"], "\u{9b}2J\u{7f}");
    }

    #[test]
    fn columns_are_aligned_and_cells_are_cut() {
        let row = |a: &str, b: &str| [a.to_owned(), b.to_owned()];
        let text = table(["A", "LONG"], [row("é", "1"), row("ccc", "\x1b"), row("d", &"x".repeat(100))]);
        assert_eq!(text, format!("A    LONG\né    1\nccc  \\u{{1b}}\nd    {}…\n", "x".repeat(80)));
    }

    #[test]
    fn time_left_is_rounded_up() {
        let now: Timestamp = "2026-07-03T12:00:00Z".parse().unwrap();
        for (until, left) in [
            ("2026-07-03T12:00:00Z", "-"),
            ("2026-07-03T12:00:00.001Z", "1s"),
            ("2026-07-03T12:01:30Z", "1m 30s"),
            ("2026-07-03T14:05:00Z", "2h 5m"),
            ("2026-07-06T16:00:00Z", "3d 4h"),
            ("soon", "-"),
        ] {
            assert_eq!(time_left(until, now), left);
        }
        assert_eq!(moment("2026-07-03T12:00:01.250Z"), "2026-07-03 12:00:01");
    }
}
