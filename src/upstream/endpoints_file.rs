//! A file with the endpoints of an upstream, which is read again when it changes.

use std::path::{Path, PathBuf};

use crate::{
    config::model::{Endpoint, EndpointsFile},
    file::{self, Reread, Unreadable, WatchedFile},
};

/// Why the endpoints in a file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum EndpointsFileError {
    /// It can't be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// Its content is invalid.
    #[error("{} lists no endpoints that can be used: {error}", .path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// The error in it.
        error: String,
    },
}

/// The endpoints in a file. They are kept until the file lists others that can be used.
#[derive(Debug)]
pub(super) struct ListedInFile {
    settings: EndpointsFile,
    reread: Reread<Vec<Endpoint>, 1>,
}

impl ListedInFile {
    pub(super) fn open(settings: &EndpointsFile) -> Result<Self, EndpointsFileError> {
        let file = file::open(&settings.path)?;
        let reread = Reread::new([file], |[file]| read(settings, file))?;
        Ok(Self { settings: settings.clone(), reread })
    }

    /// Reads the file again if it has changed. Returns whether it lists other endpoints.
    pub(super) fn refresh(&mut self) -> bool {
        let settings = &self.settings;
        self.reread.refresh(|[file]| read(settings, file))
    }

    pub(super) fn path(&self) -> &Path {
        &self.settings.path
    }

    pub(super) fn endpoints(&self) -> &[Endpoint] {
        self.reread.value()
    }
}

fn read(settings: &EndpointsFile, file: &WatchedFile) -> Result<Vec<Endpoint>, EndpointsFileError> {
    let wrong = |error| EndpointsFileError::Wrong { path: settings.path.clone(), error };
    (settings.read)(file.bytes()).map_err(wrong)
}
