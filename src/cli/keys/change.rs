//! `tollgate keys set`, `rotate`, `revoke` and `delete`.

use std::{path::PathBuf, process::ExitCode};

use clap::ValueHint;
use http::Method;

use super::{
    super::{
        client::{self, AdminError, EXIT_CODES, Options, unshared},
        terminal::printable,
    },
    file, label, notes, print_key, warned,
};
use crate::{
    admin::dto::{ApiKeyChange, ChangedApiKey, DeletedApiKey, MadeApiKey, Revocation, Rotation},
    telemetry::time,
};

fn path(id: &str, action: &str) -> String {
    format!("/v1/keys/{}{action}", client::percent_encoded(id))
}

/// Change the plan, the name, the labels, the routes or the expiry of a key
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXIT_CODES)]
#[group(id = "changes", required = true, multiple = true)]
pub(super) struct ChangedFields {
    /// The plan
    #[arg(long, value_name = "NAME", conflicts_with = "no_plan", value_hint = ValueHint::Other)]
    pub plan: Option<String>,
    /// No plan: the policies' own limits hold
    #[arg(long)]
    pub no_plan: bool,
    /// What you call it
    #[arg(long, value_hint = ValueHint::Other)]
    pub name: Option<String>,
    /// When it expires: 90d, 2027-01-31, 2027-01-31T12:00:00Z, or never
    #[arg(long, value_name = "TIME", value_hint = ValueHint::Other)]
    pub expires: Option<String>,
    /// The name of a route that it is valid for, in place of those that it has; may be given several times
    #[arg(long = "route", value_name = "NAME", conflicts_with = "all_routes", value_hint = ValueHint::Other)]
    pub routes: Vec<String>,
    /// It is valid for all routes
    #[arg(long)]
    pub all_routes: bool,
    /// A label to add or to change; may be given several times
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label, value_hint = ValueHint::Other)]
    pub labels: Vec<(String, String)>,
    /// A label to remove; may be given several times
    #[arg(long = "remove-label", value_name = "NAME", value_hint = ValueHint::Other)]
    pub removed_labels: Vec<String>,
}

/// Change the plan, the name, the labels, the routes or the expiry of a key
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct SetArgs {
    /// The ID of the key
    #[arg(value_hint = ValueHint::Other)]
    pub id: String,
    #[command(flatten)]
    pub changes: ChangedFields,
    /// Only if the key has this version, as `tollgate keys show` prints it: nobody has changed it since
    #[arg(long, value_name = "VERSION", value_hint = ValueHint::Other)]
    pub if_match: Option<String>,
    #[command(flatten)]
    pub options: Options,
}

/// Sends the request and prints the response.
pub(super) fn set(args: &SetArgs) -> ExitCode {
    client::print_result(set_output(args))
}

fn set_output(SetArgs { id, changes, if_match, options }: &SetArgs) -> Result<String, AdminError> {
    let ChangedFields { plan, no_plan, name, expires, routes, all_routes, labels, removed_labels } =
        changes.clone();
    let added = labels.into_iter().map(|(name, value)| (name, Some(value)));
    let change = ApiKeyChange {
        plan: plan.map(Some).or_else(|| no_plan.then_some(None)),
        name,
        labels: removed_labels.into_iter().map(|name| (name, None)).chain(added).collect(),
        routes: (all_routes || !routes.is_empty()).then_some(routes),
        expires: expires.map(|time| Some(time).filter(|time| time != "never")),
    };
    let target = (&*path(id, ""), if_match.as_deref());
    client::change_json(options, Method::PATCH, target, &change, |changed: &ChangedApiKey| {
        let place = if changed.shared { "" } else { " at this instance" };
        let said = format!("Key {} was changed{place}.\n", printable(&changed.record.id));
        said + &warned(&changed.warnings) + unshared(changed.shared)
    })
}

/// Give a key another secret, and print it; the old one stays valid for some time
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct RotateArgs {
    /// The ID of the key
    #[arg(value_hint = ValueHint::Other)]
    pub id: String,
    /// How long the old secret stays valid, 0s to 366d; 0: it is not valid any more
    #[arg(long, value_name = "DURATION", default_value = "24h", value_hint = ValueHint::Other)]
    pub overlap: String,
    /// Change the key in this file, without a running Tollgate; unless the overlap is 0, the old secret stays in it
    #[arg(long, value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,
    /// The first part of a key that is written into a file, as api_keys.prefix
    #[arg(long, default_value = "tgk", requires = "file", value_hint = ValueHint::Other)]
    pub prefix: String,
    /// Only if the key has this version, as `tollgate keys show` prints it: nobody has changed it since
    #[arg(long, value_name = "VERSION", conflicts_with = "file", value_hint = ValueHint::Other)]
    pub if_match: Option<String>,
    #[command(flatten)]
    pub options: Options,
}

/// Sends the request and prints the new key.
pub(super) fn rotate(args: &RotateArgs) -> ExitCode {
    print_key(rotate_output(args))
}

fn rotate_output(args: &RotateArgs) -> Result<(String, String), AdminError> {
    let RotateArgs { id, overlap, file, prefix, if_match, options } = args;
    let overlap = if overlap == "0" { "0s".to_owned() } else { overlap.clone() };
    if let Some(path) = file {
        let lasts = time::parse_duration(&overlap);
        let wrong =
            || AdminError::WrongArgument(format!("--overlap: {overlap} is not a duration, such as 24h"));
        return file::rotate(path, id, prefix, lasts.ok_or_else(wrong)? > 0);
    }
    let what = match overlap.as_str() {
        "0s" => "was rotated; the old secret is not valid any more".to_owned(),
        overlap => format!("was rotated; the old secret is valid for another {overlap}"),
    };
    let (mut said, rotation) = (String::new(), Rotation { overlap });
    let target = (&*path(id, "/rotate"), if_match.as_deref());
    let key = client::change_json(options, Method::POST, target, &rotation, |made: &MadeApiKey| {
        said = notes(made, &what);
        format!("{}\n", *made.key.0)
    })?;
    Ok((key, said))
}

/// Revoke a key on every instance, and for good
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct RevokeArgs {
    /// The ID of the key
    #[arg(value_hint = ValueHint::Other)]
    pub id: String,
    /// A note for the list of keys and the audit log, or for a comment in the file, up to 256 characters
    #[arg(long, default_value = "", value_hint = ValueHint::Other)]
    pub reason: String,
    /// Remove the key from this file, without a running Tollgate
    #[arg(long, value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,
    /// Only if the key has this version, as `tollgate keys show` prints it: nobody has changed it since
    #[arg(long, value_name = "VERSION", conflicts_with = "file", value_hint = ValueHint::Other)]
    pub if_match: Option<String>,
    #[command(flatten)]
    pub options: Options,
}

/// Sends the request and prints the response.
pub(super) fn revoke(args: &RevokeArgs) -> ExitCode {
    client::print_result(revoke_output(args))
}

fn revoke_output(
    RevokeArgs { id, reason, file, if_match, options }: &RevokeArgs,
) -> Result<String, AdminError> {
    if let Some(path) = file {
        return file::revoke(path, id, reason);
    }
    let revocation = Revocation { reason: reason.clone() };
    let target = (&*path(id, "/revoke"), if_match.as_deref());
    client::change_json(options, Method::POST, target, &revocation, |changed: &ChangedApiKey| {
        let place = if changed.shared { "" } else { " at this instance" };
        let (id, customer) = (printable(&changed.record.id), printable(&changed.record.customer));
        format!("Key {id} of {customer} is revoked{place}.\n{}", unshared(changed.shared))
    })
}

/// Delete a key: as revoke, but it is not listed any more
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct DeleteArgs {
    /// The ID of the key
    #[arg(value_hint = ValueHint::Other)]
    pub id: String,
    #[command(flatten)]
    pub options: Options,
}

/// Sends the request and prints the response.
pub(super) fn delete(args: &DeleteArgs) -> ExitCode {
    let show = |deleted: &DeletedApiKey| {
        let place = if deleted.shared { "" } else { " at this instance" };
        format!("Key {} is deleted{place}.\n{}", printable(&deleted.id), unshared(deleted.shared))
    };
    client::print_result(client::request(&args.options, Method::DELETE, &path(&args.id, ""), show))
}
