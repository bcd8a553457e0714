//! The new process' side: the process that handed its sockets over.

use std::{
    fmt::Display,
    io::{self, BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    time::Duration,
};

use zeroize::Zeroizing;

use super::{FAILED, READY, SESSIONS, TAKE_OVER};
use crate::app::SessionKeys;

/// How long the old process may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// The process that this one takes over from, if there is one.
#[derive(Debug)]
pub(in crate::cli) struct OldProcess(Option<UnixStream>);

impl OldProcess {
    /// At the other end of `channel`.
    pub(in crate::cli) fn new(channel: Option<UnixStream>) -> Self {
        Self(channel)
    }

    /// Nobody handed anything over.
    pub(in crate::cli) fn none() -> Self {
        Self(None)
    }

    pub(in crate::cli) fn is_there(&self) -> bool {
        self.0.is_some()
    }

    /// The keys of its TLS sessions. To be called first, and once.
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

    /// Says why this process can't serve, so that the old one goes on.
    pub(in crate::cli) fn failed(&self, reason: impl Display) {
        let reason = reason.to_string().replace(['\r', '\n'], " ");
        if let Some(mut channel) = self.0.as_ref()
            && let Err(error) = writeln!(channel, "{FAILED}{reason}")
        {
            tracing::warn!("the old process can't be reached: {error}");
        }
    }

    /// Says that clients are served, and waits until the old process has left all to this one. If it does not answer,
    /// this one goes on all the same: somebody has to.
    pub(in crate::cli) fn ready(self) {
        let Some(channel) = self.0 else { return };
        match exchange(&channel) {
            Ok(answer) if answer.trim_end() == TAKE_OVER => {
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

/// The next line. Nothing is sent behind it before it is answered.
fn read_line(channel: &UnixStream) -> io::Result<String> {
    channel.set_read_timeout(Some(ANSWER))?;
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
        let mut said = String::new();
        BufReader::new(ours).read_line(&mut said).unwrap();
        assert_eq!(said, "failed: line 1 line 2\n");
    }

    #[test]
    fn an_old_process_that_is_gone_is_not_waited_for() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(ours);
        OldProcess::new(Some(theirs)).ready();
    }
}
