//! The text form of values in CSV fields.

use std::fmt::Write;

use weft::description::{TypeDescription, Value};

use super::json;
use super::lexer::Field;
use crate::error::{Misfit, excerpt};

/// Appends the text of a column's value to `output`. Returns `false` if the value is `None`: its field is empty
/// and has no quotes.
pub fn write_column(type_of: &TypeDescription, value: &Value, output: &mut String) -> bool {
    match (type_of, value) {
        (TypeDescription::Option(_), Value::Option(None)) => false,
        (TypeDescription::Option(inner), Value::Option(Some(value))) => {
            write(inner, value, output);
            true
        }
        _ => {
            write(type_of, value, output);
            true
        }
    }
}

/// Reads a column's value from its field.
///
/// # Errors
/// If the text is not a value of this type. The range of an integer and the length of an array are not checked
/// here: [`Value::write`] checks them.
pub fn read_column(type_of: &TypeDescription, field: Field<'_>) -> Result<Value, Misfit> {
    let text = std::str::from_utf8(field.bytes)
        .map_err(|_| Misfit::new(type_of, "bytes that are not UTF-8"))?;
    match type_of {
        TypeDescription::Option(_) if text.is_empty() && !field.quoted => Ok(Value::Option(None)),
        TypeDescription::Option(inner) => {
            read(inner, text).map(|value| Value::Option(Some(Box::new(value))))
        }
        _ => read(type_of, text),
    }
}

/// Appends the text of a value other than `None`.
pub fn write(type_of: &TypeDescription, value: &Value, output: &mut String) {
    let written = match (type_of, value) {
        (_, Value::Bool(value)) => write!(output, "{value}"),
        (_, Value::Signed(number)) => write!(output, "{number}"),
        (_, Value::Unsigned(number)) => write!(output, "{number}"),
        (_, Value::F32(number)) if number.is_nan() => {
            write_nan(number.to_bits() == f32::NAN.to_bits(), 8, number.to_bits().into(), output)
        }
        (_, Value::F64(number)) if number.is_nan() => {
            write_nan(number.to_bits() == f64::NAN.to_bits(), 16, number.to_bits(), output)
        }
        // The shortest text that is read as the same number, with an exponent if it is long.
        (_, Value::F32(number)) => write!(output, "{number:?}"),
        (_, Value::F64(number)) => write!(output, "{number:?}"),
        (_, Value::Char(character)) => write!(output, "{character}"),
        (_, Value::String(text)) => write!(output, "{text}"),
        (_, Value::Bytes(bytes)) => bytes.iter().try_for_each(|byte| write!(output, "{byte:02x}")),
        (TypeDescription::Enum { variants, .. }, Value::Enum(variant)) => {
            write!(output, "{}", variants[*variant])
        }
        _ => {
            json::write(type_of, value, output);
            Ok(())
        }
    };
    written.expect("memory cannot fail");
}

/// Writes a NaN. Most programs know only one; the others are distinguished by their bits.
fn write_nan(usual: bool, digits: usize, bits: u64, output: &mut String) -> std::fmt::Result {
    if usual {
        return output.write_str("NaN");
    }
    write!(output, "NaN(0x{bits:0digits$x})")
}

/// Reads the text of a value other than `None`.
///
/// # Errors
/// See [`read_column`].
pub fn read(type_of: &TypeDescription, text: &str) -> Result<Value, Misfit> {
    let misfit = || Misfit::new(type_of, excerpt(text));
    match type_of {
        TypeDescription::Bool if text.eq_ignore_ascii_case("true") => Ok(Value::Bool(true)),
        TypeDescription::Bool if text.eq_ignore_ascii_case("false") => Ok(Value::Bool(false)),
        TypeDescription::Bool => Err(misfit()),
        TypeDescription::I8
        | TypeDescription::I16
        | TypeDescription::I32
        | TypeDescription::I64
        | TypeDescription::I128 => text.parse().map(Value::Signed).map_err(|_| misfit()),
        TypeDescription::U8
        | TypeDescription::U16
        | TypeDescription::U32
        | TypeDescription::U64
        | TypeDescription::U128 => text.parse().map(Value::Unsigned).map_err(|_| misfit()),
        TypeDescription::F32 => match read_nan(text) {
            Some(None) => Ok(Value::F32(f32::NAN)),
            Some(Some(bits)) => u32::try_from(bits)
                .ok()
                .map(f32::from_bits)
                .filter(|number| number.is_nan())
                .map(Value::F32)
                .ok_or_else(misfit),
            None => match text.parse::<f32>() {
                Ok(number) if !number.is_infinite() || names_infinity(text) => {
                    Ok(Value::F32(number))
                }
                _ => Err(misfit()),
            },
        },
        TypeDescription::F64 => match read_nan(text) {
            Some(None) => Ok(Value::F64(f64::NAN)),
            Some(Some(bits)) => Some(f64::from_bits(bits))
                .filter(|number| number.is_nan())
                .map(Value::F64)
                .ok_or_else(misfit),
            None => match text.parse::<f64>() {
                Ok(number) if !number.is_infinite() || names_infinity(text) => {
                    Ok(Value::F64(number))
                }
                _ => Err(misfit()),
            },
        },
        TypeDescription::Char => text.parse().map(Value::Char).map_err(|_| misfit()),
        TypeDescription::String => Ok(Value::String(text.to_owned())),
        TypeDescription::List(element) | TypeDescription::Array(element, _)
            if **element == TypeDescription::U8 =>
        {
            let expected = format_args!("{type_of} in hexadecimal digits").to_string();
            read_hexadecimal(text)
                .map(Value::Bytes)
                .ok_or_else(|| Misfit::new(expected, excerpt(text)))
        }
        TypeDescription::Enum { variants, .. } => {
            let variant = variants.iter().position(|variant| variant == text);
            variant.map(Value::Enum).ok_or_else(|| {
                let expected = format_args!("{type_of} ({})", variants.join(", ")).to_string();
                Misfit::new(expected, excerpt(text))
            })
        }
        TypeDescription::Option(_)
        | TypeDescription::List(_)
        | TypeDescription::Array(..)
        | TypeDescription::Tuple(_)
        | TypeDescription::Struct { .. } => json::read(type_of, text),
    }
}

/// Returns whether the text names an infinity. A number that is too large must not silently become infinite.
fn names_infinity(text: &str) -> bool {
    text.trim_start_matches(['+', '-']).starts_with(['i', 'I'])
}

/// Returns the bits that the text gives, if it names a NaN. The inner `None` means the usual NaN.
fn read_nan(text: &str) -> Option<Option<u64>> {
    if text.eq_ignore_ascii_case("nan") {
        return Some(None);
    }
    let digits = text.strip_prefix("NaN(0x")?.strip_suffix(')')?;
    u64::from_str_radix(digits, 16).ok().map(Some)
}

fn read_hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    if !text.len().is_multiple_of(2) {
        return None;
    }
    let pairs = text.as_bytes().chunks_exact(2);
    pairs.map(|pair| Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(type_of: &TypeDescription, value: &Value) -> String {
        let mut text = String::new();
        write(type_of, value, &mut text);
        text
    }

    #[test]
    fn nan_keeps_its_bits() {
        for (bits, text) in [
            (0x7FC0_0000, "NaN"),
            (0xFFC0_0000, "NaN(0xffc00000)"),
            (0x7F80_0001, "NaN(0x7f800001)"),
        ] {
            let type_of = TypeDescription::F32;
            assert_eq!(written(&type_of, &Value::F32(f32::from_bits(bits))), text);
            let Ok(Value::F32(number)) = read(&type_of, text) else { panic!("{text} is an f32") };
            assert_eq!(number.to_bits(), bits);
        }
        let type_of = TypeDescription::F64;
        let text = "NaN(0xfff0000000000001)";
        assert_eq!(written(&type_of, &Value::F64(f64::from_bits(0xFFF0_0000_0000_0001))), text);
        let Ok(Value::F64(number)) = read(&type_of, text) else { panic!("{text} is an f64") };
        assert_eq!(number.to_bits(), 0xFFF0_0000_0000_0001);
    }

    #[test]
    fn invalid_texts_are_refused() {
        let bytes = TypeDescription::List(Box::new(TypeDescription::U8));
        let cases = [
            (TypeDescription::Bool, &["", "1", "yes", " true"][..]),
            (TypeDescription::I8, &["", "1.0", " 1", "0x1"]),
            (TypeDescription::U128, &["-1", "340282366920938463463374607431768211456"]),
            (TypeDescription::F32, &["", "1e39", "NaN(0x1)", "NaN(0x7ff8000000000001)", "1,5"]),
            (TypeDescription::F64, &["1e400", "NaN(0x7ff0000000000000)", "NaN(1)"]),
            (TypeDescription::Char, &["", "ab"]),
            (bytes, &["0", "0g", "é", "+1"]),
        ];
        for (type_of, texts) in cases {
            for text in texts {
                assert!(read(&type_of, text).is_err(), "{text:?} is not a value of type {type_of}");
            }
        }
    }
}
