//! `FUNCTION DUMP` and `FUNCTION RESTORE`, in the format of Redis.
//!
//! ```text
//!   for each library: 0xf5, its code as a string       2 bytes: version       8 bytes: CRC-64 of all before it
//! ```
//!
//! See [`rdb`](crate::rdb).

use std::io::Read as _;

use super::dump::WRONG_SUM;
use crate::call::{Call, is};
use crate::rdb::write::Writer;
use crate::rdb::{Input, unseal};
use crate::reply::Reply;
use crate::scripts::libraries;
use crate::stop::Done;

const LIBRARY: u8 = 0xf5;
/// The most memory that the code of all libraries may need.
const CODE_BYTES_MAX: usize = 64 << 20;

const WRONG_DATA: &str = "ERR failed loading functions: Failed loading library data";

/// `FUNCTION DUMP`
pub fn dump(call: &Call<'_>, reply: &mut Reply) -> Done {
    let mut writer = Writer::default();
    for library in libraries::all(call)? {
        writer.bytes(&[LIBRARY]);
        writer.string(&library.code);
    }
    reply.text(writer.end());
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
    let body = unseal(payload).ok_or(WRONG_SUM)?;
    if flushes {
        libraries::flush(call)?;
    }
    let mut input = Input::new(body, CODE_BYTES_MAX);
    let mut kind = [0];
    while input.source().read_exact(&mut kind).is_ok() {
        if kind != [LIBRARY] {
            return Err("ERR given type is not a function".into());
        }
        let code = input.string().map_err(|_| WRONG_DATA)?;
        libraries::load(call, &code, replaces)?;
    }
    Ok(())
}
