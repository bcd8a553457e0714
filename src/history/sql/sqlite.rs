//! A file of SQLite.

use std::{fs::OpenOptions, os::unix::fs::OpenOptionsExt, path::Path, time::Duration};

use nix::sys::statfs::{self, FsType};
use rusqlite::{
    Connection, ErrorCode, OpenFlags, params_from_iter,
    types::{ToSqlOutput, ValueRef},
};

use super::{Dialect, Sql, SqlError, SqlRow, SqlValue};

/// How long a statement waits for another process, in a handover.
const BUSY: Duration = Duration::from_secs(5);
/// Bytes of a page.
const PAGE: usize = 4_096;
/// Statements that are kept prepared.
const PREPARED: usize = 64;

/// A connection to a file.
pub(in crate::history) struct Sqlite(Connection);

impl Sqlite {
    /// Opens the file at `path`, which may grow to `size` bytes. It is made if there is none.
    ///
    /// # Errors
    /// It can't be opened, is no database, or is on a network file system.
    pub(in crate::history) fn open(path: &Path, size: usize) -> Result<Self, SqlError> {
        let of_file =
            |error: &dyn std::fmt::Display| SqlError::Refused(format!("{}: {error}", path.display()));
        // Its journal gets the same mode.
        OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(path)
            .map_err(|error| of_file(&error))?;
        refuse_network(path)?;
        let connection = Connection::open(path).map_err(|error| of_file(&error))?;
        connection.set_prepared_statement_cache_capacity(PREPARED);
        connection.busy_timeout(BUSY).map_err(sql_error)?;
        let pages = (size / PAGE).max(256);
        let settings = format!(
            "PRAGMA page_size = {PAGE}; PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL; \
             PRAGMA synchronous = FULL; PRAGMA mmap_size = 0; PRAGMA max_page_count = {pages}; \
             PRAGMA journal_size_limit = 67108864; PRAGMA temp_store = MEMORY"
        );
        connection.execute_batch(&settings).map_err(|error| of_file(&error))?;
        Ok(Self(connection))
    }

    /// Opens the file at `path` for questions.
    ///
    /// # Errors
    /// There is none, or it can't be opened.
    pub(in crate::history) fn open_to_read(path: &Path) -> Result<Self, SqlError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(sql_error)?;
        connection.set_prepared_statement_cache_capacity(PREPARED);
        connection.busy_timeout(BUSY).map_err(sql_error)?;
        connection.execute_batch("PRAGMA temp_store = MEMORY").map_err(sql_error)?;
        Ok(Self(connection))
    }

    /// Writes a copy of the database to `path`, in which nothing must be.
    ///
    /// # Errors
    /// The copy can't be written.
    pub(in crate::history) fn back_up(&self, path: &Path) -> Result<(), SqlError> {
        let text = path.to_str().ok_or_else(|| SqlError::Refused("the path is not UTF-8".to_owned()))?;
        let refused = |error: std::io::Error| SqlError::Refused(error.to_string());
        OpenOptions::new().create_new(true).write(true).mode(0o600).open(path).map_err(refused)?;
        let copied = self.0.execute("VACUUM INTO ?1", [text]).map(|_| ()).map_err(sql_error);
        if copied.is_err() {
            let _removed = std::fs::remove_file(path);
        }
        copied
    }
}

/// Locks of network file systems are not reliable, and its shared memory doesn't work there.
fn refuse_network(path: &Path) -> Result<(), SqlError> {
    const CIFS: i64 = 0xff53_4d42;
    const SMB2: i64 = 0xfe53_4d42;
    const NINE_P: i64 = 0x0102_1997;
    let Ok(found) = statfs::statfs(path) else { return Ok(()) };
    let kind = found.filesystem_type();
    let is_network =
        kind == statfs::NFS_SUPER_MAGIC || [CIFS, SMB2, NINE_P].iter().any(|magic| kind == FsType(*magic));
    match is_network {
        true => Err(SqlError::Refused(format!(
            "{} is on a network file system, where SQLite is not safe: use a local disk, or PostgreSQL",
            path.display()
        ))),
        false => Ok(()),
    }
}

impl rusqlite::ToSql for SqlValue {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Integer(number) => ToSqlOutput::from(*number),
            Self::Text(text) => ToSqlOutput::from(text.as_str()),
        })
    }
}

impl Sql for Sqlite {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn script(&mut self, statements: &str) -> Result<(), SqlError> {
        self.0.execute_batch(statements).map_err(sql_error)
    }

    fn run(&mut self, statement: &str, parameters: &[SqlValue]) -> Result<u64, SqlError> {
        let mut statement = self.0.prepare_cached(statement).map_err(sql_error)?;
        let changed = statement.execute(params_from_iter(parameters)).map_err(sql_error)?;
        Ok(changed as u64)
    }

    fn run_each(&mut self, statement: &str, width: usize, parameters: &[SqlValue]) -> Result<(), SqlError> {
        let mut statement = self.0.prepare_cached(statement).map_err(sql_error)?;
        for row in parameters.chunks(width.max(1)) {
            statement.execute(params_from_iter(row)).map_err(sql_error)?;
        }
        Ok(())
    }

    fn rows(&mut self, query: &str, parameters: &[SqlValue], most: usize) -> Result<Vec<SqlRow>, SqlError> {
        let mut statement = self.0.prepare_cached(query).map_err(sql_error)?;
        let columns = statement.column_count();
        let mut found = statement.query(params_from_iter(parameters)).map_err(sql_error)?;
        let mut rows = Vec::new();
        while let Some(row) = found.next().map_err(sql_error)? {
            if rows.len() >= most {
                break;
            }
            let value = |column| match row.get_ref(column) {
                Ok(ValueRef::Integer(number)) => SqlValue::Integer(number),
                Ok(ValueRef::Text(text)) => SqlValue::Text(String::from_utf8_lossy(text).into_owned()),
                _ => SqlValue::Integer(0),
            };
            rows.push((0..columns).map(value).collect());
        }
        Ok(rows)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "passed to map_err")]
fn sql_error(error: rusqlite::Error) -> SqlError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => {
            SqlError::Full("the disk is full, or the file has its largest size".to_owned())
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            SqlError::Away("another process holds the file".to_owned())
        }
        Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => SqlError::Away(error.to_string()),
        Some(ErrorCode::TooBig | ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch) => {
            SqlError::Unfit(error.to_string())
        }
        _ => SqlError::Refused(error.to_string()),
    }
}
