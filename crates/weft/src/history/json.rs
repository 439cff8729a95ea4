//! Histories as JSON lines: one line that names the format, then one for each transaction.
//! `docs/history-format.md` describes the format. The JSON is written by hand, because the engine
//! depends on no serializer.

use std::fmt::{self, Display, Formatter, Write as _};
use std::io::{self, Write};
use std::ops::Bound;

use super::{History, HistoryKey, Operation, Status, Transaction};

impl History {
    /// Writes the history, one line for each transaction, in the format that
    /// `docs/history-format.md` describes and `weft check` reads.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_json_lines(&self, mut out: impl Write) -> io::Result<()> {
        writeln!(out, "{{\"format\":\"weft-history\",\"version\":1}}")?;
        self.transactions.iter().try_for_each(|transaction| writeln!(out, "{}", Json(transaction)))
    }
}

/// A value to be displayed as JSON.
struct Json<T>(T);

impl Display for Json<&Transaction> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Transaction { id, session, invoke_ns, complete_ns, status, operations } = self.0;
        let status = match status {
            Status::Committed => "committed",
            Status::Aborted | Status::RolledBack => "aborted",
        };
        write!(
            f,
            "{{\"id\":{id},\"session\":{session},\"invoke\":{invoke_ns},\
             \"complete\":{complete_ns},\"status\":\"{status}\",\"ops\":["
        )?;
        separated(f, operations)?;
        f.write_str("]}")
    }
}

impl Display for Json<&Operation> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Operation::Read { table, key, version } => {
                write!(f, "[\"read\",{},{},", Json(&**table), Json(key))?;
                match version {
                    Some(version) => write!(f, "{version}]"),
                    None => f.write_str("null]"),
                }
            }
            Operation::Write { table, key, version } => {
                write!(f, "[\"write\",{},{},{version}]", Json(&**table), Json(key))
            }
            Operation::Delete { table, key, version } => {
                write!(f, "[\"delete\",{},{},{version}]", Json(&**table), Json(key))
            }
            Operation::Scan { table, from, to, rows } => {
                write!(f, "[\"scan\",{},{},[", Json(&**table), Json((from, to)))?;
                separated(f, rows)?;
                f.write_str("]]")
            }
        }
    }
}

type Bounds<'h> = (&'h Bound<HistoryKey>, &'h Bound<HistoryKey>);

impl Display for Json<Bounds<'_>> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let from = match self.0.0 {
            Bound::Included(key) => Some(("from", key)),
            Bound::Excluded(key) => Some(("after", key)),
            Bound::Unbounded => None,
        };
        let to = match self.0.1 {
            Bound::Included(key) => Some(("through", key)),
            Bound::Excluded(key) => Some(("to", key)),
            Bound::Unbounded => None,
        };
        f.write_char('{')?;
        for (position, (name, key)) in from.into_iter().chain(to).enumerate() {
            let comma = if position > 0 { "," } else { "" };
            write!(f, "{comma}\"{name}\":{}", Json(key))?;
        }
        f.write_char('}')
    }
}

impl Display for Json<&(HistoryKey, u64)> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (key, version) = self.0;
        write!(f, "[{},{version}]", Json(key))
    }
}

impl Display for Json<&HistoryKey> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            HistoryKey::Integer(value) => write!(f, "{value}"),
            HistoryKey::Text(text) => Json(text.as_str()).fmt(f),
            HistoryKey::Tuple(columns) => {
                f.write_char('[')?;
                separated(f, columns)?;
                f.write_char(']')
            }
        }
    }
}

impl Display for Json<&str> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for character in self.0.chars() {
            match character {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\0'..='\x1f' => write!(f, "\\u{:04x}", u32::from(character))?,
                _ => f.write_char(character)?,
            }
        }
        f.write_char('"')
    }
}

/// Writes values with commas between them.
fn separated<'v, T>(f: &mut Formatter<'_>, values: &'v [T]) -> fmt::Result
where
    Json<&'v T>: Display,
{
    for (position, value) in values.iter().enumerate() {
        if position > 0 {
            f.write_char(',')?;
        }
        Json(value).fmt(f)?;
    }
    Ok(())
}
