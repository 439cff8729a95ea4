//! Tests of deferral: which transactions miss a deferred change, for how long, and when changes are not deferred.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread::scope;

use weft::durability::SimulatedDisk;
use weft::protocol::Protocol;
use weft::{Database, Error, Failure, Snapshot, Table, Transaction};
use weft_procedures::chopping::{Options, PieceKind};
use weft_procedures::procedure;
use weft_procedures::{Execute, Procedure};
use weft_protocols::{BuilderExt, ChoppedDatabase, DbxTc, DbxTcOptions};

use super::{
    BEGINNING, Bank, Branch, CLONES_PANIC, NOTHING, Pay, Refused, Slip, open, open_by, options,
};

/// Returns the sum of a branch, and inserts a slip. It reads the column to which payments add, and conflicts with
/// them nowhere else.
#[procedure(Review)]
fn review<P: Protocol>(
    branches: &Table<Branch>,
    slips: &Table<Slip>,
    tx: &Transaction<'_, P>,
    id: u32,
    number: u64,
) -> Result<i64, Error> {
    let cents = tx.get(branches, &id)?.expect("the branch exists").cents;
    tx.insert(slips, Slip { number, account: id, owner: "the bank".to_owned() })?;
    Ok(cents)
}

fn deferring() -> DbxTcOptions {
    DbxTcOptions::new()
        .procedures([Pay::<DbxTc>::shape(), Review::<DbxTc>::shape()])
        .chopping(Options::ALL)
}

fn reviewed(bank: &Bank, id: u32, number: u64) -> i64 {
    bank.database.execute(&mut Review::new(&bank.branches, &bank.slips, id, number)).expect("reads")
}

fn defers(bank: &Bank) -> bool {
    let chopping = bank.database.chopping();
    chopping.procedures[0].pieces.iter().any(|piece| piece.kind == PieceKind::Deferred)
}

/// Opens a bank in which a payment has deferred the addition to its branch, and a review has not seen it. Returns
/// the result of `look` in this state.
fn pay_and_look<R>(look: impl Fn(&Bank) -> R) -> R {
    loop {
        let bank = open(deferring());
        assert!(defers(&bank));
        assert_eq!(bank.pay(1, 10, 1), BEGINNING + 10);
        assert_eq!(bank.database.metrics().deferred, 1);
        // Repeats if an epoch has ended in between.
        if reviewed(&bank, 1, 100) == 0 {
            return look(&bank);
        }
    }
}

#[test]
fn only_subscribers_miss_deferred_changes() {
    assert_eq!(
        pay_and_look(|bank| bank.state(1)),
        (BEGINNING + 10, 10),
        "other transactions see it"
    );
    let of_branch = |bank: &Bank, snapshot: Snapshot| {
        snapshot.get(&bank.branches, &1).expect("reads").expect("the branch exists").cents
    };
    let fresh = |bank: &Bank| of_branch(bank, bank.database.open_snapshot().expect("opens"));
    assert_eq!(pay_and_look(fresh), 10);
    let recent =
        |bank: &Bank| of_branch(bank, bank.database.open_recent_snapshot().expect("opens"));
    assert_eq!(pay_and_look(recent), 10);
}

#[test]
fn subscribers_see_deferred_changes_in_the_next_epoch() {
    pay_and_look(|bank| {
        let mut number = 101;
        while reviewed(bank, 1, number) == 0 {
            number += 1;
        }
        assert_eq!(reviewed(bank, 1, number + 1), 10);
    });
}

#[test]
fn publication_keeps_other_changes() {
    pay_and_look(|bank| {
        // These payments belong to the same epoch or to the next.
        bank.pay(1, 5, 2);
        bank.pay(5, 7, 3);
        assert_eq!(bank.state(1), (BEGINNING + 15, 22));
        bank.database.transact(|tx| tx.update(&bank.branches, &1, |it| it.cents *= 2)).expect("is");
        bank.pay(1, 1, 4);
        assert_eq!(bank.state(1), (BEGINNING + 16, 45));
    });
}

#[test]
fn nothing_is_deferred_beside_an_outsider() {
    let bank = &open(deferring());
    let (come, has_come) = mpsc::channel();
    let (go, may_go) = mpsc::channel();
    scope(|scope| {
        scope.spawn(move || {
            let outsider = bank.database.begin().expect("begins");
            come.send(()).expect("is received");
            may_go.recv().expect("is sent");
            drop(outsider);
        });
        has_come.recv().expect("the other transaction has begun");
        bank.pay(1, 10, 1);
        assert_eq!(reviewed(bank, 1, 100), 10);
        assert_eq!(bank.database.metrics().deferred, 0);
        go.send(()).expect("is received");
    });
    assert_eq!(bank.state(1), (BEGINNING + 10, 10));
}

/// A sum that might not fit is refused before its procedure commits, because afterwards the error could not be
/// returned to a caller.
#[test]
fn sum_that_might_not_fit_cannot_be_deferred() {
    let bank = open(deferring());
    let almost_full = |tx: &Transaction<'_, DbxTc>| {
        tx.update(&bank.branches, &1, |branch| branch.cents = i64::MAX - 15)
    };
    bank.database.transact(almost_full).expect("is written");
    for number in [1, 2] {
        let paid = bank.database.execute(&mut bank.paying(1, 10, number, NOTHING));
        let Err(Refused::Engine(Error::Failure(failure))) = paid else {
            panic!("both sums together would not fit: {paid:?}")
        };
        let told = failure.to_string();
        assert!(matches!(failure, Failure::OutOfRange { .. } | Failure::Halfway { .. }), "{told}");
    }
    assert_eq!(bank.state(1).1, i64::MAX - 15, "a sum that does not fit was deferred");

    bank.database.transact(|tx| tx.update(&bank.branches, &1, |it| it.cents = 0)).expect("is");
    let (had, before) = (bank.state(1).0, bank.database.metrics().committed_in_pieces);
    bank.pay(1, 10, 3);
    assert_eq!(bank.database.metrics().committed_in_pieces, before + 1);
    assert_eq!(bank.state(1), (had + 10, 10));
}

/// A committed change is not lost if the row's `clone` panics while the deferred sum is added.
#[test]
fn deferred_sum_survives_a_panicking_publication() {
    pay_and_look(|bank| {
        CLONES_PANIC.set(true);
        let told = catch_unwind(AssertUnwindSafe(|| bank.state(1)));
        CLONES_PANIC.set(false);
        assert!(told.is_err(), "the panic reaches the publisher");
        assert_eq!(bank.state(1), (BEGINNING + 10, 10), "the sum is published later");
        bank.database.close().expect("is closed");
    });
}

#[test]
fn procedure_left_halfway_keeps_its_deferred_changes() {
    let bank = open(deferring().finest(true));
    bank.pay(2, 7, 1);
    let paid = bank.database.execute(&mut bank.paying(1, 10, 1, NOTHING));
    let Err(Refused::Engine(Error::Failure(Failure::Halfway { .. }))) = paid else {
        panic!("this slip number exists: {paid:?}")
    };
    assert_eq!(bank.state(1), (BEGINNING + 10, 10));
}

#[test]
fn database_can_be_dropped_with_deferred_changes() {
    let bank = open(deferring());
    bank.pay(1, 10, 1);
}

#[test]
fn deferral_is_opt_in_and_off_in_a_history() {
    assert!(!defers(&open(options())), "deferral is off by default");
    let builder = || Database::builder().protocol::<DbxTc>().dbx_tc(deferring());
    let disk = Arc::new(SimulatedDisk::new(1));
    assert!(defers(&open_by(builder().directory("/db").backend(disk, false))));
    #[cfg(feature = "history")]
    assert!(!defers(&open_by(builder().record_history(true))));
}
