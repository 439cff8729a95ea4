//! The workload of a database of hostile types, and a model of its contents.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::{Bound, RangeBounds};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use weft::durability::SimulatedDisk;
use weft::operation::{Add, Ordered};
use weft::protocol::Protocol;
use weft::{
    Acknowledge, Database, DurabilityOptions, Error, Failure, ManualClock, Record, Snapshot, Table,
    Timestamp, Transaction, TransactionOptions, column_of,
};
use weft_htm::blocking::Mutex;
use weft_inspect::{InspectBuilder, InspectDatabase};
use weft_procedures::procedure;
use weft_procedures::{Execute, Procedure};
use weft_protocols::{
    Adaptive, AdaptiveOptions, BuilderExt, DbxTcOptions, Doppel, DoppelLocking, HtccOptions,
    HtmNaive, LabelledDatabase, PhaseOptions,
};

use crate::hook::{Answer, Misbehaved, Misbehaviour, Operation, called, quietly, with_transaction};
use crate::live::violation;
use crate::types::{
    Content, Indexed, Mark, PlainBare, PlainDue, PlainExpiring, PlainTotal, Prefix, Refusal, Row,
    RowBare, RowDue, RowExpiring, RowHashed, RowTotal, Short,
};

/// A row of an honest type, which transactions write along with hostile ones.
#[derive(Clone, Copy, Debug, PartialEq, Record)]
pub struct Pair {
    #[record(key)]
    id: u32,
    value: u64,
}

/// The two honest rows to which each writing step of the workload assigns its number.
const PAIR: [u32; 2] = [0, 1];
/// The honest row that counts transactions of the second thread.
const OTHERS: u32 = 10;
/// The honest row that counts transactions that user code has run.
const REENTERED: u32 = 11;
/// The honest row that user code writes through the current transaction.
const TOUCHED: u32 = 12;
/// The honest row that counts procedures.
const POSTED: u32 = 13;
/// The honest row that counts rows whose hook has run.
const HOOKED: u32 = 15;
/// The honest row of threads that check whether the database works.
pub const PROBE: u32 = 14;

/// The protocols that apply operations again when a commit fails.
const REAPPLYING: [&str; 4] = ["dbx", "silo", "occ", "dbx-spin"];

/// The rows that have been acknowledged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    pair: u64,
    rows: BTreeMap<u32, Content>,
    hashed: BTreeMap<u32, Content>,
    bare: BTreeMap<u32, i64>,
    has_total: bool,
}

type ContentOf = fn(&mut Model) -> &mut BTreeMap<u32, Content>;

/// A procedure that changes a hostile row, and adds to another and to an honest one.
#[procedure(Post)]
fn post<P: Protocol>(
    bare: &Table<RowBare>,
    totals: &Table<RowTotal>,
    pairs: &Table<Pair>,
    tx: &Transaction<'_, P>,
    source: Short,
    target: Short,
    counted: u32,
) -> Result<i64, Error> {
    let _ = called(Operation::TransactionBody);
    let before = tx.get(bare, &source)?.map_or(0, |row| row.count);
    tx.update(bare, &source, |row| row.count += 1)?;
    tx.update(totals, &target, |row| row.sum += 1)?;
    tx.update(pairs, &counted, |pair| pair.value += 1)?;
    Ok(before)
}

/// Everything that has been acknowledged, which the database must hold now and after reopening.
#[derive(Default)]
pub struct Acknowledged {
    model: Mutex<Model>,
    steps: AtomicU64,
    /// The number of committed transactions of the second thread.
    others: AtomicU64,
    /// The number of committed transactions of user code.
    reentered: AtomicU64,
    /// The number of committed procedures.
    posted: AtomicU64,
    /// The number of committed rows with a hook.
    due: AtomicU64,
    /// Whether a procedure may have committed some of its pieces.
    is_halfway: AtomicBool,
}

/// Reads the row that [`post`] adds to, and conflicts with it nowhere else, so that the addition can be deferred.
#[procedure(Audit)]
fn audit<P: Protocol>(
    totals: &Table<RowTotal>,
    others: &Table<Other>,
    tx: &Transaction<'_, P>,
    target: Short,
    number: u32,
) -> Result<i64, Error> {
    let sum = tx.get(totals, &target)?.map_or(0, |row| row.sum.0);
    tx.insert(others, Other { id: number })?;
    Ok(sum)
}

/// A row that audits insert.
#[derive(Clone, Copy, Record)]
#[record(table = "other")]
struct Other {
    #[record(key)]
    id: u32,
}

pub struct World<P: Protocol> {
    pub database: Database<P>,
    /// Tables with secondary indexes, unless the protocol has none.
    indexed: Option<(Table<Row>, Table<RowHashed>)>,
    /// Tables of rows that expire, unless the protocol has no secondary indexes.
    expiring: Option<(Table<RowExpiring>, Table<RowDue>)>,
    bare: Table<RowBare>,
    totals: Table<RowTotal>,
    others: Table<Other>,
    pub pairs: Table<Pair>,
    pub acknowledged: Arc<Acknowledged>,
    /// Whether the types answer truthfully, so that rows can be compared with the model.
    is_truthful: bool,
}

/// The time of the database.
const NOW: Timestamp = Timestamp::from_millis(1000);

/// The deadline of a step of the workload.
const STEP: Duration = Duration::from_secs(5);

/// (A transaction that starves holds others back, also while its user code blocks. On a busy machine it can starve
/// after its first conflict.)
fn options() -> TransactionOptions {
    TransactionOptions::new().deadline(STEP).starves_after(STEP)
}

pub fn open<P: Protocol>(disk: Option<Arc<SimulatedDisk>>) -> Result<Database<P>, Failure> {
    let mut builder = Database::builder()
        .protocol::<P>()
        .table::<RowBare>()
        .table::<RowTotal>()
        .table::<Other>()
        .table::<Pair>()
        .workers_max(8)
        .inspect()
        .clock(&ManualClock::new(NOW))
        .phases(PhaseOptions::new().length(Duration::from_millis(2)))
        .htcc(HtccOptions::new().dependencies(true))
        .adaptive(AdaptiveOptions::new().forced_by_seed(Some(0)))
        .dbx_tc(
            DbxTcOptions::new()
                .procedures([Post::<P>::shape(), Audit::<P>::shape()])
                .chopping(weft_procedures::chopping::Options::ALL)
                .finest(true),
        );
    if !P::SINGLE_KEY {
        builder = builder.table::<Row>().table::<RowHashed>();
        builder = builder.table::<RowExpiring>().table::<RowDue>();
    }
    if let Some(disk) = disk {
        let durability = DurabilityOptions::new()
            .acknowledge(Acknowledge::Committed)
            .epoch_interval(Duration::from_millis(1))
            .threads(1);
        builder = builder.directory("/db").durability(durability).backend(disk, false);
    }
    builder.open()
}

/// Reports a panic that this suite has not caused.
fn judge(panic: &(dyn Any + Send), is_truthful: bool, step: &str) {
    if panic.is::<Misbehaved>() {
        return;
    }
    let text = match panic.downcast_ref::<String>() {
        Some(text) => text.as_str(),
        None => panic.downcast_ref::<&str>().copied().unwrap_or("something"),
    };
    // A transaction whose body has caught a panic ends with this message.
    if is_truthful && !text.contains("was left half done") {
        violation(format!("step '{step}': the engine panicked: {text}"));
    }
}

/// A range whose bounds are computed by user code.
struct Range(Short, Short);

impl RangeBounds<Short> for Range {
    fn start_bound(&self) -> Bound<&Short> {
        match called(Operation::RangeBound) {
            Answer::Lie => Bound::Unbounded,
            _ => Bound::Included(&self.0),
        }
    }
    fn end_bound(&self) -> Bound<&Short> {
        match called(Operation::RangeBound) {
            Answer::Lie => Bound::Excluded(&self.0),
            _ => Bound::Included(&self.1),
        }
    }
}

/// Returns keys for prefetching. Each key takes a call of user code.
fn keys<R: Indexed>(ids: impl IntoIterator<Item = u32>) -> impl Iterator<Item = R::Key> {
    ids.into_iter().map(|id| match called(Operation::PrefetchNext) {
        Answer::Lie => R::key_of(id + 1),
        _ => R::key_of(id),
    })
}

/// Returns keys of bare rows. Each key takes a call of user code.
fn keys_of(ids: impl IntoIterator<Item = u32>) -> impl Iterator<Item = Short> {
    ids.into_iter().map(|id| match called(Operation::PrefetchNext) {
        Answer::Lie => Short::new(id + 1),
        _ => Short::new(id),
    })
}

/// Returns an update's closure that sets a row's content.
fn change<R: Indexed>(content: Content) -> impl Fn(&mut R) {
    move |row| match called(Operation::UpdateBody) {
        Answer::Lie => row.set(Content { stamp: content.stamp + 1, ..content }),
        _ => row.set(content),
    }
}

/// As [`Step`], with a function that lets another thread run.
type StepBeside<'a, P> =
    &'a dyn Fn(&Transaction<'_, P>, &mut Model, &dyn Fn()) -> Result<(), Refusal>;

type Step<'a, P> = &'a dyn Fn(&Transaction<'_, P>, &mut Model) -> Result<(), Refusal>;

impl<P: Protocol> World<P> {
    pub fn of(
        database: Database<P>,
        acknowledged: Arc<Acknowledged>,
        is_truthful: bool,
    ) -> World<P> {
        let pairs: Table<Pair> = database.table().unwrap();
        let expiring: Option<(_, Table<RowDue>)> =
            (!P::SINGLE_KEY).then(|| (database.table().unwrap(), database.table().unwrap()));
        if let Some((_, due)) = &expiring {
            let counted = pairs.clone();
            let hook = move |tx: &Transaction<'_, P>, row: &RowDue| {
                if called(Operation::HookBody) == Answer::Lie {
                    return Err(Failure::NoSuchRow { table: "due", key: String::new() }.into());
                }
                let _ = row.stamp;
                tx.update(&counted, &HOOKED, |pair| pair.value += 1).map(drop)
            };
            database.on_expiry(due, hook).unwrap();
        }
        World {
            expiring,
            indexed: (!P::SINGLE_KEY)
                .then(|| (database.table().unwrap(), database.table().unwrap())),
            bare: database.table().unwrap(),
            totals: database.table().unwrap(),
            others: database.table().unwrap(),
            pairs,
            database,
            acknowledged,
            is_truthful,
        }
    }

    /// Returns the action of user code that uses the database itself.
    pub fn act(&self) -> Arc<dyn Fn(Misbehaviour) + Send + Sync> {
        let (database, pairs) = (self.database.clone(), self.pairs.clone());
        let acknowledged = Arc::clone(&self.acknowledged);
        Arc::new(move |misbehaviour| {
            if misbehaviour == Misbehaviour::Close {
                // The call may close the database, or be refused.
                let begun = Instant::now();
                let _ = database.close_within(Duration::from_millis(20));
                if begun.elapsed() > Duration::from_secs(1) {
                    violation("close missed its deadline".to_owned());
                }
                return;
            }
            let bounds = TransactionOptions::new().deadline(Duration::from_millis(200));
            let added: Result<_, Error> = database.transact_with(&bounds, |tx| {
                tx.update(&pairs, &REENTERED, |pair: &mut Pair| pair.value += 1)
            });
            if let Ok(Some(())) = added {
                acknowledged.reentered.fetch_add(1, SeqCst);
            }
            if let Ok(snapshot) = database.open_snapshot() {
                let _ = snapshot.get(&pairs, &REENTERED);
            }
            let _ = database.recent_snapshot(|snapshot| Ok::<_, Error>(snapshot.number()));
            let _ = database.checkpoint();
            let _ = database.metrics();
        })
    }

    // ---- operations: compiled once for each row type, because the suite would compile slowly otherwise

    #[inline(never)]
    fn transact(
        &self,
        body: &dyn Fn(&Transaction<'_, P>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.database.transact_with(&options(), body)
    }

    #[inline(never)]
    fn pair(&self, tx: &Transaction<'_, P>, id: u32) -> Result<Option<u64>, Error> {
        Ok(tx.get(&self.pairs, &id)?.map(|pair| pair.value))
    }

    #[inline(never)]
    fn change_pair(
        &self,
        tx: &Transaction<'_, P>,
        id: u32,
        change: &dyn Fn(&mut Pair),
    ) -> Result<bool, Error> {
        Ok(tx.update(&self.pairs, &id, change)?.is_some())
    }

    #[inline(never)]
    fn get<R: Indexed>(
        tx: &Transaction<'_, P>,
        table: &Table<R>,
        id: u32,
    ) -> Result<Option<Content>, Error> {
        Ok(tx.get(table, &R::key_of(id))?.map(Indexed::content))
    }

    #[inline(never)]
    fn insert<R: Indexed>(
        tx: &Transaction<'_, P>,
        table: &Table<R>,
        id: u32,
        content: Content,
    ) -> Result<(), Error> {
        tx.insert(table, R::make(id, content))
    }

    #[inline(never)]
    fn upsert<R: Indexed>(
        tx: &Transaction<'_, P>,
        table: &Table<R>,
        id: u32,
        content: Content,
    ) -> Result<bool, Error> {
        tx.upsert(table, R::make(id, content))
    }

    #[inline(never)]
    fn update<R: Indexed>(
        tx: &Transaction<'_, P>,
        table: &Table<R>,
        id: u32,
        change: &dyn Fn(&mut R),
    ) -> Result<bool, Error> {
        let key = R::key_of(id);
        let updated = tx.update(table, &key, change);
        // If the test's own key panicked here, a caller that goes on after panics would take the update for undone.
        quietly(|| drop(key));
        Ok(updated?.is_some())
    }

    #[inline(never)]
    fn delete<R: Indexed>(
        tx: &Transaction<'_, P>,
        table: &Table<R>,
        id: u32,
    ) -> Result<bool, Error> {
        let key = R::key_of(id);
        let deleted = tx.delete(table, &key);
        // As in `update`.
        quietly(|| drop(key));
        deleted
    }

    #[inline(never)]
    fn insert_bare(&self, tx: &Transaction<'_, P>, id: u32) -> Result<(), Error> {
        tx.insert(&self.bare, RowBare::from_plain(PlainBare::new(id)))
    }

    #[inline(never)]
    fn bare_count(&self, tx: &Transaction<'_, P>, id: u32) -> Result<Option<i64>, Error> {
        Ok(tx.get(&self.bare, &Short::new(id))?.map(|row| row.count))
    }

    /// Changes a bare row, and returns its new count.
    #[inline(never)]
    fn change_bare(
        &self,
        tx: &Transaction<'_, P>,
        id: u32,
        change: &dyn Fn(&mut RowBare),
    ) -> Result<Option<i64>, Error> {
        tx.update(&self.bare, &Short::new(id), |row| {
            change(row);
            row.count
        })
    }

    fn truthful(&self, is_so: bool, what: impl FnOnce() -> String) {
        if self.is_truthful && !is_so {
            violation(what());
        }
    }

    /// Runs a transaction. If it is acknowledged, the model that its body has updated becomes the expected state.
    fn step(&self, name: &str, body: Step<'_, P>) -> bool {
        let number = self.acknowledged.steps.fetch_add(1, SeqCst) + 1;
        let before = self.acknowledged.model.lock().unwrap().clone();
        let draft = RefCell::new(before.clone());
        let run = |tx: &Transaction<'_, P>| -> Result<(), Refusal> {
            let mut model = before.clone();
            let use_transaction = || self.use_transaction(tx);
            with_transaction(&use_transaction, || {
                if called(Operation::TransactionBody) == Answer::Lie {
                    return Err(Refusal::Refused);
                }
                if !P::SINGLE_KEY {
                    // A single thread writes these two rows, so they differ only if half a transaction is visible.
                    if self.pair(tx, PAIR[0])? != self.pair(tx, PAIR[1])? {
                        violation("half a transaction is visible".to_owned());
                    }
                    self.change_pair(tx, PAIR[0], &|pair| pair.value = number)?;
                }
                body(tx, &mut model)?;
                if !P::SINGLE_KEY {
                    self.change_pair(tx, PAIR[1], &|pair| pair.value = number)?;
                    model.pair = number;
                }
                Ok(())
            })?;
            *draft.borrow_mut() = model;
            Ok(())
        };
        match catch_unwind(AssertUnwindSafe(|| self.database.transact_with(&options(), run))) {
            Ok(Ok(())) => {
                *self.acknowledged.model.lock().unwrap() = draft.into_inner();
                true
            }
            Ok(Err(_)) => false,
            Err(panic) => {
                judge(&*panic, self.is_truthful, name);
                false
            }
        }
    }

    /// The action of user code that uses the current transaction.
    fn use_transaction(&self, tx: &Transaction<'_, P>) {
        if let Some((rows, _)) = &self.indexed {
            let _ = Self::get(tx, rows, 1);
            let _ = Self::update(tx, rows, 2, &|_| ());
            let _ = tx.range(rows, ..).filter(|row| row.is_ok()).count();
        }
        let _ = self.change_pair(tx, TOUCHED, &|pair| pair.value += 1);
        let _ = self.change_bare(tx, 1, &|_| ());
        let _ = self.add(tx, 0);
    }

    #[inline(never)]
    fn add(&self, tx: &Transaction<'_, P>, number: i64) -> Result<(), Error> {
        let (bare, key, count) = (&self.bare, &Short::new(1), column_of!(RowBare.count));
        tx.add(bare, key, count, number - 1)?;
        tx.give(bare, key, count, 2)?;
        tx.take(bare, key, count, 1)
    }

    #[inline(never)]
    fn put(&self, tx: &Transaction<'_, P>, order: i64) -> Result<(), Error> {
        tx.ordered_put(
            &self.bare,
            &Short::new(1),
            column_of!(RowBare.winner),
            order,
            Mark(order as u32),
        )
    }

    fn fill(&self) {
        let filled: Result<(), Error> = quietly(|| {
            [PAIR[0], PAIR[1], OTHERS, REENTERED, TOUCHED, POSTED, HOOKED, PROBE]
                .into_iter()
                .try_for_each(|id| {
                    self.transact(&|tx| tx.insert(&self.pairs, Pair { id, value: 0 }))
                })
        });
        filled.expect("the table of pairs is empty");
    }

    /// Runs the whole workload.
    pub fn run(&self) {
        self.fill();
        match &self.indexed {
            None => self.run_single(),
            Some((rows, hashed)) => {
                self.run_indexed(rows, |model| &mut model.rows);
                self.run_indexed(hashed, |model| &mut model.hashed);
            }
        }
        self.run_bare();
        if let Some((rows, due)) = &self.expiring {
            self.run_expiring(rows, due);
        }
        if let Some((rows, _)) = &self.indexed {
            self.name_columns(rows);
        }
        if !P::SINGLE_KEY {
            self.run_procedures();
        }
        let _ = catch_unwind(AssertUnwindSafe(|| self.database.checkpoint()))
            .map_err(|panic| judge(&*panic, self.is_truthful, "checkpoint"));
        if let Some((rows, hashed)) = &self.indexed {
            // Runs on another thread, whose garbage is collected when it ends.
            self.on_a_thread(|| self.churn(rows, |model| &mut model.rows));
            self.churn(hashed, |model| &mut model.hashed);
        }
    }

    fn on_a_thread(&self, run: impl FnOnce() + Send) {
        if P::WORKERS_MAX > 1 {
            thread::scope(|scope| {
                let ended = scope.spawn(|| catch_unwind(AssertUnwindSafe(run))).join().unwrap();
                let _ =
                    ended.map_err(|panic| judge(&*panic, self.is_truthful, "on another thread"));
            });
        } else {
            run();
        }
    }

    fn run_indexed<R: Indexed>(&self, table: &Table<R>, of: ContentOf) {
        let content = |id: u32, stamp| Content { stamp, group: id % 2, code: id * 10 };
        let put = |tx: &Transaction<'_, P>, model: &mut Model, id, stamp| -> Result<(), Refusal> {
            Self::insert(tx, table, id, content(id, stamp))?;
            of(model).insert(id, content(id, stamp));
            Ok(())
        };
        self.step("insert", &|tx, model| (1..=6).try_for_each(|id| put(tx, model, id, 1)));
        let set =
            |tx: &Transaction<'_, P>, model: &mut Model, id, content| -> Result<(), Refusal> {
                if Self::update(tx, table, id, &change(content))? {
                    of(model).insert(id, content);
                }
                Ok(())
            };
        self.step("update", &|tx, model| set(tx, model, 1, content(1, 2)));
        self.step("update an indexed column", &|tx, model| {
            set(tx, model, 2, Content { stamp: 2, group: 7, code: 21 })?;
            self.look(tx, table, of(model), 2)
        });
        self.step("upsert", &|tx, model| {
            for id in [3, 7] {
                Self::upsert(tx, table, id, Content { group: 5, ..content(id, 3) })?;
                of(model).insert(id, Content { group: 5, ..content(id, 3) });
            }
            Ok(())
        });
        let delete = |tx: &Transaction<'_, P>, model: &mut Model, id| -> Result<(), Refusal> {
            if Self::delete(tx, table, id)? {
                of(model).remove(&id);
            }
            Ok(())
        };
        self.step("delete", &|tx, model| delete(tx, model, 4));
        self.step("insert what was deleted", &|tx, model| put(tx, model, 4, 4));
        self.step("change a row several times", &|tx, model| {
            put(tx, model, 8, 1)?;
            set(tx, model, 8, Content { group: 9, ..content(8, 2) })?;
            delete(tx, model, 8)?;
            tx.prefetch_for_update(table, keys::<R>([8, 1, 2]))?;
            put(tx, model, 8, 3)?;
            delete(tx, model, 1)?;
            put(tx, model, 1, 5)?;
            set(tx, model, 1, content(1, 6))?;
            tx.prefetch(table, keys::<R>([1, 2, 8, 99]))?;
            self.look(tx, table, of(model), 1)?;
            self.scan(tx, table, of(model))
        });
        self.step("read", &|tx, model| {
            (1..=9).try_for_each(|id| self.look(tx, table, of(model), id))?;
            self.scan(tx, table, of(model))
        });
        self.under_snapshot(table, of);
        self.step("roll back", &|tx, model| {
            set(tx, model, 1, content(1, 100))?;
            delete(tx, model, 2)?;
            put(tx, model, 9, 100)?;
            Err(Refusal::Refused)
        });
        self.step("undo a savepoint", &|tx, model| {
            set(tx, model, 3, content(3, 40))?;
            let mut draft = model.clone();
            let undone = tx.savepoint(|tx| {
                set(tx, &mut draft, 1, content(1, 50))?;
                set(tx, &mut draft, 3, Content { group: 5, ..content(3, 51) })?;
                delete(tx, &mut draft, 2)?;
                put(tx, &mut draft, 9, 52)?;
                self.scan(tx, table, of(&mut draft))?;
                Err(Refusal::Refused)
            });
            match undone {
                Err(Refusal::Refused) => {}
                other => return other,
            }
            self.scan(tx, table, of(model))?;
            tx.savepoint(|tx| put(tx, model, 9, 53))?;
            self.look(tx, table, of(model), 9)?;
            delete(tx, model, 9)?;
            (1..=9).try_for_each(|id| self.look(tx, table, of(model), id))
        });
        self.step("meet duplicates", &|tx, model| {
            if of(model).contains_key(&1) {
                duplicate(Self::insert(tx, table, 1, content(9, 1)))?;
                duplicate(Self::insert(tx, table, 9, content(1, 1)))?;
            }
            if of(model).contains_key(&1) && of(model).contains_key(&3) {
                let code_of_another = Content { code: content(3, 1).code, ..content(1, 1) };
                duplicate(Self::update(tx, table, 1, &change(code_of_another)))?;
                duplicate(Self::upsert(tx, table, 1, code_of_another))?;
            }
            self.look(tx, table, of(model), 1)
        });
        self.step("go on after panics", &|tx, model| {
            let caught = |model: &mut Model, act: &dyn Fn(&mut Model) -> Result<(), Refusal>| {
                let mut draft = model.clone();
                match catch_unwind(AssertUnwindSafe(|| act(&mut draft))) {
                    Ok(result) => {
                        *model = draft;
                        result
                    }
                    Err(panic) => {
                        judge(&*panic, self.is_truthful, "go on after panics");
                        Ok(())
                    }
                }
            };
            caught(model, &|model| set(tx, model, 5, Content { group: 3, ..content(5, 11) }))?;
            caught(model, &|model| put(tx, model, 9, 11))?;
            caught(model, &|model| delete(tx, model, 3))?;
            caught(model, &|model| put(tx, model, 3, 12))?;
            caught(model, &|model| set(tx, model, 3, content(3, 13)))?;
            caught(model, &|model| self.look(tx, table, of(model), 3))
        });
        self.conflict(table, of);
    }

    /// Reads one row, and compares it with the expected one.
    fn look<R: Indexed>(
        &self,
        tx: &Transaction<'_, P>,
        table: &Table<R>,
        expected: &BTreeMap<u32, Content>,
        id: u32,
    ) -> Result<(), Refusal> {
        let row = Self::get(tx, table, id)?;
        self.compare_in(tx, row, expected.get(&id).copied(), || {
            format!("row {id} of {}", R::TABLE)
        });
        Ok(())
    }

    /// Compares what a transaction has read with the expected value.
    fn compare_in<T: PartialEq + std::fmt::Debug>(
        &self,
        _tx: &Transaction<'_, P>,
        found: T,
        expected: T,
        what: impl FnOnce() -> String,
    ) {
        self.truthful(found == expected, || {
            format!("{}: {found:?} instead of {expected:?}", what())
        });
    }

    /// Scans by all indexes, and compares the rows.
    fn scan<R: Indexed>(
        &self,
        tx: &Transaction<'_, P>,
        table: &Table<R>,
        expected: &BTreeMap<u32, Content>,
    ) -> Result<(), Refusal> {
        let all: Vec<(u32, Content)> =
            expected.iter().map(|(id, content)| (*id, *content)).collect();
        let content = |row: Result<&R, Error>| row.map(|row| (row.id(), row.content()));
        if let Some((rows, _)) = &self.indexed
            && R::IS_ORDERED
        {
            let content =
                |row: Result<&Row, Error>| row.map(|row| (Indexed::id(row), row.content()));
            let found = tx.range(rows, ..).map(content).collect::<Result<Vec<_>, _>>()?;
            self.compare_in(tx, found, all.clone(), || "a scan".to_owned());
            let range = Range(Short::new(2), Short::new(4));
            let found = tx.range(rows, range).map(content).collect::<Result<Vec<_>, _>>()?;
            let some = all.iter().copied().filter(|(id, _)| (2..=4).contains(id)).collect();
            self.compare_in(tx, found, some, || "a scan of a range".to_owned());
            let found = tx.prefix(rows, &Prefix(5)).map(content).collect::<Result<Vec<_>, _>>()?;
            let some = all.iter().copied().filter(|(id, _)| *id == 5).collect();
            self.compare_in(tx, found, some, || "a scan of a prefix".to_owned());
            let after = tx.range(rows, ..).after(&Short::new(2));
            let found = after.map(content).collect::<Result<Vec<_>, _>>()?;
            let some = all.iter().copied().filter(|(id, _)| *id > 2).collect();
            self.compare_in(tx, found, some, || "a page".to_owned());
            let found = tx.range(rows, ..).last_row()?.map(Indexed::id);
            self.compare_in(tx, found, all.last().map(|(id, _)| *id), || "the last row".to_owned());
            self.compare_in(tx, tx.len(rows)?, all.len(), || "the number of rows".to_owned());
            let reversed = Range(Short::new(4), Short::new(2));
            let _ = tx.range(rows, reversed).map(content).collect::<Result<Vec<_>, _>>();
        }
        let mut found =
            tx.range_by(table, R::BY_GROUP, ..).map(content).collect::<Result<Vec<_>, _>>()?;
        found.sort_by_key(|(id, _)| *id);
        self.compare_in(tx, found, all.clone(), || format!("a scan of {} by group", R::TABLE));
        let group = R::group_of(1);
        let found =
            tx.prefix_by(table, R::BY_GROUP, &group).map(content).collect::<Result<Vec<_>, _>>()?;
        let some: Vec<_> = all.iter().copied().filter(|(_, content)| content.group == 1).collect();
        self.compare_in(tx, found, some, || format!("a group of {}", R::TABLE));
        let after =
            tx.range_by(table, R::BY_GROUP, ..).after_by(R::BY_GROUP, &group, &R::key_of(2));
        let found = after.map(content).collect::<Result<Vec<_>, _>>()?.len();
        let some = all.iter().filter(|(id, content)| (content.group, *id) > (1, 2)).count();
        self.compare_in(tx, found, some, || format!("a page of {} by group", R::TABLE));
        for (id, content) in &all {
            let found =
                tx.get_by(table, R::BY_CODE, &R::code_of(content.code))?.map(|row| row.id());
            self.compare_in(tx, found, Some(*id), || format!("a code of {}", R::TABLE));
        }
        Ok(())
    }

    /// Opens a snapshot, changes rows, and checks what the snapshot shows.
    fn under_snapshot<R: Indexed>(&self, table: &Table<R>, of: ContentOf) {
        let before = self.acknowledged.model.lock().unwrap().clone();
        let opened = catch_unwind(AssertUnwindSafe(|| self.database.open_snapshot()));
        let snapshot = match opened {
            Ok(opened) => opened.ok(),
            Err(panic) => {
                judge(&*panic, self.is_truthful, "open a snapshot");
                None
            }
        };
        self.step("change below a snapshot", &|tx, model| {
            let content = Content { stamp: 50, group: 4, code: 50 };
            if Self::update(tx, table, 5, &change(content))? {
                of(model).insert(5, content);
            }
            if Self::delete(tx, table, 6)? {
                of(model).remove(&6);
            }
            Ok(())
        });
        self.step("insert below a snapshot", &|tx, model| {
            let content = Content { stamp: 51, group: 4, code: 60 };
            if let Entry::Vacant(vacant) = of(model).entry(6) {
                Self::insert(tx, table, 6, content)?;
                vacant.insert(content);
            }
            Ok(())
        });
        let looked = catch_unwind(AssertUnwindSafe(|| {
            let look = |snapshot: &Snapshot, mut expected: Model| -> Result<(), Refusal> {
                if called(Operation::SnapshotBody) == Answer::Lie {
                    return Err(Refusal::Refused);
                }
                self.look_at(snapshot, table, of(&mut expected))
                    .map_err(|failure| Error::from(failure).into())
            };
            if let Some(snapshot) = &snapshot {
                let _ = look(snapshot, before);
            }
            drop(snapshot);
            let after = self.acknowledged.model.lock().unwrap().clone();
            let _ = self.database.snapshot(|snapshot| look(snapshot, after.clone()));
            let _ = self.database.recent_snapshot(|snapshot| {
                snapshot.get(table, &R::key_of(1)).map(drop).map_err(Error::from)
            });
        }));
        let _ = looked.map_err(|panic| judge(&*panic, self.is_truthful, "look at a snapshot"));
    }

    fn look_at<R: Indexed>(
        &self,
        snapshot: &Snapshot,
        table: &Table<R>,
        expected: &BTreeMap<u32, Content>,
    ) -> Result<(), Failure> {
        for id in 1..=9 {
            let found = snapshot.get(table, &R::key_of(id))?.map(Indexed::content);
            let expected = expected.get(&id).copied();
            self.truthful(found == expected, || {
                format!("row {id} of {} in a snapshot: {found:?} instead of {expected:?}", R::TABLE)
            });
        }
        let content = |row: Result<&R, Failure>| row.map(|row| (row.id(), row.content()));
        let all: Vec<(u32, Content)> =
            expected.iter().map(|(id, content)| (*id, *content)).collect();
        let mut found = snapshot.rows(table).map(content).collect::<Result<Vec<_>, _>>()?;
        found.sort_by_key(|(id, _)| *id);
        self.truthful(found == all, || format!("rows of a snapshot: {found:?} instead of {all:?}"));
        let mut found = snapshot
            .range_by(table, R::BY_GROUP, ..)
            .map(content)
            .collect::<Result<Vec<_>, _>>()?;
        found.sort_by_key(|(id, _)| *id);
        self.truthful(found == all, || {
            format!("rows of a snapshot by group: {found:?} instead of {all:?}")
        });
        for (id, content) in all {
            let found =
                snapshot.get_by(table, R::BY_CODE, &R::code_of(content.code))?.map(Indexed::id);
            self.truthful(found == Some(id), || {
                format!("row {id} of a snapshot by code: {found:?}")
            });
        }
        Ok(())
    }

    /// Runs a transaction that conflicts with a transaction of another thread.
    fn conflict<R: Indexed>(&self, table: &Table<R>, of: ContentOf) {
        let other = |tx: &Transaction<'_, P>| -> Result<(), Error> {
            Self::update(tx, table, 2, &|row| row.set(row.content())).map(drop)
        };
        self.step_beside("meet a conflict", &other, &|tx, model, meanwhile| {
            let Some(content) = Self::get(tx, table, 2)? else { return Ok(()) };
            let content = Content { stamp: content.stamp + 1, ..content };
            meanwhile();
            if Self::update(tx, table, 2, &change(content))? {
                of(model).insert(2, content);
            }
            Ok(())
        });
    }

    /// Names columns, while another thread changes other columns of the same rows.
    fn name_columns(&self, rows: &Table<Row>) {
        let (one, named) = (Short::new(1), Short::new(3));
        self.step("insert a row for columns", &|tx, model| {
            self.insert_bare(tx, 3)?;
            model.bare.insert(3, 0);
            Ok(())
        });
        let other = |tx: &Transaction<'_, P>| -> Result<(), Error> {
            self.change_bare(tx, 1, &|row| row.winner = Ordered::default())?;
            self.change_bare(tx, 3, &|row| row.winner = Ordered::default())?;
            Self::update(tx, rows, 2, &|row| row.padding[0] += 1).map(drop)
        };
        self.step_beside("name columns", &other, &|tx, model, meanwhile| {
            let _ = tx.get_columns(&self.bare, &one, column_of!(RowBare.stamp))?;
            let add = |count: &mut i64| *count += 1;
            let added = tx.update_columns(&self.bare, &named, column_of!(RowBare.count), add)?;
            if let (Some(()), Some(count)) = (added, model.bare.get_mut(&3)) {
                *count += 1;
            }
            let stamp =
                tx.update_columns(rows, &Row::key_of(2), column_of!(Row.stamp), |stamp| {
                    *stamp += 1;
                    *stamp
                })?;
            if let (Some(stamp), Some(content)) = (stamp, model.rows.get_mut(&2)) {
                content.stamp = stamp;
            }
            meanwhile();
            Ok(())
        });
        self.step("read what named columns", &|tx, model| {
            let count = self.bare_count(tx, 3)?;
            self.compare_in(tx, count, model.bare.get(&3).copied(), || "a count".to_owned());
            self.look(tx, rows, &model.rows, 2)
        });
    }

    /// Takes a step, and lets another thread run a transaction while it calls `meanwhile`, if the protocol allows
    /// that.
    fn step_beside(
        &self,
        name: &str,
        other: &(dyn Fn(&Transaction<'_, P>) -> Result<(), Error> + Sync),
        body: StepBeside<'_, P>,
    ) {
        if P::WORKERS_MAX == 1 {
            return;
        }
        let is_over = AtomicBool::new(false);
        let run_other = || {
            let ended = catch_unwind(AssertUnwindSafe(|| {
                self.transact(&|tx| {
                    other(tx)?;
                    self.change_pair(tx, OTHERS, &|pair| pair.value += 1).map(drop)
                })
            }));
            match ended {
                Ok(Ok(())) => drop(self.acknowledged.others.fetch_add(1, SeqCst)),
                Ok(Err(_)) => {}
                Err(panic) => judge(&*panic, self.is_truthful, "the other thread"),
            }
            is_over.store(true, SeqCst);
        };
        thread::scope(|scope| {
            let running = Cell::new(None);
            let meanwhile = || match running.take() {
                None => {
                    running.set(Some(scope.spawn(run_other)));
                    let until = Instant::now() + Duration::from_millis(1);
                    while !is_over.load(SeqCst) && Instant::now() < until {
                        thread::yield_now();
                    }
                }
                some => running.set(some),
            };
            self.step(name, &|tx, model| body(tx, model, &meanwhile));
            if let Some(running) = running.take() {
                running.join().expect("the thread catches panics");
            }
        });
    }

    /// Makes enough garbage to trigger a collection.
    fn churn<R: Indexed>(&self, table: &Table<R>, of: ContentOf) {
        for turn in 0..120_u64 {
            self.step("churn", &|tx, model| {
                let id = [5, 6][turn as usize % 2];
                let content =
                    Content { stamp: 1000 + turn, group: (turn % 3) as u32, code: id * 10 };
                if turn % 8 == 7 && of(model).contains_key(&id) {
                    if Self::delete(tx, table, id)? {
                        of(model).remove(&id);
                    }
                } else {
                    Self::upsert(tx, table, id, content)?;
                    of(model).insert(id, content);
                }
                Ok(())
            });
        }
    }

    /// The steps for protocols that allow one operation per transaction.
    fn run_single(&self) {
        for id in 1..=4 {
            self.step("insert", &|tx, model| {
                self.insert_bare(tx, id + 50)?;
                model.bare.insert(id + 50, 0);
                Ok(())
            });
        }
        for turn in 0..200 {
            let id = 51 + turn % 4;
            self.step("update, delete or insert", &|tx, model| {
                match turn % 16 {
                    14 | 15 => {
                        if tx.delete(&self.bare, &Short::new(id))? {
                            model.bare.remove(&id);
                        }
                    }
                    13 => {
                        tx.upsert(&self.bare, RowBare::from_plain(PlainBare::new(id)))?;
                        model.bare.insert(id, 0);
                    }
                    _ => {
                        let changed = self.change_bare(tx, id, &|row| {
                            let _ = called(Operation::UpdateBody);
                            row.count += 1;
                        })?;
                        if let Some(count) = changed {
                            model.bare.insert(id, count);
                        }
                    }
                }
                Ok(())
            });
        }
        self.step("get", &|tx, _| Ok(self.bare_count(tx, 51).map(drop)?));
        self.step("prefetch", &|tx, _| {
            Ok(tx.prefetch(&self.bare, [Short::new(51), Short::new(52)])?)
        });
    }

    /// Runs operations on many rows.
    fn run_many(&self) {
        let keys = || keys_of(61..=66);
        self.step("insert many", &|tx, model| {
            let rows = (61..=66).map(|id| match called(Operation::PrefetchNext) {
                Answer::Lie => RowBare::from_plain(PlainBare::new(id + 10)),
                _ => RowBare::from_plain(PlainBare::new(id)),
            });
            tx.insert_many(&self.bare, rows)?;
            model.bare.extend((61..=66).map(|id| (id, 0)));
            Ok(())
        });
        self.step("insert a row with a generated key", &|tx, model| {
            let key = tx.insert_generated(&self.bare, |key| {
                let number = key.number();
                // A key that panics when it is dropped behind the row would leak the row.
                quietly(|| drop(key));
                match called(Operation::UpdateBody) {
                    Answer::Lie => RowBare::from_plain(PlainBare::new(number + 1)),
                    _ => RowBare::from_plain(PlainBare::new(number)),
                }
            })?;
            let number = key.number();
            // As in `update`.
            quietly(|| drop(key));
            model.bare.insert(number, 0);
            Ok(())
        });
        self.step("update many", &|tx, model| {
            let mut counts = Vec::new();
            tx.update_many(&self.bare, keys(), |position, row| {
                let _ = called(Operation::UpdateBody);
                row.count += 1;
                counts.push((61 + position as u32, row.count));
            })?;
            model.bare.extend(counts);
            Ok(())
        });
        self.step("get many", &|tx, _| {
            for row in tx.get_many(&self.bare, keys())? {
                row?;
            }
            Ok(())
        });
        self.step("delete a range", &|tx, model| {
            tx.delete_range(&self.bare, Short::new(65)..Short::new(67))?;
            model.bare.retain(|id, _| !(65..67).contains(id));
            Ok(())
        });
    }

    /// Runs commutative operations. Some protocols split the rows.
    /// Lets rows expire, makes others take their place, and removes them, in all ways that there are.
    fn run_expiring(&self, rows: &Table<RowExpiring>, due: &Table<RowDue>) {
        let row = |id, code, until| RowExpiring::from_plain(PlainExpiring::new(id, code, until));
        let expired = Timestamp::default();
        let put = |number: u32, until| {
            let is_done = self.step("insert rows that expire", &|tx, _| {
                // Both rows may take the place of rows that have expired, one by its key and one by its code.
                duplicate(tx.insert(rows, row(1, 10 + number % 2, until)))?;
                duplicate(tx.upsert(rows, row(2, 10 + (number + 1) % 2, until)))?;
                tx.insert(due, RowDue::from_plain(PlainDue::new(number, until)))?;
                Ok(())
            });
            self.acknowledged.due.fetch_add(u64::from(is_done), SeqCst);
        };
        for number in 0..6 {
            put(number, expired);
            match number {
                1 => {
                    self.step("run hooks", &|tx, _| Ok(tx.run_due(due, 1).map(drop)?));
                }
                2 | 4 => {
                    let removed = catch_unwind(AssertUnwindSafe(|| self.database.remove_expired()));
                    let _ = removed.map_err(|panic| judge(&*panic, self.is_truthful, "removal"));
                }
                3 => {
                    self.step("look at rows that have expired", &|tx, _| {
                        let seen = tx.get(rows, &Short::new(1))?.is_some();
                        self.truthful(!seen, || "a row that has expired".to_owned());
                        Ok(())
                    });
                }
                _ => {}
            }
        }
    }

    fn run_bare(&self) {
        for id in [1, 2] {
            self.step("insert", &|tx, model| {
                self.insert_bare(tx, id)?;
                model.bare.insert(id, 0);
                Ok(())
            });
        }
        self.run_many();
        self.label();
        self.report();
        let add = |tx: &Transaction<'_, P>, model: &mut Model| -> Result<(), Refusal> {
            if let Some(count) = model.bare.get_mut(&1) {
                self.add(tx, 1)?;
                *count += 1;
            }
            Ok(())
        };
        for turn in 0..12_i64 {
            self.step("add", &|tx, model| add(tx, model));
            self.step("put by order", &|tx, _| Ok(self.put(tx, turn)?));
            self.step("put among the greatest", &|tx, _| {
                let (key, mark) = (Short::new(1), Mark(turn as u32));
                Ok(tx.top_k_insert(&self.bare, &key, column_of!(RowBare.top), turn % 5, mark)?)
            });
            if turn == 5 {
                self.step("roll back additions", &|tx, model| {
                    add(tx, model)?;
                    self.put(tx, 99)?;
                    Err(Refusal::Refused)
                });
                self.on_a_thread(|| {
                    self.step("add on another thread", &|tx, model| add(tx, model));
                });
            }
            if turn == 8 && REAPPLYING.contains(&P::NAME) {
                self.step("add beside another", &|tx, model| {
                    add(tx, model)?;
                    // This replaces the row, so the commit applies the addition again.
                    self.on_a_thread(|| {
                        let _ = self.database.transact_with(&options(), |tx| self.add(tx, 0));
                    });
                    Ok(())
                });
            }
            if turn % 4 == 3 {
                self.step("read what was added", &|tx, model| {
                    let count = self.bare_count(tx, 1)?;
                    self.compare_in(tx, count, model.bare.get(&1).copied(), || "a sum".to_owned());
                    Ok(())
                });
            }
        }
        let looked = catch_unwind(AssertUnwindSafe(|| {
            self.database.snapshot(|snapshot| -> Result<(), Error> {
                let count = snapshot.get(&self.bare, &Short::new(1))?.map(|row| row.count);
                let expected = self.acknowledged.model.lock().unwrap().bare.get(&1).copied();
                self.truthful(count == expected, || {
                    format!("a sum: {count:?} instead of {expected:?}")
                });
                Ok(())
            })
        }));
        let _ = looked.map_err(|panic| judge(&*panic, self.is_truthful, "a snapshot of sums"));
    }

    fn label(&self) {
        let labelled = catch_unwind(AssertUnwindSafe(|| {
            let (database, bare) = (&self.database as &dyn Any, &self.bare as &dyn Any);
            let (count, key) = (column_of!(RowBare.count), Short::new(1));
            if let (Some(database), Some(bare)) = (database.downcast_ref(), bare.downcast_ref()) {
                let _ =
                    Database::<Doppel>::label_split::<_, _, Add<_>>(database, bare, &key, count);
            }
            if let (Some(database), Some(bare)) = (database.downcast_ref(), bare.downcast_ref()) {
                let _ =
                    Database::<Adaptive>::label_split::<_, _, Add<_>>(database, bare, &key, count);
            }
            if let (Some(database), Some(bare)) = (database.downcast_ref(), bare.downcast_ref()) {
                let _ = Database::<DoppelLocking>::label_split::<_, _, Add<_>>(
                    database, bare, &key, count,
                );
            }
        }));
        let _ = labelled.map_err(|panic| judge(&*panic, self.is_truthful, "label"));
    }

    /// Reports where the transactions before have met conflicts, which formats keys.
    fn report(&self) {
        let reported = catch_unwind(AssertUnwindSafe(|| {
            let _ = self.database.contention().map(|report| report.to_string());
        }));
        let _ = reported.map_err(|panic| judge(&*panic, self.is_truthful, "report"));
    }

    /// Runs procedures. Some protocols repair them or run them in pieces.
    fn run_procedures(&self) {
        self.step("insert a total", &|tx, model| {
            tx.insert(&self.totals, RowTotal::from_plain(PlainTotal::new(2)))?;
            model.has_total = true;
            Ok(())
        });
        let post = || {
            let ended = catch_unwind(AssertUnwindSafe(|| {
                let (source, target) = (Short::new(2), Short::new(2));
                let mut post =
                    Post::new(&self.bare, &self.totals, &self.pairs, source, target, POSTED);
                self.database.execute_with(&options(), &mut post)
            }));
            match ended {
                Ok(Ok(_)) => drop(self.acknowledged.posted.fetch_add(1, SeqCst)),
                Ok(Err(_)) => self.acknowledged.is_halfway.store(P::CHOPS, SeqCst),
                Err(panic) => {
                    self.acknowledged.is_halfway.store(P::CHOPS, SeqCst);
                    judge(&*panic, self.is_truthful, "a procedure");
                }
            }
        };
        // Two threads run the procedure at the same time, so that they conflict sometimes.
        let posts_together = if P::WORKERS_MAX == 1 { 0 } else { 15 };
        for turn in 0..3 {
            post();
            let audited = catch_unwind(AssertUnwindSafe(|| {
                let mut audit = Audit::new(&self.totals, &self.others, Short::new(2), turn);
                self.database.execute_with(&options(), &mut audit)
            }));
            let _ = audited.map_err(|panic| judge(&*panic, self.is_truthful, "an audit"));
            post();
            thread::scope(|scope| {
                let other = scope.spawn(|| (0..posts_together).for_each(|_| post()));
                (0..posts_together).for_each(|_| post());
                other.join().expect("the thread catches panics");
            });
            self.step("read a total", &|tx, model| {
                let sum = self.total(tx)?;
                let expected =
                    model.has_total.then(|| self.acknowledged.posted.load(SeqCst) as i64);
                let is_certain = !self.acknowledged.is_halfway.load(SeqCst);
                self.truthful(!is_certain || sum == expected, || {
                    format!("a total: {sum:?} instead of {expected:?}")
                });
                Ok(())
            });
        }
    }

    #[inline(never)]
    fn total(&self, tx: &Transaction<'_, P>) -> Result<Option<i64>, Error> {
        Ok(tx.get(&self.totals, &Short::new(2))?.map(|row| row.sum.0))
    }

    /// Compares the database with everything that was acknowledged. No operation misbehaves here.
    pub fn verify(&self, when: &str) {
        let mut model = self.acknowledged.model.lock().unwrap().clone();
        let value = |id: u32| -> Result<Option<u64>, Error> {
            let found = Cell::new(None);
            self.transact(&|tx| {
                found.set(self.pair(tx, id)?);
                Ok(())
            })?;
            Ok(found.get())
        };
        let complain = |what: String| violation(format!("{when}: {what}"));
        let verified = catch_unwind(AssertUnwindSafe(|| -> Result<(), Error> {
            let mut expected = vec![
                (OTHERS, self.acknowledged.others.load(SeqCst)),
                (REENTERED, self.acknowledged.reentered.load(SeqCst)),
            ];
            if !P::SINGLE_KEY {
                expected.extend(PAIR.map(|id| (id, model.pair)));
            }
            if !self.acknowledged.is_halfway.load(SeqCst) {
                expected.push((POSTED, self.acknowledged.posted.load(SeqCst)));
            }
            for (id, expected) in expected {
                let found = value(id)?;
                if found != Some(expected) {
                    complain(format!("honest row {id} is {found:?} instead of {expected}"));
                }
            }
            if !self.is_truthful {
                return Ok(());
            }
            if let Some((_, due)) = &self.expiring {
                let found = Cell::new(0);
                self.transact(&|tx| {
                    let left =
                        tx.range(due, ..).map(|row| row.map(|_| 1)).sum::<Result<u64, _>>()?;
                    found.set(left + self.pair(tx, HOOKED)?.unwrap_or(0));
                    Ok(())
                })?;
                let expected = self.acknowledged.due.load(SeqCst);
                if found.get() != expected {
                    complain(format!("{} rows with a hook instead of {expected}", found.get()));
                }
            }
            let posted = self.acknowledged.posted.load(SeqCst) as i64;
            for (id, count) in &model.bare {
                let is_posted = *id == 2 && !P::SINGLE_KEY;
                if is_posted && self.acknowledged.is_halfway.load(SeqCst) {
                    continue;
                }
                let found = Cell::new(None);
                self.transact(&|tx| {
                    found.set(self.bare_count(tx, *id)?);
                    Ok(())
                })?;
                let row = found.get();
                let expected = if is_posted { posted } else { *count };
                if row != Some(expected) {
                    complain(format!("bare row {id} is {row:?} instead of {expected:?}"));
                }
            }
            let Some((table, table_hashed)) = &self.indexed else { return Ok(()) };
            if !self.acknowledged.is_halfway.load(SeqCst) {
                let found = Cell::new(None);
                self.transact(&|tx| {
                    found.set(self.total(tx)?);
                    Ok(())
                })?;
                let expected = model.has_total.then_some(posted);
                if found.get() != expected {
                    complain(format!("a total is {:?} instead of {expected:?}", found.get()));
                }
            }
            let (rows, hashed) = (model.rows.clone(), std::mem::take(&mut model.hashed));
            let body = |tx: &Transaction<'_, P>| -> Result<(), Refusal> {
                (1..=9).try_for_each(|id| self.look(tx, table, &rows, id))?;
                (1..=9).try_for_each(|id| self.look(tx, table_hashed, &hashed, id))?;
                self.scan(tx, table, &rows)?;
                self.scan(tx, table_hashed, &hashed)
            };
            self.transact(&|tx| {
                body(tx).map_err(|refusal| match refusal {
                    Refusal::Engine(error) => error,
                    Refusal::Refused => unreachable!("this body never refuses"),
                })
            })?;
            self.database.snapshot(|snapshot| -> Result<(), Error> {
                self.look_at(snapshot, table, &rows)?;
                self.look_at(snapshot, table_hashed, &hashed)?;
                Ok(())
            })
        }));
        match verified {
            Ok(Ok(())) => {}
            Ok(Err(error)) => complain(format!("the database does not work: {error}")),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
                complain(format!("the engine panicked: {text}"));
            }
        }
    }

    /// Runs a transaction on a row that no other transaction uses, with a deadline. Where others may have to wait, it passes
    /// soon. Elsewhere it is long, because a busy machine may let the whole program stand still for a while.
    pub fn probe(&self) -> Result<(), Error> {
        let limit = match Self::lets_others_through() {
            true => STEP,
            false => Duration::from_millis(300),
        };
        let bounds = TransactionOptions::new().deadline(limit);
        self.database.transact_with(&bounds, |tx| {
            self.change_pair(tx, PROBE, &|pair| pair.value += 1).map(drop)
        })
    }

    /// Returns whether other threads' transactions commit while one thread is in the middle of a transaction.
    pub fn lets_others_through() -> bool {
        P::WORKERS_MAX > 1 && P::NAME != HtmNaive::NAME && !P::SPLITS && !P::CHOPS
    }
}

/// Turns the error for a duplicate key, which is expected here, into success.
fn duplicate<R>(result: Result<R, Error>) -> Result<(), Refusal> {
    match result {
        Ok(_) | Err(Error::Failure(Failure::DuplicateKey { .. })) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
