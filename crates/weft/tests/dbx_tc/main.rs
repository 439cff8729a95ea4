//! DBX-TC: procedures in pieces, beside each other and beside everything else.

mod columns;
mod deferred;
mod many_threads;
mod outsiders;
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
mod regions;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{self, scope};
use std::time::Duration;

use weft::protocol::Protocol;
use weft::{Database, Error, Failure, Record, Table, Transaction, TransactionOptions};
use weft_procedures::chopping::PieceKind;
use weft_procedures::procedure;
use weft_procedures::{Execute, Procedure};
use weft_protocols::{BuilderExt, ChoppedDatabase, DbxTc, DbxTcOptions};
use weft_tests::panic_quietly;

#[derive(Clone, Debug, PartialEq, Record)]
struct Account {
    #[record(key)]
    id: u32,
    branch: u32,
    owner: String,
    cents: i64,
}

#[derive(Debug, PartialEq, Record)]
struct Branch {
    #[record(key)]
    id: u32,
    cents: i64,
}

thread_local! {
    /// Whether to copy a branch panics.
    static CLONES_PANIC: Cell<bool> = const { Cell::new(false) };
}

impl Clone for Branch {
    fn clone(&self) -> Self {
        assert!(!CLONES_PANIC.get(), "a branch is copied");
        Branch { id: self.id, cents: self.cents }
    }
}

#[derive(Clone, Debug, PartialEq, Record)]
struct Slip {
    #[record(key)]
    number: u64,
    account: u32,
    owner: String,
}

/// Told where a procedure is: a point, from 1, at which something may happen elsewhere.
type Meanwhile<'a> = &'a (dyn Fn(u32) + 'a);

const NOTHING: Meanwhile<'static> = &|_| ();

#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("there is not so much on it")]
    Overdrawn,
    #[error(transparent)]
    Engine(#[from] Error),
}

/// Pays into an account, and then notes that with its branch, and on a slip. Three pieces: the account, which
/// others read, and two that commute.
#[procedure(Pay)]
#[allow(clippy::too_many_arguments, reason = "arguments of a procedure are plain values")]
fn pay<P: Protocol>(
    accounts: &Table<Account>,
    branches: &Table<Branch>,
    slips: &Table<Slip>,
    tx: &Transaction<'_, P>,
    id: u32,
    cents: i64,
    number: u64,
    meanwhile: Meanwhile<'_>,
) -> Result<i64, Refused> {
    let before = tx.get(accounts, &id)?.expect("it is there");
    meanwhile(1);
    if before.cents + cents < 0 {
        return Err(Refused::Overdrawn);
    }
    tx.update(accounts, &id, |account| {
        account.cents += cents;
        account.owner.push('!');
    })?;
    // A version that nobody else ever sees.
    let private = tx.get(accounts, &id)?.expect("it is there");
    tx.update(accounts, &id, |account| {
        account.owner.pop();
    })?;
    meanwhile(2);
    tx.update(branches, &before.branch, |branch| branch.cents += cents)?;
    meanwhile(3);
    let owner = format!("{} {}", before.owner, private.owner);
    tx.insert(slips, Slip { number, account: id, owner })?;
    meanwhile(4);
    Ok(before.cents + cents)
}

/// What the tests have opened.
struct Bank {
    database: Database<DbxTc>,
    accounts: Table<Account>,
    branches: Table<Branch>,
    slips: Table<Slip>,
}

const ACCOUNTS: u32 = 8;
const BRANCHES: u32 = 4;
const BEGINNING: i64 = 100;

fn options() -> DbxTcOptions {
    DbxTcOptions::new().procedures([Pay::<DbxTc>::shape()]).finest(true)
}

/// By rows: so each change of a branch is in the way of another.
fn by_rows() -> DbxTcOptions {
    options().by_columns(false)
}

fn open(options: DbxTcOptions) -> Bank {
    open_by(Database::builder().protocol::<DbxTc>().dbx_tc(options))
}

fn open_by(builder: weft::Builder<DbxTc>) -> Bank {
    let database =
        builder.table::<Account>().table::<Branch>().table::<Slip>().open().expect("opens");
    let bank = Bank {
        accounts: database.table().expect("there is one"),
        branches: database.table().expect("there is one"),
        slips: database.table().expect("there is one"),
        database,
    };
    let filled: Result<(), Error> = bank.database.transact(|tx| {
        for id in 0..ACCOUNTS {
            let (branch, owner) = (id % BRANCHES, format!("owner {id}"));
            tx.insert(&bank.accounts, Account { id, branch, owner, cents: BEGINNING })?;
        }
        (0..BRANCHES).try_for_each(|id| tx.insert(&bank.branches, Branch { id, cents: 0 }))
    });
    filled.expect("fills");
    bank
}

impl Bank {
    fn paying<'a>(
        &'a self,
        id: u32,
        cents: i64,
        number: u64,
        meanwhile: Meanwhile<'a>,
    ) -> Pay<'a, DbxTc> {
        Pay::new(&self.accounts, &self.branches, &self.slips, id, cents, number, meanwhile)
    }

    fn pay(&self, id: u32, cents: i64, number: u64) -> i64 {
        self.database.execute(&mut self.paying(id, cents, number, NOTHING)).expect("pays")
    }

    /// In another thread.
    fn pay_elsewhere(&self, id: u32, cents: i64, number: u64) {
        scope(|scope| {
            scope.spawn(|| self.pay(id, cents, number)).join().expect("pays");
        });
    }

    /// What is on an account, and what its branch has got.
    fn state(&self, id: u32) -> (i64, i64) {
        let state: Result<_, Error> = self.database.transact(|tx| {
            let account = tx.get(&self.accounts, &id)?.expect("it is there");
            let branch = tx.get(&self.branches, &account.branch)?.expect("it is there");
            Ok((account.cents, branch.cents))
        });
        state.expect("is read")
    }
}

/// Does something at a point of a procedure, the first times that it comes by.
fn at(point: u32, times: u32, act: impl Fn()) -> impl Fn(u32) {
    let left = Cell::new(times);
    move |come_to| {
        if come_to == point && left.get() > 0 {
            left.set(left.get() - 1);
            act();
        }
    }
}

#[test]
fn the_pieces_are_those_that_were_found() {
    let bank = open(options());
    let chopping = bank.database.chopping();
    let pieces = &chopping.procedures[0].pieces;
    let found: Vec<_> = pieces.iter().map(|piece| (piece.steps.clone(), piece.kind)).collect();
    let expected = [
        (vec![0, 1, 2, 3], PieceKind::Conflicting),
        (vec![4], PieceKind::Commutative),
        (vec![5], PieceKind::Commutative),
    ];
    assert_eq!(found, expected);
    assert_eq!(bank.pay(1, 10, 1), BEGINNING + 10);
    assert_eq!(bank.state(1), (BEGINNING + 10, 10));
    let slip = bank.database.transact(|tx| tx.get(&bank.slips, &1).map(|slip| slip.cloned()));
    let owner = "owner 1 owner 1!".to_owned();
    assert_eq!(slip.expect("is read"), Some(Slip { number: 1, account: 1, owner }));
    assert_eq!(bank.database.metrics().pieces_redone, 0);
}

#[test]
fn pieces_of_two_procedures_interleave() {
    let bank = open(options());
    let before = bank.database.metrics();
    // It is paid into the same account, for the same branch, before the first payment has ended.
    let other = at(3, 1, || bank.pay_elsewhere(1, 5, 2));
    let paid = bank.database.execute(&mut bank.paying(1, 10, 1, &at(4, 1, || other(3))));
    assert_eq!(paid.expect("pays"), BEGINNING + 10);
    assert_eq!(bank.state(1), (BEGINNING + 15, 15));
    let after = bank.database.metrics();
    assert_eq!(after.committed - before.committed, 3, "two payments, and one who looked");
    assert_eq!((after.pieces_redone, after.aborted_total()), (0, before.aborted_total()));
}

#[test]
fn a_piece_that_fails_is_done_again_alone() {
    for times in [1, 3] {
        let bank = open(by_rows());
        let before = bank.database.metrics();
        let (passes, number) = (Cell::new(0), Cell::new(100));
        // The branch changes while it is being changed.
        let change = at(3, times, || {
            number.set(number.get() + 1);
            bank.pay_elsewhere(1, 1, number.get());
        });
        let meanwhile = |point| {
            passes.set(passes.get() + u32::from(point == 1));
            change(point);
        };
        let paid = bank.database.execute(&mut bank.paying(1, 10, 1, &meanwhile)).expect("pays");
        assert_eq!(passes.get(), times + 1, "the plain code is walked in each pass");
        // What the first piece has found stays, whatever happens to the account afterwards.
        assert_eq!(paid, BEGINNING + 10);
        let all = BEGINNING + 10 + i64::from(times);
        assert_eq!(bank.state(1), (all, all - BEGINNING));
        let after = bank.database.metrics();
        assert_eq!(after.pieces_redone, u64::from(times));
        assert_eq!(after.aborted_total(), before.aborted_total());
        let owner = |slip: &Slip| slip.owner.clone();
        let slip = bank.database.transact(|tx| tx.get(&bank.slips, &1).map(|slip| slip.map(owner)));
        assert_eq!(slip.expect("is read").as_deref(), Some("owner 1 owner 1!"));
    }
}

#[test]
fn the_first_piece_gives_way_and_rolls_back_like_any_transaction() {
    let bank = open(by_rows());
    let overdrawn = bank.database.execute(&mut bank.paying(1, -BEGINNING - 1, 1, NOTHING));
    assert!(matches!(overdrawn, Err(Refused::Overdrawn)), "{overdrawn:?}");
    assert_eq!(bank.state(1), (BEGINNING, 0));
    assert_eq!(bank.database.metrics().rolled_back, 1);

    // A conflict: the account changes after it was read.
    let change = at(1, 1, || bank.pay_elsewhere(1, 5, 2));
    let paid = bank.database.execute(&mut bank.paying(1, 10, 1, &change));
    assert_eq!(paid.expect("pays"), BEGINNING + 15);
    let metrics = bank.database.metrics();
    assert_eq!((metrics.aborted_total(), metrics.pieces_redone), (1, 0));

    // What it rolls back for must be so.
    let change = at(1, 1, || bank.pay_elsewhere(1, 1000, 3));
    let paid = bank.database.execute(&mut bank.paying(1, -200, 4, &change));
    assert_eq!(paid.expect("pays"), BEGINNING + 15 + 1000 - 200);

    // Its bounds are the first piece's.
    let once = TransactionOptions::new().retries_max(0);
    let change = at(1, 1, || bank.pay_elsewhere(1, 1, 5));
    let stopped = bank.database.execute_with(&once, &mut bank.paying(1, 1, 6, &change));
    let exhausted = |failure: &Failure| matches!(failure, Failure::RetriesExhausted { .. });
    assert!(
        matches!(&stopped, Err(Refused::Engine(Error::Failure(failure))) if exhausted(failure)),
        "{stopped:?}"
    );
    let number = Cell::new(10);
    let change = at(3, 2, || {
        number.set(number.get() + 1);
        bank.pay_elsewhere(1, 1, number.get());
    });
    bank.database.execute_with(&once, &mut bank.paying(1, 1, 7, &change)).expect("pays");
    assert_eq!(bank.database.metrics().pieces_redone, 2);
}

#[test]
fn a_piece_that_starves_gets_through_whatever_the_deadline() {
    let bank = open(by_rows());
    let options = TransactionOptions::new().deadline(Duration::from_millis(50));
    let number = Cell::new(1);
    // So often that operations ask for the time, and that the turnstile is closed.
    let change = at(3, 100, || {
        if number.get() == 1 {
            thread::sleep(Duration::from_millis(60));
        }
        number.set(number.get() + 1);
        bank.pay_elsewhere(1, 1, number.get());
    });
    bank.database.execute_with(&options, &mut bank.paying(1, 10, 1, &change)).expect("pays");
    let metrics = bank.database.metrics();
    assert_eq!((metrics.pieces_redone, metrics.turnstile_closings), (100, 1));
    assert_eq!(bank.state(1), (BEGINNING + 110, 110), "it is open again");
}

#[test]
fn errors_behind_the_first_piece_leave_it_halfway() {
    let bank = open(options());
    bank.pay(2, 7, 1);
    let before = bank.database.metrics();
    // There is a slip of this number.
    let paid = bank.database.execute(&mut bank.paying(1, 10, 1, NOTHING));
    let Err(Refused::Engine(Error::Failure(failure))) = paid else { panic!("{paid:?}") };
    assert_eq!(failure, Failure::Halfway { procedure: "pay", step: 5 });
    assert!(failure.to_string().contains("procedure pay has failed at step 5"), "{failure}");
    assert_eq!(bank.state(1), (BEGINNING + 10, 10), "what was committed stays");
    // A panic.
    let panics = at(4, 1, || panic_quietly("the printer is on fire"));
    let paid = catch_unwind(AssertUnwindSafe(|| {
        bank.database.execute(&mut bank.paying(1, 10, 2, &panics))
    }));
    assert_eq!(
        paid.err().and_then(|panic| panic.downcast_ref::<&str>().copied()),
        Some("the printer is on fire")
    );
    assert_eq!(bank.state(1), (BEGINNING + 20, 20));
    let slip = bank.database.transact(|tx| tx.get(&bank.slips, &2).map(|slip| slip.cloned()));
    assert_eq!(slip.expect("is read"), None, "the piece in which it was");
    let after = bank.database.metrics();
    assert_eq!(after.rolled_back - before.rolled_back, 2);
    // The worker is as good as before.
    assert_eq!(bank.pay(1, 1, 3), BEGINNING + 21);
    assert_eq!(bank.database.metrics().pieces_redone, 0);
}

#[test]
fn a_panic_that_a_conflict_has_led_to_does_not_count() {
    let bank = open(options());
    let change = at(3, 1, || {
        bank.pay_elsewhere(1, 1, 2);
        panic_quietly("nothing is as it was");
    });
    let paid = bank.database.execute(&mut bank.paying(1, 10, 1, &change)).expect("pays");
    assert_eq!(paid, BEGINNING + 10);
    assert_eq!(bank.state(1), (BEGINNING + 11, 11));
    assert_eq!(bank.database.metrics().pieces_redone, 1);
}

/// Sees what accounts there are, and counts them at their branches.
#[procedure(Count)]
fn count<P: Protocol>(
    accounts: &Table<Account>,
    branches: &Table<Branch>,
    tx: &Transaction<'_, P>,
    meanwhile: Meanwhile<'_>,
) -> Result<u32, Error> {
    let mut counted = 0;
    for account in tx.range(accounts, ..) {
        let branch = account?.branch;
        meanwhile(1);
        tx.update(branches, &branch, |branch| branch.cents += 1)?;
        counted += 1;
    }
    meanwhile(2);
    let branch = BRANCHES - 1;
    tx.update(branches, &branch, |branch| branch.cents += 1000)?;
    Ok(counted)
}

#[test]
fn a_scan_that_is_being_read_keeps_its_piece_open() {
    let both = [Pay::<DbxTc>::shape(), Count::<DbxTc>::shape()];
    let bank = open(DbxTcOptions::new().procedures(both).finest(true));
    let pieces = bank.database.chopping().procedures[1].pieces.len();
    assert_eq!(pieces, 3, "the analysis takes a scan for one step");
    // The last account changes when the first has been counted.
    let change = at(1, 1, || bank.pay_elsewhere(ACCOUNTS - 1, 1, 1));
    let mut counting = Count::new(&bank.accounts, &bank.branches, &change);
    assert_eq!(bank.database.execute(&mut counting).expect("counts"), ACCOUNTS);
    let metrics = bank.database.metrics();
    // It is read after the change, in the version that is there now; its branch was not counted yet.
    assert_eq!((metrics.aborted_total(), metrics.pieces_redone), (0, 0));
    // The first account changes, when it has been counted: the piece with the scan fails, which is the first.
    let change = at(1, 1, || bank.pay_elsewhere(0, 1, 2));
    let mut counting = Count::new(&bank.accounts, &bank.branches, &change);
    assert_eq!(bank.database.execute(&mut counting).expect("counts"), ACCOUNTS);
    let metrics = bank.database.metrics();
    assert_eq!((metrics.aborted_total(), metrics.pieces_redone), (1, 0));
    // When the scan is over, its piece ends.
    let change = at(2, 1, || bank.pay_elsewhere(0, 1, 3));
    let mut counting = Count::new(&bank.accounts, &bank.branches, &change);
    assert_eq!(bank.database.execute(&mut counting).expect("counts"), ACCOUNTS);
    let metrics = bank.database.metrics();
    assert_eq!((metrics.aborted_total() - 1, metrics.pieces_redone), (1, 0));
}

/// A procedure in pieces is one transaction of the history, without what was done again.
#[cfg(feature = "history")]
#[test]
fn histories_show_procedures_as_transactions() {
    use weft::history::{Operation, Status};
    let bank =
        open_by(Database::builder().protocol::<DbxTc>().dbx_tc(options()).record_history(true));
    bank.database.take_history();
    let change = at(3, 2, {
        let number = Cell::new(1);
        let bank = &bank;
        move || {
            number.set(number.get() + 1);
            bank.pay_elsewhere(1, 1, number.get());
        }
    });
    bank.database.execute(&mut bank.paying(1, 10, 1, &change)).expect("pays");
    assert_eq!(bank.database.metrics().pieces_redone, 2);
    let history = bank.database.take_history();
    assert_eq!(history.transactions.len(), 3);
    assert!(history.transactions.iter().all(|it| it.status == Status::Committed));
    let of = |number: usize| {
        let operations = history.transactions[number].operations.iter();
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        operations.for_each(|operation| match operation {
            Operation::Read { table, version, .. } => reads.push((table.to_string(), *version)),
            Operation::Write { table, version, .. } => writes.push((table.to_string(), *version)),
            other => panic!("{other:?}"),
        });
        (reads, writes)
    };
    for number in 0..3 {
        let (reads, writes) = of(number);
        let reads: Vec<_> = reads.iter().map(|(table, _)| table.as_str()).collect();
        let writes: Vec<_> = writes.iter().map(|(table, _)| table.as_str()).collect();
        assert_eq!(reads, ["account", "account", "account", "account", "branch", "slip"]);
        assert_eq!(writes, ["account", "account", "branch", "slip"]);
    }
    // Invoked first, and the last to change the branch: after the third.
    let (reads, _) = of(0);
    let (_, writes) = of(2);
    assert_eq!(reads[4].1, Some(writes[2].1));
}
