//! Paths to members of JSON objects, and the tree of several.

use std::fmt;

/// Bounds of a path: names, and bytes with the dots.
const MAX_NAMES: usize = 32;
const MAX_PATH_BYTES: usize = 256;
/// Beyond so many spellings of a path, its further names have one.
const MAX_SPELLINGS: usize = 16;

/// The place of a value in a JSON text: the names of nested objects, joined by dots, as in `usage.total_tokens`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct JsonPath(Box<str>);

impl JsonPath {
    /// Parses names joined by dots: at most 32 names, and at most 256 bytes.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.len() > MAX_PATH_BYTES {
            return Err("a path has at most 256 bytes");
        }
        if text.split('.').count() > MAX_NAMES {
            return Err("a path has at most 32 names");
        }
        if text.split('.').any(str::is_empty) {
            return Err("a path is names joined by dots, for example usage.total_tokens");
        }
        Ok(Self(text.into()))
    }

    /// A path that is known to be one.
    pub(crate) fn known(text: &'static str) -> Self {
        Self(text.into())
    }

    /// The path in each form in which JSON of protocol buffers may write it: `maxTokens` and `max_tokens` are one name there.
    pub(crate) fn spellings(&self) -> Vec<Self> {
        let all = self.names().fold(vec![String::new()], |begins, name| {
            let mut forms = vec![name.to_owned(), in_snake_case(name), in_camel_case(name)];
            forms.sort();
            forms.dedup();
            // A path with many such names is not one of those.
            forms.truncate(if begins.len() > MAX_SPELLINGS { 1 } else { 3 });
            let dot = if begins == [""] { "" } else { "." };
            begins
                .iter()
                .flat_map(|begin| forms.iter().map(move |form| format!("{begin}{dot}{form}")))
                .collect()
        });
        all.into_iter().map(|path| Self(path.into())).collect()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.split('.')
    }
}

/// `max_tokens` for `maxTokens`.
fn in_snake_case(name: &str) -> String {
    name.chars().fold(String::new(), |mut snake, letter| {
        if letter.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
        snake
    })
}

/// `maxTokens` for `max_tokens`.
fn in_camel_case(name: &str) -> String {
    let (camel, _) = name.chars().fold((String::new(), false), |(mut camel, is_after), letter| {
        let is_break = letter == '_' && !camel.is_empty();
        if !is_break {
            camel.push(if is_after { letter.to_ascii_uppercase() } else { letter });
        }
        (camel, is_break)
    });
    camel
}

impl fmt::Display for JsonPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The tree of several paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PathTree {
    /// The first node is the root.
    nodes: Vec<PathNode>,
    longest_name: usize,
}

/// A name on a path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct PathNode {
    children: Vec<(Box<str>, usize)>,
    /// The numbers that [`PathTree::add`] got with the paths that end here.
    sought: Vec<usize>,
}

impl Default for PathTree {
    fn default() -> Self {
        Self { nodes: vec![PathNode::default()], longest_name: 0 }
    }
}

impl PathTree {
    pub(crate) const ROOT: usize = 0;

    /// Adds a path. `sought`: a number that identifies it.
    pub(crate) fn add(&mut self, path: &JsonPath, sought: usize) {
        let end = path.names().fold(Self::ROOT, |node, name| self.child_or_new(node, name));
        self.nodes[end].sought.push(sought);
    }

    fn child_or_new(&mut self, node: usize, name: &str) -> usize {
        if let Some(child) = self.child(node, name.as_bytes()) {
            return child;
        }
        let child = self.nodes.len();
        self.nodes.push(PathNode::default());
        self.nodes[node].children.push((name.into(), child));
        self.longest_name = self.longest_name.max(name.len());
        child
    }

    /// The node below `node` that is called `name`.
    pub(crate) fn child(&self, node: usize, name: &[u8]) -> Option<usize> {
        self.children(node).find(|(known, _)| known.as_bytes() == name).map(|(_, child)| child)
    }

    /// The nodes below `node`, with their names.
    pub(crate) fn children(&self, node: usize) -> impl Iterator<Item = (&str, usize)> {
        self.nodes[node].children.iter().map(|(name, child)| (&**name, *child))
    }

    /// Whether a path goes on below `node`.
    pub(crate) fn has_children(&self, node: usize) -> bool {
        !self.nodes[node].children.is_empty()
    }

    /// The numbers of the paths that end at `node`.
    pub(crate) fn sought_at(&self, node: usize) -> &[usize] {
        &self.nodes[node].sought
    }

    /// The most bytes of a name.
    pub(crate) fn longest_name(&self) -> usize {
        self.longest_name
    }
}
