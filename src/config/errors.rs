//! Errors in a configuration: location, message and help.

use std::fmt;

use super::redact::{Secrets, lines, mask_ranges};
use crate::text::is_invisible;

/// Characters of a long line that are shown before and after the error.
const EXCERPT_CONTEXT: usize = 100;

/// A position in a file. Both numbers start at 1; the column counts characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileLocation {
    pub line: usize,
    pub column: usize,
}

/// One error.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// `None` if the error concerns the whole file.
    pub location: Option<FileLocation>,
    pub message: String,
    /// The most similar known word, or the expected form.
    pub help: Option<String>,
}

impl Problem {
    /// This problem in one line.
    pub(super) fn in_one_line(&self) -> String {
        let line = self.location.map(|location| format!("line {}: ", location.line)).unwrap_or_default();
        let help = self.help.as_ref().map(|help| format!("; {help}")).unwrap_or_default();
        format!("{line}{}{help}", self.message)
    }

    pub(super) fn new(location: FileLocation, message: impl Into<String>) -> Self {
        Self { location: Some(location), message: message.into(), help: None }
    }

    /// An error that concerns the whole file.
    pub(super) fn of_file(message: impl Into<String>) -> Self {
        Self { location: None, message: message.into(), help: None }
    }

    pub(super) fn help(self, help: impl Into<Option<String>>) -> Self {
        Self { help: help.into(), ..self }
    }
}

/// All errors of a file, sorted by location.
///
/// Each is displayed as `FILE:LINE:COLUMN: MESSAGE`, the line with a caret under the column, and the help, if there is
/// one. Values from the environment or from a secret file never appear, and secrets in the file itself are masked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Errors {
    file: String,
    problems: Vec<Problem>,
    /// For each problem, the excerpt of its line with masked secrets, and the offset of the caret in it, in characters.
    excerpts: Vec<(String, usize)>,
}

impl Errors {
    /// Sorts `problems`, and masks `secrets` in excerpts of `text`. An error in an anchored node is found at each use,
    /// and reported once.
    pub(super) fn new(file: &str, text: &str, secrets: &Secrets, mut problems: Vec<Problem>) -> Self {
        problems.sort();
        problems.dedup();
        let all = lines(text);
        for location in problems.iter_mut().filter_map(|problem| problem.location.as_mut()) {
            *location = clamp_to_text(*location, &all);
        }
        let excerpts = problems
            .iter()
            .map(|problem| {
                let FileLocation { line: number, column } =
                    problem.location.unwrap_or(FileLocation { line: 1, column: 1 });
                let (at, line) = all.get(number - 1).copied().unwrap_or_default();
                let (line, column) = mask_ranges(line, &secrets.within(&(at..at + line.len())), column);
                excerpt(&line, column)
            })
            .collect();
        Self { file: file.to_owned(), problems, excerpts }
    }

    /// The errors, sorted by location. Never empty.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Each error with its displayed text.
    pub fn each(&self) -> impl Iterator<Item = (&Problem, String)> {
        self.problems.iter().zip(&self.excerpts).map(|(problem, excerpt)| {
            let (problems, excerpts) = (vec![problem.clone()], vec![excerpt.clone()]);
            let alone = Self { file: self.file.clone(), problems, excerpts };
            (problem, alone.to_string())
        })
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, "")
    }
}

/// Settings of a file that are valid but probably not intended, sorted by location. Displayed like errors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warnings(Errors);

impl Warnings {
    /// Sorts the warnings, and masks `secrets` in excerpts of `text`.
    pub(super) fn new(file: &str, text: &str, secrets: &Secrets, problems: Vec<Problem>) -> Self {
        Self(Errors::new(file, text, secrets, problems))
    }

    /// Whether there are no warnings.
    pub fn is_empty(&self) -> bool {
        self.0.problems.is_empty()
    }

    /// Each warning in one line: location, message and help.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.0.problems.iter().map(|problem| {
            let location = problem.location.map(|location| format!(":{}:{}", location.line, location.column));
            let help = problem.help.as_ref().map(|help| format!("; {help}"));
            let (location, help) = (location.unwrap_or_default(), help.unwrap_or_default());
            one_line(&format!("{}{location}: {}{help}", self.0.file, problem.message))
        })
    }
}

impl fmt::Display for Warnings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write(f, "warning: ")
    }
}

impl Errors {
    /// Writes all problems, each with `mark` before its message.
    fn write(&self, f: &mut fmt::Formatter<'_>, mark: &str) -> fmt::Result {
        for (n, (problem, (shown, caret))) in self.problems.iter().zip(&self.excerpts).enumerate() {
            if n > 0 {
                writeln!(f)?;
            }
            let message = one_line(&problem.message);
            match problem.location {
                None => writeln!(f, "{}: {mark}{message}", self.file)?,
                Some(FileLocation { line: number, column }) => {
                    writeln!(f, "{}:{number}:{column}: {mark}{message}", self.file)?;
                    writeln!(f, "{}", format!("  | {shown}").trim_end())?;
                    writeln!(f, "  | {:caret$}^", "")?;
                }
            }
            if let Some(help) = &problem.help {
                writeln!(f, "  help: {}", one_line(help))?;
            }
        }
        Ok(())
    }
}

/// Moves a location beyond the end of the text, or of its line, back to that end.
fn clamp_to_text(location: FileLocation, lines: &[(usize, &str)]) -> FileLocation {
    let line = location.line.clamp(1, lines.len());
    let end = lines[line - 1].1.chars().count() + 1;
    let column = if location.line > lines.len() { end } else { location.column.clamp(1, end) };
    FileLocation { line, column }
}

/// The part of `line` that is shown, and the offset of the caret in it, in characters.
fn excerpt(line: &str, column: usize) -> (String, usize) {
    let at = column - 1;
    let start = at.saturating_sub(EXCERPT_CONTEXT);
    let cut = line.chars().count() > at + EXCERPT_CONTEXT;
    let mut shown = String::new();
    if start > 0 {
        shown.push('…');
    }
    // Replace each by one character, so that the caret keeps its column.
    shown.extend(line.chars().skip(start).take(at + EXCERPT_CONTEXT - start).map(|c| match c {
        '\t' => ' ',
        c if is_invisible(c) => char::REPLACEMENT_CHARACTER,
        c => c,
    }));
    if cut {
        shown.push('…');
    }
    (shown, at - start + usize::from(start > 0))
}

fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if c.is_control() => line.extend(c.escape_debug()),
            c if is_invisible(c) => line.extend(c.escape_unicode()),
            c => line.push(c),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(line: usize, column: usize) -> Problem {
        Problem::new(FileLocation { line, column }, "wrong")
    }

    #[test]
    fn errors_are_sorted_and_said_once() {
        let errors = Errors::new(
            "f",
            "ab\r\ncd",
            &Secrets::default(),
            vec![at(2, 2), at(1, 1).help("right".to_owned()), at(2, 2)],
        );
        assert_eq!(
            errors.to_string(),
            "f:1:1: wrong\n  | ab\n  | ^\n  help: right\n\nf:2:2: wrong\n  | cd\n  |  ^\n"
        );
    }

    #[test]
    fn a_place_beyond_the_file_is_its_end() {
        let errors = Errors::new("f", "ab\n", &Secrets::default(), vec![at(1, 99), at(9, 9)]);
        let locations: Vec<_> = errors.problems().iter().filter_map(|p| p.location).collect();
        assert_eq!(locations, [FileLocation { line: 1, column: 3 }, FileLocation { line: 2, column: 1 }]);
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let line = format!("{}X{}", "a".repeat(500), "b".repeat(500));
        let text = Errors::new("f", &line, &Secrets::default(), vec![at(1, 501)]).to_string();
        let shown: Vec<_> = text.lines().collect();
        let caret = shown[2].chars().position(|c| c == '^').unwrap();
        assert_eq!(shown[1].chars().nth(caret), Some('X'));
        assert!(shown[1].chars().count() < 210);
    }

    #[test]
    fn control_characters_of_a_file_are_escaped_in_errors() {
        let problem = Problem::new(FileLocation { line: 1, column: 4 }, "`\u{1b}[2J` is wrong");
        let text = Errors::new("f", "\ta\u{1b}b", &Secrets::default(), vec![problem]).to_string();
        assert_eq!(text, "f:1:4: `\\u{1b}[2J` is wrong\n  |  a\u{fffd}b\n  |    ^\n");
    }
}
