//! Crashes at random moments while several threads commit, the log's threads write, and a thread takes checkpoints.
//!
//! *Clocks* show which transactions must survive together. The clock of a row says, for each writer, how many of
//! its transactions the row depends on, directly or through other rows. A transaction takes the maximum of the
//! clocks that it reads, adds itself, and stores the result in the rows that it writes.

use std::collections::BTreeMap;
use std::thread::scope;

use weft::durability::SimulatedDisk;
use weft::htm::word::{Ordering, Word};
use weft::protocol::{Dbx, Protocol, Silo, TwoPhaseLocking};
use weft::{Acknowledge, Database, DurabilityOptions, Error, Record, Table, TransactionOptions};

use super::place;
use weft_tests::{Named, Seed, stress};

/// A row that all writers write.
#[derive(Clone, Debug, Record)]
struct Shared {
    #[record(key)]
    id: u32,
    #[record(index)]
    writer: u8,
    value: i64,
    clock: Vec<u64>,
}

/// What a writer has done so far.
#[derive(Clone, Debug, Record)]
#[record(storage = "hash")]
struct Writer {
    #[record(key)]
    number: u32,
    transactions: u64,
    /// The shared rows that its last transaction wrote.
    wrote: Vec<u32>,
}

/// A row that a writer inserts and deletes in turns.
#[derive(Clone, Copy, Debug, Record)]
struct Fleeting {
    #[record(key)]
    writer: u32,
    transactions: u64,
}

const WRITERS: usize = 3;
const SHARED: u32 = 6;

/// A database that writers work on, and the invariants that hold after a crash.
pub(super) trait Workplace: Sync + Sized {
    type Protocol: Protocol;

    fn open(disk: &SimulatedDisk, options: DurabilityOptions, manual: bool) -> Self;

    fn database(&self) -> &Database<Self::Protocol>;

    /// Inserts the rows that exist before the writers start.
    fn fill(&self);

    /// Runs one transaction of a writer. Returns how many transactions the writer has committed, if all of them
    /// are known to be durable.
    fn step(
        &self,
        writer: usize,
        acknowledge: Acknowledge,
        random: &mut fastrand::Rng,
    ) -> Option<u64>;

    /// Checks the invariants. Returns the number of surviving transactions of each writer.
    fn check(&self, circumstances: &str) -> Vec<u64>;
}

struct Tables<P: Protocol> {
    database: Database<P>,
    shared: Table<Shared>,
    writers: Table<Writer>,
    fleeting: Table<Fleeting>,
}

impl<P: Protocol> Workplace for Tables<P> {
    type Protocol = P;

    fn open(disk: &SimulatedDisk, options: DurabilityOptions, manual: bool) -> Self {
        let builder = Database::builder()
            .protocol::<P>()
            .table::<Shared>()
            .table::<Writer>()
            .table::<Fleeting>();
        let database = place(builder, disk, options, manual).open().unwrap();
        let (shared, writers) = (database.table().unwrap(), database.table().unwrap());
        let fleeting = database.table().unwrap();
        Tables { database, shared, writers, fleeting }
    }

    fn database(&self) -> &Database<P> {
        &self.database
    }

    fn fill(&self) {
        let filled = self.database.transact(|tx| {
            for id in 0..SHARED {
                let row = Shared { id, writer: 0, value: 0, clock: vec![0; WRITERS] };
                tx.insert(&self.shared, row)?;
            }
            (0..WRITERS as u32).try_for_each(|number| {
                let row = Writer { number, transactions: 0, wrote: Vec::new() };
                tx.insert(&self.writers, row)
            })
        });
        filled.map_err(|error: Error| error).unwrap();
    }

    fn step(
        &self,
        writer: usize,
        acknowledge: Acknowledge,
        random: &mut fastrand::Rng,
    ) -> Option<u64> {
        let from = random.u32(..SHARED);
        let to = (from + random.u32(1..SHARED)) % SHARED;
        let amount = random.i64(-9..=9);
        let only_reads = random.u8(..4) == 0;
        let body = |tx: &weft::Transaction<'_, P>| {
            let number = writer as u32;
            let row = tx.get(&self.writers, &number)?.expect("the writer exists");
            let transactions = row.transactions + 1;
            let source = tx.get(&self.shared, &from)?.expect("the row exists");
            let target = tx.get(&self.shared, &to)?.expect("the row exists");
            let mut clock = source.clock.clone();
            clock.iter_mut().zip(&target.clock).for_each(|(one, other)| *one = (*one).max(*other));
            clock[writer] = transactions;
            let put = |id, amount| {
                let done = tx.update(&self.shared, &id, |row| {
                    row.writer = writer as u8;
                    row.value += amount;
                    row.clock.clone_from(&clock);
                });
                done.map(|done| done.expect("the row exists"))
            };
            // Either it moves an amount from one row to another, or it only reads one row and writes its clock
            // into the other.
            let wrote = if only_reads {
                put(to, 0)?;
                vec![to]
            } else {
                put(from, -amount)?;
                put(to, amount)?;
                vec![from, to]
            };
            tx.upsert(&self.writers, Writer { number, transactions, wrote })?;
            if transactions.is_multiple_of(2) {
                tx.insert(&self.fleeting, Fleeting { writer: number, transactions })?;
            } else {
                tx.delete(&self.fleeting, &number)?;
            }
            Ok::<u64, Error>(transactions)
        };
        if writer > 0 && acknowledge == Acknowledge::Durable {
            return Some(self.database.transact(body).unwrap());
        }
        let done = self.database.transact_with_token(&TransactionOptions::new(), body);
        let (transactions, token) = done.unwrap();
        let waits = writer == 0 || random.u8(..8) == 0;
        waits.then(|| {
            self.database.wait_durable(token).unwrap();
            transactions
        })
    }

    /// Checks that surviving rows depend only on surviving transactions, and that no transaction survives in part.
    /// Returns the number of surviving transactions of each writer.
    fn check(&self, circumstances: &str) -> Vec<u64> {
        let read = self.database.snapshot(|snapshot| {
            let rows = snapshot.range(&self.shared, ..).collect::<Result<Vec<_>, _>>()?;
            let mut writers = BTreeMap::new();
            for row in snapshot.rows(&self.writers) {
                let row = row?;
                writers.insert(row.number, row.clone());
            }
            assert_eq!((rows.len(), writers.len()), (SHARED as usize, WRITERS), "{circumstances}");
            let sum: i64 = rows.iter().map(|row| row.value).sum();
            assert_eq!(sum, 0, "{circumstances}");
            for row in &rows {
                for (writer, &seen) in writers.values().zip(&row.clock) {
                    assert!(
                        seen <= writer.transactions,
                        "{row:?} depends on a transaction that is lost, {writer:?}: {circumstances}"
                    );
                }
            }
            for (number, writer) in &writers {
                for &id in &writer.wrote {
                    let seen = rows[id as usize].clock[*number as usize];
                    assert_eq!(seen, writer.transactions, "{writer:?}, row {id}: {circumstances}");
                }
                let fleeting = snapshot.get(&self.fleeting, number)?.map(|row| row.transactions);
                let even = writer.transactions > 0 && writer.transactions.is_multiple_of(2);
                let expected = even.then_some(writer.transactions);
                assert_eq!(fleeting, expected, "{writer:?}: {circumstances}");
            }
            let by_writer = snapshot.range_by(&self.shared, Shared::WRITER, ..).count();
            assert_eq!(by_writer, rows.len(), "{circumstances}");
            Ok::<_, Error>(writers.values().map(|writer| writer.transactions).collect())
        });
        read.unwrap()
    }
}

/// Counts of what a test has covered.
#[derive(Debug, Default)]
struct Tried {
    crashes: u32,
    /// Transactions that were known to be durable at the last crash of a round.
    acknowledged: u64,
    /// Transactions that survived that crash.
    survived: u64,
}

/// Lets writers run on `disk`, crashes it at random moments, and checks the survivor each time. Returns the last
/// crashed disk.
fn round<W: Workplace>(
    disk: &SimulatedDisk,
    seed: u64,
    crashes: u32,
    tried: &mut Tried,
) -> SimulatedDisk {
    let _named = Named(W::Protocol::NAME);
    let mut random = fastrand::Rng::with_seed(seed);
    let acknowledge = if random.bool() { Acknowledge::Durable } else { Acknowledge::Committed };
    let options = DurabilityOptions::new()
        .acknowledge(acknowledge)
        .loggers(random.usize(1..=2))
        .segment_bytes([2_000, 20_000, 1 << 20][random.usize(..3)])
        .epoch_interval(std::time::Duration::from_micros(200))
        .threads(2);
    let tables = W::open(disk, options.clone(), false);
    if tables.database().recovered().is_some_and(|recovered| recovered.is_new) {
        tables.fill();
        tables.database().flush().unwrap();
    }
    // For each writer, the number of its transactions that it knows to be durable.
    let before = tables.check("before");
    let acknowledged: Vec<Word> = before.iter().copied().map(Word::new).collect();
    let stop = Word::new(0);
    let mut crashed = disk.clone();
    scope(|scope| {
        let (tables, acknowledged, stop) = (&tables, &acknowledged, &stop);
        for (writer, acknowledged) in acknowledged.iter().enumerate() {
            let mut random = fastrand::Rng::with_seed(seed + writer as u64);
            scope.spawn(move || {
                while stop.load(Ordering::SeqCst) == 0 {
                    if let Some(transactions) = tables.step(writer, acknowledge, &mut random) {
                        acknowledged.store(transactions, Ordering::SeqCst);
                    }
                }
            });
        }
        scope.spawn(move || {
            while stop.load(Ordering::SeqCst) == 0 {
                tables.database().checkpoint().unwrap();
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        });
        // Stops the writers even if a check fails, because the scope waits for them.
        let _stop = Stop(stop);
        let mut last = (0, 0);
        for crash in 0..crashes {
            std::thread::sleep(std::time::Duration::from_micros(random.u64(..4000)));
            let acknowledged: Vec<u64> =
                acknowledged.iter().map(|count| count.load(Ordering::SeqCst)).collect();
            crashed = disk.crash(random.u64(..));
            let circumstances = format!("{}, crash {crash}, {options:?}", W::Protocol::NAME);
            let survivor = W::open(&crashed, options.clone(), true);
            let survived = survivor.check(&circumstances);
            assert!(
                survived.iter().zip(&acknowledged).all(|(survived, count)| survived >= count),
                "{survived:?} of {acknowledged:?}: {circumstances}"
            );
            let of_round = |counts: &[u64]| counts.iter().sum::<u64>() - before.iter().sum::<u64>();
            tried.crashes += 1;
            last = (of_round(&acknowledged), of_round(&survived));
        }
        tried.acknowledged += last.0;
        tried.survived += last.1;
    });
    // At the end, without a crash, everything that committed is there.
    let circumstances = format!("{}, at the end, {options:?}", W::Protocol::NAME);
    let committed = tables.check(&circumstances);
    drop(tables);
    let survivor = W::open(&disk.snapshot(), options, true);
    assert_eq!(survivor.check(&circumstances), committed, "{circumstances}");
    crashed
}

struct Stop<'a>(&'a Word);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(1, Ordering::SeqCst);
    }
}

/// Runs `rounds` rounds. Most rounds go on with the crashed disk of the round before.
pub(super) fn rounds<W: Workplace>(seed: &Seed, rounds: usize) {
    let mut tried = Tried::default();
    let mut random = seed.random(0);
    let mut disk = SimulatedDisk::new(seed.0);
    for number in 0..rounds {
        // Every third round begins with an empty disk.
        if number % 3 == 0 {
            disk = SimulatedDisk::new(random.u64(..));
        }
        disk = round::<W>(&disk, random.u64(..), 12, &mut tried);
    }
    println!("{}: {tried:?}", W::Protocol::NAME);
    assert!(tried.acknowledged > 0, "{}: no transaction was acknowledged", W::Protocol::NAME);
}

#[test]
fn surviving_rows_depend_only_on_surviving_transactions() {
    let seed = Seed::draw();
    rounds::<Tables<Dbx>>(&seed, 12 * stress());
    rounds::<Tables<Silo>>(&seed, 6 * stress());
    rounds::<Tables<TwoPhaseLocking>>(&seed, 6 * stress());
}
