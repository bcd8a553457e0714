//! What a head has of the fields that a proxy has to do something about.

use http::{HeaderMap, header};

use super::{claims::Claims, headers::hop_by_hop};

/// Fields that a proxy has to do something about.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
pub(super) enum FieldKind {
    /// `Connection`, with nothing but `keep-alive` or `close`: it names no field.
    PlainConnection = 1,
    /// Any other field of the connection alone.
    HopByHop = 1 << 1,
    /// `Transfer-Encoding`. It is a field of the connection, too.
    TransferEncoding = 1 << 2,
    /// More than one `Content-Length`, in one line or in several.
    RepeatedLength = 1 << 3,
    /// `Expect`.
    Expect = 1 << 4,
    /// What only trusted peers may say of a request.
    Claim = 1 << 5,
    /// The same, in another spelling than such peers give it.
    MisspelledClaim = 1 << 6,
}

/// Which kinds of fields a head has. Most heads have none of them: one pass over the names of all fields is less work than to
/// look for each kind by its hash.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FieldSurvey(u8);

impl FieldSurvey {
    /// Of a head. `claims`: what a request must not claim.
    pub(super) fn new(headers: &HeaderMap, claims: Option<&Claims>) -> Self {
        let mut survey = Self::default();
        let mut has_length = false;
        for (name, value) in headers {
            match *name {
                header::HOST => {}
                header::CONTENT_LENGTH => {
                    if has_length || value.as_bytes().contains(&b',') {
                        survey.add(FieldKind::RepeatedLength);
                    }
                    has_length = true;
                }
                header::CONNECTION if matches!(value.as_bytes(), b"keep-alive" | b"close") => {
                    survey.add(FieldKind::PlainConnection);
                }
                header::TRANSFER_ENCODING => {
                    survey.add(FieldKind::TransferEncoding);
                    survey.add(FieldKind::HopByHop);
                }
                header::EXPECT => survey.add(FieldKind::Expect),
                _ if hop_by_hop(name).is_some() => survey.add(FieldKind::HopByHop),
                _ => {
                    let name = name.as_str();
                    if let Some(claims) = claims.filter(|claims| claims.reserves(name)) {
                        survey.add(FieldKind::Claim);
                        if claims.is_misspelled(name) {
                            survey.add(FieldKind::MisspelledClaim);
                        }
                    }
                }
            }
        }
        survey
    }

    /// Whether the head has such a field.
    pub(super) fn has(self, kind: FieldKind) -> bool {
        self.0 & kind as u8 != 0
    }

    fn add(&mut self, kind: FieldKind) {
        self.0 |= kind as u8;
    }
}
