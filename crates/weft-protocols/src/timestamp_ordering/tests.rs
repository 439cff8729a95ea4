//! Tests of timestamp ordering: the rules of access, one by one; random interleavings of accesses, compared
//! with a serial run; and cases in a database that chance would hardly ever produce.

use std::sync::mpsc::channel;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use weft::store::record::NewestWord;
use weft::{Database, Error, Failure};
use weft_htm::Htm;

use super::*;

/// A row, identified by its address: what an access returns is compared, and never followed.
fn row(number: usize) -> NonNull<u8> {
    NonNull::new(ptr::without_provenance_mut(number * 16)).expect("rows are counted from 1")
}

/// One record, accessed under the software twin.
struct Fixture {
    record: TimedRecord,
    index: IndexTimestamps,
    regions: Regions,
}

impl Fixture {
    /// A record that was written at `time`.
    fn written(time: u64) -> Self {
        let fixture = Fixture::placeholder();
        install(&fixture.record, Tid::at(time), Some(row(1)), &fixture.regions);
        fixture
    }

    fn placeholder() -> Self {
        Fixture {
            record: StoredRecord { header: RecordTimestamps::default(), newest: NewestWord::new() },
            index: IndexTimestamps::default(),
            regions: Regions::new(&Htm::software()),
        }
    }

    fn read(&self, time: u64) -> AccessResult {
        read_at(&self.record, time, &self.index, &self.regions)
    }

    fn reserve(&self, time: u64) -> AccessResult {
        reserve(&self.record, time, &self.regions)
    }

    fn install(&self, time: u64, number: usize) {
        install(&self.record, Tid::at(time), Some(row(number)), &self.regions);
    }

    fn release(&self, read_at: Option<u64>) {
        release(&self.record, read_at, &self.index, &self.regions);
    }
}

fn granted(version: u64, number: usize) -> AccessResult {
    AccessResult::Granted(Tid::at(version), row(number).as_ptr())
}

#[test]
fn access_older_than_the_newest_version_is_too_late() {
    let fixture = Fixture::written(5);
    assert_eq!(fixture.read(4), AccessResult::TooLate);
    assert_eq!(fixture.reserve(4), AccessResult::TooLate);
    assert_eq!(fixture.read(6), granted(5, 1));
    assert_eq!(fixture.reserve(7), granted(5, 1));
}

#[test]
fn write_below_a_younger_read_is_too_late() {
    let fixture = Fixture::written(1);
    assert_eq!(fixture.read(9), granted(1, 1));
    assert_eq!(fixture.read(3), granted(1, 1), "an older read does not matter");
    assert_eq!(fixture.reserve(8), AccessResult::TooLate);
    assert_eq!(fixture.reserve(9), granted(1, 1), "the reader itself may write");
}

#[test]
fn only_younger_transactions_wait_for_a_pending_write() {
    let fixture = Fixture::written(1);
    assert_eq!(fixture.reserve(5), granted(1, 1));
    assert_eq!(fixture.reserve(5), granted(1, 1), "reserving again changes nothing");
    assert_eq!(fixture.read(6), AccessResult::Wait(5));
    assert_eq!(fixture.reserve(6), AccessResult::Wait(5));
    assert_eq!(fixture.read(4), granted(1, 1), "the version before its place");
    assert_eq!(fixture.reserve(4), AccessResult::TooLate);
    fixture.install(5, 2);
    assert_eq!(fixture.read(6), granted(5, 2));
    assert_eq!(fixture.read(4), AccessResult::TooLate);
}

#[test]
fn released_reservation_leaves_at_most_a_read() {
    let fixture = Fixture::written(1);
    assert_eq!(fixture.reserve(5), granted(1, 1));
    fixture.release(None);
    assert_eq!(fixture.reserve(4), granted(1, 1), "rolled back: no trace is left");
    fixture.release(None);
    assert_eq!(fixture.reserve(5), granted(1, 1));
    fixture.release(Some(5));
    assert_eq!(fixture.reserve(4), AccessResult::TooLate, "committed: it counts as a read");
}

#[test]
fn absent_read_is_remembered_by_the_index() {
    let fixture = Fixture::placeholder();
    assert!(matches!(fixture.read(7), AccessResult::Granted(tid, _) if tid.is_absent()));
    assert!(!fixture.index.admits(6), "7 would have found it");
    assert!(fixture.index.admits(7) && fixture.index.admits(8));

    let fixture = Fixture::written(1);
    assert_eq!(fixture.read(7), granted(1, 1));
    assert!(fixture.index.admits(1), "a row that is there carries its own timestamps");
}

#[test]
fn range_is_protected_from_older_insertions() {
    let index = IndexTimestamps::default();
    assert_eq!(index.protect(5, || true), Ok(()));
    assert_eq!(index.protect(3, || true), Ok(()));
    assert!(!index.admits(4));
    assert!(index.admits(5));
    assert_eq!(index.protect(6, || false), Err(ConflictReason::RangeChanged));
}

#[test]
fn early_deletion_refuses_older_absent_reads() {
    let index = IndexTimestamps::default();
    index.mark_early_deletion(5);
    assert_eq!(index.protect(4, || true), Err(ConflictReason::TimestampOrder));
    assert_eq!(index.protect(6, || true), Ok(()));
    let index = IndexTimestamps::default();
    index.mark_early_deletion(5);
    assert!(!index.admits(4) && index.admits(6));
}

#[test]
fn placeholder_does_not_hide_an_early_deletion() {
    // A row that 3 has read is deleted by 5, its record is unlinked, and 9 is about to insert the key again.
    let fixture = Fixture::placeholder();
    fixture.record.header.pending.store(9, Ordering::Relaxed);
    fixture.index.mark_early_deletion(5);
    assert_eq!(fixture.read(3), AccessResult::TooLate, "there was a row in its place");
    let absent = AccessResult::Granted(Tid::PLACEHOLDER, ptr::null_mut());
    assert_eq!(fixture.read(6), absent, "no row between the deletion and the insertion");
    assert_eq!(fixture.read(10), AccessResult::Wait(9));
}

#[test]
fn reserved_deleted_record_is_not_unlinked() {
    let fixture = Fixture::written(1);
    let deleted = fixture.record.header.tid.load().deleted_at(Tid::at(2));
    install(&fixture.record, deleted, None, &fixture.regions);
    assert!(matches!(fixture.reserve(3), AccessResult::Granted(..)));
    let settle = |unlinked: &mut bool| {
        TimestampOrdering::settle_deleted(
            &fixture.record,
            |_| true,
            || {
                *unlinked = true;
                true
            },
        )
    };
    let mut unlinked = false;
    assert_eq!(settle(&mut unlinked), DeletedOutcome::Busy);
    fixture.release(None);
    assert!(!unlinked);
    assert_eq!(settle(&mut unlinked), DeletedOutcome::Unlinked);
    assert!(unlinked && fixture.record.header.tid.load().is_removed());
    let removed = |access| matches!(access, AccessResult::Granted(tid, _) if tid.is_removed());
    assert!(removed(fixture.read(9)) && removed(fixture.reserve(9)));
    assert!(fixture.index.admits(0), "a removed record is not read");
}

#[test]
fn wait_ends_with_the_writer_or_with_patience() {
    let fixture = Fixture::written(1);
    assert!(wait_for_end_of(5, &fixture.record));
    assert_eq!(fixture.reserve(5), granted(1, 1));
    assert!(!wait_for_end_of(5, &fixture.record), "the reservation is still there");
}

// ---- random interleavings ---------------------------------------------------------------------

const RECORDS: usize = 3;

/// A transaction in progress: what it has read, and which records it has reserved.
#[derive(Default)]
struct OpenTransaction {
    time: u64,
    reads: Vec<(usize, usize)>,
    reserved: Vec<usize>,
}

/// A transaction that has committed.
struct CommittedTransaction {
    time: u64,
    reads: Vec<(usize, usize)>,
    /// The records that it wrote. Each holds the row whose number is the transaction's timestamp.
    writes: Vec<usize>,
}

/// Runs transactions step by step, in a random order, and returns those that committed.
fn interleave(random: &mut fastrand::Rng) -> Vec<CommittedTransaction> {
    // Rows are numbered by the timestamps that wrote them.
    let records: Vec<_> = (0..RECORDS).map(|_| Fixture::written(1)).collect();
    let mut running: Vec<OpenTransaction> = Vec::new();
    let mut committed = Vec::new();
    for time in 2..40 {
        running.push(OpenTransaction { time, ..OpenTransaction::default() });
        for _ in 0..random.u32(0..6) {
            if running.is_empty() {
                break;
            }
            let index = random.usize(..running.len());
            if step(&records, &mut running[index], random) {
                continue;
            }
            let ended = running.swap_remove(index);
            let writes: Vec<_> = match random.bool() {
                true => ended.reserved.clone(),
                false => Vec::new(),
            };
            for &record in &ended.reserved {
                match writes.contains(&record) {
                    true => records[record].install(ended.time, ended.time as usize),
                    false => records[record].release(Some(ended.time)),
                }
            }
            committed.push(CommittedTransaction { time: ended.time, reads: ended.reads, writes });
        }
        // Now and then a transaction rolls back.
        if random.u8(..8) == 0 && !running.is_empty() {
            let index = random.usize(..running.len());
            for record in running.swap_remove(index).reserved {
                records[record].release(None);
            }
        }
    }
    committed
}

/// Makes a random access. Returns false if the transaction is to end instead. An access that is not granted has
/// no effect: other transactions do not notice whether this one goes on.
fn step(
    records: &[Fixture],
    transaction: &mut OpenTransaction,
    random: &mut fastrand::Rng,
) -> bool {
    let record = random.usize(..RECORDS);
    let access = match random.u8(..5) {
        0 => return false,
        1 | 2 => records[record].read(transaction.time),
        _ => {
            let access = records[record].reserve(transaction.time);
            let reserved = matches!(access, AccessResult::Granted(..));
            if reserved && !transaction.reserved.contains(&record) {
                transaction.reserved.push(record);
            }
            access
        }
    };
    if let AccessResult::Granted(_, row) = access {
        transaction.reads.push((record, row.addr() / 16));
    }
    true
}

#[test]
fn committed_reads_agree_with_the_timestamp_order() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let seed = std::env::var("WEFT_SEED")
        .map_or(now.as_nanos() as u64, |seed| seed.parse().expect("WEFT_SEED is a number"));
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut reads, mut writes) = (0, 0);
    for _ in 0..2_000 {
        let mut committed = interleave(&mut random);
        committed.sort_by_key(|transaction| transaction.time);
        let mut rows = [1; RECORDS];
        for transaction in committed {
            for (record, read) in transaction.reads {
                let time = transaction.time;
                assert_eq!(read, rows[record], "record {record} at {time}; WEFT_SEED={seed}");
                reads += 1;
            }
            for record in transaction.writes {
                rows[record] = transaction.time as usize;
                writes += 1;
            }
        }
    }
    assert!(reads > 0 && writes > 0, "something committed");
}

// ---- in a database ----------------------------------------------------------------------------

#[derive(Clone, Debug, PartialEq, weft::Record)]
#[record(table = "lamps")]
struct Lamp {
    #[record(key)]
    number: u64,
    lit: bool,
}

/// A row is deleted, inserted again and deleted again, all while the record waits to be unlinked. So the record
/// is unlinked before the transactions that began between the last two steps have ended. Such a transaction
/// must find the row that was there when it began, or abort.
#[test]
fn early_deletion_is_invisible_to_older_transactions() {
    let database: Database<TimestampOrdering> = Database::builder()
        .protocol::<TimestampOrdering>()
        .table::<Lamp>()
        .open()
        .expect("a database");
    let lamps = database.table::<Lamp>().expect("its table");
    let insert = || database.transact(|tx| tx.insert(&lamps, Lamp { number: 1, lit: true }));
    let delete = || database.transact(|tx| tx.delete(&lamps, &1));
    let reader = thread::scope(|scope| {
        // Every thread collects its garbage when it ends.
        let run = |step: &(dyn Fn() + Sync)| {
            thread::scope(|scope| scope.spawn(step).join().expect("no panic"));
        };
        run(&|| insert().expect("inserted"));
        let (end, ended) = channel::<()>();
        let (began, beginning) = channel();
        let oldest = scope.spawn({
            let database = &database;
            move || {
                let transaction = database.begin().expect("begun");
                began.send(()).expect("the test listens");
                ended.recv().expect("told to end");
                transaction.rollback();
            }
        });
        beginning.recv().expect("the oldest began");
        run(&|| assert!(delete().expect("deleted"), "queued; the oldest keeps the record"));
        run(&|| insert().expect("inserted into the same record"));
        let reader = database.begin().expect("begun");
        run(&|| assert!(delete().expect("deleted"), "for the second time"));
        // Now every transaction that began before the first deletion has ended, so its wait is over.
        end.send(()).expect("the oldest listens");
        oldest.join().expect("no panic");
        reader
    });
    match reader.get(&lamps, &1) {
        Ok(row) => assert_eq!(row, Some(&Lamp { number: 1, lit: true })),
        Err(Error::Conflict(_)) => {}
        Err(error) => panic!("{error}"),
    };
}

/// What makes a transaction fail is protected like what makes it commit: once a key was found absent, no older
/// transaction can insert it.
#[test]
fn absence_that_caused_an_error_is_protected() {
    let database: Database<TimestampOrdering> = Database::builder()
        .protocol::<TimestampOrdering>()
        .table::<Lamp>()
        .open()
        .expect("a database");
    let lamps = database.table::<Lamp>().expect("its table");
    thread::scope(|scope| {
        let older = database.begin().expect("begun");
        let failing = scope.spawn(|| {
            database.transact(|tx| {
                // Through an insertion, of which nothing remains.
                tx.insert(&lamps, Lamp { number: 1, lit: true })?;
                Err::<(), Error>(Failure::Closed.into())
            })
        });
        let failed = failing.join().expect("no panic");
        assert!(matches!(failed, Err(Error::Failure(Failure::Closed))));
        let inserted = older.insert(&lamps, Lamp { number: 1, lit: false });
        assert!(matches!(inserted, Err(Error::Conflict(_))), "{inserted:?}");
    });
}
