//! The requests of one client in a period.

use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::{People, Signs, Who, paths::PathCounts, request_line::RequestLine, sketch::Sketch};
use crate::memory_budget::heap;

/// The requests of a client, and the upstream's responses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Requests that Tollgate denied.
    pub denied: u32,
    /// Requests with a response of an upstream.
    pub answered: u32,
    /// Responses with 401 or 403.
    pub refused: u32,
    /// Responses to requests that do not only read, and how many of them have 401 or 403.
    pub written: u32,
    pub refused_writes: u32,
    /// Number of seconds with a request, and the first and the last such second, since the Unix epoch.
    pub seconds: u32,
    pub(super) first: u32,
    pub(super) last: u32,
    /// Requests whose line was examined, and how many of them do not only read.
    pub(super) lines: u32,
    pub(super) writes: u32,
    pub(super) urls: Sketch,
    pub(super) paths: PathCounts,
    /// Shared apart from the counts, which earlier versions read as well.
    #[serde(skip)]
    pub(super) people: Option<Box<People>>,
}

impl Traffic {
    /// Adds a request that counts for `weight` of them: not every request of a flood is examined.
    pub(in crate::abuse) fn add_line(&mut self, line: &RequestLine<'_>, weight: u32) {
        let (path, url) = line.hashes();
        self.lines = self.lines.saturating_add(weight);
        self.writes = self.writes.saturating_add(if line.is_safe { 0 } else { weight });
        self.urls.add(url);
        self.paths.add(path, weight);
        if let Some(headers) = line.headers {
            self.add_signs(Signs::of(headers, line.path, line.is_logged), weight);
        }
    }

    /// Adds what the head of a request tells.
    pub(in crate::abuse) fn add_signs(&mut self, signs: Signs, weight: u32) {
        self.people.get_or_insert_default().add(signs, weight);
    }

    /// Notes that the last request of a tick came at this time, in microseconds since the Unix epoch.
    pub(in crate::abuse) fn add_time(&mut self, time: i64) {
        if let Some(people) = &mut self.people {
            people.add_time(time);
        }
    }

    /// The signs of people.
    pub(in crate::abuse) fn people(&self) -> Option<&People> {
        self.people.as_deref()
    }

    /// Replaces the signs of people.
    pub(in crate::abuse) fn set_people(&mut self, people: Option<People>) {
        self.people = people.map(Box::new);
    }

    /// Adds an upstream's response. `is_safe`: its request only reads.
    pub(in crate::abuse) fn add_response(&mut self, status: StatusCode, is_safe: bool) {
        let refused = is_refusal(status);
        for (count, is_one) in [
            (&mut self.answered, true),
            (&mut self.refused, refused),
            (&mut self.written, !is_safe),
            (&mut self.refused_writes, refused && !is_safe),
        ] {
            *count = count.saturating_add(u32::from(is_one));
        }
    }

    /// Notes that there was a request in this second.
    pub(in crate::abuse) fn add_second(&mut self, second: u32) {
        // Workers hand over one after the other.
        if second > self.last {
            self.seconds = self.seconds.saturating_add(1);
            self.first = if self.first == 0 { second } else { self.first.min(second) };
            self.last = second;
        }
    }

    /// Adds other instances' counts of the same period, which has the same seconds.
    pub(super) fn merge(&mut self, other: &Self) {
        self.add_requests(other);
        self.seconds = self.seconds.max(other.seconds);
    }

    /// Adds counts of an earlier or later period.
    pub(super) fn append(&mut self, other: &Self) {
        self.add_requests(other);
        self.seconds = self.seconds.saturating_add(other.seconds);
    }

    /// Subtracts requests that were added. Their times and URLs are kept.
    pub(super) fn subtract(&mut self, part: &Self) {
        for (count, part) in self.requests_with(part) {
            *count = count.saturating_sub(part);
        }
        self.paths.subtract(&part.paths);
    }

    fn add_requests(&mut self, other: &Self) {
        for (count, more) in self.requests_with(other) {
            *count = count.saturating_add(more);
        }
        self.first = match (self.first, other.first) {
            (0, first) | (first, 0) => first,
            (one, first) => one.min(first),
        };
        self.last = self.last.max(other.last);
        self.urls.merge(other.urls);
        self.paths.merge(&other.paths);
        if let Some(others) = &other.people {
            self.people.get_or_insert_default().merge(others);
        }
    }

    /// Each number of requests, with the number of `other`.
    fn requests_with(&mut self, other: &Self) -> [(&mut u32, u32); 7] {
        [
            (&mut self.denied, other.denied),
            (&mut self.answered, other.answered),
            (&mut self.refused, other.refused),
            (&mut self.written, other.written),
            (&mut self.refused_writes, other.refused_writes),
            (&mut self.lines, other.lines),
            (&mut self.writes, other.writes),
        ]
    }

    pub(super) fn trim(&mut self) {
        self.paths.trim();
    }

    /// All requests.
    pub(in crate::abuse) fn requests(&self) -> u32 {
        self.denied.saturating_add(self.answered)
    }

    /// The approximate number of different URLs; 621 is the maximum.
    pub(in crate::abuse) fn urls(&self) -> u32 {
        self.urls.count()
    }

    /// The share of the requests that do not only read.
    pub(in crate::abuse) fn write_share(&self) -> f64 {
        share(self.writes, self.lines)
    }

    /// The share of the upstreams' responses that are 401 or 403.
    pub(in crate::abuse) fn refused_share(&self) -> f64 {
        share(self.refused, self.answered)
    }

    /// The share of 401 and 403 among the responses to requests that do not only read.
    pub(in crate::abuse) fn refused_write_share(&self) -> f64 {
        share(self.refused_writes, self.written)
    }

    /// The hash of the path that was requested most, and its share of the requests.
    pub(in crate::abuse) fn top_path(&self) -> Option<(u32, f64)> {
        self.paths.top().map(|(path, requests)| (path, share(requests, self.lines)))
    }

    /// The average number of requests per URL.
    pub(in crate::abuse) fn requests_per_url(&self) -> f64 {
        f64::from(self.lines) / f64::from(self.urls().max(1))
    }

    /// Who seems to be behind the client.
    pub(in crate::abuse) fn who(&self) -> Who {
        let seconds = self.last.saturating_sub(self.first).saturating_add(1);
        let who = |people: &People| people.who(self.requests(), f64::from(seconds) / 60.0);
        self.people().map_or(Who::Unclear, who)
    }

    /// Requests per second, over the seconds with requests.
    pub(in crate::abuse) fn rate(&self) -> f64 {
        f64::from(self.requests()) / f64::from(self.seconds.max(1))
    }

    /// Requests per second, including breaks.
    pub(in crate::abuse) fn rate_with_breaks(&self) -> f64 {
        f64::from(self.requests()) / f64::from(self.last.saturating_sub(self.first).saturating_add(1))
    }

    /// Bytes on the heap.
    pub(super) fn bytes(&self) -> usize {
        self.paths.bytes() + self.people.as_ref().map_or(0, |_| heap::array::<People>(1))
    }
}

/// Whether this status says that the client is not who it claims to be, or is not allowed to do this.
pub fn is_refusal(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

fn share(part: u32, whole: u32) -> f64 {
    f64::from(part) / f64::from(whole.max(1))
}
