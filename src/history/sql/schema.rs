//! The tables, and their migrations.

use super::{Dialect, Sql, SqlError, in_transaction};

/// The migrations, in their order: each adds to what there is, so that an older version can go on writing beside a newer one.
const SQLITE: [&str; 2] = [
    include_str!("../../../sql/migrations/sqlite/1.sql"),
    include_str!("../../../sql/migrations/sqlite/2.sql"),
];
const POSTGRES: [&str; 2] = [
    include_str!("../../../sql/migrations/postgres/1.sql"),
    include_str!("../../../sql/migrations/postgres/2.sql"),
];

/// Taken while tables are made: any number of its own.
const MIGRATION_LOCK: i64 = 0x7467_6d69;

/// Makes the tables, or adds what they lack.
///
/// # Errors
/// The database has failed, or is of a version that this one can't write.
pub(in crate::history) fn migrate(sql: &mut dyn Sql) -> Result<(), SqlError> {
    let migrations = match sql.dialect() {
        Dialect::Sqlite => &SQLITE,
        Dialect::Postgres => &POSTGRES,
    };
    let newest = migrations.len() as i64;
    if version(sql)? == newest {
        return Ok(());
    }
    in_transaction(sql, |sql| {
        if sql.dialect() == Dialect::Postgres {
            sql.rows("SELECT 1::BIGINT FROM pg_advisory_xact_lock($1)", &[MIGRATION_LOCK.into()], 1)?;
            // To try it takes a right that the schema's owner need not have.
            let known = "SELECT COUNT(*) FROM pg_catalog.pg_namespace WHERE nspname = 'tollgate'";
            if sql.rows(known, &[], 1)?.first().is_none_or(|row| row[0].integer() == 0) {
                sql.script("CREATE SCHEMA tollgate")?;
            }
        }
        sql.script("CREATE TABLE IF NOT EXISTS migrations (version BIGINT PRIMARY KEY, writable_from BIGINT NOT NULL)")?;
        let done = version(sql)?;
        for (index, migration) in migrations.iter().enumerate().skip(done.unsigned_abs() as usize) {
            sql.script(migration)?;
            let version = index as i64 + 1;
            sql.run("INSERT INTO migrations (version, writable_from) VALUES ($1, 1)", &[version.into()])?;
        }
        let oldest = sql.rows("SELECT MAX(writable_from) FROM migrations", &[], 1)?;
        let oldest = oldest.first().and_then(|row| row.first()).map_or(0, super::SqlValue::integer);
        match oldest > newest {
            true => Err(SqlError::Refused("the database is of a newer version of Tollgate".to_owned())),
            false => Ok(()),
        }
    })
}

/// The newest migration that was made; 0 if there is none.
fn version(sql: &mut dyn Sql) -> Result<i64, SqlError> {
    let known = match sql.dialect() {
        Dialect::Sqlite => "SELECT COUNT(*) FROM sqlite_master WHERE name = 'migrations'",
        Dialect::Postgres => {
            "SELECT COUNT(*) FROM pg_catalog.pg_tables WHERE schemaname = 'tollgate' AND tablename = 'migrations'"
        }
    };
    let is_known = sql.rows(known, &[], 1)?.first().is_some_and(|row| row[0].integer() > 0);
    if !is_known {
        return Ok(0);
    }
    let newest = sql.rows("SELECT COALESCE(MAX(version), 0) FROM migrations", &[], 1)?;
    Ok(newest.first().map_or(0, |row| row[0].integer()))
}
