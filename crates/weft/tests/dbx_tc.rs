//! DBX-TC: procedures in pieces, beside each other and beside everything else.

#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
#[path = "support/hardware.rs"]
mod hardware;
mod support;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread::{self, ScopedJoinHandle, scope};
use std::time::Duration;

use support::{Seed, chaos, panic_quietly, stress};
use weft::durability::SimulatedDisk;
use weft::procedure::Procedure;
use weft::procedure::chopping::{NotAdmitted, Options, PieceKind};
use weft::protocol::{DbxTc, DbxTcOptions, Protocol};
use weft::{Database, Error, Failure, Record, Table, Transaction, TransactionOptions, procedure};
use weft_htm::word::{Ordering, Word};

#[derive(Clone, Debug, PartialEq, Record)]
struct Account {
    #[record(key)]
    id: u32,
    branch: u32,
    owner: String,
    cents: i64,
}

#[derive(Clone, Debug, PartialEq, Record)]
struct Branch {
    #[record(key)]
    id: u32,
    cents: i64,
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
    accounts: &Table<Account, P>,
    branches: &Table<Branch, P>,
    slips: &Table<Slip, P>,
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
    accounts: Table<Account, DbxTc>,
    branches: Table<Branch, DbxTc>,
    slips: Table<Slip, DbxTc>,
}

const ACCOUNTS: u32 = 8;
const BRANCHES: u32 = 4;
const BEGINNING: i64 = 100;

fn options() -> DbxTcOptions {
    DbxTcOptions::new().procedures([Pay::<DbxTc>::shape()])
}

fn open(options: DbxTcOptions) -> Bank {
    open_by(Database::builder().dbx_tc(options))
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

/// Gives another thread time to end, which it may need the caller for.
fn give_time<R>(thread: &ScopedJoinHandle<'_, R>) {
    for _ in 0..400 {
        if thread.is_finished() {
            return;
        }
        thread::sleep(Duration::from_micros(100));
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
        let bank = open(options());
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
    let bank = open(options());
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
    let bank = open(options());
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
fn strangers_see_no_procedure_by_halves() {
    let bank = &open(options());
    let look = || bank.state(1);
    let look_by_snapshot = || {
        let snapshot = bank.database.open_snapshot().expect("opens");
        let account = snapshot.get(&bank.accounts, &1).expect("is read");
        let branch = snapshot.get(&bank.branches, &1).expect("is read");
        (account.expect("is there").cents, branch.expect("is there").cents)
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
fn beside_a_stranger_a_procedure_is_one_piece() {
    let bank = &open(options());
    let (come, has_come) = mpsc::channel();
    let (go, may_go) = mpsc::channel();
    scope(|scope| {
        let stranger = bank.database.begin().expect("begins");
        let paying = scope.spawn(move || {
            let wait = at(4, 1, || {
                come.send(()).expect("is received");
                may_go.recv().expect("is sent");
            });
            bank.database.execute(&mut bank.paying(1, 10, 1, &wait)).expect("pays")
        });
        has_come.recv().expect("it has come there");
        let cents = stranger.get(&bank.accounts, &1).map(|account| account.map(|it| it.cents));
        drop(stranger);
        go.send(()).expect("is received");
        assert_eq!(cents.expect("is read"), Some(BEGINNING));
        assert_eq!(paying.join().expect("pays"), BEGINNING + 10);
    });
    assert_eq!(bank.state(1), (BEGINNING + 10, 10));
}

#[test]
fn with_a_log_a_procedure_is_one_piece() {
    let disk = Arc::new(SimulatedDisk::new(1));
    let builder = Database::builder().dbx_tc(options()).directory("/db").backend(disk, false);
    let bank = &open_by(builder);
    let seen = scope(|scope| {
        let looker = Cell::new(None);
        let look = at(4, 1, || {
            let looking = scope.spawn(|| bank.state(1));
            give_time(&looking);
            looker.set(Some(looking));
        });
        bank.database.execute(&mut bank.paying(1, 10, 1, &look)).expect("pays");
        looker.take().expect("it was come there").join().expect("looks")
    });
    // Between pieces it would have waited, and would have seen all of it.
    assert_eq!(seen, (BEGINNING, 0));
    assert_eq!(bank.state(1), (BEGINNING + 10, 10));
}

mod other {
    use super::*;

    /// Not the registered one, though it has its name.
    #[procedure(Pay)]
    pub(super) fn pay<P: Protocol>(
        branches: &Table<Branch, P>,
        accounts: &Table<Account, P>,
        tx: &Transaction<'_, P>,
        id: u32,
    ) -> Result<(i64, i64), Error> {
        let branch = tx.get(branches, &id)?.expect("it is there").cents;
        let cents = tx.get(accounts, &id)?.expect("it is there").cents;
        Ok((branch, cents))
    }
}

/// What another procedure sees of a payment that is between two pieces.
fn seen_in_the_middle<T: Send>(bank: &Bank, look: impl Fn(&Bank) -> T + Sync) -> T {
    scope(|scope| {
        let looker = Cell::new(None);
        let begin = at(3, 1, || {
            let looking = scope.spawn(|| look(bank));
            give_time(&looking);
            looker.set(Some(looking));
        });
        bank.database.execute(&mut bank.paying(1, 10, 1, &begin)).expect("pays");
        looker.take().expect("it was come there").join().expect("looks")
    })
}

#[test]
fn a_procedure_that_is_not_registered_is_a_stranger() {
    assert_eq!(other::Pay::<DbxTc>::shape().name, Pay::<DbxTc>::shape().name);
    let seen = seen_in_the_middle(&open(options()), |bank| {
        bank.database.execute(&mut other::Pay::new(&bank.branches, &bank.accounts, 1))
    });
    assert_eq!(seen.expect("is read"), (10, BEGINNING + 10));
}

#[test]
fn a_procedure_that_only_reads_is_a_stranger_or_one_of_the_others() {
    let both = [Pay::<DbxTc>::shape(), Check::<DbxTc>::shape()];
    let look = |bank: &Bank| {
        bank.database.execute(&mut Check::new(&bank.accounts, &bank.branches, 1)).expect("is read")
    };
    for (snapshots, pieces, seen) in [(true, 3, (BEGINNING + 10, 10)), (false, 2, (BEGINNING, 0))] {
        let chopping = Options { snapshots, ..Options::ALL };
        let bank = open(DbxTcOptions::new().procedures(both).chopping(chopping));
        assert_eq!(bank.database.chopping().procedures[0].pieces.len(), pieces);
        assert_eq!(seen_in_the_middle(&bank, look), seen, "snapshots: {snapshots}");
        assert_eq!(look(&bank), (BEGINNING + 10, 10));
    }
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
    accounts: &Table<Account, P>,
    branches: &Table<Branch, P>,
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
    let bank = open(DbxTcOptions::new().procedures(both));
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

/// Reads an account and its branch, which pieces of `pay` must not come between.
#[procedure(Check)]
fn check<P: Protocol>(
    accounts: &Table<Account, P>,
    branches: &Table<Branch, P>,
    tx: &Transaction<'_, P>,
    id: u32,
) -> Result<(i64, i64), Error> {
    let cents = tx.get(accounts, &id)?.expect("it is there").cents;
    let branch = tx.get(branches, &id)?.expect("it is there").cents;
    Ok((cents, branch))
}

/// As that; but it also notes what it has found.
#[procedure(Note)]
fn note<P: Protocol>(
    accounts: &Table<Account, P>,
    branches: &Table<Branch, P>,
    slips: &Table<Slip, P>,
    tx: &Transaction<'_, P>,
    id: u32,
) -> Result<(i64, i64), Error> {
    let cents = tx.get(accounts, &id)?.expect("it is there").cents;
    let branch = tx.get(branches, &id)?.expect("it is there").cents;
    let owner = format!("{cents} {branch}");
    tx.upsert(slips, Slip { number: 1000, account: id, owner })?;
    Ok((cents, branch))
}

/// Gives an account another owner.
#[procedure(Give)]
fn give<P: Protocol>(
    accounts: &Table<Account, P>,
    tx: &Transaction<'_, P>,
    id: u32,
    owner: &str,
) -> Result<(), Error> {
    tx.update(accounts, &id, |account| owner.clone_into(&mut account.owner))?;
    Ok(())
}

#[test]
fn a_procedure_that_comes_later_is_checked() {
    let bank = open(options());
    let refused = bank.database.admit(Note::<DbxTc>::shape());
    let Err(NotAdmitted::Changes(change)) = refused else { panic!("{refused:?}") };
    assert_eq!(change.procedure, "pay");
    assert!(change.why.contains("note."), "{change}");
    // It runs nevertheless.
    bank.pay(1, 10, 1);
    let mut note = Note::new(&bank.accounts, &bank.branches, &bank.slips, 1);
    assert_eq!(bank.database.execute(&mut note).expect("is noted"), (BEGINNING + 10, 10));

    let give = || Give::new(&bank.accounts, 1, "somebody");
    bank.database.execute(&mut give()).expect("gives");
    bank.database.admit(Give::<DbxTc>::shape()).expect("others stay as they are");
    bank.database.admit(Give::<DbxTc>::shape()).expect("it is there");
    assert_eq!(bank.database.chopping().procedures.len(), 2);
    // Now it need not wait for a procedure in pieces, which it would not see the end of here.
    let given = at(4, 1, || {
        scope(|scope| {
            let giving = scope.spawn(|| bank.database.execute(&mut give()));
            giving.join().expect("gives").expect("gives");
        });
    });
    bank.database.execute(&mut bank.paying(1, 10, 2, &given)).expect("pays");
    // Others of its name are refused.
    let named = bank.database.admit(other::Pay::<DbxTc>::shape());
    assert!(matches!(named, Err(NotAdmitted::Outline(_))), "{named:?}");
}

#[test]
fn procedures_are_checked_when_the_database_is_opened() {
    let twice =
        DbxTcOptions::new().procedures([Pay::<DbxTc>::shape(), other::Pay::<DbxTc>::shape()]);
    let opened = Database::<DbxTc>::builder().dbx_tc(twice).open();
    let failure = opened.expect_err("there are two of a name");
    assert!(matches!(failure, Failure::Procedures(_)), "{failure:?}");
    assert_eq!(failure.to_string(), "two procedures are called 'pay'");
}

/// Payments of many threads, beside strangers that sum up and snapshots. Each thread begins with `begin`.
fn lose_no_cent<B>(bank: &Bank, payments: u64, begin: impl Fn(u64) -> B + Sync) {
    const THREADS: u64 = 4;
    let (seed, begin) = (Seed::new(), &begin);
    let is_over = &Word::new(0);
    scope(|scope| {
        let paying: Vec<_> = (0..THREADS)
            .map(|thread| {
                let mut random = seed.random(thread as usize);
                scope.spawn(move || {
                    let _begun = begin(random.u64(..));
                    let mut paid = 0;
                    for number in 0..payments {
                        let (id, cents) = (random.u32(..ACCOUNTS), random.i64(-60..=60));
                        let yielding = std::cell::RefCell::new(random.fork());
                        let meanwhile = |_| chaos(&mut yielding.borrow_mut());
                        let number = thread * payments + number;
                        let mut pay = bank.paying(id, cents, number, &meanwhile);
                        match bank.database.execute(&mut pay) {
                            Ok(balance) => {
                                assert!(balance >= 0);
                                paid += 1;
                            }
                            Err(Refused::Overdrawn) => assert!(cents < 0),
                            Err(Refused::Engine(error)) => panic!("{error}"),
                        }
                    }
                    paid
                })
            })
            .collect();
        let check = |accounts: i64, branches: i64| {
            assert_eq!(accounts - i64::from(ACCOUNTS) * BEGINNING, branches);
        };
        let mut random = seed.random(THREADS as usize);
        let summing = scope.spawn(move || {
            let _begun = begin(random.u64(..));
            while is_over.load(Ordering::Relaxed) == 0 {
                let sums: Result<_, Error> = bank.database.transact(|tx| {
                    let accounts = tx.range(&bank.accounts, ..).map(|row| Ok(row?.cents));
                    let accounts = accounts.sum::<Result<i64, Error>>()?;
                    let branches = tx.range(&bank.branches, ..).map(|row| Ok(row?.cents));
                    Ok((accounts, branches.sum::<Result<i64, Error>>()?))
                });
                let (accounts, branches) = sums.expect("is summed up");
                check(accounts, branches);
                let sums: Result<_, Error> = bank.database.snapshot(|snapshot| {
                    let accounts = snapshot.range(&bank.accounts, ..).map(|row| Ok(row?.cents));
                    let accounts = accounts.sum::<Result<i64, Error>>()?;
                    let branches = snapshot.range(&bank.branches, ..).map(|row| Ok(row?.cents));
                    Ok((accounts, branches.sum::<Result<i64, Error>>()?))
                });
                let (accounts, branches) = sums.expect("is summed up");
                check(accounts, branches);
                thread::sleep(Duration::from_micros(300));
            }
        });
        let paid: usize = paying.into_iter().map(|thread| thread.join().expect("pays")).sum();
        is_over.store(1, Ordering::Relaxed);
        summing.join().expect("sums up");
        let slips = bank.database.transact(|tx| {
            Ok::<_, Error>(tx.range(&bank.slips, ..).collect::<Result<Vec<_>, _>>()?.len())
        });
        assert_eq!(slips.expect("is counted"), paid);
    });
}

#[test]
fn many_threads_lose_no_cent() {
    let bank = open(options());
    lose_no_cent(&bank, 400 * stress() as u64, |_| ());
    assert!(bank.database.metrics().pieces_redone > 0, "nothing has been tested");
}

/// The same, with regions that meet conflicts beside their twins.
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
#[test]
fn many_threads_lose_no_cent_in_hardware_regions() {
    let Some(htm) = hardware::hardware(2) else { return };
    let _here = hardware::on_thread(0, 0);
    let bank = open_by(Database::builder().dbx_tc(options()).custom_htm(htm));
    lose_no_cent(&bank, 25 * stress() as u64, |seed| hardware::on_thread(10_000, seed));
    assert!(bank.database.metrics().htm.committed > 0, "nothing has been tested");
}

/// A procedure in pieces is one transaction of the history, without what was done again.
#[cfg(feature = "history")]
#[test]
fn histories_show_procedures_as_transactions() {
    use weft::history::{Operation, Status};
    let bank = open_by(Database::builder().dbx_tc(options()).record_history(true));
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
