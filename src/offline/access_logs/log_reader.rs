//! The requests of several access logs, in the order of arrival.

use std::{
    collections::{HashSet, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread, vec,
};

use http::HeaderName;

use super::{
    LoggedRequest,
    arrival_order::{self, ArrivalOrder},
    field::{LogLine, WantedHeaders},
    line_format::{LineReader, LogFormat},
    log_file::{InputLog, LogFile, LogLineError, NoRequest, ReadError},
};

/// Number of lines read ahead: lines are written when requests end, but may contain the time of arrival.
const LOOKAHEAD: usize = 20_000;
/// A file that begins with this many unreadable lines is not an access log.
const MOST_UNREADABLE_LINES: u64 = 1_000;
/// Maximum number of unreadable lines that are named.
const EXAMPLES: usize = 3;
/// Most requests of a second that are spread over it. Further ones come at its end.
const MOST_OF_SECOND: usize = 1 << 18;
/// In microseconds.
const LAST_OF_SECOND: i64 = 999_999;
/// Requests that one thread hands to the other at a time, and the number of times that it may be ahead.
const BATCH: usize = 1_024;
const BATCHES: usize = 8;

/// How to read logs.
#[derive(Debug, Clone, Default)]
pub struct ReadOptions {
    /// The possible formats. Empty: all that are built in.
    pub formats: Vec<LogFormat>,
    /// The header fields to keep, `Host` being one. `None`: all that the log has.
    pub headers: Option<HashSet<HeaderName>>,
}

/// Lines that can't be read.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct UnreadableLines {
    pub count: u64,
    /// The first ones, as `FILE:LINE`.
    pub examples: Vec<String>,
    /// Why the first one can't be read.
    pub reason: Option<String>,
}

/// Notes about the logs, for the report.
#[derive(Debug, Default)]
pub struct ReadingNotes {
    pub unreadable: UnreadableLines,
    /// Logs without a request.
    pub without_requests: Vec<String>,
    /// Logs that could not be decompressed to their end, each with the error. What came before counts.
    pub broken_off: Vec<String>,
    /// Lines about something other than an HTTP request.
    pub not_http: u64,
    /// Requests that arrived before others already returned: they were further out of order than `LOOKAHEAD`.
    pub late: u64,
    /// Whether requests were spread over their second.
    pub is_spread: bool,
}

/// How far the logs are read.
#[derive(Debug, Clone)]
pub struct LogProgress {
    /// Of the files, as they are on disk.
    bytes_read: Arc<AtomicU64>,
    requests_read: Arc<AtomicU64>,
    requests_taken: Arc<AtomicU64>,
    /// The bytes of all logs, as they are on disk. `None`: one of them is a pipe.
    pub total: Option<u64>,
}

impl LogProgress {
    /// The bytes, as they are on disk, of the requests that the caller has taken.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let read = self.requests_read.load(Ordering::Relaxed).max(1);
        // The thread that reads is ahead.
        (self.bytes_read.load(Ordering::Relaxed) as f64 * self.requests() as f64 / read as f64) as u64
    }

    /// The requests that the caller has taken.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests_taken.load(Ordering::Relaxed)
    }
}

/// The requests of several logs, in the order of arrival. A thread of its own reads them.
///
/// If a log has whole seconds, the requests of a second are spread evenly over it, in the order of their lines: a burst
/// at the beginning of each second is unlikely, and would make limits per second deny too many.
pub struct LogReader {
    batches: Receiver<Message>,
    batch: vec::IntoIter<LoggedRequest>,
    /// The notes, at the end.
    notes: Option<ReadingNotes>,
    progress: LogProgress,
}

/// From the thread that reads.
enum Message {
    Requests(Vec<LoggedRequest>),
    /// All logs have ended, or one can't be read.
    End(Result<ReadingNotes, ReadError>),
}

impl LogReader {
    /// Reads these logs, which may be compressed with gzip or zstd.
    ///
    /// # Errors
    /// A log can't be read, or is compressed in another way.
    pub fn new(logs: Vec<InputLog>, options: ReadOptions) -> Result<Self, ReadError> {
        let total = logs.iter().map(|log| log.size).sum();
        let progress = LogProgress {
            bytes_read: Arc::default(),
            requests_read: Arc::default(),
            requests_taken: Arc::default(),
            total,
        };
        let merged = MergedLogs::open(logs, options, &progress)?;
        let (sender, batches) = sync_channel(BATCHES);
        thread::Builder::new()
            .name("access logs".to_owned())
            .spawn(move || merged.send(&sender))
            .map_err(|error| ReadError::Thread(error.to_string()))?;
        Ok(Self { batches, batch: Vec::new().into_iter(), notes: None, progress })
    }

    /// The next request. Its time is never before that of the previous one.
    ///
    /// # Errors
    /// A log can't be read, or is not an access log.
    pub fn next_request(&mut self) -> Result<Option<LoggedRequest>, ReadError> {
        loop {
            if let Some(request) = self.batch.next() {
                return Ok(Some(request));
            }
            if self.notes.is_some() {
                return Ok(None);
            }
            match self.batches.recv() {
                Ok(Message::Requests(batch)) => {
                    self.progress.requests_taken.fetch_add(batch.len() as u64, Ordering::Relaxed);
                    self.batch = batch.into_iter();
                }
                Ok(Message::End(notes)) => self.notes = Some(notes?),
                Err(closed) => return Err(ReadError::Thread(closed.to_string())),
            }
        }
    }

    /// How much is read, to show to the operator.
    #[must_use]
    pub fn progress(&self) -> LogProgress {
        self.progress.clone()
    }

    /// The notes, once there is no further request.
    #[must_use]
    pub fn into_notes(self) -> ReadingNotes {
        self.notes.unwrap_or_default()
    }
}

/// Reads several logs as one.
struct MergedLogs {
    logs: Vec<OpenLog>,
    formats: String,
    ahead: ArrivalOrder,
    /// The requests of whole seconds, with the times that they were given.
    spread: VecDeque<LoggedRequest>,
    /// A second with more requests than are spread.
    full_second: Option<i64>,
    requests_read: Arc<AtomicU64>,
    has_requests: bool,
    /// The time of the last request.
    last: i64,
    notes: ReadingNotes,
}

struct OpenLog {
    file: LogFile,
    /// The time up to which it was read. The next line has to confirm a time, so that a single wrong one has no effect.
    time: i64,
    last_time: i64,
    has_request: bool,
    unreadable: u64,
    /// Why its first unreadable line can't be read.
    fault: Option<String>,
}

impl MergedLogs {
    fn open(logs: Vec<InputLog>, options: ReadOptions, progress: &LogProgress) -> Result<Self, ReadError> {
        let ReadOptions { mut formats, headers } = options;
        if formats.is_empty() {
            formats = LogFormat::built_in();
        }
        let wanted = WantedHeaders(headers);
        let open = |log: InputLog| {
            let readers = formats.iter().map(|format| LineReader::new(format, &wanted)).collect();
            Ok::<_, ReadError>(OpenLog {
                file: LogFile::open(log, readers, Arc::clone(&progress.bytes_read))?,
                time: i64::MIN,
                last_time: i64::MIN,
                has_request: false,
                unreadable: 0,
                fault: None,
            })
        };
        Ok(Self {
            logs: logs.into_iter().map(open).collect::<Result<_, _>>()?,
            formats: formats.iter().map(LogFormat::name).collect::<Vec<_>>().join(", "),
            ahead: ArrivalOrder::default(),
            spread: VecDeque::new(),
            full_second: None,
            requests_read: Arc::clone(&progress.requests_read),
            has_requests: false,
            last: i64::MIN,
            notes: ReadingNotes::default(),
        })
    }

    /// Sends all requests, until nobody wants them any more.
    fn send(mut self, to: &SyncSender<Message>) {
        loop {
            let mut batch = Vec::with_capacity(BATCH);
            let end = loop {
                match self.next() {
                    Ok(Some(request)) => batch.push(request),
                    Ok(None) => break Some(Ok(std::mem::take(&mut self.notes))),
                    Err(error) => break Some(Err(error)),
                }
                if batch.len() == BATCH {
                    break None;
                }
            };
            let is_end = end.is_some();
            let messages = std::iter::once(Message::Requests(batch)).chain(end.map(Message::End));
            for message in messages {
                if to.send(message).is_err() {
                    return;
                }
            }
            if is_end {
                return;
            }
        }
    }

    fn next(&mut self) -> Result<Option<LoggedRequest>, ReadError> {
        loop {
            self.read_ahead(LOOKAHEAD)?;
            let ahead = self.ahead.peek().map(|line| line.request.time);
            let is_full = ahead.is_some() && ahead == self.full_second;
            let is_spread_first =
                |spread: &LoggedRequest| is_full || ahead.is_none_or(|ahead| spread.time < ahead);
            if self.spread.front().is_some_and(is_spread_first) {
                let request = self.spread.pop_front();
                return Ok(request.map(|request| self.in_order(request)));
            }
            if let Some(LogLine { request: LoggedRequest { time, .. }, is_whole_second: true }) =
                self.ahead.peek()
                && !is_full
            {
                let time = *time;
                self.spread_second(time)?;
                continue;
            }
            let Some(LogLine { mut request, is_whole_second }) = self.ahead.pop() else { return Ok(None) };
            if is_whole_second {
                request.time += LAST_OF_SECOND;
            }
            return Ok(Some(self.in_order(request)));
        }
    }

    /// Lets no request come before an earlier one.
    fn in_order(&mut self, mut request: LoggedRequest) -> LoggedRequest {
        if request.time < self.last {
            self.notes.late += 1;
            request.time = self.last;
        }
        self.last = request.time;
        request
    }

    /// Spreads all requests of the second that begins at `time`, which are next, over it.
    fn spread_second(&mut self, time: i64) -> Result<(), ReadError> {
        let mut read = self.ahead.len();
        while let Some(count) = self.ahead.whole_second(time).filter(|count| *count < MOST_OF_SECOND) {
            self.read_ahead(LOOKAHEAD + count)?;
            // Further lines of this second may have been read.
            if self.ahead.len() == std::mem::replace(&mut read, self.ahead.len()) {
                self.notes.is_spread |= count > 1;
                self.ahead.spread(count);
                return Ok(());
            }
        }
        let of_second = |line: &LogLine| line.is_whole_second && line.request.time == time;
        let mut second = Vec::new();
        while second.len() < MOST_OF_SECOND {
            if !self.ahead.peek().is_some_and(of_second) {
                // The next lines may be of this second as well.
                self.read_ahead(LOOKAHEAD)?;
                if !self.ahead.peek().is_some_and(of_second) {
                    break;
                }
            }
            second.extend(self.ahead.pop().map(|line| line.request));
        }
        let count = second.len();
        self.notes.is_spread |= count > 1;
        if count == MOST_OF_SECOND {
            self.full_second = Some(time);
        }
        for (nth, mut request) in second.into_iter().enumerate() {
            request.time += arrival_order::spread(nth, count);
            match self.spread.back() {
                // A second that comes after a later one.
                Some(last) if last.time > request.time => {
                    let at = self.spread.partition_point(|other| other.time <= request.time);
                    self.spread.insert(at, request);
                }
                _ => self.spread.push_back(request),
            }
        }
        Ok(())
    }

    /// Reads from the log that is furthest behind, until so many lines are read ahead or all logs have ended.
    fn read_ahead(&mut self, lines: usize) -> Result<(), ReadError> {
        while self.ahead.len() < lines {
            let behind = self.logs.iter_mut().enumerate().min_by_key(|(_, log)| log.time);
            let Some((index, log)) = behind else { break };
            let unreadable = &mut self.notes.unreadable;
            match log.file.next_line(log.fault.is_none() || unreadable.reason.is_none()) {
                Ok(None) => self.end(index)?,
                Ok(Some(Ok(line))) => {
                    self.requests_read.fetch_add(1, Ordering::Relaxed);
                    log.come_to(line.request.time);
                    self.has_requests = true;
                    self.ahead.add(line);
                }
                Ok(Some(Err(NoRequest::NotHttp))) => {
                    log.has_request = true;
                    self.notes.not_http += 1;
                }
                Ok(Some(Err(NoRequest::Unreadable { why }))) => {
                    let place = format!("line {}", log.file.line);
                    if let (None, Some(why)) = (&log.fault, &why) {
                        log.fault = Some(format!("{place}: {why}"));
                    }
                    log.unreadable += 1;
                    if !log.has_request && log.unreadable >= MOST_UNREADABLE_LINES {
                        return Err(log.unknown_format(&self.formats));
                    }
                    unreadable.count += 1;
                    unreadable.reason = unreadable.reason.take().or(why);
                    if unreadable.examples.len() < EXAMPLES {
                        unreadable.examples.push(format!("{}:{}", log.file.name, log.file.line));
                    }
                }
                Err(LogLineError::Decompress(error)) if log.has_request => {
                    self.notes.broken_off.push(format!("{}: {error}", log.file.name));
                    self.end(index)?;
                }
                Err(LogLineError::Decompress(error)) => {
                    return Err(ReadError::Io { log: log.file.name.clone(), error });
                }
                Err(LogLineError::Read(error)) => return Err(error),
            }
        }
        Ok(())
    }

    /// Ends a log. An error if it has no requests and there is no other log; one of several may just have been rotated.
    fn end(&mut self, index: usize) -> Result<(), ReadError> {
        let log = self.logs.remove(index);
        if log.has_request {
            return Ok(());
        }
        self.notes.without_requests.push(log.file.name.clone());
        if !self.logs.is_empty() || self.has_requests {
            return Ok(());
        }
        Err(match log.file.line {
            0 => ReadError::Empty { log: log.file.name },
            _ => log.unknown_format(&self.formats),
        })
    }
}

impl OpenLog {
    /// Notes that a line with this time was read.
    fn come_to(&mut self, time: i64) {
        self.has_request = true;
        self.time = self.time.max(time.min(self.last_time));
        self.last_time = time;
    }

    fn unknown_format(&self, formats: &str) -> ReadError {
        let reason = self.fault.as_ref().map(|fault| format!(": {fault}")).unwrap_or_default();
        ReadError::UnknownFormat { log: self.file.name.clone(), reason, formats: formats.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn log(name: &str, bytes: &[u8]) -> InputLog {
        InputLog { name: name.to_owned(), reader: Box::new(io::Cursor::new(bytes.to_vec())), size: None }
    }

    fn reader(logs: &[&str]) -> LogReader {
        let logs = logs.iter().enumerate().map(|(nth, text)| log(&format!("log{nth}"), text.as_bytes()));
        LogReader::new(logs.collect(), ReadOptions::default()).unwrap()
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
        let reason = Some(
            "it differs from combined at column 1: expected ` ` after $remote_addr, found `started`"
                .to_owned(),
        );
        assert_eq!(notes.unreadable, UnreadableLines { count: 2, examples, reason });
        assert_eq!(notes.not_http, 1);
    }

    #[test]
    fn a_line_of_a_million_bytes_does_not_fill_the_memory() {
        let log = format!("{}\n{}", "x".repeat(3 << 20), combined("12:00:01", "/a"));
        assert_eq!(requests(reader(&[&log])).unwrap().len(), 1);
    }

    #[test]
    fn a_file_that_is_no_log_is_an_error() {
        for (log, words) in [
            ("", "log0 is empty"),
            ("a: b\nc: d\n", "log0 is not an access log that Tollgate can read"),
            (&"x\n".repeat(2_000), "log0 is not an access log that Tollgate can read"),
        ] {
            let error = requests(reader(&[log])).unwrap_err().to_string();
            assert!(error.starts_with(words), "{error}");
        }
        let error = requests(reader(&["a: b\n"])).unwrap_err().to_string();
        let words = "log0 is not an access log that Tollgate can read: line 1: it begins like no format that is tried. ";
        assert!(error.starts_with(words), "{error}");
        let text = combined("12:00:01", "/a").replace("HTTP", "HTTP\"");
        let error = requests(reader(&[&text])).unwrap_err().to_string();
        assert!(error.contains("line 1: it differs from traefik at column "), "{error}");
        for (bytes, words) in [
            (&b"\xfd7zXZ\0"[..], "a.log is compressed: decompress it by xzcat, and give -"),
            (b"\xff\xfea\0", "a.log is in UTF-16"),
        ] {
            let opened = LogReader::new(vec![log("a.log", bytes)], ReadOptions::default());
            let error = opened.map(|_| ()).unwrap_err().to_string();
            assert!(error.starts_with(words), "{error}");
        }
    }

    #[test]
    fn of_several_logs_one_may_be_empty() {
        let mut reader = reader(&["", &combined("12:00:01", "/a"), "# nothing yet\n"]);
        assert!(reader.next_request().unwrap().is_some() && reader.next_request().unwrap().is_none());
        let mut without = reader.into_notes().without_requests;
        without.sort_unstable();
        assert_eq!(without, ["log0", "log2"]);
    }

    fn gzip(text: &str) -> Vec<u8> {
        let mut zipped = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        io::Write::write_all(&mut zipped, text.as_bytes()).unwrap();
        zipped.finish().unwrap()
    }

    fn zstd(text: &str) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(text.as_bytes(), ruzstd::encoding::CompressionLevel::Fastest)
    }

    #[test]
    fn compressed_logs_are_read() {
        let line = combined("12:00:01", "/a");
        // A frame of zstd that has no data.
        let skippable = [&[0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
        for bytes in [
            // Two members in one file, as `cat` produces.
            gzip(&line).repeat(2),
            zstd(&line).repeat(2),
            [&skippable[..], &zstd(&line), &skippable, &zstd(&line)].concat(),
        ] {
            let reader = LogReader::new(vec![log("a", &bytes)], ReadOptions::default()).unwrap();
            assert_eq!(requests(reader).unwrap().len(), 2);
        }
    }

    #[test]
    fn lines_before_damaged_data_count() {
        let lines: String = (0..9_000)
            .map(|nth| combined(&format!("12:{:02}:{:02}", nth / 600, nth % 60), &format!("/{}", nth * 7)))
            .collect();
        for whole in [gzip(&lines), zstd(&lines)] {
            let broken = LogReader::new(vec![log("a.gz", &whole[..9])], ReadOptions::default()).unwrap();
            assert!(requests(broken).unwrap_err().to_string().starts_with("a.gz cannot be read: "));
            let cut = whole.len() * 3 / 4;
            let mut reader =
                LogReader::new(vec![log("a.gz", &whole[..cut])], ReadOptions::default()).unwrap();
            let mut count = 0;
            while reader.next_request().unwrap().is_some() {
                count += 1;
            }
            let notes = reader.into_notes();
            assert!((1_000..9_000).contains(&count), "{count}");
            assert_eq!((notes.broken_off.len(), notes.unreadable.count), (1, 0));
            assert!(notes.broken_off[0].starts_with("a.gz: "), "{:?}", notes.broken_off);
        }
    }

    #[test]
    fn prefixes_that_other_programs_add_to_a_line_are_left_out() {
        let line = |path| combined("12:00:01", path).trim_end().to_owned();
        let whole = [
            format!("\u{feff}{}\r\n", line("/0")),
            format!("\0\0\0{}\n", line("/1")),
            format!("Jul  3 12:00:01 host nginx[14389]: {}\n", line("/2")),
            format!("<190>Jul  3 12:00:01 host nginx: {}\n", line("/3")),
            format!("<190>1 2026-07-03T12:00:01Z host nginx 12 - - {}\n", line("/4")),
            format!("2026-07-03T12:00:01.25Z stdout F {}\n", line("/5")),
            format!("web-1  | {}\n", line("/6")),
            format!("2026-07-03T12:00:01.25Z {}\n", line("/7")),
            "# a comment\n\n   \n".to_owned(),
            format!("  {}", line("/8")),
        ]
        .concat();
        let mut reader = reader(&[&whole]);
        let mut paths = String::new();
        while let Some(request) = reader.next_request().unwrap() {
            paths += request.request.uri.path();
        }
        assert_eq!((paths.as_str(), reader.into_notes().unreadable.count), ("/0/1/2/3/4/5/6/7/8", 0));
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_no_obstacle() {
        let line = combined("12:00:01", "/a");
        let bytes = [b"\xff\0\xfe\n", line.as_bytes(), &line.as_bytes()[..60]].concat();
        let mut reader = LogReader::new(vec![log("a", &bytes)], ReadOptions::default()).unwrap();
        assert!(reader.next_request().unwrap().is_some() && reader.next_request().unwrap().is_none());
        assert_eq!(reader.into_notes().unreadable.count, 2);
    }

    #[test]
    fn each_log_may_have_a_format_of_its_own() {
        let one = combined("12:00:01", "/a");
        let other = r#"10.0.1.2:1 [03/Jul/2026:12:00:00.655] a b/c 1/0/3/6/9 200 2 - - ---- 1/1/1/1/0 0/0 "GET /b HTTP/1.1""#;
        let third = "#Fields: date time c-ip cs-method cs-uri-stem\n2026-07-03\t12:00:02\t::1\tGET\t/c\n";
        let found = requests(reader(&[&one, other, third])).unwrap();
        assert_eq!(found, [(0.655, "/b".into()), (1.0, "/a".into()), (2.0, "/c".into())]);
    }

    #[test]
    fn a_second_with_very_many_requests_is_not_kept_as_a_whole() {
        let count = MOST_OF_SECOND + 30_000;
        let log: String =
            (0..count).map(|_| combined("12:00:01", "/a")).collect::<String>() + &combined("12:00:02", "/b");
        let found = requests(reader(&[&log])).unwrap();
        assert_eq!(found.len(), count + 1);
        assert!(found.is_sorted_by_key(|(time, _)| *time));
        assert_eq!((found[1].0, found[count - 1].0, found[count].0), (1.000_003, 1.999_999, 2.0));
    }

    #[test]
    fn only_the_header_fields_that_are_wanted_are_kept() {
        let line = format!(r#"{} "ref" "curl/8""#, combined("12:00:01", "/a").trim_end());
        let wanted = HashSet::from([http::header::USER_AGENT]);
        let options = ReadOptions { headers: Some(wanted), ..ReadOptions::default() };
        let mut reader = LogReader::new(vec![log("a", line.as_bytes())], options).unwrap();
        let request = reader.next_request().unwrap().unwrap();
        assert_eq!(request.request.headers.keys().collect::<Vec<_>>(), [http::header::USER_AGENT]);
    }

    #[test]
    fn the_progress_is_told() {
        let text = combined("12:00:01", "/a");
        let input = InputLog { size: Some(text.len() as u64), ..log("a", text.as_bytes()) };
        let mut reader = LogReader::new(vec![input], ReadOptions::default()).unwrap();
        let progress = reader.progress();
        while reader.next_request().unwrap().is_some() {}
        assert_eq!(
            (progress.bytes(), progress.total, progress.requests()),
            (text.len() as u64, Some(text.len() as u64), 1)
        );
    }
}
