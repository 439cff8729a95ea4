//! `FUNCTION DUMP` and `FUNCTION RESTORE`, in the format of Redis.
//!
//! ```text
//!   for each library: 0xf5, its code as a string       2 bytes: version       8 bytes: CRC-64 of all before it
//! ```
//!
//! A string is a length and bytes. Redis compresses strings by LZF. What is written here is not compressed, which Redis
//! reads as well.

use crate::call::{Call, is};
use crate::reply::Reply;
use crate::scripts::libraries;
use crate::stop::Done;

const LIBRARY: u8 = 0xf5;
/// The version of the format that Redis 7.0 writes.
const VERSION: u16 = 10;
/// The last version whose strings and libraries are known to be the same.
const VERSION_MAX: u16 = 13;
const FOOTER_BYTES: usize = 10;
/// The longest code that a compressed string may announce.
const CODE_BYTES_MAX: usize = 64 << 20;

const WRONG_SUM: &str = "ERR DUMP payload version or checksum are wrong";
const WRONG_DATA: &str = "ERR failed loading functions: Failed loading library data";

/// Returns the checksum of Redis's files: the CRC-64 of Jones, with the lowest bit first.
fn checksum(bytes: &[u8]) -> u64 {
    const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;
    bytes.iter().fold(0, |sum, byte| {
        (0..8).fold(sum ^ u64::from(*byte), |sum, _| (sum >> 1) ^ (POLYNOMIAL * (sum & 1)))
    })
}

/// `FUNCTION DUMP`
pub fn dump(call: &Call<'_>, reply: &mut Reply) -> Done {
    let mut payload = Vec::new();
    for library in libraries::all(call)? {
        payload.push(LIBRARY);
        // The longest form of a length.
        payload.push(0x81);
        payload.extend((library.code.len() as u64).to_be_bytes());
        payload.extend_from_slice(&library.code);
    }
    payload.extend(VERSION.to_le_bytes());
    payload.extend(checksum(&payload).to_le_bytes());
    reply.text(payload);
    Ok(())
}

/// `FUNCTION RESTORE`
pub fn restore(call: &Call<'_>, payload: &[u8], policy: Option<&[u8]>) -> Done {
    let (flushes, replaces) = match policy {
        None => (false, false),
        Some(policy) if is(policy, "append") => (false, false),
        Some(policy) if is(policy, "replace") => (false, true),
        Some(policy) if is(policy, "flush") => (true, false),
        Some(_) => {
            return Err(
                "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE."
                    .into(),
            );
        }
    };
    let (body, footer) = payload.split_last_chunk::<FOOTER_BYTES>().ok_or(WRONG_SUM)?;
    let version = u16::from_le_bytes([footer[0], footer[1]]);
    let summed = &payload[..payload.len() - 8];
    if version > VERSION_MAX || checksum(summed).to_le_bytes() != footer[2..] {
        return Err(WRONG_SUM.into());
    }
    if flushes {
        libraries::flush(call)?;
    }
    let mut rest = body;
    while let Some((kind, after)) = rest.split_first() {
        if *kind != LIBRARY {
            return Err("ERR given type is not a function".into());
        }
        rest = after;
        let code = take_string(&mut rest).ok_or(WRONG_DATA)?;
        libraries::load(call, &code, replaces)?;
    }
    Ok(())
}

fn take<'b>(rest: &mut &'b [u8], length: usize) -> Option<&'b [u8]> {
    let (taken, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(taken)
}

/// Takes a length whose first byte is given.
fn take_length(rest: &mut &[u8], first: u8) -> Option<usize> {
    match first {
        0..0x40 => Some(usize::from(first)),
        0x40..0x80 => Some(usize::from(first & 0x3f) << 8 | usize::from(take(rest, 1)?[0])),
        0x80 => Some(u32::from_be_bytes(take(rest, 4)?.try_into().ok()?) as usize),
        0x81 => usize::try_from(u64::from_be_bytes(take(rest, 8)?.try_into().ok()?)).ok(),
        _ => None,
    }
}

fn take_string(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let first = take(rest, 1)?[0];
    if first != 0xc3 {
        let length = take_length(rest, first)?;
        return take(rest, length).map(<[u8]>::to_vec);
    }
    let mut length = || {
        let first = take(rest, 1)?[0];
        take_length(rest, first)
    };
    let (compressed, whole) = (length()?, length()?);
    decompress(take(rest, compressed)?, whole)
}

/// Decompresses LZF: runs of bytes, and copies of what came before. Returns `None` if that is not what it is.
fn decompress(mut rest: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut whole: Vec<u8> = Vec::new();
    while let Some((control, after)) = rest.split_first() {
        rest = after;
        let (high, low) = (usize::from(control >> 5), usize::from(control & 0x1f));
        if high == 0 {
            whole.extend(take(&mut rest, low + 1)?);
        } else {
            let more = if high == 7 { usize::from(take(&mut rest, 1)?[0]) } else { 0 };
            let back = (low << 8) + usize::from(take(&mut rest, 1)?[0]) + 1;
            let start = whole.len().checked_sub(back)?;
            // The copy may reach into itself.
            for at in start..start + high + more + 2 {
                whole.push(whole[at]);
            }
        }
        if whole.len() > length.min(CODE_BYTES_MAX) {
            return None;
        }
    }
    (whole.len() == length).then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_redis() {
        assert_eq!(checksum(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    }

    #[test]
    fn wrong_strings_are_refused() {
        assert_eq!(take_string(&mut &b"\x02ab"[..]).as_deref(), Some(&b"ab"[..]));
        // A copy that reaches into itself.
        let repeated = b"\xc3\x05\x06\x00a\x60\x00";
        assert_eq!(take_string(&mut &repeated[..]), None);
        let repeated = b"\xc3\x04\x06\x00a\x60\x00";
        assert_eq!(take_string(&mut &repeated[..]).as_deref(), Some(&b"aaaaaa"[..]));
        for wrong in [
            &b""[..],
            b"\x03ab",
            b"\xc0\x01",
            b"\xc3\x03\x06\x20\x00",
            b"\x81\xff\xff\xff\xff\xff\xff\xff\xff",
        ] {
            assert_eq!(take_string(&mut &wrong[..]), None, "{}", wrong.escape_ascii());
        }
    }
}
