//! The library `cmsgpack`.

use mlua::{Lua, LuaString, MultiValue, Table, Value};
use rmp::Marker;
use rmp::encode;

use super::json::list_of;
use super::raise;
use super::running::check_length;

/// Tables that lie deeper in each other are written as nil, as in Redis. Deeper input is refused.
const DEPTH_MAX: u32 = 16;
const INPUT_DEPTH_MAX: u32 = 128;

/// Creates the library.
pub fn create(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    library.raw_set("_NAME", "cmsgpack")?;
    library.raw_set(
        "pack",
        lua.create_function(|lua, values: MultiValue| {
            let mut bytes = Vec::new();
            for value in &values {
                pack(value, &mut bytes, 0)?;
            }
            lua.create_string(bytes)
        })?,
    )?;
    library.raw_set(
        "unpack",
        lua.create_function(|lua, bytes: LuaString| {
            Ok(unpack(lua, &bytes.as_bytes(), 0, usize::MAX)?.0)
        })?,
    )?;
    library.raw_set(
        "unpack_one",
        lua.create_function(|lua, (bytes, from): (LuaString, Option<usize>)| {
            unpack_from(lua, &bytes, 1, from)
        })?,
    )?;
    library.raw_set(
        "unpack_limit",
        lua.create_function(|lua, (bytes, count, from): (LuaString, usize, Option<usize>)| {
            unpack_from(lua, &bytes, count, from)
        })?,
    )?;
    Ok(library)
}

fn pack(value: &Value, bytes: &mut Vec<u8>, depth: u32) -> mlua::Result<()> {
    check_length(bytes.len())?;
    let length = |length: usize| u32::try_from(length).map_err(mlua::Error::external);
    let written = match value {
        Value::Boolean(flag) => encode::write_bool(bytes, *flag).map_err(mlua::Error::external),
        Value::Integer(number) => {
            encode::write_sint(bytes, *number).map(drop).map_err(mlua::Error::external)
        }
        Value::Number(number) if f64::from(*number as f32) == *number => {
            encode::write_f32(bytes, *number as f32).map_err(mlua::Error::external)
        }
        Value::Number(number) => encode::write_f64(bytes, *number).map_err(mlua::Error::external),
        Value::String(text) => {
            let text = text.as_bytes();
            encode::write_str_len(bytes, length(text.len())?).map_err(mlua::Error::external)?;
            bytes.extend_from_slice(&text);
            Ok(())
        }
        Value::Table(table) if depth < DEPTH_MAX => {
            let list = list_of(table)?.filter(|(length, greatest)| length == greatest);
            let pairs: Vec<(Value, Value)> = table.pairs().collect::<mlua::Result<_>>()?;
            match list {
                None if !pairs.is_empty() => {
                    encode::write_map_len(bytes, length(pairs.len())?)
                        .map_err(mlua::Error::external)?;
                    for (key, value) in &pairs {
                        pack(key, bytes, depth + 1)?;
                        pack(value, bytes, depth + 1)?;
                    }
                }
                _ => {
                    encode::write_array_len(bytes, length(pairs.len())?)
                        .map_err(mlua::Error::external)?;
                    for position in 1..=pairs.len() {
                        pack(&table.raw_get(position)?, bytes, depth + 1)?;
                    }
                }
            }
            Ok(())
        }
        _ => encode::write_nil(bytes).map_err(mlua::Error::external),
    };
    written.map(drop)
}

/// Returns the position after the values, which is -1 at the end, and the values.
fn unpack_from(
    lua: &Lua,
    bytes: &LuaString,
    count: usize,
    from: Option<usize>,
) -> mlua::Result<MultiValue> {
    let bytes = bytes.as_bytes();
    let from = from.unwrap_or(0);
    if from > bytes.len() {
        return raise(
            lua,
            format!("Start offset {from} greater than input length {}.", bytes.len()),
        );
    }
    let (mut values, end) = unpack(lua, &bytes, from, count)?;
    let next = if end == bytes.len() { -1 } else { i64::try_from(end).unwrap_or(-1) };
    values.push_front(Value::Integer(next));
    Ok(values)
}

fn unpack(lua: &Lua, bytes: &[u8], from: usize, count: usize) -> mlua::Result<(MultiValue, usize)> {
    let mut reader = Reader { lua, rest: &bytes[from..] };
    let mut values = MultiValue::new();
    while !reader.rest.is_empty() && values.len() < count {
        match reader.value(0)? {
            Some(value) => values.push_back(value),
            None => return raise(lua, "Bad data format in input, or missing bytes."),
        }
    }
    Ok((values, bytes.len() - reader.rest.len()))
}

struct Reader<'r> {
    lua: &'r Lua,
    rest: &'r [u8],
}

impl<'r> Reader<'r> {
    fn take(&mut self, length: usize) -> Option<&'r [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    /// Takes an unsigned number of so many bytes.
    fn unsigned(&mut self, length: usize) -> Option<u64> {
        Some(self.take(length)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// Takes a signed number of so many bytes.
    fn signed(&mut self, length: usize) -> Option<i64> {
        let shift = 64 - 8 * length as u32;
        Some((self.unsigned(length)? << shift).cast_signed() >> shift)
    }

    fn length(&mut self, length: usize) -> Option<usize> {
        usize::try_from(self.unsigned(length)?).ok()
    }

    /// Takes a value. `None` if the bytes mean nothing, or if some are missing.
    fn value(&mut self, depth: u32) -> mlua::Result<Option<Value>> {
        let Some(marker) = self.take(1) else { return Ok(None) };
        let marker = Marker::from_u8(marker[0]);
        let length = match marker {
            Marker::FixStr(length) | Marker::FixArray(length) | Marker::FixMap(length) => {
                Some(usize::from(length))
            }
            Marker::Str8 | Marker::Bin8 => self.length(1),
            Marker::Str16 | Marker::Bin16 | Marker::Array16 | Marker::Map16 => self.length(2),
            Marker::Str32 | Marker::Bin32 | Marker::Array32 | Marker::Map32 => self.length(4),
            _ => return Ok(self.number(marker)),
        };
        let Some(length) = length else { return Ok(None) };
        match marker {
            Marker::FixArray(_) | Marker::Array16 | Marker::Array32 => {
                self.table(length, false, depth)
            }
            Marker::FixMap(_) | Marker::Map16 | Marker::Map32 => self.table(length, true, depth),
            _ => match self.take(length) {
                Some(text) => Ok(Some(Value::String(self.lua.create_string(text)?))),
                None => Ok(None),
            },
        }
    }

    /// Takes a value that is neither text nor a table.
    fn number(&mut self, marker: Marker) -> Option<Value> {
        Some(match marker {
            Marker::Null => Value::Nil,
            Marker::False => Value::Boolean(false),
            Marker::True => Value::Boolean(true),
            Marker::FixPos(number) => Value::Integer(number.into()),
            Marker::FixNeg(number) => Value::Integer(number.into()),
            Marker::U8 => Value::Number(self.unsigned(1)? as f64),
            Marker::U16 => Value::Number(self.unsigned(2)? as f64),
            Marker::U32 => Value::Number(self.unsigned(4)? as f64),
            Marker::U64 => Value::Number(self.unsigned(8)? as f64),
            Marker::I8 => Value::Integer(self.signed(1)?),
            Marker::I16 => Value::Integer(self.signed(2)?),
            Marker::I32 => Value::Integer(self.signed(4)?),
            Marker::I64 => Value::Number(self.signed(8)? as f64),
            Marker::F32 => {
                let bits = u32::try_from(self.unsigned(4)?).ok()?;
                Value::Number(f32::from_bits(bits).into())
            }
            Marker::F64 => Value::Number(f64::from_bits(self.unsigned(8)?)),
            _ => return None,
        })
    }

    fn table(&mut self, length: usize, is_map: bool, depth: u32) -> mlua::Result<Option<Value>> {
        // Each element takes a byte at least, so a length cannot announce more than there is.
        if depth >= INPUT_DEPTH_MAX || length > self.rest.len() {
            return Ok(None);
        }
        let table = self.lua.create_table_with_capacity(if is_map { 0 } else { length }, 0)?;
        for position in 1..=length {
            let key = match is_map {
                true => self.value(depth + 1)?,
                false => Some(Value::Integer(position as i64)),
            };
            let (Some(key), Some(value)) = (key, self.value(depth + 1)?) else { return Ok(None) };
            if key.is_nil() {
                return Ok(None);
            }
            table.raw_set(key, value)?;
        }
        Ok(Some(Value::Table(table)))
    }
}
