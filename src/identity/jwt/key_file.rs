//! A key file, reread when it changes.

use std::{io, path::PathBuf, sync::Arc};

use parking_lot::{Mutex, RwLock};

use super::CurrentKeys;
use crate::{
    file::WatchedFile,
    jwt_keys::JwtAlgorithm,
    jwt_keys::{JwtKeys, KeyError},
};

/// Keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UnusableKeys {
    #[error("the keys in {} can't be used: it {reason}", .path.display())]
    File { path: PathBuf, reason: KeyFileError },
    /// Only for a reload: without one, there are none to go on with.
    #[error("the keys of {set} can't be fetched: {reason}")]
    Set { set: String, reason: String },
    #[error("a token has no keys")]
    None,
    #[error("can't start a thread for the keys of a provider: {0}")]
    Thread(#[from] io::Error),
}

/// Why a key file cannot be used, as the end of a sentence.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    #[error(transparent)]
    Wrong(#[from] KeyError),
}

/// A key file and its keys.
pub(super) struct KeyFile {
    algorithm: Option<JwtAlgorithm>,
    current: RwLock<CurrentKeys>,
    source: Mutex<KeyFileSource>,
}

struct KeyFileSource {
    file: WatchedFile,
    /// The last error that was logged, so that it is logged once.
    logged_error: Option<String>,
}

impl KeyFile {
    /// Reads the keys at `path`.
    pub(super) fn open(path: PathBuf, algorithm: Option<JwtAlgorithm>) -> Result<Self, UnusableKeys> {
        let opened = WatchedFile::open(path.clone()).map_err(KeyFileError::from);
        match opened.and_then(|file| Ok((JwtKeys::read(file.bytes(), algorithm)?, file))) {
            Ok((keys, file)) => {
                let current = RwLock::new(CurrentKeys { keys: Arc::new(keys), generation: 0 });
                let source = Mutex::new(KeyFileSource { file, logged_error: None });
                Ok(Self { algorithm, current, source })
            }
            Err(reason) => Err(UnusableKeys::File { path, reason }),
        }
    }

    /// The current keys.
    pub(super) fn current(&self) -> CurrentKeys {
        self.current.read().clone()
    }

    /// Rereads the file if it has changed. Blocks: not for a worker's thread.
    pub(super) fn reload_if_changed(&self) {
        let mut source = self.source.lock();
        match source.file.refresh() {
            Ok(true) => {
                let keys = JwtKeys::read(source.file.bytes(), self.algorithm);
                self.replace(keys.map_err(KeyFileError::from), &mut source);
            }
            Ok(false) if source.logged_error.is_some() => {
                if JwtKeys::read(source.file.bytes(), self.algorithm).is_ok() {
                    source.logged_error = None;
                    let file = source.file.path().display();
                    tracing::info!(%file, "the JWT key file {file} is readable again");
                }
            }
            Ok(false) => {}
            Err(error) => self.replace(Err(error.into()), &mut source),
        }
    }

    fn replace(&self, keys: Result<JwtKeys, KeyFileError>, source: &mut KeyFileSource) {
        match keys {
            Ok(keys) => {
                let file = source.file.path().display();
                // At startup, the configuration check warns about them.
                for ignored in keys.ignored() {
                    tracing::warn!(%file, "of the JWT keys in {file}, {ignored}");
                }
                let mut current = self.current.write();
                current.keys = Arc::new(keys);
                current.generation += 1;
                source.logged_error = None;
                tracing::info!(%file, "the JWT keys of {file} were reloaded");
            }
            Err(reason) => {
                let logged_error = reason.to_string();
                if source.logged_error.as_ref() != Some(&logged_error) {
                    let file = source.file.path().display();
                    tracing::warn!(%file, "the previous JWT keys stay in use ({file}): the file {logged_error}");
                    source.logged_error = Some(logged_error);
                }
            }
        }
    }
}
