//! The file of API keys, which is reread when it changes.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use parking_lot::Mutex;

use crate::{
    api_keys::{ApiKey, ApiKeys},
    config::model::{Config, KeysFileRules},
    file::{self, Reread, Unreadable, WatchedFile},
    limit::{Clock, WallClock},
};

const REREAD_INTERVAL: Duration = Duration::from_secs(1);

/// Why the file of API keys can't be used.
#[derive(Debug, thiserror::Error)]
pub enum KeysFileError {
    /// It can't be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// Its content is wrong.
    #[error("{} lists no API keys that can be used: {error}", .path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// The error in it.
        error: String,
    },
}

/// The file of one configuration.
pub(super) struct KeysFile {
    rules: KeysFileRules,
    source: Mutex<KeysSource>,
}

struct KeysSource {
    reread: Reread<Vec<Arc<ApiKey>>, 1>,
    is_in_force: bool,
}

impl KeysFile {
    /// Reads the file that `config` names. `None`: it names none.
    ///
    /// # Errors
    /// It can't be used.
    pub(super) fn open(config: &Config) -> Result<Option<Self>, KeysFileError> {
        let Some(path) = config.api_keys.as_ref().and_then(|settings| settings.file.as_ref()) else {
            return Ok(None);
        };
        let routes = config.routes.iter().map(|route| route.name.clone()).collect();
        let rules = KeysFileRules { plans: Some(config.plan_names()), routes };
        let mut reread = Reread::new([file::open(path)?], |[file]| read(&rules, file))?;
        reread.forget_contents();
        Ok(Some(Self { rules, source: Mutex::new(KeysSource { reread, is_in_force: false }) }))
    }

    /// Lets its keys be valid, too.
    pub(super) fn join(&self, keys: &ApiKeys) {
        keys.add_file(self.source.lock().reread.value());
    }

    /// Lets only its keys be valid, and rereads it on a thread of its own until it is dropped.
    ///
    /// # Errors
    /// The thread can't be started.
    pub(super) fn apply(self: &Arc<Self>, keys: &Arc<ApiKeys>) -> io::Result<()> {
        let mut source = self.source.lock();
        source.is_in_force = true;
        put(&source.reread, keys);
        let (this, keys) = (Arc::downgrade(self), Arc::clone(keys));
        thread::Builder::new().name("keys".into()).spawn(move || reread_until_dropped(&this, &keys))?;
        Ok(())
    }

    /// Lets its keys be. Another file is in force, or none.
    pub(super) fn retire(&self, keys: &ApiKeys) {
        let mut source = self.source.lock();
        source.is_in_force = false;
        keys.set_file_error(None);
    }

    fn reread_if_changed(&self, keys: &ApiKeys) {
        let mut source = self.source.lock();
        if !source.is_in_force {
            return;
        }
        let is_new = source.reread.refresh(|[file]| read(&self.rules, file));
        source.reread.forget_contents();
        keys.set_file_error(source.reread.error().cloned());
        if is_new {
            put(&source.reread, keys);
            let (path, count) = (source.reread.first_path().display(), source.reread.value().len());
            tracing::info!("the API keys in {path} were reread: {count} keys");
        }
    }
}

fn put(reread: &Reread<Vec<Arc<ApiKey>>, 1>, keys: &ApiKeys) {
    let hidden = keys.set_file(reread.value().clone());
    if let Some(first) = hidden.first() {
        tracing::warn!(
            "{} API keys in the store are not valid, because {} lists their IDs or their secrets; the first is {first}",
            hidden.len(),
            reread.first_path().display()
        );
    }
}

fn read(rules: &KeysFileRules, file: &WatchedFile) -> Result<Vec<Arc<ApiKey>>, KeysFileError> {
    let wrong = |error| KeysFileError::Wrong { path: file.path().to_owned(), error };
    let found = rules.read(file.bytes(), WallClock.now()).map_err(wrong)?;
    for warning in &found.warnings {
        tracing::warn!("in the file of API keys {}, {warning}", file.path().display());
    }
    Ok(found.keys.into_iter().map(Arc::new).collect())
}

fn reread_until_dropped(file: &Weak<KeysFile>, keys: &ApiKeys) {
    loop {
        thread::sleep(REREAD_INTERVAL);
        match file.upgrade() {
            Some(file) => file.reread_if_changed(keys),
            None => return,
        }
    }
}
