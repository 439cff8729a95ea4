//! The server's log: one JSON object a line, on standard error.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

/// Writes a line. `fields` is an object, whose fields are added.
pub fn log(level: &str, message: &str, fields: Value) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut line = json!({ "time": now.as_secs_f64(), "level": level, "message": message });
    if let (Value::Object(line), Value::Object(fields)) = (&mut line, fields) {
        line.extend(fields);
    }
    // If standard error is closed, nothing can be said about it.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
