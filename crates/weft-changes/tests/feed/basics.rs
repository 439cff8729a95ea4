//! What the feed shows, where it begins, and how it goes on.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use weft::column_of;
use weft::description::Value;
use weft::durability::{SimulatedDisk, StorageError};
use weft::operation::{Add, OperationKind};
use weft::{
    Acknowledge, Builder, Database, DurabilityOptions, Error, ManualClock, Record, Timestamp,
};
use weft_changes::{ChangeFeed, ChangeKind, ChangesError, Position};
use weft_protocols::{BuilderExt, Doppel, LabelledDatabase, PhaseOptions};

use crate::bank::{Account, Bank, Follower};

fn options() -> DurabilityOptions {
    DurabilityOptions::new().threads(1).segment_bytes(2000)
}

fn builder(disk: &SimulatedDisk, options: DurabilityOptions) -> Builder {
    let builder = Database::builder().directory("/db").durability(options);
    builder.backend(Arc::new(disk.clone()), true)
}

fn account(id: u32, cents: i64) -> Account {
    Account { id, cents, note: "new".to_owned() }
}

#[test]
fn inserts_updates_and_deletes_are_told_apart() {
    let disk = SimulatedDisk::new(1);
    let bank = Bank::open(builder(&disk, options())).unwrap();
    let mut changes = bank.database.changes_from_now().unwrap();
    bank.database.transact(|tx| tx.insert(&bank.accounts, account(1, 5))).unwrap();
    bank.database.transact(|tx| tx.update(&bank.accounts, &1, |row| row.cents = 7)).unwrap();
    bank.database.transact(|tx| tx.delete(&bank.accounts, &1)).unwrap();

    let inserted = changes.next().unwrap().unwrap();
    let change = inserted.changes().next().unwrap();
    assert_eq!((change.kind(), change.table()), (ChangeKind::Insert, "account"));
    assert_eq!(change.row::<Account>().unwrap(), Some(account(1, 5)));
    assert_eq!(change.column::<String>("note").unwrap(), Some("new".to_owned()));
    assert_eq!(change.columns().unwrap().len(), 3);

    let updated = changes.next().unwrap().unwrap();
    let change = updated.changes().next().unwrap();
    assert_eq!((change.kind(), change.key::<Account>().unwrap()), (ChangeKind::Update, 1));
    assert_eq!(change.row::<Account>().unwrap(), None);
    assert_eq!(change.column::<i64>("cents").unwrap(), Some(7));
    assert_eq!(change.column::<String>("note").unwrap(), None);
    assert_eq!(change.columns().unwrap(), [("cents", Value::Signed(7))]);
    assert_eq!(change.apply(Some(account(1, 5))).unwrap(), Some(account(1, 7)));

    let deleted = changes.next().unwrap().unwrap();
    let change = deleted.changes().next().unwrap();
    assert_eq!((change.kind(), change.key::<Account>().unwrap()), (ChangeKind::Delete, 1));
    assert_eq!(change.apply(Some(account(1, 7))).unwrap(), None);
    assert!(format!("{deleted:?}").contains("Delete"));
    assert!(changes.try_next().unwrap().is_none());
}

#[test]
fn transactions_without_changes_are_left_out() {
    let disk = SimulatedDisk::new(1);
    let bank = Bank::open(builder(&disk, options())).unwrap();
    let mut changes = bank.database.changes_from_now().unwrap();
    bank.database.transact(|tx| tx.get(&bank.accounts, &1).map(|row| row.is_some())).unwrap();
    let rolled_back: Result<(), Error> = bank.database.transact(|tx| {
        tx.insert(&bank.accounts, account(1, 5))?;
        tx.insert(&bank.accounts, account(1, 5))
    });
    assert!(rolled_back.is_err());
    bank.database.flush().unwrap();
    assert!(changes.try_next().unwrap().is_none());
}

#[test]
fn nothing_is_shown_before_it_is_durable() {
    let disk = SimulatedDisk::new(1);
    let options = options().acknowledge(Acknowledge::Committed);
    let bank = Bank::open(builder(&disk, options)).unwrap();
    let mut changes = bank.database.changes_from_now().unwrap();
    bank.database.transact(|tx| tx.insert(&bank.accounts, account(1, 5))).unwrap();
    assert!(changes.try_next().unwrap().is_none(), "no thread has written the log");
    bank.database.flush().unwrap();
    assert!(changes.try_next().unwrap().is_some());
}

#[test]
fn position_continues_after_every_transaction_and_restart() {
    let disk = SimulatedDisk::new(1);
    let committed = options().acknowledge(Acknowledge::Committed);
    let mut random = fastrand::Rng::with_seed(3);
    let mut follower = Follower::new();
    for round in 0..12 {
        // Another number of loggers each time.
        let bank = Bank::open(builder(&disk, committed.clone().loggers(round % 3 + 1))).unwrap();
        for _ in 0..random.u32(..6) {
            // Several transactions in an epoch, so that positions lie within it.
            for _ in 0..random.u32(1..4) {
                bank.transfer(random.u32(..2), &mut random).unwrap();
            }
            bank.database.flush().unwrap();
        }
        let mut changes = bank.database.changes(follower.position).unwrap();
        for _ in 0..random.u32(..8) {
            let Some(transaction) = changes.try_next().unwrap() else { break };
            follower.follow(&transaction);
            if random.bool() {
                let text = follower.position.to_string();
                changes = bank.database.changes(text.parse().unwrap()).unwrap();
            }
        }
    }
    let bank = Bank::open(builder(&disk, committed)).unwrap();
    for transaction in std::iter::from_fn({
        let mut changes = bank.database.changes(follower.position).unwrap();
        move || changes.try_next().unwrap()
    }) {
        follower.follow(&transaction);
    }
    assert_eq!(follower.copied, bank.state());
}

#[test]
fn kept_log_outlasts_checkpoints_and_restarts() {
    let disk = SimulatedDisk::new(1);
    let kept = options().keep_log_bytes(1 << 20);
    let mut random = fastrand::Rng::with_seed(3);
    for round in 0..4 {
        let bank = Bank::open(builder(&disk, kept.clone().loggers(round % 2 + 1))).unwrap();
        for _ in 0..20 {
            bank.transfer(0, &mut random).unwrap();
        }
        bank.database.checkpoint().unwrap();
        bank.transfer(1, &mut random).unwrap();
        bank.database.checkpoint().unwrap();
    }
    let bank = Bank::open(builder(&disk, kept)).unwrap();
    let mut follower = Follower::new();
    let mut changes = bank.database.changes(Position::START).unwrap();
    while let Some(transaction) = changes.try_next().unwrap() {
        follower.follow(&transaction);
    }
    assert_eq!(follower.copied, bank.state());
}

#[test]
fn kept_log_is_bounded() {
    let disk = SimulatedDisk::new(1);
    let bank = Bank::open(builder(&disk, options().keep_log_bytes(7000))).unwrap();
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..200 {
        bank.transfer(0, &mut random).unwrap();
    }
    bank.database.checkpoint().unwrap();
    let segments =
        || disk.files().into_iter().filter(|path| path.extension() == Some("log".as_ref()));
    let bytes: usize = segments().map(|path| disk.contents(path).len()).sum();
    // The segments that are kept, and the one that is being written.
    assert!(bytes <= 7000 + 3000, "{bytes} bytes");
    assert!(segments().count() > 2, "whole segments are kept");
    let behind = bank.database.changes(Position::START).unwrap_err();
    let ChangesError::FellBehind { oldest, is_unlogged: false, .. } = behind else {
        panic!("{behind}")
    };
    // The position that the error names can be continued.
    assert!(bank.database.changes(oldest).unwrap().try_next().unwrap().is_some());
}

#[test]
fn reader_that_falls_behind_resumes_from_a_snapshot() {
    let disk = SimulatedDisk::new(1);
    let bank = Bank::open(builder(&disk, options())).unwrap();
    let mut random = fastrand::Rng::with_seed(3);
    let mut slow = bank.database.changes(Position::START).unwrap();
    let mut follower = Follower::new();
    for _ in 0..30 {
        bank.transfer(0, &mut random).unwrap();
    }
    follower.follow(&slow.try_next().unwrap().unwrap());
    // The reader has some of the log in memory. What follows is removed.
    for _ in 0..60 {
        bank.transfer(0, &mut random).unwrap();
    }
    bank.database.checkpoint().unwrap();
    let behind = loop {
        match slow.try_next() {
            Ok(transaction) => follower.follow(&transaction.expect("it falls behind before")),
            Err(error) => break error,
        }
    };
    assert!(matches!(behind, ChangesError::FellBehind { is_unlogged: false, .. }), "{behind}");
    assert!(slow.try_next().unwrap().is_none(), "the feed has ended");
    assert!(bank.database.changes(follower.position).is_err());

    let (snapshot, position) = bank.database.snapshot_with_position().unwrap();
    bank.transfer(0, &mut random).unwrap();
    let mut follower = Follower { position, copied: bank.rows(&snapshot) };
    let mut changes = bank.database.changes(position).unwrap();
    follower.follow(&changes.try_next().unwrap().unwrap());
    assert_eq!(follower.copied, bank.state());
}

#[test]
fn position_of_a_snapshot_survives_a_crash_in_idle_time() {
    let disk = SimulatedDisk::new(1);
    let bank = Bank::open(builder(&disk, options())).unwrap();
    let mut random = fastrand::Rng::with_seed(3);
    bank.transfer(0, &mut random).unwrap();
    // Idle epochs, whose numbers are used again after a crash.
    for _ in 0..20 {
        drop(bank.database.snapshot_with_position().unwrap());
    }
    let (snapshot, position) = bank.database.snapshot_with_position().unwrap();
    let mut follower = Follower { position, copied: bank.rows(&snapshot) };
    drop(snapshot);
    let crashed = disk.crash(1);
    let bank = Bank::open(builder(&crashed, options())).unwrap();
    for _ in 0..3 {
        bank.transfer(0, &mut random).unwrap();
    }
    let mut changes = bank.database.changes(position).unwrap();
    while let Some(transaction) = changes.try_next().unwrap() {
        follower.follow(&transaction);
    }
    assert_eq!(follower.copied, bank.state());
}

#[test]
fn bulk_load_is_a_gap_in_the_feed() {
    let disk = SimulatedDisk::new(1);
    let bank = Bank::open(builder(&disk, options().keep_log_bytes(1 << 20))).unwrap();
    let insert = |bank: &Bank<_>, id| {
        bank.database.transact(|tx| tx.insert(&bank.accounts, account(id, 0))).unwrap();
    };
    insert(&bank, 1);
    let mut changes = bank.database.changes(Position::START).unwrap();
    let position = changes.try_next().unwrap().unwrap().position();
    insert(&bank, 2);
    let mut current = bank.database.changes_from_now().unwrap();
    let receipts =
        (1..9).map(|number| Ok::<_, Error>(crate::bank::Receipt { writer: 1, number, cents: 1 }));
    bank.database.load(&bank.receipts, [receipts], |_| {}).unwrap();
    for behind in [
        changes.try_next().unwrap_err(),
        current.try_next().unwrap_err(),
        bank.database.changes(position).unwrap_err(),
    ] {
        assert!(matches!(behind, ChangesError::FellBehind { is_unlogged: true, .. }), "{behind}");
    }
    let (_, continued) = bank.database.snapshot_with_position().unwrap();
    let mut changes = bank.database.changes(continued).unwrap();
    insert(&bank, 3);
    assert!(changes.try_next().unwrap().is_some());
    drop(bank);
    let bank = Bank::open(builder(&disk, options())).unwrap();
    assert!(bank.database.changes(position).is_err(), "the gap is known after a restart");
    assert!(bank.database.changes(continued).unwrap().try_next().unwrap().is_some());
}

#[test]
fn rows_of_a_backup_are_a_gap_in_the_feed() {
    let disk = SimulatedDisk::new(1);
    let bank = Bank::open(builder(&disk, options())).unwrap();
    let insert = |bank: &Bank<_>, id| {
        bank.database.transact(|tx| tx.insert(&bank.accounts, account(id, 0))).unwrap();
    };
    bank.database.backup("/empty").unwrap();
    insert(&bank, 1);
    bank.database.backup("/copy").unwrap();
    drop(bank);
    let open = |directory| {
        let builder = Database::builder().directory(directory).durability(options());
        Bank::open(builder.backend(Arc::new(disk.clone()), true)).unwrap()
    };
    for _ in 0..2 {
        let copy = open("/copy");
        let behind = copy.database.changes(Position::START).err().unwrap();
        assert!(matches!(behind, ChangesError::FellBehind { is_unlogged: true, .. }), "{behind}");
        let mut changes = copy.database.changes_from_now().unwrap();
        let (_, position) = copy.database.snapshot_with_position().unwrap();
        let id = copy.state().accounts.len() as u32 + 1;
        insert(&copy, id);
        for changes in [&mut changes, &mut copy.database.changes(position).unwrap()] {
            let inserted = changes.next().unwrap().unwrap();
            let change = inserted.changes().next().unwrap();
            assert_eq!(change.row::<Account>().unwrap(), Some(account(id, 0)));
        }
        let behind = copy.database.changes(Position::START).err().unwrap();
        assert!(matches!(behind, ChangesError::FellBehind { is_unlogged: true, .. }), "{behind}");
    }
    // A copy without rows lacks no change.
    let empty = open("/empty");
    insert(&empty, 1);
    let mut changes = empty.database.changes(Position::START).unwrap();
    assert!(changes.next().unwrap().is_ok());
}

mod version_2 {
    use weft::Record;

    /// The account in a later version of the program.
    #[derive(Clone, Debug, PartialEq, Record)]
    #[record(table = "account")]
    pub struct Account {
        #[record(default = 3)]
        pub level: u8,
        #[record(key)]
        pub id: u32,
        #[record(was = "cents")]
        pub balance: i64,
        pub note: String,
    }
}

#[test]
fn changes_of_an_earlier_version_become_rows_of_this_one() {
    let disk = SimulatedDisk::new(1);
    let first = builder(&disk, options()).table::<Account>().open().unwrap();
    let accounts = first.table::<Account>().unwrap();
    let (_, position) = first.snapshot_with_position().unwrap();
    first.transact(|tx| tx.insert(&accounts, account(1, 5))).unwrap();
    first.transact(|tx| tx.update(&accounts, &1, |row| row.cents = 7)).unwrap();
    drop((first, accounts));
    let second = builder(&disk, options()).table::<version_2::Account>().open().unwrap();
    let accounts = second.table::<version_2::Account>().unwrap();
    second.transact(|tx| tx.update(&accounts, &1, |row| row.level = 4)).unwrap();
    let mut row = None;
    let mut changes = second.changes(position).unwrap();
    while let Some(transaction) = changes.try_next().unwrap() {
        for change in transaction.changes() {
            assert_eq!(change.key::<version_2::Account>().unwrap(), 1);
            row = change.apply::<version_2::Account>(row).unwrap();
        }
    }
    let note = "new".to_owned();
    assert_eq!(row, Some(version_2::Account { level: 4, id: 1, balance: 7, note }));
}

#[test]
fn migration_is_a_gap_in_the_feed() {
    let disk = SimulatedDisk::new(1);
    let program = || builder(&disk, options().keep_log_bytes(1 << 20)).table::<Account>();
    let first = program().open().unwrap();
    let accounts = first.table::<Account>().unwrap();
    first.transact(|tx| tx.insert(&accounts, account(1, 5))).unwrap();
    let (_, position) = first.snapshot_with_position().unwrap();
    drop((first, accounts));
    let migrated = program().version(1).migrate(0, |tx| {
        tx.update(&tx.table::<Account>()?, &1, |row| row.cents = 500)?;
        Ok(())
    });
    let second = migrated.open().unwrap();
    let behind = second.changes(position).unwrap_err();
    assert!(matches!(behind, ChangesError::FellBehind { is_unlogged: true, .. }), "{behind}");
    let (_, position) = second.snapshot_with_position().unwrap();
    assert!(second.changes(position).unwrap().try_next().unwrap().is_none());
}

#[derive(Clone, Debug, PartialEq, Record)]
struct Counter {
    #[record(key)]
    id: u32,
    count: i64,
}

#[test]
fn split_columns_appear_as_operations_of_their_transactions() {
    let phases = PhaseOptions::new().length(Duration::from_secs(3600));
    let disk = Arc::new(SimulatedDisk::new(1));
    let builder = Database::builder().protocol::<Doppel>().table::<Counter>().phases(phases);
    let database = builder.directory("/db").backend(disk, true).open().unwrap();
    let counters = database.table::<Counter>().unwrap();
    let insert = |id| database.transact(|tx| tx.insert(&counters, Counter { id, count: 0 }));
    insert(1).unwrap();
    insert(2).unwrap();
    database.label_split::<_, _, Add<_>>(&counters, &1, column_of!(Counter.count)).unwrap();
    let add = |count| {
        let added: Result<(), Error> = database.transact(|tx| {
            tx.add(&counters, &1, column_of!(Counter.count), count)?;
            tx.add(&counters, &2, column_of!(Counter.count), 1)
        });
        added.unwrap();
    };
    let mut sum = 0;
    while !database.metrics().phases.unwrap().is_split {
        add(1);
        sum += 1;
    }
    let mut changes = database.changes_from_now().unwrap();
    add(40);
    add(2);
    for expected in [40, 2] {
        let transaction = changes.next().unwrap().unwrap();
        let kinds: Vec<_> = transaction
            .changes()
            .map(|change| (change.key::<Counter>().unwrap(), change.kind()))
            .collect();
        assert!(kinds.contains(&(1, ChangeKind::Operation)), "{kinds:?}");
        assert!(kinds.contains(&(2, ChangeKind::Update)), "{kinds:?}");
        let of_first = |change: &weft_changes::Change<'_>| change.key::<Counter>().unwrap() == 1;
        let change = transaction.changes().find(of_first).unwrap();
        let operation = change.operation().unwrap().unwrap();
        assert_eq!((operation.column, operation.kind), ("count", OperationKind::Add));
        assert_eq!(operation.operand::<i64>().unwrap(), expected);
        let before = Counter { id: 1, count: 100 };
        let after = change.apply(Some(before)).unwrap().unwrap();
        assert_eq!(after.count, 100 + expected);
    }
    // The merge of the slices makes no change of its own.
    let mut snapshot_changes = database.changes_from_now().unwrap();
    let snapshot = database.open_snapshot().unwrap();
    assert_eq!(snapshot.get(&counters, &1).unwrap().unwrap().count, sum + 42);
    database.flush().unwrap();
    assert!(snapshot_changes.try_next().unwrap().is_none());
}

#[test]
fn task_waits_for_changes_without_a_thread() {
    let builder = Database::builder().directory("/db");
    let bank = Bank::open(builder.backend(Arc::new(SimulatedDisk::new(1)), false)).unwrap();
    let mut changes = bank.database.changes_from_now().unwrap();
    {
        let mut next = pin!(changes.next_async());
        let mut context = Context::from_waker(Waker::noop());
        assert!(matches!(next.as_mut().poll(&mut context), Poll::Pending));
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..3 {
                bank.transfer(0, &mut fastrand::Rng::with_seed(1)).unwrap();
            }
        });
        let mut follower = Follower::new();
        for _ in 0..3 {
            follower.follow(&pollster::block_on(changes.next_async()).unwrap().unwrap());
        }
    });
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| pollster::block_on(changes.next_async()));
        bank.database.close().unwrap();
        assert!(waiting.join().unwrap().unwrap().is_none(), "the feed ends with the database");
    });
}

#[test]
fn waiting_reader_does_not_keep_the_database_open() {
    let disk = SimulatedDisk::new(1);
    let open = || {
        let builder = Database::builder().directory("/db");
        Bank::open(builder.backend(Arc::new(disk.clone()), false))
    };
    let bank = open().unwrap();
    let changes = bank.database.changes_from_now().unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| changes.count());
        drop(bank);
        assert_eq!(waiting.join().unwrap(), 0);
    });
    open().expect("the directory is unlocked");
}

#[test]
fn failed_log_ends_the_feed_with_its_error() {
    let disk = SimulatedDisk::new(1);
    let builder = Database::builder().directory("/db");
    let bank = Bank::open(builder.backend(Arc::new(disk.clone()), false)).unwrap();
    let mut changes = bank.database.changes_from_now().unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    bank.transfer(0, &mut random).unwrap();
    disk.fail_sync(disk.syncs() + 1);
    assert!(bank.transfer(0, &mut random).is_err());
    assert!(changes.next().unwrap().is_ok(), "it was durable");
    let error = changes.next().unwrap().unwrap_err();
    let is_failure = |error: &ChangesError| {
        matches!(
            error,
            ChangesError::Failure(weft::Failure::Storage(StorageError::SyncFailed { .. }))
        )
    };
    assert!(is_failure(&error), "{error}");
    assert!(changes.next().is_none());
}

#[test]
fn waker_that_panics_does_not_stop_the_log() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker of the user's");
        }
    }
    let builder = Database::builder().directory("/db");
    let bank = Bank::open(builder.backend(Arc::new(SimulatedDisk::new(1)), false)).unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    let mut changes = bank.database.changes_from_now().unwrap();
    let mut other = bank.database.changes_from_now().unwrap();
    let waker = Waker::from(Arc::new(Panics));
    {
        let mut next = pin!(changes.next_async());
        let polled = next.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(matches!(polled, Poll::Pending));
    }
    for _ in 0..3 {
        bank.transfer(0, &mut random).unwrap();
        assert!(other.next().unwrap().is_ok());
    }
}

#[test]
fn time_limit_ends_a_wait() {
    let builder = Database::builder().directory("/db");
    let bank = Bank::open(builder.backend(Arc::new(SimulatedDisk::new(1)), false)).unwrap();
    let mut changes = bank.database.changes_from_now().unwrap();
    assert!(changes.next_timeout(Duration::from_millis(1)).unwrap().is_none());
    bank.transfer(0, &mut fastrand::Rng::with_seed(1)).unwrap();
    assert!(changes.next_timeout(Duration::from_secs(600)).unwrap().is_some());
}

#[derive(Clone, Debug, PartialEq, Record)]
#[record(expires = until)]
struct Visit {
    #[record(key)]
    id: u32,
    until: Timestamp,
}

/// A transaction that reads a row which expires, and writes nothing, has its time in the log.
#[test]
fn epochs_with_a_time_and_no_transaction_are_passed() {
    let start = Timestamp::from_millis(1_000_000);
    let clock = ManualClock::new(start);
    let builder = Database::builder().directory("/db").table::<Visit>().clock(&clock);
    let database = builder.backend(Arc::new(SimulatedDisk::new(1)), true).open().unwrap();
    let visits = database.table::<Visit>().unwrap();
    let minute = Duration::from_secs(60);
    let visit =
        |id| database.transact(|tx| tx.insert(&visits, Visit { id, until: start + 1000 * minute }));
    visit(1).unwrap();
    let mut readers = [(); 2].map(|()| database.changes(Position::START).unwrap());
    for id in 2..5 {
        for _ in 0..3 {
            clock.advance(minute);
            database.transact(|tx| Ok::<_, Error>(tx.get(&visits, &1)?.is_some())).unwrap();
            database.checkpoint().unwrap();
        }
        visit(id).unwrap();
        for reader in &mut readers {
            let mut seen = 0;
            while let Some(transaction) = reader.try_next().unwrap() {
                seen += transaction.changes().len();
            }
            assert_eq!(seen, if id == 2 { 2 } else { 1 });
        }
    }
}
