//! A bar on stderr that shows how much of the access logs is read, if stderr is a terminal.

use std::{
    env,
    io::{IsTerminal, Write, stderr},
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use ratatui::crossterm::terminal::{WindowSize, window_size};

use super::format::thousands;
use crate::offline::access_logs::LogProgress;

/// A shorter run shows no bar.
const DELAY: Duration = Duration::from_millis(500);
const INTERVAL: Duration = Duration::from_millis(100);
/// In characters.
const BAR: u64 = 24;

/// The bar. It is cleared when this is dropped.
pub(super) struct ProgressBar {
    /// Ends the thread when it is closed.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ProgressBar {
    /// Shows a bar after [`DELAY`]. `name`: the command.
    pub(super) fn start(name: &'static str, progress: LogProgress) -> Self {
        if !stderr().is_terminal() || env::var_os("TERM").is_some_and(|terminal| terminal == "dumb") {
            return Self { stop: None, thread: None };
        }
        let (stop, stopped) = channel();
        let draw = move || {
            let begin = Instant::now();
            let mut wait = DELAY;
            while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                wait = INTERVAL;
                let line = line(name, progress.bytes(), progress.total, progress.requests(), begin.elapsed());
                write(&format!("\r{}\x1b[K", cut(line)));
            }
            if wait == INTERVAL {
                write("\r\x1b[K");
            }
        };
        // Without a thread there is no bar.
        let thread = thread::Builder::new().name("progress bar".to_owned()).spawn(draw).ok();
        Self { stop: Some(stop), thread }
    }
}

impl Drop for ProgressBar {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
            let _ended = thread.join();
        }
    }
}

fn write(text: &str) {
    // If the terminal is gone, nobody sees the bar.
    let _shown = stderr().write_all(text.as_bytes());
}

/// Cuts a line to the width of the terminal.
fn cut(line: String) -> String {
    let width = window_size().map_or(0, |WindowSize { columns, .. }| usize::from(columns));
    match width {
        0 => line,
        // The last column would let some terminals begin another line.
        width => line.chars().take(width - 1).collect(),
    }
}

/// `replay  42 % ▕██████████░░░░░░░░░░░░░░▏ 812,000 lines/s  1:20 left`
fn line(name: &str, bytes: u64, total: Option<u64>, lines: u64, elapsed: Duration) -> String {
    let rate = thousands((lines as f64 / elapsed.as_secs_f64().max(1e-3)) as u64);
    let Some(total) = total.filter(|total| *total > 0) else {
        return format!("{name}  {} lines  {rate} lines/s", thousands(lines));
    };
    let share = (bytes as f64 / total as f64).min(1.0);
    let full = (share * BAR as f64) as usize;
    let bar = "█".repeat(full) + &"░".repeat(BAR as usize - full);
    let left = elapsed.as_secs_f64() * (1.0 - share) / share.max(1e-6);
    let left = left.min(359_999.0).round() as u64;
    let left = match left / 3_600 {
        0 => format!("{}:{:02}", left / 60, left % 60),
        hours => format!("{hours}:{:02}:{:02}", left / 60 % 60, left % 60),
    };
    format!("{name} {:>3.0} % ▕{bar}▏ {rate} lines/s  {left} left", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_tells_the_share_the_rate_and_the_time_left() {
        let line = |bytes, total| line("replay", bytes, total, 2_436_000, Duration::from_secs(3));
        assert_eq!(line(42, Some(100)), "replay  42 % ▕██████████░░░░░░░░░░░░░░▏ 812,000 lines/s  0:04 left");
        assert_eq!(
            line(100, Some(100)),
            "replay 100 % ▕████████████████████████▏ 812,000 lines/s  0:00 left"
        );
        assert_eq!(
            line(1, Some(10_000)),
            "replay   0 % ▕░░░░░░░░░░░░░░░░░░░░░░░░▏ 812,000 lines/s  8:19:57 left"
        );
        assert_eq!(line(7, None), "replay  2,436,000 lines  812,000 lines/s");
        assert_eq!(line(0, Some(0)), "replay  2,436,000 lines  812,000 lines/s");
    }
}
