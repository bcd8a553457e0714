//! `tollgate keys create`: makes a key.

use std::{path::PathBuf, process::ExitCode};

use clap::ValueHint;
use http::Method;

use super::{
    super::client::{self, AdminError, EXIT_CODES, Options},
    file, label, notes, print_key,
};
use crate::{
    admin::dto::{MadeApiKey, NewApiKey},
    api_keys::operations::KeyFields,
};

/// Make a key, and print it: it can't be read again
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = format!("The key is printed alone on standard output, and its ID on standard error. Only its SHA-256 is kept.\n\n{EXIT_CODES}")
)]
pub(super) struct CreateArgs {
    /// Whose key it is; limits by `customer` hold over all keys of a customer
    #[arg(long, value_name = "NAME", value_hint = ValueHint::Other)]
    pub customer: String,
    /// The plan; without one, the policies' own limits hold
    #[arg(long, value_name = "NAME", value_hint = ValueHint::Other)]
    pub plan: Option<String>,
    /// What you call it, such as CI
    #[arg(long, default_value = "", value_hint = ValueHint::Other)]
    pub name: String,
    /// When it expires: 90d, 2027-01-31 or 2027-01-31T12:00:00Z [default: never]
    #[arg(long, value_name = "TIME", value_hint = ValueHint::Other)]
    pub expires: Option<String>,
    /// The name of a route that it is valid for; may be given several times [default: all routes]
    #[arg(long = "route", value_name = "NAME", value_hint = ValueHint::Other)]
    pub routes: Vec<String>,
    /// A label; may be given several times
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label, value_hint = ValueHint::Other)]
    pub labels: Vec<(String, String)>,
    /// Its ID, which is no secret [default: random]
    #[arg(long, value_hint = ValueHint::Other)]
    pub id: Option<String>,
    /// Write the key into this file, as api_keys.file names it, without a running Tollgate
    #[arg(long, value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,
    /// The first part of a key that is written into a file, as api_keys.prefix
    #[arg(long, default_value = "tgk", requires = "file", value_hint = ValueHint::Other)]
    pub prefix: String,
    #[command(flatten)]
    pub options: Options,
}

/// Makes the key and prints it.
pub(super) fn run(args: &CreateArgs) -> ExitCode {
    print_key(output(args))
}

fn output(args: &CreateArgs) -> Result<(String, String), AdminError> {
    let CreateArgs { customer, plan, name, expires, routes, labels, id, file, prefix, options } =
        args.clone();
    let labels = labels.into_iter().collect();
    if let Some(path) = file {
        let (id, plan) = (id.map(Into::into), plan.map(Into::into));
        let (customer, name) = (customer.into(), name.into());
        let fields = KeyFields { id, customer, plan, name, labels, routes, created: None, expires: None };
        return file::create(&path, fields, expires.as_deref(), &prefix);
    }
    let new = NewApiKey { id, customer, plan, name, labels, routes, expires };
    let mut said = String::new();
    let key = client::post_json(&options, Method::POST, "/v1/keys", &new, |made: &MadeApiKey| {
        said = notes(made, "was made");
        format!("{}\n", *made.key.0)
    })?;
    Ok((key, said))
}
