//! The channel on which instances announce reset limits and other changes, and its message format.

/// The first character of a message about one limit. No identifier begins with it.
const LIMIT: char = '=';
/// The first character of a message that is not about limits. No identifier begins with it.
const ARRAY: char = '[';

/// The name of the channel.
pub(crate) fn name(prefix: &str) -> String {
    format!("{prefix}:unblock")
}

/// A message of the channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChannelMessage<'a> {
    /// All limits of this identifier were reset, such as `ip:203.0.113.7`.
    Identifier(&'a str),
    /// The limit of this identifier was reset in this policy alone.
    Limit { policy: &'a str, identifier: &'a str },
    /// A JSON array, about bans or drains: the store ignores it.
    Array(&'a str),
}

impl<'a> ChannelMessage<'a> {
    pub(crate) fn parse(text: &'a str) -> Self {
        if text.starts_with(ARRAY) {
            return Self::Array(text);
        }
        match text.strip_prefix(LIMIT).and_then(|limit| limit.split_once('\n')) {
            Some((policy, identifier)) => Self::Limit { policy, identifier },
            None => Self::Identifier(text),
        }
    }
}

impl std::fmt::Display for ChannelMessage<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Identifier(text) | Self::Array(text) => f.write_str(text),
            Self::Limit { policy, identifier } => write!(f, "{LIMIT}{policy}\n{identifier}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_are_written() {
        for (message, text) in [
            (ChannelMessage::Identifier("ip:203.0.113.7"), "ip:203.0.113.7"),
            (ChannelMessage::Limit { policy: "burst", identifier: "user:é" }, "=burst\nuser:é"),
            (ChannelMessage::Array(r#"["a1","7"]"#), r#"["a1","7"]"#),
        ] {
            assert_eq!(message.to_string(), text);
            assert_eq!(ChannelMessage::parse(text), message);
        }
    }
}
