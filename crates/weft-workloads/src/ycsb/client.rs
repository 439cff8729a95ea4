//! One client: what it is going to do, and what it has done.
//!
//! Drawing from a Zipf distribution takes about as long as a short transaction, so a client draws
//! its operations before the clock runs, a few million of them, and goes through them again when
//! they are used up. An operation takes one word:
//!
//! ```text
//!   63   62 61          46 45                                       0
//!  +-------+--------------+------------------------------------------+
//!  | kind  | rows (scans) | a loaded row: key, or rank if "latest"    |
//!  +-------+--------------+------------------------------------------+
//! ```
//!
//! Keys of the loaded rows are the numbers from 0. Each client inserts under keys of its own,
//! ascending from a place of its own in the tree, so that no insertion meets another:
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

/// Bits for a loaded row: more than enough.
const TARGET_BITS: u32 = 46;

/// Bits of a scan's length.
const ROWS_BITS: u32 = 16;

const _: () = assert!(TARGET_BITS + ROWS_BITS + 2 == u64::BITS);

/// Clients' keys lie so far apart (log2).
const CLIENT_SHIFT: u32 = 38;

/// The most records that can be loaded: their keys end where the first client's begin.
pub const RECORDS_MAX: u64 = 1 << 32;

const _: () = assert!(RECORDS_MAX <= 1 << CLIENT_SHIFT && RECORDS_MAX < 1 << TARGET_BITS);

/// How many operations a client draws: with so many more than records, hardly a record is left
/// out. Between the bounds, so that few records do not mean that all clients go round together,
/// nor many that drawing takes minutes.
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

    /// How many rows a scan reads.
    #[inline(always)]
    pub(super) fn rows(self) -> usize {
        usize::from((self.0 >> TARGET_BITS) as u16)
    }

    #[inline(always)]
    fn target(self) -> u64 {
        self.0 & ((1 << TARGET_BITS) - 1)
    }
}

/// What a client has done: written by it alone, and summed up when all is over.
#[repr(align(64))]
#[derive(Debug)]
pub(super) struct Ledger {
    number: u64,
    modified: Word,
    inserted: Word,
}

impl Ledger {
    /// Adds to a counter of the calling client. Relaxed: it has one writer, and is read by others
    /// when that one's thread has been joined.
    #[inline(always)]
    fn add(counter: &Word, count: u64) {
        counter.store(counter.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }
}

/// The ledgers of all clients of a database.
#[derive(Debug, Default)]
pub(super) struct Ledgers(Mutex<Vec<Arc<Ledger>>>);

impl Ledgers {
    /// A ledger for one more client.
    fn open(&self) -> Arc<Ledger> {
        let mut ledgers = self.0.lock().expect("no client panics with the lock");
        let number = ledgers.len() as u64;
        assert!(number + 1 < 1 << (u64::BITS - CLIENT_SHIFT), "too many clients for their keys");
        let (modified, inserted) = (Word::new(0), Word::new(0));
        ledgers.push(Arc::new(Ledger { number, modified, inserted }));
        Arc::clone(&ledgers[number as usize])
    }

    /// Committed read-modify-writes of all clients.
    pub(super) fn modified(&self) -> u64 {
        let ledgers = self.0.lock().expect("no client panics with the lock");
        // Relaxed: see `Ledger::add`.
        ledgers.iter().map(|ledger| ledger.modified.load(Ordering::Relaxed)).sum()
    }

    /// The first key of each client, and the first that it has not inserted.
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

/// The first key that a client inserts.
fn first_key(number: u64) -> u64 {
    (number + 1) << CLIENT_SHIFT
}

/// What one transaction has done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    pub(super) modified: u64,
    pub(super) inserted: u64,
}

/// What one thread carries from one transaction to the next.
#[derive(Debug)]
pub struct Client {
    operations: Box<[Operation]>,
    /// Where the next transaction's operations begin.
    next: usize,
    per_transaction: usize,
    /// The number of loaded records, if it takes part in the meaning of an operation's target.
    latest_of: Option<u64>,
    first_key: u64,
    inserted: u64,
    ledger: Arc<Ledger>,
}

impl Client {
    /// The client of the `thread`-th thread.
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

    /// The operations of the next transaction.
    #[inline(always)]
    pub(super) fn advance(&mut self) -> std::ops::Range<usize> {
        if self.next == self.operations.len() {
            self.next = 0;
        }
        let first = self.next;
        self.next += self.per_transaction;
        first..self.next
    }

    /// The operations in a range that [`Client::advance`] gave.
    #[inline(always)]
    pub(super) fn operations(&self, range: std::ops::Range<usize>) -> &[Operation] {
        &self.operations[range]
    }

    /// The position among the transaction types of a transaction with these operations.
    #[inline(always)]
    pub(super) fn transaction_type(&self, first: usize) -> usize {
        if self.per_transaction == 1 {
            self.operations[first].kind() as usize
        } else {
            super::MIXED
        }
    }

    /// The key of the row that an operation is about.
    #[inline(always)]
    pub(super) fn key(&self, operation: Operation) -> u64 {
        match self.latest_of {
            None => operation.target(),
            Some(records) => self.latest(records, operation.target()),
        }
    }

    /// The key of a rank, where the row that this client inserted last comes first, and behind its
    /// rows the loaded ones, from the last.
    fn latest(&self, records: u64, rank: u64) -> u64 {
        match self.inserted.checked_sub(rank + 1) {
            Some(own) => self.first_key + own,
            None => records - 1 - (rank - self.inserted),
        }
    }

    /// A key that no row has, for the `earlier + 1`-th insertion of a transaction.
    #[inline(always)]
    pub(super) fn fresh_key(&self, earlier: u64) -> u64 {
        self.first_key + self.inserted + earlier
    }

    /// Takes note of what a committed transaction has done.
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

/// The random numbers of a thread: those of two threads, or of two seeds, have nothing in common.
fn random_of(seed: u64, thread: usize) -> Rng {
    let mut seeds = Rng::with_seed(seed);
    let mut random =
        Rng::with_seed(seeds.u64(..) ^ (thread as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    // The first outputs of similar seeds resemble each other.
    Rng::with_seed(random.u64(..) ^ random.u64(..).rotate_left(32))
}

/// Draws a client's operations: a whole number of transactions.
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
