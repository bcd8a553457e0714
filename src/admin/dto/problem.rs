//! Errors.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An error in a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConfigurationError {
    /// Lines and columns begin at 1; `null` for an error of the whole file.
    pub line: Option<usize>,
    pub column: Option<usize>,
    pub message: String,
    /// As `tollgate check` prints it, with the line and a caret.
    pub text: String,
}

impl ConfigurationError {
    /// An error of the configuration as a whole.
    pub fn of_all(message: String) -> Self {
        Self { line: None, column: None, text: message.clone(), message }
    }

    /// Its place and message, in one line.
    pub fn summary(&self) -> &str {
        self.text.lines().next().unwrap_or(&self.message)
    }
}

/// Problem details (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProblemDetails {
    /// `urn:tollgate:problem:far-reaching-ban`, `urn:tollgate:problem:last-endpoint`, or `about:blank`: no more
    /// specific than the status.
    #[serde(rename = "type", default)]
    pub kind: String,
    #[serde(default)]
    pub title: String,
    #[serde(default)]
    pub status: u16,
    /// The error in words.
    #[serde(default)]
    pub detail: String,
    /// The errors of a rejected configuration; otherwise left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ConfigurationError>,
    /// The field of the body that is wrong; otherwise left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Whom a far-reaching ban would shut out, in words; otherwise left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shuts_out: Vec<String>,
}
