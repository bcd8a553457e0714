//! The databases, behind one trait: the statements are the same for both, but for the migrations.

mod postgres;
mod schema;
mod sqlite;

pub(super) use postgres::Postgres;
pub(super) use schema::migrate;
pub(super) use sqlite::Sqlite;

/// A value in a row, or of a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SqlValue {
    Integer(i64),
    Text(String),
}

impl SqlValue {
    pub(super) fn integer(&self) -> i64 {
        match self {
            Self::Integer(number) => *number,
            Self::Text(_) => 0,
        }
    }

    pub(super) fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Integer(_) => "",
        }
    }
}

impl From<i64> for SqlValue {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<u64> for SqlValue {
    fn from(number: u64) -> Self {
        Self::Integer(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<&str> for SqlValue {
    fn from(text: &str) -> Self {
        // PostgreSQL takes no NUL.
        Self::Text(text.replace('\0', "\u{fffd}"))
    }
}

/// A row of a result.
pub(super) type SqlRow = Vec<SqlValue>;

/// Which database it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Sqlite,
    Postgres,
}

/// Why a statement has failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum SqlError {
    /// The database can't be reached, or was too slow. It is not known whether a commit took effect.
    #[error("{0}")]
    Away(String),
    /// There is no space left.
    #[error("{0}")]
    Full(String),
    /// It can't take these values, and never will.
    #[error("{0}")]
    Unfit(String),
    /// The database refuses the statement, or is not as it should be.
    #[error("{0}")]
    Refused(String),
}

/// A connection to a database. Parameters are `$1`, `$2` and so on, in the order in which they first occur.
pub(super) trait Sql: Send {
    fn dialect(&self) -> Dialect;

    /// Runs statements without parameters.
    fn script(&mut self, statements: &str) -> Result<(), SqlError>;

    /// Runs a statement. Returns how many rows it has changed.
    fn run(&mut self, statement: &str, parameters: &[SqlValue]) -> Result<u64, SqlError>;

    /// Runs a statement for each row of `width` parameters.
    fn run_each(&mut self, statement: &str, width: usize, parameters: &[SqlValue]) -> Result<(), SqlError>;

    /// The rows of a query, at most `most` of them.
    fn rows(&mut self, query: &str, parameters: &[SqlValue], most: usize) -> Result<Vec<SqlRow>, SqlError>;
}

/// Runs `change` in a transaction, which is rolled back if it fails.
pub(super) fn in_transaction<T>(
    sql: &mut dyn Sql,
    change: impl FnOnce(&mut dyn Sql) -> Result<T, SqlError>,
) -> Result<T, SqlError> {
    sql.script(match sql.dialect() {
        Dialect::Sqlite => "BEGIN IMMEDIATE",
        Dialect::Postgres => "BEGIN",
    })?;
    match change(sql) {
        Ok(changed) => sql.script("COMMIT").map(|()| changed),
        Err(error) => {
            // The connection may be gone, which rolls it back as well.
            let _gone = sql.script("ROLLBACK");
            Err(error)
        }
    }
}
