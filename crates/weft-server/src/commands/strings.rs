//! Commands on strings.

use std::borrow::Cow;

use super::expiry::{Time, deadline};
use crate::call::{Call, parse_float};
use crate::reply::Reply;
use crate::request::parse_integer;
use crate::stop::{Done, texts};
use crate::store::{Key, TEXT_BYTES_MAX, Value, check_length};
use crate::tables::{Head, Kind};

/// Writes the value of a string.
fn write_value(reply: &mut Reply, head: &Head) {
    match &head.text {
        Some(text) => reply.text(text),
        None => reply.digits(head.number),
    }
}

fn write_optional(reply: &mut Reply, head: Option<&Head>) {
    match head {
        Some(head) => write_value(reply, head),
        None => reply.null(),
    }
}

/// `GET`
pub fn get(call: &Call<'_>, reply: &mut Reply) -> Done {
    write_optional(reply, call.expect(&call.key(1), Kind::Text)?);
    Ok(())
}

/// When `SET` and its relatives write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Always,
    IfThere,
    IfAbsent,
}

/// `SET`
pub fn set(call: &Call<'_>, reply: &mut Reply) -> Done {
    let key = call.key(1);
    if call.len() == 3 {
        call.write_text(&key, Value::new(call.argument(2)), 0)?;
        reply.ok();
        return Ok(());
    }
    let mut options = call.options(3);
    let mut condition = Condition::Always;
    let (mut returns_old, mut keeps_expiry, mut expires_at) = (false, false, None);
    while !options.is_empty() {
        if options.take("nx") && condition != Condition::IfThere {
            condition = Condition::IfAbsent;
        } else if options.take("xx") && condition != Condition::IfAbsent {
            condition = Condition::IfThere;
        } else if options.take("get") {
            returns_old = true;
        } else if options.take("keepttl") && expires_at.is_none() {
            keeps_expiry = true;
        } else if let Some(time) = Time::take(&mut options)
            && expires_at.is_none()
            && !keeps_expiry
        {
            expires_at = Some(deadline(call, time, options.next()?)?);
        } else {
            return Err(texts::SYNTAX.into());
        }
    }
    let old = match returns_old {
        true => call.expect(&key, Kind::Text)?,
        false if condition == Condition::Always && !keeps_expiry => None,
        false => call.head(&key)?,
    };
    let writes = match condition {
        Condition::Always => true,
        Condition::IfThere => old.is_some(),
        Condition::IfAbsent => old.is_none(),
    };
    if returns_old {
        write_optional(reply, old);
    } else if writes {
        reply.ok();
    } else {
        reply.null();
    }
    if writes {
        let kept = old.filter(|_| keeps_expiry).map_or(0, |head| head.expires_at);
        call.write_text(&key, Value::new(call.argument(2)), expires_at.unwrap_or(kept))?;
    }
    Ok(())
}

/// `SETNX`
pub fn setnx(call: &Call<'_>, reply: &mut Reply) -> Done {
    let key = call.key(1);
    let is_absent = call.head(&key)?.is_none();
    if is_absent {
        call.write_text(&key, Value::new(call.argument(2)), 0)?;
    }
    reply.flag(is_absent);
    Ok(())
}

fn set_for(call: &Call<'_>, reply: &mut Reply, time: Time) -> Done {
    let expires_at = deadline(call, time, call.argument(2))?;
    call.write_text(&call.key(1), Value::new(call.argument(3)), expires_at)?;
    reply.ok();
    Ok(())
}

/// `SETEX`
pub fn setex(call: &Call<'_>, reply: &mut Reply) -> Done {
    set_for(call, reply, Time::Seconds)
}

/// `PSETEX`
pub fn psetex(call: &Call<'_>, reply: &mut Reply) -> Done {
    set_for(call, reply, Time::Millis)
}

/// `GETSET`
pub fn getset(call: &Call<'_>, reply: &mut Reply) -> Done {
    let key = call.key(1);
    write_optional(reply, call.expect(&key, Kind::Text)?);
    call.write_text(&key, Value::new(call.argument(2)), 0)
}

/// `GETDEL`
pub fn getdel(call: &Call<'_>, reply: &mut Reply) -> Done {
    let key = call.key(1);
    let old = call.expect(&key, Kind::Text)?;
    write_optional(reply, old);
    old.map_or(Ok(()), |head| call.remove(&key, head))
}

/// `GETEX`
pub fn getex(call: &Call<'_>, reply: &mut Reply) -> Done {
    let key = call.key(1);
    let mut options = call.options(2);
    let new = match options.is_empty() {
        true => None,
        false if options.take("persist") => Some(0),
        false => {
            let time = Time::take(&mut options).ok_or(texts::SYNTAX)?;
            Some(deadline(call, time, options.next()?)?)
        }
    };
    if !options.is_empty() {
        return Err(texts::SYNTAX.into());
    }
    let head = call.expect(&key, Kind::Text)?;
    write_optional(reply, head);
    match (head, new) {
        (Some(head), Some(expires_at)) if head.expires_at != expires_at => {
            call.set_expiry(&key, head, expires_at)
        }
        _ => Ok(()),
    }
}

/// `MGET`
pub fn mget(call: &Call<'_>, reply: &mut Reply) -> Done {
    let keys = call.rest(1);
    reply.array(keys.len());
    for key in keys {
        let head = call.head(&call.key_of(key))?;
        write_optional(reply, head.filter(|head| head.kind == Kind::Text));
    }
    Ok(())
}

fn set_pairs(call: &Call<'_>) -> Done {
    for pair in call.rest(1).chunks_exact(2) {
        call.write_text(&call.key_of(pair[0]), Value::new(pair[1]), 0)?;
    }
    Ok(())
}

fn check_pairs(call: &Call<'_>, name: &str) -> Done {
    match call.len() % 2 {
        1 => Ok(()),
        _ => Err(format!("ERR wrong number of arguments for '{name}' command").into()),
    }
}

/// `MSET`
pub fn mset(call: &Call<'_>, reply: &mut Reply) -> Done {
    check_pairs(call, "mset")?;
    set_pairs(call)?;
    reply.ok();
    Ok(())
}

/// `MSETNX`
pub fn msetnx(call: &Call<'_>, reply: &mut Reply) -> Done {
    check_pairs(call, "msetnx")?;
    for pair in call.rest(1).chunks_exact(2) {
        if call.head(&call.key_of(pair[0]))?.is_some() {
            reply.flag(false);
            return Ok(());
        }
    }
    set_pairs(call)?;
    reply.flag(true);
    Ok(())
}

/// Adds to a number. If the client does not see the reply, the addition commutes with others.
fn add(call: &Call<'_>, reply: &mut Reply, by: i64) -> Done {
    if !call.caller.wants_reply {
        return add_unseen(call, by);
    }
    let sum = match call.add_in_place(&call.key(1), by)? {
        Some(sum) => sum,
        None => add_by_writing(call, by)?,
    };
    reply.integer(sum);
    Ok(())
}

/// Adds to a number without a look at the sum.
fn add_unseen(call: &Call<'_>, by: i64) -> Done {
    match call.add_unseen(&call.key(1), by)? {
        true => Ok(()),
        false => add_by_writing(call, by).map(drop),
    }
}

/// Writes the sum to a key that does not exist, has expired, or is a number in another form. Returns it.
fn add_by_writing(call: &Call<'_>, by: i64) -> Done<i64> {
    let key = call.key(1);
    let head = call.expect(&key, Kind::Text)?;
    let number = match head {
        Some(head) => parse_integer(&head.bytes()).ok_or(texts::NOT_AN_INTEGER)?,
        None => 0,
    };
    let sum = number.checked_add(by).ok_or(texts::OVERFLOW)?;
    call.write_text(&key, Value::number(sum), head.map_or(0, |head| head.expires_at))?;
    Ok(sum)
}

/// `WEFT.INCRBY`: as `INCRBY`, without the sum. So additions commute.
pub fn weft_incrby(call: &Call<'_>, reply: &mut Reply) -> Done {
    add_unseen(call, call.integer(2)?)?;
    reply.ok();
    Ok(())
}

/// `INCR`
pub fn incr(call: &Call<'_>, reply: &mut Reply) -> Done {
    add(call, reply, 1)
}

/// `DECR`
pub fn decr(call: &Call<'_>, reply: &mut Reply) -> Done {
    add(call, reply, -1)
}

/// `INCRBY`
pub fn incrby(call: &Call<'_>, reply: &mut Reply) -> Done {
    add(call, reply, call.integer(2)?)
}

/// `DECRBY`
pub fn decrby(call: &Call<'_>, reply: &mut Reply) -> Done {
    let by = call.integer(2)?.checked_neg().ok_or("ERR decrement would overflow")?;
    add(call, reply, by)
}

/// Returns the sum of a value and a number with a fraction, as the text that is stored.
pub fn add_float(value: Option<&[u8]>, by: f64) -> Done<String> {
    let number = match value {
        Some(bytes) => parse_float(bytes).ok_or(texts::NOT_A_FLOAT)?,
        None => 0.0,
    };
    let sum = number + by;
    if !sum.is_finite() {
        return Err("ERR increment would produce NaN or Infinity".into());
    }
    Ok(format!("{}", sum + 0.0))
}

/// `INCRBYFLOAT`
pub fn incrbyfloat(call: &Call<'_>, reply: &mut Reply) -> Done {
    let key = call.key(1);
    let by = parse_float(call.argument(2)).ok_or(texts::NOT_A_FLOAT)?;
    let head = call.expect(&key, Kind::Text)?;
    let sum = add_float(head.map(Head::bytes).as_deref(), by)?;
    let value = Value::new(sum.as_bytes());
    call.write_text(&key, value, head.map_or(0, |head| head.expires_at))?;
    reply.text(sum);
    Ok(())
}

/// Writes what a command has made of a string, which keeps its time of expiry.
pub fn rewrite(call: &Call<'_>, key: &Key<'_>, head: Option<&Head>, bytes: &[u8]) -> Done {
    check_length(bytes.len())?;
    call.write_text(key, Value::new(bytes), head.map_or(0, |head| head.expires_at))
}

/// `APPEND`
pub fn append(call: &Call<'_>, reply: &mut Reply) -> Done {
    let key = call.key(1);
    let head = call.expect(&key, Kind::Text)?;
    let mut bytes = head.map_or(Vec::new(), |head| head.bytes().into_owned());
    bytes.extend_from_slice(call.argument(2));
    reply.count(bytes.len());
    rewrite(call, &key, head, &bytes)
}

/// `STRLEN`
pub fn strlen(call: &Call<'_>, reply: &mut Reply) -> Done {
    let head = call.expect(&call.key(1), Kind::Text)?;
    reply.count(head.map_or(0, |head| head.bytes().len()));
    Ok(())
}

/// Returns the part of `length` elements from `start` to `end`, both counted from the end if they are below zero.
/// `None` if there is nothing in it.
pub fn part(start: i64, end: i64, length: usize) -> Option<(usize, usize)> {
    let length = i64::try_from(length).ok()?;
    let place = |position: i64| if position < 0 { position + length } else { position };
    let (start, end) = (place(start).max(0), place(end).min(length - 1));
    let found = start <= end && start < length;
    let start = usize::try_from(start).ok().filter(|_| found)?;
    Some((start, usize::try_from(end).ok()?))
}

/// As [`part`], for the bytes or bits of a string. As in Redis, an end before the first element means the first element.
pub fn part_of_text(start: i64, end: i64, length: usize) -> Option<(usize, usize)> {
    let signed = i64::try_from(length).ok()?;
    let place = |position: i64| if position < 0 { (position + signed).max(0) } else { position };
    part(place(start), place(end), length)
}

/// Returns whether a range is empty in any string, because its end comes before its start when both are counted from the end.
pub fn is_reversed(start: i64, end: i64) -> bool {
    start < 0 && end < start
}

/// `GETRANGE`, `SUBSTR`
pub fn getrange(call: &Call<'_>, reply: &mut Reply) -> Done {
    let (start, end) = (call.integer(2)?, call.integer(3)?);
    let head = call.expect(&call.key(1), Kind::Text)?;
    let bytes = head.map_or(Cow::Borrowed(&b""[..]), Head::bytes);
    match part_of_text(start, end, bytes.len()) {
        _ if is_reversed(start, end) => reply.text(b""),
        None => reply.text(b""),
        Some((start, end)) => reply.text(&bytes[start..=end]),
    }
    Ok(())
}

/// `SETRANGE`
pub fn setrange(call: &Call<'_>, reply: &mut Reply) -> Done {
    let key = call.key(1);
    let offset = call.integer(2)?;
    let offset = usize::try_from(offset).map_err(|_| "ERR offset is out of range")?;
    let new = call.argument(3);
    let head = call.expect(&key, Kind::Text)?;
    if new.is_empty() {
        reply.count(head.map_or(0, |head| head.bytes().len()));
        return Ok(());
    }
    let end = offset.checked_add(new.len()).filter(|end| *end <= TEXT_BYTES_MAX);
    let end = end.ok_or(texts::TOO_LONG)?;
    let mut bytes = head.map_or(Vec::new(), |head| head.bytes().into_owned());
    bytes.resize(bytes.len().max(end), 0);
    bytes[offset..end].copy_from_slice(new);
    reply.count(bytes.len());
    rewrite(call, &key, head, &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_counted_from_either_end() {
        for ((start, end, length), expected) in [
            ((0, -1, 5), Some((0, 4))),
            ((-3, -1, 5), Some((2, 4))),
            ((-100, 100, 5), Some((0, 4))),
            ((3, 1, 5), None),
            ((5, 9, 5), None),
            ((0, -1, 0), None),
            ((0, -10, 5), None),
        ] {
            assert_eq!(part(start, end, length), expected, "{start} {end} {length}");
        }
    }

    #[test]
    fn ends_before_a_string_are_its_first_byte() {
        for ((start, end, length), expected) in [
            ((0, -10, 5), Some((0, 0))),
            ((-10, -10, 5), Some((0, 0))),
            ((3, -10, 5), None),
            ((-3, -1, 5), Some((2, 4))),
            ((0, -10, 0), None),
            ((i64::MIN, i64::MIN, 5), Some((0, 0))),
            ((i64::MIN, i64::MAX, 5), Some((0, 4))),
        ] {
            assert_eq!(part_of_text(start, end, length), expected, "{start} {end} {length}");
        }
        assert!(is_reversed(-1, -2) && !is_reversed(-2, -1) && !is_reversed(1, -1));
    }
}
