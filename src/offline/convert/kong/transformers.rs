//! `request-transformer` and `response-transformer` (kong/plugins/request-transformer/access.lua,
//! kong/plugins/response-transformer/header_transformer.lua).

use super::{Effects, always, values::rest};
use crate::offline::convert::{
    document::Fields,
    draft::{is_field_name, literal},
    site::{Edit, Effect, HeaderRule, PathEdit},
};

/// Headers that belong to a connection: Tollgate sets them itself.
const OF_CONNECTIONS: &str = "connection content-length expect host http2-settings keep-alive proxy-connection \
                              sec-websocket-accept sec-websocket-key te trailer transfer-encoding upgrade";

/// Whether Tollgate takes this as the name of a header.
pub(super) fn is_header(name: &str) -> bool {
    is_field_name(name) && !OF_CONNECTIONS.split(' ').any(|known| known.eq_ignore_ascii_case(name))
}

/// What a transformer does. `edit`: to requests, or to responses.
///
/// # Errors
/// Something has no equal.
pub(super) fn changes(config: &Fields<'_>, edit: fn(HeaderRule) -> Edit) -> Result<Effects, String> {
    let mut effects = Vec::new();
    for action in ["remove", "rename", "replace", "add", "append"] {
        let fields = config.fields(action);
        if let Some(uri) = fields.text("uri") {
            // It takes the place of the whole path, with that of the service.
            let path = super::paths::checked(uri.to_owned())?;
            effects.push(Effect::Edit(Edit::Path(PathEdit::Whole(path))));
        }
        for header in fields.texts("headers") {
            let (name, value) = header.split_once(':').unwrap_or((header, ""));
            let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
            let is_value = value.chars().all(|c| c == ' ' || c.is_ascii_graphic()) && !value.contains('$');
            let can_change = is_header(&name);
            let change = match action {
                "remove" if can_change => HeaderRule::Remove(name),
                "append" if can_change && is_value && !value.is_empty() => {
                    HeaderRule::Add(name, literal(value))
                }
                "add" | "replace" if can_change && is_value && !value.is_empty() => {
                    let when = if action == "add" { "is missing" } else { "is there" };
                    let text =
                        format!("`{action}` sets `{name}` only where it {when}; here it is set always");
                    effects.push(Effect::Note(text));
                    HeaderRule::Set(name, literal(value))
                }
                _ => return Err(format!("`{action}` of the header `{header}` has no equal")),
            };
            effects.push(Effect::Edit(edit(change)));
        }
        if let Some((key, _)) = rest(&fields).first() {
            return Err(format!("`{action}.{key}`: only headers can be changed"));
        }
    }
    Ok(always(effects))
}
