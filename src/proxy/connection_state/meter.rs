//! The progress of the messages on a client's connection.

use std::{cell::Cell, rc::Rc};

use http::Version;

/// How far the request and the response of one connection, or of one stream, have got.
#[derive(Debug)]
pub struct MessageMeter {
    /// The number of requests that have begun.
    requests: Cell<u64>,
    /// Whether the response to the last one ends with the connection: to HTTP/1.0, without a length.
    ends_with_connection: Cell<bool>,
    /// The request's body was not read to its end.
    body_unread: Cell<bool>,
    /// A response has begun, and no write of it was blocked yet.
    new_response: Cell<bool>,
    /// A response has begun, and not all of its bytes are written yet.
    response_pending: Cell<bool>,
    write_blocked: Cell<bool>,
    /// A body that broke off waits until the client can be written to.
    awaits_writes: Cell<bool>,
    /// Bytes of requests' bodies that were passed on, for all streams of the connection.
    received: Rc<Cell<u64>>,
    /// Bytes of responses' bodies that were passed on.
    sent: Cell<u64>,
}

impl MessageMeter {
    pub(super) fn new(received: Rc<Cell<u64>>) -> Self {
        Self {
            requests: Cell::new(0),
            ends_with_connection: Cell::new(false),
            body_unread: Cell::new(false),
            new_response: Cell::new(false),
            response_pending: Cell::new(false),
            write_blocked: Cell::new(false),
            awaits_writes: Cell::new(false),
            received,
            sent: Cell::new(0),
        }
    }

    /// A request of this version has arrived, with a body if `has_body`.
    pub(in crate::proxy) fn begin_request(&self, version: Version, has_body: bool) {
        self.requests.set(self.requests.get() + 1);
        self.ends_with_connection.set(version == Version::HTTP_10);
        self.body_unread.set(has_body);
    }

    /// The number of the last request.
    pub(in crate::proxy) fn request_number(&self) -> u64 {
        self.requests.get()
    }

    /// The body of the last request was read to its end.
    pub(in crate::proxy) fn body_was_read(&self) {
        self.body_unread.set(false);
    }

    /// Whether part of the request's body is still unread.
    pub fn is_body_unread(&self) -> bool {
        self.body_unread.get()
    }

    /// Counts bytes of a request's body that were passed on.
    pub(in crate::proxy) fn add_received(&self, bytes: u64) {
        self.received.set(self.received.get() + bytes);
    }

    /// Counts bytes of a response's body that were passed on.
    pub(in crate::proxy) fn add_sent(&self, bytes: u64) {
        self.sent.set(self.sent.get() + bytes);
    }

    /// Bytes of responses' bodies that were passed on.
    pub fn sent(&self) -> u64 {
        self.sent.get()
    }

    /// A response begins, whose length is announced if `has_length`.
    pub(in crate::proxy) fn begin_response(&self, has_length: impl FnOnce() -> bool) {
        if self.ends_with_connection.get() {
            self.ends_with_connection.set(!has_length());
        }
        self.new_response.set(true);
        self.response_pending.set(true);
    }

    /// All bytes of the response are written.
    pub(super) fn end_response(&self) {
        self.response_pending.set(false);
    }

    /// Whether a response has begun, and not all of its bytes are written yet. Bytes written while this is false are
    /// hyper's own messages.
    pub fn is_response_pending(&self) -> bool {
        self.response_pending.get()
    }

    /// Whether the client would take the end of the connection for the end of the response: an HTTP/1.0 response of
    /// unknown length has no other end (RFC 9112, 6.3).
    pub fn is_end_of_response(&self) -> bool {
        self.ends_with_connection.get() && self.response_pending.get()
    }

    /// Whether a response has begun since the last call.
    pub fn take_new_response(&self) -> bool {
        self.new_response.replace(false)
    }

    /// Sets whether the client has to read before more can be written.
    pub fn set_write_blocked(&self, blocked: bool) {
        self.write_blocked.set(blocked);
    }

    /// Whether a body waits until the client has read. Once: it is to be asked again then.
    pub fn take_awaits_writes(&self) -> bool {
        self.awaits_writes.take()
    }

    /// Notes that a body waits until the client has read.
    pub(in crate::proxy) fn await_writes(&self) {
        self.awaits_writes.set(true);
    }

    /// Whether the client has to read before more can be written.
    pub fn is_write_blocked(&self) -> bool {
        self.write_blocked.get()
    }
}
