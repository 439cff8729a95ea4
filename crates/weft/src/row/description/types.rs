//! [`TypeDescription`]: the type of a column, as owned data.

use std::fmt;

use super::{ColumnDescription, read_list, write_list};
use crate::row::column::{
    ColumnType, DecodeError, read_is_some, read_leb128, read_list_length, read_text, write_leb128,
    write_text,
};

/// How deep types may be nested in a description that is read. The compiler fails long before this
/// depth.
const DEPTH_MAX: usize = 256;

/// The type of a column: like [`ColumnType`], but owned, because it may have been read from a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the variants without a comment are Rust's own types")]
pub enum TypeDescription {
    Bool,
    I8,
    I16,
    I32,
    I64,
    I128,
    U8,
    U16,
    U32,
    U64,
    U128,
    F32,
    F64,
    Char,
    /// Any type that holds text.
    String,
    /// Any number of values of one type.
    List(Box<TypeDescription>),
    /// A value of this type, or `None`.
    Option(Box<TypeDescription>),
    /// A fixed number of values of one type.
    Array(Box<TypeDescription>, usize),
    /// One value of each of these types.
    Tuple(Vec<TypeDescription>),
    /// A struct that derives `ColumnValue`.
    Struct {
        /// Its name, without a path.
        name: String,
        /// Its fields, in order. Those of a tuple struct are named `0`, `1` and so on.
        fields: Vec<ColumnDescription>,
    },
    /// An enum that derives `ColumnValue`.
    Enum {
        /// Its name, without a path.
        name: String,
        /// Its variants, in order.
        variants: Vec<String>,
    },
}

use TypeDescription as Type;

impl From<ColumnType> for TypeDescription {
    fn from(type_of: ColumnType) -> Type {
        let boxed = |inner: &ColumnType| Box::new(Type::from(*inner));
        match type_of {
            ColumnType::Bool => Type::Bool,
            ColumnType::I8 => Type::I8,
            ColumnType::I16 => Type::I16,
            ColumnType::I32 => Type::I32,
            ColumnType::I64 => Type::I64,
            ColumnType::I128 => Type::I128,
            ColumnType::U8 => Type::U8,
            ColumnType::U16 => Type::U16,
            ColumnType::U32 => Type::U32,
            ColumnType::U64 => Type::U64,
            ColumnType::U128 => Type::U128,
            ColumnType::F32 => Type::F32,
            ColumnType::F64 => Type::F64,
            ColumnType::Char => Type::Char,
            ColumnType::String => Type::String,
            ColumnType::List(element) => Type::List(boxed(element)),
            ColumnType::Option(value) => Type::Option(boxed(value)),
            ColumnType::Array(element, length) => Type::Array(boxed(element), length),
            ColumnType::Tuple(elements) => {
                Type::Tuple(elements.iter().map(|&element| Type::from(element)).collect())
            }
            ColumnType::Struct { name, fields } => {
                let fields = fields.iter().map(ColumnDescription::from).collect();
                Type::Struct { name: name.to_owned(), fields }
            }
            ColumnType::Enum { name, variants } => Type::Enum {
                name: name.to_owned(),
                variants: variants.iter().map(|&variant| variant.to_owned()).collect(),
            },
        }
    }
}

impl TypeDescription {
    /// Returns the width of every value, in bytes; `None` if it varies, or does not fit in a
    /// `usize`.
    pub fn width_bytes(&self) -> Option<usize> {
        let add = |sum: usize, type_of: &Type| sum.checked_add(type_of.width_bytes()?);
        match self {
            Type::Bool | Type::I8 | Type::U8 => Some(1),
            Type::I16 | Type::U16 => Some(2),
            Type::I32 | Type::U32 | Type::F32 | Type::Char => Some(4),
            Type::I64 | Type::U64 | Type::F64 => Some(8),
            Type::I128 | Type::U128 => Some(16),
            Type::String | Type::List(_) | Type::Option(_) | Type::Enum { .. } => None,
            Type::Array(element, length) => element.width_bytes()?.checked_mul(*length),
            Type::Tuple(elements) => elements.iter().try_fold(0, add),
            Type::Struct { fields, .. } => fields.iter().map(|it| &it.type_of).try_fold(0, add),
        }
    }

    /// Returns the least width of a value, in bytes.
    #[doc(hidden)]
    pub fn width_min_bytes(&self) -> usize {
        let add = |sum: usize, type_of: &Type| sum.saturating_add(type_of.width_min_bytes());
        match self {
            Type::String | Type::List(_) | Type::Option(_) | Type::Enum { .. } => 1,
            Type::Array(element, length) => element.width_min_bytes().saturating_mul(*length),
            Type::Tuple(elements) => elements.iter().fold(0, add),
            Type::Struct { fields, .. } => fields.iter().map(|it| &it.type_of).fold(0, add),
            _ => self.width_bytes().expect("numbers and the like have a fixed width"),
        }
    }

    /// Returns whether values of both types are stored alike and mean the same, as far as the types
    /// show. Only the names of structs and enums may differ, not the names of their fields and
    /// variants.
    pub fn is_stored_as(&self, other: &TypeDescription) -> bool {
        match (self, other) {
            (Type::List(one), Type::List(another)) | (Type::Option(one), Type::Option(another)) => {
                one.is_stored_as(another)
            }
            (Type::Array(one, length), Type::Array(another, other_length)) => {
                length == other_length && one.is_stored_as(another)
            }
            (Type::Tuple(some), Type::Tuple(others)) => {
                some.len() == others.len()
                    && some.iter().zip(others).all(|(one, another)| one.is_stored_as(another))
            }
            (Type::Struct { fields: some, .. }, Type::Struct { fields: others, .. }) => {
                some.len() == others.len()
                    && some.iter().zip(others).all(|(one, another)| {
                        one.name == another.name && one.type_of.is_stored_as(&another.type_of)
                    })
            }
            (Type::Enum { variants: some, .. }, Type::Enum { variants: others, .. }) => {
                some == others
            }
            _ => self == other,
        }
    }

    /// Advances `input` past the value at its beginning. It looks at no more of the value than this
    /// needs, so the bytes passed over need not be those of a valid value.
    ///
    /// # Errors
    /// If the input ends within the value, or if a byte that decides its length is wrong.
    pub fn skip(&self, input: &mut &[u8]) -> Result<(), DecodeError> {
        if let Some(width_bytes) = self.width_bytes() {
            return self.skip_bytes(width_bytes, input);
        }
        match self {
            Type::String => {
                let length = read_list_length(1, input)?;
                self.skip_bytes(length, input)
            }
            Type::List(element) => {
                let length = read_list_length(element.width_min_bytes(), input)?;
                match element.width_bytes() {
                    Some(width_bytes) => self.skip_bytes(width_bytes.saturating_mul(length), input),
                    None => (0..length).try_for_each(|_| element.skip(input)),
                }
            }
            Type::Option(value) => {
                if read_is_some(input)? {
                    value.skip(input)?;
                }
                Ok(())
            }
            Type::Array(element, length) => {
                self.check_array(element, *length, input)?;
                (0..*length).try_for_each(|_| element.skip(input))
            }
            Type::Tuple(elements) => elements.iter().try_for_each(|element| element.skip(input)),
            Type::Struct { fields, .. } => {
                fields.iter().try_for_each(|field| field.type_of.skip(input))
            }
            Type::Enum { .. } => read_leb128(input).map(drop),
            _ => unreachable!("numbers and the like have a fixed width"),
        }
    }

    fn skip_bytes(&self, count: usize, input: &mut &[u8]) -> Result<(), DecodeError> {
        match input.split_off(..count) {
            Some(_) => Ok(()),
            None => Err(DecodeError::ends_within(input, &self.to_string())),
        }
    }

    /// Checks that `input` can hold an array of `length` elements.
    pub(super) fn check_array(
        &self,
        element: &Type,
        length: usize,
        input: &[u8],
    ) -> Result<(), DecodeError> {
        if length > input.len() / element.width_min_bytes().max(1) {
            return Err(DecodeError::ends_within(input, &self.to_string()));
        }
        Ok(())
    }
}

// The encoding of a description: its first byte is one of these numbers, or a position in `PLAIN`.

const LIST: u8 = 15;
const OPTION: u8 = 16;
const ARRAY: u8 = 17;
const TUPLE: u8 = 18;
const STRUCT: u8 = 19;
const ENUM: u8 = 20;
/// A struct with fields that have a default, or had another name.
const EVOLVED_STRUCT: u8 = 21;

/// The types that are encoded in one byte. This byte is their position here.
const PLAIN: [TypeDescription; LIST as usize] = [
    Type::Bool,
    Type::I8,
    Type::I16,
    Type::I32,
    Type::I64,
    Type::I128,
    Type::U8,
    Type::U16,
    Type::U32,
    Type::U64,
    Type::U128,
    Type::F32,
    Type::F64,
    Type::Char,
    Type::String,
];

impl TypeDescription {
    /// Appends the encoding of the description ([the module](super) draws it).
    pub fn write(&self, output: &mut Vec<u8>) {
        match self {
            Type::List(element) => {
                output.push(LIST);
                element.write(output);
            }
            Type::Option(value) => {
                output.push(OPTION);
                value.write(output);
            }
            Type::Array(element, length) => {
                output.push(ARRAY);
                element.write(output);
                write_leb128(*length as u64, output);
            }
            Type::Tuple(elements) => {
                output.push(TUPLE);
                write_list(elements, output, Type::write);
            }
            Type::Struct { name, fields } => {
                let is_plain = fields.iter().all(ColumnDescription::is_plain);
                output.push(if is_plain { STRUCT } else { EVOLVED_STRUCT });
                write_text(name, output);
                write_list(fields, output, |field, output| match is_plain {
                    true => field.write_plain(output),
                    false => field.write(output),
                });
            }
            Type::Enum { name, variants } => {
                output.push(ENUM);
                write_text(name, output);
                write_list(variants, output, |variant, output| write_text(variant, output));
            }
            plain => {
                let number = PLAIN.iter().position(|type_of| type_of == plain);
                output.push(number.expect("all types without parts are listed") as u8);
            }
        }
    }

    /// Reads a description that [`TypeDescription::write`] wrote, and advances `input` past it.
    ///
    /// # Errors
    /// If `input` does not begin with a description.
    pub fn read(input: &mut &[u8]) -> Result<TypeDescription, DecodeError> {
        Type::read_at_depth(0, input)
    }

    pub(super) fn read_at_depth(
        depth: usize,
        input: &mut &[u8],
    ) -> Result<TypeDescription, DecodeError> {
        let start = *input;
        if depth == DEPTH_MAX {
            return Err(DecodeError::new(start, "a type is nested too deep"));
        }
        let Some((&number, rest)) = input.split_first() else {
            return Err(DecodeError::ends_within(input, "a type"));
        };
        *input = rest;
        let part = |input: &mut &[u8]| Type::read_at_depth(depth + 1, input);
        let name = |input: &mut &[u8]| read_text(input).map(str::to_owned);
        match number {
            LIST => part(input)?.into_element(start).map(Type::List),
            OPTION => Ok(Type::Option(Box::new(part(input)?))),
            ARRAY => {
                let element = part(input)?.into_element(start)?;
                let length = usize::try_from(read_leb128(input)?);
                let length = length.map_err(|_| DecodeError::new(start, "an array is too long"))?;
                Ok(Type::Array(element, length))
            }
            TUPLE => read_list(input, part).map(Type::Tuple),
            STRUCT => {
                let struct_name = name(input)?;
                let fields = read_list(input, |input| {
                    Ok(ColumnDescription::new(name(input)?, part(input)?))
                })?;
                Ok(Type::Struct { name: struct_name, fields })
            }
            EVOLVED_STRUCT => {
                let struct_name = name(input)?;
                let fields =
                    read_list(input, |input| ColumnDescription::read(depth + 1, true, input))?;
                if fields.iter().all(ColumnDescription::is_plain) {
                    return Err(DecodeError::new(start, "a struct has a needless form"));
                }
                Ok(Type::Struct { name: struct_name, fields })
            }
            ENUM => {
                let enum_name = name(input)?;
                let variants = read_list(input, name)?;
                Ok(Type::Enum { name: enum_name, variants })
            }
            plain => match PLAIN.get(usize::from(plain)) {
                Some(type_of) => Ok(type_of.clone()),
                None => {
                    Err(DecodeError::new(start, format!("a type has the unknown number {plain}")))
                }
            },
        }
    }

    /// Returns this type, which was read from `start`, for use as the element type of a list or an
    /// array.
    fn into_element(self, start: &[u8]) -> Result<Box<TypeDescription>, DecodeError> {
        if self.width_min_bytes() == 0 {
            let message = format!("the elements of a list or an array are {self}, of no bytes");
            return Err(DecodeError::new(start, message));
        }
        Ok(Box::new(self))
    }
}

impl fmt::Display for TypeDescription {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = match self {
            Type::Bool => "bool",
            Type::I8 => "i8",
            Type::I16 => "i16",
            Type::I32 => "i32",
            Type::I64 => "i64",
            Type::I128 => "i128",
            Type::U8 => "u8",
            Type::U16 => "u16",
            Type::U32 => "u32",
            Type::U64 => "u64",
            Type::U128 => "u128",
            Type::F32 => "f32",
            Type::F64 => "f64",
            Type::Char => "char",
            Type::String => "String",
            Type::List(element) => return write!(formatter, "Vec<{element}>"),
            Type::Option(value) => return write!(formatter, "Option<{value}>"),
            Type::Array(element, length) => return write!(formatter, "[{element}; {length}]"),
            Type::Tuple(elements) => return write_tuple(elements, formatter),
            Type::Struct { name, fields } => return write_struct(name, fields, formatter),
            Type::Enum { name, variants } => {
                return write!(formatter, "{name} {{ {} }}", variants.join(", "));
            }
        };
        formatter.write_str(plain)
    }
}

fn write_tuple(elements: &[Type], formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
    if let [element] = elements {
        return write!(formatter, "({element},)");
    }
    write_joined("(", elements, ")", formatter, |element, formatter| write!(formatter, "{element}"))
}

fn write_struct(
    name: &str,
    fields: &[ColumnDescription],
    formatter: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    formatter.write_str(name)?;
    if fields.first().is_some_and(|first| first.name == "0") {
        return write_joined("(", fields, ")", formatter, |field, formatter| {
            write!(formatter, "{}", field.type_of)
        });
    }
    if fields.is_empty() {
        return Ok(());
    }
    write_joined(" { ", fields, " }", formatter, |field, formatter| {
        write!(formatter, "{}: {}", field.name, field.type_of)
    })
}

fn write_joined<T>(
    before: &str,
    items: &[T],
    after: &str,
    formatter: &mut fmt::Formatter<'_>,
    mut write: impl FnMut(&T, &mut fmt::Formatter<'_>) -> fmt::Result,
) -> fmt::Result {
    formatter.write_str(before)?;
    for (position, item) in items.iter().enumerate() {
        if position > 0 {
            formatter.write_str(", ")?;
        }
        write(item, formatter)?;
    }
    formatter.write_str(after)
}
