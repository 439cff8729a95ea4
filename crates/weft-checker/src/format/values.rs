//! Values of EDN and JSON, as far as histories need them.

use std::fmt;

use crate::key::Key;

/// A value. Vectors, lists and sets are all lists here, and tags are ignored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Value {
    Nil,
    Integer(i128),
    /// A text, a keyword without its colon, or a symbol: they name the same things.
    Name(String),
    List(Vec<Value>),
    Map(Vec<(Value, Value)>),
    /// Any other value, such as a number with a fraction, as it was written.
    Other(String),
}

impl Value {
    /// Returns the value of a key in a map.
    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        let Value::Map(entries) = self else { return None };
        entries.iter().find(|(name, _)| name.as_name() == Some(key)).map(|(_, value)| value)
    }

    pub(super) fn as_name(&self) -> Option<&str> {
        match self {
            Value::Name(name) => Some(name),
            _ => None,
        }
    }

    /// Returns the value as the key of a list or register.
    pub(super) fn to_key(&self) -> Option<Key> {
        match self {
            Value::Integer(value) => Some(Key::Integer(*value)),
            Value::Name(name) => Some(Key::Text(name.clone())),
            Value::List(elements) => {
                elements.iter().map(Value::to_key).collect::<Option<_>>().map(Key::Tuple)
            }
            _ => None,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Nil => f.write_str("nil"),
            Value::Integer(value) => write!(f, "{value}"),
            Value::Name(text) | Value::Other(text) => f.write_str(text),
            Value::List(elements) => {
                f.write_str("[")?;
                for (index, element) in elements.iter().enumerate() {
                    let space = if index > 0 { " " } else { "" };
                    write!(f, "{space}{element}")?;
                }
                f.write_str("]")
            }
            Value::Map(entries) => {
                f.write_str("{")?;
                for (index, (key, value)) in entries.iter().enumerate() {
                    let comma = if index > 0 { ", " } else { "" };
                    write!(f, "{comma}{key} {value}")?;
                }
                f.write_str("}")
            }
        }
    }
}
