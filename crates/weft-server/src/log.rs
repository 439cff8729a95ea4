//! The server's log: one JSON object a line, on standard error.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use weft::htm::word::{Ordering, Word};

/// How important a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The server cannot do what it should.
    Error,
    /// Something that an operator should look at.
    Warn,
    /// Something that happens seldom.
    Info,
    /// Something that happens for every connection.
    Debug,
}

impl Level {
    /// All levels.
    pub const ALL: [Level; 4] = [Level::Error, Level::Warn, Level::Info, Level::Debug];

    /// Returns the name of the level.
    pub fn name(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug => "debug",
        }
    }
}

/// The least important level that is written.
static LEVEL: Word = Word::new(Level::Info as u64);

/// Sets the least important level that is written.
pub fn set_level(level: Level) {
    LEVEL.store(level as u64, Ordering::Relaxed);
}

/// Writes a line. `fields` is an object, whose fields are added.
pub fn log(level: Level, message: &str, fields: Value) {
    if level as u64 > LEVEL.load(Ordering::Relaxed) {
        return;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut line = json!({ "time": now.as_secs_f64(), "level": level.name(), "message": message });
    if let (Value::Object(line), Value::Object(fields)) = (&mut line, fields) {
        line.extend(fields);
    }
    // If standard error is closed, nothing can be said about it.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
