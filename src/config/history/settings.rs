//! The settings of `history`.

use std::{path::PathBuf, time::Duration};

use serde::Serializer;
use tollgate_derive::{Settings, Word};

use crate::config::{
    listeners::settings::Secret,
    reader::{Cursor, MappingCursor},
    settings::Value,
    store::settings::without_credentials,
    upstreams::client_tls::ClientTls,
    value::{is_loopback_url, postgres_url, resource_name},
    written::serialize,
};

/// What was used, by whom, and who was refused: kept in SQLite or PostgreSQL, and asked later. Without this setting,
/// nothing is kept longer than its limit.
#[derive(Debug, Clone, PartialEq, Eq, Settings)]
#[settings(page = "history.md", sample = "store: { file: history.db }")]
pub struct History {
    /// Where it is kept: in a file, for one instance, or in PostgreSQL, for all.
    #[setting(mapping, read = HistoryStore::read_mapping, missing = STORE)]
    #[setting(example = "{ file: /var/lib/tollgate/history.db }")]
    pub store: HistoryStore,
    /// How long it is kept.
    #[setting(
        mapping,
        unset = "usage 800 days, denials 90 days, events 400 days",
        example = "{ denials: 30d }"
    )]
    pub keep: HistoryKeep,
    /// The largest size of the file. When it is nearly full, the oldest denials are dropped; usage never is.
    #[setting(size = "1MiB..=16TiB", default = "2GiB", example = "500MiB")]
    #[setting(shown = serialize::size)]
    pub size: usize,
    /// The most space for what the store has not taken yet, because it is away or slow, on this machine's disk. 0: it is
    /// kept in memory alone.
    #[setting(size = "0..=1TiB", default = "256MiB", example = "1GiB")]
    #[setting(shown = serialize::size)]
    pub spool: usize,
    /// The directory of the spool.
    #[setting(file, read = Cursor::path, example = "/var/lib/tollgate/spool", flags(of_the_instance))]
    #[setting(unset = "beside the file; with PostgreSQL, there is none")]
    pub spool_directory: Option<PathBuf>,
    /// Whose usage is counted: of customers, of users, or of both.
    #[setting(list(of(UsageOf), SomeUnique), read = usage_of, default = "[customer]", value = vec![UsageOf::Customer])]
    #[setting(example = "[customer, user]", see = ["user", "abuse.users"])]
    pub usage: Vec<UsageOf>,
    /// One of `values`, such as the model, by which usage is told apart.
    #[setting(text = RESOURCE, parse = resource_name, example = "model", see = ["values"])]
    #[setting(unset = "`model`, where `values` has one of this name")]
    pub value: Option<String>,
}

const STORE: &str = "such as `store: { file: /var/lib/tollgate/history.db }`";

impl History {
    /// Whether usage is told apart by users.
    pub fn counts_users(&self) -> bool {
        self.usage.contains(&UsageOf::User)
    }

    /// Whether usage is told apart by customers.
    pub fn counts_customers(&self) -> bool {
        self.usage.contains(&UsageOf::Customer)
    }
}

/// Whose usage is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Word)]
pub enum UsageOf {
    /// Customers of API keys.
    Customer,
    /// Users who are verified.
    User,
}

fn usage_of(list: Cursor<'_>) -> Option<Vec<UsageOf>> {
    if list.is_empty_list() {
        list.report("this list is empty", "write `usage: [customer]`".to_owned());
        return None;
    }
    Some(list.unique_items(|item| item.parse(UsageOf::parse)))
}

/// How long history is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Settings)]
#[settings(page = "history.md")]
pub struct HistoryKeep {
    /// The usage of each day and month. That of each hour is kept for 35 days.
    #[setting(duration = "1d..=36600d", default = "800d", example = "400d")]
    pub usage: Duration,
    /// Who was denied, when, and why.
    #[setting(duration = "1h..=36600d", default = "90d", example = "30d")]
    pub denials: Duration,
    /// What operators and rules have changed, and what happened.
    #[setting(duration = "1h..=36600d", default = "400d", example = "90d")]
    pub events: Duration,
}

/// The database of the history. Set exactly one of `file` and `postgres`.
#[derive(Debug, Clone, PartialEq, Eq, Settings)]
#[settings(page = "history.md", sample = "file: history.db", check = check_store)]
#[settings(rules(One(&["file", "postgres"]), AtMostOne(&["single", "postgres"]), AtMostOne(&["tls", "file"])))]
pub struct HistoryStore {
    /// The file of an SQLite database, on a disk of this machine. One instance writes it.
    #[setting(file, read = Cursor::path, example = "/var/lib/tollgate/history.db", flags(of_the_instance))]
    pub file: Option<PathBuf>,
    /// Whether this is the only instance although limits are shared in Redis, so that a file has the history of all.
    #[setting(default = "false", example = "true", beside = "file: history.db")]
    pub single: bool,
    /// A database of PostgreSQL, which all instances share: `postgres://USER:PASSWORD@HOST:PORT/DATABASE`. The connection is
    /// encrypted, unless the server is on this machine.
    #[setting(text = POSTGRES_URL, read = postgres, shown = url_without_credentials, flags(of_the_instance))]
    #[setting(example = "\"postgres://tollgate:${PGPASSWORD}@db.internal/tollgate\"")]
    pub postgres: Option<Secret>,
    /// TLS to PostgreSQL.
    #[setting(mapping, unset = "the authorities of the system, and no client certificate")]
    #[setting(
        example = "{ ca: tls/ca.pem }",
        beside = "postgres: \"postgres://tollgate@db.internal/tollgate\""
    )]
    pub tls: ClientTls,
}

impl HistoryStore {
    fn read_mapping(value: Cursor<'_>) -> Option<Self> {
        use crate::config::settings::Read;
        if value.scalar().is_some() {
            value.report("expected a mapping, not a single value", STORE.to_owned());
            return None;
        }
        Self::read(value)
    }

    /// Whether the connection to PostgreSQL may be in clear text: the server is on this machine.
    pub fn is_on_loopback(&self) -> bool {
        self.postgres.as_ref().is_some_and(|url| is_loopback_url(url.reveal()))
    }
}

fn postgres(value: Cursor<'_>) -> Option<Secret> {
    value.parse_secret(postgres_url).map(Secret::new)
}

fn url_without_credentials<S: Serializer>(url: &Secret, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&without_credentials(url.reveal()))
}

fn check_store(mapping: &MappingCursor<'_>, store: Option<&HistoryStore>) {
    let Some(store) = store else { return };
    match (&store.file, &store.postgres) {
        (Some(_), Some(_)) => {
            if let Some(location) = mapping.key_location("postgres") {
                let help = "keep one of them: history is in a file or in PostgreSQL".to_owned();
                mapping.report_at(location, "`postgres` and `file` exclude each other", help);
            }
        }
        (None, None) if !mapping.has_or_misspells("file") && !mapping.has_or_misspells("postgres") => {
            mapping.report_if_missing("file", STORE_FILE);
        }
        (Some(_), None) => {
            if let Some(location) = mapping.key_location("tls") {
                mapping.report_at(location, "`tls` does not apply to a file", "remove it".to_owned());
            }
        }
        (None, Some(_)) => {
            if let Some(location) = mapping.key_location("single") {
                let help = "remove it: all instances share PostgreSQL".to_owned();
                mapping.report_at(location, "`single` applies to a file alone", help);
            }
        }
        (None, None) => {}
    }
}

const STORE_FILE: &str = "the file of the database, such as `file: /var/lib/tollgate/history.db`";
