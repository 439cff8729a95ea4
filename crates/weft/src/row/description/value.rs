//! [`Value`]: the value of a column, read with the description of its type.

use std::fmt;

use super::TypeDescription as Type;
use crate::row::column::{
    ColumnValue, DecodeError, read_is_some, read_leb128, read_list_length, read_text, write_leb128,
    write_text,
};

/// A column's value, in a form that fits all types.
///
/// The value does not say which type it belongs to: the same `Unsigned(7)` may be a `u8` in one
/// column and a `u64` in another.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A `bool`.
    Bool(bool),
    /// A signed integer.
    Signed(i128),
    /// An unsigned integer.
    Unsigned(u128),
    /// An `f32`.
    F32(f32),
    /// An `f64`.
    F64(f64),
    /// A `char`.
    Char(char),
    /// A text.
    String(String),
    /// A list or an array of `u8`.
    Bytes(Vec<u8>),
    /// A list or an array of any other type.
    List(Vec<Value>),
    /// An option.
    Option(Option<Box<Value>>),
    /// A tuple, or a struct: its fields in order.
    Tuple(Vec<Value>),
    /// An enum: the variant's position.
    Enum(usize),
}

/// The error for a [`Value`] that is not a value of a given type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueMismatch {
    /// The type, as it is printed.
    pub expected: String,
    /// What the value is instead, in words.
    pub found: String,
}

impl fmt::Display for Value {
    /// Prints the value as a key is printed in messages. An enum is the number of its variant.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |values: &[Value], formatter: &mut fmt::Formatter<'_>| {
            values.iter().enumerate().try_for_each(|(position, value)| {
                let comma = if position > 0 { ", " } else { "" };
                write!(formatter, "{comma}{value}")
            })
        };
        match self {
            Value::Bool(value) => write!(formatter, "{value}"),
            Value::Signed(value) => write!(formatter, "{value}"),
            Value::Unsigned(value) => write!(formatter, "{value}"),
            Value::F32(value) => write!(formatter, "{value}"),
            Value::F64(value) => write!(formatter, "{value}"),
            Value::Char(value) => write!(formatter, "{value:?}"),
            Value::String(text) => write!(formatter, "{text:?}"),
            Value::Bytes(bytes) => write!(formatter, "{bytes:?}"),
            Value::Option(None) => formatter.write_str("None"),
            Value::Option(Some(value)) => write!(formatter, "Some({value})"),
            Value::Enum(variant) => write!(formatter, "variant {variant}"),
            Value::List(values) => {
                formatter.write_str("[")?;
                list(values, formatter)?;
                formatter.write_str("]")
            }
            Value::Tuple(values) => {
                formatter.write_str("(")?;
                list(values, formatter)?;
                formatter.write_str(")")
            }
        }
    }
}

impl fmt::Display for ValueMismatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} is no {}", self.found, self.expected)
    }
}

impl std::error::Error for ValueMismatch {}

impl Type {
    /// Reads a value of this type from the beginning of `input`, and advances `input` past it.
    ///
    /// # Errors
    /// If `input` does not begin with the encoding of a value.
    pub fn read_value(&self, input: &mut &[u8]) -> Result<Value, DecodeError> {
        let start = *input;
        match self {
            Type::Bool => bool::read(input).map(Value::Bool),
            Type::I8 => i8::read(input).map(|number| Value::Signed(number.into())),
            Type::I16 => i16::read(input).map(|number| Value::Signed(number.into())),
            Type::I32 => i32::read(input).map(|number| Value::Signed(number.into())),
            Type::I64 => i64::read(input).map(|number| Value::Signed(number.into())),
            Type::I128 => i128::read(input).map(Value::Signed),
            Type::U8 => u8::read(input).map(|number| Value::Unsigned(number.into())),
            Type::U16 => u16::read(input).map(|number| Value::Unsigned(number.into())),
            Type::U32 => u32::read(input).map(|number| Value::Unsigned(number.into())),
            Type::U64 => u64::read(input).map(|number| Value::Unsigned(number.into())),
            Type::U128 => u128::read(input).map(Value::Unsigned),
            Type::F32 => f32::read(input).map(Value::F32),
            Type::F64 => f64::read(input).map(Value::F64),
            Type::Char => char::read(input).map(Value::Char),
            Type::String => read_text(input).map(|text| Value::String(text.to_owned())),
            Type::List(element) => {
                let length = read_list_length(element.width_min_bytes(), input)?;
                element.read_elements(length, input)
            }
            Type::Array(element, length) => {
                self.check_array(element, *length, input)?;
                element.read_elements(*length, input)
            }
            Type::Option(value) => {
                let value = read_is_some(input)?.then(|| value.read_value(input)).transpose()?;
                Ok(Value::Option(value.map(Box::new)))
            }
            Type::Tuple(elements) => {
                let values = elements.iter().map(|element| element.read_value(input));
                values.collect::<Result<_, _>>().map(Value::Tuple)
            }
            Type::Struct { fields, .. } => {
                let values = fields.iter().map(|field| field.type_of.read_value(input));
                values.collect::<Result<_, _>>().map(Value::Tuple)
            }
            Type::Enum { name, variants } => match read_leb128(input)? {
                number if number < variants.len() as u64 => Ok(Value::Enum(number as usize)),
                number => Err(DecodeError::no_variant(start, name, number, variants.len())),
            },
        }
    }

    /// Reads `count` values. The caller has checked that `input` can hold that many.
    fn read_elements(&self, count: usize, input: &mut &[u8]) -> Result<Value, DecodeError> {
        if *self == Type::U8 {
            return u8::read_many(count, input).map(Value::Bytes);
        }
        let values = (0..count).map(|_| self.read_value(input));
        values.collect::<Result<_, _>>().map(Value::List)
    }
}

impl Value {
    /// Appends the encoding of this value as a value of type `type_of`.
    ///
    /// # Errors
    /// If it is not a value of that type: it is of another kind, too large, or of another length. A
    /// part of it may already have been written.
    pub fn write(&self, type_of: &Type, output: &mut Vec<u8>) -> Result<(), ValueMismatch> {
        let mismatch = || ValueMismatch { expected: type_of.to_string(), found: self.in_words() };
        macro_rules! write_number {
            ($number:ident, $value:expr) => {
                $number::try_from(*$value).map_err(|_| mismatch())?.write(output)
            };
        }
        match (type_of, self) {
            (Type::Bool, Value::Bool(value)) => value.write(output),
            (Type::I8, Value::Signed(value)) => write_number!(i8, value),
            (Type::I16, Value::Signed(value)) => write_number!(i16, value),
            (Type::I32, Value::Signed(value)) => write_number!(i32, value),
            (Type::I64, Value::Signed(value)) => write_number!(i64, value),
            (Type::I128, Value::Signed(value)) => value.write(output),
            (Type::U8, Value::Unsigned(value)) => write_number!(u8, value),
            (Type::U16, Value::Unsigned(value)) => write_number!(u16, value),
            (Type::U32, Value::Unsigned(value)) => write_number!(u32, value),
            (Type::U64, Value::Unsigned(value)) => write_number!(u64, value),
            (Type::U128, Value::Unsigned(value)) => value.write(output),
            (Type::F32, Value::F32(value)) => value.write(output),
            (Type::F64, Value::F64(value)) => value.write(output),
            (Type::Char, Value::Char(value)) => value.write(output),
            (Type::String, Value::String(value)) => write_text(value, output),
            (Type::List(element), Value::Bytes(values)) if **element == Type::U8 => {
                values.write(output);
            }
            (Type::List(element), Value::List(values)) if **element != Type::U8 => {
                write_leb128(values.len() as u64, output);
                values.iter().try_for_each(|value| value.write(element, output))?;
            }
            (Type::Array(element, length), Value::Bytes(values))
                if **element == Type::U8 && values.len() == *length =>
            {
                output.extend_from_slice(values);
            }
            (Type::Array(element, length), Value::List(values))
                if **element != Type::U8 && values.len() == *length =>
            {
                values.iter().try_for_each(|value| value.write(element, output))?;
            }
            (Type::Option(inner), Value::Option(value)) => {
                value.is_some().write(output);
                if let Some(value) = value {
                    value.write(inner, output)?;
                }
            }
            (Type::Tuple(elements), Value::Tuple(values)) if elements.len() == values.len() => {
                for (element, value) in elements.iter().zip(values) {
                    value.write(element, output)?;
                }
            }
            (Type::Struct { fields, .. }, Value::Tuple(values)) if fields.len() == values.len() => {
                for (field, value) in fields.iter().zip(values) {
                    value.write(&field.type_of, output)?;
                }
            }
            (Type::Enum { variants, .. }, Value::Enum(variant)) if *variant < variants.len() => {
                write_leb128(*variant as u64, output);
            }
            _ => return Err(mismatch()),
        }
        Ok(())
    }

    /// Describes the value for messages: simple values as they are, others by their kind and
    /// length.
    fn in_words(&self) -> String {
        match self {
            Value::Bool(value) => value.to_string(),
            Value::Signed(value) => format!("the signed number {value}"),
            Value::Unsigned(value) => format!("the unsigned number {value}"),
            Value::F32(_) => "an f32".to_owned(),
            Value::F64(_) => "an f64".to_owned(),
            Value::Char(value) => format!("the character {value:?}"),
            Value::String(text) => format!("a text of {} bytes", text.len()),
            Value::Bytes(bytes) => format!("a sequence of {} bytes", bytes.len()),
            Value::List(values) => format!("a list of {} values", values.len()),
            Value::Option(_) => "an option".to_owned(),
            Value::Tuple(values) => format!("a tuple of {} values", values.len()),
            Value::Enum(variant) => format!("variant {variant} of an enum"),
        }
    }
}
