//! Commands on the bits of strings.

use std::borrow::Cow;

use super::strings::{is_reversed, part_of_text, rewrite};
use crate::call::{Call, Options};
use crate::reply::Reply;
use crate::request::parse_integer;
use crate::stop::{Done, texts};
use crate::store::{TEXT_BYTES_MAX, Value};
use crate::tables::{Head, Kind};

const NOT_AN_OFFSET: &str = "ERR bit offset is not an integer or out of range";
const NOT_A_BIT: &str = "ERR bit is not an integer or out of range";
const NOT_A_FIELD: &str = "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but \
                           i64 is.";

/// Returns the offset of a bit.
fn offset(argument: &[u8]) -> Done<usize> {
    let offset = parse_integer(argument).and_then(|offset| usize::try_from(offset).ok());
    Ok(offset.filter(|offset| offset / 8 < TEXT_BYTES_MAX).ok_or(NOT_AN_OFFSET)?)
}

fn bit(bytes: &[u8], offset: usize) -> bool {
    bytes.get(offset / 8).is_some_and(|byte| byte >> (7 - offset % 8) & 1 == 1)
}

fn set_bit(bytes: &mut [u8], offset: usize, value: bool) {
    let mask = 1 << (7 - offset % 8);
    match value {
        true => bytes[offset / 8] |= mask,
        false => bytes[offset / 8] &= !mask,
    }
}

fn bytes_of_key<'c>(call: &Call<'c>, position: usize) -> Done<Option<Cow<'c, [u8]>>> {
    Ok(call.expect(&call.key(position), Kind::Text)?.map(Head::bytes))
}

/// `GETBIT`
pub fn getbit(call: &Call<'_>, reply: &mut Reply) -> Done {
    let offset = offset(call.argument(2))?;
    let bytes = bytes_of_key(call, 1)?;
    reply.flag(bytes.is_some_and(|bytes| bit(&bytes, offset)));
    Ok(())
}

/// `SETBIT`
pub fn setbit(call: &Call<'_>, reply: &mut Reply) -> Done {
    let key = call.key(1);
    let offset = offset(call.argument(2))?;
    let value = match call.argument(3) {
        b"0" => false,
        b"1" => true,
        _ => return Err(NOT_A_BIT.into()),
    };
    let head = call.expect(&key, Kind::Text)?;
    let mut bytes = head.map_or(Vec::new(), |head| head.bytes().into_owned());
    let length = bytes.len();
    bytes.resize(length.max(offset / 8 + 1), 0);
    let old = bit(&bytes, offset);
    reply.flag(old);
    if old == value && bytes.len() == length {
        return Ok(());
    }
    set_bit(&mut bytes, offset, value);
    rewrite(call, &key, head, &bytes)
}

/// Takes the unit of a range. Returns whether it is the bit.
fn unit(options: &mut Options<'_>) -> Done<bool> {
    if options.is_empty() || options.take("byte") {
        Ok(false)
    } else if options.take("bit") {
        Ok(true)
    } else {
        Err(texts::SYNTAX.into())
    }
}

/// `BITCOUNT`
pub fn bitcount(call: &Call<'_>, reply: &mut Reply) -> Done {
    let mut options = call.options(2);
    let range = match options.len() {
        0 => None,
        1 => return Err(texts::SYNTAX.into()),
        _ => Some((options.integer()?, options.integer()?, unit(&mut options)?)),
    };
    if !options.is_empty() {
        return Err(texts::SYNTAX.into());
    }
    let bytes = bytes_of_key(call, 1)?.unwrap_or_default();
    let (start, end, by_bits) = range.unwrap_or((0, -1, false));
    let length = if by_bits { bytes.len() * 8 } else { bytes.len() };
    let count = match part_of_text(start, end, length) {
        _ if is_reversed(start, end) => 0,
        None => 0,
        Some((start, end)) if by_bits => (start..=end).filter(|at| bit(&bytes, *at)).count(),
        Some((start, end)) => {
            bytes[start..=end].iter().map(|byte| byte.count_ones() as usize).sum()
        }
    };
    reply.count(count);
    Ok(())
}

/// `BITPOS`
pub fn bitpos(call: &Call<'_>, reply: &mut Reply) -> Done {
    let wanted = match call.integer(2)? {
        0 => false,
        1 => true,
        _ => return Err("ERR The bit argument must be 1 or 0.".into()),
    };
    let mut options = call.options(3);
    let start = if options.is_empty() { 0 } else { options.integer()? };
    let has_end = !options.is_empty();
    let end = if has_end { options.integer()? } else { -1 };
    let by_bits = unit(&mut options)?;
    if !options.is_empty() {
        return Err(texts::SYNTAX.into());
    }
    let Some(bytes) = bytes_of_key(call, 1)? else {
        reply.integer(if wanted { -1 } else { 0 });
        return Ok(());
    };
    let length = if by_bits { bytes.len() * 8 } else { bytes.len() };
    let Some((start, end)) = part_of_text(start, end, length) else {
        reply.integer(-1);
        return Ok(());
    };
    let mut bits = if by_bits { start..end + 1 } else { start * 8..(end + 1) * 8 };
    match bits.find(|at| bit(&bytes, *at) == wanted) {
        Some(found) => reply.count(found),
        // Behind a string are zeros, unless the caller has said where to stop.
        None if !wanted && !has_end => reply.count(bytes.len() * 8),
        None => reply.integer(-1),
    }
    Ok(())
}

/// `BITOP`
pub fn bitop(call: &Call<'_>, reply: &mut Reply) -> Done {
    let operation: fn(u8, u8) -> u8 = match call.argument(1).to_ascii_lowercase().as_slice() {
        b"and" => |left, right| left & right,
        b"or" => |left, right| left | right,
        b"xor" | b"not" => |left, right| left ^ right,
        _ => return Err(texts::SYNTAX.into()),
    };
    let inverts = call.is(1, "not");
    if inverts && call.len() != 4 {
        return Err("ERR BITOP NOT must be called with a single source key.".into());
    }
    let mut sources = Vec::new();
    for position in 3..call.len() {
        sources.push(bytes_of_key(call, position)?.unwrap_or_default());
    }
    let length = sources.iter().map(|source| source.len()).max().unwrap_or(0);
    let result: Vec<u8> = (0..length)
        .map(|at| {
            let mut bytes = sources.iter().map(|source| source.get(at).copied().unwrap_or(0));
            let first = bytes.next().unwrap_or(0);
            let combined = bytes.fold(first, operation);
            if inverts { !combined } else { combined }
        })
        .collect();
    reply.count(length);
    let destination = call.key(2);
    match result.is_empty() {
        true => call.remove_if_there(&destination).map(|_| ()),
        false => call.write_text(&destination, Value::new(&result), 0),
    }
}

/// An integer within a string: its width in bits, and whether it can be below zero.
#[derive(Clone, Copy)]
struct FieldType {
    bits: usize,
    is_signed: bool,
}

/// What happens to a number that does not fit.
#[derive(Clone, Copy)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

impl FieldType {
    fn parse(argument: &[u8]) -> Done<Self> {
        let (is_signed, digits) = match argument {
            [b'i', digits @ ..] => (true, digits),
            [b'u', digits @ ..] => (false, digits),
            _ => return Err(NOT_A_FIELD.into()),
        };
        let bits = parse_integer(digits).and_then(|bits| usize::try_from(bits).ok());
        let bits_max = if is_signed { 64 } else { 63 };
        let bits = bits.filter(|bits| (1..=bits_max).contains(bits)).ok_or(NOT_A_FIELD)?;
        Ok(FieldType { bits, is_signed })
    }

    /// Returns the offset in bits. With `#` in front it counts fields of this width.
    fn offset(self, argument: &[u8]) -> Done<usize> {
        let (factor, digits) = match argument {
            [b'#', digits @ ..] => (self.bits, digits),
            digits => (1, digits),
        };
        let number = parse_integer(digits).and_then(|offset| usize::try_from(offset).ok());
        let offset = number.and_then(|number| number.checked_mul(factor));
        let fits = |offset: &usize| offset.saturating_add(self.bits) / 8 < TEXT_BYTES_MAX;
        Ok(offset.filter(fits).ok_or(NOT_AN_OFFSET)?)
    }

    fn read(self, bytes: &[u8], offset: usize) -> i64 {
        let bits = (offset..offset + self.bits).map(|at| u64::from(bit(bytes, at)));
        let number = bits.fold(0_u64, |number, bit| number << 1 | bit);
        self.wrap(i128::from(number))
    }

    fn write(self, bytes: &mut Vec<u8>, offset: usize, number: i64) {
        bytes.resize(bytes.len().max((offset + self.bits).div_ceil(8)), 0);
        for place in 0..self.bits {
            let value = number >> (self.bits - 1 - place) & 1 == 1;
            set_bit(bytes, offset + place, value);
        }
    }

    fn bounds(self) -> (i128, i128) {
        match self.is_signed {
            true => (-(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1),
            false => (0, (1 << self.bits) - 1),
        }
    }

    fn wrap(self, number: i128) -> i64 {
        let low = number & ((1 << self.bits) - 1);
        let (_, max) = self.bounds();
        let wrapped = if low > max { low - (1 << self.bits) } else { low };
        i64::try_from(wrapped).expect("a field has at most 64 bits")
    }

    /// Returns the number as it is stored, or `None` if it does not fit and that is a failure.
    fn fit(self, number: i128, overflow: Overflow) -> Option<i64> {
        let (min, max) = self.bounds();
        match overflow {
            _ if (min..=max).contains(&number) => Some(self.wrap(number)),
            Overflow::Wrap => Some(self.wrap(number)),
            Overflow::Saturate => Some(self.wrap(number.clamp(min, max))),
            Overflow::Fail => None,
        }
    }
}

fn run_fields(call: &Call<'_>, reply: &mut Reply, may_write: bool) -> Done {
    let key = call.key(1);
    let head = call.expect(&key, Kind::Text)?;
    let mut bytes = head.map_or(Vec::new(), |head| head.bytes().into_owned());
    let mut overflow = Overflow::Wrap;
    let mut results = Vec::new();
    let mut is_written = false;
    let mut options = call.options(2);
    while !options.is_empty() {
        if options.take("overflow") {
            overflow = match options.next()?.to_ascii_lowercase().as_slice() {
                b"wrap" => Overflow::Wrap,
                b"sat" => Overflow::Saturate,
                b"fail" => Overflow::Fail,
                _ => return Err("ERR Invalid OVERFLOW type specified".into()),
            };
            continue;
        }
        let (is_get, is_set) = (options.take("get"), options.take("set"));
        if !is_get && !is_set && !options.take("incrby") {
            return Err(texts::SYNTAX.into());
        }
        let field = FieldType::parse(options.next()?)?;
        let offset = field.offset(options.next()?)?;
        let old = field.read(&bytes, offset);
        if is_get {
            results.push(Some(old));
            continue;
        }
        if !may_write {
            return Err("ERR BITFIELD_RO only supports the GET subcommand".into());
        }
        let number = options.integer()?;
        let new = match is_set {
            true if field.is_signed => i128::from(number),
            // As in Redis, a number below zero is a great one.
            true => i128::from(number.cast_unsigned()),
            false => i128::from(old) + i128::from(number),
        };
        let fitting = field.fit(new, overflow);
        if let Some(new) = fitting {
            field.write(&mut bytes, offset, new);
            is_written = true;
        }
        results.push(fitting.map(|new| if is_set { old } else { new }));
    }
    reply.array(results.len());
    for result in results {
        match result {
            Some(number) => reply.integer(number),
            None => reply.null(),
        }
    }
    if is_written { rewrite(call, &key, head, &bytes) } else { Ok(()) }
}

/// `BITFIELD`
pub fn bitfield(call: &Call<'_>, reply: &mut Reply) -> Done {
    run_fields(call, reply, true)
}

/// `BITFIELD_RO`
pub fn bitfield_ro(call: &Call<'_>, reply: &mut Reply) -> Done {
    run_fields(call, reply, false)
}
