//! Writes values, each type in one form, which every Redis from 7.0 on reads.

use super::read::Value;
use super::{seal, streams, types};

/// A payload that is written.
#[derive(Debug, Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// Adds bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Adds a length, or another number.
    pub fn length(&mut self, length: u64) {
        match length {
            0..0x40 => self.0.push(length as u8),
            0x40..0x4000 => self.bytes(&(0x4000 | length as u16).to_be_bytes()),
            0x4000..=0xffff_ffff => {
                self.0.push(0x80);
                self.bytes(&(length as u32).to_be_bytes());
            }
            _ => {
                self.0.push(0x81);
                self.bytes(&length.to_be_bytes());
            }
        }
    }

    /// Adds a string.
    pub fn string(&mut self, text: &[u8]) {
        self.length(text.len() as u64);
        self.bytes(text);
    }

    /// Adds a string that may be a short number.
    fn text(&mut self, text: &[u8]) {
        let Some(number) = crate::request::parse_integer(text) else { return self.string(text) };
        let bytes = number.to_le_bytes();
        match number {
            -0x80..0x80 => self.bytes(&[0xc0, bytes[0]]),
            -0x8000..0x8000 => self.bytes(&[0xc1, bytes[0], bytes[1]]),
            -0x8000_0000..0x8000_0000 => {
                self.0.push(0xc2);
                self.bytes(&bytes[..4]);
            }
            _ => self.string(text),
        }
    }

    /// Returns the payload, with the version and the checksum at its end.
    pub fn end(mut self) -> Vec<u8> {
        seal(&mut self.0);
        self.0
    }

    fn texts(&mut self, texts: &[Vec<u8>]) {
        self.length(texts.len() as u64);
        texts.iter().for_each(|text| self.string(text));
    }
}

/// Returns a value as `DUMP` returns it.
pub fn dump(value: &Value) -> Vec<u8> {
    let mut writer = Writer::default();
    let kind = match value {
        Value::Text(_) => types::STRING,
        Value::List(_) => types::LIST,
        Value::Set(_) => types::SET,
        Value::Hash(_) | Value::TimedHash(_) => types::HASH,
        Value::SortedSet(_) => types::ZSET_2,
        Value::Stream(_) => types::STREAM_LISTPACKS_2,
    };
    writer.0.push(kind);
    match value {
        Value::Text(text) => writer.text(text),
        Value::List(texts) | Value::Set(texts) => writer.texts(texts),
        Value::Hash(fields) => {
            writer.length(fields.len() as u64);
            for (name, value) in fields {
                writer.string(name);
                writer.string(value);
            }
        }
        // A value of Weft has no times.
        Value::TimedHash(fields) => {
            writer.length(fields.len() as u64);
            for field in fields {
                writer.string(&field.name);
                writer.string(&field.value);
            }
        }
        Value::SortedSet(members) => {
            writer.length(members.len() as u64);
            for (member, score) in members {
                writer.string(member);
                writer.bytes(&score.to_le_bytes());
            }
        }
        Value::Stream(stream) => streams::write(&mut writer, stream),
    }
    writer.end()
}
