//! What a block inherits from the blocks around it.

use super::syntax::Directive;

/// A block, and those around it. Of a directive, the ones in the innermost block that has it apply: all of them if it
/// may be repeated, else the last.
#[derive(Debug, Clone, Default)]
pub(super) struct BlockScope<'d> {
    /// The outermost first.
    blocks: Vec<Vec<&'d Directive>>,
}

impl<'d> BlockScope<'d> {
    /// The scope of a block with these directives.
    pub(super) fn enter(&self, directives: impl IntoIterator<Item = &'d Directive>) -> Self {
        let mut scope = self.clone();
        scope.blocks.push(directives.into_iter().collect());
        scope
    }

    /// The directives with one of these names, in the innermost block that has any.
    pub(super) fn all(&self, names: &[&str]) -> Vec<&'d Directive> {
        let of_block = |block: &Vec<&'d Directive>| -> Vec<&'d Directive> {
            block.iter().copied().filter(|directive| names.contains(&directive.name.as_str())).collect()
        };
        self.blocks.iter().rev().map(of_block).find(|found| !found.is_empty()).unwrap_or_default()
    }

    /// The directive of this name that applies.
    pub(super) fn last(&self, name: &str) -> Option<&'d Directive> {
        self.all(&[name]).pop()
    }

    /// The first argument of the directive of this name that applies; an empty text without one.
    pub(super) fn value(&self, name: &str) -> &'d str {
        self.last(name).map_or("", |directive| directive.argument(0))
    }

    /// Every directive that applies and is not overridden further inside.
    pub(super) fn effective(&self) -> Vec<&'d Directive> {
        let mut found: Vec<&'d Directive> = Vec::new();
        for block in self.blocks.iter().rev() {
            let known = found.len();
            let is_new =
                |directive: &&&Directive| !found[..known].iter().any(|inner| inner.name == directive.name);
            let new: Vec<_> = block.iter().filter(is_new).copied().collect();
            found.extend(new);
        }
        found
    }
}
