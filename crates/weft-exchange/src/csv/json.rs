//! JSON for values without a form of their own in CSV: lists, arrays, tuples, structs, nested options.
//!
//! The type guides the reading ([`read`]): a number is not converted through another type, and an error says
//! what was expected.

use std::fmt::{self, Write};

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use weft::description::{TypeDescription, Value};

use super::text;
use crate::error::{ValueMisfit, excerpt};

/// Appends `value`, which has the type `type_of`, to `output`.
pub fn write(type_of: &TypeDescription, value: &Value, output: &mut String) {
    match (type_of, value) {
        (TypeDescription::Option(inner), Value::Option(value)) => match (&**inner, value) {
            (_, None) => output.push_str("null"),
            (TypeDescription::Option(_), Some(value)) => {
                write_sequence([(&**inner, &**value)].into_iter(), output);
            }
            (inner, Some(value)) => write(inner, value, output),
        },
        (TypeDescription::List(element) | TypeDescription::Array(element, _), value) => match value
        {
            Value::List(values) => {
                write_sequence(values.iter().map(|value| (&**element, value)), output);
            }
            bytes => write_text(type_of, bytes, output),
        },
        (TypeDescription::Tuple(elements), Value::Tuple(values)) => {
            write_sequence(elements.iter().zip(values), output);
        }
        (TypeDescription::Struct { fields, .. }, Value::Tuple(values)) => {
            output.push('{');
            for (index, (field, value)) in fields.iter().zip(values).enumerate() {
                if index > 0 {
                    output.push(',');
                }
                write_string(&field.name, output);
                output.push(':');
                write(&field.type_of, value, output);
            }
            output.push('}');
        }
        (_, Value::F32(number)) if !number.is_finite() => write_text(type_of, value, output),
        (_, Value::F64(number)) if !number.is_finite() => write_text(type_of, value, output),
        (
            _,
            Value::Bool(_) | Value::Signed(_) | Value::Unsigned(_) | Value::F32(_) | Value::F64(_),
        ) => text::write(type_of, value, output),
        _ => write_text(type_of, value, output),
    }
}

fn write_sequence<'a>(
    values: impl Iterator<Item = (&'a TypeDescription, &'a Value)>,
    output: &mut String,
) {
    output.push('[');
    for (index, (type_of, value)) in values.enumerate() {
        if index > 0 {
            output.push(',');
        }
        write(type_of, value, output);
    }
    output.push(']');
}

/// Writes the form that the value has in a CSV field, as a string.
fn write_text(type_of: &TypeDescription, value: &Value, output: &mut String) {
    let mut form = String::new();
    text::write(type_of, value, &mut form);
    write_string(&form, output);
}

fn write_string(text: &str, output: &mut String) {
    output.push('"');
    for character in text.chars() {
        match character {
            '"' => output.push_str("\\\""),
            '\\' => output.push_str("\\\\"),
            '\n' => output.push_str("\\n"),
            '\r' => output.push_str("\\r"),
            '\t' => output.push_str("\\t"),
            '\0'..='\u{1F}' => {
                write!(output, "\\u{:04x}", u32::from(character)).expect("memory cannot fail");
            }
            character => output.push(character),
        }
    }
    output.push('"');
}

/// Reads what [`write()`] wrote, or any JSON with the same meaning.
///
/// # Errors
/// If `json` is not JSON, or not a value of this type. The range of a number is not checked.
pub fn read(type_of: &TypeDescription, json: &str) -> Result<Value, ValueMisfit> {
    let misfit = |error: serde_json::Error| {
        ValueMisfit::new(
            format_args!("{type_of} in JSON"),
            format_args!("{} ({error})", excerpt(json)),
        )
    };
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let value = ValueSeed(type_of).deserialize(&mut deserializer).map_err(misfit)?;
    deserializer.end().map_err(misfit)?;
    Ok(value)
}

fn is_number(type_of: &TypeDescription) -> bool {
    matches!(
        type_of,
        TypeDescription::I8
            | TypeDescription::I16
            | TypeDescription::I32
            | TypeDescription::I64
            | TypeDescription::I128
            | TypeDescription::U8
            | TypeDescription::U16
            | TypeDescription::U32
            | TypeDescription::U64
            | TypeDescription::U128
            | TypeDescription::F32
            | TypeDescription::F64
    )
}

/// Deserializes a value of this type.
#[derive(Clone, Copy)]
struct ValueSeed<'a>(&'a TypeDescription);

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self.0 {
            // Read it as text: serde_json would convert it to an f64, or refuse it.
            type_of if is_number(type_of) => {
                let raw = <&RawValue>::deserialize(deserializer)?.get();
                if !raw.starts_with('"') {
                    return self.read_text(raw);
                }
                let text: String = serde_json::from_str(raw).map_err(D::Error::custom)?;
                self.read_text(&text)
            }
            TypeDescription::Option(_) => deserializer.deserialize_option(self),
            _ => deserializer.deserialize_any(self),
        }
    }
}

impl ValueSeed<'_> {
    fn read_text<E: Error>(self, text: &str) -> Result<Value, E> {
        text::read(self.0, text)
            .map_err(|misfit| E::custom(format_args!("{} is no {}", misfit.found, misfit.expected)))
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            TypeDescription::Tuple(elements) => {
                write!(formatter, "{} values of the type {}", elements.len(), self.0)
            }
            type_of => write!(formatter, "a value of the type {type_of}"),
        }
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        match self.0 {
            TypeDescription::Bool => Ok(Value::Bool(value)),
            _ => Err(E::invalid_type(serde::de::Unexpected::Bool(value), &self)),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        let is_text = match self.0 {
            TypeDescription::Char | TypeDescription::String | TypeDescription::Enum { .. } => true,
            TypeDescription::List(element) | TypeDescription::Array(element, _) => {
                **element == TypeDescription::U8
            }
            _ => false,
        };
        match is_text {
            true => self.read_text(text),
            false => Err(E::invalid_type(serde::de::Unexpected::Str(text), &self)),
        }
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        match self.0 {
            TypeDescription::Option(_) => Ok(Value::Option(None)),
            _ => Err(E::invalid_type(serde::de::Unexpected::Unit, &self)),
        }
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let TypeDescription::Option(inner) = self.0 else {
            return Err(D::Error::invalid_type(serde::de::Unexpected::Option, &self));
        };
        match **inner {
            TypeDescription::Option(_) => deserializer.deserialize_seq(self),
            _ => Ok(Value::Option(Some(Box::new(ValueSeed(inner).deserialize(deserializer)?)))),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        match self.0 {
            TypeDescription::List(element) | TypeDescription::Array(element, _)
                if **element != TypeDescription::U8 =>
            {
                let mut values = Vec::new();
                while let Some(value) = elements.next_element_seed(ValueSeed(element))? {
                    values.push(value);
                }
                Ok(Value::List(values))
            }
            TypeDescription::Tuple(types) => {
                let mut values = Vec::with_capacity(types.len());
                for type_of in types {
                    let value = elements.next_element_seed(ValueSeed(type_of))?;
                    let length = values.len();
                    values.push(value.ok_or_else(|| A::Error::invalid_length(length, &self))?);
                }
                Ok(Value::Tuple(values))
            }
            TypeDescription::Option(inner) if matches!(**inner, TypeDescription::Option(_)) => {
                let value = elements.next_element_seed(ValueSeed(inner))?;
                let value = value.ok_or_else(|| A::Error::invalid_length(0, &self))?;
                Ok(Value::Option(Some(Box::new(value))))
            }
            _ => Err(A::Error::invalid_type(serde::de::Unexpected::Seq, &self)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let TypeDescription::Struct { fields, .. } = self.0 else {
            return Err(A::Error::invalid_type(serde::de::Unexpected::Map, &self));
        };
        let mut values = vec![None; fields.len()];
        while let Some(name) = entries.next_key::<String>()? {
            let Some(position) = fields.iter().position(|field| field.name == name) else {
                return Err(A::Error::custom(format_args!("there is no field `{name}`")));
            };
            let value = entries.next_value_seed(ValueSeed(&fields[position].type_of))?;
            if values[position].replace(value).is_some() {
                return Err(A::Error::custom(format_args!("the field `{name}` appears twice")));
            }
        }
        let named = fields.iter().zip(values).map(|(field, value)| {
            let missing = || format!("the field `{}` is missing", field.name);
            value.ok_or_else(|| A::Error::custom(missing()))
        });
        named.collect::<Result<_, _>>().map(Value::Tuple)
    }
}

#[cfg(test)]
mod tests {
    use weft::description::ColumnDescription;

    use super::*;

    fn part() -> TypeDescription {
        let field = |name: &str, type_of| ColumnDescription::new(name.to_owned(), type_of);
        TypeDescription::Struct {
            name: "Part".to_owned(),
            fields: vec![
                field("count", TypeDescription::U128),
                field("rate", TypeDescription::F32),
                field("maybe", TypeDescription::Option(Box::new(TypeDescription::Bool))),
            ],
        }
    }

    #[test]
    fn struct_is_read_by_its_type() {
        let largest = u128::MAX;
        // Halfway between two f32, except for the last digits: as an f64, it would be exactly halfway.
        let json =
            format!(r#" {{"maybe": null, "rate": 1.00000005960464477540, "count": {largest}}} "#);
        let expected = Value::Tuple(vec![
            Value::Unsigned(largest),
            Value::F32(1.000_000_1),
            Value::Option(None),
        ]);
        assert_eq!(read(&part(), &json), Ok(expected));
    }

    #[test]
    fn errors_name_the_cause() {
        let cases = [
            (r#"{"count":1,"rate":1}"#, "the field `maybe` is missing"),
            (r#"{"count":1,"count":1}"#, "the field `count` appears twice"),
            (r#"{"size":1}"#, "there is no field `size`"),
            (r#"{"count":-1}"#, "\"-1\" is no u128"),
            (r#"{"count":1.5}"#, "\"1.5\" is no u128"),
            (r#"{"count":true}"#, "\"true\" is no u128"),
            (r#"{"rate":"fast"}"#, "\"fast\" is no f32"),
            (r#"{"rate":1e39}"#, "\"1e39\" is no f32"),
            (r#"{"maybe":1}"#, "invalid type: integer `1`, expected a value of the type bool"),
            (r#"{"count":1"#, "EOF while parsing an object"),
            ("[]", "expected a value of the type Part"),
            ("", "EOF while parsing a value"),
        ];
        for (json, expected) in cases {
            let misfit = read(&part(), json).expect_err("it is wrong");
            assert!(misfit.found.contains(expected), "{json}: {}", misfit.found);
        }
    }
}
