//! Replies as Lua values, and Lua values as replies, as Redis converts them.

use mlua::{Lua, Table, Value};

use super::number;
use crate::reply::Reply;
use crate::request::parse_integer;
use crate::stop::{Done, Stop};

/// Tables that lie deeper in each other are not converted.
const DEPTH_MAX: u32 = 100;

/// Returns a reply, which is complete, as a Lua value.
///
/// # Errors
/// There is not enough memory.
pub fn read(lua: &Lua, bytes: &[u8]) -> mlua::Result<Value> {
    Reader { lua, rest: bytes }.value()
}

struct Reader<'r> {
    lua: &'r Lua,
    rest: &'r [u8],
}

impl<'r> Reader<'r> {
    /// Takes bytes, and the end of a line behind them.
    fn take(&mut self, length: usize) -> &'r [u8] {
        let taken = self.rest.get(..length).unwrap_or_default();
        self.rest = self.rest.get(length + 2..).unwrap_or_default();
        taken
    }

    fn line(&mut self) -> &'r [u8] {
        let end = memchr::memchr(b'\r', self.rest).unwrap_or(0);
        self.take(end)
    }

    fn value(&mut self) -> mlua::Result<Value> {
        let lua = self.lua;
        let line = self.line();
        let Some((kind, line)) = line.split_first() else { return Ok(Value::Nil) };
        // Only values with a length need it. That of a null is below zero.
        let length = || parse_integer(line).and_then(|length| usize::try_from(length).ok());
        Ok(match kind {
            b'+' => single(lua, "ok", line)?,
            b'-' => error(lua, line)?,
            b':' => Value::Integer(parse_integer(line).unwrap_or(0)),
            b'$' => match length() {
                Some(length) => Value::String(lua.create_string(self.take(length))?),
                None => Value::Boolean(false),
            },
            b'*' => match length() {
                Some(length) => {
                    let table = lua.create_table_with_capacity(length, 0)?;
                    for position in 1..=length {
                        table.raw_set(position, self.value()?)?;
                    }
                    Value::Table(table)
                }
                None => Value::Boolean(false),
            },
            b'#' => Value::Boolean(line == b"t"),
            b',' => {
                let number = crate::call::parse_float(line).unwrap_or(f64::NAN);
                wrap(lua, "double", Value::Number(number))?
            }
            b'~' | b'%' => {
                let is_map = *kind == b'%';
                let table = lua.create_table()?;
                for _ in 0..length().unwrap_or(0) {
                    let key = self.value()?;
                    let value = if is_map { self.value()? } else { Value::Boolean(true) };
                    table.raw_set(key, value)?;
                }
                wrap(lua, if is_map { "map" } else { "set" }, Value::Table(table))?
            }
            b'=' => {
                let text = self.take(length().unwrap_or(0));
                let (format, text) = text.split_at(text.len().min(3));
                let table = lua.create_table()?;
                table.raw_set("format", lua.create_string(format)?)?;
                table.raw_set("string", lua.create_string(text.get(1..).unwrap_or_default())?)?;
                wrap(lua, "verbatim_string", Value::Table(table))?
            }
            b'(' => single(lua, "big_number", line)?,
            _ => Value::Nil,
        })
    }
}

fn wrap(lua: &Lua, name: &str, value: Value) -> mlua::Result<Value> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set(name, value)?;
    Ok(Value::Table(table))
}

/// Returns a table with one text.
///
/// # Errors
/// There is not enough memory.
pub fn single(lua: &Lua, name: &str, text: &[u8]) -> mlua::Result<Value> {
    wrap(lua, name, Value::String(lua.create_string(text)?))
}

/// Returns an error reply as a table.
///
/// # Errors
/// There is not enough memory.
pub fn error(lua: &Lua, text: &[u8]) -> mlua::Result<Value> {
    let value = single(lua, "err", text)?;
    if let Value::Table(table) = &value {
        table.raw_set("ignore_error_stats_update", true)?;
    }
    Ok(value)
}

/// Returns the text, if a value is an error reply.
pub fn error_of(value: &Value) -> Option<String> {
    let text: Value = value.as_table()?.raw_get("err").ok()?;
    Some(text.as_string()?.to_string_lossy().trim_end().to_owned())
}

/// Writes a Lua value as a reply.
///
/// # Errors
/// Tables lie too deep in each other, or there is not enough memory.
pub fn write(reply: &mut Reply, value: &Value) -> Done {
    write_nested(reply, value, 0)
}

fn write_nested(reply: &mut Reply, value: &Value, depth: u32) -> Done {
    if depth > DEPTH_MAX {
        return Err("ERR reached lua stack limit".into());
    }
    if reply.is_too_long() {
        return Err("ERR the result of the script is too long".into());
    }
    match value {
        Value::Integer(number) => reply.integer(*number),
        Value::Number(number) => reply.integer(*number as i64),
        Value::String(text) => reply.text(text.as_bytes()),
        Value::Boolean(flag) => {
            let version = super::running::RUNNING.with(|running| running.version.get());
            match (version, flag) {
                (crate::reply::Version::Three, flag) => reply.boolean(*flag),
                (_, true) => reply.integer(1),
                (_, false) => reply.null(),
            }
        }
        Value::Table(table) => write_table(reply, table, depth).map_err(|error| match error {
            Failed::Lua(error) => Stop::from(format!("ERR {}", super::text_of(&error))),
            Failed::Reply(stop) => stop,
        })?,
        _ => reply.null(),
    }
    Ok(())
}

enum Failed {
    Lua(mlua::Error),
    Reply(Stop),
}

impl From<mlua::Error> for Failed {
    fn from(error: mlua::Error) -> Self {
        Failed::Lua(error)
    }
}

impl From<Stop> for Failed {
    fn from(stop: Stop) -> Self {
        Failed::Reply(stop)
    }
}

fn write_table(reply: &mut Reply, table: &Table, depth: u32) -> Result<(), Failed> {
    // Most tables are lists, whose other fields are looked for in vain.
    let first: Value = table.raw_get(1)?;
    if first.is_nil() && write_special(reply, table, depth)? {
        return Ok(());
    }
    // As far as the first nil: the length of a list with gaps may be any of its ends.
    let mut length = table.raw_len();
    for position in 1..=length {
        if table.raw_get::<Value>(position)?.is_nil() {
            length = position - 1;
            break;
        }
    }
    reply.array(length);
    for position in 1..=length {
        write_nested(reply, &table.raw_get(position)?, depth + 1)?;
    }
    Ok(())
}

/// Writes a table that stands for a value which Lua does not have. Returns false if it is something else.
fn write_special(reply: &mut Reply, table: &Table, depth: u32) -> Result<bool, Failed> {
    if let Value::String(text) = table.raw_get("err")? {
        reply.error(text.to_string_lossy().trim_end());
        return Ok(true);
    }
    if let Value::String(text) = table.raw_get("ok")? {
        reply.simple(&text.to_string_lossy().replace(['\r', '\n'], " "));
        return Ok(true);
    }
    if let Some(double) = number(&table.raw_get("double")?) {
        reply.double(double);
        return Ok(true);
    }
    if let Value::Table(map) = table.raw_get("map")? {
        let pairs: Vec<(Value, Value)> = map.pairs().collect::<mlua::Result<_>>()?;
        reply.map(pairs.len());
        for (key, value) in &pairs {
            write_nested(reply, key, depth + 1)?;
            write_nested(reply, value, depth + 1)?;
        }
        return Ok(true);
    }
    if let Value::Table(set) = table.raw_get("set")? {
        let members: Vec<(Value, Value)> = set.pairs().collect::<mlua::Result<_>>()?;
        reply.set(members.len());
        for (member, _) in &members {
            write_nested(reply, member, depth + 1)?;
        }
        return Ok(true);
    }
    if let Value::String(digits) = table.raw_get("big_number")? {
        reply.big_number(&digits.to_string_lossy().replace(['\r', '\n'], " "));
        return Ok(true);
    }
    if let Value::Table(verbatim) = table.raw_get("verbatim_string")?
        && let (Value::String(text), Value::String(format)) =
            (verbatim.raw_get("string")?, verbatim.raw_get("format")?)
    {
        reply.verbatim_as(&format.as_bytes(), &text.as_bytes());
        return Ok(true);
    }
    Ok(false)
}

/// Returns a number with up to so many digits, as `%g` of C writes it.
pub fn digits(number: f64, digits: usize) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf".to_owned() } else { "-inf".to_owned() };
    }
    let trim = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    let scientific = format!("{number:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trim(mantissa), exponent.abs());
    }
    let decimals = usize::try_from(digits as i32 - 1 - exponent).unwrap_or(0);
    trim(&format!("{number:.decimals$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_c() {
        for (number, precision, text) in [
            (0.1, 17, "0.10000000000000001"),
            (2.75, 14, "2.75"),
            (1e20, 17, "1e+20"),
            (1.5e-7, 14, "1.5e-07"),
            (-2.0, 14, "-2"),
            (123_456_789_012_345.0, 14, "1.2345678901234e+14"),
            (0.0, 17, "0"),
            (f64::NEG_INFINITY, 17, "-inf"),
        ] {
            assert_eq!(digits(number, precision), text);
        }
    }
}
