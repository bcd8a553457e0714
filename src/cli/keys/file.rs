//! Changes of the file of keys, without a running Tollgate: `--file keys.yaml`.

use std::{
    io::{self, ErrorKind, Write},
    path::Path,
};

use jiff::Timestamp;

use super::super::{client::AdminError, terminal::printable};
use crate::{
    api_keys::{
        ApiKey,
        file_text::{self, TextError},
        operations::{self, KeyFields, OperationError, parse_expiry},
    },
    config::model::KeysFileRules,
    file::{self, LockedFile},
};

/// Longest file, in bytes, as an instance reads it.
const MAX_FILE: u64 = 64 << 20;

/// The message about a key that was written.
const NEXT: &str = "Instances that name the file under api_keys.file know it within a second or two.\n";

/// The text of a file and its keys, which no other command changes meanwhile.
struct LockedKeyFile {
    locked: LockedFile,
    text: String,
    keys: Vec<ApiKey>,
}

impl LockedKeyFile {
    /// Reads the file. One that is not there has no keys.
    fn open(path: &Path) -> Result<Self, AdminError> {
        let unreadable = |error: io::Error| {
            io::Error::new(error.kind(), format!("can't read {}: {error}", path.display()))
        };
        let locked = LockedFile::open(path).map_err(unreadable)?;
        let bytes = match file::read_file(locked.path(), MAX_FILE) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            bytes => bytes.map_err(unreadable)?,
        };
        let keys = read(locked.path(), &bytes)?;
        // A file in which keys were found is UTF-8.
        let text = String::from_utf8(bytes).map_err(|error| unreadable(io::Error::other(error)))?;
        Ok(Self { locked, text, keys })
    }

    /// The place of the key with this ID.
    fn position(&self, id: &str) -> Result<usize, AdminError> {
        let position = self.keys.iter().position(|key| key.id == id);
        position
            .ok_or_else(|| AdminError::Refused(format!("{} has no key {id}", self.locked.path().display())))
    }

    /// Writes the changed text, if it has exactly these keys.
    fn write(&self, text: Result<String, TextError>, keys: &[ApiKey]) -> Result<(), AdminError> {
        let wrong = |error: TextError| {
            AdminError::Refused(format!("can't change {}: {error}", self.locked.path().display()))
        };
        let text = text.map_err(wrong)?;
        let written = read(self.locked.path(), text.as_bytes())?;
        let same = |one: &ApiKey, other: &ApiKey| {
            let hashes = |key: &ApiKey| key.secrets.iter().map(|secret| secret.hash).collect::<Vec<_>>();
            let plain = |key: &ApiKey| ApiKey { secrets: Vec::new(), created: 0, changed: 0, ..key.clone() };
            hashes(one) == hashes(other) && plain(one) == plain(other)
        };
        if written.len() != keys.len() || !written.iter().zip(keys).all(|(one, other)| same(one, other)) {
            return Err(wrong(TextError::Unclear));
        }
        let unwritable = |error: io::Error| {
            io::Error::new(error.kind(), format!("can't write {}: {error}", self.locked.path().display()))
        };
        self.locked.replace(0o666, |mut file| file.write_all(text.as_bytes())).map_err(unwritable)?;
        Ok(())
    }
}

fn read(path: &Path, bytes: &[u8]) -> Result<Vec<ApiKey>, AdminError> {
    if str::from_utf8(bytes).is_ok_and(|text| text.lines().all(file_text::is_blank)) {
        return Ok(Vec::new());
    }
    let rules = KeysFileRules { plans: None, routes: Vec::new() };
    let found = rules.read(bytes, Timestamp::now().as_microsecond());
    found.map(|found| found.keys).map_err(|error| AdminError::Refused(format!("{}: {error}", path.display())))
}

fn refused(error: OperationError) -> AdminError {
    match error {
        OperationError::Field(error) => AdminError::WrongArgument(error.to_string()),
        error => AdminError::Refused(error.to_string()),
    }
}

/// Writes a new key into the file. Returns its text, and further messages.
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
    let file = LockedKeyFile::open(path)?;
    let (key, new) = operations::create(KeyFields { expires: expires.transpose()?, ..fields }, prefix, now)
        .map_err(refused)?;
    if file.keys.iter().any(|known| known.id == key.id) {
        return Err(AdminError::Refused(format!("there is a key {} already", key.id)));
    }
    let said = format!(
        "Key {} of {} was written to {}. It can't be shown again.\n{NEXT}",
        key.id,
        printable(&key.customer),
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
    let file = LockedKeyFile::open(path)?;
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
    let text = file_text::replace(&file.text, nth, file.keys.len(), &key);
    let mut keys = file.keys.clone();
    keys[nth] = key;
    file.write(text, &keys)?;
    Ok((format!("{}\n", *new.text), said))
}

/// Removes a key from the file. A `reason` stays there as a comment.
pub(super) fn revoke(path: &Path, id: &str, reason: &str) -> Result<String, AdminError> {
    let file = LockedKeyFile::open(path)?;
    let (nth, now) = (file.position(id)?, Timestamp::now());
    let key = &file.keys[nth];
    // Refuses a reason that does not fit into a comment of one line.
    operations::revoke(key, reason, now.as_microsecond()).map_err(refused)?;
    let date = now.strftime("%Y-%m-%d");
    let note = format!("{id} of {} was revoked on {date}: {reason}", key.customer);
    // YAML takes U+2028 for the end of the comment.
    let note = (!reason.is_empty()).then_some(printable(&note));
    let text = file_text::remove(&file.text, nth, file.keys.len(), note.as_deref());
    let mut keys = file.keys.clone();
    keys.remove(nth);
    file.write(text, &keys)?;
    let kept = if note.is_some() { ", and the reason is a comment there" } else { "" };
    Ok(format!("Key {id} was removed from {}{kept}.\n{NEXT}", path.display()))
}
