//! Tests of procedures in pieces beside non-procedure transactions ("outsiders"), and of procedures that are
//! admitted later.

use std::cell::Cell;
use std::sync::{Arc, mpsc};
use std::thread::{self, ScopedJoinHandle, scope};
use std::time::Duration;

use weft::durability::SimulatedDisk;
use weft::protocol::Protocol;
use weft::{Database, DurabilityOptions, Error, Failure, Table, Transaction};
use weft_procedures::chopping::{NotAdmitted, Options};
use weft_procedures::procedure;
use weft_procedures::{Execute, Procedure};
use weft_protocols::{BuilderExt, ChoppedDatabase, DbxTc, DbxTcOptions};

use super::{Account, BEGINNING, Bank, Branch, Pay, Slip, at, open, open_by, options};

/// Waits for a short time for another thread to end. The thread may be blocked by the caller, so the wait is
/// bounded.
fn give_time<R>(thread: &ScopedJoinHandle<'_, R>) {
    for _ in 0..400 {
        if thread.is_finished() {
            return;
        }
        thread::sleep(Duration::from_micros(100));
    }
}

#[test]
fn outsiders_never_see_half_a_procedure() {
    let bank = &open(options());
    let look = || bank.state(1);
    let look_by_snapshot = || {
        let snapshot = bank.database.open_snapshot().expect("opens");
        let account = snapshot.get(&bank.accounts, &1).expect("is read");
        let branch = snapshot.get(&bank.branches, &1).expect("is read");
        (account.expect("the account exists").cents, branch.expect("the branch exists").cents)
    };
    for (number, point) in (1..).zip([2, 3, 4]) {
        let seen = scope(|scope| {
            let lookers = Cell::new(Vec::new());
            let begin = at(point, 1, || {
                let both = vec![scope.spawn(look), scope.spawn(look_by_snapshot)];
                both.iter().for_each(give_time);
                lookers.set(both);
            });
            bank.database.execute(&mut bank.paying(1, 10, number, &begin)).expect("pays");
            lookers
                .take()
                .into_iter()
                .map(|looker| looker.join().expect("looks"))
                .collect::<Vec<_>>()
        });
        assert_eq!(seen.len(), 2);
        for (cents, of_branch) in seen {
            assert_eq!(cents - BEGINNING, of_branch, "at {point}");
        }
    }
}

#[test]
fn procedure_is_one_piece_beside_an_outsider() {
    let bank = &open(options());
    let (come, has_come) = mpsc::channel();
    let (go, may_go) = mpsc::channel();
    scope(|scope| {
        let outsider = bank.database.begin().expect("begins");
        let paying = scope.spawn(move || {
            let wait = at(4, 1, || {
                come.send(()).expect("is received");
                may_go.recv().expect("is sent");
            });
            bank.database.execute(&mut bank.paying(1, 10, 1, &wait)).expect("pays")
        });
        has_come.recv().expect("the payment is in its last piece");
        let cents = outsider.get(&bank.accounts, &1).map(|account| account.map(|it| it.cents));
        drop(outsider);
        go.send(()).expect("is received");
        assert_eq!(cents.expect("is read"), Some(BEGINNING));
        assert_eq!(paying.join().expect("pays"), BEGINNING + 10);
    });
    assert_eq!(bank.state(1), (BEGINNING + 10, 10));
}

#[test]
fn epochs_do_not_end_between_pieces() {
    let disk = Arc::new(SimulatedDisk::new(1));
    // Epochs end only on request here, and not automatically.
    let durability = DurabilityOptions::new().epoch_interval(Duration::from_secs(3600));
    let builder = Database::builder()
        .protocol::<DbxTc>()
        .dbx_tc(options())
        .directory("/db")
        .durability(durability);
    let bank = &open_by(builder.backend(disk, false));
    bank.database.flush().expect("is written");
    let before = bank.database.metrics().epoch;
    scope(|scope| {
        let flushing = Cell::new(None);
        let flush = at(3, 1, || {
            let waiting = scope.spawn(|| bank.database.flush().expect("is written"));
            give_time(&waiting);
            assert_eq!(bank.database.metrics().epoch, before);
            flushing.set(Some(waiting));
            // Waiting for the end of the epoch between two pieces would never end, so the call is refused.
            let refused = bank.database.flush();
            assert!(matches!(refused, Err(Failure::NestedTransaction)), "{refused:?}");
        });
        bank.database.execute(&mut bank.paying(1, 10, 1, &flush)).expect("pays");
        flushing.take().expect("the callback ran").join().expect("is written");
    });
    let metrics = bank.database.metrics();
    assert!(metrics.epoch > before);
    assert_eq!(metrics.committed_in_pieces, 1);
    assert_eq!(bank.state(1), (BEGINNING + 10, 10));
}

mod other {
    use super::*;

    /// A procedure with the name of the registered one, but with other steps.
    #[procedure(Pay)]
    pub(super) fn pay<P: Protocol>(
        branches: &Table<Branch>,
        accounts: &Table<Account>,
        tx: &Transaction<'_, P>,
        id: u32,
    ) -> Result<(i64, i64), Error> {
        let branch = tx.get(branches, &id)?.expect("the branch exists").cents;
        let cents = tx.get(accounts, &id)?.expect("the account exists").cents;
        Ok((branch, cents))
    }
}

/// Returns what another procedure sees when it starts while a payment is between two pieces.
fn seen_in_the_middle<T: Send>(bank: &Bank, look: impl Fn(&Bank) -> T + Sync) -> T {
    scope(|scope| {
        let looker = Cell::new(None);
        let begin = at(3, 1, || {
            let looking = scope.spawn(|| look(bank));
            give_time(&looking);
            looker.set(Some(looking));
        });
        bank.database.execute(&mut bank.paying(1, 10, 1, &begin)).expect("pays");
        looker.take().expect("the callback ran").join().expect("looks")
    })
}

#[test]
fn unregistered_procedure_is_an_outsider() {
    assert_eq!(other::Pay::<DbxTc>::shape().name, Pay::<DbxTc>::shape().name);
    let seen = seen_in_the_middle(&open(options()), |bank| {
        bank.database.execute(&mut other::Pay::new(&bank.branches, &bank.accounts, 1))
    });
    assert_eq!(seen.expect("is read"), (10, BEGINNING + 10));
}

#[test]
fn read_only_procedure_is_an_outsider_if_it_uses_snapshots() {
    let both = [Pay::<DbxTc>::shape(), Check::<DbxTc>::shape()];
    let look = |bank: &Bank| {
        bank.database.execute(&mut Check::new(&bank.accounts, &bank.branches, 1)).expect("is read")
    };
    for (snapshots, pieces, seen) in [(true, 3, (BEGINNING + 10, 10)), (false, 2, (BEGINNING, 0))] {
        let chopping = Options { snapshots, ..Options::ALL };
        let bank = open(DbxTcOptions::new().procedures(both).chopping(chopping).finest(true));
        assert_eq!(bank.database.chopping().procedures[0].pieces.len(), pieces);
        assert_eq!(seen_in_the_middle(&bank, look), seen, "snapshots: {snapshots}");
        assert_eq!(look(&bank), (BEGINNING + 10, 10));
    }
}

/// Reads an account and its branch. No piece of `pay` may commit between these reads.
#[procedure(Check)]
fn check<P: Protocol>(
    accounts: &Table<Account>,
    branches: &Table<Branch>,
    tx: &Transaction<'_, P>,
    id: u32,
) -> Result<(i64, i64), Error> {
    let cents = tx.get(accounts, &id)?.expect("the account exists").cents;
    let branch = tx.get(branches, &id)?.expect("the branch exists").cents;
    Ok((cents, branch))
}

/// Does the same as `check`, and writes the result to a slip.
#[procedure(Note)]
fn note<P: Protocol>(
    accounts: &Table<Account>,
    branches: &Table<Branch>,
    slips: &Table<Slip>,
    tx: &Transaction<'_, P>,
    id: u32,
) -> Result<(i64, i64), Error> {
    let cents = tx.get(accounts, &id)?.expect("the account exists").cents;
    let branch = tx.get(branches, &id)?.expect("the branch exists").cents;
    let owner = format!("{cents} {branch}");
    tx.upsert(slips, Slip { number: 1000, account: id, owner })?;
    Ok((cents, branch))
}

/// Changes the owner of an account.
#[procedure(Give)]
fn give<P: Protocol>(
    accounts: &Table<Account>,
    tx: &Transaction<'_, P>,
    id: u32,
    owner: &str,
) -> Result<(), Error> {
    tx.update(accounts, &id, |account| owner.clone_into(&mut account.owner))?;
    Ok(())
}

#[test]
fn later_procedures_are_checked() {
    let bank = open(options());
    let refused = bank.database.admit(Note::<DbxTc>::shape());
    let Err(NotAdmitted::Changes(change)) = refused else { panic!("{refused:?}") };
    assert_eq!(change.procedure, "pay");
    assert!(change.why.contains("note."), "{change}");
    // A procedure that was not admitted runs as one transaction.
    bank.pay(1, 10, 1);
    let mut note = Note::new(&bank.accounts, &bank.branches, &bank.slips, 1);
    assert_eq!(bank.database.execute(&mut note).expect("is noted"), (BEGINNING + 10, 10));

    let give = || Give::new(&bank.accounts, 1, "somebody");
    bank.database.execute(&mut give()).expect("gives");
    bank.database.admit(Give::<DbxTc>::shape()).expect("running procedures keep their pieces");
    bank.database.admit(Give::<DbxTc>::shape()).expect("admitting it again changes nothing");
    assert_eq!(bank.database.chopping().procedures.len(), 2);
    // Once admitted, it no longer waits for procedures in pieces. Here such a wait would be a deadlock.
    let given = at(4, 1, || {
        scope(|scope| {
            let giving = scope.spawn(|| bank.database.execute(&mut give()));
            giving.join().expect("gives").expect("gives");
        });
    });
    bank.database.execute(&mut bank.paying(1, 10, 2, &given)).expect("pays");
    // A different procedure with the same name is refused.
    let named = bank.database.admit(other::Pay::<DbxTc>::shape());
    assert!(matches!(named, Err(NotAdmitted::Outline(_))), "{named:?}");
}

#[test]
fn procedures_are_checked_when_the_database_is_opened() {
    let twice =
        DbxTcOptions::new().procedures([Pay::<DbxTc>::shape(), other::Pay::<DbxTc>::shape()]);
    let opened = Database::builder().protocol::<DbxTc>().dbx_tc(twice).open();
    let failure = opened.expect_err("two procedures have the same name");
    assert!(matches!(failure, Failure::Procedures(_)), "{failure:?}");
    assert_eq!(failure.to_string(), "two procedures are called 'pay'");
}
