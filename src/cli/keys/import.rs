//! `tollgate keys import FILE.csv`: keys that were made elsewhere.

use std::{
    fs::File,
    io::{self, Read, stdin},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::ValueHint;
use http::Method;
use jiff::Timestamp;
use zeroize::Zeroizing;

use super::{
    super::{
        client::{self, AdminError, EXIT_CODES, Options, unshared},
        failure::{WRONG_ARGUMENTS, print_error},
        format::count,
        terminal::printable,
    },
    warned,
};
use crate::{
    admin::dto::{Import, Imported},
    api_keys::{ImportRow, LineError, check_rows, describe, read_csv},
};

/// Longest file, in bytes.
const MAX_FILE: u64 = 32 << 20;

/// Import keys that were made elsewhere, by their text or their hash
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = format!("The first line of the file names its columns: `customer`, `key` or `hash`, and if you like `id`, `plan`, `name`, \
        `expires`, `routes` and `labels`. A key has 16 to 512 characters, a hash is `sha256:` and 64 hexadecimal digits; several \
        routes or labels (`NAME=VALUE`) are separated by `;`. Keys are hashed before they leave this machine. Either all lines are \
        imported or, with an error in one of them, none.\n\n{EXIT_CODES}")
)]
pub(super) struct ImportArgs {
    /// The file in CSV; - for standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    #[command(flatten)]
    pub options: Options,
}

/// Why a file can't be imported.
enum ImportRefusal {
    Lines(Vec<LineError>),
    Admin(AdminError),
}

/// Reads the file, sends the keys and prints the response.
pub(super) fn run(args: &ImportArgs) -> ExitCode {
    match output(args) {
        Ok(text) => client::print_result(Ok(text)),
        Err(ImportRefusal::Admin(error)) => client::print_result(Err(error)),
        Err(ImportRefusal::Lines(errors)) => {
            let name = args.file.display().to_string();
            for line in describe(&errors) {
                print_error(format_args!("tollgate: {}: {}\n", printable(&name), printable(&line)));
            }
            ExitCode::from(WRONG_ARGUMENTS)
        }
    }
}

fn output(args: &ImportArgs) -> Result<String, ImportRefusal> {
    let table = read(&args.file).map_err(|error| {
        let error = io::Error::new(error.kind(), format!("can't read {}: {error}", args.file.display()));
        ImportRefusal::Admin(error.into())
    })?;
    let rows = read_csv(&table).map_err(ImportRefusal::Lines)?;
    drop(table);
    check_rows(&rows, Timestamp::now().as_microsecond()).map_err(ImportRefusal::Lines)?;
    let import = Import { keys: rows.into_iter().map(ImportRow::without_key).collect() };
    let length = serde_json::to_vec(&import)
        .map_err(|error| ImportRefusal::Admin(io::Error::from(error).into()))?
        .len();
    if length as u64 > MAX_FILE {
        let words =
            format!("{} has more than 32 MiB as JSON: import it in several parts", args.file.display());
        return Err(ImportRefusal::Admin(AdminError::WrongArgument(words)));
    }
    let show = |imported: &Imported| {
        let place = if imported.shared { "" } else { " at this instance" };
        let mut said = format!("{} imported{place}.\n", count(imported.imported, "key"));
        if imported.unchanged > 0 {
            said += &format!("{} there already, and left unchanged.\n", count(imported.unchanged, "key"));
        }
        said + &warned(&imported.warnings) + unshared(imported.shared)
    };
    client::post_json(&args.options, Method::POST, "/v1/keys/import", &import, show)
        .map_err(ImportRefusal::Admin)
}

fn read(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    let from: Box<dyn Read> = match path == Path::new("-") {
        true => Box::new(stdin()),
        false => Box::new(File::open(path)?),
    };
    let mut table = Zeroizing::new(Vec::new());
    from.take(MAX_FILE + 1).read_to_end(&mut table)?;
    match table.len() as u64 > MAX_FILE {
        true => Err(io::Error::other("it has more than 32 MiB: import it in several parts")),
        false => Ok(table),
    }
}
