//! Errors.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConfigurationError {
    /// From 1, as the column; `null` where the file as a whole is meant.
    pub line: Option<usize>,
    pub column: Option<usize>,
    pub message: String,
    /// As `tollgate check` prints it, with the line and a caret.
    pub text: String,
}

impl ConfigurationError {
    /// Of the configuration as a whole.
    pub fn of_all(message: String) -> Self {
        Self { line: None, column: None, text: message.clone(), message }
    }

    /// Its place and what is wrong there, in one line.
    pub fn summary(&self) -> &str {
        self.text.lines().next().unwrap_or(&self.message)
    }
}

/// What went wrong (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProblemDetails {
    /// `about:blank`: nothing more than the status says.
    #[serde(rename = "type", default)]
    pub kind: String,
    #[serde(default)]
    pub title: String,
    #[serde(default)]
    pub status: u16,
    /// What went wrong, in words.
    #[serde(default)]
    pub detail: String,
    /// Of a configuration that can't be used; else left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ConfigurationError>,
}
