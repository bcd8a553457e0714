//! The form between readers and the writer: what another proxy serves, as sites with their rules in the order in which
//! the source runs them.

use std::collections::BTreeSet;

use super::{
    Note, SourceLine,
    condition::RequestCondition,
    path::Path,
    yaml::{Comment, Map, YamlNode},
};

/// A listener. Its name is written only if a route names it.
#[derive(Debug, Clone)]
pub(super) struct SiteListener {
    pub(super) name: String,
    /// `address`, `tls`, `redirect`, …
    pub(super) settings: Map,
    pub(super) comments: Vec<Comment>,
}

/// What one or more listeners serve.
#[derive(Debug, Clone)]
pub(super) struct Site {
    /// The names of its listeners. Each listener has one site. None: all listeners, for a source without listeners.
    pub(super) listeners: BTreeSet<String>,
    pub(super) rules: Vec<SiteRule>,
}

/// A rule: under a condition, an effect. Rules run in order, until one of them ends it: a request that none ends gets
/// 404.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SiteRule {
    pub(super) when: RequestCondition,
    pub(super) effect: Effect,
    pub(super) place: SourceLine,
    /// The line of the source, for notes.
    pub(super) shown: String,
    /// Comments for the first route that the rule has an effect on.
    pub(super) comments: Vec<Comment>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Effect {
    /// The request is refused with this status.
    Refuse(u16),
    /// The request gets this; the rules behind are not run.
    Act(RuleResponse),
    /// These rules run in place of all that follow.
    Enter(Vec<SiteRule>),
    /// The policy applies, if the requests that it counts are those that meet `counted`. The condition of the rule says
    /// which of them it denies.
    Limit {
        policy: String,
        counted: RequestCondition,
    },
    Edit(Edit),
    /// The source does something that Tollgate does not do, and that protects the service or changes what clients get:
    /// the route answers 501. The text says what it is, and what to do about it.
    Close(String),
    /// The source does something that Tollgate does not do, and that neither opens nor breaks anything.
    Note(String),
    /// The name of the route.
    Name(String),
}

/// The response to a request.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum RuleResponse {
    Upstream(String),
    /// Upstreams with weights.
    Split(Vec<(String, u64)>),
    Redirect(Map),
    Reply(Map),
}

/// A change of what the service or the client gets.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Edit {
    Request(HeaderRule),
    Response(HeaderRule),
    Path(PathEdit),
    /// Another key of the route, such as `max_body`, `cors`, `retry` or `require`.
    Setting(&'static str, YamlNode),
}

/// A change of a header. Values may have Tollgate's placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HeaderRule {
    Set(String, String),
    Add(String, String),
    Remove(String),
    /// Takes back the changes before: the header is what Tollgate itself sends.
    Undo(String),
}

impl HeaderRule {
    /// In lower case.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Set(name, _) | Self::Add(name, _) | Self::Remove(name) | Self::Undo(name) => name,
        }
    }

    /// Whether it changes the header `name`. What is removed may be a beginning: `x-internal-*`.
    pub(super) fn is_of(&self, name: &str) -> bool {
        match (self, self.name().strip_suffix('*')) {
            (Self::Remove(_), Some(begin)) => name.to_ascii_lowercase().starts_with(begin),
            (_, _) => self.name().eq_ignore_ascii_case(name),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathEdit {
    /// Puts this text before the path. It begins with a slash.
    Prepend(String),
    /// Puts `by` in place of `prefix`, with which every path begins. Both are texts, not segments; a path that
    /// does not begin with a slash then gets one.
    Replace { prefix: String, by: String },
    /// This path for all requests.
    Whole(String),
    /// A text with placeholders, for the named groups of the expression that the path was tested with.
    Template(String),
}

/// The notes of all rules that do what Tollgate does not do.
pub(super) fn notes(rules: &[SiteRule], notes: &mut Vec<Note>) {
    for rule in rules.iter().filter(|rule| rule.when != RequestCondition::NEVER) {
        match &rule.effect {
            Effect::Enter(inner) => self::notes(inner, notes),
            Effect::Close(text) | Effect::Note(text) => notes.extend(rule.note(text).note().cloned()),
            _ => {}
        }
    }
}

impl SiteRule {
    /// A rule from this line of the source.
    pub(super) fn new(
        when: RequestCondition,
        effect: Effect,
        place: &SourceLine,
        shown: impl Into<String>,
    ) -> Self {
        Self { when, effect, place: place.clone(), shown: shown.into(), comments: Vec::new() }
    }

    /// The comment for what has no equal in this line.
    pub(super) fn note(&self, text: &str) -> Comment {
        let text = if self.shown.is_empty() { text.to_owned() } else { format!("`{}`: {text}", self.shown) };
        Comment::Unconverted(Note { place: self.place.clone(), text })
    }
}

/// The paths that services get of these requests; `None`: it is not known.
pub(super) fn path_after(path: &Path, edits: &[Edit]) -> Option<Path> {
    let edits = edits.iter().filter_map(|edit| if let Edit::Path(edit) = edit { Some(edit) } else { None });
    let (mut after, mut has_rest) = match path {
        Path::Any => ("/".to_owned(), true),
        Path::Prefix(text) => (text.clone(), true),
        Path::Exact(text) => (text.clone(), false),
        Path::Regex(_) => return None,
    };
    for edit in edits {
        match edit {
            PathEdit::Template(_) => return None,
            PathEdit::Whole(text) => (after, has_rest) = (text.clone(), false),
            PathEdit::Prepend(text) => after = format!("{text}{after}"),
            PathEdit::Replace { prefix, by } => {
                after = format!("{by}{}", after.strip_prefix(prefix.as_str())?);
            }
        }
        if !after.starts_with('/') {
            after.insert(0, '/');
        }
    }
    Some(match (has_rest, after.as_str()) {
        (true, "/") => Path::Any,
        (true, _) => Path::Prefix(after),
        (false, _) => Path::Exact(after),
    })
}
