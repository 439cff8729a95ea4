//! The named anomalies, as explicit interleavings at every protocol that runs several threads.
//!
//! Each transaction has a thread of its own, and the schedule says which one takes the next step.
//! A protocol may refuse a step, refuse the commit, or make the step wait for another
//! transaction; whatever it does, the transactions that committed must have read and written what
//! some serial order of them would have, and in that order a transaction that had committed
//! before another began comes first (strict serializability). The oracle tries every order.
//! Where the full schedule has no such order, the test also asks that the schedule did not go
//! through as written: somebody aborted, or waited.

mod support;

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::scope;
use std::time::Duration;

use weft::protocol::Protocol;
use weft::schema::Violation;
use weft::{Database, Error, Failure, Record, Table, Transaction};

use support::for_each_protocol;

/// After this long a step counts as waiting for another transaction. It decides in what order
/// the rest happens, and nothing else.
const PATIENCE: Duration = Duration::from_secs(5);

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
    fn check_value(&self) -> Result<(), Violation> {
        if self.value < 0 { Err("negative".into()) } else { Ok(()) }
    }
}

#[derive(Clone, Debug, Record)]
#[record(storage = "hash")]
struct Hashed {
    #[record(key)]
    key: u64,
    value: i64,
}

/// A step of a transaction. Keys of the hash table begin at [`HASHED`].
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Read(u64),
    /// Sets the value, by an update.
    Write(u64, i64),
    /// Adds to the value; nothing happens (and the transaction goes on) if it would fall below 0.
    AddIfNotNegative(u64, i64),
    Insert(u64, i64),
    /// As above, but a row that is there already is left as it is.
    InsertIfAbsent(u64, i64),
    Delete(u64),
    /// Reads the rows with keys of at least, and below.
    Scan(u64, u64),
    /// Reads the rows of a group: the last digit of the key is it.
    ScanGroup(u8),
    /// Looks for a row by its unique badge.
    ReadByBadge(u64),
    Commit,
}

use Step::{
    AddIfNotNegative, Commit, Delete, Insert, InsertIfAbsent, Read, ReadByBadge, Scan, ScanGroup,
    Write,
};

const HASHED: u64 = 1000;
const X: u64 = 10;
const Y: u64 = 20;
const HX: u64 = HASHED;
const HY: u64 = HASHED + 1;

/// What a step showed to its transaction.
#[derive(Clone, Debug, PartialEq)]
enum Shown {
    Rows(Vec<(u64, i64)>),
    Happened(bool),
    Aborted,
}

struct Tables<P: Protocol> {
    ordered: Table<Ordered, P>,
    hashed: Table<Hashed, P>,
}

fn ordered(key: u64, value: i64) -> Ordered {
    Ordered { key, group: (key % 10) as u8, badge: format!("badge {key}"), value }
}

impl<P: Protocol> Tables<P> {
    fn take(&self, tx: &Transaction<'_, P>, step: Step) -> Result<Shown, Error> {
        Ok(match step {
            Read(key) if key >= HASHED => {
                let row = tx.get(&self.hashed, &key)?;
                Shown::Rows(row.map(|row| (key, row.value)).into_iter().collect())
            }
            Read(key) => {
                let row = tx.get(&self.ordered, &key)?;
                Shown::Rows(row.map(|row| (key, row.value)).into_iter().collect())
            }
            ReadByBadge(key) => {
                let row = tx.get_by(&self.ordered, Ordered::BADGE, &format!("badge {key}"))?;
                Shown::Rows(row.map(|row| (key, row.value)).into_iter().collect())
            }
            Write(key, value) => Shown::Happened(
                match key >= HASHED {
                    true => tx.update(&self.hashed, &key, |row| row.value = value)?,
                    false => tx.update(&self.ordered, &key, |row| row.value = value)?,
                }
                .is_some(),
            ),
            AddIfNotNegative(key, amount) => {
                match tx.update(&self.ordered, &key, |row| row.value += amount) {
                    Ok(updated) => Shown::Happened(updated.is_some()),
                    Err(Error::Failure(Failure::Constraint { .. })) => Shown::Happened(false),
                    Err(error) => return Err(error),
                }
            }
            Insert(key, value) | InsertIfAbsent(key, value) => {
                let inserted = match key >= HASHED {
                    true => tx.insert(&self.hashed, Hashed { key, value }),
                    false => tx.insert(&self.ordered, ordered(key, value)),
                };
                match inserted {
                    Ok(()) => Shown::Happened(true),
                    Err(Error::Failure(Failure::DuplicateKey { .. }))
                        if matches!(step, InsertIfAbsent(..)) =>
                    {
                        Shown::Happened(false)
                    }
                    Err(error) => return Err(error),
                }
            }
            Delete(key) => Shown::Happened(match key >= HASHED {
                true => tx.delete(&self.hashed, &key)?,
                false => tx.delete(&self.ordered, &key)?,
            }),
            Scan(from, to) => {
                let rows = tx.range(&self.ordered, from..to);
                Shown::Rows(rows.map(|row| row.map(pair)).collect::<Result<_, _>>()?)
            }
            ScanGroup(group) => {
                let rows = tx.prefix_by(&self.ordered, Ordered::GROUP, &group);
                Shown::Rows(rows.map(|row| row.map(pair)).collect::<Result<_, _>>()?)
            }
            Commit => unreachable!("the session commits"),
        })
    }
}

fn pair(row: &Ordered) -> (u64, i64) {
    (row.key, row.value)
}

// ---- sessions ---------------------------------------------------------------------------------

/// The thread of one transaction: takes steps until it commits or aborts.
fn session<P: Protocol>(
    database: &Database<P>,
    tables: &Tables<P>,
    steps: &Receiver<Step>,
    shown: &Sender<Shown>,
) {
    let mut transaction = None;
    for step in steps {
        let tx = transaction.take().unwrap_or_else(|| database.begin().unwrap());
        let result = match step {
            Commit => tx.commit().map(|()| Shown::Happened(true)),
            step => {
                let result = tables.take(&tx, step);
                transaction = Some(tx);
                result
            }
        };
        match result {
            Ok(what) => shown.send(what).unwrap(),
            Err(Error::Conflict(_)) => {
                drop(transaction.take());
                shown.send(Shown::Aborted).unwrap();
                return;
            }
            Err(error) => panic!("{step:?}: {error}"),
        }
    }
}

/// What became of one transaction.
#[derive(Clone, Debug, Default)]
struct History {
    steps: Vec<(Step, Shown)>,
    committed: bool,
    /// When, on the schedule's clock, it began and was seen to commit.
    began: usize,
    ended: usize,
}

#[derive(Debug)]
struct Run {
    transactions: Vec<History>,
    somebody_waited: bool,
    left: BTreeMap<u64, i64>,
}

impl Run {
    fn committed(&self) -> Vec<bool> {
        self.transactions.iter().map(|history| history.committed).collect()
    }
}

/// One end of a session, for the director of the schedule.
struct Line {
    steps: Option<Sender<Step>>,
    shown: Receiver<Shown>,
    /// Steps sent and not answered, oldest first.
    open: Vec<Step>,
    history: History,
}

impl Line {
    /// Takes the answers that are there, waiting up to `patience` for each open step. True if
    /// none is open any more.
    fn hear(&mut self, now: usize, patience: Duration) -> bool {
        while let Some(&step) = self.open.first() {
            let shown = match self.shown.recv_timeout(patience) {
                Ok(shown) => shown,
                Err(RecvTimeoutError::Timeout) => return false,
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("a session ended: {:?}", self.history)
                }
            };
            self.open.remove(0);
            if shown == Shown::Aborted {
                // Later steps of an aborted transaction do not happen.
                self.steps = None;
                self.open.clear();
            }
            self.history.committed = step == Commit && shown != Shown::Aborted;
            self.history.ended = now;
            self.history.steps.push((step, shown));
        }
        true
    }
}

/// Runs a schedule: which transaction takes which step next.
fn run<P: Protocol>(initial: &[(u64, i64)], schedule: &[(usize, Step)]) -> Run {
    let builder = Database::<P>::builder().table::<Ordered>().table::<Hashed>();
    let database = builder.open().unwrap();
    let tables = Tables { ordered: database.table().unwrap(), hashed: database.table().unwrap() };
    database
        .transact(|tx| {
            initial
                .iter()
                .try_for_each(|&(key, value)| tables.take(tx, Insert(key, value)).map(drop))
        })
        .unwrap();
    let transactions = 1 + schedule.iter().map(|(transaction, _)| *transaction).max().unwrap();
    let mut somebody_waited = false;
    let histories = scope(|scope| {
        let mut lines: Vec<Line> = Vec::new();
        for _ in 0..transactions {
            let (step_sender, step_receiver) = channel();
            let (shown_sender, shown_receiver) = channel();
            let (database, tables) = (&database, &tables);
            scope.spawn(move || session(database, tables, &step_receiver, &shown_sender));
            lines.push(Line {
                steps: Some(step_sender),
                shown: shown_receiver,
                open: Vec::new(),
                history: History::default(),
            });
        }
        for (now, &(transaction, step)) in schedule.iter().enumerate() {
            let line = &mut lines[transaction];
            let Some(steps) = &line.steps else { continue };
            if line.history.steps.is_empty() && line.open.is_empty() {
                line.history.began = now;
            }
            steps.send(step).unwrap();
            line.open.push(step);
            if !line.hear(now, PATIENCE) {
                somebody_waited = true;
            }
        }
        for line in &mut lines {
            assert!(line.hear(schedule.len(), 12 * PATIENCE), "a deadlock: {:?}", line.history);
            line.steps = None;
        }
        lines.into_iter().map(|line| line.history).collect()
    });
    let left = database
        .transact(|tx| -> Result<_, Error> {
            let Shown::Rows(rows) = tables.take(tx, Scan(0, u64::MAX))? else { unreachable!() };
            let mut left: BTreeMap<u64, i64> = rows.into_iter().collect();
            for key in HASHED..HASHED + 10 {
                left.extend(tx.get(&tables.hashed, &key)?.map(|row| (key, row.value)));
            }
            Ok(left)
        })
        .unwrap();
    Run { transactions: histories, somebody_waited, left }
}

// ---- the oracle -------------------------------------------------------------------------------

/// What a step shows in a serial execution.
fn replay(state: &mut BTreeMap<u64, i64>, step: Step) -> Shown {
    let rows = |rows: &mut dyn Iterator<Item = (u64, i64)>| Shown::Rows(rows.collect());
    match step {
        Read(key) | ReadByBadge(key) => {
            rows(&mut state.get(&key).map(|value| (key, *value)).into_iter())
        }
        Write(key, value) => {
            Shown::Happened(state.get_mut(&key).map(|there| *there = value).is_some())
        }
        AddIfNotNegative(key, amount) => {
            let there = state.get_mut(&key).filter(|value| **value + amount >= 0);
            Shown::Happened(there.map(|value| *value += amount).is_some())
        }
        Insert(key, value) | InsertIfAbsent(key, value) => {
            let absent = !state.contains_key(&key);
            state.entry(key).or_insert(value);
            Shown::Happened(absent)
        }
        Delete(key) => Shown::Happened(state.remove(&key).is_some()),
        Scan(from, to) => rows(
            &mut state.range(from..to).filter(|(key, _)| **key < HASHED).map(|(k, v)| (*k, *v)),
        ),
        ScanGroup(group) => rows(
            &mut state
                .iter()
                .filter(|(key, _)| **key < HASHED && **key % 10 == u64::from(group))
                .map(|(key, value)| (*key, *value)),
        ),
        Commit => Shown::Happened(true),
    }
}

/// Whether some order of `rest`, begun in `state`, explains everything.
fn is_serializable(
    state: &BTreeMap<u64, i64>,
    rest: &[&History],
    left: &BTreeMap<u64, i64>,
) -> bool {
    if rest.is_empty() {
        return state == left;
    }
    (0..rest.len()).any(|first| {
        let history = rest[first];
        // In real time, nobody who had ended before it began may come after it.
        if rest.iter().any(|other| other.ended < history.began) {
            return false;
        }
        let mut after = state.clone();
        if history.steps.iter().any(|(step, shown)| replay(&mut after, *step) != *shown) {
            return false;
        }
        let mut others = rest.to_vec();
        others.remove(first);
        is_serializable(&after, &others, left)
    })
}

fn check(initial: &[(u64, i64)], run: &Run) {
    let state: BTreeMap<u64, i64> = initial.iter().copied().collect();
    let committed: Vec<&History> =
        run.transactions.iter().filter(|history| history.committed).collect();
    assert!(is_serializable(&state, &committed, &run.left), "no serial order explains {run:#?}");
}

/// Runs a schedule that no serial order explains. `dbx` says which transactions an optimistic
/// protocol commits: it refuses nothing but commits.
fn anomaly(initial: &[(u64, i64)], schedule: &[(usize, Step)], dbx: &[bool]) {
    for_each_protocol!(|P| {
        if P::WORKERS_MAX > 1 {
            let run = run::<P>(initial, schedule);
            check(initial, &run);
            let aborted = run.committed().contains(&false);
            assert!(aborted || run.somebody_waited, "it went through: {run:#?}");
            if P::NAME == "dbx" {
                assert_eq!(run.committed(), dbx, "{run:#?}");
            }
        }
    });
}

/// Runs a schedule that an optimistic protocol lets through; others may refuse or wait.
fn harmless(initial: &[(u64, i64)], schedule: &[(usize, Step)]) {
    for_each_protocol!(|P| {
        if P::WORKERS_MAX > 1 {
            let run = run::<P>(initial, schedule);
            check(initial, &run);
            if P::NAME == "dbx" {
                assert!(!run.committed().contains(&false), "{run:#?}");
            }
        }
    });
}

const ZEROS: &[(u64, i64)] = &[(X, 0), (Y, 0), (HX, 0), (HY, 0)];

// ---- the schedules ----------------------------------------------------------------------------

#[test]
fn the_oracle_knows_an_anomaly_when_it_sees_one() {
    let read = |key, value| (Read(key), Shown::Rows(vec![(key, value)]));
    let wrote = |key, value| (Write(key, value), Shown::Happened(true));
    let history =
        |steps: Vec<(Step, Shown)>, began, ended| History { steps, committed: true, began, ended };
    let skew = [
        history(vec![read(X, 0), read(Y, 0), wrote(X, 1)], 0, 6),
        history(vec![read(X, 0), read(Y, 0), wrote(Y, 1)], 1, 7),
    ];
    let state = BTreeMap::from([(X, 0), (Y, 0)]);
    let left = BTreeMap::from([(X, 1), (Y, 1)]);
    assert!(!is_serializable(&state, &[&skew[0], &skew[1]], &left), "write skew");
    let stale = [history(vec![wrote(X, 1)], 0, 1), history(vec![read(X, 0)], 2, 3)];
    let left = BTreeMap::from([(X, 1), (Y, 0)]);
    assert!(!is_serializable(&state, &[&stale[0], &stale[1]], &left), "a stale read");
    let overlapping = [history(vec![wrote(X, 1)], 0, 3), history(vec![read(X, 0)], 2, 3)];
    assert!(is_serializable(&state, &[&overlapping[0], &overlapping[1]], &left));
}

#[test]
fn g0_dirty_write() {
    for (x, y) in [(X, Y), (HX, HY)] {
        anomaly(
            ZEROS,
            &[
                (0, Write(x, 1)),
                (1, Write(x, 2)),
                (1, Write(y, 2)),
                (0, Write(y, 1)),
                (0, Commit),
                (1, Commit),
            ],
            &[true, false],
        );
    }
}

#[test]
fn g1a_a_read_of_what_is_rolled_back() {
    for_each_protocol!(|P| {
        if P::WORKERS_MAX > 1 {
            // The writer never commits: its session ends with the schedule and rolls back.
            let schedule = [(0, Write(X, 1)), (0, Insert(X + 1, 1)), (1, Scan(0, 99)), (1, Commit)];
            let run = run::<P>(ZEROS, &schedule);
            check(ZEROS, &run);
            assert_eq!(run.left, ZEROS.iter().copied().collect());
        }
    });
}

#[test]
fn g1b_a_read_of_what_is_written_over() {
    harmless(ZEROS, &[(0, Write(X, 1)), (1, Read(X)), (1, Commit), (0, Write(X, 2)), (0, Commit)]);
    // Here the reader would have to be both before and after the writer.
    anomaly(
        ZEROS,
        &[(0, Write(X, 1)), (1, Read(X)), (0, Write(X, 2)), (0, Commit), (1, Read(X)), (1, Commit)],
        &[true, false],
    );
}

#[test]
fn g1c_circular_information_flow() {
    for (x, y) in [(X, Y), (HX, HY)] {
        anomaly(
            ZEROS,
            &[
                (0, Write(x, 1)),
                (1, Write(y, 1)),
                (0, Read(y)),
                (1, Read(x)),
                (0, Commit),
                (1, Commit),
            ],
            &[true, false],
        );
    }
}

#[test]
fn observed_transaction_vanishes() {
    anomaly(
        ZEROS,
        &[
            (0, Write(X, 1)),
            (0, Write(Y, 1)),
            (1, Write(X, 2)),
            (0, Commit),
            (2, Read(X)),
            (1, Write(Y, 2)),
            (2, Read(Y)),
            (1, Commit),
            (2, Commit),
        ],
        // The second transaction saw X before the first one's commit.
        &[true, false, true],
    );
}

#[test]
fn predicate_many_preceders() {
    for scan in [Scan(0, 99), ScanGroup(1)] {
        anomaly(
            ZEROS,
            &[(0, scan), (1, Insert(31, 1)), (1, Commit), (0, scan), (0, Commit)],
            &[false, true],
        );
        anomaly(
            &[(31, 0)],
            &[(0, scan), (1, Delete(31)), (1, Commit), (0, scan), (0, Commit)],
            &[false, true],
        );
    }
}

#[test]
fn a_key_found_absent_appears() {
    for (key, read) in [(31, Read(31)), (31, ReadByBadge(31)), (HX + 5, Read(HX + 5))] {
        let schedule = [(0, read), (1, Insert(key, 1)), (1, Commit), (0, read), (0, Commit)];
        anomaly(ZEROS, &schedule, &[false, true]);
    }
}

#[test]
fn p4_lost_update() {
    for x in [X, HX] {
        anomaly(
            ZEROS,
            &[
                (0, Read(x)),
                (1, Read(x)),
                (0, Write(x, 1)),
                (1, Write(x, 2)),
                (0, Commit),
                (1, Commit),
            ],
            &[true, false],
        );
    }
}

#[test]
fn g_single_read_skew() {
    for (x, y) in [(X, Y), (HX, HY), (X, HY)] {
        anomaly(
            ZEROS,
            &[
                (0, Read(x)),
                (1, Write(x, 1)),
                (1, Write(y, 1)),
                (1, Commit),
                (0, Read(y)),
                (0, Commit),
            ],
            &[false, true],
        );
    }
}

#[test]
fn g2_item_write_skew() {
    for (x, y) in [(X, Y), (HX, HY), (X, HY)] {
        anomaly(
            ZEROS,
            &[
                (0, Read(x)),
                (0, Read(y)),
                (1, Read(x)),
                (1, Read(y)),
                (0, Write(x, 1)),
                (1, Write(y, 1)),
                (0, Commit),
                (1, Commit),
            ],
            &[true, false],
        );
    }
}

#[test]
fn g2_phantom_write_skew() {
    for scan in [Scan(0, 99), ScanGroup(1)] {
        // The first to insert invalidates the other's scan, and not its own.
        let schedule = [
            (0, scan),
            (1, scan),
            (0, Insert(31, 1)),
            (1, Insert(41, 1)),
            (0, Commit),
            (1, Commit),
        ];
        for_each_protocol!(|P| {
            if P::WORKERS_MAX > 1 {
                let run = run::<P>(ZEROS, &schedule);
                check(ZEROS, &run);
                assert!(run.committed().contains(&false) || run.somebody_waited, "{run:#?}");
            }
        });
    }
}

#[test]
fn g2_write_skew_by_deletion() {
    anomaly(
        ZEROS,
        &[
            (0, Scan(0, 99)),
            (1, Scan(0, 99)),
            (0, Delete(X)),
            (1, Delete(Y)),
            (0, Commit),
            (1, Commit),
        ],
        &[true, false],
    );
}

#[test]
fn g2_write_skew_by_absence() {
    for (x, y) in [(31, 41), (HX + 5, HX + 6)] {
        let schedule = [
            (0, Read(x)),
            (1, Read(y)),
            (0, Insert(y, 1)),
            (1, Insert(x, 1)),
            (0, Commit),
            (1, Commit),
        ];
        for_each_protocol!(|P| {
            if P::WORKERS_MAX > 1 {
                let run = run::<P>(ZEROS, &schedule);
                check(ZEROS, &run);
                assert!(run.committed().contains(&false) || run.somebody_waited, "{run:#?}");
            }
        });
    }
}

#[test]
fn read_only_anomaly() {
    anomaly(
        ZEROS,
        &[
            (0, Read(X)),
            (0, Read(Y)),
            (1, Read(Y)),
            (1, Write(Y, 1)),
            (1, Commit),
            (2, Read(X)),
            (2, Read(Y)),
            (2, Commit),
            (0, Write(X, 1)),
            (0, Commit),
        ],
        &[false, true, true],
    );
}

#[test]
fn long_fork() {
    anomaly(
        ZEROS,
        &[
            (0, Write(X, 1)),
            (1, Write(Y, 1)),
            (3, Read(X)),
            (0, Commit),
            (2, Read(X)),
            (2, Read(Y)),
            (1, Commit),
            (3, Read(Y)),
            (2, Commit),
            (3, Commit),
        ],
        &[true, true, false, false],
    );
}

#[test]
fn a_transaction_that_completed_is_seen() {
    harmless(ZEROS, &[(0, Write(X, 1)), (0, Commit), (1, Read(X)), (1, Commit)]);
    harmless(
        ZEROS,
        &[(0, Insert(31, 1)), (0, Commit), (1, Scan(0, 99)), (1, ScanGroup(1)), (1, Commit)],
    );
}

/// An update that fails its constraint has read the row, and what the transaction does then
/// rests on it.
#[test]
fn write_skew_by_an_update_that_was_refused() {
    anomaly(
        ZEROS,
        &[
            (0, AddIfNotNegative(X, -1)),
            (1, Read(Y)),
            (1, AddIfNotNegative(X, 5)),
            (0, Write(Y, 1)),
            (1, Commit),
            (0, Commit),
        ],
        &[false, true],
    );
}

/// So has an insertion that met a row, or an entry of a unique index.
#[test]
fn write_skew_by_an_insertion_that_was_refused() {
    anomaly(
        &[(X, 0), (Y, 0)],
        &[
            (0, InsertIfAbsent(X, 7)),
            (1, Read(Y)),
            (1, Delete(X)),
            (0, Write(Y, 1)),
            (1, Commit),
            (0, Commit),
        ],
        &[false, true],
    );
}

#[test]
fn of_two_that_insert_a_key_one_wins() {
    for key in [31, HX + 5] {
        anomaly(
            ZEROS,
            &[(0, Insert(key, 1)), (1, InsertIfAbsent(key, 2)), (0, Commit), (1, Commit)],
            &[true, false],
        );
        // Also if the one who came first gives up: its session ends without a commit.
        harmless_but_unfinished(
            &[(0, Insert(key, 1)), (1, InsertIfAbsent(key, 2)), (1, Commit)],
            &[(key, 2)],
        );
    }
}

/// The first transaction is rolled back at the end; the second commits.
fn harmless_but_unfinished(schedule: &[(usize, Step)], added: &[(u64, i64)]) {
    for_each_protocol!(|P| {
        if P::WORKERS_MAX > 1 {
            let run = run::<P>(ZEROS, schedule);
            check(ZEROS, &run);
            if P::NAME == "dbx" {
                assert_eq!(run.committed(), [false, true]);
                assert_eq!(run.left, ZEROS.iter().chain(added).copied().collect());
            }
        }
    });
}

#[test]
fn a_row_deleted_under_an_update() {
    for x in [X, HX] {
        anomaly(
            ZEROS,
            &[(0, Read(x)), (1, Delete(x)), (1, Commit), (0, Write(x, 1)), (0, Commit)],
            &[false, true],
        );
    }
}

#[test]
fn deleted_and_inserted_again_between_two_reads() {
    for x in [X, HX] {
        anomaly(
            ZEROS,
            &[
                (0, Read(x)),
                (1, Delete(x)),
                (1, Commit),
                (2, Insert(x, 5)),
                (2, Commit),
                (0, Read(x)),
                (0, Commit),
            ],
            &[false, true, true],
        );
    }
}

#[test]
fn readers_do_not_disturb_each_other() {
    harmless(
        ZEROS,
        &[
            (0, Scan(0, 99)),
            (1, Read(X)),
            (1, Read(HX)),
            (2, ScanGroup(0)),
            (1, Commit),
            (0, Read(Y)),
            (0, Commit),
            (2, Commit),
        ],
    );
}
