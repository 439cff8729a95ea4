//! What is deferred: who misses it, for how long, and when nothing is.

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

/// Writes down what a branch has got. It reads what payments add to, and meets them nowhere else.
#[procedure(Review)]
fn review<P: Protocol>(
    branches: &Table<Branch>,
    slips: &Table<Slip>,
    tx: &Transaction<'_, P>,
    id: u32,
    number: u64,
) -> Result<i64, Error> {
    let cents = tx.get(branches, &id)?.expect("it is there").cents;
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

/// Has a payment deferred what the branch gets, and a review come before it; what `look` sees then is returned.
fn pay_and_look<R>(look: impl Fn(&Bank) -> R) -> R {
    loop {
        let bank = open(deferring());
        assert!(defers(&bank));
        assert_eq!(bank.pay(1, 10, 1), BEGINNING + 10);
        assert_eq!(bank.database.metrics().deferred, 1);
        // Unless an epoch has ended meanwhile.
        if reviewed(&bank, 1, 100) == 0 {
            return look(&bank);
        }
    }
}

#[test]
fn subscribers_alone_miss_what_is_deferred() {
    assert_eq!(pay_and_look(|bank| bank.state(1)), (BEGINNING + 10, 10), "a closure sees it");
    let of_branch = |bank: &Bank, snapshot: Snapshot| {
        snapshot.get(&bank.branches, &1).expect("reads").expect("it is there").cents
    };
    let fresh = |bank: &Bank| of_branch(bank, bank.database.open_snapshot().expect("opens"));
    assert_eq!(pay_and_look(fresh), 10);
    let recent =
        |bank: &Bank| of_branch(bank, bank.database.open_recent_snapshot().expect("opens"));
    assert_eq!(pay_and_look(recent), 10);
}

#[test]
fn in_the_next_epoch_subscribers_see_it_too() {
    pay_and_look(|bank| {
        let mut number = 101;
        while reviewed(bank, 1, number) == 0 {
            number += 1;
        }
        assert_eq!(reviewed(bank, 1, number + 1), 10);
    });
}

#[test]
fn what_others_have_changed_meanwhile_stays() {
    pay_and_look(|bank| {
        // Of the same epoch, or the next.
        bank.pay(1, 5, 2);
        bank.pay(5, 7, 3);
        assert_eq!(bank.state(1), (BEGINNING + 15, 22));
        bank.database.transact(|tx| tx.update(&bank.branches, &1, |it| it.cents *= 2)).expect("is");
        bank.pay(1, 1, 4);
        assert_eq!(bank.state(1), (BEGINNING + 16, 45));
    });
}

#[test]
fn beside_an_outsider_nothing_is_deferred() {
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
        has_come.recv().expect("it has come there");
        bank.pay(1, 10, 1);
        assert_eq!(reviewed(bank, 1, 100), 10);
        assert_eq!(bank.database.metrics().deferred, 0);
        go.send(()).expect("is received");
    });
    assert_eq!(bank.state(1), (BEGINNING + 10, 10));
}

/// Whether a sum fits is found out before its procedure has committed: afterwards no caller is left to be told.
#[test]
fn a_sum_that_might_not_fit_is_refused_when_it_is_deferred() {
    let bank = open(deferring());
    let almost_full = |tx: &Transaction<'_, DbxTc>| {
        tx.update(&bank.branches, &1, |branch| branch.cents = i64::MAX - 15)
    };
    bank.database.transact(almost_full).expect("is written");
    for number in [1, 2] {
        let paid = bank.database.execute(&mut bank.paying(1, 10, number, NOTHING));
        let Err(Refused::Engine(Error::Failure(failure))) = paid else {
            panic!("two of them would not fit: {paid:?}")
        };
        let told = failure.to_string();
        assert!(matches!(failure, Failure::OutOfRange { .. } | Failure::Halfway { .. }), "{told}");
    }
    assert_eq!(bank.state(1).1, i64::MAX - 15, "nothing waits that does not fit");

    bank.database.transact(|tx| tx.update(&bank.branches, &1, |it| it.cents = 0)).expect("is");
    let (had, before) = (bank.state(1).0, bank.database.metrics().committed_in_pieces);
    bank.pay(1, 10, 3);
    assert_eq!(bank.database.metrics().committed_in_pieces, before + 1);
    assert_eq!(bank.state(1), (had + 10, 10));
}

/// Protects what has committed from a row's `clone` that panics when the sum is added.
#[test]
fn a_sum_waits_on_if_its_publication_panics() {
    pay_and_look(|bank| {
        CLONES_PANIC.set(true);
        let told = catch_unwind(AssertUnwindSafe(|| bank.state(1)));
        CLONES_PANIC.set(false);
        assert!(told.is_err(), "the publisher is told");
        assert_eq!(bank.state(1), (BEGINNING + 10, 10), "the sum is there");
        bank.database.close().expect("is closed");
    });
}

#[test]
fn a_procedure_that_is_left_halfway_has_deferred_what_it_had_come_by() {
    let bank = open(deferring().finest(true));
    bank.pay(2, 7, 1);
    let paid = bank.database.execute(&mut bank.paying(1, 10, 1, NOTHING));
    let Err(Refused::Engine(Error::Failure(Failure::Halfway { .. }))) = paid else {
        panic!("there is a slip of this number: {paid:?}")
    };
    assert_eq!(bank.state(1), (BEGINNING + 10, 10));
}

#[test]
fn what_waits_when_the_database_is_dropped_goes_with_it() {
    let bank = open(deferring());
    bank.pay(1, 10, 1);
}

#[test]
fn nothing_is_deferred_unasked_nor_where_it_would_be_lost() {
    assert!(!defers(&open(options())), "strictly serializable");
    let builder = || Database::builder().protocol::<DbxTc>().dbx_tc(deferring());
    let disk = Arc::new(SimulatedDisk::new(1));
    assert!(!defers(&open_by(builder().directory("/db").backend(disk, false))));
    #[cfg(feature = "history")]
    assert!(!defers(&open_by(builder().record_history(true))));
}
