//! Templates of bodies.

use serde::Serialize;

use crate::config::{nearest::suggestion, value::Invalid};

const PLACEHOLDERS: [&str; 3] = ["retry_after", "policy", "limit"];

/// Reads a body with `{{retry_after}}`, `{{policy}}` and `{{limit}}` in it. `}}` alone is text, because JSON contains it.
pub(in crate::config) fn template(text: &str) -> Result<Vec<TemplatePart>, Invalid> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((before, from)) = rest.split_once("{{") {
        if !before.is_empty() {
            parts.push(TemplatePart::Text(before.to_owned()));
        }
        let (name, after) = from.split_once("}}").ok_or_else(|| {
            Invalid::new("has a {{ that is never closed")
                .expected("known names: {{retry_after}}, {{policy}}, {{limit}}")
        })?;
        parts.push(placeholder(name.trim())?);
        rest = after;
    }
    if !rest.is_empty() {
        parts.push(TemplatePart::Text(rest.to_owned()));
    }
    Ok(parts)
}

fn placeholder(name: &str) -> Result<TemplatePart, Invalid> {
    match name {
        "retry_after" => Ok(TemplatePart::RetryAfter),
        "policy" => Ok(TemplatePart::Policy),
        "limit" => Ok(TemplatePart::Limit),
        _ => {
            let invalid = Invalid::new("has an unknown {{name}} in it")
                .expected("known names: {{retry_after}}, {{policy}}, {{limit}}");
            Err(match suggestion(name, PLACEHOLDERS, "known names:") {
                Some(help) => invalid.suggestion(help),
                None => invalid,
            })
        }
    }
}

/// A piece of a body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TemplatePart {
    Text(String),
    /// Whole seconds, rounded up; `null` if no wait helps.
    RetryAfter,
    /// The policy's name.
    Policy,
    /// The limit that was reached, in units.
    Limit,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> TemplatePart {
        TemplatePart::Text(text.to_owned())
    }

    #[test]
    fn names_are_filled_in_later() {
        use TemplatePart::{Limit, Policy, RetryAfter};
        assert_eq!(template(""), Ok(vec![]));
        assert_eq!(template("slow down"), Ok(vec![text("slow down")]));
        assert_eq!(
            template("{\"wait\":{{retry_after}},\"of\":{\"{{ policy }}\":{{limit}}}}"),
            Ok(vec![
                text("{\"wait\":"),
                RetryAfter,
                text(",\"of\":{\""),
                Policy,
                text("\":"),
                Limit,
                text("}}")
            ])
        );
        assert_eq!(template("{{limit}}{{limit}}"), Ok(vec![Limit, Limit]));
    }

    #[test]
    fn unknown_names_and_unclosed_braces_are_refused() {
        assert_eq!(template("{{polcy}}").unwrap_err().help(false).unwrap(), "did you mean `policy`?");
        assert_eq!(
            template("{{user}}").unwrap_err().help(false).unwrap(),
            "known names: retry_after, policy, limit"
        );
        for text in ["{{", "{{limit}", "{{limit}} {{", "{{}}", "{{{limit}}}"] {
            assert!(template(text).is_err(), "{text}");
        }
    }
}
