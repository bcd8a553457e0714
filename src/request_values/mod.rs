//! What the body of a request says, read as the upstream reads it, or not at all.
//!
//! | file | content |
//! | --- | --- |
//! | `content` | whether a body is JSON, by its media type and its coding |
//! | `members` | reads members of a JSON body, and refuses what parsers read in different ways |
//! | `bounds` | the numbers of a request that bound what its response can cost |
//! | `ask_for_usage` | edits a request so that its stream tells the cost |

mod ask_for_usage;
mod bounds;
mod content;
mod members;

pub use ask_for_usage::{ask_for_usage, usage_paths};
pub use bounds::{AskedOutput, OutputBounds, background_path, is_in_background};
pub use content::{BodyContent, MAX_BLANKS, content, is_before_json};
pub use members::{AskedMembers, JsonMember, Members};

use http::StatusCode;

/// Why a body can't be read, though its request is decided by it. No request is decided as if its body said nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableBody {
    /// 400, 413 or 415.
    pub status: StatusCode,
    /// A sentence for the client: what is wrong, and where.
    pub detail: String,
}

impl UnreadableBody {
    /// A body that is malformed, or says something that can be read in several ways. `what`: the rest of the sentence
    /// that begins with the body.
    fn malformed(what: impl AsRef<str>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, detail: format!("The request's body {}.", what.as_ref()) }
    }

    fn too_large(what: impl AsRef<str>) -> Self {
        Self { status: StatusCode::PAYLOAD_TOO_LARGE, ..Self::malformed(what) }
    }

    fn unsupported(what: impl AsRef<str>) -> Self {
        Self { status: StatusCode::UNSUPPORTED_MEDIA_TYPE, ..Self::malformed(what) }
    }

    /// A request that asks for more `units` than `most`.
    pub fn asks_for_too_much(units: u64, most: u64) -> Self {
        let detail = format!("The request asks for {units} units, and may ask for {most} at most.");
        Self { status: StatusCode::BAD_REQUEST, detail }
    }

    /// A body of more than `max_request` bytes.
    pub fn too_long(max_request: usize) -> Self {
        Self::too_large(format!(
            "has more than {max_request} bytes, so it is not read, and it has to be read"
        ))
    }
}
