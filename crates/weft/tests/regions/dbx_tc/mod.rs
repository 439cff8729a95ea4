//! Tests of DBX-TC: procedures in pieces, beside each other and beside all other transactions.

mod columns;
mod deferred;
mod many_threads;
mod outsiders;
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
mod regions;
mod time;

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
    /// Whether cloning a branch panics on this thread.
    static CLONES_PANIC: Cell<bool> = const { Cell::new(false) };
}

impl Clone for Branch {
    fn clone(&self) -> Self {
        assert!(!CLONES_PANIC.get(), "cloning a branch panics");
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

/// A callback that a procedure calls at numbered points, from 1, at which a test may run other transactions.
type Meanwhile<'a> = &'a (dyn Fn(u32) + 'a);

const NOTHING: Meanwhile<'static> = &|_| ();

#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("there is not so much on it")]
    Overdrawn,
    #[error(transparent)]
    Engine(#[from] Error),
}

/// Pays into an account, adds the amount to its branch, and inserts a slip. It has three pieces: the account,
/// which others read, and two commutative pieces.
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
    let before = tx.get(accounts, &id)?.expect("the account exists");
    meanwhile(1);
    if before.cents + cents < 0 {
        return Err(Refused::Overdrawn);
    }
    tx.update(accounts, &id, |account| {
        account.cents += cents;
        account.owner.push('!');
    })?;
    // Reads its own version, which no other transaction ever sees.
    let private = tx.get(accounts, &id)?.expect("the account exists");
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

/// The open database of a test.
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

/// Returns options without commits by columns. Every change of a branch then conflicts with another.
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
        accounts: database.table().expect("the table is registered"),
        branches: database.table().expect("the table is registered"),
        slips: database.table().expect("the table is registered"),
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

    /// Pays in another thread.
    fn pay_elsewhere(&self, id: u32, cents: i64, number: u64) {
        scope(|scope| {
            scope.spawn(|| self.pay(id, cents, number)).join().expect("pays");
        });
    }

    /// Returns the balance of an account, and the sum of its branch.
    fn state(&self, id: u32) -> (i64, i64) {
        let state: Result<_, Error> = self.database.transact(|tx| {
            let account = tx.get(&self.accounts, &id)?.expect("the account exists");
            let branch = tx.get(&self.branches, &account.branch)?.expect("the branch exists");
            Ok((account.cents, branch.cents))
        });
        state.expect("is read")
    }
}

/// Returns a callback that acts at a point of a procedure, but only the first `times` times.
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
fn pieces_match_the_chopping() {
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
    // Another payment into the same account, with the same branch, runs before the first one has ended.
    let other = at(3, 1, || bank.pay_elsewhere(1, 5, 2));
    let paid = bank.database.execute(&mut bank.paying(1, 10, 1, &at(4, 1, || other(3))));
    assert_eq!(paid.expect("pays"), BEGINNING + 10);
    assert_eq!(bank.state(1), (BEGINNING + 15, 15));
    let after = bank.database.metrics();
    assert_eq!(after.committed - before.committed, 3, "two payments, and one read by `state`");
    assert_eq!((after.pieces_redone, after.aborted_total()), (0, before.aborted_total()));
}

#[test]
fn only_the_failed_piece_runs_again() {
    for times in [1, 3] {
        let bank = open(by_rows());
        let before = bank.database.metrics();
        let (passes, number) = (Cell::new(0), Cell::new(100));
        // The branch changes while the second piece updates it.
        let change = at(3, times, || {
            number.set(number.get() + 1);
            bank.pay_elsewhere(1, 1, number.get());
        });
        let meanwhile = |point| {
            passes.set(passes.get() + u32::from(point == 1));
            change(point);
        };
        let paid = bank.database.execute(&mut bank.paying(1, 10, 1, &meanwhile)).expect("pays");
        assert_eq!(passes.get(), times + 1, "each pass runs the code outside of steps again");
        // The result of the first piece stays, even though the account has changed since.
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
fn first_piece_aborts_and_rolls_back_like_a_transaction() {
    let bank = open(by_rows());
    let overdrawn = bank.database.execute(&mut bank.paying(1, -BEGINNING - 1, 1, NOTHING));
    assert!(matches!(overdrawn, Err(Refused::Overdrawn)), "{overdrawn:?}");
    assert_eq!(bank.state(1), (BEGINNING, 0));
    assert_eq!(bank.database.metrics().rolled_back, 1);

    // A conflict: the account changes after the first piece has read it.
    let change = at(1, 1, || bank.pay_elsewhere(1, 5, 2));
    let paid = bank.database.execute(&mut bank.paying(1, 10, 1, &change));
    assert_eq!(paid.expect("pays"), BEGINNING + 15);
    let metrics = bank.database.metrics();
    assert_eq!((metrics.aborted_total(), metrics.pieces_redone), (1, 0));

    // A roll-back after a stale read is retried: by then the account has enough money.
    let change = at(1, 1, || bank.pay_elsewhere(1, 1000, 3));
    let paid = bank.database.execute(&mut bank.paying(1, -200, 4, &change));
    assert_eq!(paid.expect("pays"), BEGINNING + 15 + 1000 - 200);

    // The limit on retries applies only to the first piece.
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
fn starving_piece_commits_after_the_deadline() {
    let bank = open(by_rows());
    let options = TransactionOptions::new().deadline(Duration::from_millis(50));
    let number = Cell::new(1);
    // Fails so often that operations check the deadline, and that the piece closes the turnstile.
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
    assert_eq!(bank.state(1), (BEGINNING + 110, 110), "the turnstile is open again");
}

#[test]
fn errors_after_the_first_piece_leave_the_procedure_halfway() {
    let bank = open(options());
    bank.pay(2, 7, 1);
    let before = bank.database.metrics();
    // The insertion fails, because this slip number exists.
    let paid = bank.database.execute(&mut bank.paying(1, 10, 1, NOTHING));
    let Err(Refused::Engine(Error::Failure(failure))) = paid else { panic!("{paid:?}") };
    assert_eq!(failure, Failure::Halfway { procedure: "pay", step: 5 });
    assert!(failure.to_string().contains("procedure pay has failed at step 5"), "{failure}");
    assert_eq!(bank.state(1), (BEGINNING + 10, 10), "the committed pieces stay");
    // A panic also ends the procedure halfway.
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
    assert_eq!(slip.expect("is read"), None, "the piece that panicked is undone");
    let after = bank.database.metrics();
    assert_eq!(after.rolled_back - before.rolled_back, 2);
    // The worker can be used again.
    assert_eq!(bank.pay(1, 1, 3), BEGINNING + 21);
    assert_eq!(bank.database.metrics().pieces_redone, 0);
}

#[test]
fn panic_caused_by_a_conflict_is_retried() {
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

/// Scans all accounts, and counts each at its branch.
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
fn open_scan_keeps_its_piece_open() {
    let both = [Pay::<DbxTc>::shape(), Count::<DbxTc>::shape()];
    let bank = open(DbxTcOptions::new().procedures(both).finest(true));
    let pieces = bank.database.chopping().procedures[1].pieces.len();
    assert_eq!(pieces, 3, "the analysis treats a scan as one step");
    // The last account changes after the first account has been counted.
    let change = at(1, 1, || bank.pay_elsewhere(ACCOUNTS - 1, 1, 1));
    let mut counting = Count::new(&bank.accounts, &bank.branches, &change);
    assert_eq!(bank.database.execute(&mut counting).expect("counts"), ACCOUNTS);
    let metrics = bank.database.metrics();
    // The scan reads the account after the change, in its current version, and its branch is counted after that.
    assert_eq!((metrics.aborted_total(), metrics.pieces_redone), (0, 0));
    // The first account changes after it has been counted. The scan's piece fails, which is the first piece.
    let change = at(1, 1, || bank.pay_elsewhere(0, 1, 2));
    let mut counting = Count::new(&bank.accounts, &bank.branches, &change);
    assert_eq!(bank.database.execute(&mut counting).expect("counts"), ACCOUNTS);
    let metrics = bank.database.metrics();
    assert_eq!((metrics.aborted_total(), metrics.pieces_redone), (1, 0));
    // The piece ends with the scan, so a change after that does no harm.
    let change = at(2, 1, || bank.pay_elsewhere(0, 1, 3));
    let mut counting = Count::new(&bank.accounts, &bank.branches, &change);
    assert_eq!(bank.database.execute(&mut counting).expect("counts"), ACCOUNTS);
    let metrics = bank.database.metrics();
    assert_eq!((metrics.aborted_total() - 1, metrics.pieces_redone), (1, 0));
}

/// The history shows a procedure in pieces as one transaction, without the failed tries of its pieces.
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
    // The first transaction was invoked first, but was the last to change the branch, after the third.
    let (reads, _) = of(0);
    let (_, writes) = of(2);
    assert_eq!(reads[4].1, Some(writes[2].1));
}
