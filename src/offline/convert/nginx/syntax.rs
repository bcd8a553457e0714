//! The grammar of nginx.conf: words, directives, blocks, and included files.

use std::{
    path::{Path, PathBuf},
    rc::Rc,
};

use crate::{
    file::matching_files,
    offline::convert::{ConvertError, SourceLine, read},
};

/// Bounds of a configuration with all its included files.
const MOST_DIRECTIVES: usize = 500_000;
const MOST_FILES: usize = 2_000;
const DEEPEST_BLOCK: usize = 64;
const DEEPEST_INCLUDE: usize = 20;

/// A directive, with its block if it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Directive {
    pub(super) name: String,
    /// Without quotes and escapes. Variables are not expanded.
    pub(super) arguments: Vec<String>,
    pub(super) block: Option<Vec<Directive>>,
    pub(super) place: SourceLine,
}

impl Directive {
    /// The argument at `index`, or an empty text.
    pub(super) fn argument(&self, index: usize) -> &str {
        self.arguments.get(index).map_or("", String::as_str)
    }

    pub(super) fn children(&self) -> &[Directive] {
        self.block.as_deref().unwrap_or_default()
    }

    /// The directive as one line, for a comment. A block is left out.
    pub(super) fn shown(&self) -> String {
        const MOST_CHARACTERS: usize = 120;
        let text = [&self.name].into_iter().chain(&self.arguments).cloned().collect::<Vec<_>>().join(" ");
        match text.chars().count() > MOST_CHARACTERS {
            true => text.chars().take(MOST_CHARACTERS).chain(['…']).collect(),
            false => text,
        }
    }
}

/// Parses `text`, the file at `path`, with the files that it includes in the place of `include`. Relative names of those
/// begin at the directory of `path`. An `include` stays if its file is missing or cannot be read.
///
/// # Errors
/// One of the files cannot be parsed, or includes itself.
pub(super) fn parse(text: &str, path: &Path) -> Result<Vec<Directive>, ConvertError> {
    let directory = path.parent().unwrap_or(Path::new("")).to_owned();
    let mut parser = Parser { directory, files: 1, directives: 0, open: vec![path.to_owned()] };
    parser.file(text, &path.display().to_string(), 0)
}

struct Parser {
    directory: PathBuf,
    files: usize,
    directives: usize,
    /// The files that are being read: the main one, the one that it includes, and so on.
    open: Vec<PathBuf>,
}

impl Parser {
    fn file(&mut self, text: &str, name: &str, depth: usize) -> Result<Vec<Directive>, ConvertError> {
        let mut words = Words::new(text, name);
        self.block(&mut words, depth, None)
    }

    /// The directives up to the end of a block, which began at `opened`, or of the file.
    fn block(
        &mut self,
        words: &mut Words<'_>,
        depth: usize,
        opened: Option<SyntaxPosition>,
    ) -> Result<Vec<Directive>, ConvertError> {
        let mut directives = Vec::new();
        if depth > DEEPEST_BLOCK {
            return Err(words.error(words.position, format!("blocks are nested deeper than {DEEPEST_BLOCK}")));
        }
        loop {
            let start = words.next_position();
            let (arguments, end) = words.statement()?;
            let mut arguments = arguments.into_iter();
            let Some(name) = arguments.next() else {
                return match (end, opened) {
                    (StatementEnd::Close, Some(_)) | (StatementEnd::File, None) => Ok(directives),
                    (StatementEnd::Close, None) => Err(words.error(start, "this `}` closes no block")),
                    (StatementEnd::File, Some(opened)) => {
                        Err(words.error(opened, "this block is not closed"))
                    }
                    (StatementEnd::Semicolon, _) => {
                        Err(words.error(start, "a directive is missing before this `;`"))
                    }
                    (StatementEnd::Open, _) => {
                        Err(words.error(start, "a directive is missing before this `{`"))
                    }
                };
            };
            self.directives += 1;
            if self.directives > MOST_DIRECTIVES {
                return Err(words.error(start, format!("there are more than {MOST_DIRECTIVES} directives")));
            }
            let place = SourceLine { file: words.name.to_string(), line: start.line };
            let mut directive = Directive { name, arguments: arguments.collect(), block: None, place };
            match end {
                StatementEnd::Semicolon => {}
                StatementEnd::Open if directive.name.ends_with("_by_lua_block") => {
                    words.skip_lua(start)?;
                    directive.block = Some(Vec::new());
                }
                StatementEnd::Open => directive.block = Some(self.block(words, depth + 1, Some(start))?),
                StatementEnd::Close => {
                    return Err(words.error(start, format!("`{}` lacks its `;`", directive.name)));
                }
                StatementEnd::File => {
                    return Err(words.error(start, format!("`{}` lacks its `;`", directive.name)));
                }
            }
            match directive.name == "include" && directive.block.is_none() {
                true => self.include(directive, words, start, depth, &mut directives)?,
                false => directives.push(directive),
            }
        }
    }

    /// Adds the directives of the files that `include` names.
    fn include(
        &mut self,
        include: Directive,
        words: &Words<'_>,
        start: SyntaxPosition,
        depth: usize,
        directives: &mut Vec<Directive>,
    ) -> Result<(), ConvertError> {
        let pattern = self.directory.join(include.argument(0));
        let paths = matching_files(&pattern);
        if paths.is_empty() {
            // A pattern need not match, but its directory may be missing here alone.
            let is_pattern = include.argument(0).contains(['*', '?', '[']);
            if !is_pattern || !pattern.parent().is_some_and(Path::is_dir) {
                directives.push(include);
            }
            return Ok(());
        }
        for path in paths {
            if self.open.contains(&path) {
                return Err(words.error(start, format!("`{}` includes itself", path.display())));
            }
            self.files += 1;
            if self.open.len() > DEEPEST_INCLUDE || self.files > MOST_FILES {
                return Err(words.error(start, "too many files are included"));
            }
            let Ok(text) = read(&path) else {
                directives.push(include.clone());
                continue;
            };
            self.open.push(path.clone());
            directives.extend(self.file(&text, &path.display().to_string(), depth)?);
            self.open.pop();
        }
        Ok(())
    }
}

/// What ends a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StatementEnd {
    Semicolon,
    Open,
    Close,
    File,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SyntaxPosition {
    line: usize,
    column: usize,
}

/// Splits a text into words.
struct Words<'t> {
    name: Rc<str>,
    rest: std::iter::Peekable<std::str::Chars<'t>>,
    position: SyntaxPosition,
}

impl<'t> Words<'t> {
    fn new(text: &'t str, name: &str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        Self {
            name: name.into(),
            rest: text.chars().peekable(),
            position: SyntaxPosition { line: 1, column: 1 },
        }
    }

    fn error(&self, position: SyntaxPosition, message: impl Into<String>) -> ConvertError {
        let SyntaxPosition { line, column } = position;
        ConvertError::Syntax { file: self.name.to_string(), line, column, message: message.into() }
    }

    fn next(&mut self) -> Option<char> {
        let next = self.rest.next()?;
        match next {
            '\n' => self.position = SyntaxPosition { line: self.position.line + 1, column: 1 },
            _ => self.position.column += 1,
        }
        Some(next)
    }

    /// The position of the next word or mark, behind spaces and comments.
    fn next_position(&mut self) -> SyntaxPosition {
        while let Some(&next) = self.rest.peek() {
            match next {
                '#' => while self.rest.peek().is_some_and(|c| *c != '\n') && self.next().is_some() {},
                c if c.is_whitespace() => {
                    self.next();
                }
                _ => break,
            }
        }
        self.position
    }

    /// The words up to the next mark.
    fn statement(&mut self) -> Result<(Vec<String>, StatementEnd), ConvertError> {
        let mut words = Vec::new();
        loop {
            let start = self.next_position();
            let Some(&next) = self.rest.peek() else { return Ok((words, StatementEnd::File)) };
            let end = match next {
                ';' => Some(StatementEnd::Semicolon),
                '{' => Some(StatementEnd::Open),
                '}' => Some(StatementEnd::Close),
                _ => None,
            };
            if let Some(end) = end {
                // A `}` behind words ends the block before its statement is complete; the caller reports it.
                self.next();
                return Ok((words, end));
            }
            words.push(match next {
                '"' | '\'' => self.quoted(start)?,
                _ => self.bare(),
            });
        }
    }

    fn quoted(&mut self, start: SyntaxPosition) -> Result<String, ConvertError> {
        let (quote, mut word) = (self.next(), String::new());
        loop {
            match self.next() {
                None => return Err(self.error(start, "this quote is not closed")),
                Some('\\') => self.escape(&mut word),
                next if next == quote => break,
                Some(next) => word.push(next),
            }
        }
        match self.rest.peek() {
            None => Ok(word),
            Some(c) if c.is_whitespace() || matches!(c, ';' | '{' | ')') => {
                if *c == ')' {
                    // `if ($a = "b")`: the parenthesis belongs to the word.
                    word.push_str(&self.bare());
                }
                Ok(word)
            }
            Some(c) => {
                let message = format!("`{c}` follows a closing quote");
                Err(self.error(self.position, message))
            }
        }
    }

    fn bare(&mut self) -> String {
        let mut word = String::new();
        while let Some(&next) = self.rest.peek() {
            match next {
                c if c.is_whitespace() || c == ';' => break,
                // `${name}` is a variable, and `{` elsewhere begins a block.
                '{' if !word.ends_with('$') => break,
                '{' => {
                    while let Some(&next) = self.rest.peek() {
                        if next.is_whitespace() || next == ';' {
                            break;
                        }
                        word.push(next);
                        self.next();
                        if next == '}' {
                            break;
                        }
                    }
                }
                '\\' => {
                    self.next();
                    self.escape(&mut word);
                }
                next => {
                    word.push(next);
                    self.next();
                }
            }
        }
        word
    }

    /// Adds the character behind a backslash. Only some lose the backslash: it stays in `\.` of an expression.
    fn escape(&mut self, word: &mut String) {
        match self.next() {
            Some(c @ ('"' | '\'' | '\\')) => word.push(c),
            Some('t') => word.push('\t'),
            Some('r') => word.push('\r'),
            Some('n') => word.push('\n'),
            Some(c) => word.extend(['\\', c]),
            None => word.push('\\'),
        }
    }

    /// Skips a block of Lua, whose `{` was read, to its `}`.
    fn skip_lua(&mut self, start: SyntaxPosition) -> Result<(), ConvertError> {
        let mut open = 1_usize;
        while let Some(next) = self.next() {
            match next {
                '{' => open += 1,
                '}' if open == 1 => return Ok(()),
                '}' => open -= 1,
                '-' if self.rest.peek() == Some(&'-') => {
                    self.next();
                    let is_long = self.rest.peek() == Some(&'[') && self.next().is_some() && self.skip_long();
                    if !is_long {
                        while self.rest.peek().is_some_and(|c| *c != '\n') && self.next().is_some() {}
                    }
                }
                '[' => drop(self.skip_long()),
                '"' | '\'' => loop {
                    match self.next() {
                        Some('\\') => {
                            self.next();
                        }
                        None | Some('\n') => break,
                        Some(c) if c == next => break,
                        Some(_) => {}
                    }
                },
                _ => {}
            }
        }
        Err(self.error(start, "this block of Lua is not closed"))
    }

    /// Skips `[[…]]`, `[=[…]=]` and so on, of which the first bracket was read. Returns whether it is one.
    fn skip_long(&mut self) -> bool {
        let mut ahead = self.rest.clone();
        let level = std::iter::from_fn(|| ahead.next_if_eq(&'=')).count();
        if ahead.next() != Some('[') {
            return false;
        }
        for _ in 0..=level {
            self.next();
        }
        let end = format!("]{}]", "=".repeat(level));
        let mut last = String::new();
        while let Some(c) = self.next() {
            last.push(c);
            if last.ends_with(&end) {
                break;
            }
            if last.len() > 4 * end.len() {
                last = last.chars().rev().take(end.len()).collect::<Vec<_>>().into_iter().rev().collect();
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Result<Vec<Directive>, String> {
        parse(text, Path::new("/nowhere/nginx.conf")).map_err(|error| error.to_string())
    }

    /// Each directive as `name[arguments]{block}`.
    fn shape(directives: &[Directive]) -> String {
        let one = |directive: &Directive| {
            let block = directive.block.as_ref().map(|block| format!("{{{}}}", shape(block)));
            let arguments = directive.arguments.join("|");
            format!("{}[{arguments}]{}", directive.name, block.unwrap_or_default())
        };
        directives.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn words_quotes_and_blocks() {
        for (text, expected) in [
            ("a;", "a[]"),
            ("a b  c ; # d\nb;", "a[b|c] b[]"),
            ("a { b c; }", "a[]{b[c]}"),
            ("a{b c;}", "a[]{b[c]}"),
            ("a \"b c\" 'd \"e';", "a[b c|d \"e]"),
            (r#"a "b\"c\n";"#, "a[b\"c\n]"),
            (r"location ~ \.php$ { }", r"location[~|\.php$]{}"),
            (r"a b\ c b\;c;", r"a[b\ c|b\;c]"),
            ("a ${b}c$d;", "a[${b}c$d]"),
            ("if ($a = \"b\") { c; }", "if[($a|=|b)]{c[]}"),
            ("map $a $b { default \"\"; ~^x 1; }", "map[$a|$b]{default[] ~^x[1]}"),
            ("a 'b#c' d#e;", "a[b#c|d#e]"),
            ("a \"\";", "a[]"),
            ("\u{feff}a;", "a[]"),
            ("rewrite ^/(.*)$ \"/x/$1\" break;", "rewrite[^/(.*)$|/x/$1|break]"),
            (
                "content_by_lua_block { local a = { '}' } -- }\n x = [[ } ]] } b;",
                "content_by_lua_block[]{} b[]",
            ),
            (
                "x_by_lua_block { --[==[ } ]] ]==] s = [=[ ]] } ]=] --[ }\n a[b[1]] = [[ ' ]] } b;",
                "x_by_lua_block[]{} b[]",
            ),
        ] {
            assert_eq!(parsed(text).map(|directives| shape(&directives)), Ok(expected.to_owned()), "{text}");
        }
        assert_eq!(parsed("a \"\";").unwrap()[0].arguments, [""]);
    }

    #[test]
    fn errors_have_a_place() {
        for (text, message) in [
            ("a", "1:1: `a` lacks its `;`"),
            ("a;\n b {\n c;", "2:2: this block is not closed"),
            ("a; }", "1:4: this `}` closes no block"),
            ("a { b }", "1:5: `b` lacks its `;`"),
            ("a \"b;\n", "1:3: this quote is not closed"),
            ("a \"b\"c;", "1:6: `c` follows a closing quote"),
            (";", "1:1: a directive is missing before this `;`"),
            ("{", "1:1: a directive is missing before this `{`"),
            ("content_by_lua_block { x", "1:1: this block of Lua is not closed"),
        ] {
            assert_eq!(parsed(text), Err(format!("/nowhere/nginx.conf:{message}")), "{text}");
        }
        let deep = "a { ".repeat(1000);
        assert!(parsed(&deep).unwrap_err().ends_with("blocks are nested deeper than 64"));
    }

    #[test]
    fn included_files_stand_in_the_place_of_include() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        fs::create_dir(directory.path().join("conf.d")).unwrap();
        write("conf.d/b.conf", "b;");
        write("conf.d/a.conf", "a;\n\nc;");
        write("conf.d/.hidden.conf", "hidden;");
        write("conf.d/x.txt", "x;");
        write("loop.conf", "include loop2.conf;");
        write("loop2.conf", "include loop.conf;");
        let read = |text: &str| parse(text, &directory.path().join("nginx.conf"));
        let text =
            "http { include conf.d/*.conf; d; } include none.conf; include none/*.conf; include *.none;";
        let parsed = read(text).unwrap();
        let missing = "include[none.conf] include[none/*.conf]";
        assert_eq!(shape(&parsed), format!("http[]{{a[] c[] b[] d[]}} {missing}"));
        let c = &parsed[0].children()[1];
        assert_eq!(c.place.line, 3);
        assert!(c.place.file.ends_with("conf.d/a.conf"));
        let error = read("include loop.conf;").unwrap_err().to_string();
        assert!(
            error.contains("loop2.conf:1:1: ") && error.ends_with("loop.conf` includes itself"),
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-z{};#\"'\\\\ \n$~*()-]{0,80}|\\PC{0,40}") {
            let _ = parsed(&text);
        }
    }
}
