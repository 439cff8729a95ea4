//! Newtypes, which are transparent: a file has the value that they hold.

use weft::description::{ColumnDescription, TableDescription, TypeDescription};

/// Returns the table with each newtype, on every level, replaced by the type of its value. Its rows have the
/// same encoding, because a struct is encoded as its fields, one after the other.
pub fn without_newtypes(table: &TableDescription) -> TableDescription {
    let plain = |column: &ColumnDescription| {
        let type_of = plain_type(&column.type_of);
        ColumnDescription { type_of, ..column.clone() }
    };
    TableDescription { columns: table.columns.iter().map(plain).collect(), ..table.clone() }
}

fn plain_type(type_of: &TypeDescription) -> TypeDescription {
    use TypeDescription as Type;
    let boxed = |inner: &Type| Box::new(plain_type(inner));
    match type_of {
        Type::Struct { fields, .. } if is_newtype(fields) => plain_type(&fields[0].type_of),
        Type::Struct { name, fields } => {
            let plain = |field: &ColumnDescription| {
                ColumnDescription::new(field.name.clone(), plain_type(&field.type_of))
            };
            Type::Struct { name: name.clone(), fields: fields.iter().map(plain).collect() }
        }
        Type::List(element) => Type::List(boxed(element)),
        Type::Option(value) => Type::Option(boxed(value)),
        Type::Array(element, length) => Type::Array(boxed(element), *length),
        Type::Tuple(elements) => Type::Tuple(elements.iter().map(plain_type).collect()),
        other => other.clone(),
    }
}

/// Returns whether these are the fields of a tuple struct with one field.
fn is_newtype(fields: &[ColumnDescription]) -> bool {
    matches!(fields, [field] if field.name == "0")
}
