//! What became of a request.

use std::{fmt, io};

use super::{
    origins::{ADDED, Received},
    standing,
};
use crate::harness::Reply;

/// Texts of configurations have this in them: a response with it is what the configuration says, and not a page of the
/// program's own.
pub const MARK: &str = "text-";

/// What a program did with a request, and what the client got.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub action: Action,
    /// Of the response, names in lower case.
    pub headers: Vec<(String, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// The connection ended without a response, or there was none.
    Closed(String),
    /// The program itself responds with 4xx or 5xx.
    Refused { status: u16, text: Option<String> },
    /// The program itself responds with 3xx.
    Redirected { status: u16, location: String },
    /// The program itself responds with 2xx.
    Answered { status: u16, body: String, content_type: Option<String> },
    /// A service got it.
    Forwarded { status: u16, received: Received, body: String },
}

impl Outcome {
    pub fn new(reply: io::Result<Reply>, received: Vec<Received>) -> Self {
        let reply = match (reply, received.is_empty()) {
            (Ok(reply), _) => reply,
            (Err(error), true) => {
                return Self { action: Action::Closed(error.to_string()), headers: Vec::new() };
            }
            // It was forwarded, whatever the client got.
            (Err(error), false) => Reply {
                status: 0,
                reason: error.to_string(),
                headers: Vec::new(),
                body: Vec::new(),
                trailers: Vec::new(),
            },
        };
        let status = reply.status;
        let body = reply.text();
        let text = Some(&body).filter(|body| body.contains(MARK)).cloned();
        let header = |name: &str| reply.header(name).map(str::to_owned);
        let action = match received.into_iter().next_back() {
            Some(received) => Action::Forwarded { status, received, body },
            None if status >= 400 => Action::Refused { status, text },
            None if (300..400).contains(&status) && status != 304 => {
                Action::Redirected { status, location: header("location").unwrap_or_default() }
            }
            None => Action::Answered { status, body, content_type: header("content-type") },
        };
        Self { action, headers: reply.headers }
    }

    /// The kind of action, as it is counted.
    pub fn kind(&self) -> &'static str {
        match &self.action {
            Action::Closed(_) | Action::Refused { .. } => "refused",
            Action::Redirected { .. } => "redirected",
            Action::Answered { .. } => "answered",
            Action::Forwarded { .. } => "forwarded",
        }
    }

    /// The status that the client got; 0: none.
    pub fn status(&self) -> u16 {
        match self.action {
            Action::Closed(_) => 0,
            Action::Refused { status, .. }
            | Action::Redirected { status, .. }
            | Action::Answered { status, .. }
            | Action::Forwarded { status, .. } => status,
        }
    }

    pub fn is_refused(&self) -> bool {
        self.kind() == "refused"
    }

    /// The values of a field of the response, sorted.
    pub fn values(&self, name: &str) -> Vec<&str> {
        sorted(&self.headers, name)
    }
}

/// The values of a field, sorted.
pub fn sorted<'h>(headers: &'h [(String, String)], name: &str) -> Vec<&'h str> {
    let named = headers.iter().filter(|(known, _)| known == name);
    let mut values: Vec<_> = named.map(|(_, value)| value.as_str()).collect();
    values.sort_unstable();
    values
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.action {
            Action::Closed(how) => write!(f, "closed: {how}")?,
            Action::Refused { status, text } => {
                write!(f, "refused: {status} {}", text.as_deref().unwrap_or(""))?;
            }
            Action::Redirected { status, location } => write!(f, "redirected: {status} to {location}")?,
            Action::Answered { status, body, content_type } => {
                write!(f, "answered: {status} {body:?} ({})", content_type.as_deref().unwrap_or("no type"))?;
            }
            Action::Forwarded { status, received, body } => {
                let Received { origin, method, target, headers, body_bytes } = received;
                write!(
                    f,
                    "forwarded: {status} {body:?} from {origin}: {method} {target} ({body_bytes} bytes)"
                )?;
                let is_shown = |name: &str| name == "host" || !standing::is_of_connection(name);
                for (name, value) in headers.iter().filter(|(name, _)| is_shown(name)) {
                    write!(f, " | {name}: {value}")?;
                }
            }
        }
        let is_origin_s = |name: &str| ADDED.iter().any(|(known, _)| *known == name);
        let compared = |name: &str| !standing::is_of_response(name) && !is_origin_s(name);
        for (name, value) in self.headers.iter().filter(|(name, _)| compared(name)) {
            write!(f, " || {name}: {value}")?;
        }
        Ok(())
    }
}
