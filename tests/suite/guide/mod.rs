//! The guide in `docs`: whole, and true. What it says of other proxies (in front of Tollgate, behind it, and in its place) is run as it
//! stands there, but for addresses and the paths of files.

mod admin_port;
mod commands;
mod followed;
mod fronts;
mod links;
mod migration;
mod operation;
mod statuses;
mod summary;
mod tasks;

use std::{fs, path::Path};

/// A page of `docs/`.
pub(crate) struct Page {
    name: String,
    text: String,
}

impl Page {
    /// Of this name below `docs/`.
    pub(crate) fn open(name: &str) -> Self {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
        Self { name: name.to_owned(), text: fs::read_to_string(file).unwrap() }
    }

    /// Its only block in this language that contains `mark`.
    #[track_caller]
    pub(crate) fn block(&self, language: &str, mark: &str) -> String {
        let fence = format!("```{language}\n");
        let blocks = self.text.split(&fence).skip(1).filter_map(|rest| rest.split("```").next());
        let mut found = blocks.filter(|block| block.contains(mark));
        let block = found.next().unwrap_or_else(|| panic!("{} has no block with {mark}", self.name));
        assert_eq!(found.next(), None, "{} has several blocks with {mark}", self.name);
        block.to_owned()
    }

    /// The commands of its console block with `mark`, each with what stands below it.
    #[track_caller]
    fn steps(&self, mark: &str) -> Vec<(String, String)> {
        steps(&self.block("console", mark))
    }
}

/// The commands of a block, each with what stands below it.
fn steps(block: &str) -> Vec<(String, String)> {
    let block = format!("\n{block}");
    let steps = block.split("\n$ ").skip(1).map(|step| step.split_once('\n').unwrap_or((step, "")));
    steps.map(|(line, shown)| (line.to_owned(), shown.to_owned())).collect()
}

/// Replaces what has to be there.
#[track_caller]
pub(crate) fn replace(text: &str, changes: &[(&str, &str)]) -> String {
    let mut text = text.to_owned();
    for (from, to) in changes {
        assert!(text.contains(from), "{from} is missing in {text}");
        text = text.replace(from, to);
    }
    text
}
