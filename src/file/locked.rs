//! A file that several processes change: one after the other, and each change all or nothing.

use std::{
    fs::{self, File, Metadata, OpenOptions, TryLockError},
    io::{self, ErrorKind},
    os::unix::fs::{MetadataExt, OpenOptionsExt, fchown},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use nix::errno::Errno;

use super::{FileVersion, read};

/// How long another process may hold the lock.
const LOCK_WAIT: Duration = Duration::from_secs(10);
/// How often a lock is tried that another process holds.
const LOCK_RETRY: Duration = Duration::from_millis(10);
/// Longest chain of symbolic links, as Linux follows.
const MAX_LINKS: usize = 40;

/// A file that no other process changes in this way until this is dropped.
///
/// The lock is on the directory, since the file itself is replaced by each change, and may not be there yet.
#[derive(Debug)]
pub struct LockedFile {
    path: PathBuf,
    directory: File,
}

impl LockedFile {
    /// Locks the file at `path`, or the file that a symbolic link there leads to. Blocks while another process holds
    /// the lock.
    ///
    /// # Errors
    /// Its directory can't be read, or another process holds the lock for longer than 10 seconds.
    pub fn open(path: &Path) -> io::Result<Self> {
        let path = behind_links(path)?;
        let directory = File::open(directory_of(&path))?;
        let give_up = Instant::now() + LOCK_WAIT;
        loop {
            match directory.try_lock() {
                Ok(()) => return Ok(Self { path, directory }),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) if Instant::now() < give_up => thread::sleep(LOCK_RETRY),
                Err(TryLockError::WouldBlock) => {
                    let words = format!("another process has locked its directory for {LOCK_WAIT:?}");
                    return Err(io::Error::new(ErrorKind::TimedOut, words));
                }
            }
        }
    }

    /// The path of the file itself, which is not a symbolic link.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the file by the output of `write`. Readers find the whole old file or the whole new one, even after a
    /// power failure. The new file has the owner and the mode of the old one; a user who is not root may only be able
    /// to keep its group. `mode` is for a file that is not there yet; the umask is subtracted.
    ///
    /// # Errors
    /// `write` fails, the path is not that of a regular file, or the new file can't be written. The old one is left as
    /// it is.
    pub fn replace(&self, mode: u32, write: impl FnOnce(&File) -> io::Result<()>) -> io::Result<FileVersion> {
        let replaced = self.metadata()?;
        let temporary = self.path.with_file_name(format!(".tollgate-{:016x}", fastrand::u64(..)));
        let mode = if replaced.is_some() { 0o600 } else { mode };
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
        let written = write(&file).and_then(|()| {
            if let Some(replaced) = &replaced {
                keep_identity(&file, replaced)?;
            }
            file.sync_all()?;
            let version = FileVersion::from_metadata(&file.metadata()?);
            fs::rename(&temporary, &self.path)?;
            Ok(version)
        });
        let version = written.inspect_err(|_| drop(fs::remove_file(&temporary)))?;
        // A power failure does not undo the new name.
        self.directory.sync_all()?;
        Ok(version)
    }

    /// The metadata of the file, if there is one.
    fn metadata(&self) -> io::Result<Option<Metadata>> {
        match fs::metadata(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
            Ok(metadata) => read::check_is_file(metadata.file_type()).map(|()| Some(metadata)),
        }
    }
}

/// Gives a new file the owner and the mode of the one that it replaces.
fn keep_identity(file: &File, replaced: &Metadata) -> io::Result<()> {
    let (owner, group) = (Some(replaced.uid()), Some(replaced.gid()));
    // Only root can change the owner. Others can keep the group, if they are in it.
    let _not_permitted = fchown(file, owner, group).or_else(|_| fchown(file, None, group));
    file.set_permissions(replaced.permissions())
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Follows symbolic links, also to a file that is not there yet.
fn behind_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..=MAX_LINKS {
        match fs::read_link(&path) {
            Ok(target) => path = directory_of(&path).join(target),
            // It is not a link, or not there.
            Err(_) => return Ok(path),
        }
    }
    Err(Errno::ELOOP.into())
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        os::unix::fs::{PermissionsExt, symlink},
    };

    use super::*;

    fn replace(path: &Path, text: &str) -> io::Result<FileVersion> {
        LockedFile::open(path)?.replace(0o640, |mut file| file.write_all(text.as_bytes()))
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_file_is_made_and_replaced_behind_its_links() {
        let directory = tempfile::tempdir().unwrap();
        let [file, link, other] = ["file", "link", "other"].map(|name| directory.path().join(name));
        symlink("link", &other).unwrap();
        symlink(&file, &link).unwrap();
        let version = replace(&other, "one").unwrap();
        assert_eq!(FileVersion::of(&file), Some(version));
        assert_eq!((fs::read_to_string(&link).unwrap().as_str(), mode(&file) & !0o640), ("one", 0));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o604)).unwrap();
        assert_ne!(replace(&link, "two").unwrap(), version);
        assert_eq!((fs::read_to_string(&other).unwrap().as_str(), mode(&file)), ("two", 0o604));
        let failed = LockedFile::open(&file).unwrap().replace(0o600, |mut file| {
            file.write_all(b"three")?;
            Err(io::Error::other("no"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "no");
        assert_eq!(fs::read_to_string(&file).unwrap(), "two");
        symlink("loop", directory.path().join("loop")).unwrap();
        assert!(replace(&directory.path().join("loop"), "").is_err());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 4, "nothing else is left");
        let told = replace(directory.path(), "").unwrap_err().to_string();
        assert_eq!(told, "it is a directory, not a file");
    }

    #[test]
    fn changes_at_the_same_time_follow_each_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("count");
        fs::write(&path, "0").unwrap();
        let add = || {
            let locked = LockedFile::open(&path).unwrap();
            let count: u32 = fs::read_to_string(locked.path()).unwrap().parse().unwrap();
            locked.replace(0o600, |mut file| write!(file, "{}", count + 1)).unwrap();
        };
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..25).for_each(|_| add()));
            }
        });
        assert_eq!(fs::read_to_string(&path).unwrap(), "200");
    }
}
