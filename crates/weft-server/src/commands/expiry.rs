//! Commands on the times at which keys expire.

use crate::call::{Call, Options, integer};
use crate::reply::Reply;
use crate::stop::{Done, texts};

/// How a command gives a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// In so many seconds.
    Seconds,
    /// In so many milliseconds.
    Millis,
    /// So many seconds after the beginning of 1970.
    AtSeconds,
    /// So many milliseconds after the beginning of 1970.
    AtMillis,
}

impl Time {
    /// Takes the option that announces a time.
    pub fn take(options: &mut Options<'_>) -> Option<Self> {
        let words = [
            ("ex", Time::Seconds),
            ("px", Time::Millis),
            ("exat", Time::AtSeconds),
            ("pxat", Time::AtMillis),
        ];
        words.into_iter().find(|(word, _)| options.take(word)).map(|(_, time)| time)
    }

    /// Returns the time in milliseconds since 1970; `None` if that is too great a number.
    fn millis(self, number: i64, now: u64) -> Option<i64> {
        let now = i64::try_from(now).ok()?;
        match self {
            Time::Seconds => number.checked_mul(1000)?.checked_add(now),
            Time::Millis => number.checked_add(now),
            Time::AtSeconds => number.checked_mul(1000),
            Time::AtMillis => Some(number),
        }
    }
}

fn invalid(call: &Call<'_>) -> String {
    let name = String::from_utf8_lossy(call.argument(0)).to_lowercase();
    format!("ERR invalid expire time in '{name}' command")
}

/// Returns the time that an argument gives, for commands that write a value with it.
///
/// # Errors
/// It is not above zero.
pub fn deadline(call: &Call<'_>, time: Time, argument: &[u8]) -> Done<u64> {
    let number = integer(argument)?;
    let at = (number > 0).then(|| time.millis(number, call.now())).flatten();
    let at = at.ok_or_else(|| invalid(call))?;
    Ok(at.unsigned_abs())
}

/// Sets a time, if the options of the command allow it.
fn expire_by(call: &Call<'_>, reply: &mut Reply, time: Time) -> Done {
    let key = call.key(1);
    let now = call.now();
    let at = time.millis(call.integer(2)?, now).ok_or_else(|| invalid(call))?;
    let mut options = call.options(3);
    let (mut if_none, mut if_any, mut if_later, mut if_earlier) = (false, false, false, false);
    while !options.is_empty() {
        if options.take("nx") {
            if_none = true;
        } else if options.take("xx") {
            if_any = true;
        } else if options.take("gt") {
            if_later = true;
        } else if options.take("lt") {
            if_earlier = true;
        } else {
            let option = String::from_utf8_lossy(options.next()?).into_owned();
            return Err(format!("ERR Unsupported option {option}").into());
        }
    }
    if if_none && (if_any || if_later || if_earlier) {
        return Err("ERR NX and XX, GT or LT options at the same time are not compatible".into());
    }
    if if_later && if_earlier {
        return Err("ERR GT and LT options at the same time are not compatible".into());
    }
    let Some(head) = call.head(&key)? else {
        reply.flag(false);
        return Ok(());
    };
    // A key without a time expires later than any other.
    let old = match head.expires_at {
        0 => None,
        old => Some(i64::try_from(old).unwrap_or(i64::MAX)),
    };
    let is_refused = if_none && old.is_some()
        || if_any && old.is_none()
        || if_later && old.is_none_or(|old| at <= old)
        || if_earlier && old.is_some_and(|old| at >= old);
    reply.flag(!is_refused);
    if is_refused {
        return Ok(());
    }
    match u64::try_from(at).ok().filter(|at| *at > now) {
        Some(at) => call.set_expiry(&key, head, at),
        None => call.remove(&key, head),
    }
}

/// `EXPIRE`
pub fn expire(call: &Call<'_>, reply: &mut Reply) -> Done {
    expire_by(call, reply, Time::Seconds)
}

/// `PEXPIRE`
pub fn pexpire(call: &Call<'_>, reply: &mut Reply) -> Done {
    expire_by(call, reply, Time::Millis)
}

/// `EXPIREAT`
pub fn expireat(call: &Call<'_>, reply: &mut Reply) -> Done {
    expire_by(call, reply, Time::AtSeconds)
}

/// `PEXPIREAT`
pub fn pexpireat(call: &Call<'_>, reply: &mut Reply) -> Done {
    expire_by(call, reply, Time::AtMillis)
}

/// `PERSIST`
pub fn persist(call: &Call<'_>, reply: &mut Reply) -> Done {
    let key = call.key(1);
    match call.head(&key)?.filter(|head| head.expires_at != 0) {
        Some(head) => {
            reply.flag(true);
            call.set_expiry(&key, head, 0)
        }
        None => {
            reply.flag(false);
            Ok(())
        }
    }
}

/// Writes what a function makes of the time at which a key expires; -1 if it does not, and -2 if there is no key.
fn show(call: &Call<'_>, reply: &mut Reply, what: impl FnOnce(i64) -> i64) -> Done {
    reply.integer(match call.head(&call.key(1))?.map(|head| head.expires_at) {
        None => -2,
        Some(0) => -1,
        Some(at) => what(i64::try_from(at).map_err(|_| texts::OUT_OF_RANGE)?),
    });
    Ok(())
}

fn left(call: &Call<'_>, at: i64) -> i64 {
    at.saturating_sub_unsigned(call.now()).max(0)
}

/// `TTL`
pub fn ttl(call: &Call<'_>, reply: &mut Reply) -> Done {
    show(call, reply, |at| (left(call, at) + 500) / 1000)
}

/// `PTTL`
pub fn pttl(call: &Call<'_>, reply: &mut Reply) -> Done {
    show(call, reply, |at| left(call, at))
}

/// `EXPIRETIME`
pub fn expiretime(call: &Call<'_>, reply: &mut Reply) -> Done {
    show(call, reply, |at| (at + 500) / 1000)
}

/// `PEXPIRETIME`
pub fn pexpiretime(call: &Call<'_>, reply: &mut Reply) -> Done {
    show(call, reply, |at| at)
}
