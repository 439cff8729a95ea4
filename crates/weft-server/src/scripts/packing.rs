//! The library `struct`: numbers and text in binary form.

use mlua::{Lua, LuaString, MultiValue, Table, Value, Variadic};

use super::running::check_length;
use super::{number, raise};

/// Creates the library.
pub fn create(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    library.raw_set("pack", lua.create_function(pack)?)?;
    library.raw_set("unpack", lua.create_function(unpack)?)?;
    library.raw_set("size", lua.create_function(size)?)?;
    Ok(library)
}

/// A part of a format.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    /// An integer of so many bytes, with its sign or without.
    Integer(usize, bool),
    Float,
    Double,
    /// Text of so many bytes. `None` is all of it, or as many as the number before says.
    Text(Option<usize>),
    /// Text that ends with a zero.
    Terminated,
    /// A byte that is skipped.
    Padding,
}

/// The parts of a format, each with its byte order, and how many bytes align it.
struct Parts<'f> {
    format: &'f [u8],
    is_little: bool,
    alignment: usize,
}

impl Parts<'_> {
    fn digits(&mut self) -> Option<usize> {
        let length = self.format.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.format.split_at(length);
        self.format = rest;
        std::str::from_utf8(digits).ok()?.parse().ok()
    }

    /// Returns the next part, with its byte order and its alignment. The error is the text of what is wrong.
    fn next(&mut self) -> Result<Option<(Part, bool, usize)>, String> {
        loop {
            let Some((code, rest)) = self.format.split_first() else { return Ok(None) };
            self.format = rest;
            let part = match code {
                b'<' | b'>' | b'=' => {
                    self.is_little = *code != b'>';
                    continue;
                }
                b' ' => continue,
                b'!' => {
                    let alignment = self.digits().unwrap_or(8);
                    if !alignment.is_power_of_two() {
                        return Err("alignment is not a power of 2".to_owned());
                    }
                    self.alignment = alignment;
                    continue;
                }
                b'b' | b'B' => Part::Integer(1, *code == b'b'),
                b'h' | b'H' => Part::Integer(2, *code == b'h'),
                b'l' | b'L' | b'T' => Part::Integer(8, *code == b'l'),
                b'i' | b'I' => {
                    let length = self.digits().unwrap_or(4);
                    if !(1..=8).contains(&length) {
                        return Err(format!("integral size {length} is larger than limit of 8"));
                    }
                    Part::Integer(length, *code == b'i')
                }
                b'f' => Part::Float,
                b'd' | b'n' => Part::Double,
                b'x' => Part::Padding,
                b's' => Part::Terminated,
                b'c' => Part::Text(match self.digits() {
                    None => Some(1),
                    Some(0) => None,
                    length => length,
                }),
                other => return Err(format!("invalid format option '{}'", char::from(*other))),
            };
            let length = match part {
                Part::Integer(length, _) => length,
                Part::Float => 4,
                Part::Double => 8,
                _ => 1,
            };
            let alignment = length.min(self.alignment);
            let alignment = if alignment.is_power_of_two() { alignment } else { 1 };
            return Ok(Some((part, self.is_little, alignment)));
        }
    }
}

fn parts(format: &[u8]) -> Parts<'_> {
    Parts { format, is_little: true, alignment: 1 }
}

/// `struct.pack`
fn pack(lua: &Lua, (format, values): (LuaString, Variadic<Value>)) -> mlua::Result<LuaString> {
    let (format, mut values) = (format.as_bytes(), values.iter());
    let mut parts = parts(&format);
    let mut bytes: Vec<u8> = Vec::new();
    loop {
        let next = match parts.next() {
            Ok(Some(next)) => next,
            Ok(None) => return lua.create_string(bytes),
            Err(text) => return raise(lua, text),
        };
        let (part, is_little, alignment) = next;
        check_length(bytes.len())?;
        bytes.resize(bytes.len().next_multiple_of(alignment), 0);
        if part == Part::Padding {
            bytes.push(0);
            continue;
        }
        let Some(value) = values.next() else { return raise(lua, "bad argument (no value)") };
        let mut put = |number: &[u8]| match is_little {
            true => bytes.extend(number),
            false => bytes.extend(number.iter().rev()),
        };
        match (part, number(value), lua.coerce_string(value.clone())?) {
            (Part::Integer(length, _), Some(number), _) => {
                // A number above the greatest signed one keeps its bits.
                let bits =
                    if number < 0.0 { (number as i64).cast_unsigned() } else { number as u64 };
                put(&bits.to_le_bytes()[..length]);
            }
            (Part::Float, Some(number), _) => put(&(number as f32).to_le_bytes()),
            (Part::Double, Some(number), _) => put(&number.to_le_bytes()),
            (Part::Terminated, _, Some(text)) => {
                bytes.extend_from_slice(&text.as_bytes());
                bytes.push(0);
            }
            (Part::Text(length), _, Some(text)) => {
                let text = text.as_bytes();
                let Some(text) = text.get(..length.unwrap_or(text.len())) else {
                    return raise(lua, "bad argument (string too short)");
                };
                bytes.extend_from_slice(text);
            }
            _ => return raise(lua, "bad argument (a number or a string is expected)"),
        }
    }
}

/// `struct.unpack`: the values, and the position after them.
fn unpack(
    lua: &Lua,
    (format, bytes, from): (LuaString, LuaString, Option<usize>),
) -> mlua::Result<MultiValue> {
    let (format, bytes) = (format.as_bytes(), bytes.as_bytes());
    let mut parts = parts(&format);
    let mut position = from.unwrap_or(1).saturating_sub(1);
    let mut values = Vec::new();
    loop {
        let next = match parts.next() {
            Ok(Some(next)) => next,
            Ok(None) => break,
            Err(text) => return raise(lua, text),
        };
        let (part, is_little, alignment) = next;
        position = position.next_multiple_of(alignment);
        let rest = bytes.get(position..).unwrap_or_default();
        let length = match part {
            Part::Integer(length, _) => Some(length),
            Part::Float => Some(4),
            Part::Double => Some(8),
            Part::Padding => Some(1),
            Part::Text(Some(length)) => Some(length),
            Part::Text(None) => match values.pop().as_ref().and_then(number) {
                Some(length) => Some(length as usize),
                None => return raise(lua, "format 'c0' needs a previous size"),
            },
            Part::Terminated => rest.iter().position(|byte| *byte == 0),
        };
        let Some(taken) = length.and_then(|length| rest.get(..length)) else {
            return raise(lua, "data string too short");
        };
        position += taken.len() + usize::from(part == Part::Terminated);
        let bits = |length: usize| {
            let mut number = [0; 8];
            number[..length].copy_from_slice(taken);
            if !is_little {
                number[..length].reverse();
            }
            u64::from_le_bytes(number)
        };
        values.push(match part {
            Part::Padding => continue,
            Part::Integer(length, true) => {
                let shift = 64 - 8 * length as u32;
                Value::Number(((bits(length) << shift).cast_signed() >> shift) as f64)
            }
            Part::Integer(length, false) => Value::Number(bits(length) as f64),
            Part::Float => Value::Number(f32::from_bits(bits(4) as u32).into()),
            Part::Double => Value::Number(f64::from_bits(bits(8))),
            Part::Text(_) | Part::Terminated => Value::String(lua.create_string(taken)?),
        });
    }
    values.push(Value::Integer(position as i64 + 1));
    Ok(MultiValue::from_vec(values))
}

/// `struct.size`
fn size(lua: &Lua, format: LuaString) -> mlua::Result<usize> {
    let format = format.as_bytes();
    let mut parts = parts(&format);
    let mut bytes: usize = 0;
    loop {
        let (part, _, alignment) = match parts.next() {
            Ok(Some(next)) => next,
            Ok(None) => return Ok(bytes),
            Err(text) => return raise(lua, text),
        };
        bytes = bytes.next_multiple_of(alignment);
        bytes = bytes.saturating_add(match part {
            Part::Integer(length, _) => length,
            Part::Float => 4,
            Part::Double => 8,
            Part::Padding => 1,
            Part::Text(Some(length)) => length,
            Part::Text(None) | Part::Terminated => {
                return raise(lua, "variable-size format in struct.size");
            }
        });
    }
}
