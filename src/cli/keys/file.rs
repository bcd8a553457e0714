//! Changes of the file of keys, without a running Tollgate: `--file keys.yaml`.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
    process,
};

use jiff::Timestamp;

use super::super::client::AdminError;
use crate::{
    api_keys::{
        ApiKey,
        file_text::{self, TextError},
        operations::{self, KeyFields, OperationError, parse_expiry},
    },
    config::model::KeysFileRules,
};

/// What is said of a key that was written.
const NEXT: &str = "Instances that name the file under api_keys.file know it within a second or two.\n";

/// The text of a file and its keys.
struct KeyFile {
    path: PathBuf,
    text: String,
    keys: Vec<ApiKey>,
}

impl KeyFile {
    /// Reads the file. One that is not there has no keys.
    fn open(path: &Path) -> Result<Self, AdminError> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            text => text.map_err(|error| {
                io::Error::new(error.kind(), format!("can't read {}: {error}", path.display()))
            })?,
        };
        // A link stays one.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let keys = read(&path, &text)?;
        Ok(Self { path, text, keys })
    }

    /// The place of the key with this ID.
    fn position(&self, id: &str) -> Result<usize, AdminError> {
        let position = self.keys.iter().position(|key| key.id == id);
        position.ok_or_else(|| AdminError::Refused(format!("{} has no key {id}", self.path.display())))
    }

    /// Writes the changed text, if it has exactly these keys.
    fn write(&self, text: Result<String, TextError>, keys: &[ApiKey]) -> Result<(), AdminError> {
        let wrong =
            |error: TextError| AdminError::Refused(format!("can't change {}: {error}", self.path.display()));
        let text = text.map_err(wrong)?;
        let written = read(&self.path, &text)?;
        let same = |one: &ApiKey, other: &ApiKey| {
            let hashes = |key: &ApiKey| key.secrets.iter().map(|secret| secret.hash).collect::<Vec<_>>();
            let plain = |key: &ApiKey| ApiKey { secrets: Vec::new(), created: 0, changed: 0, ..key.clone() };
            hashes(one) == hashes(other) && plain(one) == plain(other)
        };
        if written.len() != keys.len() || !written.iter().zip(keys).all(|(one, other)| same(one, other)) {
            return Err(wrong(TextError::Unclear));
        }
        let unwritable = |error: io::Error| {
            io::Error::new(error.kind(), format!("can't write {}: {error}", self.path.display()))
        };
        replace(&self.path, text.as_bytes()).map_err(unwritable)?;
        Ok(())
    }
}

fn read(path: &Path, text: &str) -> Result<Vec<ApiKey>, AdminError> {
    let is_blank = |line: &str| line.trim().is_empty() || line.trim().starts_with('#');
    if text.lines().all(is_blank) {
        return Ok(Vec::new());
    }
    let rules = KeysFileRules { plans: None, routes: Vec::new(), refuses_expired: false };
    let found = rules.read(text.as_bytes(), Timestamp::now().as_microsecond());
    found.map(|found| found.keys).map_err(|error| AdminError::Refused(format!("{}: {error}", path.display())))
}

/// Replaces a file at once: whoever reads it finds all of the old or all of the new one.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.{}", process::id()));
    let write = || {
        let mut file = File::create_new(&temporary)?;
        file.write_all(bytes)?;
        if let Ok(metadata) = fs::metadata(path) {
            file.set_permissions(metadata.permissions())?;
        }
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    let written = write();
    if written.is_err() {
        // It may not be there.
        let _gone = fs::remove_file(&temporary);
    }
    written
}

fn refused(error: OperationError) -> AdminError {
    match error {
        OperationError::Field(error) => AdminError::WrongArgument(error.to_string()),
        error => AdminError::Refused(error.to_string()),
    }
}

/// Writes a new key into the file. Returns its text, and what else there is to say.
pub(super) fn create(
    path: &Path,
    fields: KeyFields,
    expires: Option<&str>,
    prefix: &str,
) -> Result<(String, String), AdminError> {
    let now = Timestamp::now().as_microsecond();
    let expires = expires.map(|text| {
        let wrong = || {
            AdminError::WrongArgument(
                "expires: write a duration (90d), a date (2027-01-31) or a time of RFC 3339".into(),
            )
        };
        parse_expiry(text, now).ok_or_else(wrong)
    });
    let file = KeyFile::open(path)?;
    let (key, new) = operations::create(KeyFields { expires: expires.transpose()?, ..fields }, prefix, now)
        .map_err(refused)?;
    if file.keys.iter().any(|known| known.id == key.id) {
        return Err(AdminError::Refused(format!("there is a key {} already", key.id)));
    }
    let said = format!(
        "Key {} of {} was written to {}. It can't be shown again.\n{NEXT}",
        key.id,
        key.customer,
        path.display()
    );
    let text = file_text::append(&file.text, &key);
    let mut keys = file.keys.clone();
    keys.push(key);
    file.write(text, &keys)?;
    Ok((format!("{}\n", *new.text), said))
}

/// Gives a key of the file another secret. `keeps_old`: the one that it has now stays, until the key is rotated again.
pub(super) fn rotate(
    path: &Path,
    id: &str,
    prefix: &str,
    keeps_old: bool,
) -> Result<(String, String), AdminError> {
    let file = KeyFile::open(path)?;
    let nth = file.position(id)?;
    let (mut key, new) =
        operations::rotate(&file.keys[nth], prefix, 0, Timestamp::now().as_microsecond()).map_err(refused)?;
    key.secrets.iter_mut().for_each(|secret| secret.expires = None);
    let next = match keeps_old {
        true => format!(
            "The old secret stays valid until you remove its hash, the first under `hashes`, from {}.\n",
            path.display()
        ),
        false => {
            key.secrets.drain(..key.secrets.len().saturating_sub(1));
            "The old secret is not valid any more.\n".to_owned()
        }
    };
    let said = format!("Key {id} was rotated in {}. It can't be shown again.\n{next}{NEXT}", path.display());
    let text = file_text::replace(&file.text, nth, file.keys.len(), Some(&key));
    let mut keys = file.keys.clone();
    keys[nth] = key;
    file.write(text, &keys)?;
    Ok((format!("{}\n", *new.text), said))
}

/// Removes a key from the file.
pub(super) fn remove(path: &Path, id: &str) -> Result<String, AdminError> {
    let file = KeyFile::open(path)?;
    let nth = file.position(id)?;
    let text = file_text::replace(&file.text, nth, file.keys.len(), None);
    let mut keys = file.keys.clone();
    keys.remove(nth);
    file.write(text, &keys)?;
    Ok(format!("Key {id} was removed from {}.\n{NEXT}", path.display()))
}
