//! Text for a terminal: tables, times, and escaped text of clients.

use std::{
    borrow::Cow,
    env,
    ffi::OsStr,
    io::{IsTerminal, stdout},
    sync::OnceLock,
};

use jiff::Timestamp;
use ratatui::crossterm::terminal::{WindowSize, window_size};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

pub(super) use crate::text::printable;
use crate::text::{is_invisible, json_escape};

/// Longer cells are truncated; `--json` has the whole text.
const MAX_CELL: usize = 80;
/// Spaces between two columns.
const GAP: usize = 2;
/// Columns up to this width are not truncated to make a table fit: a time has 19 characters.
const MIN_CUT_COLUMN: usize = 20;

/// As [`printable`], but keeps line breaks.
pub(super) fn printable_lines(text: &str) -> String {
    text.lines().map(printable).collect::<Vec<_>>().join("\n")
}

/// Escapes such characters in JSON. Outside of strings it contains none but line breaks, which are kept.
pub(super) fn printable_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if is_invisible(character) && character != '\n' {
            out += &json_escape(character);
        } else {
            out.push(character);
        }
    }
    out
}

/// The width of the terminal, if the output is one.
static LINE_WIDTH: OnceLock<usize> = OnceLock::new();

/// Makes tables fit the terminal, if the output is one. In a file or a pipe they are as wide as their cells.
pub(super) fn fit_tables() {
    if !stdout().is_terminal() {
        return;
    }
    if let Ok(WindowSize { columns: columns @ 1.., .. }) = window_size() {
        let _is_set_once = LINE_WIDTH.set(usize::from(columns));
    }
}

/// Whether the output may be coloured: it is a terminal, and `NO_COLOR` is not set or is empty (no-color.org).
pub(super) fn has_colours() -> bool {
    let is_plain =
        |name: &str, plain: &dyn Fn(&OsStr) -> bool| env::var_os(name).is_some_and(|value| plain(&value));
    stdout().is_terminal()
        && !is_plain("NO_COLOR", &|value| !value.is_empty())
        && !is_plain("TERM", &|value| value == "dumb")
}

/// Columns as wide as their widest cell, two spaces apart. Text that does not fit the terminal is truncated.
pub(super) fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    table_within(LINE_WIDTH.get().copied(), head, rows)
}

/// As [`table`], with as many columns as `head` has.
pub(super) fn wide_table(head: &[String], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    lines_within(LINE_WIDTH.get().copied(), head.to_vec(), rows)
}

fn table_within<const N: usize>(
    line_width: Option<usize>,
    head: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    lines_within(line_width, head.map(str::to_owned).to_vec(), rows.into_iter().map(Vec::from))
}

fn lines_within(
    line_width: Option<usize>,
    head: Vec<String>,
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    let columns = head.len();
    let printed = |row: Vec<String>| row.iter().map(|cell| printable(cell).into_owned()).collect();
    let mut lines: Vec<Vec<String>> = vec![printed(head)];
    lines.extend(rows.into_iter().map(printed));
    let widest =
        |column: usize| lines.iter().map(|line| line[column].width()).max().unwrap_or(0).min(MAX_CELL + 1);
    let mut widths: Vec<usize> = (0..columns).map(widest).collect();
    if let Some(line_width) = line_width {
        fit(&mut widths, line_width);
    }
    let mut out = String::new();
    for line in &lines {
        let mut text = String::new();
        for (cell, &width) in line.iter().zip(&widths) {
            let cell = truncated(cell, width);
            text += &cell;
            text.extend(std::iter::repeat_n(' ', width - cell.width() + GAP));
        }
        out += text.trim_end();
        out.push('\n');
    }
    out
}

/// Narrows the widest columns until a line fits, but not below [`MIN_CUT_COLUMN`], so that numbers and times are kept.
fn fit(widths: &mut [usize], line_width: usize) {
    let total = |widths: &[usize]| widths.iter().map(|width| width + GAP).sum::<usize>().saturating_sub(GAP);
    while total(widths) > line_width {
        match widths.iter_mut().max() {
            Some(widest) if *widest > MIN_CUT_COLUMN => *widest -= 1,
            _ => return,
        }
    }
}

/// Truncates `text` to `width`, with an ellipsis at the end.
fn truncated(text: &str, width: usize) -> Cow<'_, str> {
    if text.width() <= width {
        return text.into();
    }
    let (mut out, mut used) = (String::new(), 1);
    for character in text.chars() {
        used += character.width().unwrap_or(0);
        if used > width {
            break;
        }
        out.push(character);
    }
    out.push('…');
    out.into()
}

/// `2026-07-03 12:00:01` for a time in RFC 3339; other text is kept.
pub(super) fn moment(time: &str) -> String {
    match time.parse::<Timestamp>() {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%S").to_string(),
        Err(_) => time.to_owned(),
    }
}

/// The time left until `until` (RFC 3339): `41s`, `1m 30s`, `2h 5m`; `-` if it is past.
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
        assert_eq!(printable("ad\u{200b}min\u{feff}"), r"ad\u{200b}min\u{feff}");
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
    fn a_table_fits_its_terminal_and_cuts_no_number_and_no_time() {
        let row = || ["a".repeat(30), "2026-07-03 12:00:00".into(), "12".into(), "b".repeat(50)];
        let head = ["KEY", "TIME", "N", "REASON"];
        let lines = |width| table_within(width, head, [row()]).lines().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(lines(None)[1].len(), 30 + 19 + 2 + 50 + 6);
        let cut = &lines(Some(80))[1];
        assert_eq!(cut.width(), 80);
        assert!(cut.contains("  2026-07-03 12:00:00  12  ") && cut.ends_with("b…"), "{cut}");
        let narrowest = &lines(Some(10))[1];
        assert_eq!(narrowest.width(), 20 + 19 + 2 + 20 + 6);
        assert!(narrowest.starts_with(&format!("{}…  2026", "a".repeat(19))), "{narrowest}");
    }

    #[test]
    fn wide_characters_are_as_wide_as_a_terminal_shows_them() {
        let row = |a: &str| [a.to_owned(), "1".to_owned()];
        assert_eq!(table(["A", "N"], [row("王明"), row("ab")]), "A     N\n王明  1\nab    1\n");
        assert_eq!(truncated("王明王", 4), "王…");
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
