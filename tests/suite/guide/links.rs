//! Every link and picture of the pages leads somewhere: to a file that is there, and to a heading that it has.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

/// The pages of this directory, and of those below it.
pub(super) fn pages(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            pages(&entry, found);
        } else if entry.extension().is_some_and(|extension| extension == "md") {
            found.push(entry);
        }
    }
}

/// A page without its blocks of code.
fn prose(text: &str) -> String {
    let mut in_block = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        in_block ^= is_fence;
        !in_block && !is_fence
    });
    lines.map(|line| line.to_owned() + "\n").collect()
}

/// What the links of this text lead to. A link may have inline code in it, but inline code has no links.
fn targets(prose: &str) -> Vec<String> {
    let mut targets = Vec::new();
    for (number, part) in prose.split("](").enumerate().skip(1) {
        let before: String = prose.split("](").take(number).collect::<Vec<_>>().join("](");
        let paragraph = before.rsplit("\n\n").next().unwrap_or_default();
        if paragraph.matches('`').count().is_multiple_of(2)
            && let Some((target, _)) = part.split_once(')')
        {
            targets.push(target.to_owned());
        }
    }
    // `[word]: target`
    let definitions = prose.lines().filter_map(|line| line.strip_prefix('[')?.split_once("]: "));
    targets.extend(definitions.map(|(_, target)| target.trim().to_owned()));
    targets
}

/// The fragments of this page's headings, as forges and mdBook make them.
fn fragments(text: &str) -> Vec<String> {
    let prose = prose(text);
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    let mut seen: HashMap<String, usize> = HashMap::new();
    let fragment = |line: &str| {
        let text = line.trim_start_matches('#').trim().to_lowercase();
        // Of a link, the text counts.
        let text = text.split("](").enumerate().map(|(number, part)| match number {
            0 => part.to_owned(),
            _ => part.split_once(')').map_or(part, |(_, rest)| rest).to_owned(),
        });
        let text: String = text.collect();
        let kept = text.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
        kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect::<String>()
    };
    headings
        .map(fragment)
        .map(|fragment| {
            let count = seen.entry(fragment.clone()).or_default();
            *count += 1;
            if *count == 1 { fragment } else { format!("{fragment}-{}", *count - 1) }
        })
        .collect()
}

#[test]
fn every_link_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all: Vec<_> = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root.join(name)).into();
    for directory in ["docs", "examples", "deploy"] {
        pages(&root.join(directory), &mut all);
    }
    let (mut count, mut broken) = (0, Vec::new());
    for page in &all {
        let text = fs::read_to_string(page).unwrap();
        for target in targets(&prose(&text)) {
            if target.starts_with("https://") || target.starts_with("http://") {
                continue;
            }
            count += 1;
            let (file, fragment) = target.split_once('#').unwrap_or((&target, ""));
            let file = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let leads = match fs::read_to_string(&file) {
                Ok(_) if fragment.is_empty() => true,
                Ok(text) => fragments(&text).iter().any(|heading| heading == fragment),
                // A picture is no text, and a directory is shown by a forge.
                Err(_) => file.exists() && fragment.is_empty(),
            };
            if !leads {
                broken.push(format!("{}: {target}", page.strip_prefix(root).unwrap().display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(count > 150, "{count}");
}
