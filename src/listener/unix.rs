//! Unix sockets in the file system: their access rights, and the removal of their files.

use std::{
    fs,
    io::{self, ErrorKind},
    os::unix::{
        fs::{FileTypeExt, MetadataExt, PermissionsExt, chown},
        net::{UnixDatagram, UnixListener},
    },
    path::{Path, PathBuf},
};

use nix::unistd::{Group, User};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::config::model::UnixSocket;

/// Connections that the kernel queues for a busy worker. Linux caps it at `net.core.somaxconn`.
pub(super) const BACKLOG: i32 = 4096;

/// Binds the socket. A file left behind by a process is replaced; a socket that is in use is not.
///
/// # Errors
/// The socket is in use, the file is not a socket, or the system refuses.
pub(super) fn bind(socket: &UnixSocket) -> io::Result<UnixListener> {
    let path = &socket.path;
    remove_stale(path)?;
    let listener = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    listener.set_nonblocking(true)?;
    listener.bind(&SockAddr::unix(path)?)?;
    // Clients can connect only after listen(2), when owner and mode are set.
    let ours = || set_access(socket).and_then(|()| listener.listen(BACKLOG));
    ours().inspect_err(|_| drop(fs::remove_file(path)))?;
    Ok(listener.into())
}

/// Gives the file the configured mode, owner and group.
///
/// # Errors
/// There is no such user or group, or the system refuses.
pub(super) fn set_access(socket: &UnixSocket) -> io::Result<()> {
    let UnixSocket { path, mode, owner, group } = socket;
    let (owner, group) = (owner.as_deref().map(user_id), group.as_deref().map(group_id));
    let (owner, group) = (owner.transpose()?, group.transpose()?);
    if owner.is_some() || group.is_some() {
        chown(path, owner, group)?;
    }
    if let Some(mode) = *mode {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            Err(io::Error::new(ErrorKind::AlreadyExists, "there is a file, and it is not a socket"))
        }
        Ok(_) => match is_abandoned(path) {
            true => fs::remove_file(path),
            // Permission to connect may be missing: the socket is in use all the same.
            false => Err(ErrorKind::AddrInUse.into()),
        },
    }
}

/// Whether no process has the socket open any more.
fn is_abandoned(path: &Path) -> bool {
    // A datagram socket never connects to a stream socket. The error says either that the type is wrong or that no
    // process listens. Such a probe takes no place in a listening process' queue, and never waits for one.
    let found = UnixDatagram::unbound().and_then(|probe| probe.connect(path));
    found.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

fn user_id(name: &str) -> io::Result<u32> {
    let found = || User::from_name(name).ok().flatten().map(|user| user.uid.as_raw());
    name.parse().ok().or_else(found).ok_or_else(|| io::Error::other(format!("there is no user {name:?}")))
}

fn group_id(name: &str) -> io::Result<u32> {
    let found = || Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw());
    name.parse().ok().or_else(found).ok_or_else(|| io::Error::other(format!("there is no group {name:?}")))
}

/// The file of a socket, to be removed when the process ends.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// Another process may have replaced the file.
    inode: u64,
}

impl SocketFile {
    /// `None`: there is no such file.
    pub(super) fn at(path: &Path) -> Option<Self> {
        Some(Self { path: path.to_owned(), inode: fs::symlink_metadata(path).ok()?.ino() })
    }

    /// Removes the file if no process has the socket open any more.
    pub(super) fn remove_if_abandoned(self) {
        if is_abandoned(&self.path) {
            self.remove();
        }
    }

    pub(super) fn remove(self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|metadata| metadata.ino() == self.inode)
            && let Err(error) = fs::remove_file(&self.path)
        {
            let file = self.path.display();
            tracing::warn!(%file, "the socket {file} can't be removed: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(path: &Path, mode: Option<u32>) -> UnixSocket {
        UnixSocket { path: path.to_owned(), mode, owner: None, group: None }
    }

    #[test]
    fn the_mode_is_the_one_that_is_set() {
        let directory = tempfile::tempdir().unwrap();
        for mode in [0o600, 0o660, 0o666] {
            let path = directory.path().join(format!("{mode:o}"));
            let _listener = bind(&socket(&path, Some(mode))).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, mode);
        }
    }

    #[test]
    fn a_file_left_behind_is_replaced_and_another_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let first = bind(&socket(&path, None)).unwrap();
        assert_eq!(bind(&socket(&path, None)).unwrap_err().kind(), ErrorKind::AddrInUse);
        drop(first);
        let _second = bind(&socket(&path, None)).unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "precious").unwrap();
        assert!(bind(&socket(&file, None)).is_err());
        assert_eq!(fs::read(&file).unwrap(), b"precious");
    }

    #[test]
    fn a_socket_whose_queue_is_full_is_in_use() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let address = SockAddr::unix(&path).unwrap();
        let listener = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        listener.bind(&address).unwrap();
        listener.listen(0).unwrap();
        let mut waiting = Vec::new();
        loop {
            let client = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
            client.set_nonblocking(true).unwrap();
            if client.connect(&address).is_err() {
                break;
            }
            waiting.push(client);
        }
        assert_eq!(bind(&socket(&path, None)).unwrap_err().kind(), ErrorKind::AddrInUse);
    }

    #[test]
    fn only_its_own_file_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let first = bind(&socket(&path, None)).unwrap();
        let (own, old) = (SocketFile::at(&path).unwrap(), SocketFile { path: path.clone(), inode: 1 });
        old.remove();
        assert!(path.exists());
        own.remove();
        assert!(!path.exists());
        drop(first);
    }

    #[test]
    fn a_file_is_abandoned_once_nobody_listens() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = bind(&socket(&path, None)).unwrap();
        SocketFile::at(&path).unwrap().remove_if_abandoned();
        assert!(path.exists());
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "nobody has connected");
        drop(listener);
        SocketFile::at(&path).unwrap().remove_if_abandoned();
        assert!(!path.exists());
    }

    #[test]
    fn an_unknown_owner_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let socket = UnixSocket { owner: Some("nobody-of-this-name".into()), ..socket(&path, None) };
        assert!(bind(&socket).unwrap_err().to_string().contains("no user \"nobody-of-this-name\""));
        assert!(!path.exists());
    }
}
