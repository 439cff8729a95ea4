//! The library `cjson`.

use mlua::{Lua, LuaString, Table, Value};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::running::{MEMORY, RUNNING, check_length};
use super::{raise, text_of, values};

/// Tables that lie deeper in each other are not written. `serde_json` reads as deep.
const DEPTH_MAX: u32 = 128;
/// A list with more gaps than this, whose greatest position is more than twice its length, is refused.
const GAPS_ALLOWED: usize = 10;

/// Creates the library.
pub fn create(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    library.raw_set("null", Value::NULL)?;
    library.raw_set("_NAME", "cjson")?;
    library.raw_set("_VERSION", "2.1.0")?;
    library.raw_set(
        "encode",
        lua.create_function(|lua, value: Value| {
            let mut text = Vec::new();
            encode(lua, &value, &mut text, 0)?;
            lua.create_string(text)
        })?,
    )?;
    library.raw_set("decode", lua.create_function(decode)?)?;
    // Settings belong to a call, and these are as they are.
    for name in
        ["encode_keep_buffer", "encode_max_depth", "decode_max_depth", "encode_sparse_array"]
    {
        library.raw_set(name, lua.create_function(|_, _: mlua::MultiValue| Ok(()))?)?;
    }
    Ok(library)
}

fn encode(lua: &Lua, value: &Value, text: &mut Vec<u8>, depth: u32) -> mlua::Result<()> {
    check_length(text.len())?;
    match value {
        Value::Nil => text.extend(b"null"),
        null if *null == Value::NULL => text.extend(b"null"),
        Value::Boolean(flag) => text.extend(if *flag { &b"true"[..] } else { b"false" }),
        Value::Integer(number) => encode_number(lua, *number as f64, text)?,
        Value::Number(number) => encode_number(lua, *number, text)?,
        Value::String(string) => encode_text(&string.as_bytes(), text),
        Value::Table(table) => {
            if depth >= DEPTH_MAX {
                return raise(lua, format!("Cannot serialise, excessive depth ({})", depth + 1));
            }
            encode_table(lua, table, text, depth)?;
        }
        other => {
            let kind = other.type_name();
            return raise(lua, format!("Cannot serialise {kind}: type not supported"));
        }
    }
    Ok(())
}

fn encode_number(lua: &Lua, number: f64, text: &mut Vec<u8>) -> mlua::Result<()> {
    if !number.is_finite() {
        return raise(lua, "Cannot serialise number: must not be NaN or Inf");
    }
    text.extend(values::digits(number, 14).bytes());
    Ok(())
}

fn encode_text(string: &[u8], text: &mut Vec<u8>) {
    text.push(b'"');
    for byte in string {
        match byte {
            b'"' | b'\\' | b'/' => text.extend([b'\\', *byte]),
            b'\n' => text.extend(b"\\n"),
            b'\r' => text.extend(b"\\r"),
            b'\t' => text.extend(b"\\t"),
            0x08 => text.extend(b"\\b"),
            0x0c => text.extend(b"\\f"),
            0..0x20 | 0x7f => text.extend(format!("\\u{byte:04x}").bytes()),
            _ => text.push(*byte),
        }
    }
    text.push(b'"');
}

fn encode_table(lua: &Lua, table: &Table, text: &mut Vec<u8>, depth: u32) -> mlua::Result<()> {
    if let Some((length, greatest)) = list_of(table)? {
        if greatest > GAPS_ALLOWED && greatest > 2 * length {
            return raise(lua, "Cannot serialise table: excessively sparse array");
        }
        text.push(b'[');
        for position in 1..=greatest {
            if position > 1 {
                text.push(b',');
            }
            encode(lua, &table.raw_get(position)?, text, depth + 1)?;
        }
        text.push(b']');
        return Ok(());
    }
    text.push(b'{');
    let mut is_first = true;
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        if !std::mem::take(&mut is_first) {
            text.push(b',');
        }
        match &key {
            Value::String(key) => encode_text(&key.as_bytes(), text),
            Value::Integer(_) | Value::Number(_) => {
                text.push(b'"');
                encode(lua, &key, text, depth)?;
                text.push(b'"');
            }
            _ => return raise(lua, "Cannot serialise table: table key must be a number or string"),
        }
        text.push(b':');
        encode(lua, &value, text, depth + 1)?;
    }
    text.push(b'}');
    Ok(())
}

/// If all keys of a table are positions, and there is one, returns how many there are, and the greatest.
pub fn list_of(table: &Table) -> mlua::Result<Option<(usize, usize)>> {
    let (mut length, mut greatest) = (0, 0);
    for pair in table.pairs::<Value, Value>() {
        match pair?.0 {
            Value::Integer(position @ 1..) => {
                length += 1;
                greatest = greatest.max(usize::try_from(position).unwrap_or(usize::MAX));
            }
            _ => return Ok(None),
        }
    }
    Ok((length > 0).then_some((length, greatest)))
}

fn decode(lua: &Lua, text: LuaString) -> mlua::Result<Value> {
    let text = text.as_bytes();
    let mut reader = serde_json::Deserializer::from_slice(&text);
    let value = Decoder(lua).deserialize(&mut reader);
    match value.and_then(|value| reader.end().map(|()| value)) {
        Ok(value) => Ok(value),
        // What Lua refuses comes here as text.
        Err(error) if error.to_string().starts_with(MEMORY) => {
            Err(RUNNING.with(|running| running.stop_for_memory()))
        }
        Err(error) => raise(lua, format!("Expected a JSON value: {error}")),
    }
}

/// Makes Lua values while JSON is read. So the state's limit of memory holds for all of it.
#[derive(Clone, Copy)]
struct Decoder<'l>(&'l Lua);

impl<'de> DeserializeSeed<'de> for Decoder<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

fn refused<E: serde::de::Error>(error: mlua::Error) -> E {
    E::custom(text_of(&error))
}

impl<'de> Visitor<'de> for Decoder<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::NULL)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Boolean(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Number(number as f64))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Number(number as f64))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Value::Number(number))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(self.0.create_string(text).map_err(refused)?))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let table = self.0.create_table().map_err(refused)?;
        let mut length = 0;
        while let Some(value) = elements.next_element_seed(self)? {
            length += 1;
            table.raw_set(length, value).map_err(refused)?;
        }
        Ok(Value::Table(table))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let table = self.0.create_table().map_err(refused)?;
        while let Some(name) = fields.next_key_seed(self)? {
            table.raw_set(name, fields.next_value_seed(self)?).map_err(refused)?;
        }
        Ok(Value::Table(table))
    }
}
