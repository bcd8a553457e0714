//! A value made from files, and made anew when they change.

use std::{
    fmt::Display,
    io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use sha2::{Digest, Sha256};

use super::WatchedFile;

/// How many times in a row changed files may be unusable before it is logged: renewing a certificate writes two files.
const PATIENCE: u32 = 2;

/// A value made from `N` files. It is kept until another can be made from their new contents.
#[derive(Debug)]
pub struct Reread<T, const N: usize> {
    files: [WatchedFile; N],
    value: T,
    /// The time when the value was made.
    made: SystemTime,
    digest: [u8; 32],
    /// Whether the files have changed since they were last looked into.
    is_outdated: bool,
    /// The digest of contents from which no value can be made, and the error.
    wrong: Option<([u8; 32], String)>,
    /// How many times in a row no value could be made.
    failures: u32,
    error: Option<String>,
}

/// A file that can't be read.
#[derive(Debug, thiserror::Error)]
#[error("{} can't be read: {error}", .path.display())]
pub struct Unreadable {
    /// The file's path.
    pub path: PathBuf,
    /// The reason.
    pub error: io::Error,
}

/// Reads the file at `path`.
///
/// # Errors
/// The file can't be read.
pub fn open(path: &Path) -> Result<WatchedFile, Unreadable> {
    let path = path.to_owned();
    WatchedFile::open(path.clone()).map_err(|error| Unreadable { path, error })
}

impl<T, const N: usize> Reread<T, N> {
    /// Makes a value from the files by `make`.
    ///
    /// # Errors
    /// Errors of `make`.
    pub fn new<E>(
        files: [WatchedFile; N],
        make: impl FnOnce(&[WatchedFile; N]) -> Result<T, E>,
    ) -> Result<Self, E> {
        let (value, digest) = (make(&files)?, digest(&files));
        let made = SystemTime::now();
        Ok(Self { files, value, made, digest, is_outdated: false, wrong: None, failures: 0, error: None })
    }

    /// The current value.
    pub fn value(&self) -> &T {
        &self.value
    }

    /// Forgets the contents of the files, which may be large: the value is all that is needed of them.
    pub fn forget_contents(&mut self) {
        if !self.is_outdated {
            self.files.iter_mut().for_each(WatchedFile::forget_contents);
        }
    }

    /// The path of the first file.
    pub fn first_path(&self) -> &Path {
        self.files.first().map_or(Path::new(""), WatchedFile::path)
    }

    /// When the current value was made.
    pub fn made(&self) -> SystemTime {
        self.made
    }

    /// Why no value can be made from the current contents, once that has lasted.
    pub fn error(&self) -> Option<&String> {
        self.error.as_ref()
    }

    /// A hash of the files that the value was made from: SHA-256 in hexadecimal digits.
    pub fn digest(&self) -> String {
        self.digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Rereads files that have changed. Returns whether the value is new. If no value can be made, the previous one is
    /// kept, and the error is logged once it has lasted.
    pub fn refresh<E: Display + From<Unreadable>>(
        &mut self,
        make: impl FnOnce(&[WatchedFile; N]) -> Result<T, E>,
    ) -> bool {
        match self.make_anew(make) {
            Ok(is_new) => {
                (self.failures, self.error) = (0, None);
                is_new
            }
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                if self.failures >= PATIENCE && self.error.as_ref() != Some(&error) {
                    tracing::error!("the previous contents stay in use: {error}");
                    self.error = Some(error);
                }
                false
            }
        }
    }

    /// Contents are tried once: faulty contents stay faulty.
    fn make_anew<E: Display + From<Unreadable>>(
        &mut self,
        make: impl FnOnce(&[WatchedFile; N]) -> Result<T, E>,
    ) -> Result<bool, String> {
        for file in &mut self.files {
            let refreshed =
                file.refresh().map_err(|error| Unreadable { path: file.path().to_owned(), error });
            self.is_outdated |= refreshed.map_err(|error| E::from(error).to_string())?;
        }
        if std::mem::take(&mut self.is_outdated) {
            let digest = digest(&self.files);
            self.wrong.take_if(|(wrong, _)| *wrong != digest);
            // The files may have been restored.
            if self.wrong.is_none() && digest != self.digest {
                match make(&self.files) {
                    Ok(value) => {
                        (self.value, self.digest, self.made) = (value, digest, SystemTime::now());
                        return Ok(true);
                    }
                    Err(error) => self.wrong = Some((digest, error.to_string())),
                }
            }
        }
        match &self.wrong {
            Some((_, error)) => Err(error.clone()),
            None => Ok(false),
        }
    }
}

fn digest(files: &[WatchedFile]) -> [u8; 32] {
    let mut digest = Sha256::new();
    for file in files {
        digest.update((file.bytes().len() as u64).to_be_bytes());
        digest.update(file.bytes());
    }
    digest.finalize().into()
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, fs};

    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum MakeError {
        #[error(transparent)]
        Unreadable(#[from] Unreadable),
        #[error("{} differs from the first", .0.display())]
        Different(PathBuf),
    }

    /// The bytes of all files, which must be equal.
    fn make(files: &[WatchedFile; 2]) -> Result<Vec<u8>, MakeError> {
        let first = files[0].bytes();
        match files.iter().find(|file| file.bytes() != first) {
            None => Ok(first.to_vec()),
            Some(other) => Err(MakeError::Different(other.path().to_owned())),
        }
    }

    fn two_files(directory: &Path) -> ([PathBuf; 2], Reread<Vec<u8>, 2>) {
        let paths = ["one", "two"].map(|name| directory.join(name));
        paths.iter().for_each(|path| fs::write(path, "a").unwrap());
        let files = paths.each_ref().map(|path| open(path).unwrap());
        (paths, Reread::new(files, make).unwrap())
    }

    #[test]
    fn files_that_are_written_one_after_the_other_are_no_error() {
        let directory = tempfile::tempdir().unwrap();
        let ([one, two], mut reread) = two_files(directory.path());
        fs::write(&one, "b").unwrap();
        assert!(!reread.refresh(make));
        assert_eq!((reread.value().as_slice(), reread.error()), (&b"a"[..], None));
        fs::write(&two, "b").unwrap();
        assert!(reread.refresh(make));
        assert_eq!((reread.value().as_slice(), reread.error()), (&b"b"[..], None));
        assert!(!reread.refresh(make));
    }

    #[test]
    fn wrong_contents_are_tried_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("one");
        fs::write(&path, "a").unwrap();
        let tries = Cell::new(0);
        let make = |[file]: &[WatchedFile; 1]| {
            tries.set(tries.get() + 1);
            match file.bytes() {
                b"" | b"wrong" => Err(MakeError::Different(file.path().to_owned())),
                bytes => Ok(bytes.to_vec()),
            }
        };
        let mut reread = Reread::new([open(&path).unwrap()], make).unwrap();
        let mut refresh = || {
            reread.forget_contents();
            (reread.refresh(make), reread.error().is_some(), tries.get())
        };
        assert_eq!(refresh(), (false, false, 1));
        // An empty file differs from contents that were forgotten.
        for (text, tries) in [("wrong", 2), ("", 3)] {
            fs::write(&path, text).unwrap();
            refresh();
            assert_eq!([refresh(), refresh()], [(false, true, tries); 2], "{text}");
        }
        fs::write(&path, "b").unwrap();
        assert_eq!(refresh(), (true, false, 4));
        fs::write(&path, "").unwrap();
        refresh();
        fs::write(&path, "b").unwrap();
        assert_eq!(refresh(), (false, false, 5), "it was restored");
    }

    #[test]
    fn files_that_stay_wrong_are_an_error_until_they_are_right() {
        let directory = tempfile::tempdir().unwrap();
        let ([one, two], mut reread) = two_files(directory.path());
        let made = reread.made();
        fs::write(&one, "b").unwrap();
        for _ in 0..3 {
            assert!(!reread.refresh(make));
        }
        let error = format!("{} differs from the first", two.display());
        assert_eq!((reread.value().as_slice(), reread.error()), (&b"a"[..], Some(&error)));
        fs::remove_file(&one).unwrap();
        assert!(!reread.refresh(make));
        assert!(reread.error().unwrap().contains("can't be read: "), "{:?}", reread.error());
        // The previous contents: no new value is made.
        fs::write(&one, "a").unwrap();
        assert!(!reread.refresh(make));
        assert_eq!((reread.error(), reread.made()), (None, made));
    }
}
