//! The description of listening sockets that one process hands to the next, in the variable `TOLLGATE_HANDOVER`, beside
//! `LISTEN_FDS`.
//!
//! The address of a socket alone does not identify its listener: with port 0 in the configuration, the system chose the
//! port. `LISTEN_FDNAMES` can't identify it either, since its names have no colon.

use std::{env, io, os::fd::OwnedFd, path::Path};

use serde::{Deserialize, Serialize};

use super::{socket::ListenSocket, unix::SocketFile};

/// The variable's name. It remains in the environment of the new process, which sets its own for the next one.
pub const HANDOVER_VARIABLE: &str = "TOLLGATE_HANDOVER";

/// The purpose of a listening socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SocketRole {
    /// Serves clients.
    Clients,
    /// Serves the admin API.
    Admin,
}

/// The inherited descriptors: a connection to the old process, and then the listening sockets in this order. Another
/// version may have written it, so its format must not change, and unknown fields are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HandoverDescription {
    listeners: Vec<HandoverEntry>,
}

/// The sockets of one address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HandoverEntry {
    pub(super) role: SocketRole,
    /// As written in the configuration of the old process.
    pub(super) address: String,
    sockets: usize,
    /// Whether the sockets belong to a service manager. Earlier versions do not send this.
    #[serde(default)]
    pub(super) is_managed: bool,
}

impl HandoverDescription {
    /// `None` if no process has handed sockets over.
    pub(super) fn from_environment() -> Option<Self> {
        serde_json::from_str(&env::var(HANDOVER_VARIABLE).ok()?).ok()
    }

    /// The number of inherited descriptors.
    pub(super) fn descriptors(&self) -> usize {
        self.listeners.iter().fold(1, |sum, entry| sum.saturating_add(entry.sockets))
    }

    /// The entry of each socket.
    pub(super) fn entries(&self) -> impl Iterator<Item = &HandoverEntry> {
        self.listeners.iter().flat_map(|entry| std::iter::repeat_n(entry, entry.sockets))
    }
}

/// All listening sockets of the process, to be handed over to a new one. They stay open while this is kept, and clients
/// queue there even if no worker accepts.
#[derive(Debug, Default)]
pub struct ListeningSockets {
    entries: Vec<HandoverEntry>,
    sockets: Vec<OwnedFd>,
    /// Files of Unix sockets.
    files: Vec<SocketFile>,
    /// Files of Unix sockets that were handed to a new process, which may or may not serve on them.
    left_files: Vec<SocketFile>,
}

impl ListeningSockets {
    /// Adds the sockets of one configured address. `is_managed`: whether they belong to a service manager.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn add(
        &mut self,
        role: SocketRole,
        address: String,
        sockets: &[ListenSocket],
        is_managed: bool,
    ) -> io::Result<()> {
        for socket in sockets {
            self.sockets.push(socket.try_clone()?.into());
        }
        self.entries.push(HandoverEntry { role, address, sockets: sockets.len(), is_managed });
        Ok(())
    }

    /// Adds the file of a Unix socket, which this process has to remove.
    pub fn add_file(&mut self, path: &Path) {
        self.files.extend(SocketFile::at(path));
    }

    /// Closes the sockets after a new process has taken over. The files of Unix sockets are kept for now.
    pub fn leave(&mut self) {
        *self = Self { left_files: std::mem::take(&mut self.files), ..Self::default() };
    }

    /// Removes the files of Unix sockets on which the new process does not serve. To be called once no worker of this
    /// process accepts on them.
    pub fn remove_abandoned_files(self) {
        self.left_files.into_iter().for_each(SocketFile::remove_if_abandoned);
    }

    /// Closes the sockets when no other process takes over. The files of Unix sockets are removed.
    pub fn close(&mut self) {
        self.entries.clear();
        self.sockets.clear();
        self.files.drain(..).for_each(SocketFile::remove);
    }

    /// Duplicates of the sockets, and the value of [`HANDOVER_VARIABLE`] that describes them, for a process whose first
    /// inherited descriptor is a connection to this one.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn duplicate(&self) -> io::Result<(Vec<OwnedFd>, String)> {
        let sockets = self.sockets.iter().map(OwnedFd::try_clone).collect::<io::Result<_>>()?;
        let description = serde_json::to_string(&HandoverDescription { listeners: self.entries.clone() })?;
        Ok((sockets, description))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_socket_is_described() {
        let socket = |_| ListenSocket::Tcp(std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        let sockets: Vec<_> = (0..3).map(socket).collect();
        let mut listening = ListeningSockets::default();
        listening.add(SocketRole::Clients, "127.0.0.1:0".into(), &sockets[..2], true).unwrap();
        listening.add(SocketRole::Admin, "[::1]:9900".into(), &sockets[2..], false).unwrap();
        let (duplicates, description) = listening.duplicate().unwrap();
        let handed_over: HandoverDescription = serde_json::from_str(&description).unwrap();
        assert_eq!((duplicates.len(), handed_over.descriptors()), (3, 4));
        let entries: Vec<_> = handed_over
            .entries()
            .map(|entry| (entry.role, entry.address.as_str(), entry.is_managed))
            .collect();
        assert_eq!(
            entries[1..],
            [(SocketRole::Clients, "127.0.0.1:0", true), (SocketRole::Admin, "[::1]:9900", false)]
        );
    }

    #[test]
    fn fields_of_a_later_version_are_ignored() {
        let later = r#"{"version":2,"listeners":[{"role":"clients","address":"a","sockets":2,"tls":true}]}"#;
        let handed_over: HandoverDescription = serde_json::from_str(later).unwrap();
        assert_eq!(handed_over.descriptors(), 3);
    }
}
