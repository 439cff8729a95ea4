//! Subjects of the tests: a database under some protocol, behind an interface that hides the protocol's type.
//!
//! The checks of this crate are written once, against [`Store`] and [`Steps`]. Only this file is compiled for
//! each protocol and for each mutation of the canary.

mod calls;
mod expiring;
mod tables;

use std::fmt;

use weft::OperationFlaw;
use weft::history::History;
use weft::htm::{Choice, RetryPolicy};
use weft::protocol::{Dbx, Protocol};
use weft::sync::time::TimeFlaw;
use weft::{
    Builder, Database, Error, Failure, Record, Snapshot, Stash, Table, Transaction,
    TransactionOptions, column_of,
};
use weft_protocols::canary::{Canary, Mutation};
use weft_protocols::{
    Adaptive, AdaptiveFlaw, AdaptiveOptions, BuilderExt, DbxPaper, DbxPaperOptions, DbxTc, Doppel,
    DoppelFlaw, Flaw, HotRecords, Htcc, HtccFlaw, HtccOptions, Merging, PhaseOptions,
    coordinator_of,
};

pub use calls::{Call, JOURNAL, ProcedureStore, SHARED_ENTRIES, StepLog};
pub use expiring::{ExpiringSteps, ExpiringStore};
use tables::Tables;

use crate::machine::REGIONS;
use crate::procedures::OperationSet;
use crate::step::{HASHED, Row, Step, StepResult};

/// A row of the hash table.
#[derive(Clone, Copy, Debug, Record)]
#[record(storage = "hash")]
struct Hashed {
    #[record(key)]
    key: u64,
    value: i64,
    /// At least [`MARK_MIN`](crate::step::MARK_MIN).
    #[record(min = -4_194_304)]
    mark: i64,
}

impl Hashed {
    fn new(key: u64, value: i64) -> Self {
        Hashed { key, value, mark: 0 }
    }
}

/// A row of an ordered table without secondary indexes.
#[derive(Clone, Copy, Debug, Record)]
struct Plain {
    #[record(key)]
    key: u64,
    value: i64,
}

/// A protocol to test.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    /// Its name.
    pub name: &'static str,
    /// How many threads it supports.
    pub threads_max: usize,
    /// Whether it only makes single operations on single rows atomic. Then its tables have no secondary
    /// indexes, and each transaction has one step.
    pub single_key: bool,
    /// Whether it has snapshots: some canaries do not.
    pub has_snapshots: bool,
    /// The mutation of a canary.
    mutation: Mutation,
    /// The name of the way in which regions run. Empty on a machine with only one way.
    pub regions: &'static str,
    htm: (Choice, RetryPolicy),
    open: fn(Opening) -> Box<dyn Store>,
    open_expiring: fn(Opening) -> Box<dyn ExpiringStore>,
    open_procedures: fn(Opening, OperationSet) -> Box<dyn ProcedureStore>,
    /// The flaw of a protocol with procedures in pieces.
    flaw: Option<Flaw>,
    /// The flaw of the protocol that adapts.
    adaptive_flaw: Option<AdaptiveFlaw>,
    /// The mechanisms of the paper's DBX, with its flaw.
    paper: Option<DbxPaperOptions>,
    /// The options of a variant of a protocol with phases.
    phases: Option<PhaseOptions>,
    /// The mechanisms of the paper's HTCC, with a flaw perhaps.
    htcc: Option<HtccMechanisms>,
    /// Flaws of the engine.
    time_flaw: Option<TimeFlaw>,
    operation_flaw: Option<OperationFlaw>,
}

/// How a store is opened.
#[derive(Clone, Copy, Debug)]
struct Opening {
    /// Whether the history is recorded.
    records: bool,
    /// The seed of decisions that are forced on the protocol that adapts.
    seed: u64,
    htm: (Choice, RetryPolicy),
    cut: Cut,
    flaw: Option<Flaw>,
    adaptive_flaw: Option<AdaptiveFlaw>,
    paper: Option<DbxPaperOptions>,
    phases: Option<PhaseOptions>,
    htcc: Option<HtccMechanisms>,
    time_flaw: Option<TimeFlaw>,
    operation_flaw: Option<OperationFlaw>,
}

impl Opening {
    /// Sets the options of a variant of a paper, and those of the protocol that adapts.
    fn add_variant<P: Protocol>(&self, builder: Builder<P>) -> Builder<P> {
        let mut adaptive = AdaptiveOptions::new();
        adaptive.forced_by_seed = adaptive.forced_by_seed.map(|_| self.seed);
        adaptive.flaw = self.adaptive_flaw;
        let builder = builder.adaptive(adaptive);
        let builder = match self.phases {
            Some(phases) => builder.phases(phases),
            None => builder,
        };
        match self.htcc {
            Some(mechanisms) => builder.htcc(mechanisms.options()),
            None => builder,
        }
    }
}

/// Which records are hot under the paper's HTCC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HotSet {
    /// Those with conflicts.
    #[default]
    Contended,
    /// All.
    All,
    /// Those of the hash table.
    HashTable,
}

/// The mechanisms of the paper's HTCC.
#[derive(Clone, Copy, Debug, Default)]
pub struct HtccMechanisms {
    /// [`HtccOptions::binding_locks`].
    pub binding_locks: bool,
    /// [`HtccOptions::two_phase_flip`].
    pub two_phase_flip: bool,
    /// [`HtccOptions::background`].
    pub background: bool,
    /// [`HtccOptions::dependencies`].
    pub dependencies: bool,
    /// Which records are hot.
    pub hot: HotSet,
    /// The flaw.
    pub flaw: Option<HtccFlaw>,
}

impl HtccMechanisms {
    /// All mechanisms of the paper.
    pub const ALL: HtccMechanisms = HtccMechanisms {
        binding_locks: true,
        two_phase_flip: true,
        background: true,
        dependencies: true,
        hot: HotSet::Contended,
        flaw: None,
    };

    /// The same without a thread of its own, which few checks run. So records become hot in all of them.
    pub const BY_WORKERS: HtccMechanisms = HtccMechanisms { background: false, ..Self::ALL };

    fn options(self) -> HtccOptions {
        let mut options = HtccOptions::new()
            .binding_locks(self.binding_locks)
            .two_phase_flip(self.two_phase_flip)
            .background(self.background)
            .dependencies(self.dependencies)
            .hot(match self.hot {
                HotSet::Contended => HotRecords::Automatic,
                HotSet::All => HotRecords::All,
                HotSet::HashTable => HotRecords::Tables(vec![Hashed::TABLE.to_owned()]),
            });
        options.flaw = self.flaw;
        options
    }
}

/// How procedures are cut into pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Pieces that conflict with no other transaction join their neighbours.
    Joined,
    /// Each piece commits separately.
    Finest,
    /// Each piece commits separately, as a region if it can be one.
    Regions,
    /// The same, with caches for new records, and with fallback locks of partitions.
    Cached,
    /// As regions, and snapshots do not wait for the procedures that are between two pieces.
    Eventual,
}

impl Cut {
    /// Returns one of them for each seed.
    pub fn of_seed(seed: u64) -> Cut {
        [Cut::Finest, Cut::Joined, Cut::Regions, Cut::Cached, Cut::Eventual][(seed % 5) as usize]
    }
}

impl Subject {
    /// Makes the subject for a protocol.
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
            open_expiring: expiring::open::<P>,
            open_procedures: calls::open::<P>,
            flaw: None,
            adaptive_flaw: None,
            paper: None,
            phases: None,
            htcc: None,
            time_flaw: None,
            operation_flaw: None,
        }
    }

    /// Makes the subject for a protocol, to be tested with single steps.
    fn of_single_steps<P: Protocol>() -> Self {
        Subject { open: open_plain::<P>, single_key: true, ..Self::of::<P>() }
    }

    /// Returns every protocol of the engine's list that runs transactions of several rows.
    pub fn all() -> Vec<Self> {
        let listed = |name| {
            weft_protocols::with_protocol!(name, |P| Subject::of::<P>()).expect("a listed name")
        };
        let subjects = chosen_names().map(listed).filter(|subject| !subject.single_key);
        subjects.chain(Self::variants()).flat_map(Subject::with_all_regions).collect()
    }

    /// Returns every protocol of the list, for transactions of a single step on tables without secondary
    /// indexes. Some protocols support nothing else.
    pub fn all_for_single_steps() -> Vec<Self> {
        let listed = |name| {
            weft_protocols::with_protocol!(name, |P| Subject::of_single_steps::<P>())
                .expect("a listed name")
        };
        chosen_names().map(listed).flat_map(Subject::with_all_regions).collect()
    }

    /// Returns the subject with regions run in each way of the machine.
    fn with_all_regions(self) -> impl Iterator<Item = Self> {
        let each = REGIONS.iter();
        each.map(move |&(regions, choice, policy)| Subject {
            regions,
            htm: (choice, policy),
            ..self
        })
    }

    /// Returns the canary with this mutation.
    pub fn canary(mutation: Mutation) -> Self {
        let has_snapshots = mutation.has_snapshots();
        Subject { name: mutation.name(), mutation, has_snapshots, ..Self::of::<Canary>() }
    }

    /// Returns the protocol that commits procedures in pieces, with this flaw.
    pub fn flawed(flaw: Flaw) -> Self {
        Subject { flaw: Some(flaw), ..Self::of::<DbxTc>() }
    }

    /// Returns the protocol that adapts, with this flaw.
    pub fn flawed_adaptive(flaw: AdaptiveFlaw) -> Self {
        Subject { adaptive_flaw: Some(flaw), ..Self::of::<Adaptive>() }
    }

    /// Returns the DBX of the paper with these mechanisms, and maybe a flaw.
    pub fn paper(options: DbxPaperOptions) -> Self {
        Subject { paper: Some(options), ..Self::of::<DbxPaper>() }
    }

    /// Returns a protocol on an engine with this flaw: the default one, or the one with pieces if the flaw is about them.
    pub fn flawed_time(flaw: TimeFlaw) -> Self {
        let of = if flaw == TimeFlaw::NotHeld { Self::of::<DbxTc> } else { Self::of::<Dbx> };
        Subject { time_flaw: Some(flaw), ..of() }
    }

    /// Returns a protocol on an engine with this flaw: the default one, or the one that repairs if the flaw shows there.
    pub fn flawed_operations(flaw: OperationFlaw) -> Self {
        // In a repair no rows are fetched, so every key has to be looked up.
        let is_for_repairs = flaw == OperationFlaw::AbsentKeysSkipped;
        let of = if is_for_repairs { Self::of::<Htcc> } else { Self::of::<Dbx> };
        Subject { operation_flaw: Some(flaw), ..of() }
    }

    /// Returns the variants with the mechanisms of the papers.
    fn variants() -> impl Iterator<Item = Self> {
        let all = [Self::doppel_paper(None), Self::htcc_paper(HtccMechanisms::BY_WORKERS)];
        all.into_iter().filter(|variant| is_chosen(variant.name))
    }

    /// Returns `doppel` with all mechanisms of its paper, and perhaps with a flaw in them.
    pub fn doppel_paper(flaw: Option<DoppelFlaw>) -> Self {
        let mut options = PhaseOptions::new()
            .merging(Merging::OwnSlices)
            .applies_at_commit(true)
            .has_coordinator(true)
            .has_whole_joined_phases(true)
            .counts_same_time(true);
        options.flaw = flaw;
        Self::doppel_with(options)
    }

    /// Returns `doppel` with some mechanisms of its paper.
    pub fn doppel_with(options: PhaseOptions) -> Self {
        Subject { name: "doppel:paper", phases: Some(options), ..Self::of::<Doppel>() }
    }

    /// Returns `htcc` with some mechanisms of its paper.
    pub fn htcc_paper(mechanisms: HtccMechanisms) -> Self {
        Subject { name: "htcc:paper", htcc: Some(mechanisms), ..Self::of::<Htcc>() }
    }

    /// Returns the protocol of this name, with regions run in the way of this name.
    ///
    /// # Panics
    /// If there is no such protocol or way.
    pub fn named(name: &str, regions: &str) -> Self {
        let of = |name| {
            weft_protocols::with_protocol!(name, |P| Subject::of::<P>()).expect("a protocol's name")
        };
        let mut each = of(name).with_all_regions();
        each.find(|subject| subject.regions == regions).expect("a way in which regions run")
    }

    /// Returns the protocols that run several threads at a time.
    pub fn concurrent() -> Vec<Self> {
        Self::all().into_iter().filter(|subject| subject.threads_max > 1).collect()
    }

    /// Returns `wanted` threads, or as many as the protocol supports.
    pub fn threads(&self, wanted: usize) -> usize {
        wanted.min(self.threads_max)
    }

    /// Opens a database that records its history. Random numbers from `seed` decide what is forced on its protocol.
    pub fn open_recorded(&self, seed: u64) -> Box<dyn Store> {
        self.mutation.chosen_for(|| (self.open)(self.opening(seed, true)))
    }

    /// Opens a database. Random numbers from `seed` decide what is forced on its protocol.
    pub fn open(&self, seed: u64) -> Box<dyn Store> {
        self.mutation.chosen_for(|| (self.open)(self.opening(seed, false)))
    }

    /// Opens a database of rows that expire, by a clock that shows [`START`](crate::expiry::START).
    pub fn open_expiring(&self, seed: u64, records: bool) -> Box<dyn ExpiringStore> {
        (self.open_expiring)(self.opening(seed, records))
    }

    /// Opens a database for procedures.
    pub fn open_procedures(
        &self,
        seed: u64,
        with: OperationSet,
        records: bool,
        cut: Cut,
    ) -> Box<dyn ProcedureStore> {
        (self.open_procedures)(Opening { cut, ..self.opening(seed, records) }, with)
    }

    fn opening(&self, seed: u64, records: bool) -> Opening {
        Opening {
            records,
            seed,
            htm: self.htm,
            cut: Cut::Finest,
            flaw: self.flaw,
            adaptive_flaw: self.adaptive_flaw,
            paper: self.paper,
            phases: self.phases,
            htcc: self.htcc,
            time_flaw: self.time_flaw,
            operation_flaw: self.operation_flaw,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name)?;
        if self.regions.is_empty() { Ok(()) } else { write!(out, ", {}", self.regions) }
    }
}

/// Returns the names of the engine's list, or those among them that the environment variable `WEFT_PROTOCOLS`
/// chooses.
fn chosen_names() -> impl Iterator<Item = &'static str> {
    weft_protocols::NAMES.iter().copied().filter(|name| is_chosen(name))
}

/// Returns whether a protocol or a variant is to be tested.
fn is_chosen(name: &str) -> bool {
    let chosen = std::env::var("WEFT_PROTOCOLS").ok();
    chosen.is_none_or(|chosen| chosen.split(',').any(|one| one == name))
}

/// Prints the subject when a test fails.
#[derive(Debug)]
pub struct NameOnPanic(pub Subject);

impl Drop for NameOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this was protocol {}", self.0);
        }
    }
}

/// Why a transaction's body ended without a commit.
#[derive(Debug)]
pub enum Stop {
    /// It asked to be rolled back.
    RollBack,
    /// It saw what no transaction may see.
    Broken(String),
    /// The engine returned an error.
    Engine(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Engine(error)
    }
}

/// The body of a transaction, which is run again after conflicts.
pub type Body<'a> = dyn FnMut(&dyn Steps) -> Result<(), Stop> + 'a;

/// Which state a snapshot shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The present state: it includes everything that was committed when the snapshot was opened.
    Now,
    /// A recent state, which other snapshots may share.
    Recent,
}

impl Moment {
    /// Returns one of the two at random.
    pub fn any(random: &mut fastrand::Rng) -> Moment {
        if random.bool() { Moment::Now } else { Moment::Recent }
    }

    /// Returns when a snapshot began that was opened after `opened`, on the clock of the run. A snapshot of a
    /// recent state may have to come before transactions that had ended by then.
    pub fn began(self, opened: usize) -> usize {
        match self {
            Moment::Now => opened,
            Moment::Recent => 0,
        }
    }
}

/// A database.
pub trait Store: Send + Sync {
    /// Begins a transaction that the caller runs and commits.
    fn begin(&self) -> Box<dyn OpenTransaction + '_>;

    /// Opens a snapshot of the present state, or of a [recent](Database::open_recent_snapshot) one. It takes
    /// only steps that read. `commit` closes it.
    fn open_snapshot(&self, of: Moment) -> Box<dyn OpenTransaction + '_>;

    /// Runs a transaction until it commits.
    ///
    /// # Errors
    /// The error of `body`, or too many conflicts in a row.
    fn transact(&self, body: &mut Body<'_>) -> Result<(), Stop>;

    /// Runs a transaction of these steps until it commits, and then perhaps rolls it back. Returns the steps that were
    /// taken, with what they showed. If the tables have a procedure, it is executed, and a step may be on another key:
    /// see [`Step::shifted`].
    ///
    /// # Errors
    /// [`Stop::RollBack`], or too many conflicts in a row.
    fn transact_steps(&self, steps: &[Step], keys: u64, rolls_back: bool) -> Result<StepLog, Stop>;

    /// Returns a stash for the numbers of at most `capacity` transactions. `None` if the protocol never sets
    /// transactions aside.
    fn stash(&self, capacity: usize) -> Option<Box<dyn TransactionStash + '_>>;

    /// Changes the phases of a variant that has a coordinator, until `goes_on` returns `false`. Returns whether it has one.
    fn coordinate(&self, goes_on: &dyn Fn() -> bool) -> bool;

    /// Returns the history so far. Nothing may be running.
    fn take_history(&self) -> History;
}

/// The stash of one thread: see [`weft::Stash`].
pub trait TransactionStash {
    /// Runs a transaction until it commits. Returns `None` if it was set aside under this number.
    fn transact(&mut self, number: usize, body: &mut Body<'_>) -> Option<Result<(), Stop>>;

    /// Returns the number of a transaction that was set aside and can run now.
    fn take_due(&mut self) -> Option<usize>;

    /// Waits until a transaction can run, or none is set aside. Returns whether one can run.
    fn wait(&self) -> bool;
}

/// A transaction or snapshot, as its body sees it.
pub trait Steps {
    /// Takes a step.
    ///
    /// # Errors
    /// Conflicts, and errors that the step does not expect.
    fn take(&self, step: Step) -> Result<StepResult, Error>;
}

/// A transaction that its owner commits, or drops.
pub trait OpenTransaction: Steps {
    /// Commits.
    ///
    /// # Errors
    /// A conflict.
    fn commit(self: Box<Self>) -> Result<(), Error>;
}

/// How many retries a transaction gets. None needs that many: the engine promises that every transaction gets
/// through.
const RETRIES_MAX: u32 = 2000;

/// The tables for transactions of a single step.
struct PlainTables {
    ordered: Table<Plain>,
    hashed: Table<Hashed>,
}

/// Tables on which transactions take steps.
trait StepTaker<P: Protocol>: StepReader {
    fn take(&self, tx: &Transaction<'_, P>, step: Step) -> Result<StepResult, Error>;

    /// Runs a transaction of these steps: as a procedure, if the tables have one.
    fn transact(&self, on: &WholeTransaction<'_, P>) -> Result<StepLog, Stop> {
        on.database.transact_with(on.options, |tx| {
            let take = |&step: &Step| Ok((step, self.take(tx, step)?));
            let log = on.steps.iter().map(take).collect::<Result<StepLog, Stop>>()?;
            if on.rolls_back { Err(Stop::RollBack) } else { Ok(log) }
        })
    }
}

/// A transaction whose steps are given.
struct WholeTransaction<'a, P: Protocol> {
    database: &'a Database<P>,
    options: &'a TransactionOptions,
    steps: &'a [Step],
    keys: u64,
    rolls_back: bool,
}

trait StepReader: Send + Sync {
    /// Takes a step of a snapshot.
    fn look(&self, snapshot: &Snapshot, step: Step) -> Result<StepResult, Error>;
}

struct OpenStore<P: Protocol, T> {
    database: Database<P>,
    tables: T,
    options: TransactionOptions,
}

fn open<P: Protocol>(opening: Opening) -> Box<dyn Store> {
    let builder = Tables::add_to(Database::builder().protocol::<P>())
        .dbx_paper(opening.paper.unwrap_or_default())
        .operation_flaw(opening.operation_flaw)
        .htm(opening.htm.0)
        .htm_retry_policy(opening.htm.1)
        .record_history(opening.records);
    let builder = opening.add_variant(builder);
    let database = builder.open().expect("a database opens");
    let tables = Tables::of(&database);
    let options = TransactionOptions::new().retries_max(RETRIES_MAX);
    Box::new(OpenStore { database, tables, options })
}

fn open_plain<P: Protocol>(opening: Opening) -> Box<dyn Store> {
    let builder = Database::builder()
        .protocol::<P>()
        .table::<Plain>()
        .table::<Hashed>()
        .dbx_paper(opening.paper.unwrap_or_default())
        .htm(opening.htm.0)
        .htm_retry_policy(opening.htm.1)
        .record_history(opening.records);
    let database = opening.add_variant(builder).open().expect("a database opens");
    let tables = PlainTables {
        ordered: database.table().expect("it was added"),
        hashed: database.table().expect("it was added"),
    };
    let options = TransactionOptions::new().retries_max(RETRIES_MAX);
    Box::new(OpenStore { database, tables, options })
}

struct BorrowedTransaction<'a, P: Protocol, T> {
    tables: &'a T,
    transaction: &'a Transaction<'a, P>,
}

struct OwnedTransaction<'a, P: Protocol, T> {
    tables: &'a T,
    transaction: Transaction<'a, P>,
}

struct OpenSnapshot<'a, T> {
    tables: &'a T,
    snapshot: Snapshot,
}

impl<P: Protocol, T: StepTaker<P>> Store for OpenStore<P, T> {
    fn begin(&self) -> Box<dyn OpenTransaction + '_> {
        let transaction = self.database.begin().expect("a transaction begins");
        Box::new(OwnedTransaction { tables: &self.tables, transaction })
    }

    fn open_snapshot(&self, of: Moment) -> Box<dyn OpenTransaction + '_> {
        let opened = match of {
            Moment::Now => self.database.open_snapshot(),
            Moment::Recent => self.database.open_recent_snapshot(),
        };
        let snapshot = opened.expect("a snapshot opens");
        Box::new(OpenSnapshot { tables: &self.tables, snapshot })
    }

    fn transact(&self, body: &mut Body<'_>) -> Result<(), Stop> {
        self.database.transact_with(&self.options, |transaction| {
            body(&BorrowedTransaction { tables: &self.tables, transaction })
        })
    }

    fn transact_steps(&self, steps: &[Step], keys: u64, rolls_back: bool) -> Result<StepLog, Stop> {
        let (database, options) = (&self.database, &self.options);
        self.tables.transact(&WholeTransaction { database, options, steps, keys, rolls_back })
    }

    fn stash(&self, capacity: usize) -> Option<Box<dyn TransactionStash + '_>> {
        let stash = self.database.stash(capacity).options(self.options.clone());
        P::SPLITS.then(|| {
            Box::new(OpenStash { stash, tables: &self.tables }) as Box<dyn TransactionStash>
        })
    }

    fn coordinate(&self, goes_on: &dyn Fn() -> bool) -> bool {
        let coordinated =
            coordinator_of(&self.database).map(|database| database.coordinate(goes_on));
        coordinated.map(|ended| ended.expect("the database is open")).is_some()
    }

    fn take_history(&self) -> History {
        self.database.take_history()
    }
}

struct OpenStash<'a, P: Protocol, T> {
    stash: Stash<usize, P>,
    tables: &'a T,
}

impl<P: Protocol, T: StepTaker<P>> TransactionStash for OpenStash<'_, P, T> {
    fn transact(&mut self, number: usize, body: &mut Body<'_>) -> Option<Result<(), Stop>> {
        let tables = self.tables;
        let run = |transaction: &Transaction<'_, P>, _: &mut usize| {
            body(&BorrowedTransaction { tables, transaction })
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

impl<P: Protocol, T: StepTaker<P>> Steps for BorrowedTransaction<'_, P, T> {
    fn take(&self, step: Step) -> Result<StepResult, Error> {
        self.tables.take(self.transaction, step)
    }
}

impl<P: Protocol, T: StepTaker<P>> Steps for OwnedTransaction<'_, P, T> {
    fn take(&self, step: Step) -> Result<StepResult, Error> {
        self.tables.take(&self.transaction, step)
    }
}

impl<P: Protocol, T: StepTaker<P>> OpenTransaction for OwnedTransaction<'_, P, T> {
    fn commit(self: Box<Self>) -> Result<(), Error> {
        self.transaction.commit().map(|_token| ())
    }
}

impl<T: StepReader> Steps for OpenSnapshot<'_, T> {
    fn take(&self, step: Step) -> Result<StepResult, Error> {
        self.tables.look(&self.snapshot, step)
    }
}

impl<T: StepReader> OpenTransaction for OpenSnapshot<'_, T> {
    fn commit(self: Box<Self>) -> Result<(), Error> {
        Ok(())
    }
}

impl<P: Protocol> StepTaker<P> for PlainTables {
    fn take(&self, tx: &Transaction<'_, P>, step: Step) -> Result<StepResult, Error> {
        Ok(match step {
            Step::Read(key) if key >= HASHED => one(tx.get(&self.hashed, &key)?.map(hashed_row)),
            Step::Read(key) => one(tx.get(&self.ordered, &key)?.map(plain_row)),
            Step::Write(key, value) => StepResult::Happened(match key >= HASHED {
                true => tx.update(&self.hashed, &key, |row| row.value = value)?.is_some(),
                false => tx.update(&self.ordered, &key, |row| row.value = value)?.is_some(),
            }),
            Step::Add(key, amount) => happened_if_there(match key >= HASHED {
                true => tx.add(&self.hashed, &key, column_of!(Hashed.value), amount),
                false => tx.add(&self.ordered, &key, column_of!(Plain.value), amount),
            })?,
            Step::Take(key, amount) => {
                let mark = column_of!(Hashed.mark);
                happened_if_enough(match amount < 0 {
                    true => tx.give(&self.hashed, &key, mark, -amount),
                    false => tx.take(&self.hashed, &key, mark, amount),
                })?
            }
            Step::Insert(key, value) => happened_unless_there(match key >= HASHED {
                true => tx.insert(&self.hashed, Hashed::new(key, value)),
                false => tx.insert(&self.ordered, Plain { key, value }),
            })?,
            Step::Upsert(key, value) => StepResult::Happened(match key >= HASHED {
                true => tx.upsert(&self.hashed, Hashed::new(key, value))?,
                false => tx.upsert(&self.ordered, Plain { key, value })?,
            }),
            Step::Delete(key) => StepResult::Happened(match key >= HASHED {
                true => tx.delete(&self.hashed, &key)?,
                false => tx.delete(&self.ordered, &key)?,
            }),
            other => unreachable!("{other:?} is not for tables without indexes"),
        })
    }
}

impl StepReader for PlainTables {
    fn look(&self, snapshot: &Snapshot, step: Step) -> Result<StepResult, Error> {
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

fn happened_if_allowed(changed: Result<Option<()>, Error>) -> Result<StepResult, Error> {
    match changed {
        Ok(changed) => Ok(StepResult::Happened(changed.is_some())),
        Err(Error::Failure(Failure::Constraint { .. })) => Ok(StepResult::Happened(false)),
        Err(error) => Err(error),
    }
}

fn happened_if_there(result: Result<(), Error>) -> Result<StepResult, Error> {
    match result {
        Ok(()) => Ok(StepResult::Happened(true)),
        Err(Error::Failure(Failure::NoSuchRow { .. })) => Ok(StepResult::Happened(false)),
        Err(error) => Err(error),
    }
}

fn happened_if_enough(result: Result<(), Error>) -> Result<StepResult, Error> {
    match result {
        Err(Error::Failure(Failure::NotEnough { .. })) => Ok(StepResult::Happened(false)),
        result => happened_if_there(result),
    }
}

fn happened_unless_there(inserted: Result<(), Error>) -> Result<StepResult, Error> {
    match inserted {
        Ok(()) => Ok(StepResult::Happened(true)),
        Err(Error::Failure(Failure::DuplicateKey { .. })) => Ok(StepResult::Happened(false)),
        Err(error) => Err(error),
    }
}

fn plain_row(row: &Plain) -> Row {
    Row::new(row.key, row.value)
}

fn hashed_row(row: &Hashed) -> Row {
    Row { key: row.key, value: row.value, group: 0, mark: row.mark }
}

fn one(row: Option<Row>) -> StepResult {
    StepResult::Rows(row.into_iter().collect())
}

fn all<'t, T: 't, E>(
    scan: impl Iterator<Item = Result<&'t T, E>>,
    row: impl Fn(&T) -> Row,
) -> Result<StepResult, Error>
where
    Error: From<E>,
{
    Ok(StepResult::Rows(scan.map(|found| found.map(&row)).collect::<Result<_, _>>()?))
}

fn reversed(mut shown: StepResult) -> StepResult {
    shown.reverse();
    shown
}
