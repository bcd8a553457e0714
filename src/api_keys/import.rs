//! Keys that were made elsewhere: a table in CSV, with a header line. Pure.
//!
//! An exported table has hashes in place of keys, and can be imported again. A spreadsheet takes some cells for formulas,
//! and runs them (OWASP, *CSV Injection*). In a table, such a cell has a `'` before it, and so has one that begins with
//! `'`s and goes on as such a cell: then it is clear which `'` is the table's.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

use compact_str::CompactString;
use csv::{ReaderBuilder, StringRecord, Trim, Writer};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use zeroize::Zeroizing;

use super::{
    ApiKey, KeyHash, KeySecret,
    operations::{FieldError, KeyFields, OperationError, imported_hash, parse_expiry, with_secrets},
};

/// Most keys of one import.
pub const MAX_IMPORTED: usize = 100_000;
/// Most errors that are told.
const MAX_ERRORS: usize = 20;

const COLUMNS: [&str; 14] = [
    "id",
    "key",
    "hash",
    "customer",
    "plan",
    "name",
    "labels",
    "routes",
    "created",
    "expires",
    "hash_created",
    "old_hash",
    "old_hash_created",
    "old_hash_expires",
];
/// The columns of an exported table.
const EXPORTED: [&str; 13] = [
    "id",
    "hash",
    "customer",
    "plan",
    "name",
    "labels",
    "routes",
    "created",
    "expires",
    "hash_created",
    "old_hash",
    "old_hash_created",
    "old_hash_expires",
];

/// How a cell begins that a spreadsheet takes for a formula.
const FORMULA: [char; 11] = ['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠'];

/// The text of a key, which is wiped from memory, and never written to a log.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyText(pub Zeroizing<String>);

impl fmt::Debug for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyText(…)")
    }
}

/// A key to import.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportRow {
    /// The line of the table, for errors. Without it, errors count the keys from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// Made if it is left out: 1 to 64 letters, digits, `-`, `_` and `.`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The key itself, 16 to 512 visible ASCII characters. Only its hash is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub key: Option<KeyText>,
    /// In place of the key: `sha256:` and its SHA-256 in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    pub customer: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The names of the routes that it is valid for; empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<String>,
    /// Now, if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// A duration from now, a date, or a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// When the key was rotated last. `created`, if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash_created: Option<String>,
    /// The hashes of secrets that were rotated, separated by `;`, oldest first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_hash: Option<String>,
    /// When each of them was made, separated by `;`. `created`, if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_hash_created: Option<String>,
    /// Until when each of them is valid, separated by `;`. Where it is left out, as long as the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_hash_expires: Option<String>,
}

/// An error in a line of a table, or of the whole table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", line.map_or_else(String::new, |line| format!("line {line}: ")))]
pub struct LineError {
    pub line: Option<u64>,
    pub message: String,
}

impl LineError {
    fn of_all(message: impl Into<String>) -> Vec<Self> {
        vec![Self { line: None, message: message.into() }]
    }
}

/// The first errors, each in a line; the others are only counted.
pub fn describe(errors: &[LineError]) -> Vec<String> {
    let mut lines: Vec<String> = errors.iter().take(MAX_ERRORS).map(ToString::to_string).collect();
    if errors.len() > MAX_ERRORS {
        lines.push(format!("and {} more errors", errors.len() - MAX_ERRORS));
    }
    lines
}

/// Reads a table of keys.
///
/// # Errors
/// It is no such table: each error with its line.
pub fn read_csv(table: &[u8]) -> Result<Vec<ImportRow>, Vec<LineError>> {
    // Spreadsheets begin UTF-8 with a byte order mark.
    let table = table.strip_prefix(b"\xef\xbb\xbf").unwrap_or(table);
    let mut reader = ReaderBuilder::new().trim(Trim::All).from_reader(table);
    let header = reader.headers().map_err(|error| vec![malformed(table, &error)])?.clone();
    check_header(&header)?;
    let (mut rows, mut errors) = (Vec::new(), Vec::new());
    for record in reader.records() {
        match record {
            Ok(record) => rows.push(ImportRow {
                line: record.position().map(|at| line(table, at)),
                ..row(&header, &record)
            }),
            Err(error) => errors.push(malformed(table, &error)),
        }
        if rows.len() > MAX_IMPORTED {
            return Err(LineError::of_all(too_many()));
        }
    }
    match errors.is_empty() {
        true => Ok(rows),
        false => Err(errors),
    }
}

fn too_many() -> String {
    format!("there are more than {MAX_IMPORTED} keys: import them in several parts")
}

/// The line of a record. Its position is that of the end of the record before it, ahead of empty lines.
fn line(table: &[u8], position: &csv::Position) -> u64 {
    let from = usize::try_from(position.byte()).unwrap_or(usize::MAX);
    let ahead = table.get(from..).unwrap_or_default().iter().take_while(|byte| b"\r\n".contains(byte));
    position.line() + ahead.filter(|&&byte| byte == b'\n').count() as u64
}

fn malformed(table: &[u8], error: &csv::Error) -> LineError {
    let message = match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("it has {len} cells, and the header line has {expected_len}")
        }
        csv::ErrorKind::Utf8 { .. } => "it is not UTF-8".to_owned(),
        _ => error.to_string(),
    };
    LineError { line: error.position().map(|at| line(table, at)), message }
}

fn check_header(header: &StringRecord) -> Result<(), Vec<LineError>> {
    let wrong = |message: String| Err(vec![LineError { line: Some(1), message }]);
    for (nth, name) in header.iter().enumerate() {
        if !COLUMNS.contains(&name) {
            // Whatever stands in a table without a header line may be a key.
            let known = COLUMNS.join(", ");
            return wrong(format!("the name of column {} is unknown: the columns are {known}", nth + 1));
        }
        if header.iter().take(nth).any(|earlier| earlier == name) {
            return wrong(format!("there are two columns {name}"));
        }
    }
    let has = |name: &str| header.iter().any(|column| column == name);
    match has("customer") && (has("key") || has("hash")) {
        true => Ok(()),
        false => wrong("a column customer and a column key or hash are needed".to_owned()),
    }
}

fn is_formula(cell: &str) -> bool {
    cell.trim_start_matches('\'').starts_with(FORMULA)
}

fn row(header: &StringRecord, record: &StringRecord) -> ImportRow {
    let mut row = ImportRow::default();
    for (column, cell) in header.iter().zip(record).filter(|(_, cell)| !cell.is_empty()) {
        let cell = cell.strip_prefix('\'').filter(|rest| is_formula(rest)).unwrap_or(cell);
        let text = || Some(cell.to_owned());
        match column {
            "id" => row.id = text(),
            "key" => row.key = Some(KeyText(Zeroizing::new(cell.to_owned()))),
            "hash" => row.hash = text(),
            "customer" => cell.clone_into(&mut row.customer),
            "plan" => row.plan = text(),
            "name" => cell.clone_into(&mut row.name),
            "labels" => {
                let pairs = cell.split(';').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
                row.labels = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            }
            "routes" => row.routes = cell.split(';').map(str::to_owned).collect(),
            "created" => row.created = text(),
            "expires" => row.expires = text(),
            "hash_created" => row.hash_created = text(),
            "old_hash" => row.old_hash = text(),
            "old_hash_created" => row.old_hash_created = text(),
            "old_hash_expires" => row.old_hash_expires = text(),
            _ => {}
        }
    }
    row
}

impl ImportRow {
    /// The same with the hash of the key in its place. A wrong key stays.
    #[must_use]
    pub fn without_key(self) -> Self {
        match self.key.as_ref().and_then(|key| imported_hash(&key.0).ok()) {
            Some(hash) => Self { key: None, hash: Some(hash.to_string()), ..self },
            None => self,
        }
    }

    fn to_key(&self, now: i64) -> Result<ApiKey, OperationError> {
        let (field, text) = match (&self.key, &self.hash) {
            (Some(KeyText(key)), None) => ("key", key.as_str()),
            (None, Some(hash)) if hash.starts_with("sha256:") => ("hash", hash.as_str()),
            (None, Some(_)) => return Err(wrong("hash", "does not begin with sha256:").into()),
            (Some(_), Some(_)) => return Err(wrong("hash", "there is a key as well").into()),
            (None, None) => return Err(wrong("key", "is missing").into()),
        };
        let created = time("created", self.created.as_deref(), now)?;
        let first = created.unwrap_or(now);
        let mut secrets = self.old_secrets(first, now)?;
        secrets.push(KeySecret {
            hash: hash(field, text)?,
            created: time("hash_created", self.hash_created.as_deref(), now)?.unwrap_or(first),
            expires: None,
        });
        let fields = KeyFields {
            id: self.id.as_deref().map(CompactString::from),
            customer: self.customer.as_str().into(),
            plan: self.plan.as_deref().map(CompactString::from),
            name: self.name.as_str().into(),
            labels: self.labels.clone(),
            routes: self.routes.clone(),
            created,
            expires: time("expires", self.expires.as_deref(), now)?,
        };
        with_secrets(fields, secrets, now)
    }

    /// The secrets that were rotated. `created`: when they were made, unless the row says it.
    fn old_secrets(&self, created: i64, now: i64) -> Result<Vec<KeySecret>, FieldError> {
        let [hashes, made, ends] = [&self.old_hash, &self.old_hash_created, &self.old_hash_expires]
            .map(|text| text.iter().flat_map(|text| text.split(';')).map(str::trim).collect::<Vec<&str>>());
        for (field, times) in [("old_hash_created", &made), ("old_hash_expires", &ends)] {
            if times.len() > hashes.len() {
                return Err(wrong(field, "has more times than there are in old_hash"));
            }
        }
        let secret = |(nth, text): (usize, &&str)| {
            let [made, ends] =
                [&made, &ends].map(|times| times.get(nth).copied().filter(|time| !time.is_empty()));
            Ok(KeySecret {
                hash: hash("old_hash", text)?,
                created: time("old_hash_created", made, now)?.unwrap_or(created),
                expires: time("old_hash_expires", ends, now)?,
            })
        };
        hashes.iter().enumerate().map(secret).collect()
    }
}

fn wrong(field: &'static str, reason: impl Into<String>) -> FieldError {
    FieldError { field, reason: reason.into() }
}

fn hash(field: &'static str, text: &str) -> Result<KeyHash, FieldError> {
    imported_hash(text).map_err(|reason| wrong(field, reason))
}

fn time(field: &'static str, text: Option<&str>, now: i64) -> Result<Option<i64>, FieldError> {
    let malformed =
        || wrong(field, "is no duration, date or time: write 90d, 2027-01-31 or 2027-01-31T12:00:00Z");
    text.map(|text| parse_expiry(text, now).ok_or_else(malformed)).transpose()
}

/// The records of imported keys, with their lines.
///
/// # Errors
/// Lines are wrong, or two have the same ID or secret: none may be imported.
pub fn check_rows(rows: &[ImportRow], now: i64) -> Result<Vec<(u64, ApiKey)>, Vec<LineError>> {
    if rows.len() > MAX_IMPORTED {
        return Err(LineError::of_all(too_many()));
    }
    if rows.is_empty() {
        return Err(LineError::of_all("there are no keys in it"));
    }
    let (mut keys, mut errors) = (Vec::with_capacity(rows.len()), Vec::new());
    let mut ids: HashMap<CompactString, u64> = HashMap::with_capacity(rows.len());
    let mut hashes: HashMap<KeyHash, u64> = HashMap::with_capacity(rows.len());
    for (row, nth) in rows.iter().zip(1..) {
        let line = row.line.unwrap_or(nth);
        let mut complain = |message: String| errors.push(LineError { line: Some(line), message });
        let key = match row.to_key(now) {
            Ok(key) => key,
            Err(error) => {
                complain(error.to_string());
                continue;
            }
        };
        if let Some(other) = ids.insert(key.id.clone(), line) {
            complain(format!("id: line {other} has the same"));
        }
        for secret in &key.secrets {
            if let Some(other) = hashes.insert(secret.hash, line) {
                complain(format!("key: line {other} has the same"));
            }
        }
        keys.push((line, key));
    }
    match errors.is_empty() {
        true => Ok(keys),
        false => Err(errors),
    }
}

/// A table of these keys that can be imported again: hashes, and no keys.
///
/// # Errors
/// There is no memory for it.
pub fn write_csv(keys: &[ApiKey]) -> Result<String, csv::Error> {
    let mut table = Writer::from_writer(Vec::new());
    table.write_record(EXPORTED)?;
    let time =
        |micros: i64| Timestamp::from_microsecond(micros).map(|time| time.to_string()).unwrap_or_default();
    for key in keys {
        let (newest, older) = match key.secrets.split_last() {
            Some((newest, older)) => (Some(newest), older),
            None => (None, &[][..]),
        };
        let of_older =
            |cell: &dyn Fn(&KeySecret) -> String| older.iter().map(cell).collect::<Vec<_>>().join(";");
        let labels: Vec<String> = key.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let cells = [
            key.id.as_str(),
            &newest.map(|newest| newest.hash.to_string()).unwrap_or_default(),
            &key.customer,
            key.plan.as_deref().unwrap_or_default(),
            &key.name,
            &labels.join(";"),
            &key.routes.join(";"),
            &time(key.created),
            &key.expires.map(time).unwrap_or_default(),
            &newest.map(|newest| time(newest.created)).unwrap_or_default(),
            &of_older(&|older| older.hash.to_string()),
            &of_older(&|older| time(older.created)),
            &of_older(&|older| older.expires.map(time).unwrap_or_default()),
        ];
        table.write_record(
            cells.map(|cell| if is_formula(cell) { format!("'{cell}") } else { cell.to_owned() }),
        )?;
    }
    let bytes = table.into_inner().map_err(|error| error.into_error())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::{operations, record::MAX_SECRETS},
        *,
    };

    const NOW: i64 = 1_783_080_001_000_000;

    fn errors(table: &str) -> Vec<String> {
        let rows = match read_csv(table.as_bytes()) {
            Ok(rows) => rows,
            Err(errors) => return describe(&errors),
        };
        describe(&check_rows(&rows, NOW).unwrap_err())
    }

    #[test]
    fn a_table_of_keys_and_hashes_is_read() {
        let hash = KeyHash::of(b"another-key-of-theirs");
        let table = format!(
            "\u{feff}key, hash, customer, plan, name, expires, labels, routes, id\r\n\
             a-key-of-a-customer,,acme,pro,\"CI, nightly\",2027-01-31,team=a;env=,api;web,\r\n\
             \n\
             ,{hash},\"Müller & Söhne\",,,,,,theirs\n"
        );
        let rows = read_csv(table.as_bytes()).unwrap();
        assert!(!format!("{rows:?}").contains("a-key-of-a-customer"));
        let keys = check_rows(&rows, NOW).unwrap();
        let [(2, one), (4, other)] = keys.as_slice() else { panic!("{keys:?}") };
        assert!(one.secrets[0].hash == KeyHash::of(b"a-key-of-a-customer") && one.id.len() == 10);
        assert_eq!(
            (one.plan.as_deref(), &*one.name, one.expires),
            (Some("pro"), "CI, nightly", Some(1_801_353_600_000_000))
        );
        assert_eq!(one.labels, [("env".into(), "".into()), ("team".into(), "a".into())].into());
        assert_eq!(one.routes, ["api", "web"]);
        assert!(other.secrets[0].hash == hash && other.id == "theirs" && other.customer == "Müller & Söhne");
        let hashed: Vec<_> = rows.into_iter().map(ImportRow::without_key).collect();
        assert!(hashed.iter().all(|row| row.key.is_none()));
        let again = check_rows(&hashed, NOW).unwrap();
        assert!(again[0].1.secrets == keys[0].1.secrets);
    }

    #[test]
    fn each_wrong_line_is_told_and_no_key_is() {
        assert_eq!(
            errors(
                "key,customer\nshort,acme\n0123456789abcdef,\n0123456789abcdef,b\n0123456789abcdef,c\n,d\n"
            ),
            [
                "line 2: key: has 5 characters, not 16 to 512: it could be guessed",
                "line 3: customer: is missing",
                "line 5: key: line 4 has the same",
                "line 6: key: is missing",
            ]
        );
        assert_eq!(
            errors("key,customer\na,b,c\nd\n"),
            [
                "line 2: it has 3 cells, and the header line has 2",
                "line 3: it has 1 cells, and the header line has 2",
            ]
        );
        let unknown = errors("0123456789abcdef,acme\n");
        assert!(unknown[0].starts_with("line 1: the name of column 1 is unknown: the columns are id, key, "));
        assert!(!unknown[0].contains("0123456789abcdef"));
        assert_eq!(
            errors("customer\nacme\n"),
            ["line 1: a column customer and a column key or hash are needed"]
        );
        assert_eq!(errors("key,key,customer\n"), ["line 1: there are two columns key"]);
        assert_eq!(errors("key,customer\n"), ["there are no keys in it"]);
        assert_eq!(
            errors(
                "id,hash,customer,expires,old_hash\na b,sha256:1,c,,\nx,abc,c,,\ny,sha256:{h},c,soon,\n"
                    .replace("{h}", &"0".repeat(64))
                    .as_str()
            ),
            [
                "line 2: hash: is no hash: write sha256: and 64 hexadecimal digits",
                "line 3: hash: does not begin with sha256:",
                "line 4: expires: is no duration, date or time: write 90d, 2027-01-31 or 2027-01-31T12:00:00Z",
            ]
        );
        let old = |more: &str| {
            errors(&format!("hash,customer,old_hash,old_hash_expires\nsha256:{0},c,{more}\n", "0".repeat(64)))
        };
        let hash = |digit: &str| format!("sha256:{}", digit.repeat(64));
        assert_eq!(
            old("sha256:1,"),
            ["line 2: old_hash: is no hash: write sha256: and 64 hexadecimal digits"]
        );
        assert_eq!(old(",90d"), ["line 2: old_hash_expires: has more times than there are in old_hash"]);
        assert_eq!(
            old(&format!("{},90d;90d", hash("1"))),
            ["line 2: old_hash_expires: has more times than there are in old_hash"]
        );
        assert_eq!(
            old(&format!("{};{},;soon", hash("1"), hash("2"))),
            [
                "line 2: old_hash_expires: is no duration, date or time: write 90d, 2027-01-31 or 2027-01-31T12:00:00Z"
            ]
        );
        assert_eq!(old(&format!("{},", hash("0"))), ["line 2: key: line 2 has the same"]);
        let five = ["1", "2", "3", "4"].map(hash).join(";");
        assert_eq!(old(&format!("{five},")), ["line 2: key: a key has 1 to 4 secrets, not 5"]);
        let many = errors(&format!("key,customer\n{}", "x,y\n".repeat(30)));
        assert_eq!((many.len(), many[20].as_str()), (21, "and 10 more errors"));
        assert!(read_csv(b"key,customer\n\xff,a\n").is_err());
    }

    #[test]
    fn cells_that_a_spreadsheet_would_run_are_quoted_in_a_table_and_not_in_a_record() {
        for (name, cell) in [
            ("=1+1", "'=1+1"),
            ("+49 30", "'+49 30"),
            ("-", "'-"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("＝1", "'＝1"),
            ("'=1", "''=1"),
            ("''-1", "'''-1"),
            ("'a", "'a"),
            ("'", "'"),
            ("a=1", "a=1"),
        ] {
            let fields = KeyFields { customer: name.into(), id: Some("-x".into()), ..KeyFields::default() };
            let (key, _) = operations::create(fields, "tgk", NOW).unwrap();
            let table = write_csv(std::slice::from_ref(&key)).unwrap();
            assert!(table.contains("\n'-x,") && table.contains(&format!(",{cell},")), "{name}: {table}");
            let rows = read_csv(table.as_bytes()).unwrap();
            assert_eq!(check_rows(&rows, NOW).unwrap()[0].1, key, "{name}");
        }
    }

    #[test]
    fn too_many_keys_are_refused() {
        let row = ImportRow::default();
        assert!(check_rows(&vec![row; MAX_IMPORTED + 1], NOW).is_err());
        let table = format!("key,customer\n{}", "x,y\n".repeat(MAX_IMPORTED + 1));
        assert!(read_csv(table.as_bytes()).unwrap_err()[0].message.contains("in several parts"));
    }

    /// Often with a beginning that spreadsheets would run, or that an exported table may have had.
    fn text() -> impl Strategy<Value = String> {
        "(|[=+@＝'-]{1,3})[ -~äß\u{202e}\"',]{0,20}".prop_map(|text| text.trim().replace(';', ","))
    }

    prop_compose! {
        fn key()(
            customer in text().prop_filter("empty", |text| !text.is_empty()),
            plan in proptest::option::of("[a-z]{1,8}"),
            name in text(),
            labels in proptest::collection::btree_map("[a-z./-]{1,8}", text(), 0..3),
            routes in proptest::collection::vec(text().prop_filter("empty", |text| !text.is_empty()), 0..3),
            expires in proptest::option::of(NOW..2 * NOW),
            older in proptest::collection::vec((0..NOW, proptest::option::of(NOW..2 * NOW)), 0..MAX_SECRETS),
        ) -> ApiKey {
            let (customer, plan, name) = (customer.into(), plan.map(Into::into), name.into());
            let fields = KeyFields { customer, plan, name, labels, routes, expires, ..KeyFields::default() };
            let (mut key, _) = operations::create(fields, "tgk", NOW).unwrap();
            key.created = older.first().map_or(NOW, |(created, _)| *created);
            // As after rotations, and as in a file of keys, where old hashes have no end.
            for (created, expires) in older {
                let hash = KeyHash::of(&fastrand::u128(..).to_be_bytes());
                key.secrets.insert(0, KeySecret { hash, created, expires });
            }
            key
        }
    }

    proptest! {
        #[test]
        fn an_exported_table_can_be_imported(keys in proptest::collection::vec(key(), 1..5)) {
            let table = write_csv(&keys).unwrap();
            for record in csv::Reader::from_reader(table.as_bytes()).records() {
                prop_assert!(record.unwrap().iter().all(|cell| !cell.starts_with(['=', '+', '-', '@', '＝'])));
            }
            let rows = read_csv(table.as_bytes()).unwrap();
            let again: Vec<_> = check_rows(&rows, NOW).unwrap().into_iter().map(|(_, key)| key).collect();
            prop_assert_eq!(again, keys);
        }

        #[test]
        fn anything_is_read_or_refused(table in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(rows) = read_csv(&table) {
                let _ = check_rows(&rows, NOW);
            }
            let mut with_header = b"key,customer,expires,labels\n".to_vec();
            with_header.extend(table);
            if let Ok(rows) = read_csv(&with_header) {
                let _ = check_rows(&rows, NOW);
            }
        }
    }
}
