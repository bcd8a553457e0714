//! What the body of a request says, read as the upstream reads it, or not at all.
//!
//! | file | content |
//! | --- | --- |
//! | `content` | what a body is, by its media type and its coding |
//! | `members` | reads members of a JSON body, and refuses what parsers read in different ways |
//! | `form` | reads fields of a form, and refuses what frameworks read in different ways |
//! | `value` | the values that have names in the configuration: where requests have them, and their groups |
//! | `bounds` | the numbers of a request that bound what its response can cost |
//! | `ask_for_usage` | edits a request so that its stream tells the cost |

mod ask_for_usage;
mod bounds;
mod content;
mod form;
mod members;
mod value;

pub use ask_for_usage::{ask_for_usage, usage_paths};
pub use bounds::{AskedOutput, OutputBounds, background_path, is_in_background};
pub use content::{BodyContent, MAX_BLANKS, content, is_before_json};
pub use form::Form;
pub use members::{AskedMembers, JsonMember, Members};
pub use value::{
    FoundValue, FoundValues, OTHER_GROUP, PathSource, QueryFields, ReadBody, RequestTarget, RequestValue,
    SourcePlace, TextPattern, ValueGroup, ValueSource,
};

use http::StatusCode;

/// Why a request is refused by what its body says, or because that can't be read. No request is decided as if its body said
/// nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BodyRefusal {
    /// 400, 403, 413 or 415.
    pub status: StatusCode,
    /// A sentence for the client: what is wrong, and where.
    pub detail: String,
}

impl BodyRefusal {
    /// A body that is malformed, or says something that can be read in several ways. `what`: the rest of the sentence
    /// that begins with the body.
    fn malformed(what: impl AsRef<str>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, detail: format!("The request's body {}.", what.as_ref()) }
    }

    /// Something of the request that can be read in several ways. `detail`: the sentence.
    fn unclear(detail: String) -> Self {
        Self { status: StatusCode::BAD_REQUEST, detail }
    }

    fn too_large(what: impl AsRef<str>) -> Self {
        Self { status: StatusCode::PAYLOAD_TOO_LARGE, ..Self::malformed(what) }
    }

    fn unsupported(what: impl AsRef<str>) -> Self {
        Self { status: StatusCode::UNSUPPORTED_MEDIA_TYPE, ..Self::malformed(what) }
    }

    /// A request that asks for more `units` than `most`.
    pub fn asks_for_too_much(units: u64, most: u64) -> Self {
        Self::unclear(format!("The request asks for {units} units, and may ask for {most} at most."))
    }

    /// A value that is not one of the `allowed`.
    pub fn forbidden(name: &str, found: &FoundValue, allowed: &[String]) -> Self {
        let found = match found {
            FoundValue::Absent => "The request has none".to_owned(),
            FoundValue::Text(text) => format!("The request's is `{}`", text.escape_debug()),
            FoundValue::Unreadable => "The request's can't be read".to_owned(),
        };
        let allowed: Vec<String> = allowed.iter().map(|text| format!("`{text}`")).collect();
        let detail = format!("Only some values of `{name}` are allowed: {}. {found}.", allowed.join(", "));
        Self { status: StatusCode::FORBIDDEN, detail }
    }

    /// A body that may be a form, by a type that does not say so.
    pub fn perhaps_form() -> Self {
        Self::unsupported(
            "has a content type by which servers may read it in several ways: send \
             `content-type: application/x-www-form-urlencoded`",
        )
    }

    /// A batch with several values under a limit that counts different ones.
    pub fn several_values(policy: &str) -> Self {
        Self::malformed(format!("is a batch with several values, which `{policy}` counts one at a time"))
    }

    /// A field of a form that is in the query, too.
    pub fn in_query(name: &str) -> Self {
        Self::unclear(format!(
            "The query has `{name}`, which some servers take for the field of the form, which is another one."
        ))
    }

    /// A form in parts, whose fields are not read.
    pub fn multipart() -> Self {
        Self::unsupported("is `multipart/form-data`: send it as `application/x-www-form-urlencoded`")
    }

    /// A body of more than `max_request` bytes.
    pub fn too_long(max_request: usize) -> Self {
        Self::too_large(format!(
            "has more than {max_request} bytes, so it is not read, and it has to be read"
        ))
    }
}
