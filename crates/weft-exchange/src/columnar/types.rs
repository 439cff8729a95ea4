//! The Arrow type for each type of a column.

use arrow_schema::{DataType, Field, Fields, Schema};
use weft::description::{ColumnDescription, TableDescription, TypeDescription};

/// How many digits the decimal numbers for 128-bit integers have: as many as the largest of these.
pub const DIGITS_OF_128_BITS: u8 = 39;

/// The name of the one field of the struct for an option of an option.
pub const NESTED_OPTION_FIELD: &str = "some";

/// Returns the schema of a table's rows.
///
/// # Errors
/// If a column has an array that is longer than Arrow allows. The text says which.
pub fn schema(table: &TableDescription) -> Result<Schema, String> {
    let field = |column: &ColumnDescription| {
        field(&column.name, &column.type_of)
            .map_err(|problem| format!("column `{}`: {problem}", column.name))
    };
    Ok(Schema::new(table.columns.iter().map(field).collect::<Result<Vec<_>, _>>()?))
}

fn field(name: &str, type_of: &TypeDescription) -> Result<Field, String> {
    Ok(match type_of {
        TypeDescription::Option(inner) => Field::new(name, data_type_of_some(inner)?, true),
        _ => Field::new(name, data_type(type_of)?, false),
    })
}

/// Returns the type of the value in an option. If the value is itself an option, the type is a struct, to
/// distinguish the two kinds of `None`.
fn data_type_of_some(inner: &TypeDescription) -> Result<DataType, String> {
    match inner {
        TypeDescription::Option(_) => {
            Ok(DataType::Struct(Fields::from(vec![field(NESTED_OPTION_FIELD, inner)?])))
        }
        _ => data_type(inner),
    }
}

/// Returns the type of a value.
pub fn data_type(type_of: &TypeDescription) -> Result<DataType, String> {
    if is_unit(type_of) {
        return Ok(DataType::Boolean);
    }
    Ok(match type_of {
        TypeDescription::Bool => DataType::Boolean,
        TypeDescription::I8 => DataType::Int8,
        TypeDescription::I16 => DataType::Int16,
        TypeDescription::I32 => DataType::Int32,
        TypeDescription::I64 => DataType::Int64,
        TypeDescription::U8 => DataType::UInt8,
        TypeDescription::U16 => DataType::UInt16,
        TypeDescription::U32 => DataType::UInt32,
        TypeDescription::U64 => DataType::UInt64,
        TypeDescription::I128 | TypeDescription::U128 => {
            DataType::Decimal256(DIGITS_OF_128_BITS, 0)
        }
        TypeDescription::F32 => DataType::Float32,
        TypeDescription::F64 => DataType::Float64,
        TypeDescription::Char | TypeDescription::String | TypeDescription::Enum { .. } => {
            DataType::Utf8
        }
        TypeDescription::Option(inner) => data_type_of_some(inner)?,
        TypeDescription::List(element) if **element == TypeDescription::U8 => DataType::Binary,
        TypeDescription::List(element) => DataType::List(field(ELEMENT, element)?.into()),
        TypeDescription::Array(element, length) => {
            let length_i32 = i32::try_from(*length).map_err(|_| {
                format!("an array of {length} elements is longer than Arrow allows")
            })?;
            match **element {
                TypeDescription::U8 => DataType::FixedSizeBinary(length_i32),
                _ => DataType::FixedSizeList(field(ELEMENT, element)?.into(), length_i32),
            }
        }
        TypeDescription::Tuple(elements) => {
            let element = |(position, element)| field(&tuple_field(position), element);
            DataType::Struct(elements.iter().enumerate().map(element).collect::<Result<_, _>>()?)
        }
        TypeDescription::Struct { fields, .. } => {
            let field = |it: &ColumnDescription| field(&it.name, &it.type_of);
            DataType::Struct(fields.iter().map(field).collect::<Result<_, _>>()?)
        }
    })
}

const ELEMENT: &str = "item";

/// Returns the name of a tuple's element, as in Rust.
pub fn tuple_field(position: usize) -> String {
    position.to_string()
}

/// Returns whether this type has only one value: `()`, an array of length 0, a struct of such types. Parquet
/// has no type without a value.
pub fn is_unit(type_of: &TypeDescription) -> bool {
    match type_of {
        TypeDescription::Array(element, length) => *length == 0 || is_unit(element),
        TypeDescription::Tuple(elements) => elements.iter().all(is_unit),
        TypeDescription::Struct { fields, .. } => {
            fields.iter().all(|field| is_unit(&field.type_of))
        }
        _ => false,
    }
}
