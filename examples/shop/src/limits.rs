//! Rate limits: how many requests an account may make in a second.

use std::time::{SystemTime, UNIX_EPOCH};

use weft::{Record, Transaction};

use crate::refused::Refused;
use crate::shop::Tables;

/// How many requests an account may make in a second.
pub const CALLS_MAX: u32 = 20;

/// The requests of an account in one second. The table is not logged, since it need not survive a restart.
#[derive(Clone, Copy, Debug, Record)]
#[record(table = "calls", storage = "hash", volatile)]
pub struct Calls {
    /// The number of the account.
    #[record(key)]
    pub account: u64,
    /// The last second in which the account made a request, since the year 1970.
    pub second: u64,
    /// How many requests there were in that second.
    pub calls: u32,
}

/// Counts a request of an account.
///
/// # Errors
/// [`Refused::TooMany`].
pub fn count(tx: &Transaction<'_>, tables: &Tables, account: u64) -> Result<(), Refused> {
    let second = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let calls = match tx.get(&tables.calls, &account)? {
        Some(last) if last.second == second => last.calls + 1,
        _ => 1,
    };
    if calls > CALLS_MAX {
        return Err(Refused::TooMany);
    }
    tx.upsert(&tables.calls, Calls { account, second, calls })?;
    Ok(())
}
