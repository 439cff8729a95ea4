//! Tests of which transaction waits for a lock and which gives way, under two-phase locking.
//!
//! A transaction on a thread that starts later has a later timestamp. (This holds until a thread has used up the
//! timestamps that it took with its first transaction, which no thread of these tests does.)

use std::sync::mpsc::channel;
use std::thread::scope;

use weft::protocol::{Protocol, TwoPhaseLocking, TwoPhaseLockingNoWait};
use weft::{
    Conflict, ConflictReason, Database, Error, Failure, Record, Table, Transaction,
    TransactionOptions,
};

#[derive(Clone, Copy, Debug, Record)]
#[record(table = "counts")]
struct Count {
    #[record(key)]
    id: u64,
    value: i64,
}

fn on_a_thread<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    scope(|scope| scope.spawn(work).join()).expect("no panic")
}

struct Counts<P: Protocol> {
    database: Database<P>,
    counts: Table<Count>,
}

impl<P: Protocol> Counts<P> {
    /// Creates the counts 1 and 2, both with the value 0.
    fn new() -> Self {
        let database = Database::builder().protocol::<P>().table::<Count>().open().unwrap();
        let counts = database.table().unwrap();
        for id in [1, 2] {
            database.transact(|tx| tx.insert(&counts, Count { id, value: 0 })).unwrap();
        }
        Counts { database, counts }
    }

    fn increment(&self, tx: &Transaction<'_, P>, id: u64) -> Result<(), Error> {
        tx.update(&self.counts, &id, |row| row.value += 1)?;
        Ok(())
    }

    fn value(&self, id: u64) -> Option<i64> {
        let read = |tx: &Transaction<'_, P>| -> Result<_, Error> {
            Ok(tx.get(&self.counts, &id)?.map(|row| row.value))
        };
        self.database.transact(read).unwrap()
    }

    /// Runs a transaction on a younger thread, and checks that the count's lock is denied to it.
    fn denied(
        &self,
        id: u64,
        body: impl Fn(&Transaction<'_, P>) -> Result<(), Error> + Sync + Send,
    ) {
        let options = TransactionOptions::new().retries_max(3);
        let ended = on_a_thread(|| self.database.transact_with(&options, body));
        let Err(Error::Failure(Failure::RetriesExhausted { attempts: 4, last })) = ended else {
            panic!("expected a denied lock: {ended:?}");
        };
        let key = Some(id.to_string());
        let reason = ConflictReason::LockDenied;
        assert_eq!(last, Conflict { reason, table: "counts", index: None, key });
    }
}

fn a_younger_transaction_gives_way<P: Protocol>() {
    let it = Counts::<P>::new();
    let tx = it.database.begin().unwrap();
    it.increment(&tx, 1).unwrap();
    it.denied(1, |tx| it.increment(tx, 1));
    it.denied(1, |tx| tx.get(&it.counts, &1).map(drop));
    it.denied(1, |tx| tx.range(&it.counts, ..).try_for_each(|row| row.map(drop)));
    on_a_thread(|| it.database.transact(|tx| it.increment(tx, 2))).unwrap();
    tx.get(&it.counts, &2).unwrap();
    on_a_thread(|| it.value(2));
    it.denied(2, |tx| it.increment(tx, 2));
    // A shared lock cannot be upgraded while another transaction shares it.
    it.denied(2, |tx| {
        tx.get(&it.counts, &2)?;
        it.increment(tx, 2)
    });
    tx.commit().unwrap();
    assert_eq!([it.value(1), it.value(2)], [Some(1), Some(1)]);
}

#[test]
fn younger_transactions_give_way() {
    a_younger_transaction_gives_way::<TwoPhaseLocking>();
    a_younger_transaction_gives_way::<TwoPhaseLockingNoWait>();
}

/// A key that was found absent stays absent: the deleted row's record is still there, and is locked.
fn an_absent_row_is_locked<P: Protocol>() {
    let it = Counts::<P>::new();
    it.database.transact(|tx| tx.delete(&it.counts, &1)).unwrap();
    let tx = it.database.begin().unwrap();
    assert!(tx.get(&it.counts, &1).unwrap().is_none());
    it.denied(1, |tx| tx.insert(&it.counts, Count { id: 1, value: 7 }));
    assert!(tx.get(&it.counts, &1).unwrap().is_none());
    tx.insert(&it.counts, Count { id: 1, value: 8 }).unwrap();
    tx.commit().unwrap();
    assert_eq!(it.value(1), Some(8));
}

#[test]
fn absent_rows_are_locked() {
    an_absent_row_is_locked::<TwoPhaseLocking>();
    an_absent_row_is_locked::<TwoPhaseLockingNoWait>();
}

/// Under wait-die the older transaction succeeds at its first attempt, no matter which lock the younger one
/// holds. It waits when it reads, when it writes, and when it upgrades a shared lock.
#[test]
fn older_transactions_wait() {
    type Access =
        fn(&Counts<TwoPhaseLocking>, &Transaction<'_, TwoPhaseLocking>) -> Result<(), Error>;
    let read: Access = |it, tx| tx.get(&it.counts, &1).map(drop);
    let write: Access = |it, tx| it.increment(tx, 1);
    let upgrade: Access = |it, tx| {
        tx.get(&it.counts, &1)?;
        it.increment(tx, 1)
    };
    let cases = [(write, read, 1), (write, write, 2), (read, write, 1), (read, upgrade, 1)];
    for (younger, older, written) in cases {
        let it = Counts::<TwoPhaseLocking>::new();
        let (locked, is_locked) = channel();
        let (commit, may_commit) = channel();
        scope(|scope| {
            scope.spawn(|| {
                // The thread owns its channel ends, so its panic closes them and wakes the other thread.
                let (locked, may_commit) = (locked, may_commit);
                let tx = it.database.begin().unwrap();
                younger(&it, &tx).unwrap();
                locked.send(()).unwrap();
                may_commit.recv().unwrap();
                tx.commit().unwrap();
            });
            is_locked.recv().unwrap();
            let tx = it.database.begin().unwrap();
            commit.send(()).unwrap();
            older(&it, &tx).unwrap();
            tx.commit().unwrap();
        });
        assert_eq!(it.value(1), Some(written));
    }
}
