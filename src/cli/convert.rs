//! `tollgate convert FILE`: converts a configuration of another proxy into `proxy.yaml`.

use std::{
    cell::RefCell,
    fs::File,
    io::{self, Write, stdout},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::ValueHint;
use url::Url;

use super::{failure::print_error, format::count, terminal::printable};
use crate::{
    config::{self, Lookup, SystemLookup},
    offline::convert::{Conversion, Note, Source, convert, old_proxy},
};

/// Not everything has an equal.
const UNCONVERTED: u8 = 3;
/// Notes that the summary lists. All of them are comments in the output.
const LISTED: usize = 20;

/// Convert a configuration of nginx, HAProxy, Traefik or Kong
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The result is proxy.yaml, with a comment at each thing that has no equal in Tollgate. Files that FILE includes \
        are read, too.\n\nExit code: 0 if everything has an equal, 3 if not, 1 if a file cannot be read, parsed or written, 2 if \
        an argument is wrong."
)]
pub(super) struct Args {
    /// The configuration file
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// The proxy that it is for: nginx, haproxy, traefik or kong [default: by its contents]
    #[arg(long, value_name = "PROXY", value_parser = clap::builder::PossibleValuesParser::new(Source::ALL.map(Source::name)),
          hide_possible_values = true)]
    from: Option<String>,
    /// Send every request to the old proxy at this URL, and only count: Tollgate in front, for a try
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url, value_parser = old_proxy)]
    in_front_of: Option<Url>,
    /// Write the result to a file, which must not exist
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
}

/// Converts the file, prints the result on stdout and a summary on stderr.
pub(super) fn run(args: &Args) -> ExitCode {
    let from = args.from.as_deref().and_then(|name| name.parse().ok());
    let conversion = match convert(&args.file, from, args.in_front_of.as_ref()) {
        Ok(conversion) => conversion,
        Err(error) => return fail(&error.to_string()),
    };
    // Without a route, it is a part of a file.
    let check = if conversion.routes == 0 { CheckResult::default() } else { check(&conversion.yaml) };
    let text = format!("{}{}", conversion.yaml, check.comments());
    let unwritten = |path: &Path, error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            format!("{} is there already, and is kept: name another file, or remove it", path.display())
        }
        _ => format!("{}: cannot be written: {error}", path.display()),
    };
    let written = match &args.output {
        Some(path) => File::create_new(path)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|error| unwritten(path, error)),
        None => stdout().lock().write_all(text.as_bytes()).map_err(|error| format!("stdout: {error}")),
    };
    if let Err(error) = written {
        return fail(&error);
    }
    print_error(printable_lines(&format!("{}{}", summary(&conversion), check.summary())));
    match conversion.unconverted.is_empty() && check.is_valid() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(UNCONVERTED),
    }
}

fn fail(error: &str) -> ExitCode {
    print_error(format_args!("tollgate: {}\n", printable(error)));
    ExitCode::FAILURE
}

fn printable_lines(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", printable(line))).collect()
}

fn summary(conversion: &Conversion) -> String {
    let Conversion { unconverted, routes, policies, .. } = conversion;
    let policies = if *policies == 1 { "1 policy".to_owned() } else { format!("{policies} policies") };
    let mut text = format!("converted {}, {policies}", count(*routes as u64, "route"));
    match unconverted.len() {
        0 => text += "; everything has an equal\n",
        1 => text += "; 1 thing has no equal:\n",
        number => text += &format!("; {number} things have no equal:\n"),
    }
    if *routes == 0 {
        text +=
            "there is nothing to proxy: the result is a part of a file, without `upstreams` and `routes`\n";
    }
    for Note { place, text: note } in unconverted.iter().take(LISTED) {
        text += &format!("  {place}: {note}\n");
    }
    if let Some(more) = unconverted.len().checked_sub(LISTED).filter(|more| *more > 0) {
        text += &format!("  and {more} more: see the comments in the result\n");
    }
    text
}

/// The output of `tollgate check` for a result.
#[derive(Debug, Default)]
struct CheckResult {
    /// Files that the result names, and that are not there. They may be on another machine.
    missing: Vec<PathBuf>,
    /// Defects of the conversion.
    errors: Vec<String>,
}

/// Checks a result as `tollgate check` does.
fn check(yaml: &str) -> CheckResult {
    let lookup = NotingLookup::default();
    let errors = match config::parse("proxy.yaml", yaml, &lookup) {
        Ok(_) => return CheckResult::default(),
        Err(errors) => errors,
    };
    let missing = lookup.missing.into_inner();
    let is_missing =
        |message: &str| missing.iter().any(|path: &PathBuf| message.contains(&*path.to_string_lossy()));
    let errors = errors.each().filter(|(problem, _)| !is_missing(&problem.message));
    let errors = errors.map(|(_, text)| text).collect();
    CheckResult { errors, missing }
}

impl CheckResult {
    fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }

    /// The errors as comments at the end of the result.
    fn comments(&self) -> String {
        let mut text = String::new();
        if !self.errors.is_empty() {
            text += "\n# Tollgate cannot load this file. That is a defect of `tollgate convert`: please report it.\n";
        }
        for line in self.errors.iter().flat_map(|error| error.lines()) {
            text += &format!("# {line}\n");
        }
        text
    }

    fn summary(&self) -> String {
        let mut text = String::new();
        for path in &self.missing {
            text += &format!("not on this machine: {}\n", path.display());
        }
        if !self.errors.is_empty() {
            text += "the result has errors, which is a defect of `tollgate convert`; please report it:\n";
            text += &self.errors.concat();
        }
        text
    }
}

/// Looks up on this machine, and notes files that cannot be read.
#[derive(Default)]
struct NotingLookup {
    missing: RefCell<Vec<PathBuf>>,
}

impl NotingLookup {
    fn noting<T>(&self, path: &Path, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|_| {
            let mut missing = self.missing.borrow_mut();
            if !missing.iter().any(|known| known == path) {
                missing.push(path.to_owned());
            }
        })
    }
}

impl Lookup for NotingLookup {
    fn variable(&self, name: &str) -> Option<String> {
        SystemLookup.variable(name)
    }

    fn read_text(&self, path: &Path) -> io::Result<String> {
        self.noting(path, SystemLookup.read_text(path))
    }

    fn read_bytes(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.noting(path, SystemLookup.read_bytes(path))
    }

    fn is_directory(&self, path: &Path) -> io::Result<bool> {
        SystemLookup.is_directory(path)
    }
}
