//! The library `cjson`: its settings, and `cjson.encode`. [`json_reader`](super::json_reader) has `cjson.decode`.

use std::cell::Cell;
use std::rc::Rc;

use mlua::{Lua, MultiValue, Table, Value};

use super::json_reader;
use super::running::{MEMORY, RUNNING, check_length};
use super::{raise, text_of, values};

/// Tables that lie deeper in each other are neither written nor read, whatever the settings are.
pub const DEPTH_MAX: u32 = 128;
/// The greatest number that a setting takes.
const NUMBER_MAX: u32 = i32::MAX.unsigned_abs();

/// How infinite numbers and `nan` are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InvalidNumbers {
    /// Not at all: they are an error.
    Refused,
    /// As `inf`, `-inf` and `nan`.
    Named,
    /// As `null`.
    Null,
}

/// The settings of the library. Those of `cjson` itself begin again with each call of a script.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The number of digits.
    precision: u32,
    invalid_numbers: InvalidNumbers,
    /// How deep tables may lie in each other to be written.
    encode_depth_max: u32,
    /// How deep they may lie in each other to be read.
    pub decode_depth_max: u32,
    /// Whether numbers that JSON does not have are read.
    pub decodes_invalid_numbers: bool,
    /// Whether a list with too many gaps is written as an object. Otherwise it is an error.
    converts_sparse: bool,
    /// A list has too many gaps if its greatest position is more than so many times its length; 0 for no limit.
    sparse_ratio: u32,
    /// A list whose greatest position is no greater never has too many gaps.
    sparse_safe: u32,
    /// Has no effect.
    keeps_buffer: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            precision: 14,
            invalid_numbers: InvalidNumbers::Refused,
            encode_depth_max: 1000,
            decode_depth_max: 1000,
            decodes_invalid_numbers: true,
            converts_sparse: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            keeps_buffer: true,
        }
    }
}

/// Where the settings of a library are.
#[derive(Clone)]
enum Home {
    /// In the call that runs.
    Call,
    /// In the library: `cjson.new`.
    Library(Rc<Cell<Settings>>),
}

impl Home {
    fn get(&self) -> Settings {
        match self {
            Home::Call => RUNNING.with(|running| running.json.get()),
            Home::Library(settings) => settings.get(),
        }
    }

    fn set(&self, settings: Settings) {
        match self {
            Home::Call => RUNNING.with(|running| running.json.set(settings)),
            Home::Library(own) => own.set(settings),
        }
    }
}

/// Creates the library.
pub fn create(lua: &Lua) -> mlua::Result<Table> {
    create_with(lua, &Home::Call)
}

fn create_with(lua: &Lua, home: &Home) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    library.raw_set("null", Value::NULL)?;
    library.raw_set("_NAME", "cjson")?;
    library.raw_set("_VERSION", "2.1.0")?;
    let own = home.clone();
    let encode = lua.create_function(move |lua, arguments: MultiValue| {
        let value = only(lua, "encode", &arguments)?;
        let mut text = Vec::new();
        Writer { lua, settings: own.get() }.encode(value, &mut text, 0)?;
        lua.create_string(text)
    })?;
    library.raw_set("encode", encode)?;
    let own = home.clone();
    let decode = lua.create_function(move |lua, arguments: MultiValue| {
        decode(lua, only(lua, "decode", &arguments)?, own.get())
    })?;
    library.raw_set("decode", decode)?;
    for (name, setting) in SETTINGS {
        let own = home.clone();
        let function = lua.create_function(move |lua, arguments: MultiValue| {
            let arguments = Arguments { lua, name, given: &arguments };
            let mut settings = own.get();
            let shown = setting(&arguments, &mut settings)?;
            own.set(settings);
            Ok(MultiValue::from_vec(shown))
        })?;
        library.raw_set(*name, function)?;
    }
    let new =
        lua.create_function(|lua, _: MultiValue| create_with(lua, &Home::Library(Rc::default())))?;
    library.raw_set("new", new)?;
    Ok(library)
}

/// Returns the only argument of a function.
fn only<'a>(lua: &Lua, name: &str, arguments: &'a MultiValue) -> mlua::Result<&'a Value> {
    match (arguments.len(), arguments.front()) {
        (1, Some(value)) => Ok(value),
        _ => raise(lua, format!("bad argument #1 to '{name}' (expected 1 argument)")),
    }
}

/// The arguments of a function that shows settings, and changes those for which it gets a value that is not `nil`.
struct Arguments<'a> {
    lua: &'a Lua,
    /// The name of the function.
    name: &'a str,
    given: &'a MultiValue,
}

impl Arguments<'_> {
    fn wrong<T>(&self, number: usize, problem: &str) -> mlua::Result<T> {
        raise(self.lua, format!("bad argument #{number} to '{}' ({problem})", self.name))
    }

    /// Checks that there are no more arguments than these.
    fn check_count(&self, count_max: usize) -> mlua::Result<()> {
        match self.given.len() > count_max {
            true => self.wrong(count_max + 1, "found too many arguments"),
            false => Ok(()),
        }
    }

    fn get(&self, number: usize) -> Option<&Value> {
        self.given.get(number - 1).filter(|value| !value.is_nil())
    }

    /// Changes a number. Returns it.
    fn number(
        &self,
        number: usize,
        setting: &mut u32,
        least: u32,
        most: u32,
    ) -> mlua::Result<Value> {
        if let Some(value) = self.get(number) {
            let Some(given) = self.lua.coerce_number(value.clone())? else {
                let kind = value.type_name();
                return self.wrong(number, &format!("number expected, got {kind}"));
            };
            let given = given.trunc();
            if !(f64::from(least)..=f64::from(most)).contains(&given) {
                // lua-cjson always names the first argument here.
                let problem = format!("expected integer between {least} and {most}");
                return self.wrong(1, &problem);
            }
            *setting = given as u32;
        }
        Ok(Value::Integer((*setting).into()))
    }

    /// Changes one of several choices: `false` and `true`, which are also called `off` and `on`, and perhaps others. Returns it.
    fn choice<T: Copy + PartialEq>(
        &self,
        number: usize,
        setting: &mut T,
        choices: &[(&str, T)],
    ) -> mlua::Result<Value> {
        match self.get(number) {
            None => {}
            Some(Value::Boolean(flag)) => *setting = choices[usize::from(*flag)].1,
            Some(value) => {
                let text = match value {
                    Value::Table(_) => None,
                    value => self.lua.coerce_string(value.clone())?,
                };
                let Some(text) = text else {
                    let kind = value.type_name();
                    return self.wrong(number, &format!("string expected, got {kind}"));
                };
                let text = text.to_string_lossy();
                match choices.iter().find(|(name, _)| *name == text) {
                    Some((_, choice)) => *setting = *choice,
                    None => return self.wrong(number, &format!("invalid option '{text}'")),
                }
            }
        }
        Ok(match choices.iter().position(|(_, choice)| choice == setting) {
            Some(flag @ (0 | 1)) => Value::Boolean(flag == 1),
            place => Value::String(self.lua.create_string(place.map_or("", |at| choices[at].0))?),
        })
    }
}

/// Shows a setting, or several, and changes them.
type Setting = fn(&Arguments<'_>, &mut Settings) -> mlua::Result<Vec<Value>>;

const FLAG: &[(&str, bool)] = &[("off", false), ("on", true)];

/// The functions that show and change settings.
const SETTINGS: &[(&str, Setting)] = &[
    ("encode_number_precision", |arguments, settings| {
        arguments.check_count(1)?;
        Ok(vec![arguments.number(1, &mut settings.precision, 1, 14)?])
    }),
    ("encode_invalid_numbers", |arguments, settings| {
        arguments.check_count(1)?;
        let choices = &[
            ("off", InvalidNumbers::Refused),
            ("on", InvalidNumbers::Named),
            ("null", InvalidNumbers::Null),
        ];
        Ok(vec![arguments.choice(1, &mut settings.invalid_numbers, choices)?])
    }),
    ("decode_invalid_numbers", |arguments, settings| {
        arguments.check_count(1)?;
        Ok(vec![arguments.choice(1, &mut settings.decodes_invalid_numbers, FLAG)?])
    }),
    ("encode_max_depth", |arguments, settings| {
        arguments.check_count(1)?;
        Ok(vec![arguments.number(1, &mut settings.encode_depth_max, 1, NUMBER_MAX)?])
    }),
    ("decode_max_depth", |arguments, settings| {
        arguments.check_count(1)?;
        Ok(vec![arguments.number(1, &mut settings.decode_depth_max, 1, NUMBER_MAX)?])
    }),
    ("encode_keep_buffer", |arguments, settings| {
        arguments.check_count(1)?;
        Ok(vec![arguments.choice(1, &mut settings.keeps_buffer, FLAG)?])
    }),
    ("encode_sparse_array", |arguments, settings| {
        arguments.check_count(3)?;
        Ok(vec![
            arguments.choice(1, &mut settings.converts_sparse, FLAG)?,
            arguments.number(2, &mut settings.sparse_ratio, 0, NUMBER_MAX)?,
            arguments.number(3, &mut settings.sparse_safe, 0, NUMBER_MAX)?,
        ])
    }),
];

/// Writes values.
#[derive(Clone, Copy)]
struct Writer<'l> {
    lua: &'l Lua,
    settings: Settings,
}

impl Writer<'_> {
    fn encode(self, value: &Value, text: &mut Vec<u8>, depth: u32) -> mlua::Result<()> {
        check_length(text.len())?;
        match value {
            Value::Nil => text.extend(b"null"),
            null if *null == Value::NULL => text.extend(b"null"),
            Value::Boolean(flag) => text.extend(if *flag { &b"true"[..] } else { b"false" }),
            Value::Integer(number) => self.encode_number(*number as f64, text)?,
            Value::Number(number) => self.encode_number(*number, text)?,
            Value::String(string) => encode_text(&string.as_bytes(), text),
            Value::Table(table) => {
                if depth >= self.settings.encode_depth_max.min(DEPTH_MAX) {
                    let problem = format!("Cannot serialise, excessive depth ({})", depth + 1);
                    return raise(self.lua, problem);
                }
                self.encode_table(table, text, depth)?;
            }
            other => {
                let kind = other.type_name();
                return raise(self.lua, format!("Cannot serialise {kind}: type not supported"));
            }
        }
        Ok(())
    }

    fn encode_number(self, number: f64, text: &mut Vec<u8>) -> mlua::Result<()> {
        match self.settings.invalid_numbers {
            InvalidNumbers::Refused if !number.is_finite() => {
                raise(self.lua, "Cannot serialise number: must not be NaN or Inf")
            }
            InvalidNumbers::Null if !number.is_finite() => {
                text.extend(b"null");
                Ok(())
            }
            _ => {
                let precision = self.settings.precision as usize;
                text.extend(values::digits(number, precision).bytes());
                Ok(())
            }
        }
    }

    fn encode_table(self, table: &Table, text: &mut Vec<u8>, depth: u32) -> mlua::Result<()> {
        if let Some((length, greatest)) = list_of(table)? {
            let Settings { sparse_ratio, sparse_safe, .. } = self.settings;
            let is_sparse = sparse_ratio > 0
                && greatest > length.saturating_mul(sparse_ratio as usize)
                && greatest > sparse_safe as usize;
            if !is_sparse {
                return self.encode_list(table, greatest, text, depth);
            }
            if !self.settings.converts_sparse {
                return raise(self.lua, "Cannot serialise table: excessively sparse array");
            }
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
                    self.encode(&key, text, depth)?;
                    text.push(b'"');
                }
                _ => {
                    let problem = "Cannot serialise table: table key must be a number or string";
                    return raise(self.lua, problem);
                }
            }
            text.push(b':');
            self.encode(&value, text, depth + 1)?;
        }
        text.push(b'}');
        Ok(())
    }

    fn encode_list(
        self,
        table: &Table,
        length: usize,
        text: &mut Vec<u8>,
        depth: u32,
    ) -> mlua::Result<()> {
        text.push(b'[');
        for position in 1..=length {
            if position > 1 {
                text.push(b',');
            }
            self.encode(&table.raw_get(position)?, text, depth + 1)?;
        }
        text.push(b']');
        Ok(())
    }
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

fn decode(lua: &Lua, text: &Value, settings: Settings) -> mlua::Result<Value> {
    let Some(string) = lua.coerce_string(text.clone())? else {
        let kind = text.type_name();
        return raise(lua, format!("bad argument #1 to 'decode' (string expected, got {kind})"));
    };
    match json_reader::read(lua, &string.as_bytes(), settings) {
        Err(error) if text_of(&error).starts_with(MEMORY) => {
            Err(RUNNING.with(|running| running.stop_for_memory()))
        }
        read => read,
    }
}
