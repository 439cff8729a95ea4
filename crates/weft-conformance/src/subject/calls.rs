//! Procedures to test. What they have done is reported as [steps](Step), so that the oracles need not know
//! procedures.
//!
//! Some of them can be chopped if they run only beside each other. Their insertions into the journal and their
//! additions to totals may be committed separately, because no other procedure reads them. Transactions that
//! are not procedures do.

use weft::protocol::Protocol;
use weft::{Database, Error, Record, Snapshot, Table, Transaction, TransactionOptions, column_of};
use weft_procedures::chopping::Options;
use weft_procedures::procedure;
use weft_procedures::{Execute, OwnedOutput, Procedure};
use weft_protocols::BuilderExt;
use weft_protocols::DbxTcOptions;

use super::{
    Cut, Hashed, OpenStore, Opening, Plain, RETRIES_MAX, StepReader, StepTaker, Stop, Store, all,
    happened_if_there, happened_unless_there, hashed_row, one, plain_row,
};
use crate::procedures::OperationSet;
use crate::step::{HASHED, Row, Step, StepResult};

/// The first key of the journal. Accounts are rows of the ordered table, and totals are rows of the hash table.
pub const JOURNAL: u64 = 2 * HASHED;

/// The first of the journal's keys that all threads share. Procedures also read, count and delete their rows.
pub const SHARED_ENTRIES: u64 = JOURNAL + (1 << 40);

/// The number of rates. An account's key modulo this gives its rate, which never changes.
const RATES: u64 = 3;

/// A row of the journal.
#[derive(Clone, Copy, Debug, Record)]
struct Entry {
    #[record(key)]
    key: u64,
    value: i64,
}

/// A row of a table that never changes.
#[derive(Clone, Copy, Debug, Record)]
struct Rate {
    #[record(key)]
    key: u64,
    value: i64,
}

struct Books {
    accounts: Table<Plain>,
    totals: Table<Hashed>,
    journal: Table<Entry>,
    rates: Table<Rate>,
}

/// A procedure with its arguments. Accounts and totals exist; rows of the journal do not exist before.
#[derive(Clone, Copy, Debug)]
pub enum Call {
    /// Moves an amount from one account to another, if there is enough. Notes both changes in the journal,
    /// under this key and the next. Three pieces.
    Transfer {
        /// The account to take from,
        from: u64,
        /// and the account to give to.
        to: u64,
        /// The amount.
        amount: i64,
        /// The first key in the journal.
        entry: u64,
    },
    /// Adds an account's rate to the account, and notes that in the journal. Three pieces. The first reads only
    /// the rate, which never changes.
    Mark {
        /// The account.
        account: u64,
        /// The key in the journal.
        entry: u64,
    },
    /// Takes an amount from an account, if there is enough, notes it in the journal, and adds it to a total.
    /// Three pieces.
    Pay {
        /// The account.
        account: u64,
        /// The amount.
        amount: i64,
        /// The total.
        total: u64,
        /// The key in the journal.
        entry: u64,
    },
    /// Adds an amount to a total, notes it in the journal, and adds it to an account. Three pieces. The last has the
    /// procedure's place in the order.
    Earn {
        /// The account.
        account: u64,
        /// The amount.
        amount: i64,
        /// The total.
        total: u64,
        /// The key in the journal.
        entry: u64,
    },
    /// Adds to two totals. Two pieces, neither of which has a fixed place in the order of other procedures.
    Collect {
        /// The totals.
        totals: [u64; 2],
        /// The amount.
        amount: i64,
    },
    /// Writes two totals into the journal. Because it reads them, others' additions to totals can be deferred.
    /// Two pieces.
    Settle {
        /// The totals.
        totals: [u64; 2],
        /// The first key in the journal.
        entry: u64,
    },
    /// Reads an account. If a row of the journal isn't there, inserts it with the account's value.
    Enter {
        /// The account.
        account: u64,
        /// The key in the journal.
        entry: u64,
    },
    /// Deletes a row of the journal, if it is there, and sets an account to an amount.
    Strike {
        /// The account.
        account: u64,
        /// The amount.
        amount: i64,
        /// The key in the journal.
        entry: u64,
    },
    /// Sets an account to the sum of a range of the journal, up to but excluding `end`.
    Tally {
        /// The account.
        account: u64,
        /// Where the range begins.
        begin: u64,
        /// Where it ends.
        end: u64,
    },
    /// Reads an account, a row of the journal, and a total. It only reads, so the chopping analysis leaves it
    /// out.
    Compare {
        /// The account.
        account: u64,
        /// The key in the journal.
        entry: u64,
        /// The total.
        total: u64,
    },
}

/// The steps of a transaction, and what it was shown.
pub type StepLog = Vec<(Step, StepResult)>;

/// A database with procedures.
pub trait ProcedureStore: Store {
    /// Runs a procedure until it commits.
    ///
    /// # Errors
    /// [`Stop::RollBack`] if there was not enough; errors of the engine.
    fn execute(&self, call: Call) -> Result<StepLog, Stop>;
}

const THERE: &str = "accounts, totals and rates are never removed";

#[procedure(Transfer)]
fn transfer<P: Protocol>(
    books: &Books,
    tx: &Transaction<'_, P>,
    from: u64,
    to: u64,
    amount: i64,
    entry: u64,
) -> Result<[i64; 2], Stop> {
    let giver = tx.get(&books.accounts, &from)?.expect(THERE).value;
    let taker = tx.get(&books.accounts, &to)?.expect(THERE).value;
    if giver < amount {
        return Err(Stop::RollBack);
    }
    tx.update(&books.accounts, &from, |row| row.value = giver - amount)?.expect(THERE);
    tx.update(&books.accounts, &to, |row| row.value = taker + amount)?.expect(THERE);
    tx.insert(&books.journal, Entry { key: entry, value: -amount })?;
    tx.insert(&books.journal, Entry { key: entry + 1, value: amount })?;
    Ok([giver, taker])
}

#[procedure(Mark)]
fn mark<P: Protocol>(
    books: &Books,
    tx: &Transaction<'_, P>,
    account: u64,
    entry: u64,
) -> Result<[i64; 2], Stop> {
    let rate = tx.get(&books.rates, &(account % RATES))?.expect(THERE).value;
    let before = tx.get(&books.accounts, &account)?.expect(THERE).value;
    tx.update(&books.accounts, &account, |row| row.value = before + rate)?.expect(THERE);
    tx.insert(&books.journal, Entry { key: entry, value: rate })?;
    Ok([before, rate])
}

#[procedure(Pay)]
fn pay<P: Protocol>(
    books: &Books,
    tx: &Transaction<'_, P>,
    account: u64,
    amount: i64,
    total: u64,
    entry: u64,
) -> Result<i64, Stop> {
    let before = tx.get(&books.accounts, &account)?.expect(THERE).value;
    if before < amount {
        return Err(Stop::RollBack);
    }
    tx.update(&books.accounts, &account, |row| row.value = before - amount)?.expect(THERE);
    tx.insert(&books.journal, Entry { key: entry, value: amount })?;
    tx.add(&books.totals, &total, column_of!(Hashed.value), amount)?;
    Ok(before)
}

#[procedure(Earn)]
fn earn<P: Protocol>(
    books: &Books,
    tx: &Transaction<'_, P>,
    account: u64,
    amount: i64,
    total: u64,
    entry: u64,
) -> Result<i64, Stop> {
    tx.add(&books.totals, &total, column_of!(Hashed.value), amount)?;
    tx.insert(&books.journal, Entry { key: entry, value: amount })?;
    let before = tx.get(&books.accounts, &account)?.expect(THERE).value;
    tx.update(&books.accounts, &account, |row| row.value = before + amount)?.expect(THERE);
    Ok(before)
}

#[procedure(Collect)]
fn collect<P: Protocol>(
    books: &Books,
    tx: &Transaction<'_, P>,
    one: u64,
    other: u64,
    amount: i64,
) -> Result<(), Stop> {
    tx.add(&books.totals, &one, column_of!(Hashed.value), amount)?;
    tx.add(&books.totals, &other, column_of!(Hashed.value), amount)?;
    Ok(())
}

#[procedure(Settle)]
fn settle<P: Protocol>(
    books: &Books,
    tx: &Transaction<'_, P>,
    one: u64,
    other: u64,
    entry: u64,
) -> Result<[i64; 2], Stop> {
    let first = tx.get(&books.totals, &one)?.expect(THERE).value;
    let second = tx.get(&books.totals, &other)?.expect(THERE).value;
    tx.insert(&books.journal, Entry { key: entry, value: first })?;
    tx.insert(&books.journal, Entry { key: entry + 1, value: second })?;
    Ok([first, second])
}

#[procedure(Enter)]
fn enter<P: Protocol>(
    books: &Books,
    tx: &Transaction<'_, P>,
    account: u64,
    entry: u64,
) -> Result<(i64, Option<i64>), Stop> {
    let value = tx.get(&books.accounts, &account)?.expect(THERE).value;
    let found = tx.get(&books.journal, &entry)?.map(|row| row.value);
    if found.is_none() {
        tx.insert(&books.journal, Entry { key: entry, value })?;
    }
    Ok((value, found))
}

#[procedure(Strike)]
fn strike<P: Protocol>(
    books: &Books,
    tx: &Transaction<'_, P>,
    account: u64,
    amount: i64,
    entry: u64,
) -> Result<bool, Stop> {
    let was_there = tx.delete(&books.journal, &entry)?;
    tx.update(&books.accounts, &account, |row| row.value = amount)?.expect(THERE);
    Ok(was_there)
}

#[procedure(Tally)]
fn tally<P: Protocol>(
    books: &Books,
    tx: &Transaction<'_, P>,
    account: u64,
    begin: u64,
    end: u64,
) -> Result<Vec<Row>, Stop> {
    let mut rows = Vec::new();
    for row in tx.range(&books.journal, begin..end) {
        rows.push(entry_row(row?));
    }
    let sum = rows.iter().map(|row| row.value).fold(0, i64::wrapping_add);
    tx.update(&books.accounts, &account, |row| row.value = sum)?.expect(THERE);
    Ok(rows)
}

#[procedure(Compare)]
fn compare<P: Protocol>(
    books: &Books,
    tx: &Transaction<'_, P>,
    account: u64,
    entry: u64,
    total: u64,
) -> Result<(i64, Option<i64>, i64), Stop> {
    let account = tx.get(&books.accounts, &account)?.expect(THERE).value;
    let entry = tx.get(&books.journal, &entry)?.map(|row| row.value);
    let total = tx.get(&books.totals, &total)?.expect(THERE).value;
    Ok((account, entry, total))
}

/// Opens a database with tables for accounts, totals, the journal and rates.
pub(super) fn open<P: Protocol>(opening: Opening, with: OperationSet) -> Box<dyn ProcedureStore> {
    let mut procedures = vec![Transfer::<P>::shape(), Mark::<P>::shape(), Compare::<P>::shape()];
    let mut known = DbxTcOptions::new()
        .finest(opening.cut != Cut::Joined)
        .in_regions(matches!(opening.cut, Cut::Regions | Cut::Cached | Cut::Eventual))
        .eventual_snapshots(opening.cut == Cut::Eventual)
        .database_cache(opening.cut == Cut::Cached)
        .partition_locks(opening.cut == Cut::Cached);
    if matches!(with, OperationSet::Sums | OperationSet::Deferral) {
        procedures.extend([Pay::<P>::shape(), Earn::<P>::shape(), Collect::<P>::shape()]);
    }
    match with {
        OperationSet::Rows | OperationSet::Sums => {}
        OperationSet::Entries => {
            procedures.extend([Enter::<P>::shape(), Strike::<P>::shape(), Tally::<P>::shape()]);
        }
        OperationSet::Deferral => {
            procedures.push(Settle::<P>::shape());
            known = known.chopping(Options::ALL);
        }
    }
    let mut known = known.procedures(procedures);
    known.flaw = opening.flaw;
    // These runs end before an epoch does, which would publish.
    known.changes_waiting_max = Some(1);
    let builder = Database::builder()
        .protocol::<P>()
        .table::<Plain>()
        .table::<Hashed>()
        .table::<Entry>()
        .table::<Rate>()
        .htm(opening.htm.0)
        .htm_retry_policy(opening.htm.1)
        .record_history(opening.records);
    let builder = opening.add_variant(builder).dbx_tc(known);
    let database = builder.open().expect("a database opens");
    let tables = Books {
        accounts: database.table().expect("it was added"),
        totals: database.table().expect("it was added"),
        journal: database.table().expect("it was added"),
        rates: database.table().expect("it was added"),
    };
    let filled: Result<(), Error> = database.transact(|tx| {
        (0..RATES)
            .try_for_each(|key| tx.insert(&tables.rates, Rate { key, value: 1 << (20 + 4 * key) }))
    });
    filled.expect("no other transaction is running");
    let options = TransactionOptions::new().retries_max(RETRIES_MAX);
    Box::new(OpenStore { database, tables, options })
}

impl<P: Protocol> OpenStore<P, Books> {
    fn run<F: OwnedOutput<P, Error = Stop>>(&self, mut procedure: F) -> Result<F::Owned, Stop> {
        self.database.execute_with(&self.options, &mut procedure)
    }
}

fn read(key: u64, value: Option<i64>) -> (Step, StepResult) {
    (
        Step::Read(key),
        StepResult::Rows(value.map(|value| Row::new(key, value)).into_iter().collect()),
    )
}

fn did(step: Step) -> (Step, StepResult) {
    (step, StepResult::Happened(true))
}

impl<P: Protocol> ProcedureStore for OpenStore<P, Books> {
    fn execute(&self, call: Call) -> Result<StepLog, Stop> {
        let books = &self.tables;
        Ok(match call {
            Call::Transfer { from, to, amount, entry } => {
                let [giver, taker] = self.run(Transfer::new(books, from, to, amount, entry))?;
                vec![
                    read(from, Some(giver)),
                    read(to, Some(taker)),
                    did(Step::Write(from, giver - amount)),
                    did(Step::Write(to, taker + amount)),
                    did(Step::Insert(entry, -amount)),
                    did(Step::Insert(entry + 1, amount)),
                ]
            }
            Call::Mark { account, entry } => {
                let [before, rate] = self.run(Mark::new(books, account, entry))?;
                vec![
                    read(account, Some(before)),
                    did(Step::Write(account, before + rate)),
                    did(Step::Insert(entry, rate)),
                ]
            }
            Call::Pay { account, amount, total, entry } => {
                let before = self.run(Pay::new(books, account, amount, total, entry))?;
                vec![
                    read(account, Some(before)),
                    did(Step::Write(account, before - amount)),
                    did(Step::Insert(entry, amount)),
                    did(Step::Add(total, amount)),
                ]
            }
            Call::Earn { account, amount, total, entry } => {
                let before = self.run(Earn::new(books, account, amount, total, entry))?;
                vec![
                    did(Step::Add(total, amount)),
                    did(Step::Insert(entry, amount)),
                    read(account, Some(before)),
                    did(Step::Write(account, before + amount)),
                ]
            }
            Call::Collect { totals: [one, other], amount } => {
                self.run(Collect::new(books, one, other, amount))?;
                vec![did(Step::Add(one, amount)), did(Step::Add(other, amount))]
            }
            Call::Settle { totals: [one, other], entry } => {
                let [first, second] = self.run(Settle::new(books, one, other, entry))?;
                vec![
                    read(one, Some(first)),
                    read(other, Some(second)),
                    did(Step::Insert(entry, first)),
                    did(Step::Insert(entry + 1, second)),
                ]
            }
            Call::Enter { account, entry } => {
                let (value, found) = self.run(Enter::new(books, account, entry))?;
                let insertion = found.is_none().then(|| did(Step::Insert(entry, value)));
                [read(account, Some(value)), read(entry, found)]
                    .into_iter()
                    .chain(insertion)
                    .collect()
            }
            Call::Strike { account, amount, entry } => {
                let was_there = self.run(Strike::new(books, account, amount, entry))?;
                vec![
                    (Step::Delete(entry), StepResult::Happened(was_there)),
                    did(Step::Write(account, amount)),
                ]
            }
            Call::Tally { account, begin, end } => {
                let rows = self.run(Tally::new(books, account, begin, end))?;
                let sum = rows.iter().map(|row| row.value).fold(0, i64::wrapping_add);
                vec![
                    (Step::Scan(begin, end), StepResult::Rows(rows)),
                    did(Step::Write(account, sum)),
                ]
            }
            Call::Compare { account, entry, total } => {
                let found = self.run(Compare::new(books, account, entry, total))?;
                vec![read(account, Some(found.0)), read(entry, found.1), read(total, Some(found.2))]
            }
        })
    }
}

fn entry_row(row: &Entry) -> Row {
    Row::new(row.key, row.value)
}

impl<P: Protocol> StepTaker<P> for Books {
    fn take(&self, tx: &Transaction<'_, P>, step: Step) -> Result<StepResult, Error> {
        Ok(match step {
            Step::Read(key) if key >= JOURNAL => one(tx.get(&self.journal, &key)?.map(entry_row)),
            Step::Read(key) if key >= HASHED => one(tx.get(&self.totals, &key)?.map(hashed_row)),
            Step::Read(key) => one(tx.get(&self.accounts, &key)?.map(plain_row)),
            Step::Write(key, value) => StepResult::Happened(match key >= HASHED {
                true => tx.update(&self.totals, &key, |row| row.value = value)?.is_some(),
                false => tx.update(&self.accounts, &key, |row| row.value = value)?.is_some(),
            }),
            Step::Add(key, amount) => happened_if_there(match key >= HASHED {
                true => tx.add(&self.totals, &key, column_of!(Hashed.value), amount),
                false => tx.add(&self.accounts, &key, column_of!(Plain.value), amount),
            })?,
            Step::Insert(key, value) => happened_unless_there(match key >= HASHED {
                true => tx.insert(&self.totals, Hashed::new(key, value)),
                false => tx.insert(&self.accounts, Plain { key, value }),
            })?,
            Step::Scan(from, to) if from >= JOURNAL => {
                all(tx.range(&self.journal, from..to), entry_row)?
            }
            Step::Scan(from, to) => all(tx.range(&self.accounts, from..to), plain_row)?,
            other => unreachable!("{other:?} is not for tables of procedures"),
        })
    }
}

impl StepReader for Books {
    fn look(&self, snapshot: &Snapshot, step: Step) -> Result<StepResult, Error> {
        Ok(match step {
            Step::Read(key) if key >= JOURNAL => {
                one(snapshot.get(&self.journal, &key)?.map(entry_row))
            }
            Step::Read(key) if key >= HASHED => {
                one(snapshot.get(&self.totals, &key)?.map(hashed_row))
            }
            Step::Read(key) => one(snapshot.get(&self.accounts, &key)?.map(plain_row)),
            Step::Scan(from, to) if from >= JOURNAL => {
                all(snapshot.range(&self.journal, from..to), entry_row)?
            }
            Step::Scan(from, to) => all(snapshot.range(&self.accounts, from..to), plain_row)?,
            other => unreachable!("{other:?} is not for snapshots of tables of procedures"),
        })
    }
}
