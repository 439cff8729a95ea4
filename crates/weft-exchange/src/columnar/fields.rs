//! Conversion of Arrow arrays to values.
//!
//! Other programs do not write exactly the types that Weft writes. Their identifiers are often 64-bit integers,
//! texts have 64-bit offsets or come as dictionaries, and every column may be nullable. So the values are
//! checked one by one, and the types only have to be of the same kind.

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Decimal128Type, Decimal256Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_buffer::i256;
use arrow_schema::DataType;
use weft::description::{TypeDescription, Value};

use super::types::{NESTED_OPTION_FIELD, is_unit, tuple_field};
use crate::error::{ValueMisfit, excerpt};

/// Reads values of one type from arrays of one type.
pub struct FieldReader {
    type_of: TypeDescription,
    kind: Kind,
}

enum Kind {
    /// A type with only this value.
    Unit(Value),
    Bool,
    Signed,
    Unsigned,
    F32,
    F64,
    Text,
    Bytes,
    List(Box<FieldReader>),
    /// The children's positions in the array, in the order of the fields.
    Struct(Vec<(usize, FieldReader)>),
    /// An option: null is `None`.
    Option(Box<FieldReader>),
    /// An option of an option: the inner option is the struct's one field.
    NestedOption(Box<FieldReader>),
    /// Keys, and a reader of the values that they stand for.
    Dictionary(Box<FieldReader>),
}

impl FieldReader {
    /// Makes a reader of values of `type_of` from arrays of `data_type`. Returns `None` if the types are of
    /// different kinds.
    pub fn new(type_of: &TypeDescription, data_type: &DataType) -> Option<FieldReader> {
        let kind = match (type_of, data_type) {
            (_, DataType::Dictionary(_, values)) => {
                Kind::Dictionary(Box::new(FieldReader::new(type_of, values)?))
            }
            (TypeDescription::Option(inner), _) => match (&**inner, data_type) {
                (TypeDescription::Option(_), DataType::Struct(fields)) => match &fields[..] {
                    [field] if field.name() == NESTED_OPTION_FIELD => {
                        Kind::NestedOption(Box::new(FieldReader::new(inner, field.data_type())?))
                    }
                    _ => return None,
                },
                (TypeDescription::Option(_), _) => return None,
                _ => Kind::Option(Box::new(FieldReader::new(inner, data_type)?)),
            },
            (type_of, DataType::Boolean) if is_unit(type_of) => {
                Kind::Unit(type_of.read_value(&mut &[][..]).ok()?)
            }
            (TypeDescription::Bool, DataType::Boolean) => Kind::Bool,
            (
                TypeDescription::I8
                | TypeDescription::I16
                | TypeDescription::I32
                | TypeDescription::I64
                | TypeDescription::I128,
                data_type,
            ) if is_integer(data_type) => Kind::Signed,
            (
                TypeDescription::U8
                | TypeDescription::U16
                | TypeDescription::U32
                | TypeDescription::U64
                | TypeDescription::U128,
                data_type,
            ) if is_integer(data_type) => Kind::Unsigned,
            (TypeDescription::F32, DataType::Float32) => Kind::F32,
            (TypeDescription::F64, DataType::Float32 | DataType::Float64) => Kind::F64,
            (
                TypeDescription::Char | TypeDescription::String | TypeDescription::Enum { .. },
                DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View,
            ) => Kind::Text,
            (
                TypeDescription::List(element) | TypeDescription::Array(element, _),
                DataType::Binary | DataType::LargeBinary | DataType::BinaryView,
            ) if **element == TypeDescription::U8 => Kind::Bytes,
            (
                TypeDescription::List(element) | TypeDescription::Array(element, _),
                DataType::FixedSizeBinary(length),
            ) if **element == TypeDescription::U8 && *length > 0 => Kind::Bytes,
            (
                TypeDescription::List(element) | TypeDescription::Array(element, _),
                DataType::List(field) | DataType::LargeList(field),
            ) if **element != TypeDescription::U8 => {
                Kind::List(Box::new(FieldReader::new(element, field.data_type())?))
            }
            (
                TypeDescription::List(element) | TypeDescription::Array(element, _),
                DataType::FixedSizeList(field, length),
            ) if **element != TypeDescription::U8 && *length > 0 => {
                Kind::List(Box::new(FieldReader::new(element, field.data_type())?))
            }
            (TypeDescription::Tuple(elements), DataType::Struct(fields)) => {
                let names = (0..elements.len()).map(tuple_field).zip(elements);
                Kind::Struct(children(names, fields)?)
            }
            (TypeDescription::Struct { fields: members, .. }, DataType::Struct(fields)) => {
                let names = members.iter().map(|field| (field.name.clone(), &field.type_of));
                Kind::Struct(children(names, fields)?)
            }
            _ => return None,
        };
        Some(FieldReader { type_of: type_of.clone(), kind })
    }

    /// Returns the value at `index`. The range of an integer and the length of an array are not checked here:
    /// [`Value::write`] checks them.
    ///
    /// # Panics
    /// If `array` is not of the type that this reader was made for.
    pub fn read(&self, array: &dyn Array, index: usize) -> Result<Value, ValueMisfit> {
        if array.is_null(index) {
            return match self.type_of {
                TypeDescription::Option(_) => Ok(Value::Option(None)),
                _ => Err(ValueMisfit::new(&self.type_of, "null")),
            };
        }
        Ok(match &self.kind {
            Kind::Unit(value) => value.clone(),
            Kind::Bool => Value::Bool(array.as_boolean().value(index)),
            Kind::Signed => {
                let number = integer(array, index);
                Value::Signed(number.to_i128().ok_or_else(|| self.out_of_range(number))?)
            }
            Kind::Unsigned => match integer(array, index).to_parts() {
                (number, 0) => Value::Unsigned(number),
                (low, high) => return Err(self.out_of_range(i256::from_parts(low, high))),
            },
            Kind::F32 => Value::F32(array.as_primitive::<Float32Type>().value(index)),
            Kind::F64 => Value::F64(match array.as_primitive_opt::<Float64Type>() {
                Some(array) => array.value(index),
                None => array.as_primitive::<Float32Type>().value(index).into(),
            }),
            Kind::Text => self.text(text(array, index))?,
            Kind::Bytes => Value::Bytes(bytes(array, index).to_vec()),
            Kind::List(element) => {
                let (values, begin, end) = match array.data_type() {
                    DataType::List(_) => {
                        let array = array.as_list::<i32>();
                        let offsets = array.value_offsets();
                        (array.values(), offsets[index] as usize, offsets[index + 1] as usize)
                    }
                    DataType::LargeList(_) => {
                        let array = array.as_list::<i64>();
                        let offsets = array.value_offsets();
                        (array.values(), offsets[index] as usize, offsets[index + 1] as usize)
                    }
                    _ => {
                        let array = array.as_fixed_size_list();
                        let begin = array.value_offset_at(index);
                        (array.values(), begin, begin + array.value_length() as usize)
                    }
                };
                let elements = (begin..end).map(|index| element.read(values, index));
                Value::List(elements.collect::<Result<_, _>>()?)
            }
            Kind::Struct(children) => {
                let array = array.as_struct();
                let values = children
                    .iter()
                    .map(|(position, child)| child.read(array.column(*position), index));
                Value::Tuple(values.collect::<Result<_, _>>()?)
            }
            Kind::Option(inner) => Value::Option(Some(Box::new(inner.read(array, index)?))),
            Kind::NestedOption(inner) => {
                let value = inner.read(array.as_struct().column(0), index)?;
                Value::Option(Some(Box::new(value)))
            }
            Kind::Dictionary(values) => {
                let array = array.as_any_dictionary();
                let key =
                    integer(array.keys(), index).to_i128().and_then(|key| key.try_into().ok());
                let key = key.filter(|&key: &usize| key < array.values().len());
                let key =
                    key.ok_or_else(|| ValueMisfit::new(&self.type_of, "a key without a value"))?;
                values.read(array.values(), key)?
            }
        })
    }

    fn out_of_range(&self, number: i256) -> ValueMisfit {
        ValueMisfit::new(&self.type_of, number)
    }

    fn text(&self, text: &str) -> Result<Value, ValueMisfit> {
        let misfit = || ValueMisfit::new(&self.type_of, excerpt(text));
        match &self.type_of {
            TypeDescription::Char => text.parse().map(Value::Char).map_err(|_| misfit()),
            TypeDescription::Enum { variants, .. } => {
                let variant = variants.iter().position(|variant| variant == text);
                variant.map(Value::Enum).ok_or_else(misfit)
            }
            _ => Ok(Value::String(text.to_owned())),
        }
    }
}

/// Returns readers of a struct's fields, each found by its name. `None` if the array has other fields.
fn children<'a>(
    names: impl ExactSizeIterator<Item = (String, &'a TypeDescription)>,
    fields: &arrow_schema::Fields,
) -> Option<Vec<(usize, FieldReader)>> {
    if names.len() != fields.len() {
        return None;
    }
    let child = |(name, type_of): (String, &TypeDescription)| {
        let (position, field) = fields.find(&name)?;
        Some((position, FieldReader::new(type_of, field.data_type())?))
    };
    names.map(child).collect()
}

fn is_integer(data_type: &DataType) -> bool {
    match data_type {
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => *scale == 0,
        data_type => data_type.is_integer(),
    }
}

/// Returns the integer at `index` of an array of integers of any width, or of decimals without fraction.
fn integer(array: &dyn Array, index: usize) -> i256 {
    macro_rules! value {
        ($type_of:ty) => {
            i256::from_i128(array.as_primitive::<$type_of>().value(index).into())
        };
    }
    match array.data_type() {
        DataType::Int8 => value!(Int8Type),
        DataType::Int16 => value!(Int16Type),
        DataType::Int32 => value!(Int32Type),
        DataType::Int64 => value!(Int64Type),
        DataType::UInt8 => value!(UInt8Type),
        DataType::UInt16 => value!(UInt16Type),
        DataType::UInt32 => value!(UInt32Type),
        DataType::UInt64 => value!(UInt64Type),
        DataType::Decimal128(..) => value!(Decimal128Type),
        _ => array.as_primitive::<Decimal256Type>().value(index),
    }
}

fn text(array: &dyn Array, index: usize) -> &str {
    match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().value(index),
        DataType::LargeUtf8 => array.as_string::<i64>().value(index),
        _ => array.as_string_view().value(index),
    }
}

fn bytes(array: &dyn Array, index: usize) -> &[u8] {
    match array.data_type() {
        DataType::Binary => array.as_binary::<i32>().value(index),
        DataType::LargeBinary => array.as_binary::<i64>().value(index),
        DataType::BinaryView => array.as_binary_view().value(index),
        _ => array.as_fixed_size_binary().value(index),
    }
}
