//! Converts the declarative configuration of Kong.

use std::path::Path;

use super::{ConvertError, Draft};

/// Converts `text`, the file at `path`.
pub(super) fn convert(_text: &str, path: &Path) -> Result<Draft, ConvertError> {
    let what = "this is a Kong configuration, which".to_owned();
    Err(ConvertError::Unsupported { file: path.to_owned(), what })
}
