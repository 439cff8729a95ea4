//! The time of procedures in pieces.

use std::thread::scope;
use std::time::Duration;

use weft::protocol::Protocol;
use weft::{
    Database, Error, Failure, ManualClock, Table, Timestamp, Transaction, TransactionOptions,
};
use weft_procedures::{Execute, Procedure, procedure};
use weft_protocols::{BuilderExt, ChoppedDatabase, DbxTc, DbxTcOptions};

use super::{Account, Bank, Meanwhile, NOTHING, Slip, open_by};

/// Changes an account, and inserts a slip. These are two pieces. Returns the time in each of them.
#[procedure(Stamp)]
fn stamp<P: Protocol>(
    accounts: &Table<Account>,
    slips: &Table<Slip>,
    tx: &Transaction<'_, P>,
    id: u32,
    meanwhile: Meanwhile<'_>,
) -> Result<[Timestamp; 2], Error> {
    let cents = tx.get(accounts, &id)?.map_or(0, |account| account.cents);
    tx.update(accounts, &id, |account| account.cents = cents + 1)?;
    let before = tx.now();
    meanwhile(1);
    let number = u64::from(id);
    tx.insert(slips, Slip { number, account: id, owner: String::new() })?;
    meanwhile(2);
    Ok([before, tx.now()])
}

fn execute(bank: &Bank, id: u32, meanwhile: Meanwhile<'_>) -> Result<[Timestamp; 2], Error> {
    let options = TransactionOptions::new().retries_max(2);
    let mut stamp = Stamp::new(&bank.accounts, &bank.slips, id, meanwhile);
    bank.database.execute_with(&options, &mut stamp)
}

fn open(clock: &ManualClock) -> Bank {
    let known = DbxTcOptions::new().procedures([Stamp::<DbxTc>::shape()]).finest(true);
    let bank = open_by(Database::builder().protocol::<DbxTc>().clock(clock).dbx_tc(known));
    assert_eq!(bank.database.chopping().procedures[0].pieces.len(), 2);
    bank
}

/// A procedure with a later time does not commit while another one is between two pieces. It would come before the other
/// one's last piece, and after its first.
#[test]
fn procedure_with_a_later_time_waits_for_one_in_pieces() {
    let clock = ManualClock::new(Timestamp::from_millis(1_000));
    let bank = open(&clock);
    let later = |point| {
        // The first piece is committed when the second one's operation has run.
        if point == 2 {
            clock.advance(Duration::from_millis(1));
            let elsewhere = || execute(&bank, 2, NOTHING);
            let later = scope(|scope| scope.spawn(elsewhere).join().expect("does not panic"));
            let failed = matches!(later, Err(Error::Failure(Failure::RetriesExhausted { .. })));
            assert!(failed, "{later:?}");
        }
    };
    let first = execute(&bank, 1, &later).expect("commits");
    assert_eq!(first, [Timestamp::from_millis(1_000); 2]);
    assert_eq!(execute(&bank, 2, NOTHING).expect("commits"), [Timestamp::from_millis(1_001); 2]);
    assert_eq!(bank.database.metrics().committed_in_pieces, 2);
}
