//! The requests of several access logs, in the order of arrival.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, BufReader, Read},
};

use flate2::read::MultiGzDecoder;

use super::LoggedRequest;
use super::{
    combined, json,
    log_line::{LineFault, LogLine, TimeCache},
};

/// Number of lines read ahead: lines are written when requests end, but may contain the time of arrival.
const LOOKAHEAD: usize = 20_000;
/// A file that begins with this many unreadable lines is not an access log.
const MOST_UNREADABLE_LINES: u64 = 1_000;
/// Longer lines, in bytes, are unreadable.
const LONGEST_LINE: u64 = 1 << 20;
/// Maximum number of unreadable lines that are named.
const EXAMPLES: usize = 3;
/// Bytes of a file read at a time.
const BUFFER: usize = 1 << 20;
const GZIP: &[u8] = &[0x1f, 0x8b];
/// Magic numbers of other formats, and the programs that decompress them: zstd, xz and bzip2.
const COMPRESSED: [(&[u8], &str); 3] =
    [(&[0x28, 0xb5, 0x2f, 0xfd], "zstdcat"), (b"\xfd7zXZ", "xzcat"), (b"BZh", "bzcat")];

/// A log to read.
pub struct InputLog {
    /// Its name as given by the operator.
    pub name: String,
    pub reader: Box<dyn Read>,
}

/// Why a log can't be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("{log} cannot be read: {error}")]
    Io { log: String, error: io::Error },
    #[error("{log} is compressed: run {program} {log} | tollgate replay -")]
    Compressed { log: String, program: &'static str },
    #[error(
        "{log} is not an access log that Tollgate can read: no line is in the combined format of Apache and nginx, or a JSON \
         object with the time, the client and the request"
    )]
    UnknownFormat { log: String },
    #[error("{log} is empty")]
    Empty { log: String },
}

/// Lines that can't be read.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct UnreadableLines {
    pub count: u64,
    /// The first ones, as `FILE:LINE`.
    pub examples: Vec<String>,
}

/// Notes about the logs, for the report.
#[derive(Debug, Default)]
pub struct ReadingNotes {
    pub unreadable: UnreadableLines,
    /// Logs without a request.
    pub without_requests: Vec<String>,
    /// Lines about something other than an HTTP request.
    pub not_http: u64,
    /// Requests that arrived before others already returned: they were further out of order than `LOOKAHEAD`.
    pub late: u64,
    /// Whether requests were spread over their second.
    pub is_spread: bool,
}

/// The requests of several logs, in the order of arrival.
///
/// If a log has whole seconds, the requests of a second are spread evenly over it, in the order of their lines: a burst
/// at the beginning of each second is unlikely, and would make limits per second deny too many.
pub struct LogReader {
    logs: Vec<OpenLog>,
    /// Lines that were read ahead, by time, then by number. Boxed, because the tree moves its values.
    ahead: BTreeMap<(i64, u64), Box<LogLine>>,
    lines: u64,
    /// The time of the last request.
    last: i64,
    notes: ReadingNotes,
}

struct OpenLog {
    name: String,
    reader: Box<dyn BufRead>,
    /// The time up to which it was read. The next line has to confirm a time, so that a single wrong one has no effect.
    time: i64,
    last_time: i64,
    line: u64,
    has_request: bool,
    times: TimeCache,
    buffer: Vec<u8>,
}

impl LogReader {
    /// Reads these logs, which may be compressed with gzip.
    ///
    /// # Errors
    /// A log can't be read, or is compressed in another way.
    pub fn new(logs: Vec<InputLog>) -> Result<Self, ReadError> {
        Ok(Self {
            logs: logs.into_iter().map(OpenLog::new).collect::<Result<_, _>>()?,
            ahead: BTreeMap::new(),
            lines: 0,
            last: i64::MIN,
            notes: ReadingNotes::default(),
        })
    }

    /// The next request. Its time is never before that of the previous one.
    ///
    /// # Errors
    /// A log can't be read, or is not an access log.
    pub fn next_request(&mut self) -> Result<Option<LoggedRequest>, ReadError> {
        loop {
            self.read_ahead()?;
            let Some(((time, _), line)) = self.ahead.pop_first() else { return Ok(None) };
            if line.is_whole_second {
                self.spread_second(time, line)?;
                continue;
            }
            let mut request = line.request;
            if request.time < self.last {
                self.notes.late += 1;
                request.time = self.last;
            }
            self.last = request.time;
            return Ok(Some(request));
        }
    }

    pub fn into_notes(self) -> ReadingNotes {
        self.notes
    }

    /// Spreads all requests of the second that begins at `time` over it: `first` and those read ahead.
    fn spread_second(&mut self, time: i64, first: Box<LogLine>) -> Result<(), ReadError> {
        let mut second = vec![first];
        loop {
            let of_second = self.ahead.range((time, 0)..=(time, u64::MAX));
            let whole = of_second.filter(|(_, line)| line.is_whole_second).map(|(key, _)| *key);
            let whole: Vec<_> = whole.collect();
            if whole.is_empty() {
                break;
            }
            second.extend(whole.iter().filter_map(|key| self.ahead.remove(key)));
            self.read_ahead()?;
        }
        let count = second.len();
        self.notes.is_spread |= count > 1;
        for (nth, mut line) in second.into_iter().enumerate() {
            line.is_whole_second = false;
            line.request.time = time + (nth * 1_000_000 / count) as i64;
            self.insert(line);
        }
        Ok(())
    }

    fn insert(&mut self, line: Box<LogLine>) {
        self.ahead.insert((line.request.time, self.lines), line);
        self.lines += 1;
    }

    /// Reads from the log that is furthest behind, until enough lines are read or all logs have ended.
    fn read_ahead(&mut self) -> Result<(), ReadError> {
        while self.ahead.len() < LOOKAHEAD {
            let behind = self.logs.iter_mut().enumerate().min_by_key(|(_, log)| log.time);
            let Some((index, log)) = behind else { break };
            match log.next_line()? {
                None => {
                    let log = self.logs.swap_remove(index);
                    if !log.has_request {
                        self.end_without_requests(log)?;
                    }
                }
                Some(Ok(line)) => {
                    log.come_to(line.request.time);
                    self.insert(Box::new(line));
                }
                Some(Err(LineFault::NoRequest)) => {
                    log.has_request = true;
                    self.notes.not_http += 1;
                }
                Some(Err(LineFault::Unreadable)) => {
                    if !log.has_request && log.line >= MOST_UNREADABLE_LINES {
                        return Err(ReadError::UnknownFormat { log: log.name.clone() });
                    }
                    let unreadable = &mut self.notes.unreadable;
                    unreadable.count += 1;
                    if unreadable.examples.len() < EXAMPLES {
                        unreadable.examples.push(format!("{}:{}", log.name, log.line));
                    }
                }
            }
        }
        Ok(())
    }

    /// An error if there is no other log; one of several may just have been rotated.
    fn end_without_requests(&mut self, log: OpenLog) -> Result<(), ReadError> {
        self.notes.without_requests.push(log.name.clone());
        if !self.logs.is_empty() || self.lines > 0 {
            return Ok(());
        }
        Err(match log.line {
            0 => ReadError::Empty { log: log.name },
            _ => ReadError::UnknownFormat { log: log.name },
        })
    }
}

impl OpenLog {
    fn new(InputLog { name, reader }: InputLog) -> Result<Self, ReadError> {
        let mut reader = BufReader::with_capacity(BUFFER, reader);
        let begin = match reader.fill_buf() {
            Ok(begin) => begin,
            Err(error) => return Err(ReadError::Io { log: name, error }),
        };
        if let Some((_, program)) = COMPRESSED.iter().find(|(magic, _)| begin.starts_with(magic)) {
            return Err(ReadError::Compressed { log: name, program });
        }
        let reader: Box<dyn BufRead> = match begin.starts_with(GZIP) {
            true => Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(reader))),
            false => Box::new(reader),
        };
        Ok(Self {
            name,
            reader,
            time: i64::MIN,
            last_time: i64::MIN,
            line: 0,
            has_request: false,
            times: TimeCache::default(),
            buffer: Vec::new(),
        })
    }

    /// Notes that a line with this time was read.
    fn come_to(&mut self, time: i64) {
        self.has_request = true;
        self.time = self.time.max(time.min(self.last_time));
        self.last_time = time;
    }

    /// Reads the next line that is not empty. `None` at the end.
    fn next_line(&mut self) -> Result<Option<Result<LogLine, LineFault>>, ReadError> {
        loop {
            self.buffer.clear();
            let io_error = |error| ReadError::Io { log: self.name.clone(), error };
            let mut limited = (&mut self.reader).take(LONGEST_LINE);
            let read = limited.read_until(b'\n', &mut self.buffer).map_err(io_error)?;
            if read == 0 {
                return Ok(None);
            }
            self.line += 1;
            if self.buffer.len() as u64 == LONGEST_LINE && !self.buffer.ends_with(b"\n") {
                self.reader.skip_until(b'\n').map_err(io_error)?;
                return Ok(Some(Err(LineFault::Unreadable)));
            }
            let line = self.buffer.trim_ascii_end();
            if !line.is_empty() {
                let fields = match line.trim_ascii_start().first() {
                    Some(b'{') => json::read(line, &mut self.times),
                    _ => combined::read(line, &mut self.times),
                };
                return Ok(Some(LogLine::from_fields(fields)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(name: &str, bytes: &[u8]) -> InputLog {
        InputLog { name: name.to_owned(), reader: Box::new(io::Cursor::new(bytes.to_vec())) }
    }

    fn reader(logs: &[&str]) -> LogReader {
        let logs = logs.iter().enumerate().map(|(nth, text)| log(&format!("log{nth}"), text.as_bytes()));
        LogReader::new(logs.collect()).unwrap()
    }

    /// The seconds since noon, and the path of each request.
    fn requests(mut reader: LogReader) -> Result<Vec<(f64, String)>, ReadError> {
        let mut all = Vec::new();
        while let Some(request) = reader.next_request()? {
            let since = request.time - 1_783_080_000_000_000;
            all.push((since as f64 / 1e6, request.request.uri.to_string()));
        }
        Ok(all)
    }

    /// `time`: `12:00:01.250`
    fn json(time: &str, path: &str) -> String {
        format!(
            r#"{{"time":"2026-07-03T{time}Z","client":"203.0.113.7","method":"GET","path":"{path}","duration_ms":1}}"#
        )
    }

    fn combined(time: &str, path: &str) -> String {
        format!("203.0.113.7 - - [03/Jul/2026:{time} +0000] \"GET {path} HTTP/1.1\" 200 1\n")
    }

    #[test]
    fn requests_of_several_logs_come_in_the_order_of_their_times() {
        let one =
            [json("12:00:01.500", "/2"), json("12:00:01.250", "/1"), json("12:00:03.000", "/4")].join("\n");
        let other = format!("{}\n\n{}", json("12:00:00.000", "/0"), json("12:00:02.000", "/3"));
        let found = requests(reader(&[&one, &other])).unwrap();
        let expected = [(0.0, "/0"), (1.25, "/1"), (1.5, "/2"), (2.0, "/3"), (3.0, "/4")];
        assert_eq!(found, expected.map(|(time, path)| (time, path.to_owned())));
    }

    #[test]
    fn requests_of_one_second_are_spread_over_it() {
        let lines = [
            ("12:00:01", "/a"),
            ("12:00:01", "/b"),
            ("12:00:01", "/c"),
            ("12:00:01", "/d"),
            ("12:00:02", "/e"),
        ];
        let log: String = lines.into_iter().map(|(time, path)| combined(time, path)).collect();
        let times: Vec<_> = requests(reader(&[&log])).unwrap().into_iter().map(|(time, _)| time).collect();
        assert_eq!(times, [1.0, 1.25, 1.5, 1.75, 2.0]);
    }

    #[test]
    fn seconds_that_are_spread_stay_in_order_with_exact_times() {
        let whole = [combined("12:00:01", "/a"), combined("12:00:01", "/b")].concat();
        let exact = ["12:00:01.100", "12:00:01.600", "12:00:02.000"].map(|time| json(time, "/x")).join("\n");
        let mut reader = reader(&[&whole, &exact]);
        let mut times = Vec::new();
        while let Some(request) = reader.next_request().unwrap() {
            times.push((request.time - 1_783_080_000_000_000) / 1_000);
        }
        assert_eq!(times, [1_000, 1_100, 1_500, 1_600, 2_000]);
        assert_eq!(reader.into_notes().late, 0);
    }

    #[test]
    fn one_line_with_a_wrong_time_does_not_hold_its_log_back() {
        let line = |log: usize, second: usize| {
            json(&format!("12:{:02}:{:02}.{log}00", second / 60, second % 60), "/")
        };
        let lines = |log| (0..LOOKAHEAD.min(3_000)).map(move |second| line(log, second));
        let mut one: Vec<_> = lines(1).collect();
        one.insert(10, json("23:59:59.000", "/wrong"));
        let other: Vec<_> = lines(2).collect();
        // More lines of another log than LOOKAHEAD, so that the result depends on which log is read next.
        let third: String = (0..2 * LOOKAHEAD).map(|_| combined("12:30:00", "/c")).collect();
        let mut reader = reader(&[&one.join("\n"), &other.join("\n"), &third]);
        let mut count = 0;
        while reader.next_request().unwrap().is_some() {
            count += 1;
        }
        assert_eq!((count, reader.into_notes().late), (6_001 + 2 * LOOKAHEAD, 0));
    }

    #[test]
    fn lines_that_come_too_late_are_counted() {
        let day = |day: usize| {
            let line = move |nth: usize| {
                format!(
                    "::1 - - [{day:02}/Jul/2026:{:02}:{:02}:00 +0000] \"GET / HTTP/1.1\" 200 1\n",
                    nth / 1_000 % 24,
                    nth / 20 % 60
                )
            };
            (0..LOOKAHEAD + 5).map(line).collect::<String>()
        };
        let mut in_reverse = reader(&[&(day(2) + &day(1))]);
        while in_reverse.next_request().unwrap().is_some() {}
        assert!(in_reverse.into_notes().late > 0);
        let mut apart = reader(&[&day(2), &day(1)]);
        while apart.next_request().unwrap().is_some() {}
        assert_eq!(apart.into_notes().late, 0);
    }

    #[test]
    fn lines_that_cannot_be_read_are_named_and_left_out() {
        let no_http = "203.0.113.7 - - [03/Jul/2026:12:00:01 +0000] \"hello\" 400 0";
        let log = format!("{}started\n\n{no_http}\n{{}}\n", combined("12:00:01", "/a"));
        let mut reader = reader(&[&log]);
        assert!(reader.next_request().unwrap().is_some() && reader.next_request().unwrap().is_none());
        let examples = ["log0:2", "log0:5"].map(str::to_owned).to_vec();
        let notes = reader.into_notes();
        assert_eq!(notes.unreadable, UnreadableLines { count: 2, examples });
        assert_eq!(notes.not_http, 1);
    }

    #[test]
    fn a_line_of_a_million_bytes_does_not_fill_the_memory() {
        let log = format!("{}\n{}", "x".repeat(3 << 20), combined("12:00:01", "/a"));
        assert_eq!(requests(reader(&[&log])).unwrap().len(), 1);
    }

    #[test]
    fn what_is_no_log_is_an_error() {
        for (log, words) in [
            ("", "log0 is empty"),
            ("a: b\nc: d\n", "log0 is not an access log that Tollgate can read"),
            (&"x\n".repeat(2_000), "log0 is not an access log that Tollgate can read"),
        ] {
            let error = requests(reader(&[log])).unwrap_err().to_string();
            assert!(error.starts_with(words), "{error}");
        }
        let error = LogReader::new(vec![log("a.zst", &[0x28, 0xb5, 0x2f, 0xfd])]).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("run zstdcat a.zst | tollgate replay -"), "{error}");
    }

    #[test]
    fn of_several_logs_one_may_be_empty() {
        let mut reader = reader(&["", &combined("12:00:01", "/a"), "# nothing yet\n"]);
        assert!(reader.next_request().unwrap().is_some() && reader.next_request().unwrap().is_none());
        let mut without = reader.into_notes().without_requests;
        without.sort_unstable();
        assert_eq!(without, ["log0", "log2"]);
    }

    #[test]
    fn gzip_is_read() {
        let mut zipped = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        io::Write::write_all(&mut zipped, combined("12:00:01", "/a").as_bytes()).unwrap();
        // Two members in one file, as `cat` produces.
        let twice = zipped.finish().unwrap().repeat(2);
        assert_eq!(requests(LogReader::new(vec![log("a.gz", &twice)]).unwrap()).unwrap().len(), 2);
        let broken = LogReader::new(vec![log("a.gz", &twice[..20])]).unwrap();
        assert!(requests(broken).unwrap_err().to_string().starts_with("a.gz cannot be read: "));
    }
}
