//! Weft's own format: JSON lines, versioned reads and writes.
//!
//! ```text
//! {"format":"weft-history","version":1}
//! {"id":1,"session":0,"invoke":100,"complete":180,"status":"committed","ops":[["read","accounts",5,0],["write","accounts",5,7]]}
//! {"id":2,"session":1,"invoke":200,"complete":260,"status":"committed","ops":[["scan","accounts",{"from":1,"to":9},[[5,7]]]]}
//! ```
//!
//! `docs/history-format.md` describes it. Operations go from the text straight into the history's arrays, so
//! that reading a file of a gigabyte takes no more memory than its history.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, BufRead, Write};
use std::ops::Bound;

use rustc_hash::FxHashSet;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::excerpt::without_middle;
use super::{FormatError, Lines, PROGRESS_INTERVAL};
use crate::history::{
    History, HistoryBuilder, INITIAL, Observed, Operation, OperationKind, Status,
};
use crate::key::Key;

/// The name of the format in its first line.
const NAME: &str = "weft-history";
/// The version of the format that this module reads and writes.
const VERSION: u64 = 1;

#[derive(Deserialize, Serialize)]
struct Header<'a> {
    #[serde(borrow)]
    format: Cow<'a, str>,
    version: u64,
}

/// Returns whether a line looks like the first line of the format, in any version.
pub(crate) fn is_header(line: &[u8]) -> bool {
    serde_json::from_slice::<Header<'_>>(line).is_ok_and(|header| header.format == NAME)
}

/// Reads a history, including its first line.
pub(crate) fn read_lines<R: BufRead>(
    lines: &mut Lines<R>,
    progress: &mut dyn FnMut(u64),
) -> Result<History, FormatError> {
    let expected = format!("expected {{\"format\":\"{NAME}\",\"version\":{VERSION}}}");
    let Some((line, text)) = lines.next_line()? else {
        return Err(FormatError::syntax(1, expected));
    };
    match serde_json::from_slice::<Header<'_>>(text) {
        Ok(header) if header.format == NAME && header.version == VERSION => {}
        Ok(header) if header.format == NAME => {
            let version = header.version;
            let message = format!("version {version} of the format is not known; {expected}");
            return Err(FormatError::syntax(line, message));
        }
        _ => return Err(FormatError::syntax(line, expected)),
    }
    let mut builder = HistoryBuilder::new();
    let mut ids = FxHashSet::default();
    while let Some((line, text)) = lines.next_line()? {
        let mut deserializer = serde_json::Deserializer::from_slice(text);
        let seed = TransactionSeed { builder: &mut builder };
        let id = seed
            .deserialize(&mut deserializer)
            .and_then(|id| deserializer.end().map(|()| id))
            .map_err(|error| FormatError::syntax(line, without_line(&error)))?;
        if !ids.insert(id) {
            let message = format!("there is a transaction {id} already; ids are unique");
            return Err(FormatError::syntax(line, message));
        }
        if line.is_multiple_of(PROGRESS_INTERVAL) {
            progress(line);
        }
    }
    Ok(builder.build())
}

/// Returns the message of a JSON error with the column alone, because its line is always 1. Quotes of the line
/// are cut short.
pub(crate) fn without_line(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.rsplit_once(" at line ").map_or(&*text, |(text, _)| text);
    format!("{} (column {})", without_middle(text), error.column())
}

/// Deserializes one transaction. Its operations go directly into the builder.
struct TransactionSeed<'a> {
    builder: &'a mut HistoryBuilder,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StatusName {
    Committed,
    Aborted,
    Unknown,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum Field {
    Id,
    Session,
    Invoke,
    Complete,
    Status,
    Ops,
}

impl<'de> DeserializeSeed<'de> for TransactionSeed<'_> {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u64, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for TransactionSeed<'_> {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a transaction, like {\"id\":1,\"status\":\"committed\",\"ops\":[]}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<u64, A::Error> {
        let (mut id, mut session, mut status) = (None, None, None);
        let (mut invoke_ns, mut complete_ns) = (None::<Option<u64>>, None::<Option<u64>>);
        let mut has_operations = false;
        while let Some(field) = map.next_key()? {
            match field {
                Field::Id => set(&mut id, map.next_value()?, "id")?,
                Field::Session => set(&mut session, map.next_value()?, "session")?,
                Field::Invoke => set(&mut invoke_ns, map.next_value()?, "invoke")?,
                Field::Complete => set(&mut complete_ns, map.next_value()?, "complete")?,
                Field::Status => set(&mut status, map.next_value::<StatusName>()?, "status")?,
                Field::Ops if has_operations => return Err(de::Error::duplicate_field("ops")),
                Field::Ops => {
                    has_operations = true;
                    map.next_value_seed(OperationsSeed { builder: self.builder })?;
                }
            }
        }
        let id = id.ok_or_else(|| de::Error::missing_field("id"))?;
        let status = match status.ok_or_else(|| de::Error::missing_field("status"))? {
            StatusName::Committed => Status::Committed,
            StatusName::Aborted => Status::Aborted,
            StatusName::Unknown => Status::Unknown,
        };
        if !has_operations {
            return Err(de::Error::missing_field("ops"));
        }
        let invoke_ns = invoke_ns.flatten().unwrap_or(0);
        let complete_ns = complete_ns.flatten();
        if complete_ns.is_some_and(|complete_ns| complete_ns < invoke_ns) {
            return Err(de::Error::custom("it is complete before it is invoked"));
        }
        let session = session.unwrap_or(0);
        self.builder.push_transaction(id, session, status, invoke_ns, complete_ns);
        Ok(id)
    }
}

fn set<T, E: de::Error>(place: &mut Option<T>, value: T, name: &'static str) -> Result<(), E> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(E::duplicate_field(name)),
    }
}

/// Deserializes the array of operations.
struct OperationsSeed<'a> {
    builder: &'a mut HistoryBuilder,
}

impl<'de> DeserializeSeed<'de> for OperationsSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for OperationsSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of operations")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut operations: A) -> Result<(), A::Error> {
        while operations.next_element_seed(OperationSeed { builder: self.builder })?.is_some() {}
        Ok(())
    }
}

/// Deserializes one operation.
struct OperationSeed<'a> {
    builder: &'a mut HistoryBuilder,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum OperationName {
    Read,
    Write,
    Delete,
    Scan,
}

impl<'de> DeserializeSeed<'de> for OperationSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for OperationSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "an operation: [\"read\",table,key,version or null], [\"write\",table,key,version], \
             [\"delete\",table,key,version] or [\"scan\",table,range,[[key,version],…]]",
        )
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<(), A::Error> {
        let missing = |index| de::Error::invalid_length(index, &"four elements");
        let name: OperationName = parts.next_element()?.ok_or_else(|| missing(0))?;
        let table: Text<'de> = parts.next_element()?.ok_or_else(|| missing(1))?;
        let table = self.builder.table(&table.0);
        if matches!(name, OperationName::Scan) {
            let range: RangeText = parts.next_element()?.ok_or_else(|| missing(2))?;
            let (from, to) = range.bounds()?;
            let rows = RowsSeed { builder: self.builder, table };
            parts.next_element_seed(rows)?.ok_or_else(|| missing(3))?;
            self.builder.push_scan(table, from.as_ref(), to.as_ref());
        } else {
            let key: Key = parts.next_element()?.ok_or_else(|| missing(2))?;
            let key = self.builder.key(table, &key);
            let version: Option<u64> = parts.next_element()?.ok_or_else(|| missing(3))?;
            let (kind, version) = match (name, version) {
                (OperationName::Read, Some(version)) => (OperationKind::Read, version),
                (OperationName::Read, None) => (OperationKind::ReadAbsent, 0),
                (_, None) => return Err(de::Error::custom("a write has a version, not null")),
                (_, Some(INITIAL)) => {
                    return Err(de::Error::custom(
                        "version 0 is the state before the history; no transaction writes it",
                    ));
                }
                (OperationName::Write, Some(version)) => (OperationKind::Write, version),
                (_, Some(version)) => (OperationKind::Delete, version),
            };
            self.builder.push(kind, key.0, version);
        }
        match parts.next_element::<de::IgnoredAny>()? {
            None => Ok(()),
            Some(_) => Err(missing(5)),
        }
    }
}

/// A text that is borrowed from the line if it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The range of a scan. A missing end means that the range is unbounded there.
#[derive(Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct RangeText {
    /// The first key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<Key>,
    /// The key after which the range begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after: Option<Key>,
    /// The key before which the range ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<Key>,
    /// The last key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    through: Option<Key>,
}

impl RangeText {
    fn new((from, to): (Bound<Key>, Bound<Key>)) -> RangeText {
        let mut range = RangeText::default();
        match from {
            Bound::Included(key) => range.from = Some(key),
            Bound::Excluded(key) => range.after = Some(key),
            Bound::Unbounded => {}
        }
        match to {
            Bound::Included(key) => range.through = Some(key),
            Bound::Excluded(key) => range.to = Some(key),
            Bound::Unbounded => {}
        }
        range
    }

    fn bounds<E: de::Error>(self) -> Result<(Bound<Key>, Bound<Key>), E> {
        let end = |included: Option<Key>, excluded: Option<Key>, names| match (included, excluded) {
            (Some(_), Some(_)) => Err(E::custom(format!("a range has one of {names}, not both"))),
            (Some(key), None) => Ok(Bound::Included(key)),
            (None, Some(key)) => Ok(Bound::Excluded(key)),
            (None, None) => Ok(Bound::Unbounded),
        };
        let from = end(self.from, self.after, "'from' and 'after'")?;
        Ok((from, end(self.through, self.to, "'to' and 'through'")?))
    }
}

/// Deserializes the rows of a scan.
struct RowsSeed<'a> {
    builder: &'a mut HistoryBuilder,
    table: crate::history::TableId,
}

impl<'de> DeserializeSeed<'de> for RowsSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for RowsSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the rows of a scan: [[key,version],…]")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut rows: A) -> Result<(), A::Error> {
        while let Some((key, version)) = rows.next_element::<(Key, u64)>()? {
            let key = self.builder.key(self.table, &key);
            self.builder.push_row(key, version);
        }
        Ok(())
    }
}

/// Writes a history.
///
/// # Errors
///
/// If `writer` cannot be written; or, with [`io::ErrorKind::InvalidInput`], if the history was not recorded
/// with numbered versions.
pub fn write(history: &History, mut writer: impl Write) -> io::Result<()> {
    if !history.is_order_known() {
        let message = "only histories with numbered versions can be written";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    serde_json::to_writer(&mut writer, &Header { format: NAME.into(), version: VERSION })?;
    writer.write_all(b"\n")?;
    for transaction in history.transactions() {
        write!(writer, "{{\"id\":{},\"session\":{}", transaction.id(), transaction.session())?;
        write!(writer, ",\"invoke\":{}", transaction.invoke_ns())?;
        if let Some(complete_ns) = transaction.complete_ns() {
            write!(writer, ",\"complete\":{complete_ns}")?;
        }
        let status = match transaction.status() {
            Status::Committed => "committed",
            Status::Aborted => "aborted",
            Status::Unknown => "unknown",
        };
        write!(writer, ",\"status\":\"{status}\",\"ops\":[")?;
        for (index, operation) in transaction.operations().enumerate() {
            if index > 0 {
                writer.write_all(b",")?;
            }
            write_operation(history, operation, &mut writer)?;
        }
        writer.write_all(b"]}\n")?;
    }
    Ok(())
}

fn write_operation(
    history: &History,
    operation: Operation<'_>,
    writer: &mut impl Write,
) -> io::Result<()> {
    let (name, key, version) = match operation {
        Operation::Read(key, Observed::Version(version)) => ("read", key, Some(version)),
        Operation::Read(key, Observed::Absent) => ("read", key, None),
        Operation::Write(key, version) => ("write", key, Some(version)),
        Operation::Delete(key, version) => ("delete", key, Some(version)),
        Operation::Scan(scan) => {
            let rows: Vec<(Key, u64)> =
                scan.rows().map(|(key, version)| (history.key(key), version)).collect();
            let range = RangeText::new(scan.range());
            serde_json::to_writer(writer, &("scan", scan.table(), range, rows))?;
            return Ok(());
        }
    };
    let parts = (name, history.table_of(key), history.key(key), version);
    serde_json::to_writer(writer, &parts)?;
    Ok(())
}
