//! `tollgate keys`: the API keys of customers.

mod change;
mod create;
mod export;
mod file;
mod import;
mod list;

use std::process::ExitCode;

use clap::Subcommand;

use super::{
    client::AdminError,
    failure::print_error,
    terminal::{printable, printable_lines},
};
use crate::admin::dto::{ChangedApiKey, MadeApiKey};

/// Make, list, change, rotate, revoke, import and export API keys
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: KeysCommand,
}

#[derive(Debug, Clone, Subcommand)]
enum KeysCommand {
    /// Make a key, and print it: it can't be read again
    Create(create::CreateArgs),
    /// List keys
    List(list::ListArgs),
    /// Show a key
    Show(list::ShowArgs),
    /// Change the plan, the name, the labels, the routes or the expiry of a key
    Set(change::SetArgs),
    /// Give a key another secret, and print it; the old one stays valid for some time
    Rotate(change::RotateArgs),
    /// Revoke a key on every instance, and for good
    Revoke(change::RevokeArgs),
    /// Delete a key: as revoke, but it is not listed any more
    Delete(change::DeleteArgs),
    /// Import keys that were made elsewhere, by their text or their hash
    Import(import::ImportArgs),
    /// Print the keys with their hashes, as a table or a file that can be imported or used elsewhere
    Export(export::ExportArgs),
}

/// Runs the command that the arguments name.
pub(super) fn run(args: &Args) -> ExitCode {
    match &args.command {
        KeysCommand::Create(args) => create::run(args),
        KeysCommand::List(args) => list::list(args),
        KeysCommand::Show(args) => list::show(args),
        KeysCommand::Set(args) => change::set(args),
        KeysCommand::Rotate(args) => change::rotate(args),
        KeysCommand::Revoke(args) => change::revoke(args),
        KeysCommand::Delete(args) => change::delete(args),
        KeysCommand::Import(args) => import::run(args),
        KeysCommand::Export(args) => export::run(args),
    }
}

/// Prints a new key on standard output, alone, for scripts, and further messages on standard error.
fn print_key(made: Result<(String, String), AdminError>) -> ExitCode {
    super::client::print_result(made.map(|(key, notes)| {
        print_error(notes);
        key
    }))
}

/// The messages about a new key, beside its text.
fn notes(MadeApiKey { changed, .. }: &MadeApiKey, what: &str) -> String {
    let ChangedApiKey { record, warnings, shared } = changed;
    let (id, customer) = (printable(&record.id), printable(&record.customer));
    let mut notes = format!("Key {id} of {customer} {what}. It can't be shown again.\n");
    notes += &warned(warnings);
    notes + super::client::unshared(*shared)
}

/// Warnings, one a line.
fn warned(warnings: &[String]) -> String {
    warnings.iter().map(|warning| format!("warning: {}\n", printable_lines(warning))).collect()
}

/// Parses `NAME=VALUE`.
fn label(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}
