//! skeleton

/// What is written down of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Microseconds since the Unix epoch.
    pub time: i64,
    pub user: Option<compact_str::CompactString>,
    pub method: http::Method,
    pub path: compact_str::CompactString,
}
