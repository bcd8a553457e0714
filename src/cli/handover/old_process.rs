//! The new process' side: the process that passed its sockets on.

use std::{
    fmt::Display,
    io::{self, BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    time::Duration,
};

use zeroize::Zeroizing;

use super::messages::{FAILED, READY, SESSIONS, TAKE_OVER};
use crate::app::SessionKeys;

/// Maximum time for a reply of the old process.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// The process from which this one takes over, if any.
#[derive(Debug)]
pub(in crate::cli) struct OldProcess(Option<UnixStream>);

impl OldProcess {
    /// `channel`: the channel to it.
    pub(in crate::cli) fn new(channel: Option<UnixStream>) -> Self {
        Self(channel)
    }

    pub(in crate::cli) fn none() -> Self {
        Self(None)
    }

    pub(in crate::cli) fn is_there(&self) -> bool {
        self.0.is_some()
    }

    /// Receives the keys of its TLS sessions. To be called first, and once.
    pub(in crate::cli) fn sessions(&self) -> Vec<SessionKeys> {
        let Some(channel) = &self.0 else { return Vec::new() };
        read_line(channel)
            .map_err(|error| error.to_string())
            .and_then(|line| {
                let line = Zeroizing::new(line);
                let sessions = line.strip_prefix(SESSIONS).ok_or("the old process has not sent them")?;
                serde_json::from_str(sessions).map_err(|error| error.to_string())
            })
            .unwrap_or_else(|error| {
                tracing::warn!("TLS sessions of the old process can't be resumed: {error}");
                Vec::new()
            })
    }

    /// Reports why this process can't serve, so that the old one keeps serving.
    pub(in crate::cli) fn failed(&self, reason: impl Display) {
        let reason = reason.to_string().replace(['\r', '\n'], " ");
        if let Some(mut channel) = self.0.as_ref()
            && let Err(error) = writeln!(channel, "{FAILED}{reason}")
        {
            tracing::warn!("the old process can't be reached: {error}");
        }
    }

    /// Reports that clients are served, and waits until the old process has stopped accepting. Keeps serving even
    /// without a reply.
    pub(in crate::cli) fn ready(self) {
        let Some(channel) = self.0 else { return };
        match exchange(&channel) {
            Ok(reply) if reply.trim_end() == TAKE_OVER => {
                tracing::info!("this process took over from the old process");
            }
            Ok(_) => tracing::warn!("the old process ended without an answer"),
            Err(error) => tracing::warn!("the old process does not answer: {error}"),
        }
    }
}

fn exchange(mut channel: &UnixStream) -> io::Result<String> {
    writeln!(channel, "{READY}")?;
    read_line(channel)
}

/// Reads the next line. The other side sends no more before a reply, so the buffer loses nothing.
fn read_line(channel: &UnixStream) -> io::Result<String> {
    channel.set_read_timeout(Some(REPLY_TIMEOUT))?;
    let mut line = String::new();
    BufReader::new(channel).read_line(&mut line)?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_line() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        OldProcess::new(Some(theirs)).failed("line 1\nline 2");
        let mut message = String::new();
        BufReader::new(ours).read_line(&mut message).unwrap();
        assert_eq!(message, "failed: line 1 line 2\n");
    }

    #[test]
    fn an_old_process_that_is_gone_is_not_waited_for() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(ours);
        OldProcess::new(Some(theirs)).ready();
    }
}
