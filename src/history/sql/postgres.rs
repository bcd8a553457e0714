//! A database of PostgreSQL.

use std::{collections::HashMap, time::Duration};

use futures_util::future::try_join_all;
use rustls::ClientConfig;
use rustls_tokio_postgres::MakeRustlsConnect;
use tokio::{
    runtime::{self, Runtime},
    time::timeout,
};
use tokio_postgres::{
    Client, Config, NoTls, Statement,
    config::SslMode,
    types::{ToSql, Type},
};

use super::{Dialect, Sql, SqlError, SqlRow, SqlValue};
use crate::{config::model::HistoryStore, tls};

/// Time to connect, and for each statement.
const CONNECT: Duration = Duration::from_secs(5);
/// Statements that are on their way at once.
const PIPELINED: usize = 256;
/// Statements that are kept prepared.
const PREPARED: usize = 128;

/// A connection to a database, whose tables are in the schema `tollgate`. Blocks: not for a worker's thread.
pub(in crate::history) struct Postgres {
    runtime: Runtime,
    client: Client,
    prepared: HashMap<String, Statement>,
    timeout: Duration,
}

impl Postgres {
    /// Connects to the database of `store`. `patience`: time for each statement.
    ///
    /// # Errors
    /// It can't be reached, or refuses.
    pub(in crate::history) fn connect(store: &HistoryStore, patience: Duration) -> Result<Self, SqlError> {
        let url = store.postgres.as_ref().map(|url| url.reveal()).unwrap_or_default();
        // The error might tell the password.
        let mut config: Config =
            url.parse().map_err(|_| SqlError::Refused("the URL of PostgreSQL can't be read".to_owned()))?;
        config.connect_timeout(CONNECT).application_name("tollgate").keepalives_idle(Duration::from_secs(30));
        config.tcp_user_timeout(patience);
        let is_plain = store.is_on_loopback() && store.tls == Default::default();
        config.ssl_mode(if is_plain { SslMode::Disable } else { SslMode::Require });
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| SqlError::Away(error.to_string()))?;
        let client = runtime.block_on(async {
            let connected = async {
                if is_plain {
                    let (client, connection) = config.connect(NoTls).await.map_err(sql_error)?;
                    drop(tokio::spawn(connection));
                    return Ok(client);
                }
                let tls = MakeRustlsConnect::new(client_config(store)?);
                let (client, connection) = config.connect(tls).await.map_err(sql_error)?;
                drop(tokio::spawn(connection));
                Ok(client)
            };
            let client = timeout(CONNECT, connected).await.map_err(|_| too_slow())??;
            let settings = "SET search_path TO tollgate; SET synchronous_commit TO on; SET TIME ZONE 'UTC'; \
                            SET lock_timeout TO '8s'; SET idle_in_transaction_session_timeout TO '30s'";
            timeout(CONNECT, client.batch_execute(settings))
                .await
                .map_err(|_| too_slow())?
                .map_err(sql_error)?;
            Ok::<_, SqlError>(client)
        })?;
        Ok(Self { runtime, client, prepared: HashMap::new(), timeout: patience })
    }

    /// Microseconds that this machine's clock is ahead of the server's.
    ///
    /// # Errors
    /// The server does not respond.
    pub(in crate::history) fn clock_offset(&mut self, now: impl Fn() -> i64) -> Result<i64, SqlError> {
        let before = now();
        let query = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)";
        let rows = self.rows(query, &[], 1)?;
        let server = rows.first().map_or(0, |row| row[0].integer());
        Ok(before.midpoint(now()) - server)
    }

    fn statement(&mut self, text: &str) -> Result<Statement, SqlError> {
        if let Some(known) = self.prepared.get(text) {
            return Ok(known.clone());
        }
        let prepared =
            self.runtime.block_on(async { timeout(self.timeout, self.client.prepare(text)).await });
        let prepared = prepared.map_err(|_| too_slow())?.map_err(sql_error)?;
        if self.prepared.len() >= PREPARED {
            self.prepared.clear();
        }
        self.prepared.insert(text.to_owned(), prepared.clone());
        Ok(prepared)
    }
}

/// The TLS of connections.
fn client_config(store: &HistoryStore) -> Result<ClientConfig, SqlError> {
    let certificate = store.tls.certificate.as_ref().map(|files| (&*files.cert, &*files.key));
    tls::client_config(store.tls.ca.as_deref(), certificate)
        .map_err(|reason| SqlError::Refused(format!("history.store.tls: {reason}")))
}

fn references(parameters: &[SqlValue]) -> Vec<&(dyn ToSql + Sync)> {
    fn reference(value: &SqlValue) -> &(dyn ToSql + Sync) {
        match value {
            SqlValue::Integer(number) => number,
            SqlValue::Text(text) => text,
        }
    }
    parameters.iter().map(reference).collect()
}

impl Sql for Postgres {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn script(&mut self, statements: &str) -> Result<(), SqlError> {
        let run = async { timeout(self.timeout, self.client.batch_execute(statements)).await };
        self.runtime.block_on(run).map_err(|_| too_slow())?.map_err(sql_error)
    }

    fn run(&mut self, statement: &str, parameters: &[SqlValue]) -> Result<u64, SqlError> {
        let statement = self.statement(statement)?;
        let parameters = references(parameters);
        let run = async { timeout(self.timeout, self.client.execute(&statement, &parameters)).await };
        self.runtime.block_on(run).map_err(|_| too_slow())?.map_err(sql_error)
    }

    fn run_each(&mut self, statement: &str, width: usize, parameters: &[SqlValue]) -> Result<(), SqlError> {
        let statement = self.statement(statement)?;
        for rows in parameters.chunks(width.max(1) * PIPELINED) {
            let rows: Vec<_> = rows.chunks(width.max(1)).map(references).collect();
            let all = try_join_all(rows.iter().map(|row| self.client.execute(&statement, row)));
            let run = async { timeout(self.timeout, all).await };
            self.runtime.block_on(run).map_err(|_| too_slow())?.map_err(sql_error)?;
        }
        Ok(())
    }

    fn rows(&mut self, query: &str, parameters: &[SqlValue], most: usize) -> Result<Vec<SqlRow>, SqlError> {
        let statement = self.statement(query)?;
        let parameters = references(parameters);
        let found = async { timeout(self.timeout, self.client.query(&statement, &parameters)).await };
        let found = self.runtime.block_on(found).map_err(|_| too_slow())?.map_err(sql_error)?;
        let value = |row: &tokio_postgres::Row, column: usize| match *row.columns()[column].type_() {
            Type::INT8 => row.try_get::<_, Option<i64>>(column).map(|n| SqlValue::Integer(n.unwrap_or(0))),
            Type::INT4 => {
                row.try_get::<_, Option<i32>>(column).map(|n| SqlValue::Integer(n.unwrap_or(0).into()))
            }
            _ => {
                row.try_get::<_, Option<String>>(column).map(|text| SqlValue::Text(text.unwrap_or_default()))
            }
        };
        let values = |row: &tokio_postgres::Row| {
            (0..row.len()).map(|column| value(row, column)).collect::<Result<SqlRow, _>>().map_err(sql_error)
        };
        found.iter().take(most).map(values).collect()
    }
}

fn too_slow() -> SqlError {
    SqlError::Away("PostgreSQL does not respond in time".to_owned())
}

#[expect(clippy::needless_pass_by_value, reason = "passed to map_err")]
fn sql_error(error: tokio_postgres::Error) -> SqlError {
    let Some(reported) = error.as_db_error() else {
        let source =
            std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
        return SqlError::Away(format!("PostgreSQL: {error}{source}"));
    };
    let (code, message) = (reported.code().code(), format!("PostgreSQL: {}", reported.message()));
    match code.get(..2) {
        // No space, or too many connections.
        Some("53") => SqlError::Full(message),
        // Connections, a serialization failure, an operator's intervention, a read-only server, a lock that wasn't got.
        Some("08" | "40" | "57" | "25" | "55") => SqlError::Away(message),
        // Values that don't fit, or are too long.
        Some("22" | "23" | "54") => SqlError::Unfit(message),
        _ => SqlError::Refused(message),
    }
}
