//! Keys as JSON: whole numbers, strings, and arrays of keys.
//!
//! A whole number has up to 128 bits. `serde_json` gives a visitor a number of more than 64 bits as a float, which
//! loses digits. So a key is taken as its text, which `serde_json` has found to be valid JSON, and is parsed here.
//! The text is borrowed from the line, so only the key itself is allocated.

use serde::de::{self, Deserializer, Unexpected};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::key::Key;

/// How deep arrays may be nested in a key. The parser calls itself for each level.
const DEPTH_MAX: usize = 100;

const EXPECTED: &str =
    "a key: a whole number from -2^127 to 2^127 - 1, a string, or an array of keys";

/// Works only with `serde_json`, and only if it reads from a slice or a string.
impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Key, D::Error> {
        let text = <&RawValue>::deserialize(deserializer)?.get();
        Parser { rest: text }.key(DEPTH_MAX)
    }
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Key::Integer(value) => serializer.serialize_i128(*value),
            Key::Text(text) => serializer.serialize_str(text),
            Key::Tuple(elements) => serializer.collect_seq(elements),
        }
    }
}

/// Parses the text of a key, which is valid JSON.
struct Parser<'a> {
    /// The text that is not parsed yet.
    rest: &'a str,
}

impl<'a> Parser<'a> {
    /// Parses a key with at most `depth` levels of arrays.
    fn key<E: de::Error>(&mut self, depth: usize) -> Result<Key, E> {
        self.skip_spaces();
        match self.rest.as_bytes().first() {
            Some(b'"') => self.text(),
            Some(b'[') => match depth.checked_sub(1) {
                Some(depth) => self.tuple(depth),
                None => Err(E::custom(format_args!(
                    "the arrays of a key are nested more than {DEPTH_MAX} deep, which is the limit"
                ))),
            },
            _ => self.integer(),
        }
    }

    fn skip_spaces(&mut self) {
        self.rest = self.rest.trim_ascii_start();
    }

    /// Returns the next `length` bytes, and moves past them.
    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }

    fn integer<E: de::Error>(&mut self) -> Result<Key, E> {
        let is_end = |byte: u8| byte == b',' || byte == b']' || byte.is_ascii_whitespace();
        let length = self.rest.bytes().position(is_end).unwrap_or(self.rest.len());
        let text = self.take(length);
        let invalid = |_| E::invalid_value(Unexpected::Other(text), &EXPECTED);
        text.parse().map(Key::Integer).map_err(invalid)
    }

    fn text<E: de::Error>(&mut self) -> Result<Key, E> {
        // The bytes of other characters are neither quotes nor backslashes.
        let bytes = self.rest.as_bytes();
        let (mut end, mut has_escapes) = (1, false);
        while bytes[end] != b'"' {
            if bytes[end] == b'\\' {
                has_escapes = true;
                end += 1;
            }
            end += 1;
        }
        let quoted = self.take(end + 1);
        if !has_escapes {
            return Ok(Key::from(&quoted[1..end]));
        }
        let invalid = |_| E::custom("the text of a key has an escape that is not a character");
        serde_json::from_str(quoted).map(Key::Text).map_err(invalid)
    }

    fn tuple<E: de::Error>(&mut self, depth: usize) -> Result<Key, E> {
        self.take(1);
        let mut elements = Vec::new();
        loop {
            self.skip_spaces();
            match self.rest.as_bytes().first() {
                Some(b']') => break,
                Some(b',') => _ = self.take(1),
                _ => {}
            }
            elements.push(self.key(depth)?);
        }
        self.take(1);
        Ok(Key::Tuple(elements))
    }
}
