//! Files named by an operator: read within a time limit, reread when they change, and replaced as a whole.

mod locked;
mod matching;
mod read;
mod reread;
mod version;
mod watched;

pub use locked::LockedFile;
pub use matching::matching_files;
pub use read::{READ_LIMIT, append, is_directory, open_file, read, read_file, read_patiently, read_to_end};
pub use reread::{Reread, Unreadable, open};
pub use version::FileVersion;
pub use watched::WatchedFile;
