//! The workload of a database of hostile types, and a model of its contents.
//!
//! Here: the database, the model, and the order of the steps. [`steps`] has what a step is, [`access`] single operations, and
//! [`rows`], [`bare`], [`expiring`] and [`procedures`] the steps by what they use. [`verification`] compares what there is in
//! the end.

mod access;
mod bare;
mod expiring;
mod procedures;
mod rows;
mod steps;
mod verification;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use weft::durability::SimulatedDisk;
use weft::protocol::Protocol;
use weft::{
    Acknowledge, Database, DurabilityOptions, Error, Failure, ManualClock, Record, Table,
    Timestamp, Transaction, TransactionOptions,
};
use weft_htm::blocking::Mutex;
use weft_inspect::InspectBuilder;
use weft_procedures::Procedure;
use weft_protocols::{AdaptiveOptions, BuilderExt, DbxTcOptions, HtccOptions, PhaseOptions};

use self::procedures::{Audit, Other, Post};
use self::steps::judge;
use crate::hook::{Answer, Misbehaviour, Operation, called, quietly};
use crate::live::violation;
use crate::types::{Content, Refusal, Row, RowBare, RowDue, RowExpiring, RowHashed, RowTotal};

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

    fn truthful(&self, is_so: bool, what: impl FnOnce() -> String) {
        if self.is_truthful && !is_so {
            violation(what());
        }
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
}

/// Turns the error for a duplicate key, which is expected here, into success.
fn duplicate<R>(result: Result<R, Error>) -> Result<(), Refusal> {
    match result {
        Ok(_) | Err(Error::Failure(Failure::DuplicateKey { .. })) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
