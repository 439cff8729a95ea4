//! What is tested: a database under some protocol, behind a face that hides the protocol's type.
//!
//! The checks of this crate are written once, against [`Store`] and [`Steps`]. What has to be
//! compiled for each protocol, and for each way in which the canary is wrong, is only this file.

mod calls;

use std::fmt;

use weft::history::History;
use weft::htm::{Choice, RetryPolicy};
use weft::protocol::Protocol;
use weft::schema::Violation;
use weft::{
    Database, Error, Failure, Record, Snapshot, Stash, Table, Transaction, TransactionOptions,
    column_of,
};
use weft_protocols::canary::{Canary, Mutation};
use weft_protocols::{DbxTc, Flaw};

pub use calls::{Call, Executes, JOURNAL, Told};

use crate::machine::REGIONS;
use crate::procedures::With;
use crate::step::{HASHED, Row, Shown, Step};

/// A row of the ordered table, which has a secondary index of each kind.
#[derive(Clone, Debug, Record)]
#[record(check = Ordered::check_value)]
struct Ordered {
    #[record(key)]
    key: u64,
    #[record(index)]
    group: u8,
    #[record(unique)]
    badge: String,
    value: i64,
}

impl Ordered {
    fn new(key: u64, value: i64) -> Self {
        Ordered { key, group: (key % 10) as u8, badge: badge(key), value }
    }

    fn check_value(&self) -> Result<(), Violation> {
        if self.value < 0 { Err("negative".into()) } else { Ok(()) }
    }
}

fn badge(key: u64) -> String {
    format!("badge {key}")
}

/// A row of the hash table.
#[derive(Clone, Debug, Record)]
#[record(storage = "hash")]
struct Hashed {
    #[record(key)]
    key: u64,
    value: i64,
}

/// A row of an ordered table without secondary indexes.
#[derive(Clone, Debug, Record)]
struct Plain {
    #[record(key)]
    key: u64,
    value: i64,
}

/// A protocol to be tested.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    /// Its name.
    pub name: &'static str,
    /// How many threads it bears.
    pub threads_max: usize,
    /// Whether it only makes single operations on single rows atomic. Then its tables have no
    /// secondary indexes, and a transaction takes one step.
    pub single_key: bool,
    /// Whether it has snapshots: some canaries have none.
    pub has_snapshots: bool,
    /// What a canary does wrong.
    mutation: Mutation,
    /// The name of the way in which regions run; empty on a machine with only one.
    pub regions: &'static str,
    htm: (Choice, RetryPolicy),
    open: fn(Opening) -> Box<dyn Store>,
    open_procedures: fn(Opening, With) -> Box<dyn Executes>,
    /// What a protocol with procedures in pieces does wrong.
    flaw: Option<Flaw>,
}

/// How a store is opened.
#[derive(Clone, Copy, Debug)]
struct Opening {
    /// Whether everything is recorded.
    records: bool,
    htm: (Choice, RetryPolicy),
    cut: Cut,
    flaw: Option<Flaw>,
}

/// What becomes of the pieces of procedures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Those that meet nobody join their neighbours.
    Joined,
    /// Each commits by itself.
    Finest,
    /// Likewise, as a region if it can be one.
    Regions,
}

impl Cut {
    /// One for each seed.
    pub fn of_seed(seed: u64) -> Cut {
        [Cut::Finest, Cut::Joined, Cut::Regions][(seed % 3) as usize]
    }
}

impl Subject {
    /// The subject for a protocol.
    fn of<P: Protocol>() -> Self {
        let open = if P::SINGLE_KEY { open_plain::<P> } else { open::<P> };
        Subject {
            name: P::NAME,
            threads_max: P::WORKERS_MAX,
            single_key: P::SINGLE_KEY,
            has_snapshots: true,
            mutation: Mutation::Intact,
            regions: REGIONS[0].0,
            htm: (REGIONS[0].1, REGIONS[0].2),
            open,
            open_procedures: calls::open::<P>,
            flaw: None,
        }
    }

    /// The same protocol, tested with single steps.
    fn of_single_steps<P: Protocol>() -> Self {
        Subject { open: open_plain::<P>, single_key: true, ..Self::of::<P>() }
    }

    /// Every protocol of the engine's list that runs transactions of several rows.
    pub fn all() -> Vec<Self> {
        let listed = |name| {
            weft_protocols::with_protocol!(name, |P| Subject::of::<P>()).expect("a listed name")
        };
        let subjects = chosen_names().map(listed).filter(|subject| !subject.single_key);
        subjects.flat_map(Subject::with_all_regions).collect()
    }

    /// Every protocol of the list, for transactions of a single step on tables without secondary
    /// indexes. This is all that some of them know.
    pub fn all_for_single_steps() -> Vec<Self> {
        let listed = |name| {
            weft_protocols::with_protocol!(name, |P| Subject::of_single_steps::<P>())
                .expect("a listed name")
        };
        chosen_names().map(listed).flat_map(Subject::with_all_regions).collect()
    }

    /// Likewise with regions run in each way that the machine knows.
    fn with_all_regions(self) -> impl Iterator<Item = Self> {
        let each = REGIONS.iter();
        each.map(move |&(regions, choice, policy)| Subject {
            regions,
            htm: (choice, policy),
            ..self
        })
    }

    /// The canary that is wrong in this way.
    pub fn canary(mutation: Mutation) -> Self {
        let has_snapshots = mutation.has_snapshots();
        Subject { name: mutation.name(), mutation, has_snapshots, ..Self::of::<Canary>() }
    }

    /// The protocol that commits procedures in pieces, wrong in this way.
    pub fn flawed(flaw: Flaw) -> Self {
        Subject { flaw: Some(flaw), ..Self::of::<DbxTc>() }
    }

    /// The protocol of this name, with regions run in the way of this name.
    ///
    /// # Panics
    /// There is none.
    pub fn named(name: &str, regions: &str) -> Self {
        let of = |name| {
            weft_protocols::with_protocol!(name, |P| Subject::of::<P>()).expect("a protocol's name")
        };
        let mut each = of(name).with_all_regions();
        each.find(|subject| subject.regions == regions).expect("a way in which regions run")
    }

    /// Those of them that run several threads at a time.
    pub fn concurrent() -> Vec<Self> {
        Self::all().into_iter().filter(|subject| subject.threads_max > 1).collect()
    }

    /// As many threads as are wanted, or as the protocol bears.
    pub fn threads(&self, wanted: usize) -> usize {
        wanted.min(self.threads_max)
    }

    /// Opens a database that records what happens.
    pub fn open_recorded(&self) -> Box<dyn Store> {
        self.mutation.chosen_for(|| (self.open)(self.opening(true)))
    }

    /// Opens a database.
    pub fn open(&self) -> Box<dyn Store> {
        self.mutation.chosen_for(|| (self.open)(self.opening(false)))
    }

    /// Opens a database for procedures.
    pub fn open_procedures(&self, with: With, records: bool, cut: Cut) -> Box<dyn Executes> {
        (self.open_procedures)(Opening { cut, ..self.opening(records) }, with)
    }

    fn opening(&self, records: bool) -> Opening {
        Opening { records, htm: self.htm, cut: Cut::Finest, flaw: self.flaw }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name)?;
        if self.regions.is_empty() { Ok(()) } else { write!(out, ", {}", self.regions) }
    }
}

/// The engine's list, or what the environment variable `WEFT_PROTOCOLS` chooses of it.
fn chosen_names() -> impl Iterator<Item = &'static str> {
    let chosen = std::env::var("WEFT_PROTOCOLS").ok();
    let names = weft_protocols::NAMES.iter().copied();
    names.filter(move |name| {
        chosen.as_ref().is_none_or(|chosen| chosen.split(',').any(|one| one == *name))
    })
}

/// Names the subject that a failed test was at.
#[derive(Debug)]
pub struct Named(pub Subject);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this was protocol {}", self.0);
        }
    }
}

/// Why a transaction's body ended without a commit.
#[derive(Debug)]
pub enum Stop {
    /// It was to be rolled back.
    RollBack,
    /// It saw what no transaction may see.
    Broken(String),
    /// The engine said so.
    Engine(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Engine(error)
    }
}

/// A body of a transaction, to be run again after conflicts.
pub type Body<'a> = dyn FnMut(&dyn Steps) -> Result<(), Stop> + 'a;

/// Of which state a snapshot is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The present: all that had been committed when it was opened is in it.
    Now,
    /// One that others may have read, too.
    Recent,
}

impl Moment {
    /// One of the two.
    pub fn any(random: &mut fastrand::Rng) -> Moment {
        if random.bool() { Moment::Now } else { Moment::Recent }
    }

    /// When a snapshot began, which was opened after `opened` on the clock of the run: one of a recent state may
    /// have to come before what had ended by then.
    pub fn began(self, opened: usize) -> usize {
        match self {
            Moment::Now => opened,
            Moment::Recent => 0,
        }
    }
}

/// A database.
pub trait Store: Send + Sync {
    /// Begins a transaction of which the caller takes care.
    fn begin(&self) -> Box<dyn Begun + '_>;

    /// Opens a snapshot of the present state, or of a [recent](Database::open_recent_snapshot) one, to whose end
    /// `commit` closes it. It takes steps that only read.
    fn open_snapshot(&self, of: Moment) -> Box<dyn Begun + '_>;

    /// Runs a transaction until it commits.
    ///
    /// # Errors
    /// What `body` returned; and if it met too many conflicts in a row.
    fn transact(&self, body: &mut Body<'_>) -> Result<(), Stop>;

    /// A stash for the numbers of transactions, of as many as `capacity`; `None` if the protocol sets
    /// none aside.
    fn stash(&self, capacity: usize) -> Option<Box<dyn SetsAside + '_>>;

    /// What has happened so far. Nothing is running.
    fn take_history(&self) -> History;
}

/// The stash of one thread: see [`weft::Stash`].
pub trait SetsAside {
    /// Runs a transaction until it commits; `None` if it was set aside, as this number.
    fn transact(&mut self, number: usize, body: &mut Body<'_>) -> Option<Result<(), Stop>>;

    /// The number of one that was set aside, and can be run now.
    fn take_due(&mut self) -> Option<usize>;

    /// Waits until there is one, or none is set aside; whether one is.
    fn wait(&self) -> bool;
}

/// A transaction, to its body.
pub trait Steps {
    /// Takes a step.
    ///
    /// # Errors
    /// Conflicts, and what the step does not expect.
    fn take(&self, step: Step) -> Result<Shown, Error>;
}

/// A transaction that its owner commits, or drops.
pub trait Begun: Steps {
    /// Commits.
    ///
    /// # Errors
    /// A conflict.
    fn commit(self: Box<Self>) -> Result<(), Error>;
}

/// No transaction is aborted as often as this: the engine promises that every one gets through.
const RETRIES_MAX: u32 = 2000;

struct Tables {
    ordered: Table<Ordered>,
    hashed: Table<Hashed>,
}

/// The tables for transactions of a single step.
struct PlainTables {
    ordered: Table<Plain>,
    hashed: Table<Hashed>,
}

/// What takes steps under a protocol.
trait Takes<P: Protocol>: Looks {
    fn take(&self, tx: &Transaction<'_, P>, step: Step) -> Result<Shown, Error>;
}

trait Looks: Send + Sync {
    /// What a snapshot shows.
    fn look(&self, snapshot: &Snapshot, step: Step) -> Result<Shown, Error>;
}

struct Opened<P: Protocol, T> {
    database: Database<P>,
    tables: T,
    options: TransactionOptions,
}

fn open<P: Protocol>(opening: Opening) -> Box<dyn Store> {
    let builder = Database::builder()
        .protocol::<P>()
        .table::<Ordered>()
        .table::<Hashed>()
        .htm(opening.htm.0)
        .htm_retry_policy(opening.htm.1)
        .record_history(opening.records);
    let database = builder.open().expect("a database opens");
    let tables = Tables {
        ordered: database.table().expect("it was added"),
        hashed: database.table().expect("it was added"),
    };
    let options = TransactionOptions::new().retries_max(RETRIES_MAX);
    Box::new(Opened { database, tables, options })
}

fn open_plain<P: Protocol>(opening: Opening) -> Box<dyn Store> {
    let builder = Database::builder()
        .protocol::<P>()
        .table::<Plain>()
        .table::<Hashed>()
        .htm(opening.htm.0)
        .htm_retry_policy(opening.htm.1)
        .record_history(opening.records);
    let database = builder.open().expect("a database opens");
    let tables = PlainTables {
        ordered: database.table().expect("it was added"),
        hashed: database.table().expect("it was added"),
    };
    let options = TransactionOptions::new().retries_max(RETRIES_MAX);
    Box::new(Opened { database, tables, options })
}

struct Running<'a, P: Protocol, T> {
    tables: &'a T,
    transaction: &'a Transaction<'a, P>,
}

struct Owned<'a, P: Protocol, T> {
    tables: &'a T,
    transaction: Transaction<'a, P>,
}

struct Looking<'a, T> {
    tables: &'a T,
    snapshot: Snapshot,
}

impl<P: Protocol, T: Takes<P>> Store for Opened<P, T> {
    fn begin(&self) -> Box<dyn Begun + '_> {
        let transaction = self.database.begin().expect("a transaction begins");
        Box::new(Owned { tables: &self.tables, transaction })
    }

    fn open_snapshot(&self, of: Moment) -> Box<dyn Begun + '_> {
        let opened = match of {
            Moment::Now => self.database.open_snapshot(),
            Moment::Recent => self.database.open_recent_snapshot(),
        };
        let snapshot = opened.expect("a snapshot opens");
        Box::new(Looking { tables: &self.tables, snapshot })
    }

    fn transact(&self, body: &mut Body<'_>) -> Result<(), Stop> {
        self.database.transact_with(&self.options, |transaction| {
            body(&Running { tables: &self.tables, transaction })
        })
    }

    fn stash(&self, capacity: usize) -> Option<Box<dyn SetsAside + '_>> {
        let stash = self.database.stash(capacity).options(self.options.clone());
        P::SPLITS.then(|| Box::new(Aside { stash, tables: &self.tables }) as Box<dyn SetsAside>)
    }

    fn take_history(&self) -> History {
        self.database.take_history()
    }
}

struct Aside<'a, P: Protocol, T> {
    stash: Stash<usize, P>,
    tables: &'a T,
}

impl<P: Protocol, T: Takes<P>> SetsAside for Aside<'_, P, T> {
    fn transact(&mut self, number: usize, body: &mut Body<'_>) -> Option<Result<(), Stop>> {
        let tables = self.tables;
        let run = |transaction: &Transaction<'_, P>, _: &mut usize| {
            body(&Running { tables, transaction })
        };
        self.stash.transact(number, run).map(|(_number, result)| result)
    }

    fn take_due(&mut self) -> Option<usize> {
        self.stash.take_due()
    }

    fn wait(&self) -> bool {
        self.stash.wait().expect("the database is open");
        !self.stash.is_empty()
    }
}

impl<P: Protocol, T: Takes<P>> Steps for Running<'_, P, T> {
    fn take(&self, step: Step) -> Result<Shown, Error> {
        self.tables.take(self.transaction, step)
    }
}

impl<P: Protocol, T: Takes<P>> Steps for Owned<'_, P, T> {
    fn take(&self, step: Step) -> Result<Shown, Error> {
        self.tables.take(&self.transaction, step)
    }
}

impl<P: Protocol, T: Takes<P>> Begun for Owned<'_, P, T> {
    fn commit(self: Box<Self>) -> Result<(), Error> {
        self.transaction.commit().map(|_token| ())
    }
}

impl<T: Looks> Steps for Looking<'_, T> {
    fn take(&self, step: Step) -> Result<Shown, Error> {
        self.tables.look(&self.snapshot, step)
    }
}

impl<T: Looks> Begun for Looking<'_, T> {
    fn commit(self: Box<Self>) -> Result<(), Error> {
        Ok(())
    }
}

impl<P: Protocol> Takes<P> for PlainTables {
    fn take(&self, tx: &Transaction<'_, P>, step: Step) -> Result<Shown, Error> {
        Ok(match step {
            Step::Read(key) if key >= HASHED => one(tx.get(&self.hashed, &key)?.map(hashed_row)),
            Step::Read(key) => one(tx.get(&self.ordered, &key)?.map(plain_row)),
            Step::Write(key, value) => Shown::Happened(match key >= HASHED {
                true => tx.update(&self.hashed, &key, |row| row.value = value)?.is_some(),
                false => tx.update(&self.ordered, &key, |row| row.value = value)?.is_some(),
            }),
            Step::Add(key, amount) => happened_if_there(match key >= HASHED {
                true => tx.add(&self.hashed, &key, column_of!(Hashed.value), amount),
                false => tx.add(&self.ordered, &key, column_of!(Plain.value), amount),
            })?,
            Step::Insert(key, value) => happened_unless_there(match key >= HASHED {
                true => tx.insert(&self.hashed, Hashed { key, value }),
                false => tx.insert(&self.ordered, Plain { key, value }),
            })?,
            Step::Upsert(key, value) => Shown::Happened(match key >= HASHED {
                true => tx.upsert(&self.hashed, Hashed { key, value })?,
                false => tx.upsert(&self.ordered, Plain { key, value })?,
            }),
            Step::Delete(key) => Shown::Happened(match key >= HASHED {
                true => tx.delete(&self.hashed, &key)?,
                false => tx.delete(&self.ordered, &key)?,
            }),
            other => unreachable!("{other:?} is not for tables without indexes"),
        })
    }
}

impl Looks for PlainTables {
    fn look(&self, snapshot: &Snapshot, step: Step) -> Result<Shown, Error> {
        Ok(match step {
            Step::Read(key) if key >= HASHED => {
                one(snapshot.get(&self.hashed, &key)?.map(hashed_row))
            }
            Step::Read(key) => one(snapshot.get(&self.ordered, &key)?.map(plain_row)),
            Step::Scan(from, to) => all(snapshot.range(&self.ordered, from..to), plain_row)?,
            Step::ScanBack(from, to) => {
                reversed(all(snapshot.range(&self.ordered, from..to).descending(), plain_row)?)
            }
            other => unreachable!("{other:?} is not for snapshots of tables without indexes"),
        })
    }
}

impl<P: Protocol> Takes<P> for Tables {
    fn take(&self, tx: &Transaction<'_, P>, step: Step) -> Result<Shown, Error> {
        Ok(match step {
            Step::Read(key) if key >= HASHED => one(tx.get(&self.hashed, &key)?.map(hashed_row)),
            Step::Read(key) => one(tx.get(&self.ordered, &key)?.map(row)),
            Step::ReadByBadge(key) => {
                one(tx.get_by(&self.ordered, Ordered::BADGE, &badge(key))?.map(row))
            }
            Step::Write(key, value) if key >= HASHED => {
                let changed = tx.update(&self.hashed, &key, |row| row.value = value)?;
                Shown::Happened(changed.is_some())
            }
            Step::Write(key, value) => self.change(tx, key, |row| row.value = value)?,
            Step::AddIfNotNegative(key, amount) => {
                self.change(tx, key, |row| row.value += amount)?
            }
            Step::Add(key, amount) => happened_if_there(match key >= HASHED {
                true => tx.add(&self.hashed, &key, column_of!(Hashed.value), amount),
                false => tx.add(&self.ordered, &key, column_of!(Ordered.value), amount),
            })?,
            Step::Move(key, group) => self.change(tx, key, |row| row.group = group)?,
            Step::Insert(key, value) => happened_unless_there(match key >= HASHED {
                true => tx.insert(&self.hashed, Hashed { key, value }),
                false => tx.insert(&self.ordered, Ordered::new(key, value)),
            })?,
            Step::Upsert(key, value) => Shown::Happened(match key >= HASHED {
                true => tx.upsert(&self.hashed, Hashed { key, value })?,
                false => tx.upsert(&self.ordered, Ordered::new(key, value))?,
            }),
            Step::Delete(key) => Shown::Happened(match key >= HASHED {
                true => tx.delete(&self.hashed, &key)?,
                false => tx.delete(&self.ordered, &key)?,
            }),
            Step::Scan(from, to) => all(tx.range(&self.ordered, from..to), row)?,
            Step::ScanBack(from, to) => {
                reversed(all(tx.range(&self.ordered, from..to).descending(), row)?)
            }
            Step::ScanGroup(group) => {
                all(tx.prefix_by(&self.ordered, Ordered::GROUP, &group), row)?
            }
            Step::Snapshot | Step::Commit => {
                unreachable!("who has begun the transaction begins and commits it")
            }
        })
    }
}

impl Looks for Tables {
    fn look(&self, snapshot: &Snapshot, step: Step) -> Result<Shown, Error> {
        Ok(match step {
            Step::Read(key) if key >= HASHED => {
                one(snapshot.get(&self.hashed, &key)?.map(hashed_row))
            }
            Step::Read(key) => one(snapshot.get(&self.ordered, &key)?.map(row)),
            Step::ReadByBadge(key) => {
                one(snapshot.get_by(&self.ordered, Ordered::BADGE, &badge(key))?.map(row))
            }
            Step::Scan(from, to) => all(snapshot.range(&self.ordered, from..to), row)?,
            Step::ScanBack(from, to) => {
                reversed(all(snapshot.range(&self.ordered, from..to).descending(), row)?)
            }
            Step::ScanGroup(group) => {
                all(snapshot.prefix_by(&self.ordered, Ordered::GROUP, &group), row)?
            }
            other => unreachable!("{other:?} is not for snapshots"),
        })
    }
}

impl Tables {
    /// Updates a row of the ordered table, unless that breaks its constraint.
    fn change<P: Protocol>(
        &self,
        tx: &Transaction<'_, P>,
        key: u64,
        change: impl FnOnce(&mut Ordered),
    ) -> Result<Shown, Error> {
        match tx.update(&self.ordered, &key, change) {
            Ok(changed) => Ok(Shown::Happened(changed.is_some())),
            Err(Error::Failure(Failure::Constraint { .. })) => Ok(Shown::Happened(false)),
            Err(error) => Err(error),
        }
    }
}

fn happened_if_there(result: Result<(), Error>) -> Result<Shown, Error> {
    match result {
        Ok(()) => Ok(Shown::Happened(true)),
        Err(Error::Failure(Failure::NoSuchRow { .. })) => Ok(Shown::Happened(false)),
        Err(error) => Err(error),
    }
}

fn happened_unless_there(inserted: Result<(), Error>) -> Result<Shown, Error> {
    match inserted {
        Ok(()) => Ok(Shown::Happened(true)),
        Err(Error::Failure(Failure::DuplicateKey { .. })) => Ok(Shown::Happened(false)),
        Err(error) => Err(error),
    }
}

fn row(row: &Ordered) -> Row {
    Row { key: row.key, value: row.value, group: row.group }
}

fn plain_row(row: &Plain) -> Row {
    Row::new(row.key, row.value)
}

fn hashed_row(row: &Hashed) -> Row {
    Row { key: row.key, value: row.value, group: 0 }
}

fn one(row: Option<Row>) -> Shown {
    Shown::Rows(row.into_iter().collect())
}

fn all<'t, T: 't, E>(
    scan: impl Iterator<Item = Result<&'t T, E>>,
    row: impl Fn(&T) -> Row,
) -> Result<Shown, Error>
where
    Error: From<E>,
{
    Ok(Shown::Rows(scan.map(|found| found.map(&row)).collect::<Result<_, _>>()?))
}

fn reversed(mut shown: Shown) -> Shown {
    shown.reverse();
    shown
}
