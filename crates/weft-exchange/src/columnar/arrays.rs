//! Conversion of values to Arrow arrays.

use std::sync::Arc;

use arrow_array::builder::FixedSizeBinaryBuilder;
use arrow_array::types::{
    ArrowPrimitiveType, Decimal256Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, FixedSizeListArray, ListArray, PrimitiveArray,
    StringArray, StructArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer, i256};
use arrow_schema::{ArrowError, DataType};
use weft::description::{TypeDescription, Value};

use super::types::{DIGITS_OF_128_BITS, is_unit};

/// Returns the array of a column, with the Arrow type that [`super::types`] gives for `type_of`. The array is
/// null where there is no value, because an enclosing option is `None`.
///
/// A value that is not of the type becomes null, too. The column's field then refuses it.
///
/// # Errors
/// If the array would be larger than Arrow allows.
pub fn array(
    type_of: &TypeDescription,
    data_type: &DataType,
    values: &[Option<&Value>],
) -> Result<ArrayRef, ArrowError> {
    if is_unit(type_of) {
        let array: BooleanArray = values.iter().map(|value| value.map(|_| true)).collect();
        return Ok(Arc::new(array));
    }
    match type_of {
        TypeDescription::Bool => {
            let array: BooleanArray = each(values, |value| match value {
                Value::Bool(value) => Some(*value),
                _ => None,
            })
            .collect();
            Ok(Arc::new(array))
        }
        TypeDescription::I8 => signed::<Int8Type>(values),
        TypeDescription::I16 => signed::<Int16Type>(values),
        TypeDescription::I32 => signed::<Int32Type>(values),
        TypeDescription::I64 => signed::<Int64Type>(values),
        TypeDescription::U8 => unsigned::<UInt8Type>(values),
        TypeDescription::U16 => unsigned::<UInt16Type>(values),
        TypeDescription::U32 => unsigned::<UInt32Type>(values),
        TypeDescription::U64 => unsigned::<UInt64Type>(values),
        TypeDescription::I128 | TypeDescription::U128 => {
            let array: PrimitiveArray<Decimal256Type> = each(values, |value| match value {
                Value::Signed(number) => Some(i256::from_i128(*number)),
                Value::Unsigned(number) => Some(i256::from_parts(*number, 0)),
                _ => None,
            })
            .collect();
            Ok(Arc::new(array.with_precision_and_scale(DIGITS_OF_128_BITS, 0)?))
        }
        TypeDescription::F32 => primitive::<Float32Type>(values, |value| match value {
            Value::F32(number) => Some(*number),
            _ => None,
        }),
        TypeDescription::F64 => primitive::<Float64Type>(values, |value| match value {
            Value::F64(number) => Some(*number),
            _ => None,
        }),
        TypeDescription::Char => {
            let array: StringArray = each(values, |value| match value {
                Value::Char(character) => Some(character.to_string()),
                _ => None,
            })
            .collect();
            Ok(Arc::new(array))
        }
        TypeDescription::String => {
            let array: StringArray = each(values, |value| match value {
                Value::String(text) => Some(text),
                _ => None,
            })
            .collect();
            Ok(Arc::new(array))
        }
        TypeDescription::Enum { variants, .. } => {
            let array: StringArray = each(values, |value| match value {
                Value::Enum(variant) => variants.get(*variant),
                _ => None,
            })
            .collect();
            Ok(Arc::new(array))
        }
        TypeDescription::Option(inner) => {
            let values: Vec<_> = each(values, |value| match value {
                Value::Option(Some(value)) => Some(&**value),
                _ => None,
            })
            .collect();
            match **inner {
                TypeDescription::Option(_) => {
                    structure(data_type, &[&**inner], &values, |value, _| Some(value))
                }
                _ => array(inner, data_type, &values),
            }
        }
        TypeDescription::List(element) => list(element, data_type, values),
        TypeDescription::Array(element, length) => {
            fixed_size_list(element, *length, data_type, values)
        }
        TypeDescription::Tuple(elements) => {
            let types: Vec<_> = elements.iter().collect();
            structure(data_type, &types, values, tuple_element)
        }
        TypeDescription::Struct { fields, .. } => {
            let types: Vec<_> = fields.iter().map(|field| &field.type_of).collect();
            structure(data_type, &types, values, tuple_element)
        }
    }
}

/// Returns what `get` finds in each value, or `None` where there is no value.
fn each<'a, T: 'a>(
    values: &[Option<&'a Value>],
    get: impl Fn(&'a Value) -> Option<T>,
) -> impl Iterator<Item = Option<T>> {
    values.iter().map(move |value| value.and_then(&get))
}

fn primitive<T: ArrowPrimitiveType>(
    values: &[Option<&Value>],
    get: impl Fn(&Value) -> Option<T::Native>,
) -> Result<ArrayRef, ArrowError> {
    let mut builder = PrimitiveArray::<T>::builder(values.len());
    builder.extend(each(values, get));
    Ok(Arc::new(builder.finish()))
}

fn signed<T: ArrowPrimitiveType>(values: &[Option<&Value>]) -> Result<ArrayRef, ArrowError>
where
    T::Native: TryFrom<i128>,
{
    primitive::<T>(values, |value| match value {
        Value::Signed(number) => T::Native::try_from(*number).ok(),
        _ => None,
    })
}

fn unsigned<T: ArrowPrimitiveType>(values: &[Option<&Value>]) -> Result<ArrayRef, ArrowError>
where
    T::Native: TryFrom<u128>,
{
    primitive::<T>(values, |value| match value {
        Value::Unsigned(number) => T::Native::try_from(*number).ok(),
        _ => None,
    })
}

fn list(
    element: &TypeDescription,
    data_type: &DataType,
    values: &[Option<&Value>],
) -> Result<ArrayRef, ArrowError> {
    let DataType::List(field) = data_type else {
        let array: BinaryArray = each(values, |value| match value {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        })
        .collect();
        return Ok(Arc::new(array));
    };
    let lists: Vec<&[Value]> =
        values.iter().map(|value| list_elements(*value).unwrap_or_default()).collect();
    let elements: Vec<_> = lists.iter().flat_map(|list| list.iter()).map(Some).collect();
    let offsets = OffsetBuffer::from_lengths(lists.iter().map(|list| list.len()));
    let elements = array(element, field.data_type(), &elements)?;
    Ok(Arc::new(ListArray::try_new(Arc::clone(field), offsets, elements, nulls(values))?))
}

fn fixed_size_list(
    element: &TypeDescription,
    length: usize,
    data_type: &DataType,
    values: &[Option<&Value>],
) -> Result<ArrayRef, ArrowError> {
    let (field, length_i32) = match data_type {
        DataType::FixedSizeList(field, length_i32) => (field, *length_i32),
        DataType::FixedSizeBinary(length_i32) => {
            let mut builder = FixedSizeBinaryBuilder::with_capacity(values.len(), *length_i32);
            for value in values {
                match value {
                    Some(Value::Bytes(bytes)) => builder.append_value(bytes)?,
                    _ => builder.append_null(),
                }
            }
            return Ok(Arc::new(builder.finish()));
        }
        other => {
            return Err(ArrowError::SchemaError(format!("an array cannot be kept as {other}")));
        }
    };
    let mut elements = Vec::with_capacity(values.len() * length);
    for value in values {
        match list_elements(*value) {
            Some(list) => elements.extend(list.iter().map(Some)),
            None => elements.extend(std::iter::repeat_n(None, length)),
        }
    }
    let elements = array(element, field.data_type(), &elements)?;
    let field = Arc::clone(field);
    Ok(Arc::new(FixedSizeListArray::try_new(field, length_i32, elements, nulls(values))?))
}

fn list_elements(value: Option<&Value>) -> Option<&[Value]> {
    match value {
        Some(Value::List(elements)) => Some(elements),
        _ => None,
    }
}

fn structure(
    data_type: &DataType,
    types: &[&TypeDescription],
    values: &[Option<&Value>],
    element: impl for<'a> Fn(&'a Value, usize) -> Option<&'a Value>,
) -> Result<ArrayRef, ArrowError> {
    let DataType::Struct(fields) = data_type else {
        return Err(ArrowError::SchemaError(format!("a struct cannot be kept as {data_type}")));
    };
    let children = types.iter().zip(fields).enumerate().map(|(position, (type_of, field))| {
        let values: Vec<_> = each(values, |value| element(value, position)).collect();
        array(type_of, field.data_type(), &values)
    });
    let children = children.collect::<Result<_, _>>()?;
    Ok(Arc::new(StructArray::try_new(fields.clone(), children, nulls(values))?))
}

fn tuple_element(value: &Value, position: usize) -> Option<&Value> {
    match value {
        Value::Tuple(elements) => elements.get(position),
        _ => None,
    }
}

/// Returns which values are missing, or `None` if none is missing.
fn nulls(values: &[Option<&Value>]) -> Option<NullBuffer> {
    let nulls: NullBuffer = values.iter().map(Option::is_some).collect();
    Some(nulls).filter(|nulls| nulls.null_count() > 0)
}
