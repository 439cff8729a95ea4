//! One client: its planned operations, and the ledger of those that it has executed.
//!
//! Drawing from a Zipf distribution takes about as long as a short transaction. So a client draws a few million
//! operations before the measurement starts. When they are used up, it begins again with the first. An operation
//! takes one word:
//!
//! ```text
//!   63   62 61          46 45                                       0
//!  +-------+--------------+------------------------------------------+
//!  | kind  | rows (scans) | a loaded row: key, or rank if "latest"    |
//!  +-------+--------------+------------------------------------------+
//! ```
//!
//! The keys of the loaded rows are the numbers from 0. Each client inserts ascending keys from a range of its own,
//! so that no two insertions conflict:
//!
//! ```text
//!   0 .. records         loaded
//!   (n + 1) << 38 ..     inserted by client n
//! ```

use std::sync::Arc;

use fastrand::Rng;
use weft::htm::word::{Mutex, Ordering, Word};

use super::mix::Kind;
use super::zipf::{Scatter, Zipf};
use super::{Distribution, Parameters};

/// The number of bits for a loaded row, which is more than enough.
const TARGET_BITS: u32 = 46;

/// The number of bits for a scan's length.
const ROWS_BITS: u32 = 16;

const _: () = assert!(TARGET_BITS + ROWS_BITS + 2 == u64::BITS);

/// The distance between the first keys of two clients (log2).
const CLIENT_SHIFT: u32 = 38;

/// The largest number of records that can be loaded. Their keys are below those of the first client.
pub const RECORDS_MAX: u64 = 1 << 32;

const _: () = assert!(RECORDS_MAX <= 1 << CLIENT_SHIFT && RECORDS_MAX < 1 << TARGET_BITS);

/// The number of operations that a client draws for each record: with so many, hardly any record is left out. The
/// total is at least `DRAWN_MIN`, so that with few records the clients do not repeat the same short sequence, and
/// at most `DRAWN_MAX`, so that with many records the draw does not take minutes.
const DRAWN_PER_RECORD: u64 = 4;
const DRAWN_MIN: u64 = 1 << 16;
const DRAWN_MAX: u64 = 1 << 22;

/// An operation, packed into a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operation(u64);

impl Operation {
    fn new(kind: Kind, rows: u16, target: u64) -> Operation {
        debug_assert!(target < 1 << TARGET_BITS);
        Operation(
            (kind as u64) << (TARGET_BITS + ROWS_BITS) | u64::from(rows) << TARGET_BITS | target,
        )
    }

    #[inline(always)]
    pub(super) fn kind(self) -> Kind {
        Kind::ALL[(self.0 >> (TARGET_BITS + ROWS_BITS)) as usize]
    }

    /// Returns the number of rows that a scan reads.
    #[inline(always)]
    pub(super) fn rows(self) -> usize {
        usize::from((self.0 >> TARGET_BITS) as u16)
    }

    #[inline(always)]
    fn target(self) -> u64 {
        self.0 & ((1 << TARGET_BITS) - 1)
    }
}

/// The counts of a client's committed changes. Only the client writes them, and they are summed up after the run.
#[repr(align(64))]
#[derive(Debug)]
pub(super) struct Ledger {
    number: u64,
    modified: Word,
    inserted: Word,
}

impl Ledger {
    /// Adds to a counter of the calling client. Relaxed: it has one writer, and other threads read it only after
    /// joining that writer's thread.
    #[inline(always)]
    fn add(counter: &Word, count: u64) {
        counter.store(counter.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }
}

/// The ledgers of all clients of a database.
#[derive(Debug, Default)]
pub(super) struct Ledgers(Mutex<Vec<Arc<Ledger>>>);

impl Ledgers {
    /// Adds a ledger for a new client.
    fn open(&self) -> Arc<Ledger> {
        let mut ledgers = self.0.lock().expect("no client panics with the lock");
        let number = ledgers.len() as u64;
        assert!(number + 1 < 1 << (u64::BITS - CLIENT_SHIFT), "too many clients for their keys");
        let (modified, inserted) = (Word::new(0), Word::new(0));
        ledgers.push(Arc::new(Ledger { number, modified, inserted }));
        Arc::clone(&ledgers[number as usize])
    }

    /// Returns the number of committed read-modify-writes of all clients.
    pub(super) fn modified(&self) -> u64 {
        let ledgers = self.0.lock().expect("no client panics with the lock");
        // Relaxed: see `Ledger::add`.
        ledgers.iter().map(|ledger| ledger.modified.load(Ordering::Relaxed)).sum()
    }

    /// Returns the first key of each client, and the first key that it has not inserted.
    pub(super) fn inserted(&self) -> Vec<(u64, u64)> {
        let ledgers = self.0.lock().expect("no client panics with the lock");
        let range = |ledger: &Arc<Ledger>| {
            let first = first_key(ledger.number);
            // Relaxed: see `Ledger::add`.
            (first, first + ledger.inserted.load(Ordering::Relaxed))
        };
        ledgers.iter().map(range).collect()
    }
}

/// Returns the first key that a client inserts.
fn first_key(number: u64) -> u64 {
    (number + 1) << CLIENT_SHIFT
}

/// The changes of one transaction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    pub(super) modified: u64,
    pub(super) inserted: u64,
}

/// The state that a thread carries from one transaction to the next.
#[derive(Debug)]
pub struct Client {
    operations: Box<[Operation]>,
    /// The position of the next transaction's first operation.
    next: usize,
    per_transaction: usize,
    /// The number of loaded records, if the target of an operation is a rank by age.
    latest_of: Option<u64>,
    first_key: u64,
    inserted: u64,
    ledger: Arc<Ledger>,
}

impl Client {
    /// Creates the client of the `thread`-th thread.
    pub(super) fn new(
        parameters: &Parameters,
        ledgers: &Ledgers,
        seed: u64,
        thread: usize,
    ) -> Self {
        let ledger = ledgers.open();
        let per_transaction = parameters.operations as usize;
        let latest_of =
            (parameters.distribution == Distribution::Latest).then_some(parameters.records);
        Client {
            operations: draw(parameters, &mut random_of(seed, thread)),
            next: 0,
            per_transaction,
            latest_of,
            first_key: first_key(ledger.number),
            inserted: 0,
            ledger,
        }
    }

    /// Returns the range of the operations of the next transaction.
    #[inline(always)]
    pub(super) fn advance(&mut self) -> std::ops::Range<usize> {
        if self.next == self.operations.len() {
            self.next = 0;
        }
        let first = self.next;
        self.next += self.per_transaction;
        first..self.next
    }

    /// Returns the operations in a range that [`Client::advance`] returned.
    #[inline(always)]
    pub(super) fn operations(&self, range: std::ops::Range<usize>) -> &[Operation] {
        &self.operations[range]
    }

    /// Returns the position, among the transaction types, of a transaction whose first operation is at `first`.
    #[inline(always)]
    pub(super) fn transaction_type(&self, first: usize) -> usize {
        if self.per_transaction == 1 {
            self.operations[first].kind() as usize
        } else {
            super::MIXED
        }
    }

    /// Returns the key of the row that an operation accesses.
    #[inline(always)]
    pub(super) fn key(&self, operation: Operation) -> u64 {
        match self.latest_of {
            None => operation.target(),
            Some(records) => self.latest(records, operation.target()),
        }
    }

    /// Returns the key of a rank by age. The row that this client inserted last has the first rank. The loaded rows
    /// follow after the client's rows, from the last to the first.
    fn latest(&self, records: u64, rank: u64) -> u64 {
        match self.inserted.checked_sub(rank + 1) {
            Some(own) => self.first_key + own,
            None => records - 1 - (rank - self.inserted),
        }
    }

    /// Returns an unused key, for the `earlier + 1`-th insertion of a transaction.
    #[inline(always)]
    pub(super) fn fresh_key(&self, earlier: u64) -> u64 {
        self.first_key + self.inserted + earlier
    }

    /// Records the changes of a committed transaction.
    #[inline(always)]
    pub(super) fn note(&mut self, done: Done) {
        if done.modified > 0 {
            Ledger::add(&self.ledger.modified, done.modified);
        }
        if done.inserted > 0 {
            self.inserted += done.inserted;
            Ledger::add(&self.ledger.inserted, done.inserted);
        }
    }
}

/// Returns the random source of a thread. The numbers for different threads, or different seeds, are independent.
fn random_of(seed: u64, thread: usize) -> Rng {
    let mut seeds = Rng::with_seed(seed);
    let mut random =
        Rng::with_seed(seeds.u64(..) ^ (thread as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    // The first outputs of similar seeds resemble each other.
    Rng::with_seed(random.u64(..) ^ random.u64(..).rotate_left(32))
}

/// Draws a client's operations, for a whole number of transactions.
fn draw(parameters: &Parameters, random: &mut Rng) -> Box<[Operation]> {
    let Parameters { records, mix, operations, scan_rows, theta, distribution } = *parameters;
    let wanted = records.saturating_mul(DRAWN_PER_RECORD).clamp(DRAWN_MIN, DRAWN_MAX);
    let count = wanted.next_multiple_of(u64::from(operations));
    let (zipf, scatter) = (Zipf::new(records, theta), Scatter::new(records));
    let one = |_| {
        let kind = mix.draw(random);
        let rank = zipf.draw(random);
        let target = match distribution {
            Distribution::Zipf => scatter.record(rank),
            Distribution::Latest => rank,
        };
        let rows = if kind == Kind::Scan { random.u16(1..=scan_rows) } else { 0 };
        Operation::new(kind, rows, target)
    };
    (0..count).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::super::mix::Mix;
    use super::*;

    fn parameters() -> Parameters {
        let mix = Mix::new([25, 25, 25, 25]).expect("100 in all");
        Parameters { records: 1_000, mix, operations: 3, ..Parameters::default() }
    }

    #[test]
    fn operations_survive_packing() {
        for kind in Kind::ALL {
            for (rows, target) in [(0, 0), (u16::MAX, (1 << TARGET_BITS) - 1), (7, 123_456)] {
                let operation = Operation::new(kind, rows, target);
                assert_eq!(operation.kind(), kind);
                assert_eq!((operation.rows(), operation.target()), (rows.into(), target));
            }
        }
    }

    #[test]
    fn a_seed_and_a_thread_give_the_same_operations_again() {
        let parameters = parameters();
        let drawn = |seed, thread| draw(&parameters, &mut random_of(seed, thread));
        assert_eq!(drawn(1, 0), drawn(1, 0));
        assert_ne!(drawn(1, 0), drawn(1, 1));
        assert_ne!(drawn(1, 0), drawn(2, 0));
        assert!(drawn(1, 0).len().is_multiple_of(3));
    }

    #[test]
    fn operations_go_round() {
        let (parameters, ledgers) = (parameters(), Ledgers::default());
        let mut client = Client::new(&parameters, &ledgers, 1, 0);
        let transactions = client.operations.len() / 3;
        let first = client.advance();
        assert_eq!(first, 0..3);
        (1..transactions).for_each(|_| assert_eq!(client.advance().len(), 3));
        assert_eq!(client.advance(), first);
    }

    #[test]
    fn latest_means_own_rows_first_and_then_the_loaded_ones() {
        let ledgers = Ledgers::default();
        let parameters =
            Parameters { distribution: Distribution::Latest, records: 10, ..parameters() };
        let _another = Client::new(&parameters, &ledgers, 1, 0);
        let mut client = Client::new(&parameters, &ledgers, 1, 1);
        let latest =
            |client: &Client| (0..4).map(|rank| client.latest(10, rank)).collect::<Vec<_>>();
        assert_eq!(latest(&client), [9, 8, 7, 6]);
        let first = 2 << CLIENT_SHIFT;
        assert_eq!((client.fresh_key(0), client.fresh_key(1)), (first, first + 1));
        client.note(Done { modified: 5, inserted: 2 });
        assert_eq!(latest(&client), [first + 1, first, 9, 8]);
        assert_eq!(ledgers.modified(), 5);
        let unused = 1 << CLIENT_SHIFT;
        assert_eq!(ledgers.inserted(), [(unused, unused), (first, first + 2)]);
    }
}
