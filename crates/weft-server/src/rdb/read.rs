//! Reads values.

use std::io;

use super::input::{ELEMENT_BYTES, Input};
use super::packed::{self, Parse};
use super::{Fault, Read, StreamValue, streams, types};
use crate::call::parse_float;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A string.
    Text(Vec<u8>),
    /// The elements of a list.
    List(Vec<Vec<u8>>),
    /// The members of a set.
    Set(Vec<Vec<u8>>),
    /// The fields of a hash with their values.
    Hash(Vec<(Vec<u8>, Vec<u8>)>),
    /// A hash of which fields expire, as Redis 7.4 has it. Weft does not.
    TimedHash(Vec<TimedField>),
    /// The members of a sorted set with their scores.
    SortedSet(Vec<(Vec<u8>, f64)>),
    /// A stream.
    Stream(Box<StreamValue>),
}

/// A field of a hash that may expire.
#[derive(Clone, Debug, PartialEq)]
pub struct TimedField {
    /// The name.
    pub name: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
    /// When it expires, in milliseconds since 1970; 0 if it does not.
    pub expires_at: u64,
}

impl Value {
    /// Leaves out the fields of a hash that have expired at a time. Returns the value, and how many fields will expire.
    pub fn at(self, now: u64) -> (Self, usize) {
        let Value::TimedHash(mut fields) = self else { return (self, 0) };
        fields.retain(|field| field.expires_at == 0 || field.expires_at > now);
        let expiring = fields.iter().filter(|field| field.expires_at != 0).count();
        let fields = fields.into_iter().map(|field| (field.name, field.value));
        (Value::Hash(fields.collect()), expiring)
    }
}

const NO_SCORE: Fault = Fault::Damaged("a score is not a number");
const NO_TIME: Fault = Fault::Damaged("the time of a field is not a number");
const NO_PAIR: Fault = Fault::Damaged("a name has no value");

/// Reads a value of a type.
///
/// # Errors
/// It is not one, or needs too much memory.
pub fn value<R: io::Read>(input: &mut Input<R>, kind: u8) -> Read<Value> {
    Ok(match kind {
        types::STRING => Value::Text(input.string()?),
        types::LIST => Value::List(repeat(input, Input::string)?),
        types::SET => Value::Set(repeat(input, Input::string)?),
        types::HASH => Value::Hash(repeat(input, |input| Ok((input.string()?, input.string()?)))?),
        types::ZSET => {
            Value::SortedSet(repeat(input, |input| Ok((input.string()?, decimal(input)?)))?)
        }
        types::ZSET_2 => Value::SortedSet(repeat(input, |input| {
            let member = input.string()?;
            Ok((member, checked(f64::from_le_bytes(input.array()?))?))
        })?),
        types::HASH_ZIPMAP => Value::Hash(pairs(texts(input, packed::zipmap)?)?),
        types::HASH_ZIPLIST => Value::Hash(pairs(texts(input, packed::ziplist)?)?),
        types::HASH_LISTPACK => Value::Hash(pairs(texts(input, packed::listpack)?)?),
        types::HASH_METADATA => hash_with_times(input)?,
        types::HASH_LISTPACK_EX => packed_hash_with_times(input)?,
        types::SET_INTSET => Value::Set(texts(input, packed::intset)?),
        types::SET_LISTPACK => Value::Set(texts(input, packed::listpack)?),
        types::ZSET_ZIPLIST => Value::SortedSet(scored(texts(input, packed::ziplist)?)?),
        types::ZSET_LISTPACK => Value::SortedSet(scored(texts(input, packed::listpack)?)?),
        types::LIST_ZIPLIST => Value::List(texts(input, packed::ziplist)?),
        types::LIST_QUICKLIST => Value::List(joined(input, |input| texts(input, packed::ziplist))?),
        types::LIST_QUICKLIST_2 => Value::List(joined(input, node)?),
        types::STREAM_LISTPACKS | types::STREAM_LISTPACKS_2 | types::STREAM_LISTPACKS_3 => {
            Value::Stream(Box::new(streams::read(input, kind)?))
        }
        kind => return Err(Fault::UnknownType(kind)),
    })
}

/// Reads a number, and so many things. The memory grows with those that are there.
pub fn repeat<R: io::Read, T>(
    input: &mut Input<R>,
    mut read: impl FnMut(&mut Input<R>) -> Read<T>,
) -> Read<Vec<T>> {
    let count = input.length()?;
    let mut things = Vec::new();
    for _ in 0..count {
        things.push(read(input)?);
    }
    Ok(things)
}

/// Reads a packed collection.
fn texts<R: io::Read>(input: &mut Input<R>, parse: Parse) -> Read<Vec<Vec<u8>>> {
    let packed = input.string()?;
    let mut texts = Vec::new();
    parse(&packed, &mut |element| {
        input.take_room(ELEMENT_BYTES)?;
        texts.push(element.bytes());
        Ok(())
    })?;
    Ok(texts)
}

fn joined<R: io::Read>(
    input: &mut Input<R>,
    read: impl FnMut(&mut Input<R>) -> Read<Vec<Vec<u8>>>,
) -> Read<Vec<Vec<u8>>> {
    Ok(repeat(input, read)?.into_iter().flatten().collect())
}

/// Reads a part of a list: one long element, or a listpack.
fn node<R: io::Read>(input: &mut Input<R>) -> Read<Vec<Vec<u8>>> {
    match input.length()? {
        1 => Ok(vec![input.string()?]),
        2 => texts(input, packed::listpack),
        _ => Err(Fault::Damaged("a part of a list has an unknown form")),
    }
}

fn pairs(texts: Vec<Vec<u8>>) -> Read<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut pairs = Vec::with_capacity(texts.len() / 2);
    let mut texts = texts.into_iter();
    while let Some(name) = texts.next() {
        pairs.push((name, texts.next().ok_or(NO_PAIR)?));
    }
    Ok(pairs)
}

fn scored(texts: Vec<Vec<u8>>) -> Read<Vec<(Vec<u8>, f64)>> {
    let scored = |(member, score): (_, Vec<u8>)| Ok((member, parse_float(&score).ok_or(NO_SCORE)?));
    pairs(texts)?.into_iter().map(scored).collect()
}

fn checked(score: f64) -> Read<f64> {
    if score.is_nan() { Err(NO_SCORE) } else { Ok(score) }
}

/// Reads a score in digits.
fn decimal<R: io::Read>(input: &mut Input<R>) -> Read<f64> {
    match input.byte()? {
        253 => Err(NO_SCORE),
        254 => Ok(f64::INFINITY),
        255 => Ok(f64::NEG_INFINITY),
        length => {
            let mut digits = [0; 252];
            for digit in &mut digits[..length.into()] {
                *digit = input.byte()?;
            }
            parse_float(&digits[..length.into()]).ok_or(NO_SCORE)
        }
    }
}

/// Reads a hash whose fields may expire: each has its time after the first one's, plus one.
fn hash_with_times<R: io::Read>(input: &mut Input<R>) -> Read<Value> {
    let first = input.millis()?;
    let field = |input: &mut Input<R>| {
        let after = input.length()?;
        let (name, value) = (input.string()?, input.string()?);
        let expires_at = after.checked_sub(1).map_or(0, |after| first.saturating_add(after));
        Ok(TimedField { name, value, expires_at })
    };
    Ok(Value::TimedHash(repeat(input, field)?))
}

/// Reads a packed hash whose fields may expire: names, values and times in turn.
fn packed_hash_with_times<R: io::Read>(input: &mut Input<R>) -> Read<Value> {
    input.millis()?;
    let texts = texts(input, packed::listpack)?;
    if !texts.len().is_multiple_of(3) {
        return Err(NO_PAIR);
    }
    let field = |field: &[Vec<u8>]| {
        let time = crate::request::parse_integer(&field[2]).ok_or(NO_TIME)?;
        let expires_at = u64::try_from(time).map_err(|_| NO_TIME)?;
        Ok(TimedField { name: field[0].clone(), value: field[1].clone(), expires_at })
    };
    Ok(Value::TimedHash(texts.chunks_exact(3).map(field).collect::<Read<_>>()?))
}
