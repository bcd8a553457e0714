//! The fields of a head that a proxy has to handle.

use http::{HeaderMap, HeaderName, header};

use super::claims::ClaimFields;

/// Kinds of fields that a proxy has to handle.
#[derive(Debug, Clone, Copy)]
#[repr(u16)]
pub(super) enum FieldKind {
    /// `Connection` with only `keep-alive` or `close`: it names no field.
    PlainConnection = 1,
    /// Any other hop-by-hop field.
    HopByHop = 1 << 1,
    /// `Transfer-Encoding`. It is hop-by-hop, too.
    TransferEncoding = 1 << 2,
    /// More than one `Content-Length`, in one line or in several.
    RepeatedLength = 1 << 3,
    /// `Expect`.
    Expect = 1 << 4,
    /// A field that only trusted peers may send.
    Claim = 1 << 5,
    /// Such a field in another spelling than trusted peers use.
    MisspelledClaim = 1 << 6,
    /// `Authorization: Basic`.
    Basic = 1 << 7,
    /// Any other `Authorization`.
    Token = 1 << 8,
    Cookie = 1 << 9,
}

/// The kinds of fields in a head. Most heads have none: one pass over the names of all fields is faster than a
/// look-up per kind.
#[derive(Debug, Clone, Copy, Default)]
pub struct FieldSurvey(u16);

impl FieldSurvey {
    /// Surveys a head. `claims`: the fields that a request must not claim.
    pub(super) fn new(headers: &HeaderMap, claims: Option<&ClaimFields>) -> Self {
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
                header::COOKIE => survey.add(FieldKind::Cookie),
                header::AUTHORIZATION => {
                    let scheme = value.as_bytes().get(..6);
                    let is_basic = scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"basic "));
                    survey.add(if is_basic { FieldKind::Basic } else { FieldKind::Token });
                }
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

    /// Whether the head has a field of this kind.
    pub(super) fn has(self, kind: FieldKind) -> bool {
        self.0 & kind as u16 != 0
    }

    fn add(&mut self, kind: FieldKind) {
        self.0 |= kind as u16;
    }
}

static HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("http2-settings"),
];

/// The entry of [`HOP_BY_HOP`] that equals `name`. Hardly any name begins with one of these letters.
#[inline]
pub(super) fn hop_by_hop(name: &HeaderName) -> Option<&'static HeaderName> {
    match name.as_str().as_bytes().first() {
        Some(b'c' | b'h' | b'k' | b'p' | b't' | b'u') => HOP_BY_HOP.iter().find(|hop| *hop == name),
        _ => None,
    }
}
