//! One log: its lines, decompressed, and the format in which they are.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use flate2::read::MultiGzDecoder;
use memchr::{memchr, memmem};
use ruzstd::decoding::{
    BlockDecodingStrategy, FrameDecoder,
    errors::{FrameDecoderError, ReadFrameHeaderError},
};

use super::{
    field::{Lack, LogLine},
    line_format::{LineFault, LineReader},
    template::FormatError,
    value::TimeCache,
};

/// Longer lines, in bytes, are unreadable.
const LONGEST_LINE: u64 = 1 << 20;
/// Bytes of a file read at a time.
const BUFFER: usize = 256 << 10;
/// What another program writes before a line is no longer than this.
const LONGEST_PREFIX: usize = 256;
const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
const BYTE_ORDER_MARK: &[u8] = &[0xef, 0xbb, 0xbf];
/// Magic numbers of other formats, and the programs that decompress them: xz and bzip2.
const COMPRESSED: [(&[u8], &str); 2] = [(b"\xfd7zXZ", "xzcat"), (b"BZh", "bzcat")];

/// A log to read.
pub struct InputLog {
    /// Its name as given by the operator.
    pub name: String,
    pub reader: Box<dyn Read + Send>,
    /// In bytes, compressed. `None`: unknown.
    pub size: Option<u64>,
}

impl InputLog {
    /// Opens a file, or standard input for `-`.
    ///
    /// # Errors
    /// The file can't be opened.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        if path == Path::new("-") {
            let name = "standard input".to_owned();
            return Ok(Self { name, reader: Box::new(io::stdin()), size: None });
        }
        let name = path.display().to_string();
        match File::open(path) {
            Ok(file) => {
                // A pipe has no size.
                let size = file.metadata().ok().filter(std::fs::Metadata::is_file).map(|file| file.len());
                Ok(Self { name, reader: Box::new(file), size })
            }
            Err(error) => Err(ReadError::Io { log: name, error }),
        }
    }
}

/// Why a log can't be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("{log} cannot be read: {error}")]
    Io { log: String, error: io::Error },
    #[error("{log} is compressed: decompress it by {program}, and give - to read the output")]
    Compressed { log: String, program: &'static str },
    #[error("{log} is in UTF-16: convert it to UTF-8, for example by iconv -f utf-16 -t utf-8")]
    Utf16 { log: String },
    /// `reason`: why its first line can't be read. `formats`: those that were tried.
    #[error(
        "{log} is not an access log that Tollgate can read{reason}. Formats that were tried: {formats}. For another one, give \
         --format or --nginx-conf"
    )]
    UnknownFormat { log: String, reason: String, formats: String },
    #[error("{log} is empty")]
    Empty { log: String },
    #[error(transparent)]
    Format(#[from] FormatError),
    #[error("the thread that reads the logs has ended: {0}")]
    Thread(String),
}

/// A log that is being read.
pub(super) struct LogFile {
    pub(super) name: String,
    reader: Box<dyn BufRead + Send>,
    is_compressed: bool,
    /// A line of which the reader's buffer has only a part.
    split: Vec<u8>,
    /// The number of the last line.
    pub(super) line: u64,
    formats: LineFormats,
}

/// The formats in which lines may be.
struct LineFormats {
    readers: Vec<LineReader>,
    /// The one of the last line that was read.
    current: usize,
    /// Whether a line was read.
    is_known: bool,
    /// Whether another program, such as syslog, wrote something before that line.
    has_prefix: bool,
    times: TimeCache,
}

/// Why a line has no request.
pub(super) enum NoRequest {
    /// The client sent something other than HTTP.
    NotHttp,
    /// `why`: in words, if they were asked for.
    Unreadable { why: Option<String> },
}

/// A line that is neither empty nor a comment.
pub(super) type Line = Result<LogLine, NoRequest>;

/// Why there is no further line.
pub(super) enum LogLineError {
    Read(ReadError),
    /// The compressed data breaks off or is damaged.
    Decompress(io::Error),
}

impl LogFile {
    /// `readers`: of the possible formats, of which there is at least one. `read`: the number of bytes read, compressed.
    pub(super) fn open(
        log: InputLog,
        readers: Vec<LineReader>,
        read: Arc<AtomicU64>,
    ) -> Result<Self, ReadError> {
        let InputLog { name, reader, size: _ } = log;
        let mut reader = BufReader::with_capacity(BUFFER, Counted { reader, read });
        let begin = match reader.fill_buf() {
            Ok(begin) => begin,
            Err(error) => return Err(ReadError::Io { log: name, error }),
        };
        if let Some((_, program)) = COMPRESSED.iter().find(|(magic, _)| begin.starts_with(magic)) {
            return Err(ReadError::Compressed { log: name, program });
        }
        if begin.starts_with(&[0xff, 0xfe]) || begin.starts_with(&[0xfe, 0xff]) {
            return Err(ReadError::Utf16 { log: name });
        }
        let is_gzip = begin.starts_with(GZIP);
        let is_zstd = begin.starts_with(ZSTD) || is_skippable(begin);
        let reader: Box<dyn BufRead + Send> = if is_gzip {
            Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(reader)))
        } else if is_zstd {
            Box::new(BufReader::with_capacity(BUFFER, ZstdReader::new(reader)))
        } else {
            Box::new(reader)
        };
        let formats = LineFormats {
            readers,
            current: 0,
            is_known: false,
            has_prefix: false,
            times: TimeCache::default(),
        };
        Ok(Self { name, reader, is_compressed: is_gzip || is_zstd, split: Vec::new(), line: 0, formats })
    }

    /// Reads the next line that is neither empty nor a comment. `None` at the end. `explain`: whether to say why it is
    /// unreadable.
    ///
    /// # Errors
    /// The log can't be read further.
    pub(super) fn next_line(&mut self, explain: bool) -> Result<Option<Line>, LogLineError> {
        loop {
            let Self { name, reader, is_compressed, split, line: number, formats } = self;
            let failed = |error| match *is_compressed {
                true => LogLineError::Decompress(error),
                false => LogLineError::Read(ReadError::Io { log: name.clone(), error }),
            };
            let available = reader.fill_buf().map_err(failed)?;
            if available.is_empty() {
                return Ok(None);
            }
            *number += 1;
            let found = if let Some(end) = memchr(b'\n', available) {
                let found = formats.read(&available[..end], *number == 1, explain);
                reader.consume(end + 1);
                found
            } else {
                split.clear();
                reader.by_ref().take(LONGEST_LINE).read_until(b'\n', split).map_err(failed)?;
                if split.len() as u64 == LONGEST_LINE && !split.ends_with(b"\n") {
                    reader.skip_until(b'\n').map_err(failed)?;
                    let why = || format!("it is longer than {LONGEST_LINE} bytes");
                    Some(Err(NoRequest::Unreadable { why: explain.then(why) }))
                } else {
                    formats.read(split, *number == 1, explain)
                }
            };
            if found.is_some() {
                return Ok(found);
            }
        }
    }
}

impl LineFormats {
    /// Reads a line, with its end or without. `None`: it is empty or a comment.
    fn read(&mut self, line: &[u8], is_first: bool, explain: bool) -> Option<Line> {
        let line = if is_first { line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line) } else { line };
        // A crash may leave zeros where a line was to be written.
        let written = line.iter().position(|&byte| byte != 0)?;
        let line = line[written..].trim_ascii();
        if line.is_empty() {
            return None;
        }
        if line.starts_with(b"#") {
            if let Some(named) = self.readers.iter_mut().position(|reader| reader.names_fields(line)) {
                self.current = named;
            }
            return None;
        }
        Some(self.read_in_any(line).map_err(|(reader, fault)| match fault {
            LineFault::Lack(Lack::Http) => NoRequest::NotHttp,
            fault => {
                let why = || Some(self.readers.get(reader)?.describe(fault, line));
                NoRequest::Unreadable { why: explain.then(why).flatten() }
            }
        }))
    }

    /// Reads a line in the format of the last one, or in any other.
    ///
    /// # Errors
    /// The reader of the format that the line is most probably in, and why it can't be read.
    fn read_in_any(&mut self, line: &[u8]) -> Result<LogLine, (usize, LineFault)> {
        let mut closest = None;
        for has_prefix in [self.has_prefix, !self.has_prefix] {
            let Some(line) = (if has_prefix { without_prefix(line) } else { Some(line) }) else { continue };
            let others = (0..self.readers.len()).filter(|nth| *nth != self.current);
            for nth in std::iter::once(self.current).chain(others) {
                let Some(reader) = self.readers.get_mut(nth) else { continue };
                match reader.read(line, &mut self.times) {
                    Ok(line) => {
                        (self.current, self.has_prefix, self.is_known) = (nth, has_prefix, true);
                        return Ok(line);
                    }
                    Err(fault @ LineFault::Lack(Lack::Http)) => return Err((nth, fault)),
                    Err(fault) if closest.is_none() && (self.is_known || reader.is_alike(fault)) => {
                        closest = Some((nth, fault));
                    }
                    Err(fault) if self.readers.len() == 1 => closest = closest.or(Some((nth, fault))),
                    Err(_) => {}
                }
            }
        }
        Err(closest.unwrap_or((self.current, LineFault::Unlike)))
    }
}

/// The line without what syslog, a container runtime, `docker compose logs` or `kubectl logs --timestamps` writes before
/// it. `None`: there is nothing of that.
fn without_prefix(line: &[u8]) -> Option<&[u8]> {
    let begin = &line[..line.len().min(LONGEST_PREFIX)];
    let behind = |text: &[u8]| memmem::find(begin, text).map(|at| &line[at + text.len()..]);
    if begin.starts_with(b"<") && memmem::find(begin, b">1 ").is_some_and(|at| at <= 4) {
        // RFC 5424, without structured data: `<165>1 TIME HOST PROGRAM PROCESS ID - …`
        return line.splitn(8, |&byte| byte == b' ').nth(7);
    }
    if let Some(rest) = behind(b" stdout F ").or_else(|| behind(b" stderr F ")) {
        return Some(rest);
    }
    // `Jul  3 12:00:01 host haproxy[14389]: …`
    if let Some(at) = memmem::find(begin, b": ")
        && begin[..at].last().is_some_and(|last| last.is_ascii_alphanumeric() || *last == b']')
    {
        return Some(&line[at + 2..]);
    }
    // `web-1  | …`
    if let Some(rest) = behind(b" | ") {
        return Some(rest);
    }
    let (first, rest) = line.split_at_checked(memchr(b' ', begin)? + 1)?;
    (first.contains(&b'T') && first.ends_with(b"Z ")).then_some(rest)
}

/// Counts the bytes that are read.
struct Counted {
    reader: Box<dyn Read + Send>,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// Decompresses all frames of zstd data.
struct ZstdReader<R> {
    source: R,
    decoder: FrameDecoder,
}

impl<R: BufRead> ZstdReader<R> {
    fn new(source: R) -> Self {
        Self { source, decoder: FrameDecoder::new() }
    }
}

impl<R: BufRead> Read for ZstdReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.decoder.can_collect() == 0 {
            if !self.decoder.is_finished() {
                let one_block = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.source, one_block).map_err(io::Error::other)?;
                continue;
            }
            if self.source.fill_buf()?.is_empty() {
                return Ok(0);
            }
            match self.decoder.reset(&mut self.source) {
                Ok(()) => {}
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    io::copy(&mut self.source.by_ref().take(length.into()), &mut io::sink())?;
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        self.decoder.read(buffer)
    }
}

/// Whether it is a frame of zstd without data.
fn is_skippable(begin: &[u8]) -> bool {
    matches!(begin, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
}
