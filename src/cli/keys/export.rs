//! `tollgate keys export`: the keys with their hashes.

use std::{
    io::{self, IsTerminal, stdout},
    process::ExitCode,
};

use clap::{ValueEnum, ValueHint};
use http::Method;
use jiff::Timestamp;
use tokio::runtime;

use super::super::{
    client::{self, AdminConnection, AdminError, EXIT_CODES, Options, with_timeout},
    terminal::{printable_json, printable_lines},
};
use crate::{
    admin::dto,
    api_keys::{ApiKey, KeyHash, KeySecret, KeyState, file_text, write_csv},
};

/// Keys of one request.
const PAGE: &str = "1000";

/// Print the keys with their hashes, as a table or a file that can be imported or used elsewhere
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = format!("Revoked and expired keys are left out: imported, they would be valid again.\n\n{EXIT_CODES}")
)]
pub(super) struct ExportArgs {
    /// csv, as `tollgate keys import` reads it; or yaml, as `api_keys.file` names it
    #[arg(long, value_enum, default_value = "csv")]
    pub format: ExportFormat,
    /// Only keys of this customer
    #[arg(long, value_name = "NAME", value_hint = ValueHint::Other)]
    pub customer: Option<String>,
    /// Only keys of this plan
    #[arg(long, value_name = "NAME", value_hint = ValueHint::Other)]
    pub plan: Option<String>,
    #[command(flatten)]
    pub options: Options,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ExportFormat {
    Csv,
    Yaml,
}

/// Requests all pages and prints the keys.
pub(super) fn run(args: &ExportArgs) -> ExitCode {
    client::print_result(output(args))
}

fn output(args: &ExportArgs) -> Result<String, AdminError> {
    let keys = runtime::Builder::new_current_thread().enable_all().build()?.block_on(all(args))?;
    if args.options.json {
        let json = serde_json::to_string(&dto::ApiKeys { keys, cursor: None }).map_err(io::Error::from)?;
        return Ok(printable_json(&json) + "\n");
    }
    let foreign = |key: &dto::ApiKey| AdminError::NotTollgate {
        admin: args.options.admin.clone(),
        reason: format!("it sends a malformed key {}", key.id),
    };
    let keys: Vec<ApiKey> =
        keys.iter().map(|key| record(key).ok_or_else(|| foreign(key))).collect::<Result<_, _>>()?;
    match args.format {
        ExportFormat::Csv => {
            let table = write_csv(&keys).map_err(io::Error::other)?;
            // CSV has no escapes: a file gets names as they are, so that they can be imported.
            Ok(if stdout().is_terminal() { printable_lines(&table) + "\n" } else { table })
        }
        ExportFormat::Yaml => Ok(file_text::whole(&keys)),
    }
}

/// All keys in use.
async fn all(args: &ExportArgs) -> Result<Vec<dto::ApiKey>, AdminError> {
    let (mut all, mut cursor) = (Vec::new(), None::<String>);
    let mut connection =
        with_timeout(&args.options, client::TIMEOUT, AdminConnection::open(&args.options)).await?;
    loop {
        let target = client::with_query(
            "/v1/keys",
            &[
                ("customer", args.customer.as_deref()),
                ("plan", args.plan.as_deref()),
                ("state", Some("active")),
                ("limit", Some(PAGE)),
                ("cursor", cursor.as_deref()),
            ],
        );
        let page = connection.request(Method::GET, &target, bytes::Bytes::new());
        let page: dto::ApiKeys = with_timeout(&args.options, client::TIMEOUT, page).await?;
        all.extend(page.keys);
        match page.cursor {
            next @ Some(_) => cursor = next,
            None => return Ok(all),
        }
    }
}

/// A key as it is shown, as a record.
fn record(key: &dto::ApiKey) -> Option<ApiKey> {
    let time = |time: &str| time.parse::<Timestamp>().ok().map(Timestamp::as_microsecond);
    // `None`: it is malformed.
    let optional = |text: &Option<String>| text.as_deref().map_or(Some(None), |text| time(text).map(Some));
    let secret = |secret: &dto::KeySecret| {
        let (created, expires) = (time(&secret.created)?, optional(&secret.expires)?);
        Some(KeySecret { hash: KeyHash::parse(&secret.hash)?, created, expires })
    };
    let created = time(&key.created)?;
    Some(ApiKey {
        id: key.id.as_str().into(),
        secrets: key.secrets.iter().map(secret).collect::<Option<_>>()?,
        customer: key.customer.as_str().into(),
        plan: key.plan.as_deref().map(Into::into),
        name: key.name.as_str().into(),
        labels: key.labels.clone(),
        created,
        expires: optional(&key.expires)?,
        routes: key.routes.clone(),
        state: KeyState::Active,
        changed: created,
    })
}
